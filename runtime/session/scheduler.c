/* scheduler.c - each iteration lets some requests join (several if their prompts are short, or one chunk of a long prompt), then runs
 * one step of all running sequences. */
#include "runtime/session/scheduler.h"
#include "kernels/cuda/rows_args.h"

#include "formats/base/clock.h"

#include <stdlib.h>
#include <string.h>

/* Requests that may join between two steps; more if their prompts have less than one chunk of tokens together. A step of many rows takes
 * hardly longer than one of few, so joining together delays the running sequences only once. */
enum { NO_SEAT = -1, MAX_JOINING = 4 };

/* On a device the rest of a prompt becomes rows of steps if it has at most this many tokens, for several prompts at once: such a step
 * takes hardly longer than one of a single prompt. */
enum { MAX_STEPPED = APR_ROWS_MAX_TOKENS };

/* A sequence of the session that requests can use. */
typedef struct seat {
    bool is_taken, is_joining, is_stepped, is_ending; /* is_stepped: the rest of its prompt runs as rows of steps */
    apr_request request;
    apr_sampler sampler;
    apr_reply reply;
    int64_t position; /* tokens evaluated */
    int64_t keep;     /* copy the prefix of this length for the next request; 0: none */
    int32_t next_id;
    double began_s;
} seat;

typedef struct run {
    apr_session *session;
    const apr_schedule *schedule;
    apr_schedule_stats *stats;
    seat *seats;              /* [n_seats] */
    int64_t n_seats, joining; /* joining: the seat whose prompt is being evaluated, or NO_SEAT */
    apr_request waiting;      /* read, but has no sequence yet */
    bool has_waiting, at_end;
    int32_t *kept; /* [n_ctx] tokens of the last sequence: the kept prefix */
    int64_t n_kept;
    apr_sequence_token *tokens; /* rows of the step */
    apr_topk *topk;             /* top-k of these rows */
    int64_t n_rows;             /* most rows of a step of prompts */
} run;

int64_t apr_schedule_width(const apr_session *session)
{
    const int64_t n = apr_session_n_sequences(session);
    return n > 1 ? n - 1 : 1;
}

static bool has_device(const run *r) { return apr_session_place_ordinal(r->session, 0) >= 0; }
static int64_t chunk_of(const run *r) { return has_device(r) ? APR_DEVICE_PROMPT_CHUNK : APR_PAGE_CELLS; }
static int64_t n_ctx(const run *r) { return apr_session_plan(r->session)->n_ctx; }
static bool keeps_prefix(const run *r) { return apr_session_n_sequences(r->session) > 1; }
static int64_t pages_for(int64_t n) { return (n + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS; }

/* --- common prefixes --- */

/* The common prefix in whole chunks. Callers exclude a prompt's last token, which is always evaluated. */
static int64_t common_prefix(const run *r, const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b)
{
    int64_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n / chunk_of(r) * chunk_of(r);
}

static int64_t kept_of(const run *r, const apr_request *q)
{
    const int64_t n = common_prefix(r, r->kept, r->n_kept, q->prompt, (int64_t)q->n_prompt - 1);
    return n == r->n_kept || apr_session_can_share_prefix(r->session) ? n : 0;
}

static void drop_kept(run *r)
{
    if (r->n_kept == 0) return;
    apr_session_use(r->session, r->n_seats);
    apr_session_reset(r->session);
    r->n_kept = 0;
}

/* Keeps what the seat has evaluated for later requests. */
static apr_status keep(run *r, int64_t i, apr_error *err)
{
    const seat *const s = &r->seats[i];

    APR_TRY(apr_session_share(r->session, i, r->n_seats, s->position, err));
    memcpy(r->kept, s->request.prompt, (size_t)s->position * sizeof *r->kept);
    r->n_kept = s->position;
    return APR_OK;
}

/* --- joining --- */

/* Pages that the running requests may still need. */
static int64_t reserved_pages(const run *r)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_seats; i++) {
        const apr_request *const q = &r->seats[i].request;
        if (!r->seats[i].is_taken) continue;
        const int64_t left = n_ctx(r) - (int64_t)q->n_prompt, end = (int64_t)q->n_prompt + (q->max_tokens < left ? q->max_tokens : left);
        n += pages_for(end) - pages_for(r->seats[i].position);
    }
    return n;
}

