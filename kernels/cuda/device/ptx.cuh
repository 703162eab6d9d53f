/* ptx.cuh - instructions without a CUDA C++ function, each in a function that says what it does. The caller checks which architectures have
 * them. */
#ifndef APR_KERNELS_CUDA_PTX_CUH
#define APR_KERNELS_CUDA_PTX_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#define PTX_FN static __device__ __forceinline__

/* --- grids and clusters (9.0) --- */

/* The next kernel of the stream may begin once all blocks of this one have called this or have ended. */
PTX_FN void ptx_launch_dependents(void) { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/* Waits until the previous kernels have finished and their writes are visible. */
PTX_FN void ptx_wait_for_dependencies(void) { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/* Barrier of all threads of the cluster that have not ended; their earlier writes are visible after it. */
PTX_FN void ptx_cluster_barrier(void) { asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory"); }

/* *p of the shared memory of block `rank` of the cluster. */
PTX_FN float4 ptx_cluster_load(const float4 *p, int rank)
{
    float4 v;
    uint32_t at;
    asm volatile("mapa.shared::cluster.u32 %0,%1,%2;" : "=r"(at) : "r"((uint32_t)__cvta_generic_to_shared(p)), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3},[%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at) : "memory");
    return v;
}

/* --- tensor cores: d += a * b, by all lanes of a warp ---
 *
 * a has 16 rows, b has 8 columns. In lane 4 g + t: a0 is of row g, a1 of row g + 8, each the t-th word (two halves or four bytes) of the
 * first half of the depth; a2 and a3 are the same of the second half. b0 and b1 are of column g, the same depths. d[0] and d[1] are row g,
 * columns 2 t and 2 t + 1; d[2] and d[3] are those of row g + 8. */

/* FP16 and BF16, depth 16, float32 sums. The compiler may reorder products as long as the order of each sum stays. */
PTX_FN void ptx_mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
PTX_FN void ptx_mma_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
/* FP16, in the order in which they are written (volatile). Also with depth 8 (7.5), where a and b have half as many words. */
PTX_FN void ptx_mma_f16_in_order(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
PTX_FN void ptx_mma_f16_in_order(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b0));
}
/* Bytes, depth 32: signed or unsigned a, signed b. */
PTX_FN void ptx_mma_s8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
PTX_FN void ptx_mma_u8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Four 8 x 8 matrices of halves: lane l has the address of row l % 8 of matrix l / 8 (16 bytes, in shared memory). m[i] becomes row g,
 * columns 2 t and 2 t + 1 of matrix i, or transposed, column g, rows 2 t and 2 t + 1. */
PTX_FN void ptx_load_matrices(uint32_t (&m)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}
PTX_FN void ptx_load_matrices_transposed(uint32_t (&m)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/* --- asynchronous copies from device memory to shared memory (8.0), and prefetch into the L2 cache --- */

PTX_FN void ptx_copy_16(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
}
/* Writes zeros where `there` is false. */
PTX_FN void ptx_copy_16_or_zeros(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
/* This thread's copies since the last call become a group. */
PTX_FN void ptx_close_copies(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until all but this thread's latest LEFT groups have arrived. */
template <int LEFT> PTX_FN void ptx_wait_for_copies(void) { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

PTX_FN void ptx_prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

/* --- mbarriers in shared memory, and the bulk copies that they count (9.0) --- */

/* Initializes a barrier of so many arrivals. Other threads may use it after ptx_show_barriers and a barrier of the block. */
PTX_FN void ptx_begin_barrier(uint64_t *b, int n_arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(b)), "r"(n_arrivals) : "memory");
}
PTX_FN void ptx_show_barriers(void) { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
PTX_FN void ptx_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"((uint32_t)__cvta_generic_to_shared(b)) : "memory");
}
/* Arrives, and adds so many bytes that this phase waits for. */
PTX_FN void ptx_arrive_with_bytes(uint64_t *b, int n_bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(b)), "r"(n_bytes)
                 : "memory");
}
/* Waits until the phase of this parity has completed: 0 is the first phase. */
PTX_FN void ptx_await_round(uint64_t *b, int parity)
{
    uint32_t is_over;
    do
        asm volatile("{\n.reg .pred over;\nmbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\nselp.u32 %0, 1, 0, over;\n}"
                     : "=r"(is_over)
                     : "r"((uint32_t)__cvta_generic_to_shared(b)), "r"(parity)
                     : "memory");
    while (!is_over);
}
/* Copies so many bytes, a multiple of 16, from device memory to shared memory; the barrier counts them on arrival. */
PTX_FN void ptx_copy_bulk(void *to, const void *from, int n_bytes, uint64_t *b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(n_bytes), "r"((uint32_t)__cvta_generic_to_shared(b))
                 : "memory");
}
/* The same for data that is read once: the L2 cache evicts its lines first. */
PTX_FN void ptx_copy_bulk_once(void *to, const void *from, int n_bytes, uint64_t *b)
{
    asm volatile("{\n.reg .b64 policy;\ncreatepolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
                 "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], policy;\n}" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(n_bytes), "r"((uint32_t)__cvta_generic_to_shared(b))
                 : "memory");
}

