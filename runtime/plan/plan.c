/* plan.c - the lines of a plan, their sum, whether it fits, and the offsets of states and vectors. */
#include "runtime/plan/plan.h"
#include "formats/base/bytes.h"
#include "formats/tensor/packing.h"
#include "kernels/cuda/small_gemm_workspace.h"
#include "runtime/plan/batch_table.h"
#include "runtime/plan/placement.h"
#include "runtime/program/op_spec.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const apr_plan_options apr_plan_defaults = {.n_batch = 512,
                                            .n_logits = 16,
                                            .n_sequences = 1,
                                            .kv_dtype = APR_F16,
                                            .headroom_bytes = (uint64_t)1 << 30,
                                            .stack_bytes = APR_DEFAULT_STACK_BYTES,
                                            .n_threads = 1};

/* The context and batch size of a plan for the asked ones. */
static int64_t planned_context(const apr_program *program, int64_t asked)
{
    if (asked > 0) return asked;
    return program->max_context > 0 && program->max_context < 4096 ? program->max_context : 4096;
}

static int64_t planned_batch(const apr_program *program, int64_t asked_ctx, int64_t asked_batch)
{
    const int64_t n_ctx = planned_context(program, asked_ctx);
    return asked_batch < n_ctx ? asked_batch : n_ctx;
}

/* --- states: keys and values, and what follows them in memory --- */

const apr_dtype apr_kv_dtypes[APR_KV_DTYPES] = {APR_F16, APR_F32, APR_Q8_0, APR_F8_E4M3};

int64_t apr_kv_row_bytes(apr_dtype dtype, int64_t head_dim)
{
    for (int i = 0; i < APR_KV_DTYPES; i++)
        if (apr_kv_dtypes[i] == dtype) return apr_row_bytes(dtype, head_dim);
    return -1;
}

static int64_t state_cells(const apr_state *state, int64_t n_ctx, int64_t n_batch)
{
    if (state->kind == APR_STATE_KV) return n_ctx;
    /* The batch is stored before its first token attends, so the window - 1 cells before it must be kept. */
    const int64_t wanted = state->window + n_batch;
    return wanted < n_ctx ? wanted : n_ctx;
}

