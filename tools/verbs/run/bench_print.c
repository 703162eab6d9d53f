/* bench_print.c - the results of stages: rates with their spread, bytes of weights per second, and time outside the matrix products. */
#include "tools/verbs/run/bench_print.h"

#include "tools/cli/cli.h"
#include "tools/engine/bench/bench_stages.h"
#include "tools/report/chart.h"
#include "tools/report/html.h"
#include "tools/report/table.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/plan/plan_lines.h"

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

static double run_seconds(const apr_bench_result *r, const apr_speed_stage *stage)
{
    return apr_speed_spread(stage->seconds, r->n_runs).median;
}

static void print_heading(const apr_bench_result *r, FILE *out)
{
    const apr_plan *const plan = apr_session_plan(r->session);
    char count[APR_SMALL_TEXT], size[APR_SMALL_TEXT];

    fprintf(out, "%s%s%s%s%s%s: %s parameters, %s of weights\n", apr_bold(out), apr_printable(r->name), apr_plain(out),
            r->dtype != NULL ? " as " : "", r->dtype != NULL ? r->dtype : "", r->dtype != NULL ? ", random weights" : "",
            apr_magnitude_text(count, r->n_elems), apr_size_text(size, r->n_bytes));
    fprintf(out, "  run on %s%s%s, context %lld, batch %lld, %s keys and values\n", apr_session_backend_name(r->session),
            r->gpu[0] != '\0' ? ": " : "", r->gpu, (long long)plan->n_ctx, (long long)plan->n_batch, apr_dtypes[plan->kv_dtype].name);
}

/* Weights that mostly stay in a cache are not read from the memory whose rate is the ceiling. */
static bool fit_a_cache(const apr_bench_result *r) { return r->cache_bytes > 0 && r->token_reads < 4 * r->cache_bytes; }

/* Share of the ceiling, 1 at the ceiling; 0: none can be stated. */
static double share_of(const apr_bench_result *r, const apr_speed_stage *stage)
{
    if (!stage->one_by_one || !(r->ceiling > 0.0) || fit_a_cache(r)) return 0.0;
    return figures_of(r, stage).bytes_rate / r->ceiling;
}

static void stage_row(apr_table *table, const apr_bench_result *r, const apr_speed_stage *stage)
{
    const stage_figures f = figures_of(r, stage);
    const double seconds = run_seconds(r, stage);

    apr_table_cell(table, "%s", f.name);
    apr_table_cell(table, "%lld", (long long)stage->depth);
    apr_table_cell(table, "%.2f", f.rates.median);
    apr_table_cell(table, "%.2f", f.rates.low);
    apr_table_cell(table, "%.2f", f.rates.high);
    apr_table_cell(table, "%.3f", 1e3 * f.outside / (double)(stage->one_by_one ? stage->n_tokens : 1));
    apr_table_cell(table, "%.0f %%", seconds > 0.0 ? 100.0 * f.outside / seconds : 0.0);
    if (stage->one_by_one) apr_table_cell(table, "%.1f", f.bytes_rate / 1e9);
    else apr_table_cell(table, "-");
    if (share_of(r, stage) > 0.0) apr_table_cell(table, "%.0f %%", 100.0 * share_of(r, stage));
    else apr_table_cell(table, "-");
}

static void print_opening(const apr_bench_result *r, FILE *out)
{
    const apr_session_usage used = apr_session_used(r->session);
    char size[APR_SMALL_TEXT];

    if (used.uploaded == 0 || used.upload_s <= 0.0) return;
    const double rate = (double)used.uploaded / used.upload_s;
    fprintf(out, "  opened in %.2f s: contexts and memory %.2f s, %s of weights to the device %.2f s, %.1f GB/s", r->opened_s,
            used.device_s, apr_size_text(size, used.uploaded), used.upload_s, rate / 1e9);
    if (r->link > 0.0) fprintf(out, " of the link's %.1f", r->link / 1e9);
    putc('\n', out);
}

