/* dtype_k.cuh - the types with blocks of 256; dtype.cuh explains pieces. A piece has 8 neighbouring bytes of each field of codes, so that a
 * scale serves 8 columns. */
#ifndef APR_KERNELS_CUDA_DTYPE_K_CUH
#define APR_KERNELS_CUDA_DTYPE_K_CUH

#include "kernels/cuda/codecs/dtype.cuh"

/* Groups of 8 columns; group g of the 4 of a half block is 32 * g further. */
struct quarters_of_128 {
    static constexpr int ELEMS = 256, LANES = 8, RUNS = 8, SCALES = 4;
    static __device__ __forceinline__ int column(int lane, int run) { return lane / 4 * 128 + run / 2 * 32 + lane % 4 * 8 + run % 2 * 4; }
    static __device__ __forceinline__ int twist_of(int, int lane) { return lane / 4; }
};

/* Unit codes (dtype.cuh) in them. */
template <int ZERO> struct unit_quarters : quarters_of_128 {
    static constexpr float UNIT = 128.0f, BIAS = 1.0f + ZERO / 128.0f;
    static constexpr bool HAS_MIN = false;
    __device__ __forceinline__ float block_min() const { return 0.0f; }
    __device__ __forceinline__ float min(int) const { return 0.0f; }
};

/* The 6-bit scales and minimums of 8 sub-blocks, one per byte. */
struct scales_6_bits {
    uint32_t scales[2], mins[2];
    __device__ __forceinline__ void unpack(uint32_t a, uint32_t b, uint32_t c)
    {
        scales[0] = a & 0x3f3f3f3fu;
        mins[0] = b & 0x3f3f3f3fu;
        scales[1] = (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u);
        mins[1] = (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u);
    }
};

/* 32 bytes of codes hold two sub-blocks of 32. A block has 4 pieces, each with 8 columns of all 8 sub-blocks. */
struct subs_of_256 {
    static constexpr int ELEMS = 256, LANES = 4, RUNS = 16, SCALES = 8;
    static constexpr bool HAS_MIN = true;
    uint4 head; /* d, dmin; 12 bytes of scales */
    uint2 qs[4];
    static __device__ __forceinline__ int column(int lane, int run) { return run / 2 * 32 + lane * 8 + run % 2 * 4; }
    static __device__ __forceinline__ int twist_of(int block, int) { return block & 1; }
    __device__ __forceinline__ void twist(int t)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) qs[i] = swapped_if(qs[i], t);
    }
    __device__ __forceinline__ void load_parts(const uint8_t *block, const uint8_t *codes, int lane)
    {
        head = load_128(block);
#pragma unroll
        for (int i = 0; i < 4; i++) qs[i] = load_64(codes + 32 * i + 8 * lane);
    }
    __device__ __forceinline__ uint32_t nibble_codes(int run) const
    {
        const uint2 pair = qs[run / 4];
        return nibbles(run % 2 ? pair.y : pair.x, run / 2 % 2);
    }
    __device__ __forceinline__ float block_scale() const { return half_float(head.x); }
    __device__ __forceinline__ float block_min() const { return half_float(head.x >> 16); }
    __device__ __forceinline__ float scale(int group) const
    {
        scales_6_bits s;
        s.unpack(head.y, head.z, head.w);
        return byte_float(s.scales[group / 4], group % 4);
    }
    __device__ __forceinline__ float min(int group) const
    {
        scales_6_bits s;
        s.unpack(head.y, head.z, head.w);
        return byte_float(s.mins[group / 4], group % 4);
    }
};

template <> struct piece<APR_Q4_K> : subs_of_256 {
    static constexpr float UNIT = 128.0f, BIAS = 1.0f;
    static constexpr int BYTES = 144;
    __device__ __forceinline__ void load(const uint8_t *block, int lane) { load_parts(block, block + 16, lane); }
    __device__ __forceinline__ float4 codes(int run) const { return unit_codes(nibble_codes(run)); }
};

