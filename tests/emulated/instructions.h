/* instructions.h - what kernels/cuda/device/ptx.cuh has, on the host: the same functions, which do what the instruction does.
 *
 * Those of a warp (tensor cores, matrices from shared memory) are meetings of its 32 lanes. Copies that a kernel starts and waits for
 * happen when they are waited for, so that who does not wait finds nothing; in the order "backward" at once, so that who starts one too
 * early overwrites what others read; shuffled, one or the other. */
#ifndef APR_TESTS_EMULATED_INSTRUCTIONS_H
#define APR_TESTS_EMULATED_INSTRUCTIONS_H

#include <cuda_runtime.h>

#include <math.h>
#include <string.h>

namespace emulated
{

/* d += a * b: kind says of what. */
enum product { F16, F16_DEPTH_8, BF16, S8, U8 };
void multiply(product kind, operand *brought_and_taken);
void load_matrices(const void *row, uint32_t *m, bool turned);
void copy_later(void *to, const void *from, int n_bytes);
void close_copies(void);
void wait_for_copies(int n_left);
void begin_barrier(uint64_t *at, int n_arrivals);
void arrive(uint64_t *at, int n_bytes);
void await_round(uint64_t *at, int parity);
void copy_bulk(void *to, const void *from, int n_bytes, uint64_t *at);
void load_column(uint64_t matrix, int tile, int column, int t, uint32_t (&word)[2]);
const void *in_block_of_cluster(const void *p, int rank, size_t n_bytes);

template <typename D>
static inline void mma(product kind, D (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    operand o = {{a0, a1, a2, a3, b0, b1}};
    memcpy(o.word + 8, d, sizeof d);
    multiply(kind, &o);
    memcpy(d, o.word, sizeof d);
}

} // namespace emulated

static inline void ptx_launch_dependents(void) {}
static inline void ptx_wait_for_dependencies(void) {}

static inline void ptx_cluster_barrier(void) { emulated::meet_cluster(); }
static inline float4 ptx_cluster_load(const float4 *p, int rank)
{
    return *(const float4 *)emulated::in_block_of_cluster(p, rank, sizeof(float4));
}

static inline void ptx_mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    emulated::mma(emulated::F16, d, a0, a1, a2, a3, b0, b1);
}
static inline void ptx_mma_f16_in_order(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    emulated::mma(emulated::F16, d, a0, a1, a2, a3, b0, b1);
}
static inline void ptx_mma_f16_in_order(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0)
{
    emulated::mma(emulated::F16_DEPTH_8, d, a0, a1, 0, 0, b0, 0);
}
static inline void ptx_mma_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    emulated::mma(emulated::BF16, d, a0, a1, a2, a3, b0, b1);
}
static inline void ptx_mma_s8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    emulated::mma(emulated::S8, d, a0, a1, a2, a3, b0, b1);
}
static inline void ptx_mma_u8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    emulated::mma(emulated::U8, d, a0, a1, a2, a3, b0, b1);
}

static inline void ptx_load_matrices(uint32_t (&m)[4], const void *row) { emulated::load_matrices(row, m, false); }
static inline void ptx_load_matrices_transposed(uint32_t (&m)[4], const void *row) { emulated::load_matrices(row, m, true); }

static inline void ptx_copy_16(void *to, const void *from) { emulated::copy_later(to, from, 16); }
static inline void ptx_copy_16_or_zeros(void *to, const void *from, bool there) { emulated::copy_later(to, from, there ? 16 : 0); }
static inline void ptx_close_copies(void) { emulated::close_copies(); }
template <int LEFT> static inline void ptx_wait_for_copies(void) { emulated::wait_for_copies(LEFT); }

/* Addresses are asked for all the same: of what is not there the sanitizer speaks up. */
static inline void ptx_prefetch(const void *p) { (void)*(const volatile char *)p; }

