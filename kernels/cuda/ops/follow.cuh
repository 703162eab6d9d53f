/* follow.cuh - kernels that are brought to the multiprocessors while the one in front of them still runs (programmatic dependent launch,
 * from 9.0 on; elsewhere all of this is nothing): most kernels of a token are over sooner than the next one would have been started.
 *
 *     let_next_begin();       the next kernel may come, when all blocks of this one have said so
 *     wait_for_previous();    what kernels in front of this one wrote is there, and they read nothing any more
 *
 * Every kernel that launch_following starts waits, in all its threads, before it reads what other kernels write and before it writes
 * anything; before that only weights, tables and arguments may be read, and what was there before the chain began: a token's position, and
 * cells of the cache from before this token, for a token begins when the one in front of it is over (a graph waits for what is in front
 * of it, and without one the host does). What runs beside
 * the one in front of it (flow_kernel.cuh, is_beside) is let in when that has waited, and waits itself at its end. So a chain of them is in
 * order, whoever said what when. What was written meanwhile must not be read as constant (__ldg), for such reads may be older than the
 * wait. */
#ifndef APR_KERNELS_CUDA_FOLLOW_CUH
#define APR_KERNELS_CUDA_FOLLOW_CUH

#include "kernels/cuda/device/code.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ptx.cuh"

#include <cuda_runtime.h>

static __device__ __forceinline__ void let_next_begin(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    ptx_let_next_begin();
#endif
}

static __device__ __forceinline__ void wait_for_previous(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    ptx_wait_for_previous();
#endif
}

/* Both, in the first line of a kernel that has nothing to do before. */
static __device__ __forceinline__ void follow_previous(void)
{
    let_next_begin();
    wait_for_previous();
}

/* Arguments come 64 bytes at a time, from as far away as what they point to: all of them, while there is time. The answer is to be written
 * somewhere, or nothing is read. */
template <typename ARGS> static __device__ __forceinline__ float bring_arguments(const ARGS &a)
{
    const uint32_t *const words = (const uint32_t *)&a;
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < (int)(sizeof a / sizeof *words); i += 64 / (int)sizeof *words) sum += words[i];
    return __uint_as_float(sum);
}

/* Does the code that the current device runs wait? */
static inline bool lets_kernels_follow(void) { return apr_cuda_code_major() >= 9; }

/* As kernel<<<grid, threads, n_shared, stream>>>(args...), blocks in clusters of so many along x (more than one: from 9.0 on); what went
 * wrong is also cudaGetLastError's. */
template <typename... PARAMETERS, typename... ARGS>
static inline cudaError_t launch_following_in_clusters(void (*kernel)(PARAMETERS...), unsigned cluster, dim3 grid, dim3 threads,
                                                       size_t n_shared, cudaStream_t stream, const ARGS &...args)
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
    config.attrs = attributes + (lets_kernels_follow() ? 0 : 1);
    config.numAttrs = (lets_kernels_follow() ? 1 : 0) + (cluster > 1 ? 1 : 0);
    return cudaLaunchKernelEx(&config, kernel, PARAMETERS(args)...);
}

template <typename... PARAMETERS, typename... ARGS>
static inline cudaError_t launch_following(void (*kernel)(PARAMETERS...), dim3 grid, dim3 threads, size_t n_shared, cudaStream_t stream,
                                           const ARGS &...args)
{
    return launch_following_in_clusters(kernel, 1, grid, threads, n_shared, stream, args...);
}

#endif
