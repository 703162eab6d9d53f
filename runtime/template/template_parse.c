/* template_parse.c - parses a template: text to tokens, and tokens to nodes with the precedence of Jinja's operators. */
#include "runtime/template/template_internal.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokens ---- */

typedef enum {
    TOK_DATA,
    TOK_BLOCK_BEGIN,
    TOK_BLOCK_END,
    TOK_PRINT_BEGIN,
    TOK_PRINT_END,
    TOK_NAME,
    TOK_STRING,
    TOK_INT,
    TOK_FLOAT,
    TOK_OP,
    TOK_END
} token_kind;

typedef struct token {
    token_kind kind;
    int line;
    apr_tpl_text text; /* part of the source; of a STRING: without quotes, escapes not yet replaced */
} token;

/* ---- text to tokens, with Jinja's rules for white space around tags ----
 *
 * trim_blocks removes the newline after a block tag or comment. lstrip_blocks removes white space between the start of a line and a
 * block tag or comment. `-` at a tag removes all white space on that side, `+` keeps it. */

typedef struct lexer {
    apr_tpl_vm *vm;
    apr_tpl_text source;
    size_t at;
    bool line_starts; /* at the start of a line: after a newline, or at the start of the template */
    token *tokens;
    size_t n_tokens, capacity;
} lexer;

static bool starts_with(const lexer *lex, size_t at, const char *text)
{
    const size_t n = strlen(text);
    return lex->source.n_bytes - at >= n && memcmp(lex->source.bytes + at, text, n) == 0;
}

static char byte_at(const lexer *lex, size_t at) { return at < lex->source.n_bytes ? lex->source.bytes[at] : '\0'; }

static size_t skip_space(const lexer *lex, size_t at)
{
    while (at < lex->source.n_bytes) {
        const size_t n = apr_tpl_char_bytes(lex->source.bytes + at);
        if (!apr_tpl_is_space(lex->source.bytes + at, n)) break;
        at += n;
    }
    return at;
}

static apr_status add_token(lexer *lex, token_kind kind, size_t from, size_t to)
{
    APR_TRY(apr_tpl_grow(lex->vm, lex->n_tokens, &lex->capacity, sizeof *lex->tokens, &lex->tokens));
    lex->tokens[lex->n_tokens++] = (token){kind, lex->vm->line, {lex->source.bytes + from, to - from}};
    return APR_OK;
}

/* Moves to `to` and counts lines. */
static void advance(lexer *lex, size_t to)
{
    for (; lex->at < to; lex->at++) lex->vm->line += lex->source.bytes[lex->at] == '\n';
}

/* Adds the text [from, to) before a tag; `sign` is the character after the tag's opening. */
static apr_status add_data(lexer *lex, size_t from, size_t to, char sign, bool is_print)
{
    const char *const s = lex->source.bytes;
    size_t end = to;
    if (sign == '-') {
        while (end > from) { /* one character back: its continuation bytes, then its first byte */
            size_t start = end - 1;
            while (start > from && ((unsigned char)s[start] & 0xc0) == 0x80) start--;
            if (!apr_tpl_is_space(s + start, end - start)) break;
            end = start;
        }
    } else if (sign != '+' && !is_print) {
        size_t line = to;
        while (line > from && s[line - 1] != '\n') line--;
        if ((line > from || lex->line_starts) && skip_space(lex, line) >= to) end = line;
    }
    return end > from ? add_token(lex, TOK_DATA, from, end) : APR_OK;
}

/* The position after a tag that closes at `close`: `-` removes all white space, else trim_blocks removes one newline. */
static size_t after_tag(const lexer *lex, size_t close, char sign, bool trims)
{
    const size_t at = close + 2;
    if (sign == '-') return skip_space(lex, at);
    return trims && sign != '+' && byte_at(lex, at) == '\n' ? at + 1 : at;
}

static apr_status lex_comment(lexer *lex)
{
    const char mark = byte_at(lex, lex->at + 2);
    const size_t start = lex->at + 2 + (mark == '-' || mark == '+');
    for (size_t at = start; at + 1 < lex->source.n_bytes; at++) {
        if (!starts_with(lex, at, "#}")) continue;
        const char sign = at > start ? byte_at(lex, at - 1) : '\0';
        advance(lex, after_tag(lex, at, sign, true));
        return APR_OK;
    }
    return apr_tpl_fail(lex->vm, APR_E_DAMAGED, "the comment {# is never closed with #}");
}

static bool is_name_byte(char c) { return isalnum((unsigned char)c) || c == '_' || ((unsigned char)c & 0x80) != 0; }

static size_t skip_digits(const lexer *lex, size_t at)
{
    while (isdigit((unsigned char)byte_at(lex, at)) || (byte_at(lex, at) == '_' && isdigit((unsigned char)byte_at(lex, at + 1)))) at++;
    return at;
}

static apr_status lex_number(lexer *lex)
{
    size_t end = skip_digits(lex, lex->at);
    bool is_float = false;
    const bool is_member = lex->at > 0 && lex->source.bytes[lex->at - 1] == '.'; /* list.0.1 */
    if (!is_member && byte_at(lex, end) == '.' && isdigit((unsigned char)byte_at(lex, end + 1))) {
        end = skip_digits(lex, end + 1);
        is_float = true;
    }
    if (byte_at(lex, end) == 'e' || byte_at(lex, end) == 'E') {
        const size_t sign = byte_at(lex, end + 1) == '+' || byte_at(lex, end + 1) == '-';
        if (isdigit((unsigned char)byte_at(lex, end + 1 + sign))) {
            end = skip_digits(lex, end + 1 + sign);
            is_float = true;
        }
    }
    if (!is_float && is_name_byte(byte_at(lex, end))) return apr_tpl_fail(lex->vm, APR_E_UNSUPPORTED, "a number is not decimal");
    APR_TRY(add_token(lex, is_float ? TOK_FLOAT : TOK_INT, lex->at, end));
    advance(lex, end);
    return APR_OK;
}

