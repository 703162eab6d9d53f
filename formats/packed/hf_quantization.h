/* hf_quantization.h - what a checkpoint's config.json says about quantized weights, in one form for every producer.
 *
 * Producers state it as quantization_config (or compression_config, at the top or inside text_config) or in modelopt's
 * hf_quant_config.json. It is reduced to rules, each with a target and a scheme. The first rule whose target covers a matrix's name decides
 * how the matrix is stored. If a pattern of the skip list also covers it, it stays a plain float.
 *
 *     quant_method           targets                       skip list
 *     fp8, fbgemm_fp8        every linear layer            modules_to_not_convert, ignored_layers
 *     compressed-tensors     config_groups[].targets       ignore
 *     modelopt               all, or quantized_layers      exclude_modules, ignore
 *     mxfp4 (gpt-oss)        the stacks of experts         modules_to_not_convert
 *     gptq, awq, auto-round  every linear layer            modules_to_not_convert; gptqmodel's "dynamic", "extra_config"
 *     bitsandbytes           every linear layer            llm_int8_skip_modules
 *     quark                  every linear layer            exclude
 *
 * A pattern is a path of names ("lm_head", "model.layers.0.mlp.gate", "mlp.gate") that covers every module whose name contains it as whole
 * names; the same with '*' for any text; or "re:" and a regular expression for the beginning of the module's name.
 *
 * If tensors are there, they decide. This is for planning without them, and for naming what was found. What is not understood is described
 * in `problem`. It never makes a file unreadable; only what needs the answer is refused. */
#ifndef APR_FORMATS_HF_QUANTIZATION_H
#define APR_FORMATS_HF_QUANTIZATION_H

#include "formats/tensor/model.h"

/* X(id, name): how the numbers of a matrix [N, K] are stored. G: scales along a row; b: bits of a number */
#define APR_QUANT_LAYOUT_LIST(X)                                                                               \
    X(FP8, "FP8")          /* X.weight F8_E4M3 [N, K], X.weight_scale or _inv: per tensor, row or block */     \
    X(MXFP8, "MXFP8")      /* X.weight F8_E4M3 [N, K], X.weight_scale U8 [N, K/32] */                          \
    X(MXFP4, "MXFP4")      /* gpt-oss: X_blocks U8 [E, N, K/32, 16], X_scales; elsewhere weight_packed U8 */   \
    X(NVFP4, "NVFP4")      /* U8 [N, K/2], scales E4M3 [N, K/16], one F32 for the tensor */                    \
    X(INT8, "INT8")        /* X.weight I8 [N, K] and X.weight_scale, or bitsandbytes' X.SCB [N] */             \
    X(INT_PACKED, "INT")   /* compressed-tensors: X.weight_packed I32 [N, K*b/32], X.weight_scale [N, G] */    \
    X(GPTQ, "GPTQ")        /* X.qweight I32 [K*b/32, N], X.qzeros [G, N*b/32], X.scales [G, N], X.g_idx [K] */ \
    X(AWQ, "AWQ")          /* X.qweight I32 [K, N*b/32], X.qzeros [G, N*b/32], X.scales [G, N] */              \
    X(NF4, "bitsandbytes") /* X.weight U8 [N*K/2, 1], X.weight.absmax one for 64 numbers, nested or not */

typedef enum {
#define X(id, name) APR_QUANT_##id,
    APR_QUANT_LAYOUT_LIST(X)
#undef X
        APR_QUANT_LAYOUT_COUNT
} apr_quant_layout;

typedef struct apr_quant_scheme {
    apr_quant_layout layout;
    int bits;                          /* of a number, without its share of scales */
    int64_t block_rows, block_columns; /* what one scale covers; 0: everything in that direction, so 0, 0 is one scale per tensor */
    int scale_bytes;                   /* of one scale */
    bool zero_points;                  /* one next to every scale */
    bool act_order;                    /* there is a group index for each column */
    bool sorted;                       /* act_order, but the index is the natural order: GPTQ always writes one */
    bool nested_scales;                /* bitsandbytes: the scales are quantized themselves */
    bool zeros_less_one;               /* GPTQ, except gptq_v2: zero points are stored minus one */
    bool foreign;                      /* a layout of one kernel (marlin, AWQ's gemv, rotated activations): copied, never decoded */
    bool static_activations;           /* an input_scale next to every weight, for FP8 by FP8 products */
} apr_quant_scheme;

typedef struct apr_quantization {
    const char *method;              /* quant_method as stated in the file; never NULL */
    bool known;                      /* the method is one of those above */
    const char *problem;             /* what is not supported, as a clause; NULL: nothing */
    const apr_quant_scheme *schemes; /* [n_schemes], one for each rule */
    size_t n_schemes;
    bool experts_only;                       /* the rules apply only to stacks of experts */
    bool head;                               /* the rules also apply to the output head */
    const struct apr_name_patterns *targets; /* one for each scheme; NULL: the first scheme covers everything */
    const struct apr_name_patterns *skipped; /* NULL: nothing is skipped */
} apr_quantization;

/* The kind of a matrix, for rules without names. */
typedef enum { APR_MODULE_LINEAR, APR_MODULE_EXPERTS, APR_MODULE_HEAD, APR_MODULE_OTHER } apr_module_kind;

/* Reads the model's attachments config.json and hf_quant_config.json. *quantization is NULL if they do not describe quantized weights.
 * Fails only with APR_E_MEMORY. Readers store the result in model->quantization. */
apr_status apr_quantization_read(const apr_model *model, apr_arena *arena, const apr_quantization **quantization, apr_error *err);

/* The scheme of the module `name` (a matrix's tensor name without ".weight"), or NULL: it is not quantized. Names are canonical:
 * "language_model." in patterns is ignored. */
const apr_quant_scheme *apr_quantization_of(const apr_quantization *quantization, const char *name, apr_module_kind kind);

/* The same for the module named by the first n bytes of a tensor's name in a file ("model.language_model.layers.0..."). The module counts
 * as a linear layer or, if experts_only, as a stack of experts. NULL also if its scheme has another layout. */
const apr_quant_scheme *apr_quantization_of_tensor(const apr_quantization *quantization, const char *name, size_t n,
                                                   apr_quant_layout layout);

/* APR_E_UNSUPPORTED: in a call of the two functions above a pattern took too long on a name, and the result for that name is invalid. */
apr_status apr_quantization_check(const apr_quantization *quantization, apr_error *err);

/* Bytes of n_matrices equal matrices [rows, columns] that share their tensors (a stack of experts; 1 otherwise): codes, scales
 * and zero points, each tensor padded to 64. UINT64_MAX: more than can be counted. */
uint64_t apr_quant_bytes(const apr_quant_scheme *scheme, int64_t n_matrices, int64_t rows, int64_t columns);

/* The same in the repacked layout for devices (formats/tensor/canonical_layout.h): codes of 4 or 8 bits, no natural-order index, no shapes and
 * states. All n_matrices are one stack. */
uint64_t apr_quant_device_bytes(const apr_quant_scheme *scheme, int64_t n_matrices, int64_t rows, int64_t columns);

/* "INT, 4 bits, groups of 128", for plans and messages. Returns text. */
char *apr_quant_text(const apr_quant_scheme *scheme, char *text, size_t n_bytes);

/* --- patterns, for hf_quantization.c --- */

typedef struct apr_name_patterns apr_name_patterns;

/* *bad is a pattern that is not a valid regular expression, or NULL. The texts are borrowed. */
apr_status apr_name_patterns_make(const char *const *texts, size_t n, apr_arena *arena, const apr_name_patterns **patterns,
                                  const char **bad, apr_error *err);

#endif
