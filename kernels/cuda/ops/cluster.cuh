/* cluster.cuh - blocks of one cluster (9.0 and up) read each other's shared memory. */
#ifndef APR_KERNELS_CUDA_CLUSTER_CUH
#define APR_KERNELS_CUDA_CLUSTER_CUH

#include <stdint.h>

/* Until all blocks of the cluster that have not ended are here; what they wrote before is seen after. */
static __device__ __forceinline__ void cluster_barrier(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/* What block `rank` of the cluster has where this one has *p. */
static __device__ __forceinline__ float4 cluster_load(const float4 *p, int rank)
{
    float4 v = *p;
#if __CUDA_ARCH__ >= 900
    uint32_t at;
    asm volatile("mapa.shared::cluster.u32 %0,%1,%2;" : "=r"(at) : "r"((uint32_t)__cvta_generic_to_shared(p)), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3},[%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at) : "memory");
#endif
    return v;
}

#endif
