/* kernels/host: the same numbers, to the last bit, with any number of threads; sizes that are worth several (formats/base/threads.h). */
#include "formats/base/threads.h"
#include "tests/support/ops_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Where an operation's arguments have what differs from run to run. */
typedef struct threaded {
    apr_op_kind kind;
    apr_op_args *args;
    float **out;
    int64_t n_out;
    apr_workspace *work; /* of `slice` floats a thread; NULL: then n_threads */
    size_t slice;
    int *n_threads;
    float **state; /* NULL: none */
    int64_t n_state;
} threaded;

/* The output, followed by the final state. */
static float *run_with(const threaded *t, int n_threads)
{
    float *const out = *t->out = malloc((size_t)(t->n_out + t->n_state) * sizeof *out), *const after = out + t->n_out;
    float *const before = t->state != NULL ? *t->state : NULL;

    assert_non_null(out);
    for (int64_t i = 0; i < t->n_out; i++) out[i] = NAN;
    if (t->work != NULL) *t->work = ops_workspace(t->slice, n_threads);
    else *t->n_threads = n_threads;
    if (before != NULL) *t->state = memcpy(after, before, (size_t)t->n_state * sizeof *before);
    apr_host_backend.ops[t->kind](t->args);
    if (t->work != NULL) free(t->work->data);
    if (before != NULL) *t->state = before;
    return out;
}

static void check(const threaded *t)
{
    float *const alone = run_with(t, 1);
    for (int64_t i = 0; i < t->n_out + t->n_state; i++) assert_true(isfinite(alone[i]));
    for (int n_threads = 2; n_threads <= 5; n_threads += 3) {
        float *const together = run_with(t, n_threads);
        assert_memory_equal(alone, together, (size_t)(t->n_out + t->n_state) * sizeof *alone);
        free(together);
    }
    free(alone);
}

static void products_are_the_same(void **state)
{
    (void)state;
    enum { ROWS = 521, COLUMNS = 512 };
    static const apr_dtype dtypes[] = {APR_F32, APR_BF16, APR_Q8_0, APR_Q4_K};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int64_t n_tokens = 1; n_tokens <= 9; n_tokens += 4) {
            const apr_tensor weight = ops_matrix_of(dtypes[d], ROWS, COLUMNS);
            float *const x = ops_noises(n_tokens * COLUMNS);
            apr_op_args args = {.linear = {.n_tokens = n_tokens, .n_in = COLUMNS, .n_out = ROWS, .x = x, .weight = &weight}};
            check(&(threaded){.kind = APR_OP_LINEAR,
                              .args = &args,
                              .out = &args.linear.out,
                              .n_out = n_tokens * ROWS,
                              .work = &args.linear.work,
                              .slice = apr_linear_slice(COLUMNS)});
            free(x);
            free((void *)(uintptr_t)weight.data);
        }
}

static void products_of_heads_are_the_same(void **state)
{
    (void)state;
    enum { HEADS = 7, IN = 128, OUT = 96, TOKENS = 5 };
    const apr_tensor weight = ops_matrix_of(APR_Q8_0, HEADS * OUT, IN);
    float *const x = ops_noises(TOKENS * HEADS * IN);
    apr_op_args args = {
        .linear = {.n_tokens = TOKENS, .n_in = IN, .n_out = OUT, .heads = {.n = HEADS, .rows = OUT}, .x = x, .weight = &weight}};
    check(&(threaded){.kind = APR_OP_LINEAR,
                      .args = &args,
                      .out = &args.linear.out,
                      .n_out = TOKENS * HEADS * OUT,
                      .work = &args.linear.work,
                      .slice = apr_linear_slice(IN)});
    free(x);
    free((void *)(uintptr_t)weight.data);
}

