/* text_input.c - reads texts to their end. Streams without a known size are read into a growing buffer. */
#include "tools/engine/text_input.h"
#include "formats/base/grow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct growing {
    char *bytes;
    size_t n_bytes, capacity;
} growing;

enum { READ_BYTES = 65536 };

static apr_status read_all(int fd, const char *name, growing *g, apr_error *err)
{
    for (;;) {
        char *const bytes = apr_grow(g->bytes, &g->capacity, g->n_bytes + READ_BYTES, 1); /* one of them for the NUL */
        if (bytes == NULL) return apr_no_memory(err, "a text");
        g->bytes = bytes;
        const ssize_t n = read(fd, g->bytes + g->n_bytes, g->capacity - g->n_bytes - 1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return apr_fail(err, APR_E_IO, "%s: %s", name, strerror(errno));
        if (n == 0) break;
        g->n_bytes += (size_t)n;
        if (g->n_bytes > APR_PROMPT_MAX_BYTES)
            return apr_fail(err, APR_E_UNSUPPORTED, "%s: the text is larger than %zu MiB", name, APR_PROMPT_MAX_BYTES >> 20);
    }
    g->bytes[g->n_bytes] = '\0';
    return APR_OK;
}

apr_status apr_read_stream(const char *path, char **text, size_t *n_bytes, apr_error *err)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    growing g = {0};

    const int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    const apr_status status = read_all(fd, is_stdin ? "stdin" : path, &g, err);
    if (!is_stdin) close(fd);
    if (status != APR_OK) {
        free(g.bytes);
        return status;
    }
    *text = g.bytes;
    *n_bytes = g.n_bytes;
    return APR_OK;
}

apr_status apr_text_input_open(apr_text_input *text, const char *path, apr_error *err)
{
    struct stat st;

    *text = (apr_text_input){.path = path, .bytes = ""};
    if (strcmp(path, "-") == 0 || (stat(path, &st) == 0 && !S_ISREG(st.st_mode))) {
        APR_TRY(apr_read_stream(path, &text->own, &text->n_bytes, err));
        text->bytes = text->own;
        return APR_OK;
    }
    APR_TRY(apr_map_open(&text->map, path, err));
    if (text->map.data != NULL) text->bytes = (const char *)text->map.data;
    text->n_bytes = text->map.n_bytes;
    if (text->n_bytes > 0) return APR_OK;
    APR_TRY(apr_read_stream(path, &text->own, &text->n_bytes, err)); /* files in /proc have size 0 */
    text->bytes = text->own;
    return APR_OK;
}

void apr_text_input_close(apr_text_input *text)
{
    apr_map_close(&text->map);
    free(text->own);
    *text = (apr_text_input){0};
}
