/* quant/feedback/hessian.h - what the inputs of a linear operation say about it, and what error feedback makes of that.
 *
 * For outputs y = W x, the squared error of all tokens together is tr(E H E^T), E = W - W', H = sum of x x^T. A Hessian is filled token
 * by token (float64), and then prepared once for all matrices that read the same inputs:
 *
 *     H / mean(diagonal) + damping * I      so that directions that no token showed are not for nothing
 *     order: columns by falling diagonal    static: scales of blocks do not depend on it
 *     H in that order = R R^T, R upper      then the error is |E R|^2, and number k of a row of E R is
 *                                           R_kk (e_k + sum over j < k: e_j R_jk / R_kk)
 *
 * So a row is rounded column by column in that order, each time with the sum added to its weight: that is all the feedback there is, and
 * `pull` holds its factors. No inverse is ever made. */
#ifndef APR_QUANT_HESSIAN_H
#define APR_QUANT_HESSIAN_H

#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct apr_hessian {
    int64_t n;        /* inputs */
    int64_t n_tokens; /* seen */
    double *sum;      /* [n, n]; the lower triangle and the diagonal are filled */
} apr_hessian;

apr_status apr_hessian_open(apr_hessian *hessian, int64_t n, apr_error *err);
void apr_hessian_close(apr_hessian *hessian); /* zeroed is fine */

/* Adds x x^T of each row of x [n_tokens, n]. All cores; the sums do not depend on how many there are. */
void apr_hessian_add(apr_hessian *hessian, const float *x, int64_t n_tokens);

/* Has any token brought anything but zeros? */
bool apr_hessian_is_empty(const apr_hessian *hessian);

typedef struct apr_feedback {
    int64_t n;
    float *h;        /* [n, n], whole, damped */
    float *pull;     /* [n, n]: of column order[k], the factors of the errors of order[j], j < k; the rest is not read */
    float *diagonal; /* [n] of h: importance of columns, for encoders */
    int32_t *order;  /* [n] */
    double damping;  /* what it took */
} apr_feedback;

typedef struct apr_feedback_options {
    double damping;     /* of the mean of the diagonal; 0: APR_FEEDBACK_DAMPING */
    int rounds;         /* of descent and refit; 0: APR_FEEDBACK_ROUNDS, negative: none */
    bool keeps_columns; /* natural order instead of by falling diagonal: for comparisons */
} apr_feedback_options;

#define APR_FEEDBACK_DAMPING 0.01
enum { APR_FEEDBACK_ROUNDS = 4, APR_FEEDBACK_TRIES = 12 /* of damping, four times as much each time, until there are factors */ };

/* APR_E_DAMAGED: H has a number that is none (`what` names whose it is). Damping grows until the factors exist. */
apr_status apr_feedback_prepare(apr_feedback *feedback, const apr_hessian *hessian, const apr_feedback_options *options, const char *what,
                                apr_error *err);
void apr_feedback_close(apr_feedback *feedback); /* zeroed is fine */

/* Columns by falling weight, the first of equals first. */
apr_status apr_feedback_order(const double *weights, int64_t n, bool keeps_columns, int32_t *order, apr_error *err);
/* The sentence for a sum of columns i and j that is no number; APR_E_DAMAGED. */
apr_status apr_hessian_not_finite(const char *what, int64_t i, int64_t j, apr_error *err);

/* Bytes of heap that n inputs take: while tokens are added, and while they are prepared. */
uint64_t apr_hessian_bytes(int64_t n);
uint64_t apr_feedback_bytes(int64_t n);

#endif
