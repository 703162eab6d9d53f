/* quant_report.h - prints what a quantization did, as text, as JSON and as an HTML page: importance, error feedback, chosen types, sums. */
#ifndef APR_VERBS_QUANT_REPORT_H
#define APR_VERBS_QUANT_REPORT_H

#include "formats/base/json.h"
#include "formats/files/out.h"
#include "tools/engine/heal/heal_run.h"
#include "tools/engine/quantize/allocate.h"
#include "tools/engine/quantize/feedback_run.h"
#include "tools/engine/quantize/quant_sums.h"
#include "tools/report/report.h"
#include "tools/verbs/page.h"

/* Which matrices of a conversion an imatrix covers: "importance"; nothing if no imatrix was given. */
void apr_importance_report(apr_report *r, const apr_conversion *conversion);

/* The chosen types and the measurements behind them: "allocation". */
void apr_allocation_report(apr_report *r, const apr_allocation *a);

/* Error feedback, and healing after it (NULL: none). Dry run: memory and multiplications needed. Otherwise: the result for the tensors, and
 * what healing changed, or why it did not. "feedback" and "healing". */
void apr_feedback_report(apr_report *r, const apr_feedback_run *run, const apr_heal_run *heal, bool dry_run);

/* "by_purpose" and "by_layer". */
void apr_quant_sums_json(apr_json_text *json, const apr_quant_sums *sums);

/* --- the page --- */

/* Does its encoder use importance, and the imatrix has none for it? */
static inline bool apr_item_is_bare(const apr_pipe_item *item) { return apr_item_uses_importance(item) && item->importance == NULL; }
/* "q4_k 0.0123  q5_k 0.00401": what was measured for a group. Returns text. */
const char *apr_allocate_offers_text(const apr_allocate_group *group, char *text, size_t capacity);
/* The sections on error feedback and on healing. */
void apr_feedback_run_html(const apr_feedback_run *run, const apr_heal_run *heal, FILE *page);

#define APR_QUANT_HTML_MARK "content=\"aprquant report\"" /* in every report's head; see apr_html_open */

/* The contents of the HTML report. */
typedef struct apr_quant_shown {
    const char *in, *out;
    const apr_conversion *conversion;
    const apr_quant_sums *sums;
    const apr_feedback_run *feedback; /* NULL: no error feedback */
    const apr_heal_run *heal;         /* NULL: no healing */
    const apr_page_about *about;
    const apr_allocation *allocation; /* NULL: types were not chosen by divergence */
} apr_quant_shown;

apr_status apr_quant_html(const apr_quant_shown *shown, apr_out *page, apr_error *err);

#endif
