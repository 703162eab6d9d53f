/* table.h - aligned tables on a terminal: cells come row by row, columns become as wide as their widest cell.
 *
 * Cells are cleaned (a file's names may hold anything) and measured in terminal columns. The last column, when it is
 * left-aligned, is not padded. Running out of memory is remembered and reported by apr_table_print.
 *
 * On a terminal a table is never wider than it. In this order, as far as it takes: left-aligned columns become narrower, the widest
 * first (words go on in the next line, a word that is too long loses its middle); columns that may be left out are left out and named
 * under the table; each row becomes a block of lines, one for each column. Numbers are never shortened. Elsewhere a table is as wide
 * as its cells. */
#ifndef APR_TOOLS_TABLE_H
#define APR_TOOLS_TABLE_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>
#include <stdio.h>

enum { APR_TABLE_MAX_COLUMNS = 12 };

typedef struct apr_column {
    const char *title; /* all NULL: no line of titles */
    bool right;        /* numbers are aligned right */
    bool drops;        /* may be left out where the terminal is too narrow */
    bool verdict;      /* "pass", "FAIL", "note": coloured on a terminal */
} apr_column;

typedef struct apr_table {
    const apr_column *columns; /* borrowed */
    size_t n_columns;
    const char **cells; /* [n_cells], row by row */
    size_t n_cells, capacity;
    apr_arena arena;
    bool failed;
} apr_table;

void apr_table_start(apr_table *table, const apr_column *columns, size_t n_columns);
/* The next cell; after n_columns of them the next row begins. */
void apr_table_cell(apr_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints with `indent` spaces in front and closes the table. A row that was begun is filled up with empty cells. */
apr_status apr_table_print(apr_table *table, FILE *out, int indent, apr_error *err);
void apr_table_close(apr_table *table);

#endif
