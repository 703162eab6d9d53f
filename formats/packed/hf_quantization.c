/* hf_quantization.c - reads the quantization_config of each producer into schemes and patterns. Reads no weights. */
#include "formats/packed/hf_quantization.h"
#include "formats/base/grow.h"
#include "formats/base/text.h"

#include "formats/base/json.h"
#include "formats/shape/hf_config.h"
#include "formats/tensor/text_config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct reading {
    const cJSON *config; /* the object that describes the quantization */
    apr_quantization *q;
    apr_quant_scheme *schemes; /* [capacity] */
    const char **targets;      /* [capacity] one for each scheme; "" covers everything */
    size_t n, capacity;
    int float_bytes; /* bytes of the model's plain floats, which are compressed-tensors' scales */
    apr_arena *arena;
    bool no_memory;
} reading;

/* Describes what is not supported. Only the first problem is kept. */
static void problem(reading *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void problem(reading *r, const char *format, ...)
{
    char text[256];
    va_list arguments;

    if (r->q->problem != NULL) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    r->q->problem = apr_arena_copy(r->arena, text, strlen(text));
    if (r->q->problem == NULL) r->no_memory = true;
}

static const char *keep_text(reading *r, const char *text)
{
    const char *const kept = apr_arena_copy(r->arena, text, strlen(text));
    if (kept == NULL) r->no_memory = true;
    return kept != NULL ? kept : "";
}

static void add_rule(reading *r, const char *target, apr_quant_scheme scheme)
{
    size_t n_targets = r->capacity;
    const char **const targets = apr_arena_grow(r->arena, r->targets, &n_targets, r->n + 1, sizeof *targets);
    apr_quant_scheme *const schemes = apr_arena_grow(r->arena, r->schemes, &r->capacity, r->n + 1, sizeof *schemes);
    if (schemes == NULL || targets == NULL) {
        r->no_memory = true;
        return;
    }
    r->schemes = schemes;
    r->targets = targets;
    r->schemes[r->n] = scheme;
    r->targets[r->n++] = *target != '\0' ? keep_text(r, target) : "";
}

/* A member that is an object. Anything else except null and false is a problem. */
static const cJSON *object_of(reading *r, const char *key)
{
    const cJSON *const item = apr_json_get(r->config, key);
    if (cJSON_IsObject(item)) return item;
    if (item != NULL && !cJSON_IsNull(item) && !cJSON_IsFalse(item)) problem(r, "\"%s\" that is not an object", key);
    return NULL;
}

/* An integer member of `object`; `missing` if there is none. */
static int64_t int_of(reading *r, const cJSON *object, const char *key, int64_t missing)
{
    const cJSON *const item = apr_json_get(object, key);
    int64_t value = missing;
    if (item != NULL && !cJSON_IsNull(item) && !apr_json_as_int(item, &value)) problem(r, "\"%s\" is not an integer", key);
    return value;
}

static bool bool_of(const cJSON *object, const char *key, bool missing)
{
    bool value = missing;
    apr_json_get_bool(object, key, &value);
    return value;
}

/* Reads what one scale covers, as [rows, columns]. If absent, the block stays as it is. */
static void read_block(reading *r, const cJSON *list, apr_quant_scheme *s)
{
    if (list == NULL || cJSON_IsNull(list)) return;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != 2 || !apr_json_as_int(list->child, &s->block_rows) ||
        !apr_json_as_int(list->child->next, &s->block_columns) || s->block_rows < 1 || s->block_columns < 1)
        problem(r, "its block size is not [rows, columns]");
}

/* --- bytes of FP8 --- */

static void read_fp8(reading *r)
{
    apr_quant_scheme s = {.layout = APR_QUANT_FP8, .bits = 8, .scale_bytes = 4};
    const char *const fmt = apr_json_get_text(r->config, "fmt"), *const scheme = apr_json_get_text(r->config, "activation_scheme");

    read_block(r, apr_json_get(r->config, "weight_block_size"), &s);
    if (*fmt != '\0' && strcmp(fmt, "e4m3") != 0 && strcmp(fmt, "float8_e4m3fn") != 0) problem(r, "FP8 of the kind \"%.40s\"", fmt);
    s.static_activations = strcmp(scheme, "static") == 0;
    add_rule(r, "", s);
}

