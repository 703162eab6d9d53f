/* verify_checks.c - the checks of `aprrun verify` on two models that are open. */
#include "runtime/check/facts.h"
#include "runtime/session/generate.h"
#include "tools/cli/text.h"
#include "tools/run/parity_verb.h"
#include "tools/run/verify.h"
#include "tools/run/verify_texts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- tokenizer, stop ids, template --- */

/* NULL: the tokenizer refuses the text, which is an answer like another. */
static int32_t *encode(const apr_running *r, const char *text, bool parse_special, size_t *n)
{
    const apr_encode_options options = {.add_special = true, .parse_special = parse_special};
    int32_t *ids = NULL;
    *n = 0;
    return apr_tokenizer_encode(r->tokenizer, text, strlen(text), &options, &ids, n, NULL) == APR_OK ? ids : NULL;
}

static bool same_tokens(const apr_verify_report *report, const char *text, bool parse_special)
{
    size_t n_truth, n_other;
    int32_t *const truth = encode(report->truth, text, parse_special, &n_truth), *const other =
                                                                                     encode(report->other, text, parse_special, &n_other);
    const bool same =
        (truth == NULL) == (other == NULL) && n_truth == n_other && (truth == NULL || memcmp(truth, other, n_truth * sizeof *truth) == 0);
    free(truth);
    free(other);
    return same;
}

static void check_tokenizer(apr_verify_report *report)
{
    apr_verify_check *const c = apr_verify_add(report, "tokenizer", "tokenizers agree");
    size_t n_good = 0;

    for (size_t i = 0; i < apr_n_hard_strings; i++) {
        const bool good = same_tokens(report, apr_hard_strings[i].text, true) && same_tokens(report, apr_hard_strings[i].text, false);
        n_good += good;
        if (!good && c->where[0] == '\0') snprintf(c->where, sizeof c->where, "first: %s", apr_hard_strings[i].what);
    }
    const size_t n_truth = report->truth->model.vocab.n_tokens, n_other = report->other->model.vocab.n_tokens;
    snprintf(c->found, sizeof c->found, "%zu of %zu hard strings, %zu tokens", n_good, apr_n_hard_strings, n_other);
    if (n_truth != n_other && c->where[0] == '\0') snprintf(c->where, sizeof c->where, "the reference has %zu tokens", n_truth);
    apr_verify_pass(report, c, n_good == apr_n_hard_strings && n_truth == n_other);
}

/* Each of the reference's stop ids must end a turn here too, and be a token. */
static void check_stops(apr_verify_report *report)
{
    apr_verify_check *const c = apr_verify_add(report, "stop_ids", "every stop id known");
    const apr_vocab *const truth = &report->truth->model.vocab, *const other = &report->other->model.vocab;
    size_t n_known = 0, n_words = 0, n_written = 0;

    for (size_t i = 0; i < truth->n_stop_ids; i++) {
        const bool known = apr_tokenizer_is_stop(report->other->tokenizer, truth->stop_ids[i]);
        n_known += known;
        if (!known && c->where[0] == '\0') snprintf(c->where, sizeof c->where, "%d does not end a turn here", (int)truth->stop_ids[i]);
    }
    /* more of them is what GGUF's end-of-text tokens come to; a word that ends a turn is a mistake */
    for (size_t i = 0; i < other->n_stop_ids; i++) {
        const int32_t id = other->stop_ids[i];
        if (other->types == NULL || other->types[id] != APR_TOKEN_NORMAL || apr_tokenizer_is_stop(report->truth->tokenizer, id)) continue;
        n_words++;
        if (c->where[0] == '\0') snprintf(c->where, sizeof c->where, "%d ends a turn, and is an ordinary token", (int)id);
    }
    for (size_t i = 0; i < other->n_stop_ids && n_written < sizeof c->found - 24; i++)
        n_written +=
            (size_t)snprintf(c->found + n_written, sizeof c->found - n_written, "%s%d", i > 0 ? ", " : "", (int)other->stop_ids[i]);
    if (other->n_stop_ids == 0) snprintf(c->found, sizeof c->found, "none");
    apr_verify_pass(report, c, n_known == truth->n_stop_ids && n_words == 0 && (other->n_stop_ids > 0 || truth->n_stop_ids == 0));
}

