/* pipe_packed.c - encodes a matrix that becomes several tensors: all of them in memory, units of rows on all threads; then puts them one
 * after another. */
#include "convert/pipe_internal.h"

#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "kernels/pack.h"
#include "kernels/rows.h"
#include "kernels/unpack.h"

#include <stdlib.h>
#include <string.h>

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

apr_status apr_pipe_put_packed(apr_pipe *p, apr_pipe_item *item, apr_error *err)
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

void apr_pipe_close_packed(apr_pipe *p)
{
    if (p->packed != NULL) free_parts(p->packed);
    free(p->packed);
    p->packed = NULL;
}
