/* emit.c - the emitter: values, weights and states of a program, and one function per operation, whose shapes follow from its inputs. */
#include "runtime/program/emit.h"
#include "runtime/program/op_spec.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const apr_op apr_no_op = {.layer = -1, .in = {-1, -1, -1}, .out = -1, .weight = {-1, -1, -1, -1, -1, -1}, .state = -1, .rope = -1};

void apr_emit_fail(apr_emitter *e, apr_status status, const char *format, ...)
{
    char text[512];
    va_list arguments;

    if (e->status != APR_OK) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    e->status = apr_fail(e->err, status, "%s: %s", e->hparams->architecture, text);
}

/* Appends a zeroed element of `size` bytes; arrays double when they are full. NULL after a failure: emit nothing. */
static void *append(apr_emitter *e, void **array, size_t *n, size_t size)
{
    if (e->status != APR_OK) return NULL;
    if ((*n & (*n - 1)) == 0) {
        void *const grown = realloc(*array, (*n == 0 ? 1 : *n * 2) * size);
        if (grown == NULL) {
            e->status = apr_no_memory(e->err, "the program of the model");
            return NULL;
        }
        *array = grown;
    }
    void *const element = (char *)*array + size * (*n)++;
    memset(element, 0, size);
    return element;
}

#define APPEND(e, field) append(e, (void **)&(e)->program->field, &(e)->program->n_##field, sizeof *(e)->program->field)

static const char *layer_name(apr_emitter *e, const char *prefix, const char *name)
{
    const char *const text = e->layer < 0 ? apr_arena_print(&e->program->arena, "%s", name)
                                          : apr_arena_print(&e->program->arena, "%slayers.%d.%s", prefix, e->layer, name);
    if (text == NULL && e->status == APR_OK) e->status = apr_no_memory(e->err, "the program of the model");
    return text;
}

int apr_emit_value(apr_emitter *e, const char *name, int64_t width)
{
    if (width <= 0 || width > APR_MAX_ROW)
        apr_emit_fail(e, APR_E_UNSUPPORTED, "a row of %lld numbers (%s) cannot be run", (long long)width, name);
    apr_value *const value = APPEND(e, values);
    if (value == NULL) return -1;
    *value = (apr_value){.name = layer_name(e, "", name), .width = width, .tap = -1};
    return (int)e->program->n_values - 1;
}

/* The slot of that name that the layer has already, or -1. Gemma 3n routes the streams twice with the same weights. */
static int find_slot(const apr_emitter *e, const char *name)
{
    const apr_program *const p = e->program;
    for (size_t i = p->n_weights; name != NULL && i > 0; i--) {
        const apr_weight_slot *const slot = &p->weights[i - 1];
        if (slot->layer >= 0 && slot->layer != e->layer) break; /* of an earlier layer */
        if (strcmp(slot->name, name) == 0) return (int)i - 1;
    }
    return -1;
}

static int emit_slot(apr_emitter *e, const char *name, apr_weight_slot slot)
{
    const char *const full = e->status == APR_OK ? layer_name(e, e->root, name) : NULL;
    const int known = e->status == APR_OK ? find_slot(e, full) : -1;
    apr_weight_slot *const weight = known < 0 ? APPEND(e, weights) : NULL;
    if (weight == NULL) return known;
    slot.name = full;
    slot.layer = e->layer;
    if (slot.count == 0) slot.count = 1;
    *weight = slot;
    return (int)e->program->n_weights - 1;
}

int apr_emit_weight(apr_emitter *e, const char *name, apr_role role, int64_t rows, int64_t columns)
{
    return emit_slot(e, name, (apr_weight_slot){.role = role, .rank = 2, .dims = {rows, columns}});
}

int apr_emit_stacked(apr_emitter *e, const char *name, apr_role role, int64_t n, int64_t rows, int64_t columns)
{
    return emit_slot(e, name, (apr_weight_slot){.role = role, .rank = 3, .dims = {n, rows, columns}});
}

