/* kernels/ops.h: linear where each head has a matrix of its own, against plain sums in double, on both backends. */
#include "tests/support/ops_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct shape {
    int64_t n_tokens, n_heads, rows, first, n_in, n_out;
    bool transposed;
} shape;

/* What is meant: element [h][i][c] of the weight is number (h * rows + i) * columns + c. */
static double *expected(const shape *s, const float *x, const float *weight)
{
    const int64_t columns = s->transposed ? s->n_out : s->n_in;
    double *const out = calloc((size_t)(s->n_tokens * s->n_heads * s->n_out), sizeof *out);
    assert_non_null(out);
    for (int64_t t = 0; t < s->n_tokens; t++)
        for (int64_t h = 0; h < s->n_heads; h++)
            for (int64_t o = 0; o < s->n_out; o++)
                for (int64_t i = 0; i < s->n_in; i++) {
                    const int64_t row = h * s->rows + s->first + (s->transposed ? i : o), column = s->transposed ? o : i;
                    out[(t * s->n_heads + h) * s->n_out + o] +=
                        (double)x[(t * s->n_heads + h) * s->n_in + i] * (double)weight[row * columns + column];
                }
    return out;
}

static void check(const shape *s, const apr_tensor *weight, int n_threads)
{
    const int64_t columns = s->transposed ? s->n_out : s->n_in, n_rows = s->n_heads * s->rows, n = s->n_tokens * s->n_heads * s->n_out;
    float *const x = ops_noises(s->n_tokens * s->n_heads * s->n_in), *const numbers = malloc((size_t)(n_rows * columns) * sizeof *numbers);
    apr_op_args args = {.linear = {.n_tokens = s->n_tokens,
                                   .n_in = s->n_in,
                                   .n_out = s->n_out,
                                   .heads = {.n = s->n_heads, .rows = s->rows, .first = s->first, .transposed = s->transposed},
                                   .x = x,
                                   .weight = weight}};
    char what[160];

    apr_decode_rows(weight, 0, n_rows, numbers);
    double *const reference = expected(s, x, numbers);
    args.linear.work = ops_workspace(apr_linear_slice(columns), n_threads);
    for (int b = 0; b < 2; b++) {
        const apr_backend *const backend = b == 0 ? &apr_ref_backend : &apr_host_backend;
        args.linear.out = malloc((size_t)n * sizeof *args.linear.out);
        for (int64_t i = 0; i < n; i++) args.linear.out[i] = NAN;
        backend->ops[APR_OP_LINEAR](&args);
        snprintf(what, sizeof what, "%s: %s, %lld tokens, %lld heads, rows %lld + %lld of %lld, %lld columns%s", backend->name,
                 apr_dtypes[weight->dtype].name, (long long)s->n_tokens, (long long)s->n_heads, (long long)s->first,
                 (long long)(s->transposed ? s->n_in : s->n_out), (long long)s->rows, (long long)columns,
                 s->transposed ? ", transposed" : "");
        ops_expect(args.linear.out, reference, n, (double)s->n_in * 3e-7 * ops_largest(weight), what);
        free(args.linear.out);
    }
    free(args.linear.work.data);
    free(reference);
    free(numbers);
    free(x);
}

static const shape shapes[] = {
    {1, 1, 1, 0, 1, 1, false},     {1, 3, 48, 0, 40, 21, true},  {1, 3, 48, 32, 64, 16, false}, {5, 4, 40, 0, 24, 64, true},
    {5, 4, 40, 24, 64, 16, false}, {7, 2, 33, 0, 17, 31, true},  {7, 2, 33, 17, 31, 16, false}, {6, 16, 40, 8, 20, 32, false},
    {13, 5, 20, 3, 17, 70, true},  {2, 128, 6, 1, 16, 5, false},
};

static void heads_multiply_with_rows_of_their_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *const s = &shapes[i];
        const int64_t columns = s->transposed ? s->n_out : s->n_in;
        float *const numbers = ops_noises(s->n_heads * s->rows * columns);
        const apr_tensor weight = ops_matrix(numbers, s->n_heads * s->rows, columns);
        check(s, &weight, 1);
        check(s, &weight, 3);
        free(numbers);
    }
}

static void every_dtype_of_weights_will_do(void **state)
{
    (void)state;
    static const shape both[] = {{4, 3, 48, 0, 32, 512, true}, {4, 3, 48, 32, 512, 16, false}};
    for (int dtype = 0; dtype < APR_DTYPE_COUNT; dtype++) {
        if (!apr_can_decode((apr_dtype)dtype) || dtype == APR_C64) continue;
        if (!apr_dtype_is_float((apr_dtype)dtype) && !apr_dtype_is_quantized((apr_dtype)dtype)) continue;
        const apr_tensor weight = ops_matrix_of((apr_dtype)dtype, 144, 512);
        for (int i = 0; i < 2; i++) check(&both[i], &weight, 2);
        free((void *)(uintptr_t)weight.data);
    }
}

/* ggml stores the two halves separately, one of them transposed already: stacks of rank 3, each with all of its rows. */
static void stacks_are_weights_as_well(void **state)
{
    (void)state;
    static const shape s = {3, 4, 32, 0, 24, 32, false};
    float *const numbers = ops_noises(4 * 32 * 24);
    apr_tensor stack = ops_matrix(numbers, 4 * 32, 24);
    stack.rank = 3;
    stack.dims[0] = 4, stack.dims[1] = 32, stack.dims[2] = 24;
    check(&s, &stack, 2);
    free(numbers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_multiply_with_rows_of_their_own),
        cmocka_unit_test(every_dtype_of_weights_will_do),
        cmocka_unit_test(stacks_are_weights_as_well),
    };
    return cmocka_run_group_tests_name("ops_heads", tests, NULL, NULL);
}
