/* pipe_portions.c - converts a tensor on the host in portions: all threads read, encode and write them. Also what the host and the device
 * path share: how tensors are cut, and how encoded portions are measured. */
#include "convert/pipe_internal.h"

#include "convert/pipe_queue.h"
#include "formats/base/crc32.h"
#include "formats/base/threads.h"
#include "formats/tensor/library_type.h"
#include "kernels/rows.h"
#include "kernels/transcode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- portions ---- */

static bool has_row_scales(apr_dtype dtype) { return apr_dtypes[dtype].scales == APR_SCALES_SEPARATE; }

apr_cut apr_cut_tensor(const apr_pipe_item *item)
{
    const apr_tensor *const t = item->from;
    apr_cut c = {.tensor = t, .unit_elems = apr_tensor_columns(t), .n_units = apr_tensor_rows(t)};

    c.whole_rows = apr_tensor_source(t) == APR_SOURCE_REORDERED || apr_tensor_is_packed(t) || t->scale != NULL ||
                   apr_dtypes[t->dtype].flat || has_row_scales(item->to) || item->same_numbers;
    if (c.whole_rows) {
        c.units_per_portion = c.unit_elems < APR_PORTION_ELEMS && c.unit_elems > 0 ? APR_PORTION_ELEMS / c.unit_elems : 1;
        return c;
    }
    c.n_units = apr_tensor_elems(t);
    c.unit_elems = 1;
    c.units_per_portion = APR_PORTION_ELEMS;
    return c;
}

int64_t apr_cut_portions(const apr_cut *c) { return (c->n_units + c->units_per_portion - 1) / c->units_per_portion; }

/* The number of units of one portion. */
static int64_t cut_units(const apr_cut *c, int64_t portion)
{
    const int64_t left = c->n_units - portion * c->units_per_portion;
    return left < c->units_per_portion ? left : c->units_per_portion;
}

/* Decodes one portion to floats. */
static void decode_portion(const apr_cut *c, int64_t portion, float *dst)
{
    const int64_t first = portion * c->units_per_portion, n = cut_units(c, portion);
    if (c->whole_rows) apr_decode_rows(c->tensor, first, n, dst);
    else apr_decode_elements(c->tensor, first, n, dst);
}

/* The importance of each value of a portion: every row of a matrix uses the same columns. */
static void spread_importance(const apr_pipe_item *item, int64_t first, int64_t n, float *to)
{
    const apr_tensor *const t = item->from;
    const int64_t columns = apr_tensor_columns(t), matrix = t->rank > 2 ? t->dims[t->rank - 2] * columns : INT64_MAX;

    for (int64_t i = 0, part; i < n; i += part) {
        const int64_t column = (first + i) % columns;
        part = columns - column < n - i ? columns - column : n - i;
        memcpy(to + i, item->importance + (first + i) / matrix * columns + column, (size_t)part * sizeof *to);
    }
}

