/* few_bits.c - Q1_0, Q2_0 and the ternary TQ1_0, TQ2_0: one FP16 scale, and codes of one or two bits.
 *
 * The layouts are ggml's. ggml takes the largest magnitude as the scale of Q2_0, TQ1_0 and TQ2_0; these encoders search it
 * (step_search.h). With equal importances (also all 0) the bytes are those without importance. */
#include "kernels/ref/step_search.h"

enum { MOST_ELEMS = 256 };

void apr_ref_decode_q1_0(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q1_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += 128, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int j = 0; j < 128; j++) dst[i + j] = block->qs[j / 8] >> j % 8 & 1 ? d : -d;
    }
}

void apr_ref_decode_q2_0(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q2_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += 64, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int j = 0; j < 64; j++) dst[i + j] = (float)((block->qs[j / 4] >> j % 4 * 2 & 3) - 1) * d;
    }
}

/* Element 128*h + 32*s + l is bits 2s of byte 32*h + l, minus 1. */
void apr_ref_decode_tq2_0(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_TQ2_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int run = 0; run < 8; run++)
            for (int l = 0; l < 32; l++) dst[i + 32 * run + l] = (float)((block->qs[run / 4 * 32 + l] >> run % 4 * 2 & 3) - 1) * d;
    }
}

/* A byte is a fraction of 243ths, rounded up to 256ths. Multiplied by 3^n (modulo 256), its base-3 digit n is the integer part of the
 * byte times 3 / 256. `width` adjacent bytes give n_digits runs of `width` elements. */
static float *decode_trits(const uint8_t *restrict bytes, int width, int n_digits, float d, float *restrict y)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int n = 0; n < n_digits; n++, y += width)
        for (int l = 0; l < width; l++) {
            const uint8_t shifted = (uint8_t)(bytes[l] * power[n]);
            y[l] = (float)((shifted * 3 >> 8) - 1) * d;
        }
    return y;
}

void apr_ref_decode_tq1_0(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_TQ1_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        float *y = dst + i;
        y = decode_trits(block->qs, 32, 5, d, y);
        y = decode_trits(block->qs + 32, 16, 5, d, y);
        decode_trits(block->qh, 4, 4, d, y);
    }
}

/* ---- encoders ---- */

/* Loads n values and their weights; importance NULL: all weights are 1. */
static void begin_block(const float *restrict src, const float *restrict importance, int n, float limit, float *restrict x,
                        float *restrict w)
{
    static const float none[MOST_ELEMS] = {0.0f};
    apr_block_weights(importance != NULL ? importance : none, n, w);
    for (int j = 0; j < n; j++) x[j] = apr_clamp_finite(src[j], limit);
}

/* The codes are the signs, so the best scale is the weighted mean of the magnitudes. A 0 counts as positive. */
void apr_ref_encode_q1_0_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    enum { ELEMS = 128 };
    apr_block_Q1_0 *block = dst;
    float x[ELEMS], w[ELEMS];

    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        float sum_w[8] = {0.0f}, sum_wx[8] = {0.0f};
        begin_block(src + i, importance != NULL ? importance + i : NULL, ELEMS, APR_F16_MAX, x, w);
        *block = (apr_block_Q1_0){0};
        for (int j = 0; j < ELEMS; j++) {
            sum_w[j % 8] += w[j];
            sum_wx[j % 8] += w[j] * (x[j] < 0.0f ? -x[j] : x[j]);
            block->qs[j / 8] |= (uint8_t)((x[j] >= 0.0f) << j % 8);
        }
        block->d = apr_f32_to_f16(apr_sum8(sum_wx) / apr_sum8(sum_w));
    }
}

static float level_q2_0(float v) { return apr_clamp(apr_round_even(v), -1.0f, 2.0f); }
static float level_ternary(float v) { return apr_clamp(apr_round_even(v), -1.0f, 1.0f); }

/* The scale of n values, and their codes from 0 on. */
static uint16_t encode_codes(const float *restrict x, const float *restrict w, int n, apr_step_search search, apr_level_fn level,
                             uint8_t *restrict code)
{
    const uint16_t d = apr_search_f16_step(x, w, n, apr_search_step(x, w, n, search, level), level);
    const float inverse = apr_inverse_of(apr_f16_to_f32(d));
    for (int j = 0; j < n; j++) code[j] = (uint8_t)(level(x[j] * inverse) + 1.0f);
    return d;
}

void apr_ref_encode_q2_0_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    enum { ELEMS = 64 };
    apr_block_Q2_0 *block = dst;
    float x[ELEMS], w[ELEMS];
    uint8_t code[ELEMS];

    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        begin_block(src + i, importance != NULL ? importance + i : NULL, ELEMS, APR_F16_MAX * 2.0f, x, w);
        block->d = encode_codes(x, w, ELEMS, (apr_step_search)APR_Q2_0_SEARCH, level_q2_0, code);
        for (int k = 0; k < ELEMS / 4; k++)
            block->qs[k] = (uint8_t)(code[4 * k] | code[4 * k + 1] << 2 | code[4 * k + 2] << 4 | code[4 * k + 3] << 6);
    }
}

void apr_ref_encode_tq2_0_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    enum { ELEMS = 256 };
    apr_block_TQ2_0 *block = dst;
    float x[ELEMS], w[ELEMS];
    uint8_t code[ELEMS];

    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        begin_block(src + i, importance != NULL ? importance + i : NULL, ELEMS, APR_F16_MAX, x, w);
        block->d = encode_codes(x, w, ELEMS, (apr_step_search)APR_TERNARY_SEARCH, level_ternary, code);
        for (int j = 0; j < 64; j++) {
            const uint8_t *const c = code + j / 32 * 128 + j % 32;
            block->qs[j] = (uint8_t)(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
        }
    }
}

/* The inverse of decode_trits: byte l is the number of the digits of elements l, width + l, ..., the first one highest, as a fraction of
 * 243ths rounded up to 256ths. Returns the next code. */
static const uint8_t *encode_trits(const uint8_t *restrict code, int width, int n_digits, uint8_t *restrict bytes)
{
    for (int l = 0; l < width; l++) {
        int number = 0;
        for (int n = 0; n < 5; n++) number = 3 * number + (n < n_digits ? code[n * width + l] : 0);
        bytes[l] = (uint8_t)((number * 256 + 242) / 243);
    }
    return code + width * n_digits;
}

void apr_ref_encode_tq1_0_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    enum { ELEMS = 256 };
    apr_block_TQ1_0 *block = dst;
    float x[ELEMS], w[ELEMS];
    uint8_t code[ELEMS];

    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        begin_block(src + i, importance != NULL ? importance + i : NULL, ELEMS, APR_F16_MAX, x, w);
        block->d = encode_codes(x, w, ELEMS, (apr_step_search)APR_TERNARY_SEARCH, level_ternary, code);
        const uint8_t *next = encode_trits(code, 32, 5, block->qs);
        next = encode_trits(next, 16, 5, block->qs + 32);
        encode_trits(next, 4, 4, block->qh);
    }
}

void apr_ref_encode_q1_0(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_q1_0_by(src, NULL, dst, n_elems); }
void apr_ref_encode_q2_0(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_q2_0_by(src, NULL, dst, n_elems); }
void apr_ref_encode_tq1_0(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_tq1_0_by(src, NULL, dst, n_elems); }
void apr_ref_encode_tq2_0(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_tq2_0_by(src, NULL, dst, n_elems); }
