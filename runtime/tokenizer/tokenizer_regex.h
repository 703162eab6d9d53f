/* tokenizer_regex.h - translates a tokenizer's splitting expression from Oniguruma's syntax to PCRE2's.
 *
 * The expressions of tokenizer.json are written for Oniguruma with Ruby's syntax. PCRE2 compiles most of them, but gives some another
 * meaning: `[a&&b]` (an intersection), `[a[bc]]` (a union), `\h` (a hexadecimal digit), `\w` (letters, marks, decimal digits,
 * connectors), `\s`, `\v`, `a{1,3}+` (a repeat of a repeat), `{,3}`, `(?m)` (the dot matches newlines), `\p{Han}` (the script, not its
 * extensions), `a(?i)b|c`, `^` and `$` at every line. So each expression is parsed and written again. An atom with the same meaning in
 * both is kept, any other one is replaced by an equivalent, and one without an equivalent is an error that names it.
 *
 * Compile the result with PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE and '\n' as the only newline. It has no capturing groups. The
 * characters of a property follow PCRE2's Unicode version. */
#ifndef APR_RUNTIME_TOKENIZER_REGEX_H
#define APR_RUNTIME_TOKENIZER_REGEX_H

#include "formats/base/status.h"

#include <stddef.h>

enum {
    APR_REGEX_MAX_BYTES = 16 * 1024, /* of an expression in the file */
    APR_REGEX_MAX_NESTING = 100      /* of groups and of classes */
};

/* *translated is malloc'ed and NUL-terminated; the caller frees it. APR_E_UNSUPPORTED, with the construct and its byte: PCRE2 has no
 * equivalent, or it is an error in Oniguruma also. */
apr_status apr_regex_translate(const char *pattern, char **translated, apr_error *err);

#endif
