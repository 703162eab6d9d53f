/* fuzz_batch.c - any bytes as a file of requests: each line is a request within what requests may be, or a sentence; what is before a limit
 * is the same lines. */
#define _GNU_SOURCE /* memfd_create */
#include "tests/fuzz/fuzz_target.h"
#include "tools/engine/requests/batch_lines.h"
#include "tools/engine/requests/batch_request.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void read_request(const apr_line *line)
{
    static const apr_batch_defaults standard = {.max_tokens = 1};
    apr_batch_request r;
    apr_error err = {0};

    const apr_status status = apr_batch_request_read(&r, line->bytes, line->n_bytes, &standard, &err);
    claim_sentence(status, err);
    if (status == APR_OK) {
        claim((r.prompt != NULL) != (r.messages != NULL));
        claim(r.max_tokens >= 1 && r.sampling.temperature >= 0.0f && r.sampling.temperature <= 100.0f);
        claim(r.sampling.top_p >= 0.0f && r.sampling.top_p <= 1.0f && r.n_stops <= APR_BATCH_MOST_STOPS);
        claim(r.sampling.top_k >= 0 && r.sampling.min_p >= 0.0f && r.sampling.min_p <= 1.0f && r.sampling.repeat_last >= -1);
        claim(r.sampling.repeat_penalty >= 0.0f && r.sampling.repeat_penalty <= 100.0f);
        claim(r.sampling.presence_penalty >= -100.0f && r.sampling.presence_penalty <= 100.0f);
        claim(r.sampling.frequency_penalty >= -100.0f && r.sampling.frequency_penalty <= 100.0f);
        for (size_t i = 0; i < r.n_stops; i++) claim(r.stops[i][0] != '\0');
    }
    apr_batch_request_close(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const int fd = memfd_create("requests", MFD_CLOEXEC);
    apr_line_reader reader = {.fd = fd, .name = "fuzz"};
    apr_line_state state = APR_LINE_HERE;
    apr_line line;
    size_t n = 0;

    claim(fd >= 0 && write(fd, data, n_bytes) == (ssize_t)n_bytes && apr_line_rewind(&reader));
    for (int64_t i = 1; state != APR_LINE_NONE; i++) {
        claim(apr_line_read(&reader, true, &state, &line, NULL) == APR_OK);
        if (state != APR_LINE_HERE) continue;
        claim(line.number == i && (line.n_bytes == 0 || memchr(line.bytes, '\n', line.n_bytes) == NULL));
        n += line.n_bytes;
        if (!apr_line_is_blank(&line)) read_request(&line);
    }
    claim(n <= n_bytes);
    apr_line_reader_close(&reader);
    close(fd);
    return 0;
}
