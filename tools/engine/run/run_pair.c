/* run_pair.c - converts the view of one to the other's naming scheme if they differ. */
#include "tools/engine/run/run_pair.h"

#include "convert/naming.h"

static bool has_ggml_layout(const apr_hparams *h) { return h->tiled_value_heads || h->split_kv_b || h->split_qkvz; }

static bool same_layout(const apr_hparams *a, const apr_hparams *b)
{
    return a->tiled_value_heads == b->tiled_value_heads && a->split_kv_b == b->split_kv_b && a->split_qkvz == b->split_qkvz;
}

/* Converts to GGUF's layout: exports to ggml's naming scheme and imports again. */
static apr_status to_ggml_layout(apr_running *r, apr_error *err)
{
    r->views[0] = r->model;
    return apr_view_as_gguf(&r->model, &r->views[1], &r->views[0], err);
}

/* Converts to a checkpoint's layout. */
static apr_status to_checkpoint_layout(apr_running *r, apr_error *err)
{
    r->views[0] = r->model;
    r->model = (apr_model){0};
    APR_TRY(apr_canonical(&r->model, &r->source, err));
    APR_TRY(apr_view_as_checkpoint(&r->model, err));
    return apr_merge_adapters(&r->model, r->lora.uses, r->lora.n, err);
}

static void restore_view(apr_running *r)
{
    apr_model_close(&r->model);
    apr_model_close(&r->views[1]);
    r->model = r->views[0];
    r->views[0] = (apr_model){0};
}

/* Converts r to the layout of `like`; on failure r is unchanged. */
static apr_status align(apr_running *r, const apr_running *like, apr_error *err)
{
    apr_status status = has_ggml_layout(&like->model.hparams) ? to_ggml_layout(r, err) : to_checkpoint_layout(r, err);

    if (status == APR_OK && !same_layout(&r->model.hparams, &like->model.hparams))
        status = apr_fail(err, APR_E_UNSUPPORTED, "%s and %s have heads and projections in orders that cannot be brought together",
                          r->source.path, like->source.path);
    if (status != APR_OK) restore_view(r);
    return status;
}

apr_status apr_run_pair_align(apr_running *reference, apr_running *other, apr_error *err)
{
    if (same_layout(&reference->model.hparams, &other->model.hparams)) return APR_OK;
    const apr_status status = align(reference, other, err);
    return status == APR_E_UNSUPPORTED ? align(other, reference, err) : status;
}
