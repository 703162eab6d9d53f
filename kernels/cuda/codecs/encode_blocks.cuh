/* encode_blocks.cuh - Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and MXFP4: eight threads per block of 32.
 *
 * Thread l of a block holds its values l, 8 + l, 16 + l and 24 + l: lane l of the reference's sums, and both nibbles of bytes l and 8 + l.
 * A sum of the eight lanes over distances 4, 2 and 1 is apr_sum8. */
#ifndef APR_KERNELS_CUDA_ENCODE_BLOCKS_CUH
#define APR_KERNELS_CUDA_ENCODE_BLOCKS_CUH

#include "kernels/cuda/codecs/codecs.cuh"
#include "kernels/cuda/device/launch.cuh"

enum { ELEMS = 32, LANES = 8, EACH = ELEMS / LANES, THREADS = 256 };

/* A thread's position in its block. */
struct member {
    unsigned group; /* mask of the block's threads in the warp */
    int lane;
};

static __device__ __forceinline__ float sum8(member m, float v)
{
    for (int step = 4; step > 0; step /= 2) v += __shfl_xor_sync(m.group, v, step);
    return v;
}

static __device__ __forceinline__ float max8(member m, float v)
{
    for (int step = 4; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(m.group, v, step));
    return v;
}

static __device__ __forceinline__ uint32_t or8(member m, uint32_t v)
{
    for (int step = 4; step > 0; step /= 2) v |= __shfl_xor_sync(m.group, v, step);
    return v;
}

/* The value with the largest magnitude, the first of equals, with its sign: the maximum of keys of magnitude, index from the end, and
 * sign. */
template <int N> static __device__ float signed_extreme(member m, const float (&x)[N])
{
    uint64_t best = 0;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const uint32_t bits = apr_f32_bits(x[k]);
        const uint64_t key = (uint64_t)(bits & 0x7fffffff) << 9 | (uint32_t)(LANES * N - 1 - (LANES * k + m.lane)) << 1 | bits >> 31;
        best = key > best ? key : best;
    }
    for (int step = 4; step > 0; step /= 2) {
        const uint64_t other = __shfl_xor_sync(m.group, best, step);
        best = other > best ? other : best;
    }
    const uint32_t magnitude = (uint32_t)(best >> 9);
    return magnitude == 0 ? 0.0f : apr_f32_from_bits(magnitude | (uint32_t)(best & 1) << 31);
}

static __device__ __forceinline__ float inverse(float d) { return d > 0x1p-126f || d < -0x1p-126f ? 1.0f / d : 0.0f; }

static __device__ __forceinline__ void put_nibbles(member m, const uint32_t *code, uint8_t *qs)
{
    qs[m.lane] = (uint8_t)((code[0] & 0x0f) | (code[2] & 0x0f) << 4);
    qs[8 + m.lane] = (uint8_t)((code[1] & 0x0f) | (code[3] & 0x0f) << 4);
}

/* Bit i is the fifth bit of code i. */
static __device__ __forceinline__ uint32_t fifth_bits(member m, const uint32_t *code)
{
    uint32_t bits = 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) bits |= code[k] >> 4 << (LANES * k + m.lane);
    return or8(m, bits);
}

/* code = trunc(x / d + half + 0.5), bounded; d = extreme / -half. */
static __device__ float symmetric_codes(member m, float (&x)[EACH], float half, uint32_t *code)
{
#pragma unroll
    for (int k = 0; k < EACH; k++) x[k] = apr_clamp_finite(x[k], APR_F16_MAX * half);
    const float d = signed_extreme(m, x) / -half, id = inverse(d);
#pragma unroll
    for (int k = 0; k < EACH; k++) code[k] = (uint32_t)apr_clamp(x[k] * id + (half + 0.5f), 0.0f, 2.0f * half - 1.0f);
    return d;
}

