/* runtime/check/verify.h: a model that was made well passes, whatever its types; each subtle break is found by the check that names it. */
#include "runtime/check/verify.h"
#include "tests/support/edited_model.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A bundled model with its tokenizer, ready to be asked; what is made of it borrows vocabulary and tokenizer. */
typedef struct opened {
    apr_model model;
    apr_tokenizer *tokenizer;
    apr_session *session;
} opened;

static void open_model(opened *o, const char *dir)
{
    apr_error err = {0};

    if (apr_model_open(&o->model, dir, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_tokenizer_open(&o->tokenizer, &o->model.vocab, &err) != APR_OK) fail_msg("%s", err.text);
    o->session = edited_model_session(&o->model, 128);
}

static void close_model(opened *o)
{
    apr_session_close(o->session);
    apr_tokenizer_close(o->tokenizer);
    apr_model_close(&o->model);
}

static apr_subject subject_of(const opened *o)
{
    return (apr_subject){.path = o->model.path, .vocab = &o->model.vocab, .tokenizer = o->tokenizer, .session = o->session};
}

/* A short text next to the built-in one is not looked at; no backends. */
static apr_verify_input input_of(const apr_subject *reference, const apr_subject *other)
{
    return (apr_verify_input){.reference = *reference,
                              .other = *other,
                              .used = apr_session_used(other->session),
                              .window = 128,
                              .n_answer = 6,
                              .control_limit = (uint64_t)1 << 30,
                              .no_backends = true};
}

static void verify(apr_verify_report *r, const apr_verify_input *input)
{
    apr_error err = {0};
    if (apr_verify_run(r, input, &err) != APR_OK) fail_msg("%s", err.text);
}

/* A model made of the bundled one, in place of it. */
static void verify_other(apr_verify_report *r, apr_verify_input *input, const opened *reference, const edited_model *other,
                         apr_session **session)
{
    apr_subject b = subject_of(reference);
    const apr_subject a = b;

    b.session = *session = edited_model_session(&other->model, 128);
    *input = input_of(&a, &b);
    verify(r, input);
}

static const apr_verify_check *check_of(const apr_verify_report *r, apr_verify_kind kind)
{
    for (size_t i = 0; i < r->n_checks; i++)
        if (r->checks[i].kind == kind) return &r->checks[i];
    return NULL;
}

/* The verdict on a check that was made. */
static apr_verdict verdict_of(const apr_verify_report *r, apr_verify_kind kind)
{
    const apr_verify_check *const c = check_of(r, kind);
    if (c == NULL) fail_msg("there is no check %d", (int)kind);
    return c->verdict;
}

static bool passed(const apr_verify_report *r, apr_verify_kind kind) { return verdict_of(r, kind) == APR_VERDICT_PASS; }
static bool failed(const apr_verify_report *r, apr_verify_kind kind) { return verdict_of(r, kind) == APR_VERDICT_FAIL; }
static bool noted(const apr_verify_report *r, apr_verify_kind kind) { return verdict_of(r, kind) == APR_VERDICT_NOTED; }

/* --- good ones --- */

static void a_model_equals_itself(void **state)
{
    (void)state;
    static const apr_verify_kind order[] = {
        APR_VERIFY_TOKENIZER, APR_VERIFY_STOP_IDS,   APR_VERIFY_TEMPLATE, APR_VERIFY_FACTS,    APR_VERIFY_TENSORS,
        APR_VERIFY_WEIGHTS,   APR_VERIFY_OPERATIONS, APR_VERIFY_KL,       APR_VERIFY_SAME_TOP, APR_VERIFY_PERPLEXITY,
        APR_VERIFY_ANSWERS,   APR_VERIFY_BACKEND,    APR_VERIFY_MEMORY,
    };
    apr_verify_report r;
    opened a, b;

    open_model(&a, "tests/data/tiny-qwen2");
    open_model(&b, "tests/data/tiny-qwen2");
    const apr_subject reference = subject_of(&a), other = subject_of(&b);
    apr_verify_input input = input_of(&reference, &other);
    input.no_backends = false;
    verify(&r, &input);
    assert_false(r.failed);
    assert_null(apr_verify_first_failure(&r));
    assert_int_equal(r.n_checks, sizeof order / sizeof *order);
    for (size_t i = 0; i < r.n_checks; i++) assert_int_equal(r.checks[i].kind, order[i]);
    assert_true(r.same_shape && r.tensors.unchanged && r.tensors.worst == NULL && r.other_fact.status == APR_OK);
    assert_true(r.vocabulary.n_same == r.vocabulary.n_strings && r.vocabulary.n_strings > 20 && r.vocabulary.first_other == NULL);
    assert_true(r.texts[0].d.mean == 0.0 && r.texts[0].bound == apr_divergence_bound(NULL) && !r.texts[0].has_control);
    assert_true(passed(&r, APR_VERIFY_ANSWERS) && r.n_answers == 4); /* nothing was changed: so answers must be the same */
    for (size_t i = 0; i < r.n_answers; i++) assert_true(r.answers[i].same && r.answers[i].n_same == r.answers[i].n_reference);
    assert_true(r.operations.n_checked > 40 && r.operations.n_passed == r.operations.n_checked);
    assert_true(r.backends.n_checked > 0 && r.backends.n_positions == 2); /* 4100 is beyond the context: its last position instead */
    assert_int_equal(r.backends.last_position, apr_session_plan(a.session)->n_ctx - 1);
    assert_int_equal(r.n_drift, 3);
    for (size_t i = 0; i < r.n_drift; i++) assert_true(r.drift[i] == 0.0);
    apr_verify_close(&r);
    close_model(&a);
    close_model(&b);
}

/* --- broken ones --- */

static void check_how_it_is_found(const apr_verify_report *r, model_break how, const opened *reference)
{
    static const apr_verify_kind first[] = {
        [BREAK_NORM_LEFT_OUT] = APR_VERIFY_WEIGHTS, [BREAK_HEADS_SWAPPED] = APR_VERIFY_WEIGHTS, [BREAK_THETA_DOUBLED] = APR_VERIFY_FACTS};
    static const char *const tensors[] = {[BREAK_NORM_LEFT_OUT] = "model.layers.1.input_layernorm.weight",
                                          [BREAK_HEADS_SWAPPED] = "model.layers.0.self_attn.q_proj.weight",
                                          [BREAK_THETA_DOUBLED] = NULL};

    assert_true(r->failed && failed(r, first[how]));
    assert_int_equal(apr_verify_first_failure(r)->kind, first[how]);
    assert_true(passed(r, APR_VERIFY_TENSORS)); /* all there, all numbers */
    if (tensors[how] != NULL) {
        assert_int_equal(r->tensors.n_far, 1);
        assert_string_equal(r->tensors.worst->other->name, tensors[how]);
        assert_non_null(strstr(r->tensors.far, tensors[how]));
        assert_true(r->tensors.worst->scan.excess > 1.0 && passed(r, APR_VERIFY_FACTS));
    } else {
        assert_non_null(strstr(r->other_fact.text, "rotary frequency"));
        assert_true(passed(r, APR_VERIFY_WEIGHTS) && r->same_shape);
    }
    if (how == BREAK_HEADS_SWAPPED) /* also the row: one of the two heads' */
        assert_true(r->tensors.worst->scan.excess_at >= 0 && r->tensors.worst->scan.excess_at < 2 * reference->model.hparams.head_dim);
}

static void each_break_is_found_in_every_type_and_named(void **state)
{
    (void)state;
    static const apr_dtype types[] = {APR_Q8_0, APR_MXFP4};
    opened reference;

    open_model(&reference, "tests/data/tiny-qwen2");
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        edited_model good;
        edited_model_open(&good, &reference.model, NULL, types[t], types[t], BREAK_NONE);
        for (model_break how = BREAK_NONE; how < N_BREAKS; how++) {
            apr_verify_report r;
            apr_verify_input input;
            apr_session *session;
            edited_model other;
            edited_model_open(&other, &reference.model, &good, types[t], types[t], how);
            verify_other(&r, &input, &reference, &other, &session);
            assert_true(!r.tensors.unchanged && r.texts[0].has_control && noted(&r, APR_VERIFY_ANSWERS));
            assert_true(r.texts[0].bound == apr_divergence_bound(&r.texts[0].control) && r.texts[0].bound > apr_divergence_bound(NULL));
            if (how != BREAK_NONE) {
                check_how_it_is_found(&r, how, &reference);
            } else if (r.failed) {
                fail_msg("%s fails check %d", apr_dtypes[types[t]].name, (int)apr_verify_first_failure(&r)->kind);
            } else {
                assert_true(r.tensors.worst != NULL && r.tensors.worst->scan.excess > 0.5 && r.texts[0].before_largest == NULL);
            }
            apr_verify_close(&r);
            apr_session_close(session);
            edited_model_close(&other);
        }
        edited_model_close(&good);
    }
    close_model(&reference);
}

