/* block_recurrent.c - mixers with a state of constant size: delta net, Mamba 2, short convolution. */
#include "runtime/program/blocks.h"

#include <stdio.h>

typedef struct names {
    char text[96];
} names;

static const char *in(names *n, const char *prefix, const char *name)
{
    snprintf(n->text, sizeof n->text, "%s.%s", prefix, name);
    return n->text;
}

static int project(apr_emitter *e, int x, const char *prefix, const char *name, int64_t rows)
{
    return apr_emit_linear_of(e, x, prefix, name, APR_ROLE_ATTENTION, rows, APR_MAY_HAVE_BIAS);
}

/* The sizes that delta nets and Mamba share, checked. */
typedef struct sizes {
    int64_t n_key, n_value, key_dim, value_dim; /* Mamba: groups, heads, state, head */
    int64_t key_width, value_width;
} sizes;

static sizes sizes_of(apr_emitter *e)
{
    const apr_hparams *const h = e->hparams;
    const sizes s = {.n_key = h->linear_num_key_heads,
                     .n_value = h->linear_num_value_heads,
                     .key_dim = h->linear_key_head_dim,
                     .value_dim = h->linear_value_head_dim,
                     .key_width = h->linear_num_key_heads * h->linear_key_head_dim,
                     .value_width = h->linear_num_value_heads * h->linear_value_head_dim};

    if (s.key_width <= 0 || s.value_width <= 0)
        apr_emit_fail(e, APR_E_DAMAGED, "the model does not state the sizes of its recurrent layers");
    else if (s.n_value % s.n_key != 0)
        apr_emit_fail(e, APR_E_DAMAGED, "%lld recurrent value heads cannot share %lld key heads", (long long)s.n_value, (long long)s.n_key);
    return s;
}

/* --- delta net --- */

typedef struct delta_inputs {
    int qkv, z, a, b;
} delta_inputs;

/* From fused matrices: for each key head its query, its key, and the values and gates of the value heads that share it. */
static delta_inputs from_fused(apr_emitter *e, int n, const char *prefix, const sizes *s)
{
    const int64_t each = s->n_value / s->n_key, values = each * s->value_dim;
    const int all = project(e, n, prefix, "in_proj_qkvz", 2 * s->key_width + 2 * s->value_width);
    const int q = apr_emit_slice(e, all, s->n_key, 0, s->key_dim, "q");
    const int k = apr_emit_slice(e, all, s->n_key, s->key_dim, s->key_dim, "k");
    const int v = apr_emit_slice(e, all, s->n_key, 2 * s->key_dim, values, "v");
    delta_inputs x = {.z = apr_emit_slice(e, all, s->n_key, 2 * s->key_dim + values, values, "z")};

    x.qkv = apr_emit_join(e, apr_emit_join(e, q, k, 1, "qk"), v, 1, "qkv");
    return x;
}

static delta_inputs emit_delta_inputs(apr_emitter *e, int n, const char *prefix, const sizes *s, bool fused_ba)
{
    delta_inputs x = {0};

    if (fused_ba && !e->hparams->split_qkvz) x = from_fused(e, n, prefix, s);
    else {
        x.qkv = project(e, n, prefix, "in_proj_qkv", 2 * s->key_width + s->value_width);
        x.z = project(e, n, prefix, "in_proj_z", s->value_width);
    }
    if (fused_ba) {
        const int64_t each = s->n_value / s->n_key;
        const int ba = project(e, n, prefix, "in_proj_ba", 2 * s->n_value);
        x.b = apr_emit_slice(e, ba, s->n_key, 0, each, "b");
        x.a = apr_emit_slice(e, ba, s->n_key, each, each, "a");
    } else {
        x.b = project(e, n, prefix, "in_proj_b", s->n_value);
        x.a = project(e, n, prefix, "in_proj_a", s->n_value);
    }
    return x;
}

/* by_channel: a has a number for each channel of a key; floor: see apr_delta_args. */
static int emit_delta(apr_emitter *e, const delta_inputs *x, const char *prefix, const sizes *s, bool by_channel, double floor)
{
    apr_op op = apr_no_op;
    names n;

    op.kind = APR_OP_DELTA;
    op.in[0] = x->qkv;
    op.in[1] = x->a;
    op.in[2] = x->b;
    op.weight[0] = apr_emit_exp_vector(e, in(&n, prefix, "A_log"), s->n_value);
    op.weight[1] = apr_emit_vector(e, in(&n, prefix, "dt_bias"), by_channel ? s->n_value * s->key_dim : s->n_value, false);
    op.state = apr_emit_state(e, (apr_state){.kind = APR_STATE_DELTA, .n_floats = s->n_value * s->key_dim * s->value_dim});
    op.args.delta = (apr_delta_args){.n_key_heads = s->n_key,
                                     .n_value_heads = s->n_value,
                                     .key_dim = s->key_dim,
                                     .value_dim = s->value_dim,
                                     .tiled = e->hparams->tiled_value_heads,
                                     .by_channel = by_channel,
                                     .floor = (float)floor,
                                     .eps = 1e-6f}; /* epsilon of the l2 norm, as in transformers */
    op.out = apr_emit_value(e, "delta", s->value_width);
    apr_emit_op(e, op);
    return op.out;
}

