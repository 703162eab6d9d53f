/* sequences.h - a session for several sequences at once. */
#ifndef APR_ENGINE_SEQUENCES_H
#define APR_ENGINE_SEQUENCES_H

#include "runtime/session/session.h"

/* Does the session run on several places? */
bool apr_session_is_split(const apr_session_options *options);

/* Sets the number of sequences of a session, and the options that depend on it. asked 0: 16, or fewer if the budget, this machine's memory
 * or the GPU is too small for them. Several sequences get one more, for the common prefix of prompts. On several places there is one. */
apr_status apr_set_sequences(apr_session_options *options, const apr_model *model, int64_t asked, int64_t kv_cells, apr_error *err);

#endif
