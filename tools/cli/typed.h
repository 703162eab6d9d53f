/* typed.h - the command as it was typed, with changes: what a sentence names for the next attempt. */
#ifndef APR_TOOLS_TYPED_H
#define APR_TOOLS_TYPED_H

#include "formats/base/status.h"

#include <stddef.h>

/* argv[0] is not read: the tool's name stands there. */
typedef struct apr_typed {
    const char *tool;
    int argc;
    char *const *argv;
} apr_typed;

/* The last argument `was` (or the value `was` of --option=was) becomes `is`. `was` NULL: `is` is put at the end; `is` NULL: the argument is
 * left out. `is` is one argument, or several between single spaces where `words` says so. */
typedef struct apr_change {
    const char *was, *is;
    int words;
} apr_change;

/* The whole command, quoted for a shell. Returns text; "" when it does not fit. */
char *apr_typed_text(char *text, size_t capacity, const apr_typed *typed, const apr_change *changes, size_t n_changes);

/* Adds "; try: COMMAND" to the sentence of a failure, where there is room for all of it. typed NULL: adds nothing. Returns status. */
apr_status apr_try_instead(apr_status status, const apr_typed *typed, const apr_change *changes, size_t n_changes, apr_error *err);

/* One change, as is usual. */
static inline apr_status apr_try_change(apr_status status, const apr_typed *typed, const char *was, const char *is, apr_error *err)
{
    const apr_change change = {.was = was, .is = is};
    return apr_try_instead(status, typed, &change, 1, err);
}

#endif
