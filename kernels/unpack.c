/* unpack.c - where code, scale and zero point are in each layout, one small function each, and the formula. */
#include "kernels/unpack.h"

#include "formats/base/bytes.h"
#include "formats/number/half.h"
#include "kernels/rows.h"

#include <string.h>

enum { AT_ONCE = 512, MOST_LEVELS = 256, WORD_BITS = 32, SIDE_BY_SIDE = 16 };

/* AWQ: the nibble of row 8w + i in its word. */
static const uint8_t awq_nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static uint32_t word_at(const uint8_t *words, int64_t at) { return apr_load_le32(words + 4 * at); }

static int64_t matrix_of(const apr_packing *p, int64_t row) { return row / p->matrix_rows; }

/* The number of words that n codes of b bits fill. */
static int64_t words_of(int64_t n, int b) { return (n * b + WORD_BITS - 1) / WORD_BITS; }

/* Reads code `at` of b bits from a sequence of words that are `apart` words from each other. A code may cross two words; the last one
 * ends within its last word. */
static unsigned bits_of_words(const uint8_t *words, int64_t first, int64_t stride, int64_t at, int b)
{
    const int64_t word = at * b / WORD_BITS;
    const int shift = (int)(at * b % WORD_BITS);
    uint64_t both = word_at(words, first + word * stride);
    if (shift + b > WORD_BITS) both |= (uint64_t)word_at(words, first + (word + 1) * stride) << WORD_BITS;
    return (unsigned)(both >> shift) & ((1U << b) - 1);
}

/* ---- codes ---- */

/* Spreads eight nibbles, lowest first, to eight bytes. */
static void spread_nibbles(uint32_t word, uint8_t codes[8])
{
    uint64_t x = word;
    x = (x | x << 16) & 0x0000ffff0000ffff;
    x = (x | x << 8) & 0x00ff00ff00ff00ff;
    x = (x | x << 4) & 0x0f0f0f0f0f0f0f0f;
    apr_store_le64(codes, x);
}

static void nibbles_by_row(const uint8_t *bytes, int64_t first, int64_t n, uint8_t *codes)
{
    int64_t i = 0;
    for (; i + 8 <= n && first % 2 == 0; i += 8) spread_nibbles(apr_load_le32(bytes + (first + i) / 2), codes + i);
    for (; i < n; i++) codes[i] = (uint8_t)(bytes[(first + i) / 2] >> 4 * ((first + i) % 2) & 15);
}

static void codes_by_row(const apr_packing *p, int64_t row, int64_t first, int64_t n, uint8_t *codes)
{
    const uint8_t *const bytes = p->codes->data + row * (int64_t)(p->codes->n_bytes / (uint64_t)p->rows);
    const unsigned mask = (1U << p->bits) - 1;

    if (p->bits == 8) {
        memcpy(codes, bytes + first, (size_t)n);
        return;
    }
    if (p->bits == 4) {
        nibbles_by_row(bytes, first, n, codes);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (first + i) * p->bits;
        const int shift = (int)(at % 8);
        unsigned both = bytes[at / 8];
        if (shift + p->bits > 8) both |= (unsigned)bytes[at / 8 + 1] << 8;
        codes[i] = (uint8_t)(both >> shift & mask);
    }
}

static void codes_high_first(const apr_packing *p, int64_t row, int64_t first, int64_t n, uint8_t *codes)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = row * p->columns + first + i;
        codes[i] = (uint8_t)(p->codes->data[at / 2] >> (at % 2 == 0 ? 4 : 0) & 15);
    }
}

/* For widths that divide 32: each word is read once for all of its codes. */
static void codes_of_words(const uint8_t *words, int64_t start, int64_t stride, int bits, int64_t first, int64_t n, uint8_t *codes)
{
    const int64_t each = WORD_BITS / bits;
    const unsigned mask = (1U << bits) - 1;

    for (int64_t done = 0; done < n;) {
        const int64_t at = first + done, from = at % each, left = each - from, now = left < n - done ? left : n - done;
        uint32_t word = word_at(words, start + at / each * stride) >> (from * bits);
        if (bits == 4 && now == 8) spread_nibbles(word, codes + done);
        else
            for (int64_t i = 0; i < now; i++, word >>= bits) codes[done + i] = (uint8_t)(word & mask);
        done += now;
    }
}

