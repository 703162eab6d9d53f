/* session_packed.c - packed matrices on a device: brought into their regular form on the way there, some rows at a time, and there is no
 * other copy of them. */
#include "kernels/relay.h"
#include "runtime/session/session_parts.h"
#include "runtime/session/session_upload.h"

#include <stdlib.h>

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

apr_status apr_session_load_packed(apr_session *s, apr_session_place *at, size_t slot, uint8_t *to, const struct apr_packing **packing,
                                   apr_loads *loads, apr_error *err)
{
    if (at->relays == NULL) at->relays = calloc(s->program.n_weights + 1, sizeof *at->relays);
    if (at->relays == NULL) return apr_no_memory(err, "the table of packed matrices");
    apr_relay *const relay = &at->relays[slot];
    if (!relay_of(s, slot, relay)) return apr_fail(err, APR_E_UNSUPPORTED, "%s: a packed matrix has no regular form", s->model->path);
    apr_relay_at(relay, to);
    *packing = &relay->packing;
    return apr_load_regular(loads, relay, to, err);
}
