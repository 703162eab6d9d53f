/* fp8.cu - linear layers of many tokens in FP8: weights as stored, inputs rounded to FP8 with one scale per token.
 *
 * Only on devices with FP8 units, after a probe, and on request: rounding the inputs to 4 significant bits costs more accuracy than the 11
 * of FP16. cuBLASLt computes the unscaled product (blaslt.cuh); the scales of tokens and rows are applied afterwards. */
#include "kernels/cuda/common/weights.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/gemm/blaslt.cuh"

#include <cuda_fp8.h>

enum { THREADS = 256 };

static constexpr float LARGEST = 448.0f; /* of E4M3 */

/* One thread block per token. */
static __global__ void __launch_bounds__(THREADS) fp8_inputs(const float *x, __nv_fp8_storage_t *codes, float *scales, int64_t n_in)
{
    __shared__ float parts[THREADS / 32];
    const float *const row = x + blockIdx.x * n_in;
    float most = 0.0f;

    for (int64_t i = threadIdx.x; i < n_in; i += THREADS) most = fmaxf(most, fabsf(row[i]));
    most = block_max<THREADS>(most, parts);
    const float scale = most >= 1e-30f && most <= 3e38f ? most / LARGEST : 1.0f;
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    for (int64_t i = threadIdx.x; i < n_in; i += THREADS)
        codes[blockIdx.x * n_in + i] = __nv_cvt_float_to_fp8(row[i] / scale, __NV_SATFINITE, __NV_E4M3);
}

/* out[t][r] = out[t][r] * scales[t] * factor of row r + bias[r] */
static __global__ void __launch_bounds__(THREADS) fp8_outputs(float *out, const float *scales, weight_view v, const float *bias)
{
    const int64_t r = (int64_t)blockIdx.y * THREADS + threadIdx.x;
    if (r >= v.n_rows) return;
    float *const at = out + blockIdx.x * v.n_rows + r;
    const float y = *at * scales[blockIdx.x] * factor_at(v, r, 0);
    *at = bias != NULL ? y + bias[r] : y;
}

/* Whether the weights are E4M3 with a scale per row or a single one, with sizes and alignment that cuBLASLt supports. */
static bool is_fit(const apr_linear_args *a, weight_view *v)
{
    if (a->weight->dtype != APR_F8_E4M3 || a->weight->packing != NULL || a->n_in % 16 != 0 || a->n_out % 16 != 0) return false;
    if ((uintptr_t)a->weight->data % 16 != 0 || !apr_cuda_view(a->weight, v) || v->step != APR_STEP_NONE) return false;
    return v->factors == NULL || v->one_factor || v->factor_columns >= v->n_in;
}

apr_status apr_cuda_linear_fp8(apr_cuda_device *device, const apr_linear_args *a, bool *done, apr_error *err)
{
    const size_t codes_bytes = apr_cuda_round((size_t)a->n_tokens * (size_t)a->n_in);
    weight_view v;

    *done = false;
    if (!device->fp8 || device->blas == NULL || !is_fit(a, &v)) return APR_OK;
    if (codes_bytes + (size_t)a->n_tokens * sizeof(float) > a->work.slice * sizeof(float)) return APR_OK;
    __nv_fp8_storage_t *const codes = (__nv_fp8_storage_t *)a->work.data;
    float *const scales = (float *)((uint8_t *)a->work.data + codes_bytes);
    const apr_cuda_gemm p = {CUDA_R_8F_E4M3, a->n_out, a->n_tokens, a->n_in, a->n_in, a->weight->data, codes, a->out,
                             a->n_out,       false,    NULL,        false,   0};

    apr_cuda_count_write(device); /* if the product falls back to FP16 in this call, kept inputs in the workspace are overwritten */
    fp8_inputs<<<(unsigned)a->n_tokens, THREADS, 0, device->stream>>>(a->x, codes, scales, a->n_in);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return apr_cuda_outcome(device, error, err);
    if (apr_cuda_multiply(device, &p) != CUBLAS_STATUS_SUCCESS) return APR_OK; /* falls back to FP16 */
    const dim3 grid((unsigned)a->n_tokens, blocks_of(a->n_out, THREADS));
    fp8_outputs<<<grid, THREADS, 0, device->stream>>>(a->out, scales, v, a->bias);
    *done = true;
    return apr_cuda_outcome(device, cudaGetLastError(), err);
}
