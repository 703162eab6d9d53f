/* template_methods.c - what a template reaches by value.name and value[key]: the methods of strings, dicts, lists and loops, members and
 * items. Also Python's two kinds of string formatting: 'text %s' % value, and 'text {}'.format(value), whose fields have members. */
#include "runtime/template/template_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- formatting ---- */

enum { MAX_WIDTH = 100 * 1000, MAX_PRECISION = 300, NUMBER_BYTES = 1024 };

/* [[fill]align][sign][#][0][width][grouping][.precision][type]; % uses other flags for the same fields. */
typedef struct format_spec {
    apr_tpl_text fill; /* one character */
    char align;        /* '<', '>', '^', '='; 0: default of the value's type */
    char sign;         /* '+', ' ' or 0 */
    char grouping;     /* ',', '_' or 0 */
    char type;         /* 0: default of the value's type */
    bool alternate;
    bool zeros;               /* pad with zeros, after the sign of a number */
    int64_t width, precision; /* precision -1: none */
} format_spec;

/* A format string while it is read. */
typedef struct formatter {
    apr_tpl_vm *vm;
    apr_tpl_text text;
    size_t at;
    const apr_tpl_args *args;
    bool escapes;      /* the format string is marked safe, so values are escaped */
    size_t next;       /* the next positional argument */
    bool numbered;     /* fields have numbers */
    bool took_mapping; /* a % field has a name */
} formatter;

static char peek(const formatter *f) { return f->at < f->text.n_bytes ? f->text.bytes[f->at] : '\0'; }

static bool skip(formatter *f, char c)
{
    if (peek(f) != c || c == '\0') return false;
    f->at++;
    return true;
}

static apr_status broken(formatter *f, const char *why) { return apr_tpl_fail(f->vm, APR_E_DAMAGED, "invalid format string: %s", why); }
static apr_status unknown(formatter *f, const char *what)
{
    return apr_tpl_fail(f->vm, APR_E_UNSUPPORTED, "format string: %s is not supported", what);
}

static apr_status read_number(formatter *f, int64_t limit, int64_t *number)
{
    *number = 0;
    while (peek(f) >= '0' && peek(f) <= '9') {
        *number = *number * 10 + (f->text.bytes[f->at++] - '0');
        if (*number > limit) return unknown(f, "a width or precision this large");
    }
    return APR_OK;
}

/* --- one value --- */

/* Writes `body` with padding. With align '=', the first n_head bytes (sign, "0x") are before the padding. */
static apr_status put_padded(apr_tpl_vm *vm, apr_tpl_text body, size_t n_head, const format_spec *s, char by_kind)
{
    const char align = s->align != 0 ? s->align : by_kind;
    const int64_t n = (int64_t)apr_tpl_n_chars(body), n_pad = s->width > n ? s->width - n : 0;
    const int64_t before = align == '>' || align == '=' ? n_pad : align == '^' ? n_pad / 2 : 0;

    if (align == '=') APR_TRY(apr_tpl_put(vm, body.bytes, n_head));
    for (int64_t i = 0; i < before; i++) APR_TRY(apr_tpl_put_text(vm, s->fill));
    APR_TRY(align == '=' ? apr_tpl_put(vm, body.bytes + n_head, body.n_bytes - n_head) : apr_tpl_put_text(vm, body));
    for (int64_t i = before; i < n_pad; i++) APR_TRY(apr_tpl_put_text(vm, s->fill));
    return APR_OK;
}

/* Writes digits in groups of `each` from the right, separated by `sign`; `dst` is large enough. */
static void group_digits(const char *digits, size_t n, size_t each, char sign, char *dst)
{
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && (n - i) % each == 0) *dst++ = sign;
        *dst++ = digits[i];
    }
    *dst = '\0';
}

static char sign_of(bool negative, const format_spec *s) { return negative ? '-' : s->sign; }

