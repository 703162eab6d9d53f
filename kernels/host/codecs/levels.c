/* levels.c - the tables of codecs for each CPU level, and the choice of the level. */
#include "kernels/host/codecs/levels.h"

#include "kernels/host/codecs/simd_codecs.h"

static apr_host_codecs_table tables[APR_CPU_LEVELS];
static const apr_host_codecs_table *in_use;

static apr_host_codecs_table *start_table(apr_cpu_level level, const char *name)
{
    apr_host_codecs_table *const t = &tables[level];
    t->name = name;
    memcpy(t->codecs, apr_ref_codecs, sizeof t->codecs);
    in_use = t;
    return t;
}

static void fill_plain(void)
{
    apr_host_codecs_table *const t = start_table(APR_CPU_PLAIN, "plain");
#define ENCODER(id, name) t->codecs[APR_##id].encode = apr_encode_##name##_plain;
#define DECODER(id, name) t->codecs[APR_##id].decode = apr_decode_##name##_plain;
#define NOTHING(id, name)
    APR_SIMD_LIST(ENCODER, DECODER, NOTHING, NOTHING)
#undef NOTHING
#undef DECODER
#undef ENCODER
#define ENCODER_BY(id, name) t->codecs[APR_##id].encode_by = apr_encode_##name##_by_plain;
    APR_SIMD_BY_LIST(ENCODER_BY)
#undef ENCODER_BY
    t->encode_fp8_row = apr_encode_fp8_row_plain;
    t->all_within = apr_all_within_plain;
}

#ifdef __x86_64__

static void fill_avx2(void)
{
    apr_host_codecs_table *const t = start_table(APR_CPU_AVX2, "avx2");
#define ENCODER(id, name) t->codecs[APR_##id].encode = apr_encode_##name##_avx2;
#define DECODER(id, name) t->codecs[APR_##id].decode = apr_decode_##name##_avx2;
    APR_SIMD_LIST(ENCODER, DECODER, ENCODER, DECODER)
#undef DECODER
#undef ENCODER
#define ENCODER_BY(id, name) t->codecs[APR_##id].encode_by = apr_encode_##name##_by_avx2;
    APR_SIMD_BY_LIST(ENCODER_BY)
#undef ENCODER_BY
    t->encode_fp8_row = apr_encode_fp8_row_avx2;
    t->all_within = apr_all_within_avx2;
}

static void fill_avx512(void)
{
    apr_host_codecs_table *const t = start_table(APR_CPU_AVX512, "avx512");
#define ENCODER(id, name) t->codecs[APR_##id].encode = apr_encode_##name##_avx512;
#define DECODER(id, name) t->codecs[APR_##id].decode = apr_decode_##name##_avx512;
    APR_SIMD_LIST(ENCODER, DECODER, ENCODER, DECODER)
#undef DECODER
#undef ENCODER
#define ENCODER_BY(id, name) t->codecs[APR_##id].encode_by = apr_encode_##name##_by_avx512;
    APR_SIMD_BY_LIST(ENCODER_BY)
#undef ENCODER_BY
    t->encode_fp8_row = apr_encode_fp8_row_avx512;
    t->all_within = apr_all_within_avx512;
}

/* The compiler may use all of x86-64-v3 and -v4 in these files. CPUs with AVX2, FMA and BMI2 also have F16C, LZCNT and MOVBE, which not
 * all compilers can test for. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#endif

/* Fills the tables from the plain level to the best; the last one filled is used. */
__attribute__((constructor)) static void fill_tables(void)
{
    fill_plain();
#ifdef __x86_64__
    __builtin_cpu_init();
    if (has_avx2()) fill_avx2();
    if (has_avx512()) fill_avx512();
#endif
}

const apr_host_codecs_table *apr_cpu_level_table(apr_cpu_level level)
{
    return (unsigned)level < APR_CPU_LEVELS && tables[level].name != NULL ? &tables[level] : NULL;
}

const apr_host_codecs_table *apr_host_table(void) { return in_use; }

apr_status apr_use_cpu_level(apr_cpu_level level, apr_error *err)
{
    static const char *const names[APR_CPU_LEVELS] = {"plain", "avx2", "avx512"};
    const apr_host_codecs_table *const table = apr_cpu_level_table(level);

    if (table == NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, "this CPU has no %s instructions; its best level is %s", names[level], in_use->name);
    in_use = table;
    return APR_OK;
}
