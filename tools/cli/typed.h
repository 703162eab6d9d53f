/* typed.h - corrected commands for error messages: the command as it was typed, with changes. */
#ifndef APR_TOOLS_TYPED_H
#define APR_TOOLS_TYPED_H

#include "formats/base/status.h"

#include <stddef.h>

/* argv[0] is not read; `tool` is used instead. */
typedef struct apr_typed {
    const char *tool;
    int argc;
    char *const *argv;
} apr_typed;

/* The last argument `was` (or the value `was` in --option=was) becomes `is`. `was` NULL: `is` is appended. `is` NULL: the argument is left
 * out. `is` is one argument; if `words` is set, it is several, separated by single blanks. */
typedef struct apr_change {
    const char *was, *is;
    int words;
} apr_change;

/* Writes the whole command, quoted for a shell. Returns text, which is "" if the command does not fit. */
char *apr_typed_text(char *text, size_t capacity, const apr_typed *typed, const apr_change *changes, size_t n_changes);

/* Appends "; try: COMMAND" to an error message if all of it fits. typed NULL: appends nothing. Returns status. */
apr_status apr_try_instead(apr_status status, const apr_typed *typed, const apr_change *changes, size_t n_changes, apr_error *err);

/* The same with one change. */
static inline apr_status apr_try_change(apr_status status, const apr_typed *typed, const char *was, const char *is, apr_error *err)
{
    const apr_change change = {.was = was, .is = is};
    return apr_try_instead(status, typed, &change, 1, err);
}

#endif
