/* chat.h - a conversation: what chat_verb.c, which reads and answers, and chat_commands.c share. */
#ifndef APR_TOOLS_CHAT_H
#define APR_TOOLS_CHAT_H

#include "tools/run/chat_input.h"
#include "tools/run/chat_turn.h"

typedef struct apr_chat {
    const apr_call *call;
    apr_running running;
    apr_chat_session session;
    apr_chat_settings settings;
    apr_messages messages;
    apr_chat_input input;
    bool is_terminal;                     /* the user types */
    bool is_ended;                        /* /exit */
    apr_chat_turn last;                   /* the last answer, for /stats */
    int64_t n_answers, n_failed, n_tries; /* n_tries: answers to the last question but the first */
    int64_t n_read, n_kept, n_written;    /* tokens, of all answers */
} apr_chat;

/* Adds what the user says and answers it. What cannot be answered is said and taken back (n_failed); an error that ends the conversation is
 * returned. */
apr_status apr_chat_ask(apr_chat *chat, const char *text, size_t n_bytes, apr_error *err);
/* Answers the last question again. */
apr_status apr_chat_retry(apr_chat *chat, apr_error *err);
/* A line of the program to the user, on stderr. */
void apr_chat_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same of what could not be done; with --json an object on stdout. */
void apr_chat_refuse(apr_chat *chat, const apr_error *why);

/* chat_commands.c: is the text a command ("/undo")? Then it is carried out; text may be changed. */
bool apr_chat_is_command(const char *text, size_t n_bytes);
apr_status apr_chat_command(apr_chat *chat, char *text, apr_error *err);

#endif
