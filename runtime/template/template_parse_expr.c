/* template_parse_expr.c - parses the expressions of a template with Jinja's precedence: tokens to nodes. */
#include "runtime/template/template_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Precedence levels, lowest first. The operands of a level are of the next level; operators of one level are left-associative. */
enum { LEVEL_OR, LEVEL_AND, LEVEL_NOT, LEVEL_COMPARE, LEVEL_ADD, LEVEL_CONCAT, LEVEL_MUL, LEVEL_POW, LEVEL_UNARY };

static const struct {
    const char *text;
    apr_tpl_op op;
    int level;
    bool is_word;
} operators[] = {
    {"or", OP_OR, LEVEL_OR, true},       {"and", OP_AND, LEVEL_AND, true},    {"==", OP_EQ, LEVEL_COMPARE, false},
    {"!=", OP_NE, LEVEL_COMPARE, false}, {"<=", OP_LE, LEVEL_COMPARE, false}, {">=", OP_GE, LEVEL_COMPARE, false},
    {"<", OP_LT, LEVEL_COMPARE, false},  {">", OP_GT, LEVEL_COMPARE, false},  {"in", OP_IN, LEVEL_COMPARE, true},
    {"+", OP_ADD, LEVEL_ADD, false},     {"-", OP_SUB, LEVEL_ADD, false},     {"~", OP_CONCAT, LEVEL_CONCAT, false},
    {"*", OP_MUL, LEVEL_MUL, false},     {"/", OP_DIV, LEVEL_MUL, false},     {"//", OP_FLOORDIV, LEVEL_MUL, false},
    {"%", OP_MOD, LEVEL_MUL, false},     {"**", OP_POW, LEVEL_POW, false},
};

static apr_status parse_level(apr_tpl_parser *p, int level, apr_tpl_node **out);
static apr_status parse_unary(apr_tpl_parser *p, bool with_filters, apr_tpl_node **out);
static apr_status parse_primary(apr_tpl_parser *p, apr_tpl_node **out);
static apr_status parse_postfix(apr_tpl_parser *p, apr_tpl_node **node);

apr_status apr_tpl_node_make(apr_tpl_parser *p, apr_tpl_node_kind kind, apr_tpl_node **out)
{
    APR_TRY(apr_tpl_alloc(p->vm, 1, sizeof **out, out));
    (*out)->kind = kind;
    (*out)->op = OP_NONE;
    (*out)->line = p->at->line;
    return APR_OK;
}

apr_status apr_tpl_node_add(apr_tpl_parser *p, apr_tpl_node *parent, apr_tpl_node *child)
{
    apr_tpl_node_list *const list = &parent->list;
    if (list->n_items == list->capacity) {
        const size_t capacity = list->capacity < 4 ? 4 : list->capacity * 2;
        apr_tpl_node **bigger;
        APR_TRY(apr_tpl_alloc(p->vm, capacity, sizeof *bigger, &bigger));
        if (list->n_items > 0) memcpy(bigger, list->items, list->n_items * sizeof *bigger);
        list->items = bigger;
        list->capacity = capacity;
    }
    list->items[list->n_items++] = child;
    return APR_OK;
}

static int height_of(const apr_tpl_node *node) { return node == NULL ? 0 : node->height; }

apr_status apr_tpl_node_done(apr_tpl_parser *p, apr_tpl_node *node)
{
    const apr_tpl_node *const children[] = {node->a, node->b, node->c, node->d, node->macro != NULL ? node->macro->body : NULL};
    int height = 0;
    for (size_t i = 0; i < sizeof children / sizeof *children; i++)
        if (height < height_of(children[i])) height = height_of(children[i]);
    for (size_t i = 0; i < node->list.n_items; i++)
        if (height < height_of(node->list.items[i])) height = height_of(node->list.items[i]);
    for (size_t i = 0; i < node->args.n_items; i++)
        if (height < height_of(node->args.items[i].value)) height = height_of(node->args.items[i].value);
    node->height = height + 1;
    if (node->height > APR_TPL_MAX_HEIGHT)
        return apr_tpl_fail(p->vm, APR_E_UNSUPPORTED, "an expression or a chain of elif is more than %d levels deep", APR_TPL_MAX_HEIGHT);
    return APR_OK;
}

