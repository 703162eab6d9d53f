/* kernels/ops.h: the host's operations give what the reference gives, over odd shapes and every dtype of weights. */
#include "kernels/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 1;

/* uniform in [-1, 1) */
static float noise(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

/* Exact size, so that a sanitizer sees the end. */
static float *noise_floats(int64_t n)
{
    float *const x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = noise();
    return x;
}

static apr_workspace workspace(size_t slice, int n_threads)
{
    const apr_workspace work = {.data = malloc(slice * (size_t)n_threads * sizeof(float)), .slice = slice, .n_threads = n_threads};
    assert_non_null(work.data);
    return work;
}

/* Runs an operation on both backends into fresh outputs of n numbers and compares; *out is where the arguments say it goes. */
static void compare(apr_op_kind kind, apr_op_args *args, float **out, int64_t n, double bound, const char *what)
{
    float *results[2];
    const apr_backend *const backends[2] = {&apr_ref_backend, &apr_host_backend};

    for (int b = 0; b < 2; b++) {
        *out = results[b] = malloc((size_t)n * sizeof **out);
        assert_non_null(results[b]);
        for (int64_t i = 0; i < n; i++) results[b][i] = NAN; /* what is not written shows */
        backends[b]->ops[kind](args);
    }
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)results[0][i] - (double)results[1][i]) <= bound))
            fail_msg("%s %s: number %lld is %.9g, not %.9g", apr_op_name(kind), what, (long long)i, (double)results[1][i],
                     (double)results[0][i]);
    free(results[0]);
    free(results[1]);
}

static void compare_linear(const apr_tensor *weight, const float *bias, int64_t n_tokens, int n_threads, double bound, const char *what)
{
    const int64_t n_in = apr_tensor_columns(weight), n_out = apr_tensor_rows(weight);
    float *const x = noise_floats(n_tokens * n_in);
    apr_op_args args = {.linear = {.n_tokens = n_tokens, .n_in = n_in, .n_out = n_out, .x = x, .weight = weight, .bias = bias}};

    args.linear.work = workspace(apr_linear_slice(n_in), n_threads);
    compare(APR_OP_LINEAR, &args, &args.linear.out, n_tokens * n_out, bound, what);
    free(args.linear.work.data);
    free(x);
}

static void linear_agrees_over_shapes(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {/* n_in, n_out, n_tokens */
                                        {1, 1, 1},    {16, 1, 1},   {17, 3, 5},   {15, 33, 4},  {64, 16, 64}, {100, 7, 9},
                                        {256, 65, 1}, {257, 64, 3}, {512, 5, 17}, {48, 130, 2}, {31, 31, 31}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t n_in = shapes[i][0], n_out = shapes[i][1], n_tokens = shapes[i][2];
        float *const w = noise_floats(n_in * n_out), *const bias = noise_floats(n_out);
        const apr_tensor weight = {.name = "w",
                                   .dtype = APR_F32,
                                   .rank = 2,
                                   .dims = {n_out, n_in},
                                   .data = (const uint8_t *)w,
                                   .n_bytes = (uint64_t)(n_in * n_out * 4)};
        char what[64];
        snprintf(what, sizeof what, "[%lld, %lld] x %lld", (long long)n_out, (long long)n_in, (long long)n_tokens);
        /* sums of n_in products below 1: two orders differ by less than n_in * 2^-23 * the largest partial sum, about sqrt(n_in) */
        compare_linear(&weight, NULL, n_tokens, 1, (double)n_in * 1.2e-7 * 3, what);
        compare_linear(&weight, bias, n_tokens, 3, (double)n_in * 1.2e-7 * 3 + 1e-6, what);
        free(w);
        free(bias);
    }
}

