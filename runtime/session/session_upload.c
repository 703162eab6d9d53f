/* session_upload.c - uploads weights to a device in chunks: several threads fill pinned memory, and each chunk is sent once it is full.
 *
 * One thread copies 4 to 10 GB/s out of the page cache and a link takes 25 to 60, so eight threads are used. Each has two slots: it
 * fills one while the other is sent. Chunks are independent; only the calls to the device are serialized. */
#include "runtime/session/session_upload.h"
#include "formats/files/map.h"
#include "formats/base/threads.h"
#include "formats/tensor/composed.h"
#include "formats/tensor/packing.h"
#include "kernels/gather.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 22, MOST_THREADS = APR_CUDA_MARKS / 2 };

/* --- filling a chunk --- */

static void fill_bytes(apr_load *l, int64_t first, int64_t n, uint8_t *staging, float *decoded)
{
    (void)decoded;
    apr_map_prefetch(l->bytes + first, (size_t)n);
    memcpy(staging, l->bytes + first, (size_t)n);
}

static void fill_rows_in_order(apr_load *l, int64_t first, int64_t n, uint8_t *staging, float *decoded)
{
    const uint8_t *const rows = l->tensor->data + (size_t)first * l->row_bytes;
    (void)decoded;
    apr_map_prefetch(rows, (size_t)n * l->row_bytes);
    memcpy(staging, rows, (size_t)n * l->row_bytes);
}

static void fill_rows(apr_load *l, int64_t first, int64_t n, uint8_t *staging, float *decoded)
{
    (void)decoded;
    for (int64_t i = 0; i < n; i++) memcpy(staging + (size_t)i * l->row_bytes, apr_tensor_row(l->tensor, first + i), l->row_bytes);
}

static void fill_gathered(apr_load *l, int64_t first, int64_t n, uint8_t *staging, float *decoded)
{
    const int64_t n_columns = apr_tensor_columns(l->tensor);
    (void)decoded;
    apr_gather_bytes(l->tensor, first * n_columns, n * n_columns, staging);
}

/* Values beyond FP16 become its largest value, and are counted. */
static void fill_f16(apr_load *l, int64_t first, int64_t n, uint8_t *staging, float *decoded)
{
    const int64_t n_numbers = n * apr_tensor_columns(l->tensor);

    apr_decode_rows(l->tensor, first, n, decoded);
    const apr_out_of_range found = apr_find_out_of_range(decoded, n_numbers, APR_F16);
#pragma omp critical(apr_load_out_of_range)
    apr_out_of_range_merge(&l->out_of_range, &found);
    if (found.n_out_of_range > 0) apr_saturate(decoded, decoded, n_numbers, APR_F16);
    apr_host_codecs()[APR_F16].encode(decoded, staging, n_numbers);
}

static void fill_repacked(apr_load *l, int64_t first, int64_t n, uint8_t *staging, float *decoded)
{
    (void)decoded;
    apr_repack_rows(l->repack, l->piece, first, n, staging);
}

/* --- the list of loads --- */

static apr_status add(apr_loads *loads, const apr_load *load, apr_error *err)
{
    if (load->n_rows == 0) return APR_OK;
    if (loads->n == loads->capacity) {
        const size_t capacity = loads->capacity > 0 ? 2 * loads->capacity : 256;
        apr_load *const more = realloc(loads->list, capacity * sizeof *more);
        if (more == NULL) return apr_no_memory(err, "the list of weights to upload");
        loads->list = more;
        loads->capacity = capacity;
    }
    loads->list[loads->n] = *load;
    if (!load->tiled) loads->list[loads->n].device_row_bytes = load->row_bytes;
    loads->n++;
    loads->n_bytes += (uint64_t)load->n_rows * load->row_bytes;
    return APR_OK;
}

apr_status apr_load_bytes(apr_loads *loads, const uint8_t *bytes, uint64_t n_bytes, uint8_t *to, apr_error *err)
{
    const apr_load load = {.fill = fill_bytes, .bytes = bytes, .n_rows = (int64_t)n_bytes, .row_bytes = 1, .rows_at_once = 1, .to = to};
    return add(loads, &load, err);
}