static void check_template(apr_verify_report *report)
{
    const char *const truth = report->truth->model.vocab.chat_template, *const other = report->other->model.vocab.chat_template;
    const bool same = (truth == NULL) == (other == NULL) && (truth == NULL || strcmp(truth, other) == 0);
    apr_verify_check *const c = apr_verify_add(report, "template", "chat template");

    snprintf(c->found, sizeof c->found, "%s",
             same            ? truth != NULL ? "the same" : "neither has one"
             : other == NULL ? "lost"
             : truth == NULL ? "added"
                             : "another one");
    apr_verify_pass(report, c, same);
}

apr_status apr_verify_vocabulary(apr_verify_report *report, apr_error *err)
{
    (void)err;
    check_tokenizer(report);
    check_stops(report);
    check_template(report);
    return APR_OK;
}

/* --- tensors --- */

char *apr_verify_types_text(const apr_model *model, char *text, size_t capacity)
{
    int64_t elems[APR_DTYPE_COUNT] = {0}, n_all = 0;
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < model->n_tensors; i++) {
        if (model->tensors[i].rank < 2 || !apr_dtype_is_weights(model->tensors[i].dtype)) continue;
        elems[model->tensors[i].dtype] += apr_tensor_elems(&model->tensors[i]);
        n_all += apr_tensor_elems(&model->tensors[i]);
    }
    for (;;) {
        const apr_dtype most = apr_dtype_of_most(elems);
        if (most == APR_DTYPE_COUNT || n + 32 > capacity) return text;
        const double share = 100.0 * (double)elems[most] / (double)n_all;
        n += (size_t)snprintf(text + n, capacity - n, "%s%s %.*f %%", n > 0 ? ", " : "", apr_dtypes[most].name, share < 1.0 ? 1 : 0, share);
        elems[most] = 0;
    }
}

static void finish_check(apr_verify_report *report, apr_verify_check *c, bool passed, const char *where)
{
    snprintf(c->where, sizeof c->where, "%.500s", passed ? "" : where);
    apr_verify_pass(report, c, passed);
}

/* Operations and what they are told: sizes, windows, epsilons, rotary frequencies. */
apr_status apr_verify_facts(apr_verify_report *report, apr_error *err)
{
    const apr_session *const truth = report->truth->session, *const other = report->other->session;
    apr_verify_check *const c = apr_verify_add(report, "facts", "the same computation");
    apr_error shape = {0}, fact = {0};

    const apr_status status = apr_facts_compare(truth, other, &fact);
    if (status > APR_E_NO) return apr_fail(err, status, "%s", fact.text);
    report->same_shape = apr_facts_same_shape(truth, other, &shape) == APR_OK;
    if (status == APR_OK) snprintf(c->found, sizeof c->found, "all %zu operations", apr_session_program(other)->n_ops);
    else snprintf(c->found, sizeof c->found, "%s", report->same_shape ? "told other things" : "another program");
    finish_check(report, c, status == APR_OK, fact.text);
    return APR_OK;
}

apr_status apr_verify_tensors(apr_verify_report *report, const apr_verify_input *input, apr_error *err)
{
    apr_weights *const w = &report->tensors;

    if (!report->same_shape) return APR_OK; /* which has been said */
    APR_TRY(apr_weights_compare(w, report->truth->session, report->other->session, input->control_limit, &input->progress, err));
    apr_verify_check *c = apr_verify_add(report, "tensors", "tensors present and finite");
    const size_t n_bad = w->n_missing + w->n_damaged;
    if (n_bad == 0) snprintf(c->found, sizeof c->found, "all %zu", w->n_pairs);
    else snprintf(c->found, sizeof c->found, "%zu missing and %zu damaged, of %zu", w->n_missing, w->n_damaged, w->n_pairs);
    finish_check(report, c, n_bad == 0, w->n_missing > 0 ? w->missing : w->damaged);

    c = apr_verify_add(report, "weights", "each row of weights");
    if (w->n_far > 0) snprintf(c->found, sizeof c->found, "%zu of %zu tensors too far off", w->n_far, w->n_pairs);
    else if (w->worst == NULL) snprintf(c->found, sizeof c->found, "the same numbers%s", w->n_damaged > 0 ? " where they are numbers" : "");
    else
        snprintf(c->found, sizeof c->found, "%.0f %% of what is allowed at most, in '%.90s'", 100.0 * w->worst->scan.excess,
                 w->worst->other->name);
    snprintf(c->bound, sizeof c->bound, "what its type needs on these numbers");
    finish_check(report, c, w->n_far == 0, w->far);
    return APR_OK;
}

/* --- operations of both models from the same input --- */

