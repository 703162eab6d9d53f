/* recurrent.cu - operations that remember: convolution over time, delta rule, state-space duality.
 *
 * A warp takes 32 columns (delta) or rows (ssd) of one head's state into shared memory and walks over the tokens: what a step needs of
 * them is read once, and the state is read and written once a call. Columns do not depend on each other, so there is nothing to add up
 * between warps. The arithmetic is that of kernels/ref, but for the order of sums. */
#include "kernels/cuda/ops/follow.cuh"
#include "kernels/cuda/ops/ops.cuh"
#include "kernels/cuda/ops/reduce.cuh"

enum { BLOCK = 256, WARP = 32, MAX_SHARED = 48 << 10 };

/* Of tokens apart token blockIdx.z, as if it were alone. */
template <typename ARGS> static __device__ __forceinline__ void enter_state(ARGS &a)
{
    a.n_tokens = 1;
    a.state = (float *)((uint8_t *)a.state + (uint64_t)a.slots[blockIdx.z] * a.slot_bytes);
}

static __device__ __forceinline__ apr_conv_args own_of(const apr_conv_args &all)
{
    apr_conv_args a = all;
    if (all.slots == NULL) return a;
    enter_state(a);
    a.x = all.x + blockIdx.z * all.width;
    a.out = all.out + blockIdx.z * all.width;
    return a;
}

static __device__ __forceinline__ apr_delta_args own_of(const apr_delta_args &all)
{
    apr_delta_args a = all;
    const int64_t width = 2 * all.n_key_heads * all.key_dim + all.n_value_heads * all.value_dim;
    if (all.slots == NULL) return a;
    enter_state(a);
    a.qkv = all.qkv + blockIdx.z * width;
    a.a = all.a + blockIdx.z * all.n_value_heads;
    a.b = all.b + blockIdx.z * all.n_value_heads;
    a.out = all.out + blockIdx.z * all.n_value_heads * all.value_dim;
    return a;
}

static __device__ __forceinline__ apr_ssd_args own_of(const apr_ssd_args &all)
{
    apr_ssd_args a = all;
    const int64_t n_x = all.n_heads * all.head_dim;
    if (all.slots == NULL) return a;
    enter_state(a);
    a.xbc = all.xbc + blockIdx.z * (n_x + 2 * all.n_groups * all.state_dim);
    a.dt = all.dt + blockIdx.z * all.n_heads;
    a.out = all.out + blockIdx.z * n_x;
    return a;
}

/* Tokens of one sequence go by in one block, those apart side by side. */
template <typename ARGS> static unsigned blocks_apart(const ARGS *a) { return a->slots != NULL ? (unsigned)a->n_tokens : 1; }

/* --- convolution --- */