static void read_fbgemm(reading *r)
{
    add_rule(r, "", (apr_quant_scheme){.layout = APR_QUANT_FP8, .bits = 8, .block_rows = 1, .scale_bytes = 4});
}

static void read_mxfp4(reading *r)
{
    r->q->experts_only = true; /* as in transformers, which has a kernel only for gpt-oss */
    add_rule(r, "", (apr_quant_scheme){.layout = APR_QUANT_MXFP4, .bits = 4, .block_rows = 1, .block_columns = 32, .scale_bytes = 1});
}

/* --- integers --- */

static void check_int_bits(reading *r, int64_t bits)
{
    if (bits < 2 || bits > 8) problem(r, "integers of %lld bits", (long long)bits);
}

static void check_group(reading *r, int64_t group)
{
    if (group < 1 && group != -1 && group != 0) problem(r, "groups of %lld numbers", (long long)group);
}

/* GPTQ's bits and group size as `object` states them; missing ones are those of `base`. */
static apr_quant_scheme gptq_scheme(reading *r, const cJSON *object, const apr_quant_scheme *base)
{
    const int64_t bits = int_of(r, object, "bits", base->bits), group = int_of(r, object, "group_size", base->block_columns);
    apr_quant_scheme s = *base;

    check_int_bits(r, bits);
    check_group(r, group);
    s.bits = (int)bits;
    s.block_columns = group > 0 ? group : 0;
    return s;
}

/* zeros_less_one: zero points are stored minus one. Formats that are not listed are foreign: marlin has another order of codes, gptq_p
 * another order of bits. */
static const struct {
    const char *format;
    bool zeros_less_one;
} gptq_formats[] = {
    {"", true},
    {"gptq", true},
    {"gptq_v2", false},
    {"auto_round:auto_gptq", true},
    {"auto_round:gptq", true},
    {"auto_round:gptqmodel", false},
    {"auto_round", false},
};

static void read_gptq_format(reading *r, apr_quant_scheme *s)
{
    const char *const own = apr_json_get_text(r->config, "checkpoint_format"), *const format =
                                                                                   *own != '\0'
                                                                                       ? own
                                                                                       : apr_json_get_text(r->config, "packing_format");

    s->foreign = true;
    for (size_t i = 0; i < sizeof gptq_formats / sizeof *gptq_formats; i++) {
        if (strcmp(format, gptq_formats[i].format) != 0) continue;
        s->zeros_less_one = gptq_formats[i].zeros_less_one;
        s->foreign = bool_of(r->config, "is_marlin_format", false);
    }
    if (s->foreign) problem(r, "GPTQ in the format \"%.40s\"", *format != '\0' ? format : "marlin");
}

/* GPTQ with its own keys, or with auto-round's. */
static void read_gptq(reading *r)
{
    const cJSON *const dynamic = object_of(r, "dynamic"), *item;
    apr_quant_scheme s = {.layout = APR_QUANT_GPTQ, .bits = 4, .block_rows = 1, .block_columns = 128, .scale_bytes = 2};

    s = gptq_scheme(r, r->config, &s);
    s.zero_points = true;
    s.act_order = true; /* g_idx is written with and without desc_act */
    s.sorted = !bool_of(r->config, "desc_act", false) || bool_of(r->config, "static_groups", false);
    read_gptq_format(r, &s);
    r->q->head = bool_of(r->config, "lm_head", false);
    cJSON_ArrayForEach(item, dynamic) /* gptqmodel: "-:REGEX" is left out, "+:REGEX" or REGEX has other bits or groups */
    {
        const char *const regex = apr_text_after(item->string, "+:");
        const char *const target = apr_begins_with(item->string, "-:") ? "" : apr_arena_print(r->arena, "re:.*%s", regex);
        if (target == NULL) r->no_memory = true;
        else if (*target != '\0') add_rule(r, target, gptq_scheme(r, item, &s));
    }
    add_rule(r, "", s);
}

static void read_awq(reading *r)
{
    const int64_t bits = int_of(r, r->config, "bits", int_of(r, r->config, "w_bit", 4));
    const int64_t group = int_of(r, r->config, "group_size", int_of(r, r->config, "q_group_size", 128));
    const char *const version = apr_json_get_text(r->config, "version");

    check_int_bits(r, bits);
    check_group(r, group);
    const bool foreign = *version != '\0' && strcasecmp(version, "gemm") != 0;
    if (foreign) problem(r, "AWQ in the version \"%.40s\"", version);
    add_rule(r, "",
             (apr_quant_scheme){.layout = APR_QUANT_AWQ,
                                .bits = (int)bits,
                                .block_rows = 1,
                                .block_columns = group > 0 ? group : 0,
                                .scale_bytes = 2,
                                .zero_points = bool_of(r->config, "zero_point", true),
                                .foreign = foreign});
}

