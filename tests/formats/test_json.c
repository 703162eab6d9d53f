/* formats/base/json.h: what a strict parser refuses, what lookups answer, and what the writer writes. */
#include "formats/base/json.h"

#include "tests/support/failing_host.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Parses a copy of exactly that many bytes, so that reading past the end is seen. */
static apr_status parse(cJSON **json, const char *text, size_t n_bytes, apr_error *err)
{
    char *const copy = malloc(n_bytes > 0 ? n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, text, n_bytes);
    const apr_status status = apr_json_parse(json, copy, n_bytes, "test.json", err);
    free(copy);
    return status;
}

static void a_lack_of_memory_is_not_damage(void **state)
{
    static const char *const texts[] = {"{\"a\":[1,\"two\",{\"b\":null,\"c\":1e9}],\"d\":\"\\u00e4\"}", "[NaN,{\"a\":Infinity}]", "\"x\"",
                                        "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9,\"j\":10}"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cJSON *json = NULL;
        int64_t nth = 0;
        for (apr_status status = APR_E_MEMORY; status != APR_OK; cJSON_Delete(json)) {
            apr_error err = {0};
            failing_host_allocation(++nth);
            status = apr_json_parse(&json, texts[i], strlen(texts[i]), "test.json", &err);
            const int64_t n_left = failing_host_blocks();
            failing_host_allocation(0);
            if (status != APR_OK && (status != APR_E_MEMORY || json != NULL || n_left != 0 || strstr(err.text, "memory") == NULL))
                fail_msg("allocation %d of %s: status %d, %d blocks left, %s", (int)nth, texts[i], status, (int)n_left, err.text);
        }
        assert_true(nth > 1);
    }
    assert_int_equal(parse(&(cJSON *){NULL}, "[1,]", 4, NULL), APR_E_DAMAGED);
}