apr_status apr_tpl_descend_into(apr_tpl_parser *p)
{
    if (++p->depth > APR_TEMPLATE_MAX_NESTING)
        return apr_tpl_fail(p->vm, APR_E_UNSUPPORTED, "tags or brackets are nested more than %d deep", APR_TEMPLATE_MAX_NESTING);
    return APR_OK;
}

bool apr_tpl_at_op(const apr_tpl_parser *p, const char *op) { return p->at->kind == TOK_OP && apr_tpl_text_is(p->at->text, op); }
bool apr_tpl_at_name(const apr_tpl_parser *p, const char *name) { return p->at->kind == TOK_NAME && apr_tpl_text_is(p->at->text, name); }

static void next(apr_tpl_parser *p)
{
    if (p->at->kind != TOK_END) p->at++;
    p->vm->line = p->at->line;
}

bool apr_tpl_skip_op(apr_tpl_parser *p, const char *op)
{
    const bool is = apr_tpl_at_op(p, op);
    if (is) next(p);
    return is;
}

bool apr_tpl_skip_name(apr_tpl_parser *p, const char *name)
{
    const bool is = apr_tpl_at_name(p, name);
    if (is) next(p);
    return is;
}

apr_status apr_tpl_unexpected(apr_tpl_parser *p, const char *wanted)
{
    const apr_tpl_token *const t = p->at;
    const int n = apr_tpl_short(t->text);
    const bool is_end = t->kind == TOK_BLOCK_END || t->kind == TOK_PRINT_END;
    p->vm->line = t->line;
    if (t->kind == TOK_END) return apr_tpl_fail(p->vm, APR_E_DAMAGED, "the template ends where %s is expected", wanted);
    if (is_end || n == 0) return apr_tpl_fail(p->vm, APR_E_DAMAGED, "the tag ends where %s is expected", wanted);
    return apr_tpl_fail(p->vm, APR_E_DAMAGED, "unexpected '%.*s' where %s is expected", n, t->text.bytes, wanted);
}

apr_status apr_tpl_expect_op(apr_tpl_parser *p, const char *op)
{
    char wanted[8];
    if (apr_tpl_skip_op(p, op)) return APR_OK;
    snprintf(wanted, sizeof wanted, "'%.3s'", op);
    return apr_tpl_unexpected(p, wanted);
}

apr_status apr_tpl_expect_name(apr_tpl_parser *p, apr_tpl_text *name)
{
    if (p->at->kind != TOK_NAME) return apr_tpl_unexpected(p, "a name");
    *name = p->at->text;
    next(p);
    return APR_OK;
}

/* ---- operators ---- */

static size_t operator_at(const apr_tpl_parser *p, int level)
{
    size_t i = 0;
    for (; i < sizeof operators / sizeof *operators; i++)
        if (operators[i].level == level && (operators[i].is_word ? apr_tpl_at_name : apr_tpl_at_op)(p, operators[i].text)) break;
    return i;
}

/* Reads the comparison operator at p; OP_NONE if there is none. */
static apr_tpl_op take_comparison(apr_tpl_parser *p)
{
    const size_t i = operator_at(p, LEVEL_COMPARE);
    if (i < sizeof operators / sizeof *operators) {
        next(p);
        return operators[i].op;
    }
    if (!apr_tpl_at_name(p, "not") || p->at[1].kind != TOK_NAME || !apr_tpl_text_is(p->at[1].text, "in")) return OP_NONE;
    next(p);
    next(p);
    return OP_NOT_IN;
}

static apr_status parse_compare(apr_tpl_parser *p, apr_tpl_node **out)
{
    apr_tpl_node *chain = NULL;
    APR_TRY(parse_level(p, LEVEL_ADD, out));
    for (apr_tpl_op op; (op = take_comparison(p)) != OP_NONE;) {
        apr_tpl_node *operand;
        if (chain == NULL) {
            APR_TRY(apr_tpl_node_make(p, NODE_COMPARE, &chain));
            chain->a = *out;
            *out = chain;
        }
        APR_TRY(apr_tpl_node_make(p, NODE_OPERAND, &operand));
        operand->op = op;
        APR_TRY(parse_level(p, LEVEL_ADD, &operand->a));
        APR_TRY(apr_tpl_node_done(p, operand));
        APR_TRY(apr_tpl_node_add(p, chain, operand));
    }
    return chain != NULL ? apr_tpl_node_done(p, chain) : APR_OK;
}

