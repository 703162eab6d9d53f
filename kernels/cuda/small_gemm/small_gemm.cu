/* small_gemm.cu - the small GEMM (small_gemm.cuh): launches, and the stream-K fix-up kernel. */
#include "kernels/cuda/small_gemm/small_gemm_epilogue.cuh"

#include <atomic>

enum { MAX_ROWS = GEMM_LARGE };
static_assert((int)MAX_ROWS == (int)APR_SMALL_GEMM_MAX_ROWS, "small_gemm_workspace.h has the same size");

static const gemm_kernels *kernels_of(apr_dtype dtype)
{
    const gemm_kernels *k = apr_small_gemm_k_kernels(dtype);
    if (k == NULL) k = apr_small_gemm_blocks_kernels(dtype);
    return k != NULL ? k : apr_small_gemm_plain_kernels(dtype);
}

bool apr_cuda_has_small_gemm(apr_dtype dtype, bool tiled, int64_t n_out, int64_t n_in, int major)
{
    const gemm_kernels *const k = kernels_of(dtype);
    if (k == NULL || n_out <= 0 || n_in <= 0 || n_out % APR_ROW_GROUP != 0 || n_in % k->columns != 0) return false;
    if (n_out > INT32_MAX / 4 || n_in > INT32_MAX / 4) return false;
    if (!tiled && !k->rows) return false;
    return major >= 8 || (major == 7 && !k->is_bf16);
}

apr_small_gemm_layout apr_cuda_small_gemm_layout(apr_dtype dtype)
{
    if (dtype == APR_BF16) return APR_SMALL_GEMM_BF16;
    return apr_small_gemm_wgmma(dtype) != NULL ? APR_SMALL_GEMM_WGMMA : APR_SMALL_GEMM_F16;
}

/* What the current device supports. */
typedef struct gemm_device {
    bool large;
    int shared_bytes;
} gemm_device;

/* Whether the device's code has large row blocks is queried once for each device. */
static cudaError_t query_device(const gemm_kernels *k, gemm_device *out)
{
    enum { MAX_DEVICES = 64 };
    static std::atomic<signed char> known[MAX_DEVICES];
    cudaFuncAttributes attributes;
    int device = 0;

    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&out->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess) return error;
    if (device < 0 || device >= MAX_DEVICES) return cudaErrorNotSupported;
    if (known[device] == 0) {
        error = cudaFuncGetAttributes(&attributes, k->any);
        if (error != cudaSuccess) return error;
        known[device] = gemm_is_large(attributes.ptxVersion) ? 1 : -1;
    }
    out->large = known[device] > 0;
    return cudaSuccess;
}

/* The number of tiles that are multiplied at a time: as many as there are, or as leave room for two stages. Returns an index of {1, 2, 4};
 * -1: none. */
static int tiles_log2_of(const gemm_kernels *k, const gemm_device *d, int64_t n_tiles)
{
    int tiles_log2 = n_tiles <= 1 ? 0 : n_tiles <= 2 ? 1 : 2;
    while (tiles_log2 >= 0 && 2 * k->stage_bytes[!d->large][tiles_log2] > d->shared_bytes - GEMM_SHARED_LEFT) tiles_log2--;
    return tiles_log2;
}

static int rows_of(const gemm_device *d) { return d->large ? GEMM_LARGE : GEMM_SMALL; }

/* --- stream-K fix-up: partial sums of row blocks that several thread blocks share --- */

/* A thread block adds the partial sums of some tokens of a shared row block, a thread per row. */
static __global__ void __launch_bounds__(MAX_ROWS) k_fixup(const __grid_constant__ gemm_call a, int n_blocks)
{
    pdl_trigger();
    const int row = (int)threadIdx.x;
    const gemm_fixup j = fixup_of(a, n_blocks, (int)blockIdx.x);
    gemm_run run = {};
    run.row_block = j.row_block, run.first_tile = a.first_tile, run.n_tiles = a.n_here, run.whole = true;
    pdl_wait();
    if (j.first == j.last) return;
    const gemm_target to = target_of(a, run, 0, (int)blockDim.x, row);
    for (int token = (int)blockIdx.y; token < to.n; token += (int)gridDim.y)
        store_sum(to, token, fixup_sum(a, j, (int)blockDim.x, row, token), factor_of(to, token));
}

