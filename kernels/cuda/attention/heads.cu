/* heads.cu - linear with a matrix per head: few tokens straight from the packed weights, many through cuBLAS, batched over heads. */
#include "kernels/cuda/attention/latent_store.cuh"
#include "kernels/cuda/attention/rope.cuh"
#include "kernels/cuda/common/canonical.cuh"
#include "kernels/cuda/common/dequantize.cuh"
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/gemm/activations_f16.cuh"
#include "kernels/cuda/gemv/gemv.cuh"

/* Threads of a block: COLUMNS along a row, PARTS rows at a time; where a thread has a piece of a row, PIECES and PIECE_PARTS. */
enum { COLUMNS = 32, PARTS = 8, PIECES = 4, PIECE_PARTS = 64, MAX_PAIRS = 32768, TAIL_BLOCK = 256 };

/* What follows a head's inputs, and is rotated and copied to follow its outputs; n 0: nothing. */
typedef struct heads_tail {
    int n, n_freqs, start; /* start: of what is rotated, after the inputs */
    bool neighbours;
    const float *angles; /* [n_tokens, 2 * n_freqs] */
} heads_tail;

/* The product, and where the rows of a head's inputs and outputs are. */
typedef struct heads_product {
    const apr_linear_args *linear;
    int64_t x_stride, out_stride;
    heads_tail tail;
    const apr_latent_store_args *store; /* done in the same call; NULL: none */
} heads_product;

/* One of the tail's n - n_freqs pieces of work: a pair of numbers that is rotated, or a number that is copied. */
static __device__ __forceinline__ void put_tail(const heads_tail &tail, int64_t token, int j, const float *x, float *out)
{
    const int n = tail.n_freqs, start = tail.start;
    if (j >= n) {
        const int i = j - n < start ? j - n : j + n;
        out[i] = x[i];
        return;
    }
    const float *const angles = tail.angles + token * 2 * n;
    const int i = start + (tail.neighbours ? 2 * j : j), other = i + (tail.neighbours ? 1 : n);
    const float2 pair = rotated(x[i], x[other], angles[j], angles[j + n]);
    out[i] = pair.x;
    out[other] = pair.y;
}

/* The tails of all pairs of a token and a head. */
static __global__ void __launch_bounds__(TAIL_BLOCK)
    k_tails(const heads_tail tail, const float *x, int64_t x_stride, float *out, int64_t out_stride, int64_t n_pairs, int n_heads)
{
    pdl_trigger_and_wait();
    const int64_t at = (int64_t)blockIdx.x * TAIL_BLOCK + threadIdx.x, each = tail.n - tail.n_freqs, pair = at / each;
    if (pair < n_pairs) put_tail(tail, pair / n_heads, (int)(at % each), x + pair * x_stride, out + pair * out_stride);
}

/* `x` and `out`: of the first pair. */
static cudaError_t start_tails(const heads_product *p, const float *x, float *out, int64_t n_pairs, cudaStream_t stream)
{
    const apr_linear_args *const a = p->linear;
    if (p->tail.n == 0) return cudaSuccess;
    return launch_pdl(k_tails, blocks_of(n_pairs * (p->tail.n - p->tail.n_freqs), TAIL_BLOCK), TAIL_BLOCK, 0, stream, p->tail, x + a->n_in,
                      p->x_stride, out + a->n_out, p->out_stride, n_pairs, (int)a->heads.n);
}

/* --- a few tokens --- */

typedef struct heads_args {
    weight_view weight;
    apr_linear_heads heads;
    const float *x; /* [n_pairs, n_in], rows x_stride apart: a pair is a token and a head */
    float *out;     /* [n_pairs, columns of the weight], rows out_stride apart */
    int64_t n_in, x_stride, out_stride;
    heads_tail tail;
    unsigned n_pairs;            /* blockIdx.y; those after them store a token's latent each */
    apr_latent_store_args store; /* by k_along_rows */
} heads_args;

