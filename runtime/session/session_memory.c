/* session_memory.c - compares a session's plan with what the C library and the driver counted. */
#include "runtime/session/heap.h"
#include "runtime/session/session_internal.h"

#include <stdlib.h>

void apr_session_count_heap(int64_t *grown, uint64_t before)
{
    const uint64_t now = apr_heap_in_use();
    if (before != UINT64_MAX && now != UINT64_MAX) *grown += (int64_t)(now - before);
}

/* Growth of a card's used memory since before the first context there; 0: unknown. */
static uint64_t driver_bytes(const apr_session *s, const apr_session_place *at)
{
    apr_cuda_facts facts;

    if (at->device == NULL || at->used_before == UINT64_MAX) return 0;
    if (s->options.cuda->facts(at->ordinal, &facts, NULL) != APR_OK || facts.used_bytes == UINT64_MAX) return 0;
    return facts.used_bytes > at->used_before ? facts.used_bytes - at->used_before : 0;
}

apr_session_usage apr_session_used(const apr_session *s)
{
    apr_session_usage sum = {0};

    for (int i = 0; i < s->n_places; i++) {
        const apr_session_usage *const used = &s->places[i].used;
        sum.weights += used->weights;
        sum.materialised += used->materialised;
        sum.copies += used->copies;
        sum.vectors += used->vectors;
        sum.states += used->states;
        sum.activations += used->activations;
        sum.logits += used->logits;
        sum.workspace += used->workspace;
        sum.device_s += used->device_s;
        sum.upload_s += used->upload_s;
        sum.uploaded += used->uploaded;
        if (used->blas_version != 0) sum.blas_version = used->blas_version;
        if (!s->places[i].shares_card) sum.driver += driver_bytes(s, &s->places[i]);
    }
    return sum;
}

/* What the session keeps on the heap besides the plans' lines. Tables that belong to devices alone are excluded here and in the count. */
static uint64_t table_bytes(const apr_session *s)
{
    const apr_program *const p = &s->program;
    void *const blocks[] = {p->weights, p->values, p->states, p->ropes, p->ops, s->tensors, s->experts, s->history};
    uint64_t n = sizeof *s + p->arena.held_bytes + s->partition.arena.held_bytes + apr_session_sequences_bytes(s);

    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) n += apr_heap_block(blocks[i]);
    for (size_t i = 0; s->experts != NULL && i < p->n_weights; i++) n += apr_heap_block(s->experts[i]);
    for (int k = 0; k < s->n_places; k++) {
        const apr_session_place *const at = &s->places[k];
        n += at->plan.arena.held_bytes;
        if (at->on == APR_ON_DEVICE) continue;
        n += apr_heap_block(at->bound) + apr_heap_block(at->multiplied) + apr_heap_block(at->relocated) + apr_heap_block(at->own_experts);
        for (size_t i = 0; at->own_experts != NULL && i < p->n_weights; i++) n += apr_heap_block(at->own_experts[i]);
    }
    return n;
}

/* Host lines of a plan that are read from the mapped file. */
static uint64_t mapped_bytes(const apr_plan *plan)
{
    uint64_t n = 0;
    for (size_t i = 0; i < plan->n_lines; i++) {
        const apr_plan_line *const line = &plan->lines[i];
        const bool is_mapped = line->id < APR_LINE_WEIGHTS_EMBEDDING + APR_ROLE_COUNT || line->id == APR_LINE_HOST_TABLES;
        if (line->on == APR_ON_HOST && is_mapped) n += line->bytes;
    }
    return n;
}

static apr_session_memory on_device(const apr_session *s, const apr_session_place *at)
{
    apr_session_memory m = {.on = APR_ON_DEVICE, .measured = UINT64_MAX, .allowed = APR_DEVICE_SLACK_BYTES};

    for (int i = 0; i < s->n_places; i++) {
        const apr_session_place *const other = &s->places[i];
        if (other->on != APR_ON_DEVICE || other->ordinal != at->ordinal) continue;
        m.planned += other->plan.device_bytes - apr_session_line_bytes(other, APR_LINE_HEADROOM);
        const uint64_t driver = other->shares_card ? 0 : driver_bytes(s, other);
        if (driver > 0) m.measured = driver;
        if (other->shares_card) m.allowed += APR_DEVICE_SLACK_BYTES; /* another handle of cuBLAS, whose code is already loaded */
    }
    return m;
}

/* Bytes planned on a card but not allocated yet: no token has been recorded. */
static uint64_t not_yet_allocated(const apr_session *s, const apr_session_place *at)
{
    uint64_t n = 0;
    for (int i = 0; i < s->n_places; i++) {
        const apr_session_place *const other = &s->places[i];
        if (other->on == APR_ON_DEVICE && other->ordinal == at->ordinal && other->recorded == NULL)
            n += apr_session_line_bytes(other, APR_LINE_RECORDED);
    }
    return n;
}

/* Everything that the session has on the host. With devices only counted allocations are included, because drivers use the heap also. */
static apr_session_memory on_host(const apr_session *s)
{
    const int64_t grown = s->heap_program + s->heap_places + s->heap_runs;
    apr_session_memory m = {.on = APR_ON_HOST, .tables = table_bytes(s), .allowed = APR_HOST_SLACK_BYTES};

    for (int i = 0; i < s->n_places; i++) {
        m.mapped += mapped_bytes(&s->places[i].plan);
        m.planned += s->places[i].plan.host_bytes;
        if (i > 0) m.allowed += APR_HOST_SLACK_BYTES; /* each plan has its own chunks */
    }
    m.planned += m.tables - m.mapped;
    m.measured = apr_heap_in_use() == UINT64_MAX ? UINT64_MAX : grown > 0 ? (uint64_t)grown : 0;
    return m;
}

apr_session_memory apr_session_place_memory(const apr_session *s, int place)
{
    const apr_session_place *const at = &s->places[place];
    apr_session_memory m = at->on == APR_ON_DEVICE ? on_device(s, at) : on_host(s);
    const uint64_t below = m.allowed + (at->on == APR_ON_DEVICE ? not_yet_allocated(s, at) : 0);
    m.as_planned = m.measured != UINT64_MAX && m.measured <= m.planned + m.allowed && m.measured + below >= m.planned;
    return m;
}

apr_session_memory apr_session_check_memory(const apr_session *s)
{
    apr_session_memory sum = apr_session_place_memory(s, 0);

    for (int i = 1; i < s->n_places; i++) {
        const apr_session_memory m = apr_session_place_memory(s, i);
        sum.as_planned &= m.as_planned;
        if (s->places[i].on != sum.on || s->places[i].shares_card) continue;
        sum.planned += m.planned;
        sum.measured = sum.measured == UINT64_MAX || m.measured == UINT64_MAX ? UINT64_MAX : sum.measured + m.measured;
        sum.allowed += m.allowed;
    }
    return sum;
}

apr_partition_cost apr_session_cost(const apr_session *s)
{
    apr_partition_cost cost = {0};
    uint64_t *const bytes = malloc((s->program.n_weights + 1) * sizeof *bytes);

    if (bytes == NULL) return cost;
    apr_plan_model_weights(&s->program, s->model, bytes);
    cost = apr_partition_cost_of(&s->partition, &s->program, bytes);
    free(bytes);
    return cost;
}
