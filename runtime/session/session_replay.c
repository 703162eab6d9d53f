/* session_replay.c - CUDA graphs of decoded tokens on one device. The operations of a token are recorded when they run for the second
 * time, and replayed from then on. The token's id and position are in device memory; the result is the top-k tokens, or the logits.
 * Nothing is recorded if the host or another device takes part, or while an operation is watched. */
#include "runtime/session/session_internal.h"

#include <stdio.h>

/* Sends the token without waiting: every evaluation that sends a token ends with a check. */
static apr_status send_token(apr_session *s, const apr_session_batch *b, const apr_session_place *at, apr_error *err)
{
    *s->host_token = apr_session_next_token(s, b);
    return s->options.cuda->send(at->device, at->token, s->host_token, offsetof(apr_cuda_token, found), err);
}

/* Continues without a graph, which is slower but correct. Warns once. */
static void give_up_recording(const apr_session *s, apr_session_place *at, const apr_error *why)
{
    char text[sizeof why->text + 128];

    at->cannot_record = true;
    snprintf(text, sizeof text, "decoded tokens run operation by operation, because recording them failed: %s", why->text);
    if (s->options.on_warning != NULL) s->options.on_warning(s->options.user, text);
}

/* Positions are read from device memory, but the split of the context is fixed when recording. For a step it is that of all positions
 * below the next multiple of this. */
enum { STEP_STRIDE = 512 };

/* The end of the positions for which a graph of the batch is valid; of a single token: of those with the same split. */
static int64_t end_of(const apr_session_batch *b)
{
    return b->positions != NULL ? (b->position / STEP_STRIDE + 1) * STEP_STRIDE : apr_attend_split_end(b->position);
}

/* A step is recorded for the largest of these positions. */
static apr_status record(apr_session *s, const apr_session_batch *b, apr_session_place *at, const apr_eval_output *out, apr_error *err)
{
    const apr_cuda_api *const cuda = s->options.cuda;
    apr_session_batch recorded = *b;

    s->recorded_rows = b->n_tokens;
    s->recorded_end = end_of(b);
    recorded.is_recorded = true;
    if (b->positions != NULL) recorded.position = s->recorded_end - 1;
    APR_TRY(cuda->record(at->device, err));
    const apr_status status = apr_session_run_batch(s, &recorded, out, &s->recorded_logits, err);
    const apr_status ended = cuda->end_record(at->device, &at->recorded, status == APR_OK ? err : NULL);
    if (status != APR_OK) apr_session_drop_recording(s, at);
    return status != APR_OK ? status : ended;
}

/* Not for the first token or step, which is checked operation by operation, nor if table rows are looked up on the host or hidden states
 * are read. */
static bool may_replay(const apr_session *s, const apr_session_batch *b, const apr_session_place *at, const apr_eval_output *out)
{
    const bool may = b->positions != NULL ? at->device != NULL && s->step_checked : apr_session_reads_token(s, b, at) && s->decode_checked;
    return may && !s->options.no_replay && !at->cannot_record && at->host_rows == NULL && s->watch == NULL && out->hidden == NULL;
}

apr_status apr_session_replay(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, bool *done, bool *logits,
                              apr_error *err)
{
    apr_session_place *const at = &s->places[0];
    const bool is_step = b->positions != NULL, is_steady = b->n_tokens == s->step_rows;

    *done = *logits = false;
    if (is_step) s->step_rows = b->n_tokens;
    if (!may_replay(s, b, at, out)) return APR_OK;
    if (!is_step) APR_TRY(send_token(s, b, at, err));
    const bool fits = is_step ? s->recorded_rows == b->n_tokens && b->position < s->recorded_end : s->recorded_end == end_of(b);
    if (at->recorded == NULL || !fits) {
        apr_error why = {0};
        if (is_step && !is_steady) return APR_OK;
        apr_session_drop_recording(s, at);
        const apr_status status = record(s, b, at, out, &why);
        if (status != APR_OK && s->options.cuda->is_lost(at->device)) return apr_fail(err, status, "%s", why.text);
        if (status != APR_OK) give_up_recording(s, at, &why);
    }
    *done = at->recorded != NULL;
    *logits = *done && s->recorded_logits;
    return *done ? s->options.cuda->replay(at->recorded, err) : APR_OK;
}
