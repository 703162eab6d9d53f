/* template_value.c - the limits of a rendering, and a template's values: UTF-8 text, lists, dicts, equality, order and membership, as in
 * Python. */
#include "runtime/template/template_value.h"
#include "runtime/template/template_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

/* ---- errors and limits ---- */

apr_status apr_tpl_fail(apr_tpl_vm *vm, apr_status status, const char *format, ...)
{
    char text[800];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return apr_fail(vm->err, status, "chat template, line %d: %s", vm->line, text);
}

apr_status apr_tpl_steps(apr_tpl_vm *vm, size_t n)
{
    if (n > (size_t)(APR_TEMPLATE_MAX_STEPS - vm->n_steps))
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "rendering takes more than %d steps; the template may not end", APR_TEMPLATE_MAX_STEPS);
    vm->n_steps += (int64_t)n;
    return APR_OK;
}

apr_status apr_tpl_descend(apr_tpl_vm *vm)
{
    if (++vm->depth > APR_TPL_MAX_DEPTH) return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "macros, tags or values are nested too deeply");
    return APR_OK;
}

apr_status apr_tpl_alloc(apr_tpl_vm *vm, size_t n, size_t size, void *out)
{
    size_t n_bytes;
    void *p = NULL;
    memcpy(out, &p, sizeof p);
    if (__builtin_mul_overflow(n, size, &n_bytes) || n_bytes > APR_TEMPLATE_MAX_MEMORY - vm->arena.total_bytes)
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "rendering needs more than %d MiB", APR_TEMPLATE_MAX_MEMORY >> 20);
    if ((p = apr_arena_alloc(&vm->arena, n_bytes)) == NULL) return apr_no_memory(vm->err, "rendering the chat template");
    memcpy(out, &p, sizeof p);
    return APR_OK;
}

apr_status apr_tpl_grow(apr_tpl_vm *vm, size_t n, size_t *capacity, size_t size, void *array)
{
    const size_t wanted = *capacity < 4 ? 4 : *capacity * 2;
    void *old, *bigger;
    if (n < *capacity) return APR_OK;
    memcpy(&old, array, sizeof old);
    APR_TRY(apr_tpl_alloc(vm, wanted, size, &bigger));
    if (n > 0) memcpy(bigger, old, n * size);
    memcpy(array, &bigger, sizeof bigger);
    *capacity = wanted;
    return APR_OK;
}

apr_status apr_tpl_fail_undefined(apr_tpl_vm *vm, const apr_tpl_value *a)
{
    return apr_tpl_fail(vm, APR_E_DAMAGED, "'%.*s' is undefined", apr_tpl_short(a->as.text), a->as.text.bytes);
}

apr_status apr_tpl_want_int(apr_tpl_vm *vm, const apr_tpl_value *v, const char *what, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (v->kind == TPL_ABSENT || v->kind == TPL_NONE) return APR_OK;
    if (!apr_tpl_is_int(v)) return apr_tpl_fail(vm, APR_E_DAMAGED, "%s is a '%s', not an integer", what, apr_tpl_type_name(v));
    *out = apr_tpl_as_int(v);
    return APR_OK;
}

apr_status apr_tpl_want_text(apr_tpl_vm *vm, const apr_tpl_value *v, const char *what, apr_tpl_text *out)
{
    if (v->kind != TPL_STRING) return apr_tpl_fail(vm, APR_E_DAMAGED, "%s is a '%s', not a string", what, apr_tpl_type_name(v));
    *out = v->as.text;
    return APR_OK;
}

/* ---- UTF-8 text ---- */

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

uint32_t apr_tpl_char_at(apr_tpl_text text, size_t at)
{
    utf8proc_int32_t c = 0;
    if (at < text.n_bytes)
        utf8proc_iterate((const utf8proc_uint8_t *)text.bytes + at, (utf8proc_ssize_t)apr_tpl_char_bytes(text.bytes + at), &c);
    return (uint32_t)c;
}

