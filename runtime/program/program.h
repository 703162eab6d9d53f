/* runtime/program/program.h - a model as a straight list of operations on named values, emitted once for each model family.
 *
 * Four parts read the same program: the executors, the planner (lifetimes of values, sizes of weights and states) and the
 * comparison of backends. Values are assigned once, in order: an operation reads only what came before it. Everything is
 * an index: op.in[] and op.out are values, op.weight[] are weight slots, op.state is a state, op.rope a rotary table; -1 is none.
 *
 *     embed -> h                                     angles -> a (once)
 *     layer:  norm(h) -> n;  linear(n) -> q, k, v;  rope(q, a), rope(k, a);  kv store(k, v);  attend(q) -> o
 *             linear(o) -> p;  add(h, p) -> h;  norm(h) -> n;  linear(n) -> gate, up;  glu -> m;  linear(m) -> d;  add -> h
 *     norm(h) -> n;  linear(n) -> logits */
#ifndef APR_RUNTIME_PROGRAM_H
#define APR_RUNTIME_PROGRAM_H

#include "formats/model/model.h"
#include "kernels/ops.h"

enum { APR_OP_MAX_IN = 3, APR_OP_MAX_WEIGHTS = 6, APR_MAX_HEAD_DIM = 1024 };
enum {
    APR_MAX_ROW = 1 << 28
}; /* numbers of a value for one token: whatever is made of a few of them, times tokens and bytes, fits 64 bits */

/* What an operation does with a weight; its card says so (op_card.h). It decides where the weight lies in a run. */
typedef enum {
    APR_USE_NONE,
    APR_USE_MULTIPLIED = 1 << 0, /* a matrix: as stored, or an FP16 copy of it where packed ones cannot be read */
    APR_USE_ROWS = 1 << 1,       /* read row by row, as stored: a table in which rows are looked up, the taps of each channel */
    APR_USE_FLOAT = 1 << 2,      /* added or multiplied number by number: kept as float32 */
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

/* What an operation multiplies with or adds. The experts of a layer are one slot, however many they are: stacked in one tensor
 * (rank 3), or `count` tensors of their own, whose names have the expert's number where the slot's has '*'. */
typedef struct apr_weight_slot {
    const char *name; /* canonical (Hugging Face) */
    unsigned uses;    /* apr_weight_use of all operations that have it, together */
    apr_role role;    /* the plan's line: as the family says, and VECTORS where float32 is the only use */
    int rank;         /* 1: numbers, in a tensor of any shape */
    int64_t dims[3];  /* of one tensor; outermost first, [out, in] */
    int64_t count;    /* tensors */
    int layer;        /* -1: of no layer */
    bool optional;    /* what is missing is not computed (a bias) */
    bool is_log;      /* of rates: kept as exp(number) */
    bool from_host;   /* a table so large that a device, too, is given the rows of its tokens only: see apr_slot_is_read_on_host */
} apr_weight_slot;

typedef struct apr_value {
    const char *name;
    int64_t width;  /* float32 numbers a token */
    bool is_logits; /* rows only for the tokens whose logits are wanted */
    int tap;        /* row of the hidden states: 0 the embeddings, i after layer i, num_layers after the final norm; -1: none */
} apr_value;

typedef enum { APR_STATE_KV, APR_STATE_KV_WINDOW, APR_STATE_CONV, APR_STATE_DELTA, APR_STATE_SSD } apr_state_kind;

/* What a layer remembers from token to token, for each sequence. */
typedef struct apr_state {
    apr_state_kind kind;
    int layer;
    int64_t n_heads, key_dim, value_dim; /* KV kinds: one cell has a key and a value for each head */
    bool values_in_keys;                 /* values are the first numbers of the keys, and kept once */
    int64_t window;                      /* KV_WINDOW: positions that stay visible */
    int64_t n_floats;                    /* the others: constant size */
} apr_state;

/* Keys and values of positions, in a ring of cells; else numbers that are as they were left. */
static inline bool apr_state_has_cells(const apr_state *state) { return state->kind == APR_STATE_KV || state->kind == APR_STATE_KV_WINDOW; }

/* Rotary frequencies, scaling applied, as transformers computes them (float32). */
typedef struct apr_rope_table {
    int64_t n_freqs; /* half of the rotary dimension */
    const float *freqs;
    const float *long_freqs; /* instead, where more than original_context positions are planned; NULL: always freqs */
    int64_t original_context;
    float magnitude; /* on cosines and sines; 1 but for YaRN and longrope */
    int divisors;    /* slot of llama's optional rope_freqs.weight: freqs[j] /= divisors[j]; or -1 */
} apr_rope_table;

typedef struct apr_op {
    apr_op_kind kind;
    int layer; /* -1: of no layer */
    int in[APR_OP_MAX_IN], out;
    int weight[APR_OP_MAX_WEIGHTS]; /* in the order of the operation's card */
    int state, rope;
    apr_op_args args; /* shapes and parameters; pointers, and what depends on the tokens, are filled in by the card's bind */
} apr_op;

typedef struct apr_program {
    const char *architecture;
    const char *lacks; /* an operation that is needed besides those here, and that nobody has: for a plan only; NULL: none is */
    int64_t hidden_size, vocab_size, num_layers;
    int64_t max_context; /* positions that the model was made for, stretched by YaRN or not; 0: not known */
    apr_weight_slot *weights;
    apr_value *values;
    apr_state *states;
    apr_rope_table *ropes;
    apr_op *ops;
    size_t n_weights, n_values, n_states, n_ropes, n_ops, n_taps;
    apr_arena arena; /* names and frequencies */
} apr_program;

/* APR_E_UNSUPPORTED for a family or scaling that is not known, APR_E_DAMAGED when hyperparameters are missing. hparams must
 * have gone through apr_hparams_complete. */
apr_status apr_program_emit(apr_program *program, const apr_hparams *hparams, apr_error *err);
void apr_program_close(apr_program *program);

/* Of a run on a device: the table stays in the host's memory, the operation runs there, and what it makes is copied. */
bool apr_slot_is_read_on_host(const apr_weight_slot *slot);
/* The name of the slot's tensor `index` (of slot->count) into text, which it returns. */
char *apr_slot_name(const apr_weight_slot *slot, int64_t index, char *text, size_t n_bytes);
/* Numbers of all its tensors; INT64_MAX stands for more than can be counted. */
int64_t apr_slot_elems(const apr_weight_slot *slot);

#endif
