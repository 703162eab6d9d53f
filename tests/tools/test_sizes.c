/* tools/engine/plan/sizes.h: the sizes a plan counts are the sizes of the files that are written. */
#define _XOPEN_SOURCE 700
#include "convert/run.h"
#include "quant/mixtures.h"
#include "quant/recipe.h"
#include "runtime/session/session.h"
#include "tests/support/fake_device.h"
#include "tests/support/sanitizer.h"
#include "tests/support/work_folder.h"
#include "tools/engine/bench/synthetic.h"
#include "tools/engine/plan/sizes.h"

static const char checkpoint[] = "tests/data/tiny-qwen2", config[] = "tests/data/tiny-qwen2/config.json";

/* Bytes of the data section of the APR file that a mixture makes of the checkpoint. */
static uint64_t data_bytes_written(const char *mixture)
{
    const apr_convert_options options = {.format = APR_FORMAT_APR, .recipe = {.mixture = mixture}, .sink = {.overwrite = true}};
    apr_model source;
    apr_conversion c;
    apr_map map;
    assert_int_equal(apr_model_open(&source, checkpoint, NULL), APR_OK);
    assert_int_equal(apr_conversion_plan(&c, &source, &options, NULL), APR_OK);
    assert_int_equal(apr_conversion_run(&c, &(apr_convert_run){0}, in_work("x.apr"), NULL, NULL), APR_OK);
    apr_conversion_close(&c);
    apr_model_close(&source);
    assert_int_equal(apr_map_open(&map, in_work("x.apr"), NULL), APR_OK);
    const uint64_t data_offset = apr_load_le64(map.data + 32), n = map.n_bytes - data_offset - 4; /* the footer is 4 bytes */
    apr_map_close(&map);
    return n;
}

static uint64_t bytes_planned(const char *mixture, bool from_config)
{
    apr_model source, skeleton = {0};
    apr_program program;
    uint64_t sum = 0;
    assert_int_equal(apr_model_open(&source, from_config ? config : checkpoint, NULL), APR_OK);
    assert_int_equal(source.n_tensors == 0, from_config);
    assert_int_equal(apr_program_emit(&program, &source.hparams, NULL), APR_OK);
    if (from_config) assert_int_equal(apr_skeleton_model(&skeleton, &program, &source, NULL), APR_OK);
    apr_weight_size *const sizes = calloc(program.n_weights, sizeof *sizes);
    assert_int_equal(apr_weight_sizes(from_config ? &skeleton : &source, &program, mixture, false, sizes, NULL), APR_OK);
    for (size_t i = 0; i < program.n_weights; i++) sum += sizes[i].bytes;
    free(sizes);
    apr_program_close(&program);
    apr_model_close(&skeleton);
    apr_model_close(&source);
    return sum;
}

static void every_mixture_is_planned_to_the_byte(void **state)
{
    (void)state;
    for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++) {
        if (APR_HAS_SANITIZER && (m - apr_mixture_names) % 3 != 0) continue; /* each is written, which takes long */
        const uint64_t written = data_bytes_written(m->name);
        assert_int_equal(bytes_planned(m->name, false), written);
        assert_int_equal(bytes_planned(m->name, true), written); /* from config.json alone */
    }
}

/* What aprplan does not size because it is too large is at least as large as it takes it to be. */
static void no_type_takes_less_than_its_least(void **state)
{
    static const char *const shapes[] = {"qwen3-30b-a3b", "gpt-oss-20b", "gemma-4-e2b",   "qwen2.5-0.5b",
                                         "lfm2-1.2b",     "deepseek-v3", "glm-4.7-flash", "nemotron-3-nano-30b-a3b"};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char path[128];
        apr_model source, skeleton;
        apr_program program;
        snprintf(path, sizeof path, "tests/data/shapes/%s.json", shapes[i]);
        assert_int_equal(apr_model_open(&source, path, NULL), APR_OK);
        assert_int_equal(apr_program_emit(&program, &source.hparams, NULL), APR_OK);
        assert_int_equal(apr_skeleton_model(&skeleton, &program, &source, NULL), APR_OK);
        for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++) {
            apr_weight_size *const sizes = calloc(program.n_weights, sizeof *sizes);
            uint64_t sum = 0;
            assert_int_equal(apr_weight_sizes(&skeleton, &program, m->name, true, sizes, NULL), APR_OK);
            for (size_t k = 0; k < program.n_weights; k++)
                if (!apr_slot_is_read_on_host(&program.weights[k])) sum += sizes[k].bytes;
            const uint64_t least = apr_weight_bytes_lower_bound(&program, m->name);
            /* rows that the blocks of few bits do not divide get 4.5 bits */
            const uint64_t most_times = apr_dtype_bits(apr_mixture_find(m->name)->base) < 4.0 ? 6 : 2;
            if (least > sum || least < sum / most_times)
                fail_msg("%s as %s: %llu bytes, at least %llu", shapes[i], m->name, (unsigned long long)sum, (unsigned long long)least);
            free(sizes);
        }
        apr_program_close(&program);
        apr_model_close(&skeleton);
        apr_model_close(&source);
    }
}

