/* tokenize.c - a text to tokens, and tokens to a text, with a model's own tokenizer. */
#include "tools/verbs/verbs.h"

#include "runtime/template/chat.h"
#include "tools/report/table.h"
#include "tools/report/text.h"
#include "tools/verbs/run/prompt.h"
#include "tools/verbs/run/running.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tokenize_options {
    const char *prompt, *file, *system;
    bool ids, count, chat, no_special;
} tokenize_options;

static const apr_option tokenize_table[] = {
    {"prompt", 'p', APR_OPTION_STRING, "TEXT", NULL, "the text, like TEXT; - reads stdin, as does a pipe into aprrun",
     APR_TO(tokenize_options, prompt), .group = "Text"},
    {"file", 'f', APR_OPTION_STRING, "FILE", NULL, "the text from a file or a pipe; - reads stdin", APR_TO(tokenize_options, file)},
    {"chat", 0, APR_OPTION_FLAG, NULL, NULL, "tokenize the text as a user message in the model's chat template",
     APR_TO(tokenize_options, chat)},
    {"system", 0, APR_OPTION_STRING, "TEXT", NULL, "a system message before the text; implies --chat", APR_TO(tokenize_options, system)},
    {"no-special", 0, APR_OPTION_FLAG, NULL, NULL, "do not add begin and end tokens, even if the model asks for them",
     APR_TO(tokenize_options, no_special)},
    {"ids", 0, APR_OPTION_FLAG, NULL, NULL, "only the ids, on one line", APR_TO(tokenize_options, ids), .group = "Answer"},
    {"count", 0, APR_OPTION_FLAG, NULL, NULL, "only the number of tokens", APR_TO(tokenize_options, count)},
    {0},
};

static const char *const tokenize_examples[] = {
    "aprrun tokenize model.gguf 'In the beginning'",
    "aprrun tokenize checkpoint/ -f prompt.txt --count",
    "aprrun tokenize model.gguf --ids --chat 'Why is the sky blue?'",
    NULL,
};

enum { MOST_DETOKENIZED = 1 << 24 };

typedef struct detokenize_options {
    bool no_special;
} detokenize_options;

static const apr_option detokenize_table[] = {
    {"no-special", 0, APR_OPTION_FLAG, NULL, NULL,
     "the ids have no added begin and end tokens (tokenize --no-special); by default one of each is left out if the model adds it",
     APR_TO(detokenize_options, no_special)},
    {0},
};

static const char *const detokenize_examples[] = {
    "aprrun detokenize model.gguf 641 262 7266",
    "aprrun tokenize model.gguf --ids 'In the beginning' | aprrun detokenize model.gguf",
    NULL,
};

/* --- the tokenizer --- */

/* A model that was opened for its tokenizer. */
typedef struct opened {
    aprkit_model *model;
    aprkit_session *session;
} opened;

static apr_status open_tokenizer(opened *o, const char *path, apr_error *err)
{
    const aprkit_model_options only = {.size = sizeof only, .map = 1, .tokenizer_only = 1}; /* tools/report/guard.h handles SIGBUS */
    aprkit_error error;

    if (aprkit_model_open(&o->model, path, &only, &error) != APRKIT_OK) return apr_library_failed(&error, err);
    return aprkit_session_open(&o->session, o->model, NULL, &error) == APRKIT_OK ? APR_OK : apr_library_failed(&error, err);
}

static void close_tokenizer(opened *o)
{
    aprkit_session_close(o->session);
    aprkit_model_close(o->model);
}

/* The bytes that one token stands for, control tokens as they are written; malloc'ed. */
static apr_status bytes_of(const opened *o, int32_t id, char **bytes, size_t *n, apr_error *err)
{
    *n = apr_tokenizer_token_bytes(o->session->running.tokenizer, id, true, NULL, 0);
    *bytes = malloc(*n + 1);
    if (*bytes == NULL) return apr_no_memory(err, "a token");
    apr_tokenizer_token_bytes(o->session->running.tokenizer, id, true, *bytes, *n);
    return APR_OK;
}

