/* runtime/emit.h - how a family writes its program; for the family_*.c files.
 *
 * The emitter's error is sticky: after the first failure everything is a no-op that answers -1, and a family checks nothing. */
#ifndef APR_RUNTIME_EMIT_H
#define APR_RUNTIME_EMIT_H

#include "runtime/program.h"

typedef struct apr_emitter {
    apr_program *program;
    const apr_hparams *hparams;
    apr_error *err;
    apr_status status;
    int layer; /* of what is emitted next */
} apr_emitter;

typedef void (*apr_family_fn)(apr_emitter *e);

void apr_emit_fail(apr_emitter *e, apr_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Each answers the index of the new thing. A name is "model.layers.%lld." of the current layer + name, when there is one. */
int apr_emit_value(apr_emitter *e, const char *name, int64_t width);
int apr_emit_weight(apr_emitter *e, const char *name, apr_role role, int64_t rows, int64_t columns);
int apr_emit_stacked(apr_emitter *e, const char *name, apr_role role, int64_t n, int64_t rows, int64_t columns);
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
/* weight "NAME.weight"; bias: -1 or the slot of it */
int apr_emit_linear(apr_emitter *e, int x, int weight, int bias, const char *out);
int apr_emit_add(apr_emitter *e, int a, int b, const char *out);
int apr_emit_glu(apr_emitter *e, int gate, int up, const char *out);

/* Parts that families share. */
typedef struct apr_attention_style {
    bool require_bias; /* q, k, v (and o with o_bias) */
    bool require_o_bias;
    bool qk_norm; /* q_norm, k_norm over each head */
} apr_attention_style;

/* Token embeddings and rotary angles; x is the hidden state. */
typedef struct apr_stream {
    int x, angles;
} apr_stream;
apr_stream apr_emit_start(apr_emitter *e);
/* x + attention(norm(x)) of the current layer. */
void apr_emit_attention(apr_emitter *e, apr_stream *s, const apr_attention_style *style);
/* x + down(silu(gate(norm(x))) * up(norm(x))) of the current layer; marks the hidden state. */
void apr_emit_mlp(apr_emitter *e, apr_stream *s, int64_t width);
/* Final norm and output head. */
void apr_emit_end(apr_emitter *e, apr_stream *s);

apr_layer_kind apr_emit_layer_kind(const apr_emitter *e);

void apr_emit_llama(apr_emitter *e);
void apr_emit_qwen2(apr_emitter *e);
void apr_emit_qwen3(apr_emitter *e);
void apr_emit_mistral(apr_emitter *e);

#endif
