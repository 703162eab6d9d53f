/* small_gemm_inputs.cu - inputs of the small GEMM: FP16 (or BF16) parts of each number, as tensor core fragments. */
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/small_gemm/small_gemm_fragments.cuh"

enum {
    MAX_THREADS = 512,
    KEPT = 4, /* pieces of 8 numbers that a thread keeps in registers between the maximum and the write */
};

/* A thread block per slot, with a thread for each piece of a row of up to 4,096 numbers, so that the many slots of a prompt fill a
 * multiprocessor. */
template <apr_small_gemm_layout LAYOUT>
static __global__ void __launch_bounds__(MAX_THREADS, 2)
    k_inputs(const float *x, const int *row_of, int64_t n, const __grid_constant__ apr_small_gemm_inputs to)
{
    __shared__ float parts[MAX_THREADS / 32];
    pdl_trigger_and_wait();
    const int slot = (int)blockIdx.x, row = row_of != NULL ? __ldcg(row_of + slot) : slot < n ? slot : -1;
    const float4 *const from = (const float4 *)(x + (int64_t)(row < 0 ? 0 : row) * to.n_x);
    const int n_pieces = (int)(to.n_in / 8), n_there = row >= 0 ? (int)(to.n_x / 8) : 0, thread = (int)threadIdx.x,
              n_threads = (int)blockDim.x;
    input_piece kept[KEPT];
    float max_abs = 0.0f, times, back;
#pragma unroll
    for (int k = 0; k < KEPT; k++) kept[k] = piece_of(from, thread + k * n_threads, thread + k * n_threads < n_there);
#pragma unroll
    for (int k = 0; k < KEPT; k++) max_abs = fmaxf(max_abs, fmaxf(max_abs_of(kept[k].first), max_abs_of(kept[k].second)));
    for (int i = thread + KEPT * n_threads; i < n_there; i += n_threads) {
        const input_piece piece = piece_of(from, i, true);
        max_abs = fmaxf(max_abs, fmaxf(max_abs_of(piece.first), max_abs_of(piece.second)));
    }
    power_for(block_max_of<MAX_THREADS>(max_abs, n_threads, parts), &times, &back);
    if (thread == 0) to.factors[slot] = back;
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if (k * n_threads < n_pieces)
            store_piece<LAYOUT>(to, slot, thread + k * n_threads, thread + k * n_threads < n_pieces, kept[k], times);
    for (int base = KEPT * n_threads; base < n_pieces; base += n_threads) {
        const bool on = base + thread < n_pieces;
        store_piece<LAYOUT>(to, slot, base + thread, on, piece_of(from, base + thread, base + thread < n_there), times);
    }
}

cudaError_t apr_cuda_small_gemm_prepare(const float *x, const int *row_of, int64_t n, const apr_small_gemm_inputs *to, cudaStream_t stream)
{
    const unsigned n_slots = (unsigned)(to->n_tiles * APR_SMALL_GEMM_TILE);
    const int64_t n_pieces = (to->n_in / 8 + 31) / 32 * 32;
    const unsigned n_threads = (unsigned)(n_pieces < MAX_THREADS ? n_pieces : (int64_t)MAX_THREADS);
    if (to->n_in % GEMM_SUB != 0 || to->n_x % GEMM_SUB != 0 || to->n_x > to->n_in || (uintptr_t)x % 16 != 0) return cudaErrorNotSupported;
    static void (*const kernels[])(const float *, const int *, int64_t, apr_small_gemm_inputs) = {
        k_inputs<APR_SMALL_GEMM_F16>, k_inputs<APR_SMALL_GEMM_BF16>, k_inputs<APR_SMALL_GEMM_WGMMA>};
    const auto kernel = kernels[to->layout];
    /* the same carveout as the next kernels, which then need not wait for a reconfiguration of shared memory */
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    return launch_pdl(kernel, n_slots, n_threads, 0, stream, x, row_of, n, *to);
}
