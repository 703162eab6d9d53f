/* batch_output.c - reads the answers of earlier runs, and appends new ones. */
#define _GNU_SOURCE /* flock */
#include "tools/engine/requests/batch_output.h"

#include "formats/base/grow.h"
#include "formats/base/json.h"
#include "tools/engine/requests/batch_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

char *apr_batch_key(char text[APR_BATCH_KEY_BYTES], uint32_t terms, uint32_t crc)
{
    snprintf(text, APR_BATCH_KEY_BYTES, "%08" PRIx32 "-%08" PRIx32, terms, crc);
    return text;
}

char *apr_batch_id(char text[APR_BATCH_ID_BYTES], int64_t line, uint32_t terms, uint32_t crc)
{
    char key[APR_BATCH_KEY_BYTES];
    snprintf(text, APR_BATCH_ID_BYTES, APR_BATCH_ID_HEAD "%" PRId64 "-%s", line, apr_batch_key(key, terms, crc));
    return text;
}

/* --- what earlier runs answered --- */

static apr_status add_done(apr_batch_output *o, int64_t number, uint32_t crc, apr_error *err)
{
    apr_done_line *const done = apr_grow(o->done, &o->capacity, o->n_done + 1, sizeof *done);
    if (done == NULL) return apr_no_memory(err, "the table of answers");
    o->done = done;
    o->done[o->n_done++] = (apr_done_line){number, crc};
    return APR_OK;
}

static bool read_key(const char *key, uint32_t *terms, uint32_t *crc)
{
    char again[APR_BATCH_KEY_BYTES];
    if (key == NULL || sscanf(key, "%8" SCNx32 "-%8" SCNx32, terms, crc) != 2) return false;
    return strcmp(apr_batch_key(again, *terms, *crc), key) == 0;
}

/* In OpenAI's shape the id holds the line's number and the key. */
static bool read_id(const char *id, int64_t *number, uint32_t *terms, uint32_t *crc)
{
    const size_t n_head = strlen(APR_BATCH_ID_HEAD);
    char again[APR_BATCH_ID_BYTES], *end;

    if (id == NULL || strncmp(id, APR_BATCH_ID_HEAD, n_head) != 0) return false;
    *number = strtoll(id + n_head, &end, 10);
    return *end == '-' && read_key(end + 1, terms, crc) && strcmp(apr_batch_id(again, *number, *terms, *crc), id) == 0;
}

static bool read_answer(const cJSON *json, int64_t *number, uint32_t *terms, uint32_t *crc)
{
    if (read_id(apr_json_get_string(json, "id"), number, terms, crc)) return *number > 0;
    return apr_json_get_int(json, "line", number) && *number > 0 && read_key(apr_json_get_string(json, "key"), terms, crc);
}

static apr_status take_line(apr_batch_output *o, const apr_line *line, apr_error *err)
{
    uint32_t terms, crc;
    int64_t number;
    cJSON *json = NULL;

    const apr_status parsed = line->is_too_long ? APR_E_DAMAGED : apr_json_parse(&json, line->bytes, line->n_bytes, o->path, NULL);
    if (parsed == APR_E_MEMORY) return apr_no_memory(err, o->path);
    const bool is_answer = parsed == APR_OK && read_answer(json, &number, &terms, &crc);
    const cJSON *const error = apr_json_get(json, "error");
    o->n_refused += is_answer && error != NULL && !cJSON_IsNull(error);
    cJSON_Delete(json);
    if (!is_answer)
        return apr_fail(err, APR_E_DAMAGED, "%s: line %lld is not an answer of a batch; the file was not changed: give another output",
                        o->path, (long long)line->number);
    if (terms != o->terms)
        return apr_fail(err, APR_E_IO,
                        "%s: line %lld was answered by another model or with other settings: use the same ones, or another output", o->path,
                        (long long)line->number);
    return add_done(o, number, crc, err);
}