/* KV pages of several sequences; 0 for one sequence. kv_cells: as in apr_plan_options. */
static int64_t state_pages(int64_t n_sequences, int64_t n_ctx, int64_t kv_cells)
{
    const int64_t of_each = (n_ctx + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS;

    if (n_sequences == 1) return 0;
    if (kv_cells == 0) return n_sequences * of_each;
    const int64_t asked = (kv_cells + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS; /* enough for one sequence of full length */
    return asked < of_each ? of_each : asked > n_sequences * of_each ? n_sequences * of_each : asked;
}

static uint64_t cells_bytes(const apr_state *state, apr_dtype kv_dtype, int64_t n_cells)
{
    const uint64_t n_rows = apr_saturating_mul((uint64_t)state->n_heads, (uint64_t)n_cells);
    const uint64_t keys = apr_pad64(apr_saturating_mul(n_rows, (uint64_t)apr_kv_row_bytes(kv_dtype, state->key_dim)));
    if (state->values_in_keys) return keys;
    return apr_saturating_add(keys, apr_pad64(apr_saturating_mul(n_rows, (uint64_t)apr_kv_row_bytes(kv_dtype, state->value_dim))));
}

/* Bytes for one sequence; keys and values are each padded to 64. */
static uint64_t sequence_bytes(const apr_state *state, apr_dtype kv_dtype, int64_t n_ctx, int64_t n_batch)
{
    if (!apr_state_has_cells(state)) return apr_pad64(apr_saturating_mul((uint64_t)state->n_floats, 4));
    return cells_bytes(state, kv_dtype, state_cells(state, n_ctx, n_batch));
}

/* Bytes for all sequences. */
static uint64_t sequences_bytes(const apr_plan *plan, const apr_plan_options *options, const apr_state *state, int64_t n_ctx,
                                int64_t n_batch)
{
    const int64_t n_pages = state_pages(plan->n_sequences, n_ctx, options->kv_cells);

    if (n_pages > 0 && state->kind == APR_STATE_KV) return cells_bytes(state, plan->kv_dtype, n_pages * APR_PAGE_CELLS);
    return apr_saturating_mul(sequence_bytes(state, plan->kv_dtype, n_ctx, n_batch), (uint64_t)plan->n_sequences);
}

static bool has_batch_table(const apr_plan *plan) { return plan->judged == APR_ON_DEVICE && plan->n_sequences > 1; }

/* For several sequences on a device, otherwise 0: the buffer in which pages of one sequence are gathered in order. */
static uint64_t ordered_bytes(const apr_plan *plan, const apr_program_part *part, int64_t n_ctx)
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

/* The same for the batch table. */
static uint64_t step_bytes(const apr_plan *plan, int64_t n_ctx)
{
    return has_batch_table(plan) ? apr_batch_table_bytes(apr_batch_rows(plan->n_sequences), n_ctx) : 0;
}

void apr_plan_states_bytes(const apr_program *program, apr_dtype kv_dtype, int64_t n_ctx, int64_t n_batch, uint64_t *bytes)
{
    for (size_t i = 0; i < program->n_states; i++)
        bytes[i] = sequence_bytes(&program->states[i], kv_dtype, planned_context(program, n_ctx), planned_batch(program, n_ctx, n_batch));
}

/* Sets state_offsets, state_cells, state_strides, states_bytes, and the offsets of what follows the states. Uses the plan's n_ctx,
 * n_batch, n_sequences and kv_dtype. */
static apr_status place_states(apr_plan *plan, const apr_program_part *part, const apr_plan_options *options, apr_error *err)
{
    const apr_program *const program = part->program;

    plan->n_pages = state_pages(plan->n_sequences, plan->n_ctx, options->kv_cells);
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
        plan->state_cells[i] = in_pages ? plan->n_pages * APR_PAGE_CELLS : state_cells(state, plan->n_ctx, plan->n_batch);
        plan->state_strides[i] = in_pages ? 0 : sequence_bytes(state, plan->kv_dtype, plan->n_ctx, plan->n_batch);
        plan->states_bytes = apr_saturating_add(plan->states_bytes, sequences_bytes(plan, options, state, plan->n_ctx, plan->n_batch));
    }
    plan->n_gathered = apr_batch_pages(plan->n_ctx) * APR_PAGE_CELLS;
    plan->ordered_offset = plan->states_bytes;
    plan->step_offset = apr_saturating_add(plan->ordered_offset, ordered_bytes(plan, part, plan->n_ctx));
    plan->states_bytes = apr_saturating_add(plan->step_offset, step_bytes(plan, plan->n_ctx));
    return APR_OK;
}

/* Does the place of `part` read that rotary table? */
static bool has_rope(const apr_program_part *part, size_t rope)
{
    for (size_t i = 0; i < part->program->n_ops; i++)
        if (part->program->ops[i].rope == (int)rope && apr_partition_has_op(part->partition, part->place, i)) return true;
    return part->partition == NULL;
}

/* Sets vector_offsets and rope_offsets; *n_floats is the total. */
static apr_status place_vectors(apr_plan *plan, const apr_program_part *part, const uint64_t *weight_bytes, int64_t *n_floats,
                                apr_error *err)
{
    const apr_program *const program = part->program;

    *n_floats = 0;
    plan->vector_offsets = apr_arena_array(&plan->arena, program->n_weights + 1, sizeof *plan->vector_offsets);
    plan->rope_offsets = apr_arena_array(&plan->arena, program->n_ropes + 1, sizeof *plan->rope_offsets);
    if (plan->vector_offsets == NULL || plan->rope_offsets == NULL) return apr_no_memory(err, "the places of the vectors");
    for (size_t i = 0; i < program->n_weights; i++) {
        const bool is_here = (program->weights[i].uses & APR_USE_FLOAT) != 0 && weight_bytes[i] > 0;
        plan->vector_offsets[i] = is_here ? *n_floats : -1;
        if (is_here) *n_floats += apr_rounded_width(apr_slot_elems(&program->weights[i])); /* biases of experts are rows of one vector */
    }
    for (size_t i = 0; i < program->n_ropes; i++) {
        const bool is_here = has_rope(part, i);
        plan->rope_offsets[i] = is_here ? *n_floats : -1;
        if (is_here) *n_floats += apr_rounded_width(program->ropes[i].n_freqs);
    }
    return APR_OK;
}

/* --- lines --- */

static const struct {
    const char *key, *label;
} line_facts[APR_LINE_COUNT] = {
#define X(id, key, label) {key, label},
    APR_ROLE_LIST(X) APR_PLAN_LIST(X)
#undef X
};

/* The order of the lines: first what a device allocates before the weights, then the weights, then the rest. */
static const apr_line_id line_order[] = {
    APR_LINE_CONTEXT,
    APR_LINE_CUBLAS_HANDLE,
    APR_LINE_CUBLAS_WORKSPACE,
#define X(id, key, label) APR_LINE_WEIGHTS_##id,
    APR_ROLE_LIST(X)
#undef X
        APR_LINE_FILLED,
    APR_LINE_MATERIALISED,
    APR_LINE_COPIES,
    APR_LINE_F32_VECTORS,
    APR_LINE_KV,
    APR_LINE_KV_LATENT,
    APR_LINE_KV_WINDOW,
    APR_LINE_RECURRENT,
    APR_LINE_KV_ORDERED,
    APR_LINE_STEP,
    APR_LINE_ACTIVATIONS,
    APR_LINE_LOGITS,
    APR_LINE_WORKSPACE,
    APR_LINE_RECORDED,
    APR_LINE_ROUNDING,
    APR_LINE_HEADROOM,
    APR_LINE_SYSTEM,
    APR_LINE_HOST_LOGITS,
    APR_LINE_HOST_STEP,
    APR_LINE_HOST_TABLES,
    APR_LINE_HOST_ROWS,
};

/* The lines of the states and of what follows them in memory. */
static const apr_line_id first_states = APR_LINE_KV, last_states = APR_LINE_STEP;

static apr_line_id line_of_state(const apr_state *state)
{
    if (!apr_state_has_cells(state)) return APR_LINE_RECURRENT;
    if (state->kind == APR_STATE_KV_WINDOW) return APR_LINE_KV_WINDOW;
    return state->values_in_keys ? APR_LINE_KV_LATENT : APR_LINE_KV;
}

/* State while a plan is made. `lines` is indexed by id. */
typedef struct draft {
    apr_plan *plan;
    const apr_program *program;
    const apr_plan_options *options;
    const uint64_t *weight_bytes;
    apr_plan_line lines[APR_LINE_COUNT];
    apr_plan_speed slowest; /* the pace that was asked for last, and its workspace on a device */
    uint64_t slowest_workspace;
    bool no_memory;
} draft;

static bool has_op(const draft *d, size_t i) { return apr_partition_has_op(d->options->partition, d->options->place, i); }
static bool computes_logits(const draft *d)
{
    for (size_t i = d->program->n_ops; i-- > 0;) /* logits are computed last, all at one place */
        if (d->program->ops[i].out >= 0 && d->program->values[d->program->ops[i].out].is_logits) return has_op(d, i);
    return false;
}
static bool has_state(const draft *d, size_t i) { return apr_partition_has_state(d->options->partition, d->options->place, i); }

__attribute__((format(printf, 5, 6))) static void set_line(draft *d, apr_line_id id, uint64_t bytes, apr_place on, const char *format, ...)
{
    char text[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    d->lines[id] = (apr_plan_line){.id = id, .key = line_facts[id].key, .label = line_facts[id].label, .bytes = bytes, .on = on};
    d->lines[id].reason = apr_arena_print(&d->plan->arena, "%s", text);
    if (d->lines[id].reason == NULL) d->no_memory = true;
}

/* On the host, composed matrices get their own memory; others are read in place. Vectors are float32 in any case. */
static uint64_t composed_bytes(const draft *d, size_t weight)
{
    const bool is_matrix = (d->program->weights[weight].uses & (APR_USE_MULTIPLIED | APR_USE_ROWS)) != 0;
    return d->plan->judged == APR_ON_HOST && is_matrix && d->options->composed_bytes != NULL ? d->options->composed_bytes[weight] : 0;
}

static void composed_line(draft *d)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < d->program->n_weights; i++) bytes = apr_saturating_add(bytes, composed_bytes(d, i));
    set_line(d, APR_LINE_MATERIALISED, bytes, APR_ON_HOST, "matrices that the file stores in another form, each padded to 64 bytes");
}

