/* hf_tokenizer.c - tokenizer.json and its companions to a vocabulary; a tokenizer that the vocabulary cannot express exactly
 * stays APR_VOCAB_NONE, because a text tokenized almost right is worse than one refused. */
#include "formats/json.h"
#include "formats/safetensors.h"

#include <inttypes.h>
#include <string.h>

#define SPM_SPACE "\xe2\x96\x81" /* U+2581, SentencePiece's visible space */

typedef struct reading {
    const apr_model *model;
    apr_vocab *vocab;
    apr_arena *arena;
    apr_error *err;
    const char *where;         /* the tokenizer.json, in messages */
    cJSON *tokenizer, *config; /* tokenizer.json, tokenizer_config.json; NULL: not there */
    cJSON *generation, *model_config, *special_map, *template_json;
    apr_str *tokens; /* what vocab will point to */
    uint8_t *types, *added;
} reading;

/* What the steps before the merges do. */
typedef struct pipeline {
    bool strange; /* something the vocabulary cannot express */
    bool byte_level, byte_level_words, digits;
    int n_patterns;
    const char *pattern; /* of the tree; copied later */
    bool nfc, add_space_prefix, space_after_added, escape_spaces;
    bool has_template;
    const char *first_token, *last_token; /* what the post-processor puts around a text */
} pipeline;

/* --- the steps --- */

static bool is_string(const cJSON *object, const char *key, const char *text)
{
    const char *const found = apr_json_get_string(object, key);
    return found != NULL && strcmp(found, text) == 0;
}

static bool flag_of(const cJSON *object, const char *key, bool otherwise)
{
    apr_json_get_bool(object, key, &otherwise);
    return otherwise;
}

/* "Isolated": matches and what lies between them are pieces. "Removed" and inverted keeps the matches alone: the same for
 * the patterns in use, which match everything. */
static void split_step(const cJSON *step, pipeline *p)
{
    const cJSON *const pattern = apr_json_get(step, "pattern");
    const char *const regex = apr_json_get_string(pattern, "Regex");
    const bool invert = flag_of(step, "invert", false);

    if (regex == NULL) {
        /* gemma: a split at spaces, of which the normalizer has left none */
        if (!is_string(pattern, "String", " ") || !p->escape_spaces) p->strange = true;
        return;
    }
    if (!(is_string(step, "behavior", "Isolated") && !invert) && !(is_string(step, "behavior", "Removed") && invert)) p->strange = true;
    if (p->byte_level) p->strange = true;
    p->n_patterns++;
    p->pattern = regex;
}

static void byte_level_step(const cJSON *step, pipeline *p)
{
    if (p->byte_level || flag_of(step, "add_prefix_space", true)) p->strange = true;
    p->byte_level = true;
    p->byte_level_words = flag_of(step, "use_regex", true);
}

static void digits_step(const cJSON *step, pipeline *p)
{
    if (p->byte_level || !flag_of(step, "individual_digits", false)) p->strange = true;
    p->digits = true;
}

/* Splitting at the spaces would keep merges from crossing them, which the vocabulary cannot express. (With a text that begins
 * with a space this step adds none, SentencePiece and the vocabulary do.) */
static void metaspace_step(const cJSON *step, pipeline *p)
{
    const char *scheme = apr_json_get_string(step, "prepend_scheme");
    if (scheme == NULL) scheme = flag_of(step, "add_prefix_space", true) ? "always" : "never";
    if (!is_string(step, "replacement", SPM_SPACE) || flag_of(step, "split", true)) p->strange = true;
    p->escape_spaces = true;
    if (strcmp(scheme, "never") != 0) p->add_space_prefix = true;
    if (strcmp(scheme, "always") == 0) p->space_after_added = true;
}

static void nfc_step(const cJSON *step, pipeline *p)
{
    (void)step;
    p->nfc = true;
}

