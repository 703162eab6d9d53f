/* attend_decode.cu - attention of few tokens on tensor cores (attend_decode.cuh): kernels and launches. */
#include "kernels/cuda/attention/attend_decode.cuh"

/* blockIdx.z: the tile of 8 rows. */
template <int KEY, int VALUE, typename QKV>
static __global__ void __launch_bounds__(32 * MAX_WARPS, decode<KEY, VALUE, false>::RESIDENT)
    k_decode(const __grid_constant__ apr_attend_args a, const __grid_constant__ attend_parts parts, const __grid_constant__ QKV qkv,
             const int n_stages, const int cluster)
{
    decode_rows<KEY, VALUE, false>(a, parts, qkv, n_stages, cluster, blockIdx.z, NULL);
}

/* Runs after k_decode where no cluster combines the parts: a thread block per row. Does nothing if there is one part. The next kernel may
 * begin once the parts have been read (combine_columns): its weight loads would otherwise be ahead of them. */
static __global__ void __launch_bounds__(COMBINERS *COMBINED_COLUMNS)
    k_combine_rows(const __grid_constant__ apr_attend_args a, const __grid_constant__ attend_parts parts)
{
    const int n_used = share_cell_tiles(a, own_position(a), parts, 1).n_used;
    pdl_wait();
    if (n_used > 1) combine_columns(a, parts, n_used, (int)blockIdx.x, (int)blockDim.x / COMBINERS);
}

/* The same with a sequence per token; blockIdx.z: the token, and its tile of 8 rows. */
template <int KEY, int VALUE>
static __global__ void __launch_bounds__(32 * MAX_WARPS, decode<KEY, VALUE, true>::RESIDENT)
    k_decode_per_sequence(const __grid_constant__ apr_attend_args all, const __grid_constant__ attend_parts shared, const int n_stages)
{
    const int n_tiles = (group_of(all) + ROWS - 1) / ROWS, token = blockIdx.z / n_tiles;
    const apr_attend_args a = args_of_token(all, token);
    const int64_t before = (int64_t)token * shared.n_parts * all.n_heads;
    attend_parts parts = shared;
    parts.sums = shared.sums + before * all.value_dim;
    parts.largest = shared.largest + before;
    parts.weight = shared.weight + before;
    decode_rows<KEY, VALUE, true>(a, parts, no_qkv{}, n_stages, 1, blockIdx.z % n_tiles,
                                  shared.done + (blockIdx.y * gridDim.z + blockIdx.z) * shared.n_parts);
}

/* Warps of a block and depth of their rings: the first size that fits, more warps first. */
typedef struct decode_size {
    int n_warps, n_stages;
    size_t n_bytes;
} decode_size;

static decode_size fitting_size(size_t stage_bytes, size_t sums_bytes, size_t most_bytes)
{
    static const decode_size sizes[] = {{8, 3, 0}, {8, 2, 0}, {4, 3, 0}, {4, 2, 0}, {4, 1, 0}, {2, 1, 0}};
    for (const decode_size &size : sizes) {
        const size_t ring = (size_t)(size.n_warps * size.n_stages) * stage_bytes, n_bytes = ring > sums_bytes ? ring : sums_bytes;
        if (n_bytes <= most_bytes) return decode_size{size.n_warps, size.n_stages, n_bytes};
    }
    return decode_size{0, 0, 0};
}

/* Where a block has at most two tiles per warp, its rings are one tile deep. This leaves room for blocks of the next product, whose weights
 * have then arrived when attention ends. */
static void shrink_ring(decode_size *size, size_t stage_bytes, size_t sums_bytes, int n_cell_tiles)
{
    if (n_cell_tiles > 2 * size->n_warps) return;
    const size_t ring = (size_t)size->n_warps * stage_bytes;
    size->n_stages = 1;
    size->n_bytes = ring > sums_bytes ? ring : sums_bytes;
}

