/* fp8_scales.c - finds the scale tensor of each FP8 weight and what one scale covers; multiplies nothing.
 *
 *   config.json says                                    scale tensor                      one scale for
 *   fp8, weight_block_size [bn, bk]                     X.weight_scale_inv [N/bn, K/bk]   a block (rounded up at the edges)
 *   compressed-tensors, block_structure [bn, bk]        X.weight_scale     [N/bn, K/bk]   a block
 *   compressed-tensors "group", group_size g            X.weight_scale     [N, K/g]       g numbers of a row
 *   modelopt FP8_PB_WO                                  X.weight_scale     [N/bn, 1, K/bk, 1]   a block
 *   compressed-tensors "channel", fbgemm_fp8            X.weight_scale     [N, 1] or [N]  a row
 *   compressed-tensors "tensor", modelopt, static fp8   X.weight_scale     [] or [1]      the tensor
 *   params.json of Mistral                              X.qscale_weight    [] or [1]      the tensor
 *
 * Weights are multiplied by all of them, "_inv" or not. The scales of a stack of experts [E, N, K] also have the leading dimension E; each
 * matrix begins a new block. Scales in U8 are powers of two (MXFP8): apr_bind_packings. */
#include "formats/packed/fp8_scales.h"
#include "formats/base/bytes.h"
#include "formats/base/json.h"
#include "formats/base/text.h"
#include "formats/packed/hf_quantization.h"
#include "formats/shape/hf_config.h"
#include "formats/tensor/text_config.h"

#include <stdio.h>
#include <string.h>

typedef struct block_size {
    int64_t rows, columns; /* 0: config.json states none */
} block_size;

/* Reads [rows, columns]. APR_E_DAMAGED for anything else; an absent list leaves *block as it is. */
static apr_status read_block(const cJSON *list, const char *where, block_size *block, apr_error *err)
{
    block_size found;

    if (list == NULL || cJSON_IsNull(list)) return APR_OK;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != 2 || !apr_json_as_int(list->child, &found.rows) ||
        !apr_json_as_int(list->child->next, &found.columns) || found.rows < 1 || found.columns < 1)
        return apr_fail(err, APR_E_DAMAGED, "%s: the FP8 block size in config.json's quantization_config is not [rows, columns]", where);
    if (block->rows != 0 && (block->rows != found.rows || block->columns != found.columns))
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: config.json's quantization_config has several FP8 block sizes", where);
    *block = found;
    return APR_OK;
}

static apr_status read_config(const cJSON *root, const char *where, block_size *block, apr_error *err)
{
    const cJSON *const nested = apr_config_text_part(root), *group;
    const cJSON *config = apr_json_get(root, "quantization_config");

    if (config == NULL) config = apr_json_get(nested, "quantization_config");
    APR_TRY(read_block(apr_json_get(config, "weight_block_size"), where, block, err));
    cJSON_ArrayForEach(group, apr_json_get(config, "config_groups"))
        APR_TRY(read_block(apr_json_get(apr_json_get(group, "weights"), "block_structure"), where, block, err));
    return APR_OK;
}

/* Length of the weight's name without ".weight", if it ends so. */
static size_t module_of(const apr_tensor *weight)
{
    const size_t n = apr_stem_of(weight->name, ".weight");
    return n > 0 ? n : strlen(weight->name);
}

static const apr_tensor *find_scale(const apr_model *model, const apr_tensor *weight, char *name, size_t n_name)
{
    static const struct {
        const char *suffix;
        bool of_module; /* replaces ".weight" */
    } suffixes[] = {{"_scale_inv", false}, {"_scale", false}, {"_scales_inv", false}, {"_scales", false}, {".qscale_weight", true}};

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t stem = suffixes[i].of_module ? module_of(weight) : strlen(weight->name);
        const int n = snprintf(name, n_name, "%.*s%s", (int)stem, weight->name, suffixes[i].suffix);
        if (n < 0 || (size_t)n >= n_name) return NULL;
        const apr_tensor *const scale = apr_model_find(model, name);
        if (scale != NULL) return scale;
    }
    return NULL;
}

/* True: the scale's dimensions are the weight's leading ones (stacked experts), then `rows`, then `columns`. A last dimension of
 * 1 may be missing. */
static bool has_shape(const apr_tensor *scale, const apr_tensor *weight, int64_t rows, int64_t columns)
{
    const int n_leading = weight->rank - 2;
    const bool last_left_out = columns == 1 && scale->rank == n_leading + 1;
    const bool has_unit_dims = weight->rank == 2 && scale->rank == 4 && scale->dims[1] == 1 && scale->dims[3] == 1;

    if (has_unit_dims) return scale->dims[0] == rows && scale->dims[2] == columns;
    if (scale->rank != weight->rank && !last_left_out) return false;
    for (int i = 0; i < n_leading; i++)
        if (scale->dims[i] != weight->dims[i]) return false;
    return scale->dims[n_leading] == rows && (last_left_out || scale->dims[n_leading + 1] == columns);
}

