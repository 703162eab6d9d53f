/* chat_messages.c - a list of messages: changed at its ends, saved and loaded. */
#include "tools/engine/requests/chat_messages.h"

#include "formats/files/out.h"
#include "tools/engine/requests/answer_text.h"
#include "tools/engine/requests/batch_request.h"
#include "tools/engine/text_input.h"

#include <stdlib.h>
#include <string.h>

void apr_messages_close(apr_messages *m)
{
    cJSON_Delete(m->list);
    cJSON_Delete(m->tools);
    *m = (apr_messages){0};
}

static cJSON *message_of(const char *role, const char *text)
{
    cJSON *const message = cJSON_CreateObject();
    if (message != NULL && cJSON_AddStringToObject(message, "role", role) != NULL &&
        cJSON_AddStringToObject(message, "content", text) != NULL)
        return message;
    cJSON_Delete(message);
    return NULL;
}

static bool has_list(apr_messages *m)
{
    if (m->list == NULL) m->list = cJSON_CreateArray();
    return m->list != NULL;
}

static apr_status check_text(const char *text, size_t n_bytes, apr_error *err)
{
    const size_t at = apr_first_invalid(text, n_bytes);

    if (at == n_bytes) return APR_OK;
    if (text[at] == '\0') return apr_fail(err, APR_E_DAMAGED, "the message has a NUL at byte %zu, which no chat template takes", at);
    return apr_fail(err, APR_E_DAMAGED, "the message is not UTF-8: byte %zu does not begin a character", at);
}

apr_status apr_messages_add(apr_messages *m, const char *role, const char *text, size_t n_bytes, apr_error *err)
{
    APR_TRY(check_text(text, n_bytes, err));
    char *const copy = strndup(text, n_bytes);
    cJSON *const message = copy != NULL && has_list(m) ? message_of(role, copy) : NULL;
    free(copy);
    if (message != NULL && cJSON_AddItemToArray(m->list, message)) return APR_OK;
    cJSON_Delete(message);
    return apr_no_memory(err, "the conversation");
}

static bool has_role(const cJSON *message, const char *role)
{
    const char *const its = apr_json_get_string(message, "role");
    return its != NULL && strcmp(its, role) == 0;
}

const char *apr_messages_system(const apr_messages *m)
{
    const cJSON *const first = m->list != NULL ? m->list->child : NULL;
    return has_role(first, "system") ? apr_json_get_string(first, "content") : NULL;
}

apr_status apr_messages_set_system(apr_messages *m, const char *text, apr_error *err)
{
    APR_TRY(check_text(text, strlen(text), err));
    cJSON *const message = *text != '\0' ? message_of("system", text) : NULL;

    if ((*text != '\0' && message == NULL) || !has_list(m)) {
        cJSON_Delete(message);
        return apr_no_memory(err, "the conversation");
    }
    if (has_role(m->list->child, "system")) cJSON_DeleteItemFromArray(m->list, 0);
    if (message == NULL || cJSON_InsertItemInArray(m->list, 0, message)) return APR_OK;
    cJSON_Delete(message);
    return apr_no_memory(err, "the conversation");
}

/* --- the last turn --- */

static int count(const apr_messages *m) { return m->list != NULL ? cJSON_GetArraySize(m->list) : 0; }

/* Index of the user's last message; -1: there is none. */
static int last_question(const apr_messages *m)
{
    int i = count(m) - 1;
    while (i >= 0 && !has_role(cJSON_GetArrayItem(m->list, i), "user")) i--;
    return i;
}

int apr_messages_count_turns(const apr_messages *m)
{
    const cJSON *message;
    int n = 0;
    cJSON_ArrayForEach(message, m->list) n += has_role(message, "user");
    return n;
}

bool apr_messages_ends_with_question(const apr_messages *m) { return count(m) > 0 && last_question(m) == count(m) - 1; }

static void truncate_to(apr_messages *m, int n)
{
    while (count(m) > n) cJSON_DeleteItemFromArray(m->list, count(m) - 1);
}

