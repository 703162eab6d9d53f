/* tokenizer_regex_class.c - translates Oniguruma's sets of characters: nested brackets with unions, intersections and complements,
 * properties, POSIX names, \w and the like.
 *
 * PCRE2's brackets can only hold characters, ranges and properties. So a set is translated to two texts: one for the inside of a pair of
 * brackets, and alternatives for the rest. `[a&&b]` becomes (?=a)b, and a complement becomes (?!set) and any character. Each result matches
 * exactly one character, also inside a lookbehind. */
#include "runtime/tokenizer/tokenizer_regex_internal.h"

#include <stdlib.h>
#include <string.h>

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
    {"word", APR_REGEX_WORD},
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
static bool read_name(apr_regex_reader *r, char end, char name[32])
{
    size_t n = 0;
    for (char c = apr_regex_peek(r, 0); c != end; r->at++, c = apr_regex_peek(r, 0)) {
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
static apr_status property(apr_regex_reader *r, size_t from, const char **inside, bool *negated)
{
    char name[32];
    bool known = apr_regex_peek(r, 0) == '{';

    r->at += known;
    if (known && apr_regex_peek(r, 0) == '^') {
        *negated = !*negated;
        r->at++;
    }
    known = known && read_name(r, '}', name);
    if (known) *inside = find_set(properties, name);
    if (known && *inside == NULL) *inside = find_set(posix_sets, name);
    if (*inside == NULL) return apr_regex_refuse(r, from, "this property is not supported");
    return r->ignore_case ? apr_regex_refuse(r, from, "a property under (?i) is not supported") : APR_OK;
}

apr_status apr_regex_set(apr_regex_reader *r, size_t from, uint32_t letter, const char **inside, bool *negated)
{
    static const struct {
        char letter;
        const char *inside;
    } sets[] = {{'w', APR_REGEX_WORD}, {'d', "\\p{Nd}"}, {'s', SPACES}, {'h', HEX}};

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
    apr_regex_text inside;       /* text for the inside of one pair of brackets */
    apr_regex_text alternatives; /* the rest, "|" before each */
    apr_regex_text ahead;        /* operands of && so far, each as a lookahead */
    bool has_range;              /* the last item was a range: a "-" after it is ambiguous */
} char_set;

static void close_set(char_set *set)
{
    free(set->inside.bytes);
    free(set->alternatives.bytes);
    free(set->ahead.bytes);
}

/* Writes the union of both texts. */
static void put_union(const char_set *set, apr_regex_text *out)
{
    const bool mixed = set->alternatives.n_bytes > 0;

    if (mixed) apr_regex_put(out, "(?:");
    if (set->inside.n_bytes > 0) {
        apr_regex_put(out, "[");
        apr_regex_put(out, set->inside.bytes);
        apr_regex_put(out, "]");
    }
    if (mixed) apr_regex_put(out, set->alternatives.bytes + (set->inside.n_bytes > 0 ? 0 : 1));
    if (mixed) apr_regex_put(out, ")");
}

static void put_set(const char_set *set, bool negated, apr_regex_text *out)
{
    const bool simple = set->alternatives.n_bytes == 0 && set->ahead.n_bytes == 0;

    if (negated && simple) {
        apr_regex_put(out, "[^");
        apr_regex_put(out, set->inside.bytes);
        apr_regex_put(out, "]");
        return;
    }
    if (negated) apr_regex_put(out, "(?:(?!");
    if (set->ahead.n_bytes > 0) {
        apr_regex_put(out, "(?:");
        apr_regex_put(out, set->ahead.bytes);
    }
    put_union(set, out);
    if (set->ahead.n_bytes > 0) apr_regex_put(out, ")");
    if (negated) apr_regex_put(out, ")" ANY_ONE ")");
}

static apr_status add_named(apr_regex_reader *r, size_t from, char_set *set, const char *inside, bool negated)
{
    if (r->ignore_case && (negated || strstr(inside, "\\p{") != NULL))
        return apr_regex_refuse(r, from, "this kind of set in brackets under (?i) is not supported");
    if (negated) apr_regex_put(&set->alternatives, "|[^");
    apr_regex_put(negated ? &set->alternatives : &set->inside, inside);
    if (negated) apr_regex_put(&set->alternatives, "]");
    return APR_OK;
}

/* "[:name:]", "[:^name:]"; r->at is after "[:". */
static apr_status posix_set(apr_regex_reader *r, size_t from, char_set *set)
{
    char name[32];
    const bool negated = apr_regex_peek(r, 0) == '^';

    r->at += negated;
    const char *const inside = read_name(r, ':', name) && apr_regex_peek(r, 0) == ']' ? find_set(posix_sets, name) : NULL;
    if (inside == NULL) return apr_regex_refuse(r, from, "this name of a set is not supported");
    r->at++;
    return add_named(r, from, set, inside, negated);
}

/* Reads one character, or reads a set and adds it (*is_char false). */
static apr_status item(apr_regex_reader *r, char_set *set, uint32_t *c, bool *is_char)
{
    const size_t from = r->at;
    const char *inside;
    bool negated;

    *is_char = true;
    *c = apr_regex_next(r);
    if (*c == 0) return apr_regex_refuse(r, from, "the set is not closed");
    if (*c != '\\') return APR_OK;
    const uint32_t letter = apr_regex_next(r);
    APR_TRY(apr_regex_set(r, from, letter, &inside, &negated));
    if (inside != NULL) {
        *is_char = false;
        return add_named(r, from, set, inside, negated);
    }
    if (letter == 'b') { /* inside brackets, \b is a backspace */
        *c = '\b';
        return APR_OK;
    }
    APR_TRY(apr_regex_escaped_char(r, from, letter, c, is_char));
    return *is_char ? APR_OK : apr_regex_refuse(r, from, "this escape is not supported in a set");
}

/* Reads a character or a range. A hyphen before the end of the set, or after \w and the like, is a literal character. */
static apr_status char_or_range(apr_regex_reader *r, char_set *set)
{
    const size_t from = r->at;
    uint32_t low, high;
    bool is_char;

    APR_TRY(item(r, set, &low, &is_char));
    if (is_char && r->pattern[from] == '-' && set->has_range && apr_regex_peek(r, 0) != ']')
        return apr_regex_refuse(r, from, "a hyphen after a range is ambiguous; write \\-");
    set->has_range = false;
    if (!is_char) return APR_OK;
    APR_TRY(apr_regex_check_case(r, from, 0, low));
    apr_regex_put_char(&set->inside, low);
    const char next = apr_regex_peek(r, 1);
    if (apr_regex_peek(r, 0) != '-' || next == ']' || next == '\0') return APR_OK;
    if (next == '[' || (next == '&' && apr_regex_peek(r, 2) == '&')) return apr_regex_refuse(r, from, "this range is not valid");
    r->at++;
    APR_TRY(item(r, set, &high, &is_char));
    if (!is_char || high < low) return apr_regex_refuse(r, from, "this range is not valid");
    if (r->ignore_case && high >= 0x80) return apr_regex_refuse(r, from, "a range beyond ASCII under (?i) is not supported");
    apr_regex_put(&set->inside, "-");
    apr_regex_put_char(&set->inside, high);
    set->has_range = true;
    return APR_OK;
}

static apr_status char_class(apr_regex_reader *r, apr_regex_text *out, int depth, char_set *into);

/* Reads the members of a set after "[" (and "^"), including the "]". */
static apr_status members(apr_regex_reader *r, char_set *set, int depth)
{
    const size_t from = r->at;

    for (bool empty = true;; empty = false) {
        const size_t here = r->at;
        const char c = apr_regex_peek(r, 0), next = apr_regex_peek(r, 1);
        const bool is_and = c == '&' && next == '&';
        if (empty && (c == ']' || is_and)) return apr_regex_refuse(r, from, "an empty set");
        if (c == ']') {
            r->at++;
            return APR_OK;
        }
        if (is_and) {
            r->at += 2;
            if (apr_regex_peek(r, 0) == ']' || apr_regex_peek(r, 0) == '&') return apr_regex_refuse(r, here, "an empty set");
            apr_regex_put(&set->ahead, "(?=");
            put_union(set, &set->ahead);
            apr_regex_put(&set->ahead, ")");
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
static apr_status char_class(apr_regex_reader *r, apr_regex_text *out, int depth, char_set *into)
{
    char_set set = {0};
    const bool negated = apr_regex_peek(r, 0) == '^';

    if (depth > APR_REGEX_MAX_NESTING) return apr_regex_refuse(r, r->at, "sets are nested too deeply");
    r->at += negated;
    const apr_status status = members(r, &set, depth);
    if (status == APR_OK && into == NULL) {
        put_set(&set, negated, out);
    } else if (status == APR_OK && !negated && set.alternatives.n_bytes == 0 && set.ahead.n_bytes == 0) {
        apr_regex_put(&into->inside, set.inside.bytes);
    } else if (status == APR_OK) {
        apr_regex_put(&into->alternatives, "|");
        put_set(&set, negated, &into->alternatives);
    }
    r->out.failed = r->out.failed || set.inside.failed || set.alternatives.failed || set.ahead.failed;
    if (into != NULL) r->out.failed = r->out.failed || into->inside.failed || into->alternatives.failed;
    close_set(&set);
    return status;
}

apr_status apr_regex_class(apr_regex_reader *r, apr_regex_text *out) { return char_class(r, out, 1, NULL); }
