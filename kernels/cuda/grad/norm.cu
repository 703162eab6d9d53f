/* norm.cu - backward of norms. Of normed n and u = d_out * gain: d x = scale * (u - mean of u - n * mean of (u n)); the L2 norm has sums,
 * RMS no mean of u. The gain's gradient is the sum of d_out * n over rows, the bias's that of d_out. */
#include "kernels/cuda/grad/grad.cuh"

enum { NORM_WARPS = GRAD_THREADS / 32 };

struct norm_backward {
    apr_norm_args a; /* kind, chunk, n_weight, eps, offset */
    const float *x, *weight, *d_out;
    int64_t n_chunks;
    float *d_in;   /* NULL: not wanted */
    float2 *stats; /* NULL, or mean and scale of each chunk */
};

static __device__ float gain_of(const norm_backward &b, int64_t at)
{
    return b.weight != NULL ? b.weight[at % b.a.n_weight] + b.a.offset : 1.0f;
}

/* Mean and scale: normed = (x - mean) * scale. */
static __device__ float2 stats_of(const norm_backward &b, const float *x, int lane)
{
    float mean = 0.0f, sum = 0.0f;

    if (b.a.kind == APR_NORM_LAYER) {
        for (int64_t i = lane; i < b.a.chunk; i += 32) mean += x[i];
        mean = warp_sum(mean) / (float)b.a.chunk;
    }
    for (int64_t i = lane; i < b.a.chunk; i += 32) sum += (x[i] - mean) * (x[i] - mean);
    sum = warp_sum(sum);
    return make_float2(mean, 1.0f / sqrtf((b.a.kind == APR_NORM_L2 ? sum : sum / (float)b.a.chunk) + b.a.eps));
}

static __device__ void add_inputs(const norm_backward &b, int64_t begin, float2 stats, int lane)
{
    const float divisor = b.a.kind == APR_NORM_L2 ? 1.0f : (float)b.a.chunk;
    float mean = 0.0f, along = 0.0f;

    for (int64_t i = begin + lane; i < begin + b.a.chunk; i += 32) {
        const float u = b.d_out[i] * gain_of(b, i);
        mean += u;
        along += u * (b.x[i] - stats.x) * stats.y;
    }
    mean = b.a.kind == APR_NORM_LAYER ? warp_sum(mean) / divisor : 0.0f;
    along = warp_sum(along) / divisor;
    for (int64_t i = begin + lane; i < begin + b.a.chunk; i += 32)
        b.d_in[i] += stats.y * (b.d_out[i] * gain_of(b, i) - mean - (b.x[i] - stats.x) * stats.y * along);
}

/* A warp per chunk. */
static __global__ void __launch_bounds__(GRAD_THREADS) k_norm_backward(const __grid_constant__ norm_backward b)
{
    const int64_t chunk = (int64_t)blockIdx.x * NORM_WARPS + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;

    if (chunk >= b.n_chunks) return;
    const float2 stats = stats_of(b, b.x + chunk * b.a.chunk, lane);
    if (b.stats != NULL && lane == 0) b.stats[chunk] = stats;
    if (b.d_in != NULL) add_inputs(b, chunk * b.a.chunk, stats, lane);
}

/* d_out * normed, in rows of n_weight numbers. */
struct gain_entry {
    const float *x, *d_out;
    const float2 *stats;
    int64_t chunk, n_weight;
    __device__ float operator()(int64_t row, int64_t column) const
    {
        const int64_t i = row * n_weight + column;
        const float2 s = stats[i / chunk];
        return d_out[i] * (x[i] - s.x) * s.y;
    }
};

static int64_t chunks_of(const apr_grad_call *c) { return c->n_rows * c->args->norm.width / c->args->norm.chunk; }

size_t grad_norm_work(const apr_grad_call *c)
{
    const apr_norm_args *const a = &c->args->norm;
    return 2 * (size_t)chunks_of(c) + grad_columns_work(c->n_rows * a->width / a->n_weight, a->n_weight);
}

apr_status grad_norm_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const apr_norm_args *const a = &c->args->norm;
    const int64_t n_chunks = chunks_of(c), n_rows = c->n_rows * a->width / a->n_weight;
    float2 *const stats = (float2 *)c->work;
    float *const work = (float *)c->work + 2 * n_chunks;
    const norm_backward b = {
        *a, grad_in(c, 0), grad_weight(c, 0), grad_d_out(c), n_chunks, grad_d_in(c, 0), c->d_weight[0] != NULL ? stats : NULL};

    k_norm_backward<<<blocks_of(n_chunks, NORM_WARPS), GRAD_THREADS, 0, device->stream>>>(b);
    APR_TRY(apr_cuda_outcome(device, cudaGetLastError(), err));
    if (c->d_weight[0] != NULL) {
        const gain_entry entry = {grad_in(c, 0), grad_d_out(c), stats, a->chunk, a->n_weight};
        APR_TRY(grad_add_columns(device, entry, n_rows, a->n_weight, work, grad_d_weight(c, 0), err));
    }
    if (c->d_weight[1] == NULL) return APR_OK;
    return grad_add_columns(device, grad_entry_of{grad_d_out(c), a->n_weight}, n_rows, a->n_weight, work, grad_d_weight(c, 1), err);
}