/* `low` is the least value; a zero gets the sign of the first zero. */
static __device__ float least_value(member m, const float *x, float low)
{
    uint32_t first = 2 * ELEMS; /* index and sign */
    if (low != 0.0f) return low;
#pragma unroll
    for (int k = EACH - 1; k >= 0; k--)
        if (x[k] == 0.0f) first = (uint32_t)(LANES * k + m.lane) << 1 | apr_f32_bits(x[k]) >> 31;
    for (int step = 4; step > 0; step /= 2) first = min(first, __shfl_xor_sync(m.group, first, step));
    return first & 1 ? -0.0f : 0.0f;
}

/* code = trunc((x - min) / d + 0.5), bounded; d = (max - min) / steps. */
static __device__ void affine_codes(member m, float *x, float steps, float *d, float *offset, uint32_t *code)
{
    float low = FLT_MAX, high = -FLT_MAX;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        x[k] = apr_clamp_finite(x[k], APR_F16_MAX * (steps - 1.0f));
        low = x[k] < low ? x[k] : low;
        high = x[k] > high ? x[k] : high;
    }
    low = least_value(m, x, -max8(m, -low));
    high = max8(m, high);
    low = apr_clamp(low, -APR_F16_MAX, APR_F16_MAX);
    *offset = low;
    *d = high > low ? (high - low) / steps : 0.0f;
    const float id = inverse(*d);
#pragma unroll
    for (int k = 0; k < EACH; k++) code[k] = (uint32_t)apr_clamp((x[k] - low) * id + 0.5f, 0.0f, steps);
}

template <apr_dtype D> __device__ void encode_block(member m, float (&x)[EACH], typename block_of<D>::type *block);

template <> inline __device__ void encode_block<APR_Q4_0>(member m, float (&x)[EACH], apr_block_Q4_0 *block)
{
    uint32_t code[EACH];
    const float d = symmetric_codes(m, x, 8.0f, code);
    put_nibbles(m, code, block->qs);
    if (m.lane == 0) block->d = apr_f32_to_f16(d);
}

template <> inline __device__ void encode_block<APR_Q5_0>(member m, float (&x)[EACH], apr_block_Q5_0 *block)
{
    uint32_t code[EACH];
    const float d = symmetric_codes(m, x, 16.0f, code);
    const uint32_t high = fifth_bits(m, code);
    put_nibbles(m, code, block->qs);
    if (m.lane != 0) return;
    block->d = apr_f32_to_f16(d);
    block->qh = high;
}

template <> inline __device__ void encode_block<APR_Q4_1>(member m, float (&x)[EACH], apr_block_Q4_1 *block)
{
    uint32_t code[EACH];
    float d, min;
    affine_codes(m, x, 15.0f, &d, &min, code);
    put_nibbles(m, code, block->qs);
    if (m.lane == 0) block->d = apr_f32_to_f16(d);
    if (m.lane == 1) block->m = apr_f32_to_f16(min);
}

template <> inline __device__ void encode_block<APR_Q5_1>(member m, float (&x)[EACH], apr_block_Q5_1 *block)
{
    uint32_t code[EACH];
    float d, min;
    affine_codes(m, x, 31.0f, &d, &min, code);
    const uint32_t high = fifth_bits(m, code);
    put_nibbles(m, code, block->qs);
    if (m.lane == 0) block->d = apr_f32_to_f16(d);
    if (m.lane == 1) block->m = apr_f32_to_f16(min);
    if (m.lane == 2) block->qh = high;
}

/* Rounded to nearest, halves away from zero, as the reference does it. */
template <> inline __device__ void encode_block<APR_Q8_0>(member m, float (&x)[EACH], apr_block_Q8_0 *block)
{
    float amax = 0.0f;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        x[k] = apr_clamp_finite(x[k], APR_F16_MAX * 127.0f);
        amax = fmaxf(amax, fabsf(x[k]));
    }
    const float d = max8(m, amax) / 127.0f, id = inverse(d);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const float t = x[k] * id, whole = (float)(int)t, rest = t - whole;
        block->qs[LANES * k + m.lane] = (int8_t)(int)(whole + (rest >= 0.5f ? 1.0f : 0.0f) - (rest <= -0.5f ? 1.0f : 0.0f));
    }
    if (m.lane == 0) block->d = apr_f32_to_f16(d);
}

