/* chat.h - a conversation: the state that chat_verb.c (reads and answers) and chat_commands.c share. */
#ifndef APR_TOOLS_CHAT_H
#define APR_TOOLS_CHAT_H

#include "tools/verbs/run/chat_input.h"
#include "tools/verbs/run/chat_turn.h"

typedef struct apr_chat {
    const apr_call *call;
    apr_running running;
    apr_chat_session session;
    apr_chat_settings settings;
    apr_messages messages;
    apr_chat_input input;
    bool is_terminal;                     /* stdin is a terminal */
    bool is_ended;                        /* /exit */
    apr_chat_turn last;                   /* the last answer, for /stats */
    int64_t n_answers, n_failed, n_tries; /* n_tries: how often the last question was answered again */
    int64_t n_read, n_kept, n_written;    /* tokens of all answers: read, kept evaluated, generated */
} apr_chat;

/* Adds a message of the user and answers it. If that is not possible, prints why and removes the message (n_failed). Returns only errors
 * that end the conversation. */
apr_status apr_chat_ask(apr_chat *chat, const char *text, size_t n_bytes, apr_error *err);
/* Answers the last question again. */
apr_status apr_chat_retry(apr_chat *chat, apr_error *err);
/* Prints a line to the user, on stderr. */
void apr_chat_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints why something could not be done; with --json as an object on stdout. */
void apr_chat_refuse(apr_chat *chat, const apr_error *why);

/* chat_commands.c: is the text a command ("/undo")? Then apr_chat_run_command runs it, and may change the text. */
bool apr_chat_is_command(const char *text, size_t n_bytes);
apr_status apr_chat_run_command(apr_chat *chat, char *text, apr_error *err);

#endif
