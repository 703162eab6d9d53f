/* bench_html.c - the results of `aprrun bench` as a page: throughput and time to the first token by number of sequences, rates by depth, and
 * the tables. */
#include "tools/verbs/run/bench_print.h"

#include "tools/cli/cli.h"
#include "tools/engine/bench/bench_stages.h"
#include "tools/report/chart.h"
#include "tools/report/html.h"
#include "tools/report/text.h"

#include <stdlib.h>
#include <string.h>

/* What the page shows. */
typedef struct bench_page {
    const apr_bench_shown *shown;
    const apr_page_about *about;
} bench_page;

static void write_head(FILE *out, const bench_page *page)
{
    const apr_bench_result *const r = page->shown->result;
    const apr_plan *const plan = apr_session_plan(r->session);
    char count[APR_SMALL_TEXT], size[APR_SMALL_TEXT];

    apr_html_open(out, APR_BENCH_HTML_MARK, apr_html_base_name(r->name), "speed");
    apr_html_print(out, "<span class=\"pill big note\">Measured</span>\n<h1>%s</h1>\n<p class=\"soft\"><code>%s</code>",
                   apr_html_base_name(r->name), r->name);
    if (r->dtype != NULL) apr_html_print(out, " as %s, random weights", r->dtype);
    apr_html_print(out, ": %s parameters, %s of weights<br>run on %s%s%s, context %lld, batch %lld, %s keys and values</p>\n",
                   apr_magnitude_text(count, r->n_elems), apr_size_text(size, r->n_bytes), apr_session_backend_name(r->session),
                   r->gpu[0] != '\0' ? ": " : "", r->gpu, (long long)plan->n_ctx, (long long)plan->n_batch,
                   apr_dtypes[plan->kv_dtype].name);
    apr_page_about_html(out, page->about);
}

/* --- points of a curve, in order --- */

typedef struct points {
    struct point {
        int64_t at;
        double rate, low, high, first, late;
    } all[APR_BENCH_MOST_STAGES > APR_BENCH_MOST_LENGTHS ? APR_BENCH_MOST_STAGES : APR_BENCH_MOST_LENGTHS];
    size_t n;
} points;

static int by_place(const void *a, const void *b)
{
    const int64_t one = ((const struct point *)a)->at, two = ((const struct point *)b)->at;
    return one < two ? -1 : one > two;
}

/* The same as arrays, which curves take. */
typedef struct arrays {
    int64_t at[APR_BENCH_MOST_STAGES];
    double rate[APR_BENCH_MOST_STAGES], low[APR_BENCH_MOST_STAGES], high[APR_BENCH_MOST_STAGES];
    double first[APR_BENCH_MOST_STAGES], late[APR_BENCH_MOST_STAGES];
} arrays;

static void sort_into(const points *p, arrays *a)
{
    points sorted = *p;

    qsort(sorted.all, sorted.n, sizeof *sorted.all, by_place);
    for (size_t i = 0; i < sorted.n; i++) {
        const struct point *const point = &sorted.all[i];
        a->at[i] = point->at;
        a->rate[i] = point->rate;
        a->low[i] = point->low;
        a->high[i] = point->high;
        a->first[i] = point->first;
        a->late[i] = point->late;
    }
}

/* "2.41 times", "0.87 times" */
static char *times_text(char text[APR_SMALL_TEXT], double now, double before)
{
    snprintf(text, APR_SMALL_TEXT, "%.2f times", before > 0.0 ? now / before : 0.0);
    return text;
}

/* --- by number of sequences --- */

