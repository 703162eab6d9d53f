/* hf_tokenizer_write.c - writes a vocabulary as tokenizer.json, tokenizer_config.json and generation_config.json. */
#include "formats/base/grow.h"
#include "formats/base/json.h"
#include "formats/vocab/hf_tokenizer.h"
#include "formats/vocab/special_tokens.h"
#include "formats/vocab/vocab_index.h"

#include <stdlib.h>
#include <string.h>

static void put_raw(apr_json_text *out, const char *key, const char *json) { apr_json_raw(out, key, json, strlen(json)); }
static void put_str(apr_json_text *out, const char *key, apr_str text) { apr_json_string(out, key, text.text, text.n_bytes); }

static void put_token(apr_json_text *out, const char *key, const apr_vocab *v, int32_t id)
{
    if (apr_vocab_has_id(v, id)) put_str(out, key, v->tokens[id]);
    else apr_json_null(out, key);
}

/* --- steps before and after the model --- */

static void put_added_tokens(apr_json_text *out, const apr_vocab *v)
{
    apr_json_open(out, "added_tokens", '[');
    for (size_t id = 0; id < v->n_tokens; id++) {
        if (!apr_token_is_added(v, id)) continue;
        const uint8_t flags = v->added != NULL ? v->added[id] : 0;
        apr_json_open(out, NULL, '{');
        apr_json_uint(out, "id", id);
        put_str(out, "content", v->tokens[id]);
        for (size_t i = 0; i < APR_N_ADDED_FLAGS; i++) apr_json_bool(out, apr_added_flags[i].key, flags & apr_added_flags[i].flag);
        apr_json_bool(out, "special", v->types[id] != APR_TOKEN_USER);
        apr_json_close(out, '}');
    }
    apr_json_close(out, ']');
}

/* True: the vocabulary's spaces are Metaspace's. It puts a space before the text only ("first") or also before every piece between added
 * tokens ("always"), unless there is one already. Prepend always puts one before each piece. */
static bool is_metaspace(const apr_vocab *v)
{
    return v->kind == APR_VOCAB_SPM && v->add_space_prefix && (!v->space_after_added || v->prefix_unless_space) && v->escape_spaces;
}

static void put_normalizer(apr_json_text *out, const apr_vocab *v)
{
    const bool spm = v->kind == APR_VOCAB_SPM && !is_metaspace(v);

    apr_json_open(out, "normalizer", '{');
    apr_json_cstring(out, "type", "Sequence");
    apr_json_open(out, "normalizers", '[');
    if (v->nfc) put_raw(out, NULL, "{\"type\":\"NFC\"}");
    if (spm && v->add_space_prefix) put_raw(out, NULL, "{\"type\":\"Prepend\",\"prepend\":\"" APR_SPACE_MARK "\"}");
    if (spm && v->escape_spaces)
        put_raw(out, NULL, "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" APR_SPACE_MARK "\"}");
    apr_json_close(out, ']');
    apr_json_close(out, '}');
}

static void put_split(apr_json_text *out, const apr_split *split)
{
    apr_json_open(out, NULL, '{');
    apr_json_cstring(out, "type", "Split");
    apr_json_open(out, "pattern", '{');
    apr_json_cstring(out, "Regex", split->pattern);
    apr_json_close(out, '}');
    apr_json_cstring(out, "behavior", apr_split_behavior_name(split->behavior));
    apr_json_bool(out, "invert", split->invert);
    apr_json_close(out, '}');
}

/* Writes the steps before ByteLevel, or those after it. */
static void put_splits(apr_json_text *out, const apr_vocab *v, bool letters)
{
    if (v->pattern != NULL && !letters) put_split(out, &(apr_split){.pattern = v->pattern});
    for (size_t i = 0; i < v->n_splits; i++)
        if (v->splits[i].letters == letters) put_split(out, &v->splits[i]);
}

