/* plan_grid.c - see plan_grid.h. */
#include "tools/verbs/plan/plan_grid.h"

#include "quant/mixtures.h"
#include "tools/report/chart.h"
#include "tools/report/guard.h"
#include "tools/report/html.h"
#include "tools/report/plot.h"
#include "tools/report/report.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Both tables have at most APR_TABLE_MAX_COLUMNS columns: a name, these, and the largest context. */
enum { MOST_COLUMNS = APR_TABLE_MAX_COLUMNS - 2 };

typedef struct grid {
    const apr_plan_question *q;
    const apr_plan_grid_asked *asked;
    apr_plan_choice *rows, columns[MOST_COLUMNS];
    size_t n_rows, n_columns;
    apr_plan_cell *cells; /* [n_rows, n_columns] */
} grid;

static const apr_plan_cell *cell_of(const grid *g, size_t row, size_t column) { return &g->cells[row * g->n_columns + column]; }

/* --- what is asked --- */

/* "as stored", and each mixture that aprquant writes; with --dtype that one alone. */
static apr_status choose_types(grid *g, apr_error *err)
{
    size_t n = 0;

    while (apr_mixture_names[n].name != NULL) n++;
    g->rows = calloc(n + 1, sizeof *g->rows);
    if (g->rows == NULL) return apr_no_memory(err, "a table of plans");
    g->n_rows = 1;
    if (g->q->asked->dtype != NULL) return APR_OK;
    for (size_t i = 0; i < n; i++) g->rows[g->n_rows++].dtype = apr_mixture_names[i].name;
    return APR_OK;
}

static void add_context(grid *g, int64_t ctx)
{
    for (size_t i = 0; i < g->n_columns; i++)
        if (g->columns[i].ctx == ctx) return;
    if (ctx > 0) g->columns[g->n_columns++].ctx = ctx;
}

