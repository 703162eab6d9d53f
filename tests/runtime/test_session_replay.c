/* runtime/session/session_replay.c: a token whose operations were recorded gives the numbers of one whose operations are started. */
#include "runtime/program/ability.h"
#include "runtime/session/generate.h"
#include "runtime/session/session_internal.h"
#include "runtime/session/trace.h"
#include "tests/support/fake_device.h"
#include "tests/support/program_model.h"
#include "tests/support/replay_script.h"
#include "tests/support/sanitizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char warning[1024];
static int n_warnings;

static void keep_warning(void *user, const char *sentence)
{
    (void)user;
    n_warnings++;
    snprintf(warning, sizeof warning, "%s", sentence);
}

static apr_session_options on_device(bool replays)
{
    apr_session_options options = apr_session_defaults;
    options.n_ctx = REPLAY_SCRIPT_CTX;
    options.n_batch = 16;
    options.kv_dtype = APR_F32;
    options.cuda = fake_device();
    options.no_replay = !replays;
    options.on_warning = keep_warning;
    return options;
}

static void check_layer(const program_model *m, const char *what)
{
    const apr_session_options plain_options = on_device(false), options = on_device(true);
    apr_session *const plain = must_open_session(&m->model, &plain_options);
    float *const reference = replay_script_run(plain, 0);
    assert_int_equal(fake_device_replays(), 0);
    apr_session_close(plain);

    apr_session *const s = must_open_session(&m->model, &options);
    float *const again = replay_script_run(s, 0);
    /* all tokens but the first, which is checked; of a model with tables on the host none */
    if (fake_device_replays() != (replay_has_host_tables(&m->program) ? 0 : 114)) fail_msg("%s: %d replays", what, fake_device_replays());
    assert_true(fake_device_graphs() <= 1);
    apr_session_close(s);
    assert_int_equal(fake_device_graphs(), 0);
    if (memcmp(reference, again, REPLAY_SCRIPT_STEPS * (size_t)m->program.vocab_size * sizeof *reference) != 0)
        fail_msg("%s: other numbers", what);
    free(reference);
    free(again);
}

static void every_family_gives_the_same_numbers_recorded_or_not(void **state)
{
    (void)state;
    const size_t step = APR_HAS_SANITIZER ? 2 : 1;
    size_t n_layers = 0;
    for (size_t i = 0; i < apr_n_families; i += step) {
        const char *const name = apr_families[i]->types[0].name;
        if (apr_family_ability(apr_families[i], &apr_ref_backend) != APR_ABLE_RUN) continue;
        for (uint8_t mixer = 0; mixer <= APR_LAYER_NONE; mixer++) {
            program_model m;
            char what[96];
            if (!replay_open_layers(&m, name, mixer, 1)) continue;
            snprintf(what, sizeof what, "%s, a layer of kind %d", name, mixer);
            check_layer(&m, what);
            program_model_close(&m);
            n_layers++;
        }
    }
    assert_true(n_layers >= 40 / step);
}

/* Decode GEMVs round their inputs to 15 bits of the largest of 16, and nothing else: 1e-3 of the logits' size is far more than
 * that, and far less than a wrong step. Where two experts are as good as each other another may be chosen, seldom. */
