/* library_type.c - the cases of the table in library_type.h. */
#include "formats/tensor/library_type.h"

#include "formats/number/half.h"
#include "formats/tensor/composed.h"
#include "formats/tensor/packing.h"

#include <string.h>

static bool has_16_bits(apr_dtype type) { return type == APR_F16 || type == APR_BF16; }

/* The type of the model's plain weights: as config.json states it, else the most common one. */
static apr_dtype own_type(const apr_model *model)
{
    const char *const stated = model->hparams.torch_dtype;
    return stated != NULL && strcmp(stated, "float16") == 0   ? APR_F16
           : stated != NULL && strcmp(stated, "float32") == 0 ? APR_F32
                                                              : APR_BF16;
}

/* The tensor of the file that holds the numbers. */
static const apr_tensor *lowest(const apr_tensor *tensor)
{
    while (apr_tensor_source(tensor) == APR_SOURCE_COMPOSED) tensor = tensor->composed->parts[0];
    return tensor;
}

apr_dtype apr_reference_type(const apr_model *model, const apr_tensor *tensor)
{
    const apr_tensor *const t = lowest(tensor);

    if (apr_tensor_is_composed(t)) return APR_DTYPE_COUNT; /* an adapter was merged into it */
    const bool is_packed = apr_tensor_is_packed(t);
    if (is_packed && t->dtype != APR_F32) return t->dtype;
    if (is_packed) return t->packing->level == APR_LEVEL_E2M1 ? own_type(model) : APR_F32;
    if (t->dtype == APR_NVFP4) return own_type(model);
    if (apr_dtypes[t->dtype].scales != APR_SCALES_SEPARATE || t->scale == NULL) return APR_DTYPE_COUNT;
    return has_16_bits(t->scale->dtype) ? t->scale->dtype : own_type(model);
}

bool apr_is_read_as_products(const apr_model *model, const apr_tensor *tensor)
{
    const apr_tensor *const t = lowest(tensor);
    return has_16_bits(apr_reference_type(model, tensor)) && (!apr_tensor_is_packed(t) || t->dtype == APR_F32);
}

float apr_round_as(apr_dtype type, float value)
{
    if (type == APR_F16) return apr_f16_to_f32(apr_f32_to_f16(value));
    return type == APR_BF16 ? apr_bf16_to_f32(apr_f32_to_bf16(value)) : value;
}
