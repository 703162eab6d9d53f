/* placement.c - offsets in a plan: activations by lifetime, states one after another, float32 vectors. */
#include "runtime/plan/placement.h"
#include "runtime/plan/batch_table.h"
#include "runtime/program/op_spec.h"

#include <stdlib.h>

enum { WIDTH_ALIGN = 16 }; /* floats: 64 bytes */

static int64_t rounded_width(int64_t width) { return (width + WIDTH_ALIGN - 1) / WIDTH_ALIGN * WIDTH_ALIGN; }

typedef struct lifetime {
    int value;
    int64_t begin, end; /* floats per token, half-open */
} lifetime;

/* The values that are alive, gathered by offset. */
typedef struct live_set {
    lifetime *items; /* capacity n_values */
    size_t n;
} live_set;

static void live_remove(live_set *live, size_t at)
{
    live->n--;
    for (size_t i = at; i < live->n; i++) live->items[i] = live->items[i + 1];
}

/* Inserts into the smallest gap that holds `width`, otherwise at the end. Returns the offset. */
static int64_t live_insert(live_set *live, int value, int64_t width)
{
    size_t best = live->n;
    int64_t best_gap = INT64_MAX, end = 0, place;

    for (size_t i = 0; i < live->n; i++) {
        const int64_t gap = live->items[i].begin - end;
        if (gap >= width && gap < best_gap) {
            best = i;
            best_gap = gap;
        }
        end = live->items[i].end;
    }
    place = best == 0 ? 0 : live->items[best - 1].end;
    for (size_t i = live->n; i > best; i--) live->items[i] = live->items[i - 1];
    live->items[best] = (lifetime){value, place, place + width};
    live->n++;
    return place;
}

/* last[v]: the last operation here that reads v (or computes it, if none reads it), or before which v is copied away. */
static void last_uses(const apr_program_part *part, size_t *last)
{
    const apr_program *const program = part->program;

    for (size_t i = 0; i < program->n_ops; i++) {
        const apr_op *const op = &program->ops[i];
        if (!apr_partition_has_op(part->partition, part->place, i)) continue;
        if (op->out >= 0) last[op->out] = i;
        for (int j = 0; j < APR_OP_MAX_IN; j++)
            if (op->in[j] >= 0) last[op->in[j]] = i;
    }
    for (size_t i = 0; part->partition != NULL && i < part->partition->n_transfers; i++) {
        const apr_transfer *const m = &part->partition->transfers[i];
        if (m->from == part->place && last[m->value] < m->op) last[m->value] = m->op;
    }
}

/* Puts the output in place of the first input, if the operation allows it and this is the last read of that input. */
static bool reuse_input(const apr_program *program, const apr_op *op, size_t at, const size_t *last, live_set *live, apr_plan *plan)
{
    const int from = op->in[0];
    if (!apr_op_specs[op->kind]->in_place || last[from] != at || program->values[from].width != program->values[op->out].width)
        return false;
    for (size_t i = 0; i < live->n; i++)
        if (live->items[i].value == from) {
            live->items[i].value = op->out;
            plan->value_offsets[op->out] = plan->value_offsets[from];
            return true;
        }
    return false;
}

static void place_value(const apr_program *program, int value, live_set *live, apr_plan *plan)
{
    const int64_t width = rounded_width(program->values[value].width), place = live_insert(live, value, width);
    plan->value_offsets[value] = place;
    if (place + width > plan->activation_width) plan->activation_width = place + width;
}

/* For each operation places the values that are copied here before it, then its output. */
static void place_values(const apr_program_part *part, const size_t *last, live_set *live, apr_plan *plan)
{
    const apr_program *const program = part->program;
    size_t next = 0;

    for (size_t i = 0; i < program->n_ops; i++) {
        const apr_op *const op = &program->ops[i];
        for (; part->partition != NULL && next < part->partition->n_transfers && part->partition->transfers[next].op == i; next++)
            if (part->partition->transfers[next].to == part->place)
                place_value(program, part->partition->transfers[next].value, live, plan);
        if (apr_partition_has_op(part->partition, part->place, i) && op->out >= 0 && !program->values[op->out].is_logits &&
            !reuse_input(program, op, i, last, live, plan))
            place_value(program, op->out, live, plan);
        for (size_t j = live->n; j-- > 0;)
            if (last[live->items[j].value] <= i) live_remove(live, j);
    }
}

