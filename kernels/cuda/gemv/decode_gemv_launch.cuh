/* decode_gemv_launch.cuh - the decode GEMV kernels and their launch: layout of a block's shared memory, and division of row groups among blocks. */
#ifndef APR_KERNELS_CUDA_DECODE_GEMV_LAUNCH_CUH
#define APR_KERNELS_CUDA_DECODE_GEMV_LAUNCH_CUH

#include "kernels/cuda/gemv/decode_gemv_kernel.cuh"

template <apr_dtype D, decode_gemv_kind KIND>
static __global__ void __launch_bounds__(THREADS, of_experts(KIND) ? ROUTED_RESIDENT : RESIDENT)
    k_decode_gemv(const __grid_constant__ decode_gemv_call a, const __grid_constant__ decode_gemv_layout layout)
{
    extern __shared__ __align__(128) uint8_t memory[];
    compute_row_groups<D, KIND>(a, layout, (int)blockIdx.x, memory);
}

/* Shared memory except the rings: `most` row groups of a block, of which a warp has a part of some; activations, extras as the layout has
 * them, a table, shares. */
template <apr_dtype D> static int fixed_bytes(int64_t n_in, int most, decode_gemv_layout *layout)
{
    layout->x_bytes = (int)apr_activations_i16_bytes(n_in);
    layout->slots = most / WARPS + 2;
    return layout->x_bytes + layout->n_extras * (int)sizeof(epilogue_extras) + WARPS * layout->slots * APR_ROW_GROUP * (int)sizeof(float) +
           (int)decode_gemv_type<D>::TABLE_WORDS * (int)sizeof(uint32_t) + (most + 1) / 2 * 2 * (int)sizeof(row_group_share);
}

/* Tiles in a ring that fit `bytes`. */
static int depth_in(int bytes, int fixed, int tile_bytes)
{
    const int depth = (bytes - RESERVED_BYTES - fixed) / (WARPS * tile_bytes);
    return depth < 0 ? 0 : depth > MAX_DEPTH ? (int)MAX_DEPTH : depth;
}

/* A multiprocessor must have room for one block of this kernel and one of the next. If some multiprocessors were full while others had room
 * for two, the next kernel's blocks would be placed there in pairs, and it would take twice the time. So a product takes at most
 * SMALL_BYTES, or, if that is too little, what such a kernel leaves free. One that needs everything lets the next kernel begin only when it
 * has finished. The first product after another kind of kernel (attention, which fills some multiprocessors and leaves others empty) takes
 * so much that two of its blocks do not fit one multiprocessor. */
static cudaError_t lay_out(decode_gemv_layout *layout, int fixed, int tile_bytes, bool is_first, int *n_bytes)
{
    int device = 0, of_all = 0, of_block = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&of_all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&of_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess) return error;
    const int half = of_all / 2, small = half < SMALL_BYTES ? half : (int)SMALL_BYTES;
    const int large = of_all - small < of_block ? of_all - small : of_block;
    layout->depth = depth_in(is_first ? large : small, fixed, tile_bytes);
    if (layout->depth < MIN_DEPTH) layout->depth = depth_in(large, fixed, tile_bytes);
    layout->excludes_next = layout->depth < MIN_DEPTH;
    if (layout->excludes_next) layout->depth = depth_in(of_block, fixed, tile_bytes);
    *n_bytes = fixed + WARPS * layout->depth * tile_bytes;
    if (is_first && *n_bytes < half && half < large) *n_bytes = half;
    return layout->depth > 0 ? cudaSuccess : cudaErrorNotSupported;
}

/* The layout of a call whose row groups so many blocks share, and its shared memory. */
template <apr_dtype D, decode_gemv_kind KIND>
static cudaError_t lay_out_for(const decode_gemv_call &a, int n_blocks, decode_gemv_layout *layout, int *n_bytes)
{
    const int n_row_groups = row_groups_of<KIND>(a), most = (n_row_groups + n_blocks - 1) / n_blocks, n_rows = most * APR_ROW_GROUP;
    const bool has_extras = a.epilogue == APR_EPILOGUE_ADD || a.gain != NULL || a.parts[0].bias != NULL;
    const int n_runs = KIND == GEMV_EXPERT_SUMS ? a.routed.n_used : 1;
    layout->n_run = (a.n_in / n_runs + decode_gemv_type<D>::COLUMNS - 1) / decode_gemv_type<D>::COLUMNS;
    layout->n_tiles = layout->n_run * n_runs;
    layout->tiles = fast_divisor_of(layout->n_tiles), layout->run = fast_divisor_of(layout->n_run);
    layout->each = n_row_groups / n_blocks, layout->more = n_row_groups % n_blocks;
    layout->n_extras = !has_extras ? 0 : n_rows < THREADS ? n_rows : (int)THREADS;
    const int fixed = fixed_bytes<D>(layout->n_tiles * decode_gemv_type<D>::COLUMNS, is_glu(KIND) ? 2 * most : most, layout);
    return lay_out(layout, fixed, decode_gemv_ring<D>::BYTES, a.is_first || KIND == GEMV_EXPERT_GLU, n_bytes);
}

template <typename KERNEL> static cudaError_t give_memory(KERNEL kernel, int n_bytes)
{
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes);
    return error == cudaSuccess ? cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100) : error;
}

template <apr_dtype D, decode_gemv_kind KIND>
static cudaError_t start(const decode_gemv_call &a, int n_multiprocessors, cudaStream_t stream)
{
    const int n_row_groups = row_groups_of<KIND>(a), n_blocks = n_row_groups < n_multiprocessors ? n_row_groups : n_multiprocessors;
    decode_gemv_layout layout;
    int n_bytes = 0;
    cudaError_t error = lay_out_for<D, KIND>(a, n_blocks, &layout, &n_bytes);
    if (error == cudaSuccess) error = give_memory(k_decode_gemv<D, KIND>, n_bytes);
    if (error != cudaSuccess) return error;
    return launch_pdl(k_decode_gemv<D, KIND>, (unsigned)n_blocks, THREADS, (size_t)n_bytes, stream, a, layout);
}

#endif