/* --- WGMMA: asynchronous products of a warpgroup (four warps), d += a * b (9.0a only) ---
 *
 * a has 64 rows, 16 per warp, each warp's as above; b has N columns. d[4 n] to d[4 n + 3], for the n-th tile of 8 columns, are d[0] to d[3]
 * above. b is in shared memory: 16 halves of each column, 8 columns a matrix, in which columns are 64 or 32 bytes apart and each 16-byte
 * piece is at its position XOR (column / 2 % 4), or XOR (column / 4) (the 64- and 32-byte swizzles). A matrix begins at a multiple of 8
 * such columns. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PTX_HAS_WARPGROUPS 1
#else
#define PTX_HAS_WARPGROUPS 0
#endif

/* The descriptor of b: `step` bytes from matrix to matrix; columns are 64 or 32 bytes apart. */
PTX_FN uint64_t ptx_matrix_64(const void *p, int step)
{
    return (uint64_t)2 << 62 | (uint64_t)(step >> 4) << 32 | (uint64_t)1 << 16 | (__cvta_generic_to_shared(p) & 0x3ffff) >> 4;
}
PTX_FN uint64_t ptx_matrix_32(const void *p, int step)
{
    return (uint64_t)3 << 62 | (uint64_t)(step >> 4) << 32 | (uint64_t)1 << 16 | (__cvta_generic_to_shared(p) & 0x3ffff) >> 4;
}
/* The descriptor of a matrix that begins so many bytes further. */
PTX_FN uint64_t ptx_matrix_after(uint64_t matrix, int n_bytes) { return matrix + (uint64_t)(n_bytes >> 4); }

#if PTX_HAS_WARPGROUPS
/* Orders earlier register accesses before later products. */
PTX_FN void ptx_group_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/* Products since the last call become a group. */
PTX_FN void ptx_group_close(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Waits until all but the latest LEFT groups have completed. */
template <int LEFT> PTX_FN void ptx_group_wait(void) { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

/* ADDS: d += a * b; else d = a * b. */
template <bool ADDS> PTX_FN void ptx_group_mma_f16(float (&d)[4], const uint32_t (&a)[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3},{%4,%5,%6,%7},%8,%9,1,1,0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADDS));
}
template <bool ADDS> PTX_FN void ptx_group_mma_f16(float (&d)[8], const uint32_t (&a)[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7},{%8,%9,%10,%11},%12,%13,1,1,0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADDS));
}
template <bool ADDS> PTX_FN void ptx_group_mma_f16(float (&d)[16], const uint32_t (&a)[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},{%16,%17,%18,%19},%20,%21,1,1,0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
                   "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADDS));
}
#endif

/* --- loads and stores --- */

/* Loads from shared memory without a branch; x is unchanged where `holds` is false. */
PTX_FN void ptx_load_shared_if(bool holds, const void *at, uint4 &x)
{
    asm volatile("{\n.reg .pred holds;\nsetp.ne.u32 holds, %5, 0;\n@holds ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];\n}"
                 : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w)
                 : "r"((uint32_t)__cvta_generic_to_shared(at)), "r"((uint32_t)holds));
}
/* Stores 16 bytes to device memory at once. */
PTX_FN void ptx_store_16(void *to, uint2 low, uint2 high)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(low.x), "r"(low.y), "r"(high.x), "r"(high.y) : "memory");
}

/* --- bits and numbers --- */

/* Bits of a where the mask is set, else those of b. */
template <uint32_t MASK> PTX_FN uint32_t ptx_either(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(r) : "r"(a), "r"(b), "n"(MASK));
    return r;
}
/* (word & mask) | bits. */
PTX_FN uint32_t ptx_and_or(uint32_t word, uint32_t mask, uint32_t bits)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(word), "r"(mask), "r"(bits));
    return r;
}
/* Like __byte_perm, but where bit 3 of a selector nibble is set, the byte's sign bit is replicated 8 times (__byte_perm ignores bit 3). */
PTX_FN uint32_t ptx_permute(uint32_t a, uint32_t b, uint32_t selector)
{
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}
/* The larger of both halves, as unsigned numbers (9.0). */
PTX_FN uint32_t ptx_max_halves(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("max.u16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
/* Two BF16 numbers in a word (8.0). */
PTX_FN uint32_t ptx_bf16_pair(float high, float low)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
/* 2^x; below 2^-126 it is 0. */
PTX_FN float ptx_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
    return y;
}
/* threadIdx.x, read anew each time, so that the compiler does not keep values derived from it in registers. */
PTX_FN int ptx_thread_x(void)
{
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

#undef PTX_FN

#endif
