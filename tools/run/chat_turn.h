/* chat_turn.h - one answer of a conversation: the messages in the model's chat template, of which only what is new is evaluated.
 *
 * An answer is what `aprrun batch` answers to the same messages: the whole conversation is rendered and tokenized each time, and what begins
 * as the tokens that were evaluated before stays in the session (apr_session_keep_prefix). */
#ifndef APR_TOOLS_CHAT_TURN_H
#define APR_TOOLS_CHAT_TURN_H

#include "runtime/session/generate.h"
#include "tools/run/answer_stream.h"
#include "tools/run/chat_messages.h"
#include "tools/run/sampling.h"

/* What may change from answer to answer. */
typedef struct apr_chat_settings {
    int64_t n; /* tokens of an answer; 0: until the model ends it, or the context is full */
    apr_sampling sampling;
} apr_chat_settings;

typedef struct apr_chat_session {
    apr_running *running;
    double now; /* the same for all templates, so that a date in them does not change the beginning */
    bool print, is_terminal;
    const char *before;       /* shown before an answer, or NULL */
    bool (*is_stopped)(void); /* asked between evaluations: true stops the answer */
    int32_t *held;            /* [n_ctx + 1], of which apr_session_position are evaluated */
} apr_chat_session;

typedef struct apr_chat_turn {
    apr_finish finish; /* CALLER: it was stopped */
    bool at_stop_text;
    int64_t n_prompt, n_kept, n_generated; /* tokens of the conversation; of them, those that were evaluated before; of the answer */
    double read_seconds, write_seconds;
    char *text; /* [n_text] of the answer, UTF-8 */
    size_t n_text;
    int32_t *ids; /* [n_generated] */
} apr_chat_turn;

apr_status apr_chat_session_open(apr_chat_session *session, apr_running *running, apr_error *err);
void apr_chat_session_close(apr_chat_session *session);

/* Answers messages that end with a question. APR_E_NO: they fill the context, and nothing was evaluated. The turn is to be closed in any case.
 * n_tries: answers to it so far, which are not to come again where they are drawn. */
apr_status apr_chat_answer(apr_chat_session *session, const apr_messages *messages, const apr_chat_settings *settings, int64_t n_tries,
                           apr_chat_turn *turn, apr_error *err);
void apr_chat_turn_close(apr_chat_turn *turn);
/* The context is full: what can be done. */
apr_status apr_chat_fail_full(const apr_chat_session *session, apr_error *err);

#endif
