/* packings_compressed.c - binds compressed-tensors' integers (packed into I32, or plain I8) and MXFP8, whose scales are powers of two.
 *
 *                  codes                          scales                   zero points
 *     pack         weight_packed I32 [N, K*b/32]  weight_scale [N, G]      weight_zero_point I32 [N*b/32, G], packed down the rows
 *     INT8         weight I8 [N, K]               [N, 1], [N], [1], [N,G]  weight_zero_point I8, shaped like the scales
 *     MXFP8        weight F8_E4M3 [N, K]          U8 [N, K/32]             -
 *
 * Packed codes and zero points are both shifted by 2^(b-1), so that the shifts cancel. All tensors may be stacked: [E, ..]. */
#include "formats/packed/packings_bind.h"

#include "formats/base/bytes.h"

#include <stdio.h>
#include <string.h>

static const apr_dtype words[] = {APR_I32, APR_DTYPE_COUNT}, signed_bytes[] = {APR_I8, APR_DTYPE_COUNT};

/* --- packed --- */

static bool is_int_packed(const apr_binding *b) { return b->codes->rank >= 2 && b->codes->dtype == APR_I32; }

/* Reads the last number of weight_shape, and checks the others. */
static apr_status read_shape(apr_binding *b, int64_t *columns)
{
    static const apr_dtype dtypes[] = {APR_I64, APR_I32, APR_DTYPE_COUNT};
    const apr_tensor *shape;
    int64_t stated[APR_MAX_RANK];
    const int rank = b->codes->rank;

    APR_TRY(apr_need_part(b, ".weight_shape", &shape));
    APR_TRY(apr_check_dtype(b, shape, dtypes, "i64"));
    APR_TRY(apr_check_shape(b, shape, 1, (const int64_t[]){rank}, "one number for each dimension needs"));
    for (int i = 0; i < rank; i++)
        stated[i] = shape->dtype == APR_I64 ? (int64_t)apr_load_le64(shape->data + 8 * i) : (int32_t)apr_load_le32(shape->data + 4 * i);
    for (int i = 0; i + 1 < rank; i++)
        if (stated[i] != b->codes->dims[i])
            return apr_fail(b->err, APR_E_DAMAGED, "%s: '%s' states %lld where '%s' has %lld", b->model->path, shape->name,
                            (long long)stated[i], b->codes->name, (long long)b->codes->dims[i]);
    *columns = stated[rank - 1];
    return APR_OK;
}

/* Older libraries left a gap in each word for widths that do not divide 32. */
static int64_t words_with_gaps(int64_t n, int64_t bits) { return apr_div_up(n, 32 / bits); }

/* The bits that config.json states, or those that make the columns fill `n_words` words. 0: none. */
static int find_bits(const apr_quant_scheme *scheme, int64_t n_words, int64_t columns)
{
    static const int widths[] = {4, 8, 2, 3, 5, 6, 7};

    if (scheme != NULL) return scheme->bits >= 1 && scheme->bits <= 8 ? scheme->bits : 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (apr_words_of(columns, widths[i]) == n_words) return widths[i];
    return 0;
}

static apr_status check_words(const apr_binding *b, int bits, int64_t columns)
{
    const int64_t n_words = b->codes->dims[b->codes->rank - 1];

    if (columns >= 1 && columns <= n_words * 32 && bits > 0 && apr_words_of(columns, bits) == n_words) return APR_OK;
    return apr_fail(b->err, APR_E_DAMAGED,
                    "%s: '%.*s.weight_shape' states %lld columns, which with %d bits do not fill the %lld words of a row of '%s'",
                    b->model->path, (int)b->n_stem, b->codes->name, (long long)columns, bits, (long long)n_words, b->codes->name);
}

/* Binds zero points that are packed down the rows. */
static apr_status bind_packed_zeros(apr_binding *b)
{
    apr_packing *const p = &b->packing;
    const int n_leading = b->codes->rank - 2;
    int64_t dims[APR_MAX_RANK];

    p->zeros = apr_binding_part(b, ".weight_zero_point");
    p->zero_bias = p->zeros == NULL ? 1 << (p->bits - 1) : 0;
    if (p->zeros == NULL) return APR_OK;
    b->left_alone = p->zeros->dtype == APR_I8; /* unpacked, for one scale per matrix: not supported, as no known program writes it */
    if (b->left_alone) return APR_OK;
    APR_TRY(apr_check_dtype(b, p->zeros, words, "i32"));
    memcpy(dims, b->codes->dims, (size_t)n_leading * sizeof *dims);
    dims[n_leading] = apr_words_of(p->matrix_rows, p->bits);
    dims[n_leading + 1] = apr_div_up(p->columns, p->scale_columns);
    APR_TRY(apr_check_shape(b, p->zeros, n_leading + 2, dims, "one zero point for each scale needs"));
    p->zero_order = APR_ZEROS_DOWN;
    return APR_OK;
}

