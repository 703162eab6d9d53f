/* test_map.c - formats/files/map.h: what is opened as an input, what is known of it, and that a change is noticed. */
#define _GNU_SOURCE /* S_IFIFO, timespec */
#include "formats/files/inputs.h"

#include "tests/support/work_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

static void assert_refused(const char *path, const char *says)
{
    apr_error err = {0};
    apr_map map;
    alarm(10); /* a FIFO that is waited for ends the test */
    assert_int_equal(apr_map_open(&map, path, &err), APR_E_IO);
    alarm(0);
    if (strstr(err.text, says) == NULL || strstr(err.text, path) == NULL) fail_msg("'%s' does not say '%s'", err.text, says);
    assert_null(map.data);
    assert_null(apr_inputs());
}

static void only_regular_files_are_inputs(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    (void)state;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", in_work("socket"));
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(mkfifo(in_work("fifo"), 0600), 0);
    assert_int_equal(symlink("fifo", in_work("to-fifo")), 0);
    assert_int_equal(symlink("nowhere", in_work("to-nowhere")), 0);
    assert_refused(in_work("fifo"), "is a FIFO, not a regular file");
    assert_refused(in_work("to-fifo"), "is a FIFO");
    assert_refused(in_work("socket"), "is a socket");
    assert_refused("/dev/zero", "is a device");
    assert_refused(work, "is a folder");
    assert_refused(in_work("to-nowhere"), "No such file");
    assert_refused(in_work("nothing"), "No such file");
    close(fd);
}

static void files_are_read_through_links(void **state)
{
    apr_map map;
    (void)state;
    write_file(in_work("blob"), "twelve bytes", 12);
    assert_int_equal(symlink("blob", in_work("link")), 0);
    assert_int_equal(apr_map_open(&map, in_work("link"), NULL), APR_OK);
    assert_int_equal(map.n_bytes, 12);
    assert_memory_equal(map.data, "twelve bytes", 12);
    assert_ptr_equal(apr_inputs(), map.input);
    assert_ptr_equal(apr_inputs_at(map.data), map.input);
    assert_ptr_equal(apr_inputs_at(map.data + 11), map.input);
    assert_null(apr_inputs_at(map.data + 12));
    assert_null(apr_inputs_at(map.data - 1));
    apr_map_close(&map);
    assert_null(apr_inputs());
    apr_map_close(&map); /* closed twice is closed */
}

static void an_empty_file_is_empty(void **state)
{
    apr_map map;
    (void)state;
    write_file(in_work("empty"), "", 0);
    assert_int_equal(apr_map_open(&map, in_work("empty"), NULL), APR_OK);
    assert_null(map.data);
    assert_int_equal(map.n_bytes, 0);
    apr_map_close(&map);
}

static void change(const char *path, const char *how)
{
    const int fd = open(path, O_WRONLY);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
    assert_true(fd >= 0);
    if (strcmp(how, "shorter") == 0) assert_int_equal(ftruncate(fd, 3), 0);
    if (strcmp(how, "longer") == 0) assert_int_equal(pwrite(fd, "x", 1, 12), 1);
    if (strcmp(how, "other bytes") == 0) assert_int_equal(pwrite(fd, "other bytes!", 12, 0), 12);
    if (strcmp(how, "written") == 0) assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static void changes_are_noticed(void **state)
{
    static const char *const ways[] = {"shorter", "longer", "other bytes", "written"};
    const struct timespec moment = {.tv_nsec = 20000000}; /* clocks of file systems tick slowly */

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        apr_error err = {0};
        apr_map map;
        write_file(in_work("model"), "twelve bytes", 12);
        nanosleep(&moment, NULL);
        assert_int_equal(apr_map_open(&map, in_work("model"), NULL), APR_OK);
        assert_int_equal(apr_inputs_check(&err), APR_OK);
        change(in_work("model"), ways[i]);
        if (apr_inputs_check(&err) != APR_E_IO || strstr(err.text, "was changed by another program") == NULL) fail_msg("%s", ways[i]);
        apr_map_close(&map);
        assert_int_equal(apr_inputs_check(&err), APR_OK); /* it has no dependents any more */
    }
}