static void put_pre_tokenizer(apr_json_text *out, const apr_vocab *v)
{
    const bool alone = is_metaspace(v) && v->pattern == NULL && v->n_splits == 0;

    if (v->kind != APR_VOCAB_BPE && v->pattern == NULL && v->n_splits == 0 && !alone) {
        apr_json_null(out, "pre_tokenizer");
        return;
    }
    if (!alone) {
        apr_json_open(out, "pre_tokenizer", '{');
        apr_json_cstring(out, "type", "Sequence");
        apr_json_open(out, "pretokenizers", '[');
    }
    if (is_metaspace(v)) {
        apr_json_open(out, alone ? "pre_tokenizer" : NULL, '{');
        apr_json_cstring(out, "type", "Metaspace");
        apr_json_cstring(out, "replacement", APR_SPACE_MARK);
        apr_json_cstring(out, "prepend_scheme", v->space_after_added ? "always" : "first");
        apr_json_bool(out, "split", false);
        apr_json_close(out, '}');
    }
    if (alone) return;
    put_splits(out, v, false);
    if (v->kind == APR_VOCAB_BPE) {
        put_raw(out, NULL, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}");
        put_splits(out, v, true);
    }
    apr_json_close(out, ']');
    apr_json_close(out, '}');
}

/* A part of a template: a token, or the text itself. */
static void put_part(apr_json_text *out, const char *kind, apr_str id, int type_id)
{
    apr_json_open(out, NULL, '{');
    apr_json_open(out, kind, '{');
    put_str(out, "id", id);
    apr_json_int(out, "type_id", type_id);
    apr_json_close(out, '}');
    apr_json_close(out, '}');
}

/* One text of a template, with its first and last token. */
static void put_sequence(apr_json_text *out, const apr_vocab *v, bool bos, bool eos, const char *sequence, int type_id)
{
    if (bos) put_part(out, "SpecialToken", v->tokens[v->bos_id], type_id);
    put_part(out, "Sequence", apr_str_of(sequence), type_id);
    if (eos) put_part(out, "SpecialToken", v->tokens[v->eos_id], type_id);
}

static void put_special_ids(apr_json_text *out, const apr_vocab *v, int32_t id)
{
    char *const key = strndup(v->tokens[id].text, v->tokens[id].n_bytes);
    if (key == NULL) {
        out->failed = true;
        return;
    }
    apr_json_open(out, key, '{');
    free(key);
    put_str(out, "id", v->tokens[id]);
    apr_json_open(out, "ids", '[');
    apr_json_int(out, NULL, id);
    apr_json_close(out, ']');
    apr_json_open(out, "tokens", '[');
    put_str(out, NULL, v->tokens[id]);
    apr_json_close(out, ']');
    apr_json_close(out, '}');
}

static void put_post_processor(apr_json_text *out, const apr_vocab *v)
{
    const bool bos = v->add_bos && apr_vocab_has_id(v, v->bos_id), eos = v->add_eos && apr_vocab_has_id(v, v->eos_id);

    if (!bos && !eos) {
        apr_json_null(out, "post_processor");
        return;
    }
    apr_json_open(out, "post_processor", '{');
    apr_json_cstring(out, "type", "TemplateProcessing");
    apr_json_open(out, "single", '[');
    put_sequence(out, v, bos, eos, "A", 0);
    apr_json_close(out, ']');
    apr_json_open(out, "pair", '[');
    put_sequence(out, v, bos, eos, "A", 0);
    put_sequence(out, v, bos, eos, "B", 1);
    apr_json_close(out, ']');
    apr_json_open(out, "special_tokens", '{');
    if (bos) put_special_ids(out, v, v->bos_id);
    if (eos && !(bos && v->bos_id == v->eos_id)) put_special_ids(out, v, v->eos_id);
    apr_json_close(out, '}');
    apr_json_close(out, '}');
}

