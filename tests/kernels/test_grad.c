/* kernels/grad.h: each operation's backward pass is the central difference of its forward pass, in float64, within 1e-6; float32 is the
 * same within its rounding, and has the same bits for any number of threads. */
#include "kernels/grad.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_THREADS = 3, MOST_CHECKED = 48 }; /* of an argument's numbers */

/* One operation in one shape. Arguments of no numbers are absent. */
typedef struct grad_case {
    const char *what;
    apr_op_kind kind;
    apr_op_args args;
    int64_t n_rows, n_positions, width_out;
    int64_t in[APR_GRAD_MAX_IN], weight[APR_GRAD_MAX_WEIGHTS]; /* numbers of each */
    bool in_is_fixed[APR_GRAD_MAX_IN];                         /* no gradient */
    int64_t n_used, n_experts;                                 /* in[1] of experts, or the output, are routes */
    bool has_rates;                                            /* weight[0] is not negative */
} grad_case;

/* The arguments of a call and their gradients: numbers of 8 bytes, of which float32 uses half. */
typedef struct grad_memory {
    double *in[APR_GRAD_MAX_IN], *weight[APR_GRAD_MAX_WEIGHTS], *d_in[APR_GRAD_MAX_IN], *d_weight[APR_GRAD_MAX_WEIGHTS];
    double *out, *d_out, *tiles, *work;
} grad_memory;

static double noise(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(*seed >> 32) * 0x1p-31;
}

static double *numbers(int64_t n, uint64_t *seed)
{
    if (n == 0) return NULL;
    double *const x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n && seed != NULL; i++) x[i] = (double)(float)noise(seed);
    return x;
}

/* Each row goes to the experts r, r + 1, ...; weights are positive. */
static void set_routes(const grad_case *g, double *routes)
{
    for (int64_t r = 0; r < g->n_rows; r++)
        for (int64_t k = 0; k < g->n_used; k++) {
            double *const row = routes + r * apr_route_row(g->n_used);
            row[k] = (double)((r * 3 + k * 2) % g->n_experts);
            row[g->n_used + k] = fabs(row[g->n_used + k]) + 0.1;
        }
}

static int64_t n_out(const grad_case *g) { return g->n_rows * g->width_out; }

/* The first n_threads threads have their share of work and tiles. */
static apr_grad_call call_of(const grad_case *g, const grad_memory *m, int n_threads)
{
    apr_grad_call c = {.args = &g->args,
                       .n_rows = g->n_rows,
                       .n_positions = g->n_positions,
                       .width_in = g->in[0] / g->n_rows,
                       .width_out = g->width_out,
                       .out = m->out,
                       .d_out = m->d_out,
                       .work = m->work,
                       .tiles = m->tiles,
                       .n_threads = n_threads};
    memcpy(c.in, m->in, sizeof c.in);
    memcpy(c.weight, m->weight, sizeof c.weight);
    for (int i = 0; i < APR_GRAD_MAX_IN; i++) c.d_in[i] = g->in_is_fixed[i] ? NULL : m->d_in[i];
    memcpy(c.d_weight, m->d_weight, sizeof c.d_weight);
    return c;
}

static grad_memory open_memory(const grad_case *g)
{
    uint64_t seed = 3;
    grad_memory m = {.out = numbers(n_out(g), NULL), .d_out = numbers(n_out(g), &seed)};

    for (int i = 0; i < APR_GRAD_MAX_IN; i++) {
        m.in[i] = numbers(g->in[i], &seed);
        m.d_in[i] = numbers(g->in[i], NULL);
    }
    for (int i = 0; i < APR_GRAD_MAX_WEIGHTS; i++) {
        m.weight[i] = numbers(g->weight[i], &seed);
        m.d_weight[i] = numbers(g->weight[i], NULL);
    }
    if (g->kind == APR_OP_EXPERTS) set_routes(g, m.in[1]);
    for (int64_t i = 0; i < g->weight[0] && g->has_rates; i++) m.weight[0][i] = fabs(m.weight[0][i]);
    m.tiles = numbers((int64_t)apr_grad_tiles() * MOST_THREADS, NULL);
    const apr_grad_call c = call_of(g, &m, MOST_THREADS);
    const apr_grad_op *const op = &apr_grad_float64.ops[g->kind];
    m.work = numbers(op->work != NULL ? (int64_t)op->work(&c) + 1 : 1, NULL);
    return m;
}