static void attention_is_the_same(void **state)
{
    (void)state;
    enum { DIM = 64, MOST_TOKENS = 40, MOST_CELLS = 1600, MOST_HEADS = 40, MOST_KV_HEADS = 4 };
    static const struct {
        int64_t n_heads, n_kv_heads, position, n_tokens, window;
    } cases[] = {{8, 1, 1500, 1, 0}, {40, 1, 900, 1, 0}, {12, 4, 1000, 2, 0}, {4, 1, 300, 40, 0}, {8, 2, 1100, 3, 600}};
    const int64_t row_bytes = apr_row_bytes(APR_F16, DIM), n_numbers = MOST_CELLS * MOST_KV_HEADS * DIM;
    uint8_t *const cells = malloc((size_t)apr_row_bytes(APR_F16, n_numbers));
    float *const numbers = ops_noises(n_numbers), *const q = ops_noises(MOST_TOKENS * MOST_HEADS * DIM);
    float *const shared = malloc(apr_attend_shared(DIM) * sizeof *shared);
    assert_true(cells != NULL && shared != NULL);
    apr_ref_codecs[APR_F16].encode(numbers, cells, n_numbers);
    const apr_cache cache = {.dtype = APR_F16, .data = cells, .n_cells = MOST_CELLS, .row_bytes = row_bytes};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_op_args args = {.attend = {.n_tokens = cases[i].n_tokens,
                                       .position = cases[i].position,
                                       .n_heads = cases[i].n_heads,
                                       .n_kv_heads = cases[i].n_kv_heads,
                                       .key_dim = DIM,
                                       .value_dim = DIM,
                                       .window = cases[i].window,
                                       .scale = 0.5f,
                                       .q = q,
                                       .keys = cache,
                                       .values = cache,
                                       .shared = shared}};
        check(&(threaded){.kind = APR_OP_ATTEND,
                          .args = &args,
                          .out = &args.attend.out,
                          .n_out = cases[i].n_tokens * cases[i].n_heads * DIM,
                          .work = &args.attend.work,
                          .slice = apr_attend_slice(DIM)});
    }
    free(cells);
    free(numbers);
    free(q);
    free(shared);
}

static void gated_units_are_the_same(void **state)
{
    (void)state;
    enum { TOKENS = 3, WIDTH = 7001 };
    float *const gate = ops_noises(TOKENS * WIDTH), *const up = ops_noises(TOKENS * WIDTH);
    apr_op_args args = {.glu = {.n_tokens = TOKENS, .width = WIDTH, .shape = {.activation = APR_ACT_SILU}, .gate = gate, .up = up}};
    check(&(threaded){.kind = APR_OP_GLU, .args = &args, .out = &args.glu.out, .n_out = TOKENS * WIDTH, .n_threads = &args.glu.n_threads});
    free(gate);
    free(up);
}

static float *routes_of(int64_t n_tokens, int64_t n_experts, int64_t n_used)
{
    float *const logits = ops_noises(n_tokens * n_experts);
    apr_op_args args = {
        .route = {.n_tokens = n_tokens, .shape = {.n_experts = n_experts, .n_used = n_used, .scale = 1.0f}, .logits = logits}};
    const threaded routes = {.kind = APR_OP_ROUTE,
                             .args = &args,
                             .out = &args.route.out,
                             .n_out = n_tokens * apr_route_row(n_used),
                             .work = &args.route.work,
                             .slice = apr_route_slice(n_experts)};
    check(&routes);
    float *const chosen = run_with(&routes, 3);
    free(logits);
    return chosen;
}

