/* packed_matrix.c - packed matrices of noise, and their values bit by bit. */
#include "tests/support/packed_matrix.h"

#include "formats/base/bytes.h"
#include "formats/number/half.h"

#include <stdlib.h>
#include <string.h>

/* clang-format off */
const packed_kind packed_kinds[] = {
    {"GPTQ, 4 bits", APR_CODES_DOWN, APR_LEVEL_UNSIGNED, 4, 0, 48, 128, APR_F16, APR_F16, true, 1, 32, .zero_order = APR_ZEROS_ALONG_ROWS, .zero_bias = 1},
    {"GPTQ, act order", APR_CODES_DOWN, APR_LEVEL_UNSIGNED, 4, 0, 40, 128, APR_F16, APR_F16, true, 1, 32, .zero_order = APR_ZEROS_ALONG_ROWS, .act_order = true},
    {"GPTQ, 2 bits", APR_CODES_DOWN, APR_LEVEL_UNSIGNED, 2, 0, 32, 64, APR_BF16, APR_BF16, true, 1, 16, .zero_order = APR_ZEROS_ALONG_ROWS, .zero_bias = 1},
    {"GPTQ, 3 bits", APR_CODES_DOWN, APR_LEVEL_UNSIGNED, 3, 0, 32, 96, APR_F16, APR_F16, true, 1, 32, .zero_order = APR_ZEROS_ALONG_ROWS},
    {"GPTQ, 8 bits, one group", APR_CODES_DOWN, APR_LEVEL_UNSIGNED, 8, 0, 24, 96, APR_F16, APR_F16, true, 1, 0, .zero_order = APR_ZEROS_ALONG_ROWS, .zero_bias = 1},
    {"AWQ", APR_CODES_INTERLEAVED, APR_LEVEL_UNSIGNED, 4, 0, 40, 128, APR_F16, APR_F16, true, 1, 64, .zero_order = APR_ZEROS_INTERLEAVED},
    {"AWQ, symmetric", APR_CODES_INTERLEAVED, APR_LEVEL_UNSIGNED, 4, 0, 24, 64, APR_BF16, APR_BF16, true, 1, 32, .zero_bias = 8},
    {"compressed-tensors, int4", APR_CODES_BY_ROW, APR_LEVEL_UNSIGNED, 4, 0, 33, 256, APR_BF16, APR_BF16, false, 1, 128, .zero_bias = 8},
    {"compressed-tensors, int4, zero points", APR_CODES_BY_ROW, APR_LEVEL_UNSIGNED, 4, 0, 32, 64, APR_F16, APR_F16, false, 1, 32, .zero_order = APR_ZEROS_DOWN},
    {"compressed-tensors, int4, act order", APR_CODES_BY_ROW, APR_LEVEL_UNSIGNED, 4, 3, 16, 96, APR_BF16, APR_BF16, false, 1, 32, .zero_bias = 8, .act_order = true},
    {"compressed-tensors, int8, packed", APR_CODES_BY_ROW, APR_LEVEL_UNSIGNED, 8, 0, 17, 64, APR_BF16, APR_BF16, false, 1, 0, .zero_bias = 128},
    {"compressed-tensors, 3 bits", APR_CODES_BY_ROW, APR_LEVEL_UNSIGNED, 3, 0, 16, 64, APR_F32, APR_F32, false, 1, 32, .zero_bias = 4},
    {"5 bits", APR_CODES_BY_ROW, APR_LEVEL_UNSIGNED, 5, 0, 16, 64, APR_F32, APR_F32, false, 1, 32, .zero_bias = 16},
    {"int8, a scale a row", APR_CODES_BY_ROW, APR_LEVEL_SIGNED, 8, 0, 19, 72, APR_BF16, APR_BF16, false, 1, 0},
    {"int8, zero points", APR_CODES_BY_ROW, APR_LEVEL_SIGNED, 8, 0, 19, 72, APR_BF16, APR_BF16, false, 1, 0, .zero_order = APR_ZEROS_BY_ROW, .signed_zeros = true},
    {"int8, unsigned zero points", APR_CODES_BY_ROW, APR_LEVEL_UNSIGNED, 8, 0, 19, 72, APR_F16, APR_F32, false, 1, 24, .zero_order = APR_ZEROS_BY_ROW},
    {"int8, one scale", APR_CODES_BY_ROW, APR_LEVEL_SIGNED, 8, 2, 12, 72, APR_F32, APR_F32, false, 12, 0},
    {"signed, 2 bits", APR_CODES_BY_ROW, APR_LEVEL_SIGNED, 2, 0, 9, 32, APR_F32, APR_F32, false, 1, 16},
    {"signed, 4 bits, ragged rows", APR_CODES_BY_ROW, APR_LEVEL_SIGNED, 4, 0, 21, 37, APR_F16, APR_F16, false, 1, 10},
    {"signed, 6 bits, in blocks", APR_CODES_BY_ROW, APR_LEVEL_SIGNED, 6, 2, 21, 50, APR_F16, APR_F16, false, 4, 10},
    {"NVFP4 that multiplies", APR_CODES_BY_ROW, APR_LEVEL_E2M1, 4, 0, 40, 64, APR_F32, APR_F8_E4M3, false, 1, 16, .n_global_scales = 1},
    {"NVFP4 that divides", APR_CODES_BY_ROW, APR_LEVEL_E2M1, 4, 0, 40, 64, APR_BF16, APR_F8_E4M3, false, 1, 16, .n_global_scales = 1, .divides = true},
    {"NVFP4, a stack", APR_CODES_BY_ROW, APR_LEVEL_E2M1, 4, 3, 24, 48, APR_F32, APR_F8_E4M3, false, 1, 16, .n_global_scales = 3, .divides = true},
    {"MXFP4", APR_CODES_BY_ROW, APR_LEVEL_E2M1, 4, 0, 31, 160, APR_BF16, APR_E8M0, false, 1, 32},
    {"MXFP8", APR_CODES_BY_ROW, APR_LEVEL_E4M3, 8, 0, 31, 160, APR_BF16, APR_E8M0, false, 1, 32},
    {"nf4", APR_CODES_HIGH_FIRST, APR_LEVEL_TABLE, 4, 0, 24, 128, APR_BF16, APR_F32, false, 1, 64},
    {"nf4, nested", APR_CODES_HIGH_FIRST, APR_LEVEL_TABLE, 4, 0, 40, 128, APR_F16, APR_U8, false, 1, 64, .is_nested = true},
    {"nf4, blocks of two rows", APR_CODES_HIGH_FIRST, APR_LEVEL_TABLE, 4, 0, 10, 32, APR_F32, APR_F32, false, 1, 64},
    {"nf4, blocks that begin inside rows", APR_CODES_HIGH_FIRST, APR_LEVEL_TABLE, 4, 0, 12, 96, APR_BF16, APR_U8, false, 1, 64, .is_nested = true},
    {"nf4, odd rows", APR_CODES_HIGH_FIRST, APR_LEVEL_TABLE, 4, 0, 8, 33, APR_F32, APR_F32, false, 1, 64},
    {"int8, blocks with zero points", APR_CODES_BY_ROW, APR_LEVEL_SIGNED, 8, 0, 20, 72, APR_BF16, APR_BF16, false, 4, 24, .zero_order = APR_ZEROS_BY_ROW, .signed_zeros = true},
    {"2 bits of a table", APR_CODES_BY_ROW, APR_LEVEL_TABLE, 2, 0, 6, 40, APR_F32, APR_F32, false, 1, 0},
    {"GPTQ, a stack, act order", APR_CODES_DOWN, APR_LEVEL_UNSIGNED, 4, 3, 16, 64, APR_F16, APR_F16, true, 1, 16, .zero_order = APR_ZEROS_ALONG_ROWS, .zero_bias = 1, .act_order = true},
    {"AWQ, a stack", APR_CODES_INTERLEAVED, APR_LEVEL_UNSIGNED, 4, 4, 16, 64, APR_F16, APR_F16, true, 1, 32, .zero_order = APR_ZEROS_INTERLEAVED},
    {0},
};
/* clang-format on */

