/* runtime/check/parity.h - two sessions operation by operation from the same input; names the first operation that differs.
 *
 * Teacher-forced: after each operation the truth's output is written into the other session, and the truth's keys and
 * values into its cache. So every operation begins with the same numbers, drift does not add up, and a difference belongs to
 * the operation that shows it. The sessions may be two backends of one model, or two models of one program.
 *
 * At each position first a batch of tokens is run, then a single token, because backends have other kernels for each. What
 * lies before the position is evaluated by one session and copied to the other: of two models by the truth, of two backends by
 * the other one (it is the fast one, and was compared at the earlier positions). */
#ifndef APR_RUNTIME_PARITY_H
#define APR_RUNTIME_PARITY_H

#include "runtime/check/weights.h"
#include "runtime/program/op_card.h"

typedef struct apr_difference {
    double cosine;                 /* of all numbers; 1 when both are zero */
    double largest;                /* |truth - other| */
    double peak;                   /* the largest difference of a row divided by the row's root mean square, worst row */
    double relative;               /* root of sum (truth - other)^2 / sum truth^2 */
    int64_t largest_at;            /* index of `largest`; of the first number that is not finite on one side */
    bool finite;                   /* all numbers, on both sides; otherwise the figures above are NaN */
    uint32_t crc_truth, crc_other; /* CRC-32 of the float32 numbers, in memory order */
} apr_difference;

apr_difference apr_difference_of(const float *truth, const float *other, int64_t n_rows, int64_t width);

/* What the operation's card says of two backends; where fp16_products is set, products are of FP16 inputs and weights, summed in
 * float32 (GEMMs on tensor cores). */
apr_parity_bound apr_parity_backend_bound(apr_op_kind kind, bool fp16_products);

/* A whole run: from token ids to logits. Its bound is a share of the largest number of what is compared, because errors come from
 * sums over many numbers and do not shrink with a small result. */
typedef struct apr_run_bound {
    double relative;
    const char *reason;
} apr_run_bound;

/* The largest of what the facts bring about, and the reason for that one. */
apr_run_bound apr_run_bound_of(apr_run_facts facts);
/* Of a perplexity, relative to itself: a mean over thousands of tokens in which differences all but cancel. */
double apr_run_perplexity_bound(apr_run_facts facts);

typedef struct apr_parity_record {
    const apr_op *op;
    size_t op_index;
    const char *name; /* of the value, or of the weight where there is one */
    int64_t position, n_tokens;
    const apr_tensor *weight;   /* of `other`; NULL: the operation has none */
    int64_t n_rows, width;      /* of the output; a store's rows are its keys, then its values */
    const float *truth, *other; /* [n_rows, width] */
    apr_difference difference;
    apr_parity_bound bound;
    bool passed;
} apr_parity_record;

typedef struct apr_parity_options {
    const int64_t *positions; /* [n_positions], ascending; those without room in the context are left out */
    size_t n_positions;
    int64_t n_batch;            /* tokens of the batch; the single token follows it */
    int64_t fp16_above;         /* linear operations of more tokens multiply FP16 numbers; INT64_MAX: none */
    const apr_weights *weights; /* NULL: two backends. Otherwise two models, and what their weights differ by */
    int layer;                  /* only this one; APR_PARITY_ALL_LAYERS: all; -1: embeddings and head */
    const char *op;             /* only operations of that kind ("linear") or value ("gate"); NULL: all */
    apr_status (*on_record)(void *user, const apr_parity_record *record, apr_error *err); /* may be NULL */
    void *user;
} apr_parity_options;

enum { APR_PARITY_ALL_LAYERS = -2, APR_PARITY_BATCH = 16 };

typedef struct apr_parity_result {
    int64_t n_judged, n_passed;
    int64_t n_positions, last_position; /* that were run */
    bool failed;
    /* the first operation outside its bound, in the order of the run */
    struct {
        apr_op_kind kind;
        int layer;
        char name[160];
        int64_t position, n_tokens;
        apr_difference difference;
        apr_parity_bound bound;
    } first;
    double *worst_peak, *worst_relative; /* [n_layers + 1] of each layer's operations; the last is embeddings and head. malloc'ed */
    int64_t n_layers;
} apr_parity_result;

/* The sessions' programs must have the same operations and shapes (APR_E_NO with the first that differs), and the same type
 * of keys and values. ids: the text, repeated when it is too short. Both sessions are at position 0 afterwards. */
apr_status apr_parity_run(apr_session *truth, apr_session *other, const int32_t *ids, int64_t n_ids, const apr_parity_options *options,
                          apr_parity_result *result, apr_error *err);
void apr_parity_result_close(apr_parity_result *result);

#endif
