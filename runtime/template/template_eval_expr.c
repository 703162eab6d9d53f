/* template_eval_expr.c - evaluates the expressions of a template. */
#include "runtime/template/template_internal.h"

#include <string.h>

typedef apr_status eval_fn(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out);

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
    const apr_tpl_builtin *const function = apr_tpl_builtin_find(apr_tpl_functions, node->text);
    *out = apr_tpl_undefined(node->text);
    if (function != NULL) *out = (apr_tpl_value){.kind = TPL_FUNCTION, .as.function = function};
    return apr_tpl_steps(vm, n_looked_at / 16);
}

static apr_status eval_list(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    APR_TRY(apr_tpl_list_make(vm, node->kind == NODE_TUPLE ? TPL_TUPLE : TPL_LIST, node->list.n_items, out));
    for (size_t i = 0; i < node->list.n_items; i++) {
        apr_tpl_value item;
        APR_TRY(apr_tpl_eval(vm, node->list.items[i], &item));
        APR_TRY(apr_tpl_list_add(vm, out->as.list, item));
    }
    return APR_OK;
}

static apr_status eval_dict(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    APR_TRY(apr_tpl_dict_make(vm, TPL_DICT, out));
    for (size_t i = 0; i + 1 < node->list.n_items; i += 2) {
        apr_tpl_value key, value;
        APR_TRY(apr_tpl_eval(vm, node->list.items[i], &key));
        APR_TRY(apr_tpl_eval(vm, node->list.items[i + 1], &value));
        APR_TRY(apr_tpl_dict_set(vm, out->as.dict, &key, &value));
    }
    return APR_OK;
}

static apr_status eval_attr(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    apr_tpl_value object;
    APR_TRY(apr_tpl_eval(vm, node->a, &object));
    return apr_tpl_attribute(vm, &object, node->text, out);
}

static apr_status eval_item(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    apr_tpl_value object, key;
    APR_TRY(apr_tpl_eval(vm, node->a, &object));
    APR_TRY(apr_tpl_eval(vm, node->b, &key));
    return apr_tpl_subscript(vm, &object, &key, out);
}

static apr_status eval_slice(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    const apr_tpl_node *const nodes[3] = {node->b, node->c, node->d};
    apr_tpl_value object, bounds[3];
    APR_TRY(apr_tpl_eval(vm, node->a, &object));
    for (int i = 0; i < 3; i++) {
        bounds[i] = apr_tpl_none();
        if (nodes[i] != NULL) APR_TRY(apr_tpl_eval(vm, nodes[i], &bounds[i]));
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

apr_status apr_tpl_eval_args(apr_tpl_vm *vm, const apr_tpl_arg_nodes *nodes, apr_tpl_args *args)
{
    *args = (apr_tpl_args){0};
    for (size_t i = 0; i < nodes->n_items; i++) {
        const apr_tpl_arg *const arg = &nodes->items[i];
        const apr_tpl_value name = apr_tpl_string(arg->name.bytes, arg->name.n_bytes);
        apr_tpl_value value;
        APR_TRY(apr_tpl_eval(vm, arg->value, &value));
        if (arg->spread != 0) APR_TRY(spread(vm, arg->spread, &value, args));
        else if (arg->name.n_bytes > 0) APR_TRY(apr_tpl_dict_set(vm, &args->named, &name, &value));
        else APR_TRY(apr_tpl_list_add(vm, &args->list, value));
    }
    return APR_OK;
}

apr_status apr_tpl_call(apr_tpl_vm *vm, const apr_tpl_value *callee, const apr_tpl_args *args, apr_tpl_value *out)
{
    const apr_tpl_value nothing = {.kind = TPL_ABSENT};
    if (callee->kind == TPL_MACRO) return apr_tpl_call_macro(vm, callee->as.macro, args, out);
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
    APR_TRY(apr_tpl_eval(vm, node->a, &callee));
    APR_TRY(apr_tpl_eval_args(vm, &node->args, &args));
    vm->line = node->line;
    if (callee.kind == TPL_UNDEFINED) return fail_callee(vm, &callee);
    return apr_tpl_call(vm, &callee, &args, out);
}

static apr_status eval_filter(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    apr_tpl_value subject = vm->block_text;
    apr_tpl_args args;
    if (node->a != NULL) APR_TRY(apr_tpl_eval(vm, node->a, &subject));
    APR_TRY(apr_tpl_eval_args(vm, &node->args, &args));
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
    APR_TRY(apr_tpl_eval(vm, node->a, &a));
    vm->line = node->line;
    return apr_tpl_unary(vm, node->op, &a, out);
}

static apr_status eval_binary(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    apr_tpl_value a, b;
    APR_TRY(apr_tpl_eval(vm, node->a, &a));
    if (node->op == OP_AND || node->op == OP_OR) { /* the result is one of the operands, as in Python */
        *out = a;
        return apr_tpl_is_true(&a) == (node->op == OP_OR) ? APR_OK : apr_tpl_eval(vm, node->b, out);
    }
    APR_TRY(apr_tpl_eval(vm, node->b, &b));
    vm->line = node->line;
    return apr_tpl_binary(vm, node->op, &a, &b, out);
}

static apr_status eval_compare(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    apr_tpl_value left, right;
    bool holds = true;
    APR_TRY(apr_tpl_eval(vm, node->a, &left));
    for (size_t i = 0; holds && i < node->list.n_items; i++) {
        const apr_tpl_node *const operand = node->list.items[i];
        APR_TRY(apr_tpl_eval(vm, operand->a, &right));
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
    APR_TRY(apr_tpl_eval(vm, node->b, &condition));
    if (apr_tpl_is_true(&condition)) return apr_tpl_eval(vm, node->a, out);
    *out = apr_tpl_undefined((apr_tpl_text){"the inline if without else", 26});
    return node->c != NULL ? apr_tpl_eval(vm, node->c, out) : APR_OK;
}

apr_status apr_tpl_eval(apr_tpl_vm *vm, const apr_tpl_node *node, apr_tpl_value *out)
{
    static eval_fn *const eval[NODE_KIND_COUNT] = {
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
