/* table_print.c - measures the columns of a table, makes them fit the terminal, and prints. */
#include "tools/report/table.h"

#include "tools/report/terminal.h"
#include "tools/report/text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* GAP: blanks between columns. Minimum widths to which columns are narrowed: the first column, which holds names, and other columns. */
enum { GAP = 2, MIN_TEXT_WIDTH = 14, MIN_NAME_WIDTH = 22 };

/* How a table is printed: which columns are dropped, and their widths. */
typedef struct table_shape {
    int widths[APR_TABLE_MAX_COLUMNS];
    bool is_dropped[APR_TABLE_MAX_COLUMNS];
    size_t n_columns; /* of the table, including dropped ones */
    int indent;
} table_shape;

/* Row r, or the titles when r is negative. */
static void get_row(const apr_table *table, ptrdiff_t r, const char **cells)
{
    for (size_t c = 0; c < table->n_columns; c++) {
        const size_t i = (size_t)r * table->n_columns + c;
        cells[c] = r < 0 ? table->columns[c].title : i < table->n_cells ? table->cells[i] : "";
    }
}

static void measure(const apr_table *table, ptrdiff_t first, ptrdiff_t n_rows, table_shape *shape)
{
    const char *cells[APR_TABLE_MAX_COLUMNS];

    for (ptrdiff_t r = first; r < n_rows; r++) {
        get_row(table, r, cells);
        for (size_t c = 0; c < table->n_columns; c++) {
            const int width = apr_text_columns(cells[c]);
            if (width > shape->widths[c]) shape->widths[c] = width;
        }
    }
}

static int width_of(const table_shape *shape)
{
    int width = shape->indent - GAP;
    for (size_t c = 0; c < shape->n_columns; c++)
        if (!shape->is_dropped[c] && (shape->widths[c] > 0 || c == 0)) width += GAP + shape->widths[c];
    return width;
}

/* Makes the widest text columns narrower until the table fits. False if it does not fit even at their minimum widths. */
static bool narrow_words(const apr_table *table, table_shape *shape, int columns)
{
    while (width_of(shape) > columns) {
        size_t widest = table->n_columns;
        for (size_t c = 0; c < table->n_columns; c++) {
            const bool may =
                !table->columns[c].right && !shape->is_dropped[c] && shape->widths[c] > (c == 0 ? MIN_NAME_WIDTH : MIN_TEXT_WIDTH);
            if (may && (widest == table->n_columns || shape->widths[c] > shape->widths[widest])) widest = c;
        }
        if (widest == table->n_columns) return false;
        shape->widths[widest]--;
    }
    return true;
}

/* Drops the last column that may be dropped. False if there is none. */
static bool drop_column(const apr_table *table, table_shape *shape)
{
    for (size_t c = table->n_columns; c-- > 1;)
        if (table->columns[c].drops && !shape->is_dropped[c]) {
            shape->is_dropped[c] = true;
            return true;
        }
    return false;
}

static bool fit(const apr_table *table, table_shape *shape, int columns)
{
    const table_shape natural = *shape;

    if (columns == 0 || width_of(shape) <= columns) return true;
    while (!narrow_words(table, shape, columns)) {
        memcpy(shape->widths, natural.widths, sizeof shape->widths);
        if (!drop_column(table, shape)) return false;
    }
    return true;
}

/* How many bytes of text fit in a line of `width` columns: whole words, at least one. */
static size_t line_of(const char *text, int width)
{
    size_t end = 0, at = 0;
    char line[2048];

    while (text[at] != '\0') {
        at += strspn(text + at, " ");
        at += strcspn(text + at, " ");
        snprintf(line, sizeof line, "%.*s", (int)at, text);
        if (apr_text_columns(line) > width) break;
        end = at;
    }
    return end > 0 ? end : strcspn(text, " ");
}

static const char *colour_of(const apr_column *column, const char *cell, FILE *out)
{
    if (!column->verdict) return "";
    return strcmp(cell, "pass") == 0 ? apr_green(out) : strcmp(cell, "FAIL") == 0 ? apr_red(out) : apr_dim(out);
}

