/* table.c - collects cells. */
#include "tools/report/table.h"

#include "formats/base/grow.h"
#include "tools/report/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void apr_table_start(apr_table *table, const apr_column *columns, size_t n_columns)
{
    *table = (apr_table){.columns = columns, .n_columns = n_columns};
}

void apr_table_cell(apr_table *table, const char *format, ...)
{
    char raw[1024], clean[2 * sizeof raw];
    va_list args;

    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    apr_clean_text(clean, sizeof clean, raw, strlen(raw));
    const char **const cells = apr_grow(table->cells, &table->capacity, table->n_cells + 1, sizeof *cells);
    if (cells != NULL) table->cells = cells;
    const char *const cell = cells != NULL ? apr_arena_copy(&table->arena, clean, strlen(clean)) : NULL;
    if (cell == NULL) table->failed = true;
    else table->cells[table->n_cells++] = cell;
}

void apr_table_close(apr_table *table)
{
    free(table->cells);
    apr_arena_close(&table->arena);
    *table = (apr_table){.columns = table->columns, .n_columns = table->n_columns};
}
