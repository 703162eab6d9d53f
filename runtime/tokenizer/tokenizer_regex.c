/* tokenizer_regex.c - regular expressions of a tokenizer: translates them from Oniguruma's syntax to PCRE2's, compiles them, and lists
 * their matches within limits. */
#include "runtime/tokenizer/tokenizer_regex.h"

#include "formats/base/clock.h"
#include "runtime/tokenizer/tokenizer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum {
    MAX_BYTES = 16 * 1024, /* of an expression in the file */
    MAX_NESTING = 100      /* of groups and of classes */
};

/* Oniguruma's \w, as the inside of brackets. Outside of brackets it uses a table for characters below U+0100, in which superscript digits
 * and fractions are word characters; inside brackets they are not. */
#define WORD      "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define BARE_WORD WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

/* A growable text; `failed` records a failed allocation. */
typedef struct text_buffer {
    char *bytes; /* NUL-terminated, or NULL while it is empty */
    size_t n_bytes, capacity;
    bool failed;
} text_buffer;

typedef struct reader {
    const char *pattern;
    size_t n_bytes, at;
    apr_error *err;
    text_buffer out;
    bool ignore_case, dot_all; /* (?i) and Ruby's (?m) are on at the reader's position */
    uint32_t last_literal;     /* the literal character just before; 0: not a literal; see check_case */
} reader;

/* --- text --- */

static void put_bytes(text_buffer *text, const char *bytes, size_t n)
{
    char *const grown = text->failed ? NULL : apr_grow(text->bytes, &text->capacity, text->n_bytes + n + 1, 1);
    if (grown == NULL) {
        text->failed = true;
        return;
    }
    text->bytes = grown;
    memcpy(text->bytes + text->n_bytes, bytes, n);
    text->n_bytes += n;
    text->bytes[text->n_bytes] = '\0';
}

static void put(text_buffer *text, const char *part)
{
    if (part == NULL) text->failed = true; /* the allocation of that text failed */
    else put_bytes(text, part, strlen(part));
}

/* Escapes what has a special meaning inside or outside brackets. */
static void put_char(text_buffer *text, uint32_t c)
{
    char escaped[16];
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    snprintf(escaped, sizeof escaped, plain ? "%c" : "\\x{%x}", (unsigned)c);
    put(text, escaped);
}

/* Makes the text from `start` on one atom: wraps it in (?:...). */
static void wrap(text_buffer *text, size_t start)
{
    put(text, "(?:)"); /* grows the text by four bytes */
    if (text->failed) return;
    memmove(text->bytes + start + 3, text->bytes + start, text->n_bytes - 4 - start);
    memcpy(text->bytes + start, "(?:", 3);
    text->bytes[text->n_bytes - 1] = ')';
}

/* --- reading --- */

/* APR_E_UNSUPPORTED with the pattern's text between `from` and r->at, and the reason. */
static apr_status refuse(const reader *r, size_t from, const char *why)
{
    const size_t n = r->at > from ? r->at - from : 0;
    return apr_fail(r->err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern has '%.*s' at byte %zu: %s", n > 60 ? 60 : (int)n,
                    r->pattern + from, from, why);
}

/* Reads the next character; 0 at the end. The pattern is valid UTF-8. */
static uint32_t next_char(reader *r)
{
    utf8proc_int32_t c;
    if (r->at >= r->n_bytes) return 0;
    const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)r->pattern + r->at, (utf8proc_ssize_t)(r->n_bytes - r->at), &c);
    r->at += n > 0 ? (size_t)n : 1; /* the pattern was checked to be UTF-8 */
    return n > 0 ? (uint32_t)c : 0xfffd;
}

/* The byte at r->at + ahead; 0 after the end. */
static char peek(const reader *r, size_t ahead) { return r->at + ahead < r->n_bytes ? r->pattern[r->at + ahead] : '\0'; }

static bool take(reader *r, const char *text)
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
static int read_digits(reader *r, int base, int limit, uint32_t *value)
{
    int n = 0;
    *value = 0;
    for (; n < limit; n++, r->at++) {
        const int digit = hex_digit(peek(r, 0));
        if (digit < 0 || digit >= base) break;
        *value = *value * (uint32_t)base + (uint32_t)digit;
    }
    return n;
}

/* \x{...}, \xHH, \uHHHH, \0oo. A byte above 0x7f is a part of a character in Oniguruma, and a character in PCRE2. */
static apr_status numbered_char(reader *r, size_t from, uint32_t letter, uint32_t *c)
{
    const bool braced = letter == 'x' && take(r, "{"), is_byte = !braced && letter != 'u';
    const int limit = braced ? 8 : letter == 'u' ? 4 : 2, n = read_digits(r, letter == '0' ? 8 : 16, limit, c);

    if ((braced && !take(r, "}")) || (n == 0 && letter != '0') || (letter == 'u' && n != 4))
        return refuse(r, from, "this is not the number of a character");
    if (*c > 0x10ffff || (*c >= 0xd800 && *c <= 0xdfff)) return refuse(r, from, "there is no such character");
    return is_byte && *c > 0x7f ? refuse(r, from, "single bytes of a character are not supported") : APR_OK;
}

