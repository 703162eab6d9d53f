/* encode_blocks_by.cu - Q4_0, Q4_1, Q5_0, Q5_1 and MXFP4 by importance: the steps of kernels/ref/q_simple_by.c and fp4.c. */
#include "kernels/cuda/codecs/encode_blocks.cuh"

enum { TRIALS = 11, STRETCHES = 6 };

/* value = step * q + offset */
struct grid {
    float step, offset;
};

/* Weighted sums: of the weights, of values, and of the codes of a grid. The same in all threads of a block. */
struct sums {
    float w, x, q, qq, qx;
};

/* Four values of a thread, in the order of the reference's lane; then the lanes. */
static __device__ __forceinline__ float sum_of(member m, const float (&a)[EACH]) { return sum8(m, a[0] + a[1] + a[2] + a[3]); }

static __device__ float try_grid(member m, const float (&x)[EACH], const float (&w)[EACH], grid g, float low, float high, float (&q)[EACH],
                                 sums *s)
{
    const float id = inverse(g.step);
    float wq[EACH], qq[EACH], qx[EACH], ee[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        q[k] = apr_round_even(apr_clamp((x[k] - g.offset) * id, low, high));
        const float e = q[k] * g.step + g.offset - x[k], we = w[k] * e;
        wq[k] = w[k] * q[k];
        qq[k] = wq[k] * q[k];
        qx[k] = wq[k] * x[k];
        ee[k] = we * e;
    }
    s->q = sum_of(m, wq);
    s->qq = sum_of(m, qq);
    s->qx = sum_of(m, qx);
    return sum_of(m, ee);
}

static __device__ sums sums_of(member m, const float (&x)[EACH], const float (&w)[EACH])
{
    float wx[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) wx[k] = w[k] * x[k];
    sums s = {};
    s.w = sum_of(m, w);
    s.x = sum_of(m, wx);
    return s;
}

static __device__ __forceinline__ float rounded(float x) { return apr_f16_to_f32(apr_f32_to_f16(apr_clamp(x, -APR_F16_MAX, APR_F16_MAX))); }

/* Rounds a grid to FP16, and keeps it if its error is less. */
static __device__ void keep_better(member m, const float (&x)[EACH], const float (&w)[EACH], grid g, float low, float high, sums *s,
                                   float *least, grid *best)
{
    float q[EACH];
    const grid stored = {rounded(g.step), rounded(g.offset)};
    const float error = try_grid(m, x, w, stored, low, high, q, s);
    if (error < *least) *least = error, *best = stored;
}

static __device__ grid search_symmetric(member m, const float (&x)[EACH], const float (&w)[EACH], float half)
{
    const float extreme = signed_extreme(m, x);
    float least = FLT_MAX, q[EACH];
    grid best = {0.0f, 0.0f};
    sums s = sums_of(m, x, w);

    if (!(fabsf(extreme) > 0x1p-40f)) return best;
#pragma unroll 1
    for (int t = 0; t < TRIALS; t++) {
        const float step = extreme / (half * (0.03125f * (float)t - 1.0625f));
        const grid trial = {step, 0.0f};
        try_grid(m, x, w, trial, -half, half - 1.0f, q, &s);
        const grid fitted = {s.qx / s.qq, 0.0f};
        if (s.qq > 0.0f) keep_better(m, x, w, fitted, -half, half - 1.0f, &s, &least, &best);
    }
    return best;
}

/* The least-squares step and offset for the summed codes. False: all codes are equal. */
static __device__ bool fit(const sums *s, grid *g)
{
    const float det = s->w * s->qq - s->q * s->q;
    if (!(det > 0.0f)) return false;
    g->step = (s->w * s->qx - s->q * s->x) / det;
    g->offset = (s->qq * s->x - s->q * s->qx) / det;
    return true;
}

static __device__ grid search_affine(member m, const float (&x)[EACH], const float (&w)[EACH], float max)
{
    float low = FLT_MAX, high = -FLT_MAX, least = FLT_MAX, q[EACH];
    sums s = sums_of(m, x, w);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        low = x[k] < low ? x[k] : low;
        high = x[k] > high ? x[k] : high;
    }
    low = least_value(m, x, -max8(m, -low));
    high = max8(m, high);
    grid best = {0.0f, rounded(low)};
    if (!(high - low > 0x1p-40f)) return best;
#pragma unroll 1
    for (int t = 0; t < 2 * STRETCHES; t++) {
        const float step = (high - low) / (max * (0.85f + 0.04f * (float)(t / 2)));
        grid g = {step, low + 0.5f * (float)(t % 2) * step};
        try_grid(m, x, w, g, 0.0f, max, q, &s);
        if (fit(&s, &g) && g.step <= high - low) keep_better(m, x, w, g, 0.0f, max, &s, &least, &best);
    }
    return best;
}