/* By the pair's first thread block, and all its threads. */
static __device__ __forceinline__ void put_own_tail(const heads_args &a, int64_t pair)
{
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    for (int j = thread; blockIdx.x == 0 && j < a.tail.n - a.tail.n_freqs; j += blockDim.x * blockDim.y)
        put_tail(a.tail, pair / a.heads.n, j, a.x + pair * a.x_stride + a.n_in, a.out + pair * a.out_stride + a.weight.n_in);
}

/* Adds the parts' sums in order; only part 0 gets the result. */
static __device__ __forceinline__ float4 sum_parts(float4 own, float4 (&parts)[PARTS][COLUMNS])
{
    __syncthreads(); /* the previous run has been read */
    parts[threadIdx.y][threadIdx.x] = own;
    __syncthreads();
    for (int i = 1; threadIdx.y == 0 && i < PARTS; i++) {
        const float4 v = parts[i][threadIdx.x];
        own.x += v.x, own.y += v.y, own.z += v.z, own.w += v.w;
    }
    return own;
}

/* out[pair] = sum over rows i of the head's matrix: x[pair][i] * row i. A thread has a piece of the columns, and every PIECE_PARTS-th row.
 * The parts' sums are added in order, a thread per column. */
template <apr_dtype D> __global__ void __launch_bounds__(PIECES *PIECE_PARTS, 1) k_along_rows(const __grid_constant__ heads_args a)
{
    typedef piece<D> P;
    enum { SHARED_RUNS = P::RUNS < 8 ? P::RUNS : 8 };
    __shared__ float4 parts[PIECE_PARTS][SHARED_RUNS][PIECES];
    const int64_t pair = blockIdx.y, head = pair % a.heads.n, n_pieces = a.weight.n_in / P::ELEMS * P::LANES;
    const int64_t p = (int64_t)blockIdx.x * PIECES + threadIdx.x, block = p / P::LANES;
    const int lane = (int)(p % P::LANES);
    const bool there = p < n_pieces;
    float4 sums[P::RUNS];
#pragma unroll
    for (int run = 0; run < P::RUNS; run++) sums[run] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    pdl_trigger();
    if (pair >= a.n_pairs) { /* one more for each token whose latent is stored */
        pdl_wait();
        if (blockIdx.x == 0)
            store_latent(a.store, pair - a.n_pairs, threadIdx.y * PIECES + threadIdx.x, PIECES * PIECE_PARTS, (float *)parts);
        return;
    }
    for (int64_t i = threadIdx.y; i < (there ? a.n_in : 0); i += PIECE_PARTS)
        prefetch_weights(a.weight.data + stored_row(a.weight, head * a.heads.rows + a.heads.first + i) * a.weight.row_bytes +
                         block * P::BYTES);
    pdl_wait();
    put_own_tail(a, pair);
#pragma unroll 2
    for (int64_t i = threadIdx.y; i < (there ? a.n_in : 0); i += PIECE_PARTS) {
        const int64_t stored = stored_row(a.weight, head * a.heads.rows + a.heads.first + i);
        const float x = a.x[pair * a.x_stride + i];
        const float factor = has_factors<D>::value ? factor_at(a.weight, stored, block * P::ELEMS) : 1.0f;
        P q;
        q.load(a.weight.data + stored * a.weight.row_bytes + block * P::BYTES, lane);
#pragma unroll
        for (int run = 0; run < P::RUNS; run++) {
            const int group = run / (P::RUNS / P::SCALES);
            const float scale = q.block_scale() * q.scale(group), below = P::HAS_MIN ? q.block_min() * q.min(group) : 0.0f;
            const float4 codes = q.codes(run);
            sums[run].x = fmaf(x, exact_value<D>(q, codes.x, scale, below, factor), sums[run].x);
            sums[run].y = fmaf(x, exact_value<D>(q, codes.y, scale, below, factor), sums[run].y);
            sums[run].z = fmaf(x, exact_value<D>(q, codes.z, scale, below, factor), sums[run].z);
            sums[run].w = fmaf(x, exact_value<D>(q, codes.w, scale, below, factor), sums[run].w);
        }
    }
#pragma unroll
    for (int first = 0; first < P::RUNS; first += SHARED_RUNS) {
        __syncthreads(); /* the previous runs have been read */
#pragma unroll
        for (int run = 0; run < SHARED_RUNS; run++) parts[threadIdx.y][run][threadIdx.x] = sums[first + run];
        __syncthreads();
        for (int at = threadIdx.y * PIECES + threadIdx.x; at < SHARED_RUNS * PIECES * 4; at += PIECES * PIECE_PARTS) {
            const int run = at / (PIECES * 4), of = at / 4 % PIECES, number = at % 4;
            const int64_t piece_at = (int64_t)blockIdx.x * PIECES + of;
            float sum = 0.0f;
#pragma unroll 8
            for (int i = 0; i < PIECE_PARTS; i++) sum += ((const float *)&parts[i][run][of])[number];
            if (piece_at < n_pieces)
                a.out[pair * a.out_stride + piece_at / P::LANES * P::ELEMS + P::column((int)(piece_at % P::LANES), first + run) + number] =
                    sum;
        }
    }
}