/* The character of an escape; r->at is after the letter of "\c". *is_char is false if the escape is not a character. */
static apr_status escaped_char(reader *r, size_t from, uint32_t letter, uint32_t *c, bool *is_char)
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

/* Under (?i), Oniguruma also folds one character to several ("ss" is U+00DF, "st" U+FB06) and folds properties; PCRE2 does not.
 * APR_E_UNSUPPORTED for literals and sets where this makes a difference. `before`: the literal before c; 0: none. */
static apr_status check_case(const reader *r, size_t from, uint32_t before, uint32_t c)
{
    static const char *const folds[] = {"ss", "st", "ff", "fi", "fl"};
    const bool ascii = c < 0x80 && before < 0x80;

    if (!r->ignore_case) return APR_OK;
    if (c >= 0x80 && has_case(c)) return refuse(r, from, "letters beyond ASCII under (?i) are not supported");
    for (size_t i = 0; ascii && i < sizeof folds / sizeof *folds; i++)
        if ((before | 0x20) == (uint32_t)folds[i][0] && (c | 0x20) == (uint32_t)folds[i][1])
            return refuse(r, from, "letters that have a ligature are not supported under (?i)");
    if (before != 0 && !ascii && (is_mark(before) || is_mark(c)))
        return refuse(r, from, "a mark next to a letter under (?i) is not supported");
    return APR_OK;
}

/* --- sets of characters ---
 *
 * PCRE2's brackets can only hold characters, ranges and properties. So a set is translated to two texts: one for the inside of a pair of
 * brackets, and alternatives for the rest. `[a&&b]` becomes (?=a)b, and a complement becomes (?!set) and any character. Each result matches
 * exactly one character, also inside a lookbehind. */

/* Unicode's White_Space */
#define SPACES  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define HEX     "0-9A-Fa-f"
#define ANY_ONE "(?s:.)"

/* --- names --- */

typedef struct named_set {
    const char *name; /* lower case, without spaces, hyphens and underscores */
    const char *inside;
} named_set;

#define SCRIPT(name, written)       \
    {                               \
        name, "\\p{sc:" written "}" \
    }
#define CATEGORY(letters, name, written) \
    {letters, "\\p{" written "}"}, { name, "\\p{" written "}" }

/* names that [[:name:]] also accepts */
static const named_set posix_sets[] = {
    {"alpha", "\\p{Alphabetic}"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"blank", "\\p{Zs}\\x{9}"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"lower", "\\p{Lowercase}"},
    {"punct", "\\p{P}\\p{S}"},
    {"space", SPACES},
    {"upper", "\\p{Uppercase}"},
    {"xdigit", HEX},
    {"word", WORD},
    {"ascii", "\\x{0}-\\x{7f}"},
    {NULL, NULL},
};

