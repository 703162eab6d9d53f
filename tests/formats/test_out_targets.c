/* test_out_targets.c - formats/files/out.h: what may be a target, what becomes of what is there, and that nothing else is touched; on
 * file systems with and without nameless files and exchanges of names. */
#define _GNU_SOURCE /* flock */
#include "formats/files/map.h"
#include "formats/files/out_internal.h"
#include "tests/support/failing_host.h"
#include "tests/support/work_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>

/* Every test runs in a folder of its own, twice: see apr_out_test_fallbacks. */
static int in_new_folder(void **state)
{
    (void)state;
    umask(022);
    return make_work(NULL);
}

static int out_of_it(void **state)
{
    (void)state;
    return remove_work(NULL);
}

static apr_status put_file(const char *path, const char *text, bool overwrite, apr_error *err)
{
    apr_out *out;
    APR_TRY(apr_out_open(&out, path, strlen(text), overwrite, err));
    assert_int_equal(apr_out_write(out, text, strlen(text), NULL, err), APR_OK);
    return apr_out_finish(out, err);
}

static void assert_holds(const char *path, const char *text)
{
    char found[64] = "";
    const int fd = open(path, O_RDONLY);
    if (fd < 0) fail_msg("%s: %s", path, strerror(errno));
    assert_true(read(fd, found, sizeof found - 1) >= 0);
    close(fd);
    assert_string_equal(found, text);
}

