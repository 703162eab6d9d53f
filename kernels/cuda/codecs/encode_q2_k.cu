/* encode_q2_k.cu - Q2_K, with and without importance: the search of kernels/ref/q2_k.c, sixteen threads per block of 256, each with a
 * sub-block of 16 in its registers. Without importance, all weights are 1, as in kernels/ref. */
#include "kernels/cuda/codecs/codecs.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/ref/q2_k_search.h"

enum { ELEMS = 256, SUBS = 16, SUB_ELEMS = 16, THREADS = 128, MAX_SCALE = 15 };
static constexpr float max_code = 3.0f;

/* value = step * code - offset */
struct grid {
    float step, offset;
};

/* Weighted sums over a sub-block: of the weights, of the values, and of the codes of a grid. */
struct sums {
    float w, x, xx, q, qq, qx;
};

/* The stored scales of a block, of which each thread has those of its sub-block, and the block's error. */
struct block_scales {
    uint16_t d, dmin;
    float scale, min, error;
};

/* value = d * a - dmin * b, a = scale * code, b = min */
struct block_sums {
    float aa, ab, bb, ax, bx;
};

static __device__ __forceinline__ float inverse_of(float step) { return step > 0.0f ? 1.0f / step : 0.0f; }

static __device__ __forceinline__ float code_of(float x, float inverse, float offset)
{
    return apr_clamp(apr_round_even((x + offset) * inverse), 0.0f, max_code);
}

/* Gives every value the grid's nearest code, computes the sums, and returns the squared error after decoding. */
static __device__ __forceinline__ float try_grid(const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS], grid g, sums *s)
{
    const float inverse = inverse_of(g.step);
    float wq[8], qq[8], qx[8], ee[8];
#pragma unroll
    for (int l = 0; l < 8; l++) {
        const float q = code_of(x[l], inverse, g.offset), r = code_of(x[8 + l], inverse, g.offset);
        const float e = g.step * q - g.offset - x[l], f = g.step * r - g.offset - x[8 + l];
        const float a = w[l] * q, b = w[8 + l] * r;
        wq[l] = a + b;
        qq[l] = a * q + b * r;
        qx[l] = a * x[l] + b * x[8 + l];
        ee[l] = w[l] * e * e + w[8 + l] * f * f;
    }
    s->q = apr_sum8(wq);
    s->qq = apr_sum8(qq);
    s->qx = apr_sum8(qx);
    return apr_sum8(ee);
}

/* The sums that do not depend on codes. */
static __device__ sums sums_of(const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS])
{
    float sum_w[8], wx[8], xx[8];
#pragma unroll
    for (int l = 0; l < 8; l++) {
        const float a = w[l] * x[l], b = w[8 + l] * x[8 + l];
        sum_w[l] = w[l] + w[8 + l];
        wx[l] = a + b;
        xx[l] = a * x[l] + b * x[8 + l];
    }
    sums s = {};
    s.w = apr_sum8(sum_w);
    s.x = apr_sum8(wx);
    s.xx = apr_sum8(xx);
    return s;
}

/* The least-squares grid for the codes summed in s, and its squared error. Stored offsets are not negative. */
static __device__ grid fit(const sums &s, float *error)
{
    const float n = s.w, det = n * s.qq - s.q * s.q;
    grid g = {0.0f, -1.0f};
    if (det > 0.0f) {
        g.step = (n * s.qx - s.q * s.x) / det;
        g.offset = (s.q * s.qx - s.qq * s.x) / det;
    }
    if (g.offset < 0.0f) {
        g.offset = 0.0f;
        g.step = s.qq > 0.0f ? s.qx / s.qq : 0.0f;
    }
    if (g.step < 0.0f) g.step = 0.0f;
    *error = s.xx + g.step * (g.step * s.qq - 2.0f * s.qx) + g.offset * (2.0f * (s.x - g.step * s.q) + n * g.offset);
    return g;
}

