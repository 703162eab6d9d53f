/* formats/packed/hf_quantization.h: every producer's words come down to schemes, patterns and sizes; what is not understood is named. */
#include "formats/packed/hf_quantization.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A model with nothing but these small files. */
static const apr_quantization *read_files(const char *config, const char *modelopt, apr_arena *arena)
{
    const apr_attachment files[] = {{"config.json", (const uint8_t *)config, strlen(config)},
                                    {"hf_quant_config.json", (const uint8_t *)modelopt, modelopt != NULL ? strlen(modelopt) : 0}};
    const apr_model model = {.path = "m", .attachments = files, .n_attachments = modelopt != NULL ? 2 : 1};
    const apr_quantization *q;
    apr_error err = {0};
    if (apr_quantization_read(&model, arena, &q, &err) != APR_OK) fail_msg("%s", err.text);
    return q;
}

/* {"quantization_config": TEXT} */
static const apr_quantization *read_config(const char *text, apr_arena *arena)
{
    char config[4096];
    snprintf(config, sizeof config, "{\"torch_dtype\": \"bfloat16\", \"quantization_config\": %s}", text);
    return read_files(config, NULL, arena);
}

#define CT_GROUP(weights, rest)                        \
    "{\"quant_method\": \"compressed-tensors\", " rest \
    "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {" weights "}}}, \"ignore\": [\"lm_head\"]}"

/* What a matrix [256 rows, 512 columns] takes in each producer's spelling, tensor by tensor as it publishes them. */
static void schemes_and_sizes_are_those_that_are_published(void **state)
{
    (void)state;
    enum { N = 256, K = 512, ALL = N * K };
    static const struct {
        const char *config, *text;
        uint64_t bytes;
    } cases[] = {
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], \"fmt\": \"e4m3\"}", "FP8, blocks of 128x128", ALL + 64},
        {"{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\"}", "FP8, one scale a tensor", ALL + 64},
        {"{\"quant_method\": \"fbgemm_fp8\", \"activation_scale_ub\": 1200.0}", "FP8, one scale a row", ALL + N * 4},
        {"{\"weight_block_size\": [64, 128]}", "FP8, blocks of 64x128", ALL + 64},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, \"desc_act\": false}", "GPTQ, 4 bits, groups of 128",
         ALL / 2 + 4 * (N / 2) + 4 * N * 2 + K * 4},
        {"{\"quant_method\": \"gptq\", \"bits\": 3, \"group_size\": -1}", "GPTQ, 3 bits, one scale a row",
         ALL * 3 / 8 + 128 /* N * 3 / 8, padded */ + N * 2 + K * 4},
        {"{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 64, \"zero_point\": true, \"version\": \"gemm\"}",
         "AWQ, 4 bits, groups of 64", ALL / 2 + 8 * (N / 2) + 8 * N * 2},
        {"{\"quant_method\": \"auto-round\", \"bits\": 4, \"group_size\": 128, \"packing_format\": \"auto_round:auto_gptq\"}",
         "GPTQ, 4 bits, groups of 128", ALL / 2 + 4 * (N / 2) + 4 * N * 2 + K * 4},
        {"{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\"}",
         "bitsandbytes, 4 bits, groups of 64", ALL / 2 + ALL / 64 * 4 + 64 + 128},
        {"{\"load_in_4bit\": true, \"bnb_4bit_use_double_quant\": true}", "bitsandbytes, 4 bits, groups of 64",
         ALL / 2 + ALL / 64 + 64 + 128 + 1024 + 64},
        {"{\"quant_method\": \"bitsandbytes\", \"load_in_8bit\": true}", "INT8, one scale a row", ALL + N * 4 + 64},
        {CT_GROUP("\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"channel\"", "\"format\": \"float-quantized\", "),
         "FP8, one scale a row", ALL + N * 2},
        {CT_GROUP("\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"block\", \"block_structure\": [128, 128]", ""),
         "FP8, blocks of 128x128", ALL + 64},
        {CT_GROUP("\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"channel\"", "\"format\": \"int-quantized\", "),
         "INT8, one scale a row", ALL + N * 2},
        {CT_GROUP("\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\", \"group_size\": 32, \"symmetric\": true",
                  "\"format\": \"pack-quantized\", "),
         "INT, 4 bits, groups of 32", ALL / 2 + N * 16 * 2 + 64},
        {CT_GROUP("\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\", \"group_size\": 128, \"symmetric\": false, \"actorder\": "
                  "\"group\"",
                  "\"format\": \"pack-quantized\", "),
         "INT, 4 bits, groups of 128", ALL / 2 + N * 4 * 2 + 4 * (N / 2) + 64 + K * 4},
        {CT_GROUP("\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"tensor_group\", \"group_size\": 16",
                  "\"format\": \"nvfp4-pack-quantized\", "),
         "NVFP4, groups of 16", ALL / 2 + ALL / 16 + 64},
        {CT_GROUP("\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"group\", \"group_size\": 32", "\"format\": \"mixed-precision\", "),
         "MXFP4, groups of 32", ALL / 2 + ALL / 32},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"group_size\": 16}", "NVFP4, groups of 16", ALL / 2 + ALL / 16 + 64},
        {"{\"quant_algo\": \"FP8\"}", "FP8, one scale a tensor", ALL + 64},
        {"{\"quant_method\": \"quark\", \"global_quant_config\": {\"weight\": {\"dtype\": \"fp4\", \"qscheme\": \"per_group\", "
         "\"group_size\": 32}}}",
         "MXFP4, groups of 32", ALL / 2 + ALL / 32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        char text[96];
        const apr_quantization *const q = read_config(cases[i].config, &arena);
        assert_non_null(q);
        if (q->problem != NULL) fail_msg("%s: %s", cases[i].config, q->problem);
        const apr_quant_scheme *const s = apr_quantization_of(q, "model.layers.0.self_attn.q_proj", APR_MODULE_LINEAR);
        if (s == NULL) fail_msg("%s: no scheme", cases[i].config);
        assert_string_equal(apr_quant_text(s, text, sizeof text), cases[i].text);
        if (apr_quant_bytes(s, 1, N, K) != cases[i].bytes)
            fail_msg("%s: %llu bytes, not %llu", cases[i].config, (unsigned long long)apr_quant_bytes(s, 1, N, K),
                     (unsigned long long)cases[i].bytes);
        assert_null(apr_quantization_of(q, "model.embed_tokens", APR_MODULE_OTHER));
        apr_arena_close(&arena);
    }
}

