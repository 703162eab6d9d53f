/* template_filters.c - the filters, tests and functions of templates. */
#include "runtime/template/template_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utf8proc.h>

static apr_status change_case(apr_tpl_vm *vm, const apr_tpl_value *a, apr_tpl_case how, apr_tpl_value *out)
{
    apr_tpl_text text;
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    return apr_tpl_change_case(vm, text, how, out);
}

BUILTIN(do_upper) { return change_case(vm, a, CASE_UPPER, out); }
BUILTIN(do_lower) { return change_case(vm, a, CASE_LOWER, out); }
BUILTIN(do_title) { return change_case(vm, a, CASE_TITLE_FILTER, out); }
BUILTIN(do_capitalize) { return change_case(vm, a, CASE_CAPITALIZE, out); }

BUILTIN(do_string)
{
    apr_tpl_text text;
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    *out = apr_tpl_string(text.bytes, text.n_bytes);
    return APR_OK;
}

BUILTIN(do_safe)
{
    APR_TRY(do_string(vm, a, args, out));
    out->owner = TPL_STRING;
    return APR_OK;
}

BUILTIN(do_trim)
{
    apr_tpl_text text;
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    return apr_tpl_strip_chars(vm, text, &a[1], true, true, out);
}

BUILTIN(do_length)
{
    int64_t n;
    APR_TRY(apr_tpl_length(vm, a, &n));
    *out = apr_tpl_int(n);
    return APR_OK;
}

BUILTIN(do_default)
{
    const bool takes = a->kind == TPL_UNDEFINED || (apr_tpl_is_true(&a[2]) && !apr_tpl_is_true(a));
    *out = !takes ? a[0] : a[1].kind != TPL_ABSENT ? a[1] : apr_tpl_string("", 0);
    return APR_OK;
}

BUILTIN(do_replace)
{
    apr_tpl_text text, old, new;
    int64_t max;
    APR_TRY(apr_tpl_to_str(vm, &a[0], &text));
    APR_TRY(apr_tpl_to_str(vm, &a[1], &old));
    APR_TRY(apr_tpl_to_str(vm, &a[2], &new));
    APR_TRY(apr_tpl_want_int(vm, &a[3], "the count of replace", -1, &max));
    return apr_tpl_replace(vm, text, old, new, max, out);
}

BUILTIN(do_forceescape)
{
    apr_tpl_text text;
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    return apr_tpl_escape(vm, text, out);
}

BUILTIN(do_escape)
{
    *out = a[0];
    return apr_tpl_is_markup(a) ? APR_OK : do_forceescape(vm, a, args, out);
}

BUILTIN(do_indent)
{
    const size_t mark = vm->out.n_bytes;
    const bool is_first = apr_tpl_is_true(&a[2]), is_blank = apr_tpl_is_true(&a[3]);
    const apr_tpl_value blank = apr_tpl_string(" ", 1);
    apr_tpl_text text;
    apr_tpl_value margin = a[1], lines;
    APR_TRY(apr_tpl_want_text(vm, a, "the input of indent", &text));
    if (margin.kind != TPL_STRING) {
        int64_t width;
        APR_TRY(apr_tpl_want_int(vm, &a[1], "the width of indent", 4, &width));
        const apr_tpl_value times = apr_tpl_int(width);
        APR_TRY(apr_tpl_binary(vm, OP_MUL, &blank, &times, &margin));
    }
    APR_TRY(apr_tpl_put_text(vm, text)); /* as in Jinja: the extra newline keeps an empty last line */
    APR_TRY(apr_tpl_put(vm, "\n", 1));
    APR_TRY(apr_tpl_take(vm, mark, &lines));
    APR_TRY(apr_tpl_split_lines(vm, lines.as.text, false, &lines));
    for (size_t i = 0; i < lines.as.list->n_items; i++) {
        const apr_tpl_text line = lines.as.list->items[i].as.text;
        if (i > 0) APR_TRY(apr_tpl_put(vm, "\n", 1));
        if (i == 0 ? is_first : is_blank || line.n_bytes > 0) APR_TRY(apr_tpl_put_text(vm, margin.as.text));
        APR_TRY(apr_tpl_put_text(vm, line));
    }
    return apr_tpl_take(vm, mark, out);
}

BUILTIN(do_center)
{
    const apr_tpl_text blank = {" ", 1};
    apr_tpl_text text;
    int64_t width;
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    APR_TRY(apr_tpl_want_int(vm, &a[1], "the width of center", 80, &width));
    return apr_tpl_center(vm, text, width, blank, out);
}

/* The text up to its last space; all of it if it has none. */
static apr_tpl_text whole_words(apr_tpl_text text)
{
    size_t n = text.n_bytes;
    while (n > 0 && text.bytes[n - 1] != ' ') n--;
    return n > 0 ? (apr_tpl_text){text.bytes, n - 1} : text;
}

BUILTIN(do_truncate)
{
    const size_t mark = vm->out.n_bytes;
    apr_tpl_text text, end = {"...", 3};
    apr_tpl_value suffix = apr_tpl_string("...", 3);
    int64_t length, leeway;
    APR_TRY(apr_tpl_want_text(vm, a, "the input of truncate", &text));
    APR_TRY(apr_tpl_want_int(vm, &a[1], "the length of truncate", 255, &length));
    APR_TRY(apr_tpl_want_int(vm, &a[4], "the leeway of truncate", 5, &leeway));
    if (a[3].kind != TPL_ABSENT) suffix = a[3];
    APR_TRY(apr_tpl_want_text(vm, &suffix, "the end of truncate", &end));
    const int64_t n_end = (int64_t)apr_tpl_n_chars(end);
    if (length < n_end || leeway < 0) return apr_tpl_fail(vm, APR_E_DAMAGED, "the length of truncate is shorter than its end text");
    *out = a[0];
    if ((int64_t)apr_tpl_n_chars(text) - leeway <= length) return APR_OK;
    text.n_bytes = apr_tpl_char_offset(text, (size_t)(length - n_end));
    if (apr_tpl_is_markup(a)) APR_TRY(apr_tpl_escape_other(vm, &suffix, &end));
    APR_TRY(apr_tpl_put_text(vm, apr_tpl_is_true(&a[2]) ? text : whole_words(text)));
    APR_TRY(apr_tpl_put_text(vm, end));
    return apr_tpl_take(vm, mark, out);
}

