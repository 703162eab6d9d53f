/* pipe.c - puts one tensor after another into the sink: copied, converted on the host or a device, or by a custom encoder; before that
 * its checksums are checked, and after it the range of its values. */
#include "convert/pipe_internal.h"

#include "formats/base/bytes.h"
#include "formats/base/crc32.h"
#include "formats/base/threads.h"
#include "formats/files/inputs.h"
#include "formats/tensor/composed.h"
#include "kernels/pack.h"
#include "kernels/rows.h"
#include "kernels/transcode.h"
#include "kernels/unpack.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- matrices that become several tensors: encoded in memory, units of rows on all threads, then put one after another ---- */

/* The bytes of the matrix that was encoded last, and the global scale of the matrices that share one. */
typedef struct apr_packed_bytes {
    const apr_pipe_packed *of;
    uint8_t *parts[APR_LAYOUT_PARTS];
    const apr_tensor *scaled; /* the first of those that share `scale` */
    float scale;
} apr_packed_bytes;

/* ---- the largest magnitude of matrices that share a global scale ---- */

static float largest_of_row(const float *x, int64_t n)
{
    float most = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        const float a = x[i] < 0.0f ? -x[i] : x[i];
        if (a > most && a <= 3.402823466e38f) most = a; /* neither NaN nor infinite */
    }
    return most;
}

static apr_status largest_of(const apr_tensor *t, float *largest, apr_error *err)
{
    const int64_t n_rows = apr_tensor_rows(t), columns = apr_tensor_columns(t);
    const int n_threads = apr_threads(apr_all_threads(), n_rows, (double)n_rows * (double)columns * APR_OPS_EXP);
    float most = 0.0f;
    bool failed = false;

#pragma omp parallel num_threads(n_threads) reduction(max : most) reduction(|| : failed)
    {
        float *const values = malloc((size_t)columns * sizeof *values);
        failed = values == NULL;
#pragma omp for schedule(dynamic, 16)
        for (int64_t r = 0; r < n_rows; r++) {
            if (values == NULL) continue;
            apr_decode_rows(t, r, 1, values);
            const float here = largest_of_row(values, columns);
            most = here > most ? here : most;
        }
        free(values);
    }
    if (failed) return apr_no_memory(err, "a row of a tensor");
    *largest = most > *largest ? most : *largest;
    return APR_OK;
}

/* As the layout stores it, and *multiplier for the encoder. */
static apr_status find_global_scale(apr_packed_bytes *b, const apr_pipe_packed *packed, const apr_tensor *from, float *stored,
                                    float *multiplier, apr_error *err)
{
    const apr_packing *const p = &packed->matrix.packing;
    float largest = 0.0f;

    *stored = *multiplier = 1.0f;
    if (p->global_scales == NULL) return APR_OK;
    if (packed->same_codes) {
        *stored = apr_pack_copied_global_scale(p, from);
        return APR_OK;
    }
    if (b->scaled != packed->shares[0]) {
        for (size_t i = 0; i < packed->n_shares; i++) APR_TRY(largest_of(packed->shares[i], &largest, err));
        b->scale = apr_pack_nvfp4_global_scale(largest);
        b->scaled = packed->shares[0];
    }
    *multiplier = b->scale;
    *stored = p->divides ? apr_pack_reciprocal(b->scale) : b->scale;
    return APR_OK;
}

/* ---- encoding ---- */

typedef struct job {
    const apr_pipe_item *item;
    apr_pack_target to;
    apr_packing readable; /* the same packing with data, to measure */
    apr_tensor parts[APR_LAYOUT_PARTS];
    bool measures;
    int64_t n_units, unit, columns;
} job;

typedef struct unit_result {
    int64_t n_nonfinite;
    apr_metrics metrics;
} unit_result;

/* values: the unit's numbers, and as many for what is read back. */
static void encode_unit(const job *j, int64_t index, float *values, uint8_t *codes, unit_result *found)
{
    const apr_tensor *const from = j->item->from;
    const int64_t row = index * j->unit, left = apr_tensor_rows(from) - row, n = left < j->unit ? left : j->unit;
    float *const again = values + j->unit * j->columns;

    *found = (unit_result){.metrics = apr_metrics_empty()};
    if (!j->item->packed->same_codes || j->measures) apr_decode_rows(from, row, n, values);
    if (j->item->packed->same_codes) apr_pack_copy_rows(&j->to, from, row, n, codes);
    else {
        found->n_nonfinite = apr_count_nonfinite(values, n * j->columns);
        apr_pack_rows(&j->to, row, n, values, j->item->importance, codes);
    }
    if (!j->measures) return;
    for (int64_t r = 0; r < n; r++) apr_unpack_products(&j->readable, row + r, 0, j->columns, again + r * j->columns);
    apr_metrics_add(&found->metrics, values, again, n * j->columns);
}