int apr_emit_matrices(apr_emitter *e, const char *name, apr_role role, int64_t n, int64_t rows, int64_t columns)
{
    return emit_slot(e, name, (apr_weight_slot){.role = role, .rank = 2, .dims = {rows, columns}, .count = n});
}

int apr_emit_vector(apr_emitter *e, const char *name, int64_t n, bool optional)
{
    return emit_slot(e, name, (apr_weight_slot){.role = APR_ROLE_VECTORS, .rank = 1, .dims = {n}, .optional = optional});
}

int apr_emit_state(apr_emitter *e, apr_state state)
{
    apr_state *const slot = APPEND(e, states);
    if (slot == NULL) return -1;
    *slot = state;
    slot->layer = e->layer;
    return (int)e->program->n_states - 1;
}

int apr_emit_exp_vector(apr_emitter *e, const char *name, int64_t n)
{
    const int slot = apr_emit_vector(e, name, n, false);
    if (slot >= 0) e->program->weights[slot].is_log = true;
    return slot;
}

/* An empty rotary table. */
static int emit_rope_table(apr_emitter *e) { return APPEND(e, ropes) != NULL ? (int)e->program->n_ropes - 1 : -1; }

/* The operations that read a weight decide how it is used. A vector can only be used as float32. */
static void use_weight(apr_emitter *e, const apr_op *op, int i)
{
    const apr_weight_use use = apr_op_specs[op->kind]->weights[i].use;
    apr_weight_slot *const slot = &e->program->weights[op->weight[i]];

    slot->uses |= use;
    if (use == APR_USE_NONE || (slot->role == APR_ROLE_VECTORS && use != APR_USE_FLOAT))
        apr_emit_fail(e, APR_E_UNSUPPORTED, "'%s' cannot be used by the operation '%s'", slot->name, apr_op_name(op->kind));
}

void apr_emit_op(apr_emitter *e, apr_op op)
{
    apr_op *const slot = APPEND(e, ops);
    if (slot == NULL) return;
    *slot = op;
    slot->layer = e->layer;
    for (int i = 0; i < APR_OP_MAX_WEIGHTS; i++)
        if (op.weight[i] >= 0) use_weight(e, &op, i);
}

void apr_emit_tap(apr_emitter *e, int value)
{
    if (e->status == APR_OK) e->program->values[value].tap = (int)e->program->n_taps++;
}

/* --- operations --- */

int64_t apr_emit_width(const apr_emitter *e, int value) { return e->status == APR_OK && value >= 0 ? e->program->values[value].width : 0; }

/* Does the value exist only for tokens whose logits are wanted? Values computed from it then do as well. */
static bool is_logits(const apr_emitter *e, int value) { return e->status == APR_OK && value >= 0 && e->program->values[value].is_logits; }

static apr_op op_of(apr_op_kind kind, int a, int b)
{
    apr_op op = apr_no_op;
    op.kind = kind;
    op.in[0] = a;
    op.in[1] = b;
    return op;
}

/* Creates the operation's output and appends the operation. */
static int finish(apr_emitter *e, apr_op op, const char *out, int64_t width)
{
    const bool logits = op.in[0] >= 0 && is_logits(e, op.in[0]);

    op.out = apr_emit_value(e, out, width);
    if (logits && e->status == APR_OK) e->program->values[op.out].is_logits = true;
    apr_emit_op(e, op);
    return op.out;
}

/* The number of heads in a row. */
static int64_t heads_of(apr_emitter *e, int x, int64_t head_dim, const char *out)
{
    const int64_t width = apr_emit_width(e, x);
    if (e->status != APR_OK) return 0;
    if (head_dim > 0 && width % head_dim == 0) return width / head_dim;
    apr_emit_fail(e, APR_E_DAMAGED, "a row of %lld is not a multiple of %lld (%s of layer %d)", (long long)width, (long long)head_dim, out,
                  e->layer);
    return 0;
}