static inline void ptx_begin_barrier(uint64_t *b, int n_arrivals) { emulated::begin_barrier(b, n_arrivals); }
static inline void ptx_show_barriers(void) {}
static inline void ptx_arrive(uint64_t *b) { emulated::arrive(b, 0); }
static inline void ptx_arrive_with_bytes(uint64_t *b, int n_bytes) { emulated::arrive(b, n_bytes); }
static inline void ptx_await_round(uint64_t *b, int parity) { emulated::await_round(b, parity); }
static inline void ptx_copy_bulk(void *to, const void *from, int n_bytes, uint64_t *b) { emulated::copy_bulk(to, from, n_bytes, b); }
static inline void ptx_copy_bulk_once(void *to, const void *from, int n_bytes, uint64_t *b) { emulated::copy_bulk(to, from, n_bytes, b); }

/* A warp's part of a warpgroup's product, done at once: where it is waited for is not seen here. A matrix is an address of 48 bits, then
 * the step by 16, then whether columns are 64 bytes apart. */
#define PTX_HAS_WARPGROUPS (__CUDA_ARCH__ == 900)
static inline uint64_t ptx_matrix_64(const void *p, int step) { return (uint64_t)1 << 63 | (uint64_t)(step >> 4) << 48 | (uint64_t)p; }
static inline uint64_t ptx_matrix_32(const void *p, int step) { return (uint64_t)(step >> 4) << 48 | (uint64_t)p; }
static inline uint64_t ptx_matrix_after(uint64_t matrix, int n_bytes) { return matrix + (uint64_t)n_bytes; }
static inline void ptx_group_fence(void) {}
static inline void ptx_group_close(void) {}
template <int LEFT> static inline void ptx_group_wait(void) {}
template <bool ADDS, int N> static inline void ptx_group_mma_f16(float (&d)[N], const uint32_t (&a)[4], uint64_t b)
{
    const int lane = (int)threadIdx.x % 32;
    for (int tile = 0; tile < N / 4; tile++) {
        float(&sums)[4] = *(float(*)[4])(d + 4 * tile);
        uint32_t word[2];
        emulated::load_column(b, tile, lane / 4, lane % 4, word);
        if (!ADDS) sums[0] = sums[1] = sums[2] = sums[3] = 0.0f;
        emulated::mma(emulated::F16, sums, a[0], a[1], a[2], a[3], word[0], word[1]);
    }
}

static inline void ptx_load_shared_if(bool holds, const void *at, uint4 &x)
{
    if (holds) x = *(const uint4 *)at;
}
static inline void ptx_store_16(void *to, uint2 low, uint2 high) { *(uint4 *)to = make_uint4(low.x, low.y, high.x, high.y); }

template <uint32_t MASK> static inline uint32_t ptx_either(uint32_t a, uint32_t b) { return (a & MASK) | (b & ~MASK); }
static inline uint32_t ptx_and_or(uint32_t word, uint32_t mask, uint32_t bits) { return (word & mask) | bits; }

static inline uint32_t ptx_max_halves(uint32_t a, uint32_t b) { return max(a >> 16, b >> 16) << 16 | max(a & 0xffffu, b & 0xffffu); }

static inline uint32_t ptx_permute(uint32_t a, uint32_t b, uint32_t selector)
{
    const uint64_t both = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t s = selector >> 4 * i & 0xf, byte = (uint32_t)(both >> (s & 7) * 8) & 0xff;
        out |= (s & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << 8 * i;
    }
    return out;
}

static inline uint32_t ptx_bf16_pair(float high, float low) { return (uint32_t)apr_f32_to_bf16(high) << 16 | apr_f32_to_bf16(low); }

/* What is subnormal counts as zero, before and after. */
static inline float ptx_exp2(float x)
{
    const float y = exp2f(fpclassify(x) == FP_SUBNORMAL ? 0.0f : x);
    return fpclassify(y) == FP_SUBNORMAL ? 0.0f : y;
}

static inline int ptx_thread_x(void) { return (int)threadIdx.x; }

#endif
