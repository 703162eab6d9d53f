/* runtime/check/parity.h - runs two sessions operation by operation on the same inputs and names the first operation that differs.
 *
 * The comparison is teacher-forced: after each operation the reference's output is copied into the other session, and the reference's
 * keys and values into its cache. So every operation starts from the same numbers, errors do not accumulate, and a difference belongs
 * to the operation that shows it. The sessions may be two backends of one model, or two models with the same program.
 *
 * At each position a batch of tokens is run first, then a single token, because backends use different kernels for each. A batch has as
 * many tokens as both sessions evaluate at a time, at most n_batch. The tokens
 * before the position are evaluated by one session and copied to the other. With two models the reference does it. With two backends
 * the other one does, because it is faster and was compared at the earlier positions.
 *
 * With most_evaluated, the cache before a distant position is filled: only the first tokens and the last APR_PARITY_LAST_EVALUATED before
 * the position are evaluated. The cells between are copies of evaluated ones, the same in both sessions and drawn at random for each
 * state, so that no two ranges of cells are alike and an operation that reads other cells than it should gets other numbers. Operations
 * are compared on them as on any others. Models with recurrent states, and those that choose positions by their scores (equal keys would
 * have equal scores), evaluate all tokens.
 *
 * With a sample, the reference computes only some rows of each matrix, at least 512 and other ones at each position. The other rows keep
 * the values of the compared backend, which must be finite. */
#ifndef APR_RUNTIME_PARITY_H
#define APR_RUNTIME_PARITY_H

#include "runtime/check/weights.h"
#include "runtime/program/op_spec.h"

typedef struct apr_difference {
    double cosine;                     /* of all numbers; 1 when both are zero */
    double largest;                    /* |reference - other| */
    double peak;                       /* largest difference of a row divided by the row's root mean square, of the worst row */
    double relative;                   /* sqrt(sum (reference - other)^2 / sum reference^2); see parity.c for sums whose terms cancel */
    int64_t largest_at;                /* index of `largest`, or of the first number that is not finite */
    bool finite;                       /* all numbers of both sides are finite; otherwise the figures above are NaN */
    uint32_t crc_reference, crc_other; /* CRC-32 of the float32 numbers, in memory order */
} apr_difference;

apr_difference apr_difference_of(const float *reference, const float *other, int64_t n_rows, int64_t width);

/* The bound of a whole run from token ids to logits. It is relative to the largest number of the compared array, because errors come
 * from sums over many numbers and do not shrink with a small result. */
typedef struct apr_run_bound {
    double relative;
    const char *reason;
} apr_run_bound;

/* The largest bound that applies to these facts, with its reason. */
apr_run_bound apr_run_bound_of(apr_run_facts facts);
/* The relative bound of a perplexity. It is smaller, because perplexity is a mean over thousands of tokens whose errors mostly cancel. */
double apr_run_perplexity_bound(apr_run_facts facts);

typedef struct apr_parity_record {
    const apr_op *op;
    size_t op_index;
    const char *name; /* of the weight, or of the output value if there is no weight */
    int64_t position, n_tokens;
    size_t batch, n_batches;        /* how many batches were compared before this one, and how many there are: two at each position */
    const apr_tensor *weight;       /* of `other`; NULL: the operation has no weight */
    int64_t n_rows, width;          /* of the output; a KV store gives two records: keys, then values */
    const float *reference, *other; /* [n_rows, width] */
    apr_difference difference;
    apr_parity_bound bound;
    bool passed;
} apr_parity_record;

typedef struct apr_parity_options {
    const int64_t *positions; /* [n_positions], ascending; positions that do not fit in the context are skipped */
    size_t n_positions;
    int64_t n_batch;            /* most tokens of the batch; the single token follows it */
    int64_t fp16_above;         /* linear operations on more tokens use FP16 inputs and weights; INT64_MAX: never */
    const apr_weights *weights; /* NULL: two backends. Otherwise two models: the differences of their weights */
    int layer;                  /* only this layer; APR_PARITY_ALL_LAYERS: all; -1: embeddings and head */
    const char *op;             /* only operations of this kind ("linear") or output value ("gate"); NULL: all */
    double sample;              /* two backends: share of each matrix's rows that is held to the reference; 0 or 1: all rows */
    int64_t most_evaluated;     /* tokens before a position that are evaluated, where its cache can be filled; 0: all */
    apr_status (*on_record)(void *user, const apr_parity_record *record, apr_error *err); /* may be NULL */
    void *user;
} apr_parity_options;

enum { APR_PARITY_ALL_LAYERS = -2, APR_PARITY_BATCH = 16, APR_PARITY_LAST_EVALUATED = 128 };

typedef struct apr_parity_result {
    int64_t n_checked, n_passed;
    int64_t n_positions, last_position; /* positions that were run */
    int64_t n_evaluated, n_filled;      /* of the cells before the last batch: those of evaluated tokens, and copies of these */
    double share;                       /* of the products' multiplications that the reference repeated */
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
    double *worst_peak, *worst_relative; /* [n_layers + 1] worst operation of each layer; the last is embeddings and head. malloc'ed */
    int64_t n_layers;
} apr_parity_result;

/* Both programs must have the same operations and shapes (else APR_E_NO with the first that differs), and the same KV type (else
 * APR_E_USAGE). ids: the text, repeated if it is too short. Both sessions are at position 0 afterwards. Close result, also after an
 * error. */
apr_status apr_parity_run(apr_session *reference, apr_session *other, const int32_t *ids, int64_t n_ids, const apr_parity_options *options,
                          apr_parity_result *result, apr_error *err);
void apr_parity_result_close(apr_parity_result *result);

#endif
