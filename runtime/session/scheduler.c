/* scheduler.c - a turn is: some may join, if their prompts are short, or one, with a piece of its prompt; and a step of all that are under
 * way. */
#include "runtime/session/scheduler.h"
#include "kernels/cuda/rows_args.h"

#include "formats/base/clock.h"

#include <stdlib.h>
#include <string.h>

/* Between two steps, or as many as have a piece's tokens together: a step of many takes hardly longer than one of few, so that each of
 * those who wait costs the others' time but once. */
enum { NOBODY = -1, MOST_JOINING = 4 };

/* On a device the end of a prompt is rows of steps, those of several prompts at once, if it is no longer than that: such a step
 * takes hardly longer than one of a single prompt. */
enum { MOST_STEPPED = APR_ROWS_MOST };

/* One sequence of the session that requests can have. */
typedef struct seat {
    bool is_taken, is_joining, is_stepped, is_ending; /* is_stepped: the rest of its prompt is rows of steps */
    apr_request request;
    apr_sampler sampler;
    apr_reply reply;
    int64_t position; /* tokens evaluated */
    int64_t keep;     /* after so many what was evaluated is kept for the next request; 0: not */
    int32_t next_id;
    double began_s;
} seat;

typedef struct run {
    apr_session *session;
    const apr_schedule *schedule;
    apr_schedule_stats *stats;
    seat *seats; /* [n_seats] */
    int64_t n_seats, joining;
    apr_request waiting; /* read, and not seated yet */
    bool has_waiting, at_end;
    int32_t *kept; /* [n_ctx] what the last sequence has evaluated */
    int64_t n_kept;
    apr_sequence_token *tokens; /* of the step */
    apr_best *bests;            /* of its rows */
    int64_t n_rows;             /* of a step of prompts at most */
} run;

int64_t apr_schedule_width(const apr_session *session)
{
    const int64_t n = apr_session_n_sequences(session);
    return n > 1 ? n - 1 : 1;
}

static bool has_device(const run *r) { return apr_session_place_ordinal(r->session, 0) >= 0; }
static int64_t piece_of(const run *r) { return has_device(r) ? APR_DEVICE_PIECE : APR_PAGE_CELLS; }
static int64_t n_ctx(const run *r) { return apr_session_plan(r->session)->n_ctx; }
static bool has_keeper(const run *r) { return apr_session_n_sequences(r->session) > 1; }
static int64_t pages_for(int64_t n) { return (n + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS; }

/* --- what requests begin with alike --- */

/* In whole pieces; at least one token of a prompt is left to be evaluated. */
static int64_t alike(const run *r, const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b)
{
    int64_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n / piece_of(r) * piece_of(r);
}

static int64_t kept_of(const run *r, const apr_request *q)
{
    const int64_t n = alike(r, r->kept, r->n_kept, q->prompt, (int64_t)q->n_prompt - 1);
    return n == r->n_kept || apr_session_shares_anywhere(r->session) ? n : 0;
}

static void forget_kept(run *r)
{
    if (r->n_kept == 0) return;
    apr_session_use(r->session, r->n_seats);
    apr_session_reset(r->session);
    r->n_kept = 0;
}

/* What the seat has evaluated, for those who come. */
static apr_status keep(run *r, int64_t i, apr_error *err)
{
    const seat *const s = &r->seats[i];

    APR_TRY(apr_session_share(r->session, i, r->n_seats, s->position, err));
    memcpy(r->kept, s->request.prompt, (size_t)s->position * sizeof *r->kept);
    r->n_kept = s->position;
    return APR_OK;
}

/* --- joining --- */

/* Pages that those who are here may still come to need. */
static int64_t promised_pages(const run *r)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_seats; i++) {
        const apr_request *const q = &r->seats[i].request;
        if (!r->seats[i].is_taken) continue;
        const int64_t room = n_ctx(r) - (int64_t)q->n_prompt, end = (int64_t)q->n_prompt + (q->max_tokens < room ? q->max_tokens : room);
        n += pages_for(end) - pages_for(r->seats[i].position);
    }
    return n;
}

