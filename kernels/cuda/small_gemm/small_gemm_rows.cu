/* small_gemm_rows.cu - the epilogue of small GEMMs of a decode batch (kernels/cuda/rows_args.h), in one kernel: fix-up, bias, residual or GLU,
 * norm, and inputs of the next products. The sum of a step's experts may take the place of a product.
 *
 * A cluster of thread blocks has a token. Each block has a run of its numbers, kept in shared memory between the steps. Each block adds all
 * squares itself, in the order of norm.cu. */
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/norm.cuh"
#include "kernels/cuda/gemv/decode_gemv.cuh"
#include "kernels/cuda/small_gemm/small_gemm_experts.cuh"
#include "kernels/cuda/small_gemm/small_gemm_fixup.cuh"
#include "kernels/cuda/small_gemm/small_gemm_fragments.cuh"

enum {
    THREADS = NORM_BLOCK,
    MAX_CLUSTER = 8,
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
    RESIDENT = 2, /* with the registers of three the compiler spills there */
#else
    RESIDENT = 3, /* blocks of a multiprocessor, so that those of all tokens are resident at once: a second wave would take as long again */
#endif
    MANY_SLOTS = 48,  /* clusters of eight that fit 132 multiprocessors so; with more slots half as many blocks have twice as much */
    MAX_EACH = 11264, /* numbers of a block in its shared memory; those of a cluster are at least a matrix' rows (rows_run.cu) */
    SQUARES_AT_ONCE = 16,
    EXPERTS_AT_ONCE = 8,
};

typedef struct rows_epilogue {
    gemm_call a;                 /* the product; n_blocks 0: part 0 is a finished value */
    int n_blocks, rows_of_block; /* of its launch */
    apr_epilogue kind;
    apr_glu_shape glu;
    int width, first, n_tokens; /* first: the launch's first token */
    int cluster;                /* thread blocks per token */
    const float *residual;
    float *out, *normed;
    bool norm, writes_inputs;
    float eps, gain_offset;
    const float *gain;
    apr_small_gemm_inputs to;
    apr_small_gemm_experts experts; /* where their sum takes the place of a product */
} rows_epilogue;

/* --- sums --- */

/* A thread block's run of numbers, the same in all its threads; fixups: [parts][n_fixups], in shared memory. */
typedef struct rows_run {
    int begin, n, token;
    int n_fixups, shift; /* row blocks have 1 << shift rows */
    fixup_source *fixups;
} rows_run;

APR_HOST_DEVICE_INLINE int rows_each(const rows_epilogue *e)
{
    return ((e->width + GEMM_SUB - 1) / GEMM_SUB + e->cluster - 1) / e->cluster * GEMM_SUB;
}
APR_HOST_DEVICE_INLINE int fixups_of_run(int each, int rows_of_block) { return (each - 1) / rows_of_block + 2; } /* for any start */

/* All divisions are done here, while the product still runs. */
static __device__ __forceinline__ void find_fixups(const rows_epilogue &e, const rows_run &run)
{
    const int n_parts = e.kind == APR_EPILOGUE_GLU ? 2 : 1;
    for (int i = (int)threadIdx.x; i < n_parts * run.n_fixups && e.n_blocks > 0; i += THREADS) {
        const int part = i / run.n_fixups, row_block = ((part * e.width + run.begin) >> run.shift) + i % run.n_fixups;
        run.fixups[i] = fixup_source_of(e.a, e.n_blocks, row_block);
    }
}

static __device__ __forceinline__ fixup_source4 source_of(const rows_epilogue &e, const rows_run &run, int part, int row)
{
    const gemm_part &p = e.a.parts[part];
    const float *const there = p.out + (int64_t)run.token * p.n_row_groups * APR_ROW_GROUP + row;
    if (e.n_blocks == 0) return fixup_source4{there, there, 0, 0};
    const int at = part * e.width + row, in_run = (at >> run.shift) - ((part * e.width + run.begin) >> run.shift);
    return fixup_source4_of(e.a, run.fixups[part * run.n_fixups + in_run], run.shift, at, run.token - e.first, there);
}

