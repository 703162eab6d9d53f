/* chat.h - `aprrun chat`: a conversation with a model, at a terminal or through a pipe, one line per turn. */
#ifndef APR_VERBS_CHAT_H
#define APR_VERBS_CHAT_H

#include "tools/verbs/run/chat_turn.h"

typedef struct apr_chat_options {
    apr_run_options run;
    const char *prompt, *system, *load, *tools; /* NULL: none */
    apr_chat_settings settings;
} apr_chat_options;

/* The same with the options of another verb; the call's first operand is the model. */
apr_status apr_chat_with(const apr_call *call, const apr_chat_options *options, apr_error *err);

#endif
