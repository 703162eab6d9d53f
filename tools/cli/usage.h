/* usage.h - the options that every command has; cli.c parses them, usage.c prints them. */
#ifndef APR_TOOLS_USAGE_H
#define APR_TOOLS_USAGE_H

#include "tools/cli/cli.h"

extern const apr_option apr_common_options[]; /* offsets into apr_parsed.common */

/* `TOOL help words`: the table of words, as far as it is the tool's. */
void apr_cli_words(const apr_tool *tool, FILE *out);

/* The members of the JSON document that --help --json and --version --json answer with; command NULL: the whole tool. */
void apr_cli_usage_json(const apr_tool *tool, const apr_command *command, apr_json_text *json);
void apr_cli_version_json(const apr_tool *tool, apr_json_text *json);

#endif