/* The same for rows of any length, a thread per column. */
template <apr_dtype D> __global__ void __launch_bounds__(COLUMNS *PARTS, 1) k_along_rows_elements(const __grid_constant__ heads_args a)
{
    __shared__ float4 parts[PARTS][COLUMNS];
    const int64_t pair = blockIdx.y, head = pair % a.heads.n, column = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    const bool there = column < a.weight.n_in;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    pdl_trigger_and_wait();
    put_own_tail(a, pair);
    for (int64_t i = threadIdx.y; there && i < a.n_in; i += PARTS) {
        const int64_t stored = stored_row(a.weight, head * a.heads.rows + a.heads.first + i);
        const float value = element<D>(a.weight, stored, column);
        sum.x = fmaf(a.x[pair * a.x_stride + i], has_factors<D>::value ? value * factor_at(a.weight, stored, column) : value, sum.x);
    }
    sum = sum_parts(sum, parts);
    if (there && threadIdx.y == 0) a.out[pair * a.out_stride + column] = sum.x;
}

/* The same for packed matrices. */
template <int BITS> __global__ void __launch_bounds__(COLUMNS *PARTS, 1) k_along_rows_canonical(const __grid_constant__ heads_args a)
{
    __shared__ float4 parts[PARTS][COLUMNS];
    __shared__ float levels[1 << BITS];
    const int64_t pair = blockIdx.y, head = pair % a.heads.n, column = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    const bool there = column < a.weight.n_in;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    pdl_trigger_and_wait();
    put_own_tail(a, pair);
    put_levels<BITS>(a.weight, levels);
    for (int64_t i = threadIdx.y; there && i < a.n_in; i += PARTS) {
        const canonical_row row = canonical_row_of(a.weight, head * a.heads.rows + a.heads.first + i);
        sum.x = fmaf(a.x[pair * a.x_stride + i], canonical_value<BITS>(a.weight, levels, row, column), sum.x);
    }
    sum = sum_parts(sum, parts);
    if (there && threadIdx.y == 0) a.out[pair * a.out_stride + column] = sum.x;
}

static dim3 grid_of(int64_t n_columns, unsigned n_pairs) { return dim3(blocks_of(n_columns, COLUMNS), n_pairs); }

template <apr_dtype D> static cudaError_t along_rows(const heads_args &a, unsigned n_pairs, cudaStream_t stream)
{
    const int64_t n_pieces = a.weight.n_in / piece<D>::ELEMS * piece<D>::LANES;
    return launch_pdl(k_along_rows<D>, dim3(blocks_of(n_pieces, PIECES), n_pairs + (unsigned)a.store.store.n_tokens),
                      dim3(PIECES, PIECE_PARTS), 0, stream, a);
}

template <apr_dtype D> static cudaError_t along_rows_plain(const heads_args &a, unsigned n_pairs, cudaStream_t stream)
{
    if (in_pieces<D>(a.weight)) return along_rows<D>(a, n_pairs, stream);
    const cudaError_t error = launch_pdl(k_along_rows_elements<D>, grid_of(a.weight.n_in, n_pairs), dim3(COLUMNS, PARTS), 0, stream, a);
    return error == cudaSuccess ? apr_cuda_latent_store(&a.store, stream) : error;
}

