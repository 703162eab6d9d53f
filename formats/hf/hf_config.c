/* hf_config.c - config.json to hyperparameters: old style, new style and nested; what is absent is what the class supposes. */
#include "formats/hf/hf_config.h"
#include "formats/hf/safetensors.h"
#include "formats/model/window.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef apr_config_reading reading;

const char *const apr_layer_names[] = {[APR_LAYER_FULL] = "full_attention",
                                       [APR_LAYER_SLIDING] = "sliding_attention",
                                       [APR_LAYER_LINEAR] = "linear_attention",
                                       [APR_LAYER_CHUNKED] = "chunked_attention",
                                       [APR_LAYER_MAMBA] = "mamba",
                                       [APR_LAYER_CONV] = "conv",
                                       [APR_LAYER_NONE] = "none"};

const cJSON *apr_config_find(const reading *r, const char *key)
{
    const cJSON *item = apr_json_get(r->text, key);
    if (item == NULL || cJSON_IsNull(item)) item = apr_json_get(r->root, key);
    return cJSON_IsNull(item) ? NULL : item;
}

/* Present, if only as null: then the class's default does not hold. */
static bool is_stated(const reading *r, const char *key)
{
    return apr_json_get(r->text, key) != NULL || apr_json_get(r->root, key) != NULL;
}

apr_status apr_config_refuse(const reading *r, const char *format, ...)
{
    char text[400];
    va_list arguments;

    if (r->h->refusal != NULL) return APR_OK;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    r->h->refusal = apr_arena_copy(r->arena, text, strlen(text));
    return r->h->refusal != NULL ? APR_OK : apr_no_memory(r->err, "a config");
}

static apr_status read_int(const reading *r, const char *key, int64_t *value)
{
    const cJSON *const item = apr_config_find(r, key);
    if (item == NULL || apr_json_as_int(item, value)) return APR_OK;
    if (cJSON_IsArray(item)) return apr_config_refuse(r, "its \"%s\" differs from layer to layer", key);
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
    const cJSON *const item = apr_config_find(r, key);
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

/* What the family's class supposes where config.json is silent. null is not silence: it asks for the general rule. */
static void take_defaults(const reading *r)
{
    apr_hparams *const h = r->h;
    const apr_family_config *const f = apr_family_config_of(h->architecture);

    if (f == NULL || h->hidden_size == 0) return;
    const struct {
        const char *key;
        int64_t *value, otherwise;
    } ints[] = {
        {"num_key_value_heads", &h->num_kv_heads, f->num_kv_heads > 0 && h->num_heads % f->num_kv_heads == 0 ? f->num_kv_heads : 0},
        {"head_dim", &h->head_dim, f->head_dim},
        {"max_position_embeddings", &h->max_position_embeddings, f->max_position_embeddings},
        {"sliding_window", &h->sliding_window, f->sliding_window},
    };
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if (!is_stated(r, ints[i].key)) *ints[i].value = ints[i].otherwise;
    if (!is_stated(r, "rms_norm_eps")) h->rms_norm_eps = f->rms_norm_eps;
}

/* Under the usual name, or the family's own. */
static apr_status read_number(const reading *r, const apr_hparam_field *field, const char *own_key)
{
    const char *const key = apr_config_find(r, field->hf_key) != NULL ? field->hf_key : own_key;
    if (field->is_int) return read_int(r, key, apr_hparam_int(r->h, field));
    return read_real_of(r, apr_config_find(r, key), key, apr_hparam_real(r->h, field));
}

static apr_status read_numbers(const reading *r)
{
    const apr_family_config *const f = apr_family_config_of(r->h->architecture);

    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        if (field->hf_key[0] != '\0') APR_TRY(read_number(r, field, apr_family_hf_key(f, field)));
    }
    static const char *const aliases[] = {"num_local_experts", "n_routed_experts"}; /* of families that nobody knows */
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases && r->h->num_experts == 0; i++)
        APR_TRY(read_int(r, aliases[i], &r->h->num_experts));
    take_defaults(r);
    return APR_OK;
}

