/* encode_steps.cu - IQ4_NL, Q2_0, TQ1_0, TQ2_0, Q1_0 and NVFP4, with and without importance: eight threads per block. Without, all
 * weights are 1, as in kernels/ref. */
#include "kernels/cuda/codecs/encode_steps.cuh"

/* Of each type: the bound of its values, and how eight threads encode a block. */
template <apr_dtype D> struct steps_of;

/* The scale of a block's values, and their codes from 0 on. */
template <class L, int N>
static __device__ uint16_t encode_codes(member m, const float (&x)[N], const float (&w)[N], const apr_step_search &search,
                                        uint32_t (&code)[N])
{
    const uint16_t d = search_f16_step<L>(m, x, w, search_step<L>(m, x, w, search));
    const float inverse = apr_inverse_of(apr_f16_to_f32(d));
#pragma unroll
    for (int k = 0; k < N; k++) code[k] = L::index_of(x[k] * inverse);
    return d;
}

template <> struct steps_of<APR_IQ4_NL> {
    static constexpr float limit = APR_F16_MAX * 127.0f;
    static __device__ void encode(member m, const float (&x)[4], const float (&w)[4], apr_block_IQ4_NL *block)
    {
        uint32_t code[4];
        const uint16_t d = encode_codes<iq4_levels>(m, x, w, APR_IQ4_NL_SEARCH, code);
        put_nibbles(m, code, block->qs);
        if (m.lane == 0) block->d = d;
    }
};

template <> struct steps_of<APR_Q2_0> {
    static constexpr float limit = APR_F16_MAX * 2.0f;
    static __device__ void encode(member m, const float (&x)[8], const float (&w)[8], apr_block_Q2_0 *block)
    {
        uint32_t code[8];
        const uint16_t d = encode_codes<whole_levels<-1, 2>>(m, x, w, APR_Q2_0_SEARCH, code);
#pragma unroll
        for (int k = 0; k < 8; k++) { /* four threads share a byte */
            uint32_t byte = code[k] << m.lane % 4 * 2;
            byte |= __shfl_xor_sync(m.group, byte, 1);
            byte |= __shfl_xor_sync(m.group, byte, 2);
            if (m.lane % 4 == 0) block->qs[2 * k + m.lane / 4] = (uint8_t)byte;
        }
        if (m.lane == 0) block->d = d;
    }
};

/* Element 128*h + 32*s + l is bits 2s of byte 32*h + l. */
template <> struct steps_of<APR_TQ2_0> {
    static constexpr float limit = APR_F16_MAX;
    static __device__ void encode(member m, const float (&x)[32], const float (&w)[32], apr_block_TQ2_0 *block)
    {
        uint32_t code[32];
        const uint16_t d = encode_codes<whole_levels<-1, 1>>(m, x, w, APR_TERNARY_SEARCH, code);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int at = k / 4 * 16 + k % 4;
            const uint32_t byte = code[at] | code[at + 4] << 2 | code[at + 8] << 4 | code[at + 12] << 6;
            block->qs[8 * k + m.lane] = (uint8_t)byte;
        }
        if (m.lane == 0) block->d = d;
    }
};

/* Five digits as a fraction of 243ths, rounded up to 256ths. */
static __device__ __forceinline__ uint8_t byte_of_trits(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e)
{
    const uint32_t number = 3 * (3 * (3 * (3 * a + b) + c) + d) + e;
    return (uint8_t)((number * 256 + 242) / 243);
}

/* Digits of 32, 16 and 4 adjacent bytes: elements 0 to 159, 160 to 239, 240 to 255. */
template <> struct steps_of<APR_TQ1_0> {
    static constexpr float limit = APR_F16_MAX;
    static __device__ void encode(member m, const float (&x)[32], const float (&w)[32], apr_block_TQ1_0 *block)
    {
        uint32_t c[32];
        const uint16_t d = encode_codes<whole_levels<-1, 1>>(m, x, w, APR_TERNARY_SEARCH, c);
#pragma unroll
        for (int k = 0; k < 4; k++) block->qs[8 * k + m.lane] = byte_of_trits(c[k], c[4 + k], c[8 + k], c[12 + k], c[16 + k]);
#pragma unroll
        for (int k = 20; k < 22; k++) block->qs[32 + 8 * (k - 20) + m.lane] = byte_of_trits(c[k], c[2 + k], c[4 + k], c[6 + k], c[8 + k]);
        const uint32_t second = __shfl_xor_sync(m.group, c[30], 4), fourth = __shfl_xor_sync(m.group, c[31], 4);
        if (m.lane < 4) block->qh[m.lane] = byte_of_trits(c[30], second, c[31], fourth, 0);
        if (m.lane == 0) block->d = d;
    }
};

