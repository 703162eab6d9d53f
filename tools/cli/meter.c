/* meter.c - one line on stderr, at most ten times a second, only on a terminal. */
#include "tools/cli/meter.h"

#include "formats/base/clock.h"
#include "tools/cli/guard.h"
#include "tools/cli/text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double seconds_between_lines = 0.1;

/* "  0:37 left" at text[at]; nothing while nobody can know. */
static void say_left(char *text, size_t capacity, size_t at, uint64_t done, uint64_t before, uint64_t total, double elapsed_s)
{
    const double rate = elapsed_s > 0.0 ? (double)(done - before) / elapsed_s : 0.0;
    if (at >= capacity || total < done || total == 0 || !(rate > 0.0)) return;
    const double left_s = (double)(total - done) / rate;
    if (left_s < 360000.0) snprintf(text + at, capacity - at, "  %d:%02d left", (int)left_s / 60, (int)left_s % 60);
}

char *apr_meter_line(char *text, size_t capacity, uint64_t done_bytes, uint64_t before, uint64_t total_bytes, double elapsed_s,
                     const char *what)
{
    const double rate = elapsed_s > 0.0 ? (double)(done_bytes - before) / elapsed_s : 0.0;
    char shown[128], done[APR_SMALL_TEXT] = "";

    apr_short_text(shown, sizeof shown, what, strlen(what), 32);
    if (total_bytes > 0) snprintf(done, sizeof done, " of %.2f", (double)total_bytes / 0x1p30);
    const int n = snprintf(text, capacity, "%s  %.2f%s GiB  %.2f GiB/s", shown, (double)done_bytes / 0x1p30, done, rate / 0x1p30);
    say_left(text, capacity, (size_t)n, done_bytes, before, total_bytes, elapsed_s);
    return text;
}

char *apr_meter_count_line(char *text, size_t capacity, uint64_t n_done, uint64_t before, uint64_t n_all, double elapsed_s,
                           const char *what)
{
    char shown[128];

    apr_short_text(shown, sizeof shown, what, strlen(what), 32);
    const int n = snprintf(text, capacity, "%s  %llu of %llu", shown, (unsigned long long)n_done, (unsigned long long)n_all);
    say_left(text, capacity, (size_t)n, n_done, before, n_all, elapsed_s);
    return text;
}

static void report(void *context, uint64_t done_bytes, uint64_t total_bytes, const char *what)
{
    apr_meter *const meter = context;
    char line[256];

    if (meter->keeps) apr_guard_kept(done_bytes, total_bytes);
    if (!meter->is_shown) return;
    if (what == NULL) meter->before = done_bytes;
    if (what == NULL) return;
    const double now = apr_seconds_now();
    if (now - meter->printed_s < seconds_between_lines) return;
    meter->printed_s = now;
    meter->has_line = true;
    char *(*const line_of)(char *, size_t, uint64_t, uint64_t, uint64_t, double, const char *) =
        meter->counts ? apr_meter_count_line : apr_meter_line;
    /* return, text, erase what is left of the line before */
    fprintf(stderr, "\r%s\033[K", line_of(line, sizeof line, done_bytes, meter->before, total_bytes, now - meter->started_s, what));
}

apr_progress apr_meter_start(apr_meter *meter, bool quiet)
{
    const double now = apr_seconds_now();
    *meter = (apr_meter){.is_shown = !quiet && isatty(STDERR_FILENO), .started_s = now, .printed_s = now};
    return (apr_progress){report, meter};
}

apr_progress apr_meter_start_counting(apr_meter *meter, bool quiet)
{
    const apr_progress progress = apr_meter_start(meter, quiet);
    meter->counts = true;
    return progress;
}

void apr_meter_end(apr_meter *meter)
{
    if (meter->has_line) fputs("\r\033[K", stderr);
    meter->has_line = false;
}
