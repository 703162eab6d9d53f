/* memory_print.c - prints the memory of sessions: lines, sums, and what moves between places. */
#include "tools/verbs/run/memory_print.h"

#include "tools/report/text.h"
#include "tools/verbs/plan/plan_lines.h"

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
        fprintf(out, "measured %s, %s %s%s\n", apr_size_text(measured, f->measured), apr_size_text(off, apr_footprint_difference(f)),
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