/* "rope_type" or, in older files, "type"; "mrope" turns text like plain rope, "su" was longrope's first name. NULL: none. */
static const char *rope_name(const cJSON *rope)
{
    const char *name = apr_json_get_string(rope, "rope_type");
    if (name == NULL) name = apr_json_get_string(rope, "type");
    if (name == NULL) return NULL;
    if (strcmp(name, "mrope") == 0) return apr_rope_names[APR_ROPE_PLAIN];
    return strcmp(name, "su") == 0 ? apr_rope_names[APR_ROPE_LONGROPE] : name;
}

static apr_status read_rope_kind(const reading *r, const cJSON *rope, apr_rope_kind *kind)
{
    const char *const name = rope_name(rope);

    if (name == NULL) return APR_OK;
    for (int i = 0; i < APR_N_ROPE_KINDS; i++)
        if (strcmp(apr_rope_names[i], name) == 0) {
            *kind = (apr_rope_kind)i;
            return APR_OK;
        }
    return apr_config_refuse(r, "its rope_type is \"%.40s\"; default, linear, llama3 and yarn are done", name);
}

/* As transformers' yarn: 0.1 * scale * ln(factor) + 1. */
static double yarn_magnitude(double factor, double scale) { return factor <= 1 ? 1.0 : 0.1 * scale * log(factor) + 1.0; }

static apr_status read_rope_numbers(const reading *r, const cJSON *rope)
{
    apr_rope_scaling *const s = &r->h->rope;
    bool truncate = true;
    double original = 0, mscale = 0, mscale_all_dim = 0;
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
        {"mscale", &mscale},
        {"mscale_all_dim", &mscale_all_dim},
        {"original_max_position_embeddings", &original},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        APR_TRY(read_real_of(r, apr_json_get(rope, reals[i].key), reals[i].key, reals[i].value));
    if (original == 0)
        APR_TRY(read_real_of(r, apr_config_find(r, "original_max_position_embeddings"), "original_max_position_embeddings", &original));
    if (!(original >= 0 && original < 0x1p40))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"original_max_position_embeddings\" is %g", r->where, original);
    s->original_context = (int64_t)original;
    if (s->kind != APR_ROPE_LONGROPE && !(s->factor > 0))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: rope scaling \"%s\" without a factor above 0", r->where, apr_rope_names[s->kind]);
    if (s->kind == APR_ROPE_LLAMA3 && !(s->low_freq_factor > 0 && s->high_freq_factor > s->low_freq_factor && s->original_context > 0))
        return apr_fail(r->err, APR_E_DAMAGED,
                        "%s: rope scaling \"llama3\" needs 0 < low_freq_factor < high_freq_factor and original_max_position_embeddings",
                        r->where);
    if (s->kind == APR_ROPE_YARN && s->attention_factor == 0 && mscale != 0 && mscale_all_dim != 0)
        s->attention_factor = yarn_magnitude(s->factor, mscale) / yarn_magnitude(s->factor, mscale_all_dim);
    apr_json_get_bool(rope, "truncate", &truncate);
    s->no_truncate = s->kind == APR_ROPE_YARN && !truncate;
    return APR_OK;
}

/* Where both styles stand in one file, do they say the same of what both say? */
static apr_status compare_styles(const reading *r, const cJSON *scaling, const cJSON *parameters)
{
    const char *const a = rope_name(scaling), *const b = rope_name(parameters);
    const cJSON *item;

    if (!cJSON_IsObject(scaling) || !cJSON_IsObject(parameters)) return APR_OK;
    if (a != NULL && b != NULL && strcmp(a, b) != 0)
        return apr_config_refuse(r, "its rope_scaling is \"%.40s\", but its rope_parameters are \"%.40s\"", a, b);
    cJSON_ArrayForEach(item, scaling)
    {
        const cJSON *const other = apr_json_get(parameters, item->string);
        if (cJSON_IsNumber(item) && cJSON_IsNumber(other) && item->valuedouble != other->valuedouble)
            return apr_config_refuse(r, "its rope_scaling and rope_parameters differ in \"%.40s\"", item->string);
    }
    return APR_OK;
}

