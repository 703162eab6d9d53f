/* abreast_room.h - workspace sizes of the small GEMM (ops/abreast.cuh). The planner and the code that divides the workspace share these
 * functions.
 *
 * Offsets are bytes from the start of the workspace, each a multiple of 256. */
#ifndef APR_KERNELS_CUDA_ABREAST_ROOM_H
#define APR_KERNELS_CUDA_ABREAST_ROOM_H

#include "kernels/cuda/api.h"

/* X(ID): types that have a small GEMM. Tiled types (flow_args.h) are read untiled only where each row is a multiple of 16 bytes. That
 * excludes Q6_K, Q8_0 and MXFP4. */
#define APR_ABREAST_K(X)      X(Q4_K) X(Q6_K)
#define APR_ABREAST_BLOCKS(X) X(Q4_0) X(Q8_0) X(MXFP4)
#define APR_ABREAST_PLAIN(X)  X(F16) X(BF16)
/* Types with a WGMMA kernel, on devices that have WGMMA. */
#define APR_ABREAST_WIDE_TYPES(X) X(Q4_K) X(Q6_K)

enum {
    APR_ABREAST_TILE = 8,        /* tokens of a tile */
    APR_ABREAST_MOST = 64,       /* tokens: the range in which small GEMMs are preferred */
    APR_ABREAST_MOST_TILES = 4,  /* multiplied at a time */
    APR_ABREAST_MOST_ROWS = 256, /* rows of a row block */
    APR_ABREAST_MOST_SPLITS = 4, /* split-K parts of an expert's columns */
    APR_PAIRS_MOST_EXPERTS = 1024,
    APR_ABREAST_MOST_BATCH = 65536, /* tokens of experts at a time, however large the workspace */
    APR_ABREAST_ENOUGH_MIB = 256,   /* workspace that a plan gives to experts at most, if more tokens at a time would need more */
};

/* Consecutive tiles of tokens that are routed to one expert; see ops/pairs.cuh. */
typedef struct apr_abreast_group {
    int expert, first_tile, n_tiles;
} apr_abreast_group;

static inline bool apr_abreast_has(apr_dtype dtype)
{
    bool has = false;
#define X(id) has |= dtype == APR_##id;
    APR_ABREAST_K(X)
    APR_ABREAST_BLOCKS(X)
    APR_ABREAST_PLAIN(X)
#undef X
    return has;
}

static inline bool apr_abreast_may_be_wide(apr_dtype dtype)
{
    bool may = false;
#define X(id) may |= dtype == APR_##id;
    APR_ABREAST_WIDE_TYPES(X)
#undef X
    return may;
}

static inline size_t apr_abreast_fragment_bytes(int64_t n_tiles, int64_t n_in) { return (size_t)(n_tiles * n_in) * 32; }
static inline size_t apr_abreast_sum_bytes(int64_t n_tiles, int64_t n_in) { return (size_t)(n_tiles * ((n_in + 255) / 256)) * 256; }

/* Stream-K partial sums: of the row blocks that several thread blocks share. One size for all matrices and any number of tokens. */
static inline size_t apr_cuda_abreast_partial_bytes(int n_multiprocessors)
{
    return (size_t)2 * (size_t)n_multiprocessors * APR_ABREAST_MOST_ROWS * (APR_ABREAST_MOST_TILES * APR_ABREAST_TILE) * sizeof(float);
}

/* Takes the next n_bytes of a workspace; *end bytes are in use before. Returns their offset. */
static inline size_t apr_abreast_take(size_t *end, size_t n_bytes)
{
    const size_t at = *end;
    *end += apr_cuda_round(n_bytes);
    return at;
}

typedef struct apr_abreast_inputs_room {
    size_t fragments, sums, factors;
} apr_abreast_inputs_room;

