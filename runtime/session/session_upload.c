/* session_upload.c - weights on their way to a device: pieces of them, filled by several threads into pinned memory and sent as they come.
 *
 * A thread that copies out of the page cache does 4 to 10 GB/s and a link takes 25 to 60: so eight of them. Each has two slots, and fills
 * one while the other is under way. Pieces do not wait for one another; only the device's functions are for one thread at a time. */
#include "runtime/session/session_upload.h"
#include "formats/base/map.h"
#include "formats/base/threads.h"
#include "formats/model/made.h"
#include "formats/model/packing.h"
#include "kernels/gather.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 22, MOST_THREADS = APR_CUDA_MARKS / 2 };

/* --- what a piece is filled with --- */

static void fill_bytes(apr_load *l, int64_t first, int64_t n, uint8_t *staging, float *decoded)
{
    (void)decoded;
    apr_map_touch(l->bytes + first, (size_t)n);
    memcpy(staging, l->bytes + first, (size_t)n);
}

static void fill_rows_in_order(apr_load *l, int64_t first, int64_t n, uint8_t *staging, float *decoded)
{
    const uint8_t *const rows = l->tensor->data + (size_t)first * l->row_bytes;
    (void)decoded;
    apr_map_touch(rows, (size_t)n * l->row_bytes);
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

/* What FP16 cannot hold becomes the largest it can, and is counted. */
static void fill_halves(apr_load *l, int64_t first, int64_t n, uint8_t *staging, float *decoded)
{
    const int64_t n_numbers = n * apr_tensor_columns(l->tensor);

    apr_decode_rows(l->tensor, first, n, decoded);
    const apr_misfits found = apr_find_misfits(decoded, n_numbers, APR_F16);
#pragma omp critical(apr_load_misfits)
    apr_misfits_merge(&l->misfits, &found);
    if (found.n_beyond > 0) apr_saturate(decoded, decoded, n_numbers, APR_F16);
    apr_host_codecs()[APR_F16].encode(decoded, staging, n_numbers);
}

static void fill_regular(apr_load *l, int64_t first, int64_t n, uint8_t *staging, float *decoded)
{
    (void)decoded;
    apr_relay_rows(l->relay, l->piece, first, n, staging);
}

/* --- what is to be loaded --- */

static apr_status add(apr_loads *loads, const apr_load *load, apr_error *err)
{
    if (load->n_rows == 0) return APR_OK;
    if (loads->n == loads->room) {
        const size_t room = loads->room > 0 ? 2 * loads->room : 256;
        apr_load *const more = realloc(loads->list, room * sizeof *more);
        if (more == NULL) return apr_no_memory(err, "the list of weights to upload");
        loads->list = more;
        loads->room = room;
    }
    loads->list[loads->n] = *load;
    if (!load->in_items) loads->list[loads->n].lying_bytes = load->row_bytes;
    loads->n++;
    loads->n_bytes += (uint64_t)load->n_rows * load->row_bytes;
    return APR_OK;
}

apr_status apr_load_bytes(apr_loads *loads, const uint8_t *bytes, uint64_t n_bytes, uint8_t *to, apr_error *err)
{
    const apr_load load = {.fill = fill_bytes, .bytes = bytes, .n_rows = (int64_t)n_bytes, .row_bytes = 1, .rows_at_once = 1, .to = to};
    return add(loads, &load, err);
}

apr_status apr_load_rows(apr_loads *loads, const apr_tensor *tensor, apr_load_form form, uint8_t *to, apr_error *err)
{
    const int64_t n_rows = apr_tensor_rows(tensor), n_columns = apr_tensor_columns(tensor);
    const bool in_order = tensor->made == NULL && tensor->pending.kind == APR_STEP_NONE, is_halves = form == APR_LOAD_HALVES;
    apr_load load = {.fill = is_halves              ? fill_halves
                             : tensor->made != NULL ? fill_gathered
                             : in_order             ? fill_rows_in_order
                                                    : fill_rows,
                     .tensor = tensor,
                     .n_rows = n_rows,
                     .row_bytes = is_halves ? (size_t)n_columns * 2 : (size_t)(tensor->n_bytes / (uint64_t)n_rows),
                     .rows_at_once = form == APR_LOAD_ITEMS ? APR_FLOW_UNIT : 1,
                     .n_decoded = is_halves ? n_columns : 0,
                     .in_items = form == APR_LOAD_ITEMS,
                     .lying_bytes = (size_t)apr_items_row_bytes(tensor->dtype, true, n_columns),
                     .to = to};
    return add(loads, &load, err);
}

apr_status apr_load_regular(apr_loads *loads, const apr_relay *relay, uint8_t *to, apr_error *err)
{
    for (int i = 0; i < APR_REGULAR_PIECES; i++) {
        const apr_load load = {.fill = fill_regular,
                               .relay = relay,
                               .piece = (apr_regular_piece)i,
                               .n_rows = relay->piece_rows[i],
                               .row_bytes = (size_t)relay->row_bytes[i],
                               .rows_at_once = 1,
                               .to = to + relay->offsets[i]};
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

/* All pieces of all loads, in the order of the loads. */
typedef struct work {
    const apr_load_target *target;
    apr_loads *loads;
    size_t slot_bytes, n_decoded; /* of the largest piece; its float32 numbers */
    int n_threads;
    uint8_t *slots;         /* pinned: two of each thread */
    float *decoded;         /* [n_threads, n_decoded] */
    int64_t n_pieces, next; /* to be taken */
    apr_status status;      /* of the first that failed */
    apr_error err;
} work;

static int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

/* Pieces of whole rows, or whole units of them, of PIECE_BYTES at most: or of one such unit. */
static void divide(work *w)
{
    for (size_t i = 0; i < w->loads->n; i++) {
        apr_load *const l = &w->loads->list[i];
        const size_t room = PIECE_BYTES < w->target->scratch_bytes || !l->in_items ? PIECE_BYTES : (size_t)w->target->scratch_bytes;
        const int64_t units = (int64_t)(room / l->row_bytes) / l->rows_at_once;
        l->piece_rows = at_most((units > 0 ? units : 1) * l->rows_at_once, l->n_rows);
        l->first_piece = w->n_pieces;
        w->n_pieces += (l->n_rows + l->piece_rows - 1) / l->piece_rows;
        const size_t piece_bytes = (size_t)l->piece_rows * l->row_bytes, n_decoded = (size_t)(l->piece_rows * l->n_decoded);
        if (piece_bytes > w->slot_bytes) w->slot_bytes = piece_bytes;
        if (n_decoded > w->n_decoded) w->n_decoded = n_decoded;
    }
    w->slot_bytes = (w->slot_bytes + 255) / 256 * 256;
    w->n_threads = (int)at_most(apr_threads(apr_all_threads(), w->n_pieces, (double)w->loads->n_bytes), at_most(MOST_THREADS, w->n_pieces));
}

static void note_failure(work *w, apr_status status, const apr_error *err)
{
    if (w->status != APR_OK) return;
    w->status = status;
    w->err = *err;
}

/* Sends a filled piece, which has happened when `mark` has passed. One thread at a time. */
static apr_status send_piece(const work *w, const apr_load *l, int64_t row, int64_t n, const uint8_t *slot, int mark, apr_error *err)
{
    const apr_load_target *const t = w->target;
    uint8_t *const to = l->to + (size_t)row * l->lying_bytes;

    APR_TRY(t->cuda->send(t->device, l->in_items ? t->scratch : to, slot, (size_t)n * l->row_bytes, err));
    if (l->in_items) APR_TRY(t->cuda->to_items(t->device, l->tensor->dtype, to, t->scratch, n, apr_tensor_columns(l->tensor), err));
    return t->cuda->mark(t->device, mark, err);
}

/* Of rows in the file's order, as soon as they are copied; of others only a whole load's are known (drop_all). */
static void drop_rows(const apr_load *l, int64_t row, int64_t n)
{
    const bool is_in_order = l->fill == fill_bytes || l->fill == fill_rows_in_order;
    const uint8_t *const bytes = l->fill == fill_bytes ? l->bytes : is_in_order ? l->tensor->data : NULL;
    if (is_in_order) apr_map_drop(bytes + (size_t)row * l->row_bytes, (size_t)n * l->row_bytes);
}

/* A tensor's bytes, or those of what it is made of: parts of a chain, codes and scales of a packed one. */
static void drop_tensor(const apr_tensor *t)
{
    if (t == NULL) return;
    if (t->data != NULL) apr_map_drop(t->data, (size_t)t->n_bytes);
    for (size_t i = 0; t->made != NULL && i < t->made->n_parts; i++) drop_tensor(t->made->parts[i]);
    if (t->packing == NULL) return;
    const apr_tensor *const parts[] = {t->packing->codes, t->packing->scales, t->packing->commons, t->packing->zeros, t->packing->groups};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) drop_tensor(parts[i]);
}

static void drop_all(const apr_loads *loads)
{
    for (size_t i = 0; i < loads->n; i++) {
        const apr_load *const l = &loads->list[i];
        if (l->fill == fill_bytes) apr_map_drop(l->bytes, (size_t)l->n_rows);
        drop_tensor(l->tensor);
        for (int64_t k = 0; l->relay != NULL && k < l->relay->n_parts; k++) drop_tensor(&l->relay->parts[k]);
    }
}

/* Takes pieces until there are none, or one of any thread failed. */
static void load_pieces(work *w, int thread)
{
    float *const decoded = w->decoded != NULL ? w->decoded + (size_t)thread * w->n_decoded : NULL;
    size_t at = 0; /* the load of the last piece: pieces are taken in their order */

    for (int64_t n_taken = 0;; n_taken++) {
        const int mark = 2 * thread + (int)(n_taken % 2);
        uint8_t *const slot = w->slots + (size_t)mark * w->slot_bytes;
        int64_t piece;
        bool go_on;
#pragma omp critical(apr_load)
        {
            piece = w->next++;
            go_on = w->status == APR_OK && piece < w->n_pieces;
        }
        if (!go_on) return;
        while (at + 1 < w->loads->n && w->loads->list[at + 1].first_piece <= piece) at++;
        apr_load *const l = &w->loads->list[at];
        const int64_t row = (piece - l->first_piece) * l->piece_rows, n = at_most(l->n_rows - row, l->piece_rows);
        apr_error err = {0};

        if (n_taken > 1) w->target->cuda->wait_mark(w->target->device, mark); /* what failed shows when the next one is sent */
        l->fill(l, row, n, slot, decoded);
        if (w->target->drops_pages) drop_rows(l, row, n);
#pragma omp critical(apr_load)
        {
            const apr_status status = w->status == APR_OK ? send_piece(w, l, row, n, slot, mark, &err) : APR_OK;
            if (status != APR_OK) note_failure(w, status, &err);
        }
    }
}

apr_status apr_loads_run(apr_loads *loads, const apr_load_target *target, apr_error *err)
{
    const apr_cuda_api *const cuda = target->cuda;
    work w = {.target = target, .loads = loads};

    divide(&w);
    if (w.n_pieces == 0) return APR_OK;
    APR_TRY(cuda->pin(target->device, 2 * (uint64_t)w.n_threads * w.slot_bytes, "weights on their way", (void **)&w.slots, err));
    if (w.n_decoded > 0 && (w.decoded = malloc((size_t)w.n_threads * w.n_decoded * sizeof *w.decoded)) == NULL)
        w.status = apr_no_memory(&w.err, "decoded weights on their way to the device");
#pragma omp parallel for schedule(static, 1) num_threads(w.n_threads)
    for (int thread = 0; thread < w.n_threads; thread++) load_pieces(&w, thread);
    if (w.status == APR_OK) w.status = cuda->check(target->device, "the upload", &w.err);
    else cuda->check(target->device, "the upload", NULL); /* what is under way still reads the slots */
    cuda->release(target->device, w.slots);
    if (target->drops_pages) drop_all(loads);
    free(w.decoded);
    if (w.status != APR_OK && err != NULL) *err = w.err;
    return w.status;
}
