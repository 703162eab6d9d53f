/* train.h - the backward pass of a whole model: how far a student's predictions are from a teacher's, and the gradient of
 * that by each weight.
 *
 * The loss is the mean, over all positions of the windows, of KL(p_teacher || p_student) over the full vocabulary. A window is one
 * sequence, whose tokens are at positions 0, 1, ... All windows of a pass are evaluated together.
 *
 *     apr_train_open(&student, model, &options)     emits the program, checks that every operation has a backward pass, plans memory
 *     apr_train_plan(student, &n)                   the lines of the plan; a caller refuses here what does not fit
 *     apr_train_gradient(student, &weights, ids, &teacher, &loss)
 *
 * A pass never holds the numbers of all weights as floats. It asks for those of one operation at a time (`values`), forward, once more before the
 * layer's backward pass (activations within a layer are computed again), and backward. The gradient of a tensor is handed out
 * (`gradient`) after its last use in the pass, so that only one operation's gradients exist at a time, plus those of tensors that
 * several operations use (a tied head). Norm gains, biases and sinks are tensors like any other.
 *
 * With keeps_weights a pass on a GPU copies matrices there once, as they are stored, and decodes them there at each use: the same numbers,
 * without a copy of the decoded ones through the link. Those that the GPU cannot decode, and vectors, are read as without it. Whoever
 * changes stored numbers calls apr_train_renew.
 *
 * On the host numbers depend on neither the number of threads nor on how many rows of logits are computed at a time. On a GPU
 * (train_device.h) all memory of the plan but one line is the device's. Products that give gradients by a layer's input or weight round
 * theirs to 11 bits there (kernels/cuda/grad/grad.cuh). The gradient of a whole model is then within 1e-3 of the host's, and that of one
 * tensor within 2e-3 (five small models, tests/gpu/gpu_train.c). With use_exact of the device's kernels they are within 1e-5 and 5e-5. The
 * same calls give the same bits again. */
#ifndef APR_RUNTIME_TRAIN_H
#define APR_RUNTIME_TRAIN_H

#include "runtime/program/program.h"

typedef struct apr_train apr_train;
struct apr_train_device; /* train_device.h */

typedef struct apr_train_options {
    int64_t n_tokens;                /* of a window */
    int64_t n_windows;               /* in a pass; 0: one */
    int64_t n_logits;                /* rows of logits computed at a time; 0: 128, on a GPU 1024 */
    int n_threads;                   /* 0: all */
    struct apr_train_device *device; /* NULL: the host */
    bool forward_only;               /* a teacher: no gradients are planned */
    bool squares_only;               /* for apr_train_squares alone: no gradients of weights are planned */
    bool float64;                    /* computes in float64: for checks by differences; on the host only */
    bool keeps_weights;              /* on a GPU: weights as the model stores them stay in its memory, see above */
} apr_train_options;

/* `model` is a canonical view (convert/naming.h) and must outlive the pass. Allocates nothing large. APR_E_UNSUPPORTED: an operation has
 * no backward pass, or none on a GPU. */
apr_status apr_train_open(apr_train **train, const apr_model *model, const apr_train_options *options, apr_error *err);
void apr_train_close(apr_train *train);

const apr_program *apr_train_program(const apr_train *train);

/* The tensors of the model that a pass reads and gives gradients of, in the order of their first use: [*n]. */
const apr_tensor *const *apr_train_tensors(const apr_train *train, size_t *n);

/* What the pass allocates, line by line, when it is first run. */
typedef struct apr_train_line {
    const char *key, *what; /* "train.activations", "activations of a layer" */
    uint64_t bytes;
    bool on_device; /* memory of the GPU; else of the host */
} apr_train_line;
const apr_train_line *apr_train_plan(const apr_train *train, size_t *n);