/* Bytes that decode to finite numbers of moderate size: encoded noise, or small random bytes with the scale bytes tamed. */
static void fill_weight(apr_tensor *weight, uint8_t *data)
{
    const int64_t n = apr_tensor_elems(weight);
    if (apr_can_encode(weight->dtype)) {
        float *const x = noise_floats(n);
        apr_ref_codecs[weight->dtype].encode(x, data, n);
        free(x);
        return;
    }
    /* every byte below 0x38: halves below 0.5, bf16 below 1e-5, no NaN anywhere */
    for (uint64_t i = 0; i < weight->n_bytes; i++) data[i] = (uint8_t)((noise() + 1.0f) * 0.5f * 0x37);
}

static double largest_magnitude(const apr_tensor *weight)
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

static void linear_agrees_for_every_dtype_of_weights(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < APR_DTYPE_COUNT; dtype++) {
        if (!apr_can_decode((apr_dtype)dtype) || dtype == APR_C64) continue;
        if (!apr_dtype_is_float((apr_dtype)dtype) && !apr_dtype_is_quantized((apr_dtype)dtype)) continue;
        apr_tensor weight = {.name = "w", .dtype = (apr_dtype)dtype, .rank = 2, .dims = {37, 512}};
        assert_int_equal(apr_tensor_size(&weight, "test", NULL), APR_OK);
        uint8_t *const data = malloc((size_t)weight.n_bytes);
        assert_non_null(data);
        weight.data = data;
        fill_weight(&weight, data);
        const double bound = 512 * 1.2e-7 * 3 * fmax(largest_magnitude(&weight), 1e-30);
        compare_linear(&weight, NULL, 1, 2, bound, apr_dtypes[dtype].name);
        compare_linear(&weight, NULL, 6, 2, bound, apr_dtypes[dtype].name);
        free(data);
    }
}

static void linear_takes_pending_steps_and_fp8_scales_into_account(void **state)
{
    (void)state;
    float *const plain = noise_floats(24 * 32);
    apr_tensor weight = {
        .name = "w", .dtype = APR_F32, .rank = 2, .dims = {24, 32}, .data = (const uint8_t *)plain, .n_bytes = 24 * 32 * 4};
    weight.pending = (apr_step){APR_STEP_PAIRS_TO_HALVES, {3}};
    compare_linear(&weight, NULL, 5, 2, 1e-4, "with a pending step");

    uint8_t *const codes = malloc(20 * 40);
    float *const scales = noise_floats(3 * 3);
    assert_non_null(codes);
    for (int i = 0; i < 20 * 40; i++) codes[i] = (uint8_t)(0x20 + i * 7 % 0x20);
    const apr_tensor scale = {.name = "s", .dtype = APR_F32, .rank = 2, .dims = {3, 3}, .data = (const uint8_t *)scales, .n_bytes = 36};
    const apr_tensor fp8 = {.name = "w",
                            .dtype = APR_F8_E4M3,
                            .rank = 2,
                            .dims = {20, 40},
                            .data = codes,
                            .n_bytes = 800,
                            .scale = &scale,
                            .scale_rows = 8,
                            .scale_columns = 16};
    compare_linear(&fp8, NULL, 4, 1, 1e-4, "with blocks of scales");
    free(plain);
    free(codes);
    free(scales);
}

typedef struct attention_case {
    int64_t n_heads, n_kv_heads, head_dim, position, n_tokens, window;
    apr_dtype dtype;
} attention_case;

static apr_cache make_cache(const attention_case *c, int64_t n_cells)
{
    const int64_t row_bytes = apr_row_bytes(c->dtype, c->head_dim), n_rows = n_cells * c->n_kv_heads;
    const apr_cache cache = {.dtype = c->dtype, .data = malloc((size_t)(n_rows * row_bytes)), .n_cells = n_cells, .row_bytes = row_bytes};
    assert_non_null(cache.data);
    memset(cache.data, 0xff, (size_t)(n_rows * row_bytes)); /* NaN: a cell that is read without being written shows */
    return cache;
}

