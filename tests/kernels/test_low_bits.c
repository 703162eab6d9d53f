/* test_low_bits.c - the encoders of Q2_K, Q3_K, IQ4_NL, IQ4_XS, TQ1_0, TQ2_0, Q1_0, Q2_0 and NVFP4: against ggml's, and against searches
 * of everything that a block can store. */
#include "kernels/rows.h"

#include "formats/number/blocks.h"
#include "formats/number/half.h"
#include "tests/support/vectors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* tests/data/low-bits/rows.safetensors: rows of Student's t (5), importances, and what ggml made of them. */
enum { N_ROWS = 4, COLUMNS = 1024, N_VALUES = N_ROWS * COLUMNS };

static vectors ggml;
static const float *x, *w;

static int open_rows(void **state)
{
    (void)state;
    if (!vectors_open(&ggml, "tests/data/low-bits/rows.safetensors")) return -1;
    x = vectors_find(&ggml, "x", NULL);
    w = vectors_find(&ggml, "w", NULL);
    return x != NULL && w != NULL ? 0 : -1;
}

static int close_rows(void **state)
{
    (void)state;
    vectors_close(&ggml);
    return 0;
}

static const apr_dtype types[] = {APR_Q2_K, APR_Q3_K, APR_IQ4_NL, APR_IQ4_XS, APR_TQ1_0, APR_TQ2_0, APR_NVFP4, APR_Q1_0, APR_Q2_0};
enum { N_TYPES = sizeof types / sizeof *types };

static const char *name_of(apr_dtype dtype) { return apr_dtypes[dtype].name; }

/* The values that the reference's encoder leaves; importance NULL: none. */
static void round_trip(apr_dtype dtype, const float *importance, float *values)
{
    static uint8_t bytes[N_VALUES];
    if (importance != NULL) apr_ref_codecs[dtype].encode_by(x, importance, bytes, N_VALUES);
    else apr_ref_codecs[dtype].encode(x, bytes, N_VALUES);
    apr_ref_codecs[dtype].decode(bytes, values, N_VALUES);
}

static double error_of(const float *values, const float *weight, int64_t first, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = first; i < first + n; i++) {
        const double e = (double)values[i] - x[i];
        sum += (weight != NULL ? (double)weight[i] : 1.0) * e * e;
    }
    return sum;
}

/* ---- against ggml ---- */

static void ggmls_blocks_decode_bit_for_bit(void **state)
{
    (void)state;
    for (int t = 0; t < N_TYPES; t++) {
        size_t n_bytes;
        const uint8_t *const bytes = vectors_part(&ggml, name_of(types[t]), "bytes", &n_bytes);
        float values[N_VALUES];
        assert_int_equal(n_bytes, apr_row_bytes(types[t], N_VALUES));
        apr_ref_codecs[types[t]].decode(bytes, values, N_VALUES);
        assert_memory_equal(values, vectors_part(&ggml, name_of(types[t]), "f32", NULL), sizeof values);
    }
}

/* Bounds of our squared error over ggml's, a little above what was measured; ggml's Q1_0 is exact without importance, which it ignores in
 * the scale. */
static void lose_less_than_ggml(void **state)
{
    static const struct {
        apr_dtype dtype;
        double plain, by;
    } table[] = {{APR_Q2_K, 0.74, 0.91},   {APR_Q3_K, 0.92, 0.98},   {APR_IQ4_NL, 0.94, 0.94},
                 {APR_IQ4_XS, 0.94, 0.94}, {APR_TQ1_0, 0.40, 0.40},  {APR_TQ2_0, 0.40, 0.40},
                 {APR_NVFP4, 0.82, 0.72},  {APR_Q1_0, 1.00001, 1.0}, {APR_Q2_0, 0.32, 0.30}};
    static const float zeros[N_VALUES];
    (void)state;
    for (size_t t = 0; t < sizeof table / sizeof *table; t++) {
        const apr_dtype dtype = table[t].dtype;
        float ours[N_VALUES], theirs[N_VALUES];
        round_trip(dtype, NULL, ours);
        const double relative = error_of(ours, NULL, 0, N_VALUES) / error_of(zeros, NULL, 0, N_VALUES);
        const double plain =
            error_of(ours, NULL, 0, N_VALUES) / error_of(vectors_part(&ggml, name_of(dtype), "f32", NULL), NULL, 0, N_VALUES);
        round_trip(dtype, w, ours);
        apr_ref_codecs[dtype].decode(vectors_part(&ggml, name_of(dtype), "bytes_by", NULL), theirs, N_VALUES);
        const double by = error_of(ours, w, 0, N_VALUES) / error_of(theirs, w, 0, N_VALUES);
        printf("%-6s squared error over ggml's: %.4f, by importance %.4f; over the power of the values, plain: %.4f\n", name_of(dtype),
               plain, by, relative);
        if (plain > table[t].plain || by > table[t].by) fail_msg("%s: %.4f, by importance %.4f", name_of(dtype), plain, by);
    }
}

