/* convert/: round trips byte for byte, row orders, the pipe against single encoders, and what a failure leaves behind. */
#define _XOPEN_SOURCE 700
#include "convert/convert.h"
#include "convert/naming.h"
#include "formats/number/half.h"
#include "formats/shape/family.h"
#include "kernels/rows.h"
#include "tests/support/conversion.h"
#include "tests/support/work_folder.h"

#include <math.h>
#include <omp.h>

static const char checkpoint[] = "tests/data/tiny-qwen2", gguf[] = "tests/data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf";

static apr_status convert(const char *in, const char *out, const char *mixture, apr_error *err)
{
    return try_conversion(in, out, &(apr_convert_options){.recipe = {.mixture = mixture}}, err);
}

static void must(const char *in, const char *out, const char *mixture)
{
    apr_error err = {0};
    if (convert(in, out, mixture, &err) != APR_OK) fail_msg("%s", err.text);
}

static void a_gguf_comes_back_byte_for_byte(void **state)
{
    (void)state;
    must(gguf, in_work("a.apr"), NULL);
    must(in_work("a.apr"), in_work("a.gguf"), NULL);
    assert_same_file(gguf, in_work("a.gguf"));
    must(gguf, in_work("b.gguf"), NULL); /* and without APR between */
    assert_same_file(gguf, in_work("b.gguf"));
}

static void a_gguf_in_pairs_comes_back_byte_for_byte(void **state)
{
    (void)state;
    must("tests/data/llama-rows.gguf", in_work("rows.apr"), NULL);
    must(in_work("rows.apr"), in_work("rows.gguf"), NULL);
    assert_same_file("tests/data/llama-rows.gguf", in_work("rows.gguf"));
}

static void a_checkpoint_comes_back_byte_for_byte(void **state)
{
    (void)state;
    static const char *const files[] = {"model.safetensors", "config.json",           "generation_config.json",
                                        "tokenizer.json",    "tokenizer_config.json", "chat_template.jinja"};
    must(checkpoint, in_work("c.apr"), NULL);
    must(in_work("c.apr"), in_work("back"), NULL);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char original[256], copy[256];
        snprintf(original, sizeof original, "%s/%s", checkpoint, files[i]);
        snprintf(copy, sizeof copy, "%s/%s", in_work("back"), files[i]);
        assert_same_file(original, copy);
    }
}

/* The other way round: Hugging Face to GGUF and back keeps every value (norms and biases are widened to f32). */
static void a_checkpoint_through_gguf_keeps_every_value(void **state)
{
    (void)state;
    apr_model a, b, view;
    must(checkpoint, in_work("d.gguf"), NULL);
    assert_int_equal(apr_model_open(&a, checkpoint, NULL), APR_OK);
    assert_int_equal(apr_model_open(&b, in_work("d.gguf"), NULL), APR_OK);
    assert_int_equal(apr_canonical(&view, &b, NULL), APR_OK);
    assert_int_equal(a.n_tensors, view.n_tensors);
    assert_string_equal(b.hparams.architecture, "qwen2");
    assert_int_equal(b.vocab.n_tokens, a.vocab.n_tokens);
    assert_int_equal(b.vocab.n_merges, a.vocab.n_merges);
    assert_string_equal(b.vocab.chat_template, a.vocab.chat_template);
    for (size_t i = 0; i < a.n_tensors; i++) {
        const apr_tensor *const x = &a.tensors[i], *const y = apr_model_find(&view, x->name);
        assert_non_null(y);
        const int64_t n = apr_tensor_elems(x);
        float *const xs = malloc((size_t)n * 4), *const ys = malloc((size_t)n * 4);
        apr_decode_rows(x, 0, apr_tensor_rows(x), xs);
        apr_decode_rows(y, 0, apr_tensor_rows(y), ys);
        assert_memory_equal(xs, ys, (size_t)n * 4);
        free(xs);
        free(ys);
    }
    apr_model_close(&view);
    apr_model_close(&b);
    apr_model_close(&a);
}

static void steps_are_permutations_and_each_others_inverse(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{8, 1}, {24, 3}, {256, 4}, {384, 6}}; /* rows, heads */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = APR_STEP_PAIRS_TO_HALVES; kind <= APR_STEP_HALVES_TO_PAIRS; kind++) {
            const apr_step step = {(apr_step_kind)kind, {(int32_t)shapes[i][1]}};
            for (int64_t r = 0; r < shapes[i][0]; r++)
                assert_int_equal(apr_step_row(apr_step_inverse(step), shapes[i][0], apr_step_row(step, shapes[i][0], r)), r);
        }
    /* one head of 8 rows in halves is 0 4 1 5 2 6 3 7 in pairs: reshape(2, 4) swapped */
    static const int64_t in_pairs[] = {0, 4, 1, 5, 2, 6, 3, 7};
    for (int64_t r = 0; r < 8; r++) assert_int_equal(apr_step_row((apr_step){APR_STEP_HALVES_TO_PAIRS, {1}}, 8, r), in_pairs[r]);
}

