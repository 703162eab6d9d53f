/* experts_abreast.cu - experts of many tokens: tokens sorted by expert (pairs.cuh), each expert's matrices read for all its tokens at once.
 *
 * A row's columns are summed in parts that depend on shapes alone where tokens are few, so that there is work for all multiprocessors when
 * one token has eight small matrices; many tokens are work enough. */
#include "kernels/cuda/ops/follow.cuh"
#include "kernels/cuda/ops/pairs.cuh"

enum { BLOCK = 256 };

/* Where everything lies in a workspace of some tokens; see kernels/cuda/abreast_room.h. */
typedef struct experts_buffers {
    apr_pairs pairs;
    apr_abreast_inputs x, mid;
    float *gate, *up, *middle, *down; /* [splits, slots, n_mid] twice, [slots, n_mid], [splits, slots, n_out] */
    int64_t n_slots, most_tiles;
    int gate_splits, down_splits;
} experts_buffers;

/* Columns of a matrix' rows as they lie. */
static int64_t columns_of(const apr_tensor *matrix, int64_t n_in)
{
    return matrix->in_items ? apr_items_columns(matrix->dtype, n_in) : n_in;
}

static apr_abreast_inputs inputs_at(uint8_t *work, const apr_abreast_inputs_room &room, int64_t n_tiles, int64_t n_in,
                                    const apr_tensor *matrix)
{
    return apr_abreast_inputs{columns_of(matrix, n_in),
                              n_in,
                              n_tiles,
                              work + room.fragments,
                              work + room.sums,
                              (float *)(work + room.factors),
                              apr_cuda_abreast_form(matrix->dtype)};
}

static experts_buffers cut(uint8_t *work, const apr_experts_args *a, int64_t n_tokens, int n_multiprocessors)
{
    const apr_experts_room room = apr_cuda_experts_room(a, n_tokens, n_multiprocessors);
    experts_buffers b = {};
    b.most_tiles = room.most_tiles, b.n_slots = room.n_slots;
    b.gate_splits = room.gate_splits, b.down_splits = room.down_splits;
    b.pairs.slot_of = (int *)(work + room.slot_of);
    b.pairs.token_of = (int *)(work + room.token_of);
    b.pairs.pair_of = (int *)(work + room.pair_of);
    b.pairs.groups = (apr_abreast_group *)(work + room.groups);
    b.pairs.n_groups = (int *)(work + room.n_groups);
    b.x = inputs_at(work, room.x, room.most_tiles, a->n_in, a->up);
    b.mid = inputs_at(work, room.mid, room.most_tiles, a->n_mid, a->down);
    b.gate = (float *)(work + room.gate), b.up = (float *)(work + room.up);
    b.middle = (float *)(work + room.middle), b.down = (float *)(work + room.down);
    return b;
}

/* --- between the products --- */

static __device__ __forceinline__ float summed(const float *sums, int64_t plane, int splits, int64_t at)
{
    float sum = 0.0f;
    for (int s = 0; s < splits; s++) sum += __ldcg(sums + s * plane + at);
    return sum;
}

/* A slot's gated unit. Weights on inputs are multiplied with here: products are linear. */
static __global__ void __launch_bounds__(BLOCK)
    k_unit(const __grid_constant__ apr_experts_args a, const __grid_constant__ experts_buffers b)
{
    follow_previous();
    const int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x, slot = at / a.n_mid, i = at % a.n_mid;
    if (slot >= b.n_slots) return;
    const int pair = __ldcg(b.pairs.pair_of + slot);
    if (pair < 0) return;
    const float *const route = a.routes + pair / a.n_used * apr_route_row(a.n_used) + pair % a.n_used;
    const int64_t expert = (int64_t)__ldcg(route), plane = b.n_slots * a.n_mid;
    const float factor = __ldcg(b.x.factors + slot) * (a.weight_on_input ? __ldcg(route + a.n_used) : 1.0f);
    const float up = summed(b.up, plane, b.gate_splits, at) * factor + (a.up_bias != NULL ? a.up_bias[expert * a.n_mid + i] : 0.0f);
    float value = 0.0f;
    if (a.gate == NULL) value = apr_activate(a.glu.activation, up);
    else
        value = apr_glu_of(
            &a.glu, summed(b.gate, plane, b.gate_splits, at) * factor + (a.gate_bias != NULL ? a.gate_bias[expert * a.n_mid + i] : 0.0f),
            up);
    b.middle[at] = value;
}

/* out[t][r] = sum over ranks, the best first. */
static __global__ void __launch_bounds__(BLOCK)
    k_ranks(const __grid_constant__ apr_experts_args a, const __grid_constant__ experts_buffers b)
{
    follow_previous();
    const int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x, t = at / a.n_out, r = at % a.n_out;
    if (t >= a.n_tokens) return;
    const float *const route = a.routes + t * apr_route_row(a.n_used);
    float sum = 0.0f;
    for (int64_t k = 0; k < a.n_used; k++) {
        const int64_t slot = __ldcg(b.pairs.slot_of + t * a.n_used + k), expert = (int64_t)__ldcg(route + k);
        const float bias = a.down_bias != NULL ? a.down_bias[expert * a.n_out + r] : 0.0f;
        const float y = summed(b.down, b.n_slots * a.n_out, b.down_splits, slot * a.n_out + r) * __ldcg(b.mid.factors + slot) + bias;
        sum = a.weight_on_input ? sum + y : fmaf(y, __ldcg(route + a.n_used + k), sum);
    }
    a.out[at] = sum;
}

/* --- the operation --- */

static unsigned blocks_of(int64_t n) { return (unsigned)((n + BLOCK - 1) / BLOCK); }

