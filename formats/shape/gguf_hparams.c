/* gguf_hparams.c - GGUF's ARCH.* keys and hyperparameters, read and written.
 *
 * The table of hyperparameters (hparams.h) names the key of each field. key_table has the keys whose value follows from several fields. An
 * apr_family (family.h) lists the keys that its architecture has, in the order of llama.cpp's converter. */
#include "formats/shape/gguf_hparams.h"
#include "formats/shape/family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEY = 160, MAX_ARCH = 64 };

typedef struct key_reader {
    const apr_kv_list *kv;
    const apr_family *family; /* NULL: unknown architecture */
    const apr_family_gguf *facts;
    const char *where;
    char arch[MAX_ARCH + 1];
    char key[MAX_KEY]; /* the last one looked up */
} key_reader;

typedef struct key_writer {
    const char *arch;
    const apr_hparams *h;
    const apr_family_gguf *facts;
    apr_kv_list *kv;
    apr_error *err;
    bool always; /* the key is written even if its value is 0 or false */
} key_writer;

/* --- reading one key --- */

/* The item "ARCH.name", or NULL. Its full key stays in r->key until the next call. */
static const apr_kv *find_key(key_reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, name);
    return apr_kv_find(r->kv, r->key);
}

/* A number, or the largest of an array with one per layer. False: no such key, *value is unchanged. */
static bool key_int(key_reader *r, const char *name, int64_t *value)
{
    const apr_kv *const item = find_key(r, name);

    if (item == NULL || item->type != APR_KV_ARRAY) return apr_kv_get_int(r->kv, r->key, value);
    if (item->n_elems == 0) return false;
    *value = apr_kv_elem_int(item, 0);
    for (uint64_t i = 1; i < item->n_elems; i++) {
        const int64_t v = apr_kv_elem_int(item, i);
        if (v > *value) *value = v;
    }
    return true;
}

/* The number in config.json that was rounded to f32 for the key. */
static bool key_real(key_reader *r, const char *name, double *value)
{
    const apr_kv *const item = find_key(r, name);
    if (!apr_kv_get_real(r->kv, r->key, value)) return false;
    if (item->type == APR_KV_F32) *value = apr_gguf_shortest_decimal(*value);
    return true;
}

/* --- writing one key --- */

static apr_status put_int(const key_writer *w, const char *name, int64_t value)
{
    const char *const key = apr_arena_print(w->kv->arena, "%s.%s", w->arch, name);
    if (key == NULL) return apr_no_memory(w->err, "a key");
    if (value < 0 || value > UINT32_MAX)
        return apr_fail(w->err, APR_E_UNSUPPORTED, "%s is %lld, which does not fit GGUF's 32 bits", key, (long long)value);
    return apr_kv_set_int(w->kv, key, APR_KV_U32, value, w->err);
}

static apr_status put_real(const key_writer *w, const char *name, double value)
{
    const char *const key = apr_arena_print(w->kv->arena, "%s.%s", w->arch, name);
    return key != NULL ? apr_kv_set_f32(w->kv, key, (float)value, w->err) : apr_no_memory(w->err, "a key");
}

static apr_status put_text(const key_writer *w, const char *name, const char *text)
{
    const char *const key = apr_arena_print(w->kv->arena, "%s.%s", w->arch, name);
    return key != NULL ? apr_kv_set_string(w->kv, key, apr_str_of(text), w->err) : apr_no_memory(w->err, "a key");
}

static apr_status put_bool(const key_writer *w, const char *name, bool value)
{
    const char *const key = apr_arena_print(w->kv->arena, "%s.%s", w->arch, name);
    return key != NULL ? apr_kv_set_bool(w->kv, key, value, w->err) : apr_no_memory(w->err, "a key");
}

static apr_status put_ints(const key_writer *w, const char *name, const int64_t *values, size_t n)
{
    uint8_t *const numbers = apr_arena_array(w->kv->arena, n, sizeof(int32_t));
    const char *const key = apr_arena_print(w->kv->arena, "%s.%s", w->arch, name);

    if (numbers == NULL || key == NULL) return apr_no_memory(w->err, "a key");
    for (size_t i = 0; i < n; i++) {
        if (values[i] < 0 || values[i] > INT32_MAX)
            return apr_fail(w->err, APR_E_UNSUPPORTED, "%s is %lld in layer %zu, which does not fit GGUF's 32 bits", key,
                            (long long)values[i], i);
        apr_store_le32(numbers + 4 * i, (uint32_t)values[i]);
    }
    const apr_kv item = {.key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = APR_KV_I32, .n_elems = n, .value.numbers = numbers};
    return apr_kv_set(w->kv, &item, w->err);
}

/* Writes one number for each layer, or a single one if all are the same. */
static apr_status put_by_layer(const key_writer *w, const char *name, int64_t (*value_of)(const apr_hparams *h, int64_t layer))
{
    const int64_t n = w->h->num_layers;
    int64_t *const values = apr_arena_array(w->kv->arena, (size_t)n, sizeof *values);
    bool same = true;

    if (values == NULL) return apr_no_memory(w->err, "a key");
    for (int64_t i = 0; i < n; i++) {
        values[i] = value_of(w->h, i);
        same = same && values[i] == values[0];
    }
    if (!same) return put_ints(w, name, values, (size_t)n);
    return n > 0 && values[0] != 0 ? put_int(w, name, values[0]) : APR_OK;
}

/* --- what follows from several hyperparameters --- */

const char *apr_architecture_to_ggml(const char *model_type)
{
    const apr_family *const family = apr_family_find(model_type);
    return family != NULL && family->ggml != NULL ? family->ggml : model_type;
}

const char *apr_gguf_architecture(const apr_hparams *h)
{
    const apr_family *const family = apr_family_find(h->architecture);
    const char *const dense = apr_family_gguf_of(family)->name_without_experts;

    if (h->architecture == NULL) return "";
    return dense != NULL && h->num_experts == 0 ? dense : apr_architecture_to_ggml(h->architecture);
}

static int64_t width_of_experts(const apr_hparams *h)
{
    return h->moe_intermediate_size > 0 ? h->moe_intermediate_size : h->intermediate_size;
}