static const named_set properties[] = {
    {"any", "\\x{0}-\\x{10ffff}"},
    CATEGORY("c", "other", "C"),
    CATEGORY("cc", "control", "Cc"),
    CATEGORY("cf", "format", "Cf"),
    CATEGORY("cn", "unassigned", "Cn"),
    CATEGORY("co", "privateuse", "Co"),
    CATEGORY("l", "letter", "L"),
    CATEGORY("lc", "casedletter", "L&"),
    CATEGORY("ll", "lowercaseletter", "Ll"),
    CATEGORY("lm", "modifierletter", "Lm"),
    CATEGORY("lo", "otherletter", "Lo"),
    CATEGORY("lt", "titlecaseletter", "Lt"),
    CATEGORY("lu", "uppercaseletter", "Lu"),
    CATEGORY("m", "mark", "M"),
    CATEGORY("mc", "spacingmark", "Mc"),
    CATEGORY("me", "enclosingmark", "Me"),
    CATEGORY("mn", "nonspacingmark", "Mn"),
    CATEGORY("n", "number", "N"),
    CATEGORY("nd", "decimalnumber", "Nd"),
    CATEGORY("nl", "letternumber", "Nl"),
    CATEGORY("no", "othernumber", "No"),
    CATEGORY("p", "punctuation", "P"),
    {"punct", "\\p{P}"}, /* differs from [[:punct:]] */
    CATEGORY("pc", "connectorpunctuation", "Pc"),
    CATEGORY("pd", "dashpunctuation", "Pd"),
    CATEGORY("pe", "closepunctuation", "Pe"),
    CATEGORY("pf", "finalpunctuation", "Pf"),
    CATEGORY("pi", "initialpunctuation", "Pi"),
    CATEGORY("po", "otherpunctuation", "Po"),
    CATEGORY("ps", "openpunctuation", "Ps"),
    CATEGORY("s", "symbol", "S"),
    CATEGORY("sc", "currencysymbol", "Sc"),
    CATEGORY("sk", "modifiersymbol", "Sk"),
    CATEGORY("sm", "mathsymbol", "Sm"),
    CATEGORY("so", "othersymbol", "So"),
    CATEGORY("z", "separator", "Z"),
    CATEGORY("zl", "lineseparator", "Zl"),
    CATEGORY("zp", "paragraphseparator", "Zp"),
    CATEGORY("zs", "spaceseparator", "Zs"),
    {"alphabetic", "\\p{Alphabetic}"},
    {"lowercase", "\\p{Lowercase}"},
    {"uppercase", "\\p{Uppercase}"},
    {"whitespace", SPACES},
    SCRIPT("arabic", "Arabic"),
    SCRIPT("armenian", "Armenian"),
    SCRIPT("bengali", "Bengali"),
    SCRIPT("bopomofo", "Bopomofo"),
    SCRIPT("cyrillic", "Cyrillic"),
    SCRIPT("devanagari", "Devanagari"),
    SCRIPT("ethiopic", "Ethiopic"),
    SCRIPT("georgian", "Georgian"),
    SCRIPT("greek", "Greek"),
    SCRIPT("gujarati", "Gujarati"),
    SCRIPT("gurmukhi", "Gurmukhi"),
    SCRIPT("han", "Han"),
    SCRIPT("hangul", "Hangul"),
    SCRIPT("hebrew", "Hebrew"),
    SCRIPT("hiragana", "Hiragana"),
    SCRIPT("kannada", "Kannada"),
    SCRIPT("katakana", "Katakana"),
    SCRIPT("khmer", "Khmer"),
    SCRIPT("lao", "Lao"),
    SCRIPT("latin", "Latin"),
    SCRIPT("malayalam", "Malayalam"),
    SCRIPT("mongolian", "Mongolian"),
    SCRIPT("myanmar", "Myanmar"),
    SCRIPT("oriya", "Oriya"),
    SCRIPT("sinhala", "Sinhala"),
    SCRIPT("tamil", "Tamil"),
    SCRIPT("telugu", "Telugu"),
    SCRIPT("thai", "Thai"),
    SCRIPT("tibetan", "Tibetan"),
    {NULL, NULL},
};

static const char *find_set(const named_set *sets, const char *name)
{
    while (sets->name != NULL && strcmp(sets->name, name) != 0) sets++;
    return sets->inside;
}

/* Reads a name up to and including `end`, in lower case, without spaces, hyphens and underscores. False: not a valid name. */
static bool read_name(reader *r, char end, char name[32])
{
    size_t n = 0;
    for (char c = peek(r, 0); c != end; r->at++, c = peek(r, 0)) {
        const bool is_kept = c != ' ' && c != '-' && c != '_';
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (is_kept && (!is_letter || n == 31)) return false;
        if (is_kept) name[n++] = (char)(c | 0x20);
    }
    r->at++;
    name[n] = '\0';
    return true;
}

/* "{Name}" or "{^Name}" */
static apr_status property(reader *r, size_t from, const char **inside, bool *negated)
{
    char name[32];
    bool known = peek(r, 0) == '{';

    r->at += known;
    if (known && peek(r, 0) == '^') {
        *negated = !*negated;
        r->at++;
    }
    known = known && read_name(r, '}', name);
    if (known) *inside = find_set(properties, name);
    if (known && *inside == NULL) *inside = find_set(posix_sets, name);
    if (*inside == NULL) return refuse(r, from, "this property is not supported");
    return r->ignore_case ? refuse(r, from, "a property under (?i) is not supported") : APR_OK;
}

/* \w, \d, \s, \h, \p{...} and their complements, as the inside of brackets; r->at is after the letter. *inside is NULL if the letter is
 * none of them; *negated: the complement. */
static apr_status find_class(reader *r, size_t from, uint32_t letter, const char **inside, bool *negated)
{
    static const struct {
        char letter;
        const char *inside;
    } sets[] = {{'w', WORD}, {'d', "\\p{Nd}"}, {'s', SPACES}, {'h', HEX}};

    *inside = NULL;
    *negated = letter >= 'A' && letter <= 'Z';
    if (letter == 'p' || letter == 'P') return property(r, from, inside, negated);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if ((letter | 0x20) == (uint32_t)sets[i].letter) *inside = sets[i].inside;
    return APR_OK;
}

/* --- brackets --- */

/* A set while it is read. */
typedef struct char_set {
    text_buffer inside;       /* text for the inside of one pair of brackets */
    text_buffer alternatives; /* the rest, "|" before each */
    text_buffer ahead;        /* operands of && so far, each as a lookahead */
    bool has_range;           /* the last item was a range: a "-" after it is ambiguous */
} char_set;

