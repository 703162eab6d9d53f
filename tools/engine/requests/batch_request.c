/* batch_request.c - reads the fields of a request, and checks each. */
#include "tools/engine/requests/batch_request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static apr_status must_be(const char *key, const char *what, apr_error *err)
{
    return apr_fail(err, APR_E_USAGE, "'%s' must be %s", key, what);
}

/* A list of one prompt is that prompt; several would need several answers. */
static apr_status read_prompt(apr_batch_request *r, cJSON *item, apr_error *err)
{
    const cJSON *const it = cJSON_IsArray(item) && cJSON_GetArraySize(item) == 1 ? item->child : item;

    if (!cJSON_IsString(it)) return must_be("prompt", "a string", err);
    r->prompt = it->valuestring;
    return APR_OK;
}

/* [{"type": "text", "text": "a"}, ...] becomes the texts with line ends between them, as vLLM and llama.cpp do it. Parts of another type
 * are refused: chat templates take only text. */
static apr_status join_parts(cJSON *message, apr_error *err)
{
    const cJSON *const parts = cJSON_GetObjectItemCaseSensitive(message, "content"), *part;
    size_t n = 0, at = 0;

    if (!cJSON_IsArray(parts) || parts->child == NULL) return APR_OK;
    cJSON_ArrayForEach(part, parts)
    {
        const char *const type = apr_json_get_string(part, "type"), *const text = apr_json_get_string(part, "text");
        if (text == NULL || (type != NULL && strcmp(type, "text") != 0))
            return apr_fail(err, APR_E_USAGE, "'content' has a part of the type '%.40s': only text is supported",
                            type != NULL ? type : "none");
        n += strlen(text) + 1;
    }
    char *const joined = malloc(n);
    if (joined == NULL) return apr_no_memory(err, "a message");
    cJSON_ArrayForEach(part, parts)
    {
        const char *const text = apr_json_get_string(part, "text");
        const size_t n_text = strlen(text);
        if (at > 0) joined[at++] = '\n';
        memcpy(joined + at, text, n_text);
        at += n_text;
    }
    joined[at] = '\0';
    cJSON *const whole = cJSON_CreateString(joined);
    free(joined);
    if (whole != NULL && cJSON_ReplaceItemInObjectCaseSensitive(message, "content", whole)) return APR_OK;
    cJSON_Delete(whole);
    return apr_no_memory(err, "a message");
}

static bool has_calls(const cJSON *message)
{
    const cJSON *const calls = apr_json_get(message, "tool_calls");
    return cJSON_IsArray(calls) && calls->child != NULL;
}

/* OpenAI's tool calls have their arguments as JSON in a string. Chat templates expect an object; vLLM also passes one. */
static apr_status parse_arguments(cJSON *message, apr_error *err)
{
    const cJSON *const calls = apr_json_get(message, "tool_calls"), *call;

    if (!has_calls(message)) return APR_OK;
    cJSON_ArrayForEach(call, calls)
    {
        cJSON *const function = cJSON_GetObjectItemCaseSensitive(call, "function"), *parsed = NULL;
        const char *const text = apr_json_get_string(function, "arguments");
        if (text == NULL || apr_json_parse(&parsed, text, strlen(text), "arguments", NULL) != APR_OK) continue;
        if (cJSON_IsObject(parsed) && cJSON_ReplaceItemInObjectCaseSensitive(function, "arguments", parsed)) continue;
        const bool is_object = cJSON_IsObject(parsed);
        cJSON_Delete(parsed);
        if (is_object) return apr_no_memory(err, "a message");
    }
    return APR_OK;
}

apr_status apr_batch_request_fill_contents(apr_batch_request *r, bool *changed, apr_error *err)
{
    cJSON *message;

    *changed = false;
    cJSON_ArrayForEach(message, r->messages)
    {
        const cJSON *const content = apr_json_get(message, "content");
        if (!has_calls(message) || (content != NULL && !cJSON_IsNull(content))) continue;
        if (content != NULL) cJSON_DeleteItemFromObjectCaseSensitive(message, "content");
        if (cJSON_AddStringToObject(message, "content", "") == NULL) return apr_no_memory(err, "a message");
        *changed = true;
    }
    return APR_OK;
}

