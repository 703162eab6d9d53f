/* kernels/op_args.h: parts of heads, factors, caps and gates: known values, and host against reference, in place or not. */
#include "tests/support/ops_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 3, HEADS = 5, HEAD = 21, WIDTH = HEADS * HEAD };

static void run(apr_op_kind kind, apr_op_args args) { apr_ref_backend.ops[kind](&args); }

static void a_slice_is_a_range_of_every_head(void **state)
{
    (void)state;
    const float x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    float out[4];
    run(APR_OP_SLICE, (apr_op_args){.slice = {.n_tokens = 1, .n_heads = 2, .head_dim = 4, .start = 1, .n = 2, .x = x, .out = out}});
    assert_true(out[0] == 1 && out[1] == 2 && out[2] == 5 && out[3] == 6);
}

static void joined_heads_are_split_again(void **state)
{
    (void)state;
    float *const a = ops_noises(TOKENS * HEADS * 4), *const b = ops_noises(TOKENS * HEADS * 7), *back = ops_noises(TOKENS * HEADS * 7);
    apr_op_args args = {.join = {.n_tokens = TOKENS, .n_heads = HEADS, .n_a = 4, .n_b = 7, .a = a, .b = b}};
    ops_compare(APR_OP_JOIN, &args, &args.join.out, TOKENS * HEADS * 11, 0.0, "");
    float *const both = ops_noises(TOKENS * HEADS * 11);
    args.join.out = both;
    run(APR_OP_JOIN, args);
    args = (apr_op_args){.slice = {.n_tokens = TOKENS, .n_heads = HEADS, .head_dim = 11, .start = 4, .n = 7, .x = both, .out = back}};
    run(APR_OP_SLICE, args);
    assert_memory_equal(back, b, TOKENS * HEADS * 7 * sizeof *b);
    ops_compare(APR_OP_SLICE, &args, &args.slice.out, TOKENS * HEADS * 7, 0.0, "");
    free(a);
    free(b);
    free(back);
    free(both);
}

/* Llama 4: 1 + 0.1 ln(1 + floor((p + 1) / 8192)). */
static void queries_get_warmer_with_their_position(void **state)
{
    (void)state;
    const float x[4] = {2, 2, 2, 2};
    float out[4];
    apr_scale_args a = {.n_tokens = 2, .width = 2, .position = 8190, .factor = 0.5f, .x = x, .out = out};
    run(APR_OP_SCALE, (apr_op_args){.scale = a});
    assert_true(out[0] == 1.0f && out[3] == 1.0f);
    a.warmth = 0.1f, a.shift = 1.0f, a.period = 8192.0f;
    run(APR_OP_SCALE, (apr_op_args){.scale = a});
    assert_true(out[0] == 1.0f && out[1] == 1.0f);
    assert_float_equal(out[2], 1.0 + 0.1 * log(2.0), 1e-6);
}

static void a_cap_is_never_passed(void **state)
{
    (void)state;
    const float x[3] = {1e6f, -1e6f, 0.5f};
    float out[3];
    run(APR_OP_SOFTCAP, (apr_op_args){.softcap = {.n_tokens = 1, .width = 3, .cap = 30.0f, .x = x, .out = out}});
    assert_true(out[0] == 30.0f && out[1] == -30.0f);
    assert_float_equal(out[2], 30.0 * tanh(0.5 / 30.0), 1e-6);
}

static void a_gate_is_of_a_head_a_number_or_the_row(void **state)
{
    (void)state;
    const float x[4] = {1, 2, 3, 4}, gate[4] = {0, 100, -100, 0};
    float out[4];
    apr_gate_args a = {.n_tokens = 1, .n_heads = 2, .head_dim = 2, .activation = APR_ACT_SIGMOID, .x = x, .gate = gate, .out = out};
    run(APR_OP_GATE, (apr_op_args){.gate = a});
    assert_true(out[0] == 0.5f && out[1] == 1.0f && out[2] == 3.0f && out[3] == 4.0f);
    a.n_heads = 4, a.head_dim = 1;
    run(APR_OP_GATE, (apr_op_args){.gate = a});
    assert_true(out[0] == 0.5f && out[1] == 2.0f && out[2] == 0.0f && out[3] == 2.0f);
    a.n_heads = 1, a.head_dim = 4;
    run(APR_OP_GATE, (apr_op_args){.gate = a});
    assert_true(out[3] == 2.0f);
}

