/* gguf_key_table.c - computes the value of each of GGUF's ARCH.* keys: a hyperparameter, or a value derived from several. */
#include "formats/shape/gguf_keys.h"

#include <math.h>

const char *apr_gguf_architecture(const apr_hparams *h)
{
    const apr_family *const family = apr_family_find(h->architecture);
    const char *const dense = apr_family_gguf_of(family)->name_without_experts;

    if (h->architecture == NULL) return "";
    return dense != NULL && h->num_experts == 0 ? dense : apr_architecture_to_ggml(h->architecture);
}

/* --- one key --- */

apr_status apr_gguf_put_int(const apr_key_writer *w, const char *name, int64_t value)
{
    const char *const key = apr_arena_print(w->kv->arena, "%s.%s", w->arch, name);
    if (key == NULL) return apr_no_memory(w->err, "a key");
    if (value < 0 || value > UINT32_MAX)
        return apr_fail(w->err, APR_E_UNSUPPORTED, "%s is %lld, which does not fit GGUF's 32 bits", key, (long long)value);
    return apr_kv_set_int(w->kv, key, APR_KV_U32, value, w->err);
}

apr_status apr_gguf_put_real(const apr_key_writer *w, const char *name, double value)
{
    const char *const key = apr_arena_print(w->kv->arena, "%s.%s", w->arch, name);
    return key != NULL ? apr_kv_set_f32(w->kv, key, (float)value, w->err) : apr_no_memory(w->err, "a key");
}

apr_status apr_gguf_put_text(const apr_key_writer *w, const char *name, const char *text)
{
    const char *const key = apr_arena_print(w->kv->arena, "%s.%s", w->arch, name);
    return key != NULL ? apr_kv_set_string(w->kv, key, apr_str_of(text), w->err) : apr_no_memory(w->err, "a key");
}

static apr_status put_bool(const apr_key_writer *w, const char *name, bool value)
{
    const char *const key = apr_arena_print(w->kv->arena, "%s.%s", w->arch, name);
    return key != NULL ? apr_kv_set_bool(w->kv, key, value, w->err) : apr_no_memory(w->err, "a key");
}

static apr_status put_ints(const apr_key_writer *w, const char *name, const int64_t *values, size_t n)
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
static apr_status put_by_layer(const apr_key_writer *w, const char *name, int64_t (*value_of)(const apr_hparams *h, int64_t layer))
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
    return n > 0 && values[0] != 0 ? apr_gguf_put_int(w, name, values[0]) : APR_OK;
}

/* --- by layer --- */

int64_t apr_gguf_expert_width(const apr_hparams *h)
{
    return h->moe_intermediate_size > 0 ? h->moe_intermediate_size : h->intermediate_size;
}

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
    if (apr_layer_kind_of(h, layer) == APR_LAYER_NONE && kind == APR_FFN_EXPERTS) return apr_gguf_expert_width(h);
    return h->use_double_wide_mlp && is_shared ? doubled(h->intermediate_size) : h->intermediate_size;
}

static int64_t kv_heads_of(const apr_hparams *h, int64_t layer)
{
    /* Linear layers do not attend. They count here, so that the key is one number: that of the other layers. */
    static const bool attends[APR_N_LAYER_KINDS] = {
        [APR_LAYER_FULL] = true, [APR_LAYER_SLIDING] = true, [APR_LAYER_CHUNKED] = true, [APR_LAYER_LINEAR] = true};
    const apr_layer_kind kind = apr_layer_kind_of(h, layer);

    if (h->kv_lora_rank > 0 || !attends[kind]) return h->kv_lora_rank > 0;
    return kind == APR_LAYER_FULL && h->num_global_kv_heads > 0 ? h->num_global_kv_heads : h->num_kv_heads;
}

static apr_status put_feed_forward(const apr_key_writer *w, const char *name, bool always)
{
    (void)always;
    return w->h->num_layers > 0           ? put_by_layer(w, name, feed_forward_of)
           : w->h->intermediate_size != 0 ? apr_gguf_put_int(w, name, w->h->intermediate_size)
                                          : APR_OK;
}

