/* prompt.h - the prompt of a run: from the command line, a file, a pipe or stdin. */
#ifndef APR_TOOLS_PROMPT_H
#define APR_TOOLS_PROMPT_H

#include "formats/base/status.h"

#include <stddef.h>

/* The prompt: `text`, or the contents of `file`. "-" for either is stdin; both NULL is also stdin if that is not a terminal. One line end
 * at the end of stdin is dropped. APR_E_USAGE if both are given, or if there is no prompt. *prompt is malloc'ed. */
apr_status apr_read_prompt(const char *text, const char *file, char **prompt, size_t *n_bytes, apr_error *err);

#endif
