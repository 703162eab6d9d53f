/* runtime/session.h - a model that can be run: program, plan, memory, and the position in one sequence of tokens.
 *
 * Opening emits the program, makes the plan and refuses what does not fit before the first allocation; then it allocates
 * exactly the plan's lines. Weights stay in the model's map, which must outlive the session; a device has its own copy of
 * them. One thread at a time. */
#ifndef APR_RUNTIME_SESSION_H
#define APR_RUNTIME_SESSION_H

#include "kernels/cuda/api.h"
#include "runtime/plan.h"

typedef struct apr_session apr_session;

typedef struct apr_session_options {
    int64_t n_ctx;              /* 0: the model's own, at most 4096 */
    int64_t n_batch;            /* tokens of a prompt evaluated at a time */
    int64_t n_logits;           /* rows of logits kept at a time */
    apr_dtype kv_dtype;         /* one of apr_kv_dtypes */
    uint64_t budget_bytes;      /* host memory; 0: not judged */
    int n_threads;              /* 0: all; at most 4 for each processor are used */
    const apr_backend *backend; /* NULL: the host's */

    /* A CUDA device, when cuda is not NULL: weights are copied there and everything is computed there. */
    const apr_cuda_api *cuda;
    int ordinal;
    uint64_t headroom_bytes; /* of the device's free memory, left free */
    uint64_t stack_bytes;    /* of the CUDA context */
    bool no_direct;          /* without kernels that read packed weights: FP16 copies where they fit, else tile by tile */
    /* NULL: never. Asked once, when there are FP8 weights and a device: may products be made in FP8? (A probe knows.) */
    bool (*may_use_fp8)(void *user, const apr_cuda_facts *facts);
    bool force;                                           /* run what does not fit, with a warning */
    bool fall_back;                                       /* when the device fails, warn and go on on the host */
    int64_t fail_allocation;                              /* drills: see apr_cuda_options */
    void (*on_warning)(void *user, const char *sentence); /* may be NULL */
    void *user;
} apr_session_options;

extern const apr_session_options apr_session_defaults; /* those of apr_plan_defaults but 256 bytes of stack, all threads, host */

/* The model must be canonical (Hugging Face's names). APR_E_DAMAGED: a tensor is missing or has another shape;
 * APR_E_UNSUPPORTED: family, operation, dtype or tensor that cannot be run; APR_E_MEMORY: does not fit. */
apr_status apr_session_open(apr_session **session, const apr_model *model, const apr_session_options *options, apr_error *err);
/* With the options of another session, its plan's sizes among them. */
apr_status apr_session_open_like(apr_session **session, const apr_model *model, const apr_session *like, apr_error *err);
void apr_session_close(apr_session *session); /* NULL is fine */

/* "host", "ref", "cuda": what the next evaluation will run on. */
const char *apr_session_backend_name(const apr_session *session);
const apr_plan *apr_session_plan(const apr_session *session);
const apr_program *apr_session_program(const apr_session *session);
/* Tokens evaluated so far: the position of the next one. */
int64_t apr_session_position(const apr_session *session);
/* Forgets all tokens. */
void apr_session_reset(apr_session *session);

/* What is wanted besides the last token's logits; a zeroed one, or NULL, wants nothing. */
typedef struct apr_eval_output {
    bool all_logits; /* of every token; otherwise of the last */
    float *logits;   /* NULL, or room for [all_logits ? n_ids : 1, vocab_size] */
    float *hidden;   /* NULL, or room for [program->n_taps, n_ids, hidden_size] */
    /* NULL, or called with rows of logits as they come: token `first` of this call onwards. Its failure ends the call. */
    apr_status (*on_logits)(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err);
    void *user;
} apr_eval_output;

/* Evaluates the next n_ids tokens of the sequence. APR_E_NO when the context has no room for them (nothing is evaluated
 * then), APR_E_USAGE for ids outside the vocabulary. n_ids 0 is nothing to do. */
apr_status apr_session_eval(apr_session *session, const int32_t *ids, size_t n_ids, const apr_eval_output *out, apr_error *err);

/* [vocab_size] logits of the last token; valid until the next evaluation. */
const float *apr_session_logits(const apr_session *session);

/* Bytes that were allocated (or mapped, for the weights), to hold against the plan's lines. */
typedef struct apr_session_usage {
    uint64_t weights, copies, vectors, states, activations, logits, workspace, total;
    uint64_t driver;  /* what the card's memory in use has grown by since before the context; 0: no device, or not known */
    int blas_version; /* cuBLAS, as 130002; 0: not used */
} apr_session_usage;
apr_session_usage apr_session_used(const apr_session *session);

#endif
