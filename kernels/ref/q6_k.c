/* q6_k.c - Q6_K: 256 values in 16 sub-blocks of 16, value = d * scale * code, codes -32 to 31, scales int8.
 *
 * The layout is ggml's, the search is ours and minimises the plain squared error:
 *   1. each sub-block alone: trial steps around the one that just holds the extreme value, each re-fitted by least squares;
 *   2. d from the largest of the steps, rounded to half; everything after uses this stored number;
 *   3. each sub-block again: int8 scales near the ideal one, judged by the error of the rounded codes;
 *   4. d once more by least squares over the block with the codes held; kept when 3. with it gives less error.
 * Ties go to what was tried first. */
#include "kernels/ref/codecs.h"

enum { ELEMS = 256, SUBS = 16, SUB_ELEMS = 16 };

/* For each half of 128 elements: element 32*k + l (k < 4) has its low nibble in ql[32 * (k % 2) + l] (high half for k >= 2), its upper
 * two bits in bits 2k of qh[l]. */
void apr_ref_decode_q6_k(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q6_K *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int sub = 0; sub < SUBS; sub++) {
            const int half = sub / 8, k = sub % 8 / 2, first = sub % 2 * SUB_ELEMS;
            const uint8_t *const ql = block->ql + 64 * half + k % 2 * 32 + first, *const qh = block->qh + 32 * half + first;
            const float step = d * (float)block->scales[sub];
            float *const y = dst + i + SUB_ELEMS * sub;
            for (int l = 0; l < SUB_ELEMS; l++) y[l] = step * (float)(((ql[l] >> k / 2 * 4 & 0x0f) | (qh[l] >> 2 * k & 3) << 4) - 32);
        }
    }
}

/* ---- the search ---- */

typedef struct sums {
    float qq, qx;
} sums;

static inline float code_of(float x, float inverse) { return apr_clamp(apr_round_even(x * inverse), -32.0f, 31.0f); }

static void sum_codes(const float *restrict x, float inverse, sums *s)
{
    float sqq[8] = {0}, sqx[8] = {0};
    for (int j = 0; j < SUB_ELEMS; j += 8)
        for (int l = 0; l < 8; l++) {
            const float q = code_of(x[j + l], inverse);
            sqq[l] += q * q;
            sqx[l] += q * x[j + l];
        }
    s->qq = apr_sum8(sqq);
    s->qx = apr_sum8(sqx);
}

/* The best step of a sub-block, any sign: with codes held, the error falls by (sum qx)^2 / sum qq. */
static float search_sub_block(const float *restrict x)
{
    float amax = 0.0f, extreme = 0.0f;
    for (int j = 0; j < SUB_ELEMS; j++) {
        const float a = x[j] < 0.0f ? -x[j] : x[j];
        if (a > amax) amax = a, extreme = x[j];
    }
    if (!(amax > 0x1p-40f)) return 0.0f;

    float gain = -1.0f, step = 0.0f;
    for (int t = -9; t <= 9; t++) {
        sums s;
        sum_codes(x, -(32.0f + 0.1f * (float)t) / extreme, &s);
        if (s.qq > 0.0f && s.qx * s.qx > gain * s.qq) gain = s.qx * s.qx / s.qq, step = s.qx / s.qq;
    }
    return step;
}

static float judge(const float *restrict x, float step, sums *s)
{
    const float inverse = step != 0.0f ? 1.0f / step : 0.0f;
    float sqq[8] = {0}, sqx[8] = {0}, see[8] = {0};
    for (int j = 0; j < SUB_ELEMS; j += 8)
        for (int l = 0; l < 8; l++) {
            const float q = code_of(x[j + l], inverse), e = step * q - x[j + l];
            sqq[l] += q * q;
            sqx[l] += q * x[j + l];
            see[l] += e * e;
        }
    s->qq = apr_sum8(sqq);
    s->qx = apr_sum8(sqx);
    return apr_sum8(see);
}
#ifndef R6
#define R6 1
#define NR6 2
#endif

typedef struct layout {
    uint16_t d;
    int scale[SUBS];
    float error;
} layout;

static void search_block(const float *restrict x, layout *out)
{
    float ideal[SUBS], best = 0, bs = 0;
    for (int j = 0; j < SUBS; j++) {
        ideal[j] = search_sub_block(x + 16 * j);
        float a = ideal[j] < 0 ? -ideal[j] : ideal[j];
        if (a > best) best = a, bs = ideal[j];
    }
    layout cur = {0};
    cur.d = apr_f32_to_f16(apr_clamp(bs / -128.0f, -APR_F16_MAX, APR_F16_MAX));
    if ((cur.d & 0x7fff) == 0 && best > 0) cur.d = bs < 0 ? 1 : 0x8001;
    float d = apr_f16_to_f32(cur.d);
    int mid[SUBS];
    for (int j = 0; j < SUBS; j++) mid[j] = (int)apr_clamp(apr_round_even(d != 0 ? ideal[j] / d : 0), -128, 127);
    for (int r = 0; r <= NR6; r++) {
        cur.error = 0;
        float aa = 0, ax = 0;
        for (int j = 0; j < SUBS; j++) {
            float least = -1;
            sums bsum = {0};
            for (int sc = mid[j] - R6; sc <= mid[j] + R6; sc++) {
                if (sc < -128 || sc > 127) continue;
                sums s;
                float e = judge(x + 16 * j, d * (float)sc, &s);
                if (least < 0 || e < least) least = e, bsum = s, cur.scale[j] = sc;
            }
            cur.error += least;
            float a = cur.scale[j];
            aa += a * a * bsum.qq;
            ax += a * bsum.qx;
            mid[j] = cur.scale[j];
        }
        if (r == 0 || cur.error < out->error) *out = cur;
        else break;
        if (!(aa > 0)) break;
        cur.d = apr_f32_to_f16(apr_clamp(ax / aa, -APR_F16_MAX, APR_F16_MAX));
        if (cur.d == out->d || (cur.d & 0x7fff) == 0) break;
        d = apr_f16_to_f32(cur.d);
    }
}

void apr_ref_encode_q6_k(const float *restrict src, void *restrict dst, int64_t n_elems)
{
    apr_block_Q6_K *block = dst;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        float x[ELEMS];
        layout l;
        for (int j = 0; j < ELEMS; j++) x[j] = apr_tame(src[i + j], APR_F16_MAX * 127 * 31);
        search_block(x, &l);
        const float d = apr_f16_to_f32(l.d);
        memset(block, 0, sizeof *block);
        block->d = l.d;
        for (int sub = 0; sub < SUBS; sub++) {
            const int half = sub / 8, k = sub % 8 / 2, first = sub % 2 * SUB_ELEMS;
            uint8_t *const ql = block->ql + 64 * half + k % 2 * 32 + first, *const qh = block->qh + 32 * half + first;
            const float step = d * (float)l.scale[sub], inverse = step != 0 ? 1 / step : 0;
            block->scales[sub] = (int8_t)l.scale[sub];
            for (int j = 0; j < SUB_ELEMS; j++) {
                const int q = (int)code_of(x[16 * sub + j], inverse) + 32;
                ql[j] |= (uint8_t)((q & 15) << k / 2 * 4);
                qh[j] |= (uint8_t)(q >> 4 << 2 * k);
            }
        }
    }
}
