/* chat_input.h - what the user says: a line, or several: between two """, or as long as lines end in a backslash. */
#ifndef APR_TOOLS_CHAT_INPUT_H
#define APR_TOOLS_CHAT_INPUT_H

#include "tools/run/batch_lines.h"

#include <stdio.h>

/* Zeroed but for the descriptor, its name, and `prompts`. */
typedef struct apr_chat_input {
    apr_line_reader lines;
    FILE *prompts;            /* where "> " goes; NULL: nowhere */
    bool (*is_stopped)(void); /* asked while there is nothing to read */
    char *text;               /* [n_bytes] and a NUL */
    size_t n_bytes, capacity;
} apr_chat_input;

typedef enum { APR_CHAT_TEXT, APR_CHAT_STOPPED, APR_CHAT_END } apr_chat_what;

/* The next text, not empty, in input->text until the next call. STOPPED: is_stopped said so, and what was begun is dropped. A text that the
 * end of the input cuts off is handed out. */
apr_status apr_chat_input_read(apr_chat_input *input, apr_chat_what *what, apr_error *err);
void apr_chat_input_close(apr_chat_input *input); /* of memory; not the file */

#endif