static apr_status lex_string(lexer *lex)
{
    const char quote = byte_at(lex, lex->at);
    for (size_t end = lex->at + 1; end < lex->source.n_bytes; end++) {
        if (lex->source.bytes[end] == '\\') {
            end++;
        } else if (lex->source.bytes[end] == quote) {
            APR_TRY(add_token(lex, TOK_STRING, lex->at + 1, end));
            advance(lex, end + 1);
            return APR_OK;
        }
    }
    return apr_tpl_fail(lex->vm, APR_E_DAMAGED, "a string that starts with %c is never closed", quote);
}

static apr_status lex_operator(lexer *lex)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
                                            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!starts_with(lex, lex->at, operators[i])) continue;
        APR_TRY(add_token(lex, TOK_OP, lex->at, lex->at + strlen(operators[i])));
        advance(lex, lex->at + strlen(operators[i]));
        return APR_OK;
    }
    return apr_tpl_fail(lex->vm, APR_E_DAMAGED, "unexpected character (byte 0x%02x) in a tag", (unsigned char)byte_at(lex, lex->at));
}

/* Lexes the inside of {% %} or {{ }}, including its end. Inside brackets, }} does not end the tag: {{ {'a': {}} }}. */
static apr_status lex_tag(lexer *lex, bool is_print)
{
    const char *const close = is_print ? "}}" : "%}";
    int n_open = 0;
    APR_TRY(add_token(lex, is_print ? TOK_PRINT_BEGIN : TOK_BLOCK_BEGIN, lex->at, lex->at));
    for (;;) {
        advance(lex, skip_space(lex, lex->at));
        if (lex->at >= lex->source.n_bytes)
            return apr_tpl_fail(lex->vm, APR_E_DAMAGED, "the template ends inside a tag; %s is missing", close);
        const char c = byte_at(lex, lex->at);
        const bool has_sign = (c == '-' || (c == '+' && !is_print)) && starts_with(lex, lex->at + 1, close);
        if (n_open == 0 && (has_sign || starts_with(lex, lex->at, close))) {
            APR_TRY(add_token(lex, is_print ? TOK_PRINT_END : TOK_BLOCK_END, lex->at, lex->at));
            advance(lex, after_tag(lex, lex->at + has_sign, has_sign ? c : '\0', !is_print));
            return APR_OK;
        }
        if (isdigit((unsigned char)c)) {
            APR_TRY(lex_number(lex));
        } else if (is_name_byte(c)) {
            size_t end = lex->at;
            while (is_name_byte(byte_at(lex, end))) end++;
            APR_TRY(add_token(lex, TOK_NAME, lex->at, end));
            lex->at = end;
        } else if (c == '\'' || c == '"') {
            APR_TRY(lex_string(lex));
        } else {
            n_open += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
            if (n_open < 0) return apr_tpl_fail(lex->vm, APR_E_DAMAGED, "unexpected '%c'", c);
            APR_TRY(lex_operator(lex));
        }
    }
}

/* True if the block tag at `at` contains only `word`. *close is the position of its %}, *sign the '-' or '+' before it, or NUL. */
static bool is_bare_tag(const lexer *lex, size_t at, const char *word, size_t *close, char *sign)
{
    at += 2;
    if (byte_at(lex, at) == '-' || byte_at(lex, at) == '+') at++;
    at = skip_space(lex, at);
    if (!starts_with(lex, at, word)) return false;
    at = skip_space(lex, at + strlen(word));
    *sign = byte_at(lex, at) == '-' || byte_at(lex, at) == '+' ? byte_at(lex, at) : '\0';
    *close = at + (*sign != '\0');
    return starts_with(lex, *close, "%}");
}

static apr_status lex_raw(lexer *lex, size_t open_close, char open_sign)
{
    size_t close;
    char sign;
    advance(lex, after_tag(lex, open_close, open_sign, false));
    lex->line_starts = lex->source.bytes[lex->at - 1] == '\n';
    for (size_t at = lex->at; at + 1 < lex->source.n_bytes; at++) {
        if (!starts_with(lex, at, "{%") || !is_bare_tag(lex, at, "endraw", &close, &sign)) continue;
        APR_TRY(add_data(lex, lex->at, at, byte_at(lex, at + 2), false));
        advance(lex, after_tag(lex, close, sign, true));
        return APR_OK;
    }
    return apr_tpl_fail(lex->vm, APR_E_DAMAGED, "{%% raw %%} is never closed with {%% endraw %%}");
}

static apr_status lex_all(apr_tpl_vm *vm, apr_tpl_text source, token **tokens)
{
    lexer lex = {.vm = vm, .source = source, .line_starts = true};
    vm->line = 1;
    while (lex.at < source.n_bytes) {
        size_t tag = lex.at, close;
        char sign;
        while (tag < source.n_bytes &&
               !(source.bytes[tag] == '{' && byte_at(&lex, tag + 1) != '\0' && strchr("{%#", byte_at(&lex, tag + 1))))
            tag++;
        if (tag == source.n_bytes) {
            APR_TRY(add_token(&lex, TOK_DATA, lex.at, tag));
            break;
        }
        const char kind = source.bytes[tag + 1];
        APR_TRY(add_data(&lex, lex.at, tag, byte_at(&lex, tag + 2), kind == '{'));
        advance(&lex, tag);
        if (kind == '#') {
            APR_TRY(lex_comment(&lex));
        } else if (kind == '%' && is_bare_tag(&lex, tag, "raw", &close, &sign) && sign != '+') {
            APR_TRY(lex_raw(&lex, close, sign));
        } else {
            const char mark = byte_at(&lex, tag + 2);
            advance(&lex, tag + 2 + (mark == '-' || mark == '+'));
            APR_TRY(lex_tag(&lex, kind == '{'));
        }
        lex.line_starts = source.bytes[lex.at - 1] == '\n';
    }
    APR_TRY(add_token(&lex, TOK_END, source.n_bytes, source.n_bytes));
    *tokens = lex.tokens;
    return APR_OK;
}