static bool has_capacity(const run *r, const apr_request *q)
{
    const int64_t left = n_ctx(r) - (int64_t)q->n_prompt, end = (int64_t)q->n_prompt + (q->max_tokens < left ? q->max_tokens : left);

    if (!keeps_prefix(r)) return true;
    return pages_for(end) - kept_of(r, q) / APR_PAGE_CELLS <= apr_session_free_pages(r->session) - reserved_pages(r);
}

/* Reads the next request into `waiting`. */
static apr_status read_next(run *r, bool may_wait, apr_error *err)
{
    apr_next what = APR_NEXT_NONE;

    if (r->has_waiting || r->at_end) return APR_OK;
    APR_TRY(r->schedule->next(r->schedule->user, may_wait, &what, &r->waiting, err));
    r->has_waiting = what == APR_NEXT_REQUEST;
    r->at_end = what == APR_NEXT_NONE;
    return APR_OK;
}

/* Why the request cannot be answered. */
static apr_status refusal(const run *r, const apr_request *q, apr_error *err)
{
    if (q->max_tokens < 1) return apr_fail(err, APR_E_USAGE, "at least one token must be asked for");
    if (q->n_prompt == 0) return apr_fail(err, APR_E_USAGE, "there is nothing to continue: the prompt is empty");
    if (q->n_prompt > (size_t)n_ctx(r))
        return apr_fail(err, APR_E_USAGE, "the prompt has %zu tokens, more than the context of %lld", q->n_prompt, (long long)n_ctx(r));
    for (size_t i = 0; i < q->n_prompt; i++)
        if (q->prompt[i] < 0 || q->prompt[i] >= apr_session_program(r->session)->vocab_size)
            return apr_fail(err, APR_E_USAGE, "token id %d is outside the vocabulary", (int)q->prompt[i]);
    return APR_OK;
}

static apr_status refuse(run *r, apr_request *q, const apr_reply *reply, apr_error *err)
{
    r->has_waiting = false;
    r->stats->n_done++;
    return r->schedule->on_done(r->schedule->user, q->tag, reply, err);
}

static apr_status seat_waiting(run *r, int64_t i, apr_error *err)
{
    seat *const s = &r->seats[i];
    const apr_request q = r->waiting;

    *s = (seat){.is_taken = true, .is_joining = true, .request = q, .began_s = apr_seconds_now()};
    s->reply.n_prompt = (int64_t)q.n_prompt;
    s->reply.n_shared = s->position = keeps_prefix(r) ? kept_of(r, &q) : 0;
    if (s->position > 0) {
        APR_TRY(apr_session_share(r->session, r->n_seats, i, s->position, err));
    } else {
        apr_session_use(r->session, i);
        apr_session_reset(r->session);
    }
    r->has_waiting = false;
    r->joining = i;
    APR_TRY(read_next(r, false, err)); /* its common prefix with the next request is kept when it has been evaluated */
    if (r->has_waiting && keeps_prefix(r)) {
        const int64_t n = common_prefix(r, q.prompt, (int64_t)q.n_prompt - 1, r->waiting.prompt, (int64_t)r->waiting.n_prompt - 1);
        if (n > s->position && n > kept_of(r, &r->waiting)) s->keep = n;
    }
    return APR_OK;
}

