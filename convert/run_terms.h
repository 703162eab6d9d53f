/* run_terms.h - what several runs that make one output must agree on, in lines: inputs, recipe, and what the encoders give.
 *
 *     input model.safetensors of 3400000 bytes, 5f0c2a91 in 256 samples
 *     saturate no
 *     importance of 197 tensors, 8d3f61aa
 *     adapter 1, 77b0c4d2, factor 0x1p-1
 *     encoder q8_0 gives 3fa1b2c4
 *     tensor 'model.embed_tokens.weight' bf16 -> q8_0
 *
 * Inputs are known by name, size and samples of their bytes, not by folder: hosts may have them in different places. A whole output that
 * is made on one host also asks for the time of change. */
#ifndef APR_CONVERT_RUN_TERMS_H
#define APR_CONVERT_RUN_TERMS_H

#include "convert/convert.h"

/* The lines about inputs and adapters alone, malloc'ed: for other work that goes on where it was ended. */
apr_status apr_inputs_terms(char **text, const apr_adapter_use *uses, size_t n_uses, apr_error *err);

/* Fills terms and continues; both live in the layout's arena. */
apr_status apr_run_terms_make(apr_sink_work *work, apr_conversion *conversion, apr_error *err);

#endif
