/* simd_steps.c - encoders of types whose values are step * level, one block or sub-block a lane: the searches of
 * kernels/ref/step_search.h, step by step, in all lanes at once. Q3_K, IQ4_NL and IQ4_XS.
 *
 * w: weights of the values; NULL: all are 1, a faster case for which the compiler removes the rest. Where the reference stops early, a
 * lane continues and is masked. */
#include "kernels/host/codecs/simd_codecs.h"
#include "kernels/host/codecs/simd_iq4_levels.h"
#include "kernels/host/codecs/simd_transpose.h"
#include "kernels/ref/step_search.h"

/* The levels that are nearest to the lanes of eight vectors. */
typedef void (*wide_levels_fn)(const wide v[8], wide level[8]);

typedef struct step_sums {
    wide cc, cx;
} step_sums;

WIDE_INLINE wide inverse_of(wide step) { return wide_where(wide_differs(step, wide_set(0.0f)), wide_div(wide_set(1.0f), step)); }

/* As apr_step_fit, of a step's inverse. Without weights the sum of squared levels is an integer, exact in any order. */
WIDE_INLINE step_sums fit_step(const wide *x, const wide *w, int n, wide inverse, wide_levels_fn levels)
{
    const wide zero = wide_set(0.0f);
    wide whole[2] = {zero, zero}, cc[8], cx[8];

    for (int l = 0; l < 8; l++) cc[l] = cx[l] = zero;
#pragma GCC unroll 2
    for (int j = 0; j < n; j += 8) {
        wide v[8], c[8];
#pragma GCC unroll 8
        for (int l = 0; l < 8; l++) v[l] = wide_mul(x[j + l], inverse);
        levels(v, c);
#pragma GCC unroll 8
        for (int l = 0; l < 8; l++) {
            const wide wc = w != NULL ? wide_mul(w[j + l], c[l]) : c[l];
            if (w != NULL) cc[l] = wide_add(cc[l], wide_mul(wc, c[l]));
            else whole[l % 2] = wide_integer_fma(c[l], c[l], whole[l % 2]);
            cx[l] = wide_add(cx[l], wide_mul(wc, x[j + l]));
        }
    }
    return (step_sums){w != NULL ? wide_sum8(cc) : wide_add(whole[0], whole[1]), wide_sum8(cx)};
}

/* As apr_step_error. */
WIDE_INLINE wide error_of(const wide *x, const wide *w, int n, wide step, wide_levels_fn levels)
{
    const wide inverse = inverse_of(step);
    wide ee[8];

    for (int l = 0; l < 8; l++) ee[l] = wide_set(0.0f);
#pragma GCC unroll 2
    for (int j = 0; j < n; j += 8) {
        wide v[8], c[8];
#pragma GCC unroll 8
        for (int l = 0; l < 8; l++) v[l] = wide_mul(x[j + l], inverse);
        levels(v, c);
#pragma GCC unroll 8
        for (int l = 0; l < 8; l++) {
            const wide e = wide_sub(wide_mul(step, c[l]), x[j + l]);
            ee[l] = wide_add(ee[l], wide_mul(w != NULL ? wide_mul(w[j + l], e) : e, e));
        }
    }
    return wide_sum8(ee);
}

/* The levels of a type, and how many values have one step. */
typedef struct step_kind {
    int n;
    float mirrored; /* values of at most this magnitude, in steps, have levels of both signs */
    step_sums (*fit)(const wide *x, const wide *w, wide inverse);
    step_sums (*fit_mirrored)(const wide *x, const wide *w, wide inverse); /* the same, for such values only */
    wide (*error)(const wide *x, const wide *w, wide step);
} step_kind;

/* Functions of their own, because each is long and used in several places. */
#define STEP_FIT(name, n, levels)                                                                      \
    static step_sums fit_##name(const wide *x, const wide *w, wide inverse)                            \
    {                                                                                                  \
        return w != NULL ? fit_step(x, w, n, inverse, levels) : fit_step(x, NULL, n, inverse, levels); \
    }
