/* test_codecs.c - every dtype's codec against ggml's own blocks, its formula, and rows that were made to break it. */
#include "kernels/rows.h"

#include "formats/number/blocks.h"
#include "formats/number/half.h"
#include "kernels/out_of_range.h"
#include "tests/support/vectors.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* tests/data/ggml-types.safetensors: x [12, 1024], and for each type of ggml what ggml made of it (August 2026). */
enum { N_ROWS = 12, COLUMNS = 1024, N_VALUES = N_ROWS * COLUMNS };
enum { PLAIN, HEAVY_TAILS, ONE_SIGN, SOME_ZEROS, ALL_ZERO, CONSTANT_BLOCKS, TINY, LARGE, ONE_OUTLIER, SINE, RAMP, PLAIN_TOO };

static vectors ggml;
static const float *ggml_x;

static int open_golden(void **state)
{
    (void)state;
    if (!vectors_open(&ggml, "tests/data/ggml-types.safetensors")) return -1;
    ggml_x = vectors_find(&ggml, "x", NULL);
    return ggml_x != NULL ? 0 : -1;
}

static int close_golden(void **state)
{
    (void)state;
    vectors_close(&ggml);
    return 0;
}

static const char *name_of(apr_dtype dtype) { return apr_dtypes[dtype].name; }

/* A malloc'ed copy of exactly n bytes, so that the address sanitizer guards both ends. */
static void *copy_of(const void *bytes, size_t n)
{
    void *const copy = malloc(n);
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    return copy;
}

static float *decoded(apr_dtype dtype, const void *bytes, int64_t n_elems)
{
    float *const values = malloc((size_t)n_elems * sizeof *values);
    void *const copy = copy_of(bytes, (size_t)apr_row_bytes(dtype, n_elems));
    assert_non_null(values);
    apr_ref_codecs[dtype].decode(copy, values, n_elems);
    free(copy);
    return values;
}

static uint8_t *encoded(apr_dtype dtype, const float *values, int64_t n_elems)
{
    uint8_t *const bytes = malloc((size_t)apr_row_bytes(dtype, n_elems));
    float *const copy = copy_of(values, (size_t)n_elems * sizeof *values);
    assert_non_null(bytes);
    apr_ref_codecs[dtype].encode(copy, bytes, n_elems);
    free(copy);
    return bytes;
}

static double squared_error(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sum;
}

static double power(const float *a, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * a[i];
    return sum;
}

/* Rows of a block format: scales are FP16 numbers or powers of two, so that the policy for NaN and infinity holds. */
static bool is_block_format(apr_dtype dtype) { return apr_dtypes[dtype].class_of == APR_CLASS_BLOCK; }

/* ---- against ggml ---- */

static void every_golden_type_decodes_bit_for_bit(void **state)
{
    int n_types = 0;
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        size_t n_bytes;
        const void *const bytes = vectors_part(&ggml, name_of(d), "bytes", &n_bytes), *const truth =
                                                                                          vectors_part(&ggml, name_of(d), "f32", NULL);
        if (truth == NULL) continue;
        assert_int_equal(n_bytes, apr_row_bytes(d, N_VALUES));
        assert_true(apr_can_decode(d));
        float *const values = decoded(d, bytes, N_VALUES);
        for (int i = 0; i < N_VALUES; i++)
            if (memcmp(&values[i], (const float *)truth + i, sizeof *values) != 0)
                fail_msg("%s: value %d is %a, not %a", name_of(d), i, (double)values[i], (double)((const float *)truth)[i]);
        free(values);
        n_types++;
    }
    assert_int_equal(n_types, 27); /* all types of ggml but its integers, f64, Q8_1, Q8_K and Q2_0 */
}

