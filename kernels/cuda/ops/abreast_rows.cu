/* abreast_rows.cu - what ends the products of a step's rows (kernels/cuda/rows_args.h): sums joined, bias, residual or gated unit, norm,
 * and inputs of the products behind, in one kernel.
 *
 * A cluster of blocks has a token, each block a run of its numbers, in shared memory between the steps. Squares are added up in the order
 * in which norm.cu does it, by each block for itself. */
#include "kernels/cuda/ops/abreast_end.cuh"
#include "kernels/cuda/ops/abreast_pieces.cuh"
#include "kernels/cuda/ops/cluster.cuh"
#include "kernels/cuda/ops/reduce.cuh"

enum {
    THREADS = 256, /* of k_norm_block, too */
    CLUSTER = 8,
    WARP_CHUNK = 1024, /* norm.cu: up to here a warp adds up squares */
};

typedef struct rows_end {
    abreast_call a;              /* whose sums they are; n_blocks 0: part 0 is there as it is */
    int n_blocks, rows_of_block; /* of its launch */
    apr_flow_ending ending;
    apr_glu_shape glu;
    int width, first, n_tokens; /* tokens from the first one of the launch on */
    const float *residual;
    float *out, *normed;
    bool norm, leaves;
    float eps, gain_offset;
    const float *gain;
    apr_abreast_inputs to;
} rows_end;

/* --- sums --- */

static __device__ __forceinline__ float4 add_four(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

/* As joined_sum, of four rows of a row block that blocks [first, last] had. */
static __device__ __forceinline__ float4 joined_four(const rows_end &e, int row_block, int first, int last, int row, int token)
{
    const int64_t place_step = (int64_t)(APR_ABREAST_TILE * e.a.n_here) * e.rows_of_block,
                  in_place = (int64_t)token * e.rows_of_block + row;
    const int first_place = abreast_place(e.a.n_row_blocks * e.a.n_stages, e.n_blocks, e.a.n_stages, first, row_block);
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int base = first; base <= last; base += ABREAST_AT_ONCE) {
        float4 v[ABREAST_AT_ONCE];
#pragma unroll
        for (int i = 0; i < ABREAST_AT_ONCE; i++) {
            const int place = base + i == first ? first_place : 2 * (base + i);
            v[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (base + i <= last) v[i] = __ldcg((const float4 *)(e.a.partial + place * place_step + in_place));
        }
#pragma unroll
        for (int i = 0; i < ABREAST_AT_ONCE; i++) sum = add_four(sum, v[i]);
    }
    return sum;
}

/* Numbers row to row + 3 of a part, of a token: what the product has put there, or the sum of what several blocks had. */
static __device__ __forceinline__ float4 four_of(const rows_end &e, int part, int row, int token)
{
    const abreast_part &p = e.a.parts[part];
    const int64_t n_rows = (int64_t)p.n_units * APR_FLOW_UNIT;
    const float4 *const there = (const float4 *)(p.out + token * n_rows + row);
    if (e.n_blocks == 0) return __ldcg(there);
    const int at = part * e.width + row, row_block = at / e.rows_of_block, n_all = e.a.n_row_blocks * e.a.n_stages;
    const int first = abreast_block_of(n_all, e.n_blocks, row_block * e.a.n_stages);
    const int last = abreast_block_of(n_all, e.n_blocks, row_block * e.a.n_stages + e.a.n_stages - 1);
    if (first == last) return __ldcg(there);
    const float4 sum = joined_four(e, row_block, first, last, at % e.rows_of_block, token - e.first);
    const float factor = __ldcg(e.a.factors + token);
    float bias[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int i = 0; i < 4 && p.bias != NULL; i++) bias[i] = p.bias[row + i];
    return make_float4(fmaf(sum.x, factor, bias[0]), fmaf(sum.y, factor, bias[1]), fmaf(sum.z, factor, bias[2]),
                       fmaf(sum.w, factor, bias[3]));
}

static __device__ __forceinline__ float4 ended_four(const rows_end &e, int row, int token)
{
    const float4 v = four_of(e, 0, row, token);
    if (e.ending == APR_FLOW_ADD) return add_four(v, __ldcg((const float4 *)(e.residual + (int64_t)token * e.width + row)));
    if (e.ending != APR_FLOW_GLU) return v;
    const float4 u = four_of(e, 1, row, token);
    return make_float4(apr_glu_of(&e.glu, v.x, u.x), apr_glu_of(&e.glu, v.y, u.y), apr_glu_of(&e.glu, v.z, u.z),
                       apr_glu_of(&e.glu, v.w, u.w));
}

/* --- norm --- */

/* The sum of squares of a row, in norm.cu's order; every thread has it. */
static __device__ __forceinline__ float squares_of(const float *row, int width, float *parts)
{
    const bool by_warp = width <= WARP_CHUNK;
    const int step = by_warp ? 32 : (int)THREADS;
    float sum = 0.0f;
#pragma unroll 8
    for (int i = by_warp ? (int)threadIdx.x % 32 : (int)threadIdx.x; i < width; i += step) {
        const float x = __ldcg(row + i);
        sum = fmaf(x, x, sum);
    }
    return by_warp ? warp_sum(sum) : block_sum<THREADS>(sum, parts);
}

static __device__ __forceinline__ float normed(const rows_end &e, int at, float x, float scale)
{
    float y = x * scale;
    if (e.gain != NULL) y *= e.gain[at] + e.gain_offset;
    return y;
}

static __device__ __forceinline__ void norm_run(const rows_end &e, int begin, int n, float scale, float4 *numbers)
{
    for (int i = (int)threadIdx.x; 4 * i < n; i += THREADS) {
        const int at = begin + 4 * i;
        const float4 x = numbers[i];
        numbers[i] = make_float4(normed(e, at, x.x, scale), normed(e, at + 1, x.y, scale), normed(e, at + 2, x.z, scale),
                                 normed(e, at + 3, x.w, scale));
    }
}

/* --- the kernel --- */

/* Of a block's numbers; every thread has it. */
static __device__ __forceinline__ float most_of_run(const float4 *numbers, int n, float *parts)
{
    float most = 0.0f;
    for (int i = (int)threadIdx.x; 4 * i < n; i += THREADS) most = fmaxf(most, most_of(numbers[i]));
    most = warp_max(most);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = most;
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++) most = fmaxf(most, parts[i]);
    return most;
}

