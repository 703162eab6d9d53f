/* session_memory.c - what a session's plan said, held against what others counted. */
#include "runtime/session/heap.h"
#include "runtime/session/session_parts.h"

void apr_session_count_heap(int64_t *grown, uint64_t before)
{
    const uint64_t now = apr_heap_in_use();
    if (before != UINT64_MAX && now != UINT64_MAX) *grown += (int64_t)(now - before);
}

apr_session_usage apr_session_used(const apr_session *s)
{
    apr_session_usage used = s->used;
    apr_cuda_facts facts;

    if (s->device == NULL || s->used_before == UINT64_MAX) return used;
    if (s->options.cuda->facts(s->options.ordinal, &facts, NULL) == APR_OK && facts.used_bytes != UINT64_MAX)
        used.driver = facts.used_bytes > s->used_before ? facts.used_bytes - s->used_before : 0;
    return used;
}

/* What the session keeps beside the plan's lines. */
static uint64_t table_bytes(const apr_session *s)
{
    const apr_program *const p = &s->program;
    void *const blocks[] = {p->weights, p->values,     p->states,  p->ropes, p->ops,    s->tensors,
                            s->bound,   s->multiplied, s->experts, s->twins, s->history};
    uint64_t n = sizeof *s + p->arena.total_bytes + s->plan.arena.total_bytes;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) n += apr_heap_block(blocks[i]);
    for (size_t i = 0; s->experts != NULL && i < p->n_weights; i++) n += apr_heap_block(s->experts[i]);
    return n;
}

static uint64_t mapped_bytes(const apr_plan *plan)
{
    uint64_t n = 0;
    for (int role = 0; role < APR_ROLE_COUNT; role++) {
        const apr_plan_line *const line = apr_plan_line_of(plan, (apr_line_id)(APR_LINE_WEIGHTS_EMBEDDING + role));
        n += line != NULL ? line->bytes : 0;
    }
    return n;
}

static apr_session_memory on_device(const apr_session *s)
{
    const apr_plan_line *const headroom = apr_plan_line_of(&s->plan, APR_LINE_HEADROOM);
    const uint64_t driver = apr_session_used(s).driver;
    return (apr_session_memory){.on = APR_ON_DEVICE,
                                .planned = s->plan.device_bytes - (headroom != NULL ? headroom->bytes : 0),
                                .measured = driver > 0 ? driver : UINT64_MAX,
                                .allowed = APR_DEVICE_SLACK_BYTES};
}

static apr_session_memory on_host(const apr_session *s)
{
    const int64_t grown = s->heap_program + s->heap_ground + s->heap_runs;
    apr_session_memory m = {.on = APR_ON_HOST, .mapped = mapped_bytes(&s->plan), .tables = table_bytes(s), .allowed = APR_HOST_SLACK_BYTES};
    m.planned = s->plan.host_bytes - m.mapped + m.tables;
    m.measured = apr_heap_in_use() == UINT64_MAX ? UINT64_MAX : grown > 0 ? (uint64_t)grown : 0;
    return m;
}

apr_session_memory apr_session_check_memory(const apr_session *s)
{
    apr_session_memory m = s->device != NULL ? on_device(s) : on_host(s);
    const uint64_t off = m.measured > m.planned ? m.measured - m.planned : m.planned - m.measured;
    m.as_planned = m.measured != UINT64_MAX && off <= m.allowed;
    return m;
}
