/* products.c - the tables of products for each CPU level, and the choice of the level. */
#include "kernels/host/products/product_levels.h"

#include <stddef.h>

const uint8_t apr_product_group[APR_ORDERS][16] = {
    [APR_ORDER_PLAIN] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15},
    [APR_ORDER_NIBBLES_OF_32] = {0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15},
    [APR_ORDER_NIBBLES_OF_16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15},
};

/* GEMM with rounded inputs (product_gemm.c) against tiles of float32: predicted 19 instructions to 16 with AVX-512 alone, measured 0.76
 * to 0.92 times as fast. With VNNI it is 1.27 to 1.6 times as fast, with AVX2 9 times, plain 2 times. Few tokens, in 10^9 products/s of
 * one core with AVX2, Q4_K and Q8_0: GEMV 25 and 22 (four tokens); GEMM 30 and 31 (eight), 40 and 42 (sixteen), 52 and 57 (64). */
#define HEAD(level, pays, few) #level, apr_product_round_##level, apr_product_gemm_round_##level, apr_product_gemm_##level, pays, few
#define ROUNDED(level, id, type, its_order) \
    [APR_##id] = {.order = APR_ORDER_##its_order, .rounded = apr_product_##type##_##level, .widen = apr_product_unpack_##type##_##level},
#define OF_FLOATS(level, id, type) [APR_##id] = {.plain = apr_product_##type##_##level},

#define ROUNDED_PLAIN(id, type, order)  ROUNDED(plain, id, type, order)
#define FLOATS_PLAIN(id, type)          OF_FLOATS(plain, id, type)
#define ROUNDED_AVX2(id, type, order)   ROUNDED(avx2, id, type, order)
#define FLOATS_AVX2(id, type)           OF_FLOATS(avx2, id, type)
#define ROUNDED_AVX512(id, type, order) ROUNDED(avx512, id, type, order)
#define FLOATS_AVX512(id, type)         OF_FLOATS(avx512, id, type)
#define ROUNDED_VNNI(id, type, order)   ROUNDED(vnni, id, type, order)
#define FLOATS_VNNI(id, type)           OF_FLOATS(vnni, id, type)

/* Numbers of more than a byte are read in the machine's byte order. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LITTLE_ENDIAN_LIST(R, P) APR_PRODUCT_LIST(R, P)
#else
#define LITTLE_ENDIAN_LIST(R, P) [APR_F32] = {.plain = NULL},
#endif

static const apr_products_table tables[APR_PRODUCTS_LEVELS] = {
    [APR_PRODUCTS_PLAIN] = {HEAD(plain, true, 6), {LITTLE_ENDIAN_LIST(ROUNDED_PLAIN, FLOATS_PLAIN)}},
#ifdef __x86_64__
    [APR_PRODUCTS_AVX2] = {HEAD(avx2, true, 6), {APR_PRODUCT_LIST(ROUNDED_AVX2, FLOATS_AVX2)}},
    [APR_PRODUCTS_AVX512] = {HEAD(avx512, false, 16), {APR_PRODUCT_LIST(ROUNDED_AVX512, FLOATS_AVX512)}},
    [APR_PRODUCTS_VNNI] = {HEAD(vnni, true, 16), {APR_PRODUCT_LIST(ROUNDED_VNNI, FLOATS_VNNI)}},
#endif
};

static apr_products_level best;

/* CPUs with AVX2, FMA and BMI2 also have F16C, LZCNT and MOVBE, which not all compilers can test for (kernels/host/codecs/levels.c). */
__attribute__((constructor)) static void choose_level(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi") ||
        !__builtin_cpu_supports("bmi2"))
        return;
    best = APR_PRODUCTS_AVX2;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512cd") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return;
    best = __builtin_cpu_supports("avx512vnni") ? APR_PRODUCTS_VNNI : APR_PRODUCTS_AVX512;
#endif
}

const apr_products_table *apr_products_level_table(apr_products_level level)
{
    return (unsigned)level <= (unsigned)best ? &tables[level] : NULL;
}

const apr_products_table *apr_products(void) { return &tables[best]; }
