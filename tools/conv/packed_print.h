/* packed_print.h - what became of numbers that lay in several tensors: the same ones in blocks, counted, or values, and why. */
#ifndef APR_TOOLS_PACKED_PRINT_H
#define APR_TOOLS_PACKED_PRINT_H

#include "convert/convert.h"
#include "tools/cli/cli.h"

/* A line for each scheme and type; nothing where there is nothing to say. "lossless" is said of what a run has compared, value by value. */
void apr_print_packed(const apr_conversion *conversion, bool dry_run);
/* "packed": [{"scheme", "to", "matrices", "values", "same_numbers", "different", "worst_relative_difference"}, ...] */
void apr_json_packed(apr_json_text *json, const apr_conversion *conversion, bool dry_run);

#endif