static int emit_embed(apr_emitter *e, const char *table, int64_t n_rows, int64_t width, const char *out)
{
    apr_op op = op_of(APR_OP_EMBED, -1, -1);
    op.weight[0] = apr_emit_weight(e, table, APR_ROLE_EMBEDDING, n_rows, width);
    op.args.embed.n_rows = n_rows;
    return finish(e, op, out, width);
}

int apr_emit_embed(apr_emitter *e, const char *table, int64_t width, const char *out)
{
    return emit_embed(e, table, e->hparams->vocab_size, width, out);
}

int apr_emit_embed_from_host(apr_emitter *e, const char *table, int64_t n_rows, int64_t width, const char *out)
{
    const int value = emit_embed(e, table, n_rows, width, out);
    if (e->status == APR_OK) e->program->weights[e->program->ops[e->program->n_ops - 1].weight[0]].from_host = true;
    return value;
}

int apr_emit_positions(apr_emitter *e, const char *table, int64_t n_rows, int64_t first, int64_t width, const char *out)
{
    apr_op op = op_of(APR_OP_POSITIONS, -1, -1);
    if (n_rows <= first) apr_emit_fail(e, APR_E_DAMAGED, "the model does not state its max_position_embeddings");
    if (e->status != APR_OK) return -1;
    op.args.positions.first = first;
    op.weight[0] = apr_emit_weight(e, table, APR_ROLE_EMBEDDING, n_rows, width);
    e->program->most_positions = n_rows - first;
    e->program->why_most = "they are learned, and a longer context has no embeddings after them";
    return finish(e, op, out, width);
}

int apr_emit_norm_of(apr_emitter *e, int x, const apr_norm_facts *f, const char *out)
{
    const int64_t width = apr_emit_width(e, x), chunk = f->chunk > 0 ? f->chunk : width;
    const int64_t n_weight = f->row_weight ? width : chunk;
    apr_op op = op_of(APR_OP_NORM, x, -1);
    char next_to_weight[128];

    heads_of(e, x, chunk, out);
    op.args.norm = (apr_norm_args){
        .kind = f->kind, .width = width, .chunk = chunk, .n_weight = n_weight, .eps = f->eps, .offset = f->weight != NULL ? f->offset : 0};
    if (f->weight != NULL) op.weight[0] = apr_emit_vector(e, f->weight, n_weight, false);
    if (f->biased && f->weight != NULL)
        snprintf(next_to_weight, sizeof next_to_weight, "%.*s.bias", (int)(strlen(f->weight) - strlen(".weight")), f->weight);
    const char *const bias = f->biased && f->weight != NULL ? next_to_weight : f->bias;
    if (bias != NULL) op.weight[1] = apr_emit_vector(e, bias, n_weight, false);
    return finish(e, op, out, width);
}

int apr_emit_norm(apr_emitter *e, int x, const char *weight, const char *out)
{
    apr_norm_facts facts = e->norm;
    facts.weight = weight;
    return apr_emit_norm_of(e, x, &facts, out);
}

int apr_emit_product(apr_emitter *e, int x, int weight, int bias, const char *out)
{
    apr_op op = op_of(APR_OP_LINEAR, x, -1);
    if (e->status != APR_OK) return -1;
    op.weight[0] = weight;
    op.weight[1] = bias;
    return finish(e, op, out, e->program->weights[weight].dims[0]);
}

int apr_emit_linear(apr_emitter *e, int x, const char *name, apr_role role, int64_t rows, apr_bias_style bias, const char *out)
{
    char text[128];

    snprintf(text, sizeof text, "%s.weight", name);
    const int weight = apr_emit_weight(e, text, role, rows, apr_emit_width(e, x));
    snprintf(text, sizeof text, "%s.bias", name);
    const int slot = bias == APR_NO_BIAS ? -1 : apr_emit_vector(e, text, rows, bias == APR_MAY_HAVE_BIAS);
    return apr_emit_product(e, x, weight, slot, out);
}

