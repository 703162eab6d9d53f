/* session.c - evaluates tokens: of one sequence, or one step of several. Falls back to the host when a device fails. */
#include "formats/base/threads.h"
#include "kernels/topk.h"
#include "runtime/session/heap.h"
#include "runtime/session/session_internal.h"

#include <string.h>

/* --- tables for a device --- */

/* The table in s->host_step, which must exist. */
static apr_batch_table step_host_buffer(const apr_session *s)
{
    return apr_batch_table_at(s->host_step, apr_batch_rows(apr_session_n_sequences(s)), s->places[0].plan.n_ctx);
}

static apr_status send_table(apr_session *s, int64_t n_rows, apr_error *err)
{
    const apr_session_place *const at = &s->places[0];
    const uint64_t n_bytes = apr_batch_sent_bytes(apr_batch_rows(at->plan.n_sequences), n_rows, at->plan.n_ctx);
    return s->options.cuda->send(at->device, at->step.positions, step_host_buffer(s).positions, n_bytes, err);
}

static void write_pages(const apr_session *s, const apr_batch_table *table, int64_t row, int64_t sequence)
{
    memcpy(table->pages + row * table->most, apr_pages_of(&s->pages, sequence), (size_t)s->pages.n_held[sequence] * sizeof *table->pages);
}

/* Uploads the table of the step's rows, or the pages of the sequence in use, to the device if there is one. Asynchronous, in stream
 * order. */
static apr_status upload_step(apr_session *s, const apr_session_batch *b, apr_error *err)
{
    if (s->host_step == NULL) return APR_OK;
    const apr_batch_table table = step_host_buffer(s);

    for (int64_t r = 0; r < b->n_tokens; r++) {
        table.positions[r] = b->positions[r];
        table.ids[r] = b->ids[r];
        table.slots[r] = (int32_t)b->sequences[r];
        write_pages(s, &table, r, b->sequences[r]);
    }
    return send_table(s, b->n_tokens, err);
}

static apr_status upload_pages(apr_session *s, apr_error *err)
{
    if (s->host_step == NULL) return APR_OK;
    const apr_batch_table table = step_host_buffer(s);

    memset(table.positions, 0, (size_t)apr_batch_sent_bytes(apr_batch_rows(apr_session_n_sequences(s)), 0, s->places[0].plan.n_ctx));
    write_pages(s, &table, 0, s->sequence);
    return send_table(s, 1, err);
}

/* --- top-k tokens --- */

/* Converts a device's result. */
static void take_found(apr_topk *topk, const apr_cuda_topk_result *found, int64_t vocab_size)
{
    apr_topk_from_keys(topk, found->keys, topk->n_wanted);
    topk->sum = 0.0;
    topk->n_parts = 0;
    if (topk->temperature <= 0.0f) return;
    topk->sum = found->sum;
    topk->n_parts = apr_topk_parts(vocab_size) <= APR_TOPK_MAX_PARTS ? (int)apr_topk_parts(vocab_size) : 0;
    memcpy(topk->parts, found->parts, sizeof topk->parts);
}

/* Top-k of the rows of logits of a step, each by its own request. */
static apr_status find_step_topk(apr_session *s, const apr_session_batch *b, apr_topk *topk, apr_error *err)
{
    const apr_cuda_api *const cuda = s->options.cuda;
    const apr_session_place *const at = apr_session_place_of_logits(s);
    const int64_t width = s->program.vocab_size;

    if (at->device == NULL) {
        const double n_steps = (double)(b->n_rows * width) * APR_OPS_EXP;
#pragma omp parallel for schedule(dynamic) num_threads(apr_threads(at->work.n_threads, b->n_rows, n_steps))
        for (int64_t r = 0; r < b->n_rows; r++) apr_topk_find(&topk[r], at->logits + r * width, width);
        return APR_OK;
    }
    apr_cuda_topk_result *const host_token = step_host_buffer(s).found;
    APR_TRY(cuda->topk_rows(at->device, at->logits, width, b->n_rows, topk, at->work.data, at->work.slice * sizeof(float), at->step.found,
                            err));
    APR_TRY(cuda->receive(at->device, host_token, at->step.found, (uint64_t)b->n_rows * sizeof *host_token, err));
    APR_TRY(cuda->check(at->device, s->stage, err));
    for (int64_t r = 0; r < b->n_rows; r++) take_found(&topk[r], &host_token[r], width);
    return APR_OK;
}