/* Counts runs of letters, numbers and underscores. */
BUILTIN(do_wordcount)
{
    apr_tpl_text text;
    int64_t n = 0;
    bool within = false;
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 16));
    for (size_t at = 0; at < text.n_bytes; at += apr_tpl_char_bytes(text.bytes + at)) {
        const uint32_t c = apr_tpl_char_at(text, at);
        const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
        const bool is_word = c == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
                             (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
        n += is_word && !within;
        within = is_word;
    }
    *out = apr_tpl_int(n);
    return APR_OK;
}

/* Removes tags and merges white space. */
BUILTIN(do_striptags)
{
    const size_t mark = vm->out.n_bytes;
    apr_tpl_text text;
    bool pending = false;
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    if (text.n_bytes > 0 && memchr(text.bytes, '&', text.n_bytes) != NULL)
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "striptags of text with an & is not supported");
    if (apr_tpl_find(text, 0, (apr_tpl_text){"<!--", 4}) != NULL)
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "striptags of text with comments is not supported");
    for (size_t at = 0; at < text.n_bytes;) {
        const size_t n = apr_tpl_char_bytes(text.bytes + at);
        const char *const close = text.bytes[at] == '<' ? memchr(text.bytes + at, '>', text.n_bytes - at) : NULL;
        if (close != NULL) {
            at = (size_t)(close - text.bytes) + 1;
            continue;
        }
        if (text.bytes[at] == '<') APR_TRY(apr_tpl_steps(vm, (text.n_bytes - at) / 32)); /* memchr scanned the rest without a match */
        const bool is_blank = apr_tpl_is_space(text.bytes + at, n);
        if (!is_blank && pending && vm->out.n_bytes > mark) APR_TRY(apr_tpl_put(vm, " ", 1));
        if (!is_blank) APR_TRY(apr_tpl_put(vm, text.bytes + at, n));
        pending = is_blank || (pending && vm->out.n_bytes == mark);
        at += n;
    }
    return apr_tpl_take(vm, mark, out);
}

/* Writes bytes other than letters, digits and "_.-~/" as %XX. */
BUILTIN(do_urlencode)
{
    const size_t mark = vm->out.n_bytes;
    apr_tpl_text text;
    if (apr_tpl_is_list(a) || a->kind == TPL_DICT)
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "urlencode of a '%s' is not supported", apr_tpl_type_name(a));
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    for (size_t i = 0; i < text.n_bytes; i++) {
        const unsigned char c = (unsigned char)text.bytes[i];
        char escaped[4];
        const bool stays = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c != 0 && strchr("_.-~/", c) != NULL);
        snprintf(escaped, sizeof escaped, stays ? "%c" : "%%%02X", c);
        APR_TRY(apr_tpl_put(vm, escaped, strlen(escaped)));
    }
    return apr_tpl_take(vm, mark, out);
}

BUILTIN(do_filesizeformat)
{
    static const char *const units[2][8] = {{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
                                            {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
    const bool binary = apr_tpl_is_true(&a[1]);
    const double base = binary ? 1024 : 1000;
    char text[400];
    if (!apr_tpl_is_number(a))
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "filesizeformat of a '%s' is not supported", apr_tpl_type_name(a));
    const double n = apr_tpl_as_real(a);
    double unit = base;
    size_t i = 0;
    while (i < 7 && n >= unit * base) {
        unit *= base;
        i++;
    }
    if (!(n < 9e18 && n > -9e18)) return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "a size does not fit 64 bits");
    if (n == 1) snprintf(text, sizeof text, "1 Byte");
    else if (n < base) snprintf(text, sizeof text, "%lld Bytes", (long long)n);
    else snprintf(text, sizeof text, "%.1f %s", n / unit, units[binary][i]);
    const size_t mark = vm->out.n_bytes;
    APR_TRY(apr_tpl_put(vm, text, strlen(text)));
    return apr_tpl_take(vm, mark, out);
}

/* 'text'|format(values) is 'text' % values. */
BUILTIN(do_format)
{
    apr_tpl_value text = a[0], values;
    apr_tpl_text copy;
    APR_TRY(apr_tpl_to_str(vm, a, &copy));
    if (a->kind != TPL_STRING) text = apr_tpl_string(copy.bytes, copy.n_bytes);
    if (args->list.n_items > 0 && args->named.n_items > 0) return apr_tpl_fail(vm, APR_E_DAMAGED, "format takes values or names, not both");
    APR_TRY(apr_tpl_list_of(vm, TPL_TUPLE, args->list.items, args->list.n_items, &values));
    if (args->named.n_items > 0) APR_TRY(apr_tpl_dict_make(vm, TPL_DICT, &values));
    for (size_t i = 0; i < args->named.n_items; i++)
        APR_TRY(apr_tpl_dict_set(vm, values.as.dict, &args->named.keys[i], &args->named.values[i]));
    return apr_tpl_format_percent(vm, &text, &values, out);
}

/* ---- numbers ---- */

/* Parses a number, ignoring white space around it. False: not a number. */
static bool parse_number(apr_tpl_text text, int base, bool as_real, apr_tpl_value *out)
{
    const apr_tpl_value blanks = apr_tpl_none();
    char digits[64], *end;
    size_t n = 0;
    text = apr_tpl_strip(text, &blanks, true, true);
    if (text.n_bytes == 0 || text.n_bytes >= sizeof digits) return false;
    for (size_t i = 0; i < text.n_bytes; i++) {
        const char c = text.bytes[i];
        if (c == '_' && i > 0 && i + 1 < text.n_bytes && text.bytes[i + 1] != '_') continue;
        if (c == '\0' || strchr(base == 16 && !as_real ? "(" : "xXpP(", c) != NULL)
            return false; /* accepted by strtod and strtoll, but not by Python */
        digits[n++] = c;
    }
    digits[n] = '\0';
    errno = 0;
    *out = as_real ? apr_tpl_real(strtod(digits, &end)) : apr_tpl_int(strtoll(digits, &end, base));
    return *end == '\0' && (as_real || errno == 0);
}

BUILTIN(do_float)
{
    if (a->kind == TPL_UNDEFINED) return apr_tpl_fail_undefined(vm, a);
    *out = a[1].kind != TPL_ABSENT ? a[1] : apr_tpl_real(0);
    if (apr_tpl_is_number(a)) *out = apr_tpl_real(apr_tpl_as_real(a));
    apr_tpl_value number;
    if (a->kind == TPL_STRING && parse_number(a->as.text, 10, true, &number)) *out = number;
    return apr_tpl_steps(vm, 1);
}

BUILTIN(do_int)
{
    int64_t base;
    apr_tpl_value number = a[0];
    if (a->kind == TPL_UNDEFINED) return apr_tpl_fail_undefined(vm, a);
    APR_TRY(apr_tpl_want_int(vm, &a[2], "the base of int", 10, &base));
    if (base < 2 || base > 36) return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the base of int is not between 2 and 36");
    *out = a[1].kind != TPL_ABSENT ? a[1] : apr_tpl_int(0);
    if (apr_tpl_is_int(a)) *out = apr_tpl_int(apr_tpl_as_int(a));
    if (a->kind == TPL_STRING) {
        if (parse_number(a->as.text, (int)base, false, &number)) *out = number;
        else if (!parse_number(a->as.text, 10, true, &number)) return APR_OK;
    }
    if (number.kind != TPL_FLOAT || isnan(number.as.real)) return APR_OK;
    if (fabs(number.as.real) >= 9.2e18) return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "a number does not fit 64 bits");
    *out = apr_tpl_int((int64_t)number.as.real);
    return APR_OK;
}

