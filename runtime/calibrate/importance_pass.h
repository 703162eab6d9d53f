/* runtime/calibrate/importance_pass.h - sums of squares of each matrix's inputs, window by window.
 *
 * Sums are in double and belong to inputs (inputs.h): matrices with the same input share them. Windows are added in order, so the sums do
 * not depend on where a pass was interrupted. */
#ifndef APR_RUNTIME_CALIBRATE_IMPORTANCE_PASS_H
#define APR_RUNTIME_CALIBRATE_IMPORTANCE_PASS_H

#include "runtime/calibrate/inputs.h"

typedef struct apr_layer_input_sums {
    int64_t n_matrices; /* experts, or 1 */
    double *sums;       /* [n_matrices, width] */
    double *counts;     /* [n_matrices] rows */
} apr_layer_input_sums;

typedef struct apr_importance_pass {
    const apr_layer_inputs *inputs;
    apr_layer_input_sums *of; /* [n_inputs] */
} apr_importance_pass;

apr_status apr_importance_pass_open(apr_importance_pass *pass, const apr_layer_inputs *inputs, apr_error *err);
void apr_importance_pass_close(apr_importance_pass *pass);

/* Adds n_windows windows of n_ids tokens each. On a GPU several at once cost less, because the sums stay there meanwhile. wanted: see apr_pass. APR_E_NO: an input is not finite; the sums are invalid then. */
apr_status apr_importance_pass_add(apr_importance_pass *pass, apr_session *session, const bool *wanted, const int32_t *ids, int64_t n_ids,
                                   int64_t n_windows, apr_error *err);

#endif