static void assert_refused(apr_status wanted, const char *path, bool overwrite, const char *says)
{
    apr_error err = {0};
    apr_out *out;
    const apr_status status = apr_out_open(&out, path, 1, overwrite, &err);
    if (status != wanted) fail_msg("%s: %d %s", path, (int)status, err.text);
    if (strstr(err.text, says) == NULL) fail_msg("'%s' does not say '%s'", err.text, says);
    assert_null(out);
    assert_int_equal(count_temporaries(work), 0);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

static void a_file_is_there_when_it_is_finished(void **state)
{
    apr_out *out;
    (void)state;
    assert_int_equal(apr_out_open(&out, in_work("f"), 3, false, NULL), APR_OK);
    assert_int_equal(apr_out_write(out, "new", 3, NULL, NULL), APR_OK);
    assert_int_not_equal(access(in_work("f"), F_OK), 0);
    assert_int_equal(apr_out_finish(out, NULL), APR_OK);
    assert_holds(in_work("f"), "new");
    assert_int_equal(count_temporaries(work), 0);
    assert_refused(APR_E_IO, in_work("f"), false, "exists already; give --force");
    assert_int_equal(put_file(in_work("f"), "newer", true, NULL), APR_OK);
    assert_holds(in_work("f"), "newer");
    assert_int_equal(count_temporaries(work), 0);
}

/* Somebody else's ".part", or a name like one of ours, is not ours. */
static void neighbouring_files_are_not_touched(void **state)
{
    static const char *const names[] = {"f.part", "f.tmp", ".f.aprkit-0123456789abcdef", ".f.aprkit-", "f.before.1"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) write_file(in_work(names[i]), "mine", 4);
    assert_int_equal(symlink("f.part", in_work("link.part")), 0);
    assert_int_equal(put_file(in_work("f"), "1", false, NULL), APR_OK);
    assert_int_equal(put_file(in_work("f"), "2", true, NULL), APR_OK);
    assert_int_equal(put_file(in_work("link"), "3", false, NULL), APR_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_holds(in_work(names[i]), "mine");
}

static void only_a_regular_file_is_replaced(void **state)
{
    (void)state;
    write_file(in_work("file"), "old", 3);
    assert_int_equal(mkdir(in_work("dir"), 0755), 0);
    assert_int_equal(mkfifo(in_work("fifo"), 0600), 0);
    assert_int_equal(symlink("file", in_work("link")), 0);
    assert_int_equal(symlink("nowhere", in_work("dangling")), 0);
    assert_refused(APR_E_IO, in_work("dir"), true, "is a folder, not a regular file");
    assert_refused(APR_E_IO, in_work("fifo"), true, "is a FIFO");
    assert_refused(APR_E_IO, in_work("link"), true, "is a symbolic link");
    assert_refused(APR_E_IO, in_work("dangling"), true, "is a symbolic link");
    assert_refused(APR_E_IO, "/dev/null", true, "is a device");
    assert_refused(APR_E_IO, in_work("no/f"), true, "No such file");
    assert_refused(APR_E_IO, in_work("file/f"), true, "Not a directory");
    assert_refused(APR_E_USAGE, in_work("f/"), true, "not a name for a file");
    assert_refused(APR_E_USAGE, "..", true, "not a name for a file");
    assert_refused(APR_E_USAGE, "", true, "not a name for a file");
    assert_holds(in_work("file"), "old");
    assert_int_not_equal(access(in_work("nowhere"), F_OK), 0);
}

static void an_input_is_refused_as_a_target(void **state)
{
    apr_map map;
    apr_error err = {0};
    (void)state;
    write_file(in_work("in"), "input", 5);
    assert_int_equal(link(in_work("in"), in_work("hard")), 0);
    assert_int_equal(symlink("in", in_work("soft")), 0);
    assert_int_equal(apr_map_open(&map, in_work("soft"), NULL), APR_OK);
    assert_refused(APR_E_USAGE, in_work("in"), true, "is the same file as the input");
    assert_refused(APR_E_USAGE, in_work("hard"), true, "is the same file as the input");
    assert_refused(APR_E_IO, in_work("soft"), true, "is a symbolic link");
    assert_int_equal(apr_out_check(in_work("hard"), false, &err), APR_E_USAGE);
    apr_map_close(&map);
    assert_holds(in_work("in"), "input");
    assert_int_equal(put_file(in_work("in"), "ours now", true, NULL), APR_OK);
}

/* It became an input, or a link, while the output was made. */
static void targets_are_asked_again_at_the_end(void **state)
{
    apr_error err = {0};
    apr_out *out;
    apr_map map;
    (void)state;
    write_file(in_work("late"), "old", 3);
    assert_int_equal(apr_out_open(&out, in_work("late"), 0, true, NULL), APR_OK);
    assert_int_equal(apr_map_open(&map, in_work("late"), NULL), APR_OK);
    assert_int_equal(apr_out_finish(out, &err), APR_E_USAGE);
    apr_map_close(&map);
    assert_holds(in_work("late"), "old");

    assert_int_equal(apr_out_open(&out, in_work("late"), 0, true, NULL), APR_OK);
    assert_int_equal(rename(in_work("late"), in_work("moved")), 0);
    assert_int_equal(symlink("moved", in_work("late")), 0);
    assert_int_equal(apr_out_finish(out, NULL), APR_E_IO);
    assert_holds(in_work("moved"), "old");
    assert_int_equal(count_temporaries(work), 0);
}

static void a_changed_input_spoils_the_output(void **state)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    apr_error err = {0};
    apr_map map;
    apr_out *out;
    (void)state;
    write_file(in_work("in"), "input", 5);
    write_file(in_work("old"), "old", 3);
    nanosleep(&moment, NULL);
    assert_int_equal(apr_map_open(&map, in_work("in"), NULL), APR_OK);
    assert_int_equal(apr_out_open(&out, in_work("old"), 0, true, NULL), APR_OK);
    write_file(in_work("in"), "other", 5);
    assert_int_equal(apr_out_finish(out, &err), APR_E_IO);
    assert_non_null(strstr(err.text, "was changed by another program"));
    assert_holds(in_work("old"), "old");
    assert_int_equal(count_temporaries(work), 0);
    apr_map_close(&map);
}

/* Another process, made before this one opens anything, which acts on request. Its exit code: 0 when `act` says so. */
typedef struct other_process {
    pid_t pid;
    int go;
} other_process;

static other_process start_other(bool (*act)(void))
{
    int ends[2], code;
    char c;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        code = read(ends[0], &c, 1) == 1 && act() ? 0 : 1;
        _exit(code);
    }
    close(ends[0]);
    return (other_process){pid, ends[1]};
}

static void let_other_act(other_process other)
{
    int code;
    assert_int_equal(write(other.go, "g", 1), 1);
    close(other.go);
    assert_int_equal(waitpid(other.pid, &code, 0), other.pid);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
}

/* A temporary with a name shows that another run is at work; otherwise the first to finish is the one. */
static bool write_f(void)
{
    apr_error err = {0};
    const apr_status status = put_file(in_work("f"), "second", false, &err);
    if (!apr_out_test_fallbacks) return status == APR_OK;
    write_file(in_work("f"), "second", 6);
    return status == APR_E_IO && strstr(err.text, "is being written by another process") != NULL;
}

