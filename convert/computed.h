/* convert/computed.h - finds computed values (such as the logarithm of a decay rate) that are not finite. */
#ifndef APR_CONVERT_COMPUTED_H
#define APR_CONVERT_COMPUTED_H

#include "formats/tensor/model.h"

/* APR_E_DAMAGED if a computed tensor of the view has more values that are not finite than its inputs have. */
apr_status apr_check_computed(const apr_model *view, apr_error *err);

#endif
