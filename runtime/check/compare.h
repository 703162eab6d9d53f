/* runtime/check/compare.h - two models on the same text: how far the distributions of the next token are apart, and how far they
 * may be.
 *
 * The divergence of a row is KL(truth || other) = sum p (log p - log q), in nats, of float32 logits, summed in double: nothing
 * is clipped, equal rows give 0. */
#ifndef APR_RUNTIME_COMPARE_H
#define APR_RUNTIME_COMPARE_H

#include "runtime/session/session.h"
#include "runtime/tokenizer/tokenizer.h"

typedef struct apr_row_difference {
    double kl;                   /* >= 0; NaN when a logit is not finite */
    double nll_truth, nll_other; /* of the token that came; 0 when next is -1 */
    bool same_top;               /* both like the same token best */
} apr_row_difference;

/* next: the token that came after, or -1 when there is none. */
apr_row_difference apr_compare_logits(const float *truth, const float *other, int64_t vocab_size, int32_t next);

/* What the rows of one window add up to. */
typedef struct apr_window_sums {
    double kl, nll_truth, nll_other;
    int64_t n_rows, n_same_top, n_scored;
} apr_window_sums;

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
    apr_window_sums *windows;
    size_t n_windows;
} apr_divergence;

/* What n rows come to. rows[i] is position i; windows are `window` long, the last may be shorter. kl and windows are malloc'ed:
 * close it, whatever the status. */
apr_status apr_divergence_of(apr_divergence *d, const apr_row_difference *rows, int64_t n_rows, int64_t window, apr_error *err);
void apr_divergence_close(apr_divergence *d);

/* What both are evaluated on: windows that begin from nothing (window <= both contexts; the last one may be shorter). */
typedef struct apr_compared_text {
    const int32_t *ids;       /* as the truth reads them; tokens that came next are counted by these */
    const int32_t *ids_other; /* as the other reads them, where its windows begin with another token; NULL: the same ids */
    int64_t n_ids, window;
    int64_t piece; /* tokens of each call, 1: as tokens are decoded; 0: as many as 64 MiB of logits hold, at most 512 */
} apr_compared_text;

/* Evaluates both on the text, piece by piece, and compares every position's logits. Of logits no more than apr_compare_bytes is held, of
 * each token a few numbers. Resets both sessions, which may run on different backends. on_rows may be NULL. */
apr_status apr_compare_on_text(apr_session *truth, apr_session *other, const apr_compared_text *text,
                               void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence *d, apr_error *err);
/* The same with pieces of its own choice. */
apr_status apr_compare_models(apr_session *truth, apr_session *other, const int32_t *ids, int64_t n_ids, int64_t window,
                              void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence *d, apr_error *err);

/* Bytes of the reference's logits that are held at a time. */
uint64_t apr_compare_bytes(int64_t vocab_size, int64_t window, int64_t piece);

/* A few tokens up to the largest divergence as text, in the window that it lies in; malloc'ed. ids: those that were compared. */
apr_status apr_divergence_place(const apr_divergence *d, const apr_tokenizer *tokenizer, const int32_t *ids, char **text, size_t *n_bytes,
                                apr_error *err);

/* What the mean may be at most. control: the same truth against itself with its weights brought to the other's types here, by our
 * encoders; another encoder's errors are other numbers of about that size, so three times its divergence is allowed (seen: up to 1.3
 * times). NULL: no weight was changed, and only the order of sums may differ. */
double apr_divergence_bound(const apr_divergence *control);

#endif
