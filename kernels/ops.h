/* ops.h - the operations of a forward pass, and the backend: a table of functions for them.
 *
 * Activations are float32, one row a token: [n_tokens, width], rows without gaps. Weights stay as they are stored; an operation decodes
 * a few rows at a time into its workspace, so a quantized model is never expanded whole. Operations do not allocate and do not fail: a
 * session checks shapes when it binds a program to a model.
 *
 * Positions count from 0; the tokens of a call are at position, position + 1, ... On a device position_at, if it is not NULL, points to
 * the position in device memory instead, so that a recorded graph can run again for the next token. If `per_sequence` is set (device only),
 * each token belongs to another sequence: token t is at position_at[t], and uses its own sequence's cells. Keys and values of position p
 * are in cell p % n_cells of the cache or, where several sequences share the cells, in pages (apr_cache_cell). Backends agree within
 * bounds (float32 sums in different orders), not bit for bit. */
#ifndef APR_KERNELS_OPS_H
#define APR_KERNELS_OPS_H

#include "kernels/op_args.h"
#include "kernels/rows.h"

/* X(ID, id, name): APR_OP_ID, apr_op_args.id, apr_spec_id of runtime/program/op_spec.h, and the name in messages. */
#define APR_OP_LIST(X)                          \
    X(EMBED, embed, "embed")                    \
    X(POSITIONS, positions, "positions")        \
    X(ANGLES, angles, "rotary angles")          \
    X(NORM, norm, "norm")                       \
    X(LINEAR, linear, "linear")                 \
    X(ROPE, rope, "rope")                       \
    X(SLICE, slice, "slice")                    \
    X(JOIN, join, "join")                       \
    X(KV_STORE, kv_store, "kv store")           \
    X(INDEX, index, "index")                    \
    X(ATTEND, attend, "attend")                 \
    X(GLU, glu, "glu")                          \
    X(GATE, gate, "gate")                       \
    X(SCALE, scale, "scale")                    \
    X(MUL, mul, "mul")                          \
    X(SOFTCAP, softcap, "softcap")              \
    X(ADD, add, "add")                          \
    X(ALTUP, altup, "altup")                    \
    X(RESCALE, rescale, "rescale")              \
    X(GAUSS_TOPK, gauss_topk, "gaussian top-k") \
    X(ROUTE, route, "route")                    \
    X(EXPERTS, experts, "experts")              \
    X(CONV, conv, "conv")                       \
    X(DELTA, delta, "delta rule")               \
    X(SSD, ssd, "state-space duality")

typedef enum {
#define X(ID, id, name) APR_OP_##ID,
    APR_OP_LIST(X)
#undef X
        APR_OP_COUNT
} apr_op_kind;

const char *apr_op_name(apr_op_kind kind);

/* out[t] = row ids[t] of the table, or row 0 if the table has fewer rows (tables of per-layer inputs, Gemma 3n) */
typedef struct apr_embed_args {
    int64_t n_tokens, width, n_rows; /* n_rows 0: the table has a row for every token */
    const int32_t *ids;              /* [n_tokens] */
    const apr_tensor *table;         /* [n_rows, width] */
    float *out;                      /* [n_tokens, width] */
} apr_embed_args;

APR_HOST_DEVICE_INLINE int64_t apr_embed_row(const apr_embed_args *a, int64_t token)
{
    return a->n_rows > 0 && a->ids[token] >= a->n_rows ? 0 : (int64_t)a->ids[token];
}

/* Learned positions: out[t] = row position + t + first of the table. The caller plans no more positions than the table has. */
typedef struct apr_positions_args {
    int64_t n_tokens, width, position, first;
    const int64_t *position_at;
    bool per_sequence;
    const apr_tensor *table; /* [n_rows, width] */
    float *out;              /* [n_tokens, width] */
    apr_workspace work;      /* on a device: room for the numbers of the rows, n_tokens int32 */
} apr_positions_args;

/* Cosines and sines of every position's rotary angles, once for all layers:
 * out[t] = {cos(p * freq[j]) * magnitude, j < n_freqs}, {sin(p * freq[j]) * magnitude, j < n_freqs},  p = position + t */
typedef struct apr_angles_args {
    int64_t n_tokens, position, n_freqs;
    const int64_t *position_at;
    bool per_sequence;
    const float *freqs; /* [n_freqs] */
    float magnitude;
    float *out; /* [n_tokens, 2 * n_freqs] */
} apr_angles_args;

/* If each head has its own matrix: a range of rows inside the head's rows of the weight. */
typedef struct apr_linear_heads {
    int64_t n;       /* number of heads; 0: one matrix for all, and the rest is 0 */
    int64_t rows;    /* rows of the weight a head: head h begins at row h * rows ... */
    int64_t first;   /* ... and its matrix `first` rows later */
    bool transposed; /* the matrix is [n_in, n_out]: each input multiplies a row of it */
} apr_linear_heads;

