/* formats/tensor/packed_weights.h: weights in layouts that are not read are recognised by their tensors alone, refused by name where they
 * would have to be read, and carried byte for byte, as those that are read; scales of activations stay with FP8 weights and go, with a
 * word, without them. */
#define _XOPEN_SOURCE 700
#include "convert/naming.h"
#include "convert/run.h"
#include "formats/base/bytes.h"
#include "formats/hf/safetensors.h"
#include "formats/tensor/packed_weights.h"
#include "runtime/session/session.h"
#include "tests/support/work_folder.h"

static const char bundled[] = "tests/data/tiny-qwen2";

/* --- checkpoints in the layouts that are published --- */

/* A tensor next to or instead of X.weight [o, i]. A dimension is o, i, or n = o * i, divided; '1' is the number `divisor`. */
typedef struct part {
    const char *suffix;
    apr_dtype dtype;
    struct {
        char of;
        int divisor;
    } dims[2]; /* until of is 0 */
} part;

typedef struct layout {
    const char *name;
    part parts[5]; /* until suffix is NULL */
    bool is_bound; /* formats/packed/packings.h knows it */
} layout;

enum { GROUP = 32 };
static const char quant_state[] = "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", \"shape\": [%5lld, %5lld]}";

static const layout layouts[] = {
    {"GPTQ",
     {{"qweight", APR_I32, {{'i', 8}, {'o', 1}}},
      {"qzeros", APR_I32, {{'i', 32}, {'o', 8}}},
      {"scales", APR_F16, {{'i', 32}, {'o', 1}}},
      {"g_idx", APR_I32, {{'i', 1}}}},
     true},
    {"AWQ",
     {{"qweight", APR_I32, {{'i', 1}, {'o', 8}}}, {"qzeros", APR_I32, {{'i', 32}, {'o', 8}}}, {"scales", APR_F16, {{'i', 32}, {'o', 1}}}},
     true},
    {"integers, pack-quantized (compressed-tensors)",
     {{"weight_packed", APR_I32, {{'o', 1}, {'i', 8}}},
      {"weight_scale", APR_BF16, {{'o', 1}, {'i', 32}}},
      {"weight_shape", APR_I64, {{'1', 2}}}},
     true},
    {"INT8", {{"weight", APR_I8, {{'o', 1}, {'i', 1}}}, {"weight_scale", APR_BF16, {{'o', 1}, {'1', 1}}}}, true},
    {"NVFP4 (compressed-tensors)",
     {{"weight_packed", APR_U8, {{'o', 1}, {'i', 2}}},
      {"weight_scale", APR_F8_E4M3, {{'o', 1}, {'i', 16}}},
      {"weight_global_scale", APR_F32, {{'1', 1}}},
      {"input_global_scale", APR_F32, {{'1', 1}}}},
     true},
    {"NVFP4 (modelopt)",
     {{"weight", APR_U8, {{'o', 1}, {'i', 2}}},
      {"weight_scale", APR_F8_E4M3, {{'o', 1}, {'i', 16}}},
      {"weight_scale_2", APR_F32, {{'1', 1}}},
      {"input_scale", APR_F32, {{'1', 1}}}},
     true},
    {"MXFP4 (compressed-tensors)",
     {{"weight_packed", APR_U8, {{'o', 1}, {'i', 2}}}, {"weight_scale", APR_U8, {{'o', 1}, {'i', 32}}}},
     true},
    {"MXFP4 in blocks (gpt-oss)", {{"weight_blocks", APR_U8, {{'o', 1}, {'i', 2}}}, {"weight_scales", APR_U8, {{'o', 1}, {'i', 32}}}}},
    {"4-bit bitsandbytes (nf4 or fp4)",
     {{"weight", APR_U8, {{'n', 2}, {'1', 1}}},
      {"weight.absmax", APR_F32, {{'n', 64}}},
      {"weight.quant_map", APR_F32, {{'1', 16}}},
      {"weight.quant_state.bitsandbytes__nf4", APR_U8, {{'1', sizeof quant_state - 1}}}},
     true},
    {"8-bit bitsandbytes (LLM.int8)",
     {{"weight", APR_I8, {{'o', 1}, {'i', 1}}}, {"SCB", APR_F32, {{'o', 1}}}, {"weight_format", APR_U8, {{'1', 1}}}}},
    {"HQQ", {{"W_q", APR_U8, {{'n', 2}}}, {"scale", APR_F16, {{'n', 64}}}}},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static bool is_projection(const apr_tensor *t)
{
    static const char suffix[] = "_proj.weight";
    const size_t n = strlen(t->name), n_suffix = sizeof suffix - 1;
    return n > n_suffix && strcmp(t->name + n - n_suffix, suffix) == 0;
}

/* Parts that mean something: groups, a shape, a text. All others are any bytes. */
static void fill_part(uint8_t *data, const apr_tensor *t, const char *suffix, int64_t o, int64_t i)
{
    char text[sizeof quant_state + 8];

    for (size_t b = 0; b < t->n_bytes; b++) data[b] = (uint8_t)(b * 7 + strlen(t->name));
    for (int64_t c = 0; strcmp(suffix, "g_idx") == 0 && c < i; c++) apr_store_le32(data + 4 * c, (uint32_t)(c / GROUP));
    if (strcmp(suffix, "weight_shape") == 0) apr_store_le64(data, (uint64_t)o), apr_store_le64(data + 8, (uint64_t)i);
    if (strstr(suffix, "quant_state") == NULL) return;
    snprintf(text, sizeof text, quant_state, (long long)o, (long long)i);
    memcpy(data, text, (size_t)t->n_bytes);
}

static void add_tensor(apr_model *m, apr_arena *arena, const char *name, const part *p, int64_t o, int64_t i)
{
    apr_tensor *const t = &m->tensors[m->n_tensors++];
    const size_t n_module = strlen(name) - strlen("weight");

    *t = (apr_tensor){.name = apr_arena_print(arena, "%.*s%s", (int)n_module, name, p->suffix), .dtype = p->dtype};
    for (; t->rank < 2 && p->dims[t->rank].of != '\0'; t->rank++) {
        const int divisor = p->dims[t->rank].divisor;
        const char of = p->dims[t->rank].of;
        t->dims[t->rank] = of == '1' ? divisor : (of == 'o' ? o : of == 'i' ? i : o * i) / divisor;
    }
    assert_int_equal(apr_tensor_size(t, "test", NULL), APR_OK);
    uint8_t *const data = apr_arena_alloc(arena, (size_t)t->n_bytes);
    fill_part(data, t, p->suffix, o, i);
    t->data = data;
}

/* The checkpoint `from` with every projection in the layout (keep: next to the original), written to the folder `to`. Its config.json says
 * nothing about it. */
static void write_checkpoint(const char *from, const layout *l, bool keep, const char *to)
{
    apr_model source, m;
    apr_sink *sink;
    apr_error err = {0};
    const apr_sink_options options = {.overwrite = true};

    assert_int_equal(apr_model_open(&source, from, &err), APR_OK);
    m = source;
    m.index = NULL;
    m.arena = (apr_arena){0};
    m.tensors = apr_arena_array(&m.arena, 6 * source.n_tensors, sizeof *m.tensors);
    m.n_tensors = 0;
    for (size_t i = 0; i < source.n_tensors; i++) {
        const apr_tensor *const t = &source.tensors[i];
        const bool replaced = is_projection(t);
        if (!replaced || keep) m.tensors[m.n_tensors++] = *t;
        for (int p = 0; replaced && p < 5 && l->parts[p].suffix != NULL; p++)
            add_tensor(&m, &m.arena, t->name, &l->parts[p], t->dims[0], t->dims[1]);
    }
    if (apr_sink_open(&sink, APR_FORMAT_SAFETENSORS, to, &m, &options, &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < m.n_tensors; i++)
        assert_int_equal(apr_sink_put(sink, m.tensors[i].data, (size_t)m.tensors[i].n_bytes, &err), APR_OK);
    assert_int_equal(apr_sink_finish(sink, &err), APR_OK);
    apr_arena_close(&m.arena);
    apr_model_close(&source);
}

/* --- what is done with them --- */

/* What a conversion notes. */
typedef struct words {
    char carried[64], left_out[128];
    size_t n_left_out;
} words;

static void read_notes(const apr_losses *losses, words *told)
{
    *told = (words){0};
    for (size_t i = 0; i < losses->n_items; i++) {
        const char *const text = losses->items[i].text, *const weights = strstr(text, " weights, which");
        assert_int_equal(losses->items[i].kind, APR_NOTE);
        if (weights != NULL && strncmp(text, "copied unchanged: ", 18) == 0)
            snprintf(told->carried, sizeof told->carried, "%.*s", (int)(weights - text - 18), text + 18);
        sscanf(text, "left out: %zu activation scales (%127[^,]", &told->n_left_out, told->left_out);
    }
}

static apr_status convert(const char *in, const char *out, const char *mixture, words *told, apr_error *err)
{
    const apr_convert_options options = {.format = apr_format_of_path(out), .recipe = {.mixture = mixture}, .sink = {.overwrite = true}};
    apr_model source;
    apr_conversion c = {0};
    apr_status status = apr_model_open(&source, in, err);
    if (status == APR_OK) status = apr_conversion_plan(&c, &source, &options, err);
    if (status == APR_OK) status = apr_conversion_run(&c, &(apr_convert_run){0}, out, NULL, err);
    if (status == APR_OK) read_notes(&c.losses, told);
    apr_conversion_close(&c);
    apr_model_close(&source);
    return status;
}

static apr_status run(const char *path, apr_error *err)
{
    const int32_t ids[] = {1, 2, 3};
    apr_model source, model = {0};
    apr_session *s = NULL;
    apr_status status = apr_model_open(&source, path, err);
    if (status == APR_OK) status = apr_canonical(&model, &source, err);
    if (status == APR_OK) status = apr_session_open(&s, &model, &apr_session_defaults, err);
    if (status == APR_OK) status = apr_session_eval(s, ids, 3, NULL, err);
    apr_session_close(s);
    apr_model_close(&model);
    apr_model_close(&source);
    return status;
}

static void assert_refused(apr_status status, apr_error *err, const char *name, const char *cannot)
{
    if (status != APR_E_UNSUPPORTED) fail_msg("%s: status %d (%s) where it cannot be %s", name, (int)status, err->text, cannot);
    if (strstr(err->text, name) == NULL || strstr(err->text, cannot) == NULL || strstr(err->text, "model.layers.0.") == NULL)
        fail_msg("%s, %s: '%s'", name, cannot, err->text);
    *err = (apr_error){0};
}

static void packed_weights_are_refused_by_name_wherever_they_would_be_read(void **state)
{
    (void)state;
    for (int i = 0; i < N_LAYOUTS; i++) {
        char packed[128], apr[128], apr_path[128];
        words told;
        apr_error err = {0};
        if (layouts[i].is_bound) continue;
        snprintf(packed, sizeof packed, "%s", in_work("packed"));
        snprintf(apr, sizeof apr, "%s", in_work("carried.apr"));
        snprintf(apr_path, sizeof apr_path, "%s", in_work("out.apr"));
        write_checkpoint(bundled, &layouts[i], false, packed);

        assert_refused(convert(packed, apr_path, "q4_k_m", &told, &err), &err, layouts[i].name, "converted to another type");
        assert_refused(convert(packed, apr_path, "f32", &told, &err), &err, layouts[i].name, "converted to another type");
        assert_refused(convert(packed, in_work("out.gguf"), NULL, &told, &err), &err, layouts[i].name, "written as GGUF");
        assert_refused(run(packed, &err), &err, layouts[i].name, "run");
        assert_int_not_equal(access(apr_path, F_OK), 0);

        /* and from the APR file that carries them */
        if (convert(packed, apr, NULL, &told, &err) != APR_OK) fail_msg("%s: %s", layouts[i].name, err.text);
        assert_string_equal(told.carried, layouts[i].name);
        assert_refused(convert(apr, apr_path, "q8_0", &told, &err), &err, layouts[i].name, "converted to another type");
        assert_refused(run(apr, &err), &err, layouts[i].name, "run");
    }
}

static size_t n_bound(const char *path)
{
    apr_model model;
    assert_int_equal(apr_model_open(&model, path, NULL), APR_OK);
    const size_t n = model.n_packings;
    apr_model_close(&model);
    return n;
}

static void packed_weights_come_back_from_apr_byte_for_byte(void **state)
{
    (void)state;
    for (int i = 0; i < N_LAYOUTS; i++) {
        char packed[128], apr[128], back[128], a[160], b[160];
        words told;
        apr_error err = {0};
        snprintf(packed, sizeof packed, "%s", in_work("packed"));
        snprintf(apr, sizeof apr, "%s", in_work("carried.apr"));
        snprintf(back, sizeof back, "%s", in_work("back"));
        write_checkpoint(bundled, &layouts[i], false, packed);
        if (convert(packed, apr, NULL, &told, &err) != APR_OK || convert(apr, back, NULL, &told, &err) != APR_OK)
            fail_msg("%s: %s", layouts[i].name, err.text);
        assert_string_equal(told.carried, layouts[i].is_bound ? "" : layouts[i].name); /* that nothing reads it, is said */
        assert_int_equal(n_bound(packed), layouts[i].is_bound ? 14 : 0);               /* 7 projections in each of 2 layers */
        assert_int_equal(n_bound(apr), layouts[i].is_bound ? 14 : 0);
        snprintf(a, sizeof a, "%s/model.safetensors", packed);
        snprintf(b, sizeof b, "%s/model.safetensors", back);
        assert_same_file(a, b);
    }
}

static void plain_and_fp8_weights_are_not_packed(void **state)
{
    (void)state;
    static const char *const mixtures[] = {NULL, "fp8", "q4_k_m", "mxfp4"};
    for (int i = 0; i < 4; i++) {
        words told;
        apr_error err = {0};
        assert_int_equal(convert(bundled, in_work("plain.apr"), mixtures[i], &told, &err), APR_OK);
        assert_string_equal(told.carried, "");
        assert_int_equal(told.n_left_out, 0);
        if (run(in_work("plain.apr"), &err) != APR_OK) fail_msg("%s", err.text);
    }
}

/* --- scales of activations --- */

static const layout static_fp8[] = {
    {"scalar", {{"input_scale", APR_F32, {{0}}}}},
    {"one number", {{"input_scale", APR_F32, {{'1', 1}}}}},
    {"Mistral's", {{"activation_scale", APR_BF16, {{0}}}}},
    {"fbgemm's", {{"input_scale_ub", APR_F32, {{'1', 1}}}}},
    {"of outputs, too", {{"input_scale", APR_F32, {{'1', 1}}}, {"output_scale", APR_F32, {{'1', 1}}}}},
};

static bool has_activation_scales(const char *path)
{
    apr_model model;
    bool found = false;
    assert_int_equal(apr_model_open(&model, path, NULL), APR_OK);
    for (size_t i = 0; i < model.n_tensors; i++) found |= apr_is_activation_scale(model.tensors[i].name, NULL, 0);
    apr_model_close(&model);
    return found;
}

static void activation_scales_stay_with_fp8_weights_and_change_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof static_fp8 / sizeof *static_fp8; i++) {
        char fp8[128], with[128], apr[128], back[128], a[160], b[160];
        words told;
        apr_error err = {0};
        snprintf(fp8, sizeof fp8, "%s", in_work("fp8"));
        snprintf(with, sizeof with, "%s", in_work("static"));
        snprintf(apr, sizeof apr, "%s", in_work("static.apr"));
        snprintf(back, sizeof back, "%s", in_work("static-back"));
        assert_int_equal(convert(bundled, fp8, "fp8", &told, &err), APR_OK);
        write_checkpoint(fp8, &static_fp8[i], true, with);
        if (run(with, &err) != APR_OK) fail_msg("%s: %s", static_fp8[i].name, err.text);
        if (convert(with, apr, NULL, &told, &err) != APR_OK || convert(apr, back, NULL, &told, &err) != APR_OK)
            fail_msg("%s: %s", static_fp8[i].name, err.text);
        assert_int_equal(told.n_left_out, 0);
        assert_true(has_activation_scales(apr));
        if (run(apr, &err) != APR_OK) fail_msg("%s: %s", static_fp8[i].name, err.text);
        snprintf(a, sizeof a, "%s/model.safetensors", with);
        snprintf(b, sizeof b, "%s/model.safetensors", back);
        assert_same_file(a, b);
    }
}