/* For a plan on a device: a table of which only some rows are needed stays in mapped host memory. */
static bool stays_on_host(const draft *d, size_t weight)
{
    return d->plan->judged == APR_ON_DEVICE && apr_slot_is_read_on_host(&d->program->weights[weight]);
}

/* Notes about the weights of a role, for the reason. */
typedef struct role_notes {
    const char *scheme; /* the first packing scheme */
    bool several;
    int64_t n_decoded;
} role_notes;

static void take_note(role_notes *notes, const apr_weight_note *note, int64_t n_tensors)
{
    notes->n_decoded += note->decoded ? n_tensors : 0;
    if (note->scheme == NULL) return;
    if (notes->scheme == NULL) notes->scheme = note->scheme;
    notes->several |= strcmp(notes->scheme, note->scheme) != 0;
}

static const char *notes_text(const role_notes *notes, char *text, size_t n_bytes)
{
    char decoded[64] = "";
    if (notes->n_decoded > 0) snprintf(decoded, sizeof decoded, ", %lld of them decoded to FP16", (long long)notes->n_decoded);
    if (notes->scheme != NULL) snprintf(text, n_bytes, " (%s%s)%s", notes->scheme, notes->several ? ", and others" : "", decoded);
    else snprintf(text, n_bytes, "%s", decoded);
    return text;
}

static void weight_lines(draft *d)
{
    const char *const where = d->options->weights_location != NULL ? d->options->weights_location : "mapped from the file";
    const bool on_host = d->plan->judged == APR_ON_HOST;
    uint64_t bytes[APR_ROLE_COUNT] = {0};
    int64_t n_tensors[APR_ROLE_COUNT] = {0};
    bool has_stacks[APR_ROLE_COUNT] = {false};
    role_notes notes[APR_ROLE_COUNT] = {{0}};
    char text[160];

    for (size_t i = 0; i < d->program->n_weights; i++) {
        const apr_role role = d->program->weights[i].role;
        const uint64_t elsewhere = composed_bytes(d, i), in_file = d->weight_bytes[i] > elsewhere ? d->weight_bytes[i] - elsewhere : 0;
        if (in_file == 0 || stays_on_host(d, i)) continue;
        bytes[role] = apr_saturating_add(bytes[role], apr_pad64(in_file));
        n_tensors[role] += d->program->weights[i].count;
        if (d->options->weight_notes != NULL) take_note(&notes[role], &d->options->weight_notes[i], d->program->weights[i].count);
        has_stacks[role] |= !on_host && d->program->weights[i].count > 1;
    }
    if (d->plan->judged == APR_ON_DEVICE) bytes[APR_ROLE_VECTORS] = 0; /* a device has them only as float32 */
    for (int role = 0; role < APR_ROLE_COUNT; role++)
        set_line(d, (apr_line_id)(APR_LINE_WEIGHTS_EMBEDDING + role), bytes[role], d->plan->judged,
                 "%lld tensor%s as stored%s, %seach padded to 64 bytes%s%s", (long long)n_tensors[role], n_tensors[role] == 1 ? "" : "s",
                 notes_text(&notes[role], text, sizeof text), has_stacks[role] ? "a layer's experts as one stack, " : "",
                 on_host ? ", " : "", on_host ? where : "");
}

static void padding_line(draft *d)
{
    const apr_plan_options *const o = d->options;
    const bool has_gemv = o->gpu != NULL && o->gpu->major >= APR_DECODE_GEMV_CAPABILITY && o->padding_bytes != NULL;
    uint64_t bytes = 0;

    for (size_t i = 0; i < d->program->n_weights && has_gemv; i++)
        if (d->weight_bytes[i] > 0) bytes = apr_saturating_add(bytes, o->padding_bytes[i]);
    set_line(d, APR_LINE_FILLED, bytes, d->plan->judged, "zeros after rows, because kernels read whole tiles; left out if they do not fit");
}

/* Tables that stay on the host, and the buffer for rows of the widest one before they are copied. */
static void host_table_lines(draft *d)
{
    const char *const where = d->options->weights_location != NULL ? d->options->weights_location : "mapped from the file";
    uint64_t bytes = 0;
    int64_t n_tables = 0, widest = 0;

    for (size_t i = 0; i < d->program->n_weights; i++) {
        const apr_weight_slot *const slot = &d->program->weights[i];
        if (!stays_on_host(d, i) || d->weight_bytes[i] == 0) continue;
        bytes = apr_saturating_add(bytes, apr_pad64(d->weight_bytes[i]));
        n_tables++;
        if (slot->dims[slot->rank - 1] > widest) widest = slot->dims[slot->rank - 1];
    }
    set_line(d, APR_LINE_HOST_TABLES, bytes, APR_ON_HOST,
             "%lld tensor%s as stored, %s; a row of %lld bytes per token is copied to the device", (long long)n_tables,
             n_tables == 1 ? "" : "s", where, (long long)widest * 4);
    set_line(d, APR_LINE_HOST_ROWS, apr_saturating_mul((uint64_t)d->plan->n_batch, apr_saturating_mul((uint64_t)widest, sizeof(float))),
             APR_ON_HOST, "%lld tokens x %lld numbers x 4 bytes", (long long)d->plan->n_batch, (long long)widest);
}

