/* compare_print.c - the comparison as text and as JSON, and as a page: size against divergence with the frontier, and the table; which
 * value is the best, and what that means in a sentence. */
#include "tools/verbs/check/compare.h"

#include "tools/report/chart.h"
#include "tools/report/html.h"
#include "tools/report/plot.h"
#include "tools/report/report.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The values of a column, larger is better. NaN: there is none. */
static double value_of(const apr_compare_shown *s, const apr_compare_row *r, apr_compare_column column)
{
    const apr_compare_figures *const f = &r->figures;
    const double values[APR_COMPARE_COLUMNS] = {
        [APR_COMPARE_SIZE] = -(double)r->n_bytes,
        [APR_COMPARE_BITS] = -r->bits,
        [APR_COMPARE_KL] = -f->kl,
        [APR_COMPARE_TOP] = f->same_top,
        [APR_COMPARE_PERPLEXITY] = -f->perplexity,
        [APR_COMPARE_DECODE] = s->has_speed ? f->decode : (double)NAN,
        [APR_COMPARE_PROMPT] = s->has_speed ? f->prompt : (double)NAN,
        [APR_COMPARE_CONTEXT] = s->gpu != NULL ? (double)r->max_ctx : (double)NAN,
    };
    return values[column];
}

static size_t best_row(const apr_compare_shown *s, apr_compare_column column)
{
    size_t best = SIZE_MAX;
    bool differ = false;

    for (size_t i = 0; i < s->n; i++) {
        const double value = value_of(s, &s->rows[i], column);
        if (!isfinite(value)) continue;
        differ = differ || (best != SIZE_MAX && value != value_of(s, &s->rows[best], column));
        if (best == SIZE_MAX || value > value_of(s, &s->rows[best], column)) best = i;
    }
    return differ ? best : SIZE_MAX;
}

static bool is_on_frontier(const apr_compare_shown *s, size_t row)
{
    const apr_compare_row *const r = &s->rows[row];

    for (size_t i = 0; i < s->n; i++) {
        const apr_compare_row *const other = &s->rows[i];
        const bool is_no_worse = other->n_bytes <= r->n_bytes && other->figures.kl <= r->figures.kl;
        if (is_no_worse && (other->n_bytes < r->n_bytes || other->figures.kl < r->figures.kl)) return false;
    }
    return isfinite(r->figures.kl);
}

/* The one to take: of those that fit (without a GPU: of all) the closest to the reference, and of equals the smallest. */
static size_t choice_of(const apr_compare_shown *s)
{
    size_t best = SIZE_MAX;

    for (size_t i = 0; i < s->n; i++) {
        if ((s->gpu != NULL && !s->rows[i].fits) || !isfinite(s->rows[i].figures.kl)) continue;
        if (best == SIZE_MAX || s->rows[i].figures.kl < s->rows[best].figures.kl) best = i;
    }
    return best;
}

/* The largest on the frontier that is smaller than `row`. */
static size_t next_smaller(const apr_compare_shown *s, size_t row)
{
    for (size_t i = row; i-- > 0;)
        if (is_on_frontier(s, i) && s->rows[i].n_bytes < s->rows[row].n_bytes) return i;
    return SIZE_MAX;
}

