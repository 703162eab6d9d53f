/* out_verify.c - reads a finished output once before it takes its name: this detects a writer and a reader that disagree. */
#include "formats/base/text.h"
#include "formats/files/map.h"
#include "formats/files/out_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FD_PATH_BYTES = 32 };

/* The sentence without the path at its start. */
static const char *without_path(const char *sentence, const char *path)
{
    const size_t n = strlen(path);
    return apr_begins_with(sentence, path) && apr_begins_with(sentence + n, ": ") ? sentence + n + 2 : sentence;
}

apr_status apr_verify_output(apr_out_reader reader, int fd, const char *path, apr_error *err)
{
    char open_path[FD_PATH_BYTES];
    apr_error why = {0};

    snprintf(open_path, sizeof open_path, "/proc/self/fd/%d", fd);
    if (reader == NULL || access(open_path, R_OK) != 0) return APR_OK; /* no /proc, or a mode that forbids reading */
    const bool kept = apr_inputs_keep_closed(false);
    const apr_status status = reader(open_path, &why);
    apr_inputs_keep_closed(kept);
    if (status == APR_OK) return APR_OK;
    if (status == APR_E_MEMORY || status == APR_E_IO) /* no memory for a second map, or no descriptor left */
        return apr_fail(err, status, "%s: not written: the output could not be read back: %s", path, without_path(why.text, open_path));
    return apr_fail(err, APR_E_UNSUPPORTED,
                    "%s: not written: the output could not be read back; this is a bug in aprkit, please report it (%s)", path,
                    without_path(why.text, open_path));
}
