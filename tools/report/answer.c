/* answer.c - prints the JSON object on stdout, or the error message on stderr. */
#include "tools/report/answer.h"

#include "tools/report/text.h"

#include <errno.h>
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

/* Returns the status that was printed. */
static apr_status print_json(apr_answer *answer, apr_status status, const apr_error *err)
{
    char *const text = apr_answer_document(&answer->body, status, err);

    if (text != NULL) puts(text);
    else printf("{\"ok\":false,\"status\":\"%s\",\"exit\":%d}\n", apr_status_text(APR_E_MEMORY), APR_E_MEMORY);
    free(text);
    return text != NULL ? status : APR_E_MEMORY;
}

int apr_answer_end(apr_answer *answer, const char *tool, apr_status status, const apr_error *err)
{
    char message[2 * sizeof err->text];

    if (answer->json && answer->body.failed) status = APR_E_MEMORY;
    if (answer->json) status = print_json(answer, status, err);
    else if (status > APR_E_NO || err->text[0] != '\0')
        fprintf(stderr, "%s: %s\n", tool,
                apr_clean_text(message, sizeof message, message_of(status, err), strlen(message_of(status, err))));
    apr_json_text_free(&answer->body);

    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "%s: cannot write the answer: %s\n", tool, strerror(errno));
        return APR_E_IO;
    }
    return (int)status;
}