/* Refuses or seats the waiting request, or leaves it waiting. */
static apr_status try_join(run *r, apr_error *err)
{
    apr_reply reply = {0};
    apr_sampler sampler;
    int64_t i = 0;

    reply.status = refusal(r, &r->waiting, &reply.error);
    if (reply.status != APR_OK) return refuse(r, &r->waiting, &reply, err);
    while (i < r->n_seats && r->seats[i].is_taken) i++;
    if (i == r->n_seats) return APR_OK;
    if (!has_capacity(r, &r->waiting)) drop_kept(r);
    if (!has_capacity(r, &r->waiting)) return APR_OK;
    reply.status = apr_sampler_open(&sampler, apr_session_program(r->session)->vocab_size, &r->waiting.sampling, &reply.error);
    if (reply.status != APR_OK) {
        apr_sampler_close(&sampler);
        return refuse(r, &r->waiting, &reply, err);
    }
    apr_sampler_take(&sampler, r->waiting.prompt, r->waiting.n_prompt);
    const apr_status status = seat_waiting(r, i, err);
    r->seats[i].sampler = sampler;
    return status;
}

/* --- evaluating --- */

static bool is_stop_id(const apr_request *q, int32_t id)
{
    for (size_t i = 0; i < q->n_stop_ids; i++)
        if (q->stop_ids[i] == id) return true;
    return false;
}

static apr_status finish(run *r, int64_t i, apr_error *err)
{
    seat *const s = &r->seats[i];

    s->reply.seconds = apr_seconds_now() - s->began_s;
    s->is_taken = false;
    apr_sampler_close(&s->sampler);
    apr_session_use(r->session, i);
    apr_session_reset(r->session);
    r->stats->n_done++;
    r->stats->n_prompt += s->reply.n_prompt;
    r->stats->n_shared += s->reply.n_shared;
    return r->schedule->on_done(r->schedule->user, s->request.tag, &s->reply, err);
}

/* Takes the seat's next token, and notes whether it is the last. */
static void take_token(run *r, seat *s, int32_t id)
{
    const bool is_stop = is_stop_id(&s->request, id);
    const bool continues = r->schedule->on_token(r->schedule->user, s->request.tag, id, is_stop);

    if (s->reply.n_generated++ == 0) s->reply.first_seconds = apr_seconds_now() - s->began_s;
    r->stats->n_generated++;
    s->next_id = id;
    s->is_ending = true;
    if (is_stop || !continues) s->reply.finish = is_stop ? APR_FINISH_STOP : APR_FINISH_CALLER;
    else if (s->reply.n_generated >= s->request.max_tokens) s->reply.finish = APR_FINISH_LIMIT;
    else if (s->position >= n_ctx(r)) s->reply.finish = APR_FINISH_CONTEXT;
    else s->is_ending = false;
}

/* On a device the logits stay there, and only the top-k is downloaded. */
static bool leaves_logits(const run *r) { return keeps_prefix(r) && has_device(r); }

/* Chooses the token after a prompt that has just been evaluated. */
static apr_status choose_first(run *r, seat *s, const apr_topk *topk, int32_t *id, apr_error *err)
{
    if (leaves_logits(r)) return apr_choose(r->session, &s->sampler, topk, id, err);
    APR_TRY(apr_session_read_logits(r->session, err));
    *id = apr_sample(&s->sampler, apr_session_logits(r->session));
    return APR_OK;
}

/* Evaluates one chunk of the joining prompt; adds its size to *n_tokens. */
static apr_status evaluate_chunk(run *r, int64_t *n_tokens, apr_error *err)
{
    const int64_t i = r->joining;
    seat *const s = &r->seats[i];
    const int64_t left = (int64_t)s->request.n_prompt - s->position, chunk = chunk_of(r) - s->position % chunk_of(r);
    const int64_t n = left < chunk ? left : chunk;
    apr_topk topk = apr_sampler_topk_request(&s->sampler);
    const apr_eval_output out = {.best = n == left && leaves_logits(r) ? &topk : NULL};
    int32_t id;

    apr_session_use(r->session, i);
    APR_TRY(apr_session_eval(r->session, s->request.prompt + s->position, (size_t)n, &out, err));
    s->position += n;
    *n_tokens += n;
    if (s->keep == s->position) APR_TRY(keep(r, i, err));
    if (s->position < (int64_t)s->request.n_prompt) return APR_OK;
    s->is_joining = false;
    r->joining = NO_SEAT;
    apr_session_use(r->session, i);
    APR_TRY(choose_first(r, s, &topk, &id, err));
    take_token(r, s, id);
    return s->is_ending ? finish(r, i, err) : APR_OK;
}

