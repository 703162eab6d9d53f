/* subject.c - chat rendering, encoding, decoding and greedy generation with a model under test. */
#include "runtime/check/subject.h"

#include "runtime/session/generate.h"
#include "runtime/session/trace.h"
#include "runtime/template/chat.h"

#include <stdlib.h>
#include <string.h>

apr_status apr_subject_chat(const apr_subject *s, const char *system, const char *user, char **text, size_t *n_bytes, apr_error *err)
{
    *text = NULL;
    if (s->vocab->chat_template == NULL || s->tokenizer == NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s has no chat template", s->path);
    return apr_chat_render(s->vocab, system, user, s->now, text, n_bytes, err);
}

/* Models without a vocabulary are compared on bytes as ids; it only matters that both read the same ids. */
static apr_status bytes_as_ids(const apr_subject *s, const char *text, size_t n_bytes, int32_t **ids, size_t *n_ids, apr_error *err)
{
    const int64_t vocab_size = apr_session_program(s->session)->vocab_size;

    *ids = malloc(n_bytes * sizeof **ids + 1);
    if (*ids == NULL) return apr_no_memory(err, "token ids");
    for (size_t i = 0; i < n_bytes; i++) (*ids)[i] = (int32_t)((uint8_t)text[i] % vocab_size);
    *n_ids = n_bytes;
    return APR_OK;
}

apr_status apr_subject_encode(const apr_subject *s, const char *text, size_t n_bytes, bool add_special, int32_t **ids, size_t *n_ids,
                              apr_error *err)
{
    const apr_encode_options options = {.add_special = add_special, .parse_special = true};
    if (s->tokenizer == NULL) return bytes_as_ids(s, text, n_bytes, ids, n_ids, err);
    return apr_tokenizer_encode(s->tokenizer, text, n_bytes, &options, ids, n_ids, err);
}

int32_t apr_begin_token(const apr_vocab *v) { return v->add_bos && v->bos_id >= 0 && (size_t)v->bos_id < v->n_tokens ? v->bos_id : -1; }

void apr_set_window_bos(const apr_vocab *vocab, int32_t *ids, size_t n_ids, int64_t window)
{
    const int32_t begin = apr_begin_token(vocab);
    for (size_t i = 0; begin >= 0 && window > 0 && i < n_ids; i += (size_t)window) ids[i] = begin;
}

apr_status apr_subject_encode_text(const apr_subject *s, const char *text, size_t n_bytes, int32_t **ids, size_t *n_ids, apr_error *err)
{
    const int32_t begin = s->tokenizer != NULL ? apr_begin_token(s->vocab) : -1;

    APR_TRY(apr_subject_encode(s, text, n_bytes, false, ids, n_ids, err));
    if (begin < 0) return APR_OK;
    int32_t *const more = realloc(*ids, (*n_ids + 1) * sizeof *more);
    if (more == NULL) {
        free(*ids);
        *ids = NULL;
        return apr_no_memory(err, "token ids");
    }
    memmove(more + 1, more, *n_ids * sizeof *more);
    more[0] = begin;
    *ids = more;
    ++*n_ids;
    return APR_OK;
}

apr_status apr_subject_encode_shared(const apr_subject *s, const apr_vocab *other, const char *text, size_t n_bytes, int32_t **ids,
                                     size_t *n_ids, apr_error *err)
{
    if (apr_begin_token(other) < 0) return apr_subject_encode(s, text, n_bytes, false, ids, n_ids, err);
    return apr_subject_encode_text(s, text, n_bytes, ids, n_ids, err);
}

apr_status apr_ids_with_window_bos(const apr_vocab *vocab, const int32_t *ids, size_t n_ids, int64_t window, int32_t **own, apr_error *err)
{
    *own = malloc(n_ids * sizeof **own + 1);
    if (*own == NULL) return apr_no_memory(err, "token ids");
    memcpy(*own, ids, n_ids * sizeof **own);
    apr_set_window_bos(vocab, *own, n_ids, window);
    return APR_OK;
}

/* --- greedy continuations --- */

static bool collect(void *user, int32_t id, bool is_stop)
{
    apr_continuation *const c = user;
    (void)is_stop;
    c->ids[c->n_ids++] = id;
    return true;
}

static apr_status continue_alone(const apr_subject *s, apr_continuation *c, size_t limit, apr_error *err)
{
    static const apr_sample_options greedy;
    const apr_generate_options options = {
        .max_tokens = (int64_t)limit, .stop_ids = s->vocab->stop_ids, .n_stop_ids = s->vocab->n_stop_ids, .on_token = collect, .user = c};
    apr_generation generation;
    apr_sampler sampler = {0};

    apr_session_reset(s->session);
    apr_status status = apr_sampler_open(&sampler, apr_session_program(s->session)->vocab_size, &greedy, err);
    if (status == APR_OK) status = apr_generate(s->session, &sampler, c->prompt, c->n_prompt, &options, &generation, err);
    apr_sampler_close(&sampler);
    return status;
}

/* Several prompts as sequences of one session. */
typedef struct together {
    apr_session *session;
    const apr_vocab *vocab;
    apr_continuation *all; /* continuation k is sequence k */
    size_t n, limit;
    int64_t vocab_size;
    apr_sequence_token *rows; /* [n] of the step */
} together;

/* The session that several prompts share, or NULL: they are continued one after another. Only on the host, where weights stay in the
 * model's map; composed matrices would be decoded again. */
static apr_session *open_together(const apr_subject *s, const apr_continuation *all, size_t n, size_t limit)
{
    const apr_plan *const plan = apr_session_plan(s->session);
    const int64_t pages_of_context = (plan->n_ctx + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS;
    const apr_cuda_api *cuda;
    apr_session *session;
    int64_t n_pages = 0;

    if (n < 2 || (size_t)plan->n_batch < n || limit > (size_t)plan->n_ctx) return NULL;
    if (apr_session_n_places(s->session) > 1 || apr_trace_device(s->session, &cuda) != NULL) return NULL;
    if (apr_session_used(s->session).materialised > 0) return NULL;
    for (size_t k = 0; k < n; k++) {
        if (all[k].n_prompt == 0 || all[k].n_prompt > (size_t)plan->n_ctx) return NULL; /* continue_alone refuses it */
        const int64_t pages = (int64_t)(all[k].n_prompt + limit + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS;
        n_pages += pages < pages_of_context ? pages : pages_of_context;
    }
    return apr_session_open_sequences_like(&session, s->session, (int64_t)n, n_pages * APR_PAGE_CELLS, NULL) == APR_OK ? session : NULL;
}

/* Has a sequence ended, where apr_generate would end it? */
static bool has_ended(const together *t, const apr_continuation *c)
{
    const int32_t last = c->ids[c->n_ids - 1];
    for (size_t i = 0; i < t->vocab->n_stop_ids; i++)
        if (t->vocab->stop_ids[i] == last) return true;
    return c->n_ids == t->limit || c->n_prompt + c->n_ids > (size_t)apr_session_plan(t->session)->n_ctx;
}

static apr_status take_rows(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    together *const t = user;
    (void)err;
    for (int64_t r = 0; r < n_rows; r++) {
        apr_continuation *const c = &t->all[t->rows[first + r].sequence];
        c->ids[c->n_ids++] = apr_argmax(logits + r * t->vocab_size, t->vocab_size);
    }
    return APR_OK;
}

static apr_status start_sequences(together *t, apr_error *err)
{
    for (size_t k = 0; k < t->n; k++) {
        apr_continuation *const c = &t->all[k];
        apr_session_use(t->session, (int64_t)k);
        APR_TRY(apr_session_eval(t->session, c->prompt, c->n_prompt, NULL, err));
        c->ids[c->n_ids++] = apr_argmax(apr_session_logits(t->session), t->vocab_size);
    }
    return APR_OK;
}

static apr_status continue_together(together *t, apr_error *err)
{
    const apr_eval_output out = {.on_logits = take_rows, .user = t};

    APR_TRY(start_sequences(t, err));
    while (true) {
        int64_t n_rows = 0;
        for (size_t k = 0; k < t->n; k++)
            if (!has_ended(t, &t->all[k]))
                t->rows[n_rows++] = (apr_sequence_token){.sequence = (int64_t)k, .id = t->all[k].ids[t->all[k].n_ids - 1]};
        if (n_rows == 0) return APR_OK;
        APR_TRY(apr_session_go_on(t->session, err));
        APR_TRY(apr_session_step(t->session, t->rows, n_rows, &out, err));
    }
}

apr_status apr_subject_continue(const apr_subject *s, apr_continuation *all, size_t n, size_t limit, apr_error *err)
{
    apr_status status = APR_OK;

    for (size_t k = 0; k < n; k++) {
        all[k].n_ids = 0;
        all[k].ids = malloc(limit * sizeof *all[k].ids + 1);
        if (all[k].ids == NULL) status = apr_no_memory(err, "an answer");
    }
    APR_TRY(status);
    together t = {.vocab = s->vocab, .all = all, .n = n, .limit = limit, .vocab_size = apr_session_program(s->session)->vocab_size};
    t.rows = malloc(n * sizeof *t.rows + 1);
    t.session = t.rows != NULL && limit > 0 ? open_together(s, all, n, limit) : NULL;
    if (t.session != NULL) status = continue_together(&t, err);
    else
        for (size_t k = 0; k < n && status == APR_OK; k++) status = continue_alone(s, &all[k], limit, err);
    apr_session_close(t.session);
    free(t.rows);
    return status;
}

/* --- the same vocabulary --- */

enum { MOST_BYTES = 1024 }; /* longer tokens are compared by their length and their first 1024 bytes */

/* 0 for unused ids and for ids after the last. */
static size_t bytes_of(const apr_subject *s, size_t id, char bytes[MOST_BYTES])
{
    return apr_tokenizer_token_bytes(s->tokenizer, (int32_t)id, true, bytes, MOST_BYTES);
}

static size_t count_tokens(const apr_subject *s)
{
    char bytes[MOST_BYTES];
    size_t n = 0;
    for (size_t id = 0; id < s->vocab->n_tokens; id++) n += bytes_of(s, id, bytes) > 0;
    return n;
}

apr_status apr_vocabularies_agree(const apr_subject *a, const apr_subject *b, apr_error *err)
{
    const size_t n_a = count_tokens(a), n_b = count_tokens(b);
    const size_t n = a->vocab->n_tokens > b->vocab->n_tokens ? a->vocab->n_tokens : b->vocab->n_tokens;
    char of_a[MOST_BYTES], of_b[MOST_BYTES];

    if (n_a != n_b)
        return apr_fail(err, APR_E_UNSUPPORTED, "the vocabularies are different: %s has %zu tokens and %s has %zu", a->path, n_a, b->path,
                        n_b);
    for (size_t id = 0; id < n; id++) {
        const size_t bytes_a = bytes_of(a, id, of_a), bytes_b = bytes_of(b, id, of_b);
        const size_t kept = bytes_a < MOST_BYTES ? bytes_a : MOST_BYTES;
        if (bytes_a == bytes_b && memcmp(of_a, of_b, kept) == 0) continue;
        return apr_fail(err, APR_E_UNSUPPORTED, "the vocabularies are different: token %zu is '%.*s' in %s and '%.*s' in %s", id,
                        (int)(bytes_a < 64 ? bytes_a : 64), of_a, a->path, (int)(bytes_b < 64 ? bytes_b : 64), of_b, b->path);
    }
    return APR_OK;
}
