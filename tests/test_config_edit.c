/* formats/safetensors.h, apr_hf_config_edit: only the members that change are touched. */
#include "formats/json.h"
#include "formats/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *edit(const char *text, const char *torch_dtype, apr_config_quantization quantization)
{
    const apr_attachment config = {"config.json", (const uint8_t *)text, strlen(text)};
    cJSON *json;
    char *const out = apr_hf_config_edit(&config, torch_dtype, quantization);
    assert_non_null(out);
    assert_int_equal(apr_json_parse(&json, out, strlen(out), "edited", NULL), APR_OK); /* still JSON */
    cJSON_Delete(json);
    return out;
}

static void members_change_and_the_rest_stays(void **state)
{
    (void)state;
    static const struct {
        const char *before, *torch_dtype;
        apr_config_quantization quantization;
        const char *after;
    } cases[] = {
        {"{\"a\": 1.0, \"torch_dtype\": \"bfloat16\" , \"b\": [1, {\"torch_dtype\": 2}]}\n", "float16", APR_CONFIG_KEEP,
         "{\"a\": 1.0, \"torch_dtype\": \"float16\" , \"b\": [1, {\"torch_dtype\": 2}]}\n"},
        {"{\n  \"dtype\": \"bfloat16\"\n}", "float32", APR_CONFIG_KEEP, "{\n  \"dtype\": \"float32\"\n}"},
        {"{\n  \"eps\": 1e-06\n}", "float32", APR_CONFIG_KEEP, "{\n  \"eps\": 1e-06,\n  \"torch_dtype\": \"float32\"\n}"},
        {"{}", "float32", APR_CONFIG_KEEP, "{\n  \"torch_dtype\": \"float32\"}"},
        {"{\"a\": 1, \"quantization_config\": {\"x\": [\"}\", \"\\\"\"]}, \"b\": 2}", NULL, APR_CONFIG_UNQUANTIZED, "{\"a\": 1, \"b\": 2}"},
        {"{\"a\": 1, \"quantization_config\": {\"x\": 1}}", NULL, APR_CONFIG_UNQUANTIZED, "{\"a\": 1}"},
        {"{\"quantization_config\": null}", NULL, APR_CONFIG_UNQUANTIZED, "{}"},
        {"{\"a\": 1}", NULL, APR_CONFIG_UNQUANTIZED, "{\"a\": 1}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *const out = edit(cases[i].before, cases[i].torch_dtype, cases[i].quantization);
        assert_string_equal(out, cases[i].after);
        free(out);
    }
}

static void fp8_is_stated_as_compressed_tensors_do(void **state)
{
    (void)state;
    char *const out = edit("{\"a\": 1, \"quantization_config\": {\"quant_method\": \"fp8\"}}", NULL, APR_CONFIG_FP8_CHANNEL);
    cJSON *json;
    assert_int_equal(apr_json_parse(&json, out, strlen(out), "edited", NULL), APR_OK);
    const cJSON *const q = apr_json_get(json, "quantization_config");
    assert_string_equal(apr_json_get_string(q, "quant_method"), "compressed-tensors");
    assert_string_equal(apr_json_get_string(apr_json_get(apr_json_get(apr_json_get(q, "config_groups"), "group_0"), "weights"), "strategy"),
                        "channel");
    cJSON_Delete(json);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_change_and_the_rest_stays),
        cmocka_unit_test(fp8_is_stated_as_compressed_tensors_do),
    };
    return cmocka_run_group_tests_name("config_edit", tests, NULL, NULL);
}
