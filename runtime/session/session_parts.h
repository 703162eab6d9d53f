/* session_parts.h - what the session's own files share: its insides, and the ground it stands on. */
#ifndef APR_RUNTIME_SESSION_PARTS_H
#define APR_RUNTIME_SESSION_PARTS_H

#include "runtime/session/session.h"
#include "runtime/session/trace.h"

struct apr_session {
    apr_session_options options;
    const apr_model *model;
    const apr_backend *backend;
    apr_program program;
    apr_plan plan;
    const apr_tensor **tensors;    /* [n_weights] of the model; NULL: optional and not there */
    const apr_tensor **bound;      /* [n_weights] what operations are given: the same, or their twins */
    const apr_tensor **multiplied; /* [n_weights] what products are given: bound's, or decoded copies; of experts the first of all */
    apr_tensor **experts;          /* [n_weights] the tensors of a slot that has several; NULL: it has one, or none */
    apr_tensor *twins;             /* tensors that lie elsewhere than the model's: see apr_session_upload_weights and _materialise */
    struct apr_relay *relays;      /* [n_weights] of packed matrices on a device: their regular form; NULL: there are none */
    float *shared;                 /* behind the slices of the workspace; NULL: nothing is shared */

    uint8_t *materialised; /* on the host: matrices in the order in which they are multiplied; NULL: all are so in the file */

    /* On the host, or on the device when there is one. */
    float *vectors, *activations, *logits;
    uint8_t *states;
    apr_workspace work;
    apr_session_usage used;

    apr_cuda_device *device; /* NULL: everything is on the host */
    uint8_t *weights;        /* on the device: as stored, each at a multiple of 64 bytes */
    uint8_t *copies;         /* on the device: decoded FP16 twins of packed matrices, or NULL */
    float *host_rows;        /* on the host: rows of tables that a device is given token by token; NULL: there are none */
    float *host_logits;      /* where the logits are read; the host's logits themselves without a device */
    uint64_t used_before;    /* of the whole card, before the context */
    int64_t heap_program, heap_ground, heap_runs; /* what the heap grew by: program and bindings; plan and memory; evaluations */
    bool prompt_checked, decode_checked;
    bool fp8_products; /* the device multiplies FP8 weights in FP8 */
    bool exact;        /* see apr_session_set_exact */

    apr_trace_watch_fn watch; /* see apr_trace_watch; NULL: nobody watches */
    apr_op_kind watched;
    void *watch_user;

    int64_t position;
    const float *last_logits;
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
/* Runs one operation on the batch. */
apr_status apr_session_run_op(apr_session *s, const apr_op *op, apr_error *err);
/* Where a value lies, on the session's ground. */
float *apr_session_value_at(const apr_session *s, int value);
/* Keys (which = 0) or values (1) of a state. */
apr_cache apr_session_cache_at(const apr_session *s, int state, int which);

/* --- session_ground.c: memory --- */

uint64_t apr_session_line_bytes(const apr_session *s, apr_line_id id);
/* Of a session with a program, on a device that need not be open yet; whether it fits stands in it. */
apr_status apr_session_draft_plan(apr_session *s, apr_error *err);
/* The same, and APR_E_MEMORY when it does not fit. */
apr_status apr_session_make_plan(apr_session *s, apr_error *err);
/* Everything of the plan, its weights and vectors filled. */
apr_status apr_session_allocate(apr_session *s, apr_error *err);
void apr_session_release(apr_session *s);
/* States that are numbers begin as zeros: called before the first token of a sequence. */
apr_status apr_session_forget(apr_session *s, apr_error *err);
/* From the session's ground into host memory; has happened when it returns. */
apr_status apr_session_fetch(apr_session *s, float *to, const float *from, size_t n_floats, apr_error *err);

/* --- session_materialise.c --- */

/* Puts matrices that are made of others in order, each at a multiple of 64 bytes of s->materialised. On the host. */
apr_status apr_session_materialise(apr_session *s, apr_error *err);

/* --- session_memory.c --- */

/* Adds what the heap has grown by since it was `before` to *grown. */
void apr_session_count_heap(int64_t *grown, uint64_t before);

/* --- session_device.c --- */

apr_status apr_session_open_device(apr_session *s, apr_error *err);
/* Each slot's bytes (0: not there) and type on the device. The tensors of a slot that has several lie there as one stack. */
void apr_session_device_weights(const apr_session *s, uint64_t *bytes, apr_dtype *dtypes);
apr_status apr_session_upload_weights(apr_session *s, apr_error *err);

/* --- session_packed.c --- */

/* What the regular form of a slot's packed matrices takes on the device. 0: they are not packed, or the device cannot read it. */
uint64_t apr_session_relaid_bytes(const apr_session *s, size_t slot);
/* Brings them there, to `to`; *packing describes it and is the session's. */
apr_status apr_session_upload_packed(apr_session *s, size_t slot, uint8_t *to, const struct apr_packing **packing, apr_error *err);
/* notes[n_weights] for a plan. dtypes: those of a device, unused without one. */
void apr_session_note_weights(const apr_session *s, const apr_dtype *dtypes, apr_weight_note *notes);

#endif
