/* op_args.h - arguments of the operations beyond plain attention and feed-forward: kinds, shapes and formulas. kernels/ref is the
 * definition.
 *
 * As in ops.h: activations are float32, one row a token, rows without gaps; [..] is a shape, outermost first. Vectors (norm weights,
 * biases, decays) are float32 whatever type the file has. Operations do not allocate and do not fail. Where `out` may be x, the comment
 * says so.
 * n_threads: threads that the host may use if there is enough work; 0 is one.
 * States are float32, belong to one sequence, start as zeros, and are updated by the call. On a device a call may have one token each of
 * several sequences (`per_sequence` in ops.h). Then slots is not NULL, and token t's state is at state + slots[t] * slot_bytes. */
#ifndef APR_KERNELS_OP_ARGS_H
#define APR_KERNELS_OP_ARGS_H

#include "formats/tensor/model.h"
#include "kernels/activation.h"

/* Scratch memory of one call: a slice of `slice` floats for each of n_threads, 64-byte aligned. */
typedef struct apr_workspace {
    float *data;
    size_t slice;
    int n_threads;
} apr_workspace;

typedef enum {
    APR_NORM_RMS,   /* x / sqrt(mean(x^2) + eps) */
    APR_NORM_LAYER, /* the same of x - mean(x) */
    APR_NORM_L2,    /* x / sqrt(sum(x^2) + eps) */
    APR_NORM_KINDS
} apr_norm_kind;

/* Normalizes chunks of `chunk` numbers of each row (the row, a head, a group): normed * (weight + offset) + bias. out may be x. */
typedef struct apr_norm_args {
    apr_norm_kind kind;
    int64_t n_tokens, width, chunk;
    int64_t n_weight;           /* numbers of weight and bias: chunk (shared by all chunks), or width */
    float eps, offset;          /* offset 1: the file holds weight - 1 */
    const float *x;             /* [n_tokens, width] */
    const float *weight, *bias; /* [n_weight] or NULL */
    float *out;                 /* [n_tokens, width] */
    int n_threads;
} apr_norm_args;

/* Numbers [start, start + n) of each head: out[t][h] = x[t][h][start ..] */
typedef struct apr_slice_args {
    int64_t n_tokens, n_heads, head_dim, start, n;
    const float *x; /* [n_tokens, n_heads, head_dim] */
    float *out;     /* [n_tokens, n_heads, n] */
} apr_slice_args;

/* Concatenates heads: out[t][h] = a[t][h], b[t][h] */
typedef struct apr_join_args {
    int64_t n_tokens, n_heads, n_a, n_b;
    const float *a; /* [n_tokens, n_heads, n_a] */
    const float *b; /* [n_tokens, n_heads, n_b] */
    float *out;     /* [n_tokens, n_heads, n_a + n_b] */
} apr_join_args;

/* out = x * factor * (1 + warmth * ln(1 + floor((position + shift) / period))); warmth 0: the factor alone. out may be x. The second
 * factor is the temperature of queries in long contexts (Llama 4, Ministral 3). */
typedef struct apr_scale_args {
    int64_t n_tokens, width, position;
    const int64_t *position_at; /* see kernels/ops.h */
    bool per_sequence;
    float factor, warmth, shift, period;
    const float *x;
    float *out;
    int n_threads;
} apr_scale_args;

/* out = x * y. y is a row for each token, or one for all (a vector of weights), of width numbers or of one. out may be x. */
typedef struct apr_mul_args {
    int64_t n_tokens, width;
    int64_t y_width;  /* width or 1 */
    bool y_is_vector; /* [y_width], else [n_tokens, y_width] */
    const float *x, *y;
    float *out;
    int n_threads;
} apr_mul_args;

/* out = cap * tanh(x / cap). out may be x. */
typedef struct apr_softcap_args {
    int64_t n_tokens, width;
    float cap;
    const float *x;
    float *out;
    int n_threads;
} apr_softcap_args;