static void close_memory(grad_memory *m)
{
    for (int i = 0; i < APR_GRAD_MAX_IN; i++) {
        free(m->in[i]);
        free(m->d_in[i]);
    }
    for (int i = 0; i < APR_GRAD_MAX_WEIGHTS; i++) {
        free(m->weight[i]);
        free(m->d_weight[i]);
    }
    free(m->out);
    free(m->d_out);
    free(m->tiles);
    free(m->work);
}

/* The loss is d_out . out; of routes only the weights are numbers that follow from others. */
static bool is_route_weight(const grad_case *g, int64_t i)
{
    const int64_t at = i % apr_route_row(g->n_used);
    return at >= g->n_used && at < 2 * g->n_used;
}

static double loss_of(const grad_case *g, const grad_memory *m)
{
    const apr_grad_call c = call_of(g, m, 1);
    double sum = 0.0;
    apr_grad_float64.ops[g->kind].forward(&c);
    for (int64_t i = 0; i < n_out(g); i++)
        if (g->kind != APR_OP_ROUTE || is_route_weight(g, i)) sum += m->out[i] * m->d_out[i];
    return sum;
}

/* Compares the gradient by some numbers of an argument with differences of the loss. */
static void check_argument(const grad_case *g, const grad_memory *m, const char *kind, int index, double *x, const double *gradient,
                           int64_t n)
{
    const int64_t step = n > MOST_CHECKED ? n / MOST_CHECKED : 1;
    const double h = 1e-4;
    double square = 0.0;

    for (int64_t i = 0; i < n; i++) square += gradient[i] * gradient[i];
    for (int64_t i = 0; i < n; i += step) {
        if (g->kind == APR_OP_EXPERTS && strcmp(kind, "input") == 0 && index == 1 && !is_route_weight(g, i)) continue;
        const double there = x[i];
        x[i] = there + h;
        const double above = loss_of(g, m);
        x[i] = there - h;
        const double found = (above - loss_of(g, m)) / (2 * h);
        x[i] = there;
        const double scale = fmax(fabs(found), sqrt(square / (double)n));
        if (!(fabs(found - gradient[i]) <= 1e-6 * fmax(scale, 1e-6)))
            fail_msg("%s: %s %d, number %lld: difference %.12g, gradient %.12g", g->what, kind, index, (long long)i, found, gradient[i]);
    }
}

static void check_differences(const grad_case *g)
{
    grad_memory m = open_memory(g);
    const apr_grad_call c = call_of(g, &m, 1);

    apr_grad_float64.ops[g->kind].forward(&c);
    apr_grad_float64.ops[g->kind].backward(&c);
    for (int i = 0; i < APR_GRAD_MAX_IN; i++)
        if (g->in[i] > 0 && !g->in_is_fixed[i]) check_argument(g, &m, "input", i, m.in[i], m.d_in[i], g->in[i]);
    for (int i = 0; i < APR_GRAD_MAX_WEIGHTS; i++)
        if (g->weight[i] > 0) check_argument(g, &m, "weight", i, m.weight[i], m.d_weight[i], g->weight[i]);
    close_memory(&m);
}

/* --- float32 --- */

static void round_numbers(double *x, int64_t n)
{
    float *const to = (float *)(void *)x; /* number i is read before its place is written */
    for (int64_t i = 0; i < n; i++) {
        const float f = (float)x[i];
        memcpy(to + i, &f, sizeof f);
    }
}

static grad_memory run_float32(const grad_case *g, int n_threads)
{
    grad_memory m = open_memory(g);

    for (int i = 0; i < APR_GRAD_MAX_IN; i++) round_numbers(m.in[i], g->in[i]);
    for (int i = 0; i < APR_GRAD_MAX_WEIGHTS; i++) round_numbers(m.weight[i], g->weight[i]);
    round_numbers(m.d_out, n_out(g));
    const apr_grad_call c = call_of(g, &m, n_threads);
    apr_grad_float32.ops[g->kind].forward(&c);
    apr_grad_float32.ops[g->kind].backward(&c);
    return m;
}

static void check_same(const grad_case *g, const char *what, const double *one, const double *other, int64_t n)
{
    if (n > 0 && memcmp(one, other, (size_t)n * sizeof(float)) != 0) fail_msg("%s: %s depends on the number of threads", g->what, what);
}

