/* verify_html.c - the report of a verification as one HTML page. */
#include "tools/report/verify/verify.h"

#include "tools/report/chart.h"
#include "tools/report/html.h"
#include "tools/report/plot.h"
#include "tools/report/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct bin {
    double mean, high;
    int64_t first, last;
} bin;

enum { WIDE_BINS = 240, NARROW_BINS = 80, TABLE_BINS = 40 };

static size_t make_bins(const apr_divergence *d, size_t most, bin *bins)
{
    const size_t n = d->n_rows < (int64_t)most ? (size_t)d->n_rows : most;

    for (size_t b = 0; b < n; b++) {
        const int64_t first = d->n_rows * (int64_t)b / (int64_t)n, last = d->n_rows * ((int64_t)b + 1) / (int64_t)n;
        bins[b] = (bin){.first = first, .last = last - 1};
        for (int64_t i = first; i < last; i++) {
            const double kl = isfinite(d->kl[i]) ? (double)d->kl[i] : INFINITY;
            bins[b].mean += kl / (double)(last - first);
            bins[b].high = fmax(bins[b].high, kl);
        }
    }
    return n;
}

static void draw_bins(const apr_plot *p, const bin *bins, size_t n)
{
    const double step = (p->right - p->left) / (double)n;

    for (size_t b = 0; b < n; b++) {
        const double top = apr_plot_y(p, bins[b].high), bottom = apr_plot_y(p, bins[b].mean);
        fprintf(p->out, "<rect class=\"fill-soft\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"1\"/>\n",
                p->left + step * (double)b, top, fmax(step - 0.6, 0.6), fmax(bottom - top, 1.0));
    }
    fputs("<polyline class=\"line-one\" points=\"", p->out);
    for (size_t b = 0; b < n; b++) fprintf(p->out, "%.1f,%.1f ", p->left + step * ((double)b + 0.5), apr_plot_y(p, bins[b].mean));
    fputs("\"/>\n", p->out);
}

static void draw_divergence(apr_plot *p, const void *of)
{
    const apr_verify_text_result *const t = of;
    bin bins[WIDE_BINS];
    const size_t n = make_bins(&t->d, p->is_narrow ? NARROW_BINS : WIDE_BINS, bins);
    const double largest = isfinite(t->d.largest) ? fmax(t->d.largest, isnan(t->bound) ? 0.0 : t->bound) : 100.0;
    double smallest = INFINITY;

    for (size_t b = 0; b < n; b++)
        if (bins[b].mean > 0.0) smallest = fmin(smallest, bins[b].mean);
    p->y = apr_axis_decades("KL divergence, nats", smallest, largest, 6);
    p->x = (apr_axis){.title = "token of the text", .high = (double)t->d.n_rows};
    p->x.step = fmax(apr_axis_step(p->x.high, p->is_narrow ? 5 : 10), 1.0);
    apr_plot_axes(p);
    apr_plot_x_marks(p);
    draw_bins(p, bins, n);
    if (!isnan(t->bound)) apr_plot_bound(p, t->bound, "limit of the mean");
}

static void write_values(FILE *out, const apr_divergence *d)
{
    static const apr_column columns[] = {{"tokens"}, {"mean, nats", true}, {"largest, nats", true}};
    bin bins[TABLE_BINS];
    char text[2][APR_SMALL_TEXT];
    apr_table table;

    apr_table_start(&table, columns, 3);
    for (size_t i = 0, n = make_bins(d, TABLE_BINS, bins); i < n; i++) {
        const int decimals = apr_decimals_of(d->largest, 4);
        apr_table_cell(&table, "%s to %s", apr_count_text(text[0], bins[i].first), apr_count_text(text[1], bins[i].last));
        apr_table_cell(&table, "%s", apr_number_text(text[0], bins[i].mean, decimals));
        apr_table_cell(&table, "%s", apr_number_text(text[0], bins[i].high, decimals));
    }
    apr_html_values(out, &table);
}

