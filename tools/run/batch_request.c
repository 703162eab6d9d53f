/* batch_request.c - the fields of a request, each with what it must be. */
#include "tools/run/batch_request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static apr_status must_be(const char *key, const char *what, apr_error *err)
{
    return apr_fail(err, APR_E_USAGE, "'%s' must be %s", key, what);
}

static apr_status read_prompt(apr_batch_request *r, const cJSON *item, apr_error *err)
{
    if (!cJSON_IsString(item)) return must_be("prompt", "a string", err);
    r->prompt = item->valuestring;
    return APR_OK;
}

static apr_status read_messages(apr_batch_request *r, const cJSON *item, apr_error *err)
{
    const cJSON *message;

    if (!cJSON_IsArray(item) || item->child == NULL) return must_be("messages", "an array of at least one message", err);
    cJSON_ArrayForEach(message, item)
    {
        if (apr_json_get_string(message, "role") == NULL || apr_json_get(message, "content") == NULL)
            return must_be("messages", "an array of objects with a \"role\" and a \"content\"", err);
    }
    r->messages = item;
    return APR_OK;
}

static apr_status read_max_tokens(apr_batch_request *r, const cJSON *item, apr_error *err)
{
    if (!apr_json_as_int(item, &r->max_tokens) || r->max_tokens < 1 || r->max_tokens > 1000000000)
        return must_be("max_tokens", "a whole number of 1 to 1000000000", err);
    return APR_OK;
}

static bool is_within(const cJSON *item, double most)
{
    return cJSON_IsNumber(item) && item->valuedouble >= 0.0 && item->valuedouble <= most;
}

static apr_status read_temperature(apr_batch_request *r, const cJSON *item, apr_error *err)
{
    if (!is_within(item, 100.0)) return must_be("temperature", "a number of 0 to 100", err);
    r->sampling.temperature = (float)item->valuedouble;
    return APR_OK;
}

static apr_status read_top_p(apr_batch_request *r, const cJSON *item, apr_error *err)
{
    if (!is_within(item, 1.0)) return must_be("top_p", "a number of 0 to 1", err);
    r->sampling.top_p = (float)item->valuedouble;
    return APR_OK;
}

static apr_status read_seed(apr_batch_request *r, const cJSON *item, apr_error *err)
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

static apr_status read_stop(apr_batch_request *r, const cJSON *item, apr_error *err)
{
    const cJSON *one;

    r->n_stops = 0;
    if (cJSON_IsNull(item)) return APR_OK;
    if (!cJSON_IsArray(item)) return add_stop(r, item, err);
    cJSON_ArrayForEach(one, item) APR_TRY(add_stop(r, one, err));
    return APR_OK;
}

static apr_status read_over(apr_batch_request *r, const cJSON *item, apr_error *err)
{
    (void)r, (void)item, (void)err;
    return APR_OK;
}

typedef struct field {
    const char *key;
    apr_status (*read)(apr_batch_request *r, const cJSON *item, apr_error *err);
    bool in_body, outside; /* where it may stand when there is a body; without one everywhere */
} field;

static const field fields[] = {
    {"id", read_over, false, true},
    {"custom_id", read_over, false, true},
    {"method", read_over, false, true},
    {"url", read_over, false, true},
    {"body", read_over, false, true},
    {"model", read_over, true, false},
    {"prompt", read_prompt, true, false},
    {"messages", read_messages, true, false},
    {"max_tokens", read_max_tokens, true, false},
    {"max_completion_tokens", read_max_tokens, true, false},
    {"temperature", read_temperature, true, false},
    {"top_p", read_top_p, true, false},
    {"seed", read_seed, true, false},
    {"stop", read_stop, true, false},
};

static apr_status read_field(apr_batch_request *r, const cJSON *item, bool has_body, bool in_body, apr_error *err)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(fields[i].key, item->string) != 0) continue;
        if (has_body && !(in_body ? fields[i].in_body : fields[i].outside)) break;
        return fields[i].read(r, item, err);
    }
    return apr_fail(err, APR_E_USAGE, "'%.40s' is no field of a request%s", item->string,
                    in_body    ? "'s body"
                    : has_body ? " that has a body"
                               : "; those are id, prompt, messages, max_tokens, temperature, top_p, seed, stop");
}

/* A string or a whole number, to be given back as it is. */
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

static apr_status read_fields(apr_batch_request *r, apr_error *err)
{
    const cJSON *const body = apr_json_get(r->json, "body"), *item;

    cJSON_ArrayForEach(item, r->json) APR_TRY(read_field(r, item, body != NULL, false, err));
    if (body != NULL && !cJSON_IsObject(body)) return must_be("body", "an object", err);
    if (body != NULL) cJSON_ArrayForEach(item, body) APR_TRY(read_field(r, item, true, true, err));
    if ((r->prompt == NULL) == (r->messages == NULL)) return apr_fail(err, APR_E_USAGE, "a request has either a 'prompt' or 'messages'");
    return APR_OK;
}

apr_status apr_batch_request_read(apr_batch_request *r, const char *text, size_t n_bytes, const apr_batch_standard *standard,
                                  apr_error *err)
{
    *r = (apr_batch_request){.max_tokens = standard->max_tokens, .sampling = standard->sampling};
    APR_TRY(apr_json_parse(&r->json, text, n_bytes, "the line", err));
    if (!cJSON_IsObject(r->json)) return apr_fail(err, APR_E_DAMAGED, "the line is no JSON object");
    APR_TRY(read_id(r, err));
    return read_fields(r, err);
}

void apr_batch_request_close(apr_batch_request *r)
{
    cJSON_Delete(r->json);
    free(r->id);
    *r = (apr_batch_request){0};
}