static void close_set(char_set *set)
{
    free(set->inside.bytes);
    free(set->alternatives.bytes);
    free(set->ahead.bytes);
}

/* Writes the union of both texts. */
static void put_union(const char_set *set, text_buffer *out)
{
    const bool mixed = set->alternatives.n_bytes > 0;

    if (mixed) put(out, "(?:");
    if (set->inside.n_bytes > 0) {
        put(out, "[");
        put(out, set->inside.bytes);
        put(out, "]");
    }
    if (mixed) put(out, set->alternatives.bytes + (set->inside.n_bytes > 0 ? 0 : 1));
    if (mixed) put(out, ")");
}

static void put_set(const char_set *set, bool negated, text_buffer *out)
{
    const bool simple = set->alternatives.n_bytes == 0 && set->ahead.n_bytes == 0;

    if (negated && simple) {
        put(out, "[^");
        put(out, set->inside.bytes);
        put(out, "]");
        return;
    }
    if (negated) put(out, "(?:(?!");
    if (set->ahead.n_bytes > 0) {
        put(out, "(?:");
        put(out, set->ahead.bytes);
    }
    put_union(set, out);
    if (set->ahead.n_bytes > 0) put(out, ")");
    if (negated) put(out, ")" ANY_ONE ")");
}

static apr_status add_named(reader *r, size_t from, char_set *set, const char *inside, bool negated)
{
    if (r->ignore_case && (negated || strstr(inside, "\\p{") != NULL))
        return refuse(r, from, "this kind of set in brackets under (?i) is not supported");
    if (negated) put(&set->alternatives, "|[^");
    put(negated ? &set->alternatives : &set->inside, inside);
    if (negated) put(&set->alternatives, "]");
    return APR_OK;
}

/* "[:name:]", "[:^name:]"; r->at is after "[:". */
static apr_status posix_set(reader *r, size_t from, char_set *set)
{
    char name[32];
    const bool negated = peek(r, 0) == '^';

    r->at += negated;
    const char *const inside = read_name(r, ':', name) && peek(r, 0) == ']' ? find_set(posix_sets, name) : NULL;
    if (inside == NULL) return refuse(r, from, "this name of a set is not supported");
    r->at++;
    return add_named(r, from, set, inside, negated);
}

/* Reads one character, or reads a set and adds it (*is_char false). */
static apr_status item(reader *r, char_set *set, uint32_t *c, bool *is_char)
{
    const size_t from = r->at;
    const char *inside;
    bool negated;

    *is_char = true;
    *c = next_char(r);
    if (*c == 0) return refuse(r, from, "the set is not closed");
    if (*c != '\\') return APR_OK;
    const uint32_t letter = next_char(r);
    APR_TRY(find_class(r, from, letter, &inside, &negated));
    if (inside != NULL) {
        *is_char = false;
        return add_named(r, from, set, inside, negated);
    }
    if (letter == 'b') { /* inside brackets, \b is a backspace */
        *c = '\b';
        return APR_OK;
    }
    APR_TRY(escaped_char(r, from, letter, c, is_char));
    return *is_char ? APR_OK : refuse(r, from, "this escape is not supported in a set");
}

/* Reads a character or a range. A hyphen before the end of the set, or after \w and the like, is a literal character. */
static apr_status char_or_range(reader *r, char_set *set)
{
    const size_t from = r->at;
    uint32_t low, high;
    bool is_char;

    APR_TRY(item(r, set, &low, &is_char));
    if (is_char && r->pattern[from] == '-' && set->has_range && peek(r, 0) != ']')
        return refuse(r, from, "a hyphen after a range is ambiguous; write \\-");
    set->has_range = false;
    if (!is_char) return APR_OK;
    APR_TRY(check_case(r, from, 0, low));
    put_char(&set->inside, low);
    const char next = peek(r, 1);
    if (peek(r, 0) != '-' || next == ']' || next == '\0') return APR_OK;
    if (next == '[' || (next == '&' && peek(r, 2) == '&')) return refuse(r, from, "this range is not valid");
    r->at++;
    APR_TRY(item(r, set, &high, &is_char));
    if (!is_char || high < low) return refuse(r, from, "this range is not valid");
    if (r->ignore_case && high >= 0x80) return refuse(r, from, "a range beyond ASCII under (?i) is not supported");
    put(&set->inside, "-");
    put_char(&set->inside, high);
    set->has_range = true;
    return APR_OK;
}

static apr_status char_class(reader *r, text_buffer *out, int depth, char_set *into);