/* sqrt(1 + ln(longest / original) / ln(original)): longrope's default factor of cosines and sines. */
static double longrope_factor(const apr_hparams *h)
{
    const double original = (double)h->rope.original_context;
    const double factor = h->rope.factor > 0 ? h->rope.factor : original > 0 ? (double)h->max_position_embeddings / original : 0;
    return factor > 1 && original > 1 ? sqrt(1 + log(factor) / log(original)) : 1;
}

/* --- rotary scaling --- */

/* The scalings that rope.scaling.type names; llama 3's and gemma 4's are in the tensor rope_freqs.weight. */
static const bool has_type[APR_N_ROPE_KINDS] = {[APR_ROPE_LINEAR] = true, [APR_ROPE_YARN] = true, [APR_ROPE_LONGROPE] = true};

/* The key belongs to the score scale of latent attention (MLA). It gives mscale = mscale_all_dim: cosines and sines are not scaled. */
static void read_log_multiplier(key_reader *r, apr_rope_scaling *rope)
{
    double value = 0;

    if (r->facts->yarn_log_unit == 0 || !key_real(r, "rope.scaling.yarn_log_multiplier", &value)) return;
    rope->mscale = rope->mscale_all_dim = apr_gguf_shortest_decimal((double)(float)(value / r->facts->yarn_log_unit));
    if (rope->attention_factor == 0 && rope->mscale != 0) rope->attention_factor = 1;
}

/* The factor that llama.cpp multiplies by rope.scaling.attn_factor: YaRN's usual one, or 1 if there is a log multiplier. */
static double usual_factor(const apr_rope_scaling *rope, bool has_multiplier)
{
    return !has_multiplier && rope->factor > 1 ? 0.1 * log(rope->factor) + 1.0 : 1.0;
}

/* The attention factor is the key times the usual factor, as the shortest decimal that is written as this key. A key of 1 adds nothing. */
static void read_attn_factor(key_reader *r, apr_rope_scaling *rope)
{
    const double usual = usual_factor(rope, r->facts->yarn_log_unit != 0 && rope->mscale_all_dim != 0);
    double times = 0;
    char text[32];

    if (!key_real(r, "rope.scaling.attn_factor", &times) || !(times > 0) || (float)times == 1.0f) return;
    rope->attention_factor = times * usual;
    for (int n_digits = 1; n_digits <= 9; n_digits++) {
        snprintf(text, sizeof text, "%.*g", n_digits, times * usual);
        if ((float)(strtod(text, NULL) / usual) != (float)times) continue;
        rope->attention_factor = strtod(text, NULL);
        return;
    }
}

/* phi3 has no rope.scaling.type; its factors are tensors. */
static void read_longrope(key_reader *r, apr_hparams *h)
{
    apr_rope_scaling *const rope = &h->rope;

    if (!key_real(r, "rope.scaling.attn_factor", &rope->attention_factor)) return;
    rope->kind = APR_ROPE_LONGROPE;
    key_int(r, "rope.scaling.original_context_length", &rope->original_context);
    if (apr_is_near(rope->attention_factor, longrope_factor(h))) rope->attention_factor = 0; /* follows from the rest */
}

static void read_rope(key_reader *r, apr_hparams *h)
{
    apr_rope_scaling *const rope = &h->rope;
    apr_str type = {0};

    find_key(r, "rope.scaling.type");
    if (!apr_kv_get_string(r->kv, r->key, &type)) {
        if (r->facts->has_longrope) read_longrope(r, h);
        return;
    }
    for (int i = 0; i < APR_N_ROPE_KINDS; i++)
        if (has_type[i] && apr_str_is(type, apr_rope_names[i])) rope->kind = (apr_rope_kind)i;
    if (rope->kind == APR_ROPE_PLAIN) return; /* "none" */
    key_real(r, "rope.scaling.factor", &rope->factor);
    key_int(r, "rope.scaling.original_context_length", &rope->original_context);
    key_real(r, "rope.scaling.yarn_beta_fast", &rope->beta_fast);
    key_real(r, "rope.scaling.yarn_beta_slow", &rope->beta_slow);
    const bool is_local = r->family != NULL && r->family->config != NULL && r->family->config->scales_full_only;
    if (is_local && h->rope_theta_local == 0) h->rope_theta_local = h->rope_theta;
    if (rope->kind != APR_ROPE_YARN) return;
    key_real(r, "rope.scaling.yarn_attn_factor", &rope->attention_factor); /* the whole factor, as older aprkits wrote it */
    rope->no_truncate = r->facts->no_truncate;
    read_log_multiplier(r, rope);
    read_attn_factor(r, rope);
}

static apr_status put_nonzero(const key_writer *w, const char *name, double value)
{
    return value != 0 ? put_real(w, name, value) : APR_OK;
}

/* Theta is written with alpha applied, so no scaling is left. */
static apr_status put_unscaled(const key_writer *w)
{
    APR_TRY(put_text(w, "rope.scaling.type", "none"));
    return put_real(w, "rope.scaling.factor", 1);
}

static apr_status put_rope(const key_writer *w)
{
    const apr_rope_scaling *const rope = &w->h->rope;

    if (rope->kind == APR_ROPE_DYNAMIC && rope->alpha > 0) return put_unscaled(w);
    if (!has_type[rope->kind]) return APR_OK;
    APR_TRY(put_text(w, "rope.scaling.type", apr_rope_names[rope->kind]));
    APR_TRY(put_nonzero(w, "rope.scaling.factor", rope->factor));
    if (rope->original_context != 0) APR_TRY(put_int(w, "rope.scaling.original_context_length", rope->original_context));
    const double usual = usual_factor(rope, w->facts->yarn_log_unit != 0 && rope->mscale_all_dim != 0);
    if (rope->kind != APR_ROPE_YARN) APR_TRY(put_nonzero(w, "rope.scaling.attn_factor", rope->attention_factor));
    else if (!apr_is_near(rope->attention_factor, usual))
        APR_TRY(put_nonzero(w, "rope.scaling.attn_factor", rope->attention_factor / usual));
    APR_TRY(put_nonzero(w, "rope.scaling.yarn_beta_fast", rope->beta_fast));
    return put_nonzero(w, "rope.scaling.yarn_beta_slow", rope->beta_slow);
}

