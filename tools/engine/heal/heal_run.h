/* heal_run.h - trains what a quantized file stores, so that its predictions come closer to those of its source.
 *
 * The file is complete before, made by error feedback. Codes, scales, gains and biases of its tensors are trained (quant/heal/latents.h) on
 * the divergence from the source, on the text of the calibration and on text that the model writes. Every JUDGED steps the divergence is
 * measured on another text. The blocks of the best measurement replace those of the file, if the divergence fell by more than twice the
 * standard error of the paired difference over windows. Otherwise the file stays as it is.
 *
 * Names, types, sizes and metadata of the file do not change. Bytes do not depend on the number of threads. */
#ifndef APR_ENGINE_HEAL_RUN_H
#define APR_ENGINE_HEAL_RUN_H

#include "convert/convert.h"
#include "quant/heal/latents.h"
#include "tools/engine/heal/heal_plan.h"
#include "tools/engine/quantize/feedback_run.h"

typedef struct apr_heal_request {
    const apr_text_input *text;  /* to train on, besides the model's own; NULL: the calibration's */
    const apr_text_input *judge; /* NULL: text that the model writes, by another seed */
    int64_t n_steps,
        n_tokens; /* n_tokens: of a step, in windows; 0: 512, on a GPU 16,384, because a step of latents takes as long as those */
    int64_t window;
    double rate;    /* multiplies all learning rates */
    bool on_device; /* passes of source and file run on the GPU `ordinal` of CUDA; latents and their steps stay on the host */
    int ordinal;
    bool is_kept; /* in OUT.resume, for a run that continues */
} apr_heal_request;

typedef struct apr_heal_figures {
    size_t n_tensors, n_left;         /* trained; in blocks, but of a type or an order of rows that cannot be */
    int64_t n_text, n_own, n_judge;   /* tokens of the calibration text, of the model's own, of the judging text */
    double judge_before, judge_after; /* mean divergence */
    double fall, fall_error;          /* of the paired difference: mean over windows and standard error */
    double text_before, text_after;   /* on the first windows of the training texts */
    int64_t best_step;                /* 0: the file as it was */
    apr_latent_changes changes;
    double seconds;
    bool is_healed, is_measured; /* measured: the training has ended */
    apr_error refusal;           /* why the file was left as it was; text empty: it was not */
} apr_heal_figures;

typedef struct apr_heal_run apr_heal_run;

/* Plans it, and reads the judging text. feedback: opened for the same conversion; both must outlive the run. APR_E_MEMORY: more than this
 * machine has. APR_E_UNSUPPORTED: an operation of the model has no backward pass. APR_E_USAGE: the judging text is too short. */
apr_status apr_heal_run_open(apr_heal_run **run, const apr_heal_request *request, const struct apr_feedback_run *feedback,
                             const apr_conversion *conversion, const apr_listener *listener, apr_error *err);
void apr_heal_run_close(apr_heal_run *run); /* NULL is allowed */

/* Before `out` is made. *continues: an earlier run with the same terms has made it, so it need not be made again. If the run is kept,
 * OUT.resume then says that healing follows. */
apr_status apr_heal_run_begin(apr_heal_run *run, const char *out, bool *continues, apr_error *err);

/* Trains the finished file `out` and replaces it, or leaves it and fills figures.refusal. Failures leave the file as it is. */
apr_status apr_heal_run_train(apr_heal_run *run, const char *out, apr_error *err);

const apr_heal_request *apr_heal_run_request(const apr_heal_run *run);
const apr_heal_plan *apr_heal_run_plan(const apr_heal_run *run);
const apr_heal_figures *apr_heal_run_figures(const apr_heal_run *run);

#endif