bool apr_tpl_is_space(const char *p, size_t n)
{
    const uint32_t c = apr_tpl_char_at((apr_tpl_text){p, n}, 0);
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
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

/* ---- values ---- */

bool apr_tpl_text_is(apr_tpl_text text, const char *expected)
{
    return text.n_bytes == strlen(expected) && memcmp(text.bytes, expected, text.n_bytes) == 0;
}

const char *apr_tpl_type_name(const apr_tpl_value *v)
{
    static const char *const names[TPL_KIND_COUNT] = {
        [TPL_ABSENT] = "nothing", [TPL_UNDEFINED] = "Undefined", [TPL_NONE] = "NoneType",       [TPL_BOOL] = "bool",
        [TPL_INT] = "int",        [TPL_FLOAT] = "float",         [TPL_STRING] = "str",          [TPL_LIST] = "list",
        [TPL_TUPLE] = "tuple",    [TPL_DICT] = "dict",           [TPL_NAMESPACE] = "Namespace", [TPL_LOOP] = "LoopContext",
        [TPL_MACRO] = "Macro",    [TPL_FUNCTION] = "function",   [TPL_METHOD] = "method",
    };
    return names[v->kind];
}

bool apr_tpl_is_true(const apr_tpl_value *v)
{
    switch (v->kind) {
    case TPL_ABSENT:
    case TPL_UNDEFINED:
    case TPL_NONE: return false;
    case TPL_BOOL: return v->as.boolean;
    case TPL_INT: return v->as.integer != 0;
    case TPL_FLOAT: return v->as.real != 0.0;
    case TPL_STRING: return v->as.text.n_bytes > 0;
    case TPL_LIST:
    case TPL_TUPLE: return v->as.list->n_items > 0;
    case TPL_DICT: return v->as.dict->n_items > 0;
    default: return true;
    }
}

static apr_status equal_lists(apr_tpl_vm *vm, const apr_tpl_list *a, const apr_tpl_list *b, bool *equal)
{
    *equal = a->n_items == b->n_items;
    for (size_t i = 0; *equal && i < a->n_items; i++) APR_TRY(apr_tpl_equal(vm, &a->items[i], &b->items[i], equal));
    return APR_OK;
}

static apr_status equal_dicts(apr_tpl_vm *vm, const apr_tpl_dict *a, const apr_tpl_dict *b, bool *equal)
{
    *equal = a->n_items == b->n_items;
    for (size_t i = 0; *equal && i < a->n_items; i++) {
        const apr_tpl_value *other;
        APR_TRY(apr_tpl_dict_find(vm, b, &a->keys[i], &other));
        *equal = other != NULL;
        if (other != NULL) APR_TRY(apr_tpl_equal(vm, &a->values[i], other, equal));
    }
    return APR_OK;
}

apr_status apr_tpl_equal(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_value *b, bool *equal)
{
    apr_status status = APR_OK;
    APR_TRY(apr_tpl_steps(vm, 1));
    if (apr_tpl_is_int(a) && apr_tpl_is_int(b)) {
        *equal = apr_tpl_as_int(a) == apr_tpl_as_int(b);
    } else if (apr_tpl_is_number(a) && apr_tpl_is_number(b)) {
        *equal = apr_tpl_as_real(a) == apr_tpl_as_real(b);
    } else if (a->kind != b->kind) {
        *equal = false;
    } else if (a->kind == TPL_STRING) {
        const apr_tpl_text s = a->as.text, t = b->as.text;
        *equal = s.n_bytes == t.n_bytes && memcmp(s.bytes, t.bytes, s.n_bytes) == 0;
        status = apr_tpl_steps(vm, *equal ? s.n_bytes / 64 : 0);
    } else if (apr_tpl_is_list(a) || a->kind == TPL_DICT) {
        APR_TRY(apr_tpl_descend(vm));
        status = a->kind == TPL_DICT ? equal_dicts(vm, a->as.dict, b->as.dict, equal) : equal_lists(vm, a->as.list, b->as.list, equal);
        vm->depth--;
    } else {
        *equal = a->kind == TPL_NONE || a->kind == TPL_UNDEFINED || a->as.dict == b->as.dict; /* objects: the same one */
    }
    return status;
}

apr_status apr_tpl_order(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_value *b, int *order)
{
    apr_status status = APR_OK;
    APR_TRY(apr_tpl_steps(vm, 1));
    if (apr_tpl_is_int(a) && apr_tpl_is_int(b)) {
        const int64_t x = apr_tpl_as_int(a), y = apr_tpl_as_int(b);
        *order = (x > y) - (x < y);
    } else if (apr_tpl_is_number(a) && apr_tpl_is_number(b)) {
        const double x = apr_tpl_as_real(a), y = apr_tpl_as_real(b);
        *order = (x > y) - (x < y);
    } else if (a->kind == TPL_STRING && b->kind == TPL_STRING) { /* UTF-8 bytes sort in the order of code points */
        const apr_tpl_text s = a->as.text, t = b->as.text;
        const size_t n = s.n_bytes < t.n_bytes ? s.n_bytes : t.n_bytes;
        const int c = n > 0 ? memcmp(s.bytes, t.bytes, n) : 0;
        *order = c != 0 ? (c > 0) - (c < 0) : (s.n_bytes > t.n_bytes) - (s.n_bytes < t.n_bytes);
        status = apr_tpl_steps(vm, n / 64);
    } else if (apr_tpl_is_list(a) && a->kind == b->kind) {
        const apr_tpl_list *const s = a->as.list, *const t = b->as.list;
        bool equal = true;
        size_t i = 0;
        APR_TRY(apr_tpl_descend(vm));
        for (; equal && i < s->n_items && i < t->n_items; i++) APR_TRY(apr_tpl_equal(vm, &s->items[i], &t->items[i], &equal));
        if (!equal) status = apr_tpl_order(vm, &s->items[i - 1], &t->items[i - 1], order);
        else *order = (s->n_items > t->n_items) - (s->n_items < t->n_items);
        vm->depth--;
    } else {
        return apr_tpl_fail(vm, APR_E_DAMAGED, "'%s' and '%s' cannot be ordered", apr_tpl_type_name(a), apr_tpl_type_name(b));
    }
    return status;
}

apr_status apr_tpl_list_make(apr_tpl_vm *vm, apr_tpl_kind kind, size_t capacity, apr_tpl_value *out)
{
    apr_tpl_list *list;
    APR_TRY(apr_tpl_alloc(vm, 1, sizeof *list, &list));
    if (capacity > 0) APR_TRY(apr_tpl_alloc(vm, capacity, sizeof *list->items, &list->items));
    list->capacity = capacity;
    *out = (apr_tpl_value){.kind = kind, .as.list = list};
    return APR_OK;
}

apr_status apr_tpl_list_add(apr_tpl_vm *vm, apr_tpl_list *list, apr_tpl_value item)
{
    APR_TRY(apr_tpl_steps(vm, 1));
    APR_TRY(apr_tpl_grow(vm, list->n_items, &list->capacity, sizeof *list->items, &list->items));
    list->items[list->n_items++] = item;
    return APR_OK;
}

apr_status apr_tpl_list_of(apr_tpl_vm *vm, apr_tpl_kind kind, const apr_tpl_value *items, size_t n, apr_tpl_value *out)
{
    APR_TRY(apr_tpl_list_make(vm, kind, n, out));
    for (size_t i = 0; i < n; i++) APR_TRY(apr_tpl_list_add(vm, out->as.list, items[i]));
    return APR_OK;
}

apr_status apr_tpl_dict_make(apr_tpl_vm *vm, apr_tpl_kind kind, apr_tpl_value *out)
{
    apr_tpl_dict *dict;
    APR_TRY(apr_tpl_alloc(vm, 1, sizeof *dict, &dict));
    *out = (apr_tpl_value){.kind = kind, .as.dict = dict};
    return APR_OK;
}

apr_status apr_tpl_dict_find(apr_tpl_vm *vm, const apr_tpl_dict *dict, const apr_tpl_value *key, const apr_tpl_value **value)
{
    *value = NULL;
    if (key->kind == TPL_LIST || key->kind == TPL_DICT)
        return apr_tpl_fail(vm, APR_E_DAMAGED, "a '%s' cannot be a key (unhashable type)", apr_tpl_type_name(key));
    for (size_t i = 0; i < dict->n_items; i++) {
        bool equal = false;
        if (key->kind == TPL_STRING && dict->keys[i].kind == TPL_STRING) { /* the common case, without a call */
            const apr_tpl_text s = key->as.text, t = dict->keys[i].as.text;
            equal = s.n_bytes == t.n_bytes && memcmp(s.bytes, t.bytes, s.n_bytes) == 0;
        } else {
            APR_TRY(apr_tpl_equal(vm, key, &dict->keys[i], &equal));
        }
        if (equal) {
            *value = &dict->values[i];
            return apr_tpl_steps(vm, i / 8);
        }
    }
    return apr_tpl_steps(vm, dict->n_items / 8);
}

apr_status apr_tpl_dict_add(apr_tpl_vm *vm, apr_tpl_dict *dict, apr_tpl_value key, apr_tpl_value value)
{
    APR_TRY(apr_tpl_steps(vm, 1));
    size_t n_keys = dict->capacity;
    APR_TRY(apr_tpl_grow(vm, dict->n_items, &n_keys, sizeof *dict->keys, &dict->keys));
    APR_TRY(apr_tpl_grow(vm, dict->n_items, &dict->capacity, sizeof *dict->values, &dict->values));
    dict->keys[dict->n_items] = key;
    dict->values[dict->n_items++] = value;
    return APR_OK;
}

apr_status apr_tpl_dict_set(apr_tpl_vm *vm, apr_tpl_dict *dict, const apr_tpl_value *key, const apr_tpl_value *value)
{
    const apr_tpl_value *found;
    APR_TRY(apr_tpl_dict_find(vm, dict, key, &found));
    if (found == NULL) return apr_tpl_dict_add(vm, dict, *key, *value);
    dict->values[found - dict->values] = *value;
    return APR_OK;
}

apr_status apr_tpl_dict_items(apr_tpl_vm *vm, const apr_tpl_dict *dict, apr_tpl_value *out)
{
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, dict->n_items, out));
    for (size_t i = 0; i < dict->n_items; i++) {
        apr_tpl_value pair;
        APR_TRY(apr_tpl_list_of(vm, TPL_TUPLE, (const apr_tpl_value[]){dict->keys[i], dict->values[i]}, 2, &pair));
        APR_TRY(apr_tpl_list_add(vm, out->as.list, pair));
    }
    return APR_OK;
}

