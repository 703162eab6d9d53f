/* gemm.cu - linear layers of many tokens: FP16 inputs and tiles of FP16 weights decoded from the packed ones, through cuBLAS.
 *
 * A token's inputs are divided by a power of two of their own before they become FP16, so that none overflows and small ones
 * keep their bits; the sums, float32, are multiplied by it again. Powers of two change no mantissa. Of a few tokens, where reading the
 * weights takes the time, what that rounding took away is multiplied as well: 22 bits of the inputs count. */
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/ops/ops.cuh"

#include <cuda_fp16.h>
#include <stdio.h>
#include <string.h>

enum {
    THREADS = 256,
    TOP_EXPONENT = 13,      /* the largest of a token's inputs lies in [2^13, 2^14) */
    CAREFUL_COLUMNS = 4096, /* whose products are summed up by tensor cores at a time, where few tokens shall be as good as float32 */
};

/* One block a token: its largest magnitude, the power of two that brings it to TOP_EXPONENT, and the FP16 numbers. */
static __global__ void __launch_bounds__(THREADS) halve_inputs(const float *x, __half *halves, __half *rests, float *scales, int64_t n_in)
{
    __shared__ float largest[THREADS / 32];
    const float *const row = x + blockIdx.x * n_in;
    float most = 0.0f;

    for (int64_t i = threadIdx.x; i < n_in; i += THREADS) most = fmaxf(most, fabsf(row[i]));
    for (int lanes = 16; lanes > 0; lanes /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = most;
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++) most = fmaxf(most, largest[i]);
    /* zeros, subnormals and infinities stay as they are, divided by 1 */
    const int biased = (int)(__float_as_uint(most) >> 23);
    const int exponent = biased > 20 && biased < 240 ? biased - 127 - TOP_EXPONENT : 0;
    const float inverse = __uint_as_float((uint32_t)(127 - exponent) << 23);
    if (threadIdx.x == 0) scales[blockIdx.x] = __uint_as_float((uint32_t)(127 + exponent) << 23);
    for (int64_t i = threadIdx.x; i < n_in; i += THREADS) {
        const float scaled = row[i] * inverse;
        const __half half = __float2half_rn(scaled);
        halves[blockIdx.x * n_in + i] = half;
        if (rests != NULL) rests[blockIdx.x * n_in + i] = __float2half_rn(scaled - __half2float(half));
    }
}

/* out[t][r] = out[t][r] * scales[t] + bias[r] */
static __global__ void __launch_bounds__(THREADS) finish_outputs(float *out, const float *scales, const float *bias, int64_t n_out)
{
    const int64_t r = (int64_t)blockIdx.y * THREADS + threadIdx.x;
    if (r >= n_out) return;
    float *const at = out + blockIdx.x * n_out + r;
    *at = bias != NULL ? *at * scales[blockIdx.x] + bias[r] : *at * scales[blockIdx.x];
}

cudaError_t apr_cuda_halve(const float *x, __half *halves, __half *rests, float *scales, int64_t n_rows, int64_t n_in, cudaStream_t stream)
{
    halve_inputs<<<(unsigned)n_rows, THREADS, 0, stream>>>(x, halves, rests, scales, n_in);
    return cudaGetLastError();
}

cudaError_t apr_cuda_finish(float *out, const float *scales, const float *bias, int64_t n_rows, int64_t n_out, cudaStream_t stream)
{
    const dim3 grid((unsigned)n_rows, (unsigned)((n_out + THREADS - 1) / THREADS));
    finish_outputs<<<grid, THREADS, 0, stream>>>(out, scales, bias, n_out);
    return cudaGetLastError();
}

static apr_status blas_failed(cublasStatus_t status, const char *doing, apr_error *err)
{
    return apr_fail(err, APR_E_DEVICE, "%s: cuBLAS says %s (%s)", doing, cublasGetStatusString(status), cublasGetStatusName(status));
}

