/* imatrix_print.h - prints an importance matrix. */
#ifndef APR_TOOLS_IMATRIX_PRINT_H
#define APR_TOOLS_IMATRIX_PRINT_H

#include "formats/base/pattern.h"
#include "formats/tensor/imatrix.h"
#include "tools/cli/cli.h"

/* What was made: windows, entries, experts that got no tokens. */
apr_status apr_imatrix_answer(const apr_call *call, const apr_imatrix *imatrix, size_t n_nameless, double seconds, apr_error *err);
/* Each entry whose name the filter matches (NULL: each), with the spread of its columns. */
apr_status apr_imatrix_show(const apr_call *call, const apr_imatrix *imatrix, const apr_pattern *filter, apr_error *err);

#endif