static void copies_line(draft *d)
{
    apr_plan *const p = d->plan;
    const apr_program *const program = d->program;
    uint64_t total = 0;
    int64_t n_copies = 0;

    p->copy_offsets = apr_arena_array(&p->arena, program->n_weights + 1, sizeof *p->copy_offsets);
    if (p->copy_offsets == NULL) d->no_memory = true;
    for (size_t i = 0; i < program->n_weights && p->copy_offsets != NULL; i++) {
        const uint64_t as_f16 = apr_plan_slot_bytes(&program->weights[i], APR_F16);
        const bool is_f16 = d->options->weight_dtypes != NULL ? d->options->weight_dtypes[i] == APR_F16 : d->weight_bytes[i] == as_f16;
        const bool is_multiplied = (program->weights[i].uses & APR_USE_MULTIPLIED) != 0; /* unlike tables for lookup */
        p->copy_offsets[i] = -1;
        if (!d->options->copies || d->weight_bytes[i] == 0 || is_f16 || !is_multiplied) continue;
        p->copy_offsets[i] = (int64_t)total;
        total = apr_saturating_add(total, as_f16);
        n_copies += program->weights[i].count;
    }
    set_line(d, APR_LINE_COPIES, p->judged == APR_ON_DEVICE ? total : 0, p->judged,
             "%lld matrices decoded to 2 bytes a number, next to the packed ones, for kernels that cannot read packed weights",
             (long long)n_copies);
}

static uint64_t state_bytes(const draft *d, apr_line_id id, int64_t n_ctx, int64_t n_batch)
{
    const apr_program_part part = {d->program, d->options->partition, d->options->place};
    uint64_t bytes = 0;

    if (id == APR_LINE_KV_ORDERED) return ordered_bytes(d->plan, &part, n_ctx);
    if (id == APR_LINE_STEP) return step_bytes(d->plan, n_ctx);
    for (size_t i = 0; i < d->program->n_states; i++)
        if (has_state(d, i) && line_of_state(&d->program->states[i]) == id)
            bytes = apr_saturating_add(bytes, sequences_bytes(d->plan, d->options, &d->program->states[i], n_ctx, n_batch));
    return bytes;
}

/* The states of one line: number of layers, the first state, and whether all have its widths. */
typedef struct state_group {
    const apr_state *first; /* NULL: there is none */
    int64_t n_layers;
    bool uniform, has[APR_STATE_SSD + 1]; /* kinds */
} state_group;

static state_group group_of(const draft *d, apr_line_id id)
{
    state_group g = {.uniform = true};
    int layer = -1;

    for (size_t i = 0; i < d->program->n_states; i++) {
        const apr_state *const s = &d->program->states[i];
        if (!has_state(d, i) || line_of_state(s) != id) continue;
        if (g.first == NULL) g.first = s;
        g.n_layers += g.n_layers == 0 || s->layer != layer; /* a recurrent layer may have two states */
        layer = s->layer;
        g.uniform &= s->n_heads == g.first->n_heads && s->key_dim == g.first->key_dim && s->value_dim == g.first->value_dim &&
                     s->window == g.first->window;
        g.has[s->kind] = true;
    }
    return g;
}

static void cells_line(draft *d, apr_line_id id, const state_group *g, const char *sequences)
{
    const apr_plan *const p = d->plan;
    const apr_state *const s = g->first;
    const long long n = (long long)g->n_layers, cells = (long long)state_cells(s, p->n_ctx, p->n_batch);
    const long long heads = (long long)s->n_heads, key = (long long)apr_kv_row_bytes(p->kv_dtype, s->key_dim);
    const char *const type = apr_dtypes[p->kv_dtype].name;
    const uint64_t bytes = state_bytes(d, id, p->n_ctx, p->n_batch);

    if (!g->uniform)
        set_line(d, id, bytes, p->judged, "%lld layers of different widths, keys and values of at most %lld positions as %s%s", n, cells,
                 type, sequences);
    else if (s->values_in_keys)
        set_line(d, id, bytes, p->judged, "%lld layers x %lld positions x %lld bytes (%lld numbers as %s, of which %lld are the values)%s",
                 n, cells, heads * key, (long long)s->key_dim, type, (long long)s->value_dim, sequences);
    else if (s->key_dim != s->value_dim)
        set_line(d, id, bytes, p->judged, "%lld layers x %lld positions x %lld heads x (%lld + %lld) bytes (keys, values as %s)%s", n,
                 cells, heads, key, (long long)apr_kv_row_bytes(p->kv_dtype, s->value_dim), type, sequences);
    else
        set_line(d, id, bytes, p->judged,
                 "%lld layers x 2 (keys, values) x %lld positions x %lld heads x %lld bytes (%lld numbers as %s)%s", n, cells, heads, key,
                 (long long)s->key_dim, type, sequences);
}

static void recurrent_line(draft *d, const state_group *g, const char *sequences)
{
    static const char *const rules[2][2] = {{"", " and state-space duality"}, {" and delta rule", ", delta rule and state-space duality"}};
    const apr_plan *const p = d->plan;

    set_line(d, APR_LINE_RECURRENT, state_bytes(d, APR_LINE_RECURRENT, p->n_ctx, p->n_batch), p->judged,
             "%lld layers, convolution%s in float32, independent of the context%s", (long long)g->n_layers,
             rules[g->has[APR_STATE_DELTA]][g->has[APR_STATE_SSD]], sequences);
}

static void state_lines(draft *d)
{
    char sequences[48] = "", shared[96] = "";
    const apr_plan *const p = d->plan;
    const int64_t of_each = state_pages(2, p->n_ctx, 0) / 2;

    if (p->n_sequences > 1) snprintf(sequences, sizeof sequences, " x %lld sequences", (long long)p->n_sequences);
    memcpy(shared, sequences, sizeof sequences);
    if (p->n_pages > 0 && p->n_pages < p->n_sequences * of_each)
        snprintf(shared, sizeof shared, "; %lld sequences share %lld positions", (long long)p->n_sequences,
                 (long long)p->n_pages * APR_PAGE_CELLS);
    set_line(d, APR_LINE_KV_ORDERED, state_bytes(d, APR_LINE_KV_ORDERED, p->n_ctx, p->n_batch), p->judged,
             "%lld positions of one sequence in order, for attention of its prompt", (long long)p->n_gathered);
    set_line(
        d, APR_LINE_STEP, step_bytes(p, p->n_ctx), p->judged,
        "%lld sequences x (%zu bytes + %lld pages x 4 bytes): positions, tokens and pages of a batch, and the top tokens of its logits",
        (long long)p->n_sequences, sizeof(apr_cuda_topk_result) + 16, (long long)p->n_gathered / APR_PAGE_CELLS);
    for (apr_line_id id = first_states; id <= last_states; id++) {
        const state_group g = group_of(d, id);
        if (g.first == NULL) continue;
        if (id == APR_LINE_RECURRENT) recurrent_line(d, &g, sequences);
        else cells_line(d, id, &g, id == APR_LINE_KV_WINDOW ? sequences : shared);
    }
}

