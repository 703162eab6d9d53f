/* test_feedback.c - error feedback against a dense, slow way to say the same, and what its steps promise. */
#include "quant/feedback/feedback.h"

#include "formats/tensor/model.h"
#include "kernels/rows.h"
#include "quant/feedback/lane_rows.h"
#include "quant/feedback/points_search.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The last N_POINTS have codebooks: their codes are chosen in groups. */
static const apr_dtype all_types[] = {APR_Q4_0,   APR_Q4_1,    APR_Q5_0,  APR_Q5_1,   APR_Q8_0,   APR_Q4_K,    APR_Q5_K,
                                      APR_Q6_K,   APR_MXFP4,   APR_NVFP4, APR_IQ4_NL, APR_IQ4_XS, APR_Q3_K,    APR_Q2_K,
                                      APR_Q2_0,   APR_TQ1_0,   APR_TQ2_0, APR_Q1_0,   APR_IQ3_S,  APR_IQ3_XXS, APR_IQ2_S,
                                      APR_IQ2_XS, APR_IQ2_XXS, APR_IQ1_M, APR_IQ1_S};
enum { N_TYPES = sizeof all_types / sizeof *all_types, N_POINTS = 7, N_SINGLE = N_TYPES - N_POINTS };

static uint32_t seed = 1;
static float noise(void)
{
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        seed = seed * 1664525u + 1013904223u;
        sum += (float)(seed >> 8) * 0x1p-24f - 0.5f;
    }
    return sum;
}

/* A matrix, inputs of which some hang together and some are much larger, and their Hessian. */
typedef struct problem {
    int64_t n, n_rows, n_tokens;
    float *weights, *x;
    apr_hessian hessian;
} problem;

static problem make(int64_t n, int64_t n_rows, int64_t n_tokens)
{
    problem p = {.n = n, .n_rows = n_rows, .n_tokens = n_tokens};
    seed = (uint32_t)(n * 31 + n_rows);
    p.weights = malloc((size_t)(n * n_rows) * sizeof *p.weights);
    p.x = malloc((size_t)(n * n_tokens) * sizeof *p.x);
    for (int64_t i = 0; i < n * n_rows; i++) p.weights[i] = noise();
    for (int64_t t = 0; t < n_tokens; t++) {
        float drift = 0.0f;
        for (int64_t j = 0; j < n; j++) {
            drift = 0.8f * drift + noise();
            p.x[t * n + j] = drift * (j % 37 == 5 ? 6.0f : 1.0f);
        }
    }
    assert_int_equal(apr_hessian_open(&p.hessian, n, NULL), APR_OK);
    apr_hessian_add(&p.hessian, p.x, n_tokens);
    return p;
}

static void drop(problem *p)
{
    free(p->weights);
    free(p->x);
    apr_hessian_close(&p->hessian);
}

static uint8_t *encode_plainly(const problem *p, apr_dtype dtype)
{
    uint8_t *const bytes = malloc((size_t)apr_row_bytes(dtype, p->n * p->n_rows));
    apr_host_codecs()[dtype].encode(p->weights, bytes, p->n * p->n_rows);
    return bytes;
}

/* tr(E H E^T) of what a decoder reads, in float64, with the Hessian as it was prepared. */
static double true_error(const problem *p, const apr_feedback *f, apr_dtype dtype, const uint8_t *bytes)
{
    float *const values = malloc((size_t)(p->n * p->n_rows) * sizeof *values);
    double sum = 0.0;

    apr_ref_codecs[dtype].decode(bytes, values, p->n * p->n_rows);
    for (int64_t r = 0; r < p->n_rows; r++)
        for (int64_t i = 0; i < p->n; i++) {
            const double e = (double)p->weights[r * p->n + i] - (double)values[r * p->n + i];
            double row = 0.0;
            for (int64_t j = 0; j < p->n; j++)
                row += (double)f->h[i * p->n + j] * ((double)p->weights[r * p->n + j] - (double)values[r * p->n + j]);
            sum += e * row;
        }
    free(values);
    return sum;
}

static apr_feedback prepare(const problem *p, apr_feedback_options options)
{
    apr_feedback f;
    assert_int_equal(apr_feedback_prepare(&f, &p->hessian, &options, "a layer", NULL), APR_OK);
    return f;
}