static int64_t most_rows(const run *r)
{
    const int64_t n_batch = apr_session_plan(r->session)->n_batch;
    return n_batch < MAX_STEPPED ? n_batch : (int64_t)MAX_STEPPED;
}

/* Whether a prompt's end runs as rows of steps depends on the prompt alone. */
static bool is_to_be_stepped(const run *r, const seat *s)
{
    const int64_t left = (int64_t)s->request.n_prompt - s->position;
    return leaves_logits(r) && left <= MAX_STEPPED && left <= chunk_of(r) - s->position % chunk_of(r) &&
           apr_session_can_step_prompts(r->session);
}

/* Takes the rows of a step; sequences that end are released after it. */
static apr_status take_rows(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    run *const r = user;
    const int64_t width = apr_session_program(r->session)->vocab_size;

    (void)err;
    for (int64_t k = 0; k < n_rows; k++) {
        seat *const s = &r->seats[r->tokens[first + k].sequence];
        s->position++;
        take_token(r, s, apr_sample(&s->sampler, logits + k * width));
    }
    return APR_OK;
}

/* The same from the top-k on a device. Chooses the same tokens. */
static apr_status take_topk(void *user, int64_t row, const apr_topk *topk, apr_error *err)
{
    run *const r = user;
    seat *const s = &r->seats[r->tokens[row].sequence];
    int32_t id;

    s->position++;
    if (s->is_stepped && s->position < (int64_t)s->request.n_prompt) return APR_OK;
    s->is_stepped = s->is_joining = false;
    APR_TRY(apr_choose(r->session, &s->sampler, topk, &id, err));
    take_token(r, s, id);
    return APR_OK;
}

static apr_status step(run *r, int64_t n, apr_error *err)
{
    const apr_eval_output rows = {.on_logits = take_rows, .user = r}, topk = {.best = r->topk, .on_topk = take_topk, .user = r};
    const apr_eval_output out = leaves_logits(r) ? topk : rows;

    for (int64_t k = 0; k < n; k++) r->topk[k] = apr_sampler_topk_request(&r->seats[r->tokens[k].sequence].sampler);
    if (keeps_prefix(r)) return apr_session_step(r->session, r->tokens, n, &out, err);
    return apr_session_eval(r->session, &r->tokens[0].id, 1, &out, err);
}

static bool is_ended(const run *r) { return r->schedule->is_ended != NULL && r->schedule->is_ended(r->schedule->user); }

static apr_status finish_ending(run *r, apr_error *err)
{
    for (int64_t i = 0; i < r->n_seats; i++)
        if (r->seats[i].is_taken && r->seats[i].is_ending) APR_TRY(finish(r, i, err));
    return APR_OK;
}

/* Runs the ends of prompts as rows of steps, as many at once as a step has rows, until none are left. */
static apr_status step_prompts(run *r, apr_error *err)
{
    while (!is_ended(r)) {
        int64_t n = 0;
        for (int64_t i = 0; i < r->n_seats; i++) {
            const seat *const s = &r->seats[i];
            for (int64_t at = s->position; s->is_taken && s->is_stepped && at < (int64_t)s->request.n_prompt && n < r->n_rows; at++)
                r->tokens[n++] = (apr_sequence_token){i, s->request.prompt[at]};
        }
        if (n == 0) return APR_OK;
        APR_TRY(step(r, n, err));
        APR_TRY(finish_ending(r, err));
    }
    return APR_OK;
}

