/* verify.h - `aprrun verify`: is this still the model that went in? The report that the checks fill and the printers show. */
#ifndef APR_TOOLS_VERIFY_H
#define APR_TOOLS_VERIFY_H

#include "formats/base/out.h"
#include "formats/base/progress.h"
#include "runtime/check/compare.h"
#include "runtime/check/parity.h"
#include "tools/run/running.h"

extern const apr_option apr_verify_options[];
extern const size_t apr_verify_options_bytes;
extern const char *const apr_verify_examples[];

apr_status apr_run_verify(const apr_call *call, apr_error *err);

enum { APR_VERIFY_MAX_CHECKS = 24, APR_VERIFY_MAX_ANSWERS = 8, APR_VERIFY_MAX_TEXTS = 2 };

typedef enum { APR_VERDICT_NOTED, APR_VERDICT_PASS, APR_VERDICT_FAIL } apr_verdict; /* noted: shown, not judged */

typedef struct apr_verify_check {
    const char *id, *title;
    apr_verdict verdict;
    char found[160], bound[96]; /* as a person reads them; bound may be empty */
    char where[512];            /* of the first failure, or empty */
} apr_verify_check;

/* The divergence on one text. */
typedef struct apr_verify_text_result {
    char name[128];
    apr_divergence d;
    apr_divergence control; /* the reference against itself in the model's types; has_control */
    bool has_control;
    double bound; /* of the mean; NAN: not judged */
} apr_verify_text_result;

typedef struct apr_verify_answer {
    char *prompt, *truth, *other; /* malloc'ed */
    int64_t n_truth, n_same;      /* tokens of the reference's answer; of the start that is the same */
    bool same;
} apr_verify_answer;

typedef struct apr_verify_report {
    const apr_running *truth, *other;
    const char *backend;    /* that runs both */
    apr_session_usage used; /* by the model's session, before the reference's was opened */
    apr_weights tensors;    /* pairs of weights, and the control */
    apr_verify_check checks[APR_VERIFY_MAX_CHECKS];
    size_t n_checks;
    apr_verify_text_result texts[APR_VERIFY_MAX_TEXTS];
    size_t n_texts;
    apr_verify_answer answers[APR_VERIFY_MAX_ANSWERS];
    size_t n_answers;
    bool same_shape;            /* both can be run in step */
    apr_parity_result weights;  /* the two models from the same input; n_judged 0: not comparable */
    apr_parity_result backends; /* reference and backend on the model */
    double *drift;              /* [n_drift] relative error of the hidden states after each layer, both models on their own */
    size_t n_drift;
    bool failed;
} apr_verify_report;

/* A new check at the end of the list. */
apr_verify_check *apr_verify_add(apr_verify_report *report, const char *id, const char *title);
void apr_verify_pass(apr_verify_report *report, apr_verify_check *check, bool passed);
void apr_verify_close(apr_verify_report *report);

/* --- verify_checks.c: each adds its checks. A status is what kept it from judging, not a bad judgement. --- */

typedef struct apr_verify_input {
    const char *text_path; /* NULL: only the built-in text */
    int64_t window, n_answer;
    uint64_t control_limit; /* memory for the control */
    apr_progress progress;
} apr_verify_input;

apr_status apr_verify_vocabulary(apr_verify_report *report, apr_error *err);
apr_status apr_verify_facts(apr_verify_report *report, apr_error *err);
apr_status apr_verify_tensors(apr_verify_report *report, const apr_verify_input *input, apr_error *err);
apr_status apr_verify_operations(apr_verify_report *report, apr_error *err);
apr_status apr_verify_divergence(apr_verify_report *report, const apr_verify_input *input, apr_error *err);
apr_status apr_verify_answers(apr_verify_report *report, const apr_verify_input *input, apr_error *err);
apr_status apr_verify_backends(apr_verify_report *report, apr_error *err);
apr_status apr_verify_memory(apr_verify_report *report, apr_error *err);

/* Predicted and measured bytes of a run, part by part. */
typedef struct apr_verify_memory_part {
    const char *label;
    uint64_t predicted, measured;
} apr_verify_memory_part;
enum { APR_VERIFY_MEMORY_PARTS = 6 };
void apr_verify_memory_parts(const apr_verify_report *report, apr_verify_memory_part parts[APR_VERIFY_MEMORY_PARTS]);
/* Of the whole run: on a device as the driver says; 0 measured: it does not say. */
apr_verify_memory_part apr_verify_memory_total(const apr_verify_report *report);

/* --- printers --- */

apr_status apr_verify_print(const apr_verify_report *report, apr_error *err);
void apr_verify_json(const apr_verify_report *report, apr_json_text *json);
/* One page that needs nothing else, into an opened file. */
apr_status apr_verify_html(const apr_verify_report *report, apr_out *page, apr_error *err);
/* By these words in its head a page is known to be one, which the next may replace. */
#define APR_VERIFY_PAGE_MARK "content=\"aprrun verify\""

/* Types of the model's matrices with their share of the parameters, most first: "q4_k 71 %, q6_k 29 %". Returns text. */
char *apr_verify_types_text(const apr_model *model, char *text, size_t capacity);

#endif
