/* kernels/pack.h: rows encoded in every layout that is written read back as the numbers that the search promises: no worse than rounding to
 * the largest magnitude, and nearly as good as any scale; codes that are copied stay the same. */
#include "formats/base/bytes.h"
#include "formats/number/blocks.h"
#include "formats/number/half.h"
#include "formats/packed/packed_layouts.h"
#include "kernels/pack.h"
#include "kernels/rows.h"
#include "kernels/unpack.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 64, COLUMNS = 256, ELEMS = ROWS * COLUMNS };

static uint32_t state = 4242;
static float unit_noise(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(int32_t)state * 0x1p-31f;
}

/* Bell-shaped, with a few large values, as weights are. */
static void make_values(float *x, float deviation)
{
    for (int i = 0; i < ELEMS; i++) {
        const float bell = unit_noise() + unit_noise() + unit_noise();
        x[i] = bell * deviation * (i % 97 == 0 ? 4.0f : 1.0f);
    }
}

/* A matrix of a layout with its memory. */
typedef struct written {
    apr_packed_matrix matrix;
    apr_packed_target target;
    apr_tensor parts[APR_LAYOUT_PARTS];
    uint8_t *bytes[APR_LAYOUT_PARTS];
    apr_packing packing; /* with data */
    apr_pack_target to;
    apr_arena arena;
} written;

static void begin(written *w, const char *type, const char *layout, int group, int64_t rows, int64_t columns)
{
    const apr_tensor weight = {.name = "x.weight", .rank = 2, .dims = {rows, columns}};

    memset(w, 0, sizeof *w);
    assert_int_equal(apr_packed_target_find(&w->target, type, layout, group, NULL), APR_OK);
    assert_int_equal(apr_packed_matrix_make(&w->matrix, &w->target, &weight, &w->arena, NULL), APR_OK);
    w->packing = w->matrix.packing;
    w->to = (apr_pack_target){.packing = &w->matrix.packing, .global_scale = 1.0f};
    for (size_t i = 0; i < w->packing.n_parts; i++) {
        const apr_packed_content content = w->target.layout->parts[i].content;
        w->parts[i] = w->matrix.parts[i];
        w->parts[i].data = w->bytes[i] = calloc(1, (size_t)w->parts[i].n_bytes);
        if (content == APR_PACKED_CODES) w->packing.codes = &w->parts[i], w->to.codes = w->bytes[i];
        if (content == APR_PACKED_SCALES) w->packing.scales = &w->parts[i], w->to.scales = w->bytes[i];
        if (content == APR_PACKED_ZEROS) w->packing.zeros = &w->parts[i], w->to.zeros = w->bytes[i];
        if (content == APR_PACKED_GLOBAL_SCALE) w->packing.global_scales = &w->parts[i];
    }
}

static void end(written *w)
{
    for (int i = 0; i < APR_LAYOUT_PARTS; i++) free(w->bytes[i]);
    apr_arena_close(&w->arena);
}

static void set_global_scale(written *w, float multiplier)
{
    const float stored = w->packing.divides ? apr_pack_reciprocal(multiplier) : multiplier;
    w->to.global_scale = multiplier;
    memcpy(w->bytes[w->packing.global_scales - w->parts], &stored, sizeof stored);
}

/* The last unit first, so that no unit may depend on an earlier one. */
static void encode(written *w, const float *x, const float *importance)
{
    const int64_t unit = apr_pack_unit(&w->packing), rows = w->packing.rows, columns = w->packing.columns;
    uint8_t *const codes = malloc((size_t)(unit * columns));

    for (int64_t row = (rows - 1) / unit * unit; row >= 0; row -= unit)
        apr_pack_rows(&w->to, row, rows - row < unit ? rows - row : unit, x + row * columns, importance, codes);
    free(codes);
}

