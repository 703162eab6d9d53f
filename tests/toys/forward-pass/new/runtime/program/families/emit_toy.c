/* emit_toy.c - programs of the toy: what a dense model computes, written out. */
#include "runtime/program/emit.h"

void apr_emit_toy(apr_emitter *e)
{
    apr_stream s = apr_emit_start(e);
    for (e->layer = 0; e->layer < e->hparams->num_layers && e->status == APR_OK; e->layer++) {
        apr_emit_attention(e, &s);
        apr_emit_mlp(e, &s, e->hparams->intermediate_size, APR_NO_BIAS);
    }
    apr_emit_end(e, &s);
}
