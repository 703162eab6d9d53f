/* What is written with success is read by our own reader, and holds what was read; what would not be read takes no name. */
#define _XOPEN_SOURCE 700
#include "convert/naming.h"
#include "formats/base/bytes.h"
#include "kernels/rows.h"
#include "tests/support/conversion.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"

static const char gguf[] = "tests/data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf";

static void open_ok(apr_model *model, const char *path)
{
    apr_error err = {0};
    if (apr_model_open(model, path, &err) != APR_OK) fail_msg("%s", err.text);
}

/* ---- GGUF whose list is not in the order of its data ---- */

static void write_as(apr_format format, const apr_model *model, const char *path)
{
    const apr_sink_options options = {.overwrite = true, .allow_loss = true};
    apr_error err = {0};
    apr_sink *sink;

    if (apr_sink_open(&sink, format, path, model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < model->n_tensors; i++)
        assert_int_equal(apr_sink_put(sink, model->tensors[i].data, (size_t)model->tensors[i].n_bytes, &err), APR_OK);
    if (apr_sink_finish(sink, &err) != APR_OK) fail_msg("%s", err.text);
}

/* The bundled model, its list turned round, and with `empties` an empty tensor that is listed last and stored first. */
static void write_reversed(const char *path, bool empties)
{
    apr_model model;

    open_ok(&model, gguf);
    const size_t n = model.n_tensors + empties;
    const char **const names = calloc(n, sizeof *names);
    apr_tensor *const tensors = calloc(n, sizeof *tensors);
    assert_true(names != NULL && tensors != NULL);
    memcpy(tensors + empties, model.tensors, model.n_tensors * sizeof *tensors);
    if (empties) tensors[0] = (apr_tensor){.name = "blk.0.nothing", .dtype = APR_F32, .rank = 1};
    for (size_t i = 0; i < n; i++) names[i] = tensors[n - 1 - i].name;
    model.tensors = tensors;
    model.n_tensors = n;
    model.origin = (apr_origin){.format = APR_FORMAT_GGUF, .gguf_version = 3, .order = names, .n_order = n};
    write_as(APR_FORMAT_GGUF, &model, path);
    apr_model_close(&model);
    free(tensors);
    free(names);
}

static void a_gguf_listed_in_another_order_comes_back_through_apr(void **state)
{
    (void)state;
    for (int empties = 0; empties < 2; empties++) {
        apr_model turned, apr, turned_types;
        write_reversed(in_work("turned.gguf"), empties);
        open_ok(&turned, in_work("turned.gguf"));
        assert_int_equal(turned.origin.n_order, turned.n_tensors);
        convert_as(in_work("turned.gguf"), in_work("turned.apr"), NULL);
        open_ok(&apr, in_work("turned.apr"));
        assert_int_equal(apr.origin.n_order, turned.n_tensors);
        for (size_t i = 0; i < turned.n_tensors; i++) assert_string_equal(apr.origin.order[i], turned.origin.order[i]);
        convert_as(in_work("turned.apr"), in_work("back.gguf"), NULL);
        if (!empties) assert_same_file(in_work("turned.gguf"), in_work("back.gguf")); /* an empty tensor's offset is not kept */
        must_convert(in_work("turned.apr"), in_work("other.apr"),
                     &(apr_convert_options){.recipe = {.mixture = "bf16", .allow_requantize = true}});
        open_ok(&turned_types, in_work("other.apr"));
        apr_model_close(&turned_types);
        apr_model_close(&apr);
        apr_model_close(&turned);
    }
}

/* ---- safetensors whose first bytes look like something else ---- */

static void write_padded(const char *path, size_t n_header)
{
    static const char header[] = "{\"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],"
                                 "\"data_offsets\":[0,8]},\"base_model.model.model.layers.0.mlp.up_proj.lora_B.weight\":"
                                 "{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[8,16]}}";
    uint8_t *const file = calloc(1, 8 + n_header + 16);

    assert_non_null(file);
    assert_true(n_header >= sizeof header);
    apr_store_le64(file, n_header);
    memset(file + 8, ' ', n_header);
    memcpy(file + 8, header, sizeof header - 1);
    write_file(path, file, 8 + n_header + 16);
    free(file);
}

/* Lengths whose low bytes are those of a pickle, of a zip archive and of the other containers. */
static void the_length_of_a_header_is_not_taken_for_another_format(void **state)
{
    static const size_t lengths[] = {640, 896, 1152, 1408, 66176, 0x4b50, 0x5041, 0x4747, 8192};
    static const char config[] = "{\"peft_type\":\"LORA\",\"r\":1,\"lora_alpha\":1}";
    char path[200];

    (void)state;
    mkdir(in_work("folder"), 0777);
    mkdir(in_work("adapter"), 0777);
    snprintf(path, sizeof path, "%s/adapter_config.json", in_work("adapter"));
    write_file(path, config, sizeof config - 1);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        apr_model model;
        apr_adapter adapter;
        apr_error err = {0};
        snprintf(path, sizeof path, "%s/model.safetensors", in_work("folder"));
        write_padded(path, lengths[i]);
        open_ok(&model, in_work("folder"));
        assert_int_equal(model.format, APR_FORMAT_SAFETENSORS);
        assert_int_equal(model.n_tensors, 2);
        apr_model_close(&model);
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", in_work("adapter"));
        write_padded(path, lengths[i]);
        if (apr_adapter_open(&adapter, in_work("adapter"), &err) != APR_OK) fail_msg("%zu: %s", lengths[i], err.text);
        assert_int_equal(adapter.n_changes, 1);
        apr_adapter_close(&adapter);
    }
}

