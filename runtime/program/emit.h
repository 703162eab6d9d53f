/* runtime/program/emit.h - how a family writes its program; for families/emit_*.c.
 *
 * The emitter's error is sticky: after the first failure everything is a no-op that answers -1, and a family checks nothing. */
#ifndef APR_RUNTIME_EMIT_H
#define APR_RUNTIME_EMIT_H

#include "formats/model/family.h"
#include "runtime/program/program.h"

typedef struct apr_emitter {
    apr_program *program;
    const apr_hparams *hparams;
    const apr_family *family; /* its card */
    apr_error *err;
    apr_status status;
    int layer; /* of what is emitted next */
} apr_emitter;

typedef void (*apr_family_fn)(apr_emitter *e);

void apr_emit_fail(apr_emitter *e, apr_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Each answers the index of the new thing. A name is "model.layers.%lld." of the current layer + name, when there is one.
 * What a weight is used for follows from the operations that get it; a role is the line of the plan it belongs to. */
int apr_emit_value(apr_emitter *e, const char *name, int64_t width);
int apr_emit_weight(apr_emitter *e, const char *name, apr_role role, int64_t rows, int64_t columns);
int apr_emit_stacked(apr_emitter *e, const char *name, apr_role role, int64_t n, int64_t rows, int64_t columns);
/* n equal matrices in tensors of their own; the name has '*' where their numbers stand. */
int apr_emit_equals(apr_emitter *e, const char *name, apr_role role, int64_t n, int64_t rows, int64_t columns);
int apr_emit_vector(apr_emitter *e, const char *name, int64_t n, bool optional);
int apr_emit_state(apr_emitter *e, apr_state state);
int apr_emit_rope(apr_emitter *e, int divisors);
/* A copy of op, its layer set. Unused indices must be -1: start from apr_no_op. */
void apr_emit_op(apr_emitter *e, apr_op op);
extern const apr_op apr_no_op;

/* The frequencies that the hyperparameters ask for. */
apr_status apr_rope_table_fill(apr_rope_table *table, const apr_hparams *hparams, apr_arena *arena, apr_error *err);

/* Marks the value as the next hidden state. */
void apr_emit_tap(apr_emitter *e, int value);

/* Operations with their output value, which they return. */
int apr_emit_norm(apr_emitter *e, int x, const char *weight, const char *out); /* over the whole row */
/* Heads of head_dim numbers, each on its own. */
int apr_emit_head_norm(apr_emitter *e, int x, int64_t head_dim, const char *weight, const char *out);
/* weight: a slot; bias: -1 or the slot of it */
int apr_emit_linear(apr_emitter *e, int x, int weight, int bias, const char *out);
int apr_emit_add(apr_emitter *e, int a, int b, const char *out);
/* An operation of two inputs as wide as the first. */
int apr_emit_pair(apr_emitter *e, apr_op_kind kind, int a, int b, const char *out);
int apr_emit_glu(apr_emitter *e, int gate, int up, const char *out);

/* Parts that families share. */
typedef enum { APR_NO_BIAS, APR_MAY_HAVE_BIAS, APR_MUST_HAVE_BIAS } apr_bias_style;

/* Token embeddings and rotary angles; x is the hidden state. */
typedef struct apr_stream {
    int x, angles;
} apr_stream;
apr_stream apr_emit_start(apr_emitter *e);
/* x + attention(norm(x)) of the current layer, as the family's card says. */
void apr_emit_attention(apr_emitter *e, apr_stream *s);
/* down(silu(gate(n)) * up(n)), the matrices under PREFIX. */
int apr_emit_mlp_of(apr_emitter *e, int n, const char *prefix, int64_t width, apr_bias_style biases);
/* x + down(silu(gate(norm(x))) * up(norm(x))) of the current layer; marks the hidden state. */
void apr_emit_mlp(apr_emitter *e, apr_stream *s, int64_t width, apr_bias_style biases);
/* Final norm and output head. */
void apr_emit_end(apr_emitter *e, apr_stream *s);

apr_layer_kind apr_emit_layer_kind(const apr_emitter *e);

#define X(name) void apr_emit_##name(apr_emitter *e);
APR_PROGRAM_LIST(X)
#undef X

/* Of emit_mixture.c: the routed experts of the current layer on the normed hidden state n, as the family's card says. */
int apr_emit_experts(apr_emitter *e, int n);

#endif
