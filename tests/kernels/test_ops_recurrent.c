/* kernels/op_args.h: operations that remember. The reference against the formulas in double; the host, which takes prompts in chunks,
 * against the reference, over the borders of chunks; and a text in two parts against the same text in one. */
#include "tests/support/ops_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Around the 64 tokens that the host takes together. */
static const int64_t lengths[] = {1, 2, 63, 64, 65, 130};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths, THREADS = 2 };

static float *zeros(int64_t n)
{
    float *const x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    return x;
}

/* --- delta rule --- */

typedef struct delta_shape {
    int64_t n_key_heads, n_value_heads, key_dim, value_dim;
    bool tiled, by_channel;
    float floor;
} delta_shape;

static const delta_shape deltas[] = {
    {1, 1, 8, 8, false},          {2, 6, 16, 24, false},   {2, 6, 16, 24, true},       {4, 4, 32, 17, false},
    {3, 9, 20, 16, true},         {2, 4, 128, 128, false}, {2, 6, 16, 24, true, true}, {4, 4, 32, 17, false, true, -5.0f},
    {1, 2, 128, 128, false, true}};

static int64_t gates_of(const delta_shape *s) { return s->by_channel ? s->key_dim : 1; }

typedef struct delta_inputs {
    float *qkv, *a, *b, *rate, *dt_bias;
    int64_t width;
} delta_inputs;

static delta_inputs make_delta(const delta_shape *s, int64_t n_tokens)
{
    delta_inputs in = {.width = 2 * s->n_key_heads * s->key_dim + s->n_value_heads * s->value_dim};
    in.qkv = ops_noises(n_tokens * in.width);
    in.a = ops_noises(n_tokens * s->n_value_heads * gates_of(s));
    in.b = ops_noises(n_tokens * s->n_value_heads);
    in.rate = ops_noises(s->n_value_heads);
    in.dt_bias = ops_noises(s->n_value_heads * gates_of(s));
    for (int64_t h = 0; h < s->n_value_heads; h++) in.rate[h] = expf(3.0f * in.rate[h]); /* from what stays to what is gone at once */
    return in;
}

static void free_delta(delta_inputs *in)
{
    free(in->qkv);
    free(in->a);
    free(in->b);
    free(in->rate);
    free(in->dt_bias);
}

static apr_op_args delta_args(const delta_shape *s, const delta_inputs *in, int64_t first, int64_t n_tokens, float *state)
{
    return (apr_op_args){.delta = {.n_tokens = n_tokens,
                                   .n_key_heads = s->n_key_heads,
                                   .n_value_heads = s->n_value_heads,
                                   .key_dim = s->key_dim,
                                   .value_dim = s->value_dim,
                                   .tiled = s->tiled,
                                   .by_channel = s->by_channel,
                                   .floor = s->floor,
                                   .eps = 1e-6f,
                                   .qkv = in->qkv + first * in->width,
                                   .a = in->a + first * s->n_value_heads * gates_of(s),
                                   .b = in->b + first * s->n_value_heads,
                                   .rate = in->rate,
                                   .dt_bias = in->dt_bias,
                                   .state = state}};
}

static double normed(const float *x, int64_t n, double scale, double *out)
{
    double sum = 1e-6;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    for (int64_t i = 0; i < n; i++) out[i] = (double)x[i] / sqrt(sum) * scale;
    return sum;
}

static double decay_of(const delta_shape *s, const delta_inputs *in, int64_t t, int64_t h, int64_t i)
{
    const double x = (double)in->a[(t * s->n_value_heads + h) * gates_of(s) + i] + (double)in->dt_bias[h * gates_of(s) + i];
    const double rate = (double)in->rate[h];
    return exp(s->floor < 0.0f ? (double)s->floor / (1.0 + exp(-rate * x)) : -rate * log1p(exp(x)));
}

