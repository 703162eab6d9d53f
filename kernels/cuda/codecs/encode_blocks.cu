/* encode_blocks.cu - blocks of 32 without importance. */
#include "kernels/cuda/codecs/encode_blocks.cuh"

template <apr_dtype D>
static __global__ void __launch_bounds__(THREADS) k_encode_blocks(const float *src, typename block_of<D>::type *dst, int64_t n_blocks)
{
    const int64_t b = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / LANES;
    const member m = {0xffu << (threadIdx.x & 24), (int)threadIdx.x % LANES};
    float x[EACH];

    if (b >= n_blocks) return; /* all threads of a group return together */
#pragma unroll
    for (int k = 0; k < EACH; k++) x[k] = src[b * ELEMS + LANES * k + m.lane];
    encode_block<D>(m, x, dst + b);
}

template <apr_dtype D> static cudaError_t launch_blocks(const float *src, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const int64_t n_blocks = n_elems / ELEMS, per_grid_block = THREADS / LANES;
    const unsigned n = blocks_of(n_blocks, per_grid_block);
    k_encode_blocks<D><<<n, THREADS, 0, stream>>>(src, (typename block_of<D>::type *)dst, n_blocks);
    return cudaGetLastError();
}

launch_encode_fn encoder_of_blocks(apr_dtype dtype)
{
    switch (dtype) {
    case APR_Q4_0: return launch_blocks<APR_Q4_0>;
    case APR_Q4_1: return launch_blocks<APR_Q4_1>;
    case APR_Q5_0: return launch_blocks<APR_Q5_0>;
    case APR_Q5_1: return launch_blocks<APR_Q5_1>;
    case APR_Q8_0: return launch_blocks<APR_Q8_0>;
    case APR_MXFP4: return launch_blocks<APR_MXFP4>;
    default: return nullptr;
    }
}
