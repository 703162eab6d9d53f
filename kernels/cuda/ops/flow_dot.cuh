/* flow_dot.cuh - 16 rows of packed weights times planes of inputs, type by type, on tensor cores.
 *
 * Of a product m16n8k32 lane (g, t), g = lane / 4, t = lane % 4, has 8 codes of row g and 8 of row g + 8, and gets sums of those rows in
 * columns 2 t and 2 t + 1. Which columns of the weights they are is free, as long as the inputs agree: so lane t of a row takes a run of
 * its own (a block, or a part of one), and the inputs of that run stand in columns 2 t (high bytes) and 2 t + 1 (low bytes) only, zeros
 * elsewhere. What comes back to a lane are the sums of its own run, and it scales them. Inputs are held by lanes with g / 2 == t. */
#ifndef APR_KERNELS_CUDA_FLOW_DOT_CUH
#define APR_KERNELS_CUDA_FLOW_DOT_CUH

#include "kernels/cuda/codecs/dtype.cuh"
#include "kernels/cuda/ops/planes.cuh"

typedef struct flow_lane {
    int g, t;
    bool holds; /* inputs */
    int plane;  /* and which: the offset of its bytes in a tile */
} flow_lane;

static __device__ __forceinline__ flow_lane flow_lane_of(int lane)
{
    const int g = lane / 4, t = lane % 4;
    return flow_lane{g, t, g / 2 == t, g % 2 * PLANES_LOW};
}

/* sums[0], [1] of row g; [2], [3] of row g + 8: of high and low bytes. a, b: 8 codes of each row; x: 8 inputs. */
template <bool SIGNED>
static __device__ __forceinline__ void mma_bytes(int (&sums)[4], uint32_t a0, uint32_t b0, uint32_t a1, uint32_t b1, uint32_t x0,
                                                 uint32_t x1)
{
#if __CUDA_ARCH__ >= 800
    if (SIGNED)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
            : "r"(a0), "r"(b0), "r"(a1), "r"(b1), "r"(x0), "r"(x1));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
            : "r"(a0), "r"(b0), "r"(a1), "r"(b1), "r"(x0), "r"(x1));
#endif
}

/* The same of 4 halves of each row with 4 inputs. */
static __device__ __forceinline__ void mma_halves(float (&sums)[4], uint32_t a0, uint32_t b0, uint32_t a1, uint32_t b1, uint32_t x0,
                                                  uint32_t x1)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(b0), "r"(a1), "r"(b1), "r"(x0), "r"(x1));
#endif
}

static __device__ __forceinline__ void mma_bfloats(float (&sums)[4], uint32_t a0, uint32_t b0, uint32_t a1, uint32_t b1, uint32_t x0,
                                                   uint32_t x1)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(b0), "r"(a1), "r"(b1), "r"(x0), "r"(x1));
#endif
}

/* 16 codes of a group of both rows, in 4 words each. */
template <bool SIGNED>
static __device__ __forceinline__ void mma_group(int (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], uint4 x)
{
    mma_bytes<SIGNED>(sums, a[0], b[0], a[1], b[1], x.x, x.y);
    mma_bytes<SIGNED>(sums, a[2], b[2], a[3], b[3], x.z, x.w);
}

/* 256 * high + low of row g (0) or g + 8 (1). */
static __device__ __forceinline__ int whole_of(const int (&sums)[4], int row) { return sums[2 * row] * 256 + sums[2 * row + 1]; }

/* 16 inputs of this lane's plane, at a column of the tile; zeros where it holds none. */
static __device__ __forceinline__ uint4 inputs_at(const flow_lane &l, const uint8_t *tile, int column)
{
    return l.holds ? *(const uint4 *)(tile + l.plane + column) : make_uint4(0, 0, 0, 0);
}
static __device__ __forceinline__ float input_scale(const uint8_t *tile, int group)
{
    return *(const float *)(tile + PLANES_SCALES + 4 * group);
}
static __device__ __forceinline__ int input_sum(const uint8_t *tile, int group) { return *(const int *)(tile + PLANES_SUMS + 4 * group); }

/* N words from any address of shared memory; the word behind the last one may be read. */
template <int N> static __device__ __forceinline__ void words_at(const uint8_t *p, uint32_t (&words)[N])
{
    const uint32_t over = (uint32_t)__cvta_generic_to_shared(p) % 4, shift = over * 8;
    const uint32_t *const from = (const uint32_t *)(p - over);
    uint32_t last = from[0];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint32_t next = from[i + 1];
        words[i] = __funnelshift_r(last, next, shift);
        last = next;
    }
}

