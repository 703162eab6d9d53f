/* meter.c - prints the progress line, at most ten times a second on a terminal. */
#include "tools/report/meter.h"

#include "formats/base/clock.h"
#include "tools/report/guard.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAR_CELLS = 12, COLUMNS_FOR_A_BAR = 70, MAX_NAME_COLUMNS = 28, MIN_NAME_COLUMNS = 8 };

static const double seconds_between_lines = 0.1, seconds_between_plain_lines = 10.0, seconds_of_a_rate = 3.0;
static bool is_always;

void apr_meter_set_always(bool always) { is_always = always; }

static double share_of(const apr_meter_state *s) { return s->total > 0 && s->done <= s->total ? (double)s->done / (double)s->total : 0.0; }

static char *bar_text(char *text, size_t capacity, const apr_meter_state *s)
{
    const int full = (int)(share_of(s) * BAR_CELLS);
    size_t n = 0;

    text[0] = '\0';
    if (s->total == 0 || s->columns < COLUMNS_FOR_A_BAR) return text;
    for (int i = 0; i < BAR_CELLS; i++)
        n += (size_t)snprintf(text + n, capacity - n, "%s", i < full ? (s->is_ascii ? "#" : "█") : s->is_ascii ? "." : "░");
    snprintf(text + n, capacity - n, "  ");
    return text;
}

/* "8.7 of 14.2 GiB  2.1 GiB/s"; in MiB if the total is less than a GiB. */
static char *amount_text(char *text, size_t capacity, const apr_meter_state *s)
{
    const uint64_t largest = s->total > s->done ? s->total : s->done;
    const double unit = largest < (uint64_t)1 << 30 ? 0x1p20 : 0x1p30;
    const char *const name = largest < (uint64_t)1 << 30 ? "MiB" : "GiB";
    char of[APR_SMALL_TEXT] = "", rate[APR_SMALL_TEXT] = "";

    if (s->counts) {
        if (s->total > 0) snprintf(of, sizeof of, " of %llu", (unsigned long long)s->total);
        snprintf(text, capacity, "%llu%s", (unsigned long long)s->done, of);
        return text;
    }
    if (s->total > 0) snprintf(of, sizeof of, " of %.1f", (double)s->total / unit);
    if (s->rate > 0.0) snprintf(rate, sizeof rate, "  %.1f %s/s", s->rate / unit, name);
    snprintf(text, capacity, "%.1f%s %s%s", (double)s->done / unit, of, name, rate);
    return text;
}

/* Time left, "0:37"; "" while unknown. */
static char *left_text(char text[APR_SMALL_TEXT], const apr_meter_state *s)
{
    text[0] = '\0';
    if (s->total < s->done || s->total == 0 || !(s->rate > 0.0)) return text;
    const double left_s = (double)(s->total - s->done) / s->rate;
    if (left_s < 360000.0) snprintf(text, APR_SMALL_TEXT, "%d:%02d", (int)left_s / 60, (int)left_s % 60);
    return text;
}

char *apr_meter_line(char *text, size_t capacity, const apr_meter_state *s)
{
    char bar[64], share[APR_SMALL_TEXT] = "", amount[128], left[APR_SMALL_TEXT], clean[512], name[512], rest[256];

    if (s->total > 0) snprintf(share, sizeof share, "%.0f %%  ", 100.0 * share_of(s));
    left_text(left, s);
    snprintf(rest, sizeof rest, "%s%s%s%s%s", bar_text(bar, sizeof bar, s), share, amount_text(amount, sizeof amount, s),
             left[0] != '\0' ? "  " : "", left);
    const int free_columns = s->columns - 3 - apr_text_columns(rest); /* two blanks; the last column stays free */
    const int columns = free_columns > MAX_NAME_COLUMNS ? MAX_NAME_COLUMNS : free_columns;
    apr_clean_text(clean, sizeof clean, s->what, strlen(s->what));
    if (columns < MIN_NAME_COLUMNS) snprintf(text, capacity, "%s", rest);
    else snprintf(text, capacity, "%s  %s", apr_middle_text(name, sizeof name, clean, columns), rest);
    return text;
}

/* The rate since the oldest kept sample of the last few seconds. Also stores the new sample. */
static double rate_of(apr_meter *meter, double now, uint64_t done)
{
    const apr_meter_sample *oldest = NULL;
    const size_t n = meter->n_samples < APR_METER_SAMPLES ? meter->n_samples : APR_METER_SAMPLES;

    for (size_t i = 0; i < n; i++) {
        const apr_meter_sample *const sample = &meter->samples[i];
        if ((oldest == NULL || sample->at_s < oldest->at_s) && now - sample->at_s <= seconds_of_a_rate + seconds_between_plain_lines)
            oldest = sample;
    }
    const double rate = oldest != NULL && now > oldest->at_s ? (double)(done - oldest->done) / (now - oldest->at_s) : 0.0;
    meter->samples[meter->n_samples++ % APR_METER_SAMPLES] = (apr_meter_sample){now, done};
    return rate;
}

static bool has_blocks(void)
{
    static int has = -1;
    if (has < 0) {
        const locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
        has = locale != (locale_t)0 && strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
        if (locale != (locale_t)0) freelocale(locale);
    }
    return has != 0;
}

static void report(void *context, uint64_t done, uint64_t total, const char *what)
{
    apr_meter *const meter = context;
    const int tenth = total > 0 && done <= total ? (int)(10.0 * (double)done / (double)total) : 0;
    char line[512];

    if (meter->keeps) apr_guard_kept(done, total);
    if (!meter->is_shown) return;
    if (what == NULL) {
        meter->samples[0].done = done; /* work of an earlier run does not count for the rate */
        meter->last_done = done;
        meter->last_total = total;
        return;
    }
    const double now = apr_seconds_now(), since = now - meter->printed_s;
    if (meter->last_total != 0 && (done < meter->last_done || total != meter->last_total)) {
        meter->samples[0] = (apr_meter_sample){.at_s = now};
        meter->n_samples = 1;
        meter->printed_tenth = -1;
    }
    meter->last_done = done;
    meter->last_total = total;
    if (!meter->is_plain && since < seconds_between_lines) return;
    if (meter->is_plain && since < seconds_between_plain_lines && tenth <= meter->printed_tenth) return;
    meter->printed_s = now;
    meter->printed_tenth = tenth;
    const apr_meter_state state = {.what = what,
                                   .done = done,
                                   .total = total,
                                   .rate = rate_of(meter, now, done),
                                   .counts = meter->counts,
                                   .is_ascii = !has_blocks(),
                                   .columns = meter->is_plain ? COLUMNS_FOR_A_BAR - 1 : apr_terminal_columns(stderr)};
    apr_meter_line(line, sizeof line, &state);
    meter->has_line = !meter->is_plain;
    /* carriage return, text, erase the rest of the previous line */
    if (meter->is_plain) fprintf(stderr, "%s\n", line);
    else fprintf(stderr, "\r%s\033[K", line);
}

apr_progress apr_meter_start(apr_meter *meter, bool quiet)
{
    const double now = apr_seconds_now();
    const bool is_terminal = apr_is_terminal(stderr);

    *meter = (apr_meter){.is_shown = !quiet && (is_terminal || is_always),
                         .is_plain = !is_terminal,
                         .started_s = now,
                         .printed_s = now,
                         .printed_tenth = -1,
                         .n_samples = 1};
    meter->samples[0].at_s = now;
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
