/* convert/importance.h - the numbers of an imatrix, which has ggml's names and orders, for the tensors of a conversion, and where in an
 * imatrix the sums of a canonical matrix belong. */
#ifndef APR_CONVERT_IMPORTANCE_H
#define APR_CONVERT_IMPORTANCE_H

#include "formats/model/imatrix.h"
#include "formats/model/model.h"

/* Where ggml has a canonical matrix. */
typedef struct apr_ggml_place {
    const char *name;  /* NULL: nowhere as a matrix of the same columns */
    int64_t matrix;    /* of a stack; -1: it is a tensor of its own */
    apr_chain columns; /* what becomes of a row on the way there */
} apr_ggml_place;

/* `model` is canonical, or of a family without a table: then names are as they are. */
apr_status apr_ggml_place_of(apr_ggml_place *place, const apr_model *model, const char *name, apr_arena *arena, apr_error *err);
/* order[j]: which of the n columns ggml's column j is. */
apr_status apr_ggml_columns(const apr_ggml_place *place, int64_t n, int64_t *order, apr_error *err);

/* What an imatrix says of one tensor. */
typedef struct apr_importance {
    const float *columns; /* [n_matrices, columns of the tensor] means of squares, zeros where no token came; NULL: nothing is said */
    int64_t n_matrices, n_unseen; /* matrices, and those to which no token came */
} apr_importance;

/* tensor: of the view, in whichever dialect that is. APR_E_DAMAGED: the entry has another number of columns or matrices. */
apr_status apr_importance_of(apr_importance *importance, const apr_imatrix *imatrix, const apr_model *view, const apr_tensor *tensor,
                             apr_arena *arena, apr_error *err);

#endif