static apr_tensor *tensor_of(edited_model *m, const char *name)
{
    for (size_t i = 0; i < m->model.n_tensors; i++)
        if (strcmp(m->model.tensors[i].name, name) == 0) return &m->model.tensors[i];
    fail_msg("there is no %s", name);
    return NULL;
}

static void a_nan_is_found_in_its_tensor(void **state)
{
    (void)state;
    static const char name[] = "model.layers.1.mlp.down_proj.weight";
    static const uint8_t nan_bits[4] = {0, 0, 0xc0, 0x7f};
    apr_verify_report r;
    apr_verify_input input;
    apr_session *session;
    opened reference;
    edited_model other;

    open_model(&reference, "tests/data/tiny-qwen2");
    edited_model_open(&other, &reference.model, NULL, APR_F32, APR_F32, BREAK_NONE);
    memcpy((uint8_t *)(uintptr_t)tensor_of(&other, name)->data + 4 * 1000, nan_bits, sizeof nan_bits);
    verify_other(&r, &input, &reference, &other, &session);
    assert_int_equal(apr_verify_first_failure(&r)->kind, APR_VERIFY_TENSORS);
    assert_int_equal(r.tensors.n_damaged, 1);
    assert_non_null(strstr(r.tensors.damaged, name));
    assert_true(failed(&r, APR_VERIFY_KL) && isnan(r.texts[0].d.mean));
    assert_non_null(r.texts[0].before_largest); /* and where it is first seen */
    assert_true(r.texts[0].d.largest_at < r.texts[0].d.n_rows && r.texts[0].n_before_largest > 0);
    apr_verify_close(&r);
    apr_session_close(session);
    edited_model_close(&other);
    close_model(&reference);
}

