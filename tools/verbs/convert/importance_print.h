/* importance_print.h - prints which matrices of a conversion an imatrix covers, as text and as JSON. */
#ifndef APR_TOOLS_IMPORTANCE_PRINT_H
#define APR_TOOLS_IMPORTANCE_PRINT_H

#include "convert/convert.h"
#include "formats/base/json.h"

/* Both print nothing if no imatrix was given. */
void apr_importance_print(const apr_conversion *conversion);
void apr_importance_json(apr_json_text *json, const apr_conversion *conversion);

#endif
