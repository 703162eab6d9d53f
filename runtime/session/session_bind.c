/* session_bind.c - binds a program to a model's tensors, and its operations to the memory they run in. */
#include "runtime/program/admission.h"
#include "runtime/program/op_spec.h"
#include "runtime/session/heap.h"
#include "runtime/session/session_internal.h"

#include <stdlib.h>
#include <string.h>

/* --- tensors --- */

/* Name, shape and type were checked by runtime/program/admission.h. */
static apr_status check_tensor(const apr_session *s, const apr_weight_slot *slot, const apr_tensor *tensor, apr_error *err)
{
    if (tensor->data == NULL && tensor->made == NULL && tensor->packing == NULL)
        return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' has no data", s->model->path, slot->name);
    return APR_OK;
}

const apr_tensor *apr_session_slot_tensors(const apr_session *s, size_t slot)
{
    return s->experts[slot] != NULL ? s->experts[slot] : s->tensors[slot];
}

int64_t apr_session_n_slot_tensors(const apr_session *s, size_t slot) { return s->tensors[slot] != NULL ? s->program.weights[slot].count : 0; }

/* Fills the table of a slot that has several tensors: views of the model's. */
static apr_status bind_experts(apr_session *s, size_t i, apr_error *err)
{
    apr_weight_slot one = s->program.weights[i];
    char name[256];

    if (one.optional && apr_model_find(s->model, apr_slot_name(&one, 0, name, sizeof name)) == NULL) return APR_OK;
    s->experts[i] = calloc((size_t)one.count, sizeof *s->experts[i]);
    if (s->experts[i] == NULL) return apr_no_memory(err, "the table of experts");
    for (int64_t e = 0; e < one.count; e++) {
        one.name = apr_slot_name(&s->program.weights[i], e, name, sizeof name);
        const apr_tensor *const tensor = apr_model_find(s->model, name);
        if (tensor == NULL) return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' is missing", s->model->path, name);
        APR_TRY(check_tensor(s, &one, tensor, err));
        s->experts[i][e] = *tensor;
        if (e == 0) s->tensors[i] = tensor;
    }
    return APR_OK;
}

static apr_status bind_tensor(apr_session *s, size_t i, apr_error *err)
{
    const apr_weight_slot *const slot = &s->program.weights[i];

    if (strchr(slot->name, '*') != NULL) return bind_experts(s, i, err);
    s->tensors[i] = apr_model_find(s->model, slot->name);
    if (s->tensors[i] == NULL && slot->optional) return APR_OK;
    if (s->tensors[i] == NULL) return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' is missing", s->model->path, slot->name);
    APR_TRY(check_tensor(s, slot, s->tensors[i], err));
    return APR_OK;
}

apr_status apr_session_bind_tensors(apr_session *s, apr_error *err)
{
    const size_t n = s->program.n_weights + 1;

    if (s->model->n_tensors == 0) return apr_fail(err, APR_E_UNSUPPORTED, "%s: there are no weights to run", s->model->path);
    APR_TRY(apr_admission_to_run(&s->program, s->model, err));
    s->tensors = calloc(n, sizeof *s->tensors);
    s->experts = calloc(n, sizeof *s->experts);
    if (s->tensors == NULL || s->experts == NULL) return apr_no_memory(err, "the table of tensors");
    for (size_t i = 0; i < s->program.n_weights; i++) APR_TRY(bind_tensor(s, i, err));
    return APR_OK;
}

/* --- operations --- */

static apr_op_memory arena_of(const apr_session *s, const apr_session_place *at)
{
    apr_op_memory arena = {.program = &s->program,
                        .position = s->position,
                        .sequence = s->sequence,
                        .pages = s->pages.n_pages > 0 ? apr_pages_of(&s->pages, s->sequence) : NULL,
                        .position_at = apr_session_reads_token(s, at) ? &at->token->position : NULL,
                        .n_tokens = s->n_tokens,
                        .first_row = s->first_row,
                        .n_rows = s->n_rows,
                        .ids = s->ids,
                        .activations = at->activations,
                        .logits = at->logits,
                        .value_offsets = at->plan.value_offsets,
                        .n_batch = at->plan.n_batch,
                        .vectors = at->vectors,
                        .vector_offsets = at->plan.vector_offsets,
                        .rope_offsets = at->plan.rope_offsets,
                        .tables = at->bound,
                        .matrices = at->multiplied,
                        .states = at->states,
                        .state_offsets = at->plan.state_offsets,
                        .state_cells = at->plan.state_cells,
                        .state_strides = at->plan.state_strides,
                        .kv_dtype = at->plan.kv_dtype,
                        .work = at->work,
                        .shared = at->shared};
    if (at->device != NULL && s->positions != NULL) apr_session_step_memory(s, at, &arena);
    return arena;
}

