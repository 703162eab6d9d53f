/* ops.h - the operations of a forward pass, and the table of them that a backend is.
 *
 * Activations are float32, one row a token: [n_tokens, width], rows without gaps. Weights stay as they are stored; an
 * operation decodes a few rows at a time into the workspace it is given, so a quantized model is never expanded whole.
 * Operations do not allocate and do not fail: shapes are checked when a session binds a program to a model.
 *
 * Positions count from 0; the tokens of one call are at position, position + 1, ... Keys and values of a position p lie in
 * cell p % n_cells of the cache. Backends agree within bounds (float32 sums in different orders), not bit for bit. */
#ifndef APR_KERNELS_OPS_H
#define APR_KERNELS_OPS_H

#include "kernels/rows.h"

/* X(ID, id, name): APR_OP_ID, apr_card_id of runtime/program/op_card.h, and what it is called in words. The second group can be
 * planned, but no backend here executes it. */
#define APR_OP_LIST(X)                                                                                                  \
    X(EMBED, embed, "embed")                                                                                            \
    X(ANGLES, angles, "rotary angles")                                                                                  \
    X(RMSNORM, rmsnorm, "rmsnorm")                                                                                      \
    X(LINEAR, linear, "linear")                                                                                         \
    X(ROPE, rope, "rope")                                                                                               \
    X(KV_STORE, kv_store, "kv store")                                                                                   \
    X(ATTEND, attend, "attend")                                                                                         \
    X(GLU, glu, "glu")                                                                                                  \
    X(ADD, add, "add")                                                                                                  \
    X(HALF, half, "half of each head")         /* the first (chunk 0) or second (1) half of every head's numbers */     \
    X(GATE, gate, "gate")                      /* out = x * sigmoid(gate); a gate of one number scales the whole row */ \
    X(ROUTE, route, "route")                   /* router logits, the chosen experts and their weights */                \
    X(EXPERTS_GLU, experts_glu, "experts glu") /* the chosen experts' silu(gate) * up, one after the other */           \
    X(EXPERTS_SUM, experts_sum, "experts sum") /* their down projections, summed by weight */                           \
    X(CONV, conv, "conv")                      /* causal depthwise convolution over time, then silu */                  \
    X(DELTA_RULE, delta_rule, "delta rule")    /* gated delta-net: a matrix of state for each value head */

typedef enum {
#define X(ID, id, name) APR_OP_##ID,
    APR_OP_LIST(X)
#undef X
        APR_OP_COUNT
} apr_op_kind;

const char *apr_op_name(apr_op_kind kind);

/* X(ID, name): what an operation may be asked for beyond its plain form. */
#define APR_TWIST_LIST(X) X(SINKS, "sinks") /* of attend: a learned logit of each head takes part in the softmax, and has no value */

typedef enum {
#define X(ID, name) APR_TWIST_##ID,
    APR_TWIST_LIST(X)
#undef X
        APR_TWIST_COUNT
} apr_twist;

const char *apr_twist_name(apr_twist twist);

/* Scratch memory of one call: n_threads slices of `slice` floats each, 64-byte aligned. */
typedef struct apr_workspace {
    float *data;
    size_t slice;
    int n_threads;
} apr_workspace;

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
    const float *freqs; /* [n_freqs] */
    float magnitude;
    float *out; /* [n_tokens, 2 * n_freqs] */
} apr_angles_args;

/* Over chunks of `chunk` numbers: out = x / sqrt(mean(x^2) + eps) * weight. chunk is the width, or head_dim for q/k norms. */
typedef struct apr_rmsnorm_args {
    int64_t n_tokens, width, chunk;
    float eps;
    const float *x;      /* [n_tokens, width] */
    const float *weight; /* [chunk] */
    float *out;          /* [n_tokens, width] */
} apr_rmsnorm_args;

/* out = x * weight^T + bias */
typedef struct apr_linear_args {
    int64_t n_tokens, n_in, n_out;
    const float *x;           /* [n_tokens, n_in] */
    const apr_tensor *weight; /* [n_out, n_in], any dtype that can be decoded */
    const float *bias;        /* [n_out] or NULL */
    float *out;               /* [n_tokens, n_out] */
    apr_workspace work;       /* slice >= apr_linear_slice(n_in) */
} apr_linear_args;

