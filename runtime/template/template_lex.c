/* template_lex.c - splits a template into tokens, with Jinja's rules for white space around tags.
 *
 * trim_blocks removes the newline after a block tag or comment. lstrip_blocks removes white space between the start of a line and a
 * block tag or comment. `-` at a tag removes all white space on that side, `+` keeps it. */
#include "runtime/template/template_internal.h"

#include <ctype.h>
#include <string.h>

typedef struct lexer {
    apr_tpl_vm *vm;
    apr_tpl_text source;
    size_t at;
    bool line_starts; /* at the start of a line: after a newline, or at the start of the template */
    apr_tpl_token *tokens;
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

static apr_status add(lexer *lex, apr_tpl_token_kind kind, size_t from, size_t to)
{
    if (lex->n_tokens == lex->capacity) {
        apr_tpl_token *bigger;
        const size_t capacity = lex->capacity < 64 ? 64 : lex->capacity * 2;
        APR_TRY(apr_tpl_alloc(lex->vm, capacity, sizeof *bigger, &bigger));
        if (lex->n_tokens > 0) memcpy(bigger, lex->tokens, lex->n_tokens * sizeof *bigger);
        lex->tokens = bigger;
        lex->capacity = capacity;
    }
    lex->tokens[lex->n_tokens++] = (apr_tpl_token){kind, lex->vm->line, {lex->source.bytes + from, to - from}};
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
    return end > from ? add(lex, TOK_DATA, from, end) : APR_OK;
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
    APR_TRY(add(lex, is_float ? TOK_FLOAT : TOK_INT, lex->at, end));
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
            APR_TRY(add(lex, TOK_STRING, lex->at + 1, end));
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
        APR_TRY(add(lex, TOK_OP, lex->at, lex->at + strlen(operators[i])));
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
    APR_TRY(add(lex, is_print ? TOK_PRINT_BEGIN : TOK_BLOCK_BEGIN, lex->at, lex->at));
    for (;;) {
        advance(lex, skip_space(lex, lex->at));
        if (lex->at >= lex->source.n_bytes)
            return apr_tpl_fail(lex->vm, APR_E_DAMAGED, "the template ends inside a tag; %s is missing", close);
        const char c = byte_at(lex, lex->at);
        const bool has_sign = (c == '-' || (c == '+' && !is_print)) && starts_with(lex, lex->at + 1, close);
        if (n_open == 0 && (has_sign || starts_with(lex, lex->at, close))) {
            APR_TRY(add(lex, is_print ? TOK_PRINT_END : TOK_BLOCK_END, lex->at, lex->at));
            advance(lex, after_tag(lex, lex->at + has_sign, has_sign ? c : '\0', !is_print));
            return APR_OK;
        }
        if (isdigit((unsigned char)c)) {
            APR_TRY(lex_number(lex));
        } else if (is_name_byte(c)) {
            size_t end = lex->at;
            while (is_name_byte(byte_at(lex, end))) end++;
            APR_TRY(add(lex, TOK_NAME, lex->at, end));
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

apr_status apr_tpl_lex(apr_tpl_vm *vm, apr_tpl_text source, apr_tpl_token **tokens, size_t *n_tokens)
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
            APR_TRY(add(&lex, TOK_DATA, lex.at, tag));
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
    APR_TRY(add(&lex, TOK_END, source.n_bytes, source.n_bytes));
    *tokens = lex.tokens;
    *n_tokens = lex.n_tokens;
    return APR_OK;
}