static void what_is_not_understood_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *config, *method, *problem;
    } cases[] = {
        {"{\"quant_method\": \"hqq\"}", "hqq", "the method is unknown"},
        {"{\"bits\": 4}", "(not named)", "the method is unknown"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [128]}", "fp8", "its block size is not [rows, columns]"},
        {"{\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"}", "fp8", "FP8 of the kind \"e5m2\""},
        {"{\"quant_method\": \"gptq\", \"bits\": 17}", "gptq", "integers of 17 bits"},
        {"{\"quant_method\": \"gptq\", \"bits\": \"four\"}", "gptq", "\"bits\" is not an integer"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"dynamic\": {\"+:mlp\": {\"bits\": 9}}}", "gptq", "integers of 9 bits"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"dynamic\": [\"-:mlp\"]}", "gptq", "\"dynamic\" that is not an object"},
        {"{\"quant_method\": \"awq\", \"version\": \"marlin\"}", "awq", "AWQ in the version \"marlin\""},
        {"{\"quant_method\": \"gptq\", \"checkpoint_format\": \"gptq_p\"}", "gptq", "GPTQ in the format \"gptq_p\""},
        {"{\"quant_method\": \"compressed-tensors\", \"transform_config\": {\"config_groups\": {\"r\": {\"apply\": [{\"location\": "
         "\"weight_input\"}, "
         "{\"location\": \"input\"}]}}}}",
         "compressed-tensors", "activations that are rotated (\"transform_config\")"},
        {CT_GROUP("\"num_bits\": 4, \"type\": \"int\"", "\"format\": \"marlin-24\", "), "compressed-tensors", "the format \"marlin-24\""},
        {"{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"a\": {\"targets\": [\"re:(\"], \"weights\": {\"num_bits\": 8, "
         "\"type\": \"float\"}}}}",
         "compressed-tensors", "the pattern \"re:(\""},
        {CT_GROUP("\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"channel\"", "\"format\": \"float-quantized\", "),
         "compressed-tensors", "weights of type \"float\" with 4 bits in a format for others"},
        {"{\"quant_algo\": \"W4A8_AWQ\"}", "modelopt", "the algorithm \"W4A8_AWQ\""},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\"}", "modelopt",
         "mixed precision without a list of quantized_layers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        char method[64];
        const apr_quantization *const q = read_config(cases[i].config, &arena);
        assert_non_null(q);
        snprintf(method, sizeof method, "%s", q->method);
        if (strcmp(method, "modelopt") != 0) assert_string_equal(method, cases[i].method);
        if (q->problem == NULL) fail_msg("%s: understood", cases[i].config);
        assert_string_equal(q->problem, cases[i].problem);
        apr_arena_close(&arena);
    }
}

