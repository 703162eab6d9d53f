/* plan_lines.c - prints plans. */
#include "tools/verbs/plan/plan_lines.h"

#include "formats/base/bytes.h"
#include "tools/engine/plan/parts.h"
#include "tools/report/table.h"
#include "tools/report/text.h"

#include <string.h>

static const char *place_name(apr_place on) { return on == APR_ON_DEVICE ? "device" : "host"; }

apr_status apr_plan_table(const apr_plan *plan, apr_error *err)
{
    static const apr_column columns[] = {{"line", false}, {"size", true}, {"on", false}, {"why", false}};
    apr_table table;
    char size[APR_SMALL_TEXT];

    apr_table_start(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < plan->n_lines; i++) {
        const apr_plan_line *const line = &plan->lines[i];
        apr_table_cell(&table, "%s", line->label);
        apr_table_cell(&table, "%s", apr_size_text(size, line->bytes));
        apr_table_cell(&table, "%s", place_name(line->on));
        apr_table_cell(&table, "%s", line->reason);
    }
    apr_table_cell(&table, "total");
    apr_table_cell(&table, "%s", apr_size_text(size, plan->taken_bytes));
    apr_table_cell(&table, "%s", plan->is_shared ? "shared" : place_name(plan->judged));
    return apr_table_print(&table, stdout, 2, err);
}

/* "attention 1.53 GiB, feed-forward 10.62 GiB": the lines of a part. For a single one its label, or its reason where the part's name says what
 * the label would. */
static void lines_text(const apr_plan *plan, apr_plan_part part, char *text, size_t n_bytes)
{
    static const bool with_reason[APR_PLAN_PARTS] = {
        [APR_PART_KV] = true, [APR_PART_RECURRENT] = true, [APR_PART_ACTIVATIONS] = true, [APR_PART_FREE] = true};
    const apr_plan_line *only = NULL;
    char size[APR_SMALL_TEXT];
    size_t n = 0, n_lines = 0;

    text[0] = '\0';
    for (size_t i = 0; i < plan->n_lines && n < n_bytes; i++) {
        const apr_plan_line *const line = &plan->lines[i];
        if (apr_plan_part_of(line) != part) continue;
        only = n_lines++ == 0 ? line : NULL;
        n += (size_t)snprintf(text + n, n_bytes - n, "%s%s %s", n > 0 ? ", " : "", line->label, apr_size_text(size, line->bytes));
    }
    if (only != NULL) snprintf(text, n_bytes, "%s", with_reason[part] ? only->reason : only->label);
}

/* A row for the part of the i-th line, if the line is the first of its part. */
static void add_part(apr_table *table, const apr_plan *plan, size_t i)
{
    const apr_plan_part part = apr_plan_part_of(&plan->lines[i]);
    char size[APR_SMALL_TEXT], lines[1024];
    uint64_t bytes = 0;

    for (size_t j = 0; j < plan->n_lines; j++) {
        if (apr_plan_part_of(&plan->lines[j]) != part) continue;
        if (j < i) return;
        bytes = apr_saturating_add(bytes, plan->lines[j].bytes);
    }
    lines_text(plan, part, lines, sizeof lines);
    apr_table_cell(table, "%s", apr_plan_part_names[part]);
    apr_table_cell(table, "%s", apr_size_text(size, bytes));
    apr_table_cell(table, "%s", lines);
}

apr_status apr_plan_summary(const apr_plan *plan, apr_error *err)
{
    static const apr_column columns[] = {{NULL, false}, {NULL, true}, {NULL, false}};
    apr_table table;
    char size[APR_SMALL_TEXT];

    apr_table_start(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < plan->n_lines; i++) add_part(&table, plan, i);
    apr_table_cell(&table, "total");
    apr_table_cell(&table, "%s", apr_size_text(size, plan->taken_bytes));
    apr_table_cell(&table, "%s",
                   plan->is_shared                 ? "of the shared memory"
                   : plan->judged == APR_ON_DEVICE ? "on the device"
                                                   : "on the host");
    return apr_table_print(&table, stdout, 2, err);
}

