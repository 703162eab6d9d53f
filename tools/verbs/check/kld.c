/* kld.c - `aprrun kld`: a model's predictions against a reference's, both in one process, position by position. */
#include "runtime/check/bootstrap.h"
#include "runtime/check/subject.h"
#include "tools/engine/plan/footprint.h"
#include "tools/engine/text_input.h"
#include "tools/report/meter.h"
#include "tools/report/report.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/check/begin_token.h"
#include "tools/verbs/page.h"
#include "tools/verbs/run/memory_print.h"
#include "tools/verbs/run/running.h"
#include "tools/verbs/verbs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is shown. */
typedef struct apr_kld_shown {
    const apr_running *reference, *other;
    const char *text;   /* the path of the text, as given */
    const int32_t *ids; /* the tokens that were compared */
    const char *before; /* the text up to the largest divergence; NULL: no memory for it */
    size_t n_before;
    int64_t batch; /* --batch; 0: not given */
    apr_divergence d;
    apr_divergence_intervals intervals;
    bool stats;
} apr_kld_shown;

/* A figure with its interval; low is NaN: it has none. */
typedef struct figure {
    const char *title, *key;
    double value;
    apr_interval interval;
} figure;

enum { N_FIGURES = 9 };

static void figures_of(const apr_kld_shown *s, figure figures[N_FIGURES])
{
    const apr_divergence *const d = &s->d;
    const apr_divergence_intervals *const i = &s->intervals;
    const apr_interval none = {NAN, NAN};
    const figure all[N_FIGURES] = {
        {"KL divergence, mean", "kl_mean", d->mean, i->mean},
        {"  median", "kl_median", d->median, none},
        {"  99 %", "kl_p99", d->p99, none},
        {"  largest", "kl_max", d->largest, none},
        {"same top token", "same_top", d->same_top, i->same_top},
        {"perplexity", "perplexity", d->perplexity_other, i->perplexity_other},
        {"  of the reference", "perplexity_ref", d->perplexity_reference, i->perplexity_reference},
        {"  ratio", "perplexity_ratio", d->perplexity_other / d->perplexity_reference, i->ratio},
        {"  difference", "perplexity_difference", d->perplexity_other - d->perplexity_reference, i->difference},
    };
    memcpy(figures, all, sizeof all);
}

static void report_header(apr_report *r, const apr_kld_shown *s)
{
    const apr_divergence *const d = &s->d;
    const char *const backend = apr_session_backend_name(s->other->session), *const ref_backend =
                                                                                 apr_session_backend_name(s->reference->session);
    char types[2][256];

    apr_report_print(r, "%s%s%s  %s\n", apr_bold(r->out), apr_printable(s->other->source.path), apr_plain(r->out),
                     apr_page_types(&s->other->model, types[0], sizeof types[0]));
    apr_report_print(r, "  against  %s  %s\n  run on %s", apr_printable(s->reference->source.path),
                     apr_page_types(&s->reference->model, types[1], sizeof types[1]), backend);
    if (strcmp(backend, ref_backend) != 0) apr_report_print(r, ", the reference on %s", ref_backend);
    apr_report_print(r, "; %s: %zu window%s of %lld tokens", apr_printable(s->text), d->n_windows, d->n_windows == 1 ? "" : "s",
                     (long long)d->window);
    if (s->batch > 0 && s->batch < d->window) apr_report_print(r, ", %lld at a time", (long long)s->batch);
    apr_report_print(r, "\n");
    apr_report_member(r, "backend", apr_as_text(backend));
    apr_report_member(r, "backend_ref", apr_as_text(ref_backend));
    if (s->batch > 0) apr_report_member(r, "batch", apr_as_int(s->batch));
    apr_report_member(r, "window", apr_as_int(d->window));
    apr_report_member(r, "windows", apr_as_uint(d->n_windows));
    apr_begin_report_both(r, &s->other->model.vocab, &s->reference->model.vocab);
    apr_report_print(r, "\n");
    apr_report_member(r, "positions", apr_as_int(d->n_rows));
    apr_report_member(r, "tokens_scored", apr_as_int(d->n_scored));
}

/* Divergence from rounding alone is too small for six decimals. */
static const char *number_text(char text[32], double value)
{
    snprintf(text, 32, value != 0.0 && fabs(value) < 0.001 ? "%.3g" : "%.6f", value);
    return text;
}