static void factors_are_rows_or_a_vector_wide_or_one_number(void **state)
{
    (void)state;
    const float x[4] = {1, 2, 3, 4}, y[4] = {10, 100, 1000, 10000};
    static const struct {
        int64_t y_width;
        bool is_vector;
        float expected[4];
    } cases[] = {
        {2, false, {10, 200, 3000, 40000}}, {2, true, {10, 200, 30, 400}}, {1, false, {10, 20, 300, 400}}, {1, true, {10, 20, 30, 40}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float out[4];
        run(APR_OP_MUL, (apr_op_args){.mul = {.n_tokens = 2,
                                              .width = 2,
                                              .y_width = cases[i].y_width,
                                              .y_is_vector = cases[i].is_vector,
                                              .x = x,
                                              .y = y,
                                              .out = out}});
        for (int j = 0; j < 4; j++) assert_true(out[j] == cases[i].expected[j]);
    }
}

/* Each of them may write over its input, and gives the same numbers then. */
static void what_may_work_in_place_does(void **state)
{
    (void)state;
    float *const x = ops_noises(TOKENS * WIDTH), *const y = ops_noises(TOKENS * WIDTH), *const out = ops_noises(TOKENS * WIDTH);
    float *const same = ops_noises(TOKENS * WIDTH);
    const struct {
        apr_op_kind kind;
        apr_op_args args;
        size_t x, out; /* where the arguments have them */
    } cases[] = {
#define PLACES(id) offsetof(apr_op_args, id.x), offsetof(apr_op_args, id.out)
        {APR_OP_SCALE,
         {.scale = {.n_tokens = TOKENS, .width = WIDTH, .position = 5, .factor = 3, .warmth = 1, .period = 2}},
         PLACES(scale)},
        {APR_OP_MUL, {.mul = {.n_tokens = TOKENS, .width = WIDTH, .y_width = WIDTH, .y = y}}, PLACES(mul)},
        {APR_OP_SOFTCAP, {.softcap = {.n_tokens = TOKENS, .width = WIDTH, .cap = 0.5f}}, PLACES(softcap)},
        {APR_OP_GATE,
         {.gate = {.n_tokens = TOKENS, .n_heads = HEADS, .head_dim = HEAD, .activation = APR_ACT_SOFTPLUS, .gate = y}},
         PLACES(gate)},
        {APR_OP_NORM,
         {.norm = {.kind = APR_NORM_LAYER, .n_tokens = TOKENS, .width = WIDTH, .chunk = HEAD, .n_weight = HEAD}},
         PLACES(norm)},
        {APR_OP_RESCALE, {.rescale = {.n_tokens = TOKENS, .width = WIDTH, .like = y}}, PLACES(rescale)},
        {APR_OP_GAUSS_TOPK, {.gauss_topk = {.n_tokens = TOKENS, .width = WIDTH, .factor = 0.5f}}, PLACES(gauss_topk)},
#undef PLACES
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int b = 0; b < 2; b++) {
            const apr_backend *const backend = b == 0 ? &apr_ref_backend : &apr_host_backend;
            apr_op_args args = cases[i].args;
            const float **const from = (const float **)(void *)((char *)&args + cases[i].x);
            float **const to = (float **)(void *)((char *)&args + cases[i].out);
            memcpy(same, x, TOKENS * WIDTH * sizeof *x);
            *from = x, *to = out;
            backend->ops[cases[i].kind](&args);
            *from = *to = same;
            backend->ops[cases[i].kind](&args);
            assert_memory_equal(out, same, TOKENS * WIDTH * sizeof *out);
        }
    free(x);
    free(y);
    free(out);
    free(same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slice_is_a_range_of_every_head),
        cmocka_unit_test(joined_heads_are_split_again),
        cmocka_unit_test(queries_get_warmer_with_their_position),
        cmocka_unit_test(a_cap_is_never_passed),
        cmocka_unit_test(a_gate_is_of_a_head_a_number_or_the_row),
        cmocka_unit_test(factors_are_rows_or_a_vector_wide_or_one_number),
        cmocka_unit_test(what_may_work_in_place_does),
    };
    return cmocka_run_group_tests_name("ops_ranges", tests, NULL, NULL);
}
