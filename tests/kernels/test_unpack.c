/* kernels/unpack.h: one matrix of codes, scales and zero points, laid down in every layout, gives the same values from each. */
#include "formats/base/bytes.h"
#include "formats/number/half.h"
#include "kernels/rows.h"
#include "kernels/unpack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 64, COLUMNS = 96, GROUP = 32, GROUPS = COLUMNS / GROUP, BYTES = ROWS * COLUMNS * 4 };

static int codes[ROWS][COLUMNS], zeros[ROWS][GROUPS];
static float scales[ROWS][GROUPS];

static uint32_t state = 12345;
static uint32_t next(void) { return state = state * 1664525u + 1013904223u; }

static void choose_numbers(int bits)
{
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) codes[r][c] = (int)(next() >> 20) & ((1 << bits) - 1);
        for (int g = 0; g < GROUPS; g++) {
            zeros[r][g] = (int)(next() >> 20) & ((1 << bits) - 1);
            scales[r][g] = apr_f16_to_f32((uint16_t)(0x2400 + (next() >> 21) % 1024));
        }
    }
}

/* Bits [at, at + n) of a string that counts from the lowest bit of the first byte. */
static void put_bits(uint8_t *string, size_t at, int n, int value)
{
    for (int i = 0; i < n; i++)
        if (value >> i & 1) string[(at + (size_t)i) / 8] |= (uint8_t)(1 << (at + (size_t)i) % 8);
}

/* The string is a column of words, `wide` words from one to the next. */
static void put_bits_down(uint8_t *words, size_t column, size_t wide, size_t at, int n, int value)
{
    for (int i = 0; i < n; i++) {
        const size_t bit = at + (size_t)i, word = bit / 32 * wide + column;
        if (value >> i & 1) words[word * 4 + bit % 32 / 8] |= (uint8_t)(1 << bit % 8);
    }
}

static const int awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

typedef struct parts {
    uint8_t codes[BYTES], scales[ROWS * GROUPS * 4], zeros[BYTES];
    apr_tensor code_tensor, scale_tensor, zero_tensor;
    apr_packing packing;
    apr_tensor matrix;
} parts;

static parts *begin(int bits, apr_code_order order, apr_zero_order zero_order, bool scales_down)
{
    parts *const p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->code_tensor = (apr_tensor){
        .name = "codes", .dtype = APR_U8, .rank = 1, .data = p->codes, .n_bytes = (uint64_t)ROWS * COLUMNS * (uint64_t)bits / 8};
    p->scale_tensor = (apr_tensor){.name = "scales", .dtype = APR_F16, .rank = 2, .dims = {ROWS, GROUPS}, .data = p->scales};
    p->zero_tensor = (apr_tensor){.name = "zeros", .dtype = APR_U8, .rank = 1, .data = p->zeros};
    p->packing = (apr_packing){.rows = ROWS,
                               .columns = COLUMNS,
                               .matrix_rows = ROWS,
                               .codes = &p->code_tensor,
                               .order = order,
                               .bits = bits,
                               .scales = &p->scale_tensor,
                               .scale_dtype = APR_F16,
                               .scales_down = scales_down,
                               .scale_rows = 1,
                               .scale_columns = GROUP,
                               .zero_order = zero_order,
                               .zeros = zero_order != APR_ZEROS_NONE ? &p->zero_tensor : NULL};
    p->matrix = (apr_tensor){.name = "matrix", .dtype = APR_F32, .rank = 2, .dims = {ROWS, COLUMNS}, .packing = &p->packing};
    for (int r = 0; r < ROWS; r++)
        for (int g = 0; g < GROUPS; g++) {
            const uint16_t half = apr_f32_to_f16(scales[r][g]);
            memcpy(p->scales + 2 * (scales_down ? g * ROWS + r : r * GROUPS + g), &half, 2);
        }
    return p;
}

