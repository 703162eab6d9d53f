/* chat.c - the variables of a chat template. */
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

/* "bos_token": "<s>"; left out when the model has none. */
static bool add_token(cJSON *variables, const char *key, const apr_vocab *vocab, int32_t id)
{
    if (id < 0 || (size_t)id >= vocab->n_tokens) return true;
    char *const text = strndup(vocab->tokens[id].text, vocab->tokens[id].n_bytes);
    const bool ok = text != NULL && cJSON_AddStringToObject(variables, key, text) != NULL;
    free(text);
    return ok;
}

/* Takes the messages, also on failure; NULL: there is no memory for them. */
static cJSON *chat_variables(const apr_vocab *vocab, cJSON *messages, double now)
{
    cJSON *const variables = cJSON_CreateObject();
    const bool is_there = messages != NULL && cJSON_AddItemToObject(variables, "messages", messages);
    const bool ok = is_there && cJSON_AddTrueToObject(variables, "add_generation_prompt") != NULL &&
                    cJSON_AddNumberToObject(variables, "strftime_now_unix", now) != NULL &&
                    add_token(variables, "bos_token", vocab, vocab->bos_id) && add_token(variables, "eos_token", vocab, vocab->eos_id) &&
                    add_token(variables, "pad_token", vocab, vocab->pad_id);
    if (ok) return variables;
    if (!is_there) cJSON_Delete(messages);
    cJSON_Delete(variables);
    return NULL;
}

static apr_status render(const apr_vocab *vocab, cJSON *messages, double now, char **text, size_t *n_bytes, apr_error *err)
{
    cJSON *const variables = chat_variables(vocab, messages, now);
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
    return render(vocab, messages, now, text, n_bytes, err);
}

apr_status apr_chat_render_messages(const apr_vocab *vocab, const cJSON *messages, double now, char **text, size_t *n_bytes, apr_error *err)
{
    *text = NULL;
    if (vocab->chat_template == NULL) return apr_fail(err, APR_E_UNSUPPORTED, "the model has no chat template");
    return render(vocab, cJSON_Duplicate(messages, true), now, text, n_bytes, err);
}
