/* test_ahead.c - formats/files/prefault.h: pages that are there before their bytes, where the kernel has large ones, and nothing elsewhere. */
#define _GNU_SOURCE /* O_TMPFILE, mincore */
#include "formats/files/prefault.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { LARGE = 2 << 20, N_BYTES = (70 << 20) + 12345 };

static int new_file(const char *folder)
{
    const int fd = open(folder, O_RDWR | O_TMPFILE, 0600);
    if (fd >= 0) assert_int_equal(ftruncate(fd, N_BYTES), 0);
    return fd;
}

static size_t pages_there(int fd, size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = n_bytes / page;
    void *const p = mmap(NULL, n_bytes, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *const there = calloc(n, 1);
    size_t n_there = 0;
    assert_true(p != MAP_FAILED && there != NULL);
    assert_int_equal(mincore(p, n_bytes, there), 0);
    for (size_t i = 0; i < n; i++) n_there += there[i] & 1;
    munmap(p, n_bytes);
    free(there);
    return n_there;
}

/* Does this kernel make a large page of a small one here? */
static bool has_large_pages(int fd)
{
    uint8_t *const p = apr_prefault_map(fd, 0, LARGE);
    assert_non_null(p);
    p[0] = 0;
    const bool has = madvise(p, LARGE, 25) == 0;
    munmap(p, LARGE);
    return has;
}

static void pages_come_before_bytes(void **state)
{
    const size_t whole = N_BYTES / LARGE * LARGE, page = (size_t)sysconf(_SC_PAGESIZE);
    (void)state;
    int fd = new_file("/dev/shm");
    if (fd < 0) skip();
    const bool has = has_large_pages(fd);
    close(fd);
    fd = new_file("/dev/shm");
    assert_int_equal(pages_there(fd, whole), 0);
    apr_prefault *const ahead = apr_prefault_start(fd, N_BYTES);
    assert_non_null(ahead);
    apr_prefault_wait(ahead, 5, N_BYTES);
    if (has) assert_int_equal(pages_there(fd, whole), whole / page);
    uint8_t byte = 1;
    for (off_t at = 0; at < N_BYTES; at += 100003) {
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        assert_int_equal(byte, 0);
    }
    apr_prefault_stop(ahead);
    assert_int_equal(lseek(fd, 0, SEEK_END), N_BYTES);
    close(fd);
}

/* On a disk, and of what cannot be written at all: no one waits for pages that do not come. */
static void where_there_are_none_nobody_waits(void **state)
{
    (void)state;
    const int fd = new_file("build");
    if (fd >= 0) {
        apr_prefault *const ahead = apr_prefault_start(fd, N_BYTES);
        apr_prefault_wait(ahead, 0, N_BYTES);
        apr_prefault_stop(ahead);
        assert_int_equal(lseek(fd, 0, SEEK_END), N_BYTES);
        close(fd);
    }
    apr_prefault *const closed = apr_prefault_start(-1, N_BYTES);
    apr_prefault_wait(closed, 0, N_BYTES);
    apr_prefault_stop(closed);
    apr_prefault_wait(NULL, 0, N_BYTES);
    apr_prefault_stop(NULL);
}

static void a_map_lies_as_the_file_does(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    (void)state;
    const int fd = new_file(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "build");
    if (fd < 0) skip();
    for (size_t start = 0; start < 2 * LARGE; start += 77 * page) {
        const size_t end = N_BYTES - start;
        uint8_t byte = 0;
        uint8_t *const p = apr_prefault_map(fd, start, end);
        assert_non_null(p);
        assert_int_equal(((uintptr_t)p - start) % LARGE, 0);
        p[0] = 17;
        p[end - start - 1] = 18;
        assert_int_equal(pread(fd, &byte, 1, (off_t)start), 1);
        assert_int_equal(byte, 17);
        assert_int_equal(pread(fd, &byte, 1, (off_t)end - 1), 1);
        assert_int_equal(byte, 18);
        munmap(p, end - start);
    }
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_come_before_bytes),
        cmocka_unit_test(where_there_are_none_nobody_waits),
        cmocka_unit_test(a_map_lies_as_the_file_does),
    };
    return cmocka_run_group_tests_name("ahead", tests, NULL, NULL);
}
