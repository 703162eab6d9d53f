/* dtype.cuh - decodes each weight type in registers.
 *
 * A block (of 4 or 8 numbers for plain types) is divided into LANES pieces, one per thread, so that neighbouring threads read neighbouring
 * bytes. A piece has SCALES groups of RUNS / SCALES runs; a run is 4 neighbouring columns. With q of codes():
 *     code = UNIT * (q - BIAS),   value = code * (block_scale() * scale(group)) - block_min() * min(group)
 * where each product and the difference is rounded: the bits of kernels/ref. Codes of up to 7 bits are put directly into the mantissa of
 * 1.0: q = 1 + code / 128, one instruction per code and exact. Sums of q * x are corrected by the sum of x.
 *
 * To avoid bank conflicts between the lanes of a quarter warp when they read inputs, some lanes take their runs in another order: after
 * twist(t), t = twist_of(block, lane), codes(run) are those of the columns of run ^ t, in the same group.
 *
 * Bytes are read as whole aligned words: at most up to the next multiple of 4 after a block. */
#ifndef APR_KERNELS_CUDA_DTYPE_CUH
#define APR_KERNELS_CUDA_DTYPE_CUH

extern "C" {
#include "formats/number/blocks.h"
}

#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

/* --- words --- */

static __device__ __forceinline__ float half_float(uint32_t bits) { return __half2float(__ushort_as_half((unsigned short)bits)); }
static __device__ __forceinline__ uint32_t load_16(const uint8_t *p) { return __ldg((const unsigned short *)p); }
static __device__ __forceinline__ uint32_t load_32(const uint8_t *p) { return __ldg((const uint32_t *)p); }
static __device__ __forceinline__ uint2 load_64(const uint8_t *p) { return __ldg((const uint2 *)p); }
static __device__ __forceinline__ uint4 load_128(const uint8_t *p) { return __ldg((const uint4 *)p); }

/* 4, 8 or 12 bytes from any address, through the aligned words that hold them. */
static __device__ __forceinline__ uint32_t load_32_any(const uint8_t *p)
{
    const uintptr_t at = (uintptr_t)p, mask = ~(uintptr_t)3;
    const uint32_t low = __ldg((const uint32_t *)(at & mask)), high = __ldg((const uint32_t *)((at + 3) & mask));
    return __funnelshift_r(low, high, (uint32_t)(at & 3) * 8);
}

static __device__ __forceinline__ uint2 load_64_any(const uint8_t *p)
{
    const uintptr_t at = (uintptr_t)p, mask = ~(uintptr_t)3;
    const uint32_t *const words = (const uint32_t *)(at & mask);
    const uint32_t shift = (uint32_t)(at & 3) * 8, a = __ldg(words), b = __ldg(words + 1), c = __ldg((const uint32_t *)((at + 7) & mask));
    return make_uint2(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift));
}

static __device__ __forceinline__ uint2 swapped_if(uint2 pair, bool swap) { return swap ? make_uint2(pair.y, pair.x) : pair; }

/* Byte i as a number: 0x4b000000 is 2^23, whose lowest mantissa bit is worth 1. */
static __device__ __forceinline__ float byte_float(uint32_t word, int i)
{
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440u | i)) - 8388608.0f;
}

/* 1 + (byte i) / 128 for a byte with its top bit set, which is not counted. */
static __device__ __forceinline__ float unit_float(uint32_t word, int i)
{
    return __uint_as_float(__byte_perm(word, 0x3f000000u, 0x7044u | i << 8));
}

/* The four bytes of a word with top bits set. */
static __device__ __forceinline__ float4 unit_codes(uint32_t word)
{
    return make_float4(unit_float(word, 0), unit_float(word, 1), unit_float(word, 2), unit_float(word, 3));
}

/* Four signed bytes. */
static __device__ __forceinline__ float4 signed_codes(uint32_t word)
{
    const uint32_t w = word ^ 0x80808080u;
    const float zero = 8388608.0f + 128.0f;
    return make_float4(
        __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7440u)) - zero, __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7441u)) - zero,
        __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7442u)) - zero, __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7443u)) - zero);
}