/* --- the kinds of the layers, read --- */

/* The array with an entry for each layer; NULL: not an array of numbers, or too short. */
static const apr_kv *by_layer(key_reader *r, const char *name, const apr_hparams *h)
{
    const apr_kv *const item = find_key(r, name);
    const bool fits = item != NULL && item->type == APR_KV_ARRAY && item->elem_type != APR_KV_STRING;
    return fits && item->n_elems >= (uint64_t)h->num_layers ? item : NULL;
}

static apr_status get_kinds(apr_hparams *h, uint8_t **kinds, apr_arena *arena, apr_error *err)
{
    *kinds = apr_arena_alloc(arena, (size_t)h->num_layers);
    if (*kinds == NULL) return apr_no_memory(err, "the kinds of the layers");
    memset(*kinds, 0, (size_t)h->num_layers);
    return APR_OK;
}

/* Which layers have a sliding window, or attend within their chunk. */
static apr_status read_windows(key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    apr_window_layers window = {.full_every = r->facts->full_every};
    const apr_kv *const pattern = by_layer(r, "attention.sliding_window_pattern", h);
    uint8_t *kinds;

    apr_kv_get_int(r->kv, r->key, &window.full_every);
    const bool stated_none = r->facts->chunks && find_key(r, "attention.sliding_window") != NULL && h->sliding_window == 0;
    const bool limits = r->facts->chunks ? h->attention_chunk_size > 0 && !stated_none : h->sliding_window > 0;
    if (!limits || (window.full_every <= 1 && pattern == NULL)) return APR_OK;
    APR_TRY(get_kinds(h, &kinds, arena, err));
    for (int64_t i = 0; i < h->num_layers; i++) {
        const bool is_limited = pattern != NULL ? apr_kv_elem_int(pattern, (uint64_t)i) != 0 : apr_layer_slides(window, i);
        kinds[i] = !is_limited ? APR_LAYER_FULL : r->facts->chunks ? APR_LAYER_CHUNKED : APR_LAYER_SLIDING;
    }
    h->layer_kinds = kinds;
    return APR_OK;
}

/* Layers without key/value heads are convolution, delta or Mamba layers. If feed_forward_length is an array, those with a width have only a
 * feed-forward. */
static apr_status read_mixers(key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    const apr_layer_kind other = find_key(r, "shortconv.l_cache") != NULL ? APR_LAYER_CONV
                                 : r->facts->channel_delta                ? APR_LAYER_LINEAR
                                 : find_key(r, "ssm.conv_kernel") != NULL ? APR_LAYER_MAMBA
                                                                          : APR_LAYER_FULL;
    const apr_kv *const widths = by_layer(r, "feed_forward_length", h), *const heads = by_layer(r, "attention.head_count_kv", h);
    uint8_t *kinds, *ffns;

    if (r->facts->all_mamba) {
        APR_TRY(get_kinds(h, &kinds, arena, err));
        memset(kinds, APR_LAYER_MAMBA, (size_t)h->num_layers);
        h->layer_kinds = kinds;
        return APR_OK;
    }
    if (heads == NULL || other == APR_LAYER_FULL) return APR_OK;
    APR_TRY(get_kinds(h, &kinds, arena, err));
    APR_TRY(get_kinds(h, &ffns, arena, err));
    for (uint64_t i = 0; i < (uint64_t)h->num_layers; i++) {
        const bool attends = apr_kv_elem_int(heads, i) > 0, has_ffn = widths == NULL || apr_kv_elem_int(widths, i) > 0;
        kinds[i] = (uint8_t)(attends ? APR_LAYER_FULL : widths != NULL && has_ffn ? APR_LAYER_NONE : other);
        ffns[i] = !has_ffn ? APR_FFN_NONE : h->num_experts > 0 ? APR_FFN_EXPERTS : APR_FFN_DENSE;
    }
    h->layer_kinds = kinds;
    if (widths != NULL) h->ffn_kinds = ffns;
    return APR_OK;
}

/* The first n_dense layers are dense. After them every step-th layer has experts. */
static apr_status read_experts(key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    int64_t n_dense = r->facts->n_dense, step = 1;
    uint8_t *kinds;

    key_int(r, "leading_dense_block_count", &n_dense);
    key_int(r, "interleave_moe_layer_step", &step);
    if (h->num_experts <= 0 || h->ffn_kinds != NULL || (n_dense <= 0 && step <= 1)) return APR_OK;
    APR_TRY(get_kinds(h, &kinds, arena, err));
    for (int64_t i = 0; i < h->num_layers; i++)
        kinds[i] = i >= n_dense && (step <= 1 || (i + 1) % step == 0) ? APR_FFN_EXPERTS : APR_FFN_DENSE;
    h->ffn_kinds = kinds;
    return APR_OK;
}

static bool lacks_rope(apr_nope_rule rule, const apr_hparams *h, int64_t layer)
{
    if (rule == APR_NOPE_FOURTH) return (layer + 1) % 4 == 0;
    return rule != APR_NOPE_FULL || apr_layer_kind_of(h, layer) == APR_LAYER_FULL;
}

static apr_status read_positions(key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    const apr_nope_rule rule = r->facts->nope;
    bool finetuned = true;
    uint8_t *none;

    find_key(r, "rope.scaling.finetuned");
    apr_kv_get_bool(r->kv, r->key, &finetuned);
    const bool matters = rule == APR_NOPE_FULL || r->facts->chunks ? h->layer_kinds != NULL : true;
    if (rule == APR_NOPE_NONE || !matters || (rule == APR_NOPE_UNLESS_FINETUNED && finetuned)) return APR_OK;
    APR_TRY(get_kinds(h, &none, arena, err));
    for (int64_t i = 0; i < h->num_layers; i++) none[i] = lacks_rope(rule, h, i);
    h->no_rope = none;
    return APR_OK;
}

/* llama.cpp's assumption about a file that does not list the layers: models with at least this context share as GLM-5.2 does. */
static const int64_t shared_index_context = 1 << 20;
static const apr_index_layers shared_index_layers = {3, 4};

