/* product_level.c - the products of one CPU level. This file is compiled once for each; it exports the table of its level.
 *
 * The loop over a row of blocks serves all types that define how their codes and scales are read.
 * 256 numbers become four times 64 unsigned codes. They are too large by an offset, which is corrected with the sum of the inputs. Bytes
 * at even and odd places become 16-bit numbers by a mask and a shift, are multiplied with their inputs and added in pairs. The sums of
 * 16 bytes, one group, are moved into one lane each; only then, once for 256 numbers, they are converted to float32 and multiplied with
 * scales.
 *
 * Predicted for a weight with vectors of 64 bytes (instructions that compute, without loads; 256 numbers at a time):
 *     Q8_0   (12 split + 8 multiply-add + 9 + 6 sums + 12 scales) / 256 = 0.18, 272 bytes: 5.8 bytes an instruction
 *     Q4_K   (12       + 8              + 9 + 8      + 14       ) / 256 = 0.20, 144 bytes: 2.8
 *     Q6_K   (24       + 8              + 9 + 7      + 6        ) / 256 = 0.21, 210 bytes: 3.9
 *     MXFP4  (30       + 8              + 9 + 7      + 12       ) / 256 = 0.26, 136 bytes: 2.1
 *     F16    3 / 16 = 0.19, 2 bytes a weight: 10.7
 * At two instructions a cycle and 2.6 GHz: 30, 14, 20, 11 and 55 GB/s a core; two cores of the test machine read about 20 GB/s from
 * memory.
 * Measured on one busy core (tests/bench/bench_products.c), rows in the cache and in memory: Q8_0 16 and 9, Q4_K 9 and 8, Q6_K 14 and
 * 10, MXFP4 8 and 6.5, F16 28 and 9 GB/s. */
#include "kernels/host/products/products.h"
#include "kernels/host/products/vectors.h"

#include <math.h>

#define ROUNDED_PARAMETERS \
    (apr_product_rows rows, int64_t n, const apr_product_tile *x, int64_t stride, int n_tokens, float *out, int64_t out_stride)
#define FLOAT_PARAMETERS (apr_product_rows rows, int64_t n, const float *x, int64_t stride, int n_tokens, float *out, int64_t out_stride)

static const uint8_t group_of_lane[APR_ORDERS][16] = {
    [APR_ORDER_PLAIN] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15},
    [APR_ORDER_NIBBLES_OF_32] = {0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15},
    [APR_ORDER_NIBBLES_OF_16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15},
};

/* ---- the inputs, rounded to 15 bits and a sign for each 16 numbers, in the order of a type's codes ---- */

enum { INFINITE = 0x7f800000 };
/* Groups whose numbers are all below 2^-100 become zeros: their inverse scale would not be finite. */
static const float least_rounded = 0x1p-100f;
/* Added to a number below 2^22 it leaves the nearest integer, ties to even, in the low bits. */
static const float rounder = 0x1.8p23f;

/* The bits of magnitudes have the order of the magnitudes, with infinities and NaN above all others. */
VEC_INLINE int32_t largest_bits(const float *x)
{
    int32_t most = 0;
    for (int i = 0; i < APR_PRODUCT_GROUP; i++) {
        const int32_t bits = (int32_t)(apr_f32_bits(x[i]) & 0x7fffffff);
        most = bits > most ? bits : most;
    }
    return most;
}

VEC_INLINE void round_group(const float *x, int lane, apr_product_tile *tile)
{
    int16_t *const even = tile->x[lane % 4][0] + lane / 4 * 8, *const odd = tile->x[lane % 4][1] + lane / 4 * 8;
    const int32_t bits = largest_bits(x);
    const float most = apr_f32_from_bits((uint32_t)bits),
                inverse = bits < INFINITE && most > least_rounded ? APR_PRODUCT_LARGEST / most : 0.0f;
    int16_t whole[APR_PRODUCT_GROUP];
    int32_t sum = 0;

    for (int i = 0; i < APR_PRODUCT_GROUP; i++) {
        const float product = inverse > 0.0f ? x[i] * inverse : 0.0f;
        whole[i] = (int16_t)((int32_t)apr_f32_bits(product + rounder) - 0x4b400000);
    }
    for (int i = 0; i < APR_PRODUCT_GROUP; i++) sum += whole[i];
    for (int i = 0; i < APR_PRODUCT_GROUP / 2; i++) {
        even[i] = whole[2 * i];
        odd[i] = whole[2 * i + 1];
    }
    tile->sum[lane] = sum;
    tile->scale[lane] = bits >= INFINITE ? NAN : inverse > 0.0f ? most * (1.0f / APR_PRODUCT_LARGEST) : 0.0f;
    tile->total[lane] = tile->scale[lane] * (float)sum;
}

static void round_inputs(const float *x, int64_t n, apr_product_order order, apr_product_tile *tiles)
{
    static const float zeros[APR_PRODUCT_GROUP] = {0};
    for (int64_t at = 0; at < n; at += APR_PRODUCT_COLUMNS, tiles++)
        for (int lane = 0; lane < 16; lane++) {
            const int64_t first = at + group_of_lane[order][lane] * APR_PRODUCT_GROUP;
            round_group(first < n ? x + first : zeros, lane, tiles);
        }
}