/* ---- one scale: against 4,096 scales of each sign ---- */

static double whole_level(double v, double low, double high) { return fmin(fmax(rint(v), low), high); }
static double ternary(double v) { return whole_level(v, -1.0, 1.0); }
static double two_bits(double v) { return whole_level(v, -1.0, 2.0); }
static double three_bits(double v) { return whole_level(v, -4.0, 3.0); }
static double iq4(double v)
{
    static const int levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    double best = levels[0];
    for (int k = 1; k < 16; k++)
        if (fabs(v - levels[k]) < fabs(v - best)) best = levels[k];
    return best;
}

typedef double (*level_fn)(double v);

/* The error of n values with a step; fitted: with the step that is best for these levels instead. */
static double step_error(const float *v, const float *weight, int n, double step, level_fn level, bool fitted)
{
    double xx = 0.0, cx = 0.0, cc = 0.0;
    for (int i = 0; i < n; i++) {
        const double c = step != 0.0 ? level(v[i] / step) : level(0.0), wc = weight[i] * c;
        xx += (double)weight[i] * v[i] * v[i];
        cx += wc * v[i];
        cc += wc * c;
    }
    return fitted ? xx - (cc > 0.0 ? cx * cx / cc : 0.0) : xx - 2.0 * step * cx + step * step * cc;
}

static double least_of_all_scales(const float *v, const float *weight, int n, level_fn level, double most_level)
{
    enum { SCALES = 4096 };
    double amax = 0.0, least = INFINITY;
    for (int i = 0; i < n; i++) amax = fmax(amax, fabs((double)v[i]));
    for (int s = 0; s < SCALES; s++) {
        const double step = amax * 2.0 / (most_level * pow(40.0, s / (double)(SCALES - 1)));
        least = fmin(least, step_error(v, weight, n, step, level, true));
        least = fmin(least, step_error(v, weight, n, -step, level, true));
    }
    return least;
}

static void one_scale_is_the_best_of_thousands(void **state)
{
    static const struct {
        apr_dtype dtype;
        level_fn level;
        int elems, every; /* blocks tested: every so many */
        double most_level;
    } table[] = {{APR_Q2_0, two_bits, 64, 1, 2.0},
                 {APR_TQ1_0, ternary, 256, 1, 1.0},
                 {APR_TQ2_0, ternary, 256, 1, 1.0},
                 {APR_IQ4_NL, iq4, 32, 8, 127.0}};
    static float ones[N_VALUES];
    (void)state;
    for (int i = 0; i < N_VALUES; i++) ones[i] = 1.0f;
    for (size_t t = 0; t < sizeof table / sizeof *table; t++)
        for (int by = 0; by < 2; by++) {
            const float *const weight = by ? w : ones;
            const int n = table[t].elems;
            float values[N_VALUES];
            double ours = 0.0, best = 0.0, worst = 0.0;
            round_trip(table[t].dtype, by ? w : NULL, values);
            for (int at = 0; at < N_VALUES; at += n * table[t].every) {
                const double least = least_of_all_scales(x + at, weight + at, n, table[t].level, table[t].most_level);
                const double error = error_of(values, weight, at, n);
                ours += error;
                best += least;
                worst = fmax(worst, error / least);
            }
            printf("%-6s %s: squared error over the best of 4,096 scales %.5f, of a block at most %.4f\n", name_of(table[t].dtype),
                   by ? "by importance" : "plain", ours / best, worst);
            assert_true(ours / best <= 1.0005);
            assert_true(worst <= 1.01);
            assert_true(ours / best >= 0.9995); /* the comparison found the best scales */
        }
}

