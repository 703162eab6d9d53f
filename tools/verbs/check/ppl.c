/* ppl.c - `aprrun ppl`: perplexity on a text. */
#include "runtime/session/evaluate.h"
#include "tools/engine/text_input.h"
#include "tools/report/meter.h"
#include "tools/verbs/check/begin_token.h"
#include "tools/verbs/run/running.h"
#include "tools/verbs/verbs.h"

#include <stdlib.h>

typedef struct ppl_options {
    apr_run_options run;
    int64_t window;
} ppl_options;

static const apr_option ppl_table[] = {
    {"window", 'w', APR_OPTION_INT, "N", "256", "tokens per window; all but the first are scored", APR_TO(ppl_options, window), .min = 2,
     .max = 1e9, .group = "Text"},
    APR_RUN_OPTIONS(ppl_options, run, "f16"),
    APR_LORA_OPTION(ppl_options, run.lora, "the weights"),
    {0},
};

static const char *const ppl_examples[] = {"aprrun ppl model.apr heldout.txt", "aprrun ppl --window 2048 --json model.gguf wiki.test.raw",
                                           NULL};

typedef struct window_meter {
    apr_progress progress;
} window_meter;

static void on_window(void *user, int64_t n_done, int64_t n_windows)
{
    const window_meter *const m = user;
    apr_progress_report(&m->progress, (uint64_t)n_done, (uint64_t)n_windows, "windows");
}

static apr_status perplexity_of(apr_running *r, const apr_call *call, apr_error *err)
{
    const ppl_options *const o = call->options;
    const apr_subject subject = apr_running_subject(r);
    apr_perplexity result;
    apr_report report;
    apr_meter meter;
    window_meter on = {0};
    apr_text_input text;
    int32_t *ids = NULL;
    size_t n_ids = 0;

    APR_TRY(apr_text_input_open(&text, call->operands[1], err));
    apr_status status = apr_subject_encode_text(&subject, text.bytes, text.n_bytes, &ids, &n_ids, err);
    apr_text_input_close(&text);
    if (status == APR_OK) {
        apr_set_window_bos(subject.vocab, ids, n_ids, o->window);
        on.progress = apr_meter_start_counting(&meter, call->quiet);
        status = apr_evaluate_perplexity(r->session, ids, n_ids, o->window, on_window, &on, &result, err);
        apr_meter_end(&meter);
    }
    free(ids);
    if (status != APR_OK) return status;
    apr_report_start(&report, call->answer, err);
    apr_report_print(&report, "perplexity %.4f  (%lld tokens scored in %lld windows of %lld, %.6f nats a token)\n", result.perplexity,
                     (long long)result.n_scored, (long long)result.n_windows, (long long)o->window, result.nll_per_token);
    apr_report_member(&report, "perplexity", apr_as_real(result.perplexity));
    apr_report_member(&report, "nll_per_token", apr_as_real(result.nll_per_token));
    apr_report_member(&report, "tokens_scored", apr_as_int(result.n_scored));
    apr_report_member(&report, "windows", apr_as_int(result.n_windows));
    apr_begin_report(&report, subject.vocab);
    if (o->run.stats) apr_print_stats(r, call);
    return APR_OK;
}

static apr_status run_ppl(const apr_call *call, apr_error *err)
{
    const ppl_options *const o = call->options;
    apr_opened opened = {0};
    apr_run_options run = o->run;

    if (run.ctx == 0) run.ctx = o->window;
    apr_status status = apr_opened_all(&opened, call->operands[0], &run, 64, err);
    if (status == APR_OK) status = perplexity_of(opened.running, call, err);
    apr_opened_close(&opened);
    return status;
}

const apr_command apr_ppl_command = {.verb = "ppl",
                                     .operands = "MODEL FILE",
                                     .min_operands = 2,
                                     .max_operands = 2,
                                     .options = ppl_table,
                                     .options_bytes = sizeof(ppl_options),
                                     .examples = ppl_examples,
                                     .run = run_ppl,
                                     .needs = apr_run_needs,
                                     .summary = "perplexity on a text"};
