/* convert_verbs.h - aprconv's verbs that write: convert, and X2Y for each pair of formats. */
#ifndef APR_TOOLS_CONVERT_VERBS_H
#define APR_TOOLS_CONVERT_VERBS_H

#include "tools/cli/cli.h"

extern const apr_command apr_gguf2apr_command, apr_st2apr_command, apr_apr2gguf_command, apr_apr2st_command, apr_st2gguf_command,
    apr_gguf2st_command, apr_gguf2gguf_command, apr_apr2apr_command, apr_st2st_command, apr_convert_command;

#endif
