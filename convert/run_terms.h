/* run_terms.h - the terms that several runs of one output must agree on, as lines: inputs, recipe, and a check of the encoders.
 *
 *     input model.safetensors of 3400000 bytes, 5f0c2a91 in 256 samples
 *     saturate no
 *     importance of 197 tensors, 8d3f61aa
 *     adapter 1, 77b0c4d2, factor 0x1p-1
 *     encoder q8_0 gives 3fa1b2c4
 *     tensor 'model.embed_tokens.weight' bf16 -> q8_0
 *
 * Inputs are identified by name, size and samples of their bytes, not by folder: hosts may have them in different folders. If one host
 * makes the whole output, the modification time must also match. */
#ifndef APR_CONVERT_RUN_TERMS_H
#define APR_CONVERT_RUN_TERMS_H

#include "convert/convert.h"

/* Only the lines about inputs and adapters, malloc'ed: for other work that can be resumed. */
apr_status apr_inputs_terms(char **text, const apr_adapter_use *uses, size_t n_uses, apr_error *err);

/* Sets work->terms and work->continues; both live in the layout's arena. */
apr_status apr_run_terms_make(apr_sink_work *work, apr_conversion *conversion, apr_error *err);

#endif
