/* placeholder.c - detects placeholders by their first bytes; a weight file never begins like this. */
#include "formats/files/placeholder.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { POINTER_BYTES = 1024 }; /* the largest file that Git LFS treats as a pointer */

/* Three lines: "version https://git-lfs...", "oid sha256:...", "size N". */
static apr_status refuse_pointer(const uint8_t *data, size_t n_bytes, const char *path, apr_error *err)
{
    static const char version[] = "version https://git-lfs.github.com/spec/", size[] = "\nsize ";
    char text[POINTER_BYTES + 1];

    if (n_bytes < sizeof version - 1 || n_bytes > POINTER_BYTES || memcmp(data, version, sizeof version - 1) != 0) return APR_OK;
    memcpy(text, data, n_bytes);
    text[n_bytes] = '\0';
    const char *const at = strstr(text, size);
    const unsigned long long n = at != NULL ? strtoull(at + sizeof size - 1, NULL, 10) : 0;
    return apr_fail(err, APR_E_IO, "%s: is a Git LFS pointer; the file itself (%llu bytes) was not fetched; run 'git lfs pull' there", path,
                    n);
}

static bool begins_with_tag(const char *text, const char *tag)
{
    const size_t n = strlen(tag);
    return strncasecmp(text, tag, n) == 0 && (text[n] == '>' || isspace((unsigned char)text[n]));
}

apr_status apr_refuse_placeholder(const uint8_t *data, size_t n_bytes, const char *path, apr_error *err)
{
    char head[64] = "";
    size_t n_space = 0;

    APR_TRY(refuse_pointer(data, n_bytes, path, err));
    while (n_space < n_bytes && n_space < 64 && isspace(data[n_space])) n_space++;
    const size_t n_left = n_bytes - n_space, n = n_left < sizeof head - 1 ? n_left : sizeof head - 1;
    if (n > 0) memcpy(head, data + n_space, n);
    if (!begins_with_tag(head, "<!DOCTYPE") && !begins_with_tag(head, "<html")) return APR_OK;
    return apr_fail(err, APR_E_IO, "%s: is a web page, saved in place of the file; open it to see why, and fetch the file again", path);
}
