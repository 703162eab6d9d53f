/* bench_print.c - what `aprrun bench` measured: rates with their spread, bytes of weights per second, and time outside the matrix products;
 * as text, JSON, CSV and a page with curves. */
#include "tools/verbs/run/bench_print.h"

#include "tools/cli/cli.h"
#include "tools/engine/bench/bench_stages.h"
#include "tools/report/chart.h"
#include "tools/report/html.h"
#include "tools/report/report.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/plan/plan_lines.h"

#include <stdlib.h>
#include <string.h>

/* The figures of one stage. */
typedef struct stage_figures {
    char name[32];
    apr_spread rates;
    double outside;    /* seconds of a run */
    double bytes_rate; /* bytes of weights per second; 0: a prompt, which reads them once for many tokens */
} stage_figures;

static stage_figures figures_of(const apr_bench_result *r, const apr_speed_stage *stage)
{
    stage_figures f = {.rates = apr_speed_rates(stage->n_tokens, stage->seconds, r->n_runs),
                       .outside = apr_speed_overhead(stage, r->n_runs)};
    apr_bench_stage_name(stage, f.name);
    if (stage->one_by_one) f.bytes_rate = f.rates.median * (double)r->token_reads;
    return f;
}

static void report_heading(apr_report *r, const apr_bench_result *b)
{
    const apr_plan *const plan = apr_session_plan(b->session);
    const char *const backend = apr_session_backend_name(b->session);
    const bool is_made = b->dtype != NULL;
    char count[APR_SMALL_TEXT], size[APR_SMALL_TEXT];

    apr_report_print(r, "%s%s%s%s%s%s: %s parameters, %s of weights\n", apr_bold(r->out), apr_printable(b->name), apr_plain(r->out),
                     is_made ? " as " : "", is_made ? b->dtype : "", is_made ? ", random weights" : "",
                     apr_magnitude_text(count, b->n_elems), apr_size_text(size, b->n_bytes));
    apr_report_print(r, "  run on %s%s%s, context %lld, batch %lld, %s keys and values\n", backend, b->gpu[0] != '\0' ? ": " : "", b->gpu,
                     (long long)plan->n_ctx, (long long)plan->n_batch, apr_dtypes[plan->kv_dtype].name);
    apr_report_member(r, "model", apr_as_text(b->name));
    apr_report_member(r, "synthetic", apr_as_bool(is_made));
    apr_report_member(r, "dtype", apr_as_text(b->dtype));
    apr_report_member(r, "parameters", apr_as_int(b->n_elems));
    apr_report_member(r, "weights_bytes", apr_as_uint(b->n_bytes));
    apr_report_member(r, "weights_bytes_per_token", apr_as_uint(b->token_reads));
    if (b->ceiling > 0.0) apr_report_member(r, "ceiling_bytes_per_second", apr_as_real(b->ceiling));
    apr_report_member(r, "backend", apr_as_text(backend));
    apr_report_member(r, "gpu", apr_as_filled(b->gpu));
    apr_report_member(r, "context", apr_as_int(plan->n_ctx));
    if (apr_plan_is_beyond_model(plan)) apr_report_member(r, "ctx_beyond_model", apr_as_bool(true));
    apr_report_member(r, "batch", apr_as_int(plan->n_batch));
    apr_report_member(r, "runs", apr_as_int(b->n_runs));
}

/* Weights that mostly stay in a cache are not read from the memory whose rate is the ceiling. */
static bool fit_a_cache(const apr_bench_result *b) { return b->cache_bytes > 0 && b->token_reads < 4 * b->cache_bytes; }

/* Share of the ceiling, 1 at the ceiling; 0: none can be stated. */
static double share_of(const apr_bench_result *b, const apr_speed_stage *stage)
{
    if (!stage->one_by_one || !(b->ceiling > 0.0) || fit_a_cache(b)) return 0.0;
    return figures_of(b, stage).bytes_rate / b->ceiling;
}