#define STEP_KIND(name, n, mirrored, fit_mirrored, levels)                                       \
    STEP_FIT(name, n, levels)                                                                    \
    static wide error_##name(const wide *x, const wide *w, wide step)                            \
    {                                                                                            \
        return w != NULL ? error_of(x, w, n, step, levels) : error_of(x, NULL, n, step, levels); \
    }                                                                                            \
    static const step_kind kind_##name = {n, mirrored, fit_##name, fit_mirrored, error_##name};

/* The weights of vector v, or NULL. */
static const wide *weights_at(const wide *w, int at) { return w != NULL ? w + at : NULL; }

typedef struct best_steps {
    wide gain, step;
} best_steps;

/* As apr_step_try, in the lanes of `allowed`. s: the sums of the step's levels. */
WIDE_INLINE void try_sums(step_sums s, float margin, wide_mask allowed, best_steps *best)
{
    const wide fit = wide_where(wide_less(wide_set(0.0f), s.cc), wide_div(s.cx, s.cc)), won = wide_mul(s.cx, fit);
    const wide_mask better = wide_both(allowed, wide_less(wide_mul(wide_set(margin), best->gain), won));
    best->gain = wide_choose(better, won, best->gain);
    best->step = wide_choose(better, fit, best->step);
}

/* As apr_search_step. No value is larger than `divisor` steps. If all levels of such values exist with both signs, the step of the other
 * sign gives mirrored levels and the same gain. It cannot be better, because margins are at least 1, and is left out. */
static wide search_steps(const step_kind *kind, const wide *x, const wide *w, const apr_step_search *search)
{
    const wide zero = wide_set(0.0f);
    wide amax = zero, extreme = zero;
    best_steps best = {zero, zero};
    float divisor = search->first;

    for (int j = 0; j < kind->n; j++) {
        const wide magnitude = wide_abs(x[j]);
        const wide_mask larger = wide_less(amax, magnitude);
        amax = wide_choose(larger, magnitude, amax);
        extreme = wide_choose(larger, x[j], extreme);
    }
    const wide_mask has_range = wide_less(wide_set(0x1p-40f), amax);
    if (search->longer < 0.0f) extreme = wide_minus(extreme);
    for (int t = 0; t < search->trials; t++, divisor *= search->ratio) {
        const wide inverse = inverse_of(wide_div(extreme, wide_set(divisor)));
        const bool is_mirrored = divisor <= kind->mirrored;
        try_sums(is_mirrored ? kind->fit_mirrored(x, w, inverse) : kind->fit(x, w, inverse), search->margin, has_range, &best);
        if (search->longer != 0.0f && !is_mirrored) try_sums(kind->fit(x, w, wide_minus(inverse)), search->margin, has_range, &best);
    }
    for (int p = 0; p < search->polishes; p++) try_sums(kind->fit(x, w, inverse_of(best.step)), search->margin, has_range, &best);
    return best.step;
}

/* As apr_search_f16_step; the FP16 numbers are made lane by lane. */
static void search_f16_steps(const step_kind *kind, const wide *x, const wide *w, wide step, uint16_t d[WIDE])
{
    static const int sides[3] = {0, -1, 1};
    float steps[WIDE], values[WIDE], error[WIDE], least[WIDE];
    uint16_t half[WIDE], other[WIDE];

    wide_store(steps, step);
    for (int b = 0; b < WIDE; b++) half[b] = apr_f32_to_f16(apr_clamp(steps[b], -APR_F16_MAX, APR_F16_MAX));
    for (int k = 0; k < 3; k++) {
        bool exists[WIDE];
        for (int b = 0; b < WIDE; b++) {
            const int next = (half[b] & 0x7fff) + sides[k];
            exists[b] = next >= 0 && next <= 0x7bff;
            other[b] = exists[b] ? (uint16_t)((half[b] & 0x8000) | next) : half[b];
            values[b] = apr_f16_to_f32(other[b]);
        }
        wide_store(error, kind->error(x, w, wide_load(values)));
        for (int b = 0; b < WIDE; b++)
            if (k == 0 || (exists[b] && error[b] < least[b])) least[b] = error[b], d[b] = other[b];
    }
}

