/* hf_losses.c - lists what a checkpoint made from a GGUF cannot express: numbers, names, texts, tokenizer. */
#include "formats/hf/hf_losses.h"
#include "formats/base/text.h"
#include "formats/hf/safetensors.h"
#include "formats/shape/gguf_hparams.h"
#include "formats/shape/hf_config.h"
#include "formats/tensor/metadata.h"
#include "formats/vocab/special_tokens.h"
#include "formats/vocab/vocab_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct checking {
    const apr_model *layout;
    apr_losses *losses;
    apr_error *err;
    apr_kv_list from_hparams; /* the keys that the hyperparameters give */
} checking;

#define LOSS(c, ...) APR_TRY(apr_loss_add((c)->losses, APR_LOST, (c)->err, __VA_ARGS__))

static int shown(apr_str s) { return s.n_bytes < 100 ? (int)s.n_bytes : 100; }

/* --- keys of a GGUF that its hyperparameters do not give back --- */

bool apr_hf_is_text(apr_str s) { return apr_str_is_utf8(s) && (s.n_bytes == 0 || memchr(s.text, '\0', s.n_bytes) == NULL); }

static bool is_any_of(apr_str s, const char *const *texts)
{
    while (*texts != NULL && !apr_str_is(s, *texts)) texts++;
    return *texts != NULL;
}

static bool is_special_id(apr_str key)
{
    for (size_t i = 0; i < APR_N_SPECIALS; i++)
        if (apr_str_is(key, apr_special_tokens[i].gguf_key)) return true;
    return false;
}

