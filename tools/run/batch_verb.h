/* batch_verb.h - `aprrun batch`: a file of prompts through one model, a line an answer. */
#ifndef APR_TOOLS_BATCH_VERB_H
#define APR_TOOLS_BATCH_VERB_H

#include "tools/run/running.h"

extern const apr_option apr_batch_options[];
extern const size_t apr_batch_options_bytes;
extern const char *const apr_batch_examples[];

apr_status apr_run_batch(const apr_call *call, apr_error *err);

/* Sequences for a session that is to have so many: one more, for what prompts begin with alike, where there are several. 0: 16, or as many
 * as the budget, this machine's memory or the GPU has room for; in parts one. Sets what else of the options depends on them. */
apr_status apr_batch_set_sequences(apr_session_options *options, const apr_model *model, int64_t asked, int64_t kv_cells, apr_error *err);

#endif