/* The same Hessian in the orders that the types need: of columns, and of groups. */
typedef struct both {
    apr_feedback single, group;
} both;

static both prepare_both(const problem *p)
{
    return (both){prepare(p, (apr_feedback_options){0}), prepare(p, (apr_feedback_options){.group = APR_GRID_GROUP})};
}

static const apr_feedback *fit(const both *b, apr_dtype dtype) { return apr_feedback_group(dtype) > 1 ? &b->group : &b->single; }

static void close_both(both *b)
{
    apr_feedback_close(&b->single);
    apr_feedback_close(&b->group);
}

/* ---- grids ---- */

static void a_block_is_packed_to_the_bytes_it_was_unpacked_from(void **state)
{
    (void)state;
    problem p = make(512, 7, 4);
    for (int i = 0; i < N_TYPES; i++) {
        const apr_grid *const grid = apr_grid_of(all_types[i]);
        const int64_t block_bytes = apr_row_bytes(all_types[i], grid->elems);
        uint8_t *const bytes = encode_plainly(&p, all_types[i]);
        for (int64_t at = 0; at < p.n * p.n_rows / grid->elems; at++) {
            apr_grid_block block;
            uint8_t again[256];
            memset(again, 0xa5, sizeof again);
            grid->unpack(bytes + at * block_bytes, &block);
            grid->pack(&block, again);
            assert_memory_equal(again, bytes + at * block_bytes, block_bytes);
        }
        free(bytes);
    }
    drop(&p);
}

static void codes_and_scales_are_what_a_decoder_reads_bit_for_bit(void **state)
{
    (void)state;
    problem p = make(512, 3, 4);
    float values[APR_GRID_ELEMS];
    for (int i = 0; i < N_TYPES; i++) {
        const apr_grid *const grid = apr_grid_of(all_types[i]);
        const int64_t block_bytes = apr_row_bytes(all_types[i], grid->elems);
        uint8_t *const bytes = encode_plainly(&p, all_types[i]);
        for (int64_t at = 0; at < p.n * p.n_rows / grid->elems; at++) {
            apr_grid_block b;
            grid->unpack(bytes + at * block_bytes, &b);
            apr_ref_codecs[all_types[i]].decode(bytes + at * block_bytes, values, grid->elems);
            for (int j = 0; j < grid->elems; j++) {
                const int sub = j / grid->sub_elems;
                const float value = apr_grid_step(grid, b.d, b.scale[sub]) * (float)b.code[j] - apr_grid_offset(b.dmin, b.min[sub]);
                if (value != values[j]) fail_msg("%s: code %d of block %d", apr_dtypes[all_types[i]].name, j, (int)at);
            }
        }
        free(bytes);
    }
    drop(&p);
}

static void types_that_are_not_grids_are_not_taken(void **state)
{
    (void)state;
    assert_false(apr_feedback_supports(APR_F16));
    assert_false(apr_feedback_supports(APR_Q8_K));
    assert_true(apr_feedback_supports(APR_Q2_K));
    assert_true(apr_feedback_supports(APR_Q4_K));
}

/* ---- Hessians ---- */

static void sums_are_those_of_all_tokens_whatever_the_shape(void **state)
{
    (void)state;
    static const int64_t widths[] = {1, 3, 31, 32, 36, 70, 129};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        problem p = make(widths[w], 1, 300);
        for (int64_t i = 0; i < p.n; i++)
            for (int64_t j = 0; j <= i; j++) {
                double sum = 0.0, size = 0.0;
                for (int64_t t = 0; t < p.n_tokens; t++) {
                    const double product = (double)p.x[t * p.n + i] * (double)p.x[t * p.n + j];
                    sum += product;
                    size += fabs(product);
                }
                assert_true(fabs(p.hessian.sum[i * p.n + j] - sum) <= 1e-5 * size + 1e-30);
            }
        assert_int_equal(p.hessian.n_tokens, 300);
        drop(&p);
    }
}