/* Which layers attend to the positions that an earlier layer chose; the key is true for those with their own index. */
static apr_status read_indexes(key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    const apr_kv *const own = by_layer(r, "attention.indexer.types", h);
    uint8_t *shares;

    if (!r->facts->shares_index || (own == NULL && h->max_position_embeddings < shared_index_context)) return APR_OK;
    APR_TRY(get_kinds(h, &shares, arena, err));
    for (int64_t i = 0; i < h->num_layers; i++)
        shares[i] = own != NULL ? apr_kv_elem_int(own, (uint64_t)i) == 0 : !apr_layer_has_own_index(shared_index_layers, i);
    h->shares_index = shares;
    return APR_OK;
}

static apr_status read_layers(key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    if (h->num_layers <= 0 || h->num_layers > APR_MAX_LAYERS) return APR_OK; /* apr_hparams_complete reports it */
    APR_TRY(read_windows(r, h, arena, err));
    APR_TRY(read_mixers(r, h, arena, err));
    APR_TRY(read_experts(r, h, arena, err));
    APR_TRY(read_indexes(r, h, arena, err));
    return read_positions(r, h, arena, err);
}

/* --- the same, written --- */

static int64_t doubled(int64_t value)
{
    int64_t twice;
    return __builtin_add_overflow(value, value, &twice) ? -1 : twice;
}

/* nemotron_h: the width of the layer's feed-forward or experts. Others: the width of a dense layer, unused if all layers have experts. */
static int64_t feed_forward_of(const apr_hparams *h, int64_t layer)
{
    const bool is_shared = layer >= h->num_layers - h->num_kv_shared_layers;
    const apr_ffn_kind kind = apr_ffn_kind_of(h, layer);

    if (kind == APR_FFN_NONE) return 0;
    if (apr_layer_kind_of(h, layer) == APR_LAYER_NONE && kind == APR_FFN_EXPERTS) return width_of_experts(h);
    return h->use_double_wide_mlp && is_shared ? doubled(h->intermediate_size) : h->intermediate_size;
}

static int64_t kv_heads_of(const apr_hparams *h, int64_t layer)
{
    /* Linear layers do not attend. They count here, so that the key is one number: that of the other layers. */
    static const bool attends[APR_N_LAYER_KINDS] = {
        [APR_LAYER_FULL] = true, [APR_LAYER_SLIDING] = true, [APR_LAYER_CHUNKED] = true, [APR_LAYER_LINEAR] = true};
    const apr_layer_kind kind = apr_layer_kind_of(h, layer);

    if (h->kv_lora_rank > 0) return kind != APR_LAYER_LINEAR; /* one latent; next to it llama.cpp knows linear layers by 0 */
    if (!attends[kind]) return 0;
    return kind == APR_LAYER_FULL && h->num_global_kv_heads > 0 ? h->num_global_kv_heads : h->num_kv_heads;
}

static apr_status put_feed_forward(const key_writer *w, const char *name)
{
    if (w->always && w->h->intermediate_size == 0) return put_int(w, name, 0);
    return w->h->num_layers > 0           ? put_by_layer(w, name, feed_forward_of)
           : w->h->intermediate_size != 0 ? put_int(w, name, w->h->intermediate_size)
                                          : APR_OK;
}

static apr_status put_kv_heads(const key_writer *w, const char *name)
{
    return w->h->num_layers > 0      ? put_by_layer(w, name, kv_heads_of)
           : w->h->num_kv_heads != 0 ? put_int(w, name, w->h->num_kv_heads)
                                     : APR_OK;
}

/* A list of true and false, one for each layer. */
static apr_status put_flag_by_layer(const key_writer *w, const char *name, bool (*flag)(const apr_hparams *h, int64_t layer))
{
    const size_t n = (size_t)w->h->num_layers;
    uint8_t *const flags = apr_arena_alloc(w->kv->arena, n + 1);
    const char *const key = apr_arena_print(w->kv->arena, "%s.%s", w->arch, name);

    if (flags == NULL || key == NULL) return apr_no_memory(w->err, "a key");
    for (size_t i = 0; i < n; i++) flags[i] = flag(w->h, (int64_t)i);
    const apr_kv item = {.key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = APR_KV_BOOL, .n_elems = n, .value.numbers = flags};
    return n > 0 ? apr_kv_set(w->kv, &item, w->err) : APR_OK;
}

static bool slides(const apr_hparams *h, int64_t layer) { return apr_layer_kind_of(h, layer) == APR_LAYER_SLIDING; }
static bool has_own_index(const apr_hparams *h, int64_t layer) { return !apr_layer_shares_index(h, layer); }

static apr_status put_pattern(const key_writer *w, const char *name)
{
    return w->h->sliding_window == 0 ? APR_OK : put_flag_by_layer(w, name, slides);
}

/* Not written where every layer has its own index and readers assume that. */
static apr_status put_indexes(const key_writer *w, const char *name)
{
    bool any = w->h->max_position_embeddings >= shared_index_context;
    for (int64_t i = 0; i < w->h->num_layers && !any; i++) any = apr_layer_shares_index(w->h, i);
    return any ? put_flag_by_layer(w, name, has_own_index) : APR_OK;
}

static bool no_layer_has_rope(const apr_hparams *h)
{
    int64_t i = 0;
    while (i < h->num_layers && !apr_layer_has_rope(h, i)) i++;
    return h->num_layers > 0 && i == h->num_layers;
}

static bool has_experts_from(const apr_hparams *h, int64_t n_dense, int64_t step)
{
    for (int64_t i = n_dense; i < h->num_layers; i++)
        if ((apr_ffn_kind_of(h, i) == APR_FFN_EXPERTS) != ((i + 1) % step == 0)) return false;
    return true;
}

/* The nearest rule for all layers: the first *n_dense layers are dense, and after them every *step-th has experts. */
static void expert_layers(const apr_hparams *h, int64_t *n_dense, int64_t *step)
{
    *n_dense = 0;
    *step = 1;
    while (*n_dense < h->num_layers && apr_ffn_kind_of(h, *n_dense) != APR_FFN_EXPERTS) ++*n_dense;
    while (*step <= h->num_layers && !has_experts_from(h, *n_dense, *step)) ++*step;
    if (*step > h->num_layers) *step = 1;
}

