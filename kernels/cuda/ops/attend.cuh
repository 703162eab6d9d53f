/* attend.cuh - attention: what its kernels and launchers share.
 *
 * A row is one query head of one token. Rows that share a key/value head stand side by side: row r of a key/value head is head r % group
 * of token r / group. The context may be cut into parts for different blocks; how many there can be depends on shapes alone, how many are
 * used on where the tokens stand, which the device may know better than the host (position_at). */
#ifndef APR_KERNELS_CUDA_ATTEND_CUH
#define APR_KERNELS_CUDA_ATTEND_CUH

#include "kernels/cuda/ops/ops.cuh"
#include "kernels/cuda/ops/planes.cuh"

/* Lower than any score, and finite: differences of two are 0, not NaN. */
#define ATTEND_LOWEST (-1e30f)

/* Where parts of the context leave what they found; sums is NULL when there is one part, which writes the result itself.
 * Largest scores are in units of log2: any number near them does, so long as sums and weights were made with it. */
typedef struct attend_parts {
    float *sums;             /* [n_parts, n_tokens * n_heads, value_dim] */
    float *largest, *weight; /* [n_parts, n_tokens * n_heads] */
    uint64_t *done;          /* [n_parts] of each set of rows that is joined together: see attend_join.cuh */
    int n_parts;             /* at most; each is whole tiles of the kernel's cells */
    uint32_t inverse;        /* of n_parts times 2^32, rounded up: the quotient of what is below 2^26 is right */
    uint8_t *planes;         /* the answer goes there, too, as inputs of products (planes.cuh); NULL: no */
} attend_parts;

/* Positions are below 2^31, so that nothing here needs 64-bit divisions, which take a microsecond to get going. */
static __device__ __forceinline__ int own_position(const apr_attend_args &a)
{
    return (int)(a.position_at != NULL ? *a.position_at : a.position);
}

/* Query heads that share a key/value head. */
static __device__ __forceinline__ int group_of(const apr_attend_args &a) { return (int)((uint32_t)a.n_heads / (uint32_t)a.n_kv_heads); }

/* The first position that a token at position `own` sees: apr_attend_first in 32 bits. */
static __device__ __forceinline__ int first_seen(const apr_attend_args &a, int own)
{
    const int in_window = a.window > 0 && own >= a.window ? own - (int)a.window + 1 : 0;
    const int in_chunk = a.chunk > 0 ? (int)((uint32_t)own / (uint32_t)a.chunk * (uint32_t)a.chunk) : 0;
    return in_window > in_chunk ? in_window : in_chunk;
}

/* Where a position lies; it is divided only once the ring has been around. */
static __device__ __forceinline__ uint32_t cell_of(const apr_cache &cache, int position)
{
    return position < cache.n_cells ? (uint32_t)position : (uint32_t)position % (uint32_t)cache.n_cells;
}

/* Token `token` of tokens apart, as if it were alone. */
static __device__ __forceinline__ apr_cache cache_apart(const apr_cache &all, int64_t token)
{
    apr_cache cache = all;
    if (all.pages != NULL) cache.pages = all.pages + token * all.pages_stride;
    else if (all.slots != NULL) cache.data = all.data + (uint64_t)all.slots[token] * all.slot_bytes;
    return cache;
}

static __device__ __forceinline__ apr_attend_args one_apart(const apr_attend_args &all, int64_t token)
{
    apr_attend_args a = all;
    a.n_tokens = 1;
    a.position = all.position_at[token];
    a.position_at = NULL;
    a.q = all.q + token * all.n_heads * all.key_dim;
    a.out = all.out + token * all.n_heads * all.value_dim;
    a.keys = cache_apart(all.keys, token);
    a.values = cache_apart(all.values, token);
    return a;
}

/* How the tiles of what all tokens see are dealt out: the same for every block. */
typedef struct attend_shares {
    int each, n_used; /* tiles of a part; parts that have one, at least 1 */
} attend_shares;

template <int TILE_CELLS>
static __device__ __forceinline__ attend_shares share_context(const apr_attend_args &a, int position, const attend_parts &parts)
{
    const uint32_t n_seen = (uint32_t)(position + (int)a.n_tokens - first_seen(a, position));
    const uint32_t n = (n_seen - 1) / TILE_CELLS + 1, even = (parts.n_parts > 1 ? __umulhi(n - 1, parts.inverse) : n - 1) + 1;
    attend_shares s;
    s.each = (int)even;
    s.n_used = n <= (uint32_t)s.each ? 1 : (int)((n - 1) / (uint32_t)s.each) + 1;
    return s;
}

/* Scores are in units of log2, so that weights are powers of two. */
#define ATTEND_LOG2_E 1.44269504088896341f

/* A product of a query with a key as a score. */
static __device__ __forceinline__ float score_of(const apr_attend_args &a, float dot)
{
    if (a.softcap > 0.0f) return a.softcap * tanhf(dot * a.scale / a.softcap) * ATTEND_LOG2_E;
    return dot * (a.scale * ATTEND_LOG2_E);
}

/* A power of two that brings the largest number of a row of queries to 2^13, so that FP16 holds it; its inverse is one too. */
static __device__ __forceinline__ float row_scale(float most)
{
    const int exponent = 127 + 13 + 127 - (int)(__float_as_uint(most) >> 23);
    return __uint_as_float((uint32_t)(exponent > 253 ? 253 : exponent) << 23);
}
static __device__ __forceinline__ float inverse_power(float power) { return __uint_as_float(0x7f000000u - __float_as_uint(power)); }

/* A product times `factor` is its score in units of log2; where scores are capped, tanh(product * inner) takes the product's place. */
typedef struct attend_scale {
    float factor, inner;
} attend_scale;

