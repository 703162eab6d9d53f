/* meter.h - one line on stderr that says how far a long piece of work is; on anything but a terminal nothing, or with --progress a line
 * now and then.
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

enum { APR_METER_SAMPLES = 32 };

/* How much was done when; rates are those of the last seconds. */
typedef struct apr_meter_sample {
    double at_s;
    uint64_t done;
} apr_meter_sample;

typedef struct apr_meter {
    bool is_shown, has_line, counts; /* counts: of things, not bytes */
    bool keeps;                      /* what is done is kept when the process is stopped */
    bool is_plain;                   /* lines that stay, where stderr is not a terminal */
    double started_s, printed_s;     /* on a clock that only goes forward */
    int printed_tenth;               /* of the work, when the last plain line was printed */
    apr_meter_sample samples[APR_METER_SAMPLES];
    size_t n_samples; /* taken so far; the last APR_METER_SAMPLES are kept */
} apr_meter;

/* The progress reports to the meter and lives as long. */
apr_progress apr_meter_start(apr_meter *meter, bool quiet);
/* The same for what is counted, not measured in bytes. */
apr_progress apr_meter_start_counting(apr_meter *meter, bool quiet);
void apr_meter_end(apr_meter *meter);

/* --progress: meters that start from here on print a line for each tenth of the work, or every ten seconds, where stderr is not a terminal. */
void apr_meter_set_always(bool always);

/* What a line says. */
typedef struct apr_meter_state {
    const char *what;
    uint64_t done, total; /* bytes, or things; total 0: not known */
    double rate;          /* of them a second; 0: not known yet */
    bool counts;
    bool is_ascii; /* the terminal has no block characters */
    int columns;   /* of the terminal */
} apr_meter_state;

/* "blk.2.ffn_down  ████████░░░░  61 %  8.7 of 14.2 GiB  2.1 GiB/s  0:03": share, amount, rate, time left. The bar is left out on a narrow
 * terminal, and the name is shortened in the middle, so that the line ends before the last column. Returns text. */
char *apr_meter_line(char *text, size_t capacity, const apr_meter_state *state);

#endif