/* --- whole numbers --- */

static int64_t product(int64_t a, int64_t b)
{
    int64_t p;
    return __builtin_mul_overflow(a, b, &p) ? -1 : p; /* -1 is refused as a value */
}

static int64_t sum(int64_t a, int64_t b)
{
    int64_t s;
    return __builtin_add_overflow(a, b, &s) ? -1 : s;
}

static int64_t hidden_per_head(const apr_hparams *h) { return h->num_heads > 0 ? h->hidden_size / h->num_heads : 0; }
static int64_t key_length(const key_writer *w)
{
    const apr_hparams *const h = w->h;
    if (h->kv_lora_rank > 0) return sum(h->kv_lora_rank, h->qk_rope_head_dim);
    return w->facts->omits_head_dim && h->head_dim == hidden_per_head(h) ? 0 : h->global_head_dim > 0 ? h->global_head_dim : h->head_dim;
}
static int64_t value_length(const key_writer *w) { return w->h->kv_lora_rank > 0 ? w->h->kv_lora_rank : key_length(w); }
static int64_t head_dim(const key_writer *w) { return w->h->head_dim; }
static int64_t block_count(const key_writer *w)
{
    const bool counts = w->facts->more_keys != NULL && strstr(w->facts->more_keys, " nextn_predict_layers") != NULL;
    return counts ? sum(w->h->num_layers, w->h->num_nextn_layers) : w->h->num_layers;
}
/* Without positions the context has no limit. llama.cpp's converter writes 2^20. */
static int64_t context_length(const key_writer *w)
{
    const bool unlimited = w->facts->nope >= APR_NOPE_UNLESS_FINETUNED && !w->facts->channel_delta && no_layer_has_rope(w->h);
    return unlimited && w->h->max_position_embeddings > 0 ? 1 << 20 : w->h->max_position_embeddings;
}
static int64_t rotary_dim(const key_writer *w)
{
    if (w->h->kv_lora_rank > 0) return w->h->qk_rope_head_dim;
    if (w->facts->nope == APR_NOPE_ALL) return hidden_per_head(w->h); /* unused */
    return w->h->global_head_dim > 0 ? w->h->global_head_dim : w->h->rotary_dim;
}
static int64_t rotary_dim_swa(const key_writer *w) { return w->h->rotary_dim; }
static int64_t n_leading_dense(const key_writer *w)
{
    int64_t n_dense, step;
    expert_layers(w->h, &n_dense, &step);
    return n_dense;
}
static int64_t expert_step(const key_writer *w)
{
    int64_t n_dense, step;
    expert_layers(w->h, &n_dense, &step);
    return step;
}
/* Every n-th layer has full attention, the others are linear; 0: the layers follow no such rule. */
static int64_t attention_interval(const key_writer *w)
{
    const apr_hparams *const h = w->h;
    int64_t n = 0;

    if (h->full_attention_interval > 0 || h->layer_kinds == NULL) return h->full_attention_interval;
    while (n < h->num_layers && apr_layer_kind_of(h, n) == APR_LAYER_LINEAR) n++;
    for (int64_t i = 0; i < h->num_layers; i++)
        if ((apr_layer_kind_of(h, i) != APR_LAYER_LINEAR) != ((i + 1) % (n + 1) == 0)) return 0;
    return n + 1;
}
static int64_t score_function(const key_writer *w) { return w->h->num_experts > 0 ? w->facts->score_function : 0; }
static int64_t expert_width(const key_writer *w) { return w->h->num_experts > 0 ? width_of_experts(w->h) : w->h->moe_intermediate_size; }
static int64_t shared_width(const key_writer *w)
{
    const apr_hparams *const h = w->h;
    return h->shared_expert_intermediate_size > 0 ? h->shared_expert_intermediate_size
                                                  : product(h->num_shared_experts, width_of_experts(h));
}
static int64_t n_shared(const key_writer *w)
{
    const int64_t width = width_of_experts(w->h);
    return w->h->num_shared_experts > 0 || width == 0 ? w->h->num_shared_experts : w->h->shared_expert_intermediate_size / width;
}
static int64_t inner_size(const key_writer *w) { return product(w->h->linear_num_value_heads, w->h->linear_value_head_dim); }
static int64_t original_context(const key_writer *w)
{
    return w->h->rope.original_context > 0 ? w->h->rope.original_context : w->h->max_position_embeddings;
}
static int64_t temperature_length(const key_writer *w)
{
    return w->h->attn_temperature_length < (double)UINT32_MAX ? (int64_t)w->h->attn_temperature_length : -1;
}

/* --- others --- */

/* llama.cpp has no alpha: it gets theta with alpha applied. */
static apr_status put_theta(const key_writer *w, const char *name)
{
    const apr_hparams *const h = w->h;
    const double n = (double)h->rotary_dim, alpha = h->rope.kind == APR_ROPE_DYNAMIC && n > 2 ? h->rope.alpha : 0;
    return h->rope_theta == 0 ? APR_OK : put_real(w, name, alpha > 0 ? h->rope_theta * pow(alpha, n / (n - 2)) : h->rope_theta);
}

/* Also written if sliding layers use the global theta and readers would assume another. */
static apr_status put_local_theta(const key_writer *w, const char *name)
{
    const bool supposed = w->facts->assumes != NULL && w->facts->assumes->rope_theta_local > 0;
    const double theta = w->h->rope_theta_local > 0 || !supposed ? w->h->rope_theta_local : w->h->rope_theta;
    return theta > 0 ? put_real(w, name, theta) : APR_OK;
}

static apr_status put_eps(const key_writer *w, apr_eps_rule other, const char *name)
{
    return w->facts->eps == other || w->h->rms_norm_eps == 0 ? APR_OK : put_real(w, name, w->h->rms_norm_eps);
}
static apr_status put_rms_eps(const key_writer *w, const char *name) { return put_eps(w, APR_EPS_LAYER, name); }
static apr_status put_layer_eps(const key_writer *w, const char *name) { return put_eps(w, APR_EPS_RMS, name); }