/* The weights of a pass. `tensor` is one of apr_train_tensors. Numbers are in the logical order of the tensor's rows. */
typedef struct apr_train_weights {
    /* Writes the tensor's numbers. The same numbers each time within a pass. NULL: those that the model has. */
    apr_status (*values)(void *user, const apr_tensor *tensor, float *to, apr_error *err);
    /* Gets the gradient of the loss by each number: once in a pass for each tensor, after its last use. Between two passes, weights may
     * change; within one, `values` of this tensor is not called again after this. NULL: gradients are dropped. */
    apr_status (*gradient)(void *user, const apr_tensor *tensor, const float *gradient, apr_error *err);
    /* Of a pass on a GPU: where in the host's memory the gradient of this tensor is put before it is handed out; pinned memory is faster. It
     * stays there for as long as the caller likes. NULL: in memory of the pass, until `gradient` returns. */
    apr_status (*room)(void *user, const apr_tensor *tensor, float **to, apr_error *err);
    /* Is the tensor trained? Gradients of others are not computed. NULL: all are. */
    bool (*is_trained)(void *user, const apr_tensor *tensor);
    /* Of a pass on a GPU: are `to` and `gradient` of this tensor device memory, written and read by work that is queued on the device's
     * stream? NULL: those of all tensors are memory of the host. */
    bool (*is_on_device)(void *user, const apr_tensor *tensor);
    void *user;
} apr_train_weights;

/* The teacher's logits of rows [first, first + n) of the pass: window first / n_tokens, token first % n_tokens. Each row is asked for
 * once in a pass, in order. */
typedef struct apr_train_teacher {
    apr_status (*logits)(void *user, int64_t first, int64_t n, float *to, apr_error *err);
    void *user;
    struct apr_train_device *device; /* whose memory `to` is; the student must be there as well. NULL: memory of the host */
} apr_train_teacher;

/* What the model stores of a tensor of apr_train_tensors has changed; NULL: of all. Without keeps_weights nothing need be done. */
apr_status apr_train_renew(apr_train *train, const apr_tensor *tensor, apr_error *err);

/* Evaluates [n_windows, n_tokens] ids up to the final hidden states, which stay. APR_E_USAGE: an id is outside the vocabulary. APR_E_NO:
 * a number is not finite; the message names the operation. weights: NULL: those of the model. */
apr_status apr_train_forward(apr_train *train, const apr_train_weights *weights, const int32_t *ids, apr_error *err);
/* The logits of rows [first, first + n) of the last apr_train_forward; n may be any number. */
apr_status apr_train_logits(apr_train *train, const apr_train_weights *weights, int64_t first, int64_t n, float *to, apr_error *err);

/* A teacher that is another model in this program, on the device of its pass: call apr_train_forward on it with the same ids first. */
typedef struct apr_train_model {
    apr_train *train;
    const apr_train_weights *weights; /* NULL: those of the model */
} apr_train_model;
apr_train_teacher apr_train_teacher_of(apr_train_model *model);

/* The loss alone. kl: NULL, or the divergence of each row, [n_windows * n_tokens]. */
apr_status apr_train_loss(apr_train *train, const apr_train_weights *weights, const int32_t *ids, const apr_train_teacher *teacher,
                          double *loss, double *kl, apr_error *err);

/* The loss and its gradient. APR_E_NO: the loss or a gradient is not finite; the message names the operation. */
apr_status apr_train_gradient(apr_train *train, const apr_train_weights *weights, const int32_t *ids, const apr_train_teacher *teacher,
                              double *loss, apr_error *err);

/* How much the loss depends on each row of what operations compute: the squared norm of its gradient by that row. squares[i], unless
 * NULL, gets [n_windows * n_tokens] numbers for operation i of apr_train_program. The weights are those that the model has. On the host
 * only. Errors are those of apr_train_gradient. */
apr_status apr_train_squares(apr_train *train, const int32_t *ids, const apr_train_teacher *teacher, double *const *squares, double *loss,
                             apr_error *err);

#endif