/* Names of ARCH.NAME keys that hyperparameters are read from, in addition to those of the hyperparameter table. */
static const char *const *const understood =
    APR_NAMES("vocab_size", "attention.value_length", "attention.sliding_window_pattern", "rope.dimension_sections", "rope.scaling.type",
              "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.finetuned", "rope.scaling.attn_factor",
              "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "ssm.inner_size");
static const char *const *const understood_of_tokenizer =
    APR_NAMES("tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores",
              "tokenizer.ggml.merges", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id", "tokenizer.ggml.add_bos_token",
              "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_space_prefix", "tokenizer.chat_template");
static const char *const *const about_the_file = APR_NAMES("general.file_type", "general.quantization_version", "general.alignment");

static bool is_in_table(apr_str name)
{
    for (size_t i = 0; i < apr_n_hparam_fields; i++)
        if (apr_hparam_fields[i].gguf_key[0] != '\0' && apr_str_is(name, apr_hparam_fields[i].gguf_key)) return true;
    return false;
}

/* Element i of the array, or the number itself; bools are 0 and 1. */
static double number_at(const apr_kv_list *list, const apr_kv *item, uint64_t i)
{
    double real = 0.0;
    bool flag;

    if (item->type == APR_KV_ARRAY) {
        real = apr_kv_elem_real(item, i);
        return real != 0.0 ? real : (double)apr_kv_elem_int(item, i);
    }
    if (apr_kv_get_bool(list, item->key.text, &flag)) return flag;
    apr_kv_get_real(list, item->key.text, &real);
    return real;
}

static bool is_uniform(const apr_kv *item)
{
    for (uint64_t i = 1; item->type == APR_KV_ARRAY && i < item->n_elems; i++)
        if (apr_kv_elem_int(item, i) != apr_kv_elem_int(item, 0)) return false;
    return true;
}

static bool is_of_texts(const apr_kv *item)
{
    return item->type == APR_KV_STRING || (item->type == APR_KV_ARRAY && item->elem_type == APR_KV_STRING);
}

static bool same_text(const apr_kv *a, const apr_kv *b)
{
    const apr_str x = a->value.string, y = b->value.string;
    if (a->type != APR_KV_STRING || b->type != APR_KV_STRING || x.n_bytes != y.n_bytes) return false;
    return x.n_bytes == 0 || memcmp(x.text, y.text, x.n_bytes) == 0;
}

/* True: the hyperparameters give that key with that value. One number equals a list of the same number. */
static bool is_given(const checking *c, const apr_kv *item)
{
    const apr_kv *const made = apr_kv_find(&c->from_hparams, item->key.text);

    if (made == NULL) return false;
    if (is_of_texts(item) || is_of_texts(made)) return same_text(item, made);
    const uint64_t n = item->type == APR_KV_ARRAY ? item->n_elems : 1, m = made->type == APR_KV_ARRAY ? made->n_elems : 1;
    if (m != n && m != 1) return false;
    for (uint64_t i = 0; i < n; i++)
        if (number_at(&c->layout->kv, item, i) != number_at(&c->from_hparams, made, m == 1 ? 0 : i)) return false;
    return true;
}

static apr_status check_architecture_key(const checking *c, const apr_kv *item, apr_str name)
{
    const bool in_table = is_in_table(name), is_zero = item->type != APR_KV_ARRAY && item->type != APR_KV_STRING && item->value.bits == 0;
    int64_t value_length;

    if (is_given(c, item)) return APR_OK; /* it follows from the hyperparameters, which are compared separately */
    if (in_table && !is_uniform(item)) LOSS(c, "'%s' differs from layer to layer, which config.json cannot express", item->key.text);
    if (apr_str_is(name, "attention.value_length") && apr_kv_get_int(&c->layout->kv, item->key.text, &value_length) &&
        value_length != c->layout->hparams.head_dim)
        LOSS(c, "'%s' is %lld and heads are %lld wide, which config.json cannot express", item->key.text, (long long)value_length,
             (long long)c->layout->hparams.head_dim);
    if (!in_table && !is_zero && !is_any_of(name, understood)) LOSS(c, "config.json has no place for '%.100s'", item->key.text);
    return APR_OK;
}

/* Keys that have no place in a checkpoint, and that change no number. */
typedef struct left_out {
    char text[300];
    size_t n;
} left_out;

static void leave_out(left_out *l, apr_str key)
{
    const size_t at = strlen(l->text);
    if (l->n++ < 5)
        snprintf(l->text + at, sizeof l->text - at, "%s%.*s", l->n > 1 ? ", " : "", key.n_bytes < 50 ? (int)key.n_bytes : 50, key.text);
}

static apr_status check_key(const checking *c, const apr_kv *item, apr_str arch, left_out *left)
{
    const apr_str key = item->key;
    const bool is_arch =
        key.n_bytes > arch.n_bytes && arch.n_bytes > 0 && memcmp(key.text, arch.text, arch.n_bytes) == 0 && key.text[arch.n_bytes] == '.';

    if (is_arch) return check_architecture_key(c, item, (apr_str){key.text + arch.n_bytes + 1, key.n_bytes - arch.n_bytes - 1});
    if (apr_str_begins_with(key, "general.") && item->type == APR_KV_STRING) {
        if (!apr_hf_is_text(item->value.string)) LOSS(c, "'%.100s' is not UTF-8 text, which JSON cannot hold", key.text);
        return APR_OK;
    }
    if (apr_str_is(key, "tokenizer.chat_template") && item->type == APR_KV_STRING && !apr_hf_is_text(item->value.string))
        LOSS(c, "the chat template is not UTF-8 text, which JSON cannot hold");
    const bool is_template = apr_named_template(item) != NULL || apr_str_is(key, "tokenizer.chat_templates");
    const bool is_known = is_template || apr_str_begins_with(key, "aprkit.") || apr_str_begins_with(key, "tokenizer.aprkit.") ||
                          is_any_of(key, about_the_file) || is_any_of(key, understood_of_tokenizer) || is_special_id(key);
    if (!is_known) leave_out(left, key);
    return APR_OK;
}

/* Makes the keys of a GGUF with these hyperparameters; none if it cannot be made. */
static apr_status make_keys(checking *c)
{
    static const apr_vocab none = {.kind = APR_VOCAB_NONE};

    c->from_hparams.arena = &c->losses->arena;
    const apr_status status = apr_gguf_keys(&c->layout->hparams, &none, "", 0, &c->from_hparams, NULL);
    if (status == APR_E_MEMORY) return apr_no_memory(c->err, "the keys");
    return APR_OK;
}

/* Lists the keys of a GGUF that a checkpoint cannot express. */
static apr_status key_losses(const apr_model *layout, apr_losses *losses, apr_error *err)
{
    checking c = {.layout = layout, .losses = losses, .err = err};
    const apr_kv_list *const kv = &layout->kv;
    apr_str arch = {"", 0};
    left_out left = {{0}, 0};
    char others[40] = "";

    if (layout->origin.format != APR_FORMAT_GGUF || apr_model_attachment(layout, "config.json") != NULL) return APR_OK;
    apr_kv_get_string(kv, "general.architecture", &arch);
    APR_TRY(make_keys(&c));
    for (size_t i = 0; i < kv->n_items; i++) APR_TRY(check_key(&c, &kv->items[i], arch, &left));
    if (left.n > 5) snprintf(others, sizeof others, " and %zu more", left.n - 5);
    return left.n > 0 ? apr_loss_add(losses, APR_NOTE, err, "a checkpoint has no place for the keys %s%s", left.text, others) : APR_OK;
}

/* --- config.json: made, read back and compared --- */

static apr_status compare_numbers(const checking *c, const apr_hparams *seen)
{
    static const bool is_of_images[APR_N_NUMBERS] = {/* text does not use them */
                                                     [APR_NUMBER_AT(mrope_time)] = true,
                                                     [APR_NUMBER_AT(mrope_height)] = true,
                                                     [APR_NUMBER_AT(mrope_width)] = true,
                                                     [APR_NUMBER_AT(num_deepstack_layers)] = true};

    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const double stated = apr_hparam_number(&c->layout->hparams, field), read = apr_hparam_number(seen, field);
        if (stated != 0.0 && stated != read && !is_of_images[i]) LOSS(c, "config.json cannot express %s = %g", field->name, stated);
    }
    return APR_OK;
}

