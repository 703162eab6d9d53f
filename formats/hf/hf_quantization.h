/* hf_quantization.h - what a checkpoint's config.json says about quantized weights, in one shape for every producer.
 *
 * Producers state it as quantization_config (or compression_config, at the top or inside text_config) or in modelopt's
 * hf_quant_config.json. All of it comes down to this: rules, each a target and a scheme; the first rule that covers a matrix's
 * name decides how the matrix is stored, unless a pattern of the skip list covers it as well: then it stays a plain float.
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
 * A pattern is a path of names ("lm_head", "model.layers.0.mlp.gate", "mlp.gate") that covers every module which contains it
 * as whole names, the same with '*' for any text, or "re:" and a regular expression for the beginning of the module's name.
 *
 * The tensors have the last word where there are some: this is for planning without them, and to name what was found. What is
 * not understood is kept as a sentence in `problem`: a file is never refused for it, only the question that needs the answer. */
#ifndef APR_FORMATS_HF_QUANTIZATION_H
#define APR_FORMATS_HF_QUANTIZATION_H

#include "formats/model/model.h"

/* X(id, name): how the numbers of a matrix [N, K] lie in the file. G: scales along a row; b: bits of a number */
#define APR_QUANT_LAYOUT_LIST(X)                                                                               \
    X(FP8, "FP8")          /* X.weight F8_E4M3 [N, K], X.weight_scale or _inv: one a tensor, a row, a block */ \
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
    int64_t block_rows, block_columns; /* what one scale covers; 0: everything in that direction, so 0, 0 is one scale a tensor */
    int scale_bytes;                   /* of one scale */
    bool zero_points;                  /* beside every scale */
    bool act_order;                    /* an index of the group for each column ... */
    bool sorted;                       /* ... that is there, and names the natural one: GPTQ writes it in any case */
    bool nested_scales;                /* bitsandbytes: the scales are quantized too */
    bool zeros_less_one;               /* GPTQ, but for gptq_v2: the zero points are stored less one */
    bool foreign;                      /* as its producer alone has it (for marlin, AWQ for gemv, with rotated activations): only carried */
    bool static_activations;           /* an input_scale beside every weight, for products of FP8 by FP8 */
} apr_quant_scheme;

typedef struct apr_quantization {
    const char *method;              /* quant_method as the file says it; never NULL */
    bool known;                      /* the method is one of those above */
    const char *problem;             /* what is not understood, as half a sentence; NULL: all of it is understood */
    const apr_quant_scheme *schemes; /* [n_schemes], one for each rule */
    size_t n_schemes;
    bool experts_only;                       /* the rules are about the stacks of experts alone */
    bool head;                               /* the rules are about the output head as well */
    const struct apr_name_patterns *targets; /* one for each scheme; NULL: the first scheme covers everything */
    const struct apr_name_patterns *skipped; /* NULL: nothing is skipped */
} apr_quantization;

/* What a matrix of a program is, as far as rules without names go. */
typedef enum { APR_MODULE_LINEAR, APR_MODULE_EXPERTS, APR_MODULE_HEAD, APR_MODULE_OTHER } apr_module_kind;

/* Reads the model's attachments config.json and hf_quant_config.json. *quantization is NULL when they say nothing about
 * quantized weights. Fails only for want of memory. Readers call it, and leave the answer in model->quantization. */
apr_status apr_quantization_read(const apr_model *model, apr_arena *arena, const apr_quantization **quantization, apr_error *err);

/* The scheme of the module `name` (a matrix's tensor name without ".weight"), or NULL: it is not quantized. Names are canonical:
 * "language_model." in patterns is looked through. */
const apr_quant_scheme *apr_quantization_of(const apr_quantization *quantization, const char *name, apr_module_kind kind);

/* The same for the module that is the first n bytes of a name as files have it ("model.language_model.layers.0..."), as a linear layer
 * or, where only those are quantized, a stack of experts; NULL as well when it is of another layout. */
const apr_quant_scheme *apr_quantization_of_tensor(const apr_quantization *quantization, const char *name, size_t n,
                                                   apr_quant_layout layout);

/* Has every pattern been decided that the two functions above have looked for since? APR_E_UNSUPPORTED: one took too long on a name, and
 * what was answered for that name does not count. */
apr_status apr_quantization_check(const apr_quantization *quantization, apr_error *err);

/* Bytes of n_matrices equal matrices [rows, columns] that share their tensors (a stack of experts; 1 otherwise): codes, scales
 * and zero points, each tensor padded to 64. UINT64_MAX stands for more than can be counted. */
uint64_t apr_quant_bytes(const apr_quant_scheme *scheme, int64_t n_matrices, int64_t rows, int64_t columns);

/* The same in the form in which a device reads them (formats/model/regular.h): codes of 4 or 8 bits, no index in its natural order, no
 * shapes and states. All n_matrices are one stack. */
uint64_t apr_quant_device_bytes(const apr_quant_scheme *scheme, int64_t n_matrices, int64_t rows, int64_t columns);

/* "INT, 4 bits, groups of 128", for plans and sentences; returns text. */
char *apr_quant_text(const apr_quant_scheme *scheme, char *text, size_t n_bytes);

/* --- patterns, for hf_quantization.c --- */

typedef struct apr_name_patterns apr_name_patterns;

/* *bad is the first pattern that is no regular expression, or NULL. The texts are borrowed. */
apr_status apr_name_patterns_make(const char *const *texts, size_t n, apr_arena *arena, const apr_name_patterns **patterns,
                                  const char **bad, apr_error *err);
/* Index of the first pattern that covers the module; -1: none. */
int64_t apr_name_patterns_find(const apr_name_patterns *patterns, const char *module);
/* Patterns may be NULL. */
apr_status apr_name_patterns_check(const apr_name_patterns *patterns, apr_error *err);

#endif
