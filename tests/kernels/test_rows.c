/* test_rows.c - rows of whole tensors: pending steps, scales of FP8 checkpoints, formats that run flat over a tensor. */
#include "kernels/rows.h"

#include "formats/number/blocks.h"
#include "formats/number/half.h"
#include "tests/support/vectors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* tests/data/ggml-types.safetensors: for each type of ggml 12 rows of 1024 as blocks (NAME.bytes) and as numbers (NAME.f32). */
enum { N_ROWS = 12, COLUMNS = 1024 };

static vectors ggml;

static int open_golden(void **state)
{
    (void)state;
    return vectors_open(&ggml, "tests/data/ggml-types.safetensors") ? 0 : -1;
}

static int close_golden(void **state)
{
    (void)state;
    vectors_close(&ggml);
    return 0;
}

static apr_tensor tensor_of(apr_dtype dtype, int rank, const int64_t *dims, const void *data)
{
    apr_tensor tensor = {.name = "w", .dtype = dtype, .rank = rank, .data = data, .pending = {0}};
    for (int i = 0; i < rank; i++) tensor.dims[i] = dims[i];
    assert_int_equal(apr_tensor_size(&tensor, "test", NULL), APR_OK);
    return tensor;
}

/* Columns of every row, `n` at a time, are those of apr_decode_rows. */
static void check_parts(const apr_tensor *tensor, int64_t n)
{
    const int64_t columns = apr_tensor_columns(tensor);
    float *const row = malloc((size_t)columns * sizeof *row), *const part = malloc((size_t)n * sizeof *part);
    for (int64_t r = 0; r < apr_tensor_rows(tensor); r++) {
        apr_decode_rows(tensor, r, 1, row);
        for (int64_t column = 0; column < columns; column += n) {
            const int64_t n_here = columns - column < n ? columns - column : n;
            apr_decode_part(tensor, r, column, n_here, part);
            assert_memory_equal(part, row + column, (size_t)n_here * sizeof *part);
        }
    }
    free(row);
    free(part);
}

static void rows_are_the_rows_of_the_tensor(void **state)
{
    static const apr_dtype types[] = {APR_F32, APR_BF16, APR_Q8_0, APR_Q4_K, APR_IQ2_XS, APR_NVFP4};
    static const int64_t dims[] = {2, 6, COLUMNS};
    float rows[5 * COLUMNS];
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const float *const reference = vectors_part(&ggml, apr_dtypes[types[t]].name, "f32", NULL);
        const apr_tensor tensor = tensor_of(types[t], 3, dims, vectors_part(&ggml, apr_dtypes[types[t]].name, "bytes", NULL));
        apr_decode_rows(&tensor, 4, 5, rows); /* over the border of the two matrices */
        assert_memory_equal(rows, reference + 4 * COLUMNS, sizeof rows);
        apr_decode_rows(&tensor, 11, 1, rows);
        assert_memory_equal(rows, reference + 11 * COLUMNS, COLUMNS * sizeof *rows);
        apr_decode_rows(&tensor, 3, 0, rows);
        check_parts(&tensor, 256);
    }
}