static void read_auto_round(reading *r)
{
    const char *const packing = apr_json_get_text(r->config, "packing_format");
    const cJSON *item;

    if (strstr(packing, "awq") != NULL) read_awq(r);
    else if (strstr(packing, "gptq") != NULL || strcmp(packing, "auto_round") == 0) read_gptq(r);
    else problem(r, "the packing format \"%.40s\"", packing);
    if (r->n == 0) return;
    const apr_quant_scheme base = r->schemes[r->n - 1];
    cJSON_ArrayForEach(item, object_of(r, "extra_config")) /* {"model.layers.0.mlp.gate": {"bits": 16}}: 16 is left out */
    {
        if (int_of(r, item, "bits", base.bits) < 16) add_rule(r, item->string, gptq_scheme(r, item, &base));
    }
}

static void read_bitsandbytes(reading *r)
{
    apr_quant_scheme s = {.layout = APR_QUANT_NF4, .bits = 4, .block_rows = 1, .block_columns = 64, .scale_bytes = 4};
    const char *const type = apr_json_get_text(r->config, "bnb_4bit_quant_type");

    if (bool_of(r->config, "load_in_8bit", false)) {
        add_rule(r, "", (apr_quant_scheme){.layout = APR_QUANT_INT8, .bits = 8, .block_rows = 1, .scale_bytes = 4});
        return;
    }
    if (!bool_of(r->config, "load_in_4bit", false)) problem(r, "neither load_in_4bit nor load_in_8bit");
    if (*type != '\0' && strcmp(type, "nf4") != 0 && strcmp(type, "fp4") != 0) problem(r, "the 4-bit type \"%.40s\"", type);
    s.nested_scales = bool_of(r->config, "bnb_4bit_use_double_quant", false);
    add_rule(r, "", s);
}

/* --- compressed-tensors --- */

static apr_quant_layout layout_of_format(reading *r, const char *format, const cJSON *weights, const cJSON *activations)
{
    static const struct {
        const char *format;
        apr_quant_layout layout;
    } formats[] = {
        {"float-quantized", APR_QUANT_FP8},        {"int-quantized", APR_QUANT_INT8},         {"pack-quantized", APR_QUANT_INT_PACKED},
        {"nvfp4-pack-quantized", APR_QUANT_NVFP4}, {"mxfp4-pack-quantized", APR_QUANT_MXFP4}, {"mxfp8-quantized", APR_QUANT_MXFP8},
    };
    const bool is_float = strcmp(apr_json_get_text(weights, "type"), "float") == 0;
    const int64_t bits = int_of(r, weights, "num_bits", 8);

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(format, formats[i].format) == 0) return formats[i].layout;
    /* with "mixed-precision", "naive-quantized" or no format the type and bits decide */
    static const char *const open_formats[] = {"", "mixed-precision", "naive-quantized", NULL};
    if (!apr_is_any_of(format, open_formats)) problem(r, "the format \"%.60s\"", format);
    if (!is_float)
        return bits == 8 && (cJSON_IsObject(activations) || strcmp(format, "naive-quantized") == 0) ? APR_QUANT_INT8 : APR_QUANT_INT_PACKED;
    if (bits == 8) return int_of(r, weights, "group_size", 0) == 32 ? APR_QUANT_MXFP8 : APR_QUANT_FP8;
    return int_of(r, weights, "group_size", 16) == 32 ? APR_QUANT_MXFP4 : APR_QUANT_NVFP4;
}

static void read_strategy(reading *r, const cJSON *weights, apr_quant_scheme *s)
{
    const int64_t group = int_of(r, weights, "group_size", 0);
    const char *strategy = apr_json_get_text(weights, "strategy");

    check_group(r, group);
    if (*strategy == '\0') strategy = group > 0 ? "group" : group == -1 ? "channel" : "tensor";
    s->block_rows = strcmp(strategy, "tensor") == 0 ? 0 : 1;
    if (strcmp(strategy, "block") == 0) read_block(r, apr_json_get(weights, "block_structure"), s);
    else if (strcmp(strategy, "group") == 0 || strcmp(strategy, "tensor_group") == 0) s->block_columns = group > 0 ? group : 0;
    else if (strcmp(strategy, "tensor") != 0 && strcmp(strategy, "channel") != 0) problem(r, "scales by \"%.40s\"", strategy);
}

