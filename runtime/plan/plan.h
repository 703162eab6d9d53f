/* runtime/plan/plan.h - every byte that a run will allocate, as lines with a reason each.
 *
 * A plan needs a program, not a model: aprplan plans for a config.json and a GPU that is elsewhere. A session makes the same plan and
 * allocates exactly its lines, so every run checks the prediction.
 *
 * Weights are stored as in an APR file's data section, each padded to 64 bytes; on a device the experts of a layer are one stack. Weights
 * that the file stores in another form are composed in memory, or on the way to the device. States (keys and values) share one arena.
 * Activations share another one, in which values reuse memory when they are not alive together. An activation's offset and size are
 * multiples of its share of one token, so the layout is computed once and scales with the batch.
 *
 * Drivers allocate memory in blocks. On a device each allocation is rounded up to blocks, and one line has the sum of the rounding.
 *
 * If a program is split (partition.h) each place has its own plan for its operations: their weights, states and workspace, the values
 * that are computed or copied there, and the logits at the head's place. */
#ifndef APR_RUNTIME_PLAN_H
#define APR_RUNTIME_PLAN_H

#include "runtime/plan/gpus.h"
#include "runtime/plan/partition.h"

/* How a slot's weights are stored, where the tensors' type does not tell. */
typedef struct apr_weight_note {
    const char *scheme; /* packing: "GPTQ, 4 bits"; NULL: not packed */
    bool decoded;       /* a device cannot read the stored form and gets FP16 */
} apr_weight_note;

/* How much a device does at once: tokens per batch, and bytes of FP16 weights that are decoded at a time for GEMMs. More is faster and
 * takes more memory. */
typedef struct apr_plan_speed {
    int64_t n_batch;
    uint64_t tile_bytes;
} apr_plan_speed;

typedef struct apr_plan_options {
    int64_t n_ctx;          /* positions per sequence; 0: the model's own context, at most 4096 */
    int64_t n_batch;        /* tokens per batch */
    uint64_t tile_bytes;    /* see apr_plan_speed; 0: APR_CUDA_DEQUANTIZED_BYTES */
    int64_t wanted_batch;   /* the batch size before it was lowered, for the reason; 0: not lowered */
    apr_plan_speed slowest; /* the pace that max_ctx may assume; zeros: n_batch and tile_bytes */
    int64_t n_logits;       /* rows of logits kept at a time */
    int64_t n_sequences;
    int64_t kv_cells;             /* several sequences: positions that they share, in whole pages; 0: n_ctx for each */
    apr_dtype kv_dtype;           /* one of apr_kv_dtypes */
    const apr_gpu *gpu;           /* NULL: everything runs on the host */
    uint64_t budget_bytes;        /* memory for the weights' place: the host's (0: not checked) or the device's (0: all its VRAM) */
    uint64_t headroom_bytes;      /* left free on a device */
    uint64_t stack_bytes;         /* of the CUDA context */
    int n_threads;                /* host workspace */
    const char *weights_location; /* location of host weights, for the reason; NULL: "mapped from the file" */
    /* [program->n_weights] bytes of each slot in the file (scales included), 0: absent. NULL: 16-bit numbers, without optional weights. */
    const uint64_t *weight_bytes;
    const uint64_t *composed_bytes; /* [program->n_weights] the part of weight_bytes that is composed from other tensors; NULL: none */
    /* [program->n_weights] padding of weights on a device (apr_plan_padded_weights). NULL: rows are not padded, and their products
     * are slow. */
    const uint64_t *padding_bytes;
    bool no_replay;                      /* on a device: no CUDA graph is recorded */
    bool copies;                         /* on a device: an FP16 copy of each packed matrix, for kernels that cannot read packed weights */
    const apr_dtype *weight_dtypes;      /* [program->n_weights] on a device; NULL: none is F16, all are decoded in tiles */
    const apr_weight_note *weight_notes; /* [program->n_weights], for the reasons; NULL: none */
    /* For the plan of one place; weight_bytes must be those of that place (apr_partition_keep_weights). NULL: there is only one place. */
    const apr_partition *partition;
    int place;
    bool shares_card; /* context and headroom are in another place's plan, on the same card */
    /* For an integrated GPU: memory that the system and other programs use. 0: the budget excludes it already. */
    uint64_t system_bytes;
    bool no_largest; /* do not compute max_ctx; it stays 0 */
} apr_plan_options;

