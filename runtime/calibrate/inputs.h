/* runtime/calibrate/inputs.h - layer inputs: the rows that each matrix multiplies while a text is evaluated.
 *
 * An input is what matrices read: a value of the program (q, k and v of a layer share one), the rows routed to an expert, or the
 * hidden rows between an expert's two products. A weight that several operations use (a tied head, shared layers) has several inputs, and
 * the caller adds them. So sums kept by input are kept once.
 *
 *     apr_layer_inputs_of(&inputs, session)                     which matrix reads which input
 *     apr_layer_inputs_visit(&inputs, session, &pass, ids, n)   one window of tokens, from an empty context; pass.visit gets the rows
 *
 * Rows are float32 in host memory, as the operation read them, on any backend. The hidden rows of experts are computed again here, on
 * the host. Embedding tables, routers' biases and matrices that are read along their columns (the first half of latent attention) have
 * no input, because they are not multiplied row by row. */
#ifndef APR_RUNTIME_CALIBRATE_INPUTS_H
#define APR_RUNTIME_CALIBRATE_INPUTS_H

#include "runtime/session/session.h"
#include "runtime/session/trace.h"

typedef struct apr_layer_input {
    size_t op;             /* the first operation that reads it */
    int value;             /* of the program; for experts their input */
    bool is_expert_hidden; /* the input of an expert's last product (down) */
    int layer;             /* -1: not in a layer */
    int64_t width;         /* numbers of a row: columns of every matrix that reads it */
    int64_t n_experts;     /* 0: all tokens, one matrix */
} apr_layer_input;

static inline int64_t apr_layer_input_matrices(const apr_layer_input *input) { return input->n_experts > 0 ? input->n_experts : 1; }

/* A matrix, or the matrices of all experts, and an input that it reads. */
typedef struct apr_layer_input_reader {
    int slot; /* program->weights[]; apr_trace_tensors gives the tensors: one an expert where slot->count says so */
    size_t input;
} apr_layer_input_reader;

typedef struct apr_layer_inputs {
    apr_layer_input *inputs; /* in the order of the program */
    size_t n_inputs;
    apr_layer_input_reader *readers; /* in the order of the operations; absent weights are left out */
    size_t n_readers;
} apr_layer_inputs;

apr_status apr_layer_inputs_of(apr_layer_inputs *inputs, const apr_session *session, apr_error *err);
void apr_layer_inputs_close(apr_layer_inputs *inputs);

/* Gets rows [n_rows, input->width] that go to expert `expert` (-1: to everything that reads the input); n_rows >= 1. They are valid until
 * the call returns. In one batch of tokens each input comes once, for experts once for each expert that has tokens, in the order of
 * experts. A result other than APR_OK ends the visit. */
typedef apr_status (*apr_visit_fn)(void *user, size_t input, int64_t expert, int64_t n_rows, const float *rows, apr_error *err);

typedef struct apr_pass {
    const bool *wanted; /* [n_inputs]; NULL: all. If a window is one batch, nothing after the last wanted input is computed */
    apr_visit_fn visit;
    /* NULL, or called instead of `visit` with rows in device memory, for inputs without experts. The rows are complete, and it must be done
     * with them when it returns. With `queues` neither holds: it queues its work on the session's device, behind what makes the rows. */
    apr_status (*visit_device)(void *user, size_t input, int64_t n_rows, const float *rows, apr_error *err);
    bool queues;
    /* NULL, or gets, before each call of `visit`, the token of each row: an index of ids. It has room for the rows of a batch; a token has
     * more than one where each head has a matrix of its own. */
    int64_t *tokens;
    void *user;
} apr_pass;

/* Resets the session before and after. The session must not fall back to the host: a window would be seen twice. Fails as
 * apr_session_eval does, and with what `visit` returns. */
apr_status apr_layer_inputs_visit(const apr_layer_inputs *inputs, apr_session *session, const apr_pass *pass, const int32_t *ids,
                                  int64_t n_ids, apr_error *err);

#endif
