/* convert/importance.h - finds the importance (imatrix) values of a tensor. An imatrix uses ggml's names and orders. Also finds where the
 * sums of a canonical matrix belong in an imatrix. */
#ifndef APR_CONVERT_IMPORTANCE_H
#define APR_CONVERT_IMPORTANCE_H

#include "formats/tensor/imatrix.h"
#include "formats/tensor/model.h"

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

/* The importance of one tensor. */
typedef struct apr_importance {
    const float *columns;         /* [n_matrices, columns] mean squares, zeros where no token came; NULL: no entry */
    int64_t n_matrices, n_unseen; /* n_unseen: matrices that no token reached */
} apr_importance;

/* tensor: of the view, in either naming. APR_E_DAMAGED: the entry has a different number of columns or matrices. */
apr_status apr_importance_of(apr_importance *importance, const apr_imatrix *imatrix, const apr_model *view, const apr_tensor *tensor,
                             apr_arena *arena, apr_error *err);

#endif