static void write_divergence(FILE *out, const apr_verify_text_result *t)
{
    static const apr_legend legend[] = {{"one", "mean", APR_LEGEND_FILLED},
                                        {"one-soft", "up to the largest", APR_LEGEND_FILLED},
                                        {"fail", "limit of the mean", APR_LEGEND_LINE}};
    char text[2][APR_SMALL_TEXT];

    if (t->d.largest == 0.0) {
        apr_chart_finding(out, "%s: no difference at any of %s positions", t->name, apr_count_text(text[0], t->d.n_rows));
        return;
    }
    if (isnan(t->d.largest)) {
        apr_chart_finding(out, "%s: logits that are not finite, first after token %s", t->name, apr_count_text(text[0], t->d.largest_at));
        return;
    }
    apr_chart_finding(out, "%s: %s nats on average%s; the largest, %s, is after token %lld", t->name,
                      apr_number_text(text[0], t->d.mean, apr_decimals_of(t->d.mean, 3)),
                      isnan(t->bound)         ? ""
                      : t->d.mean <= t->bound ? ", within the limit"
                                              : ", over the limit",
                      apr_number_text(text[1], t->d.largest, apr_decimals_of(t->d.largest, 3)), (long long)t->d.largest_at);
    apr_chart_legend(out, legend, isnan(t->bound) ? 2 : 3);
    apr_plot_twice(out, "KL divergence by position", 290, 260, draw_divergence, t);
    write_values(out, &t->d);
}

/* ---- the page ---- */

/* What the page shows. */
typedef struct verify_page {
    const apr_verify_shown *shown;
    const apr_page_about *about;
} verify_page;

static void write_head(FILE *out, const verify_page *page)
{
    const apr_verify_shown *const shown = page->shown;
    const apr_verify_graded grade = apr_verify_grade_of(shown);
    const apr_verify_report *const r = shown->report;

    apr_html_open(out, APR_VERIFY_HTML_MARK, apr_html_base_name(shown->other.source->path), "verified");
    apr_html_print(out,
                   "<span class=\"pill big %s\">%s</span>\n<h1>%s</h1>\n<p>%s</p>\n<p class=\"soft\">Against <code>%s</code>, %s, run on "
                   "%s.</p>\n",
                   r->failed ? "fail" : "pass", grade.name, apr_html_base_name(shown->other.source->path), grade.sentence,
                   apr_html_base_name(shown->reference.source->path), apr_session_program(r->input->other.session)->architecture,
                   r->backend);
}

static void write_first_failure(FILE *out, const apr_verify_report *r)
{
    const apr_verify_check *const failure = apr_verify_first_failure(r);

    if (failure == NULL) return;
    const apr_verify_line line = apr_verify_line_of(r, failure);
    apr_html_print(out, "<div class=\"broken\"><b>First to fail: %s.</b> %s", line.title, line.found);
    if (line.where[0] != '\0') apr_html_print(out, "<br>%s", line.where);
    fputs("</div>\n", out);
}

static void write_tiles(FILE *out, const apr_verify_report *r)
{
    char text[APR_SMALL_TEXT], figure[64], what[200];

    fputs("<div class=\"tiles\">\n", out);
    if (r->n_texts > 0) {
        const apr_divergence *const d = &r->texts[r->n_texts - 1].d;
        apr_html_tile(out, apr_number_text(text, d->mean, apr_decimals_of(d->mean, 3)), "mean KL divergence, nats");
        snprintf(figure, sizeof figure, "%.*f %%", d->same_top == 1.0 ? 0 : 2, 100.0 * d->same_top);
        apr_html_tile(out, figure, "same most likely token");
        snprintf(what, sizeof what, "perplexity; reference %s", apr_number_text(text, d->perplexity_reference, 3));
        apr_html_tile(out, apr_number_text(text, d->perplexity_other, 3), what);
    }
    snprintf(what, sizeof what, "of memory to run with %s tokens", apr_count_text(text, apr_session_plan(r->input->other.session)->n_ctx));
    apr_html_tile(out, apr_size_text(text, apr_verify_memory_total(r).predicted), what);
    fputs("</div>\n", out);
}

static void write_checks(FILE *out, const apr_verify_report *r)
{
    static const char *const names[] = {"note", "pass", "fail"};
    static const apr_column columns[] = {{""}, {"check"}, {"found"}, {"limit"}};

    apr_html_section(out, "Checks");
    fputs("<div class=\"card\"><table>\n", out);
    apr_html_titles(out, columns, 4);
    for (size_t i = 0; i < r->n_checks; i++) {
        const apr_verify_check *const c = &r->checks[i];
        const apr_verify_line line = apr_verify_line_of(r, c);
        fputs("<tr>", out);
        apr_html_cell(out, &columns[0]);
        apr_html_print(out, "<span class=\"pill %s\">%s</span></td>", names[c->verdict], names[c->verdict]);
        apr_html_cell(out, &columns[1]);
        apr_html_print(out, "%s</td>", line.title);
        apr_html_cell(out, &columns[2]);
        apr_html_print(out, "<div>%s", line.found);
        if (line.where[0] != '\0')
            apr_html_print(out, "<div class=\"%s\">%s</div>", c->verdict == APR_VERDICT_FAIL ? "where" : "soft small", line.where);
        fputs("</div></td>", out);
        apr_html_cell(out, &columns[3]);
        apr_html_print(out, "%s</td></tr>\n", line.bound);
    }
    fputs("</table></div>\n<p class=\"soft small\">A note has no limit of its own: it is shown, and neither passes nor fails.</p>\n", out);
}

