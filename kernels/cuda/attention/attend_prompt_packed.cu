/* attend_prompt_packed.cu - attention of many tokens to 8-bit caches, decoded to FP16 on the way into shared memory. FP8 values are exact;
 * those of Q8_0 are rounded, far less than its 8 bits do. Not for callers that need the accuracy of float32. */
#include "kernels/cuda/attention/attend_prompt.cuh"

template <apr_dtype KV> static cudaError_t start_cache(const apr_attend_args *a, cudaStream_t stream)
{
    if (a->key_dim <= 64 && a->value_dim <= 64) return start_prompt<KV, 64, 64, 1, 64, false>(a, stream);
    if (a->key_dim <= 128 && a->value_dim <= 128) return start_prompt<KV, 128, 128, 1, 64, false>(a, stream);
    if (a->key_dim <= 256 && a->value_dim <= 256) return start_prompt<KV, 256, 256, 1, 16, false>(a, stream);
    return cudaErrorNotSupported;
}

cudaError_t apr_cuda_attend_prompt_packed(const apr_attend_args *a, cudaStream_t stream)
{
    const bool is_q8 = a->keys.dtype == APR_Q8_0;
    if (a->keys.dtype != a->values.dtype || (!is_q8 && a->keys.dtype != APR_F8_E4M3) || !(a->scale > 0.0f)) return cudaErrorNotSupported;
    if ((a->key_dim | a->value_dim) % (is_q8 ? 32 : 8) != 0 || !attend_is_aligned(a, is_q8 ? 2 : 8)) return cudaErrorNotSupported;
    return is_q8 ? start_cache<APR_Q8_0>(a, stream) : start_cache<APR_F8_E4M3>(a, stream);
}
