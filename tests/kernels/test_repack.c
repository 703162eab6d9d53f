/* kernels/repack.h: the canonical layout of a packed matrix has the same values, bit for bit, in no more bytes than it says. */
#include "formats/base/bytes.h"
#include "formats/number/half.h"
#include "formats/packed/hf_quantization.h"
#include "kernels/repack.h"
#include "kernels/rows.h"
#include "tests/support/packed_matrix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* The canonical layout in memory of exactly its size, made rows_at_once rows at a time; to be freed. */
static uint8_t *made(apr_repack *repack, int64_t rows_at_once)
{
    uint8_t *const memory = malloc((size_t)repack->offsets[APR_CANONICAL_SECTIONS]);
    assert_non_null(memory);
    apr_repack_bind(repack, memory);
    for (int piece = 0; piece < APR_CANONICAL_SECTIONS; piece++)
        for (int64_t row = 0; row < repack->piece_rows[piece]; row += rows_at_once) {
            const int64_t left = repack->piece_rows[piece] - row, n = left < rows_at_once ? left : rows_at_once;
            apr_repack_rows(repack, (apr_canonical_section)piece, row, n,
                            memory + repack->offsets[piece] + (uint64_t)row * repack->row_bytes[piece]);
        }
    return memory;
}

/* The same by kernels/rows.h. */
static void assert_decoded_equal(const apr_repack *repack, const apr_tensor *original)
{
    const size_t n = (size_t)apr_tensor_elems(original);
    float *const was = malloc(n * sizeof *was), *const is = malloc(n * sizeof *is);
    apr_tensor twin = *original;
    twin.pending = (apr_step){0};
    twin.packing = &repack->packing;
    apr_decode_rows(original, 0, apr_tensor_rows(original), was);
    apr_decode_rows(&twin, 0, apr_tensor_rows(original), is);
    assert_memory_equal(is, was, n * sizeof *is);
    free(was);
    free(is);
}

/* Row `row` of the canonical layout is stored row `stored` of the packing. */
static void assert_same_row(const apr_repack *repack, int64_t row, const apr_packing *packing, int64_t stored, apr_dtype dtype)
{
    for (int64_t c = 0; c < packing->columns; c++) {
        const float is = packed_value(&repack->packing, dtype, row, c), was = packed_value(packing, dtype, stored, c);
        if (apr_f32_bits(is) != apr_f32_bits(was))
            fail_msg("%s: [%lld, %lld] is %g and was %g", packing->scheme, (long long)row, (long long)c, (double)is, (double)was);
    }
}

static void every_layout_keeps_its_values(void **state)
{
    (void)state;
    for (const packed_kind *kind = packed_kinds; kind->what != NULL; kind++)
        for (int64_t at_once = 1; at_once <= 1000; at_once = 7 * at_once + 1) {
            packed_matrix m;
            apr_repack repack;
            packed_matrix_make(&m, kind);
            assert_true(apr_repack_init(&repack, &m.tensor, 1));
            uint8_t *const memory = made(&repack, at_once);
            assert_int_equal(repack.packing.order, APR_CODES_BY_ROW);
            assert_true(repack.packing.bits == 4 || repack.packing.bits == 8);
            for (int64_t r = 0; r < m.packing.rows; r++) assert_same_row(&repack, r, &m.packing, r, kind->dtype);
            assert_decoded_equal(&repack, &m.tensor);
            free(memory);
            packed_matrix_free(&m);
        }
}

static void matrices_of_a_stack_are_put_together_again(void **state)
{
    (void)state;
    for (const packed_kind *kind = packed_kinds; kind->what != NULL; kind++) {
        apr_packing packings[8];
        apr_tensor parts[8];
        packed_matrix m;
        apr_repack repack;
        if (kind->n_matrices < 2) continue;
        packed_matrix_make(&m, kind);
        const int64_t n = kind->n_matrices; /* in another order than they were */
        for (int64_t e = 0; e < n; e++) parts[e] = packed_matrix_of(&m, n - 1 - e, &packings[e]);
        assert_true(apr_repack_init(&repack, parts, n));
        uint8_t *const memory = made(&repack, 5);
        for (int64_t r = 0; r < m.packing.rows; r++)
            assert_same_row(&repack, r, &m.packing, (n - 1 - r / kind->rows) * kind->rows + r % kind->rows, kind->dtype);
        free(memory);
        packed_matrix_free(&m);
    }
}

