/* decode_gemv_dot.cuh - tensor core products of a tile of packed weights with int16 activations (activations_i16.cuh), for each type.
 *
 * In a product m16n8k32 lane (g, t), g = lane / 4, t = lane % 4, holds 8 codes of row g and 8 of row g + 8, and gets the sums of these rows
 * in columns 2 t and 2 t + 1. Any columns of the weights may be used, as long as the activations match. So lane t of a row takes its own
 * run of columns (a block, or a part of one), and the activations of that run are in columns 2 t (high bytes) and 2 t + 1 (low bytes) only,
 * with zeros elsewhere. The sums that a lane gets are then those of its own run, and it applies the run's scale. Lanes with g / 2 == t hold
 * activations. */
#ifndef APR_KERNELS_CUDA_DECODE_GEMV_DOT_CUH
#define APR_KERNELS_CUDA_DECODE_GEMV_DOT_CUH

#include "kernels/cuda/codecs/dtype.cuh"
#include "kernels/cuda/common/activations_i16.cuh"
#include "kernels/cuda/device/ptx.cuh"

typedef struct decode_gemv_lane {
    int g, t;
    bool holds;            /* whether it holds activations */
    int plane;             /* which of them: high bytes (0) or low bytes (1) */
    const uint32_t *table; /* see decode_gemv_rows */
    uint32_t word;         /* its first word; not a constant, which the compiler would load into a register for each look-up */
} decode_gemv_lane;

static __device__ __forceinline__ decode_gemv_lane decode_gemv_lane_of(int lane)
{
    const int g = lane / 4, t = lane % 4;
    return decode_gemv_lane{g, t, g / 2 == t, g % 2, NULL, 0};
}

/* Activations in shared memory: a tile's 16 groups one after another, each with 16 high bytes and its 16 low bytes, so that the two lanes
 * that hold a group read adjacent bytes. Scales and sums are where they are in global memory. activation_piece(i): where 16-byte piece i
 * goes. */
enum { I16_TILE_PIECES = I16_TILE_BYTES / 16 };

static __device__ __forceinline__ int activation_piece(int i)
{
    const int n_groups = I16_TILE / I16_GROUP;
    return i < n_groups ? 2 * i : i < 2 * n_groups ? 2 * (i - n_groups) + 1 : i;
}

/* sums[0], [1] of row g; [2], [3] of row g + 8: for high and low bytes. a, b: 8 codes of each row; x: 8 activations. */
template <bool SIGNED>
static __device__ __forceinline__ void mma_bytes(int (&sums)[4], uint32_t a0, uint32_t b0, uint32_t a1, uint32_t b1, uint32_t x0,
                                                 uint32_t x1)
{
#if __CUDA_ARCH__ >= 800
    if (SIGNED) ptx_mma_s8(sums, a0, b0, a1, b1, x0, x1);
    else ptx_mma_u8(sums, a0, b0, a1, b1, x0, x1);
#endif
}

/* The same with 4 FP16 numbers of each row and 4 activations. */
static __device__ __forceinline__ void mma_f16(float (&sums)[4], uint32_t a0, uint32_t b0, uint32_t a1, uint32_t b1, uint32_t x0,
                                               uint32_t x1)
{
#if __CUDA_ARCH__ >= 800
    ptx_mma_f16(sums, a0, b0, a1, b1, x0, x1);
#endif
}

static __device__ __forceinline__ void mma_bf16(float (&sums)[4], uint32_t a0, uint32_t b0, uint32_t a1, uint32_t b1, uint32_t x0,
                                                uint32_t x1)
{
#if __CUDA_ARCH__ >= 800
    ptx_mma_bf16(sums, a0, b0, a1, b1, x0, x1);
#endif
}

/* 16 codes of a group for both rows, in 4 words each. */
template <bool SIGNED>
static __device__ __forceinline__ void mma_group(int (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], uint4 x)
{
    mma_bytes<SIGNED>(sums, a[0], b[0], a[1], b[1], x.x, x.y);
    mma_bytes<SIGNED>(sums, a[2], b[2], a[3], b[3], x.z, x.w);
}

/* 256 * high + low of row g (0) or g + 8 (1). */
static __device__ __forceinline__ int whole_of(const int (&sums)[4], int row) { return sums[2 * row] * 256 + sums[2 * row + 1]; }

/* Loads 16 bytes of a group's activations, high or low as l.plane says. A lane that holds none keeps its x, which was initialized to
 * zeros. */