static void of_two_writers_one_wins_and_one_says_so(void **state)
{
    apr_error err = {0};
    apr_out *out;
    (void)state;
    const other_process other = start_other(write_f);
    assert_int_equal(apr_out_open(&out, in_work("f"), 0, false, NULL), APR_OK);
    assert_int_equal(apr_out_write(out, "first", 5, NULL, NULL), APR_OK);
    let_other_act(other);
    assert_int_equal(apr_out_finish(out, &err), APR_E_IO);
    assert_non_null(strstr(err.text, "exists by now"));
    assert_holds(in_work("f"), "second");
    assert_int_equal(count_temporaries(work), 0);
}

static void outputs_of_one_run_do_not_collide(void **state)
{
    static const apr_folder_rule rule = {0};
    apr_folder *folder;
    apr_error err = {0};
    apr_out *out;
    (void)state;
    assert_int_equal(apr_out_open(&out, in_work("f"), 0, false, NULL), APR_OK);
    char same[256];
    snprintf(same, sizeof same, "%s/./f", work);
    apr_out *second;
    assert_int_equal(apr_out_open(&second, same, 0, false, &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "two outputs of this run"));
    assert_int_equal(apr_out_check(same, false, NULL), APR_E_USAGE);
    apr_out_abandon(out);
    assert_int_equal(mkdir(in_work("d"), 0755), 0);
    assert_int_equal(apr_out_open(&out, in_work("d/report"), 0, false, NULL), APR_OK);
    err = (apr_error){0};
    assert_int_equal(apr_folder_open(&folder, in_work("d"), 0, true, rule, &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "would be in"));
    apr_out_abandon(out);
}

static void assert_together(apr_status wanted, apr_out_request a, apr_out_request b, const char *says)
{
    for (int i = 0; i < 2; i++) { /* in either order */
        const apr_out_request all[] = {i == 0 ? a : b, i == 0 ? b : a};
        apr_error err = {0};
        assert_int_equal(apr_outs_check(all, 2, &err), wanted);
        if (strstr(err.text, says) == NULL) fail_msg("'%s' does not say '%s'", err.text, says);
    }
}

static void all_that_a_run_writes_is_asked_together(void **state)
{
    char same[256], linked[256], link_to_work[128];
    apr_out *out;
    (void)state;
    char first[128], second[128];
    snprintf(first, sizeof first, "%s/f", work);
    snprintf(second, sizeof second, "%s/other", work);
    const apr_out_request f = {.path = first}, other = {.path = second};
    assert_together(APR_OK, f, other, "");
    snprintf(same, sizeof same, "%s/./f", work);
    assert_together(APR_E_USAGE, f, (apr_out_request){.path = same}, "two outputs of this run");
    snprintf(link_to_work, sizeof link_to_work, "%s-link", work);
    snprintf(linked, sizeof linked, "%s/f", link_to_work);
    assert_int_equal(symlink(work, link_to_work), 0);
    assert_together(APR_E_USAGE, f, (apr_out_request){.path = linked}, "two outputs of this run");
    assert_together(APR_E_USAGE, f, (apr_out_request){.path = linked, .is_dry = true}, "two outputs of this run");
    assert_int_equal(unlink(link_to_work), 0);
    assert_int_equal(put_file(f.path, "mine", false, NULL), APR_OK);
    assert_together(APR_E_IO, f, other, "exists already");
    assert_together(APR_E_IO, (apr_out_request){.path = f.path, .mark = "yours"}, other, "something else");
    assert_together(APR_OK, (apr_out_request){.path = f.path, .mark = "mine"}, other, "");
    assert_together(APR_OK, (apr_out_request){.path = f.path, .is_dry = true}, other, "");
    assert_int_equal(link(f.path, other.path), 0);
    const apr_out_request over_f = {.path = f.path, .overwrite = true}, over_other = {.path = other.path, .overwrite = true};
    assert_together(APR_E_USAGE, over_f, over_other, "is the same file as");
    assert_together(APR_E_IO, over_f, (apr_out_request){.path = in_work("no/g")}, "cannot write there");
    assert_int_equal(apr_out_open(&out, f.path, 0, true, NULL), APR_OK); /* asking has kept nothing */
    apr_out_abandon(out);
    assert_int_equal(count_temporaries(work), 0);
}

