/* ops.h - the operations of a forward pass, and the table of them that a backend is.
 *
 * Activations are float32, one row a token: [n_tokens, width], rows without gaps. Weights stay as they are stored; an
 * operation decodes a few rows at a time into the workspace it is given, so a quantized model is never expanded whole.
 * Operations do not allocate and do not fail: shapes are checked when a session binds a program to a model.
 *
 * Positions count from 0; the tokens of one call are at position, position + 1, ... A device can be told where the position lies in its
 * own memory instead (position_at, else NULL), so that what was recorded once runs again for the next token. Tokens that are `apart`, on
 * a device, are of a sequence each: token t is at position_at[t], and its cells are those of its sequence. Keys and values of a
 * position p lie in cell p % n_cells of the cache, or where several sequences share its cells in pages (apr_cache_cell). Backends agree
 * within bounds (float32 sums in different orders), not bit for bit. */
#ifndef APR_KERNELS_OPS_H
#define APR_KERNELS_OPS_H

#include "kernels/op_args.h"
#include "kernels/rows.h"

/* X(ID, id, name): APR_OP_ID, apr_op_args.id, apr_card_id of runtime/program/op_card.h, and what it is called in words. */
#define APR_OP_LIST(X)                 \
    X(EMBED, embed, "embed")           \
    X(ANGLES, angles, "rotary angles") \
    X(NORM, norm, "norm")              \
    X(LINEAR, linear, "linear")        \
    X(ROPE, rope, "rope")              \
    X(SLICE, slice, "slice")           \
    X(JOIN, join, "join")              \
    X(KV_STORE, kv_store, "kv store")  \
    X(ATTEND, attend, "attend")        \
    X(GLU, glu, "glu")                 \
    X(GATE, gate, "gate")              \
    X(SCALE, scale, "scale")           \
    X(MUL, mul, "mul")                 \
    X(SOFTCAP, softcap, "softcap")     \
    X(ADD, add, "add")                 \
    X(ROUTE, route, "route")           \
    X(EXPERTS, experts, "experts")     \
    X(CONV, conv, "conv")              \
    X(DELTA, delta, "delta rule")      \
    X(SSD, ssd, "state-space duality")

typedef enum {
#define X(ID, id, name) APR_OP_##ID,
    APR_OP_LIST(X)
#undef X
        APR_OP_COUNT
} apr_op_kind;

const char *apr_op_name(apr_op_kind kind);

/* out[t] = row ids[t] of the table */
typedef struct apr_embed_args {
    int64_t n_tokens, width;
    const int32_t *ids;      /* [n_tokens], each a row of the table */
    const apr_tensor *table; /* [n_rows, width] */
    float *out;              /* [n_tokens, width] */
} apr_embed_args;

/* Cosines and sines of every position's rotary angles, once for all layers:
 * out[t] = {cos(p * freq[j]) * magnitude, j < n_freqs}, {sin(p * freq[j]) * magnitude, j < n_freqs},  p = position + t */
typedef struct apr_angles_args {
    int64_t n_tokens, position, n_freqs;
    const int64_t *position_at;
    bool apart;
    const float *freqs; /* [n_freqs] */
    float magnitude;
    float *out; /* [n_tokens, 2 * n_freqs] */
} apr_angles_args;

/* Where each head has a matrix of its own: some rows out of those of its share of the weight. */
typedef struct apr_linear_heads {
    int64_t n;       /* 0: one matrix for everything, and the rest is 0 */
    int64_t rows;    /* of the weight that a head has: head h begins at row h * rows ... */
    int64_t first;   /* ... and its matrix this many rows further */
    bool transposed; /* the matrix is [n_in, n_out]: the inputs go along its rows */
} apr_linear_heads;

/* out = x * weight^T + bias. With heads: out[t][h] = x[t][h] * matrix[h]^T, or x[t][h] * matrix[h] where transposed (latent attention
 * reads both halves of one weight in this way: keys' rows transposed on the way to the cache, values' rows on the way back). */
