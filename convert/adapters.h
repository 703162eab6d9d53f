/* convert/adapters.h - merges adapters into a model, after the canonical view is made and before everything else.
 *
 * Nothing is computed here. A tensor that an adapter changes becomes a composed one (apr_tensor_merge), so recipes, the pipe, sessions
 * and checks see one tensor, in float32, whatever type its base has. It is written in the base's type unless that is quantized.
 * Adapters are merged in order, each into the result of those before. Every part of an adapter must find its tensor: a part that
 * does not is an error that names it. */
#ifndef APR_CONVERT_ADAPTERS_H
#define APR_CONVERT_ADAPTERS_H

#include "formats/tensor/adapter.h"

typedef struct apr_adapter_use {
    const apr_adapter *adapter;
    double factor; /* multiplies the adapter's scale */
} apr_adapter_use;

/* `canonical` (of apr_canonical) gets a new table of tensors, and a metadata key for each adapter: "aprkit.lora.0". The adapters must
 * outlive the view. APR_E_UNSUPPORTED: an adapter does not fit the model, or cannot be merged into it. */
apr_status apr_merge_adapters(apr_model *canonical, const apr_adapter_use *uses, size_t n_uses, apr_error *err);

#endif
