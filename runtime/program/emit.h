/* runtime/program/emit.h - the functions that a family writes its program with: values, weights, states, and one function per operation.
 *
 * The emitter's error is sticky: after the first failure every call does nothing and returns -1, so families need no checks. Blocks of
 * operations (attention, feed-forward, experts, ...) are in blocks.h, families in families.h. */
#ifndef APR_RUNTIME_EMIT_H
#define APR_RUNTIME_EMIT_H

#include "formats/shape/family.h"
#include "runtime/program/program.h"

/* The rotary tables of a program. Each is created at its first use. */
typedef enum { APR_ROTARY_GLOBAL, APR_ROTARY_LOCAL, APR_ROTARY_NONE } apr_rotary;

/* A norm. Names of weight and bias are relative to the layer. */
typedef struct apr_norm_facts {
    const char *weight; /* NULL: none */
    const char *bias;   /* NULL: none; otherwise the tensor must exist */
    bool biased;        /* the bias is next to the weight: NAME.weight, NAME.bias */
    apr_norm_kind kind;
    int64_t chunk;   /* 0: the whole row */
    bool row_weight; /* the weight is as wide as the row, not as the chunk */
    float offset, eps;
} apr_norm_facts;

typedef struct apr_emitter {
    apr_program *program;
    const apr_hparams *hparams;
    const apr_family *family; /* its spec */
    apr_error *err;
    apr_status status;
    int layer;           /* of the next operation; -1: outside of the layers */
    const char *root;    /* prefix of weight names: "model." */
    apr_norm_facts norm; /* default norm: kind, offset, eps */
    int chosen;          /* the positions that the last index chose, for layers that share them; 0: none yet */
    struct {
        int table, angles; /* -1: not created yet */
    } rotary[APR_ROTARY_NONE];
} apr_emitter;

