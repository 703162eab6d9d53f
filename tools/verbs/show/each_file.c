/* each_file.c - calls a function for each operand. */
#include "tools/verbs/show/each_file.h"

#include "tools/report/text.h"

#include <string.h>

/* One file of several. */
static apr_status one_of_many(const apr_call *call, size_t i, apr_status (*one)(const apr_call *call, const char *path, apr_error *err),
                              apr_error *own)
{
    apr_json_text *const json = &call->answer->body;

    if (call->answer->json) apr_json_open(json, NULL, '{');
    else if (i > 0) printf("\n");
    const apr_status status = one(call, call->operands[i], own);
    if (!call->answer->json) return status;
    if (status != APR_OK) apr_json_string(json, "error", own->text, strlen(own->text));
    apr_json_close(json, '}');
    return status;
}

apr_status apr_each_file(const apr_call *call, apr_status (*one)(const apr_call *call, const char *path, apr_error *err), apr_error *err)
{
    apr_status first = APR_OK;

    if (call->n_operands == 1) return one(call, call->operands[0], err);
    if (call->answer->json) apr_json_open(&call->answer->body, "files", '[');
    for (size_t i = 0; i < call->n_operands; i++) {
        apr_error own = {0};
        const apr_status status = one_of_many(call, i, one, &own);
        if (status == APR_OK) continue;
        if (first == APR_OK) {
            first = status;
            *err = own;
        } else if (!call->answer->json) {
            fflush(stdout);
            fprintf(stderr, "%s: %s\n", call->typed != NULL ? call->typed->tool : "", apr_printable(own.text));
        }
    }
    if (call->answer->json) apr_json_close(&call->answer->body, ']');
    return first;
}