BUILTIN(do_abs)
{
    if (!apr_tpl_is_number(a)) return apr_tpl_fail(vm, APR_E_DAMAGED, "abs needs a number, not a '%s'", apr_tpl_type_name(a));
    return apr_tpl_unary(vm, apr_tpl_as_real(a) < 0 ? OP_NEG : OP_POS, a, out);
}

/* In Python, rounding an int gives an int. */
static apr_tpl_value rounded(const apr_tpl_value *a, double x)
{
    return apr_tpl_is_int(a) && fabs(x) < 9.2e18 ? apr_tpl_int((int64_t)x) : apr_tpl_real(x);
}

BUILTIN(do_round)
{
    apr_tpl_text method = {"common", 6};
    int64_t digits;
    if (!apr_tpl_is_number(a)) return apr_tpl_fail(vm, APR_E_DAMAGED, "round needs a number, not a '%s'", apr_tpl_type_name(a));
    APR_TRY(apr_tpl_want_int(vm, &a[1], "the precision of round", 0, &digits));
    if (a[2].kind != TPL_ABSENT) APR_TRY(apr_tpl_want_text(vm, &a[2], "the method of round", &method));
    if (digits < -300 || digits > 300) return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the precision of round is beyond 300 digits");
    const double x = apr_tpl_as_real(a), scale = pow(10, (double)digits);
    if (apr_tpl_text_is(method, "ceil")) *out = apr_tpl_real(ceil(x * scale) / scale);
    else if (apr_tpl_text_is(method, "floor")) *out = apr_tpl_real(floor(x * scale) / scale);
    else if (!apr_tpl_text_is(method, "common")) return apr_tpl_fail(vm, APR_E_DAMAGED, "the method of round is not common, ceil or floor");
    else if (apr_tpl_is_int(a) && digits >= 0) *out = apr_tpl_int(apr_tpl_as_int(a));
    else if (digits <= 0) *out = rounded(a, nearbyint(x * scale) / scale);
    else {
        char text[700]; /* printing rounds the exact value, as Python does */
        snprintf(text, sizeof text, "%.*f", (int)digits, x);
        *out = apr_tpl_real(strtod(text, NULL));
    }
    return APR_OK;
}

/* ---- JSON ---- */

/* transformers' tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False) */
BUILTIN(do_tojson)
{
    const size_t mark = vm->out.n_bytes;
    apr_tpl_json_style style = {
        .ascii = apr_tpl_is_true(&a[1]), .sort_keys = apr_tpl_is_true(&a[4]), .item_separator = {", ", 2}, .key_separator = {": ", 2}};
    if (a[2].kind != TPL_ABSENT && a[2].kind != TPL_NONE) {
        char *indent;
        int64_t width = 0;
        apr_tpl_text text = {"", 0};
        if (a[2].kind == TPL_STRING) text = a[2].as.text;
        else APR_TRY(apr_tpl_want_int(vm, &a[2], "the indent of tojson", 0, &width));
        if (width > 1000) return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the indent of tojson is over 1000");
        if (width < 0) width = 0;
        APR_TRY(apr_tpl_alloc(vm, (size_t)width + text.n_bytes + 1, 1, &indent));
        memset(indent, ' ', (size_t)width);
        memcpy(indent + width, text.bytes, text.n_bytes);
        style.indent = indent;
        style.item_separator = (apr_tpl_text){",", 1};
    }
    if (a[3].kind != TPL_ABSENT && a[3].kind != TPL_NONE) {
        if (!apr_tpl_is_list(&a[3]) || a[3].as.list->n_items != 2)
            return apr_tpl_fail(vm, APR_E_DAMAGED, "the separators of tojson are not a pair");
        APR_TRY(apr_tpl_want_text(vm, &a[3].as.list->items[0], "a separator of tojson", &style.item_separator));
        APR_TRY(apr_tpl_want_text(vm, &a[3].as.list->items[1], "a separator of tojson", &style.key_separator));
    }
    APR_TRY(apr_tpl_put_json(vm, a, &style, 0));
    return apr_tpl_take(vm, mark, out);
}

/* ---- lists and dicts ---- */

/* item.a.b for "a.b", item[2] for "2" or 2; the item itself when no path is given. The fallback (may be NULL) replaces any undefined
 * member of the path. */
static apr_status member_or(apr_tpl_vm *vm, const apr_tpl_value *item, const apr_tpl_value *path, const apr_tpl_value *fallback,
                            apr_tpl_value *out)
{
    *out = *item;
    if (path->kind == TPL_ABSENT || path->kind == TPL_NONE) return APR_OK;
    if (path->kind != TPL_STRING) {
        APR_TRY(apr_tpl_subscript(vm, item, path, out));
        if (out->kind == TPL_UNDEFINED && fallback != NULL) *out = *fallback;
        return APR_OK;
    }
    for (apr_tpl_text rest = path->as.text; rest.n_bytes > 0;) {
        const char *const dot = memchr(rest.bytes, '.', rest.n_bytes);
        const size_t n = dot != NULL ? (size_t)(dot - rest.bytes) : rest.n_bytes;
        const apr_tpl_value object = *out;
        apr_tpl_value key = apr_tpl_string(rest.bytes, n);
        int64_t index = 0;
        size_t n_digits = 0;
        while (n_digits < n && n_digits < 9 && rest.bytes[n_digits] >= '0' && rest.bytes[n_digits] <= '9')
            index = index * 10 + rest.bytes[n_digits++] - '0';
        if (n > 0 && n_digits == n) key = apr_tpl_int(index);
        APR_TRY(apr_tpl_subscript(vm, &object, &key, out));
        if (out->kind == TPL_UNDEFINED && fallback != NULL) *out = *fallback;
        rest.bytes += dot != NULL ? n + 1 : n;
        rest.n_bytes -= dot != NULL ? n + 1 : n;
    }
    return APR_OK;
}