static void expect_values(const parts *p, bool with_zeros, int zero_bias)
{
    float row[COLUMNS], some[7];
    for (int r = 0; r < ROWS; r++) {
        apr_decode_rows(&p->matrix, r, 1, row);
        for (int c = 0; c < COLUMNS; c++) {
            const int zero = zero_bias + (with_zeros ? zeros[r][c / GROUP] : 0);
            assert_true(row[c] == (float)(codes[r][c] - zero) * scales[r][c / GROUP]);
        }
        apr_decode_elements(&p->matrix, r * COLUMNS + 29, 7, some);
        assert_memory_equal(some, row + 29, sizeof some);
    }
}

static void rows_are_bit_strings(void **unused)
{
    (void)unused;
    for (int bits = 2; bits <= 8; bits++) {
        choose_numbers(bits);
        parts *const p = begin(bits, APR_CODES_BY_ROW, APR_ZEROS_DOWN, false);
        for (int r = 0; r < ROWS; r++) {
            for (int c = 0; c < COLUMNS; c++) put_bits(p->codes + r * (COLUMNS * bits / 8), (size_t)(c * bits), bits, codes[r][c]);
            for (int g = 0; g < GROUPS; g++) put_bits_down(p->zeros, (size_t)g, GROUPS, (size_t)(r * bits), bits, zeros[r][g]);
        }
        expect_values(p, true, 0);
        free(p);
    }
}

/* As GPTQModel does it: a one less in every place of each word, so that zero points of 0 borrow from the next. */
static void take_ones(uint8_t *words, size_t n_bytes, int bits)
{
    for (size_t i = 0; i < n_bytes; i += 4) apr_store_le32(words + i, apr_load_le32(words + i) - UINT32_MAX / ((1U << bits) - 1));
}

static void gptq_packs_along_the_inputs(void **unused)
{
    static const int widths[] = {2, 3, 4, 8};
    (void)unused;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const int bits = widths[i];
        choose_numbers(bits);
        parts *const p = begin(bits, APR_CODES_DOWN, APR_ZEROS_ALONG_ROWS, true);
        p->packing.zero_bias = 1;
        for (int r = 0; r < ROWS; r++) {
            for (int c = 0; c < COLUMNS; c++) put_bits_down(p->codes, (size_t)r, ROWS, (size_t)(c * bits), bits, codes[r][c]);
            for (int g = 0; g < GROUPS; g++)
                put_bits(p->zeros + g * (ROWS * bits / 8), (size_t)(r * bits), bits, bits == 3 ? (zeros[r][g] - 1) & 7 : zeros[r][g]);
        }
        if (bits != 3) take_ones(p->zeros, (size_t)(GROUPS * ROWS * bits / 8), bits);
        expect_values(p, true, 0);
        free(p);
    }
}

static void columns_choose_their_group(void **unused)
{
    int32_t groups[COLUMNS];
    apr_tensor tensor = {.name = "g_idx", .dtype = APR_I32, .rank = 1, .dims = {COLUMNS}, .data = (const uint8_t *)groups};
    float row[COLUMNS];
    (void)unused;
    choose_numbers(4);
    parts *const p = begin(4, APR_CODES_DOWN, APR_ZEROS_NONE, true);
    p->packing.groups = &tensor;
    p->packing.zero_bias = 8;
    for (int c = 0; c < COLUMNS; c++) groups[c] = (int32_t)(next() >> 16) % GROUPS;
    for (int c = 0; c < COLUMNS; c++)
        for (int r = 0; r < ROWS; r++) put_bits_down(p->codes, (size_t)r, ROWS, (size_t)(c * 4), 4, codes[r][c]);
    for (int r = 0; r < ROWS; r++) {
        apr_decode_rows(&p->matrix, r, 1, row);
        for (int c = 0; c < COLUMNS; c++) assert_true(row[c] == (float)(codes[r][c] - 8) * scales[r][groups[c]]);
    }
    free(p);
}