/* ---- the loop over a row of blocks ---- */

typedef struct product_kind {
    int block_bytes;   /* bytes of a block */
    int tile_blocks;   /* blocks of 256 numbers */
    int offset;        /* subtracted from the codes */
    bool has_minimums; /* a minimum is added to each number of a group */
    /* For each lane: the scale and the minimum of its group. */
    void (*scales)(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS]);
    /* 64 codes for each j < 4: the bytes at even and odd places, as 16-bit numbers. */
    void (*codes)(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4]);
} product_kind;

enum { MOST_TILE_BYTES = 8 * 34 };

VEC_INLINE void split_bytes(vec_words bytes, vec_words *even, vec_words *odd)
{
    *even = bytes & 0x00ff;
    *odd = bytes >> 8;
}

/* One part of 256 numbers for one token. */
VEC_INLINE void add_part(const product_kind *k, const vec_words even[4], const vec_words odd[4], vec_floats scale, vec_floats minimum,
                         const apr_product_tile *x, int part, vec_floats *acc)
{
    const int at = part * VEC_BYTES / 2, lane = part * VEC_LANES;
    vec_ints v[4];

    for (int j = 0; j < 4; j++) v[j] = vec_add_pairs(vec_pairs(even[j], vec_load(x->x[j][0] + at)), odd[j], vec_load(x->x[j][1] + at));
    const vec_ints sum = vec_load_ints(x->sum + lane), whole = vec_sums_of_four(v) - k->offset * sum;
    *acc += vec_to_floats(whole) * (vec_load_floats(x->scale + lane) * scale);
    if (k->has_minimums) *acc += minimum * vec_load_floats(x->total + lane);
}

/* The rest of a row, padded with zeros. */
VEC_INLINE const uint8_t *last_tile(const product_kind *k, const uint8_t *row, int64_t n, uint8_t padded[MOST_TILE_BYTES])
{
    const size_t n_bytes = (size_t)(n * k->tile_blocks / APR_PRODUCT_COLUMNS * k->block_bytes);
    memset(padded, 0, MOST_TILE_BYTES);
    memcpy(padded, row, n_bytes);
    return padded;
}

VEC_INLINE void multiply_tokens(const product_kind *k, const uint8_t *row, int64_t n, const apr_product_tile *x, int64_t stride,
                                const int n_tokens, float *sums)
{
    vec_floats acc[APR_PRODUCT_TOKENS][VEC_PARTS] = {0};
    uint8_t padded[MOST_TILE_BYTES];

    for (int64_t left = n; left > 0; left -= APR_PRODUCT_COLUMNS, row += k->tile_blocks * k->block_bytes, x++) {
        const bool is_whole = k->tile_blocks == 1 || left >= APR_PRODUCT_COLUMNS;
        const uint8_t *const tile = !is_whole ? last_tile(k, row, left, padded) : row;
        vec_floats scale[VEC_PARTS], minimum[VEC_PARTS] = {0};
        vec_prefetch(row, k->tile_blocks * k->block_bytes, VEC_AHEAD);
        k->scales(tile, scale, minimum);
        for (int p = 0; p < VEC_PARTS; p++) {
            vec_words even[4], odd[4];
            k->codes(tile, p, even, odd);
            for (int t = 0; t < n_tokens; t++) add_part(k, even, odd, scale[p], minimum[p], x + t * stride, p, &acc[t][p]);
        }
    }
    for (int t = 0; t < n_tokens; t++) sums[t] = vec_total(acc[t]);
}

VEC_INLINE void multiply_each(const product_kind *k, apr_product_rows rows, int64_t n, const apr_product_tile *x, int64_t stride,
                              const int n_tokens, float *out, int64_t out_stride)
{
    float sums[APR_PRODUCT_TOKENS];
    for (int64_t r = 0; r < rows.count; r++) {
        multiply_tokens(k, rows.first + r * rows.step, n, x, stride, n_tokens, sums);
        for (int t = 0; t < n_tokens; t++) out[t * out_stride + r] = sums[t];
    }
}

/* One, two or four tokens at a time: a row is read once for them. Costs besides the blocks are paid once for all rows. */
VEC_INLINE void multiply_rows(const product_kind *k, apr_product_rows rows, int64_t n, const apr_product_tile *x, int64_t stride,
                              int n_tokens, float *out, int64_t out_stride)
{
    if (n_tokens == APR_PRODUCT_TOKENS) {
        multiply_each(k, rows, n, x, stride, APR_PRODUCT_TOKENS, out, out_stride);
        return;
    }
    if (n_tokens >= 2) multiply_each(k, rows, n, x, stride, 2, out, out_stride);
    if (n_tokens % 2 == 1) multiply_each(k, rows, n, x + (n_tokens - 1) * stride, stride, 1, out + (n_tokens - 1) * out_stride, out_stride);
}

/* ---- unpacking sixteen rows for many tokens ---- */

