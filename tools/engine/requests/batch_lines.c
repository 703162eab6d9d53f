/* batch_lines.c - reads lines into a buffer that grows to the longest line. */
#include "tools/engine/requests/batch_lines.h"
#include "formats/base/grow.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A signal may have reached another thread. So the caller gets control back after WAIT_MS without a byte, or MOST_READS without a line. */
enum { READ_BYTES = 65536, WAIT_MS = 200, MOST_READS = 16 };

/* Makes capacity for READ_BYTES more after the bytes that are not handed out yet. */
static bool reserve(apr_line_reader *r)
{
    if (r->at > 0) memmove(r->bytes, r->bytes + r->at, r->n - r->at);
    r->n -= r->at;
    r->at = 0;
    char *const bytes = apr_grow(r->bytes, &r->capacity, r->n + READ_BYTES, 1);
    if (bytes != NULL) r->bytes = bytes;
    return bytes != NULL;
}

/* Reads more bytes. *is_there: some came, or the end of the file. */
static apr_status read_more(apr_line_reader *r, bool may_wait, bool *is_there, apr_error *err)
{
    struct pollfd on = {.fd = r->fd, .events = POLLIN};

    *is_there = false;
    if (!reserve(r)) return apr_no_memory(err, "a line");
    if (poll(&on, 1, may_wait ? WAIT_MS : 0) <= 0) return APR_OK; /* nothing yet, or a signal */
    const size_t most = r->is_limited && r->n_left < READ_BYTES ? (size_t)r->n_left : (size_t)READ_BYTES;
    const ssize_t n = read(r->fd, r->bytes + r->n, most);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return APR_OK;
    if (n < 0) return apr_fail(err, APR_E_IO, "%s: %s", r->name, strerror(errno));
    r->at_end = n == 0;
    r->n += (size_t)n;
    if (r->is_limited) r->n_left -= (uint64_t)n;
    *is_there = true;
    return APR_OK;
}

static void hand_out(apr_line_reader *r, size_t n_bytes, size_t n_end, apr_line *line)
{
    const char *const bytes = r->bytes + r->at;

    r->at += n_bytes + n_end;
    if (n_bytes > 0 && bytes[n_bytes - 1] == '\r') n_bytes--;
    *line = (apr_line){.bytes = bytes, .n_bytes = n_bytes, .number = ++r->n_lines, .is_too_long = r->is_skipping};
    if (r->is_skipping) line->bytes = NULL, line->n_bytes = 0;
    r->is_skipping = false;
}

apr_status apr_line_read(apr_line_reader *r, bool may_wait, apr_line_state *state, apr_line *line, apr_error *err)
{
    size_t seen = r->n_seen;
    bool is_there;

    r->n_seen = 0;
    for (int n_reads = 0;; n_reads++) {
        const char *const from = r->n > r->at ? r->bytes + r->at : NULL;
        const char *const end = from != NULL && r->n - r->at > seen ? memchr(from + seen, '\n', r->n - r->at - seen) : NULL;
        if (end != NULL) {
            hand_out(r, (size_t)(end - from), 1, line);
            *state = APR_LINE_HERE;
            return APR_OK;
        }
        seen = r->n - r->at;
        if (seen > APR_LINE_MAX_BYTES) {
            r->is_skipping = true;
            r->at = r->n;
            seen = 0;
        }
        if (r->at_end) break;
        is_there = false;
        if (n_reads < MOST_READS) APR_TRY(read_more(r, may_wait, &is_there, err));
        if (is_there) continue;
        r->n_seen = seen;
        *state = APR_LINE_LATER;
        return APR_OK;
    }
    *state = seen > 0 || r->is_skipping ? APR_LINE_HERE : APR_LINE_NONE;
    if (*state == APR_LINE_HERE) hand_out(r, seen, 0, line);
    return APR_OK;
}

void apr_line_reader_close(apr_line_reader *r)
{
    free(r->bytes);
    *r = (apr_line_reader){.fd = -1};
}

bool apr_line_rewind(apr_line_reader *r)
{
    if (lseek(r->fd, 0, SEEK_SET) != 0) return false;
    r->at = r->n = r->n_seen = 0;
    r->n_lines = 0;
    r->at_end = r->is_skipping = false;
    return true;
}

bool apr_line_is_blank(const apr_line *line)
{
    for (size_t i = 0; i < line->n_bytes; i++)
        if (line->bytes[i] != ' ' && line->bytes[i] != '\t' && line->bytes[i] != '\r') return false;
    return !line->is_too_long;
}