static uint64_t activation_bytes(const draft *d, int64_t n_batch)
{
    return apr_saturating_mul(apr_saturating_mul((uint64_t)d->plan->activation_width, (uint64_t)n_batch), sizeof(float));
}

/* The largest slice of any operation, and the largest memory that all threads share; both are multiples of 64 bytes. */
static void host_workspace(const draft *d, size_t *slice, size_t *shared)
{
    const apr_op_sizes sizes = {.n_batch = d->plan->n_batch, .n_logits = d->plan->n_logits};

    *slice = 16;
    *shared = 0;
    for (size_t i = 0; i < d->program->n_ops; i++) {
        const apr_op *const op = &d->program->ops[i];
        const apr_op_spec *const spec = apr_op_specs[op->kind];
        if (!has_op(d, i)) continue;
        const size_t own = spec->host_floats != NULL ? spec->host_floats(d->program, op) : 0;
        const size_t all = spec->host_shared != NULL ? spec->host_shared(d->program, op, &sizes) : 0;
        if (own > *slice) *slice = own;
        if (all > *shared) *shared = all;
    }
    *slice = (*slice + 15) / 16 * 16;
    *shared = (*shared + 15) / 16 * 16;
}

/* The widest input of the matrices at this place. */
static int64_t widest_input(const draft *d)
{
    int64_t most = 0;
    for (size_t i = 0; i < d->program->n_weights; i++) {
        const apr_weight_slot *const slot = &d->program->weights[i];
        const bool is_multiplied = (slot->uses & APR_USE_MULTIPLIED) != 0 && d->weight_bytes[i] > 0;
        if (is_multiplied && slot->dims[slot->rank - 1] > most) most = slot->dims[slot->rank - 1];
    }
    return most;
}

/* Bytes of a device's only workspace buffer: the maximum over the operations. Experts of a step are after the slots,
 * in one of which they leave their sum. */
static uint64_t device_workspace(const draft *d, apr_plan_speed pace)
{
    const apr_program *const program = d->program;
    const apr_op_sizes sizes = {.n_batch = pace.n_batch,
                                .n_logits = d->plan->n_logits < pace.n_batch ? d->plan->n_logits : pace.n_batch,
                                .weight_dtypes = d->options->weight_dtypes,
                                .tile_bytes = pace.tile_bytes,
                                .n_multiprocessors = d->options->gpu->n_sms};
    const uint64_t of_slots = d->plan->n_sequences > 1 ? APR_ROWS_SLOTS * apr_cuda_rows_slot_bytes(widest_input(d)) : 0;
    uint64_t most = 0;

    for (size_t i = 0; i < program->n_ops; i++) {
        const apr_op_spec *const spec = apr_op_specs[program->ops[i].kind];
        if (!has_op(d, i)) continue;
        uint64_t wanted = spec->device_bytes != NULL ? spec->device_bytes(program, &program->ops[i], &sizes) : 0;
        if (spec->kind == APR_OP_EXPERTS) wanted += of_slots;
        if (wanted > most) most = wanted;
    }
    if (d->plan->n_sequences > 1 && widest_input(d) > 0) {
        const uint64_t of_rows = apr_cuda_rows_bytes(widest_input(d), d->options->gpu->n_sms);
        if (of_rows > most) most = of_rows;
    }
    const uint64_t of_argmax = computes_logits(d) ? apr_cuda_topk_bytes(program->vocab_size) : 0;
    return apr_align_up(of_argmax > most ? of_argmax : most, 256);
}

/* The reason says if the batch was reduced because it does not fit. */
static void activations_line(draft *d)
{
    const apr_plan *const p = d->plan;
    const int64_t wanted = d->options->wanted_batch < p->n_ctx ? d->options->wanted_batch : p->n_ctx;
    char reduced[64] = "";

    if (wanted > p->n_batch) snprintf(reduced, sizeof reduced, "; %lld at a time do not fit", (long long)wanted);
    set_line(d, APR_LINE_ACTIVATIONS, activation_bytes(d, p->n_batch), p->judged, "%lld tokens x %lld numbers alive at once x 4 bytes%s",
             (long long)p->n_batch, (long long)p->activation_width, reduced);
}

static apr_plan_speed pace_of(const draft *d)
{
    return (apr_plan_speed){d->plan->n_batch, d->options->tile_bytes > 0 ? d->options->tile_bytes : APR_CUDA_DEQUANTIZED_BYTES};
}

/* The widest value that products may read. */
static int64_t widest_value(const apr_program *program)
{
    int64_t most = 0;
    for (size_t i = 0; i < program->n_values; i++)
        if (!program->values[i].is_logits && program->values[i].width > most) most = program->values[i].width;
    return most;
}

/* The part of device_workspace for small GEMMs: ", inputs and sums of small GEMMs of up to 64 tokens (of a prompt, or of 4 sequences)";
 * or "". */
static const char *small_gemm_text(const draft *d, char *text, size_t n_bytes)
{
    const apr_dtype *const dtypes = d->options->weight_dtypes;
    bool has_any = d->plan->n_sequences > 1;

    for (size_t i = 0; i < d->program->n_weights; i++)
        has_any |= (d->program->weights[i].uses & APR_USE_MULTIPLIED) != 0 && (dtypes == NULL || apr_small_gemm_has(dtypes[i]));
    if (!has_any || widest_input(d) == 0) return "";
    const int n = snprintf(text, n_bytes, ", inputs and sums of small GEMMs of up to %d tokens", (int)APR_SMALL_GEMM_MAX_TOKENS);
    if (d->plan->n_sequences > 1)
        snprintf(text + n, n_bytes - (size_t)n, " (of a prompt, or of %lld sequences)", (long long)d->plan->n_sequences);
    return text;
}