/* One token of one value head, as the papers have it. */
static void delta_step(const delta_shape *s, const delta_inputs *in, int64_t t, int64_t h, double *state, double *out)
{
    const int64_t kh = s->tiled ? h % s->n_key_heads : h / (s->n_value_heads / s->n_key_heads), dk = s->key_dim, dv = s->value_dim;
    const float *const row = in->qkv + t * in->width, *const v = row + 2 * s->n_key_heads * dk + h * dv;
    const double b = (double)in->b[t * s->n_value_heads + h], beta = 1.0 / (1.0 + exp(-b));
    double q[128], k[128], decay[128];

    normed(row + kh * dk, dk, 1.0 / sqrt((double)dk), q);
    normed(row + (s->n_key_heads + kh) * dk, dk, 1.0, k);
    for (int64_t i = 0; i < dk; i++) decay[i] = decay_of(s, in, t, h, s->by_channel ? i : 0);
    for (int64_t j = 0; j < dv; j++) {
        double known = 0.0;
        out[j] = 0.0;
        for (int64_t i = 0; i < dk; i++) known += (state[i * dv + j] *= decay[i]) * k[i];
        for (int64_t i = 0; i < dk; i++) {
            state[i * dv + j] += k[i] * beta * ((double)v[j] - known);
            out[j] += state[i * dv + j] * q[i];
        }
    }
}

static void the_delta_rule_is_what_the_formula_says(void **state)
{
    (void)state;
    enum { TOKENS = 11 };
    for (size_t c = 0; c < sizeof deltas / sizeof *deltas; c++) {
        const delta_shape *const s = &deltas[c];
        const int64_t n_state = s->n_value_heads * s->key_dim * s->value_dim, n_out = s->n_value_heads * s->value_dim;
        delta_inputs in = make_delta(s, TOKENS);
        float *const floats = zeros(n_state), *const out = ops_noises(TOKENS * n_out);
        double *const doubles = calloc((size_t)n_state, sizeof *doubles), *const reference =
                                                                              calloc((size_t)(TOKENS * n_out), sizeof *reference);
        apr_op_args args = delta_args(s, &in, 0, TOKENS, floats);
        args.delta.out = out;
        args.delta.work = ops_workspace(apr_delta_slice(s->key_dim, s->value_dim), 1);
        apr_ref_backend.ops[APR_OP_DELTA](&args);
        for (int64_t t = 0; t < TOKENS; t++)
            for (int64_t h = 0; h < s->n_value_heads; h++)
                delta_step(s, &in, t, h, doubles + h * s->key_dim * s->value_dim, reference + t * n_out + h * s->value_dim);
        ops_expect(out, reference, TOKENS * n_out, 2e-6, "delta rule");
        ops_expect(floats, doubles, n_state, 5e-6, "state of the delta rule");
        free(args.delta.work.data);
        free(floats);
        free(out);
        free(doubles);
        free(reference);
        free_delta(&in);
    }
}

static void the_delta_rule_agrees_over_borders_of_chunks(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof deltas / sizeof *deltas; c++)
        for (int l = 0; l < N_LENGTHS; l++) {
            const delta_shape *const s = &deltas[c];
            const int64_t n_state = s->n_value_heads * s->key_dim * s->value_dim;
            delta_inputs in = make_delta(s, lengths[l]);
            float *numbers = ops_noises(n_state);
            char what[96];
            apr_op_args args = delta_args(s, &in, 0, lengths[l], NULL);
            args.delta.state = numbers;
            args.delta.work = ops_workspace(apr_delta_slice(s->key_dim, s->value_dim), THREADS);
            snprintf(what, sizeof what, "%lld tokens, %lld heads on %lld of %lld and %lld", (long long)lengths[l],
                     (long long)s->n_value_heads, (long long)s->n_key_heads, (long long)s->key_dim, (long long)s->value_dim);
            ops_compare_with_state(APR_OP_DELTA, &args, &args.delta.out, lengths[l] * s->n_value_heads * s->value_dim, &args.delta.state,
                                   n_state, 2e-5, what);
            free(args.delta.work.data);
            free(numbers);
            free_delta(&in);
        }
}

static void a_text_in_parts_is_the_text_for_the_delta_rule(void **state)
{
    (void)state;
    enum { TOKENS = 200, CUT = 77 };
    const delta_shape *const s = &deltas[1];
    const int64_t n_state = s->n_value_heads * s->key_dim * s->value_dim, n_out = s->n_value_heads * s->value_dim;
    delta_inputs in = make_delta(s, TOKENS);
    float *const states[2] = {zeros(n_state), zeros(n_state)}, *const out[2] = {zeros(TOKENS * n_out), zeros(TOKENS * n_out)};
    const apr_workspace work = ops_workspace(apr_delta_slice(s->key_dim, s->value_dim), THREADS);
    const int64_t parts[3][3] = {{0, 0, TOKENS}, {1, 0, CUT}, {1, CUT, TOKENS - CUT}}; /* which, first, how many */

    for (int i = 0; i < 3; i++) {
        apr_op_args args = delta_args(s, &in, parts[i][1], parts[i][2], states[parts[i][0]]);
        args.delta.out = out[parts[i][0]] + parts[i][1] * n_out;
        args.delta.work = work;
        apr_host_backend.ops[APR_OP_DELTA](&args);
    }
    for (int64_t i = 0; i < TOKENS * n_out; i++) assert_float_equal(out[0][i], out[1][i], 1e-5);
    for (int64_t i = 0; i < n_state; i++) assert_float_equal(states[0][i], states[1][i], 1e-5);
    free(work.data);
    for (int i = 0; i < 2; i++) {
        free(states[i]);
        free(out[i]);
    }
    free_delta(&in);
}