/* A type: COLUMNS of a row are BYTES, an item of 16 such rows; dot() adds row g's products with the item's inputs, which begin at
 * `column` of `tile`, to total[0], those of row g + 8 to total[1]; both rows' bytes are in shared memory. */
template <apr_dtype D> struct flow_type;

template <> struct flow_type<APR_Q4_K> {
    static constexpr int COLUMNS = 256, BYTES = 144;

    static __device__ __forceinline__ void scale(const uint4 head, const flow_lane &l, const float (&v)[2], const float (&sums)[2],
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

    /* Lane t has codes of columns 64 t to 64 t + 31 in the low nibbles of its 32 bytes, the next 32 in the high ones. */
    static __device__ __forceinline__ void dot(const uint8_t *row_a, const uint8_t *row_b, const uint8_t *tile, int, const flow_lane &l,
                                               float (&total)[2])
    {
        const uint4 head_a = *(const uint4 *)row_a, head_b = *(const uint4 *)row_b;
        const uint4 a[2] = {*(const uint4 *)(row_a + 16 + 32 * l.t), *(const uint4 *)(row_a + 32 + 32 * l.t)};
        const uint4 b[2] = {*(const uint4 *)(row_b + 16 + 32 * l.t), *(const uint4 *)(row_b + 32 + 32 * l.t)};
        const float4 s = *(const float4 *)(tile + PLANES_SCALES + 16 * l.t);
        const int4 n = *(const int4 *)(tile + PLANES_SUMS + 16 * l.t);
        const float sums[2] = {fmaf(s.x, (float)n.x, s.y * (float)n.y), fmaf(s.z, (float)n.z, s.w * (float)n.w)};
        float v[2][2]; /* of a row, of low and high nibbles */
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
                mma_group<false>(whole, codes_a, codes_b, inputs_at(l, tile, 64 * l.t + 32 * high + 16 * i));
                v[0][high] = fmaf(scale[i], (float)whole_of(whole, 0), v[0][high]);
                v[1][high] = fmaf(scale[i], (float)whole_of(whole, 1), v[1][high]);
            }
        }
        scale(head_a, l, v[0], sums, total[0]);
        scale(head_b, l, v[1], sums, total[1]);
    }
};

template <> struct flow_type<APR_Q6_K> {
    static constexpr int COLUMNS = 256, BYTES = 210;

    typedef struct loaded {
        uint32_t low[4], next[4], high[4];
    } loaded;

    static __device__ __forceinline__ void load(const uint8_t *row, const flow_lane &l, loaded &c)
    {
        const uint8_t *const at = row + 64 * (l.t / 2) + 16 * (l.t % 2);
        words_at(at, c.low);
        words_at(at + 32, c.next);
        words_at(at + 128 - 32 * (l.t / 2), c.high);
    }

    /* Codes of group k of the lane's four. */
    template <int K> static __device__ __forceinline__ void codes(const loaded &c, uint32_t (&out)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t low = K % 2 == 0 ? c.low[i] : c.next[i];
            out[i] = ((K < 2 ? low : low >> 4) & 0x0f0f0f0fu) | ((K == 0   ? c.high[i] << 4
                                                                  : K == 1 ? c.high[i] << 2
                                                                  : K == 2 ? c.high[i]
                                                                           : c.high[i] >> 2) &
                                                                 0x30303030u);
        }
    }

    template <int K>
    static __device__ __forceinline__ void add_group(const uint8_t *row_a, const uint8_t *row_b, const loaded &a, const loaded &b,
                                                     const uint8_t *tile, const flow_lane &l, float (&sum)[2])
    {
        const int group = 8 * (l.t / 2) + l.t % 2 + 2 * K;
        int whole[4] = {0, 0, 0, 0};
        uint32_t codes_a[4], codes_b[4];
        codes<K>(a, codes_a);
        codes<K>(b, codes_b);
        mma_group<false>(whole, codes_a, codes_b, inputs_at(l, tile, 16 * group));
        const float scale = input_scale(tile, group);
        const int offset = 32 * input_sum(tile, group);
        sum[0] = fmaf(scale * (float)(int8_t)row_a[192 + group], (float)(whole_of(whole, 0) - offset), sum[0]);
        sum[1] = fmaf(scale * (float)(int8_t)row_b[192 + group], (float)(whole_of(whole, 1) - offset), sum[1]);
    }

    static __device__ __forceinline__ float common(const uint8_t *row) { return half_float(*(const uint16_t *)(row + 208)); }

    /* Lane t has columns 128 (t / 2) + 16 (t % 2) + {0, 32, 64, 96} and the 15 behind each: four groups with a scale of their own. */
    static __device__ __forceinline__ void dot(const uint8_t *row_a, const uint8_t *row_b, const uint8_t *tile, int, const flow_lane &l,
                                               float (&total)[2])
    {
        loaded a, b;
        load(row_a, l, a);
        load(row_b, l, b);
        float sum[2] = {0.0f, 0.0f};
        add_group<0>(row_a, row_b, a, b, tile, l, sum);
        add_group<1>(row_a, row_b, a, b, tile, l, sum);
        add_group<2>(row_a, row_b, a, b, tile, l, sum);
        add_group<3>(row_a, row_b, a, b, tile, l, sum);
        total[0] = fmaf(common(row_a), sum[0], total[0]);
        total[1] = fmaf(common(row_b), sum[1], total[1]);
    }
};