static void formats_with_one_way_to_encode_give_ggmls_bytes(void **state)
{
    static const apr_dtype types[] = {APR_F32, APR_F16, APR_BF16, APR_Q4_0, APR_Q4_1, APR_Q5_0, APR_Q5_1, APR_Q8_0};
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        size_t n_bytes;
        const uint8_t *const truth = vectors_part(&ggml, name_of(types[t]), "bytes", &n_bytes);
        assert_non_null(truth);
        uint8_t *const bytes = encoded(types[t], ggml_x, N_VALUES);
        for (size_t i = 0; i < n_bytes; i++)
            if (bytes[i] != truth[i]) fail_msg("%s: byte %zu is %#x, not %#x", name_of(types[t]), i, bytes[i], truth[i]);
        free(bytes);
    }
}

/* Error of our bytes over the error of ggml's, for each row that is not 0 and for all together. */
static void error_ratios(apr_dtype dtype, double row_ratio[N_ROWS], double *total)
{
    const float *const theirs = vectors_part(&ggml, name_of(dtype), "f32", NULL);
    uint8_t *const bytes = encoded(dtype, ggml_x, N_VALUES);
    float *const ours = decoded(dtype, bytes, N_VALUES);
    for (int r = 0; r < N_ROWS; r++) {
        const int64_t at = (int64_t)r * COLUMNS;
        const double reference = squared_error(theirs + at, ggml_x + at, COLUMNS);
        row_ratio[r] = reference > 0.0 ? squared_error(ours + at, ggml_x + at, COLUMNS) / reference : 0.0;
        if (reference == 0.0) assert_true(squared_error(ours + at, ggml_x + at, COLUMNS) == 0.0);
    }
    *total = squared_error(ours, ggml_x, N_VALUES) / squared_error(theirs, ggml_x, N_VALUES);
    free(ours);
    free(bytes);
}

static void searching_encoders_lose_less_than_ggml(void **state)
{
    static const struct {
        apr_dtype dtype;
        double total, any_row; /* bounds of the ratio; a row may be a little worse, all together may not */
        double tiny;           /* values below FP16's smallest: ggml's K-quants make zeros of them, ours use the smallest */
    } table[] = {{APR_Q4_K, 1.0, 1.01, 0.7},   {APR_Q5_K, 1.0, 1.01, 0.7},   {APR_Q6_K, 1.0, 1.01, 0.7}, {APR_MXFP4, 1.0, 1.0, 1.0},
                 {APR_Q2_K, 1.0, 1.01, 0.9},   {APR_Q3_K, 1.0, 1.01, 0.9},   {APR_TQ1_0, 1.0, 1.0, 1.0}, {APR_TQ2_0, 1.0, 1.0, 1.0},
                 {APR_IQ4_NL, 1.0, 1.0, 1.0},  {APR_IQ4_XS, 1.0, 1.01, 1.0}, {APR_NVFP4, 1.0, 1.0, 1.0}, {APR_Q1_0, 1.0, 1.0001, 1.0},
                 {APR_IQ3_S, 1.0, 1.0, 1.0},   {APR_IQ3_XXS, 1.0, 1.0, 1.0}, {APR_IQ2_S, 1.0, 1.0, 1.0}, {APR_IQ2_XS, 1.0, 1.0, 1.0},
                 {APR_IQ2_XXS, 1.0, 1.0, 1.0}, {APR_IQ1_S, 1.0, 1.0, 1.0},   {APR_IQ1_M, 1.0, 1.0, 1.0}};
    (void)state;
    for (size_t t = 0; t < sizeof table / sizeof *table; t++) {
        double ratio[N_ROWS], total;
        error_ratios(table[t].dtype, ratio, &total);
        printf("%-6s squared error over ggml's: %.4f; rows", name_of(table[t].dtype), total);
        for (int r = 0; r < N_ROWS; r++) printf(" %.3f", ratio[r]);
        printf("\n");
        assert_true(total <= table[t].total);
        assert_true(ratio[TINY] <= table[t].tiny);
        for (int r = 0; r < N_ROWS; r++)
            if (ratio[r] > table[t].any_row) fail_msg("%s: row %d has %.4f times ggml's error", name_of(table[t].dtype), r, ratio[r]);
    }
}

