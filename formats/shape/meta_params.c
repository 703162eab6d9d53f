/* meta_params.c - converts a params.json to the equivalent config.json, and reads that. */
#include "formats/shape/meta_params.h"
#include "formats/base/text.h"

#include "formats/base/json.h"
#include "formats/shape/hf_config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct params {
    const cJSON *root, *moe, *yarn, *temperature; /* temperature: llama_4_scaling */
    const apr_model *model;
    char refusal[300]; /* empty: all fields are supported */
    const char *where;
    apr_error *err;
} params;

static void refuse(params *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void refuse(params *p, const char *format, ...)
{
    va_list arguments;

    if (p->refusal[0] != '\0') return; /* the first one stays */
    va_start(arguments, format);
    vsnprintf(p->refusal, sizeof p->refusal, format, arguments);
    va_end(arguments);
}

/* --- numbers --- */

static const cJSON *stated(const cJSON *object, const char *key)
{
    const cJSON *const item = apr_json_get(object, key);
    return cJSON_IsNull(item) ? NULL : item;
}

/* *value is unchanged if the key is absent. */
static apr_status get_int(const params *p, const cJSON *object, const char *key, int64_t *value)
{
    const cJSON *const item = stated(object, key);
    if (item == NULL || (apr_json_as_int(item, value) && *value >= -1 && *value < (int64_t)1 << 40)) return APR_OK;
    return apr_fail(p->err, APR_E_DAMAGED, "%s: \"%s\" is not a valid size", p->where, key);
}

static apr_status get_real(const params *p, const cJSON *object, const char *key, double *value)
{
    const cJSON *const item = stated(object, key);
    if (item == NULL) return APR_OK;
    *value = item->valuedouble;
    if (cJSON_IsNumber(item) && isfinite(*value)) return APR_OK;
    return apr_fail(p->err, APR_E_DAMAGED, "%s: \"%s\" is not a number", p->where, key);
}

/* --- what the tensors say --- */

static const apr_tensor *find(const apr_model *model, const char *meta, const char *canonical)
{
    for (size_t i = 0; i < model->n_tensors; i++)
        if (strcmp(model->tensors[i].name, meta) == 0 || strcmp(model->tensors[i].name, canonical) == 0) return &model->tensors[i];
    return NULL;
}

/* Meta's file may have -1, which means the tokenizer's size. */
static int64_t vocab_size(const params *p, int64_t stated_size)
{
    const apr_tensor *const embedding = find(p->model, "tok_embeddings.weight", "model.embed_tokens.weight");
    return stated_size > 0 || embedding == NULL || embedding->rank != 2 ? stated_size : embedding->dims[0];
}

/* --- fields --- */

/* Two thirds of four times the width, times a factor, rounded up to a multiple. Truncates after each step, as Meta's code does. */
static apr_status feed_forward(const params *p, int64_t dim, int64_t *width)
{
    int64_t multiple = 256;
    double factor = 1;

    APR_TRY(get_int(p, p->root, "hidden_dim", width));
    if (*width > 0) return APR_OK;
    APR_TRY(get_int(p, p->root, "multiple_of", &multiple));
    APR_TRY(get_real(p, p->root, "ffn_dim_multiplier", &factor));
    if (multiple < 1 || !(factor > 0 && factor < 1000))
        return apr_fail(p->err, APR_E_DAMAGED, "%s: \"multiple_of\" or \"ffn_dim_multiplier\" is not a valid size", p->where);
    const int64_t scaled = (int64_t)(factor * (double)(2 * (4 * dim) / 3));
    *width = (scaled + multiple - 1) / multiple * multiple;
    return APR_OK;
}

/* The context length of each generation of Meta's models, which params.json does not state. */
static int64_t context_of(const params *p, int64_t vocab, double eps)
{
    if (cJSON_IsTrue(stated(p->root, "use_scaled_rope"))) return 131072;
    return vocab >= 128000 ? 8192 : eps == 1e-5 ? 4096 : 2048;
}

/* Default of Mistral's code: 1e4 with a sliding window, otherwise 1e6. Meta's: 1e4. */
static double default_theta(const params *p, bool is_meta) { return is_meta || stated(p->root, "sliding_window") != NULL ? 1e4 : 1e6; }

static void put_int(apr_json_text *out, const char *key, int64_t value)
{
    if (value > 0) apr_json_int(out, key, value);
}

static apr_status put_sizes(params *p, apr_json_text *out, bool is_meta)
{
    int64_t dim = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, vocab = 0, width = 0, window = 0, context = 0;
    double eps = 1e-5, theta = default_theta(p, is_meta);

    APR_TRY(get_int(p, p->root, "dim", &dim));
    APR_TRY(get_int(p, p->root, "n_layers", &n_layers));
    APR_TRY(get_int(p, p->root, "n_heads", &n_heads));
    APR_TRY(get_int(p, p->root, "n_kv_heads", &n_kv_heads));
    APR_TRY(get_int(p, p->root, "head_dim", &head_dim));
    APR_TRY(get_int(p, p->root, "vocab_size", &vocab));
    APR_TRY(get_int(p, p->root, "sliding_window", &window));
    APR_TRY(get_int(p, p->root, "max_position_embeddings", &context));
    if (context <= 0) APR_TRY(get_int(p, p->root, "max_seq_len", &context));
    APR_TRY(get_real(p, p->root, "norm_eps", &eps));
    APR_TRY(get_real(p, p->root, "rope_theta", &theta));
    if (dim <= 0 || n_layers <= 0 || n_heads <= 0)
        return apr_fail(p->err, APR_E_DAMAGED, "%s: \"dim\", \"n_layers\" or \"n_heads\" is missing: not the params.json of a model",
                        p->where);
    APR_TRY(feed_forward(p, dim, &width));
    vocab = vocab_size(p, vocab);
    if (context <= 0 && is_meta) context = context_of(p, vocab, eps);
    put_int(out, "hidden_size", dim);
    put_int(out, "num_hidden_layers", n_layers);
    put_int(out, "num_attention_heads", n_heads);
    put_int(out, "num_key_value_heads", n_kv_heads > 0 ? n_kv_heads : n_heads);
    put_int(out, "head_dim", head_dim > 0 ? head_dim : dim / n_heads);
    put_int(out, "intermediate_size", width);
    put_int(out, "vocab_size", vocab);
    put_int(out, "max_position_embeddings", context);
    if (!is_meta && window > 0) apr_json_int(out, "sliding_window", window);
    if (!is_meta && window <= 0) apr_json_null(out, "sliding_window");
    apr_json_real(out, "rms_norm_eps", eps);
    if (p->yarn == NULL) apr_json_real(out, "rope_theta", theta);
    return APR_OK;
}

/* --- positions --- */

/* Meta's code scales by 8, for Llama 3.2's small models by 32, which their files do not state. */
static apr_status put_llama3(params *p, apr_json_text *out)
{
    double factor = 0, high = 4;
    int64_t dim = 0;

    if (!cJSON_IsTrue(stated(p->root, "use_scaled_rope"))) return APR_OK;
    APR_TRY(get_int(p, p->root, "dim", &dim));
    APR_TRY(get_real(p, p->root, "rope_scaling_factor", &factor));
    APR_TRY(get_real(p, p->root, "high_freq_factor", &high));
    if (factor == 0 && dim < 4096) refuse(p, "its params.json has \"use_scaled_rope\" and no \"rope_scaling_factor\", which is 8 or 32");
    apr_json_open(out, "rope_scaling", '{');
    apr_json_string(out, "rope_type", "llama3", 6);
    apr_json_real(out, "factor", factor != 0 ? factor : 8);
    apr_json_real(out, "low_freq_factor", 1);
    apr_json_real(out, "high_freq_factor", high);
    apr_json_int(out, "original_max_position_embeddings", 8192);
    apr_json_close(out, '}');
    return APR_OK;
}

/* beta and alpha (in rotations) are where the ramp between kept and divided frequencies begins and ends. */
static apr_status put_yarn(params *p, apr_json_text *out)
{
    double theta = default_theta(p, false), factor = 0, fast = 32, slow = 1, beta = 0;
    int64_t original = 0, temperature_original = 0;

    if (p->yarn == NULL) return APR_OK;
    APR_TRY(get_real(p, p->root, "rope_theta", &theta));
    APR_TRY(get_real(p, p->yarn, "factor", &factor));
    APR_TRY(get_real(p, p->yarn, "beta", &fast));
    APR_TRY(get_real(p, p->yarn, "alpha", &slow));
    APR_TRY(get_int(p, p->yarn, "original_max_position_embeddings", &original));
    APR_TRY(get_real(p, p->temperature, "beta", &beta));
    APR_TRY(get_int(p, p->temperature, "original_max_position_embeddings", &temperature_original));
    if (cJSON_IsTrue(stated(p->yarn, "apply_scale"))) refuse(p, "its params.json has \"apply_scale\" in \"yarn\"");
    if (temperature_original > 0 && temperature_original != original)
        refuse(p, "its params.json has two \"original_max_position_embeddings\"");
    apr_json_open(out, "rope_parameters", '{');
    apr_json_string(out, "rope_type", "yarn", 4);
    apr_json_real(out, "rope_theta", theta);
    apr_json_real(out, "factor", factor);
    apr_json_real(out, "beta_fast", fast);
    apr_json_real(out, "beta_slow", slow);
    apr_json_int(out, "original_max_position_embeddings", original);
    if (p->temperature == NULL) apr_json_real(out, "attention_factor", 1);
    if (p->temperature != NULL) {
        apr_json_real(out, "mscale", 1);
        apr_json_real(out, "mscale_all_dim", 1);
        apr_json_real(out, "llama_4_scaling_beta", beta);
    }
    apr_json_close(out, '}');
    return APR_OK;
}

/* --- other fields --- */

static apr_status put_experts(params *p, apr_json_text *out)
{
    int64_t n = 0, n_used = 0;

    if (p->moe == NULL) return APR_OK;
    APR_TRY(get_int(p, p->moe, "num_experts", &n));
    APR_TRY(get_int(p, p->moe, "num_experts_per_tok", &n_used));
    put_int(out, "num_local_experts", n);
    put_int(out, "num_experts_per_tok", n_used);
    return APR_OK;
}

/* Refuses unknown fields, which may change the numbers, unless they are off. */
static void check_fields(params *p, const cJSON *object, const char *const *fields)
{
    const cJSON *item;

    if (object != NULL && !cJSON_IsObject(object)) {
        refuse(p, "its params.json has \"%.80s\", which is not understood", object->string);
        return;
    }
    cJSON_ArrayForEach(item, object)
    {
        const bool is_off = cJSON_IsNull(item) || cJSON_IsFalse(item);
        if (!is_off && !apr_is_any_of(item->string, fields))
            refuse(p, "its params.json has \"%.80s\", which is not understood", item->string);
    }
}

static void check_all_fields(params *p)
{
    const cJSON *const packed = stated(p->root, "quantization");
    const char *const format = apr_json_get_string(packed, "qformat_weight");

    check_fields(p, p->root,
                 APR_NAMES("dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "hidden_dim", "norm_eps", "vocab_size", "rope_theta",
                           "sliding_window", "max_position_embeddings", "max_seq_len", "max_batch_size", "multiple_of",
                           "ffn_dim_multiplier", "use_scaled_rope", "rope_scaling_factor", "high_freq_factor", "moe", "yarn",
                           "llama_4_scaling", "quantization", "tied_embeddings", "model_type", "n_words", "causal", "vision_encoder",
                           "multimodal"));
    check_fields(p, p->moe, APR_NAMES("num_experts", "num_experts_per_tok"));
    check_fields(p, p->yarn, APR_NAMES("factor", "beta", "alpha", "original_max_position_embeddings", "apply_scale"));
    check_fields(p, p->temperature, APR_NAMES("beta", "original_max_position_embeddings"));
    check_fields(p, packed, APR_NAMES("qformat_weight", "qscheme_act"));
    if (packed != NULL && (format == NULL || strcmp(format, "fp8_e4m3") != 0))
        refuse(p, "its params.json has the \"qformat_weight\" %.40s", format != NULL ? format : "of another kind");
    if (cJSON_IsFalse(stated(p->root, "causal"))) refuse(p, "its params.json has \"causal\": false");
    if (p->temperature != NULL && p->yarn == NULL) refuse(p, "its params.json has \"llama_4_scaling\" without \"yarn\"");
}

/* --- the whole --- */

static const char *const ministral[] = {"ministral3", "Ministral3ForCausalLM"}, *const mixtral[] = {"mixtral", "MixtralForCausalLM"},
                         *const llama[] = {"llama", "LlamaForCausalLM"}, *const mistral[] = {"mistral", "MistralForCausalLM"};

static apr_status put_all(params *p, apr_json_text *out)
{
    const bool is_meta = stated(p->root, "hidden_dim") == NULL;
    const char *const *const names = is_meta ? llama : p->moe != NULL ? mixtral : p->temperature != NULL ? ministral : mistral;
    const bool is_tied = cJSON_IsTrue(stated(p->root, "tied_embeddings")) ||
                         (p->model->n_tensors > 0 && find(p->model, "output.weight", "lm_head.weight") == NULL);

    apr_json_open(out, NULL, '{');
    apr_json_open(out, "architectures", '[');
    apr_json_string(out, NULL, names[1], strlen(names[1]));
    apr_json_close(out, ']');
    apr_json_string(out, "model_type", names[0], strlen(names[0]));
    apr_json_bool(out, "tie_word_embeddings", is_tied);
    APR_TRY(put_sizes(p, out, is_meta));
    APR_TRY(put_llama3(p, out));
    APR_TRY(put_yarn(p, out));
    APR_TRY(put_experts(p, out));
    apr_json_close(out, '}');
    return APR_OK;
}

/* Makes the config.json, and sets the refusal. */
static apr_status write_config(params *p, apr_attachment *config, char **text)
{
    apr_json_text out = {0};
    size_t n_bytes = 0;

    p->moe = stated(p->root, "moe");
    p->yarn = stated(p->root, "yarn");
    p->temperature = stated(p->root, "llama_4_scaling");
    check_all_fields(p);
    const apr_status status = put_all(p, &out);
    if (status != APR_OK) {
        apr_json_text_free(&out);
        return status;
    }
    *text = apr_json_text_take(&out, &n_bytes);
    *config = (apr_attachment){"config.json", (const uint8_t *)*text, n_bytes};
    return *text != NULL ? APR_OK : apr_no_memory(p->err, "a params.json");
}

apr_status apr_params_read(const apr_attachment *file, const apr_model *model, apr_hparams *hparams, apr_arena *arena, const char *where,
                           apr_error *err)
{
    params p = {.model = model, .where = where, .err = err};
    apr_attachment config;
    cJSON *root;
    char *text = NULL;

    APR_TRY(apr_json_parse(&root, file->data, file->n_bytes, where, err));
    p.root = root;
    apr_status status =
        cJSON_IsObject(root) ? write_config(&p, &config, &text) : apr_fail(err, APR_E_DAMAGED, "%s: not a JSON object", where);
    if (status == APR_OK) status = apr_hf_config_read(&config, hparams, arena, where, err);
    if (status == APR_OK && p.refusal[0] != '\0') {
        hparams->refusal = apr_arena_copy(arena, p.refusal, strlen(p.refusal));
        if (hparams->refusal == NULL) status = apr_no_memory(err, "a params.json");
    }
    free(text);
    cJSON_Delete(root);
    return status;
}

apr_status apr_params_check(const apr_attachment *file, const apr_model *model, apr_hparams *hparams, apr_arena *arena, const char *where,
                            apr_error *err)
{
    apr_hparams read = {0};

    APR_TRY(apr_params_read(file, model, &read, arena, where, err));
    hparams->refusal = read.refusal;
    return APR_OK;
}