static void assert_same_tensors(const char *a, const char *b)
{
    apr_model x, y;
    assert_int_equal(apr_model_open(&x, a, NULL), APR_OK);
    assert_int_equal(apr_model_open(&y, b, NULL), APR_OK);
    assert_int_equal(x.n_tensors, y.n_tensors);
    for (size_t i = 0; i < x.n_tensors; i++) {
        const apr_tensor *const t = apr_model_find(&y, x.tensors[i].name);
        assert_non_null(t);
        assert_int_equal(t->n_bytes, x.tensors[i].n_bytes);
        assert_memory_equal(t->data, x.tensors[i].data, t->n_bytes);
    }
    apr_model_close(&x);
    apr_model_close(&y);
}

/* Decoded or quantized, to any container: the scales are gone, that is said, and the tensors are those of a model without. */
static void activation_scales_are_left_out_with_a_note_when_the_weights_change(void **state)
{
    (void)state;
    static const struct {
        const char *mixture, *without, *with;
    } cases[] = {{"q4_k_m", "a.apr", "b.apr"}, {"q8_0", "a.gguf", "b.gguf"}, {"bf16", "a.gguf", "b.gguf"}, {"bf16", "a", "b"}};
    char fp8[128], with[128], a[160], b[160];
    words told;
    apr_error err = {0};
    snprintf(fp8, sizeof fp8, "%s", in_work("fp8"));
    assert_int_equal(convert(bundled, fp8, "fp8", &told, &err), APR_OK);
    for (size_t i = 0; i < sizeof static_fp8 / sizeof *static_fp8; i++)
        for (size_t j = 0; j < (i == 0 ? sizeof cases / sizeof *cases : 1); j++) {
            const size_t n_each = static_fp8[i].parts[1].suffix != NULL ? 2 : 1;
            snprintf(with, sizeof with, "%s", in_work("static"));
            snprintf(a, sizeof a, "%s", in_work(cases[j].without));
            snprintf(b, sizeof b, "%s", in_work(cases[j].with));
            assert_int_equal(convert(fp8, a, cases[j].mixture, &told, &err), APR_OK);
            assert_int_equal(told.n_left_out, 0);
            write_checkpoint(fp8, &static_fp8[i], true, with);
            if (convert(with, b, cases[j].mixture, &told, &err) != APR_OK) fail_msg("%s: %s", static_fp8[i].name, err.text);
            assert_int_equal(told.n_left_out, 14 * n_each); /* 7 projections in each of 2 layers */
            assert_true(apr_is_activation_scale(told.left_out, NULL, 0));
            assert_false(has_activation_scales(b));
            assert_same_tensors(a, b);
            if (run(b, &err) != APR_OK) fail_msg("%s: %s", static_fp8[i].name, err.text);
        }
}

