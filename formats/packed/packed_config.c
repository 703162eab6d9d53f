/* packed_config.c - quantization_config as the library of each layout writes it: the same keys, values and order.
 *
 *     compressed-tensors 0.20: QuantizationConfig.model_dump, schemes NVFP4A16, MXFP4A16, W4A16
 *     modelopt 0.47: convert_hf_quant_config_format of hf_quant_config.json, algorithm W4A16_NVFP4
 *     fp8: DeepSeek's; gptq: GPTQModel's; awq: AutoAWQ's */
#include "formats/packed/packed_layouts.h"

#include "formats/packed/fused_modules.h"

#include <stdio.h>
#include <stdlib.h>

static void put_names(apr_json_text *out, const char *key, const apr_packed_config *c)
{
    apr_json_open(out, key, '[');
    for (size_t i = 0; i < c->n_ignored; i++) apr_json_cstring(out, NULL, c->ignored[i]);
    apr_json_close(out, ']');
}

/* --- compressed-tensors --- */

typedef struct scheme {
    const char *format, *type, *strategy, *scale_dtype;
} scheme;

static void put_weights(apr_json_text *out, const scheme *s, int group)
{
    apr_json_open(out, "weights", '{');
    apr_json_int(out, "num_bits", 4);
    apr_json_cstring(out, "type", s->type);
    apr_json_bool(out, "symmetric", true);
    apr_json_int(out, "group_size", group);
    apr_json_cstring(out, "strategy", s->strategy);
    apr_json_bool(out, "dynamic", false);
    if (s->scale_dtype != NULL) apr_json_cstring(out, "scale_dtype", s->scale_dtype);
    apr_json_close(out, '}');
}

static void put_compressed(apr_json_text *out, const apr_packed_config *c, const scheme *s)
{
    apr_json_open(out, "config_groups", '{');
    apr_json_open(out, "group_0", '{');
    apr_json_open(out, "targets", '[');
    apr_json_cstring(out, NULL, "Linear");
    apr_json_close(out, ']');
    put_weights(out, s, c->target->group);
    apr_json_null(out, "input_activations");
    apr_json_null(out, "output_activations");
    apr_json_cstring(out, "format", s->format);
    apr_json_close(out, '}');
    apr_json_close(out, '}');
    apr_json_cstring(out, "quant_method", "compressed-tensors");
    apr_json_null(out, "kv_cache_scheme");
    apr_json_cstring(out, "format", s->format);
    apr_json_cstring(out, "quantization_status", "compressed");
    apr_json_null(out, "global_compression_ratio");
    put_names(out, "ignore", c);
    apr_json_null(out, "moe_sparsity_config");
}

static void config_compressed_nvfp4(apr_json_text *out, const apr_packed_config *c)
{
    put_compressed(out, c, &(scheme){"nvfp4-pack-quantized", "float", "tensor_group", "torch.float8_e4m3fn"});
}

static void config_compressed_mxfp4(apr_json_text *out, const apr_packed_config *c)
{
    put_compressed(out, c, &(scheme){"mxfp4-pack-quantized", "float", "group", "torch.uint8"});
}

static void config_compressed_int4(apr_json_text *out, const apr_packed_config *c)
{
    put_compressed(out, c, &(scheme){"pack-quantized", "int", "group", NULL});
}

/* --- modelopt --- */

/* The layout's library and the version that the fields were compared with: vLLM and SGLang recognize the layout by this name. */
static void put_producer(apr_json_text *out)
{
    apr_json_open(out, "producer", '{');
    apr_json_cstring(out, "name", "modelopt");
    apr_json_cstring(out, "version", "0.47.0");
    apr_json_close(out, '}');
}

static void config_modelopt(apr_json_text *out, const apr_packed_config *c)
{
    apr_json_open(out, "config_groups", '{');
    apr_json_open(out, "group_0", '{');
    apr_json_open(out, "weights", '{');
    apr_json_bool(out, "dynamic", false);
    apr_json_int(out, "num_bits", 4);
    apr_json_cstring(out, "type", "float");
    apr_json_int(out, "group_size", c->target->group);
    apr_json_close(out, '}');
    apr_json_open(out, "targets", '[');
    apr_json_cstring(out, NULL, "Linear");
    apr_json_close(out, ']');
    apr_json_close(out, '}');
    apr_json_close(out, '}');
    put_names(out, "ignore", c);
    apr_json_cstring(out, "quant_algo", "W4A16_NVFP4");
    put_producer(out);
    apr_json_cstring(out, "quant_method", "modelopt");
}

static char *modelopt_file(const apr_packed_config *c)
{
    apr_json_text out = {0};

    apr_json_open(&out, NULL, '{');
    put_producer(&out);
    apr_json_open(&out, "quantization", '{');
    apr_json_cstring(&out, "quant_algo", "W4A16_NVFP4");
    apr_json_null(&out, "kv_cache_quant_algo");
    apr_json_int(&out, "group_size", c->target->group);
    put_names(&out, "exclude_modules", c);
    apr_json_close(&out, '}');
    apr_json_close(&out, '}');
    return apr_json_text_take(&out, NULL);
}