static void prepend_step(const cJSON *step, pipeline *p)
{
    if (!is_string(step, "prepend", SPM_SPACE)) p->strange = true;
    p->add_space_prefix = p->space_after_added = true;
}

static void replace_step(const cJSON *step, pipeline *p)
{
    if (!is_string(apr_json_get(step, "pattern"), "String", " ") || !is_string(step, "content", SPM_SPACE)) p->strange = true;
    p->escape_spaces = true;
}

/* Nothing but one token before the text and one behind it can be expressed. */
static void template_step(const cJSON *step, pipeline *p)
{
    const cJSON *part;
    bool behind = false;

    if (p->has_template) p->strange = true;
    p->has_template = true;
    cJSON_ArrayForEach(part, apr_json_get(step, "single"))
    {
        if (apr_json_get(part, "Sequence") != NULL) {
            behind = true;
            continue;
        }
        const char **const token = behind ? &p->last_token : &p->first_token;
        if (*token != NULL) p->strange = true;
        *token = apr_json_get_string(apr_json_get(part, "SpecialToken"), "id");
        if (*token == NULL) p->strange = true;
    }
}

/* Offsets only; the ids are not touched. */
static void no_step(const cJSON *step, pipeline *p)
{
    (void)step;
    (void)p;
}

typedef struct step_rule {
    const char *type;
    void (*apply)(const cJSON *step, pipeline *p);
} step_rule;

static const step_rule normalizer_rules[] = {{"NFC", nfc_step}, {"Prepend", prepend_step}, {"Replace", replace_step}, {NULL, NULL}};
static const step_rule pre_tokenizer_rules[] = {
    {"Split", split_step}, {"ByteLevel", byte_level_step}, {"Digits", digits_step}, {"Metaspace", metaspace_step}, {NULL, NULL}};
static const step_rule post_processor_rules[] = {{"TemplateProcessing", template_step}, {"ByteLevel", no_step}, {NULL, NULL}};

/* One step, or a Sequence of them under `list`. A type without a rule is strange. */
static void walk(const cJSON *step, const char *list, const step_rule *rules, pipeline *p)
{
    const char *const type = apr_json_get_string(step, "type");
    const cJSON *inner;

    if (step == NULL || cJSON_IsNull(step)) return;
    if (type != NULL && strcmp(type, "Sequence") == 0) {
        cJSON_ArrayForEach(inner, apr_json_get(step, list)) walk(inner, list, rules, p);
        return;
    }
    for (; type != NULL && rules->type != NULL; rules++)
        if (strcmp(rules->type, type) == 0) {
            rules->apply(step, p);
            return;
        }
    p->strange = true;
}

static bool has_text(const cJSON *object, const char *key)
{
    const char *const text = apr_json_get_string(object, key);
    return text != NULL && *text != '\0';
}

static pipeline read_pipeline(const cJSON *tokenizer)
{
    pipeline p = {0};
    const cJSON *const model = apr_json_get(tokenizer, "model");
    double dropout = 0;

    walk(apr_json_get(tokenizer, "normalizer"), "normalizers", normalizer_rules, &p);
    walk(apr_json_get(tokenizer, "pre_tokenizer"), "pretokenizers", pre_tokenizer_rules, &p);
    walk(apr_json_get(tokenizer, "post_processor"), "processors", post_processor_rules, &p);
    if (apr_json_get(model, "type") != NULL && !is_string(model, "type", "BPE")) p.strange = true;
    if (has_text(model, "continuing_subword_prefix") || has_text(model, "end_of_word_suffix")) p.strange = true;
    if (apr_json_get_real(model, "dropout", &dropout) && dropout > 0) p.strange = true;
    if (p.n_patterns + p.byte_level_words > 1) p.strange = true;
    if (p.digits && !p.byte_level_words) p.strange = true;
    if (p.byte_level_words) p.pattern = apr_pre_pattern(p.digits ? "starcoder" : "gpt-2");
    return p;
}

