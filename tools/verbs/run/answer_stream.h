/* answer_stream.h - collects an answer's tokens as they come, and prints their text as far as it is certain (answer_text.h).
 *
 * On a terminal control characters are made visible. With `as_decoded` the text is printed as apr_tokenizer_decode would give it, in valid
 * UTF-8: SentencePiece's leading space is left out, a character is printed when it is complete, and invalid bytes become U+FFFD. */
#ifndef APR_TOOLS_ANSWER_STREAM_H
#define APR_TOOLS_ANSWER_STREAM_H

#include "tools/engine/requests/answer_text.h"
#include "tools/report/text.h"
#include "tools/verbs/run/running.h"

/* Set running, the flags and text.stops; the rest begins as zeros. */
typedef struct apr_answer_stream {
    const apr_running *running;
    bool show_special, print, is_terminal, as_decoded;
    const char *before;     /* printed once, before the text; NULL: nothing */
    bool (*is_ended)(void); /* called at each token; true ends the answer; NULL: never */
    apr_terminal_text terminal;
    apr_answer_text text;
    int32_t *ids; /* [n_ids] the stop id included */
    size_t n_ids, capacity;
    bool has_text; /* a token with text has come */
    bool failed;   /* no memory */
} apr_answer_stream;

/* The on_token of apr_generate_options; user: the stream. */
bool apr_answer_stream_take(void *user, int32_t id, bool is_stop);
/* Prints the rest. False: stdout cannot be written. */
bool apr_answer_stream_end(apr_answer_stream *stream);
void apr_answer_stream_close(apr_answer_stream *stream);

#endif
