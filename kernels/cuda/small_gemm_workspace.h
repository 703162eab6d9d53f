/* small_gemm_workspace.h - workspace sizes of the small GEMM (small_gemm/small_gemm.cuh). The planner and the code that divides the workspace share these
 * functions.
 *
 * Offsets are bytes from the start of the workspace, each a multiple of 256. */
#ifndef APR_KERNELS_CUDA_SMALL_GEMM_WORKSPACE_H
#define APR_KERNELS_CUDA_SMALL_GEMM_WORKSPACE_H

#include "kernels/cuda/api.h"

/* X(ID): types that have a small GEMM. Tiled types (decode_gemv_args.h) are read untiled only where each row is a multiple of 16 bytes. That
 * excludes Q6_K, Q8_0 and MXFP4. */
#define APR_SMALL_GEMM_K(X)      X(Q4_K) X(Q6_K)
#define APR_SMALL_GEMM_BLOCKS(X) X(Q4_0) X(Q8_0) X(MXFP4)
#define APR_SMALL_GEMM_PLAIN(X)  X(F16) X(BF16)
/* Types with a WGMMA kernel, on devices that have WGMMA. */
#define APR_SMALL_GEMM_WGMMA_TYPES(X) X(Q4_K) X(Q6_K) X(MXFP4)

enum {
    APR_SMALL_GEMM_TILE = 8,        /* tokens of a tile */
    APR_SMALL_GEMM_MAX_TOKENS = 64, /* tokens: the range in which small GEMMs are preferred */
    APR_SMALL_GEMM_MAX_TILES = 4,   /* multiplied at a time */
    APR_SMALL_GEMM_MAX_ROWS = 256,  /* rows of a row block */
    APR_SMALL_GEMM_MAX_SPLITS = 4,  /* split-K parts of an expert's columns */
    APR_PAIRS_MAX_EXPERTS = 1024,
    APR_SMALL_GEMM_MAX_BATCH = 65536, /* tokens of experts at a time, however large the workspace */
    APR_SMALL_GEMM_ENOUGH_MIB = 256,  /* workspace that a plan gives to experts at most, if more tokens at a time would need more */
};

/* Consecutive tiles of tokens that are routed to one expert; see ops/pairs.cuh. */
typedef struct apr_small_gemm_group {
    int expert, first_tile, n_tiles;
} apr_small_gemm_group;

static inline bool apr_small_gemm_has(apr_dtype dtype)
{
    bool has = false;
#define X(id) has |= dtype == APR_##id;
    APR_SMALL_GEMM_K(X)
    APR_SMALL_GEMM_BLOCKS(X)
    APR_SMALL_GEMM_PLAIN(X)
#undef X
    return has;
}

static inline bool apr_small_gemm_has_wgmma(apr_dtype dtype)
{
    bool may = false;
#define X(id) may |= dtype == APR_##id;
    APR_SMALL_GEMM_WGMMA_TYPES(X)
#undef X
    return may;
}

/* Columns that rows may be padded to (decode_gemv_args.h), for any type. */
static inline int64_t apr_small_gemm_columns(int64_t n_in) { return (n_in + 255) / 256 * 256; }

/* Whether a matrix whose rows end within a tile is padded to whole tiles where several sequences need the small GEMM. */
static inline bool apr_small_gemm_pads(apr_dtype dtype, int64_t n_out, int64_t n_in)
{
    const int64_t columns = apr_tile_columns(dtype);
    return apr_small_gemm_has(dtype) && columns > 0 && n_in % columns != 0 && n_in % 32 == 0 && n_out % APR_ROW_GROUP == 0;
}

static inline size_t apr_small_gemm_fragment_bytes(int64_t n_tiles, int64_t n_in) { return (size_t)(n_tiles * n_in) * 32; }
static inline size_t apr_small_gemm_sum_bytes(int64_t n_tiles, int64_t n_in) { return (size_t)(n_tiles * ((n_in + 255) / 256)) * 256; }

/* Stream-K partial sums: of the row blocks that several thread blocks share. One size for all matrices and any number of tokens. */
static inline size_t apr_cuda_small_gemm_partial_bytes(int n_multiprocessors)
{
    return (size_t)2 * (size_t)n_multiprocessors * APR_SMALL_GEMM_MAX_ROWS * (APR_SMALL_GEMM_MAX_TILES * APR_SMALL_GEMM_TILE) *
           sizeof(float);
}

