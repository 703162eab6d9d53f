/* emit_mixture.c - programs of mixtures of experts, qwen3_moe and its kin. They can be planned; no backend has their operations. */
#include "runtime/program/emit.h"

#include <stdio.h>

static int64_t expert_width(const apr_hparams *h) { return h->moe_intermediate_size > 0 ? h->moe_intermediate_size : h->intermediate_size; }

/* Scores of the experts, turned into the chosen ones: for each an index and a weight. */
static int emit_route(apr_emitter *e, int n)
{
    const apr_hparams *const h = e->hparams;
    const apr_family_program *const style = &e->family->program;
    char weight[64], bias[64];
    apr_op op = apr_no_op;

    snprintf(weight, sizeof weight, "%s.weight", style->router);
    snprintf(bias, sizeof bias, "%s.bias", style->router);
    op.kind = APR_OP_ROUTE;
    op.in[0] = n;
    op.weight[0] = apr_emit_weight(e, weight, APR_ROLE_EXPERTS, h->num_experts, h->hidden_size);
    if (style->expert_biases) op.weight[1] = apr_emit_vector(e, bias, h->num_experts, false);
    op.n_experts = h->num_experts;
    op.n_experts_used = h->num_experts_per_tok;
    op.out = apr_emit_value(e, "routes", 2 * h->num_experts_per_tok);
    apr_emit_op(e, op);
    return op.out;
}

/* The slots of a layer's experts. */
typedef struct expert_slots {
    int gate, up, down;       /* up -1: gate and up are one tensor */
    int gate_bias, down_bias; /* -1: none */
} expert_slots;

static expert_slots emit_stacked_slots(apr_emitter *e, bool biases)
{
    const apr_hparams *const h = e->hparams;
    const int64_t n = h->num_experts, width = expert_width(h);
    expert_slots slots = {.up = -1, .gate_bias = -1, .down_bias = -1};

    slots.gate = apr_emit_stacked(e, "mlp.experts.gate_up_proj", APR_ROLE_EXPERTS, n, 2 * width, h->hidden_size);
    slots.down = apr_emit_stacked(e, "mlp.experts.down_proj", APR_ROLE_EXPERTS, n, h->hidden_size, width);
    if (!biases) return slots;
    slots.gate_bias = apr_emit_weight(e, "mlp.experts.gate_up_proj_bias", APR_ROLE_EXPERTS, n, 2 * width);
    slots.down_bias = apr_emit_weight(e, "mlp.experts.down_proj_bias", APR_ROLE_EXPERTS, n, h->hidden_size);
    return slots;
}

static expert_slots emit_separate_slots(apr_emitter *e)
{
    const apr_hparams *const h = e->hparams;
    const int64_t n = h->num_experts, width = expert_width(h), hidden = h->hidden_size;
    expert_slots slots = {.gate_bias = -1, .down_bias = -1};

    slots.gate = apr_emit_equals(e, "mlp.experts.*.gate_proj.weight", APR_ROLE_EXPERTS, n, width, hidden);
    slots.up = apr_emit_equals(e, "mlp.experts.*.up_proj.weight", APR_ROLE_EXPERTS, n, width, hidden);
    slots.down = apr_emit_equals(e, "mlp.experts.*.down_proj.weight", APR_ROLE_EXPERTS, n, hidden, width);
    return slots;
}

int apr_emit_experts(apr_emitter *e, int n)
{
    const apr_hparams *const h = e->hparams;
    const apr_family_program *const style = &e->family->program;

    if (h->num_experts <= 0 || h->num_experts_per_tok <= 0 || h->num_experts_per_tok > h->num_experts || expert_width(h) <= 0)
        apr_emit_fail(e, APR_E_DAMAGED, "the model does not say how many experts it has, uses for a token, or their width");
    const int routes = emit_route(e, n);
    const expert_slots slots = style->stacked ? emit_stacked_slots(e, style->expert_biases) : emit_separate_slots(e);
    apr_op glu = apr_no_op, sum = apr_no_op;

    glu.kind = APR_OP_EXPERTS_GLU;
    glu.in[0] = n;
    glu.in[1] = routes;
    glu.weight[0] = slots.gate;
    glu.weight[1] = slots.up;
    glu.weight[2] = slots.gate_bias;
    glu.n_experts = h->num_experts;
    glu.n_experts_used = h->num_experts_per_tok;
    glu.out = apr_emit_value(e, "experts.gated", h->num_experts_per_tok * expert_width(h));
    apr_emit_op(e, glu);

    sum.kind = APR_OP_EXPERTS_SUM;
    sum.in[0] = glu.out;
    sum.in[1] = routes;
    sum.weight[0] = slots.down;
    sum.weight[1] = slots.down_bias;
    sum.n_experts = h->num_experts;
    sum.n_experts_used = h->num_experts_per_tok;
    sum.out = apr_emit_value(e, "experts", h->hidden_size);
    apr_emit_op(e, sum);
    return sum.out;
}

void apr_emit_mixture(apr_emitter *e)
{
    apr_stream s = apr_emit_start(e);
    for (e->layer = 0; e->layer < e->hparams->num_layers && e->status == APR_OK; e->layer++) {
        apr_emit_attention(e, &s);
        const int n = apr_emit_norm(e, s.x, "post_attention_layernorm.weight", "mlp.normed");
        s.x = apr_emit_add(e, s.x, apr_emit_experts(e, n), "out");
        apr_emit_tap(e, s.x);
    }
    apr_emit_end(e, &s);
}
