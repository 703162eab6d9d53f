/* test_terminal.c - tools/report/terminal.h, meter.h, and names cut for them: what a person sees on a terminal of so many columns. */
#include "tools/report/meter.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void progress_says_how_much_is_left(void **state)
{
    const uint64_t gib = (uint64_t)1 << 30;
    const struct {
        apr_meter_state state;
        const char *line;
    } cases[] = {
        {{.what = "w", .total = 4 * gib, .columns = 80, .is_ascii = true}, "w  ............  0 %  0.0 of 4.0 GiB"},
        {{.what = "w", .done = gib, .total = 4 * gib, .rate = 0.04 * 0x1p30, .columns = 80, .is_ascii = true},
         "w  ###.........  25 %  1.0 of 4.0 GiB  0.0 GiB/s  1:15"},
        {{.what = "w", .done = 3 * gib, .total = 4 * gib, .rate = 0x1p30, .columns = 80},
         "w  █████████░░░  75 %  3.0 of 4.0 GiB  1.0 GiB/s  0:01"},
        {{.what = "w", .done = 3 * gib, .total = 4 * gib, .rate = 0x1p30, .columns = 60}, "w  75 %  3.0 of 4.0 GiB  1.0 GiB/s  0:01"},
        {{.what = "w", .done = gib / 2, .total = gib - 1, .rate = 0x1p20, .columns = 60}, "w  50 %  512.0 of 1024.0 MiB  1.0 MiB/s  8:31"},
        {{.what = "w", .done = gib, .rate = 0x1p30, .columns = 80}, "w  1.0 GiB  1.0 GiB/s"},
        {{.what = "windows", .done = 12, .total = 65, .rate = 1.2, .counts = true, .columns = 60}, "windows  18 %  12 of 65  0:44"},
        {{.what = "windows", .total = 65, .counts = true, .columns = 60}, "windows  0 %  0 of 65"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char line[256];
        assert_string_equal(apr_meter_line(line, sizeof line, &cases[i].state), cases[i].line);
    }
}

/* Whatever the name and the width: the line ends before the last column. */
static void a_line_of_progress_fits_its_terminal(void **state)
{
    apr_meter_state s = {.what = "model.layers.61.mlp.experts.127.down_proj.weight",
                         .done = (uint64_t)99 << 30,
                         .total = (uint64_t)900 << 30,
                         .rate = 0x1.8p30};
    char line[256];
    (void)state;
    for (s.columns = 45; s.columns < 160; s.columns++) assert_true(apr_text_columns(apr_meter_line(line, sizeof line, &s)) < s.columns);
    assert_non_null(strstr(apr_meter_line(line, sizeof line, &s), "…61.mlp"));
    assert_non_null(strstr(line, "proj.weight"));
}

static void names_lose_their_middle(void **state)
{
    char text[64];
    (void)state;
    assert_string_equal(apr_middle_text(text, sizeof text, "model.layers.1.v_proj.weight", 28), "model.layers.1.v_proj.weight");
    assert_string_equal(apr_middle_text(text, sizeof text, "model.layers.1.v_proj.weight", 20), "…1.v_proj.weight");
    assert_string_equal(apr_middle_text(text, sizeof text, "model.layers.1.v_proj.weight", 14), "…1.v_…j.weight");
    assert_string_equal(apr_middle_text(text, sizeof text, "größe größe", 8), "grö…röße");
}

/* Every line of the text folded to so many columns. */
static void fold_to(int columns, const char *text, const char *want)
{
    apr_fold fold = {.columns = columns};
    char *got = NULL;
    size_t n = 0;
    FILE *const out = open_memstream(&got, &n);

    assert_non_null(out);
    apr_fold_write(&fold, text, strlen(text), out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(got, want);
    free(got);
}

static void long_lines_are_folded_between_words(void **state)
{
    (void)state;
    fold_to(20, "short\n", "short\n");
    fold_to(20, "exactly twenty chars\n", "exactly twenty chars\n");
    fold_to(20, "one word more than twenty\n", "one word more than\n  twenty\n");
    fold_to(20, "  note: it is indented by two\n", "  note: it is\n    indented by two\n");
    fold_to(20, "averyveryverylongsinglewordthatstays whole\n", "averyveryverylongsinglewordthatstays\n  whole\n");
    fold_to(20, "\033[1mbold letters take\033[0m no columns\n", "\033[1mbold letters take\033[0m no\n  columns\n");
    fold_to(20, "one two three four five six\none two three four five six\n",
            "one two three four\n  five six\none two three four\n  five six\n");
    fold_to(20, "\rprogress\033[K", "\rprogress\033[K");
}

/* Without a terminal: a line for each tenth, also of a stage that follows another one, with its own rate. */
static void a_stage_after_another_has_its_own_lines(void **state)
{
    (void)state;
    FILE *const was = stderr, *const file = tmpfile();
    char line[512];
    int n_first = 0, n_second = 0;

    assert_non_null(file);
    stderr = file;
    apr_meter_set_always(true);
    apr_meter meter;
    const apr_progress progress = apr_meter_start_counting(&meter, false);
    for (uint64_t i = 1; i <= 100; i++) apr_progress_report(&progress, i, 100, "first things");
    for (uint64_t i = 101; i <= 200; i++) apr_progress_report(&progress, i, 200, "second things");
    for (uint64_t i = 1; i <= 200; i++) apr_progress_report(&progress, i, 200, "second things");
    apr_meter_end(&meter);
    apr_meter_set_always(false);
    stderr = was;
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL) {
        n_first += strncmp(line, "first things", 12) == 0;
        n_second += strncmp(line, "second things", 13) == 0;
        assert_null(strstr(line, "e+")); /* no rate of work that went backwards */
    }
    fclose(file);
    assert_int_equal(n_first, 1 + 10);      /* as soon as there is something, then each tenth */
    assert_int_equal(n_second, 6 + 1 + 10); /* from the middle on, then from the start */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_after_another_has_its_own_lines), cmocka_unit_test(progress_says_how_much_is_left),
        cmocka_unit_test(a_line_of_progress_fits_its_terminal),    cmocka_unit_test(names_lose_their_middle),
        cmocka_unit_test(long_lines_are_folded_between_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
