/* levels.c - the tables of codecs for each CPU level, and the choice of the level. */
#include "kernels/host/codecs/levels.h"

#include "kernels/host/codecs/simd_codecs.h"

static const char *const level_names[APR_CPU_LEVELS] = {"plain", "avx2", "avx512"};
static apr_host_codecs_table tables[APR_CPU_LEVELS];
static const apr_host_codecs_table *in_use;

/* The tables of the files compiled for one level. */
#define PARTS(level)                                                                                                              \
    {                                                                                                                             \
        &apr_simd_floats_##level, &apr_simd_simple_##level, &apr_simd_k_##level, &apr_simd_q2_k_##level, &apr_simd_steps_##level, \
            &apr_simd_lookup_##level, &apr_simd_iq_##level                                                                        \
    }
enum { N_PARTS = 7 };
static const apr_host_codecs_table *const parts[APR_CPU_LEVELS][N_PARTS] = {
    [APR_CPU_PLAIN] = PARTS(plain),
#ifdef __x86_64__
    [APR_CPU_AVX2] = PARTS(avx2),
    [APR_CPU_AVX512] = PARTS(avx512),
#endif
};

static void add_part(apr_host_codecs_table *t, const apr_host_codecs_table *part)
{
    for (int i = 0; i < APR_DTYPE_COUNT; i++) {
        const apr_codec *const codec = &part->codecs[i];
        if (codec->decode != NULL) t->codecs[i].decode = codec->decode;
        if (codec->encode != NULL) t->codecs[i].encode = codec->encode;
        if (codec->encode_by != NULL) t->codecs[i].encode_by = codec->encode_by;
    }
    if (part->encode_fp8_row != NULL) t->encode_fp8_row = part->encode_fp8_row;
    if (part->all_within != NULL) t->all_within = part->all_within;
}

static void fill_table(apr_cpu_level level)
{
    apr_host_codecs_table *const t = &tables[level];
    t->name = level_names[level];
    memcpy(t->codecs, apr_ref_codecs, sizeof t->codecs);
    for (int i = 0; i < N_PARTS; i++) add_part(t, parts[level][i]);
    in_use = t;
}

#ifdef __x86_64__

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
    fill_table(APR_CPU_PLAIN);
#ifdef __x86_64__
    __builtin_cpu_init();
    if (has_avx2()) fill_table(APR_CPU_AVX2);
    if (has_avx512()) fill_table(APR_CPU_AVX512);
#endif
}

const apr_host_codecs_table *apr_cpu_level_table(apr_cpu_level level)
{
    return (unsigned)level < APR_CPU_LEVELS && tables[level].name != NULL ? &tables[level] : NULL;
}

const apr_host_codecs_table *apr_host_table(void) { return in_use; }

apr_cpu_level apr_host_level(void) { return (apr_cpu_level)(in_use - tables); }

const apr_codec *apr_host_codecs(void) { return in_use->codecs; }

void apr_encode_fp8_row(const float *src, uint8_t *dst, float *scale, int64_t n_elems) { in_use->encode_fp8_row(src, dst, scale, n_elems); }

apr_status apr_use_cpu_level(apr_cpu_level level, apr_error *err)
{
    const apr_host_codecs_table *const table = apr_cpu_level_table(level);

    if (table == NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, "this CPU has no %s instructions; its best level is %s", level_names[level], in_use->name);
    in_use = table;
    return APR_OK;
}