static apr_status member(apr_tpl_vm *vm, const apr_tpl_value *item, const apr_tpl_value *path, apr_tpl_value *out)
{
    return member_or(vm, item, path, NULL, out);
}

/* The key of an item for sort, min, max, unique, groupby. Strings are compared in lower case unless case_sensitive. */
static apr_status sort_key(apr_tpl_vm *vm, const apr_tpl_value *item, const apr_tpl_value *path, bool case_sensitive, apr_tpl_value *key)
{
    APR_TRY(member(vm, item, path, key));
    if (key->kind == TPL_STRING && !case_sensitive) return apr_tpl_change_case(vm, key->as.text, CASE_LOWER, key);
    return APR_OK;
}

/* Merges the sorted halves [0, middle) and [middle, n) of (key, item) pairs; equal keys keep their order. */
static apr_status merge(apr_tpl_vm *vm, apr_tpl_value *pairs, apr_tpl_value *spare, size_t middle, size_t n, bool reverse)
{
    size_t i = 0, j = middle;
    APR_TRY(apr_tpl_steps(vm, n));
    for (size_t k = 0; k < n; k++) {
        int order = i < middle ? -1 : 1;
        if (i < middle && j < n) {
            APR_TRY(apr_tpl_order(vm, &pairs[2 * i], &pairs[2 * j], &order));
            if (reverse) order = -order;
        }
        const size_t from = order <= 0 ? i++ : j++;
        spare[2 * k] = pairs[2 * from];
        spare[2 * k + 1] = pairs[2 * from + 1];
    }
    memcpy(pairs, spare, 2 * n * sizeof *pairs);
    return APR_OK;
}

static apr_status merge_sort(apr_tpl_vm *vm, apr_tpl_value *pairs, apr_tpl_value *spare, size_t n, bool reverse)
{
    if (n < 2) return APR_OK;
    APR_TRY(merge_sort(vm, pairs, spare, n / 2, reverse));
    APR_TRY(merge_sort(vm, pairs + 2 * (n / 2), spare, n - n / 2, reverse));
    return merge(vm, pairs, spare, n / 2, n, reverse);
}

static apr_status sort_items(apr_tpl_vm *vm, const apr_tpl_list *items, const apr_tpl_value *path, bool case_sensitive, bool reverse,
                             apr_tpl_value *out)
{
    apr_tpl_value *pairs, *spare;
    const size_t n = items->n_items;
    APR_TRY(apr_tpl_alloc(vm, n, 2 * sizeof *pairs, &pairs));
    APR_TRY(apr_tpl_alloc(vm, n, 2 * sizeof *spare, &spare));
    for (size_t i = 0; i < n; i++) {
        APR_TRY(sort_key(vm, &items->items[i], path, case_sensitive, &pairs[2 * i]));
        pairs[2 * i + 1] = items->items[i];
    }
    APR_TRY(merge_sort(vm, pairs, spare, n, reverse));
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, n, out));
    for (size_t i = 0; i < n; i++) APR_TRY(apr_tpl_list_add(vm, out->as.list, pairs[2 * i + 1]));
    return APR_OK;
}

BUILTIN(do_sort)
{
    apr_tpl_list *items;
    APR_TRY(apr_tpl_iterate(vm, a, &items));
    return sort_items(vm, items, &a[3], apr_tpl_is_true(&a[2]), apr_tpl_is_true(&a[1]), out);
}

BUILTIN(do_dictsort)
{
    apr_tpl_value pairs;
    const bool by_value = a[2].kind == TPL_STRING && apr_tpl_text_is(a[2].as.text, "value");
    const apr_tpl_value path = apr_tpl_int(by_value);
    if (a->kind != TPL_DICT) return apr_tpl_fail(vm, APR_E_DAMAGED, "dictsort needs a dict, not a '%s'", apr_tpl_type_name(a));
    APR_TRY(apr_tpl_dict_items(vm, a->as.dict, &pairs));
    return sort_items(vm, pairs.as.list, &path, apr_tpl_is_true(&a[1]), apr_tpl_is_true(&a[3]), out);
}

BUILTIN(do_unique)
{
    apr_tpl_list *items;
    apr_tpl_value seen;
    APR_TRY(apr_tpl_iterate(vm, a, &items));
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, out));
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, &seen));
    for (size_t i = 0; i < items->n_items; i++) {
        apr_tpl_value key;
        bool found;
        APR_TRY(sort_key(vm, &items->items[i], &a[2], apr_tpl_is_true(&a[1]), &key));
        APR_TRY(apr_tpl_contains(vm, &seen, &key, &found));
        if (found) continue;
        APR_TRY(apr_tpl_list_add(vm, seen.as.list, key));
        APR_TRY(apr_tpl_list_add(vm, out->as.list, items->items[i]));
    }
    return APR_OK;
}

/* The item with the smallest key (sign 1) or the largest key (sign -1). */
static apr_status extreme(apr_tpl_vm *vm, const apr_tpl_value *a, int sign, apr_tpl_value *out)
{
    apr_tpl_list *items;
    apr_tpl_value best, key;
    APR_TRY(apr_tpl_iterate(vm, a, &items));
    *out = apr_tpl_undefined((apr_tpl_text){"an item of an empty list", 24});
    for (size_t i = 0; i < items->n_items; i++) {
        int order = -sign;
        APR_TRY(sort_key(vm, &items->items[i], &a[2], apr_tpl_is_true(&a[1]), &key));
        if (i > 0) APR_TRY(apr_tpl_order(vm, &key, &best, &order));
        if (order * sign >= 0) continue;
        best = key;
        *out = items->items[i];
    }
    return APR_OK;
}