/* The figure that is known of ggml's encoder: mean over eight rows (all but zeros, tiny, large and the second plain one) of squared
 * error over power; ggml's MXFP4 has 1.328e-2, the best exponent for each block 8.91e-3. */
static double mean_relative_error(const float *values)
{
    static const int rows[] = {PLAIN, HEAVY_TAILS, ONE_SIGN, SOME_ZEROS, CONSTANT_BLOCKS, ONE_OUTLIER, SINE, RAMP};
    double sum = 0.0;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const int64_t at = (int64_t)rows[r] * COLUMNS;
        sum += squared_error(values + at, ggml_x + at, COLUMNS) / power(ggml_x + at, COLUMNS);
    }
    return sum / (double)(sizeof rows / sizeof *rows);
}

static void mxfp4_has_at_most_seven_tenths_of_ggmls_relative_error(void **state)
{
    (void)state;
    uint8_t *const bytes = encoded(APR_MXFP4, ggml_x, N_VALUES);
    float *const ours = decoded(APR_MXFP4, bytes, N_VALUES);
    const double theirs = mean_relative_error(vectors_part(&ggml, "mxfp4", "f32", NULL)), mine = mean_relative_error(ours);
    printf("mxfp4  mean relative error %.3e, ggml's %.3e: %.4f\n", mine, theirs, mine / theirs);
    assert_true(fabs(theirs - 1.328e-2) < 1e-5);
    assert_true(mine <= 0.70 * theirs);
    free(ours);
    free(bytes);
}

