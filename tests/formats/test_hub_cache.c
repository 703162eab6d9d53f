/* formats/hf/hub_cache.h, weight_files.h and formats/files/placeholder.h: checkpoints as they are on disk, fetched whole, half or not. */
#define _GNU_SOURCE /* nftw, mkdtemp */
#include "formats/files/placeholder.h"
#include "formats/hf/hub_cache.h"
#include "formats/hf/weight_files.h"
#include "formats/tensor/model.h"
#include "tests/support/work_folder.h"

#define HASH    "0123456789abcdef0123456789abcdef01234567"
#define OTHER   "76543210fedcba9876543210fedcba9876543210"
#define TINY    "tests/data/tiny-llama"
#define POINTER "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4976698672\n"

/* --- helpers --- */

static const char *cache(const char *rest)
{
    char name[300];
    snprintf(name, sizeof name, "hub/models--org--name%s", rest);
    return in_work(name);
}

static void put(const char *path, const char *text) { write_file(path, text, strlen(text)); }

/* A cache with one snapshot of tiny-llama, as the hub's tools make it. */
static void make_cache(void)
{
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    char here[2048], target[4096];

    assert_non_null(getcwd(here, sizeof here));
    (void)mkdir(in_work("hub"), 0777);
    (void)mkdir(cache(""), 0777);
    (void)mkdir(cache("/refs"), 0777);
    (void)mkdir(cache("/blobs"), 0777);
    (void)mkdir(cache("/snapshots"), 0777);
    (void)mkdir(cache("/snapshots/" HASH), 0777);
    put(cache("/refs/main"), HASH);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char blob[300], link[300];
        snprintf(blob, sizeof blob, "/blobs/sha-%s", files[i]);
        snprintf(link, sizeof link, "/snapshots/" HASH "/%s", files[i]);
        snprintf(target, sizeof target, "%s/" TINY "/%s", here, files[i]);
        assert_int_equal(symlink(target, cache(blob)), 0);
        snprintf(target, sizeof target, "../../blobs/sha-%s", files[i]);
        assert_int_equal(symlink(target, cache(link)), 0);
    }
}

static int start(void **state)
{
    const int failed = make_work(state);
    if (failed == 0) make_cache();
    return failed;
}

static void assert_refused(const char *path, apr_status wanted, const char *words)
{
    apr_model model;
    apr_error err = {0};
    const apr_status status = apr_model_open(&model, path, &err);

    if (strstr(err.text, words) == NULL) fail_msg("'%s' does not say '%s'", err.text, words);
    assert_int_equal(status, wanted);
}

