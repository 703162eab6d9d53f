/* runtime/check/compare.h: figures that were worked out by hand, and models that are or are not the same. */
#include "runtime/check/compare.h"

#include "convert/naming.h"
#include "tests/support/fake_device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void near(double found, double wanted, double tolerance)
{
    if (!(fabs(found - wanted) <= tolerance)) fail_msg("%.17g is not %.17g", found, wanted);
}

/* --- rows --- */

static void the_divergence_of_two_rows_is_that_computed_by_hand(void **state)
{
    (void)state;
    /* p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4): 1/2 ln 2 - 1/4 ln 2 */
    const float p[3] = {logf(0.5f), logf(0.25f), logf(0.25f)}, q[3] = {logf(0.25f), logf(0.5f), logf(0.25f)};
    const apr_row_difference d = apr_compare_logits(p, q, 3, 1);
    near(d.kl, 0.25 * log(2.0), 1e-7);
    near(d.nll_reference, log(4.0), 1e-7);
    near(d.nll_other, log(2.0), 1e-7);
    assert_false(d.same_top);

    /* p = (0.9, 0.1), q = (0.6, 0.4): 0.9 ln 1.5 + 0.1 ln 0.25 */
    const float a[2] = {logf(9.0f), 0.0f}, b[2] = {logf(1.5f), 0.0f};
    const apr_row_difference e = apr_compare_logits(a, b, 2, -1);
    near(e.kl, 0.9 * log(1.5) + 0.1 * log(0.25), 1e-7);
    assert_true(e.same_top);
    assert_true(e.nll_reference == 0.0 && e.nll_other == 0.0);
}

static void equal_distributions_do_not_diverge(void **state)
{
    (void)state;
    const float row[4] = {3.5f, -2.25f, 100.0f, 0.125f}, shifted[4] = {7.5f, 1.75f, 104.0f, 4.125f};
    assert_true(apr_compare_logits(row, row, 4, 0).kl == 0.0);
    near(apr_compare_logits(row, shifted, 4, 0).kl, 0.0, 1e-12);
    assert_true(apr_compare_logits(row, shifted, 4, 0).same_top);
}

static void distant_logits_neither_overflow_nor_vanish(void **state)
{
    (void)state;
    /* p is all on the first, q all but all on the second: ln(1 + e^2000) */
    const float p[2] = {1000.0f, -1000.0f}, q[2] = {-1000.0f, 1000.0f};
    near(apr_compare_logits(p, q, 2, 0).kl, 2000.0, 1e-9);
    near(apr_compare_logits(p, q, 2, 0).nll_other, 2000.0, 1e-9);
    /* a token that is impossible in both counts nothing */
    const float never[2] = {0.0f, -INFINITY};
    assert_true(apr_compare_logits(never, never, 2, 0).kl == 0.0);
}

static void what_is_not_finite_is_never_the_same(void **state)
{
    (void)state;
    const float good[3] = {1.0f, 2.0f, 3.0f}, bad[3] = {1.0f, NAN, 3.0f}, all[3] = {NAN, NAN, NAN}, huge[3] = {1.0f, INFINITY, 3.0f};
    const float *const rows[] = {bad, all, huge};
    for (size_t i = 0; i < 3; i++) {
        const apr_row_difference d = apr_compare_logits(good, rows[i], 3, 0);
        assert_false(isfinite(d.kl));
        assert_false(d.same_top && isfinite(d.kl));
    }
    assert_false(apr_compare_logits(all, all, 3, 0).same_top);
}

/* --- all rows --- */