static __device__ __forceinline__ void load_activations_16(const decode_gemv_lane &l, const uint8_t *tile, int group, uint4 &x)
{
    ptx_load_shared_if(l.holds, tile + 2 * I16_GROUP * group + I16_GROUP * l.plane, x);
}
static __device__ __forceinline__ float input_scale(const uint8_t *tile, int group)
{
    return *(const float *)(tile + I16_SCALES_AT + 4 * group);
}
static __device__ __forceinline__ int input_sum(const uint8_t *tile, int group) { return *(const int *)(tile + I16_SUMS_AT + 4 * group); }

/* N words from bit `shift` of the first of N + 1 words on. */
template <int N> static __device__ __forceinline__ void words_at(const uint8_t *p, uint32_t shift, uint32_t (&words)[N])
{
    const uint32_t *const from = (const uint32_t *)p;
    uint32_t last = from[0];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint32_t next = from[i + 1];
        words[i] = __funnelshift_rc(last, next, shift);
        last = next;
    }
}

/* A type: COLUMNS of a row have BYTES, and a tile has 16 such rows. Lane (g, t) has rows row_of(g) and ROW_STEP further, which are chosen
 * so that lanes read from different banks. dot() adds the products of those rows with the activations from `column` of `tile` on to
 * total[0] and total[1]; `row` is the lane's first row in shared memory plus lane_bytes(t). arranged(): 16 activations in the order that
 * the type needs. x: two times 16 activations, see load_activations_16. TABLE_WORDS: size of a look-up table in shared memory. */
struct decode_gemv_rows {
    static constexpr int ROW_STEP = 8;
    static __device__ __forceinline__ int row_of(int g) { return g; }
    static __device__ __forceinline__ int lane_bytes(int) { return 0; }
    static __device__ __forceinline__ uint4 arranged(uint4 x) { return x; }
    static constexpr int TABLE_WORDS = 0;
    static __device__ __forceinline__ uint32_t table_word(int) { return 0; }
};

/* Rows of 34 words: lanes read from words 0, 8, 17 and 25 on. */
struct decode_gemv_rows_of_34 : decode_gemv_rows {
    static constexpr int ROW_STEP = 4;
    static __device__ __forceinline__ int row_of(int g) { return g % 4 + 8 * (g / 4); }
    static __device__ __forceinline__ int lane_bytes(int t) { return 34 * t & ~3; }
};

template <apr_dtype D> struct decode_gemv_type;

template <> struct decode_gemv_type<APR_Q4_K> : decode_gemv_rows {
    static constexpr int COLUMNS = 256, BYTES = 144;

    static __device__ __forceinline__ void scale(const uint4 head, const decode_gemv_lane &l, const float (&v)[2], const float (&sums)[2],
                                                 float &total)
    {
        /* bytes 4 to 15: eight 6-bit scales and eight minimums, as ggml packs them; four at a time */
        const bool late = l.t >= 2;
        const uint32_t scales = late ? (head.w & 0x0f0f0f0fu) | (head.y >> 2 & 0x30303030u) : head.y & 0x3f3f3f3fu;
        const uint32_t mins = late ? (head.w >> 4 & 0x0f0f0f0fu) | (head.z >> 2 & 0x30303030u) : head.z & 0x3f3f3f3fu;
        const int at = l.t % 2 * 16;
        const float d = half_float(head.x), min = half_float(head.x >> 16);
        const float product = fmaf((float)(scales >> at & 0xff), v[0], (float)(scales >> (at + 8) & 0xff) * v[1]);
        const float below = fmaf((float)(mins >> at & 0xff), sums[0], (float)(mins >> (at + 8) & 0xff) * sums[1]);
        total = fmaf(d, product, fmaf(-min, below, total));
    }

    /* Lane t has the codes of columns 64 t to 64 t + 31 in the low nibbles of its 32 bytes, those of the next 32 columns in the high
     * nibbles. */
    static __device__ __forceinline__ void dot(const uint8_t *row_a, const uint8_t *tile, int, const decode_gemv_lane &l, uint4 (&x)[2],
                                               float (&total)[2])
    {
        const uint8_t *const row_b = row_a + ROW_STEP * BYTES;
        const uint4 head_a = *(const uint4 *)row_a, head_b = *(const uint4 *)row_b;
        const uint4 a[2] = {*(const uint4 *)(row_a + 16 + 32 * l.t), *(const uint4 *)(row_a + 32 + 32 * l.t)};
        const uint4 b[2] = {*(const uint4 *)(row_b + 16 + 32 * l.t), *(const uint4 *)(row_b + 32 + 32 * l.t)};
        const float4 s = *(const float4 *)(tile + I16_SCALES_AT + 16 * l.t);
        const int4 n = *(const int4 *)(tile + I16_SUMS_AT + 16 * l.t);
        const float sums[2] = {fmaf(s.x, (float)n.x, s.y * (float)n.y), fmaf(s.z, (float)n.z, s.w * (float)n.w)};
        float v[2][2]; /* [row][low or high nibbles] */
#pragma unroll
        for (int high = 0; high < 2; high++) {
            const uint32_t mask = high ? 0xf0f0f0f0u : 0x0f0f0f0fu; /* high nibbles are 16 times their code */
            const float scale[2] = {high ? s.z * 0.0625f : s.x, high ? s.w * 0.0625f : s.y};
            v[0][high] = v[1][high] = 0.0f;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int whole[4] = {0, 0, 0, 0};
                const uint32_t codes_a[4] = {a[i].x & mask, a[i].y & mask, a[i].z & mask, a[i].w & mask};
                const uint32_t codes_b[4] = {b[i].x & mask, b[i].y & mask, b[i].z & mask, b[i].w & mask};
                load_activations_16(l, tile, 4 * l.t + 2 * high + i, x[i]);
                mma_group<false>(whole, codes_a, codes_b, x[i]);
                v[0][high] = fmaf(scale[i], (float)whole_of(whole, 0), v[0][high]);
                v[1][high] = fmaf(scale[i], (float)whole_of(whole, 1), v[1][high]);
            }
        }
        scale(head_a, l, v[0], sums, total[0]);
        scale(head_b, l, v[1], sums, total[1]);
    }
};

