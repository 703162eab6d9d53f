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

/* --- a quantization of our own --- */

/* The config.json to edit: the model's, or one made from its hyperparameters. *made is what to free. */
static apr_status find_config(const apr_model *layout, const apr_model *before, apr_attachment *config, char **made, apr_error *err)
{
    const apr_attachment *const own = apr_model_attachment(before, "config.json");

    *made = NULL;
    if (own != NULL) {
        *config = *own;
        return APR_OK;
    }
    *made = apr_hf_config_make(layout);
    if (*made == NULL) return apr_no_memory(err, "config.json");
    *config = (apr_attachment){"config.json", (const uint8_t *)*made, strlen(*made)};
    return APR_OK;
}

/* Appends the file of that name in place of one that is there. */
static apr_status put_file(apr_model *layout, apr_attachment *files, size_t *n, const char *name, const char *text, size_t n_bytes,
                           apr_error *err)
{
    size_t at = 0;
    char *const kept = apr_arena_copy(&layout->arena, text, n_bytes);

    if (kept == NULL) return apr_no_memory(err, name);
    while (at < *n && strcmp(files[at].name, name) != 0) at++;
    files[at] = (apr_attachment){name, (const uint8_t *)kept, n_bytes};
    *n += at == *n;
    return APR_OK;
}

apr_status apr_set_quantization(apr_model *layout, const apr_model *before, const char *torch_dtype, const apr_quantization_texts *texts,
                                apr_error *err)
{
    apr_attachment *const files = apr_arena_array(&layout->arena, before->n_attachments + 2, sizeof *files);
    apr_attachment config;
    char *made, *text = NULL;
    size_t n_bytes = 0, n = 0;

    if (files == NULL) return apr_no_memory(err, "the small files");
    for (size_t i = 0; i < before->n_attachments; i++)
        if (strcmp(before->attachments[i].name, "hf_quant_config.json") != 0) files[n++] = before->attachments[i];
    APR_TRY(find_config(layout, before, &config, &made, err));
    apr_status status = apr_hf_config_set_quantization(&config, torch_dtype, texts->quantization_config, &text, &n_bytes, err);
    if (status == APR_OK) status = put_file(layout, files, &n, "config.json", text, n_bytes, err);
    if (status == APR_OK && texts->hf_quant_config != NULL)
        status = put_file(layout, files, &n, "hf_quant_config.json", texts->hf_quant_config, strlen(texts->hf_quant_config), err);
    free(text);
    free(made);
    layout->attachments = files;
    layout->n_attachments = n;
    if (torch_dtype != NULL) layout->hparams.torch_dtype = torch_dtype;
    return status;
}
