/* tensor_names.h - names of tensors held against a card's rules and forms, and their steps with a model's numbers in them. */
#ifndef APR_FORMATS_TENSOR_NAMES_H
#define APR_FORMATS_TENSOR_NAMES_H

#include "formats/model/family.h"

/* What a name means in a family. Exactly one of rule and form is there. */
typedef struct apr_name_match {
    const apr_tensor_rule *rule;
    const apr_tensor_form *form;
    int part;         /* of the form, where a canonical name was looked for */
    const char *root; /* "model.": what the canonical name begins with, and the tensor's does not; static; "": nothing */
    int64_t layer;    /* -1: the name has none */
    int64_t expert;   /* -1: the same */
} apr_name_match;

/* The rule of a tensor, by its name in either dialect (a form's is that of its first part); NULL when none has it. */
const apr_tensor_rule *apr_family_rule(const apr_family *family, const char *name);
/* By its canonical name as rules are written. */
const apr_tensor_rule *apr_rule_of_pattern(const apr_family *family, const char *canonical);

/* What a tensor of that dialect is under its name there. Forms that are canonical themselves are found as rules. */
bool apr_match_tensor(const apr_family *family, apr_dialect dialect, const char *name, apr_name_match *match);

/* Where that dialect has a canonical tensor when it is to be written; `is_mxfp4` chooses among forms. False: in Hugging Face's under
 * its own name, in ggml's nowhere. */
bool apr_match_holder(const apr_family *family, apr_dialect dialect, const char *canonical, bool is_mxfp4, bool has_experts,
                      apr_name_match *match);

/* The form that takes apart what is canonical in the other dialect only; NULL: there is none. */
const apr_tensor_form *apr_match_whole(const apr_family *family, apr_dialect target, const char *canonical, apr_name_match *match);

/* A name with its numbers; NULL without memory. */
const char *apr_fill_name(const char *pattern, const apr_name_match *match, int64_t expert, apr_arena *arena);
bool apr_is_stack_of(const char *whole, const char *part);

/* Steps of a rule with the numbers of a model. `keeps_tiles`: value heads stay as they are. False: too many. */
bool apr_rule_to_ggml(const apr_tensor_rule *rule, const apr_family *family, const apr_hparams *hparams, bool keeps_tiles,
                      apr_chain *chain);
/* From a form's whole to one of its parts. `from_whole`: `shape` is the whole's, else the part's; `expert` -1: no stack. */
bool apr_part_chain(const apr_tensor_form *form, int part, const apr_hparams *hparams, const apr_shape *shape, bool from_whole,
                    int64_t expert, apr_chain *chain);

#endif
