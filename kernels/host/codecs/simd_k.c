/* simd_k.c - encoders of Q4_K, Q5_K and Q6_K, one sub-block a lane: the searches of kernels/ref/q4_q5_k.c and q6_k.c, step by step, in
 * all lanes at once.
 *
 * Where the reference stops early for a sub-block, its lane continues and is masked; so are a block's lanes where it stops for the
 * block. A group is as many blocks as lanes hold: one or two.
 *
 * w: weights of the values; NULL: all are 1, a faster case for which the compiler removes the rest. */
#include "kernels/host/codecs/simd_codecs.h"
#include "kernels/host/codecs/simd_transpose.h"
#include "kernels/ref/codecs.h"
#include "kernels/ref/k_search.h"

/* ---- Q4_K and Q5_K ---- */

enum { ELEMS = 256, SUBS = 8, SUB_ELEMS = 32, MAX_SCALE = 63, BLOCKS = WIDE / SUBS };

typedef struct grids {
    wide step, offset;
} grids;

typedef struct sums {
    wide w, x, xx, q, qq, qx; /* w: sum of the weights */
} sums;

static const float rounder = 12582912.0f; /* 1.5 * 2^23: added, it leaves no bits for a fraction; see apr_round_even */

WIDE_INLINE wide_mask is_positive(wide a) { return wide_less(wide_set(0.0f), a); }
WIDE_INLINE wide inverse_of(wide step) { return wide_where(is_positive(step), wide_div(wide_set(1.0f), step)); }

/* How codes must be clamped: not, above by max_code, or also below by 0. */
enum { BOUND_NONE, BOUND_ABOVE, BOUND_BOTH };

/* Clamps before the rounder is subtracted: integers out of bounds are out of bounds with it also. */
WIDE_INLINE wide code_of(wide x, wide inverse, wide offset, float max_code, int bound)
{
    wide v = wide_add(wide_mul(wide_add(x, offset), inverse), wide_set(rounder));
    if (bound == BOUND_BOTH) v = wide_max(v, wide_set(rounder));
    if (bound != BOUND_NONE) v = wide_min(v, wide_set(rounder + max_code));
    return wide_sub(v, wide_set(rounder));
}

/* Weighted sums of a lane, in eight parts as the reference adds them. */
typedef struct lane_sums {
    wide q[8], qq[8], qx[8], ee[8];
} lane_sums;

WIDE_INLINE void add_to(wide *sum, bool is_first, wide a) { *sum = is_first ? a : wide_add(*sum, a); }

/* Without weights, sums of codes and of their squares are integers, exact in any order; other sums are kept in eight parts. */
WIDE_INLINE wide try_grid(const wide *x, const wide *w, grids g, float max_code, int bound, bool want_error, sums *s)
{
    const wide inverse = inverse_of(g.step);
    wide q_sum = wide_set(0.0f), qq_sum = wide_set(0.0f);
    lane_sums lanes;

#pragma GCC unroll 8
    for (int l = 0; l < 8; l++) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            const wide v = x[l + 8 * k], q = code_of(v, inverse, g.offset, max_code, bound);
            const wide wq = w != NULL ? wide_mul(w[l + 8 * k], q) : q;
            add_to(&lanes.qx[l], k == 0, wide_mul(wq, v));
            if (w != NULL) {
                add_to(&lanes.q[l], k == 0, wq);
                add_to(&lanes.qq[l], k == 0, wide_mul(wq, q));
            } else {
                q_sum = wide_add(q_sum, q);
                qq_sum = wide_integer_fma(q, q, qq_sum);
            }
            if (!want_error) continue;
            const wide e = wide_sub(wide_sub(wide_mul(g.step, q), g.offset), v);
            add_to(&lanes.ee[l], k == 0, wide_mul(w != NULL ? wide_mul(w[l + 8 * k], e) : e, e));
        }
    }
    s->q = w != NULL ? wide_sum8(lanes.q) : q_sum;
    s->qq = w != NULL ? wide_sum8(lanes.qq) : qq_sum;
    s->qx = wide_sum8(lanes.qx);
    return want_error ? wide_sum8(lanes.ee) : wide_set(0.0f);
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
    if (wide_any(below)) {
        g.offset = wide_choose(below, zero, g.offset);
        g.step = wide_choose(below, wide_where(is_positive(s->qq), wide_div(s->qx, s->qq)), g.step);
    }
    g.step = wide_choose(wide_less(g.step, zero), zero, g.step);
    const wide of_step = wide_mul(g.step, wide_sub(wide_mul(g.step, s->qq), wide_mul(wide_set(2.0f), s->qx)));
    const wide twice = wide_mul(wide_set(2.0f), wide_sub(s->x, wide_mul(g.step, s->q)));
    *error = wide_add(wide_add(s->xx, of_step), wide_mul(g.offset, wide_add(twice, wide_mul(n, g.offset))));
    return g;
}