BUILTIN(do_min) { return extreme(vm, a, 1, out); }
BUILTIN(do_max) { return extreme(vm, a, -1, out); }

BUILTIN(do_sum)
{
    apr_tpl_list *items;
    *out = a[2].kind != TPL_ABSENT ? a[2] : apr_tpl_int(0);
    APR_TRY(apr_tpl_iterate(vm, a, &items));
    for (size_t i = 0; i < items->n_items; i++) {
        const apr_tpl_value sum = *out;
        apr_tpl_value item;
        APR_TRY(member(vm, &items->items[i], &a[1], &item));
        APR_TRY(apr_tpl_binary(vm, OP_ADD, &sum, &item, out));
    }
    return APR_OK;
}

BUILTIN(do_join)
{
    const size_t mark = vm->out.n_bytes;
    apr_tpl_list *items;
    APR_TRY(apr_tpl_iterate(vm, a, &items));
    for (size_t i = 0; i < items->n_items; i++) {
        apr_tpl_value item;
        APR_TRY(member(vm, &items->items[i], &a[2], &item));
        if (i > 0) APR_TRY(apr_tpl_put_str(vm, &a[1]));
        APR_TRY(apr_tpl_put_str(vm, &item));
    }
    return apr_tpl_take(vm, mark, out);
}

static apr_status pick(apr_tpl_vm *vm, const apr_tpl_value *a, bool last, apr_tpl_value *out)
{
    apr_tpl_list *items;
    APR_TRY(apr_tpl_iterate(vm, a, &items));
    *out = apr_tpl_undefined((apr_tpl_text){"an item of an empty list", 24});
    if (items->n_items > 0) *out = items->items[last ? items->n_items - 1 : 0];
    return APR_OK;
}

BUILTIN(do_first) { return pick(vm, a, false, out); }
BUILTIN(do_last) { return pick(vm, a, true, out); }

static apr_status copy_items(apr_tpl_vm *vm, const apr_tpl_value *a, bool reverse, apr_tpl_value *out)
{
    apr_tpl_list *items;
    APR_TRY(apr_tpl_iterate(vm, a, &items));
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, items->n_items, out));
    for (size_t i = 0; i < items->n_items; i++)
        APR_TRY(apr_tpl_list_add(vm, out->as.list, items->items[reverse ? items->n_items - 1 - i : i]));
    return APR_OK;
}

BUILTIN(do_list) { return copy_items(vm, a, false, out); }

BUILTIN(do_reverse)
{
    const apr_tpl_value backwards[3] = {apr_tpl_none(), apr_tpl_none(), apr_tpl_int(-1)};
    return a->kind == TPL_STRING ? apr_tpl_slice(vm, a, backwards, out) : copy_items(vm, a, true, out);
}

BUILTIN(do_items)
{
    if (a->kind == TPL_DICT) return apr_tpl_dict_items(vm, a->as.dict, out);
    if (a->kind == TPL_UNDEFINED) return apr_tpl_list_make(vm, TPL_LIST, 0, out);
    return apr_tpl_fail(vm, APR_E_DAMAGED, "items needs a dict, not a '%s'", apr_tpl_type_name(a));
}

BUILTIN(do_batch)
{
    apr_tpl_list *items;
    apr_tpl_value row;
    int64_t n;
    APR_TRY(apr_tpl_want_int(vm, &a[1], "the size of batch", 0, &n));
    APR_TRY(apr_tpl_iterate(vm, a, &items));
    if (n < 1) return apr_tpl_fail(vm, APR_E_DAMAGED, "the size of batch is not positive");
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, out));
    for (size_t i = 0; i < items->n_items; i++) {
        if (i % (size_t)n == 0) {
            APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, &row));
            APR_TRY(apr_tpl_list_add(vm, out->as.list, row));
        }
        APR_TRY(apr_tpl_list_add(vm, row.as.list, items->items[i]));
    }
    if (items->n_items > 0 && a[2].kind != TPL_ABSENT && a[2].kind != TPL_NONE)
        while (row.as.list->n_items < (size_t)n) APR_TRY(apr_tpl_list_add(vm, row.as.list, a[2]));
    return APR_OK;
}

/* Splits a list into n columns; columns that are one item shorter get fill_with. */
BUILTIN(do_slice)
{
    apr_tpl_list *items;
    int64_t n;
    size_t at = 0;
    APR_TRY(apr_tpl_want_int(vm, &a[1], "the number of slice", 0, &n));
    APR_TRY(apr_tpl_iterate(vm, a, &items));
    if (n < 1) return apr_tpl_fail(vm, APR_E_DAMAGED, "the number of slice is not positive");
    const size_t per = items->n_items / (size_t)n, n_longer = items->n_items % (size_t)n;
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, out));
    for (size_t i = 0; i < (size_t)n; i++) {
        apr_tpl_value column;
        APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, &column));
        for (size_t k = per + (i < n_longer); k > 0; k--) APR_TRY(apr_tpl_list_add(vm, column.as.list, items->items[at++]));
        if (i >= n_longer && a[2].kind != TPL_ABSENT && a[2].kind != TPL_NONE) APR_TRY(apr_tpl_list_add(vm, column.as.list, a[2]));
        APR_TRY(apr_tpl_list_add(vm, out->as.list, column));
    }
    return APR_OK;
}

/* [(key, items), ...] in the order of the keys. */
BUILTIN(do_groupby)
{
    apr_tpl_list *items;
    apr_tpl_value sorted, key, last = {.kind = TPL_ABSENT}, pair, group = {.kind = TPL_ABSENT};
    const apr_tpl_value *const fallback = a[2].kind != TPL_ABSENT && a[2].kind != TPL_NONE ? &a[2] : NULL;
    if (fallback != NULL) return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "a default of groupby is not supported");
    APR_TRY(apr_tpl_iterate(vm, a, &items));
    APR_TRY(sort_items(vm, items, &a[1], apr_tpl_is_true(&a[3]), false, &sorted));
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, out));
    for (size_t i = 0; i < sorted.as.list->n_items; i++) {
        const apr_tpl_value *const item = &sorted.as.list->items[i];
        bool same = false;
        APR_TRY(sort_key(vm, item, &a[1], apr_tpl_is_true(&a[3]), &key));
        if (i > 0) APR_TRY(apr_tpl_equal(vm, &key, &last, &same));
        last = key;
        if (!same) {
            apr_tpl_value shown; /* the key of the first item of the group, in its original case */
            APR_TRY(member(vm, item, &a[1], &shown));
            APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, &group));
            APR_TRY(apr_tpl_list_of(vm, TPL_TUPLE, (const apr_tpl_value[]){shown, group}, 2, &pair));
            APR_TRY(apr_tpl_list_add(vm, out->as.list, pair));
        }
        APR_TRY(apr_tpl_list_add(vm, group.as.list, *item));
    }
    return APR_OK;
}