apr_status apr_cuda_start_blas(apr_cuda_device *device, void *workspace, uint64_t n_bytes, int *version, apr_error *err)
{
    APR_TRY(apr_cuda_enter(device, err));
    cublasStatus_t status = cublasCreate(&device->blas);
    if (status != CUBLAS_STATUS_SUCCESS) {
        device->blas = NULL;
        return blas_failed(status, "starting cuBLAS", err);
    }
    device->workspace = workspace;
    device->workspace_bytes = n_bytes;
    status = cublasSetStream(device->blas, device->stream);
    if (status == CUBLAS_STATUS_SUCCESS) status = cublasSetWorkspace(device->blas, workspace, n_bytes);
    if (status == CUBLAS_STATUS_SUCCESS) status = cublasGetVersion(device->blas, version);
    return status == CUBLAS_STATUS_SUCCESS ? APR_OK : blas_failed(status, "giving cuBLAS its stream and workspace", err);
}

/* Columns [column, column + n_columns) of n_rows rows: out[t][first + r] (added to what is there, where `adds`), with the ways to compute
 * it that cuBLAS has, the fastest first. */
static cublasStatus_t multiply(apr_cuda_device *device, const apr_linear_args *a, const __half *weights, const __half *halves, bool adds,
                               int64_t first, int64_t n_rows, int64_t column, int64_t n_columns)
{
    static const cublasComputeType_t ways[] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC};
    const float one = 1.0f, kept = adds ? 1.0f : 0.0f;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        status = cublasGemmEx(device->blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)n_rows, (int)a->n_tokens, (int)n_columns, &one, weights + column,
                              CUDA_R_16F, (int)a->n_in, halves + column, CUDA_R_16F, (int)a->n_in, &kept, a->out + first, CUDA_R_32F,
                              (int)a->n_out, ways[i], CUBLAS_GEMM_DEFAULT);
        if (status == CUBLAS_STATUS_SUCCESS) break;
    }
    return status;
}

/* Both parts of the inputs: first what rounding took away, then the halves. Tensor cores cut their sums off where float32 would round
 * them, each time that they add to them: over 28672 columns and 80 layers that is more than all else, so that the sums of long rows are
 * made of shorter ones. */
static cublasStatus_t multiply_carefully(apr_cuda_device *device, const apr_linear_args *a, const __half *weights, const __half *halves,
                                         const __half *rests, int64_t first, int64_t n_rows)
{
    cublasStatus_t status = multiply(device, a, weights, rests, false, first, n_rows, 0, a->n_in);
    for (int64_t column = 0; column < a->n_in && status == CUBLAS_STATUS_SUCCESS; column += CAREFUL_COLUMNS) {
        const int64_t left = a->n_in - column, n = left < CAREFUL_COLUMNS ? left : (int64_t)CAREFUL_COLUMNS;
        status = multiply(device, a, weights, halves, true, first, n_rows, column, n);
    }
    return status;
}

/* Without cuBLAS, or when nothing may be rounded: a few tokens at a time from the packed weights. Slower, and right. */
static cudaError_t without_blas(const apr_cuda_device *device, const apr_linear_args *a)
{
    cudaError_t error = cudaSuccess;
    for (int64_t first = 0; first < a->n_tokens && error == cudaSuccess; first += APR_CUDA_FEW_TOKENS) {
        apr_linear_args few = *a;
        few.n_tokens = a->n_tokens - first < APR_CUDA_FEW_TOKENS ? a->n_tokens - first : (int64_t)APR_CUDA_FEW_TOKENS;
        few.x = a->x + first * a->n_in;
        few.out = a->out + first * a->n_out;
        error = apr_cuda_linear_few(&few, device->stream);
    }
    return error;
}

typedef struct gemm_buffers {
    __half *halves, *rests, *tile; /* rests NULL: of many tokens */
    float *scales;
    bool is_f16;
} gemm_buffers;

/* Cuts the workspace up as apr_cuda_linear_bytes counts it. */
static apr_status cut_workspace(const apr_linear_args *a, gemm_buffers *b, apr_error *err)
{
    b->is_f16 = apr_cuda_is_f16(a->weight);
    const size_t needed = apr_cuda_linear_bytes(a->n_tokens, a->n_in, a->n_out, b->is_f16);
    if (needed > a->work.slice * sizeof(float))
        return apr_fail(err, APR_E_USAGE, "linear '%s' of %lld tokens needs %zu bytes of workspace and got %zu", a->weight->name,
                        (long long)a->n_tokens, needed, a->work.slice * sizeof(float));
    uint8_t *at = (uint8_t *)a->work.data;
    b->halves = (__half *)at;
    b->rests = a->n_tokens <= APR_CUDA_CAREFUL_TOKENS ? (__half *)(at + apr_cuda_inputs_bytes(a->n_tokens, a->n_in) / 2) : NULL;
    at += apr_cuda_inputs_bytes(a->n_tokens, a->n_in);
    b->scales = (float *)at;
    at += apr_cuda_round((size_t)a->n_tokens * 4);
    b->tile = (__half *)at;
    return APR_OK;
}

