/* model.c - what all readers share: name index, sizes, rows, closing. */
#include "formats/tensor/model.h"

#include "formats/tensor/composed.h"
#include "formats/tensor/packing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Open addressing over a power-of-two table; slot 0 means empty, else tensor index + 1. */
struct apr_name_index {
    uint32_t *slots;
    size_t mask;
};

static size_t hash_name(const char *name)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (; *name != '\0'; name++) h = (h ^ (uint8_t)*name) * 1099511628211u;
    return (size_t)(h ^ h >> 32);
}

/* The slot of that name, or the empty slot where it must be inserted. */
static uint32_t *slot_of(const apr_model *model, const char *name)
{
    const struct apr_name_index *const index = model->index;
    size_t at = hash_name(name) & index->mask;
    while (index->slots[at] != 0 && strcmp(model->tensors[index->slots[at] - 1].name, name) != 0) at = (at + 1) & index->mask;
    return &index->slots[at];
}

apr_status apr_model_index_names(apr_model *model, apr_error *err)
{
    size_t n_slots = 16;
    while (n_slots < model->n_tensors * 2) n_slots *= 2;
    struct apr_name_index *const index = apr_arena_alloc(&model->arena, sizeof *index);
    if (index == NULL) return apr_no_memory(err, "the names of the tensors");
    index->mask = n_slots - 1;
    index->slots = apr_arena_array(&model->arena, n_slots, sizeof *index->slots);
    if (index->slots == NULL) return apr_no_memory(err, "the names of the tensors");
    model->index = index;

    for (size_t i = 0; i < model->n_tensors; i++) {
        uint32_t *const slot = slot_of(model, model->tensors[i].name);
        if (*slot != 0) return apr_fail(err, APR_E_DAMAGED, "%s: two tensors are called '%s'", model->path, model->tensors[i].name);
        *slot = (uint32_t)(i + 1);
    }
    return APR_OK;
}

const apr_tensor *apr_model_find(const apr_model *model, const char *name)
{
    if (model->index == NULL) return NULL;
    const uint32_t slot = *slot_of(model, name);
    return slot != 0 ? &model->tensors[slot - 1] : NULL;
}

const apr_attachment *apr_model_attachment(const apr_model *model, const char *name)
{
    for (size_t i = 0; i < model->n_attachments; i++)
        if (strcmp(model->attachments[i].name, name) == 0) return &model->attachments[i];
    return NULL;
}

void apr_model_close(apr_model *model)
{
    for (size_t i = 0; i < model->n_maps; i++) apr_map_close(&model->maps[i]);
    apr_arena_close(&model->arena);
    *model = (apr_model){0};
}

bool apr_table_has(const apr_tensor *table, size_t n, const apr_tensor *tensor)
{
    return (uintptr_t)tensor >= (uintptr_t)table && (uintptr_t)tensor < (uintptr_t)(table + n);
}

void apr_mark_scales(const apr_tensor *tensors, size_t n, bool *is_scale)
{
    for (size_t i = 0; i < n; i++)
        if (apr_table_has(tensors, n, tensors[i].scale)) is_scale[tensors[i].scale - tensors] = true;
}

void apr_move_scales(apr_tensor *tensors, size_t n, const apr_tensor *old, size_t n_old, apr_tensor *const *moved)
{
    for (size_t i = 0; i < n; i++) {
        if (!apr_table_has(old, n_old, tensors[i].scale)) continue;
        const size_t at = (size_t)(tensors[i].scale - old);
        tensors[i].scale = moved != NULL ? moved[at] : tensors + at;
    }
}

int64_t apr_tensor_elems(const apr_tensor *tensor)
{
    int64_t n = 1;
    for (int i = 0; i < tensor->rank; i++) n *= tensor->dims[i];
    return n;
}

int64_t apr_tensor_rows(const apr_tensor *tensor)
{
    int64_t n = 1;
    for (int i = 0; i + 1 < tensor->rank; i++) n *= tensor->dims[i];
    return n;
}

int64_t apr_tensor_columns(const apr_tensor *tensor) { return tensor->rank == 0 ? 1 : tensor->dims[tensor->rank - 1]; }

apr_status apr_tensor_size(apr_tensor *tensor, const char *where, apr_error *err)
{
    int64_t n_elems = 1, n_bytes;
    char dims[128];

    for (int i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] < 0 || __builtin_mul_overflow(n_elems, tensor->dims[i], &n_elems))
            return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' has an impossible shape %s", where, tensor->name,
                            apr_dims_text(tensor, dims, sizeof dims));
    const bool flat = tensor->dtype == APR_APR_Q4 || tensor->dtype == APR_APR_Q8;
    const int64_t n_columns = flat ? n_elems : apr_tensor_columns(tensor), n_rows = flat ? 1 : apr_tensor_rows(tensor);
    const int64_t row_bytes = apr_row_bytes(tensor->dtype, n_columns);

    if (row_bytes < 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' %s: a row is not a whole number of %s blocks of %d", where, tensor->name,
                        apr_dims_text(tensor, dims, sizeof dims), apr_dtypes[tensor->dtype].name,
                        apr_dtypes[tensor->dtype].elems_per_block);
    if (__builtin_mul_overflow(row_bytes, n_rows, &n_bytes))
        return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' has an impossible shape %s", where, tensor->name,
                        apr_dims_text(tensor, dims, sizeof dims));
    tensor->n_bytes = (uint64_t)n_bytes;
    return APR_OK;
}

