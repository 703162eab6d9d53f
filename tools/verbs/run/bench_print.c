/* bench_print.c - the results of stages: rates with their spread, bytes of weights per second, and time outside the matrix products. */
#include "tools/verbs/run/bench_print.h"

#include "tools/engine/bench/bench_stages.h"
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

void apr_bench_fill_table(apr_table *table, const apr_bench_result *r)
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
    apr_bench_fill_table(&table, r);
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

void apr_concurrency_fill_table(apr_table *table, const apr_concurrency_result *figures, const apr_concurrency_options *asked)
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

char *apr_concurrency_caption(const apr_concurrency_options *asked, char text[APR_CONCURRENCY_CAPTION])
{
    snprintf(text, APR_CONCURRENCY_CAPTION,
             "sequences at once, each with a prompt of %lld tokens and %lld decoded ones; tokens/s: decoded by all, over the whole time; "
             "decode only: while all decode; medians of %d",
             (long long)asked->n_prompt, (long long)asked->n_tokens, asked->n_runs);
    return text;
}

apr_status apr_concurrency_print_table(const apr_concurrency_result *figures, const apr_concurrency_options *asked, FILE *out,
                                       apr_error *err)
{
    char caption[APR_CONCURRENCY_CAPTION];
    apr_table table;

    apr_concurrency_fill_table(&table, figures, asked);
    APR_TRY(apr_table_print(&table, out, 2, err));
    fprintf(out, "  %s\n", apr_concurrency_caption(asked, caption));
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
