/* pipe.c - windows of pieces: all threads encode one window while one of them writes the window before. */
#include "convert/pipe.h"

#include "kernels/rows.h"

#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_max_threads(void) { return 1; }
static int omp_get_thread_num(void) { return 0; }
#endif

enum {
    PIECE_ELEMS = 64 * 1024, /* a multiple of every block; 256 KiB of floats stay in a core's cache */
    WINDOW_PIECES = 32,      /* 8 MiB of floats a window */
    COPY_BYTES = 8 * 1024 * 1024
};

typedef struct pipe {
    apr_sink *sink;
    const apr_pipe_options *options;
    uint64_t done_bytes, total_bytes; /* of source data, for the progress line */
    uint8_t *windows[2];              /* encoded bytes: one being filled, one being written */
    size_t window_bytes;
    float *values;      /* [threads][2 * piece_elems]: decoded source, decoded result */
    size_t piece_elems; /* capacity of `values` */
    float *row_scales;  /* of the FP8 tensor just written */
    size_t n_row_scales;
} pipe;

/* How a tensor is cut. A plain tensor is one long array and pieces may cross rows; where rows move, have scales or a flat
 * type, a piece is whole rows. */
typedef struct cut {
    apr_tensor array; /* the tensor, or its flat view of rank 1 */
    bool whole_rows;
    int64_t n_units, units_per_piece; /* a unit is a row, or one value of the array */
    int64_t unit_elems;
} cut;

static cut cut_tensor(const apr_pipe_item *item)
{
    const apr_tensor *const t = item->from;
    cut c = {.array = *t, .unit_elems = apr_tensor_columns(t), .n_units = apr_tensor_rows(t)};

    c.whole_rows =
        t->pending.kind != APR_STEP_NONE || t->scale != NULL || t->dtype == APR_APR_Q4 || t->dtype == APR_APR_Q8 || item->to == APR_F8_E4M3;
    if (c.whole_rows) {
        c.units_per_piece = c.unit_elems < PIECE_ELEMS && c.unit_elems > 0 ? PIECE_ELEMS / c.unit_elems : 1;
        return c;
    }
    c.n_units = apr_tensor_elems(t);
    c.unit_elems = 1;
    c.units_per_piece = PIECE_ELEMS;
    c.array.rank = 1;
    c.array.dims[0] = c.n_units;
    return c;
}

static int64_t n_pieces(const cut *c) { return (c->n_units + c->units_per_piece - 1) / c->units_per_piece; }
static int64_t units_of_piece(const cut *c, int64_t piece)
{
    const int64_t left = c->n_units - piece * c->units_per_piece;
    return left < c->units_per_piece ? left : c->units_per_piece;
}

/* Values of one piece as floats. */
static void decode_piece(const cut *c, int64_t piece, float *dst)
{
    const int64_t first = piece * c->units_per_piece, n = units_of_piece(c, piece);
    if (c->whole_rows) {
        apr_decode_rows(&c->array, first, n, dst);
        return;
    }
    apr_tensor slice = c->array;
    slice.dims[0] = n;
    slice.data += apr_row_bytes(c->array.dtype, first);
    slice.n_bytes = (uint64_t)apr_row_bytes(c->array.dtype, n);
    apr_decode_rows(&slice, 0, 1, dst);
}