/* ---- MXFP4 ---- */

enum { MX_MAX_E = 252 };

static __device__ __forceinline__ float nearest_e2m1(float a)
{
    const float below_4 = (a > 0.5f ? 1.0f : 0.0f) + (a > 1.5f ? 1.0f : 0.0f) + (a > 2.5f ? 1.0f : 0.0f) + (a > 3.5f ? 1.0f : 0.0f);
    return below_4 + (a > 5.0f ? 2.0f : 0.0f) + (a > 7.0f ? 2.0f : 0.0f) + (a > 10.0f ? 4.0f : 0.0f);
}

static __device__ __forceinline__ uint32_t code_e2m1(float u)
{
    const float a = u < 0.0f ? -u : u;
    const int index = (a > 0.5f) + (a > 1.5f) + (a > 2.5f) + (a > 3.5f) + (a > 5.0f) + (a > 7.0f) + (a > 10.0f);
    return (uint32_t)(index + (u < 0.0f && index != 0 ? 8 : 0));
}

/* BY: weighted errors. */
template <bool BY> static __device__ float squared_error(member m, const float *u, const float *w, float step)
{
    const float inverse = 1.0f / step;
    float lane = 0.0f;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const float a = u[k] < 0.0f ? -u[k] : u[k];
        const float err = nearest_e2m1(a * inverse) * step - a;
        lane += BY ? w[k] * err * err : err * err;
    }
    return sum8(m, lane);
}

/* The exponent floor(log2(max)) - 2, one below and one above: the least squared error, of equals the smallest. */
template <bool BY> static __device__ void encode_mxfp4(member m, float *x, const float *w, apr_block_MXFP4 *block)
{
    uint32_t amax_bits = 0, code[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        x[k] = apr_clamp_finite(x[k], FLT_MAX);
        amax_bits = max(amax_bits, apr_f32_bits(x[k]) & 0x7fffffff);
    }
    for (int step = 4; step > 0; step /= 2) amax_bits = max(amax_bits, __shfl_xor_sync(m.group, amax_bits, step));
    const uint32_t exponent = amax_bits >> 23, floor_e = exponent > 2 ? exponent - 2 : 0;
    const int shift = 128 - (int)floor_e, first = shift / 2, second = shift - first; /* 2^shift need not be a float */
    const float f = apr_f32_from_bits((uint32_t)(first + 127) << 23), g = apr_f32_from_bits((uint32_t)(second + 127) << 23);
#pragma unroll
    for (int k = 0; k < EACH; k++) x[k] = x[k] * f * g;

    int best = -1;
    float least = 0.0f;
#pragma unroll
    for (int k = 0; k < 3; k++) {
        const float err = squared_error<BY>(m, x, w, 0.5f * (float)(1 << k));
        const bool allowed = floor_e + (uint32_t)k >= 1 && floor_e + (uint32_t)k - 1 <= MX_MAX_E;
        if (allowed && (best < 0 || err < least)) best = k, least = err;
    }
    const float inverse = best == 0 ? 2.0f : best == 1 ? 1.0f : 0.5f;
#pragma unroll
    for (int k = 0; k < EACH; k++) code[k] = code_e2m1(x[k] * inverse);
    put_nibbles(m, code, block->qs);
    if (m.lane == 0) block->e = amax_bits == 0 ? 0 : (uint8_t)(floor_e + (uint32_t)best - 1);
}

template <> inline __device__ void encode_block<APR_MXFP4>(member m, float (&x)[EACH], apr_block_MXFP4 *block)
{
    encode_mxfp4<false>(m, x, nullptr, block);
}

#endif