int apr_emit_linear_of(apr_emitter *e, int x, const char *prefix, const char *name, apr_role role, int64_t rows, apr_bias_style bias)
{
    char text[128];

    snprintf(text, sizeof text, "%s.%s", prefix, name);
    return apr_emit_linear(e, x, text, role, rows, bias, name);
}

static apr_rope_facts facts_of(const apr_hparams *h, apr_rotary rotary)
{
    const bool is_local = rotary == APR_ROTARY_LOCAL;
    const apr_rope_scaling *const scaling = is_local ? &h->rope_local : &h->rope;
    /* Proportional frequencies cover the whole head, and most of them are 0. Full layers may have wider heads than sliding ones. */
    const int64_t whole = !is_local && h->global_head_dim > 0 ? h->global_head_dim : h->head_dim;
    return (apr_rope_facts){.scaling = scaling,
                            .theta = is_local ? h->rope_theta_local : h->rope_theta,
                            .rotary_dim = scaling->kind == APR_ROPE_PROPORTIONAL ? whole : h->rotary_dim,
                            .max_position_embeddings = h->max_position_embeddings};
}

static int emit_table(apr_emitter *e, apr_rotary rotary)
{
    const apr_rope_facts facts = facts_of(e->hparams, rotary);
    apr_program *const program = e->program;
    const int index = emit_rope_table(e);

    if (index < 0) return -1;
    /* llama.cpp stores llama 3's scaling as divisors of the frequencies. A model that states the scaling itself needs no divisors. */
    const bool may_divide = facts.scaling->kind == APR_ROPE_PLAIN && rotary == APR_ROTARY_GLOBAL && facts.rotary_dim / 2 > 0;
    const int layer = e->layer;
    e->layer = -1;
    const int divisors = may_divide ? apr_emit_vector(e, "rope_freqs.weight", facts.rotary_dim / 2, true) : -1;
    e->layer = layer;
    if (e->status != APR_OK) return -1;
    program->ropes[index].divisors = divisors;
    if (divisors >= 0) program->weights[divisors].uses |= APR_USE_FLOAT;
    e->status = apr_rope_table_fill(&program->ropes[index], &facts, &program->arena, e->hparams->architecture, e->err);
    if (facts.scaling->kind == APR_ROPE_DYNAMIC && facts.scaling->alpha == 0.0) { /* plain up to there */
        program->most_positions = facts.max_position_embeddings;
        program->why_most = "in a longer context the rotary scaling 'dynamic' rotates all of them otherwise";
    }
    return index;
}

/* Cosines and sines of a rotary table, once for all layers. */
static int emit_angles(apr_emitter *e, apr_rotary rotary)
{
    apr_op op = op_of(APR_OP_ANGLES, -1, -1);
    const int layer = e->layer;

    if (e->status != APR_OK) return -1;
    if (e->rotary[rotary].table >= 0) return e->rotary[rotary].angles;
    op.rope = e->rotary[rotary].table = emit_table(e, rotary);
    if (e->status != APR_OK) return -1;
    e->layer = -1;
    e->rotary[rotary].angles =
        finish(e, op, rotary == APR_ROTARY_LOCAL ? "angles of windows" : "angles", 2 * e->program->ropes[op.rope].n_freqs);
    e->layer = layer;
    return e->rotary[rotary].angles;
}

int apr_emit_rope(apr_emitter *e, int x, apr_rotary rotary, apr_rope_mode mode, int64_t head_dim, int64_t start, const char *out)
{
    if (rotary == APR_ROTARY_NONE) return x;
    apr_op op = op_of(APR_OP_ROPE, x, emit_angles(e, rotary));
    if (e->status != APR_OK) return -1;
    op.rope = e->rotary[rotary].table;
    op.args.rope = (apr_rope_args){.n_heads = heads_of(e, x, head_dim, out), .head_dim = head_dim, .start = start, .mode = mode};
    if (start + 2 * e->program->ropes[op.rope].n_freqs > head_dim)
        apr_emit_fail(e, APR_E_DAMAGED, "%lld numbers from %lld on cannot be rotated in a head of %lld",
                      (long long)(2 * e->program->ropes[op.rope].n_freqs), (long long)start, (long long)head_dim);
    return finish(e, op, out, apr_emit_width(e, x));
}

