/* attend.cuh - attention: shared by its kernels and launchers.
 *
 * A row is one query head of one token. Rows that share a key/value head are numbered together: row r of a key/value head is head r % group
 * of token r / group. The context may be split into parts for different thread blocks (split-KV). The maximum number of parts depends only
 * on shapes. How many are used depends on the tokens' positions, which may be known only on the device (position_at). */
#ifndef APR_KERNELS_CUDA_ATTEND_CUH
#define APR_KERNELS_CUDA_ATTEND_CUH

#include "kernels/cuda/common/activations_i16.cuh"
#include "kernels/cuda/common/ops.cuh"

/* Lower than any score, but finite: the difference of two is 0, not NaN. */
#define ATTEND_LOWEST (-1e30f)

/* Where parts of the context store their partial results; sums is NULL when there is one part, which writes the output itself. Largest
 * scores are in units of log2. Any number near the largest score will do, as long as sums and weights were computed with it. */
typedef struct attend_parts {
    float *sums;              /* [n_parts, n_tokens * n_heads, value_dim] */
    float *largest, *weight;  /* [n_parts, n_tokens * n_heads] */
    uint64_t *done;           /* [n_parts] for each set of rows that is combined together: see attend_combine.cuh */
    int n_parts;              /* maximum; each part is whole tiles of the kernel's cells */
    uint32_t inverse;         /* 2^32 / n_parts, rounded up: gives exact quotients of numbers below 2^26 */
    uint8_t *activations_out; /* also write the output as activations (activations_i16.cuh); NULL: no */
} attend_parts;

/* Positions are below 2^31, so that no 64-bit divisions are needed here: these take a microsecond. */
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

/* The cell of a position; it divides only once the ring buffer has wrapped. */
static __device__ __forceinline__ uint32_t cell_of(const apr_cache &cache, int position)
{
    return position < cache.n_cells ? (uint32_t)position : (uint32_t)position % (uint32_t)cache.n_cells;
}

/* The cache of one token of a batch with a sequence per token, as if it were alone. */
static __device__ __forceinline__ apr_cache cache_of_token(const apr_cache &all, int64_t token)
{
    apr_cache cache = all;
    if (all.pages != NULL) cache.pages = all.pages + token * all.pages_stride;
    else if (all.slots != NULL) cache.data = all.data + (uint64_t)all.slots[token] * all.slot_bytes;
    return cache;
}

static __device__ __forceinline__ apr_attend_args args_of_token(const apr_attend_args &all, int64_t token)
{
    apr_attend_args a = all;
    a.n_tokens = 1;
    a.position = all.position_at[token];
    a.position_at = NULL;
    a.q = all.q + token * all.n_heads * all.key_dim;
    a.out = all.out + token * all.n_heads * all.value_dim;
    a.keys = cache_of_token(all.keys, token);
    a.values = cache_of_token(all.values, token);
    return a;
}

