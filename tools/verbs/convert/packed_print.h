/* packed_print.h - reports how matrices stored in packed schemes (FP8, GPTQ, AWQ, ...) were converted: losslessly, or with which difference. */
#ifndef APR_TOOLS_PACKED_PRINT_H
#define APR_TOOLS_PACKED_PRINT_H

#include "convert/convert.h"
#include "tools/report/report.h"

/* A line for each scheme and target type; nothing if there are none. "lossless" is printed only if the run has compared every value.
 * "packed": [{"scheme", "to", "matrices", "values", "same_numbers", "different", "worst_relative_difference"}, ...] */
void apr_packed_report(apr_report *r, const apr_conversion *conversion, bool dry_run);

#endif