/* Step 1: trial grids, each followed by its fit; the last trial is the best fit so far. */
static __device__ grid search_sub_block(const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS], sums s)
{
    enum { TRIALS = 2 * APR_Q2_K_STRETCHES };
    float low = 0.0f, high = x[0], least = FLT_MAX, error;
#pragma unroll
    for (int j = 0; j < SUB_ELEMS; j++) {
        low = x[j] < low ? x[j] : low;
        high = x[j] > high ? x[j] : high;
    }
    grid best = {0.0f, -low};
    if (!(high - low > 0x1p-40f)) return best;
#pragma unroll 1
    for (int t = 0; t <= TRIALS; t++) {
        const float step = (high - low) / (APR_Q2_K_FIRST_STEPS + APR_Q2_K_STEPS_GAP * (float)(t / 2));
        const grid trial = {step, -low - 0.5f * (float)(t % 2) * step};
        try_grid(x, w, t < TRIALS ? trial : best, &s);
        const grid g = fit(s, &error);
        if (error < least && g.step <= high - low) least = error, best = g;
    }
    return best;
}

static __device__ __forceinline__ float nearest_scale(float x) { return apr_clamp(apr_round_even(x), 0.0f, (float)MAX_SCALE); }

static __device__ uint16_t stored_scale(float x)
{
    const uint16_t half = apr_f32_to_f16(x < APR_F16_MAX ? x : APR_F16_MAX);
    return half == 0 && x > 0.0f ? 1 : half;
}

/* Step 2 for this thread's sub-block: its scale and minimum, and what it adds to the block's sums. Returns its error. */
static __device__ float choose_scale(const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS], sums s, grid ideal, block_scales *now,
                                     block_sums *add)
{
    const float d = apr_f16_to_f32(now->d), dmin = apr_f16_to_f32(now->dmin), inverse_dmin = inverse_of(dmin);
    const float middle = nearest_scale(ideal.step * inverse_of(d)), first_min = nearest_scale(ideal.offset * inverse_dmin);
    float least = -1.0f;
    sums best = {};
#pragma unroll 1
    for (int away = -APR_Q2_K_REACH; away <= APR_Q2_K_REACH; away++) {
        const float t = middle + (float)away;
        float m = first_min;
        if (t < 0.0f || t > (float)MAX_SCALE) continue;
#pragma unroll 1
        for (int pass = 0; pass < APR_Q2_K_PASSES; pass++) {
            const grid g = {d * t, dmin * m};
            const float error = try_grid(x, w, g, &s);
            if (least < 0.0f || error < least) least = error, best = s, now->scale = t, now->min = m;
            const float suited = nearest_scale((g.step * s.q - s.x) / s.w * inverse_dmin);
            if (suited == m) break;
            m = suited;
        }
    }
    const float a = now->scale, b = now->min;
    *add = {a * a * best.qq, a * b * best.q, b * b * best.w, a * best.qx, b * best.x};
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

static __device__ float largest_of(unsigned group, float v)
{
    for (int step = 8; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(group, v, step));
    return v;
}

static __device__ block_sums choose_scales(unsigned group, const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS], const sums &s,
                                           grid ideal, block_scales *now)
{
    block_sums add;
    const float error = choose_scale(x, w, s, ideal, now, &add);
    __syncwarp(group);
    now->error = sum_in_order(group, error);
    return {sum_in_order(group, add.aa), sum_in_order(group, add.ab), sum_in_order(group, add.bb), sum_in_order(group, add.ax),
            sum_in_order(group, add.bx)};
}

/* Step 3: the d and dmin that minimise the sum of (x - d * a + dmin * b)^2. False: no such pair can be stored. */
static __device__ bool fit_block(const block_sums &s, uint16_t *d, uint16_t *dmin)
{
    const float det = s.aa * s.bb - s.ab * s.ab;
    const float fit_d = det > 0.0f ? (s.ax * s.bb - s.bx * s.ab) / det : s.aa > 0.0f ? s.ax / s.aa : 0.0f;
    const float fit_dmin = det > 0.0f ? (s.ax * s.ab - s.bx * s.aa) / det : 0.0f;

    if (!(fit_d > 0.0f && fit_dmin >= 0.0f)) return false;
    *d = stored_scale(fit_d);
    *dmin = stored_scale(fit_dmin);
    return true;
}

