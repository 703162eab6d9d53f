/* chat_turn.c - renders, tokenizes, keeps the common prefix, evaluates the rest, generates. */
#include "tools/verbs/run/chat_turn.h"

#include "formats/base/clock.h"
#include "runtime/template/chat.h"

#include <stdlib.h>
#include <string.h>

apr_status apr_chat_session_open(apr_chat_session *s, apr_running *running, apr_error *err)
{
    const int64_t n_ctx = apr_session_plan(running->session)->n_ctx;

    s->running = running;
    s->now = apr_local_seconds();
    s->held = malloc(((size_t)n_ctx + 1) * sizeof *s->held);
    return s->held != NULL ? APR_OK : apr_no_memory(err, "the tokens of a conversation");
}

void apr_chat_session_close(apr_chat_session *s)
{
    free(s->held);
    s->held = NULL;
}

void apr_chat_turn_close(apr_chat_turn *turn)
{
    free(turn->text);
    free(turn->ids);
    *turn = (apr_chat_turn){0};
}

apr_status apr_chat_fail_full(const apr_chat_session *s, apr_error *err)
{
    const int64_t n_ctx = apr_session_plan(s->running->session)->n_ctx;
    char text[APR_SMALL_TEXT];
    return apr_fail(err, APR_E_NO, "the conversation fills the context of %s tokens: use /undo or /clear, or start again with --ctx %lld",
                    apr_count_text(text, n_ctx), (long long)(2 * n_ctx));
}

static apr_status encode(const apr_chat_session *s, const apr_messages *messages, int32_t **ids, size_t *n, apr_error *err)
{
    static const apr_encode_options how = {.parse_special = true};
    const apr_chat_request request = {.messages = messages->list, .tools = messages->tools};
    char *text;
    size_t n_text;

    APR_TRY(apr_chat_render_messages(&s->running->model.vocab, &request, s->now, &text, &n_text, err));
    const apr_status status = apr_tokenizer_encode(s->running->tokenizer, text, n_text, &how, ids, n, err);
    free(text);
    return status;
}

static bool is_stopped(const apr_chat_session *s) { return s->is_stopped != NULL && s->is_stopped(); }

/* Evaluates all new tokens except the last batch, which apr_generate evaluates. *at: number of tokens evaluated so far. */
static apr_status read_ahead(const apr_chat_session *s, const int32_t *ids, int64_t n, int64_t *at, apr_error *err)
{
    apr_session *const session = s->running->session;
    const int64_t n_batch = apr_session_plan(session)->n_batch;

    for (; n - *at > n_batch && !is_stopped(s); *at += n_batch) APR_TRY(apr_session_eval(session, ids + *at, (size_t)n_batch, NULL, err));
    return APR_OK;
}

static apr_status generate(const apr_chat_session *s, const apr_chat_settings *settings, int64_t n_tries, const int32_t *ids, int64_t n,
                           int64_t at, apr_answer_stream *stream, apr_generation *g, apr_error *err)
{
    apr_session *const session = s->running->session;
    const apr_generate_options options = {.max_tokens = settings->n > 0 ? settings->n : INT64_MAX,
                                          .stop_ids = s->running->chat.ids,
                                          .n_stop_ids = s->running->chat.n,
                                          .on_token = apr_answer_stream_take,
                                          .user = stream};
    apr_sample_options sampling = apr_sampling_options(&settings->sampling);
    apr_sampler sampler = {0};

    sampling.seed += (uint64_t)n_tries;
    apr_status status = apr_sampler_open(&sampler, apr_session_program(session)->vocab_size, &sampling, err);
    if (status == APR_OK) {
        apr_sampler_take(&sampler, ids, (size_t)at);
        status = apr_generate(session, &sampler, ids + at, (size_t)(n - at), &options, g, err);
    }
    apr_sampler_close(&sampler);
    return status;
}

/* Decodes the answer for the conversation: without the stop id, up to a stop text. */
static apr_status take_text(const apr_chat_session *s, const apr_answer_stream *stream, apr_chat_turn *turn, apr_error *err)
{
    const size_t n_ids = stream->n_ids - (turn->finish == APR_FINISH_STOP && stream->n_ids > 0);
    char *text;
    size_t n;

    APR_TRY(apr_tokenizer_decode(s->running->tokenizer, stream->ids, n_ids, false, &text, &n, err));
    n = apr_find_stop_text(stream->text.stops, stream->text.n_stops, text, 0, n);
    turn->text = malloc(n * APR_VALID_TEXT_GROWTH + 1);
    if (turn->text != NULL) turn->n_text = apr_valid_text(turn->text, text, n);
    free(text);
    return turn->text != NULL ? APR_OK : apr_no_memory(err, "an answer");
}

static void hold(apr_chat_session *s, const int32_t *ids, int64_t n, const apr_answer_stream *stream)
{
    const int64_t position = apr_session_position(s->running->session);

    for (int64_t i = 0; i < position && i < n; i++) s->held[i] = ids[i];
    for (int64_t i = n; i < position; i++) s->held[i] = stream->ids[i - n];
}

/* Answers the conversation's ids[n], of which the first turn->n_kept are already evaluated. */
static apr_status answer(apr_chat_session *s, const int32_t *ids, int64_t n, const apr_chat_settings *settings, int64_t n_tries,
                         apr_chat_turn *turn, apr_error *err)
{
    const double began = apr_seconds_now();
    apr_answer_stream stream = {
        .running = s->running,
        .print = s->print,
        .is_terminal = s->is_terminal,
        .as_decoded = true,
        .before = s->before,
        .is_ended = s->is_stopped,
        .text = {.stops = settings->sampling.stop.items, .n_stops = settings->sampling.stop.n_items, .whole_characters = true}};
    apr_generation g = {.finish = APR_FINISH_CALLER};
    int64_t at = turn->n_kept;

    apr_status status = read_ahead(s, ids, n, &at, err);
    const double read_ahead_s = apr_seconds_now() - began;
    if (status == APR_OK && !is_stopped(s)) status = generate(s, settings, n_tries, ids, n, at, &stream, &g, err);
    if (status == APR_OK && stream.failed) status = apr_no_memory(err, "an answer");
    (void)apr_answer_stream_end(&stream); /* stdout is checked at the end */
    turn->finish = g.finish;
    turn->at_stop_text = stream.text.is_stopped;
    turn->n_generated = g.n_generated;
    turn->read_seconds = read_ahead_s + g.prompt_seconds;
    turn->write_seconds = g.generate_seconds;
    if (status == APR_OK) status = take_text(s, &stream, turn, err);
    hold(s, ids, n, &stream);
    turn->ids = stream.ids;
    stream.ids = NULL;
    apr_answer_stream_close(&stream);
    return status;
}

apr_status apr_chat_answer(apr_chat_session *s, const apr_messages *messages, const apr_chat_settings *settings, int64_t n_tries,
                           apr_chat_turn *turn, apr_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;

    *turn = (apr_chat_turn){0};
    APR_TRY(encode(s, messages, &ids, &n, err));
    turn->n_prompt = (int64_t)n;
    apr_status status = APR_OK;
    if (n == 0) status = apr_fail(err, APR_E_UNSUPPORTED, "the chat template makes an empty text of the conversation");
    else if (turn->n_prompt > apr_session_plan(s->running->session)->n_ctx) status = apr_chat_fail_full(s, err);
    if (status == APR_OK) {
        turn->n_kept = apr_session_keep_prefix(s->running->session, s->held, ids, turn->n_prompt);
        status = answer(s, ids, turn->n_prompt, settings, n_tries, turn, err);
    }
    free(ids);
    return status;
}