/* Writes the run's numbers to shared memory, and to out. ROUNDS of four numbers per thread, and AT_ONCE partial sums of each part for each,
 * are in flight together. */
template <int PARTS, int ROUNDS, int AT_ONCE>
static __device__ __forceinline__ void finish_run(const rows_epilogue &e, const rows_run &run, float4 *numbers)
{
    const int64_t row = (int64_t)run.token * e.width;
    const float factor = e.n_blocks > 0 ? __ldcg(e.a.factors + run.token) : 1.0f;
    for (int base = (int)threadIdx.x; 4 * base < run.n; base += ROUNDS * THREADS) {
        fixup_source4 sources[ROUNDS][PARTS];
        float4 v[ROUNDS][PARTS][AT_ONCE], residual[ROUNDS];
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            const int at = run.begin + min(4 * (base + r * THREADS), run.n - 4);
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                sources[r][part] = source_of(e, run, part, at);
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) v[r][part][i] = load_partial(sources[r][part], i);
            }
            residual[r] =
                e.kind == APR_EPILOGUE_ADD ? __ldcg((const float4 *)(e.residual + row + at)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            const int i = base + r * THREADS, at = run.begin + 4 * i;
            if (4 * i >= run.n) continue;
            float4 x = finish_sum4(sources[r][0], v[r][0], factor, e.a.parts[0].bias, at);
            if (e.kind == APR_EPILOGUE_ADD) x = add4(x, residual[r]);
            if (PARTS == 2) {
                const float4 u = finish_sum4(sources[r][PARTS - 1], v[r][PARTS - 1], factor, e.a.parts[1].bias, at);
                x = make_float4(apr_glu_of(&e.glu, x.x, u.x), apr_glu_of(&e.glu, x.y, u.y), apr_glu_of(&e.glu, x.z, u.z),
                                apr_glu_of(&e.glu, x.w, u.w));
            }
            if (e.out != NULL) *(float4 *)(e.out + row + at) = x;
            numbers[i] = x;
        }
    }
}

/* The same with the sum of a token's experts; all threads take part. */
static __device__ __forceinline__ void finish_experts(const rows_epilogue &e, const rows_run &run, float4 *numbers)
{
    __shared__ expert_term terms[APR_SMALL_GEMM_MOST_SUMMED];
    const int64_t row = (int64_t)run.token * e.width;
    if ((int)threadIdx.x < e.experts.n_used) terms[threadIdx.x] = expert_term_of(e.experts, run.token, (int)threadIdx.x);
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x; 4 * i < run.n; i += THREADS) {
        const int at = run.begin + 4 * i;
        const float4 residual = __ldcg((const float4 *)(e.residual + row + at));
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
        for (int first = 0; first < e.experts.n_used; first += EXPERTS_AT_ONCE)
            x = add_experts4<EXPERTS_AT_ONCE>(e.experts, terms + first, e.experts.n_used - first, at, x);
        x = add4(x, residual);
        *(float4 *)(e.out + row + at) = x;
        numbers[i] = x;
    }
}

/* --- norm --- */

/* The sum of squares of a row, in the order of norm.cu; returned in every thread. */
static __device__ __forceinline__ float squares_of(const float *row, int width, float *parts)
{
    const bool by_warp = width <= NORM_WARP_CHUNK;
    const int step = by_warp ? 32 : (int)THREADS;
    float sum = 0.0f;
    for (int base = by_warp ? (int)threadIdx.x % 32 : (int)threadIdx.x; base < width; base += SQUARES_AT_ONCE * step) {
        float x[SQUARES_AT_ONCE];
#pragma unroll
        for (int i = 0; i < SQUARES_AT_ONCE; i++) x[i] = base + i * step < width ? __ldcg(row + base + i * step) : 0.0f;
#pragma unroll
        for (int i = 0; i < SQUARES_AT_ONCE; i++) sum = fmaf(x[i], x[i], sum);
    }
    return by_warp ? norm_sum<true>(sum, parts) : norm_sum<false>(sum, parts);
}

