/* q4_q5_k.c - Q4_K and Q5_K: 256 values in 8 sub-blocks of 32, value = d * scale * code - dmin * min.
 *
 * The layouts are ggml's, the search is ours and minimises the plain squared error:
 *   1. each sub-block alone: trial grids laid over its range, each followed by the least-squares scale and minimum;
 *   2. d and dmin from the largest of them, rounded to half; everything after uses these stored numbers;
 *   3. each sub-block again: 6-bit scales and minimums near the ideal ones, judged by the error of the rounded codes;
 *   4. d and dmin once more by least squares over the block with the codes held; kept when 3. with them gives less error.
 * Ties go to what was tried first. */
#include "kernels/ref/codecs.h"

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

/* 32 bytes carry two sub-blocks: low nibbles the even one, high nibbles the odd one. */
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

/* A way to lay the grid: value = step * code - offset, with its squared error. */
typedef struct grid {
    float step, offset, error;
} grid;

/* Sums over a sub-block that least squares needs, beside those of the codes. */
typedef struct sums {
    float x, xx;       /* of the values, and of their squares */
    float q, qq, qx;   /* of the codes */
} sums;

/* Codes of a grid whose value 0 of the code lies at -offset: nearest((x + offset) * inverse), 0 to max_code. */
static inline float code_of(float x, float offset, float inverse, float max_code)
{
    return apr_clamp(apr_round_even((x + offset) * inverse), 0.0f, max_code);
}

static void sum_values(const float *restrict x, sums *s)
{
    float sx[8] = {0}, sxx[8] = {0};
    for (int j = 0; j < SUB_ELEMS; j += 8)
        for (int l = 0; l < 8; l++) {
            sx[l] += x[j + l];
            sxx[l] += x[j + l] * x[j + l];
        }
    s->x = apr_sum8(sx);
    s->xx = apr_sum8(sxx);
}

static void sum_codes(const float *restrict x, float offset, float inverse, float max_code, sums *s)
{
    float sq[8] = {0}, sqq[8] = {0}, sqx[8] = {0};
    for (int j = 0; j < SUB_ELEMS; j += 8)
        for (int l = 0; l < 8; l++) {
            const float q = code_of(x[j + l], offset, inverse, max_code);
            sq[l] += q;
            sqq[l] += q * q;
            sqx[l] += q * x[j + l];
        }
    s->q = apr_sum8(sq);
    s->qq = apr_sum8(sqq);
    s->qx = apr_sum8(sqx);
}

/* Error of a grid with the codes held: sum of (x - step * q + offset)^2, multiplied out. */
static float error_of(const sums *s, float step, float offset)
{
    return s->xx + step * (step * s->qq - 2.0f * s->qx) + offset * (2.0f * (s->x - step * s->q) + offset * (float)SUB_ELEMS);
}

/* The least-squares grid for held codes; offsets are not negative in the file. */
static grid fit(const sums *s)
{
    const float n = (float)SUB_ELEMS, det = n * s->qq - s->q * s->q;
    grid g = {0};
    if (det > 0.0f) {
        g.step = (n * s->qx - s->q * s->x) / det;
        g.offset = (s->q * s->qx - s->qq * s->x) / det;
    }
    if (g.offset < 0.0f || det <= 0.0f) {
        g.offset = 0.0f;
        g.step = s->qq > 0.0f ? s->qx / s->qq : 0.0f;
    }
    if (g.step < 0.0f) g.step = 0.0f;
    g.error = error_of(s, g.step, g.offset);
    return g;
}

/* Trial grids: the range of values gets max_code + r steps, r from `first` in steps of `delta`. */
typedef struct search {
    float max_code, first, delta;
    int n_trials;
} search;

static const search search_q4 = {15.0f, -1.0f, 0.1f, 21};
static const search search_q5 = {31.0f, -0.5f, 0.1f, 16};

static grid search_sub_block(const float *restrict x, const search *how)
{
    float low = 0.0f, high = x[0]; /* the grid reaches 0 from below at most */
    for (int j = 0; j < SUB_ELEMS; j++) {
        low = x[j] < low ? x[j] : low;
        high = x[j] > high ? x[j] : high;
    }
    grid best = {0.0f, -low, 0.0f};
    if (!(high - low > 0x1p-40f)) return best; /* below any half: one value for all */

    sums s;
    sum_values(x, &s);
    for (int t = 0; t < how->n_trials; t++) {
        const float inverse = (how->max_code + how->first + how->delta * (float)t) / (high - low);
        sum_codes(x, -low, inverse, how->max_code, &s);
        const grid g = fit(&s);
        if (t == 0 || g.error < best.error) best = g;
    }
    return best;
}

/* What the file says of a block, codes excepted. */
typedef struct layout {
    uint16_t d, dmin; /* halves */
    int scale[SUBS], min[SUBS];
    float error;
} layout;

static int nearest_scale(float x) { return (int)apr_clamp(apr_round_even(x), 0.0f, (float)MAX_SCALE); }

static float inverse_of(float step) { return step > 0.0f ? 1.0f / step : 0.0f; }

/* Codes for a stored grid, their sums, and the squared error of what a decoder will read. */
static float judge(const float *restrict x, float step, float offset, float max_code, sums *s)
{
    const float inverse = inverse_of(step);
    float sq[8] = {0}, sqq[8] = {0}, sqx[8] = {0}, see[8] = {0};
    for (int j = 0; j < SUB_ELEMS; j += 8)
        for (int l = 0; l < 8; l++) {
            const float q = code_of(x[j + l], offset, inverse, max_code), e = step * q - offset - x[j + l];
            sq[l] += q;
            sqq[l] += q * q;
            sqx[l] += q * x[j + l];
            see[l] += e * e;
        }
    s->q = apr_sum8(sq);
    s->qq = apr_sum8(sqq);
    s->qx = apr_sum8(sqx);
    return apr_sum8(see);
}