/* ---- metadata that GGUF could not hold ---- */

static void any_key_of_a_checkpoint_travels_in_apr(void **state)
{
    enum { LONG_KEY = 70000 };
    char *const key = calloc(1, LONG_KEY + 1), *const header = malloc(LONG_KEY + 400);
    char path[200], back[200];
    apr_model model;

    (void)state;
    assert_true(key != NULL && header != NULL);
    memset(key, 'k', LONG_KEY);
    mkdir(in_work("keys"), 0777);
    snprintf(path, sizeof path, "%s/model.safetensors", in_work("keys"));
    const int n = snprintf(header + 8, LONG_KEY + 392,
                           "{\"__metadata__\":{\"\":\"nothing\",\"%s\":\"much\",\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
                           "\"data_offsets\":[0,4]}}",
                           key);
    apr_store_le64(header, (uint64_t)n);
    memset(header + 8 + n, 0, 4);
    write_file(path, header, 8 + (size_t)n + 4);
    convert_as(in_work("keys"), in_work("keys.apr"), NULL);
    open_ok(&model, in_work("keys.apr"));
    assert_int_equal(model.kv.n_items, 3);
    assert_true(apr_str_is(apr_kv_find(&model.kv, "")->value.string, "nothing"));
    assert_true(apr_str_is(apr_kv_find(&model.kv, key)->value.string, "much"));
    apr_model_close(&model);
    convert_as(in_work("keys.apr"), in_work("back"), NULL);
    snprintf(back, sizeof back, "%s/model.safetensors", in_work("back"));
    open_ok(&model, back);
    assert_int_equal(model.kv.n_items, 3);
    apr_model_close(&model);
    free(header);
    free(key);
}

/* ---- FP8, whose scales are tensors of their own ---- */

static bool is_called_scale(const char *name) { return strstr(name, "weight_scale") != NULL || strstr(name, "proj_scale") != NULL; }

static bool is_scale_of_any(const apr_model *model, const apr_tensor *scale)
{
    for (size_t i = 0; i < model->n_tensors; i++)
        if (model->tensors[i].scale == scale) return true;
    return false;
}

/* All that is called a scale is one, and no scale is left without its matrix. */
static void assert_scales_are_bound(const char *path)
{
    apr_model model;

    open_ok(&model, path);
    for (size_t i = 0; i < model.n_tensors; i++) {
        const apr_tensor *const t = &model.tensors[i];
        if (is_called_scale(t->name) && !is_scale_of_any(&model, t)) fail_msg("%s: '%s' does not belong to a matrix", path, t->name);
        if (t->dtype == APR_F8_E4M3 && t->scale == NULL) fail_msg("%s: '%s' has no scales", path, t->name);
    }
    apr_model_close(&model);
}

/* Values of A's matrices in B, under canonical names. */
static void assert_same_matrices(const char *a, const char *b)
{
    apr_model files[2], views[2];
    size_t n_compared = 0;

    for (int i = 0; i < 2; i++) {
        open_ok(&files[i], i == 0 ? a : b);
        assert_int_equal(apr_canonical(&views[i], &files[i], NULL), APR_OK);
        assert_int_equal(apr_model_index_names(&views[i], NULL), APR_OK);
    }
    for (size_t i = 0; i < views[0].n_tensors; i++) {
        const apr_tensor *const x = &views[0].tensors[i], *const y = apr_model_find(&views[1], x->name);
        const int64_t n = apr_tensor_elems(x);
        if (x->rank < 2 || y == NULL) continue;
        if (apr_tensor_elems(y) != n) fail_msg("%s: '%s' has another size than in %s", a, x->name, b);
        float *const xs = malloc((size_t)n * 4), *const ys = malloc((size_t)n * 4);
        apr_decode_rows(x, 0, apr_tensor_rows(x), xs);
        apr_decode_rows(y, 0, apr_tensor_rows(y), ys);
        if (memcmp(xs, ys, (size_t)n * 4) != 0) fail_msg("%s: '%s' is another than in %s", a, x->name, b);
        free(xs);
        free(ys);
        n_compared++;
    }
    assert_true(n_compared > 20);
    for (int i = 0; i < 2; i++) {
        apr_model_close(&views[i]);
        apr_model_close(&files[i]);
    }
}