void apr_plan_verdict(const apr_plan *plan)
{
    char needs[APR_SMALL_TEXT], size[APR_SMALL_TEXT], budget[APR_SMALL_TEXT], count[APR_SMALL_TEXT], own[48] = "";

    if (plan->budget_bytes == 0) return;
    apr_size_text(budget, plan->budget_bytes);
    apr_size_text(needs, plan->taken_bytes);
    if (plan->own_ctx > 0) snprintf(own, sizeof own, ", the model's own: %s", apr_count_text(count, plan->own_ctx));
    if (plan->fits)
        printf("\nfits in %s (%s used); largest context that fits: %s%s\n", budget, needs,
               plan->max_ctx >= APR_ANY_CONTEXT ? "any" : apr_count_text(count, plan->max_ctx), own);
    else
        printf("\ndoes not fit: needs %s of %s (%s over, at '%s')\n", needs, budget, apr_size_text(size, plan->short_bytes),
               plan->breaking >= 0 ? plan->lines[plan->breaking].label : "?");
}

bool apr_plan_is_beyond_model(const apr_plan *plan) { return plan->own_ctx > 0 && plan->n_ctx > plan->own_ctx; }

void apr_plan_warn_of_context(const apr_plan *plan)
{
    char asked[APR_SMALL_TEXT], own[APR_SMALL_TEXT];

    if (!apr_plan_is_beyond_model(plan)) return;
    fprintf(stderr, "warning: context %s: the model was made for %s positions; answers beyond them are unreliable (use --ctx %lld)\n",
            apr_count_text(asked, plan->n_ctx), apr_count_text(own, plan->own_ctx), (long long)plan->own_ctx);
}

static void common_json(apr_json_text *json, const apr_plan *plan, bool fits)
{
    apr_json_bool(json, "fits", fits);
    apr_json_int(json, "ctx", plan->n_ctx);
    apr_json_int(json, "batch", plan->n_batch);
    if (apr_plan_is_beyond_model(plan)) apr_json_bool(json, "ctx_beyond_model", true);
    apr_json_int(json, "sequences", plan->n_sequences);
    apr_json_string(json, "kv", apr_dtypes[plan->kv_dtype].name, strlen(apr_dtypes[plan->kv_dtype].name));
}

static void memory_json(apr_json_text *json, const apr_plan *plan)
{
    apr_json_uint(json, "budget_bytes", plan->budget_bytes);
    apr_json_uint(json, "device_bytes", plan->device_bytes);
    apr_json_uint(json, "host_bytes", plan->host_bytes);
    apr_json_uint(json, "short_bytes", plan->short_bytes);
    apr_json_int(json, "max_ctx", plan->max_ctx);
    if (plan->own_ctx > 0) apr_json_int(json, "model_ctx", plan->own_ctx);
    if (plan->is_shared) apr_json_bool(json, "shared_memory", true);
    if (plan->breaking >= 0) apr_json_string(json, "breaking", plan->lines[plan->breaking].key, strlen(plan->lines[plan->breaking].key));
    apr_json_open(json, "lines", '[');
    for (size_t i = 0; i < plan->n_lines; i++) {
        const apr_plan_line *const line = &plan->lines[i];
        const char *const on = place_name(line->on);
        apr_json_open(json, NULL, '{');
        apr_json_string(json, "id", line->key, strlen(line->key));
        apr_json_uint(json, "bytes", line->bytes);
        apr_json_string(json, "on", on, strlen(on));
        apr_json_string(json, "reason", line->reason, strlen(line->reason));
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
}

void apr_plans_json(apr_json_text *json, const apr_plans *plans)
{
    const int n = plans->partition.n_places;

    common_json(json, plans->plans, apr_plans_fit(plans));
    if (n == 1) {
        memory_json(json, plans->plans);
        return;
    }
    apr_json_open(json, "places", '[');
    for (int i = 0; i < n; i++) {
        const char *const on = place_name(plans->plans[i].judged);
        apr_json_open(json, NULL, '{');
        apr_json_string(json, "on", on, strlen(on));
        apr_json_bool(json, "fits", plans->plans[i].fits);
        memory_json(json, &plans->plans[i]);
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
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

void apr_cost_json(apr_json_text *json, const apr_partition_cost *cost)
{
    apr_json_uint(json, "to_devices_bytes_per_token", cost->to_devices);
    apr_json_uint(json, "to_host_bytes_per_token", cost->to_host);
    apr_json_uint(json, "between_devices_bytes_per_token", cost->between);
    apr_json_uint(json, "host_reads_bytes_per_token", cost->host_reads);
}
