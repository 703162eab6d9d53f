/* runtime/session/session.h - a model that can be run: program, plan, memory, and the position in one sequence of tokens.
 *
 * Opening emits the program and makes the plan. It refuses what does not fit before the first allocation, then allocates exactly the
 * plan's lines. Weights stay in the model's map, which must outlive the session; a device has its own copy of them. A session is for one
 * thread at a time.
 *
 * One place can hold several sequences (options.n_sequences). apr_session_use selects the sequence that calls are about;
 * apr_session_step takes one token of each of many. The numbers of a sequence depend only on its own tokens and on how its prompt was
 * cut into calls, not on the other sequences.
 *
 * A session has one place that computes everything, or several: devices, and the host for what is offloaded from them
 * (plan/partition.h). Each place has its own plan, memory and the weights of its operations. Values are copied to the places that read
 * them.
 *
 * The plan is checked against independent counts. On the host the C library's count of its heap is read before and after the session
 * allocates or evaluates; on a device the driver's count is read. So a buffer that no line of the plan names is noticed. */
#ifndef APR_RUNTIME_SESSION_H
#define APR_RUNTIME_SESSION_H

#include "kernels/cuda/api.h"
#include "runtime/plan/plan.h"

#include <stdatomic.h>

typedef struct apr_session apr_session;

typedef struct apr_session_options {
    int64_t n_ctx;                /* 0: the model's own, at most 4096 */
    bool shorter_ctx;             /* n_ctx is at most the positions that the program has; otherwise a longer one is refused */
    int64_t n_batch;              /* tokens of a prompt evaluated at a time; 0: as many as fit, see apr_plan_set_speed */
    int64_t n_logits;             /* rows of logits kept at a time */
    int64_t n_sequences;          /* 0: one. Several need a single place: the host or one device */
    int64_t kv_cells;             /* see apr_plan_options */
    apr_dtype kv_dtype;           /* one of apr_kv_dtypes */
    uint64_t budget_bytes;        /* host memory; 0: not checked */
    int n_threads;                /* 0: all; at most 4 for each processor are used */
    const char *weights_location; /* for the plan's reasons: where the model's weights are; NULL: "mapped from the file" */
    const apr_backend *backend;   /* NULL: the host's */

    /* If cuda is not NULL: the device that holds the weights and computes everything. */
    const apr_cuda_api *cuda;
    int ordinal;
    int n_devices;                 /* several: the program is split over them in this order; 0 or 1: only `ordinal` */
    int ordinals[APR_MAX_DEVICES]; /* [n_devices]; an ordinal may repeat: parts that share a card */
    apr_offload offload;           /* what is computed on the host; budget_bytes limits its memory there */
    uint64_t headroom_bytes;       /* of the device's free memory that stays free */
    uint64_t stack_bytes;          /* of the CUDA context */
    uint64_t (*available)(void);   /* available host memory, for devices that share it; NULL or 0: the driver is asked */
    bool no_direct;                /* no kernels that read packed weights: FP16 copies where they fit, else decoded tile by tile */
    bool no_replay;                /* no CUDA graph: a decoded token's operations are launched one by one */
    bool no_fusion;                /* no fusion: norms, ropes and sums around a product are separate operations, also in a prompt */
    bool exact;                    /* start with exact products: see apr_session_set_exact */
    /* May products be computed in FP8? Asked once, when there are FP8 weights and a device; NULL: never. */
    bool (*may_use_fp8)(void *user, const apr_cuda_facts *facts);
    bool force;              /* run what does not fit, with a warning */
    bool fall_back;          /* when the device fails, warn and continue on the host; with several sequences only while opening */
    int64_t fail_allocation; /* drills: see apr_cuda_options */
    void (*on_warning)(void *user, const char *sentence); /* may be NULL */
    void *user;
    const atomic_bool *is_cancelled; /* true: evaluations end soon with APR_E_NO; NULL: never */
} apr_session_options;

extern const apr_session_options apr_session_defaults; /* apr_plan_defaults, but n_batch 0, 256 bytes of stack, all threads, host */

/* The model must be canonical (Hugging Face's names). APR_E_DAMAGED: a tensor is missing or has another shape;
 * APR_E_UNSUPPORTED: family, operation, dtype or tensor that cannot be run; APR_E_MEMORY: does not fit. */
