/* gguf_keys.c - hyperparameters out of GGUF's ARCH.* keys and into them, under the names and in the order of llama.cpp. */
#include "formats/gguf/gguf.h"
#include "formats/model/family.h"
#include "formats/model/window.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_KEY_BYTES = 160, MAX_ARCH_BYTES = 64 };

static const struct {
    apr_rope_kind kind;
    const char *name;
} rope_names[] = {{APR_ROPE_LINEAR, "linear"}, {APR_ROPE_YARN, "yarn"}, {APR_ROPE_LONGROPE, "longrope"}};

/* --- out of the keys --- */

typedef struct arch_keys {
    const apr_kv_list *kv;
    char arch[MAX_ARCH_BYTES + 1];
    char key[MAX_KEY_BYTES]; /* the one asked for last */
} arch_keys;

static const char *key_of(arch_keys *k, const char *name)
{
    snprintf(k->key, sizeof k->key, "%s.%s", k->arch, name);
    return k->key;
}

/* A number, or the largest of an array that says one for each layer. */
static bool get_int(arch_keys *k, const char *name, int64_t *value)
{
    const apr_kv *const item = apr_kv_find(k->kv, key_of(k, name));

    if (item == NULL || item->type != APR_KV_ARRAY) return apr_kv_get_int(k->kv, k->key, value);
    if (item->n_elems == 0) return false;
    *value = apr_kv_elem_int(item, 0);
    for (uint64_t i = 1; i < item->n_elems; i++) {
        const int64_t v = apr_kv_elem_int(item, i);
        if (v > *value) *value = v;
    }
    return true;
}

/* The shortest decimal number that is this f32: what config.json said before llama.cpp rounded it ("1e-06", not 9.99999997e-07). */
static double as_written(double f32)
{
    char text[32];

    for (int n_digits = 1; n_digits <= 9; n_digits++) {
        snprintf(text, sizeof text, "%.*g", n_digits, f32);
        if (strtof(text, NULL) == (float)f32) return strtod(text, NULL);
    }
    return f32; /* NaN */
}

static void get_real(arch_keys *k, const char *name, double *value)
{
    const apr_kv *const item = apr_kv_find(k->kv, key_of(k, name));
    if (apr_kv_get_real(k->kv, k->key, value) && item->type == APR_KV_F32) *value = as_written(*value);
}

static void read_table(arch_keys *k, apr_hparams *h)
{
    int64_t inner;

    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        if (field->gguf_key[0] == '\0') continue;
        if (field->is_int) get_int(k, field->gguf_key, apr_hparam_int(h, field));
        else get_real(k, field->gguf_key, apr_hparam_real(h, field));
    }
    if (get_int(k, "ssm.inner_size", &inner) && h->linear_num_value_heads > 0) h->linear_value_head_dim = inner / h->linear_num_value_heads;
}

static void read_rope(arch_keys *k, apr_hparams *h)
{
    apr_rope_scaling *const rope = &h->rope;
    apr_str type = {0};

    if (!apr_kv_get_string(k->kv, key_of(k, "rope.scaling.type"), &type)) return;
    for (size_t i = 0; i < sizeof rope_names / sizeof *rope_names; i++)
        if (apr_str_is(type, rope_names[i].name)) rope->kind = rope_names[i].kind;
    if (rope->kind == APR_ROPE_PLAIN) return; /* "none" */
    get_real(k, "rope.scaling.factor", &rope->factor);
    get_int(k, "rope.scaling.original_context_length", &rope->original_context);
    get_real(k, "rope.scaling.yarn_beta_fast", &rope->beta_fast);
    get_real(k, "rope.scaling.yarn_beta_slow", &rope->beta_slow);
    get_real(k, "rope.scaling.attn_factor", &rope->attention_factor);
    get_real(k, "rope.scaling.yarn_attn_factor", &rope->attention_factor);
    rope->no_truncate = rope->kind == APR_ROPE_YARN && apr_family_gguf_of(k->arch)->no_truncate;
}

