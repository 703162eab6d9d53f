/* formats/hf/safetensors.h: checkpoints go out as they came in, whole or not at all, and nothing of the user's is lost. */
#define _GNU_SOURCE /* nftw, mkdtemp */
#include "formats/hf/safetensors.h"
#include "formats/tensor/sink.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"

#define BUNDLED "tests/data/tiny-qwen2"

static void open_ok(apr_model *model, const char *path)
{
    apr_error err = {0};
    if (apr_safetensors_open(model, path, &err) != APR_OK) fail_msg("%s", err.text);
}

static apr_status write_model(const apr_model *model, const char *path, const apr_sink_options *options, apr_error *err)
{
    apr_sink *sink;
    apr_status status = apr_safetensors_sink_open(&sink, path, model, options, err);
    if (status != APR_OK) return status;
    for (size_t i = 0; i < model->n_tensors; i++) {
        status = sink->ops->put(sink, model->tensors[i].data, (size_t)model->tensors[i].n_bytes, err);
        if (status != APR_OK) {
            sink->ops->abandon(sink);
            return status;
        }
    }
    return sink->ops->finish(sink, err);
}

static void assert_same_in(const char *folder, const char *other_folder, const char *name)
{
    char paths[2][512];
    snprintf(paths[0], sizeof paths[0], "%s/%s", folder, name);
    snprintf(paths[1], sizeof paths[1], "%s/%s", other_folder, name);
    assert_same_file(paths[0], paths[1]);
}

static void assert_round_trip(const char *folder)
{
    static const apr_sink_options options = {.overwrite = true};
    apr_error err = {0};
    apr_model model;
    const char *const copy = in_work("copy");

    open_ok(&model, folder);
    if (write_model(&model, copy, &options, &err) != APR_OK) fail_msg("%s", err.text);
    assert_same_in(folder, copy, "model.safetensors");
    for (size_t i = 0; i < model.n_attachments; i++) assert_same_in(folder, copy, model.attachments[i].name);
    apr_model_close(&model);
    assert_int_equal(count_temporaries(work), 0);
}

static void what_was_read_is_written_byte_for_byte(void **state)
{
    (void)state;
    assert_round_trip(BUNDLED);
}

static void other_families_are_written_byte_for_byte(void **state)
{
    static const char *const families[] = {"llama", "mistral", "qwen3", "qwen3_moe", "qwen3_5", "gpt_oss"};
    apr_error err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, "tests/data/families/%s", families[i]);
        if (family_write(folder, in_work(families[i]), NULL, &err) != APR_OK) fail_msg("%s", err.text);
        assert_round_trip(in_work(families[i]));
    }
}

