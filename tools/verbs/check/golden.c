/* golden.c - `aprrun golden`: a model against outputs that another implementation recorded. golden.json is checked by
 * runtime/check/golden_checks.h. golden.safetensors alone (logits and hidden states of token ids, without a tokenizer) is checked with several
 * batch sizes by runtime/check/golden.h. */
#include "runtime/check/golden.h"
#include "formats/base/text.h"
#include "runtime/check/golden_checks.h"
#include "tools/engine/run/as_library.h"
#include "tools/report/table.h"
#include "tools/verbs/run/running.h"
#include "tools/verbs/verbs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Is the path that of a safetensors file, not of golden.json? */
static bool is_golden_arrays(const char *path) { return apr_ends_with(path, ".safetensors"); }

/* The reasons of bounds, each once. */
typedef struct apr_golden_reasons {
    apr_run_bound seen[8];
    size_t n;
} apr_golden_reasons;

/* Which numbers were recorded, if the model's matrices stand for two sets of them (formats/tensor/library_type.h). */
typedef enum {
    APR_VALUES_PRODUCTS,   /* the first, which a run has */
    APR_VALUES_AS_LIBRARY, /* the second */
    APR_VALUES_NEITHER,
    APR_VALUES_NO_MEMORY /* not the first; not enough memory for the second */
} apr_golden_values;

/* --- why a bound is what it is --- */

static void golden_add_reason(apr_golden_reasons *reasons, const apr_run_bound *reason)
{
    if (reason->relative == 0.0) return;
    for (size_t i = 0; i < reasons->n; i++)
        if (reasons->seen[i].relative == reason->relative) return;
    if (reasons->n < sizeof reasons->seen / sizeof *reasons->seen) reasons->seen[reasons->n++] = *reason;
}

/* lines below a table */
static void golden_print_reasons(const apr_golden_reasons *reasons)
{
    for (size_t i = 0; i < reasons->n; i++)
        printf("  bound: %g of the largest recorded number: %s\n", reasons->seen[i].relative, reasons->seen[i].reason);
}

/* type: what the library rounds to. n_bad: figures, or checks, that also fail with the library's values. */
static void golden_reason_json(apr_json_text *json, const apr_run_bound *reason)
{
    if (reason->relative == 0.0) return;
    apr_json_real(json, "bound_relative", reason->relative);
    apr_json_string(json, "bound_reason", reason->reason, strlen(reason->reason));
}

/* type: what the library rounds to. n_bad: figures, or checks, that also fail with the library's values. */
static void golden_print_values(const apr_call *call, const char *type, apr_golden_values values, size_t n_bad)
{
    static const char *const names[] = {[APR_VALUES_PRODUCTS] = "products",
                                        [APR_VALUES_AS_LIBRARY] = "as_library",
                                        [APR_VALUES_NEITHER] = "neither",
                                        [APR_VALUES_NO_MEMORY] = "not_products"};

    if (call->answer->json) {
        apr_json_string(&call->answer->body, "values", names[values], strlen(names[values]));
        return;
    }
    if (values == APR_VALUES_AS_LIBRARY)
        printf("  values: products of code and scale rounded to %s, as the checkpoint's library decodes them; a run does not round them\n",
               type);
    else printf("  values: float32 products of code and scale");
    if (values == APR_VALUES_NEITHER) printf("; rounded to %s, as the checkpoint's library decodes them, %zu fail\n", type, n_bad);
    else if (values == APR_VALUES_NO_MEMORY)
        printf("; not tried, not enough memory: rounded to %s, as the checkpoint's library decodes them\n", type);
    else if (values == APR_VALUES_PRODUCTS) printf("\n");
}

/* --- figures --- */

/* All figures of one run. */
typedef struct figures {
    apr_golden_result *list;
    size_t n, n_bad, capacity;
} figures;

static const struct {
    const char *id, *title;
} whats[] = {
    [APR_GOLDEN_LOGITS] = {"logits", "logits"},
    [APR_GOLDEN_HIDDEN] = {"hidden", "hidden states"},
    [APR_GOLDEN_SECOND] = {"second_text", "a second text after the first"},
    [APR_GOLDEN_AGAIN] = {"first_text_again", "the first text again"},
};

