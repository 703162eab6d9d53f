/* runtime/program/program.h - a model as a straight-line list of operations on named values, emitted by each model family.
 *
 * The executors, the planner (lifetimes of values, sizes of weights and states) and the comparison of backends all read the same
 * program. Each value is assigned once; an operation reads only earlier values. References are indices: op.in[] and op.out are values,
 * op.weight[] are weight slots, op.state is a state, op.rope is a rotary table; -1 is none.
 *
 *     embed -> h                                     angles -> a (once)
 *     layer:  norm(h) -> n;  linear(n) -> q, k, v;  rope(q, a), rope(k, a);  kv store(k, v);  attend(q) -> o
 *             linear(o) -> p;  add(h, p) -> h;  norm(h) -> n;  linear(n) -> gate, up;  glu -> m;  linear(m) -> d;  add -> h
 *     norm(h) -> n;  linear(n) -> logits */
#ifndef APR_RUNTIME_PROGRAM_H
#define APR_RUNTIME_PROGRAM_H

#include "formats/tensor/model.h"
#include "kernels/ops.h"

enum { APR_OP_MAX_IN = 3, APR_OP_MAX_WEIGHTS = 6, APR_MAX_HEAD_DIM = 1024 };
enum { APR_MAX_ROW = 1 << 28 }; /* numbers of a value per token; small multiples of it, times tokens and bytes, still fit 64 bits */

/* How an operation uses a weight, as its spec states (op_spec.h). It decides where and how a run stores the weight. */
typedef enum {
    APR_USE_NONE,
    APR_USE_MULTIPLIED = 1 << 0, /* a matrix: as stored, or as an FP16 copy where packed weights cannot be read */
    APR_USE_ROWS = 1 << 1,       /* read row by row, as stored: an embedding table, taps of each channel */
    APR_USE_FLOAT = 1 << 2,      /* added or multiplied element by element: kept as float32 */
} apr_weight_use;

/* X(id, key, label): how a plan groups the weights */
#define APR_ROLE_LIST(X)                                    \
    X(EMBEDDING, "weights.embeddings", "token embeddings")  \
    X(ATTENTION, "weights.attention", "attention")          \
    X(FEED_FORWARD, "weights.feed_forward", "feed-forward") \
    X(EXPERTS, "weights.experts", "experts")                \
    X(VECTORS, "weights.vectors", "norms and biases")       \
    X(HEAD, "weights.head", "output head")

typedef enum {
#define X(id, key, label) APR_ROLE_##id,
    APR_ROLE_LIST(X)
#undef X
        APR_ROLE_COUNT
} apr_role;

/* A weight of an operation. The experts of a layer are one slot: one stacked tensor (rank 3), or `count` tensors, whose names have the
 * expert number in place of '*'. */
typedef struct apr_weight_slot {
    const char *name; /* canonical (Hugging Face) */
    unsigned uses;    /* apr_weight_use of all operations that read it, combined */
    apr_role role;    /* its line in a plan, as the family states; VECTORS where float32 is the only use */
    int rank;         /* 1: numbers, in a tensor of any shape */
    int64_t dims[3];  /* of one tensor; outermost first, [out, in] */
    int64_t count;    /* number of tensors */
    int layer;        /* -1: outside of the layers */
    bool optional;    /* if absent, its part is not computed (a bias) */
    bool is_log;      /* stored as logarithms, kept as exp(number) */
    bool from_host;   /* a very large table: a device receives only the rows of its tokens, see apr_slot_is_read_on_host */
} apr_weight_slot;

typedef struct apr_value {
    const char *name;
    int64_t width;  /* float32 numbers per token */
    bool is_logits; /* has rows only for the tokens whose logits are wanted */
    int tap;        /* index in the hidden states: 0 embeddings, i after layer i, num_layers after the final norm; -1: none */
} apr_value;

typedef enum { APR_STATE_KV, APR_STATE_KV_WINDOW, APR_STATE_CONV, APR_STATE_DELTA, APR_STATE_SSD } apr_state_kind;

/* What a layer keeps from token to token, per sequence. */
typedef struct apr_state {
    apr_state_kind kind;
    int layer;
    int64_t n_heads, key_dim, value_dim; /* KV kinds: a cell has a key and a value per head */
    bool values_in_keys;                 /* values are the first numbers of the keys, and are not stored again */
    int64_t window;                      /* KV_WINDOW: positions that stay visible */
    int64_t n_floats;                    /* the other kinds: constant size */
} apr_state;

/* True for keys and values, in a ring of cells; false for a state of plain numbers. */
static inline bool apr_state_has_cells(const apr_state *state) { return state->kind == APR_STATE_KV || state->kind == APR_STATE_KV_WINDOW; }

/* Rotary frequencies with scaling applied, in float32 as transformers computes them. */
typedef struct apr_rope_table {
    int64_t n_freqs; /* half of the rotary dimension */
    const float *freqs;
    const float *long_freqs; /* used where more than original_context positions are planned; NULL: always freqs */
    int64_t original_context;
    float magnitude; /* factor of cosines and sines; 1 except for YaRN and longrope */
    int divisors;    /* slot of llama's optional rope_freqs.weight: freqs[j] /= divisors[j]; or -1 */
} apr_rope_table;

typedef struct apr_op {
    apr_op_kind kind;
    int layer; /* -1: outside of the layers */
    int in[APR_OP_MAX_IN], out;
    int weight[APR_OP_MAX_WEIGHTS]; /* in the order of the operation's spec */
    int state, rope;
    apr_op_args args; /* shapes and parameters; the spec's bind sets pointers and what depends on the tokens */
} apr_op;

typedef struct apr_program {
    const char *architecture;
    int64_t hidden_size, vocab_size, num_layers;
    int64_t max_context;    /* positions that the model was trained for, including YaRN's stretching; 0: not known */
    int64_t most_positions; /* a longer context cannot be planned; 0: no limit */
    const char *why_most;   /* completes "the model has N positions; " where there is a limit */
    apr_weight_slot *weights;
    apr_value *values;
    apr_state *states;
    apr_rope_table *ropes;
    apr_op *ops;
    size_t n_weights, n_values, n_states, n_ropes, n_ops, n_taps;
    apr_arena arena; /* names and frequencies */
} apr_program;

/* APR_E_UNSUPPORTED: the family or scaling is not known. APR_E_DAMAGED: hyperparameters are missing. hparams must have passed
 * apr_hparams_complete. */
apr_status apr_program_emit(apr_program *program, const apr_hparams *hparams, apr_error *err);
void apr_program_close(apr_program *program);

/* [n_freqs] of a rotary table for a context of n_ctx positions, divided by its divisors, if the model has some. */
void apr_rope_frequencies(const apr_rope_table *table, const apr_tensor *divisors, int64_t n_ctx, float *freqs);
/* For a run on a device: the table stays in host memory, the operation runs there, and its result is copied. */
bool apr_slot_is_read_on_host(const apr_weight_slot *slot);
/* Prints the name of the slot's tensor `index` (of slot->count); returns text. */
char *apr_slot_name(const apr_weight_slot *slot, int64_t index, char *text, size_t n_bytes);
/* Number of elements of all its tensors; INT64_MAX on overflow. */
int64_t apr_slot_elems(const apr_weight_slot *slot);

#endif
