/* encode_q6_k.cu - Q6_K: sixteen threads per block of 256, each with a sub-block of 16 in its registers. */
#include "kernels/cuda/codecs/codecs.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/ref/k_search.h"

enum { ELEMS = 256, SUBS = 16, SUB_ELEMS = 16, THREADS = 128 };
enum { MIN_CODE = -32, MAX_CODE = 31, MIN_SCALE = -128, MAX_SCALE = 127 };

struct sums {
    float qq, qx;
};

/* The stored parameters of the block, and the scale of this thread's sub-block. */
struct layout {
    uint16_t d;
    int scale;
    float error;
};

static __device__ __forceinline__ float inverse_of(float step) { return step != 0.0f ? 1.0f / step : 0.0f; }

static __device__ __forceinline__ float code_of(float x, float inverse)
{
    return apr_clamp(apr_round_even(x * inverse), (float)MIN_CODE, (float)MAX_CODE);
}

/* Squared codes are integers: their sum is exact in any order. The other two sums use the reference's lanes. */
template <bool BY>
static __device__ __forceinline__ float try_step(const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS], float step, sums *s)
{
    const float inverse = inverse_of(step);
    float qx[8], ee[8], qq[8];
    s->qq = 0.0f;
#pragma unroll
    for (int l = 0; l < 8; l++) {
        const float q = code_of(x[l], inverse), r = code_of(x[8 + l], inverse);
        const float e = step * q - x[l], f = step * r - x[8 + l];
        if constexpr (BY) {
            const float wq = w[l] * q, wr = w[8 + l] * r;
            qq[l] = wq * q + wr * r;
            qx[l] = wq * x[l] + wr * x[8 + l];
            ee[l] = w[l] * e * e + w[8 + l] * f * f;
        } else {
            s->qq += q * q + r * r;
            qx[l] = q * x[l] + r * x[8 + l];
            ee[l] = e * e + f * f;
        }
    }
    if constexpr (BY) s->qq = apr_sum8(qq);
    s->qx = apr_sum8(qx);
    return apr_sum8(ee);
}

/* Step 1: the best step of a sub-block, of either sign. */
template <bool BY> static __device__ float search_sub_block(const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS])
{
    enum { TRIALS = APR_Q6_K_TRIALS };
    float amax = 0.0f, extreme = 0.0f, gain = 0.0f, best = 0.0f;
#pragma unroll
    for (int j = 0; j < SUB_ELEMS; j++) {
        const float magnitude = x[j] < 0.0f ? -x[j] : x[j];
        if (magnitude > amax) amax = magnitude, extreme = x[j];
    }
    if (!(amax > 0x1p-40f)) return 0.0f;
#pragma unroll 1
    for (int t = 0; t < TRIALS; t++) {
        sums s;
        try_step<BY>(x, w, extreme / (APR_Q6_K_MIDDLE + APR_Q6_K_GAP * (float)(TRIALS / 2 - t)), &s);
        const float fit = s.qx / s.qq;
        if (s.qx * fit > gain) gain = s.qx * fit, best = fit;
    }
    return best;
}

static __device__ uint16_t stored_scale(float x)
{
    const uint16_t half = apr_f32_to_f16(apr_clamp(x, -APR_F16_MAX, APR_F16_MAX));
    return (half & 0x7fff) == 0 && x != 0.0f ? (uint16_t)(half | 1) : half;
}

/* Step 3: tries the given scale and two neighbours on each side; returns what the best one adds to the sums of step 4. */
template <bool BY>
static __device__ float choose_scale(const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS], float d, int *scale, float *aa, float *ax)
{
    enum { REACH = APR_Q6_K_REACH };
    const int middle = *scale, first = middle - REACH < MIN_SCALE ? MIN_SCALE : middle - REACH;
    const int last = middle + REACH > MAX_SCALE ? MAX_SCALE : middle + REACH;
    float least = -1.0f;
    sums s, best = {};
#pragma unroll 1
    for (int t = first; t <= last; t++) {
        const float error = try_step<BY>(x, w, d * (float)t, &s);
        if (least < 0.0f || error < least) least = error, best = s, *scale = t;
    }
    const float a = (float)*scale;
    *aa = a * a * best.qq;
    *ax = a * best.qx;
    return least;
}

/* 0 + the values of the sixteen sub-blocks, in their order. */
static __device__ float sum_in_order(unsigned group, float v)
{
    float total = 0.0f;
#pragma unroll
    for (int sub = 0; sub < SUBS; sub++) total += __shfl_sync(group, v, sub, SUBS);
    return total;
}

/* The value with the largest magnitude, the first of equals. */
static __device__ float signed_largest(unsigned group, float v)
{
    float largest = 0.0f, value = 0.0f;
#pragma unroll
    for (int sub = 0; sub < SUBS; sub++) {
        const float other = __shfl_sync(group, v, sub, SUBS), magnitude = other < 0.0f ? -other : other;
        if (magnitude > largest) largest = magnitude, value = other;
    }
    return value;
}