static void q1_0_has_the_mean_magnitude(void **state)
{
    float values[N_VALUES];
    (void)state;
    round_trip(APR_Q1_0, w, values);
    for (int at = 0; at < N_VALUES; at += 128) {
        double sum = 0.0, sum_w = 0.0;
        for (int i = at; i < at + 128; i++) {
            sum += (double)w[i] * fabs((double)x[i]);
            sum_w += (double)w[i];
            assert_true(signbit(values[i]) == signbit(x[i]));
        }
        assert_true(fabs(fabs((double)values[at]) / (sum / sum_w) - 1.0) < 0x1p-10);
    }
}

/* ---- NVFP4: against all scales ---- */

static double e2m1_error(const float *v, const float *weight, double step)
{
    static const double magnitude[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    double sum = 0.0;
    for (int i = 0; i < 16; i++) {
        double least = INFINITY;
        for (int k = 0; k < 8; k++) least = fmin(least, fabs(fabs((double)v[i]) - step * magnitude[k]));
        sum += weight[i] * least * least;
    }
    return sum;
}

static void nvfp4_finds_the_best_of_all_scales(void **state)
{
    static uint8_t bytes[N_VALUES];
    float values[N_VALUES];
    double ours = 0.0, best = 0.0;
    (void)state;
    apr_ref_codecs[APR_NVFP4].encode_by(x, w, bytes, N_VALUES);
    apr_ref_codecs[APR_NVFP4].decode(bytes, values, N_VALUES);
    for (int at = 0; at < N_VALUES; at += 16) {
        const uint8_t scale = ((const apr_block_NVFP4 *)bytes)[at / 64].d[at / 16 % 4];
        double least = INFINITY;
        assert_true(scale > 0 && scale < 0x7f);
        for (int s = 1; s < 0x7f; s++) least = fmin(least, e2m1_error(x + at, w + at, apr_e4m3_to_f32((uint8_t)s)));
        ours += error_of(values, w, at, 16);
        best += least;
    }
    printf("nvfp4  squared error over the best of all scales %.6f\n", ours / best);
    assert_true(ours / best <= 1.0005 && ours / best > 0.999999);
}

static void nvfp4_scales_are_neither_nan_nor_zero(void **state)
{
    static const float odd[] = {0.0f, 0x1p-149f, 1e-6f, -2e-4f, 1.0f, -2687.0f, 2688.0f, 1e30f, INFINITY, NAN};
    float values[64];
    (void)state;
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
        apr_block_NVFP4 block;
        for (int i = 0; i < 64; i++) values[i] = i == 5 || i / 16 == 2 ? odd[k] : 0.0f;
        apr_ref_codecs[APR_NVFP4].encode(values, &block, 64);
        const bool is_zero = !(fabsf(odd[k]) > 0.0f);
        assert_true((block.d[0] == 0) == is_zero && (block.d[2] == 0) == is_zero);
        assert_true(block.d[1] == 0 && block.d[3] == 0);
        for (int s = 0; s < 4; s++) assert_true(block.d[s] < 0x7f);
    }
}

/* ---- super-blocks: against the best of all scales for each of many d ---- */

static double least_of_sub_block(const float *v, const float *weight, int n, double d, level_fn level)
{
    double least = INFINITY;
    for (int scale = -32; scale < 32; scale++) least = fmin(least, step_error(v, weight, n, d * scale, level, false));
    return least;
}