apr_status apr_place_activations(apr_plan *plan, const apr_program_part *part, apr_error *err)
{
    const size_t n = part->program->n_values;
    size_t *const last = calloc(n + 1, sizeof *last);
    live_set live = {.items = malloc((n + 1) * sizeof *live.items)};
    apr_status status = APR_OK;

    plan->value_offsets = apr_arena_array(&plan->arena, n + 1, sizeof *plan->value_offsets);
    if (last == NULL || live.items == NULL || plan->value_offsets == NULL) {
        status = apr_no_memory(err, "the places of the activations");
    } else {
        for (size_t v = 0; v < n; v++) plan->value_offsets[v] = -1;
        last_uses(part, last);
        place_values(part, last, &live, plan);
    }
    free(last);
    free(live.items);
    return status;
}

apr_status apr_place_vectors(apr_plan *plan, const apr_program_part *part, const uint64_t *weight_bytes, int64_t *n_floats, apr_error *err)
{
    const apr_program *const program = part->program;

    *n_floats = 0;
    plan->vector_offsets = apr_arena_array(&plan->arena, program->n_weights + 1, sizeof *plan->vector_offsets);
    plan->rope_offsets = apr_arena_array(&plan->arena, program->n_ropes + 1, sizeof *plan->rope_offsets);
    if (plan->vector_offsets == NULL || plan->rope_offsets == NULL) return apr_no_memory(err, "the places of the vectors");
    for (size_t i = 0; i < program->n_weights; i++) {
        const bool is_here = (program->weights[i].uses & APR_USE_FLOAT) != 0 && weight_bytes[i] > 0;
        plan->vector_offsets[i] = is_here ? *n_floats : -1;
        if (is_here) *n_floats += rounded_width(apr_slot_elems(&program->weights[i])); /* biases of experts are rows of one vector */
    }
    for (size_t i = 0; i < program->n_ropes; i++) {
        const bool is_here = apr_partition_has_rope(part->partition, program, part->place, i);
        plan->rope_offsets[i] = is_here ? *n_floats : -1;
        if (is_here) *n_floats += rounded_width(program->ropes[i].n_freqs);
    }
    return APR_OK;
}

int64_t apr_state_cells(const apr_state *state, int64_t n_ctx, int64_t n_batch)
{
    if (state->kind == APR_STATE_KV) return n_ctx;
    /* The batch is stored before its first token attends, so the window - 1 cells before it must be kept. */
    const int64_t wanted = state->window + n_batch;
    return wanted < n_ctx ? wanted : n_ctx;
}

