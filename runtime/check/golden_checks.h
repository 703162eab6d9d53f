/* runtime/check/golden_checks.h - a model against what another implementation recorded of it in golden.json.
 *
 *     prompts  [{kind, text, rendered, ids, greedy_ids, greedy_min_margin, top5_ids, top5_logits}]; kind "chat": rendered is the template's
 *     recite   {verses: [{ref, text, exact}]}; exact: the recording model could
 *     heldout  {file, window, tokens_scored, perplexity}; the text lies beside golden.json or one folder up
 *
 * and in the arrays of golden.safetensors beside it (see golden.h). Each check counts what was judged and what was good; it passes when
 * something was judged and all of it was good. What is not recorded is not judged, so its check does not pass. */
#ifndef APR_RUNTIME_GOLDEN_CHECKS_H
#define APR_RUNTIME_GOLDEN_CHECKS_H

#include "formats/base/json.h"
#include "runtime/check/golden.h"
#include "runtime/check/subject.h"

/* X(id, name) in the order in which they are made */
#define APR_RECORDED_LIST(X)                                                                     \
    X(TEMPLATE, "template")     /* the model's own template makes the recorded text of a chat */ \
    X(TOKENS, "tokens")         /* ids of the rendered prompts */                                \
    X(GREEDY, "greedy")         /* greedy answers whose smallest margin leaves no doubt */       \
    X(TOP, "top")               /* the best logits after each prompt */                          \
    X(RECITE, "recite")         /* verses, word for word */                                      \
    X(LOGITS, "logits")         /* of every token of the recorded arrays, as one prompt */       \
    X(HIDDEN, "hidden")         /* likewise, after each layer */                                 \
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

/* Failed or zeroed ones may be closed. */
apr_status apr_recorded_open(apr_recorded *recorded, const char *path, apr_error *err);
void apr_recorded_close(apr_recorded *recorded);

typedef struct apr_recorded_options {
    double tolerance;     /* largest absolute difference of logits and hidden states; 0: what the session's arithmetic may bring about */
    double ppl_tolerance; /* largest relative difference of perplexity; 0: likewise */
    double margin;        /* greedy answers with a smaller one are not judged */
    int64_t min_recite;   /* verses that must be exact; -1: all */
    const char *text;     /* path of the held-out text; NULL: as recorded */
} apr_recorded_options;

typedef struct apr_recorded_check {
    apr_recorded_kind kind;
    int64_t n_good, n_judged, n_total;
    double worst, bound;  /* NaN: the check has no such figure */
    apr_run_bound reason; /* of bound; relative 0: it was given */
    char first_bad[160];  /* as the recording names it, or empty */
    bool passed;
} apr_recorded_check;

/* A status is what kept it from judging: APR_E_DAMAGED where the recording is not what it should be. */
apr_status apr_recorded_judge(const apr_recorded *recorded, apr_recorded_kind kind, const apr_subject *subject,
                              const apr_recorded_options *options, apr_recorded_check *check, apr_error *err);

#endif
