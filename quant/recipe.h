/* quant/recipe.h - decides which type each tensor gets, and states why. Made from a model (or a bare list of shapes), printed by
 * --dry-run, run by convert/pipe.
 *
 * A mixture is a table row: a type for each role, plus llama.cpp's rules for the tensors that get more bits. If the blocks of the wanted
 * type do not divide a tensor's columns, or the container has no such type, the tensor falls back, and its line says so. */
#ifndef APR_QUANT_RECIPE_H
#define APR_QUANT_RECIPE_H

#include "formats/packed/packed_layouts.h"
#include "formats/tensor/model.h"
#include "quant/role.h"

typedef struct apr_recipe_line {
    const apr_tensor *tensor; /* of the model the recipe was made for */
    apr_tensor_role role;
    apr_dtype to;
    bool asked_for;     /* by an override */
    bool fell_back;     /* not the type the mixture asked for */
    bool same_numbers;  /* packed weights, only repacked: the numbers stay the same (kernels/transcode.h) */
    bool decoded;       /* published quantized, but decoded, because no type of the container can hold its numbers */
    bool is_packed;     /* becomes several tensors in the layout of options.packed; `to` is that layout's dtype */
    bool same_codes;    /* is_packed: codes and scales are copied (kernels/pack.h) */
    const char *reason; /* one phrase, always there */
} apr_recipe_line;

/* What an override did. */
typedef struct apr_override_use {
    size_t n_used, n_hidden; /* tensors that it decided; tensors that it also matches, but an earlier one decided */
} apr_override_use;

typedef struct apr_recipe {
    apr_override_use *uses; /* [n_overrides] of the options */
    apr_recipe_line *lines; /* one for each tensor, in the model's order, without the scales of FP8 weights that are re-encoded */
    size_t n_lines;
    const apr_packed_target *packed; /* of the options */
    uint64_t n_bytes;                /* of all tensors after conversion, with FP8 scales, without padding */
    int64_t n_elems;
    size_t n_matrices;   /* tensors of weights with two axes or more */
    size_t n_quantized;  /* of these: the mixture or an override changes the type, or asks for the type that it has */
    size_t n_by_shape;   /* of these: unknown names, recognized by their shape */
    const char *mixture; /* its name, "" when types are kept */
    int64_t file_type;   /* llama.cpp's number of the mixture (general.file_type); -1: none */
    apr_arena arena;
} apr_recipe;

/* 'REGEX=TYPE': the regular expression (PCRE2) is matched anywhere in the canonical name and in the origin's name. */
typedef struct apr_recipe_override {
    const char *regex;
    apr_dtype to;
    const char *reason; /* NULL: "asked for with --tensor" */
} apr_recipe_override;

/* What the output can hold. */
typedef struct apr_recipe_limits {
    bool (*allows)(apr_dtype dtype); /* NULL: everything */
    const char *container;           /* "GGUF", "safetensors", "the aprender profile" - for messages */
    bool vectors_f32;                /* one-dimensional tensors become f32 (GGUF and aprender readers need it) */
    bool plain_fallback;             /* fall back to f16, not to another block type */
} apr_recipe_limits;

typedef struct apr_recipe_options {
    const char *mixture; /* "q4_k", "q4_k_m", "mxfp4", "fp8", "f16", ...; NULL: keep every type */
    const apr_recipe_override *overrides;
    size_t n_overrides;
    bool pure;                       /* without the mixture's rules: matrices other than embedding and head get its base type */
    bool has_importance;             /* encoded with an importance matrix: some mixtures then give fewer bits, as llama.cpp does */
    const apr_packed_target *packed; /* mixture is its type: matrices become several tensors in that layout; NULL: none. Must outlive the
                                      * recipe */
    bool same_numbers;               /* repack packed weights into a type that holds the same numbers, unless a type is asked for */
    bool allow_requantize;           /* allow quantized -> another quantized type, which loses precision twice */
    apr_recipe_limits limits;
} apr_recipe_options;

/* APR_E_USAGE: unknown mixture, or a regular expression that does not compile. APR_E_UNSUPPORTED: a tensor cannot become the requested
 * type (packed in an unsupported layout, no decoder, requantizing not allowed, container without the type); the message
 * names it and a way out. */
apr_status apr_recipe_make(apr_recipe *recipe, const apr_model *model, const apr_recipe_options *options, apr_error *err);
void apr_recipe_close(apr_recipe *recipe);

/* Bytes of the tensor in a type, including FP8 row scales. The type's blocks must divide the columns. */
uint64_t apr_recipe_bytes(const apr_tensor *tensor, apr_dtype to);

/* The same for a line, which may be packed; the name of its type; whether it changes what is stored. */
uint64_t apr_recipe_line_bytes(const apr_recipe *recipe, const apr_recipe_line *line);
const char *apr_recipe_type_name(const apr_recipe *recipe, const apr_recipe_line *line);
static inline bool apr_recipe_changes(const apr_recipe_line *line) { return line->is_packed || line->to != line->tensor->dtype; }

/* The names for --to and one line about each; the last name is NULL. */
typedef struct apr_mixture_name {
    const char *name, *about;
} apr_mixture_name;
extern const apr_mixture_name apr_mixture_names[];

#endif
