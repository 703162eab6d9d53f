/* kernels/host/products/products.h - products of packed rows and the inputs of some tokens, without writing decoded rows to memory.
 *
 * For block types the inputs are rounded first, as the GPU does (kernels/cuda/common/activations_i16.cuh): 16 numbers share a scale and become
 * 15-bit integers with a sign, relative to the largest; the error is at most 2^-16 of it. The products of a group with its integer codes
 * are then integers, whose sum is exact in any order. A few float32 operations a group remain, in a defined order. A row has sixteen
 * sums, one for each group of 256 numbers,
 *     sum[g] += (float)(sum of the group's products) * (scale of the inputs * scale of the codes);  and the same for minimums
 * block after block, without fused operations; at the end the sixteen are added in halves. So a product has the same bits at every CPU
 * level and with any number of threads and tokens. FP16 and BF16 weights are multiplied as float32 with unrounded inputs: two times
 * sixteen sums for columns modulo 16, added in the same way.
 *
 * A level is a set of CPU instructions that this is compiled for; the best one of the machine is used. */
#ifndef APR_KERNELS_HOST_PRODUCTS_H
#define APR_KERNELS_HOST_PRODUCTS_H

#include "formats/number/dtype.h"

enum { APR_PRODUCT_COLUMNS = 256, APR_PRODUCT_GROUP = 16, APR_PRODUCT_LARGEST = 32512, APR_PRODUCT_TOKENS = 4 };
enum { APR_PRODUCT_GEMM_ROWS = 16, APR_PRODUCT_GEMM_TOKENS = 8 };

/* The order in which a type's codes are unpacked: which group of 16 each of sixteen lanes has. */
typedef enum {
    APR_ORDER_PLAIN,         /* 64 adjacent columns: lane 4 i + j has group 4 j + i */
    APR_ORDER_NIBBLES_OF_32, /* 32 bytes hold 64: Q4_K, Q5_K */
    APR_ORDER_NIBBLES_OF_16, /* 16 bytes hold 32: Q4_0 and its like */
    APR_ORDERS
} apr_product_order;

/* 256 rounded inputs. The columns 2 t and 2 t + 1 of lane 4 i + j are x[j][0][8 i + t] and x[j][1][8 i + t], t < 8. */
typedef struct apr_product_tile {
    int16_t x[4][2][32];
    float scale[16]; /* of a lane's group; NaN if one of its numbers is not finite */
    int32_t sum[16]; /* of the group's integers */
    float total[16]; /* scale * sum */
} apr_product_tile;

static inline int64_t apr_product_tiles(int64_t n) { return (n + APR_PRODUCT_COLUMNS - 1) / APR_PRODUCT_COLUMNS; }

/* Rounds x, n numbers in whole groups, into apr_product_tiles(n) tiles. The end of the last tile is zeros. */
typedef void (*apr_product_round_fn)(const float *x, int64_t n, apr_product_order order, apr_product_tile *tiles);
/* `count` rows, `step` bytes apart. */
typedef struct apr_product_rows {
    const uint8_t *first;
    int64_t step, count;
} apr_product_rows;
/* GEMV for few tokens: out[t * out_stride + r] = row r . token t, for t < n_tokens <= APR_PRODUCT_TOKENS. The tiles of tokens are
 * `stride` tiles apart. */
typedef void (*apr_product_fn)(apr_product_rows rows, int64_t n, const apr_product_tile *x, int64_t stride, int n_tokens, float *out,
                               int64_t out_stride);
/* The same with float32 inputs; tokens are `stride` numbers apart. */
typedef void (*apr_product_float_fn)(apr_product_rows rows, int64_t n, const float *x, int64_t stride, int n_tokens, float *out,
                                     int64_t out_stride);

/* GEMM for many tokens: sixteen rows are unpacked to 16-bit codes without offsets, so that a vector has one pair of columns of several
 * rows. A group's sum then needs no sums across lanes, and stays in a register over all blocks. Same integers and same float32
 * operations in the same order: same bits. */

/* One group of sixteen rows. Pair p < 4 has the columns 4 p and 4 p + 2; pair 4 + p has 4 p + 1 and 4 p + 3. */
typedef struct apr_product_gemm_rows {
    int16_t pair[8][APR_PRODUCT_GEMM_ROWS][2];
    float scale[APR_PRODUCT_GEMM_ROWS], minimum[APR_PRODUCT_GEMM_ROWS];
} apr_product_gemm_rows;

/* One group of the inputs of eight tokens. */
typedef struct apr_product_gemm_inputs {
    int32_t pair[8][APR_PRODUCT_GEMM_TOKENS]; /* two 16-bit integers */
    float scale[APR_PRODUCT_GEMM_TOKENS], total[APR_PRODUCT_GEMM_TOKENS];
} apr_product_gemm_inputs;

/* The number of groups for n columns. Both structs are arrays [16 lanes of a tile, tiles of n columns]. */
static inline int64_t apr_product_gemm_groups(int64_t n) { return 16 * apr_product_tiles(n); }

/* Unpacks sixteen rows; fewer rows are padded by repeating one. Returns whether they have minimums. */
typedef bool (*apr_product_unpack_fn)(const uint8_t *const rows[APR_PRODUCT_GEMM_ROWS], int64_t n, apr_product_gemm_rows *out);
/* Rounds the inputs of token t < APR_PRODUCT_GEMM_TOKENS into the group's `inputs`. Sums of missing tokens are undefined. */
typedef void (*apr_product_gemm_round_fn)(const float *x, int64_t n, apr_product_order order, int t, apr_product_gemm_inputs *inputs);
/* Writes n_rows sums of each of n_tokens <= APR_PRODUCT_GEMM_TOKENS tokens, which are out_stride numbers apart. */
typedef void (*apr_product_gemm_fn)(const apr_product_gemm_rows *rows, bool has_minimums, const apr_product_gemm_inputs *inputs, int64_t n,
                                    int n_tokens, int n_rows, float *out, int64_t out_stride);

/* At most one of `rounded` and `plain` is set; `widen` is set with `rounded`. */
typedef struct apr_product {
    apr_product_order order;
    apr_product_fn rounded;
    apr_product_unpack_fn widen;
    apr_product_float_fn plain;
} apr_product;

typedef struct apr_products_table {
    const char *name;
    const uint8_t (*groups)[16]; /* [APR_ORDERS]: the group of each lane */
    apr_product_round_fn round;
    apr_product_gemm_round_fn wide_round;
    apr_product_gemm_fn wide;
    bool gemm_pays; /* the GEMM is faster than tiles of float32 */
    int most_few;   /* up to this many tokens the GEMV is faster than either */
    apr_product products[APR_DTYPE_COUNT];
} apr_products_table;

typedef enum { APR_PRODUCTS_PLAIN, APR_PRODUCTS_AVX2, APR_PRODUCTS_AVX512, APR_PRODUCTS_VNNI, APR_PRODUCTS_LEVELS } apr_products_level;

/* Those of product_level.c, compiled for each level that the architecture has. */
extern const apr_products_table apr_products_plain, apr_products_avx2, apr_products_avx512, apr_products_vnni;

/* NULL: the machine or the build lacks that level. */
const apr_products_table *apr_products_level_table(apr_products_level level);
/* The table in use. */
const apr_products_table *apr_products(void);

#endif