/* Checks that the layout holds numbers of that type and width. */
static void check_layout(reading *r, apr_quant_layout layout, const char *type, int bits)
{
    static const struct {
        const char *type;
        int bits; /* 0: any */
    } holds[APR_QUANT_LAYOUT_COUNT] = {
        [APR_QUANT_FP8] = {"float", 8},   [APR_QUANT_MXFP8] = {"float", 8}, [APR_QUANT_MXFP4] = {"float", 4},
        [APR_QUANT_NVFP4] = {"float", 4}, [APR_QUANT_INT8] = {"int", 8},    [APR_QUANT_INT_PACKED] = {"int", 0},
    };
    const bool fits = strcmp(type, holds[layout].type) == 0 && (holds[layout].bits == 0 || holds[layout].bits == bits);
    if (!fits) problem(r, "weights of type \"%.40s\" with %d bits in a format for others", type, bits);
}

static bool scheme_of_group(reading *r, const cJSON *group, const char *format, apr_quant_scheme *s)
{
    const cJSON *const weights = apr_json_get(group, "weights"), *const activations = apr_json_get(group, "input_activations");
    const char *const own_format = apr_json_get_text(group, "format");
    const char *const type = apr_json_get_text(weights, "type");

    if (!cJSON_IsObject(weights)) return false; /* describes activations only */
    *s = (apr_quant_scheme){.bits = (int)int_of(r, weights, "num_bits", 8), .scale_bytes = r->float_bytes};
    if (s->bits < 2 || s->bits > 8) problem(r, "weights of %d bits", s->bits);
    s->layout = layout_of_format(r, *own_format != '\0' ? own_format : format, weights, activations);
    check_layout(r, s->layout, type, s->bits);
    read_strategy(r, weights, s);
    if (s->layout == APR_QUANT_MXFP4 || s->layout == APR_QUANT_MXFP8) s->block_rows = 1, s->block_columns = 32, s->scale_bytes = 1;
    if (s->layout == APR_QUANT_NVFP4) s->block_rows = 1, s->block_columns = 16, s->scale_bytes = 1;
    s->zero_points = strcmp(type, "int") == 0 && !bool_of(weights, "symmetric", true);
    s->act_order = apr_json_get(weights, "actorder") != NULL && !cJSON_IsNull(apr_json_get(weights, "actorder")) &&
                   strcmp(apr_json_get_text(weights, "actorder"), "static") != 0 &&
                   strcmp(apr_json_get_text(weights, "actorder"), "weight") != 0;
    s->static_activations =
        cJSON_IsObject(activations) && !bool_of(activations, "dynamic", false) && !cJSON_IsString(apr_json_get(activations, "dynamic"));
    return true;
}

/* config_groups: {"group_0": {"targets": ["Linear"], "weights": {...}}, ...} */
static void read_groups(reading *r)
{
    const cJSON *group, *target;
    const char *const format = apr_json_get_text(r->config, "format");
    apr_quant_scheme s;

    if (strcmp(format, "dense") == 0) return;
    cJSON_ArrayForEach(group, object_of(r, "config_groups"))
    {
        if (cJSON_IsString(group)) problem(r, "a named scheme"); /* {"W4A16": ["Linear"]}: recipes, not checkpoints */
        if (cJSON_IsArray(group)) problem(r, "the scheme \"%.40s\" by its name", group->string);
        if (!scheme_of_group(r, group, format, &s)) continue;
        const cJSON *const targets = apr_json_get(group, "targets");
        if (targets == NULL) add_rule(r, "", s);
        cJSON_ArrayForEach(target, targets)
        {
            if (!cJSON_IsString(target)) problem(r, "a target that is not a string");
            else if (*target->valuestring >= 'A' && *target->valuestring <= 'Z' && strcmp(target->valuestring, "Linear") != 0)
                problem(r, "modules of the class \"%.40s\"", target->valuestring);
            else add_rule(r, strcmp(target->valuestring, "Linear") == 0 ? "" : target->valuestring, s);
        }
    }
    r->q->head = true; /* the head is a linear layer like others, unless the ignore list names it */
}

