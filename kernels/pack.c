/* pack.c - encodes the groups of a unit of rows to codes of one byte, and puts codes, scales and zero points where the layout has them. */
#include "kernels/pack.h"

#include "formats/base/bytes.h"
#include "formats/number/blocks.h"
#include "kernels/groups.h"
#include "kernels/ref/codecs.h"
#include "kernels/unpack.h"

#include <math.h>
#include <string.h>

enum { AWQ_ROWS = 8, WORD_CODES = 8, MX_GROUP = 32, MOST_GROUP = 128, NV_BLOCK = 64 };

/* Squares of these, and sums of them, are floats. */
static const float MOST_VALUE = 0x1p50f;

/* AWQ: the nibble of row 8w + i in its word. */
static const uint8_t awq_nibble[AWQ_ROWS] = {0, 4, 1, 5, 2, 6, 3, 7};

/* ---- where codes go ---- */

static uint32_t word_of(const uint8_t *codes, int64_t stride)
{
    uint32_t word = 0;
    for (int i = 0; i < WORD_CODES; i++) word |= (uint32_t)codes[i * stride] << 4 * i;
    return word;
}

static void put_by_row(const apr_pack_target *to, int64_t row, int64_t n, const uint8_t *codes)
{
    const apr_packing *const p = to->packing;
    const size_t n_row = (size_t)p->columns * (size_t)p->bits / 8;

    for (int64_t r = 0; r < n; r++) {
        uint8_t *const dst = to->codes + (size_t)(row + r) * n_row;
        const uint8_t *const src = codes + r * p->columns;
        if (p->bits == 8) memcpy(dst, src, n_row);
        else
            for (size_t i = 0; i < n_row; i++) dst[i] = (uint8_t)(src[2 * i] | src[2 * i + 1] << 4);
    }
}

static void put_down(const apr_pack_target *to, int64_t row, int64_t n, const uint8_t *codes)
{
    const apr_packing *const p = to->packing;
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < p->columns; c += WORD_CODES)
            apr_store_le32(to->codes + 4 * (c / WORD_CODES * p->rows + row + r), word_of(codes + r * p->columns + c, 1));
}

static uint32_t interleaved_word(const uint8_t *codes, int64_t stride)
{
    uint32_t word = 0;
    for (int i = 0; i < AWQ_ROWS; i++) word |= (uint32_t)codes[i * stride] << 4 * awq_nibble[i];
    return word;
}

static void put_interleaved(const apr_pack_target *to, int64_t row, int64_t n, const uint8_t *codes)
{
    const apr_packing *const p = to->packing;
    for (int64_t r = 0; r < n; r += AWQ_ROWS)
        for (int64_t c = 0; c < p->columns; c++)
            apr_store_le32(to->codes + 4 * (c * (p->rows / AWQ_ROWS) + (row + r) / AWQ_ROWS),
                           interleaved_word(codes + r * p->columns + c, p->columns));
}

typedef void (*put_fn)(const apr_pack_target *to, int64_t row, int64_t n, const uint8_t *codes);
static const put_fn writers[APR_CODES_ORDER_COUNT] = {
    [APR_CODES_BY_ROW] = put_by_row, [APR_CODES_DOWN] = put_down, [APR_CODES_INTERLEAVED] = put_interleaved};

/* Eight rows share a word of AWQ's codes and zero points, and of GPTQ's zero points; the rows of a block share a scale. */
int64_t apr_pack_unit(const apr_packing *p) { return p->order == APR_CODES_BY_ROW ? p->scale_rows : AWQ_ROWS; }

/* ---- where scales and zero points go ---- */

static void put_scale(const apr_pack_target *to, int64_t row, int64_t group, float scale)
{
    const apr_packing *const p = to->packing;
    const size_t size = (size_t)apr_dtypes[p->scale_dtype].bytes_per_block;
    apr_ref_codecs[p->scale_dtype].encode(&scale, to->scales + size * (size_t)apr_unpack_scale_index(p, row, group), 1);
}