static apr_vocab_kind kind_of(const pipeline *p, bool byte_fallback)
{
    if (p->strange) return APR_VOCAB_NONE;
    if (p->byte_level) return p->add_space_prefix || p->escape_spaces || byte_fallback ? APR_VOCAB_NONE : APR_VOCAB_BPE;
    return (byte_fallback || p->escape_spaces) && p->n_patterns == 0 ? APR_VOCAB_SPM : APR_VOCAB_NONE;
}

/* --- the tables --- */

static apr_str copy_string(const reading *r, const char *text, size_t n_bytes)
{
    return (apr_str){apr_arena_copy(r->arena, text, n_bytes), n_bytes};
}

/* Raises *n_tokens above `id`; ids far beyond the number of tokens are damage, not a vocabulary with holes. */
static apr_status count_id(const reading *r, const cJSON *id_item, const char *text, size_t n_entries, size_t *n_tokens)
{
    int64_t id;
    if (!apr_json_as_int(id_item, &id) || id < 0)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: token '%.100s' has no id", r->where, text != NULL ? text : "");
    if (text == NULL) return apr_fail(r->err, APR_E_DAMAGED, "%s: the added token %" PRId64 " has no content", r->where, id);
    if ((uint64_t)id > 2 * n_entries + 65536)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: token '%.100s' has the id %" PRId64 ", but there are only %zu tokens", r->where, text,
                        id, n_entries);
    if ((size_t)id >= *n_tokens) *n_tokens = (size_t)id + 1;
    return APR_OK;
}

static apr_status count_tokens(const reading *r, const cJSON *entries, const cJSON *added, size_t *n_tokens)
{
    const cJSON *item;
    const size_t n_entries = (size_t)cJSON_GetArraySize(entries) + (size_t)cJSON_GetArraySize(added);
    const int64_t vocab_size = r->model->hparams.vocab_size;

    *n_tokens = 0;
    cJSON_ArrayForEach(item, entries) APR_TRY(count_id(r, item, item->string, n_entries, n_tokens));
    cJSON_ArrayForEach(item, added)
        APR_TRY(count_id(r, apr_json_get(item, "id"), apr_json_get_string(item, "content"), n_entries, n_tokens));
    if (vocab_size > 0 && (uint64_t)vocab_size > 4 * n_entries + 65536)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: there are %zu tokens, but config.json says %" PRId64, r->where, n_entries, vocab_size);
    if (vocab_size > 0 && (size_t)vocab_size > *n_tokens) *n_tokens = (size_t)vocab_size;
    return APR_OK;
}

static apr_status set_token(reading *r, int64_t id, const char *text)
{
    apr_str *const token = &r->tokens[id];
    const size_t n_bytes = strlen(text);

    if (token->text != NULL && !apr_str_is(*token, text))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: the tokens '%.100s' and '%.100s' have the same id %" PRId64, r->where, token->text,
                        text, id);
    if (token->text != NULL) return APR_OK;
    *token = copy_string(r, text, n_bytes);
    r->types[id] = APR_TOKEN_NORMAL;
    return token->text != NULL ? APR_OK : apr_no_memory(r->err, "the tokens");
}

/* A byte of SentencePiece's fallback: "<0xNN>". */
static bool is_byte_token(apr_str token)
{
    return token.n_bytes == 6 && memcmp(token.text, "<0x", 3) == 0 && token.text[5] == '>' &&
           strspn(token.text + 3, "0123456789ABCDEFabcdef") == 2;
}

static apr_status read_added(reading *r, const cJSON *item)
{
    static const struct {
        const char *key;
        uint8_t flag;
    } flags[] = {{"lstrip", APR_ADDED_LSTRIP},
                 {"rstrip", APR_ADDED_RSTRIP},
                 {"single_word", APR_ADDED_SINGLE_WORD},
                 {"normalized", APR_ADDED_NORMALIZED}};
    int64_t id = 0;

    apr_json_get_int(item, "id", &id);
    APR_TRY(set_token(r, id, apr_json_get_string(item, "content")));
    r->types[id] = flag_of(item, "special", false) ? APR_TOKEN_CONTROL : APR_TOKEN_USER;
    r->added[id] = APR_ADDED;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flag_of(item, flags[i].key, false)) r->added[id] |= flags[i].flag;
    return APR_OK;
}

