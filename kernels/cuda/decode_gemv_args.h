/* decode_gemv_args.h - arguments of the decode GEMV: the fused matrix-vector products of a single token. Which types have such a kernel, how their
 * weights are tiled on the device, and what one call computes.
 *
 *     y = weight x    x: activations as int16 in two int8 planes with a scale for each 16 numbers (common/activations_i16.cuh).
 *                     factor is 1, or the norm's factor where squares are given
 *     STORE  out = y * factor + bias
 *     ADD    out = residual + (y * factor + bias)
 *     GLU    out = activation(y of part 0 * factor + bias) * (y of part 1 * factor + bias)
 *     each, where activations_out is given: activations of out * gain, and for each 16 numbers the sum of the squares of out
 *
 * factor is 1 / sqrt(mean of squares + eps). The division by the RMS commutes with the product, and the norm's gains are already in the
 * activations.
 *
 * Packed weights are tiled. A tile has 16 rows by so many columns (one or more quantization blocks): the blocks of row 0, then those of row
 * 1, and so on. After it comes the tile of the next columns of the same 16 rows. So a tile is one contiguous piece of memory. The bytes are
 * those of the file in another order. Blocks stay whole, except those of MXFP4, whose 17 bytes would start at any alignment: a tile's row
 * has its eight exponents first, then the codes of the eight blocks. Of each 8 bytes of codes the low nibbles come first as four bytes,
 * then the high nibbles: byte i has the nibbles of bytes i and i + 4, so that a 32-bit word has the codes of eight neighbouring columns.
 *
 * A row of an expert, or in a session of several sequences of any matrix, may end within a tile. The tile is then filled with zero bytes,
 * which are also zero codes, and a row takes more bytes than in the file (apr_tiled_row_bytes). Activations are filled with zeros likewise
 * when they are read, or when they are written to a slot. */
#ifndef APR_KERNELS_CUDA_DECODE_GEMV_ARGS_H
#define APR_KERNELS_CUDA_DECODE_GEMV_ARGS_H

#include "kernels/op_args.h"
#include "kernels/ops.h"

/* X(ID, columns of a tile): types whose weights are tiled, and types whose rows stay as stored. */
#define APR_TILED_TYPES(X)   X(Q4_K, 256) X(Q6_K, 256) X(Q8_0, 128) X(MXFP4, 256)
#define APR_UNTILED_TYPES(X) X(F32, 32) X(F16, 64) X(BF16, 64)

enum {
    APR_ROW_GROUP = 16,             /* rows of a tile */
    APR_DECODE_GEMV_PARTS = 3,      /* maximum number of matrices that share their activations */
    APR_DECODE_GEMV_CAPABILITY = 8, /* minimum compute capability (major) */
    APR_DECODE_GEMV_COLUMNS = 64,   /* n_in is a multiple of this */
    APR_ACTIVATIONS_I16_TILE = 256, /* numbers of a tile of activations, and its bytes */
    APR_ACTIVATIONS_I16_TILE_BYTES = 640,
};

static inline int64_t apr_activations_i16_bytes(int64_t n)
{
    return (n + APR_ACTIVATIONS_I16_TILE - 1) / APR_ACTIVATIONS_I16_TILE * APR_ACTIVATIONS_I16_TILE_BYTES;
}

/* Columns of a tile; 0: weights of this type are not tiled. */
static inline int apr_tile_columns(apr_dtype dtype)
{
    switch ((int)dtype) {
#define X(id, columns) \
    case APR_##id: return columns;
        APR_TILED_TYPES(X)
#undef X
    default: return 0;
    }
}

/* Columns of a tiled row: n_in rounded up to whole tiles. n_in for a type that is not tiled. */
static inline int64_t apr_tiled_columns(apr_dtype dtype, int64_t n_in)
{
    const int64_t columns = apr_tile_columns(dtype);
    return columns > 0 ? (n_in + columns - 1) / columns * columns : n_in;
}

/* Bytes of a row, tiled or as stored. */
static inline int64_t apr_tiled_row_bytes(apr_dtype dtype, bool tiled, int64_t n_in)
{
    const apr_dtype_facts *const facts = &apr_dtypes[dtype];
    return (tiled ? apr_tiled_columns(dtype, n_in) : n_in) / facts->elems_per_block * facts->bytes_per_block;
}

