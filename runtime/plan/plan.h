/* runtime/plan/plan.h - every byte that a run will allocate, each line with its reason.
 *
 * A plan needs a program, not a model: aprplan makes one for a config.json and a GPU that is somewhere else. A session
 * makes the same plan and allocates exactly its lines, so every run checks the prediction.
 *
 * Places: weights as in an APR file's data section (each padded to 64 bytes; on a device the experts of a layer in one stack); what
 * is multiplied in another order than the file has it is put in order in memory, on a device on the way there; states (keys and values) in
 * one arena; activations in one arena where values share memory when they do not live at the same time. An activation's offset and size are
 * multiples of its share of one token, so the places are found once and scales with the batch.
 *
 * A driver gives memory in blocks: on a device each allocation is rounded up to them, and a line says by how much altogether.
 *
 * Where a program is split (partition.h) each place has a plan of its own, of the operations there: their weights, states and workspace,
 * the values that are made there or copied there, and the logits where the head is. */
#ifndef APR_RUNTIME_PLAN_H
#define APR_RUNTIME_PLAN_H

#include "runtime/plan/gpus.h"
#include "runtime/plan/partition.h"

/* What a slot's numbers are where they are not simply of its tensors' type. */
typedef struct apr_weight_note {
    const char *scheme; /* "GPTQ, 4 bits": how they are packed; NULL: they are not */
    bool decoded;       /* a device cannot read them as they are stored and gets FP16 */
} apr_weight_note;

/* How much a device does at a time: tokens evaluated, and bytes of FP16 weights decoded for products of many of them. More is faster,
 * and takes more memory. */
typedef struct apr_plan_pace {
    int64_t n_batch;
    uint64_t tile_bytes;
} apr_plan_pace;

typedef struct apr_plan_options {
    int64_t n_ctx;         /* positions a sequence can have; 0: the model's own, at most 4096 */
    int64_t n_batch;       /* tokens evaluated at a time */
    uint64_t tile_bytes;   /* see apr_plan_pace; 0: APR_CUDA_TILE_BYTES */
    int64_t wanted_batch;  /* what n_batch was lowered from, for the reason; 0: it was not */
    apr_plan_pace slowest; /* what max_ctx may count on; zeros: n_batch and tile_bytes */
    int64_t n_logits;      /* rows of logits kept at a time */
    int64_t n_sequences;
    int64_t kv_cells;        /* of several sequences: positions that they have together, in whole pages; 0: n_ctx for each */
    apr_dtype kv_dtype;      /* one of apr_kv_dtypes */
    const apr_gpu *gpu;      /* NULL: everything is on the host */
    uint64_t budget_bytes;   /* where the weights go: host memory (0: not judged) or the device's (0: all its VRAM) */
    uint64_t headroom_bytes; /* left free on a device */
    uint64_t stack_bytes;    /* of the CUDA context */
    int n_threads;           /* host workspace */
    const char *weights_lie; /* where they are on the host, for the reason; NULL: "mapped from the file" */
    /* [program->n_weights] bytes of each slot in the file (scales included), 0: not there. NULL: 16-bit numbers, and
     * nothing optional. */
    const uint64_t *weight_bytes;
    const uint64_t *made_bytes; /* [program->n_weights] of them, of tensors that are made of others; NULL: none is */
    /* [program->n_weights] what experts' stacks take besides on a device where their rows are filled up (apr_plan_filled_weights); NULL:
     * they are not, and products of theirs are slow. */
    const uint64_t *filled_bytes;
    bool no_replay; /* on a device: no token's operations are recorded */
    bool copies;    /* on a device: an FP16 copy of each packed matrix beside it, for kernels that cannot read the packed one */
    const apr_dtype *weight_dtypes;      /* [program->n_weights] on a device; NULL: none is F16, all are decoded in tiles */
    const apr_weight_note *weight_notes; /* [program->n_weights], for the reasons; NULL: there are none */
    /* The plan of one place; the weights' bytes are those of that place (apr_partition_keep_weights). NULL: everything is in one. */
    const apr_partition *partition;
    int place;
    bool shares_card; /* context and headroom are lines of another place's plan, on the same card */
    /* Of a GPU that shares the host's memory: what the system and other programs take of it. 0: the budget leaves that out already. */
    uint64_t system_bytes;
    bool no_largest; /* max_ctx is not wanted, and stays 0 */
} apr_plan_options;