static uint64_t seed = 88172645463325252u;

static uint32_t random_bits(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)(seed >> 32);
}

static int64_t per(int64_t n, int64_t each) { return (n + each - 1) / each; }

static void make_part(packed_matrix *m, apr_tensor *t, const char *name, apr_dtype dtype, int64_t n_rows, int64_t n_columns)
{
    const size_t n_bytes = (size_t)(n_rows * n_columns * apr_dtypes[dtype].bytes_per_block);
    uint8_t *const data = malloc(n_bytes);

    for (size_t i = 0; data != NULL && i < n_bytes; i++) data[i] = (uint8_t)random_bits();
    *t = (apr_tensor){.name = name, .dtype = dtype, .rank = 2, .dims = {n_rows, n_columns}, .data = data, .n_bytes = n_bytes};
    m->parts[m->packing.n_parts++] = t;
}

/* Number i of a part. */
static void put(const apr_tensor *t, int64_t i, float value)
{
    uint8_t *const data = (uint8_t *)(uintptr_t)t->data;
    if (t->dtype == APR_F16) apr_store_le16(data + 2 * i, apr_f32_to_f16(value));
    else if (t->dtype == APR_BF16) apr_store_le16(data + 2 * i, apr_f32_to_bf16(value));
    else if (t->dtype == APR_F32) apr_store_le32(data + 4 * i, apr_f32_bits(value));
    else if (t->dtype == APR_F8_E4M3) data[i] = apr_f32_to_e4m3(value * 1000.0f);
    else if (t->dtype == APR_E8M0) data[i] = (uint8_t)(118 + random_bits() % 6);
}

