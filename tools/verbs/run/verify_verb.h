/* verify_verb.h - `aprrun verify`: is this still the same model? Shows the results of runtime/check/verify.h. */
#ifndef APR_TOOLS_VERIFY_VERB_H
#define APR_TOOLS_VERIFY_VERB_H

#include "formats/files/out.h"
#include "runtime/check/verify.h"
#include "tools/verbs/run/running.h"

/* A report and its two models, for the printers. */
typedef struct apr_verify_shown {
    const apr_verify_report *report;
    const apr_running *reference, *other;
} apr_verify_shown;

/* --- texts (verify_text.c) --- */

/* A check as a person reads it. */
typedef struct apr_verify_line {
    const char *id, *title;
    char found[160], bound[96]; /* bound may be empty */
    char where[512];            /* of the first failure, or empty */
} apr_verify_line;

apr_verify_line apr_verify_line_of(const apr_verify_report *report, const apr_verify_check *check);

/* Types of the model's matrices with their share of the parameters, most first: "q4_k 71 %, q6_k 29 %". Returns text. */
char *apr_verify_types_text(const apr_model *model, char *text, size_t capacity);

/* --- printers --- */

apr_status apr_verify_print(const apr_verify_shown *shown, apr_error *err);
void apr_verify_json(const apr_verify_shown *shown, apr_json_text *json);
/* One page without external files, into an opened file. */
apr_status apr_verify_html(const apr_verify_shown *shown, apr_out *page, apr_error *err);
/* Marks a page of aprrun verify, in its head: a later run replaces only a file with this mark. */
#define APR_VERIFY_HTML_MARK "content=\"aprrun verify\""

#endif
