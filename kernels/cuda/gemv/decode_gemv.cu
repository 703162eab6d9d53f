/* decode_gemv.cu - the decode GEMV: launches of its kernels (decode_gemv_launch.cuh), activations that are not a product's output, and tiling of
 * weights. */
#include "kernels/cuda/common/weights.cuh"
#include "kernels/cuda/gemv/decode_gemv_launch.cuh"

enum { MIN_COLUMNS = 32 }; /* minimum columns of a tile */
#define X(id, columns) static_assert(columns >= MIN_COLUMNS, "the bound of a row's tiles");
APR_TILED_TYPES(X)
APR_UNTILED_TYPES(X)
#undef X

bool apr_cuda_decode_gemv_fits(apr_dtype dtype, int64_t n_out, int64_t n_in, int n_multiprocessors, int shared_bytes)
{
    const int64_t n_row_groups = n_out / APR_ROW_GROUP, most = 2 * ((n_row_groups + n_multiprocessors - 1) / n_multiprocessors);
    decode_gemv_layout layout;

    if (n_in > INT32_MAX / 4 || most > INT32_MAX / 1024) return false;
    const int64_t max_tiles = n_in / MIN_COLUMNS + 1;
    if (most * max_tiles * max_tiles > UINT32_MAX) return false; /* or fast_divisor is not exact */
    layout.n_extras = THREADS;                                   /* the maximum */
    switch ((int)dtype) {
#define X(id, columns) \
    case APR_##id:     \
        return depth_in(shared_bytes, fixed_bytes<APR_##id>(n_in, (int)most, &layout), decode_gemv_ring<APR_##id>::BYTES) >= MIN_DEPTH;
        APR_TILED_TYPES(X)
        APR_UNTILED_TYPES(X)
#undef X
    default: return false;
    }
}

static int row_groups_in(const apr_tensor *weight)
{
    int64_t rows = 1;
    for (int i = 0; i < weight->rank - 1; i++) rows *= weight->dims[i];
    return (int)(rows / APR_ROW_GROUP);
}

static decode_gemv_call call_of(const apr_decode_gemv_args *args)
{
    decode_gemv_call a = {};
    a.epilogue = args->epilogue;
    a.n_parts = args->n_parts;
    for (int i = 0; i < args->n_parts; i++) {
        const apr_decode_gemv_part *const part = &args->parts[i];
        a.parts[i] = decode_gemv_part{part->weight->data, part->bias, part->out, row_groups_in(part->weight)};
    }
    a.n_in = (int)args->n_in;
    a.n_squares = a.n_in / I16_GROUP;
    a.activations = args->activations;
    a.squares = args->squares, a.residual = args->residual, a.gain = args->gain;
    a.eps = args->eps, a.gain_offset = args->gain_offset;
    a.glu = args->glu;
    a.activations_out = args->activations_out;
    a.out_squares = args->out_squares;
    a.is_first = args->is_first;
    return a;
}

template <apr_dtype D> static cudaError_t start_plain(const decode_gemv_call &a, int n_multiprocessors, cudaStream_t stream)
{
    return a.epilogue == APR_EPILOGUE_GLU ? start<D, GEMV_GLU>(a, n_multiprocessors, stream)
                                          : start<D, GEMV_SUMS>(a, n_multiprocessors, stream);
}

static cudaError_t start_of(apr_dtype dtype, const decode_gemv_call &a, int n_multiprocessors, cudaStream_t stream)
{
    switch ((int)dtype) {
#define X(id, columns) \
    case APR_##id: return start_plain<APR_##id>(a, n_multiprocessors, stream);
        APR_TILED_TYPES(X)
        APR_UNTILED_TYPES(X)
#undef X
    default: return cudaErrorNotSupported;
    }
}

cudaError_t apr_cuda_decode_gemv(const apr_decode_gemv_args *args, int n_multiprocessors, cudaStream_t stream)
{
    decode_gemv_call a = call_of(args);
    a.has_concurrent = args->concurrent != NULL;
    const cudaError_t error = start_of(args->parts[0].weight->dtype, a, n_multiprocessors, stream);
    if (error != cudaSuccess || args->concurrent == NULL) return error;
    decode_gemv_call b = call_of(args->concurrent);
    b.is_concurrent = true;
    return start_of(args->concurrent->parts[0].weight->dtype, b, n_multiprocessors, stream);
}

/* --- activations that are not a product's output --- */

enum {
    PREPARE_THREADS = 1024,
    PREPARE_BLOCK = 256, /* threads of a block that needs no sum of squares */
    PREPARE_KEPT = 4,    /* numbers of a thread that are loaded together */
};

/* The factor of a number, without the norm. */
static __device__ __forceinline__ float gain_of(const apr_decode_gemv_inputs &a, int i)
{
    return i < a.n && a.gain != NULL ? __ldg(a.gain + i) + a.gain_offset : 1.0f;
}

static __device__ __forceinline__ float number_at(const apr_decode_gemv_inputs &a, int i) { return i < a.n ? __ldcg(a.x + i) : 0.0f; }

/* The same with the addend; the sum, which may replace a summand, is stored. */
static __device__ __forceinline__ float sum_at(const apr_decode_gemv_inputs &a, int i)
{
    if (a.addend == NULL || i >= a.n) return number_at(a, i);
    return a.sum[i] = __ldcg(a.x + i) + __ldcg(a.addend + i);
}

/* A half warp has a group of 16: all lanes take part. */
static __device__ __forceinline__ void store_number(const apr_decode_gemv_inputs &a, int i, float value)
{
    if (i < a.n && a.out != NULL) a.out[i] = value;
    store_i16(a.activations_out, i, i < a.n, value);
}

/* One block, which sums all squares. */
static __global__ void __launch_bounds__(PREPARE_THREADS) k_prepare_normed(const __grid_constant__ apr_decode_gemv_inputs a)
{
    __shared__ float parts[PREPARE_THREADS / 32];
    const int thread = (int)threadIdx.x, n = (int)a.n;
    float gains[PREPARE_KEPT], kept[PREPARE_KEPT], sum = 0.0f;
#pragma unroll
    for (int k = 0; k < PREPARE_KEPT; k++) gains[k] = gain_of(a, thread + k * PREPARE_THREADS);
    pdl_trigger_and_wait();
#pragma unroll
    for (int k = 0; k < PREPARE_KEPT; k++) kept[k] = sum_at(a, thread + k * PREPARE_THREADS);
#pragma unroll
    for (int k = 0; k < PREPARE_KEPT; k++) sum = fmaf(kept[k], kept[k], sum);
    for (int i = thread + PREPARE_KEPT * PREPARE_THREADS; i < n; i += PREPARE_THREADS) {
        const float x = sum_at(a, i);
        sum = fmaf(x, x, sum);
    }
    const float factor = rsqrtf(block_sum<PREPARE_THREADS>(sum, parts) / (float)n + a.eps);
#pragma unroll
    for (int k = 0; k < PREPARE_KEPT; k++)
        if (k * PREPARE_THREADS < n) store_number(a, thread + k * PREPARE_THREADS, kept[k] * factor * gains[k]);
    for (int i = thread + PREPARE_KEPT * PREPARE_THREADS; i - thread < n; i += PREPARE_THREADS)
        store_number(a, i, (a.addend != NULL && i < n ? a.sum[i] : number_at(a, i)) * factor * gain_of(a, i));
}

static __global__ void __launch_bounds__(PREPARE_BLOCK) k_prepare(const __grid_constant__ apr_decode_gemv_inputs a)
{
    const int i = (int)(blockIdx.x * PREPARE_BLOCK + threadIdx.x);
    const float gain = gain_of(a, i);
    pdl_trigger_and_wait();
    store_number(a, i, number_at(a, i) * gain);
}

cudaError_t apr_cuda_decode_gemv_prepare(const apr_decode_gemv_inputs *a, cudaStream_t stream)
{
    if (a->addend != NULL && !a->norm) return cudaErrorInvalidValue;
    if (a->norm) return launch_pdl(k_prepare_normed, 1, PREPARE_THREADS, 0, stream, *a);
    return launch_pdl(k_prepare, blocks_of(a->n, PREPARE_BLOCK), PREPARE_BLOCK, 0, stream, *a);
}

/* --- tiling of weights --- */

enum { TILING_THREADS = 256 };

/* A thread copies two bytes, of n: every quantization block has an even number of bytes. A row has `row_words` words; a tiled row is padded
 * to whole tiles. */
static __global__ void __launch_bounds__(TILING_THREADS)
    k_to_tiles(const uint16_t *rows, uint16_t *to, uint32_t tile_row, uint32_t row_words, uint64_t n)
{
    const uint64_t at = (uint64_t)blockIdx.x * TILING_THREADS + threadIdx.x, n_tiles = (row_words + tile_row - 1) / tile_row;
    if (at >= n) return;
    const uint32_t row = (uint32_t)(at / tile_row % APR_ROW_GROUP);
    const uint64_t tile = at / tile_row / APR_ROW_GROUP, row_group = tile / n_tiles, in_row = tile % n_tiles * tile_row + at % tile_row;
    to[at] = in_row < row_words ? __ldg(rows + (row_group * APR_ROW_GROUP + row) * row_words + in_row) : (uint16_t)0;
}

/* MXFP4, whose exponents are separated from the codes: a thread copies a block of 32 codes. */
static __global__ void __launch_bounds__(TILING_THREADS)
    k_to_tiles_split(const uint8_t *rows, uint8_t *to, uint32_t row_blocks, uint64_t n_blocks)
{
    constexpr int N = tile_blocks<APR_MXFP4>::N, BYTES = piece<APR_MXFP4>::BYTES;
    const uint64_t at = (uint64_t)blockIdx.x * TILING_THREADS + threadIdx.x, n_tiles = (row_blocks + N - 1) / N;
    if (at >= n_blocks) return;
    const uint64_t tile_row = at / N, tile = tile_row / APR_ROW_GROUP, row_group = tile / n_tiles, in_row = tile % n_tiles * N + at % N;
    const uint8_t *const from = rows + ((row_group * APR_ROW_GROUP + tile_row % APR_ROW_GROUP) * row_blocks + in_row) * BYTES;
    uint8_t *const out = to + tile_row * (N * BYTES);
    const bool is_there = in_row < row_blocks;
    out[at % N] = is_there ? __ldg(from) : (uint8_t)0;
#pragma unroll
    for (int k = 0; k < 2; k++)
        *(uint2 *)(out + N + at % N * (BYTES - 1) + 8 * k) = is_there ? nibbles_crossed(load_64_any(from + 1 + 8 * k)) : make_uint2(0, 0);
}

cudaError_t apr_cuda_to_tiles(apr_dtype dtype, const uint8_t *rows, int64_t n_rows, int64_t n_in, uint8_t *to, cudaStream_t stream)
{
    const apr_dtype_facts *const facts = &apr_dtypes[dtype];
    const int columns = apr_tile_columns(dtype);
    if (columns == 0 || n_in % facts->elems_per_block != 0 || n_rows % APR_ROW_GROUP != 0) return cudaErrorInvalidValue;
    const uint64_t n_bytes = (uint64_t)(n_rows * apr_tiled_row_bytes(dtype, true, n_in));
    if (has_split_heads(dtype)) {
        const uint64_t n_blocks = n_bytes / (uint64_t)facts->bytes_per_block;
        k_to_tiles_split<<<(unsigned)((n_blocks + TILING_THREADS - 1) / TILING_THREADS), TILING_THREADS, 0, stream>>>(
            rows, to, (uint32_t)(n_in / facts->elems_per_block), n_blocks);
        return cudaGetLastError();
    }
    const uint32_t tile_row = (uint32_t)apr_tiled_row_bytes(dtype, false, columns) / 2;
    k_to_tiles<<<(unsigned)((n_bytes / 2 + TILING_THREADS - 1) / TILING_THREADS), TILING_THREADS, 0, stream>>>(
        (const uint16_t *)rows, (uint16_t *)to, tile_row, (uint32_t)apr_tiled_row_bytes(dtype, false, n_in) / 2, n_bytes / 2);
    return cudaGetLastError();
}