static void sentence_of(const apr_compare_shown *s, char *text, size_t capacity)
{
    const size_t best = choice_of(s), next = best != SIZE_MAX ? next_smaller(s, best) : SIZE_MAX;
    char size[APR_SMALL_TEXT];

    if (best == SIZE_MAX && s->gpu != NULL) {
        snprintf(text, capacity, "none fits %s; the smallest, %.80s, needs %s", s->gpu, apr_html_base_name(s->rows[0].path),
                 apr_size_text(size, s->rows[0].needed_bytes));
        return;
    }
    if (best == SIZE_MAX) {
        snprintf(text, capacity, "none has finite predictions");
        return;
    }
    const apr_compare_row *const r = &s->rows[best];
    size_t n = (size_t)snprintf(text, capacity, "%.80s is the closest to the reference%s%s", apr_html_base_name(r->path),
                                s->gpu != NULL ? " that fits " : "", s->gpu != NULL ? s->gpu : "");
    if (next == SIZE_MAX || n >= capacity) return;
    const apr_compare_row *const smaller = &s->rows[next];
    const double saved = 100.0 * (1.0 - (double)smaller->n_bytes / (double)r->n_bytes), ratio = smaller->figures.kl / r->figures.kl;
    if (r->figures.kl > 0.0 && isfinite(ratio))
        snprintf(text + n, capacity - n, "; %.80s is %.0f %% smaller and loses %.*f times as much", apr_html_base_name(smaller->path),
                 saved, ratio < 10.0, ratio);
    else snprintf(text + n, capacity - n, "; %.80s is %.0f %% smaller", apr_html_base_name(smaller->path), saved);
}

/* --- the table --- */

static void report_row(apr_report *r, const apr_compare_shown *s, const apr_compare_row *row, int decimals)
{
    const apr_compare_figures *const f = &row->figures;
    const apr_json_value none = apr_as_absent();
    char name[64], text[APR_SMALL_TEXT];

    apr_report_row(r);
    apr_middle_text(name, sizeof name, apr_html_base_name(row->path), 24);
    apr_report_cell(r, apr_as_text(row->path), "%s", name);
    apr_report_member(r, "types", apr_as_text(row->types));
    apr_report_member(r, "sha256_of_head", apr_as_text(row->sum));
    apr_report_cell(r, apr_as_uint(row->n_bytes), "%s", apr_size_text(text, row->n_bytes));
    apr_report_cell(r, apr_as_real(row->bits), "%.2f", row->bits);
    apr_report_cell(r, apr_as_real(f->kl), "%s", apr_number_text(text, f->kl, decimals));
    if (!isnan(f->kl_95.low)) apr_report_cell(r, none, "%s", apr_number_text(text, (f->kl_95.high - f->kl_95.low) / 2.0, decimals));
    else apr_report_cell(r, none, "-");
    if (!isnan(f->kl_95.low)) apr_report_reals(r, "kl_mean_95", (const double[]){f->kl_95.low, f->kl_95.high}, 2);
    apr_report_cell(r, apr_as_real(f->same_top), "%.2f %%", 100.0 * f->same_top);
    apr_report_cell(r, apr_as_real(f->perplexity), "%s", apr_number_text(text, f->perplexity, 3));
    if (s->has_speed) {
        apr_report_cell(r, apr_as_real(f->decode), "%s", apr_number_text(text, f->decode, 1));
        apr_report_cell(r, apr_as_real(f->prompt), "%s", apr_number_text(text, f->prompt, 1));
    }
    if (s->gpu != NULL) {
        apr_report_cell(r, apr_as_int(row->max_ctx), "%s", row->fits ? apr_count_text(text, row->max_ctx) : "no");
        apr_report_member(r, "fits", apr_as_bool(row->fits));
        apr_report_member(r, "needed_bytes", apr_as_uint(row->needed_bytes));
    }
    apr_report_member(r, "perplexity_ref", apr_as_real(f->perplexity_ref));
    apr_report_member(r, "positions", apr_as_int(f->n_positions));
    apr_report_member(r, "kept", apr_as_bool(row->was_kept));
    apr_report_member(r, "on_frontier", apr_as_bool(is_on_frontier(s, (size_t)(row - s->rows))));
}

