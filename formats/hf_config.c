/* hf_config.c - config.json to hyperparameters and back: old style, new style and nested; it guesses no numbers. */
#include "formats/json.h"
#include "formats/safetensors.h"

#include <math.h>
#include <string.h>

/* Families whose configuration is understood to the last field; of others only the numbers are taken. */
typedef struct family {
    const char *architecture; /* model_type */
    const char *hf_class;     /* class written when the model does not name its own */
    const char *experts_key;  /* what num_experts is called */
    const char *activation;
    int sliding_period; /* without layer_types: 1: all layers slide, 2: even ones; 0: none */
} family;

static const family families[] = {
    {"llama", "LlamaForCausalLM", "num_experts", "silu", 0},
    {"mistral", "MistralForCausalLM", "num_experts", "silu", 1},
    {"mixtral", "MixtralForCausalLM", "num_local_experts", "silu", 1},
    {"qwen2", "Qwen2ForCausalLM", "num_experts", "silu", 0},
    {"qwen2_moe", "Qwen2MoeForCausalLM", "num_experts", "silu", 0},
    {"qwen3", "Qwen3ForCausalLM", "num_experts", "silu", 0},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "num_experts", "silu", 0},
    {"qwen3_next", "Qwen3NextForCausalLM", "num_experts", "silu", 0},
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", "num_experts", "silu", 0},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", "num_experts", "silu", 0},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "num_experts", "silu", 0},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "num_experts", "silu", 0},
    {"gpt_oss", "GptOssForCausalLM", "num_local_experts", "silu", 2},
    {"phi3", "Phi3ForCausalLM", "num_experts", "silu", 1},
    {"gemma", "GemmaForCausalLM", "num_experts", "gelu_pytorch_tanh", 0},
    {"gemma2", "Gemma2ForCausalLM", "num_experts", "gelu_pytorch_tanh", 2},
    {"gemma3_text", "Gemma3ForCausalLM", "num_experts", "gelu_pytorch_tanh", 0},
};

static const family *find_family(const char *architecture)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].architecture, architecture) == 0) return &families[i];
    return NULL;
}

static const char *const rope_names[] = {
    [APR_ROPE_PLAIN] = "default", [APR_ROPE_LINEAR] = "linear",     [APR_ROPE_LLAMA3] = "llama3",
    [APR_ROPE_YARN] = "yarn",     [APR_ROPE_LONGROPE] = "longrope", [APR_ROPE_DYNAMIC] = "dynamic",
};
enum { N_ROPE_KINDS = sizeof rope_names / sizeof *rope_names };

static const char *const layer_names[] = {
    [APR_LAYER_FULL] = "full_attention", [APR_LAYER_SLIDING] = "sliding_attention", [APR_LAYER_LINEAR] = "linear_attention"};
enum { N_LAYER_KINDS = sizeof layer_names / sizeof *layer_names };

/* --- reading --- */

typedef struct reading {
    const cJSON *root, *text; /* the whole, and the part about the language model (the whole again when not nested) */
    apr_hparams *h;
    apr_arena *arena;
    const char *where;
    apr_error *err;
} reading;

/* What the language model's part says, else the whole; NULL when absent or null. */
static const cJSON *find(const reading *r, const char *key)
{
    const cJSON *item = apr_json_get(r->text, key);
    if (item == NULL || cJSON_IsNull(item)) item = apr_json_get(r->root, key);
    return cJSON_IsNull(item) ? NULL : item;
}

static apr_status read_int(const reading *r, const char *key, int64_t *value)
{
    const cJSON *const item = find(r, key);
    if (item == NULL || apr_json_as_int(item, value)) return APR_OK;
    if (cJSON_IsArray(item))
        return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: \"%s\" differs from layer to layer, which is not supported", r->where, key);
    return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is no integer", r->where, key);
}

