/* session.c - aprkit.h: evaluates tokens, and continues texts and conversations. */
#include "tools/engine/library/handles.h"
#include "tools/engine/requests/answer_text.h"
#include "tools/engine/requests/chat_messages.h"

#include <stdlib.h>
#include <string.h>

/* --- opening --- */

/* For a model that was opened for its tokenizer: nothing is planned or allocated. */
static apr_status open_tokenizer(aprkit_session *s, apr_error *err)
{
    const apr_model *const m = &s->model->model;

    s->vocab = &m->vocab;
    return apr_tokenizer_of_model(&s->running.tokenizer, m, err);
}

static apr_status open_session(aprkit_session *s, const aprkit_session_options *o, apr_error *err)
{
    apr_running *const r = &s->running;
    apr_session_options options;

    if (s->model->is_tokenizer) return open_tokenizer(s, err);
    s->vocab = &r->model.vocab;
    APR_TRY(apr_library_view(r, s->model, &s->listener, err));
    APR_TRY(apr_library_merge(r, o->adapters, o->n_adapters, o->hooks, err));
    APR_TRY(apr_library_session_options(o, s->model, &s->listener, &s->warnings, &options, err));
    APR_TRY(apr_library_load(s->model, err));
    APR_TRY(apr_session_open(&r->session, &r->model, &options, err));
    if (o->hooks != NULL && o->hooks->planned != NULL) o->hooks->planned(o->hooks->user, apr_session_plan(r->session));
    return r->model.vocab.n_tokens > 0 ? apr_running_open_tokenizer(r, err) : APR_OK;
}

int aprkit_session_open(aprkit_session **session, aprkit_model *model, const aprkit_session_options *options, aprkit_error *error)
{
    aprkit_session *s = calloc(1, sizeof *s);
    aprkit_session_options o = {0};
    apr_error err = {0};

    apr_status status =
        s != NULL ? apr_take_options(&o, sizeof o, options, "aprkit_session_options", &err) : apr_no_memory(&err, "a session");
    const apr_library_call call = apr_library_enter(s != NULL ? &s->owner : NULL, o.threads);
    if (status == APR_OK) {
        s->owner.copies = model->owner.copies;
        s->model = model;
        s->threads = o.threads;
        s->listener = (apr_library_listener){.on_note = o.on_note, .user = o.user};
        status = open_session(s, &o, &err);
    }
    if (status != APR_OK) {
        aprkit_session_close(s);
        s = NULL;
    }
    *session = s;
    return apr_library_leave(&call, status, &err, error);
}

void aprkit_session_close(aprkit_session *session)
{
    if (session == NULL) return;
    apr_running_close(&session->running);
    free(session);
}

static bool can_run(const aprkit_session *s) { return s->running.session != NULL; }

int64_t aprkit_session_n_context(const aprkit_session *s) { return can_run(s) ? apr_session_plan(s->running.session)->n_ctx : 0; }
int64_t aprkit_session_n_vocabulary(const aprkit_session *s)
{
    return can_run(s) ? apr_session_program(s->running.session)->vocab_size : 0;
}
int64_t aprkit_session_position(const aprkit_session *s) { return can_run(s) ? apr_session_position(s->running.session) : 0; }
void aprkit_session_reset(aprkit_session *s)
{
    if (can_run(s)) apr_session_reset(s->running.session);
}

static apr_status need_weights(const aprkit_session *s, apr_error *err)
{
    return can_run(s) ? APR_OK : apr_library_need_weights(s->model, err);
}

/* --- texts and ids --- */

void aprkit_free(void *p) { free(p); }

static apr_status need_tokenizer(const aprkit_session *s, apr_error *err)
{
    return s->running.tokenizer != NULL ? APR_OK : apr_tokenizer_need(&s->model->model, err);
}

static apr_status encode(const aprkit_session *s, const char *text, size_t n_bytes, bool adds, bool parses, int32_t **ids, size_t *n_ids,
                         apr_error *err)
{
    const apr_encode_options options = {.add_special = adds, .parse_special = parses};

    APR_TRY(need_tokenizer(s, err));
    return apr_tokenizer_encode(s->running.tokenizer, text, n_bytes == SIZE_MAX ? strlen(text) : n_bytes, &options, ids, n_ids, err);
}

int aprkit_tokenize(const aprkit_session *session, const char *text, size_t n_bytes, int special, int32_t **ids, size_t *n_ids,
                    aprkit_error *error)
{
    apr_error err = {0};

    *ids = NULL;
    *n_ids = 0;
    const apr_status status = encode(session, text, n_bytes, special == APRKIT_ALL_SPECIAL, special != APRKIT_NO_SPECIAL, ids, n_ids, &err);
    return apr_library_result(status, &err, error);
}