/* True: a stack of experts with one scale per matrix: [E], [E, 1] or [E, 1, 1]. */
static bool is_one_per_matrix(const apr_tensor *scale, const apr_tensor *weight)
{
    if (weight->rank != 3 || scale->rank < 1 || scale->rank > 3 || scale->dims[0] != weight->dims[0]) return false;
    for (int i = 1; i < scale->rank; i++)
        if (scale->dims[i] != 1) return false;
    return true;
}

static bool can_be_scale(apr_dtype dtype)
{
    return (apr_dtype_is_float(dtype) && dtype != APR_F64) || apr_dtypes[dtype].class_of == APR_CLASS_EXPONENT;
}

static apr_status bind(apr_tensor *weight, const apr_tensor *scale, block_size block, const char *where, apr_error *err)
{
    const apr_dtype dtype = scale->dtype;
    char shape[128], scale_shape[128];

    if (!can_be_scale(dtype))
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: the FP8 scales '%s' are %s; F32, BF16, F16 and F8_E8M0 are supported", where,
                        scale->name, apr_dtypes[dtype].name);
    if (apr_tensor_elems(weight) == 0) return APR_OK;
    weight->scale = scale;
    weight->scale_rows = apr_tensor_rows(weight);
    weight->scale_columns = apr_tensor_columns(weight);
    if (apr_tensor_elems(scale) == 1) return APR_OK;

    if (weight->rank >= 2) {
        const int64_t n_rows = weight->dims[weight->rank - 2], n_columns = weight->dims[weight->rank - 1];
        if (block.rows > 0 && has_shape(scale, weight, apr_div_up(n_rows, block.rows), apr_div_up(n_columns, block.columns))) {
            weight->scale_rows = block.rows;
            weight->scale_columns = block.columns;
            return APR_OK;
        }
        if (is_one_per_matrix(scale, weight)) {
            weight->scale_rows = n_rows;
            return APR_OK;
        }
        if (has_shape(scale, weight, n_rows, 1)) {
            weight->scale_rows = 1;
            return APR_OK;
        }
    }
    apr_dims_text(weight, shape, sizeof shape);
    apr_dims_text(scale, scale_shape, sizeof scale_shape);
    if (block.rows == 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: '%s' %s has the scales %s, but config.json has no weight_block_size", where, weight->name,
                        shape, scale_shape);
    return apr_fail(err, APR_E_DAMAGED, "%s: '%s' %s has the scales %s, which do not fit blocks of [%lld, %lld]", where, weight->name,
                    shape, scale_shape, (long long)block.rows, (long long)block.columns);
}

static const apr_quant_scheme *stated_scheme(const apr_model *model, const apr_tensor *weight)
{
    return apr_quantization_of_tensor(model->quantization, weight->name, module_of(weight), APR_QUANT_FP8);
}

/* Without a quantization_config FP8 numbers may be plain. If it states scales, they must be there: a scale of 1 in their place would
 * silently give wrong results. */
static apr_status check_unscaled(const apr_model *model, const apr_tensor *weight, apr_error *err)
{
    const apr_quant_scheme *const scheme = stated_scheme(model, weight);

    APR_TRY(apr_quantization_check(model->quantization, err));
    if (scheme == NULL || weight->rank < 2 || apr_tensor_elems(weight) == 0) return APR_OK;
    return apr_fail(err, APR_E_DAMAGED,
                    "%s: '%s' is FP8 as config.json's quantization_config says, but its scales (%.*s.weight_scale%s) are missing",
                    model->path, weight->name, (int)module_of(weight), weight->name, scheme->block_rows > 0 ? "_inv" : "");
}

/* The block that config.json's schemes give this module; false: none. */
static bool stated_block(const apr_model *model, const apr_tensor *weight, block_size *block)
{
    const apr_quant_scheme *const scheme = stated_scheme(model, weight);

    if (scheme == NULL || scheme->block_rows < 1 || scheme->block_columns < 1) return false;
    *block = (block_size){scheme->block_rows, scheme->block_columns};
    return true;
}

apr_status apr_bind_scales(apr_model *model, const apr_attachment *config, apr_error *err)
{
    block_size block = {0};
    bool config_read = false;
    char name[4096];

    for (size_t i = 0; i < model->n_tensors; i++) {
        apr_tensor *const weight = &model->tensors[i];
        if (apr_dtypes[weight->dtype].scales != APR_SCALES_SEPARATE) continue;
        const apr_tensor *const scale = find_scale(model, weight, name, sizeof name);
        if (scale == NULL) APR_TRY(check_unscaled(model, weight, err));
        if (scale == NULL || scale->dtype == APR_U8) continue; /* plain FP8, or MXFP8: apr_bind_packings */
        block_size own;
        const bool is_stated = stated_block(model, weight, &own);
        APR_TRY(apr_quantization_check(model->quantization, err));
        if (is_stated) {
            APR_TRY(bind(weight, scale, own, model->path, err));
            continue;
        }
        if (config != NULL && !config_read) {
            cJSON *root;
            APR_TRY(apr_json_parse(&root, config->data, config->n_bytes, config->name, err));
            const apr_status status = read_config(root, model->path, &block, err);
            cJSON_Delete(root);
            if (status != APR_OK) return status;
            config_read = true;
        }
        APR_TRY(bind(weight, scale, block, model->path, err));
    }
    return APR_OK;
}