static void bytes_json(apr_json_text *json, const char *bytes, size_t n)
{
    apr_json_open(json, "bytes", '[');
    for (size_t i = 0; i < n; i++) apr_json_int(json, NULL, (unsigned char)bytes[i]);
    apr_json_close(json, ']');
}

/* --- tokenize --- */

static void ids_json(apr_json_text *json, const int32_t *ids, size_t n)
{
    apr_json_open(json, "ids", '[');
    for (size_t i = 0; i < n; i++) apr_json_int(json, NULL, ids[i]);
    apr_json_close(json, ']');
}

static apr_status token_json(const opened *o, size_t position, int32_t id, apr_json_text *json, apr_error *err)
{
    char *bytes;
    size_t n;

    APR_TRY(bytes_of(o, id, &bytes, &n, err));
    apr_json_open(json, NULL, '{');
    apr_json_uint(json, "position", position);
    apr_json_int(json, "id", id);
    apr_json_string(json, "piece", bytes, n);
    bytes_json(json, bytes, n);
    apr_json_close(json, '}');
    free(bytes);
    return APR_OK;
}

static apr_status answer_json(const opened *o, const tokenize_options *asked, const int32_t *ids, size_t n, apr_json_text *json,
                              apr_error *err)
{
    if (!asked->ids) apr_json_uint(json, "count", n);
    if (!asked->count) ids_json(json, ids, n);
    if (asked->ids || asked->count) return APR_OK;
    apr_json_open(json, "tokens", '[');
    apr_status status = APR_OK;
    for (size_t i = 0; i < n && status == APR_OK; i++) status = token_json(o, i, ids[i], json, err);
    apr_json_close(json, ']');
    return status;
}

static apr_status add_row(const opened *o, size_t position, int32_t id, apr_table *table, apr_error *err)
{
    enum { GROWTH = 4 }; /* "\x1b" */
    char *bytes;
    size_t n;

    APR_TRY(bytes_of(o, id, &bytes, &n, err));
    char *const clean = malloc(GROWTH * n + 1);
    if (clean != NULL) {
        apr_table_cell(table, "%zu", position);
        apr_table_cell(table, "%d", (int)id);
        apr_table_cell(table, "\"%s\"", apr_clean_text(clean, GROWTH * n + 1, bytes, n));
        apr_table_cell(table, "%zu", n);
    }
    free(bytes);
    free(clean);
    return clean != NULL ? APR_OK : apr_no_memory(err, "a token");
}

static apr_status print_tokens(const opened *o, const int32_t *ids, size_t n, apr_error *err)
{
    static const apr_column columns[] = {{"position", true}, {"id", true}, {"piece", false}, {"bytes", true}};
    apr_status status = APR_OK;
    apr_table table;

    apr_table_start(&table, columns, 4);
    for (size_t i = 0; i < n && status == APR_OK; i++) status = add_row(o, i, ids[i], &table, err);
    if (status == APR_OK) return apr_table_print(&table, stdout, 0, err);
    apr_table_close(&table);
    return status;
}

static apr_status answer(const opened *o, const apr_call *call, const int32_t *ids, size_t n, apr_error *err)
{
    const tokenize_options *const asked = call->options;

    if (call->answer->json) return answer_json(o, asked, ids, n, &call->answer->body, err);
    if (asked->count) printf("%zu\n", n);
    if (asked->count) return APR_OK;
    if (!asked->ids) return print_tokens(o, ids, n, err);
    for (size_t i = 0; i < n; i++) printf(i > 0 ? " %d" : "%d", (int)ids[i]);
    putchar('\n');
    return APR_OK;
}

static apr_status tokenize(const opened *o, const char *text, size_t n_bytes, int special, int32_t **ids, size_t *n_ids, apr_error *err)
{
    aprkit_error error;
    return aprkit_tokenize(o->session, text, n_bytes, special, ids, n_ids, &error) == APRKIT_OK ? APR_OK : apr_library_failed(&error, err);
}

