/* small_gemm_codes.cuh - decodes each type's codes to FP16 operands of the small GEMM: integers, exact.
 *
 * FP16 bits 0x6400 + n are the number 1024 + n. So a code's bits are put there, and 1024 (plus the type's offset) is subtracted; one
 * multiply-add does that and multiplies by an integer scale. A type has
 *     COLUMNS, BYTES   of a row in a stage; PITCH: from row to row in shared memory
 *     PARTS            16-bit parts of each input
 *     SPAN             steps of 16 columns whose sums share a factor; 8: all of a half stage
 *     TILED, ROWS      whether it may be tiled; whether a row's bytes of a stage can be copied by 16 when it is not
 *     MINS             whether minimums are subtracted
 *     head             what a lane keeps of a row for its half of a stage's columns
 *     codes<S>()       of sub-block S of that half: out[k][0] numbers 2 t, 2 t + 1 of step k, out[k][1] those 8 further
 *     factor<S>()      of sub-block S; half_factor() where all steps of the half share one */
#ifndef APR_KERNELS_CUDA_SMALL_GEMM_CODES_CUH
#define APR_KERNELS_CUDA_SMALL_GEMM_CODES_CUH

#include "kernels/cuda/codecs/dtype.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/small_gemm/small_gemm_layout.cuh"

#include <string.h>

GEMM_FN uint32_t permuted(uint32_t a, uint32_t b, uint32_t selector) { return __byte_perm(a, b, selector); }

GEMM_FN float float_of(uint32_t half_bits)
{
    __half_raw raw;
    raw.x = (unsigned short)half_bits;
    return __half2float(__half(raw));
}

/* (word & mask) | bits as one instruction. */
GEMM_FN uint32_t and_or(uint32_t word, uint32_t mask, uint32_t bits) { return ptx_and_or(word, mask, bits); }

/* v * m + a of both halves, rounded once. */
GEMM_FN uint32_t half2_fma(uint32_t v, uint32_t m, uint32_t a)
{
    const __half2 r = __hfma2(*(const __half2 *)&v, *(const __half2 *)&m, *(const __half2 *)&a);
    return *(const uint32_t *)&r;
}

/* v * m of both halves. */
GEMM_FN uint32_t half2_mul(uint32_t v, uint32_t m)
{
    const __half2 r = __hmul2(*(const __half2 *)&v, *(const __half2 *)&m);
    return *(const uint32_t *)&r;
}

/* Four bytes from byte `bits` / 8 of two words on. */
GEMM_FN uint32_t funnel(uint32_t low, uint32_t high, uint32_t bits) { return __funnelshift_r(low, high, bits); }

/* The word AT bytes after p, which is a multiple of 4; the next word may also be read. */
template <int AT> GEMM_FN uint32_t word_at(const uint8_t *p)
{
    const uint32_t *const from = (const uint32_t *)(p + AT / 4 * 4);
    if constexpr (AT % 4 == 0) return from[0];
    else return funnel(from[0], from[1], AT % 4 * 8);
}
GEMM_FN uint32_t half_at(const uint8_t *p) { return *(const uint16_t *)p; }

enum : uint32_t {
    HALF_1024 = 0x64006400u, /* 1024, twice */
    HALF_1 = 0x3c003c00u,
    HALF_16TH = 0x2c002c00u,
    HALF_LESS_1024 = 0xe400e400u, /* -1024 */
    HALF_LESS_1152 = 0xe480e480u,
    HALF_LESS_64 = 0xd400d400u,
    LOW_NIBBLES = 0x000f000fu,
    HIGH_NIBBLES = 0x00f000f0u,
};

/* Four bytes to FP16, numbers 0, 2 and 1, 3, with 1024 added by the bits; `less` is added to subtract that and the code's offset. */
GEMM_FN void bytes_to_f16(uint32_t bytes, uint32_t less, uint32_t (&out)[2])
{
    out[0] = half2_fma(permuted(bytes, 0x64646464u, 0x4240), HALF_1, less);
    out[1] = half2_fma(permuted(bytes, 0x64646464u, 0x4341), HALF_1, less);
}

/* Four low (or high) nibbles to FP16, times m (m is a 16th for high ones); `less` subtracts 1024 times m. */
GEMM_FN void nibbles_to_f16(uint32_t word, bool high, uint32_t m, uint32_t less, uint32_t (&out)[2])
{
    const uint32_t mask = high ? HIGH_NIBBLES : LOW_NIBBLES;
    out[0] = half2_fma(and_or(word, mask, HALF_1024), m, less);
    out[1] = half2_fma(and_or(word >> 8, mask, HALF_1024), m, less);
}

template <apr_dtype D> struct gemm_type;