static void figure_json(apr_json_text *json, const apr_golden_result *f)
{
    apr_json_open(json, NULL, '{');
    apr_json_string(json, "what", whats[f->what].id, strlen(whats[f->what].id));
    apr_json_int(json, "tokens_at_a_time", f->n_together);
    apr_json_bool(json, "exact_products", f->exact);
    apr_json_bool(json, "passed", apr_golden_is_good(f));
    apr_json_int(json, "good", f->n_good);
    apr_json_int(json, "judged", f->n_rows);
    apr_json_real(json, "worst", f->worst);
    apr_json_real(json, "worst_relative", f->peak > 0 ? f->worst / f->peak : f->worst);
    apr_json_real(json, "bound", f->bound);
    golden_reason_json(json, &f->reason);
    if (f->routes.n_choices > 0) {
        apr_json_int(json, "choices", f->routes.n_choices);
        apr_json_int(json, "choices_forced", f->routes.n_forced);
        apr_json_int(json, "choices_wrong", f->routes.n_wrong);
    }
    if (f->first_bad[0] != '\0') apr_json_string(json, "first_bad", f->first_bad, strlen(f->first_bad));
    apr_json_close(json, '}');
}

static void figure_row(apr_table *table, const apr_golden_result *f)
{
    apr_table_cell(table, "%s", apr_golden_is_good(f) ? "pass" : "FAIL");
    apr_table_cell(table, "%s", whats[f->what].title);
    const char *const exactly = f->exact ? ", exact products" : "";
    if (f->n_together == f->n_tokens) apr_table_cell(table, "as one prompt%s", exactly);
    else if (f->n_together == 1) apr_table_cell(table, "token by token%s", exactly);
    else apr_table_cell(table, "in batches of %lld%s", (long long)f->n_together, exactly);
    apr_table_cell(table, "%lld of %lld", (long long)f->n_good, (long long)f->n_rows);
    apr_table_cell(table, "off by %.2g of the largest, bound %.2g", f->peak > 0 ? f->worst / f->peak : f->worst,
                   f->peak > 0 ? f->bound / f->peak : f->bound);
    if (f->first_bad[0] != '\0') apr_table_cell(table, "first: %s", f->first_bad);
    else apr_table_cell(table, "%s", "");
}

static apr_status on_figure(void *user, const apr_golden_result *f, apr_error *err)
{
    figures *const all = user;

    if (all->n == all->capacity) {
        const size_t capacity = 2 * all->capacity + 16;
        apr_golden_result *const list = realloc(all->list, capacity * sizeof *list);
        if (list == NULL) return apr_no_memory(err, "the figures");
        all->list = list;
        all->capacity = capacity;
    }
    all->list[all->n++] = *f;
    all->n_bad += !apr_golden_is_good(f);
    return APR_OK;
}

/* Lists the arrays that were not recorded, so that they were not checked. */
static void say_absent(const apr_golden_arrays *a, const apr_call *call)
{
    const struct {
        const char *name;
        bool absent;
    } arrays[] = {{"logits", a->logits == NULL}, {"hidden", a->hidden == NULL}, {"ids2, last2", a->last2 == NULL}};

    if (call->answer->json) apr_json_open(&call->answer->body, "not_recorded", '[');
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        if (!arrays[i].absent) continue;
        if (call->answer->json) apr_json_string(&call->answer->body, NULL, arrays[i].name, strlen(arrays[i].name));
        else printf("  not recorded, not checked: %s\n", arrays[i].name);
    }
    if (call->answer->json) apr_json_close(&call->answer->body, ']');
}

static apr_status print_figures(const figures *all, const apr_call *call, apr_error *err)
{
    static const apr_column columns[6];
    apr_golden_reasons reasons = {0};
    apr_route_count routes = {0};
    apr_table table;

    for (size_t i = 0; i < all->n; i++) {
        golden_add_reason(&reasons, &all->list[i].reason);
        routes.n_choices += all->list[i].routes.n_choices;
        routes.n_forced += all->list[i].routes.n_forced;
    }
    if (call->answer->json) {
        apr_json_open(&call->answer->body, "figures", '[');
        for (size_t i = 0; i < all->n; i++) figure_json(&call->answer->body, &all->list[i]);
        apr_json_close(&call->answer->body, ']');
        return APR_OK;
    }
    apr_table_start(&table, columns, 6);
    for (size_t i = 0; i < all->n; i++) figure_row(&table, &all->list[i]);
    APR_TRY(apr_table_print(&table, stdout, 2, err));
    golden_print_reasons(&reasons);
    if (routes.n_choices > 0)
        printf("  choices of experts: %lld; %lld near ties were decided as in the reference\n", (long long)routes.n_choices,
               (long long)routes.n_forced);
    return APR_OK;
}

