/* block_model.c - everything around the layers: embeddings, residuals, final norm, head. */
#include "runtime/program/blocks.h"

#include <math.h>
#include <stdio.h>

static double or_one(double factor) { return factor > 0.0 ? factor : 1.0; }

int apr_emit_embeddings(apr_emitter *e)
{
    char name[64];
    snprintf(name, sizeof name, "%sembed_tokens.weight", e->root);
    const int rows = apr_emit_embed(e, name, e->hparams->hidden_size, "embeddings");
    const double root = e->hparams->scales_embeddings ? sqrt((double)e->hparams->hidden_size) : 1.0;
    return apr_emit_scale(e, rows, root * or_one(e->hparams->embedding_multiplier), "embeddings.scaled");
}

int apr_emit_residual(apr_emitter *e, int x, int y, const char *out)
{
    return apr_emit_add(e, x, apr_emit_scale(e, y, or_one(e->hparams->residual_multiplier), "scaled"), out);
}

int apr_emit_layer_out(apr_emitter *e, int x, int y)
{
    x = apr_emit_residual(e, x, y, "out");
    apr_emit_tap(e, x);
    return x;
}

int apr_emit_layers(apr_emitter *e, int x, apr_layer_fn layer)
{
    apr_emit_tap(e, x);
    for (e->layer = 0; e->layer < e->hparams->num_layers && e->status == APR_OK; e->layer++) x = layer(e, x);
    e->layer = -1;
    return x;
}

/* transformers' last hidden state is the normed one. It replaces the output of the last layer. */
static void tap_last(apr_emitter *e, int normed)
{
    const int last = (int)e->hparams->num_layers;
    if (e->status != APR_OK) return;
    for (size_t i = 0; i < e->program->n_values; i++)
        if (e->program->values[i].tap == last) e->program->values[i].tap = -1;
    e->program->values[normed].tap = last;
}

void apr_emit_head(apr_emitter *e, int x, const char *norm) { apr_emit_head_of(e, x, norm, "lm_head", APR_NO_BIAS); }

void apr_emit_head_of(apr_emitter *e, int x, const char *norm, const char *name, apr_bias_style bias)
{
    const apr_hparams *const h = e->hparams;
    char text[64];

    x = apr_emit_norm(e, x, norm, "normed");
    tap_last(e, x);
    /* A tied head is the embedding table, which is stored once. Its slot is the first one. */
    snprintf(text, sizeof text, "%s.weight", name);
    const int head = h->tie_word_embeddings ? 0 : apr_emit_weight(e, text, APR_ROLE_HEAD, h->vocab_size, h->hidden_size);
    snprintf(text, sizeof text, "%s.bias", name);
    const int offset = bias == APR_NO_BIAS ? -1 : apr_emit_vector(e, text, h->vocab_size, bias == APR_MAY_HAVE_BIAS);
    int logits = apr_emit_product(e, x, head, offset, "logits");
    if (e->status == APR_OK) e->program->values[logits].is_logits = true;
    logits = apr_emit_scale(e, logits, or_one(h->logit_scale) / or_one(h->logits_scaling), "logits.scaled");
    apr_emit_softcap(e, logits, h->final_logit_softcapping, "logits.capped");
}

void apr_emit_model(apr_emitter *e, apr_layer_fn layer)
{
    const int x = apr_emit_layers(e, apr_emit_embeddings(e), layer);
    apr_emit_head(e, x, "model.norm.weight");
}

void apr_emit_unknown_layer(apr_emitter *e)
{
    apr_emit_fail(e, APR_E_UNSUPPORTED, "layer %d has a kind ('%c', '%c') that this family does not have", e->layer,
                  apr_layer_letters[apr_layer_kind_of(e->hparams, e->layer)], apr_ffn_letters[apr_ffn_kind_of(e->hparams, e->layer)]);
}
