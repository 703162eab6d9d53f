/* convert/families.h - names and orders of a model family in both dialects, as one table a family.
 *
 * A new family is one file with a table like convert/families/family_llama.c and one line in families.c. */
#ifndef APR_CONVERT_FAMILIES_H
#define APR_CONVERT_FAMILIES_H

#include "formats/model/model.h"

/* Whose heads a rotary reordering runs over; NONE: rows keep their order. */
typedef enum { APR_HEADS_NONE, APR_HEADS_QUERY, APR_HEADS_KEY } apr_heads;

/* "{}" stands for the layer's number in both names. */
typedef struct apr_name_rule {
    const char *hf, *ggml;
    apr_heads rotary_pairs; /* ggml keeps rotary pairs of these heads together (llama only) */
} apr_name_rule;

typedef struct apr_family {
    const char *const *architectures; /* Hugging Face's model_type, NULL-terminated */
    const apr_name_rule *rules;
    size_t n_rules;
} apr_family;

/* NULL when the family is not known: names and orders are then kept, never guessed. */
const apr_family *apr_family_find(const char *architecture);

/* The other dialect's name (arena-allocated) and the step that takes rows from `from` to the other; false when no rule matches.
 * *name is NULL when memory ran out. */
bool apr_family_translate(const apr_family *family, apr_dialect from, const char *name, const apr_hparams *hparams, apr_arena *arena,
                          const char **other, apr_step *step);

extern const apr_family apr_family_llama;
extern const apr_family apr_family_qwen;

#endif
