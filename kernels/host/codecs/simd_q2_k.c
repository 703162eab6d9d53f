/* simd_q2_k.c - the encoder of Q2_K, one sub-block a lane: the search of kernels/ref/q2_k.c, step by step, in all lanes at once. The 16
 * sub-blocks of a block take one or two vectors.
 *
 * w: weights of the values; NULL: all are 1, a faster case for which the compiler removes the rest. */
#include "kernels/host/codecs/simd_codecs.h"
#include "kernels/host/codecs/simd_transpose.h"
#include "kernels/ref/codecs.h"
#include "kernels/ref/q2_k_search.h"

enum { ELEMS = 256, SUBS = 16, SUB_ELEMS = 16, MAX_SCALE = 15, VECTORS = SUBS / WIDE };

typedef struct grids {
    wide step, offset;
} grids;

typedef struct sums {
    wide w, x, xx, q, qq, qx; /* w: sum of the weights */
} sums;

static const float rounder = 12582912.0f; /* 1.5 * 2^23: added, it leaves no bits for a fraction; see apr_round_even */
static const float max_code = 3.0f;

WIDE_INLINE wide_mask is_positive(wide a) { return wide_less(wide_set(0.0f), a); }
WIDE_INLINE wide inverse_of(wide step) { return wide_where(is_positive(step), wide_div(wide_set(1.0f), step)); }

/* Clamps before the rounder is subtracted: integers out of bounds are out of bounds with it also. */
WIDE_INLINE wide code_of(wide x, wide inverse, wide offset)
{
    const wide v = wide_add(wide_mul(wide_add(x, offset), inverse), wide_set(rounder));
    return wide_sub(wide_min(wide_max(v, wide_set(rounder)), wide_set(rounder + max_code)), wide_set(rounder));
}

/* Without weights, sums of codes and of their squares are integers, exact in any order; other sums are kept in eight parts. */
WIDE_INLINE wide try_grid(const wide *x, const wide *w, grids g, bool want_error, sums *s)
{
    const wide inverse = inverse_of(g.step);
    wide q_sum = wide_set(0.0f), qq_sum = wide_set(0.0f), qs[8], qq[8], qx[8], ee[8];

#pragma GCC unroll 8
    for (int l = 0; l < 8; l++) {
        const wide a = x[l], b = x[8 + l], q = code_of(a, inverse, g.offset), r = code_of(b, inverse, g.offset);
        const wide wq = w != NULL ? wide_mul(w[l], q) : q, wr = w != NULL ? wide_mul(w[8 + l], r) : r;
        qx[l] = wide_add(wide_mul(wq, a), wide_mul(wr, b));
        if (w != NULL) {
            qs[l] = wide_add(wq, wr);
            qq[l] = wide_add(wide_mul(wq, q), wide_mul(wr, r));
        } else {
            q_sum = wide_add(q_sum, wide_add(q, r));
            qq_sum = wide_integer_fma(r, r, wide_integer_fma(q, q, qq_sum));
        }
        if (!want_error) continue;
        const wide e = wide_sub(wide_sub(wide_mul(g.step, q), g.offset), a), f = wide_sub(wide_sub(wide_mul(g.step, r), g.offset), b);
        ee[l] = wide_add(wide_mul(w != NULL ? wide_mul(w[l], e) : e, e), wide_mul(w != NULL ? wide_mul(w[8 + l], f) : f, f));
    }
    s->q = w != NULL ? wide_sum8(qs) : q_sum;
    s->qq = w != NULL ? wide_sum8(qq) : qq_sum;
    s->qx = wide_sum8(qx);
    return want_error ? wide_sum8(ee) : wide_set(0.0f);
}

WIDE_INLINE grids fit(const sums *s, wide *error)
{
    const wide zero = wide_set(0.0f), n = s->w;
    const wide det = wide_sub(wide_mul(n, s->qq), wide_mul(s->q, s->q));
    const wide_mask solvable = is_positive(det);
    grids g;

    g.step = wide_where(solvable, wide_div(wide_sub(wide_mul(n, s->qx), wide_mul(s->q, s->x)), det));
    g.offset = wide_div(wide_sub(wide_mul(s->q, s->qx), wide_mul(s->qq, s->x)), det);
    g.offset = wide_choose(solvable, g.offset, wide_set(-1.0f));
    const wide_mask below = wide_less(g.offset, zero);
    g.offset = wide_choose(below, zero, g.offset);
    g.step = wide_choose(below, wide_where(is_positive(s->qq), wide_div(s->qx, s->qq)), g.step);
    g.step = wide_choose(wide_less(g.step, zero), zero, g.step);
    const wide of_step = wide_mul(g.step, wide_sub(wide_mul(g.step, s->qq), wide_mul(wide_set(2.0f), s->qx)));
    const wide twice = wide_mul(wide_set(2.0f), wide_sub(s->x, wide_mul(g.step, s->q)));
    *error = wide_add(wide_add(s->xx, of_step), wide_mul(g.offset, wide_add(twice, wide_mul(n, g.offset))));
    return g;
}

