/* session.c - opens a model for running and runs its program over tokens. Falls back to the host when a device fails. */
#include "runtime/program/op_spec.h"
#include "runtime/session/heap.h"
#include "runtime/session/session_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const apr_session_options apr_session_defaults = {
    .n_logits = 16, .kv_dtype = APR_F16, .headroom_bytes = (uint64_t)1 << 30, .stack_bytes = 256};

/* --- opening --- */

/* Program and tensors depend on the model only and survive a fallback; plan and memory depend on the places. */
static apr_status open_program(apr_session *s, apr_error *err)
{
    APR_TRY(apr_program_emit(&s->program, &s->model->hparams, err));
    if (s->program.lacks != NULL)
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "%s: a %s model needs the operation '%s', which is not here yet; it can be converted and planned", s->model->path,
                        s->program.architecture, s->program.lacks);
    for (int i = 0; i < s->n_places; i++) {
        const apr_backend *const backend = s->places[i].backend;
        const apr_op *const missing = apr_program_missing_op(&s->program, backend);
        if (missing != NULL)
            return apr_fail(err, APR_E_UNSUPPORTED,
                            "%s: a %s model needs the operation '%s' (layer %d), which the %s backend does not have", s->model->path,
                            s->program.architecture, apr_op_name(missing->kind), missing->layer, backend->name);
    }
    if (s->model->naming != APR_NAMING_HF)
        return apr_fail(err, APR_E_USAGE, "%s: the tensors must have Hugging Face's names before the model can be run", s->model->path);
    return apr_session_bind_tensors(s, err);
}

static apr_status open_places(apr_session *s, apr_error *err)
{
    for (int i = 0; i < s->n_places; i++)
        if (s->places[i].on == APR_ON_DEVICE) APR_TRY(apr_session_open_device(s, &s->places[i], err));
    const uint64_t before = apr_heap_in_use();
    APR_TRY(apr_session_make_plan(s, err));
    APR_TRY(apr_session_open_sequences(s, err));
    apr_session_count_heap(&s->heap_places, before);
    return apr_session_allocate(s, err);
}

/* Closes the devices, whatever state they are in, and moves everything to the host. */
static apr_status move_to_host(apr_session *s, apr_error *err)
{
    apr_session_release(s);
    apr_session_close_sequences(s);
    s->options.cuda = NULL;
    s->options.backend = NULL;
    s->heap_places = s->heap_runs = 0;
    s->position = 0;
    s->last_logits = NULL;
    APR_TRY(apr_session_make_places(s, err));
    return open_places(s, err);
}

static bool may_fall_back(const apr_session *s, apr_status status)
{
    const bool is_of_device = status == APR_E_DEVICE || status == APR_E_MEMORY || status == APR_E_UNSUPPORTED;
    return s->options.fall_back && s->options.cuda != NULL && is_of_device;
}

/* Reports the failure as a warning and clears it. */
static void warn_fall_back(const apr_session *s, apr_error *err)
{
    char text[sizeof err->text + 64];
    snprintf(text, sizeof text, "the GPU failed, continuing on the host: %s", err->text);
    *err = (apr_error){0};
    if (s->options.on_warning != NULL) s->options.on_warning(s->options.user, text);
}

static apr_status open_session(apr_session *s, apr_error *err)
{
    const uint64_t before = apr_heap_in_use();
    apr_error failure = {0};

    APR_TRY(apr_session_make_places(s, err));
    APR_TRY(open_program(s, err));
    apr_session_count_heap(&s->heap_program, before);
    apr_status status = open_places(s, &failure);
    if (may_fall_back(s, status)) {
        warn_fall_back(s, &failure);
        status = move_to_host(s, &failure);
    }
    if (status != APR_OK) return apr_fail(err, status, "%s", failure.text);
    if (s->positions != NULL) s->options.fall_back = false; /* the tokens of several sequences are not kept for a restart */
    if (s->options.cuda == NULL || !s->options.fall_back) return APR_OK;
    s->history = malloc((size_t)s->places[0].plan.n_ctx * sizeof *s->history);
    return s->history != NULL ? APR_OK : apr_no_memory(err, "the tokens so far");
}

