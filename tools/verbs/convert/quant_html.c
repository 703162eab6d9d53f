/* quant_html.c - what a quantization did, as a page: sizes, errors, importance, error feedback, chosen types, and every tensor. */
#include "tools/verbs/convert/quant_report.h"

#include "formats/shape/family.h"
#include "tools/engine/quantize/feedback_internal.h"
#include "tools/report/chart.h"
#include "tools/report/html.h"
#include "tools/report/report.h"
#include "tools/report/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_head(FILE *out, const apr_quant_shown *s)
{
    const char *const architecture = s->conversion->view.hparams.architecture;

    apr_html_open(out, APR_QUANT_HTML_MARK, apr_html_base_name(s->out), "quantized");
    apr_html_print(out,
                   "<span class=\"pill big note\">Quantized</span>\n<h1>%s</h1>\n<p class=\"soft\"><code>%s</code><br>from "
                   "<code>%s</code>, %s</p>\n",
                   apr_html_base_name(s->out), s->out, s->in, architecture != NULL ? architecture : "a model");
}

static double error_of(const apr_quant_sum *s) { return s->metrics.n > 0 ? apr_metrics_relative_error(&s->metrics) : 0.0; }

static void write_tiles(FILE *out, const apr_quant_shown *s)
{
    const apr_quant_sum *const all = &s->sums->all;
    const int64_t n_elems = s->conversion->recipe.n_elems;
    char size[APR_SMALL_TEXT], figure[64], what[256];

    fputs("<div class=\"tiles\">\n", out);
    snprintf(what, sizeof what, "of tensors; before %s", apr_size_text(size, all->bytes_before));
    apr_html_tile(out, apr_size_text(size, all->bytes_after), what);
    snprintf(figure, sizeof figure, "%.2f", n_elems > 0 ? 8.0 * (double)all->bytes_after / (double)n_elems : 0.0);
    apr_html_tile(out, figure, "bits per weight");
    if (all->metrics.n > 0) {
        snprintf(figure, sizeof figure, "%s %%", apr_number_text(size, 100.0 * error_of(all), 2));
        apr_html_tile(out, figure, "relative error of the weights that changed");
    }
    if (s->allocation != NULL) {
        const double kl = s->allocation->held.mean;
        char error[APR_SMALL_TEXT], count[APR_SMALL_TEXT];
        snprintf(what, sizeof what, "KL divergence of these types, &plusmn; %s, on %s tokens not used to choose them",
                 apr_number_text(error, s->allocation->held.error, apr_decimals_of(kl, 3)),
                 apr_count_text(count, (int64_t)s->allocation->n_held));
        apr_html_tile(out, apr_number_text(size, kl, apr_decimals_of(kl, 3)), what);
    }
    fputs("</div>\n", out);
}

/* --- sizes --- */

static void write_size_values(FILE *out, const apr_quant_sums *sums)
{
    static const apr_column columns[] = {{"kind"}, {"before, bytes", true}, {"after, bytes", true}};
    char text[APR_SMALL_TEXT];
    apr_table table;

    apr_table_start(&table, columns, 3);
    for (size_t i = 0; i < sums->n_roles; i++) {
        apr_table_cell(&table, "%s", sums->roles[i].name);
        apr_table_cell(&table, "%s", apr_count_text(text, (int64_t)sums->roles[i].bytes_before));
        apr_table_cell(&table, "%s", apr_count_text(text, (int64_t)sums->roles[i].bytes_after));
    }
    apr_html_values(out, &table);
}

/* For each role of tensors: a hollow bar for the size before, and a filled one for the size after. */
static void write_sizes(FILE *out, const apr_quant_sums *sums)
{
    static const apr_legend legend[] = {{"one", "before", APR_LEGEND_HOLLOW}, {"one", "after", APR_LEGEND_FILLED}};
    apr_bar *const bars = calloc(sums->n_roles + 1, sizeof *bars);
    char(*const texts)[80] = calloc(sums->n_roles + 1, sizeof *texts), before[APR_SMALL_TEXT], after[APR_SMALL_TEXT];

    for (size_t i = 0; i < sums->n_roles && bars != NULL && texts != NULL; i++) {
        const apr_quant_sum *const s = &sums->roles[i];
        snprintf(texts[i], sizeof texts[i], "%s, was %s", apr_size_text(after, s->bytes_after), apr_size_text(before, s->bytes_before));
        bars[i] = (apr_bar){s->name, (double)s->bytes_before, (double)s->bytes_after, texts[i]};
    }
    apr_html_section(out, "Size by kind of tensor");
    fputs("<div class=\"card\">", out);
    if (sums->n_roles > 0 && bars != NULL && texts != NULL) {
        apr_chart_finding(out, "Most bytes were in %s: %s", bars[0].name, texts[0]);
        apr_chart_legend(out, legend, 2);
        apr_chart_bars(out, "size before and after", bars, sums->n_roles);
        write_size_values(out, sums);
    }
    fputs("</div>\n", out);
    free(bars);
    free(texts);
}