/* Numbers [begin, begin + n) of a slot as inputs. */
template <apr_abreast_form FORM>
static __device__ __forceinline__ void put_run_of(const rows_end &e, int slot, int begin, int n, const float4 *numbers, float times)
{
    const int n_pieces = n / 8;
    for (int base = 0; base < n_pieces; base += THREADS) {
        const int i = base + (int)threadIdx.x;
        const bool on = i < n_pieces;
        input_piece piece;
        piece.first = piece.second = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (on) piece.first = numbers[i / 4 * 8 + i % 4], piece.second = numbers[i / 4 * 8 + 4 + i % 4];
        put_piece<FORM>(e.to, slot, begin / 8 + i, on, piece, times);
    }
}

/* blockIdx.y: a token, or a slot that is filled up; blockIdx.x: which run of its numbers. The memory: the largest number, then the numbers.
 */
template <apr_abreast_form FORM> static __global__ void __launch_bounds__(THREADS) k_rows(const __grid_constant__ rows_end e)
{
    extern __shared__ float4 ended[];
    __shared__ float parts[THREADS / 32];
    let_next_begin();
    const int n_subs = (e.width + ABREAST_SUB - 1) / ABREAST_SUB, each = (n_subs + CLUSTER - 1) / CLUSTER * ABREAST_SUB;
    const int begin = min((int)blockIdx.x * each, e.width), n = min(each, e.width - begin), token = e.first + (int)blockIdx.y;
    const bool is_there = token < e.n_tokens;
    const int64_t row = (int64_t)token * e.width;
    float4 *const numbers = ended + 1;
    wait_for_previous();
    for (int i = (int)threadIdx.x; 4 * i < n; i += THREADS) {
        const float4 v = is_there ? ended_four(e, begin + 4 * i, token) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (is_there && e.out != NULL) *(float4 *)(e.out + row + begin + 4 * i) = v;
        numbers[i] = v;
    }
    if (!e.leaves && !e.norm) return;
    if (is_there && e.norm) {
        cluster_barrier(); /* the row is there, whole */
        const float *const whole = (e.out != NULL ? (const float *)e.out : e.a.parts[0].out) + row;
        const float squares = squares_of(whole, e.width, parts);
        norm_run(e, begin, n, 1.0f / sqrtf(squares / (float)e.width + e.eps), numbers);
    }
    __syncthreads();
    const float mine = most_of_run(numbers, n, parts);
    if (threadIdx.x == 0) ended[0] = make_float4(mine, 0.0f, 0.0f, 0.0f);
    cluster_barrier(); /* and nobody reads the row any more */
    float most = 0.0f, times, back;
    for (int i = 0; i < CLUSTER; i++) most = fmaxf(most, cluster_load(ended, i).x);
    power_for(most, &times, &back);
    if (is_there && e.normed != NULL)
        for (int i = (int)threadIdx.x; 4 * i < n; i += THREADS) *(float4 *)(e.normed + row + begin + 4 * i) = numbers[i];
    if (e.leaves) {
        if (blockIdx.x == 0 && threadIdx.x == 0) e.to.factors[token] = back;
        put_run_of<FORM>(e, token, begin, n, numbers, times);
    }
    cluster_barrier(); /* others read the largest number */
}

