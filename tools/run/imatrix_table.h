/* imatrix_table.h - sums of a pass over a text as an imatrix: by ggml's names and orders when it is done, by feeds while it is not. */
#ifndef APR_TOOLS_IMATRIX_TABLE_H
#define APR_TOOLS_IMATRIX_TABLE_H

#include "convert/importance.h"
#include "runtime/calibrate/importance_pass.h"

/* The feeds of matrices in layers, and with `has_output` the head's. wanted: [n_feeds]. */
void apr_imatrix_wanted(const apr_feeds *feeds, const apr_session *session, bool has_output, bool *wanted);

/* Entries of everything wanted that ggml has as a matrix. What it has not is counted in *n_nameless. The caller closes the imatrix. */
apr_status apr_imatrix_of_pass(apr_imatrix *imatrix, const char *path, const apr_importance_pass *pass, const apr_session *session,
                               const bool *wanted, size_t *n_nameless, apr_error *err);

/* The sums as they are, to go on from, and back. APR_E_DAMAGED: they are another model's. */
apr_status apr_imatrix_keep_pass(apr_imatrix *imatrix, const char *path, const apr_importance_pass *pass, apr_error *err);
apr_status apr_imatrix_take_pass(apr_importance_pass *pass, const apr_imatrix *imatrix, apr_error *err);

#endif
