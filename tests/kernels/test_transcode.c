/* kernels/transcode.h: numbers stored in several tensors fit a block type or not, and are the same numbers there. */
#include "formats/number/half.h"
#include "formats/tensor/composed.h"
#include "kernels/rows.h"
#include "kernels/transcode.h"
#include "kernels/unpack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 16, COLUMNS = 128, GROUP = 32, GROUPS = COLUMNS / GROUP };

typedef struct matrix {
    uint8_t codes[ROWS * COLUMNS], scales[ROWS * COLUMNS], zeros[ROWS * GROUPS];
    apr_tensor code_tensor, scale_tensor, zero_tensor, common_tensor, tensor;
    apr_packing packing;
    float common;
} matrix;

static uint32_t state = 99;
static uint32_t next(void) { return state = state * 1664525u + 1013904223u; }

/* Codes and scales at random: around 0.02 where they are F16 or F32, all positive. */
static void make(matrix *m, int bits, apr_code_level level, apr_dtype scale_dtype, int group)
{
    *m = (matrix){.common = 0.37f};
    m->code_tensor = (apr_tensor){.name = "codes", .dtype = APR_U8, .rank = 2, .dims = {ROWS, COLUMNS * bits / 8}, .data = m->codes};
    m->code_tensor.n_bytes = (uint64_t)(ROWS * COLUMNS * bits / 8);
    m->scale_tensor = (apr_tensor){.name = "scales", .dtype = scale_dtype, .rank = 2, .dims = {ROWS, COLUMNS / group}, .data = m->scales};
    m->zero_tensor = (apr_tensor){.name = "zeros", .dtype = APR_U8, .rank = 2, .dims = {ROWS, COLUMNS / group}, .data = m->zeros};
    m->common_tensor = (apr_tensor){.name = "common", .dtype = APR_F32, .rank = 0, .data = (const uint8_t *)&m->common, .n_bytes = 4};
    m->packing = (apr_packing){.scheme = "of a test",
                               .rows = ROWS,
                               .columns = COLUMNS,
                               .matrix_rows = ROWS,
                               .codes = &m->code_tensor,
                               .order = APR_CODES_BY_ROW,
                               .level = level,
                               .bits = bits,
                               .scales = &m->scale_tensor,
                               .scale_dtype = scale_dtype,
                               .scale_rows = 1,
                               .scale_columns = group};
    m->tensor = (apr_tensor){.name = "matrix", .dtype = APR_F32, .rank = 2, .dims = {ROWS, COLUMNS}, .packing = &m->packing};
    for (int i = 0; i < ROWS * COLUMNS * bits / 8; i++) m->codes[i] = (uint8_t)(next() >> 24);
    for (int i = 0; i < ROWS * COLUMNS / group; i++) {
        const uint16_t half = (uint16_t)(0x2400 + (next() >> 22));
        const float value = apr_f16_to_f32(half);
        if (scale_dtype == APR_F16) memcpy(m->scales + 2 * i, &half, 2);
        else if (scale_dtype == APR_F32) memcpy(m->scales + 4 * i, &value, 4);
        else m->scales[i] = scale_dtype == APR_E8M0 ? (uint8_t)(100 + (next() >> 28)) : (uint8_t)(next() >> 25) % 0x7e;
    }
}

static int64_t n_different(const apr_tensor *t, apr_dtype to, int64_t row, const uint8_t *blocks, double *worst)
{
    apr_transcode_cost cost = {0};
    apr_transcode_compare(t, t->dtype, to, row, blocks, &cost);
    if (cost.worst > *worst) *worst = cost.worst;
    return cost.n_different;
}

static void expect_same(const matrix *m, apr_dtype to)
{
    uint8_t row[COLUMNS * 4];
    float values[COLUMNS], blocks[COLUMNS];
    double worst = 0.0;

    assert_int_equal(apr_transcode_type(&m->tensor, NULL), to);
    for (int r = 0; r < ROWS; r++) {
        apr_transcode_row(&m->tensor, to, r, row);
        assert_int_equal(n_different(&m->tensor, to, r, row, &worst), 0);
        apr_decode_rows(&m->tensor, r, 1, values);
        apr_ref_codecs[to].decode(row, blocks, COLUMNS);
        for (int i = 0; i < COLUMNS && m->packing.global_scales == NULL; i++) assert_true(values[i] == blocks[i]);
        row[apr_dtypes[to].bytes_per_block - 1] ^= 1; /* another code */
        assert_int_equal(n_different(&m->tensor, to, r, row, &worst), 1);
        assert_true(worst > 1e-3);
        worst = 0.0;
    }
}