static void a_pending_step_is_taken_into_account(void **state)
{
    /* 2 heads of 6 rows: halves 0 1 2 | 3 4 5 are stored as pairs 0 3 1 4 2 5. */
    static const int64_t dims[] = {N_ROWS, COLUMNS}, vector[] = {N_ROWS};
    static const int halves_of_pairs[N_ROWS] = {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};
    static const float bias[N_ROWS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    float rows[N_ROWS * COLUMNS];
    (void)state;
    const float *const reference = vectors_part(&ggml, "q6_k", "f32", NULL);
    apr_tensor tensor = tensor_of(APR_Q6_K, 2, dims, vectors_part(&ggml, "q6_k", "bytes", NULL));
    tensor.pending = (apr_step){APR_STEP_PAIRS_TO_HALVES, {2}};
    apr_decode_rows(&tensor, 0, N_ROWS, rows);
    for (int r = 0; r < N_ROWS; r++)
        assert_memory_equal(rows + (int64_t)r * COLUMNS, reference + (int64_t)halves_of_pairs[r] * COLUMNS, COLUMNS * sizeof *rows);
    apr_decode_rows(&tensor, 3, 1, rows);
    assert_memory_equal(rows, reference + COLUMNS, COLUMNS * sizeof *rows);
    check_parts(&tensor, 256);

    tensor = tensor_of(APR_F32, 1, vector, bias);
    tensor.pending = (apr_step){APR_STEP_PAIRS_TO_HALVES, {2}};
    apr_decode_rows(&tensor, 0, 1, rows);
    for (int i = 0; i < N_ROWS; i++) assert_true(rows[i] == (float)halves_of_pairs[i]);
}

static void fp8_block_scales_reach_partial_edge_blocks(void **state)
{
    enum { EXPERTS = 2, OUT = 200, IN = 300, HIGH = 2, WIDE = 3 };
    static const int64_t dims[] = {EXPERTS, OUT, IN}, scale_dims[] = {EXPERTS, HIGH, WIDE}, one[] = {1};
    (void)state;
    uint8_t *const codes = malloc(EXPERTS * OUT * IN);
    uint16_t scales[EXPERTS * HIGH * WIDE];
    float *const rows = malloc(EXPERTS * OUT * IN * sizeof *rows);
    for (int i = 0; i < EXPERTS * OUT * IN; i++) codes[i] = (uint8_t)(i % 127 | i % 2 << 7);
    for (int i = 0; i < EXPERTS * HIGH * WIDE; i++) scales[i] = apr_f32_to_bf16(0.5f + (float)i);

    apr_tensor scale = tensor_of(APR_BF16, 3, scale_dims, scales), weight = tensor_of(APR_F8_E4M3, 3, dims, codes);
    weight.scale = &scale;
    weight.scale_rows = weight.scale_columns = 128;
    apr_decode_rows(&weight, 0, EXPERTS * OUT, rows);
    for (int r = 0; r < EXPERTS * OUT; r++)
        for (int c = 0; c < IN; c++) {
            const int block = (r / OUT * HIGH + r % OUT / 128) * WIDE + c / 128;
            const float value = apr_e4m3_to_f32(codes[r * IN + c]) * (0.5f + (float)block);
            if (rows[r * IN + c] != value) fail_msg("row %d column %d: %g, not %g", r, c, (double)rows[r * IN + c], (double)value);
        }
    check_parts(&weight, 100);

    /* one scale for the whole stack, whatever the block says */
    scale = tensor_of(APR_BF16, 1, one, scales + 3);
    weight.scale_rows = EXPERTS * OUT, weight.scale_columns = IN;
    apr_decode_rows(&weight, 399, 1, rows);
    for (int c = 0; c < IN; c++) assert_true(rows[c] == apr_e4m3_to_f32(codes[399 * IN + c]) * 3.5f);
    free(rows);
    free(codes);
}

static void fp8_row_scales_are_one_a_row(void **state)
{
    static const int64_t dims[] = {3, 5}, scale_dims[] = {3, 1};
    static const uint8_t codes[15] = {0x38, 0x40, 0xb8, 0x01, 0x7e, 0x38, 0x38, 0x38, 0x38, 0x38, 0xc0, 0xc0, 0xc0, 0xc0, 0x00};
    static const float scales[3] = {1.0f, 0.25f, 8.0f};
    float rows[15];
    (void)state;
    const apr_tensor scale = tensor_of(APR_F32, 2, scale_dims, scales);
    apr_tensor weight = tensor_of(APR_F8_E4M3, 2, dims, codes);
    weight.scale = &scale, weight.scale_rows = 1, weight.scale_columns = 5;
    apr_decode_rows(&weight, 0, 3, rows);
    for (int i = 0; i < 15; i++) assert_true(rows[i] == apr_e4m3_to_f32(codes[i]) * scales[i / 5]);
}

static void flat_apr_q4_rows_may_start_inside_a_block(void **state)
{
    enum { ROWS = 7, WIDTH = 19, N = ROWS * WIDTH, BLOCKS = (N + 31) / 32 };
    static const int64_t dims[] = {ROWS, WIDTH};
    (void)state;
    apr_block_APR_Q4 *const blocks = malloc(BLOCKS * sizeof *blocks);
    for (int b = 0; b < BLOCKS; b++) {
        blocks[b].d = apr_f32_to_f16(0.125f * (float)(b + 1));
        for (int k = 0; k < 16; k++) blocks[b].qs[k] = (uint8_t)(17 * b + 29 * k);
    }
    const apr_tensor tensor = tensor_of(APR_APR_Q4, 2, dims, blocks);
    assert_int_equal(tensor.n_bytes, BLOCKS * 18);
    check_parts(&tensor, 8);
    for (int first = 0; first < ROWS; first++) {
        float *const rows = malloc((size_t)(ROWS - first) * WIDTH * sizeof *rows);
        apr_decode_rows(&tensor, first, ROWS - first, rows);
        for (int i = first * WIDTH; i < N; i++) {
            const uint8_t byte = blocks[i / 32].qs[i % 32 / 2]; /* even elements are low nibbles */
            const float value = (float)((i % 2 ? byte >> 4 : byte & 0x0f) - 8) * 0.125f * (float)(i / 32 + 1);
            assert_true(rows[i - first * WIDTH] == value);
        }
        free(rows);
    }
    free(blocks);
}

static void flat_apr_q8_rows_share_one_scale(void **state)
{
    enum { ROWS = 5, WIDTH = 7 };
    static const int64_t dims[] = {ROWS, WIDTH};
    const float scale = 0.3f;
    float rows[2 * WIDTH];
    (void)state;
    uint8_t *const bytes = malloc(4 + ROWS * WIDTH);
    memcpy(bytes, &scale, 4);
    for (int i = 0; i < ROWS * WIDTH; i++) bytes[4 + i] = (uint8_t)(i * 7 - 100);
    const apr_tensor tensor = tensor_of(APR_APR_Q8, 2, dims, bytes);
    apr_decode_rows(&tensor, 3, 2, rows);
    for (int i = 0; i < 2 * WIDTH; i++) assert_true(rows[i] == (float)(int8_t)bytes[4 + 3 * WIDTH + i] * scale);
    float all[ROWS * WIDTH];
    apr_ref_codecs[APR_APR_Q8].decode(bytes, all, ROWS * WIDTH);
    assert_memory_equal(all + 3 * WIDTH, rows, sizeof rows);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_rows_of_the_tensor),
        cmocka_unit_test(a_pending_step_is_taken_into_account),
        cmocka_unit_test(fp8_block_scales_reach_partial_edge_blocks),
        cmocka_unit_test(fp8_row_scales_are_one_a_row),
        cmocka_unit_test(flat_apr_q4_rows_may_start_inside_a_block),
        cmocka_unit_test(flat_apr_q8_rows_share_one_scale),
    };
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