/* Keys and values of several sequences are in pages that any sequence may use, so there need not be memory for n_ctx positions each.
 * Sliding windows and states of constant size exist once per sequence. */

/* n_batch 512, n_logits 16, 1 sequence, f16, 1 GiB of headroom, the default stack of gpus.h, 1 thread */
extern const apr_plan_options apr_plan_defaults;

/* The paces to try, from the fastest down. asked_batch > 0: exactly this batch size. 0: as many tokens as fit, at most APR_DEVICE_BATCH
 * on a device and APR_HOST_BATCH without one. apr_plan_set_speed sets the i-th pace. */
enum { APR_DEVICE_BATCH = 2048, APR_HOST_BATCH = 512 };
int apr_plan_n_speeds(int64_t asked_batch, bool has_device);
void apr_plan_set_speed(apr_plan_options *options, int64_t asked_batch, bool has_device, int i);

/* X(id, key, label): lines after the weights of APR_ROLE_LIST, in the order of a plan */
#define APR_PLAN_LIST(X)                                         \
    X(CONTEXT, "context", "CUDA context")                        \
    X(CUBLAS_HANDLE, "cublas.handle", "cuBLAS handle")           \
    X(CUBLAS_WORKSPACE, "cublas.workspace", "cuBLAS workspace")  \
    X(FILLED, "weights.filled", "padding of expert rows")        \
    X(MATERIALISED, "weights.materialised", "composed weights")  \
    X(COPIES, "weights.copies", "FP16 copies of packed weights") \
    X(F32_VECTORS, "vectors", "norms and biases as float32")     \
    X(KV, "kv", "keys and values")                               \
    X(KV_LATENT, "kv.latent", "latent cache")                    \
    X(KV_WINDOW, "kv.window", "keys and values, sliding window") \
    X(RECURRENT, "recurrent", "recurrent state")                 \
    X(KV_ORDERED, "kv.ordered", "gathered pages")                \
    X(STEP, "step", "batch table")                               \
    X(ACTIVATIONS, "activations", "activations")                 \
    X(LOGITS, "logits", "logits")                                \
    X(WORKSPACE, "workspace", "workspace")                       \
    X(RECORDED, "recorded", "CUDA graph")                        \
    X(ROUNDING, "rounding", "driver rounding")                   \
    X(HEADROOM, "headroom", "headroom")                          \
    X(SYSTEM, "system", "system")                                \
    X(HOST_LOGITS, "host.logits", "copy of the logits")          \
    X(HOST_STEP, "host.step", "copy of the batch table")         \
    X(HOST_TABLES, "host.tables", "tables read on the host")     \
    X(HOST_ROWS, "host.rows", "rows for the device")

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
    const char *reason; /* how the number is computed */
} apr_plan_line;

/* The upper limit of the search for max_ctx. No model has a longer context. */
#define APR_ANY_CONTEXT ((int64_t)1000000000)

/* Inputs of decode GEMVs that are alive at once (kernels/cuda/decode_gemv_args.h). */
enum { APR_ACTIVATIONS_I16_SLOTS = 8 };

