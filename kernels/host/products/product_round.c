/* product_round.c - rounds the inputs of products to 15 bits and a sign for each 16 numbers, in the order of a type's codes. */
#include "kernels/host/products/product_levels.h"
#include "kernels/host/products/vectors.h"

#include <math.h>

enum { INFINITE = 0x7f800000 };
/* Groups whose numbers are all below 2^-100 become zeros: their inverse scale would not be finite. */
static const float least = 0x1p-100f;
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
    const float most = apr_f32_from_bits((uint32_t)bits), inverse = bits < INFINITE && most > least ? APR_PRODUCT_LARGEST / most : 0.0f;
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

void LEVEL_NAME(apr_product_round)(const float *x, int64_t n, apr_product_order order, apr_product_tile *tiles)
{
    static const float zeros[APR_PRODUCT_GROUP] = {0};
    for (int64_t at = 0; at < n; at += APR_PRODUCT_COLUMNS, tiles++)
        for (int lane = 0; lane < 16; lane++) {
            const int64_t first = at + apr_product_group[order][lane] * APR_PRODUCT_GROUP;
            round_group(first < n ? x + first : zeros, lane, tiles);
        }
}