static void a_large_model_is_written_in_shards(void **state)
{
    static const apr_sink_options options = {.max_shard_bytes = 1 << 20};
    apr_error err = {0};
    apr_model model, copy;

    (void)state;
    open_ok(&model, BUNDLED);
    if (write_model(&model, in_work("shards"), &options, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(access(in_work("shards/model-00001-of-00004.safetensors"), F_OK), 0);
    assert_int_equal(access(in_work("shards/model-00004-of-00004.safetensors"), F_OK), 0);
    assert_int_not_equal(access(in_work("shards/model.safetensors"), F_OK), 0);
    open_ok(&copy, in_work("shards"));
    assert_int_equal(copy.n_tensors, model.n_tensors);
    for (size_t i = 0; i < model.n_tensors; i++) {
        assert_string_equal(copy.tensors[i].name, model.tensors[i].name);
        assert_memory_equal(copy.tensors[i].data, model.tensors[i].data, model.tensors[i].n_bytes);
    }
    assert_int_equal(copy.n_attachments, model.n_attachments);
    apr_model_close(&copy);
    apr_model_close(&model);
}

static void what_is_not_attached_is_made(void **state)
{
    static const apr_sink_options options = {0};
    apr_error err = {0};
    apr_model model, copy;

    (void)state;
    open_ok(&model, BUNDLED);
    model.n_attachments = 0;
    model.origin.format = APR_FORMAT_GGUF;
    model.kv.n_items = 0;
    model.hparams.torch_dtype = NULL;
    if (write_model(&model, in_work("made"), &options, &err) != APR_OK) fail_msg("%s", err.text);
    assert_same_in(BUNDLED, in_work("made"), "model.safetensors"); /* format: pt is written for every origin */
    assert_same_in(BUNDLED, in_work("made"), "chat_template.jinja");
    open_ok(&copy, in_work("made"));
    assert_int_equal(copy.n_attachments, 5);
    assert_string_equal(copy.hparams.architecture, "qwen2");
    assert_int_equal(copy.hparams.num_kv_heads, 2);
    assert_true(copy.hparams.rope_theta == 1e6);
    assert_string_equal(copy.hparams.torch_dtype, "bfloat16");
    assert_int_equal(copy.vocab.kind, APR_VOCAB_BPE);
    assert_int_equal(copy.vocab.n_tokens, model.vocab.n_tokens);
    assert_int_equal(copy.vocab.n_merges, model.vocab.n_merges);
    assert_string_equal(copy.vocab.pattern, model.vocab.pattern);
    assert_string_equal(copy.vocab.chat_template, model.vocab.chat_template);
    assert_int_equal(copy.vocab.eos_id, model.vocab.eos_id);
    assert_int_equal(copy.vocab.pad_id, model.vocab.pad_id);
    assert_int_equal(copy.vocab.n_stop_ids, model.vocab.n_stop_ids);
    apr_model_close(&copy);
    apr_model_close(&model);
}

static void nothing_is_replaced_without_being_asked(void **state)
{
    static const apr_sink_options careful = {0}, forced = {.overwrite = true};
    apr_error err = {0};
    apr_model model;
    struct stat before, after;

    (void)state;
    open_ok(&model, BUNDLED);
    assert_int_equal(write_model(&model, in_work("out"), &careful, NULL), APR_OK);
    assert_int_equal(write_model(&model, in_work("out"), &careful, &err), APR_E_IO);
    assert_non_null(strstr(err.text, "exists already"));
    assert_int_equal(stat(in_work("out"), &before), 0);
    assert_int_equal(write_model(&model, in_work("out/"), &forced, NULL), APR_OK);
    assert_int_equal(stat(in_work("out"), &after), 0);
    assert_true(before.st_ino != after.st_ino);

    write_file(in_work("out/thesis.txt"), "years of work", 13);
    err = (apr_error){0};
    assert_int_equal(write_model(&model, in_work("out"), &forced, &err), APR_E_IO);
    assert_non_null(strstr(err.text, "'thesis.txt'"));
    assert_int_equal(access(in_work("out/thesis.txt"), F_OK), 0);
    assert_int_equal(access(in_work("out/model.safetensors"), F_OK), 0);

    write_file(in_work("file"), "x", 1);
    assert_int_equal(write_model(&model, in_work("file"), &forced, NULL), APR_E_IO);
    assert_int_equal(write_model(&model, in_work("no/such/folder"), &forced, NULL), APR_E_IO);
    apr_model_close(&model);
}

static void an_abandoned_or_short_write_leaves_nothing(void **state)
{
    static const apr_sink_options options = {.max_shard_bytes = 1 << 20};
    apr_error err = {0};
    apr_model model;
    apr_sink *sink;

    (void)state;
    open_ok(&model, BUNDLED);
    assert_int_equal(apr_safetensors_sink_open(&sink, in_work("left"), &model, &options, &err), APR_OK);
    assert_int_equal(sink->ops->put(sink, model.tensors[0].data, 1000, &err), APR_OK);
    assert_int_not_equal(access(in_work("left"), F_OK), 0);
    assert_int_equal(count_temporaries(work), 1);
    sink->ops->abandon(sink);
    assert_int_equal(count_temporaries(work), 0);

    assert_int_equal(apr_safetensors_sink_open(&sink, in_work("left"), &model, &options, &err), APR_OK);
    assert_int_equal(sink->ops->put(sink, model.tensors[0].data, 1000, &err), APR_OK);
    assert_int_equal(sink->ops->finish(sink, &err), APR_E_USAGE);
    assert_int_not_equal(access(in_work("left"), F_OK), 0);
    assert_int_equal(count_temporaries(work), 0);
    apr_model_close(&model);
}

/* A file that only has the name of one of our leftovers may be the user's. */
static void a_folder_called_part_is_nothing_special(void **state)
{
    static const apr_sink_options options = {0};
    apr_error err = {0};
    apr_model model;

    (void)state;
    open_ok(&model, BUNDLED);
    mkdir(in_work("some.part"), 0777);
    write_file(in_work("some.part/model.safetensors"), "x", 1);
    write_file(in_work("some.part/model.safetensors.part"), "x", 1);
    if (write_model(&model, in_work("some"), &options, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(access(in_work("some.part/model.safetensors"), F_OK), 0);
    assert_int_equal(access(in_work("some.part/model.safetensors.part"), F_OK), 0);
    apr_model_close(&model);
}

/* Only names that a checkpoint of ours consists of may go with the old folder. */
static void a_folder_with_anything_else_is_not_replaced(void **state)
{
    static const char *const strangers[] = {
        "adapter_model.safetensors", "model-1-of-2.safetensors",    "model-00001-of-00002.safetensors.bak",
        "pytorch_model.bin",         "consolidated.00.safetensors", ".git",
        "model.safetensors.part"};
    static const apr_sink_options forced = {.overwrite = true};
    apr_model model;

    (void)state;
    open_ok(&model, BUNDLED);
    assert_int_equal(write_model(&model, in_work("strict"), &forced, NULL), APR_OK);
    write_file(in_work("strict/model-00001-of-00002.safetensors"), "x", 1); /* of an older, sharded one: goes */
    assert_int_equal(write_model(&model, in_work("strict"), &forced, NULL), APR_OK);
    assert_int_not_equal(access(in_work("strict/model-00001-of-00002.safetensors"), F_OK), 0);
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        char path[256];
        apr_error err = {0};
        snprintf(path, sizeof path, "%s/strict/%s", work, strangers[i]);
        write_file(path, "x", 1);
        assert_int_equal(write_model(&model, in_work("strict"), &forced, &err), APR_E_IO);
        if (strstr(err.text, strangers[i]) == NULL) fail_msg("'%s' does not name %s", err.text, strangers[i]);
        assert_int_equal(access(path, F_OK), 0);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(symlink("config.json", in_work("strict/vocab.json")), 0); /* the name of one of ours, but a link */
    assert_int_equal(write_model(&model, in_work("strict"), &forced, NULL), APR_E_IO);
    apr_model_close(&model);
}

static void more_bytes_than_laid_out_are_refused(void **state)
{
    static const apr_sink_options options = {0};
    apr_tensor tensor = {.name = "t", .dtype = APR_I8, .rank = 1, .dims = {4}, .n_bytes = 4};
    const apr_model layout = {.tensors = &tensor, .n_tensors = 1};
    apr_sink *sink;

    (void)state;
    assert_int_equal(apr_safetensors_sink_open(&sink, in_work("few"), &layout, &options, NULL), APR_OK);
    assert_int_equal(sink->ops->put(sink, "12345", 5, NULL), APR_E_USAGE);
    sink->ops->abandon(sink);
    assert_int_not_equal(access(in_work("few"), F_OK), 0);
}

static void block_formats_have_no_place(void **state)
{
    static const apr_sink_options options = {0};
    apr_tensor tensor = {.name = "t", .dtype = APR_Q4_K, .rank = 1, .dims = {256}, .n_bytes = 144};
    const apr_model layout = {.tensors = &tensor, .n_tensors = 1};
    apr_error err = {0};
    apr_sink *sink;

    (void)state;
    assert_int_equal(apr_safetensors_sink_open(&sink, in_work("q4"), &layout, &options, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "q4_k has no place in safetensors; convert with aprquant --to bf16"));
    assert_int_not_equal(access(in_work("q4"), F_OK), 0);
}

static void attached_names_stay_in_the_folder(void **state)
{
    static const char *const names[] = {
        "../x", "/tmp/x", "a/b", "..", ".", "", ".bashrc", "model.safetensors", "model.safetensors.index.json"};
    static const apr_sink_options options = {0};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const apr_attachment attachment = {names[i], (const uint8_t *)"x", 1};
        const apr_model layout = {.attachments = &attachment, .n_attachments = 1};
        apr_sink *sink;
        assert_int_equal(apr_safetensors_sink_open(&sink, in_work("names"), &layout, &options, NULL), APR_E_DAMAGED);
        assert_int_not_equal(access(in_work("names"), F_OK), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_read_is_written_byte_for_byte),      cmocka_unit_test(other_families_are_written_byte_for_byte),
        cmocka_unit_test(a_large_model_is_written_in_shards),          cmocka_unit_test(what_is_not_attached_is_made),
        cmocka_unit_test(nothing_is_replaced_without_being_asked),     cmocka_unit_test(an_abandoned_or_short_write_leaves_nothing),
        cmocka_unit_test(more_bytes_than_laid_out_are_refused),        cmocka_unit_test(block_formats_have_no_place),
        cmocka_unit_test(attached_names_stay_in_the_folder),           cmocka_unit_test(a_folder_called_part_is_nothing_special),
        cmocka_unit_test(a_folder_with_anything_else_is_not_replaced),
    };
    return cmocka_run_group_tests_name("safetensors_write", tests, make_work, remove_work);
}
