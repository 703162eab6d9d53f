/* plan_lines.c - what several tools print of plans: a context beyond the model's own, and what a token costs. */
#include "tools/verbs/plan/plan_lines.h"

#include "formats/base/bytes.h"
#include "tools/report/text.h"

bool apr_plan_is_beyond_model(const apr_plan *plan) { return plan->own_ctx > 0 && plan->n_ctx > plan->own_ctx; }

void apr_plan_warn_of_context(const apr_plan *plan)
{
    char asked[APR_SMALL_TEXT], own[APR_SMALL_TEXT];

    if (!apr_plan_is_beyond_model(plan)) return;
    fprintf(stderr, "warning: context %s: the model was made for %s positions; answers beyond them are unreliable (use --ctx %lld)\n",
            apr_count_text(asked, plan->n_ctx), apr_count_text(own, plan->own_ctx), (long long)plan->own_ctx);
}

char *apr_cost_text(const apr_partition_cost *cost, char *text, size_t n_bytes)
{
    char first[APR_SMALL_TEXT], second[APR_SMALL_TEXT], third[APR_SMALL_TEXT];
    const uint64_t link = apr_saturating_add(cost->to_devices, cost->to_host);
    int n = snprintf(text, n_bytes, "each token moves ");

    if (link > 0)
        n += snprintf(text + n, n_bytes - (size_t)n, "%s to the GPU and %s to the host", apr_size_text(first, cost->to_devices),
                      apr_size_text(second, cost->to_host));
    if (cost->between > 0 || link == 0)
        n += snprintf(text + n, n_bytes - (size_t)n, "%s%s from GPU to GPU", link > 0 ? ", " : "", apr_size_text(third, cost->between));
    if (cost->host_reads > 0)
        snprintf(text + n, n_bytes - (size_t)n, "; the host reads %s of weights", apr_size_text(first, cost->host_reads));
    return text;
}

void apr_report_cost(apr_report *r, const apr_partition_cost *cost)
{
    apr_report_member(r, "to_devices_bytes_per_token", apr_as_uint(cost->to_devices));
    apr_report_member(r, "to_host_bytes_per_token", apr_as_uint(cost->to_host));
    apr_report_member(r, "between_devices_bytes_per_token", apr_as_uint(cost->between));
    apr_report_member(r, "host_reads_bytes_per_token", apr_as_uint(cost->host_reads));
}
