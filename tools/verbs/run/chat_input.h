/* chat_input.h - reads what the user says: a line, several lines between two """, or several that end in a backslash. */
#ifndef APR_TOOLS_CHAT_INPUT_H
#define APR_TOOLS_CHAT_INPUT_H

#include "tools/engine/requests/batch_lines.h"

#include <stdio.h>

/* Set the descriptor, its name, prompts and is_stopped; the rest begins as zeros. */
typedef struct apr_chat_input {
    apr_line_reader lines;
    FILE *prompts;            /* where "> " goes; NULL: nowhere */
    bool (*is_stopped)(void); /* called while there is nothing to read; true ends the wait; NULL: never */
    char *text;               /* [n_bytes] and a NUL */
    size_t n_bytes, capacity;
} apr_chat_input;

typedef enum { APR_CHAT_TEXT, APR_CHAT_STOPPED, APR_CHAT_END } apr_chat_what;

/* Reads the next text that is not blank into input->text, valid until the next call. STOPPED: is_stopped returned true, and an unfinished
 * text was dropped. A text that the end of the input cuts off is returned. */
apr_status apr_chat_input_read(apr_chat_input *input, apr_chat_what *what, apr_error *err);
void apr_chat_input_close(apr_chat_input *input); /* frees memory; does not close the file */

#endif
