/* batch_job.c - makes token ids of a request, and the answer's line of the tokens that come. */
#include "tools/engine/requests/batch_job.h"

#include "formats/base/grow.h"
#include "formats/base/text.h"
#include "runtime/template/chat.h"
#include "tools/engine/requests/answer_text.h"
#include "tools/engine/requests/batch_output.h"

#include <stdlib.h>
#include <string.h>

static const char *kind_of(const cJSON *item)
{
    return cJSON_IsArray(item)    ? "a list"
           : cJSON_IsObject(item) ? "an object"
           : cJSON_IsNumber(item) ? "a number"
           : cJSON_IsNull(item)   ? "null"
                                  : "true or false";
}

/* Some templates take a content that is not a string. If one does not, the request is at fault, and the model is not damaged. */
static apr_status refuse_content(const cJSON *messages, const apr_error *own, apr_error *err)
{
    const cJSON *message;
    int number = 0;

    cJSON_ArrayForEach(message, messages)
    {
        const cJSON *const content = apr_json_get(message, "content");
        number++;
        if (own->status != APR_E_DAMAGED || content == NULL || cJSON_IsString(content)) continue;
        return apr_fail(err, APR_E_USAGE,
                        "the 'content' of message %d is %s, which the model's chat template does not take (%s): give a string", number,
                        kind_of(content), own->text);
    }
    return apr_fail(err, own->status, "%s", own->text);
}

/* Some templates recognize tool calls by a content of null, others take only strings. So null is tried first. */
static apr_status render(apr_batch_job *job, const apr_vocab *vocab, double now, char **text, size_t *n, apr_error *err)
{
    apr_error own = {0};
    const apr_chat_request request = {job->request.messages, job->request.tools, job->request.variables};
    bool changed = false;

    APR_TRY(apr_batch_request_rename_developer(&job->request, vocab->chat_template, err));
    apr_status status = apr_chat_render_messages(vocab, &request, now, text, n, &own);
    if (status == APR_E_DAMAGED) APR_TRY(apr_batch_request_fill_contents(&job->request, &changed, err));
    if (changed) status = apr_chat_render_messages(vocab, &request, now, text, n, &own);
    return status == APR_OK ? APR_OK : refuse_content(job->request.messages, &own, err);
}

apr_status apr_batch_job_encode(apr_batch_job *job, const apr_running *running, double now, bool no_bos, apr_error *err)
{
    apr_encode_options how = {.add_special = !no_bos, .parse_special = true};
    const char *text = job->request.prompt;
    size_t n = text != NULL ? strlen(text) : 0;
    char *rendered = NULL;

    if (text == NULL) {
        APR_TRY(render(job, &running->model.vocab, now, &rendered, &n, err));
        text = rendered;
        how.add_special = false;
    }
    const apr_status status = apr_tokenizer_encode(running->tokenizer, text, n, &how, &job->prompt, &job->n_prompt, err);
    free(rendered);
    return status;
}

apr_request apr_batch_job_request(apr_batch_job *job, const apr_running *r)
{
    const bool is_chat = job->request.messages != NULL;
    return (apr_request){.prompt = job->prompt,
                         .n_prompt = job->n_prompt,
                         .max_tokens = job->request.max_tokens,
                         .sampling = job->request.sampling,
                         .stop_ids = is_chat ? r->chat.ids : r->model.vocab.stop_ids,
                         .n_stop_ids = is_chat ? r->chat.n : r->model.vocab.n_stop_ids,
                         .tag = job};
}

/* --- tokens --- */

static bool add_id(apr_batch_job *job, int32_t id)
{
    int32_t *const ids = apr_grow(job->ids, &job->capacity, job->n_ids + 1, sizeof *ids);
    if (ids == NULL) return false;
    job->ids = ids;
    job->ids[job->n_ids++] = id;
    return true;
}

static bool add_text(apr_batch_job *job, const char *bytes, size_t n)
{
    char *const text = apr_grow(job->text, &job->text_capacity, job->n_text + n, 1);
    if (text == NULL) return false;
    job->text = text;
    memcpy(job->text + job->n_text, bytes, n);
    job->n_text += n;
    return true;
}

