/* flow_args.h - products of a single token that stream their weights: which types, in which order their bytes lie on a device, and what a
 * step is given.
 *
 *     y = weight x    x as planes: pairs of bytes with a scale for each 16 (ops/planes.cuh). factor is 1, or the norm's where squares
 *                     are given
 *     STORE  out = y * factor + bias
 *     ADD    out = residual + (y * factor + bias)
 *     GLU    out = activation(y of part 0 * factor + bias) * (y of part 1 * factor + bias)
 *     each, where planes are wanted: planes of out * gain, and for each 16 the sum of the squares of out
 *
 * factor is 1 / sqrt(mean of squares + eps): a norm's division commutes with the product, and its gains are in the planes already.
 *
 * Packed weights lie in items: the blocks of so many columns, 16 rows behind one another, then those of the next columns of the same rows.
 * An item is one run of memory, wherever rows begin. These are the file's bytes in another order, and as many. Blocks stay whole, but
 * MXFP4's, whose 17 bytes would begin anywhere: of an item's row the eight exponents come first, then the blocks' codes, and of these each
 * 8 bytes' low nibbles as four bytes, then their high ones: byte i has those of bytes i and i + 4, so that a word is codes of eight
 * neighbouring columns.
 *
 * Rows of experts may end within an item: the last one is filled up with zeros then, which are zeros as codes, too, and a row takes more
 * bytes than in the file (apr_items_row_bytes). Inputs are filled up likewise, where they are read. */
#ifndef APR_KERNELS_CUDA_FLOW_ARGS_H
#define APR_KERNELS_CUDA_FLOW_ARGS_H

#include "kernels/op_args.h"
#include "kernels/ops.h"

/* X(ID, columns of an item): types that are put into items, and types whose rows stay as they are. */
#define APR_FLOW_ITEMS(X) X(Q4_K, 256) X(Q6_K, 256) X(Q8_0, 128) X(MXFP4, 256)
#define APR_FLOW_ROWS(X)  X(F32, 32) X(F16, 64) X(BF16, 64)

enum {
    APR_FLOW_UNIT = 16,       /* rows that are taken together */
    APR_FLOW_PARTS = 3,       /* matrices that share their inputs, at most */
    APR_FLOW_CAPABILITY = 8,  /* of a device, at least */
    APR_FLOW_COLUMNS = 64,    /* inputs come in multiples of so many */
    APR_PLANES_COLUMNS = 256, /* numbers of a tile of planes: */
    APR_PLANES_BYTES = 640,
};

static inline int64_t apr_planes_bytes(int64_t n) { return (n + APR_PLANES_COLUMNS - 1) / APR_PLANES_COLUMNS * APR_PLANES_BYTES; }

/* 0: no such type, or not so. */
static inline int apr_flow_item_columns(apr_dtype dtype)
{
    switch ((int)dtype) {
#define X(id, columns) \
    case APR_##id: return columns;
        APR_FLOW_ITEMS(X)
#undef X
    default: return 0;
    }
}

/* Columns of a row in items: n_in, rounded up to whole ones. Of a type that has none: n_in. */
static inline int64_t apr_items_columns(apr_dtype dtype, int64_t n_in)
{
    const int64_t columns = apr_flow_item_columns(dtype);
    return columns > 0 ? (n_in + columns - 1) / columns * columns : n_in;
}

/* Bytes of a row that lies in items, or as it is stored. */
static inline int64_t apr_items_row_bytes(apr_dtype dtype, bool in_items, int64_t n_in)
{
    const apr_dtype_facts *const facts = &apr_dtypes[dtype];
    return (in_items ? apr_items_columns(dtype, n_in) : n_in) / facts->elems_per_block * facts->bytes_per_block;
}

