/* tests/support/fake_device.h: what other tests rely on. Only the device itself can touch its memory, so that host code which follows a
 * device's pointer, and an operation that is given another device's, end in a signal or in a sanitizer's report. */
#define _XOPEN_SOURCE 700
#include "tests/support/fake_device.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 8 };

/* Of two devices, each with one block. */
static apr_cuda_device *devices[2];
static float *blocks[2];

static int open_both(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (fake_device()->open(&devices[i], i, &(apr_cuda_options){0}, NULL) != APR_OK) return -1;
        if (fake_device()->alloc(devices[i], N * sizeof(float), "a block", (void **)&blocks[i], NULL) != APR_OK) return -1;
    }
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) fake_device()->close(devices[i]);
    return 0;
}

/* out = a + b on device 0; a is of another device where `wrong`. */
static void add(bool wrong)
{
    const apr_op_args args = {.add = {.n_tokens = 1, .width = N, .a = blocks[wrong], .b = blocks[0], .out = blocks[0], .n_threads = 1}};
    if (fake_device()->run(devices[0], APR_OP_ADD, &args, NULL) != APR_OK) _exit(0);
}

static void add_wrong(void) { add(true); }
static void read_it(void)
{
    const volatile float *const at = blocks[0];
    (void)*at;
}
static void write_it(void)
{
    volatile float *const at = blocks[1];
    *at = 1.0f;
}

static bool ends_badly(void (*what)(void))
{
    int code;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int nowhere = open("/dev/null", O_WRONLY); /* a sanitizer's report */
        dup2(nowhere, STDERR_FILENO);
        signal(SIGSEGV, SIG_DFL); /* cmocka would go on with the next test */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        what();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    return !WIFEXITED(code) || WEXITSTATUS(code) != 0;
}

static void only_the_device_touches_its_memory(void **state)
{
    (void)state;
    assert_true(ends_badly(read_it));
    assert_true(ends_badly(write_it));
    assert_true(ends_badly(add_wrong));
}

static void what_is_copied_there_is_what_it_works_with(void **state)
{
    const apr_cuda_api *const api = fake_device();
    float x[N];
    (void)state;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    assert_int_equal(api->upload(devices[0], blocks[0], x, sizeof x, NULL), APR_OK);
    add(false);
    assert_int_equal(api->transfer(devices[0], blocks[0], devices[1], blocks[1], sizeof x, NULL), APR_OK);
    assert_int_equal(api->clear(devices[0], blocks[0], sizeof x, NULL), APR_OK);
    memset(x, 0, sizeof x);
    assert_int_equal(api->download(devices[1], x, blocks[1], sizeof x, NULL), APR_OK);
    for (int i = 0; i < N; i++) assert_true(x[i] == 2.0f * (float)i);
    assert_int_equal(api->download(devices[0], x, blocks[0], sizeof x, NULL), APR_OK);
    for (int i = 0; i < N; i++) assert_true(x[i] == 0.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_the_device_touches_its_memory, open_both, close_both),
        cmocka_unit_test_setup_teardown(what_is_copied_there_is_what_it_works_with, open_both, close_both),
    };
    return cmocka_run_group_tests_name("fake_device", tests, NULL, NULL);
}