static void put_decoder(apr_json_text *out, const apr_vocab *v)
{
    if (v->kind == APR_VOCAB_BPE) {
        put_raw(out, "decoder", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}");
        return;
    }
    apr_json_open(out, "decoder", '{');
    apr_json_cstring(out, "type", "Sequence");
    apr_json_open(out, "decoders", '[');
    put_raw(out, NULL, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" APR_SPACE_MARK "\"},\"content\":\" \"}");
    put_raw(out, NULL, "{\"type\":\"ByteFallback\"}");
    put_raw(out, NULL, "{\"type\":\"Fuse\"}");
    if (v->add_space_prefix) put_raw(out, NULL, "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}");
    apr_json_close(out, ']');
    apr_json_close(out, '}');
}

/* --- merges from scores --- */

typedef struct scored_merge {
    uint32_t left, right; /* ids */
    uint32_t n_left_bytes;
    float score; /* of the merged token */
} scored_merge;

typedef struct merge_list {
    apr_vocab_index index; /* of the ordinary tokens */
    scored_merge *items;
    size_t n, capacity;
} merge_list;

static bool add_merge(merge_list *list, scored_merge item)
{
    scored_merge *const items = apr_grow(list->items, &list->capacity, list->n + 1, sizeof *items);
    if (items == NULL) return false;
    list->items = items;
    list->items[list->n++] = item;
    return true;
}

/* Best score first. Among pairs that make the same token, the longer left part first. */
static int by_score(const void *a, const void *b)
{
    const scored_merge *const x = a, *const y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->n_left_bytes != y->n_left_bytes) return x->n_left_bytes > y->n_left_bytes ? -1 : 1;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

/* Adds every way to split token `id` into two tokens at a character's border. */
static bool cut_token(merge_list *list, const apr_vocab *v, uint32_t id)
{
    const apr_str token = v->tokens[id];
    for (size_t n = 1; n < token.n_bytes; n++) {
        if (((uint8_t)token.text[n] & 0xc0) == 0x80) continue; /* inside a character */
        const int64_t left = apr_vocab_index_find(&list->index, token.text, n);
        const int64_t right = apr_vocab_index_find(&list->index, token.text + n, token.n_bytes - n);
        if (left < 0 || right < 0) continue;
        if (!add_merge(list, (scored_merge){(uint32_t)left, (uint32_t)right, (uint32_t)n, v->scores[id]})) return false;
    }
    return true;
}

/* SentencePiece repeatedly merges the neighbours whose union has the best score. The equivalent merges are all splits, sorted by score. */
static bool merges_from_scores(merge_list *list, const apr_vocab *v)
{
    if (!apr_vocab_index_open(&list->index, v, 1 << APR_TOKEN_NORMAL)) return false;
    for (size_t id = 0; id < v->n_tokens; id++)
        if (v->types[id] == APR_TOKEN_NORMAL && !cut_token(list, v, (uint32_t)id)) return false;
    if (list->n > 0) qsort(list->items, list->n, sizeof *list->items, by_score);
    return true;
}

/* --- the model --- */

static void put_pair(apr_json_text *out, apr_str left, apr_str right)
{
    apr_json_open(out, NULL, '[');
    put_str(out, NULL, left);
    put_str(out, NULL, right);
    apr_json_close(out, ']');
}

static void put_merges(apr_json_text *out, const apr_vocab *v)
{
    merge_list list = {0};

    apr_json_open(out, "merges", '[');
    for (size_t i = 0; i < v->n_merges; i++) put_pair(out, v->merges[2 * i], v->merges[2 * i + 1]);
    if (v->n_merges == 0 && v->scores != NULL) {
        if (!merges_from_scores(&list, v)) out->failed = true;
        for (size_t i = 0; i < list.n; i++) put_pair(out, v->tokens[list.items[i].left], v->tokens[list.items[i].right]);
    }
    apr_json_close(out, ']');
    apr_vocab_index_close(&list.index);
    free(list.items);
}