static apr_status put_number(formatter *f, bool negative, const char *prefix, const char *digits, const format_spec *s)
{
    char body[2 * NUMBER_BYTES + 8], grouped[2 * NUMBER_BYTES];
    const char sign = sign_of(negative, s);
    const size_t n_whole = strspn(digits, "0123456789abcdefABCDEF");
    const bool is_decimal = s->type == 0 || strchr("bBoxXc", s->type) == NULL;

    snprintf(grouped, sizeof grouped, "%s", digits);
    if (s->grouping != 0) {
        if (s->align == '=' || s->zeros) return unknown(f, "padding of grouped digits");
        group_digits(digits, is_decimal ? strspn(digits, "0123456789") : n_whole, is_decimal ? 3 : 4, s->grouping, grouped);
        if (is_decimal) strncat(grouped, digits + strspn(digits, "0123456789"), sizeof grouped - strlen(grouped) - 1);
    }
    const int n_head = (sign != 0) + (int)strlen(prefix);
    snprintf(body, sizeof body, "%.*s%s%s", sign != 0, &sign, prefix, grouped);
    return put_padded(f->vm, (apr_tpl_text){body, strlen(body)}, (size_t)n_head, s, s->zeros ? '=' : '>');
}

static apr_status put_int(formatter *f, int64_t value, const format_spec *s)
{
    const char type = s->type == 0 || s->type == 'n' ? 'd' : s->type;
    const unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'd' ? 10 : 16;
    const char *const letters = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    const char prefix[3] = {'0', type, '\0'};
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    char digits[72], *first = digits + sizeof digits - 1;

    if (s->precision >= 0) return broken(f, "an integer has no precision");
    for (*first = '\0'; rest > 0 || *first == '\0'; rest /= base) *--first = letters[rest % base];
    return put_number(f, value < 0, s->alternate && base != 10 ? prefix : "", first, s);
}

static apr_status put_real(formatter *f, double x, const format_spec *s)
{
    char digits[NUMBER_BYTES];
    const int precision = s->precision >= 0 ? (int)s->precision : 6;
    const double magnitude = fabs(s->type == '%' ? x * 100 : x);
    const char conversion = s->type == '%' ? 'f' : s->type == 'n' || s->type == 0 ? 'g' : s->type;
    const char form[] = {'%', '.', '*', conversion, '\0'};

    if (s->alternate) return unknown(f, "'#' for a float");
    if (s->type == 0 && s->precision >= 0) return unknown(f, "a precision without a type for a float");
    if (s->type == 0) {
        const size_t mark = f->vm->out.n_bytes;
        apr_tpl_value text;
        const apr_tpl_value number = apr_tpl_real(magnitude);
        APR_TRY(apr_tpl_put_str(f->vm, &number));
        APR_TRY(apr_tpl_take(f->vm, mark, &text));
        snprintf(digits, sizeof digits, "%.*s", (int)text.as.text.n_bytes, text.as.text.bytes);
    } else {
        const int n = snprintf(digits, sizeof digits - 1, form, precision, magnitude);
        if (s->type == '%') memcpy(digits + n, "%", 2); /* fits: at most 309 digits and MAX_PRECISION */
    }
    return put_number(f, signbit(x) && !isnan(x), "", digits, s);
}

static apr_status put_text(formatter *f, apr_tpl_text text, const format_spec *s, char by_kind)
{
    const size_t n = s->precision >= 0 ? apr_tpl_char_offset(text, (size_t)s->precision) : text.n_bytes;
    if (s->sign != 0 || s->alternate || s->grouping != 0 || s->align == '=') return broken(f, "a number format for a string");
    return put_padded(f->vm, (apr_tpl_text){text.bytes, n}, 0, s, by_kind);
}

static bool is_one_of(char type, const char *types) { return type != 0 && strchr(types, type) != NULL; }

/* format(value, spec) */
static apr_status put_formatted(formatter *f, const apr_tpl_value *v, const format_spec *s)
{
    const bool is_plain = s->width == 0 && s->precision < 0 && s->type == 0 && s->sign == 0 && s->grouping == 0 && !s->alternate;

    if (v->kind == TPL_UNDEFINED && !is_plain) return broken(f, "the value of a field is undefined");
    if (v->kind == TPL_STRING && (s->type == 0 || s->type == 's')) return put_text(f, v->as.text, s, '<');
    if (is_plain) return apr_tpl_put_str(f->vm, v);
    if (apr_tpl_is_int(v) && (s->type == 0 || is_one_of(s->type, "bdoxXn"))) return put_int(f, apr_tpl_as_int(v), s);
    if (apr_tpl_is_number(v) && (is_one_of(s->type, "eEfFgGn%") || (s->type == 0 && v->kind == TPL_FLOAT)))
        return put_real(f, apr_tpl_as_real(v), s);
    if (s->type == 'c') return unknown(f, "the type c");
    return apr_tpl_fail(f->vm, APR_E_DAMAGED, "a '%s' cannot be formatted with this type", apr_tpl_type_name(v));
}

