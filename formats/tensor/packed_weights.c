/* packed_weights.c - recognizes parts of packed weights that are not bound, and activation scales, by name and type. */
#include "formats/tensor/packed_weights.h"

#include "formats/base/text.h"
#include "formats/tensor/packing.h"

#include <stdio.h>
#include <string.h>

const char *const apr_packed_suffixes[] = {".qweight",
                                           ".qzeros",
                                           ".scales",
                                           ".g_idx", /* GPTQ, AWQ */
                                           ".weight_packed",
                                           ".weight_scale",
                                           ".weight_zero_point",
                                           ".weight_shape",
                                           ".weight_g_idx", /* compressed-tensors */
                                           ".weight_global_scale",
                                           ".weight_scale_2", /* NVFP4 */
                                           ".weight.absmax",
                                           ".weight.quant_map",
                                           ".weight.nested_absmax",
                                           ".weight.nested_quant_map", /* bitsandbytes */
                                           ".weight.quant_state.bitsandbytes__nf4",
                                           ".weight.quant_state.bitsandbytes__fp4",
                                           ".SCB",
                                           ".weight_format",
                                           ".weight_blocks",
                                           ".weight_scales",
                                           "_blocks",
                                           "_scales", /* gpt-oss */
                                           NULL};

/* The tensor whose name is the first n bytes of `name`, then `suffix`; NULL when there is none. */
static const apr_tensor *sibling(const apr_model *model, const char *name, size_t n, const char *suffix)
{
    char text[1024];
    const int length = snprintf(text, sizeof text, "%.*s%s", (int)n, name, suffix);
    return length > 0 && (size_t)length < sizeof text ? apr_model_find(model, text) : NULL;
}

static bool is_integer(apr_dtype dtype) { return apr_dtypes[dtype].class_of == APR_CLASS_INTEGER; }

/* GPTQ packs along the inputs, so a row of qweight is as long as a row of scales. AWQ packs along the outputs. */
static const char *name_qweight(const apr_model *model, const apr_tensor *t, size_t stem)
{
    const apr_tensor *const scales = sibling(model, t->name, stem, ".scales");
    if (scales == NULL || t->rank != 2 || scales->rank != 2) return "in a packed layout of integers";
    return scales->dims[1] == t->dims[1] ? "GPTQ" : "AWQ";
}

static const char *name_weight_packed(const apr_model *model, const apr_tensor *t, size_t stem)
{
    if (sibling(model, t->name, stem, ".weight_global_scale") != NULL) return "NVFP4 (compressed-tensors)";
    return t->dtype == APR_U8 ? "MXFP4 (compressed-tensors)" : "integers, pack-quantized (compressed-tensors)";
}

/* A matrix of bytes is not a plain weight matrix, nor is one of wider integers with scales. The tensors next to it tell the layout. */
static const char *name_integers(const apr_model *model, const apr_tensor *t, size_t stem)
{
    if (t->rank < 2 || !is_integer(t->dtype)) return NULL;
    if (sibling(model, t->name, stem, ".weight_scale_2") != NULL) return "NVFP4 (modelopt)";
    if (sibling(model, t->name, stem, ".weight.absmax") != NULL) return "4-bit bitsandbytes (nf4 or fp4)";
    if (sibling(model, t->name, stem, ".SCB") != NULL) return "8-bit bitsandbytes (LLM.int8)";
    if (t->dtype == APR_I8) return "INT8";
    const bool has_scales = sibling(model, t->name, stem, ".weight_scale") != NULL || sibling(model, t->name, stem, ".scales") != NULL;
    return t->dtype == APR_U8 || has_scales ? "packed integers" : NULL;
}

static const char *name_blocks(const apr_model *model, const apr_tensor *t, size_t stem)
{
    const apr_tensor *const scales = sibling(model, t->name, stem, "_scales");
    return t->dtype == APR_U8 && scales != NULL && scales->dtype == APR_U8 ? "MXFP4 in blocks (gpt-oss)" : NULL;
}

/* What the suffix of a tensor's name says. modelopt writes stacks of experts with the inputs before the outputs: a byte holds two inputs
 * that are K/2 rows apart. */
