/* simd_q2_k.c - the encoder of Q2_K, one sub-block a lane: the search of kernels/ref/q2_k.c, step by step, in all lanes at once. The 16
 * sub-blocks of a block take one or two vectors.
 *
 * w: weights of the values; NULL: all are 1, a faster case for which the compiler removes the rest. */
#include "kernels/host/codecs/simd_affine.h"
#include "kernels/ref/q2_k_search.h"

enum { ELEMS = 256, SUBS = 16, SUB_ELEMS = 16, MAX_SCALE = 15, VECTORS = SUBS / WIDE };

static const apr_k_search search = {.max_code = 3.0f,
                                    .stretches = APR_Q2_K_STRETCHES,
                                    .first_steps = APR_Q2_K_FIRST_STEPS,
                                    .gap = APR_Q2_K_STEPS_GAP,
                                    .polishes = 1,
                                    .reach = APR_Q2_K_REACH};

/* The stored scales of a block, and its squared error. */
typedef struct block_scales {
    uint16_t d, dmin; /* FP16 */
    float scale[SUBS], min[SUBS], error;
} block_scales;

/* What is known of the sub-blocks of a vector before d and dmin are. */
typedef struct vector_search {
    const wide *x, *w;
    grids ideal;
    sums sums;
} vector_search;

/* Chooses all scales of a block for now->d and now->dmin. */
WIDE_INLINE void choose_all(const vector_search *vectors, block_scales *now, parts *p)
{
    const wide d = wide_set(apr_f16_to_f32(now->d)), dmin = wide_set(apr_f16_to_f32(now->dmin)), inverse_dmin = inverse_of(dmin);
    for (int i = 0; i < VECTORS; i++) {
        const vector_search *const v = &vectors[i];
        sums s = v->sums;
        const wide middle = nearest_of(wide_mul(v->ideal.step, inverse_of(d)), (float)MAX_SCALE);
        const wide min = nearest_of(wide_mul(v->ideal.offset, inverse_dmin), (float)MAX_SCALE);
        choose_scales(v->x, v->w, SUB_ELEMS, d, dmin, inverse_dmin, search, (float)MAX_SCALE, middle, min, &s, i * WIDE, p);
    }
    now->error = sum_of(p->error, SUBS);
    memcpy(now->scale, p->scale, sizeof now->scale);
    memcpy(now->min, p->min, sizeof now->min);
}

WIDE_INLINE void search_block(const wide *x, const wide *w, block_scales *best)
{
    vector_search vectors[VECTORS];
    parts p, best_parts;
    block_scales now;

    for (int v = 0; v < VECTORS; v++) {
        vectors[v].x = x + v * SUB_ELEMS;
        vectors[v].w = w != NULL ? w + v * SUB_ELEMS : NULL;
        vectors[v].ideal = search_sub_blocks(vectors[v].x, vectors[v].w, SUB_ELEMS, search, true, &vectors[v].sums);
        wide_store(p.scale + v * WIDE, vectors[v].ideal.step);
        wide_store(p.min + v * WIDE, vectors[v].ideal.offset);
    }
    const float max_step = largest_of(p.scale, SUBS), max_offset = largest_of(p.min, SUBS);
    best->error = -1.0f;
    for (int k = 0; k < APR_Q2_K_STARTS * APR_Q2_K_STARTS; k++) {
        now.d = apr_stored_scale(max_step / (float)(MAX_SCALE - k / APR_Q2_K_STARTS));
        now.dmin = apr_stored_scale(max_offset / (float)(MAX_SCALE - k % APR_Q2_K_STARTS));
        choose_all(vectors, &now, &p);
        if (best->error < 0.0f || now.error < best->error) *best = now, best_parts = p;
    }
    for (int round = 0; round < APR_Q2_K_ROUNDS; round++) {
        if (!fit_block(&best_parts, 0, SUBS, &now.d, &now.dmin) || (now.d == best->d && now.dmin == best->dmin)) break;
        choose_all(vectors, &now, &p);
        if (!(now.error < best->error)) break;
        *best = now;
        best_parts = p;
    }
}

static void store_block(const float *flat, const block_scales *best, apr_block_Q2_K *block)
{
    const float d = apr_f16_to_f32(best->d), dmin = apr_f16_to_f32(best->dmin);
    uint8_t code[ELEMS];

    *block = (apr_block_Q2_K){.d = best->d, .dmin = best->dmin};
    for (int sub = 0; sub < SUBS; sub++) {
        const wide inverse = inverse_of(wide_set(d * best->scale[sub])), offset = wide_set(dmin * best->min[sub]);
        block->scales[sub] = (uint8_t)((int)best->scale[sub] | (int)best->min[sub] << 4);
        for (int j = sub * SUB_ELEMS; j < (sub + 1) * SUB_ELEMS; j += WIDE)
            wide_store_bytes(code + j, code_of(wide_load(flat + j), inverse, offset, search.max_code, BOUND_BOTH));
    }
    for (int half = 0; half < 2; half++) {
        const uint8_t *const c = code + 128 * half;
        for (int l = 0; l < 32; l++) block->qs[32 * half + l] = (uint8_t)(c[l] | c[32 + l] << 2 | c[64 + l] << 4 | c[96 + l] << 6);
    }
}

WIDE_INLINE void encode_block(const float *src, const float *importance, uint8_t *dst)
{
    float flat[ELEMS], weights[ELEMS];
    wide x[ELEMS / WIDE], w[ELEMS / WIDE];
    block_scales best;

    if (importance != NULL) apr_block_weights(importance, ELEMS, weights);
    for (int v = 0; v < VECTORS; v++) {
        const int at = v * WIDE * SUB_ELEMS;
        wide_transpose_blocks(src + at, SUB_ELEMS, APR_F16_MAX * (float)MAX_SCALE * search.max_code, flat + at, x + v * SUB_ELEMS);
        if (importance != NULL) wide_transpose_weights(weights + at, SUB_ELEMS, w + v * SUB_ELEMS);
    }
    search_block(x, importance != NULL ? w : NULL, &best);
    store_block(flat, &best, (apr_block_Q2_K *)dst);
}

static void encode_plain_block(const float *src, uint8_t *dst) { encode_block(src, NULL, dst); }
static void encode_block_by(const float *src, const float *importance, uint8_t *dst) { encode_block(src, importance, dst); }

static void encode_q2_k(const float *src, void *dst, int64_t n_elems)
{
    wide_encode_groups(src, dst, n_elems, ELEMS, ELEMS, sizeof(apr_block_Q2_K), encode_plain_block);
}

static void encode_q2_k_by(const float *src, const float *importance, void *dst, int64_t n_elems)
{
    wide_encode_groups_by(src, importance, dst, n_elems, ELEMS, ELEMS, sizeof(apr_block_Q2_K), encode_block_by);
}

const apr_host_codecs_table WIDE_NAME(apr_simd_q2_k) = {.codecs = {[APR_Q2_K] = {.encode = encode_q2_k, .encode_by = encode_q2_k_by}}};