/* Escapes the text written since `mark`, unless it is marked safe. */
static apr_status escape_since(formatter *f, size_t mark, bool safe)
{
    apr_tpl_value text;
    if (!f->escapes || safe) return APR_OK;
    APR_TRY(apr_tpl_take(f->vm, mark, &text));
    APR_TRY(apr_tpl_escape(f->vm, text.as.text, &text));
    return apr_tpl_put_text(f->vm, text.as.text);
}

static const apr_tpl_text space = {" ", 1}, zero = {"0", 1};

/* --- '{}'.format() --- */

static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

static apr_status read_spec(formatter *f, format_spec *s)
{
    *s = (format_spec){.fill = space, .precision = -1};
    const size_t n = f->at < f->text.n_bytes ? apr_tpl_char_bytes(f->text.bytes + f->at) : 0;
    const bool has_fill = n > 0 && f->at + n < f->text.n_bytes && is_align(f->text.bytes[f->at + n]);
    if (has_fill) {
        s->fill = (apr_tpl_text){f->text.bytes + f->at, n};
        f->at += n;
    }
    if (is_align(peek(f))) s->align = f->text.bytes[f->at++];
    if (skip(f, '+')) s->sign = '+';
    else if (skip(f, ' ')) s->sign = ' ';
    else (void)skip(f, '-');
    s->alternate = skip(f, '#');
    s->zeros = peek(f) == '0';
    if (s->zeros && !has_fill) s->fill = zero;
    APR_TRY(read_number(f, MAX_WIDTH, &s->width));
    if (peek(f) == ',' || peek(f) == '_') s->grouping = f->text.bytes[f->at++];
    if (skip(f, '.')) {
        if (peek(f) < '0' || peek(f) > '9') return broken(f, "a precision is missing");
        APR_TRY(read_number(f, MAX_PRECISION, &s->precision));
    }
    if (peek(f) != '}') s->type = f->at < f->text.n_bytes ? f->text.bytes[f->at++] : '\0';
    if (peek(f) == '{' || s->type == '{') return unknown(f, "a nested field");
    return peek(f) == '}' ? APR_OK : broken(f, "a field is not closed");
}

static apr_status named_argument(formatter *f, apr_tpl_text name, apr_tpl_value *out)
{
    const apr_tpl_value key = apr_tpl_string(name.bytes, name.n_bytes);
    const apr_tpl_value *value;
    APR_TRY(apr_tpl_dict_find(f->vm, &f->args->named, &key, &value));
    if (value == NULL) return apr_tpl_fail(f->vm, APR_E_DAMAGED, "format() has no argument '%.*s'", apr_tpl_short(name), name.bytes);
    *out = *value;
    return APR_OK;
}

static bool is_number(apr_tpl_text text)
{
    for (size_t i = 0; i < text.n_bytes; i++)
        if (text.bytes[i] < '0' || text.bytes[i] > '9') return false;
    return text.n_bytes > 0 && text.n_bytes < 9;
}

/* Reads a part of a field's name, up to one of the characters in `ends`. */
static apr_tpl_text read_part(formatter *f, const char *ends)
{
    const size_t from = f->at;
    while (f->at < f->text.n_bytes && (peek(f) == '\0' || strchr(ends, peek(f)) == NULL)) f->at++;
    return (apr_tpl_text){f->text.bytes + from, f->at - from};
}

