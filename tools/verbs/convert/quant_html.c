/* quant_html.c - the HTML report of a quantization: sizes, errors and types of all tensors. */
#include "tools/cli/chart.h"
#include "tools/cli/html.h"
#include "tools/cli/text.h"
#include "tools/engine/quantize/quant_report.h"
#include "tools/verbs/run/verify_pictures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void write_head(FILE *out, const apr_quant_shown *s)
{
    apr_html_open(out, APR_QUANT_HTML_MARK, apr_html_base_name(s->out), "quantized");
    fputs("<span class=\"pill big note\">Quantized</span>\n<h1>", out);
    apr_html_text(out, apr_html_base_name(s->out));
    fputs("</h1>\n<p class=\"soft\"><code>", out);
    apr_html_text(out, s->out);
    fputs("</code><br>from <code>", out);
    apr_html_text(out, s->in);
    fputs("</code>, ", out);
    apr_html_text(out, s->conversion->view.hparams.architecture != NULL ? s->conversion->view.hparams.architecture : "a model");
    fputs("</p>\n", out);
}

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
        snprintf(figure, sizeof figure, "%.2f %%", 100.0 * apr_metrics_relative_error(&all->metrics));
        apr_html_tile(out, figure, "relative error of the weights that changed");
    }
    if (s->allocation != NULL) {
        snprintf(figure, sizeof figure, "%.3g", s->allocation->held.mean);
        snprintf(what, sizeof what, "KL divergence of these types, &plusmn; %.2g, on %lld tokens not used to choose them",
                 s->allocation->held.error, (long long)s->allocation->n_held);
        apr_html_tile(out, figure, what);
    }
    fputs("</div>\n", out);
}

/* For each role of tensors: a hollow bar for the size before, and a filled one for the size after. */
static void picture_sizes(FILE *out, const apr_quant_sums *sums)
{
    const double left = 190, right = 690, row = 34;
    const uint64_t largest = sums->n_roles > 0 && sums->roles[0].bytes_before > 0 ? sums->roles[0].bytes_before : 1;
    char before[APR_SMALL_TEXT], after[APR_SMALL_TEXT];

    apr_chart_open(out, 960, row * (double)sums->n_roles + 4, "size before and after");
    for (size_t i = 0; i < sums->n_roles; i++) {
        const apr_quant_sum *const s = &sums->roles[i];
        const double y = row * (double)i + 5, was = (right - left) * (double)s->bytes_before / (double)largest,
                     is = fmin((right - left) * (double)s->bytes_after / (double)largest, right - left + 60);
        fprintf(out, "<text class=\"ink\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", left - 12, y + 16);
        apr_html_text(out, s->name);
        fputs("</text>\n", out);
        fprintf(out, "<rect class=\"fill-one\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"12\" rx=\"2\"/>\n", left, y + 6,
                fmax(is, 1.0));
        fprintf(out, "<rect class=\"hollow\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"20\" rx=\"3\"/>\n", left, y + 2, fmax(was, 1.0));
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\">%s, was %s</text>\n", left + fmax(was, is) + 12, y + 16,
                apr_size_text(after, s->bytes_after), apr_size_text(before, s->bytes_before));
    }
    fputs("</svg>\n", out);
}

static void write_sizes(FILE *out, const apr_quant_sums *sums)
{
    fputs("<h2>Size by kind of tensor</h2>\n<div class=\"card\"><div class=\"legend\"><span><i style=\"border:1.5px solid "
          "var(--one)\"></i>before</span><span><i style=\"background:var(--one)\"></i>after</span></div>\n",
          out);
    picture_sizes(out, sums);
    fputs("</div>\n", out);
}

static double error_of(const apr_quant_sum *s) { return s->metrics.n > 0 ? apr_metrics_relative_error(&s->metrics) : 0.0; }

static void write_layers(FILE *out, const apr_quant_sums *sums)
{
    double *const bars = calloc((size_t)sums->n_layers + 1, sizeof *bars);

    if (bars == NULL) return;
    for (int64_t i = 0; i <= sums->n_layers; i++) bars[i] = error_of(&sums->layers[i]);
    fputs(
        "<h2>Error by layer</h2>\n<p class=\"soft\">Root mean square error of the changed weights of each layer, relative to the weights. "
        "'aprrun kld' measures the effect on predictions.</p>\n<div class=\"card\">\n",
        out);
    apr_picture_layers(out, bars, sums->n_layers, NULL, 0, NAN);
    fputs("</div>\n", out);
    free(bars);
}

static void write_kinds(FILE *out, const apr_quant_sums *sums)
{
    fputs("<h2>Error by kind of tensor</h2>\n<div "
          "class=\"card\"><table class=\"wide\">\n<tr><th>kind</th><th>tensors</th><th>changed</th><th>error</th></tr>\n",
          out);
    for (size_t i = 0; i < sums->n_roles; i++) {
        const apr_quant_sum *const s = &sums->roles[i];
        fputs("<tr><td>", out);
        apr_html_text(out, s->name);
        fprintf(out, "</td><td>%zu</td><td>%zu</td><td>", s->n_tensors, s->n_changed);
        if (s->metrics.n > 0) fprintf(out, "%.3g %%", 100.0 * error_of(s));
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

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
    const char *separator = "<p class=\"soft\">Without importance: ";

    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        if (!apr_item_uses_importance(&c->items[i]) || c->items[i].importance != NULL) continue;
        fprintf(out, "%s<code>", separator);
        apr_html_text(out, c->items[i].from->name);
        fputs("</code>", out);
        separator = ", ";
    }
    if (c->cover.n_bare > 0) fputs("</p>\n", out);
}

