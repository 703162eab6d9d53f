/* points_search.h - the best codes of a group of eight, for types with codebooks, when the errors of the eight values are not independent.
 *
 * The error is (u - c) S (u - c)^T for the wanted values u and a symmetric, positive definite S, in units of codes. To look at all points
 * with all signs would take too long (2^18 for IQ2_S). Instead points are replaced one after another, each time by the best of a list:
 *
 *     x        the value that each code alone should have, given the others
 *     list     the points that can be the nearest to x, whatever the weights of its values (kernels/ref/iq_book.h), with the signs of x, and
 *              with the one other sign that lowers the error most, or that an even number of minus signs needs
 *
 * There are two starts: u itself, and levels that need not be a point together, each rounded in turn, given the others. From each,
 * points are replaced until nothing is better, at most IQ_REPLACE_ROUNDS times. Where the number of minus signs is even, a pair of signs is
 * also turned if that is better. Nine in ten groups get the best codes of all. Sums have a fixed order, so bytes do not depend on the
 * machine. kernels/cuda/feedback/points_search.cuh is the same search for GPUs, with the same sums: a change here is one there. */
#ifndef APR_QUANT_POINTS_SEARCH_H
#define APR_QUANT_POINTS_SEARCH_H

#include "kernels/ref/iq_types.h"
#include "quant/feedback/grid.h"
#include "quant/feedback/lane_products.h"

#include <float.h>
#include <stdbool.h>

enum { POINTS = APR_GRID_GROUP };

#define POINTS_INLINE static inline __attribute__((always_inline))

typedef float points_vector __attribute__((vector_size(32), aligned(4), may_alias));

typedef struct points_search {
    const iq_type *type;
    const apr_iq_book *book;
    float level[2][8], boundary[2][8];        /* in units of codes */
    float s[POINTS][POINTS], inverse[POINTS]; /* S, and one over its diagonal */
} points_search;

/* A group that is being searched. g: (u - c) S. */
typedef struct points_group {
    float c[POINTS], g[POINTS];
} points_group;

/* Where a part of a group, one point, may go. */
typedef struct points_part {
    int first, n, shift;
    int parity; /* of its minus signs; -1: any */
    float sign[POINTS];
    bool is_odd; /* of the signs */
} points_part;

typedef struct points_choice {
    float c[POINTS], change;
} points_choice;

static bool points_have_signs(const iq_type *t) { return t->signs == IQ_FREE_SIGNS || t->signs == IQ_EVEN_SIGNS; }

static points_search points_search_of(const apr_points *points)
{
    points_search p = {.type = points->type, .book = points->book()};
    for (int shift = 0; shift < 2; shift++)
        for (int l = 0; l < 8; l++) {
            p.level[shift][l] = p.type->level[shift][l] / points->unit;
            p.boundary[shift][l] = p.type->boundary[shift][l] / points->unit;
        }
    return p;
}

