/* verify.c - compares a model with the one that it was made from: the checks, their inputs, and their order. */
#include "runtime/check/verify.h"

#include "runtime/check/program_compare.h"
#include "runtime/template/chat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- inputs --- */

/* The opening of Genesis and of Ecclesiastes 3 (King James Bible, 1611), of Pride and Prejudice (Austen, 1813), of A Tale of Two
 * Cities (Dickens, 1859), Sonnet 18 (Shakespeare, 1609), and a few lines in the manner of a manual page. */
const char apr_verify_text[] =
    "In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was upon the face of "
    "the "
    "deep. And the Spirit of God moved upon the face of the waters. And God said, Let there be light: and there was light. And God saw the "
    "light, that it was good: and God divided the light from the darkness. And God called the light Day, and the darkness he called Night. "
    "And the evening and the morning were the first day.\n"
    "\n"
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife. However little "
    "known the feelings or views of such a man may be on his first entering a neighbourhood, this truth is so well fixed in the minds of "
    "the "
    "surrounding families, that he is considered the rightful property of some one or other of their daughters.\n"
    "\n"
    "Shall I compare thee to a summer's day?\n"
    "Thou art more lovely and more temperate:\n"
    "Rough winds do shake the darling buds of May,\n"
    "And summer's lease hath all too short a date:\n"
    "Sometime too hot the eye of heaven shines,\n"
    "And often is his gold complexion dimm'd;\n"
    "And every fair from fair sometime declines,\n"
    "By chance, or nature's changing course, untrimm'd;\n"
    "\n"
    "To every thing there is a season, and a time to every purpose under the heaven: A time to be born, and a time to die; a time to "
    "plant, "
    "and a time to pluck up that which is planted; A time to kill, and a time to heal; a time to break down, and a time to build up; A "
    "time "
    "to weep, and a time to laugh; a time to mourn, and a time to dance.\n"
    "\n"
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it was the epoch of "
    "belief, it was the epoch of incredulity, it was the season of Light, it was the season of Darkness, it was the spring of hope, it was "
    "the winter of despair, we had everything before us, we had nothing before us, we were all going direct to Heaven, we were all going "
    "direct the other way.\n"
    "\n"
    "RETURN VALUE\n"
    "    On success, zero is returned. On error, -1 is returned, and errno is set to indicate the error.\n"
    "\n"
    "    for (i = 0; i < 10; i++) {\n"
    "        total += price[i] * 1.25;\n"
    "    }\n"
    "    printf" /* split so that a search for printf calls in the library does not match this text */
    "(\"%d items, %.2f in total\\n\", 10, total);\n";

