/* small_gemm_wgmma_codes.cuh - decodes each type's codes to FP16 operands of WGMMA (small_gemm_wgmma.cuh): integers, exact.
 *
 * small_gemm_layout.cuh says which columns a lane has in which step. FP16 bits 0x000n are n * 2^-24 (subnormal), which an integer scale
 * multiplies exactly, so no offset has to be subtracted. A type has
 *     COLUMNS, BYTES   of a row in a stage
 *     POWER            the power of two that its final sums are multiplied by
 *     MINS             whether minimums are subtracted
 *     row              what a lane keeps of one of its two rows for a stage; begin() reads it
 *     step_at(J, k)    where the inputs of step k of four are: J goes from 0 to 3
 *     factor()         of a row and what begin() read: the factor of its sums of a stage
 *     words            what a lane loads of a row; load<J>(), in increasing order of J
 *     PREFETCH            whether there are enough registers to load words before the previous products are done
 *     codes<J>()       of those: out[k][0] numbers 2 t, 2 t + 1 of step k, out[k][1] those 8 further */
#ifndef APR_KERNELS_CUDA_SMALL_GEMM_WGMMA_CODES_CUH
#define APR_KERNELS_CUDA_SMALL_GEMM_WGMMA_CODES_CUH

#include "kernels/cuda/small_gemm/small_gemm_codes.cuh"

template <apr_dtype D> struct wgmma_type;

enum : uint32_t {
    HALF_1_AND_16TH = 0x2c003c00u,
    HALF_LESS_1024_AND_64 = 0xd400e400u,
    HALF_LESS_1152_AND_72 = 0xd480e480u,
    HALF_LESS_32_AND_512_SMALL = 0x82008020u, /* times 2^-24 */
};

/* The first or the second half, twice (an operand's form in SASS). */
template <int SECOND> GEMM_FN uint32_t half_twice(uint32_t m)
{
    const __half2 both = *(const __half2 *)&m, one = SECOND ? __high2half2(both) : __low2half2(both);
    return *(const uint32_t *)&one;
}

/* v * m and v * m + a for both halves of v, with one half of m and a. */
template <int SECOND> GEMM_FN uint32_t half2_mul_one(uint32_t v, uint32_t m) { return half2_mul(v, half_twice<SECOND>(m)); }
template <int SECOND> GEMM_FN uint32_t half2_fma_one(uint32_t v, uint32_t m, uint32_t a)
{
    return half2_fma(v, half_twice<SECOND>(m), half_twice<SECOND>(a));
}

template <> struct wgmma_type<APR_Q4_K> {
    static constexpr int COLUMNS = 256, BYTES = 144;
    static constexpr float POWER = 16777216.0f;
    static constexpr bool MINS = true, PREFETCH = true;
    static constexpr int step_at(int j, int k) { return wgmma_step_at(j / 2, j % 2 * 2 + k / 2, k % 2); }
    typedef uint4 words;
    struct row {
        uint32_t scales[2]; /* of the lane's sub-blocks 2 h, and a 16th of those of 2 h + 1 */
        uint32_t mins;      /* of the stage's sub-blocks 2 t and 2 t + 1, times 2^-24 */
        float min_factor;
    };

    /* bytes 4 to 15 of a block: eight 6-bit scales and eight 6-bit minimums, packed as in ggml; the lane's four */
    GEMM_FN row begin(const uint8_t *at, int t)
    {
        const uint4 w = *(const uint4 *)at;
        const uint32_t high = (w.w & 0x0f0f0f0fu) | (w.y >> 2 & 0x30303030u),
                       high_mins = (w.w >> 4 & 0x0f0f0f0fu) | (w.z >> 2 & 0x30303030u);
        const uint32_t four = t / 2 ? high : w.y & 0x3f3f3f3fu, mins = t / 2 ? high_mins : w.z & 0x3f3f3f3fu;
        row r;
        for (int h = 0; h < 2; h++)
            r.scales[h] = half2_fma(permuted(four, 0x64646464u, h ? 0x4342 : 0x4140), HALF_1_AND_16TH, HALF_LESS_1024_AND_64);
        r.mins = permuted(mins, 0, t % 2 ? 0x4342 : 0x4140);
        r.min_factor = -float_of(w.x >> 16);
        return r;
    }
    GEMM_FN float factor(const uint8_t *at, const row &) { return float_of(half_at(at)); }
    template <int J> GEMM_FN void load(const uint8_t *at, int t, words *w)
    {
        if (J % 2 == 0) *w = *(const uint4 *)(at + 16 + t / 2 * 64 + J / 2 * 32 + t % 2 * 16);
    }
    template <int J> GEMM_FN void codes(const words &w, const row &r, uint32_t (&out)[4][2])
    {
        const uint32_t word[2] = {J % 2 ? w.z : w.x, J % 2 ? w.w : w.y};
        for (int i = 0; i < 2; i++)
            for (int odd = 0; odd < 2; odd++) {
                const uint32_t v = word[i] >> 8 * odd;
                out[2 * i][odd] = half2_mul_one<0>(v & LOW_NIBBLES, r.scales[J / 2]);
                out[2 * i + 1][odd] = half2_mul_one<1>(v & HIGH_NIBBLES, r.scales[J / 2]);
            }
    }
};

/* Rows of 210 bytes are at multiples of 2. A code minus 32, times its scale, has up to 13 bits; beyond 2048 it is rounded to 11. J = 0 is
 * two words of 32 columns, J = 1 the other two; J = 2 and 3 are the next 32 columns. */
