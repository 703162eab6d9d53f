/* runtime/check/golden_checks.h: the bundled model does what transformers recorded of it; every number of the recording is looked at. */
#include "formats/base/bytes.h"
#include "runtime/check/golden_checks.h"
#include "tests/support/edited_model.h"
#include "tests/support/sanitizer.h"
#include "tests/support/work_folder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char folder[] = "tests/data/tiny-qwen2", recording[] = "tests/data/tiny-qwen2/golden.json";
static const apr_recorded_options defaults = {.margin = 0.02, .min_recite = -1};

/* The bundled model; a session of it or of another one with its vocabulary; the recording, to be edited. */
typedef struct fixture {
    apr_model model;
    apr_tokenizer *tokenizer;
    apr_session *session;
    apr_recorded recorded;
    apr_subject subject;
} fixture;

static void open_fixture(fixture *f, const edited_model *other)
{
    apr_error err = {0};

    if (apr_model_open(&f->model, folder, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_tokenizer_open(&f->tokenizer, &f->model.vocab, &err) != APR_OK) fail_msg("%s", err.text);
    f->session = edited_model_session(other != NULL ? &other->model : &f->model, 320);
    if (apr_recorded_open(&f->recorded, recording, &err) != APR_OK) fail_msg("%s", err.text);
    f->subject = (apr_subject){.path = "m", .vocab = &f->model.vocab, .tokenizer = f->tokenizer, .session = f->session};
}

static void close_fixture(fixture *f)
{
    apr_recorded_close(&f->recorded);
    apr_session_close(f->session);
    apr_tokenizer_close(f->tokenizer);
    apr_model_close(&f->model);
}

static apr_recorded_check run_checks_with(const fixture *f, apr_recorded_kind kind, const apr_recorded_options *options)
{
    apr_recorded_check c;
    apr_error err = {0};
    if (apr_recorded_check_run(&f->recorded, kind, &f->subject, options, &c, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(c.kind, kind);
    return c;
}

static apr_recorded_check run_checks(const fixture *f, apr_recorded_kind kind) { return run_checks_with(f, kind, &defaults); }

/* A check that cannot be made: why. */
static apr_status refuse(const fixture *f, apr_recorded_kind kind, apr_error *err)
{
    apr_recorded_check c;
    *err = (apr_error){0};
    return apr_recorded_check_run(&f->recorded, kind, &f->subject, &defaults, &c, err);
}

static cJSON *prompt_of(const fixture *f, int i) { return cJSON_GetArrayItem(cJSON_GetObjectItem(f->recorded.json, "prompts"), i); }

/* Item `i` of an array of numbers in an object, moved by `by`. */
static void move(cJSON *object, const char *key, int i, double by)
{
    cJSON *const item = cJSON_GetArrayItem(cJSON_GetObjectItem(object, key), i);
    assert_non_null(item);
    cJSON_SetNumberValue(item, item->valuedouble + by);
}

static void keep_verses(const fixture *f, int n)
{
    cJSON *const verses = cJSON_GetObjectItem(cJSON_GetObjectItem(f->recorded.json, "recite"), "verses");
    while (cJSON_GetArraySize(verses) > n) cJSON_DeleteItemFromArray(verses, n);
}

/* --- good --- */

static void the_model_does_what_was_recorded_of_it(void **state)
{
    (void)state;
    static const struct {
        int64_t n_checked, n_total;
        bool has_bound;
    } wanted[APR_N_RECORDED] = {
        [APR_RECORDED_TEMPLATE] = {3, 0, false}, [APR_RECORDED_TOKENS] = {6, 0, false},    [APR_RECORDED_GREEDY] = {6, 6, false},
        [APR_RECORDED_TOP] = {6, 0, true},       [APR_RECORDED_RECITE] = {4, 4, false},    [APR_RECORDED_LOGITS] = {64, 0, true},
        [APR_RECORDED_HIDDEN] = {192, 0, true},  [APR_RECORDED_PERPLEXITY] = {1, 0, true},
    };
    fixture f;

    open_fixture(&f, NULL);
    keep_verses(&f, 4);
    for (int kind = 0; kind < APR_N_RECORDED; kind++) {
        const apr_recorded_check c = run_checks(&f, (apr_recorded_kind)kind);
        if (!c.passed) fail_msg("%s: %s", apr_recorded_name((apr_recorded_kind)kind), c.first_bad);
        assert_true(c.n_checked == wanted[kind].n_checked && c.n_good == c.n_checked && c.n_total == wanted[kind].n_total);
        assert_true(isnan(c.bound) != wanted[kind].has_bound && c.first_bad[0] == '\0');
        if (wanted[kind].has_bound) assert_true(c.worst <= c.bound && c.bound > 0.0);
    }
    close_fixture(&f);
}

static void bounds_are_those_of_the_arithmetic_unless_they_are_given(void **state)
{
    (void)state;
    fixture f;

    open_fixture(&f, NULL);
    const apr_run_bound wanted = apr_run_bound_of(apr_trace_run_facts(f.session, 64));
    const apr_recorded_check own = run_checks(&f, APR_RECORDED_LOGITS);
    assert_true(own.reason.relative == wanted.relative && own.bound > 0.0);
    apr_recorded_options options = defaults;
    options.tolerance = 1e-9;
    options.ppl_tolerance = 1e-15;
    static const apr_recorded_kind kinds[] = {APR_RECORDED_TOP, APR_RECORDED_LOGITS, APR_RECORDED_HIDDEN, APR_RECORDED_PERPLEXITY};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (APR_HAS_SANITIZER && kinds[i] == APR_RECORDED_PERPLEXITY) continue; /* the longest, and others below run it */
        const apr_recorded_check c = run_checks_with(&f, kinds[i], &options);
        assert_true(!c.passed && c.reason.relative == 0.0 && c.worst > c.bound && c.first_bad[0] != '\0');
        assert_true(c.bound == (kinds[i] == APR_RECORDED_PERPLEXITY ? options.ppl_tolerance : options.tolerance));
    }
    close_fixture(&f);
}

/* --- every recorded number counts --- */

static void one_other_token_fails_its_prompt_alone(void **state)
{
    (void)state;
    fixture f;

    open_fixture(&f, NULL);
    move(prompt_of(&f, 1), "ids", 0, 1);
    apr_recorded_check c = run_checks(&f, APR_RECORDED_TOKENS);
    assert_true(!c.passed && c.n_good == 5 && c.n_checked == 6);
    assert_string_equal(c.first_bad, apr_json_get_string(prompt_of(&f, 1), "rendered"));

    move(prompt_of(&f, 0), "greedy_ids", 2, 1);
    cJSON_SetNumberValue(cJSON_GetObjectItem(prompt_of(&f, 2), "greedy_min_margin"), 0.01); /* nearly a tie: not checked */
    c = run_checks(&f, APR_RECORDED_GREEDY);
    assert_true(!c.passed && c.n_total == 6 && c.n_checked == 5);
    assert_string_equal(c.first_bad, apr_json_get_string(prompt_of(&f, 0), "text"));
    apr_recorded_options options = defaults;
    options.margin = 1e6;
    c = run_checks_with(&f, APR_RECORDED_GREEDY, &options);
    assert_true(!c.passed && c.n_checked == 0); /* nothing was proven */
    close_fixture(&f);
}

static void another_rendering_of_a_chat_is_named_by_its_question(void **state)
{
    (void)state;
    fixture f;
    cJSON *chat = NULL, *prompt;

    open_fixture(&f, NULL);
    cJSON_ArrayForEach(prompt, cJSON_GetObjectItem(f.recorded.json,
                                                   "prompts")) if (chat == NULL && strcmp(apr_json_get_string(prompt, "kind"), "chat") == 0)
        chat = prompt;
    assert_non_null(chat);
    cJSON_ReplaceItemInObject(chat, "rendered", cJSON_CreateString("<|im_start|>user\n"));
    const apr_recorded_check c = run_checks(&f, APR_RECORDED_TEMPLATE);
    assert_true(!c.passed && c.n_good == 2 && c.n_checked == 3);
    assert_string_equal(c.first_bad, apr_json_get_string(chat, "text"));

    apr_vocab bare = f.model.vocab;
    apr_error err;
    bare.chat_template = NULL;
    f.subject.vocab = &bare;
    assert_int_equal(refuse(&f, APR_RECORDED_TEMPLATE, &err), APR_E_UNSUPPORTED);
    assert_string_equal(err.text, "m has no chat template");
    close_fixture(&f);
}

static void a_top_logit_must_be_there_and_within_its_bound(void **state)
{
    (void)state;
    fixture f;

    open_fixture(&f, NULL);
    const double bound = run_checks(&f, APR_RECORDED_TOP).bound;
    move(prompt_of(&f, 3), "top5_logits", 4, 2.0 * bound);
    apr_recorded_check c = run_checks(&f, APR_RECORDED_TOP);
    assert_true(!c.passed && c.n_good == 5 && c.worst > 1.5 * bound && c.worst < 2.5 * bound);
    assert_string_equal(c.first_bad, apr_json_get_string(prompt_of(&f, 3), "text"));

    move(prompt_of(&f, 3), "top5_logits", 1, -INFINITY); /* which leaves no memory for the others */
    c = run_checks(&f, APR_RECORDED_TOP);
    assert_true(!c.passed && c.n_good == 5 && isinf(c.worst) && c.bound == bound);

    cJSON_DeleteItemFromArray(cJSON_GetObjectItem(prompt_of(&f, 4), "top5_logits"), 4); /* an id without its logit */
    move(prompt_of(&f, 0), "top5_ids", 0, 1e6);                                         /* an id that the model has not */
    c = run_checks(&f, APR_RECORDED_TOP);
    assert_true(!c.passed && c.n_good == 3 && isnan(c.worst)); /* whatever comes after */
    close_fixture(&f);
}

static void a_verse_with_another_word_is_not_recited(void **state)
{
    (void)state;
    fixture f;
    bool exact;

    open_fixture(&f, NULL);
    keep_verses(&f, 3);
    cJSON *const verses = cJSON_GetObjectItem(cJSON_GetObjectItem(f.recorded.json, "recite"), "verses");
    cJSON *const second = cJSON_GetArrayItem(verses, 1);
    assert_true(apr_json_get_bool(second, "exact", &exact) && exact);
    cJSON_ReplaceItemInObject(second, "text", cJSON_CreateString("In the beginning was the Word."));
    apr_recorded_check c = run_checks(&f, APR_RECORDED_RECITE);
    assert_true(!c.passed && c.n_good == 2 && c.n_checked == 3);
    assert_string_equal(c.first_bad, apr_json_get_string(second, "ref"));

    apr_recorded_options options = defaults;
    options.min_recite = 2;
    assert_true(run_checks_with(&f, APR_RECORDED_RECITE, &options).passed);
    options.min_recite = 3;
    assert_false(run_checks_with(&f, APR_RECORDED_RECITE, &options).passed);

    cJSON_ReplaceItemInObject(second, "exact", cJSON_CreateFalse()); /* who recorded it could not either */
    c = run_checks(&f, APR_RECORDED_RECITE);
    assert_true(c.passed && c.n_checked == 2 && c.n_total == 3);
    close_fixture(&f);
}

static void perplexity_is_of_the_recorded_tokens(void **state)
{
    (void)state;
    fixture f;
    apr_error err;

    open_fixture(&f, NULL);
    cJSON *const heldout = cJSON_GetObjectItem(f.recorded.json, "heldout");
    cJSON *const perplexity = cJSON_GetObjectItem(heldout, "perplexity"), *const scored = cJSON_GetObjectItem(heldout, "tokens_scored");
    cJSON_SetNumberValue(perplexity, perplexity->valuedouble * 1.01);
    apr_recorded_check c = run_checks(&f, APR_RECORDED_PERPLEXITY);
    assert_true(!c.passed && c.worst > 0.009 && c.worst < 0.011 &&
                c.bound == apr_run_perplexity_bound(apr_trace_run_facts(f.session, 256)));
    cJSON_SetNumberValue(perplexity, perplexity->valuedouble / 1.01);
    cJSON_SetNumberValue(scored, scored->valuedouble + 1);
    if (!APR_HAS_SANITIZER) { /* the same run again */
        c = run_checks(&f, APR_RECORDED_PERPLEXITY);
        assert_true(!c.passed && c.worst <= c.bound); /* of another text, or cut otherwise */
    }
    cJSON_DeleteItemFromObject(heldout, "window");
    assert_int_equal(refuse(&f, APR_RECORDED_PERPLEXITY, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "'heldout' lacks"));
    close_fixture(&f);
}

/* --- what is missing, or is not a recording --- */

static void what_was_not_recorded_does_not_pass(void **state)
{
    (void)state;
    static const apr_recorded_kind kinds[] = {APR_RECORDED_TEMPLATE, APR_RECORDED_TOKENS, APR_RECORDED_GREEDY, APR_RECORDED_TOP,
                                              APR_RECORDED_RECITE};
    fixture f;
    apr_error err;

    open_fixture(&f, NULL);
    cJSON_Delete(f.recorded.json);
    f.recorded.json = cJSON_CreateObject();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const apr_recorded_check c = run_checks(&f, kinds[i]);
        assert_true(!c.passed && c.n_checked == 0);
    }
    assert_int_equal(refuse(&f, APR_RECORDED_PERPLEXITY, &err), APR_E_DAMAGED);
    close_fixture(&f);
}

static void invalid_ids_and_missing_arrays_are_reported(void **state)
{
    (void)state;
    static const char header[] = "{\"ids\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                                 "\"logits\":{\"dtype\":\"F32\",\"shape\":[2,2048],\"data_offsets\":[8,16392]}}";
    uint8_t *const bytes = calloc(1, 8 + sizeof header + 16392);
    fixture f;
    apr_error err;

    open_fixture(&f, NULL);
    move(prompt_of(&f, 0), "ids", 1, -1e6);
    assert_int_equal(refuse(&f, APR_RECORDED_TOKENS, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "golden.json: an array of token ids holds something else"));

    f.recorded.path = in_work("golden.json");
    assert_int_equal(refuse(&f, APR_RECORDED_LOGITS, &err), APR_E_IO);
    assert_non_null(strstr(err.text, "golden.safetensors"));
    apr_store_le64(bytes, sizeof header - 1);
    memcpy(bytes + 8, header, sizeof header - 1);
    write_file(in_work("golden.safetensors"), bytes, 8 + sizeof header - 1 + 16392);
    assert_int_equal(refuse(&f, APR_RECORDED_HIDDEN, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "there is no array 'hidden'"));
    assert_false(run_checks(&f, APR_RECORDED_LOGITS).passed); /* zeros are not what the model says */
    free(bytes);
    close_fixture(&f);
}

/* --- a model that is broken --- */

static void each_break_shows_in_the_first_layer_that_has_it(void **state)
{
    (void)state;
    static const char *const first[] = {[BREAK_NORM_LEFT_OUT] = "after layer 2, token 0",
                                        [BREAK_HEADS_SWAPPED] = "after layer 1, token ",
                                        [BREAK_THETA_DOUBLED] = "after layer 1, token "};
    apr_model reference;
    fixture f;

    assert_int_equal(apr_model_open(&reference, folder, NULL), APR_OK);
    for (model_break how = BREAK_NONE; how < N_BREAKS; how++) {
        edited_model other;
        edited_model_open(&other, &reference, NULL, APR_F32, APR_F32, how);
        open_fixture(&f, &other);
        const apr_recorded_check logits = run_checks(&f, APR_RECORDED_LOGITS), hidden = run_checks(&f, APR_RECORDED_HIDDEN),
                                 top = run_checks(&f, APR_RECORDED_TOP);
        assert_true(logits.passed == (how == BREAK_NONE) && hidden.passed == (how == BREAK_NONE) && top.passed == (how == BREAK_NONE));
        if (how != BREAK_NONE && strncmp(hidden.first_bad, first[how], strlen(first[how])) != 0)
            fail_msg("%s: first '%s'", break_names[how], hidden.first_bad);
        assert_true(run_checks(&f, APR_RECORDED_TOKENS).passed); /* the weights' fault, not the tokenizer's */
        close_fixture(&f);
        edited_model_close(&other);
    }
    apr_model_close(&reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_does_what_was_recorded_of_it),
        cmocka_unit_test(bounds_are_those_of_the_arithmetic_unless_they_are_given),
        cmocka_unit_test(one_other_token_fails_its_prompt_alone),
        cmocka_unit_test(another_rendering_of_a_chat_is_named_by_its_question),
        cmocka_unit_test(a_top_logit_must_be_there_and_within_its_bound),
        cmocka_unit_test(a_verse_with_another_word_is_not_recited),
        cmocka_unit_test(perplexity_is_of_the_recorded_tokens),
        cmocka_unit_test(what_was_not_recorded_does_not_pass),
        cmocka_unit_test(invalid_ids_and_missing_arrays_are_reported),
        cmocka_unit_test(each_break_shows_in_the_first_layer_that_has_it),
    };
    return cmocka_run_group_tests_name("golden checks", tests, make_work, remove_work);
}