apr_status apr_batch_request_rename_developer(apr_batch_request *r, const char *chat_template, apr_error *err)
{
    cJSON *message;

    if (chat_template == NULL || strstr(chat_template, "developer") != NULL) return APR_OK;
    cJSON_ArrayForEach(message, r->messages)
    {
        cJSON *const role = cJSON_GetObjectItemCaseSensitive(message, "role");
        const bool is_developer = cJSON_IsString(role) && strcmp(role->valuestring, "developer") == 0;
        if (is_developer && cJSON_SetValuestring(role, "system") == NULL) return apr_no_memory(err, "a message");
    }
    return APR_OK;
}

static apr_status read_messages(apr_batch_request *r, cJSON *item, apr_error *err)
{
    cJSON *message;

    if (!cJSON_IsArray(item) || item->child == NULL) return must_be("messages", "an array of at least one message", err);
    cJSON_ArrayForEach(message, item)
    {
        const bool has_content = apr_json_get(message, "content") != NULL || apr_json_get(message, "tool_calls") != NULL;
        if (apr_json_get_string(message, "role") == NULL || !has_content)
            return must_be("messages", "an array of objects with a \"role\" and a \"content\"", err);
        APR_TRY(join_parts(message, err));
        APR_TRY(parse_arguments(message, err));
    }
    r->messages = item;
    return APR_OK;
}

static apr_status read_tools(apr_batch_request *r, cJSON *item, apr_error *err)
{
    if (!cJSON_IsArray(item)) return must_be("tools", "an array", err);
    r->tools = item->child != NULL ? item : NULL;
    return APR_OK;
}

static apr_status read_tool_choice(apr_batch_request *r, cJSON *item, apr_error *err)
{
    r->leaves_tools_out = cJSON_IsString(item) && strcmp(item->valuestring, "none") == 0;
    if (r->leaves_tools_out || (cJSON_IsString(item) && strcmp(item->valuestring, "auto") == 0)) return APR_OK;
    return must_be("tool_choice", "\"auto\" or \"none\": the model chooses, or sees no tool", err);
}

static apr_status read_variables(apr_batch_request *r, cJSON *item, apr_error *err)
{
    if (!cJSON_IsObject(item)) return must_be(item->string, "an object", err);
    r->variables = item;
    return APR_OK;
}

static apr_status read_url(apr_batch_request *r, cJSON *item, apr_error *err)
{
    if (!cJSON_IsString(item)) return must_be("url", "a string", err);
    r->url = item->valuestring;
    return APR_OK;
}

static apr_status read_method(apr_batch_request *r, cJSON *item, apr_error *err)
{
    (void)r;
    return cJSON_IsString(item) && strcmp(item->valuestring, "POST") == 0 ? APR_OK : must_be("method", "\"POST\"", err);
}

static apr_status read_model(apr_batch_request *r, cJSON *item, apr_error *err)
{
    (void)err;
    r->model = cJSON_IsString(item) ? item->valuestring : NULL;
    return APR_OK;
}

/* --- fields that are allowed as long as they have no effect --- */

static bool is_plain_text(const cJSON *item)
{
    const char *const type = apr_json_get_string(item, "type");
    return type != NULL && strcmp(type, "text") == 0;
}

static bool is_number(const cJSON *item, double value) { return cJSON_IsNumber(item) && item->valuedouble == value; }
static bool is_zero(const cJSON *item) { return is_number(item, 0.0) || cJSON_IsFalse(item); }
static bool is_one(const cJSON *item) { return is_number(item, 1.0); }
static bool is_false(const cJSON *item) { return cJSON_IsFalse(item); }
static bool is_empty(const cJSON *item)
{
    const bool no_text = cJSON_IsString(item) && item->valuestring[0] == '\0';
    return no_text || ((cJSON_IsObject(item) || cJSON_IsArray(item)) && item->child == NULL);
}
static bool is_medium(const cJSON *item) { return cJSON_IsString(item) && strcmp(item->valuestring, "medium") == 0; }
static bool is_only_text(const cJSON *item)
{
    const cJSON *const one = cJSON_IsArray(item) && cJSON_GetArraySize(item) == 1 ? item->child : NULL;
    return cJSON_IsString(one) && strcmp(one->valuestring, "text") == 0;
}
static bool is_anything(const cJSON *item)
{
    (void)item;
    return true;
}

