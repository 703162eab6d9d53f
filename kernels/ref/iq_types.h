/* iq_types.h - what the IQ types store: their scales, levels and signs, and a block's bytes from its points.
 *
 * For the encoders (iq_search.h, and kernels/cuda/codecs/encode_points.cu on GPUs) and for error feedback (quant/feedback/grid_points.c).
 * The decoders (iq2_iq3.c, iq1.c) say where the bits are. */
#ifndef APR_KERNELS_REF_IQ_TYPES_H
#define APR_KERNELS_REF_IQ_TYPES_H

#include "kernels/ref/codecs.h"
#include "kernels/ref/iq_book.h"

enum { IQ_ELEMS = 256, IQ_MAX_SUBS = 16, IQ_GROUPS = 4 /* most of a sub-block */ };
enum { IQ_MAX_TRIALS = 6, IQ_FITS = 2 * (IQ_MAX_TRIALS + 1), IQ_CANDIDATES = 32, IQ_ROUNDS = 2 }; /* of the search: iq_search.h */
enum { IQ_REPLACE_ROUNDS = 4, IQ_LEVEL_SWEEPS = 2 }; /* of that with error feedback: quant/feedback/points_search.h */

/* What the stored bits besides the points are: a sign for each value; seven signs for eight values, of which an even number is minus; a
 * shift of all levels for each sub-block; a shift for each point. */
typedef enum { IQ_FREE_SIGNS, IQ_EVEN_SIGNS, IQ_SHIFTED_SUBS, IQ_SHIFTED_POINTS } iq_signs;

/* scale of a sub-block = d * (first + gap * stored) * factor, stored < n_scales */
typedef struct iq_type {
    iq_signs signs;
    int n_values, n_levels, sub_elems, n_scales;
    float first, gap, factor;
    int trials;
    float least, most;    /* trial scales: the largest magnitude divided by these, and by others between them */
    float level[2][8];    /* [shift], 3 levels three times with a gap: 0 1 2 - 0 1 2 - */
    float boundary[2][8]; /* between a level and the next */
} iq_type;

typedef struct iq_group {
    uint16_t word[2];
    uint8_t bits; /* signs, or the shift */
} iq_group;

typedef struct iq_block {
    uint16_t d; /* FP16 */
    uint8_t stored[IQ_MAX_SUBS];
    iq_group group[IQ_ELEMS / 8];
    float error; /* less that of zeros */
} iq_block;

/* clang-format off */
#define IQ_EIGHT_OF_3 .n_values = 8, .n_levels = 3
#define IQ2_LEVELS .level = {{8.0f, 25.0f, 43.0f, 0.0f, 8.0f, 25.0f, 43.0f, 0.0f}}, .boundary = {{16.5f, 34.0f}}
#define IQ_FOUR_OF_8 .n_values = 4, .n_levels = 8
#define IQ1_LEVELS .level = {{-0.875f, 0.125f, 1.125f, 0.0f, -0.875f, 0.125f, 1.125f, 0.0f},  \
                             {-1.125f, -0.125f, 0.875f, 0.0f, -1.125f, -0.125f, 0.875f, 0.0f}}, \
                   .boundary = {{-0.375f, 0.625f}, {-0.625f, 0.375f}}

