/* table.h - aligned text tables. Cells are added row by row; each column becomes as wide as its widest cell.
 *
 * Control characters in cells are escaped (names in files may contain anything), and widths are measured in terminal columns. A
 * left-aligned last column is not padded. If memory runs out, apr_table_print reports it.
 *
 * On a terminal a table is never wider than the terminal. It is made to fit by these steps, as many as needed: (1) left-aligned columns
 * become narrower, the widest first; text is wrapped, and a word that is too long loses its middle. (2) Columns with `drops` are left
 * out and named under the table. (3) Each row becomes a block of lines, one for each column. Numbers are never shortened. If the output
 * is not a terminal, a table is as wide as its cells. */
#ifndef APR_TOOLS_TABLE_H
#define APR_TOOLS_TABLE_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>
#include <stdio.h>

enum { APR_TABLE_MAX_COLUMNS = 12 };

typedef struct apr_column {
    const char *title; /* all NULL: no title line */
    bool right;        /* right-aligned, for numbers */
    bool drops;        /* may be left out on a narrow terminal */
    bool verdict;      /* holds "pass", "FAIL" or "note": coloured on a terminal */
    const char *key;   /* in JSON (report.h); NULL: not there */
    int decimals;      /* of numbers (apr_report_real) */
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
/* Adds the next cell. A new row begins after n_columns cells. */
void apr_table_cell(apr_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints the table with `indent` spaces before each line, and closes it. An incomplete last row is filled up with empty cells. */
apr_status apr_table_print(apr_table *table, FILE *out, int indent, apr_error *err);
void apr_table_close(apr_table *table);

#endif