static cudaError_t along_rows_canonical(const heads_args &a, unsigned n_pairs, cudaStream_t stream)
{
    const dim3 grid = grid_of(a.weight.n_in, n_pairs), threads(COLUMNS, PARTS);
    const cudaError_t error =
        launch_pdl(a.weight.canonical.bits == 4 ? k_along_rows_canonical<4> : k_along_rows_canonical<8>, grid, threads, 0, stream, a);
    return error == cudaSuccess ? apr_cuda_latent_store(&a.store, stream) : error;
}

typedef cudaError_t (*along_rows_fn)(const heads_args &args, unsigned n_pairs, cudaStream_t stream);

/* clang-format off */
#define ALONG_CASE(id)       case APR_##id: return along_rows<APR_##id>;
#define ALONG_PLAIN_CASE(id) case APR_##id: return along_rows_plain<APR_##id>;
/* clang-format on */

static along_rows_fn along_rows_of_type(apr_dtype dtype)
{
    switch ((int)dtype) {
        APR_CUDA_BLOCKS(ALONG_CASE)
        APR_CUDA_K(ALONG_CASE)
        APR_CUDA_PLAIN(ALONG_PLAIN_CASE)
    default: return NULL;
    }
}

static const apr_latent_store_args no_store = {};

/* Multiplies pairs [first, first + n) of tokens and heads; the first is of head 0. */
static cudaError_t some_pairs(const heads_product *p, const weight_view *weight, int64_t first, unsigned n, cudaStream_t stream)
{
    const apr_linear_args *const a = p->linear;
    const float *const x = a->x + first * p->x_stride;
    float *const out = a->out + first * p->out_stride;
    heads_product own = *p;

    if (own.tail.n > 0) own.tail.angles += first / a->heads.n * 2 * own.tail.n_freqs;
    if (own.store == NULL || first > 0) own.store = &no_store;
    if (a->heads.transposed) {
        const along_rows_fn start = a->weight->packing != NULL ? along_rows_canonical : along_rows_of_type(a->weight->dtype);
        const heads_args h = {*weight, a->heads, x, out, a->n_in, p->x_stride, p->out_stride, own.tail, n, *own.store};
        return start != NULL ? start(h, n, stream) : cudaErrorNotSupported;
    }
    const gemv_fn start = apr_cuda_gemv_of(a->weight);
    gemv_args g = {};
    g.weight = *weight;
    g.x = x;
    g.out = out;
    g.n_out = a->n_out;
    g.n_tokens = 1;
    g.n_parts = 1;
    g.n_pairs = n;
    g.n_used = (int)a->heads.n;
    g.matrix_rows = a->heads.rows;
    g.first_row = a->heads.first;
    g.x_per_choice = true;
    g.x_stride = p->x_stride, g.out_stride = p->out_stride;
    cudaError_t error = start != NULL ? start(g, stream) : cudaErrorNotSupported;
    if (error == cudaSuccess) error = start_tails(&own, x, out, n, stream);
    return error == cudaSuccess ? apr_cuda_latent_store(own.store, stream) : error;
}

static cudaError_t multiply_few(const heads_product *p, cudaStream_t stream)
{
    const apr_linear_args *const a = p->linear;
    const int64_t n_pairs = a->n_tokens * a->heads.n, most = MAX_PAIRS / (a->heads.n > 0 ? a->heads.n : 1) * a->heads.n;
    weight_view weight;
    cudaError_t error = cudaSuccess;

    if (n_pairs == 0 || a->n_out == 0) return cudaSuccess;
    if (most == 0 || a->bias != NULL || !apr_cuda_view(a->weight, &weight) || weight.n_rows < a->heads.n * a->heads.rows ||
        weight.n_in != (a->heads.transposed ? a->n_out : a->n_in) || a->heads.first + apr_linear_head_rows(a) > a->heads.rows)
        return cudaErrorInvalidValue;
    for (int64_t first = 0; first < n_pairs && error == cudaSuccess; first += most)
        error = some_pairs(p, &weight, first, (unsigned)(n_pairs - first < most ? n_pairs - first : most), stream);
    return error;
}

