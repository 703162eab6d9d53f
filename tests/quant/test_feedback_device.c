/* test_feedback_device.c - error feedback through a device that is really the host: the host's bytes from the same sums, memory as planned,
 * and every failure its sentence. What a GPU itself computes is tests/gpu/gpu_feedback.cu's matter. */
#include "quant/feedback/feedback_device.h"

#include "kernels/rows.h"
#include "quant/feedback/grid.h"
#include "tests/support/fake_device.h"
#include "tests/support/fake_feedback.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const apr_dtype all_types[] = {APR_Q4_0,  APR_Q4_1,   APR_Q5_0,   APR_Q5_1, APR_Q8_0, APR_Q4_K, APR_Q5_K, APR_Q6_K,  APR_MXFP4,
                                      APR_NVFP4, APR_IQ4_NL, APR_IQ4_XS, APR_Q2_K, APR_Q3_K, APR_Q1_0, APR_Q2_0, APR_TQ1_0, APR_TQ2_0};
enum { N_TYPES = sizeof all_types / sizeof *all_types, N = 256, ROWS = 37, TOKENS = 300 };

static uint32_t seed;
static float noise(void)
{
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        seed = seed * 1664525u + 1013904223u;
        sum += (float)(seed >> 8) * 0x1p-24f - 0.5f;
    }
    return sum;
}

typedef struct bench {
    apr_cuda_device *device;
    apr_feedback_device *gpu;
    apr_feedback_plan plan;
    apr_device_sums sums;
    float *weights, *x;
} bench;

static const apr_feedback_options two_rounds = {.rounds = 2};

static void make_numbers(bench *b)
{
    seed = 7;
    b->weights = malloc(N * ROWS * sizeof *b->weights);
    b->x = malloc(N * TOKENS * sizeof *b->x);
    for (int i = 0; i < N * ROWS; i++) b->weights[i] = noise();
    for (int t = 0; t < TOKENS; t++) {
        float drift = 0.0f;
        for (int j = 0; j < N; j++) {
            drift = 0.8f * drift + noise();
            b->x[t * N + j] = drift * (j % 37 == 5 ? 6.0f : 1.0f);
        }
    }
}

static bench open_bench(void)
{
    bench b = {0};
    fake_feedback_is = (fake_feedback_state){0};
    make_numbers(&b);
    assert_int_equal(fake_device()->open(&b.device, 0, &(apr_cuda_options){0}, NULL), APR_OK);
    for (int i = 0; i < N_TYPES; i++) assert_int_equal(apr_feedback_plan_item(&b.plan, all_types[i], ROWS, N, NULL), APR_OK);
    b.plan.bytes[APR_FEEDBACK_SUMS] = apr_device_sums_bytes(N);
    assert_int_equal(apr_feedback_device_open(&b.gpu, fake_device(), b.device, &b.plan, NULL), APR_OK);
    return b;
}

static void close_bench(bench *b)
{
    if (b->gpu != NULL) apr_device_sums_drop(b->gpu, &b->sums);
    apr_feedback_device_close(b->gpu);
    assert_int_equal(fake_device_bytes(), 0);
    assert_int_equal(fake_feedback_is.n_open, 0);
    fake_device()->close(b->device);
    free(b->weights);
    free(b->x);
}

static void prepare(bench *b)
{
    const apr_device_sums *const all[] = {&b->sums};
    bool is_empty = true;
    assert_int_equal(apr_device_sums_add(b->gpu, &b->sums, N, b->x, false, TOKENS, NULL), APR_OK);
    assert_int_equal(apr_feedback_device_prepare(b->gpu, all, 1, &two_rounds, "a layer", &is_empty, NULL), APR_OK);
    assert_false(is_empty);
}

/* The host's, from the sums that the device has: float32, and so are they here. */
static apr_feedback host_result(const bench *b)
{
    apr_hessian h;
    apr_feedback f;
    float *const sums = malloc(N * N * sizeof *sums);
    assert_int_equal(apr_hessian_open(&h, N, NULL), APR_OK);
    assert_int_equal(fake_device()->download(b->device, sums, b->sums.at, N * N * sizeof *sums, NULL), APR_OK);
    for (int i = 0; i < N * N; i++) h.sum[i] = (double)sums[i];
    h.n_tokens = TOKENS;
    assert_int_equal(apr_feedback_prepare(&f, &h, &two_rounds, "a layer", NULL), APR_OK);
    apr_hessian_close(&h);
    free(sums);
    return f;
}

