/* session_materialise.c - on the host: matrices that do not lie in the file as they are multiplied are put in order once. */
#include "formats/base/bytes.h"
#include "kernels/gather.h"
#include "runtime/session/session_parts.h"

#include <stdlib.h>

/* All rows, a few at a time side by side; where a row has no bytes of its own, in one piece. */
static void put_in_order(const apr_session *s, apr_tensor *tensor, uint8_t *to)
{
    const int64_t n_rows = apr_tensor_rows(tensor), n_columns = apr_tensor_columns(tensor);
    const int64_t each = apr_dtypes[tensor->dtype].flat ? n_rows : (n_rows + 63) / 64;

#pragma omp parallel for schedule(dynamic, 1) num_threads(s->work.n_threads)
    for (int64_t row = 0; row < n_rows; row += each) {
        const int64_t n = n_rows - row < each ? n_rows - row : each;
        apr_gather_bytes(tensor, row * n_columns, n * n_columns, to + (size_t)apr_row_bytes(tensor->dtype, n_columns) * (size_t)row);
    }
    tensor->data = to;
    tensor->made = NULL;
}

apr_status apr_session_materialise(apr_session *s, apr_error *err)
{
    uint8_t *to = s->materialised;

    if (to == NULL) return APR_OK;
    s->twins = calloc(s->program.n_weights + 1, sizeof *s->twins);
    if (s->twins == NULL) return apr_no_memory(err, "the table of tensors");
    for (size_t i = 0; i < s->program.n_weights; i++) {
        if (s->program.weights[i].uses == APR_USE_FLOAT || s->tensors[i] == NULL) continue;
        apr_tensor *const parts = s->experts[i] != NULL ? s->experts[i] : &s->twins[i];
        if (s->experts[i] == NULL) *parts = *s->tensors[i];
        for (int64_t j = 0; j < apr_session_n_parts(s, i); j++) {
            if (parts[j].made == NULL) continue;
            put_in_order(s, &parts[j], to);
            to += apr_align_up(parts[j].n_bytes, 64);
            s->bound[i] = s->multiplied[i] = parts;
        }
    }
    return APR_OK;
}