static void report_stage(apr_report *r, const apr_bench_result *b, const apr_speed_stage *stage)
{
    const stage_figures f = figures_of(b, stage);
    const double seconds = apr_speed_spread(stage->seconds, b->n_runs).median, share = share_of(b, stage);
    const apr_json_value none = apr_as_absent();

    apr_report_row(r);
    apr_report_cell(r, apr_as_text(f.name), "%s", f.name);
    apr_report_cell(r, apr_as_int(stage->depth), "%lld", (long long)stage->depth);
    apr_report_member(r, "tokens", apr_as_int(stage->n_tokens));
    apr_report_member(r, "one_by_one", apr_as_bool(stage->one_by_one));
    apr_report_real(r, f.rates.median);
    apr_report_real(r, f.rates.low);
    apr_report_real(r, f.rates.high);
    apr_report_reals(r, "seconds", stage->seconds, (size_t)b->n_runs);
    apr_report_reals(r, "product_seconds", stage->product_seconds, (size_t)b->n_runs);
    apr_report_cell(r, apr_as_real(f.outside), "%.3f", 1e3 * f.outside / (double)(stage->one_by_one ? stage->n_tokens : 1));
    apr_report_cell(r, none, "%.0f %%", seconds > 0.0 ? 100.0 * f.outside / seconds : 0.0);
    if (stage->one_by_one) apr_report_cell(r, apr_as_real(f.bytes_rate), "%.1f", f.bytes_rate / 1e9);
    else apr_report_cell(r, none, "-");
    if (share > 0.0) apr_report_cell(r, none, "%.0f %%", 100.0 * share);
    else apr_report_cell(r, none, "-");
}

static void report_stages(apr_report *r, const apr_bench_result *b)
{
    static const apr_column columns[] = {{"stage", .key = "stage"},
                                         {"depth", true, .key = "depth"},
                                         {"tokens/s", true, .key = "tokens_per_second", .decimals = 2},
                                         {"lowest", true, .drops = true, .key = "lowest", .decimals = 2},
                                         {"highest", true, .drops = true, .key = "highest", .decimals = 2},
                                         {"ms outside", true, .drops = true, .key = "outside_seconds"},
                                         {"", true, .drops = true},
                                         {"GB/s", true, .key = "weights_bytes_per_second"},
                                         {"of ceiling", true}};

    apr_report_table(r, "", "stages", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < b->n_stages; i++) report_stage(r, b, &b->stages[i]);
    apr_report_close(r);
}

static void print_footnotes(apr_report *r, const apr_bench_result *b)
{
    char cache[APR_SMALL_TEXT];
    bool is_above = false;

    for (size_t i = 0; i < b->n_stages; i++) is_above |= share_of(b, &b->stages[i]) > 1.05;
    apr_report_print(r, "  medians of %d; ms outside: not in products with weights, per prompt or token\n", b->n_runs);
    if (b->ceiling > 0.0)
        apr_report_print(r, "  GB/s: weights of a token, %.3f GB; ceiling: memory read rate, %.0f GB/s\n", (double)b->token_reads / 1e9,
                         b->ceiling / 1e9);
    if (b->ceiling > 0.0 && fit_a_cache(b))
        apr_report_print(r, "  no share of the ceiling: a token's weights are less than 4 times the cache of %s\n",
                         apr_size_text(cache, b->cache_bytes));
    if (is_above) apr_report_print(r, "  faster than the measured ceiling: was other work running while it was measured?\n");
}

static void report_opening(apr_report *r, const apr_bench_result *b)
{
    const apr_session_usage used = apr_session_used(b->session);
    char size[APR_SMALL_TEXT];

    apr_report_member(r, "finite", apr_as_bool(b->finite));
    if (b->dtype != NULL) apr_report_member(r, "make_seconds", apr_as_real(b->made_s));
    apr_report_member(r, "open_seconds", apr_as_real(b->opened_s));
    if (used.uploaded == 0) return;
    apr_report_member(r, "device_seconds", apr_as_real(used.device_s));
    apr_report_member(r, "upload_seconds", apr_as_real(used.upload_s));
    apr_report_member(r, "upload_bytes", apr_as_uint(used.uploaded));
    if (b->link > 0.0) apr_report_member(r, "link_bytes_per_second", apr_as_real(b->link));
    if (used.upload_s <= 0.0) return;
    apr_report_print(r, "  opened in %.2f s: contexts and memory %.2f s, %s of weights to the device %.2f s, %.1f GB/s", b->opened_s,
                     used.device_s, apr_size_text(size, used.uploaded), used.upload_s, (double)used.uploaded / used.upload_s / 1e9);
    if (b->link > 0.0) apr_report_print(r, " of the link's %.1f", b->link / 1e9);
    apr_report_print(r, "\n");
}

