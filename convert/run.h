/* convert/run.h - runs a planned conversion, in one run or in several that make one output (formats/files/resume.h). These must agree on terms,
 * which are lines: inputs, recipe, and a check of the encoders.
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
#ifndef APR_CONVERT_RUN_H
#define APR_CONVERT_RUN_H

#include "convert/convert.h"
#include "convert/pipe.h"

/* How a plan is run. A zeroed struct is one run on the host. */
typedef struct apr_convert_run {
    apr_pipe_options pipe;       /* its source is filled in; the items of a custom encoder are those of the conversion */
    const apr_resume_part *part; /* one of several runs; NULL: the only one */
    const char *maker_terms;     /* the method of the custom encoder in one line, for the terms of several runs; NULL: none */
} apr_convert_run;

/* *file_bytes: the size of the output; may be NULL. A conversion may be run again after a failure. */
apr_status apr_conversion_run(apr_conversion *conversion, const apr_convert_run *run, const char *path, uint64_t *file_bytes,
                              apr_error *err);

/* Only the lines about inputs and adapters, malloc'ed: for other work that can be resumed. */
apr_status apr_inputs_terms(char **text, const apr_adapter_use *uses, size_t n_uses, apr_error *err);

#endif
