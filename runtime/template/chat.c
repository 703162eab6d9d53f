/* chat.c - builds the variables of a chat template, and finds the token that ends a turn. */
#define _GNU_SOURCE /* memmem */
#include "runtime/template/chat.h"

#include <stdlib.h>
#include <string.h>

static bool add_message(cJSON *messages, const char *role, const char *content)
{
    cJSON *const message = cJSON_CreateObject();
    if (!cJSON_AddItemToArray(messages, message)) {
        cJSON_Delete(message);
        return false;
    }
    return cJSON_AddStringToObject(message, "role", role) != NULL && cJSON_AddStringToObject(message, "content", content) != NULL;
}

/* Adds "bos_token": "<s>", for example; does nothing if the model has no such token. */
static bool add_token(cJSON *variables, const char *key, const apr_vocab *vocab, int32_t id)
{
    if (id < 0 || (size_t)id >= vocab->n_tokens) return true;
    char *const text = strndup(vocab->tokens[id].text, vocab->tokens[id].n_bytes);
    const bool ok = text != NULL && cJSON_AddStringToObject(variables, key, text) != NULL;
    free(text);
    return ok;
}

/* Takes ownership of messages, also on failure. NULL: out of memory. prompts: add_generation_prompt. */
static cJSON *chat_variables(const apr_vocab *vocab, cJSON *messages, double now, bool prompts)
{
    cJSON *const variables = cJSON_CreateObject();
    const bool is_there = messages != NULL && cJSON_AddItemToObject(variables, "messages", messages);
    const bool ok = is_there && cJSON_AddBoolToObject(variables, "add_generation_prompt", prompts) != NULL &&
                    cJSON_AddNumberToObject(variables, "strftime_now_unix", now) != NULL &&
                    add_token(variables, "bos_token", vocab, vocab->bos_id) && add_token(variables, "eos_token", vocab, vocab->eos_id) &&
                    add_token(variables, "pad_token", vocab, vocab->pad_id);
    if (ok) return variables;
    if (!is_there) cJSON_Delete(messages);
    cJSON_Delete(variables);
    return NULL;
}

/* prompts: end the text with the generation prompt, so that the model continues with its answer. */
static apr_status render(const apr_vocab *vocab, cJSON *messages, double now, bool prompts, char **text, size_t *n_bytes, apr_error *err)
{
    cJSON *const variables = chat_variables(vocab, messages, now, prompts);
    if (variables == NULL) return apr_no_memory(err, "the chat");
    const apr_status status = apr_template_render(vocab->chat_template, variables, text, n_bytes, err);
    cJSON_Delete(variables);
    return status;
}

apr_status apr_chat_render(const apr_vocab *vocab, const char *system, const char *user, double now, char **text, size_t *n_bytes,
                           apr_error *err)
{
    *text = NULL;
    if (vocab->chat_template == NULL) return apr_fail(err, APR_E_UNSUPPORTED, "the model has no chat template");
    cJSON *const messages = cJSON_CreateArray();
    if (messages == NULL || (system != NULL && !add_message(messages, "system", system)) || !add_message(messages, "user", user)) {
        cJSON_Delete(messages);
        return apr_no_memory(err, "the chat");
    }
    return render(vocab, messages, now, true, text, n_bytes, err);
}

/* Sets a key to a copy of the value, replacing an existing one. */
static bool set_variable(cJSON *variables, const char *key, const cJSON *value)
{
    cJSON *const copy = cJSON_Duplicate(value, true);
    const bool ok = copy != NULL &&
                    (cJSON_GetObjectItemCaseSensitive(variables, key) != NULL ? cJSON_ReplaceItemInObjectCaseSensitive(variables, key, copy)
                                                                              : cJSON_AddItemToObject(variables, key, copy));
    if (!ok) cJSON_Delete(copy);
    return ok;
}

