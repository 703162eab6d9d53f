/* make_blocks.c - prints what this build's codecs make of the same numbers: for each level of CPU and each type a hash of the encoded
 * blocks, of those by importance, and of the values decoded from them. tests/hostile_flags.sh compares builds by it.
 *
 * The numbers are heavy-tailed rows, made by whole-number arithmetic and divisions by powers of two, which no compiler flag changes. */
#include "formats/base/random.h"
#include "kernels/host/codecs/levels.h"

#include <stdio.h>
#include <string.h>

enum { N_VALUES = 64 * 256, MOST_BYTES = 8 * N_VALUES };

static uint64_t hash_of(const void *data, size_t n_bytes) /* FNV-1a */
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n_bytes; i++) h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return h;
}

static void fill(float *x, float *importance)
{
    uint64_t seed = 1;
    for (int i = 0; i < N_VALUES; i++) {
        const uint64_t state = apr_random(&seed);
        const int32_t number = (int32_t)(state >> 32) >> (state >> 16 & 7); /* each eighth is as large as a power of two allows */
        x[i] = (float)(number >> 8) / 8388608.0f;
        importance[i] = (float)(state >> 40 & 0xffff) / 65536.0f;
    }
}

static void print_type(const char *level, apr_dtype dtype, const apr_codec *codec, const float *x, const float *importance)
{
    static uint8_t blocks[MOST_BYTES];
    static float values[N_VALUES];

    if (codec->encode == NULL) return;
    memset(blocks, 0, sizeof blocks);
    codec->encode(x, blocks, N_VALUES);
    printf("%s %s %016llx", level, apr_dtypes[dtype].name, (unsigned long long)hash_of(blocks, sizeof blocks));
    if (codec->decode != NULL) {
        codec->decode(blocks, values, N_VALUES);
        printf(" %016llx", (unsigned long long)hash_of(values, sizeof values));
    }
    if (codec->encode_by != NULL) {
        codec->encode_by(x, importance, blocks, N_VALUES);
        printf(" %016llx", (unsigned long long)hash_of(blocks, sizeof blocks));
    }
    putchar('\n');
}

int main(void)
{
    static float x[N_VALUES], importance[N_VALUES];

    fill(x, importance);
    for (int t = 0; t < APR_DTYPE_COUNT; t++) print_type("ref", (apr_dtype)t, &apr_ref_codecs[t], x, importance);
    for (int l = 0; l < APR_CPU_LEVELS; l++) {
        const apr_host_codecs_table *const table = apr_cpu_level_table((apr_cpu_level)l);
        for (int t = 0; table != NULL && t < APR_DTYPE_COUNT; t++) print_type(table->name, (apr_dtype)t, &table->codecs[t], x, importance);
    }
    return 0;
}