/* Binds the group index [K] of one matrix. An index that was never set is all -1. */
static apr_status bind_index(apr_binding *b)
{
    const apr_tensor *const index = apr_binding_part(b, ".weight_g_idx");
    bool is_set = false;

    if (index == NULL) return APR_OK;
    APR_TRY(apr_check_dtype(b, index, words, "i32"));
    APR_TRY(apr_check_shape(b, index, 1, &b->packing.columns, "one index for each column needs"));
    for (int64_t i = 0; i < b->packing.columns && !is_set; i++) is_set = apr_load_le32(index->data + 4 * i) != UINT32_MAX;
    return is_set ? apr_bind_index(b, index, apr_packing_groups(&b->packing)) : APR_OK;
}

static apr_status bind_int_packed(apr_binding *b)
{
    const apr_quant_scheme *const scheme = apr_stated_scheme(b, APR_QUANT_INT_PACKED);
    const int64_t n_words = b->codes->dims[b->codes->rank - 1];
    int64_t columns = 0;
    char text[64];

    APR_TRY(apr_need_scales(b, ".weight_scale"));
    APR_TRY(read_shape(b, &columns));
    const int bits = find_bits(scheme, n_words, columns);
    b->left_alone = bits > 0 && 32 % bits != 0 && apr_words_of(columns, bits) != n_words && words_with_gaps(columns, bits) == n_words;
    if (b->left_alone) return APR_OK;
    APR_TRY(check_words(b, bits, columns));
    apr_set_dims(b, b->codes->dims[b->codes->rank - 2], columns);
    APR_TRY(apr_bind_row_scales(b, 0, scheme));
    b->packing.bits = bits;
    APR_TRY(bind_packed_zeros(b));
    if (b->left_alone) return APR_OK;
    APR_TRY(bind_index(b));
    return apr_set_scheme(b, "compressed-tensors, %d bits, %s%s%s", bits, apr_scales_text(&b->packing, text, sizeof text),
                          b->packing.zeros != NULL ? ", zero points" : "", b->packing.groups != NULL ? ", act order" : "");
}

/* --- bytes --- */

static bool is_int8(const apr_binding *b)
{
    return b->codes->rank >= 2 && b->codes->dtype == APR_I8 && apr_companion(b, ".weight_scale") != NULL;
}

static apr_status bind_int8(apr_binding *b)
{
    apr_packing *const p = &b->packing;
    const int rank = b->codes->rank;
    char text[64];

    APR_TRY(apr_need_scales(b, ".weight_scale"));
    apr_set_dims(b, b->codes->dims[rank - 2], b->codes->dims[rank - 1]);
    APR_TRY(apr_bind_row_scales(b, 0, apr_stated_scheme(b, APR_QUANT_INT8)));
    p->zeros = apr_binding_part(b, ".weight_zero_point");
    if (p->zeros != NULL) {
        p->zero_order = APR_ZEROS_BY_ROW;
        APR_TRY(apr_check_dtype(b, p->zeros, signed_bytes, "i8"));
        APR_TRY(apr_check_shape(b, p->zeros, p->scales->rank, p->scales->dims, "one zero point for each scale needs"));
    }
    return apr_set_scheme(b, "INT8, %s%s", apr_scales_text(p, text, sizeof text), p->zeros != NULL ? ", zero points" : "");
}

/* FP8 with float scales is bound by apr_bind_scales (fp8_scales.c). */
static bool is_mxfp8(const apr_binding *b)
{
    const apr_tensor *const scales = apr_companion(b, ".weight_scale");
    return b->codes->rank >= 2 && b->codes->dtype == APR_F8_E4M3 && b->codes->scale == NULL && scales != NULL && scales->dtype == APR_U8;
}

static apr_status bind_mxfp8(apr_binding *b)
{
    const int rank = b->codes->rank;

    APR_TRY(apr_need_part(b, ".weight_scale", &b->packing.scales));
    apr_set_dims(b, b->codes->dims[rank - 2], b->codes->dims[rank - 1]);
    APR_TRY(apr_bind_row_scales(b, 32, NULL));
    b->matrix.dtype = APR_BF16;
    return apr_set_scheme(b, "MXFP8, groups of 32");
}

const apr_packing_layout apr_layouts_compressed[] = {
    {".weight_packed", is_int_packed, bind_int_packed, {.level = APR_LEVEL_UNSIGNED}},
    {".weight", is_int8, bind_int8, {.level = APR_LEVEL_SIGNED, .bits = 8}},
    {".weight", is_mxfp8, bind_mxfp8, {.level = APR_LEVEL_E4M3, .bits = 8, .scale_dtype = APR_E8M0}},
    {0}};