static apr_status parse_not(apr_tpl_parser *p, apr_tpl_node **out)
{
    if (!apr_tpl_at_name(p, "not")) return parse_compare(p, out);
    APR_TRY(apr_tpl_node_make(p, NODE_UNARY, out));
    next(p);
    (*out)->op = OP_NOT;
    APR_TRY(apr_tpl_descend_into(p));
    APR_TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return apr_tpl_node_done(p, *out);
}

static apr_status parse_level(apr_tpl_parser *p, int level, apr_tpl_node **out)
{
    if (level == LEVEL_NOT) return parse_not(p, out);
    if (level == LEVEL_UNARY) return parse_unary(p, true, out);
    APR_TRY(parse_level(p, level + 1, out));
    for (size_t i; (i = operator_at(p, level)) < sizeof operators / sizeof *operators;) {
        apr_tpl_node *node;
        APR_TRY(apr_tpl_node_make(p, NODE_BINARY, &node));
        next(p);
        node->op = operators[i].op;
        node->a = *out;
        APR_TRY(parse_level(p, level + 1, &node->b));
        APR_TRY(apr_tpl_node_done(p, node));
        *out = node;
    }
    return APR_OK;
}

/* value if condition else other */
static apr_status parse_choice(apr_tpl_parser *p, apr_tpl_node **out)
{
    APR_TRY(apr_tpl_descend_into(p));
    APR_TRY(parse_level(p, LEVEL_OR, out));
    while (apr_tpl_at_name(p, "if")) {
        apr_tpl_node *node;
        APR_TRY(apr_tpl_node_make(p, NODE_CHOICE, &node));
        next(p);
        node->a = *out;
        APR_TRY(parse_level(p, LEVEL_OR, &node->b));
        if (apr_tpl_skip_name(p, "else")) APR_TRY(parse_choice(p, &node->c));
        APR_TRY(apr_tpl_node_done(p, node));
        *out = node;
    }
    p->depth--;
    return APR_OK;
}

static bool at_tuple_end(const apr_tpl_parser *p)
{
    return p->at->kind == TOK_BLOCK_END || p->at->kind == TOK_PRINT_END || p->at->kind == TOK_END || apr_tpl_at_op(p, ")") ||
           apr_tpl_at_op(p, "=") || apr_tpl_at_name(p, "in");
}

static apr_status parse_one(apr_tpl_parser *p, int flags, apr_tpl_node **out)
{
    if ((flags & PARSE_NO_CHOICE) == 0) return parse_choice(p, out);
    APR_TRY(apr_tpl_descend_into(p));
    APR_TRY(parse_level(p, LEVEL_OR, out));
    p->depth--;
    return APR_OK;
}

apr_status apr_tpl_parse_expr(apr_tpl_parser *p, int flags, apr_tpl_node **out)
{
    apr_tpl_node *tuple;
    APR_TRY(parse_one(p, flags, out));
    if ((flags & PARSE_TUPLES) == 0 || !apr_tpl_at_op(p, ",")) return APR_OK;
    APR_TRY(apr_tpl_node_make(p, NODE_TUPLE, &tuple));
    APR_TRY(apr_tpl_node_add(p, tuple, *out));
    while (apr_tpl_skip_op(p, ",") && !at_tuple_end(p)) {
        apr_tpl_node *item;
        APR_TRY(parse_one(p, flags, &item));
        APR_TRY(apr_tpl_node_add(p, tuple, item));
    }
    *out = tuple;
    return apr_tpl_node_done(p, tuple);
}

/* ---- primaries ---- */

static apr_status parse_number(apr_tpl_parser *p, apr_tpl_node *node)
{
    char digits[64];
    size_t n = 0;
    const apr_tpl_token *const t = p->at;
    for (size_t i = 0; i < t->text.n_bytes; i++) {
        if (t->text.bytes[i] == '_') continue;
        if (n == sizeof digits - 1) return apr_tpl_fail(p->vm, APR_E_UNSUPPORTED, "a number has more than %zu digits", sizeof digits - 1);
        digits[n++] = t->text.bytes[i];
    }
    digits[n] = '\0';
    errno = 0;
    node->value = t->kind == TOK_INT ? apr_tpl_int(strtoll(digits, NULL, 10)) : apr_tpl_real(strtod(digits, NULL));
    if (t->kind == TOK_INT && errno == ERANGE) return apr_tpl_fail(p->vm, APR_E_UNSUPPORTED, "the number %s does not fit 64 bits", digits);
    next(p);
    return apr_tpl_node_done(p, node);
}

