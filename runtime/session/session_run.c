/* session_run.c - runs a program's operations one by one, on the place of each.
 *
 * On the host a step of several sequences runs each operation once for all rows. Operations that depend on positions or states run row
 * by row, on the pages and states of the row's sequence. Products take only as many rows at a time as keeps each row's sums in the order
 * of a single row. A device runs each operation once, and reads the rows' positions from a table that is uploaded before. */
#include "runtime/program/op_spec.h"
#include "runtime/session/heap.h"
#include "runtime/session/session_internal.h"

#include <stdlib.h>

/* --- tokens for a device --- */

static bool device_has_token(const apr_session *s, const apr_session_batch *b)
{
    return s->sent_position == b->position && s->sent_id == b->ids[0];
}

/* Uploads the batch's token if the device does not have it. The copy is complete on return. */
static apr_status upload_token(apr_session *s, const apr_session_batch *b, const apr_session_place *at, apr_error *err)
{
    if (device_has_token(s, b)) return APR_OK;
    const apr_cuda_token token = apr_session_next_token(s, b);
    return s->options.cuda->upload(at->device, at->token, &token, offsetof(apr_cuda_token, found), err);
}

/* Uploads the ids of the batch into the workspace, where a device reads them; operations that read ids use no other workspace. A single
 * token's id is next to its position, and the ids of a step are in its table. */
static apr_status upload_ids(const apr_session *s, const apr_session_batch *b, const apr_session_place *at, apr_op_memory *arena,
                             apr_error *err)
{
    if (b->positions != NULL) {
        arena->ids = at->step.ids;
        return APR_OK;
    }
    if (apr_session_reads_token(s, b, at)) {
        arena->ids = &at->token->id;
        return APR_OK;
    }
    arena->ids = (const int32_t *)(const void *)at->work.data;
    return s->options.cuda->upload(at->device, at->work.data, b->ids, (uint64_t)b->n_tokens * sizeof *b->ids, err);
}

/* --- rows of a step, on the host --- */

static void run_bound(const apr_session_place *at, const apr_op *op, const apr_op_memory *arena)
{
    apr_op_args args;
    apr_op_bind(arena, op, &args);
    at->backend->ops[op->kind](&args);
}

static void run_each(const apr_session *s, const apr_session_batch *b, const apr_session_place *at, const apr_op *op, apr_op_memory *arena)
{
    for (int64_t r = 0; r < b->n_tokens; r++) {
        arena->first = r;
        arena->n_tokens = 1;
        arena->ids = b->ids + r;
        arena->sequence = b->sequences[r];
        arena->position = b->positions[r];
        arena->pages = apr_pages_of(&s->pages, arena->sequence);
        run_bound(at, op, arena);
    }
}

/* The number of rows that every matrix of the operation takes together. */
static int64_t rows_together(const apr_session_place *at, const apr_op *op)
{
    int64_t most = INT64_MAX;
    for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) {
        const apr_tensor *const matrix = op->weight[j] >= 0 ? at->multiplied[op->weight[j]] : NULL;
        if (matrix == NULL || apr_op_specs[op->kind]->weights[j].use != APR_USE_MULTIPLIED) continue;
        const int64_t n = apr_host_batch_invariant_tokens(at->backend, matrix);
        if (n < most) most = n;
    }
    return most;
}

static void run_some(const apr_session *s, const apr_session_batch *b, const apr_session_place *at, const apr_op *op, apr_op_memory *arena)
{
    const bool makes_logits = s->program.values[op->out].is_logits;
    const int64_t n = makes_logits ? b->n_rows : b->n_tokens, most = rows_together(at, op);
    float *const logits = arena->logits;

    for (int64_t r = 0, now; r < n; r += now) {
        now = n - r < most ? n - r : most;
        if (makes_logits) {
            arena->first_row = b->first_row + r;
            arena->n_rows = now;
            arena->logits = logits + r * s->program.vocab_size;
        } else {
            arena->first = r;
            arena->n_tokens = now;
        }
        run_bound(at, op, arena);
    }
}

/* Runs one operation on the rows of a step, on the host. */
static void run_step_op(const apr_session *s, const apr_session_batch *b, const apr_session_place *at, const apr_op *op,
                        apr_op_memory *arena)
{
    const bool makes_logits = op->out >= 0 && s->program.values[op->out].is_logits;
    const apr_batch_mode mode = apr_op_specs[op->kind]->step;

    if (mode == APR_BATCH_PER_SEQUENCE && !makes_logits) run_each(s, b, at, op, arena);
    else if (mode == APR_BATCH_FEW_ROWS) run_some(s, b, at, op, arena);
    else run_bound(at, op, arena);
}

/* --- one operation --- */

static bool is_read_on_host(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    return at->device != NULL && op->weight[0] >= 0 && apr_slot_is_read_on_host(&s->program.weights[op->weight[0]]);
}

