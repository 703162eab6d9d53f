/* small_gemm_wgmma_codes.cuh - decodes each type's codes to FP16 operands of WGMMA (small_gemm_wgmma.cuh): integers, exact.
 *
 * small_gemm_layout.cuh says which columns a lane has in which step. FP16 bits 0x000n are n * 2^-24 (subnormal), which an integer scale
 * multiplies exactly, so no offset has to be subtracted. A type has
 *     COLUMNS, BYTES   of a row in a stage
 *     POWER            the power of two that its final sums are multiplied by
 *     MINS             whether minimums are subtracted
 *     row              what a lane keeps of one of its two rows for a stage; begin() reads it
 *     step_at(J, k)    where the inputs of step k of four are: J goes from 0 to 3
 *     factor()         of a row: the factor of its sums of a stage
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
    GEMM_FN float factor(const uint8_t *at) { return float_of(half_at(at)); }
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
    GEMM_FN float factor(const uint8_t *at) { return float_of(half_at(at + 208)); }
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

#endif
