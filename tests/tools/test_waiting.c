/* tools/cli/openmp_spin.c: threads do not spin long while they wait for one another, unless the user says so. Asked of OpenMP itself, by
 * what it says of its settings, in processes of this very program. */
#include <errno.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* What a process with `variable`=`value` (NULL: none) says on its error output. */
static void ask(const char *variable, const char *value, char *text, size_t n)
{
    static const char *const all[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"};
    int ends[2], status;
    size_t have = 0;

    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) unsetenv(all[i]); /* also what this process set for itself */
        if (variable != NULL) setenv(variable, value, 1);
        dup2(ends[1], 2);
        setenv("UNIT_WAITING_SAYS", "1", 1);
        execl("/proc/self/exe", "unit", "waiting", (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0);
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + have, n - 1 - have)) != 0;) {
        if (got < 0 && errno == EINTR) continue;
        assert_true(got > 0);
        have += (size_t)got;
    }
    text[have] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* The number in NAME = 'number' (libgomp), NAME='number' (libomp); -1: not there. */
static double setting(const char *text, const char *name)
{
    const char *const at = strstr(text, name);
    const char *const quote = at != NULL ? strchr(at, '\'') : NULL;
    return quote != NULL ? strtod(quote + 1, NULL) : -1.0;
}

/* A library that is loaded has read its settings before this program could make any. */
static int openmp_can_be_configured(void)
{
    FILE *const maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int shared = 0;

    if (maps == NULL) return 0;
    while (fgets(line, sizeof line, maps) != NULL) shared |= strstr(line, "libgomp.so") != NULL;
    fclose(maps);
    return !shared;
}

/* Of the processor, as libgomp does between two looks: the least of many tries. */
static double pause_ns(void)
{
    enum { TRIES = 50, PAUSES = 200 };
    double least = 1e9;
    for (int i = 0; i < TRIES; i++) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int p = 0; p < PAUSES; p++) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#else
            __asm__ volatile("" ::: "memory");
#endif
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        const double ns = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / PAUSES;
        least = ns < least ? ns : least;
    }
    return least;
}

static void threads_do_not_spin_long(void **state)
{
    char text[16384];
    (void)state;
    if (!openmp_can_be_configured()) {
        print_message("libgomp is a shared library here: its threads spin as it likes\n");
        return;
    }
    ask(NULL, NULL, text, sizeof text);
    const double rounds = setting(text, "GOMP_SPINCOUNT"), milliseconds = setting(text, "KMP_BLOCKTIME");
    assert_true(rounds >= 0.0 || milliseconds >= 0.0); /* it was one of the two */
    assert_true(rounds * pause_ns() <= 1e5);           /* a tenth of a millisecond */
    assert_true(milliseconds <= 1.0);
}

static void the_users_openmp_settings_stay(void **state)
{
    char text[16384];
    (void)state;
    ask("GOMP_SPINCOUNT", "12345", text, sizeof text);
    const double rounds = setting(text, "GOMP_SPINCOUNT");
    assert_true(rounds == 12345.0 || rounds == -1.0);
    ask("KMP_BLOCKTIME", "77", text, sizeof text);
    const double milliseconds = setting(text, "KMP_BLOCKTIME");
    assert_true(milliseconds == 77.0 || milliseconds == -1.0);
    ask("OMP_WAIT_POLICY", "ACTIVE", text, sizeof text);
    assert_true(setting(text, "GOMP_SPINCOUNT") > 1e9 || setting(text, "KMP_BLOCKTIME") > 1e6);
}

static void the_number_of_threads_is_the_users(void **state)
{
    char text[16384];
    (void)state;
    ask("OMP_NUM_THREADS", "3", text, sizeof text);
    assert_true(setting(text, "OMP_NUM_THREADS") == 3.0);
}

int main(void)
{
    if (getenv("UNIT_WAITING_SAYS") != NULL) { /* a child of ask */
        omp_display_env(1);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_not_spin_long),
        cmocka_unit_test(the_users_openmp_settings_stay),
        cmocka_unit_test(the_number_of_threads_is_the_users),
    };
    return cmocka_run_group_tests_name("waiting", tests, NULL, NULL);
}
