/* golden.c - the checks of a recorded truth, one function each, and their table. */
#include "tools/run/golden_verb.h"

#include "runtime/session/evaluate.h"
#include "runtime/session/generate.h"
#include "tools/cli/table.h"
#include "tools/run/golden_arrays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct golden_options {
    apr_run_options run;
    const char *checks, *text;
    double tolerance, ppl_tolerance, margin;
    int64_t min_recite;
} golden_options;

const apr_option apr_golden_options[] = {
    {"checks", 0, APR_OPTION_STRING, "LIST", "template,tokens,greedy,top,recite,logits,hidden,perplexity",
     "what to check, separated by commas", APR_TO(golden_options, checks), .group = "Checks"},
    {"tolerance", 0, APR_OPTION_REAL, "X", "0",
     "largest absolute difference of logits and hidden states; 0: what the backend and the grouping of tokens may bring about",
     APR_TO(golden_options, tolerance), .min = 0, .max = 1e9},
    {"ppl-tolerance", 0, APR_OPTION_REAL, "X", "0", "largest relative difference of perplexity; 0: likewise",
     APR_TO(golden_options, ppl_tolerance), .min = 0, .max = 1e9},
    {"margin", 0, APR_OPTION_REAL, "X", "0.02", "greedy answers with a smaller margin are not judged", APR_TO(golden_options, margin),
     .min = 0, .max = 1e9},
    {"min-recite", 0, APR_OPTION_INT, "N", "-1", "verses that must be exact; -1: all", APR_TO(golden_options, min_recite), .min = -1,
     .max = 1e6},
    {"text", 0, APR_OPTION_STRING, "FILE", NULL, "the text of the perplexity; otherwise looked for beside golden.json and above it",
     APR_TO(golden_options, text)},
    APR_RUN_OPTIONS(golden_options, run, "f32"),
    {0},
};
const size_t apr_golden_options_bytes = sizeof(golden_options);

const char *const apr_golden_examples[] = {
    "aprrun golden model.apr golden.json",
    "aprrun golden --device ref model.apr golden.safetensors",
    "aprrun golden --checks tokens,recite --min-recite 36 model-q4_k_m.apr golden.json",
    NULL,
};

typedef struct check check;

typedef struct golden {
    const golden_options *options;
    const char *path; /* of golden.json */
    apr_running *r;
    cJSON *json;
} golden;

/* What a check found out. It passes when all that was judged is good. */
struct check {
    int64_t n_good, n_judged, n_total;
    double worst, bound;  /* NaN: the check has no such figure */
    apr_run_bound reason; /* of bound; relative 0: it was given */
    char first_bad[160];
};

static void judge(check *c, bool good, const char *which)
{
    c->n_judged++;
    c->n_good += good;
    if (!good && c->first_bad[0] == '\0') snprintf(c->first_bad, sizeof c->first_bad, "%s", which);
}

/* An array of ids, malloc'ed. */
static apr_status ids_of(const golden *g, const cJSON *array, int32_t **ids, size_t *n_ids, apr_error *err)
{
    size_t n = 0;
    const cJSON *item;
    *ids = malloc((size_t)cJSON_GetArraySize(array) * sizeof **ids + 1);
    if (*ids == NULL) return apr_no_memory(err, "recorded ids");
    cJSON_ArrayForEach(item, array)
    {
        int64_t id;
        if (!apr_json_as_int(item, &id) || id < 0 || id > INT32_MAX) {
            free(*ids);
            return apr_fail(err, APR_E_DAMAGED, "%s: a token id is no id", g->path);
        }
        (*ids)[n++] = (int32_t)id;
    }
    *n_ids = n;
    return APR_OK;
}

static const char *text_of(const cJSON *object, const char *key)
{
    const char *const text = apr_json_get_string(object, key);
    return text != NULL ? text : "";
}

static bool is_chat(const cJSON *prompt) { return strcmp(text_of(prompt, "kind"), "chat") == 0; }

