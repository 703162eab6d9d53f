/* runtime/session/trace.h - runs a session operation by operation: the basis for comparing backends and models.
 *
 *     apr_trace_begin(s, ids, n)     a batch of at most n_batch tokens, at most n_logits of them
 *     apr_trace_run(s, op)           each operation of the program, in order
 *     apr_trace_read / _write        a value between two operations, wherever it is: [n tokens, width], on the host
 *     apr_trace_end(s)               appends the batch's tokens to the sequence
 *
 * A value may be read or written from the operation that makes it to the last one that reads it; then its memory is reused. */
#ifndef APR_RUNTIME_TRACE_H
#define APR_RUNTIME_TRACE_H

#include "runtime/session/session.h"

/* `ids` must live until apr_trace_end. APR_E_USAGE: too many tokens, or an id is outside the vocabulary. APR_E_NO: the context is full. */
apr_status apr_trace_begin(apr_session *session, const int32_t *ids, int64_t n_ids, apr_error *err);
apr_status apr_trace_run(apr_session *session, size_t op, apr_error *err);
apr_status apr_trace_read(apr_session *session, int value, float *to, apr_error *err);
apr_status apr_trace_write(apr_session *session, int value, const float *from, apr_error *err);
/* The value's address in device memory, NULL if it is on the host. The operation that makes it is queued; apr_trace_wait waits for it. */
const float *apr_trace_device_value(apr_session *session, int value);
apr_status apr_trace_wait(apr_session *session, int value, apr_error *err);
void apr_trace_end(apr_session *session);

/* Keys and values of positions [first, first + n) of a state with cells: n cells of keys (which = 0), then n of values (1; none
 * where values are in the keys), apr_trace_cell_bytes each. Of a sliding window only the last positions are kept. */
size_t apr_trace_cell_bytes(const apr_session *session, int state, int which);
apr_status apr_trace_read_cells(apr_session *session, int state, int64_t first, int64_t n, uint8_t *to, apr_error *err);
apr_status apr_trace_write_cells(apr_session *session, int state, int64_t first, int64_t n, const uint8_t *from, apr_error *err);

/* All n_floats of a recurrent state. */
apr_status apr_trace_read_numbers(apr_session *session, int state, float *to, apr_error *err);
apr_status apr_trace_write_numbers(apr_session *session, int state, const float *from, apr_error *err);

/* Calls `watch` after every operation of that kind (APR_OP_COUNT: any), also in an ordinary evaluation. It may read and write the
 * operation's values. A result other than APR_OK ends the evaluation. NULL: stops watching. */
typedef apr_status (*apr_trace_watch_fn)(void *user, apr_session *session, const apr_op *op, apr_error *err);
void apr_trace_watch(apr_session *session, apr_op_kind kind, apr_trace_watch_fn watch, void *user);
/* Tokens of the current batch. */
int64_t apr_trace_n_tokens(const apr_session *session);

/* Sets the position without evaluating; keys and values are what was written. At most n_ctx. */
void apr_trace_seek(apr_session *session, int64_t position);

/* While set, an evaluation runs only products with weight matrices, and routing, to time these alone. Values and logits are meaningless
 * then; keys and values do not change. */
void apr_trace_only_products(apr_session *session, bool only);

/* The tensor of a weight slot, or NULL if an optional one is absent. */
const apr_tensor *apr_trace_tensor(const apr_session *session, int slot);
/* All tensors of a slot, an array of *n: one, or one an expert, or none if an optional one is absent. */
const apr_tensor *apr_trace_tensors(const apr_session *session, int slot, int64_t *n);
/* The session's first GPU and the functions to use it, or NULL if it runs on the host. */
apr_cuda_device *apr_trace_device(const apr_session *session, const apr_cuda_api **cuda);
const apr_model *apr_trace_model(const apr_session *session);
/* [n_freqs] of a rotary table, divided by its divisors if the model has some. */
void apr_trace_frequencies(const apr_session *session, int rope, float *freqs);

/* What the numbers of a run depend on, besides the model. */
typedef enum { APR_RUNS_ON_REF, APR_RUNS_ON_HOST, APR_RUNS_ON_DEVICE } apr_runs_on;

typedef struct apr_run_facts {
    apr_runs_on on;
    /* some products round their inputs to FP16: a device's products of more than a few tokens, or all without direct kernels */
    bool fp16_products;
    bool fp8_products; /* or to FP8 */
    /* single tokens on a device, or packed weights on a host: products round their inputs to 15 bits relative to the largest of 16 */
    bool i16_products;
    apr_dtype kv_dtype;
} apr_run_facts;

/* For a session that evaluates n_together tokens at a time (larger batches are split by the session). */
apr_run_facts apr_trace_run_facts(const apr_session *session, int64_t n_together);
/* Batches of more tokens than this round the inputs of products to FP16; INT64_MAX: none does. */
int64_t apr_trace_fp16_above(const apr_session *session);

#endif