static void a_report_takes_the_place_of_a_report_only(void **state)
{
    apr_out *out;
    (void)state;
    write_file(in_work("report"), "{\"is\":\"report\"}", 15);
    write_file(in_work("config"), "{\"is\":\"config\"}", 15);
    write_file(in_work("empty"), "", 0);
    assert_int_equal(apr_out_open_marked(&out, in_work("config"), "\"report\"", NULL), APR_E_IO);
    assert_holds(in_work("config"), "{\"is\":\"config\"}");
    static const char *const names[] = {"report", "empty", "new"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(apr_out_open_marked(&out, in_work(names[i]), "\"report\"", NULL), APR_OK);
        assert_int_equal(apr_out_write(out, "text", 4, NULL, NULL), APR_OK);
        assert_int_equal(apr_out_finish(out, NULL), APR_OK);
        assert_holds(in_work(names[i]), "text");
    }
    /* something else came under the name meanwhile */
    static const char *const comes[] = {"report", "late"};
    write_file(in_work("report"), "{\"is\":\"report\"}", 15);
    for (size_t i = 0; i < 2; i++) {
        apr_error err = {0};
        assert_int_equal(apr_out_open_marked(&out, in_work(comes[i]), "\"report\"", NULL), APR_OK);
        write_file(in_work(comes[i]), "precious", 8);
        assert_int_equal(apr_out_finish(out, &err), APR_E_IO);
        assert_non_null(strstr(err.text, "exists already and is something else"));
        assert_holds(in_work(comes[i]), "precious");
        assert_int_equal(count_temporaries(work), 0);
    }
}

static void names_that_would_join_a_checkpoint_are_refused(void **state)
{
    apr_map map;
    (void)state;
    write_file(in_work("model.safetensors"), "weights", 7);
    assert_int_equal(apr_map_open(&map, in_work("model.safetensors"), NULL), APR_OK);
    assert_refused(APR_E_USAGE, in_work("vocab.json"), false, "would become a part of the checkpoint");
    assert_refused(APR_E_USAGE, in_work("new.safetensors"), false, "would become a part of the checkpoint");
    assert_int_equal(put_file(in_work("model.gguf"), "x", false, NULL), APR_OK);
    apr_map_close(&map);
}

static void modes_are_kept_and_never_wider_than_the_input(void **state)
{
    apr_map map;
    (void)state;
    assert_int_equal(put_file(in_work("plain"), "x", false, NULL), APR_OK);
    assert_int_equal(mode_of(in_work("plain")), 0644);
    write_file(in_work("in"), "x", 1);
    static const struct {
        mode_t input, mask, wanted;
    } rows[] = {{0600, 022, 0600}, {0640, 0, 0640}, {0604, 0, 0604}, {0644, 027, 0640}, {0444, 0, 0644}, {0755, 0, 0644}, {0400, 0, 0600}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(chmod(in_work("in"), rows[i].input), 0);
        assert_int_equal(apr_map_open(&map, in_work("in"), NULL), APR_OK);
        umask(rows[i].mask);
        assert_int_equal(put_file(in_work("new"), "x", false, NULL), APR_OK);
        assert_int_equal(mode_of(in_work("new")), rows[i].wanted);
        apr_map_close(&map);
        unlink(in_work("new"));
    }
    umask(022);
    static const mode_t kept[] = {0600, 0664, 0444, 0755};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        assert_int_equal(chmod(in_work("plain"), kept[i]), 0);
        assert_int_equal(put_file(in_work("plain"), "y", true, NULL), APR_OK);
        assert_int_equal(mode_of(in_work("plain")), kept[i]);
    }
}

/* --- folders --- */

static bool is_letter(const void *context, const char *name)
{
    (void)context;
    return strlen(name) == 1;
}
static const apr_folder_rule letters = {is_letter, NULL};

static apr_status put_folder(const char *path, bool overwrite, const char *names, apr_error *err)
{
    apr_folder *folder;
    APR_TRY(apr_folder_open(&folder, path, 10, overwrite, letters, err));
    for (; *names != '\0'; names++) {
        apr_out *out;
        assert_int_equal(apr_folder_file(folder, (char[2]){*names, '\0'}, 3, &out, err), APR_OK);
        assert_int_equal(apr_out_write(out, "new", 3, NULL, err), APR_OK);
        assert_int_equal(apr_out_finish(out, err), APR_OK);
    }
    return apr_folder_finish(folder, err);
}