/* The gains of four numbers of a thread; its first four are loaded before the numbers are ready. */
static __device__ __forceinline__ float4 gains_of(const rows_epilogue &e, const rows_run &run, int i)
{
    float g[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    for (int k = 0; k < 4 && e.norm && e.gain != NULL && 4 * i < run.n; k++) g[k] = __ldg(e.gain + run.begin + 4 * i + k);
    return make_float4(g[0], g[1], g[2], g[3]);
}

static __device__ __forceinline__ void norm_run(const rows_epilogue &e, const rows_run &run, float scale, float4 gains, float4 *numbers)
{
    for (int i = (int)threadIdx.x; 4 * i < run.n; i += THREADS) {
        const float4 x = numbers[i], g = i < THREADS ? gains : gains_of(e, run, i);
        float4 y = make_float4(x.x * scale, x.y * scale, x.z * scale, x.w * scale);
        if (e.gain != NULL)
            y = make_float4(y.x * (g.x + e.gain_offset), y.y * (g.y + e.gain_offset), y.z * (g.z + e.gain_offset),
                            y.w * (g.w + e.gain_offset));
        numbers[i] = y;
    }
}

/* --- the kernel --- */

/* The largest magnitude of a block's numbers; returned in every thread. */
static __device__ __forceinline__ float max_abs_of_run(const float4 *numbers, int n, float *parts)
{
    float max_abs = 0.0f;
    for (int i = (int)threadIdx.x; 4 * i < n; i += THREADS) max_abs = fmaxf(max_abs, max_abs_of(numbers[i]));
    return block_max<THREADS>(max_abs, parts);
}

/* Writes numbers [begin, begin + n) of a slot as inputs. */
template <apr_small_gemm_layout LAYOUT>
static __device__ __forceinline__ void store_run_of(const rows_epilogue &e, int slot, int begin, int n, const float4 *numbers, float times)
{
    const int n_pieces = n / 8;
    for (int base = 0; base < n_pieces; base += THREADS) {
        const int i = base + (int)threadIdx.x;
        const bool on = i < n_pieces;
        input_piece piece;
        piece.first = piece.second = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (on) piece.first = numbers[i / 4 * 8 + i % 4], piece.second = numbers[i / 4 * 8 + 4 + i % 4];
        store_piece<LAYOUT>(e.to, slot, begin / 8 + i, on, piece, times);
    }
}

/* Writes zeros after a slot's numbers. */
template <apr_small_gemm_layout LAYOUT> static __device__ __forceinline__ void store_zeros_after(const rows_epilogue &e, int slot)
{
    const int n_pieces = (int)(e.to.n_in / 8);
    const float4 zeros = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int first = e.width / 8; first < n_pieces; first += THREADS) {
        const int i = first + (int)threadIdx.x;
        store_piece<LAYOUT>(e.to, slot, i, i < n_pieces, input_piece{zeros, zeros}, 1.0f);
    }
}

/* Norms a token's row. */
static __device__ __forceinline__ void norm_row(const rows_epilogue &e, const rows_run &run, float4 gains, float *parts, float4 *numbers)
{
    cluster_barrier(); /* the whole row is in global memory */
    const float *const whole = (e.out != NULL ? (const float *)e.out : e.a.parts[0].out) + (int64_t)run.token * e.width;
    const float squares = squares_of(whole, e.width, parts);
    norm_run(e, run, scale_of_squares(squares / (float)e.width, e.eps), gains, numbers);
}

/* Writes the run as inputs, with the power of two for the whole row's largest number. */
template <apr_small_gemm_layout LAYOUT>
static __device__ __forceinline__ void store_inputs(const rows_epilogue &e, const rows_run &run, float4 *shared, const float4 *numbers,
                                                    float mine)
{
    const int64_t row = (int64_t)run.token * e.width;
    if (threadIdx.x == 0) shared[0] = make_float4(mine, 0.0f, 0.0f, 0.0f);
    cluster_barrier(); /* also: no block reads the row any more */
    float max_abs = 0.0f, times, back;
#pragma unroll
    for (int i = 0; i < MAX_CLUSTER; i++)
        if (i < e.cluster) max_abs = fmaxf(max_abs, cluster_load(shared, i).x);
    power_for(max_abs, &times, &back);
    if (run.token < e.n_tokens && e.normed != NULL)
        for (int i = (int)threadIdx.x; 4 * i < run.n; i += THREADS) *(float4 *)(e.normed + row + run.begin + 4 * i) = numbers[i];
    if (e.writes_inputs && blockIdx.x == 0 && threadIdx.x == 0) e.to.factors[run.token] = back;
    if (!e.writes_inputs) return;
    store_run_of<LAYOUT>(e, run.token, run.begin, run.n, numbers, times);
    if ((int)blockIdx.x == e.cluster - 1) store_zeros_after<LAYOUT>(e, run.token);
}

