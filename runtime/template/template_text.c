/* template_text.c - the text that a rendering writes: output, values as text (Python's str and repr, JSON), and the changes of a text that
 * filters and methods share. */
#include "formats/base/grow.h"
#include "runtime/template/template_internal.h"
#include "runtime/template/template_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

apr_status apr_tpl_put(apr_tpl_vm *vm, const char *bytes, size_t n)
{
    apr_tpl_out *const out = &vm->out;
    if (n > APR_TEMPLATE_MAX_OUTPUT - out->n_bytes)
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the output is longer than %d MiB", APR_TEMPLATE_MAX_OUTPUT >> 20);
    char *const bytes_out = apr_grow(out->bytes, &out->capacity, out->n_bytes + n + 1, 1); /* one byte is kept for the final NUL */
    if (bytes_out == NULL) return apr_no_memory(vm->err, "the text of the chat template");
    out->bytes = bytes_out;
    if (n > 0) memcpy(out->bytes + out->n_bytes, bytes, n);
    out->n_bytes += n;
    return apr_tpl_steps(vm, n / 64);
}

apr_status apr_tpl_put_char(apr_tpl_vm *vm, uint32_t code_point)
{
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)code_point, bytes);
    return apr_tpl_put(vm, (const char *)bytes, (size_t)n);
}

static apr_status put(apr_tpl_vm *vm, const char *text) { return apr_tpl_put(vm, text, strlen(text)); }

apr_status apr_tpl_take(apr_tpl_vm *vm, size_t mark, apr_tpl_value *out)
{
    const size_t n = vm->out.n_bytes - mark;
    char *copy;
    APR_TRY(apr_tpl_alloc(vm, n + 1, 1, &copy));
    if (n > 0) memcpy(copy, vm->out.bytes + mark, n);
    vm->out.n_bytes = mark;
    *out = apr_tpl_string(copy, n);
    return APR_OK;
}

/* Writes the shortest digits that read back equal, as Python's repr. Uses an exponent below 1e-4 and from 1e16 on. */
static apr_status put_real(apr_tpl_vm *vm, double x, const char *infinity, const char *not_a_number)
{
    char text[40], digits[24], *exponent_at;
    if (isnan(x)) return put(vm, not_a_number);
    if (x < 0 || (x == 0 && signbit(x))) APR_TRY(put(vm, "-"));
    if (isinf(x)) return put(vm, infinity);
    x = fabs(x);
    for (int precision = 0; precision <= 16; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, x);
        if (strtod(text, NULL) == x) break;
    }
    exponent_at = strchr(text, 'e');
    const int exponent = (int)strtol(exponent_at + 1, NULL, 10);
    int n = 0;
    for (const char *p = text; p < exponent_at; p++)
        if (*p != '.') digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0') n--;
    digits[n] = '\0';

    if (exponent < -4 || exponent >= 16) {
        snprintf(text, sizeof text, "%c%s%se%c%02d", digits[0], n > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        snprintf(text, sizeof text, "0.%.*s%s", -exponent - 1, "0000", digits);
    } else {
        const int n_whole = exponent + 1;
        const int n_taken = n < n_whole ? n : n_whole;
        snprintf(text, sizeof text, "%.*s%.*s.%s", n_taken, digits, n_whole - n_taken, "0000000000000000",
                 n > n_whole ? digits + n_whole : "0");
    }
    return put(vm, text);
}

static bool is_printable(uint32_t c)
{
    static const bool hidden[32] = {
        [UTF8PROC_CATEGORY_CN] = true, [UTF8PROC_CATEGORY_ZS] = true, [UTF8PROC_CATEGORY_ZL] = true, [UTF8PROC_CATEGORY_ZP] = true,
        [UTF8PROC_CATEGORY_CC] = true, [UTF8PROC_CATEGORY_CF] = true, [UTF8PROC_CATEGORY_CS] = true, [UTF8PROC_CATEGORY_CO] = true,
    };
    return c == ' ' || !hidden[utf8proc_category((utf8proc_int32_t)c)];
}