static void assert_opens(const char *path)
{
    apr_model model;
    apr_error err = {0};

    if (apr_model_open(&model, path, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(model.n_tensors, 30);
    assert_non_null(apr_model_attachment(&model, "tokenizer.json"));
    assert_null(model.not_copied);
    apr_model_close(&model);
}

/* --- caches --- */

static void a_cache_is_opened_by_its_folder_or_a_snapshot(void **state)
{
    (void)state;
    assert_opens(cache(""));
    assert_opens(cache("/"));
    assert_opens(cache("/snapshots/" HASH));
    put(cache("/refs/main"), HASH "\n");
    assert_opens(cache(""));
    assert_int_equal(unlink(cache("/refs/main")), 0);
    assert_opens(cache("")); /* the only one */
}

static void several_snapshots_are_listed(void **state)
{
    (void)state;
    assert_int_equal(mkdir(cache("/snapshots/" OTHER), 0777), 0);
    assert_refused(cache(""), APR_E_USAGE, "there are 2 snapshots and no refs/main; give one of them: " HASH ", " OTHER);
    put(cache("/refs/main"), HASH);
    assert_opens(cache(""));
    put(cache("/refs/main"), OTHER);
    assert_refused(cache(""), APR_E_IO, "there are no weights in this folder");
    assert_int_equal(rmdir(cache("/snapshots/" OTHER)), 0);
    assert_refused(cache(""), APR_E_IO,
                   "the snapshot is missing, so the download is incomplete; fetch it again with 'hf download org/name'");
    put(cache("/refs/main"), "../../../etc");
    assert_refused(cache(""), APR_E_DAMAGED, "does not name a snapshot");
    put(cache("/refs/main"), "");
    assert_refused(cache(""), APR_E_DAMAGED, "does not name a snapshot");
    put(cache("/refs/main"), HASH);
}

static void half_downloaded_files_are_reported(void **state)
{
    (void)state;
    assert_int_equal(unlink(cache("/blobs/sha-model.safetensors")), 0);
    assert_refused(cache(""), APR_E_IO,
                   "a link to a missing file, so the download is incomplete; fetch it again with 'hf download org/name'");
    assert_int_equal(unlink(cache("/snapshots/" HASH "/model.safetensors")), 0);
    assert_refused(cache(""), APR_E_IO, "there are no weights in this folder");
    put(cache("/blobs/sha-model.safetensors.0815.incomplete"), "");
    assert_refused(cache(""), APR_E_IO,
                   "sha-model.safetensors.0815.incomplete: the download is incomplete; fetch it again with 'hf download org/name'");
}

static void what_to_fetch_follows_from_the_path(void **state)
{
    static const struct {
        const char *folder, *text;
    } table[] = {{"/c/hub/models--meta-llama--Llama-3.1-8B/snapshots/ab", "fetch it again with 'hf download meta-llama/Llama-3.1-8B'"},
                 {"models--gpt2", "fetch it again with 'hf download gpt2'"},
                 {"my-models--gpt2", "fetch it again"},
                 {"/data/llama", "fetch it again"}};
    apr_arena arena = {0};

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_string_equal(apr_hub_how_to_fetch(table[i].folder, &arena), table[i].text);
    apr_arena_close(&arena);
}

/* --- which weights --- */

static void safetensors_come_before_the_others(void **state)
{
    /* From the last choice to the first: each new file is chosen, and the older ones are named. */
    static const char *const names[] = {
        "consolidated.pth",  "consolidated.00.pth",          "consolidated.safetensors", "pytorch_model.bin.index.json",
        "pytorch_model.bin", "model.safetensors.index.json", "model.safetensors"};
    const char *const folder = in_work("choice");
    apr_arena arena = {0};
    apr_error err = {0};
    apr_weights_choice choice;

    (void)state;
    assert_int_equal(mkdir(folder, 0777), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        put(path, "");
        assert_int_equal(apr_choose_weights(folder, &choice, &arena, &err), APR_OK);
        assert_string_equal(choice.name, names[i]);
        assert_int_equal(choice.is_index, strstr(names[i], "index") != NULL);
        if (i > 0) assert_non_null(strstr(choice.others, names[i - 1]));
        else assert_null(choice.others);
    }
    apr_arena_close(&arena);
}

static void slices_of_matrices_are_not_joined(void **state)
{
    const char *const folder = in_work("sliced");
    apr_arena arena = {0};
    apr_error err = {0};
    apr_weights_choice choice;
    char path[300];

    (void)state;
    assert_int_equal(mkdir(folder, 0777), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/consolidated.0%d.pth", folder, i);
        put(path, "");
    }
    assert_int_equal(apr_choose_weights(folder, &choice, &arena, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "a slice of every matrix (consolidated.01.pth is another)"));
    apr_arena_close(&arena);
}

/* --- placeholders --- */

static void placeholders_are_not_weights(void **state)
{
    static const char *const names[] = {"p/model.safetensors", "p/x.gguf", "p/pytorch_model.bin"};

    (void)state;
    assert_int_equal(mkdir(in_work("p"), 0777), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        put(in_work(names[i]), POINTER);
        assert_refused(in_work(names[i]), APR_E_IO,
                       "a Git LFS pointer; the file itself (4976698672 bytes) was not fetched; run 'git lfs pull'");
        put(in_work(names[i]), "\n<!doctype html>\n<html>");
        assert_refused(in_work(names[i]), APR_E_IO, "is a web page, saved in place of the file");
    }
    put(in_work("p/model.safetensors"), POINTER);
    assert_refused(in_work("p"), APR_E_IO, "p/model.safetensors: is a Git LFS pointer");
    put(in_work("p/model.safetensors.index.json"), POINTER);
    assert_int_equal(unlink(in_work("p/model.safetensors")), 0);
    assert_refused(in_work("p"), APR_E_IO, "index.json: is a Git LFS pointer");
}

static void a_small_file_may_be_a_pointer_too(void **state)
{
    char here[2048], target[4096];

    (void)state;
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(mkdir(in_work("small"), 0777), 0);
    snprintf(target, sizeof target, "%s/" TINY "/model.safetensors", here);
    assert_int_equal(symlink(target, in_work("small/model.safetensors")), 0);
    put(in_work("small/tokenizer.json"), POINTER);
    assert_refused(in_work("small"), APR_E_IO, "small/tokenizer.json: is a Git LFS pointer");
}

static void what_only_resembles_a_placeholder_passes(void **state)
{
    static const char *const texts[] = {"", "version https://git-lfs.github.com", "<", "<htmlx", "<!DOCTYPES", "GGUF", "version 1"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(apr_refuse_placeholder((const uint8_t *)texts[i], strlen(texts[i]), "test", NULL), APR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cache_is_opened_by_its_folder_or_a_snapshot),
        cmocka_unit_test(several_snapshots_are_listed),
        cmocka_unit_test(half_downloaded_files_are_reported),
        cmocka_unit_test(what_to_fetch_follows_from_the_path),
        cmocka_unit_test(safetensors_come_before_the_others),
        cmocka_unit_test(slices_of_matrices_are_not_joined),
        cmocka_unit_test(placeholders_are_not_weights),
        cmocka_unit_test(a_small_file_may_be_a_pointer_too),
        cmocka_unit_test(what_only_resembles_a_placeholder_passes),
    };
    return cmocka_run_group_tests_name("hub_cache", tests, start, remove_work);
}