/* --- state-space duality --- */

typedef struct ssd_shape {
    int64_t n_heads, head_dim, n_groups, state_dim;
} ssd_shape;

static const ssd_shape ssds[] = {{1, 4, 1, 8}, {6, 16, 2, 24}, {8, 17, 8, 16}, {6, 33, 3, 20}, {4, 64, 1, 128}};

typedef struct ssd_inputs {
    float *xbc, *dt, *rate, *dt_bias, *skip;
    int64_t width;
} ssd_inputs;

static ssd_inputs make_ssd(const ssd_shape *s, int64_t n_tokens)
{
    ssd_inputs in = {.width = s->n_heads * s->head_dim + 2 * s->n_groups * s->state_dim};
    in.xbc = ops_noises(n_tokens * in.width);
    in.dt = ops_noises(n_tokens * s->n_heads);
    in.rate = ops_noises(s->n_heads);
    in.dt_bias = ops_noises(s->n_heads);
    in.skip = ops_noises(s->n_heads);
    for (int64_t h = 0; h < s->n_heads; h++) in.rate[h] = expf(3.0f * in.rate[h]);
    return in;
}

static void free_ssd(ssd_inputs *in)
{
    free(in->xbc);
    free(in->dt);
    free(in->rate);
    free(in->dt_bias);
    free(in->skip);
}

static apr_op_args ssd_args(const ssd_shape *s, const ssd_inputs *in, int64_t n_tokens, float *state)
{
    return (apr_op_args){.ssd = {.n_tokens = n_tokens,
                                 .n_heads = s->n_heads,
                                 .head_dim = s->head_dim,
                                 .n_groups = s->n_groups,
                                 .state_dim = s->state_dim,
                                 .xbc = in->xbc,
                                 .dt = in->dt,
                                 .rate = in->rate,
                                 .dt_bias = in->dt_bias,
                                 .skip = in->skip,
                                 .state = state,
                                 .n_threads = THREADS}};
}

static void ssd_step(const ssd_shape *s, const ssd_inputs *in, int64_t t, int64_t h, double *state, double *out)
{
    const int64_t n = s->state_dim, n_x = s->n_heads * s->head_dim, group = h / (s->n_heads / s->n_groups);
    const float *const row = in->xbc + t * in->width, *const x = row + h * s->head_dim;
    const float *const b = row + n_x + group * n, *const c = row + n_x + (s->n_groups + group) * n;
    const double dt = log1p(exp((double)in->dt[t * s->n_heads + h] + (double)in->dt_bias[h])), decay = exp(-(double)in->rate[h] * dt);

    for (int64_t i = 0; i < s->head_dim; i++) {
        out[i] = (double)in->skip[h] * (double)x[i];
        for (int64_t j = 0; j < n; j++) {
            state[i * n + j] = decay * state[i * n + j] + dt * (double)x[i] * (double)b[j];
            out[i] += state[i * n + j] * (double)c[j];
        }
    }
}

static void state_space_duality_is_what_the_formula_says(void **state)
{
    (void)state;
    enum { TOKENS = 11 };
    for (size_t c = 0; c < sizeof ssds / sizeof *ssds; c++) {
        const ssd_shape *const s = &ssds[c];
        const int64_t n_out = s->n_heads * s->head_dim, n_state = n_out * s->state_dim;
        ssd_inputs in = make_ssd(s, TOKENS);
        float *const floats = zeros(n_state), *const out = ops_noises(TOKENS * n_out);
        double *const doubles = calloc((size_t)n_state, sizeof *doubles), *const reference =
                                                                              calloc((size_t)(TOKENS * n_out), sizeof *reference);
        apr_op_args args = ssd_args(s, &in, TOKENS, floats);
        args.ssd.out = out;
        apr_ref_backend.ops[APR_OP_SSD](&args);
        for (int64_t t = 0; t < TOKENS; t++)
            for (int64_t h = 0; h < s->n_heads; h++)
                ssd_step(s, &in, t, h, doubles + h * s->head_dim * s->state_dim, reference + t * n_out + h * s->head_dim);
        ops_expect(out, reference, TOKENS * n_out, 1e-6 * (double)s->state_dim, "state-space duality");
        ops_expect(floats, doubles, n_state, 5e-6, "state of state-space duality");
        free(floats);
        free(out);
        free(doubles);
        free(reference);
        free_ssd(&in);
    }
}

