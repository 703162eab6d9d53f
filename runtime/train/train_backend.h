/* train_backend.h - what a pass runs on: memory, copies and operations, as one table for the host (train_host.c) and one for a GPU
 * (train_cuda.c). train.c is the same loop for both.
 *
 * "There" is where the numbers of a pass are. Functions of a GPU queue their work in order; those that give the host something have waited
 * for it. */
#ifndef APR_RUNTIME_TRAIN_BACKEND_H
#define APR_RUNTIME_TRAIN_BACKEND_H

#include "kernels/grad.h"
#include "runtime/train/train.h"

typedef struct train_backend {
    const char *where; /* of an operation that it does not have: "on a GPU"; "" on the host */
    int64_t n_logits;  /* rows of logits at a time, if the caller does not say */
    bool (*has)(const apr_train *t, apr_op_kind kind);
    size_t (*work)(const apr_train *t, apr_op_kind kind, const apr_grad_call *call); /* numbers of scratch memory */

    apr_status (*allocate)(apr_train *t, int line, apr_error *err); /* t->memory of a line that has bytes */
    void (*release)(apr_train *t, int line);
    /* Token ids of the pass, which the caller keeps until it ends. */
    apr_status (*take_ids)(apr_train *t, const int32_t *ids, apr_error *err);

    /* For keeps_weights; NULL on the host, where weights are already. */
    bool (*keeps)(const apr_train *t, const apr_tensor *tensor);             /* can the tensor be kept there as it is stored? */
    apr_status (*renew)(apr_train *t, size_t i, apr_error *err);             /* copies what the model stores of t->trained[i] */
    apr_status (*decode)(apr_train *t, size_t i, float *to, apr_error *err); /* decodes the copy of t->trained[i] */

    apr_status (*clear)(apr_train *t, void *there, size_t n_bytes, apr_error *err);
    apr_status (*copy)(apr_train *t, void *to, const void *from, size_t n_bytes, apr_error *err); /* from there to there */
    apr_status (*put)(apr_train *t, const float *from, int64_t n, void *there, apr_error *err);   /* numbers of the host */
    apr_status (*get)(apr_train *t, const void *there, int64_t n, float *to, apr_error *err);
    /* Of weights that are stored as logarithms: x = exp(x); x *= by. NULL: no operation there has such weights. */
    void (*exponentials)(apr_train *t, void *x, int64_t n);
    void (*multiply)(apr_train *t, void *x, const void *by, int64_t n);

    apr_status (*forward)(apr_train *t, apr_op_kind kind, const apr_grad_call *call, apr_error *err);
    apr_status (*backward)(apr_train *t, apr_op_kind kind, const apr_grad_call *call, apr_error *err);
    apr_status (*first_not_finite)(apr_train *t, const void *x, int64_t n, int64_t *at, apr_error *err); /* -1: all are finite */
    /* As in kernels/grad.h, for the rows in the memory of logits. *kl: [n_rows], for the host, valid until the next call. */
    apr_status (*divergence)(apr_train *t, void *student, int64_t n_rows, double factor, bool gradient, const double **kl, apr_error *err);
} train_backend;

extern const train_backend train_on_host, train_on_cuda;

#endif
