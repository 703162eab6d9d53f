/* verify_text.c - the text of each check of runtime/check/verify.h: what was found, what is allowed, where it first fails. */
#include "tools/report/verify/verify.h"

#include "tools/report/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FOUND(line, ...) snprintf((line)->found, sizeof(line)->found, __VA_ARGS__)
#define BOUND(line, ...) snprintf((line)->bound, sizeof(line)->bound, __VA_ARGS__)
#define WHERE(line, ...) snprintf((line)->where, sizeof(line)->where, __VA_ARGS__)

/* --- text --- */
static void say_tokenizer(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    const apr_verify_vocabulary *const v = &r->vocabulary;
    if (c->verdict == APR_VERDICT_NOTED) {
        FOUND(line, "neither has one: compared by ids alone");
        return;
    }
    FOUND(line, "%zu of %zu hard strings, %zu tokens", v->n_same, v->n_strings, v->n_other);
    if (v->first_other != NULL) WHERE(line, "first: %s", v->first_other);
    else if (v->n_reference != v->n_other) WHERE(line, "the reference has %zu tokens", v->n_reference);
}

static void say_stops(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    const apr_vocab *const vocab = r->input->other.vocab;
    const apr_verify_vocabulary *const v = &r->vocabulary;
    size_t n = 0;

    (void)c;
    for (size_t i = 0; i < vocab->n_stop_ids && n < sizeof line->found - 24; i++)
        n += (size_t)snprintf(line->found + n, sizeof line->found - n, "%s%d", i > 0 ? ", " : "", (int)vocab->stop_ids[i]);
    if (vocab->n_stop_ids == 0) FOUND(line, "none");
    if (v->turn_end >= 0 && v->first_lost_stop < 0 && v->first_ordinary_stop < 0)
        WHERE(line, "the chat template ends turns with %d, which is not a stop id", (int)v->turn_end);
    if (v->first_lost_stop >= 0) WHERE(line, "%d ends a turn in the reference, but not here", (int)v->first_lost_stop);
    else if (v->first_ordinary_stop >= 0) WHERE(line, "%d ends a turn, but is an ordinary token", (int)v->first_ordinary_stop);
}

static void say_template(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    const char *const reference = r->input->reference.vocab->chat_template, *const other = r->input->other.vocab->chat_template;
    (void)c;
    FOUND(line, "%s",
          r->vocabulary.same_template ? reference != NULL ? "the same" : "neither has one"
          : other == NULL             ? "lost"
          : reference == NULL         ? "added"
                                      : "different");
}

/* --- what is computed, with which numbers --- */

static void say_facts(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    if (c->verdict == APR_VERDICT_PASS) FOUND(line, "all %zu operations", apr_session_program(r->input->other.session)->n_ops);
    else FOUND(line, "%s", r->same_shape ? "different parameters" : "a different program");
    if (c->verdict == APR_VERDICT_FAIL) WHERE(line, "%.500s", r->other_fact.text);
}

static void say_tensors(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    const apr_weights *const w = &r->tensors;
    if (c->verdict == APR_VERDICT_PASS) FOUND(line, "all %zu", w->n_pairs);
    else FOUND(line, "%zu missing and %zu damaged, of %zu", w->n_missing, w->n_damaged, w->n_pairs);
    if (c->verdict == APR_VERDICT_FAIL) WHERE(line, "%.500s", w->n_missing > 0 ? w->missing : w->damaged);
}

static void say_weights(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    const apr_weights *const w = &r->tensors;
    if (w->n_far > 0) FOUND(line, "%zu of %zu tensors too far off", w->n_far, w->n_pairs);
    else if (w->worst == NULL) FOUND(line, "the same numbers%s", w->n_damaged > 0 ? " where they are finite" : "");
    else FOUND(line, "at most %.0f %% of what is allowed, in '%.90s'", 100.0 * w->worst->scan.excess, w->worst->other->name);
    BOUND(line, "the error of its type on these numbers");
    if (c->verdict == APR_VERDICT_FAIL) WHERE(line, "%.500s", w->far);
}

static void say_operations(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    const apr_parity_result *const result = &r->operations;
    double worst = 0.0;
    (void)c;
    for (int64_t i = 0; i <= result->n_layers; i++) worst = fmax(worst, result->worst_relative[i]);
    FOUND(line, "%lld of %lld, worst relative error %.2g", (long long)result->n_passed, (long long)result->n_checked, worst);
    BOUND(line, "what the weights' differences explain");
    if (result->failed) apr_parity_sentence(line->where, sizeof line->where, result);
}

/* --- whole texts --- */

static void say_kl(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    const apr_verify_text_result *const t = &r->texts[c->text];
    char clean[160];

    if (r->n_texts == 0) {
        FOUND(line, "cannot be compared: vocabularies of %lld and %lld",
              (long long)apr_session_program(r->input->reference.session)->vocab_size,
              (long long)apr_session_program(r->input->other.session)->vocab_size);
        return;
    }
    FOUND(line, "mean %.3g, median %.3g, largest %.3g (%s)", t->d.mean, t->d.median, t->d.largest, t->name);
    if (t->has_control) BOUND(line, "mean %.2g: 3 times the control (the reference quantized here)", t->bound);
    else if (!isnan(t->bound)) BOUND(line, "mean %.2g", t->bound);
    else BOUND(line, "not checked: no memory for a control");
    if (t->before_largest != NULL)
        WHERE(line, "largest %.3g at token %lld, after '%s'", t->d.largest, (long long)t->d.largest_at,
              apr_short_text(clean, sizeof clean, t->before_largest, t->n_before_largest, 48));
}

