/* probe.cu - tests a device: small matrix products compared with the host, and bandwidths.
 *
 * The factors are small integers, so products and sums are exact in every format and order, and are compared for equality. */
#include "kernels/cuda/device/device.cuh"

#include <cublasLt.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 64, N_ELEMS = SIDE * SIDE };

/* -3 .. 3, not symmetric, so that a transposition is noticed */
static int number_at(int matrix, int row, int column) { return (row * 5 + column * 3 + matrix + row * column) % 7 - 3; }

typedef struct probe_case {
    cudaDataType_t type;
    size_t elem_bytes;
    void (*store)(void *at, int number);
} probe_case;

static void store_half(void *at, int number) { *(__half *)at = __float2half_rn((float)number); }
static void store_fp8(void *at, int number) { *(__nv_fp8_storage_t *)at = __nv_cvt_float_to_fp8((float)number, __NV_SATFINITE, __NV_E4M3); }

static const probe_case cases[APR_CUDA_PROBE_COUNT] = {
    {CUDA_R_16F, 2, store_half},
    {CUDA_R_8F_E4M3, 1, store_fp8},
};

typedef struct probe_buffers {
    uint8_t *device; /* a, b, c */
    uint8_t *host;
    size_t matrix_bytes, c_at, n_bytes;
} probe_buffers;

static void fill(const probe_case *p, probe_buffers *b)
{
    for (int matrix = 0; matrix < 2; matrix++)
        for (int i = 0; i < N_ELEMS; i++)
            p->store(b->host + matrix * b->matrix_bytes + i * p->elem_bytes, number_at(matrix, i / SIDE, i % SIDE));
}

/* c[t][r] = sum_i a[r][i] * b[t][i] */
static bool is_right(const float *c)
{
    for (int t = 0; t < SIDE; t++)
        for (int r = 0; r < SIDE; r++) {
            int sum = 0;
            for (int i = 0; i < SIDE; i++) sum += number_at(0, r, i) * number_at(1, t, i);
            if (c[t * SIDE + r] != (float)sum) return false;
        }
    return true;
}

/* cuBLASLt's description of a product; may be destroyed in any state. */
typedef struct lt_product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t in, out;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t algos[8];
    int n_algos;
} lt_product;

static cublasStatus_t describe(lt_product *lt, const probe_case *p)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasStatus_t s = cublasLtCreate(&lt->handle);
    if (s == CUBLAS_STATUS_SUCCESS) s = cublasLtMatmulDescCreate(&lt->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulDescSetAttribute(lt->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (s == CUBLAS_STATUS_SUCCESS) s = cublasLtMatrixLayoutCreate(&lt->in, p->type, SIDE, SIDE, SIDE);
    if (s == CUBLAS_STATUS_SUCCESS) s = cublasLtMatrixLayoutCreate(&lt->out, CUDA_R_32F, SIDE, SIDE, SIDE);
    if (s == CUBLAS_STATUS_SUCCESS) s = cublasLtMatmulPreferenceCreate(&lt->preference);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulAlgoGetHeuristic(lt->handle, lt->product, lt->in, lt->in, lt->out, lt->out, lt->preference, 8, lt->algos,
                                           &lt->n_algos);
    return s;
}

static void destroy(lt_product *lt)
{
    if (lt->preference != NULL) cublasLtMatmulPreferenceDestroy(lt->preference);
    if (lt->out != NULL) cublasLtMatrixLayoutDestroy(lt->out);
    if (lt->in != NULL) cublasLtMatrixLayoutDestroy(lt->in);
    if (lt->product != NULL) cublasLtMatmulDescDestroy(lt->product);
    if (lt->handle != NULL) cublasLtDestroy(lt->handle);
}

/* Tries the algorithms that cuBLASLt proposes, in its order, until one works. */
static cublasStatus_t product_lt(const apr_cuda_device *device, const probe_case *p, const probe_buffers *b)
{
    const float one = 1.0f, zero = 0.0f;
    lt_product lt;

    memset(&lt, 0, sizeof lt);
    cublasStatus_t s = describe(&lt, p);
    if (s == CUBLAS_STATUS_SUCCESS && lt.n_algos == 0) s = CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < lt.n_algos; i++) {
        s = cublasLtMatmul(lt.handle, lt.product, &one, b->device, lt.in, b->device + b->matrix_bytes, lt.in, &zero, b->device + b->c_at,
                           lt.out, b->device + b->c_at, lt.out, &lt.algos[i].algo, NULL, 0, device->stream);
        if (s == CUBLAS_STATUS_SUCCESS) break;
    }
    destroy(&lt);
    return s;
}

