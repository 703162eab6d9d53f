/* template_eval.c - evaluates the statements of a template: text, loops, variables, macros. */
#include "runtime/template/template_internal.h"

#include <string.h>

apr_status apr_tpl_scope_make(apr_tpl_vm *vm, apr_tpl_scope *parent, apr_tpl_scope **scope)
{
    APR_TRY(apr_tpl_alloc(vm, 1, sizeof **scope, scope));
    (*scope)->parent = parent;
    return APR_OK;
}

apr_status apr_tpl_scope_set(apr_tpl_vm *vm, apr_tpl_scope *scope, apr_tpl_text name, apr_tpl_value value)
{
    apr_tpl_variable *v = scope->variables;
    while (v != NULL && (v->name.n_bytes != name.n_bytes || memcmp(v->name.bytes, name.bytes, name.n_bytes) != 0)) v = v->next;
    if (v == NULL) {
        APR_TRY(apr_tpl_alloc(vm, 1, sizeof *v, &v));
        v->name = name;
        v->next = scope->variables;
        scope->variables = v;
    }
    v->value = value;
    return APR_OK;
}

/* Deletes the variables of the last loop iteration; their slots are reused for the same names. */
static void clear_scope(apr_tpl_scope *scope)
{
    for (apr_tpl_variable *v = scope->variables; v != NULL; v = v->next) v->value.kind = TPL_ABSENT;
}

/* Runs a body in the given scope. */
static apr_status run_in(apr_tpl_vm *vm, apr_tpl_scope *scope, const apr_tpl_node *body)
{
    apr_tpl_scope *const outer = vm->scope;
    vm->scope = scope;
    const apr_status status = apr_tpl_run(vm, body);
    vm->scope = outer;
    return status;
}

static apr_status run_in_new(apr_tpl_vm *vm, const apr_tpl_node *body)
{
    apr_tpl_scope *scope;
    APR_TRY(apr_tpl_scope_make(vm, vm->scope, &scope));
    return run_in(vm, scope, body);
}

static apr_status assign(apr_tpl_vm *vm, apr_tpl_scope *scope, const apr_tpl_node *target, const apr_tpl_value *value)
{
    if (target->kind == NODE_NAME) return apr_tpl_scope_set(vm, scope, target->text, *value);
    if (target->kind == NODE_ATTR) {
        apr_tpl_value object;
        const apr_tpl_value key = apr_tpl_string(target->text.bytes, target->text.n_bytes);
        APR_TRY(apr_tpl_eval(vm, target->a, &object));
        if (object.kind != TPL_NAMESPACE) return apr_tpl_fail(vm, APR_E_DAMAGED, "only members of a namespace() can be set");
        return apr_tpl_dict_set(vm, object.as.dict, &key, value);
    }
    apr_tpl_list *items;
    APR_TRY(apr_tpl_iterate(vm, value, &items));
    if (items->n_items != target->list.n_items)
        return apr_tpl_fail(vm, APR_E_DAMAGED, "%zu names cannot be set from %zu values", target->list.n_items, items->n_items);
    for (size_t i = 0; i < items->n_items; i++) {
        const apr_tpl_value item = items->items[i];
        APR_TRY(assign(vm, scope, target->list.items[i], &item));
    }
    return APR_OK;
}

/* ---- statements ---- */

static apr_status run_data(apr_tpl_vm *vm, const apr_tpl_node *node) { return apr_tpl_put_text(vm, node->text); }

static apr_status run_print(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    apr_tpl_value value;
    APR_TRY(apr_tpl_eval(vm, node->a, &value));
    return apr_tpl_put_str(vm, &value);
}

static apr_status run_block(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    for (size_t i = 0; i < node->list.n_items && vm->flow == FLOW_ON; i++) APR_TRY(apr_tpl_run(vm, node->list.items[i]));
    return APR_OK;
}

