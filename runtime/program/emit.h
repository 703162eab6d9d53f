/* runtime/program/emit.h - how a family writes its program: values, weights, states, and one function an operation.
 *
 * The emitter's error is sticky: after the first failure everything is a no-op that answers -1, and a family checks nothing.
 * Blocks made of operations (attention, feed-forward, experts, ...) are in blocks.h, families in families.h. */
#ifndef APR_RUNTIME_EMIT_H
#define APR_RUNTIME_EMIT_H

#include "formats/model/family.h"
#include "runtime/program/program.h"

/* Rotary tables of a program, each made when it is first asked for. */
typedef enum { APR_ROTARY_GLOBAL, APR_ROTARY_LOCAL, APR_ROTARY_NONE } apr_rotary;

/* How norms multiply; weight and bias are names behind the layer's. */
typedef struct apr_norm_facts {
    const char *weight; /* NULL: none */
    const char *bias;   /* NULL: none; else it must be there */
    apr_norm_kind kind;
    int64_t chunk;   /* 0: the whole row */
    bool row_weight; /* the weight is as wide as the row, whatever the chunk */
    float offset, eps;
} apr_norm_facts;

typedef struct apr_emitter {
    apr_program *program;
    const apr_hparams *hparams;
    const apr_family *family; /* its card */
    apr_error *err;
    apr_status status;
    int layer;           /* of what is emitted next; -1: of none */
    const char *root;    /* what names of weights begin with: "model." */
    apr_norm_facts norm; /* the usual one: kind, offset, eps */
    struct {
        int table, angles; /* -1: not made yet */
    } rotary[APR_ROTARY_NONE];
} apr_emitter;

void apr_emit_fail(apr_emitter *e, apr_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
int64_t apr_emit_width(const apr_emitter *e, int value); /* 0 after a failure */

/* --- things: each answers the index of the new one. A name is "model.layers.%lld." of the current layer + name, when there is one.
 * What a weight is used for follows from the operations that get it; a role is the line of the plan it belongs to. --- */

int apr_emit_value(apr_emitter *e, const char *name, int64_t width);
int apr_emit_weight(apr_emitter *e, const char *name, apr_role role, int64_t rows, int64_t columns);
int apr_emit_stacked(apr_emitter *e, const char *name, apr_role role, int64_t n, int64_t rows, int64_t columns);
/* n equal matrices in tensors of their own; the name has '*' where their numbers stand. */
int apr_emit_equals(apr_emitter *e, const char *name, apr_role role, int64_t n, int64_t rows, int64_t columns);
/* n numbers, in a tensor of any shape. */
int apr_emit_vector(apr_emitter *e, const char *name, int64_t n, bool optional);
/* The same, kept as exp(number): rates that are stored as logarithms. */
int apr_emit_exp_vector(apr_emitter *e, const char *name, int64_t n);
int apr_emit_state(apr_emitter *e, apr_state state);
/* An empty rotary table, to be filled. */
int apr_emit_rope_table(apr_emitter *e);
/* A copy of op, its layer set. Unused indices must be -1: start from apr_no_op. */
void apr_emit_op(apr_emitter *e, apr_op op);
extern const apr_op apr_no_op;
/* Marks the value as the next hidden state. */
void apr_emit_tap(apr_emitter *e, int value);

/* --- operations: each answers its output value, which is called `out` --- */

typedef enum { APR_NO_BIAS, APR_MAY_HAVE_BIAS, APR_MUST_HAVE_BIAS } apr_bias_style;

int apr_emit_embed(apr_emitter *e, const char *table, int64_t width, const char *out);
/* The same of a table that stays in the host's memory where the rest is on a device. */
int apr_emit_embed_from_host(apr_emitter *e, const char *table, int64_t width, const char *out);
/* Cosines and sines of a rotary table. */
int apr_emit_angles(apr_emitter *e, apr_rotary rotary);
/* The usual norm, over the whole row. */
int apr_emit_norm(apr_emitter *e, int x, const char *weight, const char *out);
int apr_emit_norm_of(apr_emitter *e, int x, const apr_norm_facts *facts, const char *out);
/* With NAME.weight [rows, width of x] and NAME.bias. */
int apr_emit_linear(apr_emitter *e, int x, const char *name, apr_role role, int64_t rows, apr_bias_style bias, const char *out);
/* With the weights PREFIX.NAME.*: the product is called NAME. */
int apr_emit_part(apr_emitter *e, int x, const char *prefix, const char *name, apr_role role, int64_t rows, apr_bias_style bias);
/* With a slot that is there already. */
int apr_emit_product(apr_emitter *e, int x, int weight, int bias, const char *out);
/* Numbers [start, start + head_dim) of each head from `start` on. */
int apr_emit_rope(apr_emitter *e, int x, apr_rotary rotary, apr_rope_mode mode, int64_t head_dim, int64_t start, const char *out);
/* Numbers [start, start + n) of each of n_heads heads. */
int apr_emit_slice(apr_emitter *e, int x, int64_t n_heads, int64_t start, int64_t n, const char *out);
int apr_emit_join(apr_emitter *e, int a, int b, int64_t n_heads, const char *out);
/* x itself where the factor is 1. */
int apr_emit_scale(apr_emitter *e, int x, double factor, const char *out);
/* x itself where warmth is 0. */
int apr_emit_warm(apr_emitter *e, int x, double warmth, double shift, double period, const char *out);
int apr_emit_mul(apr_emitter *e, int x, int y, const char *out);
/* With a vector of n numbers: the width of x, or 1. */
int apr_emit_mul_vector(apr_emitter *e, int x, const char *weight, int64_t n, const char *out);
/* x itself where the cap is 0. */
int apr_emit_softcap(apr_emitter *e, int x, double cap, const char *out);
int apr_emit_add(apr_emitter *e, int a, int b, const char *out);
/* up: -1 for an activation alone. */
int apr_emit_glu(apr_emitter *e, int gate, int up, apr_glu_shape shape, const char *out);
/* A gate of any width that the width of x is a multiple of. */
int apr_emit_gate(apr_emitter *e, int x, int gate, apr_activation activation, const char *out);
/* Over n_taps tokens, with a state of its own; taps NAME.weight, and NAME.bias where there is one. */
int apr_emit_conv(apr_emitter *e, int x, const char *name, int64_t n_taps, apr_activation activation, const char *out);

/* --- what rotary tables are made of: rope.c --- */

typedef struct apr_rope_facts {
    const apr_rope_scaling *scaling;
    double theta;
    int64_t rotary_dim;
    int64_t max_position_embeddings;
} apr_rope_facts;

/* APR_E_UNSUPPORTED for a scaling that is not known. `where` is for the sentence. */
apr_status apr_rope_table_fill(apr_rope_table *table, const apr_rope_facts *facts, apr_arena *arena, const char *where, apr_error *err);

#endif
