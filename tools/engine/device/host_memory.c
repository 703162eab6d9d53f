/* host_memory.c - measures the read rate by summing a large array on all threads. */
#include "tools/engine/device/host_memory.h"

#include "formats/base/clock.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <omp.h>

enum { WORDS = 1 << 25, CHUNK = 1 << 15, ROUNDS = 6, N_SUMS = 16 }; /* 256 MiB, in chunks of 256 KiB */

static uint64_t sum_of_chunk(const uint64_t *words)
{
    uint64_t sums[N_SUMS] = {0}, sum = 0;
    for (int i = 0; i < CHUNK; i += N_SUMS)
        for (int j = 0; j < N_SUMS; j++) sums[j] += words[i + j];
    for (int j = 0; j < N_SUMS; j++) sum += sums[j];
    return sum;
}

static uint64_t read_all(const uint64_t *words, int n_threads)
{
    uint64_t sum = 0;
#pragma omp parallel for schedule(static) num_threads(n_threads) reduction(+ : sum)
    for (int i = 0; i < WORDS / CHUNK; i++) sum += sum_of_chunk(words + (size_t)i * CHUNK);
    return sum;
}

double apr_host_read_rate(int n_threads)
{
    const int n = n_threads > 0 ? n_threads : omp_get_max_threads();
    uint64_t *const words = malloc(WORDS * sizeof *words), sum = 0;
    double best = 0.0;

    if (words == NULL) return 0.0;
    memset(words, 1, WORDS * sizeof *words);
    for (int round = 0; round < ROUNDS; round++) {
        const double begin = apr_seconds_now();
        sum += read_all(words, n);
        const double seconds = apr_seconds_now() - begin, rate = seconds > 0.0 ? WORDS * sizeof *words / seconds : 0.0;
        if (rate > best) best = rate;
    }
    free(words);
    return sum != 1 ? best : 0.0; /* uses the sum, so that the compiler cannot drop the loop */
}

uint64_t apr_host_cache_bytes(void)
{
    static const int levels[] = {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const long n_bytes = sysconf(levels[i]);
        if (n_bytes > 0) return (uint64_t)n_bytes;
    }
    return 0;
}