/* Which layers slide: an array of bools, a period, or what the architecture is known for. */
static apr_status read_layer_kinds(arch_keys *k, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    static const int64_t max_layers = 10000; /* as apr_hparams_complete, which has the word on it */
    apr_window_layers window = {.full_every = apr_family_gguf_of(k->arch)->full_every};
    const apr_kv *const pattern = apr_kv_find(k->kv, key_of(k, "attention.sliding_window_pattern"));

    apr_kv_get_int(k->kv, k->key, &window.full_every);
    const bool by_layer = pattern != NULL && pattern->type == APR_KV_ARRAY && (int64_t)pattern->n_elems >= h->num_layers;
    if (h->sliding_window <= 0 || h->num_layers <= 0 || h->num_layers > max_layers || (window.full_every <= 1 && !by_layer)) return APR_OK;
    uint8_t *const kinds = apr_arena_alloc(arena, (size_t)h->num_layers);
    if (kinds == NULL) return apr_no_memory(err, "the kinds of the layers");
    for (int64_t i = 0; i < h->num_layers; i++) {
        const bool slides = by_layer ? apr_kv_elem_int(pattern, (uint64_t)i) != 0 : apr_layer_slides(window, i);
        kinds[i] = slides ? APR_LAYER_SLIDING : APR_LAYER_FULL;
    }
    h->layer_kinds = kinds;
    return APR_OK;
}

apr_status apr_gguf_hparams(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    arch_keys k = {.kv = kv};
    apr_str arch;

    *h = (apr_hparams){.architecture = ""};
    if (!apr_kv_get_string(kv, "general.architecture", &arch)) return APR_OK; /* a file of bare tensors */
    if (arch.n_bytes == 0 || arch.n_bytes > MAX_ARCH_BYTES || memchr(arch.text, '\0', arch.n_bytes) != NULL || !apr_str_is_utf8(arch))
        return apr_fail(err, APR_E_DAMAGED, "%s: general.architecture is no name: it has %zu bytes", where, arch.n_bytes);
    memcpy(k.arch, arch.text, arch.n_bytes);
    h->architecture = apr_arena_copy(arena, apr_architecture_from_ggml(k.arch), strlen(apr_architecture_from_ggml(k.arch)));
    if (h->architecture == NULL) return apr_no_memory(err, "the name of the architecture");
    read_table(&k, h);
    read_rope(&k, h);
    const apr_kv *const tokens = apr_kv_find(kv, "tokenizer.ggml.tokens");
    if (h->vocab_size == 0 && tokens != NULL && tokens->type == APR_KV_ARRAY && tokens->n_elems <= INT32_MAX)
        h->vocab_size = (int64_t)tokens->n_elems;
    APR_TRY(read_layer_kinds(&k, h, arena, err));
    return apr_gguf_extras_read(kv, h, arena, where, err);
}

/* --- llama 3's rotary scaling --- */

