/* fake_device.h - a CUDA device that is none: host memory, and kernels/ref's operations on what a session has put there.
 *
 * So everything between a program and a device (the plan's lines, weights laid out and uploaded, states cleared) is tested where there is
 * no GPU. Memory is exact in size, for sanitizers; what was allocated is counted. */
#ifndef APR_TESTS_FAKE_DEVICE_H
#define APR_TESTS_FAKE_DEVICE_H

#include "kernels/cuda/api.h"

const apr_cuda_api *fake_device(void);

/* Bytes allocated on the device that is open, and what the next one says of Q8_0: without a kernel it is kept as FP16. */
uint64_t fake_device_bytes(void);
void fake_device_takes_q8_0(bool on);
/* The same of packed matrices in their regular form. */
void fake_device_takes_packed(bool on);
/* From now on, so many operations run; then the device fails. Negative: it never does. */
void fake_device_fail_after(int64_t n_operations);

#endif
