/* runtime/compare.h - two models on the same text: how far the distributions of the next token are apart, and how far they
 * may be for the types that the weights were brought to.
 *
 * The divergence of a row is KL(truth || other) = sum p (log p - log q), in nats, of float32 logits, summed in double: nothing
 * is clipped, equal rows give 0. */
#ifndef APR_RUNTIME_COMPARE_H
#define APR_RUNTIME_COMPARE_H

#include "runtime/session.h"

typedef struct apr_row_difference {
    double kl;                   /* >= 0; NaN when a logit is not finite */
    double nll_truth, nll_other; /* of the token that came; 0 when next is -1 */
    bool same_top;               /* both like the same token best */
} apr_row_difference;

/* next: the token that came after, or -1 when there is none. */
apr_row_difference apr_compare_logits(const float *truth, const float *other, int64_t vocab_size, int32_t next);

typedef struct apr_divergence {
    int64_t n_rows;                    /* positions compared: all of each window */
    int64_t n_scored;                  /* of them, those with a next token */
    int64_t window;                    /* tokens of a window */
    double mean, median, p99, largest; /* KL */
    double second_half;                /* mean KL over the second half of each window, as llama-perplexity scores */
    double same_top, second_half_top;  /* fractions */
    double perplexity_truth, perplexity_other;
    int64_t largest_at; /* position of `largest` in the text; the first that is not finite, if any */
    float *kl;          /* [n_rows] by position */
} apr_divergence;

/* What n rows come to. rows[i] is position i; windows are `window` long, the last may be shorter. kl is malloc'ed. */
apr_status apr_divergence_of(apr_divergence *d, const apr_row_difference *rows, int64_t n_rows, int64_t window, apr_error *err);
void apr_divergence_close(apr_divergence *d);

/* Evaluates both on the ids, in windows that begin from nothing (window <= both contexts; the last one may be shorter), and
 * compares every position's logits. Resets both sessions. on_rows may be NULL. */
apr_status apr_compare_models(apr_session *truth, apr_session *other, const int32_t *ids, int64_t n_ids, int64_t window,
                              void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence *d, apr_error *err);

/* --- tensors --- */

typedef struct apr_tensor_scan {
    int64_t n_nonfinite, first_nonfinite; /* NaN and infinities; index of the first, -1: none */
    bool all_zero;                        /* no number but 0 (an empty tensor is not) */
    /* against the reference's tensor, 0 without one: root of sum (truth - other)^2 / sum truth^2 of all, and of the worst row (a
     * vector is one row; a row's own size counts as a hundredth of the average at least) */
    double relative, worst_row;
    int64_t worst_row_at; /* -1: none differs */
} apr_tensor_scan;

/* Decodes all of it. truth may be NULL; otherwise it has the same shape (APR_E_NO). APR_E_UNSUPPORTED for a type that cannot
 * be decoded. */
apr_status apr_scan_tensor(const apr_tensor *tensor, const apr_tensor *truth, apr_tensor_scan *scan, apr_error *err);

/* --- how much is too much --- */

/* What the weights' worst type may cost. Models of a few million parameters lose more than large ones: the bounds are about
 * three times what good encoders reach on those, and far below what one damaged tensor does. */
typedef struct apr_allowance {
    const char *type;  /* "q4_k", or "same": every weight has the bits of the reference */
    double kl;         /* mean KL divergence */
    double same_top;   /* fraction, at least */
    double op_error;   /* relative error of one linear operation from the same input, and of a tensor */
    double row_error;  /* relative error of one row of weights: one that was zeroed or moved has 1 or more */
    double perplexity; /* ratio to the reference's, at most */
} apr_allowance;

/* For weights of that type that were made from something better. */
apr_allowance apr_allowance_of(apr_dtype dtype);
/* Nothing changed: the same numbers on the same backend. */
extern const apr_allowance apr_allowance_same;

/* The allowance for `other`, made from `truth` (both canonical): that of the most lossy type among the matrices that have not
 * the type they have in `truth`, if it has 2 % of the parameters of all matrices at least. Names that are missing in `truth` count as
 * changed. */
apr_allowance apr_allowance_for(const apr_model *truth, const apr_model *other);

#endif
