/* tiktoken.c - reads the lines, converts tokens to GPT-2's byte alphabet, and derives merges from the ranks. */
#include "formats/vocab/tiktoken.h"

#include "formats/base/base64.h"
#include "formats/vocab/rank_merges.h"

#include <string.h>

enum { MAX_BYTES = 1024, MAX_TOKENS = 1 << 24 };

/* Special tokens that a class has in its code, not in its files. Their ids follow the ranks. */
struct apr_tiktoken_specials {
    size_t n;
    const char *(*text)(size_t i, apr_arena *arena); /* NULL: out of memory */
    int bos, eos, stops[3];                          /* indices of these tokens; -1: none */
};

/* --- special tokens --- */

/* Llama 3.1's names. In 3.0 three of them are reserved tokens. */
static const char *llama3_special(size_t i, apr_arena *arena)
{
    static const char *const named[] = {"<|begin_of_text|>",
                                        "<|end_of_text|>",
                                        "<|reserved_special_token_0|>",
                                        "<|reserved_special_token_1|>",
                                        "<|finetune_right_pad_id|>",
                                        "<|reserved_special_token_2|>",
                                        "<|start_header_id|>",
                                        "<|end_header_id|>",
                                        "<|eom_id|>",
                                        "<|eot_id|>",
                                        "<|python_tag|>"};
    enum { N_NAMED = sizeof named / sizeof *named };
    return i < N_NAMED ? named[i] : apr_arena_print(arena, "<|reserved_special_token_%zu|>", i - N_NAMED + 3);
}

