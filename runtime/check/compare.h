/* runtime/check/compare.h - compares the next-token distributions of two models on the same text: KL divergence, argmax, perplexity.
 *
 * The divergence of a row is KL(reference || other) = sum p (log p - log q), in nats. Logits are float32, sums are double. Nothing is
 * clipped; equal rows give 0. */
#ifndef APR_RUNTIME_COMPARE_H
#define APR_RUNTIME_COMPARE_H

#include "runtime/session/session.h"
#include "runtime/tokenizer/tokenizer.h"

typedef struct apr_row_difference {
    double kl;                       /* >= 0; NaN when a logit is not finite */
    double nll_reference, nll_other; /* negative log likelihood of the next token; 0 when next is -1 */
    bool same_top;                   /* both have the same argmax */
} apr_row_difference;

/* next: the token that follows in the text, or -1 when there is none. */
apr_row_difference apr_compare_logits(const float *reference, const float *other, int64_t vocab_size, int32_t next);

/* Sums over the rows of one window. */
typedef struct apr_window_sums {
    double kl, nll_reference, nll_other;
    int64_t n_rows, n_same_top, n_scored;
} apr_window_sums;

typedef struct apr_divergence {
    int64_t n_rows;                    /* positions compared: all of each window */
    int64_t n_scored;                  /* positions with a next token in the window; perplexity uses these */
    int64_t window;                    /* tokens of a window */
    double mean, median, p99, largest; /* KL */
    double second_half;                /* mean KL over the second half of each window, which is what llama-perplexity scores */
    double same_top, second_half_top;  /* share of positions with the same argmax: all, second halves */
    double perplexity_reference, perplexity_other;
    int64_t largest_at; /* position of `largest` in the text; the first position with a KL that is not finite, if any */
    float *kl;          /* [n_rows] KL of each position */
    apr_window_sums *windows;
    size_t n_windows;
} apr_divergence;

/* Summarizes n rows. rows[i] is position i; windows are `window` tokens long, the last may be shorter. kl and windows are malloc'ed:
 * close d, also after an error. */
apr_status apr_divergence_of(apr_divergence *d, const apr_row_difference *rows, int64_t n_rows, int64_t window, apr_error *err);
void apr_divergence_close(apr_divergence *d);

/* The text that both models evaluate, in windows. Each window begins with an empty KV cache and fits in both contexts; the last one may
 * be shorter. */
typedef struct apr_compared_text {
    const int32_t *ids;       /* input of the reference; next tokens are taken from here */
    const int32_t *ids_other; /* input of the other model, if its windows begin with another token; NULL: the same ids */
    int64_t n_ids, window;
    int64_t
        piece; /* tokens per evaluation; 1: decode one at a time; 0: as many as fit in 64 MiB of logits (512 MiB on a GPU), at most 512 */
} apr_compared_text;

/* Evaluates both models on the text, a chunk of tokens at a time, and compares the logits of every position. Holds at most
 * apr_compare_bytes of logits, and a few numbers per token; where both models run on a GPU each, the rows stay there and are compared
 * there, if it has 512 MiB left. Resets both sessions, which may run on different backends. on_rows may be
 * NULL. APR_E_NO: the vocabularies differ in size. */
apr_status apr_compare_on_text(apr_session *reference, apr_session *other, const apr_compared_text *text,
                               void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence *d, apr_error *err);
/* The same for two other models at once, so that the reference evaluates the text only once: d[i] is what apr_compare_on_text finds for
 * others[i]. Only where apr_compare_can_share says so of each: sessions on the host. */
bool apr_compare_can_share(const apr_session *reference, const apr_session *other);
apr_status apr_compare_two(apr_session *reference, apr_session *const others[2], const apr_compared_text *text,
                           void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence d[2], apr_error *err);
/* apr_compare_on_text with piece 0 and the same ids for both. */
apr_status apr_compare_models(apr_session *reference, apr_session *other, const int32_t *ids, int64_t n_ids, int64_t window,
                              void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence *d, apr_error *err);

/* Bytes of the reference's logits that are held at once. */
uint64_t apr_compare_bytes(int64_t vocab_size, int64_t window, int64_t piece);

/* The text of the (at most 6) tokens up to the largest divergence, within its window; malloc'ed. ids: the ids that were compared. */
apr_status apr_divergence_context_text(const apr_divergence *d, const apr_tokenizer *tokenizer, const int32_t *ids, char **text,
                                       size_t *n_bytes, apr_error *err);

/* The largest mean divergence that passes. control: the divergence of the reference from itself after our encoders quantized its weights
 * to the other model's types. Another encoder makes errors of about the same size, so three times the control's divergence is allowed
 * (measured: up to 1.3 times). NULL: no weight was changed, and only the order of sums may differ. */
double apr_divergence_bound(const apr_divergence *control);

#endif