/* `spare`: a buffer for as many numbers as the portion has. */
static void encode_portion(const apr_pipe *p, const apr_cut *c, const apr_pipe_item *item, int64_t portion, const float *src, float *spare,
                           uint8_t *dst)
{
    const int64_t n = cut_units(c, portion);
    const apr_codec *const codec = &apr_host_codecs()[item->to];
    if (item->importance != NULL && codec->encode_by != NULL) {
        spread_importance(item, portion * c->units_per_portion * c->unit_elems, n * c->unit_elems, spare);
        codec->encode_by(src, spare, dst, n * c->unit_elems);
        return;
    }
    if (!has_row_scales(item->to)) {
        codec->encode(src, dst, n * c->unit_elems);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        apr_encode_fp8_row(src + i * c->unit_elems, dst + i * c->unit_elems, &p->row_scales[portion * c->units_per_portion + i],
                           c->unit_elems);
}

/* Decodes an encoded portion, to measure the error of encoding. */
static void decode_encoded(const apr_pipe *p, const apr_cut *c, const apr_pipe_item *item, int64_t portion, const uint8_t *bytes,
                           float *dst)
{
    const int64_t n = cut_units(c, portion) * c->unit_elems;
    apr_ref_codecs[item->to].decode(bytes, dst, n);
    if (has_row_scales(item->to))
        for (int64_t i = 0; i < n; i++) dst[i] *= p->row_scales[portion * c->units_per_portion + i / c->unit_elems];
}

/* The results of one portion; added up in order, so that sums do not depend on threads. */
typedef struct portion_result {
    uint32_t crc; /* of its bytes, if the tensor's extent needs it */
    apr_metrics metrics;
    apr_out_of_range out_of_range;
    apr_transcode_cost cost;
} portion_result;

/* Repacks rows of packed weights without changing values, reads them back and compares. */
static void transcode_portion(const apr_pipe *p, const apr_cut *c, const apr_pipe_item *item, int64_t portion, int thread, uint8_t *dst,
                              portion_result *found)
{
    const apr_tensor *const t = item->from;
    const int64_t first = portion * c->units_per_portion, n = cut_units(c, portion), row_bytes = apr_row_bytes(item->to, c->unit_elems);
    const bool has_global_scale = apr_transcode_has_global_scales(t, item->to);
    float *const values = p->values + APR_PORTION_BUFFERS * p->portion_elems * (size_t)thread, *const again = values + p->portion_elems;

    *found = (portion_result){.metrics = apr_metrics_empty()};
    for (int64_t i = 0; i < n; i++) {
        uint8_t *const row = dst + i * row_bytes;
        apr_transcode_row(t, item->to, first + i, row);
        apr_transcode_compare(t, item->library, item->to, first + i, row, &found->cost);
        if (!p->options->want_metrics) continue;
        const float global_scale =
            has_global_scale ? apr_transcode_global_scale(t, (first + i) / (apr_tensor_rows(t) / apr_transcode_matrices(t))) : 1.0f;
        apr_decode_rows(t, first + i, 1, values);
        apr_ref_codecs[item->to].decode(row, again, c->unit_elems);
        for (int64_t j = 0; j < c->unit_elems; j++) again[j] *= global_scale;
        apr_metrics_add(&found->metrics, values, again, c->unit_elems);
    }
}

static void count_different(const float *values, const float *again, apr_dtype library, int64_t n, portion_result *found)
{
    for (int64_t i = 0; i < n; i++) {
        const float rounded = apr_round_as(library, values[i]);
        found->cost.n_rounded += rounded != values[i] && !isnan(values[i]);
        found->cost.n_off += again[i] != rounded && !(isnan(again[i]) && isnan(rounded));
        if (values[i] == again[i] || (isnan(values[i]) && isnan(again[i]))) continue;
        const double off = fabs((double)again[i] - (double)values[i]) / fmax(fabs((double)values[i]), 0x1p-149);
        if (!(off <= found->cost.worst)) found->cost.worst = off;
        found->cost.n_different++;
    }
}

static void convert_portion(const apr_pipe *p, const apr_cut *c, const apr_pipe_item *item, int64_t portion, int thread, uint8_t *dst,
                            portion_result *found)
{
    const int64_t n = cut_units(c, portion) * c->unit_elems;
    float *const values = p->values + APR_PORTION_BUFFERS * p->portion_elems * (size_t)thread, *const again = values + p->portion_elems;

    if (item->same_numbers) {
        transcode_portion(p, c, item, portion, thread, dst, found);
        return;
    }
    found->cost = (apr_transcode_cost){0};
    decode_portion(c, portion, values);
    found->out_of_range = apr_find_out_of_range(values, n, item->to);
    const bool cut_off = p->options->saturate && found->out_of_range.n_out_of_range > 0;
    if (cut_off) apr_saturate(values, again, n, item->to);
    encode_portion(p, c, item, portion, cut_off ? again : values, again + p->portion_elems, dst);
    found->metrics = apr_metrics_empty();
    if (!p->options->want_metrics && !item->counts_cost) return;
    decode_encoded(p, c, item, portion, dst, again);
    if (item->counts_cost) count_different(values, again, item->library, n, found);
    if (p->options->want_metrics) apr_metrics_add(&found->metrics, values, again, n);
}

void apr_pipe_progress(apr_pipe *p, const apr_tensor *tensor, uint64_t more_bytes)
{
    p->done_bytes += more_bytes;
    apr_progress_report(&p->options->progress, p->done_bytes, p->total_bytes, tensor->name);
}

apr_status apr_pipe_check_cancelled(const apr_pipe *p, apr_error *err)
{
    const atomic_bool *const flag = p->options->is_cancelled;
    return flag != NULL && atomic_load(flag) ? apr_fail(err, APR_E_NO, "cancelled") : APR_OK;
}

/* ---- measuring ---- */

/* Makes capacity for the floats of this tensor's portions. */
static apr_status reserve_values(apr_pipe *p, const apr_cut *c, apr_error *err)
{
    const size_t elems = (size_t)(c->units_per_portion < c->n_units ? c->units_per_portion : c->n_units) * (size_t)c->unit_elems;
    size_t n_values;

    if (elems > p->portion_elems) {
        free(p->values);
        p->portion_elems = elems;
        p->values = __builtin_mul_overflow(elems, APR_PORTION_BUFFERS * sizeof(float) * (size_t)apr_all_threads(), &n_values)
                        ? NULL
                        : malloc(n_values);
    }
    return p->values != NULL ? APR_OK : apr_no_memory(err, "a window of a tensor");
}

apr_status apr_pipe_measure(apr_pipe *p, const apr_cut *c, apr_pipe_item *item, int64_t first, int64_t n, const uint8_t *bytes,
                            apr_error *err)
{
    const size_t portion_bytes = (size_t)apr_row_bytes(item->to, c->units_per_portion * c->unit_elems);
    portion_result found[APR_WINDOW_PORTIONS];

    APR_TRY(reserve_values(p, c, err));
    for (int64_t done = 0; done < n; done += APR_WINDOW_PORTIONS) {
        const int64_t now = n - done < APR_WINDOW_PORTIONS ? n - done : APR_WINDOW_PORTIONS;
        const double steps = (double)now * (double)p->portion_elems * APR_OPS_EXP;
#pragma omp parallel for schedule(dynamic) num_threads(apr_threads(apr_all_threads(), now, steps))
        for (int64_t i = 0; i < now; i++) {
            float *const values = p->values + APR_PORTION_BUFFERS * p->portion_elems * (size_t)apr_thread_number();
            float *const again = values + p->portion_elems;
            decode_portion(c, first + done + i, values);
            decode_encoded(p, c, item, first + done + i, bytes + (size_t)(done + i) * portion_bytes, again);
            found[i].metrics = apr_metrics_empty();
            apr_metrics_add(&found[i].metrics, values, again, cut_units(c, first + done + i) * c->unit_elems);
        }
        for (int64_t i = 0; i < now; i++) apr_metrics_merge(&item->metrics, &found[i].metrics);
    }
    return APR_OK;
}

/* ---- converting ---- */

/* Makes capacity for the encoded portions of this tensor. */
static apr_status reserve(apr_pipe *p, const apr_cut *c, const apr_pipe_item *item, apr_error *err)
{
    const size_t elems = (size_t)(c->units_per_portion < c->n_units ? c->units_per_portion : c->n_units) * (size_t)c->unit_elems;
    const size_t slot_bytes = (size_t)apr_row_bytes(item->to, (int64_t)elems);
    const int n_threads = apr_all_threads();
    size_t n_bytes;

    APR_TRY(reserve_values(p, c, err));
    if (slot_bytes > p->slot_bytes) {
        free(p->slots);
        p->n_slots = apr_portion_slots(n_threads);
        p->slot_bytes = slot_bytes;
        const size_t n_buffers = p->n_slots > (size_t)n_threads ? p->n_slots : (size_t)n_threads; /* untouched pages cost no memory */
        p->slots = __builtin_mul_overflow(slot_bytes, n_buffers, &n_bytes) ? NULL : malloc(n_bytes);
    }
    return p->slots != NULL ? APR_OK : apr_no_memory(err, "portions of a tensor");
}

/* A tensor in the queue. If the sink knows its extent, the thread that made a portion writes it there from the thread's own
 * buffer. Otherwise portions are contiguous in the slots, so that several are put at once. */
typedef struct queued_tensor {
    apr_pipe *p;
    apr_pipe_item *item;
    apr_cut cut;
    size_t portion_bytes;     /* of every portion but the last; at most p->slot_bytes */
    portion_result *found;    /* [p->n_slots] */
    const apr_extent *extent; /* or NULL */
    uint32_t crc;             /* of the portions so far */
} queued_tensor;

static size_t bytes_of(const queued_tensor *t, int64_t portion)
{
    return (size_t)apr_row_bytes(t->item->to, cut_units(&t->cut, portion) * t->cut.unit_elems);
}

static apr_status make_portion(void *context, int64_t portion, size_t slot, int thread, apr_error *err)
{
    const queued_tensor *const t = context;
    uint8_t *const bytes = t->p->slots + (t->extent != NULL ? (size_t)thread : slot) * t->portion_bytes;

    APR_TRY(apr_pipe_check_cancelled(t->p, err));
    convert_portion(t->p, &t->cut, t->item, portion, thread, bytes, &t->found[slot]);
    if (t->extent == NULL) return APR_OK;
    if (t->extent->wants_crc) t->found[slot].crc = apr_crc32(0, bytes, bytes_of(t, portion));
    return apr_extent_put(t->extent, (uint64_t)portion * t->portion_bytes, bytes, bytes_of(t, portion), err);
}

static apr_status take_portions(void *context, int64_t first, int64_t n, apr_error *err)
{
    queued_tensor *const t = context;
    const size_t slot = (size_t)(first % (int64_t)t->p->n_slots);
    const int64_t total = apr_cut_portions(&t->cut);
    apr_pipe_item *const item = t->item;
    int64_t n_elems = 0;

    for (int64_t i = 0; i < n; i++) {
        const portion_result *const found = &t->found[slot + (size_t)i];
        n_elems += cut_units(&t->cut, first + i) * t->cut.unit_elems;
        if (t->extent != NULL && t->extent->wants_crc) t->crc = apr_crc32_combine(t->crc, found->crc, bytes_of(t, first + i));
        apr_out_of_range_merge(&item->out_of_range, &found->out_of_range);
        apr_metrics_merge(&item->metrics, &found->metrics);
        item->n_different += found->cost.n_different;
        item->n_rounded += found->cost.n_rounded;
        item->n_off += found->cost.n_off;
        item->worst_difference = fmax(item->worst_difference, found->cost.worst);
    }
    if (t->extent == NULL)
        APR_TRY(apr_sink_put(t->p->sink, t->p->slots + slot * t->portion_bytes, (size_t)apr_row_bytes(item->to, n_elems), err));
    apr_pipe_progress(t->p, item->from, item->from->n_bytes / (uint64_t)total * (uint64_t)n);
    return APR_OK;
}

apr_status apr_pipe_convert(apr_pipe *p, apr_pipe_item *item, const apr_extent *extent, apr_error *err)
{
    queued_tensor t = {.p = p, .item = item, .cut = apr_cut_tensor(item), .extent = extent};

    APR_TRY(reserve(p, &t.cut, item, err));
    const int64_t units = t.cut.units_per_portion < t.cut.n_units ? t.cut.units_per_portion : t.cut.n_units;
    t.portion_bytes = (size_t)apr_row_bytes(item->to, units * t.cut.unit_elems);
    t.found = calloc(p->n_slots, sizeof *t.found);
    if (t.found == NULL) return apr_no_memory(err, "the results of portions");
    const apr_portion_work work = {.n_portions = apr_cut_portions(&t.cut),
                                   .n_slots = p->n_slots,
                                   .n_threads = apr_all_threads(),
                                   .context = &t,
                                   .make = make_portion,
                                   .take = take_portions};
    apr_status status = apr_run_portions(&work, err);
    if (status == APR_OK && extent != NULL) status = apr_sink_pass(p->sink, t.crc, err);
    free(t.found);
    return status;
}