/* An empty session. */
static apr_session *begin(const apr_model *model, const apr_session_options *options)
{
    apr_session *const s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->model = model;
    s->options = *options;
    s->sent_position = -1;
    return s;
}

apr_status apr_session_open(apr_session **session, const apr_model *model, const apr_session_options *options, apr_error *err)
{
    *session = NULL;
    apr_session *const s = begin(model, options);
    if (s == NULL) return apr_no_memory(err, "the session");
    const apr_status status = open_session(s, err);
    if (status != APR_OK) {
        apr_session_close(s);
        return status;
    }
    *session = s;
    return APR_OK;
}

apr_status apr_session_forecast(apr_plan *plan, const apr_model *model, const apr_session_options *options, apr_error *err)
{
    *plan = (apr_plan){0};
    apr_session *const s = begin(model, options);
    if (s == NULL) return apr_no_memory(err, "the session");
    apr_status status = apr_session_make_places(s, err);
    if (status == APR_OK) status = open_program(s, err);
    if (status == APR_OK) status = apr_session_draft_plan(s, err);
    if (status == APR_OK) {
        int at = 0;
        for (int i = s->n_places; i-- > 0;)
            if (!s->places[i].plan.fits) at = i;
        *plan = s->places[at].plan;
        s->places[at].plan = (apr_plan){0};
    }
    apr_session_close(s);
    return status;
}

apr_status apr_session_open_like(apr_session **session, const apr_model *model, const apr_session *like, apr_error *err)
{
    apr_session_options options = like->options;
    options.n_ctx = like->places[0].plan.n_ctx;
    return apr_session_open(session, model, &options, err);
}

void apr_session_close(apr_session *s)
{
    if (s == NULL) return;
    apr_session_release(s);
    apr_session_close_sequences(s);
    free(s->history);
    free(s->tensors);
    for (size_t i = 0; s->experts != NULL && i < s->program.n_weights; i++) free(s->experts[i]);
    free(s->experts);
    apr_program_close(&s->program);
    free(s);
}

const apr_plan *apr_session_plan(const apr_session *session) { return &session->places[0].plan; }
int apr_session_n_places(const apr_session *session) { return session->n_places; }
const apr_plan *apr_session_place_plan(const apr_session *session, int place) { return &session->places[place].plan; }
int apr_session_place_ordinal(const apr_session *session, int place) { return session->places[place].ordinal; }
const apr_program *apr_session_program(const apr_session *session) { return &session->program; }
int64_t apr_session_position(const apr_session *session) { return session->position; }
const float *apr_session_logits(const apr_session *session) { return session->last_logits; }

const char *apr_session_backend_name(const apr_session *session)
{
    const bool is_mixed = session->places[0].on != session->places[session->n_places - 1].on;
    return is_mixed ? "cuda and host" : session->places[0].backend->name;
}

void apr_session_reset(apr_session *session)
{
    session->position = 0;
    apr_session_release_pages(session);
    session->last_logits = session->last_row = NULL;
}

/* --- running --- */

/* Copies a tapped value to the caller's hidden states, rows `first` and following of n_ids. */
static apr_status copy_tap(apr_session *s, int value, float *hidden, size_t first, size_t n_ids, apr_error *err)
{
    const apr_value *const v = &s->program.values[value];
    const size_t row = (size_t)v->tap * n_ids + first;
    return apr_session_fetch(s, apr_session_place_of_value(s, value), hidden + row * (size_t)v->width, apr_session_value_at(s, value),
                             (size_t)(s->n_tokens * v->width) * sizeof *hidden, err);
}

/* Runs everything except the logits, for the tokens of the batch. */
static apr_status run_batch(apr_session *s, const apr_eval_output *out, size_t first, size_t n_ids, apr_error *err)
{
    const bool in_steps = apr_session_uses_prompt_steps(s, out);
    size_t n_done = 0;
    for (size_t i = 0; i < s->program.n_ops; i++) {
        const apr_op *const op = &s->program.ops[i];
        if (op->out >= 0 && s->program.values[op->out].is_logits) continue;
        if (i >= n_done) APR_TRY(in_steps ? apr_session_run_prompt_step(s, i, &n_done, err) : apr_session_run_next(s, i, &n_done, err));
        if (out->hidden != NULL && op->out >= 0 && s->program.values[op->out].tap >= 0)
            APR_TRY(copy_tap(s, op->out, out->hidden, first, n_ids, err));
    }
    return APR_OK;
}