static apr_status read_real_of(const reading *r, const cJSON *item, const char *key, double *value)
{
    if (item == NULL || cJSON_IsNull(item)) return APR_OK;
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is no number", r->where, key);
    *value = item->valuedouble;
    return APR_OK;
}

static apr_status read_bool(const reading *r, const char *key, bool *value)
{
    const cJSON *const item = find(r, key);
    if (item == NULL) return APR_OK;
    if (!cJSON_IsBool(item)) return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is neither true nor false", r->where, key);
    *value = cJSON_IsTrue(item);
    return APR_OK;
}

static apr_status read_string(const reading *r, const cJSON *item, const char **value)
{
    if (!cJSON_IsString(item)) return APR_OK;
    *value = apr_arena_copy(r->arena, item->valuestring, strlen(item->valuestring));
    return *value != NULL ? APR_OK : apr_no_memory(r->err, "a config");
}

static apr_status read_numbers(const reading *r)
{
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        if (field->hf_key[0] == '\0') continue;
        if (field->is_int) APR_TRY(read_int(r, field->hf_key, apr_hparam_int(r->h, field)));
        else APR_TRY(read_real_of(r, find(r, field->hf_key), field->hf_key, apr_hparam_real(r->h, field)));
    }
    static const char *const aliases[] = {"num_local_experts", "n_routed_experts"};
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases && r->h->num_experts == 0; i++)
        APR_TRY(read_int(r, aliases[i], &r->h->num_experts));
    return APR_OK;
}

/* "rope_type" or, in older files, "type"; "mrope" turns text like plain rope, "su" was longrope's first name. */
static apr_status read_rope_kind(const reading *r, const cJSON *rope, apr_rope_kind *kind)
{
    const char *name = apr_json_get_string(rope, "rope_type");
    if (name == NULL) name = apr_json_get_string(rope, "type");
    if (name == NULL || strcmp(name, "mrope") == 0) return APR_OK;
    if (strcmp(name, "su") == 0) name = rope_names[APR_ROPE_LONGROPE];
    for (int i = 0; i < N_ROPE_KINDS; i++)
        if (strcmp(rope_names[i], name) == 0) {
            *kind = (apr_rope_kind)i;
            return APR_OK;
        }
    if (find_family(r->h->architecture) == NULL) return APR_OK;
    return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: the rope type \"%.40s\" is not supported", r->where, name);
}

static apr_status read_rope_numbers(const reading *r, const cJSON *rope)
{
    apr_rope_scaling *const s = &r->h->rope;
    bool truncate = true;
    double original = 0;
    const struct {
        const char *key;
        double *value;
    } reals[] = {
        {"factor", &s->factor},
        {"low_freq_factor", &s->low_freq_factor},
        {"high_freq_factor", &s->high_freq_factor},
        {"beta_fast", &s->beta_fast},
        {"beta_slow", &s->beta_slow},
        {"attention_factor", &s->attention_factor},
        {"original_max_position_embeddings", &original},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        APR_TRY(read_real_of(r, apr_json_get(rope, reals[i].key), reals[i].key, reals[i].value));
    if (original == 0) APR_TRY(read_real_of(r, find(r, "original_max_position_embeddings"), "original_max_position_embeddings", &original));
    if (!(original >= 0 && original < 0x1p40))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"original_max_position_embeddings\" is %g", r->where, original);
    s->original_context = (int64_t)original;
    if (s->kind != APR_ROPE_LONGROPE && !(s->factor > 0))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: rope scaling \"%s\" without a factor above 0", r->where, rope_names[s->kind]);
    if (s->kind == APR_ROPE_LLAMA3 && !(s->low_freq_factor > 0 && s->high_freq_factor > s->low_freq_factor && s->original_context > 0))
        return apr_fail(r->err, APR_E_DAMAGED,
                        "%s: rope scaling \"llama3\" needs 0 < low_freq_factor < high_freq_factor and original_max_position_embeddings",
                        r->where);
    apr_json_get_bool(rope, "truncate", &truncate);
    s->no_truncate = s->kind == APR_ROPE_YARN && !truncate;
    return APR_OK;
}