template <> struct flow_type<APR_Q8_0> {
    static constexpr int COLUMNS = 128, BYTES = 136;

    /* A block a lane. */
    static __device__ __forceinline__ void dot(const uint8_t *row_a, const uint8_t *row_b, const uint8_t *tile, int column,
                                               const flow_lane &l, float (&total)[2])
    {
        const int at = column + 32 * l.t;
        const uint8_t *const block_a = row_a + 34 * l.t, *const block_b = row_b + 34 * l.t;
        float sum[2] = {0.0f, 0.0f};
        uint32_t a[8], b[8];
        words_at(block_a + 2, a);
        words_at(block_b + 2, b);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int whole[4] = {0, 0, 0, 0};
            const uint32_t codes_a[4] = {a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]};
            const uint32_t codes_b[4] = {b[4 * i], b[4 * i + 1], b[4 * i + 2], b[4 * i + 3]};
            mma_group<true>(whole, codes_a, codes_b, inputs_at(l, tile, at + 16 * i));
            const float scale = input_scale(tile, at / 16 + i);
            sum[0] = fmaf(scale, (float)whole_of(whole, 0), sum[0]);
            sum[1] = fmaf(scale, (float)whole_of(whole, 1), sum[1]);
        }
        total[0] = fmaf(half_float(*(const uint16_t *)block_a), sum[0], total[0]);
        total[1] = fmaf(half_float(*(const uint16_t *)block_b), sum[1], total[1]);
    }
};

template <> struct flow_type<APR_MXFP4> {
    static constexpr int COLUMNS = 256, BYTES = 136;

    /* 8 codes as 192 + twice their value, in the order of their nibbles. A permutation whose selector has bit 3 set copies a sign, and
     * all table bytes have the top bit set: so the table of the other sign gives ones. */
    static __device__ __forceinline__ void look_up(uint32_t q, uint32_t &front, uint32_t &back)
    {
        const uint32_t f = q ^ 0x88888888u;
        front = __byte_perm_raw(0xc3c2c1c0u, 0xccc8c6c4u, q) & __byte_perm_raw(0xbdbebfc0u, 0xb4b8babcu, f);
        back = __byte_perm_raw(0xc3c2c1c0u, 0xccc8c6c4u, q >> 16) & __byte_perm_raw(0xbdbebfc0u, 0xb4b8babcu, f >> 16);
    }
    static __device__ __forceinline__ uint32_t __byte_perm_raw(uint32_t a, uint32_t b, uint32_t selector)
    {
        uint32_t r;
        asm("prmt.b32 %0,%1,%2,%3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
        return r;
    }

    /* Low nibbles are the first 16 columns, high ones the next. */
    static __device__ __forceinline__ void codes(const uint8_t *block, uint32_t (&first)[4], uint32_t (&second)[4])
    {
        uint32_t q[4];
        words_at(block + 1, q);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t front, back;
            look_up(q[i], front, back);
            first[i] = __byte_perm(front, back, 0x6420);
            second[i] = __byte_perm(front, back, 0x7531);
        }
    }

    /* Half of 2^(e - 127). */
    static __device__ __forceinline__ float exponent(const uint8_t *block)
    {
        const uint32_t e = *block;
        return 0.5f * __uint_as_float(e == 0 ? 0x00400000u : e == 0xff ? 0x7fc00000u : e << 23);
    }

    /* A block a lane, twice. */
    static __device__ __forceinline__ void dot(const uint8_t *row_a, const uint8_t *row_b, const uint8_t *tile, int, const flow_lane &l,
                                               float (&total)[2])
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int block = 4 * half + l.t;
            const uint8_t *const block_a = row_a + 17 * block, *const block_b = row_b + 17 * block;
            uint32_t a[2][4], b[2][4];
            codes(block_a, a[0], a[1]);
            codes(block_b, b[0], b[1]);
            float sum[2] = {0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int whole[4] = {0, 0, 0, 0};
                mma_group<false>(whole, a[i], b[i], inputs_at(l, tile, 32 * block + 16 * i));
                const float scale = input_scale(tile, 2 * block + i);
                const int offset = 192 * input_sum(tile, 2 * block + i);
                sum[0] = fmaf(scale, (float)(whole_of(whole, 0) - offset), sum[0]);
                sum[1] = fmaf(scale, (float)(whole_of(whole, 1) - offset), sum[1]);
            }
            total[0] = fmaf(exponent(block_a), sum[0], total[0]);
            total[1] = fmaf(exponent(block_b), sum[1], total[1]);
        }
    }
};