/* Top-k of the last row of logits, computed where the row is. */
static apr_status find_topk(apr_session *s, apr_topk *topk, apr_error *err)
{
    const apr_cuda_api *const cuda = s->options.cuda;
    const apr_session_place *const at = apr_session_place_of_logits(s);
    const int64_t vocab_size = s->program.vocab_size;

    if (at->device == NULL) {
        apr_topk_find(topk, s->last_row, vocab_size);
        return APR_OK;
    }
    APR_TRY(cuda->topk(at->device, s->last_row, vocab_size, topk->n_wanted, topk->temperature, at->work.data, &at->token->found, err));
    APR_TRY(cuda->receive(at->device, &s->host_token->found, &at->token->found, sizeof s->host_token->found, err));
    APR_TRY(cuda->check(at->device, s->stage, err));
    take_found(topk, &s->host_token->found, vocab_size);
    return APR_OK;
}

/* --- logits --- */

/* Gives the caller the computed rows of logits, except those it already has. */
static apr_status hand_out(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, apr_error *err)
{
    const size_t width = (size_t)s->program.vocab_size;
    const int64_t known = s->n_skipped < b->n_rows ? s->n_skipped : b->n_rows;

    s->n_skipped -= known;
    if (out->logits != NULL)
        memcpy(out->logits + (out->all_logits ? (size_t)(b->first + b->first_row) * width : 0), s->host_logits,
               (size_t)b->n_rows * width * sizeof *s->host_logits);
    if (out->on_logits == NULL || known == b->n_rows) return APR_OK;
    s->n_handed += b->n_rows - known;
    const uint64_t before = apr_heap_in_use();
    int64_t callers = 0; /* what the caller allocates does not count for the session */
    const apr_status status =
        out->on_logits(out->user, b->first + b->first_row + known, b->n_rows - known, s->host_logits + (size_t)known * width, err);
    apr_session_count_heap(&callers, before);
    if (s->n_places == 1) s->heap_runs -= callers;
    return status;
}

static apr_status hand_out_on_device(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, const float *logits,
                                     apr_error *err)
{
    const int64_t known = s->n_skipped < b->n_rows ? s->n_skipped : b->n_rows;

    s->n_skipped -= known;
    s->n_handed += b->n_rows - known;
    if (known == b->n_rows) return APR_OK;
    return out->on_device_logits(out->user, b->first + b->first_row + known, b->n_rows - known, logits + known * s->program.vocab_size,
                                 err);
}

/* Delivers what the caller asked for: rows of logits that were just computed. */
static apr_status deliver_logits(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, apr_error *err)
{
    const size_t width = (size_t)s->program.vocab_size, before_last = (size_t)(b->n_rows - 1) * width;
    const apr_session_place *const at = apr_session_place_of_logits(s);
    const bool is_last = b->first + b->first_row + b->n_rows == b->n_all; /* of the call */
    const bool wants_rows = out->best == NULL || out->logits != NULL || out->on_logits != NULL;

    s->last_row = at->logits + before_last;
    s->last_logits = NULL;
    if (s->only_products) return APR_OK;
    if (out->best != NULL && is_last) APR_TRY(find_topk(s, out->best, err));
    if (at->device != NULL && !wants_rows) return APR_OK;
    if (at->device != NULL && out->on_device_logits != NULL) return hand_out_on_device(s, b, out, at->logits, err);
    APR_TRY(apr_session_fetch(s, at, s->host_logits, at->logits, (size_t)b->n_rows * width * sizeof *s->host_logits, err));
    s->last_logits = s->host_logits + before_last;
    return hand_out(s, b, out, err);
}

apr_status apr_session_read_some_logits(apr_session *s, int64_t first, int64_t n, float *to, apr_error *err)
{
    if (s->last_row == NULL) return apr_fail(err, APR_E_USAGE, "%s: there are no logits: nothing has been evaluated", s->model->path);
    return apr_session_fetch(s, apr_session_place_of_logits(s), to, s->last_row + first, (size_t)n * sizeof *to, err);
}

apr_status apr_session_read_logits(apr_session *s, apr_error *err)
{
    if (s->last_logits != NULL) return APR_OK;
    APR_TRY(apr_session_read_some_logits(s, 0, s->program.vocab_size, s->host_logits, err));
    s->last_logits = s->host_logits;
    return APR_OK;
}

/* Delivers the top-k of the rows of a step whose logits were just computed. */
static apr_status deliver_topk(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, apr_error *err)
{
    const apr_session_place *const at = apr_session_place_of_logits(s);
    const int64_t first = b->first + b->first_row;

    APR_TRY(find_step_topk(s, b, out->best + first, err));
    for (int64_t r = 0; r < b->n_rows; r++) {
        s->last_row = at->logits + r * s->program.vocab_size;
        s->last_logits = NULL;
        APR_TRY(out->on_topk(out->user, first + r, &out->best[first + r], err));
    }
    return APR_OK;
}

static apr_status deliver(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, apr_error *err)
{
    return out->on_topk != NULL ? deliver_topk(s, b, out, err) : deliver_logits(s, b, out, err);
}