static void symmetric_four_bits_are_q4_0(void **unused)
{
    matrix m;
    (void)unused;
    make(&m, 4, APR_LEVEL_UNSIGNED, APR_F16, 128);
    m.packing.zero_bias = 8;
    expect_same(&m, APR_Q4_0);
    make(&m, 4, APR_LEVEL_SIGNED, APR_F32, GROUP);
    expect_same(&m, APR_Q4_0);
    make(&m, 2, APR_LEVEL_UNSIGNED, APR_F16, 64); /* few codes allow any zero point */
    m.packing.zero_bias = 3;
    expect_same(&m, APR_Q4_0);
}

static void zero_points_of_four_bits_are_q5_0(void **unused)
{
    matrix m;
    (void)unused;
    make(&m, 4, APR_LEVEL_UNSIGNED, APR_F16, GROUP);
    m.packing.zero_order = APR_ZEROS_BY_ROW;
    m.packing.zeros = &m.zero_tensor;
    for (int i = 0; i < ROWS * GROUPS; i++) m.zeros[i] = (uint8_t)(next() >> 28);
    expect_same(&m, APR_Q5_0);
}

static void minima_that_are_f16_are_q4_1(void **unused)
{
    matrix m;
    const uint16_t quarter = apr_f32_to_f16(0.25f);
    (void)unused;
    make(&m, 4, APR_LEVEL_UNSIGNED, APR_F16, GROUP);
    for (int i = 0; i < ROWS * GROUPS; i++) memcpy(m.scales + 2 * i, &quarter, 2);
    m.packing.zero_order = APR_ZEROS_BY_ROW;
    m.packing.zeros = &m.zero_tensor;
    for (int i = 0; i < ROWS * GROUPS; i++) m.zeros[i] = (uint8_t)(next() >> 28);
    expect_same(&m, APR_Q4_1);
}

static void eight_bits_are_q8_0(void **unused)
{
    matrix m;
    (void)unused;
    make(&m, 8, APR_LEVEL_SIGNED, APR_F16, COLUMNS);
    expect_same(&m, APR_Q8_0);
    make(&m, 8, APR_LEVEL_UNSIGNED, APR_F16, GROUP);
    m.packing.zero_bias = 128;
    expect_same(&m, APR_Q8_0);
}

static void four_bit_floats_are_theirs(void **unused)
{
    matrix m;
    (void)unused;
    make(&m, 4, APR_LEVEL_E2M1, APR_E8M0, 32);
    expect_same(&m, APR_MXFP4);
    make(&m, 4, APR_LEVEL_E2M1, APR_F8_E4M3, 16);
    expect_same(&m, APR_NVFP4);
    m.packing.global_scales = &m.common_tensor;
    assert_true(apr_transcode_has_global_scales(&m.tensor, APR_NVFP4));
    assert_true(apr_transcode_global_scale(&m.tensor, 0) == 0.37f);
    expect_same(&m, APR_NVFP4);
}

/* 1 / 0.37 is not a float: the error is reported. */
static void a_reciprocal_factor_costs_its_rounding(void **unused)
{
    matrix m;
    uint8_t row[COLUMNS];
    double worst = 0.0;
    int64_t n = 0;
    (void)unused;
    make(&m, 4, APR_LEVEL_E2M1, APR_F8_E4M3, 16);
    m.packing.global_scales = &m.common_tensor;
    m.packing.divides = true;
    assert_true(apr_transcode_global_scale(&m.tensor, 0) == 1.0f / 0.37f);
    for (int r = 0; r < ROWS; r++) {
        apr_transcode_row(&m.tensor, APR_NVFP4, r, row);
        n += n_different(&m.tensor, APR_NVFP4, r, row, &worst);
    }
    assert_true(n > ROWS * COLUMNS / 2 && worst > 0.0 && worst < 0x1p-23);
    m.common = 0.5f;
    for (int r = 0; r < ROWS; r++) {
        apr_transcode_row(&m.tensor, APR_NVFP4, r, row);
        assert_int_equal(n_different(&m.tensor, APR_NVFP4, r, row, &worst), 0);
    }
}

static bool holds_q4_0(apr_dtype dtype) { return dtype == APR_Q4_0; }