/* Bytes after a device's workspace: the data of a single token, and the inputs of decode GEMVs. */
static uint64_t after_workspace(const apr_plan *p)
{
    return apr_saturating_add(apr_cuda_round(sizeof(apr_cuda_token)), APR_ACTIVATIONS_I16_SLOTS * p->activations_slot);
}

static void device_workspace_line(draft *d)
{
    apr_plan *const p = d->plan;
    const apr_plan_speed pace = pace_of(d);
    const uint64_t bytes = device_workspace(d, pace);
    char reduced[64] = "", small_gemm[160];

    if (pace.tile_bytes < APR_CUDA_DEQUANTIZED_BYTES)
        snprintf(reduced, sizeof reduced, "; %d do not fit", APR_CUDA_DEQUANTIZED_BYTES >> 20);
    p->workspace_slice = bytes / sizeof(float);
    p->activations_slot = apr_cuda_round((size_t)apr_activations_i16_bytes(widest_value(d->program)));
    p->activations_slot += apr_cuda_round((size_t)(widest_value(d->program) / APR_ROW_GROUP) * sizeof(float)); /* and the sums of squares */
    set_line(d, APR_LINE_WORKSPACE, apr_saturating_add(bytes, after_workspace(p)), APR_ON_DEVICE,
             "FP16 inputs of %lld tokens and decoded FP16 weights (%llu MiB at a time at most%s)%s, or partial results of attention to a "
             "long context",
             (long long)p->n_batch, (unsigned long long)(pace.tile_bytes >> 20), reduced,
             small_gemm_text(d, small_gemm, sizeof small_gemm));
}

static void working_lines(draft *d, int64_t n_vector_floats)
{
    apr_plan *const p = d->plan;
    const bool has_logits = computes_logits(d);
    const uint64_t logits_bytes =
        has_logits ? apr_saturating_mul(apr_saturating_mul((uint64_t)d->program->vocab_size, (uint64_t)p->n_logits), sizeof(float)) : 0;

    set_line(d, APR_LINE_F32_VECTORS, (uint64_t)n_vector_floats * sizeof(float), p->judged,
             "%lld numbers: norms, biases, rotary frequencies", (long long)n_vector_floats);
    activations_line(d);
    set_line(d, APR_LINE_LOGITS, logits_bytes, p->judged, "%lld rows x %lld tokens of the vocabulary x 4 bytes", (long long)p->n_logits,
             (long long)d->program->vocab_size);
    if (p->judged == APR_ON_HOST) {
        char shared[96] = "";
        host_workspace(d, &p->workspace_slice, &p->workspace_shared);
        const uint64_t threads = (uint64_t)(d->options->n_threads > 0 ? d->options->n_threads : 1);
        const uint64_t n_floats = apr_saturating_add(apr_saturating_mul(threads, p->workspace_slice), p->workspace_shared);
        if (p->workspace_shared > 0)
            snprintf(shared, sizeof shared, "; %zu numbers shared by all: tokens by expert, partial results of attention",
                     p->workspace_shared);
        set_line(d, APR_LINE_WORKSPACE, apr_saturating_mul(n_floats, sizeof(float)), APR_ON_HOST,
                 "%llu threads x %zu numbers: decoded rows of weights, tiles of the cache%s", (unsigned long long)threads,
                 p->workspace_slice, shared);
        return;
    }
    device_workspace_line(d);
    set_line(d, APR_LINE_HOST_LOGITS,
             logits_bytes > 0 ? apr_saturating_add(apr_align_up(logits_bytes, 256), apr_cuda_round(sizeof(apr_cuda_token))) : 0,
             APR_ON_HOST, "pinned buffer from which the logits are read");
    set_line(d, APR_LINE_HOST_STEP, apr_align_up(step_bytes(p, p->n_ctx), 256), APR_ON_HOST,
             "pinned buffer to which the batch table is written");
}

static void device_lines(draft *d)
{
    const apr_gpu *const gpu = d->options->gpu;
    if (gpu == NULL) return;
    const bool is_first = !d->options->shares_card;
    set_line(d, APR_LINE_CONTEXT, is_first ? apr_gpu_context_bytes(gpu, d->options->stack_bytes) : 0, APR_ON_DEVICE,
             "%s: %d SMs x %d threads x (about 1 KiB + %llu bytes of stack)", gpu->label, gpu->n_sms, gpu->threads_per_sm,
             (unsigned long long)d->options->stack_bytes);
    set_line(d, APR_LINE_CUBLAS_HANDLE, (uint64_t)APR_CUBLAS_HANDLE_MIB << 20, APR_ON_DEVICE,
             "cublasCreate and code that is loaded later, measured");
    set_line(d, APR_LINE_CUBLAS_WORKSPACE, apr_gpu_cublas_workspace_bytes(gpu), APR_ON_DEVICE,
             "NVIDIA's recommended size for compute capability %d.%d", gpu->major, gpu->minor);
    set_line(d, APR_LINE_HEADROOM, is_first ? d->options->headroom_bytes : 0, APR_ON_DEVICE,
             "left free for the display, other processes and fragmentation");
    set_line(d, APR_LINE_SYSTEM, is_first && gpu->is_integrated ? d->options->system_bytes : 0, APR_ON_HOST,
             "host and device share this memory: use of the system, estimated");
}

/* A token's operations as one CUDA graph. It needs the whole program on the device, and no table that is read on the host. */
static void graph_line(draft *d)
{
    const apr_partition *const partition = d->options->partition;
    const bool is_whole = (partition == NULL || partition->n_places == 1) && d->lines[APR_LINE_HOST_ROWS].bytes == 0;
    if (d->plan->judged != APR_ON_DEVICE || !is_whole || d->options->no_replay) return;
    /* with several rows a product takes up to three kernels */
    const uint64_t each = APR_GRAPH_OPERATION_BYTES * (d->plan->n_sequences > 1 ? 2 : 1);
    set_line(d, APR_LINE_RECORDED, apr_align_up(d->program->n_ops * each, APR_DRIVER_BLOCK_BYTES), APR_ON_DEVICE,
             "%zu operations as one CUDA graph: the driver's memory, measured", d->program->n_ops);
}