/* ---- map, select, reject ---- */

/* The arguments after the first n. */
static apr_tpl_args args_from(const apr_tpl_args *args, size_t n)
{
    apr_tpl_args rest = *args;
    if (n > rest.list.n_items) n = rest.list.n_items;
    if (n > 0) rest.list.items += n;
    rest.list.n_items -= n;
    rest.list.capacity = rest.list.n_items;
    return rest;
}

static apr_status find_named(apr_tpl_vm *vm, const apr_tpl_value *name, bool is_test, const apr_tpl_builtin **f)
{
    apr_tpl_text text;
    APR_TRY(apr_tpl_want_text(vm, name, is_test ? "the name of a test" : "the name of a filter", &text));
    *f = apr_tpl_builtin_named(is_test ? APR_TPL_TEST : APR_TPL_FILTER, text);
    if (*f != NULL) return APR_OK;
    return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the %s '%.*s' is not supported", is_test ? "test" : "filter", apr_tpl_short(text),
                        text.bytes);
}

/* map, select and the like treat a false input (none and 0, for example) as an empty list. */
static apr_status iterate_true(apr_tpl_vm *vm, const apr_tpl_value *a, apr_tpl_list **items)
{
    apr_tpl_value empty;
    if (apr_tpl_is_true(a)) return apr_tpl_iterate(vm, a, items);
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, &empty));
    *items = empty.as.list;
    return APR_OK;
}

/* map(attribute='a.b', default=x) or map('filter', arguments) */
BUILTIN(do_map)
{
    const apr_tpl_value path_key = apr_tpl_string("attribute", 9), default_key = apr_tpl_string("default", 7);
    const apr_tpl_value *path, *fallback;
    const apr_tpl_builtin *f = NULL;
    const apr_tpl_args rest = args_from(args, 1);
    apr_tpl_list *items;
    APR_TRY(apr_tpl_dict_find(vm, &args->named, &path_key, &path));
    APR_TRY(apr_tpl_dict_find(vm, &args->named, &default_key, &fallback));
    if (path == NULL && args->list.n_items == 0) return apr_tpl_fail(vm, APR_E_DAMAGED, "map needs a filter or an attribute");
    if (args->list.n_items > 0) APR_TRY(find_named(vm, &args->list.items[0], false, &f));
    APR_TRY(iterate_true(vm, a, &items));
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, items->n_items, out));
    for (size_t i = 0; i < items->n_items; i++) {
        apr_tpl_value item;
        APR_TRY(f != NULL ? apr_tpl_builtin_call(vm, f, &items->items[i], &rest, &item)
                          : member_or(vm, &items->items[i], path, fallback, &item));
        APR_TRY(apr_tpl_list_add(vm, out->as.list, item));
    }
    return APR_OK;
}

/* The items whose test result (or reference value, without a test) is `wanted`. with_path: the first argument names the tested member. */
static apr_status select_items(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, bool with_path, bool wanted,
                               apr_tpl_value *out)
{
    const size_t n_before = with_path ? 1 : 0;
    const apr_tpl_value no_path = {.kind = TPL_ABSENT};
    const apr_tpl_builtin *test = NULL;
    const apr_tpl_args rest = args_from(args, n_before + 1);
    apr_tpl_list *items;
    if (args->list.n_items < n_before) return apr_tpl_fail(vm, APR_E_DAMAGED, "selectattr and rejectattr need the name of an attribute");
    if (args->list.n_items > n_before) APR_TRY(find_named(vm, &args->list.items[n_before], true, &test));
    APR_TRY(iterate_true(vm, a, &items));
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, out));
    for (size_t i = 0; i < items->n_items; i++) {
        apr_tpl_value item, verdict;
        APR_TRY(member(vm, &items->items[i], with_path ? &args->list.items[0] : &no_path, &item));
        verdict = item;
        if (test != NULL) APR_TRY(apr_tpl_builtin_call(vm, test, &item, &rest, &verdict));
        if (apr_tpl_is_true(&verdict) == wanted) APR_TRY(apr_tpl_list_add(vm, out->as.list, items->items[i]));
    }
    return APR_OK;
}

BUILTIN(do_select) { return select_items(vm, a, args, false, true, out); }
BUILTIN(do_reject) { return select_items(vm, a, args, false, false, out); }
BUILTIN(do_selectattr) { return select_items(vm, a, args, true, true, out); }
BUILTIN(do_rejectattr) { return select_items(vm, a, args, true, false, out); }

static const apr_tpl_builtin filters[] = {
    {"trim", "chars?", do_trim, true},
    {"length", "", do_length, false},
    {"count", "", do_length, false},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", do_tojson, false},
    {"default", "default_value? boolean?", do_default, false},
    {"d", "default_value? boolean?", do_default, false},
    {"string", "", do_string, true},
    {"upper", "", do_upper, true},
    {"lower", "", do_lower, true},
    {"title", "", do_title, false},
    {"capitalize", "", do_capitalize, true},
    {"replace", "old new count?", do_replace, false},
    {"safe", "", do_safe, false},
    {"e", "", do_escape, false},
    {"escape", "", do_escape, false},
    {"forceescape", "", do_forceescape, false},
    {"indent", "width? first? blank?", do_indent, true},
    {"int", "default? base?", do_int, false},
    {"float", "default?", do_float, false},
    {"abs", "", do_abs, false},
    {"round", "precision? method?", do_round, false},
    {"join", "d? attribute?", do_join, false},
    {"first", "", do_first, false},
    {"last", "", do_last, true},
    {"list", "", do_list, false},
    {"items", "", do_items, false},
    {"map", NULL, do_map, false},
    {"select", NULL, do_select, false},
    {"reject", NULL, do_reject, false},
    {"selectattr", NULL, do_selectattr, false},
    {"rejectattr", NULL, do_rejectattr, false},
    {"sort", "reverse? case_sensitive? attribute?", do_sort, false},
    {"dictsort", "case_sensitive? by? reverse?", do_dictsort, false},
    {"unique", "case_sensitive? attribute?", do_unique, false},
    {"reverse", "", do_reverse, true},
    {"min", "case_sensitive? attribute?", do_min, false},
    {"max", "case_sensitive? attribute?", do_max, false},
    {"sum", "attribute? start?", do_sum, false},
    {"batch", "linecount fill_with?", do_batch, false},
    {"slice", "slices fill_with?", do_slice, false},
    {"groupby", "attribute default? case_sensitive?", do_groupby, false},
    {"center", "width?", do_center, true},
    {"truncate", "length? killwords? end? leeway?", do_truncate, true},
    {"wordcount", "", do_wordcount, false},
    {"striptags", "", do_striptags, false},
    {"urlencode", "", do_urlencode, false},
    {"filesizeformat", "binary?", do_filesizeformat, false},
    {"format", NULL, do_format, true},
    {NULL, NULL, NULL, false},
};

