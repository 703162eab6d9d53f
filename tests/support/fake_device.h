/* fake_device.h - a CUDA device that is none: host memory, and kernels/ref's operations on what a session has put there.
 *
 * So everything between a program and a device (the plan's lines, weights laid out and uploaded, states cleared) is tested where there is
 * no GPU. Memory is exact in size, for sanitizers; what was allocated is counted.
 *
 * Any number of devices may be open, under any ordinals. The memory of each can be touched only while that device works: an operation
 * given a pointer to another device's memory, and a host that follows a pointer to any device's, end in a signal. */
#ifndef APR_TESTS_FAKE_DEVICE_H
#define APR_TESTS_FAKE_DEVICE_H

#include "kernels/cuda/api.h"

const apr_cuda_api *fake_device(void);

/* Bytes allocated on the devices that are open, or were open last; of one of them, in the order of opening. */
uint64_t fake_device_bytes(void);
uint64_t fake_device_bytes_of(int nth);
/* What the next one says of Q8_0: without a kernel it is kept as FP16. */
void fake_device_takes_q8_0(bool on);
/* The same of packed matrices in the canonical layout. */
void fake_device_takes_packed(bool on);
/* How many graphs were replayed since the first device was opened, and how many are there to be forgotten. */
int fake_device_replays(void);
int fake_device_graphs(void);
/* What the next ones record cannot be made into a graph. */
void fake_device_records(bool on);
/* Do products of a single token use the decode GEMV? At first not. Only with 16-bit weights. */
void fake_device_has_decode_gemv(bool on);
int fake_device_decode_gemvs(void);  /* how many were made, ever */
int fake_device_qkv_epilogues(void); /* and rotations with what stores */
int fake_device_prompt_steps(void);  /* steps of many tokens, ever */
/* The n-th allocation from now on fails as if the memory were full; 0: none does. What the memory's size is said to be. */
void fake_device_fail_allocation(int64_t nth);
void fake_device_has_memory(uint64_t n_bytes);
/* Does it say that the host's memory is its own? At first not. */
void fake_device_is_integrated(bool on);
/* The bytes in use that a driver would report; UINT64_MAX, at first: unknown. */
void fake_device_has_in_use(uint64_t n_bytes);
/* The most bytes that were there at a time, of all devices, since the first was opened. */
uint64_t fake_device_most_bytes(void);
uint64_t fake_device_bytes_there(void); /* now, on those that are open */
/* From now on, so many operations run; then the device fails. Negative: it never does. */
void fake_device_fail_after(int64_t n_operations);

#endif
