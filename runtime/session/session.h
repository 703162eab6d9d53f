/* runtime/session/session.h - a model that can be run: program, plan, memory, and the position in one sequence of tokens.
 *
 * Opening emits the program, makes the plan and refuses what does not fit before the first allocation; then it allocates
 * exactly the plan's lines. Weights stay in the model's map, which must outlive the session; a device has its own copy of
 * them. One thread at a time.
 *
 * Several sequences can be kept at once, in one place (options.n_sequences): apr_session_use says which one a call is about, and
 * apr_session_step takes a token of each of many. A sequence's numbers do not depend on which others there are, nor on what is evaluated
 * beside it: they follow from its own tokens and how its prompt was cut in calls.
 *
 * A session has one place where everything is, or several: devices, and the host for what is offloaded from them (plan/partition.h). Each
 * has its own plan, its own memory and the weights of its operations; values are copied where another place reads them.
 *
 * What was allocated is not taken from the plan: on the host the C library's own count of its heap is read before and after the
 * session allocates or evaluates, on a device the driver's. So a buffer that no line of the plan names is seen. */
#ifndef APR_RUNTIME_SESSION_H
#define APR_RUNTIME_SESSION_H

#include "kernels/cuda/api.h"
#include "runtime/plan/plan.h"

typedef struct apr_session apr_session;

typedef struct apr_session_options {
    int64_t n_ctx;              /* 0: the model's own, at most 4096 */
    int64_t n_batch;            /* tokens of a prompt evaluated at a time; 0: as many as there is room for, see apr_plan_set_pace */
    int64_t n_logits;           /* rows of logits kept at a time */
    int64_t n_sequences;        /* 0: one. Several are kept on the host or on one device, where that is the only place */
    int64_t kv_cells;           /* see apr_plan_options */
    apr_dtype kv_dtype;         /* one of apr_kv_dtypes */
    uint64_t budget_bytes;      /* host memory; 0: not judged */
    int n_threads;              /* 0: all; at most 4 for each processor are used */
    const char *weights_lie;    /* for the plan's reasons, where the model's are; NULL: "mapped from the file" */
    const apr_backend *backend; /* NULL: the host's */

    /* A CUDA device, when cuda is not NULL: weights are copied there and everything is computed there. */
    const apr_cuda_api *cuda;
    int ordinal;
    int n_devices;                  /* several: the program is split over them, in this order; 0 or 1: the one of `ordinal` */
    int ordinals[APR_MOST_DEVICES]; /* [n_devices]; the same more than once: parts that share a card */
    apr_offload offload;            /* what is computed on the host all the same; budget_bytes judges what it takes there */
    uint64_t headroom_bytes;        /* of the device's free memory, left free */
    uint64_t stack_bytes;           /* of the CUDA context */
    uint64_t (*available)(void);    /* memory of the host that is to be had, for devices that share it; NULL, 0: the driver is asked */
    bool no_direct;                 /* without kernels that read packed weights: FP16 copies where they fit, else tile by tile */
    bool no_replay;                 /* a decoded token's operations are started one by one, and never recorded to be run again at once */
    bool no_fusion; /* nor put together: what stands around a product, of a token or of a prompt, is an operation of its own */
    bool exact;     /* begin with exact products: see apr_session_set_exact */
    /* NULL: never. Asked once, when there are FP8 weights and a device: may products be made in FP8? (A probe knows.) */
    bool (*may_use_fp8)(void *user, const apr_cuda_facts *facts);
    bool force;              /* run what does not fit, with a warning */
    bool fall_back;          /* when the device fails, warn and go on on the host; with several sequences: when opened */
    int64_t fail_allocation; /* drills: see apr_cuda_options */
    void (*on_warning)(void *user, const char *sentence); /* may be NULL */
    void *user;
} apr_session_options;

extern const apr_session_options apr_session_defaults; /* those of apr_plan_defaults but n_batch 0, 256 bytes of stack, all threads, host */

/* The model must be canonical (Hugging Face's names). APR_E_DAMAGED: a tensor is missing or has another shape;
 * APR_E_UNSUPPORTED: family, operation, dtype or tensor that cannot be run; APR_E_MEMORY: does not fit. */
