/* fake_grad.h - training on a device that is none: kernels/cuda/api.h's functions by the host's own operations and Adam's steps, so
 * that what is trained through a device must have the host's bits. The device has no experts and no recurrent mixers. */
#ifndef APR_TESTS_FAKE_GRAD_H
#define APR_TESTS_FAKE_GRAD_H

#include "kernels/cuda/api.h"

extern const apr_cuda_grad fake_grad;

#endif
