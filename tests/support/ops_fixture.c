/* ops_fixture.c - inputs of operations, and both backends on the same. */
#include "tests/support/ops_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

float ops_noise(void)
{
    static uint64_t seed = 1;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

float *ops_noises(int64_t n)
{
    float *const x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = ops_noise();
    return x;
}

apr_workspace ops_workspace(size_t slice, int n_threads)
{
    const apr_workspace work = {.data = malloc(slice * (size_t)n_threads * sizeof(float)), .slice = slice, .n_threads = n_threads};
    assert_non_null(work.data);
    return work;
}

apr_tensor ops_matrix(const float *numbers, int64_t n_rows, int64_t n_columns)
{
    return (apr_tensor){.name = "w",
                        .dtype = APR_F32,
                        .rank = 2,
                        .dims = {n_rows, n_columns},
                        .data = (const uint8_t *)numbers,
                        .n_bytes = (uint64_t)(n_rows * n_columns) * sizeof *numbers};
}

apr_tensor ops_matrix_of(apr_dtype dtype, int64_t n_rows, int64_t n_columns)
{
    apr_tensor weight = {.name = "w", .dtype = dtype, .rank = 2, .dims = {n_rows, n_columns}};
    assert_int_equal(apr_tensor_size(&weight, "test", NULL), APR_OK);
    uint8_t *const data = malloc((size_t)weight.n_bytes);
    assert_non_null(data);
    weight.data = data;
    if (apr_can_encode(dtype)) {
        float *const x = ops_noises(n_rows * n_columns);
        apr_ref_codecs[dtype].encode(x, data, n_rows * n_columns);
        free(x);
        return weight;
    }
    /* every byte below 0x38: FP16 below 0.5, BF16 below 1e-5, no NaN anywhere */
    for (uint64_t i = 0; i < weight.n_bytes; i++) data[i] = (uint8_t)((ops_noise() + 1.0f) * 0.5f * 0x37);
    return weight;
}

double ops_largest(const apr_tensor *weight)
{
    const int64_t n = apr_tensor_elems(weight);
    float *const x = malloc((size_t)n * sizeof *x);
    double largest = 0.0;
    assert_non_null(x);
    apr_decode_rows(weight, 0, apr_tensor_rows(weight), x);
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)x[i]));
    free(x);
    assert_true(isfinite(largest));
    return largest;
}

static void compare_numbers(apr_op_kind kind, const float *ref, const float *host, int64_t n, double bound, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)ref[i] - (double)host[i]) <= bound))
            fail_msg("%s %s: number %lld is %.9g, not %.9g", apr_op_name(kind), what, (long long)i, (double)host[i], (double)ref[i]);
}

void ops_compare_with_state(apr_op_kind kind, apr_op_args *args, float **out, int64_t n, float **state, int64_t n_state, double bound,
                            const char *what)
{
    const apr_backend *const backends[2] = {&apr_ref_backend, &apr_host_backend};
    float *results[2], *states[2], *const before = state != NULL ? *state : NULL;

    for (int b = 0; b < 2; b++) {
        *out = results[b] = malloc((size_t)n * sizeof **out);
        states[b] = malloc((size_t)n_state * sizeof **out + 1);
        assert_true(results[b] != NULL && states[b] != NULL);
        for (int64_t i = 0; i < n; i++) results[b][i] = NAN; /* what is not written shows */
        if (state != NULL) *state = memcpy(states[b], before, (size_t)n_state * sizeof **out);
        backends[b]->ops[kind](args);
    }
    compare_numbers(kind, results[0], results[1], n, bound, what);
    compare_numbers(kind, states[0], states[1], n_state, bound, what);
    if (state != NULL) *state = memcpy(before, states[0], (size_t)n_state * sizeof **out);
    for (int b = 0; b < 2; b++) {
        free(results[b]);
        free(states[b]);
    }
}

void ops_compare(apr_op_kind kind, apr_op_args *args, float **out, int64_t n, double bound, const char *what)
{
    ops_compare_with_state(kind, args, out, n, NULL, 0, bound, what);
}

void ops_expect(const float *out, const double *expected, int64_t n, double bound, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)out[i] - expected[i]) <= bound))
            fail_msg("%s: number %lld is %.9g, not %.9g", what, (long long)i, (double)out[i], expected[i]);
}
