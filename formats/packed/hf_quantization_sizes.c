/* hf_quantization_sizes.c - computes the bytes of a scheme's tensors. */
#include "formats/packed/hf_quantization.h"

#include "formats/base/bytes.h"
#include "formats/tensor/canonical_layout.h"

#include <stdio.h>
#include <string.h>

static uint64_t per(uint64_t n, uint64_t each) { return n / each + (n % each != 0); }

/* --- one matrix [rows, columns] --- */

typedef struct matrix {
    const apr_quant_scheme *scheme;
    uint64_t rows, columns, bits;
    uint64_t groups;   /* scales along a row */
    uint64_t n_scales; /* of the matrix */
} matrix;

/* Bytes of n integers of b bits, packed into whole 32-bit words. */
static uint64_t packed(uint64_t n, uint64_t bits) { return apr_saturating_mul(4, per(apr_saturating_mul(n, bits), 32)); }

static uint64_t one_byte_codes(const matrix *m) { return apr_saturating_mul(m->rows, m->columns); }
static uint64_t half_byte_codes(const matrix *m) { return per(apr_saturating_mul(m->rows, m->columns), 2); }
/* GPTQ's words go down the columns; there are as many. */
static uint64_t int_codes(const matrix *m) { return apr_saturating_mul(m->rows, packed(m->columns, m->bits)); }
static uint64_t awq_codes(const matrix *m) { return apr_saturating_mul(m->columns, packed(m->rows, m->bits)); }

static uint64_t int8_zeros(const matrix *m) { return m->n_scales; }
static uint64_t int_zeros(const matrix *m) { return apr_saturating_mul(m->groups, packed(m->rows, m->bits)); }

/* Bytes of the other tensors, besides codes, scales and zero points. */
static uint64_t int8_rest(const matrix *m) { return m->scheme->scale_bytes == 4 ? 64 : 0; /* weight_format */ }
static uint64_t nvfp4_rest(const matrix *m) { return m != NULL ? 64 : 0; /* the tensor's scale */ }
static uint64_t int_packed_rest(const matrix *m)
{
    return 64 /* weight_shape */ + (m->scheme->act_order ? apr_pad64(apr_saturating_mul(m->columns, 4)) : 0);
}
static uint64_t gptq_rest(const matrix *m) { return m->scheme->act_order ? apr_pad64(apr_saturating_mul(m->columns, 4)) : 0; }
/* quant_map, quant_state (a short JSON text), and the scales of the scales: one float for 256, a table, an offset in the text */
static uint64_t nf4_rest(const matrix *m)
{
    return 64 + 128 + (m->scheme->nested_scales ? 1024 + apr_pad64(apr_saturating_mul(4, per(m->n_scales, 256))) : 0);
}

static const struct {
    uint64_t (*codes)(const matrix *m), (*zeros)(const matrix *m), (*rest)(const matrix *m);
} layouts[APR_QUANT_LAYOUT_COUNT] = {
    [APR_QUANT_FP8] = {one_byte_codes, NULL, NULL},
    [APR_QUANT_MXFP8] = {one_byte_codes, NULL, NULL},
    [APR_QUANT_MXFP4] = {half_byte_codes, NULL, NULL},
    [APR_QUANT_NVFP4] = {half_byte_codes, NULL, nvfp4_rest},
    [APR_QUANT_INT8] = {one_byte_codes, int8_zeros, int8_rest},
    [APR_QUANT_INT_PACKED] = {int_codes, int_zeros, int_packed_rest},
    [APR_QUANT_GPTQ] = {int_codes, int_zeros, gptq_rest},
    [APR_QUANT_AWQ] = {awq_codes, int_zeros, NULL},
    [APR_QUANT_NF4] = {half_byte_codes, NULL, nf4_rest},
};

