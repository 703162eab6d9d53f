/* session_packed.c - packed matrices on a device: repacked during the upload, some rows at a time, without another copy of them. */
#include "kernels/repack.h"
#include "runtime/session/session_internal.h"
#include "runtime/session/session_upload.h"

#include <stdlib.h>

/* Describes the repacked layout of a slot. False: it is not packed, or the device cannot read that layout. */
static bool repack_of(const apr_session *s, size_t slot, apr_repack *repack)
{
    const apr_tensor *const parts = apr_session_slot_tensors(s, slot);
    const apr_cuda_api *const cuda = s->options.cuda;

    if (parts == NULL || parts->packing == NULL || cuda == NULL) return false;
    return apr_repack_init(repack, parts, apr_session_n_slot_tensors(s, slot)) && cuda->takes_packing(&repack->packing, parts->dtype);
}

uint64_t apr_session_repacked_bytes(const apr_session *s, size_t slot)
{
    apr_repack repack;
    return repack_of(s, slot, &repack) ? repack.offsets[APR_CANONICAL_SECTIONS] : 0;
}

void apr_session_note_weights(const apr_session *s, const apr_dtype *dtypes, apr_weight_note *notes)
{
    for (size_t i = 0; i < s->program.n_weights; i++) {
        const apr_tensor *const parts = apr_session_slot_tensors(s, i);
        notes[i] = (apr_weight_note){0};
        if (parts == NULL) continue;
        if (parts->packing != NULL) notes[i].scheme = parts->packing->scheme;
        notes[i].decoded = dtypes != NULL && dtypes[i] == APR_F16 && (parts->dtype != APR_F16 || parts->packing != NULL);
    }
}

apr_status apr_session_load_packed(apr_session *s, apr_session_place *at, size_t slot, uint8_t *to, const struct apr_packing **packing,
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