/* Computes and delivers the logits of the batch's tokens from `begin` on, n_logits rows at a time. */
static apr_status run_logits(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, int64_t begin, apr_error *err)
{
    const int64_t most = apr_session_place_of_logits(s)->plan.n_logits;
    apr_session_batch rows = *b;

    for (rows.first_row = begin; rows.first_row < b->n_tokens; rows.first_row += rows.n_rows) {
        rows.n_rows = b->n_tokens - rows.first_row < most ? b->n_tokens - rows.first_row : most;
        for (size_t i = 0; i < s->program.n_ops; i++) {
            const apr_op *const op = &s->program.ops[i];
            if (op->out >= 0 && s->program.values[op->out].is_logits) APR_TRY(apr_session_run_op(s, &rows, op, err));
        }
        APR_TRY(deliver(s, &rows, out, err));
    }
    return APR_OK;
}

/* Runs a batch whose rows of logits are all its tokens, and delivers the logits of its tokens from `begin` on. */
static apr_status run_batch(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, int64_t begin, apr_error *err)
{
    const bool may_replay = b->positions != NULL || (begin == 0 && b->n_tokens == 1 && out->kept == NULL);
    bool done = false, logits = false;

    if (may_replay) APR_TRY(apr_session_replay(s, b, out, &done, &logits, err));
    if (!done) APR_TRY(apr_session_run_batch(s, b, out, &logits, err));
    const apr_status status = logits ? deliver(s, b, out, err) : run_logits(s, b, out, begin, err);
    if (b->positions == NULL) s->position += b->n_tokens; /* the keys and values are stored, whatever became of the logits */
    return status;
}

/* --- tokens of one sequence --- */

apr_status apr_session_go_on(const apr_session *s, apr_error *err)
{
    const atomic_bool *const flag = s->options.is_cancelled;
    return flag != NULL && atomic_load(flag) ? apr_fail(err, APR_E_NO, "cancelled") : APR_OK;
}

static apr_status run_all_tokens(apr_session *s, const int32_t *ids, size_t n_ids, const apr_eval_output *out, apr_error *err)
{
    const int64_t n_all = (int64_t)n_ids, n_batch = s->places[0].plan.n_batch;

    if (n_all > 0 && s->position == 0) APR_TRY(apr_session_clear_states(s, err));
    for (int64_t first = 0, n; first < n_all; first += n) {
        APR_TRY(apr_session_go_on(s, err));
        n = n_all - first < n_batch ? n_all - first : n_batch;
        const apr_session_batch b = {.ids = ids + first,
                                     .n_tokens = n,
                                     .first = first,
                                     .n_all = n_all,
                                     .n_rows = n,
                                     .position = s->position,
                                     .sequence = s->sequence};
        APR_TRY(run_batch(s, &b, out, out->all_logits ? 0 : first + n == n_all ? n - 1 : n, err));
    }
    return APR_OK;
}

/* With several places the host's operations are counted one by one, because the driver of a device also uses the heap. */
static apr_status run_tokens(apr_session *s, const int32_t *ids, size_t n_ids, const apr_eval_output *out, apr_error *err)
{
    if (s->n_places > 1 || apr_session_has_device(s)) return run_all_tokens(s, ids, n_ids, out, err);
    const uint64_t before = apr_heap_in_use();
    const apr_status status = run_all_tokens(s, ids, n_ids, out, err);
    apr_session_count_heap(&s->heap_runs, before);
    return status;
}

static void check_each(const apr_session *s, bool on)
{
    for (int i = 0; i < s->n_places; i++)
        if (s->places[i].device != NULL) s->options.cuda->check_each(s->places[i].device, on);
}

/* The first prompt and the first decoded token on a device wait after every operation, so that a fault names its operation. */
static apr_status run_stage(apr_session *s, const int32_t *ids, size_t n_ids, const apr_eval_output *out, apr_error *err)
{
    if (!apr_session_has_device(s)) return run_tokens(s, ids, n_ids, out, err);
    bool *const checked = n_ids > 1 ? &s->prompt_checked : &s->decode_checked;
    const bool is_first = !*checked;

    s->stage = n_ids > 1 ? "a prompt" : "a decoded token";
    if (is_first) check_each(s, true);
    APR_TRY(run_tokens(s, ids, n_ids, out, err));
    if (is_first) check_each(s, false);
    *checked = true;
    return apr_session_check_devices(s, s->stage, err);
}

/* The device failed in the middle, and the session is now on the host: evaluates all earlier tokens again, then these. */
static apr_status start_over(apr_session *s, const int32_t *ids, size_t n_ids, int64_t position, const apr_eval_output *out, apr_error *err)
{
    static const apr_eval_output nothing = {0};
    const int64_t n_handed = s->n_handed;

    APR_TRY(run_tokens(s, s->history, (size_t)position, &nothing, err));
    s->n_skipped = n_handed;
    return run_tokens(s, ids, n_ids, out, err);
}

