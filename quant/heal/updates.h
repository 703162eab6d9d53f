/* updates.h - Adam's steps of a model's tensors, taken by a thread of their own while something else computes the next gradients.
 *
 *     apr_updates_room(u, n)                    where n numbers of a gradient may be written: waits until so many are free
 *     apr_updates_add(u, tensor, gradient, ..)  the step by it is taken after those before; then its room is free again
 *     apr_updates_ended(u)                      a tensor whose step has been taken, each once; NULL: all are still under way
 *     apr_updates_last(u)                       the same, but waits; NULL: none is left
 *
 * The memory is a ring: gradients lie one behind the other, in the order in which they were asked for, and again at the beginning where the
 * rest is too short. One thread owns the updates; latents are read and written by theirs until apr_updates_last has returned NULL. Steps are
 * taken one at a time, each on all cores, so that bytes are those of apr_trained_step in the same order. */
#ifndef APR_QUANT_UPDATES_H
#define APR_QUANT_UPDATES_H

#include "quant/heal/latents.h"

typedef struct apr_updates apr_updates;

/* memory: of n_numbers floats, the caller's. n_tensors: how many may wait to be given back by the two calls above, at most. */
apr_status apr_updates_open(apr_updates **updates, apr_trained *trained, float *memory, int64_t n_numbers, size_t n_tensors,
                            apr_error *err);
void apr_updates_close(apr_updates *updates); /* takes what is left; NULL is allowed */

/* At most n_numbers of n. Valid until it is added, or the next call. */
float *apr_updates_room(apr_updates *updates, int64_t n);
void apr_updates_add(apr_updates *updates, const apr_tensor *tensor, const float *gradient, const apr_latent_rates *rates, int64_t step);

const apr_tensor *apr_updates_ended(apr_updates *updates);
const apr_tensor *apr_updates_last(apr_updates *updates);

#endif