int apr_emit_slice(apr_emitter *e, int x, int64_t n_heads, int64_t start, int64_t n, const char *out)
{
    const int64_t head_dim = n_heads > 0 ? apr_emit_width(e, x) / n_heads : 0;
    apr_op op = op_of(APR_OP_SLICE, x, -1);

    heads_of(e, x, head_dim, out);
    if (e->status == APR_OK && (start < 0 || n <= 0 || start + n > head_dim))
        apr_emit_fail(e, APR_E_DAMAGED, "a head of %lld has no numbers %lld to %lld (%s)", (long long)head_dim, (long long)start,
                      (long long)(start + n), out);
    op.args.slice = (apr_slice_args){.n_heads = n_heads, .head_dim = head_dim, .start = start, .n = n};
    return finish(e, op, out, n_heads * n);
}

int apr_emit_join(apr_emitter *e, int a, int b, int64_t n_heads, const char *out)
{
    const int64_t n_a = apr_emit_width(e, a), n_b = apr_emit_width(e, b);
    apr_op op = op_of(APR_OP_JOIN, a, b);

    if (e->status != APR_OK) return -1;
    op.args.join = (apr_join_args){.n_heads = n_heads, .n_a = n_a / n_heads, .n_b = n_b / n_heads};
    return finish(e, op, out, n_a + n_b);
}

static int emit_scale(apr_emitter *e, int x, apr_scale_args scale, const char *out)
{
    apr_op op = op_of(APR_OP_SCALE, x, -1);
    op.args.scale = scale;
    op.args.scale.width = apr_emit_width(e, x);
    return finish(e, op, out, op.args.scale.width);
}

int apr_emit_scale(apr_emitter *e, int x, double factor, const char *out)
{
    return factor == 1.0 ? x : emit_scale(e, x, (apr_scale_args){.factor = (float)factor}, out);
}

int apr_emit_query_scale(apr_emitter *e, int x, double warmth, double shift, double period, const char *out)
{
    if (warmth == 0.0) return x;
    if (!(period > 0.0))
        apr_emit_fail(e, APR_E_DAMAGED, "the model does not state the period of its query scale (attn_temperature_length)");
    return emit_scale(e, x, (apr_scale_args){.factor = 1.0f, .warmth = (float)warmth, .shift = (float)shift, .period = (float)period}, out);
}

int apr_emit_mul(apr_emitter *e, int x, int y, const char *out)
{
    apr_op op = op_of(APR_OP_MUL, x, y);
    op.args.mul = (apr_mul_args){.width = apr_emit_width(e, x), .y_width = apr_emit_width(e, y)};
    return finish(e, op, out, op.args.mul.width);
}

int apr_emit_mul_vector(apr_emitter *e, int x, const char *weight, int64_t n, const char *out)
{
    apr_op op = op_of(APR_OP_MUL, x, -1);
    op.args.mul = (apr_mul_args){.width = apr_emit_width(e, x), .y_width = n, .y_is_vector = true};
    op.weight[0] = apr_emit_vector(e, weight, n, false);
    return finish(e, op, out, op.args.mul.width);
}

int apr_emit_softcap(apr_emitter *e, int x, double cap, const char *out)
{
    apr_op op = op_of(APR_OP_SOFTCAP, x, -1);
    if (cap == 0.0) return x;
    op.args.softcap = (apr_softcap_args){.width = apr_emit_width(e, x), .cap = (float)cap};
    return finish(e, op, out, op.args.softcap.width);
}

int apr_emit_add(apr_emitter *e, int a, int b, const char *out)
{
    apr_op op = op_of(APR_OP_ADD, a, b);
    op.args.add.width = apr_emit_width(e, a);
    return finish(e, op, out, op.args.add.width);
}

