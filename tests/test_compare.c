/* runtime/compare.h: figures that were worked out by hand, and models that are or are not the same. */
#include "formats/half.h"
#include "runtime/compare.h"

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

static void the_divergence_of_two_rows_is_what_a_pencil_says(void **state)
{
    (void)state;
    /* p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4): 1/2 ln 2 - 1/4 ln 2 */
    const float p[3] = {logf(0.5f), logf(0.25f), logf(0.25f)}, q[3] = {logf(0.25f), logf(0.5f), logf(0.25f)};
    const apr_row_difference d = apr_compare_logits(p, q, 3, 1);
    near(d.kl, 0.25 * log(2.0), 1e-7);
    near(d.nll_truth, log(4.0), 1e-7);
    near(d.nll_other, log(2.0), 1e-7);
    assert_false(d.same_top);

    /* p = (0.9, 0.1), q = (0.6, 0.4): 0.9 ln 1.5 + 0.1 ln 0.25 */
    const float a[2] = {logf(9.0f), 0.0f}, b[2] = {logf(1.5f), 0.0f};
    const apr_row_difference e = apr_compare_logits(a, b, 2, -1);
    near(e.kl, 0.9 * log(1.5) + 0.1 * log(0.25), 1e-7);
    assert_true(e.same_top);
    assert_true(e.nll_truth == 0.0 && e.nll_other == 0.0);
}

static void equal_distributions_do_not_diverge(void **state)
{
    (void)state;
    const float row[4] = {3.5f, -2.25f, 100.0f, 0.125f}, shifted[4] = {7.5f, 1.75f, 104.0f, 4.125f};
    assert_true(apr_compare_logits(row, row, 4, 0).kl == 0.0);
    near(apr_compare_logits(row, shifted, 4, 0).kl, 0.0, 1e-12);
    assert_true(apr_compare_logits(row, shifted, 4, 0).same_top);
}

static void logits_far_apart_neither_overflow_nor_vanish(void **state)
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
    near(d.perplexity_truth, 2.0, 1e-12);
    near(d.perplexity_other, 4.0, 1e-12);
    near(d.kl[7], 0.6, 1e-7);
    apr_divergence_close(&d);
}

static void one_row_that_is_no_number_spoils_the_mean_and_is_named(void **state)
{
    (void)state;
    const apr_row_difference rows[4] = {{.kl = 0.5}, {.kl = NAN}, {.kl = 3.0}, {.kl = NAN}};
    apr_divergence d;
    assert_int_equal(apr_divergence_of(&d, rows, 4, 4, NULL), APR_OK);
    assert_true(isnan(d.mean) && isnan(d.largest));
    assert_int_equal(d.largest_at, 1);
    near(d.perplexity_truth, 1.0, 1e-12);
    apr_divergence_close(&d);
    assert_int_equal(apr_divergence_of(&d, rows, 0, 4, NULL), APR_E_USAGE);
    apr_divergence_close(&d);
}

/* --- tensors --- */

static apr_tensor matrix(const char *name, const float *values, int64_t rows, int64_t columns)
{
    return (apr_tensor){.name = name,
                        .dtype = APR_F32,
                        .rank = 2,
                        .dims = {rows, columns},
                        .data = (const uint8_t *)values,
                        .n_bytes = (uint64_t)(rows * columns) * sizeof *values};
}

