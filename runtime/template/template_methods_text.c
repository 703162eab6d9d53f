/* template_methods_text.c - string methods that chat templates rarely use. The others are in template_methods.c. */
#include "runtime/template/template_internal.h"

#include <string.h>
#include <utf8proc.h>

#define METHOD(name) \
    static apr_status name(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args __attribute__((unused)), apr_tpl_value *out)

METHOD(str_format) { return apr_tpl_format_braces(vm, a, args, out); }
METHOD(str_swapcase) { return apr_tpl_change_case(vm, a->as.text, CASE_SWAP, out); }
METHOD(str_casefold) { return apr_tpl_change_case(vm, a->as.text, CASE_FOLD, out); }

/* ---- padding ---- */

/* Reads the width and the fill character, which is escaped if the text is marked safe. */
static apr_status read_padding(apr_tpl_vm *vm, const apr_tpl_value *a, int64_t *width, apr_tpl_text *fill)
{
    *fill = (apr_tpl_text){" ", 1};
    if (!apr_tpl_is_int(&a[1])) return apr_tpl_fail(vm, APR_E_DAMAGED, "the width is a '%s', not an integer", apr_tpl_type_name(&a[1]));
    *width = apr_tpl_as_int(&a[1]);
    if (a[2].kind == TPL_ABSENT) return APR_OK;
    APR_TRY(apr_tpl_want_text(vm, &a[2], "the fill character", fill));
    if (apr_tpl_is_markup(a)) APR_TRY(apr_tpl_escape_other(vm, &a[2], fill));
    return apr_tpl_n_chars(*fill) == 1 ? APR_OK : apr_tpl_fail(vm, APR_E_DAMAGED, "the fill character is not exactly one character");
}

/* ljust and rjust; before: pad on the left. */
static apr_status justify(apr_tpl_vm *vm, const apr_tpl_value *a, bool before, apr_tpl_value *out)
{
    const size_t mark = vm->out.n_bytes;
    apr_tpl_text fill;
    int64_t width;
    APR_TRY(read_padding(vm, a, &width, &fill));
    if (!before) APR_TRY(apr_tpl_put_text(vm, a->as.text));
    for (int64_t i = (int64_t)apr_tpl_n_chars(a->as.text); i < width; i++) APR_TRY(apr_tpl_put_text(vm, fill));
    if (before) APR_TRY(apr_tpl_put_text(vm, a->as.text));
    return apr_tpl_take(vm, mark, out);
}

METHOD(str_ljust) { return justify(vm, a, false, out); }
METHOD(str_rjust) { return justify(vm, a, true, out); }

METHOD(str_center)
{
    apr_tpl_text fill;
    int64_t width = 0;
    APR_TRY(read_padding(vm, a, &width, &fill));
    return apr_tpl_center(vm, a->as.text, width, fill, out);
}

METHOD(str_zfill)
{
    const size_t mark = vm->out.n_bytes;
    apr_tpl_text text = a->as.text, fill;
    int64_t width;
    APR_TRY(read_padding(vm, a, &width, &fill));
    const int64_t n = (int64_t)apr_tpl_n_chars(text);
    if (text.n_bytes > 0 && (text.bytes[0] == '-' || text.bytes[0] == '+')) { /* zeros are after the sign */
        APR_TRY(apr_tpl_put(vm, text.bytes++, 1));
        text.n_bytes--;
    }
    for (int64_t i = n; i < width; i++) APR_TRY(apr_tpl_put(vm, "0", 1));
    APR_TRY(apr_tpl_put_text(vm, text));
    return apr_tpl_take(vm, mark, out);
}

METHOD(str_expandtabs)
{
    const size_t mark = vm->out.n_bytes;
    const apr_tpl_text text = a->as.text;
    int64_t size, column = 0;
    APR_TRY(apr_tpl_want_int(vm, &a[1], "the size of expandtabs()", 8, &size));
    for (size_t at = 0; at < text.n_bytes;) {
        const size_t n = apr_tpl_char_bytes(text.bytes + at);
        const char c = text.bytes[at];
        if (c == '\t') {
            for (int64_t k = size > 0 ? size - column % size : 0; k > 0; k--, column++) APR_TRY(apr_tpl_put(vm, " ", 1));
        } else {
            APR_TRY(apr_tpl_put(vm, text.bytes + at, n));
            column = c == '\n' || c == '\r' ? 0 : column + 1;
        }
        at += n;
    }
    return apr_tpl_take(vm, mark, out);
}

