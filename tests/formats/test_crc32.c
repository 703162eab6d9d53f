/* formats/base/crc32.h: zlib's CRC-32, and the CRC of two pieces from the CRCs of each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "formats/base/crc32.h"

#include <stdlib.h>
#include <string.h>

/* Values of Python's zlib.crc32. */
static const struct {
    const char *text;
    uint32_t crc;
} vectors[] = {
    {"", 0x00000000},
    {"123456789", 0xcbf43926},
    {"a", 0xe8b7be43},
    {"The quick brown fox jumps over the lazy dog", 0x414fa339},
};

static void known_texts_have_their_checksums(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        assert_int_equal(apr_crc32(0, vectors[i].text, strlen(vectors[i].text)), vectors[i].crc);
}

static void every_split_gives_the_checksum_of_the_whole(void **state)
{
    (void)state;
    uint8_t bytes[300];

    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * i + 7 * i);
    const uint32_t whole = apr_crc32(0, bytes, sizeof bytes);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        const uint32_t a = apr_crc32(0, bytes, n), b = apr_crc32(0, bytes + n, sizeof bytes - n);
        assert_int_equal(apr_crc32(a, bytes + n, sizeof bytes - n), whole);
        assert_int_equal(apr_crc32_combine(a, b, sizeof bytes - n), whole);
    }
}

/* 2^32 + 5 zero bytes after "a", without having them: zeros double from one piece to the next. */
static void lengths_above_32_bits_combine(void **state)
{
    (void)state;
    const uint8_t zeros[5] = {0};
    uint32_t zeros_crc = apr_crc32(0, zeros, 1), crc = apr_crc32(0, "a", 1);

    for (int i = 0; i < 32; i++) zeros_crc = apr_crc32_combine(zeros_crc, zeros_crc, (uint64_t)1 << i);
    crc = apr_crc32_combine(crc, zeros_crc, (uint64_t)1 << 32);
    crc = apr_crc32(crc, zeros, sizeof zeros);
    const uint32_t at_once = apr_crc32_combine(zeros_crc, apr_crc32(0, zeros, sizeof zeros), sizeof zeros);
    assert_int_equal(crc, apr_crc32_combine(apr_crc32(0, "a", 1), at_once, ((uint64_t)1 << 32) + sizeof zeros));
}

static void all_cores_give_the_checksum_of_one(void **state)
{
    static const size_t around = 4 << 20; /* a piece */
    const size_t lengths[] = {0, 1, around - 1, around, around + 1, 3 * around - 7};
    uint8_t *const bytes = malloc(3 * around);

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < 3 * around; i++) bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        assert_int_equal(apr_crc32_of(bytes, lengths[i]), apr_crc32(0, bytes, lengths[i]));
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts_have_their_checksums),
        cmocka_unit_test(every_split_gives_the_checksum_of_the_whole),
        cmocka_unit_test(lengths_above_32_bits_combine),
        cmocka_unit_test(all_cores_give_the_checksum_of_one),
    };
    return cmocka_run_group_tests_name("crc32", tests, NULL, NULL);
}
