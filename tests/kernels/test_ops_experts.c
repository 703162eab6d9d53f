/* kernels/op_args.h: the choice of experts, and what the chosen ones compute: known values, and host against reference. */
#include "tests/support/ops_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- routes --- */

enum { MOST_EXPERTS = 256, MOST_USED = 16 };

/* One token's choice by the reference; ids and weights as they come. */
static void route(const apr_route_shape *shape, const float *logits, const float *bias, const float *scales, float *out)
{
    float work[3 * MOST_EXPERTS];
    const apr_op_args args = {.route = {.n_tokens = 1,
                                        .shape = *shape,
                                        .logits = logits,
                                        .bias = bias,
                                        .expert_scale = scales,
                                        .out = out,
                                        .work = {.data = work, .slice = 3 * MOST_EXPERTS, .n_threads = 1}}};
    apr_ref_backend.ops[APR_OP_ROUTE](&args);
}

static void equal_experts_are_chosen_by_their_numbers(void **state)
{
    (void)state;
    const float logits[6] = {1, 3, 3, 0, 3, 3};
    float out[7];
    const apr_route_shape shape = {.score = APR_SCORE_SOFTMAX, .n_experts = 6, .n_used = 3, .normalise = true, .scale = 1.0f};
    route(&shape, logits, NULL, NULL, out);
    for (int k = 0; k < 3; k++) {
        static const float ids[3] = {1, 2, 4};
        assert_true(out[k] == ids[k]);
        assert_float_equal(out[3 + k], 1.0 / 3.0, 1e-6);
    }
    assert_true(out[6] == 0.0f); /* experts 4 and 5 are as good as each other */
}

static void the_gap_says_how_close_a_choice_was(void **state)
{
    (void)state;
    const float logits[4] = {8, 5, 3, -1};
    apr_route_shape shape = {.score = APR_SCORE_TOPK_SOFTMAX, .n_experts = 4, .n_used = 2, .scale = 1.0f};
    float out[9];
    route(&shape, logits, NULL, NULL, out);
    assert_float_equal(out[4], (5 - 3) / 8.0, 1e-6);
    shape.n_used = 4; /* none is left out */
    route(&shape, logits, NULL, NULL, out);
    assert_true(out[8] > 1e30f);
}

static void scores_are_what_they_are_called(void **state)
{
    (void)state;
    const float logits[3] = {0, 1, -1};
    const double sum = 1 + exp(1.0) + exp(-1.0), pair = 1 + exp(1.0);
    const double weights[APR_SCORE_KINDS][2] = {[APR_SCORE_SOFTMAX] = {exp(1.0) / sum, 1 / sum},
                                                [APR_SCORE_SIGMOID] = {1 / (1 + exp(-1.0)), 0.5},
                                                [APR_SCORE_TOPK_SOFTMAX] = {exp(1.0) / pair, 1 / pair},
                                                [APR_SCORE_TOPK_SIGMOID] = {1 / (1 + exp(-1.0)), 0.5},
                                                [APR_SCORE_SQRT_SOFTPLUS] = {sqrt(log(1 + exp(1.0))), sqrt(log(2.0))}};
    for (int score = 0; score < APR_SCORE_KINDS; score++) {
        apr_route_shape shape = {.score = (apr_score_kind)score, .n_experts = 3, .n_used = 2, .scale = 2.0f};
        float out[5];
        route(&shape, logits, NULL, NULL, out);
        assert_true(out[0] == 1.0f && out[1] == 0.0f);
        for (int k = 0; k < 2; k++) assert_float_equal(out[2 + k], 2 * weights[score][k], 1e-6);
        shape.normalise = true;
        route(&shape, logits, NULL, NULL, out);
        for (int k = 0; k < 2; k++) assert_float_equal(out[2 + k], 2 * weights[score][k] / (weights[score][0] + weights[score][1]), 1e-6);
    }
}

