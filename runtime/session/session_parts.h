/* session_parts.h - what the session's own files share: its insides, and the ground it stands on. */
#ifndef APR_RUNTIME_SESSION_PARTS_H
#define APR_RUNTIME_SESSION_PARTS_H

#include "runtime/plan/step_table.h"
#include "runtime/program/fusion.h"
#include "runtime/program/ground.h"
#include "runtime/session/pages.h"
#include "runtime/session/prompt_steps.h"
#include "runtime/session/session.h"
#include "runtime/session/trace.h"

struct apr_loads; /* session_upload.h */

/* One place where operations of the program run: its share of the plan, its memory, and the weights as they lie there. */
typedef struct apr_session_place {
    int index; /* in the partition */
    apr_place on;
    const apr_backend *backend;
    apr_cuda_device *device; /* NULL: the host, or not open yet */
    int ordinal;             /* of the device */
    bool shares_card;        /* with a device before it */
    bool shares_memory;      /* the device has the host's */
    apr_plan plan;
    const apr_tensor **bound;      /* [n_weights] what operations are given: the model's tensors, or their twins; NULL: not used here */
    const apr_tensor **multiplied; /* [n_weights] what products are given: bound's, or decoded copies; of experts the first of all */
    apr_tensor *twins;             /* tensors that lie elsewhere than the model's: see apr_session_upload_weights and _materialise */
    struct apr_relay *relays;      /* [n_weights] of packed matrices on a device: their regular form; NULL: there are none */
    apr_tensor **own_experts;      /* [n_weights] on the host: twins of slots that have several tensors; NULL: there are none */

    uint8_t *materialised; /* on the host: matrices in the order in which they are multiplied; NULL: all are so in the file */
    /* On the host, or on the device when there is one. */
    float *vectors, *activations, *logits;
    uint8_t *states;
    apr_workspace work;
    float *shared; /* behind the slices of the workspace; NULL: nothing is shared */

    uint8_t *weights;        /* on the device: as stored, each at a multiple of 64 bytes */
    uint8_t *copies;         /* on the device: decoded FP16 twins of packed matrices, or NULL */
    apr_cuda_token *token;   /* on the device: the one token of a batch, where there is but this place */
    apr_step_table step;     /* on the device: of several sequences' rows */
    uint8_t *planes;         /* on the device: APR_PLANES_SLOTS inputs of products that stream */
    apr_fusion fusion;       /* the steps of a single token there; none: operation by operation */
    apr_prompt_steps prompt; /* the steps of many tokens there; none: operation by operation */
    apr_fusion rows;         /* the same of the rows of a step, where there are several sequences */
    int64_t rows_widest;     /* of what is left in slots */
    bool rows_bfloats, rows_wide;
    int logits_norm;          /* the norm of which those steps leave inputs for the product that makes logits; -1: there is none */
    apr_cuda_graph *recorded; /* on the device: the operations of a single token; NULL: not yet, or not any more */
    bool cannot_record;       /* they could not be, and that was said */
    float *host_rows;         /* on the host: rows of tables that a device is given token by token; NULL: there are none */
    uint64_t used_before;     /* of the whole card, before the first context there */
    bool fp8_products;        /* the device multiplies FP8 weights in FP8 */
    apr_session_usage used;
} apr_session_place;

struct apr_session {
    apr_session_options options;
    const apr_model *model;
    apr_program program;
    apr_partition partition;   /* of the program among the places */
    apr_session_place *places; /* [n_places] */
    int n_places;
    const apr_tensor **tensors; /* [n_weights] of the model; NULL: optional and not there */
    apr_tensor **experts;       /* [n_weights] the tensors of a slot that has several; NULL: it has one, or none */

    float
        *host_logits; /* where the logits are read: pinned for the device that makes them; the host's themselves where the head is there */
    apr_cuda_token *mail;                         /* pinned, beside them: a token on its way to that device, and what comes back */
    uint8_t *step_mail;                           /* pinned: the step's table on its way; NULL: there is one sequence, or no device */
    int64_t heap_program, heap_ground, heap_runs; /* what the heap grew by: program and bindings; plan and memory; evaluations */
    bool prompt_checked, decode_checked, step_checked;
    bool exact;         /* see apr_session_set_exact */
    bool only_products; /* see apr_trace_only_products */

