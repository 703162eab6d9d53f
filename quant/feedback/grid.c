/* grid.c - the types that have the form of grid.h: their bytes, as in formats/number/blocks.h, and what may change in them. */
#include "quant/feedback/grid.h"

#include "formats/number/blocks.h"

#include <stddef.h>
#include <string.h>

enum { PLAIN_ELEMS = 32, K_ELEMS = 256, SUB_ELEMS = 32 };

/* ---- blocks of 32 codes with one scale, or with a scale and a minimum ---- */

/* Byte j holds code j in its low nibble and code j + 16 in its high one; bit j of `high` is the fifth bit of code j. */
static void read_codes(const uint8_t *qs, uint32_t high, int middle, int8_t *code)
{
    for (int j = 0; j < PLAIN_ELEMS; j++) {
        const int nibble = j < 16 ? qs[j] & 0x0f : qs[j - 16] >> 4;
        code[j] = (int8_t)((nibble | (int)(high >> j & 1) << 4) - middle);
    }
}

static uint32_t write_codes(const int8_t *code, int middle, uint8_t *qs)
{
    uint32_t high = 0;
    memset(qs, 0, 16);
    for (int j = 0; j < PLAIN_ELEMS; j++) {
        const unsigned c = (unsigned)(code[j] + middle);
        qs[j % 16] |= (uint8_t)((c & 0x0f) << j / 16 * 4);
        high |= (uint32_t)(c >> 4) << j;
    }
    return high;
}

static void unpack_q4_0(const void *block, apr_grid_block *to)
{
    const apr_block_Q4_0 *const b = block;
    *to = (apr_grid_block){.d = b->d, .scale = {1}};
    read_codes(b->qs, 0, 8, to->code);
}

static void pack_q4_0(const apr_grid_block *from, void *block)
{
    apr_block_Q4_0 *const b = block;
    b->d = from->d;
    write_codes(from->code, 8, b->qs);
}

static void unpack_q4_1(const void *block, apr_grid_block *to)
{
    const apr_block_Q4_1 *const b = block;
    *to = (apr_grid_block){.d = b->d, .dmin = b->m, .scale = {1}, .min = {-1}};
    read_codes(b->qs, 0, 0, to->code);
}

static void pack_q4_1(const apr_grid_block *from, void *block)
{
    apr_block_Q4_1 *const b = block;
    b->d = from->d;
    b->m = from->dmin;
    write_codes(from->code, 0, b->qs);
}

static void unpack_q5_0(const void *block, apr_grid_block *to)
{
    const apr_block_Q5_0 *const b = block;
    *to = (apr_grid_block){.d = b->d, .scale = {1}};
    read_codes(b->qs, b->qh, 16, to->code);
}

static void pack_q5_0(const apr_grid_block *from, void *block)
{
    apr_block_Q5_0 *const b = block;
    b->d = from->d;
    b->qh = write_codes(from->code, 16, b->qs);
}

static void unpack_q5_1(const void *block, apr_grid_block *to)
{
    const apr_block_Q5_1 *const b = block;
    *to = (apr_grid_block){.d = b->d, .dmin = b->m, .scale = {1}, .min = {-1}};
    read_codes(b->qs, b->qh, 0, to->code);
}

static void pack_q5_1(const apr_grid_block *from, void *block)
{
    apr_block_Q5_1 *const b = block;
    b->d = from->d;
    b->m = from->dmin;
    b->qh = write_codes(from->code, 0, b->qs);
}

static void unpack_q8_0(const void *block, apr_grid_block *to)
{
    const apr_block_Q8_0 *const b = block;
    *to = (apr_grid_block){.d = b->d, .scale = {1}};
    memcpy(to->code, b->qs, PLAIN_ELEMS);
}

static void pack_q8_0(const apr_grid_block *from, void *block)
{
    apr_block_Q8_0 *const b = block;
    b->d = from->d;
    memcpy(b->qs, from->code, PLAIN_ELEMS);
}

/* ---- MXFP4: codes are the doubled values; -0 reads as 0 and is never written ---- */

static const int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void unpack_mxfp4(const void *block, apr_grid_block *to)
{
    const apr_block_MXFP4 *const b = block;
    *to = (apr_grid_block){.scale = {b->e}};
    for (int j = 0; j < PLAIN_ELEMS; j++) to->code[j] = e2m1_doubled[j < 16 ? b->qs[j] & 0x0f : b->qs[j - 16] >> 4];
}