static void what_is_not_json_is_refused_with_a_sentence(void **state)
{
    static const struct {
        const char *text, *part_of_sentence;
    } cases[] = {
        {"", "no value"},
        {"  \n", "no value"},
        {"{\"a\":1,\"a\":2}", "'a' appears twice"},
        {"[{\"x\":[{\"k\":1,\"k\":1}]}]", "'k' appears twice"},
        {"{\"\\u0061\":1,\"a\":2}", "appears twice"},
        {"{}x", "neither a value"},
        {"{} {}", "after its end"},
        {"1 2", "after its end"},
        {"{\"a\":1", "syntax error"},
        {"[1,]", "syntax error"},
        {"[1 2]", "syntax error"},
        {"{\"a\" 1}", "syntax error"},
        {"{1:2}", "syntax error"},
        {"]", "without an opening one"},
        {"[}", "syntax error"},
        {"\"abc", "ends inside a string"},
        {"\"abc\\", "ends inside a string"},
        {"\"\\u12", "hexadecimal"},
        {"\"\\u12g4\"", "hexadecimal"},
        {"\"\\x41\"", "unknown escape"},
        {"\"a\\u0000b\"", "\\u0000"},
        {"\"\\ud800\"", "lone surrogate"},
        {"\"\\ud800\\u0041\"", "lone surrogate"},
        {"\"\\udc00\"", "lone surrogate"},
        {"\"\\ud83d\\", "lone surrogate"},
        {"\"a\nb\"", "control character"},
        {"\"\xff\"", "UTF-8"},
        {"\"\xc0\xaf\"", "UTF-8"},
        {"\"\xe0\x80\xaf\"", "UTF-8"},
        {"\"\xed\xa0\x80\"", "UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "UTF-8"},
        {"\"\xf0\x9f\x98", "UTF-8"},
        {"\"\xe2\x82\"", "UTF-8"},
        {"01", "malformed number"},
        {"1.", "malformed number"},
        {"-", "malformed number"},
        {"1e", "malformed number"},
        {"+1", "neither a value"},
        {".5", "neither a value"},
        {"1.2.3", "malformed number"},
        {"Nan", "neither a value"},
        {"Infinit", "neither a value"},
        {"-Inf", "neither a value"},
        {"{NaN: 1}", "syntax error"},
        {"NaNInfinity", "text after its end"},
        {"tru", "neither a value"},
        {"\xef\xbb\xbf{}", "byte order mark"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        cJSON *json = NULL;
        assert_int_equal(parse(&json, cases[i].text, strlen(cases[i].text), &err), APR_E_DAMAGED);
        assert_null(json);
        if (strstr(err.text, cases[i].part_of_sentence) == NULL || strstr(err.text, "test.json") == NULL)
            fail_msg("'%s' gave: %s", cases[i].text, err.text);
    }
    cJSON *json = NULL;
    assert_int_equal(parse(&json, "[1,\0 2]", 7, NULL), APR_E_DAMAGED); /* a NUL is not white space */
}

static void pythons_nan_is_not_a_number(void **state)
{
    static const char text[] = "{\"a\": NaN, \"b\": [Infinity, -Infinity], \"NaN\": \"Infinity \\\" NaN\", \"c\": 1}";
    cJSON *json;
    int64_t n;
    double x;

    (void)state;
    assert_int_equal(parse(&json, text, strlen(text), NULL), APR_OK);
    static const char *const keys[] = {"a", "b", "NaN"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        assert_false(apr_json_get_int(json, keys[i], &n));
        assert_false(apr_json_get_real(json, keys[i], &x));
    }
    assert_false(apr_json_as_int(apr_json_get(json, "b")->child, &n));
    assert_string_equal(apr_json_get_string(json, "NaN"), "Infinity \" NaN"); /* texts are left alone */
    assert_true(apr_json_get_int(json, "c", &n) && n == 1);
    cJSON_Delete(json);
}

static void nesting_ends_at_the_limit(void **state)
{
    char text[2 * APR_JSON_MAX_DEPTH + 2];
    cJSON *json;

    (void)state;
    memset(text, '[', APR_JSON_MAX_DEPTH);
    memset(text + APR_JSON_MAX_DEPTH, ']', APR_JSON_MAX_DEPTH);
    assert_int_equal(parse(&json, text, 2 * APR_JSON_MAX_DEPTH, NULL), APR_OK);
    cJSON_Delete(json);
    memset(text, '[', APR_JSON_MAX_DEPTH + 1);
    memset(text + APR_JSON_MAX_DEPTH + 1, ']', APR_JSON_MAX_DEPTH + 1);
    assert_int_equal(parse(&json, text, sizeof text, NULL), APR_E_DAMAGED);

    char *const endless = malloc(1 << 20);
    assert_non_null(endless);
    for (size_t i = 0; i < 1 << 20; i++) endless[i] = "{\"a\":"[i % 5];
    assert_int_equal(parse(&json, endless, 1 << 20, NULL), APR_E_DAMAGED);
    free(endless);
}

static void a_document_cut_anywhere_is_refused(void **state)
{
    static const char text[] = "{\"a\":[1,-2.5e3,true,null],\"\\u00e9\xc3\xa9\\ud83d\\ude00\":\"x\\n\",\"b\":{}}";

    (void)state;
    for (size_t n = 0; n < sizeof text - 1; n++) {
        cJSON *json = NULL;
        assert_int_equal(parse(&json, text, n, NULL), APR_E_DAMAGED);
    }
    cJSON *json = NULL;
    assert_int_equal(parse(&json, text, sizeof text - 1, NULL), APR_OK);
    assert_string_equal(apr_json_get_string(json, "\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80"), "x\n");
    cJSON_Delete(json);
}

static void lookups_are_exact_and_typed(void **state)
{
    static const char text[] = "{\"n\":3,\"N\":4,\"half\":0.5,\"big\":9007199254740992,\"huge\":9007199254740994,\"over\":1e999,"
                               "\"e\":1e3,\"s\":\"text\",\"t\":true,\"null\":null,\"neg\":-7}";
    static const struct {
        const char *key;
        bool found;
        int64_t value;
    } ints[] = {{"n", true, 3},     {"N", true, 4},     {"half", false, 0}, {"big", true, 9007199254740992},
                {"huge", false, 0}, {"over", false, 0}, {"e", true, 1000},  {"neg", true, -7},
                {"s", false, 0},    {"t", false, 0},    {"null", false, 0}, {"missing", false, 0}};
    cJSON *json;
    double real = 0;
    bool flag = false;

    (void)state;
    assert_int_equal(parse(&json, text, sizeof text - 1, NULL), APR_OK);
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        int64_t value = -99;
        assert_int_equal(apr_json_get_int(json, ints[i].key, &value), ints[i].found);
        assert_int_equal(value, ints[i].found ? ints[i].value : -99);
    }
    assert_true(apr_json_get_real(json, "half", &real) && real == 0.5);
    assert_false(apr_json_get_real(json, "over", &real));
    assert_false(apr_json_get_real(json, "s", &real));
    assert_true(apr_json_get_bool(json, "t", &flag) && flag);
    assert_false(apr_json_get_bool(json, "n", &flag));
    assert_null(apr_json_get_string(json, "n"));
    assert_null(apr_json_get(apr_json_get(json, "s"), "anything"));
    assert_null(apr_json_get(NULL, "s"));
    cJSON_Delete(json);
}

static void a_large_object_is_searched_for_duplicates_in_linear_time(void **state)
{
    enum { N = 200000 };
    apr_json_text out = {0};
    size_t n_bytes;
    cJSON *json;
    char key[16];

    (void)state;
    apr_json_open(&out, NULL, '{');
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "k%d", i);
        apr_json_int(&out, key, i);
    }
    apr_json_int(&out, "k77", 1);
    apr_json_close(&out, '}');
    char *const text = apr_json_text_take(&out, &n_bytes);
    apr_error err = {0};
    assert_int_equal(apr_json_parse(&json, text, n_bytes, "test.json", &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "'k77'"));
    free(text);
}

