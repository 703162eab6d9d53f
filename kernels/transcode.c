/* transcode.c - which numbers each block type can hold, and how its blocks are built from codes. */
#include "kernels/transcode.h"

#include "formats/number/blocks.h"
#include "formats/number/half.h"
#include "formats/tensor/composed.h"
#include "formats/tensor/library_type.h"
#include "kernels/rows.h"
#include "kernels/unpack.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 32, NV_BLOCK = 64, NV_GROUP = 16, AT_ONCE = 512 };

/* --- where a row is stored --- */

typedef struct place {
    const apr_packing *packing;
    int64_t row;
} place;

/* The packing and stored row of a logical row; of a stack, those of the matrix that has the row. packing NULL: the tensor is neither. */
static place place_of(const apr_tensor *t, int64_t row)
{
    if (apr_tensor_is_packed(t)) return (place){t->packing, apr_packed_row(t, row)};
    const apr_composed *const composed = t->composed;
    if (apr_tensor_source(t) != APR_SOURCE_COMPOSED || composed->chain.n_steps != 1 || composed->chain.steps[0].kind != APR_STEP_STACK)
        return (place){NULL, 0};
    const int64_t each = apr_tensor_rows(t) / (int64_t)composed->n_parts;
    return place_of(composed->parts[row / each], row % each);
}

/* The i-th of the matrices that it is, or is stacked from; NULL: it has no more. */
static const apr_tensor *matrix_at(const apr_tensor *t, size_t i)
{
    if (apr_tensor_is_packed(t)) return i == 0 ? t : NULL;
    return apr_tensor_source_at(t, i);
}

/* --- what fits --- */

static bool is_f16(float x)
{
    const uint16_t half = apr_f32_to_f16(x);
    return isfinite(x) && (half & 0x7c00) != 0x7c00 && apr_f16_to_f32(half) == x;
}

static bool is_whole_number(const apr_packing *p) { return p->level == APR_LEVEL_UNSIGNED || p->level == APR_LEVEL_SIGNED; }
static int lowest(const apr_packing *p) { return p->level == APR_LEVEL_SIGNED ? -(1 << (p->bits - 1)) : 0; }
static int highest(const apr_packing *p) { return (1 << (p->bits - (p->level == APR_LEVEL_SIGNED))) - 1; }

/* Do the columns of each block of `elems` share their scale? */
static bool has_whole_blocks(const apr_packing *p, int elems)
{
    const bool shared = p->scale_columns % elems == 0 || p->scale_columns >= p->columns;
    return p->columns % elems == 0 && shared && p->groups == NULL && p->order != APR_CODES_HIGH_FIRST;
}

typedef struct whole_range {
    int low, high;
    bool has_minimum; /* codes count from 0, and an FP16 minimum is added */
} whole_range;

/* All scales are FP16 numbers, and all possible codes are in the range. */
static bool fit_whole(const apr_tensor *t, whole_range range)
{
    const apr_packing *const p = t->packing;
    const int64_t groups = apr_packing_groups(p), n_rows = apr_tensor_rows(t);

    if (!is_whole_number(p) || !has_whole_blocks(p, BLOCK)) return false;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            const float factor = apr_unpack_factor(p, p->first_row + r, g);
            const int zero = apr_unpack_zero(p, p->first_row + r, g), taken = range.has_minimum ? 0 : zero;
            if (!is_f16(factor) || lowest(p) - taken < range.low || highest(p) - taken > range.high) return false;
            if (range.has_minimum && !is_f16((float)zero * factor)) return false;
        }
    return true;
}

static bool fit_q4_0(const apr_tensor *t) { return fit_whole(t, (whole_range){-8, 7, false}); }
static bool fit_q4_1(const apr_tensor *t) { return fit_whole(t, (whole_range){0, 15, true}); }
static bool fit_q5_0(const apr_tensor *t) { return fit_whole(t, (whole_range){-16, 15, false}); }
static bool fit_q8_0(const apr_tensor *t) { return fit_whole(t, (whole_range){-128, 127, false}); }

static bool fit_mxfp4(const apr_tensor *t)
{
    const apr_packing *const p = t->packing;
    return p->level == APR_LEVEL_E2M1 && p->bits == 4 && p->scale_dtype == APR_E8M0 && p->global_scales == NULL && p->zero_bias == 0 &&
           p->zero_order == APR_ZEROS_NONE && p->scale_columns == BLOCK && has_whole_blocks(p, BLOCK);
}

