/* encode_q4_q5_k.cu - Q4_K and Q5_K: eight threads per block of 256, each with a sub-block of 32 in its registers. */
#include "kernels/cuda/codecs/codecs.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/ref/k_search.h"

enum { ELEMS = 256, SUBS = 8, SUB_ELEMS = 32, MAX_SCALE = 63, THREADS = 128 };

/* value = step * code - offset */
struct grid {
    float step, offset;
};

/* Sums over a sub-block: of the weights, the values, and the codes of a grid. */
struct sums {
    float w, x, xx, q, qq, qx;
};

/* Sums over the block, with value = d * a - dmin * b, a = scale * code, b = min. */
struct block_sums {
    float aa, ab, bb, ax, bx;
};

/* The stored parameters of the block, and the scale and minimum of this thread's sub-block. */
struct layout {
    uint16_t d, dmin;
    int scale, min;
    float error;
};

static __device__ __forceinline__ float inverse_of(float step) { return step > 0.0f ? 1.0f / step : 0.0f; }

static __device__ __forceinline__ float code_of(float x, float inverse, float offset, float max_code)
{
    return apr_clamp(apr_round_even((x + offset) * inverse), 0.0f, max_code);
}

static __device__ __forceinline__ float sum(const float (&a)[SUB_ELEMS])
{
    float lane[8];
#pragma unroll
    for (int l = 0; l < 8; l++) lane[l] = a[l] + a[8 + l] + a[16 + l] + a[24 + l];
    return apr_sum8(lane);
}

static __device__ __forceinline__ float dot(const float (&a)[SUB_ELEMS], const float (&b)[SUB_ELEMS])
{
    float lane[8];
#pragma unroll
    for (int l = 0; l < 8; l++) lane[l] = a[l] * b[l] + a[8 + l] * b[8 + l] + a[16 + l] * b[16 + l] + a[24 + l] * b[24 + l];
    return apr_sum8(lane);
}

/* The sums that do not depend on codes. */
template <bool BY> static __device__ __forceinline__ sums sums_of(const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS])
{
    sums s = {};
    if constexpr (BY) {
        float wx[SUB_ELEMS];
#pragma unroll
        for (int j = 0; j < SUB_ELEMS; j++) wx[j] = w[j] * x[j];
        s.w = sum(w);
        s.x = sum(wx);
        s.xx = dot(wx, x);
    } else {
        s.w = (float)SUB_ELEMS;
        s.x = sum(x);
        s.xx = dot(x, x);
    }
    return s;
}

static __device__ __forceinline__ float try_weighed(const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS], grid g, float max_code,
                                                    sums *s)
{
    const float inverse = inverse_of(g.step);
    float q8[8], qq[8], qx[8], ee[8];
#pragma unroll
    for (int l = 0; l < 8; l++)
#pragma unroll
        for (int k = l; k < SUB_ELEMS; k += 8) {
            const float q = code_of(x[k], inverse, g.offset, max_code), e = g.step * q - g.offset - x[k], wq = w[k] * q, we = w[k] * e;
            q8[l] = k == l ? wq : q8[l] + wq;
            qq[l] = k == l ? wq * q : qq[l] + wq * q;
            qx[l] = k == l ? wq * x[k] : qx[l] + wq * x[k];
            ee[l] = k == l ? we * e : ee[l] + we * e;
        }
    s->q = apr_sum8(q8);
    s->qq = apr_sum8(qq);
    s->qx = apr_sum8(qx);
    return apr_sum8(ee);
}

/* Codes and squared codes are integers: their sums are exact in any order. The other two sums use the reference's lanes. */
template <bool BY>
static __device__ __forceinline__ float try_grid(const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS], grid g, float max_code, sums *s)
{
    if constexpr (BY) return try_weighed(x, w, g, max_code, s);
    const float inverse = inverse_of(g.step);
    float qx[8], ee[8];
    s->q = s->qq = 0.0f;
#pragma unroll
    for (int l = 0; l < 8; l++)
#pragma unroll
        for (int k = l; k < SUB_ELEMS; k += 8) {
            const float q = code_of(x[k], inverse, g.offset, max_code), e = g.step * q - g.offset - x[k];
            s->q += q;
            s->qq += q * q;
            qx[l] = k == l ? q * x[k] : qx[l] + q * x[k];
            ee[l] = k == l ? e * e : ee[l] + e * e;
        }
    s->qx = apr_sum8(qx);
    return apr_sum8(ee);
}