/* Heads of half the rows, whose pairs are separated; then the upper three quarters of the rows alone. */
static void rows_are_moved_and_cut_on_the_way(void **state)
{
    (void)state;
    for (const packed_kind *kind = packed_kinds; kind->what != NULL; kind++) {
        packed_matrix m;
        apr_repack repack;
        if (kind->n_matrices > 1 || kind->rows % 4 != 0) continue;
        packed_matrix_make(&m, kind);
        m.tensor.pending = (apr_step){.kind = APR_STEP_PAIRS_TO_HALVES, .n = {2}};
        assert_true(apr_repack_init(&repack, &m.tensor, 1));
        uint8_t *memory = made(&repack, 1000);
        for (int64_t r = 0; r < kind->rows; r++)
            assert_same_row(&repack, r, &m.packing, apr_step_row(m.tensor.pending, kind->rows, r), kind->dtype);
        assert_decoded_equal(&repack, &m.tensor);
        free(memory);

        m.tensor.pending = (apr_step){0};
        m.packing.first_row = kind->rows / 4;
        m.tensor.dims[0] = kind->rows - kind->rows / 4;
        assert_true(apr_repack_init(&repack, &m.tensor, 1));
        memory = made(&repack, 1000);
        for (int64_t r = 0; r < m.tensor.dims[0]; r++) assert_same_row(&repack, r, &m.packing, m.packing.first_row + r, kind->dtype);
        assert_decoded_equal(&repack, &m.tensor);
        free(memory);
        packed_matrix_free(&m);
    }
}

static const packed_kind *kind_of(const char *what)
{
    const packed_kind *kind = packed_kinds;
    while (strcmp(kind->what, what) != 0) kind++;
    return kind;
}

static void groups_in_their_natural_order_take_no_memory(void **state)
{
    (void)state;
    const packed_kind *const kind = kind_of("GPTQ, act order");
    packed_matrix m;
    apr_repack repack;
    packed_matrix_make(&m, kind);
    assert_true(apr_repack_init(&repack, &m.tensor, 1));
    assert_int_equal(repack.piece_rows[APR_CANONICAL_GROUPS], 1);
    for (int64_t c = 0; c < kind->columns; c++)
        apr_store_le32((uint8_t *)(uintptr_t)m.groups.data + 4 * c, (uint32_t)(c / kind->scale_columns));
    assert_true(apr_repack_init(&repack, &m.tensor, 1));
    assert_int_equal(repack.piece_rows[APR_CANONICAL_GROUPS], 0);
    uint8_t *const memory = made(&repack, 9);
    assert_null(repack.packing.groups);
    for (int64_t r = 0; r < kind->rows; r++) assert_same_row(&repack, r, &m.packing, r, kind->dtype);
    free(memory);
    packed_matrix_free(&m);
}

/* Where one of a layer's experts has a common scale and another has none, theirs is 1. */
static void experts_need_not_all_have_a_common_scale(void **state)
{
    (void)state;
    const packed_kind *const kind = kind_of("NVFP4 that multiplies");
    packed_matrix m[2];
    apr_repack repack;
    for (int i = 0; i < 2; i++) packed_matrix_make(&m[i], kind);
    m[1].packing.global_scales = NULL;
    const apr_tensor parts[2] = {m[0].tensor, m[1].tensor};
    assert_true(apr_repack_init(&repack, parts, 2));
    assert_int_equal(repack.piece_rows[APR_CANONICAL_GLOBAL_SCALES], 2);
    uint8_t *const memory = made(&repack, 64);
    for (int64_t r = 0; r < 2 * kind->rows; r++) assert_same_row(&repack, r, &m[r / kind->rows].packing, r % kind->rows, kind->dtype);
    free(memory);
    for (int i = 0; i < 2; i++) packed_matrix_free(&m[i]);
}

static void different_tensors_are_not_stacked(void **state)
{
    (void)state;
    packed_matrix a, b;
    apr_repack repack;
    packed_matrix_make(&a, kind_of("NVFP4 that multiplies"));
    packed_matrix_make(&b, kind_of("NVFP4 that divides"));
    b.tensor.dtype = a.tensor.dtype;
    const apr_tensor divided[2] = {a.tensor, b.tensor};
    assert_false(apr_repack_init(&repack, divided, 2));
    b.packing.divides = false;
    const apr_tensor alike[2] = {a.tensor, b.tensor};
    assert_true(apr_repack_init(&repack, alike, 2));
    b.tensor.packing = NULL;
    const apr_tensor plain[2] = {a.tensor, b.tensor};
    assert_false(apr_repack_init(&repack, plain, 2));
    assert_false(apr_repack_init(&repack, &b.tensor, 1));
    packed_matrix_free(&a);
    packed_matrix_free(&b);
}

