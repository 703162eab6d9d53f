/* waiting.c - how OpenMP's threads wait for one another: a few microseconds awake, then asleep.
 *
 * Left alone, libgomp spins for 300,000 rounds (15 ms here) and LLVM's libomp for 200 ms. Where other work has the cores, the thread
 * that is waited for does not run while another spins in its place: a model of two million weights took fifteen minutes for what takes
 * seconds. Not to spin at all costs a quiet machine a call of the system at the beginning and the end of each region. The regions of a
 * token follow each other within some twenty microseconds, so that twice as long is what pays: a token of 0.4 GB of Q4_K_M on two cores
 * takes 35 ms at 12 us, 31 at 40 and at 100, and 30 at 190 us, where a busy machine takes twice as long as at 40.
 *
 * Both libraries are told by the environment alone. libgomp reads it in a constructor; as a shared library it does so before anything
 * of ours can run (functions in .preinit_array come earlier, but before there is an `environ` to add to). Therefore the Makefile links
 * libgomp.a, and constructors of one program run in the order of their priorities. libomp reads it when the first region begins. Where
 * there is no libgomp.a, threads spin as their library likes. What the user says of waiting stays. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { AWAKE_NS = 40000, PAUSES = 100, TRIES = 3, LEAST_SPINS = 500, MOST_SPINS = 20000 };

static inline void pause_once(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

/* libgomp counts pauses of the processor, which take 3 to 45 ns: how many are AWAKE_NS. */
static int spins_awake(void)
{
    double least_ns = 1e9;
    for (int i = 0; i < TRIES; i++) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int p = 0; p < PAUSES; p++) pause_once();
        clock_gettime(CLOCK_MONOTONIC, &to);
        const double ns = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / PAUSES;
        if (ns < least_ns) least_ns = ns;
    }
    const double spins = AWAKE_NS / (least_ns > 1.0 ? least_ns : 1.0);
    return spins < LEAST_SPINS ? LEAST_SPINS : spins > MOST_SPINS ? MOST_SPINS : (int)spins;
}

static void wait_briefly(void) __attribute__((constructor(101)));
static void wait_briefly(void)
{
    static const char *const said[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"};
    char spins[16];

    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (getenv(said[i]) != NULL) return;
    snprintf(spins, sizeof spins, "%d", spins_awake());
    setenv("GOMP_SPINCOUNT", spins, 1);
    setenv("KMP_BLOCKTIME", "0", 1); /* milliseconds: it knows no smaller number */
}