static void report_table(apr_report *r, const apr_compare_shown *s)
{
    static const apr_column all[] = {{"model", .key = "model"},
                                     {"size", true, .key = "bytes"},
                                     {"bits", true, .drops = true, .key = "bits_per_weight"},
                                     {"KL", true, .key = "kl_mean"},
                                     {"+-", true, .drops = true},
                                     {"same top", true, .key = "same_top"},
                                     {"perplexity", true, .drops = true, .key = "perplexity"},
                                     {"decode/s", true, .key = "decode_per_second"},
                                     {"prompt/s", true, .drops = true, .key = "prompt_per_second"},
                                     {"largest ctx", true, .key = "max_ctx"}};
    apr_column columns[sizeof all / sizeof *all];
    double largest = 0.0;
    size_t n = 0;

    for (size_t c = 0; c < sizeof all / sizeof *all; c++) {
        const bool is_speed = c == 7 || c == 8;
        if ((is_speed && !s->has_speed) || (c == 9 && s->gpu == NULL)) continue;
        columns[n++] = all[c];
    }
    for (size_t i = 0; i < s->n; i++)
        if (isfinite(s->rows[i].figures.kl)) largest = fmax(largest, s->rows[i].figures.kl);
    apr_report_table(r, "", "candidates", columns, n);
    for (size_t i = 0; i < s->n; i++) report_row(r, s, &s->rows[i], apr_decimals_of(largest, 4));
    apr_report_close(r);
}

static void report_best(apr_report *r, const apr_compare_shown *s)
{
    static const char *const keys[APR_COMPARE_COLUMNS] = {"bytes",      "bits_per_weight",   "kl_mean",           "same_top",
                                                          "perplexity", "decode_per_second", "prompt_per_second", "max_ctx"};

    apr_report_open(r, "best", '{');
    for (int c = 0; c < APR_COMPARE_COLUMNS; c++) {
        const size_t best = best_row(s, (apr_compare_column)c);
        if (best != SIZE_MAX) apr_report_member(r, keys[c], apr_as_text(s->rows[best].path));
    }
    apr_report_shut(r, '}');
}

static apr_status print_sentence(const char *sentence, apr_error *err)
{
    static const apr_column column = {0};
    apr_table table;

    putchar('\n');
    apr_table_start(&table, &column, 1);
    apr_table_cell(&table, "%s.", sentence);
    return apr_table_print(&table, stdout, 0, err);
}

apr_status apr_compare_report(const apr_compare_shown *s, apr_answer *answer, apr_error *err)
{
    char sentence[512];
    apr_report r;

    sentence_of(s, sentence, sizeof sentence);
    apr_report_start(&r, answer, err);
    apr_report_print(&r, "Against %s, on %s in windows of %lld tokens, run on %s%s%s\n", apr_printable(s->ref), apr_printable(s->text),
                     (long long)s->window, s->backend, s->gpu != NULL ? "; context on " : "", s->gpu != NULL ? s->gpu : "");
    apr_report_member(&r, "ref", apr_as_text(s->ref));
    apr_report_member(&r, "text", apr_as_text(s->text));
    apr_report_member(&r, "window", apr_as_int(s->window));
    apr_report_member(&r, "backend", apr_as_text(s->backend));
    apr_report_member(&r, "gpu", apr_as_text(s->gpu));
    report_table(&r, s);
    report_best(&r, s);
    apr_report_member(&r, "sentence", apr_as_text(sentence));
    APR_TRY(apr_report_end(&r));
    return answer->json ? APR_OK : print_sentence(sentence, err);
}

/* ---- the page ---- */

/* What the page shows. */
typedef struct compare_page {
    const apr_compare_shown *shown;
    const apr_page_about *about;
} compare_page;

/* --- size against divergence --- */

typedef struct box {
    double left, top, right, bottom;
} box;

static bool overlap(const box *a, const box *b)
{
    return a->left < b->right && b->left < a->right && a->top < b->bottom && b->top < a->bottom;
}

/* The points and the names that are there already. */
typedef struct placed {
    box boxes[2 * APR_COMPARE_MOST];
    size_t n;
} placed;

/* The unit of the size axis: the largest one in which the largest file is at least 1. */
static double unit_of(const apr_compare_shown *s, const char **title)
{
    const double largest = (double)s->rows[s->n - 1].n_bytes;

    *title = largest >= 1 << 30 ? "size, GiB" : largest >= 1 << 20 ? "size, MiB" : "size, KiB";
    return largest >= 1 << 30 ? 1 << 30 : largest >= 1 << 20 ? 1 << 20 : 1 << 10;
}