static apr_status encode_text(const apr_verify_report *report, const char *text, size_t n_bytes, int32_t **ids, size_t *n, apr_error *err)
{
    APR_TRY(apr_encode_prompt(report->truth, text, n_bytes, false, ids, n, err));
    if (*n > 0) return APR_OK;
    free(*ids);
    return apr_fail(err, APR_E_USAGE, "the text is empty");
}

/* Relative error of each layer's output when both models go their own way. */
static apr_status measure_drift(apr_verify_report *report, const int32_t *ids, size_t n, apr_error *err)
{
    const apr_program *const program = apr_session_program(report->truth->session);
    const size_t row = n * (size_t)program->hidden_size;
    float *const truth = malloc(program->n_taps * row * sizeof *truth + 1), *const other =
                                                                                malloc(program->n_taps * row * sizeof *other + 1);

    report->drift = calloc(program->n_taps + 1, sizeof *report->drift);
    apr_status status = truth != NULL && other != NULL && report->drift != NULL ? APR_OK : apr_no_memory(err, "hidden states");
    apr_session_reset(report->truth->session);
    apr_session_reset(report->other->session);
    if (status == APR_OK) status = apr_session_eval(report->truth->session, ids, n, &(apr_eval_output){.hidden = truth}, err);
    if (status == APR_OK) status = apr_session_eval(report->other->session, ids, n, &(apr_eval_output){.hidden = other}, err);
    for (size_t i = 0; i < program->n_taps && status == APR_OK; i++)
        report->drift[i] = apr_difference_of(truth + i * row, other + i * row, (int64_t)n, program->hidden_size).relative;
    if (status == APR_OK) report->n_drift = program->n_taps;
    free(truth);
    free(other);
    return status;
}

apr_status apr_verify_operations(apr_verify_report *report, apr_error *err)
{
    static const int64_t positions[] = {0, 64};
    const apr_parity_options options = {.positions = positions,
                                        .n_positions = sizeof positions / sizeof *positions,
                                        .n_batch = APR_PARITY_BATCH,
                                        .fp16_above = apr_trace_fp16_above(report->other->session),
                                        .weights = &report->tensors,
                                        .layer = APR_PARITY_ALL_LAYERS};
    double worst = 0.0;
    int32_t *ids;
    size_t n;

    if (!report->same_shape) return APR_OK;
    APR_TRY(encode_text(report, apr_verify_text, strlen(apr_verify_text), &ids, &n, err));
    apr_status status = apr_parity_run(report->truth->session, report->other->session, ids, (int64_t)n, &options, &report->weights, err);
    if (status != APR_OK) {
        free(ids);
        return status;
    }
    apr_verify_check *const c = apr_verify_add(report, "operations", "each operation, from the same input");
    for (int64_t i = 0; i <= report->weights.n_layers; i++) worst = fmax(worst, report->weights.worst_relative[i]);
    snprintf(c->found, sizeof c->found, "%lld of %lld, worst relative error %.2g", (long long)report->weights.n_passed,
             (long long)report->weights.n_judged, worst);
    snprintf(c->bound, sizeof c->bound, "what the weights differ by");
    if (report->weights.failed) apr_parity_sentence(c->where, sizeof c->where, &report->weights);
    apr_verify_pass(report, c, !report->weights.failed);
    status = measure_drift(report, ids, n < 64 ? n : 64, err);
    free(ids);
    return status;
}

/* --- divergence --- */

typedef struct rows_meter {
    const apr_progress *progress;
} rows_meter;

static void on_rows(void *user, int64_t n_done, int64_t n_rows)
{
    const rows_meter *const m = user;
    apr_progress_report(m->progress, (uint64_t)n_done, (uint64_t)n_rows, "tokens compared");
}

/* Around a position of the text, as it is read. */
static void say_where(const apr_verify_report *report, const int32_t *ids, const apr_divergence *d, char *where, size_t capacity)
{
    const int64_t at = d->largest_at, window_begin = at - at % d->window, first = at - 5 > window_begin ? at - 5 : window_begin;
    char *text, clean[160];
    size_t n;

    if (apr_tokenizer_decode(report->truth->tokenizer, ids + first, (size_t)(at - first + 1), true, &text, &n, NULL) != APR_OK) return;
    snprintf(where, capacity, "largest %.3g at token %lld, after '%s'", d->largest, (long long)at,
             apr_short_text(clean, sizeof clean, text, n, 48));
    free(text);
}

