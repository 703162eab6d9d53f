/* runtime/check/verify.h - compares a converted or quantized model with the model it was made from, check by check.
 *
 * The checks: text (tokens, stop ids, chat template), programs (facts), weights (tensors), each operation on the same input, whole texts,
 * greedy answers, the backend against the reference in float64, and memory against the plan. Thresholds are not fixed: a control measures
 * the error that a type must have (see weights.h, parity.h, compare.h). On the host the four answers of a model are sequences of one more
 * session (subject.h), and the backend's distant position has a cache that is filled after 640 evaluated tokens (parity.h).
 *
 * The report holds figures and verdicts; the caller prints them. */
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
    APR_VERIFY_ROUTES, /* expert choices; only for a mixture of experts */
    APR_VERIFY_ANSWERS,
    APR_VERIFY_BACKEND,
    APR_VERIFY_MEMORY,
    APR_N_VERIFY_KINDS
} apr_verify_kind;

typedef enum { APR_VERDICT_NOTED, APR_VERDICT_PASS, APR_VERDICT_FAIL } apr_verdict; /* noted: shown, neither passes nor fails */

typedef struct apr_verify_check {
    apr_verify_kind kind;
    apr_verdict verdict;
    size_t text; /* index into the report's texts, for the checks on a text */
} apr_verify_check;

enum { APR_VERIFY_MAX_CHECKS = 24, APR_VERIFY_MAX_ANSWERS = 8, APR_VERIFY_MAX_TEXTS = 2 };

/* Tokenizer, stop ids and chat template; no model is evaluated. */
typedef struct apr_verify_vocabulary {
    size_t n_strings, n_same;    /* hard strings, and those that both encode to the same ids, with control tokens parsed and not parsed;
                                 both 0: there is no tokenizer */
    const char *first_other;     /* name of the first string with different ids, or NULL */
    size_t n_reference, n_other; /* tokens of the vocabularies */
    int32_t first_lost_stop;     /* the first stop id of the reference that does not end a turn in the other model; -1: none */
    int32_t turn_end;            /* a token that the other model's template ends turns with, although it is not a stop id; -1: none */
    int32_t first_ordinary_stop; /* an ordinary token that ends a turn only in the other model; -1: none */
    bool same_template;
} apr_verify_vocabulary;

/* The divergence on one text. */
typedef struct apr_verify_text_result {
    const char *name;
    apr_divergence d;
    apr_divergence control; /* the reference against itself with weights in the model's types; valid if has_control */
    bool has_control;
    apr_route_count routes, control_routes; /* expert choices; near ties were forced to the reference's choice */
    double bound;                           /* of the mean; NAN: not checked */
    char *before_largest;                   /* if the mean is out of bounds: the text up to the largest divergence, malloc'ed; else NULL */
    size_t n_before_largest;
} apr_verify_text_result;

typedef struct apr_verify_answer {
    const char *prompt;
    char *reference, *other;     /* malloc'ed */
    int64_t n_reference, n_same; /* tokens of the reference's answer; length of the common prefix */
    bool same;
} apr_verify_answer;

/* A text to compare on, in addition to the built-in one. */
typedef struct apr_verify_extra_text {
    const char *name, *text;
    size_t n_bytes;
} apr_verify_extra_text;

typedef struct apr_verify_input {
    apr_subject reference,
        other; /* sessions of the same sizes; the context is at least one window, and APR_VERIFY_CONTEXT tokens for every check */
    apr_session_usage used;           /* memory of the other's session, measured before the reference's session was opened */
    apr_verify_extra_text extra_text; /* text NULL: only the built-in text */
    int64_t window, n_answer;         /* tokens of a window (begins with an empty KV cache); largest length of a greedy answer */
    uint64_t control_limit;           /* bytes that the control of the weights may use; 0: no control, and divergence is not checked */
    bool no_backends;                 /* skip the comparison of the backend with the reference backend */
    double sample;                    /* share of each matrix's rows in that comparison; 0: all */
    bool shares_heap;                 /* other threads may allocate meanwhile: what the heap says of memory is not checked */
    apr_progress progress;
} apr_verify_input;

/* The built-in text: public-domain English prose, verse, a list and a little code, about 700 tokens. */
extern const char apr_verify_text[];

enum { APR_VERIFY_CONTEXT = 4352 }; /* includes the last position at which backends are compared */

typedef struct apr_verify_report {
    const apr_verify_input *input;
    const char *backend; /* name of the backend that runs both */
    apr_verify_check checks[APR_VERIFY_MAX_CHECKS];
    size_t n_checks;
    bool failed; /* any check failed */

    apr_verify_vocabulary vocabulary;
    apr_error other_fact;         /* the first difference of the programs; APR_OK: none */
    bool same_shape;              /* both programs can run in lockstep */
    apr_weights tensors;          /* pairs of weights, and the control */
    apr_parity_result operations; /* the two models on the same inputs; n_checked 0: not comparable */
    double *drift;                /* [n_drift] relative error of the hidden states after each layer, errors accumulated */
    size_t n_drift;
    apr_verify_text_result texts[APR_VERIFY_MAX_TEXTS]; /* n_texts 0: the vocabularies differ in size */
    size_t n_texts;
    apr_verify_answer answers[APR_VERIFY_MAX_ANSWERS];
    size_t n_answers;
    apr_parity_result backends; /* reference backend and backend on the model */
} apr_verify_report;

/* Runs all checks in order. An error status means that a check could not run; report->failed means that a check did not pass. input must
 * outlive the report. Close the report, also after an error; a zeroed one may be closed. */
apr_status apr_verify_run(apr_verify_report *report, const apr_verify_input *input, apr_error *err);
void apr_verify_close(apr_verify_report *report);

/* The first check that failed, or NULL. */
const apr_verify_check *apr_verify_first_failure(const apr_verify_report *report);

/* Predicted and measured bytes of a run, per kind of memory. */
typedef struct apr_verify_memory_part {
    const char *label;
    uint64_t predicted, measured;
} apr_verify_memory_part;
enum { APR_VERIFY_MEMORY_PARTS = 6 };
void apr_verify_memory_parts(const apr_verify_report *report, apr_verify_memory_part parts[APR_VERIFY_MEMORY_PARTS]);
/* The total. On a device, measured is what the driver reports; 0: it reports nothing. */
apr_verify_memory_part apr_verify_memory_total(const apr_verify_report *report);

#endif
