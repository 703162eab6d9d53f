/* tekken.c - reads tekken.json. Tokens become text in GPT-2's byte alphabet; merges are derived from the ranks. */
#include "formats/vocab/tekken.h"

#include "formats/base/base64.h"
#include "formats/base/json.h"
#include "formats/vocab/rank_merges.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1024 }; /* of a token */

typedef struct reading {
    const cJSON *root;
    apr_vocab *vocab;
    apr_str *tokens;
    uint8_t *types, *added;
    size_t n_special;
    apr_arena *arena;
    const char *where;
    apr_error *err;
} reading;

/* The special tokens of files without special_tokens. */
static const char *const first_specials[] = {"<unk>",
                                             "<s>",
                                             "</s>",
                                             "[INST]",
                                             "[/INST]",
                                             "[AVAILABLE_TOOLS]",
                                             "[/AVAILABLE_TOOLS]",
                                             "[TOOL_RESULTS]",
                                             "[/TOOL_RESULTS]",
                                             "[TOOL_CALLS]",
                                             "[IMG]",
                                             "<pad>",
                                             "[IMG_BREAK]",
                                             "[IMG_END]",
                                             "[PREFIX]",
                                             "[MIDDLE]",
                                             "[SUFFIX]",
                                             "[SYSTEM_PROMPT]",
                                             "[/SYSTEM_PROMPT]",
                                             "[TOOL_CONTENT]"};
enum { N_FIRST = sizeof first_specials / sizeof *first_specials };

/* --- sizes --- */

static apr_status read_sizes(reading *r)
{
    const cJSON *const config = apr_json_get(r->root, "config"), *const entries = apr_json_get(r->root, "vocab");
    int64_t n_tokens = 0, n_special = 0;

    if (!cJSON_IsArray(entries) || !apr_json_get_int(config, "default_vocab_size", &n_tokens) ||
        !apr_json_get_int(config, "default_num_special_tokens", &n_special) || apr_json_get_string(config, "pattern") == NULL)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: vocab, default_vocab_size, default_num_special_tokens or pattern is missing", r->where);
    if (n_special < 0 || n_special > 65536 || n_tokens < n_special || n_tokens - n_special > cJSON_GetArraySize(entries))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: has %d tokens, but should have %" PRId64 " with %" PRId64 " special ones", r->where,
                        cJSON_GetArraySize(entries), n_tokens, n_special);
    r->vocab->n_tokens = (size_t)n_tokens;
    r->n_special = (size_t)n_special;
    r->tokens = apr_arena_array(r->arena, (size_t)n_tokens, sizeof *r->tokens);
    r->types = apr_arena_array(r->arena, (size_t)n_tokens, 1);
    r->added = apr_arena_array(r->arena, (size_t)n_tokens, 1);
    return r->tokens != NULL && r->types != NULL && r->added != NULL ? APR_OK : apr_no_memory(r->err, "the tokens");
}

/* --- tokens --- */

static apr_status put_token(reading *r, size_t id, const uint8_t *bytes, size_t n)
{
    r->tokens[id] = apr_byte_letters(bytes, n, r->arena);
    r->types[id] = APR_TOKEN_NORMAL;
    return r->tokens[id].text != NULL ? APR_OK : apr_no_memory(r->err, "the tokens");
}

static apr_status read_token(reading *r, const cJSON *entry)
{
    const char *const text = apr_json_get_string(entry, "token_bytes");
    uint8_t bytes[MAX_BYTES + 3];
    int64_t rank;

    if (!apr_json_get_int(entry, "rank", &rank) || rank < 0 || text == NULL)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: a token lacks rank or token_bytes", r->where);
    if ((uint64_t)rank >= r->vocab->n_tokens - r->n_special) return APR_OK; /* more were trained than the model has */
    const size_t id = (size_t)rank + r->n_special, n_text = strlen(text), n = apr_base64_bytes(text, n_text);
    if (n > MAX_BYTES) return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: token %zu has more than %d bytes", r->where, id, MAX_BYTES);
    if (n == 0 || !apr_base64_decode(text, n_text, bytes))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: the bytes of token %zu are not base64", r->where, id);
    if (r->tokens[id].text != NULL) return apr_fail(r->err, APR_E_DAMAGED, "%s: two tokens have the rank %" PRId64, r->where, rank);
    return put_token(r, id, bytes, n);
}