static void put_scale_byte(const apr_pack_target *to, int64_t row, int64_t group, uint8_t byte)
{
    to->scales[apr_unpack_scale_index(to->packing, row, group)] = byte;
}

/* The zero points of the rows of a unit, one byte each, for one group. The bias of GPTQ is subtracted from whole words. */
static void put_zeros(const apr_pack_target *to, int64_t row, int64_t n, int64_t group, const uint8_t *zeros)
{
    const apr_packing *const p = to->packing;
    const bool interleaved = p->zero_order == APR_ZEROS_INTERLEAVED;

    for (int64_t r = 0; r + AWQ_ROWS <= n; r += AWQ_ROWS) {
        const uint32_t word = interleaved ? interleaved_word(zeros + r, 1) : word_of(zeros + r, 1);
        apr_store_le32(to->zeros + 4 * (group * (p->rows / AWQ_ROWS) + (row + r) / AWQ_ROWS), word - 0x11111111u * (uint32_t)p->zero_bias);
    }
}

/* ---- groups ---- */

typedef struct unit {
    const apr_pack_target *to;
    int64_t row, n;
    const float *values, *importance;
    uint8_t *codes;
} unit;

static const float no_importance[MOST_GROUP] = {0.0f};

/* Finite values of a group, and the weights of their errors. */
static void load_group(const unit *u, int64_t r, int64_t column, int n, float factor, float *x, float *w)
{
    for (int i = 0; i < n; i++) x[i] = apr_clamp_finite(u->values[r * u->to->packing->columns + column + i] * factor, MOST_VALUE);
    apr_block_weights(u->importance != NULL ? u->importance + column : no_importance, n, w);
}

static void pack_nvfp4(const unit *u)
{
    const int64_t columns = u->to->packing->columns;
    float x[APR_NVFP4_GROUP], w[APR_NVFP4_GROUP];

    for (int64_t r = 0; r < u->n; r++)
        for (int64_t c = 0; c < columns; c += APR_NVFP4_GROUP) {
            load_group(u, r, c, APR_NVFP4_GROUP, 1.0f / u->to->global_scale, x, w);
            const uint8_t scale = apr_ref_encode_nvfp4_group(x, w, u->codes + r * columns + c);
            put_scale_byte(u->to, u->row + r, c / APR_NVFP4_GROUP, scale);
        }
}

/* ggml's block has codes j and j + 16 in a byte. */
static void split_mxfp4(const apr_block_MXFP4 *block, uint8_t codes[MX_GROUP])
{
    for (int j = 0; j < MX_GROUP / 2; j++) {
        codes[j] = block->qs[j] & 15;
        codes[j + MX_GROUP / 2] = block->qs[j] >> 4;
    }
}

static void pack_mxfp4(const unit *u)
{
    const int64_t columns = u->to->packing->columns;
    apr_block_MXFP4 block;

    for (int64_t r = 0; r < u->n; r++)
        for (int64_t c = 0; c < columns; c += MX_GROUP) {
            const float *const x = u->values + r * columns + c;
            if (u->importance != NULL) apr_host_codecs()[APR_MXFP4].encode_by(x, u->importance + c, &block, MX_GROUP);
            else apr_host_codecs()[APR_MXFP4].encode(x, &block, MX_GROUP);
            split_mxfp4(&block, u->codes + r * columns + c);
            put_scale_byte(u->to, u->row + r, c / MX_GROUP, block.e);
        }
}

