/* tensor_rules.h - which tensors a family has, under which names and in which order in either dialect, as data.
 *
 * The canonical name is Hugging Face's for the smallest piece that either dialect keeps apart: one tensor an expert, gate and up
 * each for itself. A rule is a canonical tensor with what it is for, and how ggml has it where that is one tensor for one (or one
 * stack for all experts). A form is a tensor of a dialect that holds several canonical ones, or one in another order.
 *
 * In names "{}" stands for the layer's number and "*" for an expert's. A name with "*" for one without is a stack: expert e is its
 * matrix e. Rules and forms are static; zero means nothing particular. */
#ifndef APR_FORMATS_TENSOR_RULES_H
#define APR_FORMATS_TENSOR_RULES_H

#include "formats/model/model.h"

/* What a tensor is for: recipes decide by it. */
typedef enum {
    APR_FOR_OTHER,     /* unknown: kept */
    APR_FOR_EMBEDDING, /* token id -> row */
    APR_FOR_HEAD,      /* hidden state -> logits */
    APR_FOR_ATTN_Q,
    APR_FOR_ATTN_K,
    APR_FOR_ATTN_V,
    APR_FOR_ATTN_QKV, /* fused; counts as a V in llama.cpp's mixtures */
    APR_FOR_ATTN_OUT,
    APR_FOR_ATTN_GATE,
    APR_FOR_FFN_GATE,
    APR_FOR_FFN_UP,
    APR_FOR_FFN_DOWN, /* dense, experts and shared experts alike */
    APR_FOR_MATRIX,   /* any other that every mixture gives its base type: latent projections, inputs of state-space layers */
    APR_FOR_DECAY,    /* makes decay rates, a row a head: tiny, and its errors compound over a text */
    APR_FOR_ROUTER,   /* chooses experts: tiny and sensitive */
    APR_FOR_KEPT,     /* a matrix that is never quantized, but may be widened */
    APR_FOR_SMALL,    /* norms, biases, convolutions, decay rates, position tables: never quantized */
    APR_FOR_COUNT
} apr_purpose;

/* Sizes of a model that steps of rules are made with, where a plain number is not known beforehand. They are less than 0. */
#define APR_SIZE_LIST(X)                                                        \
    X(HALF) /* of the whole's axis; such a step is the last one of its part */  \
    X(HEADS)                                                                    \
    X(KV_HEADS)                                                                 \
    X(KEY_HEADS)    /* of a delta rule; the groups of Mamba */                  \
    X(VALUES_EACH)  /* value heads that share a key head */                     \
    X(KEYS)         /* rows: key heads * their width */                         \
    X(TWICE_KEYS)   /* where values begin behind queries and keys */            \
    X(VALUES)       /* rows: value heads * their width */                       \
    X(KEY_WIDTH)    /* of one head */                                           \
    X(TWICE_WIDTH)  /* two of them */                                           \
    X(VALUES_WIDTH) /* of the value heads that share a key head */              \
    X(GATE_PLACE)   /* two key widths and the values of a key head */           \
    X(NOPE_WIDTH)   /* latent attention: the part of a key without positions */ \
    X(V_WIDTH)

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

enum { APR_RULE_STEPS = 3, APR_FORM_STEPS = 3, APR_FORM_PARTS = 4, APR_MAX_SETS = 10 };

typedef enum { APR_ALWAYS, APR_WITH_EXPERTS, APR_WITHOUT_EXPERTS } apr_when;

typedef struct apr_tensor_rule {
    const char *hf;   /* the canonical name */
    const char *ggml; /* NULL: ggml has none, or a form says it */
    apr_purpose purpose;
    /* From Hugging Face's to ggml's. HALVES_TO_PAIRS, ADD and GROUPED_TO_TILED only in families whose card says so. */
    apr_rule_step to_ggml[APR_RULE_STEPS];
    apr_when when; /* ggml's name is this one only in models with or without experts */
} apr_tensor_rule;

typedef struct apr_tensor_part {
    const char *name;                    /* canonical; NULL ends the parts */
    apr_rule_step steps[APR_FORM_STEPS]; /* from the whole to it; of a stack, from the expert's matrix on */
} apr_tensor_part;

typedef enum {
    APR_FORM_WRITTEN, /* read, and what is written when the model did not come from this dialect; of several the first */
    APR_FORM_READ,    /* another spelling, read only */
    APR_FORM_WHOLE    /* canonical under its own name as well, and taken apart only for the other dialect: so nothing is cut in vain */
} apr_form_use;

typedef struct apr_tensor_form {
    apr_dialect dialect;
    apr_form_use use;
    const char *name;
    const char *scales; /* not NULL: `name` are MXFP4's nibbles, these the bytes of its scales, and both together are the whole */
    apr_tensor_part parts[APR_FORM_PARTS];
} apr_tensor_form;

/* Rows that families share. */
typedef struct apr_tensor_set {
    const apr_tensor_rule *rules;
    size_t n_rules;
    const apr_tensor_form *forms;
    size_t n_forms;
} apr_tensor_set;

#endif