static apr_status encode_units(const job *j, unit_result *found, apr_error *err)
{
    const size_t n_values = (size_t)j->unit * (size_t)j->columns;
    const int n_threads = apr_threads(apr_all_threads(), j->n_units, (double)j->n_units * (double)n_values * APR_OPS_EXP);
    bool failed = false;

#pragma omp parallel num_threads(n_threads) reduction(|| : failed)
    {
        float *const values = malloc(2 * n_values * sizeof *values);
        uint8_t *const codes = malloc(n_values);
        failed = values == NULL || codes == NULL;
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < j->n_units; i++)
            if (values != NULL && codes != NULL) encode_unit(j, i, values, codes, &found[i]);
        free(values);
        free(codes);
    }
    return failed ? apr_no_memory(err, "rows of a tensor") : APR_OK;
}

/* Binds the packing's tensors to their bytes. */
static void bind(job *j, const apr_pipe_packed *packed, uint8_t *const *bytes)
{
    const apr_packed_matrix *const m = &packed->matrix;

    j->readable = m->packing;
    for (size_t i = 0; i < m->packing.n_parts; i++) {
        j->parts[i] = m->parts[i];
        j->parts[i].data = bytes[i];
        if (&m->parts[i] == m->packing.codes) j->readable.codes = &j->parts[i], j->to.codes = bytes[i];
        if (&m->parts[i] == m->packing.scales) j->readable.scales = &j->parts[i], j->to.scales = bytes[i];
        if (&m->parts[i] == m->packing.zeros) j->readable.zeros = &j->parts[i], j->to.zeros = bytes[i];
        if (&m->parts[i] == m->packing.global_scales) j->readable.global_scales = &j->parts[i];
    }
}

/* The parts that do not depend on values. */
static void fill_facts(const apr_packing *p, const apr_packed_layout *layout, uint8_t *const *bytes, float global_scale)
{
    for (size_t i = 0; i < p->n_parts; i++) {
        const apr_packed_content content = layout->parts[i].content;
        if (content == APR_PACKED_GLOBAL_SCALE) memcpy(bytes[i], &global_scale, sizeof global_scale);
        if (content == APR_PACKED_SHAPE) apr_store_le64(bytes[i], (uint64_t)p->rows);
        if (content == APR_PACKED_SHAPE) apr_store_le64(bytes[i] + 8, (uint64_t)p->columns);
        for (int64_t c = 0; content == APR_PACKED_INDEX && c < p->columns; c++)
            apr_store_le32(bytes[i] + 4 * c, (uint32_t)(c / p->scale_columns));
    }
}

static apr_status encode(apr_pipe *p, apr_pipe_item *item, apr_error *err)
{
    const apr_pipe_packed *const packed = item->packed;
    apr_packed_bytes *const b = p->packed;
    float stored;
    job j = {.item = item,
             .to = {.packing = &packed->matrix.packing},
             .measures = p->options->want_metrics,
             .unit = apr_pack_unit(&packed->matrix.packing),
             .columns = apr_tensor_columns(item->from)};

    APR_TRY(find_global_scale(b, packed, item->from, &stored, &j.to.global_scale, err));
    j.n_units = apr_div_up(apr_tensor_rows(item->from), j.unit);
    bind(&j, packed, b->parts);
    fill_facts(&packed->matrix.packing, packed->matrix.layout, b->parts, stored);
    unit_result *const found = calloc((size_t)j.n_units + 1, sizeof *found);
    if (found == NULL) return apr_no_memory(err, "the results of rows");
    const apr_status status = encode_units(&j, found, err);
    for (int64_t i = 0; i < j.n_units && status == APR_OK; i++) {
        item->out_of_range.n_nonfinite += found[i].n_nonfinite;
        apr_metrics_merge(&item->metrics, &found[i].metrics);
    }
    free(found);
    return status;
}