typedef struct best_grids {
    wide least;
    grids grid;
} best_grids;

/* A fit is rejected if its step is larger than the range of the values. */
WIDE_INLINE void try_and_fit(const wide *x, const wide *w, wide range, grids trial, wide_mask has_range, sums *s, best_grids *best)
{
    wide error;
    try_grid(x, w, trial, false, s);
    const grids g = fit(s, &error);
    const wide_mask better = wide_both(wide_both(has_range, wide_less(error, best->least)), wide_at_most(g.step, range));
    best->least = wide_choose(better, error, best->least);
    best->grid.step = wide_choose(better, g.step, best->grid.step);
    best->grid.offset = wide_choose(better, g.offset, best->grid.offset);
}

WIDE_INLINE void sum_values(const wide *x, const wide *w, sums *s)
{
    wide weights[8], values[8], squares[8];
    for (int l = 0; l < 8; l++) {
        const wide a = w != NULL ? wide_mul(w[l], x[l]) : x[l], b = w != NULL ? wide_mul(w[8 + l], x[8 + l]) : x[8 + l];
        values[l] = wide_add(a, b);
        squares[l] = wide_add(wide_mul(a, x[l]), wide_mul(b, x[8 + l]));
        if (w != NULL) weights[l] = wide_add(w[l], w[8 + l]);
    }
    s->w = w != NULL ? wide_sum8(weights) : wide_set((float)SUB_ELEMS);
    s->x = wide_sum8(values);
    s->xx = wide_sum8(squares);
}

/* Step 1. */
WIDE_INLINE grids search_sub_blocks(const wide *x, const wide *w)
{
    wide low = wide_set(0.0f), high = x[0];
    for (int j = 0; j < SUB_ELEMS; j++) {
        low = wide_min(x[j], low);
        high = wide_max(x[j], high);
    }
    const wide range = wide_sub(high, low), start = wide_minus(low);
    const wide_mask has_range = wide_less(wide_set(0x1p-40f), range);
    best_grids best = {wide_set(FLT_MAX), {wide_set(0.0f), start}};
    sums s;

    sum_values(x, w, &s);
    for (int stretch = 0; stretch < APR_Q2_K_STRETCHES; stretch++) {
        const wide step = wide_div(range, wide_set(APR_Q2_K_FIRST_STEPS + APR_Q2_K_STEPS_GAP * (float)stretch));
        try_and_fit(x, w, range, (grids){step, start}, has_range, &s, &best);
        try_and_fit(x, w, range, (grids){step, wide_sub(start, wide_mul(wide_set(0.5f), step))}, has_range, &s, &best);
    }
    try_and_fit(x, w, range, best.grid, has_range, &s, &best);
    return best.grid;
}

/* The stored scales of a block, and its squared error. */
typedef struct block_scales {
    uint16_t d, dmin; /* FP16 */
    float scale[SUBS], min[SUBS], error;
} block_scales;

/* The contribution of each sub-block to the sums over its block. */
typedef struct parts {
    float error[SUBS], scale[SUBS], min[SUBS], aa[SUBS], ab[SUBS], bb[SUBS], ax[SUBS], bx[SUBS];
} parts;

WIDE_INLINE wide nearest_scale(wide x) { return wide_clamp(wide_round(x), 0.0f, (float)MAX_SCALE); }

