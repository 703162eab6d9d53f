/* runtime/check/diff.h - differences of two models, across containers and types: hyperparameters, tokenizer, metadata, tensors, values.
 *
 * Both models use canonical tensor names, so tensors pair by name; the caller converts them (see convert/naming.h). Nothing is
 * evaluated. With a tolerance, a different type alone is not a difference. A value that only one side states is never a difference. */
#ifndef APR_RUNTIME_DIFF_H
#define APR_RUNTIME_DIFF_H

#include "formats/base/progress.h"
#include "formats/tensor/model.h"
#include "kernels/metrics.h"

/* --- facts: everything but tensors --- */

typedef enum { APR_DIFF_HYPERPARAMETER, APR_DIFF_TOKENIZER, APR_DIFF_METADATA, APR_DIFF_FILE } apr_diff_topic;

typedef enum {
    APR_FACT_NONE, /* this side does not state it */
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

/* The value of one side; points into its model. */
typedef struct apr_fact_value {
    apr_fact_kind kind;
    int64_t number; /* for counts, ids, bools, kinds and bytes */
    double real;
    apr_str text;
    const apr_kv *kv;
} apr_fact_value;

typedef struct apr_fact_diff {
    apr_diff_topic topic;
    apr_str name; /* "rope_theta", "token 17", a metadata key, a file's name; may hold any bytes: escape before printing */
    apr_fact_value a, b;
} apr_fact_diff;

/* --- tensors --- */

/* Two tensors of one name; a or b is NULL when only one model has it. */
typedef struct apr_tensor_diff {
    const apr_tensor *a, *b;
    bool same_dims, same_bytes;
    bool has_metrics;    /* values were decoded and compared; equal bytes usually need no decoding */
    apr_metrics metrics; /* a is the reference */
    bool as_library;     /* equal with the rounding of the layout's library (formats/tensor/library_type.h); metrics include it */
    bool differs;        /* under the given tolerance */
} apr_tensor_diff;

typedef struct apr_model_diff {
    const apr_model *a, *b;
    apr_fact_diff *facts;
    size_t n_facts, facts_capacity;
    const char *same_metadata; /* "license, recipe": __metadata__ texts of safetensors that both have, under each format's key; or NULL */
    apr_tensor_diff *tensors;  /* those of A in A's order, then those that only B has */
    size_t n_tensors, n_only_a, n_only_b;
    size_t n_differing; /* under the given tolerance; includes tensors that only one model has */
    size_t n_same_bytes;
    size_t n_same_values; /* equal values in another type or layout */
    size_t n_as_library;  /* subset of n_same_values: equal with the library's rounding */
    size_t n_close;       /* values differ, but within the tolerance */
    apr_arena arena;
} apr_model_diff;

typedef struct apr_diff_options {
    bool no_metadata; /* skip metadata keys and small files, which are compared only if both formats are the same */
    double tolerance; /* largest absolute error divided by the root mean square, for any types; NAN: the bytes must be equal */
} apr_diff_options;

/* progress may be NULL. A failed or zeroed diff may be closed. The models must outlive it. */
apr_status apr_diff_models(apr_model_diff *diff, const apr_model *a, const apr_model *b, const apr_diff_options *options,
                           const apr_progress *progress, apr_error *err);
void apr_diff_close(apr_model_diff *diff);

/* True if nothing differs, or only within the tolerance. */
bool apr_diff_is_same(const apr_model_diff *diff);
/* True if every value of every tensor is equal; types and stored bytes may differ. */
bool apr_diff_has_same_values(const apr_model_diff *diff);
bool apr_tensor_diff_has_same_values(const apr_tensor_diff *pair);

/* Largest absolute error divided by the root mean square of the reference; infinite if the reference is all zeros and the error is not. */
double apr_diff_relative_max(const apr_metrics *metrics);

#endif
