/* simd_q6_k.c - Q6_K, one sub-block a lane: the search of kernels/ref/q6_k.c, step by step, in all lanes at once.
 *
 * The 16 sub-blocks of a block take one or two vectors. Where the reference skips a scale for a sub-block, its lane is masked.
 *
 * w: weights of the values; NULL: all are 1, a faster case for which the compiler removes the rest. */
#include "kernels/host/codecs/simd_codecs.h"
#include "kernels/host/codecs/simd_transpose.h"
#include "kernels/ref/codecs.h"
#include "kernels/ref/k_search.h"

enum { ELEMS = 256, SUBS = 16, SUB_ELEMS = 16, VECTORS = SUBS / WIDE };
enum { MIN_CODE = -32, MAX_CODE = 31, MIN_SCALE = -128, MAX_SCALE = 127 };

typedef struct sums {
    wide qq, qx;
} sums;

static const float rounder = 12582912.0f; /* 1.5 * 2^23: see apr_round_even */

WIDE_INLINE wide inverse_of(wide step) { return wide_where(wide_differs(step, wide_set(0.0f)), wide_div(wide_set(1.0f), step)); }

/* Clamps before the rounder is subtracted. */
WIDE_INLINE wide code_of(wide x, wide inverse)
{
    const wide v = wide_add(wide_mul(x, inverse), wide_set(rounder));
    return wide_sub(wide_clamp(v, rounder + (float)MIN_CODE, rounder + (float)MAX_CODE), wide_set(rounder));
}

/* Without weights, sums of squared codes are integers, exact in any order; other sums are kept in eight parts. */
WIDE_INLINE wide try_steps(const wide *x, const wide *w, wide step, bool want_error, sums *s)
{
    const wide inverse = inverse_of(step);
    wide whole[2] = {wide_set(0.0f), wide_set(0.0f)}, qq[8], qx[8], ee[8];

#pragma GCC unroll 8
    for (int l = 0; l < 8; l++) {
        const wide q = code_of(x[l], inverse), r = code_of(x[8 + l], inverse);
        const wide wq = w != NULL ? wide_mul(w[l], q) : q, wr = w != NULL ? wide_mul(w[8 + l], r) : r;
        if (w != NULL) {
            qq[l] = wide_add(wide_mul(wq, q), wide_mul(wr, r));
        } else {
            whole[0] = wide_integer_fma(q, q, whole[0]);
            whole[1] = wide_integer_fma(r, r, whole[1]);
        }
        qx[l] = wide_add(wide_mul(wq, x[l]), wide_mul(wr, x[8 + l]));
        if (!want_error) continue;
        const wide e = wide_sub(wide_mul(step, q), x[l]), f = wide_sub(wide_mul(step, r), x[8 + l]);
        ee[l] = wide_add(wide_mul(w != NULL ? wide_mul(w[l], e) : e, e), wide_mul(w != NULL ? wide_mul(w[8 + l], f) : f, f));
    }
    s->qq = w != NULL ? wide_sum8(qq) : wide_add(whole[0], whole[1]);
    s->qx = wide_sum8(qx);
    return want_error ? wide_sum8(ee) : wide_set(0.0f);
}

/* Step 1. */
WIDE_INLINE wide search_sub_blocks(const wide *x, const wide *w)
{
    enum { TRIALS = APR_Q6_K_TRIALS };
    const wide zero = wide_set(0.0f);
    wide amax = zero, extreme = zero, gain = zero, best = zero;

    for (int j = 0; j < SUB_ELEMS; j++) {
        const wide magnitude = wide_abs(x[j]);
        const wide_mask larger = wide_less(amax, magnitude);
        amax = wide_choose(larger, magnitude, amax);
        extreme = wide_choose(larger, x[j], extreme);
    }
    const wide_mask has_range = wide_less(wide_set(0x1p-40f), amax);
    for (int t = 0; t < TRIALS; t++) {
        sums s;
        try_steps(x, w, wide_div(extreme, wide_set(APR_Q6_K_MIDDLE + APR_Q6_K_GAP * (float)(TRIALS / 2 - t))), false, &s);
        const wide fit = wide_div(s.qx, s.qq), won = wide_mul(s.qx, fit);
        const wide_mask better = wide_both(has_range, wide_less(gain, won));
        gain = wide_choose(better, won, gain);
        best = wide_choose(better, fit, best);
    }
    return best;
}