/* Signs: the best scale is the weighted mean of the magnitudes. */
template <> struct steps_of<APR_Q1_0> {
    static constexpr float limit = APR_F16_MAX;
    static __device__ void encode(member m, const float (&x)[16], const float (&w)[16], apr_block_Q1_0 *block)
    {
        float sum_w = 0.0f, sum_wx = 0.0f;
#pragma unroll
        for (int k = 0; k < 16; k++) {
            const uint32_t byte = or8(m, (uint32_t)(x[k] >= 0.0f) << m.lane);
            if (m.lane == k % 8) block->qs[k] = (uint8_t)byte;
            sum_w += w[k];
            sum_wx += w[k] * (x[k] < 0.0f ? -x[k] : x[k]);
        }
        sum_w = sum8(m, sum_w);
        sum_wx = sum8(m, sum_wx);
        if (m.lane == 0) block->d = apr_f32_to_f16(sum_wx / sum_w);
    }
};

/* Unsigned E4M3, halved because the table of E2M1 is doubled. */
static __device__ __forceinline__ float nv_scale(int byte) { return byte == 0x7f ? 0.0f : apr_e4m3_to_f32((uint8_t)(byte & 0x7f)) * 0.5f; }

/* The scale of 16 values with the least error; of equals the smallest. */
static __device__ int nv_search(member m, const float (&x)[2], const float (&w)[2])
{
    const float a = fabsf(x[0]), b = fabsf(x[1]), amax = max8(m, fmaxf(a, b));
    float least = -1.0f;
    int best = 0;

    if (!(amax > 0.0f)) return 0;
    const int middle = apr_f32_to_e4m3(amax / 6.0f);
#pragma unroll 1
    for (int scale = max(middle - APR_NVFP4_BELOW, 1); scale <= min(middle + APR_NVFP4_ABOVE, (int)APR_NVFP4_LAST); scale++) {
        const float d = nv_scale(scale), inverse = 1.0f / d;
        const float e = nearest_e2m1(a * inverse) * d - a, f = nearest_e2m1(b * inverse) * d - b;
        const float error = sum8(m, w[0] * e * e + w[1] * f * f);
        if (least < 0.0f || error < least) least = error, best = scale;
    }
    return best;
}

template <> struct steps_of<APR_NVFP4> {
    static constexpr float limit = 448.0f * 6.0f;
    static __device__ void encode(member m, const float (&x)[8], const float (&w)[8], apr_block_NVFP4 *block)
    {
#pragma unroll
        for (int sub = 0; sub < 4; sub++) {
            const float v[2] = {x[2 * sub], x[2 * sub + 1]}, weight[2] = {w[2 * sub], w[2 * sub + 1]};
            const int scale = nv_search(m, v, weight);
            __syncwarp(m.group);
            const float d = nv_scale(scale), inverse = d > 0.0f ? 1.0f / d : 0.0f;
            block->qs[8 * sub + m.lane] = (uint8_t)(code_e2m1(v[0] * inverse) | code_e2m1(v[1] * inverse) << 4);
            if (m.lane == 0) block->d[sub] = (uint8_t)scale;
        }
    }
};

template <apr_dtype D>
static __global__ void __launch_bounds__(THREADS)
    k_encode_steps(const float *src, codec_importance importance, typename block_of<D>::type *dst, int64_t n_blocks)
{
    enum { N = block_of<D>::ELEMS, PER_LANE = N / LANES };
    const int64_t b = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / LANES;
    const member m = {0xffu << (threadIdx.x & 24), (int)threadIdx.x % LANES};
    float x[PER_LANE], w[PER_LANE];

    if (b >= n_blocks) return; /* all threads of a group return together */
    const float *const columns = importance.columns != nullptr ? importance_of_block(importance, b * N) : nullptr;
    const block_weights weigh = columns != nullptr ? weights_of_block<N>(m.group, m.lane, columns) : block_weights{1.0f, true};
#pragma unroll
    for (int k = 0; k < PER_LANE; k++) {
        x[k] = apr_clamp_finite(src[b * N + LANES * k + m.lane], steps_of<D>::limit);
        w[k] = columns != nullptr ? weigh(columns[LANES * k + m.lane]) : 1.0f;
    }
    steps_of<D>::encode(m, x, w, dst + b);
}

template <apr_dtype D>
static cudaError_t launch_by(const float *src, const codec_importance *importance, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const int64_t n_blocks = n_elems / block_of<D>::ELEMS, per_grid_block = THREADS / LANES;
    const unsigned n = blocks_of(n_blocks, per_grid_block);
    k_encode_steps<D><<<n, THREADS, 0, stream>>>(src, *importance, (typename block_of<D>::type *)dst, n_blocks);
    return cudaGetLastError();
}

template <apr_dtype D> static cudaError_t launch(const float *src, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const codec_importance none = {};
    return launch_by<D>(src, &none, dst, n_elems, stream);
}

#define STEP_TYPES(X) X(IQ4_NL) X(Q2_0) X(TQ1_0) X(TQ2_0) X(Q1_0) X(NVFP4)

launch_encode_fn encoder_of_steps(apr_dtype dtype)
{
    switch (dtype) {
#define X(id) \
    case APR_##id: return launch<APR_##id>;
        STEP_TYPES(X)
#undef X
    default: return nullptr;
    }
}

launch_encode_by_fn encoder_by_of_steps(apr_dtype dtype)
{
    switch (dtype) {
#define X(id) \
    case APR_##id: return launch_by<APR_##id>;
        STEP_TYPES(X)
#undef X
    default: return nullptr;
    }
}
