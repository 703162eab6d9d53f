/* grid_k.c - Q4_K, Q5_K and Q6_K: 256 codes in sub-blocks; the same bytes as in kernels/ref/q4_q5_k.c and q6_k.c. */
#include "formats/number/blocks.h"
#include "quant/feedback/grid.h"

#include <string.h>

enum { ELEMS = 256, SUBS = 8, SUB_ELEMS = 32 };

/* Twelve bytes hold the 6-bit scales and minimums of 8 sub-blocks. Those of sub-blocks 0..3 are whole, in the low 6 bits of bytes 0..7. For
 * sub-blocks 4..7 the low nibbles are in the last four bytes, and the upper two bits are in the top bits of bytes 0..7. */
static void read_scales(const uint8_t *bytes, apr_grid_block *to)
{
    for (int j = 0; j < 4; j++) {
        to->scale[j] = bytes[j] & 63;
        to->min[j] = bytes[4 + j] & 63;
        to->scale[4 + j] = (int16_t)((bytes[8 + j] & 0x0f) | bytes[j] >> 6 << 4);
        to->min[4 + j] = (int16_t)(bytes[8 + j] >> 4 | bytes[4 + j] >> 6 << 4);
    }
}

static void write_scales(const apr_grid_block *from, uint8_t *bytes)
{
    for (int j = 0; j < 4; j++) {
        bytes[j] = (uint8_t)(from->scale[j] | from->scale[4 + j] >> 4 << 6);
        bytes[4 + j] = (uint8_t)(from->min[j] | from->min[4 + j] >> 4 << 6);
        bytes[8 + j] = (uint8_t)((from->scale[4 + j] & 0x0f) | (from->min[4 + j] & 0x0f) << 4);
    }
}

/* 32 bytes hold two sub-blocks: the even one in the low nibbles, the odd one in the high nibbles. */
static void read_nibbles(const uint8_t *qs, int8_t *code)
{
    for (int i = 0; i < ELEMS; i++) {
        const int sub = i / SUB_ELEMS;
        code[i] = (int8_t)(qs[sub / 2 * SUB_ELEMS + i % SUB_ELEMS] >> sub % 2 * 4 & 0x0f);
    }
}

static void write_nibbles(const int8_t *code, uint8_t *qs)
{
    memset(qs, 0, ELEMS / 2);
    for (int i = 0; i < ELEMS; i++) {
        const int sub = i / SUB_ELEMS;
        qs[sub / 2 * SUB_ELEMS + i % SUB_ELEMS] |= (uint8_t)((code[i] & 0x0f) << sub % 2 * 4);
    }
}

void apr_grid_unpack_q4_k(const void *block, apr_grid_block *to)
{
    const apr_block_Q4_K *const b = block;
    *to = (apr_grid_block){.d = b->d, .dmin = b->dmin};
    read_scales(b->scales, to);
    read_nibbles(b->qs, to->code);
}

void apr_grid_pack_q4_k(const apr_grid_block *from, void *block)
{
    apr_block_Q4_K *const b = block;
    b->d = from->d;
    b->dmin = from->dmin;
    write_scales(from, b->scales);
    write_nibbles(from->code, b->qs);
}

/* The fifth bit of code l of sub-block s is bit s of qh[l]. */
void apr_grid_unpack_q5_k(const void *block, apr_grid_block *to)
{
    const apr_block_Q5_K *const b = block;
    *to = (apr_grid_block){.d = b->d, .dmin = b->dmin};
    read_scales(b->scales, to);
    read_nibbles(b->qs, to->code);
    for (int i = 0; i < ELEMS; i++) to->code[i] = (int8_t)(to->code[i] | (b->qh[i % SUB_ELEMS] >> i / SUB_ELEMS & 1) << 4);
}

void apr_grid_pack_q5_k(const apr_grid_block *from, void *block)
{
    apr_block_Q5_K *const b = block;
    b->d = from->d;
    b->dmin = from->dmin;
    write_scales(from, b->scales);
    write_nibbles(from->code, b->qs);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < ELEMS; i++) b->qh[i % SUB_ELEMS] |= (uint8_t)((from->code[i] >> 4 & 1) << i / SUB_ELEMS);
}

/* For element 32 * k + l of each half of 128: the low four bits are in ql[32 * (k % 2) + l], in the high nibble for k >= 2. The upper two
 * bits are bits 2k and 2k + 1 of qh[l]. */
typedef struct q6_place {
    int ql, ql_shift, qh, qh_shift;
} q6_place;

static q6_place place_of(int i)
{
    const int half = i / 128, k = i % 128 / 32, l = i % 32;
    return (q6_place){64 * half + k % 2 * 32 + l, k / 2 * 4, 32 * half + l, 2 * k};
}

void apr_grid_unpack_q6_k(const void *block, apr_grid_block *to)
{
    const apr_block_Q6_K *const b = block;
    *to = (apr_grid_block){.d = b->d};
    for (int sub = 0; sub < 16; sub++) to->scale[sub] = b->scales[sub];
    for (int i = 0; i < ELEMS; i++) {
        const q6_place p = place_of(i);
        to->code[i] = (int8_t)(((b->ql[p.ql] >> p.ql_shift & 0x0f) | (b->qh[p.qh] >> p.qh_shift & 3) << 4) - 32);
    }
}

void apr_grid_pack_q6_k(const apr_grid_block *from, void *block)
{
    apr_block_Q6_K *const b = block;
    *b = (apr_block_Q6_K){.d = from->d};
    for (int sub = 0; sub < 16; sub++) b->scales[sub] = (int8_t)from->scale[sub];
    for (int i = 0; i < ELEMS; i++) {
        const q6_place p = place_of(i);
        const int code = from->code[i] + 32;
        b->ql[p.ql] |= (uint8_t)((code & 0x0f) << p.ql_shift);
        b->qh[p.qh] |= (uint8_t)(code >> 4 << p.qh_shift);
    }
}
