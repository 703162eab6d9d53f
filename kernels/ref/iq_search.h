/* iq_search.h - the search of the IQ types' encoders: scales, points, signs and shifts of a block of 256.
 *
 * One source for the reference and for the host's SIMD levels, so that all give the same bytes. Who includes it has defined, before:
 *
 *   IQ_INLINE          how small functions are declared
 *   iq_load_group      a group's values and signs
 *   iq_cell            the cell of a group's values at a scale
 *   iq_error_table     the weighted squared error of each of a group's values at each level, arranged for lookups
 *   iq_errors          makes it
 *   iq_turn_errors     changes it to that with the sign of one value turned
 *   iq_best_of_list    the point of least error in a list
 *   iq_find_points     the best points of a group
 *   iq_price_signs     what turning signs costs
 *   iq_raise           adds to eight numbers
 *   iq_first_least     the first of the least of eight numbers
 *   iq_below           which of eight numbers are below a limit, one bit each
 *   iq_eight           eight numbers: levels, or sums
 *   iq_values          the levels of a group's points
 *   iq_least_product   the sign that is cheapest to turn, once the points are chosen
 *   iq_turn_value      turns the sign of one of eight levels
 *   iq_add_products    adds to the sums a and b (see below)
 *   iq_sum             of eight numbers, as apr_sum8
 *
 * For given scales the points, signs and shifts are the best of all (iq_book.h). A group is eight values: one point of eight, or two of
 * four. The steps for a block:
 *
 *   1. For each sub-block, trial scales, each followed by the least-squares scale for its points: the sums a (of w * x * v) and b (of
 *      w * v * v, v the points' levels) give the squared error of these points at every other scale s too: s * (s * b - 2 * a), but for
 *      a constant. The best scale is tried again.
 *   2. For each of a row of candidates of d, the error of the block with the best of these points at two stored scales of each sub-block.
 *   3. With the best d, the points for the stored scales are found anew, and d is fitted to them. This is repeated while it helps. */
#ifndef APR_KERNELS_REF_IQ_SEARCH_H
#define APR_KERNELS_REF_IQ_SEARCH_H

#include "kernels/ref/iq_types.h"

/* A value's magnitude (or the value, where levels have signs), its weight, and weight times value. minus: bit i of byte g is the sign
 * of value i of group g. */
typedef struct iq_input {
    float x[IQ_ELEMS], w[IQ_ELEMS], wx[IQ_ELEMS];
    uint8_t minus[IQ_ELEMS / 8];
} iq_input;

/* Points of a sub-block, and their sums. */
typedef struct iq_fit {
    float a, b;
    iq_group group[IQ_GROUPS];
} iq_fit;

/* What is known of a sub-block: the sums of points found so far, and the best scale of all. */
typedef struct iq_sub {
    float a[IQ_FITS], b[IQ_FITS];
    float scale, gain;
    int n;
} iq_sub;

/* ---- points of a group ---- */

/* Point h of the group. */
IQ_INLINE unsigned iq_best_in_cell(const iq_type *t, const apr_iq_book *book, int cell, const iq_error_table *errors, int h, float *least)
{
    const uint32_t first = book->first[cell];
    return iq_best_of_list(book->list + first, (int)(book->first[cell + 1] - first), errors, t->n_values, h, least);
}

/* The best point, and its error, if the sign of value i of the group is turned. */
IQ_INLINE unsigned iq_best_with_turned(const iq_type *t, const apr_iq_book *book, const float *x, const float *w, float s, int i, int cell,
                                       const iq_error_table *errors, float *least)
{
    static const int power[8] = {1, 3, 9, 27, 81, 243, 729, 2187};
    iq_error_table turned = *errors;

    iq_turn_errors(t, x, w, s, i, &turned);
    if (t->n_levels == 8) cell &= ~(7 << i % 4 * 3); /* the value's digit of the cell becomes 0 */
    else
        for (int l = 0; l < 2; l++) cell -= x[i] > s * t->boundary[0][l] ? power[i] : 0;
    return iq_best_in_cell(t, book, cell, &turned, i / t->n_values, least);
}

