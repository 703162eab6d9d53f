/* tensor_rules.h - the tensors of a family, with their names and row orders in both naming schemes, as data.
 *
 * The canonical name is Hugging Face's name for the smallest unit that either scheme stores separately: one tensor per expert, gate and up
 * apart. A rule describes a canonical tensor: its role, and ggml's name and order for it (or for one stack of all experts). A form is a
 * tensor of one scheme that holds several canonical tensors, or one in another order.
 *
 * In names "{}" stands for the layer number and "*" for the expert number. A name without "*" where the other scheme has one is a stack:
 * expert e is matrix e. Rules and forms are static; zero means the usual rule. */
#ifndef APR_FORMATS_TENSOR_RULES_H
#define APR_FORMATS_TENSOR_RULES_H

#include "formats/tensor/model.h"

/* The role of a tensor: recipes choose its type by it. */
typedef enum {
    APR_TENSOR_ROLE_OTHER,     /* unknown: kept as it is */
    APR_TENSOR_ROLE_EMBEDDING, /* token id -> row */
    APR_TENSOR_ROLE_HEAD,      /* hidden state -> logits */
    APR_TENSOR_ROLE_ATTN_Q,
    APR_TENSOR_ROLE_ATTN_K,
    APR_TENSOR_ROLE_ATTN_V,
    APR_TENSOR_ROLE_ATTN_QKV, /* fused; llama.cpp's mixtures treat it as V */
    APR_TENSOR_ROLE_ATTN_OUT,
    APR_TENSOR_ROLE_ATTN_GATE,
    APR_TENSOR_ROLE_FFN_GATE,
    APR_TENSOR_ROLE_FFN_UP,
    APR_TENSOR_ROLE_FFN_DOWN, /* dense, experts and shared experts */
    APR_TENSOR_ROLE_MATRIX,   /* others that every mixture gives its base type: latent projections, inputs of state-space layers */
    APR_TENSOR_ROLE_DECAY,    /* projects to decay rates, one row per head: tiny, and its errors accumulate over a text */
    APR_TENSOR_ROLE_ROUTER,   /* chooses experts: tiny and sensitive */
    APR_TENSOR_ROLE_KEPT,     /* a matrix that is never quantized, but may be widened */
    APR_TENSOR_ROLE_SMALL,    /* norms, biases, convolutions, decay rates, position tables: never quantized */
    APR_TENSOR_ROLE_COUNT
} apr_tensor_role;

/* Sizes of the model that steps of rules refer to, where the number is not known in advance. Their values are negative. */
#define APR_SIZE_LIST(X)                                                                                             \
    X(THREE) /* queries, keys and values */                                                                          \
    X(HALF)  /* of the whole's axis; only in the last step of a part */                                              \
    X(HEADS)                                                                                                         \
    X(KV_HEADS)                                                                                                      \
    X(KEY_HEADS)    /* of a delta rule; groups of Mamba */                                                           \
    X(VALUES_EACH)  /* value heads that share a key head */                                                          \
    X(KEYS)         /* rows: key heads * their width */                                                              \
    X(TWICE_KEYS)   /* queries and keys: where the values begin */                                                   \
    X(VALUES)       /* rows: value heads * their width */                                                            \
    X(KEY_WIDTH)    /* of one head */                                                                                \
    X(TWICE_WIDTH)  /* two key heads */                                                                              \
    X(VALUES_WIDTH) /* of the value heads that share a key head */                                                   \
    X(GATE_PLACE)   /* two key widths and the values of a key head */                                                \
    X(NOPE_WIDTH)   /* latent attention: part of a key without positions */                                          \
    X(LAYER_VOCAB)  /* rows of the table of per-layer inputs, where they are fewer than the next; 0: they are not */ \
    X(VOCAB)                                                                                                         \
    X(V_WIDTH)                                                                                                       \
    X(ROTARY) /* rows of a head that are rotated */                                                                  \
    X(VALUE_HEADS)                                                                                                   \
    X(TWICE_VALUES)     /* Mamba: where B begins in the rows of in_proj, */                                          \
    X(C_PLACE)          /* where C begins, */                                                                        \
    X(DT_PLACE)         /* and where the time steps begin */                                                         \
    X(EMBEDDING_FACTOR) /* the bits of multipliers as float32 */                                                     \
    X(LOGIT_FACTOR)                                                                                                  \
    X(ATTENTION_IN_FACTOR)                                                                                           \
    X(ATTENTION_OUT_FACTOR)                                                                                          \
    X(KEY_FACTOR)                                                                                                    \
    X(SSM_IN_FACTOR)                                                                                                 \
    X(SSM_OUT_FACTOR)                                                                                                \
    X(Z_FACTOR)                                                                                                      \
    X(X_FACTOR)                                                                                                      \
    X(B_FACTOR)                                                                                                      \
    X(C_FACTOR)                                                                                                      \
    X(DT_FACTOR)                                                                                                     \
    X(GATE_FACTOR)                                                                                                   \
    X(DOWN_FACTOR)

typedef enum {
    APR_OF_FIRST = -100,
#define X(name) APR_OF_##name,
    APR_SIZE_LIST(X)
#undef X
        APR_OF_END
} apr_size;

typedef struct apr_rule_step {
    apr_step_kind kind;
    int16_t n[APR_STEP_PARAMETERS]; /* numbers, or an apr_size */
} apr_rule_step;

enum { APR_RULE_STEPS = 6, APR_FORM_STEPS = 3, APR_FORM_PARTS = 4, APR_MAX_SETS = 10 };

typedef enum { APR_ALWAYS, APR_WITH_EXPERTS, APR_WITHOUT_EXPERTS } apr_when;

typedef struct apr_tensor_rule {
    const char *hf;   /* the canonical name */
    const char *ggml; /* NULL: ggml has no such tensor, or a form states it */
    apr_tensor_role role;
    /* From Hugging Face's order to ggml's. HALVES_TO_PAIRS, ADD and GROUPED_TO_TILED apply only in families whose spec says
     * so, and MULTIPLY only if the factor is not 1. */
    apr_rule_step to_ggml[APR_RULE_STEPS];
    apr_when when; /* ggml's name holds only for models with or without experts */
} apr_tensor_rule;

typedef struct apr_tensor_part {
    const char *name;                    /* canonical; NULL ends the parts */
    apr_rule_step steps[APR_FORM_STEPS]; /* from the whole to the part; of a stack, from the expert's matrix */
} apr_tensor_part;

typedef enum {
    APR_FORM_WRITTEN, /* read, and also written for models of another origin; of several forms the first is written */
    APR_FORM_READ,    /* another spelling; read only */
    APR_FORM_WHOLE    /* canonical under its own name; split only for the other scheme, so nothing is split needlessly */
} apr_form_use;

typedef struct apr_tensor_form {
    apr_naming naming;
    apr_form_use use;
    const char *name;
    const char *scales; /* not NULL: `name` holds MXFP4's nibbles and `scales` the bytes of its scales; both together are the whole */
    apr_tensor_part parts[APR_FORM_PARTS];
    /* Not NULL: checkpoints have the matrices under this name in either order. Where the axis hidden_axis (0: columns) is not hidden_size,
     * but the other one is, this is the form. */
    const struct apr_tensor_form *transposed;
    int hidden_axis;
} apr_tensor_form;

/* Rules that families share. */
typedef struct apr_tensor_set {
    const apr_tensor_rule *rules;
    size_t n_rules;
    const apr_tensor_form *forms;
    size_t n_forms;
} apr_tensor_set;

#endif