/* Opens the reference, if the model routes tokens to experts: its choices decide near ties. NULL: the model runs on it already, or has no
 * experts. */
static apr_status open_reference(const apr_running *r, apr_session **reference, apr_error *err)
{
    apr_session_options options = apr_session_defaults;

    if (!apr_program_routes(apr_session_program(r->session)) || apr_trace_run_facts(r->session, 1).on == APR_RUNS_ON_REF) return APR_OK;
    options.backend = &apr_ref_backend;
    options.n_ctx = apr_session_plan(r->session)->n_ctx;
    options.kv_dtype = APR_F32;
    return apr_session_open(reference, apr_trace_model(r->session), &options, err);
}

/* Checks everything that was recorded, once. */
static apr_status check_arrays(const apr_running *r, const apr_golden_arrays *arrays, double tolerance, figures *all, apr_error *err)
{
    apr_session *reference = NULL;

    apr_status status = open_reference(r, &reference, err);
    if (status == APR_OK) status = apr_golden_run(r->session, reference, arrays, tolerance, on_figure, all, err);
    apr_session_close(reference);
    return status;
}

/* Opens the session again, with matrices rounded as their library does. */
static apr_status golden_round(apr_running *r, const apr_run_options *options, apr_error *err)
{
    apr_session_options session;

    APR_TRY(apr_running_round(r, err));
    APR_TRY(apr_running_options(options, 64, &session, err));
    return apr_session_open(&r->session, &r->model, &session, err);
}

/* A published matrix stands for two sets of numbers. Checks with the products first; if they fail, with the library's values. */
static apr_status check_either_arrays(apr_running *r, const apr_run_options *run, const apr_golden_arrays *arrays, double tolerance,
                                      const apr_call *call, bool *all_good, apr_error *err)
{
    figures products = {0}, rounded = {0};
    const char *type = NULL;
    const bool has_two = apr_running_rounds(r, &type);

    apr_status status = check_arrays(r, arrays, tolerance, &products, err);
    const bool can_round = has_two && products.n_bad > 0 && apr_running_can_round(r);
    if (status == APR_OK && can_round) {
        status = golden_round(r, run, err);
        if (status == APR_OK) status = check_arrays(r, arrays, tolerance, &rounded, err);
    }
    const bool is_rounded = can_round && rounded.n_bad == 0;
    *all_good = products.n_bad == 0 || is_rounded;
    const apr_golden_values values = products.n_bad == 0 ? APR_VALUES_PRODUCTS
                                     : is_rounded        ? APR_VALUES_AS_LIBRARY
                                     : can_round         ? APR_VALUES_NEITHER
                                                         : APR_VALUES_NO_MEMORY;
    if (status == APR_OK) status = print_figures(is_rounded ? &rounded : &products, call, err);
    if (status == APR_OK && has_two) golden_print_values(call, type, values, rounded.n_bad);
    free(products.list);
    free(rounded.list);
    return status;
}

/* The call's operands: the model, the arrays. run->ctx 0: as long as the texts need. */
static apr_status run_golden_arrays(const apr_call *call, const apr_run_options *options, double tolerance, apr_error *err)
{
    apr_run_options run = *options;
    apr_golden_arrays arrays;
    apr_opened opened = {0};
    bool all_good = false;

    apr_status status = apr_golden_open(&arrays, call->operands[1], err);
    if (status == APR_OK) {
        if (run.ctx == 0) run.ctx = apr_golden_context(&arrays);
        status = apr_opened_weights(&opened, call->operands[0], &run, 64, err);
    }
    if (status == APR_OK) status = check_either_arrays(opened.running, &run, &arrays, tolerance, call, &all_good, err);
    if (status == APR_OK) say_absent(&arrays, call);
    if (status == APR_OK && run.stats) apr_print_stats(opened.running, call);
    apr_golden_close(&arrays);
    apr_opened_close(&opened);
    return status != APR_OK ? status : all_good ? APR_OK : APR_E_NO;
}

/* --- the command, and a row of a table for each check (runtime/check/golden_checks.h) --- */

typedef struct golden_options {
    apr_run_options run;
    const char *checks;
    apr_recorded_options bounds;
} golden_options;

