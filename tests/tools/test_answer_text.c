/* tools/engine/requests/answer_text.h: a stop text that spans pieces is never shown, what is not one comes through, and characters stay whole. */
#include "tools/engine/requests/answer_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const none[1] = {NULL};

/* The text in pieces of that many bytes; what was shown, as one. */
static size_t show_in_pieces(apr_answer_text *t, const char *text, size_t n_text, size_t piece, char *shown)
{
    size_t n_shown = 0, n;

    for (size_t at = 0; at < n_text && !t->is_stopped; at += piece) {
        assert_true(apr_answer_text_add(t, text + at, piece < n_text - at ? piece : n_text - at));
        const char *const part = apr_answer_text_show(t, false, &n);
        memcpy(shown + n_shown, part, n);
        n_shown += n;
    }
    const char *const part = apr_answer_text_show(t, true, &n);
    memcpy(shown + n_shown, part, n);
    return n_shown + n;
}

static void stops_end_a_text_wherever_it_is_cut(void **state)
{
    static const struct {
        const char *stops[3], *text, *want;
    } cases[] = {{{"END"}, "one two END three", "one two "},
                 {{"END"}, "EENEND", "EEN"},
                 {{"aab"}, "aaaab", "aa"},
                 {{"\n\n", "Q:"}, "A: yes\nQ: no", "A: yes\n"},
                 {{"xyz"}, "xy", "xy"},
                 {{"xyz"}, "", ""},
                 {{"x"}, "x", ""},
                 {{"\xc3\xa9"}, "caf\xc3\xa9!", "caf"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n_stops = 0;
        while (n_stops < 3 && cases[i].stops[n_stops] != NULL) n_stops++;
        for (size_t piece = 1; piece < 20; piece++) {
            apr_answer_text t = {.stops = cases[i].stops, .n_stops = n_stops};
            char shown[64] = "";
            const size_t n = show_in_pieces(&t, cases[i].text, strlen(cases[i].text), piece, shown);
            if (n != strlen(cases[i].want) || memcmp(shown, cases[i].want, n) != 0)
                fail_msg("case %zu, pieces of %zu: '%s'", i, piece, shown);
            assert_true(t.is_stopped == (strlen(cases[i].want) < strlen(cases[i].text)));
            apr_answer_text_close(&t);
        }
    }
}

/* Every prefix that is shown ends between characters; at the end all bytes have come, also those that begin no character. */
static void characters_are_shown_whole(void **state)
{
    static const char text[] = "a\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 z\xff\x80\x80 \xe2\x82";
    const size_t n_text = sizeof text - 1, broken = 14; /* until there the text is UTF-8 */
    static const size_t between[] = {0, 1, 3, 4, 7, 8, 12, 13};

    (void)state;
    apr_answer_text t = {.stops = none, .whole_characters = true};
    size_t n, n_shown = 0;
    for (size_t at = 0; at < n_text; at++) {
        assert_true(apr_answer_text_add(&t, text + at, 1));
        const char *const part = apr_answer_text_show(&t, false, &n);
        assert_memory_equal(part, text + n_shown, n);
        n_shown += n;
        bool is_between = n_shown >= broken;
        for (size_t i = 0; i < sizeof between / sizeof *between; i++) is_between |= between[i] == n_shown;
        assert_true(is_between);
        assert_true(n_shown + 3 >= at + 1); /* and nothing is kept that is complete */
    }
    apr_answer_text_show(&t, true, &n);
    assert_int_equal(n_shown + n, n_text);
    apr_answer_text_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_end_a_text_wherever_it_is_cut),
        cmocka_unit_test(characters_are_shown_whole),
    };
    return cmocka_run_group_tests_name("answer text", tests, NULL, NULL);
}