static void awq_deals_out_eight_rows(void **unused)
{
    (void)unused;
    choose_numbers(4);
    parts *const p = begin(4, APR_CODES_INTERLEAVED, APR_ZEROS_INTERLEAVED, true);
    for (int r = 0; r < ROWS; r++) {
        const size_t at = (size_t)(r / 8) * 32 + (size_t)awq_place[r % 8] * 4;
        for (int c = 0; c < COLUMNS; c++) put_bits(p->codes + c * (ROWS / 2), at, 4, codes[r][c]);
        for (int g = 0; g < GROUPS; g++) put_bits(p->zeros + g * (ROWS / 2), at, 4, zeros[r][g]);
    }
    expect_values(p, true, 0);
    free(p);
}

static void the_type_rounds_each_value(void **unused)
{
    float row[COLUMNS];
    uint8_t bytes[ROWS * COLUMNS * 2];
    (void)unused;
    choose_numbers(4);
    parts *const p = begin(4, APR_CODES_BY_ROW, APR_ZEROS_NONE, false);
    p->packing.zero_bias = 8;
    p->matrix.dtype = APR_BF16;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) put_bits(p->codes + r * (COLUMNS / 2), (size_t)c * 4, 4, codes[r][c]);
    apr_read_bytes(&p->matrix, 0, ROWS * COLUMNS, bytes);
    for (int r = 0; r < ROWS; r++) {
        apr_decode_rows(&p->matrix, r, 1, row);
        for (int c = 0; c < COLUMNS; c++) {
            const uint16_t rounded = apr_f32_to_bf16((float)(codes[r][c] - 8) * scales[r][c / GROUP]);
            assert_true(row[c] == apr_bf16_to_f32(rounded));
            assert_memory_equal(bytes + 2 * (r * COLUMNS + c), &rounded, 2);
        }
    }
    free(p);
}

/* Every exponent and its limits: subnormals, ties, the largest FP16 number and what becomes infinite. */
static void rounding_is_that_of_the_codecs(void **unused)
{
    static const uint32_t tails[] = {0,      1,      0xfff,  0x1000, 0x1001,  0x1fff,  0x2fff,
                                     0x3000, 0x7fff, 0x8000, 0x8001, 0x17fff, 0x18000, 0x7fffff};
    static const apr_dtype types[] = {APR_F16, APR_BF16};
    float value, wanted;
    const uint8_t code = 0;
    const float one = 1.0f;
    const apr_tensor one_code = {.name = "codes", .dtype = APR_U8, .rank = 1, .dims = {1}, .data = &code, .n_bytes = 1};
    const apr_tensor scale = {.name = "scale", .dtype = APR_F32, .rank = 1, .dims = {1}, .data = (const uint8_t *)&one};
    const apr_packing p = {.rows = 1,
                           .columns = 1,
                           .matrix_rows = 1,
                           .codes = &one_code,
                           .bits = 4,
                           .level = APR_LEVEL_TABLE,
                           .scales = &scale,
                           .scale_dtype = APR_F32,
                           .scale_rows = 1,
                           .scale_columns = 1};
    (void)unused;
    for (uint32_t e = 0; e < 511; e++)
        for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
            for (size_t t = 0; t < 2; t++) {
                uint8_t bits[2];
                float table[16] = {0};
                apr_packing q = p;
                table[0] = apr_f32_from_bits((e & 255) << 23 | (e >> 8) << 31 | tails[i]);
                q.levels = table;
                if (table[0] != table[0]) continue;
                apr_unpack_values(&q, types[t], 0, 0, 1, &value);
                apr_ref_codecs[types[t]].encode(table, bits, 1);
                apr_ref_codecs[types[t]].decode(bits, &wanted, 1);
                assert_true(value == wanted);
            }
}