static void fill(const apr_tensor *t, float low, float high)
{
    for (int64_t i = 0; i < t->dims[0] * t->dims[1]; i++) put(t, i, low + (high - low) * (float)(random_bits() >> 8) * 0x1p-24f);
}

static void make_scales(packed_matrix *m, const packed_kind *kind)
{
    apr_packing *const p = &m->packing;
    const int64_t n_matrices = p->rows / p->matrix_rows, high = apr_packing_scale_rows(p), wide = apr_packing_groups(p);

    if (p->order == APR_CODES_HIGH_FIRST)
        make_part(m, &m->scales, "scales", kind->scale_dtype, per(p->rows * p->columns, p->scale_columns), 1);
    else make_part(m, &m->scales, "scales", kind->scale_dtype, n_matrices * high, wide);
    fill(&m->scales, 0.001f, 0.02f);
    p->scales = &m->scales;
    if (kind->n_global_scales > 0) {
        make_part(m, &m->global_scales, "common", APR_F32, kind->n_global_scales, 1);
        fill(&m->global_scales, kind->divides ? 700.0f : 0.001f, kind->divides ? 900.0f : 0.003f);
        p->global_scales = &m->global_scales;
    }
    if (!kind->is_nested) return;
    make_part(m, &m->map, "map", APR_F32, 256, 1);
    make_part(m, &m->scales_of_scales, "scales of scales", APR_F32, per(m->scales.dims[0] * m->scales.dims[1], 16), 1);
    fill(&m->map, -1.0f, 1.0f);
    fill(&m->scales_of_scales, 0.001f, 0.01f);
    m->nested = (apr_nested_scales){&m->map, &m->scales_of_scales, 16, 0.0123f};
    p->nested = &m->nested;
}