static void state_space_duality_agrees_over_borders_of_chunks(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof ssds / sizeof *ssds; c++)
        for (int l = 0; l < N_LENGTHS; l++) {
            const ssd_shape *const s = &ssds[c];
            const int64_t n_state = s->n_heads * s->head_dim * s->state_dim;
            ssd_inputs in = make_ssd(s, lengths[l]);
            float *const numbers = ops_noises(n_state);
            apr_op_args args = ssd_args(s, &in, lengths[l], numbers);
            char what[96];
            snprintf(what, sizeof what, "%lld tokens, %lld heads of %lld in %lld groups, states of %lld", (long long)lengths[l],
                     (long long)s->n_heads, (long long)s->head_dim, (long long)s->n_groups, (long long)s->state_dim);
            ops_compare_with_state(APR_OP_SSD, &args, &args.ssd.out, lengths[l] * s->n_heads * s->head_dim, &args.ssd.state, n_state,
                                   4e-6 * (double)s->state_dim, what);
            free(numbers);
            free_ssd(&in);
        }
}

/* --- convolution --- */

static void a_convolution_looks_back_into_its_state(void **state)
{
    (void)state;
    const float x[2] = {1, 2}, weight[3] = {100, 10, 1}, bias[1] = {0.5f};
    float before[2] = {3, 4}, out[2];
    apr_op_args args = {.conv = {.n_tokens = 2, .width = 1, .n_taps = 3, .x = x, .weight = weight, .bias = bias, .out = out}};
    args.conv.state = before;
    args.conv.n_threads = 1;
    apr_ref_backend.ops[APR_OP_CONV](&args);
    assert_true(out[0] == 341.5f && out[1] == 412.5f); /* 3 4 1, 4 1 2 */
    assert_true(before[0] == 1.0f && before[1] == 2.0f);
    args.conv.n_tokens = 1; /* shorter than the state: what is oldest goes, the rest moves */
    args.conv.x = &x[1];
    apr_ref_backend.ops[APR_OP_CONV](&args);
    assert_true(out[0] == 122.5f && before[0] == 2.0f && before[1] == 2.0f);
}

static void convolutions_agree_over_taps_and_lengths(void **state)
{
    (void)state;
    for (int64_t taps = 1; taps <= 5; taps++)
        for (int l = 0; l < N_LENGTHS; l++)
            for (int64_t width = 1; width < 300; width += 149) {
                float *const x = ops_noises(lengths[l] * width), *const weight = ops_noises(width * taps), *const bias = ops_noises(width);
                float *const numbers = ops_noises((taps - 1) * width + 1);
                apr_op_args args = {.conv = {.n_tokens = lengths[l],
                                             .width = width,
                                             .n_taps = taps,
                                             .activation = l % 2 ? APR_ACT_SILU : APR_ACT_NONE,
                                             .x = x,
                                             .weight = weight,
                                             .bias = taps % 2 ? bias : NULL,
                                             .state = numbers,
                                             .n_threads = THREADS}};
                ops_compare_with_state(APR_OP_CONV, &args, &args.conv.out, lengths[l] * width, &args.conv.state, (taps - 1) * width, 1e-6,
                                       "");
                free(x);
                free(weight);
                free(bias);
                free(numbers);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_delta_rule_is_what_the_formula_says),           cmocka_unit_test(the_delta_rule_agrees_over_borders_of_chunks),
        cmocka_unit_test(a_text_in_parts_is_the_text_for_the_delta_rule),    cmocka_unit_test(state_space_duality_is_what_the_formula_says),
        cmocka_unit_test(state_space_duality_agrees_over_borders_of_chunks), cmocka_unit_test(a_convolution_looks_back_into_its_state),
        cmocka_unit_test(convolutions_agree_over_taps_and_lengths),
    };
    return cmocka_run_group_tests_name("ops_recurrent", tests, NULL, NULL);
}