/* M-RoPE splits the rotary pairs among time, height and width. Where nothing is stated, in near thirds: 32 pairs are 11, 11, 10. */
static apr_status put_sections(const key_writer *w, const char *name)
{
    const apr_hparams *const h = w->h;
    const int64_t n = h->rotary_dim / 2, first = (n + 2) / 3, second = (n - first + 1) / 2;
    const int64_t thirds[4] = {first, second, n - first - second, 0}, stated[4] = {h->mrope_time, h->mrope_height, h->mrope_width, 0};

    if (h->mrope_time > 0) return put_ints(w, name, stated, 4);
    return w->facts->writes_sections && n > 0 ? put_ints(w, name, thirds, 4) : APR_OK;
}

static void read_sections(key_reader *r, apr_hparams *h)
{
    const apr_kv *const sections = find_key(r, "rope.dimension_sections");

    if (sections == NULL || sections->type != APR_KV_ARRAY || sections->elem_type == APR_KV_STRING || sections->n_elems < 3) return;
    h->mrope_time = apr_kv_elem_int(sections, 0);
    h->mrope_height = apr_kv_elem_int(sections, 1);
    h->mrope_width = apr_kv_elem_int(sections, 2);
}

static apr_status put_norm_topk(const key_writer *w, const char *name)
{
    return w->h->norm_topk_prob || w->always ? put_bool(w, name, w->h->norm_topk_prob) : APR_OK;
}
static apr_status put_parallel(const key_writer *w, const char *name) { return put_bool(w, name, w->h->parallel_residual); }
static apr_status put_finetuned(const key_writer *w, const char *name) { return put_bool(w, name, !no_layer_has_rope(w->h)); }
static apr_status put_scaling(const key_writer *w, const char *name)
{
    (void)name;
    return put_rope(w);
}
static apr_status put_no_scaling(const key_writer *w, const char *name)
{
    return w->h->rope.kind == APR_ROPE_PLAIN ? put_text(w, name, "none") : APR_OK;
}
static apr_status put_log_multiplier(const key_writer *w, const char *name)
{
    const double value = w->h->rope.kind == APR_ROPE_YARN ? w->facts->yarn_log_unit * w->h->rope.mscale_all_dim : 0;
    return value != 0 ? put_real(w, name, value) : APR_OK;
}

static apr_status put_longrope(const key_writer *w, const char *name)
{
    const apr_rope_scaling *const s = &w->h->rope;
    if (s->kind != APR_ROPE_LONGROPE) return APR_OK;
    return put_real(w, name, s->attention_factor > 0 ? s->attention_factor : longrope_factor(w->h));
}

/* Keys that are not fields of the hyperparameter table: a derived integer (value), or anything else (put). */
static const struct {
    const char *name;
    int64_t (*value)(const key_writer *w);
    apr_status (*put)(const key_writer *w, const char *name);
} key_table[] = {
    {"attention.head_count_kv", NULL, put_kv_heads},
    {"attention.indexer.types", NULL, put_indexes},
    {"attention.key_length", key_length, NULL},
    {"attention.key_length_mla", head_dim, NULL},
    {"attention.key_length_swa", head_dim, NULL},
    {"attention.layer_norm_epsilon", NULL, put_layer_eps},
    {"attention.layer_norm_rms_epsilon", NULL, put_rms_eps},
    {"attention.sliding_window_pattern", NULL, put_pattern},
    {"attention.temperature_length", temperature_length, NULL},
    {"attention.value_length", value_length, NULL},
    {"attention.value_length_swa", head_dim, NULL},
    {"block_count", block_count, NULL},
    {"context_length", context_length, NULL},
    {"expert_feed_forward_length", expert_width, NULL},
    {"expert_gating_func", score_function, NULL},
    {"expert_shared_count", n_shared, NULL},
    {"expert_shared_feed_forward_length", shared_width, NULL},
    {"expert_weights_norm", NULL, put_norm_topk},
    {"feed_forward_length", NULL, put_feed_forward},
    {"full_attention_interval", attention_interval, NULL},
    {"interleave_moe_layer_step", expert_step, NULL},
    {"leading_dense_block_count", n_leading_dense, NULL},
    {"rope.dimension_count", rotary_dim, NULL},
    {"rope.dimension_count_swa", rotary_dim_swa, NULL},
    {"rope.dimension_sections", NULL, put_sections},
    {"rope.freq_base", NULL, put_theta},
    {"rope.freq_base_swa", NULL, put_local_theta},
    {"rope.scaling", NULL, put_scaling}, /* a group of keys */
    {"rope.scaling.attn_factor", NULL, put_longrope},
    {"rope.scaling.finetuned", NULL, put_finetuned},
    {"rope.scaling.original_context_length", original_context, NULL},
    {"rope.scaling.type", NULL, put_no_scaling},
    {"rope.scaling.yarn_log_multiplier", NULL, put_log_multiplier},
    {"ssm.inner_size", inner_size, NULL},
    {"use_parallel_residual", NULL, put_parallel},
};

/* --- reading --- */

static const char *key_of_field(const apr_family_gguf *facts, const apr_hparam_field *field)
{
    for (size_t i = 0; i < APR_MAX_GGUF_SPELLINGS && facts->spellings[i].field != NULL; i++)
        if (strcmp(facts->spellings[i].field, field->name) == 0) return facts->spellings[i].key;
    return field->gguf_key;
}

static void read_table(key_reader *r, apr_hparams *h)
{
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const char *const key = key_of_field(r->facts, field);
        if (key[0] == '\0') continue;
        if (field->is_int) key_int(r, key, apr_hparam_int(h, field));
        else key_real(r, key, apr_hparam_real(h, field));
    }
    for (size_t i = 0; i < apr_n_hflag_fields; i++)
        if (apr_hflag_fields[i].gguf_key[0] != '\0') {
            find_key(r, apr_hflag_fields[i].gguf_key);
            apr_kv_get_bool(r->kv, r->key, apr_hflag(h, &apr_hflag_fields[i]));
        }
    if (r->facts->eps != APR_EPS_RMS) key_real(r, "attention.layer_norm_epsilon", &h->rms_norm_eps);
}

