/* bench_verb.c - `aprrun bench`: opens or makes the model, has it measured, says what was found. */
#include "tools/run/bench_verb.h"

#include "formats/base/clock.h"
#include "runtime/session/speed.h"
#include "tools/cli/meter.h"
#include "tools/cli/text.h"
#include "tools/run/footprint.h"
#include "tools/run/running.h"
#include "tools/run/synthetic.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct bench_options {
    apr_run_options run;
    const char *synthetic, *dtype;
    int64_t prompt, tokens, repeat, seed;
} bench_options;

const apr_option apr_bench_options[] = {
    {"synthetic", 0, APR_OPTION_STRING, "CONFIG", NULL,
     "no MODEL but random weights of this config.json's shape, made in memory (with --dtype)", APR_TO(bench_options, synthetic),
     .group = "What"},
    {"dtype", 't', APR_OPTION_STRING, "TYPE", NULL, "their types, as aprquant --to TYPE would have them (aprquant --list)",
     APR_TO(bench_options, dtype)},
    {"seed", 0, APR_OPTION_INT, "N", "0", "of the random weights and tokens", APR_TO(bench_options, seed), .min = -9e18, .max = 9e18},
    {"prompt", 'p', APR_OPTION_INT, "N", "512", "tokens of the prompt; 0: none", APR_TO(bench_options, prompt), .min = 0, .max = 1e9,
     .group = "Measurement"},
    {"tokens", 'n', APR_OPTION_INT, "N", "128", "tokens decoded behind it, one at a time; 0: none", APR_TO(bench_options, tokens), .min = 0,
     .max = 1e9},
    {"repeat", 0, APR_OPTION_INT, "N", "3", "measured runs, after one that is not", APR_TO(bench_options, repeat), .min = 1,
     .max = APR_SPEED_MOST_RUNS},
    APR_RUN_OPTIONS(bench_options, run, "f16"),
    {0},
};
const size_t apr_bench_options_bytes = sizeof(bench_options);

const char *const apr_bench_examples[] = {
    "aprrun bench model-q4_k_m.gguf --device cuda",
    "aprrun bench --synthetic config.json --dtype q4_k_m --device cuda --prompt 4096     # before the download",
    "aprrun bench --synthetic config.json --dtype mxfp4 --tokens 16 --repeat 5 --json",
    NULL,
};

/* What is measured: one of the two has the session's model. */
typedef struct bench {
    const bench_options *asked;
    apr_running running;
    apr_synthetic synthetic;
    apr_session_options options;
    apr_speed speed;
    double made_s, opened_s;
} bench;

static bool is_synthetic(const bench *b) { return b->asked->synthetic != NULL; }

/* --- opening --- */

/* What does not fit is refused before gigabytes are made. */
static apr_status check_host_memory(const bench *b, const apr_plan *plan, apr_error *err)
{
    const long n_pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    char needs[APR_SMALL_TEXT], has[APR_SMALL_TEXT];

    if (plan->judged != APR_ON_HOST || n_pages <= 0 || page <= 0) return APR_OK;
    const uint64_t n_bytes = (uint64_t)n_pages * (uint64_t)page;
    if (plan->host_bytes <= n_bytes) return APR_OK;
    return apr_fail(err, APR_E_MEMORY, "%s as %s needs %s, and this machine has %s", b->asked->synthetic, b->asked->dtype,
                    apr_size_text(needs, plan->host_bytes), apr_size_text(has, n_bytes));
}

/* Weights are made when the plan says that the session will not refuse them: it does so before it reads any. */
static apr_status make_weights(bench *b, const apr_call *call, apr_error *err)
{
    const double begin = apr_seconds_now();
    const bool copies_all = b->options.cuda != NULL && !apr_offload_is_some(&b->options.offload);
    apr_plan plan;
    apr_meter meter;

    APR_TRY(apr_synthetic_open(&b->synthetic, b->asked->synthetic, b->asked->dtype, copies_all, err));
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
    return status;
}

