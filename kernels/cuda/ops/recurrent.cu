/* recurrent.cu - operations that remember: convolution over time, delta rule, state-space duality.
 *
 * A warp takes 32 columns (delta) or rows (ssd) of one head's state into shared memory and walks over the tokens: what a step needs of
 * them is read once, and the state is read and written once a call. Columns do not depend on each other, so there is nothing to add up
 * between warps. The arithmetic is that of kernels/ref, but for the order of sums. */
#include "kernels/cuda/ops/ops.cuh"
#include "kernels/cuda/ops/reduce.cuh"

enum { BLOCK = 256, WARP = 32, MAX_SHARED = 48 << 10 };

/* --- convolution --- */

static __global__ void __launch_bounds__(BLOCK) k_conv(const __grid_constant__ apr_conv_args a)
{
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x, t = i / a.width, c = i % a.width, n_before = a.n_taps - 1;
    if (t >= a.n_tokens) return;
    float sum = 0.0f;
    for (int64_t k = 0; k < a.n_taps; k++) {
        const int64_t at = t - n_before + k;
        const float x = at < 0 ? a.state[(n_before + at) * a.width + c] : a.x[at * a.width + c];
        sum = fmaf(a.weight[c * a.n_taps + k], x, sum);
    }
    a.out[i] = apr_activate(a.activation, a.bias != NULL ? sum + a.bias[c] : sum);
}

/* A thread a channel, from the oldest row on: what is overwritten has been read. */
static __global__ void __launch_bounds__(BLOCK) k_remember(const __grid_constant__ apr_conv_args a)
{
    const int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x, n_before = a.n_taps - 1;
    if (c >= a.width) return;
    for (int64_t i = 0; i < n_before; i++) {
        const int64_t at = a.n_tokens - n_before + i; /* negative: was in the state */
        a.state[i * a.width + c] = at < 0 ? a.state[(n_before + at) * a.width + c] : a.x[at * a.width + c];
    }
}

cudaError_t apr_cuda_conv(const apr_conv_args *a, cudaStream_t stream)
{
    const int64_t n = a->n_tokens * a->width;
    if (n == 0) return cudaSuccess;
    k_conv<<<(unsigned)((n + BLOCK - 1) / BLOCK), BLOCK, 0, stream>>>(*a);
    k_remember<<<(unsigned)((a->width + BLOCK - 1) / BLOCK), BLOCK, 0, stream>>>(*a);
    return cudaGetLastError();
}

/* --- delta rule --- */

/* x / sqrt(sum(x^2) + eps) * scale into shared memory, by one warp. */
static __device__ __forceinline__ void l2_norm(const float *x, int64_t n, float eps, float scale, float *out)
{
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < n; i += WARP) sum = fmaf(x[i], x[i], sum);
    const float factor = 1.0f / sqrtf(warp_sum(sum) + eps) * scale;
    for (int64_t i = threadIdx.x; i < n; i += WARP) out[i] = x[i] * factor;
}

/* blockIdx.x: a value head; blockIdx.y: 32 columns of its state. Shared: state [key_dim, 32], q, k [key_dim]. */
static __global__ void __launch_bounds__(WARP) k_delta(const __grid_constant__ apr_delta_args a)
{
    extern __shared__ float shared[];
    const int64_t head = blockIdx.x, column = (int64_t)blockIdx.y * WARP + threadIdx.x, dk = a.key_dim, dv = a.value_dim;
    const int64_t key_head = a.tiled ? head % a.n_key_heads : head / (a.n_value_heads / a.n_key_heads);
    const int64_t n_keys = a.n_key_heads * dk, width = 2 * n_keys + a.n_value_heads * dv;
    const bool there = column < dv;
    float *const s = shared + threadIdx.x, *const q = shared + dk * WARP, *const k = q + dk;
    float *const state = a.state + head * dk * dv + column;

    for (int64_t i = 0; i < dk; i++) s[i * WARP] = there ? state[i * dv] : 0.0f;
    for (int64_t t = 0; t < a.n_tokens; t++) {
        const float *const row = a.qkv + t * width;
        const int64_t at = t * a.n_value_heads + head;
        const float decay = expf(-a.rate[head] * apr_softplus(a.a[at] + a.dt_bias[head])), beta = apr_sigmoid(a.b[at]);
        __syncwarp(); /* q and k of the token before have been used */
        l2_norm(row + key_head * dk, dk, a.eps, rsqrtf((float)dk), q);
        l2_norm(row + n_keys + key_head * dk, dk, a.eps, 1.0f, k);
        __syncwarp();
        float known = 0.0f, out = 0.0f;
        for (int64_t i = 0; i < dk; i++) {
            const float decayed = s[i * WARP] * decay;
            s[i * WARP] = decayed;
            known = fmaf(decayed, k[i], known);
        }
        const float error = beta * ((there ? row[2 * n_keys + head * dv + column] : 0.0f) - known);
        for (int64_t i = 0; i < dk; i++) {
            const float next = fmaf(k[i], error, s[i * WARP]);
            s[i * WARP] = next;
            out = fmaf(next, q[i], out);
        }
        if (there) a.out[at * dv + column] = out;
    }
    for (int64_t i = 0; i < dk && there; i++) state[i * dv] = s[i * WARP];
}

