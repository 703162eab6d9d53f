/* bench.c - `aprrun bench`: opens or makes the model, measures it, shows the results. */
#include "tools/verbs/run/bench.h"

#include "formats/base/clock.h"
#include "formats/base/machine.h"
#include "tools/cli/values.h"
#include "tools/engine/bench/bench_concurrency.h"
#include "tools/engine/bench/bench_stages.h"
#include "tools/engine/bench/synthetic.h"
#include "tools/engine/device/host_memory.h"
#include "tools/report/html.h"
#include "tools/report/meter.h"
#include "tools/report/text.h"
#include "tools/verbs/plan/plan_lines.h"
#include "tools/verbs/run/bench_print.h"
#include "tools/verbs/run/running.h"
#include "tools/verbs/verbs.h"

#include <stdlib.h>
#include <string.h>

static apr_status refuse(const char *option, const char *text, apr_error *err)
{
    return apr_fail(err, APR_E_USAGE,
                    "%s takes whole numbers from 0 to 1000000000 separated by commas, as in 512,2048 (at most %d), not '%s'", option,
                    APR_BENCH_MOST_LENGTHS, text);
}

apr_status apr_lengths_parse(apr_lengths *lengths, const char *option, const char *text, apr_error *err)
{
    char item[16];

    lengths->n = 0;
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, ",");
        if (n >= sizeof item || lengths->n == APR_BENCH_MOST_LENGTHS) return refuse(option, text, err);
        memcpy(item, at, n);
        item[n] = '\0';
        int64_t *const length = &lengths->items[lengths->n++];
        if (!apr_parse_int(item, length) || *length < 0 || *length > 1000000000) return refuse(option, text, err);
        at += n;
        if (*at == '\0') return APR_OK;
    }
}

/* --- the command --- */

typedef struct bench_options {
    apr_run_options run;
    const char *synthetic, *dtype, *prompt, *depth, *sequences, *batch, *html;
    int64_t tokens, repeat, seed;
    bool csv;
    apr_page_options page;
} bench_options;

static const apr_option bench_table[] = {
    {"synthetic", 0, APR_OPTION_STRING, "CONFIG", NULL,
     "instead of MODEL: random weights for this config.json, made in memory (with --dtype)", APR_TO(bench_options, synthetic),
     .group = "What"},
    {"dtype", 0, APR_OPTION_STRING, "TYPE", NULL,
     "types of the random weights, as aprquant --to TYPE would choose them; also a type that is only read (aprquant --list)",
     APR_TO(bench_options, dtype)},
    {"seed", 0, APR_OPTION_INT, "N", "0", "seed of the random weights and tokens", APR_TO(bench_options, seed), .min = -9e18, .max = 9e18},
    {"prompt", 'p', APR_OPTION_STRING, "N,N", NULL, "lengths of the prompts to measure, in tokens; 0: none [512,2048; on the host 128]",
     APR_TO(bench_options, prompt), .group = "Measurement"},
    {"tokens", 'n', APR_OPTION_INT, "N", "-1", "tokens to decode one at a time; 0: none; -1: 128, on the host 32",
     APR_TO(bench_options, tokens), .min = -1, .max = 1e9},
    {"depth", 'd', APR_OPTION_STRING, "N,N", NULL,
     "tokens already in the context, not measured [0,4096,16384 as far as they fit; on the host 0]", APR_TO(bench_options, depth)},
    {"sequences", 0, APR_OPTION_STRING, "N,N", NULL,
     "also measure N sequences at once, each with the first --prompt and --tokens: throughput and time to the first token; a list for "
     "--batch means the same",
     APR_TO(bench_options, sequences)},
    {"repeat", 0, APR_OPTION_INT, "N", "5", "measured runs of each, after a warm-up run", APR_TO(bench_options, repeat), .min = 1,
     .max = APR_SPEED_MOST_RUNS},
    {"csv", 0, APR_OPTION_FLAG, NULL, NULL, "print comma-separated values", APR_TO(bench_options, csv)},
    {"html", 0, APR_OPTION_STRING, "FILE", NULL, "also write the results as one HTML page with pictures; replaces only an older page",
     APR_TO(bench_options, html)},
    APR_PAGE_OPTIONS(bench_options, page),
    APR_CONTEXT_OPTION(bench_options, run),
    {"batch", 'b', APR_OPTION_STRING, "N|N,N", NULL, APR_BATCH_HELP "; a list, such as 1,8,32, is one for --sequences",
     APR_TO(bench_options, batch)},
    APR_RUN_MORE_OPTIONS(bench_options, run, "f16"),
    {0},
};