/* Unpacks 256 numbers of four rows, from `row` on, into the sixteen groups, which are n_tiles apart. */
VEC_INLINE void unpack_four(const product_kind *k, const uint8_t *const tiles[4], int row, int64_t n_tiles, apr_product_gemm_rows *out)
{
    const int64_t a_group = n_tiles * (int64_t)sizeof *out; /* bytes from a lane's group to the next lane's */
    const vec_words offset = vec_all_pairs(k->offset * 0x10001);
    vec_floats scale[4][VEC_PARTS], minimum[4][VEC_PARTS] = {0};

    for (int p = 0; p < VEC_PARTS; p++) {
        vec_words codes[4][2][4]; /* of each row, at even and odd places, for groups 4 i + j */
        for (int r = 0; r < 4; r++) k->codes(tiles[r], p, codes[r][0], codes[r][1]);
        for (int j = 0; j < 4; j++)
            for (int odd = 0; odd < 2; odd++) {
                apr_product_gemm_rows *const group = out + (p * VEC_LANES + j) * n_tiles;
                vec_ints v[4];
                for (int r = 0; r < 4; r++) v[r] = (vec_ints)(codes[r][odd][j] - offset);
                vec_transpose_4(v);
                for (int q = 0; q < 4; q++) vec_store_16s((uint8_t *)group->pair[4 * odd + q][row], 4 * a_group, v[q]);
            }
    }
    for (int r = 0; r < 4; r++) {
        float numbers[2][16];
        k->scales(tiles[r], scale[r], minimum[r]);
        memcpy(numbers[0], scale[r], sizeof numbers[0]);
        memcpy(numbers[1], minimum[r], sizeof numbers[1]);
        for (int l = 0; l < 16; l++) {
            out[l * n_tiles].scale[row + r] = numbers[0][l];
            out[l * n_tiles].minimum[row + r] = numbers[1][l];
        }
    }
}

VEC_INLINE bool unpack_rows(const product_kind *k, const uint8_t *const rows[16], int64_t n, apr_product_gemm_rows *out)
{
    const int64_t n_tiles = apr_product_tiles(n);
    for (int64_t t = 0; t < n_tiles; t++) {
        const int64_t at = t * k->tile_blocks * k->block_bytes, left = n - t * APR_PRODUCT_COLUMNS;
        const bool is_whole = k->tile_blocks == 1 || left >= APR_PRODUCT_COLUMNS;
        for (int row = 0; row < 16; row += 4) {
            uint8_t padded[4][MOST_TILE_BYTES];
            const uint8_t *tiles[4];
            for (int r = 0; r < 4; r++) {
                vec_prefetch(rows[row + r] + at, k->tile_blocks * k->block_bytes, VEC_AHEAD);
                tiles[r] = is_whole ? rows[row + r] + at : last_tile(k, rows[row + r] + at, left, padded[r]);
            }
            unpack_four(k, tiles, row, n_tiles, out + t);
        }
    }
    return k->has_minimums;
}

/* Defines product_NAME and unpack_NAME. */
#define PRODUCT(NAME, ...)                                                                                                        \
    static const product_kind kind_##NAME = {__VA_ARGS__};                                                                        \
    static void product_##NAME ROUNDED_PARAMETERS { multiply_rows(&kind_##NAME, rows, n, x, stride, n_tokens, out, out_stride); } \
    static bool unpack_##NAME(const uint8_t *const rows[16], int64_t n, apr_product_gemm_rows *out)                               \
    {                                                                                                                             \
        return unpack_rows(&kind_##NAME, rows, n, out);                                                                           \
    }

/* ---- types with 32 codes and one scale a block. kernels/ref describes the layouts. ---- */

/* The block of 32 that has a lane's group. */
static const int32_t blocks_of_bytes[16] = {0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7};
static const int32_t blocks_of_nibbles[16] = {0, 0, 4, 4, 1, 1, 5, 5, 2, 2, 6, 6, 3, 3, 7, 7};

VEC_INLINE void f16_scales(const uint8_t *tile, int stride, const int32_t blocks[16], vec_floats out[VEC_PARTS])
{
    eight_floats d;
    load_f16_x8(tile, stride, &d);
    vec_spread(&d, blocks, out);
}

/* ---- bytes ---- */

VEC_INLINE void scales_q8_0(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    (void)minimum;
    f16_scales(tile, 34, blocks_of_bytes, scale);
}

VEC_INLINE void codes_q8_0(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int j = 0; j < 4; j++) split_bytes(vec_of_32s(tile + 68 * j + 2, 34, part) ^ 0x8080, &even[j], &odd[j]);
}

/* ---- nibbles: those of four blocks together, the low ones and the high ones ---- */

VEC_INLINE void split_nibbles(vec_words z, vec_words even[2], vec_words odd[2])
{
    const vec_words upper = z >> 8;
    even[0] = z & 0x000f;
    odd[0] = upper & 0x000f;
    even[1] = z >> 4 & 0x000f;
    odd[1] = upper >> 4;
}

VEC_INLINE void scales_q4_0(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    (void)minimum;
    f16_scales(tile, 18, blocks_of_nibbles, scale);
}