/* The bytes by which allocations are rounded up, for these sizes of states, activations and workspace. Allocations of up to half a block
 * were seen to fit into blocks that exist for others. */
static uint64_t rounding_bytes(const draft *d, uint64_t states, uint64_t activations, uint64_t workspace)
{
    const apr_line_id alone[] = {APR_LINE_CUBLAS_WORKSPACE, APR_LINE_COPIES, APR_LINE_F32_VECTORS, APR_LINE_LOGITS};
    enum { N = sizeof alone / sizeof *alone };
    uint64_t asked[N + 4] = {states, activations, 0, workspace}, sum = 0;

    for (int role = 0; role < APR_ROLE_COUNT; role++)
        asked[2] = apr_saturating_add(asked[2], d->lines[APR_LINE_WEIGHTS_EMBEDDING + role].bytes); /* all weights are one allocation */
    asked[2] = apr_saturating_add(asked[2], d->lines[APR_LINE_FILLED].bytes);
    for (size_t i = 0; i < N; i++) asked[4 + i] = d->lines[alone[i]].bytes;
    for (size_t i = 0; i < N + 4; i++)
        if (asked[i] > APR_DRIVER_BLOCK_BYTES / 2) sum += apr_align_up(asked[i], APR_DRIVER_BLOCK_BYTES) - asked[i];
    return sum;
}

static uint64_t all_states_bytes(const draft *d, int64_t n_ctx, int64_t n_batch)
{
    uint64_t sum = 0;
    for (apr_line_id id = first_states; id <= last_states; id++) sum = apr_saturating_add(sum, state_bytes(d, id, n_ctx, n_batch));
    return sum;
}

static void rounding_line(draft *d)
{
    const apr_plan *const p = d->plan;
    if (p->judged != APR_ON_DEVICE) return;
    const uint64_t bytes = rounding_bytes(d, p->states_bytes, d->lines[APR_LINE_ACTIVATIONS].bytes, d->lines[APR_LINE_WORKSPACE].bytes);
    set_line(d, APR_LINE_ROUNDING, bytes, APR_ON_DEVICE,
             "the driver allocates blocks of %d MiB; all weights are one allocation, all states another",
             (int)(APR_DRIVER_BLOCK_BYTES >> 20));
}

static bool counts_for_budget(const apr_plan *p, const apr_plan_line *line) { return line->on == p->judged || p->is_shared; }

/* Orders the lines, sums them, and finds the first line over the budget. */
static void check_budget(draft *d)
{
    apr_plan *const p = d->plan;
    uint64_t sums[2] = {0, 0};

    for (size_t i = 0; i < sizeof line_order / sizeof *line_order; i++) {
        const apr_plan_line *const line = &d->lines[line_order[i]];
        if (line->bytes == 0) continue;
        p->lines[p->n_lines] = *line;
        sums[line->on] = apr_saturating_add(sums[line->on], line->bytes);
        if (counts_for_budget(p, line)) p->taken_bytes = apr_saturating_add(p->taken_bytes, line->bytes);
        if (p->budget_bytes > 0 && p->taken_bytes > p->budget_bytes && p->breaking < 0) p->breaking = (int)p->n_lines;
        p->n_lines++;
    }
    p->host_bytes = sums[APR_ON_HOST];
    p->device_bytes = sums[APR_ON_DEVICE];
    p->fits = p->breaking < 0;
    p->short_bytes = p->fits ? 0 : p->taken_bytes - p->budget_bytes;
}

/* Cached: most contexts are longer than the slowest batch, so they have the same workspace. */
static uint64_t workspace_at(draft *d, apr_plan_speed pace)
{
    if (d->slowest.n_batch != pace.n_batch) {
        d->slowest = pace;
        d->slowest_workspace = apr_saturating_add(device_workspace(d, pace), after_workspace(d->plan));
    }
    return d->slowest_workspace;
}

static bool depends_on_context(const draft *d, apr_line_id id)
{
    return id == APR_LINE_ACTIVATIONS || id == APR_LINE_ROUNDING || (id == APR_LINE_WORKSPACE && d->plan->judged == APR_ON_DEVICE) ||
           id == APR_LINE_HOST_STEP || id == APR_LINE_HOST_ROWS || (id >= first_states && id <= last_states);
}

/* A device plan's lines on the host that grow with the context or the batch. */
static uint64_t host_bytes_at(const draft *d, int64_t n_ctx, int64_t n_batch)
{
    const uint64_t step = apr_align_up(step_bytes(d->plan, n_ctx), 256), rows = d->lines[APR_LINE_HOST_ROWS].bytes;
    return apr_saturating_add(step, rows / (uint64_t)d->plan->n_batch * (uint64_t)n_batch);
}

/* Would the plan fit with that context, at the slowest pace and without padded rows? Only states, activations, a device's workspace and
 * their rounding depend on the context. */
static bool fits_with(draft *d, int64_t n_ctx)
{
    const apr_plan *const p = d->plan;
    const apr_plan_options *const o = d->options;
    apr_plan_speed pace = o->slowest.n_batch > 0 ? o->slowest : (apr_plan_speed){o->n_batch, pace_of(d).tile_bytes};
    if (pace.n_batch > n_ctx) pace.n_batch = n_ctx;
    const uint64_t states = all_states_bytes(d, n_ctx, pace.n_batch), activations = activation_bytes(d, pace.n_batch);
    uint64_t sum = apr_saturating_add(states, activations);

    if (p->judged == APR_ON_DEVICE) {
        const uint64_t workspace = workspace_at(d, pace);
        sum = apr_saturating_add(sum, apr_saturating_add(workspace, rounding_bytes(d, states, activations, workspace)));
    }
    if (p->is_shared) sum = apr_saturating_add(sum, host_bytes_at(d, n_ctx, pace.n_batch));
    for (size_t i = 0; i < p->n_lines; i++) {
        const apr_plan_line *const line = &p->lines[i];
        if (counts_for_budget(p, line) && !depends_on_context(d, line->id) && line->id != APR_LINE_FILLED)
            sum = apr_saturating_add(sum, line->bytes);
    }
    return sum <= p->budget_bytes;
}

static const int64_t most_context = (int64_t)1 << 31;

