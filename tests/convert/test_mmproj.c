/* test_mmproj.c - files of vision towers, against what llama.cpp's converter writes (tests/llamacpp/mmproj.py records it). */
#define _XOPEN_SOURCE 700
#include "convert/mmproj.h"
#include "convert/run.h"
#include "formats/base/crc32.h"
#include "formats/shape/text_part.h"
#include "kernels/rows.h"
#include "tests/support/conversion.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"

static const struct {
    const char *name, *folder;
} models[] = {
    {"qwen2_vl", "multimodal"}, {"qwen2_5_vl", "multimodal"}, {"qwen3_vl", "multimodal"}, {"gemma3", "mmproj"}, {"mistral3", "mmproj"}};
enum { N_MODELS = sizeof models / sizeof *models };

/* ---- helpers ---- */

static void copy_file(const char *from, const char *to)
{
    char bytes[4096];
    FILE *const in = fopen(from, "rb");
    assert_non_null(in);
    const size_t n = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    write_file(to, bytes, n);
}

/* The checkpoint, with what its preprocessor states. */
static const char *make(size_t i)
{
    const char *const path = in_work(models[i].name);
    char from[256], to[256];
    apr_error err = {0};

    snprintf(from, sizeof from, "tests/data/%s/%s", models[i].folder, models[i].name);
    if (family_write(from, path, NULL, &err) != APR_OK) fail_msg("%s", err.text);
    snprintf(to, sizeof to, "%s/preprocessor_config.json", path);
    copy_file("tests/data/mmproj/preprocessor_config.json", to);
    return path;
}

static void must_write(const char *in, const char *out, const char *type)
{
    apr_conversion c;
    apr_model source;
    apr_error err = {0};

    assert_int_equal(apr_model_open(&source, in, &err), APR_OK);
    if (apr_mmproj_plan(&c, &source, type, &err) != APR_OK) fail_msg("%s", err.text);
    c.options.sink.overwrite = true;
    if (apr_conversion_run(&c, &(apr_convert_run){0}, out, NULL, &err) != APR_OK) fail_msg("%s", err.text);
    apr_conversion_close(&c);
    apr_model_close(&source);
}

static void print_number(FILE *out, const apr_kv *kv, uint64_t i)
{
    if (kv->elem_type == APR_KV_F32) fprintf(out, "%.9g", apr_kv_elem_real(kv, i));
    else fprintf(out, "%lld", (long long)apr_kv_elem_int(kv, i));
}

static void print_value(FILE *out, const apr_kv_list *list, const apr_kv *kv)
{
    const char *const key = kv->key.text;
    int64_t number = 0;
    double real = 0.0;
    bool flag = false;

    fprintf(out, "%s ", apr_kv_type_name(kv->type == APR_KV_ARRAY ? kv->elem_type : kv->type));
    for (uint64_t i = 0; kv->type == APR_KV_ARRAY && i < kv->n_elems; i++) {
        if (i > 0) fputc(',', out);
        print_number(out, kv, i);
    }
    if (kv->type == APR_KV_STRING) fprintf(out, "%.*s", (int)kv->value.string.n_bytes, kv->value.string.text);
    else if (kv->type == APR_KV_F32 && apr_kv_get_real(list, key, &real)) fprintf(out, "%.9g", real);
    else if (kv->type == APR_KV_BOOL && apr_kv_get_bool(list, key, &flag)) fprintf(out, "%d", flag);
    else if (kv->type != APR_KV_ARRAY && apr_kv_get_int(list, key, &number)) fprintf(out, "%lld", (long long)number);
    fputc('\n', out);
}

/* As mmproj.py prints it. */
static void print_listing(FILE *out, const char *path)
{
    apr_model m;

    assert_int_equal(apr_model_open(&m, path, NULL), APR_OK);
    for (size_t i = 0; i < m.kv.n_items; i++) {
        const apr_kv *const kv = &m.kv.items[i];
        if (apr_str_is(kv->key, "general.name")) continue;
        fprintf(out, "%.*s ", (int)kv->key.n_bytes, kv->key.text);
        print_value(out, &m.kv, kv);
    }
    for (size_t i = 0; i < m.n_tensors; i++) {
        const apr_tensor *const t = &m.tensors[i];
        fprintf(out, "%s %s", t->name, apr_dtypes[t->dtype].name);
        for (int k = t->rank - 1; k >= 0; k--) fprintf(out, "%c%lld", k == t->rank - 1 ? ' ' : ',', (long long)t->dims[k]);
        fprintf(out, " %08x\n", (unsigned)apr_crc32(0, t->data, (size_t)t->n_bytes));
    }
    apr_model_close(&m);
}

