/* usage.h - help texts, and what else a tool tells about itself. */
#ifndef APR_TOOLS_USAGE_H
#define APR_TOOLS_USAGE_H

#include "tools/cli/cli.h"

/* Answers --help, --version and --license, as text or as JSON. */
void apr_answer_about(const apr_tool *tool, const apr_parsed *parsed, apr_answer *answer);

/* The members of the JSON object that --help --json prints. command NULL: the whole tool. */
void apr_cli_usage_json(const apr_tool *tool, const apr_command *command, apr_json_text *json);

#endif