/* Does the model's own template make the recorded text of a chat? */
static apr_status check_template(const golden *g, check *c, apr_error *err)
{
    const cJSON *prompt;
    cJSON_ArrayForEach(prompt, apr_json_get(g->json, "prompts"))
    {
        char *text;
        size_t n;
        if (!is_chat(prompt)) continue;
        APR_TRY(apr_render_chat(g->r, NULL, text_of(prompt, "text"), &text, &n, err));
        judge(c, strcmp(text, text_of(prompt, "rendered")) == 0, text_of(prompt, "text"));
        free(text);
    }
    return APR_OK;
}

/* Token ids of the rendered prompts. */
static apr_status check_tokens(const golden *g, check *c, apr_error *err)
{
    const cJSON *prompt;
    cJSON_ArrayForEach(prompt, apr_json_get(g->json, "prompts"))
    {
        const char *const text = text_of(prompt, "rendered");
        int32_t *ids, *truth;
        size_t n, n_truth;
        APR_TRY(ids_of(g, apr_json_get(prompt, "ids"), &truth, &n_truth, err));
        const apr_status status = apr_encode_prompt(g->r, text, strlen(text), false, &ids, &n, err);
        if (status == APR_OK) {
            judge(c, n == n_truth && memcmp(ids, truth, n * sizeof *ids) == 0, text);
            free(ids);
        }
        free(truth);
        APR_TRY(status);
    }
    return APR_OK;
}

/* Greedy continuation of `prompt` into `got`, at most `limit` ids. */
typedef struct collected {
    int32_t *ids;
    size_t n_ids, limit;
} collected;

static bool collect(void *user, int32_t id, bool is_stop)
{
    collected *const got = user;
    (void)is_stop;
    if (got->n_ids < got->limit) got->ids[got->n_ids++] = id;
    return got->n_ids < got->limit;
}

static apr_status continue_greedily(const golden *g, const int32_t *prompt, size_t n_prompt, size_t limit, collected *got, apr_error *err)
{
    const apr_vocab *const vocab = &g->r->model.vocab;
    const apr_generate_options options = {
        .max_tokens = (int64_t)limit, .stop_ids = vocab->stop_ids, .n_stop_ids = vocab->n_stop_ids, .on_token = collect, .user = got};
    static const apr_sample_options greedy;
    apr_generation generation;
    apr_sampler sampler;

    *got = (collected){.limit = limit, .ids = malloc(limit * sizeof *got->ids + 1)};
    if (got->ids == NULL) return apr_no_memory(err, "an answer");
    apr_session_reset(g->r->session);
    apr_status status = apr_sampler_open(&sampler, apr_session_program(g->r->session)->vocab_size, &greedy, err);
    if (status == APR_OK) status = apr_generate(g->r->session, &sampler, prompt, n_prompt, &options, &generation, err);
    apr_sampler_close(&sampler);
    if (status != APR_OK) free(got->ids);
    return status;
}

static apr_status check_one_answer(const golden *g, const cJSON *prompt, check *c, apr_error *err)
{
    int32_t *ids, *truth;
    size_t n_ids, n_truth;
    double margin = 0;
    collected got;

    c->n_total++;
    if (!apr_json_get_real(prompt, "greedy_min_margin", &margin) || margin <= g->options->margin) return APR_OK;
    APR_TRY(ids_of(g, apr_json_get(prompt, "ids"), &ids, &n_ids, err));
    apr_status status = ids_of(g, apr_json_get(prompt, "greedy_ids"), &truth, &n_truth, err);
    if (status == APR_OK) {
        status = continue_greedily(g, ids, n_ids, n_truth, &got, err);
        if (status == APR_OK) {
            judge(c, got.n_ids == n_truth && memcmp(got.ids, truth, n_truth * sizeof *truth) == 0, text_of(prompt, "text"));
            free(got.ids);
        }
        free(truth);
    }
    free(ids);
    return status;
}

static apr_status check_greedy(const golden *g, check *c, apr_error *err)
{
    const cJSON *prompt;
    cJSON_ArrayForEach(prompt, apr_json_get(g->json, "prompts")) APR_TRY(check_one_answer(g, prompt, c, err));
    return APR_OK;
}

static void worst_of(check *c, double difference)
{
    if (!(difference <= c->worst)) c->worst = difference; /* NaN is the worst of all */
}

