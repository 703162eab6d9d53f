/* page.h - reports as one HTML page: no script, nothing from elsewhere, light and dark. What all pages share. */
#ifndef APR_TOOLS_PAGE_H
#define APR_TOOLS_PAGE_H

#include "formats/base/out.h"
#include "tools/cli/table.h"

#include <stdio.h>

/* Text with what HTML reserves written out. */
void apr_html_text(FILE *out, const char *text);
/* The last part of a path. */
const char *apr_page_base_name(const char *path);

/* Up to the beginning of <main>: title "NAME - WHAT". mark: `content="..."` of the generator, by which a page is known as one that may be
 * replaced (apr_out_renew). */
void apr_page_open(FILE *out, const char *mark, const char *name, const char *what);
/* One of the figures in <div class="tiles">; what: HTML. */
void apr_page_tile(FILE *out, const char *figure, const char *what);
/* A table with titles, which must not have failed, as it would be printed. */
void apr_page_table(FILE *out, const apr_table *table);

/* What `write` writes, into the page; APR_E_MEMORY, or what writing answers. */
apr_status apr_page_write(void (*write)(FILE *out, const void *shown), const void *shown, apr_out *page, apr_error *err);
/* The end of a run that writes a page (NULL: none) and ended so: finished, also when the answer is no, for the page says why; else
 * abandoned. The run's status, or what finishing answers. */
apr_status apr_page_close(apr_out *page, apr_status status, apr_error *err);

#endif