static void write_texts(FILE *out, const apr_verify_report *r)
{
    if (r->n_texts == 0) return;
    apr_html_section(out, "Divergence by position");
    fputs("<p class=\"soft\">How far the model&#39;s distribution of the next token is from the reference&#39;s, after each token of the "
          "text.</p>\n",
          out);
    for (size_t i = 0; i < r->n_texts; i++) {
        fputs("<div class=\"card\">", out);
        write_divergence(out, &r->texts[i]);
        fputs("</div>\n", out);
    }
}

static void write_layers(FILE *out, const apr_verify_report *r)
{
    char extent[160];

    if (r->operations.n_checked > 0) {
        apr_html_section(out, "Error by layer");
        fputs("<p class=\"soft\">Bars: the worst operation of the layer when its input is the reference&#39;s, so a tall bar belongs to "
              "that layer alone. Line: hidden states when each model runs on its own.</p>\n<div class=\"card\">\n",
              out);
        apr_chart_layers(out, &(apr_layers){.label = "error by layer",
                                            .unit = "relative error",
                                            .bars_name = "worst operation, same input",
                                            .line_name = "hidden states, errors add up",
                                            .bars = r->operations.worst_relative,
                                            .n_layers = r->operations.n_layers,
                                            .line = r->drift,
                                            .n_line = r->n_drift});
        fputs("</div>\n", out);
    }
    if (r->backends.n_checked == 0) return;
    apr_html_section(out, "Backend by layer");
    apr_html_print(out,
                   "<p class=\"soft\">The same weights on %s and in float64 on the host: the worst operation of each layer from the same "
                   "input, at %lld positions up to %s.</p>\n<div class=\"card\">\n",
                   r->backend, (long long)r->backends.n_positions, apr_parity_extent_text(extent, sizeof extent, &r->backends));
    apr_chart_layers(out, &(apr_layers){.label = "error of the backend by layer",
                                        .unit = "relative error",
                                        .bars_name = "worst operation",
                                        .bars = r->backends.worst_relative,
                                        .n_layers = r->backends.n_layers});
    fputs("</div>\n", out);
}

/* --- memory --- */

static void memory_text(const apr_verify_memory_part *part, char *text, size_t capacity)
{
    char predicted[APR_SMALL_TEXT], measured[APR_SMALL_TEXT];

    apr_size_text(predicted, part->predicted);
    apr_size_text(measured, part->measured);
    snprintf(text, capacity, "%s predicted, %s", predicted, part->measured > 0 ? measured : "not measured");
}

static void write_memory_values(FILE *out, const apr_verify_memory_part *parts, size_t n)
{
    static const apr_column columns[] = {{"memory"}, {"predicted, bytes", true}, {"measured, bytes", true}};
    char text[APR_SMALL_TEXT];
    apr_table table;

    apr_table_start(&table, columns, 3);
    for (size_t i = 0; i < n; i++) {
        apr_table_cell(&table, "%s", parts[i].label);
        apr_table_cell(&table, "%s", apr_count_text(text, (int64_t)parts[i].predicted));
        apr_table_cell(&table, "%s", parts[i].measured > 0 ? apr_count_text(text, (int64_t)parts[i].measured) : "not measured");
    }
    apr_html_values(out, &table);
}