/* Compares the flags that config.json has a key for. */
static apr_status compare_flags(const checking *c, const apr_hparams *seen)
{
    const apr_hparams *const h = &c->layout->hparams;

    for (size_t i = 0; i < apr_n_hflag_fields; i++) {
        const apr_hflag_field *const flag = &apr_hflag_fields[i];
        const bool stated = apr_hflag_get(h, flag), matters = i != APR_FLAG_AT(norm_topk_prob) || h->num_experts > 0;
        /* biases are known by their tensors (hf_config_make.c); see apr_hf_bias_conflict */
        if (flag->hf_key[0] == '\0' || strstr(flag->name, "_bias") != NULL || !matters) continue;
        if (stated != apr_hflag_get(seen, flag)) LOSS(c, "config.json cannot express %s = %s", flag->name, stated ? "true" : "false");
    }
    return APR_OK;
}

static apr_status compare_ropes(const checking *c, const apr_rope_scaling *h, const apr_rope_scaling *seen, const char *whose)
{
    if (h->kind == APR_ROPE_LONGROPE && h->n_factors == 0)
        LOSS(c, "the factors of the rotary scaling \"longrope\" are not carried into config.json");
    else if (h->kind != seen->kind) LOSS(c, "config.json cannot express the rotary scaling \"%s\"%s", apr_rope_names[h->kind], whose);
    return APR_OK;
}

/* The kinds of one layer. */
static uint8_t mixer_of(const apr_hparams *h, int64_t layer) { return (uint8_t)apr_layer_kind_of(h, layer); }
static uint8_t ffn_of(const apr_hparams *h, int64_t layer) { return (uint8_t)apr_ffn_kind_of(h, layer); }
/* Layers without attention count as without positions. */
static uint8_t positions_of(const apr_hparams *h, int64_t layer)
{
    const apr_layer_kind kind = apr_layer_kind_of(h, layer);
    const bool attends = kind == APR_LAYER_FULL || kind == APR_LAYER_SLIDING || kind == APR_LAYER_CHUNKED;
    return attends && apr_layer_has_rope(h, layer);
}

static apr_status compare_layers(const checking *c, const apr_hparams *seen)
{
    static const struct {
        uint8_t (*of)(const apr_hparams *h, int64_t layer);
        const char *what;
    } aspects[] = {{mixer_of, "which layers have an attention window"},
                   {ffn_of, "which layers have experts"},
                   {positions_of, "which layers have positions"}};
    const apr_hparams *const h = &c->layout->hparams;

    for (size_t a = 0; a < sizeof aspects / sizeof *aspects; a++) {
        bool same = true;
        for (int64_t i = 0; i < h->num_layers && same; i++) same = aspects[a].of(h, i) == aspects[a].of(seen, i);
        if (!same) LOSS(c, "config.json cannot express %s", aspects[a].what);
    }
    return APR_OK;
}

static apr_status compare_rest(const checking *c, apr_hparams *seen)
{
    const apr_hparams *const h = &c->layout->hparams;

    APR_TRY(compare_flags(c, seen));
    APR_TRY(compare_ropes(c, &h->rope, &seen->rope, ""));
    APR_TRY(compare_ropes(c, &h->rope_local, &seen->rope_local, " of sliding layers"));
    if (h->num_layers == seen->num_layers) APR_TRY(compare_layers(c, seen));
    if (seen->refusal != NULL) LOSS(c, "in the new config.json, %s", seen->refusal);
    const char *const biases = apr_hf_bias_conflict(c->layout, seen, true, &c->losses->arena);
    if (biases != NULL) LOSS(c, "%s", biases);
    return APR_OK;
}

static apr_status check_config(const checking *c)
{
    apr_arena *const arena = &c->losses->arena;
    apr_hparams seen;
    apr_error why = {0};

    if (apr_model_attachment(c->layout, "config.json") != NULL || c->layout->hparams.architecture == NULL ||
        c->layout->hparams.architecture[0] == '\0')
        return APR_OK;
    if (c->layout->hparams.refusal != NULL) LOSS(c, "%s, which the new config.json cannot express", c->layout->hparams.refusal);
    char *const text = apr_hf_config_make(c->layout);
    if (text == NULL) return apr_no_memory(c->err, "config.json");
    const apr_attachment made = {.name = "config.json", .data = (const uint8_t *)text, .n_bytes = strlen(text)};
    apr_status status = apr_hf_config_read(&made, &seen, arena, "config.json", &why);
    if (status == APR_OK) status = apr_hparams_complete(&seen, arena, "config.json", &why);
    free(text);
    if (status == APR_E_MEMORY) return apr_no_memory(c->err, "config.json");
    if (status != APR_OK) return apr_loss_add(c->losses, APR_LOST, c->err, "no config.json can be made: %s", why.text);
    APR_TRY(compare_numbers(c, &seen));
    return compare_rest(c, &seen);
}