/* --- errors --- */

static void write_layers(FILE *out, const apr_quant_sums *sums)
{
    double *const bars = calloc((size_t)sums->n_layers + 1, sizeof *bars);

    if (bars == NULL) return;
    for (int64_t i = 0; i <= sums->n_layers; i++) bars[i] = error_of(&sums->layers[i]);
    apr_html_section(out, "Error by layer");
    fputs("<p class=\"soft\">Root mean square error of the changed weights of each layer, relative to the weights. 'aprrun kld' measures "
          "the effect on predictions.</p>\n<div class=\"card\">\n",
          out);
    apr_chart_layers(
        out,
        &(apr_layers){
            .label = "error by layer", .unit = "relative error", .bars_name = "relative error", .bars = bars, .n_layers = sums->n_layers});
    fputs("</div>\n", out);
    free(bars);
}

enum { ERROR_DECIMALS = 3 }; /* of percents, in all tables of this page */

static const char *error_text(char text[48], const apr_metrics *metrics)
{
    char number[APR_SMALL_TEXT];

    *text = '\0';
    if (metrics->n > 0) snprintf(text, 48, "%s %%", apr_number_text(number, 100.0 * apr_metrics_relative_error(metrics), ERROR_DECIMALS));
    return text;
}

/* Writes a table in a card, and closes it. */
static void write_table(FILE *out, apr_table *table)
{
    fputs("<div class=\"card\">", out);
    if (!table->failed) apr_html_table(out, table);
    fputs("</div>\n", out);
    apr_table_close(table);
}

static void write_kinds(FILE *out, const apr_quant_sums *sums)
{
    static const apr_column columns[] = {{"kind"}, {"tensors", true}, {"changed", true}, {"error", true}};
    char text[48];
    apr_table table;

    apr_table_start(&table, columns, 4);
    for (size_t i = 0; i < sums->n_roles; i++) {
        const apr_quant_sum *const s = &sums->roles[i];
        apr_table_cell(&table, "%s", s->name);
        apr_table_cell(&table, "%s", apr_count_text(text, (int64_t)s->n_tensors));
        apr_table_cell(&table, "%s", apr_count_text(text, (int64_t)s->n_changed));
        apr_table_cell(&table, "%s", error_text(text, &s->metrics));
    }
    apr_html_section(out, "Error by kind of tensor");
    write_table(out, &table);
}

/* --- importance --- */

/* For a role: how many matrices were encoded with importance, and how many could have been. */
static void count_covered(const apr_conversion *c, const char *role, size_t *n_covered, size_t *n_all)
{
    size_t item = SIZE_MAX;

    *n_covered = *n_all = 0;
    for (size_t i = 0; i < c->recipe.n_lines; i++) {
        item = apr_quant_next_item(c, item);
        if (strcmp(apr_tensor_role_name(c->recipe.lines[i].role), role) != 0 || !apr_item_uses_importance(&c->items[item])) continue;
        *n_covered += c->items[item].importance != NULL;
        ++*n_all;
    }
}

static void write_bare(FILE *out, const apr_conversion *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->layout.n_tensors; i++)
        if (apr_item_is_bare(&c->items[i]))
            apr_html_print(out, n++ == 0 ? "<p class=\"soft\">Without importance: <code>%s</code>" : ", <code>%s</code>",
                           c->items[i].from->name);
    if (c->cover.n_bare > 0) fputs("</p>\n", out);
}

