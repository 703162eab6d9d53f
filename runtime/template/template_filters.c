/* template_filters.c - filters of single values: text, numbers, JSON. Filters of lists are in template_filters_list.c. */
#include "runtime/template/template_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name) \
    static apr_status name(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args __attribute__((unused)), apr_tpl_value *out)

static apr_status change_case(apr_tpl_vm *vm, const apr_tpl_value *a, apr_tpl_case how, apr_tpl_value *out)
{
    apr_tpl_text text;
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    return apr_tpl_change_case(vm, text, how, out);
}

FILTER(do_upper) { return change_case(vm, a, CASE_UPPER, out); }
FILTER(do_lower) { return change_case(vm, a, CASE_LOWER, out); }
FILTER(do_title) { return change_case(vm, a, CASE_TITLE_FILTER, out); }
FILTER(do_capitalize) { return change_case(vm, a, CASE_CAPITALIZE, out); }

FILTER(do_string)
{
    apr_tpl_text text;
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    *out = apr_tpl_string(text.bytes, text.n_bytes);
    return APR_OK;
}

FILTER(do_safe)
{
    APR_TRY(do_string(vm, a, args, out));
    out->owner = TPL_STRING;
    return APR_OK;
}

FILTER(do_trim)
{
    apr_tpl_text text;
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    return apr_tpl_strip_chars(vm, text, &a[1], true, true, out);
}

FILTER(do_length)
{
    int64_t n;
    APR_TRY(apr_tpl_length(vm, a, &n));
    *out = apr_tpl_int(n);
    return APR_OK;
}

FILTER(do_default)
{
    const bool takes = a->kind == TPL_UNDEFINED || (apr_tpl_is_true(&a[2]) && !apr_tpl_is_true(a));
    (void)vm;
    *out = !takes ? a[0] : a[1].kind != TPL_ABSENT ? a[1] : apr_tpl_string("", 0);
    return APR_OK;
}

FILTER(do_replace)
{
    apr_tpl_text text, old, new;
    int64_t max;
    APR_TRY(apr_tpl_to_str(vm, &a[0], &text));
    APR_TRY(apr_tpl_to_str(vm, &a[1], &old));
    APR_TRY(apr_tpl_to_str(vm, &a[2], &new));
    APR_TRY(apr_tpl_want_int(vm, &a[3], "the count of replace", -1, &max));
    return apr_tpl_replace(vm, text, old, new, max, out);
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

FILTER(do_forceescape)
{
    apr_tpl_text text;
    APR_TRY(apr_tpl_to_str(vm, a, &text));
    return apr_tpl_escape(vm, text, out);
}

FILTER(do_escape)
{
    *out = a[0];
    return apr_tpl_is_markup(a) ? APR_OK : do_forceescape(vm, a, args, out);
}

FILTER(do_indent)
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

FILTER(do_float)
{
    if (a->kind == TPL_UNDEFINED)
        return apr_tpl_fail(vm, APR_E_DAMAGED, "'%.*s' is undefined", apr_tpl_short(a->as.text), a->as.text.bytes);
    *out = a[1].kind != TPL_ABSENT ? a[1] : apr_tpl_real(0);
    if (apr_tpl_is_number(a)) *out = apr_tpl_real(apr_tpl_as_real(a));
    apr_tpl_value number;
    if (a->kind == TPL_STRING && parse_number(a->as.text, 10, true, &number)) *out = number;
    return apr_tpl_steps(vm, 1);
}

FILTER(do_int)
{
    int64_t base;
    apr_tpl_value number = a[0];
    if (a->kind == TPL_UNDEFINED)
        return apr_tpl_fail(vm, APR_E_DAMAGED, "'%.*s' is undefined", apr_tpl_short(a->as.text), a->as.text.bytes);
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

FILTER(do_abs)
{
    if (!apr_tpl_is_number(a)) return apr_tpl_fail(vm, APR_E_DAMAGED, "abs needs a number, not a '%s'", apr_tpl_type_name(a));
    return apr_tpl_unary(vm, apr_tpl_as_real(a) < 0 ? OP_NEG : OP_POS, a, out);
}

/* In Python, rounding an int gives an int. */
static apr_tpl_value rounded(const apr_tpl_value *a, double x)
{
    return apr_tpl_is_int(a) && fabs(x) < 9.2e18 ? apr_tpl_int((int64_t)x) : apr_tpl_real(x);
}

FILTER(do_round)
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
FILTER(do_tojson)
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

const apr_tpl_builtin apr_tpl_filters[] = {
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
    {NULL, NULL, NULL, false},
};
