/* golden.h - `aprrun golden`: a model against outputs that another implementation recorded.
 *
 * golden.json holds prompts (text, rendered text, token ids, greedy continuation and its smallest margin, top logits),
 * verses to recite, and a perplexity with the recipe for it; golden.safetensors beside it holds the logits and hidden
 * states of the first tokens of a text. Each check counts what passed and keeps the worst value. Given golden.safetensors alone,
 * only that is checked, in every grouping of the tokens (tools/run/golden_arrays.h). */
#ifndef APR_TOOLS_GOLDEN_H
#define APR_TOOLS_GOLDEN_H

#include "tools/cli/cli.h"

extern const apr_option apr_golden_options[];
extern const size_t apr_golden_options_bytes;
extern const char *const apr_golden_examples[];

apr_status apr_run_golden(const apr_call *call, apr_error *err);

#endif
