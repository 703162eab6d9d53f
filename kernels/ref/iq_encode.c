/* iq_encode.c - encoders of IQ1, IQ2 and IQ3: the definition, with plain loops (the search: iq_search.h). */
#include "kernels/ref/codecs.h"
#include "kernels/ref/iq_book.h"

#define IQ_INLINE static inline
#define IQ_SCOPE
#define IQ_NAME(name) apr_ref_encode_##name

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

static inline void iq_errors(const float *x, const float *w, float s, const float *level, float (*error)[8])
{
    for (int i = 0; i < 8; i++)
        for (int l = 0; l < 8; l++) {
            const float e = x[i] - s * level[l];
            error[i][l] = w[i] * (e * e);
        }
}

/* The error of a point is the sum of its values' errors, in pairs. Of equal ones the first is kept. */
static inline unsigned iq_best_of_list(const uint16_t *list, int n, float (*error)[8], int n_values, float *least)
{
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

static inline void iq_values(const uint16_t *word, const float *level, int n_values, float *v)
{
    if (n_values == 8)
        for (int i = 0; i < 8; i++) v[i] = level[word[0] >> 2 * i & 3];
    else
        for (int i = 0; i < 8; i++) v[i] = level[word[i / 4] >> i % 4 * 4 & 7];
}

#include "kernels/ref/iq_encode.h"

IQ_ENCODERS
