/* loss.cu - the divergence of rows of logits, with its gradient, and the search for a number that is not finite. */
#include "kernels/cuda/grad/grad.cuh"

/* The largest number of a row, and ln of the sum of exp(x - largest). */
static __device__ float2 log_sum(const float *x, int64_t n, float *parts)
{
    float most = -INFINITY, sum = 0.0f;

    for (int64_t i = threadIdx.x; i < n; i += GRAD_THREADS) most = fmaxf(most, x[i]);
    most = block_max<GRAD_THREADS>(most, parts);
    for (int64_t i = threadIdx.x; i < n; i += GRAD_THREADS) sum += expf(x[i] - most);
    __syncthreads();
    return make_float2(most, logf(block_sum<GRAD_THREADS>(sum, parts)));
}

static __device__ double block_sum_of_doubles(double x, double *parts)
{
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    double sum = 0.0;
    for (int i = 0; i < GRAD_THREADS / 32; i++) sum += parts[i];
    return sum;
}

/* A thread block per row. ln p - ln q = (t - t's most) - (s - s's most) - (t's log sum - s's), exact where both rows are the same. */
static __global__ void __launch_bounds__(GRAD_THREADS)
    k_divergence(const float *teacher, float *student, int64_t width, float factor, bool gradient, double *kl)
{
    __shared__ float parts[GRAD_THREADS / 32];
    __shared__ double double_parts[GRAD_THREADS / 32];
    const float *const t = teacher + blockIdx.x * width;
    float *const s = student + blockIdx.x * width;
    const float2 of_p = log_sum(t, width, parts), of_q = log_sum(s, width, parts);
    double sum = 0.0;

    for (int64_t i = threadIdx.x; i < width; i += GRAD_THREADS) {
        const float p_at = t[i] - of_p.x, q_at = s[i] - of_q.x, p = expf(p_at - of_p.y);
        if (p > 0.0f)
            sum += (double)p * ((double)p_at - (double)q_at - ((double)of_p.y - (double)of_q.y)); /* a teacher's -inf has no share */
        if (gradient) s[i] = factor * (expf(q_at - of_q.y) - p);
    }
    sum = block_sum_of_doubles(sum, double_parts);
    if (threadIdx.x == 0) kl[blockIdx.x] = sum;
}

apr_status grad_divergence(apr_cuda_device *device, const float *teacher, float *student, int64_t n_rows, int64_t width, double factor,
                           bool gradient, double *kl, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin(device, "the divergence of %lld rows of logits", (long long)n_rows);
    if (n_rows > 0)
        k_divergence<<<(unsigned)n_rows, GRAD_THREADS, 0, device->stream>>>(teacher, student, width, (float)factor, gradient, kl);
    return apr_cuda_outcome(device, cudaGetLastError(), err);
}

struct not_finite {
    const float *x;
    unsigned long long *found;
    __device__ void operator()(int64_t i) const
    {
        if (!isfinite(x[i])) atomicMax(found, ~(unsigned long long)i);
    }
};

apr_status grad_first_not_finite(apr_cuda_device *device, const float *x, int64_t n, uint64_t *found, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "looking for numbers that are not finite");
    APR_TRY(apr_cuda_outcome(device, cudaMemsetAsync(found, 0, sizeof *found, device->stream), err));
    return grad_each(device, not_finite{x, (unsigned long long *)found}, n, err);
}
