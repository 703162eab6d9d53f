/* bench_html.c - throughput and time to the first token by number of sequences, rates by depth, and the tables. */
#include "tools/verbs/run/bench_html.h"

#include "tools/cli/cli.h"
#include "tools/report/chart.h"
#include "tools/report/html.h"
#include "tools/report/text.h"

#include <string.h>

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
    fputs("<span class=\"pill big note\">Measured</span>\n<h1>", out);
    apr_html_text(out, apr_html_base_name(r->name));
    fputs("</h1>\n<p class=\"soft\"><code>", out);
    apr_html_text(out, r->name);
    fputs("</code>", out);
    if (r->dtype != NULL) {
        fputs(" as ", out);
        apr_html_text(out, r->dtype);
        fputs(", random weights", out);
    }
    fprintf(out, ": %s parameters, %s of weights<br>run on %s%s", apr_magnitude_text(count, r->n_elems), apr_size_text(size, r->n_bytes),
            apr_session_backend_name(r->session), r->gpu[0] != '\0' ? ": " : "");
    apr_html_text(out, r->gpu);
    fprintf(out, ", context %lld, batch %lld, %s keys and values</p>\n", (long long)plan->n_ctx, (long long)plan->n_batch,
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
    char caption[APR_CONCURRENCY_CAPTION];
    many_points points;

    if (asked->sequences.n == 0) return;
    gather_many(&points, page->shown);
    write_throughput(out, &points);
    write_first_tokens(out, &points);
    fputs("<div class=\"card\">\n", out);
    apr_html_table(out, &page->many);
    fprintf(out, "</div>\n<p class=\"soft small\">%s</p>\n", apr_concurrency_caption(asked, caption));
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

    apr_bench_fill_table(&p.stages, shown->result);
    apr_concurrency_fill_table(&p.many, shown->many, shown->asked);
    const apr_status status = p.stages.failed || p.many.failed ? apr_no_memory(err, "the page") : apr_html_write(write_page, &p, page, err);
    apr_table_close(&p.stages);
    apr_table_close(&p.many);
    return status;
}