/* blockIdx.y: a token, or a padding slot; blockIdx.x: the run of its numbers. Shared memory: the largest number, the numbers, and
 * fix-ups. */
template <apr_small_gemm_layout LAYOUT, bool EXPERTS>
static __global__ void __launch_bounds__(THREADS, RESIDENT) k_rows(const __grid_constant__ rows_epilogue e)
{
    extern __shared__ float4 epilogue_shared[];
    __shared__ float parts[THREADS / 32];
    pdl_trigger();
    float4 *const numbers = epilogue_shared + 1;
    const int each = rows_each(&e), begin = min((int)blockIdx.x * each, e.width);
    const rows_run run = {begin,
                          min(each, e.width - begin),
                          e.first + (int)blockIdx.y,
                          fixups_of_run(each, e.rows_of_block),
                          31 - __clz(e.rows_of_block),
                          (fixup_source *)(numbers + each / 4)};
    const bool is_there = run.token < e.n_tokens;
    const float4 gains = gains_of(e, run, (int)threadIdx.x);
    if (!EXPERTS) find_fixups(e, run);
    __syncthreads();
    pdl_wait();
    if (!is_there) {
        for (int i = (int)threadIdx.x; 4 * i < run.n; i += THREADS) numbers[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    } else if (EXPERTS) {
        finish_experts(e, run, numbers);
    } else if (e.kind == APR_EPILOGUE_GLU) {
        finish_run<2, 2, 2>(e, run, numbers);
    } else {
        finish_run<1, 1, GEMM_AT_ONCE>(e, run, numbers);
    }
    if (!e.writes_inputs && !e.norm) return;
    if (is_there && e.norm) norm_row(e, run, gains, parts, numbers);
    const float mine = max_abs_of_run(numbers, run.n, parts);
    store_inputs<LAYOUT>(e, run, epilogue_shared, numbers, mine);
    cluster_barrier(); /* other blocks may still read the largest number */
}

/* --- launching --- */

static bool is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

static cudaError_t start_epilogue(rows_epilogue e, int n_slots, cudaStream_t stream)
{
    e.cluster = n_slots > MANY_SLOTS && e.width <= MAX_CLUSTER / 2 * MAX_EACH ? MAX_CLUSTER / 2 : MAX_CLUSTER;
    static void (*const kernels[][2])(rows_epilogue) = {{k_rows<APR_SMALL_GEMM_F16, false>, k_rows<APR_SMALL_GEMM_F16, true>},
                                                        {k_rows<APR_SMALL_GEMM_BF16, false>, k_rows<APR_SMALL_GEMM_BF16, true>},
                                                        {k_rows<APR_SMALL_GEMM_WGMMA, false>, k_rows<APR_SMALL_GEMM_WGMMA, true>}};
    const auto kernel = kernels[e.to.layout][e.experts.n_used > 0];
    const int each = rows_each(&e), n_fixups = (e.kind == APR_EPILOGUE_GLU ? 2 : 1) * fixups_of_run(each, e.rows_of_block);
    const bool fits =
        e.width % (e.writes_inputs ? (int)GEMM_SUB : 4) == 0 && each <= MAX_EACH && (e.rows_of_block & (e.rows_of_block - 1)) == 0;
    if (!fits || !is_aligned(e.residual) || !is_aligned(e.out) || !is_aligned(e.normed) || !is_aligned(e.a.parts[0].out) ||
        !is_aligned(e.a.parts[1].out))
        return cudaErrorInvalidValue;
    /* the same carveout as the kernels around it, which then need not wait for a reconfiguration of shared memory */
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = (unsigned)e.cluster, attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)e.cluster, (unsigned)n_slots);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = (size_t)(4 + each) * sizeof(float) + (size_t)n_fixups * sizeof(fixup_source);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = code_has_pdl() ? 2 : 1;
    return cudaLaunchKernelEx(&config, kernel, e);
}