template <> struct wgmma_type<APR_Q6_K> {
    static constexpr int COLUMNS = 256, BYTES = 210;
    static constexpr float POWER = 16777216.0f;
    static constexpr bool MINS = false, PREFETCH = false;
    static constexpr int step_at(int j, int k) { return wgmma_step_at(k % 2, j % 2 * 2 + k / 2, j / 2); }
    struct words {
        uint32_t low[2], high[2];
        uint32_t scales; /* of the low nibbles' columns, and a 16th of that of the high nibbles', whose codes are 16-fold */
    };
    struct row {
    };

    /* N words from byte `at` on. */
    template <int N> GEMM_FN void load_words(const uint8_t *at, uint32_t (&out)[N])
    {
        const uint32_t over = (uint32_t)(uintptr_t)at % 4;
        const uint32_t *const from = (const uint32_t *)(at - over);
        uint32_t word = from[0];
        for (int c = 0; c < N; c++) {
            const uint32_t next = from[c + 1];
            out[c] = funnel(word, next, over * 8);
            word = next;
        }
    }
    GEMM_FN row begin(const uint8_t *, int) { return row(); }
    GEMM_FN float factor(const uint8_t *at, const row &) { return float_of(half_at(at + 208)); }
    template <int J> GEMM_FN void load(const uint8_t *at, int t, words *w)
    {
        load_words(at + t / 2 * 64 + J / 2 * 32 + t % 2 * 16 + J % 2 * 8, w->low);
        load_words(at + 128 + t / 2 * 32 + t % 2 * 16 + J % 2 * 8, w->high);
        if (J % 2 != 0) return;
        const uint8_t *const scales = at + 192 + t / 2 * 8 + J + t % 2;
        const uint32_t both = (uint32_t)scales[0] | (uint32_t)scales[4] << 16;
        w->scales = half2_fma(both ^ 0x64806480u, HALF_1_AND_16TH, HALF_LESS_1152_AND_72); /* both plus 1152 */
    }
    template <int J> GEMM_FN void codes(const words &w, const row &, uint32_t (&out)[4][2])
    {
        const uint32_t less = half2_mul(w.scales, HALF_LESS_32_AND_512_SMALL);
        for (int i = 0; i < 2; i++)
            for (int odd = 0; odd < 2; odd++) {
                const uint32_t low = w.low[i] >> 8 * odd, word = w.high[i], shift = J / 2 ? 2 : 4;
                const uint32_t high = odd ? word >> (8 - shift) : word << shift;
                out[2 * i][odd] = half2_fma_one<0>(and_or(low, LOW_NIBBLES, high & 0x00300030u), w.scales, less);
                out[2 * i + 1][odd] = half2_fma_one<1>(and_or(low, HIGH_NIBBLES, high & 0x03000300u), w.scales, less);
            }
    }
};

/* E2M1's bits, with the sign in bit 15 and the others in bits 11 to 9, are an FP16 number: the value times 2^-14. A stage's blocks have
 * powers of two of their own: they are brought to the largest one, exactly where they are up to 2^24 smaller, and rounded beyond. Step J is
 * sub-block J of the lane's four: a tile's word has the nibbles of four columns interleaved with those of the next four. */
template <> struct wgmma_type<APR_MXFP4> {
    static constexpr int COLUMNS = 256, BYTES = 136;
    static constexpr float POWER = 1.0f;
    static constexpr bool MINS = false, PREFETCH = true;
    static constexpr int step_at(int j, int k) { return wgmma_step_at(j / 2, k, j % 2); }
    typedef uint2 words;
    struct row {
        uint32_t four; /* the exponents of the lane's sub-blocks */
        int least;     /* what makes the largest exponent of the stage that of 2^15 as float32 */
    };

    GEMM_FN row begin(const uint8_t *at, int t)
    {
        const uint2 w = *(const uint2 *)at;
        const uint32_t even = ptx_max_halves(w.x & 0x00ff00ffu, w.y & 0x00ff00ffu),
                       odd = ptx_max_halves(w.x >> 8 & 0x00ff00ffu, w.y >> 8 & 0x00ff00ffu), both = ptx_max_halves(even, odd);
        return row{t / 2 ? w.y : w.x, 142 - (int)max(both >> 16, both & 0xffffu)};
    }
    /* 2^(e - 128) of the largest exponent, since the values are times 2; a subnormal number below 2^-126. */
    GEMM_FN float factor(const uint8_t *, const row &r)
    {
        const int e = 142 - r.least;
        return __uint_as_float(e == 255 ? 0x7fc00000u : e > 1 ? (uint32_t)(e - 1) << 23 : 0x00200000u << e);
    }
    template <int J> GEMM_FN void load(const uint8_t *at, int t, words *w)
    {
        const uint32_t *const from = (const uint32_t *)(at + 8 + t / 2 * 64 + J * 16 + t % 2 * 4);
        w->x = from[0], w->y = from[2];
    }
    template <int J> GEMM_FN void codes(const words &w, const row &r, uint32_t (&out)[4][2])
    {
        const int e = r.least + (int)(r.four >> 8 * J & 0xffu);
        const __half2 power = __float2half2_rn(__uint_as_float((uint32_t)max(e, 0) << 23));
        const uint32_t times = *(const uint32_t *)&power, word[2] = {w.x, w.y};
        for (int i = 0; i < 2; i++)
            for (int high = 0; high < 2; high++) {
                const uint32_t others = (high ? word[i] >> 3 : word[i] << 1) & 0x0e0e0e0eu;
                const uint32_t bytes = and_or(high ? word[i] : word[i] << 4, 0x80808080u, others);
                out[2 * i + high][0] = half2_mul(permuted(bytes, 0, 0x2404), times);
                out[2 * i + high][1] = half2_mul(permuted(bytes, 0, 0x3414), times);
            }
    }
};

#endif
