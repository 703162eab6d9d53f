/* template_eval.c - evaluates a template: expressions, calls of macros, and statements. */
#include "runtime/template/template_internal.h"

#include <string.h>

typedef struct apr_tpl_variable {
    struct apr_tpl_variable *next;
    apr_tpl_text name;
    apr_tpl_value value; /* ABSENT: deleted; the slot is reused for the same name */
} apr_tpl_variable;

struct apr_tpl_scope {
    struct apr_tpl_scope *parent;
    apr_tpl_variable *variables;
};

static apr_status eval_node(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out);
static apr_status run_node(apr_tpl_vm *vm, const apr_tpl_node *node);
static apr_status call_macro(apr_tpl_vm *vm, const apr_tpl_macro *macro, const apr_tpl_args *args, apr_tpl_value *out);

static apr_status scope_make(apr_tpl_vm *vm, apr_tpl_scope *parent, apr_tpl_scope **scope)
{
    APR_TRY(apr_tpl_alloc(vm, 1, sizeof **scope, scope));
    (*scope)->parent = parent;
    return APR_OK;
}

static apr_status scope_set(apr_tpl_vm *vm, apr_tpl_scope *scope, apr_tpl_text name, apr_tpl_value value)
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

/* ---- expressions ---- */

static apr_status eval_const(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    (void)vm;
    *out = node->value;
    return APR_OK;
}

static apr_status eval_name(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    size_t n_looked_at = 0;
    for (const apr_tpl_scope *scope = vm->scope; scope != NULL; scope = scope->parent) {
        for (const apr_tpl_variable *v = scope->variables; v != NULL; v = v->next, n_looked_at++) {
            if (v->name.n_bytes != node->text.n_bytes || v->value.kind == TPL_ABSENT) continue;
            if (memcmp(v->name.bytes, node->text.bytes, node->text.n_bytes) != 0) continue;
            *out = v->value;
            return apr_tpl_steps(vm, n_looked_at / 16);
        }
    }
    const apr_tpl_builtin *const function = apr_tpl_builtin_named(APR_TPL_FUNCTION, node->text);
    *out = apr_tpl_undefined(node->text);
    if (function != NULL) *out = (apr_tpl_value){.kind = TPL_FUNCTION, .as.function = function};
    return apr_tpl_steps(vm, n_looked_at / 16);
}

static apr_status eval_list(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    APR_TRY(apr_tpl_list_make(vm, node->kind == NODE_TUPLE ? TPL_TUPLE : TPL_LIST, node->list.n_items, out));
    for (size_t i = 0; i < node->list.n_items; i++) {
        apr_tpl_value item;
        APR_TRY(eval_node(vm, node->list.items[i], &item));
        APR_TRY(apr_tpl_list_add(vm, out->as.list, item));
    }
    return APR_OK;
}

static apr_status eval_dict(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    APR_TRY(apr_tpl_dict_make(vm, TPL_DICT, out));
    for (size_t i = 0; i + 1 < node->list.n_items; i += 2) {
        apr_tpl_value key, value;
        APR_TRY(eval_node(vm, node->list.items[i], &key));
        APR_TRY(eval_node(vm, node->list.items[i + 1], &value));
        APR_TRY(apr_tpl_dict_set(vm, out->as.dict, &key, &value));
    }
    return APR_OK;
}

static apr_status eval_attr(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    apr_tpl_value object;
    APR_TRY(eval_node(vm, node->a, &object));
    return apr_tpl_attribute(vm, &object, node->text, out);
}

static apr_status eval_item(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    apr_tpl_value object, key;
    APR_TRY(eval_node(vm, node->a, &object));
    APR_TRY(eval_node(vm, node->b, &key));
    return apr_tpl_subscript(vm, &object, &key, out);
}

