/* drills.h - deliberate faults for tests. They are in a separate library, libaprkit-cuda-drills.so: all of libaprkit-cuda.so and one more
 * function (tests/gpu/drills.cu). `make check-gpu` and `make check-emulated` build it; it is not installed. */
#ifndef APR_KERNELS_CUDA_DRILLS_H
#define APR_KERNELS_CUDA_DRILLS_H

#include "kernels/cuda/api.h"

typedef enum {
    APR_CUDA_DRILL_OUT_OF_BOUNDS, /* a kernel writes out of bounds */
    APR_CUDA_DRILL_BAD_GEMM,      /* a matrix product with invalid dimensions */
    APR_CUDA_DRILL_HANG,          /* a kernel that never ends */
    APR_CUDA_DRILL_COUNT
} apr_cuda_drill;

typedef apr_status (*apr_cuda_drill_fn)(apr_cuda_device *device, apr_cuda_drill which, apr_error *err);

/* The exported symbol. */
#define APR_CUDA_DRILL_ENTRY "apr_cuda_drill_device"

#endif
