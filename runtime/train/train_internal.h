/* train_internal.h - what opening a pass leaves for running it (train_open.c, train.c, and the two backends).
 *
 * The program is cut into segments: operations next to each other that belong to one layer. Values that another segment reads are kept
 * from the forward pass. The others are local: all segments use the same memory for them, and a backward pass computes those of its
 * segment again. Logits are the last segment; they are computed for some rows at a time, and only they are never kept. */
#ifndef APR_RUNTIME_TRAIN_INTERNAL_H
#define APR_RUNTIME_TRAIN_INTERNAL_H

#include "formats/base/threads.h"
#include "kernels/grad.h"
#include "runtime/program/op_spec.h"
#include "runtime/train/train_backend.h"
#include "runtime/train/train_device.h"

/* X(ID, key, what): what a pass allocates; IDS on a GPU alone */
#define TRAIN_LINES(X)                                                                                \
    X(KEPT, "train.kept", "values between layers")                                                    \
    X(KEPT_GRADIENTS, "train.kept_gradients", "their gradients")                                      \
    X(LOCAL, "train.activations", "activations of a layer")                                           \
    X(LOCAL_GRADIENTS, "train.activation_gradients", "their gradients")                               \
    X(WEIGHTS, "train.weights", "weights of one operation, as plain numbers")                         \
    X(WEIGHT_GRADIENTS, "train.weight_gradients", "their gradients")                                  \
    X(SHARED_GRADIENTS, "train.shared_gradients", "gradients of weights that several operations use") \
    X(FLOATS, "train.floats", "a tensor on its way to or from the caller")                            \
    X(STORED, "train.stored", "matrices as they are stored")                                          \
    X(LOGITS, "train.logits", "logits of some rows, with the teacher's")                              \
    X(WORKSPACE, "train.workspace", "workspace")                                                      \
    X(IDS, "train.ids", "token ids and rotary frequencies")

enum {
#define X(ID, key, what) LINE_##ID,
    TRAIN_LINES(X)
#undef X
        N_LINES
};

/* Where a value is, in numbers of its memory; widths are of a row. */
typedef struct value_place {
    bool is_kept, is_logits, has_gradient;
    int segment, last; /* that make it, and that read it last; the logits' segment is n_segments */
    int64_t at, gradient_at;
} value_place;

/* A weight of an operation. */
typedef struct weight_place {
    int64_t n;           /* numbers; 0: absent */
    int64_t at;          /* in the operation's weights */
    int64_t gradient_at; /* in its gradients, or in the shared ones */
    bool is_shared;      /* other operations use the same tensors */
    bool gives;          /* the gradient is handed out after this operation */
} weight_place;

typedef struct slot_tensors {
    const apr_tensor **tensors; /* [count], NULL: an optional one that is absent */
    int64_t n;                  /* numbers of all */
} slot_tensors;

/* A tensor that is kept as it is stored: its copy, whose data are at `at` of LINE_STORED. */
typedef struct stored_tensor {
    bool is_there;
    apr_tensor copy;
    uint64_t at;
} stored_tensor;

struct apr_train {
    const apr_model *model;
    apr_program program;
    apr_train_options options;
    const apr_grad_numbers *numbers; /* on a GPU those of float32: which operations have gradients is the same */
    const train_backend *backend;
    int64_t n_rows;

    slot_tensors *slots;        /* [n_weights] */
    const apr_tensor **trained; /* [n_trained] */
    size_t n_trained;
    stored_tensor *stored;                       /* [n_trained] */
    int64_t most_stored_rows;                    /* of a tensor there */
    uint64_t row_numbers_at;                     /* behind the tensors in LINE_STORED: 0, 1, ... for so many rows */
    apr_op_args *args;                           /* [n_ops], without pointers */
    int (*inputs)[APR_GRAD_MAX_IN];              /* [n_ops] values; attention reads what the last store of its state read */
    weight_place (*weights)[APR_OP_MAX_WEIGHTS]; /* [n_ops] */
    int *segments;                               /* [n_ops]; n_segments: logits */
    int n_segments, local_of;                    /* local_of: the segment whose local values are there; -1: none */
    size_t first_logits;                         /* the first operation of the logits' segment; operations after it belong to it as well */
    bool has_logits_weights;                     /* the weights of the logits' segment are there */
    value_place *values;                         /* [n_values] */
    float *freqs;                                /* [n_freqs] */
    int64_t n_freqs;
    int64_t *rope_offsets;
    int64_t *zeros;         /* offsets of what only shapes are taken from */
    const int32_t *ids;     /* there */
    double *const *squares; /* of apr_train_squares; else NULL */

    apr_train_line lines[N_LINES];
    char *memory[N_LINES];
    int64_t logits_bytes; /* of LINE_LOGITS: values, then their gradients; the losses of rows and the teacher's logits follow */
};

/* Where the tensor is kept as it is stored, in t->stored; SIZE_MAX: it is not. */
static inline size_t train_find_stored(const apr_train *t, const apr_tensor *tensor)
{
    for (size_t i = 0; i < t->n_trained; i++)
        if (t->trained[i] == tensor) return t->stored[i].is_there ? i : SIZE_MAX;
    return SIZE_MAX;
}

static inline bool train_is_on_device(const apr_train *t) { return t->options.device != NULL; }

/* The numbers at an index of a line's memory; NULL: the line has none. */
static inline char *train_numbers_at(const apr_train *t, int line, int64_t number)
{
    return t->memory[line] != NULL ? t->memory[line] + (size_t)number * t->numbers->size : NULL;
}

/* Where a tensor's numbers are on their way to or from the caller; NULL: they need no such place. */
static inline float *train_floats(const apr_train *t) { return (float *)(void *)t->memory[LINE_FLOATS]; }

/* In the memory of logits: after values and gradients a divergence for each row, then the teacher's rows. */
static inline double *train_row_losses(const apr_train *t) { return (double *)(void *)(t->memory[LINE_LOGITS] + t->logits_bytes); }
static inline float *train_teacher_rows(const apr_train *t) { return (float *)(void *)(train_row_losses(t) + t->options.n_logits); }

/* An operation's shapes; pointers are added where it runs. */
static inline apr_grad_call apr_train_call_of(const apr_train *t, size_t i, int64_t n_rows)
{
    const apr_op *const op = &t->program.ops[i];
    apr_grad_call call = {.args = &t->args[i],
                          .n_rows = n_rows,
                          .n_positions = t->options.n_tokens,
                          .width_in = op->in[0] >= 0 ? t->program.values[op->in[0]].width : 0,
                          .width_out = op->out >= 0 ? t->program.values[op->out].width : 0,
                          .n_threads = t->options.n_threads};
    return call;
}

#endif