static __global__ void __launch_bounds__(BLOCK) k_conv(const __grid_constant__ apr_conv_args all)
{
    follow_previous();
    const apr_conv_args a = own_of(all);
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
static __global__ void __launch_bounds__(BLOCK) k_remember(const __grid_constant__ apr_conv_args all)
{
    follow_previous();
    const apr_conv_args a = own_of(all);
    const int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x, n_before = a.n_taps - 1;
    if (c >= a.width) return;
    for (int64_t i = 0; i < n_before; i++) {
        const int64_t at = a.n_tokens - n_before + i; /* negative: was in the state */
        a.state[i * a.width + c] = at < 0 ? a.state[(n_before + at) * a.width + c] : a.x[at * a.width + c];
    }
}

/* Both for one token, a thread a channel. */
static __global__ void __launch_bounds__(BLOCK) k_conv_one(const __grid_constant__ apr_conv_args a)
{
    follow_previous();
    const int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x, n_before = a.n_taps - 1;
    if (c >= a.width) return;
    const float own = a.x[c];
    float sum = 0.0f;
    for (int64_t k = 0; k < n_before; k++) {
        const float x = a.state[k * a.width + c];
        sum = fmaf(a.weight[c * a.n_taps + k], x, sum);
        if (k > 0) a.state[(k - 1) * a.width + c] = x;
    }
    if (n_before > 0) a.state[(n_before - 1) * a.width + c] = own;
    sum = fmaf(a.weight[c * a.n_taps + n_before], own, sum);
    a.out[c] = apr_activate(a.activation, a.bias != NULL ? sum + a.bias[c] : sum);
}

cudaError_t apr_cuda_conv(const apr_conv_args *a, cudaStream_t stream)
{
    if (a->n_tokens == 0) return cudaSuccess;
    const unsigned n_apart = blocks_apart(a);
    const int64_t n = a->n_tokens / n_apart * a->width;
    if (n == 0) return cudaSuccess;
    if (a->n_tokens == 1 && a->slots == NULL)
        return launch_following(k_conv_one, (unsigned)((n + BLOCK - 1) / BLOCK), BLOCK, 0, stream, *a);
    launch_following(k_conv, dim3((unsigned)((n + BLOCK - 1) / BLOCK), 1, n_apart), BLOCK, 0, stream, *a);
    launch_following(k_remember, dim3((unsigned)((a->width + BLOCK - 1) / BLOCK), 1, n_apart), BLOCK, 0, stream, *a);
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
static __global__ void __launch_bounds__(WARP) k_delta(const __grid_constant__ apr_delta_args all)
{
    follow_previous();
    const apr_delta_args a = own_of(all);
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

/* --- the same where a key has 64 or 128 numbers: eight warps share the rows of 32 columns, which stay in registers --- */

enum { SHARERS = 8 };

/* What a lane reads of a token: of its head's query and key every 32nd number, one of its warp's own rows, its column's value. */
template <int DK> struct delta_token {
    float q[DK / WARP], k[DK / WARP], own, v, a, b;
};

/* Where these are, for a head and a column. */
typedef struct delta_place {
    int64_t head, column, key_head, n_keys, width;
    int warp, lane;
    bool there;
} delta_place;

template <int DK> static __device__ __forceinline__ delta_token<DK> delta_read(const apr_delta_args &a, const delta_place &p, int64_t t)
{
    const float *const row = a.qkv + t * p.width, *const q = row + p.key_head * DK, *const k = q + p.n_keys;
    const int64_t at = t * a.n_value_heads + p.head;
    const int half = p.lane / 16, own = p.lane % 16; /* the first half has keys */
    delta_token<DK> x;
#pragma unroll
    for (int i = 0; i < DK / WARP; i++) x.q[i] = q[p.lane + WARP * i], x.k[i] = k[p.lane + WARP * i];
    x.own = own < DK / SHARERS ? (half == 0 ? k : q)[p.warp * (DK / SHARERS) + own] : 0.0f;
    x.v = p.there ? row[2 * p.n_keys + p.head * a.value_dim + p.column] : 0.0f;
    x.a = a.a[at], x.b = a.b[at];
    return x;
}

template <int N> static __device__ __forceinline__ float squares_of(const float (&x)[N])
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) sum = fmaf(x[i], x[i], sum);
    return warp_sum(sum);
}

/* The parts of a column, in their order. */
static __device__ __forceinline__ float shared_sum(const float (*parts)[WARP], int lane)
{
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < SHARERS; w++) sum += parts[w][lane];
    return sum;
}

/* blockIdx as above. What a token leaves is added up behind the next one's barrier, so that there is one a token; parts lie in two places
 * in turn, for who is late still reads the last ones. */