static double divisor_at(const apr_tensor *divisors, int64_t i)
{
    const uint32_t bits = apr_load_le32(divisors->data + 4 * i);
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

void apr_gguf_rope_from_divisors(const apr_tensor *divisors, apr_hparams *h)
{
    static const double tolerance = 1e-4;
    /* Llama 3.1 to 3.3 differ in the factor alone, and that is the largest divisor. */
    apr_rope_scaling llama3 = {.kind = APR_ROPE_LLAMA3, .low_freq_factor = 1.0, .high_freq_factor = 4.0, .original_context = 8192};
    const int64_t n = apr_tensor_elems(divisors);

    if (divisors->dtype != APR_F32 || n == 0 || h->rope.kind != APR_ROPE_PLAIN) return;
    for (int64_t i = 0; i < n; i++) llama3.factor = fmax(llama3.factor, divisor_at(divisors, i));
    for (int64_t i = 0; i < n; i++) {
        const double expected = apr_rope_divisor(&llama3, h->rope_theta, 2 * n, i);
        if (!(fabs(divisor_at(divisors, i) - expected) <= tolerance * expected)) return;
    }
    h->rope = llama3;
}

/* --- into the keys --- */

typedef struct key_writer {
    const char *arch;
    const apr_family_gguf *facts;
    bool ff_is_expert; /* config.json's intermediate_size is that of one expert */
    bool lacks_vocab;  /* no list of tokens says how many there are */
    apr_kv_list *kv;
    apr_error *err;
} key_writer;

static apr_status put_int(const key_writer *w, const char *name, int64_t value)
{
    if (value == 0) return APR_OK; /* not known */
    const char *const key = apr_arena_print(w->kv->arena, "%s.%s", w->arch, name);
    if (key == NULL) return apr_no_memory(w->err, "a key");
    if (value < 0 || value > UINT32_MAX)
        return apr_fail(w->err, APR_E_UNSUPPORTED, "%s is %lld, which GGUF cannot say in 32 bits", key, (long long)value);
    return apr_kv_set_int(w->kv, key, APR_KV_U32, value, w->err);
}

static apr_status put_real(const key_writer *w, const char *name, double value)
{
    if (value == 0.0) return APR_OK;
    const char *const key = apr_arena_print(w->kv->arena, "%s.%s", w->arch, name);
    return key != NULL ? apr_kv_set_f32(w->kv, key, (float)value, w->err) : apr_no_memory(w->err, "a key");
}

static apr_status put_rope(const key_writer *w, const apr_rope_scaling *rope)
{
    const char *name = NULL;

    for (size_t i = 0; i < sizeof rope_names / sizeof *rope_names; i++)
        if (rope_names[i].kind == rope->kind) name = rope_names[i].name;
    if (name == NULL) return APR_OK; /* llama 3's lies in a tensor, rope_freqs.weight */
    const char *const key = apr_arena_print(w->kv->arena, "%s.rope.scaling.type", w->arch);
    if (key == NULL) return apr_no_memory(w->err, "a key");
    APR_TRY(apr_kv_set_string(w->kv, key, apr_str_of(name), w->err));
    APR_TRY(put_real(w, "rope.scaling.factor", rope->factor));
    APR_TRY(put_int(w, "rope.scaling.original_context_length", rope->original_context));
    APR_TRY(
        put_real(w, rope->kind == APR_ROPE_YARN ? "rope.scaling.yarn_attn_factor" : "rope.scaling.attn_factor", rope->attention_factor));
    APR_TRY(put_real(w, "rope.scaling.yarn_beta_fast", rope->beta_fast));
    return put_real(w, "rope.scaling.yarn_beta_slow", rope->beta_slow);
}

/* How interleaved M-RoPE shares the rotary pairs among time, height and width: near thirds, as 32 pairs are 11, 11, 10. */
static apr_status put_sections(const key_writer *w, int64_t rotary_dim)
{
    const int64_t n = rotary_dim / 2, first = (n + 2) / 3, second = (n - first + 1) / 2;
    const int64_t sections[4] = {first, second, n - first - second, 0};
    uint8_t *const numbers = apr_arena_alloc(w->kv->arena, sizeof(int32_t) * 4);
    const char *const key = apr_arena_print(w->kv->arena, "%s.rope.dimension_sections", w->arch);

    if (numbers == NULL || key == NULL) return apr_no_memory(w->err, "a key");
    for (int i = 0; i < 4; i++) apr_store_le32(numbers + 4 * i, (uint32_t)sections[i]);
    const apr_kv item = {.key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = APR_KV_I32, .n_elems = 4, .value.numbers = numbers};
    return apr_kv_set(w->kv, &item, w->err);
}

/* What every architecture has, in the order of llama.cpp's converter. */
static apr_status put_common(const key_writer *w, const apr_hparams *h)
{
    const bool odd_head = h->num_heads > 0 && h->head_dim != h->hidden_size / h->num_heads;

    APR_TRY(put_int(w, "block_count", h->num_layers));
    APR_TRY(put_int(w, "context_length", h->max_position_embeddings));
    APR_TRY(put_int(w, "embedding_length", h->hidden_size));
    APR_TRY(put_int(w, "feed_forward_length", h->intermediate_size));
    APR_TRY(put_int(w, "attention.head_count", h->num_heads));
    APR_TRY(put_int(w, "attention.head_count_kv", h->num_kv_heads));
    if (w->facts->writes_sections && h->rotary_dim > 0) APR_TRY(put_sections(w, h->rotary_dim));
    APR_TRY(put_rope(w, &h->rope));
    APR_TRY(put_real(w, "rope.freq_base", h->rope_theta));
    APR_TRY(put_real(w, "attention.layer_norm_rms_epsilon", h->rms_norm_eps));
    APR_TRY(put_int(w, "expert_count", h->num_experts));
    APR_TRY(put_int(w, "expert_used_count", h->num_experts_per_tok));
    if (w->facts->omits_head_dim && !odd_head) return APR_OK;
    APR_TRY(put_int(w, "attention.key_length", h->head_dim));
    return put_int(w, "attention.value_length", h->head_dim);
}

/* What only some have; it follows general.file_type. */
static apr_status put_special(const key_writer *w, const apr_hparams *h)
{
    const int64_t expert_size = h->moe_intermediate_size == 0 && w->ff_is_expert ? h->intermediate_size : h->moe_intermediate_size;
    int64_t inner_size;
    if (__builtin_mul_overflow(h->linear_num_value_heads, h->linear_value_head_dim, &inner_size)) inner_size = -1; /* refused below */
    const bool partial_rotation = h->rotary_dim > 0 && h->rotary_dim != h->head_dim;

    if (w->facts->writes_vocab_size || w->lacks_vocab) APR_TRY(put_int(w, "vocab_size", h->vocab_size));
    APR_TRY(put_int(w, "attention.sliding_window", h->sliding_window));
    APR_TRY(put_int(w, "expert_feed_forward_length", expert_size));
    APR_TRY(put_int(w, "expert_shared_feed_forward_length", h->shared_expert_intermediate_size));
    APR_TRY(put_int(w, "ssm.conv_kernel", h->linear_conv_kernel_dim));
    APR_TRY(put_int(w, "ssm.state_size", h->linear_key_head_dim));
    APR_TRY(put_int(w, "ssm.group_count", h->linear_num_key_heads));
    APR_TRY(put_int(w, "ssm.time_step_rank", h->linear_num_value_heads));
    APR_TRY(put_int(w, "ssm.inner_size", inner_size));
    APR_TRY(put_int(w, "full_attention_interval", h->full_attention_interval));
    return w->facts->writes_rotary_dim || partial_rotation ? put_int(w, "rope.dimension_count", h->rotary_dim) : APR_OK;
}

apr_status apr_gguf_keys(const apr_hparams *h, const apr_vocab *vocab, const char *name, int64_t file_type, apr_kv_list *kv, apr_error *err)
{
    const char *const arch = apr_architecture_to_ggml(h->architecture != NULL ? h->architecture : "");
    const bool lacks_vocab = vocab->kind == APR_VOCAB_NONE || vocab->n_tokens == 0;
    const apr_family_config *const config = apr_family_config_of(h->architecture);
    const key_writer w = {.arch = arch,
                          .facts = apr_family_gguf_of(arch),
                          .ff_is_expert = config != NULL && config->ff_is_expert,
                          .lacks_vocab = lacks_vocab,
                          .kv = kv,
                          .err = err};

    if (arch[0] != '\0') APR_TRY(apr_kv_set_string(kv, "general.architecture", apr_str_of(arch), err));
    APR_TRY(apr_kv_set_string(kv, "general.type", apr_str_of("model"), err));
    if (name != NULL) APR_TRY(apr_kv_set_string(kv, "general.name", apr_str_of(name), err));
    if (arch[0] != '\0') APR_TRY(put_common(&w, h));
    APR_TRY(apr_kv_set_int(kv, "general.file_type", APR_KV_U32, file_type, err));
    if (arch[0] != '\0') APR_TRY(put_special(&w, h));
    APR_TRY(apr_kv_set_int(kv, "general.quantization_version", APR_KV_U32, 2, err));
    if (arch[0] != '\0') APR_TRY(apr_gguf_extras_write(h, lacks_vocab ? 0 : vocab->n_tokens, kv, err));
    return apr_gguf_vocab_keys(vocab, kv, err);
}