/* A row for each stage; the caller prints or closes the table. */
static void bench_fill_table(apr_table *table, const apr_bench_result *r)
{
    static const apr_column columns[] = {{"stage", false},
                                         {"depth", true},
                                         {"tokens/s", true},
                                         {"lowest", true, .drops = true},
                                         {"highest", true, .drops = true},
                                         {"ms outside", true, .drops = true},
                                         {"", true, .drops = true},
                                         {"GB/s", true},
                                         {"of ceiling", true}};

    apr_table_start(table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < r->n_stages; i++) stage_row(table, r, &r->stages[i]);
}

static void print_footnotes(const apr_bench_result *r, FILE *out)
{
    char cache[APR_SMALL_TEXT];
    bool is_above = false;

    for (size_t i = 0; i < r->n_stages; i++) is_above |= share_of(r, &r->stages[i]) > 1.05;
    if (r->ceiling > 0.0 && fit_a_cache(r))
        fprintf(out, "  no share of the ceiling: a token's weights are less than 4 times the cache of %s\n",
                apr_size_text(cache, r->cache_bytes));
    if (is_above) fprintf(out, "  faster than the measured ceiling: was other work running while it was measured?\n");
}

apr_status apr_bench_print_table(const apr_bench_result *r, FILE *out, apr_error *err)
{
    apr_table table;

    print_heading(r, out);
    bench_fill_table(&table, r);
    APR_TRY(apr_table_print(&table, out, 2, err));
    fprintf(out, "  medians of %d; ms outside: not in products with weights, per prompt or token\n", r->n_runs);
    if (r->ceiling > 0.0)
        fprintf(out, "  GB/s: weights of a token, %.3f GB; ceiling: memory read rate, %.0f GB/s\n", (double)r->token_reads / 1e9,
                r->ceiling / 1e9);
    print_footnotes(r, out);
    if (apr_session_n_places(r->session) > 1) apr_link_print(r->session, out);
    print_opening(r, out);
    apr_footprint_print(&r->footprint, out);
    return APR_OK;
}

/* Writes a quoted CSV field. */
static void csv_text(const char *text, FILE *out)
{
    putc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"') putc('"', out);
        putc(*text, out);
    }
    putc('"', out);
}

void apr_bench_print_csv(const apr_bench_result *r, FILE *out)
{
    fputs("model,dtype,backend,gpu,stage,depth,tokens,runs,tokens_per_second,lowest,highest,outside_seconds,weights_bytes_per_token,"
          "weights_bytes_per_second,ceiling_bytes_per_second\n",
          out);
    for (size_t i = 0; i < r->n_stages; i++) {
        const apr_speed_stage *const stage = &r->stages[i];
        const stage_figures f = figures_of(r, stage);
        csv_text(r->name, out);
        fprintf(out, ",%s,%s,", r->dtype != NULL ? r->dtype : "", apr_session_backend_name(r->session));
        csv_text(r->gpu, out);
        fprintf(out, ",%s,%lld,%lld,%d,%.6g,%.6g,%.6g,%.6g,%llu,%.6g,%.6g\n", f.name, (long long)stage->depth, (long long)stage->n_tokens,
                r->n_runs, f.rates.median, f.rates.low, f.rates.high, f.outside, (unsigned long long)r->token_reads, f.bytes_rate,
                r->ceiling);
    }
}

static void seconds_json(apr_json_text *json, const char *key, const double *seconds, int n)
{
    apr_json_open(json, key, '[');
    for (int i = 0; i < n; i++) apr_json_real(json, NULL, seconds[i]);
    apr_json_close(json, ']');
}