/* Even rows begin at a word, odd rows half a word later. A lane has one of each. */
template <> struct decode_gemv_type<APR_Q6_K> : decode_gemv_rows {
    static constexpr int COLUMNS = 256, BYTES = 210, ROW_STEP = 1;
    static __device__ __forceinline__ int row_of(int g) { return 2 * g; }

    typedef struct loaded {
        uint32_t low[4], next[4], high[4];
    } loaded;

    template <int SHIFT> static __device__ __forceinline__ void load(const uint8_t *row, const decode_gemv_lane &l, loaded &c)
    {
        const uint8_t *const at = row - SHIFT / 8 + 64 * (l.t / 2) + 16 * (l.t % 2);
        words_at(at, SHIFT, c.low);
        words_at(at + 32, SHIFT, c.next);
        words_at(at + 128 - 32 * (l.t / 2), SHIFT, c.high);
    }

    /* lower(): the lower 4 bits of group K's codes, times 16 from group 2 on. upper(): the upper 2 bits, times 4^K. The bits are not moved:
     * tensor cores multiply lower and upper bits separately, and the sums are combined. */
    template <int K> static __device__ __forceinline__ void lower(const loaded &c, uint32_t (&out)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++) out[i] = (K % 2 == 0 ? c.low[i] : c.next[i]) & (K < 2 ? 0x0f0f0f0fu : 0xf0f0f0f0u);
    }
    template <int K> static __device__ __forceinline__ void upper(const loaded &c, uint32_t (&out)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++) out[i] = c.high[i] & (0x03030303u << 2 * K);
    }

    template <int K>
    static __device__ __forceinline__ void add_group(const uint8_t *row_a, const loaded &a, const loaded &b, const uint8_t *tile,
                                                     const decode_gemv_lane &l, uint4 &x, float (&sum)[2])
    {
        constexpr int TIMES = K < 2 ? 1 : 16, UPPER = K % 2 == 0 ? 16 : 4; /* scale of low sums; factor of high sums */
        const int group = 8 * (l.t / 2) + l.t % 2 + 2 * K;
        int low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0};
        uint32_t codes_a[4], codes_b[4];
        load_activations_16(l, tile, group, x);
        lower<K>(a, codes_a);
        lower<K>(b, codes_b);
        mma_group<false>(low, codes_a, codes_b, x);
        upper<K>(a, codes_a);
        upper<K>(b, codes_b);
        mma_group<false>(high, codes_a, codes_b, x);
        const float scale = input_scale(tile, group) * (1.0f / TIMES);
        const int offset = -32 * TIMES * input_sum(tile, group);
        const int8_t *const scales = (const int8_t *)row_a + 192 + group;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int whole = whole_of(high, k) * UPPER + (whole_of(low, k) + offset);
            sum[k] = fmaf(scale * (float)scales[k * BYTES], (float)whole, sum[k]);
        }
    }

    static __device__ __forceinline__ float block_scale(const uint8_t *row) { return half_float(*(const uint16_t *)(row + 208)); }

    /* Lane t has four groups of 16 columns from 128 (t / 2) + 16 (t % 2) + {0, 32, 64, 96} on, each with its own scale. */
    static __device__ __forceinline__ void dot(const uint8_t *row_a, const uint8_t *tile, int, const decode_gemv_lane &l, uint4 (&x)[2],
                                               float (&total)[2])
    {
        loaded a, b;
        load<0>(row_a, l, a);
        load<16>(row_a + BYTES, l, b);
        float sum[2] = {0.0f, 0.0f};
        add_group<0>(row_a, a, b, tile, l, x[0], sum);
        add_group<1>(row_a, a, b, tile, l, x[1], sum);
        add_group<2>(row_a, a, b, tile, l, x[0], sum);
        add_group<3>(row_a, a, b, tile, l, x[1], sum);
        total[0] = fmaf(block_scale(row_a), sum[0], total[0]);
        total[1] = fmaf(block_scale(row_a + BYTES), sum[1], total[1]);
    }
};

