/* weights.cuh - the kernels' view of a matrix on the device: the addresses of its rows, and the factors of FP8, APR_Q8 and packed
 * matrices. */
#ifndef APR_KERNELS_CUDA_WEIGHTS_CUH
#define APR_KERNELS_CUDA_WEIGHTS_CUH

extern "C" {
#include "kernels/cuda/decode_gemv_args.h"
}

#include "kernels/cuda/codecs/dtype_k.cuh"
#include "kernels/cuda/common/ops.cuh"

/* The rest of a packed matrix in the canonical layout (kernels/repack.h): see canonical.cuh. */
struct canonical_view {
    int bits; /* 4 or 8; 0: not a packed matrix */
    apr_code_level level;
    apr_dtype dtype; /* type to which values are rounded */
    const uint8_t *zeros;
    bool signed_zeros, divides;
    float zero_bias;
    const float *global_scales;
    const int32_t *groups;
    float levels[16];
};

struct weight_view {
    const uint8_t *data;
    int64_t row_bytes, n_rows, n_in;
    apr_step_kind step;
    int64_t head_rows;      /* rows of a head, for the step */
    const uint8_t *factors; /* NULL: none */
    apr_dtype factor_dtype; /* F32, F16, BF16, F8_E4M3 or E8M0 */
    bool one_factor;
    int64_t factor_rows, factor_columns, matrix_rows; /* rows and columns that share a factor; rows of a matrix in a stack */
    int64_t factors_high, factors_wide;               /* factors down and across one matrix */
    bool tiled;                                       /* tiled: kernels/cuda/decode_gemv_args.h */
    canonical_view canonical;
};

/* Fills the view. False: the shape or a type is not supported (partial blocks in a row, scales of another type). */
bool apr_cuda_view(const apr_tensor *matrix, weight_view *view);

/* The stored position of a logical row: as apr_step_row. Rows are counted in 32 bits, which divide ten times faster. */
static __device__ __forceinline__ int64_t stored_row(const weight_view &v, int64_t row)
{
    if (v.step == APR_STEP_NONE) return row;
    const uint32_t d = (uint32_t)v.head_rows, half = d / 2, head = (uint32_t)row / d, r = (uint32_t)row % d;
    return (int64_t)head * d + (v.step == APR_STEP_PAIRS_TO_HALVES ? 2 * (r % half) + r / half : r % 2 * half + r / 2);
}

/* Blocks of a tile's row; 0: a type that is never tiled. */
template <apr_dtype D> struct tile_blocks {
    static constexpr int N = 0;
};
#define X(id, columns)                                             \
    template <> struct tile_blocks<APR_##id> {                     \
        static constexpr int N = columns / piece<APR_##id>::ELEMS; \
    };
APR_TILED_TYPES(X)
#undef X

/* Whether a tile's row has the heads (exponents) of its blocks first, separated from their codes. */
static __host__ __device__ constexpr bool has_split_heads(apr_dtype dtype) { return dtype == APR_MXFP4; }

/* row_at: the address of a stored row. block_at: the offset of a block from there; of its codes if heads are separated. */
template <apr_dtype D> static __device__ __forceinline__ const uint8_t *row_at(const weight_view &v, int64_t stored)
{
    constexpr int TILE_ROW = tile_blocks<D>::N * piece<D>::BYTES;
    if (TILE_ROW > 0 && v.tiled) return v.data + stored / APR_ROW_GROUP * APR_ROW_GROUP * v.row_bytes + stored % APR_ROW_GROUP * TILE_ROW;
    return v.data + stored * v.row_bytes;
}
template <apr_dtype D> static __device__ __forceinline__ int64_t block_at(const weight_view &v, int block)
{
    constexpr int N = tile_blocks<D>::N, BYTES = piece<D>::BYTES;
    if constexpr (N > 0) {
        const int within = has_split_heads(D) && v.tiled ? N + block % N * (BYTES - 1) : block % N * BYTES;
        return (int64_t)(block / N) * (v.tiled ? APR_ROW_GROUP * N * BYTES : N * BYTES) + within;
    } else return (int64_t)block * BYTES;
}
/* The offset of a block's head from the start of the row. Only for tiled types with separated heads. */
template <apr_dtype D> static __device__ __forceinline__ int64_t head_at(int block)
{
    constexpr int N = tile_blocks<D>::N;
    return (int64_t)(block / N) * (APR_ROW_GROUP * N * piece<D>::BYTES) + block % N;
}
/* Loads a lane's piece of a block of the row. SPLIT: the matrix is tiled with separated heads. It is a template parameter, since a test for
 * each piece would slow down the rows of experts. */
