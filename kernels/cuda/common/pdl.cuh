/* pdl.cuh - programmatic dependent launch (PDL, from 9.0 on; elsewhere all of this does nothing): a kernel's thread blocks are scheduled
 * while the previous kernel still runs. Most kernels of a token take less time than a launch.
 *
 *     pdl_trigger();    the next kernel may be scheduled once all thread blocks of this one have called it
 *     pdl_wait();       the previous kernels have finished: their writes are visible, and they read nothing any more
 *
 * Every kernel that launch_pdl starts waits, in all its threads, before it reads what other kernels write, and before it writes. Before the
 * wait it may read only weights, tables and arguments, and data that is older than the chain: a token's position, and cache cells of
 * earlier tokens. (A token begins when the previous one is finished: a graph waits for that, and without a graph the host does.)
 *
 * A kernel that runs concurrently with the previous one (decode_gemv_kernel.cuh, is_concurrent) is let in after the previous one has waited, and
 * waits itself at its end. So a chain of kernels is in order, whichever kernel triggers when. Do not read what was written meanwhile as
 * constant (__ldg): such reads may be older than the wait. */
#ifndef APR_KERNELS_CUDA_PDL_CUH
#define APR_KERNELS_CUDA_PDL_CUH

#include "kernels/cuda/device/code.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ptx.cuh"

#include <cuda_runtime.h>

static __device__ __forceinline__ void pdl_trigger(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    ptx_launch_dependents();
#endif
}

static __device__ __forceinline__ void pdl_wait(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    ptx_wait_for_dependencies();
#endif
}

/* Both, in the first line of a kernel that has nothing to do before the wait. */
static __device__ __forceinline__ void pdl_trigger_and_wait(void)
{
    pdl_trigger();
    pdl_wait();
}

/* Prefetches the kernel's arguments, 64 bytes at a time: their first read takes as long as one from device memory. The result must be
 * stored somewhere, or the compiler removes the reads. */
template <typename ARGS> static __device__ __forceinline__ float prefetch_arguments(const ARGS &a)
{
    const uint32_t *const words = (const uint32_t *)&a;
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < (int)(sizeof a / sizeof *words); i += 64 / (int)sizeof *words) sum += words[i];
    return __uint_as_float(sum);
}

/* Whether the code that the current device runs has PDL. */
static inline bool code_has_pdl(void) { return apr_cuda_code_major() >= 9; }

/* Like kernel<<<grid, threads, n_shared, stream>>>(args...) with PDL, in clusters of so many thread blocks along x (more than one: from 9.0
 * on). cudaGetLastError also has its error. */
template <typename... PARAMETERS, typename... ARGS>
static inline cudaError_t launch_pdl_clusters(void (*kernel)(PARAMETERS...), unsigned cluster, dim3 grid, dim3 threads, size_t n_shared,
                                              cudaStream_t stream, const ARGS &...args)
{
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};

    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = cluster, attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    config.gridDim = grid;
    config.blockDim = threads;
    config.dynamicSmemBytes = n_shared;
    config.stream = stream;
    config.attrs = attributes + (code_has_pdl() ? 0 : 1);
    config.numAttrs = (code_has_pdl() ? 1 : 0) + (cluster > 1 ? 1 : 0);
    return cudaLaunchKernelEx(&config, kernel, PARAMETERS(args)...);
}

template <typename... PARAMETERS, typename... ARGS>
static inline cudaError_t launch_pdl(void (*kernel)(PARAMETERS...), dim3 grid, dim3 threads, size_t n_shared, cudaStream_t stream,
                                     const ARGS &...args)
{
    return launch_pdl_clusters(kernel, 1, grid, threads, n_shared, stream, args...);
}

#endif
