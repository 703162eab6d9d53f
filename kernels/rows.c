/* rows.c - the table of codecs, and rows of whole tensors: pending steps, FP8 scales, flat types. */
#include "kernels/gather.h"
#include "kernels/host/codecs/levels.h"
#include "kernels/ref/codecs.h"
#include "kernels/unpack.h"

#include <math.h>

const apr_codec apr_ref_codecs[APR_DTYPE_COUNT] = {
#define DECODER(id, name) [APR_##id] = {apr_ref_decode_##name, NULL, NULL},
#define BOTH(id, name)    [APR_##id] = {apr_ref_decode_##name, apr_ref_encode_##name, NULL},
#define BY(id, name)      [APR_##id] = {apr_ref_decode_##name, apr_ref_encode_##name, apr_ref_encode_##name##_by},
    APR_REF_CODEC_LIST(DECODER, BOTH, BY)
#undef BY
#undef BOTH
#undef DECODER
};

const apr_codec *apr_host_codecs(void) { return apr_host_table()->codecs; }

bool apr_can_decode(apr_dtype dtype) { return (unsigned)dtype < APR_DTYPE_COUNT && apr_ref_codecs[dtype].decode != NULL; }
bool apr_can_encode(apr_dtype dtype) { return (unsigned)dtype < APR_DTYPE_COUNT && apr_ref_codecs[dtype].encode != NULL; }

enum { MOST = 256 }; /* elements of the largest block */
#define X(id, name, class_of, elems, bytes, ...) _Static_assert((elems) <= MOST, "a block of " name " is larger than any before");
APR_DTYPE_LIST(X)
#undef X

/* Decodes n elements from element `first` on, for any first and n. Whole blocks are decoded directly to dst, a partly used block through
 * a buffer. `data` is the start of the tensor or of a row. */
static void decode_span(apr_dtype dtype, const uint8_t *data, int64_t first, int64_t n, float *dst)
{
    const apr_decode_fn decode = apr_host_codecs()[dtype].decode;
    const int64_t elems = apr_dtypes[dtype].elems_per_block, bytes = apr_dtypes[dtype].bytes_per_block;

    while (n > 0) {
        const uint8_t *const block = data + first / elems * bytes;
        const int64_t skip = first % elems, whole = n - n % elems;
        if (skip == 0 && whole > 0) {
            decode(block, dst, whole);
            dst += whole, first += whole, n -= whole;
            continue;
        }
        float part[MOST];
        const int64_t take = n < elems - skip ? n : elems - skip;
        decode(block, part, elems);
        memcpy(dst, part + skip, (size_t)take * sizeof *dst);
        dst += take, first += take, n -= take;
    }
}

/* Elements [first, first + n) of a flat tensor. */
static void decode_flat(const apr_tensor *tensor, int64_t first, int64_t n, float *dst)
{
    float scale;

    if (apr_dtypes[tensor->dtype].scales != APR_SCALES_FIRST) {
        decode_span(tensor->dtype, tensor->data, first, n, dst);
        return;
    }
    memcpy(&scale, tensor->data, sizeof scale);
    apr_host_codecs()[APR_I8].decode(tensor->data + sizeof scale + first, dst, n);
    for (int64_t i = 0; i < n; i++) dst[i] *= scale;
}

/* Multiplies columns [from, to) of a row, at x, by the scales of their blocks. In a stack each matrix has its own rows of scales; a
 * single scale is for all. Scales belong to the rows as stored. */
static void apply_scales(const apr_tensor *tensor, int64_t stored_row, int64_t from, int64_t to, float *x)
{
    const apr_tensor *const scale = tensor->scale;
    const int64_t columns = apr_tensor_columns(tensor), n_scales = apr_tensor_elems(scale);
    const int64_t per_matrix = tensor->rank >= 2 ? tensor->dims[tensor->rank - 2] : 1;
    const int64_t scale_rows = (per_matrix + tensor->scale_rows - 1) / tensor->scale_rows;
    const int64_t scales_per_row = (columns + tensor->scale_columns - 1) / tensor->scale_columns;
    const int64_t scale_row = stored_row / per_matrix * scale_rows + stored_row % per_matrix / tensor->scale_rows;

    for (int64_t at = from; at < to;) {
        const int64_t block = at / tensor->scale_columns, next = (block + 1) * tensor->scale_columns, end = next < to ? next : to;
        float factor;
        decode_span(scale->dtype, scale->data, n_scales == 1 ? 0 : scale_row * scales_per_row + block, 1, &factor);
        for (; at < end; at++) x[at - from] *= factor;
    }
}

static void unpack_row(const apr_tensor *tensor, int64_t stored_row, int64_t first, int64_t n, float *dst)
{
    apr_unpack_values(tensor->packing, tensor->dtype, tensor->packing->first_row + stored_row, first, n, dst);
}

