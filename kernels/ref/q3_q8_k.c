/* q3_q8_k.c - Q3_K, and the decoder of Q8_K. The layouts are ggml's, the search for Q3_K's scales is step_search.h's. */
#include "kernels/ref/step_search.h"

enum { ELEMS = 256 };

/* Element 128*h + 32*s + l is bits 2s of byte 32*h + l. Sub-blocks are runs of 16. */
static inline int code_2_bits(const uint8_t *qs, int half, int step, int l) { return qs[32 * half + l] >> 2 * step & 3; }

/* Sixteen 6-bit scales with offset 32 in 12 bytes: scale s has its low nibble in byte s % 8 (low half for s < 8), its upper two bits in
 * bits 2 * (s / 4) of byte 8 + s % 4. A clear bit of hmask subtracts 4 from the code. */
void apr_ref_decode_q3_k(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q3_K *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int sub = 0; sub < 16; sub++) {
            const int low = block->scales[sub % 8] >> sub / 8 * 4 & 0x0f, high = block->scales[8 + sub % 4] >> sub / 4 * 2 & 3;
            const float scale = d * (float)((low | high << 4) - 32);
            const int half = sub / 8, step = sub % 8 / 2, first = sub % 2 * 16, bit = 4 * half + step;
            float *const y = dst + i + 16 * sub;
            for (int l = 0; l < 16; l++) {
                const int offset = block->hmask[first + l] >> bit & 1 ? 0 : 4;
                y[l] = scale * (float)(code_2_bits(block->qs, half, step, first + l) - offset);
            }
        }
    }
}

void apr_ref_decode_q8_k(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q8_K *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = block->d;
        for (int j = 0; j < ELEMS; j++) dst[i + j] = d * (float)block->qs[j];
    }
}

/* ---- the encoder ---- */

static float nearest_level(float v) { return apr_clamp(apr_round_even(v), -4.0f, 3.0f); }

/* Packs sub-block `sub` with the codes of 16 values; the inverse of the decoder. */
static void pack_sub_block(const float *restrict x, int sub, int scale, float step, apr_block_Q3_K *block)
{
    const int half = sub / 8, run = sub % 8 / 2, first = sub % 2 * 16;
    const float inverse = apr_inverse_of(step);

    block->scales[sub % 8] |= (uint8_t)((scale & 0x0f) << sub / 8 * 4);
    block->scales[8 + sub % 4] |= (uint8_t)(scale >> 4 << sub / 4 * 2);
    for (int l = 0; l < 16; l++) {
        const int code = (int)nearest_level(x[l] * inverse) + 4;
        block->qs[32 * half + first + l] |= (uint8_t)((code & 3) << 2 * run);
        block->hmask[first + l] |= (uint8_t)(code >> 2 << (4 * half + run));
    }
}

void apr_ref_encode_q3_k_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    static const float none[ELEMS] = {0.0f};
    apr_block_Q3_K *block = dst;
    float x[ELEMS], w[ELEMS];

    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        apr_block_weights(importance != NULL ? importance + i : none, ELEMS, w);
        for (int j = 0; j < ELEMS; j++) x[j] = apr_clamp_finite(src[i + j], APR_F16_MAX * 32.0f * 4.0f);
        const apr_block_scales best = apr_search_scales(x, w, (apr_scale_search)APR_Q3_K_SEARCH, nearest_level);
        *block = (apr_block_Q3_K){.d = best.d};
        for (int sub = 0; sub < 16; sub++)
            pack_sub_block(x + 16 * sub, sub, (int)best.scale[sub] + 32, apr_f16_to_f32(best.d) * best.scale[sub], block);
    }
}

void apr_ref_encode_q3_k(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_q3_k_by(src, NULL, dst, n_elems); }