static cudaError_t multiply(const experts_buffers *b, apr_abreast_args args, const apr_abreast_inputs *inputs, int64_t rows, int splits,
                            int group_tiles, int n_multiprocessors, cudaStream_t stream)
{
    args.inputs = *inputs;
    args.groups = b->pairs.groups, args.n_groups = b->pairs.n_groups;
    args.most_groups = (int)b->most_tiles, args.most_tiles = group_tiles;
    args.matrix_rows = rows, args.n_slots = b->n_slots, args.splits = splits;
    return apr_cuda_abreast(&args, n_multiprocessors, stream);
}

static cudaError_t some_tokens(const apr_experts_args *a, int group_tiles, int n_multiprocessors, cudaStream_t stream)
{
    const experts_buffers b = cut((uint8_t *)a->work.data, a, a->n_tokens, n_multiprocessors);
    apr_abreast_args first = {}, second = {};
    if (a->gate != NULL) first.parts[first.n_parts++] = apr_abreast_part{a->gate, NULL, b.gate};
    first.parts[first.n_parts++] = apr_abreast_part{a->up, NULL, b.up};
    second.parts[second.n_parts++] = apr_abreast_part{a->down, NULL, b.down};

    cudaError_t error = apr_cuda_sort_pairs(a->routes, a->n_tokens, a->n_used, a->n_experts, group_tiles, &b.pairs, stream);
    if (error == cudaSuccess) error = apr_cuda_abreast_prepare(a->x, b.pairs.token_of, a->n_tokens, &b.x, stream);
    if (error == cudaSuccess) error = multiply(&b, first, &b.x, a->n_mid, b.gate_splits, group_tiles, n_multiprocessors, stream);
    if (error == cudaSuccess) error = launch_following(k_unit, blocks_of(b.n_slots * a->n_mid), BLOCK, 0, stream, *a, b);
    if (error == cudaSuccess) error = apr_cuda_abreast_prepare_slots(b.middle, b.pairs.pair_of, &b.mid, stream);
    if (error == cudaSuccess) error = multiply(&b, second, &b.mid, a->n_out, b.down_splits, group_tiles, n_multiprocessors, stream);
    if (error == cudaSuccess) error = launch_following(k_ranks, blocks_of(a->n_tokens * a->n_out), BLOCK, 0, stream, *a, b);
    return error;
}

static bool goes(const apr_tensor *m, int64_t rows, int64_t n_in, int major)
{
    return m->packing == NULL && m->scale == NULL && m->pending.kind == APR_STEP_NONE && (uintptr_t)m->data % 16 == 0 &&
           apr_cuda_goes_abreast(m->dtype, m->in_items, rows, columns_of(m, n_in), major);
}

/* Tokens that are computed at a time: of up to 64 always all, for their numbers; more as the workspace has room for. 0: it has none. */
static int64_t tokens_at_a_time(const apr_experts_args *a, int n_multiprocessors)
{
    const size_t room = a->work.slice * sizeof(float);
    int64_t n = a->n_tokens;
    if (apr_cuda_experts_abreast_bytes(a, APR_ABREAST_MOST, n_multiprocessors) > room) return 0;
    while (n > APR_ABREAST_MOST && apr_cuda_experts_abreast_bytes(a, n, n_multiprocessors) > room) n = (n + 1) / 2;
    return n;
}

/* Tiles of a group: as many as an expert may have, or, where tiles that are not there are multiplied as well, as most have. 0: no kernel.
 */
static int group_tiles_of(const apr_experts_args *a, apr_dtype dtype, int64_t n_tokens)
{
    const int most = apr_cuda_abreast_group_tiles(dtype, n_tokens);
    const int64_t twice_usual = 2 * n_tokens * a->n_used / a->n_experts;
    int n = 1;
    if (apr_cuda_abreast_form(dtype) != APR_ABREAST_WIDE) return most;
    while (n < most && n * APR_ABREAST_TILE < twice_usual) n *= 2;
    return n < most ? n : most;
}

cudaError_t apr_cuda_experts_abreast(const apr_experts_args *a, int n_multiprocessors, int major, cudaStream_t stream)
{
    if (!goes(a->up, a->n_mid, a->n_in, major) || !goes(a->down, a->n_out, a->n_mid, major)) return cudaErrorNotSupported;
    if (a->gate != NULL &&
        (!goes(a->gate, a->n_mid, a->n_in, major) || a->gate->dtype != a->up->dtype || a->gate->in_items != a->up->in_items))
        return cudaErrorNotSupported;
    if ((uintptr_t)a->x % 16 != 0 || (uintptr_t)a->work.data % 16 != 0 || a->n_experts > APR_PAIRS_MOST_EXPERTS)
        return cudaErrorNotSupported;
    const int64_t most = tokens_at_a_time(a, n_multiprocessors);
    const int of_up = group_tiles_of(a, a->up->dtype, most), of_down = group_tiles_of(a, a->down->dtype, most);
    const int group_tiles = of_up < of_down ? of_up : of_down;
    cudaError_t error = cudaSuccess;

    if (most == 0 || group_tiles == 0) return cudaErrorNotSupported;
    for (int64_t first = 0; first < a->n_tokens && error == cudaSuccess; first += most) {
        apr_experts_args some = *a;
        some.n_tokens = a->n_tokens - first < most ? a->n_tokens - first : most;
        some.x = a->x + first * a->n_in;
        some.routes = a->routes + first * apr_route_row(a->n_used);
        some.out = a->out + first * a->n_out;
        error = some_tokens(&some, group_tiles, n_multiprocessors, stream);
    }
    return error;
}