apr_source apr_tensor_source(const apr_tensor *tensor)
{
    if (tensor->composed != NULL) return tensor->composed->merge != NULL ? APR_SOURCE_MERGED : APR_SOURCE_COMPOSED;
    if (tensor->packing != NULL) return APR_SOURCE_PACKED;
    return tensor->pending.kind != APR_STEP_NONE ? APR_SOURCE_REORDERED : APR_SOURCE_IN_ORDER;
}

const apr_tensor *apr_tensor_source_at(const apr_tensor *tensor, size_t i)
{
    if (apr_tensor_is_composed(tensor)) return i < tensor->composed->n_parts ? tensor->composed->parts[i] : NULL;
    return apr_tensor_is_packed(tensor) && i < tensor->packing->n_parts ? tensor->packing->parts[i] : NULL;
}

const char *apr_tensor_encoding(const apr_tensor *tensor)
{
    return apr_tensor_is_packed(tensor) ? tensor->packing->scheme : apr_dtypes[tensor->dtype].name;
}

void apr_tensor_set_data(apr_tensor *tensor, const uint8_t *data)
{
    tensor->data = data;
    tensor->pending = (apr_step){0};
    tensor->composed = NULL;
    tensor->packing = NULL;
}

void apr_tensor_take_values(apr_tensor *tensor, const apr_tensor *from)
{
    tensor->dtype = from->dtype;
    tensor->data = from->data;
    tensor->n_bytes = from->n_bytes;
    tensor->pending = from->pending;
    tensor->composed = from->composed;
    tensor->packing = from->packing;
    tensor->scale = from->scale;
    tensor->scale_rows = from->scale_rows;
    tensor->scale_columns = from->scale_columns;
}

const uint8_t *apr_tensor_row(const apr_tensor *tensor, int64_t row)
{
    const bool is_vector = tensor->rank == 1 && tensor->pending.kind != APR_STEP_NONE;
    const int64_t n_rows = is_vector ? tensor->dims[0] : apr_tensor_rows(tensor);
    const uint64_t row_bytes = n_rows > 0 ? tensor->n_bytes / (uint64_t)n_rows : 0;
    return tensor->data + (uint64_t)apr_step_row(tensor->pending, n_rows, row) * row_bytes;
}

/* The table's capacity is always n_tensors rounded up to a power of two. */
apr_status apr_model_grow(apr_model *model, size_t n_more, apr_error *err)
{
    size_t capacity = 1, needed;
    if (__builtin_add_overflow(model->n_tensors, n_more, &needed)) return apr_no_memory(err, "the table of tensors");
    while (capacity < model->n_tensors) capacity *= 2;
    if (needed <= capacity && model->tensors != NULL) return APR_OK;
    while (capacity < needed) capacity *= 2;
    apr_tensor *const grown = apr_arena_array(&model->arena, capacity, sizeof *grown);
    if (grown == NULL) return apr_no_memory(err, "the table of tensors");
    if (model->n_tensors > 0) memcpy(grown, model->tensors, model->n_tensors * sizeof *grown);
    model->tensors = grown;
    return APR_OK;
}

apr_status apr_model_drop(apr_model *model, const apr_tensor *old, bool *is_dropped, apr_error *err)
{
    const size_t n = model->n_tensors;
    apr_tensor **const moved = apr_arena_array(&model->arena, n + 1, sizeof *moved);

    if (moved == NULL) return apr_no_memory(err, "a table of tensors");
    for (size_t i = 0; i < n; i++)
        if (!is_dropped[i] && apr_table_has(old, n, model->tensors[i].scale)) is_dropped[model->tensors[i].scale - old] = false;
    model->n_tensors = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_dropped[i]) continue;
        moved[i] = &model->tensors[model->n_tensors++];
        *moved[i] = model->tensors[i];
    }
    apr_move_scales(model->tensors, model->n_tensors, old, n, moved);
    return APR_OK;
}

char *apr_dims_text(const apr_tensor *tensor, char *text, size_t n_bytes)
{
    size_t at = (size_t)snprintf(text, n_bytes, "[");
    for (int i = 0; i < tensor->rank && at < n_bytes; i++)
        at += (size_t)snprintf(text + at, n_bytes - at, i ? ", %lld" : "%lld", (long long)tensor->dims[i]);
    if (at < n_bytes) snprintf(text + at, n_bytes - at, "]");
    return text;
}

uint64_t apr_gguf_max_zeros(const apr_model *model)
{
    uint64_t n = (uint64_t)4 << 20;
    for (size_t i = 0; i < model->n_tensors; i++) n += model->tensors[i].n_bytes;
    return n;
}
