/* product_simple.c - products of types with 32 codes and one scale a block, and rounded inputs. kernels/ref describes the layouts. */
#include "kernels/host/products/product_rows.h"

/* The block of 32 that has a lane's group. */
static const int32_t blocks_of_bytes[16] = {0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7};
static const int32_t blocks_of_nibbles[16] = {0, 0, 4, 4, 1, 1, 5, 5, 2, 2, 6, 6, 3, 3, 7, 7};

VEC_INLINE void f16_scales(const uint8_t *tile, int stride, const int32_t blocks[16], vec_floats out[VEC_PARTS])
{
    eight_floats d;
    load_f16_x8(tile, stride, &d);
    vec_spread(&d, blocks, out);
}

/* ---- bytes ---- */

VEC_INLINE void scales_q8_0(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    (void)minimum;
    f16_scales(tile, 34, blocks_of_bytes, scale);
}

VEC_INLINE void codes_q8_0(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int j = 0; j < 4; j++) split_bytes(vec_of_32s(tile + 68 * j + 2, 34, part) ^ 0x8080, &even[j], &odd[j]);
}

/* ---- nibbles: those of four blocks together, the low ones and the high ones ---- */

VEC_INLINE void split_nibbles(vec_words z, vec_words even[2], vec_words odd[2])
{
    const vec_words upper = z >> 8;
    even[0] = z & 0x000f;
    odd[0] = upper & 0x000f;
    even[1] = z >> 4 & 0x000f;
    odd[1] = upper >> 4;
}

VEC_INLINE void scales_q4_0(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    (void)minimum;
    f16_scales(tile, 18, blocks_of_nibbles, scale);
}

VEC_INLINE void codes_q4_0(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int four = 0; four < 2; four++) split_nibbles(vec_of_16s(tile + 72 * four + 2, 18, part), even + 2 * four, odd + 2 * four);
}

VEC_INLINE void scales_q4_1(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    f16_scales(tile, 20, blocks_of_nibbles, scale);
    f16_scales(tile + 2, 20, blocks_of_nibbles, minimum);
}

VEC_INLINE void codes_q4_1(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int four = 0; four < 2; four++) split_nibbles(vec_of_16s(tile + 80 * four + 4, 20, part), even + 2 * four, odd + 2 * four);
}

/* ---- and a fifth bit: bit i of a block's four bytes is code i's ---- */

/* Sets each of 16 bytes to 16 if its bit of `bits` is set, else to 0. */
VEC_INLINE void spread_bits(unsigned bits, uint8_t out[16])
{
    const uint64_t each = 0x0101010101010101u, pick = 0x8040201008040201u;
    for (int byte = 0; byte < 2; byte++) {
        const uint64_t picked = (bits >> (8 * byte) & 255) * each & pick; /* a bit in each byte, or none */
        const uint64_t found = ((picked + 0x7f7f7f7f7f7f7f7fu) | picked) >> 3 & 0x1010101010101010u;
        memcpy(out + 8 * byte, &found, sizeof found);
    }
}

/* Blocks of `stride` bytes: the fifth bits, then the nibbles. */
VEC_INLINE void codes_5(const uint8_t *fifths, int stride, int part, vec_words even[4], vec_words odd[4])
{
    enum { PIECES = VEC_BYTES / 16 };
    for (int four = 0; four < 2; four++) {
        uint8_t low[VEC_BYTES], high[VEC_BYTES];
        for (int i = 0; i < PIECES; i++) {
            const uint32_t bits = apr_load_le32(fifths + (4 * four + part * PIECES + i) * stride);
            spread_bits(bits & 0xffff, low + 16 * i);
            spread_bits(bits >> 16, high + 16 * i);
        }
        const vec_words z = vec_of_16s(fifths + 4 * four * stride + 4, stride, part);
        split_bytes((z & 0x0f0f) | vec_load(low), &even[2 * four], &odd[2 * four]);
        split_bytes((z >> 4 & 0x0f0f) | vec_load(high), &even[2 * four + 1], &odd[2 * four + 1]);
    }
}

VEC_INLINE void scales_q5_0(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    (void)minimum;
    f16_scales(tile, 22, blocks_of_nibbles, scale);
}

VEC_INLINE void codes_q5_0(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4]) { codes_5(tile + 2, 22, part, even, odd); }

VEC_INLINE void scales_q5_1(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    f16_scales(tile, 24, blocks_of_nibbles, scale);
    f16_scales(tile + 2, 24, blocks_of_nibbles, minimum);
}

VEC_INLINE void codes_q5_1(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4]) { codes_5(tile + 4, 24, part, even, odd); }

/* ---- nibbles that are indexes into a table of values ---- */

