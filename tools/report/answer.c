/* answer.c - the JSON object of an answer. */
#include "tools/report/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void apr_answer_start(apr_answer *answer, bool json)
{
    *answer = (apr_answer){.json = json};
    if (json) apr_json_open(&answer->body, NULL, '{');
}

static const char *message_of(apr_status status, const apr_error *err)
{
    return err->text[0] != '\0' ? err->text : apr_status_text(status);
}

char *apr_answer_document(apr_json_text *body, apr_status status, const apr_error *err)
{
    apr_json_text head = {0};

    apr_json_open(&head, NULL, '{');
    apr_json_bool(&head, "ok", status == APR_OK);
    apr_json_cstring(&head, "status", apr_status_text(status));
    apr_json_int(&head, "exit", status);
    if (status > APR_E_NO || err->text[0] != '\0') apr_json_cstring(&head, "error", message_of(status, err));
    apr_json_close(body, '}');

    /* The head is an object without its closing bracket; the body's members and closing bracket come after it. */
    char *const opened = apr_json_text_take(&head, NULL), *const members = apr_json_text_take(body, NULL);
    const size_t n = opened != NULL && members != NULL ? strlen(opened) + strlen(members) + 1 : 0;
    char *const text = n > 0 ? malloc(n) : NULL;
    if (text != NULL) snprintf(text, n, "%s%s%s", opened, members[1] == '}' ? "" : ",", members + 1);
    free(opened);
    free(members);
    return text;
}

apr_status apr_json_write(apr_json_text *json, const char *end, apr_out *out, const char *what, apr_error *err)
{
    size_t n = 0;
    char *const text = apr_json_text_take(json, &n);

    if (text == NULL) return apr_no_memory(err, what);
    apr_status status = apr_out_write(out, text, n, NULL, err);
    if (status == APR_OK && *end != '\0') status = apr_out_write(out, end, strlen(end), NULL, err);
    free(text);
    return status;
}
