/* tensor_names.h - takes the prefix of a multimodal model off a tensor's name, matches the name with a family's rules and forms, and fills a
 * model's numbers into their steps. */
#ifndef APR_FORMATS_TENSOR_NAMES_H
#define APR_FORMATS_TENSOR_NAMES_H

#include "formats/shape/family.h"

/* A name without the prefix of a multimodal model: `root` ("model." or ""), then `rest`, which points into the name.
 * "language_model.model.norm.weight" is {"model.", "norm.weight"}, "language_model.lm_head.weight" is {"", "lm_head.weight"}. */
typedef struct apr_text_name {
    const char *root, *rest;
} apr_text_name;

apr_text_name apr_text_name_of(const char *name);
/* The same as one string; `name` itself if it has no such prefix. NULL: out of memory. */
const char *apr_text_name_print(const char *name, apr_arena *arena);

/* The meaning of a tensor name in a family. Exactly one of rule and form is set. */
typedef struct apr_name_match {
    const apr_tensor_rule *rule;
    const apr_tensor_form *form;
    int part;                       /* index of the form's part, when a canonical name was looked up */
    const char *holder, *canonical; /* then: the patterns of the tensor that holds it in the naming, and of the canonical one */
    bool is_stack;                  /* then: it is one matrix of the holder */
    const char *root;               /* "model.": prefix that the canonical name has and the tensor's name lacks; static; "": none */
    int64_t layer;                  /* -1: the name has no layer number */
    int64_t expert;                 /* -1: the name has no expert number */
} apr_name_match;

/* The rule of a tensor by its name in either naming scheme (for a form: the rule of its first part); NULL: no rule matches. */
const apr_tensor_rule *apr_family_rule(const apr_family *family, const char *name);
/* By the canonical name, written as in rules. */
const apr_tensor_rule *apr_rule_of_pattern(const apr_family *family, const char *canonical);

/* Matches a tensor's name in that naming scheme. Forms that are canonical themselves match as rules. */
bool apr_match_tensor(const apr_family *family, apr_naming naming, const char *name, apr_name_match *match);

/* Where a canonical tensor goes when that naming scheme is written. `is_mxfp4` chooses among forms. False: Hugging Face keeps its
 * canonical name, ggml has no place for it. */
bool apr_match_target(const apr_family *family, apr_naming naming, const char *canonical, bool is_mxfp4, bool has_experts,
                      apr_name_match *match);

/* The form of a tensor that is canonical as a whole and must be split for the `target` scheme; NULL: there is none. */
const apr_tensor_form *apr_match_whole(const apr_family *family, apr_naming target, const char *canonical, apr_name_match *match);

/* Fills numbers into a pattern; NULL: out of memory. */
const char *apr_fill_name(const char *pattern, const apr_name_match *match, int64_t expert, apr_arena *arena);
bool apr_is_stack_of(const char *whole, const char *part);
/* How many tensors of the pattern `part` a stack of them has: experts, or the projections of AltUp's streams after the first; 0: the model
 * does not state it. */
int64_t apr_stack_length(const apr_hparams *hparams, const char *part);

/* The steps of a rule with the model's numbers. `keeps_tiles`: do not reorder value heads. False: too many steps. */
bool apr_rule_to_ggml(const apr_tensor_rule *rule, const apr_family *family, const apr_hparams *hparams, bool keeps_tiles,
                      apr_chain *chain);
/* The steps back: from ggml's tensor, or from matrix `expert` of its stack (-1: not a stack), to the canonical one. */
bool apr_rule_from_ggml(const apr_tensor_rule *rule, const apr_family *family, const apr_hparams *hparams, bool keeps_tiles, int64_t expert,
                        apr_chain *chain);
/* The steps that make a form's whole of its stored tensors: MXFP4's scales and nibbles; none for one tensor. */
apr_chain apr_whole_chain(const apr_tensor_form *form);
/* The steps from a form's whole to one of its parts. `from_whole`: `shape` is that of the whole, else of the part. `expert` -1: not a
 * stack. */
bool apr_part_chain(const apr_tensor_form *form, int part, const apr_hparams *hparams, const apr_shape *shape, bool from_whole,
                    int64_t expert, apr_chain *chain);

#endif