/* Codes from 0 on, and the FP16 numbers of the block: step, and offset if the type has one. */
template <bool SYMMETRIC>
static __device__ grid codes_by(member m, const float (&x)[EACH], const float (&w)[EACH], float top, uint32_t (&code)[EACH])
{
    const float low = SYMMETRIC ? -top : 0.0f, high = SYMMETRIC ? top - 1.0f : top;
    const grid best = SYMMETRIC ? search_symmetric(m, x, w, top) : search_affine(m, x, w, top);
    float q[EACH];
    sums s;
    __syncwarp(m.group);
    try_grid(m, x, w, best, low, high, q, &s);
#pragma unroll
    for (int k = 0; k < EACH; k++) code[k] = (uint32_t)(q[k] - low);
    return best;
}

template <apr_dtype D>
__device__ void encode_block_by(member m, const float (&x)[EACH], const float (&w)[EACH], typename block_of<D>::type *block);

template <> __device__ void encode_block_by<APR_Q4_0>(member m, const float (&x)[EACH], const float (&w)[EACH], apr_block_Q4_0 *block)
{
    uint32_t code[EACH];
    const grid best = codes_by<true>(m, x, w, 8.0f, code);
    put_nibbles(m, code, block->qs);
    if (m.lane == 0) block->d = apr_f32_to_f16(best.step);
}

template <> __device__ void encode_block_by<APR_Q5_0>(member m, const float (&x)[EACH], const float (&w)[EACH], apr_block_Q5_0 *block)
{
    uint32_t code[EACH];
    const grid best = codes_by<true>(m, x, w, 16.0f, code);
    const uint32_t high = fifth_bits(m, code);
    put_nibbles(m, code, block->qs);
    if (m.lane == 0) block->d = apr_f32_to_f16(best.step);
    if (m.lane == 0) block->qh = high;
}

template <> __device__ void encode_block_by<APR_Q4_1>(member m, const float (&x)[EACH], const float (&w)[EACH], apr_block_Q4_1 *block)
{
    uint32_t code[EACH];
    const grid best = codes_by<false>(m, x, w, 15.0f, code);
    put_nibbles(m, code, block->qs);
    if (m.lane == 0) block->d = apr_f32_to_f16(best.step);
    if (m.lane == 1) block->m = apr_f32_to_f16(best.offset);
}

template <> __device__ void encode_block_by<APR_Q5_1>(member m, const float (&x)[EACH], const float (&w)[EACH], apr_block_Q5_1 *block)
{
    uint32_t code[EACH];
    const grid best = codes_by<false>(m, x, w, 31.0f, code);
    const uint32_t high = fifth_bits(m, code);
    put_nibbles(m, code, block->qs);
    if (m.lane == 0) block->d = apr_f32_to_f16(best.step);
    if (m.lane == 1) block->m = apr_f32_to_f16(best.offset);
    if (m.lane == 2) block->qh = high;
}

/* The bound to which values are clamped before the search. */
template <apr_dtype D> static constexpr float limit_of(void)
{
    return D == APR_MXFP4 ? FLT_MAX : D == APR_Q4_0 ? APR_F16_MAX * 7.0f : D == APR_Q5_0 ? APR_F16_MAX * 15.0f : APR_F16_MAX;
}

template <apr_dtype D>
static __global__ void __launch_bounds__(THREADS)
    k_encode_blocks_by(const float *src, codec_importance importance, typename block_of<D>::type *dst, int64_t n_blocks)
{
    const int64_t b = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / LANES;
    const member m = {0xffu << (threadIdx.x & 24), (int)threadIdx.x % LANES};
    float raw[EACH], x[EACH], w[EACH];

    if (b >= n_blocks) return; /* all threads of a group return together */
    const float *const columns = importance_of_block(importance, b * ELEMS);
    const block_weights weigh = weights_of_block<ELEMS>(m.group, m.lane, columns);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        raw[k] = src[b * ELEMS + LANES * k + m.lane];
        x[k] = apr_clamp_finite(raw[k], limit_of<D>());
        w[k] = weigh(columns[LANES * k + m.lane]);
    }
    if constexpr (D == APR_MXFP4) {
        encode_mxfp4<true>(m, raw, w, dst + b);
    } else {
        const float first = __shfl_sync(m.group, w[0], 0, LANES);
        const bool differ = __any_sync(m.group, w[0] != first || w[1] != first || w[2] != first || w[3] != first);
        if (differ) encode_block_by<D>(m, x, w, dst + b);
        else encode_block<D>(m, raw, dst + b); /* equal weights: as ggml does */
    }
}

template <apr_dtype D>
static cudaError_t launch_by(const float *src, const codec_importance *importance, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const int64_t n_blocks = n_elems / ELEMS, per_grid_block = THREADS / LANES;
    const unsigned n = blocks_of(n_blocks, per_grid_block);
    k_encode_blocks_by<D><<<n, THREADS, 0, stream>>>(src, *importance, (typename block_of<D>::type *)dst, n_blocks);
    return cudaGetLastError();
}

launch_encode_by_fn encoder_by_of_blocks(apr_dtype dtype)
{
    switch (dtype) {
    case APR_Q4_0: return launch_by<APR_Q4_0>;
    case APR_Q4_1: return launch_by<APR_Q4_1>;
    case APR_Q5_0: return launch_by<APR_Q5_0>;
    case APR_Q5_1: return launch_by<APR_Q5_1>;
    case APR_MXFP4: return launch_by<APR_MXFP4>;
    default: return nullptr;
    }
}
