/* answer_stream.h - an answer's tokens as they come: collected, and their text shown as far as it can be (answer_text.h).
 *
 * To a terminal control characters are made visible. With `as_decoded` the shown text is what apr_tokenizer_decode makes of the tokens, as
 * UTF-8: SentencePiece's space in front is left out, characters are shown when they are complete, and bytes that are none become U+FFFD. */
#ifndef APR_TOOLS_ANSWER_STREAM_H
#define APR_TOOLS_ANSWER_STREAM_H

#include "tools/cli/text.h"
#include "tools/run/answer_text.h"
#include "tools/run/running.h"

/* Begins with running, the flags and text.stops set, and else zeros. */
typedef struct apr_answer_stream {
    const apr_running *running;
    bool show_special, print, is_terminal, as_decoded;
    const char *before;     /* NULL, or shown once, before the text */
    bool (*is_ended)(void); /* NULL, or asked at each token: true ends the answer */
    apr_terminal_text terminal;
    apr_answer_text text;
    int32_t *ids; /* [n_ids] the stop id included */
    size_t n_ids, capacity;
    bool has_text; /* a token with bytes came */
    bool failed;   /* no memory */
} apr_answer_stream;

/* As apr_generate_options asks for it; user: the stream. */
bool apr_answer_stream_take(void *user, int32_t id, bool is_stop);
/* Nothing follows. False: stdout cannot be written. */
bool apr_answer_stream_end(apr_answer_stream *stream);
void apr_answer_stream_close(apr_answer_stream *stream);

#endif