apr_status apr_load_rows(apr_loads *loads, const apr_tensor *tensor, apr_load_format form, uint8_t *to, apr_error *err)
{
    const int64_t n_rows = apr_tensor_rows(tensor), n_columns = apr_tensor_columns(tensor);
    const bool in_order = tensor->made == NULL && tensor->pending.kind == APR_STEP_NONE, is_f16 = form == APR_LOAD_F16;
    apr_load load = {.fill = is_f16                 ? fill_f16
                             : tensor->made != NULL ? fill_gathered
                             : in_order             ? fill_rows_in_order
                                                    : fill_rows,
                     .tensor = tensor,
                     .n_rows = n_rows,
                     .row_bytes = is_f16 ? (size_t)n_columns * 2 : (size_t)(tensor->n_bytes / (uint64_t)n_rows),
                     .rows_at_once = form == APR_LOAD_TILED ? APR_ROW_GROUP : 1,
                     .n_decoded = is_f16 ? n_columns : 0,
                     .tiled = form == APR_LOAD_TILED,
                     .device_row_bytes = (size_t)apr_tiled_row_bytes(tensor->dtype, true, n_columns),
                     .to = to};
    return add(loads, &load, err);
}

apr_status apr_load_repacked(apr_loads *loads, const apr_repack *repack, uint8_t *to, apr_error *err)
{
    for (int i = 0; i < APR_CANONICAL_SECTIONS; i++) {
        const apr_load load = {.fill = fill_repacked,
                               .repack = repack,
                               .piece = (apr_canonical_section)i,
                               .n_rows = repack->piece_rows[i],
                               .row_bytes = (size_t)repack->row_bytes[i],
                               .rows_at_once = 1,
                               .to = to + repack->offsets[i]};
        APR_TRY(add(loads, &load, err));
    }
    return APR_OK;
}

void apr_loads_close(apr_loads *loads)
{
    free(loads->list);
    *loads = (apr_loads){0};
}

/* --- loading --- */

/* All chunks of all loads, in the order of the loads. */
typedef struct work {
    const apr_load_target *target;
    apr_loads *loads;
    size_t slot_bytes, n_decoded; /* of the largest chunk: bytes, and float32 numbers */
    int n_threads;
    uint8_t *slots;         /* pinned: two for each thread */
    float *decoded;         /* [n_threads, n_decoded] */
    int64_t n_chunks, next; /* next: the next chunk to take */
    apr_status status;      /* of the first chunk that failed */
    apr_error err;
} work;

static int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

/* Chunks are whole rows, or whole groups of rows_at_once rows, of at most CHUNK_BYTES, but at least one group. */
static void make_chunks(work *w)
{
    for (size_t i = 0; i < w->loads->n; i++) {
        apr_load *const l = &w->loads->list[i];
        const size_t limit = CHUNK_BYTES < w->target->scratch_bytes || !l->tiled ? CHUNK_BYTES : (size_t)w->target->scratch_bytes;
        const int64_t units = (int64_t)(limit / l->row_bytes) / l->rows_at_once;
        l->chunk_rows = at_most((units > 0 ? units : 1) * l->rows_at_once, l->n_rows);
        l->first_chunk = w->n_chunks;
        w->n_chunks += (l->n_rows + l->chunk_rows - 1) / l->chunk_rows;
        const size_t chunk_bytes = (size_t)l->chunk_rows * l->row_bytes, n_decoded = (size_t)(l->chunk_rows * l->n_decoded);
        if (chunk_bytes > w->slot_bytes) w->slot_bytes = chunk_bytes;
        if (n_decoded > w->n_decoded) w->n_decoded = n_decoded;
    }
    w->slot_bytes = (w->slot_bytes + 255) / 256 * 256;
    w->n_threads = (int)at_most(apr_threads(apr_all_threads(), w->n_chunks, (double)w->loads->n_bytes), at_most(MOST_THREADS, w->n_chunks));
}

static void note_failure(work *w, apr_status status, const apr_error *err)
{
    if (w->status != APR_OK) return;
    w->status = status;
    w->err = *err;
}

/* Sends a filled chunk. The copy is complete once `mark` has passed. One thread at a time. */
static apr_status send_chunk(const work *w, const apr_load *l, int64_t row, int64_t n, const uint8_t *slot, int mark, apr_error *err)
{
    const apr_load_target *const t = w->target;
    uint8_t *const to = l->to + (size_t)row * l->device_row_bytes;

    APR_TRY(t->cuda->send(t->device, l->tiled ? t->scratch : to, slot, (size_t)n * l->row_bytes, err));
    if (l->tiled) APR_TRY(t->cuda->to_tiles(t->device, l->tensor->dtype, to, t->scratch, n, apr_tensor_columns(l->tensor), err));
    return t->cuda->mark(t->device, mark, err);
}

