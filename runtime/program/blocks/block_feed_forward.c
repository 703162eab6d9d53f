/* block_feed_forward.c - dense feed-forward, routed experts, shared experts. */
#include "runtime/program/blocks.h"

#include <stdio.h>
#include <string.h>

/* The activation that the family's spec names, in transformers' words. */
static apr_activation activation_of(apr_emitter *e)
{
    static const struct {
        const char *name;
        apr_activation activation;
    } known[] = {{"silu", APR_ACT_SILU},
                 {"gelu_pytorch_tanh", APR_ACT_GELU_TANH},
                 {"relu2", APR_ACT_RELU2},
                 {"gelu", APR_ACT_GELU},
                 {"relu", APR_ACT_RELU}};
    const char *const name = e->family->config != NULL ? e->family->config->activation : NULL;

    for (size_t i = 0; name != NULL && i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) return known[i].activation;
    if (name != NULL) apr_emit_fail(e, APR_E_UNSUPPORTED, "the activation \"%s\" is not implemented", name);
    return APR_ACT_SILU;
}

static apr_bias_style mlp_bias(const apr_emitter *e)
{
    const apr_bias_rule rule = e->family->config != NULL ? e->family->config->mlp_bias : APR_BIAS_NEVER;
    if (rule == APR_BIAS_ALWAYS) return APR_MUST_HAVE_BIAS;
    if (rule != APR_BIAS_WHEN_STATED) return APR_NO_BIAS;
    return e->hparams->mlp_bias ? APR_MUST_HAVE_BIAS : APR_MAY_HAVE_BIAS;
}

apr_feed_forward apr_feed_forward_of(apr_emitter *e, const char *prefix)
{
    return (apr_feed_forward){.prefix = prefix,
                              .gate = "gate_proj",
                              .up = "up_proj",
                              .down = "down_proj",
                              .width = e->hparams->intermediate_size,
                              .glu = {.activation = activation_of(e)},
                              .bias = mlp_bias(e),
                              .role = APR_ROLE_FEED_FORWARD};
}

static int emit_matrix(apr_emitter *e, int x, const apr_feed_forward *f, const char *name, int64_t rows)
{
    return apr_emit_linear_of(e, x, f->prefix, name, f->role, rows, f->bias);
}

int apr_emit_feed_forward(apr_emitter *e, int n, const apr_feed_forward *f)
{
    int gate, up = -1;

    if (apr_ffn_kind_of(e->hparams, e->layer) == APR_FFN_NONE) apr_emit_unknown_layer(e);
    if (f->width <= 0) apr_emit_fail(e, APR_E_DAMAGED, "the model does not state its intermediate_size");
    if (f->fused) {
        const int both = emit_matrix(e, n, f, f->gate, 2 * f->width);
        gate = apr_emit_slice(e, both, 1, 0, f->width, "gate");
        up = apr_emit_slice(e, both, 1, f->width, f->width, "up");
    } else if (f->gate != NULL) {
        gate = emit_matrix(e, n, f, f->gate, f->width);
        up = emit_matrix(e, n, f, f->up, f->width);
    } else gate = emit_matrix(e, n, f, f->up, f->width);
    if (f->sparsity > 0.0) gate = apr_emit_gauss_topk(e, gate, f->sparsity, "gate.sparse");
    if (f->gate_scale > 0.0) gate = apr_emit_scale(e, gate, f->gate_scale, "gate.scaled");
    const int down = emit_matrix(e, apr_emit_glu(e, gate, up, f->glu, "gated"), f, f->down, e->hparams->hidden_size);
    return f->down_scale > 0.0 ? apr_emit_scale(e, down, f->down_scale, "down.scaled") : down;
}

/* --- experts --- */

static int64_t expert_width(const apr_emitter *e)
{
    const apr_hparams *const h = e->hparams;
    return h->moe_intermediate_size > 0 ? h->moe_intermediate_size : h->intermediate_size;
}

int64_t apr_shared_width(const apr_emitter *e)
{
    const apr_hparams *const h = e->hparams;
    return h->shared_expert_intermediate_size > 0 ? h->shared_expert_intermediate_size : h->num_shared_experts * expert_width(e);
}

apr_experts apr_experts_of(apr_emitter *e)
{
    const apr_hparams *const h = e->hparams;
    return (apr_experts){.router = "mlp.gate",
                         .prefix = "mlp.experts",
                         .gate = "gate_proj",
                         .up = "up_proj",
                         .down = "down_proj",
                         .width = expert_width(e),
                         .route = {.score = APR_SCORE_SOFTMAX,
                                   .n_experts = h->num_experts,
                                   .n_used = h->num_experts_per_tok,
                                   .n_groups = h->num_expert_groups,
                                   .n_groups_used = h->num_expert_groups_used,
                                   .filler = -INFINITY,
                                   .normalise = h->norm_topk_prob,
                                   .scale = h->routed_scaling_factor > 0.0 ? (float)h->routed_scaling_factor : 1.0f},
                         .glu = {.activation = activation_of(e)}};
}