/* Ids that nothing claims: the embedding has rows for them, no text has. */
static apr_status fill_holes(reading *r, size_t n_tokens)
{
    for (size_t id = 0; id < n_tokens; id++) {
        if (r->tokens[id].text != NULL) continue;
        const char *const text = apr_arena_print(r->arena, "[PAD%zu]", id);
        if (text == NULL) return apr_no_memory(r->err, "the tokens");
        r->tokens[id] = apr_str_of(text);
        r->types[id] = APR_TOKEN_UNUSED;
    }
    return APR_OK;
}

static apr_status read_tokens(reading *r)
{
    const cJSON *const entries = apr_json_get(apr_json_get(r->tokenizer, "model"), "vocab"),
                       *const added = apr_json_get(r->tokenizer, "added_tokens"), *item;
    size_t n_tokens;

    if (!cJSON_IsObject(entries)) return apr_fail(r->err, APR_E_DAMAGED, "%s: there is no model.vocab in it", r->where);
    APR_TRY(count_tokens(r, entries, added, &n_tokens));
    r->tokens = apr_arena_array(r->arena, n_tokens, sizeof *r->tokens);
    r->types = apr_arena_alloc(r->arena, n_tokens);
    r->added = apr_arena_alloc(r->arena, n_tokens);
    if (r->tokens == NULL || r->types == NULL || r->added == NULL) return apr_no_memory(r->err, "the tokens");
    cJSON_ArrayForEach(item, entries)
    {
        int64_t id = 0;
        apr_json_as_int(item, &id); /* counted and checked before */
        APR_TRY(set_token(r, id, item->string));
        if (r->vocab->kind == APR_VOCAB_SPM && is_byte_token(r->tokens[id])) r->types[id] = APR_TOKEN_BYTE;
    }
    cJSON_ArrayForEach(item, added) APR_TRY(read_added(r, item));
    APR_TRY(fill_holes(r, n_tokens));
    r->vocab->tokens = r->tokens;
    r->vocab->types = r->types;
    r->vocab->added = r->added;
    r->vocab->n_tokens = n_tokens;
    return APR_OK;
}

/* "left right", or ["left", "right"] in newer files. */
static bool read_merge(const reading *r, const cJSON *item, apr_str pair[2])
{
    if (cJSON_IsString(item)) {
        const char *const text = item->valuestring, *const space = strchr(text, ' ');
        if (space == NULL || strchr(space + 1, ' ') != NULL) return false;
        pair[0] = copy_string(r, text, (size_t)(space - text));
        pair[1] = copy_string(r, space + 1, strlen(space + 1));
    } else {
        const cJSON *const left = cJSON_IsArray(item) ? item->child : NULL, *const right = left != NULL ? left->next : NULL;
        if (!cJSON_IsString(left) || !cJSON_IsString(right) || right->next != NULL) return false;
        pair[0] = copy_string(r, left->valuestring, strlen(left->valuestring));
        pair[1] = copy_string(r, right->valuestring, strlen(right->valuestring));
    }
    return pair[0].n_bytes > 0 && pair[1].n_bytes > 0;
}

static apr_status read_merges(reading *r)
{
    const cJSON *const list = apr_json_get(apr_json_get(r->tokenizer, "model"), "merges"), *item;
    size_t n = 0;

    if (!cJSON_IsArray(list)) return apr_fail(r->err, APR_E_DAMAGED, "%s: there is no list model.merges in it", r->where);
    apr_str *const merges = apr_arena_array(r->arena, 2 * (size_t)cJSON_GetArraySize(list), sizeof *merges);
    if (merges == NULL) return apr_no_memory(r->err, "the merges");
    cJSON_ArrayForEach(item, list)
    {
        apr_str *const pair = &merges[2 * n];
        if (!read_merge(r, item, pair)) return apr_fail(r->err, APR_E_DAMAGED, "%s: merge %zu is no pair of tokens", r->where, n);
        if (pair[0].text == NULL || pair[1].text == NULL) return apr_no_memory(r->err, "the merges");
        n++;
    }
    r->vocab->merges = merges;
    r->vocab->n_merges = n;
    return APR_OK;
}