static void a_bias_changes_the_choice_and_not_the_weights(void **state)
{
    (void)state;
    const float logits[4] = {2, 1, 0, -1}, bias[4] = {0, 0, 0, 9}, scales[4] = {1, 1, 1, 3};
    const apr_route_shape shape = {.score = APR_SCORE_SIGMOID, .n_experts = 4, .n_used = 2, .scale = 1.0f};
    float out[5];
    route(&shape, logits, bias, scales, out);
    assert_true(out[0] == 3.0f && out[1] == 0.0f);
    assert_float_equal(out[2], 3 / (1 + exp(1.0)), 1e-6);
    assert_float_equal(out[3], 1 / (1 + exp(-2.0)), 1e-6);
}

/* Group 0 has the best expert, group 1 the two best together. */
static void groups_are_left_out_by_their_top_one_or_top_two(void **state)
{
    (void)state;
    const float logits[6] = {5, -9, -9, 4, 3, -9};
    apr_route_shape shape = {.score = APR_SCORE_TOPK_SIGMOID,
                             .n_experts = 6,
                             .n_used = 2,
                             .n_groups = 2,
                             .n_groups_used = 1,
                             .filler = -INFINITY,
                             .scale = 1.0f};
    float out[5];
    route(&shape, logits, NULL, NULL, out);
    assert_true(out[0] == 3.0f && out[1] == 4.0f);
    assert_float_equal(out[4], (4 + 3 - (5 - 9)) / 7.0, 1e-6); /* of the groups; within the chosen one it is wider */
    shape.group_by_best = true;
    route(&shape, logits, NULL, NULL, out);
    assert_true(out[0] == 0.0f && out[1] == 1.0f);
    shape.filler = 0.0f; /* DeepSeek V2: what is left out may still be better than what is not */
    route(&shape, logits, NULL, NULL, out);
    assert_true(out[0] == 0.0f && out[1] == 3.0f);
}

static void an_expert_is_named_whatever_the_logits_are(void **state)
{
    (void)state;
    float logits[4] = {NAN, NAN, NAN, NAN}, out[5];
    const apr_route_shape shape = {.score = APR_SCORE_SIGMOID, .n_experts = 4, .n_used = 2, .scale = 1.0f};
    route(&shape, logits, NULL, NULL, out);
    for (int k = 0; k < 2; k++) assert_true(out[k] >= 0.0f && out[k] < 4.0f);
    logits[2] = 1.0f;
    route(&shape, logits, NULL, NULL, out);
    assert_true(out[0] == 2.0f);
}

static void routes_agree_over_shapes(void **state)
{
    (void)state;
    static const apr_route_shape shapes[] = {
        {APR_SCORE_SOFTMAX, 8, 2, 0, 0, false, 0, true, 0, 0, 1.0f},
        {APR_SCORE_SOFTMAX, 160, 6, 8, 3, true, 0.0f, false, 0, 0, 16.0f},
        {APR_SCORE_SIGMOID, 256, 8, 8, 4, false, -INFINITY, true, 1e-20f, 0, 2.5f},
        {APR_SCORE_TOPK_SOFTMAX, 32, 4, 1, 1, false, 0, false, 0, 0, 1.0f},
        {APR_SCORE_SQRT_SOFTPLUS, 128, 6, 0, 0, false, 0, true, 0, 1e-12f, 1.5f},
        {APR_SCORE_TOPK_SIGMOID, 16, 1, 0, 0, false, 0, false, 0, 0, 1.0f},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int64_t n_tokens = 1; n_tokens < 70; n_tokens += 33) {
            const int64_t n = shapes[i].n_experts;
            float *const logits = ops_noises(n_tokens * n), *const bias = ops_noises(n), *const scales = ops_noises(n);
            for (int64_t j = 0; j < n_tokens * n; j++) logits[j] = roundf(logits[j] * 16.0f) / 4.0f; /* many are equal */
            for (int64_t j = 0; j < n; j++) bias[j] = roundf(bias[j] * 4.0f) / 64.0f;
            apr_op_args args = {.route = {.n_tokens = n_tokens,
                                          .shape = shapes[i],
                                          .logits = logits,
                                          .bias = i % 2 ? bias : NULL,
                                          .expert_scale = i % 3 ? scales : NULL}};
            args.route.work = ops_workspace(apr_route_slice(n), 3);
            ops_compare(APR_OP_ROUTE, &args, &args.route.out, n_tokens * apr_route_row(shapes[i].n_used), 0.0, "");
            free(args.route.work.data);
            free(logits);
            free(bias);
            free(scales);
        }
}

