/* test_work_sink.c - outputs that several runs make: whole, in parts, after failures, in each format; the same file as by one run. */
#include "formats/base/crc32.h"
#include "formats/files/map.h"
#include "formats/files/out_internal.h"
#include "formats/tensor/sink.h"
#include "tests/support/work_folder.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>

enum { N = 9 };

static const struct output {
    apr_format format;
    const char *name, *other;
} outputs[] = {{APR_FORMAT_GGUF, "a.gguf", "b.gguf"}, {APR_FORMAT_APR, "a.apr", "b.apr"}, {APR_FORMAT_SAFETENSORS, "a", "b"}};
enum { N_OUTPUTS = sizeof outputs / sizeof *outputs };

static apr_tensor tensors[N];
static bool continues[N];
static apr_model layout = {.path = "test", .tensors = tensors, .n_tensors = N};

/* Tensors of many sizes, one of them empty; the last but one goes with the one before it. */
static int make_layout(void **state)
{
    static const int64_t sizes[N] = {3000, 10, 0, 40000, 1, 5000, 16, 8192, 77};
    static char names[N][24];
    static uint8_t bytes[4 * 65536];

    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "tensor.%d", i);
        tensors[i] = (apr_tensor){.name = names[i], .dtype = APR_F32, .rank = 1, .dims = {sizes[i]}, .data = bytes + 16 * i};
        tensors[i].n_bytes = 4 * (uint64_t)sizes[i];
    }
    continues[7] = true;
    return make_work(state);
}

static apr_status open_sink(apr_sink **sink, const struct output *o, const char *name, int part, int n_parts)
{
    static apr_sink_work several;
    static apr_error err;
    several = (apr_sink_work){.part = {part, n_parts}, .terms = "line one\nline two\n", .continues = continues};
    err = (apr_error){0};
    const apr_sink_options options = {.max_shard_bytes = 50000, .work = n_parts >= 0 ? &several : NULL};
    return apr_sink_open(sink, o->format, in_work(name), &layout, &options, &err);
}

static bool fills_extents; /* two of three tensors; the others are put in order */

/* In pieces, the last one first, by several threads at once. */
static void fill_extent(apr_sink *sink, const apr_tensor *t)
{
    enum { PIECE = 4001 };
    const int n_pieces = (int)((t->n_bytes + PIECE - 1) / PIECE);
    apr_extent extent;
    bool has_extent;
    int n_bad = 0;

    assert_int_equal(apr_sink_extent(sink, &extent, &has_extent, NULL), APR_OK);
    assert_true(has_extent);
    assert_int_equal(extent.n_bytes, t->n_bytes);
#pragma omp parallel for num_threads(4) reduction(+ : n_bad)
    for (int i = n_pieces - 1; i >= 0; i--) {
        const uint64_t at = (uint64_t)i * PIECE, n = t->n_bytes - at < PIECE ? t->n_bytes - at : PIECE;
        n_bad += apr_extent_put(&extent, at, t->data + at, (size_t)n, NULL) != APR_OK;
    }
    assert_int_equal(n_bad, 0);
    assert_int_equal(apr_extent_put(&extent, t->n_bytes - 1, "ab", 2, NULL), APR_E_USAGE); /* of what comes next */
    assert_int_equal(apr_extent_put(&extent, UINT64_MAX, "a", 1, NULL), APR_E_USAGE);
    assert_int_equal(apr_sink_pass(sink, extent.wants_crc ? apr_crc32(0, t->data, (size_t)t->n_bytes) : 0, NULL), APR_OK);
}

