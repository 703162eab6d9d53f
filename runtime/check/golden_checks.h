/* runtime/check/golden_checks.h - compares a model with results that another implementation recorded in golden.json.
 *
 *     prompts  [{kind, text, rendered, ids, greedy_ids, greedy_min_margin, top5_ids, top5_logits}]
 *              kind "chat": rendered is the output of the chat template
 *     recite   {verses: [{ref, text, exact}]}; exact: the recording model reproduced the text
 *     heldout  {file, window, tokens_scored, perplexity}; the text file is next to golden.json or one folder up
 *
 * Further arrays are in golden.safetensors next to it (see golden.h). Each check counts the items compared and those that agree. It passes
 * if at least one item was compared and all agree. A check whose data was not recorded therefore does not pass. */
#ifndef APR_RUNTIME_GOLDEN_CHECKS_H
#define APR_RUNTIME_GOLDEN_CHECKS_H

#include "formats/base/json.h"
#include "runtime/check/golden.h"
#include "runtime/check/subject.h"

/* X(id, name) in the order of the checks */
#define APR_RECORDED_LIST(X)                                                               \
    X(TEMPLATE, "template")     /* the model's chat template renders the recorded text */  \
    X(TOKENS, "tokens")         /* ids of the rendered prompts */                          \
    X(GREEDY, "greedy")         /* greedy answers whose smallest margin is large enough */ \
    X(TOP, "top")               /* the top-5 logits after each prompt */                   \
    X(RECITE, "recite")         /* verses, word for word */                                \
    X(LOGITS, "logits")         /* of every token of the recorded arrays, as one prompt */ \
    X(HIDDEN, "hidden")         /* hidden states after each layer, likewise */             \
    X(PERPLEXITY, "perplexity") /* of a whole text */

typedef enum {
#define X(id, name) APR_RECORDED_##id,
    APR_RECORDED_LIST(X)
#undef X
        APR_N_RECORDED
} apr_recorded_kind;

const char *apr_recorded_name(apr_recorded_kind kind);

typedef struct apr_recorded {
    const char *path; /* of golden.json; borrowed */
    cJSON *json;
} apr_recorded;

/* A failed or zeroed one may be closed. */
apr_status apr_recorded_open(apr_recorded *recorded, const char *path, apr_error *err);
void apr_recorded_close(apr_recorded *recorded);

typedef struct apr_recorded_options {
    double tolerance;     /* largest absolute difference of logits and hidden states; 0: derived from the session's arithmetic */
    double ppl_tolerance; /* largest relative difference of perplexity; 0: likewise */
    double margin;        /* greedy answers with a smaller margin between the top-2 logits are skipped */
    int64_t min_recite;   /* verses that must be exact; -1: all */
    const char *text;     /* path of the held-out text; NULL: as recorded */
} apr_recorded_options;

typedef struct apr_recorded_check {
    apr_recorded_kind kind;
    int64_t n_good, n_checked, n_total;
    double worst, bound;  /* largest difference and its limit; NaN: the check has none */
    apr_run_bound reason; /* of bound; relative 0: the caller gave it */
    char first_bad[160];  /* name of the first item that differs, or empty */
    bool passed;
} apr_recorded_check;

/* An error status means that the check could not run (APR_E_DAMAGED: the recording is malformed); a difference is check->passed false. */
apr_status apr_recorded_check_run(const apr_recorded *recorded, apr_recorded_kind kind, const apr_subject *subject,
                                  const apr_recorded_options *options, apr_recorded_check *check, apr_error *err);

#endif