static apr_status put_quoted(apr_tpl_vm *vm, apr_tpl_text text)
{
    const bool has_single = text.n_bytes > 0 && memchr(text.bytes, '\'', text.n_bytes) != NULL;
    const bool has_double = text.n_bytes > 0 && memchr(text.bytes, '"', text.n_bytes) != NULL;
    const char quote = has_single && !has_double ? '"' : '\'';
    APR_TRY(apr_tpl_put(vm, &quote, 1));
    for (size_t at = 0; at < text.n_bytes;) {
        const size_t n = apr_tpl_char_bytes(text.bytes + at);
        const uint32_t c = apr_tpl_char_at(text, at);
        char escape[12] = "";
        if (c == (uint32_t)quote || c == '\\') snprintf(escape, sizeof escape, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t') snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (!is_printable(c)) snprintf(escape, sizeof escape, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        APR_TRY(escape[0] != '\0' ? put(vm, escape) : apr_tpl_put(vm, text.bytes + at, n));
        at += n;
    }
    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 16));
    return apr_tpl_put(vm, &quote, 1);
}

static apr_status put_items(apr_tpl_vm *vm, const apr_tpl_value *v)
{
    const bool is_tuple = v->kind == TPL_TUPLE;
    APR_TRY(put(vm, is_tuple ? "(" : "["));
    for (size_t i = 0; i < v->as.list->n_items; i++) {
        if (i > 0) APR_TRY(put(vm, ", "));
        APR_TRY(apr_tpl_put_repr(vm, &v->as.list->items[i]));
    }
    return put(vm, !is_tuple ? "]" : v->as.list->n_items == 1 ? ",)" : ")");
}

static apr_status put_dict(apr_tpl_vm *vm, const apr_tpl_dict *dict)
{
    APR_TRY(put(vm, "{"));
    for (size_t i = 0; i < dict->n_items; i++) {
        if (i > 0) APR_TRY(put(vm, ", "));
        APR_TRY(apr_tpl_put_repr(vm, &dict->keys[i]));
        APR_TRY(put(vm, ": "));
        APR_TRY(apr_tpl_put_repr(vm, &dict->values[i]));
    }
    return put(vm, "}");
}

apr_status apr_tpl_put_repr(apr_tpl_vm *vm, const apr_tpl_value *v)
{
    apr_status status;
    if (apr_tpl_is_markup(v)) {
        APR_TRY(put(vm, "Markup("));
        APR_TRY(put_quoted(vm, v->as.text));
        return put(vm, ")");
    }
    if (v->kind == TPL_STRING) return put_quoted(vm, v->as.text);
    if (v->kind == TPL_UNDEFINED) return put(vm, "Undefined");
    if (!apr_tpl_is_list(v) && v->kind != TPL_DICT) return apr_tpl_put_str(vm, v);
    APR_TRY(apr_tpl_steps(vm, 1));
    APR_TRY(apr_tpl_descend(vm));
    status = v->kind == TPL_DICT ? put_dict(vm, v->as.dict) : put_items(vm, v);
    vm->depth--;
    return status;
}

apr_status apr_tpl_put_str(apr_tpl_vm *vm, const apr_tpl_value *v)
{
    char text[64];
    switch (v->kind) {
    case TPL_ABSENT:
    case TPL_UNDEFINED: return APR_OK;
    case TPL_NONE: return put(vm, "None");
    case TPL_BOOL: return put(vm, v->as.boolean ? "True" : "False");
    case TPL_INT: snprintf(text, sizeof text, "%lld", (long long)v->as.integer); return put(vm, text);
    case TPL_FLOAT: return put_real(vm, v->as.real, "inf", "nan");
    case TPL_STRING: return apr_tpl_put_text(vm, v->as.text);
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_DICT: return apr_tpl_put_repr(vm, v);
    default: snprintf(text, sizeof text, "<%s>", apr_tpl_type_name(v)); return put(vm, text);
    }
}

apr_status apr_tpl_to_str(apr_tpl_vm *vm, const apr_tpl_value *v, apr_tpl_text *out)
{
    apr_tpl_value text = *v;
    if (v->kind != TPL_STRING) {
        const size_t mark = vm->out.n_bytes;
        APR_TRY(apr_tpl_put_str(vm, v));
        APR_TRY(apr_tpl_take(vm, mark, &text));
    }
    *out = text.as.text;
    return APR_OK;
}