static void decode_gemvs_give_the_numbers_of_operations(void **state)
{
    (void)state;
    const size_t step = APR_HAS_SANITIZER ? 2 : 1; /* the other half of the families */
    size_t n_layers = 0, n_with_gemv = 0, n_with_epilogue = 0;
    for (size_t i = step / 2; i < apr_n_families; i += step) {
        const char *const name = apr_families[i]->types[0].name;
        if (apr_family_ability(apr_families[i], &apr_ref_backend) != APR_ABLE_RUN) continue;
        program_model m;
        const apr_session_options plain_options = on_device(false), options = on_device(true);
        if (!replay_open_layers(&m, name, APR_LAYER_FULL, 1)) continue;
        apr_session *const plain = must_open_session(&m.model, &plain_options);
        float *const reference = replay_script_run(plain, 0);
        apr_session_close(plain);
        const int before = fake_device_decode_gemvs(), epilogues_before = fake_device_qkv_epilogues();
        fake_device_has_decode_gemv(true);
        apr_session *const s = must_open_session(&m.model, &options);
        float *const streamed = replay_script_run(s, 0);
        fake_device_has_decode_gemv(false);
        apr_session_close(s);
        const size_t width = (size_t)m.program.vocab_size;
        double peak = 0.0;
        int n_off = 0;
        for (size_t k = 0; k < REPLAY_SCRIPT_STEPS * width; k++) peak = fmax(peak, fabs((double)reference[k]));
        for (size_t row = 0; row < REPLAY_SCRIPT_STEPS; row++) {
            double worst = 0.0;
            for (size_t k = row * width; k < (row + 1) * width; k++) worst = fmax(worst, fabs((double)reference[k] - (double)streamed[k]));
            n_off += !(worst <= 1e-3 * peak);
        }
        const int allowed = m.model.hparams.num_experts > 0 ? REPLAY_SCRIPT_STEPS / 10 : 0;
        if (n_off > allowed) fail_msg("%s: %d of %d rows are off", name, n_off, (int)REPLAY_SCRIPT_STEPS);
        n_with_gemv += fake_device_decode_gemvs() > before;
        n_with_epilogue += fake_device_qkv_epilogues() > epilogues_before;
        n_layers++;
        free(reference);
        free(streamed);
        program_model_close(&m);
    }
    print_message("%zu of %zu families use decode GEMVs, %zu a QKV epilogue\n", n_with_gemv, n_layers, n_with_epilogue);
    assert_true(n_layers >= 20 / step);
    assert_true(n_with_gemv >= 20 / step);
    assert_true(n_with_epilogue >= 15 / step);
}

static void two_sessions_in_turn_do_not_read_each_other_s_token(void **state)
{
    (void)state;
    program_model m;
    const apr_session_options options = on_device(true);
    assert_true(replay_open_layers(&m, "qwen3_next", APR_LAYER_LINEAR, 1));
    const size_t vocab_size = (size_t)m.program.vocab_size;
    apr_session *const a = must_open_session(&m.model, &options), *const b = must_open_session(&m.model, &options);
    float *const alone[2] = {replay_script_run(a, 0), replay_script_run(b, 5)}, *const one = malloc(vocab_size * sizeof *one);
    replay_script of_a = {.salt = 0}, of_b = {.salt = 5};

    while (replay_script_step(&of_a, a, one)) {
        assert_memory_equal(one, alone[0] + (size_t)(of_a.step - 1) * vocab_size, vocab_size * sizeof *one);
        assert_true(replay_script_step(&of_b, b, one));
        assert_memory_equal(one, alone[1] + (size_t)(of_b.step - 1) * vocab_size, vocab_size * sizeof *one);
    }
    apr_session_close(a);
    apr_session_close(b);
    assert_int_equal(fake_device_graphs(), 0);
    free(alone[0]);
    free(alone[1]);
    free(one);
    program_model_close(&m);
}

static void a_token(apr_session *s)
{
    const int32_t id = 3;
    apr_error err = {0};
    if (apr_session_eval(s, &id, 1, NULL, &err) != APR_OK) fail_msg("%s", err.text);
}

static void what_was_recorded_is_recorded_again_when_products_are_made_otherwise(void **state)
{
    (void)state;
    program_model m;
    const apr_session_options options = on_device(true);
    assert_true(replay_open_layers(&m, "qwen3", APR_LAYER_FULL, 1));
    apr_session *const s = must_open_session(&m.model, &options);
    a_token(s);
    assert_int_equal(fake_device_graphs(), 0);
    a_token(s);
    assert_int_equal(fake_device_graphs(), 1);
    apr_session_set_exact(s, true);
    assert_int_equal(fake_device_graphs(), 0);
    a_token(s); /* checked, as what has never run */
    assert_int_equal(fake_device_graphs(), 0);
    a_token(s);
    assert_int_equal(fake_device_graphs(), 1);
    apr_session_close(s);
    program_model_close(&m);
}