/* The best points if the sign of one value must be turned. Returns which value's. One is left out if the error of the nearest levels with
 * its price is at least what was found. */
IQ_INLINE int iq_turn_a_sign(const iq_type *t, const apr_iq_book *book, const float *x, const float *w, float s, const int *cell,
                             const iq_error_table *errors, uint16_t *word)
{
    const int n = t->n_values;
    float other[2] = {0.0f, 0.0f}, low[2] = {0.0f, 0.0f}, nearest[8], bound[8], least = FLT_MAX;
    int best = 0;
    unsigned best_word = 0;

    if (n == 4) {
        float as_is[2];
        iq_find_points(t, book, cell, errors, word, as_is);
        for (int h = 0; h < 2; h++) other[h] = as_is[1 - h];
    }
    iq_price_signs(t, x, w, s, nearest, bound);
    for (int i = 0; i < 8; i++) low[i / n] += nearest[i];
    iq_raise(bound, low[0] + other[0], low[7 / n] + other[7 / n]);
    for (unsigned left = 0xff, next = 1u << iq_first_least(bound); next != 0; next = left & -left) {
        const int i = __builtin_ctz(next);
        float at;
        const unsigned found = iq_best_with_turned(t, book, x, w, s, i, cell[i / n], errors, &at);
        if (at + other[i / n] < least) least = at + other[i / n], best = i, best_word = found;
        left &= ~next & iq_below(bound, least);
    }
    word[best / n] = (uint16_t)best_word;
    return best;
}

/* All are alone in their cells, so that no errors are needed. */
IQ_INLINE bool iq_on_points(const iq_type *t, const apr_iq_book *book, const int *cell, uint16_t *word)
{
    for (int h = 0; h < 8 / t->n_values; h++) {
        const uint32_t first = book->first[cell[h]];
        if (book->first[cell[h] + 1] - first > 1) return false;
        word[h] = book->list[first];
    }
    return true;
}

/* The best points with signs for eight values, and their levels, with a sign where it is not the value's. In a trial the sign to turn is
 * chosen after the points: that of the least product. */
IQ_INLINE void iq_fit_signed(const iq_type *t, const apr_iq_book *book, const float *x, const float *w, unsigned minus, float s,
                             bool is_trial, iq_group *g, iq_eight *v)
{
    const bool is_odd = t->signs == IQ_EVEN_SIGNS && __builtin_parity(minus);
    iq_error_table errors;
    uint16_t word[2] = {0, 0};
    int cell[2], turned = 0;

    iq_cell(x, s, t->boundary[0], t->n_levels, cell);
    if ((is_odd && !is_trial) || !iq_on_points(t, book, cell, word)) {
        float least[2];
        iq_errors(t, x, w, s, t->level[0], &errors);
        if (is_odd && !is_trial) turned = iq_turn_a_sign(t, book, x, w, s, cell, &errors, word);
        else iq_find_points(t, book, cell, &errors, word, least);
    }
    iq_values(word, t->level[0], t->n_values, v);
    if (t->signs == IQ_EVEN_SIGNS && is_trial) turned = iq_least_product(x, w, v);
    if (t->signs == IQ_EVEN_SIGNS) iq_turn_value(v, turned, is_odd);
    g->word[0] = word[0];
    g->word[1] = word[1];
    g->bits = (uint8_t)(minus ^ (unsigned)is_odd << turned);
}

