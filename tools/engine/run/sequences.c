/* sequences.c - how many sequences a session gets, and the options that depend on it. */
#include "tools/engine/run/sequences.h"

#include "formats/base/machine.h"
#include "runtime/session/scheduler.h"

/* Rows of a step whose logits a device computes together. */
enum { LOGITS_AT_ONCE = 64 };

bool apr_session_is_split(const apr_session_options *o) { return o->n_devices > 1 || apr_offload_is_some(&o->offload); }

apr_status apr_set_sequences(apr_session_options *o, const apr_model *model, int64_t asked, int64_t kv_cells, apr_error *err)
{
    const bool has_device = o->cuda != NULL, split = has_device && apr_session_is_split(o);
    apr_session_options tried = *o;

    if (tried.budget_bytes == 0) tried.budget_bytes = apr_machine_bytes();
    for (int64_t n = asked > 0 ? asked : 16;; n /= 2) {
        apr_plan plan;
        /* a device computes a single sequence as one of many: answers do not depend on their number */
        tried.n_sequences = o->n_sequences = split || (n == 1 && !has_device) ? 1 : n + 1;
        tried.kv_cells = o->kv_cells = kv_cells;
        const int64_t piece = has_device ? APR_DEVICE_PROMPT_CHUNK : APR_PAGE_CELLS;
        tried.n_batch = o->n_batch = n >= piece ? n + 1 : piece;
        if (has_device) tried.n_logits = o->n_logits = n < LOGITS_AT_ONCE ? n : LOGITS_AT_ONCE;
        if (asked > 0 || n == 1 || split) return APR_OK;
        APR_TRY(apr_session_forecast(&plan, model, &tried, err));
        const bool fits = plan.fits;
        apr_plan_close(&plan);
        if (fits) return APR_OK;
    }
}