static void encode_piece(const pipe *p, const cut *c, const apr_pipe_item *item, int64_t piece, const float *src, uint8_t *dst)
{
    const int64_t n = units_of_piece(c, piece);
    if (item->to != APR_F8_E4M3) {
        apr_host_codecs()[item->to].encode(src, dst, n * c->unit_elems);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        apr_encode_fp8_row(src + i * c->unit_elems, dst + i * c->unit_elems, &p->row_scales[piece * c->units_per_piece + i], c->unit_elems);
}

/* The encoded piece as floats again, to measure what encoding cost. */
static void decode_encoded(const pipe *p, const cut *c, const apr_pipe_item *item, int64_t piece, const uint8_t *bytes, float *dst)
{
    const int64_t n = units_of_piece(c, piece) * c->unit_elems;
    apr_ref_codecs[item->to].decode(bytes, dst, n);
    if (item->to == APR_F8_E4M3)
        for (int64_t i = 0; i < n; i++) dst[i] *= p->row_scales[piece * c->units_per_piece + i / c->unit_elems];
}

/* What one piece found out; added up in order, so that sums do not depend on threads. */
typedef struct finding {
    apr_metrics metrics;
    int64_t n_unusual;
} finding;

static void convert_piece(const pipe *p, const cut *c, const apr_pipe_item *item, int64_t piece, uint8_t *dst, finding *found)
{
    const int64_t n = units_of_piece(c, piece) * c->unit_elems;
    float *const values = p->values + 2 * p->piece_elems * (size_t)omp_get_thread_num(), *const again = values + p->piece_elems;

    decode_piece(c, piece, values);
    found->n_unusual = apr_count_unusual(values, n);
    encode_piece(p, c, item, piece, values, dst);
    found->metrics = apr_metrics_empty();
    if (!p->options->want_metrics) return;
    decode_encoded(p, c, item, piece, dst, again);
    apr_metrics_add(&found->metrics, values, again, n);
}

static void report_progress(pipe *p, const apr_tensor *tensor, uint64_t more_bytes)
{
    p->done_bytes += more_bytes;
    apr_progress_report(&p->options->progress, p->done_bytes, p->total_bytes, tensor->name);
}

/* Makes room for pieces of this tensor. */
static apr_status reserve(pipe *p, const cut *c, const apr_pipe_item *item, apr_error *err)
{
    const size_t elems = (size_t)(c->units_per_piece < c->n_units ? c->units_per_piece : c->n_units) * (size_t)c->unit_elems;
    const size_t window_bytes = WINDOW_PIECES * (size_t)apr_row_bytes(item->to, (int64_t)elems);
    size_t n_values;

    if (elems > p->piece_elems) {
        free(p->values);
        p->piece_elems = elems;
        p->values = __builtin_mul_overflow(elems, 2 * sizeof(float) * (size_t)omp_get_max_threads(), &n_values) ? NULL : malloc(n_values);
    }
    if (window_bytes > p->window_bytes) {
        p->window_bytes = window_bytes;
        for (int i = 0; i < 2; i++) {
            free(p->windows[i]);
            p->windows[i] = malloc(window_bytes);
        }
    }
    if (item->to == APR_F8_E4M3) {
        free(p->row_scales);
        p->n_row_scales = (size_t)c->n_units;
        p->row_scales = malloc(p->n_row_scales * sizeof(float) + 1);
        if (p->row_scales == NULL) return apr_no_memory(err, "the scales of a tensor's rows");
    }
    if (p->values == NULL || p->windows[0] == NULL || p->windows[1] == NULL) return apr_no_memory(err, "a window of a tensor");
    return APR_OK;
}

static apr_status convert_tensor(pipe *p, apr_pipe_item *item, apr_error *err)
{
    const cut c = cut_tensor(item);
    const int64_t total = n_pieces(&c);
    const size_t piece_bytes = (size_t)apr_row_bytes(item->to, c.units_per_piece * c.unit_elems);
    finding found[WINDOW_PIECES];
    apr_status status = APR_OK;
    size_t n_ready = 0; /* bytes of the window before, waiting to be written */
    int filling = 0;

    if (c.n_units == 0 || c.unit_elems == 0) return APR_OK;
    APR_TRY(reserve(p, &c, item, err));
    for (int64_t first = 0; first < total || n_ready > 0; first += WINDOW_PIECES) {
        const int64_t n = first >= total ? 0 : total - first < WINDOW_PIECES ? total - first : WINDOW_PIECES;
        uint8_t *const window = p->windows[filling], *const ready = p->windows[!filling];
        if (status != APR_OK) return status;
#pragma omp parallel
#pragma omp single
        {
#pragma omp task shared(status)
            if (n_ready > 0) status = apr_sink_put(p->sink, ready, n_ready, err);
#pragma omp taskloop grainsize(1) shared(found)
            for (size_t i = 0; i < (size_t)n; i++) convert_piece(p, &c, item, first + (int64_t)i, window + i * piece_bytes, &found[i]);
        }
        n_ready = 0;
        for (int64_t i = 0; i < n; i++) {
            const int64_t elems = units_of_piece(&c, first + i) * c.unit_elems;
            n_ready += (size_t)apr_row_bytes(item->to, elems);
            item->n_unusual += found[i].n_unusual;
            apr_metrics_merge(&item->metrics, &found[i].metrics);
        }
        if (n > 0) report_progress(p, item->from, item->from->n_bytes / (uint64_t)total * (uint64_t)n);
        filling = !filling;
    }
    return status;
}

/* Same type: the bytes as they are, or row by row where the order changes. */
static apr_status copy_tensor(pipe *p, const apr_pipe_item *item, apr_error *err)
{
    const apr_tensor *const t = item->from;
    if (t->pending.kind == APR_STEP_NONE) {
        for (uint64_t at = 0; at < t->n_bytes; at += COPY_BYTES) {
            const size_t n = t->n_bytes - at < COPY_BYTES ? (size_t)(t->n_bytes - at) : COPY_BYTES;
            APR_TRY(apr_sink_put(p->sink, t->data + at, n, err));
            report_progress(p, t, n);
        }
        return APR_OK;
    }
    if (t->n_bytes == 0) return APR_OK;
    const int64_t n_rows = t->rank == 1 ? t->dims[0] : apr_tensor_rows(t);
    const size_t row_bytes = (size_t)(t->n_bytes / (uint64_t)n_rows);
    const int64_t rows_at_once = row_bytes < COPY_BYTES ? (int64_t)(COPY_BYTES / row_bytes) : 1;
    uint8_t *const rows = malloc((size_t)(rows_at_once < n_rows ? rows_at_once : n_rows) * row_bytes);
    if (rows == NULL) return apr_no_memory(err, "rows of a tensor");
    apr_status status = APR_OK;
    for (int64_t row = 0; row < n_rows && status == APR_OK; row += rows_at_once) {
        const int64_t n = n_rows - row < rows_at_once ? n_rows - row : rows_at_once;
        for (int64_t i = 0; i < n; i++) memcpy(rows + (size_t)i * row_bytes, apr_tensor_row(t, row + i), row_bytes);
        status = apr_sink_put(p->sink, rows, (size_t)n * row_bytes, err);
        report_progress(p, t, (uint64_t)n * row_bytes);
    }
    free(rows);
    return status;
}

static apr_status run_item(pipe *p, apr_pipe_item *item, apr_error *err)
{
    item->metrics = apr_metrics_empty();
    item->n_unusual = 0;
    if (item->is_scales) return apr_sink_put(p->sink, p->row_scales, p->n_row_scales * sizeof(float), err);
    return item->to == item->from->dtype ? copy_tensor(p, item, err) : convert_tensor(p, item, err);
}

apr_status apr_pipe_run(apr_sink *sink, apr_pipe_item *items, size_t n_items, const apr_pipe_options *options, apr_error *err)
{
    pipe p = {.sink = sink, .options = options};
    apr_status status = APR_OK;

    for (size_t i = 0; i < n_items; i++)
        if (!items[i].is_scales) p.total_bytes += items[i].from->n_bytes;
    for (size_t i = 0; i < n_items && status == APR_OK; i++) status = run_item(&p, &items[i], err);
    free(p.values);
    free(p.windows[0]);
    free(p.windows[1]);
    free(p.row_scales);
    return status;
}