/* ---- tokens to nodes ---- */

enum { MAX_HEIGHT = 250 }; /* of the tree: limits the recursion of the interpreter */

typedef struct parser {
    apr_tpl_vm *vm;
    const token *at;
    int depth, loops;
    apr_tpl_macro_def *macro; /* the macro being parsed, or NULL */
} parser;

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

enum { PARSE_TUPLES = 1, PARSE_NO_CHOICE = 2 };
static apr_status parse_expr(parser *p, int flags, apr_tpl_node **out);
static apr_status parse_target(parser *p, bool members, apr_tpl_node **out); /* a name, a tuple of names, ns.member */
static apr_status parse_filters(parser *p, apr_tpl_node **node);             /* | name(args) ... at p */
static apr_status parse_level(parser *p, int level, apr_tpl_node **out);
static apr_status parse_unary(parser *p, bool with_filters, apr_tpl_node **out);
static apr_status parse_primary(parser *p, apr_tpl_node **out);
static apr_status parse_postfix(parser *p, apr_tpl_node **node);

static apr_status node_make(parser *p, apr_tpl_node_kind kind, apr_tpl_node **out)
{
    APR_TRY(apr_tpl_alloc(p->vm, 1, sizeof **out, out));
    (*out)->kind = kind;
    (*out)->op = OP_NONE;
    (*out)->line = p->at->line;
    return APR_OK;
}

static apr_status node_add(parser *p, apr_tpl_node *parent, apr_tpl_node *child)
{
    apr_tpl_node_list *const list = &parent->list;
    APR_TRY(apr_tpl_grow(p->vm, list->n_items, &list->capacity, sizeof *list->items, &list->items));
    list->items[list->n_items++] = child;
    return APR_OK;
}

static int height_of(const apr_tpl_node *node) { return node == NULL ? 0 : node->height; }

/* Sets and checks the height. */
static apr_status node_done(parser *p, apr_tpl_node *node)
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
    if (node->height > MAX_HEIGHT)
        return apr_tpl_fail(p->vm, APR_E_UNSUPPORTED, "an expression or a chain of elif is more than %d levels deep", MAX_HEIGHT);
    return APR_OK;
}

/* Enters a nesting level; leave it with p->depth--. */
static apr_status enter(parser *p)
{
    if (++p->depth > APR_TEMPLATE_MAX_NESTING)
        return apr_tpl_fail(p->vm, APR_E_UNSUPPORTED, "tags or brackets are nested more than %d deep", APR_TEMPLATE_MAX_NESTING);
    return APR_OK;
}

static bool at_op(const parser *p, const char *op) { return p->at->kind == TOK_OP && apr_tpl_text_is(p->at->text, op); }
static bool at_name(const parser *p, const char *name) { return p->at->kind == TOK_NAME && apr_tpl_text_is(p->at->text, name); }

static void next(parser *p)
{
    if (p->at->kind != TOK_END) p->at++;
    p->vm->line = p->at->line;
}

static bool skip_op(parser *p, const char *op)
{
    const bool is = at_op(p, op);
    if (is) next(p);
    return is;
}

static bool skip_name(parser *p, const char *name)
{
    const bool is = at_name(p, name);
    if (is) next(p);
    return is;
}

static apr_status unexpected(parser *p, const char *wanted)
{
    const token *const t = p->at;
    const int n = apr_tpl_short(t->text);
    const bool is_end = t->kind == TOK_BLOCK_END || t->kind == TOK_PRINT_END;
    p->vm->line = t->line;
    if (t->kind == TOK_END) return apr_tpl_fail(p->vm, APR_E_DAMAGED, "the template ends where %s is expected", wanted);
    if (is_end || n == 0) return apr_tpl_fail(p->vm, APR_E_DAMAGED, "the tag ends where %s is expected", wanted);
    return apr_tpl_fail(p->vm, APR_E_DAMAGED, "unexpected '%.*s' where %s is expected", n, t->text.bytes, wanted);
}

static apr_status expect_op(parser *p, const char *op)
{
    char wanted[8];
    if (skip_op(p, op)) return APR_OK;
    snprintf(wanted, sizeof wanted, "'%.3s'", op);
    return unexpected(p, wanted);
}

static apr_status expect_name(parser *p, apr_tpl_text *name)
{
    if (p->at->kind != TOK_NAME) return unexpected(p, "a name");
    *name = p->at->text;
    next(p);
    return APR_OK;
}

/* ---- operators ---- */

static size_t operator_at(const parser *p, int level)
{
    size_t i = 0;
    for (; i < sizeof operators / sizeof *operators; i++)
        if (operators[i].level == level && (operators[i].is_word ? at_name : at_op)(p, operators[i].text)) break;
    return i;
}

