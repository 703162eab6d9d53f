/* kernels/host/products: products of packed rows are what the reference's numbers give, and the same at every level of CPU. */
#include "kernels/host/products/products.h"
#include "tests/support/ops_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 5 };

/* Whole blocks, multiples of 256 or not, and for FP16 any number. */
static const int64_t widths[] = {32, 64, 224, 256, 288, 512, 1056, 33, 47, 1};
enum { N_WIDTHS = sizeof widths / sizeof *widths };

static bool is_here(apr_dtype dtype)
{
    const apr_product *const p = &apr_products()->products[dtype];
    return p->rounded != NULL || p->plain != NULL;
}

/* Calls back with a matrix for each type of weights and width, and inputs of exact size for the most tokens. */
static void each_matrix(void (*check_bounds)(const apr_tensor *weight, const float *x))
{
    for (int dtype = 0; dtype < APR_DTYPE_COUNT; dtype++)
        for (int w = 0; w < N_WIDTHS && is_here((apr_dtype)dtype); w++) {
            if (widths[w] % apr_dtypes[dtype].elems_per_block != 0) continue;
            const apr_tensor weight = ops_matrix_of((apr_dtype)dtype, ROWS, widths[w]);
            float *const x = ops_noises(APR_PRODUCT_TOKENS * widths[w]);
            check_bounds(&weight, x);
            free(x);
            free((void *)(uintptr_t)weight.data);
        }
}

/* Of one level, into sums[row][token]: `together` rows at a time. */
static void multiply_rows(const apr_products_table *table, const apr_tensor *weight, const float *x, int n_tokens, int together,
                          float sums[ROWS][APR_PRODUCT_TOKENS])
{
    float out[APR_PRODUCT_TOKENS][ROWS];
    const apr_product *const p = &table->products[weight->dtype];
    const int64_t n = apr_tensor_columns(weight), n_tiles = apr_product_tiles(n);
    apr_product_tile *const tiles = malloc((size_t)(n_tiles * n_tokens) * sizeof *tiles);

    assert_non_null(tiles);
    for (int t = 0; t < n_tokens && p->rounded != NULL; t++) table->round(x + t * n, n, p->order, tiles + t * n_tiles);
    for (int r = 0; r < ROWS; r += together) {
        /* a copy of exact size, so that a sanitizer sees the end of the rows */
        const int64_t row_bytes = apr_row_bytes(weight->dtype, n);
        const int n_rows = ROWS - r < together ? ROWS - r : together;
        uint8_t *const copy = malloc((size_t)(n_rows * row_bytes));
        assert_non_null(copy);
        memcpy(copy, apr_tensor_row(weight, r), (size_t)(n_rows * row_bytes));
        const apr_product_rows rows = {copy, row_bytes, n_rows};
        if (p->rounded != NULL) p->rounded(rows, n, tiles, n_tiles, n_tokens, &out[0][r], ROWS);
        else p->plain(rows, n, x, n, n_tokens, &out[0][r], ROWS);
        free(copy);
    }
    for (int t = 0; t < n_tokens; t++)
        for (int r = 0; r < ROWS; r++) sums[r][t] = out[t][r];
    free(tiles);
}

static void multiply(const apr_products_table *table, const apr_tensor *weight, const float *x, int n_tokens,
                     float sums[ROWS][APR_PRODUCT_TOKENS])
{
    multiply_rows(table, weight, x, n_tokens, ROWS, sums);
}

static void check_levels(const apr_tensor *weight, const float *x)
{
    float reference[ROWS][APR_PRODUCT_TOKENS], found[ROWS][APR_PRODUCT_TOKENS];

    multiply(apr_products_level_table(APR_PRODUCTS_PLAIN), weight, x, APR_PRODUCT_TOKENS, reference);
    for (int level = 1; level < APR_PRODUCTS_LEVELS; level++) {
        const apr_products_table *const table = apr_products_level_table((apr_products_level)level);
        if (table == NULL) continue;
        multiply(table, weight, x, APR_PRODUCT_TOKENS, found);
        if (memcmp(reference, found, sizeof reference) == 0) continue;
        fail_msg("%s of %lld columns: %s gives %.9g, plain %.9g", apr_dtypes[weight->dtype].name, (long long)apr_tensor_columns(weight),
                 table->name, (double)found[0][0], (double)reference[0][0]);
    }
}

static void every_level_of_cpu_gives_the_same_bits(void **state)
{
    (void)state;
    each_matrix(check_levels);
}

