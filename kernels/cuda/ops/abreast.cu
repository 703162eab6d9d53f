/* abreast.cu - the small GEMM (abreast.cuh): launches, and the stream-K fix-up kernel. */
#include "kernels/cuda/ops/abreast_end.cuh"

#include <atomic>

enum { MOST_ROWS = ABREAST_LARGE };
static_assert((int)MOST_ROWS == (int)APR_ABREAST_MOST_ROWS, "as abreast_room.h counts them");

static const abreast_kernels *kernels_of(apr_dtype dtype)
{
    const abreast_kernels *k = apr_abreast_k_kernels(dtype);
    if (k == NULL) k = apr_abreast_blocks_kernels(dtype);
    return k != NULL ? k : apr_abreast_plain_kernels(dtype);
}

bool apr_cuda_goes_abreast(apr_dtype dtype, bool in_items, int64_t n_out, int64_t n_in, int major)
{
    const abreast_kernels *const k = kernels_of(dtype);
    if (k == NULL || n_out <= 0 || n_in <= 0 || n_out % APR_FLOW_UNIT != 0 || n_in % k->columns != 0) return false;
    if (n_out > INT32_MAX / 4 || n_in > INT32_MAX / 4) return false;
    if (!in_items && !k->rows) return false;
    return major >= 8 || (major == 7 && !k->bfloats);
}

apr_abreast_form apr_cuda_abreast_form(apr_dtype dtype)
{
    if (dtype == APR_BF16) return APR_ABREAST_BFLOATS;
    return apr_abreast_wide(dtype) != NULL ? APR_ABREAST_WIDE : APR_ABREAST_HALVES;
}

/* What the current device supports. */
typedef struct abreast_device {
    bool large;
    int shared_bytes;
} abreast_device;

/* Whether the device's code has large row blocks is queried once for each device. */
static cudaError_t look_at_device(const abreast_kernels *k, abreast_device *out)
{
    enum { MOST_DEVICES = 64 };
    static std::atomic<signed char> known[MOST_DEVICES];
    cudaFuncAttributes attributes;
    int device = 0;

    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&out->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess) return error;
    if (device < 0 || device >= MOST_DEVICES) return cudaErrorNotSupported;
    if (known[device] == 0) {
        error = cudaFuncGetAttributes(&attributes, k->any);
        if (error != cudaSuccess) return error;
        known[device] = abreast_is_large(attributes.ptxVersion) ? 1 : -1;
    }
    out->large = known[device] > 0;
    return cudaSuccess;
}

/* The number of tiles that are multiplied at a time: as many as there are, or as leave room for two stages. Returns an index of {1, 2, 4};
 * -1: none. */
static int way_of(const abreast_kernels *k, const abreast_device *d, int64_t n_tiles)
{
    int way = n_tiles <= 1 ? 0 : n_tiles <= 2 ? 1 : 2;
    while (way >= 0 && 2 * k->stage_bytes[!d->large][way] > d->shared_bytes - ABREAST_SHARED_LEFT) way--;
    return way;
}

static int rows_of(const abreast_device *d) { return d->large ? ABREAST_LARGE : ABREAST_SMALL; }

/* --- stream-K fix-up: partial sums of row blocks that several thread blocks share --- */

/* A thread block adds the partial sums of some tokens of a shared row block, a thread per row. */
static __global__ void __launch_bounds__(MOST_ROWS) k_join(const __grid_constant__ abreast_call a, int n_blocks)
{
    let_next_begin();
    const int row = (int)threadIdx.x;
    const abreast_joint j = joint_of(a, n_blocks, (int)blockIdx.x);
    abreast_run run = {};
    run.row_block = j.row_block, run.first_tile = a.first_tile, run.n_tiles = a.n_here, run.whole = true;
    wait_for_previous();
    if (j.first == j.last) return;
    const abreast_target to = target_of(a, run, 0, (int)blockDim.x, row);
    for (int token = (int)blockIdx.y; token < to.n; token += (int)gridDim.y)
        put_sum(to, token, joined_sum(a, j, (int)blockDim.x, row, token), factor_of(to, token));
}

