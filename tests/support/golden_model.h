/* golden_model.h - a bundled model and what transformers computed with it, for tests. */
#ifndef APR_TESTS_GOLDEN_MODEL_H
#define APR_TESTS_GOLDEN_MODEL_H

#include "formats/base/bytes.h"
#include "formats/base/json.h"
#include "formats/tensor/model.h"

typedef struct golden {
    apr_model model;   /* DIR/model.safetensors with its companions */
    apr_model outputs; /* DIR/golden.safetensors: ids, logits, hidden */
    cJSON *json;       /* DIR/golden.json */
} golden;

/* APR_E_IO when DIR is not there. */
apr_status golden_open(golden *g, const char *dir, apr_error *err);
void golden_close(golden *g);

/* NULL when it is not there, not float32 or not of that size. */
const float *golden_floats(const golden *g, const char *name, int64_t n_elems);
/* The ids of the golden text, whose logits and hidden states are known: its first n. False when there are not so many. */
bool golden_text(const golden *g, int32_t *ids, size_t n);
/* malloc'ed */
int32_t *golden_ids(const cJSON *array, size_t *n_ids);
/* Largest difference. */
double largest_difference(const float *a, const float *b, size_t n);

#endif
