/* show_adapter.c - aprconv show for an adapter: rank, alpha, targets, base model, and the tensors that it changes. */
#include "formats/tensor/adapter.h"
#include "tools/report/report.h"
#include "tools/report/text.h"
#include "tools/verbs/convert/lora_option.h"
#include "tools/verbs/show/show.h"

#include <string.h>

static uint64_t tensor_bytes(const apr_adapter *adapter)
{
    uint64_t n = 0;
    for (size_t i = 0; i < adapter->files.n_tensors; i++) n += adapter->files.tensors[i].n_bytes;
    return n;
}

/* Tensors that the adapter changes. */
static void report_changes(apr_report *r, const apr_adapter *adapter, const apr_pattern *filter)
{
    static const apr_column columns[] = {
        {"changes", .key = "name"}, {"shape"}, {"rank", true, .key = "rank"}, {"scale", true, .key = "scale"}, {"type"}};
    char dims[128];

    apr_report_table(r, "Tensors", "changes", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < adapter->n_changes; i++) {
        const apr_adapter_change *const c = &adapter->changes[i];
        const apr_json_value none = apr_as_text(NULL), rank = c->a != NULL ? apr_as_int(c->a->dims[0]) : none;
        apr_tensor shape = {.rank = 2};
        if (!apr_is_shown(filter, c->name)) continue;
        if (c->whole != NULL) shape = *c->whole;
        else shape.dims[0] = c->b->dims[0], shape.dims[1] = c->a->dims[1];
        apr_report_row(r);
        apr_report_cell(r, apr_as_text(c->name), "%s", c->name);
        apr_report_member(r, "replaced", apr_as_bool(c->whole != NULL));
        apr_report_cell(r, none, "%s", apr_dims_text(&shape, dims, sizeof dims));
        if (c->whole != NULL) apr_report_cell(r, rank, "replaced");
        else apr_report_cell(r, rank, "%lld", (long long)c->a->dims[0]);
        if (c->whole != NULL) apr_report_cell(r, c->a != NULL ? apr_as_real(c->scale) : none, "%s", "");
        else apr_report_cell(r, apr_as_real(c->scale), "%.6g", c->scale);
        apr_report_cell(r, none, "%s", apr_dtypes[c->whole != NULL ? c->whole->dtype : c->a->dtype].name);
    }
    apr_report_close(r);
}

static apr_status report_adapter(const apr_adapter *adapter, const apr_show_options *options, const apr_pattern *filter, apr_answer *answer,
                                 apr_error *err)
{
    apr_arena arena = {0};
    const char *const text = apr_adapter_text(adapter, 1.0, &arena);
    const uint64_t n_bytes = tensor_bytes(adapter);
    char path[512], size[APR_SMALL_TEXT];
    apr_report r;

    if (text == NULL) return apr_no_memory(err, "an adapter");
    apr_report_start(&r, answer, err);
    apr_report_facts(&r, apr_clean_text(path, sizeof path, adapter->path, strlen(adapter->path)), "");
    apr_report_fact(&r, "container", apr_as_text("LoRA adapter"), "container", "LoRA adapter (merge it with --lora)");
    if (r.json != NULL) apr_adapter_json(r.json, adapter, 1.0);
    apr_report_string(&r, NULL, "trained on", adapter->base != NULL ? adapter->base : "not stated");
    apr_report_string(&r, NULL, "changes", text);
    apr_report_string(&r, NULL, "unknown fields", adapter->unknown_fields);
    apr_report_string(&r, NULL, "other files", adapter->tokenizer_files);
    apr_report_fact(&r, "tensor_bytes", apr_as_uint(n_bytes), "tensors", "%s", apr_size_text(size, n_bytes));
    apr_report_close(&r);
    if (options->tensors) report_changes(&r, adapter, filter);
    apr_arena_close(&arena);
    return apr_report_end(&r);
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
    status = report_adapter(&adapter, options, filter, answer, err);
    apr_adapter_close(&adapter);
    return status;
}