static bool has_room(const run *r, const apr_request *q)
{
    const int64_t room = n_ctx(r) - (int64_t)q->n_prompt, end = (int64_t)q->n_prompt + (q->max_tokens < room ? q->max_tokens : room);

    if (!has_keeper(r)) return true;
    return pages_for(end) - kept_of(r, q) / APR_PAGE_CELLS <= apr_session_free_pages(r->session) - promised_pages(r);
}

/* The next request into `waiting`. */
static apr_status read_next(run *r, bool may_wait, apr_error *err)
{
    apr_next what = APR_NEXT_NONE;

    if (r->has_waiting || r->at_end) return APR_OK;
    APR_TRY(r->schedule->next(r->schedule->user, may_wait, &what, &r->waiting, err));
    r->has_waiting = what == APR_NEXT_REQUEST;
    r->at_end = what == APR_NEXT_NONE;
    return APR_OK;
}

/* Why it cannot be answered at all. */
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

static apr_status sit_down(run *r, int64_t i, apr_error *err)
{
    seat *const s = &r->seats[i];
    const apr_request q = r->waiting;

    *s = (seat){.is_taken = true, .is_joining = true, .request = q, .began_s = apr_seconds_now()};
    s->reply.n_prompt = (int64_t)q.n_prompt;
    s->reply.n_shared = s->position = has_keeper(r) ? kept_of(r, &q) : 0;
    if (s->position > 0) {
        APR_TRY(apr_session_share(r->session, r->n_seats, i, s->position, err));
    } else {
        apr_session_use(r->session, i);
        apr_session_reset(r->session);
    }
    r->has_waiting = false;
    r->joining = i;
    APR_TRY(read_next(r, false, err)); /* what it has alike with the next one is kept on the way */
    if (r->has_waiting && has_keeper(r)) {
        const int64_t n = alike(r, q.prompt, (int64_t)q.n_prompt - 1, r->waiting.prompt, (int64_t)r->waiting.n_prompt - 1);
        if (n > s->position && n > kept_of(r, &r->waiting)) s->keep = n;
    }
    return APR_OK;
}