template <apr_dtype D, bool SPLIT>
static __device__ __forceinline__ void load_piece(const weight_view &v, const uint8_t *row, int block, int lane, piece<D> &q)
{
    if constexpr (SPLIT) q.load_split(row + head_at<D>(block), row + block_at<D>(v, block), lane);
    else if constexpr (has_split_heads(D)) q.load(row + (int64_t)block * piece<D>::BYTES, lane);
    else q.load(row + block_at<D>(v, block), lane);
}

/* The index of a stored row's first factor. The shapes of checkpoints (one factor per row, blocks of one matrix) need no division, or a
 * short one. */
static __device__ __forceinline__ int64_t factors_of_row(const weight_view &v, int64_t stored)
{
    if (v.one_factor) return 0;
    const int64_t at = v.factor_rows == 1          ? stored
                       : v.matrix_rows >= v.n_rows ? (int64_t)((uint32_t)stored / (uint32_t)v.factor_rows)
                                                   : stored / v.matrix_rows * v.factors_high + stored % v.matrix_rows / v.factor_rows;
    return at * v.factors_wide;
}

static __device__ __forceinline__ float factor_number(const weight_view &v, int64_t at)
{
    if (v.factor_dtype == APR_F32) return __uint_as_float(load_32_any(v.factors + 4 * at));
    if (v.factor_dtype == APR_F16) return half_float(load_16(v.factors + 2 * at));
    if (v.factor_dtype == APR_BF16) return __uint_as_float(load_16(v.factors + 2 * at) << 16);
    const uint32_t byte = __ldg(v.factors + at);
    if (v.factor_dtype == APR_F8_E4M3) return fp8_pair<__NV_E4M3>(byte).x;
    return __uint_as_float(byte == 0 ? 0x00400000u : byte == 0xff ? 0x7fc00000u : byte << 23); /* 2^(byte - 127) */
}

/* The factor of one column of a stored row. */
static __device__ __forceinline__ float factor_at(const weight_view &v, int64_t stored, int64_t column)
{
    if (v.factors == NULL) return 1.0f;
    int64_t at = factors_of_row(v, stored);
    if (!v.one_factor && v.factors_wide > 1) at += (uint32_t)column / (uint32_t)v.factor_columns;
    return factor_number(v, at);
}

/* Types whose values have factors outside their blocks; that of NVFP4, one per matrix, is optional. */
template <apr_dtype D> struct has_factors;
#define X(id, name, class_of, elems, bytes, scales, ...)                                                                    \
    template <> struct has_factors<APR_##id> {                                                                              \
        static constexpr bool value =                                                                                       \
            APR_SCALES_##scales == APR_SCALES_SEPARATE || APR_SCALES_##scales == APR_SCALES_FIRST || APR_##id == APR_NVFP4; \
    };
APR_DTYPE_LIST(X)
#undef X

/* One value of a plain type at any address, for rows that are not whole pieces. APR_Q4 blocks count from the start of the tensor. */
template <apr_dtype D> static __device__ __forceinline__ float element(const weight_view &v, int64_t stored, int64_t column)
{
    const int64_t i = stored * v.n_in + column;
    if constexpr (D == APR_F32) return __ldg((const float *)v.data + i);
    else if constexpr (D == APR_F16) return half_float(load_16(v.data + 2 * i));
    else if constexpr (D == APR_BF16) return __uint_as_float(load_16(v.data + 2 * i) << 16);
    else if constexpr (D == APR_F8_E4M3) return fp8_pair<__NV_E4M3>(__ldg(v.data + i)).x;
    else if constexpr (D == APR_F8_E5M2) return fp8_pair<__NV_E5M2>(__ldg(v.data + i)).x;
    else if constexpr (D == APR_APR_Q8) return (float)(int8_t)__ldg(v.data + i);
    else {
        static_assert(D == APR_APR_Q4, "blocks of other types end with a row");
        const uint8_t *const block = v.data + i / 32 * 18;
        const int code = __ldg(block + 2 + i % 32 / 2) >> i % 2 * 4 & 0x0f;
        return (float)(code - 8) * half_float(load_16(block));
    }
}

/* The types that have kernels: types with blocks that end with a row, and types whose rows may have any length. */
#define APR_CUDA_BLOCKS(X) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(MXFP4) X(NVFP4) X(IQ4_NL)
#define APR_CUDA_K(X)      X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_XS) X(TQ2_0)
#define APR_CUDA_PLAIN(X)  X(F32) X(F16) X(BF16) X(F8_E4M3) X(F8_E5M2) X(APR_Q4) X(APR_Q8)

/* Whether rows can be read in whole pieces, with aligned vectors. */
template <apr_dtype D> static inline bool in_pieces(const weight_view &v)
{
    return v.n_in % piece<D>::ELEMS == 0 &&
           (v.factors == NULL || v.one_factor || v.factor_columns % piece<D>::ELEMS == 0 || v.factor_columns >= v.n_in);
}

#endif