int64_t apr_state_pages(int64_t n_sequences, int64_t n_ctx, int64_t kv_cells)
{
    const int64_t of_each = (n_ctx + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS;

    if (n_sequences == 1) return 0;
    if (kv_cells == 0) return n_sequences * of_each;
    const int64_t asked = (kv_cells + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS; /* enough for one sequence of full length */
    return asked < of_each ? of_each : asked > n_sequences * of_each ? n_sequences * of_each : asked;
}

const apr_dtype apr_kv_dtypes[APR_KV_DTYPES] = {APR_F16, APR_F32, APR_Q8_0, APR_F8_E4M3};

int64_t apr_kv_row_bytes(apr_dtype dtype, int64_t head_dim)
{
    for (int i = 0; i < APR_KV_DTYPES; i++)
        if (apr_kv_dtypes[i] == dtype) return apr_row_bytes(dtype, head_dim);
    return -1;
}

static uint64_t cells_bytes(const apr_state *state, apr_dtype kv_dtype, int64_t n_cells)
{
    const uint64_t n_rows = apr_saturating_mul((uint64_t)state->n_heads, (uint64_t)n_cells);
    const uint64_t keys = apr_pad64(apr_saturating_mul(n_rows, (uint64_t)apr_kv_row_bytes(kv_dtype, state->key_dim)));
    if (state->values_in_keys) return keys;
    return apr_saturating_add(keys, apr_pad64(apr_saturating_mul(n_rows, (uint64_t)apr_kv_row_bytes(kv_dtype, state->value_dim))));
}

uint64_t apr_state_bytes(const apr_state *state, apr_dtype kv_dtype, int64_t n_ctx, int64_t n_batch)
{
    if (!apr_state_has_cells(state)) return apr_pad64(apr_saturating_mul((uint64_t)state->n_floats, 4));
    return cells_bytes(state, kv_dtype, apr_state_cells(state, n_ctx, n_batch));
}

uint64_t apr_states_bytes(const apr_plan *plan, const apr_plan_options *options, const apr_state *state, int64_t n_ctx, int64_t n_batch)
{
    const int64_t n_pages = apr_state_pages(plan->n_sequences, n_ctx, options->kv_cells);

    if (n_pages > 0 && state->kind == APR_STATE_KV) return cells_bytes(state, plan->kv_dtype, n_pages * APR_PAGE_CELLS);
    return apr_saturating_mul(apr_state_bytes(state, plan->kv_dtype, n_ctx, n_batch), (uint64_t)plan->n_sequences);
}

static bool has_batch_table(const apr_plan *plan) { return plan->judged == APR_ON_DEVICE && plan->n_sequences > 1; }

uint64_t apr_gathered_bytes(const apr_plan *plan, const apr_program_part *part, int64_t n_ctx)
{
    uint64_t most = 0;

    for (size_t i = 0; i < part->program->n_states && has_batch_table(plan); i++) {
        const apr_state *const state = &part->program->states[i];
        if (state->kind != APR_STATE_KV || !apr_partition_has_state(part->partition, part->place, i)) continue;
        const uint64_t bytes = cells_bytes(state, plan->kv_dtype, apr_batch_pages(n_ctx) * APR_PAGE_CELLS);
        if (bytes > most) most = bytes;
    }
    return most;
}

uint64_t apr_batch_table_plan_bytes(const apr_plan *plan, int64_t n_ctx)
{
    return has_batch_table(plan) ? apr_batch_table_bytes(apr_batch_rows(plan->n_sequences), n_ctx) : 0;
}

void apr_plan_states_bytes(const apr_program *program, apr_dtype kv_dtype, int64_t n_ctx, int64_t n_batch, uint64_t *bytes)
{
    for (size_t i = 0; i < program->n_states; i++)
        bytes[i] =
            apr_state_bytes(&program->states[i], kv_dtype, apr_plan_context(program, n_ctx), apr_plan_batch(program, n_ctx, n_batch));
}

apr_status apr_place_states(apr_plan *plan, const apr_program_part *part, const apr_plan_options *options, apr_error *err)
{
    const apr_program *const program = part->program;

    plan->n_pages = apr_state_pages(plan->n_sequences, plan->n_ctx, options->kv_cells);
    plan->state_offsets = apr_arena_array(&plan->arena, program->n_states + 1, sizeof *plan->state_offsets);
    plan->state_cells = apr_arena_array(&plan->arena, program->n_states + 1, sizeof *plan->state_cells);
    plan->state_strides = apr_arena_array(&plan->arena, program->n_states + 1, sizeof *plan->state_strides);
    if (plan->state_offsets == NULL || plan->state_cells == NULL || plan->state_strides == NULL)
        return apr_no_memory(err, "the places of the states");
    for (size_t i = 0; i < program->n_states; i++) {
        const apr_state *const state = &program->states[i];
        const bool in_pages = plan->n_pages > 0 && state->kind == APR_STATE_KV;
        if (!apr_partition_has_state(part->partition, part->place, i)) continue;
        plan->state_offsets[i] = plan->states_bytes;
        plan->state_cells[i] = in_pages ? plan->n_pages * APR_PAGE_CELLS : apr_state_cells(state, plan->n_ctx, plan->n_batch);
        plan->state_strides[i] = in_pages ? 0 : apr_state_bytes(state, plan->kv_dtype, plan->n_ctx, plan->n_batch);
        plan->states_bytes = apr_saturating_add(plan->states_bytes, apr_states_bytes(plan, options, state, plan->n_ctx, plan->n_batch));
    }
    plan->n_gathered = apr_batch_pages(plan->n_ctx) * APR_PAGE_CELLS;
    plan->ordered_offset = plan->states_bytes;
    plan->step_offset = apr_saturating_add(plan->ordered_offset, apr_gathered_bytes(plan, part, plan->n_ctx));
    plan->states_bytes = apr_saturating_add(plan->step_offset, apr_batch_table_plan_bytes(plan, plan->n_ctx));
    return APR_OK;
}
