/* session_internal.h - internal declarations that the files of the session share. */
#ifndef APR_RUNTIME_SESSION_PARTS_H
#define APR_RUNTIME_SESSION_PARTS_H

#include "runtime/plan/batch_table.h"
#include "runtime/program/fusion.h"
#include "runtime/program/op_memory.h"
#include "runtime/session/kept.h"
#include "runtime/session/pages.h"
#include "runtime/session/session.h"
#include "runtime/session/trace.h"

/* One place where operations of the program run: its share of the plan, its memory and its weights. */
typedef struct apr_session_place {
    int index; /* in the partition */
    apr_place on;
    const apr_backend *backend;
    apr_cuda_device *device; /* NULL: the host, or not open yet */
    int ordinal;             /* of the device */
    bool shares_card;        /* an earlier place uses the same card */
    bool shares_memory;      /* the device uses the host's memory */
    apr_plan plan;
    /* [n_weights] operands of operations: the model's tensors, or copies of them in `relocated`; NULL: not used here */
    const apr_tensor **bound;
    /* [n_weights] weights of products: those of `bound`, or decoded FP16 copies; for experts the first of all */
    const apr_tensor **multiplied;
    apr_tensor *relocated;      /* descriptors of weights that were moved: see apr_session_load_weights */
    struct apr_repack *repacks; /* [n_weights] packed matrices on a device: their repacked layout; NULL: there are none */
    apr_tensor **own_experts;   /* [n_weights] on the host: moved tensors of slots that have several; NULL: there are none */

    uint8_t *materialised; /* on the host: composed matrices, stored as they are multiplied; NULL: none */
    /* On the host, or on the device if the place is one. */
    float *vectors, *activations, *logits;
    uint8_t *states;
    apr_workspace work;
    float *shared; /* after the slices of the workspace; NULL: nothing is shared */

    uint8_t *weights;         /* on the device: as stored, each at a multiple of 64 bytes */
    uint8_t *copies;          /* on the device: decoded FP16 copies of packed matrices, or NULL */
    apr_cuda_token *token;    /* on the device: the token of a one-token batch, if this is the only place */
    apr_batch_table step;     /* on the device: table of the rows of several sequences */
    uint8_t *activations_i16; /* on the device: APR_ACTIVATIONS_I16_SLOTS inputs of the decode GEMV */
    apr_fusion fusion;   /* fused steps of a single token, or with several sequences of the rows of a step; none: operation by operation */
    apr_fusion prompt;   /* fused steps of many tokens; none: operation by operation */
    int64_t rows_widest; /* largest input width of the rows' products */
    bool rows_bf16;      /* the type of those inputs */
    int logits_norm;     /* the norm whose output is the input of the logits' product, with several sequences; -1: none */
    apr_cuda_graph *recorded; /* on the device: CUDA graph of a token's operations; NULL: not recorded */
    bool cannot_record;       /* recording failed, and a warning was given */
    float *host_rows;         /* on the host: table rows that are looked up per token and uploaded; NULL: none */
    uint64_t used_before;     /* the card's used memory before the first context */
    bool fp8_products;        /* the device multiplies FP8 weights in FP8 */
    apr_session_usage used;
} apr_session_place;

/* Tokens that are evaluated together: of one sequence, or the rows of a step. */
typedef struct apr_session_batch {
    const int32_t *ids; /* [n_tokens] */
    int64_t n_tokens;
    int64_t first, n_all;                 /* index of the first token among those of the caller; how many these are */
    int64_t first_row, n_rows;            /* tokens of the batch whose logits are computed */
    int64_t position;                     /* of the first token; of a step: the largest one of its rows */
    int64_t sequence;                     /* of all tokens; not used in a step */
    const int64_t *sequences, *positions; /* [n_tokens] of the rows of a step; NULL: there is one sequence */
    bool is_recorded;                     /* in a CUDA graph */
} apr_session_batch;

struct apr_session {
    apr_session_options options;
    const apr_model *model;
    apr_program program;
    apr_partition partition;   /* which place runs which operation */
    apr_session_place *places; /* [n_places] */
    int n_places;
    const apr_tensor **tensors; /* [n_weights] of the model; NULL: optional and absent */
    apr_tensor **experts;       /* [n_weights] tensors of a slot that has several; NULL: it has one or none */

