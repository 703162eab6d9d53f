/* iq_encode.c - encoders of IQ1, IQ2 and IQ3: the definition, with plain loops (the search: iq_search.h). */
#include "kernels/ref/codecs.h"
#include "kernels/ref/iq_book.h"
#include "kernels/ref/iq_types.h"

#define IQ_INLINE static inline
#define IQ_SCOPE
#define IQ_NAME(name) apr_ref_encode_##name

/* x: the values, or where these have signs their magnitudes; wx: weights times x. Returns which are below 0, one bit each. */
static inline unsigned iq_load_group(const float *src, const float *w, float limit, bool has_signs, float *x, float *wx)
{
    unsigned minus = 0;
    for (int i = 0; i < 8; i++) {
        const float value = apr_clamp_finite(src[i], limit);
        x[i] = has_signs && value < 0.0f ? -value : value;
        wx[i] = w[i] * x[i];
        minus |= (unsigned)(value < 0.0f) << i;
    }
    return minus;
}

/* The level nearest to each of eight values, as digits of the cell of one point or of two. */
static inline void iq_cell(const float *x, float s, const float *boundary, int n_levels, int *cell)
{
    const int n = n_levels == 8 ? 4 : 8;
    for (int h = 0; h < 8 / n; h++) {
        cell[h] = 0;
        for (int i = n - 1; i >= 0; i--) {
            int level = 0;
            for (int l = 0; l < n_levels - 1; l++) level += x[n * h + i] > s * boundary[l];
            cell[h] = cell[h] * n_levels + level;
        }
    }
}

typedef struct iq_error_table {
    float of[8][8]; /* [value][level] */
} iq_error_table;

static inline void iq_errors(const iq_type *t, const float *x, const float *w, float s, const float *level, iq_error_table *errors)
{
    (void)t;
    for (int i = 0; i < 8; i++)
        for (int l = 0; l < 8; l++) {
            const float e = x[i] - s * level[l];
            errors->of[i][l] = w[i] * (e * e);
        }
}

static inline void iq_turn_errors(const iq_type *t, const float *x, const float *w, float s, int i, iq_error_table *errors)
{
    for (int l = 0; l < 8; l++) {
        const float e = x[i] + s * t->level[0][l];
        errors->of[i][l] = w[i] * (e * e);
    }
}

/* The error of a point is the sum of its values' errors, in pairs. Of equal ones the first is kept. */
static inline unsigned iq_best_of_list(const uint16_t *list, int n, const iq_error_table *errors, int n_values, int h, float *least)
{
    const float(*const error)[8] = errors->of + n_values * h;
    unsigned best = 0;
    *least = FLT_MAX;
    for (int k = 0; k < n; k++) {
        const unsigned word = list[k];
        float at;
        if (n_values == 8)
            at = ((error[0][word & 3] + error[1][word >> 2 & 3]) + (error[2][word >> 4 & 3] + error[3][word >> 6 & 3])) +
                 ((error[4][word >> 8 & 3] + error[5][word >> 10 & 3]) + (error[6][word >> 12 & 3] + error[7][word >> 14]));
        else at = (error[0][word & 7] + error[1][word >> 4 & 7]) + (error[2][word >> 8 & 7] + error[3][word >> 12 & 7]);
        if (at < *least || k == 0) *least = at, best = word;
    }
    return best;
}

static inline void iq_find_points(const iq_type *t, const apr_iq_book *book, const int *cell, const iq_error_table *errors, uint16_t *word,
                                  float *least)
{
    for (int h = 0; h < 8 / t->n_values; h++) {
        const uint32_t first = book->first[cell[h]];
        const int n = (int)(book->first[cell[h] + 1] - first);
        word[h] = (uint16_t)iq_best_of_list(book->list + first, n, errors, t->n_values, h, &least[h]);
    }
}

/* The error of each of eight values at its nearest level, and how much more it is with the sign turned: then the lowest level, on the
 * other side of 0, is the nearest. */
static inline void iq_price_signs(const iq_type *t, const float *x, const float *w, float s, float *nearest, float *price)
{
    for (int i = 0; i < 8; i++) nearest[i] = FLT_MAX;
    for (int l = 0; l < t->n_levels; l++) {
        const float value = s * t->level[0][l];
        for (int i = 0; i < 8; i++) {
            const float e = x[i] - value, at = w[i] * (e * e);
            nearest[i] = at < nearest[i] ? at : nearest[i];
        }
    }
    const float value = s * t->level[0][0];
    for (int i = 0; i < 8; i++) {
        const float e = x[i] + value;
        price[i] = w[i] * (e * e) - nearest[i];
    }
}

/* Adds one number to the first four, another to the others. */
static inline void iq_raise(float *v, float first, float second)
{
    for (int i = 0; i < 8; i++) v[i] += i < 4 ? first : second;
}

static inline int iq_first_least(const float *v)
{
    int least = 0;
    for (int i = 1; i < 8; i++)
        if (v[i] < v[least]) least = i;
    return least;
}

static inline unsigned iq_below(const float *v, float limit)
{
    unsigned below = 0;
    for (int i = 0; i < 8; i++) below |= (unsigned)(v[i] < limit) << i;
    return below;
}

typedef struct iq_eight {
    float of[8];
} iq_eight;

static inline void iq_values(const uint16_t *word, const float *level, int n_values, iq_eight *v)
{
    if (n_values == 8)
        for (int i = 0; i < 8; i++) v->of[i] = level[word[0] >> 2 * i & 3];
    else
        for (int i = 0; i < 8; i++) v->of[i] = level[word[i / 4] >> i % 4 * 4 & 7];
}

/* Turning the sign of value i costs 4 * w * x * v: the cheapest. */
static inline int iq_least_product(const float *x, const float *w, const iq_eight *v)
{
    float product[8];
    for (int i = 0; i < 8; i++) product[i] = w[i] * x[i] * v->of[i];
    return iq_first_least(product);
}

static inline void iq_turn_value(iq_eight *v, int i, bool is_turned)
{
    if (is_turned) v->of[i] = -v->of[i];
}

static inline void iq_add_products(const float *wx, const float *w, const iq_eight *v, iq_eight *a, iq_eight *b)
{
    for (int i = 0; i < 8; i++) {
        a->of[i] += wx[i] * v->of[i];
        b->of[i] += w[i] * (v->of[i] * v->of[i]);
    }
}

static inline float iq_sum(const iq_eight *a) { return apr_sum8(a->of); }

#include "kernels/ref/iq_encode.h"

IQ_ENCODERS