apr_status apr_session_eval(apr_session *s, const int32_t *ids, size_t n_ids, const apr_eval_output *out, apr_error *err)
{
    static const apr_eval_output nothing = {0};
    const int64_t position = s->position, n_ctx = s->places[0].plan.n_ctx;
    apr_error failure = {0};

    if (out == NULL) out = &nothing;
    if (n_ids > (size_t)(n_ctx - s->position))
        return apr_fail(err, APR_E_NO, "the context of %lld tokens is full: %zu more do not fit after the first %lld", (long long)n_ctx,
                        n_ids, (long long)s->position);
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= s->program.vocab_size)
            return apr_fail(err, APR_E_USAGE, "token id %d is outside the vocabulary of %lld", (int)ids[i],
                            (long long)s->program.vocab_size);

    if (s->pages.n_pages > 0) APR_TRY(apr_pages_extend(&s->pages, s->sequence, s->position + (int64_t)n_ids, err));
    APR_TRY(upload_pages(s, err));
    s->n_handed = s->n_skipped = 0;
    apr_status status = run_stage(s, ids, n_ids, out, &failure);
    if (apr_session_fall_back(s, &status, &failure) && status == APR_OK) status = start_over(s, ids, n_ids, position, out, &failure);
    if (status != APR_OK) return apr_fail(err, status, "%s", failure.text);
    if (s->history != NULL) memcpy(s->history + position, ids, n_ids * sizeof *ids);
    return APR_OK;
}

/* --- a step of several sequences --- */

static apr_status run_rows(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, apr_error *err)
{
    const apr_eval_output all = {.all_logits = true,
                                 .logits = out->logits,
                                 .on_logits = out->on_logits,
                                 .best = out->on_topk != NULL ? out->best : NULL,
                                 .on_topk = out->on_topk,
                                 .user = out->user};

    s->n_handed = s->n_skipped = 0;
    APR_TRY(upload_step(s, b, err));
    return run_batch(s, b, &all, 0, err);
}

static apr_status run_step(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, apr_error *err)
{
    const bool is_first = !s->step_checked;

    if (!apr_session_has_device(s)) return run_rows(s, b, out, err);
    s->stage = "a step of several sequences";
    if (is_first) check_each(s, true);
    s->options.cuda->use_batch_invariant(s->places[0].device, true);
    const apr_status status = run_rows(s, b, out, err);
    s->options.cuda->use_batch_invariant(s->places[0].device, false);
    if (is_first) check_each(s, false);
    s->step_checked |= status == APR_OK;
    return status == APR_OK ? apr_session_check_devices(s, s->stage, err) : status;
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
        if (sequence < 0 || sequence >= apr_session_n_sequences(s))
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

/* Runs rows [first, first + n) of a step of n_rows. */
static apr_status run_some_rows(apr_session *s, const apr_sequence_token *rows, int64_t n_rows, int64_t first, int64_t n,
                                const apr_eval_output *out, apr_error *err)
{
    const uint64_t before = apr_heap_in_use();
    apr_session_batch b = {.ids = s->step_ids,
                           .n_tokens = n,
                           .first = first,
                           .n_all = n_rows,
                           .n_rows = n,
                           .sequence = s->sequence,
                           .sequences = s->step_sequences,
                           .positions = s->step_positions};

    for (int64_t i = 0; i < n; i++) {
        const int64_t sequence = rows[first + i].sequence;
        const bool continues = i > 0 && s->step_sequences[i - 1] == sequence;
        s->step_ids[i] = rows[first + i].id;
        s->step_sequences[i] = sequence;
        s->step_positions[i] = continues ? s->step_positions[i - 1] + 1 : s->positions[sequence];
        if (s->step_positions[i] > b.position) b.position = s->step_positions[i];
    }
    const apr_status status = run_step(s, &b, out, err);
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
    const int64_t capacity = apr_batch_rows(apr_session_n_sequences(s));
    if (s->positions == NULL || n_rows < 0 || n_rows > most || n_rows > capacity)
        return apr_fail(err, APR_E_USAGE, "a step of %lld rows: at most %lld rows and %lld tokens at a time fit", (long long)n_rows,
                        (long long)(s->positions == NULL ? 0 : capacity), (long long)most);
    s->positions[s->sequence] = s->position;
    APR_TRY(check_rows(s, rows, n_rows, err));
    const int64_t each = apr_session_rows_at_once(s, n_rows);
    for (int64_t first = 0; first < n_rows && status == APR_OK; first += each)
        status = run_some_rows(s, rows, n_rows, first, n_rows - first < each ? n_rows - first : each, out != NULL ? out : &nothing, err);
    s->position = s->positions[s->sequence];
    return status;
}
