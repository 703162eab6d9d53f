/* session_packed.c - packed matrices on a device: brought into their regular form on the way there, a few rows at a time, and there is no
 * other copy of them. */
#include "formats/base/threads.h"
#include "kernels/relay.h"
#include "runtime/session/session_parts.h"

#include <stdlib.h>

enum { STAGING_BYTES = 1 << 24, ROWS_AT_ONCE = 64 };

/* The device reads it so. */
static bool relay_of(const apr_session *s, size_t slot, apr_relay *relay)
{
    const apr_tensor *const parts = apr_session_parts(s, slot);
    const apr_cuda_api *const cuda = s->options.cuda;

    if (parts == NULL || parts->packing == NULL || cuda == NULL) return false;
    return apr_relay_begin(relay, parts, apr_session_n_parts(s, slot)) && cuda->takes_packing(&relay->packing, parts->dtype);
}

uint64_t apr_session_relaid_bytes(const apr_session *s, size_t slot)
{
    apr_relay relay;
    return relay_of(s, slot, &relay) ? relay.offsets[APR_REGULAR_PIECES] : 0;
}

void apr_session_note_weights(const apr_session *s, const apr_dtype *dtypes, apr_weight_note *notes)
{
    for (size_t i = 0; i < s->program.n_weights; i++) {
        const apr_tensor *const parts = apr_session_parts(s, i);
        notes[i] = (apr_weight_note){0};
        if (parts == NULL) continue;
        if (parts->packing != NULL) notes[i].scheme = parts->packing->scheme;
        notes[i].decoded = dtypes != NULL && dtypes[i] == APR_F16 && (parts->dtype != APR_F16 || parts->packing != NULL);
    }
}

/* Rows [row, row + n) of a piece, on all cores: words of a file that lie across the rows are turned. */
static void make_rows(const apr_relay *relay, apr_regular_piece piece, int64_t row, int64_t n, uint8_t *staging)
{
    const int n_threads =
        apr_threads(apr_all_threads(), (n + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, (double)n * (double)relay->row_bytes[piece]);
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
    for (int64_t i = 0; i < n; i += ROWS_AT_ONCE)
        apr_relay_rows(relay, piece, row + i, n - i < ROWS_AT_ONCE ? n - i : ROWS_AT_ONCE, staging + (uint64_t)i * relay->row_bytes[piece]);
}

static apr_status upload_piece(const apr_session *s, const apr_session_place *at, const apr_relay *relay, apr_regular_piece piece,
                               uint8_t *to, apr_error *err)
{
    const int64_t n_rows = relay->piece_rows[piece];
    const uint64_t row_bytes = relay->row_bytes[piece];
    if (n_rows == 0) return APR_OK;
    const int64_t most = (int64_t)(STAGING_BYTES / row_bytes), block = most < 1 ? 1 : most < n_rows ? most : n_rows;
    uint8_t *const staging = malloc((size_t)block * (size_t)row_bytes);
    apr_status status = staging != NULL ? APR_OK : apr_no_memory(err, "the upload of a tensor");

    for (int64_t row = 0; row < n_rows && status == APR_OK; row += block) {
        const int64_t n = n_rows - row < block ? n_rows - row : block;
        make_rows(relay, piece, row, n, staging);
        status = s->options.cuda->upload(at->device, to + (uint64_t)row * row_bytes, staging, (uint64_t)n * row_bytes, err);
    }
    free(staging);
    return status;
}

apr_status apr_session_upload_packed(apr_session *s, apr_session_place *at, size_t slot, uint8_t *to, const struct apr_packing **packing,
                                     apr_error *err)
{
    if (at->relays == NULL) at->relays = calloc(s->program.n_weights + 1, sizeof *at->relays);
    if (at->relays == NULL) return apr_no_memory(err, "the table of packed matrices");
    apr_relay *const relay = &at->relays[slot];
    if (!relay_of(s, slot, relay)) return apr_fail(err, APR_E_UNSUPPORTED, "%s: a packed matrix has no regular form", s->model->path);
    apr_relay_at(relay, to);
    *packing = &relay->packing;
    for (int i = 0; i < APR_REGULAR_PIECES; i++) APR_TRY(upload_piece(s, at, relay, (apr_regular_piece)i, to + relay->offsets[i], err));
    return APR_OK;
}
