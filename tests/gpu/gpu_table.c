/* The library's tables of functions: each entry is there. A field that no initialiser names would be NULL. */
#include "kernels/cuda_loader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const apr_cuda_api *cuda;

/* All of [first, end) are pointers. */
static void all_are_there(const char *table, const void *first, const void *end)
{
    const uint8_t *const at = first;
    const size_t n = (size_t)((const uint8_t *)end - at) / sizeof(void *);

    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        void *p;
        memcpy(&p, at + i * sizeof p, sizeof p);
        if (p == NULL) fail_msg("pointer %zu of %zu in %s is NULL", i + 1, n, table);
    }
}

static void no_function_is_missing(void **state)
{
    (void)state;
    all_are_there("the table", &cuda->architectures, cuda + 1);
    all_are_there("the codecs' table", cuda->codecs, cuda->codecs + 1);
    all_are_there("the table of error feedback", cuda->feedback, cuda->feedback + 1);
    all_are_there("the table of training", cuda->grad, cuda->grad + 1);
    all_are_there("the list of operations", cuda->backend->ops, cuda->backend->ops + APR_OP_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_function_is_missing)};
    apr_error err = {0};

    if (apr_cuda_load(&cuda, &err) != APR_OK) {
        printf("skipped: no device (%s)\n", err.text);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