apr_status apr_session_open(apr_session **session, const apr_model *model, const apr_session_options *options, apr_error *err);
/* With the options of another session, its plan's sizes among them. */
apr_status apr_session_open_like(apr_session **session, const apr_model *model, const apr_session *like, apr_error *err);
void apr_session_close(apr_session *session); /* NULL is fine */

/* The plan that opening would make, of the first place that it does not fit, or else of the first: nothing is allocated, no context is made
 * on a device, no weight is read (a tensor's `data` must not be NULL). Whether it fits stands in the plan, which the caller closes; of a
 * device that other processes use it is a snapshot. */
apr_status apr_session_forecast(apr_plan *plan, const apr_model *model, const apr_session_options *options, apr_error *err);

/* "host", "ref", "cuda", "cuda and host": what the next evaluation will run on. */
const char *apr_session_backend_name(const apr_session *session);
/* Of the only place, or the first; what is no memory (context, batch, types) is the same in all. */
const apr_plan *apr_session_plan(const apr_session *session);
int apr_session_n_places(const apr_session *session);
const apr_plan *apr_session_place_plan(const apr_session *session, int place);
int apr_session_place_ordinal(const apr_session *session, int place); /* of its device; -1: the host */
/* What a decoded token reads and moves; nothing crosses where there is one place. Zeros without memory to count. */
apr_partition_cost apr_session_cost(const apr_session *session);
const apr_program *apr_session_program(const apr_session *session);
/* Tokens evaluated so far: the position of the next one. */
int64_t apr_session_position(const apr_session *session);
/* Forgets all tokens; states that are numbers are zeros again when the next one comes. */
void apr_session_reset(apr_session *session);

/* Goes back as far as `wanted` begins like `held`, the tokens that were evaluated (apr_session_position of them), so that the rest of `wanted`
 * can be evaluated next: at least its last token is. Returns how many stay. None stay where the model cannot go back: recurrent states are
 * those after the last token, and a sliding window may have lost what was visible before; of several sequences pages may be shared. */
int64_t apr_session_keep_prefix(apr_session *session, const int32_t *held, const int32_t *wanted, int64_t n_wanted);

/* What is wanted besides the last token's logits; a zeroed one, or NULL, wants nothing. */
typedef struct apr_eval_output {
    bool all_logits; /* of every token; otherwise of the last */
    float *logits;   /* NULL, or room for [all_logits ? n_ids : 1, vocab_size] */
    float *hidden;   /* NULL, or room for [program->n_taps, n_ids, hidden_size] */
    /* NULL, or what is wanted of the last token's logits (kernels/best.h), filled in. A device's logits stay where they are then, unless
     * they are wanted by something else: apr_session_logits is NULL until apr_session_read_logits brings them. */
    apr_best *best;
    /* NULL, or called with rows of logits as they come: token `first` of this call onwards. Its failure ends the call. */
    apr_status (*on_logits)(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err);
    /* Of a step alone: NULL, or called for each row when `best`, which has a wish for each row then, is filled in for it; meanwhile it is
     * the last token, whose logits can be read. Its failure ends the call. */
    apr_status (*on_best)(void *user, int64_t row, const apr_best *best, apr_error *err);
    void *user;
} apr_eval_output;

/* Evaluates the next n_ids tokens of the sequence. APR_E_NO when the context, or the cache that
 * sequences share, has no room for them (nothing is evaluated then), APR_E_USAGE for ids outside the vocabulary. n_ids 0 is nothing to do.
 */
apr_status apr_session_eval(apr_session *session, const int32_t *ids, size_t n_ids, const apr_eval_output *out, apr_error *err);

/* --- several sequences: 0, 1, ... --- */

int64_t apr_session_n_sequences(const apr_session *session);
/* From now on evaluation, position and reset are of that sequence. At first it is 0; where there is but one, nothing is done. */
void apr_session_use(apr_session *session, int64_t sequence);

/* May a prompt's tokens be rows of steps? Where all that is kept are keys and values. */
bool apr_session_steps_prompts(const apr_session *session);

