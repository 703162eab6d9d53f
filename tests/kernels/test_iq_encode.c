/* test_iq_encode.c - encoders of the codebook types: for the scales that they chose, points, signs and shifts are the best of all; their
 * errors are at most those of ggml's encoders (tests/llamacpp/codebook_errors.txt, made by codebook_errors.py there). */
#include "kernels/rows.h"

#include "formats/base/random.h"
#include "formats/number/blocks.h"
#include "formats/number/half.h"
#include "kernels/ref/iq_codebooks.h"
#include "tests/support/sanitizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- values ---- */

static uint64_t random_state;
static double uniform(void) { return (double)(apr_random(&random_state) >> 40) * 0x1p-24; }

/* Near enough to Gaussian: twelve uniform values. As in codebook_errors.py, all is exact or rounded by IEEE 754. */
static double bell(void)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++) sum += uniform();
    return sum;
}

/* Student's t with 5 degrees of freedom. */
static double student(void)
{
    const double x = bell();
    double sum = 0.0;
    for (int i = 0; i < 5; i++) {
        const double y = bell();
        sum += y * y;
    }
    return x / sqrt(sum / 5.0);
}

static double fourth_power(double x) { return x * x * (x * x); }

/* ---- exhaustive search ---- */

enum { ELEMS = 256, N_BLOCKS = APR_HAS_SANITIZER ? 100 : 1000, N_BLOCKS_TWICE = APR_HAS_SANITIZER ? 30 : 100 };

/* value = scale * level[digit], with a sign; or scale * (digit - 1 +- 1/8) */
typedef enum { FREE, EVEN, SHIFTED_SUBS, SHIFTED_POINTS } extra_bits;

typedef struct codebook_type {
    apr_dtype dtype;
    extra_bits extra;
    const uint16_t *words;
    int n_words, n_values, bits, sub_elems;
    double level[8];
    void (*scales)(const void *block, double *scale);
} codebook_type;

static void scales_iq2_xxs(const void *block, double *scale)
{
    const apr_block_IQ2_XXS *const b = block;
    for (int sub = 0; sub < 8; sub++) scale[sub] = (double)apr_f16_to_f32(b->d) * (0.5 + (b->qs[sub][1] >> 28)) * 0.25;
}

static void nibble_scales(double d, const uint8_t *bytes, int n, double first, double gap, double *scale)
{
    for (int sub = 0; sub < n; sub++) scale[sub] = d * (first + gap * (bytes[sub / 2] >> sub % 2 * 4 & 15));
}

static void scales_iq2_xs(const void *block, double *scale)
{
    const apr_block_IQ2_XS *const b = block;
    nibble_scales((double)apr_f16_to_f32(b->d), b->scales, 16, 0.125, 0.25, scale);
}

static void scales_iq2_s(const void *block, double *scale)
{
    const apr_block_IQ2_S *const b = block;
    nibble_scales((double)apr_f16_to_f32(b->d), b->scales, 16, 0.125, 0.25, scale);
}

static void scales_iq3_xxs(const void *block, double *scale)
{
    const apr_block_IQ3_XXS *const b = block;
    for (int sub = 0; sub < 8; sub++) scale[sub] = (double)apr_f16_to_f32(b->d) * (0.5 + (b->scales_signs[sub] >> 28)) * 0.5;
}

static void scales_iq3_s(const void *block, double *scale)
{
    const apr_block_IQ3_S *const b = block;
    nibble_scales((double)apr_f16_to_f32(b->d), b->scales, 8, 1.0, 2.0, scale);
}

static void scales_iq1_s(const void *block, double *scale)
{
    const apr_block_IQ1_S *const b = block;
    for (int sub = 0; sub < 8; sub++) scale[sub] = (double)apr_f16_to_f32(b->d) * (2 * (b->qh[sub] >> 12 & 7) + 1);
}

static void scales_iq1_m(const void *block, double *scale)
{
    const apr_block_IQ1_M *const b = block;
    unsigned half = 0;
    for (int w = 0; w < 4; w++) half |= (unsigned)(b->scales[w] >> 12) << 4 * w;
    for (int sub = 0; sub < 16; sub++)
        scale[sub] = (double)apr_f16_to_f32((uint16_t)half) * (2 * (b->scales[sub / 4] >> sub % 4 * 3 & 7) + 1);
}

#define IQ2       \
    {             \
        8, 25, 43 \
    }