static __device__ __forceinline__ uint32_t low_nibbles(uint32_t word) { return (word & 0x0f0f0f0fu) | 0x80808080u; }
static __device__ __forceinline__ uint32_t high_nibbles(uint32_t word) { return (word >> 4 & 0x0f0f0f0fu) | 0x80808080u; }
static __device__ __forceinline__ uint32_t nibbles(uint32_t word, bool high) { return high ? high_nibbles(word) : low_nibbles(word); }

/* Low (or high) nibbles, or the others if `swapped`. */
static __device__ __forceinline__ uint32_t nibbles_swapped(uint32_t word, bool high, bool swapped)
{
    return low_nibbles(word >> (high != swapped ? 4 : 0));
}

/* Bit i of `four` becomes bit 4 of byte i. */
static __device__ __forceinline__ uint32_t fifth_bits(uint32_t four) { return (four & 0x0f) * 0x02040810u & 0x10101010u; }

/* Four nibbles, from the lowest on, through a table of 16 bytes. */
static __device__ __forceinline__ uint32_t look_up(uint32_t four, uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3)
{
    const uint32_t index = four & 0x7777u, upper = (four >> 1 & 0x4444u) | 0x3210u;
    return __byte_perm(__byte_perm(t0, t1, index), __byte_perm(t2, t3, index), upper);
}

/* --- defaults of most types --- */

struct piece_base {
    static constexpr float UNIT = 1.0f, BIAS = 0.0f;
    static constexpr bool HAS_MIN = false;
    static __device__ __forceinline__ int twist_of(int, int) { return 0; }
    __device__ __forceinline__ void twist(int) {}
    __device__ __forceinline__ float block_scale() const { return 1.0f; }
    __device__ __forceinline__ float block_min() const { return 0.0f; }
    __device__ __forceinline__ float min(int) const { return 0.0f; }
};

/* Codes of at most 7 bits; code ZERO means 0. */
template <int ZERO> struct piece_units : piece_base {
    static constexpr float UNIT = 128.0f, BIAS = 1.0f + ZERO / 128.0f;
};

template <apr_dtype D> struct piece;

/* --- plain --- */

template <> struct piece<APR_F32> : piece_base {
    static constexpr int ELEMS = 4, BYTES = 16, LANES = 1, RUNS = 1, SCALES = 1;
    float4 value;
    __device__ __forceinline__ void load(const uint8_t *block, int) { value = __ldg((const float4 *)block); }
    static __device__ __forceinline__ int column(int, int) { return 0; }
    __device__ __forceinline__ float4 codes(int) const { return value; }
    __device__ __forceinline__ float scale(int) const { return 1.0f; }
};

template <> struct piece<APR_F16> : piece_base {
    static constexpr int ELEMS = 8, BYTES = 16, LANES = 1, RUNS = 2, SCALES = 1;
    uint4 bits;
    __device__ __forceinline__ void load(const uint8_t *block, int) { bits = load_128(block); }
    static __device__ __forceinline__ int column(int, int run) { return 4 * run; }
    __device__ __forceinline__ float4 codes(int run) const
    {
        const uint32_t a = run ? bits.z : bits.x, b = run ? bits.w : bits.y;
        return make_float4(half_float(a), half_float(a >> 16), half_float(b), half_float(b >> 16));
    }
    __device__ __forceinline__ float scale(int) const { return 1.0f; }
};

template <> struct piece<APR_BF16> : piece_base {
    static constexpr int ELEMS = 8, BYTES = 16, LANES = 1, RUNS = 2, SCALES = 1;
    uint4 bits;
    __device__ __forceinline__ void load(const uint8_t *block, int) { bits = load_128(block); }
    static __device__ __forceinline__ int column(int, int run) { return 4 * run; }
    __device__ __forceinline__ float4 codes(int run) const
    {
        const uint32_t a = run ? bits.z : bits.x, b = run ? bits.w : bits.y;
        return make_float4(__uint_as_float(a << 16), __uint_as_float(a & 0xffff0000u), __uint_as_float(b << 16),
                           __uint_as_float(b & 0xffff0000u));
    }
    __device__ __forceinline__ float scale(int) const { return 1.0f; }
};

/* Converted by hardware on 8.9 and up, by a few instructions elsewhere. */
template <__nv_fp8_interpretation_t KIND> static __device__ __forceinline__ float2 fp8_pair(uint32_t two)
{
    return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)two, KIND)));
}

