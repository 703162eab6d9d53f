/* kernels/rows.h - the codecs of all dtypes: decode rows to float32, encode rows from float32.
 *
 * The arithmetic in kernels/ref is the definition: scalar float32, no contraction of multiply-add, a fixed order of sums. Faster
 * implementations (SIMD, CUDA) give the same bytes and bits and are tested by equality. Codecs work on whole blocks, do not allocate,
 * never fail, and never read or write outside their arguments. Source and destination do not overlap; only the float side needs
 * alignment, to float.
 *
 * Values outside a format's range: NaN encodes like 0 in block formats (and stays NaN in f16, bf16, fp8); infinities are treated as the
 * largest finite float32 of their sign. apr_count_nonfinite counts both for a warning. Finite values beyond a format's range become
 * infinite in f16 and bf16, and the bound in block types: see kernels/out_of_range.h. */
#ifndef APR_KERNELS_ROWS_H
#define APR_KERNELS_ROWS_H

#include "formats/tensor/model.h"

typedef void (*apr_decode_fn)(const void *src, float *dst, int64_t n_elems);
typedef void (*apr_encode_fn)(const float *src, void *dst, int64_t n_elems);
/* importance[n_elems]: weights of the squared errors of the values of a block (imatrix); only ratios matter. Not negative; NaN is 0. If
 * all importances of a block are equal (also all 0), its bytes are those of `encode`. */
typedef void (*apr_encode_by_fn)(const float *src, const float *importance, void *dst, int64_t n_elems);

typedef struct apr_codec {
    apr_decode_fn decode;       /* NULL: the dtype can be copied, not decoded */
    apr_encode_fn encode;       /* NULL: the dtype cannot be written */
    apr_encode_by_fn encode_by; /* NULL: importance has no effect (floats, 8 bits) */
} apr_codec;

/* Indexed by dtype. `ref` is the definition; `host` is the fastest implementation for this machine, chosen before main begins
 * (kernels/host/codecs/levels.h). Where there is no faster one, host's entry is ref's. F8_E4M3 converts plain values here, without a
 * scale: see apr_encode_fp8_row. The flat types APR_Q4 and APR_Q8 decode from the start of a tensor only: use apr_decode_rows. */
extern const apr_codec apr_ref_codecs[APR_DTYPE_COUNT];
const apr_codec *apr_host_codecs(void);

bool apr_can_decode(apr_dtype dtype);
bool apr_can_encode(apr_dtype dtype);

/* Decodes logical rows [row, row + n_rows) of any decodable tensor to float32, whatever its source (apr_tensor_source), with FP8 scales
 * and flat types. Nothing is allocated. A range of a composed tensor costs as much as that range: moves copy bytes, and values are
 * computed in float32, in the order of the steps. dst holds n_rows * columns. */
void apr_decode_rows(const apr_tensor *tensor, int64_t row, int64_t n_rows, float *dst);
/* Columns [column, column + n) of one of those rows; whole blocks if the tensor is composed. */
void apr_decode_part(const apr_tensor *tensor, int64_t row, int64_t column, int64_t n, float *dst);
/* Elements [first, first + n), counted through all rows, of a tensor without a pending step; whole blocks if it is composed. */
void apr_decode_elements(const apr_tensor *tensor, int64_t first, int64_t n, float *dst);

/* The same elements, in their logical order, as a file of the tensor's type stores them: apr_row_bytes(tensor->dtype, n) bytes. Whole
 * blocks; whole rows if the tensor is packed or has a pending step; a flat type only as a whole. */
void apr_read_bytes(const apr_tensor *tensor, int64_t first, int64_t n, uint8_t *dst);
/* Is every logical row of both stored as the same bytes? The shapes must be equal. */
bool apr_same_bytes(const apr_tensor *a, const apr_tensor *b);

/* Scales [first, first + n) of those that the blocks of columns of a stored row have. In a stack each matrix has its own rows of scales; a
 * single scale is for all. */
void apr_decode_scales(const apr_tensor *tensor, int64_t stored_row, int64_t first, int64_t n, float *scales);

/* One row of FP8 with one scale: scale = max|x| / 448 (1 for a row of zeros), dst = e4m3(x / scale); value = dst * scale. */
void apr_encode_fp8_row(const float *src, uint8_t *dst, float *scale, int64_t n_elems);
void apr_ref_encode_fp8_row(const float *src, uint8_t *dst, float *scale, int64_t n_elems); /* the definition */

#endif
