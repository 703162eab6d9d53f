/* session_upload.c - the weights of a place. On the host composed matrices are stored as they are multiplied; a device gets its weights
 * uploaded, in the type and layout that it multiplies.
 *
 * An upload runs in chunks: several threads fill pinned memory, and each chunk is sent once it is full. One thread copies 4 to 10 GB/s
 * out of the page cache and a link takes 25 to 60, so eight threads are used. Each has two slots: it fills one while the other is sent.
 * Chunks are independent; only the calls to the device are serialized. */
#include "runtime/session/session_upload.h"
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/grow.h"
#include "formats/base/threads.h"
#include "formats/files/map.h"
#include "formats/tensor/composed.h"
#include "kernels/repack.h"
#include "kernels/rows.h"
#include "runtime/session/session_internal.h"

#include <stdio.h>
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
    const int64_t n_columns = apr_tensor_columns(l->tensor);
    (void)decoded;
    apr_read_bytes(l->tensor, first * n_columns, n * n_columns, staging);
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
    apr_load *const list = apr_grow(loads->list, &loads->capacity, loads->n + 1, sizeof *list);
    if (list == NULL) return apr_no_memory(err, "the list of weights to upload");
    loads->list = list;
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
    const bool in_order = apr_tensor_source(tensor) == APR_SOURCE_IN_ORDER, is_f16 = form == APR_LOAD_F16;
    apr_load load = {.fill = is_f16     ? fill_f16
                             : in_order ? fill_rows_in_order
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
    const apr_tensor *part;
    if (t == NULL) return;
    if (t->data != NULL) apr_map_drop(t->data, (size_t)t->n_bytes);
    for (size_t i = 0; (part = apr_tensor_source_at(t, i)) != NULL; i++) drop_tensor(part);
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

/* --- types and layouts on a device --- */

/* Describes the repacked layout of a slot. False: it is not packed, or the device cannot read that layout. */
static bool repack_of(const apr_session *s, size_t slot, apr_repack *repack)
{
    const apr_tensor *const parts = apr_session_slot_tensors(s, slot);
    const apr_cuda_api *const cuda = s->options.cuda;

    if (parts == NULL || !apr_tensor_is_packed(parts) || cuda == NULL) return false;
    return apr_repack_init(repack, parts, apr_session_n_slot_tensors(s, slot)) && cuda->takes_packing(&repack->packing, parts->dtype);
}

/* Bytes of a slot's packed matrices after the repack. 0: they are not packed, or the device cannot read the repacked layout. */
static uint64_t repacked_bytes(const apr_session *s, size_t slot)
{
    apr_repack repack;
    return repack_of(s, slot, &repack) ? repack.offsets[APR_CANONICAL_SECTIONS] : 0;
}

/* Can rows be reordered during the upload? Not if a row has no bytes of its own (flat types), or has its own scales. */
static bool can_reorder(const apr_tensor *tensor)
{
    const bool one_scale = tensor->scale == NULL || apr_tensor_elems(tensor->scale) == 1;
    return one_scale && !apr_dtypes[tensor->dtype].flat;
}

static bool same_scales(const apr_tensor *a, const apr_tensor *b)
{
    if (a->scale == NULL || b->scale == NULL) return a->scale == b->scale;
    return a->scale->dtype == b->scale->dtype && a->scale->n_bytes == b->scale->n_bytes && a->scale_rows == b->scale_rows &&
           a->scale_columns == b->scale_columns;
}

/* Can the tensors of a slot be stacked into one? */
static bool is_stackable(const apr_session *s, size_t slot)
{
    const apr_tensor *const parts = apr_session_slot_tensors(s, slot);
    for (int64_t j = 1; j < apr_session_n_slot_tensors(s, slot); j++)
        if (apr_dtypes[parts[j].dtype].flat || parts[j].dtype != parts->dtype || !same_scales(parts, &parts[j])) return false;
    return true;
}

static apr_dtype device_dtype(const apr_session *s, size_t slot)
{
    const apr_tensor *const parts = apr_session_slot_tensors(s, slot);
    if (repacked_bytes(s, slot) > 0) return APR_U8; /* codes of the repacked layout */
    for (int64_t j = 0; j < apr_session_n_slot_tensors(s, slot); j++)
        if (apr_tensor_is_packed(&parts[j])) return APR_F16;
    for (int64_t j = 0; j < apr_session_n_slot_tensors(s, slot); j++)
        if (apr_tensor_source(&parts[j]) == APR_SOURCE_REORDERED && !can_reorder(&parts[j])) return APR_F16;
    return is_stackable(s, slot) && s->options.cuda->takes(parts->dtype) ? parts->dtype : APR_F16;
}

/* Does the device get the bytes as they are in the file? */
static bool is_uploaded_as_stored(const apr_session *s, size_t slot)
{
    return !apr_tensor_is_packed(apr_session_slot_tensors(s, slot)) && device_dtype(s, slot) == apr_session_slot_tensors(s, slot)->dtype;
}

/* Is the slot read only by products of whole rows? Not by embedding look-ups, nor by products per head. */
static bool is_read_by_rows(const apr_session *s, size_t slot)
{
    for (size_t i = 0; i < s->program.n_ops; i++) {
        const apr_op *const op = &s->program.ops[i];
        for (int k = 0; k < APR_OP_MAX_WEIGHTS; k++)
            if (op->weight[k] == (int)slot && op->kind != APR_OP_EMBED && (op->kind != APR_OP_LINEAR || op->args.linear.heads.n > 0))
                return false;
    }
    return true;
}

static uint64_t tiled_row_bytes(const apr_tensor *t) { return (uint64_t)apr_tiled_row_bytes(t->dtype, true, apr_tensor_columns(t)); }

/* Does the slot's type have a tiled layout, and does the workspace hold 16 rows for tiling? Padded rows also need the plan's line for
 * them. */
static bool can_be_tiled(const apr_session *s, const apr_session_place *at, size_t slot)
{
    const apr_tensor *const t = apr_session_slot_tensors(s, slot);
    if (t == NULL || t->scale != NULL || !is_uploaded_as_stored(s, slot)) return false;
    if (tiled_row_bytes(t) != t->n_bytes / (uint64_t)apr_tensor_rows(t) && apr_session_line_bytes(at, APR_LINE_FILLED) == 0) return false;
    return apr_tile_columns(t->dtype) > 0 && t->n_bytes / (uint64_t)apr_tensor_rows(t) * APR_ROW_GROUP <= at->work.slice * sizeof(float);
}

/* Would these experts use the decode GEMV if all three matrices were tiled? */
static bool experts_would_use_gemv(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    apr_tensor tiled[3]; /* gate, up, down */
    for (int k = 0; k < 3; k++) {
        if (op->weight[k] < 0 || !can_be_tiled(s, at, (size_t)op->weight[k])) return false;
        tiled[k] = *apr_session_slot_tensors(s, (size_t)op->weight[k]);
        tiled[k].tiled = true;
    }
    return apr_session_experts_use_gemv(s, at, op, (const apr_tensor *const[]){&tiled[0], &tiled[1], &tiled[2]});
}

/* Is the slot a stack of experts whose readers all use the decode GEMV? */
static bool is_gemv_stack(const apr_session *s, const apr_session_place *at, size_t slot)
{
    bool any = false;
    for (size_t i = 0; i < s->program.n_ops; i++) {
        const apr_op *const op = &s->program.ops[i];
        for (int k = 0; k < APR_OP_MAX_WEIGHTS; k++) {
            if (op->weight[k] != (int)slot) continue;
            if (op->kind != APR_OP_EXPERTS || !experts_would_use_gemv(s, at, op)) return false;
            any = true;
        }
    }
    return any;
}

/* Are the slot's rows tiled on the device (kernels/cuda/decode_gemv_args.h)? Only where tokens are replayed. Stacks of experts are tiled
 * only if all three matrices of an operation can be. */
static bool is_tiled(const apr_session *s, const apr_session_place *at, size_t slot)
{
    const apr_tensor *const t = apr_session_slot_tensors(s, slot);
    if (!apr_session_wants_tiles(s) || !can_be_tiled(s, at, slot)) return false;
    if (t->rank != 2 || s->experts[slot] != NULL) return is_gemv_stack(s, at, slot);
    return (is_read_by_rows(s, slot) &&
            s->options.cuda->has_decode_gemv(at->device, t->dtype, apr_tensor_rows(t), apr_tensor_columns(t))) ||
           apr_plan_pads_matrix(&s->program, slot, t->dtype, s->options.n_sequences);
}

/* Bytes of all of a slot's tensors, and of their scales. */
static uint64_t stack_bytes(const apr_session *s, size_t slot)
{
    return apr_align_up(apr_session_slot_tensors(s, slot)->n_bytes * (uint64_t)apr_session_n_slot_tensors(s, slot), 64);
}

static uint64_t scales_bytes(const apr_session *s, size_t slot)
{
    const apr_tensor *const scale = apr_session_slot_tensors(s, slot)->scale;
    return scale != NULL ? apr_align_up(scale->n_bytes * (uint64_t)apr_session_n_slot_tensors(s, slot), 64) : 0;
}

void apr_session_device_weights(const apr_session *s, uint64_t *bytes, apr_dtype *dtypes)
{
    for (size_t i = 0; i < s->program.n_weights; i++) {
        bytes[i] = 0;
        dtypes[i] = APR_F16;
        if (s->tensors[i] == NULL) continue;
        const bool on_host = apr_slot_is_read_on_host(&s->program.weights[i]);
        dtypes[i] = on_host ? s->tensors[i]->dtype : device_dtype(s, i);
        if (on_host) bytes[i] = apr_plan_tensor_bytes(s->tensors[i]);
        else if (dtypes[i] == APR_U8) bytes[i] = repacked_bytes(s, i);
        else if (is_uploaded_as_stored(s, i)) bytes[i] = stack_bytes(s, i) + scales_bytes(s, i);
        else bytes[i] = apr_plan_slot_bytes(&s->program.weights[i], APR_F16);
    }
}

/* --- the weights of a device --- */

/* The device then computes with changed weights, so a warning is always given. */
static void warn_out_of_range(const apr_session *s, const apr_tensor *tensor, const apr_out_of_range *m)
{
    char text[512];
    if (m->n_out_of_range == 0 || s->options.on_warning == NULL) return;
    snprintf(text, sizeof text, "tensor '%s': %lld values exceed FP16, the type it has on the device (the largest is %g); they became %g",
             tensor->name, (long long)m->n_out_of_range, (double)m->worst, (double)apr_encode_bound(APR_F16, m->worst));
    s->options.on_warning(s->options.user, text);
}

/* Queues the upload of one tensor to `to`, and of its scales to `scales`. */
static apr_status load_tensor(apr_loads *loads, const apr_tensor *tensor, bool as_stored, uint8_t *to, uint8_t *scales, apr_error *err)
{
    const bool row_by_row = !as_stored || apr_tensor_source(tensor) != APR_SOURCE_IN_ORDER;
    APR_TRY(row_by_row ? apr_load_rows(loads, tensor, as_stored ? APR_LOAD_STORED : APR_LOAD_F16, to, err)
                       : apr_load_bytes(loads, tensor->data, tensor->n_bytes, to, err));
    return as_stored && tensor->scale != NULL ? apr_load_bytes(loads, tensor->scale->data, tensor->scale->n_bytes, scales, err) : APR_OK;
}

/* Queues the upload of packed matrices to `to`. *packing describes the result and belongs to the place. */
static apr_status load_packed(apr_session *s, apr_session_place *at, size_t slot, uint8_t *to, const struct apr_packing **packing,
                              apr_loads *loads, apr_error *err)
{
    if (at->repacks == NULL) at->repacks = calloc(s->program.n_weights + 1, sizeof *at->repacks);
    if (at->repacks == NULL) return apr_no_memory(err, "the table of packed matrices");
    apr_repack *const repack = &at->repacks[slot];
    if (!repack_of(s, slot, repack))
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: a packed matrix cannot be repacked for the GPU", s->model->path);
    apr_repack_bind(repack, to);
    *packing = &repack->packing;
    return apr_load_repacked(loads, repack, to, err);
}

/* Describes a slot's weight on the device: the model's tensor with another address and layout. Several tensors become one stack. */
static void describe_device_copy(const apr_session *s, size_t slot, bool as_stored, uint8_t *to, apr_tensor *device_copy, apr_tensor *scale)
{
    const int64_t n = apr_session_n_slot_tensors(s, slot);

    *device_copy = *apr_session_slot_tensors(s, slot);
    apr_tensor_set_data(device_copy, to);
    if (!as_stored) {
        device_copy->dtype = APR_F16;
        device_copy->n_bytes = (uint64_t)apr_tensor_elems(device_copy) * 2;
        device_copy->scale = NULL;
    }
    if (device_copy->scale != NULL) {
        *scale = *device_copy->scale;
        scale->data = to + stack_bytes(s, slot);
        device_copy->scale = scale;
    }
    if (s->experts[slot] == NULL) return;
    if (device_copy->scale != NULL) { /* one row of scales a matrix, also if each has a single scale */
        const int64_t n_scales = apr_tensor_elems(scale);
        *scale = (apr_tensor){
            .name = scale->name, .dtype = scale->dtype, .rank = 2, .dims = {n, n_scales}, .data = scale->data, .n_bytes = scale->n_bytes};
        scale->n_bytes *= (uint64_t)n;
        if (n_scales == 1) device_copy->scale_rows = device_copy->dims[0], device_copy->scale_columns = device_copy->dims[1];
    }
    device_copy->name = s->program.weights[slot].name;
    memmove(device_copy->dims + 1, device_copy->dims, (size_t)device_copy->rank * sizeof *device_copy->dims);
    device_copy->dims[0] = n;
    device_copy->rank++;
    device_copy->n_bytes *= (uint64_t)n;
}

/* Describes a weight on the device at `to`, and queues its upload. */
static apr_status load_weight(apr_session *s, apr_session_place *at, size_t slot, uint8_t *to, apr_loads *loads, apr_error *err)
{
    const apr_tensor *const parts = apr_session_slot_tensors(s, slot);
    apr_tensor *const device_copy = &at->relocated[2 * slot];
    const int64_t n = apr_session_n_slot_tensors(s, slot);
    const bool as_stored = is_uploaded_as_stored(s, slot), is_repacked = device_dtype(s, slot) == APR_U8;

    describe_device_copy(s, slot, as_stored || is_repacked, to, device_copy, device_copy + 1);
    at->bound[slot] = at->multiplied[slot] = device_copy;
    if (is_repacked) return load_packed(s, at, slot, to, &device_copy->packing, loads, err);
    device_copy->tiled = is_tiled(s, at, slot);
    if (device_copy->tiled) device_copy->n_bytes = tiled_row_bytes(parts) * (uint64_t)(apr_tensor_rows(parts) * n);
    const uint64_t each = device_copy->n_bytes / (uint64_t)n,
                   each_scales = device_copy->scale != NULL ? device_copy->scale->n_bytes / (uint64_t)n : 0;
    for (int64_t j = 0; j < n; j++) {
        uint8_t *const scales = to + stack_bytes(s, slot) + (uint64_t)j * each_scales, *const part = to + (uint64_t)j * each;
        if (device_copy->tiled) APR_TRY(apr_load_rows(loads, &parts[j], APR_LOAD_TILED, part, err));
        else APR_TRY(load_tensor(loads, &parts[j], as_stored, part, scales, err));
    }
    return APR_OK;
}

/* Products use the decoded FP16 copy; embedding rows are still looked up in the packed tensor. */
static apr_status make_copy(apr_session *s, apr_session_place *at, size_t slot, apr_error *err)
{
    apr_tensor *const packed = &at->relocated[2 * slot], *const copy = &at->relocated[2 * s->program.n_weights + slot];

    if (at->copies == NULL || at->plan.copy_offsets[slot] < 0) return APR_OK;
    *copy = *packed;
    copy->dtype = APR_F16;
    copy->scale = NULL;
    copy->n_bytes = (uint64_t)apr_tensor_elems(copy) * 2;
    apr_tensor_set_data(copy, at->copies + at->plan.copy_offsets[slot]);
    at->multiplied[slot] = copy;
    return s->options.cuda->decode_f16(at->device, packed, 0, apr_tensor_rows(packed), at->copies + at->plan.copy_offsets[slot], err);
}

/* FP8 products are used only for FP8 weights, and only with the caller's consent. */
static void choose_fp8(const apr_session *s, apr_session_place *at)
{
    apr_cuda_facts facts;
    bool has_fp8 = false;

    for (size_t i = 0; i < s->program.n_weights; i++) has_fp8 |= at->multiplied[i] != NULL && at->multiplied[i]->dtype == APR_F8_E4M3;
    if (!has_fp8 || s->options.may_use_fp8 == NULL) return;
    if (s->options.cuda->facts(at->ordinal, &facts, NULL) != APR_OK) return;
    at->fp8_products = s->options.may_use_fp8(s->options.user, &facts);
    s->options.cuda->use_fp8(at->device, at->fp8_products);
}

/* Runs the queued uploads, then decodes the FP16 copies from them. */
static apr_status load_all(apr_session *s, apr_session_place *at, apr_loads *loads, apr_error *err)
{
    const apr_load_target target = {s->options.cuda, at->device, at->work.data, at->work.slice * sizeof(float), at->shares_memory};
    const double begin = apr_seconds_now();

    APR_TRY(apr_loads_run(loads, &target, err));
    at->used.upload_s = apr_seconds_now() - begin;
    at->used.uploaded = loads->n_bytes;
    for (size_t i = 0; i < loads->n; i++)
        if (loads->list[i].tensor != NULL) warn_out_of_range(s, loads->list[i].tensor, &loads->list[i].out_of_range);
    for (size_t i = 0; i < s->program.n_weights; i++)
        if (at->bound[i] == &at->relocated[2 * i]) APR_TRY(make_copy(s, at, i, err));
    return APR_OK;
}

static apr_status upload_weights(apr_session *s, apr_session_place *at, apr_error *err)
{
    const size_t n = s->program.n_weights;
    const bool fills = apr_session_line_bytes(at, APR_LINE_FILLED) > 0;
    uint64_t *const bytes = malloc((n + 1) * sizeof *bytes), *const filled = malloc((n + 1) * sizeof *filled), used = 0;
    apr_dtype *const dtypes = malloc((n + 1) * sizeof *dtypes);
    apr_loads loads = {0};
    apr_status status = APR_OK;

    at->relocated = calloc(3 * n + 1, sizeof *at->relocated);
    if (bytes == NULL || filled == NULL || dtypes == NULL || at->relocated == NULL) {
        status = apr_no_memory(err, "the table of tensors");
    } else {
        apr_session_device_weights(s, bytes, dtypes);
        apr_plan_padded_weights(&s->program, dtypes, s->options.n_sequences, filled);
        status = apr_partition_keep_weights(&s->partition, &s->program, at->index, bytes, err);
    }
    for (size_t i = 0; i < n && status == APR_OK; i++) {
        if (bytes[i] == 0 || s->program.weights[i].uses == APR_USE_FLOAT) continue; /* these are float32 vectors */
        if (apr_slot_is_read_on_host(&s->program.weights[i])) continue;             /* these stay on the host */
        status = load_weight(s, at, i, at->weights + used, &loads, err);
        used += bytes[i] + (fills ? filled[i] : 0);
    }
    if (status == APR_OK) status = load_all(s, at, &loads, err);
    apr_loads_close(&loads);
    free(bytes);
    free(filled);
    free(dtypes);
    if (status == APR_OK) choose_fp8(s, at);
    return status;
}

/* --- other numbers --- */

static apr_status rewrite_part(apr_session *s, const apr_session_place *at, size_t slot, int64_t part, const apr_tensor *with,
                               apr_loads *loads, apr_error *err)
{
    const apr_tensor *const there = at->bound[slot];
    uint8_t *const to =
        (uint8_t *)(uintptr_t)there->data + (uint64_t)part * (there->n_bytes / (uint64_t)apr_session_n_slot_tensors(s, slot));

    if (there->scale != NULL || there->packing != NULL || at->multiplied[slot] != there)
        return apr_fail(err, APR_E_UNSUPPORTED, "tensor '%s' is stored with scales or decoded on the GPU, and cannot be replaced there",
                        with->name);
    if (there->tiled) return apr_load_rows(loads, with, APR_LOAD_TILED, to, err);
    return load_tensor(loads, with, is_uploaded_as_stored(s, slot), to, NULL, err);
}

/* A fused gate and up keep the largest row sums of their weights. */
static void forget_row_sums(const apr_session *s, apr_session_place *at, size_t slot)
{
    for (size_t i = 0; i < at->prompt.n_steps; i++)
        for (int k = 0; k < at->prompt.steps[i].n_linears; k++)
            if (s->program.ops[at->prompt.steps[i].linears[k]].weight[0] == (int)slot)
                memset(at->prompt.steps[i].row_sums, 0, sizeof at->prompt.steps[i].row_sums);
}

apr_status apr_session_rewrite(apr_session *s, const char *name, const apr_tensor *with, apr_error *err)
{
    apr_session_place *const at = &s->places[0];
    const apr_load_target target = {s->options.cuda, at->device, at->work.data, at->work.slice * sizeof(float), false};
    apr_loads loads = {0};
    apr_status status = APR_OK;

    if (s->n_places != 1 || at->device == NULL) return apr_fail(err, APR_E_UNSUPPORTED, "%s does not run on one GPU", s->model->path);
    for (size_t i = 0; i < s->program.n_weights && status == APR_OK; i++) {
        if (at->bound[i] != &at->relocated[2 * i]) continue;
        const apr_tensor *const parts = apr_session_slot_tensors(s, i);
        for (int64_t j = 0; j < apr_session_n_slot_tensors(s, i) && status == APR_OK; j++)
            if (strcmp(parts[j].name, name) == 0) {
                forget_row_sums(s, at, i);
                status = rewrite_part(s, at, i, j, with, &loads, err);
            }
    }
    if (status == APR_OK) status = apr_loads_run(&loads, &target, err);
    apr_loads_close(&loads);
    return status;
}

/* --- the weights of the host --- */

/* Composes all rows, 64 chunks in parallel; a type whose rows have no bytes of their own in one chunk. */
static void compose(const apr_session_place *at, apr_tensor *tensor, uint8_t *to)
{
    const int64_t n_rows = apr_tensor_rows(tensor), n_columns = apr_tensor_columns(tensor);
    const int64_t each = apr_dtypes[tensor->dtype].flat ? n_rows : (n_rows + 63) / 64;
    const int n_threads = apr_threads(at->work.n_threads, (n_rows + each - 1) / each, (double)tensor->n_bytes);

#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
    for (int64_t row = 0; row < n_rows; row += each) {
        const int64_t n = n_rows - row < each ? n_rows - row : each;
        apr_read_bytes(tensor, row * n_columns, n * n_columns, to + (size_t)apr_row_bytes(tensor->dtype, n_columns) * (size_t)row);
    }
    apr_tensor_set_data(tensor, to);
}

/* Copies the slot's descriptors, because another place may use the session's own. */
static apr_tensor *copy_descriptors(const apr_session *s, apr_session_place *at, size_t slot)
{
    const int64_t n = apr_session_n_slot_tensors(s, slot);
    apr_tensor *parts = &at->relocated[slot];

    if (s->experts[slot] != NULL) parts = at->own_experts[slot] = malloc((size_t)n * sizeof *parts);
    if (parts != NULL) memcpy(parts, apr_session_slot_tensors(s, slot), (size_t)n * sizeof *parts);
    return parts;
}

static apr_status materialise(apr_session *s, apr_session_place *at, apr_error *err)
{
    const size_t n = s->program.n_weights;
    uint8_t *to = at->materialised;

    if (to == NULL) return APR_OK;
    at->relocated = calloc(n + 1, sizeof *at->relocated);
    at->own_experts = calloc(n + 1, sizeof *at->own_experts);
    if (at->relocated == NULL || at->own_experts == NULL) return apr_no_memory(err, "the table of tensors");
    for (size_t i = 0; i < n; i++) {
        if (s->program.weights[i].uses == APR_USE_FLOAT || at->bound[i] == NULL) continue;
        apr_tensor *const parts = copy_descriptors(s, at, i);
        if (parts == NULL) return apr_no_memory(err, "the table of experts");
        for (int64_t j = 0; j < apr_session_n_slot_tensors(s, i); j++) {
            if (!apr_tensor_is_composed(&parts[j])) continue;
            compose(at, &parts[j], to);
            to += apr_align_up(parts[j].n_bytes, 64);
            at->bound[i] = at->multiplied[i] = parts;
        }
    }
    return APR_OK;
}

apr_status apr_session_load_weights(apr_session *s, apr_session_place *at, apr_error *err)
{
    return at->device != NULL ? upload_weights(s, at, err) : materialise(s, at, err);
}