/* The request that waits is refused, seated, or goes on waiting. */
static apr_status try_join(run *r, apr_error *err)
{
    apr_reply reply = {0};
    apr_sampler sampler;
    int64_t i = 0;

    reply.status = refusal(r, &r->waiting, &reply.error);
    if (reply.status != APR_OK) return refuse(r, &r->waiting, &reply, err);
    while (i < r->n_seats && r->seats[i].is_taken) i++;
    if (i == r->n_seats) return APR_OK;
    if (!has_room(r, &r->waiting)) forget_kept(r);
    if (!has_room(r, &r->waiting)) return APR_OK;
    reply.status = apr_sampler_open(&sampler, apr_session_program(r->session)->vocab_size, &r->waiting.sampling, &reply.error);
    if (reply.status != APR_OK) {
        apr_sampler_close(&sampler);
        return refuse(r, &r->waiting, &reply, err);
    }
    apr_sampler_take(&sampler, r->waiting.prompt, r->waiting.n_prompt);
    const apr_status status = sit_down(r, i, err);
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

static apr_status leave(run *r, int64_t i, apr_error *err)
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

/* The seat's next token, and whether it was its last. */
static void take_token(run *r, seat *s, int32_t id)
{
    const bool is_stop = is_stop_id(&s->request, id);
    const bool goes_on = r->schedule->on_token(r->schedule->user, s->request.tag, id, is_stop);

    if (s->reply.n_generated++ == 0) s->reply.first_seconds = apr_seconds_now() - s->began_s;
    r->stats->n_generated++;
    s->next_id = id;
    s->is_ending = true;
    if (is_stop || !goes_on) s->reply.finish = is_stop ? APR_FINISH_STOP : APR_FINISH_CALLER;
    else if (s->reply.n_generated >= s->request.max_tokens) s->reply.finish = APR_FINISH_LIMIT;
    else if (s->position >= n_ctx(r)) s->reply.finish = APR_FINISH_CONTEXT;
    else s->is_ending = false;
}

/* On a device logits stay there, and what is likeliest comes back. */
static bool leaves_logits(const run *r) { return has_keeper(r) && has_device(r); }

/* What follows a prompt that has just been evaluated. */
static apr_status choose_first(run *r, seat *s, const apr_best *best, int32_t *id, apr_error *err)
{
    if (leaves_logits(r)) return apr_choose(r->session, &s->sampler, best, id, err);
    APR_TRY(apr_session_read_logits(r->session, err));
    *id = apr_sample(&s->sampler, apr_session_logits(r->session));
    return APR_OK;
}

/* One piece of the prompt of the one who joins; *n_tokens more. */
static apr_status evaluate_piece(run *r, int64_t *n_tokens, apr_error *err)
{
    const int64_t i = r->joining;
    seat *const s = &r->seats[i];
    const int64_t left = (int64_t)s->request.n_prompt - s->position, piece = piece_of(r) - s->position % piece_of(r);
    const int64_t n = left < piece ? left : piece;
    apr_best best = apr_sampler_wish(&s->sampler);
    const apr_eval_output out = {.best = n == left && leaves_logits(r) ? &best : NULL};
    int32_t id;

    apr_session_use(r->session, i);
    APR_TRY(apr_session_eval(r->session, s->request.prompt + s->position, (size_t)n, &out, err));
    s->position += n;
    *n_tokens += n;
    if (s->keep == s->position) APR_TRY(keep(r, i, err));
    if (s->position < (int64_t)s->request.n_prompt) return APR_OK;
    s->is_joining = false;
    r->joining = NOBODY;
    apr_session_use(r->session, i);
    APR_TRY(choose_first(r, s, &best, &id, err));
    take_token(r, s, id);
    return s->is_ending ? leave(r, i, err) : APR_OK;
}

static int64_t most_rows(const run *r)
{
    const int64_t n_batch = apr_session_plan(r->session)->n_batch;
    return n_batch < MOST_STEPPED ? n_batch : (int64_t)MOST_STEPPED;
}

/* It follows from the prompt alone which way its tokens go. */
static bool is_to_be_stepped(const run *r, const seat *s)
{
    const int64_t left = (int64_t)s->request.n_prompt - s->position;
    return leaves_logits(r) && left <= MOST_STEPPED && left <= piece_of(r) - s->position % piece_of(r) &&
           apr_session_steps_prompts(r->session);
}

/* Rows of a step as they come; who ends leaves after it. */
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

/* The same on a device, where logits stay: the same token. */
static apr_status take_best(void *user, int64_t row, const apr_best *best, apr_error *err)
{
    run *const r = user;
    seat *const s = &r->seats[r->tokens[row].sequence];
    int32_t id;

    s->position++;
    if (s->is_stepped && s->position < (int64_t)s->request.n_prompt) return APR_OK;
    s->is_stepped = s->is_joining = false;
    APR_TRY(apr_choose(r->session, &s->sampler, best, &id, err));
    take_token(r, s, id);
    return APR_OK;
}

static apr_status step(run *r, int64_t n, apr_error *err)
{
    const apr_eval_output rows = {.on_logits = take_rows, .user = r}, bests = {.best = r->bests, .on_best = take_best, .user = r};
    const apr_eval_output out = leaves_logits(r) ? bests : rows;

    for (int64_t k = 0; k < n; k++) r->bests[k] = apr_sampler_wish(&r->seats[r->tokens[k].sequence].sampler);
    if (has_keeper(r)) return apr_session_step(r->session, r->tokens, n, &out, err);
    return apr_session_eval(r->session, &r->tokens[0].id, 1, &out, err);
}

static bool is_ended(const run *r) { return r->schedule->is_ended != NULL && r->schedule->is_ended(r->schedule->user); }

static apr_status let_ending_leave(run *r, apr_error *err)
{
    for (int64_t i = 0; i < r->n_seats; i++)
        if (r->seats[i].is_taken && r->seats[i].is_ending) APR_TRY(leave(r, i, err));
    return APR_OK;
}

/* The ends of prompts that are rows of steps, as many at once as a step has room for, until there are no more. */
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
        APR_TRY(let_ending_leave(r, err));
    }
    return APR_OK;
}

