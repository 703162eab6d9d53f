/* golden_model.c - a bundled model and what transformers computed with it, for tests. */
#include "tests/support/golden_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

apr_status golden_open(golden *g, const char *dir, apr_error *err)
{
    char path[256];
    apr_map map;

    *g = (golden){0};
    snprintf(path, sizeof path, "%s/golden.json", dir);
    APR_TRY(apr_map_open(&map, path, err));
    apr_status status = apr_json_parse(&g->json, map.data, map.n_bytes, path, err);
    apr_map_close(&map);
    if (status == APR_OK) status = apr_model_open(&g->model, dir, err);
    snprintf(path, sizeof path, "%s/golden.safetensors", dir);
    if (status == APR_OK) status = apr_model_open(&g->outputs, path, err);
    return status;
}

void golden_close(golden *g)
{
    apr_model_close(&g->model);
    apr_model_close(&g->outputs);
    cJSON_Delete(g->json);
}

const float *golden_floats(const golden *g, const char *name, int64_t n_elems)
{
    const apr_tensor *const tensor = apr_model_find(&g->outputs, name);
    if (tensor == NULL || tensor->dtype != APR_F32 || apr_tensor_elems(tensor) != n_elems) return NULL;
    return (const float *)(const void *)tensor->data;
}

bool golden_text(const golden *g, int32_t *ids, size_t n)
{
    const apr_tensor *const stored = apr_model_find(&g->outputs, "ids");
    if (stored == NULL || apr_tensor_elems(stored) < (int64_t)n) return false;
    const size_t each = (size_t)(stored->n_bytes / (uint64_t)apr_tensor_elems(stored)); /* int32 or int64, little-endian */
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)apr_load_le32(stored->data + i * each);
    return true;
}

int32_t *golden_ids(const cJSON *array, size_t *n_ids)
{
    const cJSON *item;
    int32_t *const ids = malloc(((size_t)cJSON_GetArraySize(array) + 1) * sizeof *ids);

    *n_ids = 0;
    if (ids == NULL) return NULL;
    cJSON_ArrayForEach(item, array) ids[(*n_ids)++] = (int32_t)item->valuedouble;
    return ids;
}

double largest_difference(const float *a, const float *b, size_t n)
{
    double largest = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= largest)) largest = d; /* NaN is the largest of all */
    }
    return largest;
}
