/* verify_divergence.c - divergence of both models on whole texts, bounded by that of the control (the reference in the model's types). */
#include "runtime/check/verify/verify_internal.h"
#include "runtime/check/verify/verify_texts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void on_rows(void *user, int64_t n_done, int64_t n_rows)
{
    apr_progress_report(user, (uint64_t)n_done, (uint64_t)n_rows, "tokens compared");
}

/* As apr_compare_models, but near ties of expert choices are forced to the reference's choice. */
static apr_status compare_models(apr_verify_report *report, apr_session *other, const int32_t *ids, int64_t n, apr_progress *progress,
                                 apr_divergence *d, apr_route_count *count, apr_error *err)
{
    apr_session *const reference = report->input->reference.session;
    const int64_t window = report->input->window;
    const double bound = apr_run_bound_of(apr_trace_run_facts(other, window)).relative;
    void (*const on_done)(void *, int64_t, int64_t) = progress != NULL ? on_rows : NULL;
    apr_routes routes = {0};

    if (!report->same_shape || !apr_program_routes(apr_session_program(reference)))
        return apr_compare_models(reference, other, ids, n, window, on_done, progress, d, err);
    apr_status status = apr_routes_compare_live(&routes, reference, other, window, bound, err);
    if (status == APR_OK) status = apr_compare_models(reference, other, ids, n, window, on_done, progress, d, err);
    apr_routes_compare_live_stop(reference, other);
    *count = routes.count;
    apr_routes_close(&routes);
    return status;
}

/* Equal weights must choose the same experts. Other weights may choose others where their errors exceed the gap. */
static void check_routes(apr_verify_report *report, const apr_verify_text_result *t)
{
    if (t->routes.n_choices == 0) return;
    if (report->tensors.unchanged) apr_verify_add_verdict(report, APR_VERIFY_ROUTES, t->routes.n_wrong == 0);
    else apr_verify_add_note(report, APR_VERIFY_ROUTES);
}

static void add_checks(apr_verify_report *report, apr_verify_text_result *t, const int32_t *ids)
{
    const bool has_bound = !isnan(t->bound), passed = t->d.mean <= t->bound;
    const size_t first = report->n_checks;

    /* without a vocabulary, or memory for the text, the report shows only the position */
    if (has_bound && !passed && report->input->reference.tokenizer != NULL &&
        apr_divergence_context_text(&t->d, report->input->reference.tokenizer, ids, &t->before_largest, &t->n_before_largest, NULL) != APR_OK)
        t->before_largest = NULL;
    if (has_bound) apr_verify_add_verdict(report, APR_VERIFY_KL, passed);
    else apr_verify_add_note(report, APR_VERIFY_KL);
    apr_verify_add_note(report, APR_VERIFY_SAME_TOP);
    apr_verify_add_note(report, APR_VERIFY_PERPLEXITY);
    check_routes(report, t);
    for (size_t i = first; i < report->n_checks; i++) report->checks[i].text = (size_t)(t - report->texts);
}

/* Compares the reference with the control on the same text, which gives the bound. No bound if there is no memory for the control. */
static apr_status compare_control(apr_verify_report *report, const int32_t *ids, int64_t n, apr_verify_text_result *t, apr_error *err)
{
    apr_session *const reference = report->input->reference.session;
    apr_session *control = NULL;
    apr_error own = {0};

    t->bound = NAN;
    if (!report->same_shape || report->tensors.unchanged) {
        t->bound = apr_divergence_bound(NULL);
        return APR_OK;
    }
    if (!report->tensors.has_control) return APR_OK;
    apr_status status = apr_session_open_like(&control, &report->tensors.control, reference, &own);
    if (status == APR_OK) status = compare_models(report, control, ids, n, NULL, &t->control, &t->control_routes, &own);
    apr_session_close(control);
    if (status == APR_E_MEMORY) return APR_OK;
    if (status != APR_OK) return apr_fail(err, status, "%s", own.text);
    t->has_control = true;
    t->bound = apr_divergence_bound(&t->control);
    return APR_OK;
}

static apr_status compare_on(apr_verify_report *report, const char *name, const char *text, size_t n_bytes, apr_error *err)
{
    const apr_verify_input *const input = report->input;
    apr_verify_text_result *const t = &report->texts[report->n_texts];
    apr_progress progress = input->progress;
    int32_t *ids;
    size_t n;

    t->name = name;
    APR_TRY(apr_verify_encode(report, text, n_bytes, &ids, &n, err));
    report->n_texts++;
    apr_status status = compare_models(report, input->other.session, ids, (int64_t)n, &progress, &t->d, &t->routes, err);
    if (status == APR_OK) status = compare_control(report, ids, (int64_t)n, t, err);
    if (status == APR_OK) add_checks(report, t, ids);
    free(ids);
    return status;
}

apr_status apr_verify_divergence(apr_verify_report *report, apr_error *err)
{
    const apr_verify_extra_text *const passage = &report->input->passage;

    if (apr_session_program(report->input->reference.session)->vocab_size != apr_session_program(report->input->other.session)->vocab_size) {
        apr_verify_add_verdict(report, APR_VERIFY_KL, false);
        return APR_OK;
    }
    APR_TRY(compare_on(report, "built-in text", apr_verify_text, strlen(apr_verify_text), err));
    return passage->text == NULL ? APR_OK : compare_on(report, passage->name, passage->text, passage->n_bytes, err);
}
