/* text_input.h - a text for a model, from a file, a pipe or stdin. */
#ifndef APR_ENGINE_TEXT_INPUT_H
#define APR_ENGINE_TEXT_INPUT_H

#include "formats/files/map.h"

/* A text to calibrate, measure or compare a model with. */
typedef struct apr_text_input {
    const char *path;  /* as given; borrowed */
    const char *bytes; /* not NUL-terminated; never NULL */
    size_t n_bytes;
    apr_map map; /* if it is a regular file; else zeros */
    char *own;   /* the bytes if they were read from a stream; else NULL */
} apr_text_input;

/* Opens a text. A regular file is mapped and becomes an input, so that no output can replace it. A FIFO, a device or "-" (stdin) is read
 * to its end. A folder gives APR_E_IO; a stream of more than APR_PROMPT_MAX_BYTES gives APR_E_UNSUPPORTED. Closing a zeroed apr_text_input is
 * allowed. */
#define APR_PROMPT_MAX_BYTES ((size_t)256 << 20)
apr_status apr_text_input_open(apr_text_input *text, const char *path, apr_error *err);
void apr_text_input_close(apr_text_input *text);

/* All bytes of `path` ("-": stdin), malloc'ed and NUL-terminated. Errors as above. */
apr_status apr_read_stream(const char *path, char **text, size_t *n_bytes, apr_error *err);

#endif