static void a_quantization_config_is_found_wherever_it_is_written(void **state)
{
    (void)state;
    static const char fp8[] = "{\"quant_method\": \"fp8\"}";
    static const char *const places[] = {"{\"quantization_config\": %s}", "{\"compression_config\": %s}",
                                         "{\"text_config\": {\"quantization_config\": %s}}",
                                         "{\"quantization_config\": null, \"text_config\": {\"compression_config\": %s}}",
                                         "{\"compression_config\": {\"quantization_config\": %s}}"};
    apr_arena arena = {0};
    char text[256];
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *const at = strstr(places[i], "%s");
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - places[i]), places[i], fp8, at + 2);
        const apr_quantization *const q = read_files(text, NULL, &arena);
        assert_non_null(q);
        assert_string_equal(q->method, "fp8");
    }
    assert_null(read_files("{\"hidden_size\": 8}", NULL, &arena));
    assert_null(read_files("{\"quantization_config\": null}", NULL, &arena));
    assert_null(read_files("{\"quantization_config\": {}}", NULL, &arena));
    assert_null(read_files("no JSON", NULL, &arena));
    const apr_quantization *const q =
        read_files("{}", "{\"quantization\": {\"quant_algo\": \"NVFP4\", \"exclude_modules\": [\"lm_head\"]}}", &arena);
    assert_non_null(q);
    assert_string_equal(q->method, "modelopt");
    assert_null(apr_quantization_of(q, "lm_head", APR_MODULE_HEAD));
    assert_non_null(apr_quantization_of(q, "model.layers.0.mlp.up_proj", APR_MODULE_LINEAR));
    apr_arena_close(&arena);
}