/* The imatrix that was used, and the matrices that it does not cover. */
static void write_importance(FILE *out, const apr_conversion *c, const apr_quant_sums *sums)
{
    static const apr_column columns[] = {{"kind"}, {"with importance", true}, {"without", true}};
    const apr_imatrix *const m = c->options.imatrix;
    size_t n_covered, n_all;
    apr_table table;

    if (m == NULL) return;
    apr_html_section(out, "Importance");
    apr_html_print(out, "<p class=\"soft\">From <code>%s</code>", m->path);
    for (size_t i = 0; i < m->n_datasets; i++)
        apr_html_print(out, i == 0 ? ", made from <code>%s</code>" : ", <code>%s</code>", m->datasets[i]);
    fprintf(out, ": %zu of %zu matrices are encoded with it", c->cover.n_covered, c->cover.n_covered + c->cover.n_bare);
    if (c->cover.n_unseen > 0)
        fprintf(out, "; %lld of their experts received no tokens and are encoded without it", (long long)c->cover.n_unseen);
    fputs(".</p>\n", out);
    apr_table_start(&table, columns, 3);
    for (size_t i = 0; i < sums->n_roles; i++) {
        count_covered(c, sums->roles[i].name, &n_covered, &n_all);
        if (n_all == 0) continue;
        apr_table_cell(&table, "%s", sums->roles[i].name);
        apr_table_cell(&table, "%zu", n_covered);
        apr_table_cell(&table, "%zu", n_all - n_covered);
    }
    write_table(out, &table);
    write_bare(out, c);
}

static void write_allocation(FILE *out, const apr_allocation *a)
{
    static const apr_column columns[] = {{"tensor"}, {"to"}, {"divergence", true}, {"tried"}};
    double largest = 0.0;
    char tried[256], text[APR_SMALL_TEXT], sum[APR_SMALL_TEXT], count[APR_SMALL_TEXT];
    apr_table table;

    if (a == NULL) return;
    for (size_t i = 0; i < a->n_groups; i++) largest = fmax(largest, a->groups[i].offers[a->groups[i].chosen].value);
    apr_html_section(out, "Types by KL divergence");
    fprintf(out,
            "<p class=\"soft\">KL divergence if only that tensor has that type, on %s tokens. All chosen types together: %s by their sum, "
            "%s measured.</p>\n",
            apr_count_text(count, (int64_t)a->n_tried), apr_number_text(sum, a->sum, apr_decimals_of(a->sum, 4)),
            apr_number_text(text, a->held.mean, apr_decimals_of(a->held.mean, 4)));
    apr_table_start(&table, columns, 4);
    for (size_t i = 0; i < a->n_groups; i++) {
        const apr_allocate_group *const g = &a->groups[i];
        apr_table_cell(&table, "%s", g->name);
        apr_table_cell(&table, "%s", apr_dtypes[g->types[g->chosen]].name);
        apr_table_cell(&table, "%s", apr_number_text(text, g->offers[g->chosen].value, apr_decimals_of(largest, 4)));
        apr_table_cell(&table, "%s", apr_allocate_offers_text(g, tried, sizeof tried));
    }
    write_table(out, &table);
}

/* --- every tensor --- */

enum { MOST_IN_ONE_TABLE = 60 };

/* A recipe line with its results. */
typedef struct row {
    const apr_recipe_line *line;
    const apr_pipe_item *item;
    int64_t layer; /* n_layers: outside of layers */
    size_t index;
    const char *to; /* the name of its type, or of its layout */
} row;

static int by_layer(const void *a, const void *b)
{
    const row *const one = a, *const two = b;

    if (one->layer != two->layer) return one->layer < two->layer ? -1 : 1;
    return one->index < two->index ? -1 : one->index > two->index;
}

static void fill_rows(const apr_conversion *c, int64_t n_layers, row *rows)
{
    const apr_family *const family = apr_family_find(c->view.hparams.architecture);
    size_t item = SIZE_MAX;

    for (size_t i = 0; i < c->recipe.n_lines; i++) {
        item = apr_quant_next_item(c, item);
        const int64_t layer = apr_find_tensor_role(family, c->recipe.lines[i].tensor).layer;
        rows[i] = (row){&c->recipe.lines[i], &c->items[item], layer >= 0 && layer < n_layers ? layer : n_layers, i,
                        apr_recipe_type_name(&c->recipe, &c->recipe.lines[i])};
    }
}

/* Bytes that all names begin with, up to a full stop. */
static size_t common_start(const row *rows, size_t n)
{
    const char *const first = rows[0].line->tensor->name;
    size_t most = strlen(first);

    for (size_t i = 1; i < n; i++) {
        size_t same = 0;
        while (same < most && rows[i].line->tensor->name[same] == first[same]) same++;
        most = same;
    }
    while (most > 0 && first[most - 1] != '.') most--;
    return n > 1 ? most : 0;
}

