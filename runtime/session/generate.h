/* runtime/session/generate.h - a prompt's continuation, token by token. */
#ifndef APR_RUNTIME_GENERATE_H
#define APR_RUNTIME_GENERATE_H

#include "runtime/session/sample.h"
#include "runtime/session/session.h"

/* X(id, text) */
#define APR_FINISH_LIST(X)                   \
    X(STOP, "stop")       /* a stop id */    \
    X(LIMIT, "limit")     /* max_tokens */   \
    X(CONTEXT, "context") /* context full */ \
    X(CALLER, "caller")   /* on_token returned false */

typedef enum {
#define X(id, text) APR_FINISH_##id,
    APR_FINISH_LIST(X)
#undef X
} apr_finish;

const char *apr_finish_name(apr_finish finish);

typedef struct apr_generate_options {
    int64_t max_tokens;      /* most new tokens; the stop id counts */
    const int32_t *stop_ids; /* [n_stop_ids] */
    size_t n_stop_ids;
    /* Called with every new token, the stop id included; false ends the generation. May be NULL. */
    bool (*on_token)(void *user, int32_t id, bool is_stop);
    void *user;
} apr_generate_options;

typedef struct apr_generation {
    apr_finish finish;
    int64_t n_prompt, n_generated;
    double prompt_seconds, generate_seconds; /* evaluating the prompt; everything after it */
} apr_generation;

/* Continues from the session's position. APR_E_NO: the prompt does not fit the context. APR_E_USAGE: it is empty. */
apr_status apr_generate(apr_session *session, apr_sampler *sampler, const int32_t *prompt, size_t n_prompt,
                        const apr_generate_options *options, apr_generation *result, apr_error *err);

#endif
