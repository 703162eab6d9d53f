/* imatrix_verb.h - `aprrun imatrix`: makes and shows importance matrices: how much each input column of each matrix matters on a text. */
#ifndef APR_TOOLS_IMATRIX_VERB_H
#define APR_TOOLS_IMATRIX_VERB_H

#include "tools/run/running.h"

extern const apr_option apr_imatrix_options[];
extern const size_t apr_imatrix_options_bytes;
extern const char *const apr_imatrix_examples[];

apr_status apr_run_imatrix(const apr_call *call, apr_error *err);

#endif
