/* flow.cu - the kernel of flow.cuh: a ring of weights for each warp, filled before the inputs are waited for.
 *
 * An item is 16 rows of so many columns as a type takes at once. A block's items, unit by unit, are dealt out to its warps in runs of equal
 * length; a warp's ring holds the next ones on their way from memory. Sums of a unit that several warps share are added in their order.
 * Two blocks fit a multiprocessor, so that the next product's weights come while this one ends. */
#include "kernels/cuda/ops/flow.cuh"
#include "kernels/cuda/ops/flow_dot.cuh"
#include "kernels/cuda/ops/reduce.cuh"

enum {
    WARPS = 12,
    THREADS = 32 * WARPS,
    RESERVED_BYTES = 2048, /* of a block's shared memory, by CUDA and by what is declared */
    ENOUGH_DEPTH = 2,
    MOST_DEPTH = 4,
};

/* A call as the kernel sees it. */
typedef struct flow_part {
    const uint8_t *weight;
    const float *bias;
    float *out;
    int n_units;
} flow_part;

typedef struct flow_call {
    apr_flow_ending ending;
    int n_parts, n_squares;
    flow_part parts[APR_FLOW_PARTS];
    int n_in;
    const uint8_t *x;
    const float *squares, *residual, *gain;
    float eps, gain_offset;
    apr_glu_shape glu;
    uint8_t *planes;
    float *out_squares;
} flow_call;

/* How a block's shared memory is cut up: rings, inputs, sums of units that warps share. */
typedef struct flow_layout {
    int depth;   /* items in a ring */
    int slots;   /* units that a warp may touch */
    int n_items; /* across a unit's columns */
    int x_bytes;
} flow_layout;

/* An item lies in memory as one piece, row behind row; of 16-bit numbers, whose rows stay where they are, in 16 pieces of 128 bytes. Those
 * would all begin in one bank: their 16 bytes trade places, by the row's number. */
template <apr_dtype D> struct flow_ring {
    static constexpr int BYTES = APR_FLOW_UNIT * flow_type<D>::BYTES, PIECES = BYTES / 16;
    static constexpr bool APART = flow_type<D>::BYTES == 128; /* rows */
    static_assert(BYTES % 16 == 0, "items are copied by 16 bytes");
};

