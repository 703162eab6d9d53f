/* session_bind.c - where the weights, values and states of a program are: its tensors, and addresses in the memory of its places. */
#include "runtime/session/session_internal.h"

/* --- tensors --- */

const apr_tensor *apr_session_slot_tensors(const apr_session *s, size_t slot)
{
    return s->experts[slot] != NULL ? s->experts[slot] : s->tensors[slot];
}

int64_t apr_session_n_slot_tensors(const apr_session *s, size_t slot)
{
    return s->tensors[slot] != NULL ? s->program.weights[slot].count : 0;
}

void apr_trace_frequencies(const apr_session *s, int rope, float *freqs)
{
    const apr_rope_table *const table = &s->program.ropes[rope];
    const apr_tensor *const divisors = table->divisors >= 0 ? s->tensors[table->divisors] : NULL;

    apr_rope_frequencies(table, divisors, s->places[0].plan.n_ctx, freqs);
}

/* --- places and addresses --- */

bool apr_session_has_device(const apr_session *s) { return s->places[0].device != NULL; }

uint64_t apr_session_line_bytes(const apr_session_place *at, apr_line_id id)
{
    const apr_plan_line *const line = apr_plan_line_of(&at->plan, id);
    return line != NULL ? line->bytes : 0;
}

const apr_session_place *apr_session_place_of_value(const apr_session *s, int value) { return &s->places[s->partition.value_place[value]]; }

const apr_session_place *apr_session_place_of_state(const apr_session *s, int state) { return &s->places[s->partition.state_place[state]]; }

const apr_session_place *apr_session_place_of_logits(const apr_session *s)
{
    size_t i = s->program.n_values;
    while (i > 1 && !s->program.values[i - 1].is_logits) i--;
    return apr_session_place_of_value(s, (int)i - 1);
}

/* --- the arguments of operations --- */

bool apr_session_reads_token(const apr_session *s, const apr_session_batch *b, const apr_session_place *at)
{
    return b->n_tokens == 1 && s->n_places == 1 && at->device != NULL && s->positions == NULL;
}

/* Points the arena to the device's table of rows, or to the pages of the sequence in use. */
static void set_step_memory(const apr_session_batch *b, const apr_session_place *at, apr_op_memory *arena)
{
    arena->pages = at->step.pages;
    arena->gathered = at->states + at->plan.ordered_offset;
    arena->n_gathered = at->plan.n_gathered;
    if (b->positions == NULL) return;
    arena->per_sequence = true;
    arena->position = b->position;
    arena->position_at = at->step.positions;
    arena->pages_stride = at->step.most;
    arena->slots = at->step.slots;
    arena->sequence = 0; /* slots count from sequence 0 */
}

apr_op_memory apr_session_op_memory(const apr_session *s, const apr_session_batch *b, const apr_session_place *at)
{
    apr_op_memory arena = {.program = &s->program,
                           .position = b->position,
                           .sequence = b->sequence,
                           .pages = s->pages.n_pages > 0 ? apr_pages_of(&s->pages, b->sequence) : NULL,
                           .position_at = apr_session_reads_token(s, b, at) ? &at->token->position : NULL,
                           .n_tokens = b->n_tokens,
                           .first_row = b->first_row,
                           .n_rows = b->n_rows,
                           .ids = b->ids,
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
    if (at->device != NULL && s->positions != NULL) set_step_memory(b, at, &arena);
    return arena;
}

float *apr_session_value_at(const apr_session *s, int value)
{
    const apr_op_memory arena =
        apr_session_op_memory(s, &(apr_session_batch){.sequence = s->sequence}, apr_session_place_of_value(s, value));
    return apr_op_memory_value(&arena, value);
}

apr_cuda_token apr_session_next_token(apr_session *s, const apr_session_batch *b)
{
    s->sent_position = b->position;
    s->sent_id = b->ids[0];
    return (apr_cuda_token){.position = b->position, .id = b->ids[0]};
}

/* --- what a device multiplies --- */

bool apr_session_wants_tiles(const apr_session *s)
{
    const bool uses_gemv = !s->options.no_fusion && !s->options.no_replay;
    return s->n_places == 1 && !s->options.no_direct && (uses_gemv || s->options.n_sequences > 1);
}

bool apr_session_experts_use_gemv(const apr_session *s, const apr_session_place *at, const apr_op *op, const apr_tensor *const weights[3])
{
    const apr_cuda_api *const cuda = s->options.cuda;
    apr_experts_args a = op->args.experts;
    a.n_tokens = 1;
    a.gate = weights[0], a.up = weights[1], a.down = weights[2];
    a.work = at->work;
    return apr_experts_have_decode_gemv(&a) &&
           cuda->has_decode_gemv(at->device, a.gate->dtype, a.n_used * a.n_mid, apr_tiled_columns(a.gate->dtype, a.n_in)) &&
           cuda->has_decode_gemv(at->device, a.down->dtype, a.n_out, a.n_used * apr_tiled_columns(a.down->dtype, a.n_mid));
}
