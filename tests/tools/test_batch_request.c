/* tools/engine/requests/batch_request.h, batch_ids.h: what a line may ask for, and what it may not; ids are had once. */
#include "tools/engine/requests/batch_ids.h"
#include "tools/engine/requests/batch_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const apr_batch_defaults standard = {.max_tokens = 256, .sampling = {.temperature = 0.5f, .top_p = 1.0f, .seed = 9}};

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

static void a_request_says_how_a_token_is_chosen(void **state)
{
    static const char *const names[][2] = {{"repeat_penalty", "repeat_last"}, {"repetition_penalty", "repeat_last_n"}};
    static const char *const of_option[] = {"END"};
    apr_batch_defaults with_stop = standard;
    apr_batch_request r;
    char line[300];

    (void)state;
    with_stop.stops = of_option;
    with_stop.n_stops = 1;
    for (size_t i = 0; i < 2; i++) {
        snprintf(line, sizeof line,
                 "{\"prompt\":\"p\",\"top_k\":40,\"min_p\":0.25,\"%s\":1.5,\"%s\":-1,\"presence_penalty\":-0.5,"
                 "\"frequency_penalty\":2,\"stop\":[]}",
                 names[i][0], names[i][1]);
        assert_int_equal(apr_batch_request_read(&r, line, strlen(line), &with_stop, NULL), APR_OK);
        assert_true(r.sampling.top_k == 40 && r.sampling.min_p == 0.25f && r.sampling.repeat_penalty == 1.5f);
        assert_true(r.sampling.repeat_last == -1 && r.sampling.presence_penalty == -0.5f && r.sampling.frequency_penalty == 2.0f);
        assert_int_equal(r.n_stops, 0);
        apr_batch_request_close(&r);
    }
    assert_int_equal(apr_batch_request_read(&r, "{\"prompt\":\"p\"}", 14, &with_stop, NULL), APR_OK);
    assert_true(r.n_stops == 1 && strcmp(r.stops[0], "END") == 0);
    apr_batch_request_close(&r);
}

static void requests_of_other_batches_are_understood(void **state)
{
    apr_batch_request r;
    (void)state;
    assert_int_equal(read_text(&r,
                               "{\"custom_id\":7,\"method\":\"POST\",\"url\":\"/v1/"
                               "completions\",\"body\":{\"model\":\"m\",\"prompt\":\"p\",\"max_completion_tokens\":2,\"stop\":\"s\"}}",
                               NULL),
                     APR_OK);
    assert_string_equal(r.id, "7");
    assert_string_equal(r.prompt, "p");
    assert_int_equal(r.max_tokens, 2);
    assert_string_equal(r.stops[0], "s");
    apr_batch_request_close(&r);
}

/* Fields of OpenAI's batches that ask for nothing; contents in parts; what goes to the template. */
static void what_asks_for_nothing_passes(void **state)
{
    static const apr_sample_options of_model = {.temperature = 0.7f, .top_p = 0.8f};
    static const char *const idle[] = {"\"n\":1",
                                       "\"stream\":false",
                                       "\"logprobs\":false",
                                       "\"logprobs\":null",
                                       "\"top_logprobs\":0",
                                       "\"presence_penalty\":0.0",
                                       "\"frequency_penalty\":0",
                                       "\"user\":\"u\"",
                                       "\"metadata\":{\"a\":1}",
                                       "\"response_format\":{\"type\":\"text\"}",
                                       "\"logit_bias\":{}",
                                       "\"temperature\":null",
                                       "\"nobody_knows\":null",
                                       "\"tools\":[]",
                                       "\"tool_choice\":\"auto\"",
                                       "\"tools\":[{}],\"tool_choice\":\"none\"",
                                       "\"tool_choice\":\"none\",\"tools\":[{}]",
                                       "\"modalities\":[\"text\"]",
                                       "\"verbosity\":\"medium\"",
                                       "\"prompt_cache_retention\":\"24h\"",
                                       "\"top_k\":-1"};
    apr_batch_defaults of_openai = standard;
    apr_batch_request r;
    apr_error err = {0};
    char line[600];

    (void)state;
    of_openai.of_model = &of_model;
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) {
        snprintf(line, sizeof line, "{\"custom_id\":\"a\",\"body\":{\"prompt\":\"p\",%s}}", idle[i]);
        if (apr_batch_request_read(&r, line, strlen(line), &of_openai, &err) != APR_OK) fail_msg("%s: %s", line, err.text);
        assert_true(r.is_openai && !r.says_sampling && r.tools == NULL && r.sampling.temperature == 0.7f && r.sampling.top_p == 0.8f);
        apr_batch_request_close(&r);
    }
    snprintf(line, sizeof line,
             "{\"custom_id\":\"a\",\"url\":\"/v1/chat/completions\",\"body\":{\"model\":\"m\",\"temperature\":0,\"tools\":[{}],"
             "\"chat_template_kwargs\":{\"enable_thinking\":false},\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
             "\"text\":\"one\"},{\"type\":\"text\",\"text\":\"two\"}]},{\"role\":\"assistant\",\"tool_calls\":[]}]}}");
    if (apr_batch_request_read(&r, line, strlen(line), &of_openai, &err) != APR_OK) fail_msg("%s", err.text);
    assert_true(r.is_openai && r.says_sampling && r.sampling.temperature == 0.0f && r.tools != NULL && r.variables != NULL);
    assert_string_equal(r.model, "m");
    assert_string_equal(apr_json_get_string(r.messages->child, "content"), "one\ntwo");
    apr_batch_request_close(&r);

    /* the shape decides, unless it is asked for */
    of_openai.format = APR_BATCH_APRKIT;
    assert_int_equal(apr_batch_request_read(&r, line, strlen(line), &of_openai, &err), APR_OK);
    assert_false(r.is_openai);
    apr_batch_request_close(&r);
    assert_int_equal(read_text(&r, "{\"id\":1,\"prompt\":\"p\",\"n\":1}", &err), APR_OK);
    assert_true(!r.is_openai && r.sampling.temperature == 0.5f);
    apr_batch_request_close(&r);
}

