/* formats/shape/hf_config.h, apr_hf_config_edit: only the members that change are touched. */
#include "formats/base/json.h"
#include "formats/hf/safetensors.h"
#include "formats/shape/hf_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The copy is exact, so that a sanitizer sees a byte read past it. */
static apr_status try_edit(const void *text, size_t n, const char *torch_dtype, apr_config_quantization quantization, char **out,
                           apr_error *err)
{
    size_t n_out = 0;
    uint8_t *const copy = malloc(n > 0 ? n : 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    const apr_attachment config = {"config.json", copy, n};
    const apr_status status = apr_hf_config_edit(&config, torch_dtype, quantization, out, &n_out, err);
    free(copy);
    if (status == APR_OK) assert_int_equal(strlen(*out), n_out);
    else assert_null(*out);
    return status;
}

static char *edit(const char *text, const char *torch_dtype, apr_config_quantization quantization)
{
    cJSON *json;
    char *out;
    assert_int_equal(try_edit(text, strlen(text), torch_dtype, quantization, &out, NULL), APR_OK);
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
        /* both names, keys with escapes, and what looks like the member but is deeper or in a text */
        {"{\"dtype\":\"a\",\"torch_dtype\":\"b\"}", "float32", APR_CONFIG_KEEP, "{\"dtype\":\"float32\",\"torch_dtype\":\"float32\"}"},
        {"{\"torch\\u005fdtype\":\"b\"}", "float32", APR_CONFIG_KEEP, "{\"torch\\u005fdtype\":\"float32\"}"},
        {"{\"x\": \"\\\"torch_dtype\\\": 1, {\", \"y\": {\"torch_dtype\": [[[{\"}]\": []}]]]}, \"torch_dtype\":null }", "float32",
         APR_CONFIG_KEEP,
         "{\"x\": \"\\\"torch_dtype\\\": 1, {\", \"y\": {\"torch_dtype\": [[[{\"}]\": []}]]]}, \"torch_dtype\":\"float32\" }"},
        {"{\"x\": NaN, \"y\": -Infinity, \"dtype\" : 1e5}", "float32", APR_CONFIG_KEEP,
         "{\"x\": NaN, \"y\": -Infinity, \"dtype\" : \"float32\"}"},
        /* nested: where it stands, there it changes */
        {"{\"text_config\": {\"dtype\": \"bfloat16\", \"quantization_config\": 1}, \"vision_config\": {\"dtype\": \"float16\"}}", "float32",
         APR_CONFIG_UNQUANTIZED, "{\"text_config\": {\"dtype\": \"float32\"}, \"vision_config\": {\"dtype\": \"float16\"}}"},
        {"{\"dtype\": \"a\", \"text_config\": {\"torch_dtype\": \"b\"}}", "float32", APR_CONFIG_KEEP,
         "{\"dtype\": \"float32\", \"text_config\": {\"torch_dtype\": \"float32\"}}"},
        {"{\"text_config\": {}}", "float32", APR_CONFIG_KEEP, "{\"text_config\": {},\n  \"torch_dtype\": \"float32\"}"},
        {"{\"quantization_config\": {}}", "float32", APR_CONFIG_UNQUANTIZED, "{\"torch_dtype\": \"float32\"}"},
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

/* Each was good enough for a reader that looked for a NUL. */
static void what_is_not_a_config_is_refused(void **state)
{
    static const struct {
        const char *text;
        size_t n; /* 0: strlen */
        const char *part_of_sentence;
    } cases[] = {
        {"", 0, "no value"},
        {"{", 0, "not valid JSON"},
        {"{\"dtype", 0, "ends inside a string"},
        {"{\"dtype\": \"bfloat16", 0, "ends inside a string"},
        {"{\"dtype\": [[[[", 0, "not valid JSON"},
        {"{\"dtype\": \"x\"}\0", 15, "not valid JSON"},
        {"{\"dtype\": \"a\", \"dt\\u0079pe\": \"b\"}", 0, "appears twice"},
        {"[\"dtype\"]", 0, "not a JSON object"},
        {"\"dtype\"", 0, "not a JSON object"},
        {"   ", 0, "no value"},
    };
    char deep[400];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        char *out;
        const size_t n = cases[i].n > 0 ? cases[i].n : strlen(cases[i].text);
        assert_int_equal(try_edit(cases[i].text, n, "float32", APR_CONFIG_FP8_CHANNEL, &out, &err), APR_E_DAMAGED);
        if (strstr(err.text, cases[i].part_of_sentence) == NULL || strstr(err.text, "config.json") == NULL)
            fail_msg("%s gave: %s", cases[i].text, err.text);
    }
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"a\":", 5);
    char *out;
    assert_int_equal(try_edit(deep, sizeof deep, "float32", APR_CONFIG_KEEP, &out, NULL), APR_E_DAMAGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_change_and_the_rest_stays),
        cmocka_unit_test(fp8_is_stated_as_compressed_tensors_do),
        cmocka_unit_test(what_is_not_a_config_is_refused),
    };
    return cmocka_run_group_tests_name("config_edit", tests, NULL, NULL);
}
