/* convert/ggml_location.h - where ggml stores a canonical matrix. An imatrix uses ggml's names and orders. */
#ifndef APR_CONVERT_GGML_LOCATION_H
#define APR_CONVERT_GGML_LOCATION_H

#include "formats/tensor/model.h"
#include "formats/tensor/step.h"

/* Where ggml stores a canonical matrix. */
typedef struct apr_ggml_location {
    const char *name;  /* NULL: ggml has no matrix with the same columns */
    int64_t matrix;    /* index in a stack; -1: not stacked */
    apr_chain columns; /* the steps that reorder a row's columns */
} apr_ggml_location;

/* `model` is canonical, or its family has no table: then names are unchanged. */
apr_status apr_ggml_location_of(apr_ggml_location *place, const apr_model *model, const char *name, apr_arena *arena, apr_error *err);
/* order[j]: the canonical column of ggml's column j, for n columns. */
apr_status apr_ggml_columns(const apr_ggml_location *place, int64_t n, int64_t *order, apr_error *err);

#endif