/* The lists of modules that stay floats, in each producer's key and manner. */
static void skipped_modules_are_found_in_every_spelling(void **state)
{
    (void)state;
    static const struct {
        const char *list, *module;
        bool covers;
    } cases[] = {
        {"\"modules_to_not_convert\": [\"model.layers.*.self_attn\", \"lm_head\"]", "model.layers.13.self_attn.q_proj", true},
        {"\"modules_to_not_convert\": [\"model.layers.*.self_attn\", \"lm_head\"]", "model.layers.13.mlp.up_proj", false},
        {"\"ignored_layers\": [\"mlp.gate\"]", "model.layers.3.mlp.gate", true},
        {"\"ignored_layers\": [\"mlp.gate\"]", "model.layers.3.mlp.gate_proj", false},
        {"\"ignore\": [\"re:.*o_proj$\"]", "model.layers.3.self_attn.o_proj", true},
        {"\"ignore\": [\"re:.*o_proj\"]", "model.layers.3.self_attn.o_proj", true},
        {"\"ignore\": [\"re:.*?o_proj\"]", "model.layers.3.self_attn.o_proj", true},
        {"\"ignore\": [\"re:.*x|o_proj\"]", "model.layers.3.self_attn.o_proj", false},
        {"\"ignore\": [\"re:o_proj$\"]", "model.layers.3.self_attn.o_proj", false}, /* an expression starts at the beginning */
        {"\"ignore\": [\"re:model.language_model.layers.3.*\"]", "model.layers.3.mlp.up_proj", true},
        {"\"exclude_modules\": [\"model.layers.1\"]", "model.layers.1.mlp.up_proj", true},
        {"\"exclude_modules\": [\"model.layers.1\"]", "model.layers.10.mlp.up_proj", false},
        {"\"exclude_modules\": [\"model.layers.0*\"]", "model.layers.0.mlp.up_proj", true},
        {"\"exclude\": [\"model.layers.0.mlp.up_proj\"]", "model.layers.0.mlp.up_proj", true},
        {"\"llm_int8_skip_modules\": [\"up_proj\"]", "model.layers.0.mlp.up_proj", true},
        {"\"ignore\": [\"model.language_model.layers.0.mlp\"]", "model.layers.0.mlp.up_proj", true},
        {"\"ignore\": [\"language_model.model.layers.0.mlp.up_proj\"]", "model.layers.0.mlp.up_proj", true},
        {"\"ignore\": [\"visual.blocks.0.mlp.up_proj\", \"\"]", "model.layers.0.mlp.up_proj", false},
        {"\"dynamic\": {\"-:self_attn\": {}}", "model.layers.0.self_attn.q_proj", true},
        {"\"dynamic\": {\"-:self_attn\": {}}", "model.layers.0.mlp.up_proj", false},
        {"\"dynamic\": {\"+:self_attn\": {\"bits\": 8}}", "model.layers.0.self_attn.q_proj", false},
        {"\"extra_config\": {\"model.layers.0.mlp.up_proj\": {\"bits\": 16}}", "model.layers.0.mlp.up_proj", true},
        {"\"extra_config\": {\"model.layers.0.mlp.up_proj\": {\"bits\": 8}}", "model.layers.0.mlp.up_proj", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        char config[256];
        snprintf(config, sizeof config, "{\"quant_method\": \"%s\", %s}", strstr(cases[i].list, "dynamic") != NULL ? "gptq" : "fp8",
                 cases[i].list);
        const apr_quantization *const q = read_config(config, &arena);
        assert_non_null(q);
        assert_null(q->problem);
        if ((apr_quantization_of(q, cases[i].module, APR_MODULE_LINEAR) == NULL) != cases[i].covers)
            fail_msg("%s and %s", cases[i].list, cases[i].module);
        apr_arena_close(&arena);
    }
}

/* A pattern that is given up on a name has not said that the module is not covered. */
static void patterns_that_take_too_long_are_a_failure(void **state)
{
    (void)state;
    static const char *const lists[] = {"\"ignore\": [\"re:(.+)+x|.*o_proj\"]", "\"ignore\": [\"re:.*(.+)+[!?]\"]"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        apr_arena arena = {0};
        apr_error err = {0};
        char config[256];
        snprintf(config, sizeof config, "{\"quant_method\": \"fp8\", %s}", lists[i]);
        const apr_quantization *const q = read_config(config, &arena);
        assert_non_null(q);
        assert_int_equal(apr_quantization_check(q, NULL), APR_OK);
        apr_quantization_of(q, "model.layers.3.self_attn.o_proj", APR_MODULE_LINEAR);
        assert_int_equal(apr_quantization_check(q, &err), APR_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "takes too long"));
        apr_arena_close(&arena);
    }
    assert_int_equal(apr_quantization_check(NULL, NULL), APR_OK);
}