template <__nv_fp8_interpretation_t KIND> struct piece_fp8 : piece_base {
    static constexpr int ELEMS = 8, BYTES = 8, LANES = 1, RUNS = 2, SCALES = 1;
    uint2 bits;
    __device__ __forceinline__ void load(const uint8_t *block, int) { bits = load_64(block); }
    static __device__ __forceinline__ int column(int, int run) { return 4 * run; }
    static __device__ __forceinline__ int twist_of(int block, int) { return block >> 2 & 1; }
    __device__ __forceinline__ void twist(int t) { bits = swapped_if(bits, t); }
    __device__ __forceinline__ float4 codes(int run) const
    {
        const uint32_t word = run ? bits.y : bits.x;
        const float2 a = fp8_pair<KIND>(word & 0xffff), b = fp8_pair<KIND>(word >> 16);
        return make_float4(a.x, a.y, b.x, b.y);
    }
    __device__ __forceinline__ float scale(int) const { return 1.0f; }
};
template <> struct piece<APR_F8_E4M3> : piece_fp8<__NV_E4M3> {
};
template <> struct piece<APR_F8_E5M2> : piece_fp8<__NV_E5M2> {
};

/* The tensor's single scale is a factor of the matrix: see weights.cuh. */
template <> struct piece<APR_APR_Q8> : piece_base {
    static constexpr int ELEMS = 8, BYTES = 8, LANES = 1, RUNS = 2, SCALES = 1;
    uint2 bits;
    __device__ __forceinline__ void load(const uint8_t *block, int) { bits = load_64_any(block); }
    static __device__ __forceinline__ int column(int, int run) { return 4 * run; }
    __device__ __forceinline__ float4 codes(int run) const { return signed_codes(run ? bits.y : bits.x); }
    __device__ __forceinline__ float scale(int) const { return 1.0f; }
};

/* --- blocks of 32: a piece is half a block for 4 and 5 bits, a quarter for 8 --- */

/* 8 bytes of nibbles: bit 0 of a run is the word, bit 1 says low or high nibbles. */
struct two_words {
    uint2 qs;
    int twist_bits = 0; /* the runs' twist */
    __device__ __forceinline__ void twist(int t)
    {
        twist_bits = t;
        qs = swapped_if(qs, t & 1);
    }
    __device__ __forceinline__ uint32_t nibble_codes(int run) const
    {
        return nibbles_swapped(run % 2 ? qs.y : qs.x, run / 2, twist_bits & 2);
    }
};

/* Low nibbles are columns 8 * lane on, high nibbles 16 further. */
struct halves_of_32 : two_words {
    static constexpr int ELEMS = 32, LANES = 2, RUNS = 4, SCALES = 1;
    static __device__ __forceinline__ int column(int lane, int run) { return 8 * lane + 4 * (run % 2) + 16 * (run / 2); }
    static __device__ __forceinline__ int twist_of(int block, int) { return block & 3; }
};

/* The same with the defaults of unit codes (q = 1 + code / 128), also for types with level tables. */
template <int ZERO> struct unit_halves : halves_of_32 {
    static constexpr float UNIT = 128.0f, BIAS = 1.0f + ZERO / 128.0f;
    static constexpr bool HAS_MIN = false;
    __device__ __forceinline__ float block_scale() const { return 1.0f; }
    __device__ __forceinline__ float block_min() const { return 1.0f; }
    __device__ __forceinline__ float min(int) const { return 0.0f; }
};

template <> struct piece<APR_Q4_0> : unit_halves<8> {
    static constexpr int BYTES = 18;
    uint32_t d;
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        d = load_16(block);
        qs = load_64_any(block + 2 + 8 * lane);
    }
    __device__ __forceinline__ float4 codes(int run) const { return unit_codes(nibble_codes(run)); }
    __device__ __forceinline__ float scale(int) const { return half_float(d); }
};

template <> struct piece<APR_Q4_1> : unit_halves<0> {
    static constexpr int BYTES = 20;
    static constexpr bool HAS_MIN = true;
    uint32_t dm;
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        dm = load_32(block);
        qs = make_uint2(load_32(block + 4 + 8 * lane), load_32(block + 8 + 8 * lane));
    }
    __device__ __forceinline__ float4 codes(int run) const { return unit_codes(nibble_codes(run)); }
    __device__ __forceinline__ float scale(int) const { return half_float(dm); }
    __device__ __forceinline__ float min(int) const { return -half_float(dm >> 16); }
};

