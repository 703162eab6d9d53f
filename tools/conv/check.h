/* check.h - aprconv check: reads all of a model and says what is wrong and where. */
#ifndef APR_TOOLS_CHECK_H
#define APR_TOOLS_CHECK_H

#include "tools/cli/cli.h"

/* APR_E_DAMAGED when a checksum does not match (or the reader found damage), APR_E_NO when only values are not finite. */
extern const apr_command apr_check_command;

#endif