static size_t find_stop(const apr_batch_request *request, const char *text, size_t from, size_t n)
{
    return apr_find_stop_text(request->stops, request->n_stops, text, from, n);
}

bool apr_batch_job_take(apr_batch_job *job, const apr_running *running, int32_t id, bool is_stop)
{
    char bytes[1024];
    const size_t before = job->n_text;

    job->no_memory |= !add_id(job, id);
    if (job->no_memory || is_stop || job->request.n_stops == 0) return !job->no_memory;
    size_t n = apr_tokenizer_token_bytes(running->tokenizer, id, false, bytes, sizeof bytes);
    if (n > sizeof bytes) n = sizeof bytes;
    if (n == 0) return true;
    job->no_memory |= !add_text(job, bytes, n);
    return !job->no_memory && find_stop(&job->request, job->text, before, job->n_text) == job->n_text;
}

/* --- answers --- */

static void begin_line(apr_json_text *json, const apr_batch_job *job)
{
    apr_json_open(json, NULL, '{');
    apr_json_int(json, "line", job->line);
    if (job->request.id != NULL) apr_json_raw(json, "id", job->request.id, strlen(job->request.id));
}

/* Ends the object, which has no line end inside, and adds one. */
static char *take_line(apr_json_text *json, size_t *n_bytes)
{
    apr_json_close(json, '}');
    char *const text = apr_json_text_take(json, n_bytes);
    char *const line = text != NULL ? realloc(text, *n_bytes + 1) : NULL;
    if (line == NULL) {
        free(text);
        return NULL;
    }
    line[(*n_bytes)++] = '\n'; /* where the NUL was */
    return line;
}

static char *end_line(apr_json_text *json, const apr_batch_job *job, uint32_t terms, size_t *n_bytes)
{
    char key[APR_BATCH_KEY_BYTES];

    apr_json_string(json, "key", apr_batch_key(key, terms, job->crc), APR_BATCH_KEY_BYTES - 1);
    return take_line(json, n_bytes);
}

/* --- answers in the shape of OpenAI's batches --- */

static void begin_openai(apr_json_text *json, const apr_batch_job *job, uint32_t terms, int status_code)
{
    char id[APR_BATCH_ID_BYTES];

    apr_json_open(json, NULL, '{');
    apr_json_cstring(json, "id", apr_batch_id(id, job->line, terms, job->crc));
    if (job->request.id != NULL) apr_json_raw(json, "custom_id", job->request.id, strlen(job->request.id));
    else apr_json_null(json, "custom_id");
    apr_json_open(json, "response", '{');
    apr_json_int(json, "status_code", status_code);
    apr_json_cstring(json, "request_id", id);
    apr_json_open(json, "body", '{');
}

static char *openai_refusal(const apr_batch_job *job, apr_status status, const char *sentence, uint32_t terms, size_t *n_bytes)
{
    const bool is_ours = status == APR_E_IO || status == APR_E_MEMORY || status == APR_E_DEVICE;
    apr_json_text json = {0};

    begin_openai(&json, job, terms, is_ours ? 500 : 400);
    for (int i = 0; i < 2; i++) { /* OpenAI's clients read the error in the body, vLLM's next to the response */
        apr_json_open(&json, "error", '{');
        apr_json_cstring(&json, "code", apr_status_text(status));
        apr_json_cstring(&json, "message", sentence);
        apr_json_cstring(&json, "type", is_ours ? "server_error" : "invalid_request_error");
        if (job->request.param != NULL) apr_json_cstring(&json, "param", job->request.param);
        else apr_json_null(&json, "param");
        if (apr_begins_with(sentence, "'url'") && job->request.url != NULL) apr_json_cstring(&json, "url", job->request.url);
        apr_json_close(&json, '}');
        if (i > 0) break;
        apr_json_close(&json, '}');
        apr_json_close(&json, '}');
    }
    return take_line(&json, n_bytes);
}