/* One object a layer type: the one of full attention counts, and must be everyone's. */
static apr_status rope_of_all_layers(const reading *r, const cJSON **rope)
{
    const cJSON *const full = apr_json_get(*rope, apr_layer_names[APR_LAYER_FULL]);
    const cJSON *const sliding = apr_json_get(*rope, apr_layer_names[APR_LAYER_SLIDING]);

    if (full == NULL && sliding == NULL) return APR_OK;
    *rope = full != NULL ? full : sliding;
    if (full == NULL || sliding == NULL || cJSON_Compare(full, sliding, true)) return APR_OK;
    return apr_config_refuse(r, "its rope_parameters differ between full and sliding attention");
}

static apr_status read_rotary_dim(const reading *r, const cJSON *rope)
{
    apr_hparams *const h = r->h;
    const apr_family_config *const f = apr_family_config_of(h->architecture);
    double part = 0;

    APR_TRY(read_real_of(r, apr_json_get(rope, "partial_rotary_factor"), "partial_rotary_factor", &part));
    if (part == 0) APR_TRY(read_real_of(r, apr_config_find(r, "partial_rotary_factor"), "partial_rotary_factor", &part));
    if (part == 0 && f != NULL) part = f->partial_rotary_factor;
    if (part == 0) return APR_OK;

    const int64_t head_dim = h->head_dim > 0 ? h->head_dim : h->num_heads > 0 ? h->hidden_size / h->num_heads : 0;
    if (!(part > 0 && part <= 1))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"partial_rotary_factor\" is %g, not between 0 and 1", r->where, part);
    if (head_dim > 0 && head_dim < (int64_t)1 << 40) h->rotary_dim = (int64_t)((double)head_dim * part);
    return APR_OK;
}

/* rope_scaling beside rope_theta (transformers 4; version 5 still takes it first) or rope_parameters (transformers 5). */
static apr_status read_rope(const reading *r)
{
    const cJSON *const scaling = apr_config_find(r, "rope_scaling"), *const parameters = apr_config_find(r, "rope_parameters");
    const cJSON *rope = cJSON_IsObject(scaling) ? scaling : parameters;
    const apr_family_config *const f = apr_family_config_of(r->h->architecture);

    APR_TRY(compare_styles(r, scaling, parameters));
    APR_TRY(rope_of_all_layers(r, &rope));
    APR_TRY(read_real_of(r, apr_json_get(parameters, "rope_theta"), "rope_theta", &r->h->rope_theta));
    APR_TRY(read_real_of(r, apr_json_get(rope, "rope_theta"), "rope_theta", &r->h->rope_theta));
    if (r->h->rope_theta == 0 && f != NULL) r->h->rope_theta = f->rope_theta;
    APR_TRY(read_rope_kind(r, rope, &r->h->rope.kind));
    if (r->h->rope.kind != APR_ROPE_PLAIN) APR_TRY(read_rope_numbers(r, rope));
    return read_rotary_dim(r, rope);
}

