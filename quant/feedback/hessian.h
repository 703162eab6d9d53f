/* quant/feedback/hessian.h - the Hessian of a linear operation from its inputs, and its factors for error feedback.
 *
 * For outputs y = W x, the squared error of all tokens together is tr(E H E^T), E = W - W', H = sum of x x^T. A Hessian is filled token
 * by token (float64), and then prepared once for all matrices that read the same inputs:
 *
 *     H / mean(diagonal) + damping * I      so that errors in unseen directions also count
 *     order: columns by descending diagonal fixed: the scales of blocks do not depend on it
 *     H in that order = R R^T, R upper      then the error is |E R|^2, and number k of a row of E R is
 *                                           R_kk (e_k + sum over j < k: e_j R_jk / R_kk)
 *
 * So a row is rounded column by column in that order, and the sum is added to each weight before it is rounded. `pull` holds
 * the factors R_jk / R_kk of that sum. No inverse is computed.
 *
 * Types with codebooks choose eight columns at once. For them the order is of groups of columns: by the descending sum of their diagonals,
 * the columns of a group in natural order. */
#ifndef APR_QUANT_HESSIAN_H
#define APR_QUANT_HESSIAN_H

#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct apr_hessian {
    int64_t n;        /* inputs */
    int64_t n_tokens; /* added so far */
    double *sum;      /* [n, n]; the lower triangle and the diagonal are filled */
} apr_hessian;

apr_status apr_hessian_open(apr_hessian *hessian, int64_t n, apr_error *err);
void apr_hessian_close(apr_hessian *hessian); /* zeroed is fine */

/* Adds x x^T for each row of x [n_tokens, n]. Uses all cores; the sums do not depend on their number. */
void apr_hessian_add(apr_hessian *hessian, const float *x, int64_t n_tokens);

/* Adds w x x^T for each row of x, with its weight of [n_tokens]. Where all weights are 1, these are the sums of apr_hessian_add. */
apr_status apr_hessian_add_weighted(apr_hessian *hessian, const float *x, const float *weights, int64_t n_tokens, apr_error *err);

/* True if all inputs were zero. */
bool apr_hessian_is_empty(const apr_hessian *hessian);

typedef struct apr_feedback {
    int64_t n;
    float *h;        /* [n, n], both triangles, damped */
    float *pull;     /* [n, n] row k, for column order[k]: factors of the errors of columns order[j], j < k; the rest is unused */
    float *diagonal; /* [n] diagonal of h: the importance of columns for encoders */
    float *pivot;    /* [n] R_kk */
    int32_t *order;  /* [n] */
    int group;       /* columns that stay together in the order */
    double damping;  /* the damping that was needed */
} apr_feedback;

typedef struct apr_feedback_options {
    double damping;     /* relative to the mean of the diagonal; 0: APR_FEEDBACK_DAMPING */
    int rounds;         /* rounds of descent and refit; 0: APR_FEEDBACK_ROUNDS, negative: none */
    int group;          /* columns that stay together in the order, a divisor of n; 0: 1 (apr_feedback_group) */
    bool keeps_columns; /* natural order instead of descending diagonal, for comparisons */
} apr_feedback_options;

#define APR_FEEDBACK_DAMPING 0.01
enum { APR_FEEDBACK_ROUNDS = 4, APR_FEEDBACK_TRIES = 12 /* TRIES: damping is multiplied by four until the factorization succeeds */ };

/* APR_E_DAMAGED: H has a number that is not finite (`what` names the layer), or cannot be factorized with any damping. */
apr_status apr_feedback_prepare(apr_feedback *feedback, const apr_hessian *hessian, const apr_feedback_options *options, const char *what,
                                apr_error *err);
void apr_feedback_close(apr_feedback *feedback); /* zeroed is fine */

/* Sorts groups of columns by the descending sum of their weights; equal ones, and the columns of a group, keep their order. */
apr_status apr_feedback_order(const double *weights, int64_t n, int group, bool keeps_columns, int32_t *order, apr_error *err);
/* Reports a sum of columns i and j that is not finite; returns APR_E_DAMAGED. */
apr_status apr_hessian_not_finite(const char *what, int64_t i, int64_t j, apr_error *err);

/* Bytes of heap for n inputs: while tokens are added, and while they are prepared. */
uint64_t apr_hessian_bytes(int64_t n);
uint64_t apr_feedback_bytes(int64_t n);

#endif