/* --- special tokens --- */

static int32_t id_of(const apr_vocab *vocab, const char *text)
{
    for (size_t id = 0; text != NULL && id < vocab->n_tokens; id++)
        if (apr_str_is(vocab->tokens[id], text)) return (int32_t)id;
    return -1;
}

/* A token is named by its text, or by an object like those of added_tokens. */
static int32_t token_under(const apr_vocab *vocab, const cJSON *config, const char *key)
{
    const cJSON *const item = apr_json_get(config, key);
    return id_of(vocab, cJSON_IsString(item) ? item->valuestring : apr_json_get_string(item, "content"));
}

/* The first of an id or a list of ids; -1 when there is none in the vocabulary. All of them end a turn if `stops`. */
static int32_t ids_under(apr_vocab *vocab, const cJSON *config, const char *key, bool stops)
{
    const cJSON *const item = apr_json_get(config, key);
    int32_t first = -1;

    for (const cJSON *one = cJSON_IsArray(item) ? item->child : item; one != NULL; one = cJSON_IsArray(item) ? one->next : NULL) {
        int64_t id;
        if (!apr_json_as_int(one, &id) || id < 0 || (uint64_t)id >= vocab->n_tokens) continue;
        if (first < 0) first = (int32_t)id;
        if (stops) apr_vocab_add_stop(vocab, id);
    }
    return first;
}

static int32_t special_id(const reading *r, const char *token_key, const char *id_key)
{
    int32_t id = token_under(r->vocab, r->config, token_key);
    if (id < 0) id = token_under(r->vocab, r->special_map, token_key);
    if (id < 0) id = ids_under(r->vocab, r->model_config, id_key, false);
    return id >= 0 ? id : ids_under(r->vocab, r->generation, id_key, false);
}

static void read_specials(reading *r, const pipeline *p)
{
    apr_vocab *const v = r->vocab;
    const cJSON *const text_config = apr_json_get(r->model_config, "text_config");

    v->bos_id = special_id(r, "bos_token", "bos_token_id");
    v->eos_id = special_id(r, "eos_token", "eos_token_id");
    v->pad_id = special_id(r, "pad_token", "pad_token_id");
    v->unk_id = token_under(v, apr_json_get(r->tokenizer, "model"), "unk_token");
    if (v->unk_id >= 0) r->types[v->unk_id] = APR_TOKEN_UNKNOWN;

    apr_vocab_add_stop(v, v->eos_id);
    ids_under(v, r->generation, "eos_token_id", true);
    ids_under(v, r->model_config, "eos_token_id", true);
    ids_under(v, text_config, "eos_token_id", true);

    if (p->has_template) {
        const int32_t first = id_of(v, p->first_token), last = id_of(v, p->last_token);
        v->add_bos = first >= 0;
        v->add_eos = last >= 0;
        if (first >= 0) v->bos_id = first;
        if (last >= 0) v->eos_id = last;
    } else {
        v->add_bos = flag_of(r->config, "add_bos_token", false) && v->bos_id >= 0;
        v->add_eos = flag_of(r->config, "add_eos_token", false) && v->eos_id >= 0;
    }
}