/* Writes a name where it touches nothing: at the right of its point, at the left, over it, under it. Else it is left to the table. */
static void write_name(const apr_plot *p, placed *there, double x, double y, const char *class, const char *name)
{
    const double width = apr_plot_text_width(name);
    const struct {
        double left, base;
    } places[] = {{x + 8, y + 4}, {x - 8 - width, y + 4}, {x - width / 2, y - 9}, {x - width / 2, y + 18}};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const box b = {places[i].left, places[i].base - 12, places[i].left + width, places[i].base + 4};
        bool is_free = b.left >= p->left && b.right <= p->width - 2 && b.top >= p->top - 10 && b.bottom <= p->bottom;
        for (size_t k = 0; k < there->n; k++) is_free = is_free && !overlap(&b, &there->boxes[k]);
        if (!is_free) continue;
        apr_plot_text(p, places[i].left, places[i].base, APR_TEXT_START, class, name);
        there->boxes[there->n++] = b;
        return;
    }
}

static void draw_frontier(const apr_plot *p, const apr_compare_shown *s, double unit)
{
    fputs("<polyline class=\"line-two\" points=\"", p->out);
    for (size_t i = 0; i < s->n; i++)
        if (is_on_frontier(s, i))
            fprintf(p->out, "%.1f,%.1f ", apr_plot_x(p, (double)s->rows[i].n_bytes / unit), apr_plot_y(p, s->rows[i].figures.kl));
    fputs("\"/>\n", p->out);
}

static void draw_point(const apr_plot *p, const apr_compare_shown *s, size_t i, double unit)
{
    const apr_compare_row *const r = &s->rows[i];
    const double x = apr_plot_x(p, (double)r->n_bytes / unit), y = apr_plot_y(p, r->figures.kl);
    const bool is_out = s->gpu != NULL && !r->fits;
    char text[APR_SMALL_TEXT];

    if (!isnan(r->figures.kl_95.low))
        fprintf(p->out, "<line class=\"line-one\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x, x,
                apr_plot_y(p, r->figures.kl_95.low), apr_plot_y(p, r->figures.kl_95.high));
    apr_html_print(p->out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>%s: %s nats</title></circle>\n",
                   is_out ? "fill-fail" : "fill-one", x, y, apr_html_base_name(r->path),
                   apr_number_text(text, r->figures.kl, apr_decimals_of(r->figures.kl, 3)));
}

static void draw_scatter(apr_plot *p, const void *of)
{
    const apr_compare_shown *const s = of;
    const size_t best = best_row(s, APR_COMPARE_KL);
    double smallest = INFINITY, largest = 0.0;
    const char *title;
    const double unit = unit_of(s, &title);
    placed there = {.n = 0};

    for (size_t i = 0; i < s->n; i++) {
        const double kl = s->rows[i].figures.kl;
        if (!(kl > 0.0) || !isfinite(kl)) continue;
        smallest = fmin(smallest, kl);
        largest = fmax(largest, kl);
    }
    p->y = apr_axis_decades("KL divergence, nats", smallest, largest, 7);
    p->x = apr_axis_linear(title, (double)s->rows[s->n - 1].n_bytes / unit, p->is_narrow ? 5 : 9);
    apr_plot_axes(p);
    apr_plot_x_marks(p);
    draw_frontier(p, s, unit);
    for (size_t i = 0; i < s->n; i++) {
        const double x = apr_plot_x(p, (double)s->rows[i].n_bytes / unit), y = apr_plot_y(p, s->rows[i].figures.kl);
        draw_point(p, s, i, unit);
        there.boxes[there.n++] = (box){x - 5, y - 5, x + 5, y + 5};
    }
    for (size_t i = 0; i < s->n; i++) {
        char name[64];
        apr_middle_text(name, sizeof name, apr_html_base_name(s->rows[i].path), 24);
        write_name(p, &there, apr_plot_x(p, (double)s->rows[i].n_bytes / unit), apr_plot_y(p, s->rows[i].figures.kl),
                   i == best ? "ink halo best" : "ink halo", name);
    }
}

