/* golden_checks.c - the checks against golden.json, one function each, and their table. */
#include "runtime/check/golden_checks.h"

#include "formats/files/map.h"
#include "runtime/session/evaluate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *apr_recorded_name(apr_recorded_kind kind)
{
    static const char *const names[] = {
#define X(id, name) [APR_RECORDED_##id] = (name),
        APR_RECORDED_LIST(X)
#undef X
    };
    return names[kind];
}

apr_status apr_recorded_open(apr_recorded *recorded, const char *path, apr_error *err)
{
    apr_map map;

    *recorded = (apr_recorded){.path = path};
    APR_TRY(apr_map_open(&map, path, err));
    const apr_status status = apr_json_parse(&recorded->json, map.data, map.n_bytes, path, err);
    apr_map_close(&map);
    return status;
}

void apr_recorded_close(apr_recorded *recorded)
{
    cJSON_Delete(recorded->json);
    *recorded = (apr_recorded){0};
}

/* The inputs of a check. */
typedef struct job {
    const apr_recorded *recorded;
    const apr_recorded_options *options;
    const apr_subject *subject;
} job;

static void count_item(apr_recorded_check *c, bool good, const char *which)
{
    c->n_checked++;
    c->n_good += good;
    if (!good && c->first_bad[0] == '\0') snprintf(c->first_bad, sizeof c->first_bad, "%s", which);
}

/* Reads a JSON array of token ids, malloc'ed. */
static apr_status ids_of(const job *j, const cJSON *array, int32_t **ids, size_t *n_ids, apr_error *err)
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
            return apr_fail(err, APR_E_DAMAGED, "%s: an array of token ids holds something else", j->recorded->path);
        }
        (*ids)[n++] = (int32_t)id;
    }
    *n_ids = n;
    return APR_OK;
}

static bool is_chat(const cJSON *prompt) { return strcmp(apr_json_get_text(prompt, "kind"), "chat") == 0; }

/* The model's chat template must render the recorded text. */
static apr_status check_template(const job *j, apr_recorded_check *c, apr_error *err)
{
    const cJSON *prompt;
    cJSON_ArrayForEach(prompt, apr_json_get(j->recorded->json, "prompts"))
    {
        char *text;
        size_t n;
        if (!is_chat(prompt)) continue;
        APR_TRY(apr_subject_chat(j->subject, NULL, apr_json_get_text(prompt, "text"), &text, &n, err));
        count_item(c, strcmp(text, apr_json_get_text(prompt, "rendered")) == 0, apr_json_get_text(prompt, "text"));
        free(text);
    }
    return APR_OK;
}

/* The token ids of the rendered prompts. */
static apr_status check_tokens(const job *j, apr_recorded_check *c, apr_error *err)
{
    const cJSON *prompt;
    cJSON_ArrayForEach(prompt, apr_json_get(j->recorded->json, "prompts"))
    {
        const char *const text = apr_json_get_text(prompt, "rendered");
        int32_t *ids, *reference;
        size_t n, n_reference;
        APR_TRY(ids_of(j, apr_json_get(prompt, "ids"), &reference, &n_reference, err));
        const apr_status status = apr_subject_encode(j->subject, text, strlen(text), false, &ids, &n, err);
        if (status == APR_OK) {
            count_item(c, n == n_reference && memcmp(ids, reference, n * sizeof *ids) == 0, text);
            free(ids);
        }
        free(reference);
        APR_TRY(status);
    }
    return APR_OK;
}

static apr_status check_one_answer(const job *j, const cJSON *prompt, apr_recorded_check *c, apr_error *err)
{
    apr_continuation answer = {0};
    int32_t *ids, *reference;
    size_t n_ids, n_reference;
    double margin = 0;

    c->n_total++;
    if (!apr_json_get_real(prompt, "greedy_min_margin", &margin) || margin <= j->options->margin) return APR_OK;
    APR_TRY(ids_of(j, apr_json_get(prompt, "ids"), &ids, &n_ids, err));
    apr_status status = ids_of(j, apr_json_get(prompt, "greedy_ids"), &reference, &n_reference, err);
    if (status == APR_OK) {
        answer = (apr_continuation){.prompt = ids, .n_prompt = n_ids};
        status = apr_subject_continue(j->subject, &answer, 1, n_reference, err);
        if (status == APR_OK)
            count_item(c, answer.n_ids == n_reference && memcmp(answer.ids, reference, n_reference * sizeof *reference) == 0,
                       apr_json_get_text(prompt, "text"));
        free(answer.ids);
        free(reference);
    }
    free(ids);
    return status;
}

static apr_status check_greedy(const job *j, apr_recorded_check *c, apr_error *err)
{
    const cJSON *prompt;
    cJSON_ArrayForEach(prompt, apr_json_get(j->recorded->json, "prompts")) APR_TRY(check_one_answer(j, prompt, c, err));
    return APR_OK;
}

