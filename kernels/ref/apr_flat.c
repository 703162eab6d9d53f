/* apr_flat.c - the two formats of aprender that run over a whole tensor without row boundaries: they decode from the tensor's start
 * only. */
#include "kernels/ref/codecs.h"

/* Blocks of 32: value = (code - 8) * d. The tensor's last block may be used in part. */
void apr_ref_decode_apr_q4(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_APR_Q4 *const blocks = src;
    for (int64_t i = 0; i < n_elems; i++) {
        const apr_block_APR_Q4 *const block = &blocks[i / 32];
        const int code = block->qs[i % 32 / 2] >> i % 2 * 4 & 0x0f;
        dst[i] = (float)(code - 8) * apr_f16_to_f32(block->d);
    }
}

/* One f32 scale for the tensor, then one int8 an element. */
void apr_ref_decode_apr_q8(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const int8_t *const codes = (const int8_t *)src + sizeof(float);
    float scale;

    if (n_elems == 0) return; /* an empty tensor has no scale */
    memcpy(&scale, src, sizeof scale);
    for (int64_t i = 0; i < n_elems; i++) dst[i] = (float)codes[i] * scale;
}
