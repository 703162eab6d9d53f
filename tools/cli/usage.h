/* usage.h - the common options of all commands, and help texts. */
#ifndef APR_TOOLS_USAGE_H
#define APR_TOOLS_USAGE_H

#include "tools/cli/cli.h"

extern const apr_option apr_common_options[]; /* offsets into apr_parsed.common */

/* `TOOL help words`: how the tool translates options and verbs of other programs. */
void apr_cli_foreign_words(const apr_tool *tool, FILE *out);

/* The members of the JSON object that --help --json and --version --json print. command NULL: the whole tool. */
void apr_cli_usage_json(const apr_tool *tool, const apr_command *command, apr_json_text *json);
void apr_cli_version_json(const apr_tool *tool, apr_json_text *json);

#endif