/* Whether there is a decode GEMV for a matrix of this shape on a device of this compute capability. */
static inline bool apr_has_decode_gemv(apr_dtype dtype, int64_t n_out, int64_t n_in, int major)
{
    int columns = apr_tile_columns(dtype);
#define X(id, n) \
    if (dtype == APR_##id) columns = n;
    APR_UNTILED_TYPES(X)
#undef X
    return columns > 0 && n_in % columns == 0 && n_in % APR_DECODE_GEMV_COLUMNS == 0 && n_out % APR_ROW_GROUP == 0 && n_out > 0 &&
           major >= APR_DECODE_GEMV_CAPABILITY;
}

typedef enum { APR_EPILOGUE_STORE, APR_EPILOGUE_ADD, APR_EPILOGUE_GLU } apr_epilogue;

/* One of the matrices of a call. All have the same type and width. */
typedef struct apr_decode_gemv_part {
    const apr_tensor *weight; /* data on the device, at a multiple of 16 bytes */
    const float *bias;        /* [rows] or NULL */
    float *out;               /* [rows]; NULL: write activations only. GLU: part 0's is used */
} apr_decode_gemv_part;

typedef struct apr_decode_gemv_args {
    apr_epilogue epilogue;
    int n_parts;
    apr_decode_gemv_part parts[APR_DECODE_GEMV_PARTS]; /* GLU: gate and up, of equal size */
    int64_t n_in;
    const uint8_t *activations; /* [apr_activations_i16_bytes(n_in)] */
    const float *squares;       /* [n_in / 16] sums of squares; NULL: no norm */
    float eps;
    apr_glu_shape glu;
    const float *residual; /* ADD only; may be out */
    const float *gain;     /* [rows] of the norm after it; NULL: none */
    float gain_offset;
    uint8_t *activations_out;                      /* out * (gain + gain_offset) as activations; NULL: not wanted. One part or GLU */
    float *out_squares;                            /* [rows / 16]; NULL: not wanted */
    const struct apr_decode_gemv_args *concurrent; /* a call with the same activations and another type, run concurrently; NULL: none */
    bool is_first;           /* the first of a chain: the kernel before it leaves some multiprocessors empty and fills others */
    bool inputs_ready_early; /* experts: activations, squares and the residual were written before the router ran */
} apr_decode_gemv_args;

enum { APR_DECODE_GEMV_MAX_EXPERTS = 32 }; /* chosen experts of a token */

/* Whether the decode GEMV takes these experts. All three stacks are tiled, [n_experts] matrices each, and the workspace holds the
 * activations between the two steps: those of all chosen experts, multiplied by their weights. */
static inline bool apr_experts_have_decode_gemv(const apr_experts_args *a)
{
    if (a->n_tokens != 1 || a->gate == NULL || a->weight_on_input || a->n_used < 1 || a->n_used > APR_DECODE_GEMV_MAX_EXPERTS) return false;
    return a->gate->tiled && a->up->tiled && a->down->tiled && a->gate->dtype == a->up->dtype && a->n_in % APR_DECODE_GEMV_COLUMNS == 0 &&
           a->n_mid % APR_ROW_GROUP == 0 && a->n_out % APR_ROW_GROUP == 0 && apr_tile_columns(a->down->dtype) > 0 &&
           (uint64_t)apr_activations_i16_bytes(a->n_used * apr_tiled_columns(a->down->dtype, a->n_mid)) <= a->work.slice * sizeof(float);
}

/* Writes x as activations, or its norm: x / sqrt(mean(x^2) + eps) * (gain + gain_offset). With an addend, of x + addend. */
typedef struct apr_decode_gemv_inputs {
    int64_t n; /* a multiple of 16 */
    const float *x;
    bool norm;
    float eps, gain_offset;
    const float *gain; /* NULL: none */
    uint8_t *activations_out;
    float *out;          /* [n] the same numbers as float32; NULL: not wanted. May be x */
    const float *addend; /* [n] with a norm only; NULL: none */
    float *sum;          /* [n] x + addend, where there is an addend. May be x or addend */
} apr_decode_gemv_inputs;

/* The QKV epilogue: everything between the products of a token's query, key and value and its attention, as one operation. Heads are normed
 * (where a norm's chunk is not 0) and rotated, and key and value are written to the cache. Where a head is normed, the rotation takes its
 * input from the norm's x. store.k is not read, since only the cache needs the rotated key. q.out may be the buffer that is read for it. */
typedef struct apr_qkv_epilogue_args {
    apr_norm_args q_norm, k_norm; /* RMS norm of whole heads without bias; chunk 0: none */
    apr_rope_args q, k;
    apr_kv_store_args store;
} apr_qkv_epilogue_args;

/* Latent attention: the operations between the product of the queries and attention, as one call. The numbers of each head after the first
 * absorb.n_in are rotated, the first ones are multiplied by the head's own matrix, and both are joined. absorb.x, absorb.out and rope.out
 * are not used. */
typedef struct apr_latent_query_args {
    apr_rope_args rope;     /* start >= absorb.n_in; x has whole heads */
    apr_linear_args absorb; /* with heads */
    float *out;             /* [n_tokens, n_heads, absorb.n_out + head_dim - absorb.n_in], not x */
} apr_latent_query_args;

/* Those between the product of a token's latent and the cache: the first norm.chunk numbers are normed, the others are rotated, and all are
 * stored as the key. norm.out, rope.x, rope.out and store.k are not used. */
typedef struct apr_latent_store_args {
    apr_norm_args norm;      /* RMS, without bias; x: [n_tokens, store.key_dim] */
    apr_rope_args rope;      /* one head of the other numbers */
    apr_kv_store_args store; /* one head, without values */
} apr_latent_store_args;

enum { APR_LATENT_MAX_DIM = 1024 }; /* maximum numbers of a key, and of the part of a query that is not rotated */

enum { APR_QKV_EPILOGUE_MAX_DIM = 512 }; /* maximum numbers of a head */

static inline bool apr_has_qkv_epilogue(const apr_kv_store_args *a)
{
    return a->key_dim <= APR_QKV_EPILOGUE_MAX_DIM && a->value_dim <= APR_QKV_EPILOGUE_MAX_DIM && a->n_kv_heads > 0;
}

#endif