/* Evaluates a field's name: "", "0" or "name", followed by any number of ".attribute" and "[key]". */
static apr_status field_value(formatter *f, apr_tpl_value *out)
{
    const apr_tpl_text name = read_part(f, ".[:!}{");
    int64_t index = (int64_t)f->next;

    if (name.n_bytes > 0 && !is_number(name)) {
        APR_TRY(named_argument(f, name, out));
    } else {
        if (name.n_bytes > 0 ? f->next > 0 : f->numbered) return broken(f, "numbered and unnumbered fields are mixed");
        f->numbered = name.n_bytes > 0;
        if (f->numbered) index = strtol(name.bytes, NULL, 10); /* a character after the digits stops strtol */
        else f->next++;
        if (index >= (int64_t)f->args->list.n_items) return broken(f, "there are not enough values");
        *out = f->args->list.items[index];
    }
    while (peek(f) == '.' || peek(f) == '[') {
        const apr_tpl_value object = *out;
        const bool is_key = f->text.bytes[f->at++] == '[';
        const apr_tpl_text part = read_part(f, is_key ? "]" : ".[:!}{");
        const apr_tpl_value key =
            is_key && is_number(part) ? apr_tpl_int(strtol(part.bytes, NULL, 10)) : apr_tpl_string(part.bytes, part.n_bytes);
        if (part.n_bytes == 0 || (is_key && !skip(f, ']'))) return broken(f, "a field's name has an empty part");
        APR_TRY(is_key ? apr_tpl_subscript(f->vm, &object, &key, out) : apr_tpl_attribute(f->vm, &object, part, out));
    }
    return APR_OK;
}

/* Formats one field; f is after the '{'. */
static apr_status put_field(formatter *f)
{
    const size_t mark = f->vm->out.n_bytes;
    apr_tpl_value value;
    format_spec spec = {.fill = space, .precision = -1};

    APR_TRY(field_value(f, &value));
    const bool safe = apr_tpl_is_markup(&value);
    if (skip(f, '!')) {
        const char how = peek(f);
        if (how != 's' && how != 'r') return unknown(f, "a conversion other than !s and !r");
        f->at++;
        APR_TRY(how == 's' ? apr_tpl_put_str(f->vm, &value) : apr_tpl_put_repr(f->vm, &value));
        APR_TRY(apr_tpl_take(f->vm, mark, &value));
    }
    if (skip(f, ':')) APR_TRY(read_spec(f, &spec));
    if (!skip(f, '}')) return broken(f, "a field is not closed");
    APR_TRY(put_formatted(f, &value, &spec));
    return escape_since(f, mark, safe);
}

static apr_status format_braces(apr_tpl_vm *vm, const apr_tpl_value *text, const apr_tpl_args *args, apr_tpl_value *out)
{
    const size_t mark = vm->out.n_bytes;
    formatter f = {.vm = vm, .text = text->as.text, .args = args, .escapes = apr_tpl_is_markup(text)};

    while (f.at < f.text.n_bytes) {
        const char c = f.text.bytes[f.at++];
        if ((c == '{' || c == '}') && skip(&f, c)) {
            APR_TRY(apr_tpl_put(vm, &c, 1));
        } else if (c == '{') {
            APR_TRY(apr_tpl_steps(vm, 1));
            APR_TRY(put_field(&f));
        } else if (c == '}') {
            return broken(&f, "a single '}'");
        } else {
            APR_TRY(apr_tpl_put(vm, &c, 1));
        }
    }
    return apr_tpl_take(vm, mark, out);
}

/* --- 'text' % values --- */

/* Reads %[(key)][flags][width][.precision]type; f is after the '%'. */
static apr_status percent_spec(formatter *f, const apr_tpl_value *values, const apr_tpl_value **value, format_spec *s)
{
    bool pads_zero = false, left = false;

    *s = (format_spec){.fill = space, .precision = -1};
    *value = NULL;
    if (skip(f, '(')) {
        const apr_tpl_text name = read_part(f, ")");
        const apr_tpl_value key = apr_tpl_string(name.bytes, name.n_bytes);
        if (!skip(f, ')')) return broken(f, "a name is not closed");
        if (values->kind != TPL_DICT) return broken(f, "a field with a name needs a dict");
        APR_TRY(apr_tpl_dict_find(f->vm, values->as.dict, &key, value));
        if (*value == NULL) return apr_tpl_fail(f->vm, APR_E_DAMAGED, "the dict of %% has no key '%.*s'", apr_tpl_short(name), name.bytes);
        f->took_mapping = true;
    }
    for (char c = peek(f); is_one_of(c, "-+ 0#"); c = peek(f)) {
        f->at++;
        if (c == '-') left = true;
        else if (c == '0') pads_zero = true;
        else if (c == '#') s->alternate = true;
        else if (s->sign != '+') s->sign = c;
    }
    APR_TRY(read_number(f, MAX_WIDTH, &s->width));
    if (skip(f, '.')) APR_TRY(read_number(f, MAX_PRECISION, &s->precision));
    s->align = left ? '<' : 0;
    s->zeros = pads_zero && !left;
    if (s->zeros) s->fill = zero;
    s->type = f->at < f->text.n_bytes ? f->text.bytes[f->at++] : '\0';
    return APR_OK;
}