/* --- what is not a field of the table --- */

/* Latent attention (MLA): key_length is that of the cached latent, key_length_mla that of a head. Old files lack the latter. */
static void read_latent(key_reader *r, apr_hparams *h)
{
    if (h->kv_lora_rank <= 0) return;
    if (key_int(r, "attention.key_length_mla", &h->head_dim)) h->num_kv_heads = h->num_heads;
    else key_int(r, "attention.value_length", &h->v_head_dim);
    h->qk_rope_head_dim = h->rotary_dim;
    if (h->head_dim > h->rotary_dim && h->rotary_dim >= 0) h->qk_nope_head_dim = h->head_dim - h->rotary_dim;
}

/* Sliding layers may have another head size (key_length_swa). The plain keys then describe the full layers. */
static void read_global_heads(key_reader *r, apr_hparams *h)
{
    int64_t of_sliding;

    if (!key_int(r, "attention.key_length_swa", &of_sliding)) return;
    h->global_head_dim = h->head_dim;
    h->head_dim = of_sliding;
    h->rotary_dim = of_sliding;
    key_int(r, "rope.dimension_count_swa", &h->rotary_dim);
    h->enable_moe_block = h->num_experts > 0;
}

/* Reads the numbers of key/value heads of full and of other layers. Needs layer_kinds. */
static void read_kv_heads(key_reader *r, apr_hparams *h)
{
    const apr_kv *const heads = find_key(r, "attention.head_count_kv");
    int64_t most[2] = {0, 0}; /* of full and of other layers */

    if (h->global_head_dim == 0 || h->layer_kinds == NULL || heads == NULL || heads->type != APR_KV_ARRAY) return;
    for (int64_t i = 0; i < h->num_layers; i++) {
        const int64_t n = apr_kv_elem_int(heads, (uint64_t)i);
        int64_t *const of_kind = &most[h->layer_kinds[i] != APR_LAYER_FULL];
        if (n > *of_kind) *of_kind = n;
    }
    if (most[0] <= 0 || most[1] <= 0) return;
    h->num_kv_heads = most[1];
    h->num_global_kv_heads = most[0];
}

/* Layers that reuse an earlier layer's keys and values may have feed-forwards twice as wide. */
static void read_wide_mlp(key_reader *r, apr_hparams *h)
{
    const apr_kv *const widths = find_key(r, "feed_forward_length");

    if (h->num_kv_shared_layers <= 0 || widths == NULL || widths->type != APR_KV_ARRAY) return;
    const int64_t first = apr_kv_elem_int(widths, 0);
    h->use_double_wide_mlp = first > 0 && h->intermediate_size / 2 == first && h->intermediate_size % 2 == 0;
    if (h->use_double_wide_mlp) h->intermediate_size = first;
}

static void read_sizes(key_reader *r, apr_hparams *h)
{
    int64_t inner;

    if (h->num_nextn_layers > 0 && h->num_nextn_layers < h->num_layers) h->num_layers -= h->num_nextn_layers;
    if (key_int(r, "ssm.inner_size", &inner) && h->linear_num_value_heads > 0) h->linear_value_head_dim = inner / h->linear_num_value_heads;
    if (r->facts->shares_by_count && h->num_shared_experts > 0) h->shared_expert_intermediate_size = 0;
    if (r->facts->shares_one && h->num_experts > 0 && h->shared_expert_intermediate_size == 0)
        h->shared_expert_intermediate_size = width_of_experts(h);
    if (r->facts->nope == APR_NOPE_ALL && h->kv_lora_rank == 0) h->rotary_dim = 0; /* the key means nothing there */
    if (r->facts->channel_delta) {
        h->linear_num_key_heads = h->linear_num_value_heads = h->num_heads;
        h->linear_key_head_dim = h->linear_value_head_dim;
    }
    if (r->facts->experts_without_qk_norm > 0 && h->num_experts == r->facts->experts_without_qk_norm) h->use_qk_norm = false;
    read_latent(r, h);
    read_sections(r, h);
    read_global_heads(r, h);
    if (r->facts->wide_layers > 0 && h->num_heads > 0) {
        const int64_t width = h->hidden_size / h->num_heads;
        h->query_pre_attn_scalar = (double)(h->num_layers == r->facts->wide_layers || h->head_dim == 0 ? width : h->head_dim);
    }
}

/* --- the family --- */

/* Several families may share one ggml name. A key decides between them; otherwise the first is taken. */
static const apr_family *find_family(key_reader *r)
{
    for (size_t i = 0; i < apr_n_families; i++) {
        const apr_gguf_choice *const choice = &apr_families[i]->gguf.chosen_by;
        int64_t value = 0;
        if (choice->key == NULL || !apr_family_is_in_ggml(apr_families[i], r->arch)) continue;
        key_int(r, choice->key, &value);
        if (value >= choice->least && value <= choice->most) return apr_families[i];
    }
    return apr_family_of_ggml(r->arch);
}

static apr_status name_architecture(key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    apr_str arch;

    if (!apr_kv_get_string(r->kv, "general.architecture", &arch)) return APR_OK; /* a file of bare tensors */
    if (arch.n_bytes == 0 || arch.n_bytes > MAX_ARCH || memchr(arch.text, '\0', arch.n_bytes) != NULL || !apr_str_is_utf8(arch))
        return apr_fail(err, APR_E_DAMAGED, "%s: general.architecture is not a name: it has %zu bytes", r->where, arch.n_bytes);
    memcpy(r->arch, arch.text, arch.n_bytes);
    r->family = find_family(r);
    r->facts = apr_family_gguf_of(r->family);
    if (r->facts->assumes != NULL) *h = *r->facts->assumes;
    const char *const name = r->family != NULL ? r->family->types[0].name : r->arch;
    h->architecture = apr_arena_copy(arena, name, strlen(name));
    return h->architecture != NULL ? APR_OK : apr_no_memory(err, "the name of the architecture");
}

