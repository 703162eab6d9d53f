/* grid_simple.c - blocks of 32 codes with one scale, or with a scale and a minimum; bytes as in formats/number/blocks.h. */
#include "formats/number/blocks.h"
#include "quant/feedback/grid.h"

#include <string.h>

enum { ELEMS = 32 };

/* Byte j holds code j in its low nibble and code j + 16 in its high one; bit j of `high` is the fifth bit of code j. */
static void read_codes(const uint8_t *qs, uint32_t high, int middle, int8_t *code)
{
    for (int j = 0; j < ELEMS; j++) {
        const int nibble = j < 16 ? qs[j] & 0x0f : qs[j - 16] >> 4;
        code[j] = (int8_t)((nibble | (int)(high >> j & 1) << 4) - middle);
    }
}

static uint32_t write_codes(const int8_t *code, int middle, uint8_t *qs)
{
    uint32_t high = 0;
    memset(qs, 0, 16);
    for (int j = 0; j < ELEMS; j++) {
        const unsigned c = (unsigned)(code[j] + middle);
        qs[j % 16] |= (uint8_t)((c & 0x0f) << j / 16 * 4);
        high |= (uint32_t)(c >> 4) << j;
    }
    return high;
}

void apr_grid_unpack_q4_0(const void *block, apr_grid_block *to)
{
    const apr_block_Q4_0 *const b = block;
    *to = (apr_grid_block){.d = b->d, .scale = {1}};
    read_codes(b->qs, 0, 8, to->code);
}

void apr_grid_pack_q4_0(const apr_grid_block *from, void *block)
{
    apr_block_Q4_0 *const b = block;
    b->d = from->d;
    write_codes(from->code, 8, b->qs);
}

void apr_grid_unpack_q4_1(const void *block, apr_grid_block *to)
{
    const apr_block_Q4_1 *const b = block;
    *to = (apr_grid_block){.d = b->d, .dmin = b->m, .scale = {1}, .min = {-1}};
    read_codes(b->qs, 0, 0, to->code);
}

void apr_grid_pack_q4_1(const apr_grid_block *from, void *block)
{
    apr_block_Q4_1 *const b = block;
    b->d = from->d;
    b->m = from->dmin;
    write_codes(from->code, 0, b->qs);
}

void apr_grid_unpack_q5_0(const void *block, apr_grid_block *to)
{
    const apr_block_Q5_0 *const b = block;
    *to = (apr_grid_block){.d = b->d, .scale = {1}};
    read_codes(b->qs, b->qh, 16, to->code);
}

void apr_grid_pack_q5_0(const apr_grid_block *from, void *block)
{
    apr_block_Q5_0 *const b = block;
    b->d = from->d;
    b->qh = write_codes(from->code, 16, b->qs);
}

void apr_grid_unpack_q5_1(const void *block, apr_grid_block *to)
{
    const apr_block_Q5_1 *const b = block;
    *to = (apr_grid_block){.d = b->d, .dmin = b->m, .scale = {1}, .min = {-1}};
    read_codes(b->qs, b->qh, 0, to->code);
}

void apr_grid_pack_q5_1(const apr_grid_block *from, void *block)
{
    apr_block_Q5_1 *const b = block;
    b->d = from->d;
    b->m = from->dmin;
    b->qh = write_codes(from->code, 0, b->qs);
}

void apr_grid_unpack_q8_0(const void *block, apr_grid_block *to)
{
    const apr_block_Q8_0 *const b = block;
    *to = (apr_grid_block){.d = b->d, .scale = {1}};
    memcpy(to->code, b->qs, ELEMS);
}

void apr_grid_pack_q8_0(const apr_grid_block *from, void *block)
{
    apr_block_Q8_0 *const b = block;
    b->d = from->d;
    memcpy(b->qs, from->code, ELEMS);
}

/* ---- MXFP4: codes are the doubled values; -0 reads as 0 and is never written ---- */

static const int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void apr_grid_unpack_mxfp4(const void *block, apr_grid_block *to)
{
    const apr_block_MXFP4 *const b = block;
    *to = (apr_grid_block){.scale = {b->e}};
    for (int j = 0; j < ELEMS; j++) to->code[j] = e2m1_doubled[j < 16 ? b->qs[j] & 0x0f : b->qs[j - 16] >> 4];
}

static unsigned e2m1_index(int doubled)
{
    const int a = doubled < 0 ? -doubled : doubled;
    const unsigned index = a <= 4 ? (unsigned)a : a == 6 ? 5u : a == 8 ? 6u : 7u;
    return doubled < 0 ? index + 8 : index;
}

void apr_grid_pack_mxfp4(const apr_grid_block *from, void *block)
{
    apr_block_MXFP4 *const b = block;
    b->e = (uint8_t)from->scale[0];
    for (int j = 0; j < 16; j++) b->qs[j] = (uint8_t)(e2m1_index(from->code[j]) | e2m1_index(from->code[16 + j]) << 4);
}
