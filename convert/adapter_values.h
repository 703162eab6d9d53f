/* convert/adapter_values.h - checks that merging an adapter makes no new values that are not finite. */
#ifndef APR_CONVERT_ADAPTER_VALUES_H
#define APR_CONVERT_ADAPTER_VALUES_H

#include "formats/tensor/adapter.h"

/* Call after `change`, scaled by `scale`, was merged into `merged` (a composed tensor, or the change's own tensor in its place). Always
 * reads the adapter's numbers. Reads those of `merged` only if finite inputs could overflow: huge numbers, or rows scaled to a length
 * (DoRA). */
apr_status apr_check_merged(const apr_adapter *adapter, const apr_adapter_change *change, double scale, const apr_tensor *merged,
                            apr_error *err);

#endif
