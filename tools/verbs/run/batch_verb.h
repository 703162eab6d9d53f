/* batch_verb.h - `aprrun batch`: answers a file of prompts with one model, one line per answer. */
#ifndef APR_TOOLS_BATCH_VERB_H
#define APR_TOOLS_BATCH_VERB_H

#include "tools/verbs/run/running.h"

/* Sets the number of sequences of a session, and the options that depend on it. asked 0: 16, or fewer if the budget, this machine's memory
 * or the GPU is too small for them. Several sequences get one more, for the common prefix of prompts. On several places there is one. */
apr_status apr_batch_set_sequences(apr_session_options *options, const apr_model *model, int64_t asked, int64_t kv_cells, apr_error *err);

#endif
