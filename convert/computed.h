/* convert/computed.h - values that are computed on the way (a rate of decay as its logarithm) and have no result. */
#ifndef APR_CONVERT_COMPUTED_H
#define APR_CONVERT_COMPUTED_H

#include "formats/model/model.h"

/* APR_E_DAMAGED where a computed tensor of the view would hold more values that are not finite than what it is computed from. */
apr_status apr_check_computed(const apr_model *view, apr_error *err);

#endif