static void judge_divergence(apr_verify_report *report, apr_verify_text_result *t, const int32_t *ids)
{
    const apr_divergence *const control = t->has_control ? &t->control : NULL;
    const bool is_judged = !isnan(t->bound);
    apr_verify_check *c = apr_verify_add(report, "kl", "KL divergence");

    snprintf(c->found, sizeof c->found, "mean %.3g, median %.3g, largest %.3g (%s)", t->d.mean, t->d.median, t->d.largest, t->name);
    if (control != NULL) snprintf(c->bound, sizeof c->bound, "mean %.2g: 3 times that of these types, made here", t->bound);
    else if (is_judged) snprintf(c->bound, sizeof c->bound, "mean %.2g", t->bound);
    else snprintf(c->bound, sizeof c->bound, "not judged: no memory for a control");
    if (is_judged && !(t->d.mean <= t->bound)) say_where(report, ids, &t->d, c->where, sizeof c->where);
    if (is_judged) apr_verify_pass(report, c, t->d.mean <= t->bound);

    c = apr_verify_add(report, "same_top", "same most likely token");
    snprintf(c->found, sizeof c->found, "%.2f %% of %lld positions", 100.0 * t->d.same_top, (long long)t->d.n_rows);
    if (control != NULL) snprintf(c->bound, sizeof c->bound, "not judged; the control: %.2f %%", 100.0 * control->same_top);

    c = apr_verify_add(report, "perplexity", "perplexity");
    snprintf(c->found, sizeof c->found, "%.4f, reference %.4f", t->d.perplexity_other, t->d.perplexity_truth);
    if (control != NULL) snprintf(c->bound, sizeof c->bound, "not judged; the control: %.4f", control->perplexity_other);
}

/* The reference against itself in the model's types, on the same text. Where there is no memory for it, there is no bound. */
static apr_status compare_control(apr_verify_report *report, const apr_verify_input *input, const int32_t *ids, int64_t n,
                                  apr_verify_text_result *t, apr_error *err)
{
    apr_session *const truth = report->truth->session;
    apr_session *control = NULL;
    apr_error own = {0};

    t->bound = NAN;
    if (!report->same_shape || report->tensors.unchanged) {
        t->bound = apr_divergence_bound(NULL);
        return APR_OK;
    }
    if (!report->tensors.has_control) return APR_OK;
    apr_status status = apr_session_open_like(&control, &report->tensors.control, truth, &own);
    if (status == APR_OK) status = apr_compare_models(truth, control, ids, n, input->window, NULL, NULL, &t->control, &own);
    apr_session_close(control);
    if (status == APR_E_MEMORY) return APR_OK;
    if (status != APR_OK) return apr_fail(err, status, "%s", own.text);
    t->has_control = true;
    t->bound = apr_divergence_bound(&t->control);
    return APR_OK;
}

static apr_status compare_text(apr_verify_report *report, const apr_verify_input *input, const char *name, const char *text, size_t n_bytes,
                               apr_error *err)
{
    apr_verify_text_result *const t = &report->texts[report->n_texts];
    rows_meter meter = {&input->progress};
    int32_t *ids;
    size_t n;

    snprintf(t->name, sizeof t->name, "%s", name);
    APR_TRY(encode_text(report, text, n_bytes, &ids, &n, err));
    report->n_texts++;
    apr_status status =
        apr_compare_models(report->truth->session, report->other->session, ids, (int64_t)n, input->window, on_rows, &meter, &t->d, err);
    if (status == APR_OK) status = compare_control(report, input, ids, (int64_t)n, t, err);
    if (status == APR_OK) judge_divergence(report, t, ids);
    free(ids);
    return status;
}

apr_status apr_verify_divergence(apr_verify_report *report, const apr_verify_input *input, apr_error *err)
{
    const int64_t n_truth = apr_session_program(report->truth->session)->vocab_size,
                  n_other = apr_session_program(report->other->session)->vocab_size;
    char *text;
    size_t n;

    if (n_truth != n_other) {
        apr_verify_check *const c = apr_verify_add(report, "kl", "KL divergence");
        snprintf(c->found, sizeof c->found, "cannot be compared: vocabularies of %lld and %lld", (long long)n_truth, (long long)n_other);
        apr_verify_pass(report, c, false);
        return APR_OK;
    }
    APR_TRY(compare_text(report, input, "built-in text", apr_verify_text, strlen(apr_verify_text), err));
    if (input->text_path == NULL) return APR_OK;
    APR_TRY(apr_read_text(input->text_path, &text, &n, err));
    const char *const slash = strrchr(input->text_path, '/');
    const apr_status status = compare_text(report, input, slash != NULL ? slash + 1 : input->text_path, text, n, err);
    free(text);
    return status;
}

