/* runtime/session/evaluate.h - perplexity of a text. */
#ifndef APR_RUNTIME_EVALUATE_H
#define APR_RUNTIME_EVALUATE_H

#include "runtime/session/session.h"

typedef struct apr_perplexity {
    int64_t n_windows, n_scored;
    double nll_per_token; /* natural logarithm */
    double perplexity;    /* exp(nll_per_token) */
} apr_perplexity;

/* Evaluates windows of `window` tokens that do not overlap. A last short window is dropped and nothing is prepended. Every token of a
 * window except its first is scored. Resets the session. APR_E_USAGE: the text is shorter than a window, or a window is longer than the
 * context or shorter than 2. on_window may be NULL; it is called after each window. */
apr_status apr_evaluate_perplexity(apr_session *session, const int32_t *ids, size_t n_ids, int64_t window,
                                   void (*on_window)(void *user, int64_t n_done, int64_t n_windows), void *user, apr_perplexity *result,
                                   apr_error *err);

/* -log of the probability that a row of logits gives to id, summed in double. */
double apr_nll(const float *logits, int64_t vocab_size, int32_t id);

#endif
