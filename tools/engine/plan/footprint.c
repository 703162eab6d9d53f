/* footprint.c - adds up planned and measured memory of sessions. */
#include "tools/engine/plan/footprint.h"

#include "formats/base/bytes.h"
#include "tools/cli/text.h"
#include "tools/verbs/plan/plan_lines.h"

static uint64_t line_bytes(const apr_plan *plan, apr_line_id id)
{
    const apr_plan_line *const line = apr_plan_line_of(plan, id);
    return line != NULL ? line->bytes : 0;
}

static uint64_t judged_bytes(const apr_plan *plan) { return plan->is_shared ? plan->taken_bytes : plan->device_bytes; }

uint64_t apr_planned_together(const apr_plan *a, const apr_plan *b)
{
    if (a->judged == APR_ON_HOST) return apr_saturating_add(a->host_bytes, b->host_bytes);
    const uint64_t shared = line_bytes(b, APR_LINE_CONTEXT) + line_bytes(b, APR_LINE_HEADROOM);
    return apr_saturating_add(judged_bytes(a), judged_bytes(b) - shared);
}

static uint64_t weight_bytes(const apr_plan *plan)
{
    uint64_t n = line_bytes(plan, APR_LINE_FILLED);
    for (int role = 0; role < APR_ROLE_COUNT; role++) n += line_bytes(plan, (apr_line_id)(APR_LINE_WEIGHTS_EMBEDDING + role));
    return n;
}

/* Sessions on a GPU share one CUDA context, which the first session there made. */
static uint64_t contexts_bytes(const apr_session *session)
{
    uint64_t n = 0;
    for (int i = 0; i < apr_session_n_places(session); i++) n += line_bytes(apr_session_place_plan(session, i), APR_LINE_CONTEXT);
    return n;
}

apr_footprint apr_footprint_of(const apr_session *const *sessions, size_t n)
{
    apr_footprint f = {.on = apr_session_plan(sessions[0])->judged};

    for (size_t i = 0; i < n; i++) {
        const apr_session_memory m = apr_session_check_memory(sessions[i]);
        if (m.on != f.on) continue;
        for (int k = 0; k < apr_session_n_places(sessions[i]); k++)
            if (apr_session_place_plan(sessions[i], k)->judged == f.on) f.weights += weight_bytes(apr_session_place_plan(sessions[i], k));
        f.planned += m.planned - (f.on == APR_ON_DEVICE && i > 0 ? contexts_bytes(sessions[i]) : 0);
        f.allowed += m.allowed;
        /* a GPU is measured as a whole, from before the first session; a heap per session */
        if (i == 0 || m.measured == UINT64_MAX) f.measured = m.measured;
        else if (f.on == APR_ON_HOST) f.measured = apr_saturating_add(f.measured, m.measured);
    }
    f.mapped = f.on == APR_ON_HOST;
    return f;
}

void apr_footprint_add_weights(apr_footprint *f, uint64_t heap_bytes)
{
    if (f->on != APR_ON_HOST) return;
    f->mapped = false;
    f->planned = apr_saturating_add(f->planned, f->weights);
    f->measured = heap_bytes == UINT64_MAX ? UINT64_MAX : apr_saturating_add(f->measured, heap_bytes);
}

static uint64_t difference(const apr_footprint *f)
{
    return f->measured > f->planned ? f->measured - f->planned : f->planned - f->measured;
}

bool apr_footprint_as_planned(const apr_footprint *f) { return f->measured != UINT64_MAX && difference(f) <= f->allowed; }

void apr_footprint_json(const apr_footprint *f, apr_json_text *json)
{
    const char *const on = f->on == APR_ON_DEVICE ? "device" : "host";

    apr_json_open(json, "memory", '{');
    apr_json_string(json, "on", on, f->on == APR_ON_DEVICE ? 6 : 4);
    apr_json_uint(json, "weights_bytes", f->weights);
    apr_json_uint(json, "planned_bytes", f->planned);
    if (f->measured != UINT64_MAX) {
        apr_json_uint(json, "measured_bytes", f->measured);
        apr_json_int(json, "difference_bytes", (int64_t)(f->measured - f->planned));
    } else {
        apr_json_null(json, "measured_bytes");
        apr_json_null(json, "difference_bytes");
    }
    apr_json_bool(json, "weights_are_mapped", f->mapped);
    apr_json_bool(json, "as_planned", apr_footprint_as_planned(f));
    apr_json_close(json, '}');
}

void apr_footprint_print(const apr_footprint *f, FILE *out)
{
    const bool on_host = f->on == APR_ON_HOST;
    char planned[APR_SMALL_TEXT], measured[APR_SMALL_TEXT], weights[APR_SMALL_TEXT], off[APR_SMALL_TEXT];

    fprintf(out, "  memory on the %s: planned %s (%s %s of weights%s), ", on_host ? "host" : "GPU", apr_size_text(planned, f->planned),
            f->mapped ? "without" : "with", apr_size_text(weights, f->weights),
            f->mapped ? " mapped from files"
            : on_host ? " in anonymous memory"
                      : "");
    if (f->measured == UINT64_MAX) fprintf(out, "not measured: the %s does not say\n", on_host ? "C library" : "driver");
    else
        fprintf(out, "measured %s, %s %s%s\n", apr_size_text(measured, f->measured), apr_size_text(off, difference(f)),
                f->measured > f->planned ? "more" : "less", apr_footprint_as_planned(f) ? "" : ": NOT AS PLANNED");
}

char *apr_place_text(const apr_session *session, int place, char text[32])
{
    const int ordinal = apr_session_place_ordinal(session, place);
    if (ordinal < 0) snprintf(text, 32, "host");
    else snprintf(text, 32, "GPU %d", ordinal);
    return text;
}

void apr_session_lines_print(const apr_session *session, FILE *out)
{
    const int n = apr_session_n_places(session);
    char size[APR_SMALL_TEXT], name[32];

    for (int k = 0; k < n; k++) {
        const apr_plan *const plan = apr_session_place_plan(session, k);
        if (n > 1) fprintf(out, "  %s\n", apr_place_text(session, k, name));
        for (size_t i = 0; i < plan->n_lines; i++)
            fprintf(out, "  %-32s %12s\n", plan->lines[i].label, apr_size_text(size, plan->lines[i].bytes));
    }
}

void apr_link_print(const apr_session *session, FILE *out)
{
    const apr_partition_cost cost = apr_session_cost(session);
    char text[256];

    fprintf(out, "  %s\n", apr_cost_text(&cost, text, sizeof text));
}

void apr_link_json(const apr_session *session, apr_json_text *json)
{
    const apr_partition_cost cost = apr_session_cost(session);

    apr_json_open(json, "link", '{');
    apr_cost_json(json, &cost);
    apr_json_close(json, '}');
}
