/* session_sequences.c - several sequences in one session: the sequence in use, pages, and steps of many sequences.
 *
 * On the host a step runs each operation once for all rows. Operations that depend on positions or states run row by row, on the pages
 * and states of the row's sequence. Products take only as many rows at a time as keeps each row's sums in the order of a single row. A
 * device runs each operation once, and reads the rows' positions from a table that is uploaded before. */
#include "runtime/program/op_spec.h"
#include "runtime/session/heap.h"
#include "runtime/session/session_internal.h"

#include <stdlib.h>
#include <string.h>

apr_status apr_session_open_sequences(apr_session *s, apr_error *err)
{
    const apr_plan *const plan = &s->places[0].plan;
    const int64_t n = plan->n_sequences, n_rows = apr_batch_rows(n);

    if (n == 1) return APR_OK;
    s->positions = calloc((size_t)n, sizeof *s->positions);
    s->step_ids = calloc((size_t)n_rows, sizeof *s->step_ids);
    s->step_sequences = calloc((size_t)n_rows, sizeof *s->step_sequences);
    s->step_positions = calloc((size_t)n_rows, sizeof *s->step_positions);
    if (s->positions == NULL || s->step_ids == NULL || s->step_sequences == NULL || s->step_positions == NULL)
        return apr_no_memory(err, "the table of sequences");
    return apr_pages_open(&s->pages, plan->n_pages, n, plan->n_ctx, err);
}

void apr_session_close_sequences(apr_session *s)
{
    free(s->positions);
    free(s->step_ids);
    free(s->step_sequences);
    free(s->step_positions);
    apr_pages_close(&s->pages);
    s->positions = NULL;
    s->step_ids = NULL;
    s->step_sequences = NULL;
    s->step_positions = NULL;
}

uint64_t apr_session_sequences_bytes(const apr_session *s)
{
    void *const blocks[] = {s->positions,  s->step_ids,     s->step_sequences, s->step_positions,
                            s->pages.free, s->pages.n_uses, s->pages.tables,   s->pages.n_held};
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) n += apr_heap_block(blocks[i]);
    return n;
}

int64_t apr_session_n_sequences(const apr_session *s) { return s->places[0].plan.n_sequences; }
int64_t apr_session_free_pages(const apr_session *s) { return s->pages.n_free; }

void apr_session_use(apr_session *s, int64_t sequence)
{
    if (s->positions == NULL) return;
    s->positions[s->sequence] = s->position;
    s->sequence = sequence;
    s->position = s->positions[sequence];
}

void apr_session_release_pages(apr_session *s)
{
    if (s->pages.n_pages > 0) apr_pages_release(&s->pages, s->sequence);
}

apr_status apr_session_extend_pages(apr_session *s, int64_t n_positions, apr_error *err)
{
    return s->pages.n_pages > 0 ? apr_pages_extend(&s->pages, s->sequence, n_positions, err) : APR_OK;
}

/* --- common prefixes --- */

bool apr_session_can_share_prefix(const apr_session *s)
{
    for (size_t i = 0; i < s->program.n_states; i++)
        if (s->program.states[i].kind != APR_STATE_KV) return false;
    return true;
}

static apr_status copy_state(const apr_session *s, const uint8_t *from, uint8_t *to, uint64_t n_bytes, apr_error *err)
{
    apr_cuda_device *const device = s->places[0].device;

    if (device != NULL) return s->options.cuda->transfer(device, from, device, to, n_bytes, err);
    memcpy(to, from, n_bytes);
    return APR_OK;
}

apr_status apr_session_share(apr_session *s, int64_t from, int64_t to, int64_t n_positions, apr_error *err)
{
    const apr_session_place *const at = &s->places[0];

    apr_session_use(s, from);
    const bool has_them = n_positions > 0 && n_positions <= s->position && n_positions % APR_PAGE_CELLS == 0;
    if (s->positions == NULL || from == to || !has_them || (n_positions < s->position && !apr_session_can_share_prefix(s)))
        return apr_fail(err, APR_E_USAGE, "%lld positions of a sequence at %lld cannot be shared", (long long)n_positions,
                        (long long)s->position);
    apr_session_use(s, to);
    apr_session_reset(s);
    apr_pages_share(&s->pages, from, to, n_positions);
    for (size_t i = 0; i < s->program.n_states; i++) {
        const uint64_t stride = at->plan.state_strides[i];
        uint8_t *const first = at->states + at->plan.state_offsets[i];
        if (stride > 0) APR_TRY(copy_state(s, first + (uint64_t)from * stride, first + (uint64_t)to * stride, stride, err));
    }
    s->position = n_positions;
    return APR_OK;
}