/* ---- tests ---- */

#define TEST(name, condition)           \
    BUILTIN(test_##name)                \
    {                                   \
        *out = apr_tpl_bool(condition); \
        return APR_OK;                  \
    }

TEST(defined, a->kind != TPL_UNDEFINED)
TEST(undefined, a->kind == TPL_UNDEFINED)
TEST(none, a->kind == TPL_NONE)
TEST(boolean, a->kind == TPL_BOOL)
TEST(true, a->kind == TPL_BOOL && a->as.boolean)
TEST(false, a->kind == TPL_BOOL && !a->as.boolean)
TEST(integer, a->kind == TPL_INT)
TEST(float, a->kind == TPL_FLOAT)
TEST(number, apr_tpl_is_number(a))
TEST(string, a->kind == TPL_STRING)
TEST(mapping, a->kind == TPL_DICT)
TEST(sequence, a->kind == TPL_STRING || a->kind == TPL_DICT || a->kind == TPL_UNDEFINED || apr_tpl_is_list(a))
TEST(iterable, a->kind == TPL_STRING || a->kind == TPL_DICT || a->kind == TPL_UNDEFINED || a->kind == TPL_LOOP || apr_tpl_is_list(a))
TEST(callable, a->kind >= TPL_MACRO || a->kind == TPL_UNDEFINED)
TEST(escaped, apr_tpl_is_markup(a))
TEST(filter, a->kind == TPL_STRING && apr_tpl_builtin_named(APR_TPL_FILTER, a->as.text) != NULL)
TEST(test, a->kind == TPL_STRING && apr_tpl_builtin_named(APR_TPL_TEST, a->as.text) != NULL)

#define COMPARISON(name, op)                                    \
    BUILTIN(test_##name)                                        \
    {                                                           \
        bool holds;                                             \
        APR_TRY(apr_tpl_compare(vm, op, &a[0], &a[1], &holds)); \
        *out = apr_tpl_bool(holds);                             \
        return APR_OK;                                          \
    }

COMPARISON(eq, OP_EQ)
COMPARISON(ne, OP_NE)
COMPARISON(lt, OP_LT)
COMPARISON(le, OP_LE)
COMPARISON(gt, OP_GT)
COMPARISON(ge, OP_GE)
COMPARISON(in, OP_IN)

/* a % divisor == rest */
static apr_status test_rest(apr_tpl_vm *vm, const apr_tpl_value *a, int64_t divisor, int64_t rest, apr_tpl_value *out)
{
    const apr_tpl_value by = apr_tpl_int(divisor), wanted = apr_tpl_int(rest);
    apr_tpl_value got;
    bool equal;
    APR_TRY(apr_tpl_binary(vm, OP_MOD, a, &by, &got));
    APR_TRY(apr_tpl_equal(vm, &got, &wanted, &equal));
    *out = apr_tpl_bool(equal);
    return APR_OK;
}

BUILTIN(test_odd) { return test_rest(vm, a, 2, 1, out); }
BUILTIN(test_even) { return test_rest(vm, a, 2, 0, out); }

BUILTIN(test_divisibleby)
{
    int64_t divisor;
    APR_TRY(apr_tpl_want_int(vm, &a[1], "the divisor", 0, &divisor));
    return test_rest(vm, a, divisor, 0, out);
}

static apr_status test_case(apr_tpl_vm *vm, const apr_tpl_value *a, apr_tpl_case how, apr_tpl_value *out)
{
    apr_tpl_text text;
    apr_tpl_value changed;
    bool equal;
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    const apr_tpl_value original = apr_tpl_string(text.bytes, text.n_bytes);
    APR_TRY(apr_tpl_change_case(vm, text, how, &changed));
    APR_TRY(apr_tpl_equal(vm, &changed, &original, &equal));
    if (equal && text.n_bytes > 0) { /* at least one letter has a case: changing to the other case differs */
        APR_TRY(apr_tpl_change_case(vm, text, how == CASE_UPPER ? CASE_LOWER : CASE_UPPER, &changed));
        APR_TRY(apr_tpl_equal(vm, &changed, &original, &equal));
        equal = !equal;
    }
    *out = apr_tpl_bool(equal && text.n_bytes > 0);
    return APR_OK;
}

BUILTIN(test_lower) { return test_case(vm, a, CASE_LOWER, out); }
BUILTIN(test_upper) { return test_case(vm, a, CASE_UPPER, out); }

BUILTIN(test_sameas)
{
    bool equal;
    APR_TRY(apr_tpl_equal(vm, &a[0], &a[1], &equal));
    if (apr_tpl_is_list(a) || a->kind == TPL_DICT) equal = a[0].as.dict == a[1].as.dict;
    *out = apr_tpl_bool(equal && a[0].kind == a[1].kind);
    return APR_OK;
}

static const apr_tpl_builtin tests[] = {
    {"defined", "", test_defined, false},
    {"undefined", "", test_undefined, false},
    {"none", "", test_none, false},
    {"boolean", "", test_boolean, false},
    {"true", "", test_true, false},
    {"false", "", test_false, false},
    {"integer", "", test_integer, false},
    {"float", "", test_float, false},
    {"number", "", test_number, false},
    {"string", "", test_string, false},
    {"mapping", "", test_mapping, false},
    {"sequence", "", test_sequence, false},
    {"iterable", "", test_iterable, false},
    {"callable", "", test_callable, false},
    {"escaped", "", test_escaped, false},
    {"filter", "", test_filter, false},
    {"test", "", test_test, false},
    {"odd", "", test_odd, false},
    {"even", "", test_even, false},
    {"divisibleby", "num", test_divisibleby, false},
    {"lower", "", test_lower, false},
    {"upper", "", test_upper, false},
    {"sameas", "other", test_sameas, false},
    {"eq", "other", test_eq, false},
    {"equalto", "other", test_eq, false},
    {"==", "other", test_eq, false},
    {"ne", "other", test_ne, false},
    {"!=", "other", test_ne, false},
    {"lt", "other", test_lt, false},
    {"lessthan", "other", test_lt, false},
    {"<", "other", test_lt, false},
    {"le", "other", test_le, false},
    {"<=", "other", test_le, false},
    {"gt", "other", test_gt, false},
    {"greaterthan", "other", test_gt, false},
    {">", "other", test_gt, false},
    {"ge", "other", test_ge, false},
    {">=", "other", test_ge, false},
    {"in", "seq", test_in, false},
    {NULL, NULL, NULL, false},
};

/* ---- functions ---- */

BUILTIN(fn_range)
{
    enum { MAX_RANGE = 100000 }; /* the limit of Jinja's sandbox */
    const bool has_stop = a[2].kind != TPL_ABSENT;
    int64_t start, stop, step;
    APR_TRY(apr_tpl_want_int(vm, &a[1], "the start of range()", 0, &start));
    APR_TRY(apr_tpl_want_int(vm, &a[2], "the end of range()", 0, &stop));
    APR_TRY(apr_tpl_want_int(vm, &a[3], "the step of range()", 1, &step));
    if (!has_stop) {
        stop = start;
        start = 0;
    }
    if (step == 0) return apr_tpl_fail(vm, APR_E_DAMAGED, "the step of range() is 0");
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, out));
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        if (out->as.list->n_items == MAX_RANGE) return apr_tpl_fail(vm, APR_E_DAMAGED, "range() has more than %d items", MAX_RANGE);
        APR_TRY(apr_tpl_list_add(vm, out->as.list, apr_tpl_int(i)));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return APR_OK;
}