cudaError_t apr_cuda_delta(const apr_delta_args *a, cudaStream_t stream)
{
    const size_t n_bytes = (size_t)a->key_dim * (WARP + 2) * sizeof(float);
    if (a->n_tokens == 0) return cudaSuccess;
    if (n_bytes > MAX_SHARED || a->n_value_heads % a->n_key_heads != 0) return cudaErrorInvalidValue;
    k_delta<<<dim3((unsigned)a->n_value_heads, (unsigned)((a->value_dim + WARP - 1) / WARP)), WARP, n_bytes, stream>>>(*a);
    return cudaGetLastError();
}

/* --- state-space duality --- */

/* blockIdx.x: a head; blockIdx.y: 32 rows of its state. Shared: state [32, state_dim + 1] (the odd stride keeps banks apart), B, C. */
static __global__ void __launch_bounds__(WARP) k_ssd(const __grid_constant__ apr_ssd_args a)
{
    extern __shared__ float shared[];
    const int64_t head = blockIdx.x, row = (int64_t)blockIdx.y * WARP + threadIdx.x, n = a.state_dim, stride = n + 1;
    const int64_t n_x = a.n_heads * a.head_dim, width = n_x + 2 * a.n_groups * n, group = head / (a.n_heads / a.n_groups);
    const bool there = row < a.head_dim;
    float *const s = shared + threadIdx.x * stride, *const b = shared + WARP * stride, *const c = b + n;
    float *const state = a.state + (head * a.head_dim + row) * n;

    for (int64_t j = 0; j < n; j++) s[j] = there ? state[j] : 0.0f;
    for (int64_t t = 0; t < a.n_tokens; t++) {
        const float *const x = a.xbc + t * width;
        const float dt = apr_softplus(a.dt[t * a.n_heads + head] + a.dt_bias[head]), decay = expf(-a.rate[head] * dt);
        const float own = there ? x[head * a.head_dim + row] : 0.0f;
        float out = 0.0f;
        __syncwarp();
        for (int64_t j = threadIdx.x; j < n; j += WARP) {
            b[j] = x[n_x + group * n + j];
            c[j] = x[n_x + a.n_groups * n + group * n + j];
        }
        __syncwarp();
        for (int64_t j = 0; j < n; j++) {
            const float next = fmaf(s[j], decay, dt * own * b[j]);
            s[j] = next;
            out = fmaf(next, c[j], out);
        }
        if (there) a.out[t * n_x + head * a.head_dim + row] = fmaf(a.skip[head], own, out);
    }
    for (int64_t j = 0; j < n && there; j++) state[j] = s[j];
}

cudaError_t apr_cuda_ssd(const apr_ssd_args *a, cudaStream_t stream)
{
    const size_t n_bytes = ((size_t)WARP * (size_t)(a->state_dim + 1) + 2 * (size_t)a->state_dim) * sizeof(float);
    if (a->n_tokens == 0) return cudaSuccess;
    if (n_bytes > MAX_SHARED || a->n_heads % a->n_groups != 0) return cudaErrorInvalidValue;
    k_ssd<<<dim3((unsigned)a->n_heads, (unsigned)((a->head_dim + WARP - 1) / WARP)), WARP, n_bytes, stream>>>(*a);
    return cudaGetLastError();
}