/* Takes the next n_bytes of a workspace; *end bytes are in use before. Returns their offset. */
static inline size_t apr_workspace_take(size_t *end, size_t n_bytes)
{
    const size_t at = *end;
    *end += apr_cuda_round(n_bytes);
    return at;
}

typedef struct apr_small_gemm_inputs_offsets {
    size_t fragments, sums, factors;
} apr_small_gemm_inputs_offsets;

static inline apr_small_gemm_inputs_offsets apr_small_gemm_take_inputs(size_t *end, int64_t n_tiles, int64_t n_in)
{
    apr_small_gemm_inputs_offsets offsets;
    offsets.fragments = apr_workspace_take(end, apr_small_gemm_fragment_bytes(n_tiles, n_in));
    offsets.sums = apr_workspace_take(end, apr_small_gemm_sum_bytes(n_tiles, n_in));
    offsets.factors = apr_workspace_take(end, (size_t)n_tiles * APR_SMALL_GEMM_TILE * sizeof(float));
    return offsets;
}

/* --- a linear --- */

typedef struct apr_small_gemm_linear_offsets {
    apr_small_gemm_inputs_offsets inputs;
    int64_t n_tiles;
    size_t partial, n_bytes;
} apr_small_gemm_linear_offsets;

static inline apr_small_gemm_linear_offsets apr_cuda_small_gemm_linear_offsets(int64_t n_tokens, int64_t n_in, int n_multiprocessors)
{
    apr_small_gemm_linear_offsets offsets;
    offsets.n_bytes = 0;
    offsets.n_tiles = (n_tokens + APR_SMALL_GEMM_TILE - 1) / APR_SMALL_GEMM_TILE;
    offsets.inputs = apr_small_gemm_take_inputs(&offsets.n_bytes, offsets.n_tiles, n_in);
    offsets.partial = apr_workspace_take(&offsets.n_bytes, apr_cuda_small_gemm_partial_bytes(n_multiprocessors));
    return offsets;
}

static inline size_t apr_cuda_linear_small_gemm_bytes(int64_t n_tokens, int64_t n_in, int n_multiprocessors)
{
    return apr_cuda_small_gemm_linear_offsets(n_tokens, n_in, n_multiprocessors).n_bytes;
}

/* --- decode batches (rows_args.h): the slots, then partial sums --- */

static inline size_t apr_cuda_rows_slot_bytes(int64_t widest)
{
    size_t n_bytes = 0;
    apr_small_gemm_take_inputs(&n_bytes, APR_ROWS_MAX_TOKENS / APR_SMALL_GEMM_TILE, apr_small_gemm_columns(widest));
    return n_bytes;
}

static inline size_t apr_cuda_rows_bytes(int64_t widest, int n_multiprocessors)
{
    return APR_ROWS_SLOTS * apr_cuda_rows_slot_bytes(widest) + apr_cuda_round(apr_cuda_small_gemm_partial_bytes(n_multiprocessors));
}

/* Rows of logits that a session allocates: as many as are asked for, but with several sequences at least one row for each of a full batch.
 */
static inline int64_t apr_cuda_rows_logits(int64_t n_asked, int64_t n_sequences)
{
    return n_sequences > 1 && n_asked < APR_ROWS_MAX_TOKENS ? (int64_t)APR_ROWS_MAX_TOKENS : n_asked;
}

/* --- experts --- */

/* Maximum number of tiles that so many pairs of token and expert need. */
static inline int64_t apr_pairs_max_tiles(int64_t n_pairs, int64_t n_experts)
{
    const int64_t most = n_pairs / APR_SMALL_GEMM_TILE + n_experts;
    return n_pairs < most ? n_pairs : most;
}

/* The split-K factor that gives a multiprocessor the least work when there is one token. Many tokens are enough work without a split.
 * Storing a run's sums takes about as long as a stage. */
static inline int apr_small_gemm_splits(int64_t n_tokens, int64_t n_used, int64_t n_rows, int64_t n_in, int n_multiprocessors)
{
    const int64_t runs = n_used * ((n_rows + APR_SMALL_GEMM_MAX_ROWS - 1) / APR_SMALL_GEMM_MAX_ROWS),
                  n_stages = apr_small_gemm_columns(n_in) / 256;
    int64_t best = INT64_MAX;
    int splits = 1;
    for (int s = 1; s <= APR_SMALL_GEMM_MAX_SPLITS && s <= n_stages && n_tokens <= APR_SMALL_GEMM_MAX_TOKENS; s++) {
        const int64_t most = (runs * s + n_multiprocessors - 1) / n_multiprocessors * ((n_stages + s - 1) / s + 1);
        if (most < best) best = most, splits = s;
    }
    return splits;
}

