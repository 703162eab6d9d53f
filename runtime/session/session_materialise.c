/* session_materialise.c - on the host: matrices that the file does not store as they are multiplied are composed once, into memory. */
#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "kernels/gather.h"
#include "runtime/session/session_internal.h"

#include <stdlib.h>
#include <string.h>

/* Composes all rows, 64 chunks in parallel; a type whose rows have no bytes of their own in one chunk. */
static void compose(const apr_session_place *at, apr_tensor *tensor, uint8_t *to)
{
    const int64_t n_rows = apr_tensor_rows(tensor), n_columns = apr_tensor_columns(tensor);
    const int64_t each = apr_dtypes[tensor->dtype].flat ? n_rows : (n_rows + 63) / 64;
    const int n_threads = apr_threads(at->work.n_threads, (n_rows + each - 1) / each, (double)tensor->n_bytes);

#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
    for (int64_t row = 0; row < n_rows; row += each) {
        const int64_t n = n_rows - row < each ? n_rows - row : each;
        apr_gather_bytes(tensor, row * n_columns, n * n_columns, to + (size_t)apr_row_bytes(tensor->dtype, n_columns) * (size_t)row);
    }
    tensor->data = to;
    tensor->made = NULL;
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

apr_status apr_session_materialise(apr_session *s, apr_session_place *at, apr_error *err)
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
            if (parts[j].made == NULL) continue;
            compose(at, &parts[j], to);
            to += apr_align_up(parts[j].n_bytes, 64);
            at->bound[i] = at->multiplied[i] = parts;
        }
    }
    return APR_OK;
}
