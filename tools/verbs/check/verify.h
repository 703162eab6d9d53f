/* verify.h - `aprrun verify`: is this still the same model? Shows the results of runtime/check/verify.h. */
#ifndef APR_VERBS_VERIFY_H
#define APR_VERBS_VERIFY_H

#include "formats/files/out.h"
#include "runtime/check/verify.h"
#include "tools/verbs/page.h"
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

/* What all checks say together. */
typedef enum {
    APR_GRADE_IDENTICAL,
    APR_GRADE_SAME_VALUES,
    APR_GRADE_TYPES_ALLOW, /* the differences are those that its types cause */
    APR_GRADE_WORSE,
    APR_GRADE_OTHER_MODEL
} apr_verify_grade;

typedef struct apr_verify_graded {
    apr_verify_grade grade;
    const char *id;     /* in JSON */
    char name[128];     /* "as good as q4_k and q6_k allow" */
    char sentence[400]; /* why, in plain words */
} apr_verify_graded;

apr_verify_graded apr_verify_grade_of(const apr_verify_shown *shown);

/* One page without external files, into an opened file. */
apr_status apr_verify_html(const apr_verify_shown *shown, const apr_page_about *about, apr_out *page, apr_error *err);
/* Marks a page of aprrun verify, in its head: a later run replaces only a file with this mark. */
#define APR_VERIFY_HTML_MARK "content=\"aprrun verify\""

#endif