/* The special tokens of Qwen's first models. */
static const char *qwen_special(size_t i, apr_arena *arena)
{
    static const char *const named[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    enum { N_NAMED = sizeof named / sizeof *named };
    return i < N_NAMED ? named[i] : apr_arena_print(arena, "<|extra_%zu|>", i - N_NAMED);
}

static const apr_tiktoken_specials llama3_specials = {256, llama3_special, .bos = 0, .eos = 1, .stops = {1, 8 /* eom */, 9 /* eot */}};
static const apr_tiktoken_specials qwen_specials = {208, qwen_special, .bos = -1, .eos = 0, .stops = {0, 2 /* im_end */, -1}};

/* --- classes --- */

#define HAN_APART(letters) "[" letters "&&[^\\p{Han}]]"
#define UPPER              HAN_APART("\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}")
#define LOWER              HAN_APART("\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}")
#define ENDINGS            "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

/* Kimi's expression: OpenAI's latest one, with Chinese characters separate. */
static const char kimi[] = "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
                           "*" ENDINGS "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static const struct {
    const char *classes, *families; /* with spaces around each */
    const char *pre;                /* GGUF's name of the expression; NULL: `pattern` */
    const char *pattern;
    const apr_tiktoken_specials *specials; /* NULL: listed in tokenizer_config.json */
} rows[] = {
    {" TikTokenTokenizer ", " kimi_k2 kimi_k25 kimi_linear ", NULL, kimi, NULL},
    {" ChatGLM4Tokenizer ", " chatglm glm4 glm4_moe ", "llama-bpe", NULL, NULL},
    {" LlamaTokenizer Llama3Tokenizer ", " llama mllama llama4 ", "llama-bpe", NULL, &llama3_specials},
    {" QWenTokenizer ", " qwen ", "qwen2", NULL, &qwen_specials},
    {" Qwen3_5Tokenizer ", " qwen3_5 qwen3_5_moe qwen3_5_text qwen3_5_moe_text ", "qwen35", NULL, NULL},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static bool lists(const char *names, const char *name)
{
    const size_t n = name != NULL ? strlen(name) : 0;

    for (const char *at = n > 0 ? strstr(names, name) : NULL; at != NULL; at = strstr(at + 1, name))
        if (at > names && at[-1] == ' ' && at[n] == ' ') return true;
    return false;
}

bool apr_tiktoken_class_of(const char *tokenizer_class, const char *family, apr_tiktoken_class *class)
{
    for (int pass = 0; pass < 2; pass++) /* the class decides before the family */
        for (size_t i = 0; i < N_ROWS; i++) {
            if (!(pass == 0 ? lists(rows[i].classes, tokenizer_class) : lists(rows[i].families, family))) continue;
            const apr_pre_rule *const rule = apr_pre_find(rows[i].pre);
            *class = (apr_tiktoken_class){rule != NULL ? rule->pattern : rows[i].pattern, rule != NULL && rule->nfc, rows[i].specials};
            return true;
        }
    return false;
}

/* --- lines --- */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";

bool apr_is_tiktoken(const apr_attachment *file)
{
    size_t n = 0;

    while (n < file->n_bytes && file->data[n] != '\0' && strchr(letters, file->data[n]) != NULL) n++;
    return n > 0 && n + 1 < file->n_bytes && file->data[n] == ' ' && file->data[n + 1] >= '0' && file->data[n + 1] <= '9';
}

typedef struct reading {
    const apr_attachment *file;
    size_t at, line;
    apr_arena *arena;
    const char *where;
    apr_error *err;
} reading;

static apr_status bad_line(const reading *r)
{
    return apr_fail(r->err, APR_E_DAMAGED, "%s: line %zu is not a token in base64 and its rank", r->where, r->line);
}

/* The next line's token, of at most MAX_BYTES bytes, and rank; *is_end: there is none. */
static apr_status read_line(reading *r, uint8_t *bytes, size_t *n_bytes, size_t *rank, bool *is_end)
{
    const char *const text = (const char *)r->file->data + r->at;
    const size_t n_left = r->file->n_bytes - r->at;
    size_t n = 0;

    *is_end = n_left == 0;
    if (*is_end) return APR_OK;
    r->line++;
    while (n < n_left && text[n] != ' ' && text[n] != '\n') n++;
    if (n == n_left || text[n] != ' ' || n == 0) return bad_line(r);
    *n_bytes = apr_base64_bytes(text, n);
    if (*n_bytes > MAX_BYTES)
        return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: line %zu has a token of more than %d bytes", r->where, r->line, MAX_BYTES);
    if (*n_bytes == 0 || !apr_base64_decode(text, n, bytes)) return bad_line(r);
    const size_t first = ++n;
    for (*rank = 0; n < n_left && text[n] >= '0' && text[n] <= '9' && *rank < MAX_TOKENS; n++) *rank = *rank * 10 + (size_t)(text[n] - '0');
    if (n == first || *rank >= MAX_TOKENS) return bad_line(r);
    if (n < n_left && text[n] == '\r') n++;
    if (n < n_left && text[n] != '\n') return bad_line(r);
    r->at += n < n_left ? n + 1 : n;
    return APR_OK;
}

static size_t count_lines(const apr_attachment *file)
{
    size_t n = 0;
    for (size_t i = 0; i < file->n_bytes; i++) n += file->data[i] == '\n' || i + 1 == file->n_bytes;
    return n;
}

/* --- the vocabulary --- */

static apr_status add_specials(const reading *r, const apr_tiktoken_specials *specials, apr_str *tokens, uint8_t *types, uint8_t *added,
                               apr_vocab *v, size_t n_ranks)
{
    for (size_t i = 0; i < specials->n; i++) {
        const char *const text = specials->text(i, r->arena);
        if (text == NULL) return apr_no_memory(r->err, "the tokens");
        tokens[n_ranks + i] = apr_str_of(text);
        types[n_ranks + i] = APR_TOKEN_CONTROL;
        added[n_ranks + i] = APR_ADDED;
    }
    if (specials->bos >= 0) v->bos_id = (int32_t)n_ranks + specials->bos;
    if (specials->eos >= 0) v->eos_id = (int32_t)n_ranks + specials->eos;
    v->add_bos = specials->bos >= 0;
    for (size_t i = 0; i < sizeof specials->stops / sizeof *specials->stops; i++)
        if (specials->stops[i] >= 0) apr_vocab_add_stop(v, (int64_t)n_ranks + specials->stops[i]);
    return APR_OK;
}

static apr_status read_ranks(reading *r, apr_str *tokens, size_t n_ranks)
{
    uint8_t bytes[MAX_BYTES + 3];
    size_t n_bytes = 0, rank = 0;
    bool is_end = false;

    while (true) {
        APR_TRY(read_line(r, bytes, &n_bytes, &rank, &is_end));
        if (is_end) return APR_OK;
        if (rank >= n_ranks)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: line %zu has the rank %zu, but there are only %zu lines", r->where, r->line, rank,
                            n_ranks);
        if (tokens[rank].text != NULL) return apr_fail(r->err, APR_E_DAMAGED, "%s: two tokens have the rank %zu", r->where, rank);
        tokens[rank] = apr_byte_letters(bytes, n_bytes, r->arena);
        if (tokens[rank].text == NULL) return apr_no_memory(r->err, "the tokens");
    }
}

apr_status apr_tiktoken_read(const apr_attachment *file, const apr_tiktoken_class *class, apr_vocab *v, apr_arena *arena, const char *where,
                             apr_error *err)
{
    reading r = {.file = file, .arena = arena, .where = where, .err = err};
    const size_t n_ranks = count_lines(file), n = n_ranks + (class->specials != NULL ? class->specials->n : 0);
    apr_str *const tokens = apr_arena_array(arena, n, sizeof *tokens);
    uint8_t *const types = apr_arena_array(arena, n, 1), *const added = apr_arena_array(arena, n, 1);

    if (tokens == NULL || types == NULL || added == NULL) return apr_no_memory(err, "the tokens");
    memset(types, APR_TOKEN_NORMAL, n);
    APR_TRY(read_ranks(&r, tokens, n_ranks));
    v->tokens = tokens;
    v->types = types;
    v->added = added;
    v->n_tokens = n;
    v->ignore_merges = true; /* a word that has a rank is that token */
    v->pattern = class->pattern;
    v->nfc = class->nfc;
    v->pre = apr_pre_name(v->pattern);
    v->kind = APR_VOCAB_BPE;
    if (class->specials != NULL) APR_TRY(add_specials(&r, class->specials, tokens, types, added, v, n_ranks));
    return apr_rank_merges(v, arena, where, err);
}
