/* runtime/calibrate/damage.h - how much quantizing some tensors alone changes a model's predictions.
 *
 *     apr_damage_open(&d, model, &options, ids, n, window, &err)     evaluates the model itself, keeps its logits
 *     apr_damage_measure(&d, replaced, n, &figure, &err)             evaluates it with these tensors quantized
 *
 * Damage is the mean KL divergence of the next token over all positions of the windows, as `aprrun kld` reports it. Each window starts
 * with an empty context. Replaced tensors are encoded row by row by our encoders, as in the quantized file, and run as such; all others
 * stay as they are. The logits of the model itself take apr_damage_bytes while this is open.
 *
 * Layers before the first replaced tensor give what they gave before, so a measurement begins with its layer, with the values that the
 * model's own evaluation had there (runtime/session/kept.h): kept_bytes, for most models layers * n_ids * hidden_size * 4, next to the
 * logits. Figures are the same bits as without. Without memory for them measurements begin with the first layer.
 *
 * On a GPU (options.cuda) one session stays open, and a replaced tensor's numbers are written over its own in the type that the model
 * has. So products round as those of the model itself do, and a figure may differ from the host's by a few percent. */
#ifndef APR_RUNTIME_CALIBRATE_DAMAGE_H
#define APR_RUNTIME_CALIBRATE_DAMAGE_H

#include "runtime/check/control_encoder.h"

typedef struct apr_damage {
    const apr_model *model; /* canonical, borrowed */
    apr_model altered;      /* a copy of the model, with its own table of tensors in the same order */
    apr_session_options options;
    const int32_t *ids; /* [n_ids] whole windows, borrowed */
    int64_t n_ids, window, vocab_size;
    float *reference; /* [n_ids, vocab_size]; on a GPU in its memory */

    size_t *begins; /* [n_tensors] the operation with which an evaluation can begin if only this tensor is replaced */
    float **kept;   /* [n_values] of the model's program: rows of all ids, or NULL; on a GPU in its memory */
    size_t n_values;
    uint64_t kept_bytes; /* 0: all evaluations are of the whole program */

    /* on a GPU */
    apr_session *session; /* NULL: on the host */
    apr_control_encoder encoder;
    apr_cuda_device *device;
    int32_t *next;                    /* [window] -1, in its memory */
    apr_cuda_logits_difference *rows; /* [window] in its memory */
    bool *is_changed;                 /* [n_tensors] the GPU has other numbers of it */
    uint8_t *spare;                   /* memory of a tensor that was measured, for the next one */
    uint64_t spare_bytes;
} apr_damage;

/* One tensor of model->tensors and the block type that it becomes. */
typedef struct apr_replaced {
    size_t tensor;
    apr_dtype to;
} apr_replaced;

typedef struct apr_damage_figure {
    double mean;
    double error; /* the standard error of the mean, over windows; 0 when there is one */
} apr_damage_figure;

/* Can the tensor become that type: a matrix that can be decoded, whole blocks a row, a type with an encoder? */
bool apr_damage_can_be(const apr_tensor *tensor, apr_dtype to);

/* Bytes of the reference logits. */
uint64_t apr_damage_bytes(int64_t vocab_size, int64_t n_ids);

/* n_ids: a positive multiple of window. options.n_ctx is set to the window. Errors: those of apr_session_open and _eval; APR_E_NO for
 * logits that are not finite. A zeroed struct may be closed; a failed open must be closed. */
apr_status apr_damage_open(apr_damage *d, const apr_model *model, const apr_session_options *options, const int32_t *ids, int64_t n_ids,
                           int64_t window, apr_error *err);
void apr_damage_close(apr_damage *d);

apr_status apr_damage_measure(apr_damage *d, const apr_replaced *replaced, size_t n, apr_damage_figure *figure, apr_error *err);

#endif
