/* families.h - aprconv families: lists the known model families and what is supported for each. */
#ifndef APR_TOOLS_FAMILIES_H
#define APR_TOOLS_FAMILIES_H

#include "tools/cli/cli.h"

extern const apr_command apr_families_command;

#endif