static const struct {
    const char *key;
    bool (*has_no_effect)(const cJSON *item);
    const char *what;
} idle_fields[] = {
    {"n", is_one, "1: a line has one answer"},
    {"best_of", is_one, "1: a line has one answer"},
    {"stream", is_false, "false: answers are whole lines"},
    {"stream_options", is_empty, "null: answers are whole lines"},
    {"echo", is_false, "false"},
    {"suffix", is_empty, "empty"},
    {"logprobs", is_zero, "false: none are computed"},
    {"top_logprobs", is_zero, "0: none are computed"},
    {"logit_bias", is_empty, "empty: logits are not changed"},
    {"ignore_eos", is_false, "false"},
    {"response_format", is_plain_text, "{\"type\": \"text\"}"},
    {"modalities", is_only_text, "[\"text\"]: answers are texts"},
    {"verbosity", is_medium, "\"medium\": the prompt alone decides how long an answer is"},
    {"user", is_anything, NULL},
    {"metadata", is_anything, NULL},
    {"store", is_anything, NULL},
    {"service_tier", is_anything, NULL},
    {"safety_identifier", is_anything, NULL},
    {"prompt_cache_key", is_anything, NULL},
    {"prompt_cache_options", is_anything, NULL},
    {"prompt_cache_retention", is_anything, NULL},
    {"parallel_tool_calls", is_anything, NULL},
};

/* *known: the field is one of them. */
static apr_status read_idle(const cJSON *item, bool *known, apr_error *err)
{
    *known = true;
    for (size_t i = 0; i < sizeof idle_fields / sizeof *idle_fields; i++) {
        if (strcmp(idle_fields[i].key, item->string) != 0) continue;
        return idle_fields[i].has_no_effect(item) ? APR_OK : must_be(item->string, idle_fields[i].what, err);
    }
    *known = false;
    return APR_OK;
}

/* --- numbers and strings --- */

static apr_status read_max_tokens(apr_batch_request *r, cJSON *item, apr_error *err)
{
    if (!apr_json_as_int(item, &r->max_tokens) || r->max_tokens < 1 || r->max_tokens > 1000000000)
        return must_be("max_tokens", "a whole number from 1 to 1000000000", err);
    return APR_OK;
}

static bool is_within(const cJSON *item, double most)
{
    return cJSON_IsNumber(item) && item->valuedouble >= 0.0 && item->valuedouble <= most;
}

static apr_status read_temperature(apr_batch_request *r, cJSON *item, apr_error *err)
{
    if (!is_within(item, 100.0)) return must_be("temperature", "a number from 0 to 100", err);
    r->sampling.temperature = (float)item->valuedouble;
    r->says_sampling = true;
    return APR_OK;
}

static apr_status read_top_p(apr_batch_request *r, cJSON *item, apr_error *err)
{
    if (!is_within(item, 1.0)) return must_be("top_p", "a number from 0 to 1", err);
    r->sampling.top_p = (float)item->valuedouble;
    r->says_sampling = true;
    return APR_OK;
}

/* -1 means 0 (all), as in vLLM. */
static apr_status read_top_k(apr_batch_request *r, cJSON *item, apr_error *err)
{
    int64_t k;
    if (!apr_json_as_int(item, &k) || k < -1 || k > 1000000000)
        return must_be("top_k", "a whole number from 1 to 1000000000; 0 or -1: all", err);
    r->sampling.top_k = k > 0 ? k : 0;
    return APR_OK;
}

static apr_status read_min_p(apr_batch_request *r, cJSON *item, apr_error *err)
{
    if (!is_within(item, 1.0)) return must_be("min_p", "a number from 0 to 1", err);
    r->sampling.min_p = (float)item->valuedouble;
    return APR_OK;
}

static apr_status read_repeat(apr_batch_request *r, cJSON *item, apr_error *err)
{
    if (!is_within(item, 100.0) || item->valuedouble < 0.01) return must_be(item->string, "a number from 0.01 to 100; 1: no penalty", err);
    r->sampling.repeat_penalty = (float)item->valuedouble;
    return APR_OK;
}

static apr_status read_repeat_last(apr_batch_request *r, cJSON *item, apr_error *err)
{
    int64_t n;
    if (!apr_json_as_int(item, &n) || n < -1 || n > APR_MOST_REPEAT_LAST)
        return must_be(item->string, "a whole number from 0 to 1048576; -1: all", err);
    r->sampling.repeat_last = n;
    return APR_OK;
}