/* Two matrices of 32 rows in a stack: each has a factor of its own, and a scale of 24 rows ends with its matrix. */
static void matrices_of_a_stack_have_their_own(void **unused)
{
    enum { EACH = 32, HIGH = 2 };
    float global_scales[2] = {2.0f, 0.75f}, row[COLUMNS];
    apr_tensor common = {.name = "global", .dtype = APR_F32, .rank = 1, .dims = {2}, .data = (const uint8_t *)global_scales};
    (void)unused;
    choose_numbers(8);
    parts *const p = begin(8, APR_CODES_BY_ROW, APR_ZEROS_NONE, false);
    p->packing.level = APR_LEVEL_SIGNED;
    p->packing.matrix_rows = EACH;
    p->packing.scale_rows = 24;
    p->packing.global_scales = &common;
    p->packing.divides = true;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) p->codes[r * COLUMNS + c] = (uint8_t)codes[r][c];
    for (int r = 0; r < ROWS; r++) {
        const int at = r / EACH * HIGH + r % EACH / 24;
        apr_decode_rows(&p->matrix, r, 1, row);
        for (int c = 0; c < COLUMNS; c++)
            assert_true(row[c] == (float)(int8_t)codes[r][c] * (scales[at][c / GROUP] / global_scales[r / EACH]));
    }
    p->packing.first_row = EACH; /* the second alone, its rows in pairs */
    p->matrix.dims[0] = EACH;
    p->matrix.pending = (apr_step){APR_STEP_PAIRS_TO_HALVES, {2}};
    float moved[COLUMNS];
    for (int r = 0; r < EACH; r++) {
        apr_unpack_values(&p->packing, APR_F32, EACH + apr_step_row(p->matrix.pending, EACH, r), 0, COLUMNS, row);
        apr_decode_rows(&p->matrix, r, 1, moved);
        assert_memory_equal(row, moved, sizeof row);
    }
    free(p);
}

/* Nibbles from the high one on, levels from a table, scales of 64 numbers in a row of all numbers, which are quantized themselves. */
static void bitsandbytes_counts_through_all_rows(void **unused)
{
    enum { BLOCK = 64, N = ROWS * COLUMNS };
    float levels[16], map[256], outer[(N / BLOCK + 15) / 16], row[COLUMNS];
    const apr_tensor map_tensor = {.name = "map", .dtype = APR_F32, .rank = 1, .dims = {256}, .data = (const uint8_t *)map};
    const apr_tensor outer_tensor = {.name = "outer", .dtype = APR_F32, .rank = 1, .data = (const uint8_t *)outer};
    const apr_nested_scales nested = {.map = &map_tensor, .scales = &outer_tensor, .block = 16, .offset = 0.125f};
    (void)unused;
    choose_numbers(4);
    parts *const p = begin(4, APR_CODES_HIGH_FIRST, APR_ZEROS_NONE, false);
    for (int i = 0; i < 16; i++) levels[i] = (float)(i * i - 40) / 90.0f;
    for (int i = 0; i < 256; i++) map[i] = (float)i / 255.0f - 0.5f;
    for (size_t i = 0; i < sizeof outer / sizeof *outer; i++) outer[i] = 0.25f + (float)i / 7.0f;
    p->packing.level = APR_LEVEL_TABLE;
    p->packing.levels = levels;
    p->packing.scale_columns = BLOCK;
    p->packing.scale_dtype = APR_U8;
    p->packing.nested = &nested;
    for (int i = 0; i < N / BLOCK; i++) p->scales[i] = (uint8_t)next();
    for (int i = 0; i < N; i++) p->codes[i / 2] |= (uint8_t)(codes[i / COLUMNS][i % COLUMNS] << (i % 2 == 0 ? 4 : 0));
    for (int r = 0; r < ROWS; r++) {
        apr_decode_rows(&p->matrix, r, 1, row);
        for (int c = 0; c < COLUMNS; c++) {
            const int block = (r * COLUMNS + c) / BLOCK;
            const float factor = map[p->scales[block]] * outer[block / 16] + 0.125f;
            assert_true(row[c] == levels[codes[r][c]] * factor);
        }
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_bit_strings),
        cmocka_unit_test(gptq_packs_along_the_inputs),
        cmocka_unit_test(columns_choose_their_group),
        cmocka_unit_test(awq_deals_out_eight_rows),
        cmocka_unit_test(the_type_rounds_each_value),
        cmocka_unit_test(matrices_of_a_stack_have_their_own),
        cmocka_unit_test(bitsandbytes_counts_through_all_rows),
        cmocka_unit_test(rounding_is_that_of_the_codecs),
    };
    return cmocka_run_group_tests_name("unpack", tests, NULL, NULL);
}