static void compare_attention(const attention_case *c)
{
    const int64_t n_all = c->position + c->n_tokens;
    const int64_t n_cells = c->window > 0 && c->window + c->n_tokens < n_all ? c->window + c->n_tokens : n_all;
    float *const k = noise_floats(n_all * c->n_kv_heads * c->head_dim), *const v = noise_floats(n_all * c->n_kv_heads * c->head_dim);
    float *const q = noise_floats(c->n_tokens * c->n_heads * c->head_dim);
    apr_cache keys = make_cache(c, n_cells), values = make_cache(c, n_cells);
    char what[160];

    /* one position after the other, alternating the backends: both write the same cells */
    for (int64_t p = 0; p < n_all; p++) {
        const int64_t from = p * c->n_kv_heads * c->head_dim;
        apr_op_args store = {.kv_store = {.n_tokens = 1,
                                          .position = p,
                                          .n_kv_heads = c->n_kv_heads,
                                          .head_dim = c->head_dim,
                                          .k = k + from,
                                          .v = v + from,
                                          .keys = keys,
                                          .values = values}};
        (p % 2 ? &apr_host_backend : &apr_ref_backend)->ops[APR_OP_KV_STORE](&store);
    }
    apr_op_args args = {.attend = {.n_tokens = c->n_tokens,
                                   .position = c->position,
                                   .n_heads = c->n_heads,
                                   .n_kv_heads = c->n_kv_heads,
                                   .head_dim = c->head_dim,
                                   .window = c->window,
                                   .scale = 1.0f / sqrtf((float)c->head_dim),
                                   .q = q,
                                   .keys = keys,
                                   .values = values}};
    args.attend.work = workspace(apr_attend_slice(c->n_heads, c->n_kv_heads, c->head_dim), 2);
    snprintf(what, sizeof what, "%lld:%lld heads of %lld, %lld tokens at %lld, window %lld, %s", (long long)c->n_heads,
             (long long)c->n_kv_heads, (long long)c->head_dim, (long long)c->n_tokens, (long long)c->position, (long long)c->window,
             apr_dtypes[c->dtype].name);
    compare(APR_OP_ATTEND, &args, &args.attend.out, c->n_tokens * c->n_heads * c->head_dim, 5e-6, what);
    free(args.attend.work.data);
    free(keys.data);
    free(values.data);
    free(k);
    free(v);
    free(q);
}