int apr_emit_altup(apr_emitter *e, int x, int y, int routed, const char *coefs, apr_altup_args args, const char *out)
{
    const int64_t n = args.n_streams, width = apr_emit_width(e, x), each = n > 0 ? width / n : 0;
    apr_op op = op_of(APR_OP_ALTUP, x, y);

    if (n < 2 || n > APR_ALTUP_STREAMS)
        apr_emit_fail(e, APR_E_DAMAGED, "%lld streams of hidden states are not supported (2 to %d)", (long long)n, APR_ALTUP_STREAMS);
    if (args.first < 0 || args.first >= n || args.minus >= n)
        apr_emit_fail(e, APR_E_DAMAGED, "there are %lld streams of hidden states, and none is stream %lld", (long long)n,
                      (long long)(args.minus >= n ? args.minus : args.first));
    args.n_y = heads_of(e, y, each, out);
    args.width = each;
    op.in[2] = routed;
    if (coefs != NULL) op.weight[0] = apr_emit_vector(e, coefs, n * args.n_y * n, false);
    op.args.altup = args;
    return finish(e, op, out, width);
}

int apr_emit_rescale(apr_emitter *e, int x, int like, double floor, const char *out)
{
    apr_op op = op_of(APR_OP_RESCALE, x, like);
    op.args.rescale = (apr_rescale_args){.width = apr_emit_width(e, x), .floor = (float)floor};
    return finish(e, op, out, op.args.rescale.width);
}

int apr_emit_gauss_topk(apr_emitter *e, int x, double share, const char *out)
{
    apr_op op = op_of(APR_OP_GAUSS_TOPK, x, -1);
    if (!(share > 0.0 && share < 1.0)) apr_emit_fail(e, APR_E_DAMAGED, "an activation sparsity of %g is not between 0 and 1", share);
    if (e->status != APR_OK) return -1;
    op.args.gauss_topk = (apr_gauss_topk_args){.width = apr_emit_width(e, x), .factor = apr_sparsity_quantile(share)};
    return finish(e, op, out, op.args.gauss_topk.width);
}

int apr_emit_glu(apr_emitter *e, int gate, int up, apr_glu_shape shape, const char *out)
{
    apr_op op = op_of(APR_OP_GLU, gate, up);
    op.args.glu = (apr_glu_args){.width = apr_emit_width(e, gate), .shape = shape};
    return finish(e, op, out, op.args.glu.width);
}

int apr_emit_gate(apr_emitter *e, int x, int gate, apr_activation activation, const char *out)
{
    const int64_t width = apr_emit_width(e, x), n_gates = apr_emit_width(e, gate);
    apr_op op = op_of(APR_OP_GATE, x, gate);

    if (e->status != APR_OK) return -1;
    op.args.gate = (apr_gate_args){.n_heads = n_gates, .head_dim = width / n_gates, .activation = activation};
    return finish(e, op, out, width);
}

int apr_emit_conv(apr_emitter *e, int x, const char *name, int64_t n_taps, apr_activation activation, const char *out)
{
    const int64_t width = apr_emit_width(e, x);
    apr_op op = op_of(APR_OP_CONV, x, -1);
    char text[128];

    if (n_taps < 2 || n_taps > 64)
        apr_emit_fail(e, APR_E_DAMAGED, "a convolution over %lld tokens is not supported (2 to 64)", (long long)n_taps);
    if (e->status != APR_OK) return -1;
    snprintf(text, sizeof text, "%s.weight", name);
    op.weight[0] = apr_emit_vector(e, text, width * n_taps, false);
    snprintf(text, sizeof text, "%s.bias", name);
    op.weight[1] = apr_emit_vector(e, text, width, true);
    op.state = apr_emit_state(e, (apr_state){.kind = APR_STATE_CONV, .n_floats = (n_taps - 1) * width});
    op.args.conv = (apr_conv_args){.width = width, .n_taps = n_taps, .activation = activation};
    return finish(e, op, out, width);
}
