/* toy_read.c - a toy file to a model. */
#include "formats/base/bytes.h"
#include "formats/toy/toy.h"

static apr_status read_tensor(apr_model *model, apr_cursor *c, apr_tensor *t, apr_error *err)
{
    const uint16_t n = apr_cursor_u16(c);
    const char *const name = (const char *)apr_cursor_take(c, n);
    const apr_dtype dtype = apr_dtype_by_apr_id(apr_cursor_u8(c));
    const uint8_t rank = apr_cursor_u8(c);

    if (c->failed || n == 0 || memchr(name, '\0', n) != NULL || dtype == APR_DTYPE_COUNT || rank > APR_MAX_RANK)
        return apr_fail(err, APR_E_DAMAGED, "%s: no tensor at byte %zu", model->path, c->at);
    *t = (apr_tensor){.name = apr_arena_copy(&model->arena, name, n), .dtype = dtype, .rank = rank};
    if (t->name == NULL) return apr_no_memory(err, "a tensor's name");
    for (int i = 0; i < rank; i++) {
        const uint64_t dim = apr_cursor_u64(c);
        if (dim > INT64_MAX) return apr_fail(err, APR_E_DAMAGED, "%s: '%s' has a dimension beyond all memory", model->path, t->name);
        t->dims[i] = (int64_t)dim;
    }
    return apr_tensor_size(t, model->path, err);
}

static apr_status read_all(apr_model *model, apr_cursor *c, apr_error *err)
{
    const uint8_t *const magic = apr_cursor_take(c, 4);
    const uint32_t n = apr_cursor_u32(c);

    if (c->failed || memcmp(magic, "TOY\n", 4) != 0 || n > apr_cursor_left(c))
        return apr_fail(err, APR_E_DAMAGED, "%s: no toy file", model->path);
    model->tensors = apr_arena_array(&model->arena, n + 1, sizeof *model->tensors);
    if (model->tensors == NULL) return apr_no_memory(err, "a table of tensors");
    for (; model->n_tensors < n; model->n_tensors++) APR_TRY(read_tensor(model, c, &model->tensors[model->n_tensors], err));
    for (size_t i = 0; i < n; i++) {
        model->tensors[i].data = apr_cursor_take(c, model->tensors[i].n_bytes);
        if (c->failed) return apr_fail(err, APR_E_DAMAGED, "%s: '%s' is cut off", model->path, model->tensors[i].name);
    }
    return apr_model_index_names(model, err);
}

/* `model` holds at most the map. */
static apr_status read_model(apr_model *model, const uint8_t *bytes, size_t n_bytes, const char *path, apr_error *err)
{
    apr_cursor cursor = {.data = bytes, .n_bytes = n_bytes};

    model->format = APR_FORMAT_TOY;
    model->kv.arena = &model->arena;
    model->hparams.architecture = "";
    model->path = apr_arena_copy(&model->arena, path, strlen(path));
    const apr_status status = model->path != NULL ? read_all(model, &cursor, err) : apr_no_memory(err, "a path");
    if (status != APR_OK) apr_model_close(model);
    return status;
}

apr_status apr_toy_read(apr_model *model, const uint8_t *bytes, size_t n_bytes, const char *path, apr_error *err)
{
    *model = (apr_model){0};
    return read_model(model, bytes, n_bytes, path, err);
}

apr_status apr_toy_open(apr_model *model, const char *path, apr_error *err)
{
    *model = (apr_model){0};
    model->maps = apr_arena_array(&model->arena, 1, sizeof *model->maps);
    if (model->maps == NULL) return apr_no_memory(err, "a map");
    model->n_maps = 1;
    const apr_status status = apr_map_open(&model->maps[0], path, err);
    if (status == APR_OK) return read_model(model, model->maps[0].data, model->maps[0].n_bytes, path, err);
    apr_model_close(model);
    return status;
}
