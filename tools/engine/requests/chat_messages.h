/* chat_messages.h - the messages of a conversation, as a chat template and a line of `aprrun batch` take them.
 *
 *     {"messages":[{"role":"system","content":"..."},{"role":"user","content":"..."},{"role":"assistant","content":"..."}],"tools":[...]} */
#ifndef APR_TOOLS_CHAT_MESSAGES_H
#define APR_TOOLS_CHAT_MESSAGES_H

#include "formats/base/json.h"
#include "formats/base/status.h"

/* Zeroed: an empty conversation. */
typedef struct apr_messages {
    cJSON *list;  /* of messages; NULL: none */
    cJSON *tools; /* a list for the template; NULL: none */
} apr_messages;

void apr_messages_close(apr_messages *messages);

/* Appends. APR_E_DAMAGED: the text is not UTF-8, or has a NUL, which no chat template takes. */
apr_status apr_messages_add(apr_messages *messages, const char *role, const char *text, size_t n_bytes, apr_error *err);
/* Sets the system message, which comes first; an empty text removes it. Errors as above. */
apr_status apr_messages_set_system(apr_messages *messages, const char *text, apr_error *err);
const char *apr_messages_system(const apr_messages *messages); /* NULL: none */

int apr_messages_count_turns(const apr_messages *messages);         /* messages of the user */
bool apr_messages_ends_with_question(const apr_messages *messages); /* the last message is the user's */
/* undo removes the user's last message and all after it, drop_answer only what is after it. False: the user has no message. */
bool apr_messages_undo(apr_messages *messages);
bool apr_messages_drop_answer(apr_messages *messages);
void apr_messages_clear(apr_messages *messages); /* all but the system message */

/* Writes one line. Replaces only a file that is empty or a saved conversation. */
apr_status apr_messages_save(const apr_messages *messages, const char *path, apr_error *err);
/* Replaces the messages, and the tools if the file has some. On failure nothing changes. */
apr_status apr_messages_load(apr_messages *messages, const char *path, apr_error *err);
/* A list of tools, or an object that has one. */
apr_status apr_messages_load_tools(apr_messages *messages, const char *path, apr_error *err);

#endif