/* Adjacent literals are concatenated. */
static apr_status parse_string(apr_tpl_parser *p, apr_tpl_node *node)
{
    const size_t mark = p->vm->out.n_bytes;
    APR_TRY(apr_tpl_unescape(p->vm, p->at->text, &node->value));
    next(p);
    if (p->at->kind == TOK_STRING) {
        APR_TRY(apr_tpl_put_text(p->vm, node->value.as.text));
        for (; p->at->kind == TOK_STRING; next(p)) {
            apr_tpl_value more;
            APR_TRY(apr_tpl_unescape(p->vm, p->at->text, &more));
            APR_TRY(apr_tpl_put_text(p->vm, more.as.text));
        }
        APR_TRY(apr_tpl_take(p->vm, mark, &node->value));
    }
    return apr_tpl_node_done(p, node);
}

static apr_status parse_name(apr_tpl_parser *p, apr_tpl_node *node)
{
    static const struct {
        const char *name;
        apr_tpl_value value;
    } constants[] = {
        {"true", {.kind = TPL_BOOL, .as.boolean = true}},
        {"True", {.kind = TPL_BOOL, .as.boolean = true}},
        {"false", {.kind = TPL_BOOL, .as.boolean = false}},
        {"False", {.kind = TPL_BOOL, .as.boolean = false}},
        {"none", {.kind = TPL_NONE}},
        {"None", {.kind = TPL_NONE}},
    };
    node->kind = NODE_NAME;
    APR_TRY(apr_tpl_expect_name(p, &node->text));
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (!apr_tpl_text_is(node->text, constants[i].name)) continue;
        node->kind = NODE_CONST;
        node->value = constants[i].value;
    }
    if (p->macro != NULL) {
        p->macro->uses_varargs |= apr_tpl_text_is(node->text, "varargs");
        p->macro->uses_kwargs |= apr_tpl_text_is(node->text, "kwargs");
    }
    return apr_tpl_node_done(p, node);
}

/* Parses [a, b] or {k: v} after the opening bracket. */
static apr_status parse_items(apr_tpl_parser *p, apr_tpl_node *node, const char *close)
{
    while (!apr_tpl_skip_op(p, close)) {
        apr_tpl_node *item;
        if (node->list.n_items > 0) {
            APR_TRY(apr_tpl_expect_op(p, ","));
            if (apr_tpl_skip_op(p, close)) break;
        }
        APR_TRY(apr_tpl_parse_expr(p, 0, &item));
        APR_TRY(apr_tpl_node_add(p, node, item));
        if (node->kind != NODE_DICT) continue;
        APR_TRY(apr_tpl_expect_op(p, ":"));
        APR_TRY(apr_tpl_parse_expr(p, 0, &item));
        APR_TRY(apr_tpl_node_add(p, node, item));
    }
    return apr_tpl_node_done(p, node);
}

static apr_status parse_primary(apr_tpl_parser *p, apr_tpl_node **out)
{
    APR_TRY(apr_tpl_node_make(p, NODE_CONST, out));
    switch (p->at->kind) {
    case TOK_NAME: return parse_name(p, *out);
    case TOK_STRING: return parse_string(p, *out);
    case TOK_INT:
    case TOK_FLOAT: return parse_number(p, *out);
    default: break;
    }
    if (apr_tpl_skip_op(p, "(")) {
        if (apr_tpl_skip_op(p, ")")) {
            (*out)->kind = NODE_TUPLE;
            return apr_tpl_node_done(p, *out);
        }
        APR_TRY(apr_tpl_parse_expr(p, PARSE_TUPLES, out));
        return apr_tpl_expect_op(p, ")");
    }
    const bool is_dict = apr_tpl_skip_op(p, "{");
    if (!is_dict && !apr_tpl_skip_op(p, "[")) return apr_tpl_unexpected(p, "an expression");
    (*out)->kind = is_dict ? NODE_DICT : NODE_LIST;
    return parse_items(p, *out, is_dict ? "}" : "]");
}

