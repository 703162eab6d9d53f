/* family_model.h - a synthetic checkpoint whose weights a formula makes, so that a small folder stands for a model.
 *
 * DIR/tensors.json states seed, dtype and, for each tensor, [shape, mean, deviation]. Number i (row-major) of tensor NAME is
 * mean + deviation * noise(FNV-1a(NAME), seed, i): see noise() in family_model.c. DIR/golden.safetensors, where there is one,
 * holds what transformers computes from exactly these weights, so the bytes must not depend on anything else. */
#ifndef APR_TESTS_FAMILY_MODEL_H
#define APR_TESTS_FAMILY_MODEL_H

#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a test does to a tensor before it is rounded and written; NULL: nothing. */
typedef struct family_edit {
    void (*tensor)(void *user, const char *name, const int64_t *dims, int rank, float *values);
    void *user;
} family_edit;

/* Makes the folder OUT with model.safetensors, and DIR's config.json. OUT may exist; its parent must. */
apr_status family_write(const char *dir, const char *out, const family_edit *edit, apr_error *err);

/* Does ggml have names for the model of DIR/config.json? Others stay as checkpoints and APR files. */
bool family_is_in_gguf(const char *dir);

#endif