static cudaError_t start_fixup(const gemm_call &a, int n_blocks, unsigned rows_of_block, unsigned n_tokens, cudaStream_t stream)
{
    enum { MAX_BLOCKS = 1024 }; /* about as many as are resident at a time */
    const unsigned n_fixups = (unsigned)fixups_of(a, n_blocks), most = MAX_BLOCKS / n_fixups;
    /* the same carveout as the kernels around it, so that it need not wait for a reconfiguration of shared memory */
    const cudaError_t error = cudaFuncSetAttribute(k_fixup, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    return launch_pdl(k_fixup, dim3(n_fixups, most < 1 ? 1 : most < n_tokens ? most : n_tokens), rows_of_block, 0, stream, a, n_blocks);
}

/* --- launching --- */

static int64_t rows_in(const apr_tensor *weight)
{
    int64_t rows = 1;
    for (int i = 0; i < weight->rank - 1; i++) rows *= weight->dims[i];
    return rows;
}

static gemm_call call_of(const apr_small_gemm_args *args, const gemm_kernels *k, int rows_of_block)
{
    const apr_tensor *const weight = args->parts[0].weight;
    const int64_t columns = apr_small_gemm_columns_of(weight, weight->dims[weight->rank - 1]);
    gemm_call a = {};

    a.n_parts = args->n_parts;
    for (int i = 0; i < args->n_parts; i++) {
        const apr_small_gemm_part *const part = &args->parts[i];
        const int64_t rows = args->groups != NULL ? args->matrix_rows : rows_in(part->weight);
        a.parts[i] = gemm_part{part->weight->data, part->bias, part->out, (int)(rows / APR_ROW_GROUP)};
        a.n_row_groups += a.parts[i].n_row_groups;
    }
    a.row_bytes = apr_tiled_row_bytes(weight->dtype, weight->tiled, columns);
    a.tiled = weight->tiled;
    a.n_stages = (int)(columns / k->columns); /* inputs may have more columns */
    a.n_subs = (int)(args->inputs.n_in / GEMM_SUB);
    a.part_bytes = gemm_part_bytes(args->inputs.n_tiles, args->inputs.n_in);
    a.depth = GEMM_MAX_DEPTH;
    const int row_groups = rows_of_block / APR_ROW_GROUP;
    a.n_row_blocks = (a.n_row_groups + row_groups - 1) / row_groups;
    a.x = args->inputs.fragments, a.sums = args->inputs.sums, a.factors = args->inputs.factors;
    a.n_tiles = (int)args->inputs.n_tiles;
    a.n_tokens = args->n_tokens;
    a.partial = (float *)args->partial;
    a.groups = args->groups, a.n_groups = args->n_groups;
    a.splits = args->splits;
    a.n_slots = args->n_slots;
    return a;
}

/* Launches for all tiles of tokens; end: NULL: the fix-up kernel follows each. */
static cudaError_t start_dense(gemm_call a, const gemm_kernels *k, const gemm_wgmma *wgmma, const gemm_device *d, int n_multiprocessors,
                               gemm_epilogue *epilogue, const void *what, cudaStream_t stream)
{
    const int64_t n_all = (int64_t)a.n_row_blocks * a.n_stages;
    const int n_blocks = n_all < n_multiprocessors ? (int)n_all : n_multiprocessors;
    const bool needs_fixup = n_all % n_blocks != 0 || n_all / n_blocks % a.n_stages != 0;
    cudaError_t error = cudaSuccess;

    for (a.first_tile = 0; a.first_tile < a.n_tiles && error == cudaSuccess; a.first_tile += a.n_here) {
        const int left = a.n_tiles - a.first_tile, tiles_log2 = tiles_log2_of(k, d, left);
        if (tiles_log2 < 0) return cudaErrorNotSupported;
        a.n_here = left < 1 << tiles_log2 ? left : 1 << tiles_log2;
        const int64_t to_go = a.n_tokens - (int64_t)a.first_tile * APR_SMALL_GEMM_TILE;
        const unsigned n_here = (unsigned)(to_go < a.n_here * APR_SMALL_GEMM_TILE ? to_go : a.n_here * APR_SMALL_GEMM_TILE);
        error = (wgmma != NULL ? wgmma->start : k->start[!d->large])[tiles_log2](a, (unsigned)n_blocks, d->shared_bytes, stream);
        if (error == cudaSuccess && epilogue != NULL) error = epilogue(what, a, n_blocks, rows_of(d), stream);
        else if (error == cudaSuccess && needs_fixup) error = start_fixup(a, n_blocks, (unsigned)rows_of(d), n_here, stream);
    }
    return error;
}

/* A group has at most as many tiles as are multiplied at a time: its maker has asked apr_cuda_small_gemm_group_tiles. */
static cudaError_t start_grouped(const gemm_call &a, const gemm_kernels *k, const gemm_wgmma *wgmma, const gemm_device *d, int most_tiles,
                                 int64_t most_runs, int n_multiprocessors, cudaStream_t stream)
{
    const int tiles_log2 = tiles_log2_of(k, d, most_tiles);
    if (tiles_log2 < 0 || 1 << tiles_log2 < most_tiles || most_runs <= 0 || most_runs > INT32_MAX) return cudaErrorNotSupported;
    const int n_blocks = most_runs < n_multiprocessors ? (int)most_runs : n_multiprocessors;
    return (wgmma != NULL ? wgmma->start_experts : k->start[!d->large])[tiles_log2](a, (unsigned)n_blocks, d->shared_bytes, stream);
}

static cudaError_t start(const apr_small_gemm_args *args, int n_multiprocessors, gemm_epilogue *epilogue, const void *what,
                         cudaStream_t stream)
{
    const apr_dtype dtype = args->parts[0].weight->dtype;
    const gemm_kernels *const k = kernels_of(dtype);
    const bool is_wgmma = args->inputs.layout == APR_SMALL_GEMM_WGMMA;
    const gemm_wgmma *const wgmma = is_wgmma ? apr_small_gemm_wgmma(dtype) : NULL;
    gemm_device d;

    if (is_wgmma && wgmma == NULL) return cudaErrorInvalidValue;
    if (k == NULL) return cudaErrorNotSupported;
    const cudaError_t error = query_device(k, &d);
    if (error != cudaSuccess) return error;
    const gemm_call a = call_of(args, k, rows_of(&d));
    if ((int64_t)a.n_row_blocks * a.n_stages > INT32_MAX) return cudaErrorNotSupported;
    if (is_wgmma && !d.large) return cudaErrorInvalidValue;
    if (args->groups == NULL) return start_dense(a, k, wgmma, &d, n_multiprocessors, epilogue, what, stream);
    return start_grouped(a, k, wgmma, &d, args->most_tiles, (int64_t)args->most_groups * a.n_row_blocks * a.splits, n_multiprocessors,
                         stream);
}

cudaError_t apr_cuda_small_gemm(const apr_small_gemm_args *args, int n_multiprocessors, cudaStream_t stream)
{
    return start(args, n_multiprocessors, NULL, NULL, stream);
}

cudaError_t apr_cuda_small_gemm_with_epilogue(const apr_small_gemm_args *args, int n_multiprocessors, gemm_epilogue *epilogue,
                                              const void *what, cudaStream_t stream)
{
    return args->groups != NULL ? cudaErrorInvalidValue : start(args, n_multiprocessors, epilogue, what, stream);
}

int apr_cuda_small_gemm_group_tiles(apr_dtype dtype, int64_t n_tokens)
{
    const gemm_kernels *const k = kernels_of(dtype);
    gemm_device d;
    if (k == NULL || query_device(k, &d) != cudaSuccess) return 0;
    const int tiles_log2 = tiles_log2_of(k, &d, (n_tokens + APR_SMALL_GEMM_TILE - 1) / APR_SMALL_GEMM_TILE);
    return tiles_log2 < 0 ? 0 : 1 << tiles_log2;
}

/* --- a linear --- */

/* Requires the workspace of APR_SMALL_GEMM_MAX_TOKENS tokens, so that fewer tokens do not use another kernel. */
static bool is_supported(const apr_linear_args *a, int n_multiprocessors, int major)
{
    const apr_tensor *const w = a->weight;
    const int64_t n = a->n_tokens > APR_SMALL_GEMM_MAX_TOKENS ? a->n_tokens : (int64_t)APR_SMALL_GEMM_MAX_TOKENS;
    const int64_t columns = apr_small_gemm_columns_of(w, a->n_in);
    return a->heads.n == 0 && w->packing == NULL && w->scale == NULL && w->pending.kind == APR_STEP_NONE && (uintptr_t)w->data % 16 == 0 &&
           (uintptr_t)a->x % 16 == 0 && (uintptr_t)a->work.data % 16 == 0 && a->n_in % GEMM_SUB == 0 &&
           apr_cuda_has_small_gemm(w->dtype, w->tiled, a->n_out, columns, major) &&
           apr_cuda_linear_small_gemm_bytes(n, columns, n_multiprocessors) <= a->work.slice * sizeof(float);
}

cudaError_t apr_cuda_linear_small_gemm(const apr_linear_args *a, bool is_prepared, int n_multiprocessors, int major, cudaStream_t stream)
{
    if (!is_supported(a, n_multiprocessors, major)) return cudaErrorNotSupported;
    const int64_t columns = apr_small_gemm_columns_of(a->weight, a->n_in);
    const apr_small_gemm_linear_offsets offsets = apr_cuda_small_gemm_linear_offsets(a->n_tokens, columns, n_multiprocessors);
    uint8_t *const work = (uint8_t *)a->work.data;
    const gemm_kernels *const k = kernels_of(a->weight->dtype);
    apr_small_gemm_args args = {};
    gemm_device d;

    cudaError_t error = query_device(k, &d);
    if (error == cudaSuccess && tiles_log2_of(k, &d, 1) < 0) error = cudaErrorNotSupported;
    if (error != cudaSuccess) return error;
    args.n_parts = 1;
    args.parts[0] = apr_small_gemm_part{a->weight, a->bias, a->out};
    args.n_tokens = a->n_tokens;
    args.inputs = apr_small_gemm_inputs{columns,
                                        a->n_in,
                                        offsets.n_tiles,
                                        work + offsets.inputs.fragments,
                                        work + offsets.inputs.sums,
                                        (float *)(work + offsets.inputs.factors),
                                        apr_cuda_small_gemm_layout(a->weight->dtype)};
    args.partial = work + offsets.partial;
    if (!is_prepared) error = apr_cuda_small_gemm_prepare(a->x, NULL, a->n_tokens, &args.inputs, stream);
    return error == cudaSuccess ? apr_cuda_small_gemm(&args, n_multiprocessors, stream) : error;
}