static void write_throughput(FILE *out, const arrays *a, size_t n)
{
    const apr_curve curve = {.name = "sequences at once", .values = a->rate, .low = a->low, .high = a->high};
    char times[APR_SMALL_TEXT], rate[APR_SMALL_TEXT];

    apr_html_section(out, "Throughput");
    fputs("<p class=\"soft\">Decoded tokens per second, all sequences together; the bar spans the slowest to the fastest run.</p>\n<div "
          "class=\"card\">\n",
          out);
    if (n > 1)
        apr_chart_finding(out, "%lld sequences decode %s as many tokens per second as %lld", (long long)a->at[n - 1],
                          times_text(times, a->rate[n - 1], a->rate[0]), (long long)a->at[0]);
    else
        apr_chart_finding(out, "%lld sequences decode %s tokens per second", (long long)a->at[0],
                          apr_number_text(rate, a->rate[0], apr_decimals_of(a->rate[0], 3)));
    apr_chart_curves(out, &(apr_curves){.label = "tokens per second by number of sequences",
                                        .unit = "tokens/s",
                                        .across = "sequences at once",
                                        .at = a->at,
                                        .n_points = n,
                                        .by_ratio = true,
                                        .curves = &curve,
                                        .n_curves = 1});
    fputs("</div>\n", out);
}

static void write_first_tokens(FILE *out, const arrays *a, size_t n)
{
    const apr_curve curves[] = {{.name = "mean", .values = a->first}, {.name = "95 %", .values = a->late}};
    static const apr_legend legend[] = {{"one", "mean", APR_LEGEND_FILLED}, {"two", "95th percentile", APR_LEGEND_FILLED}};
    char text[APR_SMALL_TEXT];

    apr_html_section(out, "Time to the first token");
    fputs("<p class=\"soft\">All prompts arrive at the start.</p>\n<div class=\"card\">", out);
    apr_chart_finding(out, "Of %lld sequences at once, 95 %% get their first token within %s s", (long long)a->at[n - 1],
                      apr_number_text(text, a->late[n - 1], apr_decimals_of(a->late[n - 1], 3)));
    apr_chart_legend(out, legend, 2);
    apr_chart_curves(out, &(apr_curves){.label = "seconds to the first token by number of sequences",
                                        .unit = "seconds",
                                        .across = "sequences at once",
                                        .at = a->at,
                                        .n_points = n,
                                        .by_ratio = true,
                                        .curves = curves,
                                        .n_curves = 2});
    fputs("</div>\n", out);
}

static void write_many(apr_report *to, const apr_bench_shown *s)
{
    char caption[APR_BENCH_CAPTION];
    points p = {.n = 0};
    arrays a;

    if (s->asked->sequences.n == 0) return;
    for (size_t i = 0; i < s->asked->sequences.n; i++) {
        const apr_bench_many f = apr_bench_many_of(&s->many[i], s->asked);
        p.all[p.n++] = (struct point){s->many[i].n_sequences, f.rates.median, f.rates.low, f.rates.high, f.first, f.late};
    }
    sort_into(&p, &a);
    write_throughput(to->out, &a, p.n);
    write_first_tokens(to->out, &a, p.n);
    fputs("<div class=\"card\">\n", to->out);
    apr_bench_report_many(to, s);
    fprintf(to->out, "</div>\n<p class=\"soft small\">%s</p>\n", apr_bench_many_caption(s->asked, caption));
}

/* --- by depth --- */

static bool same_kind(const apr_speed_stage *a, const apr_speed_stage *b)
{
    return a->one_by_one == b->one_by_one && a->n_tokens == b->n_tokens;
}

static bool is_first_of_kind(const apr_bench_result *r, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (same_kind(&r->stages[k], &r->stages[i])) return false;
    return true;
}