int aprkit_detokenize(const aprkit_session *session, const int32_t *ids, size_t n_ids, int special, char **text, size_t *n_bytes,
                      aprkit_error *error)
{
    apr_error err = {0};

    *text = NULL;
    *n_bytes = 0;
    apr_status status = need_tokenizer(session, &err);
    if (status == APR_OK) status = apr_tokenizer_decode(session->running.tokenizer, ids, n_ids, special != 0, text, n_bytes, &err);
    return apr_library_result(status, &err, error);
}

int aprkit_eval(aprkit_session *session, const int32_t *ids, size_t n_ids, float *logits, aprkit_error *error)
{
    const apr_eval_output wanted = {.logits = logits};
    apr_error err = {0};
    const apr_library_call call = apr_library_enter(&session->model->owner, session->threads);
    apr_status status = need_weights(session, &err);
    if (status == APR_OK && n_ids == 0) status = apr_fail(&err, APR_E_USAGE, "the list of tokens is empty: give one or more");
    if (status == APR_OK) status = apr_session_eval(session->running.session, ids, n_ids, &wanted, &err);
    return apr_library_leave(&call, status, &err, error);
}

/* --- answers --- */

/* An answer as it comes. */
typedef struct answer {
    const aprkit_session *session;
    apr_answer_text text;
    aprkit_text_fn on_text;
    void *user;
    bool leaves_space_out; /* the space that the encoder puts before a text is left out, until the first text has come */
    bool is_cancelled, failed;
} answer;

static bool show(answer *a, bool is_last)
{
    size_t n;
    const char *const bytes = apr_answer_text_show(&a->text, is_last, &n);
    char *const valid = malloc(APR_VALID_TEXT_GROWTH * n + 1);

    if (valid == NULL) a->failed = true;
    const size_t n_valid = valid != NULL ? apr_valid_text(valid, bytes, n) : 0;
    if (n_valid > 0 && a->on_text != NULL && a->on_text(a->user, valid, n_valid) != 0) a->is_cancelled = true;
    free(valid);
    return !a->failed && !a->is_cancelled;
}

static bool take_token(void *user, int32_t id, bool is_stop)
{
    answer *const a = user;
    char bytes[1024];

    if (is_stop) return true;
    size_t n = apr_tokenizer_token_bytes(a->session->running.tokenizer, id, false, bytes, sizeof bytes);
    if (n > sizeof bytes) n = sizeof bytes;
    const size_t skipped = n > 0 && bytes[0] == ' ' && a->leaves_space_out;
    a->leaves_space_out &= n == 0;
    a->failed |= !apr_answer_text_add(&a->text, bytes + skipped, n - skipped);
    return !a->failed && show(a, false) && !a->text.is_stopped;
}