/* Of the recorded best logits of one prompt. */
typedef struct top_found {
    double worst, peak;
} top_found;

static apr_status compare_top(const golden *g, const cJSON *prompt, size_t *n_ids, top_found *found, apr_error *err)
{
    const cJSON *const values = apr_json_get(prompt, "top5_logits");
    int32_t *ids, *top;
    size_t n_top;

    *found = (top_found){0};
    APR_TRY(ids_of(g, apr_json_get(prompt, "ids"), &ids, n_ids, err));
    apr_session_reset(g->r->session);
    const apr_status status = apr_session_eval(g->r->session, ids, *n_ids, NULL, err);
    free(ids);
    APR_TRY(status);
    APR_TRY(ids_of(g, apr_json_get(prompt, "top5_ids"), &top, &n_top, err));
    const float *const logits = apr_session_logits(g->r->session);
    for (size_t i = 0; i < n_top; i++) {
        const cJSON *const value = cJSON_GetArrayItem(values, (int)i);
        const bool known = value != NULL && top[i] < apr_session_program(g->r->session)->vocab_size;
        const double difference = known ? fabs((double)logits[top[i]] - value->valuedouble) : NAN;
        if (!(difference <= found->worst)) found->worst = difference;
        if (known) found->peak = fmax(found->peak, fabs(value->valuedouble));
    }
    free(top);
    return APR_OK;
}

/* The best logits after each prompt. */
static apr_status check_top(const golden *g, check *c, apr_error *err)
{
    const cJSON *prompt;

    c->worst = 0;
    c->bound = g->options->tolerance;
    cJSON_ArrayForEach(prompt, apr_json_get(g->json, "prompts"))
    {
        top_found found;
        size_t n_ids;
        APR_TRY(compare_top(g, prompt, &n_ids, &found, err));
        double bound = g->options->tolerance;
        if (bound == 0.0) {
            const apr_run_bound b = apr_run_bound_of(apr_trace_run_facts(g->r->session, (int64_t)n_ids));
            bound = b.relative * found.peak;
            if (b.relative > c->reason.relative) c->reason = b;
        }
        worst_of(c, found.worst);
        c->bound = fmax(c->bound, bound);
        judge(c, found.worst <= bound, text_of(prompt, "text"));
    }
    return APR_OK;
}

static apr_status recite(const golden *g, const cJSON *verse, bool *exact, apr_error *err)
{
    const char *const truth = text_of(verse, "text");
    char request[128], *rendered, *text;
    int32_t *ids = NULL;
    size_t n, n_ids = 0;
    collected got = {0};

    snprintf(request, sizeof request, "Recite %s", text_of(verse, "ref"));
    APR_TRY(apr_render_chat(g->r, NULL, request, &rendered, &n, err));
    apr_status status = apr_encode_prompt(g->r, rendered, n, false, &ids, &n_ids, err);
    free(rendered);
    if (status == APR_OK) status = continue_greedily(g, ids, n_ids, strlen(truth) + 8, &got, err); /* a token has at least one byte */
    free(ids);
    APR_TRY(status);
    status = apr_tokenizer_decode(g->r->tokenizer, got.ids, got.n_ids, false, &text, &n, err);
    free(got.ids);
    APR_TRY(status);
    *exact = strcmp(text, truth) == 0;
    free(text);
    return APR_OK;
}

static apr_status check_recite(const golden *g, check *c, apr_error *err)
{
    const cJSON *verse;
    cJSON_ArrayForEach(verse, apr_json_get(apr_json_get(g->json, "recite"), "verses"))
    {
        bool recorded = false, exact = false;
        c->n_total++;
        if (!apr_json_get_bool(verse, "exact", &recorded) || !recorded) continue; /* the original cannot either */
        APR_TRY(recite(g, verse, &exact, err));
        judge(c, exact, text_of(verse, "ref"));
    }
    return APR_OK;
}