static void what_does_not_fit_is_no_type(void **unused)
{
    matrix m;
    const float no_half = 0.1f;
    int32_t order[COLUMNS] = {0};
    const apr_tensor groups = {.name = "g_idx", .dtype = APR_I32, .rank = 1, .dims = {COLUMNS}, .data = (const uint8_t *)order};
    (void)unused;

    make(&m, 4, APR_LEVEL_UNSIGNED, APR_F32, GROUP);
    m.packing.zero_bias = 8;
    assert_int_equal(apr_transcode_type(&m.tensor, NULL), APR_Q4_0);
    assert_int_equal(apr_transcode_type(&m.tensor, holds_q4_0), APR_Q4_0);
    memcpy(m.scales + 4 * (ROWS * GROUPS - 1), &no_half, 4); /* the last scale of all */
    assert_int_equal(apr_transcode_type(&m.tensor, NULL), APR_DTYPE_COUNT);

    make(&m, 4, APR_LEVEL_UNSIGNED, APR_F16, GROUP);
    assert_int_equal(apr_transcode_type(&m.tensor, holds_q4_0), APR_DTYPE_COUNT); /* codes up to 15 */
    m.packing.zero_bias = 8;
    m.packing.groups = &groups;
    assert_int_equal(apr_transcode_type(&m.tensor, NULL), APR_DTYPE_COUNT);

    make(&m, 4, APR_LEVEL_UNSIGNED, APR_F16, 16); /* groups smaller than blocks */
    m.packing.zero_bias = 8;
    assert_int_equal(apr_transcode_type(&m.tensor, NULL), APR_DTYPE_COUNT);

    make(&m, 4, APR_LEVEL_E2M1, APR_F8_E4M3, 16);
    m.scales[77] = 0x81; /* a negative scale, which ggml's cannot be */
    assert_int_equal(apr_transcode_type(&m.tensor, NULL), APR_DTYPE_COUNT);
}

static void experts_in_a_stack_have_their_own_factor(void **unused)
{
    static matrix m[3];
    const apr_tensor *parts[3];
    const apr_chain stack = apr_chain_of((apr_step){.kind = APR_STEP_STACK});
    apr_tensor whole = {.name = "experts"};
    apr_arena arena = {0};
    uint8_t row[COLUMNS];
    double worst = 0.0;
    (void)unused;

    for (int i = 0; i < 3; i++) {
        make(&m[i], 4, APR_LEVEL_E2M1, APR_F8_E4M3, 16);
        m[i].common = 0.37f + (float)i;
        m[i].packing.global_scales = &m[i].common_tensor;
        parts[i] = &m[i].tensor;
    }
    assert_int_equal(apr_tensor_compose(&whole, parts, 3, &stack, &arena, "a test", NULL), APR_OK);
    assert_int_equal(apr_transcode_type(&whole, NULL), APR_NVFP4);
    assert_int_equal(apr_transcode_matrices(&whole), 3);
    for (int r = 0; r < 3 * ROWS; r++) {
        apr_transcode_row(&whole, APR_NVFP4, r, row);
        assert_int_equal(n_different(&whole, APR_NVFP4, r, row, &worst), 0);
        assert_true(apr_transcode_global_scale(&whole, r / ROWS) == 0.37f + (float)(r / ROWS));
    }
    m[1].scales[3] = 0xff;
    assert_int_equal(apr_transcode_type(&whole, NULL), APR_DTYPE_COUNT);
    apr_arena_close(&arena);
}

/* (q - 8) * scale of 4 and 11 bits has up to 15: a half keeps 11 of them. */
static void what_the_library_rounds_is_counted(void **unused)
{
    matrix m;
    uint8_t row[COLUMNS];
    apr_transcode_cost cost = {0};
    int64_t n_rounded = 0;
    float values[COLUMNS], blocks[COLUMNS];
    (void)unused;

    make(&m, 4, APR_LEVEL_UNSIGNED, APR_F16, GROUP);
    m.packing.zero_bias = 8;
    m.tensor.dtype = APR_F16;
    for (int r = 0; r < ROWS; r++) {
        apr_transcode_row(&m.tensor, APR_Q4_0, r, row);
        apr_transcode_compare(&m.tensor, m.tensor.dtype, APR_Q4_0, r, row, &cost);
        apr_decode_rows(&m.tensor, r, 1, values);
        apr_ref_codecs[APR_Q4_0].decode(row, blocks, COLUMNS);
        for (int i = 0; i < COLUMNS; i++) {
            n_rounded += values[i] != blocks[i];
            assert_true(values[i] == apr_f16_to_f32(apr_f32_to_f16(blocks[i])));
        }
    }
    assert_true(cost.n_different == 0 && cost.n_rounded == n_rounded && n_rounded > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(symmetric_four_bits_are_q4_0),       cmocka_unit_test(zero_points_of_four_bits_are_q5_0),
        cmocka_unit_test(minima_that_are_f16_are_q4_1),       cmocka_unit_test(eight_bits_are_q8_0),
        cmocka_unit_test(four_bit_floats_are_theirs),         cmocka_unit_test(a_reciprocal_factor_costs_its_rounding),
        cmocka_unit_test(what_does_not_fit_is_no_type),       cmocka_unit_test(experts_in_a_stack_have_their_own_factor),
        cmocka_unit_test(what_the_library_rounds_is_counted),
    };
    return cmocka_run_group_tests_name("transcode", tests, NULL, NULL);
}