static apr_status list_of_chars(apr_tpl_vm *vm, apr_tpl_text text, apr_tpl_list *list)
{
    for (size_t at = 0; at < text.n_bytes;) {
        const size_t n = apr_tpl_char_bytes(text.bytes + at);
        APR_TRY(apr_tpl_list_add(vm, list, apr_tpl_string(text.bytes + at, n)));
        at += n;
    }
    return APR_OK;
}

apr_status apr_tpl_iterate(apr_tpl_vm *vm, const apr_tpl_value *v, apr_tpl_list **items)
{
    apr_tpl_value list;
    if (apr_tpl_is_list(v)) {
        *items = v->as.list;
        return APR_OK;
    }
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, &list));
    *items = list.as.list;
    if (v->kind == TPL_STRING) return list_of_chars(vm, v->as.text, *items);
    if (v->kind == TPL_DICT) {
        for (size_t i = 0; i < v->as.dict->n_items; i++) APR_TRY(apr_tpl_list_add(vm, *items, v->as.dict->keys[i]));
        return APR_OK;
    }
    if (v->kind == TPL_UNDEFINED) return APR_OK;
    return apr_tpl_fail(vm, APR_E_DAMAGED, "a '%s' is not iterable", apr_tpl_type_name(v));
}

apr_status apr_tpl_length(apr_tpl_vm *vm, const apr_tpl_value *v, int64_t *length)
{
    *length = 0;
    if (v->kind == TPL_STRING) {
        *length = (int64_t)apr_tpl_n_chars(v->as.text);
        return apr_tpl_steps(vm, v->as.text.n_bytes / 64);
    }
    if (apr_tpl_is_list(v)) *length = (int64_t)v->as.list->n_items;
    else if (v->kind == TPL_DICT) *length = (int64_t)v->as.dict->n_items;
    else if (v->kind == TPL_LOOP) *length = (int64_t)v->as.loop->items->n_items;
    else if (v->kind != TPL_UNDEFINED) return apr_tpl_fail(vm, APR_E_DAMAGED, "a '%s' has no length", apr_tpl_type_name(v));
    return APR_OK;
}

apr_status apr_tpl_contains(apr_tpl_vm *vm, const apr_tpl_value *container, const apr_tpl_value *item, bool *found)
{
    *found = false;
    if (container->kind == TPL_STRING) {
        if (item->kind != TPL_STRING)
            return apr_tpl_fail(vm, APR_E_DAMAGED, "'in' cannot look for a '%s' in a string", apr_tpl_type_name(item));
        *found = apr_tpl_find(container->as.text, 0, item->as.text) != NULL;
        return apr_tpl_steps(vm, container->as.text.n_bytes / 64);
    }
    if (container->kind == TPL_DICT) {
        const apr_tpl_value *value;
        APR_TRY(apr_tpl_dict_find(vm, container->as.dict, item, &value));
        *found = value != NULL;
        return APR_OK;
    }
    apr_tpl_list *items;
    APR_TRY(apr_tpl_iterate(vm, container, &items));
    for (size_t i = 0; !*found && i < items->n_items; i++) APR_TRY(apr_tpl_equal(vm, &items->items[i], item, found));
    return APR_OK;
}