/* A bias that was lost, where the model can be run without: the other one's is taken for zeros, which it is not. */
static void a_tensor_that_only_one_has_is_missing(void **state)
{
    (void)state;
    static const char name[] = "model.layers.0.self_attn.o_proj.bias";
    apr_verify_report r;
    apr_verify_input input;
    apr_session *session;
    opened reference;
    edited_model other;

    open_model(&reference, "tests/data/tiny-qwen2");
    edited_model_open(&other, &reference.model, NULL, APR_F32, APR_F32, BREAK_NONE);
    const int64_t width = reference.model.hparams.hidden_size;
    apr_tensor *const more = edited_model_memory(&other, (other.model.n_tensors + 1) * sizeof *more);
    float *const bias = edited_model_memory(&other, (size_t)width * sizeof *bias);
    memcpy(more, other.model.tensors, other.model.n_tensors * sizeof *more);
    bias[3] = 5.0f;
    more[other.model.n_tensors] = (apr_tensor){.name = name, .dtype = APR_F32, .rank = 1, .dims = {width}, .data = (const uint8_t *)bias};
    more[other.model.n_tensors].n_bytes = (uint64_t)width * sizeof *bias;
    apr_model_close(&other.model); /* its index of names */
    other.model = (apr_model){.path = "made", .hparams = reference.model.hparams, .tensors = more};
    other.model.n_tensors = reference.model.n_tensors + 1;
    assert_int_equal(apr_model_index_names(&other.model, NULL), APR_OK);
    verify_other(&r, &input, &reference, &other, &session);
    assert_int_equal(apr_verify_first_failure(&r)->kind, APR_VERIFY_TENSORS);
    assert_int_equal(r.tensors.n_missing, 1);
    assert_non_null(strstr(r.tensors.missing, name));
    apr_verify_close(&r);
    apr_session_close(session);
    edited_model_close(&other);
    close_model(&reference);
}

/* --- vocabularies --- */

