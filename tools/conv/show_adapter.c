/* show_adapter.c - aprconv show for an adapter: rank, alpha, targets, base model, and the tensors that it changes. */
#include "formats/tensor/adapter.h"
#include "tools/conv/show.h"
#include "tools/report/table.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/convert/lora_option.h"

#include <string.h>

static uint64_t tensor_bytes(const apr_adapter *adapter)
{
    uint64_t n = 0;
    for (size_t i = 0; i < adapter->files.n_tensors; i++) n += adapter->files.tensors[i].n_bytes;
    return n;
}

static apr_status print_changes(const apr_adapter *adapter, const apr_pattern *filter, apr_error *err)
{
    static const apr_column columns[] = {{"changes", false}, {"shape", false}, {"rank", true}, {"scale", true}, {"type", false}};
    apr_table table;
    char dims[128];

    printf("\n%sTensors%s\n", apr_bold(stdout), apr_plain(stdout));
    apr_table_start(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < adapter->n_changes; i++) {
        const apr_adapter_change *const c = &adapter->changes[i];
        apr_tensor shape = {.rank = 2};
        if (!apr_is_shown(filter, c->name)) continue;
        if (c->whole != NULL) shape = *c->whole;
        else shape.dims[0] = c->b->dims[0], shape.dims[1] = c->a->dims[1];
        apr_table_cell(&table, "%s", c->name);
        apr_table_cell(&table, "%s", apr_dims_text(&shape, dims, sizeof dims));
        if (c->whole != NULL) apr_table_cell(&table, "replaced"), apr_table_cell(&table, "%s", "");
        else apr_table_cell(&table, "%lld", (long long)c->a->dims[0]), apr_table_cell(&table, "%.6g", c->scale);
        apr_table_cell(&table, "%s", apr_dtypes[c->whole != NULL ? c->whole->dtype : c->a->dtype].name);
    }
    return apr_table_print(&table, stdout, 2, err);
}

static apr_status print_text(const apr_adapter *adapter, const apr_show_options *options, const apr_pattern *filter, apr_error *err)
{
    static const apr_column columns[] = {{NULL, false}, {NULL, false}};
    apr_arena arena = {0};
    const char *const text = apr_adapter_text(adapter, 1.0, &arena);
    char path[512], size[APR_SMALL_TEXT];
    apr_table table;

    if (text == NULL) return apr_no_memory(err, "an adapter");
    printf("%s%s%s\n", apr_bold(stdout), apr_clean_text(path, sizeof path, adapter->path, strlen(adapter->path)), apr_plain(stdout));
    apr_table_start(&table, columns, 2);
    apr_table_cell(&table, "container"), apr_table_cell(&table, "LoRA adapter (merge it with --lora)");
    apr_table_cell(&table, "trained on"), apr_table_cell(&table, "%s", adapter->base != NULL ? adapter->base : "not stated");
    apr_table_cell(&table, "changes"), apr_table_cell(&table, "%s", text);
    if (adapter->unknown_fields != NULL) apr_table_cell(&table, "unknown fields"), apr_table_cell(&table, "%s", adapter->unknown_fields);
    if (adapter->beside != NULL) apr_table_cell(&table, "other files"), apr_table_cell(&table, "%s", adapter->beside);
    apr_table_cell(&table, "tensors"), apr_table_cell(&table, "%s", apr_size_text(size, tensor_bytes(adapter)));
    apr_status status = apr_table_print(&table, stdout, 2, err);
    if (status == APR_OK && options->tensors) status = print_changes(adapter, filter, err);
    apr_arena_close(&arena);
    return status;
}

static void put_json(const apr_adapter *adapter, const apr_show_options *options, const apr_pattern *filter, apr_json_text *json)
{
    static const char kind[] = "LoRA adapter";

    apr_json_string(json, "container", kind, sizeof kind - 1);
    apr_adapter_json(json, adapter, 1.0);
    apr_json_uint(json, "tensor_bytes", tensor_bytes(adapter));
    if (!options->tensors) return;
    apr_json_open(json, "changes", '[');
    for (size_t i = 0; i < adapter->n_changes; i++) {
        const apr_adapter_change *const c = &adapter->changes[i];
        if (!apr_is_shown(filter, c->name)) continue;
        apr_json_open(json, NULL, '{');
        apr_json_string(json, "name", c->name, strlen(c->name));
        apr_json_bool(json, "replaced", c->whole != NULL);
        if (c->a != NULL) apr_json_int(json, "rank", c->a->dims[0]), apr_json_real(json, "scale", c->scale);
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
}

apr_status apr_show_adapter(const char *path, const apr_show_options *options, const apr_pattern *filter, apr_answer *answer,
                            apr_error *err)
{
    apr_adapter adapter;

    APR_TRY(apr_adapter_open(&adapter, path, err));
    apr_status status = APR_OK;
    bool found;
    for (size_t i = 0; i < adapter.n_changes && filter != NULL && status == APR_OK; i++)
        status = apr_pattern_find(filter, adapter.changes[i].name, &found, err);
    if (status != APR_OK) {
        apr_adapter_close(&adapter);
        return status;
    }
    if (answer->json) put_json(&adapter, options, filter, &answer->body);
    else status = print_text(&adapter, options, filter, err);
    apr_adapter_close(&adapter);
    return status;
}