static __device__ __forceinline__ void copy_piece(uint8_t *to, const uint8_t *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
#endif
}
static __device__ __forceinline__ void close_group(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* All but the youngest `left` groups of this thread have arrived. */
static __device__ __forceinline__ void wait_for_groups(int left)
{
#if __CUDA_ARCH__ >= 800
    if (left == 2) asm volatile("cp.async.wait_group 2;" ::: "memory");
    else if (left == 1) asm volatile("cp.async.wait_group 1;" ::: "memory");
    else if (left == 3) asm volatile("cp.async.wait_group 3;" ::: "memory");
    else asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
}

/* Programmatic dependent launch: the next kernel may begin; what the one before wrote is there. */
static __device__ __forceinline__ void let_next_begin(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
static __device__ __forceinline__ void wait_for_previous(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* GLU counts pairs of a gate's unit and an up's. */
static __host__ __device__ inline int units_of(const flow_call &a)
{
    if (a.ending == APR_FLOW_GLU) return a.parts[0].n_units;
    int n = 0;
    for (int i = 0; i < a.n_parts; i++) n += a.parts[i].n_units;
    return n;
}

/* Units [first, last) of a block. */
static __device__ __forceinline__ int first_unit(int n_units, unsigned block) { return (int)((int64_t)n_units * block / gridDim.x); }

/* The items of a block's unit. */
static __device__ __forceinline__ const uint8_t *items_of(const flow_call &a, int64_t unit_bytes, int unit)
{
    int part = 0;
    if (a.ending == APR_FLOW_GLU) part = unit % 2, unit /= 2;
    else
        while (part + 1 < a.n_parts && unit >= a.parts[part].n_units) unit -= a.parts[part++].n_units;
    return a.parts[part].weight + unit * unit_bytes;
}

/* Asks for an item; the lanes share it. */
template <apr_dtype D> static __device__ __forceinline__ void ask(const uint8_t *item, int row_bytes, uint8_t *to)
{
    typedef flow_ring<D> R;
    const int lane = (int)threadIdx.x % 32;
    if (R::APART) item += lane / 8 * row_bytes + lane % 8 * 16;
    else item += 16 * lane;
#pragma unroll
    for (int i = 0; i < (R::PIECES + 31) / 32; i++) {
        const int at = lane + 32 * i, there = R::APART ? at ^ (at / 8 % 8) : at;
        if (32 * i + 31 < R::PIECES || at < R::PIECES) copy_piece(to + 16 * there, item);
        item += R::APART ? 4 * row_bytes : 512;
    }
}

/* What finishes a row. */
typedef struct flow_finish {
    float factor;
    const float *sums;  /* [WARPS][slots][APR_FLOW_UNIT] */
    const int *touched; /* [WARPS][2]: first and last unit of each warp */
    int slots;
} flow_finish;

/* A unit's row: the sums of all warps that had a part of it, in their order. */
static __device__ __forceinline__ float joined(const flow_finish &f, int unit, int row)
{
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        const int first = f.touched[2 * w];
        if (unit >= first && unit <= f.touched[2 * w + 1]) sum += f.sums[(w * f.slots + unit - first) * APR_FLOW_UNIT + row];
    }
    return sum * f.factor;
}

/* Rows of the block's units, a thread each, by half warps: 16 rows are a group of planes. */
static __device__ __forceinline__ void finish(const flow_call &a, const flow_finish &f, int first, int last)
{
    const int n = (last - first) * APR_FLOW_UNIT;
    for (int base = 0; base < n; base += THREADS) {
        const int i = base + (int)threadIdx.x, unit = i / APR_FLOW_UNIT, row = i % APR_FLOW_UNIT;
        const bool on = i < n;
        int part = 0, at = first + unit; /* unit of its part */
        float value = 0.0f;
        if (a.ending == APR_FLOW_GLU) {
            const int64_t r = (int64_t)at * APR_FLOW_UNIT + row;
            if (on) {
                const float gate = joined(f, 2 * unit, row) + (a.parts[0].bias != NULL ? __ldg(a.parts[0].bias + r) : 0.0f);
                const float up = joined(f, 2 * unit + 1, row) + (a.parts[1].bias != NULL ? __ldg(a.parts[1].bias + r) : 0.0f);
                value = apr_glu_of(&a.glu, gate, up);
            }
        } else {
            while (part + 1 < a.n_parts && at >= a.parts[part].n_units) at -= a.parts[part++].n_units;
            const int64_t r = (int64_t)at * APR_FLOW_UNIT + row;
            if (on) {
                value = joined(f, unit, row) + (a.parts[part].bias != NULL ? __ldg(a.parts[part].bias + r) : 0.0f);
                if (a.ending == APR_FLOW_ADD) value += __ldcg(a.residual + r);
            }
        }
        const int64_t r = (int64_t)at * APR_FLOW_UNIT + row;
        if (on && a.parts[part].out != NULL) a.parts[part].out[r] = value;
        if (a.out_squares != NULL) {
            const float squares = half_warp_sum(value * value);
            if (on && row == 0) a.out_squares[at] = squares;
        }
        if (a.planes != NULL) planes_put(a.planes, r, on, on && a.gain != NULL ? value * (__ldg(a.gain + r) + a.gain_offset) : value);
    }
}

/* 1 / rms of the inputs, from the sums of squares of their groups. */
static __device__ __forceinline__ float factor_of(const flow_call &a)
{
    if (a.squares == NULL) return 1.0f;
    float sum = 0.0f;
    for (int i = (int)threadIdx.x % 32; i < a.n_squares; i += 32) sum += __ldcg(a.squares + i);
    return rsqrtf(warp_sum(sum) / (float)a.n_in + a.eps);
}

/* What the four lanes of rows g and g + 8 have of them; begins anew. */
static __device__ __forceinline__ void put_sums(const flow_lane &l, float (&total)[2], float *sums)
{
#pragma unroll
    for (int k = 0; k < 2; k++) {
        total[k] += __shfl_xor_sync(0xffffffffu, total[k], 1);
        total[k] += __shfl_xor_sync(0xffffffffu, total[k], 2);
        if (l.t == 0) sums[l.g + 8 * k] = total[k];
        total[k] = 0.0f;
    }
}

template <apr_dtype D> static __global__ void __launch_bounds__(THREADS, 2) k_flow(const __grid_constant__ flow_call a, flow_layout layout)
{
    typedef flow_ring<D> R;
    extern __shared__ __align__(128) uint8_t memory[];
    __shared__ int touched[2 * WARPS];
    uint8_t *const ring = memory + threadIdx.x / 32 * layout.depth * R::BYTES;
    uint8_t *const x = memory + WARPS * layout.depth * R::BYTES;
    float *const sums = (float *)(x + layout.x_bytes);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, width = a.ending == APR_FLOW_GLU ? 2 : 1;
    const int64_t unit_bytes = (int64_t)layout.n_items * R::BYTES;
    const int step = R::APART ? flow_type<D>::BYTES : R::BYTES, row_bytes = layout.n_items * flow_type<D>::BYTES;
    const flow_lane l = flow_lane_of(lane);

    let_next_begin();
    const int n_units = units_of(a);
    const int first = first_unit(n_units, blockIdx.x), last = first_unit(n_units, blockIdx.x + 1);
    const int n = (last - first) * width * layout.n_items, begin = n * warp / WARPS, end = n * (warp + 1) / WARPS;
    int asked = begin, ask_unit = first * width + begin / layout.n_items, ask_left = layout.n_items - begin % layout.n_items, ask_slot = 0;
    const uint8_t *wanted = items_of(a, unit_bytes, ask_unit) + begin % layout.n_items * step;
    auto ask_next = [&] {
        if (asked < end) {
            ask<D>(wanted, row_bytes, ring + ask_slot * R::BYTES);
            asked++;
            wanted += step;
            if (++ask_slot == layout.depth) ask_slot = 0;
            if (--ask_left == 0 && asked < end) {
                ask_left = layout.n_items;
                wanted = items_of(a, unit_bytes, ++ask_unit);
            }
        }
        close_group(); /* an empty one, too: groups are counted */
    };
    for (int i = 0; i < layout.depth; i++) ask_next();
    if (lane == 0) {
        touched[2 * warp] = begin / layout.n_items;
        touched[2 * warp + 1] = end > begin ? (end - 1) / layout.n_items : -1;
    }
    wait_for_previous();
    for (int i = threadIdx.x; i < layout.x_bytes / 16; i += THREADS) ((uint4 *)x)[i] = __ldcg((const uint4 *)a.x + i);
    const float factor = factor_of(a);
    __syncthreads();

    float total[2] = {0.0f, 0.0f};
    int item = begin % layout.n_items, slot = 0;
    float *unit_sums = sums + warp * layout.slots * APR_FLOW_UNIT;
    for (int i = begin; i < end; i++) {
        wait_for_groups(layout.depth - 1);
        __syncwarp();
        const uint8_t *const row = ring + slot * R::BYTES + l.g * flow_type<D>::BYTES;
        const int column = item * flow_type<D>::COLUMNS;
        flow_type<D>::dot(row, row + 8 * flow_type<D>::BYTES, x + column / PLANES_COLUMNS * PLANES_BYTES, column % PLANES_COLUMNS, l,
                          total);
        __syncwarp();
        ask_next();
        if (++slot == layout.depth) slot = 0;
        if (++item == layout.n_items || i + 1 == end) {
            put_sums(l, total, unit_sums);
            unit_sums += APR_FLOW_UNIT;
            item = 0;
        }
    }
    __syncthreads();
    finish(a, flow_finish{factor, sums, touched, layout.slots}, first, last);
}

/* --- launching --- */

/* Launches so that the kernel before need not have ended. */
template <typename... PARAMETERS, typename... ARGS>
static cudaError_t launch(void (*kernel)(PARAMETERS...), unsigned n_blocks, unsigned n_threads, size_t shared, bool follows,
                          cudaStream_t stream, ARGS... args)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(n_blocks);
    config.blockDim = dim3(n_threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = follows ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, PARAMETERS(args)...);
}

/* Shared memory without rings: `most` units of a block, of which a warp touches some, and inputs. */
static int fixed_bytes(int64_t n_in, int most, flow_layout *layout)
{
    layout->x_bytes = (int)apr_planes_bytes(n_in);
    layout->slots = most / WARPS + 2;
    return layout->x_bytes + WARPS * layout->slots * APR_FLOW_UNIT * (int)sizeof(float);
}

/* Items of a ring that fit `bytes`. */
static int depth_in(int bytes, int fixed, int item_bytes)
{
    const int depth = (bytes - RESERVED_BYTES - fixed) / (WARPS * item_bytes);
    return depth < 0 ? 0 : depth > MOST_DEPTH ? (int)MOST_DEPTH : depth;
}

/* Two blocks share a multiprocessor where rings can be deep enough then; else one has all that a block may have. */
static cudaError_t lay_out(flow_layout *layout, int fixed, int item_bytes)
{
    int device = 0, of_all = 0, of_block = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&of_all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&of_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess) return error;
    layout->depth = depth_in(of_all / 2, fixed, item_bytes);
    if (layout->depth < ENOUGH_DEPTH) layout->depth = depth_in(of_block, fixed, item_bytes);
    return layout->depth > 0 ? cudaSuccess : cudaErrorNotSupported;
}