static matrix describe(const apr_quant_scheme *s, int64_t rows, int64_t columns)
{
    matrix m = {.scheme = s, .rows = (uint64_t)rows, .columns = (uint64_t)columns, .bits = (uint64_t)s->bits};

    m.groups = s->block_columns > 0 ? per(m.columns, (uint64_t)s->block_columns) : 1;
    m.n_scales = apr_saturating_mul(m.groups, s->block_rows > 0 ? per(m.rows, (uint64_t)s->block_rows) : 1);
    if (s->layout == APR_QUANT_NF4) m.n_scales = per(apr_saturating_mul(m.rows, m.columns), (uint64_t)s->block_columns); /* in flat order */
    return m;
}

uint64_t apr_quant_bytes(const apr_quant_scheme *s, int64_t n_matrices, int64_t rows, int64_t columns)
{
    const matrix m = describe(s, rows, columns);
    const uint64_t n = (uint64_t)n_matrices;
    uint64_t bytes = apr_pad64(apr_saturating_mul(n, layouts[s->layout].codes(&m)));

    bytes = apr_saturating_add(
        bytes, apr_pad64(apr_saturating_mul(n, apr_saturating_mul(m.n_scales, s->nested_scales ? 1 : (uint64_t)s->scale_bytes))));
    if (s->zero_points && layouts[s->layout].zeros != NULL)
        bytes = apr_saturating_add(bytes, apr_pad64(apr_saturating_mul(n, layouts[s->layout].zeros(&m))));
    if (layouts[s->layout].rest != NULL) bytes = apr_saturating_add(bytes, layouts[s->layout].rest(&m));
    return bytes;
}

static uint64_t common_divisor(uint64_t a, uint64_t b) { return b == 0 ? a : common_divisor(b, a % b); }

/* bitsandbytes' blocks cross rows. Rows consist of whole blocks of the common divisor of row and block size. */
static uint64_t n_row_scales(const matrix *m)
{
    return apr_saturating_mul(m->rows, m->columns / common_divisor(m->columns, (uint64_t)m->scheme->block_columns));
}

uint64_t apr_quant_device_bytes(const apr_quant_scheme *s, int64_t n_matrices, int64_t rows, int64_t columns)
{
    const matrix m = describe(s, rows, columns);
    const uint64_t n = (uint64_t)n_matrices,
                   n_scales = apr_saturating_mul(n, s->layout == APR_QUANT_NF4 && columns > 0 ? n_row_scales(&m) : m.n_scales);
    const apr_canonical_layout form = {
        .rows = apr_saturating_mul(n, m.rows),
        .columns = m.columns,
        .bits = (uint64_t)apr_canonical_bits(s->bits),
        .n_scales = n_scales,
        .scale_bytes = s->nested_scales ? 4 : (uint64_t)s->scale_bytes,
        .n_zeros = s->zero_points && layouts[s->layout].zeros != NULL ? n_scales : 0,
        .n_global_scales = s->layout == APR_QUANT_NVFP4 ? n : 0,
        .n_groups = s->act_order && !s->sorted ? apr_saturating_mul(n, m.columns) : 0,
    };
    uint64_t offsets[APR_CANONICAL_SECTIONS + 1];

    apr_canonical_offsets(&form, offsets);
    return offsets[APR_CANONICAL_SECTIONS];
}

char *apr_quant_text(const apr_quant_scheme *s, char *text, size_t n_bytes)
{
#define X(id, name) [APR_QUANT_##id] = name,
    static const char *const names[] = {APR_QUANT_LAYOUT_LIST(X)};
#undef X
    char bits[24] = "", scales[64];
    const bool is_int =
        s->layout == APR_QUANT_INT_PACKED || s->layout == APR_QUANT_GPTQ || s->layout == APR_QUANT_AWQ || s->layout == APR_QUANT_NF4;

    if (is_int) snprintf(bits, sizeof bits, ", %d bits", s->bits);
    if (s->block_rows > 1) snprintf(scales, sizeof scales, "blocks of %lldx%lld", (long long)s->block_rows, (long long)s->block_columns);
    else if (s->block_columns > 0) snprintf(scales, sizeof scales, "groups of %lld", (long long)s->block_columns);
    else snprintf(scales, sizeof scales, "one scale a %s", s->block_rows == 1 ? "row" : "tensor");
    snprintf(text, n_bytes, "%s%s, %s", names[s->layout], bits, scales);
    return text;
}
