/* quant_report.h - what a conversion made of its tensors, added up by layer and by what they are for; and that as a page. */
#ifndef APR_TOOLS_QUANT_REPORT_H
#define APR_TOOLS_QUANT_REPORT_H

#include "convert/convert.h"
#include "formats/base/out.h"
#include "tools/conv/allocating.h"
#include "tools/conv/feedback_run.h"

#define APR_QUANT_PAGE_MARK "content=\"aprquant report\"" /* how a page says that it is one */

/* Of some tensors together. */
typedef struct apr_quant_sum {
    const char *name; /* of the purpose; NULL: of a layer */
    int64_t layer;    /* -1: of no layer */
    size_t n_tensors, n_changed;
    uint64_t bytes_before, bytes_after;
    apr_metrics metrics; /* of those that were measured */
} apr_quant_sum;

typedef struct apr_quant_sums {
    apr_quant_sum all, *purposes, *layers; /* layers: [n_layers + 1], the last of what is in none */
    size_t n_purposes;                     /* those that have tensors, the largest first */
    int64_t n_layers;
    apr_arena arena;
} apr_quant_sums;

/* Of a conversion that was run with want_metrics. */
apr_status apr_quant_sums_of(apr_quant_sums *sums, const apr_conversion *conversion, apr_error *err);
void apr_quant_sums_close(apr_quant_sums *sums);

/* "by_purpose" and "by_layer". */
void apr_quant_sums_json(apr_json_text *json, const apr_quant_sums *sums);

/* The item of the conversion that each line of its recipe became: item is that of the line before, or SIZE_MAX. */
size_t apr_quant_next_item(const apr_conversion *conversion, size_t item);

/* What the page shows. */
typedef struct apr_quant_shown {
    const char *in, *out;
    const apr_conversion *conversion;
    const apr_quant_sums *sums;
    const apr_feedback_run *feedback; /* NULL: each block for itself */
    const apr_allocation *allocation; /* NULL: types were not chosen by damage */
} apr_quant_shown;

apr_status apr_quant_html(const apr_quant_shown *shown, apr_out *page, apr_error *err);

#endif