static void report_figure(apr_report *r, const figure *f)
{
    const bool has_interval = !isnan(f->interval.low);
    char value[32], high[32], key[64], interval[80] = "";

    apr_report_fact(r, f->key, apr_as_real(f->value), f->title, "%s", number_text(value, f->value));
    if (has_interval)
        snprintf(interval, sizeof interval, "%s to %s", number_text(value, f->interval.low), number_text(high, f->interval.high));
    apr_report_cell(r, apr_as_absent(), "%s", interval);
    snprintf(key, sizeof key, "%s_95", f->key);
    if (has_interval) apr_report_reals(r, key, (const double[]){f->interval.low, f->interval.high}, 2);
}

static void report_figures(apr_report *r, const apr_kld_shown *s)
{
    static const apr_column columns[] = {{NULL}, {NULL, true}, {NULL}};
    figure figures[N_FIGURES];

    figures_of(s, figures);
    apr_report_facts_in(r, "", "", columns, 3);
    for (size_t i = 0; i < N_FIGURES; i++) report_figure(r, &figures[i]);
    apr_report_close(r);
}

/* The mean of each window: two models on the same windows are compared pair by pair. */
static void put_windows(apr_report *r, const apr_divergence *d)
{
    apr_report_member(r, "kl_mean_second_half", apr_as_real(d->second_half));
    apr_report_member(r, "same_top_second_half", apr_as_real(d->second_half_top));
    apr_report_open(r, "kl_by_window", '[');
    for (size_t i = 0; i < d->n_windows; i++) apr_report_member(r, NULL, apr_as_real(d->windows[i].kl / (double)d->windows[i].n_rows));
    apr_report_shut(r, ']');
}

static void report_largest(apr_report *r, const apr_kld_shown *s)
{
    const apr_divergence *const d = &s->d;
    const int64_t window = d->largest_at / d->window, position = d->largest_at % d->window;
    char clean[160];

    apr_report_print(r, "\n  largest: window %lld, position %lld", (long long)window, (long long)position);
    apr_report_open(r, "largest", '{');
    apr_report_member(r, "window", apr_as_int(window));
    apr_report_member(r, "position", apr_as_int(position));
    apr_report_member(r, "token", apr_as_int(s->ids[d->largest_at]));
    if (s->before != NULL) {
        apr_report_print(r, ", after '%s'", apr_short_text(clean, sizeof clean, s->before, s->n_before, 48));
        apr_report_member(r, "after", apr_as_bytes(s->before, s->n_before));
    }
    apr_report_shut(r, '}');
    if (d->n_windows > 1)
        apr_report_print(r, "\n  intervals: 95 %%, by bootstrap, %d draws of %zu windows\n", APR_BOOTSTRAP_DRAWS, d->n_windows);
    else apr_report_print(r, "\n  one window: no intervals\n");
}

static void print_lines(const apr_running *running)
{
    fprintf(stderr, "%s\n", running->source.path);
    apr_session_lines_print(running->session, stderr);
}

/* JSON has the memory always, text on stderr with --stats. */
static void report_memory(apr_report *r, const apr_kld_shown *s)
{
    const apr_session *const sessions[] = {s->other->session, s->reference->session};
    const apr_footprint footprint = apr_footprint_of(sessions, 2);

    if (r->json == NULL) {
        print_lines(s->other);
        print_lines(s->reference);
        r->out = stderr;
    }
    apr_footprint_report(r, &footprint);
}

static apr_status report(const apr_kld_shown *s, apr_answer *answer, apr_error *err)
{
    apr_report r;

    apr_report_start(&r, answer, err);
    report_header(&r, s);
    report_figures(&r, s);
    put_windows(&r, &s->d);
    report_largest(&r, s);
    if (s->stats || answer->json) report_memory(&r, s);
    return apr_report_end(&r);
}

/* --- the command: checks that both models fit, opens them, and compares them on the windows of a text --- */
typedef struct kld_options {
    apr_run_options run;
    const char *ref;
    int ref_device; /* apr_device_choice; -1: as the model's */
    int64_t window, max_windows, seed;
} kld_options;