template <> struct decode_gemv_type<APR_Q8_0> : decode_gemv_rows_of_34 {
    static constexpr int COLUMNS = 128, BYTES = 136;

    /* Loads a block from the word in which it begins, at the word's start or in its middle. Returns its scale. */
    static __device__ __forceinline__ float load(const uint8_t *at, uint32_t begin, uint32_t (&codes)[8])
    {
        words_at(at, begin + 16, codes);
        return half_float(*(const uint32_t *)at >> begin);
    }

    /* One block per lane. */
    static __device__ __forceinline__ void dot(const uint8_t *row, const uint8_t *tile, int column, const decode_gemv_lane &l,
                                               uint4 (&x)[2], float (&total)[2])
    {
        const int group = column / I16_GROUP + 2 * l.t;
        const uint32_t begin = 16 * (l.t % 2);
        float sum[2] = {0.0f, 0.0f};
        uint32_t a[8], b[8];
        const float scale_a = load(row, begin, a), scale_b = load(row + ROW_STEP * BYTES, begin, b);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int whole[4] = {0, 0, 0, 0};
            const uint32_t codes_a[4] = {a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]};
            const uint32_t codes_b[4] = {b[4 * i], b[4 * i + 1], b[4 * i + 2], b[4 * i + 3]};
            load_activations_16(l, tile, group + i, x[i]);
            mma_group<true>(whole, codes_a, codes_b, x[i]);
            const float scale = input_scale(tile, group + i);
            sum[0] = fmaf(scale, (float)whole_of(whole, 0), sum[0]);
            sum[1] = fmaf(scale, (float)whole_of(whole, 1), sum[1]);
        }
        total[0] = fmaf(scale_a, sum[0], total[0]);
        total[1] = fmaf(scale_b, sum[1], total[1]);
    }
};