/* golden.safetensors beside golden.json, its ids as one prompt. */
static apr_status check_arrays(const golden *g, int which, check *c, apr_error *err)
{
    apr_golden_arrays arrays;
    apr_golden_figure figures[2];
    char path[4096];
    const char *const dot = strrchr(g->path, '.');

    snprintf(path, sizeof path, "%.*s.safetensors", dot != NULL ? (int)(dot - g->path) : (int)strlen(g->path), g->path);
    apr_status status = apr_golden_open(&arrays, path, err);
    if (status == APR_OK) status = apr_golden_compare(g->r->session, &arrays, arrays.n_ids, g->options->tolerance, figures, err);
    apr_golden_close(&arrays);
    APR_TRY(status);
    const apr_golden_figure *const f = &figures[which];
    if (f->n_rows == 0) return apr_fail(err, APR_E_DAMAGED, "%s: there is no array '%s'", path, which == 0 ? "logits" : "hidden");
    c->n_judged = f->n_rows;
    c->n_good = f->n_good;
    c->worst = f->worst;
    c->bound = f->bound;
    c->reason = f->reason;
    snprintf(c->first_bad, sizeof c->first_bad, "%s", f->first_bad);
    return APR_OK;
}

static apr_status check_logits(const golden *g, check *c, apr_error *err) { return check_arrays(g, 0, c, err); }
static apr_status check_hidden(const golden *g, check *c, apr_error *err) { return check_arrays(g, 1, c, err); }

/* heldout.file, beside golden.json or one folder up. */
static apr_status read_heldout(const golden *g, const char *name, char **text, size_t *n, apr_error *err)
{
    const char *const slash = strrchr(g->path, '/');
    const int n_folder = slash != NULL ? (int)(slash - g->path) + 1 : 0;
    char path[4096];

    if (g->options->text != NULL) return apr_read_text(g->options->text, text, n, err);
    snprintf(path, sizeof path, "%.*s%s", n_folder, g->path, name);
    if (apr_read_text(path, text, n, NULL) == APR_OK) return APR_OK;
    snprintf(path, sizeof path, "%.*s../%s", n_folder, g->path, name);
    return apr_read_text(path, text, n, err);
}

static apr_status check_perplexity(const golden *g, check *c, apr_error *err)
{
    const cJSON *const heldout = apr_json_get(g->json, "heldout");
    double truth;
    int64_t window, n_scored;
    char *text, found[96];
    size_t n, n_ids;
    int32_t *ids;
    apr_perplexity result;

    if (!apr_json_get_real(heldout, "perplexity", &truth) || !apr_json_get_int(heldout, "window", &window) ||
        !apr_json_get_int(heldout, "tokens_scored", &n_scored))
        return apr_fail(err, APR_E_DAMAGED, "%s: 'heldout' lacks perplexity, window or tokens_scored", g->path);
    APR_TRY(read_heldout(g, text_of(heldout, "file"), &text, &n, err));
    apr_status status = apr_encode_prompt(g->r, text, n, false, &ids, &n_ids, err);
    free(text);
    APR_TRY(status);
    status = apr_evaluate_perplexity(g->r->session, ids, n_ids, window, NULL, NULL, &result, err);
    free(ids);
    APR_TRY(status);
    c->bound = g->options->ppl_tolerance;
    if (c->bound == 0.0) c->bound = apr_run_perplexity_bound(apr_trace_run_facts(g->r->session, window));
    c->worst = fabs(result.perplexity / truth - 1);
    snprintf(found, sizeof found, "%.4f over %lld tokens, recorded %.4f over %lld", result.perplexity, (long long)result.n_scored, truth,
             (long long)n_scored);
    judge(c, c->worst <= c->bound && result.n_scored == n_scored, found);
    return APR_OK;
}

static const struct {
    const char *name, *what, *of_worst;
    apr_status (*run)(const golden *g, check *c, apr_error *err);
} checks[] = {
    {"template", "chat template renders as recorded", "", check_template},
    {"tokens", "token ids", "", check_tokens},
    {"greedy", "greedy answers", "", check_greedy},
    {"top", "best logits after a prompt", "largest difference", check_top},
    {"recite", "verses recited word for word", "", check_recite},
    {"logits", "logits of the first tokens", "largest difference", check_logits},
    {"hidden", "hidden states, layer by layer", "largest difference", check_hidden},
    {"perplexity", "perplexity", "relative difference", check_perplexity},
};
enum { N_CHECKS = sizeof checks / sizeof *checks };

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
        for (size_t i = 0; i < N_CHECKS; i++) known |= strlen(checks[i].name) == n && strncmp(checks[i].name, at, n) == 0;
        if (!known) return apr_fail(err, APR_E_USAGE, "--checks: '%.*s' is no check", (int)n, at);
        at += n + (at[n] == ',');
    }
    return APR_OK;
}