static apr_status read_penalty(cJSON *item, float *penalty, apr_error *err)
{
    if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= 100.0)) return must_be(item->string, "a number from -100 to 100", err);
    *penalty = (float)item->valuedouble;
    return APR_OK;
}

static apr_status read_presence(apr_batch_request *r, cJSON *item, apr_error *err)
{
    return read_penalty(item, &r->sampling.presence_penalty, err);
}

static apr_status read_frequency(apr_batch_request *r, cJSON *item, apr_error *err)
{
    return read_penalty(item, &r->sampling.frequency_penalty, err);
}

static apr_status read_seed(apr_batch_request *r, cJSON *item, apr_error *err)
{
    int64_t seed;
    if (!apr_json_as_int(item, &seed)) return must_be("seed", "a whole number within 2^53", err);
    r->sampling.seed = (uint64_t)seed;
    return APR_OK;
}

static apr_status add_stop(apr_batch_request *r, const cJSON *item, apr_error *err)
{
    if (!cJSON_IsString(item) || item->valuestring[0] == '\0' || r->n_stops == APR_BATCH_MOST_STOPS)
        return must_be("stop", "a string, or an array of at most 16, none of them empty", err);
    r->stops[r->n_stops++] = item->valuestring;
    return APR_OK;
}

static apr_status read_stop(apr_batch_request *r, cJSON *item, apr_error *err)
{
    const cJSON *one;

    r->n_stops = 0;
    if (cJSON_IsNull(item)) return APR_OK;
    if (!cJSON_IsArray(item)) return add_stop(r, item, err);
    cJSON_ArrayForEach(one, item) APR_TRY(add_stop(r, one, err));
    return APR_OK;
}

static apr_status ignore_field(apr_batch_request *r, cJSON *item, apr_error *err)
{
    (void)r, (void)item, (void)err;
    return APR_OK;
}

typedef struct field {
    const char *key;
    apr_status (*read)(apr_batch_request *r, cJSON *item, apr_error *err);
    bool in_body, outside; /* where it is allowed if there is a body; without a body everywhere */
} field;

static const field fields[] = {
    {"id", ignore_field, false, true},
    {"custom_id", ignore_field, false, true},
    {"method", read_method, false, true},
    {"url", read_url, false, true},
    {"body", ignore_field, false, true},
    {"model", read_model, true, false},
    {"prompt", read_prompt, true, false},
    {"messages", read_messages, true, false},
    {"tools", read_tools, true, false},
    {"tool_choice", read_tool_choice, true, false},
    {"chat_template_kwargs", read_variables, true, false},
    {"max_tokens", read_max_tokens, true, false},
    {"max_completion_tokens", read_max_tokens, true, false},
    {"temperature", read_temperature, true, false},
    {"top_p", read_top_p, true, false},
    {"top_k", read_top_k, true, false},
    {"min_p", read_min_p, true, false},
    {"repeat_penalty", read_repeat, true, false},
    {"repetition_penalty", read_repeat, true, false},
    {"repeat_last", read_repeat_last, true, false},
    {"repeat_last_n", read_repeat_last, true, false},
    {"presence_penalty", read_presence, true, false},
    {"frequency_penalty", read_frequency, true, false},
    {"seed", read_seed, true, false},
    {"stop", read_stop, true, false},
};

/* null is the same as no field. */
static apr_status read_field(apr_batch_request *r, cJSON *item, bool has_body, bool in_body, apr_error *err)
{
    bool is_known = false;

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(fields[i].key, item->string) != 0) continue;
        if (has_body && !(in_body ? fields[i].in_body : fields[i].outside)) break;
        return cJSON_IsNull(item) ? APR_OK : fields[i].read(r, item, err);
    }
    if (cJSON_IsNull(item) && (in_body || !has_body)) return APR_OK;
    if (in_body || !has_body) APR_TRY(read_idle(item, &is_known, err));
    if (is_known) return APR_OK;
    return apr_fail(err, APR_E_USAGE, "'%.40s' is not a field of a request%s", item->string,
                    in_body    ? "'s body"
                    : has_body ? " that has a body"
                               : "; the fields are id, prompt, messages, max_tokens, temperature, top_p, top_k, min_p, repeat_penalty, "
                                 "repeat_last, presence_penalty, frequency_penalty, seed, stop");
}