/* Strings that are hard for tokenizers. */
static const struct {
    const char *what, *text;
} hard_strings[] = {
    {"nothing", ""},
    {"a space", " "},
    {"many spaces", "a  b   c    d        e                e"},
    {"spaces at the ends", "   in the middle   "},
    {"tabs and line ends", "a\tb\t\tc\nd\n\ne\r\nf\n\n\n\n g\n  \n h"},
    {"contractions", "I'm you're he'll they've I'd it's DON'T WE'LL o'clock ''twas'"},
    {"digits", "0 12 345 6789 1234567890 3.14159 1,000,000 0x7fff 2026-11-21 1e-05"},
    {"punctuation", "...!!!?!?---___***///\\\\\\ (a[b]{c}<d>) \"'`~@#$%^&*+=|;:,."},
    {"code", "for(int i=0;i<n;++i){a[i]+=b->c.d(&e,*f);} // g\n\treturn x?y:z;"},
    {"an address", "https://user@example.org:8080/a/b_c-d.html?q=1&r=%20#top"},
    {"capitals", "HELLO Hello hElLo iPhone McDonald's NASA's XMLHttpRequest"},
    {"accents, composed", "Caf\u00e9 na\u00efve \u00c5ngstr\u00f6m \u0110\u00e0 N\u1eb5ng stra\u00dfe"},
    {"accents, decomposed", "Cafe\u0301 nai\u0308ve A\u030angstro\u0308m"},
    {"ligatures and widths", "\ufb01ne \uff28\uff45\uff4c\uff4c\uff4f \u00b2 \u2460 \u212b"},
    {"Chinese", "\u4e2d\u6587\u5206\u8bcd\uff0c\u6ca1\u6709\u7a7a\u683c\u3002\u7b2c12\u9875\u3002"},
    {"Japanese", "\u65e5\u672c\u8a9e\u3068\u30ab\u30bf\u30ab\u30ca\u3001\u3072\u3089\u304c\u306a\u3002"},
    {"Korean", "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4."},
    {"Arabic", "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645 \u0661\u0662\u0663"},
    {"Hebrew with points", "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd"},
    {"Hindi", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e"},
    {"Thai", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01"},
    {"Russian and Greek", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1."},
    {"emoji",
     "\U0001f600\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \u2764\ufe0f"},
    {"invisible characters", "zero\u200bwidth soft\u00adhyphen no\u00a0break \u2028line \ufeffmark \u202eright"},
    {"outside the plane", "\U00010348 \U0001d49c\U0001d4b7 \U00020000 \U000e0041"},
    {"one letter many times", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
    {"control tokens as text", "<|im_start|>user\nhi<|im_end|> <|endoftext|> <s> </s> <|begin_of_text|> [INST] <think>"},
    {"almost control tokens", "<|im_start |> <|im_end> |im_end|> < s> <\u200b/s>"},
    {"byte tokens as text", "<0x0A> <0xFF> \\u0041 \\n %0A &amp;"},
    {"SentencePiece's space", "\u2581a \u2581\u2581b \u0120c \u010a"},
};
enum { N_HARD_STRINGS = sizeof hard_strings / sizeof *hard_strings };

static const char *const prompts[] = {
    "In the beginning",
    "The capital of France is",
    "Recite Ge1:1",
    "Write a haiku about the sea.",
};
enum { N_PROMPTS = sizeof prompts / sizeof *prompts };

/* --- the list --- */

/* Appends a check that is only noted. */
static apr_verify_check *note(apr_verify_report *report, apr_verify_kind kind)
{
    static apr_verify_check spare; /* the list is long enough for all checks; this only guards against a programming error */
    apr_verify_check *const check = report->n_checks < APR_VERIFY_MAX_CHECKS ? &report->checks[report->n_checks++] : &spare;
    *check = (apr_verify_check){.kind = kind};
    return check;
}

/* Appends a check with a verdict. */
static void add_check(apr_verify_report *report, apr_verify_kind kind, bool passed)
{
    note(report, kind)->verdict = passed ? APR_VERDICT_PASS : APR_VERDICT_FAIL;
    report->failed |= !passed;
}

/* The reference's ids of a text, malloc'ed. APR_E_USAGE: the text is empty. */
static apr_status encode_text(const apr_verify_report *report, const char *text, size_t n_bytes, int32_t **ids, size_t *n, apr_error *err)
{
    APR_TRY(apr_subject_encode(&report->input->reference, text, n_bytes, false, ids, n, err));
    if (*n > 0) return APR_OK;
    free(*ids);
    return apr_fail(err, APR_E_USAGE, "the text is empty");
}

/* --- tokenizer, stop ids, chat template: no model is evaluated --- */

/* *ids is NULL if the tokenizer rejects the text; two rejections count as equal. */
static apr_status encode(const apr_subject *s, const char *text, bool parse_special, int32_t **ids, size_t *n, apr_error *err)
{
    const apr_encode_options options = {.add_special = true, .parse_special = parse_special};
    const apr_status status = apr_tokenizer_encode(s->tokenizer, text, strlen(text), &options, ids, n, NULL);
    return status == APR_E_MEMORY ? apr_no_memory(err, "the tokens of a text") : APR_OK;
}

/* Sets *same to false if the tokens differ. */
static apr_status compare_tokens(const apr_verify_input *input, const char *text, bool parse_special, bool *same, apr_error *err)
{
    int32_t *reference = NULL, *other = NULL;
    size_t n_reference = 0, n_other = 0;

    apr_status status = encode(&input->reference, text, parse_special, &reference, &n_reference, err);
    if (status == APR_OK) status = encode(&input->other, text, parse_special, &other, &n_other, err);
    *same = *same && (reference == NULL) == (other == NULL) && n_reference == n_other &&
            (reference == NULL || memcmp(reference, other, n_reference * sizeof *reference) == 0);
    free(reference);
    free(other);
    return status;
}

static apr_status check_tokenizer(apr_verify_report *report, apr_error *err)
{
    const apr_verify_input *const input = report->input;
    apr_verify_vocabulary *const v = &report->vocabulary;

    v->n_strings = N_HARD_STRINGS;
    v->n_reference = input->reference.vocab->n_tokens;
    v->n_other = input->other.vocab->n_tokens;
    for (size_t i = 0; i < N_HARD_STRINGS; i++) {
        bool same = true;
        APR_TRY(compare_tokens(input, hard_strings[i].text, true, &same, err));
        APR_TRY(compare_tokens(input, hard_strings[i].text, false, &same, err));
        v->n_same += same;
        if (!same && v->first_other == NULL) v->first_other = hard_strings[i].what;
    }
    add_check(report, APR_VERIFY_TOKENIZER, v->n_same == v->n_strings && v->n_reference == v->n_other);
    return APR_OK;
}

/* Each stop id of the reference must end a turn in the other model, and at least one must be stated, because loaders read the stated ids.
 * Additional stop ids are allowed (GGUF's end-of-text tokens), but an ordinary token must not end a turn. */
static void check_stops(apr_verify_report *report)
{
    const apr_subject *const reference = &report->input->reference, *const other = &report->input->other;
    const uint8_t *const types = other->vocab->types;
    apr_verify_vocabulary *const v = &report->vocabulary;
    apr_chat_stops chat;

    v->first_lost_stop = v->first_ordinary_stop = -1;
    v->turn_end = apr_chat_stops_of(other->vocab, &chat, NULL) == APR_OK ? chat.added : -1;
    for (size_t i = 0; i < reference->vocab->n_stop_ids && v->first_lost_stop < 0; i++)
        if (!apr_tokenizer_is_stop(other->tokenizer, reference->vocab->stop_ids[i])) v->first_lost_stop = reference->vocab->stop_ids[i];
    for (size_t i = 0; i < other->vocab->n_stop_ids && v->first_ordinary_stop < 0; i++) {
        const int32_t id = other->vocab->stop_ids[i];
        if (types != NULL && types[id] == APR_TOKEN_NORMAL && !apr_tokenizer_is_stop(reference->tokenizer, id)) v->first_ordinary_stop = id;
    }
    const bool none_stated = other->vocab->n_stop_ids == 0 && reference->vocab->n_stop_ids > 0;
    add_check(report, APR_VERIFY_STOP_IDS, v->first_lost_stop < 0 && v->first_ordinary_stop < 0 && !none_stated);
}

static void check_template(apr_verify_report *report)
{
    const char *const reference = report->input->reference.vocab->chat_template, *const other = report->input->other.vocab->chat_template;

    report->vocabulary.same_template = (reference == NULL) == (other == NULL) && (reference == NULL || strcmp(reference, other) == 0);
    add_check(report, APR_VERIFY_TEMPLATE, report->vocabulary.same_template);
}

/* One or both models have no vocabulary. Without any there is nothing to compare; if only one has it, the check fails. */
static void check_presence(apr_verify_report *report)
{
    const apr_verify_input *const input = report->input;

    report->vocabulary = (apr_verify_vocabulary){.n_reference = input->reference.vocab->n_tokens, .n_other = input->other.vocab->n_tokens};
    report->vocabulary.first_lost_stop = report->vocabulary.first_ordinary_stop = report->vocabulary.turn_end = -1;
    if (input->reference.tokenizer == NULL && input->other.tokenizer == NULL) note(report, APR_VERIFY_TOKENIZER);
    else add_check(report, APR_VERIFY_TOKENIZER, false);
}

static apr_status check_vocabularies(apr_verify_report *report, apr_error *err)
{
    if (report->input->reference.tokenizer == NULL || report->input->other.tokenizer == NULL) {
        check_presence(report);
        return APR_OK;
    }
    APR_TRY(check_tokenizer(report, err));
    check_stops(report);
    check_template(report);
    return APR_OK;
}

/* --- programs and weights --- */

/* Compares the operations and their parameters: sizes, windows, epsilons, rotary frequencies. */
static apr_status check_facts(apr_verify_report *report, apr_error *err)
{
    const apr_session *const reference = report->input->reference.session, *const other = report->input->other.session;
    apr_error shape = {0};

    const apr_status status = apr_programs_compare(reference, other, &report->other_fact);
    if (status > APR_E_NO) return apr_fail(err, status, "%s", report->other_fact.text);
    report->same_shape = apr_programs_same_shape(reference, other, &shape) == APR_OK;
    add_check(report, APR_VERIFY_FACTS, status == APR_OK);
    return APR_OK;
}

static apr_status check_tensors(apr_verify_report *report, apr_error *err)
{
    const apr_verify_input *const input = report->input;
    apr_weights *const w = &report->tensors;

    if (!report->same_shape) return APR_OK; /* check_facts reported it */
    APR_TRY(apr_weights_compare(w, input->reference.session, input->other.session, input->control_limit, &input->progress, err));
    add_check(report, APR_VERIFY_TENSORS, w->n_missing + w->n_damaged == 0);
    add_check(report, APR_VERIFY_WEIGHTS, w->n_far == 0);
    return APR_OK;
}

/* --- operations of both models on the same input --- */

/* The relative error of each layer's output when each model reads its own output of the layer before. */
static apr_status measure_drift(apr_verify_report *report, const int32_t *ids, size_t n, apr_error *err)
{
    apr_session *const a = report->input->reference.session, *const b = report->input->other.session;
    const apr_program *const program = apr_session_program(a);
    const size_t row = n * (size_t)program->hidden_size;
    float *const reference = malloc(program->n_taps * row * sizeof *reference + 1), *const other =
                                                                                        malloc(program->n_taps * row * sizeof *other + 1);

    report->drift = calloc(program->n_taps + 1, sizeof *report->drift);
    apr_status status = reference != NULL && other != NULL && report->drift != NULL ? APR_OK : apr_no_memory(err, "hidden states");
    apr_session_reset(a);
    apr_session_reset(b);
    if (status == APR_OK) status = apr_session_eval(a, ids, n, &(apr_eval_output){.hidden = reference}, err);
    if (status == APR_OK) status = apr_session_eval(b, ids, n, &(apr_eval_output){.hidden = other}, err);
    for (size_t i = 0; i < program->n_taps && status == APR_OK; i++)
        report->drift[i] = apr_difference_of(reference + i * row, other + i * row, (int64_t)n, program->hidden_size).relative;
    if (status == APR_OK) report->n_drift = program->n_taps;
    free(reference);
    free(other);
    return status;
}

/* Progress through the operations of a comparison. */
static apr_status on_operation(void *user, const apr_parity_record *r, apr_error *err)
{
    const apr_verify_input *const input = ((const apr_verify_report *)user)->input;
    const size_t n_ops = apr_session_program(input->other.session)->n_ops;
    (void)err;
    apr_progress_report(&input->progress, r->batch * n_ops + r->op_index + 1, r->n_batches * n_ops, "operations compared");
    return APR_OK;
}

enum { DRIFT_TOKENS = 64 };

static apr_status check_operations(apr_verify_report *report, const int32_t *ids, size_t n, apr_error *err)
{
    static const int64_t positions[] = {0, 64};
    const apr_verify_input *const input = report->input;
    const int64_t n_ctx = apr_session_plan(input->other.session)->n_ctx;
    const size_t most = n_ctx < DRIFT_TOKENS ? (size_t)n_ctx : DRIFT_TOKENS;
    const apr_parity_options options = {.positions = positions,
                                        .n_positions = sizeof positions / sizeof *positions,
                                        .n_batch = APR_PARITY_BATCH,
                                        .fp16_above = apr_trace_fp16_above(input->other.session),
                                        .weights = &report->tensors,
                                        .layer = APR_PARITY_ALL_LAYERS,
                                        .on_record = on_operation,
                                        .user = report};

    if (!report->same_shape) return APR_OK;
    APR_TRY(apr_parity_run(input->reference.session, input->other.session, ids, (int64_t)n, &options, &report->operations, err));
    add_check(report, APR_VERIFY_OPERATIONS, !report->operations.failed);
    return measure_drift(report, ids, n < most ? n : most, err);
}

/* --- divergence on whole texts, bounded by that of the control (the reference in the model's types) --- */

static void on_rows(void *user, int64_t n_done, int64_t n_rows)
{
    apr_progress_report(user, (uint64_t)n_done, (uint64_t)n_rows, "tokens compared");
}

/* As apr_compare_models, but near ties of expert choices are forced to the reference's choice. */
static apr_status compare_models(apr_verify_report *report, apr_session *other, const int32_t *ids, int64_t n, apr_progress *progress,
                                 apr_divergence *d, apr_route_count *count, apr_error *err)
{
    apr_session *const reference = report->input->reference.session;
    const int64_t window = report->input->window;
    const double bound = apr_run_bound_of(apr_trace_run_facts(other, window)).relative;
    void (*const on_done)(void *, int64_t, int64_t) = progress != NULL ? on_rows : NULL;
    apr_routes routes = {0};

    if (!report->same_shape || !apr_program_routes(apr_session_program(reference)))
        return apr_compare_models(reference, other, ids, n, window, on_done, progress, d, err);
    apr_status status = apr_routes_compare_live(&routes, reference, other, window, bound, err);
    if (status == APR_OK) status = apr_compare_models(reference, other, ids, n, window, on_done, progress, d, err);
    apr_routes_compare_stop(reference);
    apr_routes_compare_stop(other);
    *count = routes.count;
    apr_routes_close(&routes);
    return status;
}

/* Equal weights must choose the same experts. Other weights may choose others where their errors exceed the gap. */
static void check_routes(apr_verify_report *report, const apr_verify_text_result *t)
{
    if (t->routes.n_choices == 0) return;
    if (report->tensors.unchanged) add_check(report, APR_VERIFY_ROUTES, t->routes.n_wrong == 0);
    else note(report, APR_VERIFY_ROUTES);
}

static void add_checks(apr_verify_report *report, apr_verify_text_result *t, const int32_t *ids)
{
    const bool has_bound = !isnan(t->bound), passed = t->d.mean <= t->bound;
    const size_t first = report->n_checks;

    /* without a vocabulary, or memory for the text, the report shows only the position */
    if (has_bound && !passed && report->input->reference.tokenizer != NULL &&
        apr_divergence_context_text(&t->d, report->input->reference.tokenizer, ids, &t->before_largest, &t->n_before_largest, NULL) !=
            APR_OK)
        t->before_largest = NULL;
    if (has_bound) add_check(report, APR_VERIFY_KL, passed);
    else note(report, APR_VERIFY_KL);
    note(report, APR_VERIFY_SAME_TOP);
    note(report, APR_VERIFY_PERPLEXITY);
    check_routes(report, t);
    for (size_t i = first; i < report->n_checks; i++) report->checks[i].text = (size_t)(t - report->texts);
}

/* Compares the reference with the control on the same text, which gives the bound. No bound if there is no memory for the control. */
static apr_status compare_control(apr_verify_report *report, const int32_t *ids, int64_t n, apr_verify_text_result *t, apr_error *err)
{
    apr_session *const reference = report->input->reference.session;
    apr_session *control = NULL;
    apr_error own = {0};

    t->bound = NAN;
    if (!report->same_shape || report->tensors.unchanged) {
        t->bound = apr_divergence_bound(NULL);
        return APR_OK;
    }
    if (!report->tensors.has_control) return APR_OK;
    apr_status status = apr_session_open_like(&control, &report->tensors.control, reference, &own);
    if (status == APR_OK) status = compare_models(report, control, ids, n, NULL, &t->control, &t->control_routes, &own);
    apr_session_close(control);
    if (status == APR_E_MEMORY) return APR_OK;
    if (status != APR_OK) return apr_fail(err, status, "%s", own.text);
    t->has_control = true;
    t->bound = apr_divergence_bound(&t->control);
    return APR_OK;
}

/* May both comparisons share the reference's evaluation? Not where choices of experts are followed. */
static bool can_share(const apr_verify_report *report)
{
    const apr_session *const reference = report->input->reference.session;
    return report->same_shape && !report->tensors.unchanged && report->tensors.has_control &&
           !apr_program_routes(apr_session_program(reference)) && apr_compare_can_share(reference, report->input->other.session);
}

/* Both comparisons at once. APR_E_MEMORY: there is none for the control, and nothing was compared. */
static apr_status compare_both(apr_verify_report *report, const int32_t *ids, int64_t n, apr_progress *progress, apr_verify_text_result *t,
                               apr_error *err)
{
    apr_session *const reference = report->input->reference.session;
    apr_session *others[2] = {report->input->other.session, NULL};
    const apr_compared_text text = {.ids = ids, .n_ids = n, .window = report->input->window};
    apr_divergence d[2] = {{0}};

    apr_status status = apr_session_open_like(&others[1], &report->tensors.control, reference, err);
    if (status == APR_OK) status = apr_compare_two(reference, others, &text, on_rows, progress, d, err);
    apr_session_close(others[1]);
    t->d = d[0];
    t->control = d[1];
    if (status != APR_OK) return status;
    t->has_control = true;
    t->bound = apr_divergence_bound(&t->control);
    return APR_OK;
}

static apr_status compare_on(apr_verify_report *report, const char *name, const char *text, size_t n_bytes, apr_error *err)
{
    const apr_verify_input *const input = report->input;
    apr_verify_text_result *const t = &report->texts[report->n_texts];
    apr_progress progress = input->progress;
    int32_t *ids;
    size_t n;

    t->name = name;
    APR_TRY(encode_text(report, text, n_bytes, &ids, &n, err));
    report->n_texts++;
    apr_status status = can_share(report) ? compare_both(report, ids, (int64_t)n, &progress, t, err) : APR_E_MEMORY;
    if (status == APR_E_MEMORY && !t->has_control) {
        apr_divergence_close(&t->d);
        apr_divergence_close(&t->control);
        status = compare_models(report, input->other.session, ids, (int64_t)n, &progress, &t->d, &t->routes, err);
        if (status == APR_OK) status = compare_control(report, ids, (int64_t)n, t, err);
    }
    if (status == APR_OK) add_checks(report, t, ids);
    free(ids);
    return status;
}

static apr_status check_divergence(apr_verify_report *report, apr_error *err)
{
    const apr_verify_extra_text *const extra_text = &report->input->extra_text;

    if (apr_session_program(report->input->reference.session)->vocab_size !=
        apr_session_program(report->input->other.session)->vocab_size) {
        add_check(report, APR_VERIFY_KL, false);
        return APR_OK;
    }
    APR_TRY(compare_on(report, "built-in text", apr_verify_text, strlen(apr_verify_text), err));
    return extra_text->text == NULL ? APR_OK : compare_on(report, extra_text->name, extra_text->text, extra_text->n_bytes, err);
}

/* --- greedy answers of both models to the same prompts --- */

static apr_status ids_as_numbers(const int32_t *ids, size_t n_ids, char **text, size_t *n_bytes, apr_error *err)
{
    const size_t capacity = 12 * n_ids + 1; /* "-2147483648 " */

    *n_bytes = 0;
    *text = malloc(capacity);
    if (*text == NULL) return apr_no_memory(err, "a text");
    (*text)[0] = '\0';
    for (size_t i = 0; i < n_ids; i++)
        *n_bytes += (size_t)snprintf(*text + *n_bytes, capacity - *n_bytes, i > 0 ? " %d" : "%d", (int)ids[i]);
    return APR_OK;
}

/* Without a vocabulary, the ids are printed as numbers separated by spaces. */
static apr_status decode(const apr_subject *s, const int32_t *ids, size_t n_ids, char **text, size_t *n_bytes, apr_error *err)
{
    if (s->tokenizer == NULL) return ids_as_numbers(ids, n_ids, text, n_bytes, err);
    return apr_tokenizer_decode(s->tokenizer, ids, n_ids, false, text, n_bytes, err);
}

/* The reference's ids of a prompt. The first two prompts are plain continuations; the others use the chat template, if there is one. */
static apr_status prompt_ids(const apr_subject *reference, size_t which, int32_t **ids, size_t *n, apr_error *err)
{
    const char *const text = prompts[which];
    char *rendered = NULL;
    size_t n_bytes;

    if (which < 2 || apr_subject_chat(reference, NULL, text, &rendered, &n_bytes, NULL) != APR_OK)
        return apr_subject_encode(reference, text, strlen(text), true, ids, n, err);
    const apr_status status = apr_subject_encode(reference, rendered, n_bytes, false, ids, n, err);
    free(rendered);
    return status;
}

static apr_status compare_answer(apr_verify_report *report, const char *prompt, const apr_continuation *reference,
                                 const apr_continuation *other, apr_error *err)
{
    apr_verify_answer *const a = &report->answers[report->n_answers++];
    const size_t n_reference = reference->n_ids, n_other = other->n_ids;
    size_t n_bytes;

    *a = (apr_verify_answer){.prompt = prompt, .n_reference = (int64_t)n_reference};
    APR_TRY(decode(&report->input->reference, reference->ids, n_reference, &a->reference, &n_bytes, err));
    APR_TRY(decode(&report->input->other, other->ids, n_other, &a->other, &n_bytes, err));
    while ((size_t)a->n_same < n_reference && (size_t)a->n_same < n_other && reference->ids[a->n_same] == other->ids[a->n_same])
        a->n_same++;
    a->same = n_reference == n_other && (size_t)a->n_same == n_reference;
    return APR_OK;
}

/* Both models answer all prompts; the reference first. */
static apr_status compare_answers(apr_verify_report *report, apr_error *err)
{
    const apr_verify_input *const input = report->input;
    const size_t limit = (size_t)input->n_answer;
    apr_continuation reference[N_PROMPTS] = {{0}}, other[N_PROMPTS] = {{0}};
    int32_t *ids[N_PROMPTS] = {0};
    apr_status status = APR_OK;

    for (size_t i = 0; i < N_PROMPTS && status == APR_OK; i++) {
        status = prompt_ids(&input->reference, i, &ids[i], &reference[i].n_prompt, err);
        other[i].prompt = reference[i].prompt = ids[i];
        other[i].n_prompt = reference[i].n_prompt;
    }
    if (status == APR_OK) status = apr_subject_continue(&input->reference, reference, N_PROMPTS, limit, err);
    if (status == APR_OK) status = apr_subject_continue(&input->other, other, N_PROMPTS, limit, err);
    for (size_t i = 0; i < N_PROMPTS && status == APR_OK; i++) status = compare_answer(report, prompts[i], &reference[i], &other[i], err);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        free(reference[i].ids);
        free(other[i].ids);
        free(ids[i]);
    }
    return status;
}

/* Greedy answers diverge at the first near tie, so they must be equal only if no weight was changed. */
static apr_status check_answers(apr_verify_report *report, apr_error *err)
{
    size_t n_same = 0;

    if (report->n_texts == 0) return APR_OK; /* the vocabularies differ */
    APR_TRY(compare_answers(report, err));
    for (size_t i = 0; i < report->n_answers; i++) n_same += report->answers[i].same;
    if (report->same_shape && report->tensors.unchanged) add_check(report, APR_VERIFY_ANSWERS, n_same == report->n_answers);
    else note(report, APR_VERIFY_ANSWERS);
    return APR_OK;
}

/* --- the backend against the reference backend --- */

/* DISTANT: the second position, or the last one that the context has. EVALUATED_ON_HOST: tokens before it that a host evaluates, because
 * all would take as long as everything else together. A device takes them in a moment. */
enum { DISTANT = 4100, EVALUATED_ON_HOST = 640 };

static apr_status check_backends(apr_verify_report *report, const int32_t *ids, size_t n, apr_error *err)
{
    const apr_session *const other = report->input->other.session;
    const int64_t last = apr_session_plan(other)->n_ctx - APR_PARITY_BATCH - 1, positions[] = {0, last < DISTANT ? last : DISTANT};
    const apr_cuda_api *cuda;
    apr_parity_options options = {.positions = positions,
                                  .n_positions = last > APR_PARITY_BATCH ? 2 : 1,
                                  .n_batch = APR_PARITY_BATCH,
                                  .layer = APR_PARITY_ALL_LAYERS,
                                  .sample = report->input->sample,
                                  .most_evaluated = apr_trace_device(other, &cuda) == NULL ? EVALUATED_ON_HOST : 0,
                                  .on_record = on_operation,
                                  .user = report};

    APR_TRY(apr_backends_parity(report->input->other.session, ids, (int64_t)n, &options, &report->backends, err));
    add_check(report, APR_VERIFY_BACKEND, !report->backends.failed);
    return APR_OK;
}

/* --- memory against the plan --- */

/* The planned bytes of some lines, over all places (devices and host), as the session's usage counts them. */
static uint64_t line_bytes(const apr_session *session, apr_line_id first, apr_line_id last)
{
    uint64_t sum = 0;
    for (int k = 0; k < apr_session_n_places(session); k++) {
        const apr_plan *const plan = apr_session_place_plan(session, k);
        for (size_t i = 0; i < plan->n_lines; i++)
            if (plan->lines[i].id >= first && plan->lines[i].id <= last && plan->lines[i].on == plan->judged) sum += plan->lines[i].bytes;
    }
    return sum;
}

/* True if the host part of an offloaded model uses the planned heap memory. */
static bool host_is_as_planned(const apr_session *session)
{
    const int last = apr_session_n_places(session) - 1;
    const apr_session_memory m = apr_session_place_memory(session, last);
    return last == 0 || m.on != APR_ON_HOST || m.as_planned || m.measured == UINT64_MAX;
}

void apr_verify_memory_parts(const apr_verify_report *report, apr_verify_memory_part parts[APR_VERIFY_MEMORY_PARTS])
{
    const apr_session *const session = report->input->other.session;
    const apr_session_usage *const used = &report->input->used;
    const apr_verify_memory_part all[APR_VERIFY_MEMORY_PARTS] = {
        {"weights", line_bytes(session, 0, APR_LINE_WEIGHTS_HEAD) + line_bytes(session, APR_LINE_FILLED, APR_LINE_FILLED), used->weights},
        {"norms, biases", line_bytes(session, APR_LINE_F32_VECTORS, APR_LINE_F32_VECTORS), used->vectors},
        {"keys and values", line_bytes(session, APR_LINE_KV, APR_LINE_RECURRENT), used->states},
        {"activations", line_bytes(session, APR_LINE_ACTIVATIONS, APR_LINE_ACTIVATIONS), used->activations},
        {"logits", line_bytes(session, APR_LINE_LOGITS, APR_LINE_LOGITS), used->logits},
        {"workspace", line_bytes(session, APR_LINE_WORKSPACE, APR_LINE_WORKSPACE), used->workspace},
    };
    memcpy(parts, all, sizeof all);
}

apr_verify_memory_part apr_verify_memory_total(const apr_verify_report *report)
{
    const apr_plan *const plan = apr_session_plan(report->input->other.session);
    const apr_session_memory memory = apr_session_check_memory(report->input->other.session);
    const uint64_t measured = memory.measured == UINT64_MAX ? 0 : memory.measured;
    if (plan->judged == APR_ON_DEVICE)
        return (apr_verify_memory_part){"all of the GPU's memory", memory.planned, report->input->used.driver};
    return (apr_verify_memory_part){"allocated", memory.planned, measured};
}

static void check_memory(apr_verify_report *report)
{
    const apr_verify_memory_part total = apr_verify_memory_total(report);
    const bool on_device = apr_session_plan(report->input->other.session)->judged == APR_ON_DEVICE;
    /* A driver reports the whole GPU, including other processes and sessions that were closed meanwhile. So only memory beyond the plan
     * counts on a device. Heap memory is exact. */
    const double beyond = (double)total.measured - (double)total.predicted, off = on_device ? beyond : fabs(beyond);
    const double allowed = on_device ? fmax(0.01 * (double)total.predicted, APR_DEVICE_SLACK_BYTES) : APR_HOST_SLACK_BYTES;

    /* the driver or the C library reports nothing, or nothing about this session alone */
    if (total.measured == 0 || (!on_device && report->input->shares_heap)) note(report, APR_VERIFY_MEMORY);
    else add_check(report, APR_VERIFY_MEMORY, off <= allowed && host_is_as_planned(report->input->other.session));
}

/* --- all of it --- */

static apr_status run_checks(apr_verify_report *report, const int32_t *ids, size_t n, apr_error *err)
{
    APR_TRY(check_vocabularies(report, err));
    APR_TRY(check_facts(report, err));
    APR_TRY(check_tensors(report, err));
    APR_TRY(check_operations(report, ids, n, err));
    APR_TRY(check_divergence(report, err));
    APR_TRY(check_answers(report, err));
    if (!report->input->no_backends) APR_TRY(check_backends(report, ids, n, err));
    check_memory(report);
    return APR_OK;
}

apr_status apr_verify_run(apr_verify_report *report, const apr_verify_input *input, apr_error *err)
{
    int32_t *ids;
    size_t n;

    *report = (apr_verify_report){.input = input, .backend = apr_session_backend_name(input->other.session)};
    APR_TRY(encode_text(report, apr_verify_text, strlen(apr_verify_text), &ids, &n, err));
    const apr_status status = run_checks(report, ids, n, err);
    free(ids);
    return status;
}

const apr_verify_check *apr_verify_first_failure(const apr_verify_report *report)
{
    for (size_t i = 0; i < report->n_checks; i++)
        if (report->checks[i].verdict == APR_VERDICT_FAIL) return &report->checks[i];
    return NULL;
}

void apr_verify_close(apr_verify_report *report)
{
    for (size_t i = 0; i < report->n_texts; i++) {
        apr_divergence_close(&report->texts[i].d);
        apr_divergence_close(&report->texts[i].control);
        free(report->texts[i].before_largest);
    }
    apr_weights_close(&report->tensors);
    for (size_t i = 0; i < report->n_answers; i++) {
        free(report->answers[i].reference);
        free(report->answers[i].other);
    }
    apr_parity_result_close(&report->operations);
    apr_parity_result_close(&report->backends);
    free(report->drift);
}