/* Puts and notes what is wanted, at most n_tensors; returns how many. */
static int feed(apr_sink *sink, int n_tensors)
{
    int n = 0;
    for (size_t i = 0; i < N && n < n_tensors; i++) {
        char note[32];
        if (apr_sink_state(sink, i) != APR_TENSOR_WANTED) continue;
        snprintf(note, sizeof note, "about %zu", i);
        n++;
        if (fills_extents && i % 3 != 1 && tensors[i].n_bytes > 0) {
            fill_extent(sink, &tensors[i]);
            assert_int_equal(apr_sink_done(sink, i, note, NULL), APR_OK);
            continue;
        }
        const size_t half = (size_t)tensors[i].n_bytes / 2;
        assert_int_equal(apr_sink_put(sink, tensors[i].data, half, NULL), APR_OK);
        assert_int_equal(apr_sink_put(sink, tensors[i].data + half, (size_t)tensors[i].n_bytes - half, NULL), APR_OK);
        assert_int_equal(apr_sink_done(sink, i, note, NULL), APR_OK);
    }
    return n;
}

static int run_part(const struct output *o, const char *name, int part, int n_parts)
{
    apr_sink *sink;
    assert_int_equal(open_sink(&sink, o, name, part, n_parts), APR_OK);
    const int n = feed(sink, N);
    assert_int_equal(apr_sink_finish(sink, NULL), APR_OK);
    return n;
}

static bool exists(const char *name) { return access(in_work(name), F_OK) == 0; }

/* The file, or the files of the folder, and nothing else. */
static void assert_made(const struct output *o)
{
    char a[64], b[64];
    snprintf(a, sizeof a, "%s.resume", o->other);
    assert_false(exists(a));
    if (o->format != APR_FORMAT_SAFETENSORS) {
        assert_same_file(in_work(o->name), in_work(o->other));
        assert_int_equal(unlink(in_work(o->other)), 0);
        return;
    }
    static const char *const files[] = {"model.safetensors.index.json", "model-00001-of-00004.safetensors",
                                        "model-00004-of-00004.safetensors"};
    for (int i = 0; i < 3; i++) {
        snprintf(a, sizeof a, "a/%s", files[i]);
        snprintf(b, sizeof b, "b/%s", files[i]);
        assert_same_file(in_work(a), in_work(b));
    }
    char command[256];
    snprintf(command, sizeof command, "diff -r %s %s && rm -r %s", in_work("a"), in_work("b"), in_work("b"));
    assert_int_equal(system(command), 0);
}

static void one_run_is_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < N_OUTPUTS; i++) assert_int_equal(run_part(&outputs[i], outputs[i].name, 0, -1), N);
}

static void extents_filled_by_threads_make_the_same_file(void **state)
{
    (void)state;
    fills_extents = true;
    for (int i = 0; i < N_OUTPUTS; i++)
        for (int n_parts = -1; n_parts <= 1; n_parts += 2) { /* in one run, and with a journal */
            assert_int_equal(run_part(&outputs[i], outputs[i].other, 0, n_parts), N);
            assert_made(&outputs[i]);
        }
    fills_extents = false;
}

static void an_extent_that_cannot_be_written_says_which_file(void **state)
{
    apr_extent extent = {.fd = -1, .n_bytes = 5, .path = "a.gguf", .advice = "; try again"};
    apr_error err = {0};
    (void)state;
    assert_int_equal(apr_extent_put(&extent, 0, "12345", 5, &err), APR_E_IO);
    assert_string_equal(err.text, "a.gguf: writing failed after 0.0 MiB: Bad file descriptor; try again");
}

static void a_whole_run_goes_on_after_each_tensor(void **state)
{
    (void)state;
    for (int i = 0; i < N_OUTPUTS; i++)
        for (int n = 0; n <= N; n++) {
            apr_sink *sink;
            assert_int_equal(open_sink(&sink, &outputs[i], outputs[i].other, 0, 1), APR_OK);
            assert_int_equal(feed(sink, n), n);
            apr_sink_abandon(sink);
            assert_false(exists(outputs[i].other));
            assert_int_equal(open_sink(&sink, &outputs[i], outputs[i].other, 0, 1), APR_OK);
            /* tensor 6 without the 7 that continues it is made again */
            const int there = n == 7 ? 6 : n;
            const apr_sink_progress progress = apr_sink_progress_of(sink);
            assert_int_equal(progress.n_there, there);
            for (int t = 0; t < N; t++)
                assert_int_equal(apr_sink_state(sink, (size_t)t), t < there ? APR_TENSOR_DONE_BEFORE : APR_TENSOR_WANTED);
            if (there > 3) assert_string_equal(apr_sink_note(sink, 3), "about 3");
            assert_int_equal(feed(sink, N), N - there);
            assert_int_equal(apr_sink_finish(sink, NULL), APR_OK);
            assert_made(&outputs[i]);
        }
}

