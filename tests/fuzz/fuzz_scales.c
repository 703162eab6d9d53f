/* fuzz_scales.c - any config.json and any header of FP8 weights and scales: bound or refused, and what is bound can be
 * decoded, row by row.
 *
 * The input is the config.json, and after the first NUL the header of a safetensors file, whose data is made here. */
#include "formats/hf/safetensors.h"
#include "formats/packed/fp8_scales.h"
#include "kernels/rows.h"
#include "tests/fuzz/fuzz_file.h"
#include "tests/fuzz/fuzz_target.h"

static void decode_all(const apr_model *model)
{
    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const t = &model->tensors[i];
        const int64_t n_columns = apr_tensor_columns(t), n_rows = apr_tensor_rows(t);
        if (!apr_can_decode(t->dtype) || t->n_bytes == 0) continue;
        float *const row = malloc((size_t)n_columns * sizeof *row);
        for (int64_t r = 0; row != NULL && r < n_rows; r++) apr_decode_rows(t, r, 1, row);
        free(row);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const uint8_t *const nul = n_bytes > 0 ? memchr(data, 0, n_bytes) : NULL;
    if (nul == NULL) return 0;
    const apr_attachment config = {"config.json", data, (size_t)(nul - data)};
    apr_model model = {.path = "fuzz", .format = APR_FORMAT_SAFETENSORS, .attachments = &config, .n_attachments = 1};
    apr_error err = {0};
    size_t n_file = 0;
    uint8_t *const file = make_file(nul + 1, n_bytes - config.n_bytes - 1, NULL, 0, &n_file);

    if (file != NULL) {
        apr_status status = apr_safetensors_parse(&model, file, n_file, "fuzz", &err);
        if (status == APR_OK) status = apr_model_index_names(&model, &err);
        if (status == APR_OK) status = apr_bind_scales(&model, &config, &err);
        claim_sentence(status, err);
        if (status == APR_OK) decode_all(&model);
    }
    apr_model_close(&model);
    free(file);
    return 0;
}
