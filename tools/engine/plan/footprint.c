/* footprint.c - adds up planned and measured memory of sessions. */
#include "tools/engine/plan/footprint.h"

#include "formats/base/bytes.h"

static uint64_t line_bytes(const apr_plan *plan, apr_line_id id)
{
    const apr_plan_line *const line = apr_plan_line_of(plan, id);
    return line != NULL ? line->bytes : 0;
}

static uint64_t judged_bytes(const apr_plan *plan) { return plan->is_shared ? plan->taken_bytes : plan->device_bytes; }

uint64_t apr_planned_together(const apr_plan *a, const apr_plan *b)
{
    if (a->judged == APR_ON_HOST) return apr_saturating_add(a->host_bytes, b->host_bytes);
    const uint64_t shared = line_bytes(b, APR_LINE_CONTEXT) + line_bytes(b, APR_LINE_HEADROOM);
    return apr_saturating_add(judged_bytes(a), judged_bytes(b) - shared);
}

static uint64_t weight_bytes(const apr_plan *plan)
{
    uint64_t n = line_bytes(plan, APR_LINE_FILLED);
    for (int role = 0; role < APR_ROLE_COUNT; role++) n += line_bytes(plan, (apr_line_id)(APR_LINE_WEIGHTS_EMBEDDING + role));
    return n;
}

/* Sessions on a GPU share one CUDA context, which the first session there made. */
static uint64_t contexts_bytes(const apr_session *session)
{
    uint64_t n = 0;
    for (int i = 0; i < apr_session_n_places(session); i++) n += line_bytes(apr_session_place_plan(session, i), APR_LINE_CONTEXT);
    return n;
}

apr_footprint apr_footprint_of(const apr_session *const *sessions, size_t n)
{
    apr_footprint f = {.on = apr_session_plan(sessions[0])->judged};

    for (size_t i = 0; i < n; i++) {
        const apr_session_memory m = apr_session_check_memory(sessions[i]);
        if (m.on != f.on) continue;
        for (int k = 0; k < apr_session_n_places(sessions[i]); k++)
            if (apr_session_place_plan(sessions[i], k)->judged == f.on) f.weights += weight_bytes(apr_session_place_plan(sessions[i], k));
        f.planned += m.planned - (f.on == APR_ON_DEVICE && i > 0 ? contexts_bytes(sessions[i]) : 0);
        f.allowed += m.allowed;
        /* a GPU is measured as a whole, from before the first session; a heap per session */
        if (i == 0 || m.measured == UINT64_MAX) f.measured = m.measured;
        else if (f.on == APR_ON_HOST) f.measured = apr_saturating_add(f.measured, m.measured);
    }
    f.mapped = f.on == APR_ON_HOST;
    return f;
}

void apr_footprint_add_weights(apr_footprint *f, uint64_t heap_bytes)
{
    if (f->on != APR_ON_HOST) return;
    f->mapped = false;
    f->planned = apr_saturating_add(f->planned, f->weights);
    f->measured = heap_bytes == UINT64_MAX ? UINT64_MAX : apr_saturating_add(f->measured, heap_bytes);
}

uint64_t apr_footprint_difference(const apr_footprint *f)
{
    return f->measured > f->planned ? f->measured - f->planned : f->planned - f->measured;
}

bool apr_footprint_as_planned(const apr_footprint *f) { return f->measured != UINT64_MAX && apr_footprint_difference(f) <= f->allowed; }
