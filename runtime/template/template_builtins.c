/* template_builtins.c - finds filters, tests, functions and methods in their tables, and calls them: binds arguments to parameters. */
#include "runtime/template/template_internal.h"

#include <string.h>

enum { MAX_PARAMS = 6 };

const apr_tpl_builtin *apr_tpl_builtin_find(const apr_tpl_builtin *table, apr_tpl_text name)
{
    for (; table->name != NULL; table++)
        if (apr_tpl_text_is(name, table->name)) return table;
    return NULL;
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
    apr_tpl_value a[MAX_PARAMS + 1] = {*self};
    if (f->params != NULL) APR_TRY(bind(vm, f, args, a));
    APR_TRY(f->fn(vm, a, args, out));
    if (f->keeps_markup && apr_tpl_is_markup(self)) mark_safe(out);
    return APR_OK;
}
