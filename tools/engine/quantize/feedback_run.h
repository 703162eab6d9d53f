/* feedback_run.h - runs a calibration text through the model and rounds its tensors with error feedback.
 *
 * The conversion's pipe asks for one tensor after another. If the sums (x x^T) of its layer inputs are missing, the text is evaluated again,
 * for as many tensors as --calibration-memory allows. Sums are freed as soon as no further tensor needs them. So memory is bounded, and a
 * small model takes one pass.
 *
 * With `sequential` all tensors are made before the pipe gets the first, layer by layer in the program's order. Each layer's inputs are
 * computed with the already quantized layers before it. The encoded tensors stay in memory until the pipe has taken them.
 *
 * Without a text the model generates one itself, with a fixed seed. On small models this is as good as another text; it costs the decoding
 * of many windows at once, on the host.
 *
 * With `loss_weighted` each token counts by how much the loss depends on it (runtime/calibrate/loss_weights.h). One backward pass of the
 * original model over the text comes before the first pass over it. This is on the host only, and so is the whole run.
 *
 * Some tensors are encoded without feedback, and reported: those that no product uses (embeddings), those whose columns the output has in
 * another order, those that received no tokens, and those of types without a grid. */
#ifndef APR_ENGINE_FEEDBACK_RUN_H
#define APR_ENGINE_FEEDBACK_RUN_H

#include "convert/convert.h"
#include "quant/feedback/feedback.h"
#include "tools/engine/listener.h"
#include "tools/engine/text_input.h"

typedef struct apr_feedback_request {
    const apr_text_input *calibration; /* NULL: a text that the model generates (runtime/calibrate/own_text.h) */
    bool plan_only;                    /* a dry run: no text is generated */
    const char *kept;                  /* OUT of a resumable run: text and sums are kept in its OUT.resume; NULL: they are not kept */
    bool sequential;
    bool loss_weighted;
    int64_t n_tokens;      /* at most; 0: all of the text, or APR_OWN_TOKENS of a generated text */
    int64_t window;        /* tokens that are evaluated from an empty context */
    uint64_t memory_bytes; /* for sums at a time; 0: 2 GiB on the host, on a GPU all memory that is left */
    apr_feedback_options options;
} apr_feedback_request;

enum { APR_OWN_TOKENS = 32768 };

typedef struct apr_feedback_run apr_feedback_run;

/* Opens text, tokenizer and session for a planned conversion, and finds the tensors that it can encode. Conversion and listener
 * must outlive the run and must not move. APR_E_USAGE: the text has less than one window, or there is no tensor to encode. */
apr_status apr_feedback_run_open(apr_feedback_run **run, const apr_feedback_request *request, const apr_conversion *conversion,
                                 const apr_listener *listener, apr_error *err);
void apr_feedback_run_close(apr_feedback_run *run); /* NULL is allowed */

/* Switches to a GPU, which then evaluates the text and holds sums, factors and rows. The device is borrowed. APR_E_MEMORY: the plan does
 * not fit in its memory. Existing sums are discarded. */
apr_status apr_feedback_run_to_gpu(apr_feedback_run *run, const apr_cuda_api *cuda, apr_cuda_device *device, int ordinal, apr_error *err);
/* Switches back to the host; must be called before the device is closed. Does nothing on the host. */
void apr_feedback_run_to_host(apr_feedback_run *run);

/* For the conversion's options; valid as long as the run. */
const apr_custom_encoder *apr_feedback_run_custom_encoder(apr_feedback_run *run);
const char *apr_feedback_run_terms(const apr_feedback_run *run);

/* The pipe starts again from its first tensor. */
void apr_feedback_run_restart(apr_feedback_run *run);

/* Writes the calibration text's name, its CRC-32 and the number of tokens into the output's metadata. The conversion has been planned but
 * not run. */
apr_status apr_feedback_run_note(const apr_feedback_run *run, apr_conversion *conversion, apr_error *err);

#endif