template <int KEY, int VALUE, typename QKV>
static cudaError_t start_decode(const apr_attend_args *a, uint8_t *activations_out, const QKV &qkv, cudaStream_t stream)
{
    typedef decode<KEY, VALUE, false> D;
    const size_t heads_bytes = sizeof(QKV) > sizeof(no_qkv) ? (size_t)D::HEADS_BYTES : 0;
    const int64_t n_rows = a->n_tokens * (a->n_heads / a->n_kv_heads), n_tiles = (n_rows + ROWS - 1) / ROWS;
    attend_card card;
    cudaError_t error = apr_cuda_attend_gpu(&card);
    if (error != cudaSuccess) return error;
    decode_size size = fitting_size(D::STAGE, D::SUMS_BYTES, (size_t)card.most_bytes - heads_bytes);
    if (size.n_warps == 0) return cudaErrorNotSupported;
    attend_parts parts = apr_cuda_cut_context(a, a->n_kv_heads * n_tiles, card.n_sms, CELL_TILE, MIN_CELL_TILES);
    /* clusters that are not all resident at once cost more than they save: use them only if one per set of rows has the whole context */
    const int64_t longest = apr_cuda_longest_context(a);
    const bool is_short = longest <= 2 * MIN_CELL_TILES * MAX_CLUSTER * CELL_TILE && MAX_CLUSTER * a->n_kv_heads * n_tiles <= 64;
    int cluster = card.has_clusters && is_short ? MAX_CLUSTER : 1;
    while (cluster > parts.n_parts) cluster /= 2;
    if (cluster > 1) attend_set_parts(&parts, cluster);
    parts.activations_out = activations_out;
    if (card.has_clusters) shrink_ring(&size, D::STAGE, D::SUMS_BYTES, ((int)longest - 1) / CELL_TILE / parts.n_parts + 1);
    const size_t n_bytes = size.n_bytes + heads_bytes;
    error = cudaFuncSetAttribute(k_decode<KEY, VALUE, QKV>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)n_bytes);
    if (error == cudaSuccess) error = cudaFuncSetAttribute(k_decode<KEY, VALUE, QKV>, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    const dim3 grid((unsigned)parts.n_parts, (unsigned)a->n_kv_heads, (unsigned)n_tiles);
    error = launch_pdl_clusters(k_decode<KEY, VALUE, QKV>, (unsigned)cluster, grid, 32 * (unsigned)size.n_warps, n_bytes, stream, *a, parts,
                                qkv, size.n_stages, cluster);
    if (error != cudaSuccess || cluster > 1 || parts.n_parts == 1) return error;
    return launch_pdl(k_combine_rows, (unsigned)(a->n_tokens * a->n_heads), (unsigned)(COMBINERS * ((a->value_dim + 31) / 32 * 32)), 0,
                      stream, *a, parts);
}

template <typename QKV>
static cudaError_t start_for_dims(const apr_attend_args *a, uint8_t *activations_out, const QKV &qkv, cudaStream_t stream)
{
    const int64_t n_rows = a->n_tokens * (a->n_heads / a->n_kv_heads);
    if (a->n_tokens > APR_CUDA_FEW_TOKENS || n_rows > 4 * ROWS || !attend_suits_tensor_cores(a)) return cudaErrorNotSupported;
    if (a->key_dim <= 64 && a->value_dim <= 64) return start_decode<64, 64>(a, activations_out, qkv, stream);
    if (a->key_dim <= 96 && a->value_dim <= 96) return start_decode<96, 96>(a, activations_out, qkv, stream);
    if (a->key_dim <= 128 && a->value_dim <= 128) return start_decode<128, 128>(a, activations_out, qkv, stream);
    if (a->key_dim <= 192 && a->value_dim <= 128) return start_decode<192, 128>(a, activations_out, qkv, stream);
    if (a->key_dim <= 256 && a->value_dim <= 256) return start_decode<256, 256>(a, activations_out, qkv, stream);
    return cudaErrorNotSupported;
}

cudaError_t apr_cuda_attend_decode(const apr_attend_args *a, uint8_t *activations_out, cudaStream_t stream)
{
    return start_for_dims(a, activations_out, no_qkv{}, stream);
}

cudaError_t apr_cuda_qkv_and_decode(const apr_qkv_epilogue_args *qkv, const apr_attend_args *args, uint8_t *activations_out,
                                    cudaStream_t stream)
{
    apr_attend_args a = *args;
    const bool is_one = qkv->store.keys.data == a.keys.data && qkv->store.values.data == a.values.data && qkv->q.n_heads == a.n_heads &&
                        qkv->store.n_kv_heads == a.n_kv_heads && qkv->store.key_dim == a.key_dim && qkv->store.value_dim == a.value_dim;
    if (!is_one) return cudaErrorInvalidValue;
    a.out = NULL; /* it may overlap with what other blocks still read */
    return start_for_dims(&a, activations_out, *qkv, stream);
}