static void a_scan_finds_zeros_infinities_and_the_worst_row(void **state)
{
    (void)state;
    float truth[12] = {3, 4, 0, 0, 1, 2, 2, 0, 0, 0, 6, 8}, other[12];
    const apr_tensor was = matrix("w", truth, 3, 4);
    apr_tensor_scan scan;

    memcpy(other, truth, sizeof other);
    apr_tensor now = matrix("w", other, 3, 4);
    assert_int_equal(apr_scan_tensor(&now, &was, &scan, NULL), APR_OK);
    assert_true(scan.relative == 0.0 && scan.worst_row == 0.0 && scan.worst_row_at == -1 && !scan.all_zero && scan.n_nonfinite == 0);

    memset(other + 4, 0, 4 * sizeof *other); /* row 1 of size 3 is gone; all of it has sqrt(25 + 9 + 100) */
    assert_int_equal(apr_scan_tensor(&now, &was, &scan, NULL), APR_OK);
    near(scan.worst_row, 1.0, 1e-12);
    assert_int_equal(scan.worst_row_at, 1);
    near(scan.relative, 3.0 / sqrt(134.0), 1e-12);

    other[7] = INFINITY;
    other[2] = NAN;
    assert_int_equal(apr_scan_tensor(&now, NULL, &scan, NULL), APR_OK);
    assert_int_equal(scan.n_nonfinite, 2);
    assert_int_equal(scan.first_nonfinite, 2);

    memset(other, 0, sizeof other);
    assert_int_equal(apr_scan_tensor(&now, &was, &scan, NULL), APR_OK);
    assert_true(scan.all_zero);
    near(scan.relative, 1.0, 1e-12);

    now.dims[0] = 2;
    now.n_bytes = 32;
    apr_error err = {0};
    assert_int_equal(apr_scan_tensor(&now, &was, &scan, &err), APR_E_NO);
    assert_non_null(strstr(err.text, "[2, 4]"));
    now.dims[0] = 0;
    now.n_bytes = 0;
    assert_int_equal(apr_scan_tensor(&now, NULL, &scan, NULL), APR_OK);
    assert_false(scan.all_zero);
}

/* --- allowances --- */

static void coarser_types_are_allowed_more(void **state)
{
    (void)state;
    static const apr_dtype order[] = {APR_F32,  APR_F16,  APR_BF16, APR_Q8_0,  APR_Q6_K, APR_F8_E4M3,
                                      APR_Q5_K, APR_Q4_K, APR_Q4_0, APR_MXFP4, APR_Q2_K};
    for (size_t i = 1; i < sizeof order / sizeof *order; i++) {
        const apr_allowance finer = apr_allowance_of(order[i - 1]), coarser = apr_allowance_of(order[i]);
        assert_true(finer.kl < coarser.kl && finer.same_top > coarser.same_top && finer.op_error < coarser.op_error &&
                    finer.perplexity < coarser.perplexity);
    }
    for (int t = 0; t < APR_DTYPE_COUNT; t++) { /* a lost row or matrix is never allowed */
        const apr_allowance a = apr_allowance_of((apr_dtype)t);
        assert_true(a.op_error < 1.0 && a.row_error < 1.0 && a.kl > apr_allowance_same.kl);
    }
}

static void the_allowance_is_that_of_the_worst_type_that_was_changed(void **state)
{
    (void)state;
    const struct {
        apr_dtype was[3], is[3];
        const char *type;
    } cases[] = {
        {{APR_BF16, APR_BF16, APR_BF16}, {APR_BF16, APR_BF16, APR_BF16}, "same"},
        {{APR_BF16, APR_BF16, APR_BF16}, {APR_Q4_K, APR_Q6_K, APR_BF16}, "q4_k"},
        {{APR_Q4_K, APR_Q6_K, APR_BF16}, {APR_Q4_K, APR_Q6_K, APR_BF16}, "same"}, /* a container was changed, no number */
        {{APR_Q4_K, APR_Q6_K, APR_BF16}, {APR_Q4_K, APR_Q8_0, APR_BF16}, "q8_0"},
        {{APR_BF16, APR_BF16, APR_BF16}, {APR_Q8_0, APR_Q8_0, APR_Q4_K}, "q8_0"}, /* the third is tiny */
        {{APR_BF16, APR_BF16, APR_BF16}, {APR_BF16, APR_BF16, APR_Q4_K}, "q4_k"}, /* but all that was changed */
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        apr_tensor was[3], is[3];
        for (int i = 0; i < 3; i++) {
            static const char *const names[3] = {"a", "b", "c"};
            was[i] = is[i] = (apr_tensor){.name = names[i], .rank = 2, .dims = {i < 2 ? 1000 : 1, 256}};
            was[i].dtype = cases[c].was[i];
            is[i].dtype = cases[c].is[i];
        }
        apr_model truth = {.tensors = was, .n_tensors = 3}, other = {.tensors = is, .n_tensors = 3};
        assert_int_equal(apr_model_index_names(&truth, NULL), APR_OK);
        assert_string_equal(apr_allowance_for(&truth, &other).type, cases[c].type);
        apr_model_close(&truth);
    }
}