static apr_status linear_many(apr_cuda_device *device, const apr_linear_args *a, apr_error *err)
{
    gemm_buffers b = {};
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    APR_TRY(cut_workspace(a, &b, err));
    cudaError_t error = apr_cuda_halve(a->x, b.halves, b.rests, b.scales, a->n_tokens, a->n_in, device->stream);
    const int64_t tile = b.is_f16 ? a->n_out : apr_cuda_tile_rows(a->n_in, a->n_out);
    for (int64_t first = 0; first < a->n_out && error == cudaSuccess && status == CUBLAS_STATUS_SUCCESS; first += tile) {
        const int64_t n_rows = a->n_out - first < tile ? a->n_out - first : tile;
        if (!b.is_f16) error = apr_cuda_decode_half(a->weight, first, n_rows, b.tile, device->stream);
        const __half *const weights = b.is_f16 ? (const __half *)a->weight->data : b.tile;
        if (error != cudaSuccess) break;
        status = b.rests != NULL ? multiply_carefully(device, a, weights, b.halves, b.rests, first, n_rows)
                                 : multiply(device, a, weights, b.halves, false, first, n_rows, 0, a->n_in);
    }
    if (error == cudaSuccess && status != CUBLAS_STATUS_SUCCESS) {
        error = without_blas(device, a);
        if (error != cudaSuccess) return blas_failed(status, apr_cuda_doing(device), err);
        return APR_OK;
    }
    if (error == cudaSuccess) error = apr_cuda_finish(a->out, b.scales, a->bias, a->n_tokens, a->n_out, device->stream);
    return apr_cuda_outcome(device, error, err);
}

apr_status apr_cuda_linear(apr_cuda_device *device, const apr_linear_args *a, apr_error *err)
{
    if (a->heads.n > 0) return apr_cuda_linear_heads(device, a, err);
    const bool as_few = device->exact || a->n_tokens <= APR_CUDA_FEW_TOKENS;
    const bool packed = !device->tiles || apr_cuda_is_f16(a->weight); /* there is a kernel that reads it as it is */
    if ((as_few && packed) || device->blas == NULL) return apr_cuda_outcome(device, without_blas(device, a), err);
    bool done = false;
    APR_TRY(apr_cuda_linear_fp8(device, a, &done, err));
    return done ? APR_OK : linear_many(device, a, err);
}

apr_status apr_cuda_decode_f16(apr_cuda_device *device, const apr_tensor *matrix, int64_t first, int64_t n_rows, void *out, apr_error *err)
{
    APR_TRY(apr_cuda_enter(device, err));
    apr_cuda_begin(device, "decoding '%s' (%s) to FP16", matrix->name,
                   matrix->packing != NULL ? matrix->packing->scheme : apr_dtypes[matrix->dtype].name);
    return apr_cuda_outcome(device, apr_cuda_decode_half(matrix, first, n_rows, (__half *)out, device->stream), err);
}

apr_status apr_cuda_bad_gemm(apr_cuda_device *device, apr_error *err)
{
    apr_linear_args a;
    memset(&a, 0, sizeof a);
    a.n_tokens = 16;
    a.n_in = -64; /* what no matrix has */
    a.n_out = 64;
    if (device->blas == NULL) return apr_fail(err, APR_E_USAGE, "cuBLAS has not been started");
    const cublasStatus_t status = multiply(device, &a, NULL, NULL, false, 0, a.n_out, 0, a.n_in);
    if (status == CUBLAS_STATUS_SUCCESS) return APR_OK;
    return blas_failed(status, "linear f16 x f16, 16 tokens x [64, -64]", err);
}
