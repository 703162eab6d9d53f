/* prompt.h - a text for a model: given on the command line, or read from a file, a pipe or stdin. */
#ifndef APR_TOOLS_PROMPT_H
#define APR_TOOLS_PROMPT_H

#include "formats/base/map.h"

/* What a model is calibrated, measured or compared by. */
typedef struct apr_text {
    const char *path;  /* as it was given; borrowed */
    const char *bytes; /* not NUL-terminated; never NULL */
    size_t n_bytes;
    apr_map map; /* where it is a file; else zeros */
    char *own;   /* what was read from elsewhere, or NULL */
} apr_text;

/* The one reader of texts. A regular file is an input from then on, as the model's files are: no output takes its place. What else gives
 * bytes (a FIFO, a device; "-" is stdin) is read to its end: a folder, and more than APR_PROMPT_MAX_BYTES, are refused (APR_E_IO,
 * APR_E_UNSUPPORTED). A zeroed apr_text may be closed. */
#define APR_PROMPT_MAX_BYTES ((size_t)256 << 20)
apr_status apr_text_open(apr_text *text, const char *path, apr_error *err);
void apr_text_close(apr_text *text);

/* The prompt: `text`, or the contents of `file`; "-" for either is stdin, and so are both NULL when stdin is no terminal.
 * From stdin, one line end at the very end is the shell's, and left out. APR_E_USAGE when both or neither are given. */
apr_status apr_read_prompt(const char *text, const char *file, char **prompt, size_t *n_bytes, apr_error *err);

#endif