static const char *const bench_examples[] = {
    "aprrun bench model-q4_k_m.gguf --device cuda",
    "aprrun bench --synthetic config.json --dtype q4_k_m --device cuda     # before the download",
    "aprrun bench model.apr --prompt 64,256 --tokens 32 --depth 0,1024 --csv >figures.csv",
    "aprrun bench --synthetic config.json --dtype mxfp4 --tokens 16 --repeat 5 --json",
    "aprrun bench model.gguf --prompt 128 --tokens 32 --sequences 1,8,32 --html speed.html",
    NULL,
};

/* One measurement. The session's model is in `running` or in `synthetic`. */
typedef struct bench {
    const bench_options *asked;
    apr_running running;
    apr_synthetic synthetic;
    apr_session_options options;
    apr_bench_stages stages;
    int64_t n_batch;                    /* of --batch; 0: not given */
    const char *many_option;            /* the option that gave numbers of sequences; NULL: none were given */
    apr_concurrency_options many_asked; /* sequences.n is 0: none are measured */
    apr_concurrency_result many[APR_BENCH_MOST_LENGTHS];
    bool may_drop; /* the depths are defaults: those that do not fit are dropped */
    bool finite;
    double made_s, opened_s;
} bench;

static bool is_synthetic(const bench *b) { return b->asked->synthetic != NULL; }

/* --- what is measured --- */

/* A single number is how many tokens of a prompt are evaluated at a time, as in every verb. */
static apr_status read_batch(bench *b, apr_error *err)
{
    const char *const text = b->asked->batch;
    const bool is_list = text != NULL && strchr(text, ',') != NULL;

    if (is_list && b->asked->sequences != NULL)
        return apr_fail(err, APR_E_USAGE, "--batch %s and --sequences %s both give numbers of sequences: leave one of them out", text,
                        b->asked->sequences);
    b->many_option = is_list ? "--batch" : b->asked->sequences != NULL ? "--sequences" : NULL;
    if (text == NULL || is_list) return APR_OK;
    if (apr_parse_int(text, &b->n_batch) && b->n_batch >= 0 && b->n_batch <= APR_MOST_BATCH) return APR_OK;
    return apr_fail(err, APR_E_USAGE,
                    "--batch takes the number of prompt tokens to evaluate at a time, 0 to %d, or a list of numbers of sequences, as in "
                    "1,8,32, not '%s'",
                    APR_MOST_BATCH, text);
}

static apr_status choose_sequences(bench *b, apr_error *err)
{
    const char *const list = b->asked->sequences != NULL ? b->asked->sequences : b->asked->batch;

    APR_TRY(apr_lengths_parse(&b->many_asked.sequences, b->many_option, list, err));
    return apr_concurrency_check(&b->many_asked, b->many_option, err);
}

/* Uses the lengths that were given; else defaults that suit a GPU, or that a host measures in about a minute. */
static apr_status choose_stages(bench *b, apr_error *err)
{
    const bench_options *const o = b->asked;
    const bool on_device = b->options.cuda != NULL;
    apr_lengths prompts, depths;

    APR_TRY(apr_lengths_parse(&prompts, "--prompt", o->prompt != NULL ? o->prompt : on_device ? "512,2048" : "128", err));
    APR_TRY(apr_lengths_parse(&depths, "--depth", o->depth != NULL ? o->depth : on_device ? "0,4096,16384" : "0", err));
    b->may_drop = o->depth == NULL;
    b->many_asked = (apr_concurrency_options){.n_prompt = prompts.items[0],
                                              .n_tokens = o->tokens >= 0 ? o->tokens
                                                          : on_device    ? 128
                                                                         : 32,
                                              .n_runs = (int)o->repeat,
                                              .seed = (uint64_t)o->seed};
    if (b->many_option != NULL) APR_TRY(choose_sequences(b, err));
    apr_bench_stages_close(&b->stages);
    return apr_bench_stages_make(&b->stages, &prompts, o->tokens >= 0 ? o->tokens : on_device ? 128 : 32, &depths, err);
}

