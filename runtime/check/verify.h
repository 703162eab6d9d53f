/* runtime/check/verify.h - is this still the model that went in? A model against the one it was made from, check by check.
 *
 * What goes by text (tokens, stop ids, template), what is computed (facts), with which numbers (tensors, weights), each operation from
 * the same input, whole texts, greedy answers, the backend against the reference, memory against the plan. No check has a
 * threshold of its own: how far a type may be off is measured beside it (see weights.h, parity.h, compare.h).
 *
 * The report holds figures and verdicts; whoever shows it has the words. */
#ifndef APR_RUNTIME_VERIFY_H
#define APR_RUNTIME_VERIFY_H

#include "runtime/check/backends.h"
#include "runtime/check/routes.h"
#include "runtime/check/subject.h"

typedef enum {
    APR_VERIFY_TOKENIZER,
    APR_VERIFY_STOP_IDS,
    APR_VERIFY_TEMPLATE,
    APR_VERIFY_FACTS,
    APR_VERIFY_TENSORS,
    APR_VERIFY_WEIGHTS,
    APR_VERIFY_OPERATIONS,
    APR_VERIFY_KL,
    APR_VERIFY_SAME_TOP,
    APR_VERIFY_PERPLEXITY,
    APR_VERIFY_ROUTES, /* choices of experts; only of a model that has some */
    APR_VERIFY_ANSWERS,
    APR_VERIFY_BACKEND,
    APR_VERIFY_MEMORY,
    APR_N_VERIFY_KINDS
} apr_verify_kind;

typedef enum { APR_VERDICT_NOTED, APR_VERDICT_PASS, APR_VERDICT_FAIL } apr_verdict; /* noted: shown, not judged */

typedef struct apr_verify_check {
    apr_verify_kind kind;
    apr_verdict verdict;
    size_t text; /* of the report's texts, where the check is about one */
} apr_verify_check;

enum { APR_VERIFY_MAX_CHECKS = 24, APR_VERIFY_MAX_ANSWERS = 8, APR_VERIFY_MAX_TEXTS = 2 };

/* What both models make of text without being run. */
typedef struct apr_verify_vocabulary {
    size_t n_strings, n_same; /* both 0: not compared, as there is no tokenizer; hard strings, and those that become the same ids in both,
                                 control tokens parsed or not */
    const char *first_other;  /* what the first of the others is, or NULL */
    size_t n_truth, n_other;  /* tokens */
    int32_t first_lost_stop;  /* of the reference's stop ids, one that ends no turn here; -1: none */
    int32_t turn_end;         /* of the checked model: the template ends turns with it, and it is not a stop id; -1: none */
    int32_t first_ordinary_stop; /* an ordinary token that ends a turn here alone; -1: none */
    bool same_template;
} apr_verify_vocabulary;

/* The divergence on one text. */
typedef struct apr_verify_text_result {
    const char *name;
    apr_divergence d;
    apr_divergence control; /* the reference against itself in the model's types; has_control */
    bool has_control;
    apr_route_count routes, control_routes; /* choices of experts on it; nearly equal ones were made as the reference made them */
    double bound;                           /* of the mean; NAN: not judged */
    char *before_largest;                   /* the text up to the largest divergence, where the mean is out of bounds; malloc'ed; or NULL */
    size_t n_before_largest;
} apr_verify_text_result;

typedef struct apr_verify_answer {
    const char *prompt;
    char *truth, *other;     /* malloc'ed */
    int64_t n_truth, n_same; /* tokens of the reference's answer; of the start that is the same */
    bool same;
} apr_verify_answer;

/* A text to compare on beside the built-in one. */
typedef struct apr_verify_passage {
    const char *name, *text;
    size_t n_bytes;
} apr_verify_passage;

typedef struct apr_verify_input {
    apr_subject truth, other;   /* sessions of the same sizes; a context of APR_VERIFY_CONTEXT tokens and a window at least */
    apr_session_usage used;     /* by the other's session, before the reference's was opened */
    apr_verify_passage passage; /* text NULL: only the built-in one */
    int64_t window, n_answer;   /* tokens of a window, each of which begins from nothing; of a greedy answer at most */
    uint64_t control_limit;     /* memory for the control of the weights; 0: none is made, and divergence is not judged */
    bool no_backends;           /* leave out the comparison of the backend with the reference */
    apr_progress progress;
} apr_verify_input;

enum { APR_VERIFY_CONTEXT = 4352 }; /* holds the last position where backends are compared */

typedef struct apr_verify_report {
    const apr_verify_input *input;
    const char *backend; /* that runs both */
    apr_verify_check checks[APR_VERIFY_MAX_CHECKS];
    size_t n_checks;
    bool failed; /* any of them */

    apr_verify_vocabulary vocabulary;
    apr_error other_fact;         /* the first thing that is computed otherwise; APR_OK: none */
    bool same_shape;              /* both can be run in step */
    apr_weights tensors;          /* pairs of weights, and the control */
    apr_parity_result operations; /* the two models from the same input; n_judged 0: not comparable */
    double *drift;                /* [n_drift] relative error of the hidden states after each layer, both models on their own */
    size_t n_drift;
    apr_verify_text_result texts[APR_VERIFY_MAX_TEXTS]; /* none: the vocabularies are of other sizes */
    size_t n_texts;
    apr_verify_answer answers[APR_VERIFY_MAX_ANSWERS];
    size_t n_answers;
    apr_parity_result backends; /* reference and backend on the model */
} apr_verify_report;

/* All checks in order. A status is what kept it from judging, not a bad judgement: that is report->failed. input must outlive the
 * report. A failed or zeroed report may be closed, and must be. */
apr_status apr_verify_run(apr_verify_report *report, const apr_verify_input *input, apr_error *err);
void apr_verify_close(apr_verify_report *report);

/* The first check that failed, or NULL. */
const apr_verify_check *apr_verify_first_failure(const apr_verify_report *report);

/* Predicted and measured bytes of a run, part by part. */
typedef struct apr_verify_memory_part {
    const char *label;
    uint64_t predicted, measured;
} apr_verify_memory_part;
enum { APR_VERIFY_MEMORY_PARTS = 6 };
void apr_verify_memory_parts(const apr_verify_report *report, apr_verify_memory_part parts[APR_VERIFY_MEMORY_PARTS]);
/* Of the whole run: on a device as the driver says; 0 measured: it does not say. */
apr_verify_memory_part apr_verify_memory_total(const apr_verify_report *report);

#endif