static void a_folder_is_replaced_whole_or_not(void **state)
{
    apr_error err = {0};
    apr_folder *folder;
    (void)state;
    assert_int_equal(put_folder(in_work("d/"), false, "ab", &err), APR_OK);
    assert_holds(in_work("d/a"), "new");
    assert_int_equal(put_folder(in_work("d"), false, "ab", &err), APR_E_IO);
    assert_non_null(strstr(err.text, "exists already"));
    assert_int_equal(chmod(in_work("d"), 0750), 0);
    assert_int_equal(chmod(in_work("d/b"), 0600), 0);
    if (put_folder(in_work("d"), true, "bc", &(apr_error){0}) != APR_OK) fail();
    assert_int_equal(mode_of(in_work("d")), 0750);
    assert_int_equal(mode_of(in_work("d/b")), 0600);
    assert_int_equal(mode_of(in_work("d/c")), 0644);
    assert_int_not_equal(access(in_work("d/a"), F_OK), 0);

    assert_int_equal(apr_folder_open(&folder, in_work("d"), 0, true, letters, NULL), APR_OK);
    apr_folder_abandon(folder);
    assert_holds(in_work("d/c"), "new");
    assert_int_equal(count_temporaries(work), 0);
}

/* A file that comes while the new folder is made is not lost. */
static void what_comes_into_the_old_folder_is_kept(void **state)
{
    apr_error err = {0};
    apr_folder *folder;
    (void)state;
    assert_int_equal(put_folder(in_work("d"), false, "a", NULL), APR_OK);
    assert_int_equal(apr_folder_open(&folder, in_work("d"), 0, true, letters, NULL), APR_OK);
    write_file(in_work("d/thesis"), "years", 5);
    assert_int_equal(apr_folder_finish(folder, &err), APR_E_IO);
    assert_non_null(strstr(err.text, "'thesis'"));
    assert_holds(in_work("d/thesis"), "years");
    assert_holds(in_work("d/a"), "new");
    assert_int_equal(count_temporaries(work), 0);
}

static void a_folder_that_holds_an_input_stays(void **state)
{
    apr_error err = {0};
    apr_folder *folder;
    apr_map map;
    (void)state;
    assert_int_equal(mkdir(in_work("top"), 0755), 0);
    assert_int_equal(mkdir(in_work("top/d"), 0755), 0);
    write_file(in_work("top/d/a"), "input", 5);
    assert_int_equal(symlink("top/d", in_work("way")), 0);
    assert_int_equal(apr_map_open(&map, in_work("way/a"), NULL), APR_OK);
    assert_int_equal(apr_folder_open(&folder, in_work("top/d"), 0, true, letters, &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "holds the input"));
    assert_int_equal(apr_folder_open(&folder, in_work("top"), 0, true, letters, NULL), APR_E_USAGE);
    assert_int_equal(apr_folder_open(&folder, in_work("way"), 0, true, letters, NULL), APR_E_IO); /* a link */
    assert_int_equal(apr_out_check(in_work("top"), true, NULL), APR_E_USAGE);
    assert_int_equal(apr_folder_open(&folder, in_work("top/d/new"), 0, false, letters, NULL), APR_OK); /* next to it is fine */
    apr_folder_abandon(folder);
    apr_map_close(&map);
    assert_holds(in_work("top/d/a"), "input");
}

static bool is_asked_to_wait(void)
{
    apr_error err = {0};
    apr_folder *folder;
    return apr_folder_open(&folder, in_work("d"), 0, true, letters, &err) == APR_E_IO && strstr(err.text, "by another process") != NULL;
}

static void a_folder_is_made_by_one_process_at_a_time(void **state)
{
    apr_folder *folder;
    (void)state;
    for (int i = 0; i < 2; i++) { /* a new one, then one in place of it */
        const other_process other = start_other(is_asked_to_wait);
        assert_int_equal(apr_folder_open(&folder, in_work("d"), 0, true, letters, NULL), APR_OK);
        let_other_act(other);
        assert_int_equal(apr_folder_finish(folder, NULL), APR_OK);
        assert_int_equal(count_temporaries(work), 0);
    }
}

/* --- what is left --- */