static void the_writer_separates_escapes_and_reads_back(void **state)
{
    static const char expected[] = "{\"int\":-5,\"uint\":18446744073709551615,\"list\":[1.0,0.1,1e-06,1e+300,null,true,null],"
                                   "\"empty\":{},\"text\":\"a\\\"\\\\\\n\\u0001\\t\xc3\xa9/\xef\xbf\xbd\",\"k\\\"\":[],\"raw\":{\"x\":1}}";
    apr_json_text out = {0};
    size_t n_bytes;

    (void)state;
    apr_json_open(&out, NULL, '{');
    apr_json_int(&out, "int", -5);
    apr_json_uint(&out, "uint", UINT64_MAX);
    apr_json_open(&out, "list", '[');
    apr_json_real(&out, NULL, 1);
    apr_json_real(&out, NULL, 0.1);
    apr_json_real(&out, NULL, 1e-6);
    apr_json_real(&out, NULL, 1e300);
    apr_json_real(&out, NULL, (double)INFINITY);
    apr_json_bool(&out, NULL, true);
    apr_json_null(&out, NULL);
    apr_json_close(&out, ']');
    apr_json_open(&out, "empty", '{');
    apr_json_close(&out, '}');
    apr_json_string(&out, "text", "a\"\\\n\x01\t\xc3\xa9/\xff", 10);
    apr_json_open(&out, "k\"", '[');
    apr_json_close(&out, ']');
    apr_json_raw(&out, "raw", "{\"x\":1}", 7);
    apr_json_close(&out, '}');
    char *const text = apr_json_text_take(&out, &n_bytes);
    assert_non_null(text);
    assert_string_equal(text, expected);
    assert_int_equal(n_bytes, strlen(expected));
    free(text);
}

static void a_written_real_reads_back_equal(void **state)
{
    static const double values[] = {0,    -0.5, 1.0 / 3, 1e6, 500000, 1e15, 1e16, 123456789012345680.0, 5e-324, 1.7976931348623157e308,
                                    1e-5, 0.02, 2.5e-7};

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        apr_json_text out = {0};
        apr_json_real(&out, NULL, values[i]);
        char *const text = apr_json_text_take(&out, NULL);
        assert_true(strtod(text, NULL) == values[i]);
        assert_non_null(strpbrk(text, ".e"));
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lack_of_memory_is_not_damage),
        cmocka_unit_test(what_is_not_json_is_refused_with_a_sentence),
        cmocka_unit_test(pythons_nan_is_not_a_number),
        cmocka_unit_test(nesting_ends_at_the_limit),
        cmocka_unit_test(a_document_cut_anywhere_is_refused),
        cmocka_unit_test(lookups_are_exact_and_typed),
        cmocka_unit_test(a_large_object_is_searched_for_duplicates_in_linear_time),
        cmocka_unit_test(the_writer_separates_escapes_and_reads_back),
        cmocka_unit_test(a_written_real_reads_back_equal),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