/* Sets the context that the stages need. Drops default depths that exceed the model's context or the memory. */
static apr_status choose_context(bench *b, const apr_model *model, apr_error *err)
{
    const int64_t known = model->hparams.max_position_embeddings > 0 ? model->hparams.max_position_embeddings : INT64_MAX;
    const int64_t most = b->asked->run.ctx > 0 ? b->asked->run.ctx : known;

    while (b->may_drop && apr_bench_stages_context(&b->stages) > most && apr_bench_stages_drop_deepest(&b->stages)) {
    }
    for (;;) {
        apr_plan plan;
        if (b->asked->run.ctx == 0) b->options.n_ctx = apr_bench_stages_context(&b->stages);
        if (!b->may_drop) return APR_OK;
        APR_TRY(apr_session_forecast(&plan, model, &b->options, err));
        const bool fits = plan.fits;
        apr_plan_close(&plan);
        if (fits || !apr_bench_stages_drop_deepest(&b->stages)) return APR_OK;
    }
}

/* --- opening --- */

/* Refuses what does not fit before the weights are made. */
static apr_status check_host_memory(const bench *b, const apr_plan *plan, apr_error *err)
{
    const uint64_t n_bytes = apr_machine_bytes();
    char needs[APR_SMALL_TEXT], has[APR_SMALL_TEXT];

    if (plan->judged != APR_ON_HOST || n_bytes == 0 || plan->host_bytes <= n_bytes) return APR_OK;
    return apr_fail(err, APR_E_MEMORY, "%s as %s needs %s, but this machine has %s", b->asked->synthetic, b->asked->dtype,
                    apr_size_text(needs, plan->host_bytes), apr_size_text(has, n_bytes));
}

/* Makes the weights only if the plan fits. Else the session will refuse to open, before it reads any weight. */
static apr_status make_weights(bench *b, const apr_call *call, apr_error *err)
{
    const double begin = apr_seconds_now();
    const bool copies_all = b->options.cuda != NULL && !apr_offload_is_some(&b->options.offload);
    apr_plan plan;
    apr_meter meter;

    APR_TRY(apr_synthetic_open(&b->synthetic, b->asked->synthetic, b->asked->dtype, copies_all, err));
    APR_TRY(choose_context(b, &b->synthetic.model, err));
    APR_TRY(apr_session_forecast(&plan, &b->synthetic.model, &b->options, err));
    const bool is_made = plan.fits || b->options.force;
    apr_status status = is_made ? check_host_memory(b, &plan, err) : APR_OK;
    apr_plan_close(&plan);
    if (status != APR_OK || !is_made) return status;
    const apr_progress progress = apr_meter_start(&meter, call->quiet);
    status = apr_synthetic_fill(&b->synthetic, (uint64_t)b->asked->seed, &progress, err);
    apr_meter_end(&meter);
    b->made_s = apr_seconds_now() - begin;
    return status;
}

static apr_status open_session(bench *b, const apr_model *model, apr_error *err)
{
    const double begin = apr_seconds_now();
    const apr_status status = apr_session_open(&b->running.session, model, &b->options, err);
    b->opened_s = apr_seconds_now() - begin;
    if (status == APR_OK && b->asked->run.ctx > 0 && b->running.source.path != NULL)
        apr_plan_warn_of_context(apr_session_plan(b->running.session));
    return status;
}

/* With --device auto the fallback to the host is done here, not by the session: on the host the weights need another layout. */
static apr_status open_synthetic(bench *b, const apr_call *call, apr_error *err)
{
    const bool falls_back = b->options.fall_back;
    apr_error own = {0};

    b->options.fall_back = false;
    b->options.weights_location = "in anonymous memory";
    apr_status status = make_weights(b, call, &own);
    if (status == APR_OK) status = open_session(b, &b->synthetic.model, &own);
    const bool is_of_device = status == APR_E_DEVICE || status == APR_E_MEMORY || status == APR_E_UNSUPPORTED;
    if (status == APR_OK) return APR_OK;
    if (!is_of_device || !falls_back) return apr_fail(err, status, "%s", own.text);
    fprintf(stderr, "aprrun: WARNING: the GPU failed, falling back to the host: %s\n", apr_printable(own.text));
    apr_synthetic_close(&b->synthetic);
    b->options.cuda = NULL;
    APR_TRY(choose_stages(b, err));
    return open_synthetic(b, call, err);
}

