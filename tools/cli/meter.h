/* meter.h - one line on stderr that says how far a long piece of work is; nothing where stderr is no terminal.
 *
 *     apr_meter meter;
 *     const apr_progress progress = apr_meter_start(&meter, call->quiet);
 *     ... apr_convert(..., &progress, ...) ...
 *     apr_meter_end(&meter); // clears the line, before anything else is printed
 */
#ifndef APR_TOOLS_METER_H
#define APR_TOOLS_METER_H

#include "formats/base/progress.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct apr_meter {
    bool is_shown, has_line, counts; /* counts: of things, not bytes */
    bool keeps;                      /* what is done is kept when the process is stopped */
    uint64_t before;                 /* done by earlier runs, and so not of this one's rate */
    double started_s, printed_s;     /* on a clock that only goes forward */
} apr_meter;

/* The progress reports to the meter and lives as long. */
apr_progress apr_meter_start(apr_meter *meter, bool quiet);
/* The same for what is counted, not measured in bytes. */
apr_progress apr_meter_start_counting(apr_meter *meter, bool quiet);
void apr_meter_end(apr_meter *meter);

/* The line itself, for tests: "what  12.31 of 65.20 GiB  1.42 GiB/s  0:37 left". `before`: of those done, what earlier runs did.
 * Returns text. */
char *apr_meter_line(char *text, size_t capacity, uint64_t done_bytes, uint64_t before, uint64_t total_bytes, double elapsed_s,
                     const char *what);
/* "what  12 of 65  0:37 left" */
char *apr_meter_count_line(char *text, size_t capacity, uint64_t n_done, uint64_t before, uint64_t n_all, double elapsed_s,
                           const char *what);

#endif