/* Chooses the scales and minimums of the sub-blocks from lane `first` on. */
WIDE_INLINE void choose_scales(const wide *x, const wide *w, float block_d, float block_dmin, grids ideal, int first, parts *p)
{
    const wide zero = wide_set(0.0f), last = wide_set((float)MAX_SCALE), d = wide_set(block_d), dmin = wide_set(block_dmin);
    const wide inverse_dmin = inverse_of(dmin), first_min = nearest_scale(wide_mul(ideal.offset, inverse_dmin));
    const wide middle = nearest_scale(wide_mul(ideal.step, inverse_of(d)));
    wide least = wide_set(-1.0f), q = zero, qq = zero, qx = zero, scale = middle, min = first_min;
    sums s;

    sum_values(x, w, &s);
    for (int away = -APR_Q2_K_REACH; away <= APR_Q2_K_REACH; away++) {
        const wide t = wide_add(middle, wide_set((float)away)), step = wide_mul(d, t);
        wide_mask active = wide_both(wide_at_most(zero, t), wide_at_most(t, last));
        wide m = first_min;
        for (int pass = 0; pass < APR_Q2_K_PASSES && wide_any(active); pass++) {
            const wide error = try_grid(x, w, (grids){step, wide_mul(dmin, m)}, true, &s);
            const wide_mask better = wide_both(active, wide_either(wide_less(least, zero), wide_less(error, least)));
            least = wide_choose(better, error, least);
            q = wide_choose(better, s.q, q);
            qq = wide_choose(better, s.qq, qq);
            qx = wide_choose(better, s.qx, qx);
            scale = wide_choose(better, t, scale);
            min = wide_choose(better, m, min);
            const wide left = wide_sub(wide_mul(step, s.q), s.x);
            const wide off = w != NULL ? wide_div(left, s.w) : wide_mul(left, wide_set(1.0f / (float)SUB_ELEMS));
            const wide fitted = nearest_scale(wide_mul(off, inverse_dmin));
            active = wide_both(active, wide_differs(fitted, m));
            m = fitted;
        }
    }
    wide_store(p->error + first, least);
    wide_store(p->scale + first, scale);
    wide_store(p->min + first, min);
    wide_store(p->aa + first, wide_mul(wide_mul(scale, scale), qq));
    wide_store(p->ab + first, wide_mul(wide_mul(scale, min), q));
    wide_store(p->bb + first, wide_mul(wide_mul(min, min), s.w));
    wide_store(p->ax + first, wide_mul(scale, qx));
    wide_store(p->bx + first, wide_mul(min, s.x));
}

/* To FP16; a non-zero value stays non-zero, and a too large one becomes the largest. */
static uint16_t stored_scale(float x)
{
    const uint16_t half = apr_f32_to_f16(x < APR_F16_MAX ? x : APR_F16_MAX);
    return half == 0 && x > 0.0f ? 1 : half;
}

static float sum_of(const float *a)
{
    float sum = 0.0f;
    for (int i = 0; i < SUBS; i++) sum += a[i];
    return sum;
}

static float largest_of(const float *a)
{
    float most = 0.0f;
    for (int i = 0; i < SUBS; i++) most = a[i] > most ? a[i] : most;
    return most;
}

/* Step 3. */
static bool fit_block(const parts *p, uint16_t *d, uint16_t *dmin)
{
    const float aa = sum_of(p->aa), ab = sum_of(p->ab), bb = sum_of(p->bb), ax = sum_of(p->ax), bx = sum_of(p->bx), det = aa * bb - ab * ab;
    const float fit_d = det > 0.0f ? (ax * bb - bx * ab) / det : aa > 0.0f ? ax / aa : 0.0f;
    const float fit_dmin = det > 0.0f ? (ax * ab - bx * aa) / det : 0.0f;

    if (!(fit_d > 0.0f && fit_dmin >= 0.0f)) return false;
    *d = stored_scale(fit_d);
    *dmin = stored_scale(fit_dmin);
    return true;
}

/* Chooses all scales of a block for now->d and now->dmin. */
WIDE_INLINE void choose_all(const wide *x, const wide *w, const grids *ideal, block_scales *now, parts *p)
{
    const float d = apr_f16_to_f32(now->d), dmin = apr_f16_to_f32(now->dmin);
    for (int v = 0; v < VECTORS; v++)
        choose_scales(x + v * SUB_ELEMS, w != NULL ? w + v * SUB_ELEMS : NULL, d, dmin, ideal[v], v * WIDE, p);
    now->error = sum_of(p->error);
    memcpy(now->scale, p->scale, sizeof now->scale);
    memcpy(now->min, p->min, sizeof now->min);
}