/* The parts of a token at the largest position: no token has more. */
static int max_per_sequence_parts(const apr_attend_args *a)
{
    enum { PART = PER_SEQUENCE_TILES * CELL_TILE };
    int64_t n_seen = a->position + 1;
    if (a->window > 0 && a->window < n_seen) n_seen = a->window;
    if (a->chunk > 0 && a->chunk < n_seen) n_seen = a->chunk;
    const int64_t n = (n_seen + PART - 1) / PART;
    return n < APR_CUDA_ATTEND_SPLITS ? (int)n : (int)APR_CUDA_ATTEND_SPLITS;
}

/* Places the parts of n tokens in the workspace. False: there is no room. */
static bool place_parts(const apr_attend_args *a, int n_parts, int64_t n_tokens, attend_parts *parts)
{
    const int64_t n_rows = (n_tokens * n_parts * a->n_heads + 1) / 2 * 2; /* even, since 8-byte flags follow these floats */
    const int64_t n_words = n_rows;                                       /* a token has at most as many tiles of rows as heads */

    *parts = attend_parts{NULL, NULL, NULL, NULL, n_parts, 0, NULL};
    parts->sums = a->work.data;
    parts->largest = parts->sums + n_rows * a->value_dim;
    parts->weight = parts->largest + n_rows;
    parts->done = (uint64_t *)(parts->weight + n_rows);
    return n_parts == 1 || (a->work.data != NULL && n_rows * (a->value_dim + 2) + 2 * n_words <= (int64_t)a->work.slice);
}

/* The cache of the tokens from `first` on, with a sequence per token. */
static apr_cache tokens_from(const apr_cache &all, int64_t first)
{
    apr_cache cache = all;
    if (all.pages != NULL) cache.pages = all.pages + first * all.pages_stride;
    if (all.slots != NULL) cache.slots = all.slots + first;
    return cache;
}

template <int KEY, int VALUE> static cudaError_t start_per_sequence(const apr_attend_args *a, cudaStream_t stream)
{
    typedef decode<KEY, VALUE, true> D;
    const int64_t n_tiles = (a->n_heads / a->n_kv_heads + ROWS - 1) / ROWS;
    attend_card card;
    cudaError_t error = apr_cuda_attend_gpu(&card);
    if (error != cudaSuccess) return error;
    const decode_size size = fitting_size(D::STAGE, D::SUMS_BYTES, (size_t)card.most_bytes);
    if (size.n_warps == 0) return cudaErrorNotSupported;
    error = cudaFuncSetAttribute(k_decode_per_sequence<KEY, VALUE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)size.n_bytes);
    const int n_parts = max_per_sequence_parts(a);
    int64_t n = a->n_tokens < 65535 / n_tiles ? a->n_tokens : 65535 / n_tiles;
    attend_parts parts;
    while (n > 1 && !place_parts(a, n_parts, n, &parts)) n = (n + 1) / 2;
    if (!place_parts(a, n_parts, n, &parts)) return cudaErrorInvalidValue;
    for (int64_t first = 0; first < a->n_tokens && error == cudaSuccess; first += n) {
        apr_attend_args some = *a;
        some.n_tokens = a->n_tokens - first < n ? a->n_tokens - first : n;
        some.position_at = a->position_at + first;
        some.q = a->q + first * a->n_heads * a->key_dim;
        some.out = a->out + first * a->n_heads * a->value_dim;
        some.keys = tokens_from(a->keys, first);
        some.values = tokens_from(a->values, first);
        const dim3 grid((unsigned)n_parts, (unsigned)a->n_kv_heads, (unsigned)(some.n_tokens * n_tiles));
        error = launch_pdl(k_decode_per_sequence<KEY, VALUE>, grid, 32 * (unsigned)size.n_warps, size.n_bytes, stream, some, parts,
                           size.n_stages);
    }
    return error;
}

cudaError_t apr_cuda_attend_per_sequence(const apr_attend_args *a, cudaStream_t stream)
{
    if (!attend_suits_tensor_cores(a)) return cudaErrorNotSupported;
    if (a->key_dim <= 64 && a->value_dim <= 64) return start_per_sequence<64, 64>(a, stream);
    if (a->key_dim <= 96 && a->value_dim <= 96) return start_per_sequence<96, 96>(a, stream);
    if (a->key_dim <= 128 && a->value_dim <= 128) return start_per_sequence<128, 128>(a, stream);
    if (a->key_dim <= 192 && a->value_dim <= 128) return start_per_sequence<192, 128>(a, stream);
    if (a->key_dim <= 256 && a->value_dim <= 256) return start_per_sequence<256, 256>(a, stream);
    return cudaErrorNotSupported;
}
