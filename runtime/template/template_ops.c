/* template_ops.c - operators and slices of a template's values, as in Python. */
#include "runtime/template/template_internal.h"

#include <math.h>
#include <string.h>

apr_status apr_tpl_unary(apr_tpl_vm *vm, apr_tpl_op op, const apr_tpl_value *a, apr_tpl_value *out)
{
    *out = *a;
    if (op == OP_NOT) {
        *out = apr_tpl_bool(!apr_tpl_is_true(a));
    } else if (a->kind == TPL_FLOAT) {
        if (op == OP_NEG) out->as.real = -a->as.real;
    } else if (apr_tpl_is_int(a)) {
        *out = apr_tpl_int(apr_tpl_as_int(a));
        if (op == OP_NEG && __builtin_sub_overflow((int64_t)0, out->as.integer, &out->as.integer))
            return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "a number does not fit 64 bits");
    } else {
        return apr_tpl_fail(vm, APR_E_DAMAGED, "the unary + or - needs a number, not a '%s'", apr_tpl_type_name(a));
    }
    return APR_OK;
}

static const char *const op_names[] = {
    [OP_ADD] = "+",       [OP_SUB] = "-", [OP_MUL] = "*",  [OP_DIV] = "/",
    [OP_FLOORDIV] = "//", [OP_MOD] = "%", [OP_POW] = "**", [OP_CONCAT] = "~",
};

/* Python's // and % round towards minus infinity. */
static void floor_divide(int64_t a, int64_t b, int64_t *quotient, int64_t *rest)
{
    *quotient = a / b;
    *rest = a % b;
    if (*rest != 0 && (*rest < 0) != (b < 0)) {
        *rest += b;
        --*quotient;
    }
}

static bool int_power(int64_t base, int64_t exponent, int64_t *out)
{
    bool too_large = false;
    *out = 1;
    if (base == 0 || base == 1) *out = exponent == 0 ? 1 : base;
    else if (base == -1) *out = exponent % 2 == 0 ? 1 : -1;
    else
        for (int64_t i = 0; i < exponent && !too_large; i++) too_large = __builtin_mul_overflow(*out, base, out);
    return !too_large;
}

static apr_status int_binary(apr_tpl_vm *vm, apr_tpl_op op, int64_t a, int64_t b, apr_tpl_value *out)
{
    bool fits = true;
    int64_t rest;
    *out = apr_tpl_int(0);
    int64_t *const result = &out->as.integer;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD || (op == OP_POW && a == 0)) && (op == OP_POW ? b < 0 : b == 0))
        return apr_tpl_fail(vm, APR_E_DAMAGED, "division by zero");
    switch (op) {
    case OP_ADD: fits = !__builtin_add_overflow(a, b, result); break;
    case OP_SUB: fits = !__builtin_sub_overflow(a, b, result); break;
    case OP_MUL: fits = !__builtin_mul_overflow(a, b, result); break;
    case OP_DIV: *out = apr_tpl_real((double)a / (double)b); break;
    case OP_POW:
        if (b < 0) *out = apr_tpl_real(pow((double)a, (double)b));
        else fits = int_power(a, b, result);
        break;
    default:
        if (b == -1) fits = op == OP_MOD || !__builtin_sub_overflow((int64_t)0, a, result); /* INT64_MIN / -1 */
        else if (op == OP_FLOORDIV) floor_divide(a, b, result, &rest);
        else floor_divide(a, b, &rest, result);
    }
    return fits ? APR_OK : apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the result of %s does not fit 64 bits", op_names[op]);
}

static apr_status real_binary(apr_tpl_vm *vm, apr_tpl_op op, double a, double b, apr_tpl_value *out)
{
    double x = 0;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0) return apr_tpl_fail(vm, APR_E_DAMAGED, "division by zero");
    switch (op) {
    case OP_ADD: x = a + b; break;
    case OP_SUB: x = a - b; break;
    case OP_MUL: x = a * b; break;
    case OP_DIV: x = a / b; break;
    case OP_POW: x = pow(a, b); break;
    case OP_FLOORDIV: x = floor(a / b); break;
    default:
        x = fmod(a, b);
        if (x != 0 && (x < 0) != (b < 0)) x += b;
    }
    if (op == OP_POW && isnan(x) && !isnan(a) && !isnan(b))
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the result of ** is not a real number");
    if (op == OP_POW && isinf(x) && !isinf(a) && !isinf(b)) return apr_tpl_fail(vm, APR_E_DAMAGED, "the result of ** is too large");
    *out = apr_tpl_real(x);
    return APR_OK;
}

