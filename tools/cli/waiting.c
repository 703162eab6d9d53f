/* waiting.c - how OpenMP's threads wait for one another: a few microseconds awake, then asleep.
 *
 * Left alone, libgomp spins for 300,000 rounds (15 ms here) and LLVM's libomp for 200 ms. Where other work has the cores, the thread
 * that is waited for does not run while another spins in its place: a model of two million weights took fifteen minutes for what takes
 * seconds. Not to spin at all costs a quiet machine a call of the system at the beginning and the end of each region. The regions of a
 * token follow each other within a few microseconds, so that long is what pays.
 *
 * Both libraries are told by the environment alone. libgomp reads it in a constructor; as a shared library it does so before anything
 * of ours can run (functions in .preinit_array come earlier, but before there is an `environ` to add to). Therefore the Makefile links
 * libgomp.a, and constructors of one program run in the order of their priorities. libomp reads it when the first region begins. Where
 * there is no libgomp.a, threads spin as their library likes. What the user says of waiting stays. */
#include <stdlib.h>

static void wait_briefly(void) __attribute__((constructor(101)));
static void wait_briefly(void)
{
    static const char *const said[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"};

    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (getenv(said[i]) != NULL) return;
    setenv("GOMP_SPINCOUNT", "500", 1); /* pauses of the processor: 3 ns each on old ones, 20 to 45 on newer ones */
    setenv("KMP_BLOCKTIME", "0", 1);    /* milliseconds: it knows no smaller number */
}