static cudaError_t start_join(const abreast_call &a, int n_blocks, unsigned rows_of_block, unsigned n_tokens, cudaStream_t stream)
{
    enum { MOST_BLOCKS = 1024 }; /* about as many as are resident at a time */
    const unsigned n_joints = (unsigned)joints_of(a, n_blocks), most = MOST_BLOCKS / n_joints;
    /* the same carveout as the kernels around it, so that it need not wait for a reconfiguration of shared memory */
    const cudaError_t error = cudaFuncSetAttribute(k_join, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    return launch_following(k_join,
                            dim3(n_joints, most < 1          ? 1
                                           : most < n_tokens ? most
                                                             : n_tokens),
                            rows_of_block, 0, stream, a, n_blocks);
}

/* --- launching --- */

static int64_t rows_in(const apr_tensor *weight)
{
    int64_t rows = 1;
    for (int i = 0; i < weight->rank - 1; i++) rows *= weight->dims[i];
    return rows;
}

static abreast_call call_of(const apr_abreast_args *args, const abreast_kernels *k, int rows_of_block)
{
    const apr_tensor *const weight = args->parts[0].weight;
    const apr_dtype_facts *const facts = &apr_dtypes[weight->dtype];
    abreast_call a = {};

    a.n_parts = args->n_parts;
    for (int i = 0; i < args->n_parts; i++) {
        const apr_abreast_part *const part = &args->parts[i];
        const int64_t rows = args->groups != NULL ? args->matrix_rows : rows_in(part->weight);
        a.parts[i] = abreast_part{part->weight->data, part->bias, part->out, (int)(rows / APR_FLOW_UNIT)};
        a.n_units += a.parts[i].n_units;
    }
    a.row_bytes = args->inputs.n_in / facts->elems_per_block * facts->bytes_per_block;
    a.in_items = weight->in_items;
    a.n_stages = (int)(args->inputs.n_in / k->columns);
    a.n_subs = (int)(args->inputs.n_in / ABREAST_SUB);
    a.plane = abreast_plane(args->inputs.n_tiles, args->inputs.n_in);
    a.depth = ABREAST_MOST_DEPTH;
    const int units = rows_of_block / APR_FLOW_UNIT;
    a.n_row_blocks = (a.n_units + units - 1) / units;
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
static cudaError_t start_dense(abreast_call a, const abreast_kernels *k, const abreast_wide *wide, const abreast_device *d,
                               int n_multiprocessors, abreast_end *end, const void *what, cudaStream_t stream)
{
    const int64_t n_all = (int64_t)a.n_row_blocks * a.n_stages;
    const int n_blocks = n_all < n_multiprocessors ? (int)n_all : n_multiprocessors;
    const bool joins = n_all % n_blocks != 0 || n_all / n_blocks % a.n_stages != 0;
    cudaError_t error = cudaSuccess;

    for (a.first_tile = 0; a.first_tile < a.n_tiles && error == cudaSuccess; a.first_tile += a.n_here) {
        const int left = a.n_tiles - a.first_tile, way = way_of(k, d, left);
        if (way < 0) return cudaErrorNotSupported;
        a.n_here = left < 1 << way ? left : 1 << way;
        const int64_t to_go = a.n_tokens - (int64_t)a.first_tile * APR_ABREAST_TILE;
        const unsigned n_here = (unsigned)(to_go < a.n_here * APR_ABREAST_TILE ? to_go : a.n_here * APR_ABREAST_TILE);
        error = (wide != NULL ? wide->start : k->start[!d->large])[way](a, (unsigned)n_blocks, d->shared_bytes, stream);
        if (error == cudaSuccess && end != NULL) error = end(what, a, n_blocks, rows_of(d), stream);
        else if (error == cudaSuccess && joins) error = start_join(a, n_blocks, (unsigned)rows_of(d), n_here, stream);
    }
    return error;
}

/* A group has at most as many tiles as are multiplied at a time: its maker has asked apr_cuda_abreast_group_tiles. */
static cudaError_t start_grouped(const abreast_call &a, const abreast_kernels *k, const abreast_wide *wide, const abreast_device *d,
                                 int most_tiles, int64_t most_runs, int n_multiprocessors, cudaStream_t stream)
{
    const int way = way_of(k, d, most_tiles);
    if (way < 0 || 1 << way < most_tiles || most_runs <= 0 || most_runs > INT32_MAX) return cudaErrorNotSupported;
    const int n_blocks = most_runs < n_multiprocessors ? (int)most_runs : n_multiprocessors;
    return (wide != NULL ? wide->start_experts : k->start[!d->large])[way](a, (unsigned)n_blocks, d->shared_bytes, stream);
}

static cudaError_t start(const apr_abreast_args *args, int n_multiprocessors, abreast_end *end, const void *what, cudaStream_t stream)
{
    const apr_dtype dtype = args->parts[0].weight->dtype;
    const abreast_kernels *const k = kernels_of(dtype);
    const bool is_wide = args->inputs.form == APR_ABREAST_WIDE;
    const abreast_wide *const wide = is_wide ? apr_abreast_wide(dtype) : NULL;
    abreast_device d;

    if (is_wide && wide == NULL) return cudaErrorInvalidValue;
    if (k == NULL) return cudaErrorNotSupported;
    const cudaError_t error = look_at_device(k, &d);
    if (error != cudaSuccess) return error;
    const abreast_call a = call_of(args, k, rows_of(&d));
    if ((int64_t)a.n_row_blocks * a.n_stages > INT32_MAX) return cudaErrorNotSupported;
    if (is_wide && !d.large) return cudaErrorInvalidValue;
    if (args->groups == NULL) return start_dense(a, k, wide, &d, n_multiprocessors, end, what, stream);
    return start_grouped(a, k, wide, &d, args->most_tiles, (int64_t)args->most_groups * a.n_row_blocks * a.splits, n_multiprocessors,
                         stream);
}

cudaError_t apr_cuda_abreast(const apr_abreast_args *args, int n_multiprocessors, cudaStream_t stream)
{
    return start(args, n_multiprocessors, NULL, NULL, stream);
}

cudaError_t apr_cuda_abreast_ended(const apr_abreast_args *args, int n_multiprocessors, abreast_end *end, const void *what,
                                   cudaStream_t stream)
{
    return args->groups != NULL ? cudaErrorInvalidValue : start(args, n_multiprocessors, end, what, stream);
}

int apr_cuda_abreast_group_tiles(apr_dtype dtype, int64_t n_tokens)
{
    const abreast_kernels *const k = kernels_of(dtype);
    abreast_device d;
    if (k == NULL || look_at_device(k, &d) != cudaSuccess) return 0;
    const int way = way_of(k, &d, (n_tokens + APR_ABREAST_TILE - 1) / APR_ABREAST_TILE);
    return way < 0 ? 0 : 1 << way;
}

/* --- a linear --- */

/* Requires the workspace of APR_ABREAST_MOST tokens, so that fewer tokens do not use another kernel. */
static bool can_go(const apr_linear_args *a, int n_multiprocessors, int major)
{
    const apr_tensor *const w = a->weight;
    const int64_t n = a->n_tokens > APR_ABREAST_MOST ? a->n_tokens : (int64_t)APR_ABREAST_MOST;
    return a->heads.n == 0 && w->packing == NULL && w->scale == NULL && w->pending.kind == APR_STEP_NONE && (uintptr_t)w->data % 16 == 0 &&
           (uintptr_t)a->x % 16 == 0 && (uintptr_t)a->work.data % 16 == 0 &&
           apr_cuda_goes_abreast(w->dtype, w->in_items, a->n_out, a->n_in, major) &&
           apr_cuda_linear_abreast_bytes(n, a->n_in, n_multiprocessors) <= a->work.slice * sizeof(float);
}

cudaError_t apr_cuda_linear_abreast(const apr_linear_args *a, bool is_prepared, int n_multiprocessors, int major, cudaStream_t stream)
{
    if (!can_go(a, n_multiprocessors, major)) return cudaErrorNotSupported;
    const apr_linear_room room = apr_cuda_linear_room(a->n_tokens, a->n_in, n_multiprocessors);
    uint8_t *const work = (uint8_t *)a->work.data;
    const abreast_kernels *const k = kernels_of(a->weight->dtype);
    apr_abreast_args args = {};
    abreast_device d;

    cudaError_t error = look_at_device(k, &d);
    if (error == cudaSuccess && way_of(k, &d, 1) < 0) error = cudaErrorNotSupported;
    if (error != cudaSuccess) return error;
    args.n_parts = 1;
    args.parts[0] = apr_abreast_part{a->weight, a->bias, a->out};
    args.n_tokens = a->n_tokens;
    args.inputs = apr_abreast_inputs{a->n_in,
                                     a->n_in,
                                     room.n_tiles,
                                     work + room.inputs.fragments,
                                     work + room.inputs.sums,
                                     (float *)(work + room.inputs.factors),
                                     apr_cuda_abreast_form(a->weight->dtype)};
    args.partial = work + room.partial;
    if (!is_prepared) error = apr_cuda_abreast_prepare(a->x, NULL, a->n_tokens, &args.inputs, stream);
    return error == cudaSuccess ? apr_cuda_abreast(&args, n_multiprocessors, stream) : error;
}
