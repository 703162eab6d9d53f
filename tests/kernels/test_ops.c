/* kernels/ops.h: the host's operations give what the reference gives, over odd shapes and every dtype of weights. */
#include "tests/support/ops_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void compare_linear(const apr_tensor *weight, const float *bias, int64_t n_tokens, int n_threads, double bound, const char *what)
{
    const int64_t n_in = apr_tensor_columns(weight), n_out = apr_tensor_rows(weight);
    float *const x = ops_noises(n_tokens * n_in);
    apr_op_args args = {.linear = {.n_tokens = n_tokens, .n_in = n_in, .n_out = n_out, .x = x, .weight = weight, .bias = bias}};

    args.linear.work = ops_workspace(apr_linear_slice(n_in), n_threads);
    ops_compare(APR_OP_LINEAR, &args, &args.linear.out, n_tokens * n_out, bound, what);
    free(args.linear.work.data);
    free(x);
}

static void linear_agrees_over_shapes(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {/* n_in, n_out, n_tokens */
                                        {1, 1, 1},    {16, 1, 1},   {17, 3, 5},   {15, 33, 4},  {64, 16, 64}, {100, 7, 9},   {256, 65, 1},
                                        {257, 64, 3}, {512, 5, 17}, {48, 130, 2}, {31, 31, 31}, {513, 9, 66}, {1030, 11, 12}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t n_in = shapes[i][0], n_out = shapes[i][1], n_tokens = shapes[i][2];
        float *const w = ops_noises(n_in * n_out), *const bias = ops_noises(n_out);
        const apr_tensor weight = ops_matrix(w, n_out, n_in);
        char what[64];
        snprintf(what, sizeof what, "[%lld, %lld] x %lld", (long long)n_out, (long long)n_in, (long long)n_tokens);
        /* sums of n_in products below 1: two orders differ by less than n_in * 2^-23 * the largest partial sum, about sqrt(n_in) */
        compare_linear(&weight, NULL, n_tokens, 1, (double)n_in * 1.2e-7 * 3, what);
        compare_linear(&weight, bias, n_tokens, 3, (double)n_in * 1.2e-7 * 3 + 1e-6, what);
        free(w);
        free(bias);
    }
}

/* Long rows of more than four tokens are multiplied in panels (kernels/host/matmul_floats.c), a tile of tokens at a time. */
static void long_rows_give_the_same_bits_whatever_the_number_of_tokens(void **state)
{
    (void)state;
    enum { TOKENS = 135, FEW = 10 };
    static const int64_t lengths[] = {513, 700, 1024, 1536, 1539, 4096};
    static const apr_dtype dtypes[] = {APR_F32, APR_F16, APR_BF16};

    for (size_t i = 0; i < 3 * sizeof lengths / sizeof *lengths; i++) {
        const int64_t n_in = lengths[i / 3], n_out = 21;
        const apr_tensor weight = ops_matrix_of(dtypes[i % 3], n_out, n_in);
        float *const x = ops_noises(TOKENS * n_in), *const at_once = ops_noises(TOKENS * n_out),
                     *const in_turn = ops_noises(TOKENS * n_out);
        apr_op_args args = {.linear = {.n_tokens = TOKENS, .n_in = n_in, .n_out = n_out, .x = x, .weight = &weight, .out = at_once}};
        args.linear.work = ops_workspace(apr_linear_slice(n_in), 2);
        apr_host_backend.ops[APR_OP_LINEAR](&args);
        for (int64_t t = 0; t < TOKENS; t += FEW) {
            args.linear.x = x + t * n_in, args.linear.out = in_turn + t * n_out;
            args.linear.n_tokens = TOKENS - t < FEW ? TOKENS - t : FEW;
            apr_host_backend.ops[APR_OP_LINEAR](&args);
        }
        assert_memory_equal(at_once, in_turn, TOKENS * (size_t)n_out * sizeof *at_once);
        free(args.linear.work.data);
        free((void *)(uintptr_t)weight.data);
        free(x);
        free(at_once);
        free(in_turn);
    }
}

