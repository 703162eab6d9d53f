/* packings_gptq.c - binds GPTQ and AWQ: I32 words that are packed along the inputs, or for AWQ along the outputs in an interleaved order.
 *
 *             qweight           scales    qzeros           g_idx
 *     GPTQ    [K*b/32, N]       [G, N]    [G, N*b/32]      [K], may be missing     value = scale * (q - zero), v1: scale * (q - zero - 1)
 *     AWQ     [K, N/8], b = 4   [G, N]    [G, N/8]         -
 *
 * Three bits are packed like all others, as a bit string: 32 codes in three words. A partly filled last word is padded. GPTQModel subtracts
 * 1 from zero points on whole words. So a v1 zero point of 0 is stored as 2^b - 1, with a borrow from the next one in the word. */
#include "formats/packed/packings_bind.h"

#include <stdio.h>

static bool is_qweight(const apr_binding *b) { return b->codes->rank == 2 && b->codes->dtype == APR_I32; }

/* Other widths are packed in bit planes (gptq_p), which is not supported. */
static const int widths[] = {4, 8, 2, 3};

/* The stated width, or the one that fits the words of the zero points, which are packed along the rows; 0: none. */
static int find_bits(const apr_quant_scheme *scheme, int64_t n_rows, const apr_tensor *zeros)
{
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const bool fits = zeros->rank == 2 && apr_words_of(n_rows, widths[i]) == zeros->dims[1];
        if (scheme != NULL ? scheme->bits == widths[i] : fits) return widths[i];
    }
    return 0;
}

/* config.json's group size, or equal groups by the number of rows of scales. Fails if the number of groups does not fit. */
static apr_status find_group(const apr_binding *b, const apr_tensor *scales, const apr_quant_scheme *scheme, int64_t *group)
{
    const int64_t columns = b->packing.columns, n = scales->dims[0];

    *group = scheme == NULL ? columns / n : scheme->block_columns > 0 ? scheme->block_columns : columns;
    if (*group > columns) *group = columns;
    if (*group > 0 && apr_div_up(columns, *group) == n && (scheme != NULL || columns % n == 0)) return APR_OK;
    if (scheme == NULL)
        return apr_fail(b->err, APR_E_DAMAGED, "%s: '%s' has %lld groups, which do not divide the %lld columns of '%s'", b->model->path,
                        scales->name, (long long)n, (long long)columns, b->codes->name);
    return apr_fail(b->err, APR_E_DAMAGED,
                    "%s: '%s' has %lld groups, but config.json's group size of %lld makes %lld of the %lld columns of '%s'", b->model->path,
                    scales->name, (long long)n, (long long)*group, (long long)apr_div_up(columns, *group), (long long)columns,
                    b->codes->name);
}

/* Finds the parts that both layouts have, and checks types and ranks. */
static apr_status find_parts(apr_binding *b)
{
    static const apr_dtype words[] = {APR_I32, APR_DTYPE_COUNT};

    APR_TRY(apr_need_scales(b, ".scales"));
    APR_TRY(apr_need_part(b, ".qzeros", &b->packing.zeros));
    APR_TRY(apr_check_dtype(b, b->packing.zeros, words, "i32"));
    const apr_tensor *const scales = b->packing.scales;
    if (scales->rank == 2 && apr_tensor_elems(scales) > 0) return APR_OK;
    return apr_fail(b->err, APR_E_DAMAGED, "%s: '%s' has %d dimensions and %lld numbers where scales are a matrix", b->model->path,
                    scales->name, scales->rank, (long long)apr_tensor_elems(scales));
}

/* K: the length of the group index, or as many columns as the words hold. */
static apr_status find_columns(const apr_binding *b, const apr_tensor *index, int bits, int64_t *columns)
{
    const int64_t n_words = b->codes->dims[0], max_columns = n_words * 32 / bits;

    *columns = index != NULL && index->rank == 1 ? index->dims[0] : max_columns;
    if (*columns > 0 && *columns <= max_columns && apr_words_of(*columns, bits) == n_words) return APR_OK;
    return apr_fail(b->err, APR_E_DAMAGED, "%s: the %lld columns of %d bits of '%s' do not fill the %lld rows of words of '%s'",
                    b->model->path, (long long)*columns, bits, index != NULL ? index->name : b->codes->name, (long long)n_words,
                    b->codes->name);
}

