/* template_parse.c - parses the tags of a template: tokens to nodes. */
#include "runtime/template/template_internal.h"

#include <string.h>

typedef apr_status tag_fn(apr_tpl_parser *p, apr_tpl_node *node);

static void next(apr_tpl_parser *p)
{
    p->at++;
    p->vm->line = p->at->line;
}

static apr_status end_tag(apr_tpl_parser *p)
{
    if (p->at->kind != TOK_BLOCK_END) return apr_tpl_unexpected(p, "'%}'");
    next(p);
    return APR_OK;
}

/* Is the name at p one of `names` (separated by spaces)? */
static bool at_one_of(const apr_tpl_parser *p, const char *names)
{
    const apr_tpl_text name = p->at->text;
    while (p->at->kind == TOK_NAME && *names != '\0') {
        const size_t n = strcspn(names, " ");
        if (n == name.n_bytes && memcmp(names, name.bytes, n) == 0) return true;
        names += n + (names[n] == ' ');
    }
    return false;
}

static apr_status parse_tag(apr_tpl_parser *p, apr_tpl_node **out);

/* Parses up to a block tag named in `ends`, and stops at its name. ends NULL: up to the end of the template. */
static apr_status parse_body(apr_tpl_parser *p, const char *ends, apr_tpl_node **out)
{
    APR_TRY(apr_tpl_node_make(p, NODE_BLOCK, out));
    APR_TRY(apr_tpl_descend_into(p));
    for (;;) {
        apr_tpl_node *node = NULL;
        const apr_tpl_token *const t = p->at;
        if (t->kind == TOK_END) {
            if (ends != NULL) return apr_tpl_unexpected(p, ends);
            break;
        }
        next(p);
        if (t->kind == TOK_BLOCK_BEGIN) {
            if (ends != NULL && at_one_of(p, ends)) break;
            APR_TRY(parse_tag(p, &node));
        } else {
            APR_TRY(apr_tpl_node_make(p, t->kind == TOK_DATA ? NODE_DATA : NODE_PRINT, &node));
            node->line = t->line;
            node->text = t->text;
            if (t->kind == TOK_PRINT_BEGIN) {
                APR_TRY(apr_tpl_parse_expr(p, PARSE_TUPLES, &node->a));
                if (p->at->kind != TOK_PRINT_END) return apr_tpl_unexpected(p, "'}}'");
                next(p);
            }
            APR_TRY(apr_tpl_node_done(p, node));
        }
        APR_TRY(apr_tpl_node_add(p, *out, node));
    }
    p->depth--;
    return apr_tpl_node_done(p, *out);
}

/* Parses the rest of the opening tag, the body, and the closing tag `end`. */
static apr_status parse_whole_body(apr_tpl_parser *p, const char *end, apr_tpl_node **body)
{
    APR_TRY(end_tag(p));
    APR_TRY(parse_body(p, end, body));
    next(p);
    return end_tag(p);
}

/* Parses a body that becomes a function: `break` cannot leave it. */
static apr_status parse_function_body(apr_tpl_parser *p, const char *end, apr_tpl_macro_def *macro, apr_tpl_node **body)
{
    apr_tpl_macro_def *const outer_macro = p->macro;
    const int outer_loops = p->loops;
    p->loops = 0;
    if (macro != NULL) p->macro = macro;
    APR_TRY(parse_whole_body(p, end, body));
    p->macro = outer_macro;
    p->loops = outer_loops;
    return APR_OK;
}

static apr_status parse_if(apr_tpl_parser *p, apr_tpl_node *node)
{
    node->kind = NODE_IF;
    APR_TRY(apr_tpl_parse_expr(p, PARSE_TUPLES | PARSE_NO_CHOICE, &node->a));
    APR_TRY(end_tag(p));
    APR_TRY(parse_body(p, "elif else endif", &node->b));
    if (at_one_of(p, "elif")) {
        next(p);
        APR_TRY(apr_tpl_node_make(p, NODE_IF, &node->c));
        APR_TRY(apr_tpl_descend_into(p));
        APR_TRY(parse_if(p, node->c));
        p->depth--;
        return apr_tpl_node_done(p, node->c);
    }
    if (at_one_of(p, "else")) {
        next(p);
        APR_TRY(end_tag(p));
        APR_TRY(parse_body(p, "endif", &node->c));
    }
    next(p);
    return end_tag(p);
}