/* Is there a kernel for a matrix of that shape, on a device of that capability? */
static inline bool apr_flows(apr_dtype dtype, int64_t n_out, int64_t n_in, int major)
{
    int columns = apr_flow_item_columns(dtype);
#define X(id, n) \
    if (dtype == APR_##id) columns = n;
    APR_FLOW_ROWS(X)
#undef X
    return columns > 0 && n_in % columns == 0 && n_in % APR_FLOW_COLUMNS == 0 && n_out % APR_FLOW_UNIT == 0 && n_out > 0 &&
           major >= APR_FLOW_CAPABILITY;
}

typedef enum { APR_FLOW_STORE, APR_FLOW_ADD, APR_FLOW_GLU } apr_flow_ending;

/* Matrices of one type and width. */
typedef struct apr_flow_part {
    const apr_tensor *weight; /* data on the device, at a multiple of 16 bytes */
    const float *bias;        /* [rows] or NULL */
    float *out;               /* [rows]; NULL: planes alone. GLU: that of part 0 */
} apr_flow_part;

typedef struct apr_flow_args {
    apr_flow_ending ending;
    int n_parts;
    apr_flow_part parts[APR_FLOW_PARTS]; /* GLU: gate and up, of equal size */
    int64_t n_in;
    const uint8_t *x;     /* [apr_planes_bytes(n_in)] */
    const float *squares; /* [n_in / 16] or NULL: no norm */
    float eps;
    apr_glu_shape glu;
    const float *residual; /* of ADD; may be out */
    const float *gain;     /* [rows] of the norm behind; NULL: none */
    float gain_offset;
    uint8_t *planes;                    /* of out * (gain + gain_offset); NULL: not wanted. One part only, or GLU */
    float *out_squares;                 /* [rows / 16]; NULL: not wanted */
    const struct apr_flow_args *beside; /* of the same inputs and another type, runs at the same time; NULL: none */
    bool is_first;                      /* of a row of them: what runs in front of it has no block on some multiprocessors, all of others */
    bool is_early;                      /* experts: the inputs, their squares and the residual were there before the routes were chosen */
} apr_flow_args;

enum { APR_FLOW_MOST_EXPERTS = 32 }; /* of a token */

/* Do products that stream take these experts' stacks? All of them lie in items, [n_experts] matrices each, and there is room for what
 * stands between: all chosen experts' middles, weighed, as planes. */
static inline bool apr_experts_flow(const apr_experts_args *a)
{
    if (a->n_tokens != 1 || a->gate == NULL || a->weight_on_input || a->n_used < 1 || a->n_used > APR_FLOW_MOST_EXPERTS) return false;
    return a->gate->in_items && a->up->in_items && a->down->in_items && a->gate->dtype == a->up->dtype && a->n_in % APR_FLOW_COLUMNS == 0 &&
           a->n_mid % APR_FLOW_UNIT == 0 && a->n_out % APR_FLOW_UNIT == 0 && apr_flow_item_columns(a->down->dtype) > 0 &&
           (uint64_t)apr_planes_bytes(a->n_used * apr_items_columns(a->down->dtype, a->n_mid)) <= a->work.slice * sizeof(float);
}

/* A value as planes: x, or normed whole: x / sqrt(mean(x^2) + eps) * (gain + gain_offset). */
typedef struct apr_flow_inputs {
    int64_t n; /* a multiple of 16 */
    const float *x;
    bool norm;
    float eps, gain_offset;
    const float *gain; /* NULL: none */
    uint8_t *planes;
    float *out; /* [n] the same as float32; NULL: not wanted. May be x */
} apr_flow_inputs;

/* What stands between the products of a token's query, key and value and its attention, as one: heads are normed (where a norm has a
 * chunk), turned, and key and value go into the cache. Where a head is normed, the rotation reads the norm's x; store.k is not read, for
 * nobody else needs the turned key. q.out may be what is read for it. */
typedef struct apr_turn_args {
    apr_norm_args q_norm, k_norm; /* RMS, of whole heads, no bias; chunk 0: none */
    apr_rope_args q, k;
    apr_kv_store_args store;
} apr_turn_args;

enum { APR_TURN_MOST_DIM = 512 }; /* numbers of a head */

static inline bool apr_turns(const apr_kv_store_args *a)
{
    return a->key_dim <= APR_TURN_MOST_DIM && a->value_dim <= APR_TURN_MOST_DIM && a->n_kv_heads > 0;
}

#endif