static apr_small_gemm_layout layout_of(const apr_rows_workspace *workspace, bool is_wgmma)
{
    if (workspace->is_bf16) return APR_SMALL_GEMM_BF16;
    return is_wgmma ? apr_cuda_small_gemm_layout(APR_Q4_K) : APR_SMALL_GEMM_F16;
}

/* A slot as inputs of products of n_tokens tokens with n_in numbers, and zeros after them, for weights of any type. */
static apr_small_gemm_inputs slot_of(const apr_rows_workspace *workspace, int slot, bool is_wgmma, int64_t n_tokens, int64_t n_in)
{
    const int64_t n_tiles = (n_tokens + APR_SMALL_GEMM_TILE - 1) / APR_SMALL_GEMM_TILE;
    uint8_t *const at = (uint8_t *)workspace->work.data + (size_t)slot * apr_cuda_rows_slot_bytes(workspace->widest);
    size_t end = 0;
    const int64_t columns = apr_small_gemm_columns(n_in);
    const apr_small_gemm_inputs_offsets in = apr_small_gemm_take_inputs(&end, n_tiles, columns);
    return apr_small_gemm_inputs{
        columns, n_in, n_tiles, at + in.fragments, at + in.sums, (float *)(at + in.factors), layout_of(workspace, is_wgmma)};
}

static void set_output(rows_epilogue *e, const apr_rows_workspace *workspace, const apr_rows_output *output, int64_t width,
                       int64_t n_tokens)
{
    e->width = (int)width, e->n_tokens = (int)n_tokens;
    e->writes_inputs = output->slot >= 0;
    e->norm = output->norm;
    e->eps = output->eps, e->gain_offset = output->gain_offset, e->gain = output->gain;
    if (e->writes_inputs) e->to = slot_of(workspace, output->slot, output->is_wgmma, n_tokens, width);
}

static cudaError_t launch_epilogue(const void *what, const gemm_call &call, int n_blocks, int rows_of_block, cudaStream_t stream)
{
    const apr_rows_args *const args = (const apr_rows_args *)what;
    const int64_t width = (int64_t)call.parts[0].n_row_groups * APR_ROW_GROUP, first = (int64_t)call.first_tile * APR_SMALL_GEMM_TILE;
    const int64_t n_slots = (int64_t)call.n_here * APR_SMALL_GEMM_TILE, left = args->n_tokens - first;
    rows_epilogue e = {};

    e.a = call, e.n_blocks = n_blocks, e.rows_of_block = rows_of_block;
    e.kind = args->epilogue, e.glu = args->glu;
    e.first = (int)first;
    e.residual = args->epilogue == APR_EPILOGUE_ADD ? args->residual : NULL;
    e.out = args->epilogue == APR_EPILOGUE_STORE ? args->parts[0].out : args->out;
    e.normed = args->normed;
    set_output(&e, &args->workspace, &args->output, width, args->n_tokens);
    if (e.norm && e.out == NULL) return cudaErrorInvalidValue;
    return start_epilogue(e, (int)(e.writes_inputs || left > n_slots ? n_slots : left), stream);
}

static cudaError_t launch_qkv_epilogue(const void *what, const gemm_call &call, int n_blocks, int rows_of_block, cudaStream_t stream)
{
    return apr_cuda_small_gemm_qkv((const apr_qkv_epilogue_args *)what, call, n_blocks, rows_of_block, stream);
}

/* Three parts whose fix-up is in the QKV epilogue, or, without such a kernel, in its own kernel before it. */
static cudaError_t start_with_qkv(const apr_small_gemm_args *a, const apr_qkv_epilogue_args *qkv, int n_multiprocessors,
                                  cudaStream_t stream)
{
    if (apr_cuda_has_small_gemm_qkv(qkv, a))
        return apr_cuda_small_gemm_with_epilogue(a, n_multiprocessors, launch_qkv_epilogue, qkv, stream);
    const cudaError_t error = apr_cuda_small_gemm(a, n_multiprocessors, stream);
    return error == cudaSuccess ? apr_cuda_qkv_epilogue(qkv, stream) : error;
}