/* Experts stacked in one tensor, matrices in one, and such as only GGUF has in two parts. */
static void fp8_of_any_family_is_read_back(void **state)
{
    static const char *const names[] = {"llama4",      "gpt_oss",     "gemma4_moe",    "mistral4", "granitemoehybrid",
                                        "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "qwen3_moe"};
    const apr_convert_options f32 = {.recipe = {.mixture = "f32", .allow_requantize = true}, .sink.allow_loss = true};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char data[200], source[200], fp8[200], apr[200], back[200], wide[200], file[200];
        apr_error err = {0};
        apr_model model;
        snprintf(data, sizeof data, "tests/data/families/%s", names[i]);
        snprintf(source, sizeof source, "%s/%s", work, names[i]);
        snprintf(fp8, sizeof fp8, "%s/%s-fp8", work, names[i]);
        snprintf(apr, sizeof apr, "%s/%s-fp8.apr", work, names[i]);
        snprintf(back, sizeof back, "%s/%s-back", work, names[i]);
        snprintf(wide, sizeof wide, "%s/%s-f32", work, names[i]);
        snprintf(file, sizeof file, "%s/%s.gguf", work, names[i]);
        if (family_write(data, source, NULL, &err) != APR_OK) fail_msg("%s", err.text);
        convert_as(source, fp8, "fp8");
        assert_scales_are_bound(fp8);
        convert_as(source, apr, "fp8");
        convert_as(apr, back, NULL);
        assert_scales_are_bound(back);
        convert_as(fp8, apr, NULL);
        convert_as(apr, back, NULL);
        assert_scales_are_bound(back);
        must_convert(fp8, wide, &f32);
        must_convert(fp8, file, &f32);
        assert_same_matrices(wide, fp8);
        assert_same_matrices(file, wide);
        open_ok(&model, file);
        for (size_t t = 0; t < model.n_tensors; t++)
            if (is_called_scale(model.tensors[t].name)) fail_msg("%s has '%s'", file, model.tensors[t].name);
        apr_model_close(&model);
    }
}

/* ---- values that have no logarithm ---- */

static void a_rate_of_decay_without_a_logarithm_is_refused(void **state)
{
    static const float rates[] = {1.5f, 0.0f};
    char source[200], file[200], back[200];
    apr_error err = {0};
    apr_model model;

    (void)state;
    snprintf(source, sizeof source, "%s/decay", work);
    snprintf(file, sizeof file, "%s/decay.gguf", work);
    snprintf(back, sizeof back, "%s/decay-back", work);
    if (family_write("tests/data/families/qwen3_5_moe", source, NULL, &err) != APR_OK) fail_msg("%s", err.text);
    convert_as(source, file, NULL);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        open_ok(&model, file);
        const long at = (long)(apr_model_find(&model, "blk.0.ssm_a")->data - model.maps[0].data);
        apr_model_close(&model);
        FILE *const f = fopen(file, "r+b");
        assert_non_null(f);
        assert_true(fseek(f, at + 8, SEEK_SET) == 0 && fwrite(&rates[i], 4, 1, f) == 1 && fclose(f) == 0);
        err = (apr_error){0};
        assert_int_equal(try_conversion(file, back, &(apr_convert_options){0}, &err), APR_E_DAMAGED);
        if (strstr(err.text, "A_log") == NULL || strstr(err.text, "blk.0.ssm_a") == NULL) fail_msg("%s", err.text);
        assert_int_equal(access(back, F_OK), -1);
        convert_as(file, in_work("decay-same.gguf"), NULL); /* nothing is computed on that way */
        assert_same_file(file, in_work("decay-same.gguf"));
    }
}

/* ---- what the writer takes, and the reader does not ---- */

static void what_cannot_be_read_back_gets_no_name(void **state)
{
    const apr_sink_options options = {.overwrite = true};
    apr_model model;
    apr_error err = {0};
    apr_sink *sink;

    (void)state;
    convert_as(gguf, in_work("kept.gguf"), NULL);
    open_ok(&model, gguf);
    assert_int_equal(apr_kv_set_int(&model.kv, "general.alignment", APR_KV_U64, 32, &err), APR_OK); /* readers want u32 */
    for (int i = 0; i < 2; i++) {
        const char *const path = in_work(i == 0 ? "new.gguf" : "kept.gguf");
        err = (apr_error){0};
        assert_int_equal(apr_sink_open(&sink, APR_FORMAT_GGUF, path, &model, &options, &err), APR_OK);
        for (size_t t = 0; t < model.n_tensors; t++)
            assert_int_equal(apr_sink_put(sink, model.tensors[t].data, (size_t)model.tensors[t].n_bytes, &err), APR_OK);
        assert_int_equal(apr_sink_finish(sink, &err), APR_E_UNSUPPORTED);
        if (strstr(err.text, path) != err.text || strstr(err.text, "not written") == NULL || strstr(err.text, "alignment") == NULL)
            fail_msg("%s", err.text);
        assert_null(strstr(err.text, "/proc/"));
    }
    assert_int_equal(access(in_work("new.gguf"), F_OK), -1);
    assert_same_file(gguf, in_work("kept.gguf"));
    assert_int_equal(count_temporaries(work), 0);
    apr_model_close(&model);
}