static apr_status put_percent(formatter *f, const apr_tpl_value *v, format_spec *s)
{
    const size_t mark = f->vm->out.n_bytes;
    const char type = s->type;
    apr_tpl_value text = *v;

    if (type == 's' || type == 'r') {
        if (type == 'r') APR_TRY(apr_tpl_put_repr(f->vm, v));
        else APR_TRY(apr_tpl_put_str(f->vm, v));
        APR_TRY(escape_since(f, mark, type == 's' && apr_tpl_is_markup(v)));
        APR_TRY(apr_tpl_take(f->vm, mark, &text));
        s->sign = 0;
        s->alternate = false;
        s->fill = space; /* zeros are for numbers */
        return put_text(f, text.as.text, s, '>');
    }
    if (!is_one_of(type, "diuoxXeEfFgG")) return unknown(f, "this kind of % field");
    if (!apr_tpl_is_number(v)) return apr_tpl_fail(f->vm, APR_E_DAMAGED, "%%%c needs a number, not a '%s'", type, apr_tpl_type_name(v));
    if (is_one_of(type, "eEfFgG")) return put_real(f, apr_tpl_as_real(v), s);
    if (is_one_of(type, "diu")) s->type = 'd';
    else if (f->escapes) return broken(f, "text marked safe cannot contain hexadecimal or octal fields");
    if (v->kind == TPL_FLOAT && s->type != 'd') return broken(f, "an integer is needed");
    if (s->precision >= 0) return unknown(f, "a precision for an integer");
    if (v->kind == TPL_FLOAT && !(fabs(v->as.real) < 9.2e18)) return unknown(f, "a number beyond 64 bits");
    return put_int(f, v->kind == TPL_FLOAT ? (int64_t)v->as.real : apr_tpl_as_int(v), s);
}

apr_status apr_tpl_format_percent(apr_tpl_vm *vm, const apr_tpl_value *text, const apr_tpl_value *values, apr_tpl_value *out)
{
    const size_t mark = vm->out.n_bytes, n_values = values->kind == TPL_TUPLE ? values->as.list->n_items : 1;
    formatter f = {.vm = vm, .text = text->as.text, .escapes = apr_tpl_is_markup(text)};

    while (f.at < f.text.n_bytes) {
        const char c = f.text.bytes[f.at++];
        const apr_tpl_value *value;
        format_spec spec;
        if (c != '%' || skip(&f, '%')) {
            APR_TRY(apr_tpl_put(vm, &c, 1));
            continue;
        }
        APR_TRY(apr_tpl_steps(vm, 1));
        APR_TRY(percent_spec(&f, values, &value, &spec));
        if (value == NULL && f.next == n_values) return broken(&f, "there are not enough values");
        if (value == NULL) value = values->kind == TPL_TUPLE ? &values->as.list->items[f.next] : values;
        if (!f.took_mapping) f.next++;
        APR_TRY(put_percent(&f, value, &spec));
    }
    /* a dict may have unused keys; a list or dict may be the only value, without a field */
    if (!f.took_mapping && f.next < n_values && values->kind != TPL_DICT && values->kind != TPL_LIST)
        return broken(&f, "there are more values than fields");
    return apr_tpl_take(vm, mark, out);
}

/* ---- strings ---- */

static apr_status strip(apr_tpl_vm *vm, const apr_tpl_value *a, bool left, bool right, apr_tpl_value *out)
{
    return apr_tpl_strip_chars(vm, a->as.text, &a[1], left, right, out);
}

BUILTIN(str_strip) { return strip(vm, a, true, true, out); }
BUILTIN(str_lstrip) { return strip(vm, a, true, false, out); }
BUILTIN(str_rstrip) { return strip(vm, a, false, true, out); }
BUILTIN(str_upper) { return apr_tpl_change_case(vm, a->as.text, CASE_UPPER, out); }
BUILTIN(str_lower) { return apr_tpl_change_case(vm, a->as.text, CASE_LOWER, out); }
BUILTIN(str_title) { return apr_tpl_change_case(vm, a->as.text, CASE_TITLE, out); }
BUILTIN(str_capitalize) { return apr_tpl_change_case(vm, a->as.text, CASE_CAPITALIZE, out); }
BUILTIN(str_splitlines) { return apr_tpl_split_lines(vm, a->as.text, apr_tpl_is_true(&a[1]), out); }

