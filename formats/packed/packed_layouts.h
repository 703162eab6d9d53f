/* packed_layouts.h - the quantized layouts of folders that are written: the tensors that a matrix becomes, which matrices can be written,
 * and what config.json says about them. The readers of the same layouts are packings_*.c and hf_quantization.c.
 *
 *     type   layout              tensors of a matrix [m, n], g columns a scale
 *     nvfp4  compressed-tensors  weight_packed U8 [m, n/2], weight_scale E4M3 [m, n/16], weight_global_scale F32 [1]: a divisor
 *            modelopt            weight U8 [m, n/2], weight_scale E4M3 [m, n/16], weight_scale_2 F32 []: a multiplier
 *     mxfp4  compressed-tensors  weight_packed U8 [m, n/2], weight_scale U8 [m, n/32]: powers of two
 *     fp8    fp8                 weight E4M3 [m, n], weight_scale_inv F32 [m/128, n/128], rounded up
 *     int4   compressed-tensors  weight_packed I32 [m, n/8], weight_scale BF16 or F16 [m, n/g], weight_shape I64 [2]
 *            gptq                qweight I32 [n/8, m], qzeros I32 [n/g, m/8], scales F16 [n/g, m], g_idx I32 [n]
 *            awq                 qweight I32 [n, m/8], qzeros I32 [n/g, m/8], scales F16 [n/g, m]
 *
 * fp8 as compressed-tensors (a scale for each row) needs no packing: it is the type fp8 (kernels/rows.h). Its row is here for its name. */
#ifndef APR_FORMATS_PACKED_LAYOUTS_H
#define APR_FORMATS_PACKED_LAYOUTS_H

#include "formats/base/json.h"
#include "formats/tensor/packing.h"

enum { APR_LAYOUT_PARTS = 4, APR_LAYOUT_GROUPS = 3 };

/* What a tensor of a packed matrix holds. */
typedef enum {
    APR_PACKED_CODES,
    APR_PACKED_SCALES,
    APR_PACKED_ZEROS,
    APR_PACKED_GLOBAL_SCALE, /* of the whole matrix */
    APR_PACKED_SHAPE,        /* rows and columns */
    APR_PACKED_INDEX         /* the group of each column, in order */
} apr_packed_content;

typedef struct apr_packed_part {
    const char *suffix; /* of its name, after the module's; NULL: no more parts */
    apr_dtype dtype;    /* APR_DTYPE_COUNT: the model's type of 16 bits */
    apr_packed_content content;
} apr_packed_part;

/* The forms of quantization_config (packed_config.c). */
typedef enum {
    APR_CONFIG_COMPRESSED_NVFP4,
    APR_CONFIG_COMPRESSED_MXFP4,
    APR_CONFIG_COMPRESSED_INT4,
    APR_CONFIG_MODELOPT,
    APR_CONFIG_FP8,
    APR_CONFIG_GPTQ,
    APR_CONFIG_AWQ,
    APR_CONFIG_KINDS
} apr_packed_config_kind;

typedef struct apr_packed_layout {
    const char *type, *name; /* of --to and of --layout */
    const char *about;
    apr_dtype dtype;     /* what recipes count the matrices as; int4 has no such type: I32 */
    bool by_row;         /* fp8 with a scale for each row, which is not packed */
    apr_packing packing; /* order, level, bits, zero points, and what a scale covers */
    apr_packed_part parts[APR_LAYOUT_PARTS];
    int groups[APR_LAYOUT_GROUPS];     /* columns a scale; the first is the usual one; 0: no more */
    int row_multiple, column_multiple; /* of a matrix that kernels can take */
    int fused_row_multiple;            /* of a matrix that is fused with others; 0: as others */
    const char *kernel;                /* what needs these multiples, for messages */
    bool shares_global_scale;          /* matrices that servers fuse must have one global scale */
    apr_packed_config_kind config;     /* what config.json says */
} apr_packed_layout;

extern const apr_packed_layout apr_packed_layouts[]; /* the last has no type */

/* One of them, with what the user and the model choose. */
typedef struct apr_packed_target {
    const apr_packed_layout *layout;
    int group;         /* columns a scale */
    apr_dtype scale16; /* APR_BF16 or APR_F16, for scales of the model's type */
} apr_packed_target;

/* name NULL: the type's usual layout; group 0: the layout's usual one. APR_E_USAGE: there is none; the message lists what there is. */
apr_status apr_packed_target_find(apr_packed_target *target, const char *type, const char *name, int64_t group, apr_error *err);
/* Is it the name of a type that only such a layout has? */
bool apr_packed_is_type(const char *type);

/* Why the matrix [rows, columns] cannot be written so that servers load it, as a clause in the arena; NULL: it can. is_fused: servers
 * fuse it with others. */
const char *apr_packed_obstacle(const apr_packed_target *target, int64_t rows, int64_t columns, bool is_fused, apr_arena *arena);

/* A matrix in that layout: its tensors, without data, and the packing that they make. The tensors' names are in the arena. */
typedef struct apr_packed_matrix {
    const apr_packed_layout *layout;
    apr_tensor parts[APR_LAYOUT_PARTS];
    const apr_tensor *list[APR_LAYOUT_PARTS];
    apr_packing packing;
} apr_packed_matrix;

/* weight: "X.weight", of two dimensions without obstacle. `matrix` points into itself and stays where it is. */
apr_status apr_packed_matrix_make(apr_packed_matrix *matrix, const apr_packed_target *target, const apr_tensor *weight, apr_arena *arena,
                                  apr_error *err);

/* --- config.json --- */

typedef struct apr_packed_config {
    const apr_packed_target *target;
    const char *const *ignored; /* [n_ignored] linear modules that are not quantized */
    size_t n_ignored;
} apr_packed_config;

/* The value of quantization_config, and of modelopt's hf_quant_config.json (NULL in other layouts). malloc'ed. */
apr_status apr_packed_config_text(const apr_packed_config *config, char **text, char **hf_quant_config, apr_error *err);

#endif