/* Keys and values of several sequences are pages that any of them may have, so they need not have room for n_ctx each; sliding windows and
 * states of constant size are there once for each sequence. */

/* n_batch 512, n_logits 16, 1 sequence, f16, 1 GiB of headroom, the default stack of gpus.h, 1 thread */
extern const apr_plan_options apr_plan_defaults;

/* Paces to try, from the fastest down, when so many tokens at a time are asked for: exactly those, or with 0 as many as there is room for,
 * at most APR_DEVICE_BATCH on a device and APR_HOST_BATCH without one. The second sets the i-th. */
enum { APR_DEVICE_BATCH = 2048, APR_HOST_BATCH = 512 };
int apr_plan_n_paces(int64_t asked_batch, bool has_device);
void apr_plan_set_pace(apr_plan_options *options, int64_t asked_batch, bool has_device, int i);

/* X(id, key, label), after the weights of APR_ROLE_LIST; the order in which a plan lists them */
#define APR_PLAN_LIST(X)                                            \
    X(CONTEXT, "context", "CUDA context")                           \
    X(CUBLAS_HANDLE, "cublas.handle", "cuBLAS handle")              \
    X(CUBLAS_WORKSPACE, "cublas.workspace", "cuBLAS workspace")     \
    X(FILLED, "weights.filled", "rows of experts filled up")        \
    X(MATERIALISED, "weights.materialised", "weights put in order") \
    X(COPIES, "weights.copies", "FP16 copies of packed weights")    \
    X(F32_VECTORS, "vectors", "norms and biases as float32")        \
    X(KV, "kv", "keys and values")                                  \
    X(KV_LATENT, "kv.latent", "latent cache")                       \
    X(KV_WINDOW, "kv.window", "keys and values, sliding window")    \
    X(RECURRENT, "recurrent", "recurrent state")                    \
    X(KV_ORDERED, "kv.ordered", "pages put in order")               \
    X(STEP, "step", "table of a step")                              \
    X(ACTIVATIONS, "activations", "activations")                    \
    X(LOGITS, "logits", "logits")                                   \
    X(WORKSPACE, "workspace", "workspace")                          \
    X(RECORDED, "recorded", "a recorded token")                     \
    X(ROUNDING, "rounding", "rounding of the driver")               \
    X(HEADROOM, "headroom", "headroom")                             \
    X(SYSTEM, "system", "system")                                   \
    X(HOST_LOGITS, "host.logits", "copy of the logits")             \
    X(HOST_STEP, "host.step", "copy of a step's table")             \
    X(HOST_TABLES, "host.tables", "tables read on the host")        \
    X(HOST_ROWS, "host.rows", "rows on their way to the device")

typedef enum {
#define X(id, key, label) APR_LINE_WEIGHTS_##id,
    APR_ROLE_LIST(X)
#undef X
#define X(id, key, label) APR_LINE_##id,
        APR_PLAN_LIST(X)
#undef X
            APR_LINE_COUNT
} apr_line_id;

typedef struct apr_plan_line {
    apr_line_id id;
    const char *key, *label;
    uint64_t bytes;
    apr_place on;
    const char *reason; /* how the number comes about */
} apr_plan_line;

/* The largest context that is looked for: where it fits, so does any that a model can have. */
#define APR_ANY_CONTEXT ((int64_t)1000000000)

/* Inputs of products that stream, alive at once (kernels/cuda/flow_args.h). */
enum { APR_PLANES_SLOTS = 8 };

