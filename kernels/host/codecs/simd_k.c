/* simd_k.c - encoders of Q4_K, Q5_K and Q6_K, one sub-block a lane: the searches of kernels/ref/q4_q5_k.c and q6_k.c, step by step, in
 * all lanes at once.
 *
 * Where the reference stops early for a sub-block, its lane continues and is masked; so are a block's lanes where it stops for the
 * block. A group is as many blocks as lanes hold: one or two.
 *
 * w: weights of the values; NULL: all are 1, a faster case for which the compiler removes the rest. */
#include "kernels/host/codecs/simd_affine.h"

/* ---- Q4_K and Q5_K ---- */

enum { ELEMS = 256, SUBS = 8, SUB_ELEMS = 32, MAX_SCALE = 63, BLOCKS = WIDE / SUBS };

/* The stored scales of a block, and its squared error. */
typedef struct block_scales {
    uint16_t d, dmin; /* FP16 */
    float scale[SUBS], min[SUBS], error;
} block_scales;

/* Ends a round for one block. Returns whether there is another round, with the new d and dmin in `now`. */
static bool end_round(int round, const parts *p, int first, block_scales *now, block_scales *best)
{
    now->error = sum_of(p->error + first, SUBS);
    memcpy(now->scale, p->scale + first, sizeof now->scale);
    memcpy(now->min, p->min + first, sizeof now->min);
    if (round > 0 && !(now->error < best->error)) return false;
    *best = *now;
    return fit_block(p, first, SUBS, &now->d, &now->dmin) && (now->d != best->d || now->dmin != best->dmin);
}

/* d and dmin of its block for each lane of a group. */
typedef struct lane_scales {
    float d[WIDE], dmin[WIDE];
} lane_scales;

WIDE_INLINE void spread(const block_scales *blocks, lane_scales *lanes)
{
    for (int b = 0; b < BLOCKS; b++) {
        const float d = apr_f16_to_f32(blocks[b].d), dmin = apr_f16_to_f32(blocks[b].dmin);
        for (int i = 0; i < SUBS; i++) lanes->d[b * SUBS + i] = d, lanes->dmin[b * SUBS + i] = dmin;
    }
}

WIDE_INLINE void search_group(const wide *x, const wide *w, apr_k_search search, block_scales best[BLOCKS])
{
    sums s;
    const grids ideal = search_sub_blocks(x, w, SUB_ELEMS, search, w != NULL, &s);
    block_scales now[BLOCKS];
    lane_scales lanes;
    parts p;
    bool active[BLOCKS], any = true;

    wide_store(p.scale, ideal.step);
    wide_store(p.min, ideal.offset);
    for (int b = 0; b < BLOCKS; b++) {
        now[b].d = apr_stored_scale(largest_of(p.scale + b * SUBS, SUBS) / (float)MAX_SCALE);
        now[b].dmin = apr_stored_scale(largest_of(p.min + b * SUBS, SUBS) / (float)MAX_SCALE);
        best[b] = now[b];
        active[b] = true;
    }
    spread(now, &lanes);
    wide scale = nearest_of(wide_mul(ideal.step, inverse_of(wide_load(lanes.d))), (float)MAX_SCALE);
    wide min = nearest_of(wide_mul(ideal.offset, inverse_of(wide_load(lanes.dmin))), (float)MAX_SCALE);
    for (int round = 0; round < search.rounds && any; round++) {
        const wide dmin = wide_load(lanes.dmin);
        choose_scales(x, w, SUB_ELEMS, wide_load(lanes.d), dmin, inverse_of(dmin), search, (float)MAX_SCALE, scale, min, &s, 0, &p);
        any = false;
        for (int b = 0; b < BLOCKS; b++) {
            if (active[b]) active[b] = end_round(round, &p, b * SUBS, &now[b], &best[b]);
            any = any || active[b];
        }
        spread(now, &lanes);
        scale = wide_load(p.scale);
        min = wide_load(p.min);
    }
}