static void check_near(const grad_case *g, const char *what, const double *x, const double *reference, int64_t n)
{
    double most = 1e-6, off = 0.0;
    for (int64_t i = 0; i < n; i++) {
        float f;
        memcpy(&f, (const float *)(const void *)x + i, sizeof f);
        if (g->kind == APR_OP_ROUTE && strcmp(what, "the output") == 0 && !is_route_weight(g, i)) continue;
        most = fmax(most, fabs(reference[i]));
        off = fmax(off, fabs((double)f - reference[i]));
    }
    if (!(off <= 2e-5 * most)) fail_msg("%s: %s in float32 is off by %g of %g", g->what, what, off, most);
}

static void check_float32(const grad_case *g)
{
    grad_memory one = run_float32(g, 1), other = run_float32(g, MOST_THREADS), reference = open_memory(g);
    const apr_grad_call c = call_of(g, &reference, 1);

    apr_grad_float64.ops[g->kind].forward(&c);
    apr_grad_float64.ops[g->kind].backward(&c);
    check_same(g, "the output", one.out, other.out, n_out(g));
    check_near(g, "the output", one.out, reference.out, n_out(g));
    for (int i = 0; i < APR_GRAD_MAX_IN; i++) {
        check_same(g, "an input's gradient", one.d_in[i], other.d_in[i], g->in[i]);
        check_near(g, "an input's gradient", one.d_in[i], reference.d_in[i], g->in[i]);
    }
    for (int i = 0; i < APR_GRAD_MAX_WEIGHTS; i++) {
        check_same(g, "a weight's gradient", one.d_weight[i], other.d_weight[i], g->weight[i]);
        check_near(g, "a weight's gradient", one.d_weight[i], reference.d_weight[i], g->weight[i]);
    }
    close_memory(&one);
    close_memory(&other);
    close_memory(&reference);
}

static void check_case(const grad_case *g)
{
    check_differences(g);
    check_float32(g);
}

static void check_cases(const grad_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) check_case(&cases[i]);
}
#define CHECK(cases) check_cases(cases, sizeof cases / sizeof *cases)

/* --- the operations --- */

static void lookups(void **state)
{
    (void)state;
    static const int32_t ids[6] = {3, 0, 3, 6, 3, 1};
    const grad_case cases[] = {
        {"embed", APR_OP_EMBED, {.embed = {.ids = ids}}, 6, 6, 5, .weight = {7 * 5}},
        {"positions", APR_OP_POSITIONS, {.positions = {.first = 2}}, 6, 3, 5, .weight = {5 * 5}},
    };
    CHECK(cases);
}

static void norms(void **state)
{
    (void)state;
#define NORM(...)                                         \
    {                                                     \
        .norm = {.width = 12, .eps = 1e-3f, __VA_ARGS__ } \
    }
    const grad_case cases[] = {
        {"rms", APR_OP_NORM, NORM(.kind = APR_NORM_RMS, .chunk = 12, .n_weight = 12), 5, 5, 12, {60}, {12}},
        {"rms, weight - 1", APR_OP_NORM, NORM(.kind = APR_NORM_RMS, .chunk = 12, .n_weight = 12, .offset = 1), 5, 5, 12, {60}, {12}},
        {"rms of heads", APR_OP_NORM, NORM(.kind = APR_NORM_RMS, .chunk = 4, .n_weight = 4), 5, 5, 12, {60}, {4}},
        {"rms of groups", APR_OP_NORM, NORM(.kind = APR_NORM_RMS, .chunk = 4, .n_weight = 12), 5, 5, 12, {60}, {12}},
        {"layer norm", APR_OP_NORM, NORM(.kind = APR_NORM_LAYER, .chunk = 12, .n_weight = 12), 5, 5, 12, {60}, {12, 12}},
        {"norm without weights", APR_OP_NORM, NORM(.kind = APR_NORM_LAYER, .chunk = 6, .n_weight = 6), 5, 5, 12, {60}},
        {"l2", APR_OP_NORM, NORM(.kind = APR_NORM_L2, .chunk = 6, .n_weight = 6), 5, 5, 12, {60}},
    };
    CHECK(cases);
}