/* Rotates the first 2 * n_freqs numbers of each head; number j turns with number j + n_freqs ("halves"). out may be x. */
typedef struct apr_rope_args {
    int64_t n_tokens, n_heads, head_dim, n_freqs;
    const float *x;      /* [n_tokens, n_heads, head_dim] */
    const float *angles; /* [n_tokens, 2 * n_freqs] of APR_OP_ANGLES */
    float *out;          /* [n_tokens, n_heads, head_dim] */
} apr_rope_args;

/* One layer's keys or values: cell c, head h begins at data + (c * n_heads + h) * row_bytes. */
typedef struct apr_cache {
    apr_dtype dtype; /* F16, F32, Q8_0 or F8_E4M3 */
    uint8_t *data;   /* [n_cells, n_kv_heads, head_dim] */
    int64_t n_cells, row_bytes;
} apr_cache;

typedef struct apr_kv_store_args {
    int64_t n_tokens, position, n_kv_heads, head_dim;
    const float *k, *v; /* [n_tokens, n_kv_heads, head_dim] */
    apr_cache keys, values;
} apr_kv_store_args;

/* Causal attention of the tokens' queries to every position up to their own, at most `window` of them (0: all).
 * Query head h reads key/value head h / (n_heads / n_kv_heads). The tokens' own keys and values are stored already. */
typedef struct apr_attend_args {
    int64_t n_tokens, position, n_heads, n_kv_heads, head_dim, window;
    float scale;    /* of the scores, 1 / sqrt(head_dim) */
    const float *q; /* [n_tokens, n_heads, head_dim] */
    apr_cache keys, values;
    float *out;         /* [n_tokens, n_heads, head_dim] */
    apr_workspace work; /* slice >= apr_attend_slice(...) */
} apr_attend_args;

/* out = silu(gate) * up, silu(x) = x / (1 + exp(-x)). out may be gate or up. */
typedef struct apr_glu_args {
    int64_t n_tokens, width;
    const float *gate, *up; /* [n_tokens, width] */
    float *out;
    int n_threads;
} apr_glu_args;

/* out = a + b. out may be a or b. */
typedef struct apr_add_args {
    int64_t n_tokens, width;
    const float *a, *b; /* [n_tokens, width] */
    float *out;
} apr_add_args;

typedef union apr_op_args {
    apr_embed_args embed;
    apr_angles_args angles;
    apr_rmsnorm_args rmsnorm;
    apr_linear_args linear;
    apr_rope_args rope;
    apr_kv_store_args kv_store;
    apr_attend_args attend;
    apr_glu_args glu;
    apr_add_args add;
} apr_op_args;

typedef void (*apr_op_fn)(const apr_op_args *args);

typedef struct apr_backend {
    const char *name;
    apr_op_fn ops[APR_OP_COUNT]; /* NULL: not here */
    uint32_t twists;             /* 1 << APR_TWIST_..., that its operations do */
} apr_backend;

extern const apr_backend apr_ref_backend;  /* plain loops, one thread: the meaning of each operation */
extern const apr_backend apr_host_backend; /* OpenMP and SIMD */

/* Floats of workspace that one thread needs. */
enum { APR_LINEAR_ROWS = 16, APR_ATTEND_CELLS = 64, APR_ATTEND_ROWS = 16 };

/* A block of decoded rows. */
static inline size_t apr_linear_slice(int64_t n_in) { return APR_LINEAR_ROWS * (size_t)n_in; }

/* Rows of queries handled together: some tokens' query heads that share one key/value head. */
static inline int64_t apr_attend_rows(int64_t n_heads, int64_t n_kv_heads)
{
    const int64_t group = n_heads / n_kv_heads;
    return group > APR_ATTEND_ROWS ? group : APR_ATTEND_ROWS / group * group;
}

/* A tile of decoded keys and one of values, scores of one row of queries; for each row sums of values, maximum, sum of weights. */
static inline size_t apr_attend_slice(int64_t n_heads, int64_t n_kv_heads, int64_t head_dim)
{
    const size_t n_rows = (size_t)apr_attend_rows(n_heads, n_kv_heads);
    return 2 * APR_ATTEND_CELLS * (size_t)head_dim + APR_ATTEND_CELLS + n_rows * ((size_t)head_dim + 2);
}

#endif