static bool set_request(cJSON *variables, const apr_chat_request *request)
{
    const cJSON *item;
    bool ok = request->tools == NULL || set_variable(variables, "tools", request->tools);

    cJSON_ArrayForEach(item, request->variables) if (strcmp(item->string, "messages") != 0) ok =
        ok && set_variable(variables, item->string, item);
    return ok;
}

apr_status apr_chat_render_messages(const apr_vocab *vocab, const apr_chat_request *request, double now, char **text, size_t *n_bytes,
                                    apr_error *err)
{
    *text = NULL;
    if (vocab->chat_template == NULL) return apr_fail(err, APR_E_UNSUPPORTED, "the model has no chat template");
    cJSON *const variables = chat_variables(vocab, cJSON_Duplicate(request->messages, true), now, true);
    const bool ok = variables != NULL && set_request(variables, request);
    const apr_status status =
        ok ? apr_template_render(vocab->chat_template, variables, text, n_bytes, err) : apr_no_memory(err, "the chat");
    cJSON_Delete(variables);
    return status;
}

/* --- the end of a turn --- */

#define ANSWER "the-answer"

static bool is_added(const apr_vocab *v, size_t id)
{
    if (v->added != NULL) return (v->added[id] & APR_ADDED) != 0;
    return v->types != NULL && (v->types[id] == APR_TOKEN_CONTROL || v->types[id] == APR_TOKEN_USER);
}

/* The longest added token that is a prefix of the text, or -1. */
static int32_t token_at(const apr_vocab *v, const char *text, size_t n_bytes)
{
    int32_t best = -1;

    for (size_t id = 0; id < v->n_tokens && id <= INT32_MAX; id++) {
        const apr_str token = v->tokens[id];
        if (token.n_bytes == 0 || token.n_bytes > n_bytes || !is_added(v, id) || memcmp(text, token.text, token.n_bytes) != 0) continue;
        if (best < 0 || v->tokens[best].n_bytes < token.n_bytes) best = (int32_t)id;
    }
    return best;
}

/* The token after the answer, ignoring spaces and newlines; -1: none. */
static int32_t token_after_answer(const apr_vocab *v, const char *text, size_t n_bytes)
{
    const char *const end = text + n_bytes, *at = NULL;

    for (const char *p = text; (p = memmem(p, (size_t)(end - p), ANSWER, strlen(ANSWER))) != NULL; p += strlen(ANSWER)) at = p;
    if (at == NULL) return -1;
    at += strlen(ANSWER);
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r')) at++;
    return token_at(v, at, (size_t)(end - at));
}

static apr_status render_answered(const apr_vocab *vocab, char **text, size_t *n_bytes, apr_error *err)
{
    cJSON *const messages = cJSON_CreateArray();

    if (messages == NULL || !add_message(messages, "user", "a question") || !add_message(messages, "assistant", ANSWER)) {
        cJSON_Delete(messages);
        return apr_no_memory(err, "the chat");
    }
    return render(vocab, messages, 0.0, false, text, n_bytes, err);
}

apr_status apr_chat_stops_of(const apr_vocab *vocab, apr_chat_stops *stops, apr_error *err)
{
    apr_error own = {0};
    char *text = NULL;
    size_t n = 0;

    *stops = (apr_chat_stops){.n = vocab->n_stop_ids, .added = -1};
    memcpy(stops->ids, vocab->stop_ids, vocab->n_stop_ids * sizeof stops->ids[0]);
    if (vocab->chat_template == NULL) return APR_OK;
    const apr_status status = render_answered(vocab, &text, &n, &own);
    if (status == APR_E_MEMORY) return apr_no_memory(err, "the chat");
    const int32_t id = status == APR_OK ? token_after_answer(vocab, text, n) : -1;
    free(text);
    for (size_t i = 0; i < stops->n; i++)
        if (stops->ids[i] == id) return APR_OK;
    if (id >= 0) stops->ids[stops->n++] = stops->added = id;
    return APR_OK;
}