static apr_status eval_slice(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    const apr_tpl_node *const nodes[3] = {node->b, node->c, node->d};
    apr_tpl_value object, bounds[3];
    APR_TRY(eval_node(vm, node->a, &object));
    for (int i = 0; i < 3; i++) {
        bounds[i] = apr_tpl_none();
        if (nodes[i] != NULL) APR_TRY(eval_node(vm, nodes[i], &bounds[i]));
    }
    return apr_tpl_slice(vm, &object, bounds, out);
}

/* ---- calls ---- */

static apr_status spread(apr_tpl_vm *vm, char kind, const apr_tpl_value *value, apr_tpl_args *args)
{
    apr_tpl_list *items;
    if (kind == '*') {
        APR_TRY(apr_tpl_iterate(vm, value, &items));
        for (size_t i = 0; i < items->n_items; i++) APR_TRY(apr_tpl_list_add(vm, &args->list, items->items[i]));
        return APR_OK;
    }
    if (value->kind != TPL_DICT) return apr_tpl_fail(vm, APR_E_DAMAGED, "** needs a dict, not a '%s'", apr_tpl_type_name(value));
    for (size_t i = 0; i < value->as.dict->n_items; i++) {
        if (value->as.dict->keys[i].kind != TPL_STRING) return apr_tpl_fail(vm, APR_E_DAMAGED, "a key of ** is not a string");
        APR_TRY(apr_tpl_dict_set(vm, &args->named, &value->as.dict->keys[i], &value->as.dict->values[i]));
    }
    return APR_OK;
}

static apr_status eval_args(apr_tpl_vm *vm, const apr_tpl_arg_nodes *nodes, apr_tpl_args *args)
{
    *args = (apr_tpl_args){0};
    for (size_t i = 0; i < nodes->n_items; i++) {
        const apr_tpl_arg *const arg = &nodes->items[i];
        const apr_tpl_value name = apr_tpl_string(arg->name.bytes, arg->name.n_bytes);
        apr_tpl_value value;
        APR_TRY(eval_node(vm, arg->value, &value));
        if (arg->spread != 0) APR_TRY(spread(vm, arg->spread, &value, args));
        else if (arg->name.n_bytes > 0) APR_TRY(apr_tpl_dict_set(vm, &args->named, &name, &value));
        else APR_TRY(apr_tpl_list_add(vm, &args->list, value));
    }
    return APR_OK;
}

static apr_status call(apr_tpl_vm *vm, const apr_tpl_value *callee, const apr_tpl_args *args, apr_tpl_value *out)
{
    const apr_tpl_value nothing = {.kind = TPL_ABSENT};
    if (callee->kind == TPL_MACRO) return call_macro(vm, callee->as.macro, args, out);
    if (callee->kind == TPL_FUNCTION) return apr_tpl_builtin_call(vm, callee->as.function, &nothing, args, out);
    if (callee->kind == TPL_METHOD) return apr_tpl_builtin_call(vm, callee->as.method->function, &callee->as.method->self, args, out);
    return apr_tpl_fail(vm, APR_E_DAMAGED, "a '%s' cannot be called", apr_tpl_type_name(callee));
}

/* Strings, lists and dicts have methods in Python that are not implemented. Other values have no methods that templates call. */
static apr_status fail_callee(apr_tpl_vm *vm, const apr_tpl_value *callee)
{
    const apr_tpl_text name = callee->as.text;
    const apr_tpl_value owner = {.kind = callee->owner};
    if (owner.kind == TPL_ABSENT)
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the function '%.*s' is not supported", apr_tpl_short(name), name.bytes);
    const bool has_methods = owner.kind == TPL_STRING || owner.kind == TPL_DICT || apr_tpl_is_list(&owner);
    return apr_tpl_fail(vm, has_methods ? APR_E_UNSUPPORTED : APR_E_DAMAGED, "a '%s' has no method '%.*s'%s", apr_tpl_type_name(&owner),
                        apr_tpl_short(name), name.bytes, has_methods ? ", or it is not supported" : "");
}

