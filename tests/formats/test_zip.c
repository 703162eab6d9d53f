/* formats/torch/zip.h: stored members are found by their names; inconsistent archives end in a sentence. */
#include "formats/torch/zip.h"
#include "tests/support/work_folder.h"
#include "tests/support/zip_builder.h"

/* --- helpers --- */

/* "a/data.pkl" of "pickle", "a/data/0" of "0123" and "a/data/1" of nothing. */
static void build(zip_builder *z, int zip64)
{
    *z = (zip_builder){0};
    zip_add(z, "a/data.pkl", "pickle", 6);
    zip_add(z, "a/data/0", "0123", 4);
    zip_add(z, "a/data/1", NULL, 0);
    zip_close(z, zip64);
}

/* Read from a copy of the exact size. */
static apr_status read_zip(const zip_builder *z, size_t n_bytes, apr_zip *zip, apr_arena *arena, apr_error *err)
{
    uint8_t *const copy = apr_arena_alloc(arena, n_bytes);
    memcpy(copy, z->bytes, n_bytes);
    *err = (apr_error){0};
    return apr_zip_read(zip, copy, n_bytes, "test", arena, err);
}

static const apr_zip_member *find(const apr_zip *zip, const char *name) { return apr_zip_find(zip, "a/", 2, name, strlen(name)); }

static void assert_refused(const zip_builder *z, apr_status wanted, const char *words)
{
    apr_arena arena = {0};
    apr_error err;
    apr_zip zip;

    assert_int_equal(read_zip(z, z->n_bytes, &zip, &arena, &err), wanted);
    if (strstr(err.text, words) == NULL) fail_msg("'%s' does not say '%s'", err.text, words);
    apr_arena_close(&arena);
}

/* --- reading --- */

static void members_are_found_by_their_names(void **state)
{
    (void)state;
    for (int zip64 = 0; zip64 < 2; zip64++) {
        apr_arena arena = {0};
        apr_error err;
        zip_builder z;
        apr_zip zip;

        build(&z, zip64);
        if (read_zip(&z, z.n_bytes, &zip, &arena, &err) != APR_OK) fail_msg("%s", err.text);
        assert_int_equal(zip.n, 3);
        const apr_zip_member *const pickle = find(&zip, "data.pkl"), *const first = find(&zip, "data/0"),
                                    *const empty = find(&zip, "data/1");
        assert_non_null(pickle);
        assert_memory_equal(pickle->data, "pickle", 6);
        assert_int_equal(first->n_bytes, 4);
        assert_memory_equal(first->data, "0123", 4);
        assert_int_equal(empty->n_bytes, 0);
        assert_null(find(&zip, "data/"));
        assert_null(find(&zip, "data/00"));
        assert_null(apr_zip_find(&zip, "b/", 2, "data/0", 6));
        assert_null(apr_zip_find(&zip, "a/data/0x", 9, "", 0));
        apr_arena_close(&arena);
    }
}

static void a_comment_may_follow_the_end(void **state)
{
    apr_arena arena = {0};
    apr_error err;
    zip_builder z;
    apr_zip zip;

    (void)state;
    build(&z, 0);
    memcpy(zip_room(&z, 5), "hello", 5);
    apr_store_le16(z.bytes + z.end_at + 20, 5);
    assert_int_equal(read_zip(&z, z.n_bytes, &zip, &arena, &err), APR_OK);
    assert_int_equal(zip.n, 3);
    apr_arena_close(&arena);
}

static void an_archive_cut_anywhere_is_damaged(void **state)
{
    zip_builder z;

    (void)state;
    for (int zip64 = 0; zip64 < 2; zip64++) {
        build(&z, zip64);
        for (size_t n = 0; n < z.n_bytes; n++) {
            apr_arena arena = {0};
            apr_error err;
            apr_zip zip;
            assert_int_equal(read_zip(&z, n, &zip, &arena, &err), APR_E_DAMAGED);
            assert_non_null(strstr(err.text, "cut off"));
            apr_arena_close(&arena);
        }
    }
}

static void an_archive_with_a_changed_byte_is_read_or_refused(void **state)
{
    zip_builder z;

    (void)state;
    for (int zip64 = 0; zip64 < 2; zip64++) {
        build(&z, zip64);
        for (size_t i = 0; i < z.n_bytes; i++) {
            for (int bit = 0; bit < 8; bit++) {
                apr_arena arena = {0};
                apr_error err;
                apr_zip zip;
                z.bytes[i] ^= (uint8_t)(1 << bit);
                const apr_status status = read_zip(&z, z.n_bytes, &zip, &arena, &err);
                assert_int_equal(status == APR_OK, err.text[0] == '\0');
                z.bytes[i] ^= (uint8_t)(1 << bit);
                apr_arena_close(&arena);
            }
        }
    }
}

