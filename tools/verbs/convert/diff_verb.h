/* diff_verb.h - aprconv diff: prints how two models differ, across formats, naming schemes and types (runtime/check/diff.h). */
#ifndef APR_TOOLS_DIFF_VERB_H
#define APR_TOOLS_DIFF_VERB_H

#include "runtime/check/diff.h"
#include "tools/cli/cli.h"

apr_status apr_diff_print(const apr_model_diff *diff, bool all, apr_error *err); /* diff_print.c */
void apr_diff_json(const apr_model_diff *diff, apr_json_text *out);              /* diff_print.c */

#endif