static __device__ grid fit(const sums *s, float *error)
{
    const float n = s->w, det = n * s->qq - s->q * s->q;
    grid g = {0.0f, -1.0f};
    if (det > 0.0f) {
        g.step = (n * s->qx - s->q * s->x) / det;
        g.offset = (s->q * s->qx - s->qq * s->x) / det;
    }
    if (g.offset < 0.0f) {
        g.offset = 0.0f;
        g.step = s->qq > 0.0f ? s->qx / s->qq : 0.0f;
    }
    if (g.step < 0.0f) g.step = 0.0f;
    *error = s->xx + g.step * (g.step * s->qq - 2.0f * s->qx) + g.offset * (2.0f * (s->x - g.step * s->q) + n * g.offset);
    return g;
}

/* Step 1: trial grids (from n_trials on the best so far, polished), the sub-block alone. */
template <bool BY>
static __device__ grid search_sub_block(const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS], const apr_k_search search)
{
    const int n_trials = 2 * search.stretches;
    float low = 0.0f, high = x[0];
#pragma unroll
    for (int j = 0; j < SUB_ELEMS; j++) {
        low = x[j] < low ? x[j] : low;
        high = x[j] > high ? x[j] : high;
    }
    grid best = {0.0f, -low};
    if (!(high - low > 0x1p-40f)) return best;

    float least = FLT_MAX, error;
    sums s = sums_of<BY>(x, w);
#pragma unroll 1
    for (int t = 0; t < n_trials + search.polishes; t++) {
        grid trial = best;
        if (t < n_trials) {
            trial.step = (high - low) / (search.first_steps + search.gap * (float)(t / 2));
            trial.offset = -low - 0.5f * (float)(t % 2) * trial.step;
        }
        try_grid<BY>(x, w, trial, search.max_code, &s);
        const grid g = fit(&s, &error);
        if (error < least && (!BY || g.step <= high - low)) least = error, best = g;
        else if (t >= n_trials) break;
    }
    return best;
}

static __device__ __forceinline__ int nearest_scale(float x) { return (int)apr_clamp(apr_round_even(x), 0.0f, (float)MAX_SCALE); }

static __device__ uint16_t stored_scale(float x)
{
    const uint16_t half = apr_f32_to_f16(x < APR_F16_MAX ? x : APR_F16_MAX);
    return half == 0 && x > 0.0f ? 1 : half;
}

/* Step 3: tries the given scale and its neighbours on each side, each with the given minimum and with the best one for it. */
template <bool BY>
static __device__ float choose_scale(const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS], float d, float dmin,
                                     const apr_k_search search, int *scale, int *min, block_sums *mine)
{
    const int reach = search.reach, middle = *scale, first_min = *min, last = middle + reach < MAX_SCALE ? middle + reach : MAX_SCALE;
    const float inverse_dmin = inverse_of(dmin);
    float least = -1.0f;
    sums s = sums_of<BY>(x, w), best = {};

    int t = middle > reach ? middle - reach : 0, m = first_min;
    bool second = false;
#pragma unroll 1
    while (t <= last) {
        const grid g = {d * (float)t, dmin * (float)m};
        const float error = try_grid<BY>(x, w, g, search.max_code, &s);
        if (least < 0.0f || error < least) least = error, best = s, *scale = t, *min = m;
        const int suited = nearest_scale((g.step * s.q - s.x) / s.w * inverse_dmin);
        if (second || suited == m) {
            second = false;
            m = first_min;
            t++;
        } else {
            second = true;
            m = suited;
        }
    }
    const float a = (float)*scale, b = (float)*min;
    mine->aa = a * a * best.qq;
    mine->ab = a * b * best.q;
    mine->bb = b * b * best.w;
    mine->ax = a * best.qx;
    mine->bx = b * best.x;
    return least;
}

/* 0 + the values of the eight sub-blocks, in their order. */
static __device__ float sum_in_order(unsigned group, float v)
{
    float total = 0.0f;
#pragma unroll
    for (int sub = 0; sub < SUBS; sub++) total += __shfl_sync(group, v, sub, SUBS);
    return total;
}

static __device__ float largest(unsigned group, float v)
{
    float most = 0.0f;
#pragma unroll
    for (int sub = 0; sub < SUBS; sub++) {
        const float other = __shfl_sync(group, v, sub, SUBS);
        most = other > most ? other : most;
    }
    return most;
}

