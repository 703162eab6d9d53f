/* runtime/calibrate/own_text.h on the bundled model: what it writes is its own, and always the same. */
#include "runtime/calibrate/own_text.h"

#include "runtime/program/ability.h"
#include "tests/support/fake_device.h"
#include "tests/support/golden_model.h"
#include "tests/support/sanitizer.h"
#include "tests/support/sequence_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WINDOW = 32, LONG = 1024, N_WINDOWS = 12, N_IDS = WINDOW * N_WINDOWS };

static golden bundled;

static int open_model(void **state)
{
    (void)state;
    apr_error err = {0};
    if (golden_open(&bundled, "tests/data/tiny-qwen2", &err) != APR_OK) fail_msg("%s", err.text);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    golden_close(&bundled);
    return 0;
}

static apr_session *open_session(const apr_model *model, int64_t n_batch)
{
    apr_session_options options = apr_session_defaults;
    apr_session *session = NULL;
    apr_error err = {0};

    options.n_ctx = WINDOW;
    options.n_batch = n_batch;
    if (apr_session_open(&session, model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    return session;
}

static apr_session *open_writer(const apr_model *model, int64_t n_windows, int64_t most)
{
    const apr_own_text how = {.n_windows = n_windows, .window = WINDOW};
    apr_session *session = NULL;
    apr_error err = {0};

    if (apr_own_text_open(&session, &how, model, &apr_session_defaults, most, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(apr_session_n_sequences(session), most);
    return session;
}

static void write_ids(apr_session *session, apr_own_text how, int32_t *ids)
{
    apr_error err = {0};
    if (apr_own_text_write(&how, session, ids, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(apr_session_position(session), 0);
}

/* Of ids in windows: the mean of -log p of each token but a window's first. */
static double surprise(apr_session *session, const int32_t *ids)
{
    const int64_t vocab = apr_session_program(session)->vocab_size;
    float *const logits = malloc((size_t)(WINDOW * vocab) * sizeof *logits);
    double sum = 0.0;

    for (int64_t at = 0; at < N_IDS; at += WINDOW) {
        const apr_eval_output out = {.all_logits = true, .logits = logits};
        apr_session_reset(session);
        assert_int_equal(apr_session_eval(session, ids + at, WINDOW, &out, NULL), APR_OK);
        for (int64_t i = 1; i < WINDOW; i++) {
            const float *const row = logits + (i - 1) * vocab;
            double total = 0.0;
            for (int64_t v = 0; v < vocab; v++) total += exp((double)row[v] - (double)row[ids[at + i]]);
            sum += log(total);
        }
    }
    free(logits);
    return sum / (N_IDS - N_WINDOWS);
}

static void a_seed_gives_one_text_and_another_seed_another(void **state)
{
    (void)state;
    static int32_t a[N_IDS], b[N_IDS], other[N_IDS];
    const apr_own_text how = {.n_windows = N_WINDOWS, .window = WINDOW, .seed = 1};
    apr_own_text with_other_seed = how;
    apr_session *const session = open_session(&bundled.model, WINDOW), *const alone = open_session(&bundled.model, 1);

    with_other_seed.seed = 2;
    write_ids(session, how, a);
    write_ids(alone, how, b);
    write_ids(session, with_other_seed, other);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, other, sizeof a);
    apr_session_close(session);
    apr_session_close(alone);
}

static void a_shorter_text_is_the_beginning_of_a_longer_one(void **state)
{
    (void)state;
    static int32_t all[N_IDS], some[N_IDS];
    apr_session *const session = open_session(&bundled.model, WINDOW);

    write_ids(session, (apr_own_text){.n_windows = N_WINDOWS, .window = WINDOW}, all);
    write_ids(session, (apr_own_text){.n_windows = 2, .window = WINDOW}, some);
    assert_memory_equal(all, some, 2 * WINDOW * sizeof *all);
    assert_memory_not_equal(all, all + WINDOW, WINDOW * sizeof *all);
    apr_session_close(session);
}

/* What a run that is ended leaves. */
typedef struct left_off {
    int64_t n_windows, end_at;
} left_off;

static apr_status leave_off(void *user, int64_t n_windows, apr_error *err)
{
    left_off *const left = user;
    left->n_windows = n_windows;
    return n_windows == left->end_at ? apr_fail(err, APR_E_IO, "ended") : APR_OK;
}

static void a_text_that_was_ended_goes_on_as_if_it_had_not_been(void **state)
{
    (void)state;
    static int32_t all[N_IDS], parts[N_IDS];
    apr_session *const session = open_session(&bundled.model, WINDOW), *const four = open_writer(&bundled.model, N_WINDOWS, 4);
    left_off left = {.end_at = 8};
    apr_own_text how = {.n_windows = N_WINDOWS, .window = WINDOW, .seed = 3, .on_windows = leave_off, .user = &left};
    apr_error err = {0};

    assert_int_equal(apr_own_text_write(&how, four, parts, &err), APR_E_IO); /* after the second four */
    assert_int_equal(left.n_windows, 8);
    memset(parts + 8 * WINDOW, 0, sizeof parts - 8 * WINDOW * sizeof *parts);
    how.n_before = 8;
    left.end_at = 9;
    assert_int_equal(apr_own_text_write(&how, session, parts, &err), APR_E_IO); /* one by one */
    assert_int_equal(left.n_windows, 9);
    how.n_before = 9;
    left.end_at = 0;
    write_ids(four, how, parts);
    assert_int_equal(left.n_windows, N_WINDOWS);
    write_ids(session, (apr_own_text){.n_windows = N_WINDOWS, .window = WINDOW, .seed = 3}, all);
    assert_memory_equal(all, parts, sizeof all);
    apr_session_close(session);
    apr_session_close(four);
}

/* --- many windows at once --- */

static sequence_check place_of(bool is_device)
{
    return (sequence_check){.kv_dtype = APR_F32, .counts_memory = true, .cuda = is_device ? fake_device() : NULL};
}

static void the_bundled_model_writes_one_text_however_many_windows_at_once(void **state)
{
    (void)state;
    for (int on_device = 0; on_device < 2; on_device++) {
        sequence_check c = place_of(on_device);
        c.model = &bundled.model;
        c.what = "tiny-qwen2";
        /* fewer under a sanitizer: there 32 short ones are written below */
        check_own_text(&c, CHECK_PIECE + 3, on_device ? (APR_HAS_SANITIZER ? 4 : 9) : (APR_HAS_SANITIZER ? 9 : 32));
    }
}

/* Over a page's end, alone and three at once; few tokens, also 8 and 32 at once. */
static void over_a_page(const sequence_check *c) { check_own_text(c, CHECK_PIECE + 3, 3); }
static void short_ones(const sequence_check *c) { check_own_text(c, 20, 32); }

/* Keys and values, windows, recurrent states, mixtures: every family, a layer of each kind; on a device every third. */
static void every_family_writes_one_text_however_many_windows_at_once(void **state)
{
    int n_families[2] = {0};
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++) {
        if (apr_family_ability(apr_families[i], &apr_ref_backend) != APR_ABLE_RUN) continue;
        for (int on_device = 0; on_device < 2; on_device++) {
            sequence_check c = place_of(on_device);
            c.of_family = over_a_page;
            if (APR_HAS_SANITIZER ? i % 8 == 4 * (size_t)on_device : i % (2 * (size_t)on_device + 1) == 0)
                n_families[on_device] += check_family(&c, apr_families[i]->types[0].name, APR_F32, NULL) > 0;
        }
    }
    assert_true(n_families[0] >= (APR_HAS_SANITIZER ? 5 : 30) && n_families[1] >= (APR_HAS_SANITIZER ? 5 : 10));
}

static void kinds_of_states_and_mixtures_write_one_text_32_windows_at_once(void **state)
{
    static const char *const architectures[] = {"llama", "gemma3_text", "qwen3_moe", "qwen3_5", "deepseek_v2"};
    (void)state;
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        for (int on_device = 0; on_device < 2; on_device++) {
            sequence_check c = place_of(on_device);
            if (APR_HAS_SANITIZER && i % 2 != (size_t)on_device) continue; /* three on the host, two on a device */
            c.of_family = short_ones;
            assert_true(check_family(&c, architectures[i], on_device || i % 2 == 0 ? APR_F32 : APR_Q8_0, NULL) > 0);
        }
}

static apr_own_text_plan plan_of(const apr_session_options *options, int64_t n_windows, int64_t window)
{
    const apr_own_text how = {.n_windows = n_windows, .window = window};
    apr_own_text_plan plan;
    apr_error err = {0};
    if (apr_own_text_forecast(&plan, &how, &bundled.model, options, 0, &err) != APR_OK) fail_msg("%s", err.text);
    return plan;
}

static int64_t opened_with(const apr_session_options *options, int64_t n_windows, int64_t window)
{
    const apr_own_text how = {.n_windows = n_windows, .window = window};
    apr_session *session;
    apr_error err = {0};
    if (apr_own_text_open(&session, &how, &bundled.model, options, 0, &err) != APR_OK) fail_msg("%s", err.text);
    const int64_t n = apr_session_n_sequences(session);
    const apr_own_text_plan plan = plan_of(options, n_windows, window);
    if (options->cuda == NULL && plan.n_at_once == n) { /* what was planned is what is allocated */
        const apr_session_memory memory = apr_session_check_memory(session);
        assert_int_equal(plan.host_bytes, memory.planned - memory.tables);
    }
    apr_session_close(session);
    return n;
}

static void as_many_windows_at_once_as_fit(void **state)
{
    apr_session_options options = apr_session_defaults;
    (void)state;
    assert_int_equal(plan_of(&options, 100, WINDOW).n_at_once, 8); /* 13 times */
    assert_int_equal(plan_of(&options, 10, WINDOW).n_at_once, 5);  /* twice, not eight and two */
    assert_int_equal(plan_of(&options, 3, WINDOW).n_at_once, 3);
    assert_int_equal(opened_with(&options, 8, WINDOW), 8);
    const apr_own_text_plan eight = plan_of(&options, 8, WINDOW);
    uint64_t weights = 0;
    for (size_t i = 0; i < bundled.model.n_tensors; i++) weights += bundled.model.tensors[i].n_bytes;
    options.budget_bytes = weights + eight.host_bytes - 1; /* weights are mapped, and rounded up */
    const apr_own_text_plan fewer = plan_of(&options, 8, WINDOW);
    assert_true(fewer.fits && fewer.n_at_once < 8 && fewer.host_bytes < eight.host_bytes);
    assert_int_equal(opened_with(&options, 8, WINDOW), fewer.n_at_once);
    options.budget_bytes = 1; /* one is never refused */
    assert_int_equal(plan_of(&options, 8, WINDOW).n_at_once, 1);
    assert_int_equal(opened_with(&options, 8, WINDOW), 1);
}

/* Less and less of it is free; what a driver says before a context is there, and after. */
static void as_many_windows_at_once_as_fit_on_a_device(void **state)
{
    const uint64_t mib = 1 << 20;
    apr_session_options options = apr_session_defaults;
    apr_cuda_facts facts;
    int64_t n_before = 32;
    int n_seen = 0;
    (void)state;
    options.cuda = fake_device();
    assert_int_equal(options.cuda->facts(0, &facts, NULL), APR_OK);
    options.headroom_bytes = facts.total_bytes - 1024 * mib;
    assert_int_equal(plan_of(&options, 64, LONG).n_at_once, 32);
    assert_int_equal(opened_with(&options, 64, LONG), 32);
    assert_true(plan_of(&options, 64, LONG).device_bytes > fake_device_bytes() && fake_device_bytes() > 0); /* and a driver's share */
    for (;; options.headroom_bytes += mib) {
        const apr_own_text_plan plan = plan_of(&options, 64, LONG);
        if (!plan.fits) break;
        assert_true(plan.n_at_once <= n_before);
        if (plan.n_at_once < n_before) assert_int_equal(opened_with(&options, 64, LONG), plan.n_at_once > 1 ? plan.n_at_once : 2);
        n_seen += plan.n_at_once < n_before;
        n_before = plan.n_at_once;
    }
    assert_true(n_seen > 2);
    options.headroom_bytes = 0;
    const uint64_t planned = plan_of(&options, 64, LONG).device_bytes;
    fake_device_has_memory(planned - mib); /* the rest was taken since */
    const int64_t fewer = opened_with(&options, 64, LONG);
    fake_device_has_memory(facts.total_bytes);
    assert_true(fewer > 2 && fewer < 32);
}

/* Ids out of a hat surprise the model by the logarithm of its vocabulary and more; its own ones by what it is uncertain of. */
static void what_it_writes_is_what_it_expects(void **state)
{
    (void)state;
    static int32_t own[N_IDS], hat[N_IDS];
    apr_session *const session = open_session(&bundled.model, WINDOW);
    const int64_t vocab = apr_session_program(session)->vocab_size;
    uint32_t x = 1;

    write_ids(session, (apr_own_text){.n_windows = N_WINDOWS, .window = WINDOW}, own);
    for (int i = 0; i < N_IDS; i++) hat[i] = (int32_t)((x = x * 1664525u + 1013904223u) >> 8) % (int32_t)vocab;
    const double of_own = surprise(session, own), of_hat = surprise(session, hat);
    assert_true(of_own > 0.5 && of_own < 0.6 * log((double)vocab));
    assert_true(of_hat > log((double)vocab));
    apr_session_close(session);
}

static void windows_begin_with_tokens_that_have_a_text(void **state)
{
    (void)state;
    static int32_t ids[N_IDS];
    apr_session *const session = open_session(&bundled.model, WINDOW);

    write_ids(session, (apr_own_text){.n_windows = N_IDS, .window = 1, .n_tokens_known = 5}, ids);
    int n_seen[5] = {0};
    for (int i = 0; i < N_IDS; i++) {
        assert_in_range(ids[i], 0, 4);
        n_seen[ids[i]]++;
    }
    for (int i = 0; i < 5; i++) assert_true(n_seen[i] > N_IDS / 10);
    apr_session_close(session);
}

/* A model without numbers for logits has nothing to say. */
/* The begin token is also evaluated: what follows it is another text than without it. */
static void windows_begin_with_the_begin_token_where_it_is_asked_for(void **state)
{
    (void)state;
    apr_session *const session = open_session(&bundled.model, 64);
    static int32_t plain[N_IDS], begun[N_IDS];
    apr_own_text how = {.n_windows = N_WINDOWS, .window = WINDOW, .seed = 1};

    write_ids(session, how, plain);
    how.has_begin = true;
    how.begin = 7;
    write_ids(session, how, begun);
    for (int64_t w = 0; w < N_WINDOWS; w++) assert_int_equal(begun[w * WINDOW], 7);
    assert_int_equal(begun[1], plain[0]); /* the first one drawn */
    assert_memory_not_equal(begun + 2, plain + 1, (WINDOW - 2) * sizeof *plain);
    apr_session_close(session);
}

static void nan_logits_are_named(void **state)
{
    (void)state;
    static int32_t ids[N_IDS];
    apr_model broken = bundled.model;
    apr_error err = {0};

    broken.tensors = malloc(broken.n_tensors * sizeof *broken.tensors);
    memcpy(broken.tensors, bundled.model.tensors, broken.n_tensors * sizeof *broken.tensors);
    apr_tensor *const norm = &broken.tensors[apr_model_find(&bundled.model, "model.norm.weight") - bundled.model.tensors];
    uint8_t *const nan = malloc((size_t)norm->n_bytes);
    memset(nan, 0xff, (size_t)norm->n_bytes);
    norm->data = nan;
    apr_session *const session = open_session(&broken, WINDOW);
    const apr_own_text how = {.n_windows = 1, .window = WINDOW};
    assert_int_equal(apr_own_text_write(&how, session, ids, &err), APR_E_NO);
    assert_non_null(strstr(err.text, "after token 0 "));
    apr_session_close(session);
    free(nan);
    free(broken.tensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_gives_one_text_and_another_seed_another),
        cmocka_unit_test(a_text_that_was_ended_goes_on_as_if_it_had_not_been),
        cmocka_unit_test(the_bundled_model_writes_one_text_however_many_windows_at_once),
        cmocka_unit_test(every_family_writes_one_text_however_many_windows_at_once),
        cmocka_unit_test(kinds_of_states_and_mixtures_write_one_text_32_windows_at_once),
        cmocka_unit_test(as_many_windows_at_once_as_fit),
        cmocka_unit_test(as_many_windows_at_once_as_fit_on_a_device),
        cmocka_unit_test(a_shorter_text_is_the_beginning_of_a_longer_one),
        cmocka_unit_test(what_it_writes_is_what_it_expects),
        cmocka_unit_test(windows_begin_with_the_begin_token_where_it_is_asked_for),
        cmocka_unit_test(windows_begin_with_tokens_that_have_a_text),
        cmocka_unit_test(nan_logits_are_named),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