/* The imatrix that was used, and the matrices that it does not cover. */
static void write_importance(FILE *out, const apr_conversion *c, const apr_quant_sums *sums)
{
    const apr_imatrix *const m = c->options.imatrix;
    size_t n_covered, n_all;

    if (m == NULL) return;
    fputs("<h2>Importance</h2>\n<p class=\"soft\">From <code>", out);
    apr_html_text(out, m->path);
    fputs("</code>", out);
    for (size_t i = 0; i < m->n_datasets; i++) {
        fputs(i == 0 ? ", made from <code>" : "</code>, <code>", out);
        apr_html_text(out, m->datasets[i]);
    }
    fprintf(out, "%s: %zu of %zu matrices are encoded with it", m->n_datasets > 0 ? "</code>" : "", c->cover.n_covered,
            c->cover.n_covered + c->cover.n_bare);
    if (c->cover.n_unseen > 0)
        fprintf(out, "; %lld of their experts received no tokens and are encoded without it", (long long)c->cover.n_unseen);
    fputs(".</p>\n<div class=\"card\"><table class=\"wide\">\n<tr><th>kind</th><th>with importance</th><th>without</th></tr>\n", out);
    for (size_t i = 0; i < sums->n_roles; i++) {
        count_covered(c, sums->roles[i].name, &n_covered, &n_all);
        if (n_all == 0) continue;
        fputs("<tr><td>", out);
        apr_html_text(out, sums->roles[i].name);
        fprintf(out, "</td><td>%zu</td><td>%zu</td></tr>\n", n_covered, n_all - n_covered);
    }
    fputs("</table></div>\n", out);
    write_bare(out, c);
}

static void write_allocation(FILE *out, const apr_allocation *a)
{
    if (a == NULL) return;
    fprintf(
        out,
        "<h2>Types by KL divergence</h2>\n<p class=\"soft\">KL divergence if only that tensor has that type, on %lld tokens. All chosen "
        "types together: %.4g by their sum, %.4g measured.</p>\n<div class=\"card\"><table "
        "class=\"wide\">\n<tr><th>tensor</th><th>to</th><th>divergence</th><th>tried"
        "</th></tr>\n",
        (long long)a->n_tried, a->sum, a->held.mean);
    for (size_t i = 0; i < a->n_groups; i++) {
        const apr_allocate_group *const g = &a->groups[i];
        fputs("<tr><td><code>", out);
        apr_html_text(out, g->name);
        fprintf(out, "</code></td><td>%s</td><td>%.3g</td><td class=\"soft\">", apr_dtypes[g->types[g->chosen]].name,
                g->offers[g->chosen].value);
        for (size_t k = 0; k < g->n_types; k++)
            fprintf(out, "%s%s %.3g", k > 0 ? ", " : "", apr_dtypes[g->types[k]].name, g->offers[k].value);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void write_tensors(FILE *out, const apr_conversion *c)
{
    size_t item = SIZE_MAX;

    fputs("<h2>Tensors</h2>\n<div class=\"card\"><table "
          "class=\"wide\">\n<tr><th>tensor</th><th>from</th><th>to</th><th>error</th><th>why</th></tr>\n",
          out);
    for (size_t i = 0; i < c->recipe.n_lines; i++) {
        const apr_recipe_line *const line = &c->recipe.lines[i];
        item = apr_quant_next_item(c, item);
        fputs("<tr><td><code>", out);
        apr_html_text(out, line->tensor->name);
        fprintf(out, "</code></td><td>%s</td><td>%s</td><td>", apr_dtypes[line->tensor->dtype].name, apr_dtypes[line->to].name);
        if (c->items[item].metrics.n > 0) fprintf(out, "%.3g %%", 100.0 * apr_metrics_relative_error(&c->items[item].metrics));
        fputs("</td><td class=\"soft\">", out);
        apr_html_text(out, line->reason);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void write_page(FILE *out, const void *of)
{
    const apr_quant_shown *const s = of;

    write_head(out, s);
    write_tiles(out, s);
    write_sizes(out, s->sums);
    write_layers(out, s->sums);
    write_kinds(out, s->sums);
    write_importance(out, s->conversion, s->sums);
    if (s->feedback != NULL) apr_feedback_run_html(s->feedback, out);
    write_allocation(out, s->allocation);
    write_tensors(out, s->conversion);
    fprintf(out,
            "<footer>aprkit %s, aprquant. Errors are those of the decoded weights, relative to the original weights."
            "</footer>\n</main></body></html>\n",
            APR_VERSION);
}

apr_status apr_quant_html(const apr_quant_shown *shown, apr_out *page, apr_error *err)
{
    return apr_html_write(write_page, shown, page, err);
}