static bool fit_nvfp4(const apr_tensor *t)
{
    const apr_packing *const p = t->packing;
    const int64_t groups = apr_packing_groups(p), n_rows = apr_tensor_rows(t);

    if (p->level != APR_LEVEL_E2M1 || p->bits != 4 || p->scale_dtype != APR_F8_E4M3 || p->scales_down || p->zero_bias != 0) return false;
    if (p->zero_order != APR_ZEROS_NONE || p->scale_columns != NV_GROUP || p->columns % NV_BLOCK != 0 || p->groups != NULL) return false;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t g = 0; g < groups; g++)
            if (p->scales->data[apr_unpack_scale_index(p, p->first_row + r, g)] >= 0x7f) return false;
    return true;
}

/* --- blocks --- */

/* level - zero of columns [first, first + n). */
static void numbers(const apr_packing *p, int64_t row, int64_t first, int n, int *out)
{
    uint8_t codes[BLOCK];
    const int zero = apr_unpack_zero(p, row, first / p->scale_columns);
    apr_unpack_codes(p, row, first, n, codes);
    for (int i = 0; i < n; i++)
        out[i] = (p->level == APR_LEVEL_SIGNED && codes[i] > highest(p) ? codes[i] - (1 << p->bits) : codes[i]) - zero;
}

static uint16_t half_scale(const apr_packing *p, int64_t row, int64_t column)
{
    return apr_f32_to_f16(apr_unpack_factor(p, row, column / p->scale_columns));
}

static void put_q4_0(const apr_packing *p, int64_t row, int64_t column, void *dst)
{
    apr_block_Q4_0 *const block = dst;
    int x[BLOCK];
    numbers(p, row, column, BLOCK, x);
    block->d = half_scale(p, row, column);
    for (int j = 0; j < 16; j++) block->qs[j] = (uint8_t)((x[j] + 8) | (x[j + 16] + 8) << 4);
}

static void put_q4_1(const apr_packing *p, int64_t row, int64_t column, void *dst)
{
    apr_block_Q4_1 *const block = dst;
    const int64_t group = column / p->scale_columns;
    uint8_t codes[BLOCK];
    apr_unpack_codes(p, row, column, BLOCK, codes);
    block->d = half_scale(p, row, column);
    block->m = apr_f32_to_f16(-(float)apr_unpack_zero(p, row, group) * apr_unpack_factor(p, row, group));
    for (int j = 0; j < 16; j++) block->qs[j] = (uint8_t)(codes[j] | codes[j + 16] << 4);
}

static void put_q5_0(const apr_packing *p, int64_t row, int64_t column, void *dst)
{
    apr_block_Q5_0 *const block = dst;
    int x[BLOCK];
    uint32_t fifth = 0;
    numbers(p, row, column, BLOCK, x);
    block->d = half_scale(p, row, column);
    for (int j = 0; j < BLOCK; j++) fifth |= (uint32_t)((x[j] + 16) >> 4 & 1) << j;
    for (int j = 0; j < 16; j++) block->qs[j] = (uint8_t)(((x[j] + 16) & 15) | ((x[j + 16] + 16) & 15) << 4);
    block->qh = fifth;
}

static void put_q8_0(const apr_packing *p, int64_t row, int64_t column, void *dst)
{
    apr_block_Q8_0 *const block = dst;
    int x[BLOCK];
    numbers(p, row, column, BLOCK, x);
    block->d = half_scale(p, row, column);
    for (int j = 0; j < BLOCK; j++) block->qs[j] = (int8_t)x[j];
}

static void put_mxfp4(const apr_packing *p, int64_t row, int64_t column, void *dst)
{
    apr_block_MXFP4 *const block = dst;
    uint8_t codes[BLOCK];
    apr_unpack_codes(p, row, column, BLOCK, codes);
    block->e = p->scales->data[apr_unpack_scale_index(p, row, column / BLOCK)];
    for (int j = 0; j < 16; j++) block->qs[j] = (uint8_t)(codes[j] | codes[j + 16] << 4);
}

static void put_nvfp4(const apr_packing *p, int64_t row, int64_t column, void *dst)
{
    apr_block_NVFP4 *const block = dst;
    uint8_t codes[NV_BLOCK];
    apr_unpack_codes(p, row, column, NV_BLOCK, codes);
    for (int sub = 0; sub < NV_BLOCK / NV_GROUP; sub++) {
        const uint8_t *const c = codes + NV_GROUP * sub;
        block->d[sub] = p->scales->data[apr_unpack_scale_index(p, row, column / NV_GROUP + sub)];
        for (int j = 0; j < 8; j++) block->qs[8 * sub + j] = (uint8_t)(c[j] | c[j + 8] << 4);
    }
}

