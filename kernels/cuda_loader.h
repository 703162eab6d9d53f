/* cuda_loader.h - finds and loads libaprkit-cuda.so; all other functions are in the table that it returns. */
#ifndef APR_KERNELS_CUDA_LOADER_H
#define APR_KERNELS_CUDA_LOADER_H

#include "kernels/cuda/drills.h"

#define APR_CUDA_LIBRARY        "libaprkit-cuda.so"
#define APR_CUDA_DRILLS_LIBRARY "libaprkit-cuda-drills.so"

/* Looks next to the running program first, then in lib/aprkit next to its folder, then in the library search path. APR_E_DEVICE: there is
 * no library, it cannot be loaded (the message includes the loader's), or it is another build. Once loaded it stays, because CUDA cannot
 * be unloaded. */
apr_status apr_cuda_load(const apr_cuda_api **api, apr_error *err);

/* The same, from the test library that also injects faults. */
apr_status apr_cuda_load_drills(const apr_cuda_api **api, apr_cuda_drill_fn *drill, apr_error *err);

#endif
