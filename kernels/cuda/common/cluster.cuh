/* cluster.cuh - thread blocks of a cluster (9.0 and up) read each other's shared memory. */
#ifndef APR_KERNELS_CUDA_CLUSTER_CUH
#define APR_KERNELS_CUDA_CLUSTER_CUH

#include "kernels/cuda/device/ptx.cuh"

/* Barrier of all blocks of the cluster that have not ended; their earlier writes are visible after it. */
static __device__ __forceinline__ void cluster_barrier(void)
{
#if __CUDA_ARCH__ >= 900
    ptx_cluster_barrier();
#endif
}

/* *p of block `rank` of the cluster. */
static __device__ __forceinline__ float4 cluster_load(const float4 *p, int rank)
{
#if __CUDA_ARCH__ >= 900
    return ptx_cluster_load(p, rank);
#else
    return *p;
#endif
}

#endif
