/* pattern.h - regular expressions (PCRE2) from users and files, matched against names.
 *
 * A match has three results: found, not found, or given up. An expression that backtracks too long is given up; that is an error
 * with a message, never "not found". Steps, memory, nesting and size are bounded, so a hostile expression costs milliseconds. */
#ifndef APR_FORMATS_PATTERN_H
#define APR_FORMATS_PATTERN_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>

typedef struct apr_pattern apr_pattern;

typedef enum apr_pattern_flags {
    APR_PATTERN_OF_USER = 1, /* both failures below are APR_E_USAGE, and the step limit is higher */
    APR_PATTERN_UTF = 2,     /* match characters instead of bytes; a name that is not UTF-8 never matches */
    APR_PATTERN_AT_START = 4 /* the match has to begin where the name begins */
} apr_pattern_flags;

/* *pattern lives in the arena. where: a file or an option, for messages; where and text are borrowed. APR_E_DAMAGED: not a regular
 * expression. '$' matches only at the end of the name. */
apr_status apr_pattern_compile(const apr_pattern **pattern, const char *where, const char *text, unsigned flags, apr_arena *arena,
                               apr_error *err);

/* Does the name contain a match? APR_E_UNSUPPORTED: given up. Threads may share a pattern. */
apr_status apr_pattern_find(const apr_pattern *pattern, const char *name, bool *found, apr_error *err);

#endif
