/* packed_config.h - the members of quantization_config for each layout that is written: one function a layout, for its row in
 * packed_layouts.c. */
#ifndef APR_FORMATS_PACKED_CONFIG_H
#define APR_FORMATS_PACKED_CONFIG_H

#include "formats/packed/packed_layouts.h"

typedef void apr_packed_config_fn(apr_json_text *out, const apr_packed_config *config);

apr_packed_config_fn apr_config_compressed_nvfp4, apr_config_compressed_mxfp4, apr_config_compressed_int4, apr_config_modelopt,
    apr_config_fp8, apr_config_gptq, apr_config_awq;

#endif
