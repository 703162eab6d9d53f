/* meta_names.h - maps tensor names of Meta's and Mistral's own releases ("consolidated" files) to canonical names.
 *
 * In these files the rows of wq and wk are rotary pairs. Everything else is as in Hugging Face's files, under another name. */
#ifndef APR_FORMATS_META_NAMES_H
#define APR_FORMATS_META_NAMES_H

#include "formats/tensor/model.h"

/* Does the model use such names? One name is enough: no other release has it. */
bool apr_has_meta_names(const apr_model *model);

/* The canonical name, in the arena, and the steps from the stored order to the canonical one. An unknown name is returned as it is.
 * NULL: out of memory. */
const char *apr_meta_to_canonical(const char *name, const apr_hparams *hparams, apr_chain *chain, apr_arena *arena);

#endif