/* Reads the comparison operator at p; OP_NONE if there is none. */
static apr_tpl_op take_comparison(parser *p)
{
    const size_t i = operator_at(p, LEVEL_COMPARE);
    if (i < sizeof operators / sizeof *operators) {
        next(p);
        return operators[i].op;
    }
    if (!at_name(p, "not") || p->at[1].kind != TOK_NAME || !apr_tpl_text_is(p->at[1].text, "in")) return OP_NONE;
    next(p);
    next(p);
    return OP_NOT_IN;
}

static apr_status parse_compare(parser *p, apr_tpl_node **out)
{
    apr_tpl_node *chain = NULL;
    APR_TRY(parse_level(p, LEVEL_ADD, out));
    for (apr_tpl_op op; (op = take_comparison(p)) != OP_NONE;) {
        apr_tpl_node *operand;
        if (chain == NULL) {
            APR_TRY(node_make(p, NODE_COMPARE, &chain));
            chain->a = *out;
            *out = chain;
        }
        APR_TRY(node_make(p, NODE_OPERAND, &operand));
        operand->op = op;
        APR_TRY(parse_level(p, LEVEL_ADD, &operand->a));
        APR_TRY(node_done(p, operand));
        APR_TRY(node_add(p, chain, operand));
    }
    return chain != NULL ? node_done(p, chain) : APR_OK;
}

static apr_status parse_not(parser *p, apr_tpl_node **out)
{
    if (!at_name(p, "not")) return parse_compare(p, out);
    APR_TRY(node_make(p, NODE_UNARY, out));
    next(p);
    (*out)->op = OP_NOT;
    APR_TRY(enter(p));
    APR_TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return node_done(p, *out);
}

static apr_status parse_level(parser *p, int level, apr_tpl_node **out)
{
    if (level == LEVEL_NOT) return parse_not(p, out);
    if (level == LEVEL_UNARY) return parse_unary(p, true, out);
    APR_TRY(parse_level(p, level + 1, out));
    for (size_t i; (i = operator_at(p, level)) < sizeof operators / sizeof *operators;) {
        apr_tpl_node *node;
        APR_TRY(node_make(p, NODE_BINARY, &node));
        next(p);
        node->op = operators[i].op;
        node->a = *out;
        APR_TRY(parse_level(p, level + 1, &node->b));
        APR_TRY(node_done(p, node));
        *out = node;
    }
    return APR_OK;
}

/* value if condition else other */
static apr_status parse_choice(parser *p, apr_tpl_node **out)
{
    APR_TRY(enter(p));
    APR_TRY(parse_level(p, LEVEL_OR, out));
    while (at_name(p, "if")) {
        apr_tpl_node *node;
        APR_TRY(node_make(p, NODE_CHOICE, &node));
        next(p);
        node->a = *out;
        APR_TRY(parse_level(p, LEVEL_OR, &node->b));
        if (skip_name(p, "else")) APR_TRY(parse_choice(p, &node->c));
        APR_TRY(node_done(p, node));
        *out = node;
    }
    p->depth--;
    return APR_OK;
}

static bool at_tuple_end(const parser *p)
{
    return p->at->kind == TOK_BLOCK_END || p->at->kind == TOK_PRINT_END || p->at->kind == TOK_END || at_op(p, ")") || at_op(p, "=") ||
           at_name(p, "in");
}

static apr_status parse_one(parser *p, int flags, apr_tpl_node **out)
{
    if ((flags & PARSE_NO_CHOICE) == 0) return parse_choice(p, out);
    APR_TRY(enter(p));
    APR_TRY(parse_level(p, LEVEL_OR, out));
    p->depth--;
    return APR_OK;
}

static apr_status parse_expr(parser *p, int flags, apr_tpl_node **out)
{
    apr_tpl_node *tuple;
    APR_TRY(parse_one(p, flags, out));
    if ((flags & PARSE_TUPLES) == 0 || !at_op(p, ",")) return APR_OK;
    APR_TRY(node_make(p, NODE_TUPLE, &tuple));
    APR_TRY(node_add(p, tuple, *out));
    while (skip_op(p, ",") && !at_tuple_end(p)) {
        apr_tpl_node *item;
        APR_TRY(parse_one(p, flags, &item));
        APR_TRY(node_add(p, tuple, item));
    }
    *out = tuple;
    return node_done(p, tuple);
}

/* ---- escapes in string literals ---- */

/* Reads \x, \u, \U or the octal \ooo at text[at] (after the backslash): the code point, and the number of bytes. */
static bool numbered_escape(apr_tpl_text text, size_t at, uint32_t *code_point, size_t *n_bytes)
{
    const char c = text.bytes[at];
    const size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    *code_point = 0;
    *n_bytes = n_digits + 1;
    if (n_digits == 0) {
        for (*n_bytes = 0; *n_bytes < 3 && at + *n_bytes < text.n_bytes; ++*n_bytes) {
            const char digit = text.bytes[at + *n_bytes];
            if (digit < '0' || digit > '7') break;
            *code_point = *code_point * 8 + (uint32_t)(digit - '0');
        }
        return *n_bytes > 0;
    }
    if (text.n_bytes - at <= n_digits) return false;
    for (size_t i = 1; i <= n_digits; i++) {
        const unsigned char digit = (unsigned char)text.bytes[at + i];
        if (!isxdigit(digit)) return false;
        *code_point = *code_point * 16 + (uint32_t)(isdigit(digit) ? digit - '0' : (digit | 0x20) - 'a' + 10);
    }
    return true;
}