/* The same with shifted levels, which have signs. shift: -1 for the better of both. */
IQ_INLINE void iq_fit_shifted(const iq_type *t, const apr_iq_book *book, const float *x, const float *w, int shift, float s, iq_group *g,
                              iq_eight *v)
{
    float least = FLT_MAX;
    for (int k = shift < 0 ? 0 : shift; k <= (shift < 0 ? 1 : shift); k++) {
        float at = 0.0f;
        iq_error_table errors;
        uint16_t word[2];
        int cell[2];
        iq_cell(x, s, t->boundary[k], t->n_levels, cell);
        if (shift < 0 || !iq_on_points(t, book, cell, word)) {
            iq_errors(t, x, w, s, t->level[k], &errors);
            iq_find_points(t, book, cell, &errors, word, &at);
        }
        if (at < least) least = at, g->word[0] = word[0], g->bits = (uint8_t)k;
    }
    iq_values(g->word, t->level[g->bits], t->n_values, v);
}

/* ---- scales of a sub-block ---- */

/* The best points for sub-block `sub` at a scale. */
IQ_INLINE void iq_fit_sub(const iq_type *t, const apr_iq_book *book, const iq_input *in, int sub, int shift, float s, bool is_trial,
                          iq_fit *fit)
{
    iq_eight a, b;

    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    for (int g = 0; g < t->sub_elems / 8; g++) {
        const int at = sub * t->sub_elems + 8 * g;
        iq_eight v;
        if (t->signs == IQ_FREE_SIGNS || t->signs == IQ_EVEN_SIGNS)
            iq_fit_signed(t, book, in->x + at, in->w + at, in->minus[at / 8], s, is_trial, &fit->group[g], &v);
        else iq_fit_shifted(t, book, in->x + at, in->w + at, t->signs == IQ_SHIFTED_SUBS ? shift : -1, s, &fit->group[g], &v);
        iq_add_products(in->wx + at, in->w + at, &v, &a, &b);
    }
    fit->a = iq_sum(&a);
    fit->b = iq_sum(&b);
}

IQ_INLINE int iq_shifts(const iq_type *t) { return t->signs == IQ_SHIFTED_SUBS ? 2 : 1; }

/* Adds the sums of points, and keeps their least-squares scale if it is the best. */
static void iq_add_fit(iq_sub *sub, float a, float b)
{
    if (!(a > 0.0f && b > 0.0f)) return;
    const float scale = a / b, gain = a * scale;
    sub->a[sub->n] = a;
    sub->b[sub->n++] = b;
    if (gain > sub->gain) sub->gain = gain, sub->scale = scale;
}

IQ_INLINE void iq_try_scale(const iq_type *t, const apr_iq_book *book, const iq_input *in, int sub, float s, iq_sub *known)
{
    for (int shift = 0; shift < iq_shifts(t); shift++) {
        iq_fit fit;
        iq_fit_sub(t, book, in, sub, shift, s, true, &fit);
        iq_add_fit(known, fit.a, fit.b);
    }
}

/* Step 1. */
IQ_INLINE void iq_search_sub(const iq_type *t, const apr_iq_book *book, const iq_input *in, int sub, iq_sub *known)
{
    float most = 0.0f;
    *known = (iq_sub){.n = 0};
    for (int i = sub * t->sub_elems; i < (sub + 1) * t->sub_elems; i++) {
        const float magnitude = in->x[i] < 0.0f ? -in->x[i] : in->x[i];
        most = magnitude > most ? magnitude : most;
    }
    if (!(most > 0x1p-40f)) return;
    for (int k = 0; k < t->trials; k++) iq_try_scale(t, book, in, sub, iq_trial_scale(t, most, k), known);
    if (known->n > 0) iq_try_scale(t, book, in, sub, known->scale, known);
}

/* ---- scales of a block ---- */

