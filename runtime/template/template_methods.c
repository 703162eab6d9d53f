/* template_methods.c - the methods of strings, dicts, lists and loops that templates call. */
#include "runtime/template/template_internal.h"

#include <string.h>
#include <utf8proc.h>

#define METHOD(name) \
    static apr_status name(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args __attribute__((unused)), apr_tpl_value *out)

static uint32_t code_point_at(const char *p)
{
    utf8proc_int32_t c;
    utf8proc_iterate((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)apr_tpl_char_bytes(p), &c);
    return (uint32_t)c;
}

/* ---- shared with the filters ---- */

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
        const uint32_t c = code_point_at(text.bytes + at);
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

/* ---- strings ---- */

static apr_status strip(apr_tpl_vm *vm, const apr_tpl_value *a, bool left, bool right, apr_tpl_value *out)
{
    return apr_tpl_strip_chars(vm, a->as.text, &a[1], left, right, out);
}

METHOD(str_strip) { return strip(vm, a, true, true, out); }
METHOD(str_lstrip) { return strip(vm, a, true, false, out); }
METHOD(str_rstrip) { return strip(vm, a, false, true, out); }
METHOD(str_upper) { return apr_tpl_change_case(vm, a->as.text, CASE_UPPER, out); }
METHOD(str_lower) { return apr_tpl_change_case(vm, a->as.text, CASE_LOWER, out); }
METHOD(str_title) { return apr_tpl_change_case(vm, a->as.text, CASE_TITLE, out); }
METHOD(str_capitalize) { return apr_tpl_change_case(vm, a->as.text, CASE_CAPITALIZE, out); }
METHOD(str_splitlines) { return apr_tpl_split_lines(vm, a->as.text, apr_tpl_is_true(&a[1]), out); }

METHOD(str_replace)
{
    apr_tpl_text old, new;
    int64_t max;
    APR_TRY(apr_tpl_want_text(vm, &a[1], "the first argument of replace()", &old));
    APR_TRY(apr_tpl_want_text(vm, &a[2], "the second argument of replace()", &new));
    APR_TRY(apr_tpl_want_int(vm, &a[3], "the count of replace()", -1, &max));
    if (apr_tpl_is_markup(a)) APR_TRY(apr_tpl_escape_other(vm, &a[2], &new));
    return apr_tpl_replace(vm, a->as.text, old, new, max, out);
}

/* split() without a separator: splits at white space, without empty items. */
static apr_status split_words(apr_tpl_vm *vm, apr_tpl_text text, int64_t max, apr_tpl_list *list)
{
    const apr_tpl_value blanks = apr_tpl_none();
    for (int64_t n = 0;; n++) {
        size_t end = 0;
        text = apr_tpl_strip(text, &blanks, true, false);
        if (text.n_bytes == 0) return APR_OK;
        if (max >= 0 && n == max) {
            text = apr_tpl_strip(text, &blanks, false, true);
            return apr_tpl_list_add(vm, list, apr_tpl_string(text.bytes, text.n_bytes));
        }
        while (end < text.n_bytes && !apr_tpl_is_space(text.bytes + end, apr_tpl_char_bytes(text.bytes + end)))
            end += apr_tpl_char_bytes(text.bytes + end);
        APR_TRY(apr_tpl_list_add(vm, list, apr_tpl_string(text.bytes, end)));
        text.bytes += end;
        text.n_bytes -= end;
    }
}

METHOD(str_split)
{
    const apr_tpl_text text = a->as.text;
    apr_tpl_text separator;
    int64_t max;
    size_t at = 0;
    APR_TRY(apr_tpl_want_int(vm, &a[2], "the maximum of split()", -1, &max));
    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 16));
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, out));
    if (a[1].kind == TPL_ABSENT || a[1].kind == TPL_NONE) return split_words(vm, text, max, out->as.list);
    APR_TRY(apr_tpl_want_text(vm, &a[1], "the separator of split()", &separator));
    if (separator.n_bytes == 0) return apr_tpl_fail(vm, APR_E_DAMAGED, "the separator of split() is empty");
    for (int64_t n = 0; max < 0 || n < max; n++) {
        const char *const found = apr_tpl_find(text, at, separator);
        if (found == NULL) break;
        APR_TRY(apr_tpl_list_add(vm, out->as.list, apr_tpl_string(text.bytes + at, (size_t)(found - text.bytes) - at)));
        at = (size_t)(found - text.bytes) + separator.n_bytes;
    }
    return apr_tpl_list_add(vm, out->as.list, apr_tpl_string(text.bytes + at, text.n_bytes - at));
}