static apr_status put_kv_heads(const apr_key_writer *w, const char *name, bool always)
{
    (void)always;
    return w->h->num_layers > 0      ? put_by_layer(w, name, kv_heads_of)
           : w->h->num_kv_heads != 0 ? apr_gguf_put_int(w, name, w->h->num_kv_heads)
                                     : APR_OK;
}

static apr_status put_pattern(const apr_key_writer *w, const char *name, bool always)
{
    (void)always;
    const size_t n = (size_t)w->h->num_layers;
    uint8_t *const slides = apr_arena_alloc(w->kv->arena, n + 1);
    const char *const key = apr_arena_print(w->kv->arena, "%s.%s", w->arch, name);

    if (slides == NULL || key == NULL) return apr_no_memory(w->err, "a key");
    if (w->h->sliding_window == 0) return APR_OK;
    for (size_t i = 0; i < n; i++) slides[i] = apr_layer_kind_of(w->h, (int64_t)i) == APR_LAYER_SLIDING;
    const apr_kv item = {.key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = APR_KV_BOOL, .n_elems = n, .value.numbers = slides};
    return n > 0 ? apr_kv_set(w->kv, &item, w->err) : APR_OK;
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
static int64_t key_length(const apr_key_writer *w)
{
    const apr_hparams *const h = w->h;
    if (h->kv_lora_rank > 0) return sum(h->kv_lora_rank, h->qk_rope_head_dim);
    return w->facts->omits_head_dim && h->head_dim == hidden_per_head(h) ? 0 : h->global_head_dim > 0 ? h->global_head_dim : h->head_dim;
}
static int64_t value_length(const apr_key_writer *w) { return w->h->kv_lora_rank > 0 ? w->h->kv_lora_rank : key_length(w); }
static int64_t head_dim(const apr_key_writer *w) { return w->h->head_dim; }
static int64_t block_count(const apr_key_writer *w)
{
    const bool counts = w->facts->more_keys != NULL && strstr(w->facts->more_keys, " nextn_predict_layers") != NULL;
    return counts ? sum(w->h->num_layers, w->h->num_nextn_layers) : w->h->num_layers;
}
/* Without positions the context has no limit. llama.cpp's converter writes 2^20. */
static int64_t context_length(const apr_key_writer *w)
{
    const bool unlimited = w->facts->nope >= APR_NOPE_UNLESS_FINETUNED && no_layer_has_rope(w->h);
    return unlimited && w->h->max_position_embeddings > 0 ? 1 << 20 : w->h->max_position_embeddings;
}
static int64_t rotary_dim(const apr_key_writer *w)
{
    if (w->h->kv_lora_rank > 0) return w->h->qk_rope_head_dim;
    if (w->facts->nope == APR_NOPE_ALL) return hidden_per_head(w->h); /* unused */
    return w->h->global_head_dim > 0 ? w->h->global_head_dim : w->h->rotary_dim;
}
static int64_t rotary_dim_swa(const apr_key_writer *w) { return w->h->rotary_dim; }
static int64_t n_leading_dense(const apr_key_writer *w)
{
    int64_t n_dense, step;
    expert_layers(w->h, &n_dense, &step);
    return n_dense;
}
static int64_t expert_step(const apr_key_writer *w)
{
    int64_t n_dense, step;
    expert_layers(w->h, &n_dense, &step);
    return step;
}
/* Every n-th layer has full attention, the others are linear; 0: the layers follow no such rule. */
static int64_t attention_interval(const apr_key_writer *w)
{
    const apr_hparams *const h = w->h;
    int64_t n = 0;

    if (h->full_attention_interval > 0 || h->layer_kinds == NULL) return h->full_attention_interval;
    while (n < h->num_layers && apr_layer_kind_of(h, n) == APR_LAYER_LINEAR) n++;
    for (int64_t i = 0; i < h->num_layers; i++)
        if ((apr_layer_kind_of(h, i) != APR_LAYER_LINEAR) != ((i + 1) % (n + 1) == 0)) return 0;
    return n + 1;
}
static int64_t score_function(const apr_key_writer *w) { return w->h->num_experts > 0 ? w->facts->score_function : 0; }
static int64_t expert_width(const apr_key_writer *w)
{
    return w->h->num_experts > 0 ? apr_gguf_expert_width(w->h) : w->h->moe_intermediate_size;
}
static int64_t shared_width(const apr_key_writer *w)
{
    const apr_hparams *const h = w->h;
    return h->shared_expert_intermediate_size > 0 ? h->shared_expert_intermediate_size
                                                  : product(h->num_shared_experts, apr_gguf_expert_width(h));
}
static int64_t n_shared(const apr_key_writer *w)
{
    const int64_t width = apr_gguf_expert_width(w->h);
    return w->h->num_shared_experts > 0 || width == 0 ? w->h->num_shared_experts : w->h->shared_expert_intermediate_size / width;
}
static int64_t inner_size(const apr_key_writer *w) { return product(w->h->linear_num_value_heads, w->h->linear_value_head_dim); }
static int64_t original_context(const apr_key_writer *w)
{
    return w->h->rope.original_context > 0 ? w->h->rope.original_context : w->h->max_position_embeddings;
}
static int64_t temperature_length(const apr_key_writer *w)
{
    return w->h->attn_temperature_length < (double)UINT32_MAX ? (int64_t)w->h->attn_temperature_length : -1;
}

/* --- others --- */

/* llama.cpp has no alpha: it gets theta with alpha applied. */
static apr_status put_theta(const apr_key_writer *w, const char *name, bool always)
{
    (void)always;
    const apr_hparams *const h = w->h;
    const double n = (double)h->rotary_dim, alpha = h->rope.kind == APR_ROPE_DYNAMIC && n > 2 ? h->rope.alpha : 0;
    return h->rope_theta == 0 ? APR_OK : apr_gguf_put_real(w, name, alpha > 0 ? h->rope_theta * pow(alpha, n / (n - 2)) : h->rope_theta);
}

/* Also written if sliding layers use the global theta and readers would assume another. */
static apr_status put_local_theta(const apr_key_writer *w, const char *name, bool always)
{
    const bool supposed = w->facts->assumes != NULL && w->facts->assumes->rope_theta_local > 0;
    const double theta = w->h->rope_theta_local > 0 || !supposed ? w->h->rope_theta_local : w->h->rope_theta;
    (void)always;
    return theta > 0 ? apr_gguf_put_real(w, name, theta) : APR_OK;
}

static apr_status put_eps(const apr_key_writer *w, apr_eps_rule other, const char *name)
{
    return w->facts->eps == other || w->h->rms_norm_eps == 0 ? APR_OK : apr_gguf_put_real(w, name, w->h->rms_norm_eps);
}
static apr_status put_rms_eps(const apr_key_writer *w, const char *name, bool always)
{
    (void)always;
    return put_eps(w, APR_EPS_LAYER, name);
}
static apr_status put_layer_eps(const apr_key_writer *w, const char *name, bool always)
{
    (void)always;
    return put_eps(w, APR_EPS_RMS, name);
}

/* Interleaved M-RoPE splits the rotary pairs among time, height and width in near thirds: 32 pairs are 11, 11, 10. */
static apr_status put_sections(const apr_key_writer *w, const char *name, bool always)
{
    (void)always;
    const int64_t n = w->h->rotary_dim / 2, first = (n + 2) / 3, second = (n - first + 1) / 2;
    const int64_t sections[4] = {first, second, n - first - second, 0};
    return w->facts->writes_sections && n > 0 ? put_ints(w, name, sections, 4) : APR_OK;
}

static apr_status put_norm_topk(const apr_key_writer *w, const char *name, bool always)
{
    return w->h->norm_topk_prob || always ? put_bool(w, name, w->h->norm_topk_prob) : APR_OK;
}
static apr_status put_finetuned(const apr_key_writer *w, const char *name, bool always)
{
    (void)always;
    return put_bool(w, name, !no_layer_has_rope(w->h));
}
static apr_status put_scaling(const apr_key_writer *w, const char *name, bool always)
{
    (void)always;
    (void)name;
    return apr_gguf_put_rope(w);
}
static apr_status put_no_scaling(const apr_key_writer *w, const char *name, bool always)
{
    (void)always;
    return w->h->rope.kind == APR_ROPE_PLAIN ? apr_gguf_put_text(w, name, "none") : APR_OK;
}
static apr_status put_log_multiplier(const apr_key_writer *w, const char *name, bool always)
{
    (void)always;
    const double value = w->h->rope.kind == APR_ROPE_YARN ? w->facts->yarn_log_unit * w->h->rope.mscale_all_dim : 0;
    return value != 0 ? apr_gguf_put_real(w, name, value) : APR_OK;
}

double apr_gguf_longrope_factor(const apr_hparams *h)
{
    const double original = (double)h->rope.original_context;
    const double factor = h->rope.factor > 0 ? h->rope.factor : original > 0 ? (double)h->max_position_embeddings / original : 0;
    return factor > 1 && original > 1 ? sqrt(1 + log(factor) / log(original)) : 1;
}
static apr_status put_longrope(const apr_key_writer *w, const char *name, bool always)
{
    (void)always;
    const apr_rope_scaling *const s = &w->h->rope;
    if (s->kind != APR_ROPE_LONGROPE) return APR_OK;
    return apr_gguf_put_real(w, name, s->attention_factor > 0 ? s->attention_factor : apr_gguf_longrope_factor(w->h));
}

/* Keys that are not fields of the hyperparameter table: a derived integer (value), or anything else (put). */
static const struct {
    const char *name;
    int64_t (*value)(const apr_key_writer *w);
    apr_status (*put)(const apr_key_writer *w, const char *name, bool always);
} key_table[] = {
    {"attention.head_count_kv", NULL, put_kv_heads},
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
};

static apr_status put_number(const apr_key_writer *w, const char *name, int64_t value, bool always)
{
    return value != 0 || always ? apr_gguf_put_int(w, name, value) : APR_OK;
}

/* The field that this architecture writes under the key. */
static const apr_hparam_field *field_of(const apr_family_gguf *facts, const char *name)
{
    for (size_t i = 0; i < APR_MAX_GGUF_SPELLINGS && facts->spellings[i].field != NULL; i++)
        for (size_t k = 0; k < apr_n_hparam_fields && strcmp(facts->spellings[i].key, name) == 0; k++)
            if (strcmp(apr_hparam_fields[k].name, facts->spellings[i].field) == 0) return &apr_hparam_fields[k];
    for (size_t i = 0; i < apr_n_hparam_fields; i++)
        if (strcmp(apr_hparam_fields[i].gguf_key, name) == 0) return &apr_hparam_fields[i];
    return NULL;
}

static apr_status put_key(const apr_key_writer *w, const char *name, bool always)
{
    apr_hparams h = *w->h;

    for (size_t i = 0; i < sizeof key_table / sizeof *key_table; i++) {
        const char *const key = key_table[i].name;
        if (strcmp(key, name) != 0) continue;
        return key_table[i].put != NULL ? key_table[i].put(w, key, always) : put_number(w, key, key_table[i].value(w), always);
    }
    const apr_hparam_field *const field = field_of(w->facts, name);
    if (field == NULL) return apr_fail(w->err, APR_E_UNSUPPORTED, "unknown key %s.%s", w->arch, name);
    if (field->is_int) return put_number(w, name, *apr_hparam_int(&h, field), always);
    return *apr_hparam_real(&h, field) != 0 ? apr_gguf_put_real(w, name, *apr_hparam_real(&h, field)) : APR_OK;
}

apr_status apr_gguf_put_keys(const apr_key_writer *w, const char *list)
{
    for (const char *at = list + strspn(list, " "); *at != '\0'; at += strspn(at, " ")) {
        char name[APR_MAX_GGUF_KEY] = "";
        const size_t n = strcspn(at, " "), n_name = n < sizeof name ? n : sizeof name - 1;
        const bool always = n_name > 0 && at[n_name - 1] == '!';
        memcpy(name, at, n_name - always);
        APR_TRY(put_key(w, name, always));
        at += n;
    }
    return APR_OK;
}