static apr_status put_json_string(apr_tpl_vm *vm, apr_tpl_text text, bool ascii)
{
    static const char *const short_escapes[128] = {
        ['"'] = "\\\"", ['\\'] = "\\\\", ['\n'] = "\\n", ['\r'] = "\\r", ['\t'] = "\\t", ['\b'] = "\\b", ['\f'] = "\\f",
    };
    APR_TRY(put(vm, "\""));
    for (size_t at = 0; at < text.n_bytes;) {
        const size_t n = apr_tpl_char_bytes(text.bytes + at);
        const uint32_t c = apr_tpl_char_at(text, at);
        char escape[16] = "";
        if (c < 128 && short_escapes[c] != NULL) snprintf(escape, sizeof escape, "%s", short_escapes[c]);
        else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000)) snprintf(escape, sizeof escape, "\\u%04x", c);
        else if (ascii && c >= 0x10000) /* a pair of UTF-16 surrogates */
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
        APR_TRY(escape[0] != '\0' ? put(vm, escape) : apr_tpl_put(vm, text.bytes + at, n));
        at += n;
    }
    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 16));
    return put(vm, "\"");
}

static apr_status put_json_break(apr_tpl_vm *vm, const apr_tpl_json_style *style, int level)
{
    if (style->indent == NULL) return APR_OK;
    APR_TRY(put(vm, "\n"));
    for (int i = 0; i < level; i++) APR_TRY(put(vm, style->indent));
    return APR_OK;
}

/* Keys are strings, or values that json.dumps converts to strings: numbers, true, null. */
static apr_status put_json_key(apr_tpl_vm *vm, const apr_tpl_value *key, const apr_tpl_json_style *style)
{
    if (key->kind == TPL_STRING) return put_json_string(vm, key->as.text, style->ascii);
    if (key->kind > TPL_FLOAT || key->kind < TPL_NONE)
        return apr_tpl_fail(vm, APR_E_DAMAGED, "a '%s' cannot be a key in JSON", apr_tpl_type_name(key));
    APR_TRY(put(vm, "\""));
    APR_TRY(apr_tpl_put_json(vm, key, style, 0));
    return put(vm, "\"");
}

static apr_status put_json_dict(apr_tpl_vm *vm, const apr_tpl_dict *dict, const apr_tpl_json_style *style, int level)
{
    for (size_t i = 0; i < dict->n_items; i++) {
        if (i > 0) APR_TRY(apr_tpl_put_text(vm, style->item_separator));
        APR_TRY(put_json_break(vm, style, level + 1));
        APR_TRY(put_json_key(vm, &dict->keys[i], style));
        APR_TRY(apr_tpl_put_text(vm, style->key_separator));
        APR_TRY(apr_tpl_put_json(vm, &dict->values[i], style, level + 1));
    }
    return dict->n_items > 0 ? put_json_break(vm, style, level) : APR_OK;
}

static apr_status put_json_list(apr_tpl_vm *vm, const apr_tpl_list *list, const apr_tpl_json_style *style, int level)
{
    for (size_t i = 0; i < list->n_items; i++) {
        if (i > 0) APR_TRY(apr_tpl_put_text(vm, style->item_separator));
        APR_TRY(put_json_break(vm, style, level + 1));
        APR_TRY(apr_tpl_put_json(vm, &list->items[i], style, level + 1));
    }
    return list->n_items > 0 ? put_json_break(vm, style, level) : APR_OK;
}

/* Copies a dict with its keys in order. */
static apr_status sort_keys(apr_tpl_vm *vm, const apr_tpl_dict *dict, apr_tpl_dict *sorted)
{
    for (size_t i = 0; i < dict->n_items; i++) {
        APR_TRY(apr_tpl_dict_add(vm, sorted, dict->keys[i], dict->values[i]));
        for (size_t j = i; j > 0; j--) {
            int order;
            APR_TRY(apr_tpl_order(vm, &sorted->keys[j - 1], &sorted->keys[j], &order));
            if (order <= 0) break;
            const apr_tpl_value key = sorted->keys[j], value = sorted->values[j];
            sorted->keys[j] = sorted->keys[j - 1];
            sorted->values[j] = sorted->values[j - 1];
            sorted->keys[j - 1] = key;
            sorted->values[j - 1] = value;
        }
    }
    return APR_OK;
}