/* The verdicts on tokenizer, stop ids and template with another vocabulary, the weights the same. */
static apr_verify_report with_vocabulary(const opened *reference, const apr_vocab *vocab, apr_verify_input *input)
{
    const apr_subject a = subject_of(reference);
    apr_subject b = a;
    apr_tokenizer *tokenizer;
    apr_verify_report r;
    apr_error err = {0};

    if (apr_tokenizer_open(&tokenizer, vocab, &err) != APR_OK) fail_msg("%s", err.text);
    b.vocab = vocab;
    b.tokenizer = tokenizer;
    b.session = edited_model_session(&reference->model, 128);
    *input = input_of(&a, &b);
    verify(&r, input);
    apr_session_close(b.session);
    apr_tokenizer_close(tokenizer);
    return r;
}

static void two_tokens_that_change_places_are_found_by_a_hard_string(void **state)
{
    (void)state;
    apr_verify_input input;
    opened reference;

    open_model(&reference, "tests/data/tiny-qwen2");
    apr_vocab vocab = reference.model.vocab;
    apr_str *const tokens = malloc(vocab.n_tokens * sizeof *tokens);
    memcpy(tokens, vocab.tokens, vocab.n_tokens * sizeof *tokens);
    size_t e = 0, t = 0;
    for (size_t i = 0; i < vocab.n_tokens; i++) {
        if (tokens[i].n_bytes == 1 && tokens[i].text[0] == 'e') e = i;
        if (tokens[i].n_bytes == 1 && tokens[i].text[0] == 't') t = i;
    }
    assert_true(e != t);
    const apr_str kept = tokens[e];
    tokens[e] = tokens[t];
    tokens[t] = kept;
    vocab.tokens = tokens;
    apr_verify_report r = with_vocabulary(&reference, &vocab, &input);
    assert_int_equal(apr_verify_first_failure(&r)->kind, APR_VERIFY_TOKENIZER);
    assert_non_null(r.vocabulary.first_other);
    assert_true(r.vocabulary.n_same < r.vocabulary.n_strings && r.vocabulary.n_reference == r.vocabulary.n_other);
    assert_true(passed(&r, APR_VERIFY_STOP_IDS) && passed(&r, APR_VERIFY_TEMPLATE) && passed(&r, APR_VERIFY_KL));
    apr_verify_close(&r);
    free(tokens);
    close_model(&reference);
}

static void stop_ids_and_templates_must_be_those_of_the_reference(void **state)
{
    (void)state;
    apr_verify_input input;
    opened reference;

    open_model(&reference, "tests/data/tiny-qwen2");
    apr_vocab lost = reference.model.vocab, word = lost, unstated = lost;
    lost.n_stop_ids = 0;
    lost.eos_id = -1;
    unstated.n_stop_ids = 0; /* though its eos id is the one */
    lost.chat_template = NULL;
    word.stop_ids[word.n_stop_ids++] = 100; /* an ordinary word */
    word.chat_template = "{{ messages[0].content }}";

    apr_verify_report r = with_vocabulary(&reference, &lost, &input);
    assert_true(passed(&r, APR_VERIFY_TOKENIZER));
    assert_true(failed(&r, APR_VERIFY_STOP_IDS));
    assert_true(failed(&r, APR_VERIFY_TEMPLATE));
    assert_true(r.vocabulary.first_lost_stop == reference.model.vocab.stop_ids[0] && r.vocabulary.first_ordinary_stop == -1);
    assert_false(r.vocabulary.same_template);
    apr_verify_close(&r);

    r = with_vocabulary(&reference, &unstated, &input);
    assert_true(failed(&r, APR_VERIFY_STOP_IDS) && r.vocabulary.first_lost_stop == -1 && passed(&r, APR_VERIFY_TEMPLATE));
    apr_verify_close(&r);

    r = with_vocabulary(&reference, &word, &input);
    assert_true(failed(&r, APR_VERIFY_STOP_IDS) && failed(&r, APR_VERIFY_TEMPLATE));
    assert_true(r.vocabulary.first_lost_stop == -1 && r.vocabulary.first_ordinary_stop == 100);
    apr_verify_close(&r);
    close_model(&reference);
}

