/* json.c - a strict lexical check before cJSON, exact lookups in its tree, and a writer. */
#include "formats/base/json.h"
#include "formats/base/grow.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- lexical check: rejects what cJSON accepts silently or cannot handle --- */

/* Length of the well-formed UTF-8 sequence at p (1 to 4), or 0: no overlong forms, no surrogates, nothing above U+10FFFF. */
static size_t utf8_length(const uint8_t *p, size_t n_left)
{
    if (p[0] < 0x80) return 1;
    const size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || n_left < n) return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if (p[0] == 0xe0 && p[1] < 0xa0) return 0;
    if (p[0] == 0xed && p[1] > 0x9f) return 0;
    if (p[0] == 0xf0 && p[1] < 0x90) return 0;
    if (p[0] == 0xf4 && p[1] > 0x8f) return 0;
    return n;
}

typedef struct scan {
    const uint8_t *text;
    size_t n_bytes, at;
    size_t depth, n_values;
    size_t n_python;     /* NaN and Infinity */
    const char *problem; /* NULL while all is well; then `at` says where */
} scan;

static bool is_digit(int c) { return c >= '0' && c <= '9'; }
static int peek(const scan *s) { return s->at < s->n_bytes ? s->text[s->at] : -1; }

static bool fail_scan(scan *s, const char *problem)
{
    s->problem = problem;
    return false;
}

/* The value of the four hexadecimal digits at `at`, or -1. */
static int hex4(const scan *s, size_t at)
{
    int value = 0;
    if (s->n_bytes < 4 || at > s->n_bytes - 4) return -1;
    for (size_t i = at; i < at + 4; i++) {
        const int c = s->text[i];
        const int digit = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* s->at is at the backslash. */
static bool scan_escape(scan *s)
{
    if (s->n_bytes - s->at < 2) return fail_scan(s, "the text ends inside a string");
    if (s->text[s->at + 1] != 'u') {
        if (strchr("\"\\/bfnrt", s->text[s->at + 1]) == NULL || s->text[s->at + 1] == '\0') return fail_scan(s, "an unknown escape");
        s->at += 2;
        return true;
    }
    const int unit = hex4(s, s->at + 2);
    if (unit < 0) return fail_scan(s, "\\u without four hexadecimal digits");
    if (unit == 0) return fail_scan(s, "\\u0000 in a string");
    if (unit >= 0xdc00 && unit < 0xe000) return fail_scan(s, "a lone surrogate");
    if (unit >= 0xd800 && unit < 0xdc00) {
        const size_t second = s->at + 6;
        const bool escaped = second + 2 <= s->n_bytes && s->text[second] == '\\' && s->text[second + 1] == 'u';
        const int low = escaped ? hex4(s, second + 2) : -1;
        if (low < 0xdc00 || low > 0xdfff) return fail_scan(s, "a lone surrogate");
        s->at += 6;
    }
    s->at += 6;
    return true;
}

static bool scan_string(scan *s)
{
    s->at++;
    while (s->at < s->n_bytes) {
        const uint8_t c = s->text[s->at];
        if (c == '"') {
            s->at++;
            return true;
        }
        if (c == '\\') {
            if (!scan_escape(s)) return false;
        } else if (c < 0x20) {
            return fail_scan(s, "a control character in a string");
        } else {
            const size_t n = utf8_length(s->text + s->at, s->n_bytes - s->at);
            if (n == 0) return fail_scan(s, "invalid UTF-8");
            s->at += n;
        }
    }
    return fail_scan(s, "the text ends inside a string");
}

static bool scan_digits(scan *s)
{
    if (!is_digit(peek(s))) return fail_scan(s, "a malformed number");
    while (is_digit(peek(s))) s->at++;
    return true;
}

static bool scan_number(scan *s)
{
    if (peek(s) == '-') s->at++;
    if (peek(s) == '0') s->at++;
    else if (!scan_digits(s)) return false;
    if (peek(s) == '.') {
        s->at++;
        if (!scan_digits(s)) return false;
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-') s->at++;
        if (!scan_digits(s)) return false;
    }
    const int c = peek(s);
    if (is_digit(c) || c == '.' || c == '+' || c == '-') return fail_scan(s, "a malformed number");
    return true;
}

/* NaN, Infinity and -Infinity are not JSON, but Python writes and reads them; see replace_infinities. */
static bool scan_word(scan *s)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);
        if (s->n_bytes - s->at >= n && memcmp(s->text + s->at, words[i], n) == 0) {
            s->at += n;
            s->n_python += i >= 3;
            return true;
        }
    }
    return fail_scan(s, "neither a value nor punctuation");
}