    apr_trace_watch_fn watch; /* see apr_trace_watch; NULL: nobody watches */
    apr_op_kind watched;
    void *watch_user;

    int64_t position; /* of the sequence in use */
    int64_t sequence;
    int64_t *positions;      /* [n_sequences] of those that are not in use; NULL: there is one */
    apr_pages pages;         /* of all; zeros: there is one */
    int32_t *step_ids;       /* [n_sequences] */
    int64_t *step_sequences; /* [n_sequences] of the rows of a step */
    int64_t *step_positions; /* [n_sequences] where they stand */
    bool is_step;            /* the batch is a token of each of some sequences */
    int64_t step_position;   /* the largest of theirs */
    int64_t step_first;      /* of the rows that are asked for, the first one of those that are run now */
    int64_t step_rows;       /* how many the step before had */
    int64_t recorded_rows;   /* of the step that is recorded, and the positions that it may have: below so many */
    int64_t recorded_end;    /* of a single token: apr_attend_end of the position for which it was recorded */
    bool recorded_logits;    /* with their logits */
    const float *last_logits;
    const float *last_row; /* of the logits, at the place that made them; NULL: nothing has been evaluated */
    int64_t told_position; /* what the one device has been told of a single token; -1: nothing */
    int32_t told_id;
    const char *stage; /* of the evaluation, for sentences */
    int32_t *history;  /* [n_ctx] tokens so far, to begin again on the host; NULL: no fall-back */
    int64_t n_handed;  /* rows of logits that the caller of this evaluation has */
    int64_t n_skipped; /* of them, rows computed once more after a fall-back */

    /* of the batch that is being evaluated */
    const int32_t *ids;
    int64_t n_tokens;
    int64_t first_row, n_rows; /* tokens of the batch whose logits are computed */
};

/* --- session_bind.c --- */

/* Finds each slot's tensor in the model and checks what was found. */
apr_status apr_session_bind_tensors(apr_session *s, apr_error *err);
/* The tensors of a slot, side by side, of which there are apr_session_n_parts: none where an optional one is not there. */
const apr_tensor *apr_session_parts(const apr_session *s, size_t slot);
int64_t apr_session_n_parts(const apr_session *s, size_t slot);
/* What one operation is given of the batch, at its place; a device is told of its single token. */
apr_status apr_session_bind_op(apr_session *s, const apr_session_place *at, const apr_op *op, apr_op_args *args, apr_error *err);
/* Runs one operation on the batch, where it belongs, when what it reads has been brought there. */
apr_status apr_session_run_op(apr_session *s, const apr_op *op, apr_error *err);
/* The same of operation i and, where the host can do several at once, of those behind it; *end: the first that was not run. */
apr_status apr_session_run_some(apr_session *s, size_t i, size_t *end, apr_error *err);
/* Where a value is made, a state lies, the logits are: the place, and there. */
const apr_session_place *apr_session_place_of_value(const apr_session *s, int value);
const apr_session_place *apr_session_place_of_state(const apr_session *s, int state);
const apr_session_place *apr_session_place_of_logits(const apr_session *s);
float *apr_session_value_at(const apr_session *s, int value);
/* Keys (which = 0) or values (1) of a state. */
apr_cache apr_session_cache_at(const apr_session *s, int state, int which);

/* --- session_replay.c: a single token at once --- */

/* Is everything on one device? A batch of one token is read there from at->token, so that its operations can be recorded. */
bool apr_session_reads_token(const apr_session *s, const apr_session_place *at);
/* Tells the device of the batch's token, where it does not know it; has happened when it returns. */
apr_status apr_session_tell_token(apr_session *s, const apr_session_place *at, apr_error *err);
/* Runs the batch's one token, its logits included, as it was recorded; records it first where it was not. *done false: it cannot be
 * done so, and nothing was run. What was started is not waited for. */
