/* runtime/calibrate/inputs.h - what the products of a model are given: the rows that every matrix multiplies, while a text goes by.
 *
 * A feed is one thing that matrices read: a value of the program (q, k and v of a layer have one feed), or what is routed to experts,
 * or what lies between an expert's two products. A weight that several operations use (a tied head, layers that are shared) has as many
 * feeds: whoever sums up adds them. Sums kept by feed are therefore kept once.
 *
 *     apr_feeds_of(&feeds, session)                     which matrix reads which feed
 *     apr_feeds_visit(&feeds, session, &pass, ids, n)   one window of tokens, from nothing; pass.visit sees the rows
 *
 * Rows are float32 in the host's memory, as the operation read them, whatever the session runs on; middles of experts are made here once
 * more, on the host. Looked-up tables (embeddings), routers' biases and matrices that are read along their columns (the first half of
 * latent attention) have no feed: what is not multiplied row by row has no column that a row's number belongs to. */
#ifndef APR_RUNTIME_CALIBRATE_INPUTS_H
#define APR_RUNTIME_CALIBRATE_INPUTS_H

#include "runtime/session/session.h"
#include "runtime/session/trace.h"

typedef struct apr_feed {
    size_t op;         /* the first operation that reads it */
    int value;         /* of the program; of experts what they are given */
    bool is_middle;    /* what an expert's last product is given */
    int layer;         /* -1: of no layer */
    int64_t width;     /* numbers of a row: columns of every matrix that reads it */
    int64_t n_experts; /* 0: every token, the same for all */
} apr_feed;

/* A matrix, or the matrices of all experts side by side, and a feed that it reads. */
typedef struct apr_fed {
    int slot; /* program->weights[]; apr_trace_tensors gives the tensors: one an expert where slot->count says so */
    size_t feed;
} apr_fed;

typedef struct apr_feeds {
    apr_feed *feeds; /* in the order in which a token meets them */
    size_t n_feeds;
    apr_fed *fed; /* in the order of the operations; weights that the model does not have are not there */
    size_t n_fed;
} apr_feeds;

apr_status apr_feeds_of(apr_feeds *feeds, const apr_session *session, apr_error *err);
void apr_feeds_close(apr_feeds *feeds);

/* n_rows rows [n_rows, feed->width] that are given to expert `expert` (-1: to everything that reads the feed); n_rows >= 1. They live
 * until the call returns. Of one batch of tokens each feed comes once, an expert's once for each expert that has tokens, in the order
 * of their numbers. Another answer than APR_OK ends the visit. */
typedef apr_status (*apr_visit_fn)(void *user, size_t feed, int64_t expert, int64_t n_rows, const float *rows, apr_error *err);

typedef struct apr_pass {
    const bool *wanted; /* [n_feeds]; NULL: all. Where a window is one batch, nothing behind the last of them is computed */
    apr_visit_fn visit;
    /* NULL, or called in place of `visit` with what lies in a device's memory: rows of no expert, that all there are read. They must not be
     * needed any more when it returns. */
    apr_status (*visit_there)(void *user, size_t feed, int64_t n_rows, const float *rows, apr_error *err);
    void *user;
} apr_pass;

/* The session begins anew before and afterwards. It must not fall back to the host: a window would be seen twice. Fails as
 * apr_session_eval does, and with what `visit` answers. */
apr_status apr_feeds_visit(const apr_feeds *feeds, apr_session *session, const apr_pass *pass, const int32_t *ids, int64_t n_ids,
                           apr_error *err);

#endif