/* ---- super-blocks ---- */

enum { MOST_LANES = 16 };

/* Of the sub-blocks of a group: what is ideal, and what has been chosen. */
typedef struct lane_scales {
    float ideal[MOST_LANES], d[MOST_LANES], scale[MOST_LANES], error[MOST_LANES], cc[MOST_LANES], cx[MOST_LANES];
} lane_scales;

/* As apr_choose_scale, for the lanes from `first` on. */
static void choose_scales(const step_kind *kind, const wide *x, const wide *w, int first, lane_scales *p)
{
    const wide d = wide_load(p->d + first), low = wide_set(APR_LEAST_SCALE), high = wide_set(APR_MOST_SCALE);
    const wide middle = wide_clamp(wide_round(wide_mul(wide_load(p->ideal + first), inverse_of(d))), APR_LEAST_SCALE, APR_MOST_SCALE);
    wide least = wide_set(-1.0f), scale = middle;

    for (int away = -1; away <= 1; away++) {
        const wide t = wide_add(middle, wide_set((float)away));
        const wide_mask allowed = wide_both(wide_at_most(low, t), wide_at_most(t, high));
        const wide error = kind->error(x, w, wide_mul(d, t));
        const wide_mask better = wide_both(allowed, wide_either(wide_less(least, wide_set(0.0f)), wide_less(error, least)));
        least = wide_choose(better, error, least);
        scale = wide_choose(better, t, scale);
    }
    wide_store(p->scale + first, scale);
    wide_store(p->error + first, least);
}

/* The sums of the levels that a block's best scales give. */
static void fit_scales(const step_kind *kind, const wide *x, const wide *w, int first, lane_scales *p)
{
    const step_sums s = kind->fit(x, w, inverse_of(wide_mul(wide_load(p->d + first), wide_load(p->scale + first))));
    wide_store(p->cc + first, s.cc);
    wide_store(p->cx + first, s.cx);
}

/* The block whose scales are in p from `first` on. */
static void take_block(const lane_scales *p, int first, int subs, apr_block_scales *block)
{
    block->error = 0.0f;
    for (int sub = 0; sub < subs; sub++) {
        block->scale[sub] = p->scale[first + sub];
        block->error += p->error[first + sub];
    }
}

static void put_block(const apr_block_scales *block, int first, int subs, lane_scales *p)
{
    for (int sub = 0; sub < subs; sub++) {
        p->d[first + sub] = apr_f16_to_f32(block->d);
        p->scale[first + sub] = block->scale[sub];
    }
}

static uint16_t first_d(const float *ideal, int subs)
{
    float largest = 0.0f, extreme = 0.0f;
    for (int sub = 0; sub < subs; sub++) {
        const float magnitude = ideal[sub] < 0.0f ? -ideal[sub] : ideal[sub];
        if (magnitude > largest) largest = magnitude, extreme = ideal[sub];
    }
    return apr_stored_scale(extreme / APR_LEAST_SCALE);
}

static uint16_t fitted_d(const apr_block_scales *block, const lane_scales *p, int first, int subs)
{
    float aa = 0.0f, ax = 0.0f;
    for (int sub = 0; sub < subs; sub++) {
        const float a = block->scale[sub];
        aa += a * a * p->cc[first + sub];
        ax += a * p->cx[first + sub];
    }
    return aa > 0.0f ? apr_stored_scale(ax / aa) : block->d;
}

