/* runtime/session/scheduler.h - many prompts through one session: sequences join, go on together a token at a time, and leave.
 *
 * A prompt is evaluated in pieces of APR_PAGE_CELLS tokens (on a device APR_DEVICE_PIECE), counted from its beginning; between two pieces
 * those that are under way get their next token, and between two prompts that end so, after four of them, or where these are short, after
 * so many as have a piece's tokens together. On a device the last tokens of several prompts are rows of one step, where the session can do
 * so. So what a request is answered depends on it alone: not on the others, nor on the order in which they come.
 *
 * A request joins when a sequence is free and the cache has room for all that it may come to. What it begins with as the next one does, in
 * whole pieces, is kept in the session's last sequence, which no request has, and not computed again. In a session of one sequence
 * requests come one after another. */
#ifndef APR_RUNTIME_SCHEDULER_H
#define APR_RUNTIME_SCHEDULER_H

#include "runtime/session/generate.h"

/* As many as a device's products of many tokens need to be fast; its sessions should take so many at a time. */
enum { APR_DEVICE_PIECE = 512 };

typedef struct apr_request {
    const int32_t *prompt; /* [n_prompt], the caller's until it is done */
    size_t n_prompt;
    int64_t max_tokens;
    apr_sample_options sampling;
    const int32_t *stop_ids; /* [n_stop_ids] */
    size_t n_stop_ids;
    void *tag; /* the caller's name for it */
} apr_request;

typedef struct apr_reply {
    apr_finish finish;
    int64_t n_prompt, n_shared, n_generated; /* n_shared: tokens of the prompt that had been computed for another */
    double first_seconds, seconds;           /* from joining to the first token, to the end */
    apr_status status;                       /* why it could not be answered, and nothing above is said; else APR_OK */
    apr_error error;
} apr_reply;

typedef enum { APR_NEXT_REQUEST, APR_NEXT_LATER, APR_NEXT_NONE } apr_next;

typedef struct apr_schedule {
    /* The next request. may_wait: nothing else is to be done until there is one; else APR_NEXT_LATER where it is not there yet. */
    apr_status (*next)(void *user, bool may_wait, apr_next *what, apr_request *request, apr_error *err);
    /* A new token, the stop id included; false ends its sequence. */
    bool (*on_token)(void *user, void *tag, int32_t id, bool is_stop);
    apr_status (*on_done)(void *user, void *tag, const apr_reply *reply, apr_error *err);
    /* Asked between evaluations: true ends the run, and what is under way is given up without on_done. NULL: never. */
    bool (*is_ended)(void *user);
    void *user;
} apr_schedule;

typedef struct apr_schedule_stats {
    int64_t n_done, n_prompt, n_shared, n_generated, n_steps; /* n_prompt: evaluated or shared */
    int64_t most_at_once;
    double seconds;
} apr_schedule_stats;

/* Until there are no more requests. A callback's failure, and one of the session, ends the run. */
apr_status apr_schedule_run(apr_session *session, const apr_schedule *schedule, apr_schedule_stats *stats, apr_error *err);
/* The session's sequences that requests can have: all, or all but the last where there are several. */
int64_t apr_schedule_width(const apr_session *session);

#endif