static apr_status parse_for(apr_tpl_parser *p, apr_tpl_node *node)
{
    apr_tpl_node *target;
    node->kind = NODE_FOR;
    APR_TRY(apr_tpl_parse_target(p, false, &target));
    APR_TRY(apr_tpl_node_add(p, node, target));
    if (!apr_tpl_skip_name(p, "in")) return apr_tpl_unexpected(p, "'in'");
    APR_TRY(apr_tpl_parse_expr(p, PARSE_TUPLES | PARSE_NO_CHOICE, &node->a));
    if (apr_tpl_skip_name(p, "if")) APR_TRY(apr_tpl_parse_expr(p, 0, &node->d));
    if (apr_tpl_at_name(p, "recursive")) return apr_tpl_fail(p->vm, APR_E_UNSUPPORTED, "recursive loops are not supported");
    APR_TRY(end_tag(p));
    p->loops++;
    APR_TRY(parse_body(p, "else endfor", &node->b));
    p->loops--;
    if (at_one_of(p, "else")) {
        next(p);
        APR_TRY(end_tag(p));
        APR_TRY(parse_body(p, "endfor", &node->c));
    }
    next(p);
    return end_tag(p);
}

static apr_status parse_set(apr_tpl_parser *p, apr_tpl_node *node)
{
    apr_tpl_node *target;
    node->kind = NODE_SET;
    APR_TRY(apr_tpl_parse_target(p, true, &target));
    APR_TRY(apr_tpl_node_add(p, node, target));
    if (apr_tpl_skip_op(p, "=")) {
        APR_TRY(apr_tpl_parse_expr(p, PARSE_TUPLES, &node->a));
        return end_tag(p);
    }
    node->kind = NODE_SET_BLOCK;
    if (apr_tpl_at_op(p, "|")) APR_TRY(apr_tpl_parse_filters(p, &node->a));
    return parse_whole_body(p, "endset", &node->b);
}

static apr_status parse_with(apr_tpl_parser *p, apr_tpl_node *node)
{
    node->kind = NODE_WITH;
    while (p->at->kind != TOK_BLOCK_END) {
        apr_tpl_node *target, *value;
        if (node->list.n_items > 0) APR_TRY(apr_tpl_expect_op(p, ","));
        APR_TRY(apr_tpl_node_make(p, NODE_NAME, &target));
        APR_TRY(apr_tpl_expect_name(p, &target->text));
        APR_TRY(apr_tpl_expect_op(p, "="));
        APR_TRY(apr_tpl_parse_expr(p, 0, &value));
        APR_TRY(apr_tpl_node_add(p, node, target));
        APR_TRY(apr_tpl_node_add(p, node, value));
    }
    return parse_whole_body(p, "endwith", &node->b);
}

static apr_status add_param(apr_tpl_parser *p, apr_tpl_macro_def *def, apr_tpl_text name, apr_tpl_node *fallback)
{
    if (def->n_params == def->capacity) {
        const size_t capacity = def->capacity < 4 ? 4 : def->capacity * 2;
        apr_tpl_text *params;
        apr_tpl_node **defaults;
        APR_TRY(apr_tpl_alloc(p->vm, capacity, sizeof *params, &params));
        APR_TRY(apr_tpl_alloc(p->vm, capacity, sizeof *defaults, &defaults));
        if (def->n_params > 0) {
            memcpy(params, def->params, def->n_params * sizeof *params);
            memcpy(defaults, def->defaults, def->n_params * sizeof *defaults);
        }
        def->params = params;
        def->defaults = defaults;
        def->capacity = capacity;
    }
    def->params[def->n_params] = name;
    def->defaults[def->n_params++] = fallback;
    return APR_OK;
}