/* Plain 16-bit numbers: the bytes of the inputs are exact as such, and 16 products at a time are summed up. A group a lane. */
template <bool BFLOAT> struct flow_halves {
    static constexpr int COLUMNS = 64, BYTES = 128;

    static __device__ __forceinline__ void widen(uint32_t bytes, uint32_t &front, uint32_t &back)
    {
        if constexpr (BFLOAT) {
            asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(front) : "f"((float)(int8_t)(bytes >> 8)), "f"((float)(int8_t)bytes));
            asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(back) : "f"((float)(int8_t)(bytes >> 24)), "f"((float)(int8_t)(bytes >> 16)));
        } else { /* 0x6400 + u is 1024 + u, and u is the byte plus 128 */
            const uint32_t u = bytes ^ 0x80808080u, pair[2] = {__byte_perm(u, 0x64646464u, 0x4140), __byte_perm(u, 0x64646464u, 0x4342)};
            const __half2 bias = __float2half2_rn(1152.0f);
            __half2 out[2];
#pragma unroll
            for (int i = 0; i < 2; i++) out[i] = __hsub2(*(const __half2 *)&pair[i], bias);
            front = *(uint32_t *)&out[0], back = *(uint32_t *)&out[1];
        }
    }

    static __device__ __forceinline__ void dot(const uint8_t *row_a, const uint8_t *row_b, const uint8_t *tile, int column,
                                               const flow_lane &l, float (&total)[2])
    {
        const uint4 x = inputs_at(l, tile, column + 16 * l.t);
        const uint32_t bytes[4] = {x.x, x.y, x.z, x.w};
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int piece = 16 * ((2 * l.t + i) ^ l.g); /* see flow_ring */
            const uint4 a = *(const uint4 *)(row_a + piece), b = *(const uint4 *)(row_b + piece);
            uint32_t w[4];
            widen(bytes[2 * i], w[0], w[1]);
            widen(bytes[2 * i + 1], w[2], w[3]);
            if constexpr (BFLOAT) {
                mma_bfloats(sums, a.x, b.x, a.y, b.y, w[0], w[1]);
                mma_bfloats(sums, a.z, b.z, a.w, b.w, w[2], w[3]);
            } else {
                mma_halves(sums, a.x, b.x, a.y, b.y, w[0], w[1]);
                mma_halves(sums, a.z, b.z, a.w, b.w, w[2], w[3]);
            }
        }
        const float scale = input_scale(tile, column / 16 + l.t);
        total[0] = fmaf(scale, fmaf(256.0f, sums[0], sums[1]), total[0]);
        total[1] = fmaf(scale, fmaf(256.0f, sums[2], sums[3]), total[1]);
    }
};
template <> struct flow_type<APR_F16> : flow_halves<false> {
};
template <> struct flow_type<APR_BF16> : flow_halves<true> {
};

#define X(id, columns) static_assert(flow_type<APR_##id>::COLUMNS == columns, "as flow_args.h has it");
APR_FLOW_ITEMS(X)
APR_FLOW_ROWS(X)
#undef X

#endif