static unsigned e2m1_index(int doubled)
{
    const int a = doubled < 0 ? -doubled : doubled;
    const unsigned index = a <= 4 ? (unsigned)a : a == 6 ? 5u : a == 8 ? 6u : 7u;
    return doubled < 0 ? index + 8 : index;
}

static void pack_mxfp4(const apr_grid_block *from, void *block)
{
    apr_block_MXFP4 *const b = block;
    b->e = (uint8_t)from->scale[0];
    for (int j = 0; j < 16; j++) b->qs[j] = (uint8_t)(e2m1_index(from->code[j]) | e2m1_index(from->code[16 + j]) << 4);
}

/* Byte j of a sub-block's eight holds code j in its low nibble and code j + 8 in its high one. The top bit of a scale means nothing. */
static void unpack_nvfp4(const void *block, apr_grid_block *to)
{
    const apr_block_NVFP4 *const b = block;
    *to = (apr_grid_block){.scale = {b->d[0] & 0x7f, b->d[1] & 0x7f, b->d[2] & 0x7f, b->d[3] & 0x7f}};
    for (int j = 0; j < 64; j++) to->code[j] = e2m1_doubled[b->qs[j / 16 * 8 + j % 8] >> j % 16 / 8 * 4 & 0x0f];
}

static void pack_nvfp4(const apr_grid_block *from, void *block)
{
    apr_block_NVFP4 *const b = block;
    memset(b->qs, 0, sizeof b->qs);
    for (int sub = 0; sub < 4; sub++) b->d[sub] = (uint8_t)from->scale[sub];
    for (int j = 0; j < 64; j++) b->qs[j / 16 * 8 + j % 8] |= (uint8_t)(e2m1_index(from->code[j]) << j % 16 / 8 * 4);
}

/* ---- IQ4_NL and IQ4_XS: nibbles index a table of levels, which are the codes ---- */

static const int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void read_levels(const uint8_t *qs, int8_t *code)
{
    for (int j = 0; j < PLAIN_ELEMS; j++) code[j] = iq4_levels[j < 16 ? qs[j] & 0x0f : qs[j - 16] >> 4];
}

static unsigned level_index(int level)
{
    unsigned index = 0;
    while (index < 15 && iq4_levels[index] < level) index++;
    return index;
}

static void write_levels(const int8_t *code, uint8_t *qs)
{
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)(level_index(code[j]) | level_index(code[16 + j]) << 4);
}

static void unpack_iq4_nl(const void *block, apr_grid_block *to)
{
    const apr_block_IQ4_NL *const b = block;
    *to = (apr_grid_block){.d = b->d, .scale = {1}};
    read_levels(b->qs, to->code);
}

static void pack_iq4_nl(const apr_grid_block *from, void *block)
{
    apr_block_IQ4_NL *const b = block;
    b->d = from->d;
    write_levels(from->code, b->qs);
}

/* 6-bit scales with offset 32: low nibbles in scales_l, upper two bits in scales_h. */
static void unpack_iq4_xs(const void *block, apr_grid_block *to)
{
    const apr_block_IQ4_XS *const b = block;
    *to = (apr_grid_block){.d = b->d};
    for (int sub = 0; sub < 8; sub++) {
        to->scale[sub] = (int16_t)(((b->scales_l[sub / 2] >> sub % 2 * 4 & 0x0f) | (b->scales_h >> 2 * sub & 3) << 4) - 32);
        read_levels(b->qs + 16 * sub, to->code + SUB_ELEMS * sub);
    }
}

static void pack_iq4_xs(const apr_grid_block *from, void *block)
{
    apr_block_IQ4_XS *const b = block;
    *b = (apr_block_IQ4_XS){.d = from->d};
    for (int sub = 0; sub < 8; sub++) {
        const int scale = from->scale[sub] + 32;
        b->scales_l[sub / 2] |= (uint8_t)((scale & 0x0f) << sub % 2 * 4);
        b->scales_h = (uint16_t)(b->scales_h | scale >> 4 << 2 * sub);
        write_levels(from->code + SUB_ELEMS * sub, b->qs + 16 * sub);
    }
}

/* ---- one scale, and codes of one or two bits ---- */

static const int8_t signs[2] = {-1, 1};

static void unpack_q1_0(const void *block, apr_grid_block *to)
{
    const apr_block_Q1_0 *const b = block;
    *to = (apr_grid_block){.d = b->d, .scale = {1}};
    for (int j = 0; j < 128; j++) to->code[j] = signs[b->qs[j / 8] >> j % 8 & 1];
}