VEC_INLINE void codes_q4_0(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int four = 0; four < 2; four++) split_nibbles(vec_of_16s(tile + 72 * four + 2, 18, part), even + 2 * four, odd + 2 * four);
}

VEC_INLINE void scales_q4_1(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    f16_scales(tile, 20, blocks_of_nibbles, scale);
    f16_scales(tile + 2, 20, blocks_of_nibbles, minimum);
}

VEC_INLINE void codes_q4_1(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int four = 0; four < 2; four++) split_nibbles(vec_of_16s(tile + 80 * four + 4, 20, part), even + 2 * four, odd + 2 * four);
}

/* ---- and a fifth bit: bit i of a block's four bytes is code i's ---- */

/* Sets each of 16 bytes to 16 if its bit of `bits` is set, else to 0. */
VEC_INLINE void spread_bits(unsigned bits, uint8_t out[16])
{
    const uint64_t each = 0x0101010101010101u, pick = 0x8040201008040201u;
    for (int byte = 0; byte < 2; byte++) {
        const uint64_t picked = (bits >> (8 * byte) & 255) * each & pick; /* a bit in each byte, or none */
        const uint64_t found = ((picked + 0x7f7f7f7f7f7f7f7fu) | picked) >> 3 & 0x1010101010101010u;
        memcpy(out + 8 * byte, &found, sizeof found);
    }
}

/* Blocks of `stride` bytes: the fifth bits, then the nibbles. */
VEC_INLINE void codes_5(const uint8_t *fifths, int stride, int part, vec_words even[4], vec_words odd[4])
{
    enum { PIECES = VEC_BYTES / 16 };
    for (int four = 0; four < 2; four++) {
        uint8_t low[VEC_BYTES], high[VEC_BYTES];
        for (int i = 0; i < PIECES; i++) {
            const uint32_t bits = apr_load_le32(fifths + (4 * four + part * PIECES + i) * stride);
            spread_bits(bits & 0xffff, low + 16 * i);
            spread_bits(bits >> 16, high + 16 * i);
        }
        const vec_words z = vec_of_16s(fifths + 4 * four * stride + 4, stride, part);
        split_bytes((z & 0x0f0f) | vec_load(low), &even[2 * four], &odd[2 * four]);
        split_bytes((z >> 4 & 0x0f0f) | vec_load(high), &even[2 * four + 1], &odd[2 * four + 1]);
    }
}

VEC_INLINE void scales_q5_0(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    (void)minimum;
    f16_scales(tile, 22, blocks_of_nibbles, scale);
}

VEC_INLINE void codes_q5_0(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4]) { codes_5(tile + 2, 22, part, even, odd); }

VEC_INLINE void scales_q5_1(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    f16_scales(tile, 24, blocks_of_nibbles, scale);
    f16_scales(tile + 2, 24, blocks_of_nibbles, minimum);
}

VEC_INLINE void codes_q5_1(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4]) { codes_5(tile + 4, 24, part, even, odd); }

/* ---- nibbles that are indexes into a table of values ---- */

/* E2M1 doubled plus 12; the values of IQ4_NL plus 127. */
#if VEC_LOOKS_UP

VEC_INLINE void look_up_nibbles(const uint8_t table[16], vec_words z, vec_words even[2], vec_words odd[2])
{
    split_bytes(vec_look_up(table, z & 0x0f0f), &even[0], &odd[0]);
    split_bytes(vec_look_up(table, z >> 4 & 0x0f0f), &even[1], &odd[1]);
}

VEC_INLINE void values_e2m1(vec_words z, vec_words even[2], vec_words odd[2])
{
    static const uint8_t values[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    look_up_nibbles(values, z, even, odd);
}

VEC_INLINE void values_iq4_nl(vec_words z, vec_words even[2], vec_words odd[2])
{
    static const uint8_t values[16] = {0, 23, 44, 62, 78, 92, 105, 117, 128, 140, 152, 165, 180, 196, 216, 240};
    look_up_nibbles(values, z, even, odd);
}

#else

/* Magnitudes 0 1 2 3 4 6 8 12: steps of one, from code 4 on of two, from code 6 on of four. */
VEC_INLINE vec_bytes e2m1_of(vec_bytes code)
{
    const vec_bytes magnitude = code & 7, from_6 = vec_above(magnitude, 6), negative = (vec_bytes)((vec_signed)code > 7);
    const vec_bytes doubled = magnitude + vec_above(magnitude, 4) + from_6 + from_6;
    return (doubled ^ negative) + (12 - negative);
}

VEC_INLINE void values_e2m1(vec_words z, vec_words even[2], vec_words odd[2])
{
    split_bytes((vec_words)e2m1_of((vec_bytes)(z & 0x0f0f)), &even[0], &odd[0]);
    split_bytes((vec_words)e2m1_of((vec_bytes)(z >> 4 & 0x0f0f)), &even[1], &odd[1]);
}

/* Computes the values of IQ4_NL. The code is in the top four bits, the bits below are zeros. With u the code minus 8, the upper half of
 * a product is u / 16 times the other factor. This polynomial of u, in 64ths, is each of the sixteen values plus less than one. */
VEC_INLINE vec_words iq4_nl_of(vec_words code)
{
    const vec_words u = code ^ 0x8000, factor = (vec_words){0} + 6652;
    const vec_words cubic = vec_upper_products(vec_upper_products(u, factor) + 21454, u) - 275;
    return (vec_upper_products(vec_upper_products(cubic, u) + 11714, u) + 8252) >> 6;
}

VEC_INLINE void values_iq4_nl(vec_words z, vec_words even[2], vec_words odd[2])
{
    even[0] = iq4_nl_of(z << 12);
    odd[0] = iq4_nl_of(z << 4 & 0xf000);
    even[1] = iq4_nl_of(z << 8 & 0xf000);
    odd[1] = iq4_nl_of(z & 0xf000);
}

#endif

/* Scales are halved because values are doubled: 2^(e - 128), of which the smallest two are subnormal. */
VEC_INLINE void scales_mxfp4(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    int32_t bits[8];
    eight_floats d;
    (void)minimum;
    for (int b = 0; b < 8; b++) {
        const int32_t e = tile[17 * b], small = 0x00200000 * (e + 1), normal = (e - 1) * (1 << 23);
        bits[b] = small > normal ? small : normal;
    }
    memcpy(&d, bits, sizeof d);
    vec_spread(&d, blocks_of_nibbles, scale);
}

VEC_INLINE void codes_mxfp4(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int four = 0; four < 2; four++) values_e2m1(vec_of_16s(tile + 68 * four + 1, 17, part), even + 2 * four, odd + 2 * four);
}

