/* resume_text.c - a small text kept in NAME.resume, also before the runs have terms to agree on. */
#include "formats/files/resume_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_folder(const char *path) { return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }

apr_status apr_resume_keep_text(const char *target, const char *text, apr_error *err)
{
    char *const path = apr_resume_path_for(target);
    int error = 0;

    if (path == NULL) return apr_no_memory(err, "a path");
    if (mkdir(path, 0777) != 0 && errno != EEXIST) error = errno;
    const int folder = error == 0 ? open_folder(path) : -1;
    if (error == 0 && folder < 0) error = errno;
    if (error == 0) error = apr_resume_write(folder, APR_RESUME_TEXT, text, true);
    if (folder >= 0) close(folder);
    const apr_status status =
        error == 0 ? APR_OK : apr_fail(err, APR_E_IO, "%s/%s: cannot create: %s", path, APR_RESUME_TEXT, strerror(error));
    free(path);
    return status;
}

char *apr_resume_kept_text(const char *target)
{
    char *const path = apr_resume_path_for(target);
    const int folder = path != NULL ? open_folder(path) : -1;
    size_t n;
    char *const text = folder >= 0 ? apr_resume_read(folder, APR_RESUME_TEXT, &n) : NULL;

    if (folder >= 0) close(folder);
    free(path);
    return text;
}
