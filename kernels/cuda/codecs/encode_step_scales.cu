/* encode_step_scales.cu - IQ4_XS and Q3_K, with and without importance: a warp per block of 256, eight threads per sub-block, four
 * sub-blocks at a time. Without importance, all weights are 1, as in kernels/ref. */
#include "kernels/cuda/codecs/encode_steps.cuh"

enum { BLOCK = 256, WARPS = 4, GROUPS = 4, WARP = 32 };

/* A warp's block. Two sets of scales: the best ones, and those of a trial. */
struct shared_block {
    float x[BLOCK], w[BLOCK];
    float ideal[APR_MOST_SUBS], scale[2][APR_MOST_SUBS], error[APR_MOST_SUBS], aa[APR_MOST_SUBS], ax[APR_MOST_SUBS];
    uint8_t code[BLOCK];
};

struct block_scales {
    uint16_t d;
    int set;
    float error;
};

/* Of each type: its levels, its search, the bound of its values, and how a warp writes a block whose codes and scales are known. */
template <apr_dtype D> struct scales_of;

template <> struct scales_of<APR_IQ4_XS> {
    typedef iq4_levels levels;
    enum { SUBS = 8, SUB_ELEMS = 32 };
    static constexpr float limit = APR_F16_MAX * 32.0f * 127.0f;
    static __device__ __forceinline__ apr_scale_search search(void) { return APR_IQ4_XS_SEARCH; }
    static __device__ void pack(const shared_block &s, const float *scale, uint16_t d, int thread, apr_block_IQ4_XS *block)
    {
        for (int at = thread; at < BLOCK / 2; at += WARP) {
            const uint8_t *const code = s.code + at / 16 * 32 + at % 16;
            block->qs[at] = (uint8_t)(code[0] | code[16] << 4);
        }
        if (thread < 4) {
            const int low = (int)scale[2 * thread] + 32, high = (int)scale[2 * thread + 1] + 32;
            block->scales_l[thread] = (uint8_t)((low & 0x0f) | (high & 0x0f) << 4);
        }
        if (thread != 0) return;
        uint32_t upper = 0;
        for (int sub = 0; sub < SUBS; sub++) upper |= (uint32_t)((int)scale[sub] + 32) >> 4 << 2 * sub;
        block->scales_h = (uint16_t)upper;
        block->d = d;
    }
};

/* Element 128*h + 32*r + l has its lower bits in bits 2r of byte 32*h + l, its upper one in bit 4*h + r of byte l of hmask. */
template <> struct scales_of<APR_Q3_K> {
    typedef whole_levels<-4, 3> levels;
    enum { SUBS = 16, SUB_ELEMS = 16 };
    static constexpr float limit = APR_F16_MAX * 32.0f * 4.0f;
    static __device__ __forceinline__ apr_scale_search search(void) { return APR_Q3_K_SEARCH; }
    static __device__ void pack(const shared_block &s, const float *scale, uint16_t d, int thread, apr_block_Q3_K *block)
    {
        uint32_t mask = 0;
        for (int h = 0; h < 2; h++) {
            uint32_t byte = 0;
            for (int r = 0; r < 4; r++) {
                const uint32_t code = s.code[128 * h + 32 * r + thread];
                byte |= (code & 3) << 2 * r;
                mask |= code >> 2 << (4 * h + r);
            }
            block->qs[32 * h + thread] = (uint8_t)byte;
        }
        block->hmask[thread] = (uint8_t)mask;
        if (thread < 8) {
            const int low = (int)scale[thread] + 32, high = (int)scale[thread + 8] + 32;
            block->scales[thread] = (uint8_t)((low & 0x0f) | (high & 0x0f) << 4);
        } else if (thread < 12) {
            uint32_t byte = 0;
            for (int q = 0; q < 4; q++) byte |= (uint32_t)((int)scale[thread - 8 + 4 * q] + 32) >> 4 << 2 * q;
            block->scales[thread] = (uint8_t)byte;
        } else if (thread == 12) block->d = d;
    }
};