/* The fifth bit of sub-block s is bit s. */
template <> struct piece<APR_Q5_K> : subs_of_256 {
    static constexpr float UNIT = 128.0f, BIAS = 1.0f;
    static constexpr int BYTES = 176;
    uint2 qh;
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        load_parts(block, block + 48, lane);
        qh = load_64(block + 16 + 8 * lane);
    }
    __device__ __forceinline__ void twist(int t)
    {
        subs_of_256::twist(t);
        qh = swapped_if(qh, t);
    }
    __device__ __forceinline__ float4 codes(int run) const
    {
        const uint32_t word = run % 2 ? qh.y : qh.x;
        const int sub = run / 2;
        const uint32_t high = (sub < 4 ? word << (4 - sub) : word >> (sub - 4)) & 0x10101010u;
        return unit_codes(nibble_codes(run) | high);
    }
};

template <> struct piece<APR_Q6_K> : unit_quarters<32> {
    static constexpr int BYTES = 210;
    uint2 ql[2], qh;
    uint32_t scales; /* of the four groups */
    uint32_t d;
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        const int half = lane / 4, i = lane % 4;
        ql[0] = load_64_any(block + 64 * half + 8 * i);
        ql[1] = load_64_any(block + 64 * half + 32 + 8 * i);
        qh = load_64_any(block + 128 + 32 * half + 8 * i);
        const uint2 bytes = load_64_any(block + 192 + 8 * half);
        scales = __byte_perm(bytes.x, bytes.y, i < 2 ? 0x6420 : 0x7531) ^ 0x80808080u;
        d = load_16(block + 208);
    }
    __device__ __forceinline__ void twist(int t)
    {
        ql[0] = swapped_if(ql[0], t);
        ql[1] = swapped_if(ql[1], t);
        qh = swapped_if(qh, t);
    }
    __device__ __forceinline__ float4 codes(int run) const
    {
        const int k = run / 2;
        const uint2 low = ql[k % 2];
        const uint32_t word = run % 2 ? qh.y : qh.x;
        const uint32_t high = (k < 2 ? word << (4 - 2 * k) : word >> (2 * k - 4)) & 0x30303030u;
        return unit_codes(nibbles(run % 2 ? low.y : low.x, k / 2) | high);
    }
    __device__ __forceinline__ float block_scale() const { return half_float(d); }
    __device__ __forceinline__ float scale(int group) const { return byte_float(scales, group) - 128.0f; }
};

template <> struct piece<APR_Q2_K> : unit_quarters<0> {
    static constexpr int BYTES = 84;
    static constexpr bool HAS_MIN = true;
    uint2 qs;
    uint32_t scales, dm;
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        const int half = lane / 4, i = lane % 4;
        qs = make_uint2(load_32(block + 16 + 32 * half + 8 * i), load_32(block + 20 + 32 * half + 8 * i));
        scales = __byte_perm(load_32(block + 8 * half), load_32(block + 8 * half + 4), i < 2 ? 0x6420 : 0x7531);
        dm = load_32(block + 80);
    }
    __device__ __forceinline__ void twist(int t) { qs = swapped_if(qs, t); }
    __device__ __forceinline__ float4 codes(int run) const
    {
        return unit_codes(((run % 2 ? qs.y : qs.x) >> run / 2 * 2 & 0x03030303u) | 0x80808080u);
    }
    __device__ __forceinline__ float block_scale() const { return half_float(dm); }
    __device__ __forceinline__ float block_min() const { return half_float(dm >> 16); }
    __device__ __forceinline__ float scale(int group) const { return byte_float(scales & 0x0f0f0f0fu, group); }
    __device__ __forceinline__ float min(int group) const { return byte_float(scales >> 4 & 0x0f0f0f0fu, group); }
};