static void the_first_rule_that_covers_a_module_counts(void **state)
{
    (void)state;
    static const char mixed[] =
        "{\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\", \"quantized_layers\": {"
        "\"model.layers.0.self_attn.q_proj\": {\"quant_algo\": \"FP8\"}, \"model.layers.0.mlp.up_proj\": {\"quant_algo\": \"NVFP4\"}}}";
    static const char dynamic[] = "{\"quant_method\": \"gptq\", \"bits\": 4, \"dynamic\": {\"+:mlp\": {\"bits\": 8, \"group_size\": 32}}}";
    static const char groups[] =
        "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"a\": {\"targets\": [\"Linear\"], \"format\": \"pack-quantized\", "
        "\"weights\": {\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"channel\"}}, \"b\": {\"targets\": [\"re:.*down_proj\"], "
        "\"format\": "
        "\"float-quantized\", \"weights\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"tensor\"}}}, \"ignore\": [\"lm_head\"]}";
    apr_arena arena = {0};
    const apr_quantization *q = read_config(mixed, &arena);
    assert_null(q->problem);
    assert_int_equal(apr_quantization_of(q, "model.layers.0.self_attn.q_proj", APR_MODULE_LINEAR)->layout, APR_QUANT_FP8);
    assert_int_equal(apr_quantization_of(q, "model.layers.0.mlp.up_proj", APR_MODULE_LINEAR)->layout, APR_QUANT_NVFP4);
    assert_null(apr_quantization_of(q, "model.layers.1.mlp.up_proj", APR_MODULE_LINEAR));
    q = read_config(dynamic, &arena);
    assert_null(q->problem);
    assert_int_equal(apr_quantization_of(q, "model.layers.0.mlp.up_proj", APR_MODULE_LINEAR)->bits, 8);
    assert_int_equal(apr_quantization_of(q, "model.layers.0.mlp.up_proj", APR_MODULE_LINEAR)->block_columns, 32);
    assert_int_equal(apr_quantization_of(q, "model.layers.0.self_attn.q_proj", APR_MODULE_LINEAR)->bits, 4);
    q = read_config(groups, &arena);
    assert_null(q->problem);
    assert_int_equal(apr_quantization_of(q, "model.layers.0.mlp.down_proj", APR_MODULE_LINEAR)->layout, APR_QUANT_FP8);
    assert_int_equal(apr_quantization_of(q, "model.layers.0.mlp.up_proj", APR_MODULE_LINEAR)->layout, APR_QUANT_INT_PACKED);
    assert_null(apr_quantization_of(q, "lm_head", APR_MODULE_HEAD));
    apr_arena_close(&arena);
}

static void gpt_oss_quantizes_its_experts_alone(void **state)
{
    (void)state;
    apr_model model;
    apr_error err = {0};
    if (apr_model_open(&model, "tests/data/shapes/gpt-oss-20b.json", &err) != APR_OK) fail_msg("%s", err.text);
    assert_non_null(model.quantization);
    assert_null(model.quantization->problem);
    assert_null(apr_quantization_of(model.quantization, "model.layers.0.self_attn.q_proj", APR_MODULE_LINEAR));
    assert_null(apr_quantization_of(model.quantization, "lm_head", APR_MODULE_HEAD));
    const apr_quant_scheme *const s = apr_quantization_of(model.quantization, "model.layers.0.mlp.experts.down_proj", APR_MODULE_EXPERTS);
    assert_non_null(s);
    assert_int_equal(apr_quant_bytes(s, 32, 2880, 2880), 32ull * 2880 * 2880 / 2 + 32ull * 2880 * 90);
    apr_model_close(&model);
}

static void sizes_beyond_counting_saturate(void **state)
{
    (void)state;
    const apr_quant_scheme s = {.layout = APR_QUANT_INT8, .bits = 8, .block_rows = 1, .scale_bytes = 4, .zero_points = true};
    assert_true(apr_quant_bytes(&s, 4096, (int64_t)1 << 31, (int64_t)1 << 31) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemes_and_sizes_are_those_that_are_published),
        cmocka_unit_test(what_is_not_understood_is_named),
        cmocka_unit_test(a_quantization_config_is_found_wherever_it_is_written),
        cmocka_unit_test(skipped_modules_are_found_in_every_spelling),
        cmocka_unit_test(patterns_that_take_too_long_are_a_failure),
        cmocka_unit_test(the_first_rule_that_covers_a_module_counts),
        cmocka_unit_test(gpt_oss_quantizes_its_experts_alone),
        cmocka_unit_test(sizes_beyond_counting_saturate),
    };
    return cmocka_run_group_tests_name("hf_quantization", tests, NULL, NULL);
}
