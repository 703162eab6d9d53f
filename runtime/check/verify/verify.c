/* verify.c - the order of the checks, and the checks of programs, weights, operations and backends. */
#include "runtime/check/verify/verify_internal.h"

#include "runtime/check/program_compare.h"
#include "runtime/check/verify/verify_texts.h"

#include <stdlib.h>
#include <string.h>

/* --- the list --- */

apr_verify_check *apr_verify_add_note(apr_verify_report *report, apr_verify_kind kind)
{
    static apr_verify_check spare; /* the list is long enough for all checks; this only guards against a programming error */
    apr_verify_check *const check = report->n_checks < APR_VERIFY_MAX_CHECKS ? &report->checks[report->n_checks++] : &spare;
    *check = (apr_verify_check){.kind = kind};
    return check;
}

void apr_verify_add_verdict(apr_verify_report *report, apr_verify_kind kind, bool passed)
{
    apr_verify_add_note(report, kind)->verdict = passed ? APR_VERDICT_PASS : APR_VERDICT_FAIL;
    report->failed |= !passed;
}

const apr_verify_check *apr_verify_first_failure(const apr_verify_report *report)
{
    for (size_t i = 0; i < report->n_checks; i++)
        if (report->checks[i].verdict == APR_VERDICT_FAIL) return &report->checks[i];
    return NULL;
}

void apr_verify_close(apr_verify_report *report)
{
    for (size_t i = 0; i < report->n_texts; i++) {
        apr_divergence_close(&report->texts[i].d);
        apr_divergence_close(&report->texts[i].control);
        free(report->texts[i].before_largest);
    }
    apr_weights_close(&report->tensors);
    for (size_t i = 0; i < report->n_answers; i++) {
        free(report->answers[i].reference);
        free(report->answers[i].other);
    }
    apr_parity_result_close(&report->operations);
    apr_parity_result_close(&report->backends);
    free(report->drift);
}

apr_status apr_verify_encode(const apr_verify_report *report, const char *text, size_t n_bytes, int32_t **ids, size_t *n, apr_error *err)
{
    APR_TRY(apr_subject_encode(&report->input->reference, text, n_bytes, false, ids, n, err));
    if (*n > 0) return APR_OK;
    free(*ids);
    return apr_fail(err, APR_E_USAGE, "the text is empty");
}

/* --- programs and weights --- */

/* Compares the operations and their parameters: sizes, windows, epsilons, rotary frequencies. */
static apr_status check_facts(apr_verify_report *report, apr_error *err)
{
    const apr_session *const reference = report->input->reference.session, *const other = report->input->other.session;
    apr_error shape = {0};

    const apr_status status = apr_programs_compare(reference, other, &report->other_fact);
    if (status > APR_E_NO) return apr_fail(err, status, "%s", report->other_fact.text);
    report->same_shape = apr_programs_same_shape(reference, other, &shape) == APR_OK;
    apr_verify_add_verdict(report, APR_VERIFY_FACTS, status == APR_OK);
    return APR_OK;
}

static apr_status check_tensors(apr_verify_report *report, apr_error *err)
{
    const apr_verify_input *const input = report->input;
    apr_weights *const w = &report->tensors;

    if (!report->same_shape) return APR_OK; /* check_facts reported it */
    APR_TRY(apr_weights_compare(w, input->reference.session, input->other.session, input->control_limit, &input->progress, err));
    apr_verify_add_verdict(report, APR_VERIFY_TENSORS, w->n_missing + w->n_damaged == 0);
    apr_verify_add_verdict(report, APR_VERIFY_WEIGHTS, w->n_far == 0);
    return APR_OK;
}

/* --- operations of both models on the same input --- */