template <int DK> static __global__ void __launch_bounds__(WARP *SHARERS, 2) k_delta_shared(const __grid_constant__ apr_delta_args a)
{
    enum { ROWS = DK / SHARERS };
    __shared__ __align__(16) float own[SHARERS][2][16];
    __shared__ float known[2][SHARERS][WARP], left[2][SHARERS][WARP];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int64_t head = blockIdx.x, column = (int64_t)blockIdx.y * WARP + lane, n_keys = a.n_key_heads * DK;
    const int64_t key_head = a.tiled ? head % a.n_key_heads : head / (a.n_value_heads / a.n_key_heads);
    const delta_place p = {head, column, key_head, n_keys, 2 * n_keys + a.n_value_heads * a.value_dim, warp, lane, column < a.value_dim};
    const float rate = a.rate[head], dt_bias = a.dt_bias[head];
    float *const state = a.state + (head * DK + warp * ROWS) * a.value_dim + column;
    float s[ROWS];

    follow_previous();
#pragma unroll
    for (int j = 0; j < ROWS; j++) s[j] = p.there ? state[j * a.value_dim] : 0.0f;
    delta_token<DK> next = delta_read<DK>(a, p, 0);
    for (int64_t t = 0; t < a.n_tokens; t++) {
        const delta_token<DK> x = next;
        const int turn = (int)(t & 1);
        if (t + 1 < a.n_tokens) next = delta_read<DK>(a, p, t + 1);
        const float of_q = 1.0f / sqrtf(squares_of(x.q) + a.eps) * rsqrtf((float)DK), of_k = 1.0f / sqrtf(squares_of(x.k) + a.eps);
        const float decay = expf(-rate * apr_softplus(x.a + dt_bias)), beta = apr_sigmoid(x.b);
        __syncwarp(); /* the token before has been used */
        own[warp][lane / 16][lane % 16] = x.own * (lane < 16 ? of_k : of_q);
        __syncwarp();
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            s[j] *= decay;
            sums[j % 4] = fmaf(s[j], own[warp][0][j], sums[j % 4]);
        }
        known[turn][warp][lane] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        __syncthreads();
        if (t > 0 && warp == (int)(t % SHARERS) && p.there)
            a.out[((t - 1) * a.n_value_heads + head) * a.value_dim + column] = shared_sum(left[1 - turn], lane);
        const float error = beta * (x.v - shared_sum(known[turn], lane));
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i] = 0.0f;
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            s[j] = fmaf(own[warp][0][j], error, s[j]);
            sums[j % 4] = fmaf(s[j], own[warp][1][j], sums[j % 4]);
        }
        left[turn][warp][lane] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
    __syncthreads();
    if (warp == 0 && p.there)
        a.out[((a.n_tokens - 1) * a.n_value_heads + head) * a.value_dim + column] = shared_sum(left[(a.n_tokens - 1) & 1], lane);
#pragma unroll
    for (int j = 0; j < ROWS; j++)
        if (p.there) state[j * a.value_dim] = s[j];
}

cudaError_t apr_cuda_delta(const apr_delta_args *a, cudaStream_t stream)
{
    const size_t n_bytes = (size_t)a->key_dim * (WARP + 2) * sizeof(float);
    if (a->n_tokens == 0) return cudaSuccess;
    if (n_bytes > MAX_SHARED || a->n_value_heads % a->n_key_heads != 0) return cudaErrorInvalidValue;
    const dim3 grid((unsigned)a->n_value_heads, (unsigned)((a->value_dim + WARP - 1) / WARP), blocks_apart(a));
    if (a->slots == NULL && a->key_dim == 128) return launch_following(k_delta_shared<128>, grid, WARP * SHARERS, 0, stream, *a);
    if (a->slots == NULL && a->key_dim == 64) return launch_following(k_delta_shared<64>, grid, WARP * SHARERS, 0, stream, *a);
    launch_following(k_delta, grid, WARP, n_bytes, stream, *a);
    return cudaGetLastError();
}

/* --- state-space duality --- */

/* blockIdx.x: a head; blockIdx.y: 32 rows of its state. Shared: state [32, state_dim + 1] (the odd stride keeps banks apart), B, C. */
static __global__ void __launch_bounds__(WARP) k_ssd(const __grid_constant__ apr_ssd_args all)
{
    follow_previous();
    const apr_ssd_args a = own_of(all);
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
    launch_following(k_ssd, dim3((unsigned)a->n_heads, (unsigned)((a->head_dim + WARP - 1) / WARP), blocks_apart(a)), WARP, n_bytes, stream,
                     *a);
    return cudaGetLastError();
}
