/* encode_steps.cuh - the search of kernels/ref/step_search.h by eight threads: thread l has values l, 8 + l, ..., lane l of its sums.
 *
 * All eight get the same sums, so they decide alike. */
#ifndef APR_KERNELS_CUDA_ENCODE_STEPS_CUH
#define APR_KERNELS_CUDA_ENCODE_STEPS_CUH

#include "kernels/cuda/codecs/encode_blocks.cuh"

extern "C" {
#include "kernels/ref/step_ladders.h"
}

/* ---- levels: index_of a value over the step, counted from the lowest level, and the nearest level ---- */

struct iq4_levels {
    static __device__ __forceinline__ uint32_t index_of(float v)
    {
        const int8_t levels[16] = {APR_IQ4_LEVELS};
        uint32_t index = 0;
#pragma unroll
        for (int k = 0; k < 15; k++) index += v > 0.5f * (float)(levels[k] + levels[k + 1]);
        return index;
    }
    static __device__ __forceinline__ float nearest(float v)
    {
        const int8_t levels[16] = {APR_IQ4_LEVELS};
        float level = (float)levels[0]; /* whole numbers: exact */
#pragma unroll
        for (int k = 0; k < 15; k++) level += v > 0.5f * (float)(levels[k] + levels[k + 1]) ? (float)(levels[k + 1] - levels[k]) : 0.0f;
        return level;
    }
};

template <int LOW, int HIGH> struct whole_levels {
    static __device__ __forceinline__ float nearest(float v) { return apr_clamp(apr_round_even(v), (float)LOW, (float)HIGH); }
    static __device__ __forceinline__ uint32_t index_of(float v) { return (uint32_t)((int)nearest(v) - LOW); }
};

/* ---- one step ---- */

template <class L, int N> static __device__ float2 step_fit(member m, const float (&x)[N], const float (&w)[N], float step)
{
    const float inverse = apr_inverse_of(step);
    float cc = 0.0f, cx = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float c = L::nearest(x[k] * inverse), wc = w[k] * c;
        cc += wc * c;
        cx += wc * x[k];
    }
    return {sum8(m, cc), sum8(m, cx)};
}

template <class L, int N> static __device__ float step_error(member m, const float (&x)[N], const float (&w)[N], float step)
{
    const float inverse = apr_inverse_of(step);
    float ee = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float e = step * L::nearest(x[k] * inverse) - x[k];
        ee += w[k] * e * e;
    }
    return sum8(m, ee);
}

/* Trials: each step of the ladder, with both signs if the levels are not symmetric; then the polishes of the best. */
template <class L, int N>
static __device__ float search_step(member m, const float (&x)[N], const float (&w)[N], const apr_step_search &search)
{
    float extreme = signed_extreme(m, x), gain = 0.0f, best = 0.0f, divisor = search.first;
    const int signs = search.longer != 0.0f ? 2 : 1, n_ladder = signs * search.trials;

    const bool is_zero = !(fabsf(extreme) > 0x1p-40f); /* then, no early return: all threads of m.group meet in every sum */
    if (search.longer < 0.0f) extreme = -extreme;
#pragma unroll 1
    for (int t = 0; t < n_ladder + search.polishes; t++) {
        const bool is_second = t % signs != 0;
        const float step = t >= n_ladder ? best : is_second ? -(extreme / divisor) : extreme / divisor;
        const float2 s = step_fit<L>(m, x, w, step);
        const float fit = s.x > 0.0f ? s.y / s.x : 0.0f, won = s.y * fit;
        if (won > search.margin * gain) gain = won, best = fit;
        if (is_second || signs == 1) divisor *= search.ratio;
    }
    return is_zero ? 0.0f : best;
}

template <class L, int N> static __device__ uint16_t search_f16_step(member m, const float (&x)[N], const float (&w)[N], float step)
{
    const uint16_t half = apr_f32_to_f16(apr_clamp(step, -APR_F16_MAX, APR_F16_MAX)), magnitude = half & 0x7fff;
    uint16_t best = half;
    float least = 0.0f;
#pragma unroll 1
    for (int k = 0; k < 3; k++) { /* the nearest, below, above */
        const int next = magnitude + (k == 0 ? 0 : 2 * k - 3);
        if (k > 0 && (next < 0 || next > 0x7bff)) continue;
        const uint16_t other = (uint16_t)((half & 0x8000) | next);
        const float error = step_error<L>(m, x, w, apr_f16_to_f32(other));
        if (k == 0 || error < least) least = error, best = other;
    }
    return best;
}

#endif