apr_status apr_session_open(apr_session **session, const apr_model *model, const apr_session_options *options, apr_error *err);
/* APR_E_NO: the session's caller has cancelled. For loops of long work between evaluations. */
apr_status apr_session_go_on(const apr_session *session, apr_error *err);
/* Opens with the options of another session, including its plan's context size. */
apr_status apr_session_open_like(apr_session **session, const apr_model *model, const apr_session *like, apr_error *err);
/* Opens the model of another session for n_sequences sequences that share kv_cells positions, with its options, context size, batch size
 * and exactness, and n_sequences rows of logits. On the host a sequence has the numbers that `like` has for the same tokens in the same
 * calls, a step being a call for one token of each sequence. */
apr_status apr_session_open_sequences_like(apr_session **session, const apr_session *like, int64_t n_sequences, int64_t kv_cells,
                                           apr_error *err);
void apr_session_close(apr_session *session); /* NULL is fine */

/* Writes other numbers over the model's tensor of that name on the session's device: `with` has its type and shape, and its bytes in order.
 * Rows that are looked up on the host are read from the model and not written. APR_E_UNSUPPORTED: not on one device, or a weight that has
 * scales or another layout there. */
apr_status apr_session_rewrite(apr_session *session, const char *name, const apr_tensor *with, apr_error *err);
/* The plan that opening would make: of the first place where it does not fit, else of the first place. Nothing is allocated, no device
 * context is made, no weight is read (a tensor's `data` must not be NULL). The plan says whether it fits, and the caller closes it. For
 * a device that other processes use it is a snapshot. */
apr_status apr_session_forecast(apr_plan *plan, const apr_model *model, const apr_session_options *options, apr_error *err);

/* "host", "ref", "cuda", "cuda and host": what the next evaluation runs on. */
const char *apr_session_backend_name(const apr_session *session);
/* The plan of the only place, or the first. Context, batch and types are the same in all places; only the memory differs. */
const apr_plan *apr_session_plan(const apr_session *session);
int apr_session_n_places(const apr_session *session);
const apr_plan *apr_session_place_plan(const apr_session *session, int place);
int apr_session_place_ordinal(const apr_session *session, int place); /* the place's device; -1: the host */
/* What a decoded token reads, and what it moves between places (nothing if there is one place). Zeros when out of memory. */
apr_partition_cost apr_session_cost(const apr_session *session);
const apr_program *apr_session_program(const apr_session *session);
/* Tokens evaluated so far: the position of the next one. */
int64_t apr_session_position(const apr_session *session);
/* Forgets all tokens. Recurrent states become zeros when the next token comes. */
void apr_session_reset(apr_session *session);

/* Keeps the common prefix of `held` (the apr_session_position tokens evaluated so far) and `wanted`, and drops the later tokens. The
 * caller then evaluates the rest of `wanted`, which is at least its last token. Returns how many tokens stay. It is 0 where the model
 * cannot go back: recurrent states are those after the last token, and a sliding window may have lost earlier cells. With several
 * sequences it is also 0, because pages may be shared. */
int64_t apr_session_keep_prefix(apr_session *session, const int32_t *held, const int32_t *wanted, int64_t n_wanted);

typedef struct apr_kept apr_kept; /* runtime/session/kept.h */

/* Outputs besides the last token's logits. NULL or a zeroed struct asks for none. */
typedef struct apr_eval_output {
    bool all_logits; /* of every token; otherwise of the last */
    float *logits;   /* NULL, or a buffer [all_logits ? n_ids : 1, vocab_size] */
    float *hidden;   /* NULL, or a buffer [program->n_taps, n_ids, hidden_size] */
    /* NULL, or the top-k request for the last token's logits (kernels/topk.h), filled in. The logits then stay on the device unless
     * another output needs them; apr_session_logits is NULL until apr_session_read_logits downloads them. */
    apr_topk *best;
    /* NULL, or called with rows of logits as they are computed, starting at token `first` of this call. Its failure ends the call. */
    apr_status (*on_logits)(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err);
    /* NULL, or called instead of on_logits where the logits are on a device: they are in its memory, and the work that makes them is
     * queued. They are not copied to the host. */
    apr_status (*on_device_logits)(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err);
    /* Only for apr_session_step. NULL, or called for each row once best[row] is filled in; `best` then has one request per row. During
     * the call that row is the last token, so its logits can be read. Its failure ends the call. */
    apr_status (*on_topk)(void *user, int64_t row, const apr_topk *best, apr_error *err);
    const apr_kept *kept; /* NULL, or which values are kept, or where the evaluation begins with such */
    void *user;
} apr_eval_output;

/* Evaluates the next n_ids tokens of the sequence; n_ids may be 0. APR_E_NO: the context, or the cache that sequences share, is too
 * full, and nothing is evaluated. APR_E_USAGE: an id is outside the vocabulary. */
apr_status apr_session_eval(apr_session *session, const int32_t *ids, size_t n_ids, const apr_eval_output *out, apr_error *err);