static void pack_q1_0(const apr_grid_block *from, void *block)
{
    apr_block_Q1_0 *const b = block;
    *b = (apr_block_Q1_0){.d = from->d};
    for (int j = 0; j < 128; j++) b->qs[j / 8] |= (uint8_t)((from->code[j] > 0) << j % 8);
}

static void unpack_q2_0(const void *block, apr_grid_block *to)
{
    const apr_block_Q2_0 *const b = block;
    *to = (apr_grid_block){.d = b->d, .scale = {1}};
    for (int j = 0; j < 64; j++) to->code[j] = (int8_t)((b->qs[j / 4] >> j % 4 * 2 & 3) - 1);
}

static void pack_q2_0(const apr_grid_block *from, void *block)
{
    apr_block_Q2_0 *const b = block;
    *b = (apr_block_Q2_0){.d = from->d};
    for (int j = 0; j < 64; j++) b->qs[j / 4] |= (uint8_t)((from->code[j] + 1) << j % 4 * 2);
}

/* Element 128*h + 32*s + l is bits 2s of byte 32*h + l. */
static void read_pairs(const uint8_t *qs, int middle, int8_t *code)
{
    for (int i = 0; i < K_ELEMS; i++) code[i] = (int8_t)((qs[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3) - middle);
}

static void write_pairs(const int8_t *code, int middle, uint8_t *qs)
{
    memset(qs, 0, K_ELEMS / 4);
    for (int i = 0; i < K_ELEMS; i++) qs[i / 128 * 32 + i % 32] |= (uint8_t)(((code[i] + middle) & 3) << i % 128 / 32 * 2);
}

static void unpack_tq2_0(const void *block, apr_grid_block *to)
{
    const apr_block_TQ2_0 *const b = block;
    *to = (apr_grid_block){.d = b->d, .scale = {1}};
    read_pairs(b->qs, 1, to->code);
}

static void pack_tq2_0(const apr_grid_block *from, void *block)
{
    apr_block_TQ2_0 *const b = block;
    b->d = from->d;
    write_pairs(from->code, 1, b->qs);
}

/* Runs of bytes that hold one base-3 digit of as many elements, five digits a byte, the last run four: see kernels/ref/few_bits.c. */
static const struct trits {
    int width, n_digits;
} trits[3] = {{32, 5}, {16, 5}, {4, 4}};

static void unpack_tq1_0(const void *block, apr_grid_block *to)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    const apr_block_TQ1_0 *const b = block;
    const uint8_t *bytes = b->qs;
    int8_t *code = to->code;

    *to = (apr_grid_block){.d = b->d, .scale = {1}};
    for (int run = 0; run < 3; bytes += trits[run++].width)
        for (int n = 0; n < trits[run].n_digits; n++)
            for (int l = 0; l < trits[run].width; l++) *code++ = (int8_t)(((uint8_t)(bytes[l] * power[n]) * 3 >> 8) - 1);
}

static void pack_tq1_0(const apr_grid_block *from, void *block)
{
    apr_block_TQ1_0 *const b = block;
    uint8_t *bytes = b->qs;
    const int8_t *code = from->code;

    b->d = from->d;
    for (int run = 0; run < 3; code += trits[run].width * trits[run].n_digits, bytes += trits[run++].width)
        for (int l = 0; l < trits[run].width; l++) {
            int number = 0;
            for (int n = 0; n < 5; n++) number = 3 * number + (n < trits[run].n_digits ? code[n * trits[run].width + l] + 1 : 0);
            bytes[l] = (uint8_t)((number * 256 + 242) / 243);
        }
}

/* ---- Q2_K and Q3_K: 16 sub-blocks of 16 ---- */

static void unpack_q2_k(const void *block, apr_grid_block *to)
{
    const apr_block_Q2_K *const b = block;
    *to = (apr_grid_block){.d = b->d, .dmin = b->dmin};
    for (int sub = 0; sub < 16; sub++) {
        to->scale[sub] = b->scales[sub] & 0x0f;
        to->min[sub] = b->scales[sub] >> 4;
    }
    read_pairs(b->qs, 0, to->code);
}

static void pack_q2_k(const apr_grid_block *from, void *block)
{
    apr_block_Q2_K *const b = block;
    b->d = from->d;
    b->dmin = from->dmin;
    for (int sub = 0; sub < 16; sub++) b->scales[sub] = (uint8_t)(from->scale[sub] | from->min[sub] << 4);
    write_pairs(from->code, 0, b->qs);
}

/* 6-bit scales with offset 32: scale s has its low nibble in byte s % 8 (low half for s < 8), its upper two bits in bits 2 * (s / 4) of byte
 * 8 + s % 4. The third bit of code l of run r, 32 codes, is bit r of hmask[l]. */
