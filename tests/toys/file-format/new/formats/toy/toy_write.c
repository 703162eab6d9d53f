/* toy_write.c - a layout and its bytes to a toy file. */
#include "formats/base/bytes.h"
#include "formats/files/out.h"
#include "formats/toy/toy.h"

#include <stdlib.h>

typedef struct writer {
    apr_sink base;
    apr_out *out;
    uint64_t total_bytes;
} writer;

static apr_status put(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err)
{
    writer *const w = (writer *)sink;
    if (apr_out_position(w->out) + n_bytes > w->total_bytes) return apr_fail(err, APR_E_USAGE, "more bytes than the layout has");
    return apr_out_write(w->out, bytes, n_bytes, NULL, err);
}

static apr_status finish(apr_sink *sink, apr_error *err)
{
    writer *const w = (writer *)sink;
    const bool is_whole = apr_out_position(w->out) == w->total_bytes;
    if (!is_whole) apr_out_abandon(w->out);
    const apr_status status = is_whole ? apr_out_finish(w->out, err) : apr_fail(err, APR_E_USAGE, "not all tensors were written");
    free(w);
    return status;
}

static void abandon(apr_sink *sink)
{
    apr_out_abandon(((writer *)sink)->out);
    free(sink);
}

static uint64_t total_bytes(const apr_sink *sink) { return ((const writer *)sink)->total_bytes; }

static uint64_t head_bytes_of(const apr_tensor *t) { return 2 + strlen(t->name) + 2 + 8 * (uint64_t)t->rank; }

static apr_status put_head(writer *w, const apr_model *layout, apr_error *err)
{
    uint8_t bytes[8] = "TOY\n";

    apr_store_le32(bytes + 4, (uint32_t)layout->n_tensors);
    APR_TRY(apr_out_write(w->out, bytes, 8, NULL, err));
    for (size_t i = 0; i < layout->n_tensors; i++) {
        const apr_tensor *const t = &layout->tensors[i];
        const uint8_t type[2] = {(uint8_t)apr_dtypes[t->dtype].apr_id, (uint8_t)t->rank};
        apr_store_le16(bytes, (uint16_t)strlen(t->name));
        APR_TRY(apr_out_write(w->out, bytes, 2, NULL, err));
        APR_TRY(apr_out_write(w->out, t->name, strlen(t->name), NULL, err));
        APR_TRY(apr_out_write(w->out, type, 2, NULL, err));
        for (int d = 0; d < t->rank; d++) {
            apr_store_le64(bytes, (uint64_t)t->dims[d]);
            APR_TRY(apr_out_write(w->out, bytes, 8, NULL, err));
        }
    }
    return APR_OK;
}

apr_status apr_toy_sink_open(apr_sink **sink, const char *path, const apr_model *layout, const apr_sink_options *options, apr_error *err)
{
    static const apr_sink_ops ops = {put, finish, abandon, total_bytes};
    uint64_t total = 8;

    *sink = NULL;
    for (size_t i = 0; i < layout->n_tensors; i++) {
        if (strlen(layout->tensors[i].name) > UINT16_MAX) return apr_fail(err, APR_E_UNSUPPORTED, "%s: a name is too long", path);
        total += head_bytes_of(&layout->tensors[i]) + layout->tensors[i].n_bytes;
    }
    writer *const w = calloc(1, sizeof *w);
    if (w == NULL) return apr_no_memory(err, "a toy writer");
    *w = (writer){.base.ops = &ops, .total_bytes = total};
    apr_status status = apr_out_open(&w->out, path, total, options->overwrite, err);
    if (status == APR_OK) status = put_head(w, layout, err);
    if (status != APR_OK) {
        abandon(&w->base);
        return status;
    }
    *sink = &w->base;
    return APR_OK;
}

apr_status apr_toy_losses(const apr_model *layout, apr_losses *losses, apr_error *err)
{
    if (layout->hparams.num_layers == 0 && layout->vocab.n_tokens == 0 && layout->kv.n_items == 0) return APR_OK;
    return apr_loss_add(losses, APR_LOST, err, "a toy file holds tensors and nothing else of a model");
}