static void write_scatter(FILE *out, const apr_compare_shown *s, const char *sentence)
{
    static const apr_legend legend[] = {{"one", "a candidate, with its 95 % interval", APR_LEGEND_FILLED},
                                        {"two", "the frontier: none is smaller and closer", APR_LEGEND_LINE},
                                        {"fail", "does not fit", APR_LEGEND_FILLED}};
    static const apr_column columns[] = {{"model"},
                                         {"bytes", true},
                                         {"KL, nats", true},
                                         {"from", true},
                                         {"to", true},
                                         {"frontier"},
                                         {"SHA-256 of header and list of tensors"}};
    double largest = 0.0;
    char text[APR_SMALL_TEXT];
    apr_table table;

    apr_html_section(out, "Size against divergence");
    fputs("<div class=\"card\">", out);
    apr_chart_finding(out, "%s", sentence);
    apr_chart_legend(out, legend, s->gpu != NULL ? 3 : 2);
    apr_plot_twice(out, "KL divergence by size", 340, 320, draw_scatter, s);
    for (size_t i = 0; i < s->n; i++)
        if (isfinite(s->rows[i].figures.kl)) largest = fmax(largest, s->rows[i].figures.kl);
    apr_table_start(&table, columns, 7);
    for (size_t i = 0; i < s->n; i++) {
        const apr_compare_figures *const f = &s->rows[i].figures;
        const int decimals = apr_decimals_of(largest, 4);
        apr_table_cell(&table, "%s", apr_html_base_name(s->rows[i].path));
        apr_table_cell(&table, "%s", apr_count_text(text, (int64_t)s->rows[i].n_bytes));
        apr_table_cell(&table, "%s", apr_number_text(text, f->kl, decimals));
        apr_table_cell(&table, "%s", isnan(f->kl_95.low) ? "" : apr_number_text(text, f->kl_95.low, decimals));
        apr_table_cell(&table, "%s", isnan(f->kl_95.high) ? "" : apr_number_text(text, f->kl_95.high, decimals));
        apr_table_cell(&table, "%s", is_on_frontier(s, i) ? "yes" : "no");
        apr_table_cell(&table, "%s", s->rows[i].sum);
    }
    apr_html_values(out, &table);
    fputs("</div>\n", out);
}

/* --- the table --- */

/* A cell, in bold when its row has the best value of the column. */
static void write_cell(FILE *out, const apr_compare_shown *s, size_t row, int which, const char *title, const char *text)
{
    const bool is_best = which >= 0 && best_row(s, (apr_compare_column)which) == row;

    apr_html_cell(out, &(apr_column){.title = title, .right = true});
    apr_html_print(out, is_best ? "<b class=\"best\">%s</b></td>" : "%s</td>", text);
}

/* The titles of the columns, which of them can have a best value, and whether they are there. */
static const struct {
    const char *title;
    int which; /* -1: none is the best */
    bool of_speed, of_gpu;
} table_columns[] = {{"size", APR_COMPARE_SIZE, false, false},
                     {"bits", APR_COMPARE_BITS, false, false},
                     {"KL, nats", APR_COMPARE_KL, false, false},
                     {"95 %", -1, false, false},
                     {"same top token", APR_COMPARE_TOP, false, false},
                     {"perplexity", APR_COMPARE_PERPLEXITY, false, false},
                     {"decode, tokens/s", APR_COMPARE_DECODE, true, false},
                     {"prompt, tokens/s", APR_COMPARE_PROMPT, true, false},
                     {"largest context", APR_COMPARE_CONTEXT, false, true}};
enum { TABLE_COLUMNS = sizeof table_columns / sizeof *table_columns };