/* The kind behind a name, or -1. */
static int layer_kind(const cJSON *name)
{
    for (int i = 0; cJSON_IsString(name) && i < APR_N_LAYER_KINDS; i++)
        if (strcmp(apr_layer_names[i], name->valuestring) == 0) return i;
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
        if (kind < 0)
            return apr_config_refuse(r, "its layer %lld is of the unknown type \"%.40s\"", (long long)n,
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
    const cJSON *const types = apr_config_find(r, "layer_types");
    const apr_family_config *const f = apr_family_config_of(h->architecture);
    const bool states_use = apr_config_find(r, "use_sliding_window") != NULL, by_use = f != NULL && f->window == APR_WINDOW_FROM_LAYER;
    bool use_window = !by_use;
    apr_window_layers window = {.n_full_first = by_use ? f->max_window_layers : 0};

    APR_TRY(read_bool(r, "use_sliding_window", &use_window));
    if (!use_window) h->sliding_window = 0;
    if (types != NULL) return read_layer_types(r, types);

    const apr_window_rule rule = f == NULL ? APR_WINDOW_NONE : states_use ? APR_WINDOW_FROM_LAYER : f->window;
    if (h->sliding_window <= 0 || rule == APR_WINDOW_NONE || h->num_layers <= 0 || h->num_layers > 10000) return APR_OK;
    if (rule == APR_WINDOW_FROM_LAYER) APR_TRY(read_int(r, "max_window_layers", &window.n_full_first));
    if (rule == APR_WINDOW_EVEN) window.full_every = 2;
    uint8_t *const kinds = apr_arena_alloc(r->arena, (size_t)h->num_layers);
    if (kinds == NULL) return apr_no_memory(r->err, "the kinds of the layers");
    for (int64_t i = 0; i < h->num_layers; i++) kinds[i] = apr_layer_slides(window, i) ? APR_LAYER_SLIDING : APR_LAYER_FULL;
    h->layer_kinds = kinds;
    return APR_OK;
}

static apr_status read_all(const reading *r)
{
    const cJSON *const classes = apr_json_get(r->root, "architectures");
    const cJSON *const model_type = apr_json_get(r->root, "model_type");
    const char *dtype_key = apr_config_find(r, "torch_dtype") != NULL ? "torch_dtype" : "dtype";

    APR_TRY(read_string(r, model_type != NULL ? model_type : apr_config_find(r, "model_type"), &r->h->architecture));
    if (cJSON_IsArray(classes)) APR_TRY(read_string(r, classes->child, &r->h->hf_class));
    APR_TRY(read_string(r, apr_config_find(r, dtype_key), &r->h->torch_dtype));
    APR_TRY(read_numbers(r));
    APR_TRY(read_rope(r));
    APR_TRY(read_layers(r));
    APR_TRY(read_bool(r, "tie_word_embeddings", &r->h->tie_word_embeddings));
    APR_TRY(read_bool(r, "attention_bias", &r->h->attention_bias));
    APR_TRY(read_bool(r, "mlp_bias", &r->h->mlp_bias));
    APR_TRY(read_bool(r, "norm_topk_prob", &r->h->norm_topk_prob));
    return apr_config_judge(r);
}

apr_status apr_hf_config_read(const apr_attachment *config, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err)
{
    cJSON *root;

    *hparams = (apr_hparams){.architecture = ""};
    APR_TRY(apr_json_parse(&root, config->data, config->n_bytes, where, err));
    const cJSON *const nested = apr_json_get(root, "text_config");
    const reading r = {root, cJSON_IsObject(nested) ? nested : root, hparams, arena, where, err};
    const apr_status status = cJSON_IsObject(root) ? read_all(&r) : apr_fail(err, APR_E_DAMAGED, "%s: no JSON object", where);
    cJSON_Delete(root);
    return status;
}

apr_status apr_hf_config_judge(const apr_attachment *config, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err)
{
    apr_arena own = {0};
    apr_hparams read;
    apr_status status = apr_hf_config_read(config, &read, &own, where, err);

    if (status == APR_OK && read.refusal != NULL) {
        hparams->refusal = apr_arena_copy(arena, read.refusal, strlen(read.refusal));
        if (hparams->refusal == NULL) status = apr_no_memory(err, "a config");
    }
    if (status == APR_OK && read.unknown_fields != NULL) {
        hparams->unknown_fields = apr_arena_copy(arena, read.unknown_fields, strlen(read.unknown_fields));
        if (hparams->unknown_fields == NULL) status = apr_no_memory(err, "a config");
    }
    apr_arena_close(&own);
    return status;
}