/* Gives the caller the computed rows of logits, except those it already has. */
static apr_status hand_out(apr_session *s, const apr_eval_output *out, size_t first, apr_error *err)
{
    const size_t width = (size_t)s->program.vocab_size;
    const int64_t known = s->n_skipped < s->n_rows ? s->n_skipped : s->n_rows;

    s->n_skipped -= known;
    if (out->logits != NULL)
        memcpy(out->logits + (out->all_logits ? (first + (size_t)s->first_row) * width : 0), s->host_logits,
               (size_t)s->n_rows * width * sizeof *s->host_logits);
    if (out->on_logits == NULL || known == s->n_rows) return APR_OK;
    s->n_handed += s->n_rows - known;
    const uint64_t before = apr_heap_in_use();
    int64_t callers = 0; /* what the caller allocates does not count for the session */
    const apr_status status =
        out->on_logits(out->user, (int64_t)first + s->first_row + known, s->n_rows - known, s->host_logits + (size_t)known * width, err);
    apr_session_count_heap(&callers, before);
    if (s->n_places == 1) s->heap_runs -= callers;
    return status;
}

/* Delivers what the caller asked for: rows of logits that were just computed. is_last: they include the call's last row. */
static apr_status deliver(apr_session *s, const apr_eval_output *out, size_t first, bool is_last, apr_error *err)
{
    const size_t width = (size_t)s->program.vocab_size, before_last = (size_t)(s->n_rows - 1) * width;
    const apr_session_place *const at = apr_session_place_of_logits(s);
    const bool wants_rows = out->best == NULL || out->logits != NULL || out->on_logits != NULL;

    s->last_row = at->logits + before_last;
    s->last_logits = NULL;
    if (s->only_products) return APR_OK;
    if (out->best != NULL && is_last) APR_TRY(apr_session_topk(s, out->best, err));
    if (at->device != NULL && !wants_rows) return APR_OK;
    APR_TRY(apr_session_fetch(s, at, s->host_logits, at->logits, (size_t)s->n_rows * width * sizeof *s->host_logits, err));
    s->last_logits = s->host_logits + before_last;
    return hand_out(s, out, first, err);
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
static apr_status deliver_topk(apr_session *s, const apr_eval_output *out, apr_error *err)
{
    const apr_session_place *const at = apr_session_place_of_logits(s);
    const int64_t first = s->step_first + s->first_row;

    APR_TRY(apr_session_step_topk(s, out->best + first, err));
    for (int64_t r = 0; r < s->n_rows; r++) {
        s->last_row = at->logits + r * s->program.vocab_size;
        s->last_logits = NULL;
        APR_TRY(out->on_topk(out->user, first + r, &out->best[first + r], err));
    }
    return APR_OK;
}

/* Computes and delivers the logits of the batch's tokens [begin, end), n_logits rows at a time. `first`: the batch's offset in the call. */
static apr_status run_logits(apr_session *s, const apr_eval_output *out, size_t first, int64_t begin, int64_t end, bool is_last,
                             apr_error *err)
{
    const apr_session_place *const at = apr_session_place_of_logits(s);

    for (s->first_row = begin; s->first_row < end; s->first_row += s->n_rows) {
        s->n_rows = end - s->first_row < at->plan.n_logits ? end - s->first_row : at->plan.n_logits;
        for (size_t i = 0; i < s->program.n_ops; i++) {
            const apr_op *const op = &s->program.ops[i];
            if (op->out >= 0 && s->program.values[op->out].is_logits) APR_TRY(apr_session_run_op(s, op, err));
        }
        APR_TRY(out->on_topk != NULL ? deliver_topk(s, out, err) : deliver(s, out, first, is_last && s->first_row + s->n_rows == end, err));
    }
    return APR_OK;
}

/* Runs the batch, and the logits of its tokens from `begin` on. */
static apr_status run_one_batch(apr_session *s, const apr_eval_output *out, size_t first, size_t n_ids, int64_t begin, apr_error *err)
{
    const bool is_last = first + (size_t)s->n_tokens == n_ids;
    bool done = false;

    if (begin == 0 && s->n_tokens == 1) APR_TRY(apr_session_replay(s, out, &done, err));
    if (!done && apr_session_may_fuse_batch(s, &s->places[0], out)) APR_TRY(apr_session_run_fused_batch(s, &s->places[0], err));
    else if (!done) APR_TRY(run_batch(s, out, first, n_ids, err));
    const apr_status status = done ? deliver(s, out, first, is_last, err) : run_logits(s, out, first, begin, s->n_tokens, is_last, err);
    s->position += s->n_tokens; /* the batch's keys and values are stored, whatever became of its logits */
    return status;
}

static apr_status run_rows(apr_session *s, const apr_eval_output *out, apr_error *err)
{
    const apr_eval_output all = {.all_logits = true,
                                 .logits = out->logits,
                                 .on_logits = out->on_logits,
                                 .best = out->on_topk != NULL ? out->best : NULL,
                                 .on_topk = out->on_topk,
                                 .user = out->user};
    bool done = false, logits = false;

    s->n_handed = s->n_skipped = 0;
    APR_TRY(apr_session_upload_step(s, err));
    APR_TRY(apr_session_replay_step(s, &done, &logits, err));
    if (!done && apr_session_may_fuse_rows(s, &s->places[0])) {
        APR_TRY(apr_session_run_fused_rows(s, &s->places[0], err));
        done = logits = true;
    }
    const size_t first = (size_t)s->step_first;
    if (!done) APR_TRY(run_batch(s, &all, first, (size_t)s->n_tokens, err));
    if (!logits) return run_logits(s, &all, first, 0, s->n_tokens, true, err);
    s->first_row = 0;
    s->n_rows = s->n_tokens;
    return all.on_topk != NULL ? deliver_topk(s, &all, err) : deliver(s, &all, first, true, err);
}

static apr_status run_all_tokens(apr_session *s, const int32_t *ids, size_t n_ids, const apr_eval_output *out, apr_error *err)
{
    const int64_t n_batch = s->places[0].plan.n_batch;

    if (n_ids > 0 && s->position == 0) APR_TRY(apr_session_clear_states(s, err));
    for (size_t first = 0; first < n_ids;) {
        const size_t left = n_ids - first;
        s->n_tokens = left < (size_t)n_batch ? (int64_t)left : n_batch;
        s->ids = ids + first;
        const bool is_last = left == (size_t)s->n_tokens;
        APR_TRY(run_one_batch(s, out, first, n_ids, out->all_logits ? 0 : is_last ? s->n_tokens - 1 : s->n_tokens, err));
        first += (size_t)s->n_tokens;
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

apr_status apr_session_run_step(apr_session *s, const apr_eval_output *out, apr_error *err)
{
    const bool is_first = !s->step_checked;

    if (!apr_session_has_device(s)) return run_rows(s, out, err);
    s->stage = "a step of several sequences";
    if (is_first) check_each(s, true);
    s->options.cuda->use_batch_invariant(s->places[0].device, true);
    const apr_status status = run_rows(s, out, err);
    s->options.cuda->use_batch_invariant(s->places[0].device, false);
    if (is_first) check_each(s, false);
    s->step_checked |= status == APR_OK;
    return status == APR_OK ? apr_session_check_devices(s, s->stage, err) : status;
}

/* The device failed in the middle: evaluates all earlier tokens again on the host, then these. */
static apr_status start_over(apr_session *s, const int32_t *ids, size_t n_ids, int64_t position, const apr_eval_output *out, apr_error *err)
{
    static const apr_eval_output nothing = {0};
    const int64_t n_handed = s->n_handed;

    APR_TRY(move_to_host(s, err));
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

    APR_TRY(apr_session_extend_pages(s, s->position + (int64_t)n_ids, err));
    APR_TRY(apr_session_upload_pages(s, err));
    s->n_handed = s->n_skipped = 0;
    apr_status status = run_stage(s, ids, n_ids, out, &failure);
    if (may_fall_back(s, status)) {
        warn_fall_back(s, &failure);
        status = start_over(s, ids, n_ids, position, out, &failure);
    }
    if (status != APR_OK) return apr_fail(err, status, "%s", failure.text);
    if (s->history != NULL) memcpy(s->history + position, ids, n_ids * sizeof *ids);
    return APR_OK;
}