static apr_status never_reads(const char *path, apr_error *err) { return apr_fail(err, APR_E_IO, "%s: no descriptor is left", path); }
static apr_status lacks_memory(const char *path, apr_error *err) { return (void)path, apr_no_memory(err, "a model"); }

/* What the machine lacks is said as such. */
static void a_lack_of_the_machine_is_not_blamed_on_the_writer(void **state)
{
    static const struct {
        apr_out_reader reader;
        apr_status status;
        const char *says;
    } rows[] = {{never_reads, APR_E_IO, "could not be read back: no descriptor is left"},
                {lacks_memory, APR_E_MEMORY, "memory"},
                {NULL, APR_OK, ""}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        apr_error err = {0};
        apr_out *out;
        assert_int_equal(apr_out_open(&out, in_work("lacks"), 0, false, &err), APR_OK);
        apr_out_verify(out, rows[i].reader);
        assert_int_equal(apr_out_finish(out, &err), rows[i].status);
        assert_non_null(strstr(err.text, rows[i].says));
        assert_null(strstr(err.text, "a bug in aprkit"));
        assert_int_equal(access(in_work("lacks"), F_OK), rows[i].status == APR_OK ? 0 : -1);
    }
}

/* The output that is read back is not an input: another output of the same run may replace it. */
static void what_was_read_back_is_not_an_input(void **state)
{
    (void)state;
    apr_inputs_start();
    for (int i = 0; i < 2; i++) {
        convert_as("tests/data/tiny-qwen2", in_work("again.apr"), NULL);
        convert_as("tests/data/tiny-qwen2", in_work("again"), NULL);
    }
    assert_non_null(apr_inputs());
    for (const apr_input *at = apr_inputs(); at != NULL; at = at->next)
        if (strncmp(at->path, "tests/data/tiny-qwen2", 21) != 0) fail_msg("%s is an input", at->path);
    apr_inputs_end();
}

/* An APR that says its output is tied, and has a head of other numbers: those are used, and no conversion loses them. */
static void a_head_of_its_own_is_kept_whatever_the_file_says(void **state)
{
    apr_error err = {0};
    apr_model model, apr, back;

    (void)state;
    if (family_write("tests/data/families/llama", in_work("own-head"), NULL, &err) != APR_OK) fail_msg("%s", err.text);
    open_ok(&model, in_work("own-head"));
    assert_false(model.hparams.tie_word_embeddings);
    model.hparams.tie_word_embeddings = true;
    write_as(APR_FORMAT_APR, &model, in_work("says-tied.apr"));
    open_ok(&apr, in_work("says-tied.apr"));
    assert_false(apr.hparams.tie_word_embeddings);
    assert_true(apr.overrules_tie);
    const apr_convert_options keep = {0};
    if (try_conversion(in_work("says-tied.apr"), in_work("own-head.gguf"), &keep, &err) != APR_OK) fail_msg("%s", err.text);
    open_ok(&back, in_work("own-head.gguf"));
    const apr_tensor *const head = apr_model_find(&back, "output.weight"), *const own = apr_model_find(&model, "lm_head.weight");
    assert_non_null(head);
    assert_int_equal(head->n_bytes, own->n_bytes);
    assert_memory_equal(head->data, own->data, own->n_bytes);
    apr_model_close(&back);
    apr_model_close(&apr);
    apr_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gguf_listed_in_another_order_comes_back_through_apr),
        cmocka_unit_test(the_length_of_a_header_is_not_taken_for_another_format),
        cmocka_unit_test(any_key_of_a_checkpoint_travels_in_apr),
        cmocka_unit_test(fp8_of_any_family_is_read_back),
        cmocka_unit_test(a_rate_of_decay_without_a_logarithm_is_refused),
        cmocka_unit_test(what_cannot_be_read_back_gets_no_name),
        cmocka_unit_test(a_lack_of_the_machine_is_not_blamed_on_the_writer),
        cmocka_unit_test(what_was_read_back_is_not_an_input),
        cmocka_unit_test(a_head_of_its_own_is_kept_whatever_the_file_says),
    };
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