static void from_the_same_sums_come_the_hosts_bytes(void **state)
{
    bench b = open_bench();
    (void)state;
    prepare(&b);
    apr_feedback f = host_result(&b);
    for (int i = 0; i < N_TYPES; i++) {
        const apr_dtype to = all_types[i];
        const int64_t row_bytes = apr_row_bytes(to, N);
        uint8_t *const there = malloc((size_t)(ROWS * row_bytes)), *const here = malloc((size_t)(ROWS * row_bytes));
        apr_feedback_errors e, host_e;
        assert_int_equal(apr_feedback_device_encode(b.gpu, to, b.weights, ROWS, &two_rounds, "w", there, &e, NULL), APR_OK);
        for (int r = 0; r < ROWS; r++) {
            if (apr_ref_codecs[to].encode_by != NULL) apr_ref_codecs[to].encode_by(b.weights + r * N, f.diagonal, here + r * row_bytes, N);
            else apr_ref_codecs[to].encode(b.weights + r * N, here + r * row_bytes, N);
        }
        assert_int_equal(apr_feedback_encode(&f, to, b.weights, ROWS, &two_rounds, "w", here, &host_e, NULL), APR_OK);
        int n_different = 0; /* factors differ in their last bits: sums go another way */
        for (int64_t k = 0; k < ROWS * row_bytes; k++) n_different += here[k] != there[k];
        if (n_different > ROWS * row_bytes / 100) fail_msg("%s: %d bytes of %d", apr_dtypes[to].name, n_different, (int)(ROWS * row_bytes));
        assert_true(fabs(e.start / host_e.start - 1.0) < 1e-4 && fabs(e.end / host_e.end - 1.0) < 1e-3);
        assert_true(e.end < e.rounded && e.rounded < e.start);
        free(there);
        free(here);
    }
    apr_feedback_close(&f);
    close_bench(&b);
}

/* kernels/cuda/feedback tells signs from whole numbers by it. */
static void only_q1_0_has_blocks_of_128(void **state)
{
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_grid *const grid = apr_grid_of((apr_dtype)d);
        if (grid != NULL) assert_true((grid->elems == 128) == (d == APR_Q1_0));
    }
}

static void rows_that_do_not_fit_at_once_become_the_same(void **state)
{
    bench b = open_bench();
    uint8_t whole[ROWS * 2 * N], parts[ROWS * 2 * N];
    apr_feedback_errors e;
    apr_feedback_device *large = b.gpu, *small;
    apr_feedback_plan little = {0};
    (void)state;
    assert_int_equal(apr_feedback_plan_item(&little, APR_Q4_K, 16, N, NULL), APR_OK);
    assert_true(little.bytes[APR_FEEDBACK_ROWS] < b.plan.bytes[APR_FEEDBACK_ROWS]);
    prepare(&b);
    assert_int_equal(apr_feedback_device_rows(large, APR_Q4_K, N, ROWS), ROWS);
    assert_int_equal(apr_feedback_device_encode(large, APR_Q4_K, b.weights, ROWS, &two_rounds, "w", whole, &e, NULL), APR_OK);
    assert_int_equal(apr_feedback_device_open(&small, fake_device(), b.device, &little, NULL), APR_OK);
    assert_int_equal(apr_feedback_device_rows(small, APR_Q4_K, N, ROWS), 16);
    bool is_empty;
    assert_int_equal(
        apr_feedback_device_prepare(small, (const apr_device_sums *const[]){&b.sums}, 1, &two_rounds, "a layer", &is_empty, NULL), APR_OK);
    assert_int_equal(apr_feedback_device_encode(small, APR_Q4_K, b.weights, ROWS, &two_rounds, "w", parts, &e, NULL), APR_OK);
    assert_memory_equal(whole, parts, (size_t)(ROWS * apr_row_bytes(APR_Q4_K, N)));
    apr_feedback_device_close(small);
    close_bench(&b);
}