static const apr_option golden_table[] = {
    {"checks", 0, APR_OPTION_STRING, "LIST", "template,tokens,greedy,top,recite,logits,hidden,perplexity",
     "what to check, separated by commas", APR_TO(golden_options, checks), .group = "Checks"},
    {"tolerance", 0, APR_OPTION_REAL, "X", "0",
     "largest absolute difference of logits and hidden states; 0: what rounding in this backend and batch size can explain",
     APR_TO(golden_options, bounds.tolerance), .min = 0, .max = 1e9},
    {"ppl-tolerance", 0, APR_OPTION_REAL, "X", "0", "largest relative difference of perplexity; 0: what rounding can explain",
     APR_TO(golden_options, bounds.ppl_tolerance), .min = 0, .max = 1e9},
    {"margin", 0, APR_OPTION_REAL, "X", "0.02", "do not check greedy answers where the two most likely tokens were closer than X",
     APR_TO(golden_options, bounds.margin), .min = 0, .max = 1e9},
    {"min-recite", 0, APR_OPTION_INT, "N", "-1", "how many of the recorded verses must be recited exactly; -1: all",
     APR_TO(golden_options, bounds.min_recite), .min = -1, .max = 1e6},
    {"text", 0, APR_OPTION_STRING, "FILE", NULL, "the text for the perplexity; by default it is searched next to golden.json and above",
     APR_TO(golden_options, bounds.text)},
    APR_RUN_OPTIONS(golden_options, run, "f32"),
    APR_LORA_OPTION(golden_options, run.lora, "the weights"),
    {0},
};

static const char *const golden_examples[] = {
    "aprrun golden model.apr golden.json",
    "aprrun golden --device ref model.apr golden.safetensors",
    "aprrun golden --checks tokens,recite --min-recite 36 model-q4_k_m.apr golden.json",
    NULL,
};

static const struct {
    const char *what, *of_worst;
} words[APR_N_RECORDED] = {
    [APR_RECORDED_TEMPLATE] = {"chat template renders as recorded", ""},
    [APR_RECORDED_TOKENS] = {"token ids", ""},
    [APR_RECORDED_GREEDY] = {"greedy answers", ""},
    [APR_RECORDED_TOP] = {"top logits after a prompt", "largest difference"},
    [APR_RECORDED_RECITE] = {"verses recited word for word", ""},
    [APR_RECORDED_LOGITS] = {"logits of the first tokens", "largest difference"},
    [APR_RECORDED_HIDDEN] = {"hidden states, layer by layer", "largest difference"},
    [APR_RECORDED_PERPLEXITY] = {"perplexity", "relative difference"},
};

/* Is `name` one of the words of the comma-separated list? */
static bool is_asked(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0')) return true;
    }
    return false;
}

static apr_status check_list(const char *list, apr_error *err)
{
    for (const char *at = list; *at != '\0';) {
        const size_t n = strcspn(at, ",");
        bool known = false;
        for (int k = 0; k < APR_N_RECORDED; k++) known |= strlen(apr_recorded_name(k)) == n && strncmp(apr_recorded_name(k), at, n) == 0;
        if (!known) return apr_fail(err, APR_E_USAGE, "--checks: '%.*s' is not a check", (int)n, at);
        at += n + (at[n] == ',');
    }
    return APR_OK;
}

static void answer_json(apr_json_text *json, const apr_recorded_check *c)
{
    apr_json_open(json, apr_recorded_name(c->kind), '{');
    apr_json_bool(json, "passed", c->passed);
    apr_json_int(json, "good", c->n_good);
    apr_json_int(json, "judged", c->n_checked);
    if (!isnan(c->bound)) {
        apr_json_real(json, "worst", c->worst);
        apr_json_real(json, "bound", c->bound);
        golden_reason_json(json, &c->reason);
    }
    if (c->first_bad[0] != '\0') apr_json_string(json, "first_bad", c->first_bad, strlen(c->first_bad));
    apr_json_close(json, '}');
}

static void answer_row(apr_table *table, const apr_recorded_check *c)
{
    apr_table_cell(table, "%s", c->passed ? "pass" : "FAIL");
    apr_table_cell(table, "%s", words[c->kind].what);
    apr_table_cell(table, "%lld of %lld", (long long)c->n_good, (long long)c->n_checked);
    if (isnan(c->bound)) apr_table_cell(table, "%s", "");
    else apr_table_cell(table, "%s %.3g, bound %.3g", words[c->kind].of_worst, c->worst, c->bound);
    if (c->first_bad[0] != '\0') apr_table_cell(table, "first: %s", c->first_bad);
    else apr_table_cell(table, "%s", "");
}