/* Binary search. Contexts longer than the slowest batch have the same workspace, so that length is tried first. */
static int64_t largest_context(draft *d)
{
    const int64_t batch = d->options->slowest.n_batch > 0 ? d->options->slowest.n_batch : d->options->n_batch;
    const int64_t asked = d->plan->n_ctx, limit = d->program->most_positions > 0 ? d->program->most_positions : APR_ANY_CONTEXT;
    const int64_t most = asked > limit ? asked : limit;

    if (d->plan->budget_bytes == 0) return d->program->max_context > 0 ? d->program->max_context : (int64_t)1 << 20;
    if (fits_with(d, most)) return most;
    if (!fits_with(d, 1)) return 0;
    int64_t good = 1, bad = most;
    if (batch > good && batch < bad) *(fits_with(d, batch) ? &good : &bad) = batch;
    while (bad - good > 1) {
        const int64_t middle = good + (bad - good) / 2;
        if (fits_with(d, middle)) good = middle;
        else bad = middle;
    }
    return good;
}

static apr_status check_options(const apr_program *program, const apr_plan_options *o, apr_error *err)
{
    if (o->n_ctx < 0 || o->n_ctx > most_context || o->n_batch < 1 || o->n_batch > most_context || o->n_logits < 1 ||
        o->n_logits > most_context || o->n_sequences < 1 || o->n_sequences > 65536 || o->kv_cells < 0)
        return apr_fail(err, APR_E_USAGE,
                        "context, batch, rows of logits and sequences must be at least 1 and at most 2^31 (65536 sequences)");
    if (program->most_positions > 0 && planned_context(program, o->n_ctx) > program->most_positions)
        return apr_fail(err, APR_E_UNSUPPORTED, "the model has %lld positions (%lld were asked for); %s",
                        (long long)program->most_positions, (long long)planned_context(program, o->n_ctx), program->why_most);
    for (size_t i = 0; i < program->n_states; i++) {
        const apr_state *const state = &program->states[i];
        const bool keys = apr_kv_row_bytes(o->kv_dtype, state->key_dim) >= 0, values = apr_kv_row_bytes(o->kv_dtype, state->value_dim) >= 0;
        if (apr_state_has_cells(state) && !(keys && values))
            return apr_fail(err, APR_E_UNSUPPORTED,
                            "keys and values of %lld numbers per head cannot be stored as %s; use f16, f32 or (for multiples of 32) q8_0",
                            (long long)(keys ? state->value_dim : state->key_dim), apr_dtypes[o->kv_dtype].name);
    }
    return APR_OK;
}

/* On a device some operations have limits. */
static apr_status check_device_limits(const draft *d, apr_error *err)
{
    char why[200];

    for (size_t i = 0; i < d->program->n_ops; i++) {
        const apr_op *const op = &d->program->ops[i];
        const apr_op_spec *const spec = apr_op_specs[op->kind];
        if (has_op(d, i) && spec->exceeds_device != NULL && spec->exceeds_device(op, why, sizeof why))
            return apr_fail(err, APR_E_UNSUPPORTED, "layer %d %s; run the model on the host", op->layer, why);
    }
    return APR_OK;
}

static apr_status draft_plan(draft *d, apr_error *err)
{
    apr_plan *const p = d->plan;
    const apr_program_part part = {d->program, d->options->partition, d->options->place};
    int64_t n_vector_floats;

    if (d->weight_bytes == NULL) {
        uint64_t *const bytes = apr_arena_array(&p->arena, d->program->n_weights + 1, sizeof *bytes);
        if (bytes == NULL) return apr_no_memory(err, "the sizes of the weights");
        apr_plan_default_weights(d->program, bytes);
        d->weight_bytes = bytes;
    }
    APR_TRY(apr_place_activations(p, &part, err));
    APR_TRY(place_vectors(p, &part, d->weight_bytes, &n_vector_floats, err));
    APR_TRY(place_states(p, &part, d->options, err));
    device_lines(d);
    weight_lines(d);
    host_table_lines(d);
    padding_line(d);
    composed_line(d);
    copies_line(d);
    state_lines(d);
    working_lines(d, n_vector_floats);
    graph_line(d);
    rounding_line(d);
    if (d->no_memory) return apr_no_memory(err, "the plan");
    check_budget(d);
    p->max_ctx = d->options->no_largest ? 0 : largest_context(d);
    return APR_OK;
}

apr_status apr_plan_make(apr_plan *plan, const apr_program *program, const apr_plan_options *options, apr_error *err)
{
    draft d = {.plan = plan, .program = program, .options = options, .weight_bytes = options->weight_bytes};

    *plan = (apr_plan){.breaking = -1, .n_logits = options->n_logits, .n_sequences = options->n_sequences, .kv_dtype = options->kv_dtype};
    APR_TRY(check_options(program, options, err));
    if (options->gpu != NULL) APR_TRY(check_device_limits(&d, err));
    plan->n_ctx = planned_context(program, options->n_ctx);
    plan->n_batch = planned_batch(program, options->n_ctx, options->n_batch);
    if (options->gpu != NULL) plan->n_logits = apr_cuda_rows_logits(options->n_logits, options->n_sequences);
    if (plan->n_logits > plan->n_batch) plan->n_logits = plan->n_batch;
    plan->own_ctx = program->max_context;
    plan->is_shared = options->gpu != NULL && options->gpu->is_integrated;
    plan->judged = options->gpu != NULL ? APR_ON_DEVICE : APR_ON_HOST;
    plan->budget_bytes = options->budget_bytes > 0 || options->gpu == NULL ? options->budget_bytes : apr_gpu_vram_bytes(options->gpu);
    const apr_status status = draft_plan(&d, err);
    if (status != APR_OK) apr_plan_close(plan);
    return status;
}

void apr_plan_close(apr_plan *plan)
{
    apr_arena_close(&plan->arena);
    *plan = (apr_plan){0};
}

const apr_plan_line *apr_plan_line_of(const apr_plan *plan, apr_line_id id)
{
    for (size_t i = 0; i < plan->n_lines; i++)
        if (plan->lines[i].id == id) return &plan->lines[i];
    return NULL;
}
