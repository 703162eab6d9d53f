/* vectors.c - a minimal reader of golden safetensors files. */
#include "tests/support/vectors.h"

#include "formats/base/bytes.h"

#include <stdio.h>

bool vectors_open(vectors *file, const char *path)
{
    apr_error err = {0};

    *file = (vectors){0};
    if (apr_map_open(&file->map, path, &err) != APR_OK || file->map.n_bytes < 8) return false;
    const uint64_t n_header = apr_load_le64(file->map.data);
    if (n_header > file->map.n_bytes - 8) return false;
    file->header = cJSON_ParseWithLength((const char *)file->map.data + 8, (size_t)n_header);
    return file->header != NULL;
}

void vectors_close(vectors *file)
{
    cJSON_Delete(file->header);
    apr_map_close(&file->map);
    *file = (vectors){0};
}

const void *vectors_find(const vectors *file, const char *name, size_t *n_bytes)
{
    const cJSON *const offsets = cJSON_GetObjectItem(cJSON_GetObjectItem(file->header, name), "data_offsets");
    if (cJSON_GetArraySize(offsets) != 2) return NULL;
    const size_t first = (size_t)cJSON_GetArrayItem(offsets, 0)->valuedouble, last = (size_t)cJSON_GetArrayItem(offsets, 1)->valuedouble;
    const size_t data = 8 + (size_t)apr_load_le64(file->map.data);
    if (first > last || last > file->map.n_bytes - data) return NULL;
    if (n_bytes != NULL) *n_bytes = last - first;
    return file->map.data + data + first;
}

const void *vectors_part(const vectors *file, const char *name, const char *suffix, size_t *n_bytes)
{
    char whole[128];
    snprintf(whole, sizeof whole, "%s.%s", name, suffix);
    return vectors_find(file, whole, n_bytes);
}