static void pack_int4(const unit *u)
{
    const apr_packing *const p = u->to->packing;
    const int n = (int)p->scale_columns;
    float x[MOST_GROUP], w[MOST_GROUP];
    uint8_t zeros[AWQ_ROWS] = {0};

    for (int64_t c = 0; c < p->columns; c += n) {
        for (int64_t r = 0; r < u->n; r++) {
            uint8_t *const codes = u->codes + r * p->columns + c;
            load_group(u, r, c, n, 1.0f, x, w);
            const apr_int4_group g = p->zero_order == APR_ZEROS_INTERLEAVED ? apr_ref_encode_uint4_group(x, w, n, p->scale_dtype, codes)
                                                                            : apr_ref_encode_int4_group(x, w, n, p->scale_dtype, codes);
            put_scale(u->to, u->row + r, c / n, g.scale);
            zeros[r % AWQ_ROWS] = (uint8_t)g.zero;
        }
        if (u->to->zeros != NULL) put_zeros(u->to, u->row, u->n, c / n, zeros);
    }
}

/* The largest magnitude of a block; infinities count as the largest float. */
static float largest_of_block(const unit *u, int64_t column, int64_t n)
{
    float most = 0.0f;
    for (int64_t r = 0; r < u->n; r++)
        for (int64_t c = column; c < column + n; c++) {
            const float x = apr_clamp_finite(u->values[r * u->to->packing->columns + c], FLT_MAX), a = x < 0.0f ? -x : x;
            most = a > most ? a : most;
        }
    return most;
}

static void pack_fp8(const unit *u)
{
    const apr_packing *const p = u->to->packing;
    const int64_t each = p->scale_columns < p->columns ? p->scale_columns : p->columns;

    for (int64_t c = 0; c < p->columns; c += each) {
        const int64_t n = p->columns - c < each ? p->columns - c : each;
        const float most = largest_of_block(u, c, n), scale = most > 0.0f ? apr_clamp(most / 448.0f, 0x1p-126f, FLT_MAX) : 1.0f;
        put_scale(u->to, u->row, c / each, scale);
        for (int64_t r = 0; r < u->n; r++)
            for (int64_t i = r * p->columns + c; i < r * p->columns + c + n; i++)
                u->codes[i] = apr_f32_to_e4m3(apr_clamp_finite(u->values[i], FLT_MAX) / scale);
    }
}

typedef void (*pack_fn)(const unit *u);

static pack_fn packer_of(const apr_packing *p)
{
    if (p->level == APR_LEVEL_E4M3) return pack_fp8;
    if (p->level == APR_LEVEL_UNSIGNED) return pack_int4;
    return p->scale_dtype == APR_E8M0 ? pack_mxfp4 : pack_nvfp4;
}

void apr_pack_rows(const apr_pack_target *to, int64_t row, int64_t n, const float *values, const float *importance, uint8_t *codes)
{
    packer_of(to->packing)(&(unit){to, row, n, values, importance, codes});
    writers[to->packing->order](to, row, n, codes);
}

/* ---- the same codes in another layout ---- */

static bool has_one_scale(const apr_tensor *t) { return t->scale == NULL || apr_tensor_elems(t->scale) == 1; }

bool apr_pack_can_copy(const apr_packing *to, const apr_tensor *t)
{
    const apr_packing *const p = t->packing;
    const bool is_mx = to->scale_dtype == APR_E8M0;

    if (to->level != APR_LEVEL_E2M1 || t->rank != 2) return false;
    if (p == NULL) return apr_tensor_is_stored(t) && t->dtype == (is_mx ? APR_MXFP4 : APR_NVFP4) && has_one_scale(t);
    return p->level == APR_LEVEL_E2M1 && p->bits == 4 && p->scale_dtype == to->scale_dtype && p->scale_columns == to->scale_columns &&
           p->zero_order == APR_ZEROS_NONE && p->zero_bias == 0 && p->groups == NULL && !apr_packing_is_flat(p);
}

float apr_pack_reciprocal(float scale)
{
    const float near = 1.0f / scale, below = nextafterf(near, 0.0f), above = nextafterf(near, INFINITY);
    if (1.0f / near == scale) return near;
    return 1.0f / below == scale ? below : 1.0f / above == scale ? above : near;
}

