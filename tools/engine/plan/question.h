/* question.h - a model, the device that it should fit, and the plans that answer: what aprplan computes before it prints.
 *
 *     apr_plan_question q = {.asked = &asked};      then set the devices: gpu, n_devices, ordinals, gpus
 *     apr_question_open(&q, &source, true, &err)    a model, or the shapes that a config.json implies; its program
 *     apr_question_plans(&q, &asked, &plans, &err)  as often as wanted, with other options
 *     apr_question_close(&q)                        also after a failure */
#ifndef APR_ENGINE_PLAN_QUESTION_H
#define APR_ENGINE_PLAN_QUESTION_H

#include "runtime/plan/plans.h"
#include "tools/engine/plan/sizes.h"

/* What is asked, in the words of the options. */
typedef struct apr_plan_asked {
    uint64_t vram, headroom, memory;
    const char *gpu, *dtype, *gpus, *offload;
    int64_t ctx, batch, sequences, stack;
    int kv; /* of apr_kv_dtypes */
    bool host, direct;
} apr_plan_asked;

typedef struct apr_plan_question {
    const apr_plan_asked *asked;
    const apr_gpu *gpu;      /* NULL: the host */
    bool is_whole;           /* the source has all tensors, not only its header */
    bool is_guess;           /* --vram without --gpu: `gpu` is a known one of about that size */
    const apr_model *source; /* as it was read */
    apr_model model;         /* its canonical view, or a skeleton when there is only a config.json */
    apr_model skeleton;      /* for --dtype where the weights are in a layout that is not read; else empty */
    apr_program program;
    apr_offload offload;
    int n_devices, ordinals[APR_MAX_DEVICES];
    apr_gpu gpus[APR_MAX_DEVICES]; /* [n_named] as --gpu names them */
    char labels[APR_MAX_DEVICES][APR_GPU_LABEL];
    int n_named;
    /* [program.n_weights] sizes: what each weight takes; bytes, dtypes, notes: the same as the planner's arrays. host_bytes: on the host,
     * when a part is offloaded. made: of weights that are composed of others. filled: of the padding of experts' rows. */
    apr_weight_size *sizes;
    uint64_t *bytes, *host_bytes, *composed_bytes, *filled;
    apr_dtype *dtypes;
    apr_weight_note *notes;
} apr_plan_question;

/* The source must outlive the question. APR_E_UNSUPPORTED and the like: what a run would refuse is not planned, except with --dtype a model that
 * is still to be made. */
apr_status apr_question_open(apr_plan_question *q, const apr_model *source, bool is_whole, apr_error *err);
void apr_question_close(apr_plan_question *q);

/* For --vram alone: of the GPUs whose memory is nearest to it (within vram / 64), the one with the largest CUDA context. */
const apr_gpu *apr_nearest_gpu(uint64_t vram);

/* The planner's options for what is asked; they point at arrays of q. offloads: sizes on the host are wanted, too. */
apr_status apr_question_options(apr_plan_question *q, const apr_plan_asked *asked, bool offloads, apr_plans_options *options,
                                apr_error *err);
apr_status apr_question_plans(apr_plan_question *q, const apr_plan_asked *asked, apr_plans *plans, apr_error *err);

#endif
