/* usage.h - the options that every command has; cli.c parses them, usage.c prints them. */
#ifndef APR_TOOLS_USAGE_H
#define APR_TOOLS_USAGE_H

#include "tools/cli.h"

extern const apr_option apr_common_options[]; /* offsets into apr_parsed.common */

#endif
