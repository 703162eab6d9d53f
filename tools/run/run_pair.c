/* run_pair.c - opens the files of two models and brings one of them to the other's dialect where they are not of the same. */
#include "tools/run/run_pair.h"

#include "convert/dialect.h"

static bool is_in_pieces(const apr_hparams *h) { return h->tiled_value_heads || h->split_kv_b || h->split_qkvz; }

static bool same_ways(const apr_hparams *a, const apr_hparams *b)
{
    return a->tiled_value_heads == b->tiled_value_heads && a->split_kv_b == b->split_kv_b && a->split_qkvz == b->split_qkvz;
}

/* As a GGUF has it: out to ggml's dialect and in again. */
static apr_status take_apart(apr_running *r, apr_error *err)
{
    r->behind[0] = r->model;
    return apr_with_dialect(&r->model, &r->behind[1], &r->behind[0], err);
}

/* As a checkpoint has it. */
static apr_status put_together(apr_running *r, apr_error *err)
{
    r->behind[0] = r->model;
    r->model = (apr_model){0};
    APR_TRY(apr_canonical(&r->model, &r->source, err));
    APR_TRY(apr_without_dialect(&r->model, err));
    return apr_merge_adapters(&r->model, r->lora.uses, r->lora.n, err);
}

static void back_to_own_view(apr_running *r)
{
    apr_model_close(&r->model);
    apr_model_close(&r->behind[1]);
    r->model = r->behind[0];
    r->behind[0] = (apr_model){0};
}

/* Brings r to the ways of `like`, or leaves it as it is. */
static apr_status align(apr_running *r, const apr_running *like, apr_error *err)
{
    apr_status status = is_in_pieces(&like->model.hparams) ? take_apart(r, err) : put_together(r, err);

    if (status == APR_OK && !same_ways(&r->model.hparams, &like->model.hparams))
        status = apr_fail(err, APR_E_UNSUPPORTED, "%s and %s have heads and projections in orders that cannot be brought together",
                          r->source.path, like->source.path);
    if (status != APR_OK) back_to_own_view(r);
    return status;
}

apr_status apr_run_pair_open_files(apr_running *truth, const char *truth_path, const apr_strings *lora, apr_running *other,
                                   const char *path, apr_error *err)
{
    APR_TRY(apr_running_open_files(other, path, err));
    APR_TRY(apr_running_open_files(truth, truth_path, err));
    APR_TRY(apr_running_merge(truth, lora, err));
    if (same_ways(&truth->model.hparams, &other->model.hparams)) return APR_OK;
    const apr_status status = align(truth, other, err);
    return status == APR_E_UNSUPPORTED ? align(other, truth, err) : status;
}
