/* plan_lines.h - what several tools print of plans: a context beyond the model's own, and what a token costs. */
#ifndef APR_TOOLS_PLAN_LINES_H
#define APR_TOOLS_PLAN_LINES_H

#include "runtime/plan/plans.h"
#include "tools/report/report.h"

/* Is the context longer than the model's own? The warning is one line on stderr. */
bool apr_plan_is_beyond_model(const apr_plan *plan);
void apr_plan_warn_of_context(const apr_plan *plan);

/* What a token costs, in words: "each token moves 8.00 KiB to the GPU and ..." Returns text, for which 192 bytes are enough. */
char *apr_cost_text(const apr_partition_cost *cost, char *text, size_t n_bytes);
/* The same as members of JSON. */
void apr_report_cost(apr_report *r, const apr_partition_cost *cost);

#endif
