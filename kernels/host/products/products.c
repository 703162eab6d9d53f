/* products.c - the tables of products for each CPU level, and the choice of the level. */
#include "kernels/host/products/products.h"

#include <stddef.h>

static const apr_products_table *const tables[APR_PRODUCTS_LEVELS] = {
    [APR_PRODUCTS_PLAIN] = &apr_products_plain,
#ifdef __x86_64__
    [APR_PRODUCTS_AVX2] = &apr_products_avx2,
    [APR_PRODUCTS_AVX512] = &apr_products_avx512,
    [APR_PRODUCTS_VNNI] = &apr_products_vnni,
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
    return (unsigned)level <= (unsigned)best ? tables[level] : NULL;
}

const apr_products_table *apr_products(void) { return tables[best]; }
