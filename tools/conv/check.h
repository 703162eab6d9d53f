/* check.h - aprconv check: reads all of a model and reports errors and where they are. */
#ifndef APR_TOOLS_CHECK_H
#define APR_TOOLS_CHECK_H

#include "tools/cli/cli.h"

/* APR_E_DAMAGED: a checksum does not match, or the reader found damage. APR_E_NO: values are not finite, or tensors are missing. */
extern const apr_command apr_check_command;

#endif