template <> struct piece<APR_Q5_0> : unit_halves<16> {
    static constexpr int BYTES = 22;
    uint32_t d, high; /* fifth bits, that of this lane's first column lowest */
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        d = load_16(block);
        high = load_32_any(block + 2) >> 8 * lane;
        qs = load_64_any(block + 6 + 8 * lane);
    }
    __device__ __forceinline__ float4 codes(int run) const
    {
        return unit_codes(nibble_codes(run) | fifth_bits(high >> column(0, run ^ twist_bits)));
    }
    __device__ __forceinline__ float scale(int) const { return half_float(d); }
};

template <> struct piece<APR_Q5_1> : unit_halves<0> {
    static constexpr int BYTES = 24;
    static constexpr bool HAS_MIN = true;
    uint32_t dm, high;
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        const uint2 head = load_64(block);
        dm = head.x;
        high = head.y >> 8 * lane;
        qs = load_64(block + 8 + 8 * lane);
    }
    __device__ __forceinline__ float4 codes(int run) const
    {
        return unit_codes(nibble_codes(run) | fifth_bits(high >> column(0, run ^ twist_bits)));
    }
    __device__ __forceinline__ float scale(int) const { return half_float(dm); }
    __device__ __forceinline__ float min(int) const { return -half_float(dm >> 16); }
};

template <> struct piece<APR_Q8_0> : piece_base {
    static constexpr int ELEMS = 32, BYTES = 34, LANES = 4, RUNS = 2, SCALES = 1;
    uint32_t d;
    uint2 qs;
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        d = load_16(block);
        qs = load_64_any(block + 2 + 8 * lane);
    }
    static __device__ __forceinline__ int column(int lane, int run) { return 8 * lane + 4 * run; }
    static __device__ __forceinline__ int twist_of(int block, int) { return block & 1; }
    __device__ __forceinline__ void twist(int t) { qs = swapped_if(qs, t); }
    __device__ __forceinline__ float4 codes(int run) const { return signed_codes(run ? qs.y : qs.x); }
    __device__ __forceinline__ float scale(int) const { return half_float(d); }
};

/* Bytes hold neighbours: columns 2k and 2k + 1 in byte k. */
template <> struct piece<APR_APR_Q4> : piece_units<8> {
    static constexpr int ELEMS = 32, BYTES = 18, LANES = 2, RUNS = 4, SCALES = 1;
    uint32_t d;
    uint2 qs;
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        d = load_16(block);
        qs = load_64_any(block + 2 + 8 * lane);
    }
    static __device__ __forceinline__ int column(int lane, int run) { return 16 * lane + 4 * run; }
    __device__ __forceinline__ float4 codes(int run) const
    {
        const uint32_t word = (run / 2 ? qs.y : qs.x) >> 16 * (run % 2), low = low_nibbles(word), high = high_nibbles(word);
        return make_float4(unit_float(low, 0), unit_float(high, 0), unit_float(low, 1), unit_float(high, 1));
    }
    __device__ __forceinline__ float scale(int) const { return half_float(d); }
};

/* --- 4-bit codes into tables of 16 --- */

/* Swaps the high nibbles of x and the low nibbles of y; its own inverse. */
static __device__ __forceinline__ uint2 nibbles_crossed(uint2 w)
{
    return make_uint2((w.x & 0x0f0f0f0fu) | (w.y << 4 & 0xf0f0f0f0u), (w.x >> 4 & 0x0f0f0f0fu) | (w.y & 0xf0f0f0f0u));
}

/* Swaps neighbouring bytes if `swap`, so that the codes of high nibbles are where those of low ones were. */
static __device__ __forceinline__ uint32_t swapped_bytes(uint32_t word, bool twist_bits)
{
    return __byte_perm(word, 0, twist_bits ? 0x2301 : 0x3210);
}

/* The first and third of four looked up bytes in a word are from low nibbles. The table: E2M1 doubled (0 1 2 3 4 6 8 12 and the negatives),
 * plus 16, with top bits set. */
