/* runtime/calibrate/own_text.h on the bundled model: what it writes is its own, and always the same. */
#include "runtime/calibrate/own_text.h"

#include "tests/support/golden_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WINDOW = 32, N_WINDOWS = 12, N_IDS = WINDOW * N_WINDOWS };

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
    uint64_t state;
} left_off;

static apr_status leave_off(void *user, int64_t n_windows, uint64_t state, apr_error *err)
{
    left_off *const left = user;
    left->n_windows = n_windows;
    left->state = state;
    return n_windows == left->end_at ? apr_fail(err, APR_E_IO, "ended") : APR_OK;
}

static void a_text_that_was_ended_goes_on_as_if_it_had_not_been(void **state)
{
    (void)state;
    static int32_t all[N_IDS], parts[N_IDS];
    apr_session *const session = open_session(&bundled.model, WINDOW);
    left_off left = {.end_at = 5};
    apr_own_text how = {.n_windows = N_WINDOWS, .window = WINDOW, .seed = 3, .on_window = leave_off, .user = &left};
    apr_error err = {0};

    assert_int_equal(apr_own_text_write(&how, session, parts, &err), APR_E_IO);
    assert_int_equal(left.n_windows, 5);
    memset(parts + 5 * WINDOW, 0, sizeof parts - 5 * WINDOW * sizeof *parts);
    how.n_before = left.n_windows;
    how.state = left.state;
    write_ids(session, how, parts);
    assert_int_equal(left.n_windows, N_WINDOWS);
    write_ids(session, (apr_own_text){.n_windows = N_WINDOWS, .window = WINDOW, .seed = 3}, all);
    assert_memory_equal(all, parts, sizeof all);
    apr_session_close(session);
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
        cmocka_unit_test(a_shorter_text_is_the_beginning_of_a_longer_one),
        cmocka_unit_test(what_it_writes_is_what_it_expects),
        cmocka_unit_test(windows_begin_with_the_begin_token_where_it_is_asked_for),
        cmocka_unit_test(windows_begin_with_tokens_that_have_a_text),
        cmocka_unit_test(nan_logits_are_named),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