/* A file of the same name is another one. */
static void the_file_counts_not_its_name(void **state)
{
    apr_map map;
    (void)state;
    write_file(in_work("named"), "old", 3);
    write_file(in_work("other"), "new, and longer", 15);
    assert_int_equal(apr_map_open(&map, in_work("named"), NULL), APR_OK);
    assert_int_equal(rename(in_work("other"), in_work("named")), 0);
    assert_int_equal(apr_inputs_check(NULL), APR_OK);
    assert_memory_equal(map.data, "old", 3);
    apr_map_close(&map);
}

/* A tool looks what a file is, and then reads it: it must be the same one. */
static void what_is_opened_twice_is_the_same_or_changed(void **state)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    (void)state;
    for (int is_changed = 0; is_changed <= 1; is_changed++) {
        apr_error err = {0};
        apr_map map;
        write_file(in_work("twice"), "twelve bytes", 12);
        nanosleep(&moment, NULL);
        apr_inputs_start();
        assert_int_equal(apr_map_open(&map, in_work("twice"), NULL), APR_OK);
        apr_map_close(&map);
        if (is_changed) change(in_work("twice"), "shorter");
        assert_int_equal(apr_map_open(&map, in_work("twice"), NULL), APR_OK);
        assert_int_equal(apr_inputs_check(&err), is_changed ? APR_E_IO : APR_OK);
        apr_map_close(&map);
        assert_int_equal(apr_inputs_check(&err), is_changed ? APR_E_IO : APR_OK);
        apr_inputs_end();
        assert_int_equal(apr_inputs_check(&err), APR_OK);
    }
}

static void a_tool_remembers_what_it_has_closed(void **state)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    apr_map a, b;
    (void)state;
    write_file(in_work("a"), "a", 1);
    write_file(in_work("b"), "b", 1);
    nanosleep(&moment, NULL);
    apr_inputs_start();
    assert_int_equal(apr_map_open(&a, in_work("a"), NULL), APR_OK);
    assert_int_equal(apr_map_open(&b, in_work("b"), NULL), APR_OK);
    write_file(in_work("a"), "A!", 2);
    apr_map_close(&a);
    apr_map_forget(&b);
    assert_non_null(apr_inputs());
    assert_string_equal(apr_inputs()->path, in_work("a"));
    assert_null(apr_inputs()->next);
    assert_int_equal(apr_inputs_check(NULL), APR_E_IO);
    apr_inputs_end();
    assert_null(apr_inputs());
    assert_int_equal(apr_inputs_check(NULL), APR_OK);
}

/* 64 MiB through pages cost a fault for every few of them. */
static void reading_maps_no_pages(void **state)
{
    enum { N_BYTES = 64 << 20 };
    struct rusage before, after;
    apr_map map;
    (void)state;
    uint8_t *const bytes = malloc(N_BYTES), *const got = malloc(N_BYTES);
    assert_true(bytes != NULL && got != NULL);
    for (size_t i = 0; i < N_BYTES; i++) bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    memset(got, 0, N_BYTES);
    write_file(in_work("large"), bytes, N_BYTES);
    assert_int_equal(apr_map_open(&map, in_work("large"), NULL), APR_OK);
    getrusage(RUSAGE_SELF, &before);
    apr_map_read(got, map.data + 5, N_BYTES - 5);
    getrusage(RUSAGE_SELF, &after);
    assert_memory_equal(got, bytes + 5, N_BYTES - 5);
    assert_true(after.ru_minflt - before.ru_minflt < 200);
    apr_map_read(got, bytes + 1, 1000); /* in no file */
    assert_memory_equal(got, bytes + 1, 1000);
    apr_map_close(&map);
    free(bytes);
    free(got);
}

/* --- owners --- */