static void unpack_q3_k(const void *block, apr_grid_block *to)
{
    const apr_block_Q3_K *const b = block;
    *to = (apr_grid_block){.d = b->d};
    for (int s = 0; s < 16; s++)
        to->scale[s] = (int16_t)(((b->scales[s % 8] >> s / 8 * 4 & 0x0f) | (b->scales[8 + s % 4] >> s / 4 * 2 & 3) << 4) - 32);
    read_pairs(b->qs, 4, to->code);
    for (int i = 0; i < K_ELEMS; i++) to->code[i] = (int8_t)(to->code[i] + (b->hmask[i % 32] >> i / 32 & 1) * 4);
}

static void pack_q3_k(const apr_grid_block *from, void *block)
{
    apr_block_Q3_K *const b = block;
    *b = (apr_block_Q3_K){.d = from->d};
    for (int s = 0; s < 16; s++) {
        const int scale = from->scale[s] + 32;
        b->scales[s % 8] |= (uint8_t)((scale & 0x0f) << s / 8 * 4);
        b->scales[8 + s % 4] |= (uint8_t)(scale >> 4 << s / 4 * 2);
    }
    write_pairs(from->code, 4, b->qs);
    for (int i = 0; i < K_ELEMS; i++) b->hmask[i % 32] |= (uint8_t)(((from->code[i] + 4) >> 2) << i / 32);
}

/* ---- Q4_K, Q5_K and Q6_K: 256 codes in sub-blocks; the same bytes as in kernels/ref/q4_q5_k.c and q6_k.c ---- */

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
    for (int i = 0; i < K_ELEMS; i++) {
        const int sub = i / SUB_ELEMS;
        code[i] = (int8_t)(qs[sub / 2 * SUB_ELEMS + i % SUB_ELEMS] >> sub % 2 * 4 & 0x0f);
    }
}

static void write_nibbles(const int8_t *code, uint8_t *qs)
{
    memset(qs, 0, K_ELEMS / 2);
    for (int i = 0; i < K_ELEMS; i++) {
        const int sub = i / SUB_ELEMS;
        qs[sub / 2 * SUB_ELEMS + i % SUB_ELEMS] |= (uint8_t)((code[i] & 0x0f) << sub % 2 * 4);
    }
}

static void unpack_q4_k(const void *block, apr_grid_block *to)
{
    const apr_block_Q4_K *const b = block;
    *to = (apr_grid_block){.d = b->d, .dmin = b->dmin};
    read_scales(b->scales, to);
    read_nibbles(b->qs, to->code);
}

static void pack_q4_k(const apr_grid_block *from, void *block)
{
    apr_block_Q4_K *const b = block;
    b->d = from->d;
    b->dmin = from->dmin;
    write_scales(from, b->scales);
    write_nibbles(from->code, b->qs);
}

/* The fifth bit of code l of sub-block s is bit s of qh[l]. */
static void unpack_q5_k(const void *block, apr_grid_block *to)
{
    const apr_block_Q5_K *const b = block;
    *to = (apr_grid_block){.d = b->d, .dmin = b->dmin};
    read_scales(b->scales, to);
    read_nibbles(b->qs, to->code);
    for (int i = 0; i < K_ELEMS; i++) to->code[i] = (int8_t)(to->code[i] | (b->qh[i % SUB_ELEMS] >> i / SUB_ELEMS & 1) << 4);
}

static void pack_q5_k(const apr_grid_block *from, void *block)
{
    apr_block_Q5_K *const b = block;
    b->d = from->d;
    b->dmin = from->dmin;
    write_scales(from, b->scales);
    write_nibbles(from->code, b->qs);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < K_ELEMS; i++) b->qh[i % SUB_ELEMS] |= (uint8_t)((from->code[i] >> 4 & 1) << i / SUB_ELEMS);
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

static void unpack_q6_k(const void *block, apr_grid_block *to)
{
    const apr_block_Q6_K *const b = block;
    *to = (apr_grid_block){.d = b->d};
    for (int sub = 0; sub < 16; sub++) to->scale[sub] = b->scales[sub];
    for (int i = 0; i < K_ELEMS; i++) {
        const q6_place p = place_of(i);
        to->code[i] = (int8_t)(((b->ql[p.ql] >> p.ql_shift & 0x0f) | (b->qh[p.qh] >> p.qh_shift & 3) << 4) - 32);
    }
}

