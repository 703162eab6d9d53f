/* lora_config.c - reads adapter_config.json: fields that are supported, fields that change nothing, and fields that are refused. */
#include "formats/base/json.h"
#include "formats/base/pattern.h"
#include "formats/hf/lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PATTERNS = 4096, MAX_RANK = 1 << 20 };

/* Fields that are read below, or that only describe the training. */
static const char *const known[] = {"peft_type",
                                    "r",
                                    "lora_alpha",
                                    "use_rslora",
                                    "use_dora",
                                    "fan_in_fan_out",
                                    "rank_pattern",
                                    "alpha_pattern",
                                    "bias",
                                    "init_lora_weights",
                                    "lora_dropout",
                                    "auto_mapping",
                                    "revision",
                                    "inference_mode",
                                    "layers_pattern",
                                    "task_type",
                                    "layers_to_transform",
                                    "peft_version",
                                    "target_modules",
                                    "megatron_core",
                                    "exclude_modules",
                                    "qalora_group_size",
                                    "eva_config",
                                    "corda_config",
                                    "loftq_config",
                                    "lora_ga_config",
                                    "modules_to_save",
                                    "ensure_weight_tying",
                                    "runtime_config",
                                    "base_model_name_or_path",
                                    NULL};

/* Unsupported fields, which must be false, null or empty. */
static const char *const refused[] = {"lora_bias",
                                      "use_qalora",
                                      "use_bdlora",
                                      "megatron_config",
                                      "layer_replication",
                                      "arrow_config",
                                      "kasa_config",
                                      "velora_config",
                                      "trainable_token_indices",
                                      "target_parameters",
                                      "monteclora_config",
                                      "alora_invocation_tokens",
                                      NULL};

/* Initializations that leave the base as it is. The others (pissa, olora, loftq, ...) change the base before training: their adapters do
 * not fit the published weights. */
static const char *const harmless_inits[] = {"gaussian", "eva", "orthogonal", NULL};

static bool is_any_of(const char *text, const char *const *texts)
{
    while (*texts != NULL && strcmp(text, *texts) != 0) texts++;
    return *texts != NULL;
}

/* False: the field is missing, null, false or empty. */
static bool is_set(const cJSON *item)
{
    if (item == NULL || cJSON_IsNull(item) || cJSON_IsFalse(item)) return false;
    return !(cJSON_IsArray(item) || cJSON_IsObject(item)) || item->child != NULL;
}

static const char *keep(const char *text, apr_arena *arena) { return apr_arena_copy(arena, text, strlen(text)); }

static apr_status check_fields(apr_lora_config *c, const cJSON *json, apr_arena *arena, apr_error *err)
{
    const cJSON *item;
    int n = 0;

    cJSON_ArrayForEach(item, json)
    {
        if (!is_set(item) || is_any_of(item->string, known)) continue;
        if (is_any_of(item->string, refused))
            return apr_fail(err, APR_E_UNSUPPORTED, "%s: %s is set, which is not supported; merge the adapter with PEFT's merge_and_unload",
                            c->where, item->string);
        if (++n > 8) continue;
        c->unknown_fields = n == 1 ? keep(item->string, arena) : apr_arena_print(arena, "%s, %s", c->unknown_fields, item->string);
        if (c->unknown_fields == NULL) return apr_no_memory(err, "the fields of an adapter");
    }
    return APR_OK;
}

static apr_status read_flag(const apr_lora_config *c, const cJSON *json, const char *key, bool *flag, apr_error *err)
{
    const cJSON *const item = apr_json_get(json, key);
    if (item == NULL || cJSON_IsNull(item)) return APR_OK;
    if (!cJSON_IsBool(item)) return apr_fail(err, APR_E_DAMAGED, "%s: %s is neither true nor false", c->where, key);
    *flag = cJSON_IsTrue(item);
    return APR_OK;
}

static bool is_rank(double value) { return value >= 1.0 && value <= MAX_RANK && value == floor(value); }

static apr_status read_patterns(const apr_lora_config *c, const cJSON *json, const char *key, bool are_ranks, apr_lora_pattern **patterns,
                                size_t *n, apr_arena *arena, apr_error *err)
{
    const cJSON *const object = apr_json_get(json, key), *item;

    if (!is_set(object)) return APR_OK;
    if (!cJSON_IsObject(object)) return apr_fail(err, APR_E_DAMAGED, "%s: %s is not an object", c->where, key);
    const int n_items = cJSON_GetArraySize(object);
    if (n_items > MAX_PATTERNS) return apr_fail(err, APR_E_UNSUPPORTED, "%s: %s has %d patterns", c->where, key, n_items);
    *patterns = apr_arena_array(arena, (size_t)n_items, sizeof **patterns);
    if (*patterns == NULL) return apr_no_memory(err, "the patterns of an adapter");
    cJSON_ArrayForEach(item, object)
    {
        const double value = item->valuedouble;
        if (!cJSON_IsNumber(item) || !isfinite(value) || (are_ranks && !is_rank(value)))
            return apr_fail(err, APR_E_DAMAGED, "%s: %s of '%.100s' is not a %s", c->where, key, item->string,
                            are_ranks ? "rank" : "number");
        const apr_lora_pattern pattern = {keep(item->string, arena), value};
        if (pattern.key == NULL) return apr_no_memory(err, "the patterns of an adapter");
        (*patterns)[(*n)++] = pattern;
    }
    return APR_OK;
}