typedef struct apr_linear_args {
    int64_t n_tokens, n_in, n_out; /* with heads: of each */
    apr_linear_heads heads;
    const float *x;           /* [n_tokens, n_in]; with heads [n_tokens, heads.n, n_in] */
    const apr_tensor *weight; /* [n_out, n_in], any dtype that can be decoded; with heads [heads.n * heads.rows, n_in or n_out] */
    const float *bias;        /* [n_out] or NULL; with heads NULL */
    float *out;               /* [n_tokens, n_out]; with heads [n_tokens, heads.n, n_out] */
    apr_workspace work;       /* slice >= apr_linear_slice(columns of the weight) */
} apr_linear_args;

/* The row of the weight where head h's matrix begins, and how many it has. */
APR_EVERYWHERE int64_t apr_linear_first_row(const apr_linear_args *a, int64_t head) { return head * a->heads.rows + a->heads.first; }
APR_EVERYWHERE int64_t apr_linear_head_rows(const apr_linear_args *a) { return a->heads.transposed ? a->n_in : a->n_out; }

/* Which two numbers of a head turn together: j and j + n_freqs, or 2 j and 2 j + 1. */
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

/* Cells that are given to a sequence, and taken back, together. */
enum { APR_PAGE_CELLS = 64 };

/* One layer's keys or values: cell c, head h begins at data + (c * n_heads + h) * row_bytes. */
typedef struct apr_cache {
    apr_dtype dtype; /* F16, F32, Q8_0 or F8_E4M3 */
    uint8_t *data;   /* [n_cells, n_kv_heads, head_dim] */
    int64_t n_cells, row_bytes;
    const int32_t *pages; /* of the tokens' sequence: where positions [64 i, 64 i + 64) lie, in pages; NULL: in order, in a ring */
    /* Of tokens apart: token t has the pages at pages + t * pages_stride; or, in a ring, the cells at data + slots[t] * slot_bytes. */
    int64_t pages_stride;
    const int32_t *slots;
    uint64_t slot_bytes;
} apr_cache;

APR_EVERYWHERE int64_t apr_cache_cell(const apr_cache *cache, int64_t position)
{
    if (cache->pages == NULL) return position % cache->n_cells;
    return (int64_t)cache->pages[position / APR_PAGE_CELLS] * APR_PAGE_CELLS + position % APR_PAGE_CELLS;
}

typedef struct apr_kv_store_args {
    int64_t n_tokens, position, n_kv_heads, key_dim, value_dim;
    const int64_t *position_at;
    bool apart;
    const float *k; /* [n_tokens, n_kv_heads, key_dim] */
    const float *v; /* [n_tokens, n_kv_heads, value_dim], or NULL: values are the first numbers of the keys, and kept once */
    apr_cache keys, values;
} apr_kv_store_args;

/* Causal attention of the tokens' queries to every position up to their own, at most `window` of them (0: all), none before their
 * own chunk of `chunk` positions (0: no chunks). Query head h reads key/value head h / (n_heads / n_kv_heads). The tokens' own keys
 * and values are stored already.
 *     score = scale * q . k, then softcap * tanh(score / softcap) where there is one
 *     weights = exp(score) / (sum of exp(score) + exp(sinks[h])): a sink takes part in the softmax and has no value */
typedef struct apr_attend_args {
    int64_t n_tokens, position, n_heads, n_kv_heads, key_dim, value_dim, window, chunk; /* position: of tokens apart at least the largest */
    const int64_t *position_at; /* where a device reads it; `position` is then one with the same apr_attend_end */
    bool apart;
    float scale, softcap; /* softcap 0: none */
    const float *sinks;   /* [n_heads] or NULL */
    const float *q;       /* [n_tokens, n_heads, key_dim] */
    apr_cache keys, values;
    float *out;         /* [n_tokens, n_heads, value_dim] */
    apr_workspace work; /* slice >= apr_attend_slice(...) */
    float *shared;      /* apr_attend_shared(...) floats, or NULL: the host does not divide contexts between threads */
    /* On a device, beside a cache in pages: n_ordered cells of keys and behind them of values, where those of one sequence are put in
     * order to be read; n_ordered is a multiple of APR_PAGE_CELLS. */
    uint8_t *ordered;
    int64_t n_ordered;
} apr_attend_args;