static const char *cell_text(const apr_compare_row *r, int column, int decimals, char text[80])
{
    const apr_compare_figures *const f = &r->figures;
    char low[APR_SMALL_TEXT], high[APR_SMALL_TEXT];

    *text = '\0';
    if (column == 0) apr_size_text(text, r->n_bytes);
    else if (column == 1) apr_number_text(text, r->bits, 2);
    else if (column == 2) apr_number_text(text, f->kl, decimals);
    else if (column == 3 && !isnan(f->kl_95.low))
        snprintf(text, 80, "%s to %s", apr_number_text(low, f->kl_95.low, decimals), apr_number_text(high, f->kl_95.high, decimals));
    else if (column == 4) snprintf(text, 80, "%.2f %%", 100.0 * f->same_top);
    else if (column == 5) apr_number_text(text, f->perplexity, 3);
    else if (column == 6) apr_number_text(text, f->decode, 1);
    else if (column == 7) apr_number_text(text, f->prompt, 1);
    else if (column == 8) snprintf(text, 80, "%s", r->fits ? apr_count_text(low, r->max_ctx) : "does not fit");
    return text;
}

static bool has_column(const apr_compare_shown *s, int c)
{
    return (!table_columns[c].of_speed || s->has_speed) && (!table_columns[c].of_gpu || s->gpu != NULL);
}

static void write_table(FILE *out, const apr_compare_shown *s)
{
    static const apr_column model = {"model"};
    double largest = 0.0;
    char text[80];

    for (size_t i = 0; i < s->n; i++)
        if (isfinite(s->rows[i].figures.kl)) largest = fmax(largest, s->rows[i].figures.kl);
    apr_html_section(out, "Candidates");
    fputs("<div class=\"card\"><table>\n<tr class=\"titles\"><th>model</th>", out);
    for (int c = 0; c < TABLE_COLUMNS; c++)
        if (has_column(s, c)) apr_html_print(out, "<th class=\"number\">%s</th>", table_columns[c].title);
    fputs("</tr>\n", out);
    for (size_t i = 0; i < s->n; i++) {
        fputs("<tr>", out);
        apr_html_cell(out, &model);
        apr_html_print(out, "<div>%s<div class=\"soft small\">%s</div></div></td>", apr_html_base_name(s->rows[i].path), s->rows[i].types);
        for (int c = 0; c < TABLE_COLUMNS; c++)
            if (has_column(s, c))
                write_cell(out, s, i, table_columns[c].which, table_columns[c].title,
                           cell_text(&s->rows[i], c, apr_decimals_of(largest, 4), text));
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
    apr_html_print(out, "<p class=\"soft small\">The best value of each column is bold. Perplexity of the reference: %s.</p>\n",
                   apr_number_text(text, s->rows[0].figures.perplexity_ref, 3));
}

static void write_page(apr_report *to, const void *of)
{
    const compare_page *const page = of;
    const apr_compare_shown *const s = page->shown;
    FILE *const out = to->out;
    char sentence[512];

    sentence_of(s, sentence, sizeof sentence);
    apr_html_open(out, APR_COMPARE_HTML_MARK, apr_html_base_name(s->ref), "compared");
    apr_html_print(out,
                   "<span class=\"pill big note\">Compared</span>\n<h1>%zu versions of %s</h1>\n<p>%s.</p>\n<p class=\"soft\">On "
                   "%s in windows of %lld tokens, run on %s%s%s.</p>\n",
                   s->n, apr_html_base_name(s->ref), sentence, s->text, (long long)s->window, s->backend,
                   s->gpu != NULL ? "; context on " : "", s->gpu != NULL ? s->gpu : "");
    apr_page_about_html(out, page->about);
    write_scatter(out, s, sentence);
    write_table(out, s);
    fprintf(out, "<footer>aprkit %s, aprrun compare. Intervals: 95 %%, by bootstrap over windows.</footer>\n</main></body></html>\n",
            APR_VERSION);
}

apr_status apr_compare_html(const apr_compare_shown *shown, const apr_page_about *about, apr_out *page, apr_error *err)
{
    return apr_report_page(write_page, &(compare_page){shown, about}, page, err);
}
