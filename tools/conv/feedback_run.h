/* feedback_run.h - aprquant --method ldlq: a calibration text through the model, and its tensors rounded with what it showed.
 *
 * The pipe asks for one tensor after another. When the sums (x x^T) of the one it asks for are not there, the text goes through the model
 * once more, for as many tensors as --calibration-memory has room for; each tensor's sums go when nobody needs them any more. So
 * memory is constant, and a small model takes one pass.
 *
 * With `sequential` tensors are made before the first is asked for, layer by layer in the program's order, and each layer's inputs come
 * through what the ones before have become; the encoded tensors stay in memory until the pipe has them.
 *
 * Without a text the model writes one itself, with a fixed seed: on small models as good as one from outside, at the cost of decoding it.
 *
 * What no product reads row by row (embeddings, matrices whose columns the output has in another order), what saw no token, and types
 * that have no grid are encoded as without this, and said. */
#ifndef APR_TOOLS_FEEDBACK_RUN_H
#define APR_TOOLS_FEEDBACK_RUN_H

#include "convert/convert.h"
#include "quant/feedback/feedback.h"
#include "tools/cli/cli.h"
#include "tools/cli/prompt.h"

#include <stdio.h>

typedef struct apr_feedback_request {
    const apr_text *calibration; /* NULL: what the model writes itself (runtime/calibrate/own_text.h) */
    bool plan_only;              /* nothing will be made: a text of the model's own is not written */
    const char *kept;            /* an output of several runs, in whose folder that text is kept while it is written; NULL: it is not */
    bool sequential;
    int64_t n_tokens;      /* at most; 0: all of the text, of the model's own APR_OWN_TOKENS */
    int64_t window;        /* tokens that begin from nothing */
    uint64_t memory_bytes; /* of sums at a time; 0: 2 GiB on the host, on a GPU what all else leaves free */
    apr_feedback_options options;
} apr_feedback_request;

enum { APR_OWN_TOKENS = 32768 };

typedef struct apr_feedback_run apr_feedback_run;

/* Opens text, tokenizer and session for a conversion that has been planned, and finds out which tensors it can make. The conversion must
 * stay where it is. APR_E_USAGE: the text has less than a window, or no tensor is left to make. */
apr_status apr_feedback_run_open(apr_feedback_run **run, const apr_feedback_request *request, const apr_conversion *conversion, bool quiet,
                                 apr_error *err);
void apr_feedback_run_close(apr_feedback_run *run); /* NULL is fine */

/* From now on the text goes through a GPU, and sums, factors and rows are there; the device is the caller's. Everything is planned first:
 * APR_E_MEMORY when it does not fit. What was summed up is forgotten. */
apr_status apr_feedback_run_enter(apr_feedback_run *run, const apr_cuda_api *cuda, apr_cuda_device *device, int ordinal, apr_error *err);
/* Back on the host; must come before the device is closed. Nothing to do where it is there. */
void apr_feedback_run_leave(apr_feedback_run *run);

/* For the conversion's options; live as long as the run. */
const apr_pipe_maker *apr_feedback_run_maker(apr_feedback_run *run);
const char *apr_feedback_run_terms(const apr_feedback_run *run);

/* The pipe begins from its first tensor again. */
void apr_feedback_run_restart(apr_feedback_run *run);

/* What it is calibrated by, for the output's metadata: a text's name (or that it is the model's own) and the CRC-32 of its bytes (of its
 * ids), in `of`, into a conversion that has been planned and not run. */
apr_status apr_feedback_run_note(const apr_feedback_run *run, apr_conversion *conversion, apr_error *err);

/* Of a dry run: memory and products; of a run: what has become of the tensors. */
void apr_feedback_run_print(const apr_feedback_run *run, bool dry_run);
void apr_feedback_run_json(const apr_feedback_run *run, bool dry_run, apr_json_text *json);
void apr_feedback_run_html(const apr_feedback_run *run, FILE *page); /* of a run */

#endif