static apr_status bind_gptq(apr_binding *b)
{
    const apr_quant_scheme *const scheme = apr_stated_scheme(b, APR_QUANT_GPTQ);
    const apr_tensor *const scales = b->packing.scales, *const zeros = b->packing.zeros, *const index = apr_binding_part(b, ".g_idx");
    const int64_t n_rows = b->codes->dims[1], n_groups = scales->dims[0];
    const int bits = find_bits(scheme, n_rows, zeros);
    int64_t columns, group;
    char why[64], text[64];

    b->left_alone = bits == 0;
    if (b->left_alone) return APR_OK;
    APR_TRY(find_columns(b, index, bits, &columns));
    apr_set_dims(b, n_rows, columns);
    APR_TRY(find_group(b, scales, scheme, &group));
    snprintf(why, sizeof why, "%d bits in groups of %lld need", bits, (long long)group);
    APR_TRY(apr_check_shape(b, scales, 2, (const int64_t[]){n_groups, n_rows}, why));
    APR_TRY(apr_check_shape(b, zeros, 2, (const int64_t[]){n_groups, apr_words_of(n_rows, bits)}, why));
    b->packing.scale_columns = group;
    if (index != NULL) APR_TRY(apr_bind_index(b, index, n_groups));
    b->packing.order = APR_CODES_DOWN;
    b->packing.bits = bits;
    b->packing.zero_order = APR_ZEROS_ALONG_ROWS;
    b->packing.zero_bias = scheme == NULL || scheme->zeros_less_one ? 1 : 0;
    return apr_set_scheme(b, "GPTQ%s, %d bits, %s%s", b->packing.zero_bias == 0 ? " v2" : "", bits,
                          apr_scales_text(&b->packing, text, sizeof text), b->packing.groups != NULL ? ", act order" : "");
}

static apr_status bind_awq(apr_binding *b)
{
    const apr_quant_scheme *const scheme = apr_stated_scheme(b, APR_QUANT_AWQ);
    const apr_tensor *const scales = b->packing.scales, *const zeros = b->packing.zeros;
    const int64_t columns = b->codes->dims[0], n_rows = scales->dims[1], n_groups = scales->dims[0];
    int64_t group;
    char text[64];

    if (scheme != NULL && scheme->bits != 4)
        return apr_fail(b->err, APR_E_DAMAGED, "%s: config.json states AWQ with %d bits, but the words of '%s' hold 8 codes of 4",
                        b->model->path, scheme->bits, b->codes->name);
    APR_TRY(apr_check_shape(b, scales, 2, (const int64_t[]){n_groups, b->codes->dims[1] * 8}, "words of 8 codes need"));
    apr_set_dims(b, n_rows, columns);
    APR_TRY(find_group(b, scales, scheme, &group));
    APR_TRY(apr_check_shape(b, zeros, 2, (const int64_t[]){n_groups, b->codes->dims[1]}, "AWQ with 4 bits needs"));
    b->packing.scale_columns = group;
    b->packing.order = APR_CODES_INTERLEAVED;
    b->packing.bits = 4;
    b->packing.zero_order = APR_ZEROS_INTERLEAVED;
    return apr_set_scheme(b, "AWQ, 4 bits, %s", apr_scales_text(&b->packing, text, sizeof text));
}

/* AWQ packs 8 codes per word along the outputs, so its scales are 8 times as long as the rows of codes. GPTQ's are as long. */
static bool is_awq(const apr_binding *b)
{
    if (apr_stated_scheme(b, APR_QUANT_AWQ) != NULL) return true;
    return apr_stated_scheme(b, APR_QUANT_GPTQ) == NULL && b->packing.scales->dims[1] == 8 * b->codes->dims[1];
}

static apr_status bind_qweight(apr_binding *b)
{
    APR_TRY(find_parts(b));
    return is_awq(b) ? bind_awq(b) : bind_gptq(b);
}

const apr_packing_layout apr_layouts_gptq[] = {
    {".qweight", is_qweight, bind_qweight, {.level = APR_LEVEL_UNSIGNED, .scales_down = true, .scale_rows = 1}}, {0}};