VEC_INLINE void codes_iq4_nl(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int four = 0; four < 2; four++) values_iq4_nl(vec_of_16s(tile + 72 * four + 2, 18, part), even + 2 * four, odd + 2 * four);
}

PRODUCT(q8_0, 34, 8, 128, false, scales_q8_0, codes_q8_0)
PRODUCT(q4_0, 18, 8, 8, false, scales_q4_0, codes_q4_0)
PRODUCT(q4_1, 20, 8, 0, true, scales_q4_1, codes_q4_1)
PRODUCT(q5_0, 22, 8, 16, false, scales_q5_0, codes_q5_0)
PRODUCT(q5_1, 24, 8, 0, true, scales_q5_1, codes_q5_1)
PRODUCT(mxfp4, 17, 8, 12, false, scales_mxfp4, codes_mxfp4)
PRODUCT(iq4_nl, 18, 8, 127, false, scales_q4_0, codes_iq4_nl)

/* ---- Q4_K, Q5_K and Q6_K ---- */

/* Scales and minimums have six bits each (kernels/ref/q4_q5_k.c has the map), in three words after d and d_min: the first four are
 * stored directly, the others as nibbles with their upper two bits elsewhere. The groups of the lanes are in the sub-blocks 0 1 4 5 0 1
 * 4 5 2 3 6 7 2 3 6 7. */
#ifdef __AVX2__

/* Returns scales 0 to 7, then minimums 0 to 7, as bytes. */
VEC_INLINE __m128i unpack_scales(const uint8_t *tile)
{
    const __m128i head = _mm_loadu_si128((const void *)tile), four = _mm_setr_epi32(0, 0, 0, 4);
    const __m128i lower = _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f),
                  upper = _mm_setr_epi32(0, 0x30303030, 0, 0x30303030);
    const __m128i acbc = _mm_srlv_epi32(_mm_shuffle_epi32(head, _MM_SHUFFLE(3, 2, 3, 1)), four);
    const __m128i aabb = _mm_srli_epi32(_mm_shuffle_epi32(head, _MM_SHUFFLE(2, 2, 1, 1)), 2);
    return _mm_or_si128(_mm_and_si128(acbc, lower), _mm_and_si128(aabb, upper));
}

/* Multiplies eight bytes, those of the sub-blocks 0 1 4 5 2 3 6 7, by `by`, and spreads them to the lanes. */
VEC_INLINE void spread_bytes(__m128i bytes, __m256 by, vec_floats out[VEC_PARTS])
{
    const __m256 y = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)), by);
#ifdef __AVX512BW__
    out[0] = (vec_floats)_mm512_shuffle_f32x4(_mm512_castps256_ps512(y), _mm512_castps256_ps512(y), 0x50);
#else
    out[0] = (vec_floats)_mm256_permute2f128_ps(y, y, 0x00);
    out[1] = (vec_floats)_mm256_permute2f128_ps(y, y, 0x11);
#endif
}

VEC_INLINE void scales_q4_k(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    const __m128 both = _mm_xor_ps(_mm_cvtph_ps(_mm_cvtsi32_si128((int)apr_load_le32(tile))), _mm_setr_ps(0.0f, -0.0f, 0.0f, 0.0f));
    const __m256 d = _mm256_broadcastss_ps(both), minus_d_min = _mm256_broadcastss_ps(_mm_movehdup_ps(both));
    const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    const __m128i bytes = _mm_shuffle_epi8(unpack_scales(tile), order);

    spread_bytes(bytes, d, scale);
    spread_bytes(_mm_unpackhi_epi64(bytes, bytes), minus_d_min, minimum);
}

#else