static void models_of_other_shapes_are_not_run_in_step(void **state)
{
    (void)state;
    apr_verify_report r;
    opened a, b;

    open_model(&a, "tests/data/tiny-qwen2");
    open_model(&b, "tests/data/tiny-llama"); /* which has as many tokens */
    const apr_subject reference = subject_of(&a), other = subject_of(&b);
    const apr_verify_input input = input_of(&reference, &other);
    verify(&r, &input);
    assert_true(failed(&r, APR_VERIFY_FACTS) && !r.same_shape && r.other_fact.text[0] != '\0');
    assert_null(check_of(&r, APR_VERIFY_TENSORS));
    assert_null(check_of(&r, APR_VERIFY_OPERATIONS));
    assert_true(failed(&r, APR_VERIFY_KL) && r.texts[0].bound == apr_divergence_bound(NULL)); /* no types excuse it */
    apr_verify_close(&r);
    close_model(&a);
    close_model(&b);
}

static void texts_are_not_compared_over_vocabularies_of_other_sizes(void **state)
{
    (void)state;
    apr_verify_report r;
    apr_error err = {0};
    opened reference;
    apr_model small;

    open_model(&reference, "tests/data/tiny-qwen2");
    if (family_write("tests/data/families/llama", in_work("llama"), NULL, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_model_open(&small, in_work("llama"), &err) != APR_OK) fail_msg("%s", err.text);
    const apr_subject a = subject_of(&reference);
    apr_subject b = a;
    b.session = edited_model_session(&small, 128);
    const apr_verify_input input = input_of(&a, &b);
    verify(&r, &input);
    assert_true(failed(&r, APR_VERIFY_KL) && r.n_texts == 0 && r.n_answers == 0);
    assert_null(check_of(&r, APR_VERIFY_PERPLEXITY));
    assert_null(check_of(&r, APR_VERIFY_ANSWERS));
    apr_verify_close(&r);
    apr_session_close(b.session);
    apr_model_close(&small);
    close_model(&reference);
}

/* --- bounds and texts --- */

static void without_memory_for_a_control_divergence_is_shown_and_not_checked(void **state)
{
    (void)state;
    static const char psalm[] = "The heavens declare the glory of God; and the firmament sheweth his handywork.";
    apr_verify_report r;
    opened reference;
    edited_model other;

    open_model(&reference, "tests/data/tiny-qwen2");
    edited_model_open(&other, &reference.model, NULL, APR_MXFP4, APR_MXFP4, BREAK_NONE);
    apr_subject b = subject_of(&reference);
    const apr_subject a = b;
    b.session = edited_model_session(&other.model, 128);
    apr_verify_input input = input_of(&a, &b);
    input.control_limit = 0;
    input.extra_text = (apr_verify_extra_text){"psalm", psalm, sizeof psalm - 1};
    verify(&r, &input);
    assert_true(noted(&r, APR_VERIFY_KL) && !r.texts[0].has_control && isnan(r.texts[0].bound) && r.texts[0].d.mean > 0.0);
    assert_false(r.failed); /* what is not checked does not fail */
    assert_int_equal(r.n_texts, 2);
    assert_string_equal(r.texts[1].name, "psalm");
    assert_true(check_of(&r, APR_VERIFY_KL)->text == 0 && r.checks[r.n_checks - 3].kind == APR_VERIFY_PERPLEXITY);
    assert_true(r.checks[r.n_checks - 3].text == 1 && r.texts[1].d.n_rows < 60 && r.texts[0].d.n_rows > 600);
    apr_verify_close(&r);

    apr_error err = {0};
    input.extra_text = (apr_verify_extra_text){"nothing", "", 0};
    assert_int_equal(apr_verify_run(&r, &input, &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "the text is empty"));
    apr_verify_close(&r);
    apr_session_close(b.session);
    edited_model_close(&other);
    close_model(&reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_equals_itself),
        cmocka_unit_test(each_break_is_found_in_every_type_and_named),
        cmocka_unit_test(a_nan_is_found_in_its_tensor),
        cmocka_unit_test(a_tensor_that_only_one_has_is_missing),
        cmocka_unit_test(two_tokens_that_change_places_are_found_by_a_hard_string),
        cmocka_unit_test(stop_ids_and_templates_must_be_those_of_the_reference),
        cmocka_unit_test(models_of_other_shapes_are_not_run_in_step),
        cmocka_unit_test(texts_are_not_compared_over_vocabularies_of_other_sizes),
        cmocka_unit_test(without_memory_for_a_control_divergence_is_shown_and_not_checked),
    };
    return cmocka_run_group_tests_name("verify", tests, make_work, remove_work);
}