static void what_cannot_be_recorded_is_run_with_one_warning(void **state)
{
    (void)state;
    program_model m;
    const apr_session_options options = on_device(true), plain_options = on_device(false);
    assert_true(replay_open_layers(&m, "qwen3", APR_LAYER_FULL, 1));
    apr_session *const plain = must_open_session(&m.model, &plain_options);
    float *const reference = replay_script_run(plain, 0);
    apr_session_close(plain);
    fake_device_records(false);
    n_warnings = 0;
    apr_session *const s = must_open_session(&m.model, &options);
    float *const again = replay_script_run(s, 0);
    fake_device_records(true);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, "recording them failed"));
    assert_non_null(strstr(warning, "a fake that does not record"));
    assert_int_equal(fake_device_replays(), 0);
    assert_memory_equal(reference, again, REPLAY_SCRIPT_STEPS * (size_t)m.program.vocab_size * sizeof *reference);
    apr_session_close(s);
    free(reference);
    free(again);
    program_model_close(&m);
}

/* The numbers of the token that fails are computed on the host, and so are those after it. */
static void a_device_that_fails_in_a_replay_is_given_up_for_the_host(void **state)
{
    (void)state;
    program_model m;
    apr_session_options options = on_device(true);
    options.fall_back = true;
    options.backend = &apr_ref_backend;
    assert_true(replay_open_layers(&m, "qwen3", APR_LAYER_FULL, 1));
    apr_session *const s = must_open_session(&m.model, &options);
    for (int i = 0; i < 4; i++) a_token(s);
    assert_int_equal(fake_device_replays(), 3);
    apr_topk best = {.n_wanted = 1};
    const apr_eval_output wanted = {.best = &best};
    fake_device_fail_after(4);
    assert_int_equal(apr_session_eval(s, &(int32_t){7}, 1, &wanted, NULL), APR_OK);
    fake_device_fail_after(-1);
    assert_non_null(strstr(warning, "continuing on the host"));
    assert_int_equal(apr_session_position(s), 5);
    assert_int_equal(best.ids[0], apr_argmax(apr_session_logits(s), m.program.vocab_size));
    assert_int_equal(fake_device_graphs(), 0);
    apr_session_close(s);
    program_model_close(&m);
}

typedef struct spoken {
    int32_t ids[40];
    int n;
} spoken;

static bool keep_id(void *user, int32_t id, bool is_stop)
{
    spoken *const said = user;
    (void)is_stop;
    said->ids[said->n++] = id;
    return true;
}

static void seeds_give_the_same_on_the_host_and_on_a_device(void **state)
{
    static const apr_sample_options ways[] = {{0},
                                              {.temperature = 0.2f, .top_p = 0.5f, .seed = 3},
                                              {.temperature = 1.0f, .top_p = 0.95f, .seed = 4},
                                              {.temperature = 0.8f, .seed = 5},
                                              {.temperature = 0.9f, .seed = 6, .top_k = 40, .top_p = 0.9f, .min_p = 0.02f},
                                              {.temperature = 1.5f, .seed = 7, .min_p = 0.1f},
                                              {.seed = 8, .repeat_penalty = 1.5f, .repeat_last = -1},
                                              {.temperature = 0.7f, .seed = 9, .top_k = 20, .presence_penalty = 1.0f, .repeat_last = 8}};
    const int32_t prompt[] = {1, 5, 9};
    program_model m;

    (void)state;
    assert_true(replay_open_layers(&m, "qwen3", APR_LAYER_FULL, 1));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        spoken said[2] = {{.n = 0}, {.n = 0}};
        for (int where = 0; where < 2; where++) {
            apr_session_options options = on_device(true);
            apr_generate_options generate = {.max_tokens = 40, .on_token = keep_id, .user = &said[where]};
            apr_generation generation;
            apr_sampler sampler;
            if (where == 0) options.cuda = NULL;
            options.backend = where == 0 ? &apr_ref_backend : NULL;
            apr_session *const s = must_open_session(&m.model, &options);
            assert_int_equal(apr_sampler_open(&sampler, m.program.vocab_size, &ways[i], NULL), APR_OK);
            assert_int_equal(apr_generate(s, &sampler, prompt, 3, &generate, &generation, NULL), APR_OK);
            apr_sampler_close(&sampler);
            apr_session_close(s);
        }
        assert_int_equal(said[0].n, 40);
        assert_memory_equal(said[0].ids, said[1].ids, sizeof said[0].ids);
    }
    program_model_close(&m);
}