/* The contribution of each sub-block to the sums over the block. */
typedef struct parts {
    float error[SUBS], scale[SUBS], aa[SUBS], ax[SUBS];
} parts;

/* Step 3 for the sub-blocks of vector v, whose current scales are in p. */
WIDE_INLINE void choose_scales(const wide *x, const wide *w, float d, int v, parts *p)
{
    const wide middle = wide_load(p->scale + v * WIDE), first = wide_set((float)MIN_SCALE), last = wide_set((float)MAX_SCALE);
    wide least = wide_set(-1.0f), scale = middle, qq = least, qx = least;

    for (int away = -APR_Q6_K_REACH; away <= APR_Q6_K_REACH; away++) {
        const wide t = wide_add(middle, wide_set((float)away));
        const wide_mask allowed = wide_both(wide_at_most(first, t), wide_at_most(t, last));
        sums s;
        const wide error = try_steps(x, w, wide_mul(wide_set(d), t), true, &s);
        const wide_mask better = wide_both(allowed, wide_either(wide_less(least, wide_set(0.0f)), wide_less(error, least)));
        least = wide_choose(better, error, least);
        qq = wide_choose(better, s.qq, qq);
        qx = wide_choose(better, s.qx, qx);
        scale = wide_choose(better, t, scale);
    }
    wide_store(p->error + v * WIDE, least);
    wide_store(p->scale + v * WIDE, scale);
    wide_store(p->aa + v * WIDE, wide_mul(wide_mul(scale, scale), qq));
    wide_store(p->ax + v * WIDE, wide_mul(scale, qx));
}

/* The stored scales of a block, and its squared error. */
typedef struct block_scales {
    uint16_t d; /* half */
    float scale[SUBS], error;
} block_scales;

/* To FP16; a non-zero value stays non-zero, and a too large one becomes the largest. */
static uint16_t stored_scale(float x)
{
    const uint16_t half = apr_f32_to_f16(apr_clamp(x, -APR_F16_MAX, APR_F16_MAX));
    return (half & 0x7fff) == 0 && x != 0.0f ? (uint16_t)(half | 1) : half;
}

/* The value with the largest magnitude; the first of equals. */
static float signed_largest(const float *a)
{
    float largest = 0.0f, value = 0.0f;
    for (int i = 0; i < SUBS; i++) {
        const float magnitude = a[i] < 0.0f ? -a[i] : a[i];
        if (magnitude > largest) largest = magnitude, value = a[i];
    }
    return value;
}

/* w: [VECTORS] of SUB_ELEMS, or NULL */
WIDE_INLINE void search_block(const wide x[VECTORS][SUB_ELEMS], const wide *w, block_scales *best)
{
    uint16_t d;
    parts p;

    for (int v = 0; v < VECTORS; v++) wide_store(p.scale + v * WIDE, search_sub_blocks(x[v], w != NULL ? w + v * SUB_ELEMS : NULL));
    best->d = d = stored_scale(signed_largest(p.scale) / (float)MIN_SCALE);
    for (int v = 0; v < VECTORS; v++) {
        const wide scale = wide_mul(wide_load(p.scale + v * WIDE), inverse_of(wide_set(apr_f16_to_f32(d))));
        wide_store(p.scale + v * WIDE, wide_clamp(wide_round(scale), (float)MIN_SCALE, (float)MAX_SCALE));
    }
    for (int round = 0; round < APR_Q6_K_ROUNDS; round++) {
        float error = 0.0f, aa = 0.0f, ax = 0.0f;
        for (int v = 0; v < VECTORS; v++) choose_scales(x[v], w != NULL ? w + v * SUB_ELEMS : NULL, apr_f16_to_f32(d), v, &p);
        for (int sub = 0; sub < SUBS; sub++) error += p.error[sub], aa += p.aa[sub], ax += p.ax[sub];
        if (round > 0 && !(error < best->error)) break;
        best->d = d;
        best->error = error;
        memcpy(best->scale, p.scale, sizeof best->scale);
        if (!(aa > 0.0f)) break;
        d = stored_scale(ax / aa);
        if (d == best->d) break;
    }
}

