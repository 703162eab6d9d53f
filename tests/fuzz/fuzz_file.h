/* fuzz_file.h - a safetensors file around a header that the fuzzer made: exactly as long as the header says, so that the code after the
 * reader is fuzzed. */
#ifndef APR_TESTS_FUZZ_FILE_H
#define APR_TESTS_FUZZ_FILE_H

#include "formats/base/bytes.h"
#include "formats/base/json.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DATA = 1 << 16 };

/* Where the header's last tensor ends: that much data it needs. */
static inline uint64_t stated_bytes(const uint8_t *header, size_t n_header)
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

/* The whole file. Its data begins with `data` and counts up from there on: every code of E4M3 comes. NULL: too large. */
static inline uint8_t *make_file(const uint8_t *header, size_t n_header, const uint8_t *data, size_t n_data, size_t *n_file)
{
    const uint64_t n_stated = stated_bytes(header, n_header);
    uint8_t *const file = n_stated <= MOST_DATA ? malloc(8 + n_header + (size_t)n_stated) : NULL;

    if (file == NULL) return NULL;
    *n_file = 8 + n_header + (size_t)n_stated;
    apr_store_le64(file, n_header);
    memcpy(file + 8, header, n_header);
    for (size_t i = 0; i < (size_t)n_stated; i++) file[8 + n_header + i] = i < n_data ? data[i] : (uint8_t)(i * 37);
    return file;
}

#endif