const apr_session_place *apr_session_place_of_value(const apr_session *s, int value) { return &s->places[s->partition.value_place[value]]; }

const apr_session_place *apr_session_place_of_state(const apr_session *s, int state) { return &s->places[s->partition.state_place[state]]; }

const apr_session_place *apr_session_place_of_logits(const apr_session *s)
{
    size_t i = s->program.n_values;
    while (i > 1 && !s->program.values[i - 1].is_logits) i--;
    return apr_session_place_of_value(s, (int)i - 1);
}

float *apr_session_value_at(const apr_session *s, int value)
{
    const apr_op_memory arena = arena_of(s, apr_session_place_of_value(s, value));
    return apr_op_memory_value(&arena, value);
}

apr_cache apr_session_cache_at(const apr_session *s, int state, int which)
{
    const apr_op_memory arena = arena_of(s, apr_session_place_of_state(s, state));
    return apr_op_memory_cache(&arena, state, which);
}

/* Uploads the ids of the batch into the workspace, where a device reads them; operations that read ids use no other workspace. A single
 * token's id is next to its position, and the ids of a step are in its table. */
static apr_status upload_ids(const apr_session *s, const apr_session_place *at, apr_op_memory *arena, apr_error *err)
{
    if (s->is_step) {
        arena->ids = at->step.ids;
        return APR_OK;
    }
    if (apr_session_reads_token(s, at)) {
        arena->ids = &at->token->id;
        return APR_OK;
    }
    arena->ids = (const int32_t *)(const void *)at->work.data;
    return s->options.cuda->upload(at->device, at->work.data, s->ids, (uint64_t)s->n_tokens * sizeof *s->ids, err);
}

static bool is_read_on_host(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    return at->device != NULL && op->weight[0] >= 0 && apr_slot_is_read_on_host(&s->program.weights[op->weight[0]]);
}

/* Looks up rows of a table that the device does not have, on the host, and uploads them. */
static apr_status run_on_host(const apr_session *s, const apr_session_place *at, const apr_op *op, apr_op_memory *arena, apr_error *err)
{
    apr_op_args args;

    arena->host_rows = at->host_rows;
    apr_op_bind(arena, op, &args);
    apr_host_backend.ops[op->kind](&args);
    const uint64_t n_bytes = (uint64_t)(s->n_tokens * s->program.values[op->out].width) * sizeof(float);
    return s->options.cuda->upload(at->device, apr_session_value_at(s, op->out), at->host_rows, n_bytes, err);
}

static apr_status bind_on(apr_session *s, const apr_session_place *at, const apr_op *op, apr_op_memory *arena, apr_op_args *args,
                          apr_error *err)
{
    if (apr_session_reads_token(s, at)) APR_TRY(apr_session_upload_token(s, at, err));
    if (at->device != NULL && apr_op_specs[op->kind]->reads_ids) APR_TRY(upload_ids(s, at, arena, err));
    apr_op_bind(arena, op, args);
    return APR_OK;
}

apr_status apr_session_bind_op(apr_session *s, const apr_session_place *at, const apr_op *op, apr_op_args *args, apr_error *err)
{
    apr_op_memory arena = arena_of(s, at);
    return bind_on(s, at, op, &arena, args, err);
}

/* With several places the heap is counted here, per host operation: the driver's own use of the heap is not in the plan. */
static apr_status run_at_place(apr_session *s, const apr_session_place *at, const apr_op *op, apr_op_memory *arena, apr_error *err)
{
    apr_op_args args;

    if (s->is_step && at->device == NULL) {
        apr_session_run_step_op(s, at, op, arena);
        return APR_OK;
    }
    APR_TRY(bind_on(s, at, op, arena, &args, err));
    if (at->device != NULL) return s->options.cuda->run(at->device, op->kind, &args, err);
    const bool counts_heap = s->n_places > 1;
    const uint64_t before = counts_heap ? apr_heap_in_use() : 0;
    at->backend->ops[op->kind](&args);
    if (counts_heap) apr_session_count_heap(&s->heap_runs, before);
    return APR_OK;
}

