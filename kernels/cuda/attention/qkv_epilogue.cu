/* qkv_epilogue.cu - the QKV epilogue: the heads of one token or of several are normed, rotated and written to the cache, in one kernel between the
 * QKV product and attention.
 *
 * A warp has a head: of the query, of the key, or of the value. */
#include "kernels/cuda/attention/qkv_epilogue.cuh"
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/gemv/decode_gemv.cuh"
#include "kernels/cuda/small_gemm/small_gemm_fixup.cuh"

enum { WARPS = 4, BLOCK = 32 * WARPS };

static __device__ __forceinline__ void store_row(const apr_qkv_epilogue_args &a, const apr_cache &cache, int token, int at, int n,
                                                 const float *head)
{
    if (a.store.n_tokens > 1 || cache.pages != NULL || cache.slots != NULL)
        put_head(cache.dtype, cache_place(a.store, cache, token, at), n, head);
    else store_head(a.store, cache, at, n, head);
}

/* blockIdx.y: the token. */
static __global__ void __launch_bounds__(BLOCK) k_qkv_epilogue(const __grid_constant__ apr_qkv_epilogue_args a)
{
    __shared__ float heads[WARPS][APR_QKV_EPILOGUE_MAX_DIM];
    float *const head = heads[threadIdx.x / 32];
    const int n_q = (int)a.q.n_heads, n_k = (int)a.store.n_kv_heads;
    const int key_dim = (int)a.store.key_dim, value_dim = (int)a.store.value_dim;
    const int token = (int)blockIdx.y;
    int at = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32;
    pdl_trigger_and_wait();
    if (at < n_q) {
        prepare_query(a, token, at, head);
        for (int i = threadIdx.x % 32; i < key_dim; i += 32) a.q.out[((int64_t)token * n_q + at) * key_dim + i] = head[i];
        return;
    }
    at -= n_q;
    if (at < n_k) {
        prepare_key(a, token, at, head);
        store_row(a, a.store.keys, token, at, key_dim, head);
        return;
    }
    at -= n_k;
    if (at >= n_k) return;
    load_head(a.store.v + ((int64_t)token * n_k + at) * value_dim, value_dim, head);
    store_row(a, a.store.values, token, at, value_dim, head);
}

/* --- of a small GEMM with stream-K partial sums (small_gemm_epilogue.cuh) --- */

typedef struct qkv_fixup {
    gemm_call a;
    int n_blocks, shift; /* of the GEMM's launch; row blocks have 1 << shift rows */
    apr_qkv_epilogue_args qkv;
} qkv_fixup;

/* The partial sums of numbers i to i + 3 of a head that begins at row `begin` of a part; `before`: rows of the parts before it. */
static __device__ __forceinline__ fixup_source4 head_source(const qkv_fixup &e, int part, int before, int begin, int i, int in_launch,
                                                            int token)
{
    const gemm_part &p = e.a.parts[part];
    const int row = before + begin + i;
    return fixup_source4_of(e.a, fixup_source_of(e.a, e.n_blocks, row >> e.shift), e.shift, row, in_launch,
                            p.out + (int64_t)token * p.n_row_groups * APR_ROW_GROUP + begin + i);
}

/* k_qkv_epilogue with the stream-K fix-up in front, whose sums are also written to the product's output. blockIdx.y: the token of the
 * launch. */
