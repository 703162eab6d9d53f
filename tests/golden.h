/* golden.h - reads the tensors of a safetensors file that a test trusts: golden data, not input to be defended against. */
#ifndef APR_TESTS_GOLDEN_H
#define APR_TESTS_GOLDEN_H

#include "formats/map.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct golden {
    apr_map map;
    cJSON *header;
} golden;

/* False when there is no such file or it is no safetensors file. A failed or zeroed golden may be closed. */
bool golden_open(golden *file, const char *path);
void golden_close(golden *file);

/* The bytes of a tensor, or NULL; n_bytes may be NULL. Names match without regard to case (ggml writes q4_K, we q4_k). */
const void *golden_find(const golden *file, const char *name, size_t *n_bytes);
/* NAME.suffix */
const void *golden_part(const golden *file, const char *name, const char *suffix, size_t *n_bytes);

#endif
