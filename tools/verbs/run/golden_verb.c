/* golden_verb.c - `aprrun golden`: options, and a row of a table for each check. runtime/check/golden_checks.h says what is checked. */
#include "tools/verbs/verbs.h"

#include "runtime/check/golden_checks.h"
#include "tools/engine/run/as_library.h"
#include "tools/report/table.h"
#include "tools/verbs/run/golden_arrays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    {"ppl-tolerance", 0, APR_OPTION_REAL, "X", "0", "largest relative difference of perplexity; 0: as above",
     APR_TO(golden_options, bounds.ppl_tolerance), .min = 0, .max = 1e9},
    {"margin", 0, APR_OPTION_REAL, "X", "0.02", "do not check greedy answers with a smaller margin", APR_TO(golden_options, bounds.margin),
     .min = 0, .max = 1e9},
    {"min-recite", 0, APR_OPTION_INT, "N", "-1", "verses that must be recited exactly; -1: all", APR_TO(golden_options, bounds.min_recite),
     .min = -1, .max = 1e6},
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
        apr_golden_reason_json(json, &c->reason);
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
    for (int i = 0; i < all->n; i++) apr_golden_add_reason(&reasons, &all->list[i].reason);
    const apr_status status = apr_table_print(&table, stdout, 2, err);
    apr_golden_print_reasons(&reasons);
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
        APR_TRY(apr_golden_round(r, run, err));
        APR_TRY(run_checks(recorded, r, call->options, &rounded, err));
    }
    const bool is_rounded = can_round && rounded.n_bad == 0;
    *all_good = products.n_bad == 0 || is_rounded;
    const apr_golden_values values = products.n_bad == 0 ? APR_VALUES_PRODUCTS
                                     : is_rounded        ? APR_VALUES_AS_LIBRARY
                                     : can_round         ? APR_VALUES_NEITHER
                                                         : APR_VALUES_NO_MEMORY;
    APR_TRY(print_checks(is_rounded ? &rounded : &products, call, err));
    if (has_two) apr_golden_print_values(call, type, values, (size_t)rounded.n_bad);
    return APR_OK;
}

static apr_status run_golden(const apr_call *call, apr_error *err)
{
    const golden_options *const options = call->options;
    apr_run_options run = options->run;
    apr_recorded recorded = {0};
    apr_running r = {0};
    bool all_good = false;

    if (apr_is_golden_arrays(call->operands[1])) return apr_run_golden_arrays(call, &run, options->bounds.tolerance, err);
    APR_TRY(check_list(options->checks, err));
    apr_status status = apr_recorded_open(&recorded, call->operands[1], err);
    if (status == APR_OK) status = apr_running_open(&r, call->operands[0], &run, 64, err);
    if (status == APR_OK) status = check_either(&recorded, &r, call, &run, &all_good, err);
    if (status == APR_OK && run.stats) apr_print_stats(&r, call);
    apr_recorded_close(&recorded);
    apr_running_close(&r);
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