WIDE_INLINE void keep_better(wide_mask better, wide error, grids g, wide *least, grids *best)
{
    *least = wide_choose(better, error, *least);
    best->step = wide_choose(better, g.step, best->step);
    best->offset = wide_choose(better, g.offset, best->offset);
}

typedef struct best_grids {
    wide least;
    grids grid;
} best_grids;

/* With weights a fit is rejected if its step is larger than the range of the values. */
WIDE_INLINE void try_and_fit(const wide *x, const wide *w, wide range, grids trial, float max_code, int bound, wide_mask candidates,
                             sums *s, best_grids *best, wide_mask *better)
{
    wide error;
    try_grid(x, w, trial, max_code, bound, false, s);
    const grids g = fit(s, &error);
    *better = wide_both(candidates, wide_less(error, best->least));
    if (w != NULL) *better = wide_both(*better, wide_at_most(g.step, range));
    keep_better(*better, error, g, &best->least, &best->grid);
}

WIDE_INLINE void sum_values(const wide *x, const wide *w, sums *s)
{
    wide weights[8], values[8], squares[8];
    for (int l = 0; l < 8; l++)
        for (int k = 0; k < 4; k++) {
            const wide v = x[8 * k + l], wv = w != NULL ? wide_mul(w[8 * k + l], v) : v;
            add_to(&values[l], k == 0, wv);
            add_to(&squares[l], k == 0, wide_mul(wv, v));
            if (w != NULL) add_to(&weights[l], k == 0, w[8 * k + l]);
        }
    s->w = w != NULL ? wide_sum8(weights) : wide_set((float)SUB_ELEMS);
    s->x = wide_sum8(values);
    s->xx = wide_sum8(squares);
}

/* Step 1. A grid from the lowest value on has no value below code 0; with fewer than max_code + 1/2 steps it has none above the last
 * code. A grid half a step later rounds its offset, so both bounds are needed. */
WIDE_INLINE grids search_sub_blocks(const wide *x, const wide *w, apr_k_search search, sums *s)
{
    const float max_code = search.max_code;
    wide low = wide_set(0.0f), high = x[0];
    for (int j = 0; j < SUB_ELEMS; j++) {
        low = wide_min(x[j], low);
        high = wide_max(x[j], high);
    }
    const wide range = wide_sub(high, low), start = wide_minus(low);
    const wide_mask has_range = wide_less(wide_set(0x1p-40f), range);
    best_grids best = {wide_set(FLT_MAX), {wide_set(0.0f), start}};
    wide_mask active = has_range;

    sum_values(x, w, s);
    for (int stretch = 0; stretch < search.stretches; stretch++) {
        const float n_steps = search.first_steps + search.gap * (float)stretch;
        const wide step = wide_div(range, wide_set(n_steps));
        const grids at_start = {step, start}, shifted = {step, wide_sub(start, wide_mul(wide_set(0.5f), step))};
        if (n_steps < max_code + 0.4f) try_and_fit(x, w, range, at_start, max_code, BOUND_NONE, has_range, s, &best, &active);
        else try_and_fit(x, w, range, at_start, max_code, BOUND_ABOVE, has_range, s, &best, &active);
        try_and_fit(x, w, range, shifted, max_code, BOUND_BOTH, has_range, s, &best, &active);
    }
    active = has_range;
    for (int polish = 0; polish < search.polishes && wide_any(active); polish++)
        try_and_fit(x, w, range, best.grid, max_code, BOUND_BOTH, active, s, &best, &active);
    return best.grid;
}