static void say_same_top(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    const apr_verify_text_result *const t = &r->texts[c->text];
    FOUND(line, "%.2f %% of %lld positions", 100.0 * t->d.same_top, (long long)t->d.n_rows);
    if (t->has_control) BOUND(line, "not checked; the control: %.2f %%", 100.0 * t->control.same_top);
}

static void say_perplexity(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    const apr_verify_text_result *const t = &r->texts[c->text];
    FOUND(line, "%.4f, reference %.4f", t->d.perplexity_other, t->d.perplexity_reference);
    if (t->has_control) BOUND(line, "not checked; the control: %.4f", t->control.perplexity_other);
}

static void say_routes(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    const apr_verify_text_result *const t = &r->texts[c->text];
    FOUND(line, "%lld of %lld as in the reference, %lld near ties forced", (long long)(t->routes.n_choices - t->routes.n_wrong),
          (long long)t->routes.n_choices, (long long)t->routes.n_forced);
    if (t->has_control) BOUND(line, "not checked; the control: %lld others", (long long)t->control_routes.n_wrong);
    else if (c->verdict == APR_VERDICT_NOTED) BOUND(line, "not checked");
    if (c->verdict == APR_VERDICT_FAIL)
        WHERE(line,
              "layer %d, position %lld of a window: other %s are chosen, although the reference's choice leads by %.2g of its best "
              "score",
              t->routes.first_layer, (long long)t->routes.first_position, t->routes.first_is_position ? "positions" : "experts",
              t->routes.first_gap);
}

static void say_answers(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    size_t n_same = 0;
    for (size_t i = 0; i < r->n_answers; i++) n_same += r->answers[i].same;
    FOUND(line, "%zu of %zu word for word", n_same, r->n_answers);
    if (c->verdict == APR_VERDICT_NOTED) BOUND(line, "not checked");
}

/* --- the machine --- */

static void say_backend(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    const apr_parity_result *const result = &r->backends;
    char extent[160];
    (void)c;
    FOUND(line, "%lld of %lld operations on %s, up to position %s", (long long)result->n_passed, (long long)result->n_checked, r->backend,
          apr_parity_extent_text(extent, sizeof extent, result));
    if (result->failed) apr_parity_sentence(line->where, sizeof line->where, result);
}

static void say_memory(const apr_verify_report *r, const apr_verify_check *c, apr_verify_line *line)
{
    const apr_verify_memory_part total = apr_verify_memory_total(r);
    char predicted[APR_SMALL_TEXT], measured[APR_SMALL_TEXT];

    apr_size_text(predicted, total.predicted);
    if (c->verdict == APR_VERDICT_NOTED) {
        FOUND(line, "predicted %s, not measured", predicted);
        return;
    }
    FOUND(line, "predicted %s, measured %s", predicted, apr_size_text(measured, total.measured));
    BOUND(line, "%s", apr_session_plan(r->input->other.session)->judged == APR_ON_DEVICE ? "1 % or 4 MiB more" : "256 KiB");
}

static const struct {
    const char *id, *title;
    void (*say)(const apr_verify_report *report, const apr_verify_check *check, apr_verify_line *line);
} texts[APR_N_VERIFY_KINDS] = {
    [APR_VERIFY_TOKENIZER] = {"tokenizer", "tokenizers agree", say_tokenizer},
    [APR_VERIFY_STOP_IDS] = {"stop_ids", "every stop id known", say_stops},
    [APR_VERIFY_TEMPLATE] = {"template", "chat template", say_template},
    [APR_VERIFY_FACTS] = {"facts", "the same computation", say_facts},
    [APR_VERIFY_TENSORS] = {"tensors", "tensors present and finite", say_tensors},
    [APR_VERIFY_WEIGHTS] = {"weights", "each row of weights", say_weights},
    [APR_VERIFY_OPERATIONS] = {"operations", "each operation, from the same input", say_operations},
    [APR_VERIFY_KL] = {"kl", "KL divergence", say_kl},
    [APR_VERIFY_SAME_TOP] = {"same_top", "same most likely token", say_same_top},
    [APR_VERIFY_PERPLEXITY] = {"perplexity", "perplexity", say_perplexity},
    [APR_VERIFY_ROUTES] = {"routes", "choices of experts", say_routes},
    [APR_VERIFY_ANSWERS] = {"answers", "greedy answers", say_answers},
    [APR_VERIFY_BACKEND] = {"backend", "backend against the reference", say_backend},
    [APR_VERIFY_MEMORY] = {"memory", "memory as planned", say_memory},
};

apr_verify_line apr_verify_line_of(const apr_verify_report *report, const apr_verify_check *check)
{
    apr_verify_line line = {.id = texts[check->kind].id, .title = texts[check->kind].title};
    texts[check->kind].say(report, check, &line);
    return line;
}