apr_status apr_session_replay(apr_session *s, const apr_eval_output *out, bool *done, apr_error *err);
/* The same of a step's rows: recorded when as many as in the step before go on together. *logits: theirs have been computed, too. */
apr_status apr_session_replay_step(apr_session *s, bool *done, bool *logits, apr_error *err);
/* What was recorded is not what would be run now. */
void apr_session_forget_recorded(const apr_session *s, apr_session_place *at);
/* Of the last row of logits, where it lies. */
apr_status apr_session_find_best(apr_session *s, apr_best *best, apr_error *err);
/* Of the s->n_rows rows of logits of a step, each as it is wished. */
apr_status apr_session_find_bests(apr_session *s, apr_best *bests, apr_error *err);

/* --- session_ground.c: memory --- */

/* Is there a device among the places? */
bool apr_session_has_device(const apr_session *s);
uint64_t apr_session_line_bytes(const apr_session_place *at, apr_line_id id);
/* Everything of the places' plans, their weights and vectors filled. */
apr_status apr_session_allocate(apr_session *s, apr_error *err);
void apr_session_release(apr_session *s);
/* States that are numbers begin as zeros: called before the first token of a sequence. */
apr_status apr_session_forget(apr_session *s, apr_error *err);
/* From a place into host memory; has happened when it returns. */
apr_status apr_session_fetch(const apr_session *s, const apr_session_place *at, void *to, const void *from, size_t n_bytes, apr_error *err);
/* Every device. */
apr_status apr_session_check_devices(const apr_session *s, const char *stage, apr_error *err);

/* --- session_sequences.c --- */

apr_status apr_session_open_sequences(apr_session *s, apr_error *err);
void apr_session_close_sequences(apr_session *s);
uint64_t apr_session_sequences_bytes(const apr_session *s); /* on the heap */
/* Of the sequence in use: gives its pages back; room for its first n_positions. */
void apr_session_release_pages(apr_session *s);
apr_status apr_session_extend_pages(apr_session *s, int64_t n_positions, apr_error *err);
/* One operation on the rows of a step, on the host. */
void apr_session_run_step_op(const apr_session *s, const apr_session_place *at, const apr_op *op, apr_ground *ground);
/* Tells the device, where there is one, of the step's rows; or of the pages of the sequence in use. Not waited for: what follows is. */
apr_status apr_session_tell_step(apr_session *s, apr_error *err);
apr_status apr_session_tell_pages(apr_session *s, apr_error *err);
apr_step_table apr_session_step_mail(const apr_session *s); /* of a session that has one */
/* Where rows or the sequence in use lie, as the device is told. */
void apr_session_ground_step(const apr_session *s, const apr_session_place *at, apr_ground *ground);
/* session.c: all operations on them, and their logits. */
apr_status apr_session_run_step(apr_session *s, const apr_eval_output *out, apr_error *err);

/* --- session_plan.c --- */

/* The places of the session's options, with nothing in them. */
apr_status apr_session_make_places(apr_session *s, apr_error *err);
/* Of a session with a program, on devices that need not be open yet: the partition, and each place's plan; whether it fits stands there. */
apr_status apr_session_draft_plan(apr_session *s, apr_error *err);
/* The same, and APR_E_MEMORY when one does not fit. */
apr_status apr_session_make_plan(apr_session *s, apr_error *err);

/* --- session_materialise.c --- */

/* Puts matrices that are made of others in order, each at a multiple of 64 bytes of at->materialised. On the host. */
apr_status apr_session_materialise(apr_session *s, apr_session_place *at, apr_error *err);

/* --- session_memory.c --- */

/* Adds what the heap has grown by since it was `before` to *grown. */
void apr_session_count_heap(int64_t *grown, uint64_t before);

/* --- session_device.c --- */

apr_status apr_session_open_device(apr_session *s, apr_session_place *at, apr_error *err);
/* Each slot's bytes (0: not there) and type on a device. The tensors of a slot that has several lie there as one stack. */
void apr_session_device_weights(const apr_session *s, uint64_t *bytes, apr_dtype *dtypes);
/* Everything is there when it returns. */
apr_status apr_session_upload_weights(apr_session *s, apr_session_place *at, apr_error *err);

