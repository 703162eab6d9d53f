/* verify_verb.h - `aprrun verify`: is this still the model that went in? Shows what runtime/check/verify.h finds out. */
#ifndef APR_TOOLS_VERIFY_VERB_H
#define APR_TOOLS_VERIFY_VERB_H

#include "formats/base/out.h"
#include "runtime/check/verify.h"
#include "tools/run/running.h"

extern const apr_option apr_verify_options[];
extern const size_t apr_verify_options_bytes;
extern const char *const apr_verify_examples[];

apr_status apr_run_verify(const apr_call *call, apr_error *err);

/* The two models of a report, as the printers name them. */
typedef struct apr_verify_shown {
    const apr_verify_report *report;
    const apr_running *truth, *other;
} apr_verify_shown;

/* --- words (verify_words.c) --- */

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
/* One page that needs nothing else, into an opened file. */
apr_status apr_verify_html(const apr_verify_shown *shown, apr_out *page, apr_error *err);
/* By these words in its head a page is known to be one, which the next may replace. */
#define APR_VERIFY_PAGE_MARK "content=\"aprrun verify\""

#endif