    float
        *host_logits; /* host copy of the logits: pinned memory of the device that makes them; the place's own buffer if that is the host */
    apr_cuda_token *host_token;                   /* pinned, after host_logits: the token to upload, and what comes back */
    uint8_t *host_step;                           /* pinned: the step's table to upload; NULL: there is one sequence, or no device */
    int64_t heap_program, heap_places, heap_runs; /* heap growth: program and bindings; plan and memory; evaluations */
    bool prompt_checked, decode_checked, step_checked;
    bool exact;         /* see apr_session_set_exact */
    bool only_products; /* see apr_trace_only_products */

    apr_trace_watch_fn watch; /* see apr_trace_watch; NULL: none */
    apr_op_kind watched;
    void *watch_user;

    int64_t position; /* of the sequence in use */
    int64_t sequence;
    int64_t *positions;      /* [n_sequences] of the sequences not in use; NULL: there is one sequence */
    apr_pages pages;         /* of all sequences; zeros: there is one */
    int32_t *step_ids;       /* [n_sequences] */
    int64_t *step_sequences; /* [n_sequences] of the rows of a step */
    int64_t *step_positions; /* [n_sequences] of the rows of a step */
    int64_t step_rows;       /* rows of the previous step */
    int64_t recorded_rows;   /* tokens of the recorded batch */
    int64_t recorded_end;    /* end of the positions for which the graph is valid */
    bool recorded_logits;    /* the graph includes the logits */
    const float *last_logits;
    const float *last_row; /* the last row of logits, at the place that made it; NULL: nothing has been evaluated */
    int64_t sent_position; /* position and id of the token that the device has; -1: none */
    int32_t sent_id;
    const char *stage; /* name of the evaluation, for messages */
    int32_t *history;  /* [n_ctx] tokens so far, to restart on the host; NULL: no fallback */
    int64_t n_handed;  /* rows of logits already given to the caller in this evaluation */
    int64_t n_skipped; /* rows to skip after a fallback, because the caller has them */

    apr_session_batch traced; /* the batch of apr_trace_begin, or of the operation that is watched */
};

/* The files call each other downwards only: bind < sequences < memory < upload < run, kept < steps < replay < open < session, trace. */

/* --- session_bind.c: where things are --- */

/* The tensors of a slot, an array of apr_session_n_slot_tensors elements. The count is 0 where an optional tensor is absent. */
const apr_tensor *apr_session_slot_tensors(const apr_session *s, size_t slot);
int64_t apr_session_n_slot_tensors(const apr_session *s, size_t slot);
/* Is there a device among the places? */
bool apr_session_has_device(const apr_session *s);
uint64_t apr_session_line_bytes(const apr_session_place *at, apr_line_id id);
/* The place that makes a value, keeps a state, or makes the logits; then the value's address there. */
const apr_session_place *apr_session_place_of_value(const apr_session *s, int value);
const apr_session_place *apr_session_place_of_state(const apr_session *s, int state);
const apr_session_place *apr_session_place_of_logits(const apr_session *s);
float *apr_session_value_at(const apr_session *s, int value);
/* The memory of a place, for an operation on the batch. */
apr_op_memory apr_session_op_memory(const apr_session *s, const apr_session_batch *b, const apr_session_place *at);
/* Does the operation read its token from at->token? Yes for a batch of one token when everything is on one device, so that it can be
 * recorded. */
bool apr_session_reads_token(const apr_session *s, const apr_session_batch *b, const apr_session_place *at);
/* The token of the batch, for a device; it counts as uploaded from now on. */
apr_cuda_token apr_session_next_token(apr_session *s, const apr_session_batch *b);
/* Do the options allow tiled weights at all? */
bool apr_session_wants_tiles(const apr_session *s);
/* Does a single token use the decode GEMV with these experts (gate, up, down)? */
bool apr_session_experts_use_gemv(const apr_session *s, const apr_session_place *at, const apr_op *op, const apr_tensor *const weights[3]);

/* --- session_sequences.c --- */

apr_status apr_session_open_sequences(apr_session *s, apr_error *err);
void apr_session_close_sequences(apr_session *s);

