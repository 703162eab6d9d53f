/* distill.h - trains a student's weights to predict what a teacher does, on the windows of a text (runtime/distill/student.h).
 *
 * The last tenth of the text's windows is held out: the divergence there is measured before and after, and no step sees it. The other
 * windows are drawn in an order that a seed decides, each once before any comes again. The rate rises for the first steps and then falls
 * to zero. The same numbers for any number of threads. */
#ifndef APR_ENGINE_DISTILL_H
#define APR_ENGINE_DISTILL_H

#include "convert/convert.h"
#include "runtime/distill/student.h"
#include "runtime/train/train_device.h"
#include "tools/engine/run/running.h"

typedef struct apr_distill_request {
    const apr_running *teacher, *student; /* with their tokenizers, without sessions */
    const char *text;                     /* its path, or "-" */
    int64_t n_steps;
    int64_t n_tokens; /* of a step: whole windows */
    int64_t window;   /* 0: 512, or fewer where a context, the text or n_tokens is shorter */
    double rate, decay;
    uint64_t seed, budget_bytes; /* budget_bytes: of host memory; 0: what is available */
    int n_threads;
    bool on_device; /* of CUDA: the GPU `ordinal` has models, gradients and moments; else the host */
    int ordinal;
    /* Called after each step, and before the first and after the last with step 0 and n_steps + 1: what is measured; NULL: not. */
    void (*on_step)(void *user, int64_t step, double loss);
    void *user;
} apr_distill_request;

/* Paired by rows: after less before. */
typedef struct apr_distill {
    apr_train_device *device; /* NULL: the host */
    apr_train *teacher;
    apr_student *student;
    int32_t *ids, *ids_student; /* the text's tokens in windows; each model has its own begin token */
    int64_t window, n_windows, n_held_out, n_together;
    uint64_t planned_bytes, planned_device_bytes; /* of host memory; of the GPU's */
    double *losses;                               /* [n_steps] */
    double before, after;                         /* mean divergence on the held-out windows */
    double first, last, error; /* means of the first and the last tenth of the steps' losses, and the standard error of their difference */
    int64_t n_tenth;
    bool is_better, falls;
} apr_distill;

/* Reads the text and plans. APR_E_USAGE: the text is too short. APR_E_UNSUPPORTED: vocabularies differ, a weight is quantized, or an
 * operation has no backward pass there. APR_E_MEMORY: the plan needs more than the budget, or than the GPU has free. APR_E_DEVICE: there is no
 * GPU. Close it whatever the status. */
apr_status apr_distill_open(apr_distill *distill, const apr_distill_request *request, apr_error *err);
void apr_distill_close(apr_distill *distill);

/* Trains. APR_E_NO: a number is not finite; the message names the operation. */
apr_status apr_distill_run(apr_distill *distill, const apr_distill_request *request, apr_error *err);
/* APR_E_NO with one sentence, unless the held-out divergence and the losses fell. */
apr_status apr_distill_verdict(const apr_distill *distill, apr_error *err);

/* The student's canonical view with the trained weights in their own types: a source of a conversion. Refers to both; close with
 * apr_model_close. */
apr_status apr_distill_view(apr_model *view, apr_distill *distill, const apr_model *student, apr_error *err);

#endif
