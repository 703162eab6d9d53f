/* template_format.c - Python's two kinds of string formatting: 'text %s' % value, 'text {}'.format(value). */
#include "runtime/template/template_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

apr_status apr_tpl_format_braces(apr_tpl_vm *vm, const apr_tpl_value *text, const apr_tpl_args *args, apr_tpl_value *out)
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