/* --- names --- */

static apr_status check_names(const checking *c)
{
    for (size_t i = 0; i < c->layout->n_tensors; i++) {
        const char *const name = c->layout->tensors[i].name;
        if (apr_begins_with(name, "blk.")) LOSS(c, "tensor '%.200s' has no name in a checkpoint of this architecture", name);
    }
    return APR_OK;
}

/* --- tokenizer --- */

apr_status apr_hf_vocab_obstacle(const apr_vocab *v, apr_arena *arena, const char **obstacle, apr_error *err)
{
    enum { USED = APR_ALL_TYPES & ~(1 << APR_TOKEN_UNUSED) };
    apr_vocab_index index;

    *obstacle = NULL;
    if (v->kind == APR_VOCAB_NONE || v->n_tokens == 0) return APR_OK;
    if (apr_vocab_needs_file(v)) {
        *obstacle = "the tokenizer has rules that need its original tokenizer.json";
        return APR_OK;
    }
    if (v->kind == APR_VOCAB_BPE && v->pattern == NULL && v->n_splits == 0 && v->pre != NULL) {
        *obstacle = apr_arena_print(arena, "the tokenizer's splitting rule '%.60s' is unknown", v->pre);
        return *obstacle != NULL ? APR_OK : apr_no_memory(err, "the vocabulary");
    }
    if (v->kind == APR_VOCAB_SPM && v->scores == NULL && v->n_merges == 0)
        *obstacle = "the SentencePiece tokenizer has neither scores nor merges";
    for (size_t i = 0; i < v->n_tokens + 2 * v->n_merges && *obstacle == NULL; i++) {
        const bool is_token = i < v->n_tokens;
        const apr_str text = is_token ? v->tokens[i] : v->merges[i - v->n_tokens];
        if (apr_hf_is_text(text) && (text.n_bytes > 0 || is_token)) continue;
        *obstacle = is_token ? apr_arena_print(arena, "token %zu of the tokenizer is not text", i)
                             : apr_arena_print(arena, "merge %zu of the tokenizer is not a pair of texts", (i - v->n_tokens) / 2);
        if (*obstacle == NULL) return apr_no_memory(err, "the vocabulary");
    }
    const bool opened = apr_vocab_index_open(&index, v, USED);
    const int64_t duplicate = index.duplicate_id;
    apr_vocab_index_close(&index);
    if (!opened) return apr_no_memory(err, "the vocabulary");
    if (duplicate >= 0 && *obstacle == NULL) {
        *obstacle = apr_arena_print(arena, "two tokens of the tokenizer are \"%.*s\", and tokenizer.json lists each once",
                                    shown(v->tokens[duplicate]), v->tokens[duplicate].text);
        if (*obstacle == NULL) return apr_no_memory(err, "the vocabulary");
    }
    return APR_OK;
}

static apr_status check_vocab(const checking *c)
{
    const apr_model *const m = c->layout;
    const char *obstacle;
    apr_str model;

    if (apr_model_attachment(m, "tokenizer.json") != NULL) return APR_OK;
    const bool is_gguf = m->origin.format == APR_FORMAT_GGUF && apr_kv_get_string(&m->kv, "tokenizer.ggml.model", &model);
    if (is_gguf && m->vocab.kind == APR_VOCAB_NONE && !apr_str_is(model, "none") && !apr_str_is(model, "no_vocab"))
        LOSS(c, "tokenizers of the kind '%.*s' are not supported, so the checkpoint would have no tokenizer", shown(model), model.text);
    APR_TRY(apr_hf_vocab_obstacle(&m->vocab, &c->losses->arena, &obstacle, c->err));
    if (obstacle != NULL) LOSS(c, "%s, so the checkpoint would have no tokenizer", obstacle);
    return APR_OK;
}

apr_status apr_hf_losses(const apr_model *layout, apr_losses *losses, apr_error *err)
{
    const checking c = {.layout = layout, .losses = losses, .err = err};

    if (layout->origin.format == APR_FORMAT_SAFETENSORS) return APR_OK; /* a checkpoint's own files are written back unchanged */
    APR_TRY(check_config(&c));
    APR_TRY(key_losses(layout, losses, err));
    APR_TRY(check_names(&c));
    return check_vocab(&c);
}