/* E2M1 doubled plus 12; the values of IQ4_NL plus 127. */
#if VEC_LOOKS_UP

VEC_INLINE void look_up_nibbles(const uint8_t table[16], vec_words z, vec_words even[2], vec_words odd[2])
{
    split_bytes(vec_look_up(table, z & 0x0f0f), &even[0], &odd[0]);
    split_bytes(vec_look_up(table, z >> 4 & 0x0f0f), &even[1], &odd[1]);
}

VEC_INLINE void values_e2m1(vec_words z, vec_words even[2], vec_words odd[2])
{
    static const uint8_t values[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    look_up_nibbles(values, z, even, odd);
}

VEC_INLINE void values_iq4_nl(vec_words z, vec_words even[2], vec_words odd[2])
{
    static const uint8_t values[16] = {0, 23, 44, 62, 78, 92, 105, 117, 128, 140, 152, 165, 180, 196, 216, 240};
    look_up_nibbles(values, z, even, odd);
}

#else

/* Magnitudes 0 1 2 3 4 6 8 12: steps of one, from code 4 on of two, from code 6 on of four. */
VEC_INLINE vec_bytes e2m1_of(vec_bytes code)
{
    const vec_bytes magnitude = code & 7, from_6 = vec_above(magnitude, 6), negative = (vec_bytes)((vec_signed)code > 7);
    const vec_bytes doubled = magnitude + vec_above(magnitude, 4) + from_6 + from_6;
    return (doubled ^ negative) + (12 - negative);
}

VEC_INLINE void values_e2m1(vec_words z, vec_words even[2], vec_words odd[2])
{
    split_bytes((vec_words)e2m1_of((vec_bytes)(z & 0x0f0f)), &even[0], &odd[0]);
    split_bytes((vec_words)e2m1_of((vec_bytes)(z >> 4 & 0x0f0f)), &even[1], &odd[1]);
}

/* Computes the values of IQ4_NL. The code is in the top four bits, the bits below are zeros. With u the code minus 8, the upper half of
 * a product is u / 16 times the other factor. This polynomial of u, in 64ths, is each of the sixteen values plus less than one. */
VEC_INLINE vec_words iq4_nl_of(vec_words code)
{
    const vec_words u = code ^ 0x8000, factor = (vec_words){0} + 6652;
    const vec_words cubic = vec_upper_products(vec_upper_products(u, factor) + 21454, u) - 275;
    return (vec_upper_products(vec_upper_products(cubic, u) + 11714, u) + 8252) >> 6;
}

VEC_INLINE void values_iq4_nl(vec_words z, vec_words even[2], vec_words odd[2])
{
    even[0] = iq4_nl_of(z << 12);
    odd[0] = iq4_nl_of(z << 4 & 0xf000);
    even[1] = iq4_nl_of(z << 8 & 0xf000);
    odd[1] = iq4_nl_of(z & 0xf000);
}

#endif

/* Scales are halved because values are doubled: 2^(e - 128), of which the smallest two are subnormal. */
VEC_INLINE void scales_mxfp4(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    int32_t bits[8];
    eight_floats d;
    (void)minimum;
    for (int b = 0; b < 8; b++) {
        const int32_t e = tile[17 * b], small = 0x00200000 * (e + 1), normal = (e - 1) * (1 << 23);
        bits[b] = small > normal ? small : normal;
    }
    memcpy(&d, bits, sizeof d);
    vec_spread(&d, blocks_of_nibbles, scale);
}

VEC_INLINE void codes_mxfp4(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int four = 0; four < 2; four++) values_e2m1(vec_of_16s(tile + 68 * four + 1, 17, part), even + 2 * four, odd + 2 * four);
}

VEC_INLINE void codes_iq4_nl(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int four = 0; four < 2; four++) values_iq4_nl(vec_of_16s(tile + 72 * four + 2, 18, part), even + 2 * four, odd + 2 * four);
}

PRODUCT(q8_0, 34, 8, 128, false, scales_q8_0, codes_q8_0)
PRODUCT(q4_0, 18, 8, 8, false, scales_q4_0, codes_q4_0)
PRODUCT(q4_1, 20, 8, 0, true, scales_q4_1, codes_q4_1)
PRODUCT(q5_0, 22, 8, 16, false, scales_q5_0, codes_q5_0)
PRODUCT(q5_1, 24, 8, 0, true, scales_q5_1, codes_q5_1)
PRODUCT(mxfp4, 17, 8, 12, false, scales_mxfp4, codes_mxfp4)
PRODUCT(iq4_nl, 18, 8, 127, false, scales_q4_0, codes_iq4_nl)