/* ---- partition ---- */

/* (before, separator, after) at the first or last separator. Without a separator: the text first (or last), and two empty strings. */
static apr_status partition(apr_tpl_vm *vm, const apr_tpl_value *a, bool last, apr_tpl_value *out)
{
    const apr_tpl_text text = a->as.text;
    const char *found = NULL;
    apr_tpl_text separator;
    APR_TRY(apr_tpl_want_text(vm, &a[1], "the separator of partition()", &separator));
    if (separator.n_bytes == 0) return apr_tpl_fail(vm, APR_E_DAMAGED, "the separator of partition() is empty");
    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 16 * (last ? 1 + separator.n_bytes / 16 : 1)));
    if (!last) found = apr_tpl_find(text, 0, separator);
    for (size_t at = text.n_bytes; last && found == NULL && at >= separator.n_bytes; at--)
        if (memcmp(text.bytes + at - separator.n_bytes, separator.bytes, separator.n_bytes) == 0)
            found = text.bytes + at - separator.n_bytes;
    const apr_tpl_text none = {"", 0};
    const size_t n_before = found != NULL ? (size_t)(found - text.bytes) : 0;
    const apr_tpl_text parts[3] = {found != NULL ? (apr_tpl_text){text.bytes, n_before}
                                   : last        ? none
                                                 : text,
                                   found != NULL ? separator : none,
                                   found != NULL ? (apr_tpl_text){found + separator.n_bytes, text.n_bytes - n_before - separator.n_bytes}
                                   : last        ? text
                                                 : none};
    APR_TRY(apr_tpl_list_make(vm, TPL_TUPLE, 3, out));
    for (int i = 0; i < 3; i++) APR_TRY(apr_tpl_list_add(vm, out->as.list, apr_tpl_string(parts[i].bytes, parts[i].n_bytes)));
    return APR_OK;
}

METHOD(str_partition) { return partition(vm, a, false, out); }
METHOD(str_rpartition) { return partition(vm, a, true, out); }

/* ---- case ---- */

/* True if at least one letter has the wanted case, and none has another. */
static apr_status all_of_case(apr_tpl_vm *vm, apr_tpl_text text, utf8proc_category_t wanted, apr_tpl_value *out)
{
    bool some = false, all = true;
    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 16));
    for (size_t at = 0; at < text.n_bytes; at += apr_tpl_char_bytes(text.bytes + at)) {
        utf8proc_int32_t c;
        utf8proc_iterate((const utf8proc_uint8_t *)text.bytes + at, (utf8proc_ssize_t)apr_tpl_char_bytes(text.bytes + at), &c);
        const bool is = utf8proc_category(c) == wanted;
        some = some || is;
        all = all && (is || !apr_tpl_is_cased((uint32_t)c));
    }
    *out = apr_tpl_bool(some && all);
    return APR_OK;
}

METHOD(str_isupper) { return all_of_case(vm, a->as.text, UTF8PROC_CATEGORY_LU, out); }
METHOD(str_islower) { return all_of_case(vm, a->as.text, UTF8PROC_CATEGORY_LL, out); }

const apr_tpl_builtin apr_tpl_more_string_methods[] = {
    {"format", NULL, str_format, true},
    {"swapcase", "", str_swapcase, true},
    {"casefold", "", str_casefold, true},
    {"ljust", "width fillchar?", str_ljust, true},
    {"rjust", "width fillchar?", str_rjust, true},
    {"center", "width fillchar?", str_center, true},
    {"zfill", "width", str_zfill, true},
    {"expandtabs", "tabsize?", str_expandtabs, true},
    {"partition", "sep", str_partition, true},
    {"rpartition", "sep", str_rpartition, true},
    {"isupper", "", str_isupper, false},
    {"islower", "", str_islower, false},
    {NULL, NULL, NULL, false},
};
