/* bench_html.h - what `aprrun bench` found, as one HTML page with pictures. */
#ifndef APR_TOOLS_BENCH_HTML_H
#define APR_TOOLS_BENCH_HTML_H

#include "formats/base/out.h"
#include "tools/run/bench_many.h"
#include "tools/run/bench_print.h"

/* By these words in its head a page is known to be one, which the next may replace. */
#define APR_BENCH_PAGE_MARK "content=\"aprrun bench\""

typedef struct apr_bench_shown {
    const apr_bench_result *result;
    const apr_many_figures *many; /* [asked->sequences.n] */
    const apr_many_asked *asked;  /* of no sequences: none were measured */
} apr_bench_shown;

/* Into an opened file. */
apr_status apr_bench_html(const apr_bench_shown *shown, apr_out *page, apr_error *err);

#endif