/* Also rows, columns and depths that are not whole blocks of a product. */
static void products(void **state)
{
    (void)state;
#define LINEAR(...)               \
    {                             \
        .linear = { __VA_ARGS__ } \
    }
    const grad_case cases[] = {
        {"linear", APR_OP_LINEAR, LINEAR(.n_in = 7, .n_out = 9), 5, 5, 9, {35}, {63, 9}},
        {"without a bias", APR_OP_LINEAR, LINEAR(.n_in = 7, .n_out = 9), 5, 5, 9, {35}, {63}},
        {"large", APR_OP_LINEAR, LINEAR(.n_in = 150, .n_out = 140), 200, 200, 140, {200 * 150}, {140 * 150, 140}},
        {"of heads", APR_OP_LINEAR, LINEAR(.n_in = 4, .n_out = 3, .heads = {3, 8, 5}), 6, 6, 9, {6 * 12}, {24 * 4}},
        {"of heads, transposed", APR_OP_LINEAR, LINEAR(.n_in = 4, .n_out = 3, .heads = {3, 8, 2, true}), 6, 6, 9, {6 * 12}, {24 * 3}},
    };
    CHECK(cases);
}

static void heads(void **state)
{
    (void)state;
#define ROPE(...)                                            \
    {                                                        \
        .rope = {.n_heads = 2, .head_dim = 10, __VA_ARGS__ } \
    }
    const grad_case cases[] = {
        {"rope, halves", APR_OP_ROPE, ROPE(.n_freqs = 5), 4, 4, 20, {80, 40}, .in_is_fixed = {false, true}},
        {"rope, a part", APR_OP_ROPE, ROPE(.n_freqs = 3, .start = 2), 4, 4, 20, {80, 24}, .in_is_fixed = {false, true}},
        {"rope, neighbours",
         APR_OP_ROPE,
         ROPE(.n_freqs = 3, .mode = APR_ROPE_NEIGHBOURS),
         4,
         4,
         20,
         {80, 24},
         .in_is_fixed = {false, true}},
        {"slice", APR_OP_SLICE, {.slice = {.n_heads = 2, .head_dim = 5, .start = 1, .n = 3}}, 4, 4, 6, {40}},
        {"join", APR_OP_JOIN, {.join = {.n_heads = 2, .n_a = 3, .n_b = 2}}, 4, 4, 10, {24, 16}},
    };
    CHECK(cases);
}

/* Two windows of 70 tokens (more than rows are handled together), and short ones. */
static void attention(void **state)
{
    (void)state;
#define ATTEND(...)                                                                                          \
    {                                                                                                        \
        .attend = {.n_heads = 4, .n_kv_heads = 2, .key_dim = 6, .value_dim = 5, .scale = 0.7f, __VA_ARGS__ } \
    }
#define INPUTS(n)                \
    {                            \
        (n) * 24, (n)*12, (n)*10 \
    }
    const grad_case cases[] = {
        {"attention", APR_OP_ATTEND, ATTEND(0), 140, 70, 20, INPUTS(140)},
        {"with a window and sinks", APR_OP_ATTEND, ATTEND(.window = 5), 140, 70, 20, INPUTS(140), {4}},
        {"with chunks", APR_OP_ATTEND, ATTEND(.chunk = 4), 20, 10, 20, INPUTS(20)},
        {"with a cap", APR_OP_ATTEND, ATTEND(.softcap = 0.8f), 20, 10, 20, INPUTS(20), {4}},
        {"values in the keys", APR_OP_ATTEND, ATTEND(.softcap = 2.0f), 20, 10, 20, {20 * 24, 20 * 12}},
    };
    CHECK(cases);
}

static void activations(void **state)
{
    (void)state;
    for (int activation = 0; activation < APR_ACT_COUNT; activation++) {
        const apr_glu_shape shape = {.activation = (apr_activation)activation};
        const grad_case cases[] = {
            {"glu", APR_OP_GLU, {.glu = {.width = 6, .shape = shape}}, 5, 5, 6, {30, 30}},
            {"activation", APR_OP_GLU, {.glu = {.width = 6, .shape = shape}}, 5, 5, 6, {30}},
            {"gate", APR_OP_GATE, {.gate = {.n_heads = 2, .head_dim = 3, .activation = shape.activation}}, 5, 5, 6, {30, 10}},
            {"conv", APR_OP_CONV, {.conv = {.width = 3, .n_taps = 4, .activation = shape.activation}}, 12, 6, 3, {36}, {12, 3}},
        };
        CHECK(cases);
    }
    const grad_case limited = {
        "gpt-oss's", APR_OP_GLU, {.glu = {.width = 6, .shape = {.limit = 0.6f, .alpha = 1.702f, .up_offset = 1}}}, 5, 5, 6, {30, 30}};
    check_case(&limited);
}