template <> struct gemm_type<APR_Q4_K> {
    static constexpr int COLUMNS = 256, BYTES = 144, PITCH = 144, SPAN = 8, PARTS = 1;
    static constexpr bool TILED = true, ROWS = true, MINS = true, BF16 = false;
    struct head {
        uint32_t scales; /* of the four sub-blocks of the half */
    };

    /* bytes 4 to 15 of a block: eight 6-bit scales and eight 6-bit minimums, packed as in ggml; four at a time */
    GEMM_FN head begin(const uint8_t *row, int half)
    {
        const uint4 w = *(const uint4 *)row;
        return head{half ? (w.w & 0x0f0f0f0fu) | (w.y >> 2 & 0x30303030u) : w.y & 0x3f3f3f3fu};
    }
    template <int S> GEMM_FN void codes(const uint8_t *row, const head &h, int half, int t, uint32_t (&out)[2][2])
    {
        const uint32_t byte = permuted(h.scales, 0x64646464u, 0x4040 + S * 0x0101); /* 1024 + scale, twice */
        const uint32_t scale = S % 2 ? half2_fma(byte, HALF_16TH, HALF_LESS_64) : half2_fma(byte, HALF_1, HALF_LESS_1024);
        const uint32_t less = half2_mul(scale, HALF_LESS_1024);
        const uint8_t *const at = row + 16 + 64 * half + 32 * (S / 2) + 4 * t;
        nibbles_to_f16(*(const uint32_t *)at, S % 2, scale, less, out[0]);
        nibbles_to_f16(*(const uint32_t *)(at + 16), S % 2, scale, less, out[1]);
    }
    template <int S> GEMM_FN float factor(const uint8_t *, int) { return 1.0f; }
    GEMM_FN float half_factor(const uint8_t *row) { return float_of(*(const uint32_t *)row); }

    /* Minimums of sub-blocks 2 t and 2 t + 1, and their factor. */
    GEMM_FN uint32_t mins(const uint8_t *row, int t)
    {
        const uint4 w = *(const uint4 *)row;
        const uint32_t four = t >= 2 ? (w.w >> 4 & 0x0f0f0f0fu) | (w.z >> 2 & 0x30303030u) : w.z & 0x3f3f3f3fu;
        return half2_fma(permuted(four, 0x64646464u, t % 2 ? 0x4342 : 0x4140), HALF_1, HALF_LESS_1024);
    }
    GEMM_FN float min_factor(const uint8_t *row) { return -float_of(*(const uint32_t *)row >> 16); }
};

/* For types without minimums. */
struct gemm_no_mins {
    GEMM_FN uint32_t mins(const uint8_t *, int) { return 0; }
    GEMM_FN float min_factor(const uint8_t *) { return 0.0f; }
};
struct gemm_no_head {
};

/* A code times its scale has up to 13 bits; beyond 2048 it is rounded to 11 bits. */
template <> struct gemm_type<APR_Q6_K> : gemm_no_mins {
    static constexpr int COLUMNS = 256, BYTES = 210, PITCH = 210, SPAN = 8, PARTS = 1;
    static constexpr bool TILED = true, ROWS = false, MINS = false, BF16 = false;
    struct head {
        const uint8_t *words; /* the row's start, rounded down to a word */
        uint32_t bits;
    };

    GEMM_FN uint32_t word(const head &h, int at)
    {
        const uint32_t *const from = (const uint32_t *)(h.words + at);
        return funnel(from[0], from[1], h.bits);
    }
    GEMM_FN head begin(const uint8_t *row, int)
    {
        const uint32_t over = (uint32_t)(uintptr_t)row % 4;
        return head{row - over, over * 8};
    }
    template <int S> GEMM_FN void codes(const uint8_t *row, const head &h, int half, int t, uint32_t (&out)[2][2])
    {
        const uint32_t scales = half_at(row + 192 + 8 * half + 2 * S) ^ 0x8080u; /* of both steps, plus 128 */
        for (int k = 0; k < 2; k++) {
            const uint32_t low = word(h, 64 * half + 32 * (S % 2) + 16 * k + 4 * t), high = word(h, 128 + 32 * half + 16 * k + 4 * t);
            const uint32_t nibbles = (S < 2 ? low : low >> 4) & 0x0f0f0f0fu;
            const uint32_t bits = (S == 0 ? high << 4 : S == 1 ? high << 2 : S == 2 ? high : high >> 2) & 0x30303030u;
            const uint32_t byte = permuted(scales, 0x64646464u, 0x4040 + k * 0x0101);
            const uint32_t scale = half2_fma(byte, HALF_1, HALF_LESS_1152);
            bytes_to_f16(nibbles | bits, 0xe420e420u, out[k]); /* -1056 */
            out[k][0] = half2_mul(out[k][0], scale), out[k][1] = half2_mul(out[k][1], scale);
        }
    }
    template <int S> GEMM_FN float factor(const uint8_t *, int) { return 1.0f; }
    GEMM_FN float half_factor(const uint8_t *row) { return float_of(half_at(row + 208)); }
};

