/* experts.c - routed feed-forward on the host: all tokens of an expert together, so that its weights are read once a batch.
 *
 * Experts are added in the order of their numbers, not of their ranks: the same terms as ref, in another order of float32 sums. */
#include "kernels/host/host_ops.h"
#include "kernels/ref/ref_ops.h"

#include <string.h>

/* Buffers shared by all threads, after their slices: the tokens of one expert, gathered. */
typedef struct gathered {
    float *x, *gate, *up, *out; /* [n_tokens, n_in], [n_tokens, n_mid] twice, [n_tokens, n_out] */
    int32_t *token, *rank;      /* [n_tokens] */
    int64_t n;
} gathered;

static gathered lay_out(const apr_experts_args *a)
{
    gathered g = {.x = a->shared};
    g.gate = g.x + a->n_tokens * a->n_in;
    g.up = g.gate + a->n_tokens * a->n_mid;
    g.out = g.up + a->n_tokens * a->n_mid;
    g.token = (int32_t *)(void *)(g.out + a->n_tokens * a->n_out);
    g.rank = g.token + a->n_tokens;
    return g;
}

static float weight_of(const apr_experts_args *a, const gathered *g, int64_t i)
{
    return a->routes[g->token[i] * apr_route_row(a->n_used) + a->n_used + g->rank[i]];
}

/* Gathers the tokens that chose expert e. */
static void gather(const apr_experts_args *a, int64_t e, gathered *g)
{
    g->n = 0;
    for (int64_t t = 0; t < a->n_tokens; t++)
        for (int64_t k = 0; k < a->n_used; k++) {
            if ((int64_t)a->routes[t * apr_route_row(a->n_used) + k] != e) continue;
            g->token[g->n] = (int32_t)t;
            g->rank[g->n] = (int32_t)k;
            const float weight = a->weight_on_input ? weight_of(a, g, g->n) : 1.0f;
            for (int64_t i = 0; i < a->n_in; i++) g->x[g->n * a->n_in + i] = a->x[t * a->n_in + i] * weight;
            g->n++;
            break; /* a token chooses an expert at most once */
        }
}

static const float *row_of(const float *biases, int64_t e, int64_t n) { return biases != NULL ? biases + e * n : NULL; }

static void run_expert(const apr_experts_args *a, apr_linears_fn linears, int64_t e, const gathered *g)
{
    const int64_t n = g->n * a->n_mid;
    apr_linear_args up = {
        .n_tokens = g->n, .n_in = a->n_in, .n_out = a->n_mid, .x = g->x, .weight = &a->up[e], .out = g->up, .work = a->work};
    apr_linear_args gate = up, down = up;

    up.bias = row_of(a->up_bias, e, a->n_mid);
    gate.bias = row_of(a->gate_bias, e, a->n_mid);
    gate.weight = a->gate != NULL ? &a->gate[e] : NULL;
    gate.out = g->gate;
    linears((const apr_linear_args *const[]){&up, &gate}, a->gate != NULL ? 2 : 1);
#pragma omp parallel for schedule(static) num_threads(apr_threads(a->work.n_threads, n, (double)n *APR_OPS_EXP))
    for (int64_t i = 0; i < n; i++)
        g->up[i] = a->gate != NULL ? apr_glu_of(&a->glu, g->gate[i], g->up[i]) : apr_activate(a->glu.activation, g->up[i]);
    down.x = g->up;
    down.n_in = a->n_mid;
    down.n_out = a->n_out;
    down.weight = &a->down[e];
    down.bias = row_of(a->down_bias, e, a->n_out);
    down.out = g->out;
    linears((const apr_linear_args *const[]){&down}, 1);
}

static void add_to_tokens(const apr_experts_args *a, const gathered *g)
{
    for (int64_t i = 0; i < g->n; i++) {
        const float weight = a->weight_on_input ? 1.0f : weight_of(a, g, i);
        float *const out = a->out + g->token[i] * a->n_out;
        for (int64_t r = 0; r < a->n_out; r++) out[r] += g->out[i * a->n_out + r] * weight;
    }
}

void apr_host_experts(const apr_experts_args *a, apr_linears_fn linears)
{
    gathered g = lay_out(a);

    memset(a->out, 0, (size_t)(a->n_tokens * a->n_out) * sizeof *a->out);
    for (int64_t e = 0; e < a->n_experts; e++) {
        gather(a, e, &g);
        if (g.n == 0) continue;
        run_expert(a, linears, e, &g);
        add_to_tokens(a, &g);
    }
}
