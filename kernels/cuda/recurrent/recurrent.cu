/* recurrent.cu - operations with a state: convolution over time, delta rule, state-space duality.
 *
 * A warp has columns (delta: four in registers for usual key sizes, 32 in shared memory for others) or rows (ssd: 32) of one head's state,
 * and goes over the tokens. Inputs of a token are read once; the state is read and written once per call. Columns are independent, so
 * nothing is added between warps. The arithmetic is that of kernels/ref, except for the order of sums. */
#include "kernels/cuda/common/norm.cuh"
#include "kernels/cuda/common/ops.cuh"
#include "kernels/cuda/common/pdl.cuh"

enum { BLOCK = 256, WARP = 32, MAX_SHARED = 48 << 10 };

/* With a sequence per token: token blockIdx.z, as if it were alone. */
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
    a.a = all.a + blockIdx.z * all.n_value_heads * apr_delta_gates(&all);
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

/* Blocks along z: one for the tokens of a single sequence, or one per token. */
template <typename ARGS> static unsigned blocks_of_tokens(const ARGS *a) { return a->slots != NULL ? (unsigned)a->n_tokens : 1; }

/* --- convolution --- */

static __global__ void __launch_bounds__(BLOCK) k_conv(const __grid_constant__ apr_conv_args all)
{
    pdl_trigger_and_wait();
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

/* Shifts the state, a thread per channel, from the oldest row on: what is overwritten has been read. */
static __global__ void __launch_bounds__(BLOCK) k_conv_state(const __grid_constant__ apr_conv_args all)
{
    pdl_trigger_and_wait();
    const apr_conv_args a = own_of(all);
    const int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x, n_before = a.n_taps - 1;
    if (c >= a.width) return;
    for (int64_t i = 0; i < n_before; i++) {
        const int64_t at = a.n_tokens - n_before + i; /* negative: in the old state */
        a.state[i * a.width + c] = at < 0 ? a.state[(n_before + at) * a.width + c] : a.x[at * a.width + c];
    }
}

enum { MAX_TAPS = 4 }; /* taps that a thread has in registers */

/* Both for one token, a thread per channel, with all loads in flight together. */
static __global__ void __launch_bounds__(BLOCK) k_conv_one(const __grid_constant__ apr_conv_args a)
{
    const int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    const int n = (int)a.n_taps;
    const bool there = c < a.width;
    float weights[MAX_TAPS], taps[MAX_TAPS], sum = 0.0f;
#pragma unroll
    for (int k = 0; k < MAX_TAPS; k++) weights[k] = there && k < n ? a.weight[c * n + k] : 0.0f;
    const float bias = there && a.bias != NULL ? a.bias[c] : 0.0f;
    pdl_trigger_and_wait();
    if (!there) return;
#pragma unroll
    for (int k = 0; k < MAX_TAPS; k++) taps[k] = k + 1 < n ? a.state[k * a.width + c] : k + 1 == n ? a.x[c] : 0.0f;
#pragma unroll
    for (int k = 0; k < MAX_TAPS; k++) {
        if (k < n) sum = fmaf(weights[k], taps[k], sum);
        if (k > 0 && k < n) a.state[(k - 1) * a.width + c] = taps[k];
    }
    a.out[c] = apr_activate(a.activation, a.bias != NULL ? sum + bias : sum);
}

cudaError_t apr_cuda_conv(const apr_conv_args *a, cudaStream_t stream)
{
    if (a->n_tokens == 0) return cudaSuccess;
    const unsigned n_z = blocks_of_tokens(a);
    const int64_t n = a->n_tokens / n_z * a->width;
    if (n == 0) return cudaSuccess;
    if (a->n_tokens == 1 && a->slots == NULL && a->n_taps <= MAX_TAPS)
        return launch_pdl(k_conv_one, blocks_of(n, BLOCK), BLOCK, 0, stream, *a);
    launch_pdl(k_conv, dim3(blocks_of(n, BLOCK), 1, n_z), BLOCK, 0, stream, *a);
    launch_pdl(k_conv_state, dim3(blocks_of(a->width, BLOCK), 1, n_z), BLOCK, 0, stream, *a);
    return cudaGetLastError();
}

/* --- delta rule --- */

/* Writes x / sqrt(sum(x^2) + eps) * scale to shared memory, by one warp. */
static __device__ __forceinline__ void l2_norm(const float *x, int64_t n, float eps, float scale, float *out)
{
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < n; i += WARP) sum = fmaf(x[i], x[i], sum);
    const float factor = scale_of_squares(warp_sum(sum), eps) * scale;
    for (int64_t i = threadIdx.x; i < n; i += WARP) out[i] = x[i] * factor;
}