/* --- several sequences at once --- */

/* The figures of one number of sequences. */
typedef struct sequences_figures {
    apr_spread rates;            /* decoded tokens per second, over the whole time */
    double decode;               /* the same while all decode; 0: they never did */
    double with_prompts;         /* all tokens per second, read or decoded */
    double first, late, longest; /* seconds to the first token: mean, 95th percentile, largest */
} sequences_figures;

static sequences_figures sequences_figures_of(const apr_concurrency_result *figures, const apr_concurrency_options *asked)
{
    const apr_spread rates = apr_concurrency_rates(figures, asked);

    return (sequences_figures){.rates = rates,
                               .decode = apr_concurrency_decode_rate(figures, asked),
                               .with_prompts = rates.median * ((double)(asked->n_prompt + asked->n_tokens) / (double)asked->n_tokens),
                               .first = apr_speed_spread(figures->first, asked->n_runs).median,
                               .late = apr_speed_spread(figures->late_first, asked->n_runs).median,
                               .longest = apr_speed_spread(figures->longest_first, asked->n_runs).median};
}

static void report_sequences(apr_report *r, const apr_concurrency_result *figures, const apr_concurrency_options *asked)
{
    const sequences_figures f = sequences_figures_of(figures, asked);

    apr_report_row(r);
    apr_report_cell(r, apr_as_int(figures->n_sequences), "%lld", (long long)figures->n_sequences);
    apr_report_member(r, "prompt", apr_as_int(asked->n_prompt));
    apr_report_member(r, "tokens", apr_as_int(asked->n_tokens));
    apr_report_real(r, f.rates.median);
    apr_report_real(r, f.rates.low);
    apr_report_real(r, f.rates.high);
    apr_report_cell(r, apr_as_real(f.decode), f.decode > 0.0 ? "%.2f" : "-", f.decode);
    apr_report_real(r, f.with_prompts);
    apr_report_real(r, f.first);
    apr_report_real(r, f.late);
    apr_report_real(r, f.longest);
}

static void report_all_sequences(apr_report *r, const apr_bench_shown *s)
{
    static const apr_column columns[] = {{"sequences", true, .key = "sequences"},
                                         {"tokens/s", true, .key = "tokens_per_second", .decimals = 2},
                                         {"lowest", true, .drops = true, .key = "lowest", .decimals = 2},
                                         {"highest", true, .drops = true, .key = "highest", .decimals = 2},
                                         {"decode only", true, .key = "decoding_alone_per_second"},
                                         {"with prompts", true, .drops = true, .key = "with_prompts_per_second", .decimals = 2},
                                         {"first token, s", true, .key = "mean_first_token_seconds", .decimals = 3},
                                         {"95 %, s", true, .drops = true, .key = "p95_first_token_seconds", .decimals = 3},
                                         {"last, s", true, .drops = true, .key = "longest_first_token_seconds", .decimals = 3}};

    apr_report_table(r, "", "by_sequences", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < s->asked->sequences.n; i++) report_sequences(r, &s->many[i], s->asked);
    apr_report_close(r);
}

enum { CAPTION = 256 };

static char *sequences_caption(const apr_concurrency_options *asked, char text[CAPTION])
{
    snprintf(text, CAPTION,
             "sequences at once, each with a prompt of %lld tokens and %lld decoded ones; tokens/s: decoded by all, over the whole time; "
             "decode only: while all decode; medians of %d",
             (long long)asked->n_prompt, (long long)asked->n_tokens, asked->n_runs);
    return text;
}