static apr_status check_words(const apr_lora_config *c, const cJSON *json, apr_error *err)
{
    static const char *const biases[] = {"none", "all", "lora_only", NULL};
    const cJSON *const type = apr_json_get(json, "peft_type"), *const bias = apr_json_get(json, "bias"),
                       *const init = apr_json_get(json, "init_lora_weights");

    if (!cJSON_IsString(type)) return apr_fail(err, APR_E_DAMAGED, "%s: peft_type is missing; was the adapter saved by PEFT?", c->where);
    if (strcmp(type->valuestring, "LORA") != 0)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: peft_type is '%.40s'; only LORA adapters can be merged", c->where, type->valuestring);
    if (is_set(bias) && (!cJSON_IsString(bias) || !is_any_of(bias->valuestring, biases)))
        return apr_fail(err, APR_E_DAMAGED, "%s: bias is not 'none', 'all' or 'lora_only'", c->where);
    if (cJSON_IsString(init) && !is_any_of(init->valuestring, harmless_inits))
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "%s: init_lora_weights is '%.40s', which changes the base before training; convert the adapter to plain LoRA with "
                        "PEFT's save_pretrained(path_initial_model_for_weight_conversion=...)",
                        c->where, init->valuestring);
    return APR_OK;
}

static apr_status read_fields(apr_lora_config *c, const cJSON *json, apr_arena *arena, apr_error *err)
{
    double rank;

    APR_TRY(check_words(c, json, err));
    APR_TRY(check_fields(c, json, arena, err));
    if (!apr_json_get_real(json, "r", &rank) || !is_rank(rank)) return apr_fail(err, APR_E_DAMAGED, "%s: r is not a rank", c->where);
    if (!apr_json_get_real(json, "lora_alpha", &c->alpha)) return apr_fail(err, APR_E_DAMAGED, "%s: lora_alpha is not a number", c->where);
    c->rank = (int64_t)rank;
    APR_TRY(read_flag(c, json, "use_rslora", &c->by_root, err));
    APR_TRY(read_flag(c, json, "use_dora", &c->has_magnitudes, err));
    APR_TRY(read_flag(c, json, "fan_in_fan_out", &c->transposed, err));
    APR_TRY(read_flag(c, json, "ensure_weight_tying", &c->ties_output, err));
    APR_TRY(read_patterns(c, json, "rank_pattern", true, &c->ranks, &c->n_ranks, arena, err));
    APR_TRY(read_patterns(c, json, "alpha_pattern", false, &c->alphas, &c->n_alphas, arena, err));
    const char *const base = apr_json_get_string(json, "base_model_name_or_path");
    if (base == NULL || *base == '\0') return APR_OK;
    c->base = keep(base, arena);
    return c->base != NULL ? APR_OK : apr_no_memory(err, "the name of a model");
}

apr_status apr_lora_config_read(apr_lora_config *config, const uint8_t *text, size_t n_bytes, apr_arena *arena, const char *where,
                                apr_error *err)
{
    cJSON *json;

    *config = (apr_lora_config){.where = where};
    APR_TRY(apr_json_parse(&json, text, n_bytes, where, err));
    const apr_status status =
        cJSON_IsObject(json) ? read_fields(config, json, arena, err) : apr_fail(err, APR_E_DAMAGED, "%s: not a JSON object", where);
    cJSON_Delete(json);
    return status;
}

/* ---- patterns ---- */

/* PEFT's rule: the expression matches the end of the name, from its beginning or from a dot on. */
static apr_status matches(const apr_lora_config *c, const char *key, const char *module, bool *found, apr_error *err)
{
    char text[1100];
    const apr_pattern *pattern;
    apr_arena arena = {0};

    *found = false;
    if (strlen(key) > 1000) return apr_fail(err, APR_E_UNSUPPORTED, "%s: the pattern '%.60s...' is too long", c->where, key);
    snprintf(text, sizeof text, "^(?:.*\\.)?(?:%s)$", key);
    apr_status status = apr_pattern_compile(&pattern, c->where, text, 0, &arena, NULL);
    if (status == APR_E_DAMAGED) apr_fail(err, status, "%s: the pattern '%.100s' is not a regular expression", c->where, key);
    if (status == APR_OK) status = apr_pattern_find(pattern, module, found, NULL);
    if (status == APR_E_UNSUPPORTED)
        apr_fail(err, status, "%s: the pattern '%.100s' takes too long to match in '%.100s'", c->where, key, module);
    if (status == APR_E_MEMORY) apr_no_memory(err, "the patterns of an adapter");
    apr_arena_close(&arena);
    return status;
}

static apr_status look_up(const apr_lora_config *c, const apr_lora_pattern *patterns, size_t n, const char *module, double *value,
                          apr_error *err)
{
    bool found = false;
    for (size_t i = 0; i < n && !found; i++) {
        APR_TRY(matches(c, patterns[i].key, module, &found, err));
        if (found) *value = patterns[i].value;
    }
    return APR_OK;
}

apr_status apr_lora_config_of(const apr_lora_config *config, const char *module, int64_t *rank, double *alpha, double *scale,
                              apr_error *err)
{
    double r = (double)config->rank;

    *alpha = config->alpha;
    APR_TRY(look_up(config, config->ranks, config->n_ranks, module, &r, err));
    APR_TRY(look_up(config, config->alphas, config->n_alphas, module, alpha, err));
    *rank = (int64_t)r;
    *scale = *alpha / (config->by_root ? sqrt(r) : r);
    return APR_OK;
}