static void codes_down(const apr_packing *p, int64_t row, int64_t first, int64_t n, uint8_t *codes)
{
    const int64_t words_down = words_of(p->columns, p->bits), in_matrix = row % p->matrix_rows;
    const int64_t start = matrix_of(p, row) * words_down * p->matrix_rows + in_matrix;
    if (WORD_BITS % p->bits == 0) {
        codes_of_words(p->codes->data, start, p->matrix_rows, p->bits, first, n, codes);
        return;
    }
    for (int64_t i = 0; i < n; i++) codes[i] = (uint8_t)bits_of_words(p->codes->data, start, p->matrix_rows, first + i, p->bits);
}

static void codes_interleaved(const apr_packing *p, int64_t row, int64_t first, int64_t n, uint8_t *codes)
{
    const int64_t wide = p->matrix_rows / 8, in_matrix = row % p->matrix_rows, start = matrix_of(p, row) * p->columns;
    const int shift = 4 * awq_nibble[in_matrix % 8];
    for (int64_t i = 0; i < n; i++) codes[i] = (uint8_t)(word_at(p->codes->data, (start + first + i) * wide + in_matrix / 8) >> shift & 15);
}

typedef void (*codes_fn)(const apr_packing *p, int64_t row, int64_t first, int64_t n, uint8_t *codes);

static const codes_fn readers[APR_CODES_ORDER_COUNT] = {[APR_CODES_BY_ROW] = codes_by_row,
                                                        [APR_CODES_HIGH_FIRST] = codes_high_first,
                                                        [APR_CODES_DOWN] = codes_down,
                                                        [APR_CODES_INTERLEAVED] = codes_interleaved};

void apr_unpack_codes(const apr_packing *p, int64_t row, int64_t first, int64_t n, uint8_t *codes)
{
    readers[p->order](p, row, first, n, codes);
}

/* ---- levels ---- */

static float unsigned_level(const apr_packing *p, int code) { return (void)p, (float)code; }
static float signed_level(const apr_packing *p, int code) { return (float)(code < 1 << (p->bits - 1) ? code : code - (1 << p->bits)); }
static float e4m3_level(const apr_packing *p, int code) { return (void)p, apr_e4m3_to_f32((uint8_t)code); }
static float table_level(const apr_packing *p, int code) { return p->levels[code]; }

static float e2m1_level(const apr_packing *p, int code)
{
    static const float magnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    return (void)p, code & 8 ? -magnitudes[code & 7] : magnitudes[code & 7];
}

void apr_unpack_levels(const apr_packing *p, float levels[MOST_LEVELS])
{
    typedef float (*level_fn)(const apr_packing *p, int code);
    static const level_fn kinds[] = {[APR_LEVEL_UNSIGNED] = unsigned_level,
                                     [APR_LEVEL_SIGNED] = signed_level,
                                     [APR_LEVEL_E2M1] = e2m1_level,
                                     [APR_LEVEL_E4M3] = e4m3_level,
                                     [APR_LEVEL_TABLE] = table_level};
    for (int i = 0; i < 1 << p->bits; i++) levels[i] = kinds[p->level](p, i);
}

int64_t apr_unpack_group(const apr_packing *p, int64_t row, int64_t column)
{
    if (p->groups == NULL) return column / p->scale_columns;
    const int64_t matrix = apr_tensor_elems(p->groups) > p->columns ? matrix_of(p, row) : 0;
    return (int32_t)word_at(p->groups->data, matrix * p->columns + column);
}

/* ---- factors ---- */

static float number_at(const apr_tensor *numbers, apr_dtype dtype, int64_t at)
{
    float value;
    if (dtype == APR_F8_E4M3) return apr_e4m3_to_f32(numbers->data[at]); /* the fast path: NVFP4 has one for each 16 codes */
    apr_ref_codecs[dtype].decode(numbers->data + at * apr_dtypes[dtype].bytes_per_block, &value, 1);
    return value;
}

/* A single scale may be for the whole tensor or for a matrix. */
int64_t apr_unpack_scale_index(const apr_packing *p, int64_t row, int64_t group)
{
    const int64_t groups = apr_packing_groups(p), in_matrix = row % p->matrix_rows, matrix = matrix_of(p, row);
    if (p->scales_down) return (matrix * groups + group) * p->matrix_rows + in_matrix;
    return (matrix * apr_packing_scale_rows(p) + in_matrix / p->scale_rows) * groups + group;
}