/* Rows without gaps. */
static heads_product product_of(const apr_linear_args *a) { return heads_product{a, a->n_in, a->n_out, heads_tail{}, NULL}; }

cudaError_t apr_cuda_linear_heads_few(const apr_linear_args *a, cudaStream_t stream)
{
    const heads_product p = product_of(a);
    return multiply_few(&p, stream);
}

/* --- many --- */

/* Multiplies heads [head, head + n), whose rows begin at `rows`. */
static cublasStatus_t multiply(const apr_cuda_device *device, const heads_product *p, const __half *rows, const __half *values, bool adds,
                               int64_t head, int64_t n)
{
    const apr_linear_args *const a = p->linear;
    static const cublasComputeType_t compute_types[] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC};
    const int64_t n_columns = a->heads.transposed ? a->n_out : a->n_in;
    const float one = 1.0f, kept = adds ? 1.0f : 0.0f;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    for (size_t i = 0; i < sizeof compute_types / sizeof *compute_types; i++) {
        status = cublasGemmStridedBatchedEx(
            device->blas, a->heads.transposed ? CUBLAS_OP_N : CUBLAS_OP_T, CUBLAS_OP_N, (int)a->n_out, (int)a->n_tokens, (int)a->n_in, &one,
            rows + a->heads.first * n_columns, CUDA_R_16F, (int)n_columns, a->heads.rows * n_columns, values + head * a->n_in, CUDA_R_16F,
            (int)(a->heads.n * a->n_in), a->n_in, &kept, a->out + head * p->out_stride, CUDA_R_32F, (int)(a->heads.n * p->out_stride),
            p->out_stride, (int)n, compute_types[i], CUBLAS_GEMM_DEFAULT);
        if (status == CUBLAS_STATUS_SUCCESS) break;
    }
    return status;
}

static apr_status multiply_many(apr_cuda_device *device, const heads_product *p, apr_error *err)
{
    const apr_linear_args *const a = p->linear;
    const int64_t n_pairs = a->n_tokens * a->heads.n, n_columns = a->heads.transposed ? a->n_out : a->n_in;
    const bool is_f16 = apr_cuda_is_f16(a->weight);
    const size_t input_bytes = apr_cuda_inputs_bytes(a->n_tokens, a->heads.n * a->n_in),
                 before = input_bytes + apr_cuda_scales_bytes(n_pairs);
    const size_t given = a->work.slice * sizeof(float), rest = given > before ? given - before : 0;
    const int64_t tile = is_f16 ? a->heads.n
                                : apr_cuda_dequantized_heads(a->heads.n, a->heads.rows, n_columns,
                                                             rest < APR_CUDA_DEQUANTIZED_BYTES ? rest : (size_t)APR_CUDA_DEQUANTIZED_BYTES);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    if (given < before || (!is_f16 && (size_t)(tile * a->heads.rows * n_columns) * 2 > rest))
        return apr_fail(
            err, APR_E_USAGE, "linear '%s' of %lld tokens needs %zu bytes of workspace and got %zu", a->weight->name,
            (long long)a->n_tokens,
            apr_cuda_linear_heads_bytes_within(a->n_tokens, &a->heads, a->n_in, n_columns, is_f16, APR_CUDA_MIN_DEQUANTIZED_BYTES), given);
    uint8_t *const work = (uint8_t *)a->work.data;
    apr_cuda_activations_f16 inputs = {};
    inputs.values = (__half *)work;
    inputs.remainders = a->n_tokens <= APR_CUDA_CAREFUL_TOKENS ? (__half *)(work + input_bytes / 2) : NULL;
    inputs.scales = (float *)(work + input_bytes);
    inputs.x_stride = p->x_stride, inputs.out_stride = p->out_stride;
    __half *const decoded = (__half *)(work + before);
    cudaError_t error = apr_cuda_make_f16(a->x, &inputs, n_pairs, a->n_in, device->stream);
    for (int64_t head = 0; head < a->heads.n && error == cudaSuccess && status == CUBLAS_STATUS_SUCCESS; head += tile) {
        const int64_t n = a->heads.n - head < tile ? a->heads.n - head : tile;
        if (!is_f16) error = apr_cuda_decode_to_half(a->weight, head * a->heads.rows, n * a->heads.rows, decoded, device->stream);
        const __half *const rows = is_f16 ? (const __half *)a->weight->data : decoded;
        if (error == cudaSuccess && inputs.remainders != NULL) status = multiply(device, p, rows, inputs.remainders, false, head, n);
        if (error == cudaSuccess && status == CUBLAS_STATUS_SUCCESS)
            status = multiply(device, p, rows, inputs.values, inputs.remainders != NULL, head, n);
    }
    if (error == cudaSuccess && status != CUBLAS_STATUS_SUCCESS) /* slower, and as accurate as float32 */
        return apr_cuda_outcome(device, multiply_few(p, device->stream), err);
    if (error == cudaSuccess) error = apr_cuda_finish(a->out, &inputs, NULL, n_pairs, a->n_out, device->stream);
    if (error == cudaSuccess) error = start_tails(p, a->x, a->out, n_pairs, device->stream);
    if (error == cudaSuccess && p->store != NULL) error = apr_cuda_latent_store(p->store, device->stream);
    return apr_cuda_outcome(device, error, err);
}