static void a_missing_weight_is_not_taken_for_zero(void **state)
{
    (void)state;
    apr_model source;
    apr_program program;
    apr_error err = {0};
    assert_int_equal(apr_model_open(&source, checkpoint, NULL), APR_OK);
    assert_int_equal(apr_program_emit(&program, &source.hparams, NULL), APR_OK);
    apr_weight_size *const sizes = calloc(program.n_weights, sizeof *sizes);
    source.n_tensors--; /* model.norm.weight is the last */
    assert_int_equal(apr_model_index_names(&source, NULL), APR_OK);
    assert_int_equal(apr_weight_sizes(&source, &program, NULL, false, sizes, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "model.norm.weight"));
    free(sizes);
    apr_program_close(&program);
    apr_model_close(&source);
}

/* Planned from a config.json: all slots' bytes, or why not. */
static apr_status plan_text(const char *config_text, uint64_t *sum, apr_error *err)
{
    apr_model source, skeleton = {0};
    apr_program program = {0};
    FILE *const f = fopen(in_work("config.json"), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(config_text, 1, strlen(config_text), f), strlen(config_text));
    assert_int_equal(fclose(f), 0);
    assert_int_equal(apr_model_open(&source, in_work("config.json"), err), APR_OK);
    assert_int_equal(apr_program_emit(&program, &source.hparams, err), APR_OK);
    assert_int_equal(apr_skeleton_model(&skeleton, &program, &source, err), APR_OK);
    apr_weight_size *const sizes = calloc(program.n_weights, sizeof *sizes);
    const apr_status status = apr_weight_sizes(&skeleton, &program, NULL, false, sizes, err);
    *sum = 0;
    for (size_t i = 0; i < program.n_weights; i++) *sum += sizes[i].bytes;
    free(sizes);
    apr_program_close(&program);
    apr_model_close(&skeleton);
    apr_model_close(&source);
    return status;
}

#define CONFIG(more)                                                                                                             \
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 256, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "               \
    "\"num_key_value_heads\": "                                                                                                  \
    "2, \"head_dim\": 64, \"vocab_size\": 512, \"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 128, " \
    "\"tie_word_embeddings\": false, \"max_position_embeddings\": 64, \"torch_dtype\": \"bfloat16\"" more "}"

/* A config.json that states quantized weights is planned with them: matrices of layers, all experts; routers, embeddings and the
 * head stay floats. */
