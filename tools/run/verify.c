/* verify.c - `aprrun verify`: opens both models, runs the checks in order, shows the report. */
#include "tools/run/verify.h"

#include "tools/cli/meter.h"

#include <stdlib.h>
#include <string.h>

typedef struct verify_options {
    apr_run_options run;
    const char *ref, *text, *html;
    int64_t window, tokens;
    uint64_t control;
    bool parity;
} verify_options;

const apr_option apr_verify_options[] = {
    {"ref", 'r', APR_OPTION_STRING, "SOURCE", NULL, "what MODEL was made from: GGUF, checkpoint or APR", APR_TO(verify_options, ref),
     .group = "Comparison"},
    {"text", 't', APR_OPTION_STRING, "FILE", NULL, "compare on this text as well", APR_TO(verify_options, text)},
    {"window", 'w', APR_OPTION_INT, "N", "256", "tokens of a window; each begins from nothing", APR_TO(verify_options, window), .min = 2,
     .max = 1e6},
    {"tokens", 'n', APR_OPTION_INT, "N", "48", "tokens of a greedy answer at most", APR_TO(verify_options, tokens), .min = 1, .max = 4096},
    {"parity", 0, APR_OPTION_FLAG, NULL, "yes", "leave out the comparison of the backend with the reference, operation by operation",
     APR_TO(verify_options, parity)},
    {"control", 0, APR_OPTION_SIZE, "SIZE", "8G",
     "memory for SOURCE with its weights brought to MODEL's types here, by which MODEL's divergence is judged; 0: not judged",
     APR_TO(verify_options, control)},
    {"html", 0, APR_OPTION_STRING, "FILE", NULL, "write the report as one HTML page with pictures; takes the place of an older page only",
     APR_TO(verify_options, html)},
    APR_RUN_OPTIONS(verify_options, run, "f16"),
    {0},
};
const size_t apr_verify_options_bytes = sizeof(verify_options);

const char *const apr_verify_examples[] = {
    "aprrun verify model-q4_k_m.apr --ref checkpoint/",
    "aprrun verify model.apr --ref model.gguf --text wiki.test.raw --window 512 --html report.html",
    NULL,
};

apr_verify_check *apr_verify_add(apr_verify_report *report, const char *id, const char *title)
{
    static apr_verify_check spare; /* more checks than there is room for would be a mistake of ours */
    apr_verify_check *const check = report->n_checks < APR_VERIFY_MAX_CHECKS ? &report->checks[report->n_checks++] : &spare;
    *check = (apr_verify_check){.id = id, .title = title};
    return check;
}

void apr_verify_pass(apr_verify_report *report, apr_verify_check *check, bool passed)
{
    check->verdict = passed ? APR_VERDICT_PASS : APR_VERDICT_FAIL;
    report->failed |= !passed;
}

void apr_verify_close(apr_verify_report *report)
{
    for (size_t i = 0; i < report->n_texts; i++) {
        apr_divergence_close(&report->texts[i].d);
        apr_divergence_close(&report->texts[i].control);
    }
    apr_weights_close(&report->tensors);
    for (size_t i = 0; i < report->n_answers; i++) {
        free(report->answers[i].prompt);
        free(report->answers[i].truth);
        free(report->answers[i].other);
    }
    apr_parity_result_close(&report->weights);
    apr_parity_result_close(&report->backends);
    free(report->drift);
}

static apr_status run_checks(apr_verify_report *report, const verify_options *o, apr_progress progress, apr_error *err)
{
    const apr_verify_input input = {
        .text_path = o->text, .window = o->window, .n_answer = o->tokens, .control_limit = o->control, .progress = progress};

    APR_TRY(apr_verify_vocabulary(report, err));
    APR_TRY(apr_verify_facts(report, err));
    APR_TRY(apr_verify_tensors(report, &input, err));
    APR_TRY(apr_verify_operations(report, err));
    APR_TRY(apr_verify_divergence(report, &input, err));
    APR_TRY(apr_verify_answers(report, &input, err));
    if (o->parity) APR_TRY(apr_verify_backends(report, err));
    return apr_verify_memory(report, err);
}

/* The sentence of a failed verdict: what failed first, and where. */
static apr_status verdict(const apr_verify_report *report, apr_error *err)
{
    for (size_t i = 0; i < report->n_checks; i++) {
        const apr_verify_check *const c = &report->checks[i];
        if (c->verdict != APR_VERDICT_FAIL) continue;
        return apr_fail(err, APR_E_NO, "not the same model: %s: %s%s%s", c->title, c->found, c->where[0] != '\0' ? "; " : "", c->where);
    }
    return APR_OK;
}

static apr_status show(const apr_verify_report *report, const apr_call *call, apr_out *page, apr_error *err)
{
    const verify_options *const o = call->options;

    if (call->answer->json) apr_verify_json(report, &call->answer->body);
    else APR_TRY(apr_verify_print(report, err));
    if (o->run.stats && !call->answer->json) apr_print_stats(report->other, call);
    if (page != NULL) APR_TRY(apr_verify_html(report, page, err));
    return verdict(report, err);
}

/* A page says why, too, when the answer is no. */
static apr_status close_page(apr_out *page, apr_status status, apr_error *err)
{
    apr_error own = {0};

    if (page == NULL || status > APR_E_NO) {
        apr_out_abandon(page);
        return status;
    }
    if (apr_out_finish(page, &own) == APR_OK) return status;
    *err = own;
    return own.status;
}

apr_status apr_run_verify(const apr_call *call, apr_error *err)
{
    const verify_options *const o = call->options;
    apr_running truth = {0}, other = {0};
    apr_verify_report *const report = calloc(1, sizeof *report);
    apr_run_options run = o->run;
    apr_out *page = NULL;
    apr_meter meter;

    if (report == NULL) return apr_no_memory(err, "the report");
    if (o->ref == NULL) {
        free(report);
        return apr_fail(err, APR_E_USAGE, "say what the model is to be compared with: --ref SOURCE");
    }
    /* the context holds a window, an answer, and the last position where backends are compared */
    if (run.ctx == 0) run.ctx = o->window > 4352 ? o->window : 4352;
    apr_status status = apr_running_open(&other, call->operands[0], &run, 64, err);
    if (status == APR_OK) report->used = apr_session_used(other.session);
    if (status == APR_OK) status = apr_running_open(&truth, o->ref, &run, 64, err);
    if (status == APR_OK && o->html != NULL) status = apr_out_renew(&page, o->html, APR_VERIFY_PAGE_MARK, err);
    if (status == APR_OK) {
        report->truth = &truth;
        report->other = &other;
        report->backend = apr_trace_backend(other.session);
        const apr_progress progress = apr_meter_start(&meter, call->quiet);
        status = run_checks(report, o, progress, err);
        apr_meter_end(&meter);
    }
    if (status == APR_OK) status = show(report, call, page, err);
    status = close_page(page, status, err);
    apr_verify_close(report);
    free(report);
    apr_running_close(&truth);
    apr_running_close(&other);
    return status;
}