/* --- answers --- */

typedef struct answer {
    int32_t *ids;
    size_t n, limit;
} answer;

static bool collect(void *user, int32_t id, bool is_stop)
{
    answer *const a = user;
    (void)is_stop;
    a->ids[a->n++] = id;
    return a->n < a->limit;
}

static apr_status answer_of(const apr_running *r, const int32_t *prompt, size_t n_prompt, answer *a, char **text, apr_error *err)
{
    const apr_generate_options options = {.max_tokens = (int64_t)a->limit,
                                          .stop_ids = r->model.vocab.stop_ids,
                                          .n_stop_ids = r->model.vocab.n_stop_ids,
                                          .on_token = collect,
                                          .user = a};
    static const apr_sample_options greedy;
    apr_generation generation;
    apr_sampler sampler = {0};
    size_t n;

    a->ids = malloc(a->limit * sizeof *a->ids + 1);
    if (a->ids == NULL) return apr_no_memory(err, "an answer");
    apr_session_reset(r->session);
    APR_TRY(apr_sampler_open(&sampler, apr_session_program(r->session)->vocab_size, &greedy, err));
    apr_status status = apr_generate(r->session, &sampler, prompt, n_prompt, &options, &generation, err);
    apr_sampler_close(&sampler);
    if (status == APR_OK) status = apr_tokenizer_decode(r->tokenizer, a->ids, a->n, false, text, &n, err);
    return status;
}

/* The reference's ids of the prompt, in its chat template where it has one and the prompt asks for something. */
static apr_status prompt_ids(const apr_running *r, size_t which, int32_t **ids, size_t *n, apr_error *err)
{
    const char *const text = apr_verify_prompts[which];
    char *rendered = NULL;
    size_t n_bytes;

    if (which < 2 || apr_render_chat(r, NULL, text, &rendered, &n_bytes, NULL) != APR_OK)
        return apr_encode_prompt(r, text, strlen(text), true, ids, n, err);
    const apr_status status = apr_encode_prompt(r, rendered, n_bytes, false, ids, n, err);
    free(rendered);
    return status;
}

static apr_status compare_answer(apr_verify_report *report, size_t which, int64_t limit, apr_error *err)
{
    apr_verify_answer *const a = &report->answers[report->n_answers];
    answer truth = {.limit = (size_t)limit}, other = {.limit = (size_t)limit};
    int32_t *prompt;
    size_t n;

    APR_TRY(prompt_ids(report->truth, which, &prompt, &n, err));
    report->n_answers++;
    apr_status status = answer_of(report->truth, prompt, n, &truth, &a->truth, err);
    if (status == APR_OK) status = answer_of(report->other, prompt, n, &other, &a->other, err);
    a->prompt = strdup(apr_verify_prompts[which]);
    if (status == APR_OK && a->prompt == NULL) status = apr_no_memory(err, "an answer");
    a->n_truth = (int64_t)truth.n;
    if (status == APR_OK)
        while ((size_t)a->n_same < truth.n && (size_t)a->n_same < other.n && truth.ids[a->n_same] == other.ids[a->n_same]) a->n_same++;
    a->same = truth.n == other.n && (size_t)a->n_same == truth.n;
    free(truth.ids);
    free(other.ids);
    free(prompt);
    return status;
}

/* Greedy answers part at the first near tie, so they are judged only where nothing was changed. */
apr_status apr_verify_answers(apr_verify_report *report, const apr_verify_input *input, apr_error *err)
{
    size_t n_same = 0;

    if (report->n_texts == 0) return APR_OK; /* other vocabularies */
    for (size_t i = 0; i < apr_n_verify_prompts; i++) {
        APR_TRY(compare_answer(report, i, input->n_answer, err));
        n_same += report->answers[i].same;
    }
    apr_verify_check *const c = apr_verify_add(report, "answers", "greedy answers");
    snprintf(c->found, sizeof c->found, "%zu of %zu word for word", n_same, report->n_answers);
    if (report->same_shape && report->tensors.unchanged) apr_verify_pass(report, c, n_same == report->n_answers);
    else snprintf(c->bound, sizeof c->bound, "not judged");
    return APR_OK;
}

/* --- backends --- */