typedef struct apr_small_gemm_experts_offsets {
    size_t slot_of, token_of, groups, n_groups; /* apr_pairs */
    apr_small_gemm_inputs_offsets x, mid;
    size_t gate, up, down; /* [splits, slots, n_mid] twice, [splits, slots, n_out] */
    int64_t n_slots, most_tiles;
    int gate_splits, down_splits;
    size_t n_bytes;
} apr_small_gemm_experts_offsets;

/* Offsets for n_tokens tokens at a time. Of `a` only sizes are read, and whether there is a gate. */
static inline apr_small_gemm_experts_offsets apr_cuda_small_gemm_experts_offsets(const apr_experts_args *a, int64_t n_tokens,
                                                                                 int n_multiprocessors)
{
    apr_small_gemm_experts_offsets offsets;
    const int64_t n_pairs = n_tokens * a->n_used, n_tiles = apr_pairs_max_tiles(n_pairs, a->n_experts);
    const size_t slots = (size_t)(n_tiles * APR_SMALL_GEMM_TILE), mid = slots * (size_t)a->n_mid * sizeof(float);
    const size_t gates = a->gate != NULL ? 1 : 0;
    size_t *const end = &offsets.n_bytes;
    offsets.n_bytes = 0;
    offsets.most_tiles = n_tiles;
    offsets.n_slots = (int64_t)slots;
    offsets.gate_splits = apr_small_gemm_splits(n_tokens, a->n_used, (int64_t)(1 + gates) * a->n_mid, a->n_in, n_multiprocessors);
    offsets.down_splits = apr_small_gemm_splits(n_tokens, a->n_used, a->n_out, a->n_mid, n_multiprocessors);
    offsets.slot_of = apr_workspace_take(end, (size_t)n_pairs * sizeof(int));
    offsets.token_of = apr_workspace_take(end, slots * sizeof(int));
    offsets.groups = apr_workspace_take(end, (size_t)n_tiles * sizeof(apr_small_gemm_group));
    offsets.n_groups = apr_workspace_take(end, sizeof(int));
    offsets.x = apr_small_gemm_take_inputs(end, n_tiles, apr_small_gemm_columns(a->n_in));
    offsets.mid = apr_small_gemm_take_inputs(end, n_tiles, apr_small_gemm_columns(a->n_mid));
    offsets.gate = apr_workspace_take(end, gates * mid * (size_t)offsets.gate_splits);
    offsets.up = apr_workspace_take(end, mid * (size_t)offsets.gate_splits);
    offsets.down = apr_workspace_take(end, slots * (size_t)a->n_out * sizeof(float) * (size_t)offsets.down_splits);
    return offsets;
}

static inline size_t apr_cuda_experts_small_gemm_bytes(const apr_experts_args *a, int64_t n_tokens, int n_multiprocessors)
{
    return apr_cuda_small_gemm_experts_offsets(a, n_tokens, n_multiprocessors).n_bytes;
}

/* Bytes that a plan gives to experts: for n_batch tokens, halved until it is at most APR_SMALL_GEMM_ENOUGH_MIB, but at least enough for
 * APR_SMALL_GEMM_MAX_TOKENS tokens, so that results do not depend on the batch. 0: too many experts for the small GEMM. */
static inline size_t apr_cuda_experts_small_gemm_room(const apr_experts_args *a, int64_t n_batch, int n_multiprocessors)
{
    int64_t n = n_batch < APR_SMALL_GEMM_MAX_BATCH ? n_batch : (int64_t)APR_SMALL_GEMM_MAX_BATCH;
    if (a->n_experts > APR_PAIRS_MAX_EXPERTS) return 0;
    const size_t least = apr_cuda_experts_small_gemm_bytes(a, APR_SMALL_GEMM_MAX_TOKENS, n_multiprocessors);
    while (n > APR_SMALL_GEMM_MAX_TOKENS && apr_cuda_experts_small_gemm_bytes(a, n, n_multiprocessors) > (size_t)APR_SMALL_GEMM_ENOUGH_MIB
                                                                                                             << 20)
        n = (n + 1) / 2;
    const size_t most = n > APR_SMALL_GEMM_MAX_TOKENS ? apr_cuda_experts_small_gemm_bytes(a, n, n_multiprocessors) : 0;
    return most > least ? most : least;
}

#endif