/* The curve of the stages that differ from the i-th only in depth. Returns whether there is one. */
static bool write_depths(FILE *out, const apr_bench_result *r, size_t i)
{
    points p = {.n = 0};
    arrays a;
    char name[32], times[APR_SMALL_TEXT], depth[APR_SMALL_TEXT];

    for (size_t k = i; k < r->n_stages && p.n < APR_BENCH_MOST_STAGES; k++) {
        if (!same_kind(&r->stages[k], &r->stages[i])) continue;
        const apr_spread rates = apr_speed_rates(r->stages[k].n_tokens, r->stages[k].seconds, r->n_runs);
        p.all[p.n++] = (struct point){r->stages[k].depth, rates.median, rates.low, rates.high, 0.0, 0.0};
    }
    if (p.n < 2) return false;
    sort_into(&p, &a);
    const apr_curve curve = {.name = "depth", .values = a.rate, .low = a.low, .high = a.high};
    fputs("<div class=\"card\">", out);
    apr_chart_finding(out, "%s, %s: after %s tokens %s as fast as after %lld", apr_bench_stage_name(&r->stages[i], name),
                      r->stages[i].one_by_one ? "tokens decoded one at a time" : "a prompt of this many tokens",
                      apr_count_text(depth, a.at[p.n - 1]), times_text(times, a.rate[p.n - 1], a.rate[0]), (long long)a.at[0]);
    apr_chart_curves(out, &(apr_curves){.label = "tokens per second by depth",
                                        .unit = "tokens/s",
                                        .across = "tokens already in the context",
                                        .at = a.at,
                                        .n_points = p.n,
                                        .curves = &curve,
                                        .n_curves = 1});
    fputs("</div>\n", out);
    return true;
}

/* Without curves: a bar for each stage. */
static void write_rates(FILE *out, const apr_bench_result *r)
{
    apr_bar bars[APR_BENCH_MOST_STAGES];
    char names[APR_BENCH_MOST_STAGES][96], texts[APR_BENCH_MOST_STAGES][48], name[32], number[APR_SMALL_TEXT];
    const size_t n = r->n_stages < APR_BENCH_MOST_STAGES ? r->n_stages : APR_BENCH_MOST_STAGES;
    size_t fastest = 0;

    if (n == 0) return;
    for (size_t i = 0; i < n; i++) {
        const apr_speed_stage *const stage = &r->stages[i];
        const double rate = apr_speed_rates(stage->n_tokens, stage->seconds, r->n_runs).median;
        snprintf(names[i], sizeof names[i], "%s at depth %lld", apr_bench_stage_name(stage, name), (long long)stage->depth);
        snprintf(texts[i], sizeof texts[i], "%s tokens/s", apr_number_text(number, rate, 2));
        bars[i] = (apr_bar){.name = names[i], .filled = rate, .text = texts[i]};
        if (rate > bars[fastest].filled) fastest = i;
    }
    fputs("<div class=\"card\">", out);
    apr_chart_finding(out, "%s: %s", names[fastest], texts[fastest]);
    apr_chart_bars(out, "tokens per second", bars, n);
    fputs("</div>\n", out);
}

static void write_stages(apr_report *to, const apr_bench_result *b)
{
    FILE *const out = to->out;
    bool any = false;

    apr_html_section(out, "One sequence, by tokens already in the context");
    for (size_t i = 0; i < b->n_stages; i++)
        if (is_first_of_kind(b, i)) any |= write_depths(out, b, i);
    if (!any) write_rates(out, b);
    fputs("<div class=\"card\">\n", out);
    apr_bench_report_stages(to, b);
    fprintf(out,
            "</div>\n<p class=\"soft small\">tokens/s: medians of %d runs; ms outside: time outside the matrix products with weights, per "
            "prompt or decoded token; GB/s: rate at which the weights that a token needs are read, %.3f GB",
            b->n_runs, (double)b->token_reads / 1e9);
    if (b->ceiling > 0.0) fprintf(out, "; ceiling: the measured read rate of the memory, %.0f GB/s", b->ceiling / 1e9);
    fputs("</p>\n", out);
}

static void write_page(apr_report *to, const void *of)
{
    const bench_page *const page = of;

    write_head(to->out, page);
    write_many(to, page->shown);
    write_stages(to, page->shown->result);
    fprintf(to->out,
            "<footer>aprkit %s, aprrun bench. Random tokens; the first run of each is not measured.</footer>\n</main></body></html>\n",
            APR_VERSION);
}

apr_status apr_bench_html(const apr_bench_shown *shown, const apr_page_about *about, apr_out *page, apr_error *err)
{
    return apr_report_page(write_page, &(bench_page){shown, about}, page, err);
}