/* A tile's row: eight exponents, then the codes, in words of eight neighbouring columns (kernels/cuda/decode_gemv_args.h). */
template <> struct decode_gemv_type<APR_MXFP4> : decode_gemv_rows_of_34 {
    static constexpr int COLUMNS = 256, BYTES = 136;
    static __device__ __forceinline__ int lane_bytes(int t) { return 32 * t; }

    /* Word 0: the doubled magnitudes of codes 0 to 3. Then for each exponent e half of 2^(e - 127): 0 is 2^-127, 255 is NaN. */
    static constexpr int TABLE_WORDS = 1 + 256;
    static __device__ __forceinline__ uint32_t table_word(int i)
    {
        if (i == 0) return 0x03020100u;
        return i == 1 ? 0x00200000u : i == 2 ? 0x00400000u : i == 256 ? 0x7fc00000u : (uint32_t)(i - 2) << 23;
    }

    /* Looks up 8 codes, in the order of their nibbles: twice the magnitude where a code is not negative, else 0. A selector of prmt with
     * bit 3 set replicates the byte's sign, which is 0 for all bytes of the table. With the codes' sign bits flipped it gives the negative
     * codes. */
    static __device__ __forceinline__ void look_up(uint32_t magnitudes, uint32_t q, uint32_t (&out)[2])
    {
        out[0] = ptx_permute(magnitudes, 0x0c080604u, q);
        out[1] = ptx_permute(magnitudes, 0x0c080604u, q >> 16);
    }

    /* A word's nibbles are columns 0 4 1 5 2 6 3 7; activations are put in that order. */
    static __device__ __forceinline__ uint4 arranged(uint4 x)
    {
        return make_uint4(__byte_perm(x.x, x.y, 0x5140), __byte_perm(x.x, x.y, 0x7362), __byte_perm(x.z, x.w, 0x5140),
                          __byte_perm(x.z, x.w, 0x7362));
    }

    /* 8 codes of both rows; positive ones go to sums[0], negative ones to sums[1]. */
    static __device__ __forceinline__ void multiply(uint32_t magnitudes, uint32_t a, uint32_t b, uint32_t x0, uint32_t x1,
                                                    int (&sums)[2][4])
    {
#pragma unroll
        for (int sign = 0; sign < 2; sign++) {
            uint32_t codes_a[2], codes_b[2];
            look_up(magnitudes, sign ? a ^ 0x88888888u : a, codes_a);
            look_up(magnitudes, sign ? b ^ 0x88888888u : b, codes_b);
            mma_bytes<false>(sums[sign], codes_a[0], codes_b[0], codes_a[1], codes_b[1], x0, x1);
        }
    }

    /* A block of both rows: first its columns 0 to 15, then 16 to 31. */
    static __device__ __forceinline__ void add_block(const uint8_t *codes, const uint8_t *tile, int group, const decode_gemv_lane &l,
                                                     uint4 (&x)[2], float (&sum)[2])
    {
        const uint2 a[2] = {*(const uint2 *)codes, *(const uint2 *)(codes + 8)};
        const uint2 b[2] = {*(const uint2 *)(codes + ROW_STEP * BYTES), *(const uint2 *)(codes + ROW_STEP * BYTES + 8)};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int sums[2][4] = {};
            load_activations_16(l, tile, group + i, x[i]);
            multiply(l.word, i ? a[0].y : a[0].x, i ? b[0].y : b[0].x, x[i].x, x[i].y, sums);
            multiply(l.word, i ? a[1].y : a[1].x, i ? b[1].y : b[1].x, x[i].z, x[i].w, sums);
            const float scale = input_scale(tile, group + i);
#pragma unroll
            for (int k = 0; k < 2; k++) sum[k] = fmaf(scale, (float)(whole_of(sums[0], k) - whole_of(sums[1], k)), sum[k]);
        }
    }

    /* Two consecutive blocks per lane. */
    static __device__ __forceinline__ void dot(const uint8_t *row, const uint8_t *tile, int, const decode_gemv_lane &l, uint4 (&x)[2],
                                               float (&total)[2])
    {
        const uint8_t *const exponents = row - 30 * l.t;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum[2] = {0.0f, 0.0f};
            add_block(row + 8 + 16 * half, tile, 4 * l.t + 2 * half, l, x, sum);
#pragma unroll
            for (int k = 0; k < 2; k++)
                total[k] = fmaf(__uint_as_float(l.table[1 + exponents[half + k * ROW_STEP * BYTES]]), sum[k], total[k]);
        }
    }
};

