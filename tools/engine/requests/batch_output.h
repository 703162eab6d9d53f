/* batch_output.h - the answers of a batch, one per line, each appended to the output as soon as it is done.
 *
 *     {"line":1,"id":"a1","text":"...","finish":"stop","prompt_tokens":3,"tokens":20,"key":"5f0c2a91-3fa1b2c4"}
 *     {"line":2,"error":"'prompt' must be a string","status":"usage","key":"5f0c2a91-77a01c55"}
 *     {"id":"aprkit-3-5f0c2a91-0b7d1e22","custom_id":"c","response":{"status_code":200,...},"error":null}
 *
 * The third line has the shape of OpenAI's batches; its number and key are in its id.
 *
 * The key identifies what was answered: CRC-32 of the terms (model and settings), and of the request's line. By it a later run knows which
 * lines are done, and that the input is the same. A last line without its end was left by a kill or a full disk, and is cut off. */
#ifndef APR_TOOLS_BATCH_OUTPUT_H
#define APR_TOOLS_BATCH_OUTPUT_H

#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct apr_done_line {
    int64_t number;
    uint32_t crc; /* of the request */
} apr_done_line;

typedef struct apr_batch_output {
    int fd; /* -1: not open */
    const char *path;
    bool is_stdout, is_file;
    uint64_t n_bytes; /* of complete lines; only in a file */
    uint32_t terms;
    apr_done_line *done; /* [n_done] answered by earlier runs, sorted by number */
    size_t n_done, capacity;
    int64_t n_refused; /* of them, those whose answer is an error */
} apr_batch_output;

/* path "-": stdout. Else a new file, or a pipe that exists; with `resume` also a file of an earlier run, whose answers are read. input_fd:
 * the input, which the output must not be. APR_E_IO: the file exists, cannot be made, is written by another run, or has other terms.
 * APR_E_DAMAGED: it is not the output of a batch. Zeroed, or opened (also if that failed), it may be closed. */
apr_status apr_batch_output_open(apr_batch_output *out, const char *path, bool resume, int input_fd, uint32_t terms, apr_error *err);
void apr_batch_output_close(apr_batch_output *out);

/* The answer of an earlier run to that line; NULL: none. */
const apr_done_line *apr_batch_output_find(const apr_batch_output *out, int64_t number);
/* Appends a whole line, with its '\n'. APR_E_IO: the write failed, and its bytes were removed again; or another program removed, replaced
 * or changed the file since the last line. */
apr_status apr_batch_output_write(apr_batch_output *out, const char *line, size_t n_bytes, apr_error *err);
/* Flushes the file to the disk, and checks that it still has the name that it was opened with. */
apr_status apr_batch_output_finish(apr_batch_output *out, apr_error *err);

enum { APR_BATCH_KEY_BYTES = 18 };
/* "aprkit-3-5f0c2a91-3fa1b2c4": the id of an answer in OpenAI's shape. */
#define APR_BATCH_ID_HEAD "aprkit-"
enum { APR_BATCH_ID_BYTES = APR_BATCH_KEY_BYTES + 32 };
char *apr_batch_id(char text[APR_BATCH_ID_BYTES], int64_t line, uint32_t terms, uint32_t crc);

/* "5f0c2a91-3fa1b2c4" */
char *apr_batch_key(char text[APR_BATCH_KEY_BYTES], uint32_t terms, uint32_t crc);

#endif
