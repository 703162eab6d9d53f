/* test_ops_streams.c - Gemma 3n's operations against their formulas in float64: streams of hidden states (AltUp), rows with the magnitude
 * of others, Gaussian top-k. */
#include "formats/shape/hparams.h"

#include "tests/support/ops_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 5, STREAMS = 4, WIDTH = 48 };

static const apr_backend *const backends[] = {&apr_ref_backend, &apr_host_backend, &apr_float64_backend};
enum { N_BACKENDS = sizeof backends / sizeof *backends };

static void must_be_near(const char *what, const apr_backend *backend, const float *out, const double *expected, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabs((double)out[i] - expected[i]) <= 2e-6 * (1.0 + fabs(expected[i]))))
            fail_msg("%s on %s: number %d is %g, not %g", what, backend->name, i, (double)out[i], expected[i]);
}

/* AltUp as a matrix: [streams of x, streams of y] of a token times a column for each stream of the output. */
static void multiply_streams(const apr_altup_args *a, int64_t t, double *out)
{
    double matrix[STREAMS][STREAMS + STREAMS] = {{0}};

    for (int64_t i = 0; i < STREAMS; i++) {
        matrix[i][i] += 1.0;
        for (int64_t j = 0; j < a->n_y && i >= a->first; j++) {
            double c = (double)a->offset;
            for (int64_t k = 0; a->routed != NULL && k < STREAMS; k++) {
                const double e = exp(2.0 * (double)a->scale * (double)a->routed[t * STREAMS + k]);
                c += (double)a->coefs[(i * a->n_y + j) * STREAMS + k] * (e - 1.0) / (e + 1.0);
            }
            matrix[i][STREAMS + j] += c;
            if (a->minus >= 0) matrix[i][a->minus] -= c;
        }
    }
    for (int64_t i = 0; i < STREAMS; i++)
        for (int64_t d = 0; d < WIDTH; d++) {
            double sum = 0.0;
            for (int64_t j = 0; j < STREAMS; j++) sum += matrix[i][j] * (double)a->x[(t * STREAMS + j) * WIDTH + d];
            for (int64_t j = 0; j < a->n_y; j++) sum += matrix[i][STREAMS + j] * (double)a->y[(t * a->n_y + j) * WIDTH + d];
            out[i * WIDTH + d] = sum;
        }
}

static void streams_are_mixed_by_a_matrix_of_the_token(void **state)
{
    (void)state;
    float *const x = ops_noises(TOKENS * STREAMS * WIDTH), *const y = ops_noises(TOKENS * WIDTH),
                 *const routed = ops_noises(TOKENS * STREAMS);
    float *const coefs = ops_noises(STREAMS * STREAMS * STREAMS), *const out = ops_noises(TOKENS * STREAMS * WIDTH);
    const apr_altup_args cases[] = {
        {.n_y = STREAMS, .minus = -1, .scale = 1.7f, .y = x, .routed = routed, .coefs = coefs},          /* predicted */
        {.n_y = 1, .minus = 2, .scale = 0.3f, .offset = 1.0f, .y = y, .routed = routed, .coefs = coefs}, /* corrected */
        {.n_y = 1, .first = 1, .minus = -1, .offset = 1.0f, .y = y},                                     /* added to all but the first */
        {.n_y = STREAMS, .first = 3, .minus = 0, .scale = 0.9f, .offset = -0.5f, .y = x, .routed = routed, .coefs = coefs},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int b = 0; b < N_BACKENDS; b++) {
            apr_op_args args = {.altup = cases[i]};
            double expected[STREAMS * WIDTH];
            args.altup.n_tokens = TOKENS, args.altup.n_streams = STREAMS, args.altup.width = WIDTH;
            args.altup.x = x, args.altup.out = out;
            backends[b]->ops[APR_OP_ALTUP](&args);
            for (int t = 0; t < TOKENS; t++) {
                multiply_streams(&args.altup, t, expected);
                must_be_near("altup", backends[b], out + t * STREAMS * WIDTH, expected, STREAMS * WIDTH);
            }
        }
    free(x);
    free(y);
    free(routed);
    free(coefs);
    free(out);
}

/* The length of a row by hypot. */
static double length_of(const float *x, int n)
{
    double length = 0.0;
    for (int i = 0; i < n; i++) length = hypot(length, (double)x[i]);
    return length;
}