static void stage_json(const apr_bench_result *r, const apr_speed_stage *stage, apr_json_text *json)
{
    const stage_figures f = figures_of(r, stage);

    apr_json_open(json, NULL, '{');
    apr_json_string(json, "stage", f.name, strlen(f.name));
    apr_json_int(json, "depth", stage->depth);
    apr_json_int(json, "tokens", stage->n_tokens);
    apr_json_bool(json, "one_by_one", stage->one_by_one);
    apr_json_real(json, "tokens_per_second", f.rates.median);
    apr_json_real(json, "lowest", f.rates.low);
    apr_json_real(json, "highest", f.rates.high);
    seconds_json(json, "seconds", stage->seconds, r->n_runs);
    seconds_json(json, "product_seconds", stage->product_seconds, r->n_runs);
    apr_json_real(json, "outside_seconds", f.outside);
    if (stage->one_by_one) apr_json_real(json, "weights_bytes_per_second", f.bytes_rate);
    apr_json_close(json, '}');
}

void apr_bench_answer_json(const apr_bench_result *r, apr_json_text *json)
{
    const char *const backend = apr_session_backend_name(r->session);
    const apr_plan *const plan = apr_session_plan(r->session);
    const apr_session_usage used = apr_session_used(r->session);

    apr_json_string(json, "model", r->name, strlen(r->name));
    apr_json_bool(json, "synthetic", r->dtype != NULL);
    if (r->dtype != NULL) apr_json_string(json, "dtype", r->dtype, strlen(r->dtype));
    apr_json_int(json, "parameters", r->n_elems);
    apr_json_uint(json, "weights_bytes", r->n_bytes);
    apr_json_uint(json, "weights_bytes_per_token", r->token_reads);
    if (r->ceiling > 0.0) apr_json_real(json, "ceiling_bytes_per_second", r->ceiling);
    apr_json_string(json, "backend", backend, strlen(backend));
    if (r->gpu[0] != '\0') apr_json_string(json, "gpu", r->gpu, strlen(r->gpu));
    apr_json_int(json, "context", plan->n_ctx);
    if (apr_plan_is_beyond_model(plan)) apr_json_bool(json, "ctx_beyond_model", true);
    apr_json_int(json, "batch", plan->n_batch);
    apr_json_int(json, "runs", r->n_runs);
    apr_json_open(json, "stages", '[');
    for (size_t i = 0; i < r->n_stages; i++) stage_json(r, &r->stages[i], json);
    apr_json_close(json, ']');
    if (apr_session_n_places(r->session) > 1) apr_link_json(r->session, json);
    apr_json_bool(json, "finite", r->finite);
    if (r->dtype != NULL) apr_json_real(json, "make_seconds", r->made_s);
    apr_json_real(json, "open_seconds", r->opened_s);
    if (used.uploaded > 0) {
        apr_json_real(json, "device_seconds", used.device_s);
        apr_json_real(json, "upload_seconds", used.upload_s);
        apr_json_uint(json, "upload_bytes", used.uploaded);
        if (r->link > 0.0) apr_json_real(json, "link_bytes_per_second", r->link);
    }
    apr_footprint_json(&r->footprint, json);
}

/* --- several sequences at once --- */

/* Ratio of all tokens, read or decoded, to the decoded ones. */
static double with_prompts(const apr_concurrency_options *asked)
{
    return (double)(asked->n_prompt + asked->n_tokens) / (double)asked->n_tokens;
}

/* A row for each number of sequences; the caller prints or closes the table. */
static void concurrency_fill_table(apr_table *table, const apr_concurrency_result *figures, const apr_concurrency_options *asked)
{
    static const apr_column columns[] = {{"sequences", true},
                                         {"tokens/s", true},
                                         {"lowest", true, .drops = true},
                                         {"highest", true, .drops = true},
                                         {"decode only", true},
                                         {"with prompts", true, .drops = true},
                                         {"first token, s", true},
                                         {"95 %, s", true, .drops = true},
                                         {"last, s", true, .drops = true}};

    apr_table_start(table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < asked->sequences.n; i++) {
        const apr_spread rates = apr_concurrency_rates(&figures[i], asked);
        apr_table_cell(table, "%lld", (long long)figures[i].n_sequences);
        apr_table_cell(table, "%.2f", rates.median);
        apr_table_cell(table, "%.2f", rates.low);
        apr_table_cell(table, "%.2f", rates.high);
        if (apr_concurrency_decode_rate(&figures[i], asked) > 0.0)
            apr_table_cell(table, "%.2f", apr_concurrency_decode_rate(&figures[i], asked));
        else apr_table_cell(table, "-");
        apr_table_cell(table, "%.2f", rates.median * with_prompts(asked));
        apr_table_cell(table, "%.3f", apr_speed_spread(figures[i].first, asked->n_runs).median);
        apr_table_cell(table, "%.3f", apr_speed_spread(figures[i].late_first, asked->n_runs).median);
        apr_table_cell(table, "%.3f", apr_speed_spread(figures[i].longest_first, asked->n_runs).median);
    }
}