static __global__ void __launch_bounds__(BLOCK) k_qkv_epilogue_fixup(const __grid_constant__ qkv_fixup e)
{
    __shared__ float4 heads[WARPS][APR_QKV_EPILOGUE_MAX_DIM / 4];
    pdl_trigger();
    const apr_qkv_epilogue_args &a = e.qkv;
    float *const head = (float *)heads[threadIdx.x / 32];
    const int n_q = (int)a.q.n_heads, n_k = (int)a.store.n_kv_heads, at = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32;
    const int part = at < n_q ? 0 : at < n_q + n_k ? 1 : 2, own = part == 0 ? at : part == 1 ? at - n_q : at - n_q - n_k;
    const int dim = (int)(part == 2 ? a.store.value_dim : a.store.key_dim), begin = own * dim, first = threadIdx.x % 32 * 4;
    const int in_launch = (int)blockIdx.y, token = e.a.first_tile * APR_SMALL_GEMM_TILE + in_launch;
    int before = 0;
    if (own >= n_k && part == 2) return pdl_wait();
    for (int i = 0; i < part; i++) before += e.a.parts[i].n_row_groups * APR_ROW_GROUP;
    fixup_source4 source = head_source(e, part, before, begin, first, in_launch, token);
    pdl_wait();
    const float factor = __ldcg(e.a.factors + token);
    const float *const bias = e.a.parts[part].bias;
    float *const out = e.a.parts[part].out + (int64_t)token * e.a.parts[part].n_row_groups * APR_ROW_GROUP + begin;
    for (int i = first; i < dim; i += 128) {
        float4 v[GEMM_AT_ONCE];
        if (i > first) source = head_source(e, part, before, begin, i, in_launch, token);
#pragma unroll
        for (int k = 0; k < GEMM_AT_ONCE; k++) v[k] = load_partial(source, k);
        const float4 x = finish_sum4(source, v, factor, bias, begin + i);
        *(float4 *)(head + i) = x;
        if (source.n_sums > 0) *(float4 *)(out + i) = x;
    }
    __syncwarp();
    if (part == 2) return store_row(a, a.store.values, token, own, dim, head);
    const apr_norm_args &norm = part == 0 ? a.q_norm : a.k_norm;
    const apr_rope_args &rope = part == 0 ? a.q : a.k;
    if (norm.chunk > 0) norm_head(norm, begin, head);
    rotate_head<false>(rope, rope.angles + (int64_t)token * 2 * rope.n_freqs, head);
    if (part == 1) return store_row(a, a.store.keys, token, own, dim, head);
    for (int i = threadIdx.x % 32; i < dim; i += 32) a.q.out[((int64_t)token * n_q + own) * dim + i] = head[i];
}

/* --- of many tokens --- */

/* Loads a head that a product left unscaled, and applies its scale and bias with the bits of apr_cuda_finish (activations_f16.cu). */
static __device__ __forceinline__ void load_unscaled(const float *from, const float *bias, float by, int n, float *head)
{
    for (int i = threadIdx.x % 32; i < n; i += 32) {
        const float x = from[i];
        head[i] = bias != NULL ? fmaf(x, by, bias[i]) : __fmul_rn(x, by);
    }
    __syncwarp();
}

/* The QKV epilogue of token blockIdx.x of many. */
static __global__ void __launch_bounds__(BLOCK)
    k_qkv_epilogue_many(const __grid_constant__ apr_qkv_epilogue_args a, const __grid_constant__ apr_cuda_unscaled_qkv u)
{
    __shared__ float heads[WARPS][APR_QKV_EPILOGUE_MAX_DIM];
    float *const head = heads[threadIdx.x / 32];
    const int at = (int)blockIdx.y * WARPS + (int)threadIdx.x / 32, n_q = (int)a.q.n_heads, n_k = (int)a.store.n_kv_heads;
    const int which = at < n_q ? 0 : at < n_q + n_k ? 1 : 2, own = which == 0 ? at : which == 1 ? at - n_q : at - n_q - n_k;
    if (which == 2 && own >= n_k) return;
    const int dim = (int)(which == 2 ? a.store.value_dim : a.store.key_dim), begin = own * dim;
    const int64_t token = blockIdx.x, row = token * (which == 0 ? n_q : n_k) * dim + begin;
    const float *const separate = which == 0 ? source_of(a.q_norm, a.q) : which == 1 ? source_of(a.k_norm, a.k) : a.store.v;
    const float *const from = u.from[which] != NULL ? u.from[which] + token * u.stride + begin : separate + row;
    load_unscaled(from, u.bias[which] != NULL ? u.bias[which] + begin : NULL, u.scales[token], dim, head);
    if (which < 2) {
        const apr_norm_args &norm = which == 0 ? a.q_norm : a.k_norm;
        const apr_rope_args &rope = which == 0 ? a.q : a.k;
        if (norm.chunk > 0) norm_head(norm, begin, head);
        rotate_head<false>(rope, rope.angles + token * 2 * rope.n_freqs, head);
    }
    if (which == 0) {
        for (int i = threadIdx.x % 32; i < dim; i += 32) a.q.out[row + i] = head[i];
        return;
    }
    const apr_cache &cache = which == 1 ? a.store.keys : a.store.values;
    put_head(cache.dtype, cache_place(a.store, cache, token, own), dim, head);
}

static bool is_cache(const apr_cache *cache, int64_t dim)
{
    switch ((int)cache->dtype) {
    case APR_F32:
    case APR_F16:
    case APR_BF16:
    case APR_F8_E4M3: return true;
    case APR_Q8_0: return dim % 32 == 0;
    default: return false;
    }
}

static bool is_rotation(const apr_rope_args *a, int64_t dim)
{
    return a->head_dim == dim && a->start >= 0 && a->n_freqs >= 0 && a->start + 2 * a->n_freqs <= dim;
}