static apr_status concat(apr_tpl_vm *vm, apr_tpl_text a, apr_tpl_text b, apr_tpl_value *out)
{
    char *text;
    APR_TRY(apr_tpl_steps(vm, (a.n_bytes + b.n_bytes) / 64));
    APR_TRY(apr_tpl_alloc(vm, a.n_bytes + b.n_bytes, 1, &text));
    if (a.n_bytes > 0) memcpy(text, a.bytes, a.n_bytes);
    if (b.n_bytes > 0) memcpy(text + a.n_bytes, b.bytes, b.n_bytes);
    *out = apr_tpl_string(text, a.n_bytes + b.n_bytes);
    return APR_OK;
}

/* If one text is marked safe, the other one is escaped. */
static apr_status add_texts(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_value *b, apr_tpl_value *out)
{
    apr_tpl_text s = a->as.text, t = b->as.text;
    const bool is_safe = apr_tpl_is_markup(a) || apr_tpl_is_markup(b);
    if (is_safe) {
        APR_TRY(apr_tpl_escape_other(vm, a, &s));
        APR_TRY(apr_tpl_escape_other(vm, b, &t));
    }
    APR_TRY(concat(vm, s, t, out));
    if (is_safe) out->owner = TPL_STRING;
    return APR_OK;
}

static apr_status join_lists(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_value *b, apr_tpl_value *out)
{
    const apr_tpl_list *const lists[2] = {a->as.list, b->as.list};
    APR_TRY(apr_tpl_list_make(vm, a->kind, 0, out));
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < lists[k]->n_items; i++) APR_TRY(apr_tpl_list_add(vm, out->as.list, lists[k]->items[i]));
    return APR_OK;
}

/* 'ab' * 3, [0] * 3 */
static apr_status repeat(apr_tpl_vm *vm, const apr_tpl_value *a, int64_t n, apr_tpl_value *out)
{
    if (a->kind == TPL_STRING) {
        const apr_tpl_text s = a->as.text;
        const size_t mark = vm->out.n_bytes;
        for (int64_t i = 0; i < n && s.n_bytes > 0; i++) {
            APR_TRY(apr_tpl_steps(vm, 1));
            APR_TRY(apr_tpl_put_text(vm, s));
        }
        APR_TRY(apr_tpl_take(vm, mark, out));
        out->owner = a->owner;
        return APR_OK;
    }
    APR_TRY(apr_tpl_list_make(vm, a->kind, 0, out));
    for (int64_t i = 0; i < n && a->as.list->n_items > 0; i++)
        for (size_t k = 0; k < a->as.list->n_items; k++) APR_TRY(apr_tpl_list_add(vm, out->as.list, a->as.list->items[k]));
    return APR_OK;
}

apr_status apr_tpl_binary(apr_tpl_vm *vm, apr_tpl_op op, const apr_tpl_value *a, const apr_tpl_value *b, apr_tpl_value *out)
{
    if (op == OP_CONCAT) {
        apr_tpl_text s, t;
        APR_TRY(apr_tpl_to_str(vm, a, &s));
        APR_TRY(apr_tpl_to_str(vm, b, &t));
        return concat(vm, s, t, out);
    }
    if (apr_tpl_is_int(a) && apr_tpl_is_int(b)) return int_binary(vm, op, apr_tpl_as_int(a), apr_tpl_as_int(b), out);
    if (apr_tpl_is_number(a) && apr_tpl_is_number(b)) return real_binary(vm, op, apr_tpl_as_real(a), apr_tpl_as_real(b), out);
    if (op == OP_ADD && a->kind == TPL_STRING && b->kind == TPL_STRING) return add_texts(vm, a, b, out);
    if (op == OP_ADD && apr_tpl_is_list(a) && a->kind == b->kind) return join_lists(vm, a, b, out);
    if (op == OP_MUL && (a->kind == TPL_STRING || apr_tpl_is_list(a)) && apr_tpl_is_int(b)) return repeat(vm, a, apr_tpl_as_int(b), out);
    if (op == OP_MUL && (b->kind == TPL_STRING || apr_tpl_is_list(b)) && apr_tpl_is_int(a)) return repeat(vm, b, apr_tpl_as_int(a), out);
    if (op == OP_MOD && a->kind == TPL_STRING) {
        APR_TRY(apr_tpl_format_percent(vm, a, b, out));
        out->owner = a->owner;
        return APR_OK;
    }
    const apr_tpl_value *const bad = a->kind == TPL_UNDEFINED ? a : b;
    if (bad->kind == TPL_UNDEFINED)
        return apr_tpl_fail(vm, APR_E_DAMAGED, "'%.*s' is undefined and cannot be an operand of %s", apr_tpl_short(bad->as.text),
                            bad->as.text.bytes, op_names[op]);
    return apr_tpl_fail(vm, APR_E_DAMAGED, "%s does not work on '%s' and '%s'", op_names[op], apr_tpl_type_name(a), apr_tpl_type_name(b));
}