static void routes_and_experts_are_the_same(void **state)
{
    (void)state;
    enum { TOKENS = 128, EXPERTS = 4, USED = 2, IN = 64, MID = 192, OUT = 96 };
    float *const x = ops_noises(TOKENS * IN), *const shared = malloc(apr_experts_shared(TOKENS, IN, MID, OUT) * sizeof *shared);
    float *const chosen = routes_of(TOKENS, EXPERTS, USED);
    apr_tensor gate[EXPERTS], up[EXPERTS], down[EXPERTS];

    assert_non_null(shared);
    free(routes_of(300, 64, 8));
    for (int e = 0; e < EXPERTS; e++) {
        gate[e] = ops_matrix_of(APR_Q8_0, MID, IN);
        up[e] = ops_matrix_of(APR_Q8_0, MID, IN);
        down[e] = ops_matrix_of(APR_F16, OUT, MID);
    }
    apr_op_args args = {.experts = {.n_tokens = TOKENS,
                                    .n_in = IN,
                                    .n_mid = MID,
                                    .n_out = OUT,
                                    .n_experts = EXPERTS,
                                    .n_used = USED,
                                    .glu = {.activation = APR_ACT_SILU},
                                    .x = x,
                                    .routes = chosen,
                                    .gate = gate,
                                    .up = up,
                                    .down = down,
                                    .shared = shared}};
    check(&(threaded){.kind = APR_OP_EXPERTS,
                      .args = &args,
                      .out = &args.experts.out,
                      .n_out = TOKENS * OUT,
                      .work = &args.experts.work,
                      .slice = apr_linear_slice(MID)});
    for (int e = 0; e < EXPERTS; e++) {
        free((void *)(uintptr_t)gate[e].data);
        free((void *)(uintptr_t)up[e].data);
        free((void *)(uintptr_t)down[e].data);
    }
    free(x);
    free(shared);
    free(chosen);
}

/* Rates of decay: positive. */
static float *rates(int64_t n)
{
    float *const x = ops_noises(n);
    for (int64_t i = 0; i < n; i++) x[i] = expf(x[i]);
    return x;
}

static void the_delta_rule_is_the_same(void **state)
{
    (void)state;
    enum { TOKENS = 70, KEY_HEADS = 2, HEADS = 6, DIM = 32, N_STATE = HEADS * DIM * DIM };
    float *const qkv = ops_noises(TOKENS * (2 * KEY_HEADS + HEADS) * DIM), *const a = ops_noises(TOKENS * HEADS);
    float *const b = ops_noises(TOKENS * HEADS), *const rate = rates(HEADS), *const dt_bias = ops_noises(HEADS);
    float *const before = ops_noises(N_STATE);
    apr_op_args args = {.delta = {.n_tokens = TOKENS,
                                  .n_key_heads = KEY_HEADS,
                                  .n_value_heads = HEADS,
                                  .key_dim = DIM,
                                  .value_dim = DIM,
                                  .eps = 1e-6f,
                                  .qkv = qkv,
                                  .a = a,
                                  .b = b,
                                  .rate = rate,
                                  .dt_bias = dt_bias,
                                  .state = before}};
    check(&(threaded){.kind = APR_OP_DELTA,
                      .args = &args,
                      .out = &args.delta.out,
                      .n_out = TOKENS * HEADS * DIM,
                      .work = &args.delta.work,
                      .slice = apr_delta_slice(DIM, DIM),
                      .state = &args.delta.state,
                      .n_state = N_STATE});
    for (float **f = (float *[]){qkv, a, b, rate, dt_bias, before, NULL}; *f != NULL; f++) free(*f);
}

static void state_space_duality_is_the_same(void **state)
{
    (void)state;
    enum { TOKENS = 70, HEADS = 6, DIM = 16, GROUPS = 2, STATE = 32, N_STATE = HEADS * DIM * STATE };
    float *const xbc = ops_noises(TOKENS * (HEADS * DIM + 2 * GROUPS * STATE)), *const dt = ops_noises(TOKENS * HEADS);
    float *const rate = rates(HEADS), *const dt_bias = ops_noises(HEADS), *const skip = ops_noises(HEADS);
    float *const before = ops_noises(N_STATE);
    apr_op_args args = {.ssd = {.n_tokens = TOKENS,
                                .n_heads = HEADS,
                                .head_dim = DIM,
                                .n_groups = GROUPS,
                                .state_dim = STATE,
                                .xbc = xbc,
                                .dt = dt,
                                .rate = rate,
                                .dt_bias = dt_bias,
                                .skip = skip,
                                .state = before}};
    check(&(threaded){.kind = APR_OP_SSD,
                      .args = &args,
                      .out = &args.ssd.out,
                      .n_out = TOKENS * HEADS * DIM,
                      .n_threads = &args.ssd.n_threads,
                      .state = &args.ssd.state,
                      .n_state = N_STATE});
    for (float **f = (float *[]){xbc, dt, rate, dt_bias, skip, before, NULL}; *f != NULL; f++) free(*f);
}