static bool is_norm(const apr_norm_args *a, int64_t dim)
{
    return a->chunk == 0 || (a->kind == APR_NORM_RMS && a->chunk == dim && a->n_weight > 0 && a->bias == NULL);
}

bool apr_cuda_has_qkv_epilogue(const apr_qkv_epilogue_args *a)
{
    const int64_t dim = a->store.key_dim;
    return apr_has_qkv_epilogue(&a->store) && is_rotation(&a->q, dim) && is_rotation(&a->k, dim) && is_norm(&a->q_norm, dim) &&
           is_norm(&a->k_norm, dim) && a->store.v != NULL && a->k.n_heads == a->store.n_kv_heads;
}

cudaError_t apr_cuda_qkv_epilogue(const apr_qkv_epilogue_args *a, cudaStream_t stream)
{
    const int64_t n_heads = a->q.n_heads + 2 * a->store.n_kv_heads, dim = a->store.key_dim;
    const int64_t n_tokens = a->store.n_tokens;
    if (!apr_cuda_has_qkv_epilogue(a) || n_tokens > UINT16_MAX) return cudaErrorInvalidValue;
    if (!is_cache(&a->store.keys, dim) || !is_cache(&a->store.values, a->store.value_dim)) return cudaErrorNotSupported;
    return launch_pdl(k_qkv_epilogue, dim3(blocks_of(n_heads, WARPS), (unsigned)n_tokens), BLOCK, 0, stream, *a);
}

static bool is_part(const apr_small_gemm_part *part, const float *read, int64_t n_heads, int64_t dim)
{
    const apr_tensor *const w = part->weight;
    return part->out == read && dim % 4 == 0 && (uintptr_t)part->out % 16 == 0 && w->rank == 2 && w->dims[0] == n_heads * dim;
}

bool apr_cuda_has_small_gemm_qkv(const apr_qkv_epilogue_args *qkv, const apr_small_gemm_args *args)
{
    const apr_kv_store_args *const kv = &qkv->store;
    const float *const q = qkv->q_norm.chunk > 0 ? qkv->q_norm.x : qkv->q.x, *const k = qkv->k_norm.chunk > 0 ? qkv->k_norm.x : qkv->k.x;
    return args->n_parts == 3 && args->n_tokens == kv->n_tokens && apr_cuda_has_qkv_epilogue(qkv) && is_cache(&kv->keys, kv->key_dim) &&
           is_cache(&kv->values, kv->value_dim) && is_part(&args->parts[0], q, qkv->q.n_heads, kv->key_dim) &&
           is_part(&args->parts[1], k, kv->n_kv_heads, kv->key_dim) && is_part(&args->parts[2], kv->v, kv->n_kv_heads, kv->value_dim);
}

cudaError_t apr_cuda_small_gemm_qkv(const apr_qkv_epilogue_args *qkv, const gemm_call &call, int n_blocks, int rows_of_block,
                                    cudaStream_t stream)
{
    const int64_t n_heads = qkv->q.n_heads + 2 * qkv->store.n_kv_heads;
    const int64_t left = call.n_tokens - (int64_t)call.first_tile * APR_SMALL_GEMM_TILE, most = (int64_t)call.n_here * APR_SMALL_GEMM_TILE;
    qkv_fixup e = {call, n_blocks, 0, *qkv};
    while (1 << e.shift < rows_of_block) e.shift++;
    if (1 << e.shift != rows_of_block) return cudaErrorInvalidValue;
    /* the same carveout as the kernels around it (for k_qkv_epilogue that made no difference) */
    const cudaError_t error = cudaFuncSetAttribute(k_qkv_epilogue_fixup, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    const dim3 grid(blocks_of(n_heads, WARPS), (unsigned)(left < most ? left : most));
    return launch_pdl(k_qkv_epilogue_fixup, grid, BLOCK, 0, stream, e);
}

cudaError_t apr_cuda_qkv_epilogue_many(const apr_qkv_epilogue_args *a, const apr_cuda_unscaled_qkv *unfinished, cudaStream_t stream)
{
    const int64_t n_heads = a->q.n_heads + 2 * a->store.n_kv_heads, dim = a->store.key_dim;
    if (!apr_cuda_has_qkv_epilogue(a)) return cudaErrorInvalidValue;
    if (!is_cache(&a->store.keys, dim) || !is_cache(&a->store.values, a->store.value_dim)) return cudaErrorNotSupported;
    const dim3 grid((unsigned)a->store.n_tokens, blocks_of(n_heads, WARPS));
    k_qkv_epilogue_many<<<grid, BLOCK, 0, stream>>>(*a, *unfinished);
    return cudaGetLastError();
}