static __device__ __forceinline__ float4 e2m1_codes(uint32_t word, int high, bool twist_bits)
{
    const uint32_t a = swapped_bytes(look_up(word, 0x93929190u, 0x9c989694u, 0x8d8e8f90u, 0x84888a8cu), twist_bits);
    const uint32_t b = swapped_bytes(look_up(word >> 16, 0x93929190u, 0x9c989694u, 0x8d8e8f90u, 0x84888a8cu), twist_bits);
    return make_float4(unit_float(a, high), unit_float(a, 2 + high), unit_float(b, high), unit_float(b, 2 + high));
}

template <> struct piece<APR_MXFP4> : unit_halves<16> {
    static constexpr int BYTES = 17;
    uint32_t e;
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        e = __ldg(block);
        qs = load_64_any(block + 1 + 8 * lane);
    }
    /* From a tile's row, where exponents are separated from the codes, and low nibbles from high ones (kernels/cuda/decode_gemv_args.h). */
    __device__ __forceinline__ void load_split(const uint8_t *exponent, const uint8_t *codes, int lane)
    {
        e = __ldg(exponent);
        qs = nibbles_crossed(load_64(codes + 8 * lane));
    }
    __device__ __forceinline__ float4 codes(int run) const { return e2m1_codes(run % 2 ? qs.y : qs.x, run / 2, twist_bits & 2); }
    /* 2^(e - 128): half of the byte's meaning, since the table is doubled */
    __device__ __forceinline__ float scale(int) const { return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23); }
};

/* A piece is a sub-block of 16: low nibbles of its 8 bytes, then the high ones. */
template <> struct piece<APR_NVFP4> : two_words {
    static constexpr float UNIT = 128.0f, BIAS = 1.0f + 16 / 128.0f;
    static constexpr bool HAS_MIN = false;
    static constexpr int ELEMS = 64, BYTES = 36, LANES = 4, RUNS = 4, SCALES = 1;
    uint32_t d;
    __device__ __forceinline__ float block_scale() const { return 1.0f; }
    __device__ __forceinline__ float block_min() const { return 0.0f; }
    __device__ __forceinline__ float min(int) const { return 0.0f; }
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        d = __ldg(block + lane);
        qs = make_uint2(load_32(block + 4 + 8 * lane), load_32(block + 8 + 8 * lane));
    }
    static __device__ __forceinline__ int column(int lane, int run) { return 16 * lane + 4 * run; }
    static __device__ __forceinline__ int twist_of(int block, int lane) { return lane >> 1 | (block & 1) << 1; }
    __device__ __forceinline__ float4 codes(int run) const { return e2m1_codes(run % 2 ? qs.y : qs.x, run / 2, twist_bits & 2); }
    /* Unsigned E4M3, halved; 0x7f is 0 (0xff is NaN). Its seven bits, placed as float32 bits, are the value times 2^-120. */
    __device__ __forceinline__ float scale(int) const
    {
        if (d == 0x7f) return 0.0f;
        return d == 0xff ? __uint_as_float(0x7fc00000u) : __uint_as_float((d & 0x7f) << 20) * 0x1p119f;
    }
};

/* -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113, plus 128. */
static __device__ __forceinline__ float4 iq4_codes(uint32_t word, int high, bool twist_bits)
{
    const uint32_t a = swapped_bytes(look_up(word, 0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u), twist_bits);
    const uint32_t b = swapped_bytes(look_up(word >> 16, 0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u), twist_bits);
    return make_float4(byte_float(a, high) - 128.0f, byte_float(a, 2 + high) - 128.0f, byte_float(b, high) - 128.0f,
                       byte_float(b, 2 + high) - 128.0f);
}

template <> struct piece<APR_IQ4_NL> : unit_halves<0> {
    static constexpr float UNIT = 1.0f, BIAS = 0.0f;
    static constexpr int BYTES = 18;
    uint32_t d;
    __device__ __forceinline__ void load(const uint8_t *block, int lane)
    {
        d = load_16(block);
        qs = load_64_any(block + 2 + 8 * lane);
    }
    __device__ __forceinline__ float4 codes(int run) const { return iq4_codes(run % 2 ? qs.y : qs.x, run / 2, twist_bits & 2); }
    __device__ __forceinline__ float scale(int) const { return half_float(d); }
};

#endif
