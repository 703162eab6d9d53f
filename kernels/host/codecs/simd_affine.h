/* simd_affine.h - what the encoders of Q2_K, Q4_K and Q5_K share: the searches of kernels/ref/affine_search.h, one sub-block a lane.
 *
 * Where the reference stops early for a sub-block, its lane continues and is masked. A sub-block has n values, 16 or 32: x[i] has value i of
 * all lanes.
 *
 * w: weights of the values; NULL: all are 1, a faster case for which the compiler removes the rest. */
#ifndef APR_KERNELS_SIMD_AFFINE_H
#define APR_KERNELS_SIMD_AFFINE_H

#include "kernels/host/codecs/simd_codecs.h"
#include "kernels/host/codecs/simd_transpose.h"
#include "kernels/ref/affine_search.h"

enum { MOST_SUBS = 16 }; /* sub-blocks that are searched together */

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
WIDE_INLINE wide try_grid(const wide *x, const wide *w, int n, grids g, float max_code, int bound, bool want_error, sums *s)
{
    const wide inverse = inverse_of(g.step);
    wide q_sum = wide_set(0.0f), qq_sum = wide_set(0.0f);
    lane_sums lanes;

#pragma GCC unroll 8
    for (int l = 0; l < 8; l++) {
#pragma GCC unroll 4
        for (int k = 0; k < n / 8; k++) {
            const wide v = x[l + 8 * k], q = code_of(v, inverse, g.offset, max_code, bound);
            const wide wq = w != NULL ? wide_mul(w[l + 8 * k], q) : q;
            add_to(&lanes.qx[l], k == 0, wide_mul(wq, v));
            if (w != NULL) {
                add_to(&lanes.q[l], k == 0, wq);
                add_to(&lanes.qq[l], k == 0, wide_mul(wq, q));
            } else {
                add_to(&lanes.q[l], k == 0, q);
                qq_sum = wide_integer_fma(q, q, qq_sum);
            }
            if (!want_error) continue;
            const wide e = wide_sub(wide_sub(wide_mul(g.step, q), g.offset), v);
            add_to(&lanes.ee[l], k == 0, wide_mul(w != NULL ? wide_mul(w[l + 8 * k], e) : e, e));
        }
        if (w == NULL) q_sum = wide_add(q_sum, lanes.q[l]);
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

typedef struct best_grids {
    wide least;
    grids grid;
} best_grids;

/* within_range: a fit is rejected if its step is larger than the range of the values. *better: the lanes in which it was the best one. */
WIDE_INLINE void try_and_fit(const wide *x, const wide *w, int n, wide range, grids trial, float max_code, int bound, bool within_range,
                             wide_mask candidates, sums *s, best_grids *best, wide_mask *better)
{
    wide error;
    try_grid(x, w, n, trial, max_code, bound, false, s);
    const grids g = fit(s, &error);
    *better = wide_both(candidates, wide_less(error, best->least));
    if (within_range) *better = wide_both(*better, wide_at_most(g.step, range));
    best->least = wide_choose(*better, error, best->least);
    best->grid.step = wide_choose(*better, g.step, best->grid.step);
    best->grid.offset = wide_choose(*better, g.offset, best->grid.offset);
}

WIDE_INLINE void sum_values(const wide *x, const wide *w, int n, sums *s)
{
    wide weights[8], values[8], squares[8];
    for (int l = 0; l < 8; l++)
        for (int k = 0; k < n / 8; k++) {
            const wide v = x[8 * k + l], wv = w != NULL ? wide_mul(w[8 * k + l], v) : v;
            add_to(&values[l], k == 0, wv);
            add_to(&squares[l], k == 0, wide_mul(wv, v));
            if (w != NULL) add_to(&weights[l], k == 0, w[8 * k + l]);
        }
    s->w = w != NULL ? wide_sum8(weights) : wide_set((float)n);
    s->x = wide_sum8(values);
    s->xx = wide_sum8(squares);
}

/* The best grid of each sub-block, and in *s the sums that do not depend on codes. A grid from the lowest value on has no value below code 0; with fewer than max_code + 1/2 steps it has none above the last
 * code. A grid half a step later rounds its offset, so both bounds are needed. */
WIDE_INLINE grids search_sub_blocks(const wide *x, const wide *w, int n, apr_k_search search, bool within_range, sums *s)
{
    const float max_code = search.max_code;
    wide low = wide_set(0.0f), high = x[0];
    for (int j = 0; j < n; j++) {
        low = wide_min(x[j], low);
        high = wide_max(x[j], high);
    }
    const wide range = wide_sub(high, low), start = wide_minus(low);
    const wide_mask has_range = wide_less(wide_set(0x1p-40f), range);
    best_grids best = {wide_set(FLT_MAX), {wide_set(0.0f), start}};
    wide_mask active = has_range;

    sum_values(x, w, n, s);
    for (int stretch = 0; stretch < search.stretches; stretch++) {
        const float n_steps = search.first_steps + search.gap * (float)stretch;
        const wide step = wide_div(range, wide_set(n_steps));
        const grids at_start = {step, start}, shifted = {step, wide_sub(start, wide_mul(wide_set(0.5f), step))};
        if (n_steps < max_code + 0.4f)
            try_and_fit(x, w, n, range, at_start, max_code, BOUND_NONE, within_range, has_range, s, &best, &active);
        else try_and_fit(x, w, n, range, at_start, max_code, BOUND_ABOVE, within_range, has_range, s, &best, &active);
        try_and_fit(x, w, n, range, shifted, max_code, BOUND_BOTH, within_range, has_range, s, &best, &active);
    }
    active = has_range;
    for (int polish = 0; polish < search.polishes && wide_any(active); polish++)
        try_and_fit(x, w, n, range, best.grid, max_code, BOUND_BOTH, within_range, active, s, &best, &active);
    return best.grid;
}

/* The contribution of each sub-block to the sums over its block, as floats: of a block, or of the blocks of a group. */
typedef struct parts {
    float error[MOST_SUBS], scale[MOST_SUBS], min[MOST_SUBS], aa[MOST_SUBS], ab[MOST_SUBS], bb[MOST_SUBS], ax[MOST_SUBS], bx[MOST_SUBS];
} parts;

WIDE_INLINE wide nearest_of(wide x, float max_scale) { return wide_clamp(wide_round(x), 0.0f, max_scale); }

/* Chooses scales and minimums: scales near `middle`, each with the first minimum and then with the one that fits its codes. d, dmin and its
 * inverse are those of each lane's block. Lane i becomes sub-block first + i of p. */
WIDE_INLINE void choose_scales(const wide *x, const wide *w, int n, wide d, wide dmin, wide inverse_dmin, apr_k_search search,
                               float max_scale, wide middle, wide first_min, sums *s, int first, parts *p)
{
    const wide zero = wide_set(0.0f), last = wide_set(max_scale);
    wide least = wide_set(-1.0f), q = zero, qq = zero, qx = zero, scale = middle, min = first_min;

    for (int away = -search.reach; away <= search.reach; away++) {
        const wide t = wide_add(middle, wide_set((float)away)), step = wide_mul(d, t);
        wide_mask active = wide_both(wide_at_most(zero, t), wide_at_most(t, last));
        wide m = first_min;
        for (int pass = 0; pass < 2 && wide_any(active); pass++) {
            const wide error = try_grid(x, w, n, (grids){step, wide_mul(dmin, m)}, search.max_code, BOUND_BOTH, true, s);
            const wide_mask better = wide_both(active, wide_either(wide_less(least, zero), wide_less(error, least)));
            least = wide_choose(better, error, least);
            q = wide_choose(better, s->q, q);
            qq = wide_choose(better, s->qq, qq);
            qx = wide_choose(better, s->qx, qx);
            scale = wide_choose(better, t, scale);
            min = wide_choose(better, m, min);
            const wide left = wide_sub(wide_mul(step, s->q), s->x);
            const wide off = w != NULL ? wide_div(left, s->w) : wide_mul(left, wide_set(1.0f / (float)n));
            const wide fitted = nearest_of(wide_mul(off, inverse_dmin), max_scale);
            active = wide_both(active, wide_differs(fitted, m));
            m = fitted;
        }
    }
    wide_store(p->error + first, least);
    wide_store(p->scale + first, scale);
    wide_store(p->min + first, min);
    wide_store(p->aa + first, wide_mul(wide_mul(scale, scale), qq));
    wide_store(p->ab + first, wide_mul(wide_mul(scale, min), q));
    wide_store(p->bb + first, wide_mul(wide_mul(min, min), s->w));
    wide_store(p->ax + first, wide_mul(scale, qx));
    wide_store(p->bx + first, wide_mul(min, s->x));
}

static float sum_of(const float *a, int n)
{
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += a[i];
    return sum;
}

static float largest_of(const float *a, int n)
{
    float most = 0.0f;
    for (int i = 0; i < n; i++) most = a[i] > most ? a[i] : most;
    return most;
}

/* d and dmin of a block whose sub-blocks are `first` to first + n - 1 of p. False: no such pair can be stored. */
static bool fit_block(const parts *p, int first, int n, uint16_t *d, uint16_t *dmin)
{
    const apr_block_sums all = {.aa = sum_of(p->aa + first, n),
                                .ab = sum_of(p->ab + first, n),
                                .bb = sum_of(p->bb + first, n),
                                .ax = sum_of(p->ax + first, n),
                                .bx = sum_of(p->bx + first, n)};
    return apr_fit_block(&all, d, dmin);
}

#endif
