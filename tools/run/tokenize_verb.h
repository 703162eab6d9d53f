/* tokenize_verb.h - `aprrun tokenize` and `aprrun detokenize`: what a model's tokenizer makes of a text, and back. No weights are opened. */
#ifndef APR_TOOLS_TOKENIZE_VERB_H
#define APR_TOOLS_TOKENIZE_VERB_H

#include "tools/cli/cli.h"

extern const apr_option apr_tokenize_options[], apr_detokenize_options[];
extern const size_t apr_tokenize_options_bytes, apr_detokenize_options_bytes;
extern const char *const apr_tokenize_examples[], *const apr_detokenize_examples[];
enum { APR_MOST_DETOKENIZED = 1 << 24 };
apr_status apr_run_tokenize(const apr_call *call, apr_error *err);
apr_status apr_run_detokenize(const apr_call *call, apr_error *err);

#endif
