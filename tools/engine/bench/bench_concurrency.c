/* bench_concurrency.c - runs distinct random prompts at once, and measures how long they take together. */
#include "tools/engine/bench/bench_concurrency.h"

#include "formats/base/clock.h"
#include "formats/base/random.h"
#include "runtime/session/scheduler.h"
#include "tools/engine/run/sequences.h"

#include <math.h>
#include <stdlib.h>

/* One run. */
typedef struct many {
    const apr_concurrency_options *asked;
    int64_t n, next, vocab_size;
    int32_t *prompts; /* [n, n_prompt] */
    double *first_s;  /* [n] time to first token; 0: none yet */
    double began_s, sum;
    int64_t n_joined;
    const double *last;         /* the sequence that got its first token last: from then on all decode, until one is done */
    double joined_s, stepped_s; /* time of its first token, and of its latest while all decode */
    int64_t n_steps;            /* its tokens between those two */
    bool is_any_done;
} many;

static apr_status next(void *user, bool may_wait, apr_next *what, apr_request *request, apr_error *err)
{
    many *const m = user;

    (void)may_wait, (void)err;
    *what = m->next < m->n ? APR_NEXT_REQUEST : APR_NEXT_NONE;
    if (m->next == m->n) return APR_OK;
    *request = (apr_request){.prompt = m->prompts + m->next * m->asked->n_prompt,
                             .n_prompt = (size_t)m->asked->n_prompt,
                             .max_tokens = m->asked->n_tokens,
                             .tag = &m->first_s[m->next]};
    m->next++;
    return APR_OK;
}

static bool on_token(void *user, void *tag, int32_t id, bool is_stop)
{
    many *const m = user;
    double *const first = tag, now_s = apr_seconds_now() - m->began_s;
    (void)id, (void)is_stop;
    if (*first == 0.0) {
        *first = now_s;
        if (++m->n_joined == m->n) m->last = first, m->joined_s = now_s;
    } else if (first == m->last && !m->is_any_done) {
        m->stepped_s = now_s;
        m->n_steps++;
    }
    return true;
}

static apr_status on_done(void *user, void *tag, const apr_reply *reply, apr_error *err)
{
    many *const m = user;
    if (reply->status != APR_OK) return apr_fail(err, reply->status, "%s", reply->error.text);
    m->is_any_done = true;
    m->sum += *(const double *)tag;
    return APR_OK;
}

static apr_status run_once(many *m, apr_session *session, uint64_t *seed, double *seconds, double *step, apr_error *err)
{
    const apr_schedule schedule = {.next = next, .on_token = on_token, .on_done = on_done, .user = m};
    apr_schedule_stats stats;

    for (int64_t i = 0; i < m->n * m->asked->n_prompt; i++) m->prompts[i] = (int32_t)(apr_random(seed) % (uint64_t)m->vocab_size);
    for (int64_t i = 0; i < m->n; i++) m->first_s[i] = 0.0;
    m->next = m->n_joined = m->n_steps = 0;
    m->sum = 0.0;
    m->last = NULL;
    m->is_any_done = false;
    m->began_s = apr_seconds_now();
    APR_TRY(apr_schedule_run(session, &schedule, &stats, err));
    *seconds = stats.seconds;
    *step = m->n_steps > 0 ? (m->stepped_s - m->joined_s) / (double)m->n_steps : 0.0;
    return APR_OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The run's figures of first tokens; sorts first_s. */
static void take_firsts(const many *m, apr_concurrency_result *f, int at)
{
    qsort(m->first_s, (size_t)m->n, sizeof *m->first_s, by_value);
    f->first[at] = m->sum / (double)m->n;
    f->late_first[at] = m->first_s[(int64_t)ceil(0.95 * (double)m->n) - 1];
    f->longest_first[at] = m->first_s[m->n - 1];
}

static apr_status measure_session(apr_concurrency_result *f, const apr_concurrency_options *asked, apr_session *session, apr_error *err)
{
    many m = {.asked = asked, .n = f->n_sequences, .vocab_size = apr_session_program(session)->vocab_size};
    uint64_t seed = asked->seed;
    apr_status status;

    m.prompts = malloc((size_t)(m.n * asked->n_prompt) * sizeof *m.prompts);
    m.first_s = malloc((size_t)m.n * sizeof *m.first_s);
    status = m.prompts != NULL && m.first_s != NULL ? APR_OK : apr_no_memory(err, "the prompts");
    for (int i = -1; i < asked->n_runs && status == APR_OK; i++) {
        const int at = i < 0 ? 0 : i; /* the first run is a warm-up, and is overwritten */
        status = run_once(&m, session, &seed, &f->seconds[at], &f->step[at], err);
        if (status == APR_OK) take_firsts(&m, f, at);
    }
    free(m.prompts);
    free(m.first_s);
    return status;
}

apr_status apr_concurrency_check(const apr_concurrency_options *asked, const char *option, apr_error *err)
{
    if (asked->n_prompt < 1 || asked->n_tokens < 1)
        return apr_fail(err, APR_E_USAGE, "several sequences need a prompt and tokens: give --prompt and --tokens greater than 0");
    for (size_t i = 0; i < asked->sequences.n; i++)
        if (asked->sequences.items[i] < 1 || asked->sequences.items[i] > 4096)
            return apr_fail(err, APR_E_USAGE, "%s takes numbers from 1 to 4096", option);
    return APR_OK;
}

apr_status apr_concurrency_measure(apr_concurrency_result *figures, const apr_concurrency_options *asked, const apr_model *model,
                                   const apr_session_options *options, const apr_progress *progress, apr_error *err)
{
    for (size_t i = 0; i < asked->sequences.n; i++) {
        apr_session_options own = *options;
        apr_session *session;

        figures[i] = (apr_concurrency_result){.n_sequences = asked->sequences.items[i]};
        own.n_ctx = asked->n_prompt + asked->n_tokens;
        own.n_logits = 16;
        APR_TRY(apr_set_sequences(&own, model, figures[i].n_sequences, 0, err));
        APR_TRY(apr_session_open(&session, model, &own, err));
        const apr_status status = measure_session(&figures[i], asked, session, err);
        apr_session_close(session);
        APR_TRY(status);
        apr_progress_report(progress, i + 1, asked->sequences.n, "numbers of sequences");
    }
    return APR_OK;
}

apr_spread apr_concurrency_rates(const apr_concurrency_result *f, const apr_concurrency_options *asked)
{
    return apr_speed_rates(f->n_sequences * asked->n_tokens, f->seconds, asked->n_runs);
}

double apr_concurrency_decode_rate(const apr_concurrency_result *f, const apr_concurrency_options *asked)
{
    const double step = apr_speed_spread(f->step, asked->n_runs).median;
    return step > 0.0 ? (double)f->n_sequences / step : 0.0;
}