static double least_of_super_block(const float *v, const float *weight, int n, level_fn level, double d)
{
    double least = INFINITY;
    for (int k = -12; k <= 12; k++) {
        double sum = 0.0;
        for (int sub = 0; sub < 256 / n; sub++) sum += least_of_sub_block(v + sub * n, weight + sub * n, n, d * (1.0 + 0.02 * k), level);
        least = fmin(least, sum);
    }
    return least;
}

static float d_of(apr_dtype dtype, const uint8_t *bytes, int block)
{
    return apr_f16_to_f32(dtype == APR_Q3_K ? ((const apr_block_Q3_K *)bytes)[block].d : ((const apr_block_IQ4_XS *)bytes)[block].d);
}

/* The search tries few of the combinations: it may lose a little. */
static void super_blocks_are_near_the_best_of_all_scales(void **state)
{
    static const struct {
        apr_dtype dtype;
        level_fn level;
        int sub_elems;
        double bound;
    } table[] = {{APR_Q3_K, three_bits, 16, 1.04}, {APR_IQ4_XS, iq4, 32, 1.02}};
    static uint8_t bytes[N_VALUES];
    (void)state;
    for (size_t t = 0; t < sizeof table / sizeof *table; t++) {
        float values[N_VALUES];
        double ours = 0.0, best = 0.0;
        apr_ref_codecs[table[t].dtype].encode_by(x, w, bytes, N_VALUES);
        apr_ref_codecs[table[t].dtype].decode(bytes, values, N_VALUES);
        for (int block = 0; block < N_VALUES / 256; block += 4) {
            const int at = 256 * block;
            ours += error_of(values, w, at, 256);
            best += least_of_super_block(x + at, w + at, table[t].sub_elems, table[t].level, d_of(table[t].dtype, bytes, block));
        }
        printf("%-6s squared error over the best of all scales with 25 values of d: %.4f\n", name_of(table[t].dtype), ours / best);
        assert_true(ours / best <= table[t].bound);
    }
}

/* With d and dmin as they were chosen: all 256 pairs of each sub-block. */
static double least_pair(const float *v, const float *weight, double d, double dmin)
{
    double least = INFINITY;
    for (int scale = 0; scale < 16; scale++)
        for (int min = 0; min < 16; min++) {
            double sum = 0.0;
            for (int i = 0; i < 16; i++) {
                const double code = scale > 0 && d > 0.0 ? whole_level((v[i] + dmin * min) / (d * scale), 0.0, 3.0) : 0.0;
                const double e = d * scale * code - dmin * min - v[i];
                sum += weight[i] * e * e;
            }
            least = fmin(least, sum);
        }
    return least;
}

static void q2_k_is_near_the_best_of_all_pairs(void **state)
{
    static uint8_t bytes[N_VALUES];
    float values[N_VALUES];
    double ours = 0.0, best = 0.0;
    (void)state;
    apr_ref_codecs[APR_Q2_K].encode_by(x, w, bytes, N_VALUES);
    apr_ref_codecs[APR_Q2_K].decode(bytes, values, N_VALUES);
    ours = error_of(values, w, 0, N_VALUES);
    for (int at = 0; at < N_VALUES; at += 16) {
        const apr_block_Q2_K *const block = (const apr_block_Q2_K *)bytes + at / 256;
        best += least_pair(x + at, w + at, apr_f16_to_f32(block->d), apr_f16_to_f32(block->dmin));
    }
    printf("q2_k   squared error over the best of all pairs: %.4f\n", ours / best);
    assert_true(ours / best <= 1.03);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ggmls_blocks_decode_bit_for_bit),
        cmocka_unit_test(lose_less_than_ggml),
        cmocka_unit_test(one_scale_is_the_best_of_thousands),
        cmocka_unit_test(q1_0_has_the_mean_magnitude),
        cmocka_unit_test(nvfp4_finds_the_best_of_all_scales),
        cmocka_unit_test(nvfp4_scales_are_neither_nan_nor_zero),
        cmocka_unit_test(super_blocks_are_near_the_best_of_all_scales),
        cmocka_unit_test(q2_k_is_near_the_best_of_all_pairs),
    };
    return cmocka_run_group_tests(tests, open_rows, close_rows);
}
