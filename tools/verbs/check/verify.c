/* verify.c - `aprrun verify`: opens both models, runs the checks (runtime/check/verify.h), shows what was found and what is allowed. */
#include "tools/verbs/check/verify.h"

#include "tools/engine/run/run_pair.h"
#include "tools/engine/text_input.h"
#include "tools/report/html.h"
#include "tools/report/meter.h"
#include "tools/report/table.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/verbs.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- the report, as a table and as JSON --- */

static const char *const verdicts[] = {[APR_VERDICT_NOTED] = "note", [APR_VERDICT_PASS] = "pass", [APR_VERDICT_FAIL] = "FAIL"};

/* The grade, and its sentence wrapped at the terminal's width. */
static apr_status print_grade(const apr_verify_graded *grade, apr_error *err)
{
    static const apr_column column = {0};
    apr_table sentence;

    printf("\n%s%c%s.%s\n", apr_bold(stdout), toupper((unsigned char)grade->name[0]), grade->name + 1, apr_plain(stdout));
    apr_table_start(&sentence, &column, 1);
    apr_table_cell(&sentence, "%s", grade->sentence);
    return apr_table_print(&sentence, stdout, 0, err);
}

static apr_status verify_print(const apr_verify_shown *shown, apr_error *err)
{
    const apr_verify_report *const report = shown->report;
    static const apr_column columns[] = {{"", .verdict = true}, {"check"}, {"found"}, {"limit"}};
    const apr_verify_graded grade = apr_verify_grade_of(shown);
    char types[2][256], clean[1024];
    apr_table table;

    printf("%s%s%s  %s\n  against  %s  %s\n  run on %s\n\n", apr_bold(stdout), apr_printable(shown->other->source.path), apr_plain(stdout),
           apr_verify_types_text(&shown->other->model, types[0], sizeof types[0]), apr_printable(shown->reference->source.path),
           apr_verify_types_text(&shown->reference->model, types[1], sizeof types[1]), report->backend);
    apr_table_start(&table, columns, 4);
    for (size_t i = 0; i < report->n_checks; i++) {
        const apr_verify_line line = apr_verify_line_of(report, &report->checks[i]);
        apr_table_cell(&table, "%s", verdicts[report->checks[i].verdict]);
        apr_table_cell(&table, "%s", line.title);
        apr_table_cell(&table, "%s", line.found);
        apr_table_cell(&table, "%s", line.bound);
    }
    APR_TRY(apr_table_print(&table, stdout, 2, err));
    for (size_t i = 0; i < report->n_checks; i++) {
        const apr_verify_line line = apr_verify_line_of(report, &report->checks[i]);
        if (line.where[0] != '\0') printf("\n  %s: %s\n", line.title, apr_clean_text(clean, sizeof clean, line.where, strlen(line.where)));
    }
    return print_grade(&grade, err);
}

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

static void verify_json(const apr_verify_shown *shown, apr_json_text *json)
{
    const apr_verify_report *const report = shown->report;
    const apr_verify_graded grade = apr_verify_grade_of(shown);
    char types[256];

    apr_json_bool(json, "same_model", !report->failed);
    string_json(json, "grade", grade.id);
    string_json(json, "grade_text", grade.name);
    string_json(json, "grade_reason", grade.sentence);
    string_json(json, "model", shown->other->source.path);
    string_json(json, "model_types", apr_verify_types_text(&shown->other->model, types, sizeof types));
    string_json(json, "ref", shown->reference->source.path);
    string_json(json, "ref_types", apr_verify_types_text(&shown->reference->model, types, sizeof types));
    string_json(json, "backend", report->backend);
    apr_json_bool(json, "weights_unchanged", report->same_shape && report->tensors.unchanged);
    checks_json(json, report);
    texts_json(json, report);
    answers_json(json, report);
    layers_json(json, report);
    memory_json(json, report);
}

/* --- the command --- */

typedef struct verify_options {
    apr_run_options run;
    const char *ref, *text, *html;
    int64_t window, tokens;
    uint64_t control;
    bool parity;
    apr_page_options page;
} verify_options;