static apr_status probe_with(apr_cuda_device *device, apr_cuda_probe which, probe_buffers *b, apr_error *err)
{
    static const char *const names[APR_CUDA_PROBE_COUNT] = {"the FP16 probe", "the FP8 probe"};
    const probe_case *const p = &cases[which];
    cudaError_t error;

    apr_cuda_begin(device, "%s, [64, 64] x [64, 64] through cuBLASLt", names[which]);
    fill(p, b);
    error = cudaMemcpyAsync(b->device, b->host, 2 * b->matrix_bytes, cudaMemcpyHostToDevice, device->stream);
    if (error != cudaSuccess) return apr_cuda_outcome(device, error, err);
    const cublasStatus_t status = product_lt(device, p, b);
    error = cudaStreamSynchronize(device->stream);
    if (error != cudaSuccess) return apr_cuda_outcome(device, error, err);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: cuBLASLt has no algorithm for it on %s", names[which], device->facts.name);
    if (status != CUBLAS_STATUS_SUCCESS)
        return apr_fail(err, APR_E_DEVICE, "%s: cuBLASLt error: %s", apr_cuda_operation(device), cublasGetStatusString(status));
    error = cudaMemcpy(b->host + b->c_at, b->device + b->c_at, N_ELEMS * sizeof(float), cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) return apr_cuda_outcome(device, error, err);
    if (is_right((const float *)(b->host + b->c_at))) return APR_OK;
    return apr_fail(err, APR_E_NO, "%s: the product is wrong", apr_cuda_operation(device));
}

apr_status apr_cuda_run_probe(apr_cuda_device *device, apr_cuda_probe which, apr_error *err)
{
    probe_buffers b;

    APR_TRY(apr_cuda_make_current(device, err));
    if (which >= APR_CUDA_PROBE_COUNT) return apr_fail(err, APR_E_USAGE, "unknown probe %d", (int)which);
    b.matrix_bytes = (size_t)N_ELEMS * cases[which].elem_bytes;
    b.c_at = 2 * b.matrix_bytes;
    b.n_bytes = b.c_at + N_ELEMS * sizeof(float);
    b.device = NULL;
    b.host = (uint8_t *)malloc(b.n_bytes);
    if (b.host == NULL) return apr_no_memory(err, "a probe");
    apr_status status = apr_cuda_result(device, cudaMalloc((void **)&b.device, b.n_bytes), "memory for a probe", err);
    if (status == APR_OK) status = probe_with(device, which, &b, err);
    if (!device->lost) cudaFree(b.device);
    free(b.host);
    return status;
}

/* --- bandwidth --- */

enum { READ_THREADS = 512 };

static __global__ void __launch_bounds__(READ_THREADS) read_all(const uint4 *data, size_t n, uint32_t *sink)
{
    uint32_t any = 0;
    for (size_t i = (size_t)blockIdx.x * READ_THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * READ_THREADS) {
        const uint4 v = __ldcs(data + i);
        any |= v.x | v.y | v.z | v.w;
    }
    if (any != 0) *sink = any; /* never true, since the data are zeros, but the compiler cannot know */
}

/* The shortest time of a few rounds between two events, in seconds. */
static cudaError_t best_time(apr_cuda_device *device, void *data, const void *pinned, size_t n_bytes, bool is_upload, double *seconds)
{
    cudaEvent_t begin = NULL, end = NULL;
    cudaError_t e = cudaEventCreate(&begin);
    if (e == cudaSuccess) e = cudaEventCreate(&end);
    *seconds = 1e9;
    for (int round = 0; round < 5 && e == cudaSuccess; round++) {
        float ms = 0.0f;
        cudaEventRecord(begin, device->stream);
        if (is_upload) e = cudaMemcpyAsync(data, pinned, n_bytes, cudaMemcpyHostToDevice, device->stream);
        else
            read_all<<<(unsigned)device->facts.n_sms * 4, READ_THREADS, 0, device->stream>>>((const uint4 *)data, n_bytes / 16 - 1,
                                                                                             (uint32_t *)data + n_bytes / 4 - 1);
        if (e == cudaSuccess) e = cudaGetLastError();
        cudaEventRecord(end, device->stream);
        if (e == cudaSuccess) e = cudaEventSynchronize(end);
        if (e == cudaSuccess) e = cudaEventElapsedTime(&ms, begin, end);
        if (e == cudaSuccess && ms > 0 && ms / 1e3 < *seconds) *seconds = ms / 1e3;
    }
    if (end != NULL) cudaEventDestroy(end);
    if (begin != NULL) cudaEventDestroy(begin);
    return e;
}

apr_status apr_cuda_measure_bandwidth(apr_cuda_device *device, double *read, double *upload, apr_error *err)
{
    static const size_t n_read = (size_t)1 << 29, n_upload = (size_t)1 << 26;
    void *data = NULL, *pinned = NULL;
    double seconds[2];

    *read = *upload = 0.0;
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin(device, "measuring the bandwidth");
    cudaError_t e = cudaMalloc(&data, n_read);
    if (e == cudaSuccess) e = cudaMemsetAsync(data, 0, n_read, device->stream);
    if (e == cudaSuccess) e = cudaMallocHost(&pinned, n_upload);
    if (e == cudaSuccess) e = best_time(device, data, NULL, n_read, false, &seconds[0]);
    if (e == cudaSuccess) e = best_time(device, data, pinned, n_upload, true, &seconds[1]);
    if (pinned != NULL) cudaFreeHost(pinned);
    if (data != NULL) cudaFree(data);
    if (e == cudaSuccess) {
        *read = (double)n_read / seconds[0];
        *upload = (double)n_upload / seconds[1];
    }
    return apr_cuda_outcome(device, e, err);
}
