/* affine_search.h - what the searches of Q2_K, Q4_K and Q5_K share: grids for a sub-block, and d and dmin for a block.
 *
 * A grid is value = step * code - offset, codes 0 to max_code. A sub-block has n values, 16 or 32, whose sums are taken in 8 lanes. A block
 * stores step = d * scale and offset = dmin * min, with d and dmin as FP16. */
#ifndef APR_KERNELS_REF_AFFINE_SEARCH_H
#define APR_KERNELS_REF_AFFINE_SEARCH_H

#include "kernels/ref/codecs.h"
#include "kernels/ref/k_search.h"
#include "kernels/ref/step_ladders.h"

enum { APR_MOST_SUB_ELEMS = 32 };

typedef struct apr_grid {
    float step, offset;
} apr_grid;

/* Weighted sums over a sub-block for least squares: of the weights, of the values, and of the codes of a grid. */
typedef struct apr_grid_sums {
    float w, x, xx, q, qq, qx;
} apr_grid_sums;

static inline float apr_grid_code(float x, float inverse, float offset, float max_code)
{
    return apr_clamp(apr_round_even((x + offset) * inverse), 0.0f, max_code);
}

static inline float apr_dot_in_lanes(const float *restrict a, const float *restrict b, int n)
{
    float lane[8];
    for (int l = 0; l < 8; l++) {
        lane[l] = a[l] * b[l];
        for (int j = 8 + l; j < n; j += 8) lane[l] += a[j] * b[j];
    }
    return apr_sum8(lane);
}

static inline float apr_sum_in_lanes(const float *restrict a, int n)
{
    float lane[8];
    for (int l = 0; l < 8; l++) {
        lane[l] = a[l];
        for (int j = 8 + l; j < n; j += 8) lane[l] += a[j];
    }
    return apr_sum8(lane);
}

/* The sums that do not depend on codes. */
static inline apr_grid_sums apr_sums_of(const float *restrict x, const float *restrict w, int n)
{
    float wx[APR_MOST_SUB_ELEMS];
    for (int j = 0; j < n; j++) wx[j] = w[j] * x[j];
    return (apr_grid_sums){.w = apr_sum_in_lanes(w, n), .x = apr_sum_in_lanes(wx, n), .xx = apr_dot_in_lanes(wx, x, n)};
}

/* Gives every value the grid's nearest code, computes the sums, and returns the squared error after decoding. */
static inline float apr_try_grid(const float *restrict x, const float *restrict w, int n, apr_grid g, float max_code,
                                 apr_grid_sums *restrict s)
{
    const float inverse = apr_inverse_of(g.step);
    float q[APR_MOST_SUB_ELEMS], wq[APR_MOST_SUB_ELEMS], e[APR_MOST_SUB_ELEMS], we[APR_MOST_SUB_ELEMS];
    for (int j = 0; j < n; j++) {
        q[j] = apr_grid_code(x[j], inverse, g.offset, max_code);
        e[j] = g.step * q[j] - g.offset - x[j];
        wq[j] = w[j] * q[j];
        we[j] = w[j] * e[j];
    }
    s->q = apr_sum_in_lanes(wq, n);
    s->qq = apr_dot_in_lanes(wq, q, n);
    s->qx = apr_dot_in_lanes(wq, x, n);
    return apr_dot_in_lanes(we, e, n);
}

/* The least-squares grid for the codes summed in s, and its squared error (the sum of w * (x - step * q + offset)^2, multiplied out).
 * Stored offsets are not negative. */
static inline apr_grid apr_fit_grid(const apr_grid_sums *s, float *error)
{
    const float n = s->w, det = n * s->qq - s->q * s->q;
    apr_grid g = {0.0f, -1.0f};
    if (det > 0.0f) {
        g.step = (n * s->qx - s->q * s->x) / det;
        g.offset = (s->q * s->qx - s->qq * s->x) / det;
    }
    if (g.offset < 0.0f) { /* or all codes are equal */
        g.offset = 0.0f;
        g.step = s->qq > 0.0f ? s->qx / s->qq : 0.0f;
    }
    if (g.step < 0.0f) g.step = 0.0f;
    *error = s->xx + g.step * (g.step * s->qq - 2.0f * s->qx) + g.offset * (2.0f * (s->x - g.step * s->q) + n * g.offset);
    return g;
}

/* The best grid of a sub-block. Trial grids start at the lowest value or half a step above. If one value has nearly all the weight, a fit
 * can be meaningless: it is rejected if its step is larger than the range. */
static inline apr_grid apr_search_grid(const float *restrict x, const float *restrict w, int n, apr_k_search search)
{
    const float max_code = search.max_code;
    float low = 0.0f, high = x[0]; /* code 0 stands for 0 or less */
    for (int j = 0; j < n; j++) {
        low = x[j] < low ? x[j] : low;
        high = x[j] > high ? x[j] : high;
    }
    apr_grid best = {0.0f, -low};
    if (!(high - low > 0x1p-40f)) return best; /* equal, or too close for FP16 */

    float least = FLT_MAX, error;
    apr_grid_sums s = apr_sums_of(x, w, n);
    for (int stretch = 0; stretch < search.stretches; stretch++)
        for (int shift = 0; shift < 2; shift++) {
            const float step = (high - low) / (search.first_steps + search.gap * (float)stretch);
            apr_try_grid(x, w, n, (apr_grid){step, -low - 0.5f * (float)shift * step}, max_code, &s);
            const apr_grid g = apr_fit_grid(&s, &error);
            if (error < least && g.step <= high - low) least = error, best = g;
        }
    for (int polish = 0; polish < search.polishes; polish++) {
        apr_try_grid(x, w, n, best, max_code, &s);
        const apr_grid g = apr_fit_grid(&s, &error);
        if (error < least && g.step <= high - low) least = error, best = g;
        else break;
    }
    return best;
}

/* Sums over a block, with value = d * a - dmin * b, a = scale * code, b = min. */
typedef struct apr_block_sums {
    float aa, ab, bb, ax, bx;
} apr_block_sums;

static inline void apr_block_sums_add(apr_block_sums *all, const apr_grid_sums *s, float a, float b)
{
    all->aa += a * a * s->qq;
    all->ab += a * b * s->q;
    all->bb += b * b * s->w;
    all->ax += a * s->qx;
    all->bx += b * s->x;
}

/* The d and dmin that minimise the sum of (x - d * a + dmin * b)^2. False: no such pair can be stored. */
static inline bool apr_fit_block(const apr_block_sums *s, uint16_t *d, uint16_t *dmin)
{
    const float det = s->aa * s->bb - s->ab * s->ab;
    const float fit_d = det > 0.0f ? (s->ax * s->bb - s->bx * s->ab) / det : s->aa > 0.0f ? s->ax / s->aa : 0.0f;
    const float fit_dmin = det > 0.0f ? (s->ax * s->ab - s->bx * s->aa) / det : 0.0f;

    if (!(fit_d > 0.0f && fit_dmin >= 0.0f)) return false;
    *d = apr_stored_scale(fit_d);
    *dmin = apr_stored_scale(fit_dmin);
    return true;
}

#endif