/* --- refusals --- */

static void compressed_and_encrypted_members_are_refused_by_name(void **state)
{
    zip_builder z;

    (void)state;
    build(&z, 0);
    apr_store_le16(z.bytes + z.entries[1] + 10, 8); /* deflated */
    assert_refused(&z, APR_E_UNSUPPORTED, "'a/data/0' in it is compressed or encrypted");
    build(&z, 0);
    apr_store_le16(z.bytes + z.entries[1] + 8, 1); /* encrypted */
    assert_refused(&z, APR_E_UNSUPPORTED, "'a/data/0' in it is compressed or encrypted");
    build(&z, 0);
    apr_store_le16(z.bytes + z.entries[1] + 8, 8); /* sizes after the data, as torch.save writes them */
    apr_store_le32(z.bytes + z.locals[1] + 18, 0);
    apr_store_le32(z.bytes + z.locals[1] + 22, 0);
    apr_arena arena = {0};
    apr_error err;
    apr_zip zip;
    assert_int_equal(read_zip(&z, z.n_bytes, &zip, &arena, &err), APR_OK);
    apr_arena_close(&arena);
}

static void two_members_may_not_share_bytes_or_a_name(void **state)
{
    zip_builder z;

    (void)state;
    build(&z, 0);
    apr_store_le32(z.bytes + z.entries[0] + 20, 20); /* into the second one's header, then into its bytes */
    apr_store_le32(z.bytes + z.entries[0] + 24, 20);
    apr_store_le32(z.bytes + z.entries[0] + 20, 46);
    apr_store_le32(z.bytes + z.entries[0] + 24, 46);
    assert_refused(&z, APR_E_DAMAGED, "two files overlap");
    z = (zip_builder){0};
    zip_add(&z, "a/data/0", "0123", 4);
    zip_add(&z, "a/data/0", "4567", 4);
    zip_close(&z, 0);
    assert_refused(&z, APR_E_DAMAGED, "two files have the same name");
}

static void numbers_that_point_outside_are_damage(void **state)
{
    zip_builder z;

    (void)state;
    build(&z, 0);
    apr_store_le32(z.bytes + z.entries[0] + 42, 0x7fffffff);
    assert_refused(&z, APR_E_DAMAGED, "the header of a file in it is missing");
    build(&z, 0);
    apr_store_le32(z.bytes + z.entries[0] + 20, 0x7fffffff);
    apr_store_le32(z.bytes + z.entries[0] + 24, 0x7fffffff);
    assert_refused(&z, APR_E_DAMAGED, "is not before the table");
    build(&z, 0);
    apr_store_le32(z.bytes + z.end_at + 16, 0x7fffffff);
    assert_refused(&z, APR_E_DAMAGED, "the table of files is outside the file");
    build(&z, 0);
    apr_store_le16(z.bytes + z.end_at + 10, 60000);
    assert_refused(&z, APR_E_DAMAGED, "too small for its entries");
    build(&z, 1);
    apr_store_le64(z.bytes + z.end_at - 20 + 8, UINT64_MAX - 8); /* zip64's locator */
    assert_refused(&z, APR_E_DAMAGED, "is not where it should be");
    build(&z, 1);
    apr_store_le64(z.bytes + z.end_at - 76 + 48, UINT64_MAX - 8); /* the table, as zip64's end has it */
    assert_refused(&z, APR_E_DAMAGED, "the table of files is outside the file");
    build(&z, 1);
    apr_store_le16(z.bytes + z.entries[0] + 46 + 10 + 2, 8); /* zip64's field holds one number of three */
    assert_refused(&z, APR_E_DAMAGED, "an entry of the table of files is cut off");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_found_by_their_names),
        cmocka_unit_test(a_comment_may_follow_the_end),
        cmocka_unit_test(an_archive_cut_anywhere_is_damaged),
        cmocka_unit_test(an_archive_with_a_changed_byte_is_read_or_refused),
        cmocka_unit_test(compressed_and_encrypted_members_are_refused_by_name),
        cmocka_unit_test(two_members_may_not_share_bytes_or_a_name),
        cmocka_unit_test(numbers_that_point_outside_are_damage),
    };
    return cmocka_run_group_tests_name("zip", tests, NULL, NULL);
}