/* The stored scales of a block, and its squared error. */
typedef struct block_scales {
    uint16_t d, dmin; /* FP16 */
    float scale[SUBS], min[SUBS], error;
} block_scales;

/* The contribution of each sub-block of a group to the sums over its block, as floats. */
typedef struct parts {
    float error[WIDE], scale[WIDE], min[WIDE], aa[WIDE], ab[WIDE], bb[WIDE], ax[WIDE], bx[WIDE];
} parts;

WIDE_INLINE wide nearest_scale(wide x) { return wide_clamp(wide_round(x), 0.0f, (float)MAX_SCALE); }

/* Step 3 for all sub-blocks of a group. d, dmin and its inverse are those of each lane's block. */
WIDE_INLINE void choose_scales(const wide *x, const wide *w, wide d, wide dmin, wide inverse_dmin, apr_k_search search, wide middle,
                               wide first_min, sums *s, parts *p)
{
    const wide zero = wide_set(0.0f), last = wide_set((float)MAX_SCALE);
    wide least = wide_set(-1.0f), q = zero, qq = zero, qx = zero, scale = middle, min = first_min;

    for (int away = -search.reach; away <= search.reach; away++) {
        const wide t = wide_add(middle, wide_set((float)away)), step = wide_mul(d, t);
        wide_mask active = wide_both(wide_at_most(zero, t), wide_at_most(t, last));
        wide m = first_min;
        for (int pass = 0; pass < 2 && wide_any(active); pass++) {
            const wide error = try_grid(x, w, (grids){step, wide_mul(dmin, m)}, search.max_code, BOUND_BOTH, true, s);
            const wide_mask better = wide_both(active, wide_either(wide_less(least, zero), wide_less(error, least)));
            least = wide_choose(better, error, least);
            q = wide_choose(better, s->q, q);
            qq = wide_choose(better, s->qq, qq);
            qx = wide_choose(better, s->qx, qx);
            scale = wide_choose(better, t, scale);
            min = wide_choose(better, m, min);
            const wide left = wide_sub(wide_mul(step, s->q), s->x);
            const wide off = w != NULL ? wide_div(left, s->w) : wide_mul(left, wide_set(1.0f / (float)SUB_ELEMS));
            const wide fitted = nearest_scale(wide_mul(off, inverse_dmin));
            active = wide_both(active, wide_differs(fitted, m));
            m = fitted;
        }
    }
    wide_store(p->error, least);
    wide_store(p->scale, scale);
    wide_store(p->min, min);
    wide_store(p->aa, wide_mul(wide_mul(scale, scale), qq));
    wide_store(p->ab, wide_mul(wide_mul(scale, min), q));
    wide_store(p->bb, wide_mul(wide_mul(min, min), s->w));
    wide_store(p->ax, wide_mul(scale, qx));
    wide_store(p->bx, wide_mul(min, s->x));
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

/* Step 4 of the block whose sub-blocks are lanes first to first + 7. */
static bool fit_block(const parts *p, int first, uint16_t *d, uint16_t *dmin)
{
    const float aa = sum_of(p->aa + first), ab = sum_of(p->ab + first), bb = sum_of(p->bb + first);
    const float ax = sum_of(p->ax + first), bx = sum_of(p->bx + first), det = aa * bb - ab * ab;
    const float fit_d = det > 0.0f ? (ax * bb - bx * ab) / det : aa > 0.0f ? ax / aa : 0.0f;
    const float fit_dmin = det > 0.0f ? (ax * ab - bx * aa) / det : 0.0f;

    if (!(fit_d > 0.0f && fit_dmin >= 0.0f)) return false;
    *d = stored_scale(fit_d);
    *dmin = stored_scale(fit_dmin);
    return true;
}

/* Ends a round for one block. Returns whether there is another round, with the new d and dmin in `now`. */
static bool end_round(int round, const parts *p, int first, block_scales *now, block_scales *best)
{
    now->error = sum_of(p->error + first);
    memcpy(now->scale, p->scale + first, sizeof now->scale);
    memcpy(now->min, p->min + first, sizeof now->min);
    if (round > 0 && !(now->error < best->error)) return false;
    *best = *now;
    return fit_block(p, first, &now->d, &now->dmin) && (now->d != best->d || now->dmin != best->dmin);
}

/* d and dmin of its block for each lane of a group. */
typedef struct lane_scales {
    float d[WIDE], dmin[WIDE];
} lane_scales;

WIDE_INLINE void spread(const block_scales *blocks, lane_scales *lanes)
{
    for (int b = 0; b < BLOCKS; b++) {
        const float d = apr_f16_to_f32(blocks[b].d), dmin = apr_f16_to_f32(blocks[b].dmin);
        for (int i = 0; i < SUBS; i++) lanes->d[b * SUBS + i] = d, lanes->dmin[b * SUBS + i] = dmin;
    }
}

WIDE_INLINE void search_group(const wide *x, const wide *w, apr_k_search search, block_scales best[BLOCKS])
{
    sums s;
    const grids ideal = search_sub_blocks(x, w, search, &s);
    block_scales now[BLOCKS];
    lane_scales lanes;
    parts p;
    bool active[BLOCKS], any = true;

    wide_store(p.scale, ideal.step);
    wide_store(p.min, ideal.offset);
    for (int b = 0; b < BLOCKS; b++) {
        now[b].d = stored_scale(largest_of(p.scale + b * SUBS) / (float)MAX_SCALE);
        now[b].dmin = stored_scale(largest_of(p.min + b * SUBS) / (float)MAX_SCALE);
        best[b] = now[b];
        active[b] = true;
    }
    spread(now, &lanes);
    wide scale = nearest_scale(wide_mul(ideal.step, inverse_of(wide_load(lanes.d))));
    wide min = nearest_scale(wide_mul(ideal.offset, inverse_of(wide_load(lanes.dmin))));
    for (int round = 0; round < search.rounds && any; round++) {
        const wide dmin = wide_load(lanes.dmin);
        choose_scales(x, w, wide_load(lanes.d), dmin, inverse_of(dmin), search, scale, min, &s, &p);
        any = false;
        for (int b = 0; b < BLOCKS; b++) {
            if (active[b]) active[b] = end_round(round, &p, b * SUBS, &now[b], &best[b]);
            any = any || active[b];
        }
        spread(now, &lanes);
        scale = wide_load(p.scale);
        min = wide_load(p.min);
    }
}

/* Codes of a block whose values are stored in order, as bytes. */
WIDE_INLINE void codes_of(const float *x, const block_scales *best, float max_code, uint8_t *code)
{
    const float d = apr_f16_to_f32(best->d), dmin = apr_f16_to_f32(best->dmin);
    for (int sub = 0; sub < SUBS; sub++) {
        const wide inverse = inverse_of(wide_set(d * best->scale[sub])), offset = wide_set(dmin * best->min[sub]);
        for (int j = sub * SUB_ELEMS; j < (sub + 1) * SUB_ELEMS; j += WIDE)
            wide_store_bytes(code + j, code_of(wide_load(x + j), inverse, offset, max_code, BOUND_BOTH));
    }
}

/* As pack_scales and pack_nibbles of the reference. */
WIDE_INLINE void pack_scales(const block_scales *best, uint8_t *bytes)
{
    for (int j = 0; j < 4; j++) {
        const int scale = (int)best->scale[j], min = (int)best->min[j], scale_4 = (int)best->scale[4 + j], min_4 = (int)best->min[4 + j];
        bytes[j] = (uint8_t)(scale | scale_4 >> 4 << 6);
        bytes[4 + j] = (uint8_t)(min | min_4 >> 4 << 6);
        bytes[8 + j] = (uint8_t)((scale_4 & 0x0f) | (min_4 & 0x0f) << 4);
    }
}

WIDE_INLINE void pack_nibbles(const uint8_t *code, uint8_t *qs)
{
    for (int pair = 0; pair < SUBS / 2; pair++, code += 2 * SUB_ELEMS, qs += SUB_ELEMS)
        for (int l = 0; l < SUB_ELEMS; l += 16) wide_pack_nibbles(qs + l, code + l, code + SUB_ELEMS + l);
}

/* Transposes the weights of a group. */
WIDE_INLINE void transpose_importance(const float *importance, wide *w)
{
    float flat[BLOCKS * ELEMS];
    for (int b = 0; b < BLOCKS; b++) apr_block_weights(importance + b * ELEMS, ELEMS, flat + b * ELEMS);
    wide_transpose_weights(flat, SUB_ELEMS, w);
}

WIDE_INLINE void store_q4_k(const float *flat, const block_scales *best, uint8_t *dst)
{
    static const apr_k_search search = APR_Q4_K_SEARCH;
    uint8_t code[ELEMS];

    for (int b = 0; b < BLOCKS; b++) {
        apr_block_Q4_K *const block = (apr_block_Q4_K *)dst + b;
        block->d = best[b].d;
        block->dmin = best[b].dmin;
        pack_scales(&best[b], block->scales);
        codes_of(flat + b * ELEMS, &best[b], search.max_code, code);
        pack_nibbles(code, block->qs);
    }
}

WIDE_INLINE void store_q5_k(const float *flat, const block_scales *best, uint8_t *dst)
{
    static const apr_k_search search = APR_Q5_K_SEARCH;
    uint8_t code[ELEMS];

    for (int b = 0; b < BLOCKS; b++) {
        apr_block_Q5_K *const block = (apr_block_Q5_K *)dst + b;
        block->d = best[b].d;
        block->dmin = best[b].dmin;
        pack_scales(&best[b], block->scales);
        codes_of(flat + b * ELEMS, &best[b], search.max_code, code);
        pack_nibbles(code, block->qs);
        memset(block->qh, 0, sizeof block->qh);
        for (int sub = 0; sub < SUBS; sub++)
            for (int l = 0; l < SUB_ELEMS; l++) block->qh[l] |= (uint8_t)(code[SUB_ELEMS * sub + l] >> 4 << sub);
    }
}

#define ENCODER(id, name)                                                                                                             \
    static void encode_##name##_group(const float *src, uint8_t *dst)                                                                 \
    {                                                                                                                                 \
        static const apr_k_search search = APR_##id##_SEARCH;                                                                         \
        float flat[BLOCKS * ELEMS];                                                                                                   \
        wide x[SUB_ELEMS];                                                                                                            \
        block_scales best[BLOCKS];                                                                                                    \
        wide_transpose_blocks(src, SUB_ELEMS, APR_F16_MAX *(float)MAX_SCALE *search.max_code, flat, x);                               \
        search_group(x, NULL, search, best);                                                                                          \
        store_##name(flat, best, dst);                                                                                                \
    }                                                                                                                                 \
    static void encode_##name##_group_by(const float *src, const float *importance, uint8_t *dst)                                     \
    {                                                                                                                                 \
        static const apr_k_search search = APR_##id##_SEARCH;                                                                         \
        float flat[BLOCKS * ELEMS];                                                                                                   \
        wide x[SUB_ELEMS], w[SUB_ELEMS];                                                                                              \
        block_scales best[BLOCKS];                                                                                                    \
        wide_transpose_blocks(src, SUB_ELEMS, APR_F16_MAX *(float)MAX_SCALE *search.max_code, flat, x);                               \
        transpose_importance(importance, w);                                                                                          \
        search_group(x, w, search, best);                                                                                             \
        store_##name(flat, best, dst);                                                                                                \
    }                                                                                                                                 \
    static void encode_##name(const float *src, void *dst, int64_t n_elems)                                                           \
    {                                                                                                                                 \
        wide_encode_groups(src, dst, n_elems, BLOCKS *ELEMS, ELEMS, sizeof(apr_block_##id), encode_##name##_group);                   \
    }                                                                                                                                 \
    static void encode_##name##_by(const float *src, const float *importance, void *dst, int64_t n_elems)                             \
    {                                                                                                                                 \
        wide_encode_groups_by(src, importance, dst, n_elems, BLOCKS *ELEMS, ELEMS, sizeof(apr_block_##id), encode_##name##_group_by); \
    }
ENCODER(Q4_K, q4_k)
ENCODER(Q5_K, q5_k)

/* ---- Q6_K: the 16 sub-blocks of a block take one or two vectors. Where the reference skips a scale, the lane is masked. ---- */

enum { Q6_SUBS = 16, Q6_SUB_ELEMS = 16, VECTORS = Q6_SUBS / WIDE };
enum { MIN_CODE = -32, MAX_CODE = 31, Q6_MIN_SCALE = -128, Q6_MAX_SCALE = 127 };

typedef struct q6_sums {
    wide qq, qx;
} q6_sums;

WIDE_INLINE wide q6_inverse_of(wide step) { return wide_where(wide_differs(step, wide_set(0.0f)), wide_div(wide_set(1.0f), step)); }

/* Clamps before the rounder is subtracted. */
WIDE_INLINE wide q6_code_of(wide x, wide inverse)
{
    const wide v = wide_add(wide_mul(x, inverse), wide_set(rounder));
    return wide_sub(wide_clamp(v, rounder + (float)MIN_CODE, rounder + (float)MAX_CODE), wide_set(rounder));
}

/* Without weights, sums of squared codes are integers, exact in any order; other sums are kept in eight parts. */
WIDE_INLINE wide try_steps(const wide *x, const wide *w, wide step, bool want_error, q6_sums *s)
{
    const wide inverse = q6_inverse_of(step);
    wide whole[2] = {wide_set(0.0f), wide_set(0.0f)}, qq[8], qx[8], ee[8];

#pragma GCC unroll 8
    for (int l = 0; l < 8; l++) {
        const wide q = q6_code_of(x[l], inverse), r = q6_code_of(x[8 + l], inverse);
        const wide wq = w != NULL ? wide_mul(w[l], q) : q, wr = w != NULL ? wide_mul(w[8 + l], r) : r;
        if (w != NULL) {
            qq[l] = wide_add(wide_mul(wq, q), wide_mul(wr, r));
        } else {
            whole[0] = wide_integer_fma(q, q, whole[0]);
            whole[1] = wide_integer_fma(r, r, whole[1]);
        }
        qx[l] = wide_add(wide_mul(wq, x[l]), wide_mul(wr, x[8 + l]));
        if (!want_error) continue;
        const wide e = wide_sub(wide_mul(step, q), x[l]), f = wide_sub(wide_mul(step, r), x[8 + l]);
        ee[l] = wide_add(wide_mul(w != NULL ? wide_mul(w[l], e) : e, e), wide_mul(w != NULL ? wide_mul(w[8 + l], f) : f, f));
    }
    s->qq = w != NULL ? wide_sum8(qq) : wide_add(whole[0], whole[1]);
    s->qx = wide_sum8(qx);
    return want_error ? wide_sum8(ee) : wide_set(0.0f);
}

/* Step 1. */
WIDE_INLINE wide q6_search_sub_blocks(const wide *x, const wide *w)
{
    enum { TRIALS = APR_Q6_K_TRIALS };
    const wide zero = wide_set(0.0f);
    wide amax = zero, extreme = zero, gain = zero, best = zero;

    for (int j = 0; j < Q6_SUB_ELEMS; j++) {
        const wide magnitude = wide_abs(x[j]);
        const wide_mask larger = wide_less(amax, magnitude);
        amax = wide_choose(larger, magnitude, amax);
        extreme = wide_choose(larger, x[j], extreme);
    }
    const wide_mask has_range = wide_less(wide_set(0x1p-40f), amax);
    for (int t = 0; t < TRIALS; t++) {
        q6_sums s;
        try_steps(x, w, wide_div(extreme, wide_set(APR_Q6_K_MIDDLE + APR_Q6_K_GAP * (float)(TRIALS / 2 - t))), false, &s);
        const wide fit = wide_div(s.qx, s.qq), won = wide_mul(s.qx, fit);
        const wide_mask better = wide_both(has_range, wide_less(gain, won));
        gain = wide_choose(better, won, gain);
        best = wide_choose(better, fit, best);
    }
    return best;
}

/* The contribution of each sub-block to the sums over the block. */
typedef struct q6_parts {
    float error[Q6_SUBS], scale[Q6_SUBS], aa[Q6_SUBS], ax[Q6_SUBS];
} q6_parts;

/* Step 3 for the sub-blocks of vector v, whose current scales are in p. */
WIDE_INLINE void q6_choose_scales(const wide *x, const wide *w, float d, int v, q6_parts *p)
{
    const wide middle = wide_load(p->scale + v * WIDE), first = wide_set((float)Q6_MIN_SCALE), last = wide_set((float)Q6_MAX_SCALE);
    wide least = wide_set(-1.0f), scale = middle, qq = least, qx = least;

    for (int away = -APR_Q6_K_REACH; away <= APR_Q6_K_REACH; away++) {
        const wide t = wide_add(middle, wide_set((float)away));
        const wide_mask allowed = wide_both(wide_at_most(first, t), wide_at_most(t, last));
        q6_sums s;
        const wide error = try_steps(x, w, wide_mul(wide_set(d), t), true, &s);
        const wide_mask better = wide_both(allowed, wide_either(wide_less(least, wide_set(0.0f)), wide_less(error, least)));
        least = wide_choose(better, error, least);
        qq = wide_choose(better, s.qq, qq);
        qx = wide_choose(better, s.qx, qx);
        scale = wide_choose(better, t, scale);
    }
    wide_store(p->error + v * WIDE, least);
    wide_store(p->scale + v * WIDE, scale);
    wide_store(p->aa + v * WIDE, wide_mul(wide_mul(scale, scale), qq));
    wide_store(p->ax + v * WIDE, wide_mul(scale, qx));
}

/* The stored scales of a block, and its squared error. */
typedef struct q6_block_scales {
    uint16_t d; /* half */
    float scale[Q6_SUBS], error;
} q6_block_scales;

/* To FP16; a non-zero value stays non-zero, and a too large one becomes the largest. */
static uint16_t q6_stored_scale(float x)
{
    const uint16_t half = apr_f32_to_f16(apr_clamp(x, -APR_F16_MAX, APR_F16_MAX));
    return (half & 0x7fff) == 0 && x != 0.0f ? (uint16_t)(half | 1) : half;
}

/* The value with the largest magnitude; the first of equals. */
static float signed_largest(const float *a)
{
    float largest = 0.0f, value = 0.0f;
    for (int i = 0; i < Q6_SUBS; i++) {
        const float magnitude = a[i] < 0.0f ? -a[i] : a[i];
        if (magnitude > largest) largest = magnitude, value = a[i];
    }
    return value;
}

/* w: [VECTORS] of Q6_SUB_ELEMS, or NULL */
WIDE_INLINE void search_block(const wide x[VECTORS][Q6_SUB_ELEMS], const wide *w, q6_block_scales *best)
{
    uint16_t d;
    q6_parts p;

    for (int v = 0; v < VECTORS; v++) wide_store(p.scale + v * WIDE, q6_search_sub_blocks(x[v], w != NULL ? w + v * Q6_SUB_ELEMS : NULL));
    best->d = d = q6_stored_scale(signed_largest(p.scale) / (float)Q6_MIN_SCALE);
    for (int v = 0; v < VECTORS; v++) {
        const wide scale = wide_mul(wide_load(p.scale + v * WIDE), q6_inverse_of(wide_set(apr_f16_to_f32(d))));
        wide_store(p.scale + v * WIDE, wide_clamp(wide_round(scale), (float)Q6_MIN_SCALE, (float)Q6_MAX_SCALE));
    }
    for (int round = 0; round < APR_Q6_K_ROUNDS; round++) {
        float error = 0.0f, aa = 0.0f, ax = 0.0f;
        for (int v = 0; v < VECTORS; v++) q6_choose_scales(x[v], w != NULL ? w + v * Q6_SUB_ELEMS : NULL, apr_f16_to_f32(d), v, &p);
        for (int sub = 0; sub < Q6_SUBS; sub++) error += p.error[sub], aa += p.aa[sub], ax += p.ax[sub];
        if (round > 0 && !(error < best->error)) break;
        best->d = d;
        best->error = error;
        memcpy(best->scale, p.scale, sizeof best->scale);
        if (!(aa > 0.0f)) break;
        d = q6_stored_scale(ax / aa);
        if (d == best->d) break;
    }
}

/* Codes plus 32 of a block whose values are stored in order. */
WIDE_INLINE void q6_codes_of(const float *x, const q6_block_scales *best, uint8_t *code)
{
    const float d = apr_f16_to_f32(best->d);
    for (int sub = 0; sub < Q6_SUBS; sub++) {
        const wide inverse = q6_inverse_of(wide_set(d * best->scale[sub]));
        for (int j = sub * Q6_SUB_ELEMS; j < (sub + 1) * Q6_SUB_ELEMS; j += WIDE)
            wide_store_bytes(code + j, wide_add(q6_code_of(wide_load(x + j), inverse), wide_set((float)-MIN_CODE)));
    }
}

WIDE_INLINE void store_block(const float *flat, const q6_block_scales *best, apr_block_Q6_K *block)
{
    uint8_t code[ELEMS];

    q6_codes_of(flat, best, code);
    block->d = best->d;
    for (int sub = 0; sub < Q6_SUBS; sub++) block->scales[sub] = (int8_t)best->scale[sub];
    for (int half = 0; half < 2; half++) { /* elements 32 * k + l of a half: see the reference's decoder */
        const uint8_t *const c = code + 128 * half;
        for (int l = 0; l < 64; l += 16) wide_pack_nibbles(block->ql + 64 * half + l, c + l, c + 64 + l);
        for (int l = 0; l < 32; l++)
            block->qh[32 * half + l] = (uint8_t)(c[l] >> 4 | c[32 + l] >> 4 << 2 | c[64 + l] >> 4 << 4 | c[96 + l] >> 4 << 6);
    }
}

static const float q6_limit = APR_F16_MAX * (float)Q6_MAX_SCALE * (float)MAX_CODE;

static void encode_q6_k_block(const float *src, uint8_t *dst)
{
    float flat[ELEMS];
    wide x[VECTORS][Q6_SUB_ELEMS];
    q6_block_scales best;

    for (int v = 0; v < VECTORS; v++)
        wide_transpose_blocks(src + v * WIDE * Q6_SUB_ELEMS, Q6_SUB_ELEMS, q6_limit, flat + v * WIDE * Q6_SUB_ELEMS, x[v]);
    search_block(x, NULL, &best);
    store_block(flat, &best, (apr_block_Q6_K *)dst);
}

static void encode_q6_k_block_by(const float *src, const float *importance, uint8_t *dst)
{
    float flat[ELEMS], weights[ELEMS];
    wide x[VECTORS][Q6_SUB_ELEMS], w[VECTORS * Q6_SUB_ELEMS];
    q6_block_scales best;

    apr_block_weights(importance, ELEMS, weights);
    for (int v = 0; v < VECTORS; v++) {
        wide_transpose_blocks(src + v * WIDE * Q6_SUB_ELEMS, Q6_SUB_ELEMS, q6_limit, flat + v * WIDE * Q6_SUB_ELEMS, x[v]);
        wide_transpose_weights(weights + v * WIDE * Q6_SUB_ELEMS, Q6_SUB_ELEMS, w + v * Q6_SUB_ELEMS);
    }
    search_block(x, w, &best);
    store_block(flat, &best, (apr_block_Q6_K *)dst);
}

static void encode_q6_k(const float *src, void *dst, int64_t n_elems)
{
    wide_encode_groups(src, dst, n_elems, ELEMS, ELEMS, sizeof(apr_block_Q6_K), encode_q6_k_block);
}

static void encode_q6_k_by(const float *src, const float *importance, void *dst, int64_t n_elems)
{
    wide_encode_groups_by(src, importance, dst, n_elems, ELEMS, ELEMS, sizeof(apr_block_Q6_K), encode_q6_k_block_by);
}

const apr_host_codecs_table WIDE_NAME(apr_simd_k) = {
    .codecs =
        {
            [APR_Q4_K] = {.encode = encode_q4_k, .encode_by = encode_q4_k_by},
            [APR_Q5_K] = {.encode = encode_q5_k, .encode_by = encode_q5_k_by},
            [APR_Q6_K] = {.encode = encode_q6_k, .encode_by = encode_q6_k_by},
        },
};
