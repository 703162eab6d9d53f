/* status.c - texts of the statuses; the first message of an apr_error is kept. */
#include "formats/base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

const char *apr_status_text(apr_status status)
{
    switch (status) {
#define X(id, value, text) \
    case APR_##id: return text;
        APR_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

apr_status apr_fail(apr_error *err, apr_status status, const char *format, ...)
{
    if (err != NULL && err->text[0] == '\0') {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        err->status = status;
    }
    return status;
}

apr_status apr_no_memory(apr_error *err, const char *what) { return apr_fail(err, APR_E_MEMORY, "not enough memory for %s", what); }

apr_status apr_errno_status(int error) { return error == ENOMEM ? APR_E_MEMORY : APR_E_IO; }