/* Step 4; every thread of the block computes the same. */
static __device__ bool fit_block(const block_sums *s, uint16_t *d, uint16_t *dmin)
{
    const float det = s->aa * s->bb - s->ab * s->ab;
    const float fit_d = det > 0.0f ? (s->ax * s->bb - s->bx * s->ab) / det : s->aa > 0.0f ? s->ax / s->aa : 0.0f;
    const float fit_dmin = det > 0.0f ? (s->ax * s->ab - s->bx * s->aa) / det : 0.0f;

    if (!(fit_d > 0.0f && fit_dmin >= 0.0f)) return false;
    *d = stored_scale(fit_d);
    *dmin = stored_scale(fit_dmin);
    return true;
}

template <bool BY>
static __device__ layout search_block(unsigned group, const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS], const apr_k_search search)
{
    const grid ideal = search_sub_block<BY>(x, w, search);
    layout now = {}, best;

    __syncwarp(group);
    now.d = stored_scale(largest(group, ideal.step) / (float)MAX_SCALE);
    now.dmin = stored_scale(largest(group, ideal.offset) / (float)MAX_SCALE);
    best = now;
    now.scale = nearest_scale(ideal.step * inverse_of(apr_f16_to_f32(now.d)));
    now.min = nearest_scale(ideal.offset * inverse_of(apr_f16_to_f32(now.dmin)));
#pragma unroll 1
    for (int round = 0; round < search.rounds; round++) {
        block_sums mine, all;
        const float error = choose_scale<BY>(x, w, apr_f16_to_f32(now.d), apr_f16_to_f32(now.dmin), search, &now.scale, &now.min, &mine);
        __syncwarp(group);
        now.error = sum_in_order(group, error);
        if (round > 0 && !(now.error < best.error)) break;
        best = now;
        all.aa = sum_in_order(group, mine.aa);
        all.ab = sum_in_order(group, mine.ab);
        all.bb = sum_in_order(group, mine.bb);
        all.ax = sum_in_order(group, mine.ax);
        all.bx = sum_in_order(group, mine.bx);
        if (!fit_block(&all, &now.d, &now.dmin) || (now.d == best.d && now.dmin == best.dmin)) break;
    }
    return best;
}

static __device__ __forceinline__ uint32_t or8(unsigned group, uint32_t v)
{
    for (int step = 4; step > 0; step /= 2) v |= __shfl_xor_sync(group, v, step);
    return v;
}

/* d, dmin and the 12 bytes of scales and minimums: 16 bytes, the same at the start of both types. */
static __device__ uint4 head_of(unsigned group, int sub, const layout *best)
{
    const uint32_t scale = (uint32_t)best->scale, min = (uint32_t)best->min, at = 8 * (sub & 3);
    const uint32_t low = sub < 4 ? scale : scale >> 4 << 6, middle = sub < 4 ? min : min >> 4 << 6;
    const uint32_t high = sub < 4 ? 0 : (scale & 0x0f) | (min & 0x0f) << 4;
    return make_uint4(best->d | (uint32_t)best->dmin << 16, or8(group, low << at), or8(group, middle << at), or8(group, high << at));
}

/* Codes in words of four bytes, bit for bit as 32 bytes of codes. */
static __device__ void codes_of(const float (&x)[SUB_ELEMS], const layout *best, float max_code, uint32_t (&word)[8])
{
    const float d = apr_f16_to_f32(best->d), dmin = apr_f16_to_f32(best->dmin);
    const float inverse = inverse_of(d * (float)best->scale), offset = dmin * (float)best->min;
#pragma unroll
    for (int w = 0; w < 8; w++) {
        word[w] = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) word[w] |= (uint32_t)code_of(x[4 * w + k], inverse, offset, max_code) << 8 * k;
    }
}

/* The low nibbles of two sub-blocks in 32 bytes; each of the two threads writes half of them. qs is at a multiple of 16. */
static __device__ void put_nibbles(unsigned group, int sub, const uint32_t (&word)[8], uint8_t *qs)
{
    uint32_t both[8];
#pragma unroll
    for (int w = 0; w < 8; w++) {
        const uint32_t mine = word[w] & 0x0f0f0f0fu, other = __shfl_xor_sync(group, mine, 1);
        both[w] = sub % 2 == 0 ? mine | other << 4 : other | mine << 4;
    }
    uint4 *const to = (uint4 *)(qs + sub / 2 * SUB_ELEMS);
    if (sub % 2 == 0) to[0] = make_uint4(both[0], both[1], both[2], both[3]);
    else to[1] = make_uint4(both[4], both[5], both[6], both[7]);
}

