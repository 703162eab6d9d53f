/* grid_points.c - the types with codebooks in the form of grid.h: their bytes, and what may change in them. */
#include "kernels/ref/iq_types.h"
#include "kernels/rows.h"
#include "quant/feedback/grid.h"

#include <stddef.h>

enum { F16_ONE = 0x3c00, GROUPS = IQ_ELEMS / APR_GRID_GROUP };

/* ---- scales: each function leaves d = 1 in the block ---- */

static void read_nibbles(const uint8_t *bytes, int n, apr_grid_block *to)
{
    for (int sub = 0; sub < n; sub++) to->scale[sub] = bytes[sub / 2] >> sub % 2 * 4 & 0x0f;
}

static void scales_of_iq2_xxs(apr_block_IQ2_XXS *b, apr_grid_block *to)
{
    to->d = b->d, b->d = F16_ONE;
    for (int sub = 0; sub < 8; sub++) to->scale[sub] = (int16_t)(b->qs[sub][1] >> 28);
}

static void scales_of_iq2_xs(apr_block_IQ2_XS *b, apr_grid_block *to)
{
    to->d = b->d, b->d = F16_ONE;
    read_nibbles(b->scales, 16, to);
}

static void scales_of_iq2_s(apr_block_IQ2_S *b, apr_grid_block *to)
{
    to->d = b->d, b->d = F16_ONE;
    read_nibbles(b->scales, 16, to);
}

static void scales_of_iq3_xxs(apr_block_IQ3_XXS *b, apr_grid_block *to)
{
    to->d = b->d, b->d = F16_ONE;
    for (int sub = 0; sub < 8; sub++) to->scale[sub] = (int16_t)(b->scales_signs[sub] >> 28);
}

static void scales_of_iq3_s(apr_block_IQ3_S *b, apr_grid_block *to)
{
    to->d = b->d, b->d = F16_ONE;
    read_nibbles(b->scales, 8, to);
}

static void scales_of_iq1_s(apr_block_IQ1_S *b, apr_grid_block *to)
{
    to->d = b->d, b->d = F16_ONE;
    for (int sub = 0; sub < 8; sub++) {
        to->scale[sub] = b->qh[sub] >> 12 & 7;
        to->min[sub] = b->qh[sub] >> 15;
    }
}

/* d is in the upper nibbles of the words of scales, four of 3 bits each. */
static void scales_of_iq1_m(apr_block_IQ1_M *b, apr_grid_block *to)
{
    unsigned d = 0;
    for (int w = 0; w < 4; w++) {
        d |= (unsigned)(b->scales[w] >> 12) << 4 * w;
        for (int i = 0; i < 4; i++) to->scale[4 * w + i] = (int16_t)(b->scales[w] >> 3 * i & 7);
        b->scales[w] = (uint16_t)((b->scales[w] & 0x0fff) | (F16_ONE >> 4 * w & 0x0f) << 12);
    }
    to->d = (uint16_t)d;
}

/* ---- codes ---- */

/* From a block with d = 1, whose values are codes times a few bits. */
static void read_codes(apr_dtype dtype, const apr_grid *grid, const void *block, apr_grid_block *to)
{
    float value[IQ_ELEMS];

    apr_ref_codecs[dtype].decode(block, value, IQ_ELEMS);
    for (int i = 0; i < IQ_ELEMS; i++) to->code[i] = (int8_t)(value[i] / apr_grid_multiple(grid, to->scale[i / grid->sub_elems]));
}

/* Finds the level that a code is, without its sign; *shift: of which set of levels. */
static unsigned level_of(const apr_points *points, int code, int *shift)
{
    const iq_type *const t = points->type;
    const bool has_signs = t->signs == IQ_FREE_SIGNS || t->signs == IQ_EVEN_SIGNS;
    const float level = (float)(has_signs && code < 0 ? -code : code) * points->unit;

    for (*shift = 0; *shift < 2; ++*shift)
        for (int l = 0; l < t->n_levels; l++)
            if (t->level[*shift][l] == level) return (unsigned)l;
    return 0;
}

