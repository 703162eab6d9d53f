/* q2_k.c - Q2_K: 256 values in 16 sub-blocks of 16, value = d * scale * code - dmin * min, 4-bit scales and minimums, 2-bit codes.
 *
 * The layout is ggml's. The search is ours and minimises the squared error, weighted by importance if there is one:
 *   1. each sub-block alone: trial grids over its range, each followed by the least-squares step and offset; the best is polished;
 *   2. several pairs of d and dmin that hold the largest step and offset. With each, every sub-block chooses among the scales near the
 *      ideal one, each with the minimums that fit its codes, by the error after decoding; the best pair is kept;
 *   3. d and dmin once more by least squares over the block with the codes fixed, then the choice of scales again, while it helps.
 * Of equal results the first one tried is kept. */
#include "kernels/ref/affine_search.h"
#include "kernels/ref/q2_k_search.h"

enum { ELEMS = 256, SUBS = 16, SUB_ELEMS = 16, MAX_SCALE = 15 };

/* Element 128*h + 32*s + l is bits 2s of byte 32*h + l. Sub-blocks are runs of 16. */
static inline int code_2_bits(const uint8_t *qs, int half, int step, int l) { return qs[32 * half + l] >> 2 * step & 3; }

/* A sub-block's byte holds its scale in the low nibble and its minimum in the high one: value = d * scale * q - dmin * min. */
void apr_ref_decode_q2_k(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q2_K *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d), dmin = apr_f16_to_f32(block->dmin);
        for (int sub = 0; sub < 16; sub++) {
            const float scale = d * (float)(block->scales[sub] & 0x0f), min = dmin * (float)(block->scales[sub] >> 4);
            const int half = sub / 8, step = sub % 8 / 2, first = sub % 2 * 16;
            float *const y = dst + i + 16 * sub;
            for (int l = 0; l < 16; l++) y[l] = scale * (float)code_2_bits(block->qs, half, step, first + l) - min;
        }
    }
}

/* ---- the search ---- */

static const float max_code = 3.0f;
static const apr_k_search sub_blocks = {
    .max_code = 3.0f, .stretches = APR_Q2_K_STRETCHES, .first_steps = APR_Q2_K_FIRST_STEPS, .gap = APR_Q2_K_STEPS_GAP, .polishes = 1};

/* The stored scales of a block, and its squared error. */
typedef struct block_scales {
    uint16_t d, dmin; /* FP16 */
    float scale[SUBS], min[SUBS], error;
} block_scales;

static float nearest_scale(float x) { return apr_clamp(apr_round_even(x), 0.0f, (float)MAX_SCALE); }

/* Chooses the scale and minimum of a sub-block: scales near the ideal one, each with the ideal minimum and then with the minimum that
 * fits its codes. Leaves the best in *scale and *min, adds its sums to *all, and returns its error. */
static float choose_scale(const float *restrict x, const float *restrict w, float d, float dmin, apr_grid ideal, float *scale, float *min,
                          apr_block_sums *all)
{
    const float inverse_dmin = apr_inverse_of(dmin);
    const float middle = nearest_scale(ideal.step * apr_inverse_of(d)), first_min = nearest_scale(ideal.offset * inverse_dmin);
    float least = -1.0f;
    apr_grid_sums s = apr_sums_of(x, w, SUB_ELEMS), best = {0};

    for (int away = -APR_Q2_K_REACH; away <= APR_Q2_K_REACH; away++) {
        const float t = middle + (float)away;
        if (t < 0.0f || t > (float)MAX_SCALE) continue;
        float m = first_min;
        for (int pass = 0; pass < APR_Q2_K_PASSES; pass++) {
            const apr_grid g = {d * t, dmin * m};
            const float error = apr_try_grid(x, w, SUB_ELEMS, g, max_code, &s);
            if (least < 0.0f || error < least) least = error, best = s, *scale = t, *min = m;
            const float suited = nearest_scale((g.step * s.q - s.x) / s.w * inverse_dmin);
            if (suited == m) break;
            m = suited;
        }
    }
    apr_block_sums_add(all, &best, *scale, *min);
    return least;
}

static apr_block_sums choose_scales(const float *restrict x, const float *restrict w, const apr_grid *ideal, block_scales *now)
{
    const float d = apr_f16_to_f32(now->d), dmin = apr_f16_to_f32(now->dmin);
    apr_block_sums all = {0};

    now->error = 0.0f;
    for (int sub = 0; sub < SUBS; sub++)
        now->error += choose_scale(x + sub * SUB_ELEMS, w + sub * SUB_ELEMS, d, dmin, ideal[sub], &now->scale[sub], &now->min[sub], &all);
    return all;
}

static block_scales search_block(const float *restrict x, const float *restrict w)
{
    apr_grid ideal[SUBS];
    float max_step = 0.0f, max_offset = 0.0f;
    for (int sub = 0; sub < SUBS; sub++) {
        ideal[sub] = apr_search_grid(x + sub * SUB_ELEMS, w + sub * SUB_ELEMS, SUB_ELEMS, sub_blocks);
        max_step = ideal[sub].step > max_step ? ideal[sub].step : max_step;
        max_offset = ideal[sub].offset > max_offset ? ideal[sub].offset : max_offset;
    }
    block_scales now, best = {.error = -1.0f};
    apr_block_sums all, best_sums = {0};
    for (int k = 0; k < APR_Q2_K_STARTS * APR_Q2_K_STARTS; k++) {
        now.d = apr_stored_scale(max_step / (float)(MAX_SCALE - k / APR_Q2_K_STARTS));
        now.dmin = apr_stored_scale(max_offset / (float)(MAX_SCALE - k % APR_Q2_K_STARTS));
        all = choose_scales(x, w, ideal, &now);
        if (best.error < 0.0f || now.error < best.error) best = now, best_sums = all;
    }
    for (int round = 0; round < APR_Q2_K_ROUNDS; round++) {
        if (!apr_fit_block(&best_sums, &now.d, &now.dmin) || (now.d == best.d && now.dmin == best.dmin)) break;
        all = choose_scales(x, w, ideal, &now);
        if (!(now.error < best.error)) break;
        best = now;
        best_sums = all;
    }
    return best;
}

/* ---- the encoder ---- */

void apr_ref_encode_q2_k_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    static const float none[ELEMS] = {0.0f};
    apr_block_Q2_K *block = dst;
    float x[ELEMS], w[ELEMS];

    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        apr_block_weights(importance != NULL ? importance + i : none, ELEMS, w);
        for (int j = 0; j < ELEMS; j++) x[j] = apr_clamp_finite(src[i + j], APR_F16_MAX * (float)MAX_SCALE * max_code);
        const block_scales best = search_block(x, w);
        const float d = apr_f16_to_f32(best.d), dmin = apr_f16_to_f32(best.dmin);
        *block = (apr_block_Q2_K){.d = best.d, .dmin = best.dmin};
        for (int sub = 0; sub < SUBS; sub++) {
            const float inverse = apr_inverse_of(d * best.scale[sub]), offset = dmin * best.min[sub];
            const int half = sub / 8, run = sub % 8 / 2, first = sub % 2 * SUB_ELEMS;
            block->scales[sub] = (uint8_t)((int)best.scale[sub] | (int)best.min[sub] << 4);
            for (int l = 0; l < SUB_ELEMS; l++)
                block->qs[32 * half + first + l] |=
                    (uint8_t)((int)apr_grid_code(x[SUB_ELEMS * sub + l], inverse, offset, max_code) << 2 * run);
        }
    }
}

void apr_ref_encode_q2_k(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_q2_k_by(src, NULL, dst, n_elems); }
