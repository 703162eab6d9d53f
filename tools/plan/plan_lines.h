/* plan_lines.h - the plans of a question as text and as JSON: one place as before there were several, or place by place. */
#ifndef APR_TOOLS_PLAN_LINES_H
#define APR_TOOLS_PLAN_LINES_H

#include "formats/base/json.h"
#include "runtime/plan/plans.h"

/* A table of the plan's lines; no verdict. */
apr_status apr_plan_table(const apr_plan *plan, apr_error *err);
/* The same in a few groups (weights, keys and values, activations, workspace, CUDA ...), each with the parts that it has, for a terminal. */
apr_status apr_plan_summary(const apr_plan *plan, apr_error *err);
/* "fits in 12.00 GiB; ..." or "does not fit: ..." of one plan; nothing where it is not judged. */
void apr_plan_verdict(const apr_plan *plan);
/* The context is longer than the model's own; one line on stderr says so. */
bool apr_plan_is_beyond_model(const apr_plan *plan);
void apr_plan_warn_of_context(const apr_plan *plan);

/* Fields of an object that is open: of one place the plan's; of several what they have in common, the cost of a token, "places". */
void apr_plans_json(apr_json_text *json, const apr_plans *plans);

/* What a token costs, in words: "each token moves 8.00 KiB to the GPU and ..." Returns text, for which 192 bytes are enough. */
char *apr_cost_text(const apr_partition_cost *cost, char *text, size_t n_bytes);
void apr_cost_json(apr_json_text *json, const apr_partition_cost *cost);

#endif
