/* answer_print.c - prints the JSON object on stdout, or the error message on stderr. */
#include "tools/report/answer.h"

#include "tools/report/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    const char *const text = err->text[0] != '\0' ? err->text : apr_status_text(status);
    char message[2 * sizeof err->text];

    if (answer->json && answer->body.failed) status = APR_E_MEMORY;
    if (answer->json) status = print_json(answer, status, err);
    else if (status > APR_E_NO || err->text[0] != '\0')
        fprintf(stderr, "%s: %s\n", tool, apr_clean_text(message, sizeof message, text, strlen(text)));
    apr_json_text_free(&answer->body);

    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "%s: cannot write the answer: %s\n", tool, strerror(errno));
        return APR_E_IO;
    }
    return (int)status;
}