static void check_alone(const apr_tensor *weight, const float *x)
{
    float together[ROWS][APR_PRODUCT_TOKENS], alone[ROWS][APR_PRODUCT_TOKENS];

    for (int n = 2; n <= APR_PRODUCT_TOKENS; n++) {
        multiply(apr_products(), weight, x, n, together);
        for (int t = 0; t < n; t++) {
            multiply_rows(apr_products(), weight, x + t * apr_tensor_columns(weight), 1, 1 + t % 2, alone);
            for (int r = 0; r < ROWS; r++) assert_memory_equal(&together[r][t], &alone[r][0], sizeof(float));
        }
    }
}

static void a_token_and_a_row_among_others_get_what_they_get_alone(void **state)
{
    (void)state;
    each_matrix(check_alone);
}

/* Sums of all levels' wide products against those of one row at a time. There are fewer rows than sixteen: they are named more than once.
 */
static void check_gemm(const apr_tensor *weight, const float *x)
{
    const int64_t n = apr_tensor_columns(weight), n_groups = apr_product_gemm_groups(n);
    apr_product_gemm_rows *const wide = malloc((size_t)n_groups * sizeof *wide);
    apr_product_gemm_inputs *const inputs = calloc((size_t)n_groups, sizeof *inputs);
    const uint8_t *rows[APR_PRODUCT_GEMM_ROWS];
    float reference[ROWS][APR_PRODUCT_TOKENS];

    assert_true(wide != NULL && inputs != NULL);
    multiply(apr_products_level_table(APR_PRODUCTS_PLAIN), weight, x, APR_PRODUCT_TOKENS, reference);
    for (int r = 0; r < APR_PRODUCT_GEMM_ROWS; r++) rows[r] = apr_tensor_row(weight, r % ROWS);
    for (int level = 0; level < APR_PRODUCTS_LEVELS; level++) {
        const apr_products_table *const table = apr_products_level_table((apr_products_level)level);
        if (table == NULL) continue;
        const apr_product *const p = &table->products[weight->dtype];
        const bool has_minimums = p->widen(rows, n, wide);
        for (int n_tokens = 1; n_tokens <= APR_PRODUCT_GEMM_TOKENS; n_tokens++) {
            float found[APR_PRODUCT_GEMM_TOKENS][APR_PRODUCT_GEMM_ROWS] = {0};
            for (int t = 0; t < n_tokens; t++) table->wide_round(x + t % APR_PRODUCT_TOKENS * n, n, p->order, t, inputs);
            table->wide(wide, has_minimums, inputs, n, n_tokens, 7 + n_tokens, found[0], APR_PRODUCT_GEMM_ROWS);
            for (int t = 0; t < APR_PRODUCT_GEMM_TOKENS; t++)
                for (int r = 0; r < APR_PRODUCT_GEMM_ROWS; r++) {
                    const float expected = t < n_tokens && r < 7 + n_tokens ? reference[r % ROWS][t % APR_PRODUCT_TOKENS] : 0.0f;
                    if (memcmp(&found[t][r], &expected, sizeof expected) == 0) continue;
                    fail_msg("%s of %lld columns, %d tokens, %s: %.9g at token %d, row %d, alone %.9g", apr_dtypes[weight->dtype].name,
                             (long long)n, n_tokens, table->name, (double)found[t][r], t, r, (double)expected);
                }
        }
    }
    free(inputs);
    free(wide);
}

static void check_gemm_if_rounded(const apr_tensor *weight, const float *x)
{
    if (apr_products()->products[weight->dtype].rounded != NULL) check_gemm(weight, x);
}

static void many_tokens_and_rows_together_get_what_each_gets_alone(void **state)
{
    (void)state;
    each_matrix(check_gemm_if_rounded);
}

