/* fuzz_packings.c - any config.json, any header of parts of packed weights, any numbers in them: bound, left alone or refused with a
 * sentence, and what is bound can be decoded, row by row.
 *
 * The input is the config.json, after the first NUL the header of a safetensors file, and after the second one the first bytes of its data:
 * shapes, indices of groups and texts are among them. */
#include "formats/hf/safetensors.h"
#include "formats/packed/fp8_scales.h"
#include "formats/packed/hf_quantization.h"
#include "formats/packed/packings.h"
#include "formats/tensor/packed_weights.h"
#include "kernels/rows.h"
#include "tests/fuzz/fuzz_file.h"
#include "tests/fuzz/fuzz_target.h"

/* The bytes in front of the first NUL; `rest` is what follows it. */
static size_t cut(const uint8_t *data, size_t n_bytes, const uint8_t **rest, size_t *n_rest)
{
    const uint8_t *const nul = n_bytes > 0 ? memchr(data, 0, n_bytes) : NULL;
    const size_t n = nul != NULL ? (size_t)(nul - data) : n_bytes;

    *n_rest = nul != NULL ? n_bytes - n - 1 : 0;
    *rest = nul != NULL ? nul + 1 : data + n_bytes;
    return n;
}

static void use(const apr_model *model)
{
    const char *layout;

    (void)apr_find_packed(model, &layout);
    for (size_t i = 0; i < model->n_packings; i++) {
        const apr_tensor *const t = &model->packings[i];
        const int64_t n_columns = apr_tensor_columns(t), n_rows = apr_tensor_rows(t);
        claim(t->packing->n_parts >= 2 && t->packing->scheme[0] != '\0');
        claim(apr_packing_bytes(t->packing, n_rows) >= t->packing->codes->n_bytes);
        float *const row = malloc((size_t)n_columns * sizeof *row);
        for (int64_t r = 0; row != NULL && r < n_rows; r++) apr_decode_rows(t, r, 1, row);
        free(row);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const uint8_t *header, *numbers;
    size_t n_rest, n_numbers, n_file = 0;
    const size_t n_config = cut(data, n_bytes, &header, &n_rest), n_header = cut(header, n_rest, &numbers, &n_numbers);
    const apr_attachment config = {"config.json", data, n_config};
    apr_model model = {.path = "fuzz", .format = APR_FORMAT_SAFETENSORS, .attachments = &config, .n_attachments = 1};
    apr_error err = {0};
    uint8_t *const file = make_file(header, n_header, numbers, n_numbers, &n_file);

    if (file != NULL) {
        apr_status status = apr_safetensors_parse(&model, file, n_file, "fuzz", &err);
        if (status == APR_OK) status = apr_model_index_names(&model, &err);
        if (status == APR_OK) status = apr_quantization_read(&model, &model.arena, &model.quantization, &err);
        if (status == APR_OK) status = apr_bind_scales(&model, &config, &err);
        if (status == APR_OK) status = apr_bind_packings(&model, &err);
        claim_sentence(status, err);
        if (status == APR_OK) use(&model);
    }
    apr_model_close(&model);
    free(file);
    return 0;
}