static apr_status parse_unary(apr_tpl_parser *p, bool with_filters, apr_tpl_node **out)
{
    if (apr_tpl_at_op(p, "-") || apr_tpl_at_op(p, "+")) {
        APR_TRY(apr_tpl_node_make(p, NODE_UNARY, out));
        (*out)->op = apr_tpl_at_op(p, "-") ? OP_NEG : OP_POS;
        next(p);
        APR_TRY(apr_tpl_descend_into(p));
        APR_TRY(parse_unary(p, false, &(*out)->a));
        p->depth--;
        APR_TRY(apr_tpl_node_done(p, *out));
    } else {
        APR_TRY(parse_primary(p, out));
    }
    APR_TRY(parse_postfix(p, out));
    return with_filters ? apr_tpl_parse_filters(p, out) : APR_OK;
}

/* ---- postfix: members, subscripts, calls, filters, tests ---- */

static apr_status add_arg(apr_tpl_parser *p, apr_tpl_arg_nodes *args, apr_tpl_arg arg)
{
    if (args->n_items == args->capacity) {
        const size_t capacity = args->capacity < 4 ? 4 : args->capacity * 2;
        apr_tpl_arg *bigger;
        APR_TRY(apr_tpl_alloc(p->vm, capacity, sizeof *bigger, &bigger));
        if (args->n_items > 0) memcpy(bigger, args->items, args->n_items * sizeof *bigger);
        args->items = bigger;
        args->capacity = capacity;
    }
    args->items[args->n_items++] = arg;
    return APR_OK;
}

/* Parses (a, b, name=c, *d, **e) after the opening bracket. */
static apr_status parse_args(apr_tpl_parser *p, apr_tpl_arg_nodes *args)
{
    while (!apr_tpl_skip_op(p, ")")) {
        apr_tpl_arg arg = {.spread = 0};
        apr_tpl_node *value;
        if (args->n_items > 0) {
            APR_TRY(apr_tpl_expect_op(p, ","));
            if (apr_tpl_skip_op(p, ")")) break;
        }
        if (apr_tpl_skip_op(p, "**")) {
            arg.spread = '2';
        } else if (apr_tpl_skip_op(p, "*")) {
            arg.spread = '*';
        } else if (p->at->kind == TOK_NAME && p->at[1].kind == TOK_OP && apr_tpl_text_is(p->at[1].text, "=")) {
            arg.name = p->at->text;
            next(p);
            next(p);
        }
        APR_TRY(apr_tpl_parse_expr(p, 0, &value));
        arg.value = value;
        APR_TRY(add_arg(p, args, arg));
    }
    return APR_OK;
}

/* Parses [index] or [from:to:step] after the opening bracket. */
static apr_status parse_subscript(apr_tpl_parser *p, apr_tpl_node *node)
{
    apr_tpl_node *bounds[3] = {NULL};
    int n_colons = 0;
    while (!apr_tpl_at_op(p, "]")) {
        if (apr_tpl_skip_op(p, ":")) {
            if (++n_colons > 2) return apr_tpl_unexpected(p, "']'");
            continue;
        }
        if (bounds[n_colons] != NULL) return apr_tpl_unexpected(p, "']'");
        APR_TRY(apr_tpl_parse_expr(p, 0, &bounds[n_colons]));
    }
    if (n_colons == 0 && bounds[0] == NULL) return apr_tpl_unexpected(p, "an index");
    APR_TRY(apr_tpl_expect_op(p, "]"));
    node->kind = n_colons > 0 ? NODE_SLICE : NODE_ITEM;
    node->b = bounds[0];
    node->c = bounds[1];
    node->d = bounds[2];
    return APR_OK;
}

static apr_status parse_postfix(apr_tpl_parser *p, apr_tpl_node **node)
{
    while (apr_tpl_at_op(p, ".") || apr_tpl_at_op(p, "[") || apr_tpl_at_op(p, "(")) {
        apr_tpl_node *outer;
        APR_TRY(apr_tpl_node_make(p, NODE_ATTR, &outer));
        outer->a = *node;
        if (apr_tpl_skip_op(p, "[")) {
            APR_TRY(parse_subscript(p, outer));
        } else if (apr_tpl_skip_op(p, "(")) {
            outer->kind = NODE_CALL;
            APR_TRY(parse_args(p, &outer->args));
        } else {
            next(p);
            if (p->at->kind == TOK_INT) {
                outer->kind = NODE_ITEM;
                APR_TRY(apr_tpl_node_make(p, NODE_CONST, &outer->b));
                APR_TRY(parse_number(p, outer->b));
            } else {
                APR_TRY(apr_tpl_expect_name(p, &outer->text));
            }
        }
        APR_TRY(apr_tpl_node_done(p, outer));
        *node = outer;
    }
    return APR_OK;
}