apr_status apr_tpl_compare(apr_tpl_vm *vm, apr_tpl_op op, const apr_tpl_value *a, const apr_tpl_value *b, bool *out)
{
    int order;
    if (op == OP_EQ || op == OP_NE) {
        APR_TRY(apr_tpl_equal(vm, a, b, out));
        *out = *out == (op == OP_EQ);
        return APR_OK;
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        APR_TRY(apr_tpl_contains(vm, b, a, out));
        *out = *out == (op == OP_IN);
        return APR_OK;
    }
    const bool is_nan = (a->kind == TPL_FLOAT && isnan(a->as.real)) || (b->kind == TPL_FLOAT && isnan(b->as.real));
    APR_TRY(apr_tpl_order(vm, a, b, &order));
    *out = !is_nan && (op == OP_LT ? order < 0 : op == OP_LE ? order <= 0 : op == OP_GT ? order > 0 : order >= 0);
    return APR_OK;
}

/* ---- slices ---- */

/* Python's slice.indices(n): start, stop and step. */
static apr_status slice_indices(apr_tpl_vm *vm, const apr_tpl_value bounds[3], int64_t n, int64_t *start, int64_t *stop, int64_t *step)
{
    int64_t *const results[2] = {start, stop};
    *start = *stop = 0;
    *step = 1;
    for (int i = 0; i < 3; i++)
        if (bounds[i].kind != TPL_NONE && !apr_tpl_is_int(&bounds[i]))
            return apr_tpl_fail(vm, APR_E_DAMAGED, "a bound of a slice is a '%s', not an integer", apr_tpl_type_name(&bounds[i]));
    if (bounds[2].kind != TPL_NONE) *step = apr_tpl_as_int(&bounds[2]);
    if (*step == 0) return apr_tpl_fail(vm, APR_E_DAMAGED, "the step of a slice is 0");
    if (*step > n) *step = n + 1; /* same items, no overflow */
    if (*step < -n) *step = -n - 1;
    const int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? n - 1 : n;
    *start = *step < 0 ? high : low;
    *stop = *step < 0 ? low : high;
    for (int i = 0; i < 2; i++) {
        if (bounds[i].kind == TPL_NONE) continue;
        int64_t at = apr_tpl_as_int(&bounds[i]);
        if (at < 0) at = at < -n ? low : at + n;
        *results[i] = at < low ? low : at > high ? high : at;
    }
    return APR_OK;
}

static apr_status slice_text(apr_tpl_vm *vm, apr_tpl_text text, int64_t start, int64_t stop, int64_t step, apr_tpl_value *out)
{
    const size_t mark = vm->out.n_bytes;
    *out = apr_tpl_string(text.bytes, 0);
    if (step == 1) {
        const size_t from = apr_tpl_char_offset(text, (size_t)start), to = start < stop ? apr_tpl_char_offset(text, (size_t)stop) : from;
        *out = apr_tpl_string(text.bytes + from, to - from);
        return apr_tpl_steps(vm, to / 64);
    }
    apr_tpl_list *chars;
    const apr_tpl_value whole = apr_tpl_string(text.bytes, text.n_bytes);
    APR_TRY(apr_tpl_iterate(vm, &whole, &chars));
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) APR_TRY(apr_tpl_put_text(vm, chars->items[i].as.text));
    return apr_tpl_take(vm, mark, out);
}

apr_status apr_tpl_slice(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_value bounds[3], apr_tpl_value *out)
{
    int64_t n, start, stop, step;
    if (a->kind == TPL_UNDEFINED) return apr_tpl_fail_undefined(vm, a);
    if (a->kind != TPL_STRING && !apr_tpl_is_list(a))
        return apr_tpl_fail(vm, APR_E_DAMAGED, "a '%s' cannot be sliced", apr_tpl_type_name(a));
    APR_TRY(apr_tpl_length(vm, a, &n));
    APR_TRY(slice_indices(vm, bounds, n, &start, &stop, &step));
    if (a->kind == TPL_STRING) {
        APR_TRY(slice_text(vm, a->as.text, start, stop, step, out));
        out->owner = a->owner;
        return APR_OK;
    }
    APR_TRY(apr_tpl_list_make(vm, a->kind, 0, out));
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) APR_TRY(apr_tpl_list_add(vm, out->as.list, a->as.list->items[i]));
    return APR_OK;
}