#ifndef R
#define R 1
#define NP 2
#define NR 2
#endif
/* Tries 6-bit scales around the ideal step; each with the minimum that suits its codes best. */
static float choose_scales(const float *restrict x, int middle, int min0, float max_code, float d, float dmin, int *bs, int *bm, sums *best_sums)
{
    const float inv_dmin = inverse_of(dmin);
    float least = -1.0f;
    sums s;

    sum_values(x, &s);
    for (int scale = middle > R ? middle - R : 0; scale <= middle + R && scale <= MAX_SCALE; scale++) {
        const float step = d * (float)scale;
        int min = min0;
        for (int pass = 0; pass < NP; pass++) {
            const float error = judge(x, step, dmin * (float)min, max_code, &s);
            if (least < 0.0f || error < least) least = error, *bs = scale, *bm = min, *best_sums = s;
            const int better = nearest_scale((step * s.q - s.x) / (float)SUB_ELEMS * inv_dmin);
            if (better == min) break;
            min = better;
        }
    }
    return least;
}

static float half_up(float v, uint16_t *h)
{
    *h = apr_f32_to_f16(v < APR_F16_MAX ? v : APR_F16_MAX);
    if (*h == 0 && v > 0) *h = 1;
    return apr_f16_to_f32(*h);
}

static void search_block(const float *restrict x, const search *how, layout *out)
{
    grid ideal[SUBS];
    float ms = 0, mm = 0;
    for (int j = 0; j < SUBS; j++) {
        ideal[j] = search_sub_block(x + 32 * j, how);
        ms = ideal[j].step > ms ? ideal[j].step : ms;
        mm = ideal[j].offset > mm ? ideal[j].offset : mm;
    }
    layout cur;
    float d = half_up(ms / 63, &cur.d), dmin = half_up(mm / 63, &cur.dmin);
    int mid[SUBS], mi[SUBS];
    for (int j = 0; j < SUBS; j++) mid[j] = nearest_scale(ideal[j].step * inverse_of(d)), mi[j] = nearest_scale(ideal[j].offset * inverse_of(dmin));
    for (int r = 0; r <= NR; r++) {
        cur.error = 0;
        sums s;
        float aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
        for (int j = 0; j < SUBS; j++) {
            cur.error += choose_scales(x + 32 * j, mid[j], mi[j], how->max_code, d, dmin, &cur.scale[j], &cur.min[j], &s);
            float a = cur.scale[j], b = cur.min[j];
            aa += a * a * s.qq;
            ab += a * b * s.q;
            bb += b * b * 32;
            ax += a * s.qx;
            bx += b * s.x;
            mid[j] = cur.scale[j], mi[j] = cur.min[j];
        }
        if (r == 0 || cur.error < out->error) *out = cur;
        else break;
        /* minimise sum (x - d a + dmin b)^2: d aa - dmin ab = ax; d ab - dmin bb = bx */
        float det = aa * bb - ab * ab;
        float nd, nm;
        if (det > 0) {
            nd = (ax * bb - bx * ab) / det;
            nm = (ax * ab - bx * aa) / det;
        } else if (aa > 0) nd = ax / aa, nm = dmin;
        else break;
        if (!(nd > 0) || !(nm >= 0)) break;
        d = half_up(nd, &cur.d), dmin = half_up(nm, &cur.dmin);
        if (cur.d == out->d && cur.dmin == out->dmin) break;
    }
}

static void final_codes(const float *restrict x, const layout *l, float max_code, uint8_t *restrict code)
{
    const float d = apr_f16_to_f32(l->d), dmin = apr_f16_to_f32(l->dmin);
    for (int sub = 0; sub < SUBS; sub++) {
        const float inverse = inverse_of(d * (float)l->scale[sub]), offset = dmin * (float)l->min[sub];
        for (int i = 0; i < SUB_ELEMS; i++) code[32 * sub + i] = (uint8_t)code_of(x[32 * sub + i], offset, inverse, max_code);
    }
}

void apr_ref_encode_q4_k(const float *restrict src, void *restrict dst, int64_t n_elems)
{
    apr_block_Q4_K *block = dst;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        float x[ELEMS];
        uint8_t code[ELEMS];
        layout l;
        for (int j = 0; j < ELEMS; j++) x[j] = apr_tame(src[i + j], APR_F16_MAX * 63 * 15);
        search_block(x, &search_q4, &l);
        final_codes(x, &l, 15.0f, code);
        block->d = l.d, block->dmin = l.dmin;
        pack_scales(l.scale, l.min, block->scales);
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < 32; j++) block->qs[32 * k + j] = (uint8_t)(code[64 * k + j] | code[64 * k + 32 + j] << 4);
    }
}

void apr_ref_encode_q5_k(const float *restrict src, void *restrict dst, int64_t n_elems)
{
    apr_block_Q5_K *block = dst;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        float x[ELEMS];
        uint8_t code[ELEMS];
        layout l;
        for (int j = 0; j < ELEMS; j++) x[j] = apr_tame(src[i + j], APR_F16_MAX * 63 * 31);
        search_block(x, &search_q5, &l);
        final_codes(x, &l, 31.0f, code);
        block->d = l.d, block->dmin = l.dmin;
        pack_scales(l.scale, l.min, block->scales);
        memset(block->qh, 0, 32);
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < 32; j++) block->qs[32 * k + j] = (uint8_t)((code[64 * k + j] & 15) | code[64 * k + 32 + j] << 4);
        for (int k = 0; k < 8; k++)
            for (int j = 0; j < 32; j++) block->qh[j] |= (uint8_t)(code[32 * k + j] >> 4 << k);
    }
}
