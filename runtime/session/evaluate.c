/* evaluate.c - perplexity over windows of a text. */
#include "runtime/session/evaluate.h"

#include <math.h>

double apr_nll(const float *logits, int64_t vocab_size, int32_t id)
{
    float largest = logits[0];
    double sum = 0.0;

    for (int64_t i = 1; i < vocab_size; i++) largest = fmaxf(largest, logits[i]);
    for (int64_t i = 0; i < vocab_size; i++) sum += exp((double)(logits[i] - largest));
    return log(sum) - (double)(logits[id] - largest);
}

typedef struct window_score {
    const int32_t *ids; /* [n] of the window */
    int64_t n, vocab_size;
    double nll;
} window_score;

/* Row i is the prediction of token first + i + 1. */
static apr_status score_rows(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    window_score *const w = user;
    (void)err;
    for (int64_t i = 0; i < n_rows && first + i + 1 < w->n; i++)
        w->nll += apr_nll(logits + i * w->vocab_size, w->vocab_size, w->ids[first + i + 1]);
    return APR_OK;
}

apr_status apr_evaluate_perplexity(apr_session *session, const int32_t *ids, size_t n_ids, int64_t window,
                                   void (*on_window)(void *user, int64_t n_done, int64_t n_windows), void *user, apr_perplexity *result,
                                   apr_error *err)
{
    const int64_t n_ctx = apr_session_plan(session)->n_ctx;
    double nll = 0.0;

    *result = (apr_perplexity){0};
    if (window < 2 || window > n_ctx)
        return apr_fail(err, APR_E_USAGE, "windows of %lld tokens: a window has at least 2 tokens and at most the context's %lld",
                        (long long)window, (long long)n_ctx);
    if (n_ids < (size_t)window)
        return apr_fail(err, APR_E_USAGE, "the text has %zu tokens, less than one window of %lld", n_ids, (long long)window);
    const int64_t n_windows = (int64_t)(n_ids / (size_t)window);
    for (int64_t i = 0; i < n_windows; i++) {
        window_score w = {.ids = ids + i * window, .n = window, .vocab_size = apr_session_program(session)->vocab_size};
        const apr_eval_output out = {.all_logits = true, .on_logits = score_rows, .user = &w};
        apr_session_reset(session);
        APR_TRY(apr_session_eval(session, w.ids, (size_t)window, &out, err));
        nll += w.nll;
        if (on_window != NULL) on_window(user, i + 1, n_windows);
    }
    result->n_windows = n_windows;
    result->n_scored = n_windows * (window - 1);
    result->nll_per_token = nll / (double)result->n_scored;
    result->perplexity = exp(result->nll_per_token);
    return APR_OK;
}