typedef struct apr_plan {
    apr_plan_line lines[APR_LINE_COUNT]; /* [n_lines], without those of 0 bytes */
    size_t n_lines;
    int64_t n_ctx, n_batch, n_logits, n_sequences; /* as decided */
    int64_t n_pages; /* of APR_PAGE_CELLS positions each, which several sequences share; 0: there is one, whose cells are in order */
    apr_dtype kv_dtype;

    /* the verdict, about the place where the weights are */
    apr_place judged;
    uint64_t host_bytes, device_bytes; /* sums of the lines */
    bool is_shared;                    /* host and device have one memory */
    uint64_t taken_bytes;              /* of the judged memory: of both sums where they share it */
    uint64_t budget_bytes;             /* 0: not judged, fits */
    bool fits;
    uint64_t short_bytes; /* missing when it does not fit */
    int breaking;         /* index of the first line that goes over the budget; -1 when it fits */
    int64_t max_ctx;      /* the largest n_ctx that fits, whatever was asked for; 0: none. Not judged: the model's own */
    int64_t own_ctx;      /* positions that the model was made for; 0: it does not say */

    /* the places */
    int64_t *value_offsets;   /* [n_values] floats a token into the activations; -1: logits, or never here */
    int64_t activation_width; /* floats a token of the whole arena */
    uint64_t *state_offsets;  /* [n_states] bytes into the states; 0 of one that is not here */
    int64_t *state_cells;     /* [n_states] cells of KV kinds: of all sequences where they are in pages */
    uint64_t *state_strides;  /* [n_states] bytes from one sequence's to the next; 0: all sequences' are in pages */
    uint64_t states_bytes;
    /* Of several sequences on a device, behind the states: one's keys and values in order, so many cells of each of the widest layer; and
     * what it is told of a step (step_table.h). */
    uint64_t ordered_offset, step_offset;
    int64_t n_ordered;
    int64_t *vector_offsets; /* [n_weights] floats into the float32 vectors; -1: not a vector, or not there */
    int64_t *copy_offsets;   /* [n_weights] bytes into the FP16 copies; -1: has none */
    int64_t *rope_offsets;   /* [n_ropes] floats into the float32 vectors; -1: not here */
    uint64_t planes_slot;    /* bytes of each of APR_PLANES_SLOTS inputs of products that stream, behind a device's workspace */
    size_t workspace_slice;  /* floats of each thread on the host, of the one buffer on a device */
    size_t workspace_shared; /* floats behind the slices, on the host: of all threads of an operation */
    apr_arena arena;
} apr_plan;

/* Positions that a plan has when so many are asked for (apr_plan_options.n_ctx), and tokens at a time. */
int64_t apr_plan_context(const apr_program *program, int64_t asked);
int64_t apr_plan_batch(const apr_program *program, int64_t asked_ctx, int64_t asked_batch);

apr_status apr_plan_make(apr_plan *plan, const apr_program *program, const apr_plan_options *options, apr_error *err);
void apr_plan_close(apr_plan *plan);

/* The line of that id, or NULL. */
const apr_plan_line *apr_plan_line_of(const apr_plan *plan, apr_line_id id);

/* Bytes of a tensor where a file has it, padded to 64: with the scales of FP8; of a packed matrix its share of all parts. */
uint64_t apr_plan_tensor_bytes(const apr_tensor *tensor);
/* Fills bytes[program->n_weights] as 16-bit numbers take them, nothing optional. */
void apr_plan_usual_weights(const apr_program *program, uint64_t *bytes);
/* Fills bytes[program->n_weights] from a model's tensors: apr_plan_tensor_bytes of each, 0 for missing ones. */
void apr_plan_model_weights(const apr_program *program, const apr_model *model, uint64_t *bytes);
/* The same of those only that do not lie in the file as they are wanted (apr_tensor.made). */
void apr_plan_made_weights(const apr_program *program, const apr_model *model, uint64_t *bytes);
/* Fills bytes[program->n_weights] with what a device's copy of each takes besides when rows of experts that end within an item are filled
 * up (kernels/cuda/flow_args.h), of stacks whose operation has kernels that want them so; else 0. dtypes: of each weight on the device. */
void apr_plan_filled_weights(const apr_program *program, const apr_dtype *dtypes, uint64_t *bytes);
/* Of each state with those options (n_ctx as in apr_plan_options), of one sequence. */
void apr_plan_states_bytes(const apr_program *program, apr_dtype kv_dtype, int64_t n_ctx, int64_t n_batch, uint64_t *bytes);
/* Bytes of a slot when it is stored as dtype (16-bit floats for a dtype that its rows do not divide into), padded. */
uint64_t apr_plan_slot_bytes(const apr_weight_slot *slot, apr_dtype dtype);

/* What keys and values can be kept as, and the names of these in the same order. FP8 is plain E4M3, without scales: it
 * saturates at 448. */
#define APR_KV_NAMES "f16|f32|q8_0|fp8"
enum { APR_KV_DTYPES = 4 };
extern const apr_dtype apr_kv_dtypes[APR_KV_DTYPES];

/* Bytes of one head's row in the cache, or -1. */
int64_t apr_kv_row_bytes(apr_dtype dtype, int64_t head_dim);

#endif