static inline apr_abreast_inputs_room apr_abreast_take_inputs(size_t *end, int64_t n_tiles, int64_t n_in)
{
    apr_abreast_inputs_room room;
    room.fragments = apr_abreast_take(end, apr_abreast_fragment_bytes(n_tiles, n_in));
    room.sums = apr_abreast_take(end, apr_abreast_sum_bytes(n_tiles, n_in));
    room.factors = apr_abreast_take(end, (size_t)n_tiles * APR_ABREAST_TILE * sizeof(float));
    return room;
}

/* --- a linear --- */

typedef struct apr_linear_room {
    apr_abreast_inputs_room inputs;
    int64_t n_tiles;
    size_t partial, n_bytes;
} apr_linear_room;

static inline apr_linear_room apr_cuda_linear_room(int64_t n_tokens, int64_t n_in, int n_multiprocessors)
{
    apr_linear_room room;
    room.n_bytes = 0;
    room.n_tiles = (n_tokens + APR_ABREAST_TILE - 1) / APR_ABREAST_TILE;
    room.inputs = apr_abreast_take_inputs(&room.n_bytes, room.n_tiles, n_in);
    room.partial = apr_abreast_take(&room.n_bytes, apr_cuda_abreast_partial_bytes(n_multiprocessors));
    return room;
}

static inline size_t apr_cuda_linear_abreast_bytes(int64_t n_tokens, int64_t n_in, int n_multiprocessors)
{
    return apr_cuda_linear_room(n_tokens, n_in, n_multiprocessors).n_bytes;
}

/* --- decode batches (rows_args.h): the slots, then partial sums --- */

static inline size_t apr_cuda_rows_slot_bytes(int64_t widest)
{
    size_t n_bytes = 0;
    apr_abreast_take_inputs(&n_bytes, APR_ROWS_MOST / APR_ABREAST_TILE, widest);
    return n_bytes;
}

static inline size_t apr_cuda_rows_bytes(int64_t widest, int n_multiprocessors)
{
    return APR_ROWS_SLOTS * apr_cuda_rows_slot_bytes(widest) + apr_cuda_round(apr_cuda_abreast_partial_bytes(n_multiprocessors));
}

/* Rows of logits that a session allocates: as many as are asked for, but with several sequences at least one row for each of a full batch.
 */
static inline int64_t apr_cuda_rows_logits(int64_t n_asked, int64_t n_sequences)
{
    return n_sequences > 1 && n_asked < APR_ROWS_MOST ? (int64_t)APR_ROWS_MOST : n_asked;
}

/* --- experts --- */

/* Maximum number of tiles that so many pairs of token and expert need. */
static inline int64_t apr_pairs_most_tiles(int64_t n_pairs, int64_t n_experts)
{
    const int64_t most = n_pairs / APR_ABREAST_TILE + n_experts;
    return n_pairs < most ? n_pairs : most;
}

/* Columns that rows of experts may be padded to (flow_args.h), for any type. */
static inline int64_t apr_abreast_columns(int64_t n_in) { return (n_in + 255) / 256 * 256; }

/* The split-K factor that gives a multiprocessor the least work when there is one token. Many tokens are enough work without a split.
 * Storing a run's sums takes about as long as a stage. */
static inline int apr_abreast_splits(int64_t n_tokens, int64_t n_used, int64_t n_rows, int64_t n_in, int n_multiprocessors)
{
    const int64_t runs = n_used * ((n_rows + APR_ABREAST_MOST_ROWS - 1) / APR_ABREAST_MOST_ROWS),
                  n_stages = apr_abreast_columns(n_in) / 256;
    int64_t best = INT64_MAX;
    int splits = 1;
    for (int s = 1; s <= APR_ABREAST_MOST_SPLITS && s <= n_stages && n_tokens <= APR_ABREAST_MOST; s++) {
        const int64_t most = (runs * s + n_multiprocessors - 1) / n_multiprocessors * ((n_stages + s - 1) / s + 1);
        if (most < best) best = most, splits = s;
    }
    return splits;
}