static iq_group group_of(const apr_points *points, const int8_t *code)
{
    const iq_type *const t = points->type;
    const bool has_signs = t->signs == IQ_FREE_SIGNS || t->signs == IQ_EVEN_SIGNS;
    const int width = t->n_values == 8 ? 2 : 4;
    iq_group group = {{0, 0}, 0};

    for (int i = 0; i < APR_GRID_GROUP; i++) {
        int shift;
        const unsigned level = level_of(points, code[i], &shift);
        group.word[i / t->n_values] = (uint16_t)(group.word[i / t->n_values] | level << i % t->n_values * width);
        group.bits = (uint8_t)(has_signs ? group.bits | (code[i] < 0) << i : shift);
    }
    return group;
}

static iq_block block_of(const apr_grid *grid, const apr_grid_block *from)
{
    iq_block block = {.d = from->d};
    for (int sub = 0; sub < IQ_ELEMS / grid->sub_elems; sub++) block.stored[sub] = (uint8_t)from->scale[sub];
    for (int g = 0; g < GROUPS; g++) block.group[g] = group_of(grid->points, from->code + APR_GRID_GROUP * g);
    return block;
}

/* ---- the table ---- */

static const apr_grid grids[APR_DTYPE_COUNT];

#define BOTH(ID, id, the_book)                                     \
    static void unpack_##id(const void *block, apr_grid_block *to) \
    {                                                              \
        apr_block_##ID copy;                                       \
        memcpy(&copy, block, sizeof copy);                         \
        *to = (apr_grid_block){0};                                 \
        scales_of_##id(&copy, to);                                 \
        read_codes(APR_##ID, &grids[APR_##ID], &copy, to);         \
    }                                                              \
    static void pack_##id(const apr_grid_block *from, void *block) \
    {                                                              \
        iq_block points = block_of(&grids[APR_##ID], from);        \
        iq_number_points(&id, the_book(), &points);                \
        iq_pack_##id(&points, block);                              \
    }

BOTH(IQ2_XXS, iq2_xxs, apr_iq2_xxs_book)
BOTH(IQ2_XS, iq2_xs, apr_iq2_xs_book)
BOTH(IQ2_S, iq2_s, apr_iq2_s_book)
BOTH(IQ3_XXS, iq3_xxs, apr_iq3_xxs_book)
BOTH(IQ3_S, iq3_s, apr_iq3_s_book)
BOTH(IQ1_S, iq1_s, apr_iq1_book)
BOTH(IQ1_M, iq1_m, apr_iq1_book)

/* The scales are (0.5 + stored) / 4 or / 2, or 1 + 2 * stored; see iq_types.h, whose fields cannot be used in initialisers. */
#define POINTS(id, the_book, a, b, u) \
    static const apr_points id##_points = {.type = &id, .book = the_book, .first = a, .gap = b, .unit = u};

POINTS(iq2_xxs, apr_iq2_xxs_book, 0.125f, 0.25f, 1.0f)
POINTS(iq2_xs, apr_iq2_xs_book, 0.125f, 0.25f, 1.0f)
POINTS(iq2_s, apr_iq2_s_book, 0.125f, 0.25f, 1.0f)
POINTS(iq3_xxs, apr_iq3_xxs_book, 0.25f, 0.5f, 1.0f)
POINTS(iq3_s, apr_iq3_s_book, 1.0f, 2.0f, 1.0f)
POINTS(iq1_s, apr_iq1_book, 0.125f, 0.25f, 0.125f)
POINTS(iq1_m, apr_iq1_book, 0.125f, 0.25f, 0.125f)

#define GRID(id, n, most, reach)                                                                                                         \
    .elems = IQ_ELEMS, .sub_elems = (n), .steps = APR_GRID_POINTS, .scale_high = (most), .scale_reach = (reach), .points = &id##_points, \
    .unpack = unpack_##id, .pack = pack_##id

static const apr_grid grids[APR_DTYPE_COUNT] = {
    [APR_IQ2_XXS] = {GRID(iq2_xxs, 32, 15, 2)}, [APR_IQ2_XS] = {GRID(iq2_xs, 16, 15, 2)},
    [APR_IQ2_S] = {GRID(iq2_s, 16, 15, 2)},     [APR_IQ3_XXS] = {GRID(iq3_xxs, 32, 15, 2)},
    [APR_IQ3_S] = {GRID(iq3_s, 32, 15, 2)},     [APR_IQ1_S] = {GRID(iq1_s, 32, 7, 1), .min_high = 1, .min_reach = 1},
    [APR_IQ1_M] = {GRID(iq1_m, 16, 7, 1)},
};

const apr_grid *apr_points_grid_of(apr_dtype dtype) { return grids[dtype].elems > 0 ? &grids[dtype] : NULL; }
