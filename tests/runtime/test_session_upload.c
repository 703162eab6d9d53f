/* runtime/session/session_upload.h: everything arrives, whichever thread fills it and however late it is sent; and what fails is reported
 * once. */
#define _DEFAULT_SOURCE /* mincore */
#include "formats/base/random.h"
#include "formats/files/map.h"
#include "runtime/session/session_upload.h"
#include "tests/support/fake_device.h"
#include "tests/support/work_folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { LARGE = (33 << 20) + 77, ROWS = 4096, COLUMNS = 1024, SCRATCH_BYTES = 64 * COLUMNS * 2 };

/* A fake device of which some functions are this test's. */
static apr_cuda_api api;
static apr_cuda_device *device;
static int n_sends, n_pinned, fails_at;

static apr_status send(apr_cuda_device *d, void *to, const void *pinned, uint64_t n_bytes, apr_error *err)
{
    if (++n_sends == fails_at) return apr_fail(err, APR_E_DEVICE, "the cable was pulled");
    return fake_device()->send(d, to, pinned, n_bytes, err);
}

/* Items of this device: the columns of 16 rows, one after another. */
static apr_status to_tiles(apr_cuda_device *d, apr_dtype dtype, void *to, const void *rows, int64_t n_rows, int64_t n_in, apr_error *err)
{
    uint16_t *const stored = malloc((size_t)(n_rows * n_in) * 2), *const items = malloc((size_t)(n_rows * n_in) * 2);
    assert_non_null(stored);
    assert_non_null(items);
    assert_int_equal(dtype, APR_F16);
    assert_true(n_rows % 16 == 0 && (uint64_t)(n_rows * n_in) * 2 <= SCRATCH_BYTES);
    apr_status status = fake_device()->download(d, stored, rows, (uint64_t)(n_rows * n_in) * 2, err);
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < n_in; c++) items[r / 16 * 16 * n_in + c * 16 + r % 16] = stored[r * n_in + c];
    if (status == APR_OK) status = fake_device()->upload(d, to, items, (uint64_t)(n_rows * n_in) * 2, err);
    free(stored);
    free(items);
    return status;
}

static apr_status pin(apr_cuda_device *d, uint64_t n_bytes, const char *what, void **p, apr_error *err)
{
    n_pinned++;
    assert_true(n_bytes <= 64 << 20);
    return fake_device()->pin(d, n_bytes, what, p, err);
}

static void release(apr_cuda_device *d, void *p)
{
    n_pinned--;
    fake_device()->release(d, p);
}

static int begin(void **state)
{
    static const apr_cuda_options options = {0};
    (void)state;
    api = *fake_device();
    api.send = send;
    api.to_tiles = to_tiles;
    api.pin = pin;
    api.release = release;
    n_sends = n_pinned = fails_at = 0;
    return api.open(&device, 0, &options, NULL) != APR_OK;
}

static int end(void **state)
{
    (void)state;
    api.close(device);
    return 0;
}

static uint8_t *on_device(size_t n_bytes)
{
    void *p;
    assert_int_equal(api.alloc(device, n_bytes, "a test", &p, NULL), APR_OK);
    return p;
}

static uint8_t *noise(size_t n_bytes)
{
    uint64_t random = 7;
    uint8_t *const bytes = malloc(n_bytes);
    assert_non_null(bytes);
    for (size_t i = 0; i < n_bytes; i++) bytes[i] = (uint8_t)(apr_random(&random) >> 40);
    return bytes;
}

static void is_there(const uint8_t *at, const uint8_t *wanted, size_t n_bytes)
{
    uint8_t *const found = malloc(n_bytes);
    assert_non_null(found);
    assert_int_equal(api.download(device, found, at, n_bytes, NULL), APR_OK);
    assert_memory_equal(found, wanted, n_bytes);
    free(found);
}

static apr_load_target target_of(void *scratch) { return (apr_load_target){&api, device, scratch, SCRATCH_BYTES}; }

static apr_tensor matrix(const uint8_t *data, apr_dtype dtype)
{
    return (apr_tensor){.name = "a matrix",
                        .dtype = dtype,
                        .rank = 2,
                        .dims = {ROWS, COLUMNS},
                        .data = data,
                        .n_bytes = (uint64_t)ROWS * (uint64_t)COLUMNS * apr_dtypes[dtype].bytes_per_block};
}

