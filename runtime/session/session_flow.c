/* session_flow.c - a single token in fewer steps than operations: products that stream their weights, ended by what follows them.
 *
 * Inputs of products lie in slots behind the workspace, taken in turn. */
#include "formats/base/bytes.h"
#include "runtime/session/session_parts.h"

#include <stdlib.h>

/* Of a linear that the device has such a kernel for, a number of its own for each type; 0: none. */
static int stream_of(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    if (op->kind != APR_OP_LINEAR || op->args.linear.heads.n > 0) return 0;
    const apr_tensor *const weight = at->multiplied[op->weight[0]];
    const int64_t n_in = s->program.values[op->in[0]].width, n_out = s->program.values[op->out].width;
    const bool is_plain = weight->scale == NULL && weight->packing == NULL && weight->pending.kind == APR_STEP_NONE;
    const bool lies_right = weight->in_items == (apr_flow_item_columns(weight->dtype) > 0);
    return is_plain && lies_right && s->options.cuda->streams(at->device, weight->dtype, n_out, n_in) ? (int)weight->dtype + 1 : 0;
}

/* Slots are taken in turn: nobody may still need what is overwritten. */
static bool slots_suffice(const apr_fusion *fusion)
{
    for (size_t i = 0; i + APR_PLANES_SLOTS < fusion->n_planes; i++)
        if (fusion->planes[i].last_step >= fusion->planes[i + APR_PLANES_SLOTS].first_step) return false;
    return true;
}

apr_status apr_session_fuse(apr_session *s, apr_session_place *at, apr_error *err)
{
    int *streams;
    bool any = false;

    if (s->n_places > 1 || s->options.no_fusion || s->options.no_replay || s->options.no_direct) return APR_OK;
    streams = calloc(s->program.n_ops + 1, sizeof *streams);
    if (streams == NULL) return apr_no_memory(err, "the steps of a token");
    for (size_t i = 0; i < s->program.n_ops; i++) any |= (streams[i] = stream_of(s, at, &s->program.ops[i])) != 0;
    apr_status status = any ? apr_fuse(&at->fusion, &s->program, streams, err) : APR_OK;
    free(streams);
    if (status != APR_OK || !slots_suffice(&at->fusion)) apr_fusion_close(&at->fusion);
    if (status == APR_OK && at->fusion.n_steps > 0) status = s->options.cuda->expect_streams(at->device, true, err);
    return status;
}

static uint8_t *planes_at(const apr_session_place *at, int planes)
{
    return at->planes + (uint64_t)(planes % APR_PLANES_SLOTS) * at->plan.planes_slot;
}

/* Sums of squares lie behind the planes. */
static float *squares_at(const apr_session_place *at, int planes, int64_t width)
{
    return (float *)(void *)(planes_at(at, planes) + apr_cuda_round((size_t)apr_planes_bytes(width)));
}

static const float *vector_at(const apr_session_place *at, int slot)
{
    return slot >= 0 && at->plan.vector_offsets[slot] >= 0 ? at->vectors + at->plan.vector_offsets[slot] : NULL;
}

static const apr_op *norm_of(const apr_session *s, int norm) { return norm >= 0 ? &s->program.ops[norm] : NULL; }

static apr_status run_inputs(const apr_session *s, const apr_session_place *at, const apr_fused *step, apr_error *err)
{
    const apr_op *const norm = norm_of(s, step->norm);
    apr_flow_inputs args = {.n = s->program.values[step->value].width,
                            .x = apr_session_value_at(s, step->value),
                            .norm = norm != NULL,
                            .planes = planes_at(at, step->planes)};
    if (norm != NULL) {
        args.eps = norm->args.norm.eps;
        args.gain = vector_at(at, norm->weight[0]);
        args.gain_offset = norm->args.norm.offset;
    }
    return s->options.cuda->flow_inputs(at->device, &args, err);
}

/* The value that ends the products, and the one that is added. */
static int result_of(const apr_session *s, const apr_fused *step)
{
    return s->program.ops[step->glu >= 0 ? step->glu : step->add >= 0 ? step->add : step->linears[0]].out;
}

static int residual_of(const apr_session *s, const apr_fused *step)
{
    const apr_op *const add = &s->program.ops[step->add];
    return add->in[0] == s->program.ops[step->linears[0]].out ? add->in[1] : add->in[0];
}

/* What the products leave for the next. */
static void leave(const apr_session *s, const apr_session_place *at, const apr_fused *step, int64_t width, apr_flow_args *args)
{
    const apr_op *const norm = norm_of(s, step->norm);
    if (step->planes < 0) return;
    args->planes = planes_at(at, step->planes);
    if (norm == NULL) return;
    args->gain = vector_at(at, norm->weight[0]);
    args->gain_offset = norm->args.norm.offset;
    args->out_squares = squares_at(at, step->planes, width);
}

static apr_status run_products(const apr_session *s, const apr_session_place *at, const apr_fused *step, apr_error *err)
{
    const apr_op *const ops = s->program.ops, *const divided = norm_of(s, step->divided);
    const int result = result_of(s, step);
    apr_flow_args args = {.ending = step->glu >= 0   ? APR_FLOW_GLU
                                    : step->add >= 0 ? APR_FLOW_ADD
                                                     : APR_FLOW_STORE,
                          .n_parts = step->n_linears,
                          .n_in = s->program.values[ops[step->linears[0]].in[0]].width,
                          .x = planes_at(at, step->inputs)};

    if (divided != NULL) {
        args.squares = squares_at(at, step->inputs, args.n_in);
        args.eps = divided->args.norm.eps;
    }
    for (int i = 0; i < step->n_linears; i++) {
        const apr_op *const op = &ops[step->linears[i]];
        args.parts[i] = (apr_flow_part){at->multiplied[op->weight[0]], vector_at(at, op->weight[1]), apr_session_value_at(s, op->out)};
    }
    if (args.ending != APR_FLOW_STORE) args.parts[0].out = step->keeps ? apr_session_value_at(s, result) : NULL;
    if (step->glu >= 0) args.glu = ops[step->glu].args.glu.shape;
    if (step->add >= 0) args.residual = apr_session_value_at(s, residual_of(s, step));
    leave(s, at, step, s->program.values[result].width, &args);
    return s->options.cuda->flow(at->device, &args, err);
}

apr_status apr_session_run_fused(apr_session *s, const apr_session_place *at, apr_error *err)
{
    for (size_t i = 0; i < at->fusion.n_steps; i++) {
        const apr_fused *const step = &at->fusion.steps[i];
        switch (step->kind) {
        case APR_FUSED_OPERATION: APR_TRY(apr_session_run_op(s, &s->program.ops[step->op], err)); break;
        case APR_FUSED_INPUTS:
            if (!s->only_products) APR_TRY(run_inputs(s, at, step, err));
            break;
        case APR_FUSED_PRODUCTS: APR_TRY(run_products(s, at, step, err)); break;
        }
    }
    return APR_OK;
}