/* One step of all running sequences. */
static apr_status decode_step(run *r, apr_error *err)
{
    int64_t n = 0;

    for (int64_t i = 0; i < r->n_seats; i++)
        if (r->seats[i].is_taken && !r->seats[i].is_joining) r->tokens[n++] = (apr_sequence_token){i, r->seats[i].next_id};
    if (n == 0) return APR_OK;
    r->stats->n_steps++;
    if (n > r->stats->most_at_once) r->stats->most_at_once = n;
    APR_TRY(step(r, n, err));
    return finish_ending(r, err);
}

static bool is_idle(const run *r)
{
    for (int64_t i = 0; i < r->n_seats; i++)
        if (r->seats[i].is_taken) return false;
    return true;
}

/* Continues the joining prompt, or starts the next request; adds the tokens to *n_tokens. *more: another request may join, because one
 * joined and no prompt is unfinished. */
static apr_status join_one(run *r, int64_t *n_tokens, bool *more, apr_error *err)
{
    const bool idle = is_idle(r);

    *more = false;
    if (r->joining == NO_SEAT) {
        APR_TRY(read_next(r, idle, err));
        if (r->has_waiting) APR_TRY(try_join(r, err));
    }
    if (r->joining == NO_SEAT || is_ended(r)) return APR_OK;
    if (is_to_be_stepped(r, &r->seats[r->joining])) {
        seat *const s = &r->seats[r->joining];
        s->is_stepped = true;
        *n_tokens += (int64_t)s->request.n_prompt - s->position;
        r->joining = NO_SEAT;
    } else {
        APR_TRY(evaluate_chunk(r, n_tokens, err));
    }
    *more = r->joining == NO_SEAT;
    return APR_OK;
}

static apr_status join_some(run *r, apr_error *err)
{
    int64_t n_tokens = 0;
    bool more = true;

    for (int n = 0; (n < MAX_JOINING || n_tokens < chunk_of(r)) && more && !is_ended(r); n++) APR_TRY(join_one(r, &n_tokens, &more, err));
    return APR_OK;
}

static apr_status run_all(run *r, apr_error *err)
{
    while (!is_ended(r)) {
        APR_TRY(join_some(r, err));
        if (!is_ended(r)) APR_TRY(step_prompts(r, err));
        if (is_idle(r) && r->at_end && !r->has_waiting) break;
        if (!is_ended(r)) APR_TRY(decode_step(r, err));
    }
    return APR_OK;
}

apr_status apr_schedule_run(apr_session *session, const apr_schedule *schedule, apr_schedule_stats *stats, apr_error *err)
{
    const double begin = apr_seconds_now();
    run r = {.session = session, .schedule = schedule, .stats = stats, .n_seats = apr_schedule_width(session), .joining = NO_SEAT};

    *stats = (apr_schedule_stats){0};
    r.seats = calloc((size_t)r.n_seats, sizeof *r.seats);
    r.n_rows = most_rows(&r);
    const int64_t n_tokens = r.n_seats > r.n_rows ? r.n_seats : r.n_rows;
    r.tokens = calloc((size_t)n_tokens, sizeof *r.tokens);
    r.topk = calloc((size_t)n_tokens, sizeof *r.topk);
    r.kept = calloc((size_t)n_ctx(&r), sizeof *r.kept);
    const bool has_memory = r.seats != NULL && r.tokens != NULL && r.topk != NULL && r.kept != NULL;
    const apr_status status = has_memory ? run_all(&r, err) : apr_no_memory(err, "the table of requests");
    for (int64_t i = 0; i < apr_session_n_sequences(session); i++) {
        apr_session_use(session, i);
        apr_session_reset(session);
        if (i < r.n_seats && r.seats != NULL && r.seats[i].is_taken) apr_sampler_close(&r.seats[i].sampler);
    }
    free(r.seats);
    free(r.tokens);
    free(r.topk);
    free(r.kept);
    stats->seconds = apr_seconds_now() - begin;
    return status;
}