BUILTIN(str_replace)
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

BUILTIN(str_split)
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

BUILTIN(str_rsplit)
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

BUILTIN(str_startswith) { return affix(vm, a, false, out); }
BUILTIN(str_endswith) { return affix(vm, a, true, out); }

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

BUILTIN(str_removeprefix) { return remove_affix(vm, a, false, out); }
BUILTIN(str_removesuffix) { return remove_affix(vm, a, true, out); }

static apr_status find(apr_tpl_vm *vm, const apr_tpl_value *a, bool last, apr_tpl_value *out)
{
    apr_tpl_text needle;
    APR_TRY(apr_tpl_want_text(vm, &a[1], "the argument of find()", &needle));
    APR_TRY(apr_tpl_steps(vm, a->as.text.n_bytes / 16 * (last ? 1 + needle.n_bytes / 16 : 1)));
    const char *const found = last ? find_last(a->as.text, a->as.text.n_bytes, needle) : apr_tpl_find(a->as.text, 0, needle);
    *out = apr_tpl_int(found == NULL ? -1 : (int64_t)apr_tpl_n_chars((apr_tpl_text){a->as.text.bytes, (size_t)(found - a->as.text.bytes)}));
    return APR_OK;
}

BUILTIN(str_find) { return find(vm, a, false, out); }
BUILTIN(str_rfind) { return find(vm, a, true, out); }

BUILTIN(str_index)
{
    APR_TRY(find(vm, a, false, out));
    return out->as.integer >= 0 ? APR_OK : apr_tpl_fail(vm, APR_E_DAMAGED, "index(): the substring was not found");
}

BUILTIN(str_count)
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

BUILTIN(str_join)
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
    for (size_t at = 0; all && at < text.n_bytes; at += apr_tpl_char_bytes(text.bytes + at)) all = is(apr_tpl_char_at(text, at));
    *out = apr_tpl_bool(all);
    return apr_tpl_steps(vm, text.n_bytes / 16);
}

BUILTIN(str_isdigit) { return all_are(vm, a, is_digit, out); }
BUILTIN(str_isalpha) { return all_are(vm, a, is_letter, out); }
BUILTIN(str_isalnum) { return all_are(vm, a, is_letter_or_digit, out); }
BUILTIN(str_isspace) { return all_are(vm, a, is_blank, out); }

BUILTIN(str_format) { return format_braces(vm, a, args, out); }
BUILTIN(str_swapcase) { return apr_tpl_change_case(vm, a->as.text, CASE_SWAP, out); }
BUILTIN(str_casefold) { return apr_tpl_change_case(vm, a->as.text, CASE_FOLD, out); }

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

BUILTIN(str_ljust) { return justify(vm, a, false, out); }
BUILTIN(str_rjust) { return justify(vm, a, true, out); }

BUILTIN(str_center)
{
    apr_tpl_text fill;
    int64_t width = 0;
    APR_TRY(read_padding(vm, a, &width, &fill));
    return apr_tpl_center(vm, a->as.text, width, fill, out);
}

BUILTIN(str_zfill)
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

BUILTIN(str_expandtabs)
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
    apr_tpl_value values[3];
    for (int i = 0; i < 3; i++) values[i] = apr_tpl_string(parts[i].bytes, parts[i].n_bytes);
    return apr_tpl_list_of(vm, TPL_TUPLE, values, 3, out);
}

BUILTIN(str_partition) { return partition(vm, a, false, out); }
BUILTIN(str_rpartition) { return partition(vm, a, true, out); }

/* True if at least one letter has the wanted case, and none has another. */
static apr_status all_of_case(apr_tpl_vm *vm, apr_tpl_text text, utf8proc_category_t wanted, apr_tpl_value *out)
{
    bool some = false, all = true;
    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 16));
    for (size_t at = 0; at < text.n_bytes; at += apr_tpl_char_bytes(text.bytes + at)) {
        const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)apr_tpl_char_at(text, at));
        const bool is_cased = k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
        some = some || k == wanted;
        all = all && (k == wanted || !is_cased);
    }
    *out = apr_tpl_bool(some && all);
    return APR_OK;
}

