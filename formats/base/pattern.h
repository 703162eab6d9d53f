/* pattern.h - regular expressions (PCRE2) that users and files ask to look for in names.
 *
 * A match has three results: found, not found, and given up. An expression that backtracks too long is given up, and that is a failure
 * with a sentence, never "not found". Bounds are set for steps, memory, nesting and size, so a hostile expression costs milliseconds. */
#ifndef APR_FORMATS_PATTERN_H
#define APR_FORMATS_PATTERN_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>

typedef struct apr_pattern apr_pattern;

typedef enum apr_pattern_flags {
    APR_PATTERN_OF_USER = 1, /* both failures below are APR_E_USAGE, and more steps are granted */
    APR_PATTERN_UTF = 2,     /* characters instead of bytes; in a name that is not UTF-8 nothing is found */
    APR_PATTERN_AT_START = 4 /* the match has to begin where the name begins */
} apr_pattern_flags;

/* *pattern lives in the arena. where: a file or an option, for sentences; where and text are borrowed. APR_E_DAMAGED: it is not a regular
 * expression. '$' is the end of the name alone. */
apr_status apr_pattern_compile(const apr_pattern **pattern, const char *where, const char *text, unsigned flags, apr_arena *arena,
                               apr_error *err);

/* Is it somewhere in the name? APR_E_UNSUPPORTED: given up. Threads may share a pattern. */
apr_status apr_pattern_find(const apr_pattern *pattern, const char *name, bool *found, apr_error *err);

#endif