/* A child that opens outputs and then ends in some way. */
static void in_child(void (*end)(void))
{
    int code;
    const pid_t child = fork();
    if (child == 0) {
        apr_folder *folder;
        apr_out *out, *in_folder;
        if (apr_folder_open(&folder, in_work("d"), 0, false, letters, NULL) != APR_OK) _exit(9);
        if (apr_folder_file(folder, "a", 3, &in_folder, NULL) != APR_OK) _exit(9);
        if (apr_out_open(&out, in_work("f"), 0, false, NULL) != APR_OK) _exit(9);
        end();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    if (WIFEXITED(code)) assert_int_equal(WEXITSTATUS(code), 0);
    assert_int_not_equal(access(in_work("d"), F_OK), 0);
    assert_int_not_equal(access(in_work("f"), F_OK), 0);
}

static void kill_me(void) { raise(SIGKILL); }

static void a_handler_removes_all_that_is_unfinished(void **state)
{
    (void)state;
    in_child(apr_out_remove_unfinished);
    assert_int_equal(count_temporaries(work), 0);
}

static void what_a_killed_run_left_goes_with_the_next(void **state)
{
    apr_folder *folder;
    apr_out *out;
    (void)state;
    in_child(kill_me);
    assert_int_equal(count_temporaries(work), apr_out_test_fallbacks ? 2 : 1); /* a folder needs a name */
    assert_int_equal(apr_folder_open(&folder, in_work("other"), 0, false, letters, NULL), APR_OK);
    apr_folder_abandon(folder);
    assert_int_equal(count_temporaries(work), apr_out_test_fallbacks ? 2 : 1); /* it is not that name's */
    assert_int_equal(apr_folder_open(&folder, in_work("d"), 0, false, letters, NULL), APR_OK);
    assert_int_equal(apr_out_open(&out, in_work("f"), 0, false, NULL), APR_OK);
    assert_int_equal(count_temporaries(work), apr_out_test_fallbacks ? 2 : 1); /* new ones in place of the old */
    apr_folder_abandon(folder);
    apr_out_abandon(out);
    assert_int_equal(count_temporaries(work), 0);
}

/* Also where a tenth of a MiB is missing. */
static void a_full_disk_is_reported_with_figures_that_differ(void **state)
{
    static const uint64_t more[] = {1 << 16, 1 << 28};
    (void)state;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        apr_error err = {0};
        char needed[64], there[64];
        struct statvfs fs;
        assert_int_equal(statvfs(work, &fs), 0);
        assert_int_equal(apr_out_check_disk(work, (uint64_t)fs.f_bavail * fs.f_frsize + more[i] + (64 << 20), &err), APR_E_IO);
        const char *const text = strstr(err.text, "on the disk: ");
        assert_non_null(text);
        assert_int_equal(sscanf(text, "on the disk: %60[^,], %60[^;]", needed, there), 2);
        assert_string_equal(strrchr(needed, ' '), " needed");
        assert_string_equal(strrchr(there, ' '), " free");
        *strrchr(needed, ' ') = *strrchr(there, ' ') = '\0';
        assert_string_not_equal(needed, there);
    }
}

static void a_limit_on_files_is_a_sentence(void **state)
{
    struct rlimit before, limit;
    apr_error err = {0};
    apr_out *out;
    (void)state;
    signal(SIGXFSZ, SIG_IGN); /* as tools do */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const apr_status early = apr_out_open(&out, in_work("f"), 2000, false, &err);
    assert_int_equal(apr_out_open(&out, in_work("f"), 0, false, NULL), APR_OK);
    char zeros[2000] = {0};
    const apr_status late = apr_out_write(out, zeros, sizeof zeros, NULL, NULL);
    apr_out_abandon(out);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(early, APR_E_IO);
    assert_non_null(strstr(err.text, "2000 bytes needed, but files are limited to 1000 bytes (ulimit -f)"));
    assert_int_equal(late, APR_E_IO);
    assert_int_equal(count_temporaries(work), 0);
}