static void free_parts(apr_packed_bytes *b)
{
    for (int i = 0; i < APR_LAYOUT_PARTS; i++) {
        free(b->parts[i]);
        b->parts[i] = NULL;
    }
    b->of = NULL;
}

static apr_status reserve(apr_packed_bytes *b, const apr_packed_matrix *m, apr_error *err)
{
    free_parts(b);
    for (size_t i = 0; i < m->packing.n_parts; i++) {
        b->parts[i] = calloc((size_t)m->parts[i].n_bytes + 1, 1);
        if (b->parts[i] == NULL) return apr_no_memory(err, "a quantized matrix");
    }
    return APR_OK;
}

static apr_status put_packed(apr_pipe *p, apr_pipe_item *item, apr_error *err)
{
    const apr_packed_matrix *const m = &item->packed->matrix;

    if (p->packed == NULL) p->packed = calloc(1, sizeof *p->packed);
    if (p->packed == NULL) return apr_no_memory(err, "a quantized matrix");
    if (p->packed->of != item->packed) {
        APR_TRY(reserve(p->packed, m, err));
        APR_TRY(encode(p, item, err));
        p->packed->of = item->packed;
        apr_pipe_progress(p, item->from, item->from->n_bytes);
    }
    return apr_sink_put(p->sink, p->packed->parts[item->packed_part], (size_t)m->parts[item->packed_part].n_bytes, err);
}

static void close_packed(apr_pipe *p)
{
    if (p->packed != NULL) free_parts(p->packed);
    free(p->packed);
    p->packed = NULL;
}

/* ---- others ---- */

enum { COPY_BYTES = 8 * 1024 * 1024 };

/* ---- checksums of the source ---- */

/* One tensor of the source. */
typedef struct source_tensor {
    const apr_tensor *tensor;
    uint32_t stated;
    bool is_checked;
} source_tensor;

/* Compares a tensor's bytes with the checksum that its file states (only APR files state any) just before it is converted, so the file is
 * read from the disk once. Each source tensor is checked once. */
typedef struct checksums {
    const char *path;      /* NULL: the source states no checksums */
    source_tensor *places; /* [n_places], sorted by address */
    size_t n_places;
} checksums;

static int by_address(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const source_tensor *)a)->tensor->data, y = (uintptr_t)((const source_tensor *)b)->tensor->data;
    return (x > y) - (x < y);
}

static apr_status open_checksums(checksums *c, const apr_model *source, apr_error *err)
{
    *c = (checksums){0};
    if (source == NULL || source->stated_crcs == NULL) return APR_OK;
    c->places = calloc(source->n_tensors + 1, sizeof *c->places);
    if (c->places == NULL) return apr_no_memory(err, "checksums");
    c->path = source->path;
    for (size_t i = 0; i < source->n_tensors; i++)
        if (source->tensors[i].n_bytes > 0)
            c->places[c->n_places++] = (source_tensor){.tensor = &source->tensors[i], .stated = source->stated_crcs[i]};
    qsort(c->places, c->n_places, sizeof *c->places, by_address);
    return APR_OK;
}

/* The source tensor that contains that address; NULL: none. */
static source_tensor *find_place(checksums *c, const uint8_t *data)
{
    size_t low = 0, high = c->n_places;

    while (low < high) {
        const size_t middle = (low + high) / 2;
        if ((uintptr_t)c->places[middle].tensor->data <= (uintptr_t)data) low = middle + 1;
        else high = middle;
    }
    if (low == 0) return NULL;
    source_tensor *const found = &c->places[low - 1];
    return (uintptr_t)data - (uintptr_t)found->tensor->data < found->tensor->n_bytes ? found : NULL;
}

static apr_status check_bytes(checksums *c, const uint8_t *data, apr_error *err)
{
    source_tensor *const found = data != NULL ? find_place(c, data) : NULL;

    if (found == NULL || found->is_checked) return APR_OK;
    const uint32_t actual = apr_crc32_of(found->tensor->data, found->tensor->n_bytes);
    if (actual != found->stated)
        return apr_fail(err, APR_E_DAMAGED,
                        "%s: tensor '%s' has changed since the file was written: it states the checksum %08x, and the bytes give %08x; get "
                        "the file again",
                        c->path, found->tensor->name, (unsigned)found->stated, (unsigned)actual);
    found->is_checked = true;
    return APR_OK;
}