static void a_number_at_a_time(void **state)
{
    (void)state;
    const grad_case cases[] = {
        {"scale", APR_OP_SCALE, {.scale = {.factor = 0.3f}}, 4, 4, 5, {20}},
        {"temperature", APR_OP_SCALE, {.scale = {.factor = 0.3f, .warmth = 0.1f, .shift = 1, .period = 2}}, 12, 6, 5, {60}},
        {"mul", APR_OP_MUL, {.mul = {.width = 5, .y_width = 5}}, 4, 4, 5, {20, 20}},
        {"mul by a number", APR_OP_MUL, {.mul = {.width = 5, .y_width = 1}}, 4, 4, 5, {20, 4}},
        {"mul by a vector", APR_OP_MUL, {.mul = {.width = 5, .y_width = 5, .y_is_vector = true}}, 4, 4, 5, {20}, {5}},
        {"mul by a scalar", APR_OP_MUL, {.mul = {.width = 5, .y_width = 1, .y_is_vector = true}}, 4, 4, 5, {20}, {1}},
        {"softcap", APR_OP_SOFTCAP, {.softcap = {.width = 5, .cap = 0.7f}}, 4, 4, 5, {20}},
        {"add", APR_OP_ADD, {.add = {.width = 5}}, 4, 4, 5, {20, 20}},
    };
    CHECK(cases);
}

/* Streams of hidden states as Gemma 3n predicts and corrects them, and what it adds to all but the first. */
static void streams(void **state)
{
    (void)state;
#define ALTUP(...)                                                         \
    {                                                                      \
        .altup = {.n_streams = 3, .width = 4, .scale = 0.5f, __VA_ARGS__ } \
    }
    const grad_case cases[] = {
        {"altup, predicted", APR_OP_ALTUP, ALTUP(.n_y = 3, .minus = -1), 4, 4, 12, {48, 48, 12}, {27}},
        {"altup, corrected", APR_OP_ALTUP, ALTUP(.n_y = 1, .minus = 1, .offset = 1.0f), 4, 4, 12, {48, 16, 12}, {9}},
        {"altup, added", APR_OP_ALTUP, ALTUP(.n_y = 1, .first = 1, .minus = -1, .offset = 1.0f), 4, 4, 12, {48, 16}},
        {"rescale", APR_OP_RESCALE, {.rescale = {.width = 6, .floor = 1e-5f}}, 4, 4, 6, {24, 24}},
        {"rescale of small rows", APR_OP_RESCALE, {.rescale = {.width = 6, .floor = 100.0f}}, 4, 4, 6, {24, 24}},
        {"gaussian top-k", APR_OP_GAUSS_TOPK, {.gauss_topk = {.width = 8, .factor = 0.4f}}, 4, 4, 8, {32}},
    };
    CHECK(cases);
}

static void routes(void **state)
{
    (void)state;
    for (int score = 0; score < APR_SCORE_KINDS; score++)
        for (int i = 0; i < 4; i++) {
            const apr_route_shape shape = {.score = (apr_score_kind)score,
                                           .n_experts = 8,
                                           .n_used = 3,
                                           .n_groups = i == 3 ? 4 : 0,
                                           .n_groups_used = 2,
                                           .filler = -INFINITY,
                                           .normalise = i > 0,
                                           .norm_eps = 1e-3f,
                                           .norm_min = i == 2 ? 100.0f : 0.0f,
                                           .scale = 1.5f};
            const grad_case g = {.what = "route",
                                 .kind = APR_OP_ROUTE,
                                 .args = {.route = {.shape = shape}},
                                 .n_rows = 6,
                                 .n_positions = 6,
                                 .width_out = 7,
                                 .in = {48},
                                 .weight = {i % 2 == 1 ? 8 : 0, i > 1 ? 8 : 0},
                                 .n_used = 3,
                                 .n_experts = 8};
            check_case(&g);
        }
}

static void experts(void **state)
{
    (void)state;
#define EXPERTS(...)                                                                              \
    {                                                                                             \
        .experts = {.n_in = 5, .n_mid = 6, .n_out = 4, .n_experts = 4, .n_used = 2, __VA_ARGS__ } \
    }
    const apr_glu_shape silu = {.activation = APR_ACT_SILU}, gptoss = {.limit = 0.9f, .alpha = 1.702f, .up_offset = 1};
#define SHAPE .n_rows = 7, .n_positions = 7, .width_out = 4, .in = {35, 35}, .n_used = 2, .n_experts = 4
    const grad_case cases[] = {
        {"experts", APR_OP_EXPERTS, EXPERTS(.glu = silu), SHAPE, .weight = {120, 120, 96}},
        {"experts with biases", APR_OP_EXPERTS, EXPERTS(.glu = gptoss), SHAPE, .weight = {120, 120, 96, 24, 24, 16}},
        {"experts without gates", APR_OP_EXPERTS, EXPERTS(.glu = silu), SHAPE, .weight = {0, 120, 96}},
        {"weighted inputs", APR_OP_EXPERTS, EXPERTS(.glu = silu, .weight_on_input = true), SHAPE, .weight = {120, 120, 96}},
    };
    CHECK(cases);
}