template <> struct gemm_type<APR_Q8_0> : gemm_no_mins {
    static constexpr int COLUMNS = 128, BYTES = 136, PITCH = 136, SPAN = 2, PARTS = 1;
    static constexpr bool TILED = true, ROWS = false, MINS = false, BF16 = false;
    typedef gemm_no_head head;

    GEMM_FN head begin(const uint8_t *, int) { return head(); }
    template <int S> GEMM_FN void codes(const uint8_t *row, const head &, int half, int t, uint32_t (&out)[2][2])
    {
        const uint8_t *const at = row + 68 * half + 4 * t;
        bytes_to_f16(word_at<34 * S + 2>(at) ^ 0x80808080u, HALF_LESS_1152, out[0]);
        bytes_to_f16(word_at<34 * S + 18>(at) ^ 0x80808080u, HALF_LESS_1152, out[1]);
    }
    template <int S> GEMM_FN float factor(const uint8_t *row, int half) { return float_of(half_at(row + 68 * half + 34 * S)); }
    GEMM_FN float half_factor(const uint8_t *) { return 1.0f; }
};

template <> struct gemm_type<APR_Q4_0> : gemm_no_mins {
    static constexpr int COLUMNS = 256, BYTES = 144, PITCH = 144, SPAN = 2, PARTS = 1;
    static constexpr bool TILED = false, ROWS = true, MINS = false, BF16 = false;
    typedef gemm_no_head head;

    GEMM_FN head begin(const uint8_t *, int) { return head(); }
    /* Low nibbles are columns 0 to 15, high ones 16 to 31; code 8 means 0. */
    template <int S> GEMM_FN void codes(const uint8_t *row, const head &, int half, int t, uint32_t (&out)[2][2])
    {
        const uint32_t word = word_at<18 * S + 2>(row + 72 * half + 4 * t);
        nibbles_to_f16(word, false, HALF_1, 0xe408e408u, out[0]);   /* -1032 */
        nibbles_to_f16(word, true, HALF_16TH, 0xd480d480u, out[1]); /* -72 */
    }
    template <int S> GEMM_FN float factor(const uint8_t *row, int half) { return float_of(half_at(row + 72 * half + 18 * S)); }
    GEMM_FN float half_factor(const uint8_t *) { return 1.0f; }
};

template <> struct gemm_type<APR_MXFP4> : gemm_no_mins {
    static constexpr int COLUMNS = 256, BYTES = 136, PITCH = 136, SPAN = 2, PARTS = 1;
    static constexpr bool TILED = true, ROWS = false, MINS = false, BF16 = false;
    typedef gemm_no_head head;

    GEMM_FN head begin(const uint8_t *, int) { return head(); }
    /* E2M1's bits, with the sign in bit 15 and the others in bits 11 to 9, are an FP16 number: the value times 2^-14, exact. */
    GEMM_FN uint32_t placed(uint32_t sign, uint32_t others) { return and_or(sign, 0x80008000u, others & 0x0e000e00u); }
    template <int S> GEMM_FN void codes(const uint8_t *row, const head &, int half, int t, uint32_t (&out)[2][2])
    {
        /* nibbles of four columns interleaved with those of the next four; the second word is 16 columns further */
        const uint2 words = *(const uint2 *)(row + 8 + 64 * half + 16 * S + t / 2 * 8);
        const uint32_t first = words.x >> t % 2 * 4, second = words.y >> t % 2 * 4;
        out[0][0] = placed(first << 12, first << 9);
        out[0][1] = placed(first << 4, first << 1);
        out[1][0] = placed(second << 12, second << 9);
        out[1][1] = placed(second << 4, second << 1);
    }
    /* 2^(e - 127) * 2^14 in two steps: e may be 0 (a subnormal), and NaN stays NaN. */
    template <int S> GEMM_FN float factor(const uint8_t *row, int half)
    {
        const uint32_t e = row[4 * half + S], bits = e == 0 ? 0x00400000u : e == 0xff ? 0x7fc00000u : e << 23;
        float power;
        memcpy(&power, &bits, 4);
        return power * 16384.0f;
    }
    GEMM_FN float half_factor(const uint8_t *) { return 1.0f; }
};

/* Plain 16-bit numbers. The pitch avoids bank conflicts between the rows of a half warp. */
template <bool IS_BF16> struct gemm_plain : gemm_no_mins {
    static constexpr int COLUMNS = 64, BYTES = 128, PITCH = 160, SPAN = 2, PARTS = 2;
    static constexpr bool TILED = false, ROWS = true, MINS = false, BF16 = IS_BF16;
    typedef gemm_no_head head;

    GEMM_FN head begin(const uint8_t *, int) { return head(); }
    template <int S> GEMM_FN void codes(const uint8_t *row, const head &, int half, int t, uint32_t (&out)[2][2])
    {
        for (int k = 0; k < 2; k++) {
            const uint2 four = *(const uint2 *)(row + 64 * half + 32 * k + 8 * t);
            out[k][0] = permuted(four.x, four.y, 0x5410);
            out[k][1] = permuted(four.x, four.y, 0x7632);
        }
    }
    template <int S> GEMM_FN float factor(const uint8_t *, int) { return 1.0f; }
    GEMM_FN float half_factor(const uint8_t *) { return 1.0f; }
};
template <> struct gemm_type<APR_F16> : gemm_plain<false> {
};
template <> struct gemm_type<APR_BF16> : gemm_plain<true> {
};

#endif
