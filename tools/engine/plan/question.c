/* question.c - see question.h. */
#include "tools/engine/plan/question.h"

#include "convert/naming.h"
#include "formats/tensor/packed_weights.h"
#include "runtime/program/admission.h"

#include <stdlib.h>

apr_status apr_question_open(apr_plan_question *q, const apr_model *source, bool is_whole, apr_error *err)
{
    q->source = source;
    q->is_whole = is_whole;
    const bool has_tensors = source->n_tensors > 0;
    if (has_tensors) APR_TRY(apr_canonical(&q->model, source, err));
    /* tensors stay in parts where their blocks cannot be joined; only the canonical view says so */
    APR_TRY(apr_program_emit(&q->program, has_tensors ? &q->model.hparams : &source->hparams, err));
    if (!has_tensors) APR_TRY(apr_skeleton_model(&q->model, &q->program, source, err));
    const char *layout;
    const bool is_packed = apr_find_packed(source, &layout) != NULL;
    if (is_packed) APR_TRY(apr_skeleton_model(&q->skeleton, &q->program, source, err));
    /* what a run would refuse is not planned; with --dtype the plan is for a model that is still to be made */
    if (has_tensors && (!is_packed || q->asked->dtype == NULL)) APR_TRY(apr_admission_to_run(&q->program, &q->model, err));
    q->bytes = calloc(q->program.n_weights + 1, sizeof *q->bytes);
    q->host_bytes = calloc(q->program.n_weights + 1, sizeof *q->host_bytes);
    q->composed_bytes = calloc(q->program.n_weights + 1, sizeof *q->composed_bytes);
    q->filled = calloc(q->program.n_weights + 1, sizeof *q->filled);
    q->sizes = calloc(q->program.n_weights + 1, sizeof *q->sizes);
    q->dtypes = calloc(q->program.n_weights + 1, sizeof *q->dtypes);
    q->notes = calloc(q->program.n_weights + 1, sizeof *q->notes);
    const bool has_bytes = q->bytes != NULL && q->host_bytes != NULL && q->composed_bytes != NULL && q->filled != NULL;
    if (!has_bytes || q->sizes == NULL || q->dtypes == NULL || q->notes == NULL) return apr_no_memory(err, "the sizes of the weights");
    if (source->n_tensors > 0) apr_plan_composed_weights(&q->program, &q->model, q->composed_bytes);
    return APR_OK;
}

void apr_question_close(apr_plan_question *q)
{
    free(q->bytes);
    free(q->host_bytes);
    free(q->filled);
    free(q->composed_bytes);
    free(q->sizes);
    free(q->dtypes);
    free(q->notes);
    apr_program_close(&q->program);
    apr_model_close(&q->skeleton);
    apr_model_close(&q->model);
}

static uint64_t distance_of(const apr_gpu *gpu, uint64_t vram)
{
    const uint64_t has = apr_gpu_vram_bytes(gpu);
    return has > vram ? has - vram : vram - has;
}

const apr_gpu *apr_nearest_gpu(uint64_t vram)
{
    const apr_gpu *nearest = NULL;
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < apr_n_gpus; i++)
        if (!apr_gpus[i].is_integrated && distance_of(&apr_gpus[i], vram) < least) least = distance_of(&apr_gpus[i], vram);
    for (size_t i = 0; i < apr_n_gpus; i++) {
        const apr_gpu *const gpu = &apr_gpus[i];
        const bool is_near = !gpu->is_integrated && distance_of(gpu, vram) <= least + vram / 64;
        if (is_near && (nearest == NULL || apr_gpu_context_bytes(gpu, 0) > apr_gpu_context_bytes(nearest, 0))) nearest = gpu;
    }
    return nearest;
}

/* Sizes of all weights by the recipe: on the device and, if a part is offloaded, on the host. */
static apr_status size_weights(apr_plan_question *q, const char *dtype, int64_t n_sequences, bool offloads, apr_error *err)
{
    const apr_model *const sized = dtype != NULL && q->skeleton.tensors != NULL ? &q->skeleton : &q->model;

    if (offloads) APR_TRY(apr_weight_sizes(sized, &q->program, dtype, false, q->sizes, err));
    for (size_t i = 0; i < q->program.n_weights; i++) q->host_bytes[i] = q->sizes[i].bytes;
    APR_TRY(apr_weight_sizes(sized, &q->program, dtype, q->gpu != NULL, q->sizes, err));
    for (size_t i = 0; i < q->program.n_weights; i++) {
        q->bytes[i] = q->sizes[i].bytes;
        q->notes[i] = q->sizes[i].note;
        q->dtypes[i] = q->sizes[i].dtype;
    }
    apr_plan_padded_weights(&q->program, q->dtypes, n_sequences, q->filled);
    for (size_t i = 0; i < q->program.n_weights; i++)
        q->dtypes[i] = q->sizes[i].is_f16 ? APR_F16 : APR_BF16; /* the planner only asks whether the type must be decoded */
    return APR_OK;
}

apr_status apr_question_options(apr_plan_question *q, const apr_plan_asked *asked, bool offloads, apr_plans_options *o, apr_error *err)
{
    APR_TRY(size_weights(q, asked->dtype, asked->sequences, offloads, err));
    *o = (apr_plans_options){.each = apr_plan_defaults,
                             .n_devices = q->n_devices,
                             .offload = q->offload,
                             .host_weight_bytes = q->host_bytes,
                             .host_budget_bytes = asked->memory};
    o->each.n_ctx = asked->ctx;
    o->each.n_batch = asked->batch;
    o->each.n_sequences = asked->sequences;
    o->each.kv_dtype = apr_kv_dtypes[asked->kv];
    o->each.headroom_bytes = asked->headroom;
    o->each.stack_bytes = (uint64_t)asked->stack;
    o->each.gpu = q->gpu;
    o->each.budget_bytes = asked->vram;
    o->each.system_bytes = q->gpu != NULL && asked->vram == 0 ? apr_gpu_system_bytes(q->gpu) : 0;
    o->each.weight_bytes = q->bytes;
    o->each.copies = !asked->direct && q->gpu != NULL;
    o->each.weight_dtypes = q->gpu != NULL ? q->dtypes : NULL;
    o->each.weight_notes = q->notes;
    o->each.padding_bytes = q->gpu != NULL && asked->direct ? q->filled : NULL;
    o->each.composed_bytes = asked->dtype == NULL ? q->composed_bytes : NULL; /* aprquant writes these weights as a run needs them */
    for (int i = 0; i < q->n_named; i++) o->gpus[i] = q->n_named > 1 ? &q->gpus[i] : NULL;
    for (int i = 1; i < q->n_devices; i++) o->shares_card[i] = q->ordinals[i] == q->ordinals[i - 1];
    return APR_OK;
}

apr_status apr_question_plans(apr_plan_question *q, const apr_plan_asked *asked, apr_plans *plans, apr_error *err)
{
    apr_plans_options options;
    APR_TRY(apr_question_options(q, asked, apr_offload_is_some(&q->offload), &options, err));
    return apr_plans_make(plans, &q->program, &options, err);
}