/* Squared error of 32 values with the best codes for that exponent, by trying them all. */
static double best_error_at(const float *x, int e)
{
    static const double magnitude[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    double sum = 0.0;
    for (int i = 0; i < 32; i++) {
        double least = INFINITY;
        for (int k = 0; k < 8; k++) least = fmin(least, fabs(fabs((double)x[i]) - ldexp(magnitude[k], e - 127)));
        sum += least * least;
    }
    return sum;
}

static void mxfp4_finds_the_best_exponent_and_codes_of_all(void **state)
{
    (void)state;
    uint8_t *const bytes = encoded(APR_MXFP4, ggml_x, N_VALUES);
    float *const ours = decoded(APR_MXFP4, bytes, N_VALUES);
    for (int b = 0; b < N_VALUES / 32; b++) {
        double least = INFINITY;
        for (int e = 60; e < 180; e++) least = fmin(least, best_error_at(ggml_x + 32 * b, e));
        const double error = squared_error(ours + 32 * b, ggml_x + 32 * b, 32);
        if (error > least * (1.0 + 1e-6)) fail_msg("block %d: error %g, possible %g", b, error, least);
        for (int i = 1; i < 17; i++) {
            assert_int_not_equal(bytes[17 * b + i] & 0x0f, 8); /* -0 */
            assert_int_not_equal(bytes[17 * b + i] >> 4, 8);
        }
    }
    free(ours);
    free(bytes);
}

static void mxfp4_ties_go_down_and_to_the_smaller_exponent(void **state)
{
    (void)state;
    /* With 6 there the step is 2^0: halves between neighbours go to the lower code. */
    float x[32] = {6.0f, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, -0.25f, -0.75f, -1.25f, -1.75f, -2.5f, -3.5f, -5.0f};
    static const uint8_t code[16] = {7, 0, 1, 2, 3, 4, 5, 6, 0, 9, 10, 11, 12, 13, 14, 0};
    uint8_t *bytes = encoded(APR_MXFP4, x, 32);
    assert_int_equal(bytes[0], 127);
    for (int i = 0; i < 16; i++) assert_int_equal(bytes[1 + i] & 0x0f, code[i]);
    free(bytes);
    /* 4 alone is exact with steps of 1 (code 6), 2 (code 4) and 4 (code 2): the smallest that was tried wins. */
    memset(x, 0, sizeof x);
    x[3] = 4.0f;
    bytes = encoded(APR_MXFP4, x, 32);
    assert_int_equal(bytes[0], 127);
    assert_int_equal(bytes[1 + 3], 6);
    free(bytes);
}

/* ---- rows made to break an encoder ---- */

enum { HOSTILE = 256 };

/* Fills a row; the kinds are numbered, and false means that there are no more. */
static bool hostile_row(int kind, float *x)
{
    static const float fills[][2] = {
        {0.0f, 0.0f},
        {-0.0f, -0.0f},
        {NAN, NAN},
        {INFINITY, INFINITY},
        {-INFINITY, -INFINITY},
        {INFINITY, -INFINITY},
        {NAN, 1.0f},
        {INFINITY, 1.0f},
        {1.0f, -INFINITY},
        {FLT_MAX, FLT_MAX},
        {-FLT_MAX, -FLT_MAX},
        {FLT_MAX, -FLT_MAX},
        {FLT_MAX, 0.0f},
        {0x1p-149f, 0x1p-149f},
        {0x1p-149f, 0.0f},
        {-0x1p-149f, 0x1p-126f},
        {0x1p-127f, -0x1p-128f},
        {1e-30f, -1e-30f},
        {1e-12f, 2e-12f},
        {-6e-8f, 3e-8f},
        {5e-7f, -5e-7f},
        {65504.0f, 65520.0f},
        {1e6f, 1e6f},
        {-1e6f, -1e6f},
        {1e9f, 1e9f + 64},
        {1e30f, 1.0f},
        {3.0f, 3.0f},
        {-3.0f, -3.0f},
        {1e-20f, 1e20f},
        {-448.0f, 449.0f},
        {0x1p-24f, 0.0f},
        {-0x1p-25f, -0x1p-24f},
        {8e6f, -8e6f},
        {4e7f, 1.0f},
        {1.9e7f, -2.1e6f},
    };
    enum { N_FILLS = sizeof fills / sizeof *fills };

    for (int i = 0; i < HOSTILE; i++) {
        if (kind < N_FILLS) x[i] = fills[kind][i % 2];
        else if (kind == N_FILLS) x[i] = i == 100 ? 1e10f : 1e-3f * (float)(i % 7 - 3);    /* one outlier */
        else if (kind == N_FILLS + 1) x[i] = i == 37 ? NAN : sinf((float)i);               /* one NaN */
        else if (kind == N_FILLS + 2) x[i] = ldexpf(i % 2 ? 1.0f : -1.0f, i - 128);        /* all exponents */
        else if (kind == N_FILLS + 3) x[i] = apr_f32_from_bits((uint32_t)i * 0x01010101u); /* all kinds of bits */
        else if (kind == N_FILLS + 4) x[i] = apr_f32_from_bits((uint32_t)i * 2654435761u);
        else return false;
    }
    return true;
}

static void hostile_rows_encode_to_finite_values(void **state)
{
    float x[HOSTILE];
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        if (!apr_can_encode(d)) continue;
        for (int kind = 0; hostile_row(kind, x); kind++) {
            uint8_t *const bytes = encoded(d, x, HOSTILE);
            float *const values = decoded(d, bytes, HOSTILE);
            for (int i = 0; i < HOSTILE; i++) {
                const bool finite_here = is_block_format(d) || (d == APR_F8_E4M3 && !isnan(x[i]));
                if (finite_here && !isfinite(values[i]))
                    fail_msg("%s, row %d: %a became %a", name_of(d), kind, (double)x[i], (double)values[i]);
                if (!finite_here && isnan(x[i]) != isnan(values[i]))
                    fail_msg("%s, row %d: %a became %a", name_of(d), kind, (double)x[i], (double)values[i]);
            }
            free(values);
            free(bytes);
        }
    }
}

