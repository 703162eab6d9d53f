/* own_text.c - draws a token of each window, evaluates them together, draws the next ones. */
#include "runtime/calibrate/own_text.h"

#include "formats/base/machine.h"
#include "formats/base/random.h"
#include "runtime/session/sample.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* --- a session for many windows --- */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The most windows at once, without a smaller last group where the groups can be equal. A step has at most `window` rows: a plan's batch
 * is not larger than its context. */
static int64_t wanted_at_once(const apr_own_text *how, const apr_session_options *options, int64_t most)
{
    const int64_t usual = options->cuda != NULL ? APR_OWN_TEXT_AT_ONCE : APR_OWN_TEXT_AT_ONCE_ON_HOST;
    const int64_t limit = smaller(most > 0 ? most : usual, how->window), n_groups = (how->n_windows + limit - 1) / limit;
    return n_groups > 0 ? (how->n_windows + n_groups - 1) / n_groups : 1;
}

/* A device computes a token of one of several sequences in another way than that of a session's only one. So there are always several,
 * even if only one is used. */
static apr_session_options options_for(const apr_own_text *how, const apr_session_options *options, int64_t n)
{
    const int64_t pages = (how->window + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS;
    apr_session_options with = *options;

    with.n_ctx = how->window;
    with.n_sequences = n > 1 || options->cuda == NULL ? n : 2;
    with.kv_cells = n * pages * APR_PAGE_CELLS;
    with.n_batch = APR_OWN_TEXT_AT_ONCE; /* the same for any n: rings of cells depend on it */
    with.n_logits = n;
    if (n == 1) with.budget_bytes = 0;
    else if (with.budget_bytes == 0) with.budget_bytes = apr_machine_bytes();
    return with;
}

static void add_lines(apr_own_text_plan *plan, const apr_plan *session)
{
    for (size_t i = 0; i < session->n_lines; i++) {
        const apr_plan_line *const line = &session->lines[i];
        const bool on_host = line->on == APR_ON_HOST;
        if (line->id == APR_LINE_HEADROOM || line->id == APR_LINE_CONTEXT || (on_host && line->id < APR_LINE_CONTEXT)) continue;
        *(on_host ? &plan->host_bytes : &plan->device_bytes) += line->bytes;
    }
}

apr_status apr_own_text_forecast(apr_own_text_plan *plan, const apr_own_text *how, const apr_model *model,
                                 const apr_session_options *options, int64_t most, apr_error *err)
{
    *plan = (apr_own_text_plan){.n_at_once = wanted_at_once(how, options, most)};
    while (true) {
        const apr_session_options with = options_for(how, options, plan->n_at_once);
        apr_plan session;
        APR_TRY(apr_session_forecast(&session, model, &with, err));
        plan->fits = session.fits;
        if (plan->fits || plan->n_at_once == 1) add_lines(plan, &session);
        apr_plan_close(&session);
        if (plan->fits || plan->n_at_once == 1) return APR_OK;
        plan->n_at_once /= 2;
    }
}

apr_status apr_own_text_open(apr_session **session, const apr_own_text *how, const apr_model *model, const apr_session_options *options,
                             int64_t most, apr_error *err)
{
    apr_own_text_plan plan;

    *session = NULL;
    APR_TRY(apr_own_text_forecast(&plan, how, model, options, most, err));
    for (int64_t n = plan.n_at_once;; n /= 2) { /* memory may be taken by others meanwhile */
        const apr_session_options with = options_for(how, options, n);
        apr_error own = {0};
        const apr_status status = apr_session_open(session, model, &with, &own);
        if (status == APR_OK) return APR_OK;
        if (status != APR_E_MEMORY || n == 1) return apr_fail(err, status, "%s", own.text);
    }
}

/* --- windows that are written at once --- */

typedef struct writing {
    const apr_own_text *how;
    apr_session *session;
    apr_sampler sampler;      /* of all windows in turn: its state is that of the window whose token is drawn */
    uint64_t *states;         /* [n] of the windows' generators */
    apr_sequence_token *rows; /* [n] */
    apr_topk *best;           /* [n] */
    int32_t *ids;             /* of all windows */
    int64_t first, n;         /* window first + k is sequence k */
    int64_t at;               /* index in its window of the token that is drawn */
} writing;

static int32_t *window_of(const writing *w, int64_t k) { return w->ids + (w->first + k) * w->how->window; }

/* Windows of adjacent indexes, or of adjacent seeds, have unrelated sequences. */
static uint64_t state_of(uint64_t seed, int64_t window)
{
    uint64_t own = apr_random(&seed) + (uint64_t)window;
    return apr_random(&own);
}

/* Draws the next token of a window, whose logits the session has just computed. */
static apr_status draw(void *user, int64_t k, const apr_topk *best, apr_error *err)
{
    writing *const w = user;
    int32_t *const ids = window_of(w, k);

    if (best->n < 1 || !isfinite(best->logits[0]))
        return apr_fail(err, APR_E_NO, "the model cannot write a calibration text: after token %" PRId64 " its logits are not finite",
                        (w->first + k) * w->how->window + w->at - 1);
    w->sampler.state = w->states[k];
    APR_TRY(apr_choose(w->session, &w->sampler, best, &ids[w->at], err));
    w->states[k] = w->sampler.state;
    return APR_OK;
}

/* Evaluates the token before `at` of one window, in a call of its own. */
static apr_status evaluate_one(writing *w, int64_t k, bool draws, apr_error *err)
{
    const apr_eval_output out = {.best = &w->best[k]};

    apr_session_use(w->session, k);
    APR_TRY(apr_session_eval(w->session, &window_of(w, k)[w->at - 1], 1, draws ? &out : NULL, err));
    return draws ? draw(w, k, &w->best[k], err) : APR_OK;
}

/* Evaluates the token before `at` of each window. Recurrent states start in a call for each sequence. */
static apr_status evaluate(writing *w, bool draws, apr_error *err)
{
    const apr_eval_output out = {.best = w->best, .on_topk = draw, .user = w};
    const bool is_start = w->at == 1 && !apr_session_can_step_prompts(w->session);

    APR_TRY(apr_session_go_on(w->session, err));
    for (int64_t k = 0; k < w->n; k++) {
        w->best[k] = apr_sampler_topk_request(&w->sampler);
        w->rows[k] = (apr_sequence_token){k, window_of(w, k)[w->at - 1]};
        if (is_start || apr_session_n_sequences(w->session) == 1) APR_TRY(evaluate_one(w, k, draws, err));
    }
    if (is_start || apr_session_n_sequences(w->session) == 1) return APR_OK;
    return apr_session_step(w->session, w->rows, w->n, draws ? &out : NULL, err);
}

static void reset_all(apr_session *session)
{
    for (int64_t k = apr_session_n_sequences(session); k-- > 0;) {
        apr_session_use(session, k);
        apr_session_reset(session);
    }
}

static apr_status write_windows(writing *w, apr_error *err)
{
    const apr_own_text *const how = w->how;
    const int64_t vocab_size = w->sampler.vocab_size, drawn = how->has_begin && how->window > 1; /* index of the token drawn uniformly */
    const int64_t n_known = how->n_tokens_known > 0 ? smaller(how->n_tokens_known, vocab_size) : vocab_size;

    reset_all(w->session);
    for (int64_t k = 0; k < w->n; k++) {
        int32_t *const ids = window_of(w, k);
        w->states[k] = state_of(how->seed, w->first + k);
        if (how->has_begin) ids[0] = how->begin;
        if (drawn || !how->has_begin) ids[drawn] = (int32_t)(apr_random(&w->states[k]) % (uint64_t)n_known);
    }
    for (w->at = 1; w->at < how->window; w->at++) {
        APR_TRY(evaluate(w, w->at > drawn, err));
        apr_progress_report(how->progress, (uint64_t)(w->first * how->window + w->n * w->at), (uint64_t)(how->n_windows * how->window),
                            "writing, tokens");
    }
    return APR_OK;
}

/* Windows that the session has sequences, rows of a step, and pages for. */
static int64_t most_at_once(const apr_own_text *how, const apr_session *session)
{
    const apr_plan *const plan = apr_session_plan(session);
    const int64_t pages = (how->window + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS;
    const int64_t n = smaller(apr_session_n_sequences(session), plan->n_batch);
    return plan->n_pages > 0 ? smaller(n, plan->n_pages / pages) : n;
}

static apr_status open_writing(writing *w, int64_t n, apr_error *err)
{
    const apr_sample_options options = {.temperature = 1.0f, .top_p = 1.0f};

    APR_TRY(apr_sampler_open(&w->sampler, apr_session_program(w->session)->vocab_size, &options, err));
    w->states = calloc((size_t)n, sizeof *w->states);
    w->rows = calloc((size_t)n, sizeof *w->rows);
    w->best = calloc((size_t)n, sizeof *w->best);
    return w->states != NULL && w->rows != NULL && w->best != NULL ? APR_OK : apr_no_memory(err, "the windows of a text");
}

static void close_writing(writing *w)
{
    apr_sampler_close(&w->sampler);
    free(w->states);
    free(w->rows);
    free(w->best);
}

apr_status apr_own_text_write(const apr_own_text *how, apr_session *session, int32_t *ids, apr_error *err)
{
    const int64_t most = most_at_once(how, session);
    writing w = {.how = how, .session = session, .ids = ids};

    apr_status status = most > 0 ? open_writing(&w, most, err)
                                 : apr_fail(err, APR_E_NO, "a window of %" PRId64 " tokens is longer than the context", how->window);
    for (w.first = how->n_before; w.first < how->n_windows && status == APR_OK; w.first += w.n) {
        w.n = smaller(most, how->n_windows - w.first);
        status = write_windows(&w, err);
        if (status == APR_OK && how->on_windows != NULL) status = how->on_windows(how->user, w.first + w.n, err);
    }
    close_writing(&w);
    reset_all(session);
    return status;
}
