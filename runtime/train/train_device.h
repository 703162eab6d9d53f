/* train_device.h - a GPU on which passes run, with one stream and one workspace for all of them.
 *
 * A teacher and a student on the same device work one after the other, and logits go from the one to the other without the host. The device
 * must outlive its passes. What the passes allocate is in their own plans. */
#ifndef APR_RUNTIME_TRAIN_DEVICE_H
#define APR_RUNTIME_TRAIN_DEVICE_H

#include "kernels/cuda/api.h"
#include "runtime/train/train.h"

typedef struct apr_train_device {
    const apr_cuda_api *cuda;
    apr_cuda_device *device;
    char name[256];
    apr_train_line line; /* what it has allocated: cuBLAS's workspace */
} apr_train_device;

/* APR_E_DEVICE: the machine does not have that GPU, or it failed. */
apr_status apr_train_device_open(apr_train_device **device, const apr_cuda_api *cuda, int ordinal, apr_error *err);
void apr_train_device_close(apr_train_device *device); /* NULL is allowed */

/* Before a run: do n_bytes fit into the memory that is free now? They are what plans say, without `line`. The driver gives whole blocks, so
 * APR_TRAIN_RESERVE is left to it. APR_E_MEMORY: they do not; `what` is what needs them, and `advice` ends the sentence. */
enum { APR_TRAIN_RESERVE = 256 << 20 };
apr_status apr_train_device_check(const apr_train_device *device, uint64_t n_bytes, const char *what, const char *advice, apr_error *err);

#endif