/* The last occurrence of the needle in the first `end` bytes, or NULL. */
static const char *find_last(apr_tpl_text text, size_t end, apr_tpl_text needle)
{
    for (size_t at = end; at >= needle.n_bytes; at--)
        if (memcmp(text.bytes + at - needle.n_bytes, needle.bytes, needle.n_bytes) == 0) return text.bytes + at - needle.n_bytes;
    return NULL;
}

METHOD(str_rsplit)
{
    const apr_tpl_text text = a->as.text;
    apr_tpl_text separator;
    int64_t max;
    size_t end = text.n_bytes;
    APR_TRY(apr_tpl_want_int(vm, &a[2], "the maximum of rsplit()", -1, &max));
    if (max < 0) return str_split(vm, a, args, out);
    if (a[1].kind != TPL_STRING)
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "rsplit() with a maximum but without a separator is not supported");
    separator = a[1].as.text;
    if (separator.n_bytes == 0) return apr_tpl_fail(vm, APR_E_DAMAGED, "the separator of rsplit() is empty");
    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 16 * (1 + separator.n_bytes / 16)));
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, out));
    for (const char *found; max-- > 0 && (found = find_last(text, end, separator)) != NULL; end = (size_t)(found - text.bytes)) {
        const size_t from = (size_t)(found - text.bytes) + separator.n_bytes;
        APR_TRY(apr_tpl_list_add(vm, out->as.list, apr_tpl_string(text.bytes + from, end - from)));
    }
    APR_TRY(apr_tpl_list_add(vm, out->as.list, apr_tpl_string(text.bytes, end)));
    apr_tpl_value *const items = out->as.list->items;
    for (size_t i = 0, j = out->as.list->n_items - 1; i < j; i++, j--) {
        const apr_tpl_value item = items[i];
        items[i] = items[j];
        items[j] = item;
    }
    return APR_OK;
}

static bool has_affix(apr_tpl_text text, apr_tpl_text affix, bool at_end)
{
    return text.n_bytes >= affix.n_bytes &&
           memcmp(text.bytes + (at_end ? text.n_bytes - affix.n_bytes : 0), affix.bytes, affix.n_bytes) == 0;
}

/* startswith and endswith; of a tuple, any string may match. */
static apr_status affix(apr_tpl_vm *vm, const apr_tpl_value *a, bool at_end, apr_tpl_value *out)
{
    const bool is_tuple = a[1].kind == TPL_TUPLE;
    const size_t n = is_tuple ? a[1].as.list->n_items : 1;
    bool found = false;
    for (size_t i = 0; i < n && !found; i++) {
        apr_tpl_text wanted;
        APR_TRY(apr_tpl_steps(vm, 1));
        APR_TRY(apr_tpl_want_text(vm, is_tuple ? &a[1].as.list->items[i] : &a[1], "the argument of startswith() or endswith()", &wanted));
        found = has_affix(a->as.text, wanted, at_end);
    }
    *out = apr_tpl_bool(found);
    return APR_OK;
}

METHOD(str_startswith) { return affix(vm, a, false, out); }
METHOD(str_endswith) { return affix(vm, a, true, out); }

static apr_status remove_affix(apr_tpl_vm *vm, const apr_tpl_value *a, bool at_end, apr_tpl_value *out)
{
    apr_tpl_text removed;
    APR_TRY(apr_tpl_want_text(vm, &a[1], "the argument of removeprefix() or removesuffix()", &removed));
    *out = *a;
    if (!has_affix(a->as.text, removed, at_end)) return APR_OK;
    out->as.text.n_bytes -= removed.n_bytes;
    if (!at_end) out->as.text.bytes += removed.n_bytes;
    return APR_OK;
}

METHOD(str_removeprefix) { return remove_affix(vm, a, false, out); }
METHOD(str_removesuffix) { return remove_affix(vm, a, true, out); }