static const apr_option verify_table[] = {
    {"ref", 'r', APR_OPTION_STRING, "SOURCE", NULL, "what MODEL was made from: GGUF, checkpoint or APR", APR_TO(verify_options, ref),
     .group = "Comparison"},
    {"text", 0, APR_OPTION_STRING, "FILE", NULL, "also compare the predictions on this text", APR_TO(verify_options, text)},
    {"window", 'w', APR_OPTION_INT, "N", "256", "tokens per window; each starts with an empty context", APR_TO(verify_options, window),
     .min = 2, .max = 1e6},
    {"tokens", 'n', APR_OPTION_INT, "N", "48", "at most N tokens per greedy answer", APR_TO(verify_options, tokens), .min = 1, .max = 4096},
    {"parity", 0, APR_OPTION_FLAG, NULL, "yes", "leave out the comparison of the backend with the reference, operation by operation",
     APR_TO(verify_options, parity)},
    {"control", 0, APR_OPTION_SIZE, "SIZE", "8G",
     "memory for a control: SOURCE quantized to MODEL's types here, whose divergence sets the bound for MODEL's; 0: no bound",
     APR_TO(verify_options, control), .or_none = true},
    {"html", 0, APR_OPTION_STRING, "FILE", NULL, "write the report as one HTML page with pictures; replaces only an older page",
     APR_TO(verify_options, html)},
    APR_PAGE_OPTIONS(verify_options, page),
    APR_RUN_OPTIONS(verify_options, run, "f16"),
    APR_LORA_OPTION(verify_options, run.lora, "the reference"),
    {0},
};

static const char *const verify_examples[] = {
    "aprrun verify model-q4_k_m.apr --ref checkpoint/",
    "aprrun verify model.apr --ref model.gguf --text wiki.test.raw --window 512 --html report.html",
    NULL,
};

/* If a check failed, fails with a sentence: the grade, what failed first, and where. */
static apr_status verdict(const apr_verify_shown *shown, apr_error *err)
{
    const apr_verify_check *const failure = apr_verify_first_failure(shown->report);
    const apr_verify_graded grade = apr_verify_grade_of(shown);

    if (failure == NULL) return APR_OK;
    const apr_verify_line line = apr_verify_line_of(shown->report, failure);
    return apr_fail(err, APR_E_NO, "%s: %s: %s%s%s", grade.grade > APR_GRADE_TYPES_ALLOW ? grade.name : "a check of this run failed",
                    line.title, line.found, line.where[0] != '\0' ? "; " : "", line.where);
}

/* The page, with the answer that --json gives. */
static apr_status write_page(const apr_verify_shown *shown, const apr_call *call, apr_out *page, apr_error *err)
{
    const verify_options *const o = call->options;
    const apr_page_model models[] = {{"model", &shown->other->source}, {"reference", &shown->reference->source}};
    apr_page_about about = {.call = call, .options = &o->page, .models = models, .n_models = 2, .session = shown->other->session};
    apr_error answer = {0};
    apr_answer as_json;

    apr_answer_start(&as_json, true);
    verify_json(shown, &as_json.body);
    about.answer = apr_answer_document(&as_json.body, verdict(shown, &answer), &answer);
    const apr_status status = apr_verify_html(shown, &about, page, err);
    free(about.answer);
    return status;
}

static apr_status show(const apr_verify_shown *shown, const apr_call *call, apr_out *page, apr_error *err)
{
    const verify_options *const o = call->options;

    if (call->answer->json) verify_json(shown, &call->answer->body);
    else APR_TRY(verify_print(shown, err));
    if (o->run.stats && !call->answer->json) apr_print_stats(shown->other, call);
    if (page != NULL) APR_TRY(write_page(shown, call, page, err));
    return verdict(shown, err);
}