/* --- models --- */

static const char tiny[] = "tests/data/tiny-qwen2";

static void a_model_is_the_same_as_itself_and_not_as_one_with_a_matrix_lost(void **state)
{
    (void)state;
    apr_model a, b;
    apr_session *truth, *other;
    apr_divergence d;
    int32_t ids[100];
    apr_session_options options = apr_session_defaults;

    options.n_ctx = 64;
    for (int i = 0; i < 100; i++) ids[i] = (i * 37 + 11) % 2000;
    assert_int_equal(apr_model_open(&a, tiny, NULL), APR_OK);
    assert_int_equal(apr_model_open(&b, tiny, NULL), APR_OK);
    assert_int_equal(apr_session_open(&truth, &a, &options, NULL), APR_OK);
    assert_int_equal(apr_session_open(&other, &b, &options, NULL), APR_OK);
    assert_int_equal(apr_compare_models(truth, other, ids, 100, 40, NULL, NULL, &d, NULL), APR_OK);
    assert_int_equal(d.n_rows, 100);
    assert_int_equal(d.n_scored, 39 + 39 + 19);
    assert_true(d.largest == 0.0 && d.same_top == 1.0 && d.perplexity_truth == d.perplexity_other && d.perplexity_truth > 1.0);
    apr_divergence_close(&d);
    apr_session_close(other);

    apr_tensor *const lost = (apr_tensor *)(uintptr_t)apr_model_find(&b, "model.layers.1.mlp.down_proj.weight");
    uint8_t *const zeros = calloc(1, lost->n_bytes);
    lost->data = zeros;
    assert_int_equal(apr_session_open(&other, &b, &options, NULL), APR_OK);
    assert_int_equal(apr_compare_models(truth, other, ids, 100, 40, NULL, NULL, &d, NULL), APR_OK);
    assert_true(d.mean > apr_allowance_of(APR_Q4_K).kl);
    apr_divergence_close(&d);
    assert_int_equal(apr_compare_models(truth, other, ids, 100, 65, NULL, NULL, &d, NULL), APR_E_USAGE);
    assert_int_equal(apr_compare_models(truth, other, ids, 0, 40, NULL, NULL, &d, NULL), APR_E_USAGE);
    apr_session_close(truth);
    apr_session_close(other);
    apr_model_close(&a);
    apr_model_close(&b);
    free(zeros);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_divergence_of_two_rows_is_what_a_pencil_says),
        cmocka_unit_test(equal_distributions_do_not_diverge),
        cmocka_unit_test(logits_far_apart_neither_overflow_nor_vanish),
        cmocka_unit_test(what_is_not_finite_is_never_the_same),
        cmocka_unit_test(means_medians_and_perplexities_are_those_of_the_rows),
        cmocka_unit_test(one_row_that_is_no_number_spoils_the_mean_and_is_named),
        cmocka_unit_test(a_scan_finds_zeros_infinities_and_the_worst_row),
        cmocka_unit_test(coarser_types_are_allowed_more),
        cmocka_unit_test(the_allowance_is_that_of_the_worst_type_that_was_changed),
        cmocka_unit_test(a_model_is_the_same_as_itself_and_not_as_one_with_a_matrix_lost),
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