/* --- several sequences: 0, 1, ... --- */

int64_t apr_session_n_sequences(const apr_session *session);
/* Selects the sequence for evaluation, position and reset; 0 at first. Does nothing where there is only one sequence. */
void apr_session_use(apr_session *session, int64_t sequence);

/* Can a prompt's tokens be rows of steps? Only if the model's states are all keys and values. */
bool apr_session_can_step_prompts(const apr_session *session);

typedef struct apr_sequence_token {
    int64_t sequence;
    int32_t id; /* its next token's id */
} apr_sequence_token;

/* Evaluates one token of each of some sequences. Each has been started by apr_session_eval and occurs at most once. Where prompts may be
 * rows of steps (apr_session_can_step_prompts), a sequence may also start here, and may have several consecutive tokens in adjacent rows;
 * how they are divided into steps changes no number. out->on_logits and out->logits get all rows in the order of `rows`, or out->on_topk
 * the top tokens of each. Hidden states are not available. APR_E_NO: a context or the cache is full, and nothing is evaluated. */
apr_status apr_session_step(apr_session *session, const apr_sequence_token *rows, int64_t n_rows, const apr_eval_output *out,
                            apr_error *err);

/* Makes `to` a sequence that has evaluated the first n_positions (whole pages) of `from`, in the same memory. APR_E_USAGE: `from` has
 * fewer positions; or it has more, and the model keeps only the latest state (windows, recurrent states). */
apr_status apr_session_share(apr_session *session, int64_t from, int64_t to, int64_t n_positions, apr_error *err);
bool apr_session_can_share_prefix(const apr_session *session); /* can n_positions be less than `from` has? */
/* Free pages of the cache; 0 where there is one sequence. */
int64_t apr_session_free_pages(const apr_session *session);

/* Switches exact products on or off. By default a device rounds the inputs of products of more than a few tokens to FP16, and those of
 * single-token GEMVs to 15 bits; the host does the latter with packed weights. Exact products read packed weights and float32 inputs,
 * and are slower. No effect where weights are decoded to FP16 tiles (no_direct). */
void apr_session_set_exact(apr_session *session, bool exact);
bool apr_session_is_exact(const apr_session *session);

/* [vocab_size] logits of the last token; valid until the next evaluation. */
const float *apr_session_logits(const apr_session *session);
/* Downloads them if they are still on a device. APR_E_USAGE: nothing has been evaluated. */
apr_status apr_session_read_logits(apr_session *session, apr_error *err);
/* Reads logits [first, first + n) alone into to[n]. */
apr_status apr_session_read_some_logits(apr_session *session, int64_t first, int64_t n, float *to, apr_error *err);

/* Bytes that were allocated (or mapped, for the weights), to compare with the plan's lines. On a device: as requested. On the host: the
 * real block sizes. */
typedef struct apr_session_usage {
    uint64_t weights, materialised, copies, vectors, states, activations, logits, workspace;
    uint64_t driver;  /* growth of the card's used memory since before the context; 0: no device, or unknown */
    int blas_version; /* cuBLAS, as 130002; 0: not used */
    /* Opening: seconds for contexts, handles and memory of devices; seconds and bytes of the upload of weights. */
    double device_s, upload_s;
    uint64_t uploaded;
} apr_session_usage;
apr_session_usage apr_session_used(const apr_session *session); /* of all places */

/* The plan compared with what was counted so far: the session's allocations on the host, the card's total on a device. */
typedef struct apr_session_memory {
    apr_place on;
    uint64_t mapped;   /* host only: weights read from the mapped file; not part of the two below */
    uint64_t tables;   /* host only: program, plan and bindings, not known to the plan; part of `planned` */
    uint64_t planned;  /* the plan's lines without the headroom */
    uint64_t measured; /* growth of the heap in opening and evaluating, or of the card's memory; UINT64_MAX: not counted */
    uint64_t allowed;  /* tolerance between the two */
    bool as_planned;   /* also if the memory planned for a graph is unused because none is recorded; false when not counted */
} apr_session_memory;

/* Tolerances: arenas grow by chunks and large blocks by pages; a driver allocates 2 MiB at a time. */
enum { APR_HOST_SLACK_BYTES = 1 << 18, APR_DEVICE_SLACK_BYTES = 1 << 22 };

/* All cards together where there are several places; as_planned then means that every place is as planned. */
apr_session_memory apr_session_check_memory(const apr_session *session);
/* One place. On a device: everything that the session has on its card. */
apr_session_memory apr_session_place_memory(const apr_session *session, int place);

#endif