/* Looks up rows of a table that the device does not have, on the host, and uploads them. */
static apr_status run_on_host(const apr_session *s, const apr_session_batch *b, const apr_session_place *at, const apr_op *op,
                              apr_op_memory *arena, apr_error *err)
{
    apr_op_args args;

    arena->host_rows = at->host_rows;
    apr_op_bind(arena, op, &args);
    apr_host_backend.ops[op->kind](&args);
    const uint64_t n_bytes = (uint64_t)(b->n_tokens * s->program.values[op->out].width) * sizeof(float);
    return s->options.cuda->upload(at->device, apr_session_value_at(s, op->out), at->host_rows, n_bytes, err);
}

static apr_status bind_on(apr_session *s, const apr_session_batch *b, const apr_session_place *at, const apr_op *op, apr_op_memory *arena,
                          apr_op_args *args, apr_error *err)
{
    if (apr_session_reads_token(s, b, at)) APR_TRY(upload_token(s, b, at, err));
    if (at->device != NULL && apr_op_specs[op->kind]->reads_ids) APR_TRY(upload_ids(s, b, at, arena, err));
    apr_op_bind(arena, op, args);
    return APR_OK;
}

apr_status apr_session_bind_op(apr_session *s, const apr_session_batch *b, const apr_session_place *at, const apr_op *op, apr_op_args *args,
                               apr_error *err)
{
    apr_op_memory arena = apr_session_op_memory(s, b, at);
    return bind_on(s, b, at, op, &arena, args, err);
}

/* With several places the heap is counted here, per host operation: the driver's own use of the heap is not in the plan. */
static apr_status run_at_place(apr_session *s, const apr_session_batch *b, const apr_session_place *at, const apr_op *op,
                               apr_op_memory *arena, apr_error *err)
{
    apr_op_args args;

    if (b->positions != NULL && at->device == NULL) {
        run_step_op(s, b, at, op, arena);
        return APR_OK;
    }
    APR_TRY(bind_on(s, b, at, op, arena, &args, err));
    if (at->device != NULL) return s->options.cuda->run(at->device, op->kind, &args, err);
    const bool counts_heap = s->n_places > 1;
    const uint64_t before = counts_heap ? apr_heap_in_use() : 0;
    at->backend->ops[op->kind](&args);
    if (counts_heap) apr_session_count_heap(&s->heap_runs, before);
    return APR_OK;
}

/* Copies a value to a place that reads it and did not make it. The copy is complete on return. */
static apr_status copy_value(const apr_session *s, const apr_session_batch *b, const apr_transfer *t, const apr_op *op, apr_error *err)
{
    const apr_session_place *const from = &s->places[t->from], *const to = &s->places[t->to];
    const apr_op_memory source = apr_session_op_memory(s, b, from), target = apr_session_op_memory(s, b, to);
    const apr_op_memory_rows rows = op->out >= 0 ? apr_op_memory_rows_of(&source, op->out) : (apr_op_memory_rows){0, b->n_tokens};
    const int64_t width = s->program.values[t->value].width;
    const float *const src = apr_op_memory_value(&source, t->value) + rows.first * width;
    float *const dst = apr_op_memory_value(&target, t->value) + rows.first * width;
    const uint64_t n_bytes = (uint64_t)(rows.n * width) * sizeof *src;

    if (from->device == NULL) return s->options.cuda->upload(to->device, dst, src, n_bytes, err);
    if (to->device == NULL) return s->options.cuda->download(from->device, dst, src, n_bytes, err);
    return s->options.cuda->transfer(from->device, src, to->device, dst, n_bytes, err);
}

/* Does it multiply by weights, or choose the experts that do? */
static bool is_product(const apr_session *s, const apr_op *op)
{
    bool is = op->kind == APR_OP_ROUTE;
    for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++)
        is |= op->weight[j] >= 0 && (s->program.weights[op->weight[j]].uses & APR_USE_MULTIPLIED) != 0;
    return is && !apr_op_specs[op->kind]->reads_ids;
}

apr_status apr_session_run_op(apr_session *s, const apr_session_batch *b, const apr_op *op, apr_error *err)
{
    const size_t i = (size_t)(op - s->program.ops);

    if (s->only_products && !is_product(s, op)) return APR_OK;
    const apr_session_place *const at = &s->places[s->partition.op_place[i]];
    apr_op_memory arena = apr_session_op_memory(s, b, at);
    size_t n;

    const apr_transfer *const transfers = apr_partition_before(&s->partition, i, &n);
    for (size_t j = 0; j < n; j++) APR_TRY(copy_value(s, b, &transfers[j], op, err));
    if (is_read_on_host(s, at, op)) APR_TRY(run_on_host(s, b, at, op, &arena, err));
    else APR_TRY(run_at_place(s, b, at, op, &arena, err));
    const bool is_watched = s->watch != NULL && (s->watched == op->kind || s->watched == APR_OP_COUNT);
    if (!is_watched) return APR_OK;
    s->traced = *b;
    return s->watch(s->watch_user, s, op, err);
}