static void make_zeros(packed_matrix *m, const packed_kind *kind)
{
    apr_packing *const p = &m->packing;
    const int64_t n_matrices = p->rows / p->matrix_rows, wide = apr_packing_groups(p), words = per(p->matrix_rows * p->bits, 32);

    if (p->zero_order == APR_ZEROS_NONE) return;
    p->zeros = &m->zeros;
    if (p->zero_order == APR_ZEROS_BY_ROW)
        make_part(m, &m->zeros, "zeros", kind->signed_zeros ? APR_I8 : APR_U8, n_matrices * apr_packing_scale_rows(p), wide);
    else if (p->zero_order == APR_ZEROS_DOWN) make_part(m, &m->zeros, "zeros", APR_I32, n_matrices * words, wide);
    else make_part(m, &m->zeros, "zeros", APR_I32, n_matrices * wide, words);
}

static void make_codes(packed_matrix *m)
{
    apr_packing *const p = &m->packing;
    const int64_t n_matrices = p->rows / p->matrix_rows;

    p->codes = &m->codes;
    switch (p->order) {
    case APR_CODES_BY_ROW: make_part(m, &m->codes, "codes", APR_I32, p->rows, per(p->columns * p->bits, 32)); break;
    case APR_CODES_HIGH_FIRST: make_part(m, &m->codes, "codes", APR_U8, per(p->rows * p->columns, 2), 1); break;
    case APR_CODES_DOWN: make_part(m, &m->codes, "codes", APR_I32, n_matrices * per(p->columns * p->bits, 32), p->matrix_rows); break;
    default: make_part(m, &m->codes, "codes", APR_I32, n_matrices * p->columns, per(p->matrix_rows, 8)); break;
    }
    for (int64_t i = 0; p->level == APR_LEVEL_E4M3 && i < p->rows * p->columns; i++)
        if ((m->codes.data[i] & 0x7f) == 0x7f) ((uint8_t *)(uintptr_t)m->codes.data)[i] = 0x30; /* no NaN */
}

static void make_groups(packed_matrix *m)
{
    apr_packing *const p = &m->packing;
    const int64_t n_groups = apr_packing_groups(p);

    make_part(m, &m->groups, "groups", APR_I32, p->rows / p->matrix_rows, p->columns);
    for (int64_t i = 0; i < m->groups.dims[0] * p->columns; i++)
        apr_store_le32((uint8_t *)(uintptr_t)m->groups.data + 4 * i, random_bits() % (uint32_t)n_groups);
    p->groups = &m->groups;
}

void packed_matrix_make(packed_matrix *m, const packed_kind *kind)
{
    const int64_t n_matrices = kind->n_matrices > 0 ? kind->n_matrices : 1;

    *m = (packed_matrix){0};
    m->packing = (apr_packing){
        .scheme = kind->what,
        .rows = n_matrices * kind->rows,
        .columns = kind->columns,
        .matrix_rows = kind->rows,
        .order = kind->order,
        .level = kind->level,
        .bits = kind->bits,
        .scale_dtype = kind->scale_dtype,
        .scales_down = kind->scales_down,
        .scale_rows = kind->scale_rows > 0 ? kind->scale_rows : 1,
        .scale_columns = kind->scale_columns > 0 ? kind->scale_columns : kind->columns,
        .divides = kind->divides,
        .zero_order = kind->zero_order,
        .zero_bias = kind->zero_bias,
    };
    make_codes(m);
    make_scales(m, kind);
    make_zeros(m, kind);
    if (kind->act_order) make_groups(m);
    for (int i = 0; i < 16; i++) m->levels[i] = (float)((int)(random_bits() % 2001) - 1000) / 1000.0f;
    if (kind->level == APR_LEVEL_TABLE) m->packing.levels = m->levels;
    m->packing.parts = m->parts;
    m->tensor = (apr_tensor){.name = kind->what, .dtype = kind->dtype, .rank = 2, .dims = {kind->rows, kind->columns}};
    if (kind->n_matrices > 0)
        m->tensor.rank = 3, m->tensor.dims[0] = n_matrices, m->tensor.dims[1] = kind->rows, m->tensor.dims[2] = kind->columns;
    m->tensor.n_bytes = (uint64_t)(m->packing.rows * kind->columns * apr_dtypes[kind->dtype].bytes_per_block);
    m->tensor.packing = &m->packing;
}