/* Parses (a, b=1) after the opening bracket. */
static apr_status parse_params(apr_tpl_parser *p, apr_tpl_macro_def *def)
{
    while (!apr_tpl_skip_op(p, ")")) {
        apr_tpl_text name;
        apr_tpl_node *fallback = NULL;
        if (def->n_params > 0) APR_TRY(apr_tpl_expect_op(p, ","));
        APR_TRY(apr_tpl_expect_name(p, &name));
        if (apr_tpl_skip_op(p, "=")) APR_TRY(apr_tpl_parse_expr(p, 0, &fallback));
        else if (def->n_params > 0 && def->defaults[def->n_params - 1] != NULL)
            return apr_tpl_fail(p->vm, APR_E_DAMAGED, "a parameter without a default follows one with a default");
        APR_TRY(add_param(p, def, name, fallback));
    }
    return APR_OK;
}

static apr_status parse_macro(apr_tpl_parser *p, apr_tpl_node *node)
{
    node->kind = NODE_MACRO;
    APR_TRY(apr_tpl_alloc(p->vm, 1, sizeof *node->macro, &node->macro));
    APR_TRY(apr_tpl_expect_name(p, &node->text));
    node->macro->name = node->text;
    APR_TRY(apr_tpl_expect_op(p, "("));
    APR_TRY(parse_params(p, node->macro));
    return parse_function_body(p, "endmacro", node->macro, &node->macro->body);
}

static apr_status parse_call_block(apr_tpl_parser *p, apr_tpl_node *node)
{
    node->kind = NODE_CALL_BLOCK;
    APR_TRY(apr_tpl_alloc(p->vm, 1, sizeof *node->macro, &node->macro));
    node->macro->name = (apr_tpl_text){"caller", 6};
    if (apr_tpl_skip_op(p, "(")) APR_TRY(parse_params(p, node->macro));
    APR_TRY(apr_tpl_parse_expr(p, 0, &node->a));
    if (node->a->kind != NODE_CALL) return apr_tpl_unexpected(p, "a call");
    return parse_function_body(p, "endcall", node->macro, &node->macro->body);
}

static apr_status parse_filter_block(apr_tpl_parser *p, apr_tpl_node *node)
{
    node->kind = NODE_FILTER_BLOCK;
    APR_TRY(apr_tpl_parse_filter(p, &node->a));
    APR_TRY(apr_tpl_parse_filters(p, &node->a));
    return parse_whole_body(p, "endfilter", &node->b);
}

static apr_status parse_generation(apr_tpl_parser *p, apr_tpl_node *node)
{
    node->kind = NODE_SCOPE;
    return parse_function_body(p, "endgeneration", NULL, &node->b);
}

static apr_status parse_jump(apr_tpl_parser *p)
{
    if (p->loops == 0) return apr_tpl_fail(p->vm, APR_E_DAMAGED, "'break' or 'continue' outside of a loop");
    return end_tag(p);
}

static apr_status parse_break(apr_tpl_parser *p, apr_tpl_node *node)
{
    node->kind = NODE_BREAK;
    return parse_jump(p);
}

static apr_status parse_continue(apr_tpl_parser *p, apr_tpl_node *node)
{
    node->kind = NODE_CONTINUE;
    return parse_jump(p);
}

static const struct {
    const char *name;
    tag_fn *parse;
} tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"with", parse_with},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"generation", parse_generation},
    {"break", parse_break},
    {"continue", parse_continue},
};

static apr_status parse_tag(apr_tpl_parser *p, apr_tpl_node **out)
{
    apr_tpl_text name;
    APR_TRY(apr_tpl_node_make(p, NODE_BLOCK, out));
    if (at_one_of(p, "else elif endif endfor endset endmacro endwith endcall endfilter endgeneration endraw"))
        return apr_tpl_unexpected(p, "an opening tag");
    APR_TRY(apr_tpl_expect_name(p, &name));
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!apr_tpl_text_is(name, tags[i].name)) continue;
        APR_TRY(tags[i].parse(p, *out));
        return apr_tpl_node_done(p, *out);
    }
    return apr_tpl_fail(p->vm, APR_E_UNSUPPORTED, "the tag '%.*s' is not supported", apr_tpl_short(name), name.bytes);
}

apr_status apr_tpl_parse(apr_tpl_vm *vm, const apr_tpl_token *tokens, apr_tpl_node **root)
{
    apr_tpl_parser p = {.vm = vm, .at = tokens};
    vm->line = tokens->line;
    return parse_body(&p, NULL, root);
}