bool apr_messages_undo(apr_messages *m)
{
    const int at = last_question(m);
    if (at >= 0) truncate_to(m, at);
    return at >= 0;
}

bool apr_messages_drop_answer(apr_messages *m)
{
    const int at = last_question(m);
    if (at >= 0) truncate_to(m, at + 1);
    return at >= 0;
}

void apr_messages_clear(apr_messages *m) { truncate_to(m, apr_messages_system(m) != NULL); }

/* --- files --- */

#define MESSAGES_KEY "\"messages\""

static char *print_line(const apr_messages *m)
{
    cJSON *const whole = cJSON_CreateObject();
    char *text = NULL;

    /* borrowed, not copied */
    if (whole != NULL && cJSON_AddItemReferenceToObject(whole, "messages", m->list) &&
        (m->tools == NULL || cJSON_AddItemReferenceToObject(whole, "tools", m->tools)))
        text = cJSON_PrintUnformatted(whole);
    cJSON_Delete(whole);
    return text;
}

apr_status apr_messages_save(const apr_messages *m, const char *path, apr_error *err)
{
    apr_out *out = NULL;

    if (count(m) == 0) return apr_fail(err, APR_E_USAGE, "there is nothing to save: the conversation is empty");
    char *const text = print_line(m);
    if (text == NULL) return apr_no_memory(err, "the conversation");
    apr_status status = apr_out_open_marked(&out, path, MESSAGES_KEY, err);
    if (status == APR_OK) status = apr_out_write(out, text, strlen(text), NULL, err);
    if (status == APR_OK) status = apr_out_write(out, "\n", 1, NULL, err);
    free(text);
    if (status == APR_OK) return apr_out_finish(out, err);
    apr_out_abandon(out);
    return status;
}

/* As `aprrun batch` reads it. */
static apr_status read_file(const char *path, apr_batch_request *request, apr_error *err)
{
    static const apr_batch_defaults standard = {.max_tokens = 1};
    apr_error own = {0};
    apr_text_input text;

    APR_TRY(apr_text_input_open(&text, path, err));
    apr_status status = apr_batch_request_read(request, text.bytes, text.n_bytes, &standard, &own);
    apr_text_input_close(&text);
    if (status == APR_OK && request->messages == NULL) status = apr_fail(&own, APR_E_USAGE, "it has a prompt instead of messages");
    return status == APR_OK ? APR_OK : apr_fail(err, status, "%s is not a saved conversation: %s", path, own.text);
}

apr_status apr_messages_load(apr_messages *m, const char *path, apr_error *err)
{
    apr_batch_request request = {0};

    apr_status status = read_file(path, &request, err);
    if (status == APR_OK) {
        apr_messages loaded = {cJSON_Duplicate(request.messages, true), NULL};
        if (request.tools != NULL) loaded.tools = cJSON_Duplicate(request.tools, true);
        if (loaded.list == NULL || (request.tools != NULL && loaded.tools == NULL)) {
            apr_messages_close(&loaded);
            status = apr_no_memory(err, "the conversation");
        } else {
            if (loaded.tools == NULL) {
                loaded.tools = m->tools;
                m->tools = NULL;
            }
            apr_messages_close(m);
            *m = loaded;
        }
    }
    apr_batch_request_close(&request);
    return status;
}

apr_status apr_messages_load_tools(apr_messages *m, const char *path, apr_error *err)
{
    cJSON *json = NULL;
    apr_text_input text;

    APR_TRY(apr_text_input_open(&text, path, err));
    const apr_status status = apr_json_parse(&json, text.bytes, text.n_bytes, path, err);
    apr_text_input_close(&text);
    APR_TRY(status);
    cJSON *const list = cJSON_IsObject(json) ? cJSON_DetachItemFromObjectCaseSensitive(json, "tools") : json;
    if (list != json) cJSON_Delete(json);
    if (!cJSON_IsArray(list)) {
        cJSON_Delete(list);
        return apr_fail(err, APR_E_USAGE, "%s: give a JSON list of tools, or an object with a list \"tools\"", path);
    }
    cJSON_Delete(m->tools);
    m->tools = list;
    return APR_OK;
}
