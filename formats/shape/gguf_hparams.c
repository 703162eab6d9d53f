/* gguf_hparams.c - GGUF's ARCH.* keys and hyperparameters, read and written.
 *
 * hparams.h and family.h name the keys. A key whose value is not just that of its field has a row in key_rules: how it is written, and how
 * it is read. An apr_family lists the keys that its architecture has, in the order of llama.cpp's converter. */
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
    apr_arena *arena;
    apr_error *err;
    apr_status status; /* of a reader that needs memory */
} key_reader;

typedef struct key_writer {
    const char *arch;
    const apr_hparams *h;
    const apr_family_gguf *facts;
    apr_kv_list *kv;
    apr_error *err;
    bool always; /* the key is written even if its value is 0 or false */
} key_writer;

/* The key without the architecture's prefix; "": this architecture has none. */
static const char *name_of(const apr_family_gguf *facts, unsigned key)
{
    static const char *const names[] = {"",
#define X(field, type, hf, gguf) gguf,
                                        APR_HPARAM_LIST(X)
#undef X
#define X(field, hf, gguf) gguf,
                                            APR_HFLAG_LIST(X)
#undef X
#define X(name, gguf) gguf,
                                                APR_GGUF_KEY_LIST(X)
#undef X
    };

    for (size_t i = 0; i < APR_MAX_GGUF_SPELLINGS && facts->spellings[i].key != 0; i++)
        if (facts->spellings[i].key == key) return facts->spellings[i].name;
    return names[key];
}

static bool has_key(const uint16_t *list, unsigned key)
{
    for (size_t i = 0; i < APR_MAX_GGUF_KEYS && list[i] != 0; i++)
        if ((list[i] & ~(unsigned)APR_KEY_EVEN_ZERO) == key) return true;
    return false;
}

/* --- reading one key --- */

/* The item, or NULL. Its full key stays in r->key until the next call. */
static const apr_kv *find_name(key_reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, name);
    return apr_kv_find(r->kv, r->key);
}

static const apr_kv *find_key(key_reader *r, unsigned key) { return find_name(r, name_of(r->facts, key)); }