static void no_block_encoder_does_worse_than_zeros(void **state)
{
    float x[HOSTILE];
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        if (!is_block_format(d) || !apr_can_encode(d)) continue;
        for (int kind = 0; hostile_row(kind, x); kind++) {
            uint8_t *const bytes = encoded(d, x, HOSTILE);
            float *const values = decoded(d, bytes, HOSTILE);
            for (int i = 0; i < HOSTILE; i++) x[i] = isnan(x[i]) ? 0.0f : fmaxf(fminf(x[i], FLT_MAX), -FLT_MAX);
            /* a half scale cannot be smaller than 2^-24: codes of ggml's rule may then round up to twice a tiny value */
            const double slack = 0x1p-24 * 0x1p-24 * HOSTILE * 16 * 16;
            const double error = squared_error(values, x, HOSTILE);
            if (error > power(x, HOSTILE) * 1.0001 + slack)
                fail_msg("%s, row %d: squared error %g of %g", name_of(d), kind, error, power(x, HOSTILE));
            free(values);
            free(bytes);
        }
    }
}

static void nan_counts_as_zero_and_infinity_as_the_largest_float(void **state)
{
    float x[HOSTILE], tame[HOSTILE];
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        if (!is_block_format(d) || !apr_can_encode(d)) continue;
        for (int i = 0; i < HOSTILE; i++) x[i] = tame[i] = sinf((float)i * 0.7f);
        x[5] = x[77] = NAN, tame[5] = tame[77] = 0.0f;
        for (int infinite = 0; infinite < 2; infinite++) {
            if (infinite) x[9] = INFINITY, tame[9] = FLT_MAX, x[200] = -INFINITY, tame[200] = -FLT_MAX;
            uint8_t *const bytes = encoded(d, x, HOSTILE), *const expected = encoded(d, tame, HOSTILE);
            assert_memory_equal(bytes, expected, (size_t)apr_row_bytes(d, HOSTILE));
            free(expected);
            free(bytes);
        }
    }
    assert_int_equal(apr_count_nonfinite(x, HOSTILE), 4);
    assert_int_equal(apr_count_nonfinite(tame, HOSTILE), 0);
}

static void blocks_are_encoded_each_for_itself_at_any_address(void **state)
{
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        if (!apr_can_encode(d)) continue;
        const int64_t elems = apr_dtypes[d].elems_per_block, n_blocks = COLUMNS / elems;
        const size_t n_bytes = (size_t)apr_row_bytes(d, COLUMNS), block = (size_t)apr_dtypes[d].bytes_per_block;
        uint8_t *const whole = encoded(d, ggml_x, COLUMNS), *const odd = malloc(n_bytes + 1);
        float *const values = decoded(d, whole, COLUMNS), again[COLUMNS];
        for (int64_t b = n_blocks - 1; b >= 0; b--) apr_ref_codecs[d].encode(ggml_x + b * elems, odd + 1 + (size_t)b * block, elems);
        assert_memory_equal(odd + 1, whole, n_bytes);
        for (int64_t b = n_blocks - 1; b >= 0; b--) apr_ref_codecs[d].decode(odd + 1 + (size_t)b * block, again + b * elems, elems);
        assert_memory_equal(again, values, COLUMNS * sizeof *again);
        free(values);
        free(odd);
        free(whole);
    }
}

static void any_bytes_decode_without_harm(void **state)
{
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        if (!apr_can_decode(d)) continue;
        const size_t n_bytes = (size_t)apr_row_bytes(d, COLUMNS);
        uint8_t *const bytes = malloc(n_bytes);
        uint32_t random = 1;
        for (size_t i = 0; i < n_bytes; i++) bytes[i] = (uint8_t)((random = random * 1664525u + 1013904223u) >> 24);
        for (int fill = -1; fill < 256; fill += 85) { /* random, then 84, 169, 254 everywhere */
            if (fill >= 0) memset(bytes, fill, n_bytes);
            free(decoded(d, bytes, COLUMNS));
        }
        free(bytes);
    }
}

/* ---- by formula ---- */

