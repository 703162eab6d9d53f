/* q4_q5_k.c - Q4_K and Q5_K: 256 values in 8 sub-blocks of 32, value = d * scale * code - dmin * min.
 *
 * The layouts are ggml's. The search is ours and minimises the squared error, weighted by importance if there is one:
 *   1. each sub-block alone: trial grids over its range, each followed by the least-squares step and offset; the best is polished by
 * choosing codes and fitting again;
 *   2. d and dmin from the largest step and offset, rounded to FP16; everything after uses these stored numbers;
 *   3. each sub-block again: 6-bit scales and minimums near the ideal ones, compared by the error after decoding;
 *   4. d and dmin once more by least squares over the block with the codes fixed, then step 3 again, while it helps.
 * Of equal results the first one tried is kept. */
#include "kernels/ref/affine_search.h"

enum { ELEMS = 256, SUBS = 8, SUB_ELEMS = 32, MAX_SCALE = 63 };

/*  byte   0..3         4..7         8..11      6-bit scale d and minimum m of 8 sub-blocks. For 4..7 the low
 *         |hh dddddd|  |hh mmmmmm|  |mmmm dddd|  nibbles are in 8..11, the upper two bits in the hh. */
static void unpack_scales(const uint8_t *restrict bytes, uint8_t *restrict scale, uint8_t *restrict min)
{
    for (int j = 0; j < 4; j++) {
        scale[j] = bytes[j] & 63;
        min[j] = bytes[4 + j] & 63;
        scale[4 + j] = (uint8_t)((bytes[8 + j] & 0x0f) | bytes[j] >> 6 << 4);
        min[4 + j] = (uint8_t)(bytes[8 + j] >> 4 | bytes[4 + j] >> 6 << 4);
    }
}

static void pack_scales(const int *restrict scale, const int *restrict min, uint8_t *restrict bytes)
{
    for (int j = 0; j < 4; j++) {
        bytes[j] = (uint8_t)(scale[j] | scale[4 + j] >> 4 << 6);
        bytes[4 + j] = (uint8_t)(min[j] | min[4 + j] >> 4 << 6);
        bytes[8 + j] = (uint8_t)((scale[4 + j] & 0x0f) | (min[4 + j] & 0x0f) << 4);
    }
}

/* 32 bytes have two sub-blocks: the even one in the low nibbles, the odd one in the high nibbles. */
void apr_ref_decode_q4_k(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q4_K *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d), dmin = apr_f16_to_f32(block->dmin);
        uint8_t scale[SUBS], min[SUBS];
        unpack_scales(block->scales, scale, min);
        for (int sub = 0; sub < SUBS; sub++) {
            const float step = d * (float)scale[sub], offset = dmin * (float)min[sub];
            const uint8_t *const qs = block->qs + sub / 2 * SUB_ELEMS;
            float *const y = dst + i + sub * SUB_ELEMS;
            for (int l = 0; l < SUB_ELEMS; l++) y[l] = step * (float)(qs[l] >> sub % 2 * 4 & 0x0f) - offset;
        }
    }
}

/* As Q4_K; the fifth bit of code l of sub-block s is bit s of qh[l]. */
void apr_ref_decode_q5_k(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q5_K *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d), dmin = apr_f16_to_f32(block->dmin);
        uint8_t scale[SUBS], min[SUBS];
        unpack_scales(block->scales, scale, min);
        for (int sub = 0; sub < SUBS; sub++) {
            const float step = d * (float)scale[sub], offset = dmin * (float)min[sub];
            const uint8_t *const qs = block->qs + sub / 2 * SUB_ELEMS;
            float *const y = dst + i + sub * SUB_ELEMS;
            for (int l = 0; l < SUB_ELEMS; l++)
                y[l] = step * (float)((qs[l] >> sub % 2 * 4 & 0x0f) | (block->qh[l] >> sub & 1) << 4) - offset;
        }
    }
}

/* ---- the search ---- */

/* The stored scales of a block, and its squared error. */
typedef struct block_scales {
    uint16_t d, dmin; /* FP16 */
    int scale[SUBS], min[SUBS];
    float error;
} block_scales;

static int nearest_scale(float x) { return (int)apr_clamp(apr_round_even(x), 0.0f, (float)MAX_SCALE); }

/* Step 3 for one sub-block: tries the given scale and its neighbours, each with the given minimum and then with the minimum that fits
 * its codes. Leaves the best in *scale and *min, adds its sums to *all, and returns its error. */
static float choose_scale(const float *restrict x, const float *restrict w, float d, float dmin, apr_k_search search, int *scale, int *min,
                          apr_block_sums *all)
{
    const int reach = search.reach;
    const int middle = *scale, first_min = *min;
    const float inverse_dmin = apr_inverse_of(dmin);
    float least = -1.0f;
    apr_grid_sums s = apr_sums_of(x, w, SUB_ELEMS), best = {0};

    for (int t = middle > reach ? middle - reach : 0; t <= middle + reach && t <= MAX_SCALE; t++)
        for (int pass = 0, m = first_min; pass < 2; pass++) {
            const apr_grid g = {d * (float)t, dmin * (float)m};
            const float error = apr_try_grid(x, w, SUB_ELEMS, g, search.max_code, &s);
            if (least < 0.0f || error < least) least = error, best = s, *scale = t, *min = m;
            const int suited = nearest_scale((g.step * s.q - s.x) / s.w * inverse_dmin);
            if (suited == m) break;
            m = suited;
        }
    apr_block_sums_add(all, &best, (float)*scale, (float)*min);
    return least;
}