void packed_matrix_free(packed_matrix *m)
{
    for (size_t i = 0; i < m->packing.n_parts; i++) free((void *)(uintptr_t)m->parts[i]->data);
}

apr_tensor packed_matrix_of(const packed_matrix *m, int64_t matrix, apr_packing *packing)
{
    apr_tensor t = m->tensor;

    *packing = m->packing;
    packing->first_row = matrix * packing->matrix_rows;
    t.packing = packing;
    t.rank = 2;
    t.dims[0] = packing->matrix_rows;
    t.dims[1] = packing->columns;
    t.n_bytes = m->tensor.n_bytes / (uint64_t)(packing->rows / packing->matrix_rows);
    return t;
}

/* --- values --- */

/* Bits [at, at + n) of words of 32 bits, word w of which is number first + w * stride of the data. */
static unsigned bits_of(const uint8_t *data, int64_t first, int64_t stride, int64_t at, int n)
{
    unsigned value = 0;
    for (int i = 0; i < n; i++) value |= (apr_load_le32(data + 4 * (first + (at + i) / 32 * stride)) >> (at + i) % 32 & 1u) << i;
    return value;
}

static unsigned nibble_of_eight(const uint8_t *data, int64_t word, int64_t i)
{
    static const int places[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return bits_of(data, word, 1, 4 * places[i], 4);
}

static unsigned code_of(const apr_packing *p, int64_t row, int64_t column)
{
    const int64_t n = p->matrix_rows, matrix = row / n, r = row % n, row_bytes = (int64_t)(p->codes->n_bytes / (uint64_t)p->rows),
                  flat = row * p->columns + column;
    unsigned value = 0;

    switch (p->order) {
    case APR_CODES_BY_ROW:
        for (int64_t i = 0, at; i < p->bits; i++)
            at = column * p->bits + i, value |= (p->codes->data[row * row_bytes + at / 8] >> at % 8 & 1u) << i;
        return value;
    case APR_CODES_HIGH_FIRST: return flat % 2 == 0 ? p->codes->data[flat / 2] >> 4 : p->codes->data[flat / 2] & 15u;
    case APR_CODES_DOWN: return bits_of(p->codes->data, matrix * per(p->columns * p->bits, 32) * n + r, n, column * p->bits, p->bits);
    default: return nibble_of_eight(p->codes->data, (matrix * p->columns + column) * per(n, 8) + r / 8, r % 8);
    }
}

static float level_of(const apr_packing *p, unsigned code)
{
    static const float e2m1[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    switch (p->level) {
    case APR_LEVEL_UNSIGNED: return (float)code;
    case APR_LEVEL_SIGNED: return (float)code - (code >> (p->bits - 1) ? (float)(1 << p->bits) : 0.0f);
    case APR_LEVEL_E2M1: return code & 8 ? -e2m1[code & 7] : e2m1[code];
    case APR_LEVEL_E4M3: return apr_e4m3_to_f32((uint8_t)code);
    default: return p->levels[code];
    }
}

/* The bias belongs to the word: what a place has too much goes over into the next. Three bits wrap around each for itself. */
static float gptq_zero(const apr_packing *p, const uint8_t *words, int64_t row)
{
    const int per_word = 32 / p->bits, most = 1 << p->bits;
    unsigned carried = (unsigned)p->zero_bias, sum = 0;

    if (p->bits == 3) return (float)((bits_of(words, 0, 1, row * 3, 3) + carried) % 8);
    for (int64_t i = row / per_word * per_word; i <= row; i++) {
        sum = bits_of(words, 0, 1, i * p->bits, p->bits) + carried;
        carried = (unsigned)p->zero_bias + sum / (unsigned)most;
    }
    return (float)(sum % (unsigned)most);
}

static float zero_of(const apr_packing *p, int64_t row, int64_t group)
{
    const int64_t n = p->matrix_rows, matrix = row / n, r = row % n, wide = apr_packing_groups(p), words = per(n * p->bits, 32);
    const int64_t of_scales = (matrix * apr_packing_scale_rows(p) + r / p->scale_rows) * wide + group;
    const uint8_t *const data = p->zeros != NULL ? p->zeros->data : NULL;

    switch (p->zero_order) {
    case APR_ZEROS_BY_ROW: return (float)(p->zeros->dtype == APR_I8 ? (int8_t)data[of_scales] : data[of_scales]);
    case APR_ZEROS_ALONG_ROWS: return gptq_zero(p, data + 4 * (matrix * wide + group) * words, r);
    case APR_ZEROS_INTERLEAVED: return (float)nibble_of_eight(data, (matrix * wide + group) * per(n, 8) + r / 8, r % 8);
    case APR_ZEROS_DOWN: return (float)bits_of(data, matrix * words * wide + group, wide, r * p->bits, p->bits);
    default: return 0.0f;
    }
}

static float number(const apr_tensor *t, apr_dtype dtype, int64_t i)
{
    const uint8_t *const data = t->data;
    if (dtype == APR_F16) return apr_f16_to_f32(apr_load_le16(data + 2 * i));
    if (dtype == APR_BF16) return apr_bf16_to_f32(apr_load_le16(data + 2 * i));
    if (dtype == APR_F8_E4M3) return apr_e4m3_to_f32(data[i]);
    if (dtype == APR_E8M0) return apr_e8m0_to_f32(data[i]);
    return apr_f32_from_bits(apr_load_le32(data + 4 * i));
}

static float scale_of(const apr_packing *p, int64_t row, int64_t column, int64_t group)
{
    const int64_t high = apr_packing_scale_rows(p), wide = apr_packing_groups(p), r = row % p->matrix_rows / p->scale_rows;
    const int64_t flat = (row * p->columns + column) / p->scale_columns, is_flat = p->order == APR_CODES_HIGH_FIRST;
    const int64_t i = is_flat ? flat : row / p->matrix_rows * high * wide + (p->scales_down ? group * high + r : r * wide + group);
    const apr_nested_scales *const n = p->nested;

    if (n == NULL) return number(p->scales, p->scale_dtype, i);
    const float product = number(n->map, APR_F32, p->scales->data[i]) * number(n->scales, APR_F32, i / n->block);
    return product + n->offset;
}

float packed_value(const apr_packing *p, apr_dtype dtype, int64_t row, int64_t column)
{
    const int64_t matrix = row / p->matrix_rows;
    int64_t group = column / p->scale_columns;
    float common = 1.0f;

    if (p->groups != NULL)
        group = apr_load_le32(p->groups->data + 4 * (column + (apr_tensor_elems(p->groups) > p->columns ? matrix * p->columns : 0)));
    if (p->global_scales != NULL) common = number(p->global_scales, APR_F32, apr_tensor_elems(p->global_scales) > 1 ? matrix : 0);
    const float scale = scale_of(p, row, column, group), factor = p->divides ? scale / common : scale * common;
    const float zero = zero_of(p, row, group) + (p->zero_order == APR_ZEROS_ALONG_ROWS ? 0.0f : (float)p->zero_bias);
    const float value = (level_of(p, code_of(p, row, column)) - zero) * factor;
    if (dtype == APR_F16) return apr_f16_to_f32(apr_f32_to_f16(value));
    return dtype == APR_BF16 ? apr_bf16_to_f32(apr_f32_to_bf16(value)) : value;
}