static const apr_option kld_table[] = {
    {"ref", 'r', APR_OPTION_STRING, "REFERENCE", NULL, "the model to compare with", APR_TO(kld_options, ref), .group = "Comparison"},
    {"ref-device", 0, APR_OPTION_CHOICE, APR_DEVICE_NAMES, NULL,
     "where REFERENCE runs, if not on --device; ref: with the plain reference code, so that a model can be compared with itself",
     APR_TO(kld_options, ref_device)},
    {"window", 'w', APR_OPTION_INT, "N", "0",
     "tokens per window; each starts with an empty context; 0: 512, or fewer if a context or the text is shorter",
     APR_TO(kld_options, window), .min = 0, .max = 1e9},
    {"max-windows", 0, APR_OPTION_INT, "N", "0", "at most this many windows, from the start of the text; 0: all",
     APR_TO(kld_options, max_windows), .min = 0, .max = 1e9},
    {"seed", 0, APR_OPTION_INT, "N", "0", "seed of the resampling (bootstrap) that gives the intervals", APR_TO(kld_options, seed),
     .min = -9e18, .max = 9e18},
    APR_RUN_OPTIONS(kld_options, run, "f16"),
    APR_LORA_OPTION(kld_options, run.lora, "the reference"),
    {0},
};

static const char *const kld_examples[] = {
    "aprrun kld model-q4_k_m.apr --ref checkpoint/ wiki.test.raw",
    "aprrun kld model-mxfp4.gguf --ref model-f16.gguf heldout.txt --device cuda --max-windows 100 --json",
    "aprrun kld model.gguf --ref model.gguf --ref-device ref heldout.txt --device cuda --batch 512 # the GPU's rounding in prompts",
    "aprrun kld model.gguf --ref model.gguf --ref-device ref heldout.txt --batch 1    # the host's, in decoded tokens",
    NULL,
};

/* The state of one comparison. */
typedef struct comparison {
    const kld_options *asked;
    apr_running reference, other;
    int32_t *ids, *ids_other; /* the text's tokens in windows, with each model's begin tokens */
    size_t n_ids;
    int64_t window;
} comparison;

static apr_status open_files(apr_running *r, const char *path, apr_error *err)
{
    APR_TRY(apr_running_open_files(r, path, err));
    return apr_running_open_tokenizer(r, err);
}

/* An id must mean the same in both, and rows of logits must have the same length. */
static apr_status check_vocabularies(const comparison *c, apr_error *err)
{
    const apr_subject reference = apr_running_subject(&c->reference), other = apr_running_subject(&c->other);
    const int64_t n_reference = c->reference.model.hparams.vocab_size, n_other = c->other.model.hparams.vocab_size;

    APR_TRY(apr_vocabularies_agree(&other, &reference, err));
    if (n_reference == n_other) return APR_OK;
    return apr_fail(err, APR_E_UNSUPPORTED, "the rows of logits have different lengths: %lld in %s and %lld in %s", (long long)n_other,
                    other.path, (long long)n_reference, reference.path);
}

static void lower(int64_t *least, int64_t n)
{
    if (n > 0 && n < *least) *least = n;
}

static apr_status choose_window(comparison *c, apr_error *err)
{
    const kld_options *const o = c->asked;
    int64_t window = 512;

    lower(&window, o->run.ctx);
    lower(&window, c->reference.model.hparams.max_position_embeddings);
    lower(&window, c->other.model.hparams.max_position_embeddings);
    lower(&window, (int64_t)c->n_ids);
    c->window = o->window > 0 ? o->window : window;
    if (c->window < 2 || c->n_ids < (size_t)c->window)
        return apr_fail(err, APR_E_USAGE, "the text has %zu tokens: it needs at least one full window of 2 or more tokens (--window %lld)",
                        c->n_ids, (long long)(c->window < 2 ? 2 : c->window));
    if (o->run.ctx > 0 && c->window > o->run.ctx)
        return apr_fail(err, APR_E_USAGE, "windows of %lld tokens do not fit the context of --ctx %lld", (long long)c->window,
                        (long long)o->run.ctx);
    const int64_t n_windows = (int64_t)(c->n_ids / (size_t)c->window);
    const int64_t n_used = o->max_windows > 0 && o->max_windows < n_windows ? o->max_windows : n_windows;
    c->n_ids = (size_t)(n_used * c->window); /* the last, short one is left out */
    return APR_OK;
}

/* The reference's ids of the text, cut to whole windows. For each model they begin with the begin token that it asks for. */
static apr_status read_text(comparison *c, const char *path, apr_error *err)
{
    const apr_subject reference = apr_running_subject(&c->reference);
    apr_text_input text;

    APR_TRY(apr_text_input_open(&text, path, err));
    const apr_status status =
        apr_subject_encode_shared(&reference, &c->other.model.vocab, text.bytes, text.n_bytes, &c->ids, &c->n_ids, err);
    apr_text_input_close(&text);
    APR_TRY(status);
    APR_TRY(choose_window(c, err));
    APR_TRY(apr_ids_with_window_bos(&c->other.model.vocab, c->ids, c->n_ids, c->window, &c->ids_other, err));
    apr_set_window_bos(reference.vocab, c->ids, c->n_ids, c->window);
    return APR_OK;
}