apr_status apr_tpl_put_json(apr_tpl_vm *vm, const apr_tpl_value *v, const apr_tpl_json_style *style, int level)
{
    APR_TRY(apr_tpl_steps(vm, 1));
    switch (v->kind) {
    case TPL_NONE: return put(vm, "null");
    case TPL_BOOL: return put(vm, v->as.boolean ? "true" : "false");
    case TPL_INT: return apr_tpl_put_str(vm, v);
    case TPL_FLOAT: return put_real(vm, v->as.real, "Infinity", "NaN");
    case TPL_STRING: return put_json_string(vm, v->as.text, style->ascii);
    default: break;
    }
    if (!apr_tpl_is_list(v) && v->kind != TPL_DICT)
        return apr_tpl_fail(vm, APR_E_DAMAGED, "a value of type '%s' cannot be written as JSON", apr_tpl_type_name(v));
    APR_TRY(apr_tpl_descend(vm));
    APR_TRY(put(vm, v->kind == TPL_DICT ? "{" : "["));
    if (v->kind == TPL_DICT) {
        apr_tpl_dict sorted = {0};
        if (style->sort_keys) APR_TRY(sort_keys(vm, v->as.dict, &sorted));
        APR_TRY(put_json_dict(vm, style->sort_keys ? &sorted : v->as.dict, style, level));
    } else {
        APR_TRY(put_json_list(vm, v->as.list, style, level));
    }
    vm->depth--;
    return put(vm, v->kind == TPL_DICT ? "}" : "]");
}

/* ---- case: one letter may become several (sharp s is SS), and a sigma at the end of a word has its own lower case ---- */

static bool is_cased(uint32_t c)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

enum { MAX_FOLDED = 8 };

static size_t fold(uint32_t c, utf8proc_int32_t folded[MAX_FOLDED])
{
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, folded, MAX_FOLDED, UTF8PROC_CASEFOLD, &boundary);
    return n > 0 && n <= MAX_FOLDED ? (size_t)n : 0;
}

/* A lower-case letter that folds to several (sharp s, ligatures, Greek with iota) becomes these letters in upper case. In title case only
 * the first one is upper case. */
static apr_status put_upper(apr_tpl_vm *vm, uint32_t c, bool title)
{
    utf8proc_int32_t folded[MAX_FOLDED];
    const utf8proc_int32_t as_title = utf8proc_totitle((utf8proc_int32_t)c);
    const bool is_upper = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LU;
    const size_t n = fold(c, folded);

    if (title && (is_upper || n < 2 || utf8proc_category(as_title) == UTF8PROC_CATEGORY_LT))
        return apr_tpl_put_char(vm, (uint32_t)as_title);
    if (is_upper || n < 2) return apr_tpl_put_char(vm, (uint32_t)utf8proc_toupper((utf8proc_int32_t)c));
    for (size_t i = 0; i < n; i++)
        APR_TRY(apr_tpl_put_char(vm, (uint32_t)(i > 0 && title && folded[0] != 0x2bc ? folded[i] : utf8proc_toupper(folded[i]))));
    return APR_OK;
}

static apr_status put_lower(apr_tpl_vm *vm, apr_tpl_text text, size_t at, uint32_t before)
{
    enum { SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2, DOTTED_I = 0x130, DOT = 0x307 };
    const uint32_t c = apr_tpl_char_at(text, at);

    if (c == SIGMA && is_cased(before) && !is_cased(apr_tpl_char_at(text, at + 2))) return apr_tpl_put_char(vm, FINAL_SIGMA);
    APR_TRY(apr_tpl_put_char(vm, c == DOTTED_I ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c)));
    return c == DOTTED_I ? apr_tpl_put_char(vm, DOT) : APR_OK;
}