static void parts_are_made_in_any_order_and_number(void **state)
{
    (void)state;
    for (int i = 0; i < N_OUTPUTS; i++)
        for (int n_parts = 1; n_parts <= 12; n_parts += 1 + n_parts / 4) {
            int n = 0;
            for (int k = n_parts; k >= 1; k--) n += run_part(&outputs[i], outputs[i].other, k, n_parts);
            assert_int_equal(n, N);
            for (int k = 1; k <= n_parts; k++) assert_int_equal(run_part(&outputs[i], outputs[i].other, k, n_parts), 0);
            assert_int_equal(run_part(&outputs[i], outputs[i].other, 0, 0), 0);
            assert_made(&outputs[i]);
        }
}

static void shares_are_balanced_and_keep_together_what_continues(void **state)
{
    (void)state;
    uint64_t total = 0;
    for (int i = 0; i < N; i++) total += tensors[i].n_bytes;
    for (int n_parts = 2; n_parts <= 5; n_parts++) {
        int part_of[N] = {0};
        for (int k = 1; k <= n_parts; k++) {
            apr_sink *sink;
            uint64_t n_bytes = 0;
            assert_int_equal(open_sink(&sink, &outputs[0], "shares.gguf", k, n_parts), APR_OK);
            for (int i = 0; i < N; i++) {
                if (apr_sink_state(sink, (size_t)i) != APR_TENSOR_WANTED) continue;
                assert_int_equal(part_of[i], 0);
                part_of[i] = k;
                n_bytes += tensors[i].n_bytes;
            }
            assert_true(n_bytes <= total / (uint64_t)n_parts + tensors[3].n_bytes); /* the largest there is */
            apr_sink_abandon(sink);
        }
        for (int i = 0; i < N; i++) assert_int_not_equal(part_of[i], 0);
        assert_int_equal(part_of[6], part_of[7]);
        char command[128];
        snprintf(command, sizeof command, "rm -r %s.resume", in_work("shares.gguf"));
        assert_int_equal(system(command), 0);
    }
}

static void a_finish_names_the_parts_that_are_missing(void **state)
{
    apr_sink *sink;
    apr_error err = {0};
    (void)state;
    const apr_sink_work several = {.part = {0, 0}, .terms = "line one\nline two\n", .continues = continues};
    const apr_sink_options options = {.work = &several};
    run_part(&outputs[0], "b.gguf", 1, 3);
    assert_int_equal(apr_sink_open(&sink, APR_FORMAT_GGUF, in_work("b.gguf"), &layout, &options, &err), APR_E_NO);
    assert_non_null(strstr(err.text, "run these parts: 2/3, 3/3"));
    run_part(&outputs[0], "b.gguf", 2, 3);
    run_part(&outputs[0], "b.gguf", 3, 3);
    run_part(&outputs[0], "b.gguf", 0, 0);
    assert_made(&outputs[0]);
}

static void other_terms_are_refused_with_their_line(void **state)
{
    apr_sink *sink;
    apr_error err = {0};
    (void)state;
    const apr_sink_work several = {.part = {1, 2}, .terms = "line one\nline 2\n", .continues = continues};
    const apr_sink_options options = {.work = &several};
    run_part(&outputs[0], "b.gguf", 1, 2);
    assert_int_equal(apr_sink_open(&sink, APR_FORMAT_GGUF, in_work("b.gguf"), &layout, &options, &err), APR_E_IO);
    assert_non_null(strstr(err.text, "started with 'line two', but this run has 'line 2'"));
    run_part(&outputs[0], "b.gguf", 2, 2);
    run_part(&outputs[0], "b.gguf", 0, 0);
    assert_made(&outputs[0]);
}