/* Copies a value to a place that reads it and did not make it. The copy is complete on return. */
static apr_status copy_value(const apr_session *s, const apr_transfer *t, const apr_op *op, apr_error *err)
{
    const apr_session_place *const from = &s->places[t->from], *const to = &s->places[t->to];
    const apr_op_memory source = arena_of(s, from), target = arena_of(s, to);
    const apr_op_memory_rows rows = op->out >= 0 ? apr_op_memory_rows_of(&source, op->out) : (apr_op_memory_rows){0, s->n_tokens};
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

apr_status apr_session_run_op(apr_session *s, const apr_op *op, apr_error *err)
{
    const size_t i = (size_t)(op - s->program.ops);

    if (s->only_products && !is_product(s, op)) return APR_OK;
    const apr_session_place *const at = &s->places[s->partition.op_place[i]];
    apr_op_memory arena = arena_of(s, at);
    size_t n;

    const apr_transfer *const transfers = apr_partition_before(&s->partition, i, &n);
    for (size_t j = 0; j < n; j++) APR_TRY(copy_value(s, &transfers[j], op, err));
    if (is_read_on_host(s, at, op)) APR_TRY(run_on_host(s, at, op, &arena, err));
    else APR_TRY(run_at_place(s, at, op, &arena, err));
    const bool is_watched = s->watch != NULL && (s->watched == op->kind || s->watched == APR_OP_COUNT);
    return is_watched ? s->watch(s->watch_user, s, op, err) : APR_OK;
}

/* --- several at once --- */

static bool reads_same(const apr_session *s, const apr_op *a, const apr_op *b)
{
    const apr_value *const out = &s->program.values[b->out];
    return b->kind == APR_OP_LINEAR && b->in[0] == a->in[0] && b->args.linear.heads.n == 0 && !out->is_logits;
}

/* Counts the consecutive linear layers with the same input, starting at operation i. */
static int count_linears(const apr_session *s, size_t i)
{
    const apr_op *const op = &s->program.ops[i];
    const bool is_host = s->n_places == 1 && s->places[0].device == NULL && s->places[0].backend->linears != NULL;
    int n = 0;

    if (!is_host || s->is_step || s->watch != NULL || s->only_products || op->kind != APR_OP_LINEAR) return 0;
    while (n < APR_LINEARS_MAX && i + (size_t)n < s->program.n_ops && reads_same(s, op, op + n)) n++;
    return n;
}

static bool overlap(const float *a, int64_t n_a, const float *b, int64_t n_b)
{
    const uintptr_t at_a = (uintptr_t)a, at_b = (uintptr_t)b;
    return at_a < at_b + (uintptr_t)n_b * sizeof *b && at_b < at_a + (uintptr_t)n_a * sizeof *a;
}

/* Memory is planned for one operation at a time: an output that is never read may share its buffer with the next operation's output. */
static bool are_disjoint(const apr_linear_args *const each[], int n)
{
    for (int i = 0; i < n; i++) {
        const int64_t size = each[i]->n_tokens * each[i]->n_out;
        if (overlap(each[i]->out, size, each[i]->x, each[i]->n_tokens * each[i]->n_in)) return false;
        for (int k = 0; k < i; k++)
            if (overlap(each[i]->out, size, each[k]->out, each[k]->n_tokens * each[k]->n_out)) return false;
    }
    return true;
}

apr_status apr_session_run_next(apr_session *s, size_t i, size_t *end, apr_error *err)
{
    const int n = count_linears(s, i);
    const apr_linear_args *each[APR_LINEARS_MAX];
    apr_op_args args[APR_LINEARS_MAX];

    *end = i + 1;
    if (n < 2) return apr_session_run_op(s, &s->program.ops[i], err);
    for (int k = 0; k < n; k++) {
        APR_TRY(apr_session_bind_op(s, &s->places[0], &s->program.ops[i + (size_t)k], &args[k], err));
        each[k] = &args[k].linear;
    }
    if (!are_disjoint(each, n)) return apr_session_run_op(s, &s->program.ops[i], err);
    s->places[0].backend->linears(each, n);
    *end = i + (size_t)n;
    return APR_OK;
}