float apr_unpack_scale(const apr_packing *p, int64_t at)
{
    const apr_nested_scales *const nested = p->nested;
    if (nested == NULL) return number_at(p->scales, p->scale_dtype, at);
    const float step = number_at(nested->map, APR_F32, p->scales->data[at]);
    return step * number_at(nested->scales, APR_F32, at / nested->block) + nested->offset;
}

float apr_unpack_global_scale(const apr_packing *p, int64_t row)
{
    if (p->global_scales == NULL) return 1.0f;
    return number_at(p->global_scales, APR_F32, apr_tensor_elems(p->global_scales) > 1 ? matrix_of(p, row) : 0);
}

static float factor_at(const apr_packing *p, int64_t row, int64_t at)
{
    const float scale = apr_unpack_scale(p, at);
    if (p->global_scales == NULL) return scale;
    return p->divides ? scale / apr_unpack_global_scale(p, row) : scale * apr_unpack_global_scale(p, row);
}

float apr_unpack_factor(const apr_packing *p, int64_t row, int64_t group)
{
    return factor_at(p, row, apr_unpack_scale_index(p, row, group));
}

/* ---- zero points ---- */

static int zero_by_row(const apr_packing *p, int64_t row, int64_t group)
{
    const uint8_t code = p->zeros->data[apr_unpack_scale_index(p, row, group)];
    return p->zeros->dtype == APR_I8 ? (int8_t)code : code;
}

/* Includes the bias, which is 1 in GPTQ. GPTQModel subtracts 0x11111111 from a word of zero points, so a zero point of 0 borrows from
 * the next; adding it back restores all. Codes of 3 bits, which cross words, wrap around one by one. */
static int zero_along_rows(const apr_packing *p, int64_t row, int64_t group)
{
    const int64_t words = words_of(p->matrix_rows, p->bits), line = matrix_of(p, row) * apr_packing_groups(p) + group;
    const int64_t in_matrix = row % p->matrix_rows, at = in_matrix * p->bits;
    const uint32_t mask = (1U << p->bits) - 1, bias = (uint32_t)p->zero_bias;

    if (WORD_BITS % p->bits != 0) return (int)((bits_of_words(p->zeros->data, line * words, 1, in_matrix, p->bits) + bias) & mask);
    return (int)((word_at(p->zeros->data, line * words + at / WORD_BITS) + bias * (UINT32_MAX / mask)) >> at % WORD_BITS & mask);
}

static int zero_interleaved(const apr_packing *p, int64_t row, int64_t group)
{
    const int64_t in_matrix = row % p->matrix_rows, line = matrix_of(p, row) * apr_packing_groups(p) + group;
    return (int)(word_at(p->zeros->data, line * (p->matrix_rows / 8) + in_matrix / 8) >> 4 * awq_nibble[in_matrix % 8] & 15);
}

static int zero_down(const apr_packing *p, int64_t row, int64_t group)
{
    const int64_t groups = apr_packing_groups(p), words = words_of(p->matrix_rows, p->bits);
    return (int)bits_of_words(p->zeros->data, matrix_of(p, row) * words * groups + group, groups, row % p->matrix_rows, p->bits);
}

int apr_unpack_zero(const apr_packing *p, int64_t row, int64_t group)
{
    typedef int (*zero_fn)(const apr_packing *p, int64_t row, int64_t group);
    static const zero_fn zeros[] = {[APR_ZEROS_BY_ROW] = zero_by_row,
                                    [APR_ZEROS_ALONG_ROWS] = zero_along_rows,
                                    [APR_ZEROS_INTERLEAVED] = zero_interleaved,
                                    [APR_ZEROS_DOWN] = zero_down};
    if (p->zero_order == APR_ZEROS_NONE) return p->zero_bias;
    return zeros[p->zero_order](p, row, group) + (p->zero_order != APR_ZEROS_ALONG_ROWS ? p->zero_bias : 0);
}

/* ---- the formula ---- */

/* The number of adjacent columns of one group, from `column` on. */
static int64_t run_length(const apr_packing *p, int64_t column, int64_t most)
{
    const int64_t left = p->groups != NULL ? 1 : p->scale_columns - column % p->scale_columns;
    return left < most ? left : most;
}

