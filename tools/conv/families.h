/* families.h - aprconv families: which model families are known, and what can be done with each. */
#ifndef APR_TOOLS_FAMILIES_H
#define APR_TOOLS_FAMILIES_H

#include "tools/cli/cli.h"

extern const apr_command apr_families_command;

#endif