static void decode(const written *w, float *y)
{
    for (int64_t r = 0; r < w->packing.rows; r++) apr_unpack_products(&w->packing, r, 0, w->packing.columns, y + r * w->packing.columns);
}

static double error_of(const float *x, const float *y, int n)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++) sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

/* ---- NVFP4 ---- */

/* The least error of a group over all positive E4M3 scales, with the nearest value for each number. */
static double least_nvfp4(const float *x, float global_scale)
{
    static const double levels[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    double least = INFINITY;

    for (int byte = 1; byte < 0x7f; byte++) {
        const double scale = (double)(apr_e4m3_to_f32((uint8_t)byte) * global_scale);
        double sum = 0.0;
        for (int i = 0; i < 16; i++) {
            double near = INFINITY;
            for (int k = 0; k < 8; k++) near = fmin(near, fabs(fabs((double)x[i]) - levels[k] * scale));
            sum += near * near;
        }
        least = fmin(least, sum);
    }
    return least;
}

static double amax_nvfp4(const float *x, float global_scale)
{
    static const double levels[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    double most = 0.0, sum = 0.0;
    for (int i = 0; i < 16; i++) most = fmax(most, fabs((double)x[i]));
    const double scale = (double)(apr_e4m3_to_f32(apr_f32_to_e4m3((float)(most / 6.0) / global_scale)) * global_scale);
    for (int i = 0; i < 16; i++) {
        double near = INFINITY;
        for (int k = 0; k < 8; k++) near = fmin(near, fabs(fabs((double)x[i]) - levels[k] * scale));
        sum += near * near;
    }
    return sum;
}

static void nvfp4_scales_are_searched(void **unused)
{
    static const char *const layouts[] = {"compressed-tensors", "modelopt"};
    static float x[ELEMS], y[ELEMS];
    (void)unused;

    make_values(x, 0.02f);
    memset(x, 0, 16 * sizeof *x); /* a group of zeros */
    for (int l = 0; l < 2; l++) {
        written w;
        float most = 0.0f;
        double ours = 0.0, all_scales = 0.0, by_amax = 0.0;
        begin(&w, "nvfp4", layouts[l], 0, ROWS, COLUMNS);
        for (int i = 0; i < ELEMS; i++) most = fmaxf(most, fabsf(x[i]));
        set_global_scale(&w, apr_pack_nvfp4_global_scale(most));
        encode(&w, x, NULL);
        decode(&w, y);
        for (int i = 0; i < ELEMS; i += 16) {
            ours += error_of(x + i, y + i, 16);
            all_scales += least_nvfp4(x + i, w.to.global_scale);
            by_amax += amax_nvfp4(x + i, w.to.global_scale);
        }
        assert_true(ours <= 1.0005 * all_scales);
        assert_true(ours < 0.9 * by_amax);
        for (int i = 0; i < ELEMS / 16; i++) assert_true(w.to.scales[i] >= 1 && w.to.scales[i] <= 0x7e);
        for (int i = 0; i < 16; i++) assert_true(y[i] == 0.0f && !signbit(y[i]));
        end(&w);
    }
}

/* The stored divisor and multiplier are each other's reciprocals, to the bit. */
static void global_scales_have_reciprocals(void **unused)
{
    (void)unused;
    for (int i = 1; i < 20000; i++) {
        const float scale = apr_pack_nvfp4_global_scale((float)i * 0.00037f), divisor = apr_pack_reciprocal(scale);
        assert_true(1.0f / divisor == scale && apr_pack_reciprocal(divisor) == scale);
        assert_true(fabs((double)scale * 2688.0 / ((double)i * 0.00037) - 1.0) < 1e-6);
    }
    assert_true(apr_pack_nvfp4_global_scale(0.0f) == 1.0f);
}

/* Importance moves the error away from columns that matter. */
static void importance_weighs_errors(void **unused)
{
    static const struct {
        const char *type, *layout;
    } kinds[] = {{"nvfp4", "modelopt"}, {"mxfp4", "compressed-tensors"}, {"int4", "gptq"}, {"int4", "awq"}};
    static float x[ELEMS], y[ELEMS], importance[COLUMNS];
    (void)unused;

    make_values(x, 1.0f);
    for (int c = 0; c < COLUMNS; c++) importance[c] = c % 4 == 0 ? 100.0f : 1.0f;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        double plain = 0.0, weighted = 0.0;
        for (int by = 0; by < 2; by++) {
            written w;
            begin(&w, kinds[k].type, kinds[k].layout, 0, ROWS, COLUMNS);
            if (w.packing.global_scales != NULL) set_global_scale(&w, 0.01f);
            encode(&w, x, by ? importance : NULL);
            decode(&w, y);
            for (int i = 0; i < ELEMS; i += 4) *(by ? &weighted : &plain) += error_of(x + i, y + i, 1);
            end(&w);
        }
        assert_true(weighted < 0.95 * plain);
    }
}

/* ---- integers ---- */

/* The least error of a symmetric group over 4,096 scales. */
static double least_int4(const float *x, int n)
{
    double most = 0.0, least = INFINITY;
    for (int i = 0; i < n; i++) most = fmax(most, fabs((double)x[i]));
    for (int k = 1; k <= 4096; k++) {
        const double scale = most / 4.0 * k / 4096.0;
        double sum = 0.0;
        for (int i = 0; i < n; i++) {
            const double q = fmax(-8.0, fmin(7.0, nearbyint((double)x[i] / scale))), off = q * scale - (double)x[i];
            sum += off * off;
        }
        least = fmin(least, sum);
    }
    return least;
}

static void int4_scales_are_searched(void **unused)
{
    static float x[ELEMS], y[ELEMS], z[ELEMS];
    written gptq, awq;
    double ours = 0.0, brute = 0.0;
    (void)unused;

    make_values(x, 0.05f);
    for (int group = 32; group <= 128; group *= 2) {
        begin(&gptq, "int4", "gptq", group, ROWS, COLUMNS);
        begin(&awq, "int4", "awq", group, ROWS, COLUMNS);
        encode(&gptq, x, NULL);
        encode(&awq, x, NULL);
        decode(&gptq, y);
        decode(&awq, z);
        for (int i = 0; i < ELEMS; i += group) {
            ours += error_of(x + i, y + i, group);
            brute += least_int4(x + i, group);
        }
        assert_true(ours <= 1.01 * brute); /* the scale is FP16, the brute one is not */
        assert_true(error_of(x, z, ELEMS) < 1.02 * error_of(x, y, ELEMS));
        for (int i = 0; i < ROWS / 8 * (COLUMNS / group); i++) assert_int_equal(apr_load_le32(gptq.to.zeros + 4 * i), 0x77777777);
        end(&gptq);
        end(&awq);
    }
}

/* compressed-tensors and GPTQ have the same numbers where scales have the same type. */
static void int4_is_the_same_in_both_orders(void **unused)
{
    static float x[ELEMS], y[ELEMS], z[ELEMS];
    written gptq, ct;
    (void)unused;

    make_values(x, 0.05f);
    begin(&gptq, "int4", "gptq", 64, ROWS, COLUMNS);
    begin(&ct, "int4", "compressed-tensors", 64, ROWS, COLUMNS);
    ct.packing.scale_dtype = ct.matrix.packing.scale_dtype = APR_F16;
    encode(&gptq, x, NULL);
    encode(&ct, x, NULL);
    decode(&gptq, y);
    decode(&ct, z);
    assert_memory_equal(y, z, sizeof y);
    end(&gptq);
    end(&ct);
}

/* ---- FP8 in blocks ---- */

static void fp8_blocks_share_a_scale(void **unused)
{
    enum { TALL = 200, WIDE = 300 };
    static float x[TALL * WIDE], y[TALL * WIDE];
    written w;
    (void)unused;

    for (int i = 0; i < TALL * WIDE; i++) x[i] = unit_noise() * (i / WIDE < 128 ? 1.0f : 100.0f) * (i % WIDE < 128 ? 1.0f : 0.01f);
    x[0] = NAN;
    x[1] = INFINITY;
    begin(&w, "fp8", "fp8", 0, TALL, WIDE);
    assert_int_equal(w.parts[1].dims[0], 2);
    assert_int_equal(w.parts[1].dims[1], 3);
    encode(&w, x, NULL);
    decode(&w, y);
    for (int i = 0; i < TALL * WIDE; i++) {
        const bool is_first = i / WIDE < 128 && i % WIDE < 128;
        const int block = i / WIDE / 128 * 3 + i % WIDE / 128;
        float scale;
        memcpy(&scale, w.to.scales + 4 * block, sizeof scale);
        if (is_first) continue; /* the block of the infinity */
        assert_true(fabsf(y[i] - x[i]) <= fmaxf(fabsf(x[i]) * 0x1p-4f, scale * 0x1p-10f) * 1.001f);
        assert_true(scale <= 100.0f / 448.0f);
    }
    assert_true(isfinite(y[0]) && y[1] == 3.402823466e38f);
    end(&w);
}

/* ---- copies ---- */

static void copied_codes_stay(void **unused)
{
    static uint8_t blocks[ROWS * COLUMNS / 64 * 36];
    static float x[ELEMS], y[ELEMS];
    const float factor = 0.37f;
    const apr_tensor scale = {.name = "x.scale", .dtype = APR_F32, .rank = 1, .dims = {1}, .data = (const uint8_t *)&factor, .n_bytes = 4};
    apr_tensor from = {
        .name = "x.weight", .dtype = APR_NVFP4, .rank = 2, .dims = {ROWS, COLUMNS}, .data = blocks, .n_bytes = sizeof blocks};
    uint8_t codes[COLUMNS];
    written w;
    (void)unused;

    for (size_t i = 0; i < sizeof blocks; i++) blocks[i] = (uint8_t)(unit_noise() * 128.0f + 128.0f) & (i % 36 < 4 ? 0x7f : 0xff);
    blocks[0] = 0x7f; /* no number: ggml reads 0 */
    from.scale = &scale;
    from.scale_rows = ROWS;
    from.scale_columns = COLUMNS;
    apr_decode_rows(&from, 0, ROWS, x);
    begin(&w, "nvfp4", "modelopt", 0, ROWS, COLUMNS);
    assert_true(apr_pack_can_copy(&w.packing, &from));
    set_global_scale(&w, apr_pack_copied_global_scale(&w.packing, &from));
    assert_true(w.to.global_scale == factor);
    for (int r = 0; r < ROWS; r++) apr_pack_copy_rows(&w.to, &from, r, 1, codes);
    decode(&w, y);
    for (int i = 0; i < ELEMS; i++) assert_true(fabsf(x[i] - y[i]) <= 0x1p-23f * fabsf(x[i]));
    for (int i = 1; i < ELEMS / 16; i++)
        if ((blocks[i / 4 * 36 + i % 4] & 0x7f) != 0x7f) assert_int_equal(w.to.scales[i], blocks[i / 4 * 36 + i % 4]);
    assert_int_equal(w.to.scales[0], 1);
    from.dtype = APR_MXFP4;
    assert_false(apr_pack_can_copy(&w.packing, &from));
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nvfp4_scales_are_searched),
        cmocka_unit_test(global_scales_have_reciprocals),
        cmocka_unit_test(importance_weighs_errors),
        cmocka_unit_test(int4_scales_are_searched),
        cmocka_unit_test(int4_is_the_same_in_both_orders),
        cmocka_unit_test(fp8_blocks_share_a_scale),
        cmocka_unit_test(copied_codes_stay),
    };
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
