/* elementwise.cu - glu and add. */
#include "kernels/cuda/common/ops.cuh"
#include "kernels/cuda/common/pdl.cuh"

enum { BLOCK = 256 };

/* out may be an input, since a thread reads before it writes. */
static __global__ void __launch_bounds__(BLOCK) k_glu(apr_glu_shape shape, const float *gate, const float *up, float *out, int64_t n)
{
    pdl_trigger_and_wait();
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) out[i] = up != NULL ? apr_glu_of(&shape, gate[i], up[i]) : apr_activate(shape.activation, gate[i]);
}

static __global__ void __launch_bounds__(BLOCK) k_glu_4(apr_glu_shape shape, const float4 *gate, const float4 *up, float4 *out, int64_t n)
{
    pdl_trigger_and_wait();
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    const float4 g = gate[i], u = up[i];
    out[i] =
        make_float4(apr_glu_of(&shape, g.x, u.x), apr_glu_of(&shape, g.y, u.y), apr_glu_of(&shape, g.z, u.z), apr_glu_of(&shape, g.w, u.w));
}

static __global__ void __launch_bounds__(BLOCK) k_add(const float *a, const float *b, float *out, int64_t n)
{
    pdl_trigger_and_wait();
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

static __global__ void __launch_bounds__(BLOCK) k_add_4(const float4 *a, const float4 *b, float4 *out, int64_t n)
{
    pdl_trigger_and_wait();
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    const float4 x = a[i], y = b[i];
    out[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}

static bool in_fours(int64_t n, const void *a, const void *b, const void *c)
{
    return n % 4 == 0 && ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;
}

cudaError_t apr_cuda_glu_floats(const apr_glu_args *a, cudaStream_t stream)
{
    const int64_t n = a->n_tokens * a->width;
    if (n == 0) return cudaSuccess;
    if (a->up != NULL && in_fours(n, a->gate, a->up, a->out))
        launch_pdl(k_glu_4, blocks_of(n / 4, BLOCK), BLOCK, 0, stream, a->shape, (const float4 *)a->gate, (const float4 *)a->up,
                   (float4 *)a->out, n / 4);
    else launch_pdl(k_glu, blocks_of(n, BLOCK), BLOCK, 0, stream, a->shape, a->gate, a->up, a->out, n);
    return cudaGetLastError();
}

cudaError_t apr_cuda_add(const apr_add_args *a, cudaStream_t stream)
{
    const int64_t n = a->n_tokens * a->width;
    if (n == 0) return cudaSuccess;
    if (in_fours(n, a->a, a->b, a->out))
        launch_pdl(k_add_4, blocks_of(n / 4, BLOCK), BLOCK, 0, stream, (const float4 *)a->a, (const float4 *)a->b, (float4 *)a->out, n / 4);
    else launch_pdl(k_add, blocks_of(n, BLOCK), BLOCK, 0, stream, a->a, a->b, a->out, n);
    return cudaGetLastError();
}