/* rope_parameters (transformers 5; may hold one object a layer type) or rope_scaling beside rope_theta (before). */
static apr_status read_rope(const reading *r)
{
    const cJSON *rope = find(r, "rope_parameters");
    double part = 0;

    if (apr_json_get(rope, "full_attention") != NULL) rope = apr_json_get(rope, "full_attention");
    APR_TRY(read_real_of(r, apr_json_get(rope, "rope_theta"), "rope_theta", &r->h->rope_theta));
    APR_TRY(read_real_of(r, apr_json_get(rope, "partial_rotary_factor"), "partial_rotary_factor", &part));
    if (rope == NULL) rope = find(r, "rope_scaling");
    if (part == 0) APR_TRY(read_real_of(r, find(r, "partial_rotary_factor"), "partial_rotary_factor", &part));
    APR_TRY(read_rope_kind(r, rope, &r->h->rope.kind));
    if (r->h->rope.kind != APR_ROPE_PLAIN) APR_TRY(read_rope_numbers(r, rope));
    if (part == 0) return APR_OK;

    const int64_t head_dim = r->h->head_dim > 0 ? r->h->head_dim : r->h->num_heads > 0 ? r->h->hidden_size / r->h->num_heads : 0;
    if (!(part > 0 && part <= 1))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"partial_rotary_factor\" is %g, not between 0 and 1", r->where, part);
    if (head_dim > 0 && head_dim < (int64_t)1 << 40) r->h->rotary_dim = (int64_t)((double)head_dim * part);
    return APR_OK;
}

/* The kind behind a name, or -1. */
static int layer_kind(const cJSON *name)
{
    for (int i = 0; cJSON_IsString(name) && i < N_LAYER_KINDS; i++)
        if (strcmp(layer_names[i], name->valuestring) == 0) return i;
    return -1;
}

static apr_status read_layer_types(const reading *r, const cJSON *types)
{
    const cJSON *type;
    int64_t n = 0;
    const int64_t n_types = cJSON_GetArraySize(types);

    if (!cJSON_IsArray(types)) return apr_fail(r->err, APR_E_DAMAGED, "%s: \"layer_types\" is no list", r->where);
    if (r->h->num_layers == 0) r->h->num_layers = n_types;
    if (n_types != r->h->num_layers)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"layer_types\" has %lld entries for %lld layers", r->where, (long long)n_types,
                        (long long)r->h->num_layers);
    uint8_t *const kinds = apr_arena_alloc(r->arena, (size_t)n_types);
    if (kinds == NULL) return apr_no_memory(r->err, "the kinds of the layers");
    cJSON_ArrayForEach(type, types)
    {
        const int kind = layer_kind(type);
        if (kind < 0 && find_family(r->h->architecture) == NULL) return APR_OK;
        if (kind < 0)
            return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: layer %lld is of the unknown type \"%.40s\"", r->where, (long long)n,
                            cJSON_IsString(type) ? type->valuestring : "");
        kinds[n++] = (uint8_t)kind;
    }
    r->h->layer_kinds = kinds;
    return APR_OK;
}

