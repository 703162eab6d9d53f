/* verify_pictures.h - the pictures of the report's page, as SVG with the page's colours. */
#ifndef APR_TOOLS_VERIFY_PICTURES_H
#define APR_TOOLS_VERIFY_PICTURES_H

#include "tools/verbs/run/verify_verb.h"

#include <stdio.h>

void apr_picture_divergence(FILE *out, const apr_divergence *d, double bound);
/* bars: [n_layers + 1] errors; the last is that of embeddings and head. line: [n_line] errors after the embeddings and after each
 * layer, or NULL. bound NaN: none. */
void apr_picture_layers(FILE *out, const double *bars, int64_t n_layers, const double *line, size_t n_line, double bound);
void apr_picture_memory(FILE *out, const apr_verify_memory_part *parts, size_t n_parts);

#endif