/* out = x * weight^T + bias. With heads: out[t][h] = x[t][h] * matrix[h]^T, or x[t][h] * matrix[h] if transposed. Latent attention reads
 * both halves of one weight this way: the keys' rows transposed before the cache, the values' rows after it. */
typedef struct apr_linear_args {
    int64_t n_tokens, n_in, n_out; /* with heads: n_in and n_out of each */
    apr_linear_heads heads;
    const float *x;           /* [n_tokens, n_in]; with heads [n_tokens, heads.n, n_in] */
    const apr_tensor *weight; /* [n_out, n_in], any dtype that can be decoded; with heads [heads.n * heads.rows, n_in or n_out] */
    const float *bias;        /* [n_out] or NULL; with heads NULL */
    float *out;               /* [n_tokens, n_out]; with heads [n_tokens, heads.n, n_out] */
    apr_workspace work;       /* slice >= apr_linear_slice(columns of the weight) */
    bool is_router;           /* its output is what experts are chosen by */
} apr_linear_args;

/* The first row of head h's matrix in the weight, and the number of its rows. */
APR_HOST_DEVICE_INLINE int64_t apr_linear_first_row(const apr_linear_args *a, int64_t head)
{
    return head * a->heads.rows + a->heads.first;
}
APR_HOST_DEVICE_INLINE int64_t apr_linear_head_rows(const apr_linear_args *a) { return a->heads.transposed ? a->n_in : a->n_out; }

/* Which two numbers of a head are rotated together: j and j + n_freqs, or 2 j and 2 j + 1. */
typedef enum { APR_ROPE_HALVES, APR_ROPE_NEIGHBOURS } apr_rope_mode;

/* Rotates the numbers [start, start + 2 * n_freqs) of each head; the others stay. out may be x. */
typedef struct apr_rope_args {
    int64_t n_tokens, n_heads, head_dim, n_freqs, start;
    apr_rope_mode mode;
    const float *x;      /* [n_tokens, n_heads, head_dim] */
    const float *angles; /* [n_tokens, 2 * n_freqs] of APR_OP_ANGLES */
    float *out;          /* [n_tokens, n_heads, head_dim] */
    int n_threads;
} apr_rope_args;

/* Cells of a page: the unit in which cells are allocated to sequences. */
enum { APR_PAGE_CELLS = 64 };

/* One layer's keys or values: cell c, head h begins at data + (c * n_heads + h) * row_bytes. */
typedef struct apr_cache {
    apr_dtype dtype; /* F16, F32, Q8_0 or F8_E4M3 */
    uint8_t *data;   /* [n_cells, n_kv_heads, head_dim] */
    int64_t n_cells, row_bytes;
    const int32_t *pages; /* page table of the tokens' sequence: the page of positions [64 i, 64 i + 64); NULL: a ring of n_cells */
    /* With one token a sequence (`per_sequence`): token t has the page table at pages + t * pages_stride; or, in a ring, the cells at data +
     * slots[t] * slot_bytes. */
    int64_t pages_stride;
    const int32_t *slots;
    uint64_t slot_bytes;
} apr_cache;

APR_HOST_DEVICE_INLINE int64_t apr_cache_cell(const apr_cache *cache, int64_t position)
{
    if (cache->pages == NULL) return position % cache->n_cells;
    return (int64_t)cache->pages[position / APR_PAGE_CELLS] * APR_PAGE_CELLS + position % APR_PAGE_CELLS;
}

typedef struct apr_kv_store_args {
    int64_t n_tokens, position, n_kv_heads, key_dim, value_dim;
    const int64_t *position_at;
    bool per_sequence;
    const float *k; /* [n_tokens, n_kv_heads, key_dim] */
    const float *v; /* [n_tokens, n_kv_heads, value_dim], or NULL: values are the first numbers of the keys and not stored separately */
    apr_cache keys, values;
} apr_kv_store_args;

/* The index of sparse attention (DeepSeek V3.2): the n_chosen positions, up to a token's own, that score highest with the indexer's own
 * queries and keys. Equal scores: the lower position is chosen.
 *     score = scale * sum over heads: weights[h] * max(0, q[h] . key)
 * A token that has no more than n_chosen positions attends to all of them, and no scores are computed. */
typedef struct apr_index_args {
    int64_t n_tokens, position, n_heads, head_dim, n_chosen;
    const int64_t *position_at;
    bool per_sequence;
    float scale;
    const float *q;       /* [n_tokens, n_heads, head_dim] */
    const float *weights; /* [n_tokens, n_heads] */
    apr_cache keys;       /* one head; the tokens' own are already stored */
    float *out;           /* [n_tokens, apr_index_row(n_chosen)] */
    apr_workspace work;   /* slice >= apr_index_slice(...) */
} apr_index_args;

