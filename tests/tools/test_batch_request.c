/* tools/run/batch_request.h, batch_ids.h: what a line may ask for, and what it may not; ids are had once. */
#include "tools/run/batch_ids.h"
#include "tools/run/batch_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const apr_batch_standard standard = {.max_tokens = 256, .sampling = {.temperature = 0.5f, .top_p = 1.0f, .seed = 9}};

static apr_status read_text(apr_batch_request *r, const char *text, apr_error *err)
{
    return apr_batch_request_read(r, text, strlen(text), &standard, err);
}

static void a_request_says_what_it_wants_and_the_rest_is_standard(void **state)
{
    apr_batch_request r;
    (void)state;
    assert_int_equal(
        read_text(
            &r, "{\"id\":\"a\\\"1\",\"prompt\":\"p\",\"max_tokens\":3,\"temperature\":0,\"top_p\":0.5,\"seed\":-1,\"stop\":[\"x\",\"yz\"]}",
            NULL),
        APR_OK);
    assert_string_equal(r.id, "\"a\\\"1\"");
    assert_string_equal(r.prompt, "p");
    assert_null(r.messages);
    assert_int_equal(r.max_tokens, 3);
    assert_true(r.sampling.temperature == 0.0f && r.sampling.top_p == 0.5f && r.sampling.seed == UINT64_MAX);
    assert_int_equal(r.n_stops, 2);
    assert_string_equal(r.stops[1], "yz");
    apr_batch_request_close(&r);
    assert_int_equal(read_text(&r, "{\"messages\":[{\"role\":\"user\",\"content\":\"c\"}],\"stop\":null}", NULL), APR_OK);
    assert_true(r.id == NULL && r.prompt == NULL && r.messages != NULL && r.n_stops == 0);
    assert_true(r.max_tokens == 256 && r.sampling.temperature == 0.5f && r.sampling.seed == 9);
    apr_batch_request_close(&r);
}

static void requests_of_other_batches_are_understood(void **state)
{
    apr_batch_request r;
    (void)state;
    assert_int_equal(read_text(&r,
                               "{\"custom_id\":7,\"method\":\"POST\",\"url\":\"/"
                               "v1\",\"body\":{\"model\":\"m\",\"prompt\":\"p\",\"max_completion_tokens\":2,\"stop\":\"s\"}}",
                               NULL),
                     APR_OK);
    assert_string_equal(r.id, "7");
    assert_string_equal(r.prompt, "p");
    assert_int_equal(r.max_tokens, 2);
    assert_string_equal(r.stops[0], "s");
    apr_batch_request_close(&r);
}

static void what_is_no_request_is_said_in_a_sentence(void **state)
{
    static const struct {
        const char *text, *sentence;
        apr_status status;
    } cases[] = {
        {"", "", APR_E_DAMAGED},
        {"{", "", APR_E_DAMAGED},
        {"\"prompt\"", "no JSON object", APR_E_DAMAGED},
        {"{}", "either a 'prompt' or 'messages'", APR_E_USAGE},
        {"{\"prompt\":\"a\\u0000b\"}", "", APR_E_DAMAGED},
        {"{\"prompt\":null}", "'prompt' must be a string", APR_E_USAGE},
        {"{\"messages\":[]}", "'messages' must be", APR_E_USAGE},
        {"{\"messages\":{\"role\":\"user\"}}", "'messages' must be", APR_E_USAGE},
        {"{\"messages\":[1]}", "'messages' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"max_tokens\":1000000001}", "'max_tokens' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"max_tokens\":\"3\"}", "'max_tokens' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"temperature\":100.5}", "'temperature' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"temperature\":Infinity}", "'temperature' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"top_p\":-0.1}", "'top_p' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"seed\":0.5}", "'seed' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"stop\":7}", "'stop' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\",\"14\",\"15\","
         "\"16\",\"17\"]}",
         "'stop' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"n\":2}", "'n' is no field of a request", APR_E_USAGE},
        {"{\"id\":1,\"body\":{\"prompt\":\"a\",\"n\":2}}", "'n' is no field of a request's body", APR_E_USAGE},
        {"{\"id\":1,\"body\":{\"prompt\":\"a\"},\"seed\":2}", "'seed' is no field of a request that has a body", APR_E_USAGE},
        {"{\"id\":1,\"body\":3}", "'body' must be an object", APR_E_USAGE},
        {"{\"id\":1,\"custom_id\":2,\"prompt\":\"a\"}", "are the same", APR_E_USAGE},
        {"{\"id\":1.5,\"prompt\":\"a\"}", "'id' must be", APR_E_USAGE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_batch_request r;
        apr_error err = {0};
        const apr_status status = read_text(&r, cases[i].text, &err);
        if (status != cases[i].status || strstr(err.text, cases[i].sentence) == NULL || err.text[0] == '\0')
            fail_msg("%s: %d, '%s'", cases[i].text, (int)status, err.text);
        apr_batch_request_close(&r);
    }
}

static void the_id_is_known_where_the_rest_is_wrong(void **state)
{
    apr_batch_request r;
    (void)state;
    assert_int_equal(read_text(&r, "{\"prompt\":3,\"id\":\"x\"}", NULL), APR_E_USAGE);
    assert_string_equal(r.id, "\"x\"");
    apr_batch_request_close(&r);
}

static void an_id_is_had_once(void **state)
{
    apr_batch_ids ids = {0};
    char id[32];
    (void)state;
    for (int turn = 0; turn < 2; turn++)
        for (int i = 1; i <= 5000; i++) {
            snprintf(id, sizeof id, i % 2 ? "\"%d\"" : "%d", i / 2);
            assert_int_equal(apr_batch_ids_add(&ids, id, turn * 10000 + i), turn == 0 ? 0 : i);
        }
    assert_int_equal(ids.n, 5000);
    apr_batch_ids_close(&ids);
    apr_batch_ids_close(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_says_what_it_wants_and_the_rest_is_standard),
        cmocka_unit_test(requests_of_other_batches_are_understood),
        cmocka_unit_test(what_is_no_request_is_said_in_a_sentence),
        cmocka_unit_test(the_id_is_known_where_the_rest_is_wrong),
        cmocka_unit_test(an_id_is_had_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