static void only_one_process_makes_a_part_at_a_time(void **state)
{
    apr_sink *one, *other;
    (void)state;
    assert_int_equal(open_sink(&one, &outputs[1], "b.apr", 2, 4), APR_OK);
    assert_int_equal(open_sink(&other, &outputs[1], "b.apr", 2, 4), APR_E_IO);
    assert_int_equal(open_sink(&other, &outputs[1], "b.apr", 0, 0), APR_E_IO); /* nor completes */
    assert_int_equal(open_sink(&other, &outputs[1], "b.apr", 3, 4), APR_OK);
    feed(other, N);
    feed(one, N);
    assert_int_equal(apr_sink_finish(other, NULL), APR_OK);
    assert_int_equal(apr_sink_finish(one, NULL), APR_OK);
    run_part(&outputs[1], "b.apr", 1, 4);
    run_part(&outputs[1], "b.apr", 4, 4);
    run_part(&outputs[1], "b.apr", 0, 0);
    assert_made(&outputs[1]);
}

static void where_there_are_no_locks_the_same_part_may_be_made_twice_at_once(void **state)
{
    (void)state;
    apr_out_test_fallbacks = true;
    for (int i = 0; i < N_OUTPUTS; i++) {
        apr_sink *one, *other;
        assert_int_equal(open_sink(&one, &outputs[i], outputs[i].other, 2, 2), APR_OK);
        assert_int_equal(open_sink(&other, &outputs[i], outputs[i].other, 2, 2), APR_OK);
        assert_int_equal(feed(one, 1), 1);
        feed(other, N);
        assert_int_equal(apr_sink_finish(other, NULL), APR_OK);
        run_part(&outputs[i], outputs[i].other, 1, 2);
        run_part(&outputs[i], outputs[i].other, 0, 0); /* while the one is still at work */
        assert_made(&outputs[i]);
        apr_sink_abandon(one);
    }
    apr_out_test_fallbacks = false;
}

/* Bytes beyond a limit cannot be written, as on a disk that is full. */
static void a_full_disk_leaves_what_is_done(void **state)
{
    struct rlimit before, little = {.rlim_cur = 100000};
    apr_sink *sink;
    apr_error err = {0};
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little.rlim_max = before.rlim_max;
    assert_int_equal(open_sink(&sink, &outputs[0], "b.gguf", 0, 1), APR_OK);
    assert_int_equal(feed(sink, 3), 3);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    assert_int_equal(apr_sink_put(sink, tensors[3].data, (size_t)tensors[3].n_bytes, &err), APR_E_IO);
    assert_non_null(strstr(err.text, "writing failed after 0.0 MiB: File too large; finished tensors are kept"));
    apr_sink_abandon(sink);
    assert_int_equal(open_sink(&sink, &outputs[0], "b.gguf", 0, 1), APR_E_IO); /* still full */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(open_sink(&sink, &outputs[0], "b.gguf", 0, 1), APR_OK);
    assert_int_equal(apr_sink_progress_of(sink).n_there, 3);
    feed(sink, N);
    assert_int_equal(apr_sink_finish(sink, NULL), APR_OK);
    assert_made(&outputs[0]);
}