static apr_status put_special(reading *r, size_t id, const char *text)
{
    if (r->tokens[id].text != NULL) return apr_fail(r->err, APR_E_DAMAGED, "%s: two special tokens have the rank %zu", r->where, id);
    r->tokens[id] = (apr_str){apr_arena_copy(r->arena, text, strlen(text)), strlen(text)};
    r->types[id] = APR_TOKEN_CONTROL;
    r->added[id] = APR_ADDED;
    return r->tokens[id].text != NULL ? APR_OK : apr_no_memory(r->err, "the tokens");
}

static apr_status read_specials(reading *r)
{
    const cJSON *const list = apr_json_get(r->root, "special_tokens"), *entry;
    int64_t rank;

    cJSON_ArrayForEach(entry, list)
    {
        const char *const text = apr_json_get_string(entry, "token_str");
        if (!apr_json_get_int(entry, "rank", &rank) || rank < 0 || (uint64_t)rank >= r->n_special || text == NULL || *text == '\0')
            return apr_fail(r->err, APR_E_DAMAGED, "%s: a special token lacks token_str, or a rank below %zu", r->where, r->n_special);
        APR_TRY(put_special(r, (size_t)rank, text));
    }
    for (size_t id = 0; !cJSON_IsArray(list) && id < N_FIRST && id < r->n_special; id++) APR_TRY(put_special(r, id, first_specials[id]));
    for (size_t id = 0; id < r->n_special; id++) {
        if (r->tokens[id].text != NULL) continue;
        const char *const text = apr_arena_print(r->arena, "<SPECIAL_%zu>", id);
        if (text == NULL) return apr_no_memory(r->err, "the tokens");
        APR_TRY(put_special(r, id, text));
    }
    return APR_OK;
}

static apr_status check_all_there(const reading *r)
{
    for (size_t id = 0; id < r->vocab->n_tokens; id++)
        if (r->tokens[id].text == NULL)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: no token has the rank %zu", r->where, id - r->n_special);
    return APR_OK;
}

/* --- the whole --- */

static int32_t special_id(const reading *r, const char *text)
{
    for (size_t id = 0; id < r->n_special; id++)
        if (apr_str_is(r->tokens[id], text)) return (int32_t)id;
    return -1;
}

static apr_status read_all(reading *r)
{
    apr_vocab *const v = r->vocab;
    const cJSON *entry;

    APR_TRY(read_sizes(r));
    const char *const pattern = apr_json_get_string(apr_json_get(r->root, "config"), "pattern");
    v->pattern = apr_arena_copy(r->arena, pattern, strlen(pattern));
    if (v->pattern == NULL) return apr_no_memory(r->err, "the splitting expression");
    cJSON_ArrayForEach(entry, apr_json_get(r->root, "vocab")) APR_TRY(read_token(r, entry));
    APR_TRY(read_specials(r));
    APR_TRY(check_all_there(r));
    v->kind = APR_VOCAB_BPE;
    v->tokens = r->tokens;
    v->types = r->types;
    v->added = r->added;
    v->pre = apr_pre_name(v->pattern);
    v->ignore_merges = true;
    v->bos_id = special_id(r, "<s>");
    v->eos_id = special_id(r, "</s>");
    v->pad_id = special_id(r, "<pad>");
    v->unk_id = special_id(r, "<unk>");
    v->add_bos = v->bos_id >= 0;
    apr_vocab_add_stop(v, v->eos_id);
    return apr_rank_merges(v, r->arena, r->where, r->err);
}

/* The file has a readable text of each token, also of the byte 0, which a C string cannot hold. Returns a copy with U+FFFD in its place,
 * malloc'ed. These texts are not used. */
static char *without_nul(const apr_attachment *file)
{
    char *const text = malloc(file->n_bytes + 1);

    if (text == NULL) return NULL;
    if (file->n_bytes > 0) memcpy(text, file->data, file->n_bytes);
    for (size_t i = 0; i + 5 < file->n_bytes; i++) {
        if (text[i] != '\\') continue;
        if (memcmp(text + i + 1, "u0000", 5) == 0) memcpy(text + i + 2, "fffd", 4);
        i++; /* the escaped character */
    }
    return text;
}

apr_status apr_tekken_read(const apr_attachment *file, apr_vocab *vocab, apr_arena *arena, const char *where, apr_error *err)
{
    char *const text = without_nul(file);
    cJSON *root = NULL;

    if (text == NULL) return apr_no_memory(err, "tekken.json");
    const apr_status parsed = apr_json_parse(&root, text, file->n_bytes, where, err);
    free(text);
    if (parsed != APR_OK) return parsed;
    reading r = {.root = root, .vocab = vocab, .arena = arena, .where = where, .err = err};
    const apr_status status = read_all(&r);
    cJSON_Delete(root);
    return status;
}