/* Both models are open. */
static apr_status check_and_show(const apr_running *reference, const apr_running *other, apr_session_usage used,
                                 const apr_verify_extra_text *extra_text, const apr_call *call, apr_out *page, apr_error *err)
{
    const verify_options *const o = call->options;
    apr_verify_report *const report = calloc(1, sizeof *report);
    apr_meter meter;

    if (report == NULL) return apr_no_memory(err, "the report");
    const apr_verify_input input = {.reference = apr_running_subject(reference),
                                    .other = apr_running_subject(other),
                                    .used = used,
                                    .passage = *extra_text,
                                    .window = o->window,
                                    .n_answer = o->tokens,
                                    .control_limit = o->control,
                                    .no_backends = !o->parity,
                                    .progress = apr_meter_start_counting(&meter, call->quiet)};
    apr_status status = apr_verify_run(report, &input, err);
    apr_meter_end(&meter);
    if (status == APR_OK) status = show(&(apr_verify_shown){report, reference, other}, call, page, err);
    apr_verify_close(report);
    free(report);
    return status;
}

/* The file of --text, named without its folder. */
static apr_status read_extra_text(const char *path, apr_verify_extra_text *extra_text, apr_text_input *text, apr_error *err)
{
    if (path == NULL) return APR_OK;
    APR_TRY(apr_text_input_open(text, path, err));
    const char *const slash = strrchr(path, '/');
    extra_text->name = slash != NULL ? slash + 1 : path;
    extra_text->text = text->bytes;
    extra_text->n_bytes = text->n_bytes;
    return APR_OK;
}

/* Opens session and tokenizer; without a vocabulary the model is compared by ids. */
static apr_status open_for_checks(apr_running *r, const apr_run_options *run, apr_error *err)
{
    apr_session_options session;

    APR_TRY(apr_running_options(run, 64, &session, err));
    APR_TRY(apr_session_open(&r->session, &r->model, &session, err));
    return r->model.vocab.n_tokens > 0 ? apr_running_open_tokenizer(r, err) : APR_OK;
}

/* The model's files first. */
static apr_status open_files(apr_running *reference, const char *reference_path, const apr_strings *lora, apr_running *other,
                             const char *path, apr_error *err)
{
    APR_TRY(apr_running_open_files(other, path, err));
    APR_TRY(apr_running_open_files(reference, reference_path, err));
    APR_TRY(apr_running_merge(reference, lora, err));
    return apr_run_pair_align(reference, other, err);
}

static apr_status run_verify(const apr_call *call, apr_error *err)
{
    const verify_options *const o = call->options;
    apr_running reference = {0}, other = {0};
    apr_run_options run = o->run;
    apr_session_usage used = {0};
    apr_verify_extra_text extra_text = {0};
    apr_out *page = NULL;
    apr_text_input text = {0};

    if (o->ref == NULL) return apr_fail(err, APR_E_USAGE, "name the model to compare with: --ref SOURCE; try 'aprrun verify --help'");
    if (run.ctx == 0) run.ctx = o->window > APR_VERIFY_CONTEXT ? o->window : APR_VERIFY_CONTEXT;
    apr_status status = open_files(&reference, o->ref, &run.lora, &other, call->operands[0], err);
    if (status == APR_OK) status = open_for_checks(&other, &run, err);
    if (status == APR_OK) used = apr_session_used(other.session);
    if (status == APR_OK) status = open_for_checks(&reference, &run, err);
    if (status == APR_OK) status = read_extra_text(o->text, &extra_text, &text, err);
    if (status == APR_OK && o->html != NULL) status = apr_out_open_marked(&page, o->html, APR_VERIFY_HTML_MARK, err);
    if (status == APR_OK) status = check_and_show(&reference, &other, used, &extra_text, call, page, err);
    status = apr_html_close(page, status, err);
    apr_text_input_close(&text);
    apr_running_close(&reference);
    apr_running_close(&other);
    return status;
}

static bool has_page(const apr_call *call) { return ((const verify_options *)call->options)->html != NULL; }

static const apr_need verify_needs[] = {APR_DEVICE_NEEDS(apr_runs_on_a_gpu), APR_PAGE_NEEDS("--html FILE", has_page), {0}};

const apr_command apr_verify_command = {.verb = "verify",
                                        .operands = "MODEL [SOURCE]",
                                        .min_operands = 1,
                                        .max_operands = 1,
                                        .joins = "ref",
                                        .summary = "is it still the model that it was made from?",
                                        .options = verify_table,
                                        .options_bytes = sizeof(verify_options),
                                        .examples = verify_examples,
                                        .run = run_verify,
                                        .needs = verify_needs};
