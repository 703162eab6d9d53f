/* session_replay.c - CUDA graphs of decoded tokens on one device. The operations of a token are recorded when they run for the second
 * time, and replayed from then on. The token's id and position are in device memory; the result is the top-k tokens, or the logits.
 * Nothing is recorded if the host or another device takes part, or while an operation is watched. */
#include "runtime/session/session_internal.h"

#include <stdio.h>

/* The same without waiting: every evaluation that sends a token ends with a check. */
static apr_status send_token(apr_session *s, const apr_session_place *at, apr_error *err)
{
    *s->host_token = apr_session_next_token(s);
    return s->options.cuda->send(at->device, at->token, s->host_token, offsetof(apr_cuda_token, found), err);
}

/* Runs the fused steps, or with exact products all operations one by one, those of the logits last. */
static apr_status run_operations(apr_session *s, const apr_session_place *at, apr_error *err)
{
    if (at->fusion.n_steps > 0 && !s->exact) return apr_session_run_fused(s, at, err);
    for (int logits = 0; logits < 2; logits++)
        for (size_t i = 0; i < s->program.n_ops; i++) {
            const apr_op *const op = &s->program.ops[i];
            const bool makes_logits = op->out >= 0 && s->program.values[op->out].is_logits;
            if (makes_logits == (logits == 1)) APR_TRY(apr_session_run_op(s, op, err));
        }
    return APR_OK;
}

static apr_status record_token(apr_session *s, apr_session_place *at, apr_error *err)
{
    const apr_cuda_api *const cuda = s->options.cuda;

    APR_TRY(cuda->record(at->device, err));
    const apr_status status = run_operations(s, at, err);
    const apr_status ended = cuda->end_record(at->device, &at->recorded, status == APR_OK ? err : NULL);
    if (status != APR_OK) apr_session_drop_recording(s, at);
    return status != APR_OK ? status : ended;
}

/* Continues without a graph, which is slower but correct. Warns once. */
static void give_up_recording(const apr_session *s, apr_session_place *at, const apr_error *why)
{
    char text[sizeof why->text + 128];

    at->cannot_record = true;
    snprintf(text, sizeof text, "decoded tokens run operation by operation, because recording them failed: %s", why->text);
    if (s->options.on_warning != NULL) s->options.on_warning(s->options.user, text);
}

/* Not for the first token, which is checked operation by operation, nor if table rows are looked up on the host or hidden states are
 * read. */
static bool may_replay(const apr_session *s, const apr_session_place *at, const apr_eval_output *out)
{
    return apr_session_reads_token(s, at) && !s->options.no_replay && s->decode_checked && !at->cannot_record && at->host_rows == NULL &&
           s->watch == NULL && out->hidden == NULL;
}

apr_status apr_session_replay(apr_session *s, const apr_eval_output *out, bool *done, apr_error *err)
{
    apr_session_place *const at = &s->places[0];

    *done = false;
    if (!may_replay(s, at, out)) return APR_OK;
    s->first_row = 0;
    s->n_rows = 1;
    APR_TRY(send_token(s, at, err));
    if (s->recorded_end != apr_attend_split_end(s->position)) apr_session_drop_recording(s, at);
    if (at->recorded == NULL) {
        apr_error why = {0};
        const apr_status status = record_token(s, at, &why);
        s->recorded_end = apr_attend_split_end(s->position);
        if (status != APR_OK && s->options.cuda->is_lost(at->device)) return apr_fail(err, status, "%s", why.text);
        if (status != APR_OK) give_up_recording(s, at, &why);
    }
    *done = at->recorded != NULL;
    return *done ? s->options.cuda->replay(at->recorded, err) : APR_OK;
}

/* --- a step of several sequences --- */

/* Positions are read from device memory, but the split of the context is fixed when recording: for all positions below the next multiple
 * of this. */
enum { STEP_STRIDE = 512 };

static apr_status record_step(apr_session *s, apr_session_place *at, apr_error *err)
{
    const int64_t position = s->step_position;
    apr_status status = s->options.cuda->record(at->device, err);

    if (status != APR_OK) return status;
    s->recorded_rows = s->n_tokens;
    s->recorded_end = (position / STEP_STRIDE + 1) * STEP_STRIDE;
    s->step_position = s->recorded_end - 1;
    s->recorded_logits = apr_session_may_fuse_rows(s, at);
    if (s->recorded_logits) status = apr_session_run_fused_rows(s, at, err);
    for (size_t i = 0; i < s->program.n_ops && status == APR_OK && !s->recorded_logits; i++) {
        const apr_op *const op = &s->program.ops[i];
        if (op->out < 0 || !s->program.values[op->out].is_logits) status = apr_session_run_op(s, op, err);
    }
    s->step_position = position;
    const apr_status ended = s->options.cuda->end_record(at->device, &at->recorded, status == APR_OK ? err : NULL);
    if (status != APR_OK) apr_session_drop_recording(s, at);
    return status != APR_OK ? status : ended;
}

static bool may_replay_step(const apr_session *s, const apr_session_place *at)
{
    return at->device != NULL && !s->options.no_replay && s->step_checked && !at->cannot_record && at->host_rows == NULL &&
           s->watch == NULL;
}

apr_status apr_session_replay_step(apr_session *s, bool *done, bool *logits, apr_error *err)
{
    apr_session_place *const at = &s->places[0];
    const bool is_steady = s->n_tokens == s->step_rows;

    *done = *logits = false;
    s->step_rows = s->n_tokens;
    if (!may_replay_step(s, at)) return APR_OK;
    const bool is_recorded = at->recorded != NULL && s->recorded_rows == s->n_tokens && s->step_position < s->recorded_end;
    if (!is_recorded && !is_steady) return APR_OK;
    if (!is_recorded) {
        apr_error why = {0};
        apr_session_drop_recording(s, at);
        const apr_status status = record_step(s, at, &why);
        if (status != APR_OK && s->options.cuda->is_lost(at->device)) return apr_fail(err, status, "%s", why.text);
        if (status != APR_OK) give_up_recording(s, at, &why);
    }
    *done = at->recorded != NULL;
    *logits = *done && s->recorded_logits;
    return *done ? s->options.cuda->replay(at->recorded, err) : APR_OK;
}