float apr_pack_copied_global_scale(const apr_packing *to, const apr_tensor *t)
{
    const bool divides = t->packing != NULL && t->packing->global_scales != NULL && t->packing->divides;
    float scale = 1.0f;

    if (t->packing != NULL) scale = apr_unpack_global_scale(t->packing, apr_packed_row(t, 0));
    else if (t->scale != NULL) apr_decode_scales(t, 0, 0, 1, &scale);
    return divides == to->divides ? scale : apr_pack_reciprocal(scale);
}

/* ggml reads a scale of NaN as 0, libraries as NaN: a small one and codes of 0 are the same numbers to both. */
static uint8_t nvfp4_scale(uint8_t byte, uint8_t codes[APR_NVFP4_GROUP])
{
    if ((byte & 0x7f) != 0x7f) return byte;
    memset(codes, 0, APR_NVFP4_GROUP);
    return 1;
}

static void copy_nvfp4_block(const apr_pack_target *to, const apr_block_NVFP4 *block, int64_t row, int64_t column, uint8_t *codes)
{
    for (int sub = 0; sub < NV_BLOCK / APR_NVFP4_GROUP; sub++, codes += APR_NVFP4_GROUP) {
        for (int j = 0; j < 8; j++) {
            codes[j] = block->qs[8 * sub + j] & 15;
            codes[j + 8] = block->qs[8 * sub + j] >> 4;
        }
        put_scale_byte(to, row, column / APR_NVFP4_GROUP + sub, nvfp4_scale(block->d[sub], codes));
    }
}

static void copy_blocks(const apr_pack_target *to, const apr_tensor *from, int64_t row, const uint8_t *blocks, uint8_t *codes)
{
    const int elems = apr_dtypes[from->dtype].elems_per_block;

    for (int64_t c = 0; c < to->packing->columns; c += elems, blocks += apr_dtypes[from->dtype].bytes_per_block, codes += elems) {
        if (from->dtype == APR_NVFP4) {
            copy_nvfp4_block(to, (const apr_block_NVFP4 *)blocks, row, c, codes);
            continue;
        }
        split_mxfp4((const apr_block_MXFP4 *)blocks, codes);
        put_scale_byte(to, row, c / MX_GROUP, ((const apr_block_MXFP4 *)blocks)->e);
    }
}

static void copy_packed(const apr_pack_target *to, const apr_tensor *from, int64_t row, uint8_t *codes)
{
    const apr_packing *const p = from->packing;
    const int64_t stored = apr_packed_row(from, row);

    apr_unpack_codes(p, stored, 0, p->columns, codes);
    for (int64_t g = 0; g < apr_packing_groups(p); g++) {
        const uint8_t byte = p->scales->data[apr_unpack_scale_index(p, stored, g)];
        put_scale_byte(to, row, g, p->scale_dtype == APR_E8M0 ? byte : nvfp4_scale(byte, codes + g * p->scale_columns));
    }
}

void apr_pack_copy_rows(const apr_pack_target *to, const apr_tensor *from, int64_t row, int64_t n, uint8_t *codes)
{
    for (int64_t r = 0; r < n; r++) {
        uint8_t *const line = codes + r * to->packing->columns;
        if (from->packing != NULL) copy_packed(to, from, row + r, line);
        else copy_blocks(to, from, row + r, apr_tensor_row(from, row + r), line);
    }
    writers[to->packing->order](to, row, n, codes);
}

float apr_pack_nvfp4_global_scale(float largest)
{
    if (!(largest > 0.0f)) return 1.0f;
    float scale = apr_clamp(largest, 0x1p-100f, 0x1p100f) / (6.0f * 448.0f);
    for (int i = 0; i < 8 && 1.0f / (1.0f / scale) != scale; i++) scale = nextafterf(scale, INFINITY);
    return scale;
}