static apr_status find(apr_tpl_vm *vm, const apr_tpl_value *a, bool last, apr_tpl_value *out)
{
    apr_tpl_text needle;
    APR_TRY(apr_tpl_want_text(vm, &a[1], "the argument of find()", &needle));
    APR_TRY(apr_tpl_steps(vm, a->as.text.n_bytes / 16 * (last ? 1 + needle.n_bytes / 16 : 1)));
    const char *const found = last ? find_last(a->as.text, a->as.text.n_bytes, needle) : apr_tpl_find(a->as.text, 0, needle);
    *out = apr_tpl_int(found == NULL ? -1 : (int64_t)apr_tpl_n_chars((apr_tpl_text){a->as.text.bytes, (size_t)(found - a->as.text.bytes)}));
    return APR_OK;
}

METHOD(str_find) { return find(vm, a, false, out); }
METHOD(str_rfind) { return find(vm, a, true, out); }

METHOD(str_index)
{
    APR_TRY(find(vm, a, false, out));
    return out->as.integer >= 0 ? APR_OK : apr_tpl_fail(vm, APR_E_DAMAGED, "index(): the substring was not found");
}

METHOD(str_count)
{
    apr_tpl_text needle;
    int64_t n = 0;
    APR_TRY(apr_tpl_want_text(vm, &a[1], "the argument of count()", &needle));
    APR_TRY(apr_tpl_steps(vm, a->as.text.n_bytes / 16));
    if (needle.n_bytes == 0) n = (int64_t)apr_tpl_n_chars(a->as.text) + 1;
    for (size_t at = 0; needle.n_bytes > 0; n++) {
        const char *const found = apr_tpl_find(a->as.text, at, needle);
        if (found == NULL) break;
        at = (size_t)(found - a->as.text.bytes) + needle.n_bytes;
    }
    *out = apr_tpl_int(n);
    return APR_OK;
}

METHOD(str_join)
{
    const size_t mark = vm->out.n_bytes;
    apr_tpl_list *items;
    APR_TRY(apr_tpl_iterate(vm, &a[1], &items));
    for (size_t i = 0; i < items->n_items; i++) {
        apr_tpl_text item;
        APR_TRY(apr_tpl_want_text(vm, &items->items[i], "an item of join()", &item));
        if (apr_tpl_is_markup(a)) APR_TRY(apr_tpl_escape_other(vm, &items->items[i], &item));
        if (i > 0) APR_TRY(apr_tpl_put_text(vm, a->as.text));
        APR_TRY(apr_tpl_put_text(vm, item));
    }
    return apr_tpl_take(vm, mark, out);
}

static bool is_digit(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND; }
static bool is_letter(uint32_t c)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
static bool is_letter_or_digit(uint32_t c) { return is_letter(c) || is_digit(c); }
static bool is_blank(uint32_t c)
{
    utf8proc_uint8_t bytes[4];
    return apr_tpl_is_space((const char *)bytes, (size_t)utf8proc_encode_char((utf8proc_int32_t)c, bytes));
}

static apr_status all_are(apr_tpl_vm *vm, const apr_tpl_value *a, bool (*is)(uint32_t), apr_tpl_value *out)
{
    const apr_tpl_text text = a->as.text;
    bool all = text.n_bytes > 0;
    for (size_t at = 0; all && at < text.n_bytes; at += apr_tpl_char_bytes(text.bytes + at)) all = is(code_point_at(text.bytes + at));
    *out = apr_tpl_bool(all);
    return apr_tpl_steps(vm, text.n_bytes / 16);
}

METHOD(str_isdigit) { return all_are(vm, a, is_digit, out); }
METHOD(str_isalpha) { return all_are(vm, a, is_letter, out); }
METHOD(str_isalnum) { return all_are(vm, a, is_letter_or_digit, out); }
METHOD(str_isspace) { return all_are(vm, a, is_blank, out); }