BUILTIN(str_isupper) { return all_of_case(vm, a->as.text, UTF8PROC_CATEGORY_LU, out); }
BUILTIN(str_islower) { return all_of_case(vm, a->as.text, UTF8PROC_CATEGORY_LL, out); }

static const apr_tpl_builtin string_methods[] = {
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

/* ---- dicts ---- */

BUILTIN(dict_items) { return apr_tpl_dict_items(vm, a->as.dict, out); }

BUILTIN(dict_keys) { return apr_tpl_list_of(vm, TPL_LIST, a->as.dict->keys, a->as.dict->n_items, out); }
BUILTIN(dict_values) { return apr_tpl_list_of(vm, TPL_LIST, a->as.dict->values, a->as.dict->n_items, out); }

BUILTIN(dict_get)
{
    const apr_tpl_value *value;
    APR_TRY(apr_tpl_dict_find(vm, a->as.dict, &a[1], &value));
    *out = value != NULL ? *value : a[2].kind != TPL_ABSENT ? a[2] : apr_tpl_none();
    return APR_OK;
}

BUILTIN(dict_copy)
{
    APR_TRY(apr_tpl_dict_make(vm, TPL_DICT, out));
    for (size_t i = 0; i < a->as.dict->n_items; i++)
        APR_TRY(apr_tpl_dict_add(vm, out->as.dict, a->as.dict->keys[i], a->as.dict->values[i]));
    return APR_OK;
}

static const apr_tpl_builtin dict_methods[] = {
    {"items", "", dict_items, false},         {"keys", "", dict_keys, false}, {"values", "", dict_values, false},
    {"get", "key default?", dict_get, false}, {"copy", "", dict_copy, false}, {NULL, NULL, NULL, false},
};

/* ---- lists ---- */

BUILTIN(list_append)
{
    *out = apr_tpl_none();
    if (a->kind != TPL_LIST) return apr_tpl_fail(vm, APR_E_DAMAGED, "a tuple has no append()");
    return apr_tpl_list_add(vm, a->as.list, a[1]);
}

BUILTIN(list_copy) { return apr_tpl_list_of(vm, TPL_LIST, a->as.list->items, a->as.list->n_items, out); }

BUILTIN(list_index)
{
    for (size_t i = 0; i < a->as.list->n_items; i++) {
        bool equal;
        APR_TRY(apr_tpl_equal(vm, &a->as.list->items[i], &a[1], &equal));
        *out = apr_tpl_int((int64_t)i);
        if (equal) return APR_OK;
    }
    return apr_tpl_fail(vm, APR_E_DAMAGED, "index(): the item was not found");
}

BUILTIN(list_count)
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

static const apr_tpl_builtin list_methods[] = {
    {"append", "item", list_append, false}, {"copy", "", list_copy, false}, {"index", "item", list_index, false},
    {"count", "item", list_count, false},   {NULL, NULL, NULL, false},
};

/* ---- loop ---- */

BUILTIN(loop_cycle)
{
    if (args->list.n_items == 0) return apr_tpl_fail(vm, APR_E_DAMAGED, "loop.cycle() needs items");
    *out = args->list.items[a->as.loop->index0 % args->list.n_items];
    return APR_OK;
}

static const apr_tpl_builtin loop_methods[] = {{"cycle", NULL, loop_cycle, false}, {NULL, NULL, NULL, false}};

/* ---- members and items ---- */

/* The members of `loop`. Recursive loops are not supported, so depth is always 1. */
static apr_tpl_value loop_attribute(const apr_tpl_value *a, apr_tpl_text name)
{
    const apr_tpl_loop *const loop = a->as.loop;
    const int64_t i = (int64_t)loop->index0, n = (int64_t)loop->items->n_items;
    const struct {
        const char *name;
        apr_tpl_value value;
    } members[] = {
        {"index", apr_tpl_int(i + 1)},
        {"index0", apr_tpl_int(i)},
        {"first", apr_tpl_bool(i == 0)},
        {"last", apr_tpl_bool(i == n - 1)},
        {"length", apr_tpl_int(n)},
        {"revindex", apr_tpl_int(n - i)},
        {"revindex0", apr_tpl_int(n - i - 1)},
        {"depth", apr_tpl_int(1)},
        {"depth0", apr_tpl_int(0)},
        {"previtem", i > 0 ? loop->items->items[i - 1] : apr_tpl_undefined(name)},
        {"nextitem", i + 1 < n ? loop->items->items[i + 1] : apr_tpl_undefined(name)},
    };
    for (size_t k = 0; k < sizeof members / sizeof *members; k++) {
        if (apr_tpl_text_is(name, members[k].name)) return members[k].value;
    }
    return apr_tpl_undefined(name);
}

static apr_status bind_method(apr_tpl_vm *vm, const apr_tpl_value *self, const apr_tpl_builtin *function, apr_tpl_value *out)
{
    apr_tpl_method *method;
    APR_TRY(apr_tpl_alloc(vm, 1, sizeof *method, &method));
    *method = (apr_tpl_method){*self, function};
    *out = (apr_tpl_value){.kind = TPL_METHOD, .as.method = method};
    return APR_OK;
}

static const apr_tpl_builtin *find_method(const apr_tpl_value *a, apr_tpl_text name)
{
    static const apr_tpl_builtin *const tables[TPL_KIND_COUNT] = {
        [TPL_STRING] = string_methods, [TPL_DICT] = dict_methods, [TPL_LIST] = list_methods,
        [TPL_TUPLE] = list_methods,    [TPL_LOOP] = loop_methods,
    };
    return tables[a->kind] != NULL ? apr_tpl_builtin_find(tables[a->kind], name) : NULL;
}

/* a.name looks for a method first, then for a key; a[key] looks for a key first. */
apr_status apr_tpl_attribute(apr_tpl_vm *vm, const apr_tpl_value *a, apr_tpl_text name, apr_tpl_value *out)
{
    const apr_tpl_builtin *const method = find_method(a, name);
    if (method != NULL) return bind_method(vm, a, method, out);
    if (a->kind == TPL_UNDEFINED) return apr_tpl_fail_undefined(vm, a);
    *out = a->kind == TPL_LOOP ? loop_attribute(a, name) : apr_tpl_undefined(name);
    if (out->kind == TPL_UNDEFINED) out->owner = a->kind;
    if (a->kind == TPL_MACRO && apr_tpl_text_is(name, "name"))
        *out = apr_tpl_string(a->as.macro->def->name.bytes, a->as.macro->def->name.n_bytes);
    if (a->kind == TPL_DICT || a->kind == TPL_NAMESPACE) {
        const apr_tpl_value key = apr_tpl_string(name.bytes, name.n_bytes);
        const apr_tpl_value *value;
        APR_TRY(apr_tpl_dict_find(vm, a->as.dict, &key, &value));
        if (value != NULL) *out = *value;
    }
    return APR_OK;
}

apr_status apr_tpl_subscript(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_value *key, apr_tpl_value *out)
{
    *out = apr_tpl_undefined(key->kind == TPL_STRING ? key->as.text : (apr_tpl_text){"the item", 8});
    out->owner = a->kind;
    if (a->kind == TPL_UNDEFINED) return apr_tpl_fail_undefined(vm, a);
    if (a->kind == TPL_DICT) {
        const apr_tpl_value *value = NULL;
        if (key->kind != TPL_LIST && key->kind != TPL_DICT) APR_TRY(apr_tpl_dict_find(vm, a->as.dict, key, &value));
        if (value != NULL) {
            *out = *value;
            return APR_OK;
        }
    }
    if (key->kind == TPL_STRING) {
        if (a->kind == TPL_NAMESPACE || a->kind == TPL_LOOP) return apr_tpl_attribute(vm, a, key->as.text, out);
        const apr_tpl_builtin *const method = find_method(a, key->as.text);
        return method != NULL ? bind_method(vm, a, method, out) : APR_OK;
    }
    if (!apr_tpl_is_int(key) || (a->kind != TPL_STRING && !apr_tpl_is_list(a))) return APR_OK;
    int64_t n, i = apr_tpl_as_int(key);
    APR_TRY(apr_tpl_length(vm, a, &n));
    if (i < 0) i += n;
    if (i < 0 || i >= n) return APR_OK;
    if (a->kind == TPL_STRING) {
        const char *const c = a->as.text.bytes + apr_tpl_char_offset(a->as.text, (size_t)i);
        *out = apr_tpl_string(c, apr_tpl_char_bytes(c));
        out->owner = a->owner;
    } else {
        *out = a->as.list->items[i];
    }
    return APR_OK;
}