/* Checks one token; cJSON checks the order of the tokens. */
static bool scan_token(scan *s)
{
    const uint8_t c = s->text[s->at];

    switch (c) {
    case ' ':
    case '\t':
    case '\n':
    case '\r':
    case ',':
    case ':': s->at++; return true;
    case '{':
    case '[':
        if (++s->depth > APR_JSON_MAX_DEPTH) return fail_scan(s, "nested too deeply");
        break;
    case '}':
    case ']':
        if (s->depth-- == 0) return fail_scan(s, "a closing bracket without an opening one");
        s->at++;
        return true;
    default: break;
    }
    if (++s->n_values > APR_JSON_MAX_VALUES) return fail_scan(s, "more values than any model has");
    if (c == '{' || c == '[') {
        s->at++;
        return true;
    }
    if (c == '"') return scan_string(s);
    const bool is_minus_infinity = c == '-' && s->n_bytes - s->at > 1 && s->text[s->at + 1] == 'I';
    return (c == '-' && !is_minus_infinity) || is_digit(c) ? scan_number(s) : scan_word(s);
}

/* --- duplicate keys --- */

static size_t hash_key(const char *key, uint64_t seed)
{
    uint64_t h = 14695981039346656037u ^ seed; /* FNV-1a */
    for (; *key != '\0'; key++) h = (h ^ (uint8_t)*key) * 1099511628211u;
    return (size_t)(h ^ h >> 29);
}

/* The first duplicate key of an object, or NULL. The hash is seeded with an address, so a file cannot be built to collide. */
static const char *duplicate_in_object(const cJSON *object, bool *no_memory)
{
    size_t n_keys = 0, n_slots = 16;
    const cJSON *item;
    cJSON_ArrayForEach(item, object) n_keys++;
    while (n_slots < n_keys * 2) n_slots *= 2;

    const char *few[16] = {NULL}, *duplicate = NULL;
    const char **const slots = n_slots <= sizeof few / sizeof *few ? few : calloc(n_slots, sizeof *slots);
    if (slots == NULL) {
        *no_memory = true;
        return NULL;
    }
    cJSON_ArrayForEach(item, object)
    {
        size_t at = hash_key(item->string, (uint64_t)(uintptr_t)object) & (n_slots - 1);
        while (slots[at] != NULL && strcmp(slots[at], item->string) != 0) at = (at + 1) & (n_slots - 1);
        if (slots[at] != NULL) {
            duplicate = item->string;
            break;
        }
        slots[at] = item->string;
    }
    if (slots != few) free(slots);
    return duplicate;
}

/* The scan has checked APR_JSON_MAX_DEPTH, which bounds the recursion. */
static const char *duplicate_key(const cJSON *item, bool *no_memory)
{
    const char *duplicate = cJSON_IsObject(item) ? duplicate_in_object(item, no_memory) : NULL;
    const cJSON *child;
    cJSON_ArrayForEach(child, item)
    {
        if (duplicate != NULL || *no_memory) break;
        if (child->child != NULL) duplicate = duplicate_key(child, no_memory);
    }
    return duplicate;
}

/* Edits a copy of scanned text without changing its length. Infinity becomes a number that overflows to it. NaN becomes a list, which no
 * lookup accepts as a number and no object as a key. */
static void replace_infinities(char *text, size_t n_bytes)
{
    static const struct {
        const char *word, *instead;
    } words[] = {{"NaN", "[0]"}, {"Infinity", "1e999   "}};

    for (size_t at = 0; at < n_bytes; at++) {
        if (text[at] == '"') { /* well-formed: checked by scan_string */
            for (at++; text[at] != '"'; at++) at += text[at] == '\\';
            continue;
        }
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            const size_t n = strlen(words[i].word);
            if (n_bytes - at >= n && memcmp(text + at, words[i].word, n) == 0) memcpy(text + at, words[i].instead, n);
        }
    }
}

/* NULL from cJSON means bad text or no memory. This allocation hook tells the two apart. */
static _Thread_local bool cjson_had_no_memory;

static void *allocate_for_cjson(size_t n_bytes)
{
    void *const memory = malloc(n_bytes);
    if (memory == NULL) cjson_had_no_memory = true;
    return memory;
}

static bool leaves_hooks;

void apr_json_leave_hooks(void) { __atomic_store_n(&leaves_hooks, true, __ATOMIC_RELAXED); }

static void set_hooks(void)
{
    if (__atomic_load_n(&leaves_hooks, __ATOMIC_RELAXED)) return;
    cJSON_Hooks hooks = {.malloc_fn = allocate_for_cjson, .free_fn = free};
    cJSON_InitHooks(&hooks);
}