/* Older files state a window and leave the rest to the model's code: all layers, every other one, or from one layer on. */
static apr_status read_layers(const reading *r)
{
    apr_hparams *const h = r->h;
    const cJSON *const types = find(r, "layer_types");
    bool use_window = true;
    int64_t first = 0;

    APR_TRY(read_bool(r, "use_sliding_window", &use_window));
    if (!use_window) h->sliding_window = 0;
    if (types != NULL) return read_layer_types(r, types);

    const family *const f = find_family(h->architecture);
    const bool states_use = find(r, "use_sliding_window") != NULL;
    const int period = f == NULL ? 0 : states_use ? 1 : f->sliding_period;
    if (h->sliding_window <= 0 || period == 0 || h->num_layers <= 0 || h->num_layers > 10000) return APR_OK;
    if (states_use) APR_TRY(read_int(r, "max_window_layers", &first));
    uint8_t *const kinds = apr_arena_alloc(r->arena, (size_t)h->num_layers);
    if (kinds == NULL) return apr_no_memory(r->err, "the kinds of the layers");
    for (int64_t i = 0; i < h->num_layers; i++) kinds[i] = i >= first && i % period == 0 ? APR_LAYER_SLIDING : APR_LAYER_FULL;
    h->layer_kinds = kinds;
    return APR_OK;
}

static apr_status read_all(const reading *r)
{
    const cJSON *const classes = apr_json_get(r->root, "architectures");
    const cJSON *const model_type = apr_json_get(r->root, "model_type");
    const char *dtype_key = find(r, "torch_dtype") != NULL ? "torch_dtype" : "dtype";

    if (!cJSON_IsObject(r->root)) return apr_fail(r->err, APR_E_DAMAGED, "%s: no JSON object", r->where);
    APR_TRY(read_string(r, model_type != NULL ? model_type : find(r, "model_type"), &r->h->architecture));
    if (cJSON_IsArray(classes)) APR_TRY(read_string(r, classes->child, &r->h->hf_class));
    APR_TRY(read_string(r, find(r, dtype_key), &r->h->torch_dtype));
    APR_TRY(read_numbers(r));
    APR_TRY(read_rope(r));
    APR_TRY(read_layers(r));
    APR_TRY(read_bool(r, "tie_word_embeddings", &r->h->tie_word_embeddings));
    APR_TRY(read_bool(r, "attention_bias", &r->h->attention_bias));
    APR_TRY(read_bool(r, "mlp_bias", &r->h->mlp_bias));
    return read_bool(r, "norm_topk_prob", &r->h->norm_topk_prob);
}

apr_status apr_hf_config_read(const apr_attachment *config, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err)
{
    cJSON *root;

    *hparams = (apr_hparams){.architecture = ""};
    APR_TRY(apr_json_parse(&root, config->data, config->n_bytes, where, err));
    const cJSON *const nested = apr_json_get(root, "text_config");
    const reading r = {root, cJSON_IsObject(nested) ? nested : root, hparams, arena, where, err};
    const apr_status status = read_all(&r);
    cJSON_Delete(root);
    return status;
}

/* --- writing --- */

static void put_text(apr_json_text *out, const char *key, const char *text) { apr_json_string(out, key, text, strlen(text)); }

static void put_positive(apr_json_text *out, const char *key, double value)
{
    if (value > 0) apr_json_real(out, key, value);
}

/* One object in both styles: transformers 4 finds the base beside it, transformers 5 inside it. */
static void put_rope_object(apr_json_text *out, const char *key, const apr_hparams *h, bool with_base)
{
    const apr_rope_scaling *const s = &h->rope;

    apr_json_open(out, key, '{');
    put_text(out, "rope_type", rope_names[s->kind]);
    if (with_base) put_positive(out, "rope_theta", h->rope_theta);
    if (with_base && h->rotary_dim > 0 && h->rotary_dim < h->head_dim)
        apr_json_real(out, "partial_rotary_factor", (double)h->rotary_dim / (double)h->head_dim);
    if (s->kind != APR_ROPE_PLAIN) {
        put_positive(out, "factor", s->factor);
        put_positive(out, "low_freq_factor", s->low_freq_factor);
        put_positive(out, "high_freq_factor", s->high_freq_factor);
        if (s->original_context > 0) apr_json_int(out, "original_max_position_embeddings", s->original_context);
        put_positive(out, "beta_fast", s->beta_fast);
        put_positive(out, "beta_slow", s->beta_slow);
        put_positive(out, "attention_factor", s->attention_factor);
        if (s->no_truncate) apr_json_bool(out, "truncate", false);
    }
    apr_json_close(out, '}');
}