static apr_status run_if(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    for (; node != NULL; node = node->c) {
        apr_tpl_value condition;
        if (node->kind != NODE_IF) return apr_tpl_run(vm, node); /* else */
        vm->line = node->line;
        APR_TRY(apr_tpl_steps(vm, 1));
        APR_TRY(apr_tpl_eval(vm, node->a, &condition));
        if (apr_tpl_is_true(&condition)) return apr_tpl_run(vm, node->b);
    }
    return APR_OK;
}

/* The items that pass the loop's `if`. */
static apr_status filter_items(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_scope *scope, const apr_tpl_list *items,
                               apr_tpl_list **out)
{
    apr_tpl_value kept;
    apr_tpl_scope *const outer = vm->scope;
    APR_TRY(apr_tpl_list_make(vm, TPL_LIST, 0, &kept));
    vm->scope = scope;
    for (size_t i = 0; i < items->n_items; i++) {
        const apr_tpl_value item = items->items[i];
        apr_tpl_value condition;
        APR_TRY(assign(vm, scope, node->list.items[0], &item));
        APR_TRY(apr_tpl_eval(vm, node->d, &condition));
        if (apr_tpl_is_true(&condition)) APR_TRY(apr_tpl_list_add(vm, kept.as.list, item));
    }
    vm->scope = outer;
    *out = kept.as.list;
    return APR_OK;
}

static apr_status run_for(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    static const apr_tpl_text loop_name = {"loop", 4};
    apr_tpl_value iterable;
    apr_tpl_list *items;
    apr_tpl_scope *scope;
    apr_tpl_loop *loop;
    APR_TRY(apr_tpl_eval(vm, node->a, &iterable));
    APR_TRY(apr_tpl_iterate(vm, &iterable, &items));
    APR_TRY(apr_tpl_scope_make(vm, vm->scope, &scope));
    if (node->d != NULL) APR_TRY(filter_items(vm, node, scope, items, &items));
    if (items->n_items == 0) return node->c != NULL ? run_in_new(vm, node->c) : APR_OK;

    APR_TRY(apr_tpl_alloc(vm, 1, sizeof *loop, &loop));
    *loop = (apr_tpl_loop){.items = items};
    for (size_t i = 0; i < items->n_items; i++) { /* append() may extend the list during the loop */
        const apr_tpl_value item = items->items[i];
        loop->index0 = i;
        clear_scope(scope);
        APR_TRY(apr_tpl_steps(vm, 1));
        APR_TRY(apr_tpl_scope_set(vm, scope, loop_name, (apr_tpl_value){.kind = TPL_LOOP, .as.loop = loop}));
        APR_TRY(assign(vm, scope, node->list.items[0], &item));
        APR_TRY(run_in(vm, scope, node->b));
        const apr_tpl_flow flow = vm->flow;
        vm->flow = FLOW_ON;
        if (flow == FLOW_BREAK) break;
    }
    return APR_OK;
}

static apr_status run_set(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    apr_tpl_value value;
    APR_TRY(apr_tpl_eval(vm, node->a, &value));
    return assign(vm, vm->scope, node->list.items[0], &value);
}

/* Runs a body and returns the text that it wrote. */
static apr_status capture(apr_tpl_vm *vm, const apr_tpl_node *body, apr_tpl_scope *scope, apr_tpl_value *text)
{
    const size_t mark = vm->out.n_bytes;
    APR_TRY(run_in(vm, scope, body));
    return apr_tpl_take(vm, mark, text);
}

static apr_status capture_and_filter(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *text)
{
    apr_tpl_scope *scope;
    APR_TRY(apr_tpl_scope_make(vm, vm->scope, &scope));
    APR_TRY(capture(vm, node->b, scope, text));
    if (node->a == NULL || vm->flow != FLOW_ON) return APR_OK;
    vm->block_text = *text;
    return apr_tpl_eval(vm, node->a, text);
}

static apr_status run_set_block(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    apr_tpl_value text;
    APR_TRY(capture_and_filter(vm, node, &text));
    return vm->flow == FLOW_ON ? assign(vm, vm->scope, node->list.items[0], &text) : APR_OK;
}

