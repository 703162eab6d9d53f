/* allocate_print.c - prints the chosen types and the measurements behind them, as a table and as JSON. */
#include "tools/cli/table.h"
#include "tools/cli/text.h"
#include "tools/engine/quantize/allocate_types.h"

#include <stdio.h>
#include <string.h>

/* "q4_k 0.0123  q5_k 0.00401" */
static const char *offers_text(const apr_allocate_group *g, char *text, size_t capacity)
{
    size_t n = 0;

    *text = '\0';
    for (size_t k = 0; k < g->n_types && n < capacity; k++)
        n += (size_t)snprintf(text + n, capacity - n, "%s%s %.3g", k > 0 ? "  " : "", apr_dtypes[g->types[k]].name, g->offers[k].value);
    return text;
}

apr_status apr_allocation_print(const apr_allocation *a, apr_error *err)
{
    static const apr_column columns[] = {{"tensor", false}, {"to", false}, {"size", true}, {"divergence", true}, {"tried", false}};
    char size[APR_SMALL_TEXT], text[256];
    apr_table table;

    printf("  types by the KL divergence that each causes alone, on %lld tokens of %s in windows of %lld\n", (long long)a->n_tried,
           apr_clean_text(text, sizeof text, a->request.text->path, strlen(a->request.text->path)), (long long)a->request.window);
    apr_table_start(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < a->n_groups; i++) {
        const apr_allocate_group *const g = &a->groups[i];
        apr_table_cell(&table, "%s", g->name);
        apr_table_cell(&table, "%s", apr_dtypes[g->types[g->chosen]].name);
        apr_table_cell(&table, "%s", apr_size_text(size, (uint64_t)g->offers[g->chosen].cost));
        apr_table_cell(&table, "%.3g", g->offers[g->chosen].value);
        apr_table_cell(&table, "%s", offers_text(g, text, sizeof text));
    }
    APR_TRY(apr_table_print(&table, stdout, 2, err));
    printf("  together: %.4g by their sum; measured %.4g +- %.2g on %lld other tokens", a->sum, a->held.mean, a->held.error,
           (long long)a->n_held);
    if (a->n_known > 0)
        printf("; %zu of %zu figures came from %s", a->n_known, a->n_known + a->n_measured, apr_printable(a->request.state));
    printf("\n");
    return APR_OK;
}

static void group_json(apr_json_text *json, const apr_allocate_group *g)
{
    const char *const type = apr_dtypes[g->types[g->chosen]].name;

    apr_json_open(json, NULL, '{');
    apr_json_string(json, "name", g->name, strlen(g->name));
    apr_json_string(json, "to", type, strlen(type));
    apr_json_uint(json, "tensors", g->n_members);
    apr_json_open(json, "tried", '[');
    for (size_t k = 0; k < g->n_types; k++) {
        apr_json_open(json, NULL, '{');
        apr_json_string(json, "type", apr_dtypes[g->types[k]].name, strlen(apr_dtypes[g->types[k]].name));
        apr_json_uint(json, "bytes", (uint64_t)g->offers[k].cost);
        apr_json_real(json, "kl", g->offers[k].value);
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
    apr_json_close(json, '}');
}

void apr_allocation_json(apr_json_text *json, const apr_allocation *a)
{
    apr_json_open(json, "allocation", '{');
    apr_json_string(json, "text", a->request.text->path, strlen(a->request.text->path));
    apr_json_int(json, "tokens", a->n_tried);
    apr_json_int(json, "window", a->request.window);
    apr_json_real(json, "kl_sum", a->sum);
    apr_json_real(json, "kl_held", a->held.mean);
    apr_json_real(json, "kl_held_error", a->held.error);
    apr_json_int(json, "tokens_held", a->n_held);
    apr_json_uint(json, "bytes", a->n_bytes);
    apr_json_uint(json, "figures_measured", a->n_measured);
    apr_json_uint(json, "figures_kept", a->n_known);
    apr_json_open(json, "groups", '[');
    for (size_t i = 0; i < a->n_groups; i++) group_json(json, &a->groups[i]);
    apr_json_close(json, ']');
    apr_json_close(json, '}');
}