/* R from its definition: the last column first, each from those after it. */
static void factor_slowly(const apr_feedback *f, double *r)
{
    const int64_t n = f->n;
    for (int64_t k = n - 1; k >= 0; k--)
        for (int64_t j = k; j >= 0; j--) {
            double v = (double)f->h[f->order[j] * n + f->order[k]];
            for (int64_t m = k + 1; m < n; m++) v -= r[j * n + m] * r[k * n + m];
            r[j * n + k] = j == k ? sqrt(v) : v / r[k * n + k];
        }
}

static void factors_are_those_of_the_damped_hessian_in_its_order(void **state)
{
    (void)state;
    problem p = make(150, 1, 400);
    apr_feedback f = prepare(&p, (apr_feedback_options){0});
    double *const r = calloc((size_t)(p.n * p.n), sizeof *r);

    factor_slowly(&f, r);
    for (int64_t k = 0; k < p.n; k++) {
        if (k > 0) assert_true(p.hessian.sum[f.order[k] * (p.n + 1)] <= p.hessian.sum[f.order[k - 1] * (p.n + 1)]);
        for (int64_t j = 0; j < k; j++) assert_true(fabs((double)f.pull[k * p.n + j] - r[j * p.n + k] / r[k * p.n + k]) < 1e-3);
    }
    free(r);
    apr_feedback_close(&f);
    drop(&p);
}

static void sums_with_weights_are_those_of_weighted_tokens(void **state)
{
    static const int64_t widths[] = {32, 70, 256};
    float ones[300], weights[300];
    (void)state;

    for (int i = 0; i < 300; i++) {
        ones[i] = 1.0f;
        weights[i] = (float)(i % 11) * 0.7f;
    }
    for (int w = 0; w < 3; w++) {
        problem p = make(widths[w], 1, 300);
        apr_hessian same, weighted;
        assert_int_equal(apr_hessian_open(&same, p.n, NULL), APR_OK);
        assert_int_equal(apr_hessian_open(&weighted, p.n, NULL), APR_OK);
        assert_int_equal(apr_hessian_add_weighted(&same, p.x, ones, p.n_tokens, NULL), APR_OK);
        assert_memory_equal(same.sum, p.hessian.sum, (size_t)(p.n * p.n) * sizeof *same.sum);
        assert_int_equal(same.n_tokens, p.n_tokens);
        assert_int_equal(apr_hessian_add_weighted(&weighted, p.x, weights, p.n_tokens, NULL), APR_OK);
        for (int64_t i = 0; i < p.n; i++)
            for (int64_t j = 0; j <= i; j++) {
                double sum = 0.0, size = 0.0;
                for (int64_t t = 0; t < p.n_tokens; t++) {
                    const double term = (double)weights[t] * (double)p.x[t * p.n + i] * (double)p.x[t * p.n + j];
                    sum += term;
                    size += fabs(term);
                }
                assert_true(fabs(weighted.sum[i * p.n + j] - sum) <= 1e-5 * size);
            }
        apr_hessian_close(&same);
        apr_hessian_close(&weighted);
        drop(&p);
    }
}

static void unseen_columns_and_fewer_tokens_than_columns_are_handled(void **state)
{
    (void)state;
    problem p = make(64, 5, 9);
    for (int64_t t = 0; t < p.n_tokens; t++) p.x[t * p.n + 11] = 0.0f;
    apr_hessian_close(&p.hessian);
    assert_int_equal(apr_hessian_open(&p.hessian, p.n, NULL), APR_OK);
    assert_true(apr_hessian_is_empty(&p.hessian));
    apr_hessian_add(&p.hessian, p.x, p.n_tokens);
    assert_false(apr_hessian_is_empty(&p.hessian));

    apr_feedback f = prepare(&p, (apr_feedback_options){.damping = 1e-6});
    assert_int_equal(f.order[63], 11);
    for (int64_t i = 0; i < p.n * p.n; i++) assert_true(isfinite(f.h[i]));
    for (int64_t k = 0; k < p.n; k++)
        for (int64_t j = 0; j < k; j++) assert_true(isfinite(f.pull[k * p.n + j]));
    apr_feedback_close(&f);
    drop(&p);
}

