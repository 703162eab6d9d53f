/* as_library.c - replaces matrices of codes and scales by plain ones. */
#include "tools/engine/run/as_library.h"

#include "formats/base/machine.h"
#include "formats/tensor/library_type.h"
#include "kernels/rows.h"

#include <stdlib.h>
#include <string.h>

bool apr_running_rounds(const apr_running *r, const char **type)
{
    for (size_t i = 0; i < r->model.n_tensors; i++) {
        const apr_tensor *const t = &r->model.tensors[i];
        if (!apr_is_read_as_products(&r->model, t)) continue;
        if (type != NULL) *type = apr_dtypes[apr_reference_type(&r->model, t)].name;
        return true;
    }
    return false;
}

bool apr_running_can_round(const apr_running *r)
{
    const uint64_t available = apr_machine_available();
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < r->model.n_tensors; i++)
        if (apr_is_read_as_products(&r->model, &r->model.tensors[i])) n_bytes += 2 * (uint64_t)apr_tensor_elems(&r->model.tensors[i]);
    return available == 0 || n_bytes < available;
}

/* Replaces the tensor by a plain one of its library's type. */
static apr_status round_tensor(apr_model *model, apr_tensor *t, apr_error *err)
{
    const apr_dtype type = apr_reference_type(model, t);
    const int64_t n_rows = apr_tensor_rows(t), n_columns = apr_tensor_columns(t);
    const uint64_t row_bytes = (uint64_t)apr_row_bytes(type, n_columns);
    uint8_t *const data = apr_arena_array(&model->arena, (size_t)n_rows, row_bytes);
    float *const values = malloc((size_t)n_columns * sizeof *values + 1);

    if (data == NULL || values == NULL) {
        free(values);
        return apr_no_memory(err, "the values of the checkpoint's library");
    }
    for (int64_t row = 0; row < n_rows; row++) {
        apr_decode_rows(t, row, 1, values);
        apr_ref_codecs[type].encode(values, data + (uint64_t)row * row_bytes, n_columns);
    }
    free(values);
    const apr_tensor was = *t;
    *t = (apr_tensor){.name = was.name, .dtype = type, .rank = was.rank, .data = data};
    memcpy(t->dims, was.dims, sizeof was.dims);
    return apr_tensor_size(t, model->path, err);
}

static apr_status round_model(apr_model *model, apr_error *err)
{
    apr_tensor *const tensors = apr_arena_array(&model->arena, model->n_tensors + 1, sizeof *tensors);
    bool *const is_dropped = apr_arena_array(&model->arena, model->n_tensors + 1, sizeof *is_dropped); /* scales of rounded ones */
    const apr_tensor *const old = model->tensors;

    if (tensors == NULL || is_dropped == NULL) return apr_no_memory(err, "a table of tensors");
    memcpy(tensors, old, model->n_tensors * sizeof *tensors);
    for (size_t i = 0; i < model->n_tensors; i++) {
        if (!apr_is_read_as_products(model, &tensors[i])) continue;
        const apr_tensor *const scale = tensors[i].scale != NULL ? apr_model_find(model, tensors[i].scale->name) : NULL;
        if (scale != NULL) is_dropped[scale - old] = true;
        APR_TRY(round_tensor(model, &tensors[i], err));
    }
    model->tensors = tensors;
    APR_TRY(apr_model_drop(model, old, is_dropped, err));
    model->index = NULL;
    return apr_model_index_names(model, err);
}

apr_status apr_running_round(apr_running *r, apr_error *err)
{
    apr_session_close(r->session);
    r->session = NULL;
    return round_model(&r->model, err);
}