void apr_emit_fail(apr_emitter *e, apr_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
int64_t apr_emit_width(const apr_emitter *e, int value); /* 0 after a failure */

/* --- elements: each function returns the index of the new one. Inside a layer "model.layers.%lld." is put before the name. A weight's
 * use follows from the operations that read it; its role is its line in a plan. --- */

int apr_emit_value(apr_emitter *e, const char *name, int64_t width);
int apr_emit_weight(apr_emitter *e, const char *name, apr_role role, int64_t rows, int64_t columns);
int apr_emit_stacked(apr_emitter *e, const char *name, apr_role role, int64_t n, int64_t rows, int64_t columns);
/* n matrices of the same shape in single tensors; the name has '*' in place of their number. */
int apr_emit_matrices(apr_emitter *e, const char *name, apr_role role, int64_t n, int64_t rows, int64_t columns);
/* n numbers, in a tensor of any shape. */
int apr_emit_vector(apr_emitter *e, const char *name, int64_t n, bool optional);
/* The same, stored as logarithms and kept as exp(number). */
int apr_emit_exp_vector(apr_emitter *e, const char *name, int64_t n);
int apr_emit_state(apr_emitter *e, apr_state state);
/* Appends a copy of op with the current layer. Unused indices must be -1: start from apr_no_op. */
void apr_emit_op(apr_emitter *e, apr_op op);
extern const apr_op apr_no_op;
/* Marks the value as the next hidden state. */
void apr_emit_tap(apr_emitter *e, int value);

/* --- operations: each returns its output value, whose name is `out` --- */

typedef enum { APR_NO_BIAS, APR_MAY_HAVE_BIAS, APR_MUST_HAVE_BIAS } apr_bias_style;

int apr_emit_embed(apr_emitter *e, const char *table, int64_t width, const char *out);
/* The same for a table of n_rows that stays in host memory when the rest runs on a device. Tokens after its last row have row 0. */
int apr_emit_embed_from_host(apr_emitter *e, const char *table, int64_t n_rows, int64_t width, const char *out);
/* Learned positions: row `first` of the table is that of position 0. The program then has no more positions than the table. */
int apr_emit_positions(apr_emitter *e, const char *table, int64_t n_rows, int64_t first, int64_t width, const char *out);
/* The default norm, over the whole row. */
int apr_emit_norm(apr_emitter *e, int x, const char *weight, const char *out);
int apr_emit_norm_of(apr_emitter *e, int x, const apr_norm_facts *facts, const char *out);
/* Multiplies by NAME.weight [rows, width of x] and adds NAME.bias. */
int apr_emit_linear(apr_emitter *e, int x, const char *name, apr_role role, int64_t rows, apr_bias_style bias, const char *out);
/* The same with PREFIX.NAME.weight and .bias; the output is called NAME. */
int apr_emit_linear_of(apr_emitter *e, int x, const char *prefix, const char *name, apr_role role, int64_t rows, apr_bias_style bias);
/* The same with existing weight slots. */
int apr_emit_product(apr_emitter *e, int x, int weight, int bias, const char *out);
/* Rotates the numbers of each head from `start` on. */
int apr_emit_rope(apr_emitter *e, int x, apr_rotary rotary, apr_rope_mode mode, int64_t head_dim, int64_t start, const char *out);
/* Takes numbers [start, start + n) of each of n_heads heads. */
int apr_emit_slice(apr_emitter *e, int x, int64_t n_heads, int64_t start, int64_t n, const char *out);
int apr_emit_join(apr_emitter *e, int a, int b, int64_t n_heads, const char *out);
/* Returns x if the factor is 1. */
int apr_emit_scale(apr_emitter *e, int x, double factor, const char *out);
/* Returns x if warmth is 0. */
int apr_emit_query_scale(apr_emitter *e, int x, double warmth, double shift, double period, const char *out);
int apr_emit_mul(apr_emitter *e, int x, int y, const char *out);
/* Multiplies by a vector of n numbers; n is the width of x, or 1. */
int apr_emit_mul_vector(apr_emitter *e, int x, const char *weight, int64_t n, const char *out);
/* Returns x if the cap is 0. */
int apr_emit_softcap(apr_emitter *e, int x, double cap, const char *out);
int apr_emit_add(apr_emitter *e, int a, int b, const char *out);
/* AltUp: x and y are rows of streams (args: n_streams, first, minus, scale, offset). routed -1: without `coefs`, a weight's name. */
int apr_emit_altup(apr_emitter *e, int x, int y, int routed, const char *coefs, apr_altup_args args, const char *out);
/* x with the magnitude of `like`; `floor` is the least mean square that x counts with. */
int apr_emit_rescale(apr_emitter *e, int x, int like, double floor, const char *out);
/* The positive part of x above the quantile of a normal distribution that `share` of it would be below. */
int apr_emit_gauss_topk(apr_emitter *e, int x, double share, const char *out);
/* up -1: the activation alone. */
int apr_emit_glu(apr_emitter *e, int gate, int up, apr_glu_shape shape, const char *out);
/* The width of x must be a multiple of the width of the gate. */
int apr_emit_gate(apr_emitter *e, int x, int gate, apr_activation activation, const char *out);
/* Convolution over n_taps tokens, with its own state. Reads NAME.weight, and NAME.bias if there is one. */
int apr_emit_conv(apr_emitter *e, int x, const char *name, int64_t n_taps, apr_activation activation, const char *out);

/* --- rotary tables: rope.c --- */

typedef struct apr_rope_facts {
    const apr_rope_scaling *scaling;
    double theta;
    int64_t rotary_dim;
    int64_t max_position_embeddings;
} apr_rope_facts;

/* APR_E_UNSUPPORTED: the scaling is not known. `where` names the model in messages. */
apr_status apr_rope_table_fill(apr_rope_table *table, const apr_rope_facts *facts, apr_arena *arena, const char *where, apr_error *err);

#endif