/* Step 2: adds a sub-block's error to the errors of all candidates. */
static void iq_add_errors(const iq_type *t, const iq_sub *known, const float *d, float *error)
{
    float scale[2][IQ_CANDIDATES], least[IQ_CANDIDATES];
    for (int j = 0; j < IQ_CANDIDATES; j++) {
        const float below = iq_stored_below(t, known->scale, d[j]);
        scale[0][j] = iq_scale(t, d[j], below);
        scale[1][j] = iq_scale(t, d[j], below + 1.0f);
        least[j] = FLT_MAX;
    }
    for (int k = 0; k < known->n; k++) {
        const float a = 2.0f * known->a[k], b = known->b[k];
        for (int side = 0; side < 2; side++)
            for (int j = 0; j < IQ_CANDIDATES; j++) {
                const float s = scale[side][j], at = s * (s * b - a);
                least[j] = at < least[j] ? at : least[j];
            }
    }
    for (int j = 0; j < IQ_CANDIDATES; j++) error[j] += least[j];
}

/* The best candidate for d. */
static uint16_t iq_best_candidate(const iq_type *t, const iq_sub *known, int n_subs)
{
    float largest = 0.0f, d[IQ_CANDIDATES], error[IQ_CANDIDATES] = {0.0f};
    uint16_t half[IQ_CANDIDATES];
    int best = 0;

    for (int sub = 0; sub < n_subs; sub++) largest = known[sub].scale > largest ? known[sub].scale : largest;
    for (int j = 0; j < IQ_CANDIDATES; j++) {
        half[j] = iq_candidate(t, largest, j);
        d[j] = apr_f16_to_f32(half[j]);
    }
    if (!(largest > 0.0f)) return 0;
    for (int sub = 0; sub < n_subs; sub++)
        if (known[sub].n > 0) iq_add_errors(t, &known[sub], d, error);
    for (int j = 1; j < IQ_CANDIDATES; j++)
        if (error[j] < error[best]) best = j;
    return half[best];
}

/* Step 3 for a sub-block: the better of two stored scales and all points for them. */
IQ_INLINE void iq_choose_scale(const iq_type *t, const apr_iq_book *book, const iq_input *in, int sub, const iq_sub *known, float d,
                               iq_block *block, float sums[2])
{
    const float below = iq_stored_below(t, known->scale, d);
    float least = FLT_MAX, a = 0.0f, b = 0.0f;
    for (int side = 0; side < 2; side++)
        for (int shift = 0; shift < iq_shifts(t); shift++) {
            const float stored = below + (float)side, s = iq_scale(t, d, stored);
            iq_fit fit;
            iq_fit_sub(t, book, in, sub, shift, s, false, &fit);
            const float error = s * (s * fit.b - 2.0f * fit.a), m = iq_multiplier(t, stored) * t->factor;
            if (!(error < least)) continue;
            least = error;
            a = m * fit.a;
            b = m * m * fit.b;
            block->stored[sub] = (uint8_t)stored;
            memcpy(block->group + sub * t->sub_elems / 8, fit.group, sizeof *fit.group * (size_t)(t->sub_elems / 8));
        }
    block->error += least;
    sums[0] += a;
    sums[1] += b;
}

IQ_INLINE void iq_search_block(const iq_type *t, const apr_iq_book *book, const iq_input *in, iq_block *best)
{
    const int n_subs = IQ_ELEMS / t->sub_elems;
    iq_sub known[IQ_MAX_SUBS];
    iq_block now;

    memset(best, 0, sizeof *best); /* zeros */
    for (int sub = 0; sub < n_subs; sub++) iq_search_sub(t, book, in, sub, &known[sub]);
    now.d = iq_best_candidate(t, known, n_subs);
    for (int round = 0; round < IQ_ROUNDS && now.d != 0; round++) {
        float sums[2] = {0.0f, 0.0f};
        now.error = 0.0f;
        for (int sub = 0; sub < n_subs; sub++) iq_choose_scale(t, book, in, sub, &known[sub], apr_f16_to_f32(now.d), &now, sums);
        if (!(now.error < best->error)) break;
        *best = now;
        now.d = sums[0] > 0.0f ? iq_stored_scale(sums[0] / sums[1]) : 0;
        if (now.d == best->d) break;
    }
}

#endif