/* The style sheet has the titles of these cells for narrow screens: there may be thousands of rows. */
static void write_rows(FILE *out, const row *rows, size_t n, size_t n_cut)
{
    static const apr_column columns[] = {{"tensor"}, {"from"}, {"to"}, {"error", true}, {"why"}};
    char error[48];

    fputs("<table class=\"tensors\">\n", out);
    apr_html_titles(out, columns, 5);
    for (size_t i = 0; i < n; i++)
        apr_html_print(out, "<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n", rows[i].line->tensor->name + n_cut,
                       apr_dtypes[rows[i].line->tensor->dtype].name, rows[i].to, error_text(error, &rows[i].item->metrics),
                       rows[i].line->reason);
    fputs("</table>\n", out);
}

static const apr_metrics *worst_of(const row *rows, size_t n)
{
    const apr_metrics *worst = &rows[0].item->metrics;

    for (size_t i = 1; i < n; i++) {
        const apr_metrics *const m = &rows[i].item->metrics;
        if (m->n > 0 && (worst->n == 0 || apr_metrics_relative_error(m) > apr_metrics_relative_error(worst))) worst = m;
    }
    return worst;
}

/* The tensors of one layer, folded: "Layer 12, model.layers.12.*: 387 tensors, 320.51 MiB, were 1.18 GiB; worst error 7.912 %". */
static void write_layer(FILE *out, const row *rows, size_t n, const apr_quant_sums *sums)
{
    const apr_quant_sum *const sum = &sums->layers[rows[0].layer];
    const size_t n_cut = common_start(rows, n);
    char name[64] = "Outside of layers", before[APR_SMALL_TEXT], after[APR_SMALL_TEXT], error[48], prefix[256] = "";

    if (rows[0].layer < sums->n_layers) snprintf(name, sizeof name, "Layer %lld", (long long)rows[0].layer);
    if (n_cut > 0) snprintf(prefix, sizeof prefix, ", %.*s*", (int)n_cut, rows[0].line->tensor->name);
    apr_html_print(out, "<details><summary>%s%s: %zu tensors, %s, before %s", name, prefix, n, apr_size_text(after, sum->bytes_after),
                   apr_size_text(before, sum->bytes_before));
    if (worst_of(rows, n)->n > 0) apr_html_print(out, "; worst error %s", error_text(error, worst_of(rows, n)));
    fputs("</summary>\n", out);
    write_rows(out, rows, n, n_cut);
    fputs("</details>\n", out);
}

static void write_tensors(FILE *out, const apr_quant_shown *s)
{
    const size_t n = s->conversion->recipe.n_lines;
    row *const rows = calloc(n + 1, sizeof *rows);

    if (rows == NULL || n == 0) {
        free(rows);
        return;
    }
    fill_rows(s->conversion, s->sums->n_layers, rows);
    apr_html_section(out, "Tensors");
    fputs("<div class=\"card\">\n", out);
    if (n <= MOST_IN_ONE_TABLE) {
        write_rows(out, rows, n, 0);
    } else {
        qsort(rows, n, sizeof *rows, by_layer);
        for (size_t from = 0, to; from < n; from = to) {
            for (to = from + 1; to < n && rows[to].layer == rows[from].layer;) to++;
            write_layer(out, rows + from, to - from, s->sums);
        }
    }
    fputs("</div>\n", out);
    if (s->about->answer_is_short)
        fputs("<p class=\"soft small\">The JSON in this page has no list of tensors; --report FILE.json and --json have it.</p>\n", out);
    free(rows);
}

static void write_page(apr_report *page, const void *of)
{
    FILE *const out = page->out;
    const apr_quant_shown *const s = of;

    write_head(out, s);
    write_tiles(out, s);
    apr_page_about_html(out, s->about);
    write_sizes(out, s->sums);
    write_layers(out, s->sums);
    write_kinds(out, s->sums);
    write_importance(out, s->conversion, s->sums);
    if (s->feedback != NULL) apr_feedback_run_html(s->feedback, s->heal, out);
    write_allocation(out, s->allocation);
    write_tensors(out, s);
    fprintf(out,
            "<footer>aprkit %s, aprquant. Errors are those of the decoded weights, relative to the original weights."
            "</footer>\n</main></body></html>\n",
            APR_VERSION);
}

apr_status apr_quant_html(const apr_quant_shown *shown, apr_out *page, apr_error *err)
{
    return apr_report_page(write_page, shown, page, err);
}
