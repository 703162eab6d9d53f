/* table.c - aligned tables on a terminal: collect the cells, measure the columns, print. */
#include "tools/cli/table.h"

#include "tools/cli/text.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void apr_table_start(apr_table *table, const apr_column *columns, size_t n_columns)
{
    *table = (apr_table){.columns = columns, .n_columns = n_columns};
}

static bool make_room(apr_table *table)
{
    if (table->n_cells < table->capacity) return true;
    const size_t capacity = table->capacity ? 2 * table->capacity : 64;
    const char **const cells = realloc(table->cells, capacity * sizeof *cells);
    if (cells == NULL) return false;
    table->cells = cells;
    table->capacity = capacity;
    return true;
}

void apr_table_cell(apr_table *table, const char *format, ...)
{
    char raw[1024], clean[2 * sizeof raw];
    va_list args;

    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    apr_clean_text(clean, sizeof clean, raw, strlen(raw));
    const char *const cell = make_room(table) ? apr_arena_copy(&table->arena, clean, strlen(clean)) : NULL;
    if (cell == NULL) table->failed = true;
    else table->cells[table->n_cells++] = cell;
}

/* One line; nothing is padded behind the last cell that holds something. */
static void print_line(const apr_table *table, const char *const *cells, const int *widths, int indent, FILE *out)
{
    size_t n_columns = table->n_columns;
    while (n_columns > 0 && cells[n_columns - 1][0] == '\0') n_columns--;

    for (size_t c = 0; c < n_columns; c++) {
        const int padding = widths[c] - apr_text_columns(cells[c]);
        const bool right = table->columns[c].right, is_last = c + 1 == n_columns;
        fprintf(out, "%*s%*s%s%*s", c == 0 ? indent : 2, "", right ? padding : 0, "", cells[c], right || is_last ? 0 : padding, "");
    }
    fputs("\n", out);
}

/* Row r, or the titles when r is negative. */
static void get_row(const apr_table *table, ptrdiff_t r, const char **cells)
{
    for (size_t c = 0; c < table->n_columns; c++) {
        const size_t i = (size_t)r * table->n_columns + c;
        cells[c] = r < 0 ? table->columns[c].title : i < table->n_cells ? table->cells[i] : "";
    }
}

apr_status apr_table_print(apr_table *table, FILE *out, int indent, apr_error *err)
{
    const ptrdiff_t n_rows = (ptrdiff_t)((table->n_cells + table->n_columns - 1) / table->n_columns);
    const ptrdiff_t first = table->columns[0].title != NULL ? -1 : 0;
    const char *cells[APR_TABLE_MAX_COLUMNS];
    int widths[APR_TABLE_MAX_COLUMNS] = {0};

    if (table->failed) {
        apr_table_close(table);
        return apr_no_memory(err, "a table");
    }
    for (ptrdiff_t r = first; r < n_rows; r++) {
        get_row(table, r, cells);
        for (size_t c = 0; c < table->n_columns; c++) {
            const int width = apr_text_columns(cells[c]);
            if (width > widths[c]) widths[c] = width;
        }
    }
    for (ptrdiff_t r = first; r < n_rows; r++) {
        get_row(table, r, cells);
        fputs(r < 0 ? apr_bold(out) : "", out);
        print_line(table, cells, widths, indent, out);
        fputs(r < 0 ? apr_plain(out) : "", out);
    }
    apr_table_close(table);
    return APR_OK;
}

void apr_table_close(apr_table *table)
{
    free(table->cells);
    apr_arena_close(&table->arena);
    *table = (apr_table){.columns = table->columns, .n_columns = table->n_columns};
}