/* out[t][h][i] = x[t][h][i] * activation(gate[t][h]): a gate as wide as the row has n_heads = width and head_dim 1, one number
 * for the row n_heads 1. out may be x. */
typedef struct apr_gate_args {
    int64_t n_tokens, n_heads, head_dim;
    apr_activation activation;
    const float *x;    /* [n_tokens, n_heads, head_dim] */
    const float *gate; /* [n_tokens, n_heads] */
    float *out;
    int n_threads;
} apr_gate_args;

/* AltUp (Baykal et al. 2023): streams of hidden states, of which a layer computes one. They are mixed before it and after it:
 *     m[k] = tanh(scale * routed[t][k]);  c[i][j] = offset + sum over k < n_streams: coefs[i * n_y + j][k] * m[k]
 *     out[t][i] = x[t][i] + sum over j < n_y: c[i][j] * (y[t][j] - x[t][minus])     for i >= first; before that x[t][i]
 * Before the layer y is x (n_y = n_streams); after it y is what the layer made of stream `minus`. Without routed c is the offset. */
enum { APR_ALTUP_STREAMS = 16 }; /* the most */

typedef struct apr_altup_args {
    int64_t n_tokens, n_streams, n_y, width;
    int64_t first, minus; /* minus -1: nothing is subtracted */
    float scale, offset;
    const float *x;      /* [n_tokens, n_streams, width] */
    const float *y;      /* [n_tokens, n_y, width] */
    const float *routed; /* [n_tokens, n_streams] or NULL */
    const float *coefs;  /* [n_streams * n_y, n_streams]; NULL without routed */
    float *out;          /* [n_tokens, n_streams, width], neither x nor y */
    int n_threads;
} apr_altup_args;

/* c[i][j], whose number is ij = i * n_y + j; `routed` is the token's. */
APR_HOST_DEVICE_INLINE float apr_altup_coef(const apr_altup_args *a, const float *routed, int64_t ij)
{
    float sum = 0.0f;
    for (int64_t k = 0; routed != NULL && k < a->n_streams; k++) sum += a->coefs[ij * a->n_streams + k] * tanhf(a->scale * routed[k]);
    return a->offset + sum;
}

/* Gives rows the magnitude of others: out[t] = x[t] * sqrt(mean(like[t]^2) / max(mean(x[t]^2), floor)). out may be x. */
typedef struct apr_rescale_args {
    int64_t n_tokens, width;
    float floor;
    const float *x, *like; /* [n_tokens, width] */
    float *out;
    int n_threads;
} apr_rescale_args;

/* Keeps about the largest numbers of a row, as if they had a normal distribution: out[t] = max(0, x[t] - mean - factor * deviation), the
 * deviation being sqrt(mean((x[t] - mean)^2)). out may be x. */
typedef struct apr_gauss_topk_args {
    int64_t n_tokens, width;
    float factor; /* the quantile of the standard normal distribution, 1.645 for 0.95 */
    const float *x;
    float *out;
    int n_threads;
} apr_gauss_topk_args;

/* Chooses experts and their weights from a router's logits: scores each expert, chooses by score + bias (in groups, if there are some),
 * and weighs by the score alone. Equal numbers: the lower index is chosen. */
typedef enum {
    APR_SCORE_SOFTMAX, /* over all experts */
    APR_SCORE_SIGMOID,
    APR_SCORE_TOPK_SOFTMAX,  /* choose by the logits; softmax over the chosen */
    APR_SCORE_TOPK_SIGMOID,  /* choose by the logits; sigmoid of each chosen */
    APR_SCORE_SQRT_SOFTPLUS, /* sqrt(ln(1 + exp(x))) */
    APR_SCORE_KINDS
} apr_score_kind;