/* --- experts --- */

typedef struct experts_case {
    int64_t n_tokens, n_in, n_mid, n_out, n_experts, n_used;
    apr_dtype dtype;
    apr_glu_shape glu;
    bool no_gate, has_biases, weight_on_input;
} experts_case;

/* Each token's experts are different ones, and their weights noise. */
static float *make_routes(const experts_case *c)
{
    float *const routes = ops_noises(c->n_tokens * apr_route_row(c->n_used));
    for (int64_t t = 0; t < c->n_tokens; t++) {
        const int64_t first = (int64_t)((ops_noise() + 1.0f) * 1000.0f);
        for (int64_t k = 0; k < c->n_used; k++)
            routes[t * apr_route_row(c->n_used) + k] = (float)((first + (t % 2 ? k : c->n_experts - k)) % c->n_experts);
    }
    return routes;
}

static apr_tensor *make_experts(const experts_case *c, int64_t n_rows, int64_t n_columns)
{
    apr_tensor *const matrices = calloc((size_t)c->n_experts, sizeof *matrices);
    assert_non_null(matrices);
    for (int64_t e = 0; e < c->n_experts; e++) matrices[e] = ops_matrix_of(c->dtype, n_rows, n_columns);
    return matrices;
}

static void free_experts(const experts_case *c, apr_tensor *matrices)
{
    for (int64_t e = 0; e < c->n_experts; e++) free((void *)(uintptr_t)matrices[e].data);
    free(matrices);
}

static size_t slice_of(const experts_case *c)
{
    const size_t product = apr_linear_slice(c->n_in > c->n_mid ? c->n_in : c->n_mid), own = apr_experts_slice(c->n_in, c->n_mid);
    return own > product ? own : product;
}

static void compare_experts(const experts_case *c, const char *what)
{
    float *const x = ops_noises(c->n_tokens * c->n_in), *const routes = make_routes(c);
    float *const gate_bias = ops_noises(c->n_experts * c->n_mid), *const up_bias = ops_noises(c->n_experts * c->n_mid);
    float *const down_bias = ops_noises(c->n_experts * c->n_out);
    apr_tensor *const gate = make_experts(c, c->n_mid, c->n_in), *const up = make_experts(c, c->n_mid, c->n_in);
    apr_tensor *const down = make_experts(c, c->n_out, c->n_mid);
    float *const shared = malloc(apr_experts_shared(c->n_tokens, c->n_in, c->n_mid, c->n_out) * sizeof *shared);
    apr_op_args args = {.experts = {.n_tokens = c->n_tokens,
                                    .n_in = c->n_in,
                                    .n_mid = c->n_mid,
                                    .n_out = c->n_out,
                                    .n_experts = c->n_experts,
                                    .n_used = c->n_used,
                                    .glu = c->glu,
                                    .weight_on_input = c->weight_on_input,
                                    .x = x,
                                    .routes = routes,
                                    .gate = c->no_gate ? NULL : gate,
                                    .up = up,
                                    .down = down,
                                    .gate_bias = c->has_biases && !c->no_gate ? gate_bias : NULL,
                                    .up_bias = c->has_biases ? up_bias : NULL,
                                    .down_bias = c->has_biases ? down_bias : NULL,
                                    .work = ops_workspace(slice_of(c), 2),
                                    .shared = shared}};
    /* middles are products of two sums of n_in products below 1 */
    const double largest = sqrt((double)c->n_in) * sqrt((double)c->n_in) * sqrt((double)c->n_mid) * (double)c->n_used;
    /* each of the two products after one another rounds its inputs by 0.29 / 32512 of the largest of 16 in the mean */
    const double rounded = apr_host_rounds_inputs(&up[0]) ? 2 * 0.29 / 32512 : 0.0;
    ops_compare(APR_OP_EXPERTS, &args, &args.experts.out, c->n_tokens * c->n_out, largest * (2e-6 + rounded), what);
    free(args.experts.work.data);
    free(shared);
    free_experts(c, gate);
    free_experts(c, up);
    free_experts(c, down);
    free(x);
    free(routes);
    free(gate_bias);
    free(up_bias);
    free(down_bias);
}