/* Against decoded rows and unrounded inputs. An input is off by half of 1 / 32512 of the largest of its 16 at most. */
static void check_sums(const apr_tensor *weight, const float *x)
{
    const int64_t n = apr_tensor_columns(weight);
    const bool rounds = apr_products()->products[weight->dtype].rounded != NULL;
    float sums[ROWS][APR_PRODUCT_TOKENS], *const row = malloc((size_t)n * sizeof *row);

    assert_non_null(row);
    multiply(apr_products(), weight, x, APR_PRODUCT_TOKENS, sums);
    for (int r = 0; r < ROWS; r++)
        for (int t = 0; t < APR_PRODUCT_TOKENS; t++) {
            double reference = 0.0, size = 0.0, rounding = 0.0;
            apr_decode_rows(weight, r, 1, row);
            for (int64_t i = 0; i < n; i++) {
                const double product = (double)row[i] * (double)x[t * n + i];
                double most = 0.0;
                for (int64_t k = i / 16 * 16; k < n && k < i / 16 * 16 + 16; k++) most = fmax(most, fabs((double)x[t * n + k]));
                reference += product;
                size += fabs(product);
                rounding += fabs((double)row[i]) * most * 0.5 / APR_PRODUCT_LARGEST;
            }
            /* a code's value is a difference of two products where there are minimums: those are larger than what is left */
            assert_float_equal(sums[r][t], reference, (rounds ? rounding : 0.0) + 1e-6 * size + 1e-6);
        }
    free(row);
}

static void products_are_those_of_decoded_rows(void **state)
{
    (void)state;
    each_matrix(check_sums);
}

static void inputs_are_rounded_to_15_bits_of_the_largest_of_16(void **state)
{
    (void)state;
    enum { N = 7 * 16 };
    float *const x = ops_noises(N);
    apr_product_tile tile;

    for (int i = 0; i < 16; i++) x[i] = 0.0f;     /* a group of zeros, */
    for (int i = 16; i < 32; i++) x[i] *= 1e-35f; /* one whose scale would have no inverse, */
    for (int i = 32; i < 48; i++) x[i] *= 1e30f;  /* a large one, */
    for (int order = 0; order < APR_ORDERS; order++) {
        apr_products()->round(x, N, (apr_product_order)order, &tile);
        for (int lane = 0; lane < 16; lane++) {
            const int group = apr_products()->groups[order][lane];
            float most = 0.0f;
            int32_t sum = 0;
            for (int i = 0; i < 16 && group * 16 < N; i++) most = fmaxf(most, fabsf(x[group * 16 + i]));
            for (int i = 0; i < 16; i++) {
                const float value = group * 16 < N ? x[group * 16 + i] : 0.0f;
                const int16_t whole = tile.x[lane % 4][i % 2][lane / 4 * 8 + i / 2];
                const double kept = (double)whole * (double)tile.scale[lane];
                sum += whole;
                assert_true(abs(whole) <= APR_PRODUCT_LARGEST);
                /* half a step, and what float32 makes of the scale and its inverse */
                assert_true(fabs(kept - (double)value) <= (double)most * 0.51 / APR_PRODUCT_LARGEST || most < 0x1p-100f);
                if (group == 1 || group >= 7) assert_int_equal(whole, 0);
            }
            assert_int_equal(tile.sum[lane], sum);
            assert_true(isfinite(tile.scale[lane]));
        }
    }
    free(x);
}

/* What is not finite may not be rounded away. */
static void an_infinity_or_nan_among_the_inputs_is_not_lost(void **state)
{
    (void)state;
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    const apr_tensor weight = ops_matrix_of(APR_Q4_K, ROWS, 256);
    float *const x = ops_noises(256), sums[ROWS][APR_PRODUCT_TOKENS];

    for (int i = 0; i < 3; i++)
        for (int level = 0; level < APR_PRODUCTS_LEVELS; level++) {
            if (apr_products_level_table((apr_products_level)level) == NULL) continue;
            x[77] = bad[i];
            multiply(apr_products_level_table((apr_products_level)level), &weight, x, 1, sums);
            for (int r = 0; r < ROWS; r++) assert_true(isnan(sums[r][0]));
        }
    free(x);
    free((void *)(uintptr_t)weight.data);
}

/* Of few tokens and of more. */
static void linear_layers_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    static const apr_dtype dtypes[] = {APR_Q8_0, APR_Q4_K, APR_Q6_K, APR_MXFP4, APR_BF16};
    enum { TOKENS = 43, OUT = 67, IN = 512 };

    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        const apr_tensor weight = ops_matrix_of(dtypes[d], OUT, IN);
        float *const x = ops_noises(TOKENS * IN);
        static float out[2][TOKENS * OUT];
        for (int n_tokens = 1; n_tokens <= TOKENS; n_tokens += 3) {
            for (int threads = 1; threads <= 2; threads++) {
                apr_op_args args = {.linear = {.n_tokens = n_tokens, .n_in = IN, .n_out = OUT, .x = x, .weight = &weight}};
                args.linear.out = out[threads - 1];
                args.linear.work = ops_workspace(apr_linear_slice(IN), 2 * threads - 1);
                apr_host_backend.ops[APR_OP_LINEAR](&args);
                free(args.linear.work.data);
            }
            assert_memory_equal(out[0], out[1], (size_t)(n_tokens * OUT) * sizeof(float));
        }
        free(x);
        free((void *)(uintptr_t)weight.data);
    }
}