template <apr_dtype D> static cudaError_t start(const flow_call &a, int n_multiprocessors, bool follows, cudaStream_t stream)
{
    typedef flow_ring<D> R;
    const int n_units = units_of(a), n_blocks = n_units < n_multiprocessors ? n_units : n_multiprocessors;
    const int width = a.ending == APR_FLOW_GLU ? 2 : 1, most = (n_units + n_blocks - 1) / n_blocks * width;
    flow_layout layout;
    layout.n_items = a.n_in / flow_type<D>::COLUMNS;
    const int fixed = fixed_bytes(a.n_in, most, &layout);
    cudaError_t error = lay_out(&layout, fixed, R::BYTES);
    const int n_bytes = fixed + WARPS * layout.depth * R::BYTES;
    if (error == cudaSuccess) error = cudaFuncSetAttribute(k_flow<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes);
    if (error == cudaSuccess) error = cudaFuncSetAttribute(k_flow<D>, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    return launch(k_flow<D>, (unsigned)n_blocks, THREADS, (size_t)n_bytes, follows, stream, a, layout);
}

bool apr_cuda_flow_fits(apr_dtype dtype, int64_t n_out, int64_t n_in, int n_multiprocessors, int shared_bytes)
{
    const int64_t n_units = n_out / APR_FLOW_UNIT, most = 2 * ((n_units + n_multiprocessors - 1) / n_multiprocessors);
    flow_layout layout;

    if (n_in > INT32_MAX / 4 || most > INT32_MAX / 1024) return false;
    const int fixed = fixed_bytes(n_in, (int)most, &layout);
    switch ((int)dtype) {
#define X(id, columns) \
    case APR_##id: return depth_in(shared_bytes, fixed, flow_ring<APR_##id>::BYTES) >= ENOUGH_DEPTH;
        APR_FLOW_ITEMS(X)
        APR_FLOW_ROWS(X)
#undef X
    default: return false;
    }
}

static int units_in(const apr_tensor *weight)
{
    int64_t rows = 1;
    for (int i = 0; i < weight->rank - 1; i++) rows *= weight->dims[i];
    return (int)(rows / APR_FLOW_UNIT);
}

cudaError_t apr_cuda_flow(const apr_flow_args *args, int n_multiprocessors, bool follows, cudaStream_t stream)
{
    flow_call a = {};
    a.ending = args->ending;
    a.n_parts = args->n_parts;
    for (int i = 0; i < args->n_parts; i++) {
        const apr_flow_part *const part = &args->parts[i];
        a.parts[i] = flow_part{part->weight->data, part->bias, part->out, units_in(part->weight)};
    }
    a.n_in = (int)args->n_in;
    a.n_squares = a.n_in / PLANES_GROUP;
    a.x = args->x;
    a.squares = args->squares, a.residual = args->residual, a.gain = args->gain;
    a.eps = args->eps, a.gain_offset = args->gain_offset;
    a.glu = args->glu;
    a.planes = args->planes;
    a.out_squares = args->out_squares;
    switch ((int)args->parts[0].weight->dtype) {
#define X(id, columns) \
    case APR_##id: return start<APR_##id>(a, n_multiprocessors, follows, stream);
        APR_FLOW_ITEMS(X)
        APR_FLOW_ROWS(X)
#undef X
    default: return cudaErrorNotSupported;
    }
}

/* --- inputs that no product made --- */

enum { PREPARE_THREADS = 1024 };

static __global__ void __launch_bounds__(PREPARE_THREADS)
    k_prepare(const float *x, const float *gain, float offset, float eps, bool norm, int n, uint8_t *planes)
{
    __shared__ float parts[PREPARE_THREADS / 32];
    let_next_begin();
    wait_for_previous();
    float factor = 1.0f;
    if (norm) {
        float sum = 0.0f;
        for (int i = threadIdx.x; i < n; i += PREPARE_THREADS) sum = fmaf(__ldcg(x + i), __ldcg(x + i), sum);
        factor = rsqrtf(block_sum<PREPARE_THREADS>(sum, parts) / (float)n + eps);
    }
    for (int base = 0; base < n; base += PREPARE_THREADS) {
        const int i = base + (int)threadIdx.x;
        const bool on = i < n;
        const float times = on && gain != NULL ? __ldg(gain + i) + offset : 1.0f;
        planes_put(planes, i, on, on ? __ldcg(x + i) * factor * times : 0.0f);
    }
}

cudaError_t apr_cuda_flow_prepare(const apr_flow_inputs *a, bool follows, cudaStream_t stream)
{
    return launch(k_prepare, 1, PREPARE_THREADS, 0, follows, stream, a->x, a->gain, a->gain_offset, a->eps, a->norm, (int)a->n, a->planes);
}

/* --- weights in another order --- */

enum { ITEMS_THREADS = 256 };

/* A thread two bytes: every block is a whole number of them. */
static __global__ void __launch_bounds__(ITEMS_THREADS)
    k_to_items(const uint16_t *rows, uint16_t *to, uint32_t item_row, uint32_t n_items, uint64_t n)
{
    const uint64_t at = (uint64_t)blockIdx.x * ITEMS_THREADS + threadIdx.x;
    if (at >= n) return;
    const uint32_t within = (uint32_t)(at % item_row), row = (uint32_t)(at / item_row % APR_FLOW_UNIT);
    const uint64_t item = at / item_row / APR_FLOW_UNIT, unit = item / n_items;
    to[at] = __ldg(rows + ((unit * APR_FLOW_UNIT + row) * n_items + item % n_items) * item_row + within);
}

cudaError_t apr_cuda_to_items(apr_dtype dtype, const uint8_t *rows, int64_t n_rows, int64_t n_in, uint8_t *to, cudaStream_t stream)
{
    const apr_dtype_facts *const facts = &apr_dtypes[dtype];
    const int columns = apr_flow_item_columns(dtype);
    if (columns == 0 || n_in % columns != 0 || n_rows % APR_FLOW_UNIT != 0) return cudaErrorInvalidValue;
    const uint32_t item_row = (uint32_t)(columns / facts->elems_per_block * facts->bytes_per_block) / 2;
    const uint64_t n = (uint64_t)n_rows * (uint64_t)(n_in / columns) * item_row;
    k_to_items<<<(unsigned)((n + ITEMS_THREADS - 1) / ITEMS_THREADS), ITEMS_THREADS, 0, stream>>>((const uint16_t *)rows, (uint16_t *)to,
                                                                                                  item_row, (uint32_t)(n_in / columns), n);
    return cudaGetLastError();
}
