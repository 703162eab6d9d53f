/* plan.c - aprkit.h: the memory that a run of a model would take. */
#include "tools/engine/library/handles.h"

#include <stdlib.h>

static apr_status ask(aprkit_plan *p, const aprkit_plan_options *o, apr_error *err)
{
    apr_plan_question *const q = &p->question;

    p->asked = (apr_plan_asked){.vram = o->vram,
                                .headroom = o->headroom > 0 ? o->headroom : (uint64_t)1 << 30,
                                .memory = o->memory,
                                .gpu = o->gpu,
                                .dtype = o->to,
                                .ctx = o->n_context,
                                .batch = o->n_batch,
                                .sequences = o->n_sequences > 0 ? o->n_sequences : 1,
                                .stack = APR_DEFAULT_STACK_BYTES,
                                .host = o->gpu == NULL && o->vram == 0,
                                .direct = true};
    if (o->n_context < 0 || o->n_batch < 0 || o->n_sequences < 0)
        return apr_fail(err, APR_E_USAGE, "context, batch and sequences of a plan cannot be negative");
    APR_TRY(apr_kv_of_word(o->kv, &p->asked.kv, err));
    q->asked = &p->asked;
    if (p->asked.host) return APR_OK;
    q->n_devices = 1;
    if (o->gpu == NULL) {
        q->gpu = apr_nearest_gpu(o->vram);
        q->is_guess = true;
        return APR_OK;
    }
    APR_TRY(apr_gpu_named(o->gpu, &q->gpus[0], q->labels[0], err));
    q->gpu = &q->gpus[0];
    q->n_named = 1;
    return APR_OK;
}

static apr_status open_question(aprkit_plan *p, const aprkit_model *model, const aprkit_plan_options *o, apr_error *err)
{
    apr_plan_question *const q = &p->question;

    if (model->is_tokenizer) return apr_library_need_weights(model, err);
    if (o->hooks == NULL) {
        APR_TRY(ask(p, o, err));
    } else {
        *q = *o->hooks->question;
        if (q->n_named > 0) q->gpu = &q->gpus[0];
    }
    return apr_question_open(q, &model->model, model->is_whole, err);
}

static apr_status make(aprkit_plan *p, const aprkit_model *model, const aprkit_plan_options *options, apr_error *err)
{
    aprkit_plan_options o;

    APR_TRY(apr_take_options(&o, sizeof o, options, "aprkit_plan_options", err));
    APR_TRY(open_question(p, model, &o, err));
    if (o.hooks != NULL && o.hooks->is_left_open) return APR_OK;
    return apr_question_plans(&p->question, p->question.asked, &p->plans, err);
}

int aprkit_plan_make(aprkit_plan **plan, const aprkit_model *model, const aprkit_plan_options *options, aprkit_error *error)
{
    apr_error err = {0};
    aprkit_plan *p = calloc(1, sizeof *p);
    const apr_library_call call = apr_library_enter(NULL, 0);
    const apr_status status = p != NULL ? make(p, model, options, &err) : apr_no_memory(&err, "a plan");

    if (status != APR_OK && p != NULL) {
        apr_question_close(&p->question);
        free(p);
        p = NULL;
    }
    *plan = p;
    return apr_library_leave(&call, status, &err, error);
}

void aprkit_plan_close(aprkit_plan *plan)
{
    if (plan == NULL) return;
    apr_plans_close(&plan->plans);
    apr_question_close(&plan->question);
    free(plan);
}

int aprkit_plan_line(const aprkit_plan *plan, size_t i, aprkit_plan_part *line, aprkit_error *error)
{
    const apr_plan *const p = plan->plans.plans;
    apr_error err = {0};

    if (i >= p->n_lines)
        return apr_library_result(apr_fail(&err, APR_E_USAGE, "the plan has no line %zu: it has %zu", i, p->n_lines), &err, error);
    const apr_plan_line *const l = &p->lines[i];
    const aprkit_plan_part part = {
        .key = l->key, .label = l->label, .n_bytes = l->bytes, .on_device = l->on == APR_ON_DEVICE, .reason = l->reason};
    return apr_library_result(apr_give_facts(line, sizeof part, &part, "aprkit_plan_part", &err), &err, error);
}

size_t aprkit_plan_n_lines(const aprkit_plan *plan) { return plan->plans.plans->n_lines; }
uint64_t aprkit_plan_total(const aprkit_plan *plan) { return plan->plans.plans->taken_bytes; }
uint64_t aprkit_plan_budget(const aprkit_plan *plan) { return plan->plans.plans->budget_bytes; }
int aprkit_plan_fits(const aprkit_plan *plan) { return apr_plans_fit(&plan->plans); }
int64_t aprkit_plan_max_ctx(const aprkit_plan *plan) { return plan->plans.plans->max_ctx; }
const char *aprkit_gpu_name(size_t i) { return i < apr_n_gpus ? apr_gpus[i].name : NULL; }