/* Also lists added tokens: the library numbers unlisted ones by their order, which is wrong after a hole in the ids. */
static void put_vocab(apr_json_text *out, const apr_vocab *v)
{
    char *key = NULL;
    size_t capacity = 0;

    apr_json_open(out, "vocab", '{');
    for (size_t id = 0; id < v->n_tokens; id++) {
        const apr_str token = v->tokens[id];
        if (v->types[id] == APR_TOKEN_UNUSED) continue;
        char *const grown = apr_grow(key, &capacity, token.n_bytes + 1, 1);
        if (grown == NULL) {
            out->failed = true;
            break;
        }
        key = grown;
        memcpy(key, token.text, token.n_bytes);
        key[token.n_bytes] = '\0';
        apr_json_uint(out, key, id);
    }
    free(key);
    apr_json_close(out, '}');
}

char *apr_hf_tokenizer_write(const apr_vocab *v)
{
    apr_json_text out = {0};

    apr_json_open(&out, NULL, '{');
    apr_json_cstring(&out, "version", "1.0");
    apr_json_null(&out, "truncation");
    apr_json_null(&out, "padding");
    put_added_tokens(&out, v);
    put_normalizer(&out, v);
    put_pre_tokenizer(&out, v);
    put_post_processor(&out, v);
    put_decoder(&out, v);
    apr_json_open(&out, "model", '{');
    apr_json_cstring(&out, "type", "BPE");
    apr_json_null(&out, "dropout");
    put_token(&out, "unk_token", v, v->unk_id);
    apr_json_null(&out, "continuing_subword_prefix");
    apr_json_null(&out, "end_of_word_suffix");
    apr_json_bool(&out, "fuse_unk", v->kind == APR_VOCAB_SPM);
    apr_json_bool(&out, "byte_fallback", v->byte_fallback);
    apr_json_bool(&out, "ignore_merges", v->ignore_merges);
    put_vocab(&out, v);
    put_merges(&out, v);
    apr_json_close(&out, '}');
    apr_json_close(&out, '}');
    return apr_json_text_take(&out, NULL);
}

/* --- its companions --- */

char *apr_hf_tokenizer_config_write(const apr_vocab *v)
{
    static const size_t order[] = {APR_SPECIAL_BOS, APR_SPECIAL_EOS, APR_SPECIAL_PAD, APR_SPECIAL_UNK};
    apr_json_text out = {0};

    apr_json_open(&out, NULL, '{');
    apr_json_bool(&out, "add_bos_token", v->add_bos);
    apr_json_bool(&out, "add_eos_token", v->add_eos);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        put_token(&out, apr_special_tokens[order[i]].hf_token, v, apr_special_id_of(v, order[i]));
    if (v->chat_template != NULL) apr_json_cstring(&out, "chat_template", v->chat_template);
    apr_json_bool(&out, "clean_up_tokenization_spaces", false);
    apr_json_cstring(&out, "tokenizer_class", "PreTrainedTokenizerFast");
    apr_json_close(&out, '}');
    return apr_json_text_take(&out, NULL);
}

char *apr_hf_generation_config_write(const apr_vocab *v)
{
    apr_json_text out = {0};

    apr_json_open(&out, NULL, '{');
    if (apr_vocab_has_id(v, v->bos_id)) apr_json_int(&out, "bos_token_id", v->bos_id);
    if (v->n_stop_ids == 1) apr_json_int(&out, "eos_token_id", v->stop_ids[0]);
    if (v->n_stop_ids > 1) {
        apr_json_open(&out, "eos_token_id", '[');
        for (size_t i = 0; i < v->n_stop_ids; i++) apr_json_int(&out, NULL, v->stop_ids[i]);
        apr_json_close(&out, ']');
    }
    if (apr_vocab_has_id(v, v->pad_id)) apr_json_int(&out, "pad_token_id", v->pad_id);
    apr_json_close(&out, '}');
    return apr_json_text_take(&out, NULL);
}
