/* runtime/check/golden.h - a session against arrays that another implementation recorded: token ids in, logits and hidden states out.
 *
 * The same ids are evaluated as one prompt, in pieces and token by token: whatever the grouping, the answer is the same. And two
 * texts in turn: what the first leaves behind must not reach the second. No tokenizer is needed.
 *
 *     ids [n], logits [n, vocab]; hidden [layers + 1, n, width] (embeddings, after each layer, the last after the final norm);
 *     ids2 [n2], last2 [vocab]: another text and the logits after its last token. Arrays that are not there are left out. */
#ifndef APR_RUNTIME_GOLDEN_H
#define APR_RUNTIME_GOLDEN_H

#include "runtime/check/parity.h"
#include "runtime/check/routes.h"

typedef struct apr_golden_arrays {
    int32_t *ids, *ids2;            /* ids2 NULL: not recorded */
    float *logits, *hidden, *last2; /* NULL: not recorded */
    int64_t n_ids, n_ids2, vocab_size, hidden_size, n_taps;
} apr_golden_arrays;

/* APR_E_DAMAGED: ids are missing, or an array has another type or size than the ids say. Failed or zeroed arrays may be closed. */
apr_status apr_golden_open(apr_golden_arrays *arrays, const char *path, apr_error *err);
void apr_golden_close(apr_golden_arrays *arrays);
/* Tokens of context that the texts need. */
int64_t apr_golden_context(const apr_golden_arrays *arrays);

typedef enum { APR_GOLDEN_LOGITS, APR_GOLDEN_HIDDEN, APR_GOLDEN_SECOND, APR_GOLDEN_AGAIN } apr_golden_what;

/* One array, with the tokens grouped in one way. */
typedef struct apr_golden_figure {
    apr_golden_what what;
    int64_t n_together;     /* tokens evaluated at a time; n_tokens: one prompt */
    bool exact;             /* with products that round nothing (apr_session_set_exact) */
    int64_t n_tokens;       /* of the text */
    int64_t n_rows, n_good; /* rows that were compared, and within the bound */
    double worst, peak;     /* the largest difference; the largest recorded number */
    double bound;           /* absolute: at most so large may a difference be */
    apr_run_bound reason;   /* where the bound comes from; relative 0: the caller gave it */
    apr_route_count routes; /* choices of experts, where they were recorded from a truth: none may be wrong */
    char first_bad[96];     /* "after layer 2, token 17", or empty */
} apr_golden_figure;

/* Logits and hidden states of ids, n_together at a time (figures[0], figures[1]; n_rows 0: not recorded). tolerance 0: as
 * apr_run_bound_of says, else the absolute bound. APR_E_NO: the model's widths are not those of the arrays. */
apr_status apr_golden_compare(apr_session *session, const apr_golden_arrays *arrays, int64_t n_together, double tolerance,
                              apr_golden_figure figures[2], apr_error *err);

typedef apr_status (*apr_golden_fn)(void *user, const apr_golden_figure *figure, apr_error *err);

bool apr_golden_is_good(const apr_golden_figure *figure);

/* All groupings (one prompt; pieces of 2, 3, 5, 8, ...; token by token), then both texts in turn. Where a device rounds a grouping's
 * products, it is evaluated once more without: what differs then is not the rounding.
 * truth: a session of the same model whose choices of experts are recorded first; NULL: choices are not judged by themselves. */
apr_status apr_golden_run(apr_session *session, apr_session *truth, const apr_golden_arrays *arrays, double tolerance,
                          apr_golden_fn on_figure, void *user, apr_error *err);

#endif