static cJSON *parse_tree(const char *text, size_t n_bytes, const char **stop, bool *no_memory)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_hooks);
    cjson_had_no_memory = false;
    cJSON *const root = cJSON_ParseWithLengthOpts(text, n_bytes, stop, 0);
    *no_memory = root == NULL && cjson_had_no_memory;
    return root;
}

static cJSON *build_tree(const scan *s, size_t *end, bool *no_memory)
{
    const char *stop = NULL, *text = (const char *)s->text;
    char *const copy = s->n_python > 0 ? malloc(s->n_bytes) : NULL;

    *no_memory = s->n_python > 0 && copy == NULL;
    if (*no_memory) return NULL;
    if (copy != NULL) {
        memcpy(copy, text, s->n_bytes);
        replace_infinities(copy, s->n_bytes);
        text = copy;
    }
    cJSON *const root = parse_tree(text, s->n_bytes, &stop, no_memory);
    *end = stop != NULL ? (size_t)(stop - text) : 0;
    free(copy);
    return root;
}

apr_status apr_json_parse(cJSON **json, const void *text, size_t n_bytes, const char *where, apr_error *err)
{
    scan s = {.text = text, .n_bytes = n_bytes};
    bool no_memory = false;
    size_t at;

    *json = NULL;
    if (n_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: not valid JSON: it begins with a byte order mark; remove its first three bytes", where);
    while (s.at < n_bytes && scan_token(&s)) {
    }
    if (s.problem != NULL) return apr_fail(err, APR_E_DAMAGED, "%s: not valid JSON: %s at byte %zu", where, s.problem, s.at);
    if (s.n_values == 0) return apr_fail(err, APR_E_DAMAGED, "%s: not valid JSON: it contains no value", where);

    cJSON *const root = build_tree(&s, &at, &no_memory);
    if (no_memory) return apr_no_memory(err, where);
    if (root == NULL) return apr_fail(err, APR_E_DAMAGED, "%s: not valid JSON: syntax error at byte %zu", where, at);
    while (at < n_bytes && strchr(" \t\n\r", ((const char *)text)[at]) != NULL && ((const char *)text)[at] != '\0') at++;
    const char *const duplicate = at == n_bytes ? duplicate_key(root, &no_memory) : NULL;
    apr_status status = APR_OK;
    if (at < n_bytes) status = apr_fail(err, APR_E_DAMAGED, "%s: not valid JSON: text after its end at byte %zu", where, at);
    else if (no_memory) status = apr_no_memory(err, "the keys of a JSON object");
    else if (duplicate != NULL) status = apr_fail(err, APR_E_DAMAGED, "%s: the key '%.200s' appears twice in one object", where, duplicate);
    if (status != APR_OK) cJSON_Delete(root);
    else *json = root;
    return status;
}

/* --- lookups --- */

const cJSON *apr_json_get(const cJSON *object, const char *key)
{
    const cJSON *item;
    if (!cJSON_IsObject(object)) return NULL;
    cJSON_ArrayForEach(item, object) if (strcmp(item->string, key) == 0) return item;
    return NULL;
}

bool apr_json_as_int(const cJSON *item, int64_t *value)
{
    const double limit = 9007199254740992.0; /* 2^53: every integer up to here is exact in a double */
    if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= limit) || item->valuedouble != trunc(item->valuedouble)) return false;
    *value = (int64_t)item->valuedouble;
    return true;
}

bool apr_json_get_int(const cJSON *object, const char *key, int64_t *value) { return apr_json_as_int(apr_json_get(object, key), value); }

bool apr_json_get_real(const cJSON *object, const char *key, double *value)
{
    const cJSON *const item = apr_json_get(object, key);
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble)) return false;
    *value = item->valuedouble;
    return true;
}

