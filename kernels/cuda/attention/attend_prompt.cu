/* attend_prompt.cu - attention of many tokens to an FP16 cache: the kernel for each head size. */
#include "kernels/cuda/attention/attend_prompt.cuh"

/* Careful kernels have 64 rows per block, and fewer cells for wide heads, to fit shared memory. They also handle softcaps. */
template <int KEY, int VALUE, int MT, int CELLS> static cudaError_t start_shape(const apr_attend_args *a, bool careful, cudaStream_t stream)
{
    constexpr int FEWER = KEY <= 192 ? CELLS : CELLS / 2;
    return careful || (MT > 1 && a->softcap > 0.0f) ? start_prompt<APR_F16, KEY, VALUE, 1, FEWER, true>(a, stream)
                                                    : start_prompt<APR_F16, KEY, VALUE, MT, CELLS, false>(a, stream);
}

cudaError_t apr_cuda_attend_prompt(const apr_attend_args *a, bool careful, cudaStream_t stream)
{
    if (a->keys.dtype != APR_F16 && !careful) return apr_cuda_attend_prompt_packed(a, stream);
    if (!attend_suits_tensor_cores(a)) return cudaErrorNotSupported;
    if (a->key_dim <= 64 && a->value_dim <= 64) return start_shape<64, 64, 2, 64>(a, careful, stream);
    if (a->key_dim <= 96 && a->value_dim <= 96) return start_shape<96, 96, 2, 64>(a, careful, stream);
    if (a->key_dim <= 128 && a->value_dim <= 128) return start_shape<128, 128, 2, 64>(a, careful, stream);
    if (a->key_dim <= 192 && a->value_dim <= 128) return start_shape<192, 128, 2, 64>(a, careful, stream);
    if (a->key_dim <= 256 && a->value_dim <= 256) return start_shape<256, 256, 1, 32>(a, careful, stream);
    return cudaErrorNotSupported;
}
