/* prompt.h - a text for a model: given on the command line, or read from a file, a pipe or stdin. */
#ifndef APR_TOOLS_PROMPT_H
#define APR_TOOLS_PROMPT_H

#include "formats/base/status.h"

#include <stddef.h>

/* Everything that `path` gives, malloc'ed and NUL-terminated: a file, a FIFO, a device; "-" is stdin. A folder, and more than
 * APR_PROMPT_MAX_BYTES, are refused (APR_E_IO, APR_E_UNSUPPORTED). */
#define APR_PROMPT_MAX_BYTES ((size_t)256 << 20)
apr_status apr_read_stream(const char *path, char **text, size_t *n_bytes, apr_error *err);

/* The prompt: `text`, or the contents of `file`; "-" for either is stdin, and so are both NULL when stdin is no terminal.
 * From stdin, one line end at the very end is the shell's, and left out. APR_E_USAGE when both or neither are given. */
apr_status apr_read_prompt(const char *text, const char *file, char **prompt, size_t *n_bytes, apr_error *err);

#endif
