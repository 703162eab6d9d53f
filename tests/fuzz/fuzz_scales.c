/* fuzz_scales.c - any config.json and any header of FP8 weights and scales: bound or refused, and what is bound can be
 * decoded, row by row.
 *
 * The input is the config.json, and behind the first NUL the header of a safetensors file, whose data is made here. */
#include "formats/base/json.h"
#include "formats/hf/safetensors.h"
#include "kernels/rows.h"
#include "tests/fuzz/fuzz_target.h"

enum { MOST_DATA = 1 << 16 };

/* Where the header's last tensor ends: that much data it needs. */
static uint64_t stated_bytes(const uint8_t *header, size_t n_header)
{
    const cJSON *item;
    cJSON *json;
    int64_t most = 0, end;

    if (apr_json_parse(&json, header, n_header, "fuzz", NULL) != APR_OK) return 0;
    cJSON_ArrayForEach(item, json)
    {
        const cJSON *const offsets = apr_json_get(item, "data_offsets");
        if (cJSON_GetArraySize(offsets) == 2 && apr_json_as_int(offsets->child->next, &end) && end > most) most = end;
    }
    cJSON_Delete(json);
    return (uint64_t)most;
}

/* The whole file, exactly as long as it must be. Data bytes count up: every code of E4M3 comes. NULL: too large. */
static uint8_t *make_file(const uint8_t *header, size_t n_header, size_t *n_file)
{
    const uint64_t n_data = stated_bytes(header, n_header);
    uint8_t *const file = n_data <= MOST_DATA ? malloc(8 + n_header + (size_t)n_data) : NULL;

    if (file == NULL) return NULL;
    *n_file = 8 + n_header + (size_t)n_data;
    apr_store_le64(file, n_header);
    memcpy(file + 8, header, n_header);
    for (size_t i = 0; i < (size_t)n_data; i++) file[8 + n_header + i] = (uint8_t)(i * 37);
    return file;
}

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
    uint8_t *const file = make_file(nul + 1, n_bytes - config.n_bytes - 1, &n_file);

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