/* A token's row: the chosen positions, ascending, then -1 where it has fewer; its last number is the gap, as in a token's route. */
APR_HOST_DEVICE_INLINE int64_t apr_index_row(int64_t n_chosen) { return n_chosen + 1; }

/* A device chooses for a token in the shared memory of one thread block: entries of 8 bytes, twice as many as the power of two that holds
 * n_chosen (APR_INDEX_MOST_CHOSEN at most), and a key for each of APR_INDEX_WARPS warps. Larger indexes run on the host only. */
enum { APR_INDEX_WARPS = 8, APR_INDEX_MOST_CHOSEN = 2048, APR_INDEX_SHARED_BYTES = 48 * 1024 };
static inline int64_t apr_index_entries(int64_t n_chosen)
{
    int64_t n = 32;
    while (n < n_chosen && n < APR_INDEX_MOST_CHOSEN) n *= 2;
    return n;
}

/* The longest key that fits next to the entries, in numbers. */
static inline int64_t apr_index_longest_key(int64_t n_chosen)
{
    return (APR_INDEX_SHARED_BYTES - 16 * apr_index_entries(n_chosen)) / (APR_INDEX_WARPS * 4);
}

static inline bool apr_index_fits_device(int64_t n_chosen, int64_t head_dim)
{
    return n_chosen <= APR_INDEX_MOST_CHOSEN && head_dim <= apr_index_longest_key(n_chosen);
}

/* Causal attention of the tokens' queries to every position up to their own. A window limits it to the last `window` positions (0: all),
 * a chunk to positions in the token's own chunk of `chunk` positions (0: no chunks). Query head h reads key/value head h / (n_heads /
 * n_kv_heads). The tokens' own keys and values are already stored.
 *     score = scale * q . k, then softcap * tanh(score / softcap) if softcap > 0
 *     weights = exp(score) / (sum of exp(score) + exp(sinks[h])): a sink takes part in the softmax and has no value
 * With `chosen` a token attends to these positions only. It has neither window nor chunk then. */
typedef struct apr_attend_args {
    int64_t n_tokens, position, n_heads, n_kv_heads, key_dim, value_dim, window,
        chunk;                  /* position: with `per_sequence` at least the largest */
    const int64_t *position_at; /* read by a device; `position` then has the same apr_attend_split_end */
    bool per_sequence;
    float scale, softcap; /* softcap 0: none */
    const float *sinks;   /* [n_heads] or NULL */
    const float *q;       /* [n_tokens, n_heads, key_dim] */
    const float *chosen;  /* [n_tokens, apr_index_row(n_chosen)] of apr_index_args; NULL: all positions */
    int64_t n_chosen;
    apr_cache keys, values;
    float *out;         /* [n_tokens, n_heads, value_dim] */
    apr_workspace work; /* slice >= apr_attend_slice(...) */
    float *shared;      /* apr_attend_shared(...) floats, or NULL: the host does not split contexts between threads */
    /* On a device with a paged cache: scratch for n_gathered cells of keys, followed by those of values. The pages of one sequence are
     * gathered here in order. n_gathered is a multiple of APR_PAGE_CELLS. */
    uint8_t *gathered;
    int64_t n_gathered;
} apr_attend_args;

/* A device splits the context of a single token into parts, in the same way for all positions below this bound. So a graph recorded for
 * one of these positions is right for all (position_at), and the order of sums depends on the position alone. */
APR_HOST_DEVICE_INLINE int64_t apr_attend_split_end(int64_t position)
{
    int64_t end = 2048;
    while (end <= position) end *= 2;
    return end;
}

/* The first position that a token at position `own` attends to. */
APR_HOST_DEVICE_INLINE int64_t apr_attend_first(const apr_attend_args *a, int64_t own)
{
    const int64_t in_window = a->window > 0 && own >= a->window ? own - a->window + 1 : 0;
    const int64_t in_chunk = a->chunk > 0 ? own / a->chunk * a->chunk : 0;
    return in_window > in_chunk ? in_window : in_chunk;
}

/* The arguments of one token that attends to chosen positions: a context of as many positions, whose cells apr_attend_cell looks up. */
APR_HOST_DEVICE_INLINE apr_attend_args apr_attend_chosen(const apr_attend_args *all, int64_t token, int64_t own)
{
    apr_attend_args a = *all;
    a.n_tokens = 1;
    a.position = own < all->n_chosen ? own : all->n_chosen - 1;
    a.q += token * all->n_heads * all->key_dim;
    a.out += token * all->n_heads * all->value_dim;
    a.chosen += token * apr_index_row(all->n_chosen);
    return a;
}

