/* batch_lines.h - lines of a file, a pipe or stdin, one at a time, as they come; one that is too long is passed over, and said. */
#ifndef APR_TOOLS_BATCH_LINES_H
#define APR_TOOLS_BATCH_LINES_H

#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define APR_LINE_MAX_BYTES ((size_t)64 << 20)

typedef struct apr_line_reader {
    int fd;           /* the caller's */
    const char *name; /* for sentences */
    char *bytes;      /* [n] read and not handed out from `at` on */
    size_t at, n, capacity;
    size_t n_seen;   /* of them, looked through for a line end */
    int64_t n_lines; /* handed out, blank ones too */
    bool at_end, is_passing_over;
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

/* The next line; the last needs no line end. LATER: there is none yet, though may_wait waits for a
 * while, or a line is so long that a part of it was read; call again. APR_E_IO, APR_E_MEMORY. */
apr_status apr_line_read(apr_line_reader *reader, bool may_wait, apr_line_state *state, apr_line *line, apr_error *err);
void apr_line_reader_close(apr_line_reader *reader); /* of memory; not the file */
/* From the beginning again. False where that cannot be done. */
bool apr_line_rewind(apr_line_reader *reader);
/* Nothing but spaces? */
bool apr_line_is_blank(const apr_line *line);

#endif