cudaError_t apr_cuda_small_gemm_rows(const apr_rows_args *args, int n_multiprocessors, cudaStream_t stream)
{
    apr_small_gemm_args a = {};
    if (args->n_tokens < 1 || args->n_tokens > APR_ROWS_MAX_TOKENS || args->n_parts > APR_SMALL_GEMM_PARTS) return cudaErrorInvalidValue;
    a.n_parts = args->n_parts;
    for (int i = 0; i < args->n_parts; i++)
        a.parts[i] = apr_small_gemm_part{args->parts[i].weight, args->parts[i].bias, args->parts[i].out};
    a.n_tokens = args->n_tokens;
    a.inputs = slot_of(&args->workspace, args->slot, args->is_wgmma, args->n_tokens, args->n_in);
    a.partial = (uint8_t *)args->workspace.work.data + APR_ROWS_SLOTS * apr_cuda_rows_slot_bytes(args->workspace.widest);
    const bool as_they_are = args->epilogue == APR_EPILOGUE_STORE && args->output.slot < 0;
    if (args->qkv != NULL) return as_they_are ? start_with_qkv(&a, args->qkv, n_multiprocessors, stream) : cudaErrorInvalidValue;
    if (as_they_are) return apr_cuda_small_gemm(&a, n_multiprocessors, stream);
    if (args->n_parts != (args->epilogue == APR_EPILOGUE_GLU ? 2 : 1)) return cudaErrorInvalidValue;
    return apr_cuda_small_gemm_with_epilogue(&a, n_multiprocessors, launch_epilogue, args, stream);
}

static int64_t slots_of(const apr_rows_inputs *args)
{
    return (args->n_tokens + APR_SMALL_GEMM_TILE - 1) / APR_SMALL_GEMM_TILE * APR_SMALL_GEMM_TILE;
}

/* An epilogue of a finished value. */
static rows_epilogue epilogue_of_value(const apr_rows_inputs *args)
{
    rows_epilogue e = {};
    e.a.parts[0].out = (float *)args->x;
    e.a.parts[0].n_row_groups = (int)(args->width / APR_ROW_GROUP);
    e.kind = APR_EPILOGUE_STORE, e.rows_of_block = GEMM_LARGE; /* without fix-up any size will do */
    e.normed = args->out != args->x || args->output.norm ? args->out : NULL;
    set_output(&e, &args->workspace, &args->output, args->width, args->n_tokens);
    return e;
}

cudaError_t apr_cuda_small_gemm_rows_inputs(const apr_rows_inputs *args, cudaStream_t stream)
{
    if (args->n_tokens < 1 || args->n_tokens > APR_ROWS_MAX_TOKENS || args->width % GEMM_SUB != 0) return cudaErrorInvalidValue;
    if (!args->output.norm && args->output.slot >= 0 && (args->out == NULL || args->out == args->x)) {
        /* Only inputs are wanted: few thread blocks, so that the others' multiprocessors can load the next weights meanwhile. */
        const apr_small_gemm_inputs to = slot_of(&args->workspace, args->output.slot, args->output.is_wgmma, args->n_tokens, args->width);
        return apr_cuda_small_gemm_prepare(args->x, NULL, args->n_tokens, &to, stream);
    }
    return start_epilogue(epilogue_of_value(args), (int)slots_of(args), stream);
}

cudaError_t apr_cuda_small_gemm_rows_experts(const apr_small_gemm_experts *experts, const float *residual, float *sum,
                                             const apr_rows_inputs *args, cudaStream_t stream)
{
    if (args->n_tokens < 1 || args->n_tokens > APR_ROWS_MAX_TOKENS || args->width % GEMM_SUB != 0 || args->x != sum)
        return cudaErrorInvalidValue;
    rows_epilogue e = epilogue_of_value(args);
    e.kind = APR_EPILOGUE_ADD, e.residual = residual, e.out = sum;
    e.experts = *experts;
    return start_epilogue(e, (int)slots_of(args), stream);
}