static void nan_values_are_refused_by_name(void **state)
{
    (void)state;
    problem p = make(64, 2, 80);
    apr_feedback f;
    apr_error err = {0};
    apr_feedback_errors errors;
    const apr_feedback_options options = {0};
    uint8_t bytes[4096];

    f = prepare(&p, options);
    p.weights[64 + 3] = NAN;
    assert_int_equal(apr_feedback_encode(&f, APR_Q4_0, p.weights, 2, &options, "blk.0.x", bytes, &errors, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "'blk.0.x': row 1, column 3"));
    apr_feedback_close(&f);

    err = (apr_error){0};
    p.hessian.sum[5 * 64 + 2] = (double)INFINITY;
    assert_int_equal(apr_feedback_prepare(&f, &p.hessian, &options, "blk.0.x", &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "blk.0.x: the calibration text"));
    drop(&p);
}

/* ---- the search ---- */

static bool is_a_code(const apr_grid *grid, int code)
{
    static const int magnitudes[] = {0, 1, 2, 3, 4, 6, 8, 12};
    bool is_one = !grid->is_e2m1 && grid->levels == NULL;
    for (int m = 0; m < 8 && grid->is_e2m1; m++) is_one |= abs(code) == magnitudes[m];
    for (int m = 0; m < grid->n_levels; m++) is_one |= code == grid->levels[m];
    return is_one;
}

/* The same in float64, one row at a time, straight from the sentence in hessian.h. */
static void round_slowly(const problem *p, const apr_feedback *f, const double *r, apr_dtype dtype, const uint8_t *start, int64_t row,
                         float *values)
{
    const apr_grid *const grid = apr_grid_of(dtype);
    const int64_t n = p->n, block_bytes = apr_row_bytes(dtype, grid->elems), n_blocks = n / grid->elems;
    double *const error = calloc((size_t)n, sizeof *error);

    for (int64_t k = 0; k < n; k++) {
        const int64_t column = f->order[k];
        double x = (double)p->weights[row * n + column], least = INFINITY;
        apr_grid_block b;
        for (int64_t j = 0; j < k; j++) x += error[j] * r[j * n + k] / r[k * n + k];
        grid->unpack(start + (row * n_blocks + column / grid->elems) * block_bytes, &b);
        const int sub = (int)(column % grid->elems) / grid->sub_elems;
        for (int code = (int)grid->low; code <= (int)grid->high; code++) {
            const float value = apr_grid_step(grid, b.d, b.scale[sub]) * (float)code - apr_grid_offset(b.dmin, b.min[sub]);
            if (!is_a_code(grid, code) || !(fabs((double)value - x) < least)) continue;
            least = fabs((double)value - x);
            values[row * n + column] = value;
        }
        error[k] = (double)p->weights[row * n + column] - (double)values[row * n + column];
    }
    free(error);
}

static void feedback_alone_is_what_its_definition_says(void **state)
{
    (void)state;
    problem p = make(512, 21, 900);
    apr_feedback f = prepare(&p, (apr_feedback_options){0});
    double *const r = calloc((size_t)(p.n * p.n), sizeof *r);
    float *const slow = malloc((size_t)(p.n * p.n_rows) * sizeof *slow), *const fast = malloc((size_t)(p.n * p.n_rows) * sizeof *fast);

    factor_slowly(&f, r);
    for (int i = 0; i < N_SINGLE; i++) {
        const apr_feedback_options options = {.rounds = -1};
        apr_feedback_errors errors;
        int64_t n_other_rows = 0;
        uint8_t *const start = encode_plainly(&p, all_types[i]), *const bytes = encode_plainly(&p, all_types[i]);
        for (int64_t row = 0; row < p.n_rows; row++) round_slowly(&p, &f, r, all_types[i], start, row, slow);
        assert_int_equal(apr_feedback_encode(&f, all_types[i], p.weights, p.n_rows, &options, "w", bytes, &errors, NULL), APR_OK);
        apr_ref_codecs[all_types[i]].decode(bytes, fast, p.n * p.n_rows);
        /* a tie that float32 decides otherwise changes the rest of its row, and hardly its error */
        for (int64_t row = 0; row < p.n_rows; row++)
            n_other_rows += memcmp(slow + row * p.n, fast + row * p.n, (size_t)p.n * sizeof *slow) != 0;
        if (n_other_rows > p.n_rows / 3) fail_msg("%s: %d of %d rows", apr_dtypes[all_types[i]].name, (int)n_other_rows, (int)p.n_rows);
        free(start);
        free(bytes);
    }
    free(r);
    free(slow);
    free(fast);
    apr_feedback_close(&f);
    drop(&p);
}

