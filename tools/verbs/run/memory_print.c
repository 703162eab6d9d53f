/* memory_print.c - prints the memory of sessions: lines, sums, and what moves between places. */
#include "tools/verbs/run/memory_print.h"

#include "tools/report/text.h"
#include "tools/verbs/plan/plan_lines.h"

static void put_footprint(apr_report *r, const apr_footprint *f)
{
    const bool is_known = f->measured != UINT64_MAX;

    apr_report_open(r, "memory", '{');
    apr_report_member(r, "on", apr_as_text(f->on == APR_ON_DEVICE ? "device" : "host"));
    apr_report_member(r, "weights_bytes", apr_as_uint(f->weights));
    apr_report_member(r, "planned_bytes", apr_as_uint(f->planned));
    apr_report_member(r, "measured_bytes", is_known ? apr_as_uint(f->measured) : apr_as_null());
    apr_report_member(r, "difference_bytes", is_known ? apr_as_int((int64_t)(f->measured - f->planned)) : apr_as_null());
    apr_report_member(r, "weights_are_mapped", apr_as_bool(f->mapped));
    apr_report_member(r, "as_planned", apr_as_bool(apr_footprint_as_planned(f)));
    apr_report_shut(r, '}');
}

void apr_footprint_report(apr_report *r, const apr_footprint *f)
{
    const bool on_host = f->on == APR_ON_HOST;
    char planned[APR_SMALL_TEXT], measured[APR_SMALL_TEXT], weights[APR_SMALL_TEXT], off[APR_SMALL_TEXT];

    put_footprint(r, f);
    apr_report_print(r, "  memory on the %s: planned %s (%s %s of weights%s), ", on_host ? "host" : "GPU",
                     apr_size_text(planned, f->planned), f->mapped ? "without" : "with", apr_size_text(weights, f->weights),
                     f->mapped ? " mapped from files"
                     : on_host ? " in anonymous memory"
                               : "");
    if (f->measured == UINT64_MAX) apr_report_print(r, "not measured: the %s does not say\n", on_host ? "C library" : "driver");
    else
        apr_report_print(r, "measured %s, %s %s%s\n", apr_size_text(measured, f->measured), apr_size_text(off, apr_footprint_difference(f)),
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

void apr_link_report(apr_report *r, const apr_session *session)
{
    const apr_partition_cost cost = apr_session_cost(session);
    char text[256];

    apr_report_print(r, "  %s\n", apr_cost_text(&cost, text, sizeof text));
    apr_report_open(r, "link", '{');
    apr_report_cost(r, &cost);
    apr_report_shut(r, '}');
}