/* The relative error of each layer's output when each model reads its own output of the layer before. */
static apr_status measure_drift(apr_verify_report *report, const int32_t *ids, size_t n, apr_error *err)
{
    apr_session *const a = report->input->reference.session, *const b = report->input->other.session;
    const apr_program *const program = apr_session_program(a);
    const size_t row = n * (size_t)program->hidden_size;
    float *const reference = malloc(program->n_taps * row * sizeof *reference + 1), *const other =
                                                                                        malloc(program->n_taps * row * sizeof *other + 1);

    report->drift = calloc(program->n_taps + 1, sizeof *report->drift);
    apr_status status = reference != NULL && other != NULL && report->drift != NULL ? APR_OK : apr_no_memory(err, "hidden states");
    apr_session_reset(a);
    apr_session_reset(b);
    if (status == APR_OK) status = apr_session_eval(a, ids, n, &(apr_eval_output){.hidden = reference}, err);
    if (status == APR_OK) status = apr_session_eval(b, ids, n, &(apr_eval_output){.hidden = other}, err);
    for (size_t i = 0; i < program->n_taps && status == APR_OK; i++)
        report->drift[i] = apr_difference_of(reference + i * row, other + i * row, (int64_t)n, program->hidden_size).relative;
    if (status == APR_OK) report->n_drift = program->n_taps;
    free(reference);
    free(other);
    return status;
}

static apr_status check_operations(apr_verify_report *report, const int32_t *ids, size_t n, apr_error *err)
{
    static const int64_t positions[] = {0, 64};
    const apr_verify_input *const input = report->input;
    const apr_parity_options options = {.positions = positions,
                                        .n_positions = sizeof positions / sizeof *positions,
                                        .n_batch = APR_PARITY_BATCH,
                                        .fp16_above = apr_trace_fp16_above(input->other.session),
                                        .weights = &report->tensors,
                                        .layer = APR_PARITY_ALL_LAYERS};

    if (!report->same_shape) return APR_OK;
    APR_TRY(apr_parity_run(input->reference.session, input->other.session, ids, (int64_t)n, &options, &report->operations, err));
    apr_verify_add_verdict(report, APR_VERIFY_OPERATIONS, !report->operations.failed);
    return measure_drift(report, ids, n < 64 ? n : 64, err);
}

static apr_status check_backends(apr_verify_report *report, const int32_t *ids, size_t n, apr_error *err)
{
    static const int64_t positions[] = {0, 4100}; /* positions that do not fit in the context are skipped */
    apr_parity_options options = {.positions = positions,
                                  .n_positions = sizeof positions / sizeof *positions,
                                  .n_batch = APR_PARITY_BATCH,
                                  .layer = APR_PARITY_ALL_LAYERS};

    APR_TRY(apr_backends_parity(report->input->other.session, ids, (int64_t)n, &options, &report->backends, err));
    apr_verify_add_verdict(report, APR_VERIFY_BACKEND, !report->backends.failed);
    return APR_OK;
}

/* --- all of it --- */

static apr_status run_checks(apr_verify_report *report, const int32_t *ids, size_t n, apr_error *err)
{
    APR_TRY(apr_verify_vocabularies(report, err));
    APR_TRY(check_facts(report, err));
    APR_TRY(check_tensors(report, err));
    APR_TRY(check_operations(report, ids, n, err));
    APR_TRY(apr_verify_divergence(report, err));
    APR_TRY(apr_verify_answers(report, err));
    if (!report->input->no_backends) APR_TRY(check_backends(report, ids, n, err));
    apr_verify_memory(report);
    return APR_OK;
}

apr_status apr_verify_run(apr_verify_report *report, const apr_verify_input *input, apr_error *err)
{
    int32_t *ids;
    size_t n;

    *report = (apr_verify_report){.input = input, .backend = apr_trace_backend(input->other.session)};
    APR_TRY(apr_verify_encode(report, apr_verify_text, strlen(apr_verify_text), &ids, &n, err));
    const apr_status status = run_checks(report, ids, n, err);
    free(ids);
    return status;
}
