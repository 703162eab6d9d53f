/* runtime/check/golden.h - compares a session with arrays that another implementation recorded: token ids, logits, hidden states.
 *
 * The same ids are evaluated as one prompt, in chunks, and token by token. The results must agree for every chunk size. Two texts are
 * also evaluated alternately, because state of the first must not leak into the second. No tokenizer is needed. The arrays:
 *
 *     ids [n], logits [n, vocab]; hidden [layers + 1, n, width] (embeddings, after each layer, the last after the final norm);
 *     ids2 [n2], last2 [vocab]: another text and the logits after its last token. All arrays but ids are optional. */
#ifndef APR_RUNTIME_GOLDEN_H
#define APR_RUNTIME_GOLDEN_H

#include "runtime/check/parity.h"
#include "runtime/check/routes.h"

typedef struct apr_golden_arrays {
    int32_t *ids, *ids2;            /* ids2 NULL: not recorded */
    float *logits, *hidden, *last2; /* NULL: not recorded */
    int64_t n_ids, n_ids2, vocab_size, hidden_size, n_taps;
} apr_golden_arrays;

/* APR_E_DAMAGED: ids are missing, or an array's type or size does not match the ids. Failed or zeroed arrays may be closed. */
apr_status apr_golden_open(apr_golden_arrays *arrays, const char *path, apr_error *err);
void apr_golden_close(apr_golden_arrays *arrays);
/* The context length in tokens that the texts need. */
int64_t apr_golden_context(const apr_golden_arrays *arrays);

typedef enum { APR_GOLDEN_LOGITS, APR_GOLDEN_HIDDEN, APR_GOLDEN_SECOND, APR_GOLDEN_AGAIN } apr_golden_array;

/* The result for one array and one chunk size. */
typedef struct apr_golden_result {
    apr_golden_array what;
    int64_t n_together;     /* tokens per evaluation; n_tokens: one prompt */
    bool exact;             /* matrix products without rounded inputs (apr_session_set_exact) */
    int64_t n_tokens;       /* of the text */
    int64_t n_rows, n_good; /* rows compared, and those within the bound */
    double worst, peak;     /* the largest difference; the largest recorded number */
    double bound;           /* the largest absolute difference that passes */
    apr_run_bound reason;   /* where the bound comes from; relative 0: the caller gave it */
    apr_route_count routes; /* expert choices, if recorded from a reference session: none may be wrong */
    char first_bad[96];     /* "after layer 2, token 17", or empty */
} apr_golden_result;

/* Compares logits (figures[0]) and hidden states (figures[1]) of ids, n_together tokens at a time. n_rows 0: not recorded. tolerance 0:
 * use apr_run_bound_of, else it is the absolute bound. APR_E_NO: the model's widths differ from those of the arrays. */
apr_status apr_golden_compare(apr_session *session, const apr_golden_arrays *arrays, int64_t n_together, double tolerance,
                              apr_golden_result figures[2], apr_error *err);

typedef apr_status (*apr_golden_fn)(void *user, const apr_golden_result *figure, apr_error *err);

bool apr_golden_is_good(const apr_golden_result *figure);

/* Compares all chunk sizes (token by token; chunks of 2, 3, 5, 8, ...; one prompt), then both texts alternately. If the device rounds
 * the inputs of matrix products, these chunk sizes are repeated with exact products, which shows differences that rounding hides.
 * reference: a session of the same model whose expert choices are recorded first; NULL: expert choices are not checked. */
apr_status apr_golden_run(apr_session *session, apr_session *reference, const apr_golden_arrays *arrays, double tolerance,
                          apr_golden_fn on_figure, void *user, apr_error *err);

#endif