static void plain_numbers_decode_to_themselves(void **state)
{
    static const double f64[] = {0.1, -3.0e5};
    static const int8_t i8[] = {-128, 127};
    static const int16_t i16[] = {-32768, 32767};
    static const int32_t i32[] = {-2147483647 - 1, 16777217};
    static const int64_t i64[] = {INT64_MIN, 1000000007};
    static const uint8_t u8[] = {0, 255}, boolean[] = {0, 2}, e8m0[] = {127, 0};
    static const uint16_t u16[] = {0, 65535};
    static const uint32_t u32[] = {1, 4294967295u};
    static const uint64_t u64[] = {1, UINT64_MAX};
    static const struct {
        apr_dtype dtype;
        const void *bytes;
        float value[2];
    } table[] = {
        {APR_F64, f64, {0.1f, -3.0e5f}},     {APR_I8, i8, {-128.0f, 127.0f}},           {APR_I16, i16, {-32768.0f, 32767.0f}},
        {APR_I32, i32, {-0x1p31f, 0x1p24f}}, {APR_I64, i64, {-0x1p63f, 1000000000.0f}}, {APR_U8, u8, {0.0f, 255.0f}},
        {APR_U16, u16, {0.0f, 65535.0f}},    {APR_U32, u32, {1.0f, 0x1p32f}},           {APR_U64, u64, {1.0f, 0x1p64f}},
        {APR_BOOL, boolean, {0.0f, 1.0f}},   {APR_E8M0, e8m0, {1.0f, 0x1p-127f}},
    };
    (void)state;
    for (size_t t = 0; t < sizeof table / sizeof *table; t++) {
        float *const values = decoded(table[t].dtype, table[t].bytes, 2);
        for (int i = 0; i < 2; i++)
            if (values[i] != table[t].value[i]) fail_msg("%s: %a", name_of(table[t].dtype), (double)values[i]);
        free(values);
    }
    static const apr_dtype carried[] = {APR_C64, APR_F4, APR_F6_E2M3, APR_F6_E3M2};
    for (size_t t = 0; t < sizeof carried / sizeof *carried; t++) assert_false(apr_can_decode(carried[t]) || apr_can_encode(carried[t]));
    assert_false(apr_can_decode(APR_DTYPE_COUNT) || apr_can_encode(APR_DTYPE_COUNT));
}

static void types_without_golden_blocks_follow_their_formula(void **state)
{
    (void)state;
    apr_block_Q2_0 q2 = {.d = 0x4000};            /* 2.0 */
    for (int i = 0; i < 16; i++) q2.qs[i] = 0xe4; /* codes 0 1 2 3 */
    float *values = decoded(APR_Q2_0, &q2, 64);
    for (int i = 0; i < 64; i++) assert_true(values[i] == (float)(i % 4 - 1) * 2.0f);
    free(values);

    apr_block_Q8_1 q8 = {.d = 0x3800, .s = 0x1234}; /* 0.5; s is for dot products */
    for (int i = 0; i < 32; i++) q8.qs[i] = (int8_t)(3 * i - 50);
    values = decoded(APR_Q8_1, &q8, 32);
    for (int i = 0; i < 32; i++) assert_true(values[i] == (float)(3 * i - 50) * 0.5f);
    free(values);

    apr_block_Q8_K q8k = {.d = 0.3f};
    for (int i = 0; i < 256; i++) q8k.qs[i] = (int8_t)(i - 128);
    values = decoded(APR_Q8_K, &q8k, 256);
    for (int i = 0; i < 256; i++) assert_true(values[i] == 0.3f * (float)(i - 128));
    free(values);
}

/* ---- FP8 with a scale a row ---- */

/* |x - value| is at most half a unit in the last place: with 3 mantissa bits, 2^-4 of x; below 2^-6 of the scale, half of the
 * smallest step 2^-9. One float rounding each in x / scale and code * scale is allowed for. */
