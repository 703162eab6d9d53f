/* batch_lines.h - reads lines of a file, a pipe or stdin, one at a time, as they come. A line that is too long is skipped and reported. */
#ifndef APR_TOOLS_BATCH_LINES_H
#define APR_TOOLS_BATCH_LINES_H

#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define APR_LINE_MAX_BYTES ((size_t)64 << 20)

typedef struct apr_line_reader {
    int fd;           /* the caller closes it */
    const char *name; /* for sentences */
    char *bytes;      /* [capacity]; [at, n) has been read and not handed out yet */
    size_t at, n, capacity;
    size_t n_seen;   /* of [at, n): bytes already searched for a line end */
    int64_t n_lines; /* handed out so far, also blank ones */
    bool at_end, is_skipping;
    bool is_limited; /* only n_left bytes more are read of the file */
    uint64_t n_left;
} apr_line_reader;

/* Without its line end; valid until the next call. */
typedef struct apr_line {
    const char *bytes;
    size_t n_bytes;
    int64_t number;   /* from 1 */
    bool is_too_long; /* more than APR_LINE_MAX_BYTES; bytes are NULL */
} apr_line;

typedef enum { APR_LINE_HERE, APR_LINE_LATER, APR_LINE_NONE } apr_line_state;

/* Reads the next line; the last one needs no line end. LATER: there is no complete line yet, with may_wait after a short wait;
 * call again. APR_E_IO, APR_E_MEMORY. */
apr_status apr_line_read(apr_line_reader *reader, bool may_wait, apr_line_state *state, apr_line *line, apr_error *err);
void apr_line_reader_close(apr_line_reader *reader); /* frees memory; does not close the file */
/* Starts again at the beginning. False: the file cannot do that. */
bool apr_line_rewind(apr_line_reader *reader);
/* Only white space? */
bool apr_line_is_blank(const apr_line *line);

#endif