/* Codes of a block whose values are stored in order, as bytes. */
WIDE_INLINE void codes_of(const float *x, const block_scales *best, float max_code, uint8_t *code)
{
    const float d = apr_f16_to_f32(best->d), dmin = apr_f16_to_f32(best->dmin);
    for (int sub = 0; sub < SUBS; sub++) {
        const wide inverse = inverse_of(wide_set(d * best->scale[sub])), offset = wide_set(dmin * best->min[sub]);
        for (int j = sub * SUB_ELEMS; j < (sub + 1) * SUB_ELEMS; j += WIDE)
            wide_store_bytes(code + j, code_of(wide_load(x + j), inverse, offset, max_code, BOUND_BOTH));
    }
}

/* As pack_scales and pack_nibbles of the reference. */
WIDE_INLINE void pack_scales(const block_scales *best, uint8_t *bytes)
{
    for (int j = 0; j < 4; j++) {
        const int scale = (int)best->scale[j], min = (int)best->min[j], scale_4 = (int)best->scale[4 + j], min_4 = (int)best->min[4 + j];
        bytes[j] = (uint8_t)(scale | scale_4 >> 4 << 6);
        bytes[4 + j] = (uint8_t)(min | min_4 >> 4 << 6);
        bytes[8 + j] = (uint8_t)((scale_4 & 0x0f) | (min_4 & 0x0f) << 4);
    }
}

WIDE_INLINE void pack_nibbles(const uint8_t *code, uint8_t *qs)
{
    for (int pair = 0; pair < SUBS / 2; pair++, code += 2 * SUB_ELEMS, qs += SUB_ELEMS)
        for (int l = 0; l < SUB_ELEMS; l += 16) wide_pack_nibbles(qs + l, code + l, code + SUB_ELEMS + l);
}

/* Transposes the weights of a group. */
WIDE_INLINE void transpose_importance(const float *importance, wide *w)
{
    float flat[BLOCKS * ELEMS];
    for (int b = 0; b < BLOCKS; b++) apr_block_weights(importance + b * ELEMS, ELEMS, flat + b * ELEMS);
    wide_transpose_weights(flat, SUB_ELEMS, w);
}

WIDE_INLINE void store_q4_k(const float *flat, const block_scales *best, uint8_t *dst)
{
    static const apr_k_search search = APR_Q4_K_SEARCH;
    uint8_t code[ELEMS];

    for (int b = 0; b < BLOCKS; b++) {
        apr_block_Q4_K *const block = (apr_block_Q4_K *)dst + b;
        block->d = best[b].d;
        block->dmin = best[b].dmin;
        pack_scales(&best[b], block->scales);
        codes_of(flat + b * ELEMS, &best[b], search.max_code, code);
        pack_nibbles(code, block->qs);
    }
}

WIDE_INLINE void store_q5_k(const float *flat, const block_scales *best, uint8_t *dst)
{
    static const apr_k_search search = APR_Q5_K_SEARCH;
    uint8_t code[ELEMS];

    for (int b = 0; b < BLOCKS; b++) {
        apr_block_Q5_K *const block = (apr_block_Q5_K *)dst + b;
        block->d = best[b].d;
        block->dmin = best[b].dmin;
        pack_scales(&best[b], block->scales);
        codes_of(flat + b * ELEMS, &best[b], search.max_code, code);
        pack_nibbles(code, block->qs);
        memset(block->qh, 0, sizeof block->qh);
        for (int sub = 0; sub < SUBS; sub++)
            for (int l = 0; l < SUB_ELEMS; l++) block->qh[l] |= (uint8_t)(code[SUB_ELEMS * sub + l] >> 4 << sub);
    }
}