typedef struct apr_plan {
    apr_plan_line lines[APR_LINE_COUNT]; /* [n_lines], without lines of 0 bytes */
    size_t n_lines;
    int64_t n_ctx, n_batch, n_logits, n_sequences; /* as decided */
    int64_t n_pages; /* KV pages (APR_PAGE_CELLS positions each) that several sequences share; 0: one sequence, with contiguous cells */
    apr_dtype kv_dtype;

    /* The result, for the place of the weights. */
    apr_place judged;
    uint64_t host_bytes, device_bytes; /* sums of the lines */
    bool is_shared;                    /* host and device share one memory */
    uint64_t taken_bytes;              /* bytes of the place that the budget applies to; both sums if memory is shared */
    uint64_t budget_bytes;             /* 0: not checked, always fits */
    bool fits;
    uint64_t short_bytes; /* bytes over the budget, if it does not fit */
    int breaking;         /* index of the first line over the budget; -1 if it fits */
    int64_t max_ctx;      /* the largest n_ctx that fits, whatever was asked; 0: none. Without a budget the model's own context */
    int64_t own_ctx;      /* positions that the model was trained for; 0: not stated */

    /* The offsets. */
    int64_t *value_offsets;   /* [n_values] floats per token into the activations; -1: logits, or not at this place */
    int64_t activation_width; /* floats per token of the whole arena */
    uint64_t *state_offsets;  /* [n_states] bytes into the states; 0 for a state of another place */
    int64_t *state_cells;     /* [n_states] cells of KV kinds; of all sequences if they are in pages */
    uint64_t *state_strides;  /* [n_states] bytes from one sequence's state to the next; 0: paged */
    uint64_t states_bytes;
    /* For several sequences on a device, after the states: the buffer where a sequence's keys and values are gathered in order
     * (n_gathered cells of the widest layer), and the batch table (batch_table.h). */
    uint64_t ordered_offset, step_offset;
    int64_t n_gathered;
    int64_t *vector_offsets;   /* [n_weights] floats into the float32 vectors; -1: not a vector, or absent */
    int64_t *copy_offsets;     /* [n_weights] bytes into the FP16 copies; -1: no copy */
    int64_t *rope_offsets;     /* [n_ropes] floats into the float32 vectors; -1: not at this place */
    uint64_t activations_slot; /* bytes of each of APR_ACTIVATIONS_I16_SLOTS inputs of decode GEMVs, after a device's workspace */
    size_t workspace_slice;    /* host: floats per thread; device: floats of the one buffer */
    size_t workspace_shared;   /* host: floats after the slices, shared by all threads of an operation */
    apr_arena arena;
} apr_plan;

apr_status apr_plan_make(apr_plan *plan, const apr_program *program, const apr_plan_options *options, apr_error *err);
void apr_plan_close(apr_plan *plan);

/* The line of that id, or NULL. */
const apr_plan_line *apr_plan_line_of(const apr_plan *plan, apr_line_id id);

/* Bytes of a tensor as stored in the file, padded to 64, including FP8 scales; for a packed matrix its share of all parts. */
uint64_t apr_plan_tensor_bytes(const apr_tensor *tensor);
/* Fills bytes[program->n_weights] with the sizes of 16-bit numbers, without optional weights. */
void apr_plan_default_weights(const apr_program *program, uint64_t *bytes);
/* Fills bytes[program->n_weights] from a model's tensors: apr_plan_tensor_bytes of each, 0 for missing ones. */
void apr_plan_model_weights(const apr_program *program, const apr_model *model, uint64_t *bytes);
/* The same for composed tensors only (apr_tensor.composed). */
void apr_plan_composed_weights(const apr_program *program, const apr_model *model, uint64_t *bytes);
/* Fills bytes[program->n_weights] with the padding that a device copy of expert stacks, or with several sequences of matrices, needs if rows
 * end within a tile (kernels/cuda/decode_gemv_args.h); 0 for other weights, and if no kernel wants them padded. dtypes: of each weight on the device. */
void apr_plan_padded_weights(const apr_program *program, const apr_dtype *dtypes, int64_t n_sequences, uint64_t *bytes);
/* Are rows of a matrix of one product padded for the small GEMMs of several sequences? */
bool apr_plan_pads_matrix(const apr_program *program, size_t slot, apr_dtype dtype, int64_t n_sequences);
/* Fills bytes[program->n_states] for one sequence; n_ctx as in apr_plan_options. */
void apr_plan_states_bytes(const apr_program *program, apr_dtype kv_dtype, int64_t n_ctx, int64_t n_batch, uint64_t *bytes);
/* Bytes of a slot stored as dtype, padded. If the rows are not whole blocks of dtype, 16-bit floats. */
uint64_t apr_plan_slot_bytes(const apr_weight_slot *slot, apr_dtype dtype);

/* The types of cached keys and values, and their names in the same order. FP8 is plain E4M3 without scales; it saturates at 448. */
#define APR_KV_NAMES "f16|f32|q8_0|fp8"
enum { APR_KV_DTYPES = 4 };
extern const apr_dtype apr_kv_dtypes[APR_KV_DTYPES];

/* Bytes of one head's row in the cache, or -1. */
int64_t apr_kv_row_bytes(apr_dtype dtype, int64_t head_dim);

#endif