/* As apr_search_scales for `blocks` blocks, whose sub-blocks are the lanes of x: [blocks * subs / WIDE] of sub_elems. */
static void search_scales(const step_kind *kind, const wide *x, const wide *w, const apr_scale_search *search, int blocks,
                          apr_block_scales *best)
{
    const int n = search->sub_elems, subs = search->subs, vectors = blocks * subs / WIDE;
    bool active[MOST_LANES], any = true;
    lane_scales p;

    for (int v = 0; v < vectors; v++) wide_store(p.ideal + v * WIDE, search_steps(kind, x + v * n, weights_at(w, v * n), &search->step));
    for (int b = 0; b < blocks; b++) {
        active[b] = true;
        best[b] = (apr_block_scales){.d = first_d(p.ideal + b * subs, subs)};
        put_block(&best[b], b * subs, subs, &p);
    }
    for (int v = 0; v < vectors; v++) choose_scales(kind, x + v * n, weights_at(w, v * n), v * WIDE, &p);
    for (int b = 0; b < blocks; b++) take_block(&p, b * subs, subs, &best[b]);
    for (int round = 0; round < APR_SCALE_ROUNDS && any; round++) {
        uint16_t d[MOST_LANES];
        for (int b = 0; b < blocks; b++) put_block(&best[b], b * subs, subs, &p);
        for (int v = 0; v < vectors; v++) fit_scales(kind, x + v * n, weights_at(w, v * n), v * WIDE, &p);
        any = false;
        for (int b = 0; b < blocks; b++) {
            apr_block_scales now = best[b];
            now.d = d[b] = fitted_d(&best[b], &p, b * subs, subs);
            active[b] = active[b] && d[b] != best[b].d;
            any = any || active[b];
            put_block(&now, b * subs, subs, &p);
        }
        for (int v = 0; v < vectors && any; v++) choose_scales(kind, x + v * n, weights_at(w, v * n), v * WIDE, &p);
        for (int b = 0; b < blocks && any; b++) {
            apr_block_scales now = {.d = d[b]};
            take_block(&p, b * subs, subs, &now);
            active[b] = active[b] && now.error < best[b].error;
            if (active[b]) best[b] = now;
        }
    }
}

/* ---- Q3_K: the 16 sub-blocks of a block take one or two vectors ---- */

enum { ELEMS = 256, Q3_SUBS = 16, Q3_SUB_ELEMS = 16 };

WIDE_INLINE wide level_q3_k(wide v) { return wide_clamp(wide_round(v), -4.0f, 3.0f); }

WIDE_INLINE void levels_q3_k(const wide v[8], wide level[8])
{
    for (int l = 0; l < 8; l++) level[l] = level_q3_k(v[l]);
}

/* Up to 3.49 a value is rounded to 3 or less, also where the division and the product that gave it were rounded up. */
WIDE_INLINE void mirrored_levels_q3_k(const wide v[8], wide level[8])
{
    for (int l = 0; l < 8; l++) level[l] = wide_round(v[l]);
}

STEP_FIT(mirrored_q3_k, Q3_SUB_ELEMS, mirrored_levels_q3_k)
STEP_KIND(q3_k, Q3_SUB_ELEMS, 3.49f, fit_mirrored_q3_k, levels_q3_k)

/* Packs 256 codes from 0 to 7: see the reference's decoder. */
static void store_q3_k(const uint8_t *code, const apr_block_scales *best, apr_block_Q3_K *block)
{
    *block = (apr_block_Q3_K){.d = best->d};
    for (int sub = 0; sub < Q3_SUBS; sub++) {
        const int scale = (int)best->scale[sub] + 32;
        block->scales[sub % 8] |= (uint8_t)((scale & 0x0f) << sub / 8 * 4);
        block->scales[8 + sub % 4] |= (uint8_t)(scale >> 4 << sub / 4 * 2);
    }
    uint8_t high[32] = {0};
    for (int half = 0; half < 2; half++) {
        const uint8_t *const c = code + 128 * half;
        uint8_t low[32];
        for (int l = 0; l < 32; l++) {
            low[l] = (uint8_t)((c[l] & 3) | (c[32 + l] & 3) << 2 | (c[64 + l] & 3) << 4 | (c[96 + l] & 3) << 6);
            high[l] |= (uint8_t)((c[l] >> 2 | c[32 + l] >> 2 << 1 | c[64 + l] >> 2 << 2 | c[96 + l] >> 2 << 3) << 4 * half);
        }
        memcpy(block->qs + 32 * half, low, sizeof low);
    }
    memcpy(block->hmask, high, sizeof high);
}