/* With --device auto a GPU that fails is given up here, not by the session: on the host the weights must lie otherwise. */
static apr_status open_synthetic(bench *b, const apr_call *call, apr_error *err)
{
    const bool falls_back = b->options.fall_back;
    apr_error own = {0};

    b->options.fall_back = false;
    b->options.weights_lie = "in anonymous memory";
    apr_status status = make_weights(b, call, &own);
    if (status == APR_OK) status = open_session(b, &b->synthetic.model, &own);
    const bool is_of_device = status == APR_E_DEVICE || status == APR_E_MEMORY || status == APR_E_UNSUPPORTED;
    if (status == APR_OK) return APR_OK;
    if (!is_of_device || !falls_back) return apr_fail(err, status, "%s", own.text);
    fprintf(stderr, "aprrun: WARNING: the GPU is given up, the run goes on on the host: %s\n", own.text);
    apr_synthetic_close(&b->synthetic);
    b->options.cuda = NULL;
    return open_synthetic(b, call, err);
}

static apr_status check_asked(const bench_options *o, size_t n_operands, apr_error *err)
{
    const bool synthetic = o->synthetic != NULL;

    if (synthetic == (n_operands > 0)) return apr_fail(err, APR_E_USAGE, "name what is to be measured: MODEL, or --synthetic CONFIG");
    if (synthetic != (o->dtype != NULL))
        return apr_fail(err, APR_E_USAGE, "--synthetic CONFIG and --dtype TYPE go together: weights that a MODEL has are of its types");
    if (o->prompt + o->tokens > 0) return APR_OK;
    return apr_fail(err, APR_E_USAGE, "there is nothing to measure: give --prompt or --tokens more than 0");
}

static apr_status open_model(bench *b, const apr_call *call, apr_error *err)
{
    apr_run_options run = b->asked->run;

    APR_TRY(check_asked(b->asked, call->n_operands, err));
    if (run.ctx == 0) run.ctx = b->asked->prompt + b->asked->tokens;
    if (!is_synthetic(b)) APR_TRY(apr_running_open_files(&b->running, call->operands[0], err));
    APR_TRY(apr_running_options(&run, 1, &b->options, err));
    return is_synthetic(b) ? open_synthetic(b, call, err) : open_session(b, &b->running.model, err);
}

/* --- measuring --- */

static void on_run(void *user, int n_done, int n_runs) { apr_progress_report(user, (uint64_t)n_done, (uint64_t)n_runs, "runs"); }

static apr_status measure(bench *b, const apr_call *call, apr_error *err)
{
    apr_meter meter;
    apr_progress progress = apr_meter_start_counting(&meter, call->quiet);
    const apr_speed_options options = {.n_prompt = b->asked->prompt,
                                       .n_tokens = b->asked->tokens,
                                       .n_runs = (int)b->asked->repeat,
                                       .seed = (uint64_t)b->asked->seed,
                                       .on_run = on_run,
                                       .user = &progress};

    const apr_status status = apr_speed_measure(b->running.session, &options, &b->speed, err);
    apr_meter_end(&meter);
    return status;
}

/* --- showing --- */

/* What was measured, and where. */
typedef struct bench_facts {
    const char *name;
    char gpu[256]; /* "": the host */
    int64_t n_elems;
    uint64_t n_bytes; /* by the plan */
    apr_footprint footprint;
} bench_facts;

static bench_facts facts_of(const bench *b, const apr_call *call)
{
    const apr_session *const session = b->running.session;
    bench_facts f = {.name = is_synthetic(b) ? b->asked->synthetic : call->operands[0], .footprint = apr_footprint_of(&session, 1)};
    apr_cuda_facts gpu;

    if (f.footprint.on == APR_ON_DEVICE && b->options.cuda->facts(b->options.ordinal, &gpu, NULL) == APR_OK)
        snprintf(f.gpu, sizeof f.gpu, "%s", gpu.name);
    if (is_synthetic(b)) apr_footprint_add_weights(&f.footprint, b->synthetic.heap_bytes);
    f.n_bytes = f.footprint.weights;
    f.n_elems = b->synthetic.n_elems;
    for (size_t i = 0; i < b->running.model.n_tensors; i++)
        if (apr_dtype_is_weights(b->running.model.tensors[i].dtype)) f.n_elems += apr_tensor_elems(&b->running.model.tensors[i]);
    return f;
}

static void stage_json(apr_json_text *json, const char *key, int64_t n_tokens, const double *seconds, int n)
{
    const apr_spread rates = apr_speed_rates(n_tokens, seconds, n);

    if (n_tokens == 0) {
        apr_json_null(json, key);
        return;
    }
    apr_json_open(json, key, '{');
    apr_json_int(json, "tokens", n_tokens);
    apr_json_real(json, "tokens_per_second", rates.median);
    apr_json_real(json, "lowest", rates.low);
    apr_json_real(json, "highest", rates.high);
    apr_json_open(json, "seconds", '[');
    for (int i = 0; i < n; i++) apr_json_real(json, NULL, seconds[i]);
    apr_json_close(json, ']');
    apr_json_close(json, '}');
}