/* Bit s of byte l is the fifth bit of code l of sub-block s; thread w writes word w. */
static __device__ void put_fifth_bits(unsigned group, int sub, const uint32_t (&word)[8], uint8_t *qh)
{
    uint32_t mine = 0;
#pragma unroll
    for (int w = 0; w < 8; w++) {
        const uint32_t all = or8(group, (word[w] >> 4 & 0x01010101u) << sub);
        mine = w == sub ? all : mine;
    }
    ((uint32_t *)qh)[sub] = mine;
}

template <apr_dtype D, bool BY>
static __global__ void __launch_bounds__(THREADS)
    k_encode_q4_q5_k(const float *src, codec_importance importance, typename block_of<D>::type *dst, int64_t n_blocks)
{
    constexpr apr_k_search q4_k = APR_Q4_K_SEARCH, q5_k = APR_Q5_K_SEARCH, search = D == APR_Q4_K ? q4_k : q5_k;
    const float max_code = search.max_code;
    const int64_t b = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / SUBS;
    const int sub = (int)threadIdx.x % SUBS;
    const unsigned group = 0xffu << (threadIdx.x & 24);
    float x[SUB_ELEMS], w[SUB_ELEMS];
    uint32_t word[8];

    if (b >= n_blocks) return; /* all threads of a group return together */
    if constexpr (BY) {
        const float *const columns = importance_of_block(importance, b * ELEMS);
        const block_weights weigh = weights_of_block<ELEMS>(group, sub, columns);
#pragma unroll
        for (int k = 0; k < SUB_ELEMS; k++) w[k] = weigh(columns[sub * SUB_ELEMS + k]);
    }
    const float4 *const values = (const float4 *)(src + b * ELEMS + sub * SUB_ELEMS);
#pragma unroll
    for (int k = 0; k < SUB_ELEMS / 4; k++) {
        const float4 v = values[k];
        const float limit = APR_F16_MAX * (float)MAX_SCALE * max_code;
        x[4 * k] = apr_clamp_finite(v.x, limit);
        x[4 * k + 1] = apr_clamp_finite(v.y, limit);
        x[4 * k + 2] = apr_clamp_finite(v.z, limit);
        x[4 * k + 3] = apr_clamp_finite(v.w, limit);
    }
    const layout best = search_block<BY>(group, x, w, search);
    typename block_of<D>::type *const block = dst + b;
    __syncwarp(group);
    const uint4 head = head_of(group, sub, &best);
    if (sub == 0) *(uint4 *)block = head;
    codes_of(x, &best, max_code, word);
    put_nibbles(group, sub, word, block->qs);
    if constexpr (D == APR_Q5_K) put_fifth_bits(group, sub, word, block->qh);
}

template <apr_dtype D, bool BY>
static cudaError_t launch_all(const float *src, const codec_importance *importance, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const int64_t n_blocks = n_elems / ELEMS, per_grid_block = THREADS / SUBS;
    const unsigned n = blocks_of(n_blocks, per_grid_block);
    k_encode_q4_q5_k<D, BY><<<n, THREADS, 0, stream>>>(src, *importance, (typename block_of<D>::type *)dst, n_blocks);
    return cudaGetLastError();
}

template <apr_dtype D> static cudaError_t launch(const float *src, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const codec_importance none = {};
    return launch_all<D, false>(src, &none, dst, n_elems, stream);
}

launch_encode_fn encoder_of_q4_q5_k(apr_dtype dtype)
{
    return dtype == APR_Q4_K ? launch<APR_Q4_K> : dtype == APR_Q5_K ? launch<APR_Q5_K> : (launch_encode_fn) nullptr;
}

launch_encode_by_fn encoder_by_of_q4_q5_k(apr_dtype dtype)
{
    return dtype == APR_Q4_K ? launch_all<APR_Q4_K, true> : dtype == APR_Q5_K ? launch_all<APR_Q5_K, true> : (launch_encode_by_fn) nullptr;
}