static void fp8_rows_come_back_within_half_an_ulp(void **state)
{
    (void)state;
    for (int r = 0; r < N_ROWS; r++) {
        const float *const x = ggml_x + (int64_t)r * COLUMNS;
        uint8_t *const bytes = malloc(COLUMNS);
        float scale, amax = 0.0f;
        apr_encode_fp8_row(x, bytes, &scale, COLUMNS);
        float *const codes = decoded(APR_F8_E4M3, bytes, COLUMNS);
        for (int i = 0; i < COLUMNS; i++) amax = fmaxf(amax, fabsf(x[i]));
        assert_true(scale == (amax > 0.0f ? amax / 448.0f : 1.0f));
        for (int i = 0; i < COLUMNS; i++) {
            const double bound = fmax(fabs((double)x[i]) * 0x1p-4, (double)scale * 0x1p-10) * (1.0 + 0x1p-20);
            const double error = fabs((double)(codes[i] * scale) - x[i]);
            if (error > bound) fail_msg("row %d: %a has error %g, allowed %g", r, (double)x[i], error, bound);
        }
        free(codes);
        free(bytes);
    }
}

static void hostile_fp8_rows_stay_finite(void **state)
{
    float x[HOSTILE];
    (void)state;
    for (int kind = 0; hostile_row(kind, x); kind++) {
        uint8_t *const bytes = malloc(HOSTILE);
        float scale;
        apr_encode_fp8_row(x, bytes, &scale, HOSTILE);
        assert_true(isfinite(scale) && scale > 0.0f);
        float *const codes = decoded(APR_F8_E4M3, bytes, HOSTILE);
        for (int i = 0; i < HOSTILE; i++) assert_true(isnan(x[i]) ? isnan(codes[i]) : isfinite(codes[i] * scale));
        free(codes);
        free(bytes);
    }
}

static void host_codecs_give_the_bits_of_the_reference(void **state)
{
    const apr_codec *const host = apr_host_codecs();
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        assert_int_equal(host[d].decode != NULL, apr_can_decode(d));
        assert_int_equal(host[d].encode != NULL, apr_can_encode(d));
        if (!apr_can_encode(d) || d == APR_APR_Q8) continue;
        const size_t n_bytes = (size_t)apr_row_bytes(d, N_VALUES);
        uint8_t *const reference = encoded(d, ggml_x, N_VALUES), *const bytes = malloc(n_bytes);
        float *const truth = decoded(d, reference, N_VALUES), *const values = malloc(N_VALUES * sizeof *values);
        host[d].encode(ggml_x, bytes, N_VALUES);
        host[d].decode(bytes, values, N_VALUES);
        assert_memory_equal(bytes, reference, n_bytes);
        assert_memory_equal(values, truth, N_VALUES * sizeof *values);
        free(values);
        free(truth);
        free(bytes);
        free(reference);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_type_decodes_bit_for_bit),
        cmocka_unit_test(formats_with_one_way_to_encode_give_ggmls_bytes),
        cmocka_unit_test(searching_encoders_lose_less_than_ggml),
        cmocka_unit_test(mxfp4_has_at_most_seven_tenths_of_ggmls_relative_error),
        cmocka_unit_test(mxfp4_finds_the_best_exponent_and_codes_of_all),
        cmocka_unit_test(mxfp4_ties_go_down_and_to_the_smaller_exponent),
        cmocka_unit_test(hostile_rows_encode_to_finite_values),
        cmocka_unit_test(no_block_encoder_does_worse_than_zeros),
        cmocka_unit_test(nan_counts_as_zero_and_infinity_as_the_largest_float),
        cmocka_unit_test(blocks_are_encoded_each_for_itself_at_any_address),
        cmocka_unit_test(any_bytes_decode_without_harm),
        cmocka_unit_test(plain_numbers_decode_to_themselves),
        cmocka_unit_test(types_without_golden_blocks_follow_their_formula),
        cmocka_unit_test(fp8_rows_come_back_within_half_an_ulp),
        cmocka_unit_test(hostile_fp8_rows_stay_finite),
        cmocka_unit_test(host_codecs_give_the_bits_of_the_reference),
    };
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