static bool passed(const golden *g, size_t i, const check *c)
{
    const bool lenient = checks[i].run == check_recite && g->options->min_recite >= 0;
    return lenient ? c->n_good >= g->options->min_recite : c->n_judged > 0 && c->n_good == c->n_judged;
}

static void answer_json(apr_json_text *json, size_t i, const check *c, bool good)
{
    apr_json_open(json, checks[i].name, '{');
    apr_json_bool(json, "passed", good);
    apr_json_int(json, "good", c->n_good);
    apr_json_int(json, "judged", c->n_judged);
    if (!isnan(c->bound)) {
        apr_json_real(json, "worst", c->worst);
        apr_json_real(json, "bound", c->bound);
        apr_golden_reason_json(json, &c->reason);
    }
    if (c->first_bad[0] != '\0') apr_json_string(json, "first_bad", c->first_bad, strlen(c->first_bad));
    apr_json_close(json, '}');
}

static void answer_row(apr_table *table, size_t i, const check *c, bool good)
{
    apr_table_cell(table, "%s", good ? "pass" : "FAIL");
    apr_table_cell(table, "%s", checks[i].what);
    apr_table_cell(table, "%lld of %lld", (long long)c->n_good, (long long)c->n_judged);
    if (isnan(c->bound)) apr_table_cell(table, "%s", "");
    else apr_table_cell(table, "%s %.3g, bound %.3g", checks[i].of_worst, c->worst, c->bound);
    if (c->first_bad[0] != '\0') apr_table_cell(table, "first: %s", c->first_bad);
    else apr_table_cell(table, "%s", "");
}

static apr_status run_checks(const golden *g, const apr_call *call, bool *all_good, apr_error *err)
{
    static const apr_column columns[5];
    apr_golden_reasons reasons = {0};
    apr_table table;
    apr_status status = APR_OK;

    *all_good = true;
    apr_table_start(&table, columns, 5);
    for (size_t i = 0; i < N_CHECKS && status == APR_OK; i++) {
        check c = {.worst = NAN, .bound = NAN};
        if (!is_asked(g->options->checks, checks[i].name)) continue;
        status = checks[i].run(g, &c, err);
        const bool good = passed(g, i, &c);
        *all_good &= good;
        apr_golden_add_reason(&reasons, &c.reason);
        if (call->answer->json) answer_json(&call->answer->body, i, &c, good);
        else answer_row(&table, i, &c, good);
    }
    if (status == APR_OK && !call->answer->json) {
        status = apr_table_print(&table, stdout, 2, err);
        apr_golden_print_reasons(&reasons);
        return status;
    }
    apr_table_close(&table);
    return status;
}

apr_status apr_run_golden(const apr_call *call, apr_error *err)
{
    apr_running r = {0};
    golden g = {.options = call->options, .path = call->operands[1], .r = &r};
    apr_run_options run = g.options->run;
    char *text = NULL;
    size_t n = 0;
    bool all_good = false;

    if (apr_is_golden_arrays(g.path)) return apr_run_golden_arrays(call, &run, g.options->tolerance, err);
    APR_TRY(check_list(g.options->checks, err));
    apr_status status = apr_read_text(g.path, &text, &n, err);
    if (status == APR_OK) status = apr_json_parse(&g.json, text, n, g.path, err);
    free(text);
    if (status == APR_OK) status = apr_running_open(&r, call->operands[0], &run, 64, err);
    if (status == APR_OK) status = run_checks(&g, call, &all_good, err);
    if (status == APR_OK && run.stats) apr_print_stats(&r, call);
    cJSON_Delete(g.json);
    apr_running_close(&r);
    return status != APR_OK ? status : all_good ? APR_OK : APR_E_NO;
}