static void a_stated_quantization_is_planned_as_it_is_published(void **state)
{
    (void)state;
    enum { ATTENTION = 256 * (256 + 128 + 128 + 256), EXPERTS = 8 * 3 * 128 * 256, LAYERS = 2 };
    const uint64_t vectors = LAYERS * 2 * (2 * 256 + 2 * 64) + 2 * 256, routers = LAYERS * 2 * 8 * 256, ends = 2 * 2 * 512 * 256;
    const uint64_t floats = vectors + routers + ends;
    const struct {
        const char *config;
        uint64_t bytes;
    } cases[] = {
        {CONFIG(""), floats + LAYERS * 2 * (ATTENTION + EXPERTS)},
        {CONFIG(", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], \"modules_to_not_convert\": "
                "[\"lm_head\", \"model.layers.1.self_attn\"]}"),
         floats + LAYERS * (EXPERTS + 8 * 3 * 64) + ATTENTION + 4 * 64 + 2 * ATTENTION},
        {CONFIG(", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128}"),
         floats + LAYERS * (ATTENTION / 2 + EXPERTS / 2 + (ATTENTION + EXPERTS) / 128 * 5 / 2 + 4 * 256 * 4 + 8 * (2 * 256 + 128) * 4)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        uint64_t sum;
        if (plan_text(cases[i].config, &sum, &err) != APR_OK) fail_msg("%s", err.text);
        assert_int_equal(sum, cases[i].bytes);
    }
}

static void an_unknown_quantization_is_not_taken_for_16_bits(void **state)
{
    (void)state;
    apr_error err = {0};
    uint64_t sum;
    assert_int_equal(plan_text(CONFIG(", \"quantization_config\": {\"quant_method\": \"hqq\"}"), &sum, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'hqq'"));
    assert_non_null(strstr(err.text, "--dtype"));
}

/* --- the plan before and the plan of a session --- */

/* As aprplan makes it of a config.json, for the GPU that the fake device says it is. */
static apr_plan plan_of_config(const char *path, const char *mixture, int64_t n_ctx)
{
    static const apr_gpu card = {.name = "device", .label = "a fake", .vram_mib = 1 << 14, .n_sms = 2, .threads_per_sm = 64, .major = 9};
    apr_plan_options options = apr_plan_defaults;
    apr_model source, skeleton;
    apr_program program;
    apr_plan plan;
    apr_error err = {0};

    assert_int_equal(apr_model_open(&source, path, NULL), APR_OK);
    assert_int_equal(apr_program_emit(&program, &source.hparams, NULL), APR_OK);
    assert_int_equal(apr_skeleton_model(&skeleton, &program, &source, NULL), APR_OK);
    apr_weight_size *const sizes = calloc(program.n_weights, sizeof *sizes);
    uint64_t *const bytes = calloc(program.n_weights, sizeof *bytes);
    apr_dtype *const dtypes = calloc(program.n_weights, sizeof *dtypes);
    if (apr_weight_sizes(&skeleton, &program, mixture, true, sizes, &err) != APR_OK) fail_msg("%s: %s", path, err.text);
    for (size_t i = 0; i < program.n_weights; i++) {
        bytes[i] = sizes[i].bytes;
        dtypes[i] = sizes[i].is_f16 ? APR_F16 : APR_BF16;
    }
    options.gpu = &card;
    options.n_ctx = n_ctx;
    options.weight_bytes = bytes;
    options.weight_dtypes = dtypes;
    for (int i = 0; i < apr_plan_n_speeds(0, true); i++) { /* until it fits */
        if (i > 0) apr_plan_close(&plan);
        apr_plan_set_speed(&options, 0, true, i);
        assert_int_equal(apr_plan_make(&plan, &program, &options, NULL), APR_OK);
        if (plan.fits) break;
    }
    free(sizes);
    free(bytes);
    free(dtypes);
    apr_program_close(&program);
    apr_model_close(&skeleton);
    apr_model_close(&source);
    return plan;
}

/* As a session plans it, of tensors of these types one by one. */
static apr_plan plan_of_session(const char *path, const char *mixture, int64_t n_ctx)
{
    apr_session_options options = apr_session_defaults;
    apr_synthetic s;
    apr_plan plan = {0};
    apr_error err = {0};

    options.n_ctx = n_ctx;
    options.cuda = fake_device();
    if (apr_synthetic_open(&s, path, mixture, true, &err) != APR_OK || apr_session_forecast(&plan, &s.model, &options, &err) != APR_OK)
        fail_msg("%s: %s", path, err.text);
    apr_synthetic_close(&s);
    return plan;
}

static void check_same_plan(const char *path, const char *mixture)
{
    apr_plan before = plan_of_config(path, mixture, 3000), of_session = plan_of_session(path, mixture, 3000);
    for (int id = 0; id < APR_LINE_COUNT; id++) {
        const apr_plan_line *const a = apr_plan_line_of(&before, (apr_line_id)id), *const b =
                                                                                       apr_plan_line_of(&of_session, (apr_line_id)id);
        if ((a != NULL ? a->bytes : 0) != (b != NULL ? b->bytes : 0))
            fail_msg("%s as %s, %s: %llu bytes planned, a session plans %llu", path, mixture, a != NULL ? a->key : b->key,
                     (unsigned long long)(a != NULL ? a->bytes : 0), (unsigned long long)(b != NULL ? b->bytes : 0));
    }
    assert_int_equal(before.device_bytes, of_session.device_bytes);
    apr_plan_close(&before);
    apr_plan_close(&of_session);
}

static void a_session_plans_what_was_planned_for_it(void **state)
{
    (void)state;
    static const char *const shapes[] = {"qwen2.5-7b",
                                         "qwen3-30b-a3b",
                                         "gpt-oss-20b",
                                         "qwen3.5-27b",
                                         "qwen3.5-35b-a3b",
                                         "qwen3-next-80b",
                                         "glm-4.7-flash",
                                         "glm-4.5-air",
                                         "deepseek-v3",
                                         "minimax-m2",
                                         "mistral-small-4",
                                         "llama4-scout",
                                         "granite-4-h-small",
                                         "lfm2-1.2b",
                                         "gemma-4-e2b",
                                         "gemma-4-31b",
                                         "nemotron-3-nano-30b-a3b",
                                         "qwen2.5-vl-7b",
                                         "qwen3-vl-30b-a3b",
                                         "falcon-h1-7b",
                                         "kimi-linear-48b-a3b",
                                         "deepseek-v3.2-two-layers"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char path[128];
        snprintf(path, sizeof path, "tests/data/shapes/%s.json", shapes[i]);
        check_same_plan(path, "q8_0");
        if (i % 5 == 0) check_same_plan(path, "f16");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mixture_is_planned_to_the_byte),    cmocka_unit_test(no_type_takes_less_than_its_least),
        cmocka_unit_test(a_missing_weight_is_not_taken_for_zero),  cmocka_unit_test(a_stated_quantization_is_planned_as_it_is_published),
        cmocka_unit_test(a_session_plans_what_was_planned_for_it), cmocka_unit_test(an_unknown_quantization_is_not_taken_for_16_bits),
    };
    return cmocka_run_group_tests_name("sizes", tests, make_work, remove_work);
}