static apr_status put_escape(apr_tpl_vm *vm, apr_tpl_text text, size_t at, size_t *n_taken)
{
    static const char plain[128] = {['n'] = '\n', ['t'] = '\t', ['r'] = '\r',  ['a'] = '\a',  ['b'] = '\b',
                                    ['f'] = '\f', ['v'] = '\v', ['\\'] = '\\', ['\''] = '\'', ['"'] = '"'};
    const unsigned char c = (unsigned char)text.bytes[at];
    uint32_t code_point;
    *n_taken = 1;
    if (c == '\n') return APR_OK;
    if (c < 128 && plain[c] != '\0') return apr_tpl_put(vm, &plain[c], 1);
    if (c == 'N') return apr_tpl_fail(vm, APR_E_UNSUPPORTED, "the escape \\N{name} in a string is not supported");
    if (strchr("xuU01234567", c) == NULL || c == '\0') {
        *n_taken = apr_tpl_char_bytes(text.bytes + at);
        APR_TRY(apr_tpl_put(vm, "\\", 1));
        return apr_tpl_put(vm, text.bytes + at, *n_taken);
    }
    if (!numbered_escape(text, at, &code_point, n_taken) || code_point > 0x10ffff || (code_point >= 0xd800 && code_point < 0xe000))
        return apr_tpl_fail(vm, APR_E_DAMAGED, "the escape \\%c in a string is not a character", c);
    return apr_tpl_put_char(vm, code_point);
}

static apr_status unescape(apr_tpl_vm *vm, apr_tpl_text text, apr_tpl_value *out)
{
    const size_t mark = vm->out.n_bytes;
    if (text.n_bytes == 0 || memchr(text.bytes, '\\', text.n_bytes) == NULL) {
        *out = apr_tpl_string(text.bytes, text.n_bytes);
        return APR_OK;
    }
    for (size_t at = 0; at < text.n_bytes;) {
        const char *const slash = memchr(text.bytes + at, '\\', text.n_bytes - at);
        const size_t plain = slash == NULL ? text.n_bytes - at : (size_t)(slash - text.bytes) - at;
        size_t n_taken;
        APR_TRY(apr_tpl_put(vm, text.bytes + at, plain));
        at += plain;
        if (slash == NULL) break;
        APR_TRY(put_escape(vm, text, at + 1, &n_taken)); /* a literal never ends with a backslash */
        at += 1 + n_taken;
    }
    return apr_tpl_take(vm, mark, out);
}

/* ---- primaries ---- */

static apr_status parse_number(parser *p, apr_tpl_node *node)
{
    char digits[64];
    size_t n = 0;
    const token *const t = p->at;
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
    return node_done(p, node);
}

/* Adjacent literals are concatenated. */
static apr_status parse_string(parser *p, apr_tpl_node *node)
{
    const size_t mark = p->vm->out.n_bytes;
    APR_TRY(unescape(p->vm, p->at->text, &node->value));
    next(p);
    if (p->at->kind == TOK_STRING) {
        APR_TRY(apr_tpl_put_text(p->vm, node->value.as.text));
        for (; p->at->kind == TOK_STRING; next(p)) {
            apr_tpl_value more;
            APR_TRY(unescape(p->vm, p->at->text, &more));
            APR_TRY(apr_tpl_put_text(p->vm, more.as.text));
        }
        APR_TRY(apr_tpl_take(p->vm, mark, &node->value));
    }
    return node_done(p, node);
}

static apr_status parse_name(parser *p, apr_tpl_node *node)
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
    APR_TRY(expect_name(p, &node->text));
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (!apr_tpl_text_is(node->text, constants[i].name)) continue;
        node->kind = NODE_CONST;
        node->value = constants[i].value;
    }
    if (p->macro != NULL) {
        p->macro->uses_varargs |= apr_tpl_text_is(node->text, "varargs");
        p->macro->uses_kwargs |= apr_tpl_text_is(node->text, "kwargs");
    }
    return node_done(p, node);
}

/* Parses [a, b] or {k: v} after the opening bracket. */
static apr_status parse_items(parser *p, apr_tpl_node *node, const char *close)
{
    while (!skip_op(p, close)) {
        apr_tpl_node *item;
        if (node->list.n_items > 0) {
            APR_TRY(expect_op(p, ","));
            if (skip_op(p, close)) break;
        }
        APR_TRY(parse_expr(p, 0, &item));
        APR_TRY(node_add(p, node, item));
        if (node->kind != NODE_DICT) continue;
        APR_TRY(expect_op(p, ":"));
        APR_TRY(parse_expr(p, 0, &item));
        APR_TRY(node_add(p, node, item));
    }
    return node_done(p, node);
}

static apr_status parse_primary(parser *p, apr_tpl_node **out)
{
    APR_TRY(node_make(p, NODE_CONST, out));
    switch (p->at->kind) {
    case TOK_NAME: return parse_name(p, *out);
    case TOK_STRING: return parse_string(p, *out);
    case TOK_INT:
    case TOK_FLOAT: return parse_number(p, *out);
    default: break;
    }
    if (skip_op(p, "(")) {
        if (skip_op(p, ")")) {
            (*out)->kind = NODE_TUPLE;
            return node_done(p, *out);
        }
        APR_TRY(parse_expr(p, PARSE_TUPLES, out));
        return expect_op(p, ")");
    }
    const bool is_dict = skip_op(p, "{");
    if (!is_dict && !skip_op(p, "[")) return unexpected(p, "an expression");
    (*out)->kind = is_dict ? NODE_DICT : NODE_LIST;
    return parse_items(p, *out, is_dict ? "}" : "]");
}

static apr_status parse_unary(parser *p, bool with_filters, apr_tpl_node **out)
{
    if (at_op(p, "-") || at_op(p, "+")) {
        APR_TRY(node_make(p, NODE_UNARY, out));
        (*out)->op = at_op(p, "-") ? OP_NEG : OP_POS;
        next(p);
        APR_TRY(enter(p));
        APR_TRY(parse_unary(p, false, &(*out)->a));
        p->depth--;
        APR_TRY(node_done(p, *out));
    } else {
        APR_TRY(parse_primary(p, out));
    }
    APR_TRY(parse_postfix(p, out));
    return with_filters ? parse_filters(p, out) : APR_OK;
}