/* The checks that were asked for, in their order. */
typedef struct checks {
    apr_recorded_check list[APR_N_RECORDED];
    int n, n_bad;
} checks;

static apr_status run_checks(const apr_recorded *recorded, const apr_running *r, const golden_options *options, checks *all, apr_error *err)
{
    const apr_subject subject = apr_running_subject(r);

    *all = (checks){.n = 0};
    for (int kind = 0; kind < APR_N_RECORDED; kind++) {
        apr_recorded_check *const c = &all->list[all->n];
        if (!is_asked(options->checks, apr_recorded_name(kind))) continue;
        APR_TRY(apr_recorded_check_run(recorded, kind, &subject, &options->bounds, c, err));
        all->n++;
        all->n_bad += !c->passed;
    }
    return APR_OK;
}

static apr_status print_checks(const checks *all, const apr_call *call, apr_error *err)
{
    static const apr_column columns[5] = {{.verdict = true}};
    apr_golden_reasons reasons = {0};
    apr_table table;

    if (call->answer->json) {
        for (int i = 0; i < all->n; i++) answer_json(&call->answer->body, &all->list[i]);
        return APR_OK;
    }
    apr_table_start(&table, columns, 5);
    for (int i = 0; i < all->n; i++) answer_row(&table, &all->list[i]);
    for (int i = 0; i < all->n; i++) golden_add_reason(&reasons, &all->list[i].reason);
    const apr_status status = apr_table_print(&table, stdout, 2, err);
    golden_print_reasons(&reasons);
    return status;
}

/* Checks with the products that a run uses; if that fails, with the values of the layout's library, if they differ. */
static apr_status check_either(const apr_recorded *recorded, apr_running *r, const apr_call *call, const apr_run_options *run,
                               bool *all_good, apr_error *err)
{
    checks products, rounded = {.n = 0};
    const char *type = NULL;
    const bool has_two = apr_running_rounds(r, &type);

    APR_TRY(run_checks(recorded, r, call->options, &products, err));
    const bool can_round = has_two && products.n_bad > 0 && apr_running_can_round(r);
    if (can_round) {
        APR_TRY(golden_round(r, run, err));
        APR_TRY(run_checks(recorded, r, call->options, &rounded, err));
    }
    const bool is_rounded = can_round && rounded.n_bad == 0;
    *all_good = products.n_bad == 0 || is_rounded;
    const apr_golden_values values = products.n_bad == 0 ? APR_VALUES_PRODUCTS
                                     : is_rounded        ? APR_VALUES_AS_LIBRARY
                                     : can_round         ? APR_VALUES_NEITHER
                                                         : APR_VALUES_NO_MEMORY;
    APR_TRY(print_checks(is_rounded ? &rounded : &products, call, err));
    if (has_two) golden_print_values(call, type, values, (size_t)rounded.n_bad);
    return APR_OK;
}

static apr_status run_golden(const apr_call *call, apr_error *err)
{
    const golden_options *const options = call->options;
    apr_run_options run = options->run;
    apr_recorded recorded = {0};
    apr_opened opened = {0};
    bool all_good = false;

    if (is_golden_arrays(call->operands[1])) return run_golden_arrays(call, &run, options->bounds.tolerance, err);
    APR_TRY(check_list(options->checks, err));
    apr_status status = apr_recorded_open(&recorded, call->operands[1], err);
    if (status == APR_OK) status = apr_opened_all(&opened, call->operands[0], &run, 64, err);
    if (status == APR_OK) status = check_either(&recorded, opened.running, call, &run, &all_good, err);
    if (status == APR_OK && run.stats) apr_print_stats(opened.running, call);
    apr_recorded_close(&recorded);
    apr_opened_close(&opened);
    return status != APR_OK ? status : all_good ? APR_OK : APR_E_NO;
}

const apr_command apr_golden_command = {.verb = "golden",
                                        .operands = "MODEL golden.json|golden.safetensors",
                                        .min_operands = 2,
                                        .max_operands = 2,
                                        .summary = "token ids, answers, logits, hidden states and perplexity against a recorded reference",
                                        .options = golden_table,
                                        .options_bytes = sizeof(golden_options),
                                        .examples = golden_examples,
                                        .run = run_golden,
                                        .needs = apr_run_needs};
