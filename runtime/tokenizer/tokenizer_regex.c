/* tokenizer_regex.c - translates Oniguruma's groups, repeats, anchors and escapes. Sets: tokenizer_regex_class.c. */
#include "runtime/tokenizer/tokenizer_regex.h"
#include "runtime/tokenizer/tokenizer_regex_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* --- text --- */

static void put_bytes(apr_regex_text *text, const char *bytes, size_t n)
{
    if (text->n_bytes + n + 1 > text->capacity) {
        const size_t capacity = 2 * (text->n_bytes + n) + 64;
        char *const grown = text->failed ? NULL : realloc(text->bytes, capacity);
        if (grown == NULL) {
            text->failed = true;
            return;
        }
        text->bytes = grown;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->n_bytes, bytes, n);
    text->n_bytes += n;
    text->bytes[text->n_bytes] = '\0';
}

void apr_regex_put(apr_regex_text *text, const char *part)
{
    if (part == NULL) text->failed = true; /* the allocation of that text failed */
    else put_bytes(text, part, strlen(part));
}

void apr_regex_put_char(apr_regex_text *text, uint32_t c)
{
    char escaped[16];
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    snprintf(escaped, sizeof escaped, plain ? "%c" : "\\x{%x}", (unsigned)c);
    apr_regex_put(text, escaped);
}

/* Makes the text from `start` on one atom: wraps it in (?:...). */
static void wrap(apr_regex_text *text, size_t start)
{
    apr_regex_put(text, "(?:)"); /* grows the text by four bytes */
    if (text->failed) return;
    memmove(text->bytes + start + 3, text->bytes + start, text->n_bytes - 4 - start);
    memcpy(text->bytes + start, "(?:", 3);
    text->bytes[text->n_bytes - 1] = ')';
}

/* --- reading --- */

apr_status apr_regex_refuse(const apr_regex_reader *r, size_t from, const char *why)
{
    const size_t n = r->at > from ? r->at - from : 0;
    return apr_fail(r->err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern has '%.*s' at byte %zu: %s", n > 60 ? 60 : (int)n,
                    r->pattern + from, from, why);
}

uint32_t apr_regex_next(apr_regex_reader *r)
{
    utf8proc_int32_t c;
    if (r->at >= r->n_bytes) return 0;
    const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)r->pattern + r->at, (utf8proc_ssize_t)(r->n_bytes - r->at), &c);
    r->at += n > 0 ? (size_t)n : 1; /* the pattern was checked to be UTF-8 */
    return n > 0 ? (uint32_t)c : 0xfffd;
}

char apr_regex_peek(const apr_regex_reader *r, size_t ahead) { return r->at + ahead < r->n_bytes ? r->pattern[r->at + ahead] : '\0'; }