/* A string or a whole number, which the answer repeats unchanged. */
static apr_status read_id(apr_batch_request *r, apr_error *err)
{
    const cJSON *const id = apr_json_get(r->json, "id"), *const custom = apr_json_get(r->json, "custom_id"),
                       *const it = id != NULL ? id : custom;
    apr_json_text text = {0};
    int64_t number;

    if (id != NULL && custom != NULL) return apr_fail(err, APR_E_USAGE, "'id' and 'custom_id' are the same: give one");
    if (it == NULL || cJSON_IsNull(it)) return APR_OK;
    if (cJSON_IsString(it)) apr_json_string(&text, NULL, it->valuestring, strlen(it->valuestring));
    else if (apr_json_as_int(it, &number)) apr_json_int(&text, NULL, number);
    else return must_be(it->string, "a string or a whole number", err);
    r->id = apr_json_text_take(&text, NULL);
    return r->id != NULL ? APR_OK : apr_no_memory(err, "an id");
}

static const char chat_url[] = "/v1/chat/completions", text_url[] = "/v1/completions";

static bool is_chat(const char *url) { return strcmp(url, chat_url) == 0; }

/* Comes before the body, because it decides which fields a body may have. */
static apr_status check_url(apr_batch_request *r, apr_error *err)
{
    const cJSON *const url = apr_json_get(r->json, "url");

    if (url == NULL || cJSON_IsNull(url) || !cJSON_IsString(url)) return APR_OK;
    r->url = url->valuestring;
    if (is_chat(url->valuestring) || strcmp(url->valuestring, text_url) == 0) return APR_OK;
    r->param = "url";
    return apr_fail(err, APR_E_USAGE, "'url' is '%.60s': only %s and %s are supported", url->valuestring, chat_url, text_url);
}

static apr_status read_all(apr_batch_request *r, cJSON *object, bool has_body, bool in_body, apr_error *err)
{
    cJSON *item;

    cJSON_ArrayForEach(item, object)
    {
        const apr_status status = read_field(r, item, has_body, in_body, err);
        if (status != APR_OK) r->param = item->string;
        APR_TRY(status);
    }
    return APR_OK;
}

static apr_status read_fields(apr_batch_request *r, apr_error *err)
{
    cJSON *const body = cJSON_GetObjectItemCaseSensitive(r->json, "body");

    APR_TRY(read_all(r, r->json, body != NULL, false, err));
    if (body != NULL && !cJSON_IsObject(body)) return must_be("body", "an object", err);
    if (body != NULL) APR_TRY(read_all(r, body, true, true, err));
    if (r->leaves_tools_out) r->tools = NULL;
    if ((r->prompt == NULL) == (r->messages == NULL))
        return apr_fail(err, APR_E_USAGE, "a request must have either 'prompt' or 'messages'");
    if (r->url != NULL && is_chat(r->url) != (r->messages != NULL))
        return apr_fail(err, APR_E_USAGE, "'url' is '%.60s', so the body must have %s", r->url,
                        is_chat(r->url) ? "'messages'" : "a 'prompt'");
    return APR_OK;
}

apr_status apr_batch_request_read(apr_batch_request *r, const char *text, size_t n_bytes, const apr_batch_defaults *standard,
                                  apr_error *err)
{
    *r = (apr_batch_request){
        .max_tokens = standard->max_tokens, .sampling = standard->sampling, .is_openai = standard->format == APR_BATCH_OPENAI};
    for (size_t i = 0; i < standard->n_stops; i++) r->stops[r->n_stops++] = standard->stops[i];
    APR_TRY(apr_json_parse(&r->json, text, n_bytes, "the line", err));
    if (!cJSON_IsObject(r->json)) return apr_fail(err, APR_E_DAMAGED, "the line is not a JSON object");
    const bool has_shape = apr_json_get(r->json, "custom_id") != NULL && apr_json_get(r->json, "body") != NULL;
    r->is_openai |= has_shape && standard->format == APR_BATCH_AUTO;
    if (r->is_openai && standard->of_model != NULL) {
        r->sampling.temperature = standard->of_model->temperature;
        r->sampling.top_p = standard->of_model->top_p;
    }
    APR_TRY(read_id(r, err));
    APR_TRY(check_url(r, err));
    return read_fields(r, err);
}

void apr_batch_request_close(apr_batch_request *r)
{
    cJSON_Delete(r->json);
    free(r->id);
    *r = (apr_batch_request){0};
}