/* Whichever fsync says so, of content or of names. */
static void a_fault_of_the_disk_is_a_failure(void **state)
{
    (void)state;
    for (int is_folder = 0; is_folder < 2; is_folder++) {
        apr_status status = APR_E_IO;
        int64_t nth = 0;
        while (status != APR_OK && nth < 10) {
            apr_error err = {0};
            failing_host_sync(++nth);
            status = is_folder ? put_folder(in_work("d"), true, "", &err) : put_file(in_work("f"), "new", true, &err);
            failing_host_sync(0);
            assert_true(status == APR_OK || (status == APR_E_IO && strstr(err.text, strerror(EIO)) != NULL));
            assert_int_equal(count_temporaries(work), 0);
        }
        assert_int_equal(status, APR_OK);
        assert_int_equal(nth, 3);
        if (!is_folder) assert_holds(in_work("f"), "new");
    }
}

static void what_cannot_be_removed_is_kept_and_named(void **state)
{
    static const char *const names[] = {"d", "e"};
    (void)state;
    for (int64_t nth = 1; nth <= 2; nth++) {
        const char *const name = names[nth - 1];
        char kept[128], path[64];
        apr_error err = {0};
        assert_int_equal(put_folder(in_work(name), false, "ab", NULL), APR_OK);
        failing_host_unlink(nth);
        const apr_status status = put_folder(in_work(name), true, "c", &err);
        failing_host_unlink(0);
        assert_int_equal(status, APR_E_IO);
        snprintf(kept, sizeof kept, "files of the folder that it replaces cannot be removed; the old folder is kept as %s.before.", name);
        assert_non_null(strstr(err.text, kept));
        snprintf(path, sizeof path, "%s/c", name);
        assert_holds(in_work(path), "new");
        assert_int_equal(count_temporaries(work), 0);
    }
}

/* Whichever descriptor there is none left for: what was made is removed, and the first attempt with enough of them works. */
static void nothing_stays_when_descriptors_run_out(void **state)
{
    struct rlimit before, limit;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (int is_folder = 0; is_folder < 2; is_folder++) {
        apr_status status = APR_E_IO;
        int n_failed = 0;
        for (int n_left = 0; status != APR_OK && n_left < 32; n_left++) {
            apr_out *out = NULL;
            apr_folder *folder = NULL;
            const int lowest = dup(STDIN_FILENO);
            assert_true(lowest >= 0);
            close(lowest);
            limit = before;
            limit.rlim_cur = (rlim_t)(lowest + n_left);
            assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
            status = is_folder ? apr_folder_open(&folder, in_work("d"), 0, false, letters, NULL)
                               : apr_out_open(&out, in_work("f"), 0, false, NULL);
            assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
            if (status == APR_OK && is_folder) apr_folder_abandon(folder);
            if (status == APR_OK && !is_folder) apr_out_abandon(out);
            n_failed += status == APR_E_IO;
            assert_true(status == APR_OK || status == APR_E_IO);
            assert_int_equal(count_temporaries(work), 0);
        }
        assert_int_equal(status, APR_OK);
        assert_true(n_failed > 0);
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, in_new_folder, out_of_it)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_is_there_when_it_is_finished),
        TEST(neighbouring_files_are_not_touched),
        TEST(only_a_regular_file_is_replaced),
        TEST(an_input_is_refused_as_a_target),
        TEST(targets_are_asked_again_at_the_end),
        TEST(a_changed_input_spoils_the_output),
        TEST(of_two_writers_one_wins_and_one_says_so),
        TEST(outputs_of_one_run_do_not_collide),
        TEST(all_that_a_run_writes_is_asked_together),
        TEST(a_report_takes_the_place_of_a_report_only),
        TEST(names_that_would_join_a_checkpoint_are_refused),
        TEST(modes_are_kept_and_never_wider_than_the_input),
        TEST(a_folder_is_replaced_whole_or_not),
        TEST(what_comes_into_the_old_folder_is_kept),
        TEST(a_folder_that_holds_an_input_stays),
        TEST(a_folder_is_made_by_one_process_at_a_time),
        TEST(a_handler_removes_all_that_is_unfinished),
        TEST(what_a_killed_run_left_goes_with_the_next),
        TEST(a_full_disk_is_reported_with_figures_that_differ),
        TEST(a_limit_on_files_is_a_sentence),
        TEST(a_fault_of_the_disk_is_a_failure),
        TEST(what_cannot_be_removed_is_kept_and_named),
        TEST(nothing_stays_when_descriptors_run_out),
    };
    const int failed = cmocka_run_group_tests_name("out_targets", tests, NULL, NULL);
    apr_out_test_fallbacks = true;
    return failed + cmocka_run_group_tests_name("out_targets on a poor file system", tests, NULL, NULL);
}
