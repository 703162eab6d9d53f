/* formats/base/base64.h: RFC 4648's vectors, every length, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "formats/base/base64.h"

#include <stdlib.h>
#include <string.h>

/* RFC 4648, section 10. */
static const char *const vectors[][2] = {
    {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};

static void the_vectors_of_the_rfc_hold(void **state)
{
    (void)state;
    char text[16], bytes[16];

    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const size_t n = strlen(vectors[i][0]), n_chars = strlen(vectors[i][1]);
        assert_int_equal(apr_base64_chars(n), n_chars);
        apr_base64_encode(vectors[i][0], n, text);
        assert_memory_equal(text, vectors[i][1], n_chars);
        assert_int_equal(apr_base64_bytes(vectors[i][1], n_chars), n);
        assert_true(apr_base64_decode(vectors[i][1], n_chars, bytes));
        assert_memory_equal(bytes, vectors[i][0], n);
    }
}

static void all_bytes_of_all_lengths_come_back(void **state)
{
    (void)state;
    for (size_t n = 0; n < 260; n++) {
        uint8_t *const bytes = malloc(n + 1), *const back = malloc(n > 0 ? n : 1);
        char *const text = malloc(apr_base64_chars(n) + 1); /* one more than needed only where n is 0 */
        for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)(i * 89 + n);
        apr_base64_encode(bytes, n, text);
        assert_int_equal(apr_base64_bytes(text, apr_base64_chars(n)), n);
        assert_true(apr_base64_decode(text, apr_base64_chars(n), back));
        assert_memory_equal(bytes, back, n);
        free(bytes);
        free(back);
        free(text);
    }
}

static void what_no_encoder_writes_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"A",    "AB",   "ABC",        "A===", "====", "AB=C", "AB==CDEF", "AB==AB==", "A\nBC",
                                      "AB C", "AB-_", "AB\xc3\xa9", "Zh==", "Zm9=", "=ABC", "AAA\x80",  "ABCDE",    " ABC"};
    uint8_t bytes[16];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *const exact = malloc(strlen(bad[i]));
        memcpy(exact, bad[i], strlen(bad[i]));
        assert_true(apr_base64_bytes(exact, strlen(bad[i])) <= sizeof bytes);
        assert_false(apr_base64_decode(exact, strlen(bad[i]), bytes));
        free(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_the_rfc_hold),
        cmocka_unit_test(all_bytes_of_all_lengths_come_back),
        cmocka_unit_test(what_no_encoder_writes_is_refused),
    };
    return cmocka_run_group_tests_name("base64", tests, NULL, NULL);
}