static void linear_agrees_for_every_dtype_of_weights(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < APR_DTYPE_COUNT; dtype++) {
        if (!apr_can_decode((apr_dtype)dtype) || dtype == APR_C64) continue;
        if (!apr_dtype_is_float((apr_dtype)dtype) && !apr_dtype_is_quantized((apr_dtype)dtype)) continue;
        const apr_tensor weight = ops_matrix_of((apr_dtype)dtype, 37, 512);
        const double largest = fmax(ops_largest(&weight), 1e-30), bound = 512 * 1.2e-7 * 3 * largest;
        /* inputs below 1 are off by 0.5 / 32512 at most, 0.29 in the mean: 512 products with weights below the largest add up like their
         * root, and this is six times that */
        const double rounded = apr_host_rounds_inputs(&weight) ? 6 * 0.29 / 32512 * sqrt(512) * largest : 0.0;
        compare_linear(&weight, NULL, 1, 2, bound + rounded, apr_dtypes[dtype].name);
        compare_linear(&weight, NULL, 6, 2, bound + rounded, apr_dtypes[dtype].name);
        compare_linear(&weight, NULL, 40, 2, bound + rounded, apr_dtypes[dtype].name);
        free((void *)(uintptr_t)weight.data);
    }
}

static void linear_takes_pending_steps_and_fp8_scales_into_account(void **state)
{
    (void)state;
    float *const plain = ops_noises(24 * 32);
    apr_tensor weight = ops_matrix(plain, 24, 32);
    weight.pending = (apr_step){APR_STEP_PAIRS_TO_HALVES, {3}};
    compare_linear(&weight, NULL, 5, 2, 1e-4, "with a pending step");

    uint8_t *const codes = malloc(20 * 40);
    float *const scales = ops_noises(3 * 3);
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

/* In panels, of which the last one is not whole. */
static void long_rows_take_pending_steps_and_scales_into_account(void **state)
{
    (void)state;
    enum { OUT = 66, IN = 600, HIGH = 9, WIDE = 5 };
    apr_tensor halves = ops_matrix_of(APR_F16, OUT, IN), fp8 = ops_matrix_of(APR_F8_E4M3, OUT, IN);
    float *const scales = ops_noises(HIGH * WIDE);
    const apr_tensor scale = {.name = "s",
                              .dtype = APR_F32,
                              .rank = 2,
                              .dims = {HIGH, WIDE},
                              .data = (const uint8_t *)scales,
                              .n_bytes = HIGH * WIDE * sizeof *scales};

    halves.pending = (apr_step){APR_STEP_PAIRS_TO_HALVES, {3}};
    fp8.scale = &scale, fp8.scale_rows = 8, fp8.scale_columns = 128;
    for (int64_t n_tokens = 5; n_tokens <= 45; n_tokens += 20) {
        compare_linear(&halves, NULL, n_tokens, 2, IN * 1.2e-7 * 3 * ops_largest(&halves), "long rows with a pending step");
        compare_linear(&fp8, NULL, n_tokens, 2, IN * 1.2e-7 * 3 * ops_largest(&fp8), "long rows with blocks of scales");
    }
    free((void *)(uintptr_t)halves.data);
    free((void *)(uintptr_t)fp8.data);
    free(scales);
}

typedef struct attention_case {
    int64_t n_heads, n_kv_heads, key_dim, value_dim, position, n_tokens, window, chunk;
    apr_dtype dtype;
    float softcap;
    bool has_sinks, values_in_keys;
} attention_case;

static apr_cache make_cache(const attention_case *c, int64_t width, int64_t n_cells)
{
    const int64_t row_bytes = apr_row_bytes(c->dtype, width), n_rows = n_cells * c->n_kv_heads;
    const apr_cache cache = {.dtype = c->dtype, .data = malloc((size_t)(n_rows * row_bytes)), .n_cells = n_cells, .row_bytes = row_bytes};
    assert_non_null(cache.data);
    memset(cache.data, 0xff, (size_t)(n_rows * row_bytes)); /* NaN: a cell that is read without being written shows */
    return cache;
}

/* One position after the other, alternating the backends: both write the same cells. */
static void fill_caches(const attention_case *c, int64_t n_all, apr_cache keys, apr_cache values)
{
    float *const k = ops_noises(c->n_kv_heads * c->key_dim), *const v = ops_noises(c->n_kv_heads * c->value_dim);
    for (int64_t p = 0; p < n_all; p++) {
        for (int64_t i = 0; i < c->n_kv_heads * c->key_dim; i++) k[i] = ops_noise();
        for (int64_t i = 0; i < c->n_kv_heads * c->value_dim; i++) v[i] = ops_noise();
        apr_op_args store = {.kv_store = {.n_tokens = 1,
                                          .position = p,
                                          .n_kv_heads = c->n_kv_heads,
                                          .key_dim = c->key_dim,
                                          .value_dim = c->value_dim,
                                          .k = k,
                                          .v = c->values_in_keys ? NULL : v,
                                          .keys = keys,
                                          .values = values}};
        (p % 2 ? &apr_host_backend : &apr_ref_backend)->ops[APR_OP_KV_STORE](&store);
    }
    free(k);
    free(v);
}

/* A head's row of the cell at a position, decoded. */
static void decode_cell(const apr_attend_args *a, const apr_cache *cache, int64_t position, int64_t kv_head, int64_t dim, float *to)
{
    const int64_t row = apr_attend_cell(a, cache, position) * a->n_kv_heads + kv_head;
    apr_ref_codecs[cache->dtype].decode(cache->data + row * cache->row_bytes, to, dim);
}

/* The attention of one head of one token, by its formula: the largest score first. scores: [position + n_tokens] */
static void attend_in_double(const apr_attend_args *a, int64_t token, int64_t head, double *scores, double *out)
{
    const int64_t own = a->position + token, first = apr_attend_first(a, own), kv_head = head / (a->n_heads / a->n_kv_heads);
    const float *const q = a->q + (token * a->n_heads + head) * a->key_dim;
    float *const numbers = ops_noises(a->key_dim > a->value_dim ? a->key_dim : a->value_dim);
    double largest = a->sinks != NULL ? (double)a->sinks[head] : -INFINITY, total = 0.0;

    for (int64_t p = first; p <= own; p++) {
        decode_cell(a, &a->keys, p, kv_head, a->key_dim, numbers);
        double score = 0.0;
        for (int64_t i = 0; i < a->key_dim; i++) score += (double)q[i] * (double)numbers[i];
        score *= (double)a->scale;
        scores[p] = a->softcap > 0.0f ? (double)a->softcap * tanh(score / (double)a->softcap) : score;
        largest = fmax(largest, scores[p]);
    }
    if (a->sinks != NULL) total = exp((double)a->sinks[head] - largest);
    for (int64_t i = 0; i < a->value_dim; i++) out[i] = 0.0;
    for (int64_t p = first; p <= own; p++) {
        const double weight = exp(scores[p] - largest);
        decode_cell(a, &a->values, p, kv_head, a->value_dim, numbers);
        for (int64_t i = 0; i < a->value_dim; i++) out[i] += weight * (double)numbers[i];
        total += weight;
    }
    for (int64_t i = 0; i < a->value_dim; i++) out[i] /= total;
    free(numbers);
}

/* The float64 backend: the formula's numbers, rounded once; the same bits for each token alone, and on three threads. */
static void check_float64_attention(const apr_op_args *args, const char *what)
{
    const apr_attend_args *const a = &args->attend;
    const int64_t width = a->n_heads * a->value_dim;
    float *const together = ops_noises(a->n_tokens * width), *const alone = ops_noises(width);
    double *const scores = malloc((size_t)(a->position + a->n_tokens) * sizeof *scores), *const expected = malloc((size_t)a->value_dim *
                                                                                                                  sizeof *expected);
    apr_op_args own = *args;

    assert_true(scores != NULL && expected != NULL);
    own.attend.work = ops_workspace(a->work.slice, 3);
    own.attend.out = together;
    apr_float64_backend.ops[APR_OP_ATTEND](&own);
    for (int64_t t = 0; t < a->n_tokens; t++) {
        apr_op_args one = *args;
        one.attend.n_tokens = 1;
        one.attend.position += t;
        one.attend.q += t * a->n_heads * a->key_dim;
        one.attend.out = alone;
        one.attend.work.n_threads = 1;
        apr_float64_backend.ops[APR_OP_ATTEND](&one);
        if (memcmp(alone, together + t * width, (size_t)width * sizeof *alone) != 0) fail_msg("%s: token %d alone differs", what, (int)t);
        for (int64_t head = 0; head < a->n_heads; head++) {
            attend_in_double(a, t, head, scores, expected);
            ops_expect(together + t * width + head * a->value_dim, expected, a->value_dim, 1e-7, what);
        }
    }
    free(own.attend.work.data);
    free(together);
    free(alone);
    free(scores);
    free(expected);
}

static void compare_attention(const attention_case *c)
{
    const int64_t n_all = c->position + c->n_tokens, most = c->key_dim > c->value_dim ? c->key_dim : c->value_dim;
    const int64_t n_cells = c->window > 0 && c->window + c->n_tokens < n_all ? c->window + c->n_tokens : n_all;
    float *const q = ops_noises(c->n_tokens * c->n_heads * c->key_dim), *const sinks = ops_noises(c->n_heads);
    apr_cache keys = make_cache(c, c->key_dim, n_cells), values = c->values_in_keys ? keys : make_cache(c, c->value_dim, n_cells);
    char what[200];

    fill_caches(c, n_all, keys, values);
    apr_op_args args = {.attend = {.n_tokens = c->n_tokens,
                                   .position = c->position,
                                   .n_heads = c->n_heads,
                                   .n_kv_heads = c->n_kv_heads,
                                   .key_dim = c->key_dim,
                                   .value_dim = c->value_dim,
                                   .window = c->window,
                                   .chunk = c->chunk,
                                   .scale = 1.0f / sqrtf((float)c->key_dim),
                                   .softcap = c->softcap,
                                   .sinks = c->has_sinks ? sinks : NULL,
                                   .q = q,
                                   .keys = keys,
                                   .values = values}};
    args.attend.work = ops_workspace(apr_attend_slice(most), 2);
    args.attend.shared = ops_noises((int64_t)apr_attend_shared(c->value_dim));
    snprintf(what, sizeof what, "%lld:%lld heads of %lld and %lld, %lld tokens at %lld, window %lld, chunk %lld, %s%s%s",
             (long long)c->n_heads, (long long)c->n_kv_heads, (long long)c->key_dim, (long long)c->value_dim, (long long)c->n_tokens,
             (long long)c->position, (long long)c->window, (long long)c->chunk, apr_dtypes[c->dtype].name,
             c->softcap > 0.0f ? ", capped" : "", c->has_sinks ? ", with sinks" : "");
    ops_compare(APR_OP_ATTEND, &args, &args.attend.out, c->n_tokens * c->n_heads * c->value_dim, 5e-6, what);
    check_float64_attention(&args, what);
    free(args.attend.work.data);
    free(args.attend.shared);
    free(keys.data);
    if (!c->values_in_keys) free(values.data);
    free(q);
    free(sinks);
}

static void attention_agrees_over_heads_positions_windows_and_caches(void **state)
{
    (void)state;
    static const attention_case cases[] = {
        {1, 1, 16, 16, 0, 1, 0, 0, APR_F32},     {4, 2, 64, 64, 0, 1, 0, 0, APR_F16},  {4, 2, 64, 64, 0, 70, 0, 0, APR_F16},
        {14, 2, 64, 64, 130, 1, 0, 0, APR_F16},  {7, 1, 24, 24, 65, 9, 0, 0, APR_F32}, {32, 1, 32, 32, 63, 2, 0, 0, APR_F16},
        {6, 6, 128, 128, 200, 3, 0, 0, APR_F16}, {3, 3, 80, 80, 5, 17, 0, 0, APR_F32}, {8, 2, 64, 64, 100, 33, 0, 0, APR_Q8_0},
        {4, 4, 32, 32, 90, 1, 16, 0, APR_F16},   {9, 3, 12, 7, 40, 21, 0, 0, APR_F32}, {4, 2, 64, 64, 90, 20, 16, 0, APR_F32},
        {4, 2, 64, 64, 0, 100, 70, 0, APR_Q8_0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) compare_attention(&cases[i]);
}

static void attention_agrees_with_chunks_caps_sinks_and_unequal_widths(void **state)
{
    (void)state;
    static const attention_case cases[] = {
        {4, 2, 48, 32, 70, 9, 0, 0, APR_F32},
        {4, 4, 32, 64, 0, 65, 0, 0, APR_F16},
        {6, 2, 64, 64, 100, 40, 0, 32, APR_F16},
        {6, 2, 64, 64, 127, 2, 0, 128, APR_F32},
        {8, 4, 32, 32, 64, 66, 0, 0, APR_F16, .softcap = 0.5f},
        {8, 4, 64, 64, 200, 3, 128, 0, APR_F16, .has_sinks = true},
        {8, 1, 64, 64, 0, 5, 0, 0, APR_F32, .has_sinks = true},
        {16, 1, 96, 64, 130, 1, 0, 0, APR_F16, .values_in_keys = true},
        {16, 1, 96, 64, 63, 70, 0, 0, APR_F32, .values_in_keys = true},
        {6, 2, 96, 32, 150, 37, 50, 64, APR_F32, .softcap = 2.0f, .has_sinks = true},
        {6, 2, 96, 32, 150, 37, 50, 64, APR_F16, .softcap = 2.0f, .has_sinks = true, .values_in_keys = true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) compare_attention(&cases[i]);
}

/* Few blocks of rows and many cells: parts of the context are summed separately, and combined. */
static void attention_to_a_long_context_is_divided_and_joined(void **state)
{
    (void)state;
    static const attention_case cases[] = {
        {8, 1, 64, 64, 1500, 1, 0, 0, APR_F16},
        {40, 1, 32, 32, 700, 1, 0, 0, APR_F16},
        {6, 6, 32, 32, 4100, 1, 0, 0, APR_Q8_0},
        {4, 2, 64, 48, 1200, 3, 600, 0, APR_F32, .has_sinks = true},
        {2, 1, 32, 32, 900, 20, 513, 0, APR_F16, .has_sinks = true},
        {16, 1, 96, 64, 1100, 2, 0, 0, APR_F16, .softcap = 2.0f, .has_sinks = true, .values_in_keys = true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) compare_attention(&cases[i]);
}

static void all_chosen_is_all(const apr_op_args *args, int64_t n)
{
    for (int of = 0; of < 2; of++) {
        const apr_backend *const backend = of > 0 ? &apr_host_backend : &apr_ref_backend;
        float *const all = ops_noises(n);
        apr_op_args plain = *args;
        plain.attend.chosen = NULL;
        plain.attend.out = all;
        backend->ops[APR_OP_ATTEND](args);
        backend->ops[APR_OP_ATTEND](&plain);
        assert_memory_equal(args->attend.out, all, (size_t)n * sizeof *all);
        free(all);
    }
}

/* Which positions are chosen, and attention to them: where a token has no more positions than are chosen, with the bits of all. */
static void compare_sparse(int64_t n_chosen, int64_t position, int64_t n_tokens, apr_dtype dtype, int n_threads)
{
    const int64_t n_heads = 6, dim = 32, n_attending = 16, key_dim = 96, value_dim = 64, n = position + n_tokens,
                  width = apr_index_row(n_chosen);
    float *const q = ops_noises(n_tokens * n_heads * dim), *const weights = ops_noises(n_tokens * n_heads);
    float *const queries = ops_noises(n_tokens * n_attending * key_dim), *const out = ops_noises(n_tokens * n_attending * value_dim);
    float *const chosen = ops_noises(n_tokens * width);
    const attention_case c = {n_attending, 1, dim, dim, position, n_tokens, 0, 0, dtype, .values_in_keys = true};
    const attention_case wide = {n_attending, 1, key_dim, key_dim, position, n_tokens, 0, 0, dtype, .values_in_keys = true};
    const apr_cache keys = make_cache(&c, dim, n), cells = make_cache(&wide, key_dim, n);
    apr_op_args args = {.index = {.n_tokens = n_tokens,
                                  .position = position,
                                  .n_heads = n_heads,
                                  .head_dim = dim,
                                  .n_chosen = n_chosen,
                                  .scale = 0.1f,
                                  .q = q,
                                  .weights = weights,
                                  .keys = keys,
                                  .out = chosen}};
    char what[100];

    fill_caches(&c, n, keys, keys);
    fill_caches(&wide, n, cells, cells);
    snprintf(what, sizeof what, "%lld of %lld positions, %lld tokens, %s", (long long)n_chosen, (long long)n, (long long)n_tokens,
             apr_dtypes[dtype].name);
    args.index.work = ops_workspace(apr_index_slice(n_chosen, dim), n_threads);
    ops_compare(APR_OP_INDEX, &args, &args.index.out, n_tokens * width, 1e-5, what);
    args.index.out = chosen;
    apr_ref_backend.ops[APR_OP_INDEX](&args);
    free(args.index.work.data);
    args = (apr_op_args){.attend = {.n_tokens = n_tokens,
                                    .position = position,
                                    .n_heads = n_attending,
                                    .n_kv_heads = 1,
                                    .key_dim = key_dim,
                                    .value_dim = value_dim,
                                    .scale = 0.1f,
                                    .q = queries,
                                    .keys = cells,
                                    .values = cells,
                                    .chosen = chosen,
                                    .n_chosen = n_chosen,
                                    .out = out}};
    args.attend.work = ops_workspace(apr_attend_slice(key_dim), n_threads);
    args.attend.shared = ops_noises((int64_t)apr_attend_shared(value_dim));
    ops_compare(APR_OP_ATTEND, &args, &args.attend.out, n_tokens * n_attending * value_dim, 5e-6, what);
    args.attend.out = out;
    if (n <= n_chosen) all_chosen_is_all(&args, n_tokens * n_attending * value_dim);
    free(args.attend.work.data);
    free(args.attend.shared);
    free(keys.data);
    free(cells.data);
    free(q);
    free(weights);
    free(queries);
    free(out);
    free(chosen);
}

static void sparse_attention_agrees_and_is_attention_where_all_are_chosen(void **state)
{
    (void)state;
    compare_sparse(7, 60, 5, APR_F32, 2);
    compare_sparse(64, 60, 70, APR_F16, 2);
    compare_sparse(300, 1500, 1, APR_F16, 3); /* parts of the positions */
    compare_sparse(33, 900, 2, APR_Q8_0, 4);
    compare_sparse(80, 70, 10, APR_F16, 2);
    compare_sparse(1200, 1000, 1, APR_F32, 2);
}

/* Heads that all score 0 tie: the lowest positions are chosen, in ascending order. What is not a number is chosen last. */
static void of_equal_scores_the_lower_position_is_chosen(void **state)
{
    (void)state;
    float keys[6] = {-1, 2, -3, NAN, 2, -1}, q = 1, weight = 1, chosen[5];
    apr_op_args args = {.index = {.n_tokens = 1,
                                  .position = 5,
                                  .n_heads = 1,
                                  .head_dim = 1,
                                  .n_chosen = 4,
                                  .scale = 1,
                                  .q = &q,
                                  .weights = &weight,
                                  .out = chosen}};
    const float expected[5] = {0, 1, 2, 4, 0};

    args.index.keys = (apr_cache){.dtype = APR_F32, .data = (uint8_t *)keys, .n_cells = 6, .row_bytes = 4};
    args.index.work = ops_workspace(apr_index_slice(4, 1), 1);
    apr_ref_backend.ops[APR_OP_INDEX](&args);
    assert_memory_equal(chosen, expected, sizeof expected);
    apr_host_backend.ops[APR_OP_INDEX](&args);
    assert_memory_equal(chosen, expected, sizeof expected);
    free(args.index.work.data);
}

/* Two positions, all keys zero: scores are 0 each, so a sink of ln(2) takes half of the weights. */
static void a_sink_takes_weight_and_gives_no_value(void **state)
{
    (void)state;
    float keys[2][4] = {{0}}, values[2][4] = {{8}, {16}}, q[4] = {1}, out[4];
    const float sink = logf(2.0f);
    apr_op_args args = {.attend = {.n_tokens = 1,
                                   .position = 1,
                                   .n_heads = 1,
                                   .n_kv_heads = 1,
                                   .key_dim = 4,
                                   .value_dim = 4,
                                   .scale = 1.0f,
                                   .sinks = &sink,
                                   .q = q,
                                   .out = out}};
    args.attend.keys = (apr_cache){.dtype = APR_F32, .data = (uint8_t *)keys, .n_cells = 2, .row_bytes = 16};
    args.attend.values = (apr_cache){.dtype = APR_F32, .data = (uint8_t *)values, .n_cells = 2, .row_bytes = 16};
    args.attend.work = ops_workspace(apr_attend_slice(4), 1);
    apr_ref_backend.ops[APR_OP_ATTEND](&args);
    assert_float_equal(out[0], 0.25 * 8 + 0.25 * 16, 1e-6);
    args.attend.chunk = 1; /* alone with its own position: a third of it */
    apr_ref_backend.ops[APR_OP_ATTEND](&args);
    assert_float_equal(out[0], 16.0 / 3.0, 1e-5);
    free(args.attend.work.data);
}

/* The scores of 80 and -80 that a softmax without its maximum cannot hold. */
static void attention_survives_large_scores(void **state)
{
    (void)state;
    float kv[2][16] = {{0}}, q[16] = {0}, out[16];
    kv[0][0] = 90.0f;
    kv[1][0] = -90.0f;
    q[0] = 4.0f;
    apr_op_args args = {.attend = {.n_tokens = 1,
                                   .position = 1,
                                   .n_heads = 1,
                                   .n_kv_heads = 1,
                                   .key_dim = 16,
                                   .value_dim = 16,
                                   .scale = 0.25f,
                                   .q = q,
                                   .out = out}};
    args.attend.keys = args.attend.values = (apr_cache){.dtype = APR_F32, .data = (uint8_t *)kv, .n_cells = 2, .row_bytes = 64};
    args.attend.work = ops_workspace(apr_attend_slice(16), 1);
    apr_host_backend.ops[APR_OP_ATTEND](&args);
    assert_true(out[0] == 90.0f);
    free(args.attend.work.data);
}

static void norms_agree_over_kinds_and_chunks(void **state)
{
    (void)state;
    enum { TOKENS = 5, HEADS = 3, HEAD = 40, WIDTH = HEADS * HEAD };
    float *const x = ops_noises(TOKENS * WIDTH), *const weight = ops_noises(WIDTH), *const bias = ops_noises(WIDTH);
    static const struct {
        int64_t chunk, n_weight;
    } shapes[] = {{WIDTH, WIDTH}, {HEAD, HEAD}, {HEAD, WIDTH}};

    for (int kind = 0; kind < APR_NORM_KINDS; kind++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int has = 0; has < 4; has++) {
                apr_op_args args = {.norm = {.kind = (apr_norm_kind)kind,
                                             .n_tokens = TOKENS,
                                             .width = WIDTH,
                                             .chunk = shapes[i].chunk,
                                             .n_weight = shapes[i].n_weight,
                                             .eps = 1e-6f,
                                             .offset = (float)(has % 2),
                                             .x = x,
                                             .weight = has > 0 ? weight : NULL,
                                             .bias = has > 2 ? bias : NULL}};
                ops_compare(APR_OP_NORM, &args, &args.norm.out, TOKENS * WIDTH, 4e-6, "");
            }
    free(x);
    free(weight);
    free(bias);
}

/* 1, 2, 3, 4: mean 2.5, mean of squares 7.5, variance 1.25. */
static void norms_are_what_they_are_called(void **state)
{
    (void)state;
    const float x[4] = {1, 2, 3, 4}, weight[4] = {1, 1, 1, 2}, bias[4] = {0, 0, 0, 5};
    float out[4];
    apr_op_args args = {.norm = {.n_tokens = 1, .width = 4, .chunk = 4, .n_weight = 4, .x = x, .weight = weight, .out = out}};

    apr_ref_backend.ops[APR_OP_NORM](&args);
    assert_float_equal(out[3], 2 * 4 / sqrt(7.5), 1e-6);
    args.norm.kind = APR_NORM_LAYER;
    args.norm.bias = bias;
    apr_ref_backend.ops[APR_OP_NORM](&args);
    assert_float_equal(out[0], -1.5 / sqrt(1.25), 1e-6);
    assert_float_equal(out[3], 2 * 1.5 / sqrt(1.25) + 5, 1e-6);
    args.norm = (apr_norm_args){
        .kind = APR_NORM_L2, .n_tokens = 1, .width = 4, .chunk = 2, .n_weight = 2, .offset = 1, .x = x, .weight = weight, .out = out};
    apr_ref_backend.ops[APR_OP_NORM](&args);
    assert_float_equal(out[2], 2 * 3 / 5.0, 1e-6);
}

/* Row position + t + first of the table, whatever came before. */
static void learned_positions_are_rows_of_their_table(void **state)
{
    (void)state;
    enum { TOKENS = 3, WIDTH = 5, ROWS = 12, FIRST = 2, POSITION = 7 };
    float *const rows = ops_noises(ROWS * WIDTH);
    float out[TOKENS * WIDTH];
    apr_tensor table = {.name = "t", .dtype = APR_F32, .rank = 2, .dims = {ROWS, WIDTH}, .n_bytes = ROWS * WIDTH * sizeof(float)};
    const apr_backend *const backends[] = {&apr_ref_backend, &apr_host_backend, &apr_float64_backend};

    apr_tensor_set_data(&table, (const uint8_t *)rows);
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        const apr_op_args args = {
            .positions = {.n_tokens = TOKENS, .width = WIDTH, .position = POSITION, .first = FIRST, .table = &table, .out = out}};
        memset(out, 0, sizeof out);
        backends[i]->ops[APR_OP_POSITIONS](&args);
        assert_memory_equal(out, rows + (POSITION + FIRST) * WIDTH, sizeof out);
    }
    free(rows);
}

static void gelu_and_relu_are_as_defined(void **state)
{
    (void)state;
    for (double x = -6; x <= 6; x += 0.25) {
        assert_float_equal(apr_activate(APR_ACT_GELU, (float)x), x * 0.5 * erfc(-x / sqrt(2.0)), 1e-6);
        assert_float_equal(apr_activate(APR_ACT_RELU, (float)x), x > 0 ? x : 0, 0);
    }
}

static void the_small_operations_agree(void **state)
{
    (void)state;
    enum { TOKENS = 5, HEADS = 3, HEAD = 40, WIDTH = HEADS * HEAD, FREQS = 12 };
    float *const x = ops_noises(TOKENS * WIDTH), *const y = ops_noises(TOKENS * WIDTH);
    float *const freqs = ops_noises(FREQS), *const angles = ops_noises(TOKENS * 2 * FREQS);
    apr_op_args args = {.glu = {.n_tokens = TOKENS, .width = WIDTH, .gate = x, .up = y, .n_threads = 2}};

    for (int activation = 0; activation < APR_ACT_COUNT; activation++)
        for (int limited = 0; limited < 2; limited++) {
            args.glu.shape = (apr_glu_shape){.activation = (apr_activation)activation, .limit = limited ? 0.5f : 0.0f};
            args.glu.up = y;
            ops_compare(APR_OP_GLU, &args, &args.glu.out, TOKENS * WIDTH, 1e-6, "gated");
            args.glu.up = NULL;
            ops_compare(APR_OP_GLU, &args, &args.glu.out, TOKENS * WIDTH, 1e-6, "alone");
        }
    args = (apr_op_args){.add = {.n_tokens = TOKENS, .width = WIDTH, .a = x, .b = y}};
    ops_compare(APR_OP_ADD, &args, &args.add.out, TOKENS * WIDTH, 0, "");
    for (int mode = 0; mode < 2; mode++)
        for (int64_t start = 0; start <= HEAD - 2 * FREQS; start += 8) {
            args = (apr_op_args){.rope = {.n_tokens = TOKENS,
                                          .n_heads = HEADS,
                                          .head_dim = HEAD,
                                          .n_freqs = FREQS,
                                          .start = start,
                                          .mode = (apr_rope_mode)mode,
                                          .x = x,
                                          .angles = angles}};
            ops_compare(APR_OP_ROPE, &args, &args.rope.out, TOKENS * WIDTH, 1e-7, "");
        }
    args = (apr_op_args){.angles = {.n_tokens = TOKENS, .position = 1000, .n_freqs = FREQS, .freqs = freqs, .magnitude = 1.5f}};
    ops_compare(APR_OP_ANGLES, &args, &args.angles.out, TOKENS * 2 * FREQS, 1e-7, "");
    free(x);
    free(y);
    free(freqs);
    free(angles);
}

/* gate 2, up 3 with limit 1: 1 * sigmoid(alpha) * (1 + 1), as gpt-oss has it. */
static void a_gated_unit_is_limited_before_it_is_offset(void **state)
{
    (void)state;
    const apr_glu_shape shape = {.activation = APR_ACT_SILU, .limit = 1.0f, .alpha = 1.702f, .up_offset = 1.0f};
    const float gate[2] = {2, -5}, up[2] = {3, -4};
    float out[2];
    apr_op_args args = {.glu = {.n_tokens = 1, .width = 2, .shape = shape, .gate = gate, .up = up, .out = out, .n_threads = 1}};
    apr_ref_backend.ops[APR_OP_GLU](&args);
    assert_float_equal(out[0], 2.0 / (1.0 + exp(-1.702)), 1e-6);
    assert_float_equal(out[1], 0.0, 1e-6); /* up becomes -1, and -1 + 1 is nothing */
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
    args.rope.mode = APR_ROPE_NEIGHBOURS;
    args.rope.start = 1;
    apr_ref_backend.ops[APR_OP_ROPE](&args);
    assert_true(out[0] == 1.0f);
    assert_float_equal(out[1], 2 * cosf(3.0f) - 3 * sinf(3.0f), 1e-6);
    assert_float_equal(out[4], 5 * cosf(1.5f) + 4 * sinf(1.5f), 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_agrees_over_shapes),
        cmocka_unit_test(long_rows_give_the_same_bits_whatever_the_number_of_tokens),
        cmocka_unit_test(linear_agrees_for_every_dtype_of_weights),
        cmocka_unit_test(linear_takes_pending_steps_and_fp8_scales_into_account),
        cmocka_unit_test(long_rows_take_pending_steps_and_scales_into_account),
        cmocka_unit_test(attention_agrees_over_heads_positions_windows_and_caches),
        cmocka_unit_test(attention_agrees_with_chunks_caps_sinks_and_unequal_widths),
        cmocka_unit_test(attention_to_a_long_context_is_divided_and_joined),
        cmocka_unit_test(a_sink_takes_weight_and_gives_no_value),
        cmocka_unit_test(sparse_attention_agrees_and_is_attention_where_all_are_chosen),
        cmocka_unit_test(of_equal_scores_the_lower_position_is_chosen),
        cmocka_unit_test(attention_survives_large_scores),
        cmocka_unit_test(norms_agree_over_kinds_and_chunks),
        cmocka_unit_test(norms_are_what_they_are_called),
        cmocka_unit_test(the_small_operations_agree),
        cmocka_unit_test(learned_positions_are_rows_of_their_table),
        cmocka_unit_test(gelu_and_relu_are_as_defined),
        cmocka_unit_test(a_gated_unit_is_limited_before_it_is_offset),
        cmocka_unit_test(rotation_turns_the_halves_of_a_head),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