/* The values and weights of a sub-block. */
template <int N> static __device__ __forceinline__ void load_sub(member m, const shared_block &s, int sub, float (&x)[N], float (&w)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int at = sub * N * LANES + LANES * k + m.lane;
        x[k] = s.x[at];
        w[k] = s.w[at];
    }
}

/* The scale of a sub-block for a given d: the one next to the ideal step, or a neighbour. Returns its error. */
template <class L, int N>
static __device__ float choose_scale(member m, const float (&x)[N], const float (&w)[N], float d, float ideal, float *scale)
{
    const float middle = apr_clamp(apr_round_even(ideal * apr_inverse_of(d)), APR_LEAST_SCALE, APR_MOST_SCALE);
    float least = -1.0f;
#pragma unroll 1
    for (int k = -1; k <= 1; k++) {
        const float t = middle + (float)k;
        const float error = step_error<L>(m, x, w, d * t); /* also out of bounds: the warp meets in every sum */
        if (t < APR_LEAST_SCALE || t > APR_MOST_SCALE) continue;
        if (least < 0.0f || error < least) least = error, *scale = t;
    }
    return least;
}

/* 0 + the numbers of the sub-blocks, in their order. */
template <int SUBS> static __device__ float sum_in_order(const float *of)
{
    float sum = 0.0f;
    for (int sub = 0; sub < SUBS; sub++) sum += of[sub];
    return sum;
}

/* Chooses the scales of set now->set for now->d. */
template <class T> static __device__ void choose_scales(member m, int group, shared_block &s, block_scales *now)
{
    const float d = apr_f16_to_f32(now->d);
    float x[T::SUB_ELEMS / LANES], w[T::SUB_ELEMS / LANES];
#pragma unroll 1
    for (int sub = group; sub < T::SUBS; sub += GROUPS) {
        float scale = 0.0f;
        load_sub(m, s, sub, x, w);
        const float error = choose_scale<typename T::levels>(m, x, w, d, s.ideal[sub], &scale);
        if (m.lane == 0) s.error[sub] = error, s.scale[now->set][sub] = scale;
    }
    __syncwarp();
    now->error = sum_in_order<T::SUBS>(s.error);
    __syncwarp();
}

/* The best d for the levels that the scales give, as it is stored. */
template <class T> static __device__ uint16_t fit_scales(member m, int group, shared_block &s, const block_scales &best)
{
    const float d = apr_f16_to_f32(best.d);
    float x[T::SUB_ELEMS / LANES], w[T::SUB_ELEMS / LANES];
#pragma unroll 1
    for (int sub = group; sub < T::SUBS; sub += GROUPS) {
        const float a = s.scale[best.set][sub];
        load_sub(m, s, sub, x, w);
        const float2 fit = step_fit<typename T::levels>(m, x, w, d * a);
        if (m.lane == 0) s.aa[sub] = a * a * fit.x, s.ax[sub] = a * fit.y;
    }
    __syncwarp();
    const float aa = sum_in_order<T::SUBS>(s.aa), ax = sum_in_order<T::SUBS>(s.ax);
    __syncwarp();
    return aa > 0.0f ? apr_stored_scale(ax / aa) : best.d;
}

/* The first scale: that of the sub-block with the largest ideal step, the first of equals, is -32. */
template <class T> static __device__ uint16_t first_scale(member m, int group, shared_block &s)
{
    float x[T::SUB_ELEMS / LANES], w[T::SUB_ELEMS / LANES], largest = 0.0f, extreme = 0.0f;
#pragma unroll 1
    for (int sub = group; sub < T::SUBS; sub += GROUPS) {
        load_sub(m, s, sub, x, w);
        const float ideal = search_step<typename T::levels>(m, x, w, T::search().step);
        if (m.lane == 0) s.ideal[sub] = ideal;
    }
    __syncwarp();
    for (int sub = 0; sub < T::SUBS; sub++) {
        const float ideal = s.ideal[sub], magnitude = fabsf(ideal);
        if (magnitude > largest) largest = magnitude, extreme = ideal;
    }
    return apr_stored_scale(extreme / APR_LEAST_SCALE);
}

