/* experts.cu - the routing of experts, and their products without sorting: each pair of a token and a chosen expert is a GEMV straight from
 * the packed weights. The expert is read from the routes on the device, without waiting for the host. */
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/gemv/gemv.cuh"

enum { BLOCK = 256, WARP = 32, MAX_SHARED = 48 << 10 };

/* --- routes --- */

/* Argmax of x[0, n) without NaN (the lower of equal ones), returned in all lanes; -1: all are NaN. */
static __device__ __forceinline__ int argmax_of(const float *x, int n)
{
    float best = 0.0f;
    int at = -1;
    for (int i = threadIdx.x; i < n; i += WARP)
        if (!isnan(x[i]) && (at < 0 || x[i] > best)) best = x[i], at = i;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, best, lanes);
        const int other_at = __shfl_xor_sync(0xffffffffu, at, lanes);
        if (other_at >= 0 && (at < 0 || other > best || (other == best && other_at < at))) best = other, at = other_at;
    }
    return at;
}

static __host__ __device__ __forceinline__ bool has_groups(const apr_route_shape &s)
{
    return s.n_groups > 1 && s.n_groups_used > 0 && s.n_groups_used < s.n_groups;
}

static __device__ __forceinline__ float group_score(const apr_route_shape &s, const float *x, int n)
{
    float first = -INFINITY, second = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (x[i] > first) second = first, first = x[i];
        else if (x[i] > second) second = x[i];
    }
    return s.group_by_best || n < 2 ? first : first + second;
}

/* Returns the gap (apr_route_gap). */
static __device__ float mask_groups(const apr_route_shape &s, float *choice, float *groups)
{
    const int n_groups = (int)s.n_groups, n = (int)(s.n_experts / s.n_groups);
    float best_score = 0.0f, last = 0.0f;
    for (int g = threadIdx.x; g < n_groups; g += WARP) groups[g] = group_score(s, choice + g * n, n);
    __syncwarp();
    for (int64_t k = 0; k < s.n_groups_used; k++) {
        const int best = argmax_of(groups, n_groups);
        if (best >= 0) last = groups[best];
        if (k == 0) best_score = last;
        __syncwarp();
        if (best >= 0 && threadIdx.x == 0) groups[best] = NAN; /* taken */
        __syncwarp();
    }
    const int next = argmax_of(groups, n_groups);
    const float gap = apr_route_gap(last, next >= 0 ? groups[next] : -INFINITY, best_score);
    for (int e = threadIdx.x; e < n_groups * n; e += WARP)
        if (!isnan(groups[e / n])) choice[e] = s.filler;
    __syncwarp();
    return gap;
}

/* x <- exp(x - max) / sum */
static __device__ __forceinline__ void softmax(float *x, int n)
{
    float most = -INFINITY, sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += WARP) most = fmaxf(most, x[i]);
    most = warp_max(most);
    for (int i = threadIdx.x; i < n; i += WARP) sum += x[i] = expf(x[i] - most);
    sum = warp_sum(sum);
    for (int i = threadIdx.x; i < n; i += WARP) x[i] /= sum;
    __syncwarp();
}

static __device__ __forceinline__ float score_of(apr_score_kind kind, float logit)
{
    return kind == APR_SCORE_SIGMOID ? apr_sigmoid(logit) : kind == APR_SCORE_SQRT_SOFTPLUS ? sqrtf(apr_softplus(logit)) : logit;
}

