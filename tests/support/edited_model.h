/* edited_model.h - a model in memory, its matrices converted to other types, and one thing broken: what a check must accept, or find. */
#ifndef APR_TESTS_EDITED_MODEL_H
#define APR_TESTS_EDITED_MODEL_H

#include "runtime/session/session.h"

#include <stddef.h>

/* Norm gains of layer 1's input are all 1; the first two heads of layer 0's q_proj change places; every frequency is another. */
typedef enum { BREAK_NONE, BREAK_NORM_LEFT_OUT, BREAK_HEADS_SWAPPED, BREAK_THETA_DOUBLED, N_BREAKS } model_break;
extern const char *const break_names[];

typedef struct edited_model {
    apr_model model;
    void *memory[1024];
    size_t n_memory;
} edited_model;

/* dtype: of the matrices; second: of every other one. good: what is not broken is taken from there; NULL: everything is made. */
void edited_model_open(edited_model *m, const apr_model *reference, const edited_model *good, apr_dtype dtype, apr_dtype second,
                       model_break how);
/* The same, all matrices in one type, with any change: `edit` sees the numbers of every tensor before they are encoded, and may change
 * what is not one number of it, hyperparameters and names, last of all with NULL for the tensor. Either may be NULL. */
typedef void (*model_edit)(edited_model *m, const apr_tensor *tensor, float *values);
void edited_model_open_with(edited_model *m, const apr_model *reference, apr_dtype dtype, model_edit edit);
void edited_model_close(edited_model *m);

/* A session on the host with keys and values in float32, 32 rows of logits. */
apr_session *edited_model_session(const apr_model *model, int64_t n_ctx);

/* Zeroed memory that lives as long as the model. */
void *edited_model_memory(edited_model *m, size_t n_bytes);

#endif