/* Two windows of 40 tokens: more than states are kept for. */
static void recurrent(void **state)
{
    (void)state;
#define DELTA(...)                                                                                                \
    {                                                                                                             \
        .delta = {.n_key_heads = 2, .n_value_heads = 4, .key_dim = 4, .value_dim = 3, .eps = 1e-3f, __VA_ARGS__ } \
    }
    const grad_case cases[] = {
        {"delta rule", APR_OP_DELTA, DELTA(0), 80, 40, 12, {80 * 28, 80 * 4, 80 * 4}, {4, 4}, .has_rates = true},
        {"delta rule, a decay a channel",
         APR_OP_DELTA,
         DELTA(.by_channel = true),
         40,
         20,
         12,
         {40 * 28, 40 * 16, 40 * 4},
         {4, 16},
         .has_rates = true},
        {"delta rule, bounded decays",
         APR_OP_DELTA,
         DELTA(.by_channel = true, .floor = -5.0f),
         20,
         10,
         12,
         {20 * 28, 20 * 16, 20 * 4},
         {4, 16},
         .has_rates = true},
        {"delta rule, tiled", APR_OP_DELTA, DELTA(.tiled = true), 20, 10, 12, {20 * 28, 20 * 4, 20 * 4}, {4, 4}, .has_rates = true},
        {"ssd",
         APR_OP_SSD,
         {.ssd = {.n_heads = 4, .head_dim = 3, .n_groups = 2, .state_dim = 5}},
         80,
         40,
         12,
         {80 * 32, 320},
         {4, 4, 4},
         .has_rates = true},
    };
    CHECK(cases);
}

/* --- the loss --- */

enum { ROWS = 3, WIDTH = 40 };

static void fill_rows(float *teacher, double *student)
{
    uint64_t seed = 9;
    for (int i = 0; i < ROWS * WIDTH; i++) {
        teacher[i] = 4.0f * (float)noise(&seed);
        student[i] = 4.0 * noise(&seed);
    }
    teacher[5] = -INFINITY;
}

static void the_loss(void **state)
{
    (void)state;
    static float teacher[ROWS * WIDTH], same[ROWS * WIDTH];
    static double student[ROWS * WIDTH], gradient[ROWS * WIDTH];
    double kl[ROWS];

    fill_rows(teacher, student);
    memcpy(gradient, student, sizeof gradient);
    apr_grad_float64.divergence(teacher, gradient, ROWS, WIDTH, 0.25, true, kl, 2);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        const double there = student[i], h = 1e-4;
        static double moved[ROWS * WIDTH];
        double sums[2] = {0};
        for (int side = 0; side < 2; side++) {
            memcpy(moved, student, sizeof moved);
            moved[i] = there + (side == 0 ? h : -h);
            apr_grad_float64.divergence(teacher, moved, ROWS, WIDTH, 0.25, false, kl, 1);
            for (int r = 0; r < ROWS; r++) sums[side] += 0.25 * kl[r];
        }
        assert_true(fabs((sums[0] - sums[1]) / (2 * h) - gradient[i]) <= 1e-6 * 0.25);
    }
    memcpy(same, teacher, sizeof same);
    same[5] = teacher[5] = 0.5f;
    apr_grad_float32.divergence(teacher, same, ROWS, WIDTH, 1.0, false, kl, 1);
    for (int r = 0; r < ROWS; r++) assert_true(kl[r] == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookups),   cmocka_unit_test(norms),       cmocka_unit_test(products),           cmocka_unit_test(heads),
        cmocka_unit_test(attention), cmocka_unit_test(activations), cmocka_unit_test(a_number_at_a_time), cmocka_unit_test(streams),
        cmocka_unit_test(routes),    cmocka_unit_test(experts),     cmocka_unit_test(recurrent),          cmocka_unit_test(the_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