static int emit_route(apr_emitter *e, int n, const apr_experts *x)
{
    const apr_route_shape *const r = &x->route;
    const int logits =
        apr_emit_linear(e, n, x->router, APR_ROLE_EXPERTS, r->n_experts, x->router_bias ? APR_MUST_HAVE_BIAS : APR_NO_BIAS, "router");
    apr_op op = apr_no_op;

    if (e->status == APR_OK) e->program->ops[e->program->n_ops - 1].args.linear.is_router = true;
    op.kind = APR_OP_ROUTE;
    op.in[0] = logits;
    op.args.route.shape = *r;
    if (x->choice_bias != NULL) op.weight[0] = apr_emit_vector(e, x->choice_bias, r->n_experts, false);
    if (x->expert_scale != NULL) op.weight[1] = apr_emit_vector(e, x->expert_scale, r->n_experts, false);
    op.out = apr_emit_value(e, "routes", apr_route_row(r->n_used));
    apr_emit_op(e, op);
    return op.out;
}

static int expert_matrices(apr_emitter *e, const apr_experts *x, const char *which, int64_t rows, int64_t columns)
{
    char name[128];
    if (which == NULL) return -1;
    snprintf(name, sizeof name, "%s.*.%s.weight", x->prefix, which);
    return apr_emit_matrices(e, name, APR_ROLE_EXPERTS, x->route.n_experts, rows, columns);
}

static int expert_biases(apr_emitter *e, const apr_experts *x, const char *which, int64_t width)
{
    char name[128];
    if (!x->biases || which == NULL) return -1;
    snprintf(name, sizeof name, "%s.%s_bias", x->prefix, which);
    return apr_emit_vector(e, name, x->route.n_experts * width, false);
}

static void check_experts(apr_emitter *e, const apr_experts *x)
{
    const apr_route_shape *const r = &x->route;
    const int64_t each = r->n_groups > 1 ? r->n_experts / r->n_groups : r->n_experts;

    if (x->width <= 0 || r->n_experts <= 0 || r->n_used <= 0)
        apr_emit_fail(e, APR_E_DAMAGED, "the model does not state how many experts it has and uses, or their width");
    if (r->n_used > r->n_experts)
        apr_emit_fail(e, APR_E_DAMAGED, "%lld of %lld experts cannot be used", (long long)r->n_used, (long long)r->n_experts);
    if (r->n_groups > 1 && (r->n_experts % r->n_groups != 0 || r->n_groups_used <= 0 || r->n_groups_used > r->n_groups ||
                            r->n_groups_used * each < r->n_used || (!r->group_by_best && each < 2)))
        apr_emit_fail(e, APR_E_DAMAGED, "cannot choose %lld experts from %lld groups (%lld of them used) of %lld experts",
                      (long long)r->n_used, (long long)r->n_groups, (long long)r->n_groups_used, (long long)r->n_experts);
}

int apr_emit_experts(apr_emitter *e, int n, int router_in, const apr_experts *x)
{
    const int64_t width = apr_emit_width(e, n);
    apr_op op = apr_no_op;

    if (apr_ffn_kind_of(e->hparams, e->layer) != APR_FFN_EXPERTS) apr_emit_unknown_layer(e);
    check_experts(e, x);
    op.kind = APR_OP_EXPERTS;
    op.in[0] = n;
    op.in[1] = emit_route(e, router_in, x);
    op.weight[0] = expert_matrices(e, x, x->gate, x->width, width);
    op.weight[1] = expert_matrices(e, x, x->up, x->width, width);
    op.weight[2] = expert_matrices(e, x, x->down, width, x->width);
    op.weight[3] = expert_biases(e, x, x->gate, x->width);
    op.weight[4] = expert_biases(e, x, x->up, x->width);
    op.weight[5] = expert_biases(e, x, x->down, width);
    op.args.experts = (apr_experts_args){.n_in = width,
                                         .n_mid = x->width,
                                         .n_out = width,
                                         .n_experts = x->route.n_experts,
                                         .n_used = x->route.n_used,
                                         .glu = x->glu,
                                         .weight_on_input = x->weight_on_input};
    op.out = apr_emit_value(e, "experts", width);
    apr_emit_op(e, op);
    return op.out;
}

int apr_emit_shared(apr_emitter *e, int n, int routed, const char *prefix, const char *gate)
{
    apr_feed_forward f = apr_feed_forward_of(e, prefix);

    f.width = apr_shared_width(e);
    f.bias = APR_NO_BIAS;
    if (f.width <= 0) return routed;
    int shared = apr_emit_feed_forward(e, n, &f);
    if (gate != NULL) {
        const int logit = apr_emit_linear(e, n, gate, APR_ROLE_FEED_FORWARD, 1, APR_NO_BIAS, "shared.gate");
        shared = apr_emit_gate(e, shared, logit, APR_ACT_SIGMOID, "shared.gated");
    }
    return apr_emit_add(e, routed, shared, "experts.all");
}