POINTS_INLINE float points_sum(const points_vector *v)
{
    const points_vector a = *v;
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

/* The cell of x, from its magnitudes where points have signs. */
POINTS_INLINE int points_cell(const points_search *p, const points_group *group, points_part *part)
{
    const float *const boundary = p->boundary[part->shift];
    int cell = 0;

    part->is_odd = false;
    for (int i = part->n - 1; i >= 0; i--) {
        const int at = part->first + i;
        float x = group->c[at] + group->g[at] * p->inverse[at];
        const bool is_minus = x < 0.0f && points_have_signs(p->type);
        int level = 0;
        part->sign[i] = is_minus ? -1.0f : 1.0f;
        part->is_odd ^= is_minus;
        if (is_minus) x = -x;
        for (int l = 0; l < p->type->n_levels - 1; l++) level += x > boundary[l];
        cell = cell * p->type->n_levels + level;
    }
    return cell;
}

/* The values of a point with the signs of a part; 0 outside of the part. */
POINTS_INLINE void points_values(const points_search *p, const points_part *part, unsigned word, points_vector *v)
{
    const float *const level = p->level[part->shift];
    *v = (points_vector){0};
    if (part->n == POINTS)
        for (int i = 0; i < POINTS; i++) (*v)[i] = part->sign[i] * level[word >> 2 * i & 3];
    else
        for (int i = 0; i < POINTS / 2; i++) (*v)[part->first + i] = part->sign[i] * level[word >> 4 * i & 7];
}

/* Turns the sign whose turn is cheapest, if it must be or if that lowers the error. g: (u - c) S with the values v. */
POINTS_INLINE float points_turn_one(const points_search *p, const points_part *part, bool must, const points_vector *g, points_vector *v)
{
    points_vector diagonal;
    int cheapest = part->first;

    for (int i = 0; i < POINTS; i++) diagonal[i] = p->s[i][i];
    const points_vector price = 4.0f * *v * (*g + diagonal * *v);
    for (int i = part->first + 1; i < part->first + part->n; i++)
        if (price[i] < price[cheapest]) cheapest = i;
    if (!must && !(price[cheapest] < 0.0f)) return 0.0f;
    (*v)[cheapest] = -(*v)[cheapest];
    return price[cheapest];
}

/* What a point changes the error by, with its best signs; the values are left in *v. */
POINTS_INLINE float points_try(const points_search *p, const points_group *group, const points_part *part, unsigned word, points_vector *v)
{
    const points_vector g = *(const points_vector *)group->g;
    points_vector d = {0}, sd = {0};

    points_values(p, part, word, v);
    for (int i = part->first; i < part->first + part->n; i++) d[i] = (*v)[i] - group->c[i];
    for (int i = part->first; i < part->first + part->n; i++) sd += d[i] * *(const points_vector *)p->s[i];
    const points_vector terms = d * (sd - 2.0f * g);
    float change = points_sum(&terms);
    if (points_have_signs(p->type)) {
        const points_vector after = g - sd;
        const bool must = part->parity >= 0 && part->is_odd != (part->parity == 1);
        if (must || part->parity < 0) change += points_turn_one(p, part, must, &after, v);
    }
    return change;
}

/* The best point of the list for x. */
POINTS_INLINE points_choice points_best(const points_search *p, const points_group *group, points_part *part)
{
    const int cell = points_cell(p, group, part);
    points_choice best = {.change = FLT_MAX};

    for (uint32_t k = p->book->first[cell]; k < p->book->first[cell + 1]; k++) {
        points_vector v;
        const float change = points_try(p, group, part, p->book->list[k], &v);
        if (!(change < best.change) && k != p->book->first[cell]) continue;
        *(points_vector *)best.c = v;
        best.change = change;
    }
    return best;
}

/* Moves values first to first + n of a group to c. */
POINTS_INLINE void points_move(const points_search *p, points_group *group, int first, int n, const float *c)
{
    for (int i = first; i < first + n; i++) {
        const float d = c[i] - group->c[i];
        *(points_vector *)group->g -= d * *(const points_vector *)p->s[i];
        group->c[i] = c[i];
    }
}

POINTS_INLINE bool points_is_odd(const float *c, int n)
{
    bool is_odd = false;
    for (int i = 0; i < n; i++) is_odd ^= c[i] < 0.0f;
    return is_odd;
}

/* Replaces each point once. always: also by worse ones, because the group is not yet made of points. */
POINTS_INLINE bool points_replace(const points_search *p, points_group *group, int shift, bool always)
{
    const int n = p->type->n_values;
    bool is_better = false;

    for (int first = 0; first < POINTS; first += n) {
        points_part part = {.first = first, .n = n, .shift = shift, .parity = -1};
        if (p->type->signs == IQ_EVEN_SIGNS) {
            const bool is_last = first + n == POINTS;
            const bool other = n < POINTS && points_is_odd(group->c + (first > 0 ? 0 : n), n);
            if (!always || is_last) part.parity = other;
        }
        const points_choice best = points_best(p, group, &part);
        if (!always && !(best.change < 0.0f)) continue;
        points_move(p, group, first, n, best.c);
        is_better = true;
    }
    return is_better;
}

/* Turns the pair of signs whose turn lowers the error most. */
POINTS_INLINE bool points_turn_pair(const points_search *p, points_group *group)
{
    float price[POINTS], least = 0.0f;
    int a = -1, b = -1;

    for (int i = 0; i < POINTS; i++) price[i] = 4.0f * group->c[i] * (group->g[i] + p->s[i][i] * group->c[i]);
    for (int i = 0; i < POINTS; i++)
        for (int j = i + 1; j < POINTS; j++) {
            const float both = price[i] + price[j] + 8.0f * p->s[i][j] * group->c[i] * group->c[j];
            if (both < least) least = both, a = i, b = j;
        }
    if (a < 0) return false;
    float turned[POINTS];
    memcpy(turned, group->c, sizeof turned);
    turned[a] = -turned[a];
    turned[b] = -turned[b];
    points_move(p, group, a, 1, turned);
    points_move(p, group, b, 1, turned);
    return true;
}

/* Gives each value in turn its nearest level, whether or not the levels are a point together. */
POINTS_INLINE void points_round(const points_search *p, int shift, points_group *group)
{
    const float *const level = p->level[shift], *const boundary = p->boundary[shift];
    for (int i = 0; i < POINTS; i++) {
        float x = group->c[i] + group->g[i] * p->inverse[i], c[POINTS];
        const bool is_minus = x < 0.0f && points_have_signs(p->type);
        int l = 0;
        if (is_minus) x = -x;
        for (int k = 0; k < p->type->n_levels - 1; k++) l += x > boundary[k];
        c[i] = is_minus ? -level[l] : level[l];
        points_move(p, group, i, 1, c);
    }
}

/* sweeps: how often levels are rounded before points are chosen. */
POINTS_INLINE void points_search_from(const points_search *p, int shift, int sweeps, points_group *group)
{
    for (int sweep = 0; sweep < sweeps; sweep++) points_round(p, shift, group);
    points_replace(p, group, shift, true);
    for (int round = 1; round < IQ_REPLACE_ROUNDS; round++) {
        bool is_better = p->type->signs == IQ_EVEN_SIGNS && points_turn_pair(p, group);
        is_better |= points_replace(p, group, shift, false);
        if (!is_better) break;
    }
}

/* (u - c) S (u - c)^T */
POINTS_INLINE float points_error(const float *u, const points_group *group)
{
    points_vector terms;
    for (int i = 0; i < POINTS; i++) terms[i] = (u[i] - group->c[i]) * group->g[i];
    return points_sum(&terms);
}

/* The codes for wanted values u. shift: of an IQ1_S sub-block; the other types have none, or find it. */
POINTS_INLINE void points_nearest(const points_search *p, const float *u, int shift, float *code)
{
    const int n_shifts = p->type->signs == IQ_SHIFTED_POINTS ? 2 : 1;
    float least = FLT_MAX;

    for (int k = 0; k < 2 * n_shifts; k++) {
        points_group group = {{0}, {0}};
        memcpy(group.c, u, sizeof group.c);
        points_search_from(p, shift + k / 2, k % 2 * IQ_LEVEL_SWEEPS, &group); /* both starts */
        const float error = points_error(u, &group);
        if (k > 0 && !(error < least)) continue;
        least = error;
        memcpy(code, group.c, sizeof group.c);
    }
}

/* A group of sixteen rows, in lane order. x: wanted values. A step of 0 leaves codes as they are. */
typedef struct points_lanes {
    const float *x, *step, *inverse; /* x: [8][16] */
    const int *shift;
    float *code, *value; /* [8][16] */
} points_lanes;

POINTS_INLINE void points_all(const points_search *p, const points_lanes *l)
{
    for (int v = 0; v < APR_LANES; v++) {
        float u[POINTS], code[POINTS] = {0.0f};
        for (int k = 0; k < POINTS; k++) u[k] = l->x[k * APR_LANES + v] * l->inverse[v];
        if (l->inverse[v] == 0.0f)
            for (int k = 0; k < POINTS; k++) code[k] = l->code[k * APR_LANES + v];
        else points_nearest(p, u, l->shift[v], code);
        for (int k = 0; k < POINTS; k++) {
            l->code[k * APR_LANES + v] = code[k];
            l->value[k * APR_LANES + v] = l->step[v] * code[k];
        }
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void points_all_avx2(const points_search *p, const points_lanes *l) { points_all(p, l); }
static inline void points_of_lanes(const points_search *p, const points_lanes *l)
{
    if (__builtin_cpu_supports("avx2")) points_all_avx2(p, l);
    else points_all(p, l);
}
#else
static inline void points_of_lanes(const points_search *p, const points_lanes *l) { points_all(p, l); }
#endif

#endif