/* blockIdx.x: a value head; blockIdx.y: 32 columns of its state. Shared: state [key_dim, 32], q, k, decays [key_dim]. */
static __global__ void __launch_bounds__(WARP) k_delta(const __grid_constant__ apr_delta_args all)
{
    pdl_trigger_and_wait();
    const apr_delta_args a = own_of(all);
    extern __shared__ float shared[];
    const int64_t head = blockIdx.x, column = (int64_t)blockIdx.y * WARP + threadIdx.x, dk = a.key_dim, dv = a.value_dim;
    const int64_t key_head = a.tiled ? head % a.n_key_heads : head / (a.n_value_heads / a.n_key_heads);
    const int64_t n_keys = a.n_key_heads * dk, width = 2 * n_keys + a.n_value_heads * dv;
    const bool there = column < dv;
    float *const s = shared + threadIdx.x, *const q = shared + dk * WARP, *const k = q + dk, *const decays = k + dk;
    float *const state = a.state + head * dk * dv + column;
    const int64_t n_gates = apr_delta_gates(&a);

    for (int64_t i = 0; i < dk; i++) s[i * WARP] = there ? state[i * dv] : 0.0f;
    for (int64_t t = 0; t < a.n_tokens; t++) {
        const float *const row = a.qkv + t * width;
        const int64_t at = t * a.n_value_heads + head;
        const float beta = apr_sigmoid(a.b[at]);
        __syncwarp(); /* q, k and decays of the previous token have been used */
        for (int64_t i = threadIdx.x; i < n_gates; i += WARP)
            decays[i] = expf(apr_delta_log_decay(&a, a.rate[head], a.a[at * n_gates + i] + a.dt_bias[head * n_gates + i]));
        l2_norm(row + key_head * dk, dk, a.eps, rsqrtf((float)dk), q);
        l2_norm(row + n_keys + key_head * dk, dk, a.eps, 1.0f, k);
        __syncwarp();
        float known = 0.0f, out = 0.0f;
        for (int64_t i = 0; i < dk; i++) {
            const float decayed = s[i * WARP] * decays[n_gates > 1 ? i : 0];
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

/* --- the same for keys of 64 or 128 numbers: a warp has four columns, so that no warp waits for another one's sums --- */

enum {
    COLUMNS = 4,            /* of a warp, in registers: lane l has rows l, l + 32, ... */
    WARPS = WARP / COLUMNS, /* 32 columns */
};

/* A lane's inputs of a token: every 32nd number of its head's query and key, and a column's value. */
template <int DK> struct delta_token {
    float q[DK / WARP], k[DK / WARP], v, a, b;
};

/* Tokens that are prepared at a time, OF_WARP by each warp: queries and keys normed, grouped by lane, values of the block's columns, exp(g)
 * and beta. */
template <int DK, int OF_WARP> struct delta_chunk {
    static constexpr int TOKENS = WARPS * OF_WARP;
    alignas(16) float q[TOKENS][DK], k[TOKENS][DK];
    float v[TOKENS][WARP];
    float2 gates[TOKENS];
};

/* A head and 32 columns: where their inputs are, and the head's parameters. */
typedef struct delta_place {
    int64_t head, key_head, first_column, n_keys, width;
    float rate, dt_bias;
} delta_place;

template <int DK> static __device__ __forceinline__ delta_token<DK> delta_read(const apr_delta_args &a, const delta_place &p, int64_t t)
{
    const int lane = threadIdx.x % WARP;
    const float *const row = a.qkv + t * p.width, *const q = row + p.key_head * DK, *const k = q + p.n_keys;
    const int64_t at = t * a.n_value_heads + p.head;
    delta_token<DK> x;
#pragma unroll
    for (int i = 0; i < DK / WARP; i++) x.q[i] = q[lane + WARP * i], x.k[i] = k[lane + WARP * i];
    x.v = p.first_column + lane < a.value_dim ? row[2 * p.n_keys + p.head * a.value_dim + p.first_column + lane] : 0.0f;
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

template <int DK, int OF_WARP>
static __device__ __forceinline__ void delta_put(const apr_delta_args &a, const delta_place &p, const delta_token<DK> &x, int i,
                                                 delta_chunk<DK, OF_WARP> *to)
{
    const int lane = threadIdx.x % WARP;
    const float of_q = scale_of_squares(squares_of(x.q), a.eps) * rsqrtf((float)DK), of_k = scale_of_squares(squares_of(x.k), a.eps);
#pragma unroll
    for (int j = 0; j < DK / WARP; j++) to->q[i][DK / WARP * lane + j] = x.q[j] * of_q, to->k[i][DK / WARP * lane + j] = x.k[j] * of_k;
    to->v[i][lane] = x.v;
    if (lane == 0) to->gates[i] = make_float2(expf(apr_delta_log_decay(&a, p.rate, x.a + p.dt_bias)), apr_sigmoid(x.b));
}

/* A warp's tokens of the chunk that begins at `base`. */
template <int DK, int OF_WARP>
static __device__ __forceinline__ void delta_read_chunk(const apr_delta_args &a, const delta_place &p, int64_t base,
                                                        delta_token<DK> (&x)[OF_WARP])
{
#pragma unroll
    for (int i = 0; i < OF_WARP; i++) {
        const int64_t t = base + threadIdx.x / WARP * OF_WARP + i;
        if (t < a.n_tokens) x[i] = delta_read<DK>(a, p, t);
    }
}
template <int DK, int OF_WARP>
static __device__ __forceinline__ void delta_put_chunk(const apr_delta_args &a, const delta_place &p, int64_t base,
                                                       const delta_token<DK> (&x)[OF_WARP], delta_chunk<DK, OF_WARP> *to)
{
#pragma unroll
    for (int i = 0; i < OF_WARP; i++) {
        const int at = (int)(threadIdx.x / WARP) * OF_WARP + i;
        if (base + at < a.n_tokens) delta_put<DK>(a, p, x[i], at, to);
    }
}

/* Sums eight numbers over the warp: lanes 4 i to 4 i + 3 get the sum of number i. All use the same order. */
static __device__ __forceinline__ float sum_eight(const float (&x)[2 * COLUMNS])
{
    const int lane = threadIdx.x % WARP;
    const bool in_16 = lane / 16 != 0, in_8 = lane / 8 % 2 != 0, in_4 = lane / 4 % 2 != 0;
    float four[4], two[2];
#pragma unroll
    for (int i = 0; i < 4; i++) four[i] = (in_16 ? x[4 + i] : x[i]) + __shfl_xor_sync(0xffffffffu, in_16 ? x[i] : x[4 + i], 16);
#pragma unroll
    for (int i = 0; i < 2; i++) two[i] = (in_8 ? four[2 + i] : four[i]) + __shfl_xor_sync(0xffffffffu, in_8 ? four[i] : four[2 + i], 8);
    float sum = (in_4 ? two[1] : two[0]) + __shfl_xor_sync(0xffffffffu, in_4 ? two[0] : two[1], 4);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 1);
}

template <int R> static __device__ __forceinline__ void load_own(const float *row, float (&x)[R])
{
    const int lane = threadIdx.x % WARP;
    if constexpr (R == 4) {
        const float4 v = *(const float4 *)(row + 4 * lane);
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else {
        const float2 v = *(const float2 *)(row + 2 * lane);
        x[0] = v.x, x[1] = v.y;
    }
}

/* A warp's state between tokens: its part of the state, the next key, and, in lanes 4 c to 4 c + 3, the product of state and that key in
 * column c. */
template <int DK> struct delta_state {
    float s[DK / WARP][COLUMNS], k[DK / WARP], known;
};

/* Called before a chunk. */
template <int DK> static __device__ __forceinline__ void delta_begin(const float *key, delta_state<DK> *w)
{
    float sums[2 * COLUMNS] = {};
    load_own<DK / WARP>(key, w->k);
#pragma unroll
    for (int r = 0; r < DK / WARP; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) sums[c] = fmaf(w->s[r][c], w->k[r], sums[c]);
    w->known = sum_eight(sums);
}

/* Processes token i; returns its output, of column c in lanes 16 + 4 c to 16 + 4 c + 3. The product of the state and the next key is summed
 * at the same time. */
template <int DK, int OF_WARP>
static __device__ __forceinline__ float delta_step(const delta_chunk<DK, OF_WARP> &chunk, int i, int next, delta_state<DK> *w)
{
    enum { R = DK / WARP };
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const float2 gates = chunk.gates[i];
    const float error = gates.y * fmaf(-gates.x, w->known, chunk.v[i][warp * COLUMNS + lane / 4 % COLUMNS]);
    float k[R], q[R], sums[2 * COLUMNS] = {};
#pragma unroll
    for (int r = 0; r < R; r++) k[r] = w->k[r];
    load_own<R>(chunk.q[i], q);
    load_own<R>(chunk.k[next], w->k);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        const float of_column = __shfl_sync(0xffffffffu, error, 4 * c);
#pragma unroll
        for (int r = 0; r < R; r++) {
            const float now = fmaf(k[r], of_column, w->s[r][c] * gates.x);
            w->s[r][c] = now;
            sums[c] = fmaf(now, w->k[r], sums[c]);
            sums[COLUMNS + c] = fmaf(now, q[r], sums[COLUMNS + c]);
        }
    }
    w->known = sum_eight(sums);
    return w->known;
}

/* A state's 32 columns go through shared memory between registers, where a lane has one of 32 rows, and global memory, where eight lanes
 * have a row. */
enum { TILE_PITCH = WARP + 4 }; /* rows are 16 bytes apart modulo 128, so that lanes read from different banks */

template <int DK, bool STORE> static __device__ __forceinline__ void move_tile(float *state, int64_t row_step, int n_columns, float *tile)
{
    enum { PIECES = WARP / 4, THREADS = WARP * WARPS };
#pragma unroll
    for (int i = 0; i < DK * PIECES / THREADS; i++) {
        const int at = (int)threadIdx.x + i * THREADS, row = at / PIECES, column = at % PIECES * 4;
        float4 *const there = (float4 *)(state + row * row_step + column), *const here = (float4 *)(tile + row * TILE_PITCH + column);
        if (column >= n_columns) continue;
        if (STORE) *there = *here;
        else *here = *there;
    }
}

template <int DK, bool STORE> static __device__ __forceinline__ void move_own(float *tile, float (&s)[DK / WARP][COLUMNS])
{
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < DK / WARP; r++) {
        float4 *const here = (float4 *)(tile + (lane + WARP * r) * TILE_PITCH + warp * COLUMNS);
        if (STORE) *here = make_float4(s[r][0], s[r][1], s[r][2], s[r][3]);
        else s[r][0] = here->x, s[r][1] = here->y, s[r][2] = here->z, s[r][3] = here->w;
    }
}

/* blockIdx as above; a warp has columns 4 warp to 4 warp + 3 of the 32. Inputs of the next tokens are loaded before the current ones are
 * processed, and prepared after. */
template <int DK, int OF_WARP>
static __global__ void __launch_bounds__(WARP *WARPS, 2) k_delta_columns(const __grid_constant__ apr_delta_args all)
{
    typedef delta_chunk<DK, OF_WARP> ready;
    __shared__ ready chunks[1 + 2 / OF_WARP];
    static_assert(sizeof chunks - sizeof *chunks >= DK * TILE_PITCH * sizeof(float), "the state fits all but the first");
    const float rate = all.rate[blockIdx.x], dt_bias = all.dt_bias[blockIdx.x];
    pdl_trigger_and_wait();
    const apr_delta_args a = own_of(all);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, head = (int)blockIdx.x, n_key_heads = (int)a.n_key_heads;
    const int key_head = a.tiled ? head % n_key_heads : head / ((int)a.n_value_heads / n_key_heads);
    const int64_t first_column = (int64_t)blockIdx.y * WARP, column = first_column + warp * COLUMNS, n_keys = a.n_key_heads * DK;
    const delta_place p = {head, key_head, first_column, n_keys, 2 * n_keys + a.n_value_heads * a.value_dim, rate, dt_bias};
    const bool writes = column < a.value_dim && lane >= 16 && lane % 4 == 0;
    const int n_columns = (int)(a.value_dim - first_column);
    float *const state = a.state + head * DK * a.value_dim + first_column, *const tile = (float *)&chunks[1];
    delta_state<DK> w;
    delta_token<DK> next[OF_WARP];

    delta_read_chunk<DK, OF_WARP>(a, p, 0, next);
    move_tile<DK, false>(state, a.value_dim, n_columns, tile);
    delta_put_chunk<DK, OF_WARP>(a, p, 0, next, &chunks[0]);
    __syncthreads();
    move_own<DK, false>(tile, w.s);
    if (a.n_tokens > ready::TOKENS) __syncthreads(); /* all warps have their part before tokens overwrite it */
    for (int64_t base = 0, which = 0; base < a.n_tokens; base += ready::TOKENS, which ^= 1) {
        const ready &chunk = chunks[which];
        const int n = a.n_tokens - base < ready::TOKENS ? (int)(a.n_tokens - base) : ready::TOKENS;
        float *const out = a.out + (base * a.n_value_heads + head) * a.value_dim + column + lane / 4 % COLUMNS;
        delta_read_chunk<DK, OF_WARP>(a, p, base + ready::TOKENS, next);
        delta_begin<DK>(chunk.k[0], &w);
#pragma unroll OF_WARP
        for (int i = 0; i < n; i++) {
            const float value = delta_step<DK, OF_WARP>(chunk, i, i + 1 < n ? i + 1 : i, &w);
            if (writes) out[i * a.n_value_heads * a.value_dim] = value;
        }
        delta_put_chunk<DK, OF_WARP>(a, p, base + ready::TOKENS, next, &chunks[which ^ 1]);
        __syncthreads();
    }
    move_own<DK, true>(tile, w.s);
    __syncthreads();
    move_tile<DK, true>(state, a.value_dim, n_columns, tile);
}

/* With few tokens a warp prepares one at a time, with many two. */
template <int DK> static cudaError_t start_columns(const apr_delta_args *a, dim3 grid, cudaStream_t stream)
{
    const auto kernel = a->slots != NULL || a->n_tokens <= WARPS ? k_delta_columns<DK, 1> : k_delta_columns<DK, 2>;
    /* the same carveout as the kernels around it, so that it need not wait for a reconfiguration of shared memory */
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    return launch_pdl(kernel, grid, WARP * WARPS, 0, stream, *a);
}

/* Whether four columns of a state are at multiples of 16 bytes. */
static bool has_fours(const apr_delta_args *a)
{
    return a->value_dim % COLUMNS == 0 && (uintptr_t)a->state % 16 == 0 && (a->slots == NULL || a->slot_bytes % 16 == 0);
}

cudaError_t apr_cuda_delta(const apr_delta_args *a, cudaStream_t stream)
{
    const size_t n_bytes = (size_t)a->key_dim * (WARP + 3) * sizeof(float);
    if (a->n_tokens == 0) return cudaSuccess;
    if (n_bytes > MAX_SHARED || a->n_value_heads % a->n_key_heads != 0) return cudaErrorInvalidValue;
    const dim3 grid((unsigned)a->n_value_heads, blocks_of(a->value_dim, WARP), blocks_of_tokens(a));
    if (!a->by_channel && has_fours(a) && a->key_dim == 128) return start_columns<128>(a, grid, stream);
    if (!a->by_channel && has_fours(a) && a->key_dim == 64) return start_columns<64>(a, grid, stream);
    launch_pdl(k_delta, grid, WARP, n_bytes, stream, *a);
    return cudaGetLastError();
}

/* --- state-space duality --- */

/* blockIdx.x: a head; blockIdx.y: 32 rows of its state. Shared memory: state [32, state_dim + 1] (the odd stride avoids bank conflicts), B,
 * C. */
static __global__ void __launch_bounds__(WARP) k_ssd(const __grid_constant__ apr_ssd_args all)
{
    pdl_trigger_and_wait();
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
    launch_pdl(k_ssd, dim3((unsigned)a->n_heads, blocks_of(a->head_dim, WARP), blocks_of_tokens(a)), WARP, n_bytes, stream, *a);
    return cudaGetLastError();
}