static __device__ block_scales search_block(unsigned group, const float (&x)[SUB_ELEMS], const float (&w)[SUB_ELEMS])
{
    const sums s = sums_of(x, w);
    const grid ideal = search_sub_block(x, w, s);
    __syncwarp(group);
    const float max_step = largest_of(group, fmaxf(ideal.step, 0.0f)), max_offset = largest_of(group, fmaxf(ideal.offset, 0.0f));
    block_scales now = {}, best = {};
    block_sums all, best_sums = {};
    best.error = -1.0f;
#pragma unroll 1
    for (int k = 0; k < APR_Q2_K_STARTS * APR_Q2_K_STARTS; k++) {
        now.d = stored_scale(max_step / (float)(MAX_SCALE - k / APR_Q2_K_STARTS));
        now.dmin = stored_scale(max_offset / (float)(MAX_SCALE - k % APR_Q2_K_STARTS));
        all = choose_scales(group, x, w, s, ideal, &now);
        if (best.error < 0.0f || now.error < best.error) best = now, best_sums = all;
    }
#pragma unroll 1
    for (int round = 0; round < APR_Q2_K_ROUNDS; round++) {
        if (!fit_block(best_sums, &now.d, &now.dmin) || (now.d == best.d && now.dmin == best.dmin)) break;
        all = choose_scales(group, x, w, s, ideal, &now);
        if (!(now.error < best.error)) break;
        best = now;
        best_sums = all;
    }
    return best;
}

/* Sub-block 8 * half + 2 * run + f: its codes are bits 2 * run of 16 bytes of qs, shared by four threads, each of which writes 4. */
static __device__ void put_codes(unsigned group, int sub, const uint32_t (&word)[4], apr_block_Q2_K *block)
{
    const int run = sub % 8 / 2;
    uint8_t *const qs = block->qs + 32 * (sub / 8) + sub % 2 * SUB_ELEMS + 4 * run;
    uint32_t mine = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t all = word[k] << 2 * run;
        all |= __shfl_xor_sync(group, all, 2);
        all |= __shfl_xor_sync(group, all, 4);
        mine = k == run ? all : mine;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) qs[k] = (uint8_t)(mine >> 8 * k);
}

static __global__ void __launch_bounds__(THREADS)
    k_encode_q2_k(const float *src, codec_importance importance, apr_block_Q2_K *dst, int64_t n_blocks)
{
    const int64_t b = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / SUBS;
    const int sub = (int)threadIdx.x % SUBS;
    const unsigned group = 0xffffu << (threadIdx.x & 16);
    const float limit = APR_F16_MAX * (float)MAX_SCALE * max_code;
    float x[SUB_ELEMS], w[SUB_ELEMS];
    uint32_t word[4];

    if (b >= n_blocks) return; /* all threads of a group return together */
    const float *const columns = importance.columns != nullptr ? importance_of_block(importance, b * ELEMS) : nullptr;
    const block_weights weigh = columns != nullptr ? weights_of_block<ELEMS>(group, sub % 8, columns) : block_weights{1.0f, true};
#pragma unroll
    for (int k = 0; k < SUB_ELEMS; k++) {
        x[k] = apr_clamp_finite(src[b * ELEMS + sub * SUB_ELEMS + k], limit);
        w[k] = columns != nullptr ? weigh(columns[sub * SUB_ELEMS + k]) : 1.0f;
    }
    const block_scales best = search_block(group, x, w);
    const float inverse = inverse_of(apr_f16_to_f32(best.d) * best.scale), offset = apr_f16_to_f32(best.dmin) * best.min;
    __syncwarp(group);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        word[i] = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) word[i] |= (uint32_t)(int)code_of(x[4 * i + k], inverse, offset) << 8 * k;
    }
    put_codes(group, sub, word, dst + b);
    dst[b].scales[sub] = (uint8_t)((int)best.scale | (int)best.min << 4);
    if (sub == 0) dst[b].d = best.d;
    if (sub == 1) dst[b].dmin = best.dmin;
}

static cudaError_t launch_by(const float *src, const codec_importance *importance, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const int64_t n_blocks = n_elems / ELEMS, per_grid_block = THREADS / SUBS;
    const unsigned n = blocks_of(n_blocks, per_grid_block);
    k_encode_q2_k<<<n, THREADS, 0, stream>>>(src, *importance, (apr_block_Q2_K *)dst, n_blocks);
    return cudaGetLastError();
}

static cudaError_t launch(const float *src, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const codec_importance none = {};
    return launch_by(src, &none, dst, n_elems, stream);
}

launch_encode_fn encoder_of_q2_k(apr_dtype dtype) { return dtype == APR_Q2_K ? launch : (launch_encode_fn) nullptr; }
launch_encode_by_fn encoder_by_of_q2_k(apr_dtype dtype) { return dtype == APR_Q2_K ? launch_by : (launch_encode_by_fn) nullptr; }