static void means_medians_and_perplexities_are_those_of_the_rows(void **state)
{
    (void)state;
    /* two windows of 4 and a short one of 2; the last of each window predicts nothing */
    const apr_row_difference rows[10] = {
        {0.1, log(2), log(4), true}, {0.2, log(2), log(4), true}, {0.3, log(2), log(4), false}, {0.4, 9, 9, true},
        {0.0, log(2), log(4), true}, {0.0, log(2), log(4), true}, {0.8, log(2), log(4), false}, {0.6, 9, 9, true},
        {0.1, log(2), log(4), true}, {0.5, 9, 9, true},
    };
    apr_divergence d;
    assert_int_equal(apr_divergence_of(&d, rows, 10, 4, NULL), APR_OK);
    near(d.mean, 0.3, 1e-12);
    near(d.median, 0.25, 1e-12); /* between 0.2 and 0.3 */
    near(d.p99, 0.8, 1e-12);
    near(d.largest, 0.8, 1e-12);
    assert_int_equal(d.largest_at, 6);
    near(d.same_top, 0.8, 1e-12);
    near(d.second_half, (0.3 + 0.4 + 0.8 + 0.6) / 4, 1e-12); /* the short window has no second half: 2 of 4 */
    near(d.second_half_top, 0.5, 1e-12);
    assert_int_equal(d.n_scored, 7);
    near(d.perplexity_reference, 2.0, 1e-12);
    near(d.perplexity_other, 4.0, 1e-12);
    near(d.kl[7], 0.6, 1e-7);
    assert_int_equal(d.n_windows, 3);
    near(d.windows[1].kl, 1.4, 1e-12);
    near(d.windows[1].nll_other, 3 * log(4), 1e-12);
    assert_int_equal(d.windows[1].n_same_top, 3);
    assert_int_equal(d.windows[2].n_rows, 2);
    assert_int_equal(d.windows[2].n_scored, 1);
    apr_divergence_close(&d);
}

static void one_nan_row_spoils_the_mean_and_is_named(void **state)
{
    (void)state;
    const apr_row_difference rows[4] = {{.kl = 0.5}, {.kl = NAN}, {.kl = 3.0}, {.kl = NAN}};
    apr_divergence d;
    assert_int_equal(apr_divergence_of(&d, rows, 4, 4, NULL), APR_OK);
    assert_true(isnan(d.mean) && isnan(d.largest));
    assert_int_equal(d.largest_at, 1);
    near(d.perplexity_reference, 1.0, 1e-12);
    apr_divergence_close(&d);
    assert_int_equal(apr_divergence_of(&d, rows, 0, 4, NULL), APR_E_USAGE);
    apr_divergence_close(&d);
}

static void few_rows_of_long_logits_are_held_and_many_of_short_ones(void **state)
{
    (void)state;
    assert_int_equal(apr_compare_bytes(256000, 512, 0), 65 * 256000 * 4); /* 64 MiB of them */
    assert_int_equal(apr_compare_bytes(1000000, 512, 0), 32 * 1000000 * 4);
    assert_int_equal(apr_compare_bytes(2048, 4096, 0), 512 * 2048 * 4);
    assert_int_equal(apr_compare_bytes(2048, 7, 0), 7 * 2048 * 4);
    assert_int_equal(apr_compare_bytes(256000, 512, 512), 512ull * 256000 * 4); /* as asked for */
    assert_int_equal(apr_compare_bytes(2048, 512, 1), 2048 * 4);
    assert_int_equal(apr_compare_bytes(2048, 7, 512), 7 * 2048 * 4);
}

static void a_bound_is_three_times_the_control(void **state)
{
    (void)state;
    const apr_divergence control = {.mean = 0.1};
    near(apr_divergence_bound(&control), 0.3, 1e-6);
    near(apr_divergence_bound(NULL), 1e-7, 0.0);
}

/* --- models --- */

static const char tiny[] = "tests/data/tiny-qwen2";