static void print_padded(const apr_column *column, const char *text, int width, bool is_last, FILE *out)
{
    char shown[2048];

    apr_middle_text(shown, sizeof shown, text, width);
    const int padding = width - apr_text_columns(shown);
    const char *const colour = colour_of(column, shown, out);
    fprintf(out, "%*s%s%s%s%*s", column->right ? padding : 0, "", colour, shown, colour[0] != '\0' ? apr_plain(out) : "",
            column->right || is_last ? 0 : padding, "");
}

/* The lines of one row. The last non-empty cell is not padded. */
static void print_row(const apr_table *table, const table_shape *shape, const char *const *cells, FILE *out)
{
    const char *left[APR_TABLE_MAX_COLUMNS];
    bool has_more = true;

    memcpy(left, cells, table->n_columns * sizeof *left);
    while (has_more) {
        size_t n_columns = table->n_columns;
        while (n_columns > 0 && (shape->is_dropped[n_columns - 1] || left[n_columns - 1][0] == '\0')) n_columns--;
        has_more = false;
        for (size_t c = 0, n_printed = 0; c < n_columns; c++) {
            if (shape->is_dropped[c] || (shape->widths[c] == 0 && c > 0 && apr_terminal_columns(out) > 0)) continue;
            char line[2048];
            const size_t n = table->columns[c].right ? strlen(left[c]) : line_of(left[c], shape->widths[c]);
            snprintf(line, sizeof line, "%.*s", (int)n, left[c]);
            fprintf(out, "%*s", n_printed++ == 0 ? shape->indent : GAP, "");
            print_padded(&table->columns[c], line, shape->widths[c], c + 1 == n_columns, out);
            left[c] += n + strspn(left[c] + n, " ");
            if (left[c][0] != '\0') has_more = true;
        }
        fputs("\n", out);
    }
}

/* A row as a block: the first cell, and under it a line for each other cell. */
static void print_block(const apr_table *table, const char *const *cells, int indent, FILE *out)
{
    fprintf(out, "%*s%s\n", indent, "", cells[0]);
    for (size_t c = 1; c < table->n_columns; c++) {
        const char *const title = table->columns[c].title;
        if (cells[c][0] != '\0')
            fprintf(out, "%*s%s%s%s\n", indent + GAP, "", title != NULL ? title : "", title != NULL && title[0] != '\0' ? ": " : "",
                    cells[c]);
    }
}

static void name_dropped(const apr_table *table, const table_shape *shape, FILE *out)
{
    bool has_some = false;

    for (size_t c = 0; c < table->n_columns; c++) {
        const char *const title = table->columns[c].title;
        if (!shape->is_dropped[c] || title == NULL || title[0] == '\0') continue;
        if (!has_some) fprintf(out, "%*s%scolumns not shown: ", shape->indent, "", apr_dim(out));
        fprintf(out, "%s%s", has_some ? ", " : "", title);
        has_some = true;
    }
    if (has_some) fprintf(out, "; use a wider terminal or --json%s\n", apr_plain(out));
}

apr_status apr_table_print(apr_table *table, FILE *out, int indent, apr_error *err)
{
    const ptrdiff_t n_rows = (ptrdiff_t)((table->n_cells + table->n_columns - 1) / table->n_columns);
    const ptrdiff_t first = table->columns[0].title != NULL ? -1 : 0;
    const char *cells[APR_TABLE_MAX_COLUMNS];
    table_shape shape = {.n_columns = table->n_columns, .indent = indent};

    if (table->failed) {
        apr_table_close(table);
        return apr_no_memory(err, "a table");
    }
    measure(table, first, n_rows, &shape);
    const bool fits = fit(table, &shape, apr_terminal_columns(out));
    for (ptrdiff_t r = fits ? first : 0; r < n_rows; r++) {
        get_row(table, r, cells);
        fputs(r < 0 ? apr_bold(out) : "", out);
        if (fits) print_row(table, &shape, cells, out);
        else print_block(table, cells, indent, out);
        fputs(r < 0 ? apr_plain(out) : "", out);
    }
    if (fits) name_dropped(table, &shape, out);
    apr_table_close(table);
    return APR_OK;
}