static apr_status refuse_both(const comparison *c, const apr_plan *other, const apr_plan *reference, uint64_t together, uint64_t budget,
                              apr_error *err)
{
    const bool on_device = other->judged == APR_ON_DEVICE;
    char all[APR_SMALL_TEXT], of_other[APR_SMALL_TEXT], of_reference[APR_SMALL_TEXT], more[APR_SMALL_TEXT];

    return apr_fail(
        err, APR_E_MEMORY,
        "both models at once need %s%s, %s more than %s: %s %s and %s %s; use a reference of a smaller type, or a smaller --batch "
        "or --window%s",
        apr_size_text(all, together), on_device ? " of the GPU, headroom included" : "", apr_size_text(more, together - budget),
        on_device ? "is free there" : "--memory allows", c->other.source.path,
        apr_size_text(of_other, on_device ? other->device_bytes : other->host_bytes), c->reference.source.path,
        apr_size_text(of_reference, on_device ? reference->device_bytes : reference->host_bytes),
        on_device ? "; or use --device host" : "");
}

static uint64_t held_bytes(const comparison *c)
{
    return apr_compare_bytes(c->reference.model.hparams.vocab_size, c->window, c->asked->run.batch);
}

/* For the model on the host, if the other is on a GPU: adds the logits that are held. A session itself checks only its own plan. */
static apr_status check_alone(const comparison *c, const apr_plan *plan, const char *path, apr_error *err)
{
    const uint64_t held = held_bytes(c), needed = plan->host_bytes + held;
    char model[APR_SMALL_TEXT], logits[APR_SMALL_TEXT], more[APR_SMALL_TEXT];

    if (plan->judged != APR_ON_HOST || plan->budget_bytes == 0 || !plan->fits || needed <= plan->budget_bytes) return APR_OK;
    return apr_fail(err, APR_E_MEMORY,
                    "%s needs %s on the host and %s for logits to compare, %s more than --memory allows; use a smaller "
                    "--batch or --window",
                    path, apr_size_text(model, plan->host_bytes), apr_size_text(logits, held),
                    apr_size_text(more, needed - plan->budget_bytes));
}

/* For both models on the GPU, or both on the host: adds the logits that are held. */
static apr_status check_together(const comparison *c, const apr_plan *other, const apr_plan *reference, apr_error *err)
{
    const uint64_t needed = apr_planned_together(other, reference) + (other->judged == APR_ON_HOST ? held_bytes(c) : 0);
    if (other->budget_bytes == 0 || needed <= other->budget_bytes) return APR_OK;
    return refuse_both(c, other, reference, needed, other->budget_bytes, err);
}

/* Checks both plans before either model allocates. */
static apr_status plan_both(const comparison *c, const apr_session_options *of_other, const apr_session_options *of_reference,
                            apr_error *err)
{
    apr_plan other = {0}, reference = {0};

    apr_status status = apr_session_forecast(&other, &c->other.model, of_other, err);
    if (status == APR_OK) status = apr_session_forecast(&reference, &c->reference.model, of_reference, err);
    if (status == APR_OK && other.judged == reference.judged) status = check_together(c, &other, &reference, err);
    else if (status == APR_OK) {
        status = check_alone(c, &other, c->other.source.path, err);
        if (status == APR_OK) status = check_alone(c, &reference, c->reference.source.path, err);
    }
    apr_plan_close(&other);
    apr_plan_close(&reference);
    return status;
}

/* --offload and --gpus apply to the model only, if the reference has its own device. */
static apr_status choose_devices(const comparison *c, apr_session_options *other, apr_session_options *reference, apr_error *err)
{
    apr_run_options run = c->asked->run;

    if (run.ctx == 0) run.ctx = c->window;
    APR_TRY(apr_running_options(&run, 64, other, err));
    *reference = *other;
    if (c->asked->ref_device < 0) return APR_OK;
    run.where.device = c->asked->ref_device;
    run.where.offload = run.where.gpus = NULL;
    return apr_running_options(&run, 64, reference, err);
}