const apr_tpl_builtin apr_tpl_string_methods[] = {
    {"strip", "chars?", str_strip, true},
    {"lstrip", "chars?", str_lstrip, true},
    {"rstrip", "chars?", str_rstrip, true},
    {"split", "sep? maxsplit?", str_split, true},
    {"rsplit", "sep? maxsplit?", str_rsplit, true},
    {"splitlines", "keepends?", str_splitlines, true},
    {"startswith", "prefix", str_startswith, false},
    {"endswith", "suffix", str_endswith, false},
    {"removeprefix", "prefix", str_removeprefix, true},
    {"removesuffix", "suffix", str_removesuffix, true},
    {"replace", "old new count?", str_replace, true},
    {"upper", "", str_upper, true},
    {"lower", "", str_lower, true},
    {"title", "", str_title, true},
    {"capitalize", "", str_capitalize, true},
    {"find", "sub", str_find, false},
    {"rfind", "sub", str_rfind, false},
    {"index", "sub", str_index, false},
    {"count", "sub", str_count, false},
    {"join", "iterable", str_join, true},
    {"isdigit", "", str_isdigit, false},
    {"isnumeric", "", str_isdigit, false},
    {"isdecimal", "", str_isdigit, false},
    {"isalpha", "", str_isalpha, false},
    {"isalnum", "", str_isalnum, false},
    {"isspace", "", str_isspace, false},
    {NULL, NULL, NULL, false},
};

/* ---- dicts ---- */

METHOD(dict_items) { return apr_tpl_dict_items(vm, a->as.dict, out); }

static apr_status list_of(apr_tpl_vm *vm, const apr_tpl_value *items, size_t n, apr_tpl_value *out)
{
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, n, out));
    for (size_t i = 0; i < n; i++) APR_TRY(apr_tpl_list_add(vm, out->as.list, items[i]));
    return APR_OK;
}

METHOD(dict_keys) { return list_of(vm, a->as.dict->keys, a->as.dict->n_items, out); }
METHOD(dict_values) { return list_of(vm, a->as.dict->values, a->as.dict->n_items, out); }

METHOD(dict_get)
{
    const apr_tpl_value *value;
    APR_TRY(apr_tpl_dict_find(vm, a->as.dict, &a[1], &value));
    *out = value != NULL ? *value : a[2].kind != TPL_ABSENT ? a[2] : apr_tpl_none();
    return APR_OK;
}

METHOD(dict_copy)
{
    APR_TRY(apr_tpl_dict_make(vm, TPL_DICT, out));
    for (size_t i = 0; i < a->as.dict->n_items; i++)
        APR_TRY(apr_tpl_dict_add(vm, out->as.dict, a->as.dict->keys[i], a->as.dict->values[i]));
    return APR_OK;
}

const apr_tpl_builtin apr_tpl_dict_methods[] = {
    {"items", "", dict_items, false},         {"keys", "", dict_keys, false}, {"values", "", dict_values, false},
    {"get", "key default?", dict_get, false}, {"copy", "", dict_copy, false}, {NULL, NULL, NULL, false},
};

/* ---- lists ---- */

METHOD(list_append)
{
    *out = apr_tpl_none();
    if (a->kind != TPL_LIST) return apr_tpl_fail(vm, APR_E_DAMAGED, "a tuple has no append()");
    return apr_tpl_list_add(vm, a->as.list, a[1]);
}

METHOD(list_copy) { return list_of(vm, a->as.list->items, a->as.list->n_items, out); }

METHOD(list_index)
{
    for (size_t i = 0; i < a->as.list->n_items; i++) {
        bool equal;
        APR_TRY(apr_tpl_equal(vm, &a->as.list->items[i], &a[1], &equal));
        *out = apr_tpl_int((int64_t)i);
        if (equal) return APR_OK;
    }
    return apr_tpl_fail(vm, APR_E_DAMAGED, "index(): the item was not found");
}

METHOD(list_count)
{
    int64_t n = 0;
    for (size_t i = 0; i < a->as.list->n_items; i++) {
        bool equal;
        APR_TRY(apr_tpl_equal(vm, &a->as.list->items[i], &a[1], &equal));
        n += equal;
    }
    *out = apr_tpl_int(n);
    return APR_OK;
}

const apr_tpl_builtin apr_tpl_list_methods[] = {
    {"append", "item", list_append, false}, {"copy", "", list_copy, false}, {"index", "item", list_index, false},
    {"count", "item", list_count, false},   {NULL, NULL, NULL, false},
};

/* ---- loop ---- */

METHOD(loop_cycle)
{
    (void)vm;
    if (args->list.n_items == 0) return apr_tpl_fail(vm, APR_E_DAMAGED, "loop.cycle() needs items");
    *out = args->list.items[a->as.loop->index0 % args->list.n_items];
    return APR_OK;
}

const apr_tpl_builtin apr_tpl_loop_methods[] = {{"cycle", NULL, loop_cycle, false}, {NULL, NULL, NULL, false}};