/* ---- groups of a codebook ---- */

/* All codes that a group can have, for a book of eight values. Returns how many. */
static int list_codes(const apr_points *points, int8_t (*codes)[8])
{
    const points_search p = points_search_of(points);
    const int n_shifts = points_have_signs(p.type) ? 1 : 2, n_signs = points_have_signs(p.type) ? 256 : 1;
    int n = 0;

    for (int k = 0; k < p.book->n_points; k++)
        for (int shift = 0; shift < n_shifts; shift++)
            for (int signs = 0; signs < n_signs; signs++) {
                if (p.type->signs == IQ_EVEN_SIGNS && __builtin_parity((unsigned)signs)) continue;
                for (int i = 0; i < 8; i++) {
                    const float level = p.level[shift][p.book->words[k] >> 2 * i & 3];
                    codes[n][i] = (int8_t)(signs >> i & 1 ? -level : level);
                }
                n++;
            }
    return n;
}

static double error_of(double (*s)[8], const double *u, const int8_t *code)
{
    double sum = 0.0;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) sum += (u[i] - code[i]) * s[i][j] * (u[j] - code[j]);
    return sum;
}

static double least_error(double (*s)[8], const double *u, int8_t (*codes)[8], int n)
{
    double least = INFINITY;
    for (int k = 0; k < n; k++) {
        const double error = error_of(s, u, codes[k]);
        if (error < least) least = error;
    }
    return least;
}

/* A metric with the correlations of neighbouring inputs, and wanted values as large as the codes of the type. */
static void make_group(const apr_points *points, float (*s)[8], float *u)
{
    float a[8][8];
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) a[i][j] = (i == j ? 1.0f : 0.5f * noise()) * (1.0f + noise());
    for (int i = 0; i < 8; i++) {
        u[i] = noise() * points->type->level[0][points->type->n_levels - 1] / points->unit;
        for (int j = 0; j < 8; j++) {
            s[i][j] = 0.0f;
            for (int k = 0; k < 8; k++) s[i][j] += a[i][k] * a[j][k];
            s[i][j] += i == j ? 0.1f : 0.0f;
        }
    }
}

static void codes_of_a_group_are_nearly_the_best_of_all(void **state)
{
    static const struct {
        apr_dtype dtype;
        int n_groups;
    } cases[] = {{APR_IQ2_XXS, 20}, {APR_IQ2_XS, 10}, {APR_IQ2_S, 3}, {APR_IQ1_M, 150}};
    int8_t(*const codes)[8] = malloc((size_t)1024 * 256 * sizeof *codes);
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const apr_points *const points = apr_grid_of(cases[c].dtype)->points;
        const int n = list_codes(points, codes);
        double found = 0.0, least = 0.0;
        for (int g = 0; g < cases[c].n_groups; g++) {
            points_search p = points_search_of(points);
            float u[8], code[8];
            double metric[8][8], wanted[8];
            int8_t chosen[8];
            make_group(points, p.s, u);
            for (int i = 0; i < 8; i++) p.inverse[i] = 1.0f / p.s[i][i];
            points_nearest(&p, u, 0, code);
            for (int i = 0; i < 8; i++) {
                wanted[i] = (double)u[i];
                chosen[i] = (int8_t)code[i];
                for (int j = 0; j < 8; j++) metric[i][j] = (double)p.s[i][j];
            }
            found += error_of(metric, wanted, chosen);
            least += least_error(metric, wanted, codes, n);
        }
        print_message("%s: %.4f of the least error\n", apr_dtypes[cases[c].dtype].name, found / least);
        assert_true(found > 0.999 * least && found < 1.06 * least);
    }
    free(codes);
}

