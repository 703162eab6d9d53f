/* kernels/host/products/products.h - packed rows times some tokens' numbers, without decoding the rows to memory.
 *
 * Inputs of block types are rounded first, as the GPU's are (kernels/cuda/ops/planes.cuh): 15 bits and a sign of the largest of 16
 * numbers that share a scale, an error of 2^-16 of that largest one. A group's products with whole codes are then whole numbers, whose
 * sum is exact in any order. What is left are a few float32 operations a group, in an order that is defined: a row has sixteen sums, one
 * for each group of 256 numbers,
 *     sum[g] += (float)(sum of the group's products) * (scale of the inputs * scale of the codes);  and the same of minimums
 * block after block, without fused operations, and the sixteen are added in halves. So a product is the same to the last bit whatever
 * the level of CPU, the number of threads and of tokens. Halves and bfloat16 are multiplied as float32, inputs unrounded: sixteen sums
 * for columns modulo 16, twice, in the same way.
 *
 * A level is what of a CPU this is compiled for: the best that the machine has is in use. */
#ifndef APR_KERNELS_HOST_PRODUCTS_H
#define APR_KERNELS_HOST_PRODUCTS_H

#include "formats/number/dtype.h"

enum { APR_PRODUCT_COLUMNS = 256, APR_PRODUCT_GROUP = 16, APR_PRODUCT_LARGEST = 32512, APR_PRODUCT_TOKENS = 4 };
enum { APR_PRODUCT_WIDE_ROWS = 16, APR_PRODUCT_WIDE_TOKENS = 8 };

/* In which order a type's codes come out of its bytes: which group of 16 a lane of sixteen has. */
typedef enum {
    APR_ORDER_PLAIN,         /* 64 columns side by side: lane 4 i + j has group 4 j + i */
    APR_ORDER_NIBBLES_OF_32, /* 32 bytes hold 64: Q4_K, Q5_K */
    APR_ORDER_NIBBLES_OF_16, /* 16 bytes hold 32: Q4_0 and its like */
    APR_ORDERS
} apr_product_order;

extern const uint8_t apr_product_group[APR_ORDERS][16];

/* 256 rounded inputs. Of lane 4 i + j the columns 2 t and 2 t + 1 are x[j][0][8 i + t] and x[j][1][8 i + t], t < 8. */
typedef struct apr_product_tile {
    int16_t x[4][2][32];
    float scale[16]; /* of a lane's group; NaN where a number of it is not finite */
    int32_t sum[16]; /* of its whole numbers */
    float total[16]; /* scale * sum */
} apr_product_tile;

static inline int64_t apr_product_tiles(int64_t n) { return (n + APR_PRODUCT_COLUMNS - 1) / APR_PRODUCT_COLUMNS; }

/* x of n numbers (whole groups) into apr_product_tiles(n) tiles; what lies beyond n are zeros. */
typedef void (*apr_product_round_fn)(const float *x, int64_t n, apr_product_order order, apr_product_tile *tiles);
/* Some rows of n numbers, `step` bytes apart. */
typedef struct apr_product_rows {
    const uint8_t *first;
    int64_t step, count;
} apr_product_rows;
/* out[t * out_stride + r] = row r . token t, t < n_tokens <= APR_PRODUCT_TOKENS, whose tiles begin `stride` tiles apart. */
typedef void (*apr_product_fn)(apr_product_rows rows, int64_t n, const apr_product_tile *x, int64_t stride, int n_tokens, float *out,
                               int64_t out_stride);
/* The same of float32 inputs; tokens are `stride` numbers apart. */
typedef void (*apr_product_float_fn)(apr_product_rows rows, int64_t n, const float *x, int64_t stride, int n_tokens, float *out,
                                     int64_t out_stride);

/* Of many tokens: sixteen rows are decoded to 16-bit codes, offsets taken out, so that a vector has one pair of columns of several rows.
 * A group's sum then grows without sums across lanes, and its sixteenth is kept in a register over all blocks. Same whole numbers, same
 * float32 operations in the same order: same bits. */

/* One group of sixteen rows. Pair p < 4: columns 4 p and 4 p + 2, pair 4 + p: 4 p + 1 and 4 p + 3. */
typedef struct apr_product_wide_rows {
    int16_t pair[8][APR_PRODUCT_WIDE_ROWS][2];
    float scale[APR_PRODUCT_WIDE_ROWS], minimum[APR_PRODUCT_WIDE_ROWS];
} apr_product_wide_rows;

/* One group of the inputs of eight tokens. */
typedef struct apr_product_wide_inputs {
    int32_t pair[8][APR_PRODUCT_WIDE_TOKENS]; /* two whole numbers of 16 bits */
    float scale[APR_PRODUCT_WIDE_TOKENS], total[APR_PRODUCT_WIDE_TOKENS];
} apr_product_wide_inputs;

/* Both as [16 lanes of a tile, tiles of n columns]: how many there are for n columns. */
static inline int64_t apr_product_wide_groups(int64_t n) { return 16 * apr_product_tiles(n); }

/* Rows may be named more than once, where there are fewer. Do they have minimums? */
typedef bool (*apr_product_widen_fn)(const uint8_t *const rows[APR_PRODUCT_WIDE_ROWS], int64_t n, apr_product_wide_rows *out);
/* Token t < APR_PRODUCT_WIDE_TOKENS of those that share `inputs`; where there are fewer, the others' sums mean nothing. */
typedef void (*apr_product_wide_round_fn)(const float *x, int64_t n, apr_product_order order, int t, apr_product_wide_inputs *inputs);
/* sums[t][r] for n_tokens <= APR_PRODUCT_WIDE_TOKENS; tokens are out_stride numbers apart, n_rows of them are written. */
typedef void (*apr_product_wide_fn)(const apr_product_wide_rows *rows, bool has_minimums, const apr_product_wide_inputs *inputs, int64_t n,
                                    int n_tokens, int n_rows, float *out, int64_t out_stride);

/* At most one of `rounded` and `plain` is there; `widen` is where `rounded` is. */
typedef struct apr_product {
    apr_product_order order;
    apr_product_fn rounded;
    apr_product_widen_fn widen;
    apr_product_float_fn plain;
} apr_product;

typedef struct apr_products_table {
    const char *name;
    apr_product_round_fn round;
    apr_product_wide_round_fn wide_round;
    apr_product_wide_fn wide;
    bool wide_pays; /* it is faster than tiles of float32 */
    int most_few;   /* of so many tokens, rows one at a time are faster than either */
    apr_product products[APR_DTYPE_COUNT];
} apr_products_table;

typedef enum { APR_PRODUCTS_PLAIN, APR_PRODUCTS_AVX2, APR_PRODUCTS_AVX512, APR_PRODUCTS_VNNI, APR_PRODUCTS_LEVELS } apr_products_level;

/* NULL: this machine, or this build, lacks that level. */
const apr_products_table *apr_products_level_table(apr_products_level level);
/* The one in use. */
const apr_products_table *apr_products(void);

#endif
