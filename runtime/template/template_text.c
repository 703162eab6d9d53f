/* template_text.c - UTF-8 helpers, and conversion of values to text: Python's str and repr, and JSON. */
#include "runtime/template/template_internal.h"
#include "runtime/template/template_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

size_t apr_tpl_n_chars(apr_tpl_text text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n_bytes; i++) n += ((unsigned char)text.bytes[i] & 0xc0) != 0x80; /* not a continuation byte */
    return n;
}

size_t apr_tpl_char_offset(apr_tpl_text text, size_t n_chars)
{
    size_t at = 0;
    while (n_chars-- > 0 && at < text.n_bytes) at += apr_tpl_char_bytes(text.bytes + at);
    return at;
}

static uint32_t code_point_at(const char *p, size_t n)
{
    utf8proc_int32_t c = 0;
    utf8proc_iterate((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)n, &c);
    return (uint32_t)c;
}

bool apr_tpl_is_space(const char *p, size_t n)
{
    const uint32_t c = n > 0 ? code_point_at(p, n) : 0;
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool apr_tpl_is_utf8(const char *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)bytes + at, (utf8proc_ssize_t)(n - at), &c);
        if (k <= 0) return false;
        at += (size_t)k;
    }
    return true;
}

/* Rabin-Karp search: a rolling hash keeps the search linear for every needle. */
static const char *find_long(apr_tpl_text text, size_t from, apr_tpl_text needle)
{
    enum { BASE = 1000003 };
    const size_t n = needle.n_bytes;
    uint64_t wanted = 0, hash = 0, top = 1;
    for (size_t i = 0; i < n; i++) {
        wanted = wanted * BASE + (unsigned char)needle.bytes[i];
        hash = hash * BASE + (unsigned char)text.bytes[from + i];
        if (i > 0) top *= BASE;
    }
    for (size_t at = from;; at++) {
        if (hash == wanted && memcmp(text.bytes + at, needle.bytes, n) == 0) return text.bytes + at;
        if (text.n_bytes - at <= n) return NULL;
        hash = (hash - (unsigned char)text.bytes[at] * top) * BASE + (unsigned char)text.bytes[at + n];
    }
}

const char *apr_tpl_find(apr_tpl_text text, size_t from, apr_tpl_text needle)
{
    if (needle.n_bytes == 0) return text.bytes + from;
    if (needle.n_bytes > 32 && text.n_bytes - from >= needle.n_bytes) return find_long(text, from, needle);
    while (text.n_bytes - from >= needle.n_bytes) {
        const char *const p = memchr(text.bytes + from, needle.bytes[0], text.n_bytes - from - needle.n_bytes + 1);
        if (p == NULL) return NULL;
        if (memcmp(p, needle.bytes, needle.n_bytes) == 0) return p;
        from = (size_t)(p - text.bytes) + 1;
    }
    return NULL;
}

apr_status apr_tpl_put(apr_tpl_vm *vm, const char *bytes, size_t n)
{
    apr_tpl_out *const out = &vm->out;
    if (n > APR_TEMPLATE_MAX_OUTPUT - out->n_bytes)
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the output is longer than %d MiB", APR_TEMPLATE_MAX_OUTPUT >> 20);
    if (out->capacity - out->n_bytes <= n) { /* one byte is kept for the final NUL */
        size_t capacity = out->capacity < 4096 ? 4096 : out->capacity;
        while (capacity - out->n_bytes <= n) capacity *= 2;
        char *const bigger = realloc(out->bytes, capacity);
        if (bigger == NULL) return apr_no_memory(vm->err, "the text of the chat template");
        out->bytes = bigger;
        out->capacity = capacity;
    }
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
        const uint32_t c = code_point_at(text.bytes + at, n);
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
        const uint32_t c = code_point_at(text.bytes + at, n);
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