typedef struct apr_route_shape {
    apr_score_kind score;
    int64_t n_experts, n_used;
    int64_t n_groups, n_groups_used; /* 0 or 1: no groups. Only experts of the best groups can be chosen */
    bool group_by_best;              /* a group's score is that of its best expert, else the sum of the two best */
    float filler;                    /* the score of experts in other groups: -INFINITY, or 0 (DeepSeek V2) */
    bool normalise;                  /* weights / max(sum of weights + norm_eps, norm_min) */
    float norm_eps, norm_min, scale; /* scale: multiplies all weights after that */
} apr_route_shape;

/* A token's route. Its last number is the gap: how far the last chosen expert (and group) is above the best one that was not chosen,
 * relative to the best score, or to 1 if that is less. Two backends whose scores differ by less may both be right and choose
 * differently. */
APR_HOST_DEVICE_INLINE int64_t apr_route_row(int64_t n_used) { return 2 * n_used + 1; }
APR_HOST_DEVICE_INLINE float apr_route_gap(float last, float next, float best)
{
    const float gap = (last - next) / fmaxf(1.0f, fabsf(best));
    return gap >= 0.0f ? fminf(gap, 3e38f) : 0.0f; /* 0 for NaN */
}

typedef struct apr_route_args {
    int64_t n_tokens;
    apr_route_shape shape;
    const float *logits;       /* [n_tokens, n_experts] */
    const float *bias;         /* [n_experts] or NULL: for the choice alone */
    const float *expert_scale; /* [n_experts] or NULL: multiplies the weight of a chosen expert */
    float *out;                /* [n_tokens, apr_route_row(n_used)]: the experts' numbers, best first; their weights; the gap */
    apr_workspace work;        /* slice >= apr_route_slice(n_experts) */
} apr_route_args;

/* The chosen experts' feed-forward, weighted and summed in the order of their rank:
 *     out = sum over ranks: weight * down(glu(gate x, up x));   weight_on_input: down(glu(gate (weight x), up (weight x)))
 * Without gates the activation is applied to up alone. */
typedef struct apr_experts_args {
    int64_t n_tokens, n_in, n_mid, n_out, n_experts, n_used;
    apr_glu_shape glu;
    bool weight_on_input;
    const float *x;                     /* [n_tokens, n_in] */
    const float *routes;                /* [n_tokens, apr_route_row(n_used)] of apr_route_args */
    const apr_tensor *gate, *up, *down; /* [n_experts] matrices each: [n_mid, n_in], [n_mid, n_in], [n_out, n_mid]; gate or NULL */
    const float *gate_bias, *up_bias, *down_bias; /* [n_experts, n_mid], [n_experts, n_mid], [n_experts, n_out] or NULL */
    float *out;                                   /* [n_tokens, n_out] */
    apr_workspace work;                           /* slice >= apr_experts_slice(...) */
    float *shared;                                /* apr_experts_shared(...) floats, for the host backend */
} apr_experts_args;

/* Causal depthwise convolution over time:
 *     out[t][c] = activation(bias[c] + sum over k < n_taps: weight[c][k] * x[t - (n_taps - 1) + k][c])
 * The state is the n_taps - 1 rows of x before the first token. */
typedef struct apr_conv_args {
    int64_t n_tokens, width, n_taps;
    apr_activation activation;
    const float *x;      /* [n_tokens, width] */
    const float *weight; /* [width, n_taps], the oldest tap first */
    const float *bias;   /* [width] or NULL */
    float *state;        /* [n_taps - 1, width] */
    const int32_t *slots;
    uint64_t slot_bytes;
    float *out; /* [n_tokens, width], not x */
    int n_threads;
} apr_conv_args;

/* Gated delta rule (Yang, Kautz, Hatamizadeh 2024), one matrix S [key_dim, value_dim] of state a value head:
 *     q, k <- l2 norm (eps), q <- q / sqrt(key_dim);  g = -rate * softplus(a + dt_bias);  beta = sigmoid(b)
 *     S <- exp(g) S;  S <- S + k (beta (v - S^T k))^T;  out = S^T q
 * With `by_channel` (Kimi Delta Attention) each row of S has its own g, so a and dt_bias have key_dim numbers a head. `floor` < 0 bounds
 * it (Ling): g = floor * sigmoid(rate * (a + dt_bias)).
 * Value head h uses key head h / (n_value_heads / n_key_heads), or h mod n_key_heads where `tiled` (GGUFs of Qwen 3.5). */
