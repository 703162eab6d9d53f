/* tokenizer_regex_internal.h - shared by the two files of the translator: tokenizer_regex.c reads expressions (groups, repeats, escapes),
 * tokenizer_regex_class.c reads sets of characters (brackets, properties, \w and the like). */
#ifndef APR_RUNTIME_TOKENIZER_REGEX_INTERNAL_H
#define APR_RUNTIME_TOKENIZER_REGEX_INTERNAL_H

#include "runtime/tokenizer/tokenizer_regex.h"

#include <stdbool.h>
#include <stdint.h>

/* A growable text; `failed` records a failed allocation. */
typedef struct apr_regex_text {
    char *bytes; /* NUL-terminated, or NULL while it is empty */
    size_t n_bytes, capacity;
    bool failed;
} apr_regex_text;

typedef struct apr_regex_reader {
    const char *pattern;
    size_t n_bytes, at;
    apr_error *err;
    apr_regex_text out;
    bool ignore_case, dot_all; /* (?i) and Ruby's (?m) are on at the reader's position */
    uint32_t last_literal;     /* the literal character just before; 0: not a literal; see apr_regex_check_case */
} apr_regex_reader;

void apr_regex_put(apr_regex_text *text, const char *part);
void apr_regex_put_char(apr_regex_text *text, uint32_t c); /* escaped if it has a special meaning inside or outside brackets */

/* APR_E_UNSUPPORTED with the pattern's text between `from` and r->at, and the reason. */
apr_status apr_regex_refuse(const apr_regex_reader *r, size_t from, const char *why);
/* Reads the next character; 0 at the end. The pattern is valid UTF-8. */
uint32_t apr_regex_next(apr_regex_reader *r);
/* The byte at r->at + ahead; 0 after the end. */
char apr_regex_peek(const apr_regex_reader *r, size_t ahead);

/* The character of an escape; r->at is after the letter of "\c". *is_char is false if the escape is not a character. */
apr_status apr_regex_escaped_char(apr_regex_reader *r, size_t from, uint32_t letter, uint32_t *c, bool *is_char);

/* Under (?i), Oniguruma also folds one character to several ("ss" is U+00DF, "st" U+FB06) and folds properties; PCRE2 does not.
 * APR_E_UNSUPPORTED for literals and sets where this makes a difference. `before`: the literal before c; 0: none. */
apr_status apr_regex_check_case(const apr_regex_reader *r, size_t from, uint32_t before, uint32_t c);

/* tokenizer_regex_class.c */
/* "[...]"; r->at is after the first bracket. Writes an expression that matches exactly one character. */
apr_status apr_regex_class(apr_regex_reader *r, apr_regex_text *out);
/* \w, \d, \s, \h, \p{...} and their complements, as the inside of brackets; r->at is after the letter. *inside is NULL if the letter is
 * none of them; *negated: the complement. */
apr_status apr_regex_set(apr_regex_reader *r, size_t from, uint32_t letter, const char **inside, bool *negated);

/* Oniguruma's \w, as the inside of brackets. Outside of brackets it uses a table for characters below U+0100, in which superscript digits
 * and fractions are word characters; inside brackets they are not. */
#define APR_REGEX_WORD      "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define APR_REGEX_BARE_WORD APR_REGEX_WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

#endif