/* --- launching --- */

static bool is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

static cudaError_t start_end(const rows_end &e, int n_slots, cudaStream_t stream)
{
    static void (*const kernels[])(rows_end) = {k_rows<APR_ABREAST_HALVES>, k_rows<APR_ABREAST_BFLOATS>, k_rows<APR_ABREAST_WIDE>};
    const auto kernel = kernels[e.to.form];
    const int n_subs = (e.width + ABREAST_SUB - 1) / ABREAST_SUB, each = (n_subs + CLUSTER - 1) / CLUSTER * ABREAST_SUB;
    const bool fits = e.width % (e.leaves ? (int)ABREAST_SUB : 4) == 0 && each <= 11 * 1024;
    if (!fits || !is_aligned(e.residual) || !is_aligned(e.out) || !is_aligned(e.normed) || !is_aligned(e.a.parts[0].out) ||
        !is_aligned(e.a.parts[1].out))
        return cudaErrorInvalidValue;
    /* As the kernels around it, which need not wait then until memory is divided anew. */
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = CLUSTER, attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(CLUSTER, (unsigned)n_slots);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = (size_t)(4 + each) * sizeof(float);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = lets_kernels_follow() ? 2 : 1;
    return cudaLaunchKernelEx(&config, kernel, e);
}

static apr_abreast_form form_of(const apr_rows_room *room)
{
    if (room->bfloats) return APR_ABREAST_BFLOATS;
    return room->wide ? apr_cuda_abreast_form(APR_Q4_K) : APR_ABREAST_HALVES;
}

/* A slot as products of n_tokens tokens of n_in numbers read it. */
static apr_abreast_inputs slot_of(const apr_rows_room *room, int slot, int64_t n_tokens, int64_t n_in)
{
    const int64_t n_tiles = (n_tokens + APR_ABREAST_TILE - 1) / APR_ABREAST_TILE;
    uint8_t *const at = (uint8_t *)room->work.data + (size_t)slot * apr_cuda_rows_slot_bytes(room->widest);
    size_t end = 0;
    const apr_abreast_inputs_room in = apr_abreast_take_inputs(&end, n_tiles, n_in);
    return apr_abreast_inputs{n_in, n_tiles, at + in.fragments, at + in.sums, (float *)(at + in.factors), form_of(room)};
}

