/* runtime/session/session.h: several sequences in one session. Each has the numbers that it has alone, to the last bit, whatever the others
 * are, in whatever pages; a common prefix of two is computed once; and the memory is what the plan says. */
#include "runtime/program/ability.h"
#include "tests/support/fake_device.h"
#include "tests/support/program_model.h"
#include "tests/support/sanitizer.h"
#include "tests/support/sequence_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The longest of them, and its pages. */
enum { N_CTX = 144, PIECE = CHECK_PIECE, VOCAB = 96 };

/* Of a device everything but its kernels. */
static sequence_check place_of(bool is_device)
{
    return (sequence_check){.kv_dtype = APR_F16, .counts_memory = true, .cuda = is_device ? fake_device() : NULL};
}

/* Every step-th family; under a sanitizer fewer of them, and then others in each test. */
static void with_families(const sequence_check *c, apr_dtype dtype, size_t first, size_t step)
{
    int n_families = 0;
    if (APR_HAS_SANITIZER) step *= 3;
    for (size_t i = first; i < apr_n_families; i += step) {
        if (apr_family_ability(apr_families[i], &apr_ref_backend) != APR_ABLE_RUN) continue;
        n_families += check_family(c, apr_families[i]->types[0].name, dtype, NULL) > 0;
    }
    assert_true(n_families >= (int)(30 / step));
}

static void a_sequence_of_any_family_is_the_same_alone_and_among_others(void **state)
{
    const sequence_check host = place_of(false);
    (void)state;
    with_families(&host, APR_F32, 0, 1);
}

static void a_sequence_is_the_same_with_weights_whose_products_round(void **state)
{
    const sequence_check host = place_of(false);
    (void)state;
    with_families(&host, APR_Q8_0, 1, 2); /* the others are seen as floats and on a device */
}

static void a_sequence_is_the_same_with_f16_weights_multiplied_a_few_rows_at_once(void **state)
{
    const sequence_check host = place_of(false);
    (void)state;
    with_families(&host, APR_BF16, 2, 3);
}

static void the_same_on_a_device_that_takes_all_rows_at_once(void **state)
{
    const sequence_check device = place_of(true);
    (void)state;
    with_families(&device, APR_F32, 0, 2);
}

/* --- pages and what is shared --- */

static int open_family(program_model *m, const char *architecture, uint8_t mixer)
{
    static const uint8_t ffn = APR_FFN_DENSE;
    static uint8_t kind;
    apr_hparams h = program_model_sizes(architecture);
    kind = mixer;
    h.num_layers = 1;
    h.layer_kinds = &kind; /* the model keeps both */
    h.ffn_kinds = &ffn;
    h.num_experts = 0;
    return program_model_open(m, &h, APR_F32, NULL) == APR_OK;
}

static void a_common_prefix_of_sequences_is_computed_once(void **state)
{
    static const struct {
        const char *architecture;
        uint8_t mixer;
        bool anywhere;
    } cases[] = {{"llama", APR_LAYER_FULL, true}, {"qwen3_5", APR_LAYER_LINEAR, false}, {"gemma3_text", APR_LAYER_SLIDING, false}};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        program_model m;
        if (!open_family(&m, cases[i / 2].architecture, cases[i / 2].mixer)) fail_msg("%s cannot be made", cases[i / 2].architecture);
        sequence_check c = place_of(i % 2 == 1);
        c.model = &m.model;
        c.what = cases[i / 2].architecture;
        check_sharing(&c, cases[i / 2].anywhere);
        program_model_close(&m);
    }
}

static void sequences_share_a_cache_that_is_smaller_than_all_contexts(void **state)
{
    program_model m;
    apr_error err = {0};
    int32_t ids[PIECE] = {0};
    (void)state;
    assert_true(open_family(&m, "llama", APR_LAYER_FULL));
    const sequence_check c = {.model = &m.model, .what = "llama", .kv_dtype = APR_F16};
    apr_session *const s = check_open(&c, 4, 300);
    assert_int_equal(apr_session_plan(s)->n_pages, 5);
    check_evaluate(&c, s, 0, 0, 0, 128, NULL);
    check_evaluate(&c, s, 1, 1, 0, 64, NULL);
    check_evaluate(&c, s, 2, 2, 0, 100, NULL);
    assert_int_equal(apr_session_free_pages(s), 0);
    apr_session_use(s, 3);
    assert_int_equal(apr_session_eval(s, ids, 1, NULL, &err), APR_E_NO);
    assert_non_null(strstr(err.text, "the cache is full"));
    const apr_sequence_token over[] = {{1, 3}};
    assert_int_equal(apr_session_step(s, over, 1, NULL, NULL), APR_E_NO);
    apr_session_use(s, 0);
    apr_session_reset(s);
    assert_int_equal(apr_session_free_pages(s), 2);
    assert_int_equal(apr_session_step(s, over, 1, NULL, NULL), APR_OK);
    apr_session_close(s);
    program_model_close(&m);
}