/* How the tiles of the visible context are divided among parts: the same in every thread block. */
typedef struct attend_shares {
    int each, n_used; /* tiles of a part; parts that are not empty, at least 1 */
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

/* The score of a product of a query and a key. */
static __device__ __forceinline__ float score_of(const apr_attend_args &a, float dot)
{
    if (a.softcap > 0.0f) return a.softcap * tanhf(dot * a.scale / a.softcap) * ATTEND_LOG2_E;
    return dot * (a.scale * ATTEND_LOG2_E);
}

/* The power of two that brings the largest number of a row of queries to 2^13, so that it fits FP16; its inverse is also a power of two. */
static __device__ __forceinline__ float row_scale(float max_abs)
{
    const int exponent = 127 + 13 + 127 - (int)(__float_as_uint(max_abs) >> 23);
    return __uint_as_float((uint32_t)(exponent > 253 ? 253 : exponent) << 23);
}
static __device__ __forceinline__ float inverse_power(float power) { return __uint_as_float(0x7f000000u - __float_as_uint(power)); }

/* A product times `factor` is its score in units of log2. With a softcap, tanh(product * inner) replaces the product. */
typedef struct attend_scale {
    float factor, inner;
} attend_scale;

static __device__ __forceinline__ attend_scale scale_of(const apr_attend_args &a, float unscale)
{
    if (a.softcap > 0.0f) return attend_scale{a.softcap * ATTEND_LOG2_E, a.scale / a.softcap * unscale};
    return attend_scale{a.scale * ATTEND_LOG2_E * unscale, 0.0f};
}

/* Tensor cores: the running maximum may lag by LAG before sums are rescaled. Weights are multiplied by 2^HEADROOM, so that small ones and
 * their rounding errors are not subnormal: they are at most 2^15. */
#define ATTEND_LAG      6.0f
#define ATTEND_HEADROOM 9.0f

/* The divisor of a query row's sums, including the head's sink; *factor scales the sums. */
static __device__ __forceinline__ float with_sink(const apr_attend_args &a, int row, float largest, float weight, float *factor)
{
    *factor = 1.0f;
    if (a.sinks == NULL) return weight;
    const float sink = a.sinks[(uint32_t)row % (uint32_t)a.n_heads] * ATTEND_LOG2_E, max_score = fmaxf(largest, sink);
    *factor = exp2f(largest - max_score);
    return weight * *factor + exp2f(sink - max_score);
}

/* Writes four numbers of a row's output, by all 32 lanes together. out: NULL if only activations are wanted. */
static __device__ __forceinline__ void write_output(const apr_attend_args &a, const attend_parts &parts, int row, int column, bool on,
                                                    float4 value)
{
    const int64_t at = (int64_t)row * a.value_dim + column;
    if (on && a.out != NULL) *(float4 *)(a.out + at) = value;
    if (parts.activations_out != NULL) store_i16_4(parts.activations_out, at, on, value);
}

/* The maximum number of visible positions: for a single token that of all tokens with the same split (apr_attend_split_end). */
int64_t apr_cuda_longest_context(const apr_attend_args *args);

/* Splits the context where there are n_blocks blocks without a split. The maximum number of parts is enough to fill a GPU, gives each part
 * at least least_tiles tiles of the longest context, and fits the workspace; many tokens have one part. */
attend_parts apr_cuda_cut_context(const apr_attend_args *args, int64_t n_blocks, int64_t enough_blocks, int tile_cells, int least_tiles);
/* Sets the number of parts to n. */
static inline void attend_set_parts(attend_parts *parts, int n)
{
    parts->n_parts = n;
    parts->inverse = n > 1 ? (uint32_t)(((1ull << 32) + (uint64_t)n - 1) / (uint64_t)n) : 0;
}
/* Combines the parts' sums, rescaled to a common maximum, into the output. */
cudaError_t apr_cuda_combine_parts(const apr_attend_args *args, const attend_parts *parts, int tile_cells, cudaStream_t stream);

/* Whether each row of keys and values begins at a multiple of n bytes. */
static inline bool attend_is_aligned(const apr_attend_args *a, int64_t n)
{
    return ((uintptr_t)a->keys.data | (uintptr_t)a->keys.row_bytes | (uintptr_t)a->values.data | (uintptr_t)a->values.row_bytes) %
               (uintptr_t)n ==
           0;
}

/* The current device. most_bytes: shared memory of a block, less 2 KB for declared arrays. */
typedef struct attend_card {
    int n_sms, most_bytes;
    bool is_75, has_clusters;
} attend_card;
enum { ATTEND_BYTES_75 = 62 << 10 }; /* most_bytes of 7.5 */
cudaError_t apr_cuda_attend_gpu(attend_card *card);

/* Whether the tensor core kernels take it: FP16 rows of whole 16-byte pieces, and a positive scale, so that the largest product has the
 * largest score. */
static inline bool attend_suits_tensor_cores(const apr_attend_args *a)
{
    return a->keys.dtype == APR_F16 && a->values.dtype == APR_F16 && a->scale > 0.0f && a->key_dim % 8 == 0 && a->value_dim % 8 == 0 &&
           attend_is_aligned(a, 16);
}

/* Each returns cudaErrorNotSupported for shapes, caches and devices that it does not handle; attend.cu has a kernel for all of them. */
cudaError_t apr_cuda_attend_tiles(const apr_attend_args *args, cudaStream_t stream);
/* Any shape and cache, slowly. */
cudaError_t apr_cuda_attend_rows(const apr_attend_args *args, cudaStream_t stream);
/* Few tokens and an FP16 cache; the output of a single token is also written as activations if activations_out is not NULL. */
cudaError_t apr_cuda_attend_decode(const apr_attend_args *args, uint8_t *activations_out, cudaStream_t stream);
cudaError_t apr_cuda_qkv_and_decode(const apr_qkv_epilogue_args *qkv, const apr_attend_args *args, uint8_t *activations_out,
                                    cudaStream_t stream);
/* A sequence per token and an FP16 cache: each token as if it were alone. */
cudaError_t apr_cuda_attend_per_sequence(const apr_attend_args *args, cudaStream_t stream);
/* Like apr_cuda_attend_decode for one token, also written as activations. */
cudaError_t apr_cuda_attend_to_i16(const apr_attend_args *args, uint8_t *activations_out, cudaStream_t stream);
/* The QKV epilogue and attention of one token; the output is only written as activations: args->out and qkv->q.out stay unchanged. */
cudaError_t apr_cuda_qkv_and_attend(const apr_qkv_epilogue_args *qkv, const apr_attend_args *args, uint8_t *activations_out,
                                    cudaStream_t stream);
/* Many tokens; careful: queries and weights in two FP16 parts each, as accurate as float32. */
cudaError_t apr_cuda_attend_prompt(const apr_attend_args *args, bool careful, cudaStream_t stream);
/* Values that are the first numbers of their keys, at most 512 of 576, in a cache of FP16, FP8 or (not careful) Q8_0. With a sequence per
 * token each token is computed as if it were alone, carefully. */
cudaError_t apr_cuda_attend_latent(const apr_attend_args *args, bool careful, cudaStream_t stream);
/* 8-bit caches, not careful. */
cudaError_t apr_cuda_attend_prompt_packed(const apr_attend_args *args, cudaStream_t stream);

#endif