/* Writes a token's route: the chosen experts and their weights, which are computed from their scores. */
static __device__ __forceinline__ void write_route(const apr_route_args &a, apr_score_kind score, int64_t t, const int *ids, float *scores,
                                                   float gap, bool is_final)
{
    const apr_route_shape &s = a.shape;
    const int n_used = (int)s.n_used;
    const bool is_sigmoid = score == APR_SCORE_TOPK_SIGMOID;
    float *const out = a.out + t * apr_route_row(n_used), sum = 0.0f;
    if (score == APR_SCORE_TOPK_SOFTMAX) softmax(scores, n_used);
#pragma unroll 8
    for (int k = 0; k < n_used; k++) sum += is_sigmoid ? apr_sigmoid(scores[k]) : scores[k];
    const float divisor = s.normalise ? fmaxf(sum + s.norm_eps, s.norm_min) : 1.0f;
    for (int k = threadIdx.x; k < n_used; k += WARP) {
        const float weight = (is_sigmoid ? apr_sigmoid(scores[k]) : scores[k]) / divisor * s.scale;
        const float scaled = a.expert_scale != NULL ? weight * a.expert_scale[ids[k]] : weight;
        if (is_final) out[k] = (float)ids[k], out[n_used + k] = scaled;
    }
    if (is_final && threadIdx.x == 0) out[2 * n_used] = gap;
}

/* --- top-k by counting ranks: up to 32 * EACH experts without groups, up to 32 chosen --- */

enum { LARGEST_EACH = 16 };

/* A key with the order of the numbers; 0 is NaN only. */
static __device__ __forceinline__ uint32_t key_of(float x)
{
    const uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x); /* -0 equals 0 */
    return isnan(x) ? 0u : bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

static __device__ __forceinline__ float number_of(uint32_t key)
{
    return key == 0 ? NAN : __uint_as_float(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

/* The same as softmax above, with its order of sums. */
template <int EACH> static __device__ __forceinline__ void softmax_of(float (&x)[EACH], int n)
{
    const int lane = (int)threadIdx.x % WARP;
    float most = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + WARP * i < n) most = fmaxf(most, x[i]);
    most = warp_max(most);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + WARP * i < n) sum += x[i] = expf(x[i] - most);
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < EACH; i++) x[i] /= sum;
}

/* The rank of expert e, whose key is not 0: the number of experts with larger keys, or with equal keys and lower numbers. */
template <int EACH> static __device__ __forceinline__ int rank_of(const uint32_t *keys, int e, uint32_t key)
{
    const uint32_t *const own = keys + e / WARP * WARP;
    const int lane = e % WARP;
    int rank = 0;
#pragma unroll
    for (int c = 0; c < EACH; c++) {
        const uint32_t more_than = c < e / WARP ? key - 1 : key; /* equal keys among its own 32 are compared below */
#pragma unroll
        for (int i = 0; i < WARP; i += 4) {
            const uint4 k = *(const uint4 *)(keys + WARP * c + i);
            rank += (k.x > more_than) + (k.y > more_than) + (k.z > more_than) + (k.w > more_than);
        }
    }
#pragma unroll
    for (int i = 0; i < WARP; i += 4) {
        const uint4 k = *(const uint4 *)(own + i);
        rank += (i < lane && k.x == key) + (i + 1 < lane && k.y == key) + (i + 2 < lane && k.z == key) + (i + 3 < lane && k.w == key);
    }
    return rank;
}

/* A warp per 32 experts; each warp has all scores. is_final false: a rehearsal with zeros for logits, which writes nothing. */
template <int EACH, apr_score_kind SCORE> static __device__ __forceinline__ void route(const apr_route_args &a, float bias, bool is_final)
{
    __shared__ __align__(16) uint32_t keys[WARP * EACH];
    __shared__ uint32_t best[WARP + 1]; /* by rank; 0: all are NaN, and expert 0 is chosen */
    __shared__ float chosen[WARP];
    __shared__ int ids[WARP];
    const apr_route_shape &s = a.shape;
    const int n = (int)s.n_experts, n_used = (int)s.n_used, e = (int)threadIdx.x, lane = e % WARP;
    const int64_t t = blockIdx.x;
    float scores[EACH], own = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) scores[i] = is_final && lane + WARP * i < n ? __ldcg(a.logits + t * n + lane + WARP * i) : 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) scores[i] = score_of(SCORE, scores[i]);
    if (SCORE == APR_SCORE_SOFTMAX) softmax_of<EACH>(scores, n);