static void large_and_small_blocks_arrive(void **state)
{
    uint8_t *const large = noise(LARGE), *const to = on_device(LARGE), *const small = on_device(3);
    const apr_load_target target = target_of(NULL);
    apr_loads loads = {0};
    (void)state;
    assert_int_equal(apr_load_bytes(&loads, large, LARGE, to, NULL), APR_OK);
    assert_int_equal(apr_load_bytes(&loads, large, 0, NULL, NULL), APR_OK); /* nothing is nothing */
    assert_int_equal(apr_load_bytes(&loads, large + 5, 3, small, NULL), APR_OK);
    assert_int_equal(apr_loads_run(&loads, &target, NULL), APR_OK);
    is_there(to, large, LARGE);
    is_there(small, large + 5, 3);
    assert_true(n_sends >= LARGE / (4 << 20));
    assert_int_equal(n_pinned, 0);
    apr_loads_close(&loads);
    free(large);
}

static void nothing_to_load_takes_nothing(void **state)
{
    const apr_load_target target = target_of(NULL);
    apr_loads loads = {0};
    (void)state;
    assert_int_equal(apr_loads_run(&loads, &target, NULL), APR_OK);
    assert_int_equal(n_sends, 0);
    apr_loads_close(&loads);
}

static void rows_are_put_in_order_on_the_way(void **state)
{
    uint8_t *const stored = noise((size_t)ROWS * COLUMNS * 2), *const wanted = malloc((size_t)ROWS * COLUMNS * 2);
    uint8_t *const to = on_device((size_t)ROWS * COLUMNS * 2);
    apr_tensor turned = matrix(stored, APR_F16);
    const apr_load_target target = target_of(NULL);
    apr_loads loads = {0};
    (void)state;
    assert_non_null(wanted);
    turned.pending = (apr_step){.kind = APR_STEP_HALVES_TO_PAIRS, .n = {32}};
    for (int64_t r = 0; r < ROWS; r++) memcpy(wanted + r * COLUMNS * 2, apr_tensor_row(&turned, r), COLUMNS * 2);
    assert_memory_not_equal(wanted, stored, (size_t)ROWS * COLUMNS * 2);
    assert_int_equal(apr_load_rows(&loads, &turned, APR_LOAD_STORED, to, NULL), APR_OK);
    assert_int_equal(apr_loads_run(&loads, &target, NULL), APR_OK);
    is_there(to, wanted, (size_t)ROWS * COLUMNS * 2);
    apr_loads_close(&loads);
    free(wanted);
    free(stored);
}

static void what_fp16_cannot_hold_is_counted(void **state)
{
    float *const stored = malloc((size_t)ROWS * COLUMNS * sizeof *stored);
    uint16_t *const wanted = malloc((size_t)ROWS * COLUMNS * 2);
    uint8_t *const to = on_device((size_t)ROWS * COLUMNS * 2);
    const apr_load_target target = target_of(NULL);
    apr_loads loads = {0};
    (void)state;
    assert_non_null(stored);
    assert_non_null(wanted);
    for (int64_t i = 0; i < (int64_t)ROWS * COLUMNS; i++) stored[i] = (float)(i % 2039) - 1000.0f;
    stored[5] = 1e6f;
    stored[(int64_t)ROWS * COLUMNS - 1] = -70000.0f;
    const apr_tensor tensor = matrix((const uint8_t *)stored, APR_F32);
    assert_int_equal(apr_load_rows(&loads, &tensor, APR_LOAD_F16, to, NULL), APR_OK);
    assert_int_equal(apr_loads_run(&loads, &target, NULL), APR_OK);
    assert_int_equal(loads.list[0].out_of_range.n_out_of_range, 2);
    stored[5] = 65504.0f;
    stored[(int64_t)ROWS * COLUMNS - 1] = -65504.0f;
    apr_host_codecs()[APR_F16].encode(stored, (uint8_t *)wanted, (int64_t)ROWS * COLUMNS);
    is_there(to, (const uint8_t *)wanted, (size_t)ROWS * COLUMNS * 2);
    apr_loads_close(&loads);
    free(wanted);
    free(stored);
}

static void items_are_encoded_within_the_scratch_memory(void **state)
{
    uint8_t *const stored = noise((size_t)ROWS * COLUMNS * 2), *const wanted = malloc((size_t)ROWS * COLUMNS * 2);
    uint8_t *const to = on_device((size_t)ROWS * COLUMNS * 2);
    const apr_tensor tensor = matrix(stored, APR_F16);
    const apr_load_target target = target_of(on_device(SCRATCH_BYTES));
    apr_loads loads = {0};
    (void)state;
    assert_non_null(wanted);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < COLUMNS; c++)
            memcpy(wanted + 2 * (r / 16 * 16 * COLUMNS + c * 16 + r % 16), stored + 2 * (r * COLUMNS + c), 2);
    assert_int_equal(apr_load_rows(&loads, &tensor, APR_LOAD_TILED, to, NULL), APR_OK);
    assert_int_equal(apr_loads_run(&loads, &target, NULL), APR_OK);
    is_there(to, wanted, (size_t)ROWS * COLUMNS * 2);
    apr_loads_close(&loads);
    free(wanted);
    free(stored);
}