static void what_is_not_a_request_gets_a_sentence(void **state)
{
    static const struct {
        const char *text, *sentence;
        apr_status status;
    } cases[] = {
        {"", "", APR_E_DAMAGED},
        {"{", "", APR_E_DAMAGED},
        {"\"prompt\"", "not a JSON object", APR_E_DAMAGED},
        {"{}", "either 'prompt' or 'messages'", APR_E_USAGE},
        {"{\"prompt\":\"a\\u0000b\"}", "", APR_E_DAMAGED},
        {"{\"prompt\":null}", "either 'prompt'", APR_E_USAGE},
        {"{\"prompt\":[\"a\",\"b\"]}", "'prompt' must be a string", APR_E_USAGE},
        {"{\"messages\":[]}", "'messages' must be", APR_E_USAGE},
        {"{\"messages\":{\"role\":\"user\"}}", "'messages' must be", APR_E_USAGE},
        {"{\"messages\":[1]}", "'messages' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"max_tokens\":1000000001}", "'max_tokens' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"max_tokens\":\"3\"}", "'max_tokens' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"temperature\":100.5}", "'temperature' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"temperature\":Infinity}", "'temperature' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"top_p\":-0.1}", "'top_p' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"top_k\":1.5}", "'top_k' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"top_k\":-2}", "'top_k' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"min_p\":1.5}", "'min_p' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"repetition_penalty\":0}", "'repetition_penalty' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"repeat_last\":-2}", "'repeat_last' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"presence_penalty\":\"1\"}", "'presence_penalty' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"frequency_penalty\":101}", "'frequency_penalty' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"seed\":0.5}", "'seed' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"stop\":7}", "'stop' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\",\"14\",\"15\","
         "\"16\",\"17\"]}",
         "'stop' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"n\":2}", "'n' must be 1", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"stream\":true}", "'stream' must be false", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"logprobs\":5}", "'logprobs' must be false", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"response_format\":{\"type\":\"json_object\"}}", "'response_format' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"modalities\":[\"text\",\"audio\"]}", "'modalities' must be [\"text\"]", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"tool_choice\":\"required\"}", "'tool_choice' must be \"auto\" or \"none\"", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"tool_choice\":{\"type\":\"function\"}}", "'tool_choice' must be", APR_E_USAGE},
        {"{\"prompt\":\"a\",\"nonsense\":1}", "'nonsense' is not a field of a request", APR_E_USAGE},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", "type 'image_url'", APR_E_USAGE},
        {"{\"custom_id\":1,\"url\":\"/v1/embeddings\",\"body\":{\"input\":\"a\"}}", "'url' is '/v1/embeddings'", APR_E_USAGE},
        {"{\"custom_id\":1,\"url\":\"/v1/completions\",\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}}",
         "must have a 'prompt'", APR_E_USAGE},
        {"{\"custom_id\":1,\"method\":\"GET\",\"body\":{\"prompt\":\"a\"}}", "'method' must be", APR_E_USAGE},
        {"{\"id\":1,\"body\":{\"prompt\":\"a\",\"n\":2}}", "'n' must be 1", APR_E_USAGE},
        {"{\"id\":1,\"body\":{\"prompt\":\"a\"},\"seed\":2}", "'seed' is not a field of a request that has a body", APR_E_USAGE},
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

static void the_wrong_field_is_named(void **state)
{
    static const struct {
        const char *text, *param; /* NULL: no single field is wrong */
    } cases[] = {
        {"{\"custom_id\":1,\"body\":{\"prompt\":\"a\",\"n\":2}}", "n"},
        {"{\"custom_id\":1,\"body\":{\"messages\":[]}}", "messages"},
        {"{\"custom_id\":1,\"body\":{\"prompt\":\"a\",\"nonsense\":true}}", "nonsense"},
        {"{\"custom_id\":1,\"url\":\"/v1/embeddings\",\"body\":{\"input\":\"a\"}}", "url"},
        {"{\"custom_id\":1,\"method\":\"GET\",\"body\":{\"prompt\":\"a\"}}", "method"},
        {"{\"custom_id\":1,\"body\":{}}", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_batch_request r;
        assert_int_equal(read_text(&r, cases[i].text, NULL), APR_E_USAGE);
        if (cases[i].param == NULL) assert_null(r.param);
        else assert_string_equal(r.param, cases[i].param);
        apr_batch_request_close(&r);
    }
}

/* Arguments become the object that templates write out; a content of null stays, until a template does not take it. */
static void calls_of_tools_are_as_templates_have_them(void **state)
{
    static const char line[] = "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\","
                               "\"arguments\":\"{\\\"a\\\": 1}\"}},{\"function\":{\"name\":\"g\",\"arguments\":\"[1\"}}]},"
                               "{\"role\":\"assistant\",\"tool_calls\":[{}]},{\"role\":\"user\",\"content\":\"c\"}]}";
    apr_batch_request r;
    bool changed;
    int64_t a;

    (void)state;
    assert_int_equal(read_text(&r, line, NULL), APR_OK);
    const cJSON *const first = r.messages->child, *const calls = apr_json_get(first, "tool_calls");
    const cJSON *const f = apr_json_get(calls->child, "function"), *const g = apr_json_get(calls->child->next, "function");
    assert_true(apr_json_get_int(apr_json_get(f, "arguments"), "a", &a) && a == 1);
    assert_string_equal(apr_json_get_string(g, "arguments"), "[1"); /* no JSON: as it is */
    assert_true(cJSON_IsNull(apr_json_get(first, "content")));
    assert_int_equal(apr_batch_request_fill_contents(&r, &changed, NULL), APR_OK);
    assert_true(changed);
    assert_string_equal(apr_json_get_string(first, "content"), "");
    assert_string_equal(apr_json_get_string(first->next, "content"), "");
    assert_string_equal(apr_json_get_string(first->next->next, "content"), "c");
    assert_int_equal(apr_batch_request_fill_contents(&r, &changed, NULL), APR_OK);
    assert_false(changed);
    apr_batch_request_close(&r);
}

static void a_developer_is_the_system_where_the_template_knows_none(void **state)
{
    static const char line[] = "{\"messages\":[{\"role\":\"developer\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"developer\"}]}";
    apr_batch_request r;

    (void)state;
    assert_int_equal(read_text(&r, line, NULL), APR_OK);
    assert_int_equal(apr_batch_request_rename_developer(&r, "{% if m.role == 'developer' %}", NULL), APR_OK);
    assert_string_equal(apr_json_get_string(r.messages->child, "role"), "developer");
    assert_int_equal(apr_batch_request_rename_developer(&r, "{{ m.role }}", NULL), APR_OK);
    assert_string_equal(apr_json_get_string(r.messages->child, "role"), "system");
    assert_string_equal(apr_json_get_string(r.messages->child->next, "role"), "user");
    assert_string_equal(apr_json_get_string(r.messages->child->next, "content"), "developer");
    apr_batch_request_close(&r);
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
        cmocka_unit_test(a_request_says_how_a_token_is_chosen),
        cmocka_unit_test(requests_of_other_batches_are_understood),
        cmocka_unit_test(what_asks_for_nothing_passes),
        cmocka_unit_test(what_is_not_a_request_gets_a_sentence),
        cmocka_unit_test(the_wrong_field_is_named),
        cmocka_unit_test(calls_of_tools_are_as_templates_have_them),
        cmocka_unit_test(a_developer_is_the_system_where_the_template_knows_none),
        cmocka_unit_test(the_id_is_known_where_the_rest_is_wrong),
        cmocka_unit_test(an_id_is_had_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