/* --- session_memory.c --- */

/* Adds to *grown how much the heap has grown since it was `before`. */
void apr_session_count_heap(int64_t *grown, uint64_t before);
/* Allocates all lines of a place's plan, and fills the vectors. */
apr_status apr_session_allocate(apr_session *s, apr_session_place *at, apr_error *err);
/* Frees the places, with all that they have, and the tables of the sequences. */
void apr_session_release(apr_session *s);
/* Drops the recorded graph, because it no longer matches. */
void apr_session_drop_recording(const apr_session *s, apr_session_place *at);
/* Zeroes the recurrent states. Called before the first token of a sequence. */
apr_status apr_session_clear_states(apr_session *s, apr_error *err);
/* Copies from a place to host memory. The copy is complete on return. */
apr_status apr_session_fetch(const apr_session *s, const apr_session_place *at, void *to, const void *from, size_t n_bytes, apr_error *err);
/* Checks every device for errors; `stage` is for the message. */
apr_status apr_session_check_devices(const apr_session *s, const char *stage, apr_error *err);

/* --- session_upload.c: weights --- */

/* Bytes (0: not there) and type of each slot on a device. A slot with several tensors becomes one stack there. */
void apr_session_device_weights(const apr_session *s, uint64_t *bytes, apr_dtype *dtypes);
/* Uploads the weights to a device; complete on return. On the host: writes composed matrices to at->materialised as they are multiplied,
 * each at a multiple of 64 bytes. */
apr_status apr_session_load_weights(apr_session *s, apr_session_place *at, apr_error *err);

/* --- session_run.c: operations one by one --- */

/* The arguments of one operation on the batch, at its place. Uploads the token of a one-token batch to a device. */
apr_status apr_session_bind_op(apr_session *s, const apr_session_batch *b, const apr_session_place *at, const apr_op *op, apr_op_args *args,
                               apr_error *err);
/* Copies the operation's inputs to its place, and runs it on the batch. */
apr_status apr_session_run_op(apr_session *s, const apr_session_batch *b, const apr_op *op, apr_error *err);

/* --- session_kept.c: values for evaluations that begin later --- */

/* The step of a prompt that has operation `op`. There are steps. */
size_t apr_session_prompt_step(const apr_session_place *at, size_t op);
/* Does the step begin with the sum before operation `op`, its norm? */
bool apr_session_begins_after_sum(const apr_fused *step, size_t op);
/* Stores a value that was just computed; does nothing if it is not kept, or not now. kept may be NULL. */
apr_status apr_session_store_kept(const apr_session *s, const apr_session_batch *b, const apr_kept *kept, int value, apr_error *err);
/* Loads what operations from kept->begin on read; does nothing if all run. */
apr_status apr_session_load_kept(const apr_session *s, const apr_session_batch *b, const apr_kept *kept, apr_error *err);

/* --- session_steps.c: fused operations --- */

/* Fuses the operations of a place, once its weights are on the device: those of a single token, or of the rows of a step, and those of a
 * prompt. Finds no steps where fusion would be wrong. */
apr_status apr_session_fuse(apr_session *s, apr_session_place *at, apr_error *err);
/* How many of a step's rows run at a time: chunks of equal size. */
int64_t apr_session_rows_at_once(const apr_session *s, int64_t n_rows);
/* Runs everything except the logits. *logits: it computed them also, those of a recorded token or of all rows of a step. */
apr_status apr_session_run_batch(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, bool *logits, apr_error *err);

/* --- session_replay.c: CUDA graphs of decoded tokens --- */

/* Replays the CUDA graph of the batch, a single token or the rows of a step; records it first if necessary, a step once two in a row
 * have the same number of rows. *done false: not possible, and nothing was run. *logits: the graph also computed the logits. Does not
 * wait for completion. */
apr_status apr_session_replay(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, bool *done, bool *logits,
                              apr_error *err);

/* --- session_open.c --- */

/* After a failure: if it allows, warns, clears *err and moves the session to the host, empty. *status and *err are then those of the
 * move. False: the failure stands. */
bool apr_session_fall_back(apr_session *s, apr_status *status, apr_error *err);

#endif
