/* tokenizer_regex_internal.h - what the two parts of the translator share: tokenizer_regex.c reads expressions (groups, repeats,
 * escapes), tokenizer_regex_class.c reads sets of characters (brackets, properties, \w and its kin). */
#ifndef APR_RUNTIME_TOKENIZER_REGEX_INTERNAL_H
#define APR_RUNTIME_TOKENIZER_REGEX_INTERNAL_H

#include "runtime/tokenizer/tokenizer_regex.h"

#include <stdbool.h>
#include <stdint.h>

/* A growing text; a failed allocation is remembered. */
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
    bool ignore_case, dot_all; /* (?i) and Ruby's (?m), where the reader is */
    uint32_t last_literal;     /* the literal character right before, 0: something else; see apr_regex_check_case */
} apr_regex_reader;

void apr_regex_put(apr_regex_text *text, const char *part);
void apr_regex_put_char(apr_regex_text *text, uint32_t c); /* so that it means itself, inside brackets and outside */

/* Refuses what lies between `from` and r->at. */
apr_status apr_regex_refuse(const apr_regex_reader *r, size_t from, const char *why);
/* The next character, 0 at the end; r->at is behind it. The pattern is UTF-8. */
uint32_t apr_regex_next(apr_regex_reader *r);
/* The byte at r->at + ahead, 0 behind the end. */
char apr_regex_peek(const apr_regex_reader *r, size_t ahead);

/* The character that an escape stands for: r->at is behind the letter c of "\c". False in *is_char when it stands for none. */
apr_status apr_regex_escaped_char(apr_regex_reader *r, size_t from, uint32_t letter, uint32_t *c, bool *is_char);

/* Under (?i) Oniguruma also folds one character to several ("ss" is U+00DF, "st" U+FB06) and folds properties; PCRE2 does not.
 * Refuses literals and sets where that could show. `before`: the literal in front, 0: none. */
apr_status apr_regex_check_case(const apr_regex_reader *r, size_t from, uint32_t before, uint32_t c);

/* tokenizer_regex_class.c */
/* "[...]": r->at is behind the first bracket. Writes an expression that takes exactly one character. */
apr_status apr_regex_class(apr_regex_reader *r, apr_regex_text *out);
/* \w, \d, \s, \h, \p{...} and their opposites as the inside of brackets; r->at is behind the letter. NULL when the letter is none of
 * them; *negated for what is not in it. */
apr_status apr_regex_set(apr_regex_reader *r, size_t from, uint32_t letter, const char **inside, bool *negated);

/* Oniguruma's \w, as the inside of brackets. It tests single characters below U+0100 by a table of its own, in which superscript
 * digits and fractions are word characters; within brackets it does not. */
#define APR_REGEX_WORD      "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define APR_REGEX_BARE_WORD APR_REGEX_WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

#endif
