/* batch_output.h - the answers of a batch, a line each, in a file that grows under its own name: each is there when it is done.
 *
 *     {"line":1,"id":"a1","text":"...","finish":"stop","prompt_tokens":3,"tokens":20,"key":"5f0c2a91-3fa1b2c4"}
 *     {"line":2,"error":"'prompt' must be a string","status":"usage","key":"5f0c2a91-77a01c55"}
 *     {"id":"aprkit-3-5f0c2a91-0b7d1e22","custom_id":"c","response":{"status_code":200,...},"error":null}
 *
 * The third line has the shape of OpenAI's batches; its number and key are in its id.
 *
 * The key says what is answered: CRC-32 of the terms (model and settings) and of the request's line. So a later run knows which lines are
 * done, and that they are of the same input. A last line without its end is what a kill or a full disk left, and is cut off. */
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
    uint64_t n_bytes; /* of whole lines, in a file */
    uint32_t terms;
    apr_done_line *done; /* [n_done] by earlier runs, by number */
    size_t n_done, capacity;
    int64_t n_refused; /* of them, those whose answer is what was wrong with the line */
} apr_batch_output;

/* path "-": stdout. Else a new file, or a pipe that is there; with `resume` a file of an earlier run, whose answers are read. input_fd:
 * what the output must not be. APR_E_IO: it exists, cannot be made, is written by another run, or belongs to other terms; APR_E_DAMAGED: it
 * is no output of a batch. Zeroed, or opened, it may be closed. */
apr_status apr_batch_output_open(apr_batch_output *out, const char *path, bool resume, int input_fd, uint32_t terms, apr_error *err);
void apr_batch_output_close(apr_batch_output *out);

/* What an earlier run answered to that line; NULL: nothing. */
const apr_done_line *apr_batch_output_find(const apr_batch_output *out, int64_t number);
/* A whole line, with its '\n'. APR_E_IO: what could not be written is taken back; or another program removed, replaced or changed the
 * file since the last line. */
apr_status apr_batch_output_write(apr_batch_output *out, const char *line, size_t n_bytes, apr_error *err);
/* All of it on the disk, under the name that it was opened with. */
apr_status apr_batch_output_finish(apr_batch_output *out, apr_error *err);

enum { APR_BATCH_KEY_BYTES = 18 };
/* "aprkit-3-5f0c2a91-3fa1b2c4": the id of an answer in OpenAI's shape. */
#define APR_BATCH_ID_HEAD "aprkit-"
enum { APR_BATCH_ID_BYTES = APR_BATCH_KEY_BYTES + 32 };
char *apr_batch_id(char text[APR_BATCH_ID_BYTES], int64_t line, uint32_t terms, uint32_t crc);

/* "5f0c2a91-3fa1b2c4" */
char *apr_batch_key(char text[APR_BATCH_KEY_BYTES], uint32_t terms, uint32_t crc);

#endif