VEC_INLINE void scales_q4_k(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    static const int32_t sub_blocks[16] = {0, 1, 4, 5, 0, 1, 4, 5, 2, 3, 6, 7, 2, 3, 6, 7};
    const uint32_t a = apr_load_le32(tile + 4), b = apr_load_le32(tile + 8), c = apr_load_le32(tile + 12);
    const uint32_t upper_scales = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030), upper_minimums = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    eight_floats scales, minimums;

    eight_bytes((uint64_t)upper_scales << 32 | (a & 0x3f3f3f3f), &scales);
    eight_bytes((uint64_t)upper_minimums << 32 | (b & 0x3f3f3f3f), &minimums);
    scales *= load_f16(tile);
    minimums *= -load_f16(tile + 2);
    vec_spread(&scales, sub_blocks, scale);
    vec_spread(&minimums, sub_blocks, minimum);
}

#endif

VEC_INLINE void codes_q4_k(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int half = 0; half < 2; half++) {
        const vec_words z = vec_load(tile + 16 + 64 * half + part * VEC_BYTES), upper = z >> 8;
        even[2 * half] = z & 0x000f;
        odd[2 * half] = upper & 0x000f;
        even[2 * half + 1] = z >> 4 & 0x000f;
        odd[2 * half + 1] = upper >> 4;
    }
}

/* The fifth bit of sub-block s of 8 is bit s of qh's bytes. */
VEC_INLINE void codes_q5_k(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    const vec_words fifths = vec_twice(tile + 16, 2, part), fifth[4] = {fifths << 4, fifths << 3, fifths, fifths >> 1};
    for (int half = 0; half < 2; half++) {
        const vec_words z = vec_load(tile + 48 + 64 * half + part * VEC_BYTES);
        split_bytes((z & 0x0f0f) | (fifth[2 * half] & 0x1010), &even[2 * half], &odd[2 * half]);
        split_bytes((z >> 4 & 0x0f0f) | (fifth[2 * half + 1] & 0x1010), &even[2 * half + 1], &odd[2 * half + 1]);
    }
}

VEC_INLINE void scales_q6_k(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    const float d = load_f16(tile + 208);
    (void)minimum;
    vec_from_signed_bytes(tile + 192, group_of_lane[APR_ORDER_PLAIN], scale);
    for (int p = 0; p < VEC_PARTS; p++) scale[p] *= d;
}

/* For each 128 numbers: 64 bytes of nibbles, and 32 bytes with the upper two bits. */
VEC_INLINE void codes_q6_k(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int half = 0; half < 2; half++) {
        const vec_words z = vec_load(tile + 64 * half + part * VEC_BYTES), upper = vec_twice(tile + 128 + 32 * half, 2, part);
        split_bytes((z & 0x0f0f) | (upper << 4 & 0x3030), &even[2 * half], &odd[2 * half]);
        split_bytes((z >> 4 & 0x0f0f) | (upper & 0x3030), &even[2 * half + 1], &odd[2 * half + 1]);
    }
}

PRODUCT(q4_k, 144, 1, 0, true, scales_q4_k, codes_q4_k)
PRODUCT(q5_k, 176, 1, 0, true, scales_q4_k, codes_q5_k)
PRODUCT(q6_k, 210, 1, 32, false, scales_q6_k, codes_q6_k)

/* ---- F16 and BF16, with float32 inputs ---- */

enum { STEP = 32 };

VEC_INLINE vec_floats floats_from_f16(const uint8_t *p)
{
#if defined(__AVX512BW__)
    return (vec_floats)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
#elif defined(__F16C__)
    return (vec_floats)_mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
#else
    typedef uint16_t f16s __attribute__((vector_size(2 * VEC_LANES)));
    f16s h;
    memcpy(&h, p, sizeof h);
    return vec_from_f16(__builtin_convertvector(h, vec_ints));
#endif
}

VEC_INLINE vec_floats floats_from_bf16(const uint8_t *p)
{
#if defined(__AVX512BW__)
    return (vec_floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16);
#elif defined(__AVX2__)
    return (vec_floats)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16);
#else
    typedef uint16_t f16s __attribute__((vector_size(2 * VEC_LANES)));
    f16s h;
    memcpy(&h, p, sizeof h);
    return (vec_floats)(__builtin_convertvector(h, vec_ints) << 16);
#endif
}

typedef vec_floats (*widen_fn)(const uint8_t *p);

/* Adds STEP numbers. Those after the last whole step are read from a copy that is padded with zeros. */
VEC_INLINE void add_step(widen_fn widen, const uint8_t *row, const float *x, vec_floats acc[2][VEC_PARTS])
{
    for (int half = 0; half < 2; half++)
        for (int p = 0; p < VEC_PARTS; p++) {
            const int at = 16 * half + p * VEC_LANES;
            acc[half][p] += widen(row + 2 * at) * vec_load_floats(x + at);
        }
}

