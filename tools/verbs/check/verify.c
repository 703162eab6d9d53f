/* verify.c - `aprrun verify`: opens both models, has them compared (aprkit_verify), and shows what was found and what is allowed. */
#include "tools/engine/library/handles.h"
#include "tools/engine/text_input.h"
#include "tools/report/html.h"
#include "tools/report/meter.h"
#include "tools/report/table.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/page.h"
#include "tools/verbs/run/running.h"
#include "tools/verbs/verbs.h"

#include <ctype.h>
#include <string.h>

/* --- the report as a table --- */

static const char *const verdicts[] = {[APRKIT_NOTE] = "note", [APRKIT_PASS] = "pass", [APRKIT_FAIL] = "FAIL"};

/* The grade, and its sentence wrapped at the terminal's width. */
static apr_status print_grade(const aprkit_report_facts *facts, apr_error *err)
{
    static const apr_column column = {0};
    apr_table sentence;

    printf("\n%s%c%s.%s\n", apr_bold(stdout), toupper((unsigned char)facts->grade_text[0]), facts->grade_text + 1, apr_plain(stdout));
    apr_table_start(&sentence, &column, 1);
    apr_table_cell(&sentence, "%s", facts->sentence);
    return apr_table_print(&sentence, stdout, 0, err);
}

static aprkit_check check_of(const aprkit_report *report, size_t i)
{
    aprkit_check check = {.size = sizeof check};
    aprkit_report_check(report, i, &check, NULL);
    return check;
}

static apr_status print_report(const aprkit_report *report, const char *path, const char *reference, const aprkit_report_facts *facts,
                               apr_error *err)
{
    static const apr_column columns[] = {{"", .verdict = true}, {"check"}, {"found"}, {"limit"}};
    char clean[1024];
    apr_table table;

    printf("%s%s%s  %s\n  against  %s  %s\n  run on %s\n\n", apr_bold(stdout), apr_printable(path), apr_plain(stdout), facts->types,
           apr_printable(reference), facts->reference_types, facts->backend);
    apr_table_start(&table, columns, 4);
    for (size_t i = 0; i < facts->n_checks; i++) {
        const aprkit_check check = check_of(report, i);
        apr_table_cell(&table, "%s", verdicts[check.verdict]);
        apr_table_cell(&table, "%s", check.title);
        apr_table_cell(&table, "%s", check.found);
        apr_table_cell(&table, "%s", check.limit);
    }
    APR_TRY(apr_table_print(&table, stdout, 2, err));
    for (size_t i = 0; i < facts->n_checks; i++) {
        const aprkit_check check = check_of(report, i);
        if (check.where[0] != '\0')
            printf("\n  %s: %s\n", check.title, apr_clean_text(clean, sizeof clean, check.where, strlen(check.where)));
    }
    return print_grade(facts, err);
}

/* --- the command --- */