typedef struct apr_experts_room {
    size_t slot_of, token_of, pair_of, groups, n_groups; /* apr_pairs */
    apr_abreast_inputs_room x, mid;
    size_t gate, up, down; /* [splits, slots, n_mid] twice, [splits, slots, n_out] */
    int64_t n_slots, most_tiles;
    int gate_splits, down_splits;
    size_t n_bytes;
} apr_experts_room;

/* Offsets for n_tokens tokens at a time. Of `a` only sizes are read, and whether there is a gate. */
static inline apr_experts_room apr_cuda_experts_room(const apr_experts_args *a, int64_t n_tokens, int n_multiprocessors)
{
    apr_experts_room room;
    const int64_t n_pairs = n_tokens * a->n_used, n_tiles = apr_pairs_most_tiles(n_pairs, a->n_experts);
    const size_t slots = (size_t)(n_tiles * APR_ABREAST_TILE), mid = slots * (size_t)a->n_mid * sizeof(float);
    const size_t gates = a->gate != NULL ? 1 : 0;
    size_t *const end = &room.n_bytes;
    room.n_bytes = 0;
    room.most_tiles = n_tiles;
    room.n_slots = (int64_t)slots;
    room.gate_splits = apr_abreast_splits(n_tokens, a->n_used, (int64_t)(1 + gates) * a->n_mid, a->n_in, n_multiprocessors);
    room.down_splits = apr_abreast_splits(n_tokens, a->n_used, a->n_out, a->n_mid, n_multiprocessors);
    room.slot_of = apr_abreast_take(end, (size_t)n_pairs * sizeof(int));
    room.token_of = apr_abreast_take(end, slots * sizeof(int));
    room.pair_of = apr_abreast_take(end, slots * sizeof(int));
    room.groups = apr_abreast_take(end, (size_t)n_tiles * sizeof(apr_abreast_group));
    room.n_groups = apr_abreast_take(end, sizeof(int));
    room.x = apr_abreast_take_inputs(end, n_tiles, apr_abreast_columns(a->n_in));
    room.mid = apr_abreast_take_inputs(end, n_tiles, apr_abreast_columns(a->n_mid));
    room.gate = apr_abreast_take(end, gates * mid * (size_t)room.gate_splits);
    room.up = apr_abreast_take(end, mid * (size_t)room.gate_splits);
    room.down = apr_abreast_take(end, slots * (size_t)a->n_out * sizeof(float) * (size_t)room.down_splits);
    return room;
}

static inline size_t apr_cuda_experts_abreast_bytes(const apr_experts_args *a, int64_t n_tokens, int n_multiprocessors)
{
    return apr_cuda_experts_room(a, n_tokens, n_multiprocessors).n_bytes;
}

/* Bytes that a plan gives to experts: for n_batch tokens, halved until it is at most APR_ABREAST_ENOUGH_MIB, but at least enough for
 * APR_ABREAST_MOST tokens, so that results do not depend on the batch. 0: too many experts for the small GEMM. */
static inline size_t apr_cuda_experts_abreast_room(const apr_experts_args *a, int64_t n_batch, int n_multiprocessors)
{
    int64_t n = n_batch < APR_ABREAST_MOST_BATCH ? n_batch : (int64_t)APR_ABREAST_MOST_BATCH;
    if (a->n_experts > APR_PAIRS_MOST_EXPERTS) return 0;
    const size_t least = apr_cuda_experts_abreast_bytes(a, APR_ABREAST_MOST, n_multiprocessors);
    while (n > APR_ABREAST_MOST && apr_cuda_experts_abreast_bytes(a, n, n_multiprocessors) > (size_t)APR_ABREAST_ENOUGH_MIB << 20)
        n = (n + 1) / 2;
    const size_t most = n > APR_ABREAST_MOST ? apr_cuda_experts_abreast_bytes(a, n, n_multiprocessors) : 0;
    return most > least ? most : least;
}

#endif
