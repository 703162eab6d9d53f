/* verify.h - `aprrun verify`: is this still the same model? Shows the results of runtime/check/verify.h. */
#ifndef APR_VERBS_VERIFY_H
#define APR_VERBS_VERIFY_H

#include "formats/files/out.h"
#include "runtime/check/verify.h"
#include "tools/verbs/run/running.h"

#include <stdio.h>

/* A report and its two models, for the printers. */
typedef struct apr_verify_shown {
    const apr_verify_report *report;
    const apr_running *reference, *other;
} apr_verify_shown;

/* A check as a person reads it. */
typedef struct apr_verify_line {
    const char *id, *title;
    char found[160], bound[96]; /* bound may be empty */
    char where[512];            /* of the first failure, or empty */
} apr_verify_line;

apr_verify_line apr_verify_line_of(const apr_verify_report *report, const apr_verify_check *check);

/* Types of the model's matrices with their share of the parameters, most first: "q4_k 71 %, q6_k 29 %". Returns text. */
char *apr_verify_types_text(const apr_model *model, char *text, size_t capacity);

/* One page without external files, into an opened file. */
apr_status apr_verify_html(const apr_verify_shown *shown, apr_out *page, apr_error *err);
/* Marks a page of aprrun verify, in its head: a later run replaces only a file with this mark. */
#define APR_VERIFY_HTML_MARK "content=\"aprrun verify\""

/* The chart of errors by layer. bars: [n_layers + 1] errors; the last is that of embeddings and head. line: [n_line] errors after the embeddings and after each
 * layer, or NULL. bound NaN: none. */
void apr_picture_layers(FILE *out, const double *bars, int64_t n_layers, const double *line, size_t n_line, double bound);

#endif