/* The larger difference; NaN counts as the largest. */
static double worse_of(double worst, double difference) { return isnan(worst) || difference <= worst ? worst : difference; }

/* A logit that was recorded as infinite must be the same infinity. */
static double difference_of(double reference, double found)
{
    return isinf(reference) && reference == found ? 0.0 : fabs(found - reference);
}

/* The largest difference and the largest magnitude of the top-5 logits of one prompt. */
typedef struct top_found {
    double worst, peak;
} top_found;

static apr_status compare_top(const job *j, const cJSON *prompt, size_t *n_ids, top_found *found, apr_error *err)
{
    const cJSON *const values = apr_json_get(prompt, "top5_logits");
    int32_t *ids, *top;
    size_t n_top;

    *found = (top_found){0};
    APR_TRY(ids_of(j, apr_json_get(prompt, "ids"), &ids, n_ids, err));
    apr_session_reset(j->subject->session);
    const apr_status status = apr_session_eval(j->subject->session, ids, *n_ids, NULL, err);
    free(ids);
    APR_TRY(status);
    APR_TRY(ids_of(j, apr_json_get(prompt, "top5_ids"), &top, &n_top, err));
    const float *const logits = apr_session_logits(j->subject->session);
    for (size_t i = 0; i < n_top; i++) {
        const cJSON *const value = cJSON_GetArrayItem(values, (int)i);
        const bool known = value != NULL && top[i] < apr_session_program(j->subject->session)->vocab_size;
        found->worst = worse_of(found->worst, known ? difference_of(value->valuedouble, (double)logits[top[i]]) : NAN);
        if (known && isfinite(value->valuedouble)) found->peak = fmax(found->peak, fabs(value->valuedouble));
    }
    free(top);
    return APR_OK;
}

/* The top-5 logits after each prompt. */
static apr_status check_top(const job *j, apr_recorded_check *c, apr_error *err)
{
    const cJSON *prompt;

    c->worst = 0;
    c->bound = j->options->tolerance;
    cJSON_ArrayForEach(prompt, apr_json_get(j->recorded->json, "prompts"))
    {
        top_found found;
        size_t n_ids;
        APR_TRY(compare_top(j, prompt, &n_ids, &found, err));
        double bound = j->options->tolerance;
        if (bound == 0.0) {
            const apr_run_bound b = apr_run_bound_of(apr_trace_run_facts(j->subject->session, (int64_t)n_ids));
            bound = b.relative * found.peak;
            if (b.relative > c->reason.relative) c->reason = b;
        }
        c->worst = worse_of(c->worst, found.worst);
        c->bound = fmax(c->bound, bound);
        count_item(c, found.worst <= bound, apr_json_get_text(prompt, "text"));
    }
    return APR_OK;
}

static apr_status recite(const job *j, const cJSON *verse, bool *exact, apr_error *err)
{
    const char *const reference = apr_json_get_text(verse, "text");
    char request[128], *rendered, *text;
    apr_continuation answer = {0};
    int32_t *ids = NULL;
    size_t n, n_ids = 0;

    snprintf(request, sizeof request, "Recite %s", apr_json_get_text(verse, "ref"));
    APR_TRY(apr_subject_chat(j->subject, NULL, request, &rendered, &n, err));
    apr_status status = apr_subject_encode(j->subject, rendered, n, false, &ids, &n_ids, err);
    free(rendered);
    answer = (apr_continuation){.prompt = ids, .n_prompt = n_ids};
    if (status == APR_OK)
        status = apr_subject_continue(j->subject, &answer, 1, strlen(reference) + 8, err); /* a token has a byte at least */
    free(ids);
    if (status == APR_OK) status = apr_tokenizer_decode(j->subject->tokenizer, answer.ids, answer.n_ids, false, &text, &n, err);
    free(answer.ids);
    APR_TRY(status);
    *exact = strcmp(text, reference) == 0;
    free(text);
    return APR_OK;
}

static apr_status check_recite(const job *j, apr_recorded_check *c, apr_error *err)
{
    const cJSON *verse;
    cJSON_ArrayForEach(verse, apr_json_get(apr_json_get(j->recorded->json, "recite"), "verses"))
    {
        bool recorded = false, exact = false;
        c->n_total++;
        if (!apr_json_get_bool(verse, "exact", &recorded) || !recorded) continue; /* the recording model did not know the verse either */
        APR_TRY(recite(j, verse, &exact, err));
        count_item(c, exact, apr_json_get_text(verse, "ref"));
    }
    return APR_OK;
}