static void sums_of_several_inputs_are_those_of_all_tokens(void **state)
{
    bench b = open_bench();
    apr_device_sums parts[3] = {0};
    const apr_device_sums *const all[] = {&parts[0], &parts[1], &parts[2]};
    uint8_t one[ROWS * 2 * N], several[ROWS * 2 * N];
    apr_feedback_errors a, e;
    bool is_empty = true;
    (void)state;
    prepare(&b);
    assert_int_equal(apr_feedback_device_encode(b.gpu, APR_Q8_0, b.weights, ROWS, &two_rounds, "w", one, &a, NULL), APR_OK);
    assert_int_equal(apr_device_sums_add(b.gpu, &parts[0], N, b.x, false, 100, NULL), APR_OK);
    assert_int_equal(apr_device_sums_add(b.gpu, &parts[2], N, b.x + 100 * N, false, TOKENS - 100, NULL), APR_OK);
    assert_int_equal(apr_feedback_device_prepare(b.gpu, all, 3, &two_rounds, "a layer", &is_empty, NULL), APR_OK);
    assert_int_equal(apr_feedback_device_encode(b.gpu, APR_Q8_0, b.weights, ROWS, &two_rounds, "w", several, &e, NULL), APR_OK);
    assert_true(fabs(a.end / e.end - 1.0) < 1e-3);
    apr_device_sums_drop(b.gpu, &parts[0]);
    apr_device_sums_drop(b.gpu, &parts[2]);
    close_bench(&b);
}

static void memory_is_what_the_plan_says(void **state)
{
    bench b = open_bench();
    (void)state;
    prepare(&b);
    assert_int_equal(fake_device_most_bytes(), apr_feedback_plan_bytes(&b.plan));
    close_bench(&b);
}

static void each_failed_allocation_is_reported_and_leaves_nothing(void **state)
{
    (void)state;
    for (int nth = 1; nth <= 4; nth++) {
        bench b = open_bench();
        apr_feedback_device *gpu = NULL;
        apr_device_sums sums = {0};
        apr_error err = {0};
        const uint64_t before = fake_device_bytes();
        fake_device_fail_allocation(nth);
        apr_status status = apr_feedback_device_open(&gpu, fake_device(), b.device, &b.plan, &err);
        if (nth < 4) assert_null(gpu);
        else assert_int_equal(status, APR_OK); /* the fourth is of the first sums */
        if (nth == 4) status = apr_device_sums_add(gpu, &sums, N, b.x, false, TOKENS, &err);
        assert_int_equal(status, APR_E_DEVICE);
        assert_non_null(strstr(err.text, apr_feedback_line_names[nth % APR_FEEDBACK_LINES]));
        apr_feedback_device_close(gpu);
        assert_int_equal(fake_device_bytes(), before);
        fake_device_fail_allocation(0);
        close_bench(&b);
    }
}

static void every_step_that_fails_ends_in_its_sentence(void **state)
{
    uint8_t bytes[ROWS * 2 * N];
    apr_status status = APR_E_DEVICE;
    (void)state;
    for (int at = 2; status != APR_OK; at++) { /* the first is the opening */
        bench b = open_bench();
        const apr_device_sums *const all[] = {&b.sums};
        apr_feedback_errors e;
        apr_error err = {0};
        bool is_empty;
        fake_feedback_is.fail_at = at;
        status = apr_device_sums_add(b.gpu, &b.sums, N, b.x, false, TOKENS, &err);
        if (status == APR_OK) status = apr_feedback_device_prepare(b.gpu, all, 1, &two_rounds, "a layer", &is_empty, &err);
        if (status == APR_OK) status = apr_feedback_device_encode(b.gpu, APR_Q4_K, b.weights, ROWS, &two_rounds, "w", bytes, &e, &err);
        if (status != APR_OK) assert_string_equal(err.text, "a fake fault of error feedback");
        if (status == APR_OK) assert_true(at > 15);
        close_bench(&b);
    }
}

static void damping_grows_until_there_are_factors(void **state)
{
    bench b = open_bench();
    const apr_device_sums *const all[] = {&b.sums};
    apr_error err = {0};
    bool is_empty;
    (void)state;
    prepare(&b);
    fake_feedback_is.refuse = 3;
    assert_int_equal(apr_feedback_device_prepare(b.gpu, all, 1, &two_rounds, "a layer", &is_empty, NULL), APR_OK);
    fake_feedback_is.refuse = 1000;
    assert_int_equal(apr_feedback_device_prepare(b.gpu, all, 1, &two_rounds, "a layer", &is_empty, &err), APR_E_DAMAGED);
    assert_string_equal(err.text, "a layer: the inputs of the calibration text have no Cholesky factors");
    close_bench(&b);
}

