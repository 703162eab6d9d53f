/* vectors.h - reads the tensors of a safetensors file that a test trusts: golden data, not input to be defended against. */
#ifndef APR_TESTS_VECTORS_H
#define APR_TESTS_VECTORS_H

#include "formats/files/map.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct vectors {
    apr_map map;
    cJSON *header;
} vectors;

/* False when there is no such file or it is not a safetensors file. Failed or zeroed vectors may be closed. */
bool vectors_open(vectors *file, const char *path);
void vectors_close(vectors *file);

/* The bytes of a tensor, or NULL; n_bytes may be NULL. Names match without regard to case (ggml writes q4_K, we q4_k). */
const void *vectors_find(const vectors *file, const char *name, size_t *n_bytes);
/* NAME.suffix */
const void *vectors_part(const vectors *file, const char *name, const char *suffix, size_t *n_bytes);

#endif