static void leave(rows_end *e, const apr_rows_room *room, const apr_rows_left *left, int64_t width, int64_t n_tokens)
{
    e->width = (int)width, e->n_tokens = (int)n_tokens;
    e->leaves = left->slot >= 0;
    e->norm = left->norm;
    e->eps = left->eps, e->gain_offset = left->gain_offset, e->gain = left->gain;
    if (e->leaves) e->to = slot_of(room, left->slot, n_tokens, width);
}

static cudaError_t end_products(const void *what, const abreast_call &call, int n_blocks, int rows_of_block, cudaStream_t stream)
{
    const apr_rows_args *const args = (const apr_rows_args *)what;
    const int64_t width = (int64_t)call.parts[0].n_units * APR_FLOW_UNIT, first = (int64_t)call.first_tile * APR_ABREAST_TILE;
    const int64_t n_slots = (int64_t)call.n_here * APR_ABREAST_TILE, left = args->n_tokens - first;
    rows_end e = {};

    e.a = call, e.n_blocks = n_blocks, e.rows_of_block = rows_of_block;
    e.ending = args->ending, e.glu = args->glu;
    e.first = (int)first;
    e.residual = args->ending == APR_FLOW_ADD ? args->residual : NULL;
    e.out = args->ending == APR_FLOW_STORE ? args->parts[0].out : args->out;
    leave(&e, &args->room, &args->left, width, args->n_tokens);
    if (e.norm && e.out == NULL) return cudaErrorInvalidValue;
    return start_end(e, (int)(e.leaves || left > n_slots ? n_slots : left), stream);
}

cudaError_t apr_cuda_abreast_rows(const apr_rows_args *args, int n_multiprocessors, cudaStream_t stream)
{
    apr_abreast_args a = {};
    if (args->n_tokens < 1 || args->n_tokens > APR_ROWS_MOST || args->n_parts > APR_ABREAST_PARTS) return cudaErrorInvalidValue;
    a.n_parts = args->n_parts;
    for (int i = 0; i < args->n_parts; i++) a.parts[i] = apr_abreast_part{args->parts[i].weight, args->parts[i].bias, args->parts[i].out};
    a.n_tokens = args->n_tokens;
    a.inputs = slot_of(&args->room, args->slot, args->n_tokens, args->n_in);
    a.partial = (uint8_t *)args->room.work.data + APR_ROWS_SLOTS * apr_cuda_rows_slot_bytes(args->room.widest);
    const bool as_they_are = args->ending == APR_FLOW_STORE && args->left.slot < 0;
    if (as_they_are) return apr_cuda_abreast(&a, n_multiprocessors, stream);
    if (args->n_parts != (args->ending == APR_FLOW_GLU ? 2 : 1)) return cudaErrorInvalidValue;
    return apr_cuda_abreast_ended(&a, n_multiprocessors, end_products, args, stream);
}

cudaError_t apr_cuda_abreast_rows_inputs(const apr_rows_inputs *args, cudaStream_t stream)
{
    rows_end e = {};
    if (args->n_tokens < 1 || args->n_tokens > APR_ROWS_MOST || args->width % ABREAST_SUB != 0) return cudaErrorInvalidValue;
    e.a.parts[0].out = (float *)args->x;
    e.a.parts[0].n_units = (int)(args->width / APR_FLOW_UNIT);
    e.ending = APR_FLOW_STORE;
    e.normed = args->out != args->x || args->left.norm ? args->out : NULL;
    leave(&e, &args->room, &args->left, args->width, args->n_tokens);
    return start_end(e, (int)((args->n_tokens + APR_ABREAST_TILE - 1) / APR_ABREAST_TILE * APR_ABREAST_TILE), stream);
}