static void put_rope(apr_json_text *out, const apr_hparams *h)
{
    if (h->rope.kind != APR_ROPE_PLAIN) put_rope_object(out, "rope_scaling", h, false);
    else apr_json_null(out, "rope_scaling");
    put_rope_object(out, "rope_parameters", h, true);
    if (h->rotary_dim > 0 && h->rotary_dim < h->head_dim)
        apr_json_real(out, "partial_rotary_factor", (double)h->rotary_dim / (double)h->head_dim);
}

static void put_numbers(apr_json_text *out, const apr_hparams *h, const family *f)
{
    apr_hparams copy = *h; /* the table's accessors want to write */

    /* where the experts are the only feed-forward, their width is the intermediate size */
    if (copy.intermediate_size == 0 && strcmp(f->experts_key, "num_local_experts") == 0)
        copy.intermediate_size = copy.moe_intermediate_size;
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const char *const key = strcmp(field->hf_key, "num_experts") == 0 ? f->experts_key : field->hf_key;
        if (key[0] == '\0') continue;
        if (!field->is_int) put_positive(out, key, *apr_hparam_real(&copy, field));
        else if (*apr_hparam_int(&copy, field) > 0) apr_json_int(out, key, *apr_hparam_int(&copy, field));
    }
}

static void put_layers(apr_json_text *out, const apr_hparams *h)
{
    if (h->layer_kinds == NULL) return;
    if (h->sliding_window > 0) apr_json_bool(out, "use_sliding_window", true);
    apr_json_open(out, "layer_types", '[');
    for (int64_t i = 0; i < h->num_layers; i++) put_text(out, NULL, layer_names[h->layer_kinds[i]]);
    apr_json_close(out, ']');
}

static void put_ids(apr_json_text *out, const apr_vocab *vocab)
{
    if (vocab == NULL || vocab->n_tokens == 0) return;
    if (vocab->bos_id >= 0) apr_json_int(out, "bos_token_id", vocab->bos_id);
    if (vocab->eos_id >= 0) apr_json_int(out, "eos_token_id", vocab->eos_id);
    if (vocab->pad_id >= 0) apr_json_int(out, "pad_token_id", vocab->pad_id);
}

char *apr_hf_config_write(const apr_hparams *h, const apr_vocab *vocab)
{
    static const family other = {"", NULL, "num_experts", "silu", 0};
    apr_json_text out = {0};
    const family *const known = find_family(h->architecture), *const f = known != NULL ? known : &other;
    const char *const hf_class = h->hf_class != NULL ? h->hf_class : f->hf_class;

    apr_json_open(&out, NULL, '{');
    if (hf_class != NULL) {
        apr_json_open(&out, "architectures", '[');
        put_text(&out, NULL, hf_class);
        apr_json_close(&out, ']');
    }
    if (h->architecture[0] != '\0') put_text(&out, "model_type", h->architecture);
    put_text(&out, "hidden_act", f->activation);
    put_numbers(&out, h, f);
    put_rope(&out, h);
    put_layers(&out, h);
    put_ids(&out, vocab);
    apr_json_bool(&out, "attention_bias", h->attention_bias);
    if (h->mlp_bias) apr_json_bool(&out, "mlp_bias", true);
    if (h->num_experts > 0) apr_json_bool(&out, "norm_topk_prob", h->norm_topk_prob);
    apr_json_bool(&out, "tie_word_embeddings", h->tie_word_embeddings);
    if (h->torch_dtype != NULL) {
        put_text(&out, "torch_dtype", h->torch_dtype);
        put_text(&out, "dtype", h->torch_dtype);
    }
    apr_json_bool(&out, "use_cache", true);
    apr_json_close(&out, '}');
    return apr_json_text_take(&out, NULL);
}
