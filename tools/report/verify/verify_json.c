/* verify_json.c - a verification as JSON, and its verdict. */
#include "tools/report/answer.h"
#include "tools/report/verify/verify.h"

#include <string.h>

static void string_json(apr_json_text *json, const char *key, const char *text) { apr_json_string(json, key, text, strlen(text)); }

static void checks_json(apr_json_text *json, const apr_verify_report *report)
{
    apr_json_open(json, "checks", '[');
    for (size_t i = 0; i < report->n_checks; i++) {
        const apr_verify_check *const c = &report->checks[i];
        const apr_verify_line line = apr_verify_line_of(report, c);
        apr_json_open(json, NULL, '{');
        string_json(json, "id", line.id);
        string_json(json, "title", line.title);
        if (c->verdict == APR_VERDICT_NOTED) apr_json_null(json, "passed");
        else apr_json_bool(json, "passed", c->verdict == APR_VERDICT_PASS);
        string_json(json, "found", line.found);
        if (line.bound[0] != '\0') string_json(json, "bound", line.bound);
        if (line.where[0] != '\0') string_json(json, "where", line.where);
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
}

static void routes_json(apr_json_text *json, const apr_verify_text_result *t)
{
    if (t->routes.n_choices == 0) return;
    apr_json_int(json, "choices_of_experts", t->routes.n_choices);
    apr_json_int(json, "forced_choices", t->routes.n_forced);
    apr_json_int(json, "other_choices", t->routes.n_wrong);
    if (t->has_control) apr_json_int(json, "other_choices_control", t->control_routes.n_wrong);
}

static void texts_json(apr_json_text *json, const apr_verify_report *report)
{
    apr_json_open(json, "texts", '[');
    for (size_t i = 0; i < report->n_texts; i++) {
        const apr_divergence *const d = &report->texts[i].d;
        const struct {
            const char *key;
            double value;
        } figures[] = {
            {"kl_mean", d->mean},
            {"kl_median", d->median},
            {"kl_p99", d->p99},
            {"kl_max", d->largest},
            {"same_top", d->same_top},
            {"kl_mean_second_half", d->second_half},
            {"same_top_second_half", d->second_half_top},
            {"perplexity", d->perplexity_other},
            {"perplexity_ref", d->perplexity_reference},
        };
        apr_json_open(json, NULL, '{');
        string_json(json, "text", report->texts[i].name);
        apr_json_int(json, "positions", d->n_rows);
        apr_json_int(json, "window", d->window);
        for (size_t f = 0; f < sizeof figures / sizeof *figures; f++) apr_json_real(json, figures[f].key, figures[f].value);
        apr_json_int(json, "kl_max_at", d->largest_at);
        if (report->texts[i].has_control) {
            apr_json_real(json, "kl_mean_control", report->texts[i].control.mean);
            apr_json_real(json, "same_top_control", report->texts[i].control.same_top);
            apr_json_real(json, "perplexity_control", report->texts[i].control.perplexity_other);
        }
        apr_json_real(json, "kl_mean_bound", report->texts[i].bound);
        routes_json(json, &report->texts[i]);
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
}

static void answers_json(apr_json_text *json, const apr_verify_report *report)
{
    apr_json_open(json, "answers", '[');
    for (size_t i = 0; i < report->n_answers; i++) {
        const apr_verify_answer *const a = &report->answers[i];
        apr_json_open(json, NULL, '{');
        string_json(json, "prompt", a->prompt);
        string_json(json, "ref", a->reference);
        string_json(json, "model", a->other);
        apr_json_bool(json, "same", a->same);
        apr_json_int(json, "tokens", a->n_reference);
        apr_json_int(json, "same_tokens", a->n_same);
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
}

static void reals_json(apr_json_text *json, const char *key, const double *values, size_t n)
{
    apr_json_open(json, key, '[');
    for (size_t i = 0; i < n; i++) apr_json_real(json, NULL, values[i]);
    apr_json_close(json, ']');
}

static void layers_json(apr_json_text *json, const apr_verify_report *report)
{
    apr_json_open(json, "layers", '{');
    if (report->operations.n_checked > 0)
        reals_json(json, "worst_operation", report->operations.worst_relative, (size_t)report->operations.n_layers + 1);
    if (report->backends.n_checked > 0)
        reals_json(json, "worst_operation_of_backend", report->backends.worst_relative, (size_t)report->backends.n_layers + 1);
    reals_json(json, "hidden_states", report->drift, report->n_drift);
    apr_json_close(json, '}');
}

static void memory_json(apr_json_text *json, const apr_verify_report *report)
{
    apr_verify_memory_part parts[APR_VERIFY_MEMORY_PARTS];

    const apr_verify_memory_part total = apr_verify_memory_total(report);
    apr_verify_memory_parts(report, parts);
    apr_json_open(json, "memory", '{');
    apr_json_uint(json, "predicted_bytes", total.predicted);
    apr_json_uint(json, "measured_bytes", total.measured);
    apr_json_open(json, "parts", '[');
    for (size_t i = 0; i < APR_VERIFY_MEMORY_PARTS; i++) {
        apr_json_open(json, NULL, '{');
        string_json(json, "part", parts[i].label);
        apr_json_uint(json, "predicted_bytes", parts[i].predicted);
        apr_json_uint(json, "measured_bytes", parts[i].measured);
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
    apr_json_close(json, '}');
}

void apr_verify_json(const apr_verify_shown *shown, apr_json_text *json)
{
    const apr_verify_report *const report = shown->report;
    const apr_verify_graded grade = apr_verify_grade_of(shown);
    char types[256];

    apr_json_bool(json, "same_model", !report->failed);
    string_json(json, "grade", grade.id);
    string_json(json, "grade_text", grade.name);
    string_json(json, "grade_reason", grade.sentence);
    string_json(json, "model", shown->other.source->path);
    string_json(json, "model_types", apr_page_types(shown->other.model, types, sizeof types));
    string_json(json, "ref", shown->reference.source->path);
    string_json(json, "ref_types", apr_page_types(shown->reference.model, types, sizeof types));
    string_json(json, "backend", report->backend);
    apr_json_bool(json, "weights_unchanged", report->same_shape && report->tensors.unchanged);
    checks_json(json, report);
    texts_json(json, report);
    answers_json(json, report);
    layers_json(json, report);
    if (report->backends.n_checked > 0) {
        apr_json_int(json, "evaluated_tokens", report->backends.n_evaluated);
        apr_json_real(json, "float64_share", report->backends.share);
    }
    memory_json(json, report);
}

/* --- the verdict, and the whole answer --- */

apr_status apr_verify_verdict(const apr_verify_shown *shown, apr_error *err)
{
    const apr_verify_check *const failure = apr_verify_first_failure(shown->report);
    const apr_verify_graded grade = apr_verify_grade_of(shown);

    if (failure == NULL) return APR_OK;
    const apr_verify_line line = apr_verify_line_of(shown->report, failure);
    return apr_fail(err, APR_E_NO, "%s: %s: %s%s%s", grade.grade > APR_GRADE_TYPES_ALLOW ? grade.name : "a check of this run failed",
                    line.title, line.found, line.where[0] != '\0' ? "; " : "", line.where);
}

char *apr_verify_document(const apr_verify_shown *shown)
{
    apr_error failure = {0};
    apr_answer answer;

    const apr_status status = apr_verify_verdict(shown, &failure);
    apr_answer_start(&answer, true);
    apr_verify_json(shown, &answer.body);
    return apr_answer_document(&answer.body, status, &failure);
}