apr_status apr_verify_backends(apr_verify_report *report, apr_error *err)
{
    static const int64_t positions[] = {0, 4100}; /* those without room in the context are left out */
    apr_parity_options options = {.positions = positions,
                                  .n_positions = sizeof positions / sizeof *positions,
                                  .n_batch = APR_PARITY_BATCH,
                                  .layer = APR_PARITY_ALL_LAYERS};
    apr_verify_check *const c = apr_verify_add(report, "backend", "backend against the reference");
    int32_t *ids;
    size_t n;

    APR_TRY(encode_text(report, apr_verify_text, strlen(apr_verify_text), &ids, &n, err));
    const apr_status status = apr_parity_with_ref(report->other, ids, (int64_t)n, &options, &report->backends, err);
    free(ids);
    APR_TRY(status);
    snprintf(c->found, sizeof c->found, "%lld of %lld operations on %s, up to position %lld", (long long)report->backends.n_passed,
             (long long)report->backends.n_judged, report->backend, (long long)report->backends.last_position);
    if (report->backends.failed) apr_parity_sentence(c->where, sizeof c->where, &report->backends);
    apr_verify_pass(report, c, !report->backends.failed);
    return APR_OK;
}

/* --- memory --- */

static uint64_t line_bytes(const apr_plan *plan, apr_line_id first, apr_line_id last)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < plan->n_lines; i++)
        if (plan->lines[i].id >= first && plan->lines[i].id <= last && plan->lines[i].on == plan->judged) sum += plan->lines[i].bytes;
    return sum;
}

void apr_verify_memory_parts(const apr_verify_report *report, apr_verify_memory_part parts[APR_VERIFY_MEMORY_PARTS])
{
    const apr_plan *const plan = apr_session_plan(report->other->session);
    const apr_session_usage *const used = &report->used;
    const apr_verify_memory_part all[APR_VERIFY_MEMORY_PARTS] = {
        {"weights", line_bytes(plan, 0, APR_LINE_WEIGHTS_HEAD), used->weights},
        {"norms, biases", line_bytes(plan, APR_LINE_F32_VECTORS, APR_LINE_F32_VECTORS), used->vectors},
        {"keys and values", line_bytes(plan, APR_LINE_KV, APR_LINE_RECURRENT), used->states},
        {"activations", line_bytes(plan, APR_LINE_ACTIVATIONS, APR_LINE_ACTIVATIONS), used->activations},
        {"logits", line_bytes(plan, APR_LINE_LOGITS, APR_LINE_LOGITS), used->logits},
        {"workspace", line_bytes(plan, APR_LINE_WORKSPACE, APR_LINE_WORKSPACE), used->workspace},
    };
    memcpy(parts, all, sizeof all);
}

apr_verify_memory_part apr_verify_memory_total(const apr_verify_report *report)
{
    const apr_plan *const plan = apr_session_plan(report->other->session);
    const apr_session_memory memory = apr_session_check_memory(report->other->session);
    const uint64_t measured = memory.measured == UINT64_MAX ? 0 : memory.measured;
    if (plan->judged == APR_ON_DEVICE) return (apr_verify_memory_part){"all of the GPU's memory", memory.planned, report->used.driver};
    return (apr_verify_memory_part){"allocated", memory.planned, measured};
}

apr_status apr_verify_memory(apr_verify_report *report, apr_error *err)
{
    apr_verify_check *const c = apr_verify_add(report, "memory", "memory as planned");
    const apr_verify_memory_part total = apr_verify_memory_total(report);
    const bool on_device = apr_session_plan(report->other->session)->judged == APR_ON_DEVICE;
    /* A driver counts the whole card, whoever comes and goes meanwhile (sessions that were closed here, too): only what is
     * taken beyond the plan counts there. The heap is this process's own. */
    const double beyond = (double)total.measured - (double)total.predicted, off = on_device ? beyond : fabs(beyond);
    const double allowed = on_device ? fmax(0.01 * (double)total.predicted, APR_DEVICE_SLACK_BYTES) : APR_HOST_SLACK_BYTES;
    char text[2][APR_SMALL_TEXT];

    (void)err;
    apr_size_text(text[0], total.predicted);
    apr_size_text(text[1], total.measured);
    if (total.measured == 0) { /* the driver, or the C library, does not say */
        snprintf(c->found, sizeof c->found, "predicted %s, not measured", text[0]);
        return APR_OK;
    }
    snprintf(c->found, sizeof c->found, "predicted %s, measured %s", text[0], text[1]);
    snprintf(c->bound, sizeof c->bound, "%s", on_device ? "1 % or 4 MiB more" : "256 KiB");
    apr_verify_pass(report, c, off <= allowed);
    return APR_OK;
}