/* Drops rows in the file's order from the page cache as soon as they are copied; other loads only as a whole (drop_all). */
static void drop_rows(const apr_load *l, int64_t row, int64_t n)
{
    const bool is_in_order = l->fill == fill_bytes || l->fill == fill_rows_in_order;
    const uint8_t *const bytes = l->fill == fill_bytes ? l->bytes : is_in_order ? l->tensor->data : NULL;
    if (is_in_order) apr_map_drop(bytes + (size_t)row * l->row_bytes, (size_t)n * l->row_bytes);
}

/* Drops a tensor's bytes, or those of its sources: parts of a chain, codes and scales of a packed one. */
static void drop_tensor(const apr_tensor *t)
{
    if (t == NULL) return;
    if (t->data != NULL) apr_map_drop(t->data, (size_t)t->n_bytes);
    for (size_t i = 0; t->made != NULL && i < t->made->n_parts; i++) drop_tensor(t->made->parts[i]);
    if (t->packing == NULL) return;
    const apr_tensor *const parts[] = {t->packing->codes, t->packing->scales, t->packing->global_scales, t->packing->zeros, t->packing->groups};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) drop_tensor(parts[i]);
}

static void drop_all(const apr_loads *loads)
{
    for (size_t i = 0; i < loads->n; i++) {
        const apr_load *const l = &loads->list[i];
        if (l->fill == fill_bytes) apr_map_drop(l->bytes, (size_t)l->n_rows);
        drop_tensor(l->tensor);
        for (int64_t k = 0; l->repack != NULL && k < l->repack->n_parts; k++) drop_tensor(&l->repack->parts[k]);
    }
}

/* Takes chunks until there are none left, or a chunk of any thread failed. */
static void load_chunks(work *w, int thread)
{
    float *const decoded = w->decoded != NULL ? w->decoded + (size_t)thread * w->n_decoded : NULL;
    size_t at = 0; /* the load of the last chunk: chunks are taken in order */

    for (int64_t n_taken = 0;; n_taken++) {
        const int mark = 2 * thread + (int)(n_taken % 2);
        uint8_t *const slot = w->slots + (size_t)mark * w->slot_bytes;
        int64_t chunk;
        bool has_chunk;
#pragma omp critical(apr_load)
        {
            chunk = w->next++;
            has_chunk = w->status == APR_OK && chunk < w->n_chunks;
        }
        if (!has_chunk) return;
        while (at + 1 < w->loads->n && w->loads->list[at + 1].first_chunk <= chunk) at++;
        apr_load *const l = &w->loads->list[at];
        const int64_t row = (chunk - l->first_chunk) * l->chunk_rows, n = at_most(l->n_rows - row, l->chunk_rows);
        apr_error err = {0};

        if (n_taken > 1) w->target->cuda->wait_mark(w->target->device, mark); /* a failure shows when the next chunk is sent */
        l->fill(l, row, n, slot, decoded);
        if (w->target->drops_pages) drop_rows(l, row, n);
#pragma omp critical(apr_load)
        {
            const apr_status status = w->status == APR_OK ? send_chunk(w, l, row, n, slot, mark, &err) : APR_OK;
            if (status != APR_OK) note_failure(w, status, &err);
        }
    }
}

apr_status apr_loads_run(apr_loads *loads, const apr_load_target *target, apr_error *err)
{
    const apr_cuda_api *const cuda = target->cuda;
    work w = {.target = target, .loads = loads};

    make_chunks(&w);
    if (w.n_chunks == 0) return APR_OK;
    APR_TRY(cuda->pin(target->device, 2 * (uint64_t)w.n_threads * w.slot_bytes, "weights on their way", (void **)&w.slots, err));
    if (w.n_decoded > 0 && (w.decoded = malloc((size_t)w.n_threads * w.n_decoded * sizeof *w.decoded)) == NULL)
        w.status = apr_no_memory(&w.err, "the buffer for decoded weights");
#pragma omp parallel for schedule(static, 1) num_threads(w.n_threads)
    for (int thread = 0; thread < w.n_threads; thread++) load_chunks(&w, thread);
    if (w.status == APR_OK) w.status = cuda->check(target->device, "the upload", &w.err);
    else cuda->check(target->device, "the upload", NULL); /* pending copies still read the slots */
    cuda->release(target->device, w.slots);
    if (target->drops_pages) drop_all(loads);
    free(w.decoded);
    if (w.status != APR_OK && err != NULL) *err = w.err;
    return w.status;
}