static void the_first_failure_ends_it(void **state)
{
    uint8_t *const large = noise(LARGE), *const to = on_device(LARGE);
    const apr_load_target target = target_of(NULL);
    (void)state;
    for (fails_at = 1; fails_at < 9; fails_at++) {
        apr_loads loads = {0};
        apr_error err = {0};
        n_sends = 0;
        assert_int_equal(apr_load_bytes(&loads, large, LARGE, to, NULL), APR_OK);
        assert_int_equal(apr_loads_run(&loads, &target, &err), APR_E_DEVICE);
        assert_string_equal(err.text, "the cable was pulled");
        assert_int_equal(n_sends, fails_at);
        assert_int_equal(n_pinned, 0);
        apr_loads_close(&loads);
    }
    free(large);
}

/* Pages of [data, data + n_bytes) that are in the page cache; -1: not known. */
static int64_t resident_pages(const uint8_t *data, size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n_pages = (n_bytes + page - 1) / page;
    unsigned char *const there = malloc(n_pages);
    int64_t n = 0;
    assert_non_null(there);
    const bool is_known = mincore((void *)(uintptr_t)data, n_bytes, there) == 0;
    for (size_t i = 0; is_known && i < n_pages; i++) n += there[i] & 1;
    free(there);
    return is_known ? n : -1;
}

/* Does the file system let go of pages when it is asked? tmpfs does not. */
static bool lets_go(const char *path, const apr_map *map)
{
    const int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fsync(fd) == 0);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return resident_pages(map->data, map->n_bytes) == 0;
}

static void where_memory_is_shared_the_file_s_pages_are_given_back(void **state)
{
    enum { N = 24 << 20 };
    const char *const path = in_work("pages.bin");
    uint8_t *const bytes = malloc(N), *const back = malloc(N);
    apr_error err = {0};
    apr_map map;
    void *there;
    (void)state;
    assert_true(bytes != NULL && back != NULL);
    for (size_t i = 0; i < N; i++) bytes[i] = (uint8_t)(i * 2654435761u >> 24);
    write_file(path, bytes, N);
    assert_int_equal(apr_map_open(&map, path, &err), APR_OK);
    const bool can_be_seen = lets_go(path, &map);
    assert_int_equal(api.alloc(device, N, "bytes", &there, &err), APR_OK);
    for (int drops = 0; drops < 2; drops++) {
        apr_loads loads = {0};
        const apr_load_target target = {.cuda = &api, .device = device, .drops_pages = drops};
        assert_int_equal(apr_load_bytes(&loads, map.data, N, there, &err), APR_OK);
        assert_int_equal(apr_loads_run(&loads, &target, &err), APR_OK);
        apr_loads_close(&loads);
        const int64_t n_left = resident_pages(map.data, N), page = (int64_t)sysconf(_SC_PAGESIZE);
        if (drops == 0) assert_int_equal(n_left, N / page);
        else if (can_be_seen && n_left > 16) fail_msg("%lld of %lld pages are left", (long long)n_left, (long long)(N / page));
        assert_int_equal(api.download(device, back, there, N, &err), APR_OK);
        assert_memory_equal(back, bytes, N);
    }
    assert_memory_equal(map.data, bytes, N); /* and can still be read */
    api.release(device, there);
    apr_map_close(&map);
    free(bytes);
    free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(large_and_small_blocks_arrive, begin, end),
        cmocka_unit_test_setup_teardown(nothing_to_load_takes_nothing, begin, end),
        cmocka_unit_test_setup_teardown(rows_are_put_in_order_on_the_way, begin, end),
        cmocka_unit_test_setup_teardown(what_fp16_cannot_hold_is_counted, begin, end),
        cmocka_unit_test_setup_teardown(items_are_encoded_within_the_scratch_memory, begin, end),
        cmocka_unit_test_setup_teardown(the_first_failure_ends_it, begin, end),
        cmocka_unit_test_setup_teardown(where_memory_is_shared_the_file_s_pages_are_given_back, begin, end),
    };
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
