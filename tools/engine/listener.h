/* listener.h - what long work of the engine tells its caller, which may show it. */
#ifndef APR_ENGINE_LISTENER_H
#define APR_ENGINE_LISTENER_H

#include "formats/base/progress.h"

/* A listener may be NULL, and so may each of its functions. */
typedef struct apr_listener {
    apr_progress (*begin)(void *user);                       /* work that is counted begins */
    void (*end)(void *user);                                 /* and ends */
    void (*kept)(void *user, uint64_t done, uint64_t total); /* so much of it is on the disk, for a run that continues it */
    void *user;
} apr_listener;

static inline apr_progress apr_listener_begin(const apr_listener *l)
{
    return l != 0 && l->begin != 0 ? l->begin(l->user) : (apr_progress){0};
}

static inline void apr_listener_end(const apr_listener *l)
{
    if (l != 0 && l->end != 0) l->end(l->user);
}

static inline void apr_listener_kept(const apr_listener *l, uint64_t done, uint64_t total)
{
    if (l != 0 && l->kept != 0) l->kept(l->user, done, total);
}

#endif