/* Reads the members of a set after "[" (and "^"), including the "]". */
static apr_status members(reader *r, char_set *set, int depth)
{
    const size_t from = r->at;

    for (bool empty = true;; empty = false) {
        const size_t here = r->at;
        const char c = peek(r, 0), next = peek(r, 1);
        const bool is_and = c == '&' && next == '&';
        if (empty && (c == ']' || is_and)) return refuse(r, from, "an empty set");
        if (c == ']') {
            r->at++;
            return APR_OK;
        }
        if (is_and) {
            r->at += 2;
            if (peek(r, 0) == ']' || peek(r, 0) == '&') return refuse(r, here, "an empty set");
            put(&set->ahead, "(?=");
            put_union(set, &set->ahead);
            put(&set->ahead, ")");
            set->inside.n_bytes = set->alternatives.n_bytes = 0;
            set->has_range = false;
        } else if (c == '[' && next == ':') {
            r->at += 2;
            APR_TRY(posix_set(r, here, set));
        } else if (c == '[') {
            r->at++;
            set->has_range = false;
            APR_TRY(char_class(r, NULL, depth + 1, set));
        } else {
            APR_TRY(char_or_range(r, set));
        }
    }
}

/* Writes a set to `out`, or adds it to the set `into`. */
static apr_status char_class(reader *r, text_buffer *out, int depth, char_set *into)
{
    char_set set = {0};
    const bool negated = peek(r, 0) == '^';

    if (depth > MAX_NESTING) return refuse(r, r->at, "sets are nested too deeply");
    r->at += negated;
    const apr_status status = members(r, &set, depth);
    if (status == APR_OK && into == NULL) {
        put_set(&set, negated, out);
    } else if (status == APR_OK && !negated && set.alternatives.n_bytes == 0 && set.ahead.n_bytes == 0) {
        put(&into->inside, set.inside.bytes);
    } else if (status == APR_OK) {
        put(&into->alternatives, "|");
        put_set(&set, negated, &into->alternatives);
    }
    r->out.failed = r->out.failed || set.inside.failed || set.alternatives.failed || set.ahead.failed;
    if (into != NULL) r->out.failed = r->out.failed || into->inside.failed || into->alternatives.failed;
    close_set(&set);
    return status;
}

/* "[...]"; r->at is after the first bracket. Writes an expression that matches exactly one character. */
static apr_status put_class(reader *r, text_buffer *out) { return char_class(r, out, 1, NULL); }

/* --- atoms --- */

static apr_status put_literal(reader *r, size_t from, uint32_t c)
{
    APR_TRY(check_case(r, from, r->last_literal, c));
    put_char(&r->out, c);
    r->last_literal = c;
    return APR_OK;
}

/* Only an ATOM may be repeated. */
typedef enum { ATOM, ANCHOR, NOTHING } atom_kind;

static apr_status expression(reader *r, int depth);

static apr_status escape(reader *r, size_t from, atom_kind *kind)
{
    static const struct {
        char letter;
        const char *text;
        atom_kind kind;
    } same[] = {{'A', "\\A", ANCHOR},
                {'Z', "\\Z", ANCHOR},
                {'z', "\\z", ANCHOR},
                {'R', "\\R", ATOM},
                {'b', "(?:(?<=[" BARE_WORD "])(?![" BARE_WORD "])|(?<![" BARE_WORD "])(?=[" BARE_WORD "]))", ANCHOR},
                {'B', "(?:(?<=[" BARE_WORD "])(?=[" BARE_WORD "])|(?<![" BARE_WORD "])(?![" BARE_WORD "]))", ANCHOR}};
    const uint32_t letter = next_char(r);
    const char *inside;
    bool negated, is_char;
    uint32_t c;

    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (letter == (uint32_t)same[i].letter) {
            put(&r->out, same[i].text);
            *kind = same[i].kind;
            r->last_literal = 0;
            return APR_OK;
        }
    APR_TRY(find_class(r, from, letter, &inside, &negated));
    if (inside != NULL) {
        put(&r->out, negated ? "[^" : "[");
        put(&r->out, strcmp(inside, WORD) == 0 ? BARE_WORD : inside);
        put(&r->out, "]");
        r->last_literal = 0;
        return APR_OK;
    }
    APR_TRY(escaped_char(r, from, letter, &c, &is_char));
    return is_char ? put_literal(r, from, c) : refuse(r, from, "this escape is not supported");
}

/* "(?i", "(?m-i"; r->at is after the question mark. Ruby's m is PCRE2's s. */
static apr_status options(reader *r, size_t from)
{
    bool on = true, ignore_case = r->ignore_case, dot_all = r->dot_all;

    for (char c = peek(r, 0); c != ':' && c != ')'; c = peek(r, 0)) {
        r->at += c != '\0';
        if (c == '-') on = false;
        else if (c == 'i') ignore_case = on;
        else if (c == 'm') dot_all = on;
        else if (c == 'x' && !on) continue; /* x is never on */
        else return refuse(r, from, "this kind of group is not supported");
    }
    r->ignore_case = ignore_case;
    r->dot_all = dot_all;
    put(&r->out, ignore_case ? dot_all ? "(?is:" : "(?i-s:" : dot_all ? "(?s-i:" : "(?-is:");
    return APR_OK;
}

