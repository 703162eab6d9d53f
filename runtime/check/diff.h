/* runtime/check/diff.h - what two models differ in, across containers and types: hyperparameters, tokenizer, metadata, tensors, values.
 *
 * Both models are canonical, so that tensors pair by name; whoever has a file makes them so (see convert/dialect.h). Nothing is run.
 * Under a tolerance a type is no difference; what one side does not state never is. */
#ifndef APR_RUNTIME_DIFF_H
#define APR_RUNTIME_DIFF_H

#include "formats/base/progress.h"
#include "formats/model/model.h"
#include "kernels/metrics.h"

/* --- facts: what differs besides tensors --- */

typedef enum { APR_DIFF_HYPERPARAMETER, APR_DIFF_TOKENIZER, APR_DIFF_METADATA, APR_DIFF_FILE } apr_diff_topic;

typedef enum {
    APR_FACT_NONE, /* stated by the other side alone */
    APR_FACT_COUNT,
    APR_FACT_ID,
    APR_FACT_REAL,
    APR_FACT_BOOL,
    APR_FACT_TEXT,
    APR_FACT_ROPE,  /* number: an apr_rope_kind */
    APR_FACT_LAYER, /* an apr_layer_kind */
    APR_FACT_VOCAB, /* an apr_vocab_kind */
    APR_FACT_KV,
    APR_FACT_BYTES
} apr_fact_kind;

/* A value of one side; borrows from its model. */
typedef struct apr_fact_value {
    apr_fact_kind kind;
    int64_t number; /* of counts, ids, bools, kinds and bytes */
    double real;
    apr_str text;
    const apr_kv *kv;
} apr_fact_value;

typedef struct apr_fact_diff {
    apr_diff_topic topic;
    apr_str name; /* "rope_theta", "token 17", a metadata key, a file's name; anyone's bytes */
    apr_fact_value a, b;
} apr_fact_diff;

/* --- tensors --- */

/* A name that both models have, or (a or b NULL) only one of them. */
typedef struct apr_tensor_diff {
    const apr_tensor *a, *b;
    bool same_dims, same_bytes;
    bool has_metrics;    /* values were decoded and compared; of same bytes they need not be */
    apr_metrics metrics; /* a is the truth */
    bool as_library;     /* the same but for the rounding of a layout's library (formats/model/library_type.h); so metrics has it */
    bool differs;        /* under the given tolerance */
} apr_tensor_diff;

typedef struct apr_model_diff {
    const apr_model *a, *b;
    apr_fact_diff *facts;
    size_t n_facts, facts_capacity;
    const char *same_metadata; /* "license, recipe": texts of safetensors' __metadata__ that both have in their own way; or NULL */
    apr_tensor_diff *tensors;  /* those of A in A's order, then those that only B has */
    size_t n_tensors, n_only_a, n_only_b;
    size_t n_differing; /* under the given tolerance; those of only one model included */
    size_t n_same_bytes;
    size_t n_same_values; /* of another type, or stored in another way */
    size_t n_as_library;  /* of those */
    size_t n_close;       /* neither, but within the tolerance */
    apr_arena arena;
} apr_model_diff;

typedef struct apr_diff_options {
    bool no_metadata; /* leave out metadata keys and small files, which are compared only within one format */
    double tolerance; /* largest error as a share of the root mean square, whatever the types; NAN: the bytes must be the same */
} apr_diff_options;

/* progress may be NULL. A failed or zeroed diff may be closed. The models must outlive it. */
apr_status apr_diff_models(apr_model_diff *diff, const apr_model *a, const apr_model *b, const apr_diff_options *options,
                           const apr_progress *progress, apr_error *err);
void apr_diff_close(apr_model_diff *diff);

/* Nothing differs, or only within the tolerance. */
bool apr_diff_is_same(const apr_model_diff *diff);
/* Nothing but types, or the bytes that stand for the same values: every value of every tensor is the same. */
bool apr_diff_has_same_values(const apr_model_diff *diff);
bool apr_tensor_diff_has_same_values(const apr_tensor_diff *pair);

/* Largest error as a fraction of the root mean square of the truth; infinite where the truth is 0 and the error is not. */
double apr_diff_relative_max(const apr_metrics *metrics);

/* The first half of apr_diff_models (diff_facts.c): a and b are set. */
apr_status apr_diff_facts(apr_model_diff *diff, bool with_metadata, apr_error *err);

#endif
