/* formats/base/machine.h: the smallest limit of a process's control groups, and what is left of it. */
#include "formats/base/machine.h"
#include "tests/support/work_folder.h"

#include <errno.h>
#include <sys/stat.h>

/* Makes FOLDER below the work folder, and its parents. */
static void make(const char *folder)
{
    char path[512];
    snprintf(path, sizeof path, "%s", in_work(folder));
    for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
        *at = '/';
    }
    assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
}

static void put(const char *name, const char *text)
{
    FILE *const file = fopen(in_work(name), "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static apr_memory_limit limit_of(const char *self)
{
    char path[512];
    put("self", self);
    snprintf(path, sizeof path, "%s", in_work("self"));
    return apr_cgroup_limit(path, in_work("sys"));
}

static void the_smallest_of_the_groups_above_counts(void **state)
{
    (void)state;
    make("sys/a/b/c");
    put("sys/memory.max", "max\n");
    put("sys/a/memory.max", "1000000\n");
    put("sys/a/memory.current", "950000\n");
    put("sys/a/memory.stat", "anon 100000\nfile 800000\nkernel 1\nshmem 300000\n");
    put("sys/a/b/memory.max", "2000000\n");
    put("sys/a/b/memory.current", "1\n");
    const char *const in[] = {"0::/a\n", "0::/a/b\n", "0::/a/b/c\n", "1:cpu:/x\n0::/a/b/c\n"};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        const apr_memory_limit limit = limit_of(in[i]);
        assert_int_equal(limit.bytes, 1000000);
        assert_int_equal(limit.left, 1000000 - (950000 - 500000)); /* the kernel gives back 500,000 */
    }
    put("sys/a/b/memory.max", "3000\n");
    put("sys/a/b/memory.current", "5000\n"); /* a limit that was lowered */
    const apr_memory_limit limit = limit_of("0::/a/b/c\n");
    assert_int_equal(limit.bytes, 3000);
    assert_int_equal(limit.left, 0);
}

static void the_first_version_has_groups_of_memory(void **state)
{
    (void)state;
    make("sys/memory/docker/1f");
    put("sys/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/memory/docker/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/memory/docker/1f/memory.limit_in_bytes", "4096\n");
    put("sys/memory/docker/1f/memory.usage_in_bytes", "1024\n");
    const apr_memory_limit limit = limit_of("12:pids:/docker/1f\n5:memory:/docker/1f\n");
    assert_int_equal(limit.bytes, 4096);
    assert_int_equal(limit.left, 3072);
    assert_true(limit_of("12:pids:/docker/1f\n").bytes == UINT64_MAX);
    assert_true(limit_of("5:memory:/docker\n").bytes == UINT64_MAX);
}

static void what_cannot_be_read_sets_no_limit(void **state)
{
    (void)state;
    const char *const in[] = {"", "\n", "0", "0:", "0::", "0::/gone/away\n", "::\n::::\n"};
    put("sys/memory.max", "many\n");
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        assert_true(limit_of(in[i]).bytes == UINT64_MAX && limit_of(in[i]).left == UINT64_MAX);
    assert_true(apr_cgroup_limit("/nowhere", "/nowhere").bytes == UINT64_MAX);
    put("sys/memory.max", "77\n");
    assert_int_equal(limit_of("0::/\n").bytes, 77);
    assert_int_equal(limit_of("0::/gone/away\n").bytes, 77);
}

/* Of the machine that runs the test: not more than it has. */
static void this_machine_has_memory(void **state)
{
    (void)state;
    const uint64_t bytes = apr_machine_bytes(), available = apr_machine_available();
    assert_true(bytes > (uint64_t)64 << 20);
    assert_true(available > 0 && available <= bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_of_the_groups_above_counts),
        cmocka_unit_test(the_first_version_has_groups_of_memory),
        cmocka_unit_test(what_cannot_be_read_sets_no_limit),
        cmocka_unit_test(this_machine_has_memory),
    };
    return cmocka_run_group_tests_name("machine", tests, make_work, remove_work);
}