static apr_status check_asked(const bench_options *o, size_t n_operands, bool json, apr_error *err)
{
    const bool synthetic = o->synthetic != NULL;

    if (synthetic == (n_operands > 0))
        return apr_fail(err, APR_E_USAGE, "name what to measure: MODEL, or --synthetic CONFIG; try 'aprrun bench --help'");
    if (synthetic != (o->dtype != NULL))
        return apr_fail(err, APR_E_USAGE, "--synthetic CONFIG and --dtype TYPE go together; a MODEL has its own types");
    if (o->csv && json) return apr_fail(err, APR_E_USAGE, "--csv and --json are two formats: choose one");
    return APR_OK;
}

static apr_status open_model(bench *b, const apr_call *call, apr_error *err)
{
    APR_TRY(check_asked(b->asked, call->n_operands, call->answer->json, err));
    APR_TRY(read_batch(b, err));
    if (!is_synthetic(b)) APR_TRY(apr_running_open_files(&b->running, call->operands[0], err));
    APR_TRY(apr_running_options(&b->asked->run, 1, &b->options, err));
    b->options.n_batch = b->n_batch;
    APR_TRY(choose_stages(b, err));
    if (is_synthetic(b)) return open_synthetic(b, call, err);
    APR_TRY(choose_context(b, &b->running.model, err));
    return open_session(b, &b->running.model, err);
}

/* --- measuring --- */

static void on_run(void *user, int n_done, int n_runs) { apr_progress_report(user, (uint64_t)n_done, (uint64_t)n_runs, "runs"); }

static apr_status measure(bench *b, const apr_call *call, apr_error *err)
{
    apr_meter meter;
    apr_progress progress = apr_meter_start_counting(&meter, call->quiet);
    const apr_speed_options options = {
        .n_runs = (int)b->asked->repeat, .seed = (uint64_t)b->asked->seed, .on_run = on_run, .user = &progress};

    const apr_status status = apr_speed_measure(b->running.session, b->stages.stages, b->stages.n, &options, &b->finite, err);
    apr_meter_end(&meter);
    return status;
}

static apr_status measure_many(bench *b, const apr_call *call, apr_error *err)
{
    const apr_model *const model = is_synthetic(b) ? &b->synthetic.model : &b->running.model;
    apr_meter meter;

    if (b->many_asked.sequences.n == 0) return APR_OK;
    const apr_progress progress = apr_meter_start_counting(&meter, call->quiet);
    const apr_status status = apr_concurrency_measure(b->many, &b->many_asked, model, &b->options, &progress, err);
    apr_meter_end(&meter);
    return status;
}

/* Measures the read rate of the memory that holds the weights, and the link to it. 0.0: several places, or not measurable. */
static void measure_ceilings(const bench *b, apr_bench_result *r)
{
    apr_cuda_device *device;
    const apr_cuda_options small = {.stack_bytes = APR_DEFAULT_STACK_BYTES};

    if (apr_session_n_places(b->running.session) > 1) return;
    if (apr_session_plan(b->running.session)->judged == APR_ON_HOST) {
        r->ceiling = apr_host_read_rate((int)b->asked->run.threads);
        r->cache_bytes = apr_host_cache_bytes();
        return;
    }
    if (b->options.cuda->open(&device, b->options.ordinal, &small, NULL) != APR_OK) return;
    if (b->options.cuda->bandwidth(device, &r->ceiling, &r->link, NULL) != APR_OK) r->ceiling = r->link = 0.0;
    b->options.cuda->close(device);
}

/* --- showing --- */