/* A token at a time: how a GEMV divides its rows depends on how many there are. */
static cudaError_t multiply_batch_invariant(const heads_product *p, cudaStream_t stream)
{
    const apr_linear_args *const a = p->linear;
    const int64_t each = a->heads.transposed ? a->n_tokens : 1;
    cudaError_t error = cudaSuccess;
    for (int64_t first = 0; first < a->n_tokens && error == cudaSuccess; first += each) {
        apr_linear_args some = *a;
        heads_product own = *p;
        some.n_tokens = each;
        some.x = a->x + first * a->heads.n * p->x_stride;
        some.out = a->out + first * a->heads.n * p->out_stride;
        if (own.tail.n > 0) own.tail.angles += first * 2 * own.tail.n_freqs;
        if (first > 0) own.store = NULL;
        own.linear = &some;
        error = multiply_few(&own, stream);
    }
    return error;
}

static apr_status multiply_any(apr_cuda_device *device, const heads_product *p, apr_error *err)
{
    const apr_linear_args *const a = p->linear;
    if (device->batch_invariant) return apr_cuda_outcome(device, multiply_batch_invariant(p, device->stream), err);
    const bool as_few = device->exact || a->n_tokens <= APR_CUDA_FEW_TOKENS;
    const bool packed = !device->tiles || apr_cuda_is_f16(a->weight);
    if ((as_few && packed) || device->blas == NULL || a->n_tokens == 0)
        return apr_cuda_outcome(device, multiply_few(p, device->stream), err);
    return multiply_many(device, p, err);
}

apr_status apr_cuda_linear_heads(apr_cuda_device *device, const apr_linear_args *a, apr_error *err)
{
    const heads_product p = product_of(a);
    return multiply_any(device, &p, err);
}

apr_status apr_cuda_run_latent_query(apr_cuda_device *device, const apr_latent_query_args *args, const apr_latent_store_args *store,
                                     apr_error *err)
{
    const apr_rope_args *const rope = &args->rope;
    apr_linear_args absorb = args->absorb;
    const int64_t n_tail = rope->head_dim - absorb.n_in;

    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "queries of latent attention");
    if (n_tail < 1 || rope->start < absorb.n_in || rope->n_heads != absorb.heads.n || rope->start + 2 * rope->n_freqs > rope->head_dim ||
        (store != NULL && !apr_cuda_can_store_latent(store)))
        return apr_cuda_outcome(device, cudaErrorInvalidValue, err);
    absorb.x = rope->x;
    absorb.out = args->out;
    const heads_product p = {
        &absorb, rope->head_dim, absorb.n_out + n_tail,
        heads_tail{(int)n_tail, (int)rope->n_freqs, (int)(rope->start - absorb.n_in), rope->mode == APR_ROPE_NEIGHBOURS, rope->angles},
        store};
    return multiply_any(device, &p, err);
}
