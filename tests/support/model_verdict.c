/* model_verdict.c - runs the checks. */
#include "tests/support/model_verdict.h"

#include "runtime/check/parity.h"
#include "runtime/check/program_compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void check_operations(model_verdict *v, apr_session *reference, apr_session *other, apr_weights *weights)
{
    static const int64_t positions[] = {0, 20};
    static const int32_t ids[] = {5, 17, 3, 90, 41, 77, 8, 126, 64, 2, 33};
    const apr_parity_options options = {.positions = positions,
                                        .n_positions = sizeof positions / sizeof *positions,
                                        .n_batch = APR_PARITY_BATCH,
                                        .fp16_above = INT64_MAX,
                                        .layer = APR_PARITY_ALL_LAYERS,
                                        .weights = weights};
    apr_parity_result result;
    apr_error err = {0};

    if (apr_parity_run(reference, other, ids, sizeof ids / sizeof *ids, &options, &result, &err) != APR_OK) fail_msg("%s", err.text);
    if (result.failed)
        snprintf(v->operations, sizeof v->operations, "%s off by %.2g, allowed %.2g", result.first.name, result.first.difference.relative,
                 result.first.bound.relative);
    apr_parity_result_close(&result);
}

static void check_weights(model_verdict *v, apr_session *reference, apr_session *other)
{
    apr_weights weights;
    apr_error err = {0};

    if (apr_weights_compare(&weights, reference, other, (uint64_t)1 << 30, NULL, &err) != APR_OK) fail_msg("%s", err.text);
    if (weights.n_missing > 0) snprintf(v->weights, sizeof v->weights, "%s", weights.missing);
    else if (weights.n_damaged > 0) snprintf(v->weights, sizeof v->weights, "%s", weights.damaged);
    else if (weights.n_far > 0) snprintf(v->weights, sizeof v->weights, "%s", weights.far);
    check_operations(v, reference, other, &weights);
    apr_weights_close(&weights);
}

model_verdict model_verdict_on(apr_session *reference, const apr_model *other, int64_t n_ctx)
{
    apr_session *const session = edited_model_session(other, n_ctx);
    model_verdict v = {{0}, {0}, {0}};
    apr_error err = {0};

    if (apr_programs_compare(reference, session, &err) != APR_OK) snprintf(v.facts, sizeof v.facts, "%.399s", err.text);
    if (apr_programs_same_shape(reference, session, &err) == APR_OK) check_weights(&v, reference, session);
    else assert_true(v.facts[0] != '\0');
    apr_session_close(session);
    return v;
}
