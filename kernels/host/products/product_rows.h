/* product_rows.h - the loop over a row of blocks, for types that define how their codes and scales are read.
 *
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
#ifndef APR_KERNELS_HOST_PRODUCT_ROWS_H
#define APR_KERNELS_HOST_PRODUCT_ROWS_H

#include "kernels/host/products/product_levels.h"
#include "kernels/host/products/vectors.h"

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

/* ---- unpacking sixteen rows for many tokens, for product_gemm.c ---- */

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

/* Defines apr_product_NAME and apr_product_widen_NAME of this level. */
#define PRODUCT(NAME, ...)                                                                                          \
    static const product_kind kind_##NAME = {__VA_ARGS__};                                                          \
    void LEVEL_NAME(apr_product_##NAME) APR_ROUNDED_PARAMETERS                                                      \
    {                                                                                                               \
        multiply_rows(&kind_##NAME, rows, n, x, stride, n_tokens, out, out_stride);                                 \
    }                                                                                                               \
    bool LEVEL_NAME(apr_product_unpack_##NAME)(const uint8_t *const rows[16], int64_t n, apr_product_gemm_rows *out) \
    {                                                                                                               \
        return unpack_rows(&kind_##NAME, rows, n, out);                                                             \
    }

#endif