static bool take(apr_regex_reader *r, const char *text)
{
    const size_t n = strlen(text);
    if (r->n_bytes - r->at < n || memcmp(r->pattern + r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *const at = c != '\0' ? memchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c, 16) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* Reads up to `limit` digits of base 8 or 16. Returns the number of digits. */
static int read_digits(apr_regex_reader *r, int base, int limit, uint32_t *value)
{
    int n = 0;
    *value = 0;
    for (; n < limit; n++, r->at++) {
        const int digit = hex_digit(apr_regex_peek(r, 0));
        if (digit < 0 || digit >= base) break;
        *value = *value * (uint32_t)base + (uint32_t)digit;
    }
    return n;
}

/* \x{...}, \xHH, \uHHHH, \0oo. A byte above 0x7f is a part of a character in Oniguruma, and a character in PCRE2. */
static apr_status numbered_char(apr_regex_reader *r, size_t from, uint32_t letter, uint32_t *c)
{
    const bool braced = letter == 'x' && take(r, "{"), is_byte = !braced && letter != 'u';
    const int limit = braced ? 8 : letter == 'u' ? 4 : 2, n = read_digits(r, letter == '0' ? 8 : 16, limit, c);

    if ((braced && !take(r, "}")) || (n == 0 && letter != '0') || (letter == 'u' && n != 4))
        return apr_regex_refuse(r, from, "this is not the number of a character");
    if (*c > 0x10ffff || (*c >= 0xd800 && *c <= 0xdfff)) return apr_regex_refuse(r, from, "there is no such character");
    return is_byte && *c > 0x7f ? apr_regex_refuse(r, from, "single bytes of a character are not supported") : APR_OK;
}

apr_status apr_regex_escaped_char(apr_regex_reader *r, size_t from, uint32_t letter, uint32_t *c, bool *is_char)
{
    static const char letters[] = "ntrfvae", means[] = "\n\t\r\f\v\a\x1b";
    const char *const known = letter < 0x80 && letter != 0 ? strchr(letters, (int)letter) : NULL;
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9');

    *is_char = true;
    *c = letter;
    if (known != NULL) *c = (uint32_t)means[known - letters];
    else if (letter == 'x' || letter == 'u' || letter == '0') return numbered_char(r, from, letter, c);
    else *is_char = !is_letter && letter != 0;
    return APR_OK;
}

/* --- upper and lower case --- */

/* Lower and upper case differ, or the character folds to something else. */
static bool has_case(uint32_t c)
{
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const utf8proc_int32_t one = (utf8proc_int32_t)c;
    if (utf8proc_tolower(one) != one || utf8proc_toupper(one) != one) return true;
    const utf8proc_ssize_t n = utf8proc_decompose_char(one, folded, 8, UTF8PROC_CASEFOLD, &boundary);
    return n != 1 || folded[0] != one;
}

static bool is_mark(uint32_t c)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_LM;
}

apr_status apr_regex_check_case(const apr_regex_reader *r, size_t from, uint32_t before, uint32_t c)
{
    static const char *const folds[] = {"ss", "st", "ff", "fi", "fl"};
    const bool ascii = c < 0x80 && before < 0x80;

    if (!r->ignore_case) return APR_OK;
    if (c >= 0x80 && has_case(c)) return apr_regex_refuse(r, from, "letters beyond ASCII under (?i) are not supported");
    for (size_t i = 0; ascii && i < sizeof folds / sizeof *folds; i++)
        if ((before | 0x20) == (uint32_t)folds[i][0] && (c | 0x20) == (uint32_t)folds[i][1])
            return apr_regex_refuse(r, from, "letters that have a ligature are not supported under (?i)");
    if (before != 0 && !ascii && (is_mark(before) || is_mark(c)))
        return apr_regex_refuse(r, from, "a mark next to a letter under (?i) is not supported");
    return APR_OK;
}

/* --- atoms --- */

static apr_status put_literal(apr_regex_reader *r, size_t from, uint32_t c)
{
    APR_TRY(apr_regex_check_case(r, from, r->last_literal, c));
    apr_regex_put_char(&r->out, c);
    r->last_literal = c;
    return APR_OK;
}

/* Only an ATOM may be repeated. */
typedef enum { ATOM, ANCHOR, NOTHING } atom_kind;

static apr_status expression(apr_regex_reader *r, int depth);

static apr_status escape(apr_regex_reader *r, size_t from, atom_kind *kind)
{
    static const struct {
        char letter;
        const char *text;
        atom_kind kind;
    } same[] = {
        {'A', "\\A", ANCHOR},
        {'Z', "\\Z", ANCHOR},
        {'z', "\\z", ANCHOR},
        {'R', "\\R", ATOM},
        {'b', "(?:(?<=[" APR_REGEX_BARE_WORD "])(?![" APR_REGEX_BARE_WORD "])|(?<![" APR_REGEX_BARE_WORD "])(?=[" APR_REGEX_BARE_WORD "]))",
         ANCHOR},
        {'B', "(?:(?<=[" APR_REGEX_BARE_WORD "])(?=[" APR_REGEX_BARE_WORD "])|(?<![" APR_REGEX_BARE_WORD "])(?![" APR_REGEX_BARE_WORD "]))",
         ANCHOR}};
    const uint32_t letter = apr_regex_next(r);
    const char *inside;
    bool negated, is_char;
    uint32_t c;

    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (letter == (uint32_t)same[i].letter) {
            apr_regex_put(&r->out, same[i].text);
            *kind = same[i].kind;
            r->last_literal = 0;
            return APR_OK;
        }
    APR_TRY(apr_regex_set(r, from, letter, &inside, &negated));
    if (inside != NULL) {
        apr_regex_put(&r->out, negated ? "[^" : "[");
        apr_regex_put(&r->out, strcmp(inside, APR_REGEX_WORD) == 0 ? APR_REGEX_BARE_WORD : inside);
        apr_regex_put(&r->out, "]");
        r->last_literal = 0;
        return APR_OK;
    }
    APR_TRY(apr_regex_escaped_char(r, from, letter, &c, &is_char));
    return is_char ? put_literal(r, from, c) : apr_regex_refuse(r, from, "this escape is not supported");
}

/* "(?i", "(?m-i"; r->at is after the question mark. Ruby's m is PCRE2's s. */
static apr_status options(apr_regex_reader *r, size_t from)
{
    bool on = true, ignore_case = r->ignore_case, dot_all = r->dot_all;

    for (char c = apr_regex_peek(r, 0); c != ':' && c != ')'; c = apr_regex_peek(r, 0)) {
        r->at += c != '\0';
        if (c == '-') on = false;
        else if (c == 'i') ignore_case = on;
        else if (c == 'm') dot_all = on;
        else if (c == 'x' && !on) continue; /* x is never on */
        else return apr_regex_refuse(r, from, "this kind of group is not supported");
    }
    r->ignore_case = ignore_case;
    r->dot_all = dot_all;
    apr_regex_put(&r->out, ignore_case ? dot_all ? "(?is:" : "(?i-s:" : dot_all ? "(?s-i:" : "(?-is:");
    return APR_OK;
}

/* Skips the name of "(?<name>"; references to it are not supported. */
static apr_status skip_name(apr_regex_reader *r, size_t from)
{
    uint32_t c = apr_regex_next(r);
    while (c != '>' && c != 0) c = apr_regex_next(r);
    return c != 0 ? APR_OK : apr_regex_refuse(r, from, "the group's name is not closed");
}

/* Writes the start of a group. *isolated: it is "(?i)" or the like, which applies up to the end of the enclosing group. */
static apr_status open_group(apr_regex_reader *r, size_t from, atom_kind *kind, bool *isolated)
{
    static const char *const around[] = {"?=", "?!", "?<=", "?<!"};

    *isolated = false;
    for (size_t i = 0; i < sizeof around / sizeof *around; i++)
        if (take(r, around[i])) {
            apr_regex_put(&r->out, "(");
            apr_regex_put(&r->out, around[i]);
            *kind = ANCHOR;
            return APR_OK;
        }
    if (take(r, "?>")) {
        apr_regex_put(&r->out, "(?>");
        return APR_OK;
    }
    if (apr_regex_peek(r, 0) == '*') {
        r->at++;
        return apr_regex_refuse(r, from, "this kind of group is not supported");
    }
    if (take(r, "?<")) APR_TRY(skip_name(r, from));
    else if (!take(r, "?:") && take(r, "?")) {
        APR_TRY(options(r, from));
        *isolated = apr_regex_peek(r, 0) == ')';
        r->at++;
        return APR_OK;
    }
    apr_regex_put(&r->out, "(?:");
    return APR_OK;
}

static apr_status group(apr_regex_reader *r, size_t from, int depth, atom_kind *kind)
{
    const bool ignore_case = r->ignore_case, dot_all = r->dot_all;
    bool isolated;

    APR_TRY(open_group(r, from, kind, &isolated));
    APR_TRY(expression(r, depth + 1));
    apr_regex_put(&r->out, ")");
    if (isolated) { /* it ends with its parent, which reads the bracket */
        *kind = NOTHING;
        return APR_OK;
    }
    if (!take(r, ")")) return apr_regex_refuse(r, from, "the group is not closed");
    r->ignore_case = ignore_case;
    r->dot_all = dot_all;
    return APR_OK;
}

/* --- repeats --- */

typedef struct interval {
    uint32_t low, high; /* high UINT32_MAX: unlimited */
    bool fixed;         /* {n} */
} interval;

static bool read_count(apr_regex_reader *r, uint32_t *count)
{
    const size_t from = r->at;
    uint64_t n = 0;
    for (char c = apr_regex_peek(r, 0); c >= '0' && c <= '9' && n < 1000000; r->at++, c = apr_regex_peek(r, 0))
        n = n * 10 + (uint64_t)(c - '0');
    *count = (uint32_t)n;
    return r->at > from;
}

/* Reads "{n}", "{n,}", "{n,m}" or "{,m}". False: a literal brace; r->at is unchanged. */
static bool read_interval(apr_regex_reader *r, interval *i)
{
    const size_t from = r->at;
    *i = (interval){.high = UINT32_MAX};
    if (take(r, "{")) {
        const bool has_low = read_count(r, &i->low), has_comma = take(r, ",");
        i->fixed = has_low && !has_comma;
        const bool has_high = has_comma && read_count(r, &i->high);
        if (!has_high) i->high = i->fixed ? i->low : UINT32_MAX;
        if ((has_low || has_high) && take(r, "}")) return true;
    }
    r->at = from;
    return false;
}

static apr_status put_interval(apr_regex_reader *r, size_t from, interval i)
{
    char text[40];
    if (i.low > i.high) return apr_regex_refuse(r, from, "a repeat whose maximum is below its minimum is not supported");
    if (i.low > 65535 || (i.high > 65535 && i.high != UINT32_MAX))
        return apr_regex_refuse(r, from, "a repeat of more than 65535 is not supported");
    if (i.high == UINT32_MAX) snprintf(text, sizeof text, "{%u,}", (unsigned)i.low);
    else snprintf(text, sizeof text, "{%u,%u}", (unsigned)i.low, (unsigned)i.high);
    apr_regex_put(&r->out, text);
    /* in Oniguruma "{n}?" and "{...}+" repeat the repeat; only "{n,m}?" is lazy */
    if (!i.fixed && take(r, "?")) apr_regex_put(&r->out, "?");
    return APR_OK;
}

/* "(?#...)" */
static apr_status skip_comments(apr_regex_reader *r)
{
    for (size_t from = r->at; take(r, "(?#"); from = r->at) {
        uint32_t c = apr_regex_next(r);
        for (; c != ')' && c != 0; c = apr_regex_next(r))
            if (c == '\\') apr_regex_next(r);
        if (c == 0) return apr_regex_refuse(r, from, "the comment is not closed");
    }
    return APR_OK;
}

/* Translates the repeats after the atom that was written from `start` on. */
static apr_status repeats(apr_regex_reader *r, size_t start, atom_kind kind)
{
    for (bool repeated = false;; repeated = true) {
        const size_t from = r->at;
        const char c = apr_regex_peek(r, 0);
        const bool is_sign = c == '*' || c == '+' || c == '?';
        interval i;

        if (!is_sign && !read_interval(r, &i)) return APR_OK;
        if (is_sign) r->at++;
        if (kind != ATOM) return apr_regex_refuse(r, from, "there is nothing to repeat");
        if (repeated) wrap(&r->out, start);
        r->last_literal = 0;
        if (is_sign) {
            const char sign[2] = {c, '\0'};
            apr_regex_put(&r->out, sign);
            if (take(r, "?")) apr_regex_put(&r->out, "?");
            else if (take(r, "+")) apr_regex_put(&r->out, "+");
        } else {
            APR_TRY(put_interval(r, from, i));
        }
        APR_TRY(skip_comments(r));
    }
}

/* --- expressions --- */

static apr_status atom(apr_regex_reader *r, int depth, atom_kind *kind)
{
    const size_t from = r->at;
    interval i;

    *kind = ATOM;
    if (read_interval(r, &i)) return apr_regex_refuse(r, from, "there is nothing to repeat");
    const uint32_t c = apr_regex_next(r);
    switch (c) {
    case '(': return group(r, from, depth, kind);
    case '[': r->last_literal = 0; return apr_regex_class(r, &r->out);
    case '\\': return escape(r, from, kind);
    case '*':
    case '+':
    case '?': return apr_regex_refuse(r, from, "there is nothing to repeat");
    case '.': r->last_literal = 0; break;
    case '^':
    case '$':
        r->last_literal = 0;
        *kind = ANCHOR;
        break;
    default: return put_literal(r, from, c);
    }
    apr_regex_put(&r->out, (const char[2]){(char)c, '\0'});
    return APR_OK;
}

/* Translates up to the end of the pattern, or up to the bracket that closes the group. */
static apr_status expression(apr_regex_reader *r, int depth)
{
    if (depth > APR_REGEX_MAX_NESTING) return apr_regex_refuse(r, r->at, "groups are nested too deeply");
    for (;;) {
        atom_kind kind;
        APR_TRY(skip_comments(r));
        const char c = apr_regex_peek(r, 0);
        if (r->at == r->n_bytes || c == ')') return APR_OK;
        if (c == '|') {
            r->at++;
            r->last_literal = 0;
            apr_regex_put(&r->out, "|");
            continue;
        }
        const size_t start = r->out.n_bytes;
        APR_TRY(atom(r, depth, &kind));
        APR_TRY(skip_comments(r));
        APR_TRY(repeats(r, start, kind));
    }
}

static apr_status translate(apr_regex_reader *r)
{
    if (r->n_bytes > APR_REGEX_MAX_BYTES)
        return apr_fail(r->err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern has %zu bytes; at most %d are supported", r->n_bytes,
                        (int)APR_REGEX_MAX_BYTES);
    for (size_t at = 0; at < r->n_bytes;) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)r->pattern + at, (utf8proc_ssize_t)(r->n_bytes - at), &c);
        if (n <= 0) return apr_fail(r->err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern is not UTF-8 at byte %zu", at);
        at += (size_t)n;
    }
    apr_regex_put(&r->out, ""); /* never NULL */
    APR_TRY(expression(r, 0));
    const size_t from = r->at;
    if (apr_regex_next(r) != 0) return apr_regex_refuse(r, from, "no group begins before this");
    return r->out.failed ? apr_no_memory(r->err, "the tokenizer's splitting pattern") : APR_OK;
}

apr_status apr_regex_translate(const char *pattern, char **translated, apr_error *err)
{
    apr_regex_reader r = {.pattern = pattern, .n_bytes = strlen(pattern), .err = err};

    const apr_status status = translate(&r);
    *translated = status == APR_OK ? r.out.bytes : NULL;
    if (status != APR_OK) free(r.out.bytes);
    return status;
}
