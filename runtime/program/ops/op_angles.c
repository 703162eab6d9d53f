/* op_angles.c - cosines and sines of every position, once for all layers. */
#include "runtime/program/op_spec.h"

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    const apr_rope_table *const rope = &g->program->ropes[op->rope];
    args->angles = (apr_angles_args){.n_tokens = g->n_tokens,
                                     .position = g->position,
                                     .position_at = g->position_at,
                                     .per_sequence = g->per_sequence,
                                     .n_freqs = rope->n_freqs,
                                     .freqs = apr_op_memory_frequencies(g, op->rope),
                                     .magnitude = rope->magnitude,
                                     .out = apr_op_memory_value(g, op->out)};
}

const apr_op_spec apr_spec_angles = {
    .kind = APR_OP_ANGLES,
    .step = APR_BATCH_PER_SEQUENCE,
    .has_rope = true,
    .bound = {1e-5, 1e-6, "cosf and sinf of the same float32 angle: a few units in the last place"},
    .position_error = 8 * 0x1p-24, /* the same angles computed differently: frequencies within 8 units in the last place */
    .bind = bind,
};