static apr_status encode(const opened *o, const tokenize_options *asked, const char *text, size_t n_bytes, int32_t **ids, size_t *n_ids,
                         apr_error *err)
{
    const apr_subject subject = {
        .path = o->model->model.path, .vocab = o->session->vocab, .tokenizer = o->session->running.tokenizer, .now = apr_local_seconds()};
    char *rendered = NULL;
    size_t n = 0;

    if (!asked->chat && asked->system == NULL)
        return tokenize(o, text, n_bytes, asked->no_special ? APRKIT_PARSE_SPECIAL : APRKIT_ALL_SPECIAL, ids, n_ids, err);
    if (strlen(text) != n_bytes)
        return apr_fail(err, APR_E_UNSUPPORTED, "the text has a NUL at byte %zu, which no chat template takes", strlen(text));
    APR_TRY(apr_subject_chat(&subject, asked->system, text, &rendered, &n, err));
    const apr_status status = tokenize(o, rendered, n, APRKIT_PARSE_SPECIAL, ids, n_ids, err);
    free(rendered);
    return status;
}

static apr_status run_tokenize(const apr_call *call, apr_error *err)
{
    const tokenize_options *const asked = call->options;
    const char *const operand = call->n_operands > 1 ? call->operands[1] : NULL;
    opened o = {0};
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n_text = 0, n = 0;

    if (asked->ids && asked->count) return apr_fail(err, APR_E_USAGE, "give --ids or --count, not both");
    if (operand != NULL && asked->prompt != NULL) return apr_fail(err, APR_E_USAGE, "the text is given twice: leave --prompt out");
    APR_TRY(apr_read_prompt(operand != NULL ? operand : asked->prompt, asked->file, &text, &n_text, err));
    apr_status status = open_tokenizer(&o, call->operands[0], err);
    if (status == APR_OK) status = encode(&o, asked, text, n_text, &ids, &n, err);
    if (status == APR_OK) status = answer(&o, call, ids, n, err);
    aprkit_free(ids);
    free(text);
    close_tokenizer(&o);
    return status;
}

/* --- detokenize --- */

/* Length of the word that a message quotes. */
static int shown_bytes(const char *word, const char *end)
{
    int n = 0;
    while (word + n < end && n < 40 && !isspace((unsigned char)word[n])) n++;
    return n;
}

/* The ids of a text: numbers with blanks, commas or brackets between them. */
static apr_status read_ids(const opened *o, const char *text, size_t n_bytes, int32_t **ids, size_t *n, apr_error *err)
{
    const char *const end = text + n_bytes;
    size_t capacity = n_bytes / 2 + 1;

    *ids = malloc(capacity * sizeof **ids);
    if (*ids == NULL) return apr_no_memory(err, "the ids");
    for (const char *p = text; p < end; p++) {
        if (isspace((unsigned char)*p) || *p == ',' || *p == '[' || *p == ']') continue;
        int64_t id = 0;
        const char *const begin = p;
        while (p < end && isdigit((unsigned char)*p) && id <= INT32_MAX) id = 10 * id + (*p++ - '0');
        const bool is_ended = p == end || isspace((unsigned char)*p) || *p == ',' || *p == ']';
        if (p == begin || !is_ended) return apr_fail(err, APR_E_USAGE, "'%.*s' is not a token id", shown_bytes(begin, end), begin);
        if ((uint64_t)id >= o->session->vocab->n_tokens)
            return apr_fail(err, APR_E_USAGE, "token id %lld is outside the vocabulary of %zu", (long long)id, o->session->vocab->n_tokens);
        (*ids)[(*n)++] = (int32_t)id;
    }
    return APR_OK;
}