static __device__ __forceinline__ attend_scale scale_of(const apr_attend_args &a, float unscale)
{
    if (a.softcap > 0.0f) return attend_scale{a.softcap * ATTEND_LOG2_E, a.scale / a.softcap * unscale};
    return attend_scale{a.scale * ATTEND_LOG2_E * unscale, 0.0f};
}

/* Tensor cores: the largest score may lag behind by LAG before sums are scaled down; weights are 2^HEADROOM times what they would be,
 * so that small ones, and what rounding leaves of them, are no denormals: at most 2^15. */
#define ATTEND_LAG      6.0f
#define ATTEND_HEADROOM 9.0f

/* What the sums of a query row (a token's head) are divided by, once the head's sink has taken part; *factor scales the sums. */
static __device__ __forceinline__ float with_sink(const apr_attend_args &a, int row, float largest, float weight, float *factor)
{
    *factor = 1.0f;
    if (a.sinks == NULL) return weight;
    const float sink = a.sinks[(uint32_t)row % (uint32_t)a.n_heads] * ATTEND_LOG2_E, most = fmaxf(largest, sink);
    *factor = exp2f(largest - most);
    return weight * *factor + exp2f(sink - most);
}

/* Four numbers of row `row`'s answer, in all 32 lanes at once. out: NULL where planes are all that is wanted. */
static __device__ __forceinline__ void leave_answer(const apr_attend_args &a, const attend_parts &parts, int row, int column, bool on,
                                                    float4 value)
{
    const int64_t at = (int64_t)row * a.value_dim + column;
    if (on && a.out != NULL) *(float4 *)(a.out + at) = value;
    if (parts.planes != NULL) planes_put_4(parts.planes, at, on, value);
}

/* Positions at most that are seen at once: of a single token those that are cut like its own (apr_attend_end). */
int64_t apr_cuda_longest_context(const apr_attend_args *args);

/* Parts at most, of blocks that are n_blocks without: enough to fill a GPU, none without its least tiles if the context is as long
 * as it can be, no more than the workspace holds; of many tokens one. */
attend_parts apr_cuda_cut_context(const apr_attend_args *args, int64_t n_blocks, int64_t enough_blocks, int tile_cells, int least_tiles);
/* Of n parts. */
static inline void attend_set_parts(attend_parts *parts, int n)
{
    parts->n_parts = n;
    parts->inverse = n > 1 ? (uint32_t)(((1ull << 32) + (uint64_t)n - 1) / (uint64_t)n) : 0;
}
/* The parts' sums, weighted by how their largest scores compare, into the result. */
cudaError_t apr_cuda_join_parts(const apr_attend_args *args, const attend_parts *parts, int tile_cells, cudaStream_t stream);

/* Do keys and values begin at multiples of n bytes, row by row? */
static inline bool attend_is_aligned(const apr_attend_args *a, int64_t n)
{
    return ((uintptr_t)a->keys.data | (uintptr_t)a->keys.row_bytes | (uintptr_t)a->values.data | (uintptr_t)a->values.row_bytes) %
               (uintptr_t)n ==
           0;
}

/* The card in hand. Of shared memory 2 KB are left for what kernels declare themselves. */
typedef struct attend_card {
    int n_sms, most_bytes;
    bool is_75, has_clusters;
} attend_card;
enum { ATTEND_BYTES_75 = 62 << 10 }; /* most_bytes of 7.5 */
cudaError_t apr_cuda_attend_card(attend_card *card);

/* What the kernels for tensor cores take: rows of FP16 in whole pieces of 16 bytes, and factors that leave the largest the largest. */
static inline bool attend_suits_tensor_cores(const apr_attend_args *a)
{
    return a->keys.dtype == APR_F16 && a->values.dtype == APR_F16 && a->scale > 0.0f && a->key_dim % 8 == 0 && a->value_dim % 8 == 0 &&
           attend_is_aligned(a, 16);
}

/* Each answers cudaErrorNotSupported for shapes, caches and cards that it is not for; attend.cu has the way that is always right. */
cudaError_t apr_cuda_attend_tiles(const apr_attend_args *args, cudaStream_t stream);
/* Any shape and cache, slowly. */
cudaError_t apr_cuda_attend_rows(const apr_attend_args *args, cudaStream_t stream);
/* Few tokens, and a cache of FP16; one token's answer may be left in planes, too (NULL: not). */
cudaError_t apr_cuda_attend_decode(const apr_attend_args *args, uint8_t *planes, cudaStream_t stream);
cudaError_t apr_cuda_turn_and_decode(const apr_turn_args *turn, const apr_attend_args *args, uint8_t *planes, cudaStream_t stream);
/* Tokens apart, and a cache of FP16: each as if it were alone. */
cudaError_t apr_cuda_attend_apart(const apr_attend_args *args, cudaStream_t stream);
/* One token's answer in planes as well: by that kernel alone. */
cudaError_t apr_cuda_attend_to_planes(const apr_attend_args *args, uint8_t *planes, cudaStream_t stream);
/* One token's heads turned, key and value into the cache, and its answer in planes alone: args->out and turn->q.out are left as they are.
 */
cudaError_t apr_cuda_turn_and_attend(const apr_turn_args *turn, const apr_attend_args *args, uint8_t *planes, cudaStream_t stream);
/* Many tokens; careful: queries and weights in two FP16 parts each, as right as float32. */
cudaError_t apr_cuda_attend_prompt(const apr_attend_args *args, bool careful, cudaStream_t stream);
/* Caches of 8 bits, not careful. */
cudaError_t apr_cuda_attend_prompt_packed(const apr_attend_args *args, cudaStream_t stream);

#endif
