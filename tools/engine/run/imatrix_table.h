/* imatrix_table.h - the sums of a pass over a text as an imatrix: by ggml's names and orders, or by layer input while unfinished. */
#ifndef APR_TOOLS_IMATRIX_TABLE_H
#define APR_TOOLS_IMATRIX_TABLE_H

#include "convert/ggml_location.h"
#include "formats/tensor/imatrix.h"
#include "runtime/calibrate/importance_pass.h"

/* Marks the inputs of matrices in layers and, with `has_output`, the head's. wanted: [n_inputs]. */
void apr_imatrix_select_inputs(const apr_layer_inputs *inputs, const apr_session *session, bool has_output, bool *wanted);

/* Makes entries of all wanted inputs, by ggml's matrices. *n_nameless: matrices that ggml does not have. The caller closes the imatrix. */
apr_status apr_imatrix_of_pass(apr_imatrix *imatrix, const char *path, const apr_importance_pass *pass, const apr_session *session,
                               const bool *wanted, size_t *n_nameless, apr_error *err);

/* Stores the sums of an unfinished pass, and loads them to continue it. APR_E_DAMAGED: they belong to another model. */
apr_status apr_imatrix_save_pass(apr_imatrix *imatrix, const char *path, const apr_importance_pass *pass, apr_error *err);
apr_status apr_imatrix_load_pass(apr_importance_pass *pass, const apr_imatrix *imatrix, apr_error *err);

#endif