static void answer_json(const bench *b, const bench_facts *f, apr_json_text *json)
{
    const char *const backend = apr_session_backend_name(b->running.session);
    const apr_plan *const plan = apr_session_plan(b->running.session);

    apr_json_string(json, "model", f->name, strlen(f->name));
    apr_json_bool(json, "synthetic", is_synthetic(b));
    if (is_synthetic(b)) apr_json_string(json, "dtype", b->asked->dtype, strlen(b->asked->dtype));
    apr_json_int(json, "parameters", f->n_elems);
    apr_json_uint(json, "weights_bytes", f->n_bytes);
    apr_json_string(json, "backend", backend, strlen(backend));
    if (f->gpu[0] != '\0') apr_json_string(json, "gpu", f->gpu, strlen(f->gpu));
    apr_json_int(json, "context", plan->n_ctx);
    apr_json_int(json, "batch", plan->n_batch);
    apr_json_int(json, "runs", b->speed.n_runs);
    stage_json(json, "prompt", b->asked->prompt, b->speed.prompt_s, b->speed.n_runs);
    stage_json(json, "decoding", b->asked->tokens, b->speed.decode_s, b->speed.n_runs);
    if (apr_session_n_places(b->running.session) > 1) apr_link_json(b->running.session, json);
    apr_json_bool(json, "finite", b->speed.finite);
    if (is_synthetic(b)) apr_json_real(json, "make_seconds", b->made_s);
    apr_json_real(json, "open_seconds", b->opened_s);
    apr_footprint_json(&f->footprint, json);
}

static void print_stage(const char *what, int64_t n_tokens, const double *seconds, int n)
{
    const apr_spread rates = apr_speed_rates(n_tokens, seconds, n);
    if (n_tokens == 0) return;
    printf("  %-9s %6lld tokens  %10.2f tokens/s", what, (long long)n_tokens, rates.median);
    if (n > 1) printf("  (%.2f to %.2f, median of %d)", rates.low, rates.high, n);
    putchar('\n');
}

static void print_answer(const bench *b, const bench_facts *f)
{
    const apr_plan *const plan = apr_session_plan(b->running.session);
    char count[APR_SMALL_TEXT], size[APR_SMALL_TEXT];

    printf("%s%s%s%s%s%s: %s parameters, %s of weights\n", apr_bold(stdout), f->name, apr_plain(stdout), is_synthetic(b) ? " as " : "",
           is_synthetic(b) ? b->asked->dtype : "", is_synthetic(b) ? ", random weights" : "", apr_magnitude_text(count, f->n_elems),
           apr_size_text(size, f->n_bytes));
    printf("  run on %s%s%s, context %lld, batch %lld, %s keys and values\n", apr_session_backend_name(b->running.session),
           f->gpu[0] != '\0' ? ": " : "", f->gpu, (long long)plan->n_ctx, (long long)plan->n_batch, apr_dtypes[plan->kv_dtype].name);
    print_stage("prompt", b->asked->prompt, b->speed.prompt_s, b->speed.n_runs);
    print_stage("decoding", b->asked->tokens, b->speed.decode_s, b->speed.n_runs);
    if (apr_session_n_places(b->running.session) > 1) apr_link_print(b->running.session, stdout);
    apr_footprint_print(&f->footprint, stdout);
    if (b->asked->run.stats) apr_session_lines_print(b->running.session, stderr);
}

apr_status apr_run_bench(const apr_call *call, apr_error *err)
{
    bench *const b = calloc(1, sizeof *b);

    if (b == NULL) return apr_no_memory(err, "the figures");
    b->asked = call->options;
    apr_status status = open_model(b, call, err);
    if (status == APR_OK) status = measure(b, call, err);
    if (status == APR_OK) {
        const bench_facts facts = facts_of(b, call);
        if (call->answer->json) answer_json(b, &facts, &call->answer->body);
        else print_answer(b, &facts);
        if (!b->speed.finite) status = apr_fail(err, APR_E_NO, "%s computes logits that are no numbers", facts.name);
    }
    apr_running_close(&b->running);
    apr_synthetic_close(&b->synthetic);
    free(b);
    return status;
}