static apr_status put_folded(apr_tpl_vm *vm, uint32_t c)
{
    utf8proc_int32_t folded[MAX_FOLDED];
    const size_t n = fold(c, folded);
    for (size_t i = 0; i < n; i++) APR_TRY(apr_tpl_put_char(vm, (uint32_t)folded[i]));
    return n > 0 ? APR_OK : apr_tpl_put_char(vm, c);
}

/* True if a word starts after this character, for Jinja's title filter: white space, hyphens and opening brackets. */
static bool ends_word(apr_tpl_text text, size_t at, uint32_t c)
{
    return c == '-' || (c != 0 && c < 128 && strchr("({[<", (int)c) != NULL) ||
           apr_tpl_is_space(text.bytes + at, apr_tpl_char_bytes(text.bytes + at));
}

apr_status apr_tpl_change_case(apr_tpl_vm *vm, apr_tpl_text text, apr_tpl_case how, apr_tpl_value *out)
{
    const size_t mark = vm->out.n_bytes;
    bool starts_word = true;
    uint32_t before = 0;

    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 16));
    for (size_t at = 0; at < text.n_bytes; at += apr_tpl_char_bytes(text.bytes + at)) {
        const uint32_t c = apr_tpl_char_at(text, at);
        const bool is_upper = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LU;
        const bool up = how == CASE_UPPER || (how == CASE_SWAP ? !is_upper : how != CASE_LOWER && starts_word);
        const bool is_title = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LT;
        if (how == CASE_FOLD) APR_TRY(put_folded(vm, c));
        else if (how == CASE_SWAP && is_title) APR_TRY(apr_tpl_put_char(vm, c));
        else if (up) APR_TRY(put_upper(vm, c, how == CASE_TITLE || how == CASE_CAPITALIZE));
        else APR_TRY(put_lower(vm, text, at, before));
        before = c;
        starts_word = how == CASE_TITLE_FILTER ? ends_word(text, at, c) : how == CASE_TITLE && !is_cased(c);
    }
    return apr_tpl_take(vm, mark, out);
}

/* ---- other changes ---- */

static bool strips(const char *p, size_t n, const apr_tpl_value *chars)
{
    if (chars->kind != TPL_STRING) return apr_tpl_is_space(p, n);
    for (size_t at = 0; at < chars->as.text.n_bytes;) {
        const size_t k = apr_tpl_char_bytes(chars->as.text.bytes + at);
        if (k == n && memcmp(chars->as.text.bytes + at, p, n) == 0) return true;
        at += k;
    }
    return false;
}

apr_tpl_text apr_tpl_strip(apr_tpl_text text, const apr_tpl_value *chars, bool left, bool right)
{
    while (left && text.n_bytes > 0) {
        const size_t n = apr_tpl_char_bytes(text.bytes);
        if (!strips(text.bytes, n, chars)) break;
        text.bytes += n;
        text.n_bytes -= n;
    }
    while (right && text.n_bytes > 0) {
        size_t n = 1;
        while (((unsigned char)text.bytes[text.n_bytes - n] & 0xc0) == 0x80) n++; /* back to the first byte of the character */
        if (!strips(text.bytes + text.n_bytes - n, n, chars)) break;
        text.n_bytes -= n;
    }
    return text;
}

apr_status apr_tpl_strip_chars(apr_tpl_vm *vm, apr_tpl_text text, const apr_tpl_value *chars, bool left, bool right, apr_tpl_value *out)
{
    apr_tpl_text set = {"", 0};
    if (chars->kind != TPL_ABSENT && chars->kind != TPL_NONE) APR_TRY(apr_tpl_want_text(vm, chars, "the argument of strip()", &set));
    APR_TRY(
        apr_tpl_steps(vm, text.n_bytes / 32 * (set.n_bytes / 4))); /* counted first: each character may be compared with the whole set */
    const apr_tpl_text stripped = apr_tpl_strip(text, chars, left, right);
    *out = apr_tpl_string(stripped.bytes, stripped.n_bytes);
    return apr_tpl_steps(vm, (text.n_bytes - stripped.n_bytes) / 16);
}

