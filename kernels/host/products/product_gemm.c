/* product_gemm.c - the GEMM: sixteen unpacked rows times the rounded inputs of eight tokens.
 *
 * Predicted for 256 products (16 rows, 16 columns, one token) with vectors of 64 bytes: 8 multiply-adds of pairs with an input in all
 * lanes, 1 conversion, 2 multiplications and 1 addition, 2 more with minimums: 12 to 14 instructions, where float32 tiles need 16.
 * Unpacking rows costs about 0.3 instructions a weight, once for all tokens that are multiplied together. Without VNNI there are 7 more
 * additions: 19 to 21. */
#include "kernels/host/products/product_levels.h"
#include "kernels/host/products/vectors.h"

/* How many tokens, and vectors of rows, have their sums in registers. */
enum { SUMS_TOKENS = VEC_BYTES == 64 ? 8 : 4, SUMS_PARTS = VEC_BYTES == 64 ? 1 : 2 };

void LEVEL_NAME(apr_product_gemm_round)(const float *x, int64_t n, apr_product_order order, int t, apr_product_gemm_inputs *inputs)
{
    const int64_t n_tiles = apr_product_tiles(n);
    for (int64_t b = 0; b < n_tiles; b++) {
        const int64_t left = n - b * APR_PRODUCT_COLUMNS;
        apr_product_tile tile;
        LEVEL_NAME(apr_product_round)(x + b * APR_PRODUCT_COLUMNS, left < APR_PRODUCT_COLUMNS ? left : APR_PRODUCT_COLUMNS, order, &tile);
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

void LEVEL_NAME(apr_product_gemm)(const apr_product_gemm_rows *rows, bool has_minimums, const apr_product_gemm_inputs *inputs, int64_t n,
                                  int n_tokens, int n_rows, float *out, int64_t out_stride)
{
    const int64_t n_tiles = apr_product_tiles(n);
    float sums[APR_PRODUCT_GEMM_TOKENS][APR_PRODUCT_GEMM_ROWS];

    if (has_minimums) multiply_all(rows, true, inputs, n_tiles, n_tokens, sums);
    else multiply_all(rows, false, inputs, n_tiles, n_tokens, sums);
    for (int t = 0; t < n_tokens; t++) memcpy(out + t * out_stride, sums[t], (size_t)n_rows * sizeof(float));
}
