/* chat_turn.h - one answer of a conversation. Of the rendered messages only the new tokens are evaluated.
 *
 * An answer is the same as that of `aprrun batch` to the same messages. The whole conversation is rendered and tokenized each time. The
 * prefix that equals the tokens evaluated before stays in the session (apr_session_keep_prefix). */
#ifndef APR_TOOLS_CHAT_TURN_H
#define APR_TOOLS_CHAT_TURN_H

#include "runtime/session/generate.h"
#include "tools/engine/requests/chat_messages.h"
#include "tools/verbs/run/answer_stream.h"
#include "tools/verbs/run/sampling.h"

/* What may change from answer to answer. */
typedef struct apr_chat_settings {
    int64_t n; /* tokens of an answer; 0: until the model ends it, or the context is full */
    apr_sampling sampling;
} apr_chat_settings;

typedef struct apr_chat_session {
    apr_running *running;
    double now; /* constant, so that a date in the template does not change the prefix */
    bool print, is_terminal;
    const char *before;       /* printed before an answer, or NULL */
    bool (*is_stopped)(void); /* called between evaluations; true stops the answer */
    int32_t *held;            /* [n_ctx + 1] tokens, of which apr_session_position are evaluated */
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

/* Answers messages that end with a question. APR_E_NO: they fill the context, and nothing was evaluated. Close the turn in any case.
 * n_tries: earlier answers to the same question; with sampling each gets another seed. */
apr_status apr_chat_answer(apr_chat_session *session, const apr_messages *messages, const apr_chat_settings *settings, int64_t n_tries,
                           apr_chat_turn *turn, apr_error *err);
void apr_chat_turn_close(apr_chat_turn *turn);
/* Fails because the context is full; the sentence says what the user can do. */
apr_status apr_chat_fail_full(const apr_chat_session *session, apr_error *err);

#endif