apr_status apr_tpl_replace(apr_tpl_vm *vm, apr_tpl_text text, apr_tpl_text old, apr_tpl_text new, int64_t max, apr_tpl_value *out)
{
    const size_t mark = vm->out.n_bytes;
    size_t at = 0;
    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 64));
    for (int64_t n = 0; max < 0 || n < max; n++) {
        const char *const found = apr_tpl_find(text, at, old);
        if (found == NULL || at > text.n_bytes) break;
        size_t end = (size_t)(found - text.bytes);
        if (old.n_bytes == 0 && n > 0)
            end = at + (at < text.n_bytes ? apr_tpl_char_bytes(text.bytes + at) : 1); /* between the characters */
        if (end > text.n_bytes) break;
        APR_TRY(apr_tpl_steps(vm, 1));
        APR_TRY(apr_tpl_put(vm, text.bytes + at, end - at));
        APR_TRY(apr_tpl_put_text(vm, new));
        at = end + old.n_bytes;
    }
    APR_TRY(apr_tpl_put(vm, text.bytes + at, text.n_bytes - at));
    return apr_tpl_take(vm, mark, out);
}

/* The end of the line at `at`; *next is the start of the line after it. */
static size_t line_end(apr_tpl_text text, size_t at, size_t *next)
{
    for (; at < text.n_bytes; at += apr_tpl_char_bytes(text.bytes + at)) {
        const uint32_t c = apr_tpl_char_at(text, at);
        if (!((c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029)) continue;
        *next = at + apr_tpl_char_bytes(text.bytes + at);
        if (c == '\r' && *next < text.n_bytes && text.bytes[*next] == '\n') ++*next;
        return at;
    }
    *next = text.n_bytes;
    return at;
}

apr_status apr_tpl_split_lines(apr_tpl_vm *vm, apr_tpl_text text, bool keep_ends, apr_tpl_value *out)
{
    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 16));
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, out));
    for (size_t at = 0, next; at < text.n_bytes; at = next) {
        const size_t end = line_end(text, at, &next);
        APR_TRY(apr_tpl_list_add(vm, out->as.list, apr_tpl_string(text.bytes + at, (keep_ends ? next : end) - at)));
    }
    return APR_OK;
}

apr_status apr_tpl_escape(apr_tpl_vm *vm, apr_tpl_text text, apr_tpl_value *out)
{
    static const struct {
        char c;
        const char *text;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    const size_t mark = vm->out.n_bytes;
    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 16));
    for (size_t i = 0; i < text.n_bytes; i++) {
        size_t k = 0;
        while (k < 5 && entities[k].c != text.bytes[i]) k++;
        APR_TRY(k < 5 ? apr_tpl_put(vm, entities[k].text, strlen(entities[k].text)) : apr_tpl_put(vm, text.bytes + i, 1));
    }
    APR_TRY(apr_tpl_take(vm, mark, out));
    out->owner = TPL_STRING;
    return APR_OK;
}

apr_status apr_tpl_escape_other(apr_tpl_vm *vm, const apr_tpl_value *v, apr_tpl_text *out)
{
    apr_tpl_value escaped;
    APR_TRY(apr_tpl_to_str(vm, v, out));
    if (apr_tpl_is_markup(v)) return APR_OK;
    APR_TRY(apr_tpl_escape(vm, *out, &escaped));
    *out = escaped.as.text;
    return APR_OK;
}

/* As in Python: if padding is odd, the extra blank is on the left for an odd width, else on the right. */
apr_status apr_tpl_center(apr_tpl_vm *vm, apr_tpl_text text, int64_t width, apr_tpl_text fill, apr_tpl_value *out)
{
    const size_t mark = vm->out.n_bytes;
    const int64_t n = (int64_t)apr_tpl_n_chars(text), n_pad = width > n ? width - n : 0, left = n_pad / 2 + (n_pad & width & 1);

    for (int64_t i = 0; i < left; i++) APR_TRY(apr_tpl_put_text(vm, fill));
    APR_TRY(apr_tpl_put_text(vm, text));
    for (int64_t i = left; i < n_pad; i++) APR_TRY(apr_tpl_put_text(vm, fill));
    return apr_tpl_take(vm, mark, out);
}