/* Codes plus 32 of a block whose values are stored in order. */
WIDE_INLINE void codes_of(const float *x, const block_scales *best, uint8_t *code)
{
    const float d = apr_f16_to_f32(best->d);
    for (int sub = 0; sub < SUBS; sub++) {
        const wide inverse = inverse_of(wide_set(d * best->scale[sub]));
        for (int j = sub * SUB_ELEMS; j < (sub + 1) * SUB_ELEMS; j += WIDE)
            wide_store_bytes(code + j, wide_add(code_of(wide_load(x + j), inverse), wide_set((float)-MIN_CODE)));
    }
}

WIDE_INLINE void store_block(const float *flat, const block_scales *best, apr_block_Q6_K *block)
{
    uint8_t code[ELEMS];

    codes_of(flat, best, code);
    block->d = best->d;
    for (int sub = 0; sub < SUBS; sub++) block->scales[sub] = (int8_t)best->scale[sub];
    for (int half = 0; half < 2; half++) { /* elements 32 * k + l of a half: see the reference's decoder */
        const uint8_t *const c = code + 128 * half;
        for (int l = 0; l < 64; l += 16) wide_pack_nibbles(block->ql + 64 * half + l, c + l, c + 64 + l);
        for (int l = 0; l < 32; l++)
            block->qh[32 * half + l] = (uint8_t)(c[l] >> 4 | c[32 + l] >> 4 << 2 | c[64 + l] >> 4 << 4 | c[96 + l] >> 4 << 6);
    }
}

static const float limit = APR_F16_MAX * (float)MAX_SCALE * (float)MAX_CODE;

static void encode_q6_k_block(const float *src, uint8_t *dst)
{
    float flat[ELEMS];
    wide x[VECTORS][SUB_ELEMS];
    block_scales best;

    for (int v = 0; v < VECTORS; v++)
        wide_transpose_blocks(src + v * WIDE * SUB_ELEMS, SUB_ELEMS, limit, flat + v * WIDE * SUB_ELEMS, x[v]);
    search_block(x, NULL, &best);
    store_block(flat, &best, (apr_block_Q6_K *)dst);
}

static void encode_q6_k_block_by(const float *src, const float *importance, uint8_t *dst)
{
    float flat[ELEMS], weights[ELEMS];
    wide x[VECTORS][SUB_ELEMS], w[VECTORS * SUB_ELEMS];
    block_scales best;

    apr_block_weights(importance, ELEMS, weights);
    for (int v = 0; v < VECTORS; v++) {
        wide_transpose_blocks(src + v * WIDE * SUB_ELEMS, SUB_ELEMS, limit, flat + v * WIDE * SUB_ELEMS, x[v]);
        wide_transpose_weights(weights + v * WIDE * SUB_ELEMS, SUB_ELEMS, w + v * SUB_ELEMS);
    }
    search_block(x, w, &best);
    store_block(flat, &best, (apr_block_Q6_K *)dst);
}

void WIDE_NAME(apr_encode_q6_k)(const float *src, void *dst, int64_t n_elems)
{
    wide_encode_groups(src, dst, n_elems, ELEMS, ELEMS, sizeof(apr_block_Q6_K), encode_q6_k_block);
}

void WIDE_NAME(apr_encode_q6_k_by)(const float *src, const float *importance, void *dst, int64_t n_elems)
{
    wide_encode_groups_by(src, importance, dst, n_elems, ELEMS, ELEMS, sizeof(apr_block_Q6_K), encode_q6_k_block_by);
}
