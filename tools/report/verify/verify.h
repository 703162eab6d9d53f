/* verify.h - shows the results of runtime/check/verify.h: lines for people, a grade, JSON, a page. */
#ifndef APR_TOOLS_VERIFY_H
#define APR_TOOLS_VERIFY_H

#include "formats/base/json.h"
#include "runtime/check/verify.h"
#include "tools/report/page.h"

/* A model that was compared: as read, and its canonical view. */
typedef struct apr_verify_side {
    const apr_model *source, *model;
} apr_verify_side;

typedef struct apr_verify_shown {
    const apr_verify_report *report;
    apr_verify_side reference, other;
} apr_verify_shown;

/* A check as a person reads it. */
typedef struct apr_verify_line {
    const char *id, *title;
    char found[224], bound[96]; /* bound may be empty */
    char where[512];            /* of the first failure, or empty */
} apr_verify_line;

apr_verify_line apr_verify_line_of(const apr_verify_report *report, const apr_verify_check *check);

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
/* If a check failed, fails with a sentence: the grade, what failed first, and where. */
apr_status apr_verify_verdict(const apr_verify_shown *shown, apr_error *err);

/* The members of the answer's object; and all of it, malloc'ed, NULL: no memory. */
void apr_verify_json(const apr_verify_shown *shown, apr_json_text *json);
char *apr_verify_document(const apr_verify_shown *shown);

/* One page without external files, malloc'ed. command: that made it, or NULL. */
apr_status apr_verify_html(const apr_verify_shown *shown, const apr_page_options *options, const char *command, char **text,
                           size_t *n_bytes, apr_error *err);
/* Marks a page of aprrun verify, in its head: a later run replaces only a file with this mark. */
#define APR_VERIFY_HTML_MARK "content=\"aprrun verify\""

#endif