/* True: activations are rotated at run time. Rotations of weights are already applied. */
static bool rotates_activations(const cJSON *transforms)
{
    const cJSON *group, *apply;

    cJSON_ArrayForEach(group, apr_json_get(transforms, "config_groups")) cJSON_ArrayForEach(apply, apr_json_get(group, "apply"))
    {
        if (strncmp(apr_json_get_text(apply, "location"), "weight_", 7) != 0) return true;
    }
    return false;
}

static void read_compressed_tensors(reading *r)
{
    const char *const sparsity = apr_json_get_text(apr_json_get(r->config, "sparsity_config"), "format");
    const bool rotates = rotates_activations(apr_json_get(r->config, "transform_config"));

    if (*sparsity != '\0' && strcmp(sparsity, "dense") != 0) problem(r, "sparse weights (\"%.40s\")", sparsity);
    if (rotates) problem(r, "activations that are rotated (\"transform_config\")");
    read_groups(r);
    for (size_t i = 0; i < r->n; i++) r->schemes[i].foreign |= rotates;
}

/* --- modelopt and quark --- */

static bool scheme_of_algo(reading *r, const cJSON *object, const char *algo, apr_quant_scheme *s)
{
    static const struct {
        const char *algo;
        apr_quant_scheme scheme;
    } algos[] = {
        {"FP8", {.layout = APR_QUANT_FP8, .bits = 8, .scale_bytes = 4, .static_activations = true}},
        {"FP8_PER_CHANNEL_PER_TOKEN", {.layout = APR_QUANT_FP8, .bits = 8, .block_rows = 1, .scale_bytes = 4}},
        {"FP8_PB_WO", {.layout = APR_QUANT_FP8, .bits = 8, .block_rows = 128, .block_columns = 128, .scale_bytes = 4}},
        {"NVFP4",
         {.layout = APR_QUANT_NVFP4, .bits = 4, .block_rows = 1, .block_columns = 16, .scale_bytes = 1, .static_activations = true}},
        {"W4A16_NVFP4", {.layout = APR_QUANT_NVFP4, .bits = 4, .block_rows = 1, .block_columns = 16, .scale_bytes = 1}},
        {"MXFP8", {.layout = APR_QUANT_MXFP8, .bits = 8, .block_rows = 1, .block_columns = 32, .scale_bytes = 1}},
        {"MXFP4", {.layout = APR_QUANT_MXFP4, .bits = 4, .block_rows = 1, .block_columns = 32, .scale_bytes = 1}},
    };
    const int64_t group = int_of(r, object, "group_size", 0);

    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++) {
        if (strcmp(algo, algos[i].algo) != 0) continue;
        *s = algos[i].scheme;
        if (group > 0 && s->layout != APR_QUANT_FP8 && group != s->block_columns)
            problem(r, "%s with groups of %lld", algo, (long long)group);
        return true;
    }
    problem(r, "the algorithm \"%.60s\"", algo);
    return false;
}

static void read_modelopt(reading *r)
{
    const cJSON *const layers = object_of(r, "quantized_layers"), *layer;
    const char *const algo = apr_json_get_text(r->config, "quant_algo");
    apr_quant_scheme s;

    r->q->head = true; /* a head that is not quantized is listed in exclude_modules */
    if (*algo == '\0' && apr_json_get(r->config, "config_groups") != NULL) read_groups(r);
    else if (strcmp(algo, "MIXED_PRECISION") != 0) {
        if (scheme_of_algo(r, r->config, algo, &s)) add_rule(r, "", s);
    } else if (cJSON_GetArraySize(layers) == 0) problem(r, "mixed precision without a list of quantized_layers");
    cJSON_ArrayForEach(layer, layers)
    {
        if (strcmp(algo, "MIXED_PRECISION") == 0 && scheme_of_algo(r, layer, apr_json_get_text(layer, "quant_algo"), &s))
            add_rule(r, layer->string, s);
    }
}

