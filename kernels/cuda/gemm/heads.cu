/* heads.cu - linear with a matrix per head: few tokens straight from the packed weights, many through cuBLAS, batched over heads. */
#include "kernels/cuda/common/canonical.cuh"
#include "kernels/cuda/common/dequantize.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/gemm/activations_f16.cuh"
#include "kernels/cuda/gemv/gemv.cuh"

/* Threads of a block: COLUMNS along a row, PARTS rows at a time. */
enum { COLUMNS = 32, PARTS = 8, MAX_PAIRS = 65535 };

/* --- a few tokens --- */

typedef struct heads_args {
    weight_view weight;
    apr_linear_heads heads;
    const float *x; /* [n_pairs, n_in]: a pair is a token and a head */
    float *out;     /* [n_pairs, columns of the weight] */
    int64_t n_in;
} heads_args;

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

/* out[pair] = sum over rows i of the head's matrix: x[pair][i] * row i. A thread has a piece of the columns, and every PARTS-th row. */
template <apr_dtype D> __global__ void __launch_bounds__(COLUMNS *PARTS, 1) k_along_rows(const __grid_constant__ heads_args a)
{
    typedef piece<D> P;
    __shared__ float4 parts[PARTS][COLUMNS];
    const int64_t pair = blockIdx.y, head = pair % a.heads.n, n_pieces = a.weight.n_in / P::ELEMS * P::LANES;
    const int64_t p = (int64_t)blockIdx.x * COLUMNS + threadIdx.x, block = p / P::LANES;
    const int lane = (int)(p % P::LANES);
    const bool there = p < n_pieces;
    float4 sums[P::RUNS];
#pragma unroll
    for (int run = 0; run < P::RUNS; run++) sums[run] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    for (int64_t i = threadIdx.y; there && i < a.n_in; i += PARTS) {
        const int64_t stored = stored_row(a.weight, head * a.heads.rows + a.heads.first + i);
        const float x = __ldg(a.x + pair * a.n_in + i);
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
    for (int run = 0; run < P::RUNS; run++) {
        const float4 sum = sum_parts(sums[run], parts);
        if (there && threadIdx.y == 0) put_4(a.out + pair * a.weight.n_in + block * P::ELEMS + P::column(lane, run), sum);
    }
}

/* The same for rows of any length, a thread per column. */
template <apr_dtype D> __global__ void __launch_bounds__(COLUMNS *PARTS, 1) k_along_rows_elements(const __grid_constant__ heads_args a)
{
    __shared__ float4 parts[PARTS][COLUMNS];
    const int64_t pair = blockIdx.y, head = pair % a.heads.n, column = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    const bool there = column < a.weight.n_in;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    for (int64_t i = threadIdx.y; there && i < a.n_in; i += PARTS) {
        const int64_t stored = stored_row(a.weight, head * a.heads.rows + a.heads.first + i);
        const float value = element<D>(a.weight, stored, column);
        sum.x = fmaf(__ldg(a.x + pair * a.n_in + i), has_factors<D>::value ? value * factor_at(a.weight, stored, column) : value, sum.x);
    }
    sum = sum_parts(sum, parts);
    if (there && threadIdx.y == 0) a.out[pair * a.weight.n_in + column] = sum.x;
}

/* The same for packed matrices. */
template <int BITS> __global__ void __launch_bounds__(COLUMNS *PARTS, 1) k_along_rows_canonical(const __grid_constant__ heads_args a)
{
    __shared__ float4 parts[PARTS][COLUMNS];
    __shared__ float levels[1 << BITS];
    const int64_t pair = blockIdx.y, head = pair % a.heads.n, column = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    const bool there = column < a.weight.n_in;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    put_levels<BITS>(a.weight, levels);
    for (int64_t i = threadIdx.y; there && i < a.n_in; i += PARTS) {
        const canonical_row row = canonical_row_of(a.weight, head * a.heads.rows + a.heads.first + i);
        sum.x = fmaf(__ldg(a.x + pair * a.n_in + i), canonical_value<BITS>(a.weight, levels, row, column), sum.x);
    }
    sum = sum_parts(sum, parts);
    if (there && threadIdx.y == 0) a.out[pair * a.weight.n_in + column] = sum.x;
}

static dim3 grid_of(int64_t n_columns, unsigned n_pairs) { return dim3(blocks_of(n_columns, COLUMNS), n_pairs); }

template <apr_dtype D> static cudaError_t along_rows(const heads_args &a, unsigned n_pairs, cudaStream_t stream)
{
    const int64_t n_pieces = a.weight.n_in / piece<D>::ELEMS * piece<D>::LANES;
    k_along_rows<D><<<grid_of(n_pieces, n_pairs), dim3(COLUMNS, PARTS), 0, stream>>>(a);
    return cudaGetLastError();
}

template <apr_dtype D> static cudaError_t along_rows_plain(const heads_args &a, unsigned n_pairs, cudaStream_t stream)
{
    if (in_pieces<D>(a.weight)) return along_rows<D>(a, n_pairs, stream);
    k_along_rows_elements<D><<<grid_of(a.weight.n_in, n_pairs), dim3(COLUMNS, PARTS), 0, stream>>>(a);
    return cudaGetLastError();
}

static cudaError_t along_rows_canonical(const heads_args &a, unsigned n_pairs, cudaStream_t stream)
{
    const dim3 grid = grid_of(a.weight.n_in, n_pairs), threads(COLUMNS, PARTS);
    if (a.weight.canonical.bits == 4) k_along_rows_canonical<4><<<grid, threads, 0, stream>>>(a);
    else k_along_rows_canonical<8><<<grid, threads, 0, stream>>>(a);
    return cudaGetLastError();
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

/* Multiplies pairs [first, first + n) of tokens and heads; the first is of head 0. */
static cudaError_t some_pairs(const apr_linear_args *a, const weight_view *weight, int64_t first, unsigned n, cudaStream_t stream)
{
    const float *const x = a->x + first * a->n_in;
    float *const out = a->out + first * a->n_out;

    if (a->heads.transposed) {
        const along_rows_fn start = a->weight->packing != NULL ? along_rows_canonical : along_rows_of_type(a->weight->dtype);
        const heads_args h = {*weight, a->heads, x, out, a->n_in};
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
    return start != NULL ? start(g, stream) : cudaErrorNotSupported;
}

cudaError_t apr_cuda_linear_heads_few(const apr_linear_args *a, cudaStream_t stream)
{
    const int64_t n_pairs = a->n_tokens * a->heads.n, most = MAX_PAIRS / (a->heads.n > 0 ? a->heads.n : 1) * a->heads.n;
    weight_view weight;
    cudaError_t error = cudaSuccess;

    if (n_pairs == 0 || a->n_out == 0) return cudaSuccess;
    if (most == 0 || a->bias != NULL || !apr_cuda_view(a->weight, &weight) || weight.n_rows < a->heads.n * a->heads.rows ||
        weight.n_in != (a->heads.transposed ? a->n_out : a->n_in) || a->heads.first + apr_linear_head_rows(a) > a->heads.rows)
        return cudaErrorInvalidValue;
    for (int64_t first = 0; first < n_pairs && error == cudaSuccess; first += most)
        error = some_pairs(a, &weight, first, (unsigned)(n_pairs - first < most ? n_pairs - first : most), stream);
    return error;
}

/* --- many --- */

/* Multiplies heads [head, head + n), whose rows begin at `rows`. */
static cublasStatus_t multiply(const apr_cuda_device *device, const apr_linear_args *a, const __half *rows, const __half *values, bool adds,
                               int64_t head, int64_t n)
{
    static const cublasComputeType_t compute_types[] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC};
    const int64_t n_columns = a->heads.transposed ? a->n_out : a->n_in;
    const float one = 1.0f, kept = adds ? 1.0f : 0.0f;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    for (size_t i = 0; i < sizeof compute_types / sizeof *compute_types; i++) {
        status = cublasGemmStridedBatchedEx(device->blas, a->heads.transposed ? CUBLAS_OP_N : CUBLAS_OP_T, CUBLAS_OP_N, (int)a->n_out,
                                            (int)a->n_tokens, (int)a->n_in, &one, rows + a->heads.first * n_columns, CUDA_R_16F,
                                            (int)n_columns, a->heads.rows * n_columns, values + head * a->n_in, CUDA_R_16F,
                                            (int)(a->heads.n * a->n_in), a->n_in, &kept, a->out + head * a->n_out, CUDA_R_32F,
                                            (int)(a->heads.n * a->n_out), a->n_out, (int)n, compute_types[i], CUBLAS_GEMM_DEFAULT);
        if (status == CUBLAS_STATUS_SUCCESS) break;
    }
    return status;
}

static apr_status linear_heads_many(apr_cuda_device *device, const apr_linear_args *a, apr_error *err)
{
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
    __half *const decoded = (__half *)(work + before);
    cudaError_t error = apr_cuda_make_f16(a->x, &inputs, n_pairs, a->n_in, device->stream);
    for (int64_t head = 0; head < a->heads.n && error == cudaSuccess && status == CUBLAS_STATUS_SUCCESS; head += tile) {
        const int64_t n = a->heads.n - head < tile ? a->heads.n - head : tile;
        if (!is_f16) error = apr_cuda_decode_to_half(a->weight, head * a->heads.rows, n * a->heads.rows, decoded, device->stream);
        const __half *const rows = is_f16 ? (const __half *)a->weight->data : decoded;
        if (error == cudaSuccess && inputs.remainders != NULL) status = multiply(device, a, rows, inputs.remainders, false, head, n);
        if (error == cudaSuccess && status == CUBLAS_STATUS_SUCCESS)
            status = multiply(device, a, rows, inputs.values, inputs.remainders != NULL, head, n);
    }
    if (error == cudaSuccess && status != CUBLAS_STATUS_SUCCESS) /* slower, and as accurate as float32 */
        return apr_cuda_outcome(device, apr_cuda_linear_heads_few(a, device->stream), err);
    if (error == cudaSuccess) error = apr_cuda_finish(a->out, &inputs, NULL, n_pairs, a->n_out, device->stream);
    return apr_cuda_outcome(device, error, err);
}

apr_status apr_cuda_linear_heads(apr_cuda_device *device, const apr_linear_args *a, apr_error *err)
{
    const bool as_few = device->exact || a->n_tokens <= APR_CUDA_FEW_TOKENS;
    const bool packed = !device->tiles || apr_cuda_is_f16(a->weight);
    if ((as_few && packed) || device->blas == NULL || a->n_tokens == 0)
        return apr_cuda_outcome(device, apr_cuda_linear_heads_few(a, device->stream), err);
    return linear_heads_many(device, a, err);
}
