/* packings_bind.h - shared by the files that bind one layout each: finding the parts of a matrix by its tensor of codes, and checks.
 *
 * apr_bind_packings fills the first half of a binding, and starts its packing with what the layout's row states. The layout's function fills
 * in the rest, dims, dtype and scheme. All of it is allocated in the model's arena. */
#ifndef APR_FORMATS_HF_PACKINGS_BIND_H
#define APR_FORMATS_HF_PACKINGS_BIND_H

#include "formats/base/bytes.h"
#include "formats/packed/hf_quantization.h"
#include "formats/tensor/packing.h"

enum { APR_MAX_PARTS = 8 };

/* Parts that are equal for many matrices and are stored once. */
typedef struct apr_shared_parts {
    const float *levels; /* the last table of levels, [16] */
} apr_shared_parts;

typedef struct apr_binding {
    const apr_model *model;
    apr_arena *arena;
    apr_error *err;
    apr_shared_parts *shared;
    const apr_tensor *codes;
    size_t n_stem; /* length of codes->name without the layout's suffix */

    apr_packing packing;
    apr_tensor matrix; /* dtype, rank and dims */
    const apr_tensor *parts[APR_MAX_PARTS];
    bool left_alone; /* the layout turned out to be unknown: do not bind */
} apr_binding;

/* Does the binding have this layout? Called for every tensor with the layout's suffix. */
typedef bool (*apr_layout_is_fn)(const apr_binding *b);
typedef apr_status (*apr_layout_bind_fn)(apr_binding *b);

/* Layouts whose tensors have the same kind of names. An entry without a suffix ends a list. */
typedef struct apr_packing_layout {
    const char *suffix; /* of the codes' name */
    apr_layout_is_fn is;
    apr_layout_bind_fn bind;
    apr_packing packing; /* what all matrices of the layout have: order, level and bits of the codes, order of the zero points */
} apr_packing_layout;

extern const apr_packing_layout apr_layouts_gptq[], apr_layouts_bitsandbytes[], apr_layouts_compressed[], apr_layouts_fp4[];

/* --- parts --- */

/* The tensor whose name is the codes' stem and the suffix, or NULL. */
const apr_tensor *apr_companion(const apr_binding *b, const char *suffix);
/* The same, and adds it to the parts. apr_need_part fails if there is none. */
const apr_tensor *apr_binding_part(apr_binding *b, const char *suffix);
apr_status apr_need_part(apr_binding *b, const char *suffix, const apr_tensor **part);

/* --- what config.json says --- */

/* The scheme of the matrix if it is of that layout, otherwise NULL. */
const apr_quant_scheme *apr_stated_scheme(const apr_binding *b, apr_quant_layout layout);

/* --- checks: APR_E_DAMAGED with a message that names file, tensor, actual and expected values --- */

/* The type must be one of `dtypes`, a list that ends with APR_DTYPE_COUNT. `names` is the list for the message: "f16, bf16 or f32". */
apr_status apr_check_dtype(const apr_binding *b, const apr_tensor *part, const apr_dtype *dtypes, const char *names);
/* `why` says what needs that shape: "4 bits in groups of 128 need". */
apr_status apr_check_shape(const apr_binding *b, const apr_tensor *part, int rank, const int64_t *dims, const char *why);
/* Needs a part of that name, of F16, BF16 or F32, and makes them the scales and their type the matrix's. */
apr_status apr_need_scales(apr_binding *b, const char *suffix);
/* Binds the group index [K] of one matrix: act order, unless it is the natural order. */
apr_status apr_bind_index(apr_binding *b, const apr_tensor *index, int64_t n_groups);

/* --- shapes --- */

/* 32-bit words of n codes that are packed without gaps. */
int64_t apr_words_of(int64_t n, int64_t bits);
/* Sets rows, columns, matrix_rows and dims from the codes' leading dimensions, then `rows`, then `columns`. */
void apr_set_dims(apr_binding *b, int64_t rows, int64_t columns);
/* Binds scales of rows of codes: one per matrix, one per row ([.., N, 1] or [.., N]), groups of `group` columns ([.., N, K / group]; 0: by
 * the shape), or the blocks that the scheme states. Sets what one scale covers. */
apr_status apr_bind_row_scales(apr_binding *b, int64_t group, const apr_quant_scheme *scheme);

/* "groups of 128", "one scale a row", ...: the second half of a scheme's text. Returns text. */
char *apr_scales_text(const apr_packing *packing, char *text, size_t n_bytes);
apr_status apr_set_scheme(apr_binding *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