/* APR_E_DAMAGED: a source tensor that `tensor` is read from has changed; the message names it. */
static apr_status check_sources(checksums *c, const apr_tensor *tensor, apr_error *err)
{
    if (c->path == NULL || tensor == NULL) return APR_OK;
    APR_TRY(check_bytes(c, tensor->data, err));
    APR_TRY(check_sources(c, tensor->scale, err));
    const apr_tensor *part;
    for (size_t i = 0; (part = apr_tensor_source_at(tensor, i)) != NULL; i++) APR_TRY(check_sources(c, part, err));
    return APR_OK;
}

/* ---- bytes of the source ---- */

/* Before and after a tensor is read: where the inputs are copied (formats/files/inputs.h), only one tensor's bytes are in memory. */
static apr_status load_sources(const apr_tensor *t, apr_error *err)
{
    if (t == NULL) return APR_OK;
    if (t->data != NULL) APR_TRY(apr_map_load(t->data, (size_t)t->n_bytes, err));
    APR_TRY(load_sources(t->scale, err));
    const apr_tensor *part;
    for (size_t i = 0; (part = apr_tensor_source_at(t, i)) != NULL; i++) APR_TRY(load_sources(part, err));
    return APR_OK;
}

static void unload_sources(const apr_tensor *t)
{
    if (t == NULL) return;
    if (t->data != NULL) apr_map_unload(t->data, (size_t)t->n_bytes);
    unload_sources(t->scale);
    const apr_tensor *part;
    for (size_t i = 0; (part = apr_tensor_source_at(t, i)) != NULL; i++) unload_sources(part);
}

/* ---- results for a later run: floats in hexadecimal, so they are exact ---- */

void apr_pipe_write_note(const apr_pipe_item *item, char note[APR_NOTE_BYTES])
{
    const apr_metrics *const m = &item->metrics;

    snprintf(note, APR_NOTE_BYTES,
             "%d %" PRId64 " %" PRId64 " %a %" PRId64 " %" PRId64 " %" PRId64 " %a %" PRId64 " %" PRId64 " %a %a %a %a %a %" PRId64,
             item->on_device, item->out_of_range.n_nonfinite, item->out_of_range.n_out_of_range, (double)item->out_of_range.worst,
             item->n_different, item->n_rounded, item->n_off, item->worst_difference, m->n, m->n_nonfinite, m->sum_sq_a, m->sum_sq_b,
             m->sum_sq_err, m->dot, (double)m->max_error, m->max_at);
}

void apr_pipe_read_note(apr_pipe_item *item, const char *note)
{
    apr_pipe_item was = *item;
    apr_metrics *const m = &was.metrics;
    int on_device;

    const int n = sscanf(
        note, "%d %" SCNd64 " %" SCNd64 " %a %" SCNd64 " %" SCNd64 " %" SCNd64 " %la %" SCNd64 " %" SCNd64 " %la %la %la %la %a %" SCNd64,
        &on_device, &was.out_of_range.n_nonfinite, &was.out_of_range.n_out_of_range, &was.out_of_range.worst, &was.n_different,
        &was.n_rounded, &was.n_off, &was.worst_difference, &m->n, &m->n_nonfinite, &m->sum_sq_a, &m->sum_sq_b, &m->sum_sq_err, &m->dot,
        &m->max_error, &m->max_at);
    if (n != 16) return;
    was.on_device = on_device != 0;
    *item = was;
}

/* ---- copying ---- */

