/* updates.c - see updates.h. */
#include "quant/heal/updates.h"

#include "formats/base/worker.h"

#include <stdlib.h>

/* A gradient that waits for its step, or whose tensor has not been given back since. */
typedef struct waiting {
    apr_updates *updates;
    const apr_tensor *tensor;
    const float *gradient;
    int64_t n;
    apr_latent_rates rates;
    int64_t step;
} waiting;

struct apr_updates {
    apr_trained *trained;
    apr_worker *worker;
    float *memory;
    int64_t n_numbers, at; /* at: where the next gradient begins, unless what is left there is too short */
    uint64_t n_added, n_given_back;
    size_t n_tensors;
    waiting tensors[]; /* tensor k at k % n_tensors */
};

static waiting *waiting_at(apr_updates *u, uint64_t k) { return &u->tensors[k % u->n_tensors]; }

apr_status apr_updates_open(apr_updates **updates, apr_trained *trained, float *memory, int64_t n_numbers, size_t n_tensors, apr_error *err)
{
    apr_updates *const u = *updates = calloc(1, sizeof *u + n_tensors * sizeof *u->tensors);

    if (u == NULL) return apr_no_memory(err, "the gradients of a step");
    u->trained = trained;
    u->memory = memory;
    u->n_numbers = n_numbers;
    u->n_tensors = n_tensors;
    const apr_status status = apr_worker_open(&u->worker, n_tensors, err);
    if (status == APR_OK) return APR_OK;
    free(u);
    *updates = NULL;
    return status;
}

void apr_updates_close(apr_updates *u)
{
    if (u == NULL) return;
    apr_worker_close(u->worker);
    free(u);
}

/* Is none of the gradients that wait for their step in [from, from + n)? Steps are taken in order, so the last one of them matters; *last is
 * its number, from 1. */
static bool is_free(apr_updates *u, int64_t from, int64_t n, uint64_t *last)
{
    const uint64_t n_ended = apr_worker_n_ended(u->worker);

    for (uint64_t k = u->n_added; k-- > n_ended;) {
        const waiting *const w = waiting_at(u, k);
        const int64_t begin = w->gradient - u->memory;
        if (begin >= from + n || begin + w->n <= from) continue;
        *last = k + 1;
        return false;
    }
    return true;
}

float *apr_updates_room(apr_updates *u, int64_t n)
{
    uint64_t last;

    if (u->n_numbers - u->at < n) u->at = 0;
    while (!is_free(u, u->at, n, &last)) apr_worker_wait(u->worker, last);
    return u->memory + u->at;
}

static void take_step(void *user)
{
    const waiting *const w = user;
    apr_trained_step(w->updates->trained, w->tensor, w->gradient, &w->rates, w->step);
}

void apr_updates_add(apr_updates *u, const apr_tensor *tensor, const float *gradient, const apr_latent_rates *rates, int64_t step)
{
    waiting *const w = waiting_at(u, u->n_added++);

    *w = (waiting){u, tensor, gradient, apr_tensor_elems(tensor), *rates, step};
    u->at = gradient - u->memory + w->n;
    apr_worker_start(u->worker, take_step, w);
}

const apr_tensor *apr_updates_ended(apr_updates *u)
{
    return u->n_given_back < apr_worker_n_ended(u->worker) ? waiting_at(u, u->n_given_back++)->tensor : NULL;
}

const apr_tensor *apr_updates_last(apr_updates *u)
{
    if (u->n_given_back == u->n_added) return NULL;
    apr_worker_wait(u->worker, u->n_given_back + 1);
    return apr_updates_ended(u);
}