apr_status apr_bench_report(const apr_bench_shown *s, apr_answer *answer, apr_error *err)
{
    const apr_bench_result *const b = s->result;
    char caption[CAPTION];
    apr_report r;

    apr_report_start(&r, answer, err);
    report_heading(&r, b);
    report_stages(&r, b);
    print_footnotes(&r, b);
    if (apr_session_n_places(b->session) > 1) apr_link_report(&r, b->session);
    report_opening(&r, b);
    apr_footprint_report(&r, &b->footprint);
    if (s->asked->sequences.n == 0) return apr_report_end(&r);
    report_all_sequences(&r, s);
    apr_report_print(&r, "  %s\n", sequences_caption(s->asked, caption));
    return apr_report_end(&r);
}

/* --- CSV --- */

/* Writes a quoted field. */
static void csv_text(const char *text, FILE *out)
{
    putc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"') putc('"', out);
        putc(*text, out);
    }
    putc('"', out);
}

static void csv_stage(const apr_bench_result *b, const apr_speed_stage *stage, FILE *out)
{
    const stage_figures f = figures_of(b, stage);

    csv_text(b->name, out);
    fprintf(out, ",%s,%s,", b->dtype != NULL ? b->dtype : "", apr_session_backend_name(b->session));
    csv_text(b->gpu, out);
    fprintf(out, ",%s,%lld,%lld,%d,%.6g,%.6g,%.6g,%.6g,%llu,%.6g,%.6g\n", f.name, (long long)stage->depth, (long long)stage->n_tokens,
            b->n_runs, f.rates.median, f.rates.low, f.rates.high, f.outside, (unsigned long long)b->token_reads, f.bytes_rate, b->ceiling);
}

void apr_bench_csv(const apr_bench_shown *s, FILE *out)
{
    const apr_concurrency_options *const asked = s->asked;

    fputs("model,dtype,backend,gpu,stage,depth,tokens,runs,tokens_per_second,lowest,highest,outside_seconds,weights_bytes_per_token,"
          "weights_bytes_per_second,ceiling_bytes_per_second\n",
          out);
    for (size_t i = 0; i < s->result->n_stages; i++) csv_stage(s->result, &s->result->stages[i], out);
    if (asked->sequences.n == 0) return;
    fputs("sequences,prompt,tokens,runs,tokens_per_second,lowest,highest,decoding_alone_per_second,with_prompts_per_second,"
          "mean_first_token_seconds,p95_first_token_seconds,longest_first_token_seconds\n",
          out);
    for (size_t i = 0; i < asked->sequences.n; i++) {
        const sequences_figures f = sequences_figures_of(&s->many[i], asked);
        fprintf(out, "%lld,%lld,%lld,%d,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g\n", (long long)s->many[i].n_sequences,
                (long long)asked->n_prompt, (long long)asked->n_tokens, asked->n_runs, f.rates.median, f.rates.low, f.rates.high, f.decode,
                f.with_prompts, f.first, f.late, f.longest);
    }
}

/* --- the page: throughput and time to the first token by number of sequences, rates by depth, and the tables --- */

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

static void write_sequences(apr_report *to, const apr_bench_shown *s)
{
    char caption[CAPTION];
    points p = {.n = 0};
    arrays a;

    if (s->asked->sequences.n == 0) return;
    for (size_t i = 0; i < s->asked->sequences.n; i++) {
        const sequences_figures f = sequences_figures_of(&s->many[i], s->asked);
        p.all[p.n++] = (struct point){s->many[i].n_sequences, f.rates.median, f.rates.low, f.rates.high, f.first, f.late};
    }
    sort_into(&p, &a);
    write_throughput(to->out, &a, p.n);
    write_first_tokens(to->out, &a, p.n);
    fputs("<div class=\"card\">\n", to->out);
    report_all_sequences(to, s);
    fprintf(to->out, "</div>\n<p class=\"soft small\">%s</p>\n", sequences_caption(s->asked, caption));
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
    report_stages(to, b);
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
    write_sequences(to, page->shown);
    write_stages(to, page->shown->result);
    fprintf(to->out,
            "<footer>aprkit %s, aprrun bench. Random tokens; the first run of each is not measured.</footer>\n</main></body></html>\n",
            APR_VERSION);
}

apr_status apr_bench_html(const apr_bench_shown *shown, const apr_page_about *about, apr_out *page, apr_error *err)
{
    return apr_report_page(write_page, &(bench_page){shown, about}, page, err);
}