static void convolutions_are_the_same(void **state)
{
    (void)state;
    enum { TOKENS = 50, WIDTH = 200, TAPS = 4 };
    float *const x = ops_noises(TOKENS * WIDTH), *const weight = ops_noises(WIDTH * TAPS), *const before = ops_noises(WIDTH * (TAPS - 1));
    apr_op_args args = {.conv = {.n_tokens = TOKENS, .width = WIDTH, .n_taps = TAPS, .x = x, .weight = weight, .state = before}};
    check(&(threaded){.kind = APR_OP_CONV,
                      .args = &args,
                      .out = &args.conv.out,
                      .n_out = TOKENS * WIDTH,
                      .n_threads = &args.conv.n_threads,
                      .state = &args.conv.state,
                      .n_state = WIDTH * (TAPS - 1)});
    free(x);
    free(weight);
    free(before);
}

/* 67 rows of 2,304 numbers, eight heads of 288 each: more than one thread's work. */
enum { PROMPT = 67, WIDE = 2304, PROMPT_HEADS = 8 };

static void check_rows(apr_op_kind kind, apr_op_args *args, float **out, int *n_threads)
{
    check(&(threaded){.kind = kind, .args = args, .out = out, .n_out = PROMPT * WIDE, .n_threads = n_threads});
}

static void norms_are_the_same(void **state)
{
    (void)state;
    float *const x = ops_noises(PROMPT * WIDE), *const weight = ops_noises(WIDE);
    for (int kind = 0; kind < APR_NORM_KINDS; kind++)
        for (int64_t chunk = WIDE / PROMPT_HEADS; chunk <= WIDE; chunk *= PROMPT_HEADS) {
            apr_op_args args = {.norm = {.kind = (apr_norm_kind)kind, .n_tokens = PROMPT, .width = WIDE, .chunk = chunk}};
            args.norm.n_weight = WIDE;
            args.norm.eps = 1e-6f;
            args.norm.x = x;
            args.norm.weight = weight;
            check_rows(APR_OP_NORM, &args, &args.norm.out, &args.norm.n_threads);
        }
    free(x);
    free(weight);
}

static void rotations_are_the_same(void **state)
{
    (void)state;
    enum { DIM = WIDE / PROMPT_HEADS, FREQS = 100 };
    float *const x = ops_noises(PROMPT * WIDE), *const angles = ops_noises(PROMPT * 2 * FREQS);
    for (int mode = APR_ROPE_HALVES; mode <= APR_ROPE_NEIGHBOURS; mode++) {
        apr_op_args args = {.rope = {.n_tokens = PROMPT, .n_heads = PROMPT_HEADS, .head_dim = DIM, .n_freqs = FREQS, .start = 40}};
        args.rope.mode = (apr_rope_mode)mode;
        args.rope.x = x;
        args.rope.angles = angles;
        check_rows(APR_OP_ROPE, &args, &args.rope.out, &args.rope.n_threads);
    }
    free(x);
    free(angles);
}