/* Do the slot's rows lie in items on the device (kernels/cuda/flow_args.h)? Only where a token is replayed; stacks of experts where all
 * three of an operation can. */
bool apr_session_wants_items(const apr_session *s); /* is there any such weight, as far as options say? */
bool apr_session_in_items(const apr_session *s, const apr_session_place *at, size_t slot);
/* Do a token's products with these experts, of gate, up and down, stream? */
bool apr_session_experts_stream(const apr_session *s, const apr_session_place *at, const apr_op *op, const apr_tensor *const weights[3]);

/* --- session_flow.c: products that stream, with what ends them --- */

/* Puts together the steps of a single token, once the weights are on the device; none where it would not be right. */
apr_status apr_session_fuse(apr_session *s, apr_session_place *at, apr_error *err);
/* Runs them, on the batch's one token. */
apr_status apr_session_run_fused(apr_session *s, const apr_session_place *at, apr_error *err);

/* Do the places of two values of a token have something in common? */
bool apr_session_values_overlap(const apr_session *s, const apr_session_place *at, int a, int b);

/* --- session_prompt.c: products of many tokens, with what stands around them --- */

/* Puts together the steps of a prompt; none where operations are wanted one by one. */
apr_status apr_session_find_prompt_steps(apr_session *s, apr_session_place *at, apr_error *err);
/* Is the batch to be run in such steps? */
bool apr_session_takes_prompt_steps(const apr_session *s, const apr_eval_output *out);
/* Runs the step that begins with operation i, or what apr_session_run_some runs; *end: the first operation that was not run. */
apr_status apr_session_run_prompt_step(apr_session *s, size_t i, size_t *end, apr_error *err);
/* The value that ends a step's products, or experts, and the one that is added. */
int apr_session_result_of(const apr_session *s, const apr_fused *step);
int apr_session_residual_of(const apr_session *s, const apr_fused *step);
/* A slot's vector on the device; NULL for slot -1, and for one that is not there. */
const float *apr_session_vector_at(const apr_session_place *at, int slot);
/* May the turns of these steps be run where values lie? And one of them, of the batch. */
bool apr_session_turns_are_apart(const apr_session *s, const apr_session_place *at, const apr_fusion *fusion);
/* The value that rotation k (the query's, the key's) of a turn begins with. */
int apr_session_source_of_rope(const apr_session *s, const apr_fused *step, int k);
apr_status apr_session_bind_turn(apr_session *s, const apr_session_place *at, const apr_fused *step, apr_turn_args *turn, apr_error *err);

/* --- session_rows.c: the same of the rows of a step --- */

/* As apr_session_fuse, where there are several sequences. */
apr_status apr_session_fuse_rows(apr_session *s, apr_session_place *at, apr_error *err);
/* Are the rows of this step run so, with all their logits at once? */
bool apr_session_may_fuse_rows(const apr_session *s, const apr_session_place *at);
apr_status apr_session_run_fused_rows(apr_session *s, const apr_session_place *at, apr_error *err);
/* How many of a step's rows are run together, in parts of equal size. */
int64_t apr_session_rows_at_once(const apr_session *s, int64_t n_rows);
/* The same of a batch of one sequence's tokens, but for their logits, and for what only those are made of. */
bool apr_session_may_fuse_batch(const apr_session *s, const apr_session_place *at, const apr_eval_output *out);
apr_status apr_session_run_fused_batch(apr_session *s, const apr_session_place *at, apr_error *err);

/* --- session_packed.c --- */

/* What the regular form of a slot's packed matrices takes on the device. 0: they are not packed, or the device cannot read it. */
uint64_t apr_session_relaid_bytes(const apr_session *s, size_t slot);
/* Notes them to be brought there, to `to`; *packing describes it and is the place's. */
apr_status apr_session_load_packed(apr_session *s, apr_session_place *at, size_t slot, uint8_t *to, const struct apr_packing **packing,
                                   struct apr_loads *loads, apr_error *err);
/* notes[n_weights] for a place's plan. dtypes: those on its device; NULL: it is the host. */
void apr_session_note_weights(const apr_session *s, const apr_dtype *dtypes, apr_weight_note *notes);

#endif