static void attention_agrees_over_heads_positions_windows_and_caches(void **state)
{
    (void)state;
    static const attention_case cases[] = {
        {1, 1, 16, 0, 1, 0, APR_F32},     {4, 2, 64, 0, 1, 0, APR_F16},   {4, 2, 64, 0, 70, 0, APR_F16},   {14, 2, 64, 130, 1, 0, APR_F16},
        {7, 1, 24, 65, 9, 0, APR_F32},    {32, 1, 32, 63, 2, 0, APR_F16}, {6, 6, 128, 200, 3, 0, APR_F16}, {3, 3, 80, 5, 17, 0, APR_F32},
        {8, 2, 64, 100, 33, 0, APR_Q8_0}, {4, 4, 32, 90, 1, 16, APR_F16}, {4, 2, 64, 90, 20, 16, APR_F32}, {4, 2, 64, 0, 100, 70, APR_Q8_0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) compare_attention(&cases[i]);
}

/* The scores of 80 and -80 that a softmax without its maximum cannot hold. */
static void attention_survives_large_scores(void **state)
{
    (void)state;
    float kv[2][16] = {{0}}, q[16] = {0}, out[16];
    kv[0][0] = 90.0f;
    kv[1][0] = -90.0f;
    q[0] = 4.0f;
    apr_op_args args = {
        .attend = {.n_tokens = 1, .position = 1, .n_heads = 1, .n_kv_heads = 1, .head_dim = 16, .scale = 0.25f, .q = q, .out = out}};
    args.attend.keys = args.attend.values = (apr_cache){.dtype = APR_F32, .data = (uint8_t *)kv, .n_cells = 2, .row_bytes = 64};
    args.attend.work = workspace(apr_attend_slice(1, 1, 16), 1);
    apr_host_backend.ops[APR_OP_ATTEND](&args);
    assert_true(out[0] == 90.0f);
    free(args.attend.work.data);
}

static void the_small_operations_agree(void **state)
{
    (void)state;
    enum { TOKENS = 5, HEADS = 3, HEAD = 40, WIDTH = HEADS * HEAD, FREQS = 12 };
    float *const x = noise_floats(TOKENS * WIDTH), *const y = noise_floats(TOKENS * WIDTH), *const w = noise_floats(WIDTH);
    float *const freqs = noise_floats(FREQS), *const angles = noise_floats(TOKENS * 2 * FREQS);
    apr_op_args args = {.rmsnorm = {.n_tokens = TOKENS, .width = WIDTH, .chunk = WIDTH, .eps = 1e-6f, .x = x, .weight = w}};

    compare(APR_OP_RMSNORM, &args, &args.rmsnorm.out, TOKENS * WIDTH, 2e-6, "of rows");
    args.rmsnorm.chunk = HEAD;
    compare(APR_OP_RMSNORM, &args, &args.rmsnorm.out, TOKENS * WIDTH, 2e-6, "of heads");
    args = (apr_op_args){.glu = {.n_tokens = TOKENS, .width = WIDTH, .gate = x, .up = y, .n_threads = 2}};
    compare(APR_OP_GLU, &args, &args.glu.out, TOKENS * WIDTH, 1e-7, "");
    args = (apr_op_args){.add = {.n_tokens = TOKENS, .width = WIDTH, .a = x, .b = y}};
    compare(APR_OP_ADD, &args, &args.add.out, TOKENS * WIDTH, 0, "");
    args = (apr_op_args){.rope = {.n_tokens = TOKENS, .n_heads = HEADS, .head_dim = HEAD, .n_freqs = FREQS, .x = x, .angles = angles}};
    compare(APR_OP_ROPE, &args, &args.rope.out, TOKENS * WIDTH, 1e-7, "");
    args = (apr_op_args){.angles = {.n_tokens = TOKENS, .position = 1000, .n_freqs = FREQS, .freqs = freqs, .magnitude = 1.5f}};
    compare(APR_OP_ANGLES, &args, &args.angles.out, TOKENS * 2 * FREQS, 1e-7, "");
    free(x);
    free(y);
    free(w);
    free(freqs);
    free(angles);
}

/* Known values: one token at position 3, two frequencies, a head of 5 of which 4 numbers turn. */
static void rotation_turns_the_halves_of_a_head(void **state)
{
    (void)state;
    const float freqs[2] = {1.0f, 0.5f}, x[5] = {1, 2, 3, 4, 5};
    float angles[4], out[5];
    apr_op_args args = {.angles = {.n_tokens = 1, .position = 3, .n_freqs = 2, .freqs = freqs, .magnitude = 1.0f, .out = angles}};
    apr_ref_backend.ops[APR_OP_ANGLES](&args);
    args = (apr_op_args){.rope = {.n_tokens = 1, .n_heads = 1, .head_dim = 5, .n_freqs = 2, .x = x, .angles = angles, .out = out}};
    apr_ref_backend.ops[APR_OP_ROPE](&args);
    assert_float_equal(out[0], 1 * cosf(3.0f) - 3 * sinf(3.0f), 1e-6);
    assert_float_equal(out[2], 3 * cosf(3.0f) + 1 * sinf(3.0f), 1e-6);
    assert_float_equal(out[1], 2 * cosf(1.5f) - 4 * sinf(1.5f), 1e-6);
    assert_float_equal(out[3], 4 * cosf(1.5f) + 2 * sinf(1.5f), 1e-6);
    assert_true(out[4] == 5.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_agrees_over_shapes),
        cmocka_unit_test(linear_agrees_for_every_dtype_of_weights),
        cmocka_unit_test(linear_takes_pending_steps_and_fp8_scales_into_account),
        cmocka_unit_test(attention_agrees_over_heads_positions_windows_and_caches),
        cmocka_unit_test(attention_survives_large_scores),
        cmocka_unit_test(the_small_operations_agree),
        cmocka_unit_test(rotation_turns_the_halves_of_a_head),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