/* What a plan from a config.json counts is what the matrices that it describes take. */
static void a_stated_scheme_takes_as_much(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        apr_quant_scheme scheme;
    } cases[] = {
        {"GPTQ, 4 bits", {APR_QUANT_GPTQ, 4, 1, 32, 2, .zero_points = true, .act_order = true, .sorted = true}},
        {"GPTQ, act order", {APR_QUANT_GPTQ, 4, 1, 32, 2, .zero_points = true, .act_order = true}},
        {"GPTQ, 2 bits", {APR_QUANT_GPTQ, 2, 1, 16, 2, .zero_points = true}},
        {"GPTQ, 3 bits", {APR_QUANT_GPTQ, 3, 1, 32, 2, .zero_points = true}},
        {"GPTQ, 8 bits, one group", {APR_QUANT_GPTQ, 8, 1, 0, 2, .zero_points = true}},
        {"AWQ", {APR_QUANT_AWQ, 4, 1, 64, 2, .zero_points = true}},
        {"AWQ, symmetric", {APR_QUANT_AWQ, 4, 1, 32, 2}},
        {"compressed-tensors, int4", {APR_QUANT_INT_PACKED, 4, 1, 128, 2}},
        {"compressed-tensors, int4, zero points", {APR_QUANT_INT_PACKED, 4, 1, 32, 2, .zero_points = true}},
        {"compressed-tensors, int4, act order", {APR_QUANT_INT_PACKED, 4, 1, 32, 2, .act_order = true}},
        {"int8, a scale a row", {APR_QUANT_INT8, 8, 1, 0, 2}},
        {"int8, zero points", {APR_QUANT_INT8, 8, 1, 0, 2, .zero_points = true}},
        {"int8, blocks with zero points", {APR_QUANT_INT8, 8, 4, 24, 2, .zero_points = true}},
        {"NVFP4 that multiplies", {APR_QUANT_NVFP4, 4, 1, 16, 1}},
        {"NVFP4, a stack", {APR_QUANT_NVFP4, 4, 1, 16, 1}},
        {"MXFP4", {APR_QUANT_MXFP4, 4, 1, 32, 1}},
        {"MXFP8", {APR_QUANT_MXFP8, 8, 1, 32, 1}},
        {"nf4", {APR_QUANT_NF4, 4, 1, 64, 4}},
        {"nf4, nested", {APR_QUANT_NF4, 4, 1, 64, 4, .nested_scales = true}},
        {"nf4, blocks that begin inside rows", {APR_QUANT_NF4, 4, 1, 64, 4, .nested_scales = true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const packed_kind *const kind = kind_of(cases[i].kind);
        const int64_t n = kind->n_matrices > 0 ? kind->n_matrices : 1;
        packed_matrix m;
        apr_repack repack;
        packed_matrix_make(&m, kind);
        assert_true(apr_repack_init(&repack, &m.tensor, 1));
        const uint64_t stated = apr_quant_device_bytes(&cases[i].scheme, n, kind->rows, kind->columns);
        if (stated != repack.offsets[APR_CANONICAL_SECTIONS])
            fail_msg("%s: %llu bytes, and stated are %llu", kind->what, (unsigned long long)repack.offsets[APR_CANONICAL_SECTIONS],
                     (unsigned long long)stated);
        packed_matrix_free(&m);
    }
    assert_true(apr_quant_device_bytes(&cases[0].scheme, 4096, (int64_t)1 << 31, (int64_t)1 << 31) == UINT64_MAX);
}

static void sizes_that_cannot_be_counted_are_the_largest(void **state)
{
    (void)state;
    uint64_t offsets[APR_CANONICAL_SECTIONS + 1];
    const apr_canonical_layout small = {
        .rows = 3, .columns = 5, .bits = 4, .n_scales = 3, .scale_bytes = 2, .n_zeros = 65, .n_global_scales = 17};
    apr_canonical_offsets(&small, offsets);
    assert_int_equal(offsets[APR_CANONICAL_SCALES], 64);
    assert_int_equal(offsets[APR_CANONICAL_ZEROS], 128);
    assert_int_equal(offsets[APR_CANONICAL_GLOBAL_SCALES], 256);
    assert_int_equal(offsets[APR_CANONICAL_GROUPS], 384);
    assert_int_equal(offsets[APR_CANONICAL_SECTIONS], 384);
    const apr_canonical_layout huge = {.rows = UINT64_MAX / 2, .columns = 3, .bits = 8};
    apr_canonical_offsets(&huge, offsets);
    assert_true(offsets[APR_CANONICAL_SECTIONS] == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_keeps_its_values),
        cmocka_unit_test(matrices_of_a_stack_are_put_together_again),
        cmocka_unit_test(rows_are_moved_and_cut_on_the_way),
        cmocka_unit_test(groups_in_their_natural_order_take_no_memory),
        cmocka_unit_test(experts_need_not_all_have_a_common_scale),
        cmocka_unit_test(different_tensors_are_not_stacked),
        cmocka_unit_test(a_stated_scheme_takes_as_much),
        cmocka_unit_test(sizes_that_cannot_be_counted_are_the_largest),
    };
    return cmocka_run_group_tests_name("repack", tests, NULL, NULL);
}
