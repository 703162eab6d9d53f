/* cuda_loader.h - finds and loads libaprkit-cuda.so; everything else is behind its table of functions. */
#ifndef APR_KERNELS_CUDA_LOADER_H
#define APR_KERNELS_CUDA_LOADER_H

#include "kernels/cuda/drills.h"

#define APR_CUDA_LIBRARY        "libaprkit-cuda.so"
#define APR_CUDA_DRILLS_LIBRARY "libaprkit-cuda-drills.so"

/* Beside the running program first, then where libraries are searched. APR_E_DEVICE: there is none, or one that cannot be
 * loaded (the sentence has the loader's words), or of another build. Once loaded it stays: CUDA cannot be unloaded. */
apr_status apr_cuda_load(const apr_cuda_api **api, apr_error *err);

/* The same from the library that also has faults on purpose. */
apr_status apr_cuda_load_drills(const apr_cuda_api **api, apr_cuda_drill_fn *drill, apr_error *err);

#endif
