/* runtime/session/scheduler.h - continuous batching: many prompts through one session. Sequences join, decode together one token a step,
 * and leave.
 *
 * A prompt is evaluated in chunks of APR_PAGE_CELLS tokens (on a device APR_DEVICE_PROMPT_CHUNK), counted from its beginning. Between two
 * chunks the running sequences get their next token. Several prompts that end may be evaluated between two steps: up to four, or short
 * ones up to one chunk's tokens together. On a device the last tokens of several prompts are rows of one step, if the session supports
 * it. The answer to a request depends on it alone: not on the others, nor on their order.
 *
 * A request joins when a sequence is free and the cache has space for the longest possible answer. The prefix that it shares with the
 * next request, in whole chunks, is kept in the session's last sequence and not computed again; no request uses that sequence. In a
 * session of one sequence requests run one after another. */
#ifndef APR_RUNTIME_SCHEDULER_H
#define APR_RUNTIME_SCHEDULER_H

#include "runtime/session/generate.h"

/* The chunk of a prompt on a device: large enough for fast GEMMs. The session's n_batch should be at least this. */
enum { APR_DEVICE_PROMPT_CHUNK = 512 };

typedef struct apr_request {
    const int32_t *prompt; /* [n_prompt], borrowed until on_done */
    size_t n_prompt;
    int64_t max_tokens;
    apr_sample_options sampling;
    const int32_t *stop_ids; /* [n_stop_ids] */
    size_t n_stop_ids;
    void *tag; /* identifies the request to the caller */
} apr_request;

typedef struct apr_reply {
    apr_finish finish;
    int64_t n_prompt, n_shared, n_generated; /* n_shared: tokens of the prompt that were computed for another request */
    double first_seconds, seconds;           /* from joining to the first token; to the end */
    apr_status status;                       /* why it was not answered (nothing above is set then), else APR_OK */
    apr_error error;
} apr_reply;

typedef enum { APR_NEXT_REQUEST, APR_NEXT_LATER, APR_NEXT_NONE } apr_next;

typedef struct apr_schedule {
    /* Gets the next request. may_wait: block until there is one, since nothing else is running; else return APR_NEXT_LATER if there is
     * none yet. */
    apr_status (*next)(void *user, bool may_wait, apr_next *what, apr_request *request, apr_error *err);
    /* Called with each new token, the stop id included; false ends the sequence. */
    bool (*on_token)(void *user, void *tag, int32_t id, bool is_stop);
    apr_status (*on_done)(void *user, void *tag, const apr_reply *reply, apr_error *err);
    /* Called between evaluations; true ends the run and drops unfinished requests without on_done. May be NULL. */
    bool (*is_ended)(void *user);
    void *user;
} apr_schedule;

typedef struct apr_schedule_stats {
    int64_t n_done, n_prompt, n_shared, n_generated, n_steps; /* n_prompt includes shared tokens */
    int64_t most_at_once;
    double seconds;
} apr_schedule_stats;

/* Runs until there are no more requests. A failure of a callback or of the session ends the run. */
apr_status apr_schedule_run(apr_session *session, const apr_schedule *schedule, apr_schedule_stats *stats, apr_error *err);
/* How many sequences requests can use: all if there is one, else all but the last. */
int64_t apr_schedule_width(const apr_session *session);

#endif