/* All that are under way. */
static apr_status go_on(run *r, apr_error *err)
{
    int64_t n = 0;

    for (int64_t i = 0; i < r->n_seats; i++)
        if (r->seats[i].is_taken && !r->seats[i].is_joining) r->tokens[n++] = (apr_sequence_token){i, r->seats[i].next_id};
    if (n == 0) return APR_OK;
    r->stats->n_steps++;
    if (n > r->stats->most_at_once) r->stats->most_at_once = n;
    APR_TRY(step(r, n, err));
    return let_ending_leave(r, err);
}

static bool is_idle(const run *r)
{
    for (int64_t i = 0; i < r->n_seats; i++)
        if (r->seats[i].is_taken) return false;
    return true;
}

/* The one who joins goes on, or the next one comes, with *n_tokens more. *more: another one may, for no prompt was left unfinished and
 * somebody came. */
static apr_status join_one(run *r, int64_t *n_tokens, bool *more, apr_error *err)
{
    const bool idle = is_idle(r);

    *more = false;
    if (r->joining == NOBODY) {
        APR_TRY(read_next(r, idle, err));
        if (r->has_waiting) APR_TRY(try_join(r, err));
    }
    if (r->joining == NOBODY || is_ended(r)) return APR_OK;
    if (is_to_be_stepped(r, &r->seats[r->joining])) {
        seat *const s = &r->seats[r->joining];
        s->is_stepped = true;
        *n_tokens += (int64_t)s->request.n_prompt - s->position;
        r->joining = NOBODY;
    } else {
        APR_TRY(evaluate_piece(r, n_tokens, err));
    }
    *more = r->joining == NOBODY;
    return APR_OK;
}

static apr_status let_join(run *r, apr_error *err)
{
    int64_t n_tokens = 0;
    bool more = true;

    for (int n = 0; (n < MOST_JOINING || n_tokens < piece_of(r)) && more && !is_ended(r); n++) APR_TRY(join_one(r, &n_tokens, &more, err));
    return APR_OK;
}

static apr_status run_all(run *r, apr_error *err)
{
    while (!is_ended(r)) {
        APR_TRY(let_join(r, err));
        if (!is_ended(r)) APR_TRY(step_prompts(r, err));
        if (is_idle(r) && r->at_end && !r->has_waiting) break;
        if (!is_ended(r)) APR_TRY(go_on(r, err));
    }
    return APR_OK;
}

apr_status apr_schedule_run(apr_session *session, const apr_schedule *schedule, apr_schedule_stats *stats, apr_error *err)
{
    const double begin = apr_seconds_now();
    run r = {.session = session, .schedule = schedule, .stats = stats, .n_seats = apr_schedule_width(session), .joining = NOBODY};

    *stats = (apr_schedule_stats){0};
    r.seats = calloc((size_t)r.n_seats, sizeof *r.seats);
    r.n_rows = most_rows(&r);
    const int64_t n_tokens = r.n_seats > r.n_rows ? r.n_seats : r.n_rows;
    r.tokens = calloc((size_t)n_tokens, sizeof *r.tokens);
    r.bests = calloc((size_t)n_tokens, sizeof *r.bests);
    r.kept = calloc((size_t)n_ctx(&r), sizeof *r.kept);
    const bool has_memory = r.seats != NULL && r.tokens != NULL && r.bests != NULL && r.kept != NULL;
    const apr_status status = has_memory ? run_all(&r, err) : apr_no_memory(err, "the table of requests");
    for (int64_t i = 0; i < apr_session_n_sequences(session); i++) {
        apr_session_use(session, i);
        apr_session_reset(session);
        if (i < r.n_seats && r.seats != NULL && r.seats[i].is_taken) apr_sampler_close(&r.seats[i].sampler);
    }
    free(r.seats);
    free(r.tokens);
    free(r.bests);
    free(r.kept);
    stats->seconds = apr_seconds_now() - begin;
    return status;
}
