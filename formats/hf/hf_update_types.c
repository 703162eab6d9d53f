/* hf_update_types.c - updates the types of the weights in a checkpoint's small files after they have changed. */
#include "formats/shape/hf_config.h"
#include "formats/tensor/sink.h"

#include <stdlib.h>
#include <string.h>

/* True: some weights are quantized in config.json's sense: FP8, or packed into several tensors. */
static bool has_quantized(const apr_model *model)
{
    for (size_t i = 0; i < model->n_tensors; i++)
        if (apr_dtypes[model->tensors[i].dtype].scales == APR_SCALES_SEPARATE || model->tensors[i].packing != NULL) return true;
    return false;
}

/* Removes modelopt's file about the quantization, which describes nothing else. */
static void drop_quantization_file(apr_model *layout, apr_attachment *attachments)
{
    size_t n = 0;
    for (size_t i = 0; i < layout->n_attachments; i++)
        if (strcmp(layout->attachments[i].name, "hf_quant_config.json") != 0) attachments[n++] = layout->attachments[i];
    layout->attachments = attachments;
    layout->n_attachments = n;
}

/* config.json stays byte for byte the same, except for what is no longer true. */
apr_status apr_update_types(apr_model *layout, const apr_model *before, bool makes_fp8, const char *torch_dtype, apr_error *err)
{
    const apr_attachment *const config = apr_model_attachment(before, "config.json");
    const apr_config_quantization quantization = makes_fp8                                         ? APR_CONFIG_FP8_CHANNEL
                                                 : has_quantized(before) && !has_quantized(layout) ? APR_CONFIG_UNQUANTIZED
                                                                                                   : APR_CONFIG_KEEP;

    if (config == NULL || (quantization == APR_CONFIG_KEEP && torch_dtype == NULL)) return APR_OK;
    char *text;
    size_t n_bytes;
    APR_TRY(apr_hf_config_edit(config, torch_dtype, quantization, &text, &n_bytes, err));
    apr_attachment *const attachments = apr_arena_array(&layout->arena, 2 * before->n_attachments, sizeof *attachments);
    char *const kept = apr_arena_copy(&layout->arena, text, n_bytes);
    free(text);
    if (attachments == NULL || kept == NULL) return apr_no_memory(err, "config.json");
    memcpy(attachments, before->attachments, before->n_attachments * sizeof *attachments);
    attachments[config - before->attachments] = (apr_attachment){config->name, (const uint8_t *)kept, n_bytes};
    layout->attachments = attachments;
    if (quantization != APR_CONFIG_KEEP) drop_quantization_file(layout, attachments + before->n_attachments);
    if (torch_dtype != NULL) layout->hparams.torch_dtype = torch_dtype;
    return APR_OK;
}
