/* plan_lines.h - prints the plans of a run as text and as JSON. A place is a GPU or the host; each has its own plan. */
#ifndef APR_TOOLS_PLAN_LINES_H
#define APR_TOOLS_PLAN_LINES_H

#include "formats/base/json.h"
#include "runtime/plan/plans.h"

/* A table of the plan's lines; no verdict. */
apr_status apr_plan_table(const apr_plan *plan, apr_error *err);
/* For a terminal: the same in a few groups (weights, keys and values, activations, workspace, CUDA ...), each with its parts. */
apr_status apr_plan_summary(const apr_plan *plan, apr_error *err);
/* "fits in 12.00 GiB; ..." or "does not fit: ..." of one plan. Prints nothing if the plan has no budget. */
void apr_plan_verdict(const apr_plan *plan);
/* Is the context longer than the model's own? The warning is one line on stderr. */
bool apr_plan_is_beyond_model(const apr_plan *plan);
void apr_plan_warn_of_context(const apr_plan *plan);

/* Adds fields to an open object. One place: the plan's fields. Several: their common fields, and an array "places". */
void apr_plans_json(apr_json_text *json, const apr_plans *plans);

/* What a token costs, in words: "each token moves 8.00 KiB to the GPU and ..." Returns text, for which 192 bytes are enough. */
char *apr_cost_text(const apr_partition_cost *cost, char *text, size_t n_bytes);
void apr_cost_json(apr_json_text *json, const apr_partition_cost *cost);

#endif