static void what_is_done_number_by_number_is_the_same(void **state)
{
    (void)state;
    float *const x = ops_noises(PROMPT * WIDE), *const y = ops_noises(PROMPT * WIDE);
    apr_op_args add = {.add = {.n_tokens = PROMPT, .width = WIDE, .a = x, .b = y}};
    apr_op_args softcap = {.softcap = {.n_tokens = 1, .width = PROMPT * WIDE, .cap = 3.0f, .x = x}};
    apr_op_args scale = {
        .scale = {.n_tokens = PROMPT, .width = WIDE, .position = 5, .factor = 2.0f, .warmth = 0.5f, .period = 9.0f, .x = x}};
    check_rows(APR_OP_ADD, &add, &add.add.out, &add.add.n_threads);
    check_rows(APR_OP_SOFTCAP, &softcap, &softcap.softcap.out, &softcap.softcap.n_threads);
    check_rows(APR_OP_SCALE, &scale, &scale.scale.out, &scale.scale.n_threads);
    for (int64_t n_heads = 1; n_heads <= WIDE; n_heads *= 48) {
        apr_op_args gate = {.gate = {.n_tokens = PROMPT, .n_heads = n_heads, .head_dim = WIDE / n_heads, .x = x, .gate = y}};
        gate.gate.activation = APR_ACT_SIGMOID;
        check_rows(APR_OP_GATE, &gate, &gate.gate.out, &gate.gate.n_threads);
    }
    for (int form = 0; form < 4; form++) {
        apr_op_args mul = {.mul = {.n_tokens = PROMPT, .width = WIDE, .y_is_vector = form / 2 == 1, .x = x, .y = y}};
        mul.mul.y_width = form % 2 == 1 ? 1 : WIDE;
        check_rows(APR_OP_MUL, &mul, &mul.mul.out, &mul.mul.n_threads);
    }
    free(x);
    free(y);
}

/* Gemma 3n's operations, whose rows are tokens. */
static void streams_are_the_same(void **state)
{
    (void)state;
    enum { STREAMS = 4, EACH = WIDE / STREAMS };
    float *const x = ops_noises(PROMPT * WIDE), *const y = ops_noises(PROMPT * WIDE);
    float *const coefs = ops_noises(STREAMS * STREAMS * STREAMS);
    apr_op_args altup = {.altup = {.n_tokens = PROMPT, .n_streams = STREAMS, .n_y = 1, .width = EACH, .minus = 1, .scale = 0.5f, .x = x}};
    altup.altup.y = altup.altup.routed = y;
    altup.altup.coefs = coefs;
    check_rows(APR_OP_ALTUP, &altup, &altup.altup.out, &altup.altup.n_threads);
    apr_op_args rescale = {.rescale = {.n_tokens = PROMPT, .width = WIDE, .floor = 1e-5f, .x = x, .like = y}};
    check_rows(APR_OP_RESCALE, &rescale, &rescale.rescale.out, &rescale.rescale.n_threads);
    apr_op_args topk = {.gauss_topk = {.n_tokens = PROMPT, .width = WIDE, .factor = 0.5f, .x = x}};
    check_rows(APR_OP_GAUSS_TOPK, &topk, &topk.gauss_topk.out, &topk.gauss_topk.n_threads);
    free(x);
    free(y);
    free(coefs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_the_same),
        cmocka_unit_test(products_of_heads_are_the_same),
        cmocka_unit_test(attention_is_the_same),
        cmocka_unit_test(gated_units_are_the_same),
        cmocka_unit_test(routes_and_experts_are_the_same),
        cmocka_unit_test(the_delta_rule_is_the_same),
        cmocka_unit_test(state_space_duality_is_the_same),
        cmocka_unit_test(convolutions_are_the_same),
        cmocka_unit_test(norms_are_the_same),
        cmocka_unit_test(rotations_are_the_same),
        cmocka_unit_test(what_is_done_number_by_number_is_the_same),
        cmocka_unit_test(streams_are_the_same),
    };
    return cmocka_run_group_tests_name("operations on several threads", tests, NULL, NULL);
}
