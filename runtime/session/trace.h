/* runtime/session/trace.h - a session operation by operation: what the comparison of backends and of models stands on.
 *
 *     apr_trace_begin(s, ids, n)     a batch of at most n_batch tokens, at most n_logits of them
 *     apr_trace_run(s, op)           each operation of the program, in order
 *     apr_trace_read / _write        a value between two operations, wherever it lies: [n tokens, width], on the host
 *     apr_trace_end(s)               the batch's tokens are part of the sequence now
 *
 * A value may be read or written from the operation that makes it to the last one that reads it; then its memory is another's. */
#ifndef APR_RUNTIME_TRACE_H
#define APR_RUNTIME_TRACE_H

#include "runtime/session/session.h"

/* `ids` must live until apr_trace_end. APR_E_USAGE when there are too many or one is outside the vocabulary, APR_E_NO when
 * the context has no room. */
apr_status apr_trace_begin(apr_session *session, const int32_t *ids, int64_t n_ids, apr_error *err);
apr_status apr_trace_run(apr_session *session, size_t op, apr_error *err);
apr_status apr_trace_read(apr_session *session, int value, float *to, apr_error *err);
apr_status apr_trace_write(apr_session *session, int value, const float *from, apr_error *err);
/* Where it lies in a device's memory, when what makes it has ended; *at NULL: it lies on the host. */
apr_status apr_trace_there(apr_session *session, int value, const float **at, apr_error *err);
void apr_trace_end(apr_session *session);

/* Keys and values of positions [first, first + n) of a state with cells: n cells of keys (which = 0), then n of values (1; none
 * where values are in the keys), apr_trace_cell_bytes each. Of a window's positions only the last ones are there. */
size_t apr_trace_cell_bytes(const apr_session *session, int state, int which);
apr_status apr_trace_read_cells(apr_session *session, int state, int64_t first, int64_t n, uint8_t *to, apr_error *err);
apr_status apr_trace_write_cells(apr_session *session, int state, int64_t first, int64_t n, const uint8_t *from, apr_error *err);

/* All n_floats of a state without cells. */
apr_status apr_trace_read_numbers(apr_session *session, int state, float *to, apr_error *err);
apr_status apr_trace_write_numbers(apr_session *session, int state, const float *from, apr_error *err);

/* Calls `watch` behind every operation of that kind (APR_OP_COUNT: of any), also in an ordinary evaluation; the operation's values may be
 * read and written then. NULL: nobody. What it answers other than APR_OK ends the evaluation. */
typedef apr_status (*apr_trace_watch_fn)(void *user, apr_session *session, const apr_op *op, apr_error *err);
void apr_trace_watch(apr_session *session, apr_op_kind kind, apr_trace_watch_fn watch, void *user);
/* Tokens of the batch that runs now. */
int64_t apr_trace_n_tokens(const apr_session *session);

/* As if that many tokens had been evaluated; their keys and values are what was written. At most n_ctx. */
void apr_trace_seek(apr_session *session, int64_t position);

/* From now on an evaluation runs nothing but what multiplies by matrices of weights, and what chooses experts: to see how long that takes
 * alone. Values and logits mean nothing then, keys and values stay as they are. */
void apr_trace_only_products(apr_session *session, bool only);

/* The tensor of a weight slot, or NULL where an optional one is not there; the name of the backend. */
const apr_tensor *apr_trace_tensor(const apr_session *session, int slot);
/* All tensors of a slot side by side, *n of them: one for most, one an expert for others, none where an optional one is not there. */
const apr_tensor *apr_trace_tensors(const apr_session *session, int slot, int64_t *n);
const char *apr_trace_backend(const apr_session *session);
const apr_model *apr_trace_model(const apr_session *session);
/* [n_freqs] of a rotary table, its divisors (where the model has some) applied. */
void apr_trace_frequencies(const apr_session *session, int rope, float *freqs);

/* What the numbers of a run depend on, besides the model. */
typedef enum { APR_RUNS_ON_REF, APR_RUNS_ON_HOST, APR_RUNS_ON_DEVICE } apr_runs_on;

typedef struct apr_run_facts {
    apr_runs_on on;
    bool fp16_products; /* some products round their inputs to FP16: a device's of more than a few tokens, or all without direct kernels */
    bool fp8_products;  /* or to FP8 */
    bool streamed;      /* a device's tokens that come alone, or a host's packed weights: products round their inputs to 15 bits of
                           the largest of 16 */
    apr_dtype kv_dtype;
} apr_run_facts;

/* Of a session that evaluates n_together tokens at a time (at most; larger batches are cut by the session). */
apr_run_facts apr_trace_run_facts(const apr_session *session, int64_t n_together);
/* Batches of more tokens than this round the inputs of products to FP16; INT64_MAX: none does. */
int64_t apr_trace_fp16_above(const apr_session *session);

#endif