static apr_status eval_call(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    apr_tpl_value callee;
    apr_tpl_args args;
    APR_TRY(eval_node(vm, node->a, &callee));
    APR_TRY(eval_args(vm, &node->args, &args));
    vm->line = node->line;
    if (callee.kind == TPL_UNDEFINED) return fail_callee(vm, &callee);
    return call(vm, &callee, &args, out);
}

static apr_status eval_filter(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    apr_tpl_value subject = vm->block_text;
    apr_tpl_args args;
    if (node->a != NULL) APR_TRY(eval_node(vm, node->a, &subject));
    APR_TRY(eval_args(vm, &node->args, &args));
    vm->line = node->line;
    if (node->builtin == NULL)
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the %s '%.*s' is not supported", node->kind == NODE_TEST ? "test" : "filter",
                            apr_tpl_short(node->text), node->text.bytes);
    APR_TRY(apr_tpl_builtin_call(vm, node->builtin, &subject, &args, out));
    if (node->kind == NODE_TEST && node->op == OP_NOT) *out = apr_tpl_bool(!apr_tpl_is_true(out));
    return APR_OK;
}

/* ---- operators ---- */

static apr_status eval_unary(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    apr_tpl_value a;
    APR_TRY(eval_node(vm, node->a, &a));
    vm->line = node->line;
    return apr_tpl_unary(vm, node->op, &a, out);
}

static apr_status eval_binary(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    apr_tpl_value a, b;
    APR_TRY(eval_node(vm, node->a, &a));
    if (node->op == OP_AND || node->op == OP_OR) { /* the result is one of the operands, as in Python */
        *out = a;
        return apr_tpl_is_true(&a) == (node->op == OP_OR) ? APR_OK : eval_node(vm, node->b, out);
    }
    APR_TRY(eval_node(vm, node->b, &b));
    vm->line = node->line;
    return apr_tpl_binary(vm, node->op, &a, &b, out);
}

static apr_status eval_compare(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    apr_tpl_value left, right;
    bool holds = true;
    APR_TRY(eval_node(vm, node->a, &left));
    for (size_t i = 0; holds && i < node->list.n_items; i++) {
        const apr_tpl_node *const operand = node->list.items[i];
        APR_TRY(eval_node(vm, operand->a, &right));
        vm->line = node->line;
        APR_TRY(apr_tpl_compare(vm, operand->op, &left, &right, &holds));
        left = right;
    }
    *out = apr_tpl_bool(holds);
    return APR_OK;
}

static apr_status eval_choice(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    apr_tpl_value condition;
    APR_TRY(eval_node(vm, node->b, &condition));
    if (apr_tpl_is_true(&condition)) return eval_node(vm, node->a, out);
    *out = apr_tpl_undefined((apr_tpl_text){"the inline if without else", 26});
    return node->c != NULL ? eval_node(vm, node->c, out) : APR_OK;
}

static apr_status eval_node(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    static apr_status (*const eval[NODE_KIND_COUNT])(apr_tpl_vm *, const apr_tpl_node *, apr_tpl_value *) = {
        [NODE_CONST] = eval_const,   [NODE_NAME] = eval_name,       [NODE_LIST] = eval_list,     [NODE_TUPLE] = eval_list,
        [NODE_DICT] = eval_dict,     [NODE_ATTR] = eval_attr,       [NODE_ITEM] = eval_item,     [NODE_SLICE] = eval_slice,
        [NODE_CALL] = eval_call,     [NODE_FILTER] = eval_filter,   [NODE_TEST] = eval_filter,   [NODE_UNARY] = eval_unary,
        [NODE_BINARY] = eval_binary, [NODE_COMPARE] = eval_compare, [NODE_CHOICE] = eval_choice,
    };
    vm->line = node->line;
    APR_TRY(apr_tpl_steps(vm, 1));
    APR_TRY(apr_tpl_descend(vm));
    APR_TRY(eval[node->kind](vm, node, out));
    vm->depth--;
    return APR_OK;
}

