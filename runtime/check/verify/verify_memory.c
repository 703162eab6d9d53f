/* verify_memory.c - compares the memory that a run used with its plan. */
#include "runtime/check/verify/verify_internal.h"

#include <math.h>
#include <string.h>

/* The planned bytes of some lines, over all places (devices and host), as the session's usage counts them. */
static uint64_t line_bytes(const apr_session *session, apr_line_id first, apr_line_id last)
{
    uint64_t sum = 0;
    for (int k = 0; k < apr_session_n_places(session); k++) {
        const apr_plan *const plan = apr_session_place_plan(session, k);
        for (size_t i = 0; i < plan->n_lines; i++)
            if (plan->lines[i].id >= first && plan->lines[i].id <= last && plan->lines[i].on == plan->judged) sum += plan->lines[i].bytes;
    }
    return sum;
}

/* True if the host part of an offloaded model uses the planned heap memory. */
static bool host_is_as_planned(const apr_session *session)
{
    const int last = apr_session_n_places(session) - 1;
    const apr_session_memory m = apr_session_place_memory(session, last);
    return last == 0 || m.on != APR_ON_HOST || m.as_planned || m.measured == UINT64_MAX;
}

void apr_verify_memory_parts(const apr_verify_report *report, apr_verify_memory_part parts[APR_VERIFY_MEMORY_PARTS])
{
    const apr_session *const session = report->input->other.session;
    const apr_session_usage *const used = &report->input->used;
    const apr_verify_memory_part all[APR_VERIFY_MEMORY_PARTS] = {
        {"weights", line_bytes(session, 0, APR_LINE_WEIGHTS_HEAD) + line_bytes(session, APR_LINE_FILLED, APR_LINE_FILLED), used->weights},
        {"norms, biases", line_bytes(session, APR_LINE_F32_VECTORS, APR_LINE_F32_VECTORS), used->vectors},
        {"keys and values", line_bytes(session, APR_LINE_KV, APR_LINE_RECURRENT), used->states},
        {"activations", line_bytes(session, APR_LINE_ACTIVATIONS, APR_LINE_ACTIVATIONS), used->activations},
        {"logits", line_bytes(session, APR_LINE_LOGITS, APR_LINE_LOGITS), used->logits},
        {"workspace", line_bytes(session, APR_LINE_WORKSPACE, APR_LINE_WORKSPACE), used->workspace},
    };
    memcpy(parts, all, sizeof all);
}

apr_verify_memory_part apr_verify_memory_total(const apr_verify_report *report)
{
    const apr_plan *const plan = apr_session_plan(report->input->other.session);
    const apr_session_memory memory = apr_session_check_memory(report->input->other.session);
    const uint64_t measured = memory.measured == UINT64_MAX ? 0 : memory.measured;
    if (plan->judged == APR_ON_DEVICE)
        return (apr_verify_memory_part){"all of the GPU's memory", memory.planned, report->input->used.driver};
    return (apr_verify_memory_part){"allocated", memory.planned, measured};
}

void apr_verify_memory(apr_verify_report *report)
{
    const apr_verify_memory_part total = apr_verify_memory_total(report);
    const bool on_device = apr_session_plan(report->input->other.session)->judged == APR_ON_DEVICE;
    /* A driver reports the whole GPU, including other processes and sessions that were closed meanwhile. So only memory beyond the plan
     * counts on a device. Heap memory is exact. */
    const double beyond = (double)total.measured - (double)total.predicted, off = on_device ? beyond : fabs(beyond);
    const double allowed = on_device ? fmax(0.01 * (double)total.predicted, APR_DEVICE_SLACK_BYTES) : APR_HOST_SLACK_BYTES;

    if (total.measured == 0) apr_verify_add_note(report, APR_VERIFY_MEMORY); /* the driver or the C library reports nothing */
    else apr_verify_add_verdict(report, APR_VERIFY_MEMORY, off <= allowed && host_is_as_planned(report->input->other.session));
}
