/* template_builtins.c - parameter binding of filters, tests, functions and methods; the tests; the functions. */
#include "runtime/template/template_internal.h"

#include <string.h>
#include <time.h>

const apr_tpl_builtin *apr_tpl_builtin_find(const apr_tpl_builtin *table, apr_tpl_text name)
{
    for (; table->name != NULL; table++)
        if (apr_tpl_text_is(name, table->name)) return table;
    return NULL;
}

const apr_tpl_builtin *apr_tpl_filter_find(apr_tpl_text name)
{
    static const apr_tpl_builtin *const tables[] = {apr_tpl_filters, apr_tpl_list_filters, apr_tpl_text_filters};
    const apr_tpl_builtin *found = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && found == NULL; i++) found = apr_tpl_builtin_find(tables[i], name);
    return found;
}

/* Stores positional and named arguments in a[1], a[2], ... in the order of f->params. */
static apr_status bind(apr_tpl_vm *vm, const apr_tpl_builtin *f, const apr_tpl_args *args, apr_tpl_value *a)
{
    size_t n_params = 0, n_named = 0;
    for (const char *p = f->params; *p != '\0'; n_params++) {
        const size_t n = strcspn(p, "? ");
        const apr_tpl_value key = apr_tpl_string(p, n);
        const bool is_optional = p[n] == '?';
        const apr_tpl_value *named;
        APR_TRY(apr_tpl_dict_find(vm, &args->named, &key, &named));
        if (n_params < args->list.n_items) {
            a[n_params + 1] = args->list.items[n_params];
        } else if (named != NULL) {
            a[n_params + 1] = *named;
            n_named++;
        } else if (!is_optional) {
            return apr_tpl_fail(vm, APR_E_DAMAGED, "%s needs the argument '%.*s'", f->name, (int)n, p);
        }
        p += n + is_optional;
        p += *p == ' ';
    }
    if (args->list.n_items > n_params || n_named < args->named.n_items)
        return apr_tpl_fail(vm, APR_E_DAMAGED, "%s does not take one of its arguments", f->name);
    return APR_OK;
}

/* Marks a string, or each string of a list. */
static void mark_safe(apr_tpl_value *v)
{
    if (v->kind == TPL_STRING) v->owner = TPL_STRING;
    for (size_t i = 0; apr_tpl_is_list(v) && i < v->as.list->n_items; i++)
        if (v->as.list->items[i].kind == TPL_STRING) v->as.list->items[i].owner = TPL_STRING;
}

apr_status apr_tpl_builtin_call(apr_tpl_vm *vm, const apr_tpl_builtin *f, const apr_tpl_value *self, const apr_tpl_args *args,
                                apr_tpl_value *out)
{
    apr_tpl_value a[APR_TPL_MAX_PARAMS + 1] = {*self};
    if (f->params != NULL) APR_TRY(bind(vm, f, args, a));
    APR_TRY(f->fn(vm, a, args, out));
    if (f->keeps_markup && apr_tpl_is_markup(self)) mark_safe(out);
    return APR_OK;
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

/* ---- tests ---- */

#define TEST(name, condition)                                                                                           \
    static apr_status test_##name(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out) \
    {                                                                                                                   \
        (void)vm;                                                                                                       \
        (void)args;                                                                                                     \
        *out = apr_tpl_bool(condition);                                                                                 \
        return APR_OK;                                                                                                  \
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
TEST(filter, a->kind == TPL_STRING && apr_tpl_filter_find(a->as.text) != NULL)
TEST(test, a->kind == TPL_STRING && apr_tpl_builtin_find(apr_tpl_tests, a->as.text) != NULL)

#define COMPARISON(name, op)                                                                                            \
    static apr_status test_##name(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out) \
    {                                                                                                                   \
        bool holds;                                                                                                     \
        (void)args;                                                                                                     \
        APR_TRY(apr_tpl_compare(vm, op, &a[0], &a[1], &holds));                                                         \
        *out = apr_tpl_bool(holds);                                                                                     \
        return APR_OK;                                                                                                  \
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

static apr_status test_odd(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out)
{
    (void)args;
    return test_rest(vm, a, 2, 1, out);
}

static apr_status test_even(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out)
{
    (void)args;
    return test_rest(vm, a, 2, 0, out);
}

static apr_status test_divisibleby(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out)
{
    int64_t divisor;
    (void)args;
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

static apr_status test_lower(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out)
{
    (void)args;
    return test_case(vm, a, CASE_LOWER, out);
}

static apr_status test_upper(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out)
{
    (void)args;
    return test_case(vm, a, CASE_UPPER, out);
}

static apr_status test_sameas(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out)
{
    bool equal;
    (void)args;
    APR_TRY(apr_tpl_equal(vm, &a[0], &a[1], &equal));
    if (apr_tpl_is_list(a) || a->kind == TPL_DICT) equal = a[0].as.dict == a[1].as.dict;
    *out = apr_tpl_bool(equal && a[0].kind == a[1].kind);
    return APR_OK;
}

const apr_tpl_builtin apr_tpl_tests[] = {
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

static apr_status fn_range(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out)
{
    enum { MAX_RANGE = 100000 }; /* the limit of Jinja's sandbox */
    const bool has_stop = a[2].kind != TPL_ABSENT;
    int64_t start, stop, step;
    (void)args;
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

static apr_status fn_dict(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out)
{
    (void)a;
    return make_dict(vm, TPL_DICT, args, out);
}

static apr_status fn_namespace(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out)
{
    (void)a;
    return make_dict(vm, TPL_NAMESPACE, args, out);
}

static apr_status fn_raise_exception(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out)
{
    apr_tpl_text text;
    (void)args;
    (void)out;
    APR_TRY(apr_tpl_to_str(vm, &a[1], &text));
    return apr_tpl_fail(vm, APR_E_NO, "%.*s", text.n_bytes > 600 ? 600 : (int)text.n_bytes, text.bytes);
}

static apr_status fn_strftime_now(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args, apr_tpl_value *out)
{
    char format[256], text[1024];
    apr_tpl_text wanted;
    struct tm parts;
    const time_t now = (time_t)vm->now;
    (void)args;
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

const apr_tpl_builtin apr_tpl_functions[] = {
    {"range", "start stop? step?", fn_range, false},    {"dict", NULL, fn_dict, false},
    {"namespace", NULL, fn_namespace, false},           {"raise_exception", "message", fn_raise_exception, false},
    {"strftime_now", "format", fn_strftime_now, false}, {NULL, NULL, NULL, false},
};