#define ENCODER(id, name)                                                                                                             \
    static void encode_##name##_group(const float *src, uint8_t *dst)                                                                 \
    {                                                                                                                                 \
        static const apr_k_search search = APR_##id##_SEARCH;                                                                         \
        float flat[BLOCKS * ELEMS];                                                                                                   \
        wide x[SUB_ELEMS];                                                                                                            \
        block_scales best[BLOCKS];                                                                                                    \
        wide_transpose_blocks(src, SUB_ELEMS, APR_F16_MAX *(float)MAX_SCALE *search.max_code, flat, x);                               \
        search_group(x, NULL, search, best);                                                                                          \
        store_##name(flat, best, dst);                                                                                                \
    }                                                                                                                                 \
    static void encode_##name##_group_by(const float *src, const float *importance, uint8_t *dst)                                     \
    {                                                                                                                                 \
        static const apr_k_search search = APR_##id##_SEARCH;                                                                         \
        float flat[BLOCKS * ELEMS];                                                                                                   \
        wide x[SUB_ELEMS], w[SUB_ELEMS];                                                                                              \
        block_scales best[BLOCKS];                                                                                                    \
        wide_transpose_blocks(src, SUB_ELEMS, APR_F16_MAX *(float)MAX_SCALE *search.max_code, flat, x);                               \
        transpose_importance(importance, w);                                                                                          \
        search_group(x, w, search, best);                                                                                             \
        store_##name(flat, best, dst);                                                                                                \
    }                                                                                                                                 \
    static void encode_##name(const float *src, void *dst, int64_t n_elems)                                                           \
    {                                                                                                                                 \
        wide_encode_groups(src, dst, n_elems, BLOCKS *ELEMS, ELEMS, sizeof(apr_block_##id), encode_##name##_group);                   \
    }                                                                                                                                 \
    static void encode_##name##_by(const float *src, const float *importance, void *dst, int64_t n_elems)                             \
    {                                                                                                                                 \
        wide_encode_groups_by(src, importance, dst, n_elems, BLOCKS *ELEMS, ELEMS, sizeof(apr_block_##id), encode_##name##_group_by); \
    }
ENCODER(Q4_K, q4_k)
ENCODER(Q5_K, q5_k)

/* ---- Q6_K: the 16 sub-blocks of a block take one or two vectors. Where the reference skips a scale, the lane is masked. ---- */

enum { Q6_SUBS = 16, Q6_SUB_ELEMS = 16, VECTORS = Q6_SUBS / WIDE };
enum { MIN_CODE = -32, MAX_CODE = 31, Q6_MIN_SCALE = -128, Q6_MAX_SCALE = 127 };

typedef struct q6_sums {
    wide qq, qx;
} q6_sums;

WIDE_INLINE wide q6_inverse_of(wide step) { return wide_where(wide_differs(step, wide_set(0.0f)), wide_div(wide_set(1.0f), step)); }

/* Clamps before the rounder is subtracted. */
WIDE_INLINE wide q6_code_of(wide x, wide inverse)
{
    const wide v = wide_add(wide_mul(x, inverse), wide_set(rounder));
    return wide_sub(wide_clamp(v, rounder + (float)MIN_CODE, rounder + (float)MAX_CODE), wide_set(rounder));
}

/* Without weights, sums of squared codes are integers, exact in any order; other sums are kept in eight parts. */
WIDE_INLINE wide try_steps(const wide *x, const wide *w, wide step, bool want_error, q6_sums *s)
{
    const wide inverse = q6_inverse_of(step);
    wide whole[2] = {wide_set(0.0f), wide_set(0.0f)}, qq[8], qx[8], ee[8];

#pragma GCC unroll 8
    for (int l = 0; l < 8; l++) {
        const wide q = q6_code_of(x[l], inverse), r = q6_code_of(x[8 + l], inverse);
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
WIDE_INLINE wide q6_search_sub_blocks(const wide *x, const wide *w)
{
    enum { TRIALS = APR_Q6_K_TRIALS };
    const wide zero = wide_set(0.0f);
    wide amax = zero, extreme = zero, gain = zero, best = zero;

    for (int j = 0; j < Q6_SUB_ELEMS; j++) {
        const wide magnitude = wide_abs(x[j]);
        const wide_mask larger = wide_less(amax, magnitude);
        amax = wide_choose(larger, magnitude, amax);
        extreme = wide_choose(larger, x[j], extreme);
    }
    const wide_mask has_range = wide_less(wide_set(0x1p-40f), amax);
    for (int t = 0; t < TRIALS; t++) {
        q6_sums s;
        try_steps(x, w, wide_div(extreme, wide_set(APR_Q6_K_MIDDLE + APR_Q6_K_GAP * (float)(TRIALS / 2 - t))), false, &s);
        const wide fit = wide_div(s.qx, s.qq), won = wide_mul(s.qx, fit);
        const wide_mask better = wide_both(has_range, wide_less(gain, won));
        gain = wide_choose(better, won, gain);
        best = wide_choose(better, fit, best);
    }
    return best;
}

/* The contribution of each sub-block to the sums over the block. */
typedef struct q6_parts {
    float error[Q6_SUBS], scale[Q6_SUBS], aa[Q6_SUBS], ax[Q6_SUBS];
} q6_parts;

/* Step 3 for the sub-blocks of vector v, whose current scales are in p. */
WIDE_INLINE void q6_choose_scales(const wide *x, const wide *w, float d, int v, q6_parts *p)
{
    const wide middle = wide_load(p->scale + v * WIDE), first = wide_set((float)Q6_MIN_SCALE), last = wide_set((float)Q6_MAX_SCALE);
    wide least = wide_set(-1.0f), scale = middle, qq = least, qx = least;

    for (int away = -APR_Q6_K_REACH; away <= APR_Q6_K_REACH; away++) {
        const wide t = wide_add(middle, wide_set((float)away));
        const wide_mask allowed = wide_both(wide_at_most(first, t), wide_at_most(t, last));
        q6_sums s;
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
typedef struct q6_block_scales {
    uint16_t d; /* half */
    float scale[Q6_SUBS], error;
} q6_block_scales;

/* The value with the largest magnitude; the first of equals. */
static float signed_largest(const float *a)
{
    float largest = 0.0f, value = 0.0f;
    for (int i = 0; i < Q6_SUBS; i++) {
        const float magnitude = a[i] < 0.0f ? -a[i] : a[i];
        if (magnitude > largest) largest = magnitude, value = a[i];
    }
    return value;
}

/* w: [VECTORS] of Q6_SUB_ELEMS, or NULL */
WIDE_INLINE void search_block(const wide x[VECTORS][Q6_SUB_ELEMS], const wide *w, q6_block_scales *best)
{
    uint16_t d;
    q6_parts p;

    for (int v = 0; v < VECTORS; v++) wide_store(p.scale + v * WIDE, q6_search_sub_blocks(x[v], w != NULL ? w + v * Q6_SUB_ELEMS : NULL));
    best->d = d = apr_stored_scale(signed_largest(p.scale) / (float)Q6_MIN_SCALE);
    for (int v = 0; v < VECTORS; v++) {
        const wide scale = wide_mul(wide_load(p.scale + v * WIDE), q6_inverse_of(wide_set(apr_f16_to_f32(d))));
        wide_store(p.scale + v * WIDE, wide_clamp(wide_round(scale), (float)Q6_MIN_SCALE, (float)Q6_MAX_SCALE));
    }
    for (int round = 0; round < APR_Q6_K_ROUNDS; round++) {
        float error = 0.0f, aa = 0.0f, ax = 0.0f;
        for (int v = 0; v < VECTORS; v++) q6_choose_scales(x[v], w != NULL ? w + v * Q6_SUB_ELEMS : NULL, apr_f16_to_f32(d), v, &p);
        for (int sub = 0; sub < Q6_SUBS; sub++) error += p.error[sub], aa += p.aa[sub], ax += p.ax[sub];
        if (round > 0 && !(error < best->error)) break;
        best->d = d;
        best->error = error;
        memcpy(best->scale, p.scale, sizeof best->scale);
        if (!(aa > 0.0f)) break;
        d = apr_stored_scale(ax / aa);
        if (d == best->d) break;
    }
}

/* Codes plus 32 of a block whose values are stored in order. */
WIDE_INLINE void q6_codes_of(const float *x, const q6_block_scales *best, uint8_t *code)
{
    const float d = apr_f16_to_f32(best->d);
    for (int sub = 0; sub < Q6_SUBS; sub++) {
        const wide inverse = q6_inverse_of(wide_set(d * best->scale[sub]));
        for (int j = sub * Q6_SUB_ELEMS; j < (sub + 1) * Q6_SUB_ELEMS; j += WIDE)
            wide_store_bytes(code + j, wide_add(q6_code_of(wide_load(x + j), inverse), wide_set((float)-MIN_CODE)));
    }
}

WIDE_INLINE void store_block(const float *flat, const q6_block_scales *best, apr_block_Q6_K *block)
{
    uint8_t code[ELEMS];

    q6_codes_of(flat, best, code);
    block->d = best->d;
    for (int sub = 0; sub < Q6_SUBS; sub++) block->scales[sub] = (int8_t)best->scale[sub];
    for (int half = 0; half < 2; half++) { /* elements 32 * k + l of a half: see the reference's decoder */
        const uint8_t *const c = code + 128 * half;
        for (int l = 0; l < 64; l += 16) wide_pack_nibbles(block->ql + 64 * half + l, c + l, c + 64 + l);
        for (int l = 0; l < 32; l++)
            block->qh[32 * half + l] = (uint8_t)(c[l] >> 4 | c[32 + l] >> 4 << 2 | c[64 + l] >> 4 << 4 | c[96 + l] >> 4 << 6);
    }
}

static const float q6_limit = APR_F16_MAX * (float)Q6_MAX_SCALE * (float)MAX_CODE;

static void encode_q6_k_block(const float *src, uint8_t *dst)
{
    float flat[ELEMS];
    wide x[VECTORS][Q6_SUB_ELEMS];
    q6_block_scales best;

    for (int v = 0; v < VECTORS; v++)
        wide_transpose_blocks(src + v * WIDE * Q6_SUB_ELEMS, Q6_SUB_ELEMS, q6_limit, flat + v * WIDE * Q6_SUB_ELEMS, x[v]);
    search_block(x, NULL, &best);
    store_block(flat, &best, (apr_block_Q6_K *)dst);
}

static void encode_q6_k_block_by(const float *src, const float *importance, uint8_t *dst)
{
    float flat[ELEMS], weights[ELEMS];
    wide x[VECTORS][Q6_SUB_ELEMS], w[VECTORS * Q6_SUB_ELEMS];
    q6_block_scales best;

    apr_block_weights(importance, ELEMS, weights);
    for (int v = 0; v < VECTORS; v++) {
        wide_transpose_blocks(src + v * WIDE * Q6_SUB_ELEMS, Q6_SUB_ELEMS, q6_limit, flat + v * WIDE * Q6_SUB_ELEMS, x[v]);
        wide_transpose_weights(weights + v * WIDE * Q6_SUB_ELEMS, Q6_SUB_ELEMS, w + v * Q6_SUB_ELEMS);
    }
    search_block(x, w, &best);
    store_block(flat, &best, (apr_block_Q6_K *)dst);
}

static void encode_q6_k(const float *src, void *dst, int64_t n_elems)
{
    wide_encode_groups(src, dst, n_elems, ELEMS, ELEMS, sizeof(apr_block_Q6_K), encode_q6_k_block);
}

static void encode_q6_k_by(const float *src, const float *importance, void *dst, int64_t n_elems)
{
    wide_encode_groups_by(src, importance, dst, n_elems, ELEMS, ELEMS, sizeof(apr_block_Q6_K), encode_q6_k_block_by);
}

const apr_host_codecs_table WIDE_NAME(apr_simd_k) = {
    .codecs =
        {
            [APR_Q4_K] = {.encode = encode_q4_k, .encode_by = encode_q4_k_by},
            [APR_Q5_K] = {.encode = encode_q5_k, .encode_by = encode_q5_k_by},
            [APR_Q6_K] = {.encode = encode_q6_k, .encode_by = encode_q6_k_by},
        },
};