static void nothing_but_zeros_is_empty_and_no_number_is_damaged(void **state)
{
    bench b = open_bench();
    const apr_device_sums *const all[] = {&b.sums};
    apr_error err = {0};
    bool is_empty = false;
    (void)state;
    assert_int_equal(apr_feedback_device_prepare(b.gpu, all, 1, &two_rounds, "a layer", &is_empty, NULL), APR_OK);
    assert_true(is_empty);
    memset(b.x, 0, N * TOKENS * sizeof *b.x);
    assert_int_equal(apr_device_sums_add(b.gpu, &b.sums, N, b.x, false, TOKENS, NULL), APR_OK);
    assert_int_equal(apr_feedback_device_prepare(b.gpu, all, 1, &two_rounds, "a layer", &is_empty, NULL), APR_OK);
    assert_true(is_empty);
    b.x[5 * N + 9] = INFINITY;
    assert_int_equal(apr_device_sums_add(b.gpu, &b.sums, N, b.x, false, TOKENS, NULL), APR_OK);
    assert_int_equal(apr_feedback_device_prepare(b.gpu, all, 1, &two_rounds, "a layer", &is_empty, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "a layer: the calibration text produces inputs that are NaN or infinite (columns 9 and 9)"));
    close_bench(&b);
}

static void partial_blocks_and_nans_are_refused(void **state)
{
    bench b = open_bench();
    apr_feedback_errors e;
    apr_error err = {0};
    uint8_t bytes[ROWS * 2 * N];
    apr_feedback_plan plan = {0};
    (void)state;
    prepare(&b);
    assert_int_equal(apr_feedback_device_encode(b.gpu, APR_F16, b.weights, ROWS, &two_rounds, "w", bytes, &e, &err), APR_E_UNSUPPORTED);
    b.weights[3 * N + 4] = NAN;
    err = (apr_error){0};
    assert_int_equal(apr_feedback_device_encode(b.gpu, APR_Q4_0, b.weights, ROWS, &two_rounds, "w", bytes, &e, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "tensor 'w': row 3, column 4"));
    err = (apr_error){0};
    assert_int_equal(apr_feedback_plan_item(&plan, APR_Q4_K, 5, 65536, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "rows of at most 65535 values, but some have 65536"));
    close_bench(&b);
}

static void a_seven_billion_shape_is_planned_in_a_few_gigabytes(void **state)
{
    apr_feedback_plan plan = {0};
    (void)state;
    assert_int_equal(apr_feedback_plan_item(&plan, APR_Q4_K, 18944, 3584, NULL), APR_OK);
    assert_int_equal(apr_feedback_plan_item(&plan, APR_Q6_K, 3584, 18944, NULL), APR_OK);
    assert_int_equal(apr_feedback_plan_item(&plan, APR_Q6_K, 152064, 3584, NULL), APR_OK);
    assert_int_equal(plan.widest, 18944);
    assert_true(apr_feedback_plan_bytes(&plan) < (uint64_t)9 << 30);
    assert_true(plan.bytes[APR_FEEDBACK_FACTORS] >= (uint64_t)18944 * 18944 * 16);
    assert_true(apr_device_sums_bytes(18944) == (uint64_t)18944 * 18944 * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_the_same_sums_come_the_hosts_bytes),
        cmocka_unit_test(only_q1_0_has_blocks_of_128),
        cmocka_unit_test(rows_that_do_not_fit_at_once_become_the_same),
        cmocka_unit_test(sums_of_several_inputs_are_those_of_all_tokens),
        cmocka_unit_test(memory_is_what_the_plan_says),
        cmocka_unit_test(each_failed_allocation_is_reported_and_leaves_nothing),
        cmocka_unit_test(every_step_that_fails_ends_in_its_sentence),
        cmocka_unit_test(damping_grows_until_there_are_factors),
        cmocka_unit_test(nothing_but_zeros_is_empty_and_no_number_is_damaged),
        cmocka_unit_test(partial_blocks_and_nans_are_refused),
        cmocka_unit_test(a_seven_billion_shape_is_planned_in_a_few_gigabytes),
    };
    return cmocka_run_group_tests_name("feedback_device", tests, NULL, NULL);
}
