/* launch.cuh - sizes of launches. */
#ifndef APR_KERNELS_CUDA_LAUNCH_CUH
#define APR_KERNELS_CUDA_LAUNCH_CUH

#include <stdint.h>

/* Number of thread blocks for n things, `each` of them per block. */
static inline unsigned blocks_of(int64_t n, int64_t each) { return (unsigned)((n + each - 1) / each); }

#endif