static void experts_agree_over_shapes_and_kinds(void **state)
{
    (void)state;
    static const apr_glu_shape silu = {.activation = APR_ACT_SILU}, relu2 = {.activation = APR_ACT_RELU2};
    static const apr_glu_shape gpt_oss = {.activation = APR_ACT_SILU, .limit = 7.0f, .alpha = 1.702f, .up_offset = 1.0f};
    const struct {
        const char *what;
        experts_case c;
    } cases[] = {
        {"one token", {1, 17, 5, 9, 4, 2, APR_F32, silu, .has_biases = false}},
        {"all experts used", {3, 16, 8, 16, 3, 3, APR_F32, silu, .has_biases = false}},
        {"many tokens", {70, 33, 18, 31, 7, 3, APR_F32, silu, .has_biases = false}},
        {"gpt-oss", {9, 64, 32, 64, 5, 4, APR_MXFP4, gpt_oss, .has_biases = true}},
        {"gpt-oss, one token", {1, 64, 32, 64, 5, 4, APR_BF16, gpt_oss, .has_biases = true}},
        {"without gates", {20, 40, 24, 40, 6, 2, APR_F32, relu2, .no_gate = true}},
        {"without gates, with biases", {5, 40, 24, 40, 6, 2, APR_F16, relu2, .no_gate = true, .has_biases = true}},
        {"weights on the input", {20, 40, 24, 40, 6, 1, APR_F32, silu, .weight_on_input = true}},
        {"weights on the input, with biases", {2, 40, 24, 40, 6, 2, APR_F32, silu, .weight_on_input = true, .has_biases = true}},
        {"q4_k", {3, 256, 256, 256, 3, 2, APR_Q4_K, silu, .has_biases = false}},
        {"q8_0", {33, 96, 64, 96, 4, 2, APR_Q8_0, silu, .has_biases = false}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) compare_experts(&cases[i].c, cases[i].what);
}

/* Expert e multiplies by e + 1, twice (up and down), with no activation: known sums. */
static void outputs_are_summed_by_weight(void **state)
{
    (void)state;
    float numbers[3] = {1, 2, 3}, out[1], work[16];
    const apr_tensor experts[3] = {ops_matrix(&numbers[0], 1, 1), ops_matrix(&numbers[1], 1, 1), ops_matrix(&numbers[2], 1, 1)};
    const float x[1] = {10}, routes[4] = {2, 0, 0.5f, 0.25f};
    apr_op_args args = {.experts = {.n_tokens = 1,
                                    .n_in = 1,
                                    .n_mid = 1,
                                    .n_out = 1,
                                    .n_experts = 3,
                                    .n_used = 2,
                                    .x = x,
                                    .routes = routes,
                                    .up = experts,
                                    .down = experts,
                                    .out = out,
                                    .work = {.data = work, .slice = 16, .n_threads = 1}}};
    apr_ref_backend.ops[APR_OP_EXPERTS](&args);
    assert_float_equal(out[0], 0.5 * 90 + 0.25 * 10, 1e-5);
    args.experts.glu.activation = APR_ACT_RELU2; /* now it matters on which side the weight is */
    apr_ref_backend.ops[APR_OP_EXPERTS](&args);
    assert_float_equal(out[0], 0.5 * 3 * 900 + 0.25 * 100, 1e-3);
    args.experts.weight_on_input = true;
    apr_ref_backend.ops[APR_OP_EXPERTS](&args);
    assert_float_equal(out[0], 3 * 225 + 6.25, 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_experts_are_chosen_by_their_numbers),
        cmocka_unit_test(the_gap_says_how_close_a_choice_was),
        cmocka_unit_test(scores_are_what_they_are_called),
        cmocka_unit_test(a_bias_changes_the_choice_and_not_the_weights),
        cmocka_unit_test(groups_are_left_out_by_their_top_one_or_top_two),
        cmocka_unit_test(an_expert_is_named_whatever_the_logits_are),
        cmocka_unit_test(routes_agree_over_shapes),
        cmocka_unit_test(experts_agree_over_shapes_and_kinds),
        cmocka_unit_test(outputs_are_summed_by_weight),
    };
    return cmocka_run_group_tests_name("ops_experts", tests, NULL, NULL);
}