/* A layer of each dtype until one is F64, which stands for none, with the others and alone. */
static void check_together(const apr_backend *backend, const apr_dtype dtypes[APR_LINEARS_MAX], int n_tokens)
{
    enum { IN = 512, MOST_OUT = 130 };
    static const int64_t n_out[APR_LINEARS_MAX] = {67, 1, MOST_OUT, 64};
    static float alone[APR_LINEARS_MAX][20 * MOST_OUT], together[APR_LINEARS_MAX][20 * MOST_OUT];
    const apr_linear_args *each[APR_LINEARS_MAX];
    apr_tensor weights[APR_LINEARS_MAX];
    apr_op_args args[APR_LINEARS_MAX];
    float *const x = ops_noises(n_tokens * IN), *const bias = ops_noises(MOST_OUT);
    const apr_workspace work = ops_workspace(apr_linear_slice(IN), 3);
    int n = 0;

    for (; n < APR_LINEARS_MAX && dtypes[n] != APR_F64; n++) {
        weights[n] = ops_matrix_of(dtypes[n], n_out[n], IN);
        args[n] = (apr_op_args){.linear = {.n_tokens = n_tokens, .n_in = IN, .n_out = n_out[n], .x = x, .work = work}};
        args[n].linear.weight = &weights[n];
        args[n].linear.bias = n % 2 == 1 ? bias : NULL;
        args[n].linear.out = alone[n];
        backend->ops[APR_OP_LINEAR](&args[n]);
        args[n].linear.out = together[n];
        each[n] = &args[n].linear;
    }
    backend->linears(each, n);
    for (int i = 0; i < n; i++) {
        if (memcmp(alone[i], together[i], (size_t)(n_tokens * n_out[i]) * sizeof(float)) != 0)
            fail_msg("layer %d of %d, %s, is another one with the others (%d tokens)", i, n, apr_dtypes[dtypes[i]].name, n_tokens);
        free((void *)(uintptr_t)weights[i].data);
    }
    free(work.data);
    free(bias);
    free(x);
}

static void layers_of_the_same_inputs_give_together_what_each_gives_alone(void **state)
{
    (void)state;
    static const apr_dtype mixes[][APR_LINEARS_MAX] = {{APR_Q4_K, APR_Q4_K, APR_Q6_K, APR_F64},
                                                       {APR_MXFP4, APR_Q4_0, APR_Q8_0, APR_Q4_K},
                                                       {APR_F16, APR_Q8_0, APR_F64},
                                                       {APR_F32, APR_Q4_K, APR_F64},
                                                       {APR_BF16, APR_F16, APR_BF16, APR_F64},
                                                       {APR_Q5_K, APR_F64}};
    for (size_t m = 0; m < sizeof mixes / sizeof *mixes; m++)
        for (int n_tokens = 1; n_tokens <= 20; n_tokens += n_tokens < 5 ? 1 : 5) {
            check_together(&apr_host_backend, mixes[m], n_tokens);
            check_together(&apr_host_exact_backend, mixes[m], n_tokens);
        }
}

static bool is_multiplied(apr_dtype dtype)
{
    return apr_can_decode(dtype) && dtype != APR_C64 && (apr_dtype_is_float(dtype) || apr_dtype_is_quantized(dtype));
}