/* A number, or the largest of an array with one per layer. False: no such key, *value is unchanged. */
static bool key_int(key_reader *r, unsigned key, int64_t *value)
{
    const apr_kv *const item = find_key(r, key);

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
static bool key_real(key_reader *r, unsigned key, double *value)
{
    const apr_kv *const item = find_key(r, key);
    if (!apr_kv_get_real(r->kv, r->key, value)) return false;
    if (item->type == APR_KV_F32) *value = apr_gguf_shortest_decimal(*value);
    return true;
}

static void key_bool(key_reader *r, unsigned key, bool *value)
{
    find_key(r, key);
    apr_kv_get_bool(r->kv, r->key, value);
}

/* --- writing one key --- */

static const char *full_key(const key_writer *w, unsigned key)
{
    return apr_arena_print(w->kv->arena, "%s.%s", w->arch, name_of(w->facts, key));
}

static apr_status put_int(const key_writer *w, unsigned key, int64_t value)
{
    const char *const name = full_key(w, key);
    if (name == NULL) return apr_no_memory(w->err, "a key");
    if (value < 0 || value > UINT32_MAX)
        return apr_fail(w->err, APR_E_UNSUPPORTED, "%s is %lld, which does not fit GGUF's 32 bits", name, (long long)value);
    return apr_kv_set_int(w->kv, name, APR_KV_U32, value, w->err);
}

static apr_status put_real(const key_writer *w, unsigned key, double value)
{
    const char *const name = full_key(w, key);
    return name != NULL ? apr_kv_set_f32(w->kv, name, (float)value, w->err) : apr_no_memory(w->err, "a key");
}

static apr_status put_text(const key_writer *w, unsigned key, const char *text)
{
    const char *const name = full_key(w, key);
    return name != NULL ? apr_kv_set_string(w->kv, name, apr_str_of(text), w->err) : apr_no_memory(w->err, "a key");
}

static apr_status put_bool(const key_writer *w, unsigned key, bool value)
{
    const char *const name = full_key(w, key);
    return name != NULL ? apr_kv_set_bool(w->kv, name, value, w->err) : apr_no_memory(w->err, "a key");
}

static apr_status put_ints(const key_writer *w, unsigned key, const int64_t *values, size_t n)
{
    uint8_t *const numbers = apr_arena_array(w->kv->arena, n, sizeof(int32_t));
    const char *const name = full_key(w, key);

    if (numbers == NULL || name == NULL) return apr_no_memory(w->err, "a key");
    for (size_t i = 0; i < n; i++) {
        if (values[i] < 0 || values[i] > INT32_MAX)
            return apr_fail(w->err, APR_E_UNSUPPORTED, "%s is %lld in layer %zu, which does not fit GGUF's 32 bits", name,
                            (long long)values[i], i);
        apr_store_le32(numbers + 4 * i, (uint32_t)values[i]);
    }
    const apr_kv item = {.key = apr_str_of(name), .type = APR_KV_ARRAY, .elem_type = APR_KV_I32, .n_elems = n, .value.numbers = numbers};
    return apr_kv_set(w->kv, &item, w->err);
}

/* Writes one number for each layer; or a single one if all are the same, unless they are to be listed. */
static apr_status put_by_layer(const key_writer *w, unsigned key, int64_t (*value_of)(const apr_hparams *h, int64_t layer), bool lists)
{
    const int64_t n = w->h->num_layers;
    int64_t *const values = apr_arena_array(w->kv->arena, (size_t)n, sizeof *values);
    bool same = true;

    if (values == NULL) return apr_no_memory(w->err, "a key");
    for (int64_t i = 0; i < n; i++) {
        values[i] = value_of(w->h, i);
        same = same && values[i] == values[0];
    }
    if (!same || lists) return put_ints(w, key, values, (size_t)n);
    return n > 0 && values[0] != 0 ? put_int(w, key, values[0]) : APR_OK;
}

static apr_status put_number(const key_writer *w, unsigned key, int64_t value)
{
    return value != 0 || w->always ? put_int(w, key, value) : APR_OK;
}

static apr_status put_nonzero(const key_writer *w, unsigned key, double value) { return value != 0 ? put_real(w, key, value) : APR_OK; }

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

/* False: apr_hparams_complete reports it. */
static bool has_layers(const apr_hparams *h) { return h->num_layers > 0 && h->num_layers <= APR_MAX_LAYERS; }

static bool no_layer_has_rope(const apr_hparams *h)
{
    int64_t i = 0;
    while (i < h->num_layers && !apr_layer_has_rope(h, i)) i++;
    return h->num_layers > 0 && i == h->num_layers;
}

/* --- sizes --- */

/* GGUF also counts the layers of multi-token prediction where it states how many there are. */
static int64_t block_count(const key_writer *w)
{
    const bool counts = has_key(w->facts->more_keys, APR_KEY(num_nextn_layers));
    return counts ? sum(w->h->num_layers, w->h->num_nextn_layers) : w->h->num_layers;
}

static void read_block_count(key_reader *r, apr_hparams *h)
{
    (void)r;
    if (h->num_nextn_layers > 0 && h->num_nextn_layers < h->num_layers) h->num_layers -= h->num_nextn_layers;
}

/* Without positions the context has no limit. llama.cpp's converter writes 2^20. */
static int64_t context_length(const key_writer *w)
{
    const bool unlimited = w->facts->nope >= APR_NOPE_UNLESS_FINETUNED && !w->facts->channel_delta && no_layer_has_rope(w->h);
    return unlimited && w->h->max_position_embeddings > 0 ? 1 << 20 : w->h->max_position_embeddings;
}

static void read_vocab_size(key_reader *r, apr_hparams *h)
{
    const apr_kv *const tokens = apr_kv_find(r->kv, "tokenizer.ggml.tokens");

    if (h->vocab_size == 0 && tokens != NULL && tokens->type == APR_KV_ARRAY && tokens->n_elems <= INT32_MAX)
        h->vocab_size = (int64_t)tokens->n_elems;
}

static int64_t inner_size(const key_writer *w) { return product(w->h->linear_num_value_heads, w->h->linear_value_head_dim); }

static void read_inner_size(key_reader *r, apr_hparams *h)
{
    int64_t inner;
    if (key_int(r, APR_KEY(inner_size), &inner) && h->linear_num_value_heads > 0)
        h->linear_value_head_dim = inner / h->linear_num_value_heads;
}

static void read_channel_heads(key_reader *r, apr_hparams *h)
{
    if (!r->facts->channel_delta) return;
    h->linear_num_key_heads = h->linear_num_value_heads = h->num_heads;
    h->linear_key_head_dim = h->linear_value_head_dim;
}

static int64_t score_function(const key_writer *w) { return w->h->num_experts > 0 ? w->facts->score_function : 0; }
static int64_t expert_width(const key_writer *w) { return w->h->num_experts > 0 ? width_of_experts(w->h) : w->h->moe_intermediate_size; }

static int64_t n_shared(const key_writer *w)
{
    const int64_t width = width_of_experts(w->h);
    return w->h->num_shared_experts > 0 || width == 0 ? w->h->num_shared_experts : w->h->shared_expert_intermediate_size / width;
}

static int64_t shared_width(const key_writer *w)
{
    const apr_hparams *const h = w->h;
    return h->shared_expert_intermediate_size > 0 ? h->shared_expert_intermediate_size
                                                  : product(h->num_shared_experts, width_of_experts(h));
}

static void read_shared_width(key_reader *r, apr_hparams *h)
{
    if (r->facts->shares_by_count && h->num_shared_experts > 0) h->shared_expert_intermediate_size = 0;
    if (r->facts->shares_one && h->num_experts > 0 && h->shared_expert_intermediate_size == 0)
        h->shared_expert_intermediate_size = width_of_experts(h);
}

static apr_status put_norm_topk(const key_writer *w, unsigned key)
{
    return w->h->norm_topk_prob || w->always ? put_bool(w, key, w->h->norm_topk_prob) : APR_OK;
}

static apr_status put_parallel(const key_writer *w, unsigned key) { return put_bool(w, key, w->h->parallel_residual); }

/* --- attention heads --- */

static int64_t key_length(const key_writer *w)
{
    const apr_hparams *const h = w->h;
    if (h->kv_lora_rank > 0) return sum(h->kv_lora_rank, h->qk_rope_head_dim);
    return w->facts->omits_head_dim && h->head_dim == hidden_per_head(h) ? 0 : h->global_head_dim > 0 ? h->global_head_dim : h->head_dim;
}

static int64_t value_length(const key_writer *w) { return w->h->kv_lora_rank > 0 ? w->h->kv_lora_rank : key_length(w); }
static int64_t head_dim(const key_writer *w) { return w->h->head_dim; }

static int64_t rotary_dim(const key_writer *w)
{
    if (w->h->kv_lora_rank > 0) return w->h->qk_rope_head_dim;
    if (w->facts->nope == APR_NOPE_ALL) return hidden_per_head(w->h); /* unused */
    return w->h->global_head_dim > 0 ? w->h->global_head_dim : w->h->rotary_dim;
}

static void read_rotary_dim(key_reader *r, apr_hparams *h)
{
    if (r->facts->nope == APR_NOPE_ALL && h->kv_lora_rank == 0) h->rotary_dim = 0; /* the key means nothing there */
}

/* Latent attention (MLA): key_length is that of the cached latent, key_length_mla that of a head. Old files lack the latter. */
static void read_latent(key_reader *r, apr_hparams *h)
{
    if (h->kv_lora_rank <= 0) return;
    if (key_int(r, APR_KEY(key_length_mla), &h->head_dim)) h->num_kv_heads = h->num_heads;
    else key_int(r, APR_KEY(value_length), &h->v_head_dim);
    h->qk_rope_head_dim = h->rotary_dim;
    if (h->head_dim > h->rotary_dim && h->rotary_dim >= 0) h->qk_nope_head_dim = h->head_dim - h->rotary_dim;
}

static int64_t rotary_dim_swa(const key_writer *w) { return w->h->rotary_dim; }

/* Sliding layers may have another head size (key_length_swa). The plain keys then describe the full layers. */
static void read_global_heads(key_reader *r, apr_hparams *h)
{
    int64_t of_sliding;

    if (!key_int(r, APR_KEY(key_length_swa), &of_sliding)) return;
    h->global_head_dim = h->head_dim;
    h->head_dim = of_sliding;
    h->rotary_dim = of_sliding;
    key_int(r, APR_KEY(dimension_count_swa), &h->rotary_dim);
    h->enable_moe_block = h->num_experts > 0;
}

static void read_use_qk_norm(key_reader *r, apr_hparams *h)
{
    if (r->facts->experts_without_qk_norm > 0 && h->num_experts == r->facts->experts_without_qk_norm) h->use_qk_norm = false;
}

static void read_query_scale(key_reader *r, apr_hparams *h)
{
    const int64_t width = hidden_per_head(h);

    if (r->facts->wide_layers > 0 && h->num_heads > 0)
        h->query_pre_attn_scalar = (double)(h->num_layers == r->facts->wide_layers || h->head_dim == 0 ? width : h->head_dim);
}

static int64_t temperature_length(const key_writer *w)
{
    return w->h->attn_temperature_length < (double)UINT32_MAX ? (int64_t)w->h->attn_temperature_length : -1;
}

static void read_temperature_length(key_reader *r, apr_hparams *h)
{
    (void)r;
    if (h->attn_temperature > 0 && h->attn_temperature_length == 0) h->attn_temperature_length = (double)h->rope.original_context;
}

static apr_status put_eps(const key_writer *w, apr_eps_rule other, unsigned key)
{
    return w->facts->eps == other || w->h->rms_norm_eps == 0 ? APR_OK : put_real(w, key, w->h->rms_norm_eps);
}

static apr_status put_rms_eps(const key_writer *w, unsigned key) { return put_eps(w, APR_EPS_LAYER, key); }
static apr_status put_layer_eps(const key_writer *w, unsigned key) { return put_eps(w, APR_EPS_RMS, key); }
static void read_layer_eps(key_reader *r, apr_hparams *h)
{
    if (r->facts->eps != APR_EPS_RMS) key_real(r, APR_KEY(layer_norm_epsilon), &h->rms_norm_eps);
}

/* --- rotary embeddings --- */

/* llama.cpp has no alpha: it gets theta with alpha applied. */
static apr_status put_theta(const key_writer *w, unsigned key)
{
    const apr_hparams *const h = w->h;
    const double n = (double)h->rotary_dim, alpha = h->rope.kind == APR_ROPE_DYNAMIC && n > 2 ? h->rope.alpha : 0;
    return h->rope_theta == 0 ? APR_OK : put_real(w, key, alpha > 0 ? h->rope_theta * pow(alpha, n / (n - 2)) : h->rope_theta);
}

/* Also written if sliding layers use the global theta and readers would assume another. */
static apr_status put_local_theta(const key_writer *w, unsigned key)
{
    const bool supposed = w->facts->assumes != NULL && w->facts->assumes->rope_theta_local > 0;
    const double theta = w->h->rope_theta_local > 0 || !supposed ? w->h->rope_theta_local : w->h->rope_theta;
    return theta > 0 ? put_real(w, key, theta) : APR_OK;
}

/* M-RoPE splits the rotary pairs among time, height and width. Where nothing is stated, in near thirds: 32 pairs are 11, 11, 10. */
static apr_status put_sections(const key_writer *w, unsigned key)
{
    const apr_hparams *const h = w->h;
    const int64_t n = h->rotary_dim / 2, first = (n + 2) / 3, second = (n - first + 1) / 2;
    const int64_t thirds[4] = {first, second, n - first - second, 0}, stated[4] = {h->mrope_time, h->mrope_height, h->mrope_width, 0};

    if (h->mrope_time > 0) return put_ints(w, key, stated, 4);
    return w->facts->writes_sections && n > 0 ? put_ints(w, key, thirds, 4) : APR_OK;
}

static void read_sections(key_reader *r, apr_hparams *h)
{
    const apr_kv *const sections = find_key(r, APR_KEY(dimension_sections));

    if (sections == NULL || sections->type != APR_KV_ARRAY || sections->elem_type == APR_KV_STRING || sections->n_elems < 3) return;
    h->mrope_time = apr_kv_elem_int(sections, 0);
    h->mrope_height = apr_kv_elem_int(sections, 1);
    h->mrope_width = apr_kv_elem_int(sections, 2);
}

/* The scalings that rope.scaling.type names; llama 3's and gemma 4's are in the tensor rope_freqs.weight. */
static const bool has_type[APR_N_ROPE_KINDS] = {[APR_ROPE_LINEAR] = true, [APR_ROPE_YARN] = true, [APR_ROPE_LONGROPE] = true};

/* The key belongs to the score scale of latent attention (MLA). It gives mscale = mscale_all_dim: cosines and sines are not scaled. */
static void read_log_multiplier(key_reader *r, apr_rope_scaling *rope)
{
    double value = 0;

    if (r->facts->yarn_log_unit == 0 || !key_real(r, APR_KEY(yarn_log_multiplier), &value)) return;
    rope->mscale = rope->mscale_all_dim = apr_gguf_shortest_decimal((double)(float)(value / r->facts->yarn_log_unit));
    if (rope->attention_factor == 0 && rope->mscale != 0) rope->attention_factor = 1;
}

static apr_status put_log_multiplier(const key_writer *w, unsigned key)
{
    return put_nonzero(w, key, w->h->rope.kind == APR_ROPE_YARN ? w->facts->yarn_log_unit * w->h->rope.mscale_all_dim : 0);
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

    if (!key_real(r, APR_KEY(attn_factor), &times) || !(times > 0) || (float)times == 1.0f) return;
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

    if (!key_real(r, APR_KEY(attn_factor), &rope->attention_factor)) return;
    rope->kind = APR_ROPE_LONGROPE;
    key_int(r, APR_KEY(original_context_length), &rope->original_context);
    if (apr_is_near(rope->attention_factor, longrope_factor(h))) rope->attention_factor = 0; /* follows from the rest */
}

static apr_status put_longrope(const key_writer *w, unsigned key)
{
    const apr_rope_scaling *const s = &w->h->rope;
    if (s->kind != APR_ROPE_LONGROPE) return APR_OK;
    return put_real(w, key, s->attention_factor > 0 ? s->attention_factor : longrope_factor(w->h));
}

static int64_t original_context(const key_writer *w)
{
    return w->h->rope.original_context > 0 ? w->h->rope.original_context : w->h->max_position_embeddings;
}

static void read_rope(key_reader *r, apr_hparams *h)
{
    apr_rope_scaling *const rope = &h->rope;
    apr_str type = {0};

    find_key(r, APR_KEY(scaling_type));
    if (!apr_kv_get_string(r->kv, r->key, &type)) {
        if (r->facts->has_longrope) read_longrope(r, h);
        return;
    }
    for (int i = 0; i < APR_N_ROPE_KINDS; i++)
        if (has_type[i] && apr_str_is(type, apr_rope_names[i])) rope->kind = (apr_rope_kind)i;
    if (rope->kind == APR_ROPE_PLAIN) return; /* "none" */
    key_real(r, APR_KEY(scaling_factor), &rope->factor);
    key_int(r, APR_KEY(original_context_length), &rope->original_context);
    key_real(r, APR_KEY(yarn_beta_fast), &rope->beta_fast);
    key_real(r, APR_KEY(yarn_beta_slow), &rope->beta_slow);
    const bool is_local = r->family != NULL && r->family->config != NULL && r->family->config->scales_full_only;
    if (is_local && h->rope_theta_local == 0) h->rope_theta_local = h->rope_theta;
    if (rope->kind != APR_ROPE_YARN) return;
    key_real(r, APR_KEY(yarn_attn_factor), &rope->attention_factor); /* the whole factor, as older aprkits wrote it */
    rope->no_truncate = r->facts->no_truncate;
    read_log_multiplier(r, rope);
    read_attn_factor(r, rope);
}

/* Theta is written with alpha applied, so no scaling is left. */
static apr_status put_unscaled(const key_writer *w)
{
    APR_TRY(put_text(w, APR_KEY(scaling_type), "none"));
    return put_real(w, APR_KEY(scaling_factor), 1);
}

static apr_status put_scaling(const key_writer *w, unsigned key)
{
    const apr_rope_scaling *const rope = &w->h->rope;

    (void)key;
    if (rope->kind == APR_ROPE_DYNAMIC && rope->alpha > 0) return put_unscaled(w);
    if (!has_type[rope->kind]) return APR_OK;
    APR_TRY(put_text(w, APR_KEY(scaling_type), apr_rope_names[rope->kind]));
    APR_TRY(put_nonzero(w, APR_KEY(scaling_factor), rope->factor));
    if (rope->original_context != 0) APR_TRY(put_int(w, APR_KEY(original_context_length), rope->original_context));
    const double usual = usual_factor(rope, w->facts->yarn_log_unit != 0 && rope->mscale_all_dim != 0);
    if (rope->kind != APR_ROPE_YARN) APR_TRY(put_nonzero(w, APR_KEY(attn_factor), rope->attention_factor));
    else if (!apr_is_near(rope->attention_factor, usual)) APR_TRY(put_nonzero(w, APR_KEY(attn_factor), rope->attention_factor / usual));
    APR_TRY(put_nonzero(w, APR_KEY(yarn_beta_fast), rope->beta_fast));
    return put_nonzero(w, APR_KEY(yarn_beta_slow), rope->beta_slow);
}

static apr_status put_no_scaling(const key_writer *w, unsigned key)
{
    return w->h->rope.kind == APR_ROPE_PLAIN ? put_text(w, key, "none") : APR_OK;
}

/* --- the kinds of the layers --- */

/* The array with an entry for each layer; NULL: not an array of numbers, or too short. */
static const apr_kv *by_layer(key_reader *r, unsigned key, const apr_hparams *h)
{
    const apr_kv *const item = find_key(r, key);
    const bool fits = item != NULL && item->type == APR_KV_ARRAY && item->elem_type != APR_KV_STRING;
    return fits && item->n_elems >= (uint64_t)h->num_layers ? item : NULL;
}

/* A zero for each layer; NULL: out of memory, and r->status says so. */
static uint8_t *new_kinds(key_reader *r, const apr_hparams *h)
{
    uint8_t *const kinds = apr_arena_alloc(r->arena, (size_t)h->num_layers);
    if (kinds != NULL) memset(kinds, 0, (size_t)h->num_layers);
    else r->status = apr_no_memory(r->err, "the kinds of the layers");
    return kinds;
}

/* Which layers have a sliding window, or attend within their chunk. */
static void read_windows(key_reader *r, apr_hparams *h)
{
    apr_window_layers window = {.full_every = r->facts->full_every};
    const apr_kv *const pattern = by_layer(r, APR_KEY(sliding_window_pattern), h);

    apr_kv_get_int(r->kv, r->key, &window.full_every);
    const bool stated_none = r->facts->chunks && find_key(r, APR_KEY(sliding_window)) != NULL && h->sliding_window == 0;
    const bool limits = r->facts->chunks ? h->attention_chunk_size > 0 && !stated_none : h->sliding_window > 0;
    if (!limits || (window.full_every <= 1 && pattern == NULL)) return;
    uint8_t *const kinds = new_kinds(r, h);
    if (kinds == NULL) return;
    for (int64_t i = 0; i < h->num_layers; i++) {
        const bool is_limited = pattern != NULL ? apr_kv_elem_int(pattern, (uint64_t)i) != 0 : apr_layer_slides(window, i);
        kinds[i] = !is_limited ? APR_LAYER_FULL : r->facts->chunks ? APR_LAYER_CHUNKED : APR_LAYER_SLIDING;
    }
    h->layer_kinds = kinds;
}

/* A list of true and false, one for each layer. */
static apr_status put_flag_by_layer(const key_writer *w, unsigned key, bool (*flag)(const apr_hparams *h, int64_t layer))
{
    const size_t n = (size_t)w->h->num_layers;
    uint8_t *const flags = apr_arena_alloc(w->kv->arena, n + 1);
    const char *const name = full_key(w, key);

    if (flags == NULL || name == NULL) return apr_no_memory(w->err, "a key");
    for (size_t i = 0; i < n; i++) flags[i] = flag(w->h, (int64_t)i);
    const apr_kv item = {.key = apr_str_of(name), .type = APR_KV_ARRAY, .elem_type = APR_KV_BOOL, .n_elems = n, .value.numbers = flags};
    return n > 0 ? apr_kv_set(w->kv, &item, w->err) : APR_OK;
}

static bool slides(const apr_hparams *h, int64_t layer) { return apr_layer_kind_of(h, layer) == APR_LAYER_SLIDING; }

static apr_status put_pattern(const key_writer *w, unsigned key)
{
    return w->h->sliding_window == 0 ? APR_OK : put_flag_by_layer(w, key, slides);
}

/* Layers without key/value heads are convolution, delta or Mamba layers. If feed_forward_length is an array, those with a width have only a
 * feed-forward. */
static void read_mixers(key_reader *r, apr_hparams *h)
{
    const apr_layer_kind other = find_name(r, "shortconv.l_cache") != NULL ? APR_LAYER_CONV
                                 : r->facts->channel_delta                 ? APR_LAYER_LINEAR
                                 : find_name(r, "ssm.conv_kernel") != NULL ? APR_LAYER_MAMBA
                                                                           : APR_LAYER_FULL;
    const apr_kv *const widths = by_layer(r, APR_KEY(intermediate_size), h), *const heads = by_layer(r, APR_KEY(num_kv_heads), h);

    if (r->facts->all_mamba) {
        uint8_t *const kinds = new_kinds(r, h);
        if (kinds == NULL) return;
        memset(kinds, APR_LAYER_MAMBA, (size_t)h->num_layers);
        h->layer_kinds = kinds;
        return;
    }
    if (heads == NULL || other == APR_LAYER_FULL) return;
    uint8_t *const kinds = new_kinds(r, h), *const ffns = new_kinds(r, h);
    if (kinds == NULL || ffns == NULL) return;
    for (uint64_t i = 0; i < (uint64_t)h->num_layers; i++) {
        const bool attends = apr_kv_elem_int(heads, i) > 0, has_ffn = widths == NULL || apr_kv_elem_int(widths, i) > 0;
        kinds[i] = (uint8_t)(attends ? APR_LAYER_FULL : widths != NULL && has_ffn ? APR_LAYER_NONE : other);
        ffns[i] = !has_ffn ? APR_FFN_NONE : h->num_experts > 0 ? APR_FFN_EXPERTS : APR_FFN_DENSE;
    }
    h->layer_kinds = kinds;
    if (widths != NULL) h->ffn_kinds = ffns;
}

/* Reads the numbers of key/value heads of full and of other layers. Needs layer_kinds. */
static void read_kv_heads(key_reader *r, apr_hparams *h)
{
    const apr_kv *const heads = find_key(r, APR_KEY(num_kv_heads));
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

static void read_heads_by_layer(key_reader *r, apr_hparams *h)
{
    if (has_layers(h)) read_mixers(r, h);
    read_kv_heads(r, h);
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

static apr_status put_kv_heads(const key_writer *w, unsigned key)
{
    return w->h->num_layers > 0      ? put_by_layer(w, key, kv_heads_of, false)
           : w->h->num_kv_heads != 0 ? put_int(w, key, w->h->num_kv_heads)
                                     : APR_OK;
}

/* Layers that reuse an earlier layer's keys and values may have feed-forwards twice as wide. */
static void read_wide_mlp(key_reader *r, apr_hparams *h)
{
    const apr_kv *const widths = find_key(r, APR_KEY(intermediate_size));

    if (h->num_kv_shared_layers <= 0 || widths == NULL || widths->type != APR_KV_ARRAY) return;
    const int64_t first = apr_kv_elem_int(widths, 0);
    h->use_double_wide_mlp = first > 0 && h->intermediate_size / 2 == first && h->intermediate_size % 2 == 0;
    if (h->use_double_wide_mlp) h->intermediate_size = first;
}

/* nemotron_h: the width of the layer's feed-forward or experts. Others: the width of a dense layer, unused if all layers have experts. */
static int64_t feed_forward_of(const apr_hparams *h, int64_t layer)
{
    const bool is_shared = layer >= h->num_layers - h->num_kv_shared_layers;
    const apr_ffn_kind kind = apr_ffn_kind_of(h, layer);

    if (kind == APR_FFN_NONE) return 0;
    if (apr_layer_kind_of(h, layer) == APR_LAYER_NONE && kind == APR_FFN_EXPERTS) return width_of_experts(h);
    return h->use_double_wide_mlp && is_shared ? sum(h->intermediate_size, h->intermediate_size) : h->intermediate_size;
}

static apr_status put_feed_forward(const key_writer *w, unsigned key)
{
    if (w->always && w->h->intermediate_size == 0) return put_int(w, key, 0);
    return w->h->num_layers > 0           ? put_by_layer(w, key, feed_forward_of, w->facts->lists_widths)
           : w->h->intermediate_size != 0 ? put_int(w, key, w->h->intermediate_size)
                                          : APR_OK;
}

/* The first n_dense layers are dense. After them every step-th layer has experts. */
static void read_experts(key_reader *r, apr_hparams *h)
{
    int64_t n_dense = r->facts->n_dense, step = 1;

    key_int(r, APR_KEY(leading_dense_block_count), &n_dense);
    key_int(r, APR_KEY(interleave_moe_layer_step), &step);
    if (h->num_experts <= 0 || h->ffn_kinds != NULL || (n_dense <= 0 && step <= 1)) return;
    uint8_t *const kinds = new_kinds(r, h);
    if (kinds == NULL) return;
    for (int64_t i = 0; i < h->num_layers; i++)
        kinds[i] = i >= n_dense && (step <= 1 || (i + 1) % step == 0) ? APR_FFN_EXPERTS : APR_FFN_DENSE;
    h->ffn_kinds = kinds;
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

static bool lacks_rope(apr_nope_rule rule, const apr_hparams *h, int64_t layer)
{
    if (rule == APR_NOPE_FOURTH) return (layer + 1) % 4 == 0;
    return rule != APR_NOPE_FULL || apr_layer_kind_of(h, layer) == APR_LAYER_FULL;
}

static void read_positions(key_reader *r, apr_hparams *h)
{
    const apr_nope_rule rule = r->facts->nope;
    bool finetuned = true;

    key_bool(r, APR_KEY(finetuned), &finetuned);
    const bool matters = rule == APR_NOPE_FULL || r->facts->chunks ? h->layer_kinds != NULL : true;
    if (rule == APR_NOPE_NONE || !matters || (rule == APR_NOPE_UNLESS_FINETUNED && finetuned)) return;
    uint8_t *const none = new_kinds(r, h);
    if (none == NULL) return;
    for (int64_t i = 0; i < h->num_layers; i++) none[i] = lacks_rope(rule, h, i);
    h->no_rope = none;
}

static apr_status put_finetuned(const key_writer *w, unsigned key) { return put_bool(w, key, !no_layer_has_rope(w->h)); }

/* llama.cpp's assumption about a file that does not list the layers: models with at least this context share as GLM-5.2 does. */
static const int64_t shared_index_context = 1 << 20;
static const apr_index_layers shared_index_layers = {3, 4};

/* Which layers attend to the positions that an earlier layer chose; the key is true for those with their own index. */
static void read_indexes(key_reader *r, apr_hparams *h)
{
    const apr_kv *const own = by_layer(r, APR_KEY(indexer_types), h);

    if (!r->facts->shares_index || (own == NULL && h->max_position_embeddings < shared_index_context)) return;
    uint8_t *const shares = new_kinds(r, h);
    if (shares == NULL) return;
    for (int64_t i = 0; i < h->num_layers; i++)
        shares[i] = own != NULL ? apr_kv_elem_int(own, (uint64_t)i) == 0 : !apr_layer_has_own_index(shared_index_layers, i);
    h->shares_index = shares;
}

static bool has_own_index(const apr_hparams *h, int64_t layer) { return !apr_layer_shares_index(h, layer); }

/* Not written where every layer has its own index and readers assume that. */
static apr_status put_indexes(const key_writer *w, unsigned key)
{
    bool any = w->h->max_position_embeddings >= shared_index_context;
    for (int64_t i = 0; i < w->h->num_layers && !any; i++) any = apr_layer_shares_index(w->h, i);
    return any ? put_flag_by_layer(w, key, has_own_index) : APR_OK;
}

/* The quantile above which gates are not 0, for each layer: minus infinity where all are kept. */
static apr_status put_sparsity(const key_writer *w, unsigned key)
{
    const size_t n = (size_t)w->h->num_layers;
    uint8_t *const numbers = apr_arena_array(w->kv->arena, n + 1, sizeof(float));
    const char *const name = full_key(w, key);

    if (numbers == NULL || name == NULL) return apr_no_memory(w->err, "a key");
    for (size_t i = 0; i < n; i++) {
        const float scale = (int64_t)i < w->h->num_sparse_layers ? apr_sparsity_quantile(w->h->activation_sparsity) : -INFINITY;
        uint32_t bits;
        memcpy(&bits, &scale, sizeof bits);
        apr_store_le32(numbers + 4 * i, bits);
    }
    const apr_kv item = {.key = apr_str_of(name), .type = APR_KV_ARRAY, .elem_type = APR_KV_F32, .n_elems = n, .value.numbers = numbers};
    return n > 0 ? apr_kv_set(w->kv, &item, w->err) : APR_OK;
}

/* The share of zeros is the shortest decimal whose quantile is this one, within the error of a float32 function. */
static double share_of(double quantile)
{
    for (int n_digits = 1; n_digits < 9; n_digits++) {
        char text[32];
        snprintf(text, sizeof text, "%.*g", n_digits, apr_normal_share(quantile));
        const double share = strtod(text, NULL);
        if (share > 0.0 && share < 1.0 && fabs(apr_normal_quantile(share) - quantile) <= 1e-6 * fmax(1.0, fabs(quantile))) return share;
    }
    return apr_normal_share(quantile);
}

/* Layers after the first one without zeros have none. */
static void read_sparsity(key_reader *r, apr_hparams *h)
{
    const apr_kv *const scales = find_key(r, APR_KEY(activation_sparsity_scale));

    if (scales == NULL || scales->type != APR_KV_ARRAY || scales->elem_type != APR_KV_F32) return;
    h->num_sparse_layers = 0;
    while (h->num_sparse_layers < (int64_t)scales->n_elems && h->num_sparse_layers < h->num_layers &&
           isfinite(apr_kv_elem_real(scales, (uint64_t)h->num_sparse_layers)))
        h->num_sparse_layers++;
    h->activation_sparsity = h->num_sparse_layers > 0 ? share_of(apr_kv_elem_real(scales, 0)) : 0.0;
}

/* --- the rules --- */

/* Keys whose value is not just that of the field with their name, in the order in which they are read. */
static const struct {
    unsigned key;
    int64_t (*value)(const key_writer *w);                /* how it is written: a derived integer, ... */
    apr_status (*put)(const key_writer *w, unsigned key); /* ... or anything else; neither: its field */
    void (*read)(key_reader *r, apr_hparams *h);          /* after the fields of all plain keys; NULL: nothing more to read */
    bool of_layers;                                       /* it is read only if the number of layers is valid */
} key_rules[] = {
    {APR_KEY(layer_norm_epsilon), .put = put_layer_eps, .read = read_layer_eps},
    {APR_KEY(rms_norm_eps), .put = put_rms_eps},
    {APR_KEY(num_layers), block_count, .read = read_block_count},
    {APR_KEY(max_position_embeddings), context_length},
    {APR_KEY(inner_size), inner_size, .read = read_inner_size},
    {APR_KEY(expert_gating_func), score_function},
    {APR_KEY(moe_intermediate_size), expert_width},
    {APR_KEY(num_shared_experts), n_shared},
    {APR_KEY(shared_expert_intermediate_size), shared_width, .read = read_shared_width},
    {APR_KEY(norm_topk_prob), .put = put_norm_topk},
    {APR_KEY(parallel_residual), .put = put_parallel},
    {APR_KEY(rotary_dim), rotary_dim, .read = read_rotary_dim},
    {APR_KEY(linear_value_head_dim), .read = read_channel_heads},
    {APR_KEY(use_qk_norm), .read = read_use_qk_norm},
    {APR_KEY(head_dim), key_length},
    {APR_KEY(value_length), value_length},
    {APR_KEY(key_length_mla), head_dim, .read = read_latent},
    {APR_KEY(dimension_sections), .put = put_sections, .read = read_sections},
    {APR_KEY(activation_sparsity_scale), .put = put_sparsity, .read = read_sparsity},
    {APR_KEY(key_length_swa), head_dim, .read = read_global_heads},
    {APR_KEY(value_length_swa), head_dim},
    {APR_KEY(dimension_count_swa), rotary_dim_swa},
    {APR_KEY(query_pre_attn_scalar), .read = read_query_scale},
    {APR_KEY(rope_theta), .put = put_theta},
    {APR_KEY(rope_theta_local), .put = put_local_theta},
    {APR_KEY(scaling), .put = put_scaling, .read = read_rope},
    {APR_KEY(scaling_type), .put = put_no_scaling},
    {APR_KEY(attn_factor), .put = put_longrope},
    {APR_KEY(original_context_length), original_context},
    {APR_KEY(yarn_log_multiplier), .put = put_log_multiplier},
    {APR_KEY(attn_temperature_length), temperature_length, .read = read_temperature_length},
    {APR_KEY(vocab_size), .read = read_vocab_size},
    {APR_KEY(sliding_window_pattern), .put = put_pattern, .read = read_windows, .of_layers = true},
    {APR_KEY(num_kv_heads), .put = put_kv_heads, .read = read_heads_by_layer},
    {APR_KEY(leading_dense_block_count), n_leading_dense, .read = read_experts, .of_layers = true},
    {APR_KEY(interleave_moe_layer_step), expert_step},
    {APR_KEY(full_attention_interval), attention_interval},
    {APR_KEY(indexer_types), .put = put_indexes, .read = read_indexes, .of_layers = true},
    {APR_KEY(finetuned), .put = put_finetuned, .read = read_positions, .of_layers = true},
    {APR_KEY(intermediate_size), .put = put_feed_forward, .read = read_wide_mlp},
};
enum { N_KEY_RULES = sizeof key_rules / sizeof *key_rules };

/* --- reading --- */

static void read_fields(key_reader *r, apr_hparams *h)
{
    for (unsigned i = 0; i < APR_N_NUMBERS; i++) {
        const unsigned key = APR_FIRST_NUMBER_KEY + i;
        if (name_of(r->facts, key)[0] == '\0') continue;
        if (apr_hparam_fields[i].is_int) key_int(r, key, apr_hparam_int(h, &apr_hparam_fields[i]));
        else key_real(r, key, apr_hparam_real(h, &apr_hparam_fields[i]));
    }
    for (unsigned i = 0; i < APR_N_FLAGS; i++)
        if (apr_hflag_fields[i].gguf_key[0] != '\0') key_bool(r, APR_FIRST_FLAG_KEY + i, apr_hflag(h, &apr_hflag_fields[i]));
}

/* Several families may share one ggml name. A key decides between them; otherwise the first is taken. */
static const apr_family *find_family(key_reader *r)
{
    for (size_t i = 0; i < apr_n_families; i++) {
        const apr_gguf_choice *const choice = &apr_families[i]->gguf.chosen_by;
        int64_t value = 0;
        if (choice->key == 0 || !apr_family_is_in_ggml(apr_families[i], r->arch)) continue;
        key_int(r, choice->key, &value);
        if (value >= choice->least && value <= choice->most) return apr_families[i];
    }
    return apr_family_of_ggml(r->arch);
}

static apr_status name_architecture(key_reader *r, apr_hparams *h)
{
    apr_str arch;

    if (!apr_kv_get_string(r->kv, "general.architecture", &arch)) return APR_OK; /* a file of bare tensors */
    if (arch.n_bytes == 0 || arch.n_bytes > MAX_ARCH || memchr(arch.text, '\0', arch.n_bytes) != NULL || !apr_str_is_utf8(arch))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: general.architecture is not a name: it has %zu bytes", r->where, arch.n_bytes);
    memcpy(r->arch, arch.text, arch.n_bytes);
    r->family = find_family(r);
    r->facts = apr_family_gguf_of(r->family);
    if (r->facts->assumes != NULL) *h = *r->facts->assumes;
    const char *const name = r->family != NULL ? r->family->types[0].name : r->arch;
    h->architecture = apr_arena_copy(r->arena, name, strlen(name));
    return h->architecture != NULL ? APR_OK : apr_no_memory(r->err, "the name of the architecture");
}

apr_status apr_gguf_standard_hparams(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    key_reader r = {.kv = kv, .facts = apr_family_gguf_of(NULL), .where = where, .arena = arena, .err = err};

    *h = (apr_hparams){.architecture = ""};
    APR_TRY(name_architecture(&r, h));
    if (r.arch[0] == '\0') return APR_OK;
    read_fields(&r, h);
    for (size_t i = 0; i < N_KEY_RULES && r.status == APR_OK; i++)
        if (key_rules[i].read != NULL && (!key_rules[i].of_layers || has_layers(h))) key_rules[i].read(&r, h);
    return r.status;
}

/* --- writing --- */

static apr_status put_key(const key_writer *w, unsigned key)
{
    for (size_t i = 0; i < N_KEY_RULES; i++) {
        if (key_rules[i].key != key) continue;
        if (key_rules[i].put != NULL) return key_rules[i].put(w, key);
        if (key_rules[i].value != NULL) return put_number(w, key, key_rules[i].value(w));
    }
    if (key >= APR_FIRST_FLAG_KEY)
        return apr_fail(w->err, APR_E_UNSUPPORTED, "no rule writes the key %s.%s", w->arch, name_of(w->facts, key));
    const apr_hparam_field *const field = &apr_hparam_fields[key - APR_FIRST_NUMBER_KEY];
    return field->is_int ? put_number(w, key, apr_hparam_get_int(w->h, field)) : put_nonzero(w, key, apr_hparam_get_real(w->h, field));
}

static apr_status put_keys(const key_writer *w, const uint16_t *list)
{
    key_writer each = *w;

    for (size_t i = 0; i < APR_MAX_GGUF_KEYS && list[i] != 0 && list[i] != APR_NO_KEYS; i++) {
        each.always = (list[i] & APR_KEY_EVEN_ZERO) != 0;
        APR_TRY(put_key(&each, list[i] & ~(unsigned)APR_KEY_EVEN_ZERO));
    }
    return APR_OK;
}

/* The keys of architectures without their own list (apr_family_gguf.keys). */
static const uint16_t usual_keys[APR_MAX_GGUF_KEYS] = {APR_KEY(num_layers),         APR_KEY(max_position_embeddings),
                                                       APR_KEY(hidden_size),        APR_KEY(intermediate_size),
                                                       APR_KEY(num_heads),          APR_KEY(num_kv_heads),
                                                       APR_KEY(dimension_sections), APR_KEY(scaling),
                                                       APR_KEY(rope_theta),         APR_KEY(rope_theta_local),
                                                       APR_KEY(rms_norm_eps),       APR_KEY(layer_norm_epsilon),
                                                       APR_KEY(num_experts),        APR_KEY(num_experts_per_tok),
                                                       APR_KEY(num_expert_groups),  APR_KEY(num_expert_groups_used),
                                                       APR_KEY(expert_gating_func), APR_KEY(head_dim),
                                                       APR_KEY(value_length)};
/* The same for apr_family_gguf.more_keys. */
static const uint16_t other_keys[APR_MAX_GGUF_KEYS] = {APR_KEY(sliding_window),
                                                       APR_KEY(moe_intermediate_size),
                                                       APR_KEY(shared_expert_intermediate_size),
                                                       APR_KEY(linear_conv_kernel_dim),
                                                       APR_KEY(linear_key_head_dim),
                                                       APR_KEY(linear_num_key_heads),
                                                       APR_KEY(linear_num_value_heads),
                                                       APR_KEY(inner_size),
                                                       APR_KEY(full_attention_interval)};

static bool is_written(const key_writer *w, unsigned key)
{
    char name[MAX_KEY + MAX_ARCH];
    snprintf(name, sizeof name, "%s.%s", w->arch, name_of(w->facts, key));
    return apr_kv_find(w->kv, name) != NULL;
}

/* Keys that the lists need not name: vocab_size without a tokenizer, and rope.dimension_count if only part of each head is rotated. */
static apr_status put_rest(const key_writer *w, bool lacks_vocab)
{
    const apr_hparams *const h = w->h;
    const bool rotates_part = h->rotary_dim > 0 && h->rotary_dim != h->head_dim && w->facts->nope != APR_NOPE_ALL;

    if (rotates_part && !is_written(w, APR_KEY(rotary_dim))) APR_TRY(put_key(w, APR_KEY(rotary_dim)));
    return lacks_vocab && !is_written(w, APR_KEY(vocab_size)) ? put_key(w, APR_KEY(vocab_size)) : APR_OK;
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
    if (is_named) APR_TRY(put_keys(&w, facts->keys[0] != 0 ? facts->keys : usual_keys));
    APR_TRY(apr_kv_set_int(kv, "general.file_type", APR_KV_U32, file_type, err));
    if (is_named) APR_TRY(put_keys(&w, facts->more_keys[0] != 0 ? facts->more_keys : other_keys));
    if (is_named) APR_TRY(put_rest(&w, lacks_vocab));
    return apr_kv_set_int(kv, "general.quantization_version", APR_KV_U32, 2, err);
}