/* Fails unless the source's towers in all three types are what was recorded. */
static void assert_recorded(const char *source, const char *name)
{
    static const char *const types[] = {"f32", "f16", "bf16"};
    char out[256], listed[256], recorded[256];

    snprintf(out, sizeof out, "%s", in_work("tower.gguf"));
    snprintf(listed, sizeof listed, "%s", in_work("listed.txt"));
    snprintf(recorded, sizeof recorded, "tests/data/mmproj/%s.txt", name);
    FILE *const file = fopen(listed, "w");
    assert_non_null(file);
    for (size_t k = 0; k < 3; k++) {
        must_write(source, out, types[k]);
        fprintf(file, "== %s\n", types[k]);
        print_listing(file, out);
    }
    fclose(file);
    assert_same_file(recorded, listed);
}

static void assert_refused(const char *in, apr_status status, const char *why)
{
    apr_conversion c;
    apr_model source;
    apr_error err = {0};

    assert_int_equal(apr_model_open(&source, in, &err), APR_OK);
    assert_int_equal(apr_mmproj_plan(&c, &source, NULL, &err), status);
    if (strstr(err.text, why) == NULL) fail_msg("%s", err.text);
    apr_conversion_close(&c);
    apr_model_close(&source);
}

/* ---- tests ---- */

static void towers_are_llama_cpps(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        char folder[256], apr[256];
        snprintf(folder, sizeof folder, "%s", make(i));
        snprintf(apr, sizeof apr, "%s", in_work("m.apr"));
        assert_recorded(folder, models[i].name);
        convert_as(folder, apr, NULL);
        assert_recorded(apr, models[i].name);
    }
}

/* llama.cpp's converter means to write this row, and does not where names begin with "language_model."; llama.cpp needs it. */
static void the_embedding_between_rows_of_patches_is_there(void **state)
{
    static const apr_str tokens[] = {{"a", 1}, {"b", 1}, {"[IMG_BREAK]", 11}, {"c", 1}};
    const char *const folder = make(4);
    apr_conversion c;
    apr_model source;
    float row[64], expected[64];

    (void)state;
    assert_int_equal(apr_model_open(&source, folder, NULL), APR_OK);
    source.vocab.tokens = tokens;
    source.vocab.n_tokens = 4;
    assert_int_equal(apr_mmproj_plan(&c, &source, NULL, NULL), APR_OK);
    const apr_tensor *const found = apr_model_find(&c.layout, "v.token_embd.img_break");
    assert_non_null(found);
    assert_int_equal(found->rank, 1);
    assert_int_equal(found->dtype, APR_F32);
    apr_decode_rows(c.items[found - c.layout.tensors].from, 0, 1, row);
    apr_decode_rows(apr_find_embedding(&source), 2, 1, expected);
    assert_memory_equal(row, expected, sizeof row);
    apr_conversion_close(&c);
    apr_model_close(&source);
}

static void write_config(const char *folder, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/config.json", folder);
    write_file(path, text, strlen(text));
}

static void towers_that_are_not_complete_are_refused(void **state)
{
    char folder[256], path[300], text[4096];

    (void)state;
    snprintf(folder, sizeof folder, "%s", make(4));
    snprintf(path, sizeof path, "%s/preprocessor_config.json", folder);
    write_file(path, "{\"image_mean\": [1e999]}", 23);
    assert_refused(folder, APR_E_DAMAGED, "preprocessor_config.json has no usable 'image_mean'");
    unlink(path);
    assert_refused(folder, APR_E_DAMAGED, "preprocessor_config.json has no usable 'image_mean'");
    static const char layers[] = "{\"model_type\": \"mistral3\", \"text_config\": {\"model_type\": \"mistral\", \"hidden_size\": 64}, "
                                 "\"vision_config\": {\"model_type\": \"%s\", \"hidden_size\": 32, \"num_hidden_layers\": %d, "
                                 "\"num_attention_heads\": 2, \"intermediate_size\": 48}}";
    snprintf(text, sizeof text, layers, "pixtral", 3);
    write_config(folder, text);
    assert_refused(folder, APR_E_DAMAGED, "layer 2 of the vision tower has 0 tensors, and layer 0 has 9");
    snprintf(text, sizeof text, layers, "pixtral", 1);
    write_config(folder, text);
    assert_refused(folder, APR_E_DAMAGED, "is of a layer that the vision_config of config.json does not have (num_hidden_layers 1)");
    snprintf(text, sizeof text, layers, "clip_vision_model", 2);
    write_config(folder, text);
    assert_refused(folder, APR_E_UNSUPPORTED, "cannot write the vision tower of model_type mistral3 with clip_vision_model");
    snprintf(text, sizeof text, layers, "pixtral", 2);
    write_config(folder, text);
    assert_refused(folder, APR_E_DAMAGED, "vision_config of config.json has no usable 'image_size'");
    assert_refused("tests/data/tiny-qwen2", APR_E_UNSUPPORTED, "its config.json has no vision_config");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(towers_are_llama_cpps),
        cmocka_unit_test(the_embedding_between_rows_of_patches_is_there),
        cmocka_unit_test(towers_that_are_not_complete_are_refused),
    };
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