/* X(ID, name, name of the codebook, what its iq_type is), for the host and for GPUs. */
#define IQ_TYPES(X) \
    X(IQ2_XXS, iq2_xxs, iq2_xxs, .signs = IQ_EVEN_SIGNS, IQ_EIGHT_OF_3, .sub_elems = 32, .n_scales = 16, .first = 0.5f, .gap = 1.0f, .factor = 0.25f, \
      .trials = 4, .least = 24.0f, .most = 60.0f, IQ2_LEVELS) \
    X(IQ2_XS, iq2_xs, iq2_xs, .signs = IQ_EVEN_SIGNS, IQ_EIGHT_OF_3, .sub_elems = 16, .n_scales = 16, .first = 0.5f, .gap = 1.0f, .factor = 0.25f, \
      .trials = 4, .least = 24.0f, .most = 60.0f, IQ2_LEVELS) \
    X(IQ2_S, iq2_s, iq2_s, .signs = IQ_FREE_SIGNS, IQ_EIGHT_OF_3, .sub_elems = 16, .n_scales = 16, .first = 0.5f, .gap = 1.0f, .factor = 0.25f, \
      .trials = 4, .least = 24.0f, .most = 60.0f, IQ2_LEVELS) \
    X(IQ3_XXS, iq3_xxs, iq3_xxs, .signs = IQ_EVEN_SIGNS, IQ_FOUR_OF_8, .sub_elems = 32, .n_scales = 16, .first = 0.5f, .gap = 1.0f, .factor = 0.5f, \
      .trials = 6, .least = 36.0f, .most = 80.0f, .level = {{4.0f, 12.0f, 20.0f, 28.0f, 36.0f, 44.0f, 52.0f, 62.0f}}, \
      .boundary = {{8.0f, 16.0f, 24.0f, 32.0f, 40.0f, 48.0f, 57.0f}}) \
    X(IQ3_S, iq3_s, iq3_s, .signs = IQ_FREE_SIGNS, IQ_FOUR_OF_8, .sub_elems = 32, .n_scales = 16, .first = 1.0f, .gap = 2.0f, .factor = 1.0f, \
      .trials = 6, .least = 9.0f, .most = 20.0f, .level = {{1.0f, 3.0f, 5.0f, 7.0f, 9.0f, 11.0f, 13.0f, 15.0f}}, \
      .boundary = {{2.0f, 4.0f, 6.0f, 8.0f, 10.0f, 12.0f, 14.0f}}) \
    X(IQ1_S, iq1_s, iq1, .signs = IQ_SHIFTED_SUBS, IQ_EIGHT_OF_3, .sub_elems = 32, .n_scales = 8, .first = 1.0f, .gap = 2.0f, .factor = 1.0f, \
      .trials = 4, .least = 0.9f, .most = 3.0f, IQ1_LEVELS) \
    X(IQ1_M, iq1_m, iq1, .signs = IQ_SHIFTED_POINTS, IQ_EIGHT_OF_3, .sub_elems = 16, .n_scales = 8, .first = 1.0f, .gap = 2.0f, .factor = 1.0f, \
      .trials = 4, .least = 0.9f, .most = 3.0f, IQ1_LEVELS)
/* clang-format on */

#define IQ_TYPE(ID, id, book, ...) static const iq_type id = {__VA_ARGS__};
IQ_TYPES(IQ_TYPE)
#undef IQ_TYPE

/* ---- scales ---- */

APR_HOST_DEVICE static inline float iq_multiplier(const iq_type *t, float stored) { return t->first + t->gap * stored; }
APR_HOST_DEVICE static inline float iq_scale(const iq_type *t, float d, float stored) { return d * iq_multiplier(t, stored) * t->factor; }

/* The largest value that a block can hold. */
APR_HOST_DEVICE static inline float iq_limit(const iq_type *t)
{
    return APR_F16_MAX * (t->level[0][t->n_levels - 1] * iq_multiplier(t, (float)(t->n_scales - 1)) * t->factor);
}

/* Trial k of a sub-block with the largest magnitude `most`. */
APR_HOST_DEVICE static inline float iq_trial_scale(const iq_type *t, float most, int k)
{
    return most / (t->least + (t->most - t->least) * (float)k / (float)(t->trials - 1));
}

/* To FP16; a non-zero scale stays non-zero, and a too large one becomes the largest. */
APR_HOST_DEVICE static inline uint16_t iq_stored_scale(float x)
{
    const uint16_t half = apr_f32_to_f16(x < APR_F16_MAX ? x : APR_F16_MAX);
    return half == 0 && x > 0.0f ? 1 : half;
}

/* The stored scale at or below s, but so that there is one above it. */
APR_HOST_DEVICE static inline float iq_stored_below(const iq_type *t, float s, float d)
{
    const float real = (s / (d * t->factor) - t->first) / t->gap;
    return apr_clamp(apr_round_even(apr_clamp(real, 0.0f, 16.0f) - 0.5f), 0.0f, (float)(t->n_scales - 2));
}

/* Candidate j for d: the largest scale of all sub-blocks divided by the largest multiplier, times 0.75 to 1.3. */
APR_HOST_DEVICE static inline uint16_t iq_candidate(const iq_type *t, float largest, int j)
{
    return iq_stored_scale(largest / (iq_multiplier(t, (float)(t->n_scales - 1)) * t->factor) * (0.75f + 0.0175f * (float)j));
}

/* ---- bytes ---- */

/* Replaces a group's words by the numbers of their points in the book, of which bytes are made. */
static inline void iq_number_points(const iq_type *t, const apr_iq_book *book, iq_block *b)
{
    for (int g = 0; g < IQ_ELEMS / 8; g++)
        for (int h = 0; h < 8 / t->n_values; h++) b->group[g].word[h] = book->index[apr_iq_cell_of_word(book, b->group[g].word[h])];
}

APR_HOST_DEVICE static inline uint8_t iq_nibbles(const uint8_t *stored) { return (uint8_t)(stored[0] | stored[1] << 4); }