/* The operands with blanks between them, or the text of stdin; malloc'ed. */
static apr_status read_numbers(const apr_call *call, char **text, size_t *n_bytes, apr_error *err)
{
    size_t n = 0, at = 0;

    if (call->n_operands == 1 && isatty(STDIN_FILENO))
        return apr_fail(err, APR_E_USAGE, "give token ids, or a pipe: aprrun tokenize MODEL --ids TEXT | aprrun detokenize MODEL");
    if (call->n_operands == 1) return apr_read_prompt("-", NULL, text, n_bytes, err);
    for (size_t i = 1; i < call->n_operands; i++) n += strlen(call->operands[i]) + 1;
    *text = malloc(n + 1);
    if (*text == NULL) return apr_no_memory(err, "the ids");
    for (size_t i = 1; i < call->n_operands; i++) {
        const size_t n_operand = strlen(call->operands[i]);
        memcpy(*text + at, call->operands[i], n_operand);
        at += n_operand;
        (*text)[at++] = ' ';
    }
    (*text)[at] = '\0';
    *n_bytes = at;
    return APR_OK;
}

/* Drops the begin and end tokens that encoding adds. */
static void drop_added(const opened *o, int32_t **first, size_t *n)
{
    const apr_vocab *const v = o->session->vocab;

    if (*n > 0 && v->add_bos && (*first)[0] == v->bos_id) {
        ++*first;
        --*n;
    }
    if (*n > 0 && v->add_eos && (*first)[*n - 1] == v->eos_id) --*n;
}

static apr_status print_bytes(const char *bytes, size_t n, apr_error *err)
{
    apr_terminal_text terminal = {0};
    char *const clean = malloc((n + 1) * APR_TERMINAL_TEXT_GROWTH);

    if (clean == NULL) return apr_no_memory(err, "a text");
    const bool is_terminal = isatty(STDOUT_FILENO);
    if (is_terminal) n = apr_terminal_clean(&terminal, clean, bytes, n, true);
    const bool is_written = fwrite(is_terminal ? clean : bytes, 1, n, stdout) == n && putchar('\n') != EOF;
    free(clean);
    return is_written ? APR_OK : apr_fail(err, APR_E_IO, "stdout: %s", strerror(errno));
}

static apr_status detokenize(const opened *o, const apr_call *call, const char *text, size_t n_text, apr_error *err)
{
    const detokenize_options *const asked = call->options;
    int32_t *ids = NULL;
    char *bytes = NULL;
    size_t n_ids = 0, n_bytes = 0;
    aprkit_error error;

    apr_status status = read_ids(o, text, n_text, &ids, &n_ids, err);
    int32_t *first = ids;
    if (status == APR_OK && !asked->no_special) drop_added(o, &first, &n_ids);
    if (status == APR_OK && aprkit_detokenize(o->session, first, n_ids, 1, &bytes, &n_bytes, &error) != APRKIT_OK)
        status = apr_library_failed(&error, err);
    if (status == APR_OK && call->answer->json) {
        apr_json_string(&call->answer->body, "text", bytes, n_bytes);
        bytes_json(&call->answer->body, bytes, n_bytes);
    } else if (status == APR_OK) {
        status = print_bytes(bytes, n_bytes, err);
    }
    free(ids);
    aprkit_free(bytes);
    return status;
}

static apr_status run_detokenize(const apr_call *call, apr_error *err)
{
    opened o = {0};
    char *text = NULL;
    size_t n = 0;

    APR_TRY(read_numbers(call, &text, &n, err));
    apr_status status = open_tokenizer(&o, call->operands[0], err);
    if (status == APR_OK) status = detokenize(&o, call, text, n, err);
    free(text);
    close_tokenizer(&o);
    return status;
}

const apr_command apr_tokenize_command = {.verb = "tokenize",
                                          .operands = "MODEL [TEXT]",
                                          .min_operands = 1,
                                          .max_operands = 2,
                                          .summary = "a text's tokens, without opening the weights",
                                          .options = tokenize_table,
                                          .options_bytes = sizeof(tokenize_options),
                                          .examples = tokenize_examples,
                                          .run = run_tokenize};

const apr_command apr_detokenize_command = {.verb = "detokenize",
                                            .operands = "MODEL [ID...]",
                                            .min_operands = 1,
                                            .max_operands = MOST_DETOKENIZED,
                                            .summary = "the text of token ids",
                                            .options = detokenize_table,
                                            .options_bytes = sizeof(detokenize_options),
                                            .examples = detokenize_examples,
                                            .run = run_detokenize};
