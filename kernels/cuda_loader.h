/* cuda_loader.h - finds and loads libaprkit-cuda.so; everything else is behind its table of functions. */
#ifndef APR_KERNELS_CUDA_LOADER_H
#define APR_KERNELS_CUDA_LOADER_H

#include "kernels/cuda/api.h"

#define APR_CUDA_LIBRARY "libaprkit-cuda.so"

/* Beside the running program first, then where libraries are searched. APR_E_DEVICE: there is none, or one that cannot be
 * loaded (the sentence has the loader's words), or of another build. Once loaded it stays: CUDA cannot be unloaded. */
apr_status apr_cuda_load(const apr_cuda_api **api, apr_error *err);

#endif
