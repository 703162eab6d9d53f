/* meta_names.h - tensors as Meta and Mistral name them in their own releases ("consolidated" files), as canonical ones.
 *
 * Rows of wq and wk lie there as rotary pairs; everything else is as Hugging Face has it, under another name. */
#ifndef APR_FORMATS_META_NAMES_H
#define APR_FORMATS_META_NAMES_H

#include "formats/model/model.h"

/* Has this model such names? A few are enough: no other release has them. */
bool apr_has_meta_names(const apr_model *model);

/* The canonical name, in the arena, and the steps from how it lies. What has no other name keeps its own. NULL: out of memory. */
const char *apr_meta_to_canonical(const char *name, const apr_hparams *hparams, apr_chain *chain, apr_arena *arena);

#endif
