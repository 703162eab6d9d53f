/* packed.c - products of packed rows with a vector, sixteen numbers at a time. The layouts are told in kernels/ref. */
#include "kernels/host/packed.h"
#include "formats/base/bytes.h"
#include "formats/number/half.h"
#include "kernels/host/lanes.h"

#include <stddef.h>

typedef int32_t ints __attribute__((vector_size(64)));
typedef uint8_t bytes __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint16_t halves __attribute__((vector_size(32), aligned(1), may_alias));

#define INTS(v)        __builtin_convertvector(v, ints)
#define FLOATS(v)      __builtin_convertvector(v, lanes)
#define LOAD_BYTES(p)  (*(const bytes *)(p))
#define LOAD_HALVES(p) (*(const halves *)(p))

/* The scale of a block: finite in all files that make sense; infinities and NaN go the slow way. */
LANES_INLINE float scale_of(const uint8_t *p)
{
    const uint16_t h = apr_load_le16(p);
    if ((h & 0x7c00) == 0x7c00) return apr_f16_to_f32(h);
    /* the half's bits as a float are 2^112 too small, subnormals included */
    return apr_f32_from_bits((uint32_t)(h & 0x7fff) << 13 | (uint32_t)(h & 0x8000) << 16) * 0x1p112f;
}

LANES_INLINE void dot_bf16_body(const int row_tile, const int token_tile, const uint8_t *row, const float *x, int64_t n, float *sum)
{
    lanes acc[2] = {0};
    int64_t i = 0;

    (void)row_tile, (void)token_tile;
    for (; i + 2 * N_LANES <= n; i += 2 * N_LANES)
        for (int half = 0; half < 2; half++) {
            const ints bits = INTS(LOAD_HALVES(row + 2 * (i + half * N_LANES))) << 16;
            acc[half] += (lanes)bits * LANES_LOAD(x + i + half * N_LANES);
        }
    acc[0] += acc[1];
    *sum = lanes_sum(&acc[0]);
    for (; i < n; i++) *sum += apr_bf16_to_f32(apr_load_le16(row + 2 * i)) * x[i];
}

LANES_INLINE void dot_f16_body(const int row_tile, const int token_tile, const uint8_t *row, const float *x, int64_t n, float *sum)
{
    lanes acc[2] = {0};
    int64_t i = 0;

    (void)row_tile, (void)token_tile;
    for (; i + 2 * N_LANES <= n; i += 2 * N_LANES)
        for (int half = 0; half < 2; half++) {
            const ints h = INTS(LOAD_HALVES(row + 2 * (i + half * N_LANES)));
            const ints magnitude = (h & 0x7fff) << 13, special = (magnitude >= 0x0f800000) & 0x7f800000; /* infinity, NaN */
            const lanes finite = (lanes)magnitude * 0x1p112f;
            acc[half] += (lanes)((ints)finite | special | (h & 0x8000) << 16) * LANES_LOAD(x + i + half * N_LANES);
        }
    acc[0] += acc[1];
    *sum = lanes_sum(&acc[0]);
    for (; i < n; i++) *sum += apr_f16_to_f32(apr_load_le16(row + 2 * i)) * x[i];
}

LANES_INLINE void dot_q8_0_body(const int row_tile, const int token_tile, const uint8_t *row, const float *x, int64_t n, float *sum)
{
    lanes acc = {0};

    (void)row_tile, (void)token_tile;
    for (const uint8_t *const end = row + n / 32 * 34; row < end; row += 34, x += 32) {
        const lanes low = FLOATS(INTS(LOAD_BYTES(row + 2) ^ 0x80) - 128), high = FLOATS(INTS(LOAD_BYTES(row + 18) ^ 0x80) - 128);
        acc += scale_of(row) * (low * LANES_LOAD(x) + high * LANES_LOAD(x + N_LANES));
    }
    *sum = lanes_sum(&acc);
}

/* E2M1 doubled, 0 1 2 3 4 6 8 12: (2 + mantissa) << exponent >> 1, except for 0 */
LANES_INLINE void e2m1_lanes(const bytes *codes, lanes *out)
{
    const ints c = INTS(*codes), m = c & 7;
    const ints magnitude = (((m & 1) + 2) << (m >> 1) >> 1) + (m == 0); /* a true comparison is -1 */
    *out = (lanes)((ints)FLOATS(magnitude) | (c & 8) << 28);
}

LANES_INLINE void dot_mxfp4_body(const int row_tile, const int token_tile, const uint8_t *row, const float *x, int64_t n, float *sum)
{
    lanes acc = {0};

    (void)row_tile, (void)token_tile;
    for (const uint8_t *const end = row + n / 32 * 17; row < end; row += 17, x += 32) {
        const bytes codes = LOAD_BYTES(row + 1), low_codes = codes & 15, high_codes = codes >> 4;
        lanes low, high;
        e2m1_lanes(&low_codes, &low);
        e2m1_lanes(&high_codes, &high);
        acc += apr_e8m0_to_f32(row[0]) * 0.5f * (low * LANES_LOAD(x) + high * LANES_LOAD(x + N_LANES));
    }
    *sum = lanes_sum(&acc);
}