static const codebook_type types[] = {
    {APR_IQ3_S, FREE, apr_iq3_s_grid, 512, 4, 4, 32, {1, 3, 5, 7, 9, 11, 13, 15}, scales_iq3_s},
    {APR_IQ3_XXS, EVEN, apr_iq3_xxs_grid, 256, 4, 4, 32, {4, 12, 20, 28, 36, 44, 52, 62}, scales_iq3_xxs},
    {APR_IQ2_S, FREE, apr_iq2_s_grid, 1024, 8, 2, 16, IQ2, scales_iq2_s},
    {APR_IQ2_XS, EVEN, apr_iq2_xs_grid, 512, 8, 2, 16, IQ2, scales_iq2_xs},
    {APR_IQ2_XXS, EVEN, apr_iq2_xxs_grid, 256, 8, 2, 32, IQ2, scales_iq2_xxs},
    {APR_IQ1_S, SHIFTED_SUBS, apr_iq1_grid, 2048, 8, 2, 32, {-1, 0, 1}, scales_iq1_s},
    {APR_IQ1_M, SHIFTED_POINTS, apr_iq1_grid, 2048, 8, 2, 16, {-1, 0, 1}, scales_iq1_m},
};
enum { N_TYPES = sizeof types / sizeof *types };

/* The least error of all points for n_values values, with an even [0] and an odd [1] number of signs that are not the value's. More than
 * one such sign is never better than one or none, because each makes the error larger. shift: of all levels. */
static void least_of_points(const codebook_type *t, const float *x, const float *w, double scale, double shift, double least[2])
{
    const bool has_signs = t->extra == FREE || t->extra == EVEN;
    double as_is[8][8], turned[8][8];

    for (int i = 0; i < t->n_values; i++)
        for (int l = 0; l < 1 << (t->n_values == 4 ? 3 : 2); l++) {
            const double target = has_signs ? fabs((double)x[i]) : (double)x[i], value = scale * (t->level[l] + shift);
            as_is[i][l] = (double)w[i] * (target - value) * (target - value);
            turned[i][l] = (double)w[i] * (target + value) * (target + value) - as_is[i][l];
        }
    least[0] = least[1] = INFINITY;
    for (int k = 0; k < t->n_words; k++) {
        double sum = 0.0, cheapest = INFINITY;
        for (int i = 0; i < t->n_values; i++) {
            const int l = t->words[k] >> t->bits * i & ((1 << t->bits) - 1);
            sum += as_is[i][l];
            cheapest = fmin(cheapest, turned[i][l]);
        }
        least[0] = fmin(least[0], sum);
        least[1] = fmin(least[1], sum + cheapest);
    }
}

/* Of eight values. */
static double least_of_group(const codebook_type *t, const float *x, const float *w, double scale, double shift)
{
    double least[2], second[2];
    int n_minus = 0;
    least_of_points(t, x, w, scale, shift, least);
    if (t->n_values == 8) second[0] = 0.0, second[1] = INFINITY;
    else least_of_points(t, x + 4, w + 4, scale, shift, second);
    if (t->extra != EVEN) return least[0] + second[0];
    for (int i = 0; i < 8; i++) n_minus += x[i] < 0.0f;
    return fmin(least[0] + second[n_minus % 2], least[1] + second[1 - n_minus % 2]);
}

static double least_of_sub(const codebook_type *t, const float *x, const float *w, double scale)
{
    double sum[2] = {0.0, 0.0}, of_points = 0.0;
    for (int g = 0; g < t->sub_elems; g += 8) {
        double at[2];
        for (int k = 0; k < 2; k++) {
            at[k] = least_of_group(t, x + g, w + g, scale, t->extra < SHIFTED_SUBS ? 0.0 : k == 0 ? 0.125 : -0.125);
            sum[k] += at[k];
        }
        of_points += fmin(at[0], at[1]);
    }
    return t->extra == SHIFTED_POINTS ? of_points : fmin(sum[0], sum[1]);
}

static double weighed_error(const float *x, const float *y, const float *w, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)w[i] * ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

static void check_block(const codebook_type *t, const float *x, const float *w)
{
    uint8_t bytes[ELEMS];
    float y[ELEMS];
    double scale[16], least = 0.0;

    apr_ref_codecs[t->dtype].encode_by(x, w, bytes, ELEMS);
    apr_ref_codecs[t->dtype].decode(bytes, y, ELEMS);
    t->scales(bytes, scale);
    for (int i = 0; i < ELEMS; i += t->sub_elems) least += least_of_sub(t, x + i, w + i, scale[i / t->sub_elems]);
    const double error = weighed_error(x, y, w, ELEMS);
    if (error > 1.0001 * least) fail_msg("%s: error %g, possible %g", apr_dtypes[t->dtype].name, error, least);
}

/* Half of the blocks without importance, half with. */
static void for_their_scales_nothing_is_better(void **state)
{
    (void)state;
    random_state = 5;
    for (int b = 0; b < N_BLOCKS; b++) {
        float x[ELEMS], w[ELEMS];
        for (int i = 0; i < ELEMS; i++) {
            x[i] = (float)(0.02 * student());
            w[i] = b % 2 ? (float)(0.01 + fourth_power(uniform())) : 1.0f;
        }
        for (int t = 0; t < N_TYPES; t++) check_block(&types[t], x, w);
    }
}