typedef struct apr_sequence_token {
    int64_t sequence;
    int32_t id; /* its next token */
} apr_sequence_token;

/* Evaluates one token of each of some sequences, which have been begun by apr_session_eval; each at most once. Where prompts may be rows of
 * steps, a sequence may begin so, and may have several rows side by side, its tokens one behind the other; in how many steps they come
 * changes nothing. out->on_logits and out->logits get all rows, in the order of `rows`, or out->on_best what is likeliest of each; hidden
 * states are not to be had. APR_E_NO: a context, or the cache, is full (nothing is evaluated then). */
apr_status apr_session_step(apr_session *session, const apr_sequence_token *rows, int64_t n_rows, const apr_eval_output *out,
                            apr_error *err);

/* `to` becomes a sequence that has the first n_positions of `from` evaluated, in the same memory: whole pages. APR_E_USAGE where `from` has
 * not so many, or more and the model keeps of them only what the last left (windows, recurrent states). */
apr_status apr_session_share(apr_session *session, int64_t from, int64_t to, int64_t n_positions, apr_error *err);
bool apr_session_shares_anywhere(const apr_session *session); /* fewer than `from` has, too */
/* Pages of the cache that no sequence has; 0 where there is one sequence. */
int64_t apr_session_free_pages(const apr_session *session);

/* A device rounds the inputs of products of more than a few tokens to FP16, and those of a single token that stream to 15 bits; the host
 * does the latter with packed weights. From now on not: all are made from packed weights and float32 inputs,
 * slower. No difference where weights are FP16 tiles (no_direct). */
void apr_session_set_exact(apr_session *session, bool exact);
bool apr_session_is_exact(const apr_session *session);

/* [vocab_size] logits of the last token; valid until the next evaluation. */
const float *apr_session_logits(const apr_session *session);
/* Brings them to the host where they have been left on a device. APR_E_USAGE: nothing has been evaluated. */
apr_status apr_session_read_logits(apr_session *session, apr_error *err);
/* The same of some of them alone, into to[n]. */
apr_status apr_session_read_some_logits(apr_session *session, int64_t first, int64_t n, float *to, apr_error *err);

/* Bytes that were allocated (or mapped, for the weights), to hold against the plan's lines: of a device as asked for, of the host
 * as the blocks really are. */
typedef struct apr_session_usage {
    uint64_t weights, materialised, copies, vectors, states, activations, logits, workspace;
    uint64_t driver;  /* what the card's memory in use has grown by since before the context; 0: no device, or not known */
    int blas_version; /* cuBLAS, as 130002; 0: not used */
    /* How the session was opened: seconds for contexts, handles and memory of devices; for weights on their way there, and their bytes. */
    double device_s, upload_s;
    uint64_t uploaded;
} apr_session_usage;
apr_session_usage apr_session_used(const apr_session *session); /* of all places */

/* The verdict about memory so far: on the host about what was allocated, on a device about all that the card reports. */
typedef struct apr_session_memory {
    apr_place on;
    uint64_t mapped;   /* on the host: the weights, which are read where the file is mapped; part of neither of the next two */
    uint64_t tables;   /* on the host: program, plan and bindings, which no plan knows beforehand; part of `planned` */
    uint64_t planned;  /* the lines that are allocated, without the headroom */
    uint64_t measured; /* what the heap grew by in opening and evaluating, or the card's memory; UINT64_MAX: nobody counts */
    uint64_t allowed;  /* between the two, for rounding */
    bool as_planned;   /* also with less, by what is kept for a recorded token while none is; false too when nobody counts */
} apr_session_memory;

/* What rounding may cost: arenas grow by chunks and large blocks by pages; a driver gives out 2 MiB at a time. */
enum { APR_HOST_SLACK_BYTES = 1 << 18, APR_DEVICE_SLACK_BYTES = 1 << 22 };

/* Of all cards together where there are several places; as planned is then what every place is. */
apr_session_memory apr_session_check_memory(const apr_session *session);
/* Of one: of a device, whatever the session has on its card. */
apr_session_memory apr_session_place_memory(const apr_session *session, int place);

#endif
