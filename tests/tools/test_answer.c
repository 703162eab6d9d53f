/* test_answer.c - tools/report/answer.h: the exit code that a document states is the one that the process ends with. */
#include "tools/report/answer.h"

#include "tests/support/failing_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* What an answer of one member prints when its nth allocation fails, and the exit code; 0: none fails. */
static int answer(int64_t nth, apr_status status, char *text, size_t n_bytes)
{
    FILE *const file = tmpfile();
    const apr_error err = {.status = status};
    apr_answer it;

    assert_non_null(file);
    fflush(stdout);
    const int before = dup(STDOUT_FILENO);
    assert_true(before >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    failing_host_allocation(nth);
    apr_answer_start(&it, true);
    apr_json_int(&it.body, "tensors", 5);
    const int code = apr_answer_end(&it, "tool", status, &err);
    const int64_t n_left = failing_host_blocks();
    failing_host_allocation(0);
    dup2(before, STDOUT_FILENO);
    close(before);
    rewind(file);
    text[fread(text, 1, n_bytes - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(n_left, 0);
    return code;
}

static void document_and_process_agree(void **state)
{
    static const apr_status statuses[] = {APR_OK, APR_E_NO, APR_E_DAMAGED};
    (void)state;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        char text[512], member[32];
        int64_t n_short = 0;
        for (int64_t nth = 0; nth < 8; nth++) {
            const int code = answer(nth, statuses[i], text, sizeof text);
            snprintf(member, sizeof member, "\"exit\":%d", code);
            if (strstr(text, member) == NULL) fail_msg("allocation %d: exit %d, %s", (int)nth, code, text);
            assert_true(code == (int)statuses[i] || code == APR_E_MEMORY);
            assert_true((strstr(text, "\"tensors\":5") != NULL) == (code == (int)statuses[i]));
            n_short += code == APR_E_MEMORY;
        }
        assert_true(n_short > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(document_and_process_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