/* Skips the name of "(?<name>"; references to it are not supported. */
static apr_status skip_name(reader *r, size_t from)
{
    uint32_t c = next_char(r);
    while (c != '>' && c != 0) c = next_char(r);
    return c != 0 ? APR_OK : refuse(r, from, "the group's name is not closed");
}

/* Writes the start of a group. *isolated: it is "(?i)" or the like, which applies up to the end of the enclosing group. */
static apr_status open_group(reader *r, size_t from, atom_kind *kind, bool *isolated)
{
    static const char *const around[] = {"?=", "?!", "?<=", "?<!"};

    *isolated = false;
    for (size_t i = 0; i < sizeof around / sizeof *around; i++)
        if (take(r, around[i])) {
            put(&r->out, "(");
            put(&r->out, around[i]);
            *kind = ANCHOR;
            return APR_OK;
        }
    if (take(r, "?>")) {
        put(&r->out, "(?>");
        return APR_OK;
    }
    if (peek(r, 0) == '*') {
        r->at++;
        return refuse(r, from, "this kind of group is not supported");
    }
    if (take(r, "?<")) APR_TRY(skip_name(r, from));
    else if (!take(r, "?:") && take(r, "?")) {
        APR_TRY(options(r, from));
        *isolated = peek(r, 0) == ')';
        r->at++;
        return APR_OK;
    }
    put(&r->out, "(?:");
    return APR_OK;
}

static apr_status group(reader *r, size_t from, int depth, atom_kind *kind)
{
    const bool ignore_case = r->ignore_case, dot_all = r->dot_all;
    bool isolated;

    APR_TRY(open_group(r, from, kind, &isolated));
    APR_TRY(expression(r, depth + 1));
    put(&r->out, ")");
    if (isolated) { /* it ends with its parent, which reads the bracket */
        *kind = NOTHING;
        return APR_OK;
    }
    if (!take(r, ")")) return refuse(r, from, "the group is not closed");
    r->ignore_case = ignore_case;
    r->dot_all = dot_all;
    return APR_OK;
}

/* --- repeats --- */

typedef struct interval {
    uint32_t low, high; /* high UINT32_MAX: unlimited */
    bool fixed;         /* {n} */
} interval;

static bool read_count(reader *r, uint32_t *count)
{
    const size_t from = r->at;
    uint64_t n = 0;
    for (char c = peek(r, 0); c >= '0' && c <= '9' && n < 1000000; r->at++, c = peek(r, 0)) n = n * 10 + (uint64_t)(c - '0');
    *count = (uint32_t)n;
    return r->at > from;
}

/* Reads "{n}", "{n,}", "{n,m}" or "{,m}". False: a literal brace; r->at is unchanged. */
static bool read_interval(reader *r, interval *i)
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

static apr_status put_interval(reader *r, size_t from, interval i)
{
    char text[40];
    if (i.low > i.high) return refuse(r, from, "a repeat whose maximum is below its minimum is not supported");
    if (i.low > 65535 || (i.high > 65535 && i.high != UINT32_MAX)) return refuse(r, from, "a repeat of more than 65535 is not supported");
    if (i.high == UINT32_MAX) snprintf(text, sizeof text, "{%u,}", (unsigned)i.low);
    else snprintf(text, sizeof text, "{%u,%u}", (unsigned)i.low, (unsigned)i.high);
    put(&r->out, text);
    /* in Oniguruma "{n}?" and "{...}+" repeat the repeat; only "{n,m}?" is lazy */
    if (!i.fixed && take(r, "?")) put(&r->out, "?");
    return APR_OK;
}

/* "(?#...)" */
static apr_status skip_comments(reader *r)
{
    for (size_t from = r->at; take(r, "(?#"); from = r->at) {
        uint32_t c = next_char(r);
        for (; c != ')' && c != 0; c = next_char(r))
            if (c == '\\') next_char(r);
        if (c == 0) return refuse(r, from, "the comment is not closed");
    }
    return APR_OK;
}

/* Translates the repeats after the atom that was written from `start` on. */
static apr_status repeats(reader *r, size_t start, atom_kind kind)
{
    for (bool repeated = false;; repeated = true) {
        const size_t from = r->at;
        const char c = peek(r, 0);
        const bool is_sign = c == '*' || c == '+' || c == '?';
        interval i;

        if (!is_sign && !read_interval(r, &i)) return APR_OK;
        if (is_sign) r->at++;
        if (kind != ATOM) return refuse(r, from, "there is nothing to repeat");
        if (repeated) wrap(&r->out, start);
        r->last_literal = 0;
        if (is_sign) {
            const char sign[2] = {c, '\0'};
            put(&r->out, sign);
            if (take(r, "?")) put(&r->out, "?");
            else if (take(r, "+")) put(&r->out, "+");
        } else {
            APR_TRY(put_interval(r, from, i));
        }
        APR_TRY(skip_comments(r));
    }
}

