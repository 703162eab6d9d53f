/* golden_arrays.h - `aprrun golden MODEL golden.safetensors`: token ids in, logits and hidden states out, with no tokenizer.
 *
 * What is compared and by which bounds stands in runtime/check/golden.h and runtime/check/parity.h; this prints it. */
#ifndef APR_TOOLS_GOLDEN_ARRAYS_H
#define APR_TOOLS_GOLDEN_ARRAYS_H

#include "runtime/check/golden.h"
#include "tools/run/running.h"

/* Named as a safetensors file, not as golden.json? */
bool apr_is_golden_arrays(const char *path);

/* operands: the model, the arrays. A context of 0 tokens becomes what the texts need. */
apr_status apr_run_golden_arrays(const apr_call *call, const apr_run_options *run, double tolerance, apr_error *err);

/* The reasons of bounds, each once. */
typedef struct apr_golden_reasons {
    apr_run_bound seen[8];
    size_t n;
} apr_golden_reasons;

void apr_golden_add_reason(apr_golden_reasons *reasons, const apr_run_bound *reason);
void apr_golden_print_reasons(const apr_golden_reasons *reasons); /* lines below a table */
/* Of a model whose matrices stand for two sets of numbers (formats/model/library_type.h): which was recorded. */
typedef enum {
    APR_VALUES_PRODUCTS,   /* the first, which a run has */
    APR_VALUES_AS_LIBRARY, /* the second */
    APR_VALUES_NEITHER,
    APR_VALUES_NO_MEMORY /* not the first; there is no memory for the second */
} apr_golden_values;

/* type: what the library rounds to. n_bad: figures, or checks, that fail with the library's as well. */
void apr_golden_say_values(const apr_call *call, const char *type, apr_golden_values values, size_t n_bad);
void apr_golden_reason_json(apr_json_text *json, const apr_run_bound *reason);

#endif