WIDE_INLINE void search_block(const wide *x, const wide *w, block_scales *best)
{
    grids ideal[VECTORS];
    parts p, best_parts;
    block_scales now;

    for (int v = 0; v < VECTORS; v++) {
        ideal[v] = search_sub_blocks(x + v * SUB_ELEMS, w != NULL ? w + v * SUB_ELEMS : NULL);
        wide_store(p.scale + v * WIDE, ideal[v].step);
        wide_store(p.min + v * WIDE, ideal[v].offset);
    }
    const float max_step = largest_of(p.scale), max_offset = largest_of(p.min);
    best->error = -1.0f;
    for (int k = 0; k < APR_Q2_K_STARTS * APR_Q2_K_STARTS; k++) {
        now.d = stored_scale(max_step / (float)(MAX_SCALE - k / APR_Q2_K_STARTS));
        now.dmin = stored_scale(max_offset / (float)(MAX_SCALE - k % APR_Q2_K_STARTS));
        choose_all(x, w, ideal, &now, &p);
        if (best->error < 0.0f || now.error < best->error) *best = now, best_parts = p;
    }
    for (int round = 0; round < APR_Q2_K_ROUNDS; round++) {
        if (!fit_block(&best_parts, &now.d, &now.dmin) || (now.d == best->d && now.dmin == best->dmin)) break;
        choose_all(x, w, ideal, &now, &p);
        if (!(now.error < best->error)) break;
        *best = now;
        best_parts = p;
    }
}

static void store_block(const float *flat, const block_scales *best, apr_block_Q2_K *block)
{
    const float d = apr_f16_to_f32(best->d), dmin = apr_f16_to_f32(best->dmin);
    uint8_t code[ELEMS];

    *block = (apr_block_Q2_K){.d = best->d, .dmin = best->dmin};
    for (int sub = 0; sub < SUBS; sub++) {
        const wide inverse = inverse_of(wide_set(d * best->scale[sub])), offset = wide_set(dmin * best->min[sub]);
        block->scales[sub] = (uint8_t)((int)best->scale[sub] | (int)best->min[sub] << 4);
        for (int j = sub * SUB_ELEMS; j < (sub + 1) * SUB_ELEMS; j += WIDE)
            wide_store_bytes(code + j, code_of(wide_load(flat + j), inverse, offset));
    }
    for (int half = 0; half < 2; half++) {
        const uint8_t *const c = code + 128 * half;
        for (int l = 0; l < 32; l++) block->qs[32 * half + l] = (uint8_t)(c[l] | c[32 + l] << 2 | c[64 + l] << 4 | c[96 + l] << 6);
    }
}

WIDE_INLINE void encode_block(const float *src, const float *importance, uint8_t *dst)
{
    float flat[ELEMS], weights[ELEMS];
    wide x[ELEMS / WIDE], w[ELEMS / WIDE];
    block_scales best;

    if (importance != NULL) apr_block_weights(importance, ELEMS, weights);
    for (int v = 0; v < VECTORS; v++) {
        const int at = v * WIDE * SUB_ELEMS;
        wide_transpose_blocks(src + at, SUB_ELEMS, APR_F16_MAX * (float)MAX_SCALE * max_code, flat + at, x + v * SUB_ELEMS);
        if (importance != NULL) wide_transpose_weights(weights + at, SUB_ELEMS, w + v * SUB_ELEMS);
    }
    search_block(x, importance != NULL ? w : NULL, &best);
    store_block(flat, &best, (apr_block_Q2_K *)dst);
}

static void encode_plain_block(const float *src, uint8_t *dst) { encode_block(src, NULL, dst); }
static void encode_block_by(const float *src, const float *importance, uint8_t *dst) { encode_block(src, importance, dst); }

static void encode_q2_k(const float *src, void *dst, int64_t n_elems)
{
    wide_encode_groups(src, dst, n_elems, ELEMS, ELEMS, sizeof(apr_block_Q2_K), encode_plain_block);
}

static void encode_q2_k_by(const float *src, const float *importance, void *dst, int64_t n_elems)
{
    wide_encode_groups_by(src, importance, dst, n_elems, ELEMS, ELEMS, sizeof(apr_block_Q2_K), encode_block_by);
}

const apr_host_codecs_table WIDE_NAME(apr_simd_q2_k) = {.codecs = {[APR_Q2_K] = {.encode = encode_q2_k, .encode_by = encode_q2_k_by}}};