/* ---- postfix: members, subscripts, calls, filters, tests ---- */

static apr_status add_arg(parser *p, apr_tpl_arg_nodes *args, apr_tpl_arg arg)
{
    APR_TRY(apr_tpl_grow(p->vm, args->n_items, &args->capacity, sizeof *args->items, &args->items));
    args->items[args->n_items++] = arg;
    return APR_OK;
}

/* Parses (a, b, name=c, *d, **e) after the opening bracket. */
static apr_status parse_args(parser *p, apr_tpl_arg_nodes *args)
{
    while (!skip_op(p, ")")) {
        apr_tpl_arg arg = {.spread = 0};
        apr_tpl_node *value;
        if (args->n_items > 0) {
            APR_TRY(expect_op(p, ","));
            if (skip_op(p, ")")) break;
        }
        if (skip_op(p, "**")) {
            arg.spread = '2';
        } else if (skip_op(p, "*")) {
            arg.spread = '*';
        } else if (p->at->kind == TOK_NAME && p->at[1].kind == TOK_OP && apr_tpl_text_is(p->at[1].text, "=")) {
            arg.name = p->at->text;
            next(p);
            next(p);
        }
        APR_TRY(parse_expr(p, 0, &value));
        arg.value = value;
        APR_TRY(add_arg(p, args, arg));
    }
    return APR_OK;
}

/* Parses [index] or [from:to:step] after the opening bracket. */
static apr_status parse_subscript(parser *p, apr_tpl_node *node)
{
    apr_tpl_node *bounds[3] = {NULL};
    int n_colons = 0;
    while (!at_op(p, "]")) {
        if (skip_op(p, ":")) {
            if (++n_colons > 2) return unexpected(p, "']'");
            continue;
        }
        if (bounds[n_colons] != NULL) return unexpected(p, "']'");
        APR_TRY(parse_expr(p, 0, &bounds[n_colons]));
    }
    if (n_colons == 0 && bounds[0] == NULL) return unexpected(p, "an index");
    APR_TRY(expect_op(p, "]"));
    node->kind = n_colons > 0 ? NODE_SLICE : NODE_ITEM;
    node->b = bounds[0];
    node->c = bounds[1];
    node->d = bounds[2];
    return APR_OK;
}

static apr_status parse_postfix(parser *p, apr_tpl_node **node)
{
    while (at_op(p, ".") || at_op(p, "[") || at_op(p, "(")) {
        apr_tpl_node *outer;
        APR_TRY(node_make(p, NODE_ATTR, &outer));
        outer->a = *node;
        if (skip_op(p, "[")) {
            APR_TRY(parse_subscript(p, outer));
        } else if (skip_op(p, "(")) {
            outer->kind = NODE_CALL;
            APR_TRY(parse_args(p, &outer->args));
        } else {
            next(p);
            if (p->at->kind == TOK_INT) {
                outer->kind = NODE_ITEM;
                APR_TRY(node_make(p, NODE_CONST, &outer->b));
                APR_TRY(parse_number(p, outer->b));
            } else {
                APR_TRY(expect_name(p, &outer->text));
            }
        }
        APR_TRY(node_done(p, outer));
        *node = outer;
    }
    return APR_OK;
}

/* Parses name(args). */
static apr_status parse_filter(parser *p, apr_tpl_node **node)
{
    apr_tpl_node *outer;
    APR_TRY(node_make(p, NODE_FILTER, &outer));
    outer->a = *node;
    APR_TRY(expect_name(p, &outer->text));
    outer->builtin = apr_tpl_builtin_named(APR_TPL_FILTER, outer->text);
    if (skip_op(p, "(")) APR_TRY(parse_args(p, &outer->args));
    *node = outer;
    return node_done(p, outer);
}

/* Parses [not] name, name(args), or name arg after `is`. */
static apr_status parse_test(parser *p, apr_tpl_node **node)
{
    const bool is_negated = skip_name(p, "not");
    apr_tpl_node *outer;
    APR_TRY(node_make(p, NODE_TEST, &outer));
    outer->a = *node;
    outer->op = is_negated ? OP_NOT : OP_NONE;
    APR_TRY(expect_name(p, &outer->text));
    outer->builtin = apr_tpl_builtin_named(APR_TPL_TEST, outer->text);
    const token_kind kind = p->at->kind;
    const bool is_word = at_name(p, "else") || at_name(p, "or") || at_name(p, "and") || at_name(p, "is");
    if (skip_op(p, "(")) {
        APR_TRY(parse_args(p, &outer->args));
    } else if (!is_word &&
               (kind == TOK_NAME || kind == TOK_STRING || kind == TOK_INT || kind == TOK_FLOAT || at_op(p, "[") || at_op(p, "{"))) {
        apr_tpl_node *value;
        APR_TRY(parse_primary(p, &value));
        APR_TRY(parse_postfix(p, &value));
        APR_TRY(add_arg(p, &outer->args, (apr_tpl_arg){.value = value}));
    }
    *node = outer;
    return node_done(p, outer);
}

static apr_status parse_filters(parser *p, apr_tpl_node **node)
{
    for (;;) {
        if (skip_op(p, "|")) {
            APR_TRY(parse_filter(p, node));
        } else if (skip_name(p, "is")) {
            APR_TRY(parse_test(p, node));
        } else if (at_op(p, "(")) {
            APR_TRY(parse_postfix(p, node));
        } else {
            return APR_OK;
        }
    }
}