VEC_INLINE float multiply_floats(widen_fn widen, const uint8_t *row, int64_t n, const float *x)
{
    vec_floats acc[2][VEC_PARTS] = {0};
    int64_t i = 0;

    for (; i + STEP <= n; i += STEP) {
        vec_prefetch(row + 2 * i, 2 * STEP, VEC_AHEAD_F16);
        add_step(widen, row + 2 * i, x + i, acc);
    }
    if (i < n) {
        uint8_t last[2 * STEP] = {0};
        float last_x[STEP] = {0};
        memcpy(last, row + 2 * i, 2 * (size_t)(n - i));
        memcpy(last_x, x + i, sizeof *x * (size_t)(n - i));
        add_step(widen, last, last_x, acc);
    }
    for (int p = 0; p < VEC_PARTS; p++) acc[0][p] += acc[1][p];
    return vec_total(acc[0]);
}

VEC_INLINE void multiply_float_rows(widen_fn widen, apr_product_rows rows, int64_t n, const float *x, int64_t stride, int n_tokens,
                                    float *out, int64_t out_stride)
{
    for (int64_t r = 0; r < rows.count; r++)
        for (int t = 0; t < n_tokens; t++) out[t * out_stride + r] = multiply_floats(widen, rows.first + r * rows.step, n, x + t * stride);
}

static void product_f16 FLOAT_PARAMETERS { multiply_float_rows(floats_from_f16, rows, n, x, stride, n_tokens, out, out_stride); }
static void product_bf16 FLOAT_PARAMETERS { multiply_float_rows(floats_from_bf16, rows, n, x, stride, n_tokens, out, out_stride); }

/* ---- the GEMM: sixteen unpacked rows times the rounded inputs of eight tokens ----
 *
 * Predicted for 256 products (16 rows, 16 columns, one token) with vectors of 64 bytes: 8 multiply-adds of pairs with an input in all
 * lanes, 1 conversion, 2 multiplications and 1 addition, 2 more with minimums: 12 to 14 instructions, where float32 tiles need 16.
 * Unpacking rows costs about 0.3 instructions a weight, once for all tokens that are multiplied together. Without VNNI there are 7 more
 * additions: 19 to 21. */

/* How many tokens, and vectors of rows, have their sums in registers. */
enum { SUMS_TOKENS = VEC_BYTES == 64 ? 8 : 4, SUMS_PARTS = VEC_BYTES == 64 ? 1 : 2 };

static void round_gemm_inputs(const float *x, int64_t n, apr_product_order order, int t, apr_product_gemm_inputs *inputs)
{
    const int64_t n_tiles = apr_product_tiles(n);
    for (int64_t b = 0; b < n_tiles; b++) {
        const int64_t left = n - b * APR_PRODUCT_COLUMNS;
        apr_product_tile tile;
        round_inputs(x + b * APR_PRODUCT_COLUMNS, left < APR_PRODUCT_COLUMNS ? left : APR_PRODUCT_COLUMNS, order, &tile);
        for (int l = 0; l < 16; l++) {
            apr_product_gemm_inputs *const to = &inputs[l * n_tiles + b];
            int32_t pairs[8];
            memcpy(pairs, tile.x[l % 4][0] + l / 4 * 8, sizeof pairs / 2);
            memcpy(pairs + 4, tile.x[l % 4][1] + l / 4 * 8, sizeof pairs / 2);
            for (int q = 0; q < 8; q++) to->pair[q][t] = pairs[q];
            to->scale[t] = tile.scale[l];
            to->total[t] = tile.total[l];
        }
    }
}

/* Adds one group of n_parts vectors of rows and n_tokens tokens. */
VEC_INLINE void add_group(const apr_product_gemm_rows *w, const apr_product_gemm_inputs *x, const bool has_minimums, const int n_parts,
                          const int n_tokens, int part, int token, vec_floats acc[SUMS_PARTS][SUMS_TOKENS])
{
    vec_ints whole[SUMS_PARTS][SUMS_TOKENS] = {0};

    for (int q = 0; q < 8; q++)
        for (int p = 0; p < n_parts; p++) {
            const vec_words codes = vec_load((const uint8_t *)w->pair[q] + (part + p) * VEC_BYTES);
            for (int t = 0; t < n_tokens; t++) {
                whole[p][t] = vec_add_pairs(whole[p][t], codes, vec_all_pairs(x->pair[q][token + t]));
                VEC_KEEP(whole[p][t]);
            }
        }
    for (int p = 0; p < n_parts; p++) {
        const vec_floats scale = vec_load_floats(w->scale + (part + p) * VEC_LANES);
        for (int t = 0; t < n_tokens; t++) acc[p][t] += vec_to_floats(whole[p][t]) * (vec_all(x->scale[token + t]) * scale);
        if (!has_minimums) continue;
        const vec_floats minimum = vec_load_floats(w->minimum + (part + p) * VEC_LANES);
        for (int t = 0; t < n_tokens; t++) acc[p][t] += minimum * vec_all(x->total[token + t]);
    }
}

