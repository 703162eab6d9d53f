/* golden_verb.h - `aprrun golden`: a model against outputs that another implementation recorded (runtime/check/golden_checks.h). Given
 * golden.safetensors alone, only that is checked, with several batch sizes (tools/run/golden_arrays.h). */
#ifndef APR_TOOLS_GOLDEN_H
#define APR_TOOLS_GOLDEN_H

#include "tools/cli/cli.h"

extern const apr_option apr_golden_options[];
extern const size_t apr_golden_options_bytes;
extern const char *const apr_golden_examples[];

apr_status apr_run_golden(const apr_call *call, apr_error *err);

#endif