static void pack_q6_k(const apr_grid_block *from, void *block)
{
    apr_block_Q6_K *const b = block;
    *b = (apr_block_Q6_K){.d = from->d};
    for (int sub = 0; sub < 16; sub++) b->scales[sub] = (int8_t)from->scale[sub];
    for (int i = 0; i < K_ELEMS; i++) {
        const q6_place p = place_of(i);
        const int code = from->code[i] + 32;
        b->ql[p.ql] |= (uint8_t)((code & 0x0f) << p.ql_shift);
        b->qh[p.qh] |= (uint8_t)(code >> 4 << p.qh_shift);
    }
}

/* ---- the table ---- */

#define CODEC(id)     .unpack = unpack_##id, .pack = pack_##id
#define ONE_SCALE(n)  .elems = (n), .sub_elems = (n), .steps = APR_GRID_HALF, .scale_low = 1, .scale_high = 1
#define PLAIN(id)     ONE_SCALE(32), CODEC(id)
#define SHIFTED(id)   PLAIN(id), .min_low = -1, .min_high = -1, .fits_min = true, .min_is_signed = true
#define LEVELS(table) .levels = (table), .n_levels = (int)sizeof(table)
#define WITH_MINS(id) \
    .elems = 256, .sub_elems = 32, .steps = APR_GRID_SUB_SCALE, .scale_high = 63, .min_high = 63, .fits_min = true, CODEC(id)
#define SUB_SCALES(n, least, most) .elems = 256, .sub_elems = (n), .steps = APR_GRID_SUB_SCALE, .scale_low = (least), .scale_high = (most)
#define FP4(n)                     .elems = (n), .is_e2m1 = true, .low = -12.0f, .high = 12.0f

static const apr_grid grids[APR_DTYPE_COUNT] = {
    [APR_Q4_0] = {.low = -8.0f, .high = 7.0f, PLAIN(q4_0)},
    [APR_Q5_0] = {.low = -16.0f, .high = 15.0f, PLAIN(q5_0)},
    [APR_Q8_0] = {.low = -127.0f, .high = 127.0f, PLAIN(q8_0)},
    [APR_Q4_1] = {.high = 15.0f, SHIFTED(q4_1)},
    [APR_Q5_1] = {.high = 31.0f, SHIFTED(q5_1)},
    [APR_Q4_K] = {.high = 15.0f, WITH_MINS(q4_k)},
    [APR_Q5_K] = {.high = 31.0f, WITH_MINS(q5_k)},
    [APR_Q6_K] = {.low = -32.0f, .high = 31.0f, SUB_SCALES(16, -128, 127), CODEC(q6_k)},
    /* up to exponent 252: 6 * 2^(252-127) is finite */
    [APR_MXFP4] = {FP4(32), .sub_elems = 32, .steps = APR_GRID_EXPONENT, .scale_high = 252, CODEC(mxfp4)},
    [APR_NVFP4] = {FP4(64), .sub_elems = 16, .steps = APR_GRID_E4M3, .scale_high = 126, .scale_reach = 6, CODEC(nvfp4)},
    [APR_IQ4_NL] = {.low = -127.0f, .high = 113.0f, LEVELS(iq4_levels), ONE_SCALE(32), CODEC(iq4_nl)},
    [APR_IQ4_XS] = {.low = -127.0f, .high = 113.0f, LEVELS(iq4_levels), SUB_SCALES(32, -32, 31), .scale_reach = 2, CODEC(iq4_xs)},
    [APR_Q1_0] = {.low = -1.0f, .high = 1.0f, LEVELS(signs), ONE_SCALE(128), CODEC(q1_0)},
    [APR_Q2_0] = {.low = -1.0f, .high = 2.0f, ONE_SCALE(64), CODEC(q2_0)},
    [APR_TQ1_0] = {.low = -1.0f, .high = 1.0f, ONE_SCALE(256), CODEC(tq1_0)},
    [APR_TQ2_0] = {.low = -1.0f, .high = 1.0f, ONE_SCALE(256), CODEC(tq2_0)},
    [APR_Q2_K] = {.high = 3.0f, SUB_SCALES(16, 0, 15), .min_high = 15, .fits_min = true, .scale_reach = 2, .min_reach = 2, CODEC(q2_k)},
    [APR_Q3_K] = {.low = -4.0f, .high = 3.0f, SUB_SCALES(16, -32, 31), .scale_reach = 4, CODEC(q3_k)},
};

const apr_grid *apr_grid_of(apr_dtype dtype)
{
    if (dtype < 0 || dtype >= APR_DTYPE_COUNT) return NULL;
    return grids[dtype].elems > 0 ? &grids[dtype] : apr_points_grid_of(dtype);
}