/* The cell of position `at` of the context that a token attends to. */
APR_HOST_DEVICE_INLINE int64_t apr_attend_cell(const apr_attend_args *a, const apr_cache *cache, int64_t at)
{
    return apr_cache_cell(cache, a->chosen != NULL ? (int64_t)a->chosen[at] : at);
}

/* out = activation(gate) * up as in kernels/activation.h, or activation(gate) if up is NULL. out may be gate or up. */
typedef struct apr_glu_args {
    int64_t n_tokens, width;
    apr_glu_shape shape;
    const float *gate, *up; /* [n_tokens, width]; up or NULL */
    float *out;
    int n_threads;
    apr_workspace work; /* on a device: where the product that reads `out` finds it as FP16; slice 0: nowhere */
} apr_glu_args;

/* out = a + b. out may be a or b. */
typedef struct apr_add_args {
    int64_t n_tokens, width;
    const float *a, *b; /* [n_tokens, width] */
    float *out;
    int n_threads;
} apr_add_args;

typedef union apr_op_args {
    apr_embed_args embed;
    apr_positions_args positions;
    apr_angles_args angles;
    apr_norm_args norm;
    apr_linear_args linear;
    apr_rope_args rope;
    apr_kv_store_args kv_store;
    apr_index_args index;
    apr_attend_args attend;
    apr_glu_args glu;
    apr_add_args add;
    apr_slice_args slice;
    apr_join_args join;
    apr_scale_args scale;
    apr_mul_args mul;
    apr_softcap_args softcap;
    apr_gate_args gate;
    apr_altup_args altup;
    apr_rescale_args rescale;
    apr_gauss_topk_args gauss_topk;
    apr_route_args route;
    apr_experts_args experts;
    apr_conv_args conv;
    apr_delta_args delta;
    apr_ssd_args ssd;
} apr_op_args;

typedef void (*apr_op_fn)(const apr_op_args *args);

enum { APR_LINEARS_MAX = 4 };

typedef struct apr_backend {
    const char *name;
    apr_op_fn ops[APR_OP_COUNT]; /* NULL: not available */
    /* Up to APR_LINEARS_MAX linear layers with the same input (x, n_tokens, n_in, work) and disjoint outputs, at once. Same results as
     * one by one, with less synchronization. NULL: not available. */
    void (*linears)(const apr_linear_args *const each[], int n);
} apr_backend;

extern const apr_backend apr_ref_backend;  /* plain loops, one thread: the meaning of each operation */
extern const apr_backend apr_host_backend; /* OpenMP and SIMD */
/* The same, but products multiply float32 inputs instead of rounding them. */
extern const apr_backend apr_host_exact_backend;
/* The reference for models of real size: what `ref` computes, with long sums in float64, on all threads. */
extern const apr_backend apr_float64_backend;
/* Does the host backend round the inputs of products with this weight (kernels/host/products)? This holds for experts also. */
bool apr_host_rounds_inputs(const apr_tensor *weight);
/* Batch invariance: the largest number of tokens in one product for which each token's sums are added in the same order as for that
 * token alone. INT64_MAX: any number, which holds for weights with rounded inputs except on a CPU with AVX-512 but without VNNI. */
int64_t apr_host_batch_invariant_tokens(const apr_backend *backend, const apr_tensor *weight);

/* Floats of workspace that one thread needs. */
enum { APR_LINEAR_ROWS = 16, APR_ATTEND_CELLS = 64, APR_ATTEND_ROWS = 32, APR_ATTEND_PARTS = 64, APR_ATTEND_PART_ROWS = 16 };

/* APR_LINEAR_ROWS decoded rows, and the same size again. If the rows are 16-bit, the rest holds the rounded inputs of 35 tokens a
 * thread. */
static inline size_t apr_linear_slice(int64_t n_columns) { return 2 * APR_LINEAR_ROWS * (size_t)n_columns; }

/* A tile of decoded keys and one of values. For each row of queries handled together: its query, scores, sum of values, maximum, sum of
 * weights and the rescaling factor of both. head_dim is the larger of key_dim and value_dim. */
static inline size_t apr_attend_slice(int64_t head_dim)
{
    return 2 * APR_ATTEND_CELLS * (size_t)head_dim + APR_ATTEND_ROWS * (2 * (size_t)head_dim + APR_ATTEND_CELLS + 3);
}

/* The chosen positions of a part of a context with their scores; a decoded key. */
static inline size_t apr_index_slice(int64_t n_chosen, int64_t head_dim) { return 2 * (size_t)n_chosen + (size_t)head_dim; }

/* Partial results of the parts of a long context, to be combined: for each row a sum of values, a maximum and a sum of weights. */
static inline size_t apr_attend_shared(int64_t value_dim)
{
    return (size_t)APR_ATTEND_PARTS * APR_ATTEND_PART_ROWS * ((size_t)value_dim + 2);
}

#endif
