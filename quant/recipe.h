/* quant/recipe.h - which tensor becomes which type, and why. Made from a model (or a bare list of shapes), printed by
 * --dry-run, run by convert/pipe.
 *
 * A mixture is a table row: a type for each purpose, plus llama.cpp's rule for the tensors that get more bits. A tensor whose
 * columns the wanted type does not divide, or whose container has no such type, falls back, and its line says so. */
#ifndef APR_QUANT_RECIPE_H
#define APR_QUANT_RECIPE_H

#include "formats/model/model.h"
#include "quant/purpose.h"

typedef struct apr_recipe_line {
    const apr_tensor *tensor; /* of the model the recipe was made for */
    apr_purpose purpose;
    apr_dtype to;
    bool asked_for;     /* by an override */
    bool fell_back;     /* not the type the mixture asked for */
    bool same_numbers;  /* of numbers that lie in several tensors: they are only put in other places (kernels/transcode.h) */
    bool decoded;       /* what a checkpoint publishes quantized, as plain values, because no type of the container holds its numbers */
    const char *reason; /* one phrase, always there */
} apr_recipe_line;

/* What an override did. */
typedef struct apr_override_use {
    size_t n_used, n_hidden; /* tensors that it decided; that it matches too, but an earlier one decided */
} apr_override_use;

typedef struct apr_recipe {
    apr_override_use *uses; /* [n_overrides] of the options */
    apr_recipe_line *lines; /* one a tensor, in the model's order; all scales of FP8 weights that are re-encoded are left out */
    size_t n_lines;
    uint64_t n_bytes; /* of all tensors as they will be, FP8 scales included, padding not */
    int64_t n_elems;
    size_t n_matrices; /* tensors of weights with two axes or more */
    size_t
        n_quantized; /* of these, those that the mixture or an override gives a type of its own: another than the model's, or the one asked for */
    size_t n_by_shape;   /* of these, matrices of names that are not known here */
    const char *mixture; /* its name, "" when types are kept */
    int64_t file_type;   /* llama.cpp's number of the mixture (general.file_type); -1: none fits */
    apr_arena arena;
} apr_recipe;

/* 'REGEX=TYPE': the regular expression (PCRE2) is searched for in the canonical name and in the origin's name. */
typedef struct apr_recipe_override {
    const char *regex;
    apr_dtype to;
    const char *reason; /* NULL: "asked for with --tensor" */
} apr_recipe_override;

/* What the output can hold. */
typedef struct apr_recipe_limits {
    bool (*allows)(apr_dtype dtype); /* NULL: everything */
    const char *container;           /* "GGUF", "safetensors", "the aprender profile" - for sentences */
    bool vectors_f32;                /* one-dimensional tensors become f32 (GGUF and aprender readers want it) */
    bool plain_fallback;             /* fall back to f16 at once, not to another block type */
} apr_recipe_limits;

typedef struct apr_recipe_options {
    const char *mixture; /* "q4_k", "q4_k_m", "mxfp4", "fp8", "f16", ...; NULL: keep every type */
    const apr_recipe_override *overrides;
    size_t n_overrides;
    bool same_numbers;     /* numbers that lie in several tensors become a type that holds the same, where nothing else is asked for */
    bool allow_requantize; /* quantized -> another quantized type: loses twice, so only when asked */
    apr_recipe_limits limits;
} apr_recipe_options;

/* APR_E_USAGE: unknown mixture or a regular expression that does not compile. APR_E_UNSUPPORTED: a tensor that cannot become what
 * was asked (packed in a layout that is not read, no decoder, requantizing not allowed, container without the type); the sentence
 * names it and a way out. */
apr_status apr_recipe_make(apr_recipe *recipe, const apr_model *model, const apr_recipe_options *options, apr_error *err);
void apr_recipe_close(apr_recipe *recipe);

/* Bytes a tensor of these dims takes in a type, the scales of FP8 included. The columns must divide. */
uint64_t apr_recipe_bytes(const apr_tensor *tensor, apr_dtype to);

/* Names that --to takes, NULL-terminated, and one line about each. */
typedef struct apr_mixture_name {
    const char *name, *about;
} apr_mixture_name;
extern const apr_mixture_name apr_mixture_names[];

#endif