/* namespace(a=1), dict(b=2), dict({'c': 3}, d=4), dict([('e', 5)]) */
static apr_status make_dict(apr_tpl_vm *vm, apr_tpl_kind kind, const apr_tpl_args *args, apr_tpl_value *out)
{
    APR_TRY(apr_tpl_dict_make(vm, kind, out));
    if (args->list.n_items > 1) return apr_tpl_fail(vm, APR_E_DAMAGED, "dict() and namespace() take at most one positional argument");
    if (args->list.n_items == 1) {
        const apr_tpl_value *const from = &args->list.items[0];
        apr_tpl_value items = *from;
        apr_tpl_list *pairs;
        if (from->kind == TPL_DICT) APR_TRY(apr_tpl_dict_items(vm, from->as.dict, &items));
        APR_TRY(apr_tpl_iterate(vm, &items, &pairs));
        for (size_t i = 0; i < pairs->n_items; i++) {
            const apr_tpl_value *const pair = &pairs->items[i];
            if (!apr_tpl_is_list(pair) || pair->as.list->n_items != 2)
                return apr_tpl_fail(vm, APR_E_DAMAGED, "dict() needs a list of pairs");
            APR_TRY(apr_tpl_dict_set(vm, out->as.dict, &pair->as.list->items[0], &pair->as.list->items[1]));
        }
    }
    for (size_t i = 0; i < args->named.n_items; i++)
        APR_TRY(apr_tpl_dict_set(vm, out->as.dict, &args->named.keys[i], &args->named.values[i]));
    return APR_OK;
}

BUILTIN(fn_dict) { return make_dict(vm, TPL_DICT, args, out); }
BUILTIN(fn_namespace) { return make_dict(vm, TPL_NAMESPACE, args, out); }

BUILTIN(fn_raise_exception)
{
    apr_tpl_text text;
    APR_TRY(apr_tpl_to_str(vm, &a[1], &text));
    return apr_tpl_fail(vm, APR_E_NO, "%.*s", text.n_bytes > 600 ? 600 : (int)text.n_bytes, text.bytes);
}

BUILTIN(fn_strftime_now)
{
    char format[256], text[1024];
    apr_tpl_text wanted;
    struct tm parts;
    const time_t now = (time_t)vm->now;
    if (!vm->has_now) return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the template needs the date: set the variable strftime_now_unix");
    APR_TRY(apr_tpl_want_text(vm, &a[1], "the format of strftime_now()", &wanted));
    if (wanted.n_bytes >= sizeof format || memchr(wanted.bytes, '\0', wanted.n_bytes) != NULL)
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the format of strftime_now() is too long or contains a NUL");
    if (wanted.n_bytes > 0) memcpy(format, wanted.bytes, wanted.n_bytes);
    format[wanted.n_bytes] = '\0';
    for (const char *p = strchr(format, '%'); p != NULL; p = strchr(p + 1, '%')) {
        p += 1 + (p[1] == '-');
        if (*p == '\0' || strchr("aAbBcdDeFHIjmMpSTuUVwWxXyYzZ%", *p) == NULL)
            return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the format of strftime_now() has an unknown %% directive");
    }
    if (gmtime_r(&now, &parts) == NULL) return apr_tpl_fail(vm, APR_E_DAMAGED, "the variable strftime_now_unix is not a time in seconds");
    const size_t n = strftime(text, sizeof text, format, &parts);
    APR_TRY(apr_tpl_alloc(vm, n + 1, 1, &wanted.bytes));
    memcpy((char *)wanted.bytes, text, n);
    *out = apr_tpl_string(wanted.bytes, n);
    return APR_OK;
}

static const apr_tpl_builtin functions[] = {
    {"range", "start stop? step?", fn_range, false},    {"dict", NULL, fn_dict, false},
    {"namespace", NULL, fn_namespace, false},           {"raise_exception", "message", fn_raise_exception, false},
    {"strftime_now", "format", fn_strftime_now, false}, {NULL, NULL, NULL, false},
};

const apr_tpl_builtin *apr_tpl_builtin_named(apr_tpl_builtin_kind kind, apr_tpl_text name)
{
    static const apr_tpl_builtin *const tables[] = {[APR_TPL_FILTER] = filters, [APR_TPL_TEST] = tests, [APR_TPL_FUNCTION] = functions};
    return apr_tpl_builtin_find(tables[kind], name);
}
