/* test_out.c - formats/files/out.h in a folder on a disk and in one in memory: small and large pieces, checksums, patches, files that
 * end sooner or later than announced. */
#include "formats/files/out.h"

#include "formats/base/crc32.h"
#include "formats/files/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef _OPENMP
#include <omp.h>
#endif

static const char *const folders[] = {"/dev/shm", "/tmp", "build"};

/* Sizes around those at which the way of writing changes, one after another in one file. */
static const size_t pieces[] = {5, 100000, 300000, 3 << 20, 1, (1 << 20) - 1, 1 << 20, (5 << 20) + 4097, 17, 70 << 20, 9 << 20};

static uint8_t *noise(size_t n_bytes)
{
    uint8_t *const bytes = malloc(n_bytes);
    assert_non_null(bytes);
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < n_bytes; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        bytes[i] = (uint8_t)x;
    }
    return bytes;
}

static void write_file(const char *path, const uint8_t *bytes, size_t n_bytes, uint64_t announced, bool with_crc)
{
    apr_out *out;
    apr_error err = {0};
    uint32_t crc = 0;
    size_t at = 0;

    if (apr_out_open(&out, path, announced, true, &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; at += pieces[i++])
        if (apr_out_write(out, bytes + at, pieces[i], with_crc ? &crc : NULL, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(at, n_bytes);
    assert_int_equal(apr_out_position(out), n_bytes);
    assert_int_equal(apr_out_patch(out, 4u << 20, bytes, 100, &err), APR_OK);
    assert_int_equal(apr_out_finish(out, &err), APR_OK);
    if (with_crc) assert_int_equal(crc, apr_crc32(0, bytes, n_bytes));
}

static void files_hold_what_was_written_on_every_file_system(void **state)
{
    size_t n_bytes = 0;
    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) n_bytes += pieces[i];
    uint8_t *const bytes = noise(n_bytes), *const wanted = malloc(n_bytes);
    assert_non_null(wanted);
    memcpy(wanted, bytes, n_bytes);
    memcpy(wanted + (4 << 20), bytes, 100);
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        const uint64_t announced[] = {n_bytes, n_bytes + 12345678, n_bytes / 2, 0};
        char path[128];
        if (access(folders[f], W_OK) != 0) continue;
        snprintf(path, sizeof path, "%s/apr-test-out-%ld", folders[f], (long)getpid());
        if (apr_out_check_disk(path, 2 * n_bytes, NULL) != APR_OK) continue; /* containers have little memory there */
        for (size_t k = 0; k < sizeof announced / sizeof *announced; k++) {
            apr_map map;
            write_file(path, bytes, n_bytes, announced[k], k % 2 == 0);
            assert_int_equal(apr_map_open(&map, path, NULL), APR_OK);
            assert_int_equal(map.n_bytes, n_bytes);
            if (memcmp(map.data, wanted, n_bytes) != 0) fail_msg("%s holds other bytes (%zu)", path, k);
            apr_map_close(&map);
        }
        unlink(path);
    }
    free(bytes);
    free(wanted);
}

/* Every other piece by several threads, from its end to its start. */
static void write_extents(const char *path, const uint8_t *bytes, uint64_t announced)
{
    enum { STEP = 777777 };
    apr_out *out;
    apr_error err = {0};
    size_t at = 0;

    if (apr_out_open(&out, path, announced, true, &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; at += pieces[i++]) {
        int n_bad = 0;
        if (i % 2 == 0) {
            if (apr_out_write(out, bytes + at, pieces[i], NULL, &err) != APR_OK) fail_msg("%s", err.text);
            continue;
        }
        const apr_extent extent = apr_out_extent(out, pieces[i]);
        const int64_t n_steps = (int64_t)((pieces[i] + STEP - 1) / STEP);
#pragma omp parallel for schedule(static, 1) reduction(+ : n_bad)
        for (int64_t k = n_steps - 1; k >= 0; k--) {
            const size_t from = (size_t)k * STEP, n = pieces[i] - from < STEP ? pieces[i] - from : STEP;
            n_bad += apr_extent_put(&extent, from, bytes + at + from, n, NULL) != APR_OK;
        }
        assert_int_equal(n_bad, 0);
        apr_out_advance(out, pieces[i]);
    }
    assert_int_equal(apr_out_finish(out, &err), APR_OK);
}

static void extents_hold_what_threads_put_there(void **state)
{
    size_t n_bytes = 0;
    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) n_bytes += pieces[i];
    uint8_t *const bytes = noise(n_bytes);
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        const uint64_t announced[] = {n_bytes, n_bytes + 12345678, n_bytes / 2, 0};
        char path[128];
        if (access(folders[f], W_OK) != 0) continue;
        snprintf(path, sizeof path, "%s/apr-test-out-%ld", folders[f], (long)getpid());
        if (apr_out_check_disk(path, 2 * n_bytes, NULL) != APR_OK) continue;
        for (size_t k = 0; k < sizeof announced / sizeof *announced; k++) {
            apr_map map;
            write_extents(path, bytes, announced[k]);
            assert_int_equal(apr_map_open(&map, path, NULL), APR_OK);
            assert_int_equal(map.n_bytes, n_bytes);
            if (memcmp(map.data, bytes, n_bytes) != 0) fail_msg("%s holds other bytes (%zu)", path, k);
            apr_map_close(&map);
        }
        unlink(path);
    }
    free(bytes);
}

static void what_is_abandoned_leaves_nothing(void **state)
{
    (void)state;
    uint8_t *const bytes = noise(3 << 20);
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        char path[128];
        apr_out *out;
        if (access(folders[f], W_OK) != 0) continue;
        snprintf(path, sizeof path, "%s/apr-test-out-%ld", folders[f], (long)getpid());
        assert_int_equal(apr_out_open(&out, path, 4 << 20, false, NULL), APR_OK);
        assert_int_equal(apr_out_write(out, bytes, 3 << 20, NULL, NULL), APR_OK);
        assert_int_not_equal(access(path, F_OK), 0);
        apr_out_abandon(out);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_hold_what_was_written_on_every_file_system),
        cmocka_unit_test(extents_hold_what_threads_put_there),
        cmocka_unit_test(what_is_abandoned_leaves_nothing),
    };
#ifdef _OPENMP
    omp_set_num_threads(8); /* the way with several threads, on any machine */
#endif
    return cmocka_run_group_tests_name("out", tests, NULL, NULL);
}