static void a_step_of_what_is_not_there_is_refused(void **state)
{
    static const apr_sequence_token none[] = {{3, 1}}, foreign[] = {{1, VOCAB}}, apart[] = {{1, 1}, {0, 1}, {1, 2}},
                                    twice[] = {{1, 1}, {1, 2}};
    program_model m;
    (void)state;
    assert_true(open_family(&m, "llama", APR_LAYER_FULL));
    const sequence_check c = {.model = &m.model, .what = "llama", .kv_dtype = APR_F16};
    apr_session *const s = check_open(&c, 3, 0), *const one = check_open(&c, 1, 0);
    check_evaluate(&c, s, 1, 1, 0, N_CTX - 1, NULL);
    assert_int_equal(apr_session_step(s, none, 1, NULL, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_step(s, foreign, 1, NULL, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_step(s, apart, 3, NULL, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_step(s, twice, 2, NULL, NULL), APR_E_NO); /* the second one does not fit the context */
    assert_int_equal(apr_session_step(one, twice, 1, NULL, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_step(s, twice, 1, NULL, NULL), APR_OK);
    assert_int_equal(apr_session_step(s, twice, 1, NULL, NULL), APR_E_NO); /* the context is full */
    apr_session_close(s);
    apr_session_close(one);
    program_model_close(&m);
}

/* Rows of one sequence would all write its state. */
static void prompts_with_recurrent_states_are_not_rows(void **state)
{
    static const apr_sequence_token empty[] = {{2, 1}}, twice[] = {{1, 1}, {1, 2}};
    program_model m;
    (void)state;
    assert_true(open_family(&m, "qwen3_5", APR_LAYER_LINEAR));
    const sequence_check c = {.model = &m.model, .what = "qwen3_5", .kv_dtype = APR_F16};
    apr_session *const s = check_open(&c, 3, 0);
    assert_false(apr_session_can_step_prompts(s));
    check_evaluate(&c, s, 1, 1, 0, 3, NULL);
    assert_int_equal(apr_session_step(s, empty, 1, NULL, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_step(s, twice, 2, NULL, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_step(s, twice, 1, NULL, NULL), APR_OK);
    apr_session_close(s);
    program_model_close(&m);
}

static void on_devices_sequences_are_in_one_place_and_read_packed_weights(void **state)
{
    program_model m;
    apr_error err = {0};
    apr_session *s;
    (void)state;
    assert_true(open_family(&m, "llama", APR_LAYER_FULL));
    apr_session_options options = apr_session_defaults;
    options.n_sequences = 3;
    options.cuda = fake_device();
    options.n_devices = 2;
    options.ordinals[1] = 1;
    assert_int_equal(apr_session_open(&s, &m.model, &options, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "in one place"));
    err = (apr_error){0};
    options.n_devices = 1;
    options.no_direct = true;
    assert_int_equal(apr_session_open(&s, &m.model, &options, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "packed weights"));
    program_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_of_any_family_is_the_same_alone_and_among_others),
        cmocka_unit_test(a_sequence_is_the_same_with_weights_whose_products_round),
        cmocka_unit_test(a_sequence_is_the_same_with_f16_weights_multiplied_a_few_rows_at_once),
        cmocka_unit_test(the_same_on_a_device_that_takes_all_rows_at_once),
        cmocka_unit_test(a_common_prefix_of_sequences_is_computed_once),
        cmocka_unit_test(sequences_share_a_cache_that_is_smaller_than_all_contexts),
        cmocka_unit_test(a_step_of_what_is_not_there_is_refused),
        cmocka_unit_test(prompts_with_recurrent_states_are_not_rows),
        cmocka_unit_test(on_devices_sequences_are_in_one_place_and_read_packed_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