typedef struct apr_delta_args {
    int64_t n_tokens, n_key_heads, n_value_heads, key_dim, value_dim;
    bool tiled, by_channel;
    float eps, floor;     /* floor 0: none */
    const float *qkv;     /* [n_tokens, n_key_heads * key_dim (q), the same (k), n_value_heads * value_dim (v)] */
    const float *a, *b;   /* [n_tokens, n_value_heads]; with by_channel a is [n_tokens, n_value_heads, key_dim] */
    const float *rate;    /* [n_value_heads] exp(A_log) */
    const float *dt_bias; /* as a's row */
    float *state;         /* [n_value_heads, key_dim, value_dim] */
    const int32_t *slots;
    uint64_t slot_bytes;
    float *out;         /* [n_tokens, n_value_heads, value_dim] */
    apr_workspace work; /* slice >= apr_delta_slice(key_dim, value_dim) */
} apr_delta_args;

/* Numbers of a and dt_bias for each value head, and g, from x = a + dt_bias. */
APR_HOST_DEVICE_INLINE int64_t apr_delta_gates(const apr_delta_args *a) { return a->by_channel ? a->key_dim : 1; }
APR_HOST_DEVICE_INLINE float apr_delta_log_decay(const apr_delta_args *a, float rate, float x)
{
    return a->floor < 0.0f ? a->floor * apr_sigmoid(rate * x) : -rate * apr_softplus(x);
}

/* State-space duality (Mamba 2; Dao, Gu 2024), one matrix S [head_dim, state_dim] a head, B and C shared by a group of heads:
 *     dt <- softplus(dt + dt_bias);  S <- exp(-rate * dt) S + (dt x) B^T;  out = S C + skip * x */
typedef struct apr_ssd_args {
    int64_t n_tokens, n_heads, head_dim, n_groups, state_dim;
    const float *xbc;     /* [n_tokens, n_heads * head_dim (x), n_groups * state_dim (B), the same (C)] */
    const float *dt;      /* [n_tokens, n_heads] */
    const float *rate;    /* [n_heads] exp(A_log) */
    const float *dt_bias; /* [n_heads] */
    const float *skip;    /* [n_heads], D */
    float *state;         /* [n_heads, head_dim, state_dim] */
    const int32_t *slots;
    uint64_t slot_bytes;
    float *out; /* [n_tokens, n_heads, head_dim] */
    int n_threads;
} apr_ssd_args;

/* Floats of workspace that one thread needs: scores to choose by, scores, scores of groups. */
static inline size_t apr_route_slice(int64_t n_experts) { return 3 * (size_t)n_experts; }

/* A decoded row, an expert's hidden row, a weighted input. */
static inline size_t apr_experts_slice(int64_t n_in, int64_t n_mid)
{
    return (size_t)(n_in > n_mid ? n_in : n_mid) + (size_t)(n_mid + n_in);
}

/* The tokens of an expert, gathered: inputs, gate and up, outputs, their numbers and ranks. */
static inline size_t apr_experts_shared(int64_t n_tokens, int64_t n_in, int64_t n_mid, int64_t n_out)
{
    return (size_t)n_tokens * (size_t)(n_in + 2 * n_mid + n_out + 2);
}

/* Tokens of a prompt that recurrent operations process together on the host. */
enum { APR_RECURRENT_CHUNK = 64 };

/* For a chunk: normed queries and keys, errors of values, decays and betas. */
static inline size_t apr_delta_slice(int64_t key_dim, int64_t value_dim)
{
    return APR_RECURRENT_CHUNK * (2 * (size_t)key_dim + (size_t)value_dim + 2);
}

#endif