static int by_number(const void *a, const void *b)
{
    const apr_done_line *const x = a, *const y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static apr_status read_lines(apr_batch_output *o, apr_line_reader *reader, apr_error *err)
{
    apr_line_state state = APR_LINE_HERE;
    apr_line line;

    for (;;) {
        APR_TRY(apr_line_read(reader, true, &state, &line, err));
        if (state == APR_LINE_LATER) continue;
        if (state == APR_LINE_NONE) return APR_OK;
        APR_TRY(take_line(o, &line, err));
    }
}

/* Finds the end of the last complete line; 0: there is none. */
static apr_status find_end(const apr_batch_output *o, uint64_t size, uint64_t *end, apr_error *err)
{
    char bytes[4096];

    for (*end = size; *end > 0;) {
        const size_t n = *end < sizeof bytes ? (size_t)*end : sizeof bytes;
        if (pread(o->fd, bytes, n, (off_t)(*end - n)) != (ssize_t)n) return apr_fail(err, APR_E_IO, "%s: cannot be read", o->path);
        const char *const at = memrchr(bytes, '\n', n);
        if (at != NULL) {
            *end -= n - (size_t)(at - bytes) - 1;
            return APR_OK;
        }
        *end -= n;
    }
    return APR_OK;
}

/* Is nothing after the last line end, or only the beginning of a line of ours? */
static bool is_begun_line(const apr_batch_output *o, uint64_t size)
{
    static const char *const heads[] = {"{\"line\":", "{\"id\":\"" APR_BATCH_ID_HEAD};
    char tail[32];

    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const size_t n = strlen(heads[i]), left = size - o->n_bytes < n ? (size_t)(size - o->n_bytes) : n;
        if (pread(o->fd, tail, left, (off_t)o->n_bytes) == (ssize_t)left && memcmp(tail, heads[i], left) == 0) return true;
    }
    return false;
}

/* Reads all of the file before it cuts anything off: a file that is not the output of a batch is not changed. */
static apr_status continue_file(apr_batch_output *o, uint64_t size, apr_error *err)
{
    apr_line_reader reader = {.fd = o->fd, .name = o->path};

    APR_TRY(find_end(o, size, &o->n_bytes, err));
    if (!is_begun_line(o, size))
        return apr_fail(err, APR_E_DAMAGED, "%s is not the output of a batch and was not changed: give another output", o->path);
    apr_status status = lseek(o->fd, 0, SEEK_SET) == 0 ? APR_OK : apr_fail(err, APR_E_IO, "%s: %s", o->path, strerror(errno));
    reader.n_left = o->n_bytes;
    reader.is_limited = true;
    if (status == APR_OK) status = read_lines(o, &reader, err);
    apr_line_reader_close(&reader);
    APR_TRY(status);
    if (o->n_done > 0) qsort(o->done, o->n_done, sizeof *o->done, by_number);
    for (size_t i = 1; i < o->n_done; i++)
        if (o->done[i].number == o->done[i - 1].number)
            return apr_fail(err, APR_E_DAMAGED, "%s answers line %lld twice; it was not changed", o->path, (long long)o->done[i].number);
    if (ftruncate(o->fd, (off_t)o->n_bytes) != 0 || lseek(o->fd, (off_t)o->n_bytes, SEEK_SET) < 0)
        return apr_fail(err, APR_E_IO, "%s: %s", o->path, strerror(errno));
    return APR_OK;
}

const apr_done_line *apr_batch_output_find(const apr_batch_output *o, int64_t number)
{
    const apr_done_line wanted = {.number = number};
    return o->n_done > 0 ? bsearch(&wanted, o->done, o->n_done, sizeof *o->done, by_number) : NULL;
}

/* --- opening --- */