apr_status apr_gguf_standard_hparams(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    key_reader r = {.kv = kv, .facts = apr_family_gguf_of(NULL), .where = where};

    *h = (apr_hparams){.architecture = ""};
    APR_TRY(name_architecture(&r, h, arena, err));
    if (r.arch[0] == '\0') return APR_OK;
    read_table(&r, h);
    read_sizes(&r, h);
    read_rope(&r, h);
    if (h->attn_temperature > 0 && h->attn_temperature_length == 0) h->attn_temperature_length = (double)h->rope.original_context;
    const apr_kv *const tokens = apr_kv_find(kv, "tokenizer.ggml.tokens");
    if (h->vocab_size == 0 && tokens != NULL && tokens->type == APR_KV_ARRAY && tokens->n_elems <= INT32_MAX)
        h->vocab_size = (int64_t)tokens->n_elems;
    APR_TRY(read_layers(&r, h, arena, err));
    read_kv_heads(&r, h);
    read_wide_mlp(&r, h);
    return APR_OK;
}

/* --- writing --- */

static apr_status put_number(const key_writer *w, const char *name, int64_t value)
{
    return value != 0 || w->always ? put_int(w, name, value) : APR_OK;
}

/* The field that this architecture has under the key. */
static const apr_hparam_field *field_of(const apr_family_gguf *facts, const char *name)
{
    for (size_t i = 0; i < APR_MAX_GGUF_SPELLINGS && facts->spellings[i].field != NULL; i++)
        for (size_t k = 0; k < apr_n_hparam_fields && strcmp(facts->spellings[i].key, name) == 0; k++)
            if (strcmp(apr_hparam_fields[k].name, facts->spellings[i].field) == 0) return &apr_hparam_fields[k];
    for (size_t i = 0; i < apr_n_hparam_fields; i++)
        if (strcmp(apr_hparam_fields[i].gguf_key, name) == 0) return &apr_hparam_fields[i];
    return NULL;
}

static apr_status put_key(const key_writer *w, const char *name)
{
    for (size_t i = 0; i < sizeof key_table / sizeof *key_table; i++) {
        const char *const key = key_table[i].name;
        if (strcmp(key, name) != 0) continue;
        return key_table[i].put != NULL ? key_table[i].put(w, key) : put_number(w, key, key_table[i].value(w));
    }
    const apr_hparam_field *const field = field_of(w->facts, name);
    if (field == NULL) return apr_fail(w->err, APR_E_UNSUPPORTED, "unknown key %s.%s", w->arch, name);
    if (field->is_int) return put_number(w, name, apr_hparam_get_int(w->h, field));
    return put_nonzero(w, name, apr_hparam_get_real(w->h, field));
}

/* Writes the keys of a list, " a b! " (apr_family_gguf.keys). */
static apr_status put_keys(const key_writer *w, const char *list)
{
    key_writer each = *w;

    for (const char *at = list + strspn(list, " "); *at != '\0'; at += strspn(at, " ")) {
        char name[MAX_KEY] = "";
        const size_t n = strcspn(at, " "), n_name = n < sizeof name ? n : sizeof name - 1;
        each.always = n_name > 0 && at[n_name - 1] == '!';
        memcpy(name, at, n_name - each.always);
        APR_TRY(put_key(&each, name));
        at += n;
    }
    return APR_OK;
}

/* The keys of architectures without their own list (apr_family_gguf.keys). */
static const char usual_keys[] =
    " block_count context_length embedding_length feed_forward_length attention.head_count attention.head_count_kv"
    " rope.dimension_sections rope.scaling rope.freq_base rope.freq_base_swa attention.layer_norm_rms_epsilon"
    " attention.layer_norm_epsilon expert_count expert_used_count expert_group_count expert_group_used_count"
    " expert_gating_func attention.key_length attention.value_length ";
/* The same for apr_family_gguf.more_keys. */
static const char other_keys[] = " attention.sliding_window expert_feed_forward_length expert_shared_feed_forward_length ssm.conv_kernel"
                                 " ssm.state_size ssm.group_count ssm.time_step_rank ssm.inner_size full_attention_interval ";

static bool is_written(const key_writer *w, const char *name)
{
    char key[MAX_KEY + MAX_ARCH];
    snprintf(key, sizeof key, "%s.%s", w->arch, name);
    return apr_kv_find(w->kv, key) != NULL;
}

/* Keys that the lists need not name: vocab_size without a tokenizer, and rope.dimension_count if only part of each head is rotated. */
static apr_status put_rest(const key_writer *w, bool lacks_vocab)
{
    const apr_hparams *const h = w->h;
    const bool rotates_part = h->rotary_dim > 0 && h->rotary_dim != h->head_dim && w->facts->nope != APR_NOPE_ALL;

    if (rotates_part && !is_written(w, "rope.dimension_count")) APR_TRY(put_keys(w, "rope.dimension_count"));
    return lacks_vocab && !is_written(w, "vocab_size") ? put_keys(w, "vocab_size") : APR_OK;
}

apr_status apr_gguf_standard_keys(const apr_hparams *h, bool lacks_vocab, const char *name, int64_t file_type, apr_kv_list *kv,
                                  apr_error *err)
{
    const char *const arch = apr_gguf_architecture(h);
    const bool is_named = arch[0] != '\0';
    const apr_family_gguf *const facts = apr_family_gguf_of(apr_family_find(h->architecture));
    const key_writer w = {.arch = arch, .h = h, .facts = facts, .kv = kv, .err = err};

    if (is_named) APR_TRY(apr_kv_set_string(kv, "general.architecture", apr_str_of(arch), err));
    APR_TRY(apr_kv_set_string(kv, "general.type", apr_str_of("model"), err));
    if (name != NULL) APR_TRY(apr_kv_set_string(kv, "general.name", apr_str_of(name), err));
    if (is_named) APR_TRY(put_keys(&w, facts->keys != NULL ? facts->keys : usual_keys));
    APR_TRY(apr_kv_set_int(kv, "general.file_type", APR_KV_U32, file_type, err));
    if (is_named) APR_TRY(put_keys(&w, facts->more_keys != NULL ? facts->more_keys : other_keys));
    if (is_named) APR_TRY(put_rest(&w, lacks_vocab));
    return apr_kv_set_int(kv, "general.quantization_version", APR_KV_U32, 2, err);
}