/* Same type, but composed of other tensors: all threads gather portions. */
static apr_status copy_composed(apr_pipe *p, const apr_tensor *t, apr_error *err)
{
    const int64_t n_elems = apr_tensor_elems(t), window = APR_WINDOW_PORTIONS * (int64_t)APR_PORTION_ELEMS;
    const size_t portion_bytes = (size_t)apr_row_bytes(t->dtype, APR_PORTION_ELEMS);
    uint8_t *const bytes = malloc((size_t)apr_row_bytes(t->dtype, n_elems < window ? n_elems : window) + 1);
    apr_status status = APR_OK;

    if (bytes == NULL) return apr_no_memory(err, "a window of a tensor");
    for (int64_t first = 0; first < n_elems && status == APR_OK; first += window) {
        const int64_t n = n_elems - first < window ? n_elems - first : window;
        const int n_threads = apr_threads(apr_all_threads(), (n + APR_PORTION_ELEMS - 1) / APR_PORTION_ELEMS, (double)n);
#pragma omp parallel for schedule(dynamic) num_threads(n_threads)
        for (int64_t at = 0; at < n; at += APR_PORTION_ELEMS)
            apr_read_bytes(t, first + at, n - at < APR_PORTION_ELEMS ? n - at : APR_PORTION_ELEMS,
                           bytes + (size_t)(at / APR_PORTION_ELEMS) * portion_bytes);
        status = apr_sink_put(p->sink, bytes, (size_t)apr_row_bytes(t->dtype, n), err);
        apr_pipe_progress(p, t, (uint64_t)apr_row_bytes(t->dtype, n));
    }
    free(bytes);
    return status;
}

/* Same type: copies the bytes, or row by row if the order changes. */
static apr_status copy_tensor(apr_pipe *p, const apr_pipe_item *item, apr_error *err)
{
    const apr_tensor *const t = item->from;
    if (apr_tensor_is_composed(t)) return copy_composed(p, t, err);
    if (apr_tensor_source(t) == APR_SOURCE_IN_ORDER) {
        for (uint64_t at = 0; at < t->n_bytes; at += COPY_BYTES) {
            const size_t n = t->n_bytes - at < COPY_BYTES ? (size_t)(t->n_bytes - at) : COPY_BYTES;
            APR_TRY(apr_pipe_check_cancelled(p, err));
            APR_TRY(apr_sink_put(p->sink, t->data + at, n, err));
            apr_pipe_progress(p, t, n);
        }
        return APR_OK;
    }
    if (t->n_bytes == 0) return APR_OK;
    const int64_t row_elems = t->rank == 1 ? 1 : apr_tensor_columns(t), n_rows = apr_tensor_elems(t) / row_elems;
    const size_t row_bytes = (size_t)(t->n_bytes / (uint64_t)n_rows);
    const int64_t rows_at_once = row_bytes < COPY_BYTES ? (int64_t)(COPY_BYTES / row_bytes) : 1;
    uint8_t *const rows = malloc((size_t)(rows_at_once < n_rows ? rows_at_once : n_rows) * row_bytes);
    if (rows == NULL) return apr_no_memory(err, "rows of a tensor");
    apr_status status = APR_OK;
    for (int64_t row = 0; row < n_rows && status == APR_OK; row += rows_at_once) {
        const int64_t n = n_rows - row < rows_at_once ? n_rows - row : rows_at_once;
        apr_read_bytes(t, row * row_elems, n * row_elems, rows);
        status = apr_sink_put(p->sink, rows, (size_t)n * row_bytes, err);
        apr_pipe_progress(p, t, (uint64_t)n * row_bytes);
    }
    free(rows);
    return status;
}

static apr_status put_global_scales(apr_pipe *p, const apr_tensor *t, apr_error *err)
{
    for (int64_t i = 0; i < apr_transcode_matrices(t); i++) {
        const float global_scale = apr_transcode_global_scale(t, i);
        APR_TRY(apr_sink_put(p->sink, &global_scale, sizeof global_scale, err));
    }
    return APR_OK;
}

/* ---- converting ---- */

/* Allocates row_scales for an FP8 tensor. */
static apr_status reserve_scales(apr_pipe *p, const apr_cut *c, const apr_pipe_item *item, apr_error *err)
{
    if (apr_dtypes[item->to].scales != APR_SCALES_SEPARATE) return APR_OK;
    free(p->row_scales);
    p->n_row_scales = (size_t)c->n_units;
    p->row_scales = malloc(p->n_row_scales * sizeof(float) + 1);
    return p->row_scales != NULL ? APR_OK : apr_no_memory(err, "the scales of a tensor's rows");
}

/* The extent of the item in the output, if the sink knows it. Every portion is whole blocks, except the last one, which ends with the tensor. */
static apr_status find_extent(apr_pipe *p, const apr_pipe_item *item, apr_extent *extent, bool *is_there, apr_error *err)
{
    const uint64_t n_bytes = (uint64_t)apr_row_bytes(item->to, apr_tensor_elems(item->from));

    APR_TRY(apr_sink_extent(p->sink, extent, is_there, err));
    if (!*is_there || extent->n_bytes == n_bytes) return APR_OK;
    return apr_fail(err, APR_E_USAGE, "tensor '%s' becomes %llu bytes, but its extent has %llu", item->from->name,
                    (unsigned long long)n_bytes, (unsigned long long)extent->n_bytes);
}