static void a_journal_that_cannot_be_written_loses_nothing_before_it(void **state)
{
    apr_resume *resume;
    apr_error err = {0};
    struct rlimit before, little;
    const apr_record first = {1, 40, 7, "a"}, second = {3, 160000, 8, "b"};
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(apr_resume_open(&resume, in_work("c.gguf"), false, false, (apr_resume_part){0, 1}, "terms\n", NULL), APR_OK);
    assert_int_equal(apr_resume_note(resume, &first, 1, NULL), APR_OK);
    little = (struct rlimit){70, before.rlim_max}; /* in the middle of the next line */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    assert_int_equal(apr_resume_note(resume, &second, 1, &err), APR_E_IO);
    assert_non_null(strstr(err.text, "the journal cannot be written: File too large"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(apr_resume_note(resume, &second, 1, NULL), APR_OK); /* after whole lines again */
    apr_resume_close(resume);
    assert_int_equal(apr_resume_open(&resume, in_work("c.gguf"), false, false, (apr_resume_part){0, 1}, "terms\n", NULL), APR_OK);
    assert_int_equal(apr_resume_records(resume)->n_items, 2);
    apr_resume_remove(resume);
    apr_resume_close(resume);
    assert_false(exists("c.gguf.resume"));
}

static uint32_t crc_of(const char *name)
{
    apr_map map;
    assert_int_equal(apr_map_open(&map, in_work(name), NULL), APR_OK);
    const uint32_t crc = apr_crc32(0, map.data, map.n_bytes);
    apr_map_close(&map);
    return crc;
}

static void mark_final(const struct output *o, const struct stat *st, uint32_t terms_crc)
{
    char name[64], text[96];
    snprintf(name, sizeof name, "%s.resume/final", o->other);
    const int n = snprintf(text, sizeof text, "%llu %llu %x\n", (unsigned long long)st->st_dev, (unsigned long long)st->st_ino, terms_crc);
    write_file(in_work(name), text, (size_t)n);
}

/* Killed between taking the final name and removing the folder. */
static void what_has_its_name_already_is_only_tidied_up(void **state)
{
    (void)state;
    for (int i = 0; i < N_OUTPUTS; i++)
        for (int poor = 0; poor < 2; poor++) {
            const struct output *const o = &outputs[i];
            char command[256];
            apr_sink *sink;
            struct stat st;
            apr_out_test_fallbacks = poor;
            run_part(o, o->other, 1, 1);
            snprintf(command, sizeof command, "cd %s && cp -r %s.resume kept && rm -r kept/data", work, o->other);
            assert_int_equal(system(command), 0);
            const uint32_t terms_crc = crc_of("kept/terms");
            run_part(o, o->other, 0, 0);
            snprintf(command, sizeof command, "cd %s && mv kept %s.resume", work, o->other);
            assert_int_equal(system(command), 0);
            assert_int_equal(open_sink(&sink, o, o->other, 0, 0), APR_E_IO); /* without the mark it may be the user's */
            assert_int_equal(stat(in_work(o->other), &st), 0);
            mark_final(o, &st, terms_crc + 1);
            assert_int_equal(open_sink(&sink, o, o->other, 0, 0), APR_E_IO); /* of other terms */
            mark_final(o, &st, terms_crc);
            assert_int_equal(open_sink(&sink, o, o->other, 0, 0), APR_OK);
            assert_int_equal(apr_sink_finish(sink, NULL), APR_OK);
            assert_made(o);
            apr_out_test_fallbacks = false;
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_run_is_the_reference),
        cmocka_unit_test(extents_filled_by_threads_make_the_same_file),
        cmocka_unit_test(an_extent_that_cannot_be_written_says_which_file),
        cmocka_unit_test(a_whole_run_goes_on_after_each_tensor),
        cmocka_unit_test(parts_are_made_in_any_order_and_number),
        cmocka_unit_test(shares_are_balanced_and_keep_together_what_continues),
        cmocka_unit_test(a_finish_names_the_parts_that_are_missing),
        cmocka_unit_test(other_terms_are_refused_with_their_line),
        cmocka_unit_test(only_one_process_makes_a_part_at_a_time),
        cmocka_unit_test(where_there_are_no_locks_the_same_part_may_be_made_twice_at_once),
        cmocka_unit_test(a_full_disk_leaves_what_is_done),
        cmocka_unit_test(a_journal_that_cannot_be_written_loses_nothing_before_it),
        cmocka_unit_test(what_has_its_name_already_is_only_tidied_up),
    };
    return cmocka_run_group_tests_name("work_sink", tests, make_layout, remove_work);
}
