/* abreast_inputs.cu - inputs of products of tokens abreast: FP16 (or BF16) parts of each number, as fragments. */
#include "kernels/cuda/ops/abreast_pieces.cuh"
#include "kernels/cuda/ops/follow.cuh"
#include "kernels/cuda/ops/reduce.cuh"

enum {
    THREADS = 512,
    KEPT = 5, /* pieces of 8 numbers that a thread keeps between finding the largest and writing */
};

/* A block a slot. */
template <apr_abreast_form FORM>
static __global__ void __launch_bounds__(THREADS)
    k_inputs(const float *x, const int *row_of, bool own_rows, int64_t n, const __grid_constant__ apr_abreast_inputs to)
{
    __shared__ float parts[THREADS / 32];
    follow_previous();
    const int64_t slot = blockIdx.x, named = row_of != NULL ? (int64_t)__ldcg(row_of + slot) : slot < n ? slot : -1;
    const int64_t row = named >= 0 && own_rows ? slot : named;
    const float4 *const from = (const float4 *)(x + (row < 0 ? 0 : row) * to.n_x);
    const int n_pieces = (int)(to.n_in / 8), n_there = row >= 0 ? (int)(to.n_x / 8) : 0, thread = (int)threadIdx.x;
    input_piece kept[KEPT];
    float most = 0.0f, times, back;
#pragma unroll
    for (int k = 0; k < KEPT; k++) kept[k] = piece_of(from, thread + k * THREADS, thread + k * THREADS < n_there);
#pragma unroll
    for (int k = 0; k < KEPT; k++) most = fmaxf(most, fmaxf(most_of(kept[k].first), most_of(kept[k].second)));
    for (int i = thread + KEPT * THREADS; i < n_there; i += THREADS) {
        const input_piece piece = piece_of(from, i, true);
        most = fmaxf(most, fmaxf(most_of(piece.first), most_of(piece.second)));
    }
    most = warp_max(most);
    if (thread % 32 == 0) parts[thread / 32] = most;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) most = fmaxf(most, parts[i]);
    power_for(most, &times, &back);
    if (thread == 0) to.factors[slot] = back;
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if (k * THREADS < n_pieces) put_piece<FORM>(to, slot, thread + k * THREADS, thread + k * THREADS < n_pieces, kept[k], times);
    for (int base = KEPT * THREADS; base < n_pieces; base += THREADS) {
        const bool on = base + thread < n_pieces;
        put_piece<FORM>(to, slot, base + thread, on, piece_of(from, base + thread, base + thread < n_there), times);
    }
}

static cudaError_t prepare(const float *x, const int *row_of, bool own_rows, int64_t n, const apr_abreast_inputs *to, cudaStream_t stream)
{
    const unsigned n_slots = (unsigned)(to->n_tiles * APR_ABREAST_TILE);
    if (to->n_in % ABREAST_SUB != 0 || to->n_x % ABREAST_SUB != 0 || to->n_x > to->n_in || (uintptr_t)x % 16 != 0)
        return cudaErrorNotSupported;
    static void (*const kernels[])(const float *, const int *, bool, int64_t, apr_abreast_inputs) = {
        k_inputs<APR_ABREAST_HALVES>, k_inputs<APR_ABREAST_BFLOATS>, k_inputs<APR_ABREAST_WIDE>};
    const auto kernel = kernels[to->form];
    /* As the kernels behind it, which need not wait then until memory is divided anew. */
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    return launch_following(kernel, n_slots, THREADS, 0, stream, x, row_of, own_rows, n, *to);
}

cudaError_t apr_cuda_abreast_prepare(const float *x, const int *row_of, int64_t n, const apr_abreast_inputs *to, cudaStream_t stream)
{
    return prepare(x, row_of, row_of == NULL, n, to, stream);
}

cudaError_t apr_cuda_abreast_prepare_slots(const float *x, const int *taken, const apr_abreast_inputs *to, cudaStream_t stream)
{
    return prepare(x, taken, true, to->n_tiles * APR_ABREAST_TILE, to, stream);
}