static void rows_get_the_length_of_others(void **state)
{
    (void)state;
    float *const x = ops_noises(TOKENS * WIDTH), *const like = ops_noises(TOKENS * WIDTH), *const out = ops_noises(TOKENS * WIDTH);
    for (int i = 0; i < WIDTH; i++) x[i] *= 1e-4f; /* the first row is below the least mean square */
    for (int b = 0; b < N_BACKENDS; b++) {
        const apr_op_args args = {.rescale = {.n_tokens = TOKENS, .width = WIDTH, .floor = 1e-5f, .x = x, .like = like, .out = out}};
        backends[b]->ops[APR_OP_RESCALE](&args);
        for (int t = 0; t < TOKENS; t++) {
            const double least = sqrt(WIDTH * (double)args.rescale.floor), length = length_of(x + t * WIDTH, WIDTH);
            double expected[WIDTH];
            assert_true((length < least) == (t == 0));
            for (int i = 0; i < WIDTH; i++)
                expected[i] = (double)x[t * WIDTH + i] * length_of(like + t * WIDTH, WIDTH) / (t == 0 ? least : length);
            must_be_near("rescale", backends[b], out + t * WIDTH, expected, WIDTH);
        }
    }
    free(x);
    free(like);
    free(out);
}

static void a_quantile_of_the_row_is_subtracted(void **state)
{
    (void)state;
    float *const x = ops_noises(TOKENS * WIDTH), *const out = ops_noises(TOKENS * WIDTH);
    for (int b = 0; b < N_BACKENDS; b++) {
        const apr_op_args args = {.gauss_topk = {.n_tokens = TOKENS, .width = WIDTH, .factor = 0.6f, .x = x, .out = out}};
        backends[b]->ops[APR_OP_GAUSS_TOPK](&args);
        for (int t = 0; t < TOKENS; t++) {
            double sum = 0.0, squares = 0.0, expected[WIDTH];
            int n_kept = 0;
            for (int i = 0; i < WIDTH; i++) sum += (double)x[t * WIDTH + i], squares += pow((double)x[t * WIDTH + i], 2.0);
            const double mean = sum / WIDTH, least = mean + (double)args.gauss_topk.factor * sqrt(squares / WIDTH - mean * mean);
            for (int i = 0; i < WIDTH; i++) {
                expected[i] = (double)x[t * WIDTH + i] > least ? (double)x[t * WIDTH + i] - least : 0.0;
                n_kept += expected[i] > 0.0;
            }
            assert_in_range(n_kept, 1, WIDTH / 2);
            must_be_near("gaussian top-k", backends[b], out + t * WIDTH, expected, WIDTH);
        }
    }
    free(x);
    free(out);
}

/* Tables of the standard normal distribution. */
static void quantiles_are_those_of_the_normal_distribution(void **state)
{
    (void)state;
    static const double known[][2] = {{0.5, 0.0},
                                      {0.95, 1.6448536269514722},
                                      {0.975, 1.9599639845400545},
                                      {0.025, -1.9599639845400545},
                                      {0.999, 3.0902323061678132},
                                      {0.6, 0.2533471031357997}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (fabs(apr_normal_quantile(known[i][0]) - known[i][1]) > 1e-12)
            fail_msg("the quantile of %g is %.15g", known[i][0], apr_normal_quantile(known[i][0]));
        if (fabs((double)apr_sparsity_quantile(known[i][0]) - known[i][1]) > 1e-5)
            fail_msg("in float32 the quantile of %g is %.9g", known[i][0], (double)apr_sparsity_quantile(known[i][0]));
        if (fabs(apr_normal_share(known[i][1]) - known[i][0]) > 1e-14) fail_msg("the share below %g is %.15g", known[i][1], known[i][0]);
    }
}

/* Gemma 3n's table of per-layer inputs has no rows for tokens of images and sounds. */
static void tokens_after_the_table_have_row_0(void **state)
{
    (void)state;
    static const float rows[3][2] = {{1, 2}, {3, 4}, {5, 6}};
    const apr_tensor table = {
        .name = "table", .dtype = APR_F32, .rank = 2, .dims = {3, 2}, .data = (const uint8_t *)rows, .n_bytes = sizeof rows};
    const int32_t ids[4] = {2, 3, 0, 1000};
    for (int b = 0; b < N_BACKENDS; b++) {
        float out[4][2];
        const apr_op_args args = {.embed = {.n_tokens = 4, .width = 2, .n_rows = 3, .ids = ids, .table = &table, .out = out[0]}};
        backends[b]->ops[APR_OP_EMBED](&args);
        assert_true(out[0][1] == 6.0f && out[1][0] == 1.0f && out[1][1] == 2.0f && out[2][1] == 2.0f && out[3][1] == 2.0f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_mixed_by_a_matrix_of_the_token), cmocka_unit_test(rows_get_the_length_of_others),
        cmocka_unit_test(a_quantile_of_the_row_is_subtracted),        cmocka_unit_test(quantiles_are_those_of_the_normal_distribution),
        cmocka_unit_test(tokens_after_the_table_have_row_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
