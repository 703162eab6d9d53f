/* advice.c - plans again with one option changed at a time. */
#include "tools/engine/plan/advice.h"

#include "formats/base/bytes.h"

static void take_bytes(apr_remedy *r, const apr_plans *plans)
{
    r->fits = true;
    for (int i = 0; i < plans->partition.n_places; i++) {
        r->device_bytes = apr_saturating_add(r->device_bytes, plans->plans[i].device_bytes);
        r->host_bytes = apr_saturating_add(r->host_bytes, plans->plans[i].host_bytes);
    }
}

/* Plans with the changed options. */
static void try_change(apr_plan_question *q, const apr_plan_asked *changed, apr_remedy *r)
{
    apr_plans_options options;
    apr_plans plans;

    *r = (apr_remedy){.was_tried = true, .asked = *changed};
    if (apr_question_options(q, changed, apr_offload_is_some(&q->offload), &options, NULL) != APR_OK) return;
    options.each.no_largest = true;
    if (apr_plans_make(&plans, &q->program, &options, NULL) != APR_OK) return;
    if (apr_plans_fit(&plans)) take_bytes(r, &plans);
    apr_plans_close(&plans);
}

static void try_direct(apr_plan_question *q, const apr_plans *plans, apr_remedy *r)
{
    apr_plan_asked changed = *q->asked;
    (void)plans;
    if (changed.direct) return;
    changed.direct = true;
    try_change(q, &changed, r);
}

static void try_headroom(apr_plan_question *q, const apr_plans *plans, apr_remedy *r)
{
    apr_plan_asked changed = *q->asked;
    uint64_t missing = 0;

    for (int i = 0; i < plans->partition.n_places; i++)
        if (plans->plans[i].short_bytes > missing) missing = plans->plans[i].short_bytes;
    if (q->gpu == NULL || missing > changed.headroom) return;
    changed.headroom = (changed.headroom - missing) >> 20 << 20;
    try_change(q, &changed, r);
}

static void try_kv(apr_plan_question *q, const apr_plans *plans, apr_remedy *r)
{
    static const apr_dtype smaller[] = {APR_F16, APR_Q8_0};
    apr_plan_asked changed = *q->asked;
    const apr_dtype asked = apr_kv_dtypes[changed.kv];

    (void)plans;
    for (size_t i = 0; i < sizeof smaller / sizeof *smaller && !r->fits; i++) {
        if (apr_kv_row_bytes(smaller[i], 32) >= apr_kv_row_bytes(asked, 32)) continue;
        for (changed.kv = 0; apr_kv_dtypes[changed.kv] != smaller[i];) changed.kv++;
        try_change(q, &changed, r);
    }
}

static void try_context(apr_plan_question *q, const apr_plans *plans, apr_remedy *r)
{
    apr_plan_asked changed = *q->asked;

    changed.ctx = INT64_MAX;
    for (int i = 0; i < plans->partition.n_places; i++)
        if (plans->plans[i].max_ctx < changed.ctx) changed.ctx = plans->plans[i].max_ctx;
    if (changed.ctx > 0) try_change(q, &changed, r);
}

/* Memory of all devices; a GPU with two parts counts twice. */
static uint64_t all_memory(const apr_plan_question *q)
{
    uint64_t sum = 0;
    for (int i = 0; i < q->n_devices; i++) {
        const apr_gpu *const gpu = q->n_named > 1 ? &q->gpus[i] : q->gpu;
        sum = apr_saturating_add(sum, q->asked->vram > 0 ? q->asked->vram : apr_gpu_vram_bytes(gpu));
    }
    return sum;
}

/* The types tried, from the best down, when the one asked for does not fit. */
static const char *const ladder[] = {"bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_k_s", "mxfp4"};

static void try_type(apr_plan_question *q, const apr_plans *plans, apr_remedy *r)
{
    apr_plan_asked changed = *q->asked;

    (void)plans;
    for (size_t i = 0; i < sizeof ladder / sizeof *ladder && !r->fits; i++) {
        changed.dtype = ladder[i];
        if (q->gpu != NULL && apr_weight_bytes_lower_bound(&q->program, ladder[i]) > all_memory(q)) continue;
        try_change(q, &changed, r);
    }
}

static void try_offload(apr_plan_question *q, const apr_plans *plans, apr_remedy *r)
{
    apr_plans_options options;
    apr_plans some;

    (void)plans;
    if (q->gpu == NULL || apr_question_options(q, q->asked, true, &options, NULL) != APR_OK) return;
    *r = (apr_remedy){.was_tried = true, .asked = *q->asked};
    if (apr_plans_smallest(&some, &r->offload, &q->program, &options, NULL) != APR_OK) return;
    take_bytes(r, &some);
    r->cost = apr_partition_cost_of(&some.partition, &q->program, q->host_bytes);
    r->offloaded_bytes = some.plans[some.partition.n_places - 1].host_bytes;
    apr_plans_close(&some);
}

void apr_question_advise(apr_plan_question *q, const apr_plans *plans, apr_advice *advice)
{
    static void (*const tries[APR_REMEDIES])(apr_plan_question * q, const apr_plans *plans, apr_remedy *r) = {
        [APR_REMEDY_DIRECT] = try_direct,   [APR_REMEDY_HEADROOM] = try_headroom, [APR_REMEDY_KV] = try_kv,
        [APR_REMEDY_CONTEXT] = try_context, [APR_REMEDY_TYPE] = try_type,         [APR_REMEDY_OFFLOAD] = try_offload,
    };

    *advice = (apr_advice){0};
    for (int kind = 0; kind < APR_REMEDIES; kind++) tries[kind](q, plans, &advice->of[kind]);
}
