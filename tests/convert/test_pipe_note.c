/* test_pipe_note.c - the results of a tensor come back from their note bit for bit, and other lines change nothing. */
#include "convert/pipe_internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const apr_pipe_item items[] = {
    {.metrics = {.max_at = -1}},
    {.on_device = true,
     .out_of_range = {3, 1, -3.4028235e38f},
     .n_different = INT64_MAX,
     .n_rounded = 1,
     .n_off = 3,
     .worst_difference = 0x1.fffffffffffffp-1022,
     .metrics = {1 << 20, 2, 1e300, 0x1p-1074, INFINITY, -0.1, 1e-45f, 77}},
};

static void a_note_comes_back_bit_for_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        char note[APR_NOTE_BYTES];
        apr_pipe_item again = {.to = APR_Q8_0, .state = APR_TENSOR_DONE_BEFORE};
        apr_pipe_write_note(&items[i], note);
        assert_null(strpbrk(note, "#\n"));
        apr_pipe_read_note(&again, note);
        assert_int_equal(again.on_device, items[i].on_device);
        assert_memory_equal(&again.out_of_range, &items[i].out_of_range, offsetof(apr_out_of_range, worst) + sizeof(float));
        assert_memory_equal(&again.metrics, &items[i].metrics, sizeof again.metrics);
        assert_true(again.n_different == items[i].n_different && again.n_rounded == items[i].n_rounded && again.n_off == items[i].n_off);
        assert_true(again.worst_difference == items[i].worst_difference);
        assert_true(again.to == APR_Q8_0 && again.state == APR_TENSOR_DONE_BEFORE);
    }
}

static void other_lines_change_nothing(void **state)
{
    static const char *const others[] = {"", "1", "words", "1 2 3 0x1p+0 5 6 0x1p+0 8 9 0x1p+0 0x1p+0 0x1p+0 0x1p+0 0x1p+0"};
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        apr_pipe_item item = items[1];
        apr_pipe_read_note(&item, others[i]);
        assert_memory_equal(&item, &items[1], sizeof item);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_note_comes_back_bit_for_bit),
        cmocka_unit_test(other_lines_change_nothing),
    };
    return cmocka_run_group_tests_name("pipe_remark", tests, NULL, NULL);
}