/* ---- macro calls ---- */

/* Runs a body in the given scope. */
static apr_status run_in(apr_tpl_vm *vm, apr_tpl_scope *scope, const apr_tpl_node *body)
{
    apr_tpl_scope *const outer = vm->scope;
    vm->scope = scope;
    const apr_status status = run_node(vm, body);
    vm->scope = outer;
    return status;
}

/* Runs a body and returns the text that it wrote. */
static apr_status capture(apr_tpl_vm *vm, const apr_tpl_node *body, apr_tpl_scope *scope, apr_tpl_value *text)
{
    const size_t mark = vm->out.n_bytes;
    APR_TRY(run_in(vm, scope, body));
    return apr_tpl_take(vm, mark, text);
}

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
    if (def->uses_varargs) APR_TRY(scope_set(vm, scope, (apr_tpl_text){"varargs", 7}, varargs));
    return def->uses_kwargs ? scope_set(vm, scope, (apr_tpl_text){"kwargs", 6}, kwargs) : APR_OK;
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
            APR_TRY(eval_node(vm, def->defaults[i], &value));
        }
        APR_TRY(scope_set(vm, scope, name, value));
    }
    return APR_OK;
}

static apr_status call_macro(apr_tpl_vm *vm, const apr_tpl_macro *macro, const apr_tpl_args *args, apr_tpl_value *out)
{
    apr_tpl_scope *const outer = vm->scope;
    apr_tpl_scope *scope;
    const int line = vm->line;
    if (++vm->n_calls > APR_TEMPLATE_MAX_NESTING)
        return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "macro calls are nested more than %d deep", APR_TEMPLATE_MAX_NESTING);
    APR_TRY(scope_make(vm, macro->scope, &scope));
    vm->scope = scope;
    if (macro->caller.kind == TPL_MACRO) APR_TRY(scope_set(vm, scope, (apr_tpl_text){"caller", 6}, macro->caller));
    APR_TRY(set_extra_args(vm, macro->def, args, scope));
    APR_TRY(set_params(vm, macro->def, args, scope));
    APR_TRY(capture(vm, macro->def->body, scope, out));
    vm->scope = outer;
    vm->line = line;
    vm->n_calls--;
    return APR_OK;
}
/* ---- statements ---- */

/* Deletes the variables of the last loop iteration; their slots are reused for the same names. */
static void clear_scope(apr_tpl_scope *scope)
{
    for (apr_tpl_variable *v = scope->variables; v != NULL; v = v->next) v->value.kind = TPL_ABSENT;
}

static apr_status run_in_new(apr_tpl_vm *vm, const apr_tpl_node *body)
{
    apr_tpl_scope *scope;
    APR_TRY(scope_make(vm, vm->scope, &scope));
    return run_in(vm, scope, body);
}

