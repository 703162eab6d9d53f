/* rope.cu - rotary angles, and the rotation of heads. */
#include "kernels/cuda/attention/rope.cuh"
#include "kernels/cuda/common/ops.cuh"
#include "kernels/cuda/common/pdl.cuh"

enum { BLOCK = 256 };

/* The angle is a float32 product, as on the host. It is reduced to one turn in double, so that large positions stay exact. */
static __global__ void __launch_bounds__(BLOCK) k_angles(const __grid_constant__ apr_angles_args a)
{
    pdl_trigger_and_wait();
    const int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (at >= a.n_tokens * a.n_freqs) return;
    const int64_t t = at / a.n_freqs, j = at % a.n_freqs;
    const float angle = __fmul_rn((float)position_of_token(a.position, a.position_at, a.per_sequence, t), a.freqs[j]);
    const double half_turns = (double)angle * 0.31830988618379067154; /* 1 / pi */
    const float rest = (float)(half_turns - 2.0 * rint(half_turns * 0.5));
    a.out[t * 2 * a.n_freqs + j] = cospif(rest) * a.magnitude;
    a.out[t * 2 * a.n_freqs + a.n_freqs + j] = sinpif(rest) * a.magnitude;
}

/* A thread per pair of numbers. Numbers that are not rotated are copied by the threads after those of the pairs. */
static __global__ void __launch_bounds__(BLOCK) k_rope(const __grid_constant__ apr_rope_args a)
{
    pdl_trigger_and_wait();
    const int64_t each = a.head_dim - a.n_freqs, at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (at >= a.n_tokens * a.n_heads * each) return;
    const int64_t row = at / each, j = at % each, n = a.n_freqs;
    const float *const x = a.x + row * a.head_dim;
    float *const out = a.out + row * a.head_dim;
    if (j >= n) { /* the numbers before and after the rotated ones */
        const int64_t i = j - n < a.start ? j - n : j + n;
        out[i] = x[i];
        return;
    }
    const float *const angles = a.angles + row / a.n_heads * 2 * n;
    const bool neighbours = a.mode == APR_ROPE_NEIGHBOURS;
    const int64_t i = a.start + (neighbours ? 2 * j : j), other = i + (neighbours ? 1 : n);
    const float2 pair = rotated(x[i], x[other], angles[j], angles[j + n]);
    out[i] = pair.x;
    out[other] = pair.y;
}

cudaError_t apr_cuda_angles(const apr_angles_args *args, cudaStream_t stream)
{
    if (args->n_tokens * args->n_freqs == 0) return cudaSuccess;
    launch_pdl(k_angles, blocks_of(args->n_tokens * args->n_freqs, BLOCK), BLOCK, 0, stream, *args);
    return cudaGetLastError();
}

cudaError_t apr_cuda_rope(const apr_rope_args *args, cudaStream_t stream)
{
    if (args->start < 0 || args->start + args->n_freqs * 2 > args->head_dim) return cudaErrorInvalidValue;
    const int64_t n = args->n_tokens * args->n_heads * (args->head_dim - args->n_freqs);
    if (n == 0) return cudaSuccess;
    launch_pdl(k_rope, blocks_of(n, BLOCK), BLOCK, 0, stream, *args);
    return cudaGetLastError();
}
