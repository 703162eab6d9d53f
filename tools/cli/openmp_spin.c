/* openmp_spin.c - sets how long OpenMP's threads spin before they sleep: 40 us.
 *
 * By default libgomp spins for 300,000 rounds (15 ms here) and LLVM's libomp for 200 ms. On a busy machine a spinning thread keeps the
 * core from the thread that it waits for: a model of two million weights took fifteen minutes instead of seconds. Without spinning, an
 * idle machine pays a system call at the beginning and the end of each parallel region. The regions of a token follow each other within
 * about 20 us, so spinning twice as long is a good compromise. A token of 0.4 GB of Q4_K_M on two cores takes 35 ms with 12 us, 31 ms
 * with 40 or 100 us, and 30 ms with 190 us. With 190 us a busy machine takes twice as long as with 40 us.
 *
 * Both libraries take this setting only from the environment. libgomp reads it in a constructor. As a shared library it does so before
 * any code of the program can run (functions in .preinit_array run earlier, but `environ` does not exist yet). Therefore the Makefile
 * links libgomp.a, because constructors of one program run in the order of their priorities. libomp reads the environment when the first
 * region begins. Without a libgomp.a the library's default applies. Settings of the user are not changed. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SPIN_NS = 40000, PAUSES = 100, TRIES = 3, MIN_SPINS = 500, MAX_SPINS = 20000 };

static inline void pause_once(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

/* The number of pause instructions in SPIN_NS, the unit of libgomp's spin count. One takes 3 to 45 ns, depending on the CPU. */
static int measure_spins(void)
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
    const double spins = SPIN_NS / (least_ns > 1.0 ? least_ns : 1.0);
    return spins < MIN_SPINS ? MIN_SPINS : spins > MAX_SPINS ? MAX_SPINS : (int)spins;
}

static void set_spin_time(void) __attribute__((constructor(101)));
static void set_spin_time(void)
{
    static const char *const user_settings[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"};
    char spins[16];

    for (size_t i = 0; i < sizeof user_settings / sizeof *user_settings; i++)
        if (getenv(user_settings[i]) != NULL) return;
    snprintf(spins, sizeof spins, "%d", measure_spins());
    setenv("GOMP_SPINCOUNT", spins, 1);
    setenv("KMP_BLOCKTIME", "0", 1); /* in milliseconds; 40 us cannot be set */
}