/* Compares one array of golden.safetensors, which is next to golden.json; its ids are one prompt. */
static apr_status check_arrays(const job *j, int which, apr_recorded_check *c, apr_error *err)
{
    apr_golden_arrays arrays;
    apr_golden_result figures[2];
    char path[4096];
    const char *const dot = strrchr(j->recorded->path, '.');

    snprintf(path, sizeof path, "%.*s.safetensors", dot != NULL ? (int)(dot - j->recorded->path) : (int)strlen(j->recorded->path),
             j->recorded->path);
    apr_status status = apr_golden_open(&arrays, path, err);
    if (status == APR_OK) status = apr_golden_compare(j->subject->session, &arrays, arrays.n_ids, j->options->tolerance, figures, err);
    apr_golden_close(&arrays);
    APR_TRY(status);
    const apr_golden_result *const f = &figures[which];
    if (f->n_rows == 0) return apr_fail(err, APR_E_DAMAGED, "%s: there is no array '%s'", path, which == 0 ? "logits" : "hidden");
    c->n_checked = f->n_rows;
    c->n_good = f->n_good;
    c->worst = f->worst;
    c->bound = f->bound;
    c->reason = f->reason;
    snprintf(c->first_bad, sizeof c->first_bad, "%s", f->first_bad);
    return APR_OK;
}

static apr_status check_logits(const job *j, apr_recorded_check *c, apr_error *err) { return check_arrays(j, 0, c, err); }
static apr_status check_hidden(const job *j, apr_recorded_check *c, apr_error *err) { return check_arrays(j, 1, c, err); }

/* Opens heldout.file, which is next to golden.json or one folder up. */
static apr_status open_heldout(const job *j, const char *name, apr_map *text, apr_error *err)
{
    const char *const slash = strrchr(j->recorded->path, '/');
    const int n_folder = slash != NULL ? (int)(slash - j->recorded->path) + 1 : 0;
    char path[4096];

    if (j->options->text != NULL) return apr_map_open(text, j->options->text, err);
    snprintf(path, sizeof path, "%.*s%s", n_folder, j->recorded->path, name);
    if (apr_map_open(text, path, NULL) == APR_OK) return APR_OK;
    snprintf(path, sizeof path, "%.*s../%s", n_folder, j->recorded->path, name);
    return apr_map_open(text, path, err);
}

static apr_status check_perplexity(const job *j, apr_recorded_check *c, apr_error *err)
{
    const cJSON *const heldout = apr_json_get(j->recorded->json, "heldout");
    double reference;
    int64_t window, n_scored;
    char found[96];
    size_t n_ids;
    apr_map text;
    int32_t *ids;
    apr_perplexity result;

    if (!apr_json_get_real(heldout, "perplexity", &reference) || !apr_json_get_int(heldout, "window", &window) ||
        !apr_json_get_int(heldout, "tokens_scored", &n_scored))
        return apr_fail(err, APR_E_DAMAGED, "%s: 'heldout' lacks perplexity, window or tokens_scored", j->recorded->path);
    APR_TRY(open_heldout(j, apr_json_get_text(heldout, "file"), &text, err));
    apr_status status =
        apr_subject_encode(j->subject, text.n_bytes > 0 ? (const char *)text.data : "", text.n_bytes, false, &ids, &n_ids, err);
    apr_map_close(&text);
    APR_TRY(status);
    status = apr_evaluate_perplexity(j->subject->session, ids, n_ids, window, NULL, NULL, &result, err);
    free(ids);
    APR_TRY(status);
    c->bound = j->options->ppl_tolerance;
    if (c->bound == 0.0) c->bound = apr_run_perplexity_bound(apr_trace_run_facts(j->subject->session, window));
    c->worst = fabs(result.perplexity / reference - 1);
    snprintf(found, sizeof found, "%.4f over %lld tokens, recorded %.4f over %lld", result.perplexity, (long long)result.n_scored,
             reference, (long long)n_scored);
    count_item(c, c->worst <= c->bound && result.n_scored == n_scored, found);
    return APR_OK;
}

static apr_status (*const checks[APR_N_RECORDED])(const job *j, apr_recorded_check *c, apr_error *err) = {
    [APR_RECORDED_TEMPLATE] = check_template, [APR_RECORDED_TOKENS] = check_tokens,         [APR_RECORDED_GREEDY] = check_greedy,
    [APR_RECORDED_TOP] = check_top,           [APR_RECORDED_RECITE] = check_recite,         [APR_RECORDED_LOGITS] = check_logits,
    [APR_RECORDED_HIDDEN] = check_hidden,     [APR_RECORDED_PERPLEXITY] = check_perplexity,
};

apr_status apr_recorded_check_run(const apr_recorded *recorded, apr_recorded_kind kind, const apr_subject *subject,
                                  const apr_recorded_options *options, apr_recorded_check *check, apr_error *err)
{
    const job j = {recorded, options, subject};
    const bool lenient = kind == APR_RECORDED_RECITE && options->min_recite >= 0;

    *check = (apr_recorded_check){.kind = kind, .worst = NAN, .bound = NAN};
    const apr_status status = checks[kind](&j, check, err);
    check->passed = lenient ? check->n_good >= options->min_recite : check->n_checked > 0 && check->n_good == check->n_checked;
    return status;
}