static apr_status run_filter_block(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    apr_tpl_value text;
    APR_TRY(capture_and_filter(vm, node, &text));
    return vm->flow == FLOW_ON ? apr_tpl_put_str(vm, &text) : APR_OK;
}

static apr_status run_with(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    apr_tpl_scope *scope;
    APR_TRY(apr_tpl_scope_make(vm, vm->scope, &scope));
    for (size_t i = 0; i + 1 < node->list.n_items; i += 2) { /* values are evaluated in the outer scope */
        apr_tpl_value value;
        APR_TRY(apr_tpl_eval(vm, node->list.items[i + 1], &value));
        APR_TRY(assign(vm, scope, node->list.items[i], &value));
    }
    return run_in(vm, scope, node->b);
}

static apr_status make_macro(apr_tpl_vm *vm, const apr_tpl_macro_def *def, apr_tpl_value *out)
{
    apr_tpl_macro *macro;
    APR_TRY(apr_tpl_alloc(vm, 1, sizeof *macro, &macro));
    *macro = (apr_tpl_macro){def, vm->scope, {.kind = TPL_ABSENT}};
    *out = (apr_tpl_value){.kind = TPL_MACRO, .as.macro = macro};
    return APR_OK;
}

static apr_status run_macro(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    apr_tpl_value macro;
    APR_TRY(make_macro(vm, node->macro, &macro));
    return apr_tpl_scope_set(vm, vm->scope, node->text, macro);
}

/* The called macro gets the block's body as caller(). */
static apr_status run_call_block(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    apr_tpl_value callee, caller, text;
    apr_tpl_args args;
    APR_TRY(make_macro(vm, node->macro, &caller));
    APR_TRY(apr_tpl_eval(vm, node->a->a, &callee));
    if (callee.kind != TPL_MACRO) return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "a call block calls something that is not a macro");
    apr_tpl_macro macro = *callee.as.macro;
    macro.caller = caller;
    APR_TRY(apr_tpl_eval_args(vm, &node->a->args, &args));
    APR_TRY(apr_tpl_call_macro(vm, &macro, &args, &text));
    return apr_tpl_put_str(vm, &text);
}

static apr_status run_scope(apr_tpl_vm *vm, const apr_tpl_node *node) { return run_in_new(vm, node->b); }

static apr_status run_break(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    vm->flow = node->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
    return APR_OK;
}

apr_status apr_tpl_run(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    static apr_status (*const run[NODE_KIND_COUNT])(apr_tpl_vm *, const apr_tpl_node *) = {
        [NODE_DATA] = run_data,
        [NODE_PRINT] = run_print,
        [NODE_BLOCK] = run_block,
        [NODE_IF] = run_if,
        [NODE_FOR] = run_for,
        [NODE_SET] = run_set,
        [NODE_SET_BLOCK] = run_set_block,
        [NODE_WITH] = run_with,
        [NODE_MACRO] = run_macro,
        [NODE_CALL_BLOCK] = run_call_block,
        [NODE_FILTER_BLOCK] = run_filter_block,
        [NODE_SCOPE] = run_scope,
        [NODE_BREAK] = run_break,
        [NODE_CONTINUE] = run_break,
    };
    vm->line = node->line;
    APR_TRY(apr_tpl_steps(vm, 1));
    APR_TRY(apr_tpl_descend(vm));
    APR_TRY(run[node->kind](vm, node));
    vm->depth--;
    return APR_OK;
}

/* ---- macro calls ---- */

static bool is_param(const apr_tpl_macro_def *def, apr_tpl_text name)
{
    for (size_t i = 0; i < def->n_params; i++)
        if (name.n_bytes == def->params[i].n_bytes && memcmp(name.bytes, def->params[i].bytes, name.n_bytes) == 0) return true;
    return false;
}