#if defined(__x86_64__)
static void both_levels_of_the_processor_choose_the_same_codes(void **state)
{
    static const apr_dtype dtypes[] = {APR_IQ3_S, APR_IQ3_XXS, APR_IQ2_XS, APR_IQ1_M, APR_IQ1_S};
    (void)state;
    if (!__builtin_cpu_supports("avx2")) skip();
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        const apr_points *const points = apr_grid_of(dtypes[d])->points;
        points_search p = points_search_of(points);
        float u[8], x[8 * 16], step[16], inverse[16], code[2][8 * 16] = {{0.0f}}, value[2][8 * 16];
        int shift[16];
        for (int v = 0; v < 16; v++) {
            make_group(points, p.s, u);
            step[v] = v == 3 ? 0.0f : 0.5f + 0.01f * (float)v;
            inverse[v] = v == 3 ? 0.0f : 1.0f / step[v];
            shift[v] = dtypes[d] == APR_IQ1_S ? v % 2 : 0;
            for (int i = 0; i < 8; i++) x[16 * i + v] = u[i];
        }
        for (int i = 0; i < 8; i++) p.inverse[i] = 1.0f / p.s[i][i];
        points_all(&p, &(points_lanes){x, step, inverse, shift, code[0], value[0]});
        points_all_avx2(&p, &(points_lanes){x, step, inverse, shift, code[1], value[1]});
        assert_memory_equal(code[0], code[1], sizeof code[0]);
        assert_memory_equal(value[0], value[1], sizeof value[0]);
        assert_true(code[0][0] != 0.0f && code[0][3] == 0.0f);
    }
}
#endif

static void errors_are_those_of_the_bytes_and_fall_from_step_to_step(void **state)
{
    (void)state;
    problem p = make(512, 19, 2000);
    both f = prepare_both(&p);
    for (int i = 0; i < N_TYPES; i++) {
        const apr_feedback_options options = {.rounds = 3};
        apr_feedback_errors errors;
        uint8_t *const bytes = encode_plainly(&p, all_types[i]);
        const double start = true_error(&p, fit(&f, all_types[i]), all_types[i], bytes);
        assert_int_equal(apr_feedback_encode(fit(&f, all_types[i]), all_types[i], p.weights, p.n_rows, &options, "w", bytes, &errors, NULL),
                         APR_OK);
        const double end = true_error(&p, fit(&f, all_types[i]), all_types[i], bytes);
        assert_true(fabs(errors.start - start) < 1e-3 * start && fabs(errors.end - end) < 1e-3 * end);
        print_message("%s: %.4g, feedback %.3f, end %.3f\n", apr_dtypes[all_types[i]].name, start, errors.rounded / start, end / start);
        assert_true(errors.rounded < start);
        assert_true(end < 0.98 * errors.rounded);
        free(bytes);
    }
    close_both(&f);
    drop(&p);
}

static void descent_and_refit_never_raise_the_error(void **state)
{
    (void)state;
    problem p = make(256, 13, 700);
    both f = prepare_both(&p);
    for (int i = 0; i < N_TYPES; i++) {
        apr_lane_rows rows;
        uint8_t *const bytes = encode_plainly(&p, all_types[i]);
        const int64_t row_bytes = apr_row_bytes(all_types[i], p.n);
        assert_int_equal(apr_lane_rows_open(&rows, fit(&f, all_types[i]), apr_grid_of(all_types[i]), NULL), APR_OK);
        apr_lane_rows_load(&rows, p.weights, bytes, row_bytes, (int)p.n_rows);
        double before = apr_lane_rows_objective(&rows);
        for (int step = 0; step < 6; step++) {
            if (step % 3 == 2) apr_lane_rows_refit(&rows);
            else apr_lane_rows_descend(&rows, step % 3 == 1);
            const double now = apr_lane_rows_objective(&rows);
            if (!(now <= before * (1.0 + 1e-5))) fail_msg("%s, step %d: %g -> %g", apr_dtypes[all_types[i]].name, step, before, now);
            before = now;
        }
        apr_lane_rows_store(&rows, bytes, row_bytes);
        assert_true(fabs(true_error(&p, fit(&f, all_types[i]), all_types[i], bytes) - before) < 1e-3 * before);
        apr_lane_rows_close(&rows);
        free(bytes);
    }
    close_both(&f);
    drop(&p);
}

