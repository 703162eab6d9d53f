/* router.cu - products with matrices of few rows in 16 or 32 bits, such as routers, for any number of tokens: one kernel, where the small GEMM
 * takes three (inputs, products, fix-up) that would each wait for the one before.
 *
 * A warp has a row and some tokens, whose numbers all warps of a thread block share. A row's first weights are requested before the wait
 * for the tokens. The order of a sum depends on the number of columns only. */
#include "kernels/cuda/common/ops.cuh"
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/device/reduce.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum {
    WARPS = 8,
    WARP = 32,
    TOKENS = 4,                   /* of a thread block */
    STEPS = 16,                   /* of a chunk: a lane has four columns in each */
    STEP_COLUMNS = 4 * WARP,      /* of all lanes */
    CHUNK = STEPS * STEP_COLUMNS, /* columns that are in shared memory at a time */
    MAX_ROWS = 1024,              /* with more the weights are what takes time */
};

/* Four weights of each type as stored, and as float32. */
template <apr_dtype D> struct stored;
template <> struct stored<APR_F32> {
    typedef float4 four;
    static __device__ __forceinline__ float4 value(four w) { return w; }
};
template <> struct stored<APR_F16> {
    typedef uint2 four;
    static __device__ __forceinline__ float4 value(four w)
    {
        const float2 a = __half22float2(*(const __half2 *)&w.x), b = __half22float2(*(const __half2 *)&w.y);
        return make_float4(a.x, a.y, b.x, b.y);
    }
};
template <> struct stored<APR_BF16> {
    typedef uint2 four;
    static __device__ __forceinline__ float4 value(four w)
    {
        return make_float4(__uint_as_float(w.x << 16), __uint_as_float(w.x & 0xffff0000u), __uint_as_float(w.y << 16),
                           __uint_as_float(w.y & 0xffff0000u));
    }
};

typedef struct router_call {
    const void *weight;
    const float *x, *bias; /* [n_tokens, n_in]; [n_out] or NULL */
    float *out;            /* [n_tokens, n_out] */
    int n_tokens, n_in, n_out;
} router_call;

/* A lane's weights of a chunk; zeros beyond the row. */
template <apr_dtype D>
static __device__ __forceinline__ void load_weights(const router_call &a, int row, int first, int lane,
                                                    typename stored<D>::four (&w)[STEPS])
{
    typedef typename stored<D>::four four;
    const four *const from = (const four *)a.weight + ((int64_t)row * a.n_in + first) / 4 + lane;
#pragma unroll
    for (int i = 0; i < STEPS; i++) w[i] = row < a.n_out && first + i * STEP_COLUMNS + 4 * lane < a.n_in ? __ldg(from + i * WARP) : four{};
}

static __device__ __forceinline__ void load_tokens(const router_call &a, int token, int n_tokens, int first, float4 (&x)[TOKENS][CHUNK / 4])
{
    const int fours = min(CHUNK, a.n_in - first) / 4;
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        for (int i = (int)threadIdx.x; i < fours && t < n_tokens; i += WARPS * WARP)
            x[t][i] = __ldcg((const float4 *)(a.x + (int64_t)(token + t) * a.n_in + first) + i);
}

/* blockIdx.x: rows; blockIdx.y: tokens. */
template <apr_dtype D> static __global__ void __launch_bounds__(WARPS *WARP, 2) k_router(const __grid_constant__ router_call a)
{
    __shared__ float4 x[TOKENS][CHUNK / 4];
    const int lane = (int)threadIdx.x % WARP, row = (int)(blockIdx.x * WARPS + threadIdx.x / WARP), token = (int)blockIdx.y * TOKENS;
    const int n_tokens = min((int)TOKENS, a.n_tokens - token);
    typename stored<D>::four w[STEPS];
    float sums[TOKENS] = {};

    pdl_trigger();
    load_weights<D>(a, row, 0, lane, w);
    const float bias = a.bias != NULL && row < a.n_out ? __ldg(a.bias + row) : 0.0f;
    pdl_wait();
#pragma unroll 1
    for (int first = 0; first < a.n_in; first += CHUNK) {
        if (first > 0) {
            __syncthreads(); /* all have read the chunk before */
            load_weights<D>(a, row, first, lane, w);
        }
        load_tokens(a, token, n_tokens, first, x);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            if (first + i * STEP_COLUMNS + 4 * lane >= a.n_in) continue;
            const float4 v = stored<D>::value(w[i]);
#pragma unroll
            for (int t = 0; t < TOKENS; t++) {
                if (t >= n_tokens) continue;
                const float4 n = x[t][i * WARP + lane];
                sums[t] = fmaf(v.w, n.w, fmaf(v.z, n.z, fmaf(v.y, n.y, fmaf(v.x, n.x, sums[t]))));
            }
        }
    }
#pragma unroll
    for (int t = 0; t < TOKENS; t++) sums[t] = warp_sum(sums[t]);
    for (int t = 0; t < TOKENS && lane == 0; t++)
        if (row < a.n_out && t < n_tokens) a.out[(int64_t)(token + t) * a.n_out + row] = sums[t] + bias;
}

cudaError_t apr_cuda_router(const apr_linear_args *a, cudaStream_t stream)
{
    const apr_tensor *const w = a->weight;
    const bool is_plain = w->packing == NULL && w->scale == NULL && w->pending.kind == APR_STEP_NONE && !w->tiled && a->heads.n == 0;
    const bool fits = a->n_out <= MAX_ROWS && a->n_in % 4 == 0 && a->n_in <= INT32_MAX && a->n_tokens <= UINT16_MAX * TOKENS;
    if (!is_plain || !fits || ((uintptr_t)w->data | (uintptr_t)a->x) % 16 != 0) return cudaErrorNotSupported;
    void (*const kernel)(router_call) = w->dtype == APR_F32    ? k_router<APR_F32>
                                        : w->dtype == APR_F16  ? k_router<APR_F16>
                                        : w->dtype == APR_BF16 ? k_router<APR_BF16>
                                                               : NULL;
    if (kernel == NULL) return cudaErrorNotSupported;
    const router_call call = {w->data, a->x, a->bias, a->out, (int)a->n_tokens, (int)a->n_in, (int)a->n_out};
    const dim3 grid((unsigned)((a->n_out + WARPS - 1) / WARPS), (unsigned)((a->n_tokens + TOKENS - 1) / TOKENS));
    /* the same carveout as the kernels around it, which then need not wait for a reconfiguration of shared memory */
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    return launch_pdl(kernel, grid, WARPS * WARP, 0, stream, call);
}