/* Of one token, of as many as share decoded rows, and of more than fit the workspace; with and without bias. */
static void check_steady_tokens(const apr_backend *backend)
{
    enum { TOKENS = 101, OUT = 37 };
    static const int64_t columns[] = {32, 288, 1024};
    static const int together[] = {4, 5, 16, 17, 40, 41, 64, TOKENS};

    for (int dtype = 0; dtype < APR_DTYPE_COUNT; dtype++)
        for (int w = 0; w < 3 && is_multiplied((apr_dtype)dtype); w++) {
            const int64_t n_in = columns[w];
            if (n_in % apr_dtypes[dtype].elems_per_block != 0) continue;
            const apr_tensor weight = ops_matrix_of((apr_dtype)dtype, OUT, n_in);
            static float alone[TOKENS * OUT], found[TOKENS * OUT];
            float *const x = ops_noises(TOKENS * n_in), *const bias = w == 1 ? NULL : ops_noises(OUT);
            apr_op_args args = {.linear = {.n_in = n_in, .n_out = OUT, .weight = &weight, .bias = bias}};
            args.linear.work = ops_workspace(apr_linear_slice(n_in), 2);
            for (int t = 0; t < TOKENS; t++) {
                args.linear.n_tokens = 1;
                args.linear.x = x + t * n_in;
                args.linear.out = alone + t * OUT;
                backend->ops[APR_OP_LINEAR](&args);
            }
            for (size_t i = 0; i < sizeof together / sizeof *together; i++) {
                if (together[i] > apr_host_batch_invariant_tokens(backend, &weight)) break;
                args.linear.n_tokens = together[i];
                args.linear.x = x;
                args.linear.out = found;
                backend->ops[APR_OP_LINEAR](&args);
                if (memcmp(alone, found, (size_t)(together[i] * OUT) * sizeof *found) != 0)
                    fail_msg("%s of %lld columns: %d tokens", apr_dtypes[dtype].name, (long long)n_in, together[i]);
            }
            free(args.linear.work.data);
            free(bias);
            free(x);
            free((void *)(uintptr_t)weight.data);
        }
}

static void a_token_is_the_same_with_as_many_others_as_are_promised(void **state)
{
    (void)state;
    const apr_tensor rounded = {.dtype = APR_Q4_K}, halves = {.dtype = APR_F16};
    check_steady_tokens(&apr_host_backend);
    check_steady_tokens(&apr_host_exact_backend);
    assert_true(apr_host_batch_invariant_tokens(&apr_host_backend, &rounded) >= 16);
    assert_int_equal(apr_host_batch_invariant_tokens(&apr_host_exact_backend, &rounded), 4);
    assert_int_equal(apr_host_batch_invariant_tokens(&apr_host_backend, &halves), 4);
    assert_true(apr_host_batch_invariant_tokens(&apr_ref_backend, &halves) == INT64_MAX);
}

/* Its bound is that of float32 sums alone. */
static void the_exact_backend_rounds_nothing(void **state)
{
    (void)state;
    enum { OUT = 33, IN = 512 };
    const apr_tensor weight = ops_matrix_of(APR_Q4_K, OUT, IN);
    float *const x = ops_noises(IN), reference[OUT], exact[OUT], rounded[OUT];
    double worst = 0.0, worst_rounded = 0.0;
    apr_op_args args = {.linear = {.n_tokens = 1, .n_in = IN, .n_out = OUT, .x = x, .weight = &weight}};

    args.linear.work = ops_workspace(apr_linear_slice(IN), 2);
    args.linear.out = reference;
    apr_ref_backend.ops[APR_OP_LINEAR](&args);
    args.linear.out = exact;
    apr_host_exact_backend.ops[APR_OP_LINEAR](&args);
    args.linear.out = rounded;
    apr_host_backend.ops[APR_OP_LINEAR](&args);
    for (int r = 0; r < OUT; r++) {
        worst = fmax(worst, fabs((double)reference[r] - (double)exact[r]));
        worst_rounded = fmax(worst_rounded, fabs((double)reference[r] - (double)rounded[r]));
    }
    assert_true(apr_host_rounds_inputs(&weight));
    assert_true(worst < 2e-6 * sqrt(IN) * ops_largest(&weight));
    assert_true(worst_rounded > worst); /* or else it is not another backend */
    free(args.linear.work.data);
    free(x);
    free((void *)(uintptr_t)weight.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_of_cpu_gives_the_same_bits),
        cmocka_unit_test(a_token_and_a_row_among_others_get_what_they_get_alone),
        cmocka_unit_test(many_tokens_and_rows_together_get_what_each_gets_alone),
        cmocka_unit_test(products_are_those_of_decoded_rows),
        cmocka_unit_test(inputs_are_rounded_to_15_bits_of_the_largest_of_16),
        cmocka_unit_test(an_infinity_or_nan_among_the_inputs_is_not_lost),
        cmocka_unit_test(linear_layers_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(layers_of_the_same_inputs_give_together_what_each_gives_alone),
        cmocka_unit_test(a_token_is_the_same_with_as_many_others_as_are_promised),
        cmocka_unit_test(the_exact_backend_rounds_nothing),
    };
    return cmocka_run_group_tests_name("products", tests, NULL, NULL);
}