/* ---- targets of for, set and with ---- */

static apr_status parse_target_item(parser *p, bool members, apr_tpl_node **out)
{
    APR_TRY(node_make(p, NODE_NAME, out));
    if (skip_op(p, "(")) {
        APR_TRY(enter(p));
        APR_TRY(parse_target(p, members, out));
        p->depth--;
        return expect_op(p, ")");
    }
    APR_TRY(expect_name(p, &(*out)->text));
    if (members && skip_op(p, ".")) {
        apr_tpl_node *member;
        APR_TRY(node_make(p, NODE_ATTR, &member));
        member->a = *out;
        APR_TRY(expect_name(p, &member->text));
        *out = member;
    }
    return node_done(p, *out);
}

static apr_status parse_target(parser *p, bool members, apr_tpl_node **out)
{
    apr_tpl_node *tuple;
    APR_TRY(parse_target_item(p, members, out));
    if (!at_op(p, ",")) return APR_OK;
    APR_TRY(node_make(p, NODE_TUPLE, &tuple));
    APR_TRY(node_add(p, tuple, *out));
    while (skip_op(p, ",") && !at_tuple_end(p)) {
        apr_tpl_node *item;
        APR_TRY(parse_target_item(p, members, &item));
        APR_TRY(node_add(p, tuple, item));
    }
    *out = tuple;
    return node_done(p, tuple);
}

/* ---- tags ---- */

static apr_status end_tag(parser *p)
{
    if (p->at->kind != TOK_BLOCK_END) return unexpected(p, "'%}'");
    next(p);
    return APR_OK;
}

/* Is the name at p one of `names` (separated by spaces)? */
static bool at_one_of(const parser *p, const char *names)
{
    const apr_tpl_text name = p->at->text;
    while (p->at->kind == TOK_NAME && *names != '\0') {
        const size_t n = strcspn(names, " ");
        if (n == name.n_bytes && memcmp(names, name.bytes, n) == 0) return true;
        names += n + (names[n] == ' ');
    }
    return false;
}

static apr_status parse_tag(parser *p, apr_tpl_node **out);

/* Parses up to a block tag named in `ends`, and stops at its name. ends NULL: up to the end of the template. */
static apr_status parse_body(parser *p, const char *ends, apr_tpl_node **out)
{
    APR_TRY(node_make(p, NODE_BLOCK, out));
    APR_TRY(enter(p));
    for (;;) {
        apr_tpl_node *node = NULL;
        const token *const t = p->at;
        if (t->kind == TOK_END) {
            if (ends != NULL) return unexpected(p, ends);
            break;
        }
        next(p);
        if (t->kind == TOK_BLOCK_BEGIN) {
            if (ends != NULL && at_one_of(p, ends)) break;
            APR_TRY(parse_tag(p, &node));
        } else {
            APR_TRY(node_make(p, t->kind == TOK_DATA ? NODE_DATA : NODE_PRINT, &node));
            node->line = t->line;
            node->text = t->text;
            if (t->kind == TOK_PRINT_BEGIN) {
                APR_TRY(parse_expr(p, PARSE_TUPLES, &node->a));
                if (p->at->kind != TOK_PRINT_END) return unexpected(p, "'}}'");
                next(p);
            }
            APR_TRY(node_done(p, node));
        }
        APR_TRY(node_add(p, *out, node));
    }
    p->depth--;
    return node_done(p, *out);
}

/* Parses the rest of the opening tag, the body, and the closing tag `end`. */
static apr_status parse_whole_body(parser *p, const char *end, apr_tpl_node **body)
{
    APR_TRY(end_tag(p));
    APR_TRY(parse_body(p, end, body));
    next(p);
    return end_tag(p);
}

/* Parses a body that becomes a function: `break` cannot leave it. */
static apr_status parse_function_body(parser *p, const char *end, apr_tpl_macro_def *macro, apr_tpl_node **body)
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

static apr_status parse_if(parser *p, apr_tpl_node *node)
{
    node->kind = NODE_IF;
    APR_TRY(parse_expr(p, PARSE_TUPLES | PARSE_NO_CHOICE, &node->a));
    APR_TRY(end_tag(p));
    APR_TRY(parse_body(p, "elif else endif", &node->b));
    if (at_one_of(p, "elif")) {
        next(p);
        APR_TRY(node_make(p, NODE_IF, &node->c));
        APR_TRY(enter(p));
        APR_TRY(parse_if(p, node->c));
        p->depth--;
        return node_done(p, node->c);
    }
    if (at_one_of(p, "else")) {
        next(p);
        APR_TRY(end_tag(p));
        APR_TRY(parse_body(p, "endif", &node->c));
    }
    next(p);
    return end_tag(p);
}