#pragma unroll
    for (int i = 0; i < EACH; i++) own = i == e / WARP ? scores[i] : own;
    const uint32_t key = e < n ? key_of(a.bias != NULL ? own + bias : own) : 0u;
    const float zeroth = __shfl_sync(0xffffffffu, scores[0], 0);
    keys[e] = key;
    if (e <= n_used) best[e] = 0;
    if (e < n_used) ids[e] = 0, chosen[e] = zeroth;
    __syncthreads();
    const int rank = rank_of<EACH>(keys, e, key);
    if (key != 0 && rank <= n_used) best[rank] = key;
    if (key != 0 && rank < n_used) ids[rank] = e, chosen[rank] = own;
    __syncthreads();
    if (e >= WARP) return;
    const uint32_t next = best[n_used];
    const float gap = apr_route_gap(number_of(best[n_used - 1]), next != 0 ? number_of(next) : -INFINITY, number_of(best[0]));
    write_route(a, SCORE, t, ids, chosen, gap, is_final);
}

/* A thread block per token. For one token it runs once as a rehearsal before the logits are ready, which saves 0.4 us later. The next
 * kernel may begin once all previous kernels have finished: it is a product, whose blocks would otherwise find the multiprocessors
 * unequally full, and it relies on data from before the logits (decode_gemv_args.h, inputs_ready_early). */
template <int EACH, apr_score_kind SCORE>
static __global__ void __launch_bounds__(WARP *EACH, 1) k_route_ranks(const __grid_constant__ apr_route_args a)
{
    const float bias = a.bias != NULL && threadIdx.x < a.shape.n_experts ? __ldg(a.bias + threadIdx.x) : 0.0f;
#pragma unroll 1
    for (int pass = gridDim.x == 1 ? 0 : 1; pass < 2; pass++) {
        if (pass == 1) {
            pdl_wait();
            pdl_trigger();
        }
        route<EACH, SCORE>(a, bias, pass == 1);
        __syncthreads();
    }
}

/* --- top-k by repeated argmax: any number of experts, with or without groups --- */

/* A warp per token. Shared memory: scores [n_experts], biased scores for the choice [n_experts], groups [n_groups], scores of the chosen
 * experts [n_used], their ids [n_used]. */
static __global__ void __launch_bounds__(WARP) k_route(const __grid_constant__ apr_route_args a)
{
    pdl_wait();
    pdl_trigger();
    extern __shared__ float shared[];
    const apr_route_shape &s = a.shape;
    const int n = (int)s.n_experts, n_used = (int)s.n_used;
    const int64_t t = blockIdx.x;
    float *const scores = shared, *const choice = scores + n, *const groups = choice + n, *const chosen = groups + s.n_groups;
    int *const ids = (int *)(chosen + n_used);

    for (int e = threadIdx.x; e < n; e += WARP) scores[e] = score_of(s.score, a.logits[t * n + e]);
    __syncwarp();
    if (s.score == APR_SCORE_SOFTMAX) softmax(scores, n);
    for (int e = threadIdx.x; e < n; e += WARP) choice[e] = a.bias != NULL ? scores[e] + a.bias[e] : scores[e];
    __syncwarp();
    float gap = INFINITY, best_score = 0.0f, last = 0.0f;
    if (has_groups(s)) gap = mask_groups(s, choice, groups);
    for (int k = 0; k < n_used; k++) {
        int best = argmax_of(choice, n);
        if (best < 0) best = 0; /* all are NaN */
        last = choice[best];
        if (k == 0) best_score = last;
        __syncwarp();
        if (threadIdx.x == 0) {
            choice[best] = NAN;
            ids[k] = best;
            chosen[k] = scores[best];
        }
        __syncwarp();
    }
    const int next = argmax_of(choice, n);
    write_route(a, s.score, t, ids, chosen, fminf(gap, apr_route_gap(last, next >= 0 ? choice[next] : -INFINITY, best_score)), true);
}