/* --- fp8, gptq, awq --- */

static void config_fp8(apr_json_text *out, const apr_packed_config *c)
{
    apr_json_cstring(out, "quant_method", "fp8");
    apr_json_cstring(out, "fmt", "e4m3");
    apr_json_cstring(out, "activation_scheme", "dynamic");
    apr_json_open(out, "weight_block_size", '[');
    apr_json_int(out, NULL, c->target->layout->packing.scale_rows);
    apr_json_int(out, NULL, c->target->group);
    apr_json_close(out, ']');
    put_names(out, "modules_to_not_convert", c);
}

/* "-:^model[.]layers[.]0[.]mlp[.]gate$": GPTQModel's way to leave a module out, which is matched from the name's beginning. */
static void put_dynamic(apr_json_text *out, const char *module)
{
    char pattern[1024];
    size_t n = (size_t)snprintf(pattern, sizeof pattern, "-:^");

    for (const char *at = module; *at != '\0' && n + 8 < sizeof pattern; at++)
        n += (size_t)snprintf(pattern + n, sizeof pattern - n, *at == '.' ? "[.]" : "%c", *at);
    snprintf(pattern + n, sizeof pattern - n, "$");
    apr_json_open(out, pattern, '{');
    apr_json_close(out, '}');
}

/* Is it the first member of its set? Then the name of the fused matrix is written once, since servers look for that one. */
static bool is_first_member(const char *module, const apr_fused_set *set, size_t n_parent)
{
    return set != NULL && strcmp(module + n_parent, set->members[0]) == 0;
}

static void put_fused_dynamic(apr_json_text *out, const char *module)
{
    char name[1024];
    size_t n_parent = 0;
    const apr_fused_set *const set = apr_packed_fused(module, &n_parent);

    if (!is_first_member(module, set, n_parent)) return;
    snprintf(name, sizeof name, "%.*s%s", (int)n_parent, module, set->name);
    put_dynamic(out, name);
}

static void config_gptq(apr_json_text *out, const apr_packed_config *c)
{
    apr_json_int(out, "bits", 4);
    apr_json_int(out, "group_size", c->target->group);
    apr_json_bool(out, "desc_act", false);
    apr_json_bool(out, "sym", true);
    apr_json_bool(out, "lm_head", false);
    apr_json_cstring(out, "quant_method", "gptq");
    apr_json_cstring(out, "checkpoint_format", "gptq");
    apr_json_cstring(out, "pack_dtype", "int32");
    apr_json_open(out, "dynamic", '{');
    for (size_t i = 0; i < c->n_ignored; i++) {
        put_dynamic(out, c->ignored[i]);
        put_fused_dynamic(out, c->ignored[i]);
    }
    apr_json_close(out, '}');
}

static void config_awq(apr_json_text *out, const apr_packed_config *c)
{
    apr_json_cstring(out, "quant_method", "awq");
    apr_json_int(out, "bits", 4);
    apr_json_int(out, "group_size", c->target->group);
    apr_json_bool(out, "zero_point", true);
    apr_json_cstring(out, "version", "gemm");
    put_names(out, "modules_to_not_convert", c);
}

/* --- both texts --- */

apr_status apr_packed_config_text(const apr_packed_config *c, char **text, char **hf_quant_config, apr_error *err)
{
    static void (*const writers[APR_CONFIG_KINDS])(apr_json_text * out, const apr_packed_config *config) = {
        [APR_CONFIG_COMPRESSED_NVFP4] = config_compressed_nvfp4,
        [APR_CONFIG_COMPRESSED_MXFP4] = config_compressed_mxfp4,
        [APR_CONFIG_COMPRESSED_INT4] = config_compressed_int4,
        [APR_CONFIG_MODELOPT] = config_modelopt,
        [APR_CONFIG_FP8] = config_fp8,
        [APR_CONFIG_GPTQ] = config_gptq,
        [APR_CONFIG_AWQ] = config_awq,
    };
    const apr_packed_config_kind kind = c->target->layout->config;
    const bool is_modelopt = kind == APR_CONFIG_MODELOPT;
    apr_json_text out = {0};

    apr_json_open(&out, NULL, '{');
    writers[kind](&out, c);
    apr_json_close(&out, '}');
    *text = apr_json_text_take(&out, NULL);
    *hf_quant_config = is_modelopt ? modelopt_file(c) : NULL;
    if (*text != NULL && (!is_modelopt || *hf_quant_config != NULL)) return APR_OK;
    free(*text);
    free(*hf_quant_config);
    return apr_no_memory(err, "quantization_config");
}