static apr_status parse_for(parser *p, apr_tpl_node *node)
{
    apr_tpl_node *target;
    node->kind = NODE_FOR;
    APR_TRY(parse_target(p, false, &target));
    APR_TRY(node_add(p, node, target));
    if (!skip_name(p, "in")) return unexpected(p, "'in'");
    APR_TRY(parse_expr(p, PARSE_TUPLES | PARSE_NO_CHOICE, &node->a));
    if (skip_name(p, "if")) APR_TRY(parse_expr(p, 0, &node->d));
    if (at_name(p, "recursive")) return apr_tpl_fail(p->vm, APR_E_UNSUPPORTED, "recursive loops are not supported");
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

static apr_status parse_set(parser *p, apr_tpl_node *node)
{
    apr_tpl_node *target;
    node->kind = NODE_SET;
    APR_TRY(parse_target(p, true, &target));
    APR_TRY(node_add(p, node, target));
    if (skip_op(p, "=")) {
        APR_TRY(parse_expr(p, PARSE_TUPLES, &node->a));
        return end_tag(p);
    }
    node->kind = NODE_SET_BLOCK;
    if (at_op(p, "|")) APR_TRY(parse_filters(p, &node->a));
    return parse_whole_body(p, "endset", &node->b);
}

static apr_status parse_with(parser *p, apr_tpl_node *node)
{
    node->kind = NODE_WITH;
    while (p->at->kind != TOK_BLOCK_END) {
        apr_tpl_node *target, *value;
        if (node->list.n_items > 0) APR_TRY(expect_op(p, ","));
        APR_TRY(node_make(p, NODE_NAME, &target));
        APR_TRY(expect_name(p, &target->text));
        APR_TRY(expect_op(p, "="));
        APR_TRY(parse_expr(p, 0, &value));
        APR_TRY(node_add(p, node, target));
        APR_TRY(node_add(p, node, value));
    }
    return parse_whole_body(p, "endwith", &node->b);
}

static apr_status add_param(parser *p, apr_tpl_macro_def *def, apr_tpl_text name, apr_tpl_node *fallback)
{
    size_t n_names = def->capacity;
    APR_TRY(apr_tpl_grow(p->vm, def->n_params, &n_names, sizeof *def->params, &def->params));
    APR_TRY(apr_tpl_grow(p->vm, def->n_params, &def->capacity, sizeof *def->defaults, &def->defaults));
    def->params[def->n_params] = name;
    def->defaults[def->n_params++] = fallback;
    return APR_OK;
}

/* Parses (a, b=1) after the opening bracket. */
static apr_status parse_params(parser *p, apr_tpl_macro_def *def)
{
    while (!skip_op(p, ")")) {
        apr_tpl_text name;
        apr_tpl_node *fallback = NULL;
        if (def->n_params > 0) APR_TRY(expect_op(p, ","));
        APR_TRY(expect_name(p, &name));
        if (skip_op(p, "=")) APR_TRY(parse_expr(p, 0, &fallback));
        else if (def->n_params > 0 && def->defaults[def->n_params - 1] != NULL)
            return apr_tpl_fail(p->vm, APR_E_DAMAGED, "a parameter without a default follows one with a default");
        APR_TRY(add_param(p, def, name, fallback));
    }
    return APR_OK;
}

static apr_status parse_macro(parser *p, apr_tpl_node *node)
{
    node->kind = NODE_MACRO;
    APR_TRY(apr_tpl_alloc(p->vm, 1, sizeof *node->macro, &node->macro));
    APR_TRY(expect_name(p, &node->text));
    node->macro->name = node->text;
    APR_TRY(expect_op(p, "("));
    APR_TRY(parse_params(p, node->macro));
    return parse_function_body(p, "endmacro", node->macro, &node->macro->body);
}

static apr_status parse_call_block(parser *p, apr_tpl_node *node)
{
    node->kind = NODE_CALL_BLOCK;
    APR_TRY(apr_tpl_alloc(p->vm, 1, sizeof *node->macro, &node->macro));
    node->macro->name = (apr_tpl_text){"caller", 6};
    if (skip_op(p, "(")) APR_TRY(parse_params(p, node->macro));
    APR_TRY(parse_expr(p, 0, &node->a));
    if (node->a->kind != NODE_CALL) return unexpected(p, "a call");
    return parse_function_body(p, "endcall", node->macro, &node->macro->body);
}

static apr_status parse_filter_block(parser *p, apr_tpl_node *node)
{
    node->kind = NODE_FILTER_BLOCK;
    APR_TRY(parse_filter(p, &node->a));
    APR_TRY(parse_filters(p, &node->a));
    return parse_whole_body(p, "endfilter", &node->b);
}

static apr_status parse_generation(parser *p, apr_tpl_node *node)
{
    node->kind = NODE_SCOPE;
    return parse_function_body(p, "endgeneration", NULL, &node->b);
}

static apr_status parse_jump(parser *p)
{
    if (p->loops == 0) return apr_tpl_fail(p->vm, APR_E_DAMAGED, "'break' or 'continue' outside of a loop");
    return end_tag(p);
}

static apr_status parse_break(parser *p, apr_tpl_node *node)
{
    node->kind = NODE_BREAK;
    return parse_jump(p);
}

static apr_status parse_continue(parser *p, apr_tpl_node *node)
{
    node->kind = NODE_CONTINUE;
    return parse_jump(p);
}

static const struct {
    const char *name;
    apr_status (*parse)(parser *p, apr_tpl_node *node);
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

static apr_status parse_tag(parser *p, apr_tpl_node **out)
{
    apr_tpl_text name;
    APR_TRY(node_make(p, NODE_BLOCK, out));
    if (at_one_of(p, "else elif endif endfor endset endmacro endwith endcall endfilter endgeneration endraw"))
        return unexpected(p, "an opening tag");
    APR_TRY(expect_name(p, &name));
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!apr_tpl_text_is(name, tags[i].name)) continue;
        APR_TRY(tags[i].parse(p, *out));
        return node_done(p, *out);
    }
    return apr_tpl_fail(p->vm, APR_E_UNSUPPORTED, "the tag '%.*s' is not supported", apr_tpl_short(name), name.bytes);
}

apr_status apr_tpl_parse(apr_tpl_vm *vm, apr_tpl_text source, apr_tpl_node **root)
{
    token *tokens;
    APR_TRY(lex_all(vm, source, &tokens));
    parser p = {.vm = vm, .at = tokens};
    vm->line = tokens->line;
    return parse_body(&p, NULL, root);
}