const char *apr_json_get_string(const cJSON *object, const char *key)
{
    const cJSON *const item = apr_json_get(object, key);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

const char *apr_json_get_text(const cJSON *object, const char *key)
{
    const char *const text = apr_json_get_string(object, key);
    return text != NULL ? text : "";
}

bool apr_json_get_bool(const cJSON *object, const char *key, bool *value)
{
    const cJSON *const item = apr_json_get(object, key);
    if (!cJSON_IsBool(item)) return false;
    *value = cJSON_IsTrue(item);
    return true;
}

/* --- writing --- */

static void append(apr_json_text *out, const char *text, size_t n_bytes)
{
    size_t needed;
    if (out->failed) return;
    if (__builtin_add_overflow(out->n_bytes, n_bytes, &needed) || needed > SIZE_MAX / 2 - 1) {
        out->failed = true;
        return;
    }
    char *const grown = apr_grow(out->text, &out->capacity, needed + 1, 1);
    if (grown == NULL) {
        out->failed = true;
        return;
    }
    out->text = grown;
    if (n_bytes > 0) memcpy(out->text + out->n_bytes, text, n_bytes);
    out->n_bytes = needed;
    out->text[needed] = '\0';
}

static void append_quoted(apr_json_text *out, const char *text, size_t n_bytes)
{
    static const char short_names[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r', ['"'] = '"', ['\\'] = '\\'};
    const uint8_t *const bytes = (const uint8_t *)text;
    size_t done = 0; /* bytes before this one are written */

    append(out, "\"", 1);
    for (size_t i = 0; i < n_bytes;) {
        const size_t n = utf8_length(bytes + i, n_bytes - i);
        if (n > 1 || (n == 1 && bytes[i] >= 0x20 && bytes[i] != '"' && bytes[i] != '\\')) {
            i += n;
            continue;
        }
        char escape[8];
        const int n_escape = n == 0 ? snprintf(escape, sizeof escape, "\xef\xbf\xbd")
                             : bytes[i] < sizeof short_names && short_names[bytes[i]] != '\0'
                                 ? snprintf(escape, sizeof escape, "\\%c", short_names[bytes[i]])
                                 : snprintf(escape, sizeof escape, "\\u%04x", bytes[i]);
        append(out, text + done, i - done);
        append(out, escape, (size_t)n_escape);
        done = ++i;
    }
    if (done < n_bytes) append(out, text + done, n_bytes - done);
    append(out, "\"", 1);
}

/* Writes what precedes a value: a comma after an earlier value, and the key. */
static void begin_value(apr_json_text *out, const char *key)
{
    if (out->need_comma) append(out, ",", 1);
    if (key != NULL) {
        append_quoted(out, key, strlen(key));
        append(out, ":", 1);
    }
    out->need_comma = true;
}

void apr_json_open(apr_json_text *out, const char *key, char bracket)
{
    begin_value(out, key);
    append(out, &bracket, 1);
    out->need_comma = false;
}

void apr_json_close(apr_json_text *out, char bracket)
{
    append(out, &bracket, 1);
    out->need_comma = true;
}

void apr_json_string(apr_json_text *out, const char *key, const char *text, size_t n_bytes)
{
    begin_value(out, key);
    append_quoted(out, text, n_bytes);
}

void apr_json_raw(apr_json_text *out, const char *key, const char *text, size_t n_bytes)
{
    begin_value(out, key);
    append(out, text, n_bytes);
}

static void append_word(apr_json_text *out, const char *key, const char *word) { apr_json_raw(out, key, word, strlen(word)); }

void apr_json_int(apr_json_text *out, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    append_word(out, key, text);
}

void apr_json_uint(apr_json_text *out, const char *key, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    append_word(out, key, text);
}

void apr_json_real(apr_json_text *out, const char *key, double value)
{
    char text[64];

    if (!isfinite(value)) {
        apr_json_null(out, key);
        return;
    }
    if (value == trunc(value) && fabs(value) < 1e15) {
        snprintf(text, sizeof text, "%.1f", value);
    } else {
        int n_digits = 1; /* 17 digits always read back equal */
        do snprintf(text, sizeof text, "%.*g", n_digits, value);
        while (strtod(text, NULL) != value && ++n_digits <= 17);
        if (strpbrk(text, ".e") == NULL) snprintf(text, sizeof text, "%.*g.0", n_digits, value);
    }
    append_word(out, key, text);
}

void apr_json_reals(apr_json_text *out, const char *key, const double *values, size_t n)
{
    apr_json_open(out, key, '[');
    for (size_t i = 0; i < n; i++) apr_json_real(out, NULL, values[i]);
    apr_json_close(out, ']');
}

void apr_json_bool(apr_json_text *out, const char *key, bool value) { append_word(out, key, value ? "true" : "false"); }
void apr_json_null(apr_json_text *out, const char *key) { append_word(out, key, "null"); }

char *apr_json_text_take(apr_json_text *out, size_t *n_bytes)
{
    if (!out->failed && out->text == NULL) append(out, "", 0);
    char *const text = out->failed ? NULL : out->text;
    if (out->failed) free(out->text);
    if (n_bytes != NULL) *n_bytes = text != NULL ? out->n_bytes : 0;
    *out = (apr_json_text){0};
    return text;
}

void apr_json_text_free(apr_json_text *out)
{
    free(out->text);
    *out = (apr_json_text){0};
}
