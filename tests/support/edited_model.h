/* edited_model.h - a model in memory, its matrices brought to other types, and one thing broken: what a judge must let pass, or find. */
#ifndef APR_TESTS_MADE_MODEL_H
#define APR_TESTS_MADE_MODEL_H

#include "runtime/session/session.h"

#include <stddef.h>

/* Norm gains of layer 1's input are all 1; the first two heads of layer 0's q_proj change places; every frequency is another. */
typedef enum { MADE_GOOD, MADE_NORM_LEFT_OUT, MADE_HEADS_SWAPPED, MADE_THETA_DOUBLED, N_MADE_BREAKS } made_break;
extern const char *const made_break_names[];

typedef struct made {
    apr_model model;
    void *memory[1024];
    size_t n_memory;
} made;

/* dtype: of the matrices; second: of every other one. good: what is not broken is taken from there; NULL: everything is made. */
void made_open(made *m, const apr_model *reference, const made *good, apr_dtype dtype, apr_dtype second, made_break how);
/* The same, all matrices in one type, with any change: `edit` sees the numbers of every tensor before they are encoded, and may change
 * what is not one number of it, hyperparameters and names, last of all with NULL for the tensor. Either may be NULL. */
typedef void (*made_edit)(made *m, const apr_tensor *tensor, float *values);
void made_open_edited(made *m, const apr_model *reference, apr_dtype dtype, made_edit edit);
void made_close(made *m);

/* A session on the host with keys and values in float32, 32 rows of logits. */
apr_session *made_session(const apr_model *model, int64_t n_ctx);

/* Zeroed memory that lives as long as the model. */
void *made_keep(made *m, size_t n_bytes);

#endif