/* If both should run on the GPU, both do or neither. With auto both fall back to the host; --force tries it anyway. */
static apr_status open_sessions(comparison *c, apr_error *err)
{
    apr_session_options of_other, of_reference;
    apr_error own = {0};

    APR_TRY(choose_devices(c, &of_other, &of_reference, err));
    const apr_status status = plan_both(c, &of_other, &of_reference, &own);
    const bool no_room = status == APR_E_MEMORY && of_other.cuda != NULL && of_reference.cuda != NULL;
    if (no_room && of_other.fall_back && of_reference.fall_back) {
        fprintf(stderr, "aprrun: WARNING: running on the host: %s\n", apr_printable(own.text));
        of_other.cuda = of_reference.cuda = NULL;
        of_other.fall_back = of_reference.fall_back = false;
    } else if (no_room && of_other.force) {
        fprintf(stderr, "aprrun: WARNING: trying it anyway: %s\n", apr_printable(own.text));
    } else if (status != APR_OK) {
        return apr_fail(err, status, "%s", own.text);
    }
    APR_TRY(apr_session_open(&c->other.session, &c->other.model, &of_other, err));
    return apr_session_open(&c->reference.session, &c->reference.model, &of_reference, err);
}

static void on_rows(void *user, int64_t n_done, int64_t n_rows)
{
    apr_progress_report(user, (uint64_t)n_done, (uint64_t)n_rows, "tokens compared");
}

static apr_status compare(const comparison *c, const apr_call *call, apr_kld_shown *shown, apr_error *err)
{
    apr_meter meter;
    apr_progress progress = apr_meter_start_counting(&meter, call->quiet);

    const apr_compared_text text = {
        .ids = c->ids, .ids_other = c->ids_other, .n_ids = (int64_t)c->n_ids, .window = c->window, .piece = c->asked->run.batch};
    const apr_status status = apr_compare_on_text(c->reference.session, c->other.session, &text, on_rows, &progress, &shown->d, err);
    apr_meter_end(&meter);
    APR_TRY(status);
    return apr_divergence_bootstrap(&shown->d, (uint64_t)c->asked->seed, &shown->intervals, err);
}

/* If the divergence is not finite, shows the figures and answers no. */
static apr_status show(const comparison *c, const apr_call *call, apr_kld_shown *shown, apr_error *err)
{
    char *before = NULL;

    if (apr_divergence_context_text(&shown->d, c->reference.tokenizer, c->ids, &before, &shown->n_before, NULL) == APR_OK)
        shown->before = before;
    const apr_status status = report(shown, call->answer, err);
    free(before);
    if (status != APR_OK || isfinite(shown->d.mean)) return status;
    return apr_fail(err, APR_E_NO, "no divergence: at position %lld of window %lld a logit is not finite",
                    (long long)(shown->d.largest_at % c->window), (long long)(shown->d.largest_at / c->window));
}

static apr_status run(comparison *c, const apr_call *call, apr_error *err)
{
    apr_kld_shown shown = {.text = call->operands[1], .batch = c->asked->run.batch, .stats = c->asked->run.stats};

    APR_TRY(open_files(&c->other, call->operands[0], err));
    APR_TRY(open_files(&c->reference, c->asked->ref, err));
    APR_TRY(apr_running_merge(&c->reference, &c->asked->run.lora, err));
    APR_TRY(check_vocabularies(c, err));
    APR_TRY(read_text(c, call->operands[1], err));
    APR_TRY(open_sessions(c, err));
    shown.reference = &c->reference;
    shown.other = &c->other;
    shown.ids = c->ids;
    apr_status status = compare(c, call, &shown, err);
    if (status == APR_OK) status = show(c, call, &shown, err);
    apr_divergence_close(&shown.d);
    return status;
}

static apr_status run_kld(const apr_call *call, apr_error *err)
{
    comparison c = {.asked = call->options};

    if (c.asked->ref == NULL) return apr_fail(err, APR_E_USAGE, "name the model to compare with: --ref REFERENCE; try 'aprrun kld --help'");
    const apr_status status = run(&c, call, err);
    free(c.ids);
    free(c.ids_other);
    apr_running_close(&c.reference);
    apr_running_close(&c.other);
    return status;
}

const apr_command apr_kld_command = {.verb = "kld",
                                     .operands = "MODEL TEXT",
                                     .min_operands = 2,
                                     .max_operands = 2,
                                     .summary = "KL divergence of a model's predictions from a reference's, on a text",
                                     .options = kld_table,
                                     .options_bytes = sizeof(kld_options),
                                     .examples = kld_examples,
                                     .run = run_kld,
                                     .needs = apr_run_needs};
