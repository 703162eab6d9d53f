/* diff.h - aprconv diff: what two models differ in, across containers, names and types. */
#ifndef APR_TOOLS_DIFF_H
#define APR_TOOLS_DIFF_H

#include "formats/model/model.h"
#include "quant/metrics.h"
#include "tools/cli/cli.h"

typedef struct apr_diff_options {
    bool metadata, all;
    double tolerance; /* NaN: bytes and types must be the same */
} apr_diff_options;

/* APR_OK when they are the same (or within the tolerance), APR_E_NO when not. */
extern const apr_command apr_diff_command;

/* --- what is found out, and how it is printed --- */

/* One thing other than a tensor that differs; texts are cleaned and shortened. */
typedef struct apr_fact_diff {
    const char *topic; /* "hyperparameter", "tokenizer", "metadata", "file" */
    const char *name, *a, *b;
} apr_fact_diff;

/* A name that both models have, or (a or b NULL) only one of them. */
typedef struct apr_tensor_diff {
    const apr_tensor *a, *b;
    bool same_dims, same_bytes;
    bool has_metrics;    /* values were decoded and compared; of same bytes they need not be */
    apr_metrics metrics; /* a is the truth */
    bool differs;        /* under the given tolerance */
} apr_tensor_diff;

typedef struct apr_model_diff {
    const apr_model *a, *b;
    apr_fact_diff *facts;
    size_t n_facts, facts_capacity;
    apr_tensor_diff *tensors;
    size_t n_tensors, n_only_a, n_only_b;
    size_t n_differing; /* under the given tolerance; those of only one model included */
    size_t n_same_bytes;
    size_t n_same_values; /* of another type, or stored in another way */
    size_t n_close;       /* neither, but within the tolerance */
    apr_arena arena;
} apr_model_diff;

apr_status apr_diff_facts(apr_model_diff *diff, bool with_metadata, apr_error *err); /* diff_facts.c */
apr_status apr_diff_print(const apr_model_diff *diff, bool all, apr_error *err);     /* diff_print.c */
void apr_diff_json(const apr_model_diff *diff, apr_json_text *out);                  /* diff_print.c */

/* Largest error as a fraction of the root mean square of the truth; infinite where the truth is 0 and the error is not. */
double apr_diff_relative_max(const apr_metrics *metrics);

#endif