template <bool BY> static __device__ layout search_block(unsigned group, const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS])
{
    const float ideal = search_sub_block<BY>(x, w);
    layout now = {}, best;

    __syncwarp(group);
    now.d = stored_scale(signed_largest(group, ideal) / (float)MIN_SCALE);
    best = now;
    now.scale = (int)apr_clamp(apr_round_even(ideal * inverse_of(apr_f16_to_f32(now.d))), (float)MIN_SCALE, (float)MAX_SCALE);
#pragma unroll 1
    for (int round = 0; round < APR_Q6_K_ROUNDS; round++) {
        float aa, ax;
        const float error = choose_scale<BY>(x, w, apr_f16_to_f32(now.d), &now.scale, &aa, &ax);
        __syncwarp(group);
        now.error = sum_in_order(group, error);
        aa = sum_in_order(group, aa);
        ax = sum_in_order(group, ax);
        if (round > 0 && !(now.error < best.error)) break;
        best = now;
        if (!(aa > 0.0f)) break;
        now.d = stored_scale(ax / aa);
        if (now.d == best.d) break;
    }
    return best;
}

/* Four bytes at an even address. */
static __device__ __forceinline__ void put_word(uint8_t *to, uint32_t word)
{
    ((uint16_t *)to)[0] = (uint16_t)word;
    ((uint16_t *)to)[1] = (uint16_t)(word >> 16);
}

/* Sub-block 8 * half + 2 * k + f: its low nibbles are in 16 bytes of ql, in the lower halves for k < 2, next to those of the sub-block with
 * k ^ 2; its upper bits are bits 2k of 16 bytes of qh. Two threads share the first, four the second. */
static __device__ void put_codes(unsigned group, int sub, const uint32_t (&word)[4], apr_block_Q6_K *block)
{
    const int half = sub / 8, k = sub % 8 / 2, first = sub % 2 * SUB_ELEMS;
    uint8_t *const ql = block->ql + 64 * half + k % 2 * 32 + first, *const qh = block->qh + 32 * half + first;
    uint32_t low[4], high[4];
#pragma unroll
    for (int w = 0; w < 4; w++) {
        low[w] = (word[w] & 0x0f0f0f0fu) << k / 2 * 4;
        low[w] |= __shfl_xor_sync(group, low[w], 4);
        high[w] = (word[w] >> 4 & 0x03030303u) << 2 * k;
        high[w] |= __shfl_xor_sync(group, high[w], 2);
        high[w] |= __shfl_xor_sync(group, high[w], 4);
    }
    put_word(ql + 8 * (k / 2), k < 2 ? low[0] : low[2]);
    put_word(ql + 8 * (k / 2) + 4, k < 2 ? low[1] : low[3]);
    put_word(qh + 4 * k, k == 0 ? high[0] : k == 1 ? high[1] : k == 2 ? high[2] : high[3]);
}

template <bool BY>
static __global__ void __launch_bounds__(THREADS)
    k_encode_q6_k(const float *src, codec_importance importance, apr_block_Q6_K *dst, int64_t n_blocks)
{
    const int64_t b = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / SUBS;
    const int sub = (int)threadIdx.x % SUBS;
    const unsigned group = 0xffffu << (threadIdx.x & 16);
    const float limit = APR_F16_MAX * (float)MAX_SCALE * (float)MAX_CODE;
    float x[SUB_ELEMS], w[SUB_ELEMS];
    uint32_t word[4];

    if (b >= n_blocks) return; /* all threads of a group return together */
    if constexpr (BY) {
        const float *const columns = importance_of_block(importance, b * ELEMS);
        const block_weights weigh = weights_of_block<ELEMS>(group, sub % 8, columns);
#pragma unroll
        for (int k = 0; k < SUB_ELEMS; k++) w[k] = weigh(columns[sub * SUB_ELEMS + k]);
    }
    const float4 *const values = (const float4 *)(src + b * ELEMS + sub * SUB_ELEMS);
#pragma unroll
    for (int k = 0; k < SUB_ELEMS / 4; k++) {
        const float4 v = values[k];
        x[4 * k] = apr_clamp_finite(v.x, limit);
        x[4 * k + 1] = apr_clamp_finite(v.y, limit);
        x[4 * k + 2] = apr_clamp_finite(v.z, limit);
        x[4 * k + 3] = apr_clamp_finite(v.w, limit);
    }
    const layout best = search_block<BY>(group, x, w);
    const float inverse = inverse_of(apr_f16_to_f32(best.d) * (float)best.scale);
    __syncwarp(group);
#pragma unroll
    for (int w = 0; w < 4; w++) {
        word[w] = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) word[w] |= (uint32_t)((int)code_of(x[4 * w + k], inverse) - MIN_CODE) << 8 * k;
    }
    put_codes(group, sub, word, dst + b);
    dst[b].scales[sub] = (int8_t)best.scale;
    if (sub == 0) *(uint16_t *)((uint8_t *)(dst + b) + offsetof(apr_block_Q6_K, d)) = best.d;
}

template <bool BY>
static cudaError_t launch_all(const float *src, const codec_importance *importance, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const int64_t n_blocks = n_elems / ELEMS, per_grid_block = THREADS / SUBS;
    const unsigned n = blocks_of(n_blocks, per_grid_block);
    k_encode_q6_k<BY><<<n, THREADS, 0, stream>>>(src, *importance, (apr_block_Q6_K *)dst, n_blocks);
    return cudaGetLastError();
}

static cudaError_t launch(const float *src, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const codec_importance none = {};
    return launch_all<false>(src, &none, dst, n_elems, stream);
}

launch_encode_fn encoder_of_q6_k(apr_dtype dtype) { return dtype == APR_Q6_K ? launch : (launch_encode_fn) nullptr; }
launch_encode_by_fn encoder_by_of_q6_k(apr_dtype dtype) { return dtype == APR_Q6_K ? launch_all<true> : (launch_encode_by_fn) nullptr; }