/* The context asked for alone; else usual ones below the model's own, and its own. */
static void choose_contexts(grid *g)
{
    static const int64_t usual[] = {4096, 32768, 131072};
    const int64_t own = g->q->program.max_context;

    if (g->q->asked->ctx > 0) {
        add_context(g, g->q->asked->ctx);
        return;
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (own <= 0 || usual[i] < own) add_context(g, usual[i]);
    add_context(g, own);
}

static apr_status choose_gpus(grid *g, apr_error *err)
{
    static const char *const types[] = {"bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "mxfp4"};

    g->rows = calloc(apr_n_gpus, sizeof *g->rows);
    if (g->rows == NULL) return apr_no_memory(err, "a table of plans");
    g->n_rows = apr_n_gpus;
    for (size_t i = 0; i < apr_n_gpus; i++) g->rows[i].gpu = &apr_gpus[i];
    if (g->q->asked->dtype != NULL) {
        g->n_columns = 1;
        return APR_OK;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) g->columns[g->n_columns++].dtype = types[i];
    return APR_OK;
}

static const char *type_text(const grid *g, const apr_plan_choice *choice)
{
    if (choice->dtype != NULL) return choice->dtype;
    return g->q->asked->dtype != NULL ? g->q->asked->dtype : "as stored";
}

static const char *row_text(const grid *g, size_t row)
{
    return g->rows[row].gpu != NULL ? g->rows[row].gpu->name : type_text(g, &g->rows[row]);
}

/* --- text --- */

/* "5.43 yes", "41.94  no": both sides align when the cell is aligned to the right. */
static void put_cell(apr_table *table, const apr_plan_cell *cell)
{
    if (!cell->is_made) apr_table_cell(table, "-");
    else apr_table_cell(table, "%.2f %3s", (double)cell->taken_bytes / 0x1p30, cell->fits ? "yes" : "no");
}

static char *context_text(char text[APR_SMALL_TEXT], int64_t ctx)
{
    if (ctx >= APR_ANY_CONTEXT) snprintf(text, APR_SMALL_TEXT, "any");
    else apr_count_text(text, ctx);
    return text;
}

/* The titles of the columns between the first and the last live in `titles`. */
static size_t make_columns(const grid *g, apr_column *columns, char titles[MOST_COLUMNS][APR_SMALL_TEXT])
{
    size_t n = 0;

    columns[n++] = (apr_column){.title = g->asked->by_gpu ? "GPU" : "type"};
    if (g->asked->by_gpu) columns[n++] = (apr_column){.title = "memory", .right = true, .drops = true};
    for (size_t c = 0; c < g->n_columns; c++) {
        if (g->asked->by_gpu) snprintf(titles[c], APR_SMALL_TEXT, "%s", type_text(g, &g->columns[c]));
        else snprintf(titles[c], APR_SMALL_TEXT, "ctx %s", apr_count_text((char[APR_SMALL_TEXT]){0}, g->columns[c].ctx));
        columns[n++] = (apr_column){.title = titles[c], .right = true};
    }
    if (!g->asked->by_gpu) columns[n++] = (apr_column){.title = "largest ctx", .right = true, .drops = true};
    return n;
}

static void fill_table(const grid *g, apr_table *table)
{
    char text[APR_SMALL_TEXT];

    for (size_t r = 0; r < g->n_rows; r++) {
        apr_table_cell(table, "%s", row_text(g, r));
        if (g->asked->by_gpu) apr_table_cell(table, "%s", apr_size_text(text, apr_gpu_vram_bytes(g->rows[r].gpu)));
        for (size_t c = 0; c < g->n_columns; c++) put_cell(table, cell_of(g, r, c));
        if (!g->asked->by_gpu) apr_table_cell(table, "%s", cell_of(g, r, 0)->is_made ? context_text(text, cell_of(g, r, 0)->max_ctx) : "-");
    }
}

/* "on an RTX 4090, 24.00 GiB"; of several places, their memory together. */
static void where_text(const grid *g, char *text, size_t n_bytes)
{
    const apr_plan_question *const q = g->q;
    char size[APR_SMALL_TEXT];

    if (g->asked->by_gpu) snprintf(text, n_bytes, "on each known GPU");
    else if (q->gpu == NULL) snprintf(text, n_bytes, "on the host");
    else if (q->is_guess) snprintf(text, n_bytes, "on a GPU of %s", apr_size_text(size, q->asked->vram));
    else if (q->n_devices > 1)
        snprintf(text, n_bytes, "on %d GPUs, %s together", q->n_devices, apr_size_text(size, g->cells[0].budget_bytes));
    else snprintf(text, n_bytes, "on %s, %s", q->gpu->label, apr_size_text(size, g->cells[0].budget_bytes));
}

static void caption_text(const grid *g, char *text, size_t n_bytes)
{
    const apr_plan_asked *const a = g->q->asked;
    char where[96];

    where_text(g, where, sizeof where);
    snprintf(text, n_bytes, "%s, %lld sequence%s, %s keys and values", where, (long long)a->sequences, a->sequences == 1 ? "" : "s",
             apr_dtypes[apr_kv_dtypes[a->kv]].name);
}

static apr_status print_text(const grid *g, apr_error *err)
{
    apr_column columns[APR_TABLE_MAX_COLUMNS];
    char titles[MOST_COLUMNS][APR_SMALL_TEXT], caption[256], ctx[APR_SMALL_TEXT];
    apr_table table;

    caption_text(g, caption, sizeof caption);
    printf("%s: %s, %s\n", apr_printable(g->asked->path), apr_printable(g->q->program.architecture), caption);
    if (g->asked->by_gpu) printf("context %s\n", apr_count_text(ctx, g->cells[0].n_ctx));
    printf("\n");
    apr_table_start(&table, columns, make_columns(g, columns, titles));
    fill_table(g, &table);
    APR_TRY(apr_table_print(&table, stdout, 2, err));
    printf("\nGiB with headroom, and whether that fits; aprplan %s shows every byte of one plan\n",
           g->asked->by_gpu ? "--gpu GPU --dtype TYPE" : "--dtype TYPE --ctx N");
    return APR_OK;
}

/* --- JSON: a flat list, so that a program needs no knowledge of rows and columns --- */

static void write_json(const grid *g, apr_answer *answer, apr_error *err)
{
    apr_report r;

    apr_report_start(&r, answer, err);
    apr_report_open(&r, "plans", '[');
    for (size_t i = 0; i < g->n_rows * g->n_columns; i++) {
        const apr_plan_choice *const row = &g->rows[i / g->n_columns], *const column = &g->columns[i % g->n_columns];
        const apr_plan_cell *const cell = &g->cells[i];
        const char *const dtype = row->dtype != NULL ? row->dtype : column->dtype != NULL ? column->dtype : g->q->asked->dtype;
        apr_report_open(&r, NULL, '{');
        if (row->gpu != NULL) apr_report_member(&r, "gpu", apr_as_text(row->gpu->name));
        apr_report_member(&r, "dtype", apr_as_text_or_null(dtype));
        apr_report_member(&r, "planned", apr_as_bool(cell->is_made));
        if (cell->is_made) {
            apr_report_member(&r, "ctx", apr_as_int(cell->n_ctx));
            apr_report_member(&r, "fits", apr_as_bool(cell->fits));
            apr_report_member(&r, "total_bytes", apr_as_uint(cell->taken_bytes));
            apr_report_member(&r, "budget_bytes", apr_as_uint(cell->budget_bytes));
            if (i % g->n_columns == 0) apr_report_member(&r, "max_ctx", apr_as_int(cell->max_ctx));
        }
        apr_report_shut(&r, '}');
    }
    apr_report_shut(&r, ']');
    apr_report_end(&r);
}

/* --- a page: a bar for each row, of the first column, in front of the line of the memory --- */

/* The colours of the style sheet, and the legend's words for parts that share one. */
static const struct {
    const char *colour, *word; /* word NULL: under the one before */
} part_looks[APR_PLAN_PARTS] = {
    [APR_PART_WEIGHTS] = {"var(--one)", "weights"},   [APR_PART_KV] = {"var(--two)", "keys, values, states"},
    [APR_PART_RECURRENT] = {"var(--two)", NULL},      [APR_PART_ACTIVATIONS] = {"var(--one-soft)", "activations, workspace"},
    [APR_PART_WORKSPACE] = {"var(--one-soft)", NULL}, [APR_PART_CUDA] = {"var(--note)", "CUDA"},
    [APR_PART_FREE] = {"var(--line)", "left free"},   [APR_PART_ON_HOST] = {"var(--line)", NULL},
};

static void write_legend(FILE *out)
{
    fputs("<div class=\"legend\">", out);
    for (int part = 0; part < APR_PLAN_PARTS; part++)
        if (part_looks[part].word != NULL)
            fprintf(out, "<span><i style=\"background:%s\"></i>%s</span>", part_looks[part].colour, part_looks[part].word);
    fputs("</div>\n", out);
}

enum { GIB = 1 << 30 };

static void draw_bar(const apr_plot *p, const apr_plan_cell *cell, double y)
{
    double x = p->left;
    char size[APR_SMALL_TEXT];

    for (int part = 0; part < APR_PLAN_PARTS; part++) {
        const double width = apr_plot_x(p, (double)cell->parts[part] / GIB) - p->left;
        if (width <= 0.0) continue;
        fprintf(p->out, "<rect style=\"fill:%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"14\"><title>%s %s</title></rect>\n",
                part_looks[part].colour, x, y, width, apr_plan_part_names[part], apr_size_text(size, cell->parts[part]));
        x += width;
    }
    apr_size_text(size, cell->taken_bytes);
    if (p->is_narrow) apr_plot_text(p, p->width, y - 5, APR_TEXT_END, cell->fits ? "ink" : "bound-text", size);
    else apr_plot_text(p, x + 8, y + 12, APR_TEXT_START, cell->fits ? "ink halo" : "bound-text", size);
}

/* The largest total or memory. */
static double axis_end(const grid *g)
{
    double largest = 0.0, budget = 0.0;

    for (size_t r = 0; r < g->n_rows; r++) {
        largest = fmax(largest, (double)cell_of(g, r, 0)->taken_bytes);
        budget = fmax(budget, (double)cell_of(g, r, 0)->budget_bytes);
    }
    return fmax(largest, budget) / GIB;
}

static void draw_memory(const apr_plot *p, uint64_t budget_bytes, double from, double to)
{
    const double at = apr_plot_x(p, (double)budget_bytes / GIB);
    fprintf(p->out, "<line class=\"bound\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", at, at, from, to);
}

enum { WIDE_ROW = 26, NARROW_ROW = 44, OVER_ROWS = 24 };

static void draw_bars(apr_plot *p, const void *of)
{
    const grid *const g = of;
    const double row = p->is_narrow ? NARROW_ROW : WIDE_ROW;
    const uint64_t budget_bytes = g->asked->by_gpu ? 0 : g->cells[0].budget_bytes; /* GPUs each have their own */
    char text[64], size[APR_SMALL_TEXT];

    p->left = p->is_narrow ? 2 : 150;
    p->right = p->width - (p->is_narrow ? 4 : 100);
    p->x = (apr_axis){.title = "GiB", .high = axis_end(g), .step = apr_axis_step(axis_end(g), p->is_narrow ? 4 : 8)};
    for (size_t r = 0; r < g->n_rows; r++) {
        const apr_plan_cell *const cell = cell_of(g, r, 0);
        const double y = OVER_ROWS + row * (double)r + (p->is_narrow ? 20 : 0);
        if (p->is_narrow) apr_plot_text(p, p->left, y - 5, APR_TEXT_START, "ink", row_text(g, r));
        else apr_plot_text(p, p->left - 10, y + 12, APR_TEXT_END, "ink", row_text(g, r));
        if (cell->is_made) draw_bar(p, cell, y);
        if (g->asked->by_gpu && cell->budget_bytes > 0) draw_memory(p, cell->budget_bytes, y - 4, y + 18);
    }
    apr_plot_x_marks(p);
    apr_plot_text(p, p->right, p->bottom + 36, APR_TEXT_END, "", p->x.title);
    if (budget_bytes == 0) return;
    draw_memory(p, budget_bytes, 18, p->bottom);
    snprintf(text, sizeof text, "memory %s", apr_size_text(size, budget_bytes));
    apr_plot_text(p, apr_plot_x(p, (double)budget_bytes / GIB), 12, APR_TEXT_MIDDLE, "bound-text", text);
}

/* "14 of 17 types fit at a context of 32,768" */
static void title_text(const grid *g, char *text, size_t n_bytes)
{
    size_t n = 0;
    char ctx[APR_SMALL_TEXT];

    for (size_t r = 0; r < g->n_rows; r++) n += cell_of(g, r, 0)->fits;
    apr_count_text(ctx, g->cells[0].n_ctx);
    if (!g->asked->by_gpu) snprintf(text, n_bytes, "%zu of %zu types fit at a context of %s", n, g->n_rows, ctx);
    else snprintf(text, n_bytes, "%zu of %zu GPUs hold %s at a context of %s", n, g->n_rows, type_text(g, &g->columns[0]), ctx);
}

/* What a page shows. */
typedef struct grid_page {
    const grid *g;
    const apr_page_about *about;
} grid_page;

static void write_page(apr_report *page, const void *shown)
{
    enum { UNDER_ROWS = 44 };
    const grid *const g = ((const grid_page *)shown)->g;
    FILE *const out = page->out;
    apr_column columns[APR_TABLE_MAX_COLUMNS];
    char titles[MOST_COLUMNS][APR_SMALL_TEXT], text[256];
    apr_table table;

    apr_html_open(out, APR_PLAN_HTML_MARK, apr_html_base_name(g->asked->path), "planned");
    caption_text(g, text, sizeof text);
    apr_html_print(out, "<h1>%s</h1>\n<p class=\"soft\">%s, %s</p>\n", apr_html_base_name(g->asked->path), g->q->program.architecture,
                   text);
    apr_page_about_html(out, ((const grid_page *)shown)->about);
    title_text(g, text, sizeof text);
    apr_html_section(out, "Memory");
    fputs("<div class=\"card\">", out);
    apr_chart_finding(out, "%s", text);
    write_legend(out);
    apr_plot_twice(out, "memory of each row", OVER_ROWS + WIDE_ROW * (double)g->n_rows + UNDER_ROWS,
                   OVER_ROWS + NARROW_ROW * (double)g->n_rows + UNDER_ROWS, draw_bars, g);
    fputs("</div>\n", out);
    apr_html_section(out, "GiB, and whether that fits");
    fputs("<div class=\"card\">\n", out);
    apr_table_start(&table, columns, make_columns(g, columns, titles));
    fill_table(g, &table);
    if (table.failed) page->status = apr_no_memory(page->err, "the page");
    else apr_html_table(out, &table);
    apr_table_close(&table);
    fprintf(out, "</div>\n<footer>aprkit %s, aprplan</footer>\n</main></body></html>\n", APR_VERSION);
}

static bool any_fits(const grid *g)
{
    for (size_t i = 0; i < g->n_rows * g->n_columns; i++)
        if (g->cells[i].fits) return true;
    return false;
}

/* The page has the answer that --json gives. */
static apr_status write_html(const grid *g, const apr_call *call, apr_error *err)
{
    const apr_page_model model = {"model", g->q->source};
    char command[APR_PAGE_COMMAND];
    apr_page_about about = {.command = apr_page_command(call, command), .options = g->asked->page, .models = &model, .n_models = 1};
    const apr_error none = {0};
    apr_out *page = NULL;
    apr_answer as_json;

    if (g->asked->html == NULL) return APR_OK;
    APR_TRY(apr_out_open_marked(&page, g->asked->html, APR_PLAN_HTML_MARK, err));
    apr_answer_start(&as_json, true);
    write_json(g, &as_json, err);
    about.answer = apr_answer_document(&as_json.body, any_fits(g) ? APR_OK : APR_E_NO, &none);
    const apr_status status = apr_report_page(write_page, &(grid_page){g, &about}, page, err);
    free(about.answer);
    return apr_html_close(page, status, err);
}

static apr_status show(const grid *g, const apr_call *call, apr_error *err)
{
    APR_TRY(write_html(g, call, err));
    if (call->answer->json) write_json(g, call->answer, err);
    else APR_TRY(print_text(g, err));
    return any_fits(g) ? APR_OK : APR_E_NO;
}

apr_status apr_plan_grid_answer(apr_plan_question *q, const apr_plan_grid_asked *asked, const apr_call *call, apr_error *err)
{
    grid g = {.q = q, .asked = asked};
    apr_status status = asked->by_gpu ? choose_gpus(&g, err) : choose_types(&g, err);

    if (!asked->by_gpu) choose_contexts(&g);
    if (status == APR_OK && (g.cells = calloc(g.n_rows * g.n_columns, sizeof *g.cells)) == NULL)
        status = apr_no_memory(err, "a table of plans");
    if (status == APR_OK) status = apr_question_grid(q, g.rows, g.n_rows, g.columns, g.n_columns, g.cells, err);
    if (status == APR_OK) status = show(&g, call, err);
    free(g.cells);
    free(g.rows);
    return status;
}