template <class T> static __device__ block_scales search_scales(member m, int group, shared_block &s)
{
    block_scales now = {first_scale<T>(m, group, s), 0, 0.0f}, best;
    choose_scales<T>(m, group, s, &now);
    best = now;
#pragma unroll 1
    for (int round = 0; round < APR_SCALE_ROUNDS; round++) {
        now.d = fit_scales<T>(m, group, s, best);
        if (now.d == best.d) break;
        now.set = 1 - best.set;
        choose_scales<T>(m, group, s, &now);
        if (!(now.error < best.error)) break;
        best = now;
    }
    return best;
}

template <class T> static __device__ void find_codes(member m, int group, shared_block &s, const block_scales &best)
{
    enum { N = T::SUB_ELEMS / LANES };
    float x[N], w[N];
#pragma unroll 1
    for (int sub = group; sub < T::SUBS; sub += GROUPS) {
        const float inverse = apr_inverse_of(apr_f16_to_f32(best.d) * s.scale[best.set][sub]);
        load_sub(m, s, sub, x, w);
#pragma unroll
        for (int k = 0; k < N; k++) s.code[sub * T::SUB_ELEMS + LANES * k + m.lane] = (uint8_t)T::levels::index_of(x[k] * inverse);
    }
    __syncwarp();
}

template <apr_dtype D>
static __global__ void __launch_bounds__(WARPS *WARP)
    k_encode_step_scales(const float *src, codec_importance importance, typename block_of<D>::type *dst, int64_t n_blocks)
{
    __shared__ shared_block blocks[WARPS];
    const int thread = (int)threadIdx.x % WARP, group = thread / LANES;
    const member m = {0xffffffffu, thread % LANES}; /* sums are of eight threads, but the warp makes them together */
    const int64_t b = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    shared_block &s = blocks[threadIdx.x / WARP];

    if (b >= n_blocks) return; /* whole warps */
    const float *const columns = importance.columns != nullptr ? importance_of_block(importance, b * BLOCK) : nullptr;
    const block_weights weigh = columns != nullptr ? weights_of_block<BLOCK>(m.group, m.lane, columns) : block_weights{1.0f, true};
    for (int at = thread; at < BLOCK; at += WARP) {
        s.x[at] = apr_clamp_finite(src[b * BLOCK + at], scales_of<D>::limit);
        s.w[at] = columns != nullptr ? weigh(columns[at]) : 1.0f;
    }
    __syncwarp();
    const block_scales best = search_scales<scales_of<D>>(m, group, s);
    find_codes<scales_of<D>>(m, group, s, best);
    scales_of<D>::pack(s, s.scale[best.set], best.d, thread, dst + b);
}

template <apr_dtype D>
static cudaError_t launch_by(const float *src, const codec_importance *importance, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const int64_t n_blocks = n_elems / BLOCK;
    const unsigned n = blocks_of(n_blocks, (int64_t)WARPS);
    k_encode_step_scales<D><<<n, WARPS * WARP, 0, stream>>>(src, *importance, (typename block_of<D>::type *)dst, n_blocks);
    return cudaGetLastError();
}

template <apr_dtype D> static cudaError_t launch(const float *src, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const codec_importance none = {};
    return launch_by<D>(src, &none, dst, n_elems, stream);
}

launch_encode_fn encoder_of_step_scales(apr_dtype dtype)
{
    return dtype == APR_IQ4_XS ? launch<APR_IQ4_XS> : dtype == APR_Q3_K ? launch<APR_Q3_K> : (launch_encode_fn) nullptr;
}

launch_encode_by_fn encoder_by_of_step_scales(apr_dtype dtype)
{
    return dtype == APR_IQ4_XS ? launch_by<APR_IQ4_XS> : dtype == APR_Q3_K ? launch_by<APR_Q3_K> : (launch_encode_by_fn) nullptr;
}