enum { CAPTION = 256 };

static char *concurrency_caption(const apr_concurrency_options *asked, char text[CAPTION])
{
    snprintf(text, CAPTION,
             "sequences at once, each with a prompt of %lld tokens and %lld decoded ones; tokens/s: decoded by all, over the whole time; "
             "decode only: while all decode; medians of %d",
             (long long)asked->n_prompt, (long long)asked->n_tokens, asked->n_runs);
    return text;
}

apr_status apr_concurrency_print_table(const apr_concurrency_result *figures, const apr_concurrency_options *asked, FILE *out,
                                       apr_error *err)
{
    char caption[CAPTION];
    apr_table table;

    concurrency_fill_table(&table, figures, asked);
    APR_TRY(apr_table_print(&table, out, 2, err));
    fprintf(out, "  %s\n", concurrency_caption(asked, caption));
    return APR_OK;
}

void apr_concurrency_answer_json(const apr_concurrency_result *figures, const apr_concurrency_options *asked, apr_json_text *json)
{
    apr_json_open(json, "by_sequences", '[');
    for (size_t i = 0; i < asked->sequences.n; i++) {
        const apr_spread rates = apr_concurrency_rates(&figures[i], asked);
        apr_json_open(json, NULL, '{');
        apr_json_int(json, "sequences", figures[i].n_sequences);
        apr_json_int(json, "prompt", asked->n_prompt);
        apr_json_int(json, "tokens", asked->n_tokens);
        apr_json_real(json, "tokens_per_second", rates.median);
        apr_json_real(json, "lowest", rates.low);
        apr_json_real(json, "highest", rates.high);
        apr_json_real(json, "decoding_alone_per_second", apr_concurrency_decode_rate(&figures[i], asked));
        apr_json_real(json, "with_prompts_per_second", rates.median * with_prompts(asked));
        apr_json_real(json, "mean_first_token_seconds", apr_speed_spread(figures[i].first, asked->n_runs).median);
        apr_json_real(json, "p95_first_token_seconds", apr_speed_spread(figures[i].late_first, asked->n_runs).median);
        apr_json_real(json, "longest_first_token_seconds", apr_speed_spread(figures[i].longest_first, asked->n_runs).median);
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
}

void apr_concurrency_print_csv(const apr_concurrency_result *figures, const apr_concurrency_options *asked, FILE *out)
{
    fputs("sequences,prompt,tokens,runs,tokens_per_second,lowest,highest,decoding_alone_per_second,with_prompts_per_second,mean_first_"
          "token_seconds,p95_first_token_"
          "seconds,longest_first_"
          "token_seconds\n",
          out);
    for (size_t i = 0; i < asked->sequences.n; i++) {
        const apr_spread rates = apr_concurrency_rates(&figures[i], asked);
        fprintf(out, "%lld,%lld,%lld,%d,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g\n", (long long)figures[i].n_sequences,
                (long long)asked->n_prompt, (long long)asked->n_tokens, asked->n_runs, rates.median, rates.low, rates.high,
                apr_concurrency_decode_rate(&figures[i], asked), rates.median * with_prompts(asked),
                apr_speed_spread(figures[i].first, asked->n_runs).median, apr_speed_spread(figures[i].late_first, asked->n_runs).median,
                apr_speed_spread(figures[i].longest_first, asked->n_runs).median);
    }
}

/* --- the page: throughput and time to the first token by number of sequences, rates by depth, and the tables --- */

/* What the page shows. Filling its tables may run out of memory. */
typedef struct bench_page {
    const apr_bench_shown *shown;
    apr_table stages, many;
} bench_page;

static void write_head(FILE *out, const apr_bench_result *r)
{
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
}

/* --- by number of sequences --- */

typedef struct many_points {
    int64_t at[APR_BENCH_MOST_LENGTHS];
    double rate[APR_BENCH_MOST_LENGTHS], low[APR_BENCH_MOST_LENGTHS], high[APR_BENCH_MOST_LENGTHS];
    double first[APR_BENCH_MOST_LENGTHS], late[APR_BENCH_MOST_LENGTHS];
    size_t n;
} many_points;

/* Index at which `one` is inserted into the sorted at[n]. */
static size_t insertion_index(const int64_t *at, size_t n, int64_t one)
{
    size_t i = 0;
    while (i < n && at[i] <= one) i++;
    return i;
}

static void insert(double *values, size_t n, size_t at, double value)
{
    memmove(values + at + 1, values + at, (n - at) * sizeof *values);
    values[at] = value;
}

static void insert_at(int64_t *positions, size_t n, size_t at, int64_t position)
{
    memmove(positions + at + 1, positions + at, (n - at) * sizeof *positions);
    positions[at] = position;
}

static void gather_many(many_points *p, const apr_bench_shown *s)
{
    p->n = 0;
    for (size_t i = 0; i < s->asked->sequences.n; i++) {
        const apr_concurrency_result *const f = &s->many[i];
        const apr_spread rates = apr_concurrency_rates(f, s->asked);
        const size_t to = insertion_index(p->at, p->n, f->n_sequences);

        insert_at(p->at, p->n, to, f->n_sequences);
        insert(p->rate, p->n, to, rates.median);
        insert(p->low, p->n, to, rates.low);
        insert(p->high, p->n, to, rates.high);
        insert(p->first, p->n, to, apr_speed_spread(f->first, s->asked->n_runs).median);
        insert(p->late, p->n, to, apr_speed_spread(f->late_first, s->asked->n_runs).median);
        p->n++;
    }
}

static void write_throughput(FILE *out, const many_points *p)
{
    const apr_curve curve = {.name = "sequences at once", .values = p->rate, .low = p->low, .high = p->high};

    fputs("<h2>Throughput</h2>\n<p class=\"soft\">Decoded tokens per second, all sequences together; the bar spans the slowest to the "
          "fastest run.</p>\n<div class=\"card\">\n",
          out);
    apr_chart_curves(out, &(apr_curves){.label = "tokens per second by number of sequences",
                                        .unit = "tokens/s",
                                        .across = "sequences at once",
                                        .at = p->at,
                                        .n_points = p->n,
                                        .by_ratio = true,
                                        .curves = &curve,
                                        .n_curves = 1});
    fputs("</div>\n", out);
}

static void write_first_tokens(FILE *out, const many_points *p)
{
    const apr_curve curves[] = {{.name = "mean", .values = p->first}, {.name = "95 %", .values = p->late}};

    fputs("<h2>Time to the first token</h2>\n<p class=\"soft\">All prompts arrive at the start.</p>\n<div class=\"card\"><div "
          "class=\"legend\"><span><i style=\"background:var(--one)\"></i>mean</span><span><i "
          "style=\"background:var(--two)\"></i>95th percentile</span></div>\n",
          out);
    apr_chart_curves(out, &(apr_curves){.label = "seconds to the first token by number of sequences",
                                        .unit = "seconds",
                                        .across = "sequences at once",
                                        .at = p->at,
                                        .n_points = p->n,
                                        .by_ratio = true,
                                        .curves = curves,
                                        .n_curves = 2});
    fputs("</div>\n", out);
}

static void write_many(FILE *out, const bench_page *page)
{
    const apr_concurrency_options *const asked = page->shown->asked;
    char caption[CAPTION];
    many_points points;

    if (asked->sequences.n == 0) return;
    gather_many(&points, page->shown);
    write_throughput(out, &points);
    write_first_tokens(out, &points);
    fputs("<div class=\"card\">\n", out);
    apr_html_table(out, &page->many);
    fprintf(out, "</div>\n<p class=\"soft small\">%s</p>\n", concurrency_caption(asked, caption));
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

/* The curve of the stages that differ from the i-th only in depth. */
static void write_depths(FILE *out, const apr_bench_result *r, size_t i)
{
    double rate[APR_BENCH_MOST_STAGES], low[APR_BENCH_MOST_STAGES], high[APR_BENCH_MOST_STAGES];
    int64_t depths[APR_BENCH_MOST_STAGES];
    const apr_curve curve = {.name = "depth", .values = rate, .low = low, .high = high};
    char name[32];
    size_t n = 0;

    for (size_t k = i; k < r->n_stages && n < APR_BENCH_MOST_STAGES; k++) {
        if (!same_kind(&r->stages[k], &r->stages[i])) continue;
        const apr_spread rates = apr_speed_rates(r->stages[k].n_tokens, r->stages[k].seconds, r->n_runs);
        const size_t to = insertion_index(depths, n, r->stages[k].depth);
        insert_at(depths, n, to, r->stages[k].depth);
        insert(rate, n, to, rates.median);
        insert(low, n, to, rates.low);
        insert(high, n, to, rates.high);
        n++;
    }
    if (n < 2) return;
    fprintf(out, "<div class=\"card\"><b>%s</b> <span class=\"soft small\">&ensp;%s</span>\n", apr_bench_stage_name(&r->stages[i], name),
            r->stages[i].one_by_one ? "tokens decoded one at a time" : "a prompt of this many tokens");
    apr_chart_curves(out, &(apr_curves){.label = "tokens per second by depth",
                                        .unit = "tokens/s",
                                        .across = "tokens already in the context",
                                        .at = depths,
                                        .n_points = n,
                                        .curves = &curve,
                                        .n_curves = 1});
    fputs("</div>\n", out);
}

static void write_stages(FILE *out, const bench_page *page)
{
    const apr_bench_result *const r = page->shown->result;

    fputs("<h2>One sequence, by tokens already in the context</h2>\n", out);
    for (size_t i = 0; i < r->n_stages; i++)
        if (is_first_of_kind(r, i)) write_depths(out, r, i);
    fputs("<div class=\"card\">\n", out);
    apr_html_table(out, &page->stages);
    fprintf(out,
            "</div>\n<p class=\"soft small\">tokens/s: medians of %d runs; ms outside: time outside the matrix products with weights, per "
            "prompt "
            "or decoded token; GB/s: rate at which the weights that a token needs are read, %.3f GB",
            r->n_runs, (double)r->token_reads / 1e9);
    if (r->ceiling > 0.0) fprintf(out, "; ceiling: the measured read rate of the memory, %.0f GB/s", r->ceiling / 1e9);
    fputs("</p>\n", out);
}

static void write_page(FILE *out, const void *of)
{
    const bench_page *const page = of;

    write_head(out, page->shown->result);
    write_many(out, page);
    write_stages(out, page);
    fprintf(out, "<footer>aprkit %s, aprrun bench. Random tokens; the first run of each is not measured.</footer>\n</main></body></html>\n",
            APR_VERSION);
}

apr_status apr_bench_html(const apr_bench_shown *shown, apr_out *page, apr_error *err)
{
    bench_page p = {.shown = shown};

    bench_fill_table(&p.stages, shown->result);
    concurrency_fill_table(&p.many, shown->many, shown->asked);
    const apr_status status = p.stages.failed || p.many.failed ? apr_no_memory(err, "the page") : apr_html_write(write_page, &p, page, err);
    apr_table_close(&p.stages);
    apr_table_close(&p.many);
    return status;
}
