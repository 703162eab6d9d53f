/* chat_messages.h - what has been said in a conversation: messages as a chat template takes them, and as a line of `aprrun batch` has them.
 *
 *     {"messages":[{"role":"system","content":"..."},{"role":"user","content":"..."},{"role":"assistant","content":"..."}],"tools":[...]} */
#ifndef APR_TOOLS_CHAT_MESSAGES_H
#define APR_TOOLS_CHAT_MESSAGES_H

#include "formats/base/json.h"
#include "formats/base/status.h"

/* Zeroed: nothing has been said. */
typedef struct apr_messages {
    cJSON *list;  /* of messages; NULL: none */
    cJSON *tools; /* a list for the template; NULL: none */
} apr_messages;

void apr_messages_close(apr_messages *messages);

/* Appends. APR_E_DAMAGED: the text is not UTF-8, or has a NUL, which no chat template takes. */
apr_status apr_messages_add(apr_messages *messages, const char *role, const char *text, size_t n_bytes, apr_error *err);
/* The system message in front, or none where the text is empty. As above. */
apr_status apr_messages_set_system(apr_messages *messages, const char *text, apr_error *err);
const char *apr_messages_system(const apr_messages *messages); /* NULL: none */

int apr_messages_count_turns(const apr_messages *messages);         /* messages of the user */
bool apr_messages_ends_with_question(const apr_messages *messages); /* the last message is the user's */
/* Takes back the user's last message and what came after it, or what came after it alone. False: the user has said nothing. */
bool apr_messages_undo(apr_messages *messages);
bool apr_messages_drop_answer(apr_messages *messages);
void apr_messages_clear(apr_messages *messages); /* all but the system message */

/* One line, over a file that is empty or a saved conversation itself; any other is refused. */
apr_status apr_messages_save(const apr_messages *messages, const char *path, apr_error *err);
/* Messages, and tools where the file has some, in place of those that were there; on failure these stay. */
apr_status apr_messages_load(apr_messages *messages, const char *path, apr_error *err);
/* A list of tools, or an object that has one. */
apr_status apr_messages_load_tools(apr_messages *messages, const char *path, apr_error *err);

#endif
