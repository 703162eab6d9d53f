/* html.h - what all HTML reports share. A report is one HTML file without programs or external files, with a
 * light and a dark style, for screens of 360 to 1,400 pixels. */
#ifndef APR_TOOLS_HTML_H
#define APR_TOOLS_HTML_H

#include "formats/files/out.h"
#include "tools/report/table.h"

#include <stdio.h>

/* Writes text with HTML's special characters escaped. */
void apr_html_text(FILE *out, const char *text);
/* The same for a part of a text of several lines: line ends and tabs stay. */
void apr_html_lines(FILE *out, const char *text, size_t n_bytes);
/* printf for HTML: the format is HTML, and each %s is text, which is escaped. Conversions: s d u f g x, without '*'; sizes: none, ll, z. */
void apr_html_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The part of a path after the last '/'. */
const char *apr_html_base_name(const char *path);

/* Writes everything up to <main>, with the title "NAME - WHAT". mark: the attribute `content="..."` of <meta name="generator">. An existing
 * file with this mark may be replaced (apr_out_open_marked). */
void apr_html_open(FILE *out, const char *mark, const char *name, const char *what);
/* One figure in <div class="tiles">; what: its label, HTML. */
void apr_html_tile(FILE *out, const char *figure, const char *what);

/* A heading that the page's list of contents has. */
void apr_html_section(FILE *out, const char *title);
/* The place of that list: it appears there when the page has more than three sections. */
void apr_html_contents(FILE *out);
/* A whole page in memory, malloc'ed and NUL-terminated: what `write` writes, with its list of contents. *text is NULL after a failure. */
apr_status apr_html_page(void (*write)(FILE *out, const void *shown), const void *shown, char **text, size_t *n_bytes, apr_error *err);

/* A table of columns with titles. On narrow screens each row becomes a block of lines, with the title before each value. The caller writes
 * <table>, <tr> and </td>. */
void apr_html_titles(FILE *out, const apr_column *columns, size_t n_columns);
void apr_html_cell(FILE *out, const apr_column *column);
/* The same table as apr_table_print prints. It must have titles and must not have failed. */
void apr_html_table(FILE *out, const apr_table *table);
/* The values of a chart: the table, folded. Closes it; a table that failed is left out. */
void apr_html_values(FILE *out, apr_table *table);

/* Ends a run that writes a report. page NULL: it writes none. If `status` is APR_OK or APR_E_NO the file is finished (the report says
 * why the answer is no), otherwise it is abandoned. Returns `status`, or the error of finishing. */
apr_status apr_html_close(apr_out *page, apr_status status, apr_error *err);

#endif