static apr_bench_result result_of(const bench *b, const apr_call *call)
{
    const apr_session *const session = b->running.session;
    apr_bench_result r = {.name = is_synthetic(b) ? b->asked->synthetic : call->operands[0],
                          .dtype = b->asked->dtype,
                          .session = session,
                          .token_reads = apr_session_cost(session).reads,
                          .stages = b->stages.stages,
                          .n_stages = b->stages.n,
                          .n_runs = (int)b->asked->repeat,
                          .finite = b->finite,
                          .made_s = b->made_s,
                          .opened_s = b->opened_s,
                          .footprint = apr_footprint_of(&session, 1)};
    apr_cuda_facts gpu;

    if (r.footprint.on == APR_ON_DEVICE && b->options.cuda->facts(b->options.ordinal, &gpu, NULL) == APR_OK)
        snprintf(r.gpu, sizeof r.gpu, "%s", gpu.name);
    if (r.gpu[0] != '\0' && gpu.l2_bytes > 0) r.cache_bytes = (uint64_t)gpu.l2_bytes;
    if (is_synthetic(b)) apr_footprint_add_weights(&r.footprint, b->synthetic.heap_bytes);
    r.n_bytes = r.footprint.weights;
    r.n_elems = b->synthetic.n_elems;
    for (size_t i = 0; i < b->running.model.n_tensors; i++)
        if (apr_dtype_is_weights(b->running.model.tensors[i].dtype)) r.n_elems += apr_tensor_elems(&b->running.model.tensors[i]);
    measure_ceilings(b, &r); /* last: it allocates memory for a moment */
    return r;
}

static apr_status judge(const bench *b, const apr_bench_result *result, apr_error *err)
{
    return b->finite ? APR_OK : apr_fail(err, APR_E_NO, "%s computes logits that are not finite", result->name);
}

/* The page, with the answer that --json gives. */
static apr_status write_page(const bench *b, const apr_bench_shown *shown, const apr_call *call, apr_out *page, apr_error *err)
{
    const apr_page_model model = {"model", is_synthetic(b) ? &b->synthetic.model : &b->running.source};
    char command[APR_PAGE_COMMAND];
    apr_page_about about = {.command = apr_page_command(call, command),
                            .options = &b->asked->page,
                            .models = &model,
                            .n_models = 1,
                            .session = b->running.session};
    apr_error answer = {0};
    apr_answer as_json;

    apr_answer_start(&as_json, true);
    apr_status status = apr_bench_report(shown, &as_json, err);
    about.answer = apr_answer_document(&as_json.body, judge(b, shown->result, &answer), &answer);
    if (status == APR_OK) status = apr_bench_html(shown, &about, page, err);
    free(about.answer);
    return status;
}

static apr_status show(const bench *b, const apr_call *call, apr_out *page, apr_error *err)
{
    const apr_bench_result result = result_of(b, call);
    const apr_bench_shown shown = {&result, b->many, &b->many_asked};

    if (b->asked->csv) apr_bench_csv(&shown, stdout);
    else APR_TRY(apr_bench_report(&shown, call->answer, err));
    if (b->asked->run.stats && !call->answer->json) apr_session_lines_print(b->running.session, stderr);
    if (page != NULL) APR_TRY(write_page(b, &shown, call, page, err));
    return judge(b, &result, err);
}

static apr_status run_bench(const apr_call *call, apr_error *err)
{
    bench *const b = calloc(1, sizeof *b);
    apr_out *page = NULL;

    if (b == NULL) return apr_no_memory(err, "the figures");
    b->asked = call->options;
    apr_status status = open_model(b, call, err);
    if (status == APR_OK && b->asked->html != NULL) status = apr_out_open_marked(&page, b->asked->html, APR_BENCH_HTML_MARK, err);
    if (status == APR_OK) status = measure(b, call, err);
    if (status == APR_OK) status = measure_many(b, call, err);
    if (status == APR_OK) status = show(b, call, page, err);
    status = apr_html_close(page, status, err);
    apr_running_close(&b->running);
    apr_synthetic_close(&b->synthetic);
    apr_bench_stages_close(&b->stages);
    free(b);
    return status;
}

static bool has_page(const apr_call *call) { return ((const bench_options *)call->options)->html != NULL; }

static const apr_need bench_needs[] = {APR_DEVICE_NEEDS(apr_runs_on_a_gpu), APR_PAGE_NEEDS("--html FILE", has_page), {0}};

const apr_command apr_bench_command = {.verb = "bench",
                                       .operands = "[MODEL]",
                                       .min_operands = 0,
                                       .max_operands = 1,
                                       .summary = "speed and memory of a model, or of a config.json with random weights",
                                       .options = bench_table,
                                       .options_bytes = sizeof(bench_options),
                                       .examples = bench_examples,
                                       .run = run_bench,
                                       .needs = bench_needs};
