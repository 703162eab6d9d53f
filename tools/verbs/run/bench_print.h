/* bench_print.h - the results of `aprrun bench` as text, JSON, CSV or an HTML page. */
#ifndef APR_TOOLS_BENCH_PRINT_H
#define APR_TOOLS_BENCH_PRINT_H

#include "formats/files/out.h"
#include "runtime/session/speed.h"
#include "tools/engine/bench/bench_concurrency.h"
#include "tools/report/report.h"
#include "tools/verbs/page.h"
#include "tools/verbs/run/memory_print.h"

typedef struct apr_bench_result {
    const char *name, *dtype; /* dtype NULL: a real model */
    char gpu[256];            /* "": the host */
    const apr_session *session;
    int64_t n_elems;
    uint64_t n_bytes;     /* of weights, by the plan */
    uint64_t token_reads; /* bytes of weights that one token needs */
    double ceiling;       /* measured read rate of the memory that holds them, bytes per second; 0: several places, or not measured */
    uint64_t cache_bytes; /* of the last cache before that memory; 0: not known */
    double link;          /* measured rate of copies from pinned memory to the device, bytes per second; 0: no device, or not measured */
    const apr_speed_stage *stages;
    size_t n_stages;
    int n_runs;
    bool finite;
    double made_s, opened_s;
    apr_footprint footprint;
} apr_bench_result;

/* All that was measured. */
typedef struct apr_bench_shown {
    const apr_bench_result *result;
    const apr_concurrency_result *many;   /* [asked->sequences.n] */
    const apr_concurrency_options *asked; /* sequences.n is 0: none were measured */
} apr_bench_shown;

/* As text or JSON. */
apr_status apr_bench_report(const apr_bench_shown *shown, apr_answer *answer, apr_error *err);
void apr_bench_csv(const apr_bench_shown *shown, FILE *out);

/* Marks a page of aprrun bench, in its head: a later run replaces only a file with this mark. */
#define APR_BENCH_HTML_MARK "content=\"aprrun bench\""

/* One page with pictures, into an opened file. */
apr_status apr_bench_html(const apr_bench_shown *shown, const apr_page_about *about, apr_out *page, apr_error *err);

#endif