apr_status apr_tpl_parse_filter(apr_tpl_parser *p, apr_tpl_node **node)
{
    apr_tpl_node *outer;
    APR_TRY(apr_tpl_node_make(p, NODE_FILTER, &outer));
    outer->a = *node;
    APR_TRY(apr_tpl_expect_name(p, &outer->text));
    outer->builtin = apr_tpl_filter_find(outer->text);
    if (apr_tpl_skip_op(p, "(")) APR_TRY(parse_args(p, &outer->args));
    *node = outer;
    return apr_tpl_node_done(p, outer);
}

/* Parses [not] name, name(args), or name arg after `is`. */
static apr_status parse_test(apr_tpl_parser *p, apr_tpl_node **node)
{
    const bool is_negated = apr_tpl_skip_name(p, "not");
    apr_tpl_node *outer;
    APR_TRY(apr_tpl_node_make(p, NODE_TEST, &outer));
    outer->a = *node;
    outer->op = is_negated ? OP_NOT : OP_NONE;
    APR_TRY(apr_tpl_expect_name(p, &outer->text));
    outer->builtin = apr_tpl_builtin_find(apr_tpl_tests, outer->text);
    const apr_tpl_token_kind kind = p->at->kind;
    const bool is_word = apr_tpl_at_name(p, "else") || apr_tpl_at_name(p, "or") || apr_tpl_at_name(p, "and") || apr_tpl_at_name(p, "is");
    if (apr_tpl_skip_op(p, "(")) {
        APR_TRY(parse_args(p, &outer->args));
    } else if (!is_word && (kind == TOK_NAME || kind == TOK_STRING || kind == TOK_INT || kind == TOK_FLOAT || apr_tpl_at_op(p, "[") ||
                            apr_tpl_at_op(p, "{"))) {
        apr_tpl_node *value;
        APR_TRY(parse_primary(p, &value));
        APR_TRY(parse_postfix(p, &value));
        APR_TRY(add_arg(p, &outer->args, (apr_tpl_arg){.value = value}));
    }
    *node = outer;
    return apr_tpl_node_done(p, outer);
}

apr_status apr_tpl_parse_filters(apr_tpl_parser *p, apr_tpl_node **node)
{
    for (;;) {
        if (apr_tpl_skip_op(p, "|")) {
            APR_TRY(apr_tpl_parse_filter(p, node));
        } else if (apr_tpl_skip_name(p, "is")) {
            APR_TRY(parse_test(p, node));
        } else if (apr_tpl_at_op(p, "(")) {
            APR_TRY(parse_postfix(p, node));
        } else {
            return APR_OK;
        }
    }
}

/* ---- targets of for, set and with ---- */

static apr_status parse_target_item(apr_tpl_parser *p, bool members, apr_tpl_node **out)
{
    APR_TRY(apr_tpl_node_make(p, NODE_NAME, out));
    if (apr_tpl_skip_op(p, "(")) {
        APR_TRY(apr_tpl_descend_into(p));
        APR_TRY(apr_tpl_parse_target(p, members, out));
        p->depth--;
        return apr_tpl_expect_op(p, ")");
    }
    APR_TRY(apr_tpl_expect_name(p, &(*out)->text));
    if (members && apr_tpl_skip_op(p, ".")) {
        apr_tpl_node *member;
        APR_TRY(apr_tpl_node_make(p, NODE_ATTR, &member));
        member->a = *out;
        APR_TRY(apr_tpl_expect_name(p, &member->text));
        *out = member;
    }
    return apr_tpl_node_done(p, *out);
}

apr_status apr_tpl_parse_target(apr_tpl_parser *p, bool members, apr_tpl_node **out)
{
    apr_tpl_node *tuple;
    APR_TRY(parse_target_item(p, members, out));
    if (!apr_tpl_at_op(p, ",")) return APR_OK;
    APR_TRY(apr_tpl_node_make(p, NODE_TUPLE, &tuple));
    APR_TRY(apr_tpl_node_add(p, tuple, *out));
    while (apr_tpl_skip_op(p, ",") && !at_tuple_end(p)) {
        apr_tpl_node *item;
        APR_TRY(parse_target_item(p, members, &item));
        APR_TRY(apr_tpl_node_add(p, tuple, item));
    }
    *out = tuple;
    return apr_tpl_node_done(p, tuple);
}