/* On the host, or on the device if it takes the item. */
static apr_status convert_tensor(apr_pipe *p, apr_pipe_device *device, apr_pipe_item *items, size_t i, apr_error *err)
{
    apr_pipe_item *const item = &items[i];
    const apr_cut cut = apr_cut_tensor(item);
    bool has_extent = false;
    apr_extent extent;

    if (cut.n_units == 0 || cut.unit_elems == 0) return APR_OK;
    APR_TRY(reserve_scales(p, &cut, item, err));
    if (!item->on_device || !p->options->want_metrics) APR_TRY(find_extent(p, item, &extent, &has_extent, err));
    if (item->on_device) return apr_pipe_device_item(device, i, has_extent ? &extent : NULL, err);
    return apr_pipe_convert(p, item, has_extent ? &extent : NULL, err);
}

/* Puts the item that the custom encoder encoded, in one call. */
static apr_status put_custom(apr_pipe *p, apr_pipe_item *item, size_t i, apr_error *err)
{
    const apr_cut cut = apr_cut_tensor(item);
    const uint8_t *bytes = NULL;

    APR_TRY(p->options->custom_encoder->make(p->options->custom_encoder->user, i, &bytes, &item->out_of_range, err));
    if (p->options->want_metrics) APR_TRY(apr_pipe_measure(p, &cut, item, 0, apr_cut_portions(&cut), bytes, err));
    APR_TRY(apr_sink_put(p->sink, bytes, (size_t)apr_row_bytes(item->to, apr_tensor_elems(item->from)), err));
    apr_pipe_progress(p, item->from, item->from->n_bytes);
    return APR_OK;
}

static apr_status put_item(apr_pipe *p, apr_pipe_device *device, apr_pipe_item *items, size_t i, apr_error *err)
{
    const apr_pipe_item *const item = &items[i];

    if (item->packed != NULL) return put_packed(p, &items[i], err);
    if (apr_pipe_is_custom(p, i)) return put_custom(p, &items[i], i, err);
    if (item->is_commons) return put_global_scales(p, item->from, err);
    if (item->is_scales) return apr_sink_put(p->sink, p->row_scales, p->n_row_scales * sizeof(float), err);
    if (item->to == item->from->dtype && !apr_tensor_is_packed(item->from)) return copy_tensor(p, item, err);
    return convert_tensor(p, device, items, i, err);
}

/* ---- checks of values ---- */

/* Counts values of a tensor, or of all sources of a composed one. */
static int64_t count_beyond_f32(const apr_tensor *t, double *worst)
{
    if (!apr_tensor_is_composed(t)) return apr_count_beyond_f32(t->data, apr_tensor_elems(t), worst);
    int64_t n = 0;
    for (size_t i = 0; i < t->composed->n_parts; i++) {
        double here;
        const int64_t more = count_beyond_f32(t->composed->parts[i], &here);
        if (more > 0 && (n == 0 || fabs(here) > fabs(*worst))) *worst = here;
        n += more;
    }
    return n;
}

/* Everything is encoded through float32, so a tensor with a double beyond its range can only be kept as f64. */
static apr_status check_doubles(const apr_pipe_item *item, apr_error *err)
{
    const apr_tensor *const t = item->from;
    double worst = 0.0;

    if (t->dtype != APR_F64 || item->to == APR_F64 || item->is_scales || item->is_commons) return APR_OK;
    const int64_t n = count_beyond_f32(t, &worst);
    if (n == 0) return APR_OK;
    return apr_fail(err, APR_E_UNSUPPORTED,
                    "tensor '%s': %lld of its %lld values are out of the range of float32 (the largest is %g), through which %s is "
                    "encoded; it can only be "
                    "kept as f64",
                    t->name, (long long)n, (long long)apr_tensor_elems(t), worst, apr_dtypes[item->to].name);
}

/* A type with enough range for `worst`. */
static const char *wider_type(float worst)
{
    const apr_range bf16 = apr_encode_range(APR_BF16);
    return worst > bf16.high || worst < bf16.low ? "f32" : "bf16";
}

