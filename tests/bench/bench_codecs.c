/* bench_codecs.c - how fast one core encodes and decodes each type at each level of CPU, in millions of values a second.
 *
 * usage: bench_codecs [TYPE...]. Gaussian values that stay in the cache; the best of nine runs, as others only take time away. */
#include "kernels/host/codecs/levels.h"

#include "formats/base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

enum { N_VALUES = 64 * 1024, RUNS = 9, LEAST_VALUES = 512 * 1024 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* what others take of this core is not counted */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fill(float *x)
{
    uint64_t state = 1;
    for (int i = 0; i < N_VALUES; i++) {
        float sum = -6.0f;
        for (int k = 0; k < 12; k++) sum += (float)(apr_random(&state) >> 40) * 0x1p-24f;
        x[i] = 0.02f * sum;
    }
}

/* Millions of values a second; 0 where there is no such codec. */
static double rate(const apr_codec *codec, bool encodes, float *x, void *bytes)
{
    double best = 0.0;
    int64_t repeat = 1;

    if (encodes ? codec->encode == NULL : codec->decode == NULL) return 0.0;
    for (int run = -1; run < RUNS; run++) {
        const double start = now_s();
        for (int64_t i = 0; i < repeat; i++) {
            if (encodes) codec->encode(x, bytes, N_VALUES);
            else codec->decode(bytes, x, N_VALUES);
        }
        const double m_values_s = 1e-6 * (double)(repeat * N_VALUES) / (now_s() - start);
        if (run < 0) repeat = m_values_s > 100.0 ? LEAST_VALUES / N_VALUES : 1;
        else best = m_values_s > best ? m_values_s : best;
    }
    return best;
}

static void bench(apr_dtype dtype, float *x, float *again, void *bytes)
{
    printf("  %-8s", apr_dtypes[dtype].name);
    for (int encodes = 1; encodes >= 0; encodes--) {
        for (int level = -1; level < APR_CPU_LEVELS; level++) {
            const apr_host_codecs_table *const table = level < 0 ? NULL : apr_cpu_level_table((apr_cpu_level)level);
            const apr_codec *const codec = level < 0 ? &apr_ref_codecs[dtype] : table != NULL ? &table->codecs[dtype] : NULL;
            const double r = codec != NULL ? rate(codec, encodes, encodes ? x : again, bytes) : 0.0;
            if (r > 0.0) printf(" %9.1f", r);
            else printf(" %9s", "-");
        }
        printf("%s", encodes ? "  |" : "\n");
    }
}

int main(int argc, char **argv)
{
    float *const x = malloc(N_VALUES * sizeof *x), *const again = malloc(N_VALUES * sizeof *again);
    void *const bytes = malloc(N_VALUES * sizeof(double));

    if (x == NULL || again == NULL || bytes == NULL) return APR_E_MEMORY;
    fill(x);
    printf("  M values/s, one core: encoding with reference, plain, avx2, avx512 | decoding with the same\n");
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        bool is_asked = argc < 2 && apr_can_encode((apr_dtype)d);
        for (int i = 1; i < argc; i++) is_asked = is_asked || strcasecmp(argv[i], apr_dtypes[d].name) == 0;
        if (is_asked) bench((apr_dtype)d, x, again, bytes);
    }
    free(bytes);
    free(again);
    free(x);
    return 0;
}