static char *openai_answer(const apr_batch_job *job, const char *text, size_t n_text, const apr_reply *reply, uint32_t terms,
                           size_t *n_bytes)
{
    const bool is_chat = job->request.messages != NULL, is_cut = reply->finish == APR_FINISH_LIMIT || reply->finish == APR_FINISH_CONTEXT;
    char id[APR_BATCH_ID_BYTES];
    apr_json_text json = {0};

    begin_openai(&json, job, terms, 200);
    apr_json_cstring(&json, "id", apr_batch_id(id, job->line, terms, job->crc));
    apr_json_cstring(&json, "object", is_chat ? "chat.completion" : "text_completion");
    apr_json_int(&json, "created", job->created);
    apr_json_cstring(&json, "model", job->request.model != NULL ? job->request.model : "");
    apr_json_open(&json, "choices", '[');
    apr_json_open(&json, NULL, '{');
    apr_json_int(&json, "index", 0);
    if (is_chat) {
        apr_json_open(&json, "message", '{');
        apr_json_cstring(&json, "role", "assistant");
        apr_json_string(&json, "content", text, n_text);
        apr_json_close(&json, '}');
    } else {
        apr_json_string(&json, "text", text, n_text);
    }
    apr_json_null(&json, "logprobs");
    apr_json_cstring(&json, "finish_reason", is_cut ? "length" : "stop");
    apr_json_close(&json, '}');
    apr_json_close(&json, ']');
    apr_json_open(&json, "usage", '{');
    apr_json_int(&json, "prompt_tokens", reply->n_prompt);
    apr_json_int(&json, "completion_tokens", reply->n_generated);
    apr_json_int(&json, "total_tokens", reply->n_prompt + reply->n_generated);
    apr_json_close(&json, '}');
    apr_json_close(&json, '}');
    apr_json_close(&json, '}');
    apr_json_null(&json, "error");
    return take_line(&json, n_bytes);
}

/* --- answers in either shape --- */

char *apr_batch_job_refusal(const apr_batch_job *job, apr_status status, const char *sentence, uint32_t terms, size_t *n_bytes)
{
    apr_json_text json = {0};

    if (job->request.is_openai) return openai_refusal(job, status, sentence, terms, n_bytes);
    begin_line(&json, job);
    apr_json_cstring(&json, "error", sentence);
    apr_json_cstring(&json, "status", apr_status_text(status));
    return end_line(&json, job, terms, n_bytes);
}

static char *own_answer(const apr_batch_job *job, const char *text, size_t n_text, const apr_reply *reply, uint32_t terms, size_t *n_bytes)
{
    apr_json_text json = {0};

    begin_line(&json, job);
    apr_json_string(&json, "text", text, n_text);
    apr_json_cstring(&json, "finish", apr_finish_name(reply->finish == APR_FINISH_CALLER ? APR_FINISH_STOP : reply->finish));
    apr_json_int(&json, "prompt_tokens", reply->n_prompt);
    apr_json_int(&json, "tokens", reply->n_generated);
    return end_line(&json, job, terms, n_bytes);
}

char *apr_batch_job_answer(const apr_batch_job *job, const apr_running *running, const apr_reply *reply, uint32_t terms, size_t *n_bytes,
                           apr_error *err)
{
    const bool is_stopped = reply->finish == APR_FINISH_STOP;
    char *text;
    size_t n;

    if (apr_tokenizer_decode(running->tokenizer, job->ids, job->n_ids - (is_stopped && job->n_ids > 0), false, &text, &n, err) != APR_OK)
        return NULL;
    if (job->request.n_stops > 0) n = find_stop(&job->request, text, 0, n);
    char *const line = (job->request.is_openai ? openai_answer : own_answer)(job, text, n, reply, terms, n_bytes);
    free(text);
    return line;
}

void apr_batch_job_free(apr_batch_job *job)
{
    if (job == NULL) return;
    apr_batch_request_close(&job->request);
    free(job->prompt);
    free(job->ids);
    free(job->text);
    free(job);
}