/* What the pipe writes is what the codec makes of the whole tensor, however it is cut and on however many threads. */
static void the_pipe_writes_what_the_codec_makes(void **state)
{
    (void)state;
    static const char *const types[] = {"q8_0", "q4_k", "q6_k", "mxfp4", "f16", "f32"};
    apr_model a, b;
    assert_int_equal(apr_model_open(&a, checkpoint, NULL), APR_OK);
    const apr_tensor *const x = apr_model_find(&a, "model.embed_tokens.weight");
    const int64_t n = apr_tensor_elems(x);
    float *const values = malloc((size_t)n * 4);
    apr_decode_rows(x, 0, apr_tensor_rows(x), values);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        omp_set_num_threads(i % 2 == 0 ? 3 : 1);
        must(checkpoint, in_work("p.apr"), types[i]);
        assert_int_equal(apr_model_open(&b, in_work("p.apr"), NULL), APR_OK);
        const apr_tensor *const y = apr_model_find(&b, x->name);
        uint8_t *const bytes = malloc(y->n_bytes);
        apr_ref_codecs[y->dtype].encode(values, bytes, n);
        assert_memory_equal(bytes, y->data, y->n_bytes);
        free(bytes);
        apr_model_close(&b);
    }
    free(values);
    apr_model_close(&a);
}

static void fp8_brings_its_scales_and_comes_back_within_half_a_step(void **state)
{
    (void)state;
    apr_model a, b;
    must(checkpoint, in_work("fp8"), "fp8");
    assert_int_equal(apr_model_open(&a, checkpoint, NULL), APR_OK);
    assert_int_equal(apr_model_open(&b, in_work("fp8"), NULL), APR_OK);
    const apr_tensor *const x = apr_model_find(&a, "model.layers.1.mlp.down_proj.weight"), *const y = apr_model_find(&b, x->name);
    assert_int_equal(y->dtype, APR_F8_E4M3);
    assert_non_null(y->scale);
    assert_string_equal(y->scale->name, "model.layers.1.mlp.down_proj.weight_scale");
    const int64_t columns = apr_tensor_columns(x);
    float *const xs = malloc((size_t)columns * 4), *const ys = malloc((size_t)columns * 4);
    for (int64_t r = 0; r < apr_tensor_rows(x); r++) {
        const float scale = apr_f32_from_bits(apr_load_le32(y->scale->data + 4 * r));
        apr_decode_rows(x, r, 1, xs);
        apr_decode_rows(y, r, 1, ys);
        for (int64_t i = 0; i < columns; i++) /* half a unit of a 3-bit mantissa, or half of the smallest subnormal */
            assert_true(fabsf(xs[i] - ys[i]) <= fmaxf(fabsf(xs[i]) * 0x1.01p-4f, scale * 0x1p-10f));
    }
    free(xs);
    free(ys);
    apr_model_close(&b);
    apr_model_close(&a);
}

/* A sink that fails on the way: the error comes through and nothing stands under the final name. */
typedef struct failing {
    apr_sink base;
    size_t left;
} failing;

static apr_status failing_put(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err)
{
    failing *const f = (failing *)sink;
    (void)bytes;
    if (n_bytes > f->left) return apr_fail(err, APR_E_IO, "the disk is full");
    f->left -= n_bytes;
    return APR_OK;
}

static void a_failing_sink_stops_the_pipe(void **state)
{
    (void)state;
    static const apr_sink_ops ops = {.put = failing_put};
    const apr_convert_options options = {.format = APR_FORMAT_APR, .recipe = {.mixture = "q8_0"}};
    const apr_pipe_options pipe = {0};
    apr_model source;
    apr_conversion c;
    assert_int_equal(apr_model_open(&source, checkpoint, NULL), APR_OK);
    assert_int_equal(apr_conversion_plan(&c, &source, &options, NULL), APR_OK);
    for (size_t room = 0; room < 1800000; room += 250000) {
        failing sink = {.base = {&ops}, .left = room};
        apr_error err = {0};
        assert_int_equal(apr_pipe_run(&sink.base, c.items, c.layout.n_tensors, &pipe, &err), APR_E_IO);
        assert_string_equal(err.text, "the disk is full");
    }
    apr_conversion_close(&c);
    apr_model_close(&source);
}

static void a_refused_conversion_leaves_nothing(void **state)
{
    (void)state;
    apr_error err = {0};
    assert_int_equal(convert(checkpoint, in_work("no.gguf"), "fp8", &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "fp8 has no place in GGUF; the nearest type that has is q8_0"));
    assert_int_equal(access(in_work("no.gguf"), F_OK), -1);
    assert_int_equal(count_temporaries(work), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gguf_comes_back_byte_for_byte),
        cmocka_unit_test(a_gguf_in_pairs_comes_back_byte_for_byte),
        cmocka_unit_test(a_checkpoint_comes_back_byte_for_byte),
        cmocka_unit_test(a_checkpoint_through_gguf_keeps_every_value),
        cmocka_unit_test(steps_are_permutations_and_each_others_inverse),
        cmocka_unit_test(the_pipe_writes_what_the_codec_makes),
        cmocka_unit_test(fp8_brings_its_scales_and_comes_back_within_half_a_step),
        cmocka_unit_test(a_failing_sink_stops_the_pipe),
        cmocka_unit_test(a_refused_conversion_leaves_nothing),
    };
    return cmocka_run_group_tests_name("convert", tests, make_work, remove_work);
}