static void owners_see_their_own_inputs(void **state)
{
    apr_input_owner owner = {0};
    apr_map ours, theirs;
    (void)state;

    write_file(in_work("theirs"), "theirs", 6);
    write_file(in_work("ours"), "ours", 4);
    assert_int_equal(apr_map_open(&theirs, in_work("theirs"), NULL), APR_OK);
    assert_null(apr_inputs_own(&owner));
    assert_null(apr_inputs());
    assert_int_equal(apr_map_open(&ours, in_work("ours"), NULL), APR_OK);
    assert_ptr_equal(apr_inputs(), ours.input);
    assert_ptr_equal(apr_inputs_at(theirs.data), theirs.input); /* an address is of the process */
    assert_int_equal(truncate(in_work("theirs"), 1), 0);
    assert_int_equal(apr_inputs_check(NULL), APR_OK);
    assert_ptr_equal(apr_inputs_own(NULL), &owner);
    assert_int_equal(apr_inputs_check(NULL), APR_E_IO);
    apr_map_close(&ours); /* by another owner's thread */
    assert_null(owner.first);
    apr_map_close(&theirs);
}

enum { LARGE = 80 << 20, AT = 40 << 20 };

/* A file of zeros with a few bytes at AT, and its end. */
static void make_large(const char *path)
{
    write_file(path, "head", 4);
    assert_int_equal(truncate(path, LARGE), 0);
    const int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "middle", 6, AT), 6);
    assert_int_equal(pwrite(fd, "end", 3, LARGE - 3), 3);
    close(fd);
}

static void copies_outlive_what_was_copied(void **state)
{
    apr_input_owner owner = {.copies = true};
    apr_error err = {0};
    char read[6];
    apr_map map;
    (void)state;

    make_large(in_work("large"));
    apr_inputs_own(&owner);
    assert_int_equal(apr_map_open(&map, in_work("large"), NULL), APR_OK);
    assert_int_equal(apr_map_load(map.data + AT, 6, &err), APR_OK);
    apr_map_drop(map.data + AT, 8192); /* would be zeros */
    assert_memory_equal(map.data + AT, "middle", 6);
    apr_map_unload(map.data + AT, 6);
    assert_memory_equal(map.data + AT, "middle", 6);
    assert_int_equal(apr_map_load(map.data + LARGE - 3, 3, &err), APR_OK);
    assert_int_equal(apr_map_keep(&map, AT + 3, &err), APR_OK);
    apr_map_unload(map.data + AT, 6); /* it is kept */
    assert_int_equal(truncate(in_work("large"), 1), 0);
    assert_memory_equal(map.data, "head", 4);
    assert_memory_equal(map.data + AT, "middle", 6);
    assert_memory_equal(map.data + LARGE - 3, "end", 3);
    assert_int_equal(apr_map_load(map.data + AT + 100000, 6, &err), APR_E_IO);
    assert_non_null(strstr(err.text, "cut short"));
    assert_non_null(strstr(err.text, "large"));
    apr_map_read(read, map.data + AT + 200000, sizeof read);
    assert_memory_equal(read, "\0\0\0\0\0", sizeof read);
    assert_int_equal(apr_inputs_check(NULL), APR_E_IO);
    apr_map_close(&map);
    apr_inputs_own(NULL);
}

static void other_owners_do_not_copy(void **state)
{
    apr_map map;
    (void)state;

    make_large(in_work("mapped"));
    assert_int_equal(apr_map_open(&map, in_work("mapped"), NULL), APR_OK);
    assert_int_equal(truncate(in_work("mapped"), 1), 0);
    assert_int_equal(apr_map_load(map.data + AT, 6, NULL), APR_OK); /* nothing is read */
    assert_int_equal(apr_map_keep(&map, LARGE, NULL), APR_OK);
    apr_map_close(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_regular_files_are_inputs),
        cmocka_unit_test(files_are_read_through_links),
        cmocka_unit_test(an_empty_file_is_empty),
        cmocka_unit_test(changes_are_noticed),
        cmocka_unit_test(the_file_counts_not_its_name),
        cmocka_unit_test(what_is_opened_twice_is_the_same_or_changed),
        cmocka_unit_test(a_tool_remembers_what_it_has_closed),
        cmocka_unit_test(reading_maps_no_pages),
        cmocka_unit_test(owners_see_their_own_inputs),
        cmocka_unit_test(copies_outlive_what_was_copied),
        cmocka_unit_test(other_owners_do_not_copy),
    };
    return cmocka_run_group_tests_name("map", tests, make_work, remove_work);
}