void apr_decode_rows(const apr_tensor *tensor, int64_t row, int64_t n_rows, float *dst)
{
    const int64_t columns = apr_tensor_columns(tensor), all_rows = apr_tensor_rows(tensor);
    const bool moved = tensor->pending.kind != APR_STEP_NONE;

    if (columns == 0 || n_rows <= 0) return;
    if (tensor->made != NULL) {
        apr_gather_values(tensor, row * columns, n_rows * columns, dst);
        return;
    }
    if (tensor->packing != NULL) {
        for (int64_t r = 0; r < n_rows; r++)
            unpack_row(tensor, apr_step_row(tensor->pending, all_rows, row + r), 0, columns, dst + r * columns);
        return;
    }
    if (tensor->rank == 1 && moved) { /* the step moves the elements of a vector */
        for (int64_t i = 0; i < columns; i++) {
            const int64_t at = apr_step_row(tensor->pending, columns, i);
            if (apr_dtypes[tensor->dtype].flat) decode_flat(tensor, at, 1, dst + i);
            else decode_span(tensor->dtype, tensor->data, at, 1, dst + i);
        }
        return;
    }
    const int64_t at_once = moved ? 1 : n_rows; /* rows that are stored one after another */
    for (int64_t r = 0; r < n_rows; r += at_once) {
        const int64_t stored = apr_step_row(tensor->pending, all_rows, row + r);
        float *const y = dst + r * columns;
        if (apr_dtypes[tensor->dtype].flat) decode_flat(tensor, stored * columns, at_once * columns, y);
        else decode_span(tensor->dtype, tensor->data, stored * columns, at_once * columns, y);
        if (tensor->scale != NULL)
            for (int64_t k = 0; k < at_once; k++) apply_scales(tensor, stored + k, 0, columns, y + k * columns);
    }
}

void apr_decode_elements(const apr_tensor *tensor, int64_t first, int64_t n, float *dst)
{
    const int64_t columns = apr_tensor_columns(tensor);

    if (tensor->made != NULL) {
        apr_gather_values(tensor, first, n, dst);
        return;
    }
    for (int64_t done = 0; tensor->packing != NULL && done < n;) {
        const int64_t from = (first + done) % columns, now = columns - from < n - done ? columns - from : n - done;
        unpack_row(tensor, (first + done) / columns, from, now, dst + done);
        done += now;
    }
    if (tensor->packing != NULL) return;
    if (apr_dtypes[tensor->dtype].flat) decode_flat(tensor, first, n, dst);
    else decode_span(tensor->dtype, tensor->data, first, n, dst);
    for (int64_t done = 0; tensor->scale != NULL && done < n;) {
        const int64_t from = (first + done) % columns, to = from + n - done < columns ? from + n - done : columns;
        apply_scales(tensor, (first + done) / columns, from, to, dst + done);
        done += to - from;
    }
}

/* A matrix's pending step moves whole rows. */
void apr_decode_part(const apr_tensor *tensor, int64_t row, int64_t column, int64_t n, float *dst)
{
    const int64_t stored = tensor->made != NULL ? row : apr_step_row(tensor->pending, apr_tensor_rows(tensor), row);
    apr_decode_elements(tensor, stored * apr_tensor_columns(tensor) + column, n, dst);
}

void apr_encode_fp8_row(const float *src, uint8_t *dst, float *scale, int64_t n_elems)
{
    apr_host_table()->encode_fp8_row(src, dst, scale, n_elems);
}

void apr_ref_encode_fp8_row(const float *src, uint8_t *dst, float *scale, int64_t n_elems)
{
    float amax = 0.0f;
    for (int64_t i = 0; i < n_elems; i++) {
        const float magnitude = src[i] < 0.0f ? -src[i] : src[i]; /* NaN stays NaN, which is never larger */
        const float bounded = magnitude < FLT_MAX ? magnitude : magnitude > FLT_MAX ? FLT_MAX : magnitude;
        amax = bounded > amax ? bounded : amax;
    }
    *scale = amax > 0.0f ? amax / 448.0f : 1.0f;
    if (*scale == 0.0f) *scale = 0x1p-149f;                                          /* a row of the smallest denormals */
    for (int64_t i = 0; i < n_elems; i++) dst[i] = apr_f32_to_e4m3(src[i] / *scale); /* infinity saturates */
}

int64_t apr_count_nonfinite(const float *x, int64_t n_elems)
{
    int64_t n = 0;
    for (int64_t i = 0; i < n_elems; i++) n += (apr_f32_bits(x[i]) & 0x7f800000) == 0x7f800000; /* NaN and infinities */
    return n;
}