static int64_t flat_run(const apr_packing *p, int64_t at, int64_t most)
{
    const int64_t left = p->scale_columns - at % p->scale_columns;
    return left < most ? left : most;
}

static void multiply_codes(const apr_packing *p, const float *levels, int64_t row, int64_t first, int64_t n, const uint8_t *codes,
                           float *dst)
{
    const int64_t flat = row * p->columns + first;
    const bool is_flat = apr_packing_is_flat(p);
    for (int64_t i = 0, run; i < n; i += run) {
        const int64_t group = is_flat ? 0 : apr_unpack_group(p, row, first + i);
        const float factor = is_flat ? factor_at(p, row, (flat + i) / p->scale_columns) : apr_unpack_factor(p, row, group);
        const float zero = is_flat ? 0.0f : (float)apr_unpack_zero(p, row, group);
        run = is_flat ? flat_run(p, flat + i, n - i) : run_length(p, first + i, n - i);
        for (int64_t j = 0; j < run; j++) dst[i + j] = (levels[codes[i + j]] - zero) * factor;
    }
}

void apr_unpack_products(const apr_packing *p, int64_t row, int64_t first, int64_t n, float *dst)
{
    float levels[MOST_LEVELS];
    uint8_t codes[AT_ONCE];

    apr_unpack_levels(p, levels);
    for (int64_t done = 0, now; done < n; done += now) {
        now = n - done < AT_ONCE ? n - done : AT_ONCE;
        apr_unpack_codes(p, row, first + done, now, codes);
        multiply_codes(p, levels, row, first + done, now, codes, dst + done);
    }
}

/* Rounds to FP16, ties to even: drops 13 bits of the mantissa, if the result neither overflows nor is subnormal. Works on 16 values, so
 * that compilers vectorize it. */
static void round_to_f16(float x[SIDE_BY_SIDE])
{
    uint32_t u[SIDE_BY_SIDE], outside = 0;

    memcpy(u, x, sizeof u);
    for (int i = 0; i < SIDE_BY_SIDE; i++) {
        const uint32_t magnitude = u[i] & 0x7fffffff;
        outside |= (uint32_t)(magnitude - 0x38800000u >= 0x477ff000u - 0x38800000u) & (uint32_t)(magnitude != 0);
    }
    for (int i = 0; i < SIDE_BY_SIDE; i++) u[i] = (u[i] + 0xfff + (u[i] >> 13 & 1)) & ~0x1fffU;
    if (outside == 0) memcpy(x, u, sizeof u);
    for (int i = 0; i < SIDE_BY_SIDE && outside != 0; i++) x[i] = apr_f16_to_f32(apr_f32_to_f16(x[i]));
}

static void round_to_bf16(float x[SIDE_BY_SIDE])
{
    uint32_t u[SIDE_BY_SIDE], outside = 0;

    memcpy(u, x, sizeof u);
    for (int i = 0; i < SIDE_BY_SIDE; i++) outside |= (u[i] & 0x7f800000) == 0x7f800000;
    for (int i = 0; i < SIDE_BY_SIDE; i++) u[i] = (u[i] + 0x7fff + (u[i] >> 16 & 1)) & ~0xffffU;
    if (outside == 0) memcpy(x, u, sizeof u);
    for (int i = 0; i < SIDE_BY_SIDE && outside != 0; i++) x[i] = apr_bf16_to_f32(apr_f32_to_bf16(x[i]));
}

static void round_all(void (*round)(float x[SIDE_BY_SIDE]), int64_t n, float *x)
{
    float last[SIDE_BY_SIDE] = {0};
    const int64_t whole = n - n % SIDE_BY_SIDE;

    for (int64_t i = 0; i < whole; i += SIDE_BY_SIDE) round(x + i);
    if (whole == n) return;
    memcpy(last, x + whole, (size_t)(n - whole) * sizeof *x);
    round(last);
    memcpy(x + whole, last, (size_t)(n - whole) * sizeof *x);
}

void apr_unpack_values(const apr_packing *p, apr_dtype type, int64_t row, int64_t first, int64_t n, float *dst)
{
    apr_unpack_products(p, row, first, n, dst);
    if (type == APR_F16) round_all(round_to_f16, n, dst);
    if (type == APR_BF16) round_all(round_to_bf16, n, dst);
}