/* Sub-block j of 8: 6-bit scale and minimum out of 12 bytes (kernels/ref/q4_q5_k.c has the map). */
LANES_INLINE void q4_k_scale(const uint8_t *b, int j, int *scale, int *minimum)
{
    *scale = j < 4 ? b[j] & 63 : (b[j + 4] & 15) | b[j - 4] >> 6 << 4;
    *minimum = j < 4 ? b[j + 4] & 63 : b[j + 4] >> 4 | b[j] >> 6 << 4;
}

/* Sub-block 2 * pair + upper: the lower or upper nibbles of 32 bytes. */
LANES_INLINE void add_q4_k(const uint8_t *row, int pair, const int upper, float d, float d_min, const float *x, lanes acc[2])
{
    const uint8_t *const q = row + 16 + pair * 32;
    const bytes low = LOAD_BYTES(q) >> (4 * upper) & 15, high = LOAD_BYTES(q + 16) >> (4 * upper) & 15;
    int scale, minimum;

    q4_k_scale(row + 4, 2 * pair + upper, &scale, &minimum);
    const float step = d * (float)scale, offset = d_min * (float)minimum;
    acc[0] += (FLOATS(INTS(low)) * step - offset) * LANES_LOAD(x);
    acc[1] += (FLOATS(INTS(high)) * step - offset) * LANES_LOAD(x + N_LANES);
}

LANES_INLINE void dot_q4_k_body(const int row_tile, const int token_tile, const uint8_t *row, const float *x, int64_t n, float *sum)
{
    lanes acc[2] = {0};

    (void)row_tile, (void)token_tile;
    for (const uint8_t *const end = row + n / 256 * 144; row < end; row += 144) {
        const float d = scale_of(row), d_min = scale_of(row + 2);
        for (int pair = 0; pair < 4; pair++, x += 64) {
            add_q4_k(row, pair, 0, d, d_min, x, acc);
            add_q4_k(row, pair, 1, d, d_min, x + 32, acc);
        }
    }
    acc[0] += acc[1];
    *sum = lanes_sum(&acc[0]);
}

/* 16 numbers: half h of the block, quarter k of the half, group g of the quarter. */
LANES_INLINE void add_q6_k(const uint8_t *row, int h, const int k, int g, float d, const float *x, lanes *acc)
{
    const bytes low4 = LOAD_BYTES(row + 64 * h + 32 * (k % 2) + 16 * g), high2 = LOAD_BYTES(row + 128 + 32 * h + 16 * g);
    const bytes q = (low4 >> (k / 2 * 4) & 15) | (high2 >> (2 * k) & 3) << 4;
    const float scale = d * (float)(int8_t)row[192 + 8 * h + 2 * k + g];
    *acc += scale * (FLOATS(INTS(q) - 32) * LANES_LOAD(x + 128 * h + 32 * k + 16 * g));
}

LANES_INLINE void dot_q6_k_body(const int row_tile, const int token_tile, const uint8_t *row, const float *x, int64_t n, float *sum)
{
    lanes acc[2] = {0};

    (void)row_tile, (void)token_tile;
    for (const uint8_t *const end = row + n / 256 * 210; row < end; row += 210, x += 256) {
        const float d = scale_of(row + 208);
        for (int i = 0; i < 4; i++) {
            add_q6_k(row, i / 2, 0, i % 2, d, x, &acc[0]);
            add_q6_k(row, i / 2, 1, i % 2, d, x, &acc[1]);
            add_q6_k(row, i / 2, 2, i % 2, d, x, &acc[0]);
            add_q6_k(row, i / 2, 3, i % 2, d, x, &acc[1]);
        }
    }
    acc[0] += acc[1];
    *sum = lanes_sum(&acc[0]);
}

#define PACKED_DOT(name) \
    LANES_CLONES(dot_##name, dot_##name##_body, (const uint8_t *row, const float *x, int64_t n, float *sum), row, x, n, sum)
PACKED_DOT(bf16)
PACKED_DOT(f16)
PACKED_DOT(q8_0)
PACKED_DOT(mxfp4)
PACKED_DOT(q4_k)
PACKED_DOT(q6_k)

apr_packed_dot_fn apr_host_packed_dot(apr_dtype dtype)
{
    static const apr_packed_dot_fn dots[APR_DTYPE_COUNT] = {
        [APR_BF16] = dot_bf16,   [APR_F16] = dot_f16,   [APR_Q8_0] = dot_q8_0,
        [APR_MXFP4] = dot_mxfp4, [APR_Q4_K] = dot_q4_k, [APR_Q6_K] = dot_q6_k,
    };
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return dots[dtype];
#else
    return NULL;
#endif
}
