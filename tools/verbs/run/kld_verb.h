/* kld_verb.h - `aprrun kld`: a model's predictions against a reference's, both in one process, position by position. */
#ifndef APR_TOOLS_KLD_VERB_H
#define APR_TOOLS_KLD_VERB_H

#include "runtime/check/bootstrap.h"
#include "tools/verbs/run/running.h"

/* What is shown (kld_print.c). */
typedef struct apr_kld_shown {
    const apr_running *reference, *other;
    const char *text;   /* the path of the text, as given */
    const int32_t *ids; /* the tokens that were compared */
    const char *before; /* the text up to the largest divergence; NULL: no memory for it */
    size_t n_before;
    int64_t batch; /* --batch; 0: not given */
    apr_divergence d;
    apr_divergence_intervals intervals;
    bool stats;
} apr_kld_shown;

apr_status apr_kld_print(const apr_kld_shown *shown, apr_error *err);
void apr_kld_json(const apr_kld_shown *shown, apr_json_text *json);

#endif
