/* table.c - collects cells. */
#include "tools/report/table.h"

#include "tools/report/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void apr_table_start(apr_table *table, const apr_column *columns, size_t n_columns)
{
    *table = (apr_table){.columns = columns, .n_columns = n_columns};
}

static bool reserve_cell(apr_table *table)
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
    const char *const cell = reserve_cell(table) ? apr_arena_copy(&table->arena, clean, strlen(clean)) : NULL;
    if (cell == NULL) table->failed = true;
    else table->cells[table->n_cells++] = cell;
}

void apr_table_close(apr_table *table)
{
    free(table->cells);
    apr_arena_close(&table->arena);
    *table = (apr_table){.columns = table->columns, .n_columns = table->n_columns};
}