/* Values that a block holds come back as they are. In a block of a hundred the search of d stops next to the one that was there. */
static void what_blocks_hold_comes_back(void **state)
{
    (void)state;
    int n_changed[N_TYPES] = {0};
    random_state = 6;
    for (int b = 0; b < N_BLOCKS_TWICE; b++) {
        float x[ELEMS], y[ELEMS], again[ELEMS];
        uint8_t bytes[ELEMS];
        for (int i = 0; i < ELEMS; i++) x[i] = (float)(0.02 * bell());
        for (int t = 0; t < N_TYPES; t++) {
            const apr_codec *const codec = &apr_ref_codecs[types[t].dtype];
            codec->encode(x, bytes, ELEMS);
            codec->decode(bytes, y, ELEMS);
            codec->encode(y, bytes, ELEMS);
            codec->decode(bytes, again, ELEMS);
            double error = 0.0, power = 0.0;
            for (int i = 0; i < ELEMS; i++) error += pow((double)y[i] - (double)again[i], 2), power += pow((double)y[i], 2);
            n_changed[t] += error > 0.0;
            if (error > 5e-3 * power) fail_msg("%s: %g of %g is lost again", apr_dtypes[types[t].dtype].name, error, power);
        }
    }
    for (int t = 0; t < N_TYPES; t++)
        if (n_changed[t] > 2)
            fail_msg("%s: %d of %d blocks do not come back", apr_dtypes[types[t].dtype].name, n_changed[t], N_BLOCKS_TWICE);
}

/* ---- against ggml ---- */

enum { ROWS = 20, COLUMNS = 1024, N_VALUES = ROWS * COLUMNS };

/* The rows of codebook_errors.py. */
static void fill_rows(bool has_tails, float *x, float *w)
{
    random_state = has_tails;
    for (int i = 0; i < N_VALUES; i++) x[i] = (float)(0.02 * (has_tails ? student() : bell()));
    for (int c = 0; c < COLUMNS; c++) w[c] = (float)fourth_power(2.0 * uniform());
    for (int i = COLUMNS; i < N_VALUES; i++) w[i] = w[i - COLUMNS];
}

static double relative_error(apr_dtype dtype, const float *x, const float *w, bool by_importance)
{
    static float y[N_VALUES], ones[N_VALUES], zeros[N_VALUES];
    static uint8_t bytes[N_VALUES];
    const apr_codec *const codec = &apr_ref_codecs[dtype];

    for (int i = 0; i < N_VALUES; i++) ones[i] = 1.0f;
    if (by_importance) codec->encode_by(x, w, bytes, N_VALUES);
    else codec->encode(x, bytes, N_VALUES);
    codec->decode(bytes, y, N_VALUES);
    w = by_importance ? w : ones;
    return weighed_error(x, y, w, N_VALUES) / weighed_error(x, zeros, w, N_VALUES);
}

static void errors_are_less_than_ggmls(void **state)
{
    static float x[N_VALUES], w[N_VALUES];
    char name[16], rows[16], weights[16];
    double theirs;
    int n = 0;
    FILE *const file = fopen("tests/llamacpp/codebook_errors.txt", "r");
    (void)state;

    assert_non_null(file);
    while (fscanf(file, " #%*[^\n]") != EOF && fscanf(file, "%15s %15s %15s %lf", name, rows, weights, &theirs) == 4) {
        const int line = n++;
        apr_dtype dtype = APR_DTYPE_COUNT;
        for (int t = 0; t < N_TYPES; t++)
            if (strcmp(apr_dtypes[types[t].dtype].name, name) == 0) dtype = types[t].dtype;
        assert_true(dtype != APR_DTYPE_COUNT);
        if (APR_HAS_SANITIZER && line % 4 != line / 4 % 4) continue; /* one kind of rows a type, another for each */
        fill_rows(strcmp(rows, "student") == 0, x, w);
        const double ours = relative_error(dtype, x, w, strcmp(weights, "importance") == 0);
        printf("%-8s %-8s %-10s relative error %.5f, ggml's %.5f: %.4f\n", name, rows, weights, ours, theirs, ours / theirs);
        if (ours > theirs) fail_msg("%s, %s, %s: error %g, ggml's is %g", name, rows, weights, ours, theirs);
    }
    fclose(file);
    assert_int_equal(n, 4 * N_TYPES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(for_their_scales_nothing_is_better),
        cmocka_unit_test(what_blocks_hold_comes_back),
        cmocka_unit_test(errors_are_less_than_ggmls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
