/* fake_feedback.h - error feedback of a device that is none: kernels/cuda/api.h's steps by plain loops and by quant/feedback's own rows, so
 * that what comes through a device must be what the host makes from the same sums.
 *
 * Its memory is the host's, unless a device says otherwise: then that tells when the device works, and where it finds its memory. */
#ifndef APR_TESTS_FAKE_FEEDBACK_H
#define APR_TESTS_FAKE_FEEDBACK_H

#include "kernels/cuda/api.h"

extern const apr_cuda_feedback fake_feedback;

typedef struct fake_feedback_state {
    void (*touch)(apr_cuda_device *device, bool on); /* NULL: it works at any time */
    void (*see)(void *args, size_t n_bytes);         /* makes pointers into devices' memory the devices' own; NULL: they are the host's */
    int n_open, n_steps;                             /* solvers; calls of the table */
    int fail_at;                                     /* the call that fails; 0: none */
    int refuse;                                      /* so many factorisations fail */
    const char *name;                                /* NULL: "a fake" */
} fake_feedback_state;

extern fake_feedback_state fake_feedback_is;

#endif