static void encode_q3_k_block(const float *src, const float *importance, uint8_t *dst)
{
    static const apr_scale_search search = APR_Q3_K_SEARCH;
    float flat[ELEMS], weights[ELEMS];
    wide x[ELEMS / WIDE], w[ELEMS / WIDE];
    apr_block_scales best;
    uint8_t code[ELEMS];

    if (importance != NULL) apr_block_weights(importance, ELEMS, weights);
    for (int v = 0; v < ELEMS / WIDE; v += Q3_SUB_ELEMS) {
        wide_transpose_blocks(src + v * WIDE, Q3_SUB_ELEMS, APR_F16_MAX * 32.0f * 4.0f, flat + v * WIDE, x + v);
        if (importance != NULL) wide_transpose_weights(weights + v * WIDE, Q3_SUB_ELEMS, w + v);
    }
    search_scales(&kind_q3_k, x, importance != NULL ? w : NULL, &search, 1, &best);
    for (int sub = 0; sub < Q3_SUBS; sub++) {
        const wide inverse = inverse_of(wide_set(apr_f16_to_f32(best.d) * best.scale[sub]));
        for (int j = sub * Q3_SUB_ELEMS; j < (sub + 1) * Q3_SUB_ELEMS; j += WIDE)
            wide_store_bytes(code + j, wide_add(level_q3_k(wide_mul(wide_load(flat + j), inverse)), wide_set(4.0f)));
    }
    store_q3_k(code, &best, (apr_block_Q3_K *)dst);
}

/* ---- IQ4_NL and IQ4_XS ---- */

enum { IQ4_ELEMS = 32, IQ4_SUBS = 8, IQ4_BLOCKS = WIDE / IQ4_SUBS };

/* Only few levels exist with both signs. */
STEP_KIND(iq4, IQ4_ELEMS, 0.0f, NULL, iq4_levels)

WIDE_INLINE wide index_iq4(wide v)
{
    wide index = wide_set(0.0f);
#define ADD(middle, up, none) index = wide_add(index, wide_where(wide_less(wide_set(middle), v), wide_set(1.0f)));
    IQ4_STEPS(ADD, 0)
#undef ADD
    return index;
}

/* Codes of 32 values, packed. */
WIDE_INLINE void pack_iq4(const float *x, float step, uint8_t *qs)
{
    const wide inverse = inverse_of(wide_set(step));
    uint8_t code[IQ4_ELEMS];
    for (int j = 0; j < IQ4_ELEMS; j += WIDE) wide_store_bytes(code + j, index_iq4(wide_mul(wide_load(x + j), inverse)));
    wide_pack_nibbles(qs, code, code + 16);
}

static void encode_iq4_nl_blocks(const float *src, const float *importance, uint8_t *dst)
{
    static const apr_step_search search = APR_IQ4_NL_SEARCH;
    float flat[WIDE * IQ4_ELEMS], weights[WIDE * IQ4_ELEMS];
    wide x[IQ4_ELEMS], w[IQ4_ELEMS];
    uint16_t d[WIDE];

    wide_transpose_blocks(src, IQ4_ELEMS, APR_F16_MAX * 127.0f, flat, x);
    for (int b = 0; b < WIDE && importance != NULL; b++) apr_block_weights(importance + b * IQ4_ELEMS, IQ4_ELEMS, weights + b * IQ4_ELEMS);
    if (importance != NULL) wide_transpose_weights(weights, IQ4_ELEMS, w);
    const wide step = search_steps(&kind_iq4, x, importance != NULL ? w : NULL, &search);
    search_f16_steps(&kind_iq4, x, importance != NULL ? w : NULL, step, d);
    for (int b = 0; b < WIDE; b++) {
        apr_block_IQ4_NL *const block = (apr_block_IQ4_NL *)dst + b;
        block->d = d[b];
        pack_iq4(flat + b * IQ4_ELEMS, apr_f16_to_f32(d[b]), block->qs);
    }
}