static apr_status open_file(apr_batch_output *o, bool resume, apr_error *err)
{
    struct stat now;
    const bool exists = lstat(o->path, &now) == 0, is_pipe = exists && S_ISFIFO(now.st_mode);

    if (exists && !is_pipe && !S_ISREG(now.st_mode)) return apr_fail(err, APR_E_USAGE, "%s is neither a regular file nor a pipe", o->path);
    if (exists && !is_pipe && !resume)
        return apr_fail(err, APR_E_IO, "%s exists and is not overwritten: give --resume to continue it", o->path);
    const int how = is_pipe ? O_WRONLY : resume ? O_RDWR | O_APPEND | O_CREAT : O_RDWR | O_APPEND | O_CREAT | O_EXCL;
    o->fd = open(o->path, how | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0666);
    if (o->fd < 0) return apr_fail(err, APR_E_IO, "%s: %s", o->path, strerror(errno));
    o->is_file = !is_pipe;
    return APR_OK;
}

apr_status apr_batch_output_open(apr_batch_output *o, const char *path, bool resume, int input_fd, uint32_t terms, apr_error *err)
{
    struct stat in, out;

    *o = (apr_batch_output){.fd = -1, .path = path, .terms = terms, .is_stdout = strcmp(path, "-") == 0};
    if (o->is_stdout) {
        o->fd = STDOUT_FILENO;
        o->path = "stdout";
        return APR_OK;
    }
    if (fstat(input_fd, &in) == 0 && stat(path, &out) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
        return apr_fail(err, APR_E_USAGE, "%s is the input", path);
    APR_TRY(open_file(o, resume, err));
    if (!o->is_file) return APR_OK;
    if (flock(o->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return apr_fail(err, APR_E_IO, "%s is being written by another run", path);
    if (fstat(o->fd, &out) != 0) return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    return continue_file(o, (uint64_t)out.st_size, err);
}

void apr_batch_output_close(apr_batch_output *o)
{
    if (o->fd > STDERR_FILENO) close(o->fd);
    free(o->done);
    *o = (apr_batch_output){.fd = -1};
}

/* --- writing --- */

/* Another program may have removed, renamed, replaced or emptied the file since it was opened. */
static apr_status check_file(const apr_batch_output *o, apr_error *err)
{
    struct stat ours, named;

    if (!o->is_file) return APR_OK;
    if (fstat(o->fd, &ours) != 0) return apr_fail(err, APR_E_IO, "%s: %s", o->path, strerror(errno));
    const bool is_there = lstat(o->path, &named) == 0;
    if (!is_there && errno != ENOENT) return apr_fail(err, APR_E_IO, "%s: %s", o->path, strerror(errno));
    if (!is_there || named.st_dev != ours.st_dev || named.st_ino != ours.st_ino)
        return apr_fail(err, APR_E_IO,
                        "%s: another program removed, renamed or replaced the file while it was written; run the batch again", o->path);
    if ((uint64_t)ours.st_size != o->n_bytes)
        return apr_fail(err, APR_E_IO,
                        "%s: another program changed the file while it was written: it has %llu bytes instead of %llu; "
                        "--resume answers what is missing",
                        o->path, (unsigned long long)ours.st_size, (unsigned long long)o->n_bytes);
    return APR_OK;
}

apr_status apr_batch_output_write(apr_batch_output *o, const char *line, size_t n_bytes, apr_error *err)
{
    APR_TRY(check_file(o, err));
    for (size_t at = 0; at < n_bytes;) {
        const ssize_t n = write(o->fd, line + at, n_bytes - at);
        if (n >= 0) {
            at += (size_t)n;
            continue;
        }
        const int why = errno;
        struct pollfd on = {.fd = o->fd, .events = POLLOUT};
        if (why == EINTR || (why == EAGAIN && (poll(&on, 1, -1) >= 0 || errno == EINTR))) continue;
        const bool is_clean = o->is_file && ftruncate(o->fd, (off_t)o->n_bytes) == 0;
        return apr_fail(err, APR_E_IO, "%s: %s%s", o->path, strerror(why),
                        is_clean ? "; earlier answers are kept: give --resume to continue" : "");
    }
    o->n_bytes += n_bytes;
    return APR_OK;
}

apr_status apr_batch_output_finish(apr_batch_output *o, apr_error *err)
{
    if (o->is_file && fsync(o->fd) != 0) return apr_fail(err, APR_E_IO, "%s: %s", o->path, strerror(errno));
    return check_file(o, err);
}