/* A device cuts the context of a single token in parts, and for all positions below this one alike: what was recorded for one of them is
 * right for the others (position_at), and how sums are added depends on the position alone. */
APR_EVERYWHERE int64_t apr_attend_end(int64_t position)
{
    int64_t end = 2048;
    while (end <= position) end *= 2;
    return end;
}

/* The first position that a token at position `own` attends to. */
APR_EVERYWHERE int64_t apr_attend_first(const apr_attend_args *a, int64_t own)
{
    const int64_t in_window = a->window > 0 && own >= a->window ? own - a->window + 1 : 0;
    const int64_t in_chunk = a->chunk > 0 ? own / a->chunk * a->chunk : 0;
    return in_window > in_chunk ? in_window : in_chunk;
}

/* out = activation(gate) * up as kernels/activation.h says, or activation(gate) without up. out may be gate or up. */
typedef struct apr_glu_args {
    int64_t n_tokens, width;
    apr_glu_shape shape;
    const float *gate, *up; /* [n_tokens, width]; up or NULL */
    float *out;
    int n_threads;
    apr_workspace work; /* on a device, where a product of `out` that follows finds it as FP16; slice 0: nowhere */
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
    apr_angles_args angles;
    apr_norm_args norm;
    apr_linear_args linear;
    apr_rope_args rope;
    apr_kv_store_args kv_store;
    apr_attend_args attend;
    apr_glu_args glu;
    apr_add_args add;
    apr_slice_args slice;
    apr_join_args join;
    apr_scale_args scale;
    apr_mul_args mul;
    apr_softcap_args softcap;
    apr_gate_args gate;
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
    apr_op_fn ops[APR_OP_COUNT]; /* NULL: not here */
    /* Up to APR_LINEARS_MAX linear layers of the same inputs (x, n_tokens, n_in, work), outputs apart: what each gives alone, with less
     * waiting between them. NULL: not here. */
    void (*linears)(const apr_linear_args *const each[], int n);
} apr_backend;

extern const apr_backend apr_ref_backend;  /* plain loops, one thread: the meaning of each operation */
extern const apr_backend apr_host_backend; /* OpenMP and SIMD */
/* The same, but for products that round their inputs: those multiply float32 numbers here. */
extern const apr_backend apr_host_exact_backend;
/* Does the host backend round what it multiplies with such weights (kernels/host/products)? Then an expert's, too. */
bool apr_host_rounds(const apr_tensor *weight);
/* Tokens that one product of that backend with such a weight may have without changing any: each one's sums are added in the order in which
 * they are for it alone. INT64_MAX: any number. With weights that are rounded for it is so but on a CPU that has AVX-512 without VNNI. */
int64_t apr_host_steady_tokens(const apr_backend *backend, const apr_tensor *weight);

/* Floats of workspace that one thread needs. */
enum { APR_LINEAR_ROWS = 16, APR_ATTEND_CELLS = 64, APR_ATTEND_ROWS = 32, APR_ATTEND_PARTS = 64, APR_ATTEND_PART_ROWS = 16 };

/* A block of decoded rows, and as much again: sixteen rows in 16 bits leave room for the rounded inputs of 35 tokens a thread. */
static inline size_t apr_linear_slice(int64_t n_columns) { return 2 * APR_LINEAR_ROWS * (size_t)n_columns; }

/* A tile of decoded keys and one of values; for each row of queries handled together its query, scores, sum of values, maximum, sum of
 * weights and the shrinking of both. head_dim is the larger of key_dim and value_dim. */
static inline size_t apr_attend_slice(int64_t head_dim)
{
    return 2 * APR_ATTEND_CELLS * (size_t)head_dim + APR_ATTEND_ROWS * (2 * (size_t)head_dim + APR_ATTEND_CELLS + 3);
}

/* What parts of a long context leave to be joined: of each row a sum of values, a maximum and a sum of weights. */
static inline size_t apr_attend_shared(int64_t value_dim)
{
    return (size_t)APR_ATTEND_PARTS * APR_ATTEND_PART_ROWS * ((size_t)value_dim + 2);
}

#endif
