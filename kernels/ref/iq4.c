/* iq4.c - IQ4_NL and IQ4_XS: 4-bit codes that index a table of non-uniform levels.
 *
 * The layouts are ggml's, the search for the scales is step_search.h's. The table is not symmetric, so scales of either sign are tried. */
#include "kernels/ref/step_search.h"

static const int8_t levels[16] = {APR_IQ4_LEVELS};

static inline void put_32(const uint8_t *restrict qs, float scale, float *restrict y)
{
    for (int j = 0; j < 16; j++) y[j] = scale * (float)levels[qs[j] & 0x0f];
    for (int j = 0; j < 16; j++) y[16 + j] = scale * (float)levels[qs[j] >> 4];
}

void apr_ref_decode_iq4_nl(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_IQ4_NL *block = src;
    for (int64_t i = 0; i < n_elems; i += 32, block++) put_32(block->qs, apr_f16_to_f32(block->d), dst + i);
}

/* Sub-blocks of 32 have 6-bit scales with offset 32: low nibbles in scales_l, upper two bits in scales_h. */
void apr_ref_decode_iq4_xs(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_IQ4_XS *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int sub = 0; sub < 8; sub++) {
            const int low = block->scales_l[sub / 2] >> sub % 2 * 4 & 0x0f, high = block->scales_h >> 2 * sub & 3;
            put_32(block->qs + 16 * sub, d * (float)((low | high << 4) - 32), dst + i + 32 * sub);
        }
    }
}

/* ---- encoders ---- */

/* The middle between a level and the next one. */
static const float middles[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                  7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};

static inline int index_of(float v)
{
    int index = 0;
    for (int k = 0; k < 15; k++) index += v > middles[k];
    return index;
}

static float nearest_level(float v) { return (float)levels[index_of(v)]; }

/* Codes of 32 values, packed. */
static void pack_32(const float *restrict x, float step, uint8_t *restrict qs)
{
    const float inverse = apr_inverse_of(step);
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)(index_of(x[j] * inverse) | index_of(x[16 + j] * inverse) << 4);
}

void apr_ref_encode_iq4_nl_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    enum { ELEMS = 32 };
    static const float none[ELEMS] = {0.0f};
    apr_block_IQ4_NL *block = dst;
    float x[ELEMS], w[ELEMS];

    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        apr_block_weights(importance != NULL ? importance + i : none, ELEMS, w);
        for (int j = 0; j < ELEMS; j++) x[j] = apr_clamp_finite(src[i + j], APR_F16_MAX * 127.0f);
        const float step = apr_search_step(x, w, ELEMS, (apr_step_search)APR_IQ4_NL_SEARCH, nearest_level);
        block->d = apr_search_f16_step(x, w, ELEMS, step, nearest_level);
        pack_32(x, apr_f16_to_f32(block->d), block->qs);
    }
}

void apr_ref_encode_iq4_xs_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    enum { ELEMS = 256 };
    static const float none[ELEMS] = {0.0f};
    apr_block_IQ4_XS *block = dst;
    float x[ELEMS], w[ELEMS];

    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        apr_block_weights(importance != NULL ? importance + i : none, ELEMS, w);
        for (int j = 0; j < ELEMS; j++) x[j] = apr_clamp_finite(src[i + j], APR_F16_MAX * 32.0f * 127.0f);
        const apr_block_scales best = apr_search_scales(x, w, (apr_scale_search)APR_IQ4_XS_SEARCH, nearest_level);
        *block = (apr_block_IQ4_XS){.d = best.d};
        for (int sub = 0; sub < 8; sub++) {
            const int scale = (int)best.scale[sub] + 32;
            block->scales_l[sub / 2] |= (uint8_t)((scale & 0x0f) << sub % 2 * 4);
            block->scales_h |= (uint16_t)(scale >> 4 << 2 * sub);
            pack_32(x + 32 * sub, apr_f16_to_f32(best.d) * best.scale[sub], block->qs + 16 * sub);
        }
    }
}

void apr_ref_encode_iq4_nl(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_iq4_nl_by(src, NULL, dst, n_elems); }
void apr_ref_encode_iq4_xs(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_iq4_xs_by(src, NULL, dst, n_elems); }
