/* kernels/rows.h - rows of numbers to rows of numbers: every dtype's codec, defined once.
 *
 * The arithmetic in kernels/ref is the definition: scalar float32, no contraction of multiply-add, a fixed order of sums.
 * Whatever is faster (SIMD, CUDA) gives the same bytes and bits and is tested by equality. Codecs work on whole blocks, do
 * not allocate, never fail and never read or write past what they are given. Source and destination do not overlap and
 * need no alignment beyond float's for the float side.
 *
 * Values outside a format's range: NaN encodes like 0 in block formats (and stays NaN in f16, bf16, fp8); infinities are
 * taken as the largest finite float32 of their sign. apr_count_unusual says how many there were, so that a tool can tell. Finite
 * values beyond a format's range become infinite in f16 and bf16, and in blocks the bound: see kernels/misfits.h. */
#ifndef APR_KERNELS_ROWS_H
#define APR_KERNELS_ROWS_H

#include "formats/model/model.h"

typedef void (*apr_decode_fn)(const void *src, float *dst, int64_t n_elems);
typedef void (*apr_encode_fn)(const float *src, void *dst, int64_t n_elems);
/* importance[n_elems]: how much the squared error of each value counts beside that of the others in its block; only ratios matter.
 * Not negative; NaN is 0. Where all of a block are equal (all 0 among them) its bytes are those of `encode`. */
typedef void (*apr_encode_by_fn)(const float *src, const float *importance, void *dst, int64_t n_elems);

typedef struct apr_codec {
    apr_decode_fn decode;       /* NULL: this dtype is only carried */
    apr_encode_fn encode;       /* NULL: cannot be made */
    apr_encode_by_fn encode_by; /* NULL: importance changes nothing (floats, 8 bits) */
} apr_codec;

/* Indexed by dtype. `ref` is the truth; `host` is the fastest implementation of the same for this machine, chosen before main
 * begins (kernels/host/codecs/levels.h). Where there is no twin, host's entry is ref's. F8_E4M3 here converts plain values (no scale): see
 * apr_encode_fp8_row. The flat types APR_Q4 and APR_Q8 decode from the start of a tensor only: use apr_decode_rows. */
extern const apr_codec apr_ref_codecs[APR_DTYPE_COUNT];
const apr_codec *apr_host_codecs(void);

bool apr_can_decode(apr_dtype dtype);
bool apr_can_encode(apr_dtype dtype);

/* Logical rows [row, row + n_rows) of any tensor that can be decoded, as float32: pending step, FP8 scales and flat types
 * taken care of, and tensors that are made of others. dst holds n_rows * columns. */
void apr_decode_rows(const apr_tensor *tensor, int64_t row, int64_t n_rows, float *dst);
/* Columns [column, column + n) of one of those rows; where the tensor is made of others, whole blocks. */
void apr_decode_part(const apr_tensor *tensor, int64_t row, int64_t column, int64_t n, float *dst);
/* Elements [first, first + n), counted through all rows, of a tensor without a pending step. Of one that is made, whole blocks. */
void apr_decode_elements(const apr_tensor *tensor, int64_t first, int64_t n, float *dst);

/* One row of FP8 with one scale: scale = max|x| / 448 (1 for a row of zeros), dst = e4m3(x / scale); value = dst * scale. */
void apr_encode_fp8_row(const float *src, uint8_t *dst, float *scale, int64_t n_elems);
void apr_ref_encode_fp8_row(const float *src, uint8_t *dst, float *scale, int64_t n_elems); /* the truth */

/* NaN and infinities. */
int64_t apr_count_unusual(const float *x, int64_t n_elems);

#endif