typedef void (*route_fn)(const apr_route_args);

template <apr_score_kind SCORE> static route_fn by_ranks(int n_threads)
{
    return n_threads == WARP       ? k_route_ranks<1, SCORE>
           : n_threads == 2 * WARP ? k_route_ranks<2, SCORE>
           : n_threads == 4 * WARP ? k_route_ranks<4, SCORE>
           : n_threads == 8 * WARP ? k_route_ranks<8, SCORE>
                                   : k_route_ranks<LARGEST_EACH, SCORE>;
}

/* NULL: too many experts, or groups. */
static route_fn fast_route(const apr_route_shape &s, int *n_threads)
{
    if (has_groups(s) || s.n_used > WARP || s.n_used < 1 || s.n_experts > WARP * LARGEST_EACH) return NULL;
    for (*n_threads = WARP; *n_threads < s.n_experts || *n_threads <= s.n_used;) *n_threads *= 2;
    switch (s.score) {
    case APR_SCORE_SOFTMAX: return by_ranks<APR_SCORE_SOFTMAX>(*n_threads);
    case APR_SCORE_SIGMOID: return by_ranks<APR_SCORE_SIGMOID>(*n_threads);
    case APR_SCORE_SQRT_SOFTPLUS: return by_ranks<APR_SCORE_SQRT_SOFTPLUS>(*n_threads);
    case APR_SCORE_TOPK_SOFTMAX: return by_ranks<APR_SCORE_TOPK_SOFTMAX>(*n_threads);
    case APR_SCORE_TOPK_SIGMOID: return by_ranks<APR_SCORE_TOPK_SIGMOID>(*n_threads);
    case APR_SCORE_KINDS: break;
    }
    return NULL;
}

cudaError_t apr_cuda_route(const apr_route_args *a, cudaStream_t stream)
{
    const size_t n_bytes = (size_t)(2 * a->shape.n_experts + a->shape.n_groups + 2 * a->shape.n_used) * sizeof(float);
    if (a->n_tokens == 0) return cudaSuccess;
    if (n_bytes > MAX_SHARED || a->shape.n_used > a->shape.n_experts) return cudaErrorInvalidValue;
    int n_threads = WARP;
    const route_fn fast = fast_route(a->shape, &n_threads);
    launch_pdl(fast != NULL ? fast : k_route, (unsigned)a->n_tokens, (unsigned)n_threads, fast != NULL ? 0 : n_bytes, stream, *a);
    return cudaGetLastError();
}

/* --- experts --- */

/* Inputs times the experts' weights: [n_tokens * n_used, n_in]. */
static __global__ void __launch_bounds__(BLOCK) k_weigh_inputs(const __grid_constant__ apr_experts_args a, float *out)
{
    pdl_trigger_and_wait();
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x, pair = i / a.n_in, t = pair / a.n_used;
    if (t < a.n_tokens) out[i] = a.x[t * a.n_in + i % a.n_in] * a.routes[t * apr_route_row(a.n_used) + a.n_used + pair % a.n_used];
}

static __global__ void __launch_bounds__(BLOCK) k_experts_glu(apr_glu_shape shape, const float *gate, float *up, int64_t n)
{
    pdl_trigger_and_wait();
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) up[i] = gate != NULL ? apr_glu_of(&shape, gate[i], up[i]) : apr_activate(shape.activation, up[i]);
}

/* out[t][r] = sum over ranks, the most probable expert first. */
static __global__ void __launch_bounds__(BLOCK) k_gather(const __grid_constant__ apr_experts_args a, const float *each)
{
    pdl_trigger_and_wait();
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x, t = i / a.n_out, r = i % a.n_out;
    if (t >= a.n_tokens) return;
    const float *const weights = a.routes + t * apr_route_row(a.n_used) + a.n_used;
    float sum = 0.0f;
    for (int64_t k = 0; k < a.n_used; k++) {
        const float y = each[(t * a.n_used + k) * a.n_out + r];
        sum = a.weight_on_input ? sum + y : fmaf(y, weights[k], sum);
    }
    a.out[i] = sum;
}