/* Some rows and tokens: a sum for each lane of a tile, over all tiles; then the sixteen sums are added in halves. */
VEC_INLINE void multiply_some(const apr_product_gemm_rows *rows, const bool has_minimums, const apr_product_gemm_inputs *inputs,
                              int64_t n_tiles, const int n_tokens, int part, int token, float (*sums)[APR_PRODUCT_GEMM_ROWS])
{
    vec_floats of_lanes[16][SUMS_PARTS][SUMS_TOKENS];

    for (int l = 0; l < 16; l++) {
        vec_floats acc[SUMS_PARTS][SUMS_TOKENS] = {0};
        for (int64_t b = l * n_tiles; b < (l + 1) * n_tiles; b++)
            add_group(rows + b, inputs + b, has_minimums, SUMS_PARTS, n_tokens, part, token, acc);
        memcpy(of_lanes[l], acc, sizeof acc);
    }
    for (int p = 0; p < SUMS_PARTS; p++)
        for (int t = 0; t < n_tokens; t++) {
            vec_floats v[16];
            for (int l = 0; l < 16; l++) v[l] = of_lanes[l][p][t];
            for (int n = 8; n > 0; n /= 2)
                for (int l = 0; l < n; l++) v[l] += v[l + n];
            memcpy(sums[token + t] + (part + p) * VEC_LANES, v, sizeof v[0]);
        }
}

VEC_INLINE void multiply_all(const apr_product_gemm_rows *rows, const bool has_minimums, const apr_product_gemm_inputs *inputs,
                             int64_t n_tiles, int n_tokens, float (*sums)[APR_PRODUCT_GEMM_ROWS])
{
    enum { FEWER = SUMS_TOKENS > 4 ? 4 : SUMS_TOKENS };
    for (int part = 0; part < VEC_PARTS; part += SUMS_PARTS) {
        int t = 0;
        while (n_tokens - t > FEWER) multiply_some(rows, has_minimums, inputs, n_tiles, SUMS_TOKENS, part, t, sums), t += SUMS_TOKENS;
        if (n_tokens - t > 0) multiply_some(rows, has_minimums, inputs, n_tiles, FEWER, part, t, sums);
    }
}

static void multiply_gemm(const apr_product_gemm_rows *rows, bool has_minimums, const apr_product_gemm_inputs *inputs, int64_t n,
                          int n_tokens, int n_rows, float *out, int64_t out_stride)
{
    const int64_t n_tiles = apr_product_tiles(n);
    float sums[APR_PRODUCT_GEMM_TOKENS][APR_PRODUCT_GEMM_ROWS];

    if (has_minimums) multiply_all(rows, true, inputs, n_tiles, n_tokens, sums);
    else multiply_all(rows, false, inputs, n_tiles, n_tokens, sums);
    for (int t = 0; t < n_tokens; t++) memcpy(out + t * out_stride, sums[t], (size_t)n_rows * sizeof(float));
}

/* ---- the table ---- */

/* GEMM with rounded inputs against tiles of float32: predicted 19 instructions to 16 with AVX-512 alone, measured 0.76 to 0.92 times as
 * fast. With VNNI it is 1.27 to 1.6 times as fast, with AVX2 9 times, plain 2 times. Few tokens, in 10^9 products/s of one core with
 * AVX2, Q4_K and Q8_0: GEMV 25 and 22 (four tokens); GEMM 30 and 31 (eight), 40 and 42 (sixteen), 52 and 57 (64). */
#if defined(__AVX512VNNI__)
enum { GEMM_PAYS = true, MOST_FEW = 16 };
#elif defined(__AVX512BW__)
enum { GEMM_PAYS = false, MOST_FEW = 16 };
#else
enum { GEMM_PAYS = true, MOST_FEW = 6 };
#endif

/* Numbers of more than a byte are read in the machine's byte order. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define IF_LITTLE_ENDIAN(function) (function)
#else
#define IF_LITTLE_ENDIAN(function) (true ? NULL : (function))
#endif
#define ROUNDED(id, name, its_order) \
    [APR_##id] = {.order = APR_ORDER_##its_order, .rounded = IF_LITTLE_ENDIAN(product_##name), .widen = IF_LITTLE_ENDIAN(unpack_##name)}
#define FLOATS(id, name) [APR_##id] = {.plain = IF_LITTLE_ENDIAN(product_##name)}

const apr_products_table LEVEL_NAME(apr_products) = {
    .name = LEVEL_TEXT,
    .groups = group_of_lane,
    .round = round_inputs,
    .wide_round = round_gemm_inputs,
    .wide = multiply_gemm,
    .gemm_pays = GEMM_PAYS,
    .most_few = MOST_FEW,
    .products = {ROUNDED(Q8_0, q8_0, PLAIN), ROUNDED(Q4_0, q4_0, NIBBLES_OF_16), ROUNDED(Q4_1, q4_1, NIBBLES_OF_16),
                 ROUNDED(Q5_0, q5_0, NIBBLES_OF_16), ROUNDED(Q5_1, q5_1, NIBBLES_OF_16), ROUNDED(MXFP4, mxfp4, NIBBLES_OF_16),
                 ROUNDED(IQ4_NL, iq4_nl, NIBBLES_OF_16), ROUNDED(Q4_K, q4_k, NIBBLES_OF_32), ROUNDED(Q5_K, q5_k, NIBBLES_OF_32),
                 ROUNDED(Q6_K, q6_k, PLAIN), FLOATS(F16, f16), FLOATS(BF16, bf16)},
};