static void encode_iq4_xs_blocks(const float *src, const float *importance, uint8_t *dst)
{
    static const apr_scale_search search = APR_IQ4_XS_SEARCH;
    float flat[IQ4_BLOCKS * ELEMS], weights[IQ4_BLOCKS * ELEMS];
    wide x[IQ4_ELEMS], w[IQ4_ELEMS];
    apr_block_scales best[IQ4_BLOCKS];

    wide_transpose_blocks(src, IQ4_ELEMS, APR_F16_MAX * 32.0f * 127.0f, flat, x);
    for (int b = 0; b < IQ4_BLOCKS && importance != NULL; b++) apr_block_weights(importance + b * ELEMS, ELEMS, weights + b * ELEMS);
    if (importance != NULL) wide_transpose_weights(weights, IQ4_ELEMS, w);
    search_scales(&kind_iq4, x, importance != NULL ? w : NULL, &search, IQ4_BLOCKS, best);
    for (int b = 0; b < IQ4_BLOCKS; b++) {
        apr_block_IQ4_XS *const block = (apr_block_IQ4_XS *)dst + b;
        *block = (apr_block_IQ4_XS){.d = best[b].d};
        for (int sub = 0; sub < IQ4_SUBS; sub++) {
            const int scale = (int)best[b].scale[sub] + 32;
            block->scales_l[sub / 2] |= (uint8_t)((scale & 0x0f) << sub % 2 * 4);
            block->scales_h |= (uint16_t)(scale >> 4 << 2 * sub);
            pack_iq4(flat + b * ELEMS + 32 * sub, apr_f16_to_f32(best[b].d) * best[b].scale[sub], block->qs + 16 * sub);
        }
    }
}

/* ---- the table ---- */

#define ENCODERS(id, name, group_elems, block_elems, encode)                                                                              \
    static void encode_##name##_group(const float *src, uint8_t *dst) { encode(src, NULL, dst); }                                         \
    static void encode_##name##_group_by(const float *src, const float *importance, uint8_t *dst) { encode(src, importance, dst); }       \
    static void encode_##name(const float *src, void *dst, int64_t n_elems)                                                               \
    {                                                                                                                                     \
        wide_encode_groups(src, dst, n_elems, group_elems, block_elems, sizeof(apr_block_##id), encode_##name##_group);                   \
    }                                                                                                                                     \
    static void encode_##name##_by(const float *src, const float *importance, void *dst, int64_t n_elems)                                 \
    {                                                                                                                                     \
        wide_encode_groups_by(src, importance, dst, n_elems, group_elems, block_elems, sizeof(apr_block_##id), encode_##name##_group_by); \
    }
ENCODERS(Q3_K, q3_k, ELEMS, ELEMS, encode_q3_k_block)
ENCODERS(IQ4_NL, iq4_nl, WIDE *IQ4_ELEMS, IQ4_ELEMS, encode_iq4_nl_blocks)
ENCODERS(IQ4_XS, iq4_xs, IQ4_BLOCKS *ELEMS, ELEMS, encode_iq4_xs_blocks)

const apr_host_codecs_table WIDE_NAME(apr_simd_steps) = {
    .codecs =
        {
            [APR_Q3_K] = {.encode = encode_q3_k, .encode_by = encode_q3_k_by},
            [APR_IQ4_NL] = {.encode = encode_iq4_nl, .encode_by = encode_iq4_nl_by},
            [APR_IQ4_XS] = {.encode = encode_iq4_xs, .encode_by = encode_iq4_xs_by},
        },
};