/* Multiplies each pair with its expert's matrix of a stack [n_experts, n_out, n_in]. */
static cudaError_t multiply(const apr_experts_args *a, const apr_tensor *stack, const float *bias, const float *x, bool x_per_choice,
                            int64_t n_in, int64_t n_out, float *out, cudaStream_t stream)
{
    const gemv_fn start = apr_cuda_gemv_of(stack);
    gemv_args g = {};

    if (start == NULL) return cudaErrorNotSupported;
    if (!apr_cuda_view(stack, &g.weight) || g.weight.n_in != n_in || g.weight.n_rows != a->n_experts * n_out) return cudaErrorInvalidValue;
    g.x = x;
    g.bias = bias;
    g.out = out;
    g.n_out = n_out;
    g.n_tokens = 1;
    g.n_parts = 1;
    g.routes = a->routes;
    g.n_used = (int)a->n_used;
    g.matrix_rows = n_out;
    g.n_pairs = (unsigned)(a->n_tokens * a->n_used);
    g.x_per_choice = x_per_choice;
    return start(g, stream);
}

static cudaError_t some_tokens(const apr_experts_args *a, cudaStream_t stream)
{
    const int64_t n_pairs = a->n_tokens * a->n_used;
    float *const up = a->work.data, *const gate = up + n_pairs * a->n_mid, *const each = gate + n_pairs * a->n_mid;
    float *const weighed = each + n_pairs * a->n_out;
    const float *const x = a->weight_on_input ? weighed : a->x;
    cudaError_t error = cudaSuccess;

    if (a->weight_on_input) launch_pdl(k_weigh_inputs, blocks_of(n_pairs * a->n_in, BLOCK), BLOCK, 0, stream, *a, weighed);
    error = multiply(a, a->up, a->up_bias, x, a->weight_on_input, a->n_in, a->n_mid, up, stream);
    if (error == cudaSuccess && a->gate != NULL)
        error = multiply(a, a->gate, a->gate_bias, x, a->weight_on_input, a->n_in, a->n_mid, gate, stream);
    if (error != cudaSuccess) return error;
    launch_pdl(k_experts_glu, blocks_of(n_pairs * a->n_mid, BLOCK), BLOCK, 0, stream, a->glu, a->gate != NULL ? gate : NULL, up,
               n_pairs * a->n_mid);
    error = multiply(a, a->down, a->down_bias, up, true, a->n_mid, a->n_out, each, stream);
    if (error != cudaSuccess) return error;
    launch_pdl(k_gather, blocks_of(a->n_tokens * a->n_out, BLOCK), BLOCK, 0, stream, *a, each);
    return cudaGetLastError();
}

cudaError_t apr_cuda_experts(const apr_experts_args *args, cudaStream_t stream)
{
    const int64_t a_token = (int64_t)(apr_cuda_experts_bytes(1, args->n_in, args->n_mid, args->n_out, args->n_used) / sizeof(float));
    const int64_t fits = (int64_t)args->work.slice / a_token, most = fits < APR_CUDA_EXPERT_TOKENS ? fits : (int64_t)APR_CUDA_EXPERT_TOKENS;
    cudaError_t error = cudaSuccess;

    if (args->n_tokens > 0 && most < 1) return cudaErrorInvalidValue;
    for (int64_t first = 0; first < args->n_tokens && error == cudaSuccess; first += most) {
        apr_experts_args some = *args;
        some.n_tokens = args->n_tokens - first < most ? args->n_tokens - first : most;
        some.x = args->x + first * args->n_in;
        some.routes = args->routes + first * apr_route_row(args->n_used);
        some.out = args->out + first * args->n_out;
        error = some_tokens(&some, stream);
    }
    return error;
}
