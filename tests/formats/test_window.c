/* test_window.c - which layers slide. */
#include "formats/shape/hparams.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void expect(apr_window_layers window, const char *slides)
{
    for (int64_t i = 0; slides[i] != '\0'; i++) assert_int_equal(apr_layer_slides(window, i), slides[i] == 's');
}

static void all_slide_unless_something_else_is_said(void **state)
{
    (void)state;
    expect((apr_window_layers){0}, "ssssss");
}

static void each_nth_layer_attends_to_everything(void **state)
{
    (void)state;
    expect((apr_window_layers){.full_every = 2}, "sfsfsf");       /* gpt-oss, gemma 2 */
    expect((apr_window_layers){.full_every = 6}, "sssssfsssssf"); /* gemma 3 */
    expect((apr_window_layers){.full_every = 1}, "ffff");
}

static void first_layers_attend_to_everything(void **state)
{
    (void)state;
    expect((apr_window_layers){.n_full_first = 3}, "fffsss"); /* qwen2's max_window_layers */
    expect((apr_window_layers){.n_full_first = 9}, "ffff");
    expect((apr_window_layers){.n_full_first = 1, .full_every = 3}, "fssfssf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_slide_unless_something_else_is_said),
        cmocka_unit_test(each_nth_layer_attends_to_everything),
        cmocka_unit_test(first_layers_attend_to_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