int apr_emit_delta_net(apr_emitter *e, int n, const char *prefix, bool fused)
{
    const sizes s = sizes_of(e);
    apr_norm_facts norm = e->norm;
    names text;

    if (e->status != APR_OK) return -1;
    delta_inputs x = emit_delta_inputs(e, n, prefix, &s, fused);
    x.qkv = apr_emit_conv(e, x.qkv, in(&text, prefix, "conv1d"), e->hparams->linear_conv_kernel_dim, APR_ACT_SILU, "qkv.mixed");
    const int out = emit_delta(e, &x, prefix, &s, false, 0.0);
    norm.weight = in(&text, prefix, "norm.weight");
    norm.chunk = s.value_dim;
    norm.offset = 0; /* this norm's weight is stored without the offset, even if the family's other norms have one */
    const int normed = apr_emit_norm_of(e, out, &norm, "delta.normed");
    const int gated = apr_emit_glu(e, x.z, normed, (apr_glu_shape){.activation = APR_ACT_SILU}, "delta.gated");
    return project(e, gated, prefix, "out_proj", e->hparams->hidden_size);
}

/* --- Kimi Delta Attention --- */

/* PREFIX.NAME_proj of n, mixed over time by PREFIX.NAME_conv1d. */
static int emit_mixed(apr_emitter *e, int n, const char *prefix, char name, int64_t width)
{
    char projection[] = "?_proj", conv[] = "?_conv1d";
    names text;

    projection[0] = conv[0] = name;
    const int x = project(e, n, prefix, projection, width);
    return apr_emit_conv(e, x, in(&text, prefix, conv), e->hparams->linear_conv_kernel_dim, APR_ACT_SILU, "mixed");
}

/* `each` numbers for each value head, by NAME_proj, or through a head's width by NAME_a_proj and NAME_b_proj. */
static int emit_by_channel(apr_emitter *e, int n, const apr_channel_delta *d, char name, const sizes *s, int64_t each)
{
    char whole[] = "?_proj", down[] = "?_a_proj", up[] = "?_b_proj";

    whole[0] = down[0] = up[0] = name;
    if (!d->low_rank) return project(e, n, d->prefix, whole, s->n_value * each);
    return project(e, project(e, n, d->prefix, down, each), d->prefix, up, s->n_value * each);
}

int apr_emit_channel_delta(apr_emitter *e, int n, const apr_channel_delta *d)
{
    const sizes s = sizes_of(e);
    apr_norm_facts norm = e->norm;
    names text;

    if (e->status != APR_OK) return -1;
    const int q = emit_mixed(e, n, d->prefix, 'q', s.key_width), k = emit_mixed(e, n, d->prefix, 'k', s.key_width),
              v = emit_mixed(e, n, d->prefix, 'v', s.value_width);
    const delta_inputs x = {.qkv = apr_emit_join(e, apr_emit_join(e, q, k, 1, "qk"), v, 1, "qkv"),
                            .z = emit_by_channel(e, n, d, 'g', &s, s.value_dim),
                            .a = emit_by_channel(e, n, d, 'f', &s, s.key_dim),
                            .b = project(e, n, d->prefix, "b_proj", s.n_value)};
    const int out = emit_delta(e, &x, d->prefix, &s, true, d->floor);
    norm.weight = in(&text, d->prefix, "o_norm.weight");
    norm.chunk = s.value_dim;
    const int gated = apr_emit_gate(e, apr_emit_norm_of(e, out, &norm, "delta.normed"), x.z, APR_ACT_SIGMOID, "delta.gated");
    return project(e, gated, d->prefix, d->output, e->hparams->hidden_size);
}

/* --- Mamba 2 --- */