static apr_session *opened(const apr_model *model, const apr_backend *backend)
{
    apr_session_options options = apr_session_defaults;
    apr_session *session = NULL;
    apr_error err = {0};

    options.n_ctx = 64;
    options.backend = backend;
    if (apr_session_open(&session, model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    return session;
}

static void the_host_is_near_the_reference_in_chunks_and_token_by_token(void **state)
{
    (void)state;
    static const int64_t pieces[] = {0, 1, 7, 64};
    apr_model source, model;
    int32_t ids[128];
    apr_divergence d[4];

    for (int i = 0; i < 128; i++) ids[i] = (i * 37 + 11) % 2000;
    assert_int_equal(apr_model_open(&source, "tests/data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf", NULL), APR_OK);
    assert_int_equal(apr_canonical(&model, &source, NULL), APR_OK);
    apr_session *const reference = opened(&model, &apr_ref_backend), *const other = opened(&model, NULL);
    for (int i = 0; i < 4; i++) {
        const apr_compared_text text = {.ids = ids, .n_ids = 128, .window = 64, .piece = pieces[i]};
        assert_int_equal(apr_compare_on_text(reference, other, &text, NULL, NULL, &d[i], NULL), APR_OK);
        assert_int_equal(d[i].n_rows, 128);
        assert_true(d[i].largest > 0.0 && d[i].mean <= 3.1e-6 && d[i].same_top >= 0.998);
    }
    assert_true(d[0].mean == d[3].mean); /* windows of 64 fit either way */
    for (int i = 0; i < 4; i++) apr_divergence_close(&d[i]);
    apr_session_close(other);
    apr_session_close(reference);
    apr_model_close(&model);
    apr_model_close(&source);
}

static int64_t n_rows_on_device;

static apr_status count_rows(apr_cuda_device *device, const float *reference, const float *other, int64_t n, int64_t n_rows,
                             const int32_t *next, apr_cuda_logits_difference *found, apr_error *err)
{
    n_rows_on_device += n_rows;
    return fake_device()->compare_logits(device, reference, other, n, n_rows, next, found, err);
}

/* A device with so much memory for an allocation, and not more. */
static uint64_t most_alloc;

static apr_status alloc_some(apr_cuda_device *device, uint64_t n_bytes, const char *what, void **p, apr_error *err)
{
    if (strcmp(what, "logits to compare") == 0 && n_bytes > most_alloc) return apr_fail(err, APR_E_MEMORY, "full");
    return fake_device()->alloc(device, n_bytes, what, p, err);
}

static apr_session *opened_on(const apr_model *model, const apr_cuda_api *cuda)
{
    apr_session_options options = apr_session_defaults;
    apr_session *session = NULL;
    apr_error err = {0};
    options.n_ctx = 64;
    options.n_logits = 5;
    options.cuda = cuda;
    if (apr_session_open(&session, model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    return session;
}

static void same_divergence(const apr_divergence *a, const apr_divergence *b)
{
    assert_int_equal(a->n_rows, b->n_rows);
    assert_memory_equal(a->kl, b->kl, (size_t)a->n_rows * sizeof *a->kl);
    assert_true(a->mean == b->mean && a->median == b->median && a->same_top == b->same_top && a->largest_at == b->largest_at);
    assert_true(a->perplexity_reference == b->perplexity_reference && a->perplexity_other == b->perplexity_other);
}

/* Two models on a device each, and on the same one; where the other has left its device; and without memory for the rows. */
static void rows_on_a_device_are_compared_there(void **state)
{
    (void)state;
    apr_model source, model, truth;
    apr_cuda_api cuda = *fake_device();
    int32_t ids[100];
    apr_divergence d[4];

    cuda.compare_logits = count_rows;
    cuda.alloc = alloc_some;
    for (int i = 0; i < 100; i++) ids[i] = (i * 37 + 11) % 2000;
    const apr_compared_text text = {.ids = ids, .n_ids = 100, .window = 64};
    assert_int_equal(apr_model_open(&truth, tiny, NULL), APR_OK);
    assert_int_equal(apr_model_open(&source, "tests/data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf", NULL), APR_OK);
    assert_int_equal(apr_canonical(&model, &source, NULL), APR_OK);
    for (int way = 0; way < 4; way++) { /* the host; devices; devices without memory for rows; a device and the host */
        apr_session *const reference = way == 0 ? opened(&truth, &apr_ref_backend) : opened_on(&truth, &cuda);
        apr_session *const other = way == 0 || way == 3 ? opened(&model, &apr_ref_backend) : opened_on(&model, &cuda);
        n_rows_on_device = 0;
        most_alloc = way == 2 ? 1000 : UINT64_MAX;
        assert_int_equal(apr_compare_on_text(reference, other, &text, NULL, NULL, &d[way], NULL), APR_OK);
        assert_int_equal(n_rows_on_device, way == 1 ? 100 : 0);
        apr_session_close(reference);
        apr_session_close(other);
    }
    assert_true(d[0].mean > 1e-4);
    same_divergence(&d[1], &d[2]);
    for (int way = 1; way < 4; way++) assert_true(fabs(d[way].mean - d[0].mean) < 1e-3 * d[0].mean); /* Q4_K is FP16 on this device */
    for (int way = 0; way < 4; way++) apr_divergence_close(&d[way]);
    apr_model_close(&model);
    apr_model_close(&source);
    apr_model_close(&truth);
}

/* The other's first token of each window is its own: what it predicts is what it predicts of those ids when it is the reference. */
static void each_model_may_read_windows_that_begin_with_its_own_token(void **state)
{
    (void)state;
    enum { N = 60, WINDOW = 20 };
    int32_t ids[N], own[N];
    apr_divergence same, apart, alone;
    apr_model model;

    for (int i = 0; i < N; i++) {
        ids[i] = i % WINDOW == 0 ? 2045 : (i * 37 + 11) % 2000;
        own[i] = i % WINDOW == 0 ? 2047 : ids[i];
    }
    assert_int_equal(apr_model_open(&model, tiny, NULL), APR_OK);
    apr_session *const reference = opened(&model, NULL), *const other = opened(&model, NULL);
    const apr_compared_text texts[] = {{.ids = ids, .n_ids = N, .window = WINDOW, .piece = 7},
                                       {.ids = ids, .ids_other = own, .n_ids = N, .window = WINDOW, .piece = 7},
                                       {.ids = own, .n_ids = N, .window = WINDOW, .piece = 7}};
    assert_int_equal(apr_compare_on_text(reference, other, &texts[0], NULL, NULL, &same, NULL), APR_OK);
    assert_int_equal(apr_compare_on_text(reference, other, &texts[1], NULL, NULL, &apart, NULL), APR_OK);
    assert_int_equal(apr_compare_on_text(reference, other, &texts[2], NULL, NULL, &alone, NULL), APR_OK);
    assert_true(same.largest == 0.0 && alone.largest == 0.0 && apart.mean > 1e-4);
    assert_true(apart.perplexity_reference == same.perplexity_reference && apart.perplexity_other == alone.perplexity_reference);
    assert_true(same.perplexity_reference != alone.perplexity_reference);
    apr_divergence_close(&same);
    apr_divergence_close(&apart);
    apr_divergence_close(&alone);
    apr_session_close(other);
    apr_session_close(reference);
    apr_model_close(&model);
}

static void a_model_is_the_same_as_itself_and_not_as_one_with_a_matrix_lost(void **state)
{
    (void)state;
    apr_model a, b;
    apr_session *reference, *other;
    apr_divergence d;
    int32_t ids[100];
    apr_session_options options = apr_session_defaults;

    options.n_ctx = 64;
    for (int i = 0; i < 100; i++) ids[i] = (i * 37 + 11) % 2000;
    assert_int_equal(apr_model_open(&a, tiny, NULL), APR_OK);
    assert_int_equal(apr_model_open(&b, tiny, NULL), APR_OK);
    assert_int_equal(apr_session_open(&reference, &a, &options, NULL), APR_OK);
    assert_int_equal(apr_session_open(&other, &b, &options, NULL), APR_OK);
    assert_int_equal(apr_compare_models(reference, other, ids, 100, 40, NULL, NULL, &d, NULL), APR_OK);
    assert_int_equal(d.n_rows, 100);
    assert_int_equal(d.n_scored, 39 + 39 + 19);
    assert_true(d.largest == 0.0 && d.same_top == 1.0 && d.perplexity_reference == d.perplexity_other && d.perplexity_reference > 1.0);
    apr_divergence_close(&d);
    apr_session_close(other);

    apr_tensor *const lost = (apr_tensor *)(uintptr_t)apr_model_find(&b, "model.layers.1.mlp.down_proj.weight");
    uint8_t *const zeros = calloc(1, lost->n_bytes);
    lost->data = zeros;
    assert_int_equal(apr_session_open(&other, &b, &options, NULL), APR_OK);
    assert_int_equal(apr_compare_models(reference, other, ids, 100, 40, NULL, NULL, &d, NULL), APR_OK);
    assert_true(d.mean > 0.4);
    apr_divergence_close(&d);
    assert_int_equal(apr_compare_models(reference, other, ids, 100, 65, NULL, NULL, &d, NULL), APR_E_USAGE);
    assert_int_equal(apr_compare_models(reference, other, ids, 0, 40, NULL, NULL, &d, NULL), APR_E_USAGE);
    apr_session_close(reference);
    apr_session_close(other);
    apr_model_close(&a);
    apr_model_close(&b);
    free(zeros);
}

/* Windows of 40 and a last one of 20, in pieces. */
static void two_models_at_once_are_each_compared_as_alone(void **state)
{
    (void)state;
    apr_model source, model, truth;
    int32_t ids[100];
    apr_divergence alone[2], both[2];

    for (int i = 0; i < 100; i++) ids[i] = (i * 37 + 11) % 2000;
    const apr_compared_text text = {.ids = ids, .n_ids = 100, .window = 40, .piece = 17};
    assert_int_equal(apr_model_open(&truth, tiny, NULL), APR_OK);
    assert_int_equal(apr_model_open(&source, "tests/data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf", NULL), APR_OK);
    assert_int_equal(apr_canonical(&model, &source, NULL), APR_OK);
    apr_session *const reference = opened(&truth, NULL), *const others[2] = {opened(&model, NULL), opened(&truth, &apr_ref_backend)};
    assert_true(apr_compare_can_share(reference, others[0]) && apr_compare_can_share(reference, others[1]));
    assert_int_equal(apr_compare_two(reference, others, &text, NULL, NULL, both, NULL), APR_OK);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(apr_compare_on_text(reference, others[k], &text, NULL, NULL, &alone[k], NULL), APR_OK);
        same_divergence(&alone[k], &both[k]);
    }
    assert_true(both[0].mean > 1e-4 && both[1].mean < 1e-6);
    for (int k = 0; k < 2; k++) {
        apr_divergence_close(&alone[k]);
        apr_divergence_close(&both[k]);
        apr_session_close(others[k]);
    }
    apr_session_close(reference);
    apr_session *const there = opened_on(&truth, fake_device());
    assert_false(apr_compare_can_share(there, there));
    apr_session_close(there);
    apr_model_close(&model);
    apr_model_close(&source);
    apr_model_close(&truth);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_divergence_of_two_rows_is_that_computed_by_hand),
        cmocka_unit_test(equal_distributions_do_not_diverge),
        cmocka_unit_test(distant_logits_neither_overflow_nor_vanish),
        cmocka_unit_test(what_is_not_finite_is_never_the_same),
        cmocka_unit_test(means_medians_and_perplexities_are_those_of_the_rows),
        cmocka_unit_test(one_nan_row_spoils_the_mean_and_is_named),
        cmocka_unit_test(few_rows_of_long_logits_are_held_and_many_of_short_ones),
        cmocka_unit_test(a_bound_is_three_times_the_control),
        cmocka_unit_test(the_host_is_near_the_reference_in_chunks_and_token_by_token),
        cmocka_unit_test(rows_on_a_device_are_compared_there),
        cmocka_unit_test(each_model_may_read_windows_that_begin_with_its_own_token),
        cmocka_unit_test(a_model_is_the_same_as_itself_and_not_as_one_with_a_matrix_lost),
        cmocka_unit_test(two_models_at_once_are_each_compared_as_alone),
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