/* In the order of preference, the smallest first. */
static const struct {
    apr_dtype to;
    bool (*fits)(const apr_tensor *tensor);
    void (*put)(const apr_packing *packing, int64_t row, int64_t column, void *block);
} targets[] = {
    {APR_MXFP4, fit_mxfp4, put_mxfp4}, {APR_NVFP4, fit_nvfp4, put_nvfp4}, {APR_Q4_0, fit_q4_0, put_q4_0},
    {APR_Q4_1, fit_q4_1, put_q4_1},    {APR_Q5_0, fit_q5_0, put_q5_0},    {APR_Q8_0, fit_q8_0, put_q8_0},
};
enum { N_TARGETS = sizeof targets / sizeof *targets };

apr_dtype apr_transcode_type(const apr_tensor *tensor, bool (*holds)(apr_dtype dtype))
{
    if (apr_tensor_elems(tensor) == 0 || place_of(tensor, 0).packing == NULL) return APR_DTYPE_COUNT;
    for (size_t i = 0; i < N_TARGETS; i++) {
        bool fits = holds == NULL || holds(targets[i].to);
        const apr_tensor *matrix;
        for (size_t j = 0; fits && (matrix = matrix_at(tensor, j)) != NULL; j++)
            fits = apr_tensor_is_packed(matrix) && targets[i].fits(matrix);
        if (fits) return targets[i].to;
    }
    return APR_DTYPE_COUNT;
}

void apr_transcode_row(const apr_tensor *tensor, apr_dtype to, int64_t row, uint8_t *dst)
{
    const place at = place_of(tensor, row);
    const int elems = apr_dtypes[to].elems_per_block, bytes = apr_dtypes[to].bytes_per_block;
    size_t i = 0;

    while (i + 1 < N_TARGETS && targets[i].to != to) i++;
    for (int64_t column = 0; column < at.packing->columns; column += elems, dst += bytes) targets[i].put(at.packing, at.row, column, dst);
}

/* --- global scales --- */

bool apr_transcode_has_global_scales(const apr_tensor *tensor, apr_dtype to)
{
    return to == APR_NVFP4 && place_of(tensor, 0).packing->global_scales != NULL;
}

int64_t apr_transcode_matrices(const apr_tensor *tensor) { return apr_tensor_rows(tensor) / apr_tensor_matrix_rows(tensor); }

float apr_transcode_global_scale(const apr_tensor *tensor, int64_t matrix)
{
    const place at = place_of(tensor, matrix * apr_tensor_matrix_rows(tensor));
    const float global_scale = apr_unpack_global_scale(at.packing, at.row);
    return at.packing->divides ? 1.0f / global_scale : global_scale;
}

/* --- comparison --- */

/* The exact products of codes, scales and zero points: they have few bits, so a double holds them. */
static void exact_values(place at, const float *levels, int64_t first, int64_t n, double *out)
{
    const apr_packing *const p = at.packing;
    apr_packing plain = *p;
    const double global_scale = (double)apr_unpack_global_scale(p, at.row);
    uint8_t codes[AT_ONCE];

    plain.global_scales = NULL;
    apr_unpack_codes(p, at.row, first, n, codes);
    for (int64_t i = 0; i < n; i++) {
        const int64_t group = (first + i) / p->scale_columns;
        const double scaled =
            ((double)levels[codes[i]] - apr_unpack_zero(p, at.row, group)) * (double)apr_unpack_factor(&plain, at.row, group);
        out[i] = p->divides ? scaled / global_scale : scaled * global_scale;
    }
}

static void compare(apr_dtype library, double wanted, double got, apr_transcode_cost *cost)
{
    const float product = (float)wanted, rounded = apr_round_as(library, product);

    cost->n_rounded += rounded != product;
    cost->n_off += apr_round_as(library, (float)got) != rounded;
    if (got == wanted) return;
    const double off = fabs(got - wanted) / fmax(fabs(wanted), 0x1p-1022);
    if (!(off <= cost->worst)) cost->worst = off;
    cost->n_different++;
}

void apr_transcode_compare(const apr_tensor *tensor, apr_dtype library, apr_dtype to, int64_t row, const uint8_t *blocks,
                           apr_transcode_cost *cost)
{
    const place at = place_of(tensor, row);
    const int64_t columns = at.packing->columns, matrix = row / apr_tensor_matrix_rows(tensor);
    const double global_scale = apr_transcode_has_global_scales(tensor, to) ? (double)apr_transcode_global_scale(tensor, matrix) : 1.0;
    float levels[256], values[AT_ONCE];
    double wanted[AT_ONCE];

    apr_unpack_levels(at.packing, levels);
    for (int64_t first = 0, now; first < columns; first += now) {
        now = columns - first < AT_ONCE ? columns - first : AT_ONCE;
        exact_values(at, levels, first, now, wanted);
        apr_ref_codecs[to].decode(blocks + apr_row_bytes(to, first), values, now);
        for (int64_t i = 0; i < now; i++) compare(library, wanted[i], (double)values[i] * global_scale, cost);
    }
}