static const struct {
    const char *suffix;
    const char *name, *other; /* of the layout, if there is also a tensor with the other suffix; NULL: without it */
    const char *(*find)(const apr_model *model, const apr_tensor *tensor, size_t stem); /* without a name: the layout's; NULL: none */
} signs[] = {
    {".qweight", .find = name_qweight},
    {".weight_packed", .find = name_weight_packed},
    {".weight", .find = name_integers},
    {".weight_scale_2", "NVFP4 (modelopt)", ".weight"},
    {".absmax", "4-bit bitsandbytes (nf4 or fp4)", ""},
    {"_blocks", .find = name_blocks},
    {".W_q", "HQQ"},
    {".trellis", "EXL3"},
    {"_weight_scale_2", "NVFP4, inputs before outputs (modelopt)", ""},
    {".q_weight", "EXL2"},
    {".codebooks", "AQLM", ".codes"},
};

static const char *name_by_sign(const apr_model *model, const apr_tensor *t, size_t sign, size_t stem)
{
    if (signs[sign].find != NULL) return signs[sign].find(model, t, stem);
    return signs[sign].other == NULL || sibling(model, t->name, stem, signs[sign].other) != NULL ? signs[sign].name : NULL;
}

/* Is this tensor the codes of a matrix in model->packings? These are sorted by the address of their codes. */
static bool is_bound(const apr_model *model, const apr_tensor *tensor)
{
    size_t low = 0, high = model->n_packings;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (model->packings[middle].packing->codes < tensor) low = middle + 1;
        else high = middle;
    }
    return low < model->n_packings && model->packings[low].packing->codes == tensor;
}

static bool is_of_bound(const apr_model *model, const apr_tensor *tensor, size_t stem)
{
    static const char *const codes[] = {".weight", ".weight_packed", ""};
    bool found = is_bound(model, tensor);
    for (size_t i = 0; model->n_packings > 0 && !found && i < sizeof codes / sizeof *codes; i++) {
        const apr_tensor *const other = sibling(model, tensor->name, stem, codes[i]);
        found = other != NULL && is_bound(model, other);
    }
    return found;
}

const apr_tensor *apr_find_packed(const apr_model *model, const char **layout)
{
    *layout = NULL;
    if (model->origin.format == APR_FORMAT_GGUF) return NULL; /* GGUF types identify themselves */
    for (size_t i = 0; i < model->n_tensors; i++)
        for (size_t j = 0; j < sizeof signs / sizeof *signs; j++) {
            const apr_tensor *const tensor = &model->tensors[i];
            const size_t stem = apr_stem_of(tensor->name, signs[j].suffix);
            *layout = stem > 0 ? name_by_sign(model, tensor, j, stem) : NULL;
            if (*layout != NULL && is_of_bound(model, tensor, stem)) *layout = NULL;
            if (*layout != NULL) return tensor;
        }
    return NULL;
}

apr_status apr_refuse_packed(const apr_model *model, const char *cannot, apr_error *err)
{
    const char *layout;
    const apr_tensor *const tensor = apr_find_packed(model, &layout);

    if (tensor == NULL) return APR_OK;
    return apr_fail(
        err, APR_E_UNSUPPORTED,
        "%s: its weights are %s (tensor '%s'), which cannot be %s here; they can be kept as they are in .apr or safetensors, or "
        "start from the checkpoint they were made of",
        model->path, layout, tensor->name, cannot);
}

bool apr_is_activation_scale(const char *name, char *weight, size_t n_bytes)
{
    static const struct {
        const char *suffix, *weight;
    } kinds[] = {
        {".input_scale", ".weight"},     {".input_scale_ub", ".weight"},     {".activation_scale", ".weight"},
        {".qscale_act", ".weight"},      {".input_global_scale", ".weight"}, {".output_scale", ".weight"},
        {".k_scale", ".k_proj.weight"},  {".v_scale", ".v_proj.weight"},     {".q_scale", ".q_proj.weight"},
        {".kv_scale", ".k_proj.weight"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t stem = apr_stem_of(name, kinds[i].suffix);
        if (stem == 0) continue;
        if (weight != NULL) snprintf(weight, n_bytes, "%.*s%s", (int)stem, name, kinds[i].weight);
        return true;
    }
    return false;
}