/* Stores arguments without a parameter in varargs and kwargs, if the macro uses these names; else they are an error. */
static apr_status set_extra_args(apr_tpl_vm *vm, const apr_tpl_macro_def *def, const apr_tpl_args *args, apr_tpl_scope *scope)
{
    apr_tpl_value varargs, kwargs;
    APR_TRY(apr_tpl_list_make(vm, TPL_TUPLE, 0, &varargs));
    APR_TRY(apr_tpl_dict_make(vm, TPL_DICT, &kwargs));
    for (size_t i = def->n_params; i < args->list.n_items; i++) APR_TRY(apr_tpl_list_add(vm, varargs.as.list, args->list.items[i]));
    for (size_t i = 0; i < args->named.n_items; i++)
        if (!is_param(def, args->named.keys[i].as.text))
            APR_TRY(apr_tpl_dict_add(vm, kwargs.as.dict, args->named.keys[i], args->named.values[i]));
    if (varargs.as.list->n_items > 0 && !def->uses_varargs)
        return apr_tpl_fail(vm, APR_E_DAMAGED, "the macro '%.*s' takes at most %zu arguments", apr_tpl_short(def->name), def->name.bytes,
                            def->n_params);
    if (kwargs.as.dict->n_items > 0 && !def->uses_kwargs)
        return apr_tpl_fail(vm, APR_E_DAMAGED, "a macro has no parameter '%.*s'", apr_tpl_short(kwargs.as.dict->keys[0].as.text),
                            kwargs.as.dict->keys[0].as.text.bytes);
    if (def->uses_varargs) APR_TRY(apr_tpl_scope_set(vm, scope, (apr_tpl_text){"varargs", 7}, varargs));
    return def->uses_kwargs ? apr_tpl_scope_set(vm, scope, (apr_tpl_text){"kwargs", 6}, kwargs) : APR_OK;
}

static apr_status set_params(apr_tpl_vm *vm, const apr_tpl_macro_def *def, const apr_tpl_args *args, apr_tpl_scope *scope)
{
    for (size_t i = 0; i < def->n_params; i++) {
        const apr_tpl_text name = def->params[i];
        const apr_tpl_value key = apr_tpl_string(name.bytes, name.n_bytes);
        const apr_tpl_value *named;
        apr_tpl_value value = apr_tpl_undefined(name);
        APR_TRY(apr_tpl_dict_find(vm, &args->named, &key, &named));
        if (i < args->list.n_items) {
            if (named != NULL)
                return apr_tpl_fail(vm, APR_E_DAMAGED, "a macro's argument '%.*s' is given twice", apr_tpl_short(name), name.bytes);
            value = args->list.items[i];
        } else if (named != NULL) {
            value = *named;
        } else if (def->defaults[i] != NULL) { /* may use the parameters before it */
            APR_TRY(apr_tpl_eval(vm, def->defaults[i], &value));
        }
        APR_TRY(apr_tpl_scope_set(vm, scope, name, value));
    }
    return APR_OK;
}

apr_status apr_tpl_call_macro(apr_tpl_vm *vm, const apr_tpl_macro *macro, const apr_tpl_args *args, apr_tpl_value *out)
{
    apr_tpl_scope *const outer = vm->scope;
    apr_tpl_scope *scope;
    const int line = vm->line;
    if (++vm->n_calls > APR_TEMPLATE_MAX_NESTING)
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "macro calls are nested more than %d deep", APR_TEMPLATE_MAX_NESTING);
    APR_TRY(apr_tpl_scope_make(vm, macro->scope, &scope));
    vm->scope = scope;
    if (macro->caller.kind == TPL_MACRO) APR_TRY(apr_tpl_scope_set(vm, scope, (apr_tpl_text){"caller", 6}, macro->caller));
    APR_TRY(set_extra_args(vm, macro->def, args, scope));
    APR_TRY(set_params(vm, macro->def, args, scope));
    APR_TRY(capture(vm, macro->def->body, scope, out));
    vm->scope = outer;
    vm->line = line;
    vm->n_calls--;
    return APR_OK;
}