/* A sub-block's four times seven signs, and its scale. */
APR_HOST_DEVICE static inline uint32_t iq_signs_and_scale(const iq_block *b, int sub)
{
    uint32_t word = (uint32_t)b->stored[sub] << 28;
    for (int g = 0; g < 4; g++) word |= (uint32_t)(b->group[4 * sub + g].bits & 0x7f) << 7 * g;
    return word;
}

APR_HOST_DEVICE static inline void iq_pack_iq2_xxs(const iq_block *b, apr_block_IQ2_XXS *to)
{
    to->d = b->d;
    for (int sub = 0; sub < 8; sub++) {
        uint32_t points = 0;
        for (int g = 0; g < 4; g++) points |= (uint32_t)b->group[4 * sub + g].word[0] << 8 * g;
        to->qs[sub][0] = points;
        to->qs[sub][1] = iq_signs_and_scale(b, sub);
    }
}

APR_HOST_DEVICE static inline void iq_pack_iq2_xs(const iq_block *b, apr_block_IQ2_XS *to)
{
    to->d = b->d;
    for (int g = 0; g < 32; g++) to->qs[g] = (uint16_t)(b->group[g].word[0] | (b->group[g].bits & 0x7fu) << 9);
    for (int i = 0; i < 8; i++) to->scales[i] = iq_nibbles(b->stored + 2 * i);
}

APR_HOST_DEVICE static inline void iq_pack_iq2_s(const iq_block *b, apr_block_IQ2_S *to)
{
    to->d = b->d;
    memset(to->qh, 0, sizeof to->qh);
    for (int g = 0; g < 32; g++) {
        const unsigned point = b->group[g].word[0];
        to->qs[g] = (uint8_t)point;
        to->qh[g / 4] |= (uint8_t)(point >> 8 << g % 4 * 2);
        to->signs[g] = b->group[g].bits;
    }
    for (int i = 0; i < 8; i++) to->scales[i] = iq_nibbles(b->stored + 2 * i);
}

APR_HOST_DEVICE static inline void iq_pack_iq3_xxs(const iq_block *b, apr_block_IQ3_XXS *to)
{
    to->d = b->d;
    for (int g = 0; g < 64; g++) to->qs[g] = (uint8_t)b->group[g / 2].word[g % 2];
    for (int sub = 0; sub < 8; sub++) to->scales_signs[sub] = iq_signs_and_scale(b, sub);
}

APR_HOST_DEVICE static inline void iq_pack_iq3_s(const iq_block *b, apr_block_IQ3_S *to)
{
    to->d = b->d;
    memset(to->qh, 0, sizeof to->qh);
    for (int g = 0; g < 64; g++) {
        const unsigned point = b->group[g / 2].word[g % 2];
        to->qs[g] = (uint8_t)point;
        to->qh[g / 8] |= (uint8_t)(point >> 8 << g % 8);
    }
    for (int g = 0; g < 32; g++) to->signs[g] = b->group[g].bits;
    for (int i = 0; i < 4; i++) to->scales[i] = iq_nibbles(b->stored + 2 * i);
}

APR_HOST_DEVICE static inline void iq_pack_iq1_s(const iq_block *b, apr_block_IQ1_S *to)
{
    to->d = b->d;
    for (int sub = 0; sub < 8; sub++) {
        const iq_group *const group = b->group + 4 * sub;
        unsigned word = (unsigned)b->stored[sub] << 12 | (unsigned)group[0].bits << 15;
        for (int g = 0; g < 4; g++) {
            const unsigned point = group[g].word[0];
            to->qs[4 * sub + g] = (uint8_t)point;
            word |= point >> 8 << 3 * g;
        }
        to->qh[sub] = (uint16_t)word;
    }
}

APR_HOST_DEVICE static inline void iq_pack_iq1_m(const iq_block *b, apr_block_IQ1_M *to)
{
    for (int w = 0; w < 4; w++) {
        unsigned word = (b->d >> 4 * w & 0xfu) << 12;
        for (int i = 0; i < 4; i++) word |= (unsigned)b->stored[4 * w + i] << 3 * i;
        to->scales[w] = (uint16_t)word;
    }
    memset(to->qh, 0, sizeof to->qh);
    for (int g = 0; g < 32; g++) {
        const unsigned point = b->group[g].word[0];
        to->qs[g] = (uint8_t)point;
        to->qh[g / 2] |= (uint8_t)((point >> 8 | (unsigned)b->group[g].bits << 3) << g % 2 * 4);
    }
}

#endif
