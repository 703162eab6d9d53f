/* bench_html.h - the results of `aprrun bench` as one HTML page with pictures. */
#ifndef APR_TOOLS_BENCH_HTML_H
#define APR_TOOLS_BENCH_HTML_H

#include "formats/files/out.h"
#include "tools/engine/bench/bench_concurrency.h"
#include "tools/verbs/run/bench_print.h"

/* Marks a page of aprrun bench, in its head: a later run replaces only a file with this mark. */
#define APR_BENCH_HTML_MARK "content=\"aprrun bench\""

typedef struct apr_bench_shown {
    const apr_bench_result *result;
    const apr_concurrency_result *many;   /* [asked->sequences.n] */
    const apr_concurrency_options *asked; /* sequences.n is 0: none were measured */
} apr_bench_shown;

/* Into an opened file. */
apr_status apr_bench_html(const apr_bench_shown *shown, apr_out *page, apr_error *err);

#endif
