/* convert/adapter_values.h - an adapter's numbers, and those that come of it, are finite where the base's are. */
#ifndef APR_CONVERT_ADAPTER_VALUES_H
#define APR_CONVERT_ADAPTER_VALUES_H

#include "formats/model/adapter.h"

/* After `change`, by `scale`, was merged into `merged` (a made tensor, or the change's own one in its place). Reads the adapter's numbers;
 * those of `merged` only where finite numbers could have a result that is not: huge ones, and rows brought to a length. */
apr_status apr_check_merged(const apr_adapter *adapter, const apr_adapter_change *change, double scale, const apr_tensor *merged,
                            apr_error *err);

#endif
