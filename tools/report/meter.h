/* meter.h - the progress line of a long task, on stderr. If stderr is not a terminal: nothing, or with --progress a line now and then.
 *
 *     apr_meter meter;
 *     const apr_progress progress = apr_meter_start(&meter, call->quiet);
 *     ... apr_convert(..., &progress, ...) ...
 *     apr_meter_end(&meter); // clears the line; call it before anything else is printed
 */
#ifndef APR_TOOLS_METER_H
#define APR_TOOLS_METER_H

#include "formats/base/progress.h"

#include <stdbool.h>
#include <stddef.h>

enum { APR_METER_SAMPLES = 32 };

/* How much was done at a time. Rates are computed over the last few seconds. */
typedef struct apr_meter_sample {
    double at_s;
    uint64_t done;
} apr_meter_sample;

typedef struct apr_meter {
    bool is_shown, has_line, counts; /* counts: progress is in things, not bytes */
    bool keeps;                      /* finished work is kept if the process is stopped */
    bool is_plain;                   /* stderr is not a terminal: separate lines */
    double started_s, printed_s;     /* on a monotonic clock */
    int printed_tenth;               /* tenths of the work done at the last plain line; -1: the stage has none */
    uint64_t last_done, last_total;  /* as reported last: less, or of another total, is another stage with its own rate and tenths */
    apr_meter_sample samples[APR_METER_SAMPLES];
    size_t n_samples; /* taken so far; the last APR_METER_SAMPLES are kept */
} apr_meter;

/* The returned progress reports to the meter; the meter must live as long as it. */
apr_progress apr_meter_start(apr_meter *meter, bool quiet);
/* The same for work that is counted in things, not bytes. */
apr_progress apr_meter_start_counting(apr_meter *meter, bool quiet);
void apr_meter_end(apr_meter *meter);

/* --progress: meters started after this call print a first line at once, then one for each tenth of the work or every ten seconds if stderr is not a terminal. */
void apr_meter_set_always(bool always);

/* The contents of a line. */
typedef struct apr_meter_state {
    const char *what;
    uint64_t done, total; /* bytes, or things; total 0: unknown */
    double rate;          /* bytes or things per second; 0: not known yet */
    bool counts;
    bool is_ascii; /* the terminal has no block characters */
    int columns;   /* of the terminal */
} apr_meter_state;

/* "blk.2.ffn_down  ████████░░░░  61 %  8.7 of 14.2 GiB  2.1 GiB/s  0:03": share, amount, rate, time left. To end before the last
 * column, a narrow terminal gets no bar, and the name is shortened in the middle. Returns text. */
char *apr_meter_line(char *text, size_t capacity, const apr_meter_state *state);

#endif