typedef struct verify_options {
    apr_run_options run;
    const char *ref, *text, *html;
    int64_t window, tokens;
    uint64_t control;
    bool parity, full;
    double sample;
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
    {"sample", 0, APR_OPTION_REAL, "X", "1", "share of each matrix's rows for that comparison, at least 512: 0.1 for a quick look",
     APR_TO(verify_options, sample), .min = 1e-4, .max = 1},
    {"full", 0, APR_OPTION_FLAG, NULL, NULL, "compare every row in float64, as without --sample", APR_TO(verify_options, full)},
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

typedef struct verification {
    const apr_call *call;
    const verify_options *options;
    aprkit_model *model, *reference;
    apr_text_input text;
    apr_out *page;
    apr_meter meter;
    bool is_counting; /* the meter is shown */
    apr_progress progress;
} verification;

/* --- what aprkit_verify says meanwhile --- */

static int on_progress(void *user, const aprkit_progress *p)
{
    verification *const v = user;

    if (!v->is_counting) v->progress = apr_meter_start_counting(&v->meter, v->call->quiet);
    v->is_counting = true;
    apr_progress_report(&v->progress, p->done, p->total, p->what);
    return 0;
}

/* --- the answer --- */

static apr_status write_page(const verification *v, const aprkit_report *report, apr_error *err)
{
    char command[APR_PAGE_COMMAND], *html;
    const aprkit_page_options page = {.size = sizeof page,
                                      .command = apr_page_command(v->call, command),
                                      .no_stamp = !v->options->page.stamp,
                                      .hash = v->options->page.hash};
    aprkit_error error;
    size_t n;

    if (aprkit_report_html(report, &page, &html, &n, &error) != APRKIT_OK) return apr_library_failed(&error, err);
    const apr_status status = apr_out_write(v->page, html, n, NULL, err);
    aprkit_free(html);
    return status;
}

/* If a check failed, fails with a sentence: the grade, what failed first, and where. */
static apr_status show(const verification *v, const aprkit_report *report, apr_error *err)
{
    const bool json = v->call->answer->json;
    aprkit_report_facts facts = {.size = sizeof facts};

    aprkit_report_info(report, &facts, NULL);
    if (json) apr_verify_json(&report->shown, &v->call->answer->body);
    else APR_TRY(print_report(report, v->call->operands[0], v->options->ref, &facts, err));
    if (v->options->run.stats && !json) apr_print_stats(&report->other, v->call);
    if (v->page != NULL) APR_TRY(write_page(v, report, err));
    return facts.is_same ? APR_OK : apr_fail(err, APR_E_NO, "%s", facts.failure);
}

static apr_status check_and_show(verification *v, apr_error *err)
{
    const verify_options *const o = v->options;
    const aprkit_run_hooks hooks = apr_run_hooks(&o->run, 64);
    const aprkit_session_options run = apr_run_session(&o->run, &hooks);
    const char *const slash = o->text != NULL ? strrchr(o->text, '/') : NULL; /* the text is named without its folder */
    const aprkit_verify_options options = {.size = sizeof options,
                                           .text = o->text != NULL ? v->text.bytes : NULL,
                                           .n_text = v->text.n_bytes,
                                           .text_name = slash != NULL ? slash + 1 : o->text,
                                           .window = o->window,
                                           .max_tokens = o->tokens,
                                           .control_bytes = o->control,
                                           .no_control = o->control == 0,
                                           .no_parity = !o->parity,
                                           .sample = o->sample,
                                           .run = &run,
                                           .progress = on_progress,
                                           .on_note = apr_show_note,
                                           .user = v};
    aprkit_report *report;
    aprkit_error error;

    const int result = aprkit_verify(&report, v->model, v->reference, &options, &error);
    if (v->is_counting) apr_meter_end(&v->meter);
    const apr_status status = result == APRKIT_OK ? show(v, report, err) : apr_library_failed(&error, err);
    aprkit_report_close(report);
    return status;
}

/* The model's files first. */
static apr_status open_inputs(verification *v, apr_error *err)
{
    const aprkit_model_options mapped = {.size = sizeof mapped, .map = 1}; /* tools/report/guard.h handles SIGBUS */
    aprkit_error error;

    if (aprkit_model_open(&v->model, v->call->operands[0], &mapped, &error) != APRKIT_OK) return apr_library_failed(&error, err);
    if (aprkit_model_open(&v->reference, v->options->ref, &mapped, &error) != APRKIT_OK) return apr_library_failed(&error, err);
    return v->options->text != NULL ? apr_text_input_open(&v->text, v->options->text, err) : APR_OK;
}

static apr_status run_verify(const apr_call *call, apr_error *err)
{
    verification v = {.call = call, .options = call->options};
    const char *const html = v.options->html;

    if (v.options->full && v.options->sample < 1.0)
        return apr_fail(err, APR_E_USAGE, "--full compares every row, --sample some of them: give one");
    if (v.options->ref == NULL)
        return apr_fail(err, APR_E_USAGE, "name the model to compare with: --ref SOURCE; try 'aprrun verify --help'");
    apr_status status = open_inputs(&v, err);
    if (status == APR_OK && html != NULL) status = apr_out_open_marked(&v.page, html, APR_VERIFY_HTML_MARK, err);
    if (status == APR_OK) status = check_and_show(&v, err);
    status = apr_html_close(v.page, status, err);
    apr_text_input_close(&v.text);
    aprkit_model_close(v.reference);
    aprkit_model_close(v.model);
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
