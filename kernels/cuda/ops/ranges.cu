/* ranges.cu - operations that copy ranges of heads, or work number by number: slice, join, scale, mul, softcap, gate. */
#include "kernels/cuda/common/ops.cuh"
#include "kernels/cuda/common/pdl.cuh"

enum { BLOCK = 256 };

static __device__ __forceinline__ int64_t own_number(void) { return (int64_t)blockIdx.x * BLOCK + threadIdx.x; }
static __global__ void __launch_bounds__(BLOCK) k_slice(const __grid_constant__ apr_slice_args a)
{
    pdl_trigger_and_wait();
    const int64_t i = own_number();
    if (i < a.n_tokens * a.n_heads * a.n) a.out[i] = a.x[i / a.n * a.head_dim + a.start + i % a.n];
}

static __global__ void __launch_bounds__(BLOCK) k_join(const __grid_constant__ apr_join_args a)
{
    pdl_trigger_and_wait();
    const int64_t i = own_number(), each = a.n_a + a.n_b, head = i / each, d = i % each;
    if (i < a.n_tokens * a.n_heads * each) a.out[i] = d < a.n_a ? a.a[head * a.n_a + d] : a.b[head * a.n_b + d - a.n_a];
}

static __global__ void __launch_bounds__(BLOCK) k_scale(const __grid_constant__ apr_scale_args a)
{
    pdl_trigger_and_wait();
    const int64_t i = own_number();
    if (i >= a.n_tokens * a.width) return;
    float periods = 0.0f;
    if (a.warmth != 0.0f)
        periods = floorf(((float)position_of_token(a.position, a.position_at, a.per_sequence, i / a.width) + a.shift) / a.period);
    a.out[i] = a.x[i] * (a.factor * (1.0f + a.warmth * log1pf(periods)));
}

static __global__ void __launch_bounds__(BLOCK) k_mul(const __grid_constant__ apr_mul_args a)
{
    pdl_trigger_and_wait();
    const int64_t i = own_number(), column = a.y_width == 1 ? 0 : i % a.width;
    if (i < a.n_tokens * a.width) a.out[i] = a.x[i] * a.y[(a.y_is_vector ? 0 : i / a.width * a.y_width) + column];
}

static __global__ void __launch_bounds__(BLOCK) k_softcap(const __grid_constant__ apr_softcap_args a)
{
    pdl_trigger_and_wait();
    const int64_t i = own_number();
    if (i < a.n_tokens * a.width) a.out[i] = a.cap * tanhf(a.x[i] / a.cap);
}

static __global__ void __launch_bounds__(BLOCK) k_gate(const __grid_constant__ apr_gate_args a)
{
    pdl_trigger_and_wait();
    const int64_t i = own_number();
    if (i < a.n_tokens * a.n_heads * a.head_dim) a.out[i] = a.x[i] * apr_activate(a.activation, a.gate[i / a.head_dim]);
}

cudaError_t apr_cuda_slice(const apr_slice_args *a, cudaStream_t stream)
{
    const int64_t n = a->n_tokens * a->n_heads * a->n;
    if (n > 0) launch_pdl(k_slice, blocks_of(n, BLOCK), BLOCK, 0, stream, *a);
    return cudaGetLastError();
}

cudaError_t apr_cuda_join(const apr_join_args *a, cudaStream_t stream)
{
    const int64_t n = a->n_tokens * a->n_heads * (a->n_a + a->n_b);
    if (n > 0) launch_pdl(k_join, blocks_of(n, BLOCK), BLOCK, 0, stream, *a);
    return cudaGetLastError();
}

cudaError_t apr_cuda_scale(const apr_scale_args *a, cudaStream_t stream)
{
    const int64_t n = a->n_tokens * a->width;
    if (n > 0) launch_pdl(k_scale, blocks_of(n, BLOCK), BLOCK, 0, stream, *a);
    return cudaGetLastError();
}

cudaError_t apr_cuda_mul(const apr_mul_args *a, cudaStream_t stream)
{
    const int64_t n = a->n_tokens * a->width;
    if (n > 0) launch_pdl(k_mul, blocks_of(n, BLOCK), BLOCK, 0, stream, *a);
    return cudaGetLastError();
}

cudaError_t apr_cuda_softcap(const apr_softcap_args *a, cudaStream_t stream)
{
    const int64_t n = a->n_tokens * a->width;
    if (n > 0) launch_pdl(k_softcap, blocks_of(n, BLOCK), BLOCK, 0, stream, *a);
    return cudaGetLastError();
}

cudaError_t apr_cuda_gate(const apr_gate_args *a, cudaStream_t stream)
{
    const int64_t n = a->n_tokens * a->n_heads * a->head_dim;
    if (n > 0) launch_pdl(k_gate, blocks_of(n, BLOCK), BLOCK, 0, stream, *a);
    return cudaGetLastError();
}
