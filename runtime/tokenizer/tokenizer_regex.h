/* tokenizer_regex.h - a tokenizer's splitting expression, from Oniguruma's dialect to PCRE2's.
 *
 * tokenizer.json's expressions are written for Oniguruma with Ruby's syntax. PCRE2 compiles most of them too, but reads some
 * otherwise: `[a&&b]` (an intersection), `[a[bc]]` (a union), `\h` (a hexadecimal digit), `\w` (letters, marks, decimal digits,
 * connectors), `\s`, `\v`, `a{1,3}+` (a repeat of a repeat), `{,3}`, `(?m)` (the dot takes newlines), `\p{Han}` (the script, not its
 * extensions), `a(?i)b|c`, `^` and `$` at every line. So each expression is parsed here and written anew: every atom that means the
 * same in both is kept, every other one is spelled out, and what has no spelling is refused by name, never passed on.
 *
 * The result is to be compiled with PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE and '\n' as the only newline. Groups capture nothing
 * in it. Which characters a property has is the Unicode version's of PCRE2. */
#ifndef APR_RUNTIME_TOKENIZER_REGEX_H
#define APR_RUNTIME_TOKENIZER_REGEX_H

#include "formats/base/status.h"

#include <stddef.h>

enum {
    APR_REGEX_MAX_BYTES = 16 * 1024, /* of an expression as the file has it */
    APR_REGEX_MAX_NESTING = 100      /* of groups and of classes */
};

/* *translated is malloc'ed and NUL-terminated; the caller frees it. APR_E_UNSUPPORTED, with the construct and its byte, for what
 * cannot be said in PCRE2 or is an error in Oniguruma too. */
apr_status apr_regex_translate(const char *pattern, char **translated, apr_error *err);

#endif