template <> struct piece<APR_Q3_K> : unit_quarters<4> {
    static constexpr int BYTES = 110;
    uint2 qs, mask; /* bit k of mask: the third bit of group k */
    uint32_t scales, d;
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        const int half = lane / 4, i = lane % 4;
        qs = load_64_any(block + 32 + 32 * half + 8 * i);
        const uint2 bits = load_64_any(block + 8 * i), low = load_64_any(block + 96);
        const uint32_t top = load_32_any(block + 104);
        mask = make_uint2(bits.x >> 4 * half, bits.y >> 4 * half);
        /* scale s = 8 * half + 2 * group + i / 2: nibble in byte s % 8, upper bits 2 * (s / 4) of byte s % 4 */
        const uint32_t picked = __byte_perm(low.x, low.y, i < 2 ? 0x6420 : 0x7531) >> 4 * half & 0x0f0f0f0fu;
        const uint32_t upper = __byte_perm(top, top, i < 2 ? 0x2020 : 0x3131) >> 4 * half; /* groups 0, 1; 2, 3 are two bits further */
        scales = picked | (upper << 4 & 0x00003030u) | (upper << 2 & 0x30300000u);
        d = load_16(block + 108);
    }
    __device__ __forceinline__ void twist(int t)
    {
        qs = swapped_if(qs, t);
        mask = swapped_if(mask, t);
    }
    __device__ __forceinline__ float4 codes(int run) const
    {
        const int k = run / 2;
        const uint32_t low = (run % 2 ? qs.y : qs.x) >> 2 * k & 0x03030303u, word = run % 2 ? mask.y : mask.x;
        const uint32_t high = (k < 3 ? word << (2 - k) : word >> 1) & 0x04040404u;
        return unit_codes(low | high | 0x80808080u);
    }
    __device__ __forceinline__ float block_scale() const { return half_float(d); }
    __device__ __forceinline__ float scale(int group) const { return byte_float(scales, group) - 32.0f; }
};

/* A piece is 8 bytes of each of two sub-blocks of 32. */
template <> struct piece<APR_IQ4_XS> : piece_base {
    static constexpr int ELEMS = 256, BYTES = 136, LANES = 8, RUNS = 8, SCALES = 2;
    uint2 qs[2];
    uint32_t d;      /* d, and the upper bits of this piece's scales in bits 16 to 19 */
    uint32_t scales; /* their two low nibbles */
    int twist_bits = 0;
    static __device__ __forceinline__ int twist_of(int, int lane) { return lane / 2; }
    __device__ __forceinline__ void twist(int t)
    {
        twist_bits = t;
        qs[0] = swapped_if(qs[0], t & 1);
        qs[1] = swapped_if(qs[1], t & 1);
    }
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        const int pair = lane / 2;
        const uint2 head = load_64(block);
        d = (head.x & 0xffff) | (head.x >> 16 >> 4 * pair & 0x0f) << 16;
        scales = head.y >> 8 * pair & 0xff;
        qs[0] = load_64(block + 8 + 32 * pair + lane % 2 * 8);
        qs[1] = load_64(block + 24 + 32 * pair + lane % 2 * 8);
    }
    static __device__ __forceinline__ int column(int lane, int run)
    {
        return lane / 2 * 64 + run / 4 * 32 + run / 2 % 2 * 16 + lane % 2 * 8 + run % 2 * 4;
    }
    __device__ __forceinline__ float4 codes(int run) const
    {
        const uint2 pair = qs[run / 4];
        return iq4_codes(run % 2 ? pair.y : pair.x, run / 2 % 2, twist_bits & 2);
    }
    __device__ __forceinline__ float block_scale() const { return half_float(d); }
    __device__ __forceinline__ float scale(int group) const
    {
        const uint32_t low = scales >> 4 * group & 0x0f, high = d >> (16 + 2 * group) & 3;
        return byte_float(low | high << 4, 0) - 32.0f;
    }
};

template <> struct piece<APR_TQ2_0> : unit_quarters<1> {
    static constexpr int BYTES = 66;
    uint2 qs;
    uint32_t d;
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        qs = load_64_any(block + 8 * lane);
        d = load_16(block + 64);
    }
    __device__ __forceinline__ void twist(int t) { qs = swapped_if(qs, t); }
    __device__ __forceinline__ float4 codes(int run) const
    {
        return unit_codes(((run % 2 ? qs.y : qs.x) >> run / 2 * 2 & 0x03030303u) | 0x80808080u);
    }
    __device__ __forceinline__ float block_scale() const { return 1.0f; }
    __device__ __forceinline__ float scale(int) const { return half_float(d); }
};

#endif