static void read_quark(reading *r)
{
    const cJSON *const global = apr_json_get(r->config, "global_quant_config"), *const weight = apr_json_get(global, "weight");
    const char *const dtype = apr_json_get_text(weight, "dtype"), *const by = apr_json_get_text(weight, "qscheme");
    apr_quant_scheme s = {.layout = APR_QUANT_FP8, .bits = 8, .scale_bytes = 4};

    if (cJSON_GetArraySize(apr_json_get(r->config, "layer_quant_config")) > 0)
        problem(r, "\"layer_quant_config\": single layers of other types");
    s.block_rows = strcmp(by, "per_tensor") == 0 ? 0 : 1;
    if (strcmp(dtype, "fp4") == 0 && strcmp(by, "per_group") == 0 && int_of(r, weight, "group_size", 32) == 32)
        s = (apr_quant_scheme){.layout = APR_QUANT_MXFP4, .bits = 4, .block_rows = 1, .block_columns = 32, .scale_bytes = 1};
    else if (strcmp(dtype, "fp8_e4m3") != 0 || (strcmp(by, "per_tensor") != 0 && strcmp(by, "per_channel") != 0))
        problem(r, "weights of \"%.40s\", scales \"%.40s\"", dtype, by);
    s.static_activations = s.layout == APR_QUANT_FP8 && !bool_of(apr_json_get(global, "input_tensors"), "is_dynamic", true);
    add_rule(r, "", s);
}

/* --- all of it --- */

static const struct {
    const char *method;
    void (*read)(reading *r);
} methods[] = {
    {"fp8", read_fp8},
    {"fbgemm_fp8", read_fbgemm},
    {"mxfp4", read_mxfp4},
    {"gptq", read_gptq},
    {"awq", read_awq},
    {"auto-round", read_auto_round},
    {"intel/auto-round", read_auto_round},
    {"bitsandbytes", read_bitsandbytes},
    {"compressed-tensors", read_compressed_tensors},
    {"modelopt", read_modelopt},
    {"modelopt_fp4", read_modelopt},
    {"modelopt_mixed", read_modelopt},
    {"quark", read_quark},
};

/* quant_method, or the method that a file without it must have by its other keys. */
static const char *method_of(const cJSON *config)
{
    static const struct {
        const char *key, *method;
    } hints[] = {{"quant_algo", "modelopt"},
                 {"load_in_4bit", "bitsandbytes"},
                 {"load_in_8bit", "bitsandbytes"},
                 {"config_groups", "compressed-tensors"},
                 {"weight_block_size", "fp8"}};
    const char *const stated = apr_json_get_text(config, "quant_method");

    if (*stated != '\0') return stated;
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (apr_json_get(config, hints[i].key) != NULL) return hints[i].method;
    return "";
}

/* The skip pattern of a member of gptqmodel's "dynamic" or auto-round's "extra_config"; "" if the member does not skip a module, NULL: no
 * memory. */
static const char *skip_pattern_of(reading *r, const cJSON *item)
{
    if (apr_begins_with(item->string, "-:")) return apr_arena_print(r->arena, "re:.*%s", item->string + 2);
    return int_of(r, item, "bits", 4) >= 16 ? apr_arena_copy(r->arena, item->string, strlen(item->string)) : "";
}

/* Collects all lists of modules that are not quantized, and those that "dynamic" and "extra_config" skip. */
static void read_skipped(reading *r, const char ***texts, size_t *n)
{
    static const char *const keys[] = {"modules_to_not_convert", "ignored_layers",        "ignore",
                                       "exclude_modules",        "llm_int8_skip_modules", "exclude"};
    const cJSON *const members[] = {object_of(r, "dynamic"), object_of(r, "extra_config")}, *item;
    size_t capacity = (size_t)cJSON_GetArraySize(members[0]) + (size_t)cJSON_GetArraySize(members[1]);

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) capacity += (size_t)cJSON_GetArraySize(apr_json_get(r->config, keys[i]));
    *texts = apr_arena_array(r->arena, capacity + 1, sizeof **texts);
    *n = 0;
    if (*texts == NULL) {
        r->no_memory = true;
        return;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) cJSON_ArrayForEach(item, apr_json_get(r->config, keys[i]))
        {
            if (cJSON_IsString(item)) (*texts)[(*n)++] = keep_text(r, item->valuestring);
            else problem(r, "\"%s\" with something that is not a name", keys[i]);
        }
    for (int i = 0; i < 2; i++) cJSON_ArrayForEach(item, members[i])
        {
            const char *const text = skip_pattern_of(r, item);
            if (text == NULL) r->no_memory = true;
            else if (*text != '\0') (*texts)[(*n)++] = text;
        }
}