/* --- a step --- */

/* All rows write their keys and values before any of them attends, so rows may follow each other in one sequence. A recurrent state has
 * only one value at a time. */
bool apr_session_can_step_prompts(const apr_session *s) { return s->positions != NULL && apr_session_can_share_prefix(s); }

static void run_bound(const apr_session_place *at, const apr_op *op, const apr_op_memory *arena)
{
    apr_op_args args;
    apr_op_bind(arena, op, &args);
    at->backend->ops[op->kind](&args);
}

static void run_each(const apr_session *s, const apr_session_place *at, const apr_op *op, apr_op_memory *arena)
{
    for (int64_t r = 0; r < s->n_tokens; r++) {
        arena->first = r;
        arena->n_tokens = 1;
        arena->ids = s->ids + r;
        arena->sequence = s->step_sequences[r];
        arena->position = s->step_positions[r];
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

static void run_some(const apr_session *s, const apr_session_place *at, const apr_op *op, apr_op_memory *arena)
{
    const bool makes_logits = s->program.values[op->out].is_logits;
    const int64_t n = makes_logits ? s->n_rows : s->n_tokens, most = rows_together(at, op);
    float *const logits = arena->logits;

    for (int64_t r = 0, now; r < n; r += now) {
        now = n - r < most ? n - r : most;
        if (makes_logits) {
            arena->first_row = s->first_row + r;
            arena->n_rows = now;
            arena->logits = logits + r * s->program.vocab_size;
        } else {
            arena->first = r;
            arena->n_tokens = now;
        }
        run_bound(at, op, arena);
    }
}

void apr_session_run_step_op(const apr_session *s, const apr_session_place *at, const apr_op *op, apr_op_memory *arena)
{
    const bool makes_logits = op->out >= 0 && s->program.values[op->out].is_logits;
    const apr_batch_mode mode = apr_op_specs[op->kind]->step;

    if (mode == APR_BATCH_PER_SEQUENCE && !makes_logits) run_each(s, at, op, arena);
    else if (mode == APR_BATCH_FEW_ROWS) run_some(s, at, op, arena);
    else run_bound(at, op, arena);
}

/* --- tables for a device --- */

apr_batch_table apr_session_step_host_buffer(const apr_session *s)
{
    return apr_batch_table_at(s->host_step, apr_batch_rows(s->places[0].plan.n_sequences), s->places[0].plan.n_ctx);
}

static apr_status send_table(apr_session *s, int64_t n_rows, apr_error *err)
{
    const apr_session_place *const at = &s->places[0];
    const uint64_t n_bytes = apr_batch_sent_bytes(apr_batch_rows(at->plan.n_sequences), n_rows, at->plan.n_ctx);
    return s->options.cuda->send(at->device, at->step.positions, apr_session_step_host_buffer(s).positions, n_bytes, err);
}

static void write_pages(const apr_session *s, const apr_batch_table *table, int64_t row, int64_t sequence)
{
    memcpy(table->pages + row * table->most, apr_pages_of(&s->pages, sequence), (size_t)s->pages.n_held[sequence] * sizeof *table->pages);
}

apr_status apr_session_upload_step(apr_session *s, apr_error *err)
{
    if (s->host_step == NULL) return APR_OK;
    const apr_batch_table table = apr_session_step_host_buffer(s);

    for (int64_t r = 0; r < s->n_tokens; r++) {
        table.positions[r] = s->step_positions[r];
        table.ids[r] = s->step_ids[r];
        table.slots[r] = (int32_t)s->step_sequences[r];
        write_pages(s, &table, r, s->step_sequences[r]);
    }
    return send_table(s, s->n_tokens, err);
}

apr_status apr_session_upload_pages(apr_session *s, apr_error *err)
{
    if (s->host_step == NULL) return APR_OK;
    const apr_batch_table table = apr_session_step_host_buffer(s);

    memset(table.positions, 0, (size_t)apr_batch_sent_bytes(apr_batch_rows(s->places[0].plan.n_sequences), 0, s->places[0].plan.n_ctx));
    write_pages(s, &table, 0, s->sequence);
    return send_table(s, 1, err);
}

void apr_session_step_memory(const apr_session *s, const apr_session_place *at, apr_op_memory *arena)
{
    arena->pages = at->step.pages;
    arena->gathered = at->states + at->plan.ordered_offset;
    arena->n_gathered = at->plan.n_gathered;
    if (!s->is_step) return;
    arena->apart = true;
    arena->position = s->step_position;
    arena->position_at = at->step.positions;
    arena->pages_stride = at->step.most;
    arena->slots = at->step.slots;
    arena->sequence = 0; /* slots count from sequence 0 */
}

/* position: of the row's token */
static apr_status check_row(const apr_session *s, const apr_sequence_token *row, int64_t position, apr_error *err)
{
    const int64_t n_ctx = s->places[0].plan.n_ctx;

    if (row->id < 0 || row->id >= s->program.vocab_size)
        return apr_fail(err, APR_E_USAGE, "token id %d is outside the vocabulary of %lld", (int)row->id, (long long)s->program.vocab_size);
    if (position == 0 && !apr_session_can_step_prompts(s))
        return apr_fail(err, APR_E_USAGE, "sequence %lld is empty: evaluate its prompt first", (long long)row->sequence);
    if (position >= n_ctx) return apr_fail(err, APR_E_NO, "the context of %lld tokens is full", (long long)n_ctx);
    return APR_OK;
}

/* Checks that each sequence's rows are adjacent, and allocates their pages. */
static apr_status check_rows(apr_session *s, const apr_sequence_token *rows, int64_t n, apr_error *err)
{
    int64_t before = 0; /* rows of the same sequence */

    for (int64_t i = 0; i < n; i++) {
        const int64_t sequence = rows[i].sequence;
        if (sequence < 0 || sequence >= s->places[0].plan.n_sequences)
            return apr_fail(err, APR_E_USAGE, "there is no sequence %lld", (long long)sequence);
        before = i > 0 && rows[i - 1].sequence == sequence ? before + 1 : 0;
        for (int64_t j = 0; j < i - before; j++)
            if (rows[j].sequence == sequence) return apr_fail(err, APR_E_USAGE, "sequence %lld is twice in a step", (long long)sequence);
        if (before > 0 && !apr_session_can_step_prompts(s))
            return apr_fail(err, APR_E_USAGE, "sequence %lld is twice in a step", (long long)sequence);
        APR_TRY(check_row(s, &rows[i], s->positions[sequence] + before, err));
    }
    for (int64_t i = 0; i < n; i++) {
        before = i > 0 && rows[i - 1].sequence == rows[i].sequence ? before + 1 : 0;
        APR_TRY(apr_pages_extend(&s->pages, rows[i].sequence, s->positions[rows[i].sequence] + before + 1, err));
    }
    return APR_OK;
}

/* Runs n of the step's rows, starting with row `first`. */
static apr_status run_some_rows(apr_session *s, const apr_sequence_token *rows, int64_t first, int64_t n, const apr_eval_output *out,
                                apr_error *err)
{
    const uint64_t before = apr_heap_in_use();
    for (int64_t i = 0; i < n; i++) {
        s->step_ids[i] = rows[first + i].id;
        s->step_sequences[i] = rows[first + i].sequence;
        const bool continues = i > 0 && s->step_sequences[i - 1] == s->step_sequences[i];
        s->step_positions[i] = continues ? s->step_positions[i - 1] + 1 : s->positions[s->step_sequences[i]];
    }
    s->ids = s->step_ids;
    s->n_tokens = n;
    s->step_first = first;
    s->is_step = true;
    s->step_position = 0;
    for (int64_t i = 0; i < n; i++)
        if (s->step_positions[i] > s->step_position) s->step_position = s->step_positions[i];
    const apr_status status = apr_session_run_step(s, out, err);
    s->is_step = false;
    for (int64_t i = 0; i < n; i++) s->positions[s->step_sequences[i]]++;
    if (!apr_session_has_device(s)) apr_session_count_heap(&s->heap_runs, before);
    return status;
}

apr_status apr_session_step(apr_session *s, const apr_sequence_token *rows, int64_t n_rows, const apr_eval_output *out, apr_error *err)
{
    static const apr_eval_output nothing = {0};
    const int64_t most = s->places[0].plan.n_batch;
    apr_status status = APR_OK;

    if (n_rows == 0) return APR_OK;
    const int64_t capacity = apr_batch_rows(s->places[0].plan.n_sequences);
    if (s->positions == NULL || n_rows < 0 || n_rows > most || n_rows > capacity)
        return apr_fail(err, APR_E_USAGE, "a step of %lld rows: at most %lld rows and %lld tokens at a time fit", (long long)n_rows,
                        (long long)(s->positions == NULL ? 0 : capacity), (long long)most);
    s->positions[s->sequence] = s->position;
    APR_TRY(check_rows(s, rows, n_rows, err));
    const int64_t each = apr_session_rows_at_once(s, n_rows);
    for (int64_t first = 0; first < n_rows && status == APR_OK; first += each)
        status = run_some_rows(s, rows, first, n_rows - first < each ? n_rows - first : each, out != NULL ? out : &nothing, err);
    s->position = s->positions[s->sequence];
    return status;
}