/* --- expressions --- */

static apr_status atom(reader *r, int depth, atom_kind *kind)
{
    const size_t from = r->at;
    interval i;

    *kind = ATOM;
    if (read_interval(r, &i)) return refuse(r, from, "there is nothing to repeat");
    const uint32_t c = next_char(r);
    switch (c) {
    case '(': return group(r, from, depth, kind);
    case '[': r->last_literal = 0; return put_class(r, &r->out);
    case '\\': return escape(r, from, kind);
    case '*':
    case '+':
    case '?': return refuse(r, from, "there is nothing to repeat");
    case '.': r->last_literal = 0; break;
    case '^':
    case '$':
        r->last_literal = 0;
        *kind = ANCHOR;
        break;
    default: return put_literal(r, from, c);
    }
    put(&r->out, (const char[2]){(char)c, '\0'});
    return APR_OK;
}

/* Translates up to the end of the pattern, or up to the bracket that closes the group. */
static apr_status expression(reader *r, int depth)
{
    if (depth > MAX_NESTING) return refuse(r, r->at, "groups are nested too deeply");
    for (;;) {
        atom_kind kind;
        APR_TRY(skip_comments(r));
        const char c = peek(r, 0);
        if (r->at == r->n_bytes || c == ')') return APR_OK;
        if (c == '|') {
            r->at++;
            r->last_literal = 0;
            put(&r->out, "|");
            continue;
        }
        const size_t start = r->out.n_bytes;
        APR_TRY(atom(r, depth, &kind));
        APR_TRY(skip_comments(r));
        APR_TRY(repeats(r, start, kind));
    }
}

static apr_status translate(reader *r)
{
    if (r->n_bytes > MAX_BYTES)
        return apr_fail(r->err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern has %zu bytes; at most %d are supported", r->n_bytes,
                        (int)MAX_BYTES);
    for (size_t at = 0; at < r->n_bytes;) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)r->pattern + at, (utf8proc_ssize_t)(r->n_bytes - at), &c);
        if (n <= 0) return apr_fail(r->err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern is not UTF-8 at byte %zu", at);
        at += (size_t)n;
    }
    put(&r->out, ""); /* never NULL */
    APR_TRY(expression(r, 0));
    const size_t from = r->at;
    if (next_char(r) != 0) return refuse(r, from, "no group begins before this");
    return r->out.failed ? apr_no_memory(r->err, "the tokenizer's splitting pattern") : APR_OK;
}

apr_status apr_regex_translate(const char *pattern, char **translated, apr_error *err)
{
    reader r = {.pattern = pattern, .n_bytes = strlen(pattern), .err = err};

    const apr_status status = translate(&r);
    *translated = status == APR_OK ? r.out.bytes : NULL;
    if (status != APR_OK) free(r.out.bytes);
    return status;
}

/* --- compiling and matching --- */

enum {
    MAX_TRANSLATED_BYTES = 1 << 20,
    MIN_MATCH_STEPS = 200 * 1000,
    MATCH_STEPS_PER_BYTE = 8, /* common expressions scan a run of n spaces a few times */
    MAX_HEAP_KIB = 64 * 1024,
    JIT_STACK_BYTES = 512 * 1024
};

/* Time limit: a hundred times what common expressions take. It is checked between matches, and the steps of a match are limited. */
static const double max_seconds = 5.0, max_seconds_per_byte = 20e-6;

static apr_status compile(const char *translated, pcre2_compile_context *context, pcre2_code **compiled, apr_error *err)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR why[128] = "";

    pcre2_set_max_pattern_length(context, MAX_TRANSLATED_BYTES);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_bsr(context, PCRE2_BSR_UNICODE);
    /* anchored: find_match tries each position itself, because the step limit applies to each call of pcre2_match */
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C;
    *compiled = pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED, options, &code, &at, context);
    if (*compiled == NULL && code == PCRE2_ERROR_HEAP_FAILED) return apr_no_memory(err, "the tokenizer's pattern");
    if (*compiled == NULL) {
        pcre2_get_error_message(code, why, sizeof why);
        return apr_fail(err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern does not compile: %s", (const char *)why);
    }
    (void)pcre2_jit_compile(*compiled, PCRE2_JIT_COMPLETE); /* without JIT, matching is interpreted */
    return APR_OK;
}