static apr_status make_patterns(reading *r, const char *const *texts, size_t n, const apr_name_patterns **patterns, apr_error *err)
{
    const char *bad;
    if (n == 0) return APR_OK;
    APR_TRY(apr_name_patterns_make(texts, n, r->arena, patterns, &bad, err));
    if (bad != NULL) problem(r, "the pattern \"%.80s\"", bad);
    return APR_OK;
}

/* Puts rules for everything after the rules for names, as in compressed-tensors. */
static apr_status finish_rules(reading *r, apr_error *err)
{
    const char **const texts = apr_arena_array(r->arena, r->n + 1, sizeof *texts);
    apr_quant_scheme *const schemes = apr_arena_array(r->arena, r->n + 1, sizeof *schemes);
    size_t n = 0;

    if (texts == NULL || schemes == NULL) return apr_no_memory(err, "a quantization_config");
    for (int everything = 0; everything < 2; everything++)
        for (size_t i = 0; i < r->n; i++) {
            if ((*r->targets[i] == '\0') != (everything == 1)) continue;
            schemes[n] = r->schemes[i];
            texts[n++] = everything ? "re:" : r->targets[i];
        }
    r->q->schemes = schemes;
    r->q->n_schemes = n;
    if (n == 1 && strcmp(texts[0], "re:") == 0) return APR_OK;
    return make_patterns(r, texts, n, &r->q->targets, err);
}

static apr_status read_object(reading *r, apr_error *err)
{
    const char *const method = method_of(r->config), **skipped;
    size_t n_skipped;
    bool known = false;

    r->q->method = keep_text(r, *method != '\0' ? method : "(not named)");
    for (size_t i = 0; i < sizeof methods / sizeof *methods && !known; i++) {
        known = strcmp(methods[i].method, method) == 0;
        if (known) methods[i].read(r);
    }
    r->q->known = known;
    if (!known) problem(r, "the method is unknown");
    read_skipped(r, &skipped, &n_skipped);
    if (r->no_memory) return apr_no_memory(err, "a quantization_config");
    APR_TRY(finish_rules(r, err));
    APR_TRY(make_patterns(r, skipped, n_skipped, &r->q->skipped, err));
    return r->no_memory ? apr_no_memory(err, "a quantization_config") : APR_OK;
}

/* The object that describes the quantization, or NULL. Old compression_configs have it one level deeper. */
static const cJSON *find_object(const cJSON *root)
{
    static const char *const keys[] = {"quantization_config", "compression_config", "quantization"};
    const cJSON *const places[] = {root, apr_config_text_part(root)};

    for (size_t p = 0; p < 2; p++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            const cJSON *const found = apr_json_get(places[p], keys[k]), *const inner = apr_json_get(found, "quantization_config");
            if (cJSON_IsObject(inner)) return inner;
            if (cJSON_IsObject(found) && found->child != NULL) return found;
        }
    return NULL;
}

static int float_bytes_of(const cJSON *root)
{
    const cJSON *const places[] = {root, apr_config_text_part(root)};
    for (size_t p = 0; p < 2; p++)
        if (strcmp(apr_json_get_text(places[p], "torch_dtype"), "float32") == 0 ||
            strcmp(apr_json_get_text(places[p], "dtype"), "float32") == 0)
            return 4;
    return 2;
}

apr_status apr_quantization_read(const apr_model *model, apr_arena *arena, const apr_quantization **quantization, apr_error *err)
{
    static const char *const files[] = {"config.json", "hf_quant_config.json"};

    *quantization = NULL;
    for (size_t i = 0; i < sizeof files / sizeof *files && *quantization == NULL; i++) {
        const apr_attachment *const file = apr_model_attachment(model, files[i]);
        cJSON *root;
        if (file == NULL) continue;
        const apr_status parsed = apr_json_parse(&root, file->data, file->n_bytes, file->name, NULL);
        if (parsed == APR_E_MEMORY) return apr_no_memory(err, "a quantization_config");
        if (parsed != APR_OK) continue; /* the reader of this file will report it */
        reading r = {.config = find_object(root), .arena = arena, .float_bytes = float_bytes_of(root)};
        apr_status status = APR_OK;
        if (r.config != NULL) {
            r.q = apr_arena_alloc(arena, sizeof *r.q);
            status = r.q != NULL ? read_object(&r, err) : apr_no_memory(err, "a quantization_config");
            *quantization = r.q;
        }
        cJSON_Delete(root);
        APR_TRY(status);
    }
    return APR_OK;
}