static apr_status read_template(reading *r)
{
    const apr_attachment *const file = apr_model_attachment(r->model, "chat_template.jinja");
    const cJSON *const item = apr_json_get(r->config, "chat_template"), *named;
    const char *text = cJSON_IsString(item) ? item->valuestring : apr_json_get_string(r->template_json, "chat_template");

    if (file != NULL) {
        if (file->n_bytes > 0 && memchr(file->data, '\0', file->n_bytes) != NULL)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: there is a NUL in chat_template.jinja", r->model->path);
        r->vocab->chat_template = apr_arena_copy(r->arena, (const char *)file->data, file->n_bytes);
        return r->vocab->chat_template != NULL ? APR_OK : apr_no_memory(r->err, "the chat template");
    }
    if (cJSON_IsArray(item))
        cJSON_ArrayForEach(named, item) if (is_string(named, "name", "default")) text = apr_json_get_string(named, "template");
    if (text == NULL) return APR_OK;
    r->vocab->chat_template = apr_arena_copy(r->arena, text, strlen(text));
    return r->vocab->chat_template != NULL ? APR_OK : apr_no_memory(r->err, "the chat template");
}

/* --- all of it --- */

static apr_status read_bpe(reading *r)
{
    apr_vocab *const v = r->vocab;
    const cJSON *const model = apr_json_get(r->tokenizer, "model");
    const bool byte_fallback = flag_of(model, "byte_fallback", false);
    const pipeline p = read_pipeline(r->tokenizer);

    v->kind = kind_of(&p, byte_fallback);
    if (v->kind == APR_VOCAB_NONE) return APR_OK;
    v->nfc = p.nfc;
    v->ignore_merges = flag_of(model, "ignore_merges", false);
    v->byte_fallback = byte_fallback;
    v->add_space_prefix = p.add_space_prefix;
    v->space_after_added = p.space_after_added;
    v->escape_spaces = p.escape_spaces;
    if (p.pattern != NULL) {
        v->pattern = apr_arena_copy(r->arena, p.pattern, strlen(p.pattern));
        if (v->pattern == NULL) return apr_no_memory(r->err, "the splitting expression");
        v->pre = apr_pre_name(v->pattern);
    }
    APR_TRY(read_tokens(r));
    APR_TRY(read_merges(r));
    read_specials(r, &p);
    return APR_OK;
}

/* An attachment's JSON; NULL and OK when there is no such attachment. */
static apr_status parse_attachment(const reading *r, const char *name, cJSON **json)
{
    const apr_attachment *const file = apr_model_attachment(r->model, name);
    if (file == NULL) return APR_OK;
    const char *const where = apr_arena_print(r->arena, "%s: %s", r->model->path, name);
    if (where == NULL) return apr_no_memory(r->err, "a path");
    return apr_json_parse(json, file->data, file->n_bytes, where, r->err);
}

static apr_status read_vocab(reading *r)
{
    r->where = apr_arena_print(r->arena, "%s: tokenizer.json", r->model->path);
    if (r->where == NULL) return apr_no_memory(r->err, "a path");
    APR_TRY(parse_attachment(r, "tokenizer.json", &r->tokenizer));
    APR_TRY(parse_attachment(r, "tokenizer_config.json", &r->config));
    APR_TRY(parse_attachment(r, "generation_config.json", &r->generation));
    APR_TRY(parse_attachment(r, "config.json", &r->model_config));
    APR_TRY(parse_attachment(r, "special_tokens_map.json", &r->special_map));
    APR_TRY(parse_attachment(r, "chat_template.json", &r->template_json));
    APR_TRY(read_template(r));
    return r->tokenizer != NULL ? read_bpe(r) : APR_OK;
}

apr_status apr_hf_vocab_read(const apr_model *model, apr_vocab *vocab, apr_arena *arena, apr_error *err)
{
    reading r = {.model = model, .vocab = vocab, .arena = arena, .err = err};

    *vocab = (apr_vocab){.bos_id = -1, .eos_id = -1, .pad_id = -1, .unk_id = -1};
    const apr_status status = read_vocab(&r);
    cJSON *const trees[] = {r.tokenizer, r.config, r.generation, r.model_config, r.special_map, r.template_json};
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) cJSON_Delete(trees[i]);
    return status;
}
