/* model_verdict.h - what those checks of `aprrun verify` say of an edited model that need no text. */
#ifndef APR_TESTS_MODEL_VERDICT_H
#define APR_TESTS_MODEL_VERDICT_H

#include "tests/support/edited_model.h"

/* "" or the sentence of the first that fails: the same computation, each row of weights, each operation from the same input. Weights and
 * operations are compared only if the programs have the same shape, as verify does. */
typedef struct model_verdict {
    char facts[400], weights[512], operations[200];
} model_verdict;

/* The sessions have a context of n_ctx tokens, at least 48. */
model_verdict model_verdict_on(apr_session *reference, const apr_model *other, int64_t n_ctx);

#endif