static apr_status assign(apr_tpl_vm *vm, apr_tpl_scope *scope, const apr_tpl_node *target, const apr_tpl_value *value)
{
    if (target->kind == NODE_NAME) return scope_set(vm, scope, target->text, *value);
    if (target->kind == NODE_ATTR) {
        apr_tpl_value object;
        const apr_tpl_value key = apr_tpl_string(target->text.bytes, target->text.n_bytes);
        APR_TRY(eval_node(vm, target->a, &object));
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

static apr_status run_data(apr_tpl_vm *vm, const apr_tpl_node *node) { return apr_tpl_put_text(vm, node->text); }

static apr_status run_print(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    apr_tpl_value value;
    APR_TRY(eval_node(vm, node->a, &value));
    return apr_tpl_put_str(vm, &value);
}

static apr_status run_block(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    for (size_t i = 0; i < node->list.n_items && vm->flow == FLOW_ON; i++) APR_TRY(run_node(vm, node->list.items[i]));
    return APR_OK;
}

static apr_status run_if(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    for (; node != NULL; node = node->c) {
        apr_tpl_value condition;
        if (node->kind != NODE_IF) return run_node(vm, node); /* else */
        vm->line = node->line;
        APR_TRY(apr_tpl_steps(vm, 1));
        APR_TRY(eval_node(vm, node->a, &condition));
        if (apr_tpl_is_true(&condition)) return run_node(vm, node->b);
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
        APR_TRY(eval_node(vm, node->d, &condition));
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
    APR_TRY(eval_node(vm, node->a, &iterable));
    APR_TRY(apr_tpl_iterate(vm, &iterable, &items));
    APR_TRY(scope_make(vm, vm->scope, &scope));
    if (node->d != NULL) APR_TRY(filter_items(vm, node, scope, items, &items));
    if (items->n_items == 0) return node->c != NULL ? run_in_new(vm, node->c) : APR_OK;

    APR_TRY(apr_tpl_alloc(vm, 1, sizeof *loop, &loop));
    *loop = (apr_tpl_loop){.items = items};
    for (size_t i = 0; i < items->n_items; i++) { /* append() may extend the list during the loop */
        const apr_tpl_value item = items->items[i];
        loop->index0 = i;
        clear_scope(scope);
        APR_TRY(apr_tpl_steps(vm, 1));
        APR_TRY(scope_set(vm, scope, loop_name, (apr_tpl_value){.kind = TPL_LOOP, .as.loop = loop}));
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
    APR_TRY(eval_node(vm, node->a, &value));
    return assign(vm, vm->scope, node->list.items[0], &value);
}

static apr_status capture_and_filter(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *text)
{
    apr_tpl_scope *scope;
    APR_TRY(scope_make(vm, vm->scope, &scope));
    APR_TRY(capture(vm, node->b, scope, text));
    if (node->a == NULL || vm->flow != FLOW_ON) return APR_OK;
    vm->block_text = *text;
    return eval_node(vm, node->a, text);
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
    APR_TRY(scope_make(vm, vm->scope, &scope));
    for (size_t i = 0; i + 1 < node->list.n_items; i += 2) { /* values are evaluated in the outer scope */
        apr_tpl_value value;
        APR_TRY(eval_node(vm, node->list.items[i + 1], &value));
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
    return scope_set(vm, vm->scope, node->text, macro);
}

/* The called macro gets the block's body as caller(). */
static apr_status run_call_block(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    apr_tpl_value callee, caller, text;
    apr_tpl_args args;
    APR_TRY(make_macro(vm, node->macro, &caller));
    APR_TRY(eval_node(vm, node->a->a, &callee));
    if (callee.kind != TPL_MACRO) return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "a call block calls something that is not a macro");
    apr_tpl_macro macro = *callee.as.macro;
    macro.caller = caller;
    APR_TRY(eval_args(vm, &node->a->args, &args));
    APR_TRY(call_macro(vm, &macro, &args, &text));
    return apr_tpl_put_str(vm, &text);
}

static apr_status run_scope(apr_tpl_vm *vm, const apr_tpl_node *node) { return run_in_new(vm, node->b); }

static apr_status run_break(apr_tpl_vm *vm, const apr_tpl_node *node)
{
    vm->flow = node->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
    return APR_OK;
}

static apr_status run_node(apr_tpl_vm *vm, const apr_tpl_node *node)
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

/* ---- all of it ---- */

apr_status apr_tpl_set_global(apr_tpl_vm *vm, apr_tpl_text name, apr_tpl_value value)
{
    if (vm->scope == NULL) APR_TRY(scope_make(vm, NULL, &vm->scope));
    return scope_set(vm, vm->scope, name, value);
}

apr_status apr_tpl_run(apr_tpl_vm *vm, const apr_tpl_node *root)
{
    APR_TRY(scope_make(vm, vm->scope, &vm->scope)); /* the template's own variables get a scope above the globals */
    return run_node(vm, root);
}