static void logits_that_were_left_on_a_device_can_be_had_until_all_is_forgotten(void **state)
{
    (void)state;
    program_model m;
    const apr_session_options options = on_device(true);
    apr_topk best = {.n_wanted = 1};
    const apr_eval_output wanted = {.best = &best};
    assert_true(replay_open_layers(&m, "qwen3", APR_LAYER_FULL, 1));
    apr_session *const s = must_open_session(&m.model, &options);
    assert_int_equal(apr_session_read_logits(s, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_eval(s, (int32_t[]){1, 2, 3}, 3, &wanted, NULL), APR_OK);
    assert_null(apr_session_logits(s));
    assert_int_equal(apr_session_read_logits(s, NULL), APR_OK);
    assert_int_equal(apr_argmax(apr_session_logits(s), m.program.vocab_size), best.ids[0]);
    apr_session_reset(s);
    assert_null(apr_session_logits(s));
    assert_int_equal(apr_session_read_logits(s, NULL), APR_E_USAGE);
    apr_session_close(s);
    program_model_close(&m);
}

static bool is_as_planned(const apr_session *s, uint64_t before, uint64_t taken)
{
    fake_device_has_in_use(before + taken);
    return apr_session_check_memory(s).as_planned;
}

static void memory_for_a_graph_not_recorded_yet_may_be_free(void **state)
{
    (void)state;
    enum { BEFORE = 1 << 20, SLACK = APR_DEVICE_SLACK_BYTES };
    program_model m;
    const apr_session_options options = on_device(true);
    assert_true(replay_open_layers(&m, "qwen3", APR_LAYER_FULL, 1));
    fake_device_has_in_use(BEFORE);
    apr_session *const s = must_open_session(&m.model, &options);
    const uint64_t planned = apr_session_check_memory(s).planned, recorded = apr_session_line_bytes(&s->places[0], APR_LINE_RECORDED);
    assert_true(recorded > 0);
    assert_true(is_as_planned(s, BEFORE, planned + SLACK) && !is_as_planned(s, BEFORE, planned + SLACK + 1));
    assert_true(is_as_planned(s, BEFORE, planned - SLACK - recorded) && !is_as_planned(s, BEFORE, planned - SLACK - recorded - 1));
    for (int32_t id = 1; id < 4; id++) assert_int_equal(apr_session_eval(s, &id, 1, NULL, NULL), APR_OK);
    assert_non_null(s->places[0].recorded);
    assert_true(is_as_planned(s, BEFORE, planned - SLACK) && !is_as_planned(s, BEFORE, planned - SLACK - 1));
    apr_session_close(s);
    fake_device_has_in_use(UINT64_MAX);
    program_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_gives_the_same_numbers_recorded_or_not),
        cmocka_unit_test(decode_gemvs_give_the_numbers_of_operations),
        cmocka_unit_test(two_sessions_in_turn_do_not_read_each_other_s_token),
        cmocka_unit_test(what_was_recorded_is_recorded_again_when_products_are_made_otherwise),
        cmocka_unit_test(what_cannot_be_recorded_is_run_with_one_warning),
        cmocka_unit_test(a_device_that_fails_in_a_replay_is_given_up_for_the_host),
        cmocka_unit_test(seeds_give_the_same_on_the_host_and_on_a_device),
        cmocka_unit_test(memory_for_a_graph_not_recorded_yet_may_be_free),
        cmocka_unit_test(logits_that_were_left_on_a_device_can_be_had_until_all_is_forgotten),
    };
    return cmocka_run_group_tests_name("session_replay", tests, NULL, NULL);
}
