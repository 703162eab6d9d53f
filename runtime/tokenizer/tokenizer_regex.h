/* tokenizer_regex.h - the regular expressions of a tokenizer, which are untrusted: translates them from Oniguruma's syntax to PCRE2's,
 * compiles and matches them.
 *
 * The expressions of tokenizer.json are written for Oniguruma with Ruby's syntax. PCRE2 compiles most of them, but gives some another
 * meaning: `[a&&b]` (an intersection), `[a[bc]]` (a union), `\h` (a hexadecimal digit), `\w` (letters, marks, decimal digits,
 * connectors), `\s`, `\v`, `a{1,3}+` (a repeat of a repeat), `{,3}`, `(?m)` (the dot matches newlines), `\p{Han}` (the script, not its
 * extensions), `a(?i)b|c`, `^` and `$` at every line. So each expression is parsed and written again. An atom with the same meaning in
 * both is kept, any other one is replaced by an equivalent, and one without an equivalent is an error that names it.
 *
 * The result has no capturing groups. It is compiled with PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE and '\n' as the only newline. The
 * characters of a property follow PCRE2's Unicode version.
 *
 * Steps, memory and depth of a match are limited, and so is the total time: an expression from a hostile file ends with
 * APR_E_UNSUPPORTED. */
#ifndef APR_RUNTIME_TOKENIZER_REGEX_H
#define APR_RUNTIME_TOKENIZER_REGEX_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include "formats/base/status.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *translated is malloc'ed and NUL-terminated; the caller frees it. APR_E_UNSUPPORTED, with the construct and its byte: PCRE2 has no
 * equivalent, or it is an error in Oniguruma also. */
apr_status apr_regex_translate(const char *pattern, char **translated, apr_error *err);
/* Translates and compiles. Free the code with pcre2_code_free. */
apr_status apr_regex_compile(const char *pattern, pcre2_code **code, apr_error *err);

/* What the matches of one call share. */
typedef struct apr_matcher {
    pcre2_match_context *context; /* NULL: not yet opened */
    pcre2_jit_stack *jit_stack;
    double until; /* deadline, in seconds of the monotonic clock */
} apr_matcher;

/* Opens a zeroed matcher; adds the time for n_bytes of text. Close it, also after an error. */
apr_status apr_matcher_open(apr_matcher *matcher, size_t n_bytes, apr_error *err);
void apr_matcher_close(apr_matcher *matcher);

/* A piece of a text: bytes [start, end). */
typedef struct apr_span {
    uint32_t start, end;
    bool is_match;
} apr_span;

/* The matches of one expression, and the text between them, in order. */
typedef struct apr_matches {
    apr_span *spans;
    size_t n_spans, capacity;
    pcre2_match_data *data;
} apr_matches;

/* Replaces the spans by those of this text. n_counted: the size that limits the steps of a match. Zeroed matches may be closed. */
apr_status apr_matches_find(apr_matches *matches, apr_matcher *matcher, const pcre2_code *code, const char *text, size_t n_bytes,
                            size_t n_counted, apr_error *err);
void apr_matches_close(apr_matches *matches);

#endif