static apr_status check_out_of_range(const apr_pipe_item *item, const apr_pipe_options *options, apr_error *err)
{
    const apr_out_of_range *const m = &item->out_of_range;
    const char *const type = apr_dtypes[item->to].name;
    const double bound = (double)apr_encode_bound(item->to, m->worst);

    if (m->n_out_of_range == 0 || options->saturate) return APR_OK;
    return apr_fail(err, APR_E_UNSUPPORTED,
                    "tensor '%s': %lld of its %lld values are out of the range of %s (the largest is %g, the limit of %s is %g)%s; "
                    "choose a wider type, as with --tensor '%s=%s', or give --saturate to store %g instead",
                    item->from->name, (long long)m->n_out_of_range, (long long)apr_tensor_elems(item->from), type, (double)m->worst, type,
                    bound, apr_encode_range(item->to).overflows ? " and would become infinite" : "", item->from->name, wider_type(m->worst),
                    bound);
}

/* ---- all items ---- */

/* Clears the results of an item. Items of earlier runs count as done, items of other parts are not counted. */
static void start_item(apr_pipe *p, apr_pipe_item *item, size_t i)
{
    const uint64_t n_bytes = item->is_scales || item->is_commons ? 0 : item->from->n_bytes;

    item->metrics = apr_metrics_empty();
    item->out_of_range = (apr_out_of_range){0};
    item->on_device = false;
    item->n_different = item->n_rounded = item->n_off = 0;
    item->worst_difference = 0.0;
    item->state = apr_sink_state(p->sink, i);
    if (item->state != APR_TENSOR_ELSEWHERE) p->total_bytes += n_bytes;
    if (item->state != APR_TENSOR_DONE_BEFORE) return;
    p->done_bytes += n_bytes;
    apr_pipe_read_note(item, apr_sink_note(p->sink, i));
}

static apr_status make_item(apr_pipe *p, checksums *sums, apr_pipe_device *device, apr_pipe_item *items, size_t i, apr_error *err)
{
    char note[APR_NOTE_BYTES];

    APR_TRY(apr_pipe_check_cancelled(p, err));
    apr_status status = load_sources(items[i].from, err);
    if (status == APR_OK) status = check_sources(sums, items[i].from, err);
    const apr_pipe_packed *const packed = items[i].packed; /* the matrices that share its global scale are read, too */
    for (size_t k = 0; status == APR_OK && packed != NULL && k < packed->n_shares; k++) {
        if (packed->shares[k] != items[i].from) status = load_sources(packed->shares[k], err);
        if (status == APR_OK) status = check_sources(sums, packed->shares[k], err);
    }
    if (status == APR_OK) status = check_doubles(&items[i], err);
    if (status == APR_OK) status = put_item(p, device, items, i, err);
    unload_sources(items[i].from);
    for (size_t k = 0; packed != NULL && k < packed->n_shares; k++) unload_sources(packed->shares[k]);
    if (status == APR_OK) status = check_out_of_range(&items[i], p->options, err);
    if (status != APR_OK) return status;
    apr_pipe_write_note(&items[i], note);
    return apr_sink_done(p->sink, i, note, err);
}

apr_status apr_pipe_run(apr_sink *sink, apr_pipe_item *items, size_t n_items, const apr_pipe_options *options, apr_error *err)
{
    apr_pipe p = {.sink = sink, .options = options};
    apr_pipe_device *device = NULL;
    checksums sums;

    apr_status status = open_checksums(&sums, options->source, err);
    for (size_t i = 0; i < n_items; i++) start_item(&p, &items[i], i);
    if (p.done_bytes > 0) apr_progress_report(&options->progress, p.done_bytes, p.total_bytes, NULL);
    if (status == APR_OK && options->codecs != NULL) status = apr_pipe_device_start(&device, &p, items, n_items, err);
    for (size_t i = 0; i < n_items && status == APR_OK; i++)
        if (items[i].state == APR_TENSOR_WANTED) status = make_item(&p, &sums, device, items, i, err);
    if (status == APR_OK) status = apr_pipe_check_cancelled(&p, err); /* by the last report */
    apr_pipe_device_stop(device);
    free(p.values);
    free(p.slots);
    free(p.row_scales);
    close_packed(&p);
    free(sums.places);
    return status;
}
