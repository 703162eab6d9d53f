/* convert/adapters.h - adapters merged into a model: a step of values between the canonical view and everything behind it.
 *
 * Nothing is computed here. A tensor that an adapter changes becomes one that is made (apr_tensor_merge), so recipes, the pipe, sessions
 * and checks see one tensor, in float32, whatever its base was stored as; it is written in the base's type unless that is quantized.
 * Adapters are merged in their order, each on what the ones before made. Every part of an adapter must find its tensor: one that does
 * not is an error that names it. */
#ifndef APR_CONVERT_ADAPTERS_H
#define APR_CONVERT_ADAPTERS_H

#include "formats/model/adapter.h"

typedef struct apr_adapter_use {
    const apr_adapter *adapter;
    double factor; /* what the adapter's scale is multiplied by */
} apr_adapter_use;

/* `canonical` (of apr_canonical) gets a new table of tensors, and a key of metadata for each adapter: "aprkit.lora.0". The adapters must
 * outlive the view. APR_E_UNSUPPORTED: an adapter does not fit the model, or cannot be merged into it. */
apr_status apr_merge_adapters(apr_model *canonical, const apr_adapter_use *uses, size_t n_uses, apr_error *err);

#endif
