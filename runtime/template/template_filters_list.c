/* template_filters_list.c - filters of lists and dicts: join, map, select, sort, ... */
#include "runtime/template/template_internal.h"

#include <string.h>

#define FILTER(name) \
    static apr_status name(apr_tpl_vm *vm, const apr_tpl_value *a, const apr_tpl_args *args __attribute__((unused)), apr_tpl_value *out)

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

FILTER(do_sort)
{
    apr_tpl_list *items;
    APR_TRY(apr_tpl_iterate(vm, a, &items));
    return sort_items(vm, items, &a[3], apr_tpl_is_true(&a[2]), apr_tpl_is_true(&a[1]), out);
}

FILTER(do_dictsort)
{
    apr_tpl_value pairs;
    const bool by_value = a[2].kind == TPL_STRING && apr_tpl_text_is(a[2].as.text, "value");
    const apr_tpl_value path = apr_tpl_int(by_value);
    if (a->kind != TPL_DICT) return apr_tpl_fail(vm, APR_E_DAMAGED, "dictsort needs a dict, not a '%s'", apr_tpl_type_name(a));
    APR_TRY(apr_tpl_dict_items(vm, a->as.dict, &pairs));
    return sort_items(vm, pairs.as.list, &path, apr_tpl_is_true(&a[1]), apr_tpl_is_true(&a[3]), out);
}

FILTER(do_unique)
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

FILTER(do_min) { return extreme(vm, a, 1, out); }
FILTER(do_max) { return extreme(vm, a, -1, out); }

FILTER(do_sum)
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

FILTER(do_join)
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

FILTER(do_first) { return pick(vm, a, false, out); }
FILTER(do_last) { return pick(vm, a, true, out); }

static apr_status copy_items(apr_tpl_vm *vm, const apr_tpl_value *a, bool reverse, apr_tpl_value *out)
{
    apr_tpl_list *items;
    APR_TRY(apr_tpl_iterate(vm, a, &items));
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, items->n_items, out));
    for (size_t i = 0; i < items->n_items; i++)
        APR_TRY(apr_tpl_list_add(vm, out->as.list, items->items[reverse ? items->n_items - 1 - i : i]));
    return APR_OK;
}

FILTER(do_list) { return copy_items(vm, a, false, out); }

FILTER(do_reverse)
{
    const apr_tpl_value backwards[3] = {apr_tpl_none(), apr_tpl_none(), apr_tpl_int(-1)};
    return a->kind == TPL_STRING ? apr_tpl_slice(vm, a, backwards, out) : copy_items(vm, a, true, out);
}

FILTER(do_items)
{
    if (a->kind == TPL_DICT) return apr_tpl_dict_items(vm, a->as.dict, out);
    if (a->kind == TPL_UNDEFINED) return apr_tpl_list_make(vm, TPL_LIST, 0, out);
    return apr_tpl_fail(vm, APR_E_DAMAGED, "items needs a dict, not a '%s'", apr_tpl_type_name(a));
}

FILTER(do_batch)
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
FILTER(do_slice)
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
FILTER(do_groupby)
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
            APR_TRY(apr_tpl_pair(vm, shown, group, &pair));
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
    *f = is_test ? apr_tpl_builtin_find(apr_tpl_tests, text) : apr_tpl_filter_find(text);
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
FILTER(do_map)
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

FILTER(do_select) { return select_items(vm, a, args, false, true, out); }
FILTER(do_reject) { return select_items(vm, a, args, false, false, out); }
FILTER(do_selectattr) { return select_items(vm, a, args, true, true, out); }
FILTER(do_rejectattr) { return select_items(vm, a, args, true, false, out); }

const apr_tpl_builtin apr_tpl_list_filters[] = {
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
    {NULL, NULL, NULL, false},
};
