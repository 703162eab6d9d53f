/* op_route.c - which experts a token goes to, and with what weights. */
#include "runtime/program/op_spec.h"

enum { BIAS, SCALE };

static const apr_op_fact facts[] = {
    {"the score function", APR_FACT_CHOICE, offsetof(apr_op_args, route.shape.score)},
    {"the number of experts", APR_FACT_WHOLE, offsetof(apr_op_args, route.shape.n_experts)},
    {"the number of experts used", APR_FACT_WHOLE, offsetof(apr_op_args, route.shape.n_used)},
    {"the number of groups", APR_FACT_WHOLE, offsetof(apr_op_args, route.shape.n_groups)},
    {"the number of groups used", APR_FACT_WHOLE, offsetof(apr_op_args, route.shape.n_groups_used)},
    {"how groups are scored", APR_FACT_FLAG, offsetof(apr_op_args, route.shape.group_by_best)},
    {"whether weights are normalised", APR_FACT_FLAG, offsetof(apr_op_args, route.shape.normalise)},
    {"the score of experts outside the chosen groups", APR_FACT_REAL, offsetof(apr_op_args, route.shape.filler)},
    {"what is added to the sum of weights", APR_FACT_REAL, offsetof(apr_op_args, route.shape.norm_eps)},
    {"the least sum of weights", APR_FACT_REAL, offsetof(apr_op_args, route.shape.norm_min)},
    {"the scale of the weights", APR_FACT_REAL, offsetof(apr_op_args, route.shape.scale)},
    {0},
};

static size_t host_floats(const apr_program *program, const apr_op *op)
{
    (void)program;
    return apr_route_slice(op->args.route.shape.n_experts);
}

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->route.n_tokens = g->n_tokens;
    args->route.logits = apr_op_memory_value(g, op->in[0]);
    args->route.bias = apr_op_memory_vector(g, op->weight[BIAS]);
    args->route.expert_scale = apr_op_memory_vector(g, op->weight[SCALE]);
    args->route.out = apr_op_memory_value(g, op->out);
    args->route.work = g->work;
}

const apr_op_spec apr_spec_route = {
    .kind = APR_OP_ROUTE,
    .n_inputs = 1,
    .weights = {[BIAS] = {"bias of the choice", APR_USE_FLOAT, .optional = true}, [SCALE] = {"scales", APR_USE_FLOAT, .optional = true}},
    .facts = facts,
    .host_floats = host_floats,
    .bound = {1e-3, 1e-4, "expf to a few units in the last place; the choice is held to the gap at the last rank"},
    .bind = bind,
};