static apr_status encode_chat(const aprkit_session *s, const aprkit_generate_options *o, int32_t **ids, size_t *n_ids, apr_error *err)
{
    apr_messages messages = {0};
    apr_status status = APR_OK;
    char *text = NULL;
    size_t n = 0;

    if (s->vocab->chat_template == NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s has no chat template; give a text instead of messages", s->model->model.path);
    for (size_t i = 0; i < o->n_messages && status == APR_OK; i++)
        status = apr_messages_add(&messages, o->messages[i].role, o->messages[i].content, strlen(o->messages[i].content), err);
    const apr_chat_request request = {.messages = messages.list};
    if (status == APR_OK) status = apr_chat_render_messages(s->vocab, &request, apr_local_seconds(), &text, &n, err);
    if (status == APR_OK) status = encode(s, text, n, false, true, ids, n_ids, err);
    free(text);
    apr_messages_close(&messages);
    return status;
}

static apr_status check_options(const aprkit_session *s, const aprkit_generate_options *o, apr_error *err)
{
    APR_TRY(need_weights(s, err));
    if ((o->text != NULL) == (o->n_messages > 0)) return apr_fail(err, APR_E_USAGE, "give either messages or a text");
    if (o->n_stops > APR_MOST_STOP_TEXTS)
        return apr_fail(err, APR_E_USAGE, "there are %zu stop texts; %d are the limit", o->n_stops, (int)APR_MOST_STOP_TEXTS);
    for (size_t i = 0; i < o->n_stops; i++)
        if (o->stops[i][0] == '\0') return apr_fail(err, APR_E_USAGE, "a stop text is empty");
    if (o->max_tokens < 0 || o->top_k < 0 || !(o->temperature >= 0) || !(o->top_p >= 0 && o->top_p <= 1) ||
        !(o->min_p >= 0 && o->min_p <= 1) || !(o->repeat_penalty >= 0))
        return apr_fail(err, APR_E_USAGE, "an option of sampling is out of range");
    return need_tokenizer(s, err);
}

static apr_sample_options sampling_of(const aprkit_generate_options *o)
{
    if (o->hooks != NULL) return *o->hooks->sampling;
    return (apr_sample_options){.temperature = o->temperature,
                                .top_p = o->top_p,
                                .min_p = o->min_p,
                                .top_k = o->top_k,
                                .seed = o->seed,
                                .repeat_penalty = o->repeat_penalty,
                                .repeat_last = o->repeat_penalty != 0 && o->repeat_penalty != 1 ? 64 : 0};
}

static apr_generate_options generate_options_of(const aprkit_session *s, const aprkit_generate_options *o, answer *a)
{
    const aprkit_generate_hooks *const hooks = o->hooks;
    const bool is_chat = o->n_messages > 0 || (hooks != NULL && hooks->is_rendered), is_own = hooks == NULL || hooks->on_token == NULL;

    return (apr_generate_options){.max_tokens = o->max_tokens > 0 ? o->max_tokens : 256,
                                  .stop_ids = is_chat ? s->running.chat.ids : s->vocab->stop_ids,
                                  .n_stop_ids = is_chat ? s->running.chat.n : s->vocab->n_stop_ids,
                                  .on_token = is_own ? take_token : hooks->on_token,
                                  .user = is_own ? (void *)a : hooks->user};
}

static apr_status run(aprkit_session *s, const aprkit_generate_options *o, const int32_t *prompt, size_t n_prompt, answer *a,
                      apr_error *err)
{
    const apr_sample_options sampling = sampling_of(o);
    const apr_generate_options options = generate_options_of(s, o, a);
    const aprkit_generate_hooks *const hooks = o->hooks;
    apr_generation generation;
    apr_sampler sampler = {0};

    apr_session_reset(s->running.session);
    if (hooks != NULL && hooks->begin != NULL) hooks->begin(hooks->user, prompt, n_prompt);
    apr_status status = apr_sampler_open(&sampler, apr_session_program(s->running.session)->vocab_size, &sampling, err);
    if (status == APR_OK) status = apr_generate(s->running.session, &sampler, prompt, n_prompt, &options, &generation, err);
    if (status == APR_OK && !a->is_cancelled) show(a, true);
    if (status == APR_OK && a->failed) status = apr_no_memory(err, "the text");
    if (status == APR_OK && hooks != NULL && hooks->end != NULL) status = hooks->end(hooks->user, prompt, &generation, err);
    apr_sampler_close(&sampler);
    return status;
}

static apr_status encode_prompt(const aprkit_session *s, const aprkit_generate_options *o, int32_t **ids, size_t *n_ids, apr_error *err)
{
    const aprkit_generate_hooks *const hooks = o->hooks;
    const bool adds = hooks == NULL || (!hooks->is_rendered && !hooks->no_begin);

    if (o->n_messages > 0) return encode_chat(s, o, ids, n_ids, err);
    return encode(s, o->text, o->n_text > 0 ? o->n_text : SIZE_MAX, adds, true, ids, n_ids, err);
}

static apr_status generate(aprkit_session *s, const aprkit_generate_options *o, answer *a, apr_error *err)
{
    int32_t *prompt = NULL;
    size_t n = 0;

    APR_TRY(check_options(s, o, err));
    apr_status status = encode_prompt(s, o, &prompt, &n, err);
    a->leaves_space_out = s->vocab->kind == APR_VOCAB_SPM && s->vocab->add_space_prefix;
    a->text = (apr_answer_text){.stops = o->stops, .n_stops = o->n_stops, .whole_characters = true};
    if (status == APR_OK) status = run(s, o, prompt, n, a, err);
    apr_answer_text_close(&a->text);
    free(prompt);
    return status;
}

int aprkit_generate(aprkit_session *session, const aprkit_generate_options *options, aprkit_text_fn on_text, void *user,
                    aprkit_error *error)
{
    answer a = {.session = session, .on_text = on_text, .user = user};
    aprkit_generate_options o;
    apr_error err = {0};

    const apr_library_call call = apr_library_enter(&session->model->owner, session->threads);
    apr_status status = apr_take_options(&o, sizeof o, options, "aprkit_generate_options", &err);
    if (status == APR_OK) status = generate(session, &o, &a, &err);
    const int result = apr_library_leave(&call, status, &err, error);
    return result == APRKIT_OK && a.is_cancelled ? apr_library_cancelled(error) : result;
}