static void a_modelopt_file_goes_with_what_it_is_about(void **state)
{
    (void)state;
    static const char text[] = "{\"producer\":{\"name\":\"modelopt\"},\"quantization\":{\"quant_algo\":\"FP8\"}}";
    char fp8[128], out[128];
    words told;
    apr_error err = {0};
    apr_model model;
    snprintf(fp8, sizeof fp8, "%s", in_work("fp8"));
    snprintf(out, sizeof out, "%s", in_work("plain"));
    assert_int_equal(convert(bundled, fp8, "fp8", &told, &err), APR_OK);
    write_file(in_work("fp8/hf_quant_config.json"), text, strlen(text));
    assert_int_equal(convert(fp8, out, "bf16", &told, &err), APR_OK);
    assert_int_equal(apr_model_open(&model, out, &err), APR_OK);
    assert_null(apr_model_attachment(&model, "hf_quant_config.json"));
    assert_null(model.quantization);
    apr_model_close(&model);
    assert_int_equal(convert(fp8, in_work("kept"), NULL, &told, &err), APR_OK);
    assert_int_equal(apr_model_open(&model, in_work("kept"), &err), APR_OK);
    assert_non_null(apr_model_attachment(&model, "hf_quant_config.json"));
    apr_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_weights_are_refused_by_name_wherever_they_would_be_read),
        cmocka_unit_test(packed_weights_come_back_from_apr_byte_for_byte),
        cmocka_unit_test(plain_and_fp8_weights_are_not_packed),
        cmocka_unit_test(activation_scales_stay_with_fp8_weights_and_change_nothing),
        cmocka_unit_test(activation_scales_are_left_out_with_a_note_when_the_weights_change),
        cmocka_unit_test(a_modelopt_file_goes_with_what_it_is_about),
    };
    return cmocka_run_group_tests_name("packed weights", tests, make_work, remove_work);
}
