/* golden_arrays.h - `aprrun golden MODEL golden.safetensors`: logits and hidden states of recorded token ids, without a tokenizer.
 *
 * runtime/check/golden.h and runtime/check/parity.h say what is compared and with which bounds; this prints the results. */
#ifndef APR_TOOLS_GOLDEN_ARRAYS_H
#define APR_TOOLS_GOLDEN_ARRAYS_H

#include "runtime/check/golden.h"
#include "tools/verbs/run/running.h"

/* Is the path that of a safetensors file, not of golden.json? */
bool apr_is_golden_arrays(const char *path);

/* The call's operands: the model, the arrays. run->ctx 0: as long as the texts need. */
apr_status apr_run_golden_arrays(const apr_call *call, const apr_run_options *run, double tolerance, apr_error *err);

/* Opens the session again, with matrices rounded as their library does. */
apr_status apr_golden_round(apr_running *running, const apr_run_options *options, apr_error *err);

/* The reasons of bounds, each once. */
typedef struct apr_golden_reasons {
    apr_run_bound seen[8];
    size_t n;
} apr_golden_reasons;

void apr_golden_add_reason(apr_golden_reasons *reasons, const apr_run_bound *reason);
void apr_golden_print_reasons(const apr_golden_reasons *reasons); /* lines below a table */
/* Which numbers were recorded, if the model's matrices stand for two sets of them (formats/tensor/library_type.h). */
typedef enum {
    APR_VALUES_PRODUCTS,   /* the first, which a run has */
    APR_VALUES_AS_LIBRARY, /* the second */
    APR_VALUES_NEITHER,
    APR_VALUES_NO_MEMORY /* not the first; not enough memory for the second */
} apr_golden_values;

/* type: what the library rounds to. n_bad: figures, or checks, that also fail with the library's values. */
void apr_golden_print_values(const apr_call *call, const char *type, apr_golden_values values, size_t n_bad);
void apr_golden_reason_json(apr_json_text *json, const apr_run_bound *reason);

#endif