/* Plain 16-bit numbers: the activations' bytes are exact as FP16 or BF16, and 16 products at a time are summed. One group per lane. */
template <bool IS_BF16> struct decode_gemv_16_bits : decode_gemv_rows {
    static constexpr int COLUMNS = 64, BYTES = 128;

    static __device__ __forceinline__ void widen(uint32_t bytes, uint32_t &front, uint32_t &back)
    {
        if constexpr (IS_BF16) {
            front = ptx_bf16_pair((float)(int8_t)(bytes >> 8), (float)(int8_t)bytes);
            back = ptx_bf16_pair((float)(int8_t)(bytes >> 24), (float)(int8_t)(bytes >> 16));
        } else { /* FP16 bits 0x6400 + u are 1024 + u, where u is the byte plus 128 */
            const uint32_t u = bytes ^ 0x80808080u, pair[2] = {__byte_perm(u, 0x64646464u, 0x4140), __byte_perm(u, 0x64646464u, 0x4342)};
            const __half2 bias = __float2half2_rn(1152.0f);
            __half2 out[2];
#pragma unroll
            for (int i = 0; i < 2; i++) out[i] = __hsub2(*(const __half2 *)&pair[i], bias);
            front = *(uint32_t *)&out[0], back = *(uint32_t *)&out[1];
        }
    }

    static __device__ __forceinline__ void dot(const uint8_t *row_a, const uint8_t *tile, int column, const decode_gemv_lane &l,
                                               uint4 (&inputs)[2], float (&total)[2])
    {
        const uint8_t *const row_b = row_a + ROW_STEP * BYTES;
        uint4 &x = inputs[0];
        load_activations_16(l, tile, column / I16_GROUP + l.t, x);
        const uint32_t bytes[4] = {x.x, x.y, x.z, x.w};
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int piece = 16 * ((2 * l.t + i) ^ l.g); /* see decode_gemv_ring */
            const uint4 a = *(const uint4 *)(row_a + piece), b = *(const uint4 *)(row_b + piece);
            uint32_t w[4];
            widen(bytes[2 * i], w[0], w[1]);
            widen(bytes[2 * i + 1], w[2], w[3]);
            if constexpr (IS_BF16) {
                mma_bf16(sums, a.x, b.x, a.y, b.y, w[0], w[1]);
                mma_bf16(sums, a.z, b.z, a.w, b.w, w[2], w[3]);
            } else {
                mma_f16(sums, a.x, b.x, a.y, b.y, w[0], w[1]);
                mma_f16(sums, a.z, b.z, a.w, b.w, w[2], w[3]);
            }
        }
        const float scale = input_scale(tile, column / 16 + l.t);
        total[0] = fmaf(scale, fmaf(256.0f, sums[0], sums[1]), total[0]);
        total[1] = fmaf(scale, fmaf(256.0f, sums[2], sums[3]), total[1]);
    }
};
template <> struct decode_gemv_type<APR_F16> : decode_gemv_16_bits<false> {
};
template <> struct decode_gemv_type<APR_BF16> : decode_gemv_16_bits<true> {
};

/* F32, for the experts' routers of GGUF files: half a group per lane, multiplied by FMA without tensor cores. */
template <> struct decode_gemv_type<APR_F32> : decode_gemv_rows {
    static constexpr int COLUMNS = 32, BYTES = 128;

    /* 256 * high + low of the signed bytes of two words, exact. */
    static __device__ __forceinline__ void whole_numbers(uint32_t high, uint32_t low, float *x)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = (float)((int8_t)(high >> (8 * i)) * 256 + (int8_t)(low >> (8 * i)));
    }

    static __device__ __forceinline__ void dot(const uint8_t *row_a, const uint8_t *tile, int column, const decode_gemv_lane &l,
                                               uint4 (&)[2], float (&total)[2])
    {
        const uint8_t *const row_b = row_a + ROW_STEP * BYTES;
        const int group = column / I16_GROUP + l.t / 2;
        const uint8_t *const bytes = tile + 2 * I16_GROUP * group + l.t % 2 * 8;
        const uint2 high = *(const uint2 *)bytes, low = *(const uint2 *)(bytes + I16_GROUP);
        float x[8], sums[2] = {0.0f, 0.0f};
        whole_numbers(high.x, low.x, x);
        whole_numbers(high.y, low.y, x + 4);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int piece = 16 * ((2 * l.t + i) ^ l.g); /* see decode_gemv_ring */
            const float4 a = *(const float4 *)(row_a + piece), b = *(const float4 *)(row_b + piece);
            sums[0] = fmaf(a.x, x[4 * i], fmaf(a.y, x[4 * i + 1], fmaf(a.z, x[4 * i + 2], fmaf(a.w, x[4 * i + 3], sums[0]))));
            sums[1] = fmaf(b.x, x[4 * i], fmaf(b.y, x[4 * i + 1], fmaf(b.z, x[4 * i + 2], fmaf(b.w, x[4 * i + 3], sums[1]))));
        }
        const float scale = input_scale(tile, group);
        total[0] = fmaf(scale, sums[0], total[0]);
        total[1] = fmaf(scale, sums[1], total[1]);
    }
};

#define X(id, columns) static_assert(decode_gemv_type<APR_##id>::COLUMNS == columns, "decode_gemv_args.h has the same size");
APR_TILED_TYPES(X)
APR_UNTILED_TYPES(X)
#undef X

#endif