static int emit_ssd(apr_emitter *e, int xbc, int dt, const char *prefix, const sizes *s)
{
    apr_op op = apr_no_op;
    names n;

    op.kind = APR_OP_SSD;
    op.in[0] = xbc;
    op.in[1] = dt;
    op.weight[0] = apr_emit_exp_vector(e, in(&n, prefix, "A_log"), s->n_value);
    op.weight[1] = apr_emit_vector(e, in(&n, prefix, "dt_bias"), s->n_value, false);
    op.weight[2] = apr_emit_vector(e, in(&n, prefix, "D"), s->n_value, false);
    op.state = apr_emit_state(e, (apr_state){.kind = APR_STATE_SSD, .n_floats = s->value_width * s->key_dim});
    op.args.ssd = (apr_ssd_args){.n_heads = s->n_value, .head_dim = s->value_dim, .n_groups = s->n_key, .state_dim = s->key_dim};
    op.out = apr_emit_value(e, "ssd", s->value_width);
    apr_emit_op(e, op);
    return op.out;
}

static double or_one(double factor) { return factor > 0.0 ? factor : 1.0; }

/* x, B and C in one row, each with its factor. */
static int emit_xbc(apr_emitter *e, int all, const apr_mamba *m, const sizes *s)
{
    const int64_t first = s->value_width, k = s->key_width;

    if (or_one(m->x) == 1.0 && or_one(m->b) == 1.0 && or_one(m->c) == 1.0)
        return apr_emit_slice(e, all, 1, first, s->value_width + 2 * k, "xbc");
    const int x = apr_emit_scale(e, apr_emit_slice(e, all, 1, first, s->value_width, "x"), or_one(m->x), "x.scaled");
    const int b = apr_emit_scale(e, apr_emit_slice(e, all, 1, first + s->value_width, k, "b"), or_one(m->b), "b.scaled");
    const int c = apr_emit_scale(e, apr_emit_slice(e, all, 1, first + s->value_width + k, k, "c"), or_one(m->c), "c.scaled");
    return apr_emit_join(e, apr_emit_join(e, x, b, 1, "xb"), c, 1, "xbc");
}

static int emit_mamba_norm(apr_emitter *e, int y, const apr_mamba *m, const sizes *s)
{
    apr_norm_facts norm = e->norm;
    names text;

    norm.weight = in(&text, m->prefix, "norm.weight");
    norm.chunk = s->value_width / s->n_key;
    norm.row_weight = true;
    return m->without_norm ? y : apr_emit_norm_of(e, y, &norm, "ssd.normed");
}

int apr_emit_mamba_of(apr_emitter *e, int n, const apr_mamba *m)
{
    static const apr_glu_shape silu = {.activation = APR_ACT_SILU};
    const sizes s = sizes_of(e);
    const int64_t mixed = s.value_width + 2 * s.key_width;
    names text;

    if (e->status != APR_OK) return -1;
    const int all = project(e, n, m->prefix, "in_proj", s.value_width + mixed + s.n_value);
    const int z = apr_emit_scale(e, apr_emit_slice(e, all, 1, 0, s.value_width, "z"), or_one(m->z), "z.scaled");
    int xbc = emit_xbc(e, all, m, &s);
    const int dt = apr_emit_scale(e, apr_emit_slice(e, all, 1, s.value_width + mixed, s.n_value, "dt"), or_one(m->dt), "dt.scaled");
    xbc = apr_emit_conv(e, xbc, in(&text, m->prefix, "conv1d"), e->hparams->linear_conv_kernel_dim, APR_ACT_SILU, "xbc.mixed");
    int y = emit_ssd(e, xbc, dt, m->prefix, &s);
    if (m->norm_first) y = emit_mamba_norm(e, y, m, &s);
    y = apr_emit_glu(e, z, y, silu, "ssd.gated");
    if (!m->norm_first) y = emit_mamba_norm(e, y, m, &s);
    return project(e, y, m->prefix, "out_proj", e->hparams->hidden_size);
}

int apr_emit_mamba(apr_emitter *e, int n, const char *prefix)
{
    const apr_mamba m = {.prefix = prefix};
    return apr_emit_mamba_of(e, n, &m);
}

/* --- short convolution --- */

int apr_emit_short_conv(apr_emitter *e, int n, const char *prefix)
{
    const int64_t width = e->hparams->hidden_size;
    const int all = project(e, n, prefix, "in_proj", 3 * width);
    const int b = apr_emit_slice(e, all, 1, 0, width, "b"), c = apr_emit_slice(e, all, 1, width, width, "c");
    const int x = apr_emit_mul(e, b, apr_emit_slice(e, all, 1, 2 * width, width, "x"), "bx");
    names text;
    const int mixed = apr_emit_conv(e, x, in(&text, prefix, "conv"), e->hparams->linear_conv_kernel_dim, APR_ACT_NONE, "bx.mixed");
    return project(e, apr_emit_mul(e, c, mixed, "c.mixed"), prefix, "out_proj", width);
}