static block_scales search_block(const float *restrict x, const float *restrict w, apr_k_search search)
{
    apr_grid ideal[SUBS];
    float max_step = 0.0f, max_offset = 0.0f;
    for (int sub = 0; sub < SUBS; sub++) {
        ideal[sub] = apr_search_grid(x + sub * SUB_ELEMS, w + sub * SUB_ELEMS, SUB_ELEMS, search);
        max_step = ideal[sub].step > max_step ? ideal[sub].step : max_step;
        max_offset = ideal[sub].offset > max_offset ? ideal[sub].offset : max_offset;
    }
    block_scales now = {.d = apr_stored_scale(max_step / (float)MAX_SCALE), .dmin = apr_stored_scale(max_offset / (float)MAX_SCALE)},
                 best = now;
    for (int sub = 0; sub < SUBS; sub++) {
        now.scale[sub] = nearest_scale(ideal[sub].step * apr_inverse_of(apr_f16_to_f32(now.d)));
        now.min[sub] = nearest_scale(ideal[sub].offset * apr_inverse_of(apr_f16_to_f32(now.dmin)));
    }
    for (int round = 0; round < search.rounds; round++) {
        const float d = apr_f16_to_f32(now.d), dmin = apr_f16_to_f32(now.dmin);
        apr_block_sums all = {0};
        now.error = 0.0f;
        for (int sub = 0; sub < SUBS; sub++)
            now.error += choose_scale(x + sub * SUB_ELEMS, w + sub * SUB_ELEMS, d, dmin, search, &now.scale[sub], &now.min[sub], &all);
        if (round > 0 && !(now.error < best.error)) break;
        best = now;
        if (!apr_fit_block(&all, &now.d, &now.dmin) || (now.d == best.d && now.dmin == best.dmin)) break;
    }
    return best;
}

/* Encodes a block: its scales and its codes. importance: NULL, or the weights of the values. */
static block_scales encode_block(const float *restrict src, const float *restrict importance, apr_k_search search, uint8_t *restrict code)
{
    static const float none[ELEMS] = {0.0f};
    const float max_code = search.max_code;
    float x[ELEMS], w[ELEMS];
    apr_block_weights(importance != NULL ? importance : none, ELEMS, w);
    for (int i = 0; i < ELEMS; i++) x[i] = apr_clamp_finite(src[i], APR_F16_MAX * (float)MAX_SCALE * max_code);
    const block_scales best = search_block(x, w, search);
    const float d = apr_f16_to_f32(best.d), dmin = apr_f16_to_f32(best.dmin);
    for (int sub = 0; sub < SUBS; sub++) {
        const float inverse = apr_inverse_of(d * (float)best.scale[sub]), offset = dmin * (float)best.min[sub];
        for (int i = sub * SUB_ELEMS; i < (sub + 1) * SUB_ELEMS; i++) code[i] = (uint8_t)apr_grid_code(x[i], inverse, offset, max_code);
    }
    return best;
}

/* Packs the low nibbles of 256 codes, two sub-blocks into 32 bytes. */
static void pack_nibbles(const uint8_t *restrict code, uint8_t *restrict qs)
{
    for (int pair = 0; pair < SUBS / 2; pair++, code += 2 * SUB_ELEMS, qs += SUB_ELEMS)
        for (int l = 0; l < SUB_ELEMS; l++) qs[l] = (uint8_t)((code[l] & 0x0f) | (code[SUB_ELEMS + l] & 0x0f) << 4);
}

void apr_ref_encode_q4_k_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    apr_block_Q4_K *block = dst;
    uint8_t code[ELEMS];
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const block_scales best = encode_block(src + i, importance != NULL ? importance + i : NULL, (apr_k_search)APR_Q4_K_SEARCH, code);
        block->d = best.d;
        block->dmin = best.dmin;
        pack_scales(best.scale, best.min, block->scales);
        pack_nibbles(code, block->qs);
    }
}

void apr_ref_encode_q5_k_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    apr_block_Q5_K *block = dst;
    uint8_t code[ELEMS];
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const block_scales best = encode_block(src + i, importance != NULL ? importance + i : NULL, (apr_k_search)APR_Q5_K_SEARCH, code);
        block->d = best.d;
        block->dmin = best.dmin;
        pack_scales(best.scale, best.min, block->scales);
        pack_nibbles(code, block->qs);
        for (int l = 0; l < SUB_ELEMS; l++) {
            unsigned fifth_bits = 0;
            for (int sub = 0; sub < SUBS; sub++) fifth_bits |= (unsigned)(code[SUB_ELEMS * sub + l] >> 4) << sub;
            block->qh[l] = (uint8_t)fifth_bits;
        }
    }
}

void apr_ref_encode_q4_k(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_q4_k_by(src, NULL, dst, n_elems); }
void apr_ref_encode_q5_k(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_q5_k_by(src, NULL, dst, n_elems); }