static void write_memory(FILE *out, const apr_verify_report *r)
{
    enum { N_PARTS = APR_VERIFY_MEMORY_PARTS + 1 };
    static const apr_legend legend[] = {{"one", "predicted", APR_LEGEND_HOLLOW}, {"one", "measured", APR_LEGEND_FILLED}};
    apr_verify_memory_part parts[N_PARTS];
    char texts[N_PARTS][80];
    apr_bar bars[N_PARTS];

    apr_verify_memory_parts(r, parts);
    parts[N_PARTS - 1] = apr_verify_memory_total(r);
    for (size_t i = 0; i < N_PARTS; i++) {
        memory_text(&parts[i], texts[i], sizeof texts[i]);
        bars[i] = (apr_bar){parts[i].label, (double)parts[i].predicted, (double)parts[i].measured, texts[i]};
    }
    apr_html_section(out, "Memory");
    fputs("<div class=\"card\">", out);
    apr_chart_finding(out, "In total %s%s", texts[N_PARTS - 1], parts[N_PARTS - 1].measured > 0 ? " measured" : "");
    apr_chart_legend(out, legend, 2);
    apr_chart_bars(out, "memory, predicted and measured", bars, N_PARTS);
    write_memory_values(out, parts, N_PARTS);
    fputs("</div>\n", out);
}

/* --- answers --- */

/* Bytes up to the word in which the texts differ first. */
static size_t same_bytes(const char *a, const char *b)
{
    size_t n = 0;

    while (a[n] != '\0' && a[n] == b[n]) n++;
    while (n > 0 && strchr(" \n\t", a[n - 1]) == NULL) n--;
    return n;
}

/* The text with the word marked that begins, or goes on, after n_same bytes. */
static void write_answer(FILE *out, const char *whose, const char *text, size_t n_same, bool is_same)
{
    const size_t n_all = strlen(text), n_space = strspn(text + n_same, " \n\t"),
                 n_word = n_space + strcspn(text + n_same + n_space, " \n\t");

    fprintf(out, "<div><span class=\"soft small\">%s</span><pre>", whose);
    apr_html_lines(out, text, n_same);
    if (!is_same) {
        fputs("<mark>", out);
        if (n_word > 0) apr_html_lines(out, text + n_same, n_word);
        else fputs("(ends here)", out);
        fputs("</mark>", out);
        apr_html_lines(out, text + n_same + n_word, n_all - n_same - n_word);
    }
    fputs("</pre></div>", out);
}

static void write_answers(FILE *out, const apr_verify_report *r)
{
    if (r->n_answers == 0) return;
    apr_html_section(out, "Greedy answers");
    fputs("<p class=\"soft\">A near tie can go the other way, and then the texts differ. That alone is not damage; nonsense is. The first "
          "difference is marked.</p>\n",
          out);
    for (size_t i = 0; i < r->n_answers; i++) {
        const apr_verify_answer *const a = &r->answers[i];
        const bool is_same = strcmp(a->reference, a->other) == 0;
        const size_t n_same = is_same ? strlen(a->other) : same_bytes(a->reference, a->other);
        apr_html_print(out, "<div class=\"card\"><b>%s</b> ", a->prompt);
        if (a->same) fputs("<span class=\"pill pass\">word for word</span>", out);
        else
            fprintf(out, "<span class=\"pill note\">the same for %lld of %lld tokens</span>", (long long)a->n_same,
                    (long long)a->n_reference);
        fputs("<div class=\"answer\">", out);
        write_answer(out, "reference", a->reference, n_same, is_same);
        write_answer(out, "this model", a->other, n_same, is_same);
        fputs("</div></div>\n", out);
    }
}

static void write_page(FILE *out, const void *of)
{
    const verify_page *const page = of;
    const apr_verify_report *const r = page->shown->report;

    write_head(out, page);
    write_first_failure(out, r);
    write_tiles(out, r);
    apr_page_about_html(out, page->about);
    write_checks(out, r);
    write_texts(out, r);
    write_layers(out, r);
    write_memory(out, r);
    write_answers(out, r);
    fprintf(out,
            "<footer>aprkit %s, aprrun verify. KL divergence of float32 logits summed in double, not clipped.</footer>\n"
            "</main></body></html>\n",
            APR_VERSION);
}

apr_status apr_verify_html(const apr_verify_shown *shown, const apr_page_options *options, const char *command, char **text,
                           size_t *n_bytes, apr_error *err)
{
    const apr_page_model models[] = {{"model", shown->other.source}, {"reference", shown->reference.source}};
    const apr_page_about about = {.command = command,
                                  .options = options,
                                  .models = models,
                                  .n_models = 2,
                                  .session = shown->report->input->other.session,
                                  .answer = apr_verify_document(shown)};
    const apr_status status = apr_html_page(write_page, &(verify_page){shown, &about}, text, n_bytes, err);
    free(about.answer);
    return status;
}