static void a_row_becomes_the_same_whatever_other_rows_there_are(void **state)
{
    (void)state;
    problem p = make(256, 40, 600);
    apr_feedback f = prepare(&p, (apr_feedback_options){0});
    const apr_feedback_options options = {0};
    apr_feedback_errors errors;
    uint8_t *const all = encode_plainly(&p, APR_Q4_K), *const one = encode_plainly(&p, APR_Q4_K);
    const int64_t row_bytes = apr_row_bytes(APR_Q4_K, p.n);

    assert_int_equal(apr_feedback_encode(&f, APR_Q4_K, p.weights, p.n_rows, &options, "w", all, &errors, NULL), APR_OK);
    for (int64_t row = 0; row < p.n_rows; row += 3) {
        assert_int_equal(apr_feedback_encode(&f, APR_Q4_K, p.weights + row * p.n, 1, &options, "w", one + row * row_bytes, &errors, NULL),
                         APR_OK);
        assert_memory_equal(one + row * row_bytes, all + row * row_bytes, row_bytes);
    }
    free(all);
    free(one);
    apr_feedback_close(&f);
    drop(&p);
}

static void rows_of_zeros_and_no_rows_are_handled(void **state)
{
    (void)state;
    problem p = make(256, 3, 300);
    both f = prepare_both(&p);
    for (int i = 0; i < N_TYPES; i++) {
        const apr_feedback_options options = {0};
        apr_feedback_errors errors;
        memset(p.weights + 256, 0, 256 * sizeof *p.weights);
        uint8_t *const bytes = encode_plainly(&p, all_types[i]);
        float values[768];
        assert_int_equal(apr_feedback_encode(fit(&f, all_types[i]), all_types[i], p.weights, 0, &options, "w", bytes, &errors, NULL),
                         APR_OK);
        assert_int_equal(apr_feedback_encode(fit(&f, all_types[i]), all_types[i], p.weights, 3, &options, "w", bytes, &errors, NULL),
                         APR_OK);
        apr_ref_codecs[all_types[i]].decode(bytes, values, 768);
        for (int j = 256; j < 512; j++) assert_float_equal(values[j], 0.0f, 0.0f);
        free(bytes);
    }
    close_both(&f);
    drop(&p);
}

static void rows_that_are_not_whole_blocks_are_refused(void **state)
{
    (void)state;
    problem p = make(96, 3, 100);
    apr_feedback f = prepare(&p, (apr_feedback_options){0});
    const apr_feedback_options options = {0};
    apr_feedback_errors errors;
    uint8_t bytes[4096];
    assert_int_equal(apr_feedback_encode(&f, APR_Q4_K, p.weights, 3, &options, "w", bytes, &errors, NULL), APR_E_UNSUPPORTED);
    assert_int_equal(apr_feedback_encode(&f, APR_F16, p.weights, 3, &options, "w", bytes, &errors, NULL), APR_E_UNSUPPORTED);
    apr_feedback_close(&f);
    drop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_packed_to_the_bytes_it_was_unpacked_from),
        cmocka_unit_test(codes_and_scales_are_what_a_decoder_reads_bit_for_bit),
        cmocka_unit_test(types_that_are_not_grids_are_not_taken),
        cmocka_unit_test(sums_are_those_of_all_tokens_whatever_the_shape),
        cmocka_unit_test(sums_with_weights_are_those_of_weighted_tokens),
        cmocka_unit_test(factors_are_those_of_the_damped_hessian_in_its_order),
        cmocka_unit_test(unseen_columns_and_fewer_tokens_than_columns_are_handled),
        cmocka_unit_test(nan_values_are_refused_by_name),
        cmocka_unit_test(feedback_alone_is_what_its_definition_says),
        cmocka_unit_test(codes_of_a_group_are_nearly_the_best_of_all),
#if defined(__x86_64__)
        cmocka_unit_test(both_levels_of_the_processor_choose_the_same_codes),
#endif
        cmocka_unit_test(errors_are_those_of_the_bytes_and_fall_from_step_to_step),
        cmocka_unit_test(descent_and_refit_never_raise_the_error),
        cmocka_unit_test(a_row_becomes_the_same_whatever_other_rows_there_are),
        cmocka_unit_test(rows_of_zeros_and_no_rows_are_handled),
        cmocka_unit_test(rows_that_are_not_whole_blocks_are_refused),
    };
    return cmocka_run_group_tests_name("feedback", tests, NULL, NULL);
}
