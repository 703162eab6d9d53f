/* options.h - the options that every command has, and how options and commands are found in their tables. */
#ifndef APR_TOOLS_OPTIONS_H
#define APR_TOOLS_OPTIONS_H

#include "tools/cli/cli.h"

extern const apr_option apr_common_options[]; /* offsets into apr_parsed.common */

/* Finds an option among the common ones and those of a command, which may be NULL, by its name (n characters), or by its letter if name is
 * NULL. NULL: there is none. */
const apr_option *apr_option_named(const apr_command *command, const char *name, size_t n, char letter);
/* verb NULL: the command without a verb. */
const apr_command *apr_command_named(const apr_tool *tool, const char *verb);

/* "help" is a verb of every tool. */
#define APR_HELP_VERB "help"

#endif