apr_status apr_regex_compile(const char *pattern, pcre2_code **code, apr_error *err)
{
    char *translated;

    APR_TRY(apr_regex_translate(pattern, &translated, err));
    pcre2_compile_context *const context = pcre2_compile_context_create(NULL);
    const apr_status status = context != NULL ? compile(translated, context, code, err) : apr_no_memory(err, "the tokenizer's pattern");
    free(translated);
    pcre2_compile_context_free(context);
    return status;
}

apr_status apr_matcher_open(apr_matcher *m, size_t n_bytes, apr_error *err)
{
    if (m->context == NULL) {
        m->until = apr_seconds_now() + max_seconds;
        m->context = pcre2_match_context_create(NULL);
        m->jit_stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_BYTES, NULL); /* NULL without JIT; matching works without it */
        if (m->context == NULL) return apr_no_memory(err, "splitting the text");
        pcre2_set_heap_limit(m->context, MAX_HEAP_KIB);
        if (m->jit_stack != NULL) pcre2_jit_stack_assign(m->context, NULL, m->jit_stack);
    }
    m->until += max_seconds_per_byte * (double)n_bytes;
    return APR_OK;
}

void apr_matcher_close(apr_matcher *m)
{
    pcre2_jit_stack_free(m->jit_stack);
    pcre2_match_context_free(m->context);
}

void apr_matches_close(apr_matches *m)
{
    pcre2_match_data_free(m->data);
    free(m->spans);
}

static apr_status match_failed(int code, size_t at, apr_error *err)
{
    PCRE2_UCHAR why[128] = "";
    if (code == PCRE2_ERROR_NOMEMORY) return apr_no_memory(err, "splitting the text");
    pcre2_get_error_message(code, why, sizeof why);
    return apr_fail(err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern failed at byte %zu of the text: %s", at, (const char *)why);
}

static size_t after_char(const char *text, size_t n_bytes, size_t at)
{
    do at++;
    while (at < n_bytes && ((uint8_t)text[at] & 0xc0) == 0x80);
    return at;
}

static apr_status push_span(apr_matches *m, size_t start, size_t end, bool is_match, apr_error *err)
{
    apr_span *const spans = apr_grow(m->spans, &m->capacity, m->n_spans + 1, sizeof m->spans[0]);
    if (spans == NULL) return apr_no_memory(err, "splitting the text");
    m->spans = spans;
    spans[m->n_spans++] = (apr_span){(uint32_t)start, (uint32_t)end, is_match};
    return APR_OK;
}

/* The first match that begins at `from` or later; start = n_bytes + 1: none. */
static apr_status find_match(const apr_matches *m, const apr_matcher *matcher, const pcre2_code *code, const char *text, size_t n_bytes,
                             size_t from, apr_span *found, apr_error *err)
{
    for (size_t at = from; at <= n_bytes; at = after_char(text, n_bytes, at)) {
        if (apr_seconds_now() > matcher->until)
            return apr_fail(err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern takes too long for %zu bytes of text", n_bytes);
        const int result = pcre2_match(code, (PCRE2_SPTR)text, n_bytes, at, PCRE2_NO_UTF_CHECK, m->data, matcher->context);
        if (result == PCRE2_ERROR_NOMATCH) continue;
        if (result < 0) return match_failed(result, at, err);
        const PCRE2_SIZE *const span = pcre2_get_ovector_pointer(m->data);
        *found = (apr_span){(uint32_t)span[0], (uint32_t)span[1], true};
        return APR_OK;
    }
    *found = (apr_span){.start = (uint32_t)n_bytes + 1};
    return APR_OK;
}

/* An empty match counts, except directly after another match. */
apr_status apr_matches_find(apr_matches *m, apr_matcher *matcher, const pcre2_code *code, const char *text, size_t n_bytes,
                            size_t n_counted, apr_error *err)
{
    size_t done = 0, from = 0;
    bool after_match = false; /* a match ended at `from` */

    const size_t steps = MIN_MATCH_STEPS + MATCH_STEPS_PER_BYTE * n_counted;
    pcre2_set_match_limit(matcher->context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    if (m->data == NULL && (m->data = pcre2_match_data_create_from_pattern(code, NULL)) == NULL)
        return apr_no_memory(err, "splitting the text");
    m->n_spans = 0;
    while (from <= n_bytes) {
        apr_span found = {0};
        APR_TRY(find_match(m, matcher, code, text, n_bytes, from, &found, err));
        if (found.start > n_bytes) break;
        if (found.end == found.start && after_match && found.end == done) {
            from = from < n_bytes ? after_char(text, n_bytes, from) : n_bytes + 1;
            continue;
        }
        if (found.start > done) APR_TRY(push_span(m, done, found.start, false, err));
        APR_TRY(push_span(m, found.start, found.end, true, err));
        done = from = found.end;
        after_match = true;
    }
    return done < n_bytes ? push_span(m, done, n_bytes, false, err) : APR_OK;
}
