/* template_filters_text.c - text filters that chat templates rarely use: center, truncate, wordcount, striptags, ... */
#include "runtime/template/template_internal.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#define FILTER(name) \
    static apr_status name(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args __attribute__((unused)), apr_tpl_value *out)

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

FILTER(do_center)
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

FILTER(do_truncate)
{
    const size_t mark = vm->out.n_bytes;
    apr_tpl_text text, end = {"...", 3};
    apr_tpl_value ending = apr_tpl_string("...", 3);
    int64_t length, leeway;
    APR_TRY(apr_tpl_want_text(vm, a, "the input of truncate", &text));
    APR_TRY(apr_tpl_want_int(vm, &a[1], "the length of truncate", 255, &length));
    APR_TRY(apr_tpl_want_int(vm, &a[4], "the leeway of truncate", 5, &leeway));
    if (a[3].kind != TPL_ABSENT) ending = a[3];
    APR_TRY(apr_tpl_want_text(vm, &ending, "the end of truncate", &end));
    const int64_t n_end = (int64_t)apr_tpl_n_chars(end);
    if (length < n_end || leeway < 0) return apr_tpl_fail(vm, APR_E_DAMAGED, "the length of truncate is shorter than its end text");
    *out = a[0];
    if ((int64_t)apr_tpl_n_chars(text) - leeway <= length) return APR_OK;
    text.n_bytes = apr_tpl_char_offset(text, (size_t)(length - n_end));
    if (apr_tpl_is_markup(a)) APR_TRY(apr_tpl_escape_other(vm, &ending, &end));
    APR_TRY(apr_tpl_put_text(vm, apr_tpl_is_true(&a[2]) ? text : whole_words(text)));
    APR_TRY(apr_tpl_put_text(vm, end));
    return apr_tpl_take(vm, mark, out);
}

/* Counts runs of letters, numbers and underscores. */
FILTER(do_wordcount)
{
    apr_tpl_text text;
    int64_t n = 0;
    bool within = false;
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 16));
    for (size_t at = 0; at < text.n_bytes; at += apr_tpl_char_bytes(text.bytes + at)) {
        utf8proc_int32_t c;
        utf8proc_iterate((const utf8proc_uint8_t *)text.bytes + at, (utf8proc_ssize_t)apr_tpl_char_bytes(text.bytes + at), &c);
        const utf8proc_category_t k = utf8proc_category(c);
        const bool is_word = c == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
                             (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
        n += is_word && !within;
        within = is_word;
    }
    *out = apr_tpl_int(n);
    return APR_OK;
}

/* Removes tags and merges white space. */
FILTER(do_striptags)
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
FILTER(do_urlencode)
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

FILTER(do_filesizeformat)
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
FILTER(do_format)
{
    apr_tpl_value text = a[0], values;
    apr_tpl_text copy;
    APR_TRY(apr_tpl_to_str(vm, a, &copy));
    if (a->kind != TPL_STRING) text = apr_tpl_string(copy.bytes, copy.n_bytes);
    if (args->list.n_items > 0 && args->named.n_items > 0) return apr_tpl_fail(vm, APR_E_DAMAGED, "format takes values or names, not both");
    APR_TRY(apr_tpl_list_make(vm, TPL_TUPLE, args->list.n_items, &values));
    for (size_t i = 0; i < args->list.n_items; i++) APR_TRY(apr_tpl_list_add(vm, values.as.list, args->list.items[i]));
    if (args->named.n_items > 0) APR_TRY(apr_tpl_dict_make(vm, TPL_DICT, &values));
    for (size_t i = 0; i < args->named.n_items; i++)
        APR_TRY(apr_tpl_dict_set(vm, values.as.dict, &args->named.keys[i], &args->named.values[i]));
    return apr_tpl_format_percent(vm, &text, &values, out);
}

const apr_tpl_builtin apr_tpl_text_filters[] = {
    {"center", "width?", do_center, true},  {"truncate", "length? killwords? end? leeway?", do_truncate, true},
    {"wordcount", "", do_wordcount, false}, {"striptags", "", do_striptags, false},
    {"urlencode", "", do_urlencode, false}, {"filesizeformat", "binary?", do_filesizeformat, false},
    {"format", NULL, do_format, true},      {NULL, NULL, NULL, false},
};
